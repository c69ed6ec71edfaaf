//! All codes behind one set of verbs.

use noctule_codes::codec::{Code, CodecError, Settings};
use noctule_codes::prng::SplitMix64;
use noctule_codes::recoding::Probability;
use proptest::prelude::*;

fn settings(packets: usize, loss: f64) -> Settings {
    Settings { packets, packet_len: 32, batch_size: 16, loss: Probability::new(loss), deviation: Probability::new(loss / 4.0) }
}

fn data(settings: &Settings) -> Vec<u8> {
    let mut data = vec![0; settings.packets * settings.packet_len];
    SplitMix64::new(8).fill(&mut data);
    data
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(12))]

    #[test]
    fn every_code_gives_the_block_back(seed: u64, packets in 1usize..300, loss in 0.0f64..0.2) {
        let settings = settings(packets, loss);
        let data = data(&settings);
        for code in Code::ALL {
            let mut encoder = code.encoder(&settings, &data).unwrap();
            let mut decoder = code.decoder(&settings).unwrap();
            let mut random = SplitMix64::new(seed);
            let (mut out, mut seen) = (vec![0; settings.packet_len], vec![false; packets]);
            let mut number = 0;
            // The window code promises nothing for a burst, Reed-Solomon nothing beyond its rate, and Sphinx retransmits what its ProFEC packets,
            // all alike when little loss is expected, do not reach.
            let fixed_rate = matches!(code.name(), "sliding-window" | "reed-solomon" | "semi-random-lt");
            while !decoder.is_complete() && number < 10 * packets as u32 + 400 {
                if encoder.packet(number, &mut out).is_err() { break; }
                if random.unit() >= loss {
                    decoder.receive(number, &out);
                    prop_assert!(!decoder.receive(number, &out) || code.name() == "lt" || code.name() == "semi-random-lt", "{} takes a duplicate", code.name());
                }
                while let Some((j, source)) = decoder.take_recovered() {
                    prop_assert_eq!(source, &data[j * 32..][..32], "{} packet {}", code.name(), j);
                    prop_assert!(!std::mem::replace(&mut seen[j], true), "{} gives packet {} twice", code.name(), j);
                }
                number += 1;
            }
            prop_assert_eq!(decoder.is_complete(), seen.iter().all(|s| *s));
            prop_assert!(decoder.is_complete() || fixed_rate, "{} after {} packets", code.name(), number);
        }
    }

    #[test]
    fn arbitrary_packets_never_panic(packets in 1usize..60, input in prop::collection::vec((prop_oneof![0u32..200, any::<u32>()], prop::collection::vec(any::<u8>(), 31..34)), 0..200)) {
        let settings = settings(packets, 0.1);
        for code in Code::ALL {
            let mut decoder = code.decoder(&settings).unwrap();
            for (number, payload) in &input {
                decoder.receive(*number, payload);
                while let Some((j, source)) = decoder.take_recovered() {
                    prop_assert!(j < packets && source.len() == 32);
                }
            }
        }
    }
}

#[test]
fn codes_are_found_by_their_names() {
    for code in Code::ALL {
        assert_eq!(Code::by_name(code.name()), Some(*code));
    }
    assert_eq!(Code::by_name("morse"), None);
}

#[test]
fn wrong_sizes_are_refused_with_their_numbers() {
    for code in Code::ALL {
        let settings = settings(10, 0.1);
        assert_eq!(code.encoder(&settings, &[0; 319]).err(), Some(CodecError::DataLength { given: 319, wanted: 320 }));
        assert_eq!(code.decoder(&Settings { packets: 0, ..settings }).err(), Some(CodecError::Settings));
        assert_eq!(code.decoder(&Settings { packets: usize::MAX, ..settings }).err(), Some(CodecError::Settings));
        let mut encoder = code.encoder(&settings, &[0; 320]).unwrap();
        assert_eq!(encoder.packet(0, &mut [0; 31]), Err(CodecError::NoSuchPacket(0)));
    }
}

#[test]
fn blocks_coded_on_other_cores_are_the_same() {
    // P21: a block belongs to one worker, and it does not matter to which.
    let settings = settings(200, 0.1);
    let data = data(&settings);
    for code in Code::ALL {
        let make = || {
            let mut encoder = code.encoder(&settings, &data).unwrap();
            let mut out = vec![0; 32];
            (0..230).map(|number| encoder.packet(number, &mut out).map(|()| out.clone()).ok()).collect::<Vec<_>>()
        };
        let here = make();
        let there = std::thread::scope(|scope| scope.spawn(make).join().unwrap());
        assert_eq!(here, there, "{}", code.name());
    }
}

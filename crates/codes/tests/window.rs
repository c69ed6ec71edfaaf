//! Window repair: unaligned spans over the last packets, with losses, reordering and hostile input.

use noctule_codes::prng::SplitMix64;
use noctule_codes::span::{encode, repair_coefficients};
use noctule_codes::window::*;
use proptest::prelude::*;
use std::collections::BTreeMap;

fn packet(seq: u64) -> Vec<u8> {
    let mut random = SplitMix64::new(seq);
    let mut data = vec![0; 1 + random.below(30) as usize];
    random.fill(&mut data);
    data.push(1); // padding zeros can be told from data
    data
}

fn repair(base: u64, n: usize, seed: u16) -> (Vec<u8>, Vec<u8>) {
    let packets: Vec<Vec<u8>> = (base..base + n as u64).map(packet).collect();
    let refs: Vec<&[u8]> = packets.iter().map(Vec::as_slice).collect();
    let mut coefficients = vec![0; n];
    repair_coefficients(seed, n, &mut coefficients);
    let mut data = vec![0; packets.iter().map(Vec::len).max().unwrap_or(0)];
    encode(&coefficients, &refs, &mut data);
    (coefficients, data)
}

fn unpad(mut data: Vec<u8>) -> Vec<u8> {
    while data.last() == Some(&0) {
        data.pop();
    }
    data
}

#[test]
fn a_burst_comes_back_as_soon_as_enough_repairs_have_arrived() {
    let mut decoder = WindowDecoder::new(Limits::default());
    for seq in (0..20).filter(|seq| !(10..13).contains(seq)) {
        decoder.source(seq, &packet(seq));
    }
    for (i, base) in [4, 6, 8].into_iter().enumerate() {
        assert_eq!(decoder.take_recovered(), None);
        let (coefficients, data) = repair(base, 12, 10 * i as u16);
        assert_eq!(decoder.repair(base, &coefficients, &data), Offered::Innovative);
    }
    let got: BTreeMap<u64, Vec<u8>> = std::iter::from_fn(|| decoder.take_recovered()).map(|(seq, d)| (seq, unpad(d))).collect();
    assert_eq!(got, (10..13).map(|seq| (seq, packet(seq))).collect());
    assert_eq!(decoder.pending(), 0);
}

#[test]
fn giving_up_on_a_packet_keeps_the_equations_that_do_not_need_it() {
    let mut decoder = WindowDecoder::new(Limits::default());
    let (old, old_data) = repair(0, 2, 1);
    let (young, young_data) = repair(5, 2, 2);
    decoder.repair(0, &old, &old_data);
    decoder.repair(5, &young, &young_data);
    assert_eq!(decoder.pending(), 2);
    decoder.advance(2);
    assert_eq!(decoder.pending(), 1);
    assert_eq!(decoder.source(1, &packet(1)), Offered::TooOld);
    decoder.source(5, &packet(5));
    assert_eq!(decoder.take_recovered().map(|(seq, d)| (seq, unpad(d))), Some((6, packet(6))));
    let (late, late_data) = repair(0, 4, 3);
    assert_eq!(decoder.repair(0, &late, &late_data), Offered::TooOld);
}

#[test]
fn known_packets_below_the_floor_still_serve_repairs() {
    let mut decoder = WindowDecoder::new(Limits::default());
    decoder.source(0, &packet(0));
    decoder.advance(1);
    let (coefficients, data) = repair(0, 2, 9);
    assert_eq!(decoder.repair(0, &coefficients, &data), Offered::Innovative);
    assert_eq!(decoder.take_recovered().map(|(seq, d)| (seq, unpad(d))), Some((1, packet(1))));
}

#[test]
fn repairs_and_jumps_at_the_end_of_the_number_space_are_refused_or_survive() {
    let mut decoder = WindowDecoder::new(Limits { window: 64, pending: 2 });
    assert_eq!(decoder.repair(u64::MAX, &[1, 1], b"x"), Offered::Malformed);
    assert_eq!(decoder.repair(3, &[], b"x"), Offered::Malformed);
    assert_eq!(decoder.repair(3, &[1; 65], b"x"), Offered::Malformed);
    assert_eq!(decoder.source(u64::MAX, b"x"), Offered::Malformed);
    decoder.source(5, b"five");
    decoder.source(u64::MAX - 1, b"last");
    assert!(!decoder.is_known(5));
    assert!(decoder.is_known(u64::MAX - 1));
    assert_eq!(decoder.source(5, b"five"), Offered::TooOld);
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(150))]

    #[test]
    fn what_is_recovered_is_right_and_complete(seed: u64, loss in 0u32..40, start in prop::sample::select(vec![0u64, 1 << 32, u64::MAX - 5000]), pending in 1usize..80) {
        let mut random = SplitMix64::new(seed);
        let mut decoder = WindowDecoder::new(Limits { window: 128, pending });
        let mut missing = BTreeMap::new();
        let end = start + 400;
        for seq in start..end {
            if random.below(100) >= loss {
                decoder.source(seq, &packet(seq));
            } else {
                missing.insert(seq, packet(seq));
            }
            // Enough repairs over unaligned spans of changing length.
            for _ in 0..random.below(3) {
                let n = 1 + random.below(64.min((seq - start + 1) as u32)) as usize;
                let base = seq + 1 - n as u64;
                let (coefficients, data) = repair(base, n, random.next_u64() as u16);
                decoder.repair(base, &coefficients, &data);
            }
            if random.below(20) == 0 { decoder.advance(seq.saturating_sub(100)); }
            prop_assert!(decoder.pending() <= pending.max(1));
            while let Some((seq, data)) = decoder.take_recovered() {
                prop_assert!(decoder.is_known(seq));
                prop_assert_eq!(missing.remove(&seq), Some(unpad(data)));
            }
        }
        // A last flood of repairs over the end of the stream restores what the window still covers.
        for i in 0..64u16 {
            let base = end - 64;
            let (coefficients, data) = repair(base, 64, 192 + i);
            decoder.repair(base, &coefficients, &data);
            if pending < 64 { break; }
        }
        while let Some((seq, data)) = decoder.take_recovered() {
            prop_assert_eq!(missing.remove(&seq), Some(unpad(data)));
        }
        if pending >= 64 {
            prop_assert!(missing.range(end - 64..).next().is_none());
        }
    }

    #[test]
    fn arbitrary_input_never_panics_and_stays_bounded(ops in prop::collection::vec((0u8..3, prop_oneof![0u64..300, any::<u64>()], prop::collection::vec(any::<u8>(), 0..70)), 0..300)) {
        let mut decoder = WindowDecoder::new(Limits { window: 64, pending: 8 });
        for (op, seq, bytes) in ops {
            match op {
                0 => { decoder.source(seq, &bytes); }
                1 => { decoder.repair(seq, &bytes, &bytes); }
                _ => decoder.advance(seq.min(1 << 40)),
            }
            prop_assert!(decoder.pending() <= 8);
        }
    }
}

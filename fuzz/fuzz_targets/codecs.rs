//! Any numbered packets into the decoder of every code.
#![no_main]

use libfuzzer_sys::fuzz_target;
use noctule_codes::codec::{Code, Settings};
use noctule_codes::recoding::Probability;

fuzz_target!(|input: (u8, u8, u8, Vec<(u32, Vec<u8>)>)| {
    let (which, packets, loss, input) = input;
    // The degree design of `rfc9426` is too slow to be run per input; its decoder has a target of its own.
    let codes: Vec<Code> = Code::ALL.iter().copied().filter(|code| code.name() != "rfc9426").collect();
    let code = codes[usize::from(which) % codes.len()];
    let settings = Settings {
        packets: usize::from(packets),
        packet_len: 8,
        batch_size: 16,
        loss: Probability::new(f64::from(loss) / 300.0),
        deviation: Probability::new(0.02),
    };
    let Ok(mut decoder) = code.decoder(&settings) else { return };
    for (number, mut payload) in input {
        payload.resize(8, 0);
        decoder.receive(number, &payload);
        decoder.receive(number % 600, &payload);
        while let Some((j, source)) = decoder.take_recovered() {
            assert!(j < settings.packets && source.len() == 8);
        }
    }
});

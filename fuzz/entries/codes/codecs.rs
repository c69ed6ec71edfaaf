//! Any numbered packets into the decoder of every code.

use super::Input;
use noctule_codes::codec::{Code, Settings};
use noctule_codes::recoding::Probability;

pub fn run(data: &[u8]) {
    let mut input = Input::new(data);
    // The degree design of `rfc9426` is too slow to be run per input; its decoder has a target of its own.
    let codes: Vec<Code> = Code::ALL.iter().copied().filter(|code| code.name() != "rfc9426").collect();
    let code = codes[usize::from(input.u8()) % codes.len()];
    let settings = Settings {
        packets: usize::from(input.u8()),
        packet_len: 8,
        batch_size: 16,
        loss: Probability::new(f64::from(input.u8()) / 300.0),
        deviation: Probability::new(0.02),
    };
    let Ok(mut decoder) = code.decoder(&settings) else { return };
    while !input.is_empty() {
        let (number, mut payload) = (input.u32(), input.bytes().to_vec());
        payload.resize(8, 0);
        decoder.receive(number, &payload);
        decoder.receive(number % 600, &payload);
        while let Some((j, source)) = decoder.take_recovered() {
            assert!(j < settings.packets && source.len() == 8);
        }
    }
}

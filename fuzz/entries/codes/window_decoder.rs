//! Any sequence of source packets, repairs and floors into the window decoder.

use super::Input;
use noctule_codes::window::{Limits, WindowDecoder};

pub fn run(data: &[u8]) {
    let mut input = Input::new(data);
    let limits = Limits { window: usize::from(input.u16()), pending: usize::from(input.u8()) };
    let mut decoder = WindowDecoder::new(limits);
    while !input.is_empty() {
        let operation = input.u8();
        let seq = if operation >= 192 { input.u64() } else { u64::from(input.u16()) };
        let (coefficients, data) = (input.bytes(), input.bytes());
        match operation % 6 {
            0 => drop(decoder.source(seq, data)),
            1 => drop(decoder.source(seq % 512, data)),
            2 => drop(decoder.repair(seq, coefficients, data)),
            3 | 4 => drop(decoder.repair(seq % 512, coefficients, data)),
            _ => decoder.advance(seq % 1024),
        }
        assert!(decoder.pending() <= limits.pending.clamp(1, 256));
        if operation.is_multiple_of(2) {
            while let Some((seq, _)) = decoder.take_recovered() {
                assert!(seq < u64::MAX);
            }
        }
    }
}

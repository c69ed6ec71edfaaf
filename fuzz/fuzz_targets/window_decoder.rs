//! Any sequence of source packets, repairs and floors into the window decoder.
#![no_main]

use libfuzzer_sys::fuzz_target;
use noctule_codes::window::{Limits, WindowDecoder};

fuzz_target!(|input: (u16, u8, Vec<(u8, u64, Vec<u8>, Vec<u8>)>)| {
    let (window, pending, operations) = input;
    let limits = Limits { window: usize::from(window), pending: usize::from(pending) };
    let mut decoder = WindowDecoder::new(limits);
    for (operation, seq, coefficients, data) in operations {
        match operation % 6 {
            0 => drop(decoder.source(seq, &data)),
            1 => drop(decoder.source(seq % 512, &data)),
            2 => drop(decoder.repair(seq, &coefficients, &data)),
            3 | 4 => drop(decoder.repair(seq % 512, &coefficients, &data)),
            _ => decoder.advance(seq % 1024),
        }
        assert!(decoder.pending() <= limits.pending.clamp(1, 256));
        if operation % 2 == 0 {
            while let Some((seq, _)) = decoder.take_recovered() {
                assert!(seq < u64::MAX);
            }
        }
    }
});

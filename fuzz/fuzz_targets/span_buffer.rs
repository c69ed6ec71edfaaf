//! Any vectors and payloads into a span, with growth, reset and recoding between them: recoding never raises the rank.
#![no_main]

use libfuzzer_sys::fuzz_target;
use noctule_codes::span::SpanBuffer;

fuzz_target!(|input: (u8, Vec<(u8, Vec<u8>, Vec<u8>)>)| {
    let (n, operations) = input;
    let mut span = SpanBuffer::new(usize::from(n));
    for (operation, mut vector, payload) in operations {
        match operation % 8 {
            0 => span.extend(vector.len()),
            1 if operation > 200 => span.reset(vector.len()),
            _ => {
                if operation % 2 == 0 {
                    vector.resize(span.basis().n(), 0);
                }
                span.receive(&vector, &payload);
            }
        }
        while let Some((j, _)) = span.take_recovered() {
            assert!(span.basis().contains_unit(j));
        }
        let (mut coefficients, mut data) = (vec![0; span.basis().n()], Vec::new());
        span.recode(&vector, &mut coefficients, &mut data);
        assert!(!span.basis().is_innovative(&coefficients));
        assert!(span.rank() <= span.basis().n());
    }
});

//! Any vectors and payloads into a span, with growth, reset and recoding between them: recoding never raises the rank.

use super::Input;
use noctule_codes::span::SpanBuffer;

pub fn run(data: &[u8]) {
    let mut input = Input::new(data);
    let mut span = SpanBuffer::new(usize::from(input.u8()));
    while !input.is_empty() {
        let operation = input.u8();
        let (mut vector, payload) = (input.bytes().to_vec(), input.bytes());
        match operation % 8 {
            0 => span.extend(vector.len()),
            1 if operation > 200 => span.reset(vector.len()),
            _ => {
                if operation.is_multiple_of(2) {
                    vector.resize(span.basis().n(), 0);
                }
                span.receive(&vector, payload);
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
}

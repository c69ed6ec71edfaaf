//! Any sets of neighbours into the decoder of the LT codes: no panic, and what it calls known it can show.
#![no_main]

use libfuzzer_sys::fuzz_target;
use noctule_codes::lt::PeelingDecoder;

fuzz_target!(|input: (u8, Vec<(Vec<u32>, Vec<u8>)>)| {
    let (n, packets) = input;
    let n = usize::from(n);
    let mut decoder = PeelingDecoder::new(n, 4);
    for (mut neighbours, mut payload) in packets {
        // Most sets within the block, most payloads of the right length.
        if neighbours.first().is_some_and(|j| j % 4 != 0) {
            neighbours.iter_mut().for_each(|j| *j %= n.max(1) as u32);
            payload.resize(4, 0);
        }
        decoder.receive(&neighbours, &payload);
        while let Some((j, source)) = decoder.take_recovered() {
            assert!(j < n && source.len() == 4);
        }
        assert_eq!((0..n).filter(|j| decoder.source(*j).is_none()).count(), decoder.missing());
        assert_eq!(decoder.is_complete(), decoder.missing() == 0);
    }
});

//! Any sets of neighbours into the decoder of the LT codes: no panic, and what it calls known it can show.

use super::Input;
use noctule_codes::lt::PeelingDecoder;

pub fn run(data: &[u8]) {
    let mut input = Input::new(data);
    let n = usize::from(input.u8());
    let mut decoder = PeelingDecoder::new(n, 4);
    while !input.is_empty() {
        let kind = input.u8();
        let mut neighbours: Vec<u32> = match kind % 2 {
            0 => input.bytes().iter().map(|b| u32::from(*b)).collect(),
            _ => input.bytes().chunks(4).map(|c| c.iter().fold(0, |v, b| v << 8 | u32::from(*b))).collect(),
        };
        let mut payload = input.bytes().to_vec();
        // Most sets within the block, most payloads of the right length.
        if kind % 4 != 3 {
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
}

//! Any packets into the block decoder of the noctule profile: no panic, bounded memory, and it never claims to want nothing while incomplete.

use super::Input;
use noctule_codes::bats::{BlockDecoder, Profile};

pub fn run(data: &[u8]) {
    let mut input = Input::new(data);
    let Ok(profile) = Profile::new(usize::from(input.u8()), usize::from(input.u8()), input.u16()) else { return };
    let Ok(mut decoder) = BlockDecoder::new(profile, 16) else { return };
    while !input.is_empty() {
        let (batch, index) = (input.u32(), input.u8());
        let (mut coefficients, payload) = (input.bytes().to_vec(), input.bytes());
        // Half of the batch numbers near the systematic ones, half of the vectors of the right length.
        let batch = if index.is_multiple_of(2) { batch % 40 } else { batch };
        if index % 3 == 0 {
            coefficients.resize(profile.batch_len(batch), 1);
        }
        let mut payload = payload.to_vec();
        if index % 8 < 6 {
            payload.resize(16, 7);
        }
        decoder.receive(batch, &coefficients, &payload);
        decoder.receive_uncoded(batch, usize::from(index), &payload);
        while let Some((j, source)) = decoder.take_recovered() {
            assert!(j < profile.packets() && source.len() == 16);
        }
        assert_eq!(decoder.wanted() == 0, decoder.is_complete());
    }
}

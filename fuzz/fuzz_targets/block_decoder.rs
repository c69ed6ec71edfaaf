//! Any packets into the block decoder of the noctule profile: no panic, bounded memory, and it never claims to want nothing while incomplete.
#![no_main]

use libfuzzer_sys::fuzz_target;
use noctule_codes::bats::{BlockDecoder, Profile};

fuzz_target!(|input: (u8, u8, u16, Vec<(u32, u8, Vec<u8>, Vec<u8>)>)| {
    let (k, m, low, packets) = input;
    let Ok(profile) = Profile::new(usize::from(k), usize::from(m), low) else { return };
    let Ok(mut decoder) = BlockDecoder::new(profile, 16) else { return };
    for (batch, index, mut coefficients, payload) in packets {
        // Half of the batch numbers near the systematic ones, half of the vectors of the right length.
        let batch = if index % 2 == 0 { batch % 40 } else { batch };
        if index % 3 == 0 {
            coefficients.resize(profile.batch_len(batch), 1);
        }
        decoder.receive(batch, &coefficients, &payload);
        decoder.receive_uncoded(batch, usize::from(index), &payload);
        while let Some((j, source)) = decoder.take_recovered() {
            assert!(j < profile.packets() && source.len() == 16);
        }
        assert_eq!(decoder.wanted() == 0, decoder.is_complete());
    }
});

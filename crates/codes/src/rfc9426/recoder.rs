//! Inner code encoder, the recoder (RFC 9426 §3.3).

use super::{FieldSize, Parameters};
use crate::gf256::kernels;
use crate::prng::SplitMix64;
use alloc::vec;
use alloc::vec::Vec;

/// Random linear recoding: `count` random combinations over GF(q) of packets of one batch, coefficient vectors included.
///
/// The coefficients are the recoder's own choice; `random` is its source of them.
pub fn recode_random(parameters: &Parameters, received: &[&[u8]], count: usize, random: &mut SplitMix64) -> Vec<Vec<u8>> {
    (0..count)
        .map(|_| {
            let mut packet = vec![0; parameters.payload_len()];
            for input in received {
                let c = random.next_u64() as u8;
                // GF(2) acts on whole octets by 0 and 1, GF(256) by multiplication: both on vector and data alike.
                kernels().mul_add(&mut packet, input, if parameters.field() == FieldSize::Q2 { c & 1 } else { c });
            }
            packet
        })
        .collect()
}

/// Systematic recoding: the received packets as they are (at most `count`), then combinations up to `count`.
pub fn recode_systematic(parameters: &Parameters, received: &[&[u8]], count: usize, random: &mut SplitMix64) -> Vec<Vec<u8>> {
    let mut packets: Vec<Vec<u8>> = received.iter().take(count).map(|packet| packet.to_vec()).collect();
    packets.extend(recode_random(parameters, received, count.saturating_sub(received.len()), random));
    packets
}

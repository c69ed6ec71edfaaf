//! The precode: a few parities over all source packets, dense but cheap (docs/spec/codes.md §3.2).
//!
//! A running sum y_j = 2·y_(j-1) + p_j is added to two parities after every packet: three operations per packet whatever the number of
//! parities (the construction of the HDPC rows of RFC 6330 §5.3.3.3, with the field and selection of this profile).

use super::Profile;
use crate::gf256::{kernels, mul};
use crate::prng::SplitMix64;
use alloc::vec;
use alloc::vec::Vec;

/// The two parities that take the running sum after packet `j`.
fn selections(profile: &Profile) -> impl Iterator<Item = [usize; 2]> {
    let h = profile.parities();
    let mut random = SplitMix64::new(u64::MAX - profile.packets() as u64);
    (0..profile.packets()).map(move |_| {
        let bits = random.next_u64();
        let first = (((bits & 0xffff_ffff) * u64::from(h)) >> 32) as u32;
        let other = (first + 1 + (((bits >> 32) * u64::from(h - 1)) >> 32) as u32) % h;
        [first as usize, other as usize]
    })
}

/// Computes the parities of the packets in `sources` (K rows of `stride` bytes) for which `is_known` holds; others count as zeros.
pub(super) fn parities(profile: &Profile, sources: &[u8], stride: usize, is_known: impl Fn(usize) -> bool, out: &mut [u8]) {
    out.fill(0);
    if profile.parities() == 0 {
        return;
    }
    let mut sum = vec![0u8; stride];
    for (j, (packet, [a, b])) in sources.chunks_exact(stride).zip(selections(profile)).enumerate() {
        kernels().scale(&mut sum, 2);
        if is_known(j) {
            kernels().add(&mut sum, packet);
        }
        kernels().add(&mut out[a * stride..][..stride], &sum);
        kernels().add(&mut out[b * stride..][..stride], &sum);
    }
}

/// Coefficients of source packet `j` in the parities: entry `slot(j) · H + h` is that of parity h, for packets with a slot.
pub(super) fn columns(profile: &Profile, slots: usize, slot: impl Fn(usize) -> Option<usize>) -> Vec<u8> {
    let h = profile.parities() as usize;
    let mut out = vec![0u8; slots * h];
    if h == 0 {
        return out;
    }
    let chosen: Vec<[usize; 2]> = selections(profile).collect();
    // From the end: packet j reaches what packet j+1 reaches, times 2, and the two parities after it.
    let mut column = vec![0u8; h];
    for (j, [a, b]) in chosen.into_iter().enumerate().rev() {
        for c in &mut column {
            *c = mul(*c, 2);
        }
        column[a] ^= 1;
        column[b] ^= 1;
        if let Some(slot) = slot(j) {
            out[slot * h..][..h].copy_from_slice(&column);
        }
    }
    out
}

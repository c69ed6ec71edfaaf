//! Coefficients of repair packets as a function of a seed, and combinations made with them.

use super::MAX_SPAN;
use crate::gf256::{inv, kernels};
use crate::prng::SplitMix64;

/// Seeds below this one give rows of a Cauchy matrix; from this one on they give pseudo-random rows.
pub const CAUCHY_SEEDS: u16 = 192;

/// Writes the coefficients of the repair packet with this seed over the first `n` packets of a span (docs/spec/codes.md §2).
///
/// * `seed < 192`: the Cauchy row `1 / (x + y_j)` with `x = 64 + seed`, `y_j = j`. Source packets and these repairs together are MDS for
///   every `n <= 64`: as long as a receiver has only source packets and such repairs, each fresh seed is innovative until rank `n`.
/// * `seed >= 192`: byte `j mod 8` (little-endian) of output `j / 8` of SplitMix64 started with `seed`, with 0 replaced by 1.
///
/// The row over `n` packets is a prefix of the row over more, so a span can grow. Entries of `out` beyond `n` become 0;
/// `n` above [`MAX_SPAN`] or `out.len()` is cut.
pub fn repair_coefficients(seed: u16, n: usize, out: &mut [u8]) {
    let n = n.min(MAX_SPAN).min(out.len());
    let (row, rest) = out.split_at_mut(n);
    rest.fill(0);
    if seed < CAUCHY_SEEDS {
        let x = MAX_SPAN as u8 + seed as u8;
        for (y, c) in row.iter_mut().enumerate() {
            *c = inv(x ^ y as u8);
        }
    } else {
        let mut random = SplitMix64::new(u64::from(seed));
        for chunk in row.chunks_mut(8) {
            for (c, byte) in chunk.iter_mut().zip(random.next_u64().to_le_bytes()) {
                *c = byte.max(1);
            }
        }
    }
}

/// `out = sum of coefficients[j] · sources[j]`; `out.len()` should be the length of the longest source with a non-zero coefficient.
pub fn encode(coefficients: &[u8], sources: &[&[u8]], out: &mut [u8]) {
    out.fill(0);
    add_combination(coefficients.iter().copied().zip(sources.iter().copied()), out);
}

/// `out ^= sum of c · source`, in passes of a few terms: a longer list on the stack costs more than another pass.
pub(super) fn add_combination<'a>(terms: impl Iterator<Item = (u8, &'a [u8])>, out: &mut [u8]) {
    const AT_ONCE: usize = 16;
    let (mut held, mut count): ([(u8, &[u8]); AT_ONCE], usize) = ([(0, &[]); AT_ONCE], 0);
    for term in terms.filter(|(c, _)| *c != 0) {
        held[count] = term;
        count += 1;
        if count == AT_ONCE {
            kernels().dot_add(out, &held);
            count = 0;
        }
    }
    kernels().dot_add(out, &held[..count]);
}

/// Coefficients of a recoded packet: `out = sum of weights[r] · rows[r]`, the rows being coefficient vectors of received packets.
///
/// Random weights make a random recoded packet; a single 1 forwards a row unchanged (systematic recoding).
pub fn recode_coefficients(rows: &[&[u8]], weights: &[u8], out: &mut [u8]) {
    encode(weights, rows, out);
}

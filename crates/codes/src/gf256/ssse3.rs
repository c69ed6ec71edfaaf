//! SSSE3: two 16-byte table look-ups (PSHUFB) per vector, one for each nibble.

use super::tables::NIBBLES;
use core::arch::x86_64::*;

type V = __m128i;
const W: usize = 16;

#[inline]
#[target_feature(enable = "ssse3")]
unsafe fn load(p: *const u8) -> V {
    // SAFETY: the caller owns W bytes at `p`.
    unsafe { _mm_loadu_si128(p.cast()) }
}

#[inline]
#[target_feature(enable = "ssse3")]
unsafe fn store(p: *mut u8, v: V) {
    // SAFETY: the caller owns W bytes at `p`.
    unsafe { _mm_storeu_si128(p.cast(), v) }
}

#[inline]
#[target_feature(enable = "ssse3")]
fn zero() -> V {
    _mm_setzero_si128()
}

#[inline]
#[target_feature(enable = "ssse3")]
fn xor(a: V, b: V) -> V {
    _mm_xor_si128(a, b)
}

#[inline]
#[target_feature(enable = "ssse3")]
fn factor(c: u8) -> (V, V) {
    let table = &NIBBLES[c as usize].0;
    // SAFETY: the table holds two vectors of 16 bytes.
    unsafe { (load(table.as_ptr()), load(table.as_ptr().add(16))) }
}

#[inline]
#[target_feature(enable = "ssse3")]
fn split(v: V) -> (V, V) {
    let mask = _mm_set1_epi8(0x0f);
    (_mm_and_si128(v, mask), _mm_and_si128(_mm_srli_epi64::<4>(v), mask))
}

#[inline]
#[target_feature(enable = "ssse3")]
fn mul(f: (V, V), s: (V, V)) -> V {
    _mm_xor_si128(_mm_shuffle_epi8(f.0, s.0), _mm_shuffle_epi8(f.1, s.1))
}

lane_kernels!("ssse3", "ssse3", dot_block = 4, dot4_block = 2, pairs = false, narrow = None, convolve8 = super::clmul::xmm::convolve8);

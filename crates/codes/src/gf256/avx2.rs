//! The kernels of SSSE3 on 32 bytes at once, by AVX2.

use super::tables::NIBBLES;
use core::arch::x86_64::*;

type V = __m256i;
const W: usize = 32;

#[inline]
#[target_feature(enable = "avx2")]
unsafe fn load(p: *const u8) -> V {
    // SAFETY: the caller owns W bytes at `p`.
    unsafe { _mm256_loadu_si256(p.cast()) }
}

#[inline]
#[target_feature(enable = "avx2")]
unsafe fn store(p: *mut u8, v: V) {
    // SAFETY: the caller owns W bytes at `p`.
    unsafe { _mm256_storeu_si256(p.cast(), v) }
}

#[inline]
#[target_feature(enable = "avx2")]
fn zero() -> V {
    _mm256_setzero_si256()
}

#[inline]
#[target_feature(enable = "avx2")]
fn xor(a: V, b: V) -> V {
    _mm256_xor_si256(a, b)
}

#[inline]
#[target_feature(enable = "avx2")]
fn factor(c: u8) -> (V, V) {
    let table = &NIBBLES[c as usize].0;
    // SAFETY: the table holds two vectors of 16 bytes.
    unsafe {
        let (lo, hi) = (table.as_ptr().cast(), table.as_ptr().add(16).cast());
        (_mm256_broadcastsi128_si256(_mm_load_si128(lo)), _mm256_broadcastsi128_si256(_mm_load_si128(hi)))
    }
}

#[inline]
#[target_feature(enable = "avx2")]
fn split(v: V) -> (V, V) {
    let mask = _mm256_set1_epi8(0x0f);
    (_mm256_and_si256(v, mask), _mm256_and_si256(_mm256_srli_epi64::<4>(v), mask))
}

#[inline]
#[target_feature(enable = "avx2")]
fn mul(f: (V, V), s: (V, V)) -> V {
    _mm256_xor_si256(_mm256_shuffle_epi8(f.0, s.0), _mm256_shuffle_epi8(f.1, s.1))
}

lane_kernels!(
    "avx2",
    "avx2",
    dot_block = 4,
    dot4_block = 2,
    pairs = false,
    narrow = Some(&super::ssse3::TABLE),
    convolve8 = super::clmul::xmm::convolve8
);

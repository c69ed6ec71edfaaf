//! GFNI on 32 bytes: one affine transformation (GF2P8AFFINEQB) per vector, right for any polynomial.

use super::tables::MATRICES;
use core::arch::x86_64::*;

type V = __m256i;
const W: usize = 32;

#[inline]
#[target_feature(enable = "avx2,gfni")]
unsafe fn load(p: *const u8) -> V {
    // SAFETY: the caller owns W bytes at `p`.
    unsafe { _mm256_loadu_si256(p.cast()) }
}

#[inline]
#[target_feature(enable = "avx2,gfni")]
unsafe fn store(p: *mut u8, v: V) {
    // SAFETY: the caller owns W bytes at `p`.
    unsafe { _mm256_storeu_si256(p.cast(), v) }
}

#[inline]
#[target_feature(enable = "avx2,gfni")]
fn zero() -> V {
    _mm256_setzero_si256()
}

#[inline]
#[target_feature(enable = "avx2,gfni")]
fn xor(a: V, b: V) -> V {
    _mm256_xor_si256(a, b)
}

#[inline]
#[target_feature(enable = "avx2,gfni")]
fn factor(c: u8) -> V {
    _mm256_set1_epi64x(MATRICES[c as usize] as i64)
}

#[inline]
#[target_feature(enable = "avx2,gfni")]
fn split(v: V) -> V {
    v
}

#[inline]
#[target_feature(enable = "avx2,gfni")]
fn mul(f: V, s: V) -> V {
    _mm256_gf2p8affine_epi64_epi8::<0>(s, f)
}

lane_kernels!("gfni", "avx2,gfni", dot_block = 4, dot4_block = 2);

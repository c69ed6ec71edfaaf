//! GFNI on 64 bytes (AVX-512): the widest kernels.

use super::tables::MATRICES;
use core::arch::x86_64::*;

type V = __m512i;
const W: usize = 64;

#[inline]
#[target_feature(enable = "avx512f,gfni")]
unsafe fn load(p: *const u8) -> V {
    // SAFETY: the caller owns W bytes at `p`.
    unsafe { _mm512_loadu_si512(p.cast()) }
}

#[inline]
#[target_feature(enable = "avx512f,gfni")]
unsafe fn store(p: *mut u8, v: V) {
    // SAFETY: the caller owns W bytes at `p`.
    unsafe { _mm512_storeu_si512(p.cast(), v) }
}

#[inline]
#[target_feature(enable = "avx512f,gfni")]
fn zero() -> V {
    _mm512_setzero_si512()
}

#[inline]
#[target_feature(enable = "avx512f,gfni")]
fn xor(a: V, b: V) -> V {
    _mm512_xor_si512(a, b)
}

#[inline]
#[target_feature(enable = "avx512f,gfni")]
fn factor(c: u8) -> V {
    _mm512_set1_epi64(MATRICES[c as usize] as i64)
}

#[inline]
#[target_feature(enable = "avx512f,gfni")]
fn split(v: V) -> V {
    v
}

#[inline]
#[target_feature(enable = "avx512f,gfni")]
fn mul(f: V, s: V) -> V {
    _mm512_gf2p8affine_epi64_epi8::<0>(s, f)
}

lane_kernels!("gfni512", "avx512f,gfni", dot_block = 4, dot4_block = 4);

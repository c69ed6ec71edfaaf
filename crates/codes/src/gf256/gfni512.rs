//! GFNI on 64 bytes (AVX-512): the widest kernels.

use super::tables::{FROM_AES, MATRICES, TO_AES};
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

/// GF2P8MULB multiplies vectors by vectors, but modulo the polynomial of AES: the rows go over to that field once.
#[target_feature(enable = "avx512f,gfni")]
unsafe fn prepare_inner(rows: &mut [u8]) {
    let to_aes = _mm512_set1_epi64(TO_AES as i64);
    for chunk in rows.chunks_exact_mut(W) {
        // SAFETY: the chunk has W bytes.
        unsafe { store(chunk.as_mut_ptr(), _mm512_gf2p8affine_epi64_epi8::<0>(load(chunk.as_ptr()), to_aes)) };
    }
}

#[target_feature(enable = "avx512f,gfni")]
unsafe fn inner8(rows: &[u8], stride: usize, data: &[u8]) -> [u8; 8] {
    assert!(rows.len() == 8 * stride && stride.is_multiple_of(W) && data.len() <= stride);
    let to_aes = _mm512_set1_epi64(TO_AES as i64);
    let whole = data.len() / W * W;
    let mut tail = [0u8; W];
    tail[..data.len() - whole].copy_from_slice(&data[whole..]);
    let mut acc = [zero(); 8];
    let step = |acc: &mut [V; 8], x: V, at: usize| {
        let x = _mm512_gf2p8affine_epi64_epi8::<0>(x, to_aes);
        for (i, acc) in acc.iter_mut().enumerate() {
            // SAFETY: at + W <= stride, so row i holds W bytes there.
            *acc = xor(*acc, _mm512_gf2p8mul_epi8(x, unsafe { load(rows.as_ptr().add(i * stride + at)) }));
        }
    };
    for at in (0..whole).step_by(W) {
        // SAFETY: at + W <= whole <= data.len().
        step(&mut acc, unsafe { load(data.as_ptr().add(at)) }, at);
    }
    if whole < data.len() {
        // SAFETY: `tail` has W bytes; whole + W <= stride because both are multiples of W and whole < data.len() <= stride.
        step(&mut acc, unsafe { load(tail.as_ptr()) }, whole);
    }
    acc.map(|acc| {
        let mut bytes = [0u8; W];
        // SAFETY: `bytes` has W bytes.
        unsafe { store(bytes.as_mut_ptr(), acc) };
        let word = bytes.chunks_exact(8).fold(0, |sum, chunk| sum ^ u64::from_le_bytes(chunk.try_into().unwrap_or_default()));
        FROM_AES[usize::from(word.to_le_bytes().iter().fold(0, |sum, byte| sum ^ byte))]
    })
}

lane_kernels!("gfni512", "avx512f,gfni", dot_block = 4, dot4_block = 4, narrow = Some(&super::gfni::TABLE));

//! AVX2: as SSSE3, on 32 bytes at once.

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

unsafe fn prepare_inner(_rows: &mut [u8]) {}

/// Inner products bit by bit of the data, highest first: eight sums of masked rows, doubled between bits.
#[target_feature(enable = "avx2")]
unsafe fn inner8(rows: &[u8], stride: usize, data: &[u8]) -> [u8; 8] {
    assert!(rows.len() == 8 * stride && stride.is_multiple_of(W) && data.len() <= stride);
    let whole = data.len() / W * W;
    let mut tail = [0u8; W];
    tail[..data.len() - whole].copy_from_slice(&data[whole..]);
    let zero = zero();
    let mut acc = [zero; 8];
    let step = |acc: &mut [V; 8], x: V, bit: usize, at: usize| {
        // The sign of each byte after the shift is the wanted bit; what crosses into lower bits of the neighbour is not looked at.
        let mask = _mm256_cmpgt_epi8(zero, _mm256_sll_epi16(x, _mm_cvtsi32_si128(7 - bit as i32)));
        for (i, acc) in acc.iter_mut().enumerate() {
            // SAFETY: at + W <= stride, so row i holds W bytes there.
            *acc = xor(*acc, _mm256_and_si256(mask, unsafe { load(rows.as_ptr().add(i * stride + at)) }));
        }
    };
    for bit in (0..8).rev() {
        for acc in &mut acc {
            let high = _mm256_and_si256(_mm256_cmpgt_epi8(zero, *acc), _mm256_set1_epi8(0x1d));
            *acc = xor(_mm256_add_epi8(*acc, *acc), high);
        }
        for at in (0..whole).step_by(W) {
            // SAFETY: at + W <= whole <= data.len().
            step(&mut acc, unsafe { load(data.as_ptr().add(at)) }, bit, at);
        }
        if whole < data.len() {
            // SAFETY: `tail` has W bytes; whole + W <= stride because both are multiples of W and whole < data.len() <= stride.
            step(&mut acc, unsafe { load(tail.as_ptr()) }, bit, whole);
        }
    }
    acc.map(|acc| {
        let mut bytes = [0u8; W];
        // SAFETY: `bytes` has W bytes.
        unsafe { store(bytes.as_mut_ptr(), acc) };
        bytes.iter().fold(0, |sum, byte| sum ^ byte)
    })
}

lane_kernels!("avx2", "avx2", dot_block = 4, dot4_block = 2, narrow = Some(&super::ssse3::TABLE));

//! The product of the MAC by carry-less multiplication (PCLMULQDQ), on 16, 32 and 64 bytes.
//!
//! Eight bytes x_0 … x_7 are the polynomial x(y) = E(y^2) + y·O(y^2) with the even and the odd bytes as coefficients. Four coefficients in
//! slots of 16 bits fill a quadword, and one carry-less multiplication of two such quadwords gives all seven coefficients of their product,
//! each a polynomial of degree 14 at most that never leaves its slot. Karatsuba over even and odd saves the fourth one:
//! x·k = EE' + y^2·OO' + y·((E + O)(E' + O') - EE' - OO'). Reduction to bytes is linear and waits for the end.

/// Loops over one width, named by the intrinsics that make it.
macro_rules! convolution {
    ($feature:literal, $vector:ident, $width:literal, $load:ident, $store:ident, $zero:ident, $and:ident, $xor:ident, $shift:ident, $broadcast:ident, $clmul:ident) => {
        use core::arch::x86_64::*;

        const W: usize = $width;

        /// Sum over the 8-byte blocks of the products of data and key, as polynomials: coefficients of y^0 … y^14. The end of the data is
        /// filled up with zeros.
        ///
        /// # Safety
        /// The CPU has the features named above.
        #[target_feature(enable = $feature)]
        pub(crate) unsafe fn convolve8(key: &[u8], data: &[u8]) -> [u8; 15] {
            assert!(key.len().is_multiple_of(W) && data.len() <= key.len());
            let low = $broadcast(0x00ff);
            // Sums of EE', OO' and (E + O)(E' + O').
            let mut sums = [$zero(); 3];
            let step = |sums: &mut [$vector; 3], x: $vector, k: $vector| {
                let (e, o) = ($and(x, low), $shift::<8>(x));
                let (ke, ko) = ($and(k, low), $shift::<8>(k));
                for (sum, (a, b)) in sums.iter_mut().zip([(e, ke), (o, ko), ($xor(e, o), $xor(ke, ko))]) {
                    *sum = $xor(*sum, $xor($clmul::<0x00>(a, b), $clmul::<0x11>(a, b)));
                }
            };
            let (whole, rest) = data.as_chunks::<W>();
            let (keys, _) = key.as_chunks::<W>();
            for (x, k) in whole.iter().zip(keys) {
                // SAFETY: both chunks have W bytes.
                unsafe { step(&mut sums, $load(x.as_ptr().cast()), $load(k.as_ptr().cast())) };
            }
            if let (false, Some(k)) = (rest.is_empty(), keys.get(whole.len())) {
                let mut x = [0u8; W];
                x[..rest.len()].copy_from_slice(rest);
                // SAFETY: both arrays have W bytes.
                unsafe { step(&mut sums, $load(x.as_ptr().cast()), $load(k.as_ptr().cast())) };
            }
            super::finish(sums.map(|sum| {
                let mut bytes = [0u8; W];
                // SAFETY: the array has W bytes.
                unsafe { $store(bytes.as_mut_ptr().cast(), sum) };
                bytes.as_chunks::<16>().0.iter().fold(0, |sum, lane| sum ^ u128::from_le_bytes(*lane))
            }))
        }
    };
}

/// PCLMULQDQ.
pub(super) mod xmm {
    convolution!(
        "ssse3,pclmulqdq",
        __m128i,
        16,
        _mm_loadu_si128,
        _mm_storeu_si128,
        _mm_setzero_si128,
        _mm_and_si128,
        _mm_xor_si128,
        _mm_srli_epi16,
        _mm_set1_epi16,
        _mm_clmulepi64_si128
    );
}

/// VPCLMULQDQ on 32 bytes.
pub(super) mod ymm {
    convolution!(
        "avx2,vpclmulqdq",
        __m256i,
        32,
        _mm256_loadu_si256,
        _mm256_storeu_si256,
        _mm256_setzero_si256,
        _mm256_and_si256,
        _mm256_xor_si256,
        _mm256_srli_epi16,
        _mm256_set1_epi16,
        _mm256_clmulepi64_epi128
    );
}

/// VPCLMULQDQ on 64 bytes.
pub(super) mod zmm {
    convolution!(
        "avx512f,avx512bw,vpclmulqdq",
        __m512i,
        64,
        _mm512_loadu_si512,
        _mm512_storeu_si512,
        _mm512_setzero_si512,
        _mm512_and_si512,
        _mm512_xor_si512,
        _mm512_srli_epi16,
        _mm512_set1_epi16,
        _mm512_clmulepi64_epi128
    );
}

/// Coefficients from the sums of EE', OO' and (E + O)(E' + O').
fn finish([ee, oo, mixed]: [u128; 3]) -> [u8; 15] {
    let even = reduce(ee ^ (oo << 16)).to_le_bytes();
    let odd = reduce(mixed ^ ee ^ oo).to_le_bytes();
    core::array::from_fn(|i| if i % 2 == 0 { even[i] } else { odd[i - 1] })
}

/// Eight polynomials of degree 14 at most, in slots of 16 bits, modulo 0x11d.
fn reduce(slots: u128) -> u128 {
    const BYTE: u128 = u128::MAX / 0xffff * 0x00ff;
    // x^8 = x^4 + x^3 + x^2 + 1; the first fold leaves degree 10, the second degree 6 above nothing.
    let fold = |v: u128| {
        let high = (v >> 8) & BYTE;
        (v & BYTE) ^ high ^ (high << 2) ^ (high << 3) ^ (high << 4)
    };
    fold(fold(slots))
}

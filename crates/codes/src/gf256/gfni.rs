//! GFNI: one affine transformation (GF2P8AFFINEQB) per vector, right for any polynomial; on 32 bytes (AVX2) and on 64 (AVX-512).

/// The operations on one width, named by the intrinsics that make them.
macro_rules! gfni {
    ($feature:literal, $vector:ident, $width:literal, $load:ident, $store:ident, $zero:ident, $xor:ident, $broadcast:ident, $affine:ident) => {
        use crate::gf256::tables::MATRICES;
        use core::arch::x86_64::*;

        type V = $vector;
        const W: usize = $width;

        #[inline]
        #[target_feature(enable = $feature)]
        unsafe fn load(p: *const u8) -> V {
            // SAFETY: the caller owns W bytes at `p`.
            unsafe { $load(p.cast()) }
        }

        #[inline]
        #[target_feature(enable = $feature)]
        unsafe fn store(p: *mut u8, v: V) {
            // SAFETY: the caller owns W bytes at `p`.
            unsafe { $store(p.cast(), v) }
        }

        #[inline]
        #[target_feature(enable = $feature)]
        fn zero() -> V {
            $zero()
        }

        #[inline]
        #[target_feature(enable = $feature)]
        fn xor(a: V, b: V) -> V {
            $xor(a, b)
        }

        #[inline]
        #[target_feature(enable = $feature)]
        fn factor(c: u8) -> V {
            $broadcast(MATRICES[c as usize] as i64)
        }

        #[inline]
        #[target_feature(enable = $feature)]
        fn split(v: V) -> V {
            v
        }

        #[inline]
        #[target_feature(enable = $feature)]
        fn mul(f: V, s: V) -> V {
            $affine::<0>(s, f)
        }
    };
}

/// 32 bytes.
pub(super) mod ymm {
    gfni!(
        "avx2,gfni",
        __m256i,
        32,
        _mm256_loadu_si256,
        _mm256_storeu_si256,
        _mm256_setzero_si256,
        _mm256_xor_si256,
        _mm256_set1_epi64x,
        _mm256_gf2p8affine_epi64_epi8
    );

    lane_kernels!(
        "gfni",
        "avx2,gfni",
        dot_block = 4,
        dot4_block = 2,
        pairs = false,
        narrow = Some(&crate::gf256::ssse3::TABLE),
        convolve8 = crate::gf256::clmul::ymm::convolve8
    );
}

/// 64 bytes.
pub(super) mod zmm {
    gfni!(
        "avx512f,gfni",
        __m512i,
        64,
        _mm512_loadu_si512,
        _mm512_storeu_si512,
        _mm512_setzero_si512,
        _mm512_xor_si512,
        _mm512_set1_epi64,
        _mm512_gf2p8affine_epi64_epi8
    );

    lane_kernels!(
        "gfni512",
        "avx512f,gfni",
        dot_block = 4,
        dot4_block = 4,
        pairs = true,
        narrow = Some(&super::ymm::TABLE),
        convolve8 = crate::gf256::clmul::zmm::convolve8
    );
}

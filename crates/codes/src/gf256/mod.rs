//! The field GF(256) with polynomial x^8 + x^4 + x^3 + x^2 + 1 (0x11d, RFC 9426 §3.1) and its vector kernels.
//!
//! Single elements: [`mul`], [`inv`], [`div`]. Packets: [`kernels`] picks the fastest instruction set of the machine once;
//! every kernel is tested against the scalar one and can be forced by name for a bug report.
//!
//! ```
//! use noctule_codes::gf256::{kernels, mul};
//! let (a, b) = ([1u8, 2, 3], [4u8, 5, 6]);
//! let mut sum = [0u8; 3];
//! kernels().dot(&mut sum, &[(7, &a), (9, &b)]);
//! assert_eq!(sum[0], mul(7, 1) ^ mul(9, 4));
//! ```

mod kernels;
#[cfg(target_arch = "x86_64")]
#[macro_use]
mod lanes;
#[cfg(target_arch = "x86_64")]
mod avx2;
#[cfg(target_arch = "x86_64")]
mod clmul;
#[cfg(target_arch = "x86_64")]
mod gfni;
mod scalar;
#[cfg(target_arch = "x86_64")]
mod ssse3;
pub(crate) mod tables;

pub use kernels::{Arena, Kernels, RowTerm, kernels};

use tables::{EXP, LOG};

/// The reduction polynomial, x^8 included.
pub const POLYNOMIAL: u16 = 0x11d;

/// Product of two field elements.
#[inline]
pub const fn mul(a: u8, b: u8) -> u8 {
    if a == 0 || b == 0 {
        return 0;
    }
    EXP[LOG[a as usize] as usize + LOG[b as usize] as usize]
}

/// Multiplicative inverse. Zero has none; `inv(0)` is 0, so that hostile input cannot panic.
#[inline]
pub const fn inv(a: u8) -> u8 {
    if a == 0 {
        return 0;
    }
    EXP[255 - LOG[a as usize] as usize]
}

/// Quotient `a / b`. Division by zero gives 0.
#[inline]
pub const fn div(a: u8, b: u8) -> u8 {
    mul(a, inv(b))
}

/// The power `2^e` of the generator 2.
#[inline]
pub const fn exp(e: u8) -> u8 {
    EXP[e as usize]
}

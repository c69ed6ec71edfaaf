//! The robust soliton distribution and the LT code that uses it (Luby, FOCS 2002, definitions 10 and 11).

use super::distinct;
use crate::prng::SplitMix64;
use alloc::vec::Vec;

/// An LT code over `n` source packets: packet `number` is the XOR of a random set whose size follows the robust soliton distribution.
#[derive(Clone, Debug)]
pub struct Soliton {
    n: usize,
    cdf: Vec<f64>,
}

impl Soliton {
    /// Robust soliton with parameters c and delta; 0.1 and 0.5 are usual for blocks of some hundred to some thousand packets.
    /// `None` if n is 0 or a parameter is not positive.
    pub fn new(n: usize, c: f64, delta: f64) -> Option<Self> {
        if n == 0 || !(c > 0.0 && delta > 0.0) {
            return None;
        }
        let k = n as f64;
        // R = c · ln(K / delta) · sqrt K: the expected ripple.
        let ripple = (c * (k / delta).ln() * k.sqrt()).max(1e-9);
        let spike = ((k / ripple) as usize).clamp(1, n);
        let rho = |d: usize| if d == 1 { 1.0 / k } else { 1.0 / (d as f64 * (d - 1) as f64) };
        let tau = |d: usize| match d.cmp(&spike) {
            core::cmp::Ordering::Less => ripple / (d as f64 * k),
            core::cmp::Ordering::Equal => ripple * (ripple / delta).ln().max(0.0) / k,
            core::cmp::Ordering::Greater => 0.0,
        };
        let mut cdf = Vec::with_capacity(n);
        let mut sum = 0.0;
        for d in 1..=n {
            sum += rho(d) + tau(d);
            cdf.push(sum);
        }
        cdf.iter_mut().for_each(|p| *p /= sum);
        Some(Self { n, cdf })
    }

    /// Mean degree.
    pub fn mean_degree(&self) -> f64 {
        // E[d] = sum over d of P(degree > d).
        1.0 + self.cdf[..self.n - 1].iter().map(|p| 1.0 - p).sum::<f64>()
    }

    /// Source packets of coded packet `number`.
    pub fn neighbours(&self, number: u32) -> Vec<u32> {
        let mut random = SplitMix64::new(u64::from(number) << 32 | self.n as u64);
        let draw = random.unit();
        let degree = (self.cdf.partition_point(|p| *p <= draw) + 1).min(self.n);
        distinct(&mut random, degree, self.n)
    }
}

//! Randomness of a link: one seeded stream per purpose, so that switching jitter on does not change which packets are lost.

use rand_chacha::ChaCha8Rng;
use rand_core::{Rng, SeedableRng};

use super::units::Probability;

/// What a random stream is for. Its number goes into the stream's seed, so new ones are added at the end only.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u64)]
pub(crate) enum Purpose {
    Loss = 0,
    Jitter = 1,
    Duplicate = 2,
    Reorder = 3,
    Corrupt = 4,
    Aqm = 5,
}

/// A deterministic stream of random numbers.
#[derive(Debug, Clone)]
pub(crate) struct Dice(ChaCha8Rng);

impl Dice {
    pub(crate) fn new(seed: u64, purpose: Purpose) -> Self {
        let mut rng = ChaCha8Rng::seed_from_u64(seed);
        rng.set_stream(purpose as u64);
        Self(rng)
    }

    /// True with probability `p`.
    pub(crate) fn hit(&mut self, p: Probability) -> bool {
        self.0.next_u64() < p.threshold()
    }

    pub(crate) fn next_u64(&mut self) -> u64 {
        self.0.next_u64()
    }

    /// Uniform in (0, 1): never 0, so that its logarithm exists.
    pub(crate) fn unit(&mut self) -> f64 {
        ((self.0.next_u64() >> 11) as f64 + 0.5) / 9_007_199_254_740_992.0
    }

    /// Uniform in [-1, 1).
    pub(crate) fn signed_unit(&mut self) -> f64 {
        2.0 * self.unit() - 1.0
    }

    /// Exponentially distributed with mean 1.
    pub(crate) fn exponential(&mut self) -> f64 {
        -self.unit().ln()
    }

    /// Normally distributed with mean 0 and standard deviation 1 (Box and Muller 1958, one of the pair).
    pub(crate) fn normal(&mut self) -> f64 {
        let radius = (-2.0 * self.unit().ln()).sqrt();
        radius * (std::f64::consts::TAU * self.unit()).cos()
    }
}

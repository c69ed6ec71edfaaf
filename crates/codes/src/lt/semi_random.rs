//! Sphinx's semi-random LT code: original packets first, then "ProFEC" packets of one fixed degree, as many as the measured loss asks for
//! (Sphinx §3.2).

use super::distinct;
use crate::prng::SplitMix64;
use crate::recoding::Probability;
use alloc::vec;
use alloc::vec::Vec;

/// Encoding parameters of one block, derived from the measured packet loss rate.
#[derive(Clone, Debug, PartialEq)]
pub struct SemiRandom {
    n: usize,
    degree: usize,
    samples: usize,
    repairs: usize,
}

/// Probability P(k) that `samples` draws with replacement from `n` packets hit each of `lost` given ones (Sphinx equation 4).
///
/// The paper sums `C(k, l) (q/n)^l (1 - q/n)^(k-l) · S(l, q) q! / q^l` over l, S the Stirling numbers of the second kind. The same number is the
/// probability that a chain which moves from i to i + 1 covered packets with probability (q - i)/n is at q after k steps; the chain
/// needs neither factorials nor cancellation. A test compares the two. Cost O(samples · lost).
pub fn coverage(n: usize, lost: usize, samples: usize) -> Probability {
    let mut chain = Coverage::new(n.max(1), lost.min(n));
    for _ in 0..samples {
        chain.draw();
    }
    chain.complete()
}

struct Coverage {
    n: f64,
    covered: Vec<f64>,
}

impl Coverage {
    fn new(n: usize, lost: usize) -> Self {
        let mut covered = vec![0.0; lost + 1];
        covered[0] = 1.0;
        Self { n: n as f64, covered }
    }

    fn draw(&mut self) {
        let q = self.covered.len() - 1;
        for i in (0..q).rev() {
            let moved = self.covered[i] * (q - i) as f64 / self.n;
            self.covered[i] -= moved;
            self.covered[i + 1] += moved;
        }
    }

    fn complete(&self) -> Probability {
        Probability::new(self.covered.last().copied().unwrap_or(0.0))
    }
}

impl SemiRandom {
    /// Parameters for a block of `n` packets: loss `mean` (p_avg) with standard deviation `deviation` (delta), coverage probability at least
    /// `coverage` (the paper's T). `None` if n is 0 or the loss leaves nothing (mean + deviation >= 1).
    ///
    /// * D_h: a ProFEC packet should miss one packet at most, D_h · (p_avg + delta) <= 1.
    /// * N_pro: the smallest number k of samples whose coverage of the q = n · p_avg lost packets exceeds T, in packets of D_h samples, of which
    ///   a share p_avg is lost itself: N_pro = k / (D_h · (1 - p_avg)).
    pub fn new(n: usize, mean: Probability, deviation: Probability, coverage: Probability) -> Option<Self> {
        let loss = mean.get() + deviation.get();
        if n == 0 || loss >= 1.0 {
            return None;
        }
        let degree = if loss > 0.0 { (1.0 / loss + 1e-9) as usize } else { n }.clamp(1, n);
        let lost = ((n as f64 * mean.get() + 0.5) as usize).min(n);
        let mut chain = Coverage::new(n, lost);
        let mut samples = 0;
        // A wish for certainty cannot be met by sampling.
        let wanted = coverage.get().min(1.0 - 1e-9);
        while chain.complete().get() < wanted {
            chain.draw();
            samples += 1;
        }
        let exact = samples as f64 / (degree as f64 * (1.0 - mean.get()));
        let repairs = exact as usize + usize::from(exact > exact as usize as f64);
        Some(Self { n, degree, samples, repairs })
    }

    /// Packets in the block.
    pub fn packets(&self) -> usize {
        self.n
    }

    /// D_h.
    pub fn degree(&self) -> usize {
        self.degree
    }

    /// k, the samples that cover all lost packets with the wanted probability.
    pub fn samples(&self) -> usize {
        self.samples
    }

    /// N_pro, the ProFEC packets to send after the originals.
    pub fn repairs(&self) -> usize {
        self.repairs
    }

    /// Source packets of packet `number`: itself below n, D_h random ones from n on.
    pub fn neighbours(&self, number: u32) -> Vec<u32> {
        if (number as usize) < self.n {
            return vec![number];
        }
        distinct(&mut SplitMix64::new(u64::from(number) << 32 | self.n as u64), self.degree, self.n)
    }
}

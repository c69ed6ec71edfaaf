//! Degree distributions by linear programming (Yang, Yeung, "Batched sparse codes", IEEE Trans. Inf. Theory 60(9), 2014, §IV).
//!
//! Belief propagation recovers a fraction eta of the source packets, as K grows, if for all x in [0, eta)
//! `Omega(x) + theta · ln(1 - x) > 0`, where theta = K / batches and
//! `Omega(x) = sum over r of h_r · sum over d > r of d · Psi_d · I(d - r, r; x) + sum over r of P(rank >= r) · r · Psi_r`,
//! h the rank distribution at the decoder and I the regularised incomplete beta function. Over GF(256) the chance that a batch of
//! enough rank is still singular is neglected. Maximising theta over Psi is a linear program, and in fact a matrix game:
//! the designer picks a degree, the adversary the x where the condition is tightest.

use super::{DegreeDistribution, ParameterError};
use crate::recoding::RankDistribution;
use alloc::vec;
use alloc::vec::Vec;

/// A designed degree distribution and what the analysis says of it.
#[derive(Clone, Debug)]
pub struct Design {
    /// Probability of each degree, from 0.
    pub probabilities: Vec<f64>,
    /// Source packets per batch that belief propagation reaches asymptotically; at most the mean rank divided by the fraction asked for.
    pub source_packets_per_batch: f64,
}

impl Design {
    /// The best degrees up to `max_degree` for these ranks if a fraction `recovered` (below 1) of the packets is to come by belief propagation;
    /// a precode or inactivation takes care of the others.
    ///
    /// Cost: a dense simplex of 80 rows and `max_degree` columns, some ten milliseconds. `recovered` is clamped to 0.1 … 0.999.
    pub fn optimise(ranks: &RankDistribution, recovered: f64, max_degree: usize) -> Self {
        const GRID: usize = 80;
        let max_degree = max_degree.max(1);
        let recovered = recovered.clamp(0.1, 0.999);
        // Denser towards the end, where the logarithm grows.
        let points: Vec<f64> = (1..=GRID).map(|i| recovered * (1.0 - (1.0 - i as f64 / GRID as f64).powi(2))).collect();
        let payoff: Vec<Vec<f64>> =
            points.iter().map(|x| (1..=max_degree).map(|d| omega(ranks, d, *x) / -(1.0 - x).ln()).collect()).collect();
        let (mixture, value) = solve_game(&payoff);
        let probabilities = core::iter::once(0.0).chain(mixture).collect();
        Self { probabilities, source_packets_per_batch: value }
    }

    /// The same mixture with as much weight moved to one high degree as a block of `source_packets` needs, so that no packet is left out of
    /// every batch: without a precode the mean degree must be about theta · (ln K + 4), whatever the asymptotic analysis says.
    pub fn covering(mut self, source_packets: usize) -> Self {
        let k = source_packets.max(1) as f64;
        let mean: f64 = self.probabilities.iter().enumerate().map(|(d, p)| d as f64 * p).sum();
        let wanted = (self.source_packets_per_batch * (k.ln() + 4.0)).min(k);
        let high = (3 * wanted as usize).clamp(1, source_packets.max(1));
        if mean < wanted && high as f64 > mean {
            let weight = ((wanted - mean) / (high as f64 - mean)).min(1.0);
            self.probabilities.resize(self.probabilities.len().max(high + 1), 0.0);
            self.probabilities.iter_mut().for_each(|p| *p *= 1.0 - weight);
            self.probabilities[high] += weight;
        }
        self
    }

    /// Integer weights for the sampler of RFC 9426, in units of 2^-20.
    ///
    /// # Errors
    /// Never for a design made by [`Design::optimise`].
    pub fn distribution(&self) -> Result<DegreeDistribution, ParameterError> {
        let weights: Vec<u32> = self.probabilities.iter().map(|p| (p * f64::from(1 << 20)).round() as u32).collect();
        DegreeDistribution::new(&weights)
    }

    /// Smallest slack of the condition over [0, `upto`]: `Omega(x) / -ln(1 - x) - theta`. Not below zero for `upto` = the fraction designed for.
    pub fn slack(&self, ranks: &RankDistribution, upto: f64) -> f64 {
        let slack = |x: f64| {
            let omega: f64 = self.probabilities.iter().enumerate().skip(1).map(|(d, p)| p * omega(ranks, d, x)).sum();
            omega / -(1.0 - x).ln() - self.source_packets_per_batch
        };
        (1..=400).map(|i| slack(upto * f64::from(i) / 400.0)).fold(f64::INFINITY, f64::min)
    }
}

/// What degree `d` contributes to Omega(x).
fn omega(ranks: &RankDistribution, d: usize, x: f64) -> f64 {
    let m = ranks.batch_size();
    let h = |r: usize| ranks.probability(r).get();
    // I(d - r, r; x) = P(at least d - r of d - 1 others are known).
    let mut binomial = (1.0 - x).powi(d as i32 - 1);
    let mut at_least = vec![0.0; d + 1];
    let mut terms = vec![0.0; d];
    if binomial > 1e-300 {
        for (j, term) in terms.iter_mut().enumerate() {
            *term = binomial;
            binomial *= (d - 1 - j) as f64 / (j + 1) as f64 * x / (1.0 - x);
        }
    } else {
        // From the other end, where the mass is.
        let mut binomial = x.powi(d as i32 - 1);
        for j in (0..d).rev() {
            terms[j] = binomial;
            binomial *= j as f64 / (d - j) as f64 * (1.0 - x) / x;
        }
    }
    for j in (0..d).rev() {
        at_least[j] = at_least[j + 1] + terms[j];
    }
    let later: f64 = (1..=m.min(d - 1)).map(|r| h(r) * at_least[d - r]).sum();
    let at_once: f64 = (d..=m).map(h).sum();
    d as f64 * (later + at_once)
}

/// Value of the game "column player mixes columns to raise the smallest row" with non-negative payoffs, and the mixture.
///
/// The classic reduction: minimise the sum of u with A·u >= 1, u >= 0; then the value is 1 / sum and the mixture u / sum. Solved through its
/// dual (maximise the sum of v with Aᵀ·v <= 1), for which v = 0 is a feasible start, by the simplex method with Bland's rule.
fn solve_game(payoff: &[Vec<f64>]) -> (Vec<f64>, f64) {
    let (rows, columns) = (payoff.len(), payoff[0].len());
    // Tableau: one line per column of the game (constraint), variables v (rows of the game), then slacks, then the right-hand side.
    let width = rows + columns + 1;
    let mut tableau: Vec<Vec<f64>> = (0..columns)
        .map(|c| {
            let mut line = vec![0.0; width];
            for r in 0..rows {
                line[r] = payoff[r][c];
            }
            line[rows + c] = 1.0;
            line[width - 1] = 1.0;
            line
        })
        .collect();
    let mut objective: Vec<f64> = vec![0.0; width];
    objective[..rows].fill(-1.0);
    let mut basis: Vec<usize> = (rows..rows + columns).collect();
    for iteration in 0..20_000 {
        // Steepest coefficient at first, Bland's rule later: fast, and sure to end.
        let candidates = (0..width - 1).filter(|v| objective[*v] < -1e-10);
        let entering = if iteration < 2_000 { candidates.min_by(|a, b| objective[*a].total_cmp(&objective[*b])) } else { candidates.min() };
        let Some(entering) = entering else { break };
        let ratio = |line: &[f64]| if line[entering] > 1e-11 { line[width - 1] / line[entering] } else { f64::INFINITY };
        let leaving = (0..columns)
            .min_by(|a, b| ratio(&tableau[*a]).total_cmp(&ratio(&tableau[*b])).then(basis[*a].cmp(&basis[*b])))
            .filter(|l| ratio(&tableau[*l]).is_finite());
        let Some(leaving) = leaving else { break };
        let pivot = tableau[leaving][entering];
        for v in &mut tableau[leaving] {
            *v /= pivot;
        }
        let line = tableau[leaving].clone();
        let eliminate = |target: &mut [f64]| {
            let c = target[entering];
            if c != 0.0 {
                for (t, l) in target.iter_mut().zip(&line) {
                    *t -= c * l;
                }
            }
        };
        for (i, target) in tableau.iter_mut().enumerate() {
            if i != leaving {
                eliminate(target);
            }
        }
        eliminate(&mut objective);
        basis[leaving] = entering;
    }
    // The dual variables of the constraints are the wanted mixture.
    let u: Vec<f64> = objective[rows..rows + columns].iter().map(|v| v.max(0.0)).collect();
    let sum: f64 = u.iter().sum();
    if sum > 0.0 { (u.iter().map(|v| v / sum).collect(), 1.0 / sum) } else { (vec![1.0 / columns as f64; columns], 0.0) }
}

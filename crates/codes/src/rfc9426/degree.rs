//! Degree distribution and its sampler (RFC 9426 §3.2, figure 7).

use super::ParameterError;
use crate::tinymt32::TinyMt32;
use alloc::vec::Vec;

/// DD: integer weights of the degrees 0..=MAX_DEG; the weight of degree 0 is never used.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DegreeDistribution {
    cdf: Vec<u32>,
}

impl DegreeDistribution {
    /// A distribution from weights, entry i for degree i.
    ///
    /// # Errors
    /// If no degree from 1 on has weight, or the weights sum to 2^32 or more.
    pub fn new(weights: &[u32]) -> Result<Self, ParameterError> {
        let mut cdf = Vec::with_capacity(weights.len());
        let mut sum = 0u32;
        for (degree, weight) in weights.iter().enumerate() {
            if degree > 0 {
                sum = sum.checked_add(*weight).ok_or(ParameterError::DegreeDistribution)?;
            }
            cdf.push(sum);
        }
        if sum == 0 { Err(ParameterError::DegreeDistribution) } else { Ok(Self { cdf }) }
    }

    /// MAX_DEG.
    pub fn max_degree(&self) -> usize {
        self.cdf.len() - 1
    }

    /// Mean degree.
    pub fn mean(&self) -> f64 {
        let total = f64::from(self.cdf[self.max_degree()]);
        (1..self.cdf.len()).map(|d| d as f64 * f64::from(self.cdf[d] - self.cdf[d - 1]) / total).sum()
    }

    /// DegreeSampler: the degree of batch `bid` among `source_packets`.
    ///
    /// Figure 7 returns the first d with `r >= CDF[d]`; the inverse transform needs `r < CDF[d]` (docs/spec/errata.md, E1).
    pub fn sample(&self, bid: u16, source_packets: usize) -> usize {
        let r = TinyMt32::new(u32::from(bid)).next_u32() % self.cdf[self.max_degree()];
        let degree = self.cdf.partition_point(|c| *c <= r);
        degree.min(source_packets)
    }
}

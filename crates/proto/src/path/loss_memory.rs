//! How long a loss is remembered by the path: whether packets close in time share their fate, from the fates of neighbours.
//!
//! In a two-state chain (Gilbert) that runs in time, the packet sent a time g before a lost one is lost too with probability
//! p + (1-p)·e^(-g/t); independent losses are the case t = 0. Runs of lost packets alone cannot tell a burst of 20 ms from chance when
//! packets leave 10 ms apart; the gaps can.

use crate::units::{Duration, Time};

/// Pairs that the estimate rests on.
const PAIRS: usize = 64;
/// Fewer tell nothing.
const LEAST_PAIRS: usize = 16;
/// Excess of common fates, in standard deviations of what chance gives, from which losses count as bursts.
const SIGNIFICANT: f64 = 3.0;
/// The estimate is made anew at most so often: it takes some 10 us.
const REFRESH: Duration = Duration::from_millis(10);
/// Longest burst that is told apart from an outage.
const LONGEST: f64 = 10.0;

/// The estimator.
#[derive(Clone, Debug)]
pub struct LossMemory {
    /// Gap in seconds to the packet before a lost one, and whether that was lost too.
    pairs: [(f32, bool); PAIRS],
    count: usize,
    at: usize,
    burst: Duration,
    estimated_at: Time,
}

impl Default for LossMemory {
    fn default() -> Self {
        Self { pairs: [(0.0, false); PAIRS], count: 0, at: 0, burst: Duration::ZERO, estimated_at: Time::ZERO }
    }
}

impl LossMemory {
    /// A packet that was sent at `sent_at` is lost; the one before it left at `before` and was lost too, or not. `mean`: mean loss.
    pub fn on_pair(&mut self, sent_at: Time, before: Time, was_lost: bool, mean: f64) {
        self.pairs[self.at] = (sent_at.since(before).as_secs_f64() as f32, was_lost);
        self.at = (self.at + 1) % PAIRS;
        self.count = (self.count + 1).min(PAIRS);
        if sent_at.since(self.estimated_at) >= REFRESH {
            self.estimated_at = sent_at;
            self.burst = Duration::from_secs_f64(self.estimate(mean.clamp(0.0, 0.9)));
        }
    }

    /// Mean duration of a burst of losses; zero while losses look independent.
    pub fn burst(&self) -> Duration {
        self.burst
    }

    /// The time in seconds for which the pairs have as many common fates as the chain expects.
    fn estimate(&self, mean: f64) -> f64 {
        if self.count < LEAST_PAIRS {
            return 0.0;
        }
        let pairs = &self.pairs[..self.count];
        let n = self.count as f64;
        let common = pairs.iter().filter(|(_, lost)| *lost).count() as f64;
        let excess = (common - n * mean) / (1.0 - mean);
        if excess < 1.0 + SIGNIFICANT * (n * mean / (1.0 - mean)).sqrt() {
            return 0.0;
        }
        let expected = |t: f64| pairs.iter().map(|(gap, _)| (-f64::from(*gap) / t).exp()).sum::<f64>();
        let (mut low, mut high) = (1e-6_f64, LONGEST);
        for _ in 0..16 {
            let middle = (low * high).sqrt();
            if expected(middle) < excess { low = middle } else { high = middle }
        }
        // The chain leaves the bad state at the rate (1-p)/t.
        low / (1.0 - mean)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Feeds packets at `gaps` one after the other through a chain with the given mean loss and burst (seconds, 0: independent).
    fn measure(gaps: &[f64], p: f64, burst: f64, packets: usize, seed: u64) -> f64 {
        let mut memory = LossMemory::default();
        let (mut now, mut dice, mut was_lost) = (1.0, seed, false);
        for i in 0..packets {
            let gap = gaps[i % gaps.len()];
            let before = now;
            now += gap;
            let stays = if burst > 0.0 { (-gap / (burst * (1.0 - p))).exp() } else { 0.0 };
            let chance = p * (1.0 - stays) + if was_lost { stays } else { 0.0 };
            dice = dice.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            let is_lost = ((dice >> 11) as f64) < chance * (1u64 << 53) as f64;
            if is_lost {
                let at = |s: f64| Time::from_nanos((s * 1e9) as u64);
                memory.on_pair(at(now), at(before), was_lost, p);
            }
            was_lost = is_lost;
        }
        memory.burst().as_secs_f64()
    }

    #[test]
    fn independent_losses_have_no_duration_whatever_the_gaps() {
        for p in [0.02, 0.1, 0.3] {
            for gaps in [&[0.01][..], &[0.0001, 0.0001, 0.0098], &[0.000_012]] {
                let wrong = (1..=50).filter(|seed| measure(gaps, p, 0.0, 4000, *seed) > 0.0).count();
                assert!(wrong <= 2, "loss {p}, gaps {gaps:?}: {wrong} of 50");
            }
        }
    }

    #[test]
    fn bursts_in_time_are_measured_with_packets_that_are_rarer_than_bursts_and_more_frequent() {
        for (gaps, burst) in [(&[0.01][..], 0.02), (&[0.0002, 0.0098], 0.02), (&[0.0001], 0.001), (&[0.001], 0.01)] {
            let mut all: Vec<f64> = (1..=25).map(|seed| measure(gaps, 0.05, burst, 40_000, seed)).collect();
            all.sort_by(f64::total_cmp);
            assert!((0.6..1.7).contains(&(all[12] / burst)), "gaps {gaps:?}, bursts of {burst}: {:?}", &all[8..17]);
        }
    }

    #[test]
    fn bursts_that_ended_are_forgotten() {
        let mut memory = LossMemory::default();
        let at = Time::from_millis;
        (0..64).for_each(|i| memory.on_pair(at(1000 + 20 * i), at(999 + 20 * i), true, 0.1));
        assert!(memory.burst() > Duration::from_millis(1));
        (100..164).for_each(|i| memory.on_pair(at(1000 + 20 * i), at(999 + 20 * i), i % 10 == 0, 0.1));
        assert_eq!(memory.burst(), Duration::ZERO);
    }
}

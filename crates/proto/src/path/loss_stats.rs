//! What losses look like on a path, for the redundancy policy: mean, deviation, length of bursts in packets and in time.

use super::loss_memory::LossMemory;
use crate::units::{Duration, Probability, Time};

/// Packets per window of the estimate.
const WINDOW: u32 = 64;
/// Lost packets over which lengths of bursts are weighted.
const BURST_MEMORY: f64 = 500.0;

/// Loss of what this side sends.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct LossStats {
    /// Mean loss.
    pub mean: Probability,
    /// Standard deviation of the loss over windows of 64 packets beyond the one that chance alone gives, and the uncertainty of the mean.
    pub deviation: Probability,
    /// Packets whose fate is known.
    pub packets: u32,
    /// Mean number of consecutive packets lost, at least 1 once a loss was seen, 0 before.
    pub burst_packets: f64,
    /// Mean duration of a burst of losses in time; zero if losses are independent.
    pub burst_duration: Duration,
}

/// The estimator.
#[derive(Clone, Debug, Default)]
pub struct LossEstimator {
    resolved: u32,
    lost: u32,
    windows: u32,
    mean: f64,
    variance: f64,
    bursts: u32,
    burst_packets: f64,
    /// Packets lost lately, and the sum of the squares of the lengths of their bursts.
    burst_lost: f64,
    burst_squares: f64,
    memory: LossMemory,
    run: Option<Run>,
    /// What follows from the rest; asked for more often than fates become known.
    stats: LossStats,
}

#[derive(Clone, Copy, Debug)]
struct Run {
    last: u64,
    length: u32,
    last_sent: Time,
}

impl LossEstimator {
    /// `packets` were acknowledged.
    pub fn on_acked(&mut self, packets: u32) {
        self.resolved += packets;
        self.roll();
        self.stats = self.estimate();
    }

    /// Packet `pn` was lost; `previous`: number and time of sending of the packet before it. Called in order of packet numbers.
    pub fn on_lost(&mut self, pn: u64, previous: Option<(u64, Time)>, sent_at: Time) {
        self.resolved += 1;
        self.lost += 1;
        let mean = self.mean_so_far();
        match &mut self.run {
            Some(run) if previous.is_some_and(|(before, _)| before == run.last) => {
                self.memory.on_pair(sent_at, run.last_sent, true, mean);
                run.last = pn;
                run.length += 1;
                run.last_sent = sent_at;
            }
            _ => {
                if let Some((_, before)) = previous {
                    self.memory.on_pair(sent_at, before, false, mean);
                }
                self.end_run();
                self.run = Some(Run { last: pn, length: 1, last_sent: sent_at });
            }
        }
        self.roll();
        self.stats = self.estimate();
    }

    /// A packet declared lost arrived after all.
    pub fn on_spurious(&mut self) {
        self.lost = self.lost.saturating_sub(1);
        self.stats = self.estimate();
    }

    fn end_run(&mut self) {
        let Some(run) = self.run.take() else { return };
        self.bursts += 1;
        let weight = 1.0 / f64::from(self.bursts.min(32));
        let length = f64::from(run.length);
        self.burst_packets += (length - self.burst_packets) * weight;
        let kept = 1.0 - (length / BURST_MEMORY).min(0.5);
        self.burst_lost = self.burst_lost * kept + length;
        self.burst_squares = self.burst_squares * kept + length * length;
    }

    /// Mean number of consecutive packets lost, at least 1, of bursts of geometric lengths that vary as much: what they do to the loss of a stretch
    /// of packets follows from their squares, and the single losses of a queue that once was full change it little.
    pub fn weighted_burst(&self) -> f64 {
        let open = self.run.map_or(0.0, |r| f64::from(r.length));
        let lost = self.burst_lost + open;
        if lost == 0.0 { 1.0 } else { ((self.burst_squares + open * open) / lost + 1.0) / 2.0 }
    }

    fn roll(&mut self) {
        if self.resolved < WINDOW {
            return;
        }
        let loss = f64::from(self.lost) / f64::from(self.resolved);
        self.windows += 1;
        let weight = 1.0 / f64::from(self.windows.min(32));
        let off = loss - self.mean;
        self.mean += off * weight;
        self.variance += (off * off - self.variance) * weight;
        self.resolved = 0;
        self.lost = 0;
    }

    fn mean_so_far(&self) -> f64 {
        if self.windows == 0 { f64::from(self.lost) / f64::from(self.resolved.max(1)) } else { self.mean }
    }

    /// The estimates now. O(1).
    pub fn stats(&self) -> LossStats {
        self.stats
    }

    fn estimate(&self) -> LossStats {
        let mean = self.mean_so_far();
        // A run that is still open counts as soon as it is longer than the mean.
        let open = self.run.map_or(0.0, |r| f64::from(r.length));
        let burst_packets = if self.bursts == 0 { open } else { self.burst_packets };
        let packets = f64::from(WINDOW);
        let chance = mean * (1.0 - mean) / packets;
        let deviation = if self.windows < 4 {
            chance.sqrt()
        } else {
            // Packets of a burst count as one: so much wider do the windows spread by chance.
            let spread = chance * (2.0 * burst_packets * (1.0 - mean) - 1.0).max(1.0);
            ((self.variance - spread).max(0.0) + spread / f64::from(2 * self.windows.min(32))).sqrt()
        };
        LossStats {
            mean: Probability::new(mean),
            deviation: Probability::new(deviation),
            packets: self.windows.saturating_mul(WINDOW).saturating_add(self.resolved),
            burst_packets,
            burst_duration: self.memory.burst(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn feed(pattern: impl Iterator<Item = bool>) -> LossStats {
        let mut e = LossEstimator::default();
        for (i, lost) in pattern.enumerate() {
            let pn = i as u64;
            if lost {
                e.on_lost(pn, pn.checked_sub(1).map(|before| (before, Time::from_millis(before))), Time::from_millis(pn));
            } else {
                e.on_acked(1);
            }
        }
        e.stats()
    }

    #[test]
    fn mean_and_burst_length_of_regular_bursts() {
        let s = feed((0..64_000).map(|i| i % 40 < 4));
        assert!((s.mean.get() - 0.1).abs() < 0.01, "{s:?}");
        assert!((s.burst_packets - 4.0).abs() < 0.01, "{s:?}");
        assert!((3.0..5.0).contains(&(s.burst_duration.as_secs_f64() * 1e3)), "{s:?}");
    }

    /// Ten bursts of 30, then 300 single losses: packets of bursts count as many as they are.
    #[test]
    fn single_losses_beside_long_bursts_do_not_hide_them() {
        let mut e = LossEstimator::default();
        let lengths = [30; 10].into_iter().chain([1; 300]);
        let mut pn = 0;
        for length in lengths {
            for _ in 0..length {
                pn += 1;
                e.on_lost(pn, Some((pn - 1, Time::from_millis(pn - 1))), Time::from_millis(pn));
            }
            pn += 3;
            e.on_acked(3);
        }
        assert!(e.stats().burst_packets < 1.1, "{:?}", e.stats());
        assert!((6.0..16.0).contains(&e.weighted_burst()), "{}", e.weighted_burst());
    }

    #[test]
    fn single_losses_have_length_one_and_no_duration() {
        let s = feed((0..6400).map(|i| i % 20 == 0));
        assert!((s.burst_packets - 1.0).abs() < 1e-9 && s.burst_duration.is_zero(), "{s:?}");
        assert!((s.mean.get() - 0.05).abs() < 0.02, "{s:?}");
    }

    #[test]
    fn chance_alone_is_no_deviation() {
        let mut dice = 7u64;
        let mut roll = |p: f64| {
            dice = dice.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            ((dice >> 11) as f64) < p * (1u64 << 53) as f64
        };
        let s = feed((0..64_000).map(|_| roll(0.1)));
        assert!(s.deviation.get() < 0.02, "{s:?}");
        let s = feed((0..64_000).map(|i| roll(if i / 500 % 2 == 0 { 0.02 } else { 0.18 })));
        assert!(s.deviation.get() > 0.05, "{s:?}");
    }

    #[test]
    fn a_loss_counts_before_the_first_window_is_full() {
        let s = feed([false, false, false, true].into_iter());
        assert!((s.mean.get() - 0.25).abs() < 1e-9 && s.burst_packets == 1.0, "{s:?}");
    }
}

//! What losses look like on a path, for the redundancy policy: mean, deviation, length of bursts in packets and in time.

use crate::units::{Duration, Probability, Time};

/// Packets per window of the estimate.
const WINDOW: u32 = 64;

/// Loss of what this side sends.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct LossStats {
    /// Mean loss.
    pub mean: Probability,
    /// Standard deviation of the loss over windows of 64 packets.
    pub deviation: Probability,
    /// Mean number of consecutive packets lost, at least 1 once a loss was seen, 0 before.
    pub burst_packets: f64,
    /// Mean time from the first packet of a burst to the first packet after it.
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
    burst_seconds: f64,
    run: Option<Run>,
}

#[derive(Clone, Copy, Debug)]
struct Run {
    last: u64,
    length: u32,
    first_sent: Time,
    last_sent: Time,
}

impl LossEstimator {
    /// `packets` were acknowledged.
    pub fn on_acked(&mut self, packets: u32) {
        self.resolved += packets;
        self.roll();
    }

    /// Packet `pn` was lost; `previous` is the packet before it that was really sent. Called in order of packet numbers.
    pub fn on_lost(&mut self, pn: u64, previous: Option<u64>, sent_at: Time) {
        self.resolved += 1;
        self.lost += 1;
        match &mut self.run {
            Some(run) if previous == Some(run.last) => {
                run.last = pn;
                run.length += 1;
                run.last_sent = sent_at;
            }
            _ => {
                self.end_run();
                self.run = Some(Run { last: pn, length: 1, first_sent: sent_at, last_sent: sent_at });
            }
        }
        self.roll();
    }

    /// A packet declared lost arrived after all.
    pub fn on_spurious(&mut self) {
        self.lost = self.lost.saturating_sub(1);
    }

    fn end_run(&mut self) {
        let Some(run) = self.run.take() else { return };
        self.bursts += 1;
        let weight = 1.0 / f64::from(self.bursts.min(32));
        // The gap between packets stands for the time that one lost packet covers.
        let span = run.last_sent.since(run.first_sent).as_secs_f64();
        let seconds = if run.length > 1 { span * f64::from(run.length) / f64::from(run.length - 1) } else { 0.0 };
        self.burst_packets += (f64::from(run.length) - self.burst_packets) * weight;
        self.burst_seconds += (seconds - self.burst_seconds) * weight;
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

    /// The estimates now.
    pub fn stats(&self) -> LossStats {
        let so_far = f64::from(self.lost) / f64::from(self.resolved.max(1));
        let mean = if self.windows == 0 { so_far } else { self.mean };
        let deviation = if self.windows < 4 { (mean * (1.0 - mean) / f64::from(WINDOW)).sqrt() } else { self.variance.sqrt() };
        // A run that is still open counts as soon as it is longer than the mean.
        let open = self.run.map_or(0.0, |r| f64::from(r.length));
        let burst_packets = if self.bursts == 0 { open } else { self.burst_packets };
        LossStats {
            mean: Probability::new(mean),
            deviation: Probability::new(deviation),
            burst_packets,
            burst_duration: Duration::from_secs_f64(self.burst_seconds.max(0.0)),
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
                e.on_lost(pn, pn.checked_sub(1), Time::from_millis(pn));
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
        assert_eq!(s.burst_duration, Duration::from_millis(4));
    }

    #[test]
    fn single_losses_have_length_one_and_no_duration() {
        let s = feed((0..6400).map(|i| i % 20 == 0));
        assert!((s.burst_packets - 1.0).abs() < 1e-9 && s.burst_duration.is_zero(), "{s:?}");
        assert!((s.mean.get() - 0.05).abs() < 0.02, "{s:?}");
    }

    #[test]
    fn a_loss_counts_before_the_first_window_is_full() {
        let s = feed([false, false, false, true].into_iter());
        assert!((s.mean.get() - 0.25).abs() < 1e-9 && s.burst_packets == 1.0, "{s:?}");
    }
}

//! Bytes received over time in intervals of equal width: the common form of every contender's measurement.

use std::time::Duration;

/// Width of an interval in reports and plots.
pub const INTERVAL: Duration = Duration::from_millis(100);

/// Intervals that a timeline holds at most (an hour); later bytes count into the last one.
const MAX_INTERVALS: usize = 36_000;

/// Bytes received per interval, counted from the start of a run.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Timeline {
    interval: Duration,
    bytes: Vec<u64>,
}

impl Default for Timeline {
    fn default() -> Self {
        Self::new(INTERVAL)
    }
}

impl Timeline {
    /// An empty timeline with intervals of the given width.
    pub fn new(interval: Duration) -> Self {
        assert!(!interval.is_zero(), "an interval has a width");
        Self { interval, bytes: Vec::new() }
    }

    /// Counts bytes that arrived `at` after the start.
    pub fn record(&mut self, at: Duration, bytes: u64) {
        let index = (at.as_nanos() / self.interval.as_nanos()) as usize;
        let index = index.min(MAX_INTERVALS - 1);
        if self.bytes.len() <= index {
            self.bytes.resize(index + 1, 0);
        }
        self.bytes[index] += bytes;
    }

    /// Spreads bytes that arrived between two instants evenly over the intervals between them, for sources that
    /// report a running total now and then.
    pub fn record_between(&mut self, from: Duration, to: Duration, bytes: u64) {
        let mut left = bytes;
        let span = to.saturating_sub(from);
        let mut at = from;
        while at < to {
            let width = self.interval.as_nanos();
            let end = Duration::from_nanos(((at.as_nanos() / width + 1) * width) as u64).min(to);
            let share = (bytes as f64 * (end - at).as_secs_f64() / span.as_secs_f64()) as u64;
            let share = if end == to { left } else { share.min(left) };
            self.record(at, share);
            left -= share;
            at = end;
        }
        if left > 0 {
            self.record(to, left);
        }
    }

    /// Width of an interval.
    pub fn interval(&self) -> Duration {
        self.interval
    }

    /// Bytes of each interval, from the start to the last arrival.
    pub fn intervals(&self) -> &[u64] {
        &self.bytes
    }

    /// All bytes.
    pub fn total(&self) -> u64 {
        self.bytes.iter().sum()
    }

    /// Bytes that arrived in intervals that lie wholly between the two instants.
    pub fn between(&self, from: Duration, to: Duration) -> u64 {
        let width = self.interval.as_nanos();
        let first = from.as_nanos().div_ceil(width) as usize;
        let end = ((to.as_nanos() / width) as usize).min(self.bytes.len());
        self.bytes.get(first.min(end)..end).map_or(0, |bytes| bytes.iter().sum())
    }

    /// Points (seconds, Mbit/s) for a plot, averaged over `window` intervals, up to `end`; intervals without
    /// arrivals are points at zero.
    pub fn rates(&self, window: usize, end: Duration) -> Vec<(f64, f64)> {
        let window = window.max(1);
        let count = (end.as_nanos() / self.interval.as_nanos()) as usize;
        let width = self.interval.as_secs_f64();
        (0..count.div_ceil(window))
            .map(|index| {
                let first = index * window;
                let last = (first + window).min(count);
                let bytes: u64 = (first..last).map(|at| self.bytes.get(at).copied().unwrap_or(0)).sum();
                let seconds = (last - first) as f64 * width;
                let middle = (first + last) as f64 / 2.0 * width;
                (middle, bytes as f64 * 8e-6 / seconds)
            })
            .collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const fn ms(ms: u64) -> Duration {
        Duration::from_millis(ms)
    }

    #[test]
    fn bytes_fall_into_the_interval_of_their_arrival() {
        let mut timeline = Timeline::default();
        timeline.record(ms(0), 1);
        timeline.record(ms(99), 2);
        timeline.record(ms(350), 4);
        assert_eq!(timeline.intervals(), [3, 0, 0, 4]);
        assert_eq!(timeline.total(), 7);
        assert_eq!(timeline.between(ms(0), ms(300)), 3);
        assert_eq!(timeline.between(ms(100), ms(400)), 4);
        assert_eq!(timeline.between(ms(400), ms(900)), 0);
    }

    #[test]
    fn running_total_is_spread_over_the_time_it_covers() {
        let mut timeline = Timeline::default();
        timeline.record_between(ms(50), ms(250), 1000);
        assert_eq!(timeline.intervals(), [250, 500, 250]);
        timeline.record_between(ms(250), ms(250), 5);
        assert_eq!(timeline.total(), 1005);
    }

    #[test]
    fn rates_show_silence_as_zero() {
        let mut timeline = Timeline::default();
        timeline.record(ms(150), 125_000);
        let rates = timeline.rates(2, ms(400));
        assert_eq!(rates.len(), 2);
        assert!((rates[0].1 - 5.0).abs() < 1e-9, "{rates:?}");
        assert_eq!(rates[1].1, 0.0);
    }
}

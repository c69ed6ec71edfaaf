//! How fast the flow sends, to tell how long its window lasts.

use crate::units::{Duration, Time};

/// Source packets sent per unit of time, over the last round trips.
#[derive(Debug, Default)]
pub(super) struct Pace {
    since: Time,
    count: u64,
    per_second: f64,
}

impl Pace {
    pub fn sample(&mut self, now: Time, rtt: Duration, cursor: u64) {
        let elapsed = now.since(self.since);
        if elapsed >= rtt.max(Duration::from_millis(1)) {
            self.per_second = cursor.saturating_sub(self.count) as f64 / elapsed.as_secs_f64();
            (self.since, self.count) = (now, cursor);
        }
    }

    /// How long so many packets last; for ever if nothing is sent.
    pub fn time_for(&self, packets: u64) -> Duration {
        let seconds = packets as f64 / self.per_second;
        if seconds.is_finite() && seconds < 1e6 { Duration::from_secs_f64(seconds) } else { Duration::MAX }
    }
}

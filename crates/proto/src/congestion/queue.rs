//! Queueing delay of a path: the smallest RTT of the latest moments over the smallest of all.

use crate::units::{Duration, Time};

/// Samples that a bucket needs before its minimum counts.
const SAMPLES: u32 = 3;

/// The estimator.
#[derive(Clone, Debug)]
pub(super) struct Queue {
    min_rtt: Duration,
    min_at: Time,
    /// Minimum and number of samples of the present bucket, minimum of the one before.
    bucket: Duration,
    samples: u32,
    bucket_began: Time,
    last_bucket: Duration,
    low: Duration,
    peak: Duration,
    is_fresh: bool,
    /// Lowest and highest bucket since `begin_watch`.
    watched: (Duration, Duration),
    /// Buckets to pass over before: the one under way began earlier.
    skip: u32,
}

impl Queue {
    pub(super) fn new(now: Time) -> Self {
        Self {
            min_rtt: Duration::MAX,
            min_at: now,
            bucket: Duration::MAX,
            samples: 0,
            bucket_began: now,
            last_bucket: Duration::MAX,
            low: Duration::MAX,
            peak: Duration::ZERO,
            is_fresh: false,
            watched: (Duration::MAX, Duration::ZERO),
            skip: 0,
        }
    }

    /// An RTT sample; `target` is the queue aimed at, an eighth of which is the same as none.
    pub(super) fn on_rtt(&mut self, now: Time, rtt: Duration, target: Duration) {
        if rtt <= self.min_rtt.saturating_add(target / 8) {
            self.min_at = now;
        }
        self.min_rtt = self.min_rtt.min(rtt);
        self.low = self.low.min(rtt);
        self.bucket = self.bucket.min(rtt);
        self.samples += 1;
        let length = (self.min_rtt / 8).max(Duration::from_millis(2));
        self.is_fresh = false;
        if now.since(self.bucket_began) >= length && self.samples >= SAMPLES {
            self.last_bucket = self.bucket;
            if self.skip > 0 {
                self.skip -= 1;
            } else {
                self.watched = (self.watched.0.min(self.bucket), self.watched.1.max(self.bucket));
            }
            self.peak = self.now().max(self.peak - self.peak / 16);
            self.bucket = Duration::MAX;
            self.samples = 0;
            self.bucket_began = now;
            self.is_fresh = true;
        }
    }

    /// The queueing delay now.
    pub(super) fn now(&self) -> Duration {
        if self.last_bucket == Duration::MAX { Duration::ZERO } else { self.last_bucket.min(self.bucket).saturating_sub(self.min_rtt) }
    }

    /// A bucket has just been completed.
    pub(super) fn is_fresh(&self) -> bool {
        self.is_fresh
    }

    /// The largest queueing delay lately.
    pub(super) fn peak(&self) -> Duration {
        self.peak
    }

    /// The smallest RTT.
    pub(super) fn min_rtt(&self) -> Duration {
        if self.min_rtt == Duration::MAX { Duration::ZERO } else { self.min_rtt }
    }

    /// When it was last seen.
    pub(super) fn min_at(&self) -> Time {
        self.min_at
    }

    /// From now on the spread of the RTT is watched.
    pub(super) fn begin_watch(&mut self) {
        self.watched = (Duration::MAX, Duration::ZERO);
        self.skip = 8;
    }

    /// The RTT hardly moved since: nobody fills or empties a queue on the way, the way itself is long.
    pub(super) fn is_flat(&self) -> bool {
        let (low, high) = self.watched;
        high.saturating_sub(low) < (low.min(high) / 25).max(Duration::from_millis(1))
    }

    /// Queueing delay that remained at the lowest while the rate was lowered.
    pub(super) fn remained(&self) -> Duration {
        if self.low == Duration::MAX { Duration::ZERO } else { self.low.saturating_sub(self.min_rtt) }
    }

    /// The rate is lowered to look for the smallest RTT.
    pub(super) fn begin_low(&mut self) {
        self.low = Duration::MAX;
    }

    /// It is raised again. What was seen becomes the minimum if the old one was not seen for `memory`, or the path `has_changed`.
    pub(super) fn end_refresh(&mut self, now: Time, memory: Duration, has_changed: bool) {
        if self.low != Duration::MAX && (has_changed || now.since(self.min_at) >= memory) {
            self.min_rtt = self.low;
        }
        if now.since(self.min_at) >= memory || has_changed {
            self.min_at = now;
        }
    }
}

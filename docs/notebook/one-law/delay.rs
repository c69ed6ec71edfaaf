//! Delay of a path: the queue as the smallest RTT of the latest moments over the base RTT, and how much delay varies by itself.

use noctule_proto::units::{Duration, Time};

/// Samples that a bucket needs before its minimum counts.
const SAMPLES: u32 = 4;
const BUCKET: Duration = Duration::from_millis(4);
/// The base RTT is the smallest of two such times.
const HALF: Duration = Duration::from_secs(10);
const NOISE_BUCKETS: u32 = 16;

#[derive(Clone, Debug)]
pub(super) struct Delay {
    /// Smallest RTT of this half and of the one before.
    halves: [Duration; 2],
    half_began: Time,
    base_at: Time,
    bucket: Duration,
    sum: Duration,
    samples: u32,
    began: Time,
    last: Duration,
    is_fresh: bool,
    peak: Duration,
    noise: Duration,
    /// Of the time of a lower rate: queue before, smallest and mean RTT of the latest buckets.
    before_low: Duration,
    low: Duration,
    mean: Duration,
    last_mean: Duration,
}

impl Delay {
    pub(super) fn new(now: Time) -> Self {
        let (max, zero) = (Duration::MAX, Duration::ZERO);
        Self {
            halves: [max; 2],
            half_began: now,
            base_at: now,
            bucket: max,
            sum: zero,
            samples: 0,
            began: now,
            last: max,
            is_fresh: false,
            peak: zero,
            noise: zero,
            before_low: zero,
            low: max,
            mean: zero,
            last_mean: zero,
        }
    }

    pub(super) fn on_rtt(&mut self, now: Time, rtt: Duration, target: Duration, is_steady: bool) {
        if now.since(self.half_began) >= HALF {
            self.halves = [rtt, self.halves[0]];
            self.half_began = now;
        }
        if rtt <= self.base().saturating_add(target / 8) || self.base().is_zero() {
            self.base_at = now;
        }
        self.halves[0] = self.halves[0].min(rtt);
        self.bucket = self.bucket.min(rtt);
        self.low = self.low.min(rtt);
        self.sum += rtt;
        self.samples += 1;
        self.is_fresh = false;
        if now.since(self.began) >= (self.base() / 4).max(BUCKET) && self.samples >= SAMPLES {
            let mean = self.sum / self.samples;
            if is_steady {
                self.noise = (self.noise * (NOISE_BUCKETS - 1) + (mean - self.bucket)) / NOISE_BUCKETS;
            }
            self.mean = if self.mean.is_zero() { mean } else { (self.mean + mean) / 2 };
            self.last_mean = mean;
            self.last = self.bucket;
            self.peak = self.queue().max(self.peak - self.peak / 16);
            self.bucket = Duration::MAX;
            self.sum = Duration::ZERO;
            self.samples = 0;
            self.began = now;
            self.is_fresh = true;
        }
    }

    pub(super) fn base(&self) -> Duration {
        let base = self.halves[0].min(self.halves[1]);
        if base == Duration::MAX { Duration::ZERO } else { base }
    }

    pub(super) fn base_at(&self) -> Time {
        self.base_at
    }

    pub(super) fn queue(&self) -> Duration {
        if self.last == Duration::MAX { Duration::ZERO } else { self.last.min(self.bucket).saturating_sub(self.base()) }
    }

    pub(super) fn noise(&self) -> Duration {
        self.noise
    }

    pub(super) fn peak(&self) -> Duration {
        self.peak
    }

    pub(super) fn is_fresh(&self) -> bool {
        self.is_fresh
    }

    pub(super) fn begin_low(&mut self) {
        self.before_low = self.queue();
        self.low = Duration::MAX;
        self.mean = Duration::ZERO;
    }

    pub(super) fn before_low(&self) -> Duration {
        self.before_low
    }

    pub(super) fn remained(&self) -> Duration {
        if self.low == Duration::MAX { Duration::ZERO } else { self.low.saturating_sub(self.base()) }
    }

    pub(super) fn low_mean(&self) -> Duration {
        self.mean
    }

    /// What remained and varies is the path's own, up to four times what it varies by.
    pub(super) fn end_low(&mut self, now: Time, may_raise: bool) {
        let remained = self.remained();
        if may_raise && remained > Duration::ZERO && remained <= self.noise * 4 {
            self.halves = [self.base() + remained; 2];
            self.half_began = now;
            self.base_at = now;
        }
    }
}

impl Delay {
    /// Mean of the latest bucket above the base.
    pub(super) fn mean(&self) -> Duration {
        self.last_mean.saturating_sub(self.base())
    }
}

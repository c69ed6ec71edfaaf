//! Queueing delay of a path: the smallest RTT of the latest moments over the smallest of all.

use crate::units::{Duration, Time};

/// Samples that a bucket needs before its minimum counts.
const SAMPLES: u32 = 3;
/// Buckets that the measure of noise looks back over.
const NOISE_BUCKETS: u32 = 16;
/// However large an outlier, it counts no more than this and four times what was usual.
const NOISE_STEP: Duration = Duration::from_millis(1);
/// Time over which a queue grows or shrinks by one at most, when rates differ by this part of the capacity.
const QUEUE_SLOPE: u32 = 2;
/// Such a time is not longer than this, or than a bucket is meant to last: one that waits for its samples would explain all that they differ by.
const QUEUE_TIME: Duration = Duration::from_millis(20);
/// Most that noise explains of the delay that remains without our queue, in standard deviations: packets that wait for one another
/// behind one that is held back all come late, and hardly differ among themselves.
const MAX_FLOOR: u32 = 32;
/// A delay that the mean of what no queue explains reaches by so many times may be chance.
const UNREST: u32 = 4;
/// Two measurements of the RTT without our queue that differ by less are the same.
const SAME: Duration = Duration::from_millis(1);
/// The part of a fall of the RTT that is forgotten at once.
const FADE: u32 = 8;
/// A minimum that was not seen for so long is forgotten if two measurements in a row agree on another one: others that are in the way of one are in the way of
/// the next, for some time.
const MEMORY: Duration = Duration::from_secs(30);
/// After so long it is forgotten in any case.
const MAX_MEMORY: Duration = Duration::from_secs(60);

/// The estimator.
#[derive(Clone, Debug)]
pub(super) struct QueueEstimator {
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
    /// Mean of what no queue explains since then, and of how many buckets.
    unrest: (Duration, u32),
    /// Buckets to pass over before: the one under way began earlier.
    skip: u32,
    /// Largest sample of the present bucket.
    bucket_high: Duration,
    /// Minimum of the bucket before the last.
    older_bucket: Option<Duration>,
    /// Largest RTT while the rate only rose, and the largest fall below it.
    crest: Duration,
    fall: Duration,
    /// Smallest RTT while the rate was low, and when.
    trough: (Duration, Time),
    paused_until: Time,
    /// What of the differences within and between buckets no queue that fills or empties explains, as a standard deviation.
    noise: Duration,
    /// Delay above the smallest RTT that remains without our queue because the path's delay varies.
    floor: Duration,
    /// Mean of the latest buckets since the rate was lowered.
    low_mean: Option<Duration>,
    /// Lowest RTT the time before.
    last_low: Duration,
}

impl QueueEstimator {
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
            unrest: (Duration::ZERO, 0),
            skip: 0,
            bucket_high: Duration::ZERO,
            older_bucket: None,
            crest: Duration::ZERO,
            fall: Duration::ZERO,
            trough: (Duration::MAX, now),
            paused_until: now,
            noise: Duration::ZERO,
            floor: Duration::ZERO,
            low_mean: None,
            last_low: Duration::ZERO,
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
        self.bucket_high = self.bucket_high.max(rtt);
        self.samples += 1;
        self.is_fresh = false;
        if now.since(self.bucket_began) >= self.bucket_time() && self.samples >= SAMPLES {
            self.end_bucket(now);
            self.older_bucket = (self.last_bucket < Duration::MAX).then_some(self.last_bucket);
            self.last_bucket = self.bucket;
            if self.skip > 0 {
                self.skip -= 1;
            } else {
                self.watched = (self.watched.0.min(self.bucket), self.watched.1.max(self.bucket));
            }
            self.peak = self.now().max(self.peak - self.peak / 16);
            self.bucket = Duration::MAX;
            self.bucket_high = Duration::ZERO;
            self.samples = 0;
            self.bucket_began = now;
            self.is_fresh = true;
        }
    }

    /// How long a bucket is meant to last.
    fn bucket_time(&self) -> Duration {
        (self.min_rtt / 8).max(Duration::from_millis(2))
    }

    fn end_bucket(&mut self, now: Time) {
        if self.last_bucket < Duration::MAX {
            // A queue of ours does not move faster than that, or goes on from bucket to bucket; what does neither is the path itself.
            let explained = now.since(self.bucket_began).min(QUEUE_TIME.max(self.bucket_time())) / QUEUE_SLOPE;
            let trend = self.bucket.abs_diff(self.last_bucket);
            let bend = self.older_bucket.map_or(Duration::ZERO, |older| (self.bucket + older).abs_diff(self.last_bucket * 2));
            let bend = bend.saturating_sub(explained);
            let spread = self.bucket_high.saturating_sub(self.bucket).saturating_sub(explained.max(trend));
            // Of independent values the second difference is twice the standard deviation on average, the spread of a dozen three to four times.
            let noise = (bend / 2).max(spread / 4);
            let (mean, n) = self.unrest;
            self.unrest = ((mean * n + noise) / (n + 1), (n + 1).min(NOISE_BUCKETS));
            let noise = noise.min(self.noise * 4 + NOISE_STEP);
            self.noise = (self.noise * (NOISE_BUCKETS - 1) + noise) / NOISE_BUCKETS;
        }
        self.low_mean = Some(self.low_mean.map_or(self.bucket, |mean| (mean * 3 + self.bucket) / 4));
        // Lower than noise explains: there is less of it than before.
        let least = self.bucket + self.noise() * 2;
        self.floor = self.floor.saturating_sub(self.base().saturating_sub(least) / 8);
    }

    /// Standard deviation of the delay that is not a queue's doing.
    pub(super) fn noise(&self) -> Duration {
        self.noise
    }

    /// An RTT sample of a time in which the rate only rises, unless the application `is_limited`: a queue of ours cannot fall then.
    pub(super) fn on_rise(&mut self, now: Time, rtt: Duration, is_limited: bool) {
        if is_limited {
            // What the pause did to the queue is seen for a round trip and more.
            self.paused_until = now + 2 * rtt;
        }
        self.trough.0 = Duration::MAX;
        self.crest = if now < self.paused_until { rtt } else { self.crest.max(rtt) };
        self.fall = self.fall.max(self.crest - rtt);
    }

    /// The same of a time in which the rate is lower than what the path carries: a queue that others fill grows slowly then.
    pub(super) fn on_rest(&mut self, now: Time, rtt: Duration) {
        if rtt < self.trough.0 {
            self.trough = (rtt, now);
        }
        let rise = rtt.saturating_sub(self.trough.0);
        self.fall = self.fall.max(rise.saturating_sub(now.since(self.trough.1) / QUEUE_SLOPE));
        self.crest = Duration::ZERO;
    }

    /// The RTT rose by so much, and not as it rises in front of a queue of ours.
    pub(super) fn on_swing(&mut self, rise: Duration) {
        self.fall = self.fall.max(rise);
    }

    /// It is remembered by so much less.
    pub(super) fn fade_fall(&mut self) {
        self.fall -= self.fall / FADE;
    }

    /// How far the RTT fell meanwhile, at most.
    pub(super) fn fall(&self) -> Duration {
        self.fall
    }

    /// The RTT without a queue.
    pub(super) fn base(&self) -> Duration {
        self.min_rtt().saturating_add(self.floor)
    }

    /// The queueing delay now.
    pub(super) fn now(&self) -> Duration {
        if self.last_bucket == Duration::MAX { Duration::ZERO } else { self.last_bucket.min(self.bucket).saturating_sub(self.base()) }
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

    /// What was taken for a longer path was a queue.
    pub(super) fn lower(&mut self, min_rtt: Duration) {
        self.min_rtt = self.min_rtt.min(min_rtt);
    }

    /// When it was last seen.
    pub(super) fn min_at(&self) -> Time {
        self.min_at
    }

    /// From now on the spread of the RTT is watched.
    pub(super) fn begin_watch(&mut self) {
        self.watched = (Duration::MAX, Duration::ZERO);
        self.unrest = (Duration::ZERO, 0);
        self.skip = 8;
    }

    /// The RTT hardly moved since, noise apart: no flow fills or empties a queue on the path, the path itself is long.
    pub(super) fn is_flat(&self) -> bool {
        let (low, high) = self.watched;
        high >= low && high - low < (low / 50).max(Duration::from_millis(1)).max(self.noise * 6)
    }

    /// The RTT jumps by so much from moment to moment that a delay like this one is no sign of a queue, even if it is not yet known for noise.
    pub(super) fn is_restless(&self, delay: Duration) -> bool {
        self.unrest.0 * UNREST > delay
    }

    /// Queueing delay that remained at the lowest while the rate was lowered.
    pub(super) fn remained(&self) -> Duration {
        if self.low == Duration::MAX { Duration::ZERO } else { self.low.saturating_sub(self.base()) }
    }

    /// The rate is lowered to look for the RTT without our queue.
    pub(super) fn begin_low(&mut self) {
        self.low = Duration::MAX;
        self.low_mean = None;
    }

    /// It has been low for long enough: what delay remains and varies is the path's own.
    pub(super) fn raise_floor(&mut self) {
        if let Some(mean) = self.low_mean {
            self.floor = mean.saturating_sub(self.min_rtt()).min(self.noise() * MAX_FLOOR).max(self.floor);
        }
    }

    /// It is raised again. What was seen becomes the minimum if the path `has_changed`, or if the old one was not seen for long
    /// and the time before showed the same: what others leave in a queue differs from time to time.
    pub(super) fn end_refresh(&mut self, now: Time, has_changed: bool) {
        if self.low == Duration::MAX {
            return;
        }
        let age = now.since(self.min_at);
        // Where the delay varies by itself it differs from time to time without cross traffic.
        let agrees = self.noise > SAME || self.last_low.abs_diff(self.low) <= (self.low / 32).max(SAME);
        if has_changed || (age >= MEMORY && agrees) || age >= MAX_MEMORY {
            self.min_rtt = self.low;
            self.min_at = now;
        }
        self.last_low = self.low;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The minimum after refreshes every 5 s for so long, all of which found the RTT 4 ms longer than it was at first.
    fn minimum_after(seconds: u64) -> Duration {
        let (path, longer) = (Duration::from_millis(10), Duration::from_millis(14));
        let mut queue = QueueEstimator::new(Time::ZERO);
        queue.on_rtt(Time::ZERO, path, SAME);
        for second in (5..=seconds).step_by(5) {
            queue.begin_low();
            queue.on_rtt(Time::from_millis(1000 * second), longer, SAME);
            queue.end_refresh(Time::from_millis(1000 * second), false);
        }
        queue.min_rtt()
    }

    /// The noise of a path of 100 ms that varies by up to so much more, of which a sample comes every so many ms for 20 s.
    fn noise_of(varies: u64, every: u64) -> Duration {
        let mut queue = QueueEstimator::new(Time::ZERO);
        let mut random = 1u64;
        for at in (0..20_000).step_by(every as usize) {
            random = random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            let more = (random >> 33) % (varies + 1);
            queue.on_rtt(Time::from_millis(at), Duration::from_millis(100 + more), SAME);
        }
        queue.noise()
    }

    /// However seldom samples come, what they differ by is no queue that fills and empties within three of them.
    #[test]
    fn noise_is_seen_where_samples_are_few_too() {
        assert_eq!(noise_of(0, 30), Duration::ZERO);
        for every in [2, 10, 30, 60] {
            let noise = noise_of(100, every);
            println!("every {every} ms: {noise:?}");
            assert!(noise >= Duration::from_millis(12), "every {every} ms: {noise:?}");
        }
    }

    /// P12: two flows that come 5 s apart disturb two refreshes, and are no reason to forget how short the path is.
    #[test]
    fn what_others_leave_is_the_path_after_half_a_minute_only() {
        assert_eq!(minimum_after(25), Duration::from_millis(10));
        assert_eq!(minimum_after(30), Duration::from_millis(14));
    }
}

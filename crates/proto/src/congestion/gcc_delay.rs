//! The delay part of `gcc`: groups of packets, a Kalman filter of the variation of their delay, and the detector of over-use
//! (draft-ietf-rmcat-gcc-02 §5.2-§5.4).
//!
//! An acknowledgement gives the arrival of its newest packet only: when it came here, less its delay at the peer, to the microsecond.
//! So a sample here is what the draft takes of a group: the departure and the arrival of its last packet.

use crate::units::{Duration, Time};

/// §5.2: packets that left within this are one group, and a sample that came within it after its predecessor, and caught up with it.
const BURST_TIME: Duration = Duration::from_millis(5);
/// §5.3: variance of the state noise, q.
const STATE_NOISE: f64 = 1e-3;
/// §5.3: e(0), system error covariance.
const FIRST_COVARIANCE: f64 = 0.1;
/// §5.3: chi, in its range of 0.001 to 0.1: how fast the measured noise forgets, at 30 groups per second.
const CHI: f64 = 0.01;
/// §5.3: smallest variance of the noise that is measured, in ms^2.
const LEAST_VARIANCE: f64 = 1.0;
/// §5.3: what differs by more deviations than this is an outlier.
const OUTLIER: f64 = 3.0;
/// The gradient is that of one group, and the threshold is of a delay: it is judged by what it becomes over so many groups, as known implementations do,
const GROUPS: u32 = 60;
/// of this length, whatever the flow's own have: a slow flow has longer ones, sees a queue earlier by them, and would give way to fast ones for ever.
/// Longer is more sensitive: at 5 ms three of six pairs of flows are unequal for ever and a queue of 190 ms goes unseen, at 15 none and one of 20.
const GROUP_MS: f64 = 15.0;
/// Groups over which their length is averaged.
const LENGTH_OVER: f64 = 16.0;
/// §5.4: del_var_th(0), in ms.
const FIRST_THRESHOLD: f64 = 12.5;
/// §5.4: del_var_th stays within this, in ms.
const THRESHOLD: core::ops::RangeInclusive<f64> = 6.0..=600.0;
/// §5.4: K_u and K_d, per ms: it rises fast beside flows that fill the queue, and falls slowly.
const RISE: f64 = 0.01;
const FALL: f64 = 0.00018;
/// §5.4: a gradient above the threshold by more than this, in ms, is a step of the path, which the threshold does not follow.
const STEP: f64 = 15.0;
/// A pause tells nothing of the threshold beyond this; 1 / K_u, so that it never passes what it follows.
const LONGEST_STEP_MS: f64 = 100.0;
/// §5.4: overuse_time_th.
const OVERUSE_TIME: Duration = Duration::from_millis(10);

/// What the path is told to be in (§5.4).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Usage {
    /// The delay neither grows nor shrinks.
    Normal,
    /// A queue grows.
    Over,
    /// A queue shrinks.
    Under,
}

/// A packet group: its first departure, and departure and arrival of its last packet.
#[derive(Clone, Copy, Debug)]
struct Group {
    first_sent_at: Time,
    sent_at: Time,
    arrived: Time,
}

/// §5.2 and §5.3: from samples to the gradient of the one-way delay.
#[derive(Debug)]
struct ArrivalFilter {
    /// The group that grows, and the one before it.
    current: Option<Group>,
    last: Option<Group>,
    /// m_hat, ms per group.
    gradient: f64,
    /// e.
    covariance: f64,
    /// var_v_hat, ms^2.
    variance: f64,
    groups: u32,
    /// Mean time between groups, ms.
    length: f64,
}

impl ArrivalFilter {
    fn new() -> Self {
        Self {
            current: None,
            last: None,
            gradient: 0.0,
            covariance: FIRST_COVARIANCE,
            variance: LEAST_VARIANCE,
            groups: 0,
            length: GROUP_MS,
        }
    }

    /// A packet arrived. `Some` when a group is complete by it: how long it took, from the arrival of the group before.
    fn on_sample(&mut self, sent_at: Time, arrived: Time) -> Option<Duration> {
        let Some(current) = &mut self.current else {
            self.current = Some(Group { first_sent_at: sent_at, sent_at, arrived });
            return None;
        };
        if sent_at <= current.sent_at {
            return None; // §5.3: what comes out of order is not looked at.
        }
        let (sending, arriving) = (sent_at.since(current.sent_at), arrived.since(current.arrived));
        let is_burst = arriving < BURST_TIME && arriving < sending;
        if sent_at.since(current.first_sent_at) < BURST_TIME || is_burst {
            (current.sent_at, current.arrived) = (sent_at, current.arrived.max(arrived));
            return None;
        }
        let complete = core::mem::replace(current, Group { first_sent_at: sent_at, sent_at, arrived });
        let last = self.last.replace(complete)?;
        let took = complete.arrived.since(last.arrived);
        let variation = (took.as_secs_f64() - complete.sent_at.since(last.sent_at).as_secs_f64()) * 1e3;
        self.update(variation, took.as_secs_f64());
        Some(took)
    }

    /// §5.3: d(i) in ms, of a group that came `interval` seconds after the one before.
    fn update(&mut self, variation: f64, interval: f64) {
        self.groups = (self.groups + 1).min(GROUPS);
        self.length += (interval * 1e3 - self.length) / LENGTH_OVER.min(f64::from(self.groups));
        let deviation = OUTLIER * self.variance.sqrt();
        let z = (variation - self.gradient).clamp(-deviation, deviation);
        // The draft's exponent is 30 / (1000 f_max), f_max the rate of groups per ms: the same per time, whatever the rate.
        let kept = (1.0 - CHI).powf(30.0 * interval);
        self.variance = (kept * self.variance + (1.0 - kept) * z * z).max(LEAST_VARIANCE);
        let predicted = self.covariance + STATE_NOISE;
        let gain = predicted / (self.variance + predicted);
        self.gradient += gain * z;
        self.covariance = (1.0 - gain) * predicted;
    }

    /// What the gradient becomes over the groups known, in ms.
    fn trend(&self) -> f64 {
        self.gradient / self.length * GROUP_MS * f64::from(self.groups)
    }
}

/// The detector of over-use with its threshold (§5.4).
#[derive(Debug)]
pub(super) struct OveruseDetector {
    filter: ArrivalFilter,
    /// del_var_th, ms.
    threshold: f64,
    /// Arrival since which the trend is above the threshold.
    over_since: Option<Time>,
    last_trend: f64,
}

impl OveruseDetector {
    pub(super) fn new() -> Self {
        Self { filter: ArrivalFilter::new(), threshold: FIRST_THRESHOLD, over_since: None, last_trend: 0.0 }
    }

    /// A packet that left at `sent_at` arrived; `Some` once per group.
    pub(super) fn on_sample(&mut self, sent_at: Time, arrived: Time) -> Option<Usage> {
        let took = self.filter.on_sample(sent_at, arrived)?;
        Some(self.judge(self.filter.trend(), arrived, took))
    }

    fn judge(&mut self, trend: f64, now: Time, took: Duration) -> Usage {
        let usage = if trend > self.threshold {
            let since = *self.over_since.get_or_insert(now);
            // A trend that falls already is not signalled: the queue is about to shrink.
            if now.since(since) >= OVERUSE_TIME && trend >= self.last_trend { Usage::Over } else { Usage::Normal }
        } else {
            self.over_since = None;
            if trend < -self.threshold { Usage::Under } else { Usage::Normal }
        };
        self.last_trend = trend;
        self.adapt(trend.abs(), took);
        usage
    }

    fn adapt(&mut self, trend: f64, took: Duration) {
        if trend - self.threshold > STEP {
            return;
        }
        let gain = if trend < self.threshold { FALL } else { RISE };
        let ms = (took.as_secs_f64() * 1e3).min(LONGEST_STEP_MS);
        self.threshold = (self.threshold + ms * gain * (trend - self.threshold)).clamp(*THRESHOLD.start(), *THRESHOLD.end());
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Groups of one packet every 10 ms, each delayed by `slope` ms more than the one before; what the detector said of each.
    fn groups(detector: &mut OveruseDetector, start: &mut (Time, f64), slope: f64, count: u32) -> Vec<Usage> {
        let mut said = Vec::new();
        for _ in 0..count {
            start.0 += Duration::from_millis(10);
            start.1 += slope;
            let arrived = start.0 + Duration::from_secs_f64(start.1 * 1e-3);
            said.extend(detector.on_sample(start.0, arrived));
        }
        said
    }

    fn begin() -> (OveruseDetector, (Time, f64)) {
        let (mut detector, mut at) = (OveruseDetector::new(), (Time::from_millis(1000), 150.0));
        let said = groups(&mut detector, &mut at, 0.0, 100);
        assert!(said.iter().all(|u| *u == Usage::Normal));
        (detector, at)
    }

    #[test]
    fn a_growing_queue_is_over_use_within_a_few_groups_and_a_shrinking_one_under_use() {
        let (mut detector, mut at) = begin();
        let said = groups(&mut detector, &mut at, 2.0, 12);
        let first = said.iter().position(|u| *u == Usage::Over).expect("over-use");
        assert!(first <= 10, "{first}");
        assert!(!said.contains(&Usage::Under));
        let said = groups(&mut detector, &mut at, -2.0, 40);
        assert!(said.contains(&Usage::Under), "{said:?}");
        assert_eq!(said.last(), Some(&Usage::Under));
    }

    /// §5.4: above the threshold for overuse_time_th at least; and not while the gradient falls.
    #[test]
    fn over_use_is_signalled_after_ten_milliseconds_and_not_while_the_trend_falls() {
        let mut detector = OveruseDetector::new();
        let (mut now, took) = (Time::from_millis(100), Duration::from_millis(5));
        let mut judge = |trend| {
            now += took;
            detector.judge(trend, now, took)
        };
        assert_eq!([judge(13.0), judge(13.1), judge(13.2), judge(13.3)], [Usage::Normal, Usage::Normal, Usage::Over, Usage::Over]);
        assert_eq!([judge(13.2), judge(13.3)], [Usage::Normal, Usage::Over]);
        // Below it once, the time begins anew.
        assert_eq!([judge(1.0), judge(20.0), judge(20.0), judge(20.0)], [Usage::Normal, Usage::Normal, Usage::Normal, Usage::Over]);
        assert_eq!([judge(-20.0), judge(0.0)], [Usage::Under, Usage::Normal]);
    }

    #[test]
    fn the_threshold_rises_fast_and_falls_slowly_within_its_bounds() {
        let mut detector = OveruseDetector::new();
        let took = Duration::from_millis(10);
        detector.adapt(20.0, took);
        assert!((detector.threshold - (12.5 + 10.0 * 0.01 * 7.5)).abs() < 1e-9, "K_u: {}", detector.threshold);
        detector.threshold = 12.5;
        detector.adapt(2.5, took);
        assert!((detector.threshold - (12.5 - 10.0 * 0.00018 * 10.0)).abs() < 1e-9, "K_d: {}", detector.threshold);
        // A step of the path is not followed.
        detector.threshold = 12.5;
        detector.adapt(27.6, took);
        assert_eq!(detector.threshold, 12.5);
        // However long nothing was heard, it never passes what it follows.
        detector.adapt(20.0, Duration::from_secs(10));
        assert!((detector.threshold - 20.0).abs() < 1e-9);
        for _ in 0..100_000 {
            detector.adapt(0.0, took);
        }
        assert_eq!(detector.threshold, 6.0);
        for trend in 7..2000 {
            detector.adapt(f64::from(trend), Duration::from_millis(100));
        }
        assert_eq!(detector.threshold, 600.0);
    }

    /// §5.2: packets that leave together are one group, and what a pause of the path let through at once is no variation.
    #[test]
    fn packets_of_one_burst_are_one_group() {
        let mut filter = ArrivalFilter::new();
        let at = |ms: f64| Time::ZERO + Duration::from_secs_f64(ms * 1e-3);
        for (sent, arrived) in [(0.0, 50.0), (2.0, 52.0), (4.9, 55.0)] {
            assert_eq!(filter.on_sample(at(sent), at(arrived)), None);
        }
        // Sent 10 ms apart, held back, and let through within a millisecond: they caught up, and belong to what they caught up with.
        for (sent, arrived) in [(20.0, 100.0), (30.0, 100.3), (40.0, 100.6)] {
            assert_eq!(filter.on_sample(at(sent), at(arrived)), None);
        }
        let took = filter.on_sample(at(60.0), at(110.0));
        assert_eq!(took, Some(at(100.6).since(at(55.0))));
        assert_eq!(filter.groups, 1);
        // Out of order: not looked at.
        assert_eq!(filter.on_sample(at(59.0), at(111.0)), None);
        assert_eq!(filter.current.unwrap().arrived, at(110.0));
    }

    /// §5.3: one delay that differs by far moves the estimate by no more than three deviations of the noise would.
    #[test]
    fn an_outlier_counts_as_three_deviations() {
        let with = |variation| {
            let mut filter = ArrivalFilter::new();
            (0..50).for_each(|_| filter.update(0.0, 0.01));
            filter.update(variation, 0.01);
            filter.gradient
        };
        assert!(with(3.0) > 2.9 * with(1.0));
        assert_eq!(with(300.0), with(3.0));
    }

    #[test]
    fn one_slope_is_one_trend_whatever_the_length_of_the_groups() {
        let trend = |ms: f64| {
            let mut filter = ArrivalFilter::new();
            (0..2000).for_each(|_| filter.update(0.1 * ms, ms * 1e-3));
            filter.trend()
        };
        assert!((trend(5.0) / 90.0 - 1.0).abs() < 0.01 && (trend(25.0) / 90.0 - 1.0).abs() < 0.01, "{} {}", trend(5.0), trend(25.0));
    }

    #[test]
    fn delay_that_varies_without_a_trend_raises_the_noise_and_the_threshold() {
        let (mut detector, mut at) = begin();
        let mut over = 0;
        for i in 0..2000u32 {
            // 8 ms of jitter by a fixed pattern with a long period.
            let slope = f64::from(i.wrapping_mul(2_654_435_761) >> 16) / 65_536.0 * 16.0 - 8.0;
            at.1 = at.1.clamp(140.0, 160.0);
            over += usize::from(groups(&mut detector, &mut at, slope, 1).contains(&Usage::Over));
        }
        assert!(detector.filter.variance > 10.0, "{}", detector.filter.variance);
        assert!(over < 60, "{over}");
    }
}

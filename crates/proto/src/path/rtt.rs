//! Round-trip time of one path: smoothed, deviation (RFC 6298) and the minimum over a window.

use super::ack_tracker::MIN_PATIENCE;
use crate::units::{Duration, Time};

/// Granularity below which deviations are not trusted (RFC 9002 §6.1.2, `kGranularity`).
pub const GRANULARITY: Duration = Duration::from_millis(1);
/// RTT assumed before the first sample when the handshake gave none.
pub const INITIAL_RTT: Duration = Duration::from_millis(100);
/// Window of the minimum.
const MIN_WINDOW: Duration = Duration::from_secs(10);

/// Estimates of a path's round-trip time.
#[derive(Clone, Debug)]
pub struct RttEstimator {
    smoothed: Duration,
    var: Duration,
    latest: Duration,
    latest_raw: Duration,
    /// Minima of the present and the previous half window, and when the present half began.
    min_now: Duration,
    min_before: Duration,
    half_began: Time,
    has_sample: bool,
}

impl RttEstimator {
    /// Starts from the handshake's round trip, if it was measured, or from what it was at `longest`: too short a timer repeats itself into the queue that
    /// makes the path slow (RFC 6298 §5.7).
    pub fn new(initial: Option<Duration>, longest: Option<Duration>, now: Time) -> Self {
        let rtt = initial.unwrap_or(INITIAL_RTT.max(longest.unwrap_or_default())).max(Duration::from_micros(1));
        Self {
            smoothed: rtt,
            var: rtt / 2,
            latest: rtt,
            latest_raw: rtt,
            min_now: initial.unwrap_or(Duration::MAX),
            min_before: Duration::MAX,
            half_began: now,
            has_sample: false,
        }
    }

    /// A packet's acknowledgement arrived `raw` after it was sent; the peer says that it waited `delay` before it reported.
    pub fn on_sample(&mut self, now: Time, raw: Duration, delay: Duration) {
        let raw = raw.max(Duration::from_micros(1));
        // The peer's word is believed only as far as it leaves a positive time; a wrong delay can thus not make the RTT negative.
        let rtt = raw.saturating_sub(delay).max(Duration::from_micros(1));
        if now.since(self.half_began) > MIN_WINDOW / 2 {
            self.min_before = self.min_now;
            self.min_now = rtt;
            self.half_began = now;
        }
        self.min_now = self.min_now.min(rtt);
        self.smooth(raw, rtt);
    }

    /// The same of a packet that was faster than others because it is small: no minimum.
    pub fn on_faster_sample(&mut self, raw: Duration, delay: Duration) {
        let raw = raw.max(Duration::from_micros(1));
        self.smooth(raw, raw.saturating_sub(delay).max(Duration::from_micros(1)));
    }

    fn smooth(&mut self, raw: Duration, rtt: Duration) {
        self.latest = rtt;
        self.latest_raw = raw;
        if !self.has_sample {
            self.has_sample = true;
            self.smoothed = rtt;
            self.var = rtt / 2;
        } else {
            // RFC 6298 §2: alpha = 1/8, beta = 1/4.
            self.var = self.var * 3 / 4 + self.smoothed.abs_diff(rtt) / 4;
            self.smoothed = self.smoothed * 7 / 8 + rtt / 8;
        }
    }

    /// Smoothed RTT without the peer's acknowledgement delay.
    pub fn smoothed(&self) -> Duration {
        self.smoothed
    }
    /// Mean deviation.
    pub fn var(&self) -> Duration {
        self.var
    }
    /// Latest sample without the peer's acknowledgement delay.
    pub fn latest(&self) -> Duration {
        self.latest
    }
    /// Latest sample as it passed here.
    pub fn latest_raw(&self) -> Duration {
        self.latest_raw
    }
    /// Smallest sample of the last 5 to 10 s.
    pub fn min(&self) -> Duration {
        let min = self.min_now.min(self.min_before);
        if min == Duration::MAX { self.smoothed } else { min }
    }
    /// Whether anything but the handshake was measured.
    pub fn has_sample(&self) -> bool {
        self.has_sample
    }

    /// How long the peer may wait before it acknowledges (the same rule as in `ack_tracker`).
    pub fn expected_ack_delay(&self) -> Duration {
        (self.smoothed / 4).clamp(MIN_PATIENCE, Duration::from_millis(25)) + GRANULARITY
    }

    /// Probe time-out without backoff (RFC 9002 §6.2.1).
    pub fn pto(&self) -> Duration {
        self.smoothed + (self.var * 4).max(GRANULARITY) + self.expected_ack_delay()
    }

    /// Probe time-out after `count` earlier ones without an answer (P10).
    pub fn pto_backed_off(&self, count: u32) -> Duration {
        self.pto().saturating_mul(1 << count.min(16))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    const MS: Duration = Duration::from_millis(1);

    #[test]
    fn the_peers_delay_is_removed_but_never_below_nothing() {
        let mut r = RttEstimator::new(None, None, Time::ZERO);
        r.on_sample(Time::ZERO, 50 * MS, 10 * MS);
        assert_eq!((r.smoothed(), r.latest(), r.latest_raw(), r.min()), (40 * MS, 40 * MS, 50 * MS, 40 * MS));
        r.on_sample(Time::from_millis(1), 50 * MS, 500 * MS);
        assert!(r.latest() > Duration::ZERO);
    }

    #[test]
    fn the_minimum_is_forgotten_after_its_window() {
        let mut r = RttEstimator::new(Some(10 * MS), None, Time::ZERO);
        for i in 0..160 {
            r.on_sample(Time::from_millis(i * 100), 30 * MS, Duration::ZERO);
            if i < 40 {
                assert_eq!(r.min(), 10 * MS);
            }
        }
        assert_eq!(r.min(), 30 * MS);
    }

    #[test]
    fn each_time_out_is_twice_as_long_as_the_one_before() {
        let mut r = RttEstimator::new(Some(100 * MS), None, Time::ZERO);
        r.on_sample(Time::ZERO, 100 * MS, Duration::ZERO);
        assert_eq!((r.pto_backed_off(0), r.pto_backed_off(6)), (r.pto(), r.pto() * 64));
        assert_eq!(r.pto_backed_off(u32::MAX), r.pto() * 65_536);
    }
}

//! Pacing (P11): a token bucket whose depth is the largest burst.

use crate::switch::{self, Mechanism};
use crate::units::{Bandwidth, Duration, Time};

/// Largest burst in packets (P11), unless the owner allows a longer quantum.
const BURST_PACKETS: u64 = 8;
/// Largest burst in time at the pacing rate (P11).
pub const BURST_TIME: Duration = Duration::from_micros(100);
/// Above this no burst may go, whatever the quantum: one train of the largest GSO size.
const BURST_BYTES: u64 = 64 * 1024;

/// A host that wakes its sender late by no more than this is forgiven what it missed: on a busy one that is every time.
const FORGIVEN: Duration = Duration::from_millis(8);

/// Decides when the next bytes may leave.
#[derive(Clone, Debug)]
pub struct Pacer {
    rate: Option<Bandwidth>,
    quantum: Duration,
    datagram: u64,
    /// Largest burst in bytes.
    burst: u64,
    /// Tokens the bucket holds at most: a burst, and what a wake-up that comes late by up to one more quantum would have missed.
    depth: f64,
    /// Tokens at `updated`, in bytes; below zero when a datagram took more than there was.
    tokens: f64,
    updated: Time,
    /// When data that waits should have left, if it was told to wait.
    due: Option<Time>,
    /// What of the tokens is there because the host was late: more than the bucket holds otherwise.
    grace: f64,
    /// The host was so late that not all of it was forgiven.
    is_short: bool,
}

impl Pacer {
    /// `quantum`: longest burst in time; more than [`BURST_TIME`] suits drivers whose timers are coarser than that.
    pub fn new(quantum: Duration, datagram: u16, now: Time) -> Self {
        let mut new = Self {
            rate: None,
            quantum,
            datagram: u64::from(datagram),
            burst: 0,
            depth: 0.0,
            tokens: 0.0,
            updated: now,
            due: None,
            grace: 0.0,
            is_short: false,
        };
        new.measure();
        new
    }

    /// Largest burst in bytes; one datagram always fits.
    pub fn burst(&self) -> u64 {
        self.burst
    }

    /// Burst and depth follow from rate and datagram size.
    fn measure(&mut self) {
        let Some(rate) = self.rate else {
            (self.burst, self.depth) = (u64::MAX, u64::MAX as f64);
            return;
        };
        let in_time = rate.bytes_in(self.quantum);
        let cap = if self.quantum > BURST_TIME { BURST_BYTES.max(BURST_PACKETS * self.datagram) } else { BURST_PACKETS * self.datagram };
        self.burst = in_time.min(cap).max(self.datagram);
        self.depth = self.burst as f64 + (in_time as f64).min(BURST_BYTES as f64);
    }

    /// What the host missed by waking late, as far as it is forgiven. Nothing where timers are exact.
    fn missed(&self, now: Time) -> f64 {
        let late = self.due.map_or(Duration::ZERO, |due| now.since(due));
        match self.rate {
            Some(rate) if late > self.quantum && !switch::is_off(Mechanism::LateHosts) => {
                (rate.bytes_in(late.min(FORGIVEN)) as f64).min(BURST_BYTES as f64)
            }
            _ => 0.0,
        }
    }

    fn earned(&self, now: Time) -> f64 {
        self.rate.map_or(f64::MAX, |rate| self.tokens + rate.bytes_per_sec() * now.since(self.updated).as_secs_f64())
    }

    fn tokens_at(&self, now: Time) -> f64 {
        self.earned(now).min(self.depth + self.grace.max(self.missed(now)))
    }

    /// The host is late: what it missed and is forgiven is kept until it has left.
    fn forgive(&mut self, now: Time) {
        if self.missed(now) > 0.0 {
            let tokens = self.tokens_at(now);
            self.is_short |= self.earned(now) > tokens + self.datagram as f64;
            self.grace = (tokens - self.depth).max(0.0);
            self.tokens = tokens;
            self.updated = now;
        }
    }

    /// Sets rate and datagram size; what was saved up is kept up to the new depth.
    pub fn set(&mut self, now: Time, rate: Option<Bandwidth>, datagram: u16) {
        if self.rate == rate && self.datagram == u64::from(datagram) {
            return;
        }
        self.forgive(now);
        let tokens = if self.rate.is_none() { f64::MAX } else { self.tokens_at(now) };
        self.rate = rate;
        self.datagram = u64::from(datagram);
        self.measure();
        self.tokens = tokens.clamp(-(self.burst() as f64), self.burst() as f64 + self.grace);
        self.updated = now;
    }

    /// Bytes that may leave now: at least one datagram, or 0.
    pub fn allowance(&self, now: Time) -> u64 {
        if self.rate.is_none() {
            return u64::MAX;
        }
        let tokens = self.tokens_at(now);
        // Half a microsecond of tolerance: a wake-up computed in whole nanoseconds must find its datagram.
        if tokens + 1.0 >= self.datagram as f64 { (tokens + 1.0) as u64 } else { 0 }
    }

    /// Bytes left. `true`: fewer left before than might have, because the host did not wake its sender in time.
    pub fn on_sent(&mut self, now: Time, bytes: u64) -> bool {
        self.forgive(now);
        if self.rate.is_some() {
            self.tokens = self.tokens_at(now) - bytes as f64;
            self.grace = self.grace.min((self.tokens - self.depth).max(0.0));
        }
        self.updated = now;
        core::mem::take(&mut self.is_short)
    }

    /// When the next burst may leave, as [`next_send`](Self::next_send); only if something waits for that is the host late afterwards.
    pub fn plan(&mut self, now: Time, is_waiting: bool) -> Option<Time> {
        self.forgive(now);
        let next = self.next_send(now);
        self.due = next.filter(|_| is_waiting);
        if !is_waiting {
            self.grace = 0.0;
            self.is_short = false;
        }
        next
    }

    /// When the next burst may leave; `None` if that is now.
    pub fn next_send(&self, now: Time) -> Option<Time> {
        let rate = self.rate?;
        let tokens = self.tokens_at(now);
        if tokens + 1.0 >= self.datagram as f64 {
            return None;
        }
        // Wake for a whole burst so that trains form, but never wait for more than half a quantum beyond the first datagram.
        let want = (self.burst() as f64 / 2.0).max(self.datagram as f64);
        Some(now + rate.time_for((want - tokens).ceil() as u64) + Duration::from_nanos(1))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bursts_stay_within_eight_packets_and_a_hundred_microseconds() {
        for mbit in [1.0, 10.0, 100.0, 1000.0, 10_000.0] {
            let rate = Bandwidth::from_mbit(mbit);
            let mut p = Pacer::new(BURST_TIME, 1472, Time::ZERO);
            p.set(Time::ZERO, Some(rate), 1472);
            let (mut now, mut sent) = (Time::ZERO, 0u64);
            let mut burst_max = 0;
            while now < Time::from_millis(1000) {
                let mut burst = 0;
                while p.allowance(now) >= 1472 {
                    p.on_sent(now, 1472);
                    burst += 1472;
                }
                burst_max = burst_max.max(burst);
                sent += burst;
                now = p.next_send(now).expect("rate-limited");
            }
            let share = sent as f64 / (rate.bytes_per_sec() * now.as_secs_f64());
            assert!((0.98..1.02).contains(&share) || mbit < 2.0, "{mbit} Mbit/s: {share}");
            let limit = (8 * 1472).min((rate.bytes_in(BURST_TIME)).max(1472)) + 1472;
            assert!(burst_max <= limit || now < Time::from_millis(50), "{mbit} Mbit/s: burst {burst_max} > {limit}");
        }
    }

    /// What leaves in a second if the host wakes its sender so late each time, as a share of the rate; and the largest burst.
    fn late_by(late: Duration, mbit: f64) -> (f64, u64, bool) {
        let rate = Bandwidth::from_mbit(mbit);
        let mut p = Pacer::new(Duration::from_micros(500), 1472, Time::ZERO);
        p.set(Time::ZERO, Some(rate), 1472);
        let (mut now, mut sent, mut largest, mut is_short) = (Time::ZERO, 0u64, 0, false);
        while now < Time::from_millis(1000) {
            let mut burst = 0;
            while p.allowance(now) >= 1472 {
                is_short |= p.on_sent(now, 1472);
                burst += 1472;
                p.plan(now, true);
            }
            sent += burst;
            largest = largest.max(burst);
            now = p.plan(now, true).expect("rate-limited") + late;
        }
        (sent as f64 / (rate.bytes_per_sec() * now.since(Time::ZERO).as_secs_f64()), largest, is_short)
    }

    #[test]
    fn a_host_that_wakes_its_sender_late_does_not_slow_it_down() {
        for mbit in [2.0, 5.0, 50.0] {
            let (share, largest, is_short) = late_by(Duration::from_millis(5), mbit);
            assert!(share > 0.95 && !is_short, "{mbit} Mbit/s: {share}");
            assert!(largest <= Bandwidth::from_mbit(mbit).bytes_in(Duration::from_millis(7)) + 3 * 1472, "{largest}");
        }
    }

    #[test]
    fn lateness_is_forgiven_within_bounds_and_told_beyond_them() {
        let (share, largest, is_short) = late_by(Duration::from_millis(5), 1000.0);
        assert!(share < 0.5 && is_short && largest <= 3 * BURST_BYTES, "{share} {largest}");
        let (_, largest, is_short) = late_by(Duration::from_millis(100), 10.0);
        assert!(is_short && largest <= Bandwidth::from_mbit(10.0).bytes_in(FORGIVEN) + 3 * 1472, "{largest}");
    }

    #[test]
    fn an_application_that_pauses_saves_nothing_up() {
        let mut p = Pacer::new(BURST_TIME, 1472, Time::ZERO);
        p.set(Time::ZERO, Some(Bandwidth::from_mbit(10.0)), 1472);
        p.on_sent(Time::ZERO, 1472);
        p.plan(Time::ZERO, false);
        assert!(p.allowance(Time::from_millis(50)) < 3 * 1472);
        assert!(!p.on_sent(Time::from_millis(50), 1472));
    }

    #[test]
    fn without_a_rate_nothing_is_held_back() {
        let p = Pacer::new(BURST_TIME, 1200, Time::ZERO);
        assert_eq!(p.allowance(Time::ZERO), u64::MAX);
        assert_eq!(p.next_send(Time::ZERO), None);
    }
}

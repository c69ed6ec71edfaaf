//! Pacing (P11): a token bucket whose depth is the largest burst.

use crate::units::{Bandwidth, Duration, Time};

/// Largest burst in packets (P11), unless the owner allows a longer quantum.
const BURST_PACKETS: u64 = 8;
/// Largest burst in time at the pacing rate (P11).
pub const BURST_TIME: Duration = Duration::from_micros(100);
/// Above this no burst may go, whatever the quantum: one train of the largest GSO size.
const BURST_BYTES: u64 = 64 * 1024;

/// Decides when the next bytes may leave.
#[derive(Clone, Debug)]
pub struct Pacer {
    rate: Option<Bandwidth>,
    quantum: Duration,
    datagram: u64,
    /// Tokens at `updated`, in bytes; below zero when a datagram took more than there was.
    tokens: f64,
    updated: Time,
}

impl Pacer {
    /// `quantum`: longest burst in time; more than [`BURST_TIME`] suits drivers whose timers are coarser than that.
    pub fn new(quantum: Duration, datagram: u16, now: Time) -> Self {
        Self { rate: None, quantum, datagram: u64::from(datagram), tokens: 0.0, updated: now }
    }

    /// Largest burst in bytes; one datagram always fits.
    pub fn burst(&self) -> u64 {
        let Some(rate) = self.rate else { return u64::MAX };
        let in_time = rate.bytes_in(self.quantum);
        let cap = if self.quantum > BURST_TIME { BURST_BYTES.max(BURST_PACKETS * self.datagram) } else { BURST_PACKETS * self.datagram };
        in_time.min(cap).max(self.datagram)
    }

    /// Tokens the bucket holds at most: a burst, and what a wake-up that comes late by up to one more quantum would have missed.
    fn depth(&self) -> f64 {
        let late = self.rate.map_or(0.0, |r| r.bytes_in(self.quantum) as f64);
        self.burst() as f64 + late.min(BURST_BYTES as f64)
    }

    fn tokens_at(&self, now: Time) -> f64 {
        match self.rate {
            None => f64::MAX,
            Some(r) => (self.tokens + r.bytes_per_sec() * now.since(self.updated).as_secs_f64()).min(self.depth()),
        }
    }

    /// Sets rate and datagram size; what was saved up is kept up to the new depth.
    pub fn set(&mut self, now: Time, rate: Option<Bandwidth>, datagram: u16) {
        if self.rate == rate && self.datagram == u64::from(datagram) {
            return;
        }
        let tokens = if self.rate.is_none() { f64::MAX } else { self.tokens_at(now) };
        self.rate = rate;
        self.datagram = u64::from(datagram);
        self.tokens = tokens.clamp(-(self.burst() as f64), self.burst() as f64);
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

    /// Bytes left.
    pub fn on_sent(&mut self, now: Time, bytes: u64) {
        if self.rate.is_some() {
            self.tokens = self.tokens_at(now) - bytes as f64;
        }
        self.updated = now;
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

    #[test]
    fn without_a_rate_nothing_is_held_back() {
        let p = Pacer::new(BURST_TIME, 1200, Time::ZERO);
        assert_eq!(p.allowance(Time::ZERO), u64::MAX);
        assert_eq!(p.next_send(Time::ZERO), None);
    }
}

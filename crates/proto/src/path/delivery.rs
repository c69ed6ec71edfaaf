//! Delivery-rate samples of a path in two units: delivered bytes, and sent bytes (delivered or lost, P12a).
//!
//! A sample spans the flight of one acknowledged packet, from the acknowledgement that was newest when it left to its own. In sent units the
//! sample counts every byte sent between those two packets: a lost packet used the bottleneck like any other and is counted without waiting for
//! loss detection. Both units come from draft-cheng-iccrg-delivery-rate-estimation, the sent unit is ours.

use crate::units::{Bandwidth, Duration, Time};

/// Delivery as it stood when a packet left.
#[derive(Clone, Copy, Debug, Default)]
pub struct Snapshot {
    /// Bytes sent up to and including this packet.
    pub offset: u64,
    /// Bytes acknowledged by then.
    pub acked: u64,
    /// Offset of the newest acknowledged packet by then.
    pub base_offset: u64,
    /// When that one reached the peer, plus the return path.
    pub base_arrived: Time,
    /// When that one was sent.
    pub base_sent: Time,
    /// Offset of the newest packet so far after which there was nothing to send; 0 before the first.
    pub limited_until: u64,
}

/// One rate sample.
#[derive(Clone, Copy, Debug)]
pub struct Sample {
    /// Bytes sent in the interval per time.
    pub sent_rate: Bandwidth,
    /// Bytes acknowledged in the interval per time.
    pub delivery_rate: Bandwidth,
    /// Share of the bytes sent in the interval that was not acknowledged.
    pub loss: f64,
    /// The interval.
    pub interval: Duration,
    /// Taken while the sender had too little to send.
    pub is_app_limited: bool,
}

/// Counters of a path.
#[derive(Clone, Debug)]
pub struct Delivery {
    offset: u64,
    acked: u64,
    lost: u64,
    base_offset: u64,
    base_arrived: Time,
    base_sent: Time,
    /// Packets up to this offset are app-limited.
    limited_until: u64,
    latest: Option<Sample>,
}

impl Delivery {
    /// Nothing sent yet.
    pub fn new(now: Time) -> Self {
        Self { offset: 0, acked: 0, lost: 0, base_offset: 0, base_arrived: now, base_sent: now, limited_until: 0, latest: None }
    }

    /// A packet leaves; the path had `in_flight` bytes in flight before it.
    pub fn on_sent(&mut self, now: Time, bytes: u64, in_flight: u64, is_app_limited: bool) -> Snapshot {
        if in_flight == 0 {
            // After idleness the flight begins here: time without data is no evidence about the path.
            self.base_offset = self.offset;
            self.base_arrived = now;
            self.base_sent = now;
        }
        self.offset += bytes;
        if is_app_limited {
            self.limited_until = self.offset;
        }
        Snapshot {
            offset: self.offset,
            acked: self.acked,
            base_offset: self.base_offset,
            base_arrived: self.base_arrived,
            base_sent: self.base_sent,
            limited_until: self.limited_until,
        }
    }

    /// Bytes of a packet were acknowledged; `was_lost` if they had been given up.
    pub fn on_acked(&mut self, bytes: u64, was_lost: bool) {
        self.acked += bytes;
        if was_lost {
            self.lost = self.lost.saturating_sub(bytes);
        }
    }

    /// Bytes were declared lost.
    pub fn on_lost(&mut self, bytes: u64) {
        self.lost += bytes;
    }

    /// The newest packet that an acknowledgement brought: sent at `sent_at`, at the peer (plus the return path) at `arrived`.
    pub fn sample(&mut self, sent_at: Time, snapshot: &Snapshot, arrived: Time) -> Option<Sample> {
        if snapshot.offset <= self.base_offset && self.base_offset != 0 {
            return None;
        }
        let arrived = arrived.max(self.base_arrived);
        // The longer of the two intervals: acknowledgements that bunch up must not look like capacity.
        let interval = sent_at.since(snapshot.base_sent).max(arrived.since(snapshot.base_arrived));
        // Also by a pause in its middle, and one right before it (docs/decisions/0204).
        let is_app_limited = snapshot.limited_until >= self.base_offset.max(1);
        self.base_offset = snapshot.offset;
        self.base_arrived = arrived;
        self.base_sent = sent_at;
        if interval.is_zero() {
            return None;
        }
        let sent = snapshot.offset - snapshot.base_offset;
        let acked = self.acked - snapshot.acked;
        let sample = Sample {
            sent_rate: Bandwidth::from_transfer(sent, interval),
            delivery_rate: Bandwidth::from_transfer(acked, interval),
            loss: (1.0 - acked as f64 / sent.max(1) as f64).clamp(0.0, 1.0),
            interval,
            is_app_limited,
        };
        self.latest = Some(sample);
        Some(sample)
    }

    /// Bytes acknowledged in all.
    pub fn acked(&self) -> u64 {
        self.acked
    }
    /// Bytes lost in all, spurious losses taken back.
    pub fn lost(&self) -> u64 {
        self.lost
    }
    /// Bytes sent in all.
    pub fn offset(&self) -> u64 {
        self.offset
    }
    /// The latest sample.
    pub fn latest(&self) -> Option<Sample> {
        self.latest
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Ten packets a ms for 100 ms, RTT 20 ms, every fourth one lost: sent units see the whole rate, delivered units three quarters.
    #[test]
    fn sent_units_do_not_see_loss() {
        let mut d = Delivery::new(Time::ZERO);
        let mut flying: std::collections::VecDeque<(Time, bool, Snapshot)> = std::collections::VecDeque::new();
        let mut last = None;
        for i in 0..1000u64 {
            let now = Time::from_micros(i * 100);
            while let Some(&(at, lost, snapshot)) = flying.front() {
                if now.since(at) < Duration::from_millis(20) {
                    break;
                }
                flying.pop_front();
                if !lost {
                    d.on_acked(1000, false);
                    last = d.sample(at, &snapshot, now);
                }
            }
            let snapshot = d.on_sent(now, 1000, flying.len() as u64 * 1000, false);
            flying.push_back((now, i % 4 == 3, snapshot));
        }
        let s = last.expect("a sample");
        assert!((s.sent_rate.mbit() - 80.0).abs() < 1.0, "{s:?}");
        assert!((s.delivery_rate.mbit() - 60.0).abs() < 1.0, "{s:?}");
        assert!((s.loss - 0.25).abs() < 0.01, "{s:?}");
        assert!(!s.is_app_limited);
    }

    #[test]
    fn idle_time_is_no_part_of_a_sample() {
        let mut d = Delivery::new(Time::ZERO);
        let a = d.on_sent(Time::from_millis(0), 1000, 0, true);
        d.on_acked(1000, false);
        d.sample(Time::ZERO, &a, Time::from_millis(10));
        let b = d.on_sent(Time::from_millis(5000), 1000, 0, true);
        d.on_acked(1000, false);
        let s = d.sample(Time::from_millis(5000), &b, Time::from_millis(5010)).expect("a sample");
        assert_eq!(s.interval, Duration::from_millis(10));
        assert!(s.is_app_limited);
    }

    /// Two trains of ten packets, 10 ms apart; acknowledgements of the fifth packet of the first, and of the third and sixth of the second.
    #[test]
    fn a_pause_is_seen_by_an_acknowledgement_that_reaches_beyond_it() {
        let mut d = Delivery::new(Time::ZERO);
        let sent_at = |i: u64| Time::from_micros(i / 10 * 10_000 + i % 10 * 100);
        let snapshots: Vec<Snapshot> = (0..20).map(|i| d.on_sent(sent_at(i), 1000, i * 1000, i % 10 == 9)).collect();
        let seen = [4, 12, 15].map(|i: u64| {
            d.on_acked(1000, false);
            d.sample(sent_at(i), &snapshots[i as usize], sent_at(i) + Duration::from_millis(20)).expect("a sample").is_app_limited
        });
        assert_eq!(seen, [false, true, false]);
    }
}

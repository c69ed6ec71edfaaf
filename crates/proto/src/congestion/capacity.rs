//! Capacity of a path in sent units (P12a): the largest of the latest few samples, each over an epoch of about one RTT.

use super::AckEvent;
use crate::units::{Duration, Time};

/// Epochs in the maximum.
const EPOCHS: usize = 3;
/// An epoch lasts at least this long and has at least so many packets: shorter ones measure jitter and rounding.
pub(super) const MIN_EPOCH: Duration = Duration::from_millis(8);
const MIN_PACKETS: f64 = 16.0;
/// A burst of an application says something about the path from so many packets on.
const MIN_TRAIN: f64 = 4.0;

/// One finished epoch. Rates in bytes per second.
#[derive(Clone, Copy, Debug)]
pub(super) struct Epoch {
    /// Bytes sent on the path before it began.
    pub(super) start: u64,
    pub(super) sent: f64,
    pub(super) delivered: f64,
    pub(super) loss: f64,
    pub(super) packets: f64,
    pub(super) is_app_limited: bool,
    /// A whole burst of an application that has paused since, sent at the pacing rate.
    pub(super) is_train: bool,
    /// Such a burst arrived more slowly than it left: the path, not we, set its rate.
    pub(super) is_path_limited: bool,
}

#[derive(Clone, Copy, Debug)]
struct Start {
    offset: u64,
    acked: u64,
    arrived: Time,
    sent_at: Time,
    is_app_limited: bool,
}

/// The estimator.
#[derive(Clone, Debug, Default)]
pub(super) struct Capacity {
    recent: [f64; EPOCHS],
    /// The same epochs in delivered units.
    delivered: [f64; EPOCHS],
    start: Option<Start>,
    /// It is the beginning of a burst after idleness.
    is_burst: bool,
    total_acked: u64,
}

impl Capacity {
    /// Bytes per second; zero before the first sample.
    pub(super) fn get(&self) -> f64 {
        self.recent.iter().copied().fold(0.0, f64::max)
    }

    /// A flight begins after idleness, with so many bytes sent before it. Its first packet, with nobody before it, takes the smallest RTT.
    pub(super) fn restart(&mut self, now: Time, offset: u64, min_rtt: Duration) {
        self.start = Some(Start { offset, acked: self.total_acked, arrived: now + min_rtt, sent_at: now, is_app_limited: false });
        self.is_burst = true;
    }

    /// Follows acknowledgements; gives an epoch when one is complete. While probing epochs are half as long, so that the answer comes
    /// sooner. `is_last`: the application has paused and nothing was sent after what is acknowledged now.
    pub(super) fn on_ack(&mut self, event: &AckEvent, datagram: f64, is_probing: bool, is_last: bool) -> Option<Epoch> {
        event.rtt?;
        self.total_acked = event.total_acked;
        let here = Start {
            offset: event.newest_offset,
            acked: event.total_acked,
            arrived: event.arrived,
            sent_at: event.largest_sent_at,
            is_app_limited: event.is_app_limited,
        };
        let Some(start) = self.start.as_mut() else {
            self.start = Some(here);
            return None;
        };
        start.is_app_limited |= event.is_app_limited;
        if here.offset < start.offset {
            return None;
        }
        let (arriving, sending) = (here.arrived.since(start.arrived), here.sent_at.since(start.sent_at));
        let interval = arriving.max(sending);
        let bytes = (here.offset - start.offset) as f64;
        let packets = bytes / datagram;
        let length = (if is_probing { event.min_rtt / 2 } else { event.min_rtt }).max(MIN_EPOCH);
        let is_train = is_last && self.is_burst && packets >= MIN_TRAIN && interval > Duration::ZERO;
        if !is_train && (interval < length || (packets < MIN_PACKETS && interval < 4 * length) || packets < 2.0) {
            return None;
        }
        let seconds = interval.as_secs_f64();
        let acked = (here.acked - start.acked) as f64;
        let is_app_limited = start.is_app_limited;
        let began = start.offset;
        self.start = Some(here);
        self.is_burst = false;
        Some(Epoch {
            is_train,
            is_path_limited: is_train && packets >= MIN_PACKETS && sending * 5 < arriving * 4,
            start: began,
            sent: bytes / seconds,
            delivered: acked / seconds,
            loss: (1.0 - acked / bytes).clamp(0.0, 1.0),
            packets,
            is_app_limited,
        })
    }

    /// The rate of an epoch in sent units; a limited one may only raise the estimate.
    pub(super) fn on_sample(&mut self, rate: f64, is_limited: bool) {
        if is_limited && rate <= self.get() {
            return;
        }
        self.recent.rotate_right(1);
        self.recent[0] = rate;
    }

    /// A queue much longer than wished stands before the bottleneck: what passes it now is its capacity, whatever it was.
    pub(super) fn on_saturated(&mut self, rate: f64) {
        self.recent = [rate; EPOCHS];
    }

    /// Something between the present estimate and `rate`, after the path has changed.
    pub(super) fn raise(&mut self, rate: f64) {
        self.recent[0] = self.recent[0].max(rate);
    }

    /// What an epoch at full rate delivered.
    pub(super) fn on_delivered(&mut self, delivered: f64) {
        self.delivered.rotate_right(1);
        self.delivered[0] = delivered;
    }

    /// What was delivered lately, bytes per second.
    pub(super) fn delivered(&self) -> f64 {
        (self.delivered[0] + self.delivered[1]) / 2.0
    }

    /// What the latest epoch delivered.
    pub(super) fn latest_delivered(&self) -> f64 {
        self.delivered[0]
    }

    /// A rate that the path surely carries: the middle one of three, as one epoch may have met a hole.
    pub(super) fn surely_delivered(&self) -> f64 {
        let [a, b, c] = self.delivered;
        a.min(b).max(a.max(b).min(c))
    }

    /// Some of what was sent was more than the path carries: capacity is what was delivered, with the path's own loss put back.
    pub(super) fn settle_delivered(&mut self, base_loss: f64) {
        if self.delivered() > 0.0 {
            self.recent = [(self.delivered() / (1.0 - base_loss)).min(self.get()); EPOCHS];
        }
    }

    /// A sample over one flight during start-up, when an epoch would come too late.
    pub(super) fn on_startup_sample(&mut self, rate: f64) {
        self.recent[0] = self.recent[0].max(rate);
    }

    /// What was measured last holds; what was hoped for before is forgotten.
    pub(super) fn settle(&mut self) {
        let latest = self.recent[0].max(self.recent[1].min(self.recent[2]));
        self.recent = [latest; EPOCHS];
    }

    /// Reduces the estimate.
    pub(super) fn cut(&mut self, factor: f64) {
        for r in &mut self.recent {
            *r *= factor;
        }
    }
}

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
/// Nothing arrived for so many times as long as an epoch takes, and as it usually takes from one acknowledgement to the next: an outage,
/// if most of what was sent then is lost.
const OUTAGE: u32 = 4;
/// Acknowledgements over which the usual time between two is averaged.
const USUAL: u32 = 8;

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
    /// How long the packets took to leave and to arrive; the rates are over the longer of the two.
    pub(super) sending: Duration,
    pub(super) arriving: Duration,
    /// A whole burst of an application that has paused since, sent at the pacing rate.
    pub(super) is_train: bool,
}

impl Epoch {
    /// A burst that arrived more slowly than it left: the path, not we, set its rate.
    pub(super) fn is_path_limited(&self) -> bool {
        self.is_train && self.packets >= MIN_PACKETS && self.sending * 5 < self.arriving * 4
    }

    /// The packets took longer to leave than to arrive, and not because the delay varies: we were holding back while a queue flowed off.
    pub(super) fn is_held_back(&self, noise: Duration) -> bool {
        self.sending > self.arriving * 5 / 4 + noise * 4
    }
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
    /// Where the latest acknowledgement stood, and the usual time between two.
    last: Option<Start>,
    usual: Duration,
}

impl Capacity {
    /// Bytes per second; zero before the first sample.
    pub(super) fn get(&self) -> f64 {
        self.recent.iter().copied().fold(0.0, f64::max)
    }

    /// A flight begins after idleness, with so many bytes sent before it. Its first packet, with nobody before it, takes the smallest RTT.
    pub(super) fn restart(&mut self, now: Time, offset: u64, min_rtt: Duration) {
        let acked = self.last.map_or(0, |last| last.acked);
        self.start = Some(Start { offset, acked, arrived: now + min_rtt, sent_at: now, is_app_limited: false });
        self.is_burst = true;
        self.last = self.start;
    }

    /// A flight begins of which nobody knows whether it arrives: measured from the first acknowledgement of it on.
    pub(super) fn forget_start(&mut self) {
        self.start = None;
        self.is_burst = false;
    }

    /// Follows acknowledgements; gives an epoch when one is complete. While probing epochs are half as long, so that the answer comes
    /// sooner. `is_last`: the application has paused and nothing was sent after what is acknowledged now.
    pub(super) fn on_ack(&mut self, event: &AckEvent, datagram: f64, is_probing: bool, is_last: bool) -> Option<Epoch> {
        event.rtt?;
        let here = Start {
            offset: event.newest_offset,
            acked: event.total_acked,
            arrived: event.arrived,
            sent_at: event.largest_sent_at,
            is_app_limited: event.is_app_limited,
        };
        let length = (if is_probing { event.min_rtt / 2 } else { event.min_rtt }).max(MIN_EPOCH);
        if self.is_after_outage(&here, length) {
            // What it swallowed says nothing about the capacity, nor about the path's loss.
            self.forget_start();
        }
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
            start: began,
            sent: bytes / seconds,
            delivered: acked / seconds,
            loss: (1.0 - acked / bytes).clamp(0.0, 1.0),
            packets,
            is_app_limited,
            sending,
            arriving,
        })
    }

    /// Follows the times between acknowledgements; whether nothing arrived for long before `here`, and not for want of sending.
    fn is_after_outage(&mut self, here: &Start, length: Duration) -> bool {
        let Some(last) = self.last.replace(*here) else { return false };
        let (gap, most) = (here.arrived.since(last.arrived), length.max(self.usual) * OUTAGE);
        self.usual = (self.usual * (USUAL - 1) + gap.min(most)) / USUAL;
        let (sent, acked) = (here.offset.saturating_sub(last.offset), here.acked.saturating_sub(last.acked));
        gap > most && 2 * acked < sent
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

    /// The least of it: a rate that the path surely carries.
    pub(super) fn surely_delivered(&self) -> f64 {
        self.delivered[0].min(self.delivered[1])
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

    /// So much and no more, as a pulse has shown.
    pub(super) fn set(&mut self, rate: f64) {
        self.recent = [rate; EPOCHS];
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

#[cfg(test)]
#[path = "capacity_tests.rs"]
mod tests;

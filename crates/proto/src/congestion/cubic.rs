//! `cubic`: RFC 9438, with the fast convergence of its section 4.7 and HyStart++ (RFC 9406) at the end of slow start.

use super::hystart::HyStart;
use super::loss_epoch::LossEpoch;
use super::window::{MIN_SEGMENTS, Window};
use super::{AckEvent, ControlState, Controller, Coupled, LossEvent, SentEvent};
use crate::units::{Bandwidth, Duration, Time};

/// RFC 9438 §4.1: aggressiveness, segments per second cubed.
const C: f64 = 0.4;
/// RFC 9438 §4.6: multiplicative decrease.
const BETA: f64 = 0.7;
/// RFC 9438 §4.3: additive increase that makes the Reno-friendly region fair to Reno.
const ALPHA: f64 = 3.0 * (1.0 - BETA) / (1.0 + BETA);

/// State before a reduction, so that a spurious one can be undone (RFC 9438 §4.9).
#[derive(Clone, Copy, Debug)]
struct Before {
    cwnd: f64,
    ssthresh: f64,
    w_max: f64,
    epoch: Option<Time>,
}

/// The CUBIC controller. Windows in segments.
#[derive(Debug)]
pub(super) struct Cubic {
    window: Window,
    w_max: f64,
    w_est: f64,
    k: f64,
    /// Part of one flow's aggressiveness.
    weight: f64,
    epoch: Option<Time>,
    losses: LossEpoch<Before>,
    hystart: HyStart,
}

impl Cubic {
    pub(super) fn new(datagram: u64, rtt: Duration) -> Self {
        Self {
            window: Window::new(datagram, rtt),
            w_max: 0.0,
            w_est: 0.0,
            k: 0.0,
            weight: 1.0,
            epoch: None,
            losses: LossEpoch::new(),
            hystart: HyStart::new(),
        }
    }

    /// From a window in bytes, in slow start or in congestion avoidance: for `model` beside traffic that fills the queue.
    pub(super) fn resume(datagram: u64, rtt: Duration, window: u64, is_slow_start: bool) -> Self {
        let mut cubic = Self::new(datagram, rtt);
        let w = &mut cubic.window;
        w.cwnd = (window as f64 / w.datagram).max(4.0);
        if !is_slow_start {
            w.ssthresh = w.cwnd;
            cubic.w_max = w.cwnd;
        }
        cubic
    }

    /// Takes back a part of the latest reduction: growth goes on from that window in bytes.
    pub(super) fn restore(&mut self, window: u64) {
        let w = &mut self.window;
        let segments = window as f64 / w.datagram;
        if segments > w.cwnd {
            w.cwnd = segments;
            w.ssthresh = segments;
            // The window from before was not what filled the queue: no plateau there.
            self.w_max = segments;
            self.epoch = None;
        }
    }

    fn reduce(&mut self) {
        let w = &mut self.window;
        self.w_max = if w.cwnd < self.w_max { w.cwnd * (1.0 + BETA) / 2.0 } else { w.cwnd };
        w.cwnd = (w.cwnd * BETA).max(MIN_SEGMENTS);
        w.ssthresh = w.cwnd;
        self.epoch = None;
    }

    fn slow_start(&mut self, segments: f64, event: &AckEvent) {
        let (factor, is_over) = self.hystart.on_ack(event);
        if is_over {
            self.window.ssthresh = self.window.cwnd;
        }
        self.window.cwnd += factor * segments;
    }

    fn avoidance(&mut self, segments: f64, now: Time) {
        let c = C * self.weight.powi(4);
        let epoch = *self.epoch.get_or_insert_with(|| {
            self.k = if self.w_max > self.window.cwnd { ((self.w_max - self.window.cwnd) / c).cbrt() } else { 0.0 };
            self.w_max = self.w_max.max(self.window.cwnd);
            self.w_est = self.window.cwnd;
            now
        });
        let t = now.since(epoch).as_secs_f64();
        let (k, w_max) = (self.k, self.w_max);
        let w_cubic = |t: f64| c * (t - k).powi(3) + w_max;
        // RFC 9438 §4.3: the rate that Reno would have.
        let alpha = if self.w_est >= self.w_max { 1.0 } else { ALPHA };
        self.w_est += alpha * self.weight.powi(2) * segments / self.window.cwnd;
        if w_cubic(t) < self.w_est {
            self.window.cwnd = self.window.cwnd.max(self.w_est);
        } else {
            let target = w_cubic(t + self.window.srtt.as_secs_f64()).clamp(self.window.cwnd, 1.5 * self.window.cwnd);
            self.window.cwnd += (target - self.window.cwnd) / self.window.cwnd * segments;
        }
    }
}

impl Controller for Cubic {
    fn name(&self) -> &'static str {
        "cubic"
    }

    fn on_sent(&mut self, event: &SentEvent) {
        self.window.on_sent(event);
    }

    fn on_ack(&mut self, event: &AckEvent) {
        self.window.srtt = event.smoothed_rtt;
        if event.ce_packets > 0 && self.losses.on_mark(event.now, event.largest_sent_at) {
            self.reduce();
            return;
        }
        if self.window.is_limited || self.losses.covers(event.largest_sent_at) {
            return;
        }
        let segments = event.acked_bytes as f64 / self.window.datagram;
        if self.window.is_slow_start() {
            self.slow_start(segments, event);
        } else {
            self.avoidance(segments, event.now);
        }
    }

    fn on_loss(&mut self, event: &LossEvent) {
        let before = Before { cwnd: self.window.cwnd, ssthresh: self.window.ssthresh, w_max: self.w_max, epoch: self.epoch };
        if self.losses.on_loss(event, || before) {
            self.reduce();
        }
        if event.is_persistent {
            self.window.cwnd = MIN_SEGMENTS;
            self.losses.forget();
        }
    }

    fn on_spurious_loss(&mut self, _: Time, bytes: u64) {
        if let Some(before) = self.losses.on_spurious_loss(bytes) {
            // Every loss of that reduction was reordering.
            self.window.cwnd = self.window.cwnd.max(before.cwnd);
            self.window.ssthresh = before.ssthresh;
            self.w_max = before.w_max;
            self.epoch = before.epoch;
        }
    }

    fn window(&self) -> u64 {
        self.window.bytes()
    }

    fn pacing_rate(&self) -> Option<Bandwidth> {
        Some(self.window.pacing_rate())
    }

    fn state(&self) -> ControlState {
        self.window.state(self.hystart.is_conservative())
    }

    /// At one share of losses the window is in proportion to the fourth root of C (RFC 9438 §5.1), in the Reno-friendly region to the root of alpha.
    fn couple(&mut self, coupled: Coupled) {
        self.weight = coupled.weight();
    }

    fn on_mtu(&mut self, max_datagram: u64) {
        self.window.on_mtu(max_datagram);
    }
}

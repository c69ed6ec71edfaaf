//! `cubic`: RFC 9438, with the fast convergence of its section 4.7 and HyStart++ (RFC 9406) at the end of slow start.

use super::{AckEvent, ControlState, Controller, INITIAL_PACKETS, LossEvent, SentEvent};
use crate::units::{Bandwidth, Duration, Time};

/// RFC 9438 §4.1: aggressiveness, segments per second cubed.
const C: f64 = 0.4;
/// RFC 9438 §4.6: multiplicative decrease.
const BETA: f64 = 0.7;
/// RFC 9438 §4.3: additive increase that makes the Reno-friendly region fair to Reno.
const ALPHA: f64 = 3.0 * (1.0 - BETA) / (1.0 + BETA);

/// State before a reduction, so that a spurious one can be undone (RFC 9438 §4.9).
#[derive(Clone, Copy, Debug)]
struct Undo {
    cwnd: f64,
    ssthresh: f64,
    w_max: f64,
    lost_bytes: u64,
    epoch: Option<Time>,
}

/// The CUBIC controller. Windows in segments.
#[derive(Debug)]
pub(super) struct Cubic {
    datagram: f64,
    cwnd: f64,
    ssthresh: f64,
    w_max: f64,
    w_est: f64,
    k: f64,
    epoch: Option<Time>,
    /// Losses of packets sent before this belong to a reduction already made.
    recovery_start: Option<Time>,
    undo: Option<Undo>,
    srtt: Duration,
    is_limited: bool,
    hystart: HyStart,
}

/// RFC 9406: leave slow start when the round's smallest RTT rises.
#[derive(Clone, Copy, Debug)]
struct HyStart {
    round_end: u64,
    last_min: Duration,
    this_min: Duration,
    samples: u32,
    /// Rounds left of Conservative Slow Start, and the smallest RTT when it began.
    css: Option<(u32, Duration)>,
}

impl HyStart {
    const MIN_THRESHOLD: Duration = Duration::from_millis(4);
    const MAX_THRESHOLD: Duration = Duration::from_millis(16);
    const SAMPLES: u32 = 8;
    const CSS_ROUNDS: u32 = 5;
    const CSS_GROWTH_DIVISOR: f64 = 4.0;
}

impl Cubic {
    pub(super) fn new(datagram: u64, rtt: Duration) -> Self {
        Self {
            datagram: datagram as f64,
            cwnd: INITIAL_PACKETS as f64,
            ssthresh: f64::INFINITY,
            w_max: 0.0,
            w_est: 0.0,
            k: 0.0,
            epoch: None,
            recovery_start: None,
            undo: None,
            srtt: rtt,
            is_limited: false,
            hystart: HyStart { round_end: 0, last_min: Duration::MAX, this_min: Duration::MAX, samples: 0, css: None },
        }
    }

    /// In congestion avoidance from a window in bytes: for `model` beside traffic that fills the queue.
    pub(super) fn resume(datagram: u64, rtt: Duration, window: u64) -> Self {
        let mut cubic = Self::new(datagram, rtt);
        cubic.cwnd = (window as f64 / cubic.datagram).max(4.0);
        cubic.ssthresh = cubic.cwnd;
        cubic.w_max = cubic.cwnd;
        cubic
    }

    fn reduce(&mut self, now: Time) {
        self.w_max = if self.cwnd < self.w_max { self.cwnd * (1.0 + BETA) / 2.0 } else { self.cwnd };
        self.cwnd = (self.cwnd * BETA).max(2.0);
        self.ssthresh = self.cwnd;
        self.epoch = None;
        self.recovery_start = Some(now);
    }

    fn slow_start(&mut self, segments: f64, event: &AckEvent) {
        let h = &mut self.hystart;
        if event.newest_offset >= h.round_end {
            h.round_end = event.newest_offset + event.in_flight;
            h.last_min = h.this_min;
            h.this_min = Duration::MAX;
            h.samples = 0;
            if let Some((rounds, _)) = &mut h.css {
                *rounds -= 1;
                if *rounds == 0 {
                    self.ssthresh = self.cwnd;
                }
            }
        }
        if let Some(rtt) = event.rtt {
            h.this_min = h.this_min.min(rtt);
            h.samples += 1;
        }
        if h.samples >= HyStart::SAMPLES && h.last_min != Duration::MAX {
            let threshold = (h.last_min / 8).clamp(HyStart::MIN_THRESHOLD, HyStart::MAX_THRESHOLD);
            match h.css {
                None if h.this_min >= h.last_min + threshold => h.css = Some((HyStart::CSS_ROUNDS, h.last_min)),
                Some((_, base)) if h.this_min < base => h.css = None,
                _ => {}
            }
        }
        self.cwnd += if h.css.is_some() { segments / HyStart::CSS_GROWTH_DIVISOR } else { segments };
    }

    fn avoidance(&mut self, segments: f64, now: Time) {
        let epoch = *self.epoch.get_or_insert_with(|| {
            self.k = if self.w_max > self.cwnd { ((self.w_max - self.cwnd) / C).cbrt() } else { 0.0 };
            self.w_max = self.w_max.max(self.cwnd);
            self.w_est = self.cwnd;
            now
        });
        let t = now.since(epoch).as_secs_f64();
        let w_cubic = |t: f64| C * (t - self.k).powi(3) + self.w_max;
        // RFC 9438 §4.3: the rate that Reno would have.
        let alpha = if self.w_est >= self.w_max { 1.0 } else { ALPHA };
        self.w_est += alpha * segments / self.cwnd;
        if w_cubic(t) < self.w_est {
            self.cwnd = self.cwnd.max(self.w_est);
        } else {
            let target = w_cubic(t + self.srtt.as_secs_f64()).clamp(self.cwnd, 1.5 * self.cwnd);
            self.cwnd += (target - self.cwnd) / self.cwnd * segments;
        }
    }
}

impl Controller for Cubic {
    fn name(&self) -> &'static str {
        "cubic"
    }

    fn on_sent(&mut self, event: &SentEvent) {
        // RFC 9438 §4.2 and RFC 2861: a window that is not used does not grow.
        self.is_limited = event.is_app_limited && (event.in_flight as f64) < self.cwnd * self.datagram / 2.0;
    }

    fn on_ack(&mut self, event: &AckEvent) {
        self.srtt = event.smoothed_rtt;
        let is_in_recovery = |s: &Self| s.recovery_start.is_some_and(|t| event.largest_sent_at <= t);
        if event.ce_packets > 0 && !is_in_recovery(self) {
            self.undo = None;
            self.reduce(event.now);
            return;
        }
        if self.is_limited || is_in_recovery(self) {
            return;
        }
        let segments = event.acked_bytes as f64 / self.datagram;
        if self.cwnd < self.ssthresh {
            self.slow_start(segments, event);
        } else {
            self.avoidance(segments, event.now);
        }
    }

    fn on_loss(&mut self, event: &LossEvent) {
        if self.recovery_start.is_some_and(|t| event.largest_sent_at <= t) {
            if let Some(undo) = &mut self.undo {
                undo.lost_bytes += event.lost_bytes;
            }
        } else {
            self.undo =
                Some(Undo { cwnd: self.cwnd, ssthresh: self.ssthresh, w_max: self.w_max, lost_bytes: event.lost_bytes, epoch: self.epoch });
            self.reduce(event.now);
        }
        if event.is_persistent {
            self.cwnd = 2.0;
            self.undo = None;
        }
    }

    fn on_spurious_loss(&mut self, _: Time, bytes: u64) {
        let Some(undo) = &mut self.undo else { return };
        undo.lost_bytes = undo.lost_bytes.saturating_sub(bytes);
        if undo.lost_bytes == 0 {
            // Every loss of that reduction was reordering.
            self.cwnd = self.cwnd.max(undo.cwnd);
            self.ssthresh = undo.ssthresh;
            self.w_max = undo.w_max;
            self.epoch = undo.epoch;
            self.undo = None;
        }
    }

    fn window(&self) -> u64 {
        (self.cwnd * self.datagram) as u64
    }

    fn pacing_rate(&self) -> Option<Bandwidth> {
        let gain = if self.cwnd < self.ssthresh { 2.0 } else { 1.25 };
        Some(Bandwidth::from_bytes_per_sec(gain * self.cwnd * self.datagram / self.srtt.as_secs_f64().max(1e-6)))
    }

    fn state(&self) -> ControlState {
        let state = match self.cwnd < self.ssthresh {
            true if self.hystart.css.is_some() => "conservative_slow_start",
            true => "slow_start",
            false => "congestion_avoidance",
        };
        let pacing_rate = self.pacing_rate().unwrap_or_default();
        ControlState { state, cwnd: self.window(), pacing_rate, capacity: Bandwidth::ZERO, base_loss: 0.0 }
    }

    fn on_mtu(&mut self, max_datagram: u64) {
        let bytes = self.cwnd * self.datagram;
        self.datagram = max_datagram as f64;
        self.cwnd = (bytes / self.datagram).max(2.0);
    }
}

//! `vegas`: Brakmo and Peterson, "TCP Vegas: End to End Congestion Avoidance on a Global Internet", IEEE JSAC 13(8), 1995.
//!
//! Once per RTT the throughput expected from the window, cwnd / base RTT, is compared with the actual one; the difference times the base RTT is the
//! number of segments that this flow keeps in the queue, to be held between alpha and beta. Loss and marks are answered as `reno` does.

use super::reno::Reno;
use super::window::MIN_SEGMENTS;
use super::{AckEvent, ControlState, Controller, Coupled, LossEvent, SentEvent};
use crate::units::{Bandwidth, Duration, Time};

/// §IV.B: fewer segments queued than this, the window grows by one per RTT.
const ALPHA: f64 = 2.0;
/// §IV.B: more than this, it shrinks by one per RTT.
const BETA: f64 = 4.0;
/// §IV.C: more than this in slow start, slow start is over.
const GAMMA: f64 = 1.0;
/// Samples that begin a round of growth: of packets sent when the window had stood at its size for a moment.
const SAMPLES: u32 = 4;

/// The Vegas controller: `reno` with another law of growth.
#[derive(Debug)]
pub(super) struct Vegas {
    reno: Reno,
    /// Smallest RTT since the beginning or the last idleness. It does not expire: a queue of one's own would become the base.
    base: Duration,
    /// Offset that was the newest sent when the round began; acknowledged, the round is over.
    round_end: u64,
    /// Offset sent so far.
    sent: u64,
    /// RTT samples of the round: smallest and number.
    round_min: Duration,
    samples: u32,
    /// §IV.C: slow start grows every other RTT. What the RTT in between shows is known when its first packets are acknowledged.
    is_growing: bool,
    /// Bytes acknowledged before that was known.
    held: u64,
    last_sent_at: Time,
}

impl Vegas {
    pub(super) fn new(datagram: u64, rtt: Duration) -> Self {
        Self {
            reno: Reno::new(datagram, rtt),
            base: Duration::MAX,
            round_end: 0,
            sent: 0,
            round_min: Duration::MAX,
            samples: 0,
            is_growing: true,
            held: 0,
            last_sent_at: Time::ZERO,
        }
    }

    /// Segments of this flow in the queue: (expected - actual) x base RTT, with actual = cwnd / RTT.
    fn queued(&self) -> f64 {
        let (base, rtt) = (self.base.as_secs_f64(), self.round_min.as_secs_f64());
        self.reno.window.cwnd * (1.0 - base / rtt)
    }

    /// §IV.C.
    fn slow_start(&mut self, acked: u64) {
        if !self.is_growing {
            return;
        }
        self.held += acked;
        if self.samples < SAMPLES {
            return;
        }
        let queued = self.queued();
        let w = &mut self.reno.window;
        if self.samples == SAMPLES && queued > GAMMA {
            // The window that fills the path is known now: what stands in the queue is taken back.
            w.cwnd = (w.cwnd - queued + GAMMA).max(MIN_SEGMENTS);
            w.ssthresh = w.cwnd;
        } else {
            w.cwnd += self.held as f64 / w.datagram;
        }
        self.held = 0;
    }

    /// §IV.B.
    fn end_round(&mut self) {
        let queued = self.queued();
        let w = &mut self.reno.window;
        if w.is_slow_start() {
            self.is_growing = !self.is_growing;
            self.held = 0;
        } else if queued < ALPHA {
            w.cwnd += 1.0;
        } else if queued > BETA {
            w.cwnd = (w.cwnd - 1.0).max(MIN_SEGMENTS);
            w.ssthresh = w.ssthresh.min(w.cwnd);
        }
    }
}

impl Controller for Vegas {
    fn name(&self) -> &'static str {
        "vegas"
    }

    fn on_sent(&mut self, event: &SentEvent) {
        if event.in_flight <= event.bytes && event.now.since(self.last_sent_at) > self.reno.window.srtt {
            // Idle: the queue is empty and the path may be another.
            self.base = Duration::MAX;
        }
        self.last_sent_at = event.now;
        self.sent = event.sent_offset;
        self.reno.on_sent(event);
    }

    fn on_ack(&mut self, event: &AckEvent) {
        let may_grow = self.reno.admits(event);
        if event.newest_offset > self.round_end {
            // The first packet that was sent after the round began.
            if may_grow && self.samples > 0 {
                self.end_round();
            }
            self.round_end = self.sent;
            self.round_min = Duration::MAX;
            self.samples = 0;
        }
        if let Some(rtt) = event.rtt {
            self.base = self.base.min(rtt);
            self.round_min = self.round_min.min(rtt);
            self.samples += 1;
        }
        if may_grow && self.reno.window.is_slow_start() {
            self.slow_start(event.acked_bytes);
        }
    }

    fn on_loss(&mut self, event: &LossEvent) {
        self.reno.on_loss(event);
        if event.is_persistent {
            self.base = Duration::MAX;
        }
    }

    fn on_spurious_loss(&mut self, now: Time, bytes: u64) {
        self.reno.on_spurious_loss(now, bytes);
    }

    fn window(&self) -> u64 {
        self.reno.window()
    }

    fn pacing_rate(&self) -> Option<Bandwidth> {
        self.reno.pacing_rate()
    }

    fn state(&self) -> ControlState {
        self.reno.state()
    }

    fn couple(&mut self, _: Coupled) {} // Its queue stands still: nothing shows that two paths meet (multipath.md 5).

    fn on_mtu(&mut self, max_datagram: u64) {
        self.reno.on_mtu(max_datagram);
    }
}

#[cfg(test)]
mod tests {
    use super::super::script::Script;
    use super::*;

    fn script() -> Script<Vegas> {
        Script::new(Vegas::new(Script::<Vegas>::DATAGRAM, Duration::from_millis(20)))
    }

    fn cwnd(s: &Script<Vegas>) -> f64 {
        s.controller.reno.window.cwnd
    }

    /// A path of `bdp` segments: what is more stands in the queue.
    fn rounds_on_a_path(s: &mut Script<Vegas>, bdp: f64, rounds: u32) {
        for _ in 0..rounds {
            s.rtt = s.min_rtt.mul_f64((cwnd(s) / bdp).max(1.0));
            s.round();
        }
    }

    #[test]
    fn slow_start_doubles_every_other_round() {
        let mut s = script();
        let mut windows = Vec::new();
        for _ in 0..6 {
            s.round();
            windows.push(cwnd(&s));
        }
        assert!(windows.windows(3).all(|w| (w[2] / w[0] - 2.0).abs() < 0.1), "{windows:?}");
        assert!(windows.windows(2).any(|w| w[0] == w[1]), "{windows:?}");
    }

    #[test]
    fn slow_start_ends_at_the_first_segments_queued() {
        let mut s = script();
        rounds_on_a_path(&mut s, 100.0, 12);
        assert!(!s.controller.reno.window.is_slow_start());
        assert!((cwnd(&s) - 100.0).abs() < 8.0, "{}", cwnd(&s));
    }

    /// Below alpha one segment more, above beta one less, between them nothing.
    #[test]
    fn the_window_moves_by_one_segment_outside_the_band_and_stands_still_inside() {
        for (queued, step) in [(0.5, 1.0), (1.8, 1.0), (2.5, 0.0), (3.5, 0.0), (4.5, -1.0), (20.0, -1.0)] {
            let mut s = script();
            s.round();
            s.lose(1); // out of slow start
            s.round();
            s.round();
            // Its first acknowledgement ends the round before, which saw no queue.
            let before = cwnd(&s) + 1.0;
            s.rtt = s.min_rtt.mul_f64(before / (before - queued));
            s.round();
            assert_eq!(cwnd(&s), before);
            s.round();
            assert_eq!(cwnd(&s) - before, step, "{queued} segments queued of {before}");
        }
    }

    #[test]
    fn two_to_four_segments_stay_in_the_queue() {
        let mut s = script();
        rounds_on_a_path(&mut s, 100.0, 60);
        assert!((102.0..=104.5).contains(&cwnd(&s)), "{}", cwnd(&s));
        rounds_on_a_path(&mut s, 60.0, 60);
        assert!((62.0..=64.5).contains(&cwnd(&s)), "{}", cwnd(&s));
    }

    #[test]
    fn loss_halves_the_window_once_per_flight() {
        let mut s = script();
        rounds_on_a_path(&mut s, 100.0, 60);
        let before = cwnd(&s);
        s.lose(2);
        s.lose(1);
        assert_eq!(cwnd(&s), before / 2.0);
    }
}

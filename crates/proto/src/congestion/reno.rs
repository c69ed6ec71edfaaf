//! `reno`: Van Jacobson's control (1988) as RFC 5681 with NewReno's recovery (RFC 6582) and byte counting (RFC 3465).
//!
//! What RFC 6582 does with duplicate and partial acknowledgements falls out of packet numbers that are never used twice: loss is known packet by
//! packet, so one flight's losses are one reduction, and the window stands still until a packet sent after it is acknowledged. Slow start is paced,
//! so RFC 3465's limit L, made against bursts, is not needed (RFC 9002 §7.7), and ends early by HyStart++ (RFC 9406).

use super::hystart::HyStart;
use super::loss_epoch::LossEpoch;
use super::window::{MIN_SEGMENTS, Window};
use super::{AckEvent, ControlState, Controller, Coupled, LossEvent, SentEvent};
use crate::units::{Bandwidth, Duration, Time};

/// RFC 5681 §3.1 (4): half of the flight.
const BETA: f64 = 0.5;

/// The NewReno controller.
#[derive(Debug)]
pub(super) struct Reno {
    pub(super) window: Window,
    /// State before a reduction: cwnd and ssthresh.
    epoch: LossEpoch<(f64, f64)>,
    hystart: HyStart,
    /// RFC 3465 §2.1: bytes acknowledged since the window last grew.
    counted: f64,
    /// Segments by which it grows then: less than one beside paths of the same link.
    step: f64,
}

impl Reno {
    pub(super) fn new(datagram: u64, rtt: Duration) -> Self {
        Self { window: Window::new(datagram, rtt), epoch: LossEpoch::new(), hystart: HyStart::new(), counted: 0.0, step: 1.0 }
    }

    /// RFC 5681 §3.1: half of the flight, which is the window unless the sender did not use it.
    fn reduce(&mut self, flight: u64) {
        let w = &mut self.window;
        let segments = if w.is_limited { (flight as f64 / w.datagram).min(w.cwnd) } else { w.cwnd };
        w.ssthresh = (segments * BETA).max(MIN_SEGMENTS);
        w.cwnd = w.ssthresh;
        self.counted = 0.0;
    }

    /// Takes notice of an acknowledgement; `true`: it may let the window grow.
    pub(super) fn admits(&mut self, event: &AckEvent) -> bool {
        self.window.srtt = event.smoothed_rtt;
        if event.ce_packets > 0 && self.epoch.on_mark(event.now, event.largest_sent_at) {
            self.reduce(event.in_flight + event.acked_bytes); // RFC 3168 §6.1.2
            return false;
        }
        !self.window.is_limited && !self.epoch.covers(event.largest_sent_at)
    }

    fn slow_start(&mut self, event: &AckEvent) {
        let (factor, is_over) = self.hystart.on_ack(event);
        let w = &mut self.window;
        w.cwnd += factor * event.acked_bytes as f64 / w.datagram;
        if is_over {
            w.ssthresh = w.cwnd;
        }
    }

    /// RFC 3465 §2.1: one segment per window of bytes acknowledged.
    fn avoidance(&mut self, acked: u64) {
        let w = &mut self.window;
        self.counted += acked as f64;
        let window = w.cwnd * w.datagram;
        if self.counted >= window {
            self.counted -= window;
            w.cwnd += self.step;
        }
    }
}

impl Controller for Reno {
    fn name(&self) -> &'static str {
        "reno"
    }

    fn on_sent(&mut self, event: &SentEvent) {
        self.window.on_sent(event);
    }

    fn on_ack(&mut self, event: &AckEvent) {
        if !self.admits(event) {
            return;
        }
        if self.window.is_slow_start() {
            self.slow_start(event);
        } else {
            self.avoidance(event.acked_bytes);
        }
    }

    fn on_loss(&mut self, event: &LossEvent) {
        let before = (self.window.cwnd, self.window.ssthresh);
        if self.epoch.on_loss(event, || before) {
            self.reduce(event.in_flight + event.lost_bytes);
        }
        if event.is_persistent {
            self.window.cwnd = MIN_SEGMENTS; // RFC 9002 §7.6.2
            self.epoch.forget();
        }
    }

    fn on_spurious_loss(&mut self, _: Time, bytes: u64) {
        if let Some((cwnd, ssthresh)) = self.epoch.on_spurious_loss(bytes) {
            self.window.cwnd = self.window.cwnd.max(cwnd);
            self.window.ssthresh = ssthresh;
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

    /// At one share of losses the window is in proportion to the root of the step (Honda et al., "Multipath Congestion Control for Shared Bottleneck", 2009).
    fn couple(&mut self, coupled: Coupled) {
        self.step = coupled.weight().powi(2);
    }

    fn on_mtu(&mut self, max_datagram: u64) {
        self.window.on_mtu(max_datagram);
    }
}

#[cfg(test)]
mod tests {
    use super::super::script::Script;
    use super::*;

    fn script() -> Script<Reno> {
        Script::new(Reno::new(Script::<Reno>::DATAGRAM, Duration::from_millis(20)))
    }

    fn cwnd(s: &Script<Reno>) -> f64 {
        s.controller.window.cwnd
    }

    /// Window per round: 32, doubled until the loss, half of it, then one segment per round.
    #[test]
    fn the_window_doubles_halves_and_then_grows_by_one_segment_per_round() {
        let mut s = script();
        let mut windows = vec![cwnd(&s)];
        for _ in 0..2 {
            s.round();
            windows.push(cwnd(&s));
        }
        assert_eq!(windows, [32.0, 64.0, 128.0]);
        s.lose(3);
        assert_eq!(cwnd(&s), 64.0);
        s.lose(2); // the same flight
        assert_eq!(cwnd(&s), 64.0);
        s.round(); // acknowledges what was sent before the reduction
        assert_eq!(cwnd(&s), 64.0);
        for n in 1..=10 {
            s.round();
            assert!((cwnd(&s) - 64.0 - f64::from(n)).abs() <= 1.0, "{} after {n} rounds", cwnd(&s));
        }
        assert!(cwnd(&s) > 72.0, "{}", cwnd(&s));
    }

    /// RFC 3465: bytes count, not acknowledgements.
    #[test]
    fn growth_does_not_depend_on_how_often_acknowledgements_come() {
        let after = |per_ack: u64| {
            let mut s = script();
            s.per_ack = per_ack;
            s.lose(1);
            for _ in 0..20 {
                s.round();
            }
            cwnd(&s)
        };
        assert!((after(1) - after(16)).abs() <= 2.0, "{} {}", after(1), after(16));
        assert!(after(16) > 16.0 + 15.0, "{}", after(16));
    }

    #[test]
    fn a_loss_that_was_reordering_is_undone_and_one_real_loss_keeps_the_reduction() {
        let mut s = script();
        s.round();
        let before = cwnd(&s);
        s.lose(3);
        s.controller.on_spurious_loss(s.now, 2 * Script::<Reno>::DATAGRAM);
        assert_eq!(cwnd(&s), before / 2.0);
        s.controller.on_spurious_loss(s.now, Script::<Reno>::DATAGRAM);
        assert_eq!(cwnd(&s), before);
        assert!(s.controller.window.is_slow_start());
    }

    #[test]
    fn persistent_congestion_leaves_two_segments_and_slow_start_up_to_half() {
        let mut s = script();
        s.round();
        s.lose_all();
        assert_eq!(cwnd(&s), MIN_SEGMENTS);
        assert_eq!(s.controller.window.ssthresh, 32.0);
        assert!(s.controller.window.is_slow_start());
    }

    #[test]
    fn a_mark_halves_once_per_flight() {
        let mut s = script();
        s.round();
        s.marks = 1;
        s.round();
        assert_eq!(cwnd(&s), 32.0);
    }

    /// RFC 5681 §3.1: FlightSize, not cwnd, where the application does not fill the window.
    #[test]
    fn a_sender_with_little_to_send_falls_back_to_half_of_its_flight() {
        let mut s = script();
        for _ in 0..2 {
            s.round();
        }
        let mss = Script::<Reno>::DATAGRAM;
        s.now += Duration::from_millis(20);
        let now = s.now;
        s.controller.on_sent(&SentEvent {
            now,
            bytes: mss,
            in_flight: 10 * mss,
            is_app_limited: true,
            sent_offset: s.sent + mss,
            is_control: false,
        });
        s.controller.on_loss(&LossEvent {
            now,
            lost_bytes: mss,
            lost_packets: 1,
            largest_sent_at: now,
            in_flight: 9 * mss,
            is_persistent: false,
        });
        assert_eq!(cwnd(&s), 5.0);
    }
}

//! `gcc`: Google congestion control (draft-ietf-rmcat-gcc-02), for media that fits its bit rate to the path.
//!
//! The rate is the smaller of two: one that falls when the delay grows (`gcc_delay.rs` sees it, `gcc_rate.rs` answers), and one that falls when more
//! than a tenth is lost (`gcc_loss.rs`). It is also what the application is told to produce. Beyond the draft, whose control has no window: one that
//! only catches silence, persistent congestion (RFC 9002 §7.6) and marks (RFC 3168).

use super::gcc_delay::OveruseDetector;
use super::gcc_loss::{DelayPart, LossControl};
use super::gcc_rate::{RateControl, State};
use super::loss_epoch::LossEpoch;
use super::window::MIN_SEGMENTS;
use super::{AckEvent, ControlState, Controller, Coupled, LossEvent, SentEvent};
use crate::units::{Bandwidth, Duration, Time};

/// The draft leaves the first rate to the application; calls begin with 300 kbit/s, in bytes per second.
const FIRST: f64 = 37_500.0;
/// The window is what is sent in the smallest RTT and this: acknowledgements that are late or lost do not stop a flow of few packets, and a queue that a fall
/// of the capacity has left is not fed.
const SLACK: Duration = Duration::from_millis(150);

/// The controller.
#[derive(Debug)]
pub(super) struct Gcc {
    detector: OveruseDetector,
    rate: RateControl,
    loss: LossControl,
    /// One reduction by marks per flight.
    marks: LossEpoch<()>,
    rtt: Duration,
    min_rtt: Duration,
    datagram: f64,
    now: Time,
}

impl Gcc {
    pub(super) fn new(datagram: u64, rtt: Duration, now: Time) -> Self {
        Self {
            detector: OveruseDetector::new(),
            rate: RateControl::new(FIRST),
            loss: LossControl::new(),
            marks: LossEpoch::new(),
            rtt,
            min_rtt: rtt,
            datagram: datagram as f64,
            now,
        }
    }

    /// §6: the smaller of both, bytes per second.
    fn target(&self) -> f64 {
        self.rate.rate.min(self.loss.rate)
    }
}

impl Controller for Gcc {
    fn name(&self) -> &'static str {
        "gcc"
    }

    fn on_sent(&mut self, event: &SentEvent) {
        self.now = event.now;
    }

    fn on_ack(&mut self, event: &AckEvent) {
        self.now = event.now;
        (self.rtt, self.min_rtt) = (event.smoothed_rtt, event.min_rtt);
        self.rate.on_arrival(event.arrived, event.acked_bytes);
        if event.ce_packets > 0 && self.marks.on_mark(event.now, event.largest_sent_at) {
            self.rate.on_mark(event.arrived);
        }
        // Only with the newest packet does its arrival come.
        if event.rtt.is_some()
            && let Some(usage) = self.detector.on_sample(event.largest_sent_at, event.arrived)
        {
            self.rate.on_usage(usage, event.arrived, self.rtt);
        }
        let totals = (event.total_acked, event.total_lost);
        let delay = DelayPart { rate: self.rate.rate, is_starting: self.rate.state == State::Start };
        if self.loss.on_ack(event.now, self.rtt, event.acked_packets, totals, delay) {
            self.rate.end_start();
        }
    }

    fn on_loss(&mut self, event: &LossEvent) {
        self.now = event.now;
        if event.is_persistent {
            self.detector = OveruseDetector::new();
            self.rate.on_silence();
            self.loss.on_silence();
        }
    }

    fn on_spurious_loss(&mut self, _: Time, _: u64) {} // A report counts what is lost by then.

    fn window(&self) -> u64 {
        (self.target() * (self.min_rtt + SLACK).as_secs_f64()).max(MIN_SEGMENTS * self.datagram) as u64
    }

    fn pacing_rate(&self) -> Option<Bandwidth> {
        Some(Bandwidth::from_bytes_per_sec(self.target()))
    }

    fn target_rate(&self) -> Option<Bandwidth> {
        self.pacing_rate()
    }

    fn state(&self) -> ControlState {
        let state = match self.rate.state {
            _ if self.loss.rate < self.rate.rate => "loss_limited",
            State::Start => "start",
            State::Increase if self.rate.is_additive(self.now) => "additive_increase",
            State::Increase => "increase",
            State::Hold => "hold",
            State::Decrease => "decrease",
        };
        let rate = Bandwidth::from_bytes_per_sec(self.target());
        ControlState { state, cwnd: self.window(), pacing_rate: rate, capacity: rate, base_loss: 0.0 }
    }

    fn capacity(&self) -> Bandwidth {
        Bandwidth::from_bytes_per_sec(self.target())
    }

    fn couple(&mut self, _: Coupled) {} // As `bbr` and `vegas`: each path takes a flow's share (multipath.md 5).

    fn on_mtu(&mut self, max_datagram: u64) {
        self.datagram = max_datagram as f64;
    }
}

#[cfg(test)]
mod tests {
    use super::super::gcc_rate::LEAST;
    use super::super::script::Script;
    use super::*;

    fn script() -> Script<Gcc> {
        let mut s = Script::new(Gcc::new(Script::<Gcc>::DATAGRAM, Duration::from_millis(20), Time::ZERO));
        (0..10).for_each(|_| s.round());
        s
    }

    #[test]
    fn nothing_acknowledged_takes_the_rate_to_the_least_and_the_window_to_two_packets() {
        let mut s = script();
        assert!(s.controller.target() > FIRST);
        s.lose_all();
        assert_eq!(s.controller.target(), LEAST);
        assert_eq!(s.controller.window(), 2 * Script::<Gcc>::DATAGRAM);
        // It grows again.
        (0..30).for_each(|_| s.round());
        assert!(s.controller.target() > LEAST, "{}", s.controller.target());
    }

    /// RFC 3168 §6.1.2: once per flight.
    #[test]
    fn a_mark_takes_the_rate_to_0_8_once_per_flight() {
        let mut s = script();
        let before = s.controller.target();
        s.marks = 1;
        s.round();
        let after = s.controller.target();
        assert!(after <= 0.8 * before && after > 0.79 * before, "{before} {after}");
    }

    #[test]
    fn much_loss_ends_the_start() {
        let mut s = script();
        assert_eq!(s.controller.rate.state, State::Start);
        for _ in 0..10 {
            s.lose(s.controller.window() / Script::<Gcc>::DATAGRAM / 2);
            s.round();
        }
        assert_ne!(s.controller.rate.state, State::Start);
    }

    #[test]
    fn what_was_sent_and_not_acknowledged_is_bounded() {
        let s = script();
        let (rate, window) = (s.controller.target(), s.controller.window() as f64);
        assert!((window - rate * 0.17).abs() < 2.0, "{rate} {window}");
    }

    #[test]
    fn the_target_is_the_smaller_of_both_parts() {
        let mut s = script();
        s.controller.loss.rate = s.controller.rate.rate / 2.0;
        assert_eq!(s.controller.target(), s.controller.loss.rate);
        assert_eq!(s.controller.state().state, "loss_limited");
        s.controller.loss.rate = s.controller.rate.rate * 2.0;
        assert_eq!(s.controller.target(), s.controller.rate.rate);
        assert_eq!(s.controller.target_rate(), s.controller.pacing_rate());
    }
}

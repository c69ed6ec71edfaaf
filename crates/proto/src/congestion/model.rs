//! `model` (P12): takes as congestion only what is congestion.
//!
//! First version: capacity in sent units, start-up, drain, cruise at a small standing queue. See docs/spec/congestion.md.

use super::{AckEvent, ControlState, Controller, INITIAL_PACKETS, LossEvent, SentEvent};
use crate::units::{Bandwidth, Duration, Time};

const STARTUP_GAIN: f64 = 2.77;

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum State {
    Startup,
    Drain,
    Cruise,
}

/// The controller.
#[derive(Debug)]
pub(super) struct Model {
    datagram: f64,
    state: State,
    capacity: f64,
    recent: [f64; 3],
    min_rtt: Duration,
    round_end: u64,
    sent_offset: u64,
    round_min: Duration,
    round_best: f64,
    plateau: u32,
    best: f64,
    queue: Duration,
    pacing: f64,
    cwnd: u64,
}

impl Model {
    pub(super) fn new(datagram: u64, rtt: Duration, _now: Time) -> Self {
        let initial = (INITIAL_PACKETS * datagram) as f64;
        Self {
            datagram: datagram as f64,
            state: State::Startup,
            capacity: 0.0,
            recent: [0.0; 3],
            min_rtt: Duration::MAX,
            round_end: 0,
            sent_offset: 0,
            round_min: Duration::MAX,
            round_best: 0.0,
            plateau: 0,
            best: 0.0,
            queue: Duration::ZERO,
            pacing: initial / rtt.as_secs_f64().max(1e-4),
            cwnd: 2 * initial as u64,
        }
    }

    fn target_queue(&self) -> Duration {
        let mbit = self.capacity * 8e-6;
        Duration::from_secs_f64((0.010 / (1.0 + (mbit / 20.0).sqrt())).max(0.0005))
    }

    fn end_round(&mut self, event: &AckEvent) {
        self.round_end = self.sent_offset;
        self.queue = if self.round_min == Duration::MAX { Duration::ZERO } else { self.round_min.saturating_sub(self.min_rtt) };
        self.round_min = Duration::MAX;
        if !event.is_app_limited || self.round_best > self.capacity {
            self.recent.rotate_right(1);
            self.recent[0] = self.round_best;
            self.capacity = self.recent.iter().copied().fold(0.0, f64::max);
        }
        if self.state == State::Startup && !event.is_app_limited {
            if self.round_best > self.best * 1.25 {
                self.best = self.round_best;
                self.plateau = 0;
            } else {
                self.plateau += 1;
            }
            if self.plateau >= 3 || self.queue > (self.min_rtt / 8).clamp(Duration::from_millis(2), Duration::from_millis(16)) {
                self.state = State::Drain;
            }
        } else if self.state == State::Drain && self.queue < self.target_queue() {
            self.state = State::Cruise;
        }
        self.round_best = 0.0;
    }

    fn update(&mut self, event: &AckEvent) {
        let rtt = event.smoothed_rtt.as_secs_f64().max(1e-4);
        let bdp = self.capacity * self.min_rtt.as_secs_f64();
        let floor = 4.0 * self.datagram;
        let (gain, window) = match self.state {
            State::Startup => (STARTUP_GAIN, 2.0 * bdp + (2 * INITIAL_PACKETS) as f64 * self.datagram),
            State::Drain => (0.5, bdp + floor),
            State::Cruise => {
                let off = (self.target_queue().as_secs_f64() - self.queue.as_secs_f64()) / rtt;
                (1.0 + (0.5 * off).clamp(-0.3, 0.1), 2.0 * bdp + 4.0 * floor)
            }
        };
        if self.capacity > 0.0 {
            let rate = gain * self.capacity;
            self.pacing = if self.state == State::Startup { self.pacing.max(rate) } else { rate.max(floor / rtt / 4.0) };
            self.cwnd = window.max(floor) as u64;
        }
    }
}

impl Controller for Model {
    fn name(&self) -> &'static str {
        "model"
    }

    fn on_sent(&mut self, event: &SentEvent) {
        self.sent_offset = event.sent_offset;
    }

    fn on_ack(&mut self, event: &AckEvent) {
        self.min_rtt = event.min_rtt;
        if let Some(rtt) = event.rtt {
            self.round_min = self.round_min.min(rtt);
        }
        let sample = event.sent_rate.bytes_per_sec();
        if !event.is_app_limited || sample > self.capacity {
            self.round_best = self.round_best.max(sample);
        }
        if self.state == State::Startup {
            self.capacity = self.capacity.max(self.round_best);
        }
        if event.newest_offset >= self.round_end {
            self.end_round(event);
        }
        self.update(event);
    }

    fn on_loss(&mut self, _: &LossEvent) {}

    fn on_spurious_loss(&mut self, _: Time, _: u64) {}

    fn window(&self) -> u64 {
        self.cwnd
    }

    fn pacing_rate(&self) -> Option<Bandwidth> {
        Some(Bandwidth::from_bytes_per_sec(self.pacing))
    }

    fn state(&self) -> ControlState {
        let state = match self.state {
            State::Startup => "startup",
            State::Drain => "drain",
            State::Cruise => "cruise",
        };
        ControlState {
            state,
            cwnd: self.cwnd,
            pacing_rate: Bandwidth::from_bytes_per_sec(self.pacing),
            capacity: Bandwidth::from_bytes_per_sec(self.capacity),
            base_loss: 0.0,
        }
    }

    fn on_mtu(&mut self, max_datagram: u64) {
        self.datagram = max_datagram as f64;
    }
}

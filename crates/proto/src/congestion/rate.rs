//! `rate`: a fixed rate of UDP payload whatever is lost, for links with reserved bandwidth (the pure-rate mode of SCPS-TP).

use super::{AckEvent, ControlState, Controller, LossEvent, SentEvent};
use crate::units::{Bandwidth, Time};

/// A fixed rate. The path's circuit breaker still holds.
#[derive(Debug)]
pub(super) struct FixedRate {
    rate: Bandwidth,
}

impl FixedRate {
    pub(super) fn new(rate: Bandwidth) -> Self {
        Self { rate }
    }
}

impl Controller for FixedRate {
    fn name(&self) -> &'static str {
        "rate"
    }
    fn on_sent(&mut self, _: &SentEvent) {}
    fn on_ack(&mut self, _: &AckEvent) {}
    fn on_loss(&mut self, _: &LossEvent) {}
    fn on_spurious_loss(&mut self, _: Time, _: u64) {}
    fn window(&self) -> u64 {
        u64::MAX
    }
    fn pacing_rate(&self) -> Option<Bandwidth> {
        Some(self.rate)
    }
    fn state(&self) -> ControlState {
        ControlState { state: "fixed", cwnd: u64::MAX, pacing_rate: self.rate, capacity: self.rate, base_loss: 0.0 }
    }
    fn on_mtu(&mut self, _: u64) {}
}

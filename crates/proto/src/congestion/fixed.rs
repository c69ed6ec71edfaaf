//! `none` and `rate`: no control. The first sends the offered load as it is, for method tests on links of one's own; the second at most a fixed rate of
//! UDP payload whatever is lost, for links with reserved bandwidth (the pure-rate mode of SCPS-TP).

use super::{AckEvent, ControlState, Controller, Coupled, LossEvent, SentEvent};
use crate::units::{Bandwidth, Time};

/// A rate that nothing changes, or none. The path's circuit breaker still holds.
#[derive(Debug)]
pub(super) struct Fixed {
    pub(super) rate: Option<Bandwidth>,
}

impl Controller for Fixed {
    fn name(&self) -> &'static str {
        if self.rate.is_some() { "rate" } else { "none" }
    }
    fn on_sent(&mut self, _: &SentEvent) {}
    fn on_ack(&mut self, _: &AckEvent) {}
    fn on_loss(&mut self, _: &LossEvent) {}
    fn on_spurious_loss(&mut self, _: Time, _: u64) {}
    fn window(&self) -> u64 {
        u64::MAX
    }
    fn pacing_rate(&self) -> Option<Bandwidth> {
        self.rate
    }
    fn state(&self) -> ControlState {
        let rate = self.rate.unwrap_or(Bandwidth::ZERO);
        ControlState { state: "fixed", cwnd: u64::MAX, pacing_rate: rate, capacity: rate, base_loss: 0.0 }
    }
    fn couple(&mut self, _: Coupled) {} // A rate that was asked for is asked for on each path.
    fn on_mtu(&mut self, _: u64) {}
}

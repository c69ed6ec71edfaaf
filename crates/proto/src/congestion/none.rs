//! `none`: the offered load as it is, for method tests on links of one's own.

use super::{AckEvent, ControlState, Controller, LossEvent, SentEvent};
use crate::units::{Bandwidth, Time};

/// No control. The path's circuit breaker still holds.
#[derive(Debug)]
pub(super) struct Unlimited;

impl Controller for Unlimited {
    fn name(&self) -> &'static str {
        "none"
    }
    fn on_sent(&mut self, _: &SentEvent) {}
    fn on_ack(&mut self, _: &AckEvent) {}
    fn on_loss(&mut self, _: &LossEvent) {}
    fn on_spurious_loss(&mut self, _: Time, _: u64) {}
    fn window(&self) -> u64 {
        u64::MAX
    }
    fn pacing_rate(&self) -> Option<Bandwidth> {
        None
    }
    fn state(&self) -> ControlState {
        ControlState { state: "none", cwnd: u64::MAX, pacing_rate: Bandwidth::ZERO, capacity: Bandwidth::ZERO, base_loss: 0.0 }
    }
    fn on_mtu(&mut self, _: u64) {}
}

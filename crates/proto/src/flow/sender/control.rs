//! FLOW_END and FLOW_SKIP: repeated until acknowledged.

use super::Sender;
use crate::flow::FlowControlFrame;
use crate::ids::Seq;
use crate::units::Time;

/// A frame that is repeated until it is acknowledged.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) enum Repeated {
    #[default]
    Idle,
    Due,
    Sent,
    Acked,
}

impl Sender {
    /// FLOW_END and FLOW_SKIP that are due.
    pub fn poll_control(&mut self, _now: Time) -> Option<FlowControlFrame> {
        let flow = self.config.label;
        if self.end_state == Repeated::Due {
            self.end_state = Repeated::Sent;
            return Some(FlowControlFrame::End { flow, end: Seq(self.end()) });
        }
        if self.skip_state == Repeated::Due {
            self.skip_state = Repeated::Sent;
            return Some(FlowControlFrame::Skip { flow, floor: Seq(self.skip) });
        }
        None
    }

    /// A control frame is due.
    pub fn has_control(&self) -> bool {
        self.end_state == Repeated::Due || self.skip_state == Repeated::Due
    }

    /// Finished, the receiver knows where the end is and what was given up, and it needs nothing more.
    pub fn is_delivered(&self) -> bool {
        let is_skip_known = matches!(self.skip_state, Repeated::Idle | Repeated::Acked);
        self.finished && self.floor >= self.end() && self.end_state == Repeated::Acked && is_skip_known && !self.has_custody()
    }
}

/// What the fate of the frame makes of its state.
pub(super) fn after(state: Repeated, arrived: bool) -> Repeated {
    match (state, arrived) {
        (_, true) => Repeated::Acked,
        (Repeated::Sent, false) => Repeated::Due,
        (state, false) => state,
    }
}

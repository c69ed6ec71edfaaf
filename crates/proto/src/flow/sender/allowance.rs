//! Repairs that a flow may send where congestion control is off.

use crate::switch::{self, Mechanism};

/// Repairs before anything was acknowledged, and at least those of a burst of losses: an initial window (RFC 6928).
const INITIAL: u64 = 10;

/// A packet that arrived pays for one repair, as packets are conserved in TCP (Jacobson, *Congestion avoidance and control*, 1988). Without that, each repair
/// that a full queue drops asks for another one a round trip later, and a link that is offered too much carries hardly anything but repairs.
/// Loss up to a half is repaired all the same.
#[derive(Debug)]
pub(super) struct Allowance {
    repairs: u64,
    /// Congestion control is off on the path that was last sent on.
    is_uncontrolled: bool,
}

impl Default for Allowance {
    fn default() -> Self {
        Self { repairs: INITIAL, is_uncontrolled: false }
    }
}

impl Allowance {
    /// A packet of the flow arrived, of which `outstanding` are not known to be there. A long time without losses saves up no more than these need.
    pub(super) fn on_acked(&mut self, outstanding: u64) {
        self.repairs = (self.repairs + 1).min(outstanding.max(INITIAL));
    }

    /// The receiver says that packets are missing: one repair asks for more, where nothing that is in flight can pay any more.
    pub(super) fn on_deficit(&mut self) {
        self.repairs = self.repairs.max(1);
    }

    pub(super) fn on_path(&mut self, is_uncontrolled: bool) {
        self.is_uncontrolled = is_uncontrolled && !switch::is_off(Mechanism::PaidRepairs);
    }

    pub(super) fn on_repair(&mut self, is_sent: bool) {
        self.repairs = self.repairs.saturating_sub(u64::from(is_sent));
    }

    pub(super) fn is_left(&self) -> bool {
        !self.is_uncontrolled || self.repairs > 0
    }
}

//! The close handshake of a session: CLOSE and CLOSED, and what may be said about the data when it ends.
//!
//! The side that closes waits until its `brtp` flows are delivered and sends CLOSE with its totals. The other side delivers what it still has,
//! waits until everything that was announced has come, and answers CLOSED with its own totals. Both may close at once; each then answers the
//! other. Nobody waits longer than the linger time: what is not known by then counts as not delivered.

use super::control::{SessionFrame, Totals};
use super::flows::FlowTable;
use crate::error::CloseReason;
use crate::event::SessionOutcome;
use crate::units::{Duration, Time};

/// Ends of flows that CLOSE and CLOSED list at most; a longer list is cut, which can only make an outcome say less than is known.
pub(super) const MAX_ENDS: usize = 1024;

/// State of the handshake from the first wish to close until the outcome is known.
#[derive(Debug)]
pub(super) struct Closing {
    reason: CloseReason,
    deadline: Time,
    /// This side's application asked for it.
    is_asked: bool,
    close_sent: bool,
    close_received: bool,
    closed_sent: bool,
    /// Our CLOSED has reached the far end.
    closed_delivered: bool,
    /// Their CLOSED: whether they received everything.
    closed_received: Option<bool>,
    peer_totals: Option<Totals>,
}

impl Closing {
    /// The application closes.
    pub fn asked(reason: CloseReason, deadline: Time) -> Self {
        Self::new(reason, deadline, true)
    }

    /// The far end closes.
    pub fn by_peer(reason: CloseReason, deadline: Time) -> Self {
        Self::new(reason, deadline, false)
    }

    fn new(reason: CloseReason, deadline: Time, is_asked: bool) -> Self {
        Self {
            reason,
            deadline,
            is_asked,
            close_sent: false,
            close_received: false,
            closed_sent: false,
            closed_delivered: false,
            closed_received: None,
            peer_totals: None,
        }
    }

    pub fn deadline(&self) -> Time {
        self.deadline
    }
    /// The end comes no later than `deadline`.
    pub fn shorten(&mut self, deadline: Time) {
        self.deadline = self.deadline.min(deadline);
    }
    pub fn reason(&self) -> &CloseReason {
        &self.reason
    }
    /// CLOSE of the far end arrived.
    pub fn on_close(&mut self, totals: Totals) {
        self.close_received = true;
        self.peer_totals = Some(totals);
    }
    /// CLOSED of the far end arrived; false if nobody asked for it.
    pub fn on_closed(&mut self, all_received: bool, totals: Totals) -> bool {
        self.closed_received = Some(all_received);
        self.peer_totals = Some(totals);
        self.close_sent
    }
    /// Everything on the control flow has reached the far end.
    pub fn on_control_delivered(&mut self) {
        self.closed_delivered = self.closed_sent;
    }

    /// What is to be sent now.
    pub fn step(&mut self, now: Time, flows: &FlowTable) -> Option<SessionFrame> {
        let is_late = now >= self.deadline;
        let has_received = self.peer_totals.as_ref().is_some_and(|t| flows.incoming_settled(t.opened));
        if self.close_received && !self.closed_sent && ((flows.outgoing_settled() && has_received) || is_late) {
            self.closed_sent = true;
            return Some(SessionFrame::Closed { all_received: self.all_received(flows), totals: flows.totals(MAX_ENDS) });
        }
        if self.is_asked && !self.close_sent && !self.close_received && (flows.outgoing_settled() || is_late) {
            self.close_sent = true;
            let linger = self.deadline.since(now).min(MAX_LINGER);
            return Some(SessionFrame::Close { reason: self.reason.clone(), linger, totals: flows.totals(MAX_ENDS) });
        }
        None
    }

    /// The outcome, once both sides know all that they will know, or the time is over.
    pub fn outcome(&self, now: Time, flows: &FlowTable) -> Option<SessionOutcome> {
        let is_answered = !self.close_sent || self.closed_received.is_some();
        let has_answered = !self.close_received || self.closed_delivered;
        let is_done = (self.close_sent || self.close_received) && is_answered && has_answered;
        (is_done || now >= self.deadline).then(|| self.known(flows, self.reason.clone()))
    }

    /// The outcome when the link is gone.
    pub fn broken(&self, flows: &FlowTable, reason: CloseReason) -> SessionOutcome {
        let outcome = self.known(flows, reason);
        // With everything known to be there on both sides, the missing goodbye is no failure.
        if outcome.all_delivered && outcome.all_received { self.known(flows, self.reason.clone()) } else { outcome }
    }

    fn known(&self, flows: &FlowTable, reason: CloseReason) -> SessionOutcome {
        SessionOutcome {
            reason,
            all_delivered: flows.outgoing_complete() || self.closed_received == Some(true),
            all_received: self.all_received(flows),
        }
    }

    fn all_received(&self, flows: &FlowTable) -> bool {
        self.peer_totals.as_ref().is_some_and(|t| flows.incoming_complete(t.opened))
    }
}

/// Longest linger time that is told to the far end.
const MAX_LINGER: Duration = Duration::from_secs(3600);

//! Attempts at the handshake of a session that is opened here: a refusal without a proof of its key says nothing about the destination, so that others follow, by other
//! routes and under other names, until the time is over.

use super::{AGAIN, MAX_ATTEMPTS, Stage, gone};
use crate::error::{CloseReason, Code, Layer};
use crate::ids::{SessionId, SessionKey};
use crate::link::Control;
use crate::node::Node;
use crate::node::sessions::Far;
use crate::session::SessionRole;
use crate::switch::{self, Mechanism};
use crate::units::Time;

impl Node {
    /// The control flow of a session that is being opened was refused. True if another attempt was begun.
    pub(in crate::node) fn retry_opening(&mut self, now: Time, id: SessionId, reason: &CloseReason) -> bool {
        let Some(entry) = self.sessions.entry(id) else { return false };
        let Some(securing) = &entry.securing else { return false };
        let is_probe = match securing.stage {
            // What was written for the expected key cannot be read there: ask which key answers.
            Stage::Opening { is_probe: false, .. } if reason.code == Code::WrongKey && securing.expected.is_some() => Some(true),
            // The destination has forgotten a handshake that got no further.
            Stage::Opening { is_probe, .. } if reason.code == Code::UnknownSession => Some(is_probe),
            // No key proves which node refuses: it may be a relay.
            Stage::Opening { .. } => None,
            _ => return false,
        };
        if is_probe.is_none_or(|is_probe| self.restart_opening(now, id, is_probe).is_err()) {
            self.put_off(now, id, reason);
        }
        true
    }

    /// A host on the route said that the session cannot be, or made a mess of the handshake. Another route may lead to the true destination; when all were tried,
    /// they are tried again, until the time for the handshake is over.
    pub(super) fn put_off(&mut self, now: Time, id: SessionId, reason: &CloseReason) {
        let Some(securing) = self.sessions.entry_mut(id).and_then(|e| e.securing.as_mut()) else { return };
        // What names a key says more than what names none.
        if securing.hearsay.as_ref().is_none_or(|known| known.code != Code::WrongKey || reason.code == Code::WrongKey) {
            securing.hearsay = Some(reason.clone());
        }
        if switch::is_off(Mechanism::RouteAvoidance) {
            return self.fail_session(now, id, reason.clone());
        }
        if self.avoid_route(now, id) && self.restart_opening(now, id, false).is_ok() {
            return;
        }
        self.drop_control(id);
        self.forget_control_in(id);
        if let Some(securing) = self.sessions.entry_mut(id).and_then(|e| e.securing.as_mut()) {
            securing.monitor.forgive();
            securing.again_at = Some(now + AGAIN);
        }
        self.arm_session(id);
    }

    /// All routes were tried, and some time has passed.
    fn open_again(&mut self, now: Time, id: SessionId) {
        let Some(securing) = self.sessions.entry_mut(id).and_then(|e| e.securing.as_mut()) else { return };
        if securing.again_at.is_none_or(|at| now < at) {
            return;
        }
        securing.again_at = None;
        self.revise_routes(now);
        // What is left if there were too many attempts is to wait for the end of the time.
        if self.restart_opening(now, id, false).is_err()
            && let Some(securing) = self.sessions.entry_mut(id).and_then(|e| e.securing.as_mut())
        {
            securing.again_at = securing.deadline;
        }
        self.arm_session(id);
    }

    /// Begins the handshake anew, under another name.
    pub(in crate::node) fn restart_opening(&mut self, now: Time, id: SessionId, is_probe: bool) -> Result<(), CloseReason> {
        let key = SessionKey(u64::from_be_bytes(self.shared.random_bytes()) >> 2);
        let entry = self.sessions.entry(id).ok_or_else(gone)?;
        let far = entry.far;
        let expected = entry.securing.as_ref().and_then(|s| s.expected);
        let mut securing = self.shared.start_securing(now, far, key, expected, is_probe)?;
        let old = self.sessions.entry_mut(id).and_then(|e| e.securing.as_mut());
        if let (Some(securing), Some(old)) = (&mut securing, old) {
            if old.attempts == MAX_ATTEMPTS {
                return Err(gone());
            }
            securing.attempts = old.attempts + 1;
            securing.deadline = old.deadline; // of all attempts together
            securing.hearsay = old.hearsay.take();
            securing.monitor = old.monitor.clone();
            securing.asks = old.asks;
        }
        self.drop_control(id);
        // What came of the answer to the attempt before is none of the next one's.
        self.forget_control_in(id);
        self.sessions.rename(id, key, securing);
        // Another name: nobody has heard of earlier incarnations of it.
        if let Some(entry) = self.sessions.entry_mut(id) {
            entry.incarnation = 0;
        }
        for flow in self.shared.flows.out_of(id) {
            let Some(flow) = self.shared.flows.out_mut(flow) else { continue };
            flow.open.session = key;
            if let Some(ends) = &mut flow.open.relayed {
                ends.incarnation = 0;
            }
        }
        self.pump_session(now, id);
        Ok(())
    }

    /// Forgets our control flow; the next node is told.
    pub(in crate::node) fn drop_control(&mut self, id: SessionId) {
        let Some(entry) = self.sessions.entry_mut(id) else { return };
        let Some(control) = entry.take_control() else { return };
        let hop = self.shared.flows.out(control).and_then(|f| Some((f.on?, f.open.label)));
        self.drop_out(control);
        if let Some((on, flow)) = hop
            && let Some(link) = self.links.get_mut(&on)
        {
            link.send_control(Control::FlowReset { flow, reason: Code::Reset as u64 });
        }
    }

    /// The time for a handshake is over.
    pub(in crate::node) fn on_securing_timeout(&mut self, now: Time, id: SessionId) {
        let Some(entry) = self.sessions.entry(id) else { return };
        let Some(securing) = &entry.securing else { return };
        if securing.deadline.is_none_or(|at| now < at) {
            return self.open_again(now, id);
        }
        if let Some(reason) = securing.hearsay.clone() {
            return self.fail_session(now, id, reason);
        }
        let text = match entry.far {
            Far::Relayed { far, .. } if entry.session.role() == SessionRole::Opener => {
                format!("no answer from {far} within {:.0} s", self.shared.config.connect_timeout.as_secs_f64())
            }
            _ => "the opener did not go on with the handshake".into(),
        };
        self.fail_session(now, id, CloseReason::local(Code::Unreachable, Layer::Session, text));
    }
}

//! A control flow that is opened once more before its session's keys prove who opens it (P16): who has seen a session's name need not be its opener.
//!
//! Until then the flow belongs to the hop by which its handshake came. What comes by another hop is a *contender*: it takes nothing, and only what the handshake itself
//! verifies decides. Who has no keys yet begins again under another name, which no relay of the way before knows.

use super::Stage;
use crate::error::Code;
use crate::ids::{FlowLabel, LinkId, SessionId};
use crate::node::Node;
use crate::node::places::FlowPlace;
use crate::node::reroute::PARKING;
use crate::session::handshake;
use crate::switch::{self, Mechanism};
use crate::units::Time;
use crate::wire::frame::FlowOpen;
use smallvec::SmallVec;

/// Contenders of one session, each by another link.
const MOST: usize = 4;

/// A control flow that may be the opener's.
#[derive(Clone, Copy, Debug)]
pub(super) struct Contender {
    link: LinkId,
    label: FlowLabel,
    /// Packet 0, which was answered before, has come once more.
    has_begun: bool,
}

/// See the module's documentation.
pub(super) type Contenders = SmallVec<[Contender; 1]>;

impl Node {
    /// What becomes of a control flow that is at `place` and is opened again by a link. `None`: nothing that the handshake has to decide.
    pub(in crate::node) fn contend(&mut self, place: FlowPlace, link: LinkId, open: &FlowOpen) -> Option<Result<(), Code>> {
        let id = place.session;
        let securing = self.sessions.entry(id)?.securing.as_ref()?;
        if switch::is_off(Mechanism::HandshakeOwners) {
            return None;
        }
        let ends = open.relayed?;
        match &securing.stage {
            Stage::Secured => None,
            Stage::Unconfirmed if securing.proves_opening(open) => None,
            // The answer's way has broken: it is judged when it is here.
            Stage::Opening { .. } if place.link == PARKING => None,
            // Its opener has the keys and says so; here they are not yet.
            Stage::Waiting(_) if ends.proof.is_some() && ends.first.0 == 0 => Some(self.admit_contender(id, link, open.clone())),
            _ => Some(Err(Code::UnknownSession)),
        }
    }

    fn admit_contender(&mut self, id: SessionId, link: LinkId, open: FlowOpen) -> Result<(), Code> {
        let Some(securing) = self.sessions.entry_mut(id).and_then(|e| e.securing.as_mut()) else { return Err(Code::UnknownSession) };
        let contenders = &mut securing.contenders;
        let older = contenders.iter().position(|c| c.link == link).or((contenders.len() >= MOST).then_some(0));
        if let Some(older) = older.map(|at| contenders.remove(at)) {
            self.end_contender(older, Some(Code::Rerouted));
        }
        let label = open.label;
        self.accept_flow(link, open, id)?;
        if let Some(securing) = self.sessions.entry_mut(id).and_then(|e| e.securing.as_mut()) {
            securing.contenders.push(Contender { link, label, has_begun: false });
        }
        Ok(())
    }

    /// A packet of the handshake came: true if it is a contender's first one, which was answered before.
    pub(super) fn passes_over(&mut self, now: Time, link: LinkId, label: FlowLabel, id: SessionId) -> bool {
        let Some(securing) = self.sessions.entry_mut(id).and_then(|e| e.securing.as_mut()) else { return false };
        let contender = securing.contenders.iter_mut().find(|c| (c.link, c.label) == (link, label) && !c.has_begun);
        let Some(contender) = contender else { return false };
        contender.has_begun = true;
        if let Some(l) = self.links.get_mut(&link) {
            if let Some(flow) = l.flows.incoming.get_mut(&label) {
                flow.sink.set_lead(handshake::MAX_LEAD);
            }
            l.touch_in(label, now);
        }
        self.mark_ready(link);
        true
    }

    /// The handshake has verified what this flow brought: it is the opener's.
    pub(super) fn decide_contest(&mut self, now: Time, link: LinkId, label: FlowLabel, id: SessionId) {
        let Some(securing) = self.sessions.entry_mut(id).and_then(|e| e.securing.as_mut()) else { return };
        let contenders = core::mem::take(&mut securing.contenders);
        for contender in contenders.iter().filter(|c| (c.link, c.label) != (link, label)) {
            self.end_contender(*contender, Some(Code::Rerouted));
        }
        if self.sessions.control_in(id) != Some((link, label)) {
            if let Some((before, old)) = self.sessions.control_in(id) {
                self.forget_control_in(id);
                if before != PARKING
                    && let Some(l) = self.links.get_mut(&before)
                {
                    l.refuse_flow(old, Code::Rerouted);
                }
                self.mark_ready(before);
            }
            self.note_control_in(now, FlowPlace { link, session: id, label, is_outgoing: false });
        }
    }

    /// A flow of a contender is over: true if it was one.
    pub(in crate::node) fn forget_contender(&mut self, link: LinkId, label: FlowLabel, refusal: Option<Code>) -> bool {
        let session = self.links.get(&link).and_then(|l| l.flows.incoming.get(&label)).map(|f| f.session);
        let Some(securing) = session.and_then(|id| self.sessions.entry_mut(id)).and_then(|e| e.securing.as_mut()) else {
            return false;
        };
        let Some(at) = securing.contenders.iter().position(|c| (c.link, c.label) == (link, label)) else { return false };
        let contender = securing.contenders.remove(at);
        self.end_contender(contender, refusal);
        true
    }

    /// The session is over.
    pub(in crate::node) fn end_contenders(&mut self, securing: Option<&super::Securing>) {
        for contender in securing.into_iter().flat_map(|s| s.contenders.clone()) {
            self.end_contender(contender, Some(Code::UnknownSession));
        }
    }

    fn end_contender(&mut self, Contender { link, label, .. }: Contender, refusal: Option<Code>) {
        let Some(l) = self.links.get_mut(&link) else { return };
        if let Some(flow) = l.take_in(label) {
            self.shared.ledger.close(&flow.account);
            refusal.into_iter().for_each(|code| l.refuse_flow(label, code));
        }
        self.mark_ready(link);
    }
}

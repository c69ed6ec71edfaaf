//! A control flow that is opened once more before its session's keys prove its opener (P16): a node that has seen a session's name need not be its opener.
//!
//! Until then the flow belongs to the hop by which its handshake came. What comes by another hop is a *contender*: it takes nothing, and only what the handshake itself
//! verifies decides. An opener that has no keys yet begins again under another name, which no relay of the route before knows.

use super::Stage;
use crate::error::Code;
use crate::ids::{FlowId, LinkId, SessionId};
use crate::node::Node;
use crate::switch::{self, Mechanism};
use crate::units::Time;
use crate::wire::frame::FlowOpen;
use smallvec::SmallVec;

/// Contenders of one session, each by another link.
const MOST: usize = 4;

/// A control flow that may be the opener's.
#[derive(Clone, Copy, Debug)]
pub(super) struct Contender {
    flow: FlowId,
    /// The link that it comes by.
    link: LinkId,
    /// Packet 0, which was answered before, has come once more.
    has_begun: bool,
}

/// See the module's documentation.
pub(super) type Contenders = SmallVec<[Contender; 1]>;

impl Node {
    /// What becomes of a control flow that is known and is opened again by a link. `None`: nothing that the handshake has to decide.
    pub(in crate::node) fn contend(&mut self, control: FlowId, link: LinkId, open: &FlowOpen) -> Option<Result<(), Code>> {
        let known = self.shared.flows.incoming(control)?;
        let id = known.session;
        let securing = self.sessions.entry(id)?.securing.as_ref()?;
        if switch::is_off(Mechanism::HandshakeOwners) {
            return None;
        }
        let ends = open.relayed?;
        match &securing.stage {
            Stage::Secured => None,
            Stage::Unconfirmed if securing.proves_opening(open) => None,
            // The answer's route has broken: it is judged when it is here.
            Stage::Opening { .. } if known.on.is_none() => None,
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
        let flow = self.accept_flow(Some(link), open, id)?;
        if let Some(securing) = self.sessions.entry_mut(id).and_then(|e| e.securing.as_mut()) {
            securing.contenders.push(Contender { flow, link, has_begun: false });
        }
        Ok(())
    }

    /// A packet of the handshake came: true if it is a contender's first one, which was answered before.
    pub(super) fn passes_over(&mut self, now: Time, flow: FlowId, id: SessionId) -> bool {
        let Some(securing) = self.sessions.entry_mut(id).and_then(|e| e.securing.as_mut()) else { return false };
        let Some(contender) = securing.contenders.iter_mut().find(|c| c.flow == flow && !c.has_begun) else { return false };
        contender.has_begun = true;
        self.await_lead(now, flow);
        true
    }

    /// The handshake has verified what this flow brought: it is the opener's.
    pub(super) fn decide_contest(&mut self, now: Time, flow: FlowId, id: SessionId) {
        let Some(securing) = self.sessions.entry_mut(id).and_then(|e| e.securing.as_mut()) else { return };
        let contenders = core::mem::take(&mut securing.contenders);
        for contender in contenders.iter().filter(|c| c.flow != flow) {
            self.end_contender(*contender, Some(Code::Rerouted));
        }
        let before = self.sessions.control_in(id);
        if before != Some(flow) {
            if let Some(before) = before {
                let hop = self.shared.flows.incoming(before).and_then(|f| Some((f.on?, f.open.label)));
                self.forget_control_in(id);
                if let Some((on, label)) = hop {
                    if let Some(link) = self.links.get_mut(&on) {
                        link.refuse_flow(label, Code::Rerouted);
                    }
                    self.mark_ready(on);
                }
            }
            self.note_control_in(now, id, flow);
        }
    }

    /// A flow of a contender is over: true if it was one.
    pub(in crate::node) fn forget_contender(&mut self, flow: FlowId, refusal: Option<Code>) -> bool {
        let session = self.shared.flows.incoming(flow).map(|f| f.session);
        let Some(securing) = session.and_then(|id| self.sessions.entry_mut(id)).and_then(|e| e.securing.as_mut()) else {
            return false;
        };
        let Some(at) = securing.contenders.iter().position(|c| c.flow == flow) else { return false };
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

    fn end_contender(&mut self, Contender { flow, link, .. }: Contender, refusal: Option<Code>) {
        if let Some(flow) = self.abandon_in(flow)
            && let Some((l, code)) = self.links.get_mut(&link).zip(refusal)
        {
            l.refuse_flow(flow.open.label, code);
        }
        self.mark_ready(link);
    }
}

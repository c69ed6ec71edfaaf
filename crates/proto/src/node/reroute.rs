//! The ends of relayed flows: where they come in, and how they go on when the way to the far end breaks (P14, P17).
//!
//! A flow whose route broke is carried by no link for a while: its owner can go on reading and writing. A flow that is opened again
//! is a new incarnation of it, beginning with the first packet that the destination has not acknowledged; the destination goes on with the state
//! that it has.

use super::Node;
use super::session_life::HOP_LIMIT;
use super::sessions::Far;
use crate::config::INITIAL_CREDIT;
use crate::error::{CloseReason, Code, Layer};
use crate::ids::{FlowId, LinkId, SessionId, SessionKey};
use crate::link::Control;
use crate::options::Mode;
use crate::session::{CONTROL_INDEX, SessionState};
use crate::switch::{self, Mechanism};
use crate::units::{Duration, Time};
use crate::wire::frame::FlowOpen;
use smallvec::SmallVec;

/// A route that broke is tried again at once, the next times after such a delay, doubled each time.
const FIRST_DELAY: Duration = Duration::from_millis(50);
const LONGEST_DELAY: Duration = Duration::from_secs(1);
/// Trouble that long ago has nothing to do with today's.
const FORGOTTEN: Duration = Duration::from_secs(5);

/// A session in search of a way to its far end.
#[derive(Debug)]
pub(crate) struct Trouble {
    since: Time,
    last: Time,
    attempts: u32,
    /// Links whose neighbours refused.
    avoid: SmallVec<[LinkId; 2]>,
    retry_at: Option<Time>,
    reason: CloseReason,
}

impl Trouble {
    pub(crate) fn poll_timeout(&self) -> Option<Time> {
        self.retry_at
    }

    fn delay(&self) -> Duration {
        (FIRST_DELAY * (1 << self.attempts.min(8))).min(LONGEST_DELAY)
    }
}

impl Node {
    /// A flow that names this node as its destination: a new one, or one that is here already and now comes by another route.
    pub(super) fn bind(&mut self, now: Time, link: LinkId, open: FlowOpen) -> Result<(), Code> {
        let Some(ends) = open.relayed else { return Err(Code::Internal) };
        let Some(from) = self.links.get(&link).map(|l| l.neighbour()) else { return Err(Code::Internal) };
        let index = open.index;
        let name = (Far::Relayed { far: ends.source, near: ends.destination }, open.session);
        let known = self.sessions.named(name);
        if ends.part == 0
            && let Some(flow) = known.and_then(|session| self.incoming_of(session, index))
        {
            let verdict = if index == CONTROL_INDEX { self.contend(flow, link, &open) } else { None };
            return verdict.unwrap_or_else(|| self.rebind(now, flow, link, open));
        }
        // Only what was opened before comes again: with a process of this node that is no more, or in a session that has ended. An opener whose first words
        // were lost with their route begins anew under another name.
        let is_again = ends.first.0 > 0 || (ends.incarnation > 0 && !switch::is_off(Mechanism::RestartEpochs));
        if known.is_none() && is_again {
            self.shared.counters.stale_flows += 1;
            return Err(Code::UnknownSession);
        }
        if known.is_none() && index == CONTROL_INDEX {
            self.make_room_for_opener(now, from);
        }
        let tried = self.links_tried(ends.source);
        let back = self.next_hop(ends.source, &tried).or_else(|| self.next_hop(ends.source, &[])).ok_or(Code::NoRoute)?;
        // The answer and what follows it cross each link once; the others are taken to be like the last.
        let hops = u32::from(HOP_LIMIT.saturating_sub(open.hop_limit)) + 1;
        let patience = self.links.get(&back).map_or(Duration::ZERO, |l| l.pto() * 2 * hops);
        let session = self.session_for_open(now, from, back, &open, crate::node::sessions::FLOOR, patience)?;
        let flow = self.accept_flow(Some(link), open, session)?;
        if index == CONTROL_INDEX {
            self.sessions.set_control_in(session, Some(flow));
        }
        Ok(())
    }

    fn rebind(&mut self, now: Time, id: FlowId, link: LinkId, open: FlowOpen) -> Result<(), Code> {
        let incarnation = |open: &FlowOpen| open.relayed.map_or(0, |r| r.incarnation);
        let known = self.shared.flows.incoming(id).ok_or(Code::Internal)?;
        let (session, old) = (known.session, known.on.map(|on| (on, known.open.label)));
        if old.is_none() && self.joins.contains_key(&id) {
            return Err(Code::SessionProtocol); // It comes by parts.
        }
        // A flow that comes again is the same flow: what it is decides how it is read.
        let kind = |open: &FlowOpen| (open.mode, open.kind, open.batch_size);
        if kind(&known.open) != kind(&open) {
            return Err(Code::SessionProtocol);
        }
        // A relay that carried the session once knows its names: it must not take its flows (P16).
        let securing = self.sessions.entry(session).and_then(|e| e.securing.as_ref());
        // Before the keys were there, a relay could claim any number for the control flow: it counts for nothing.
        let is_proven = securing.is_none_or(|s| s.proves_opening(&known.open));
        let newest = if is_proven { incarnation(&known.open) } else { 0 };
        if newest > incarnation(&open) {
            return Err(Code::Rerouted);
        }
        if securing.is_some_and(|s| !s.believes_reopening(&open)) {
            if let Some(l) = self.links.get_mut(&link) {
                l.count_lie();
            }
            self.shared.counters.polluted += 1;
            return Err(Code::Rerouted);
        }
        // What a relay took along when the route broke, or what was given up meanwhile, nobody sends any more (P17).
        let lossy = open.mode == Mode::Btp && !switch::is_off(Mechanism::ReopeningSkips);
        let skip = open.relayed.map(|r| r.first).filter(|_| lossy);
        let index = open.index;
        self.release_in(id);
        if let Some((on, label)) = old {
            if let Some(link) = self.links.get_mut(&on) {
                link.refuse_flow(label, Code::Rerouted);
            }
            self.mark_ready(on);
        }
        self.carry_in(now, id, open, INITIAL_CREDIT, Some(link));
        if let Some((floor, flow)) = skip.zip(self.shared.flows.incoming_mut(id)) {
            let floor = floor.min(flow.receiver.credit_limit());
            flow.receiver.on_skip(floor);
            // Where it contradicts the flow's end it is ignored: only a false report gains by it.
            let _ = flow.sink.on_skip(floor);
        }
        if index == CONTROL_INDEX {
            self.note_control_in(now, session, id);
        }
        Ok(())
    }

    fn incoming_of(&self, session: SessionId, index: u64) -> Option<FlowId> {
        match index {
            CONTROL_INDEX => self.sessions.control_in(session),
            _ => self.sessions.incoming_flow(session, index).filter(|flow| self.known.get(*flow).is_some()),
        }
    }

    /// The far end's control flow comes so.
    pub(super) fn note_control_in(&mut self, now: Time, session: SessionId, flow: FlowId) {
        self.sessions.set_control_in(session, Some(flow));
        let is_carried = self.in_on(flow).is_some();
        if let Some(entry) = self.sessions.entry_mut(session) {
            entry.unheard_since = None;
            // The far end has found a route here: there may be one back.
            if is_carried && let Some(trouble) = entry.trouble.as_mut().filter(|t| t.retry_at.is_some()) {
                trouble.retry_at = Some(now);
                self.arm_session(session);
            }
        }
    }

    /// An incoming flow comes no more by its link: it waits for the one by which it comes next.
    pub(super) fn park_in(&mut self, now: Time, id: FlowId) {
        if self.forget_contender(id, None) {
            return;
        }
        let Some(flow) = self.shared.flows.incoming(id) else { return };
        let (session, open) = (flow.session, flow.open.clone());
        let is_control = open.index == CONTROL_INDEX;
        self.carry_in(now, id, open, 0, None);
        if is_control {
            self.note_control_in(now, session, id);
            if let Some(entry) = self.sessions.entry_mut(session) {
                entry.unheard_since = Some(now);
                self.arm_session(session);
            }
        }
        self.rearm_rest();
    }

    /// A session whose far end has found no way here for the idle timeout is over.
    pub(super) fn end_if_unheard(&mut self, now: Time, id: SessionId) {
        let idle = self.shared.config.idle_timeout;
        if self.sessions.entry(id).and_then(|e| e.unheard_since).is_some_and(|at| now.since(at) >= idle) {
            let reason = CloseReason::local(Code::Unreachable, Layer::Session, "the far end's route here is broken, and it found no other");
            self.fail_session(now, id, reason);
        }
    }

    /// All incoming flows of relayed sessions that came by a link which is gone.
    pub(super) fn park_incoming_of(&mut self, now: Time, id: LinkId) {
        let Some(link) = self.links.get(&id) else { return };
        let flows: Vec<(FlowId, bool)> = link
            .labels
            .all_in()
            .filter_map(|(_, id)| self.shared.flows.incoming(id))
            .filter(|flow| flow.relay.is_none() && flow.open.relayed.is_some())
            .map(|flow| (flow.id, flow.open.part() > 0))
            .collect();
        for (flow, is_part) in flows {
            match is_part {
                true => self.forget_part_in(flow),
                false => self.park_in(now, flow),
            }
        }
    }

    /// Everything that this node sends in a session goes by another link from now on, or by none.
    pub(super) fn reopen_session(&mut self, now: Time, id: SessionId, to: Option<LinkId>) {
        let Some(entry) = self.sessions.entry_mut(id) else { return };
        let from = entry.link;
        if (from.is_none() && to.is_none()) || switch::is_off(Mechanism::Reopening) {
            return;
        }
        entry.incarnation += u64::from(to.is_some());
        let (incarnation, control) = (entry.incarnation, entry.control());
        let is_here = |flow: &FlowId| self.out_on(*flow) == from && !self.spreads.contains_key(flow);
        let known = self.known.of_session(id).filter(|(_, known)| known.is_outgoing).map(|(flow, _)| flow);
        // The control flow goes first: the others mean nothing without it.
        let flows: Vec<FlowId> = control.into_iter().chain(known).filter(is_here).collect();
        for flow in flows {
            self.reopen_flow(now, flow, incarnation, to);
        }
        self.sessions.move_to(id, to);
        for on in [from, to] {
            self.mark_ready_at(on);
            self.rearm_at(on);
        }
    }

    fn reopen_flow(&mut self, now: Time, id: FlowId, incarnation: u64, to: Option<LinkId>) {
        let Some(flow) = self.shared.flows.out_mut(id) else { return };
        let (old, session) = (flow.on.map(|on| (on, flow.open.label)).filter(|_| flow.is_announced), flow.session);
        if let Some(ends) = &mut flow.open.relayed {
            ends.incarnation = incarnation;
        }
        let batch_size = flow.open.batch_size;
        if let Some(fits) = to.and_then(|to| self.links.get(&to)).map(|l| l.fits(batch_size, &self.shared))
            && let Some(ends) = self.shared.flows.out_mut(id).and_then(|f| f.open.relayed.as_mut())
        {
            ends.fits = fits;
        }
        if let Some((on, label)) = old
            && let Some(link) = self.links.get_mut(&on).filter(|l| l.is_up())
        {
            link.send_control(Control::FlowReset { flow: label, reason: Code::Rerouted as u64 });
        }
        self.carry_out(now, id, to);
        if let Some(flow) = self.shared.flows.out_mut(id)
            && let Some(securing) = self.sessions.entry(session).and_then(|e| e.securing.as_ref())
        {
            securing.prove(&mut flow.open);
        }
    }

    /// The route of a relayed session is closed: the next one is taken, or the same one again when there is no other and some time has passed.
    /// `refused_by`: the neighbour on this link said so.
    pub(super) fn on_route_lost(&mut self, now: Time, id: SessionId, reason: CloseReason, refused_by: Option<LinkId>) {
        let Some(entry) = self.sessions.entry_mut(id) else { return };
        let Some(far) = entry.far.address() else { return };
        // A session with keys asks the far end itself; before that the far end has not heard of the session.
        let has_keys = entry.securing.as_ref().is_some_and(|s| s.has_keys()) && !switch::is_off(Mechanism::QuestionsToEnds);
        let (turn, is_opening) = (entry.turn, entry.session.state() == SessionState::Opening && !has_keys);
        if entry.trouble.as_ref().is_some_and(|t| now.since(t.last) >= FORGOTTEN) {
            entry.trouble = None;
        }
        let trouble = entry.trouble.get_or_insert_with(|| Trouble {
            since: now,
            last: now,
            attempts: 0,
            avoid: SmallVec::new(),
            retry_at: None,
            reason: reason.clone(),
        });
        trouble.last = now;
        let is_refused = refused_by.is_some() && reason.code != Code::Rerouted;
        if is_refused && let Some(link) = refused_by {
            trouble.avoid.push(link);
        }
        trouble.reason = reason.clone();
        let avoid = trouble.avoid.clone();
        let next = self.next_hop_by(far, turn, &avoid);
        // Nobody has heard of this session: what the route says is the answer.
        if next.is_none() && is_opening && is_refused {
            return self.fail_session(now, id, reason);
        }
        // Every route says that the far end does not know it. Any host on the route can say so: the far end is asked whether it is another process.
        if next.is_none() && is_refused && reason.code == Code::UnknownSession {
            match has_keys {
                true => self.ask_far_end(now, id),
                false => return self.lose_session(now, id, reason),
            }
        }
        let Some(trouble) = self.sessions.entry_mut(id).and_then(|e| e.trouble.as_mut()) else { return };
        trouble.attempts += 1;
        let is_at_once = trouble.attempts <= 1 || is_refused;
        match next {
            Some(link) if is_at_once => self.reopen_session(now, id, Some(link)),
            _ => {
                trouble.avoid.clear();
                trouble.retry_at = Some(now + trouble.delay());
                self.reopen_session(now, id, None);
                self.arm_session(id);
            }
        }
    }

    /// The time to try again has come, if it has.
    pub(super) fn retry_route(&mut self, now: Time, id: SessionId) {
        let idle = self.shared.config.idle_timeout;
        let Some(entry) = self.sessions.entry_mut(id) else { return };
        let (Some(far), turn) = (entry.far.address(), entry.turn) else { return };
        let Some(trouble) = entry.trouble.as_mut().filter(|t| t.retry_at.is_some_and(|at| at <= now)) else { return };
        trouble.retry_at = None;
        if now.since(trouble.since) >= idle {
            let reason = trouble.reason.clone();
            return self.fail_session(now, id, reason);
        }
        if let Some(link) = self.next_hop_by(far, turn, &[]) {
            return self.reopen_session(now, id, Some(link));
        }
        if let Some(trouble) = self.sessions.entry_mut(id).and_then(|e| e.trouble.as_mut()) {
            trouble.attempts += 1;
            trouble.retry_at = Some(now + trouble.delay());
        }
    }

    /// Routes, or the links that they lead over, have changed: everything goes by its best route.
    pub(super) fn revise_routes(&mut self, now: Time) {
        for (id, far, turn, link) in self.sessions.relayed() {
            let shunned = self.shunned(now, id);
            if let Some(best) = self.next_hop_by(far, turn, &shunned)
                && Some(best) != link
            {
                self.reopen_session(now, id, Some(best));
            }
        }
        self.revise_relays(now);
        self.revise_spreads(now);
    }
}

#[cfg(test)]
impl Node {
    /// The only link.
    pub(super) fn next_hop_link(&self) -> LinkId {
        self.links.keys().copied().next().expect("a link")
    }

    /// Flows on a link, out and in.
    pub(super) fn link_flows(&self, id: LinkId) -> (usize, usize) {
        self.links.get(&id).map_or((0, 0), |l| (l.labels.all_out().count(), l.labels.incoming_len()))
    }

    /// When sessions that no link carries look for a route again.
    pub(super) fn sessions_without_a_route(&self) -> Vec<Option<Time>> {
        let parked = self.sessions.entries().filter(|e| e.link.is_none());
        parked.map(|e| e.trouble.as_ref().and_then(Trouble::poll_timeout)).collect()
    }
}

/// A session's name.
pub(crate) type SessionName = (Far, SessionKey);

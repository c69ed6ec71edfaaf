//! The far end of flows that take several routes: what their parts bring is joined to the whole.

use super::{FIRST_WINDOW, MAX_PARTS};
use crate::error::Code;
use crate::ids::{FlowId, FlowLabel, LinkId, Seq, SessionId};
use crate::node::Node;
use crate::session::Accepted;
use crate::units::{Duration, Time};
use crate::wire::frame::{FlowOpen, Relayed};
use smallvec::SmallVec;

/// The far end may have so many packets in flight as came in this time, twice.
const MEASURE: Duration = Duration::from_secs(1);

/// A flow that comes by several routes.
#[derive(Debug, Default)]
pub(crate) struct Join {
    /// Its parts.
    pub(crate) parts: SmallVec<[FlowId; 2]>,
    /// Limit that the far end was told.
    granted: u64,
    /// Packets that came since, and in the measure before.
    came: u64,
    came_before: u64,
    since: Option<Time>,
}

impl Join {
    fn note(&mut self, now: Time, packets: u64) {
        let since = *self.since.get_or_insert(now);
        if now.since(since) >= MEASURE {
            self.came_before = if now.since(since) < MEASURE * 2 { self.came } else { 0 };
            (self.came, self.since) = (0, Some(now));
        }
        self.came += packets;
    }

    /// What is to be granted, if that is worth saying: `consumed` packets were read, for `room` there is memory.
    fn grant(&mut self, consumed: u64, room: u64) -> Option<u64> {
        let window = (2 * self.came.max(self.came_before)).max(FIRST_WINDOW).min(room.max(FIRST_WINDOW / 4));
        let limit = (consumed + window).max(self.granted);
        let is_news = limit >= self.granted.max(FIRST_WINDOW) + window / 8;
        if is_news {
            self.granted = limit;
        }
        is_news.then_some(limit)
    }
}

impl Node {
    /// A part brought something that its key opened, so that it is the far end's: it belongs to a flow that is known, or makes one. Before that a
    /// relay may have invented it. True if it belongs to a flow now.
    fn join_part(&mut self, now: Time, id: FlowId) -> bool {
        let Some(part) = self.shared.flows.incoming(id) else { return false };
        let (session, open) = (part.session, part.open.clone());
        let refuse = |node: &mut Self, code| {
            let on = node.in_on(id);
            node.abandon_in(id);
            node.refuse_by(on, open.label, code);
            false
        };
        let Some(entry) = self.sessions.entry(session) else { return false };
        let flow = match entry.session.inspect_flow(open.index) {
            Ok(Accepted::Known(flow)) => Some(flow),
            Ok(Accepted::New) => None,
            Ok(Accepted::Over) => return refuse(self, Code::Stopped),
            Err(reason) => {
                self.fail_session(now, session, reason);
                return false;
            }
        };
        let flow = match flow {
            Some(flow) => flow,
            None => match self.begin_join(now, session, &open) {
                Ok(flow) => flow,
                Err(code) => return refuse(self, code),
            },
        };
        let Some(join) = self.joins.get_mut(&flow) else { return refuse(self, Code::SessionProtocol) };
        if join.parts.contains(&id) {
            return true;
        }
        if join.parts.len() >= MAX_PARTS {
            return refuse(self, Code::TooMany);
        }
        join.parts.push(id);
        true
    }

    /// The whole, of which nothing is here yet.
    fn begin_join(&mut self, now: Time, session: SessionId, open: &FlowOpen) -> Result<FlowId, Code> {
        let whole = FlowOpen { relayed: open.relayed.map(|r| Relayed { part: 0, ..r }), ..open.clone() };
        let flow = self.accept_flow(None, whole, session)?;
        self.joins.insert(flow, Join::default());
        self.settle_rest(now);
        self.known.get(flow).map(|_| flow).ok_or(Code::Stopped)
    }

    /// The flow that a part brings packets of.
    fn whole_of(&self, part: FlowId) -> Option<FlowId> {
        let part = self.shared.flows.incoming(part)?;
        self.sessions.entry(part.session)?.session.flows().incoming(part.open.index)
    }

    /// A part brought packets of its flow.
    pub(in crate::node) fn take_pieces(&mut self, now: Time, id: FlowId) {
        if !self.shared.flows.incoming(id).is_some_and(|f| f.sink.has_pieces()) || !self.join_part(now, id) {
            return;
        }
        let Some(flow) = self.whole_of(id).filter(|flow| self.known.get(*flow).is_some()) else { return };
        let Some(part) = self.shared.flows.incoming_mut(id) else { return };
        let pieces = part.sink.take_pieces();
        if pieces.is_empty() {
            return;
        }
        let (session, on) = (part.session, part.on);
        let bytes: usize = pieces.iter().map(|(_, packet)| packet.len()).sum();
        if let Some((entry, on)) = self.sessions.entry_mut(session).zip(on) {
            entry.routes.entry(on).or_default().note_received(pieces.len() as u64, bytes as u64);
        }
        if let Some(join) = self.joins.get_mut(&flow) {
            join.note(now, pieces.len() as u64);
        }
        let Some(f) = self.shared.flows.incoming_mut(flow) else { return };
        let mut failure = None;
        for (number, packet) in pieces {
            if let Err(reason) = f.sink.on_packet(now, Seq(number), packet) {
                failure = Some(reason);
                break;
            }
        }
        self.look_at_in(now, flow);
        self.grant_whole(now, flow);
        if let Some(reason) = failure {
            self.fail_session(now, session, reason);
        }
    }

    /// Tells the far end what there is room for, if that has changed much.
    pub(in crate::node) fn grant_whole(&mut self, now: Time, flow: FlowId) {
        let Some(join) = self.joins.get_mut(&flow) else { return };
        let Some(f) = self.shared.flows.incoming(flow) else { return };
        let session = f.session;
        let room = self.shared.ledger.allowed(&f.account) / (usize::from(f.open.symbol).max(512) + 64);
        let (index, consumed) = (f.open.index, f.sink.consumed());
        if let Some(limit) = join.grant(consumed, room as u64)
            && let Some(entry) = self.sessions.entry_mut(session)
        {
            entry.session.tell_window(index, limit);
            self.pump_session(now, session);
        }
    }

    /// A part has come further than the far end knows.
    pub(in crate::node) fn on_part_progress(&mut self, now: Time, id: FlowId) {
        self.take_pieces(now, id);
        let Some(part) = self.shared.flows.incoming(id) else { return };
        let (session, index, number, done) = (part.session, part.open.index, part.open.part(), part.done_with());
        let whole = self.whole_of(id).and_then(|flow| self.shared.flows.incoming(flow));
        let here = whole.map(|whole| (whole.id, whole.sink.first_missing()));
        let Some(entry) = self.sessions.entry_mut(session) else { return };
        entry.session.tell_part(index, number, done);
        if let Some((flow, here)) = here {
            entry.session.flow_received(now, flow, here, false);
        }
        self.pump_session(now, session);
    }

    /// A part comes by its link no more.
    pub(in crate::node) fn forget_part_in(&mut self, id: FlowId) {
        if let Some(flow) = self.whole_of(id)
            && let Some(join) = self.joins.get_mut(&flow)
        {
            join.parts.retain(|part| *part != id);
        }
        let on = self.in_on(id);
        let Some(flow) = self.abandon_in(id) else { return };
        self.note_ended(on, flow.session, false, flow.open.index, flow.stats());
    }

    /// A host on the route alters packets of a part: it comes by this route no more, and its source finds another.
    pub(in crate::node) fn refuse_part(&mut self, id: FlowId) {
        let Some(flow) = self.shared.flows.incoming(id) else { return };
        let (on, label) = (flow.on, flow.open.label);
        self.forget_part_in(id);
        self.refuse_by(on, label, Code::Rerouted);
    }

    fn refuse_by(&mut self, on: Option<LinkId>, label: FlowLabel, code: Code) {
        let Some(on) = on else { return };
        if let Some(link) = self.links.get_mut(&on) {
            link.refuse_flow(label, code);
        }
        self.mark_ready(on);
    }

    /// A session is over: parts that belong to no flow yet go with it.
    pub(in crate::node) fn drop_parts_of(&mut self, session: SessionId) {
        for id in self.shared.flows.in_of(session) {
            if self.shared.flows.incoming(id).is_some_and(|f| f.open.part() > 0) {
                self.forget_part_in(id);
            }
        }
    }

    /// The flow is over here.
    pub(in crate::node) fn drop_join(&mut self, flow: FlowId) {
        let Some(join) = self.joins.remove(&flow) else { return };
        for id in join.parts {
            let on = self.in_on(id);
            let Some(part) = self.abandon_in(id) else { continue };
            self.note_ended(on, part.session, false, part.open.index, part.stats());
            self.refuse_by(on, part.open.label, Code::Stopped);
        }
    }
}

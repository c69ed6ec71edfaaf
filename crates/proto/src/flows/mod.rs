//! The flows of this node: two halves of each at most, coded machine and what feeds or drains it, and the table that owns them.
//!
//! At an end node the outgoing half is fed by a session's [`SendHalf`] and the incoming half drained by a [`RecvHalf`]. A relay feeds one half from the other
//! (`node/relay.rs`); its session halves stay empty. A link carries halves under labels, and is handed the table to find them; a half that no link carries is here
//! all the same.

mod incoming;
mod out;

use crate::config::INITIAL_CREDIT;
use crate::flow::RESERVED_PACKETS;
use crate::ids::{FlowId, SessionId};
use crate::ledger::{FLOW_COST, Floor};
use crate::options::{FlowOptions, Mode};
use crate::session::CONTROL_INDEX;
use crate::stats::FlowTotals;
use crate::table::Table;
use crate::wire::frame::FlowOpen;
use crate::work;
use std::collections::BTreeSet;

pub(crate) use incoming::{InEvent, InFlow};
pub(crate) use out::{OutEvent, OutFlow};

/// Memory that a session's control flow gets at most, in bytes.
const CONTROL_MEMORY: usize = 256 * 1024;

/// Memory that a flow may grow to, in bytes, before the node's ledger has its say.
pub(crate) fn memory_wish(index: u64, flow_memory: usize) -> usize {
    if index == 0 { CONTROL_MEMORY.min(flow_memory) } else { flow_memory }
}

/// Memory that the receiving half of a flow, or one that passes, owns at each node, or is refused when it opens (P15): two batches, and for data the packets that
/// may come before the first CREDIT. A session's control messages are far shorter than its packets could be, and taken at once. A flow of data owns it while it
/// works, and at rest what a batch takes that is not full yet, if it can wait: what comes in parts, or is a datagram that is not coded, cannot.
pub(crate) fn floor_of(open: &FlowOpen) -> Floor {
    let batches = 2 * usize::from(open.batch_size);
    let packets = if open.index == CONTROL_INDEX { batches } else { batches.max(INITIAL_CREDIT as usize) };
    let floor = Floor::new(FLOW_COST + packets * usize::from(open.symbol), usize::from(open.batch_size) * usize::from(open.symbol));
    let can_wait = open.index != CONTROL_INDEX && open.mode != Mode::Transparent && open.part() == 0;
    if can_wait { floor } else { floor.always() }
}

/// The same of the sending half at its source.
pub(crate) fn sending_floor_of(open: &FlowOpen) -> usize {
    match open.index {
        CONTROL_INDEX => floor_of(open).working(),
        _ => FLOW_COST + RESERVED_PACKETS as usize * usize::from(open.symbol),
    }
}

/// Bytes of a sending half's queue in a flow that may hold `memory` bytes. More than a core's cache holds is slower: what waits longest has left it when it is
/// sent (docs/results/data-path.md).
pub(crate) fn buffer_of(memory: usize) -> usize {
    (memory / 8).clamp(64 * 1024, 1 << 20).min(memory / 2)
}

/// What the application of the far end asked for, apart from `answers`, which is named by index on the wire.
pub(crate) fn options_of(open: &FlowOpen) -> FlowOptions {
    FlowOptions {
        mode: open.mode,
        kind: open.kind,
        class: open.class,
        lifetime: open.lifetime,
        no_retransmit: open.no_retransmit,
        batch_size: open.batch_size,
        answers: None,
        bidirectional: open.bidirectional,
        tag: open.tag,
        send_buffer: None,
        one_route: false,
    }
}

/// A flow of no session: it passes.
pub(crate) const NO_SESSION: SessionId = SessionId(0);

/// All flows of a node, by what they are called here. What concerns one session costs nothing for the flows of others.
#[derive(Debug, Default)]
pub(crate) struct Flows {
    out: Table<FlowId, Box<OutFlow>>,
    incoming: Table<FlowId, Box<InFlow>>,
    /// Flows of this node's sessions, control flows and parts included; `true`: outgoing.
    of_session: BTreeSet<(SessionId, bool, FlowId)>,
}

impl Flows {
    /// A flow that this node sends.
    pub(crate) fn out(&self, id: FlowId) -> Option<&OutFlow> {
        self.out.get(&id).map(|flow| &**flow)
    }

    pub(crate) fn out_mut(&mut self, id: FlowId) -> Option<&mut OutFlow> {
        self.out.get_mut(&id).map(|flow| &mut **flow)
    }

    /// A flow that this node receives.
    pub(crate) fn incoming(&self, id: FlowId) -> Option<&InFlow> {
        self.incoming.get(&id).map(|flow| &**flow)
    }

    pub(crate) fn incoming_mut(&mut self, id: FlowId) -> Option<&mut InFlow> {
        self.incoming.get_mut(&id).map(|flow| &mut **flow)
    }

    pub(crate) fn insert_out(&mut self, flow: OutFlow) {
        if flow.session != NO_SESSION {
            self.of_session.insert((flow.session, true, flow.id));
        }
        self.out.insert(flow.id, Box::new(flow));
    }

    pub(crate) fn insert_in(&mut self, flow: InFlow) {
        if flow.session != NO_SESSION {
            self.of_session.insert((flow.session, false, flow.id));
        }
        self.incoming.insert(flow.id, Box::new(flow));
    }

    /// Forgets a flow, which no link carries any more.
    pub(crate) fn remove_out(&mut self, id: FlowId) -> Option<OutFlow> {
        let flow = self.out.remove(&id)?;
        debug_assert!(flow.on.is_none(), "a link carries {id}");
        self.of_session.remove(&(flow.session, true, id));
        Some(*flow)
    }

    pub(crate) fn remove_in(&mut self, id: FlowId) -> Option<InFlow> {
        let flow = self.incoming.remove(&id)?;
        debug_assert!(flow.on.is_none(), "a link carries {id}");
        self.of_session.remove(&(flow.session, false, id));
        Some(*flow)
    }

    /// Forgets a flow with the link that carried it.
    pub(crate) fn lose_out(&mut self, id: FlowId) -> Option<OutFlow> {
        self.out_mut(id)?.on = None;
        self.remove_out(id)
    }

    pub(crate) fn lose_in(&mut self, id: FlowId) -> Option<InFlow> {
        self.incoming_mut(id)?.on = None;
        self.remove_in(id)
    }

    /// Flows of a session that this node sends, its control flow included; oldest first.
    pub(crate) fn out_of(&self, session: SessionId) -> Vec<FlowId> {
        self.ids_of(session, true)
    }

    /// Flows of a session that this node receives, its control flow included; oldest first.
    pub(crate) fn in_of(&self, session: SessionId) -> Vec<FlowId> {
        self.ids_of(session, false)
    }

    fn ids_of(&self, session: SessionId, is_outgoing: bool) -> Vec<FlowId> {
        let all = (session, is_outgoing, FlowId(0))..=(session, is_outgoing, FlowId(u64::MAX));
        self.of_session.range(all).inspect(|_| work::step()).map(|(_, _, id)| *id).collect()
    }

    /// Adds the data flows of a session.
    pub(crate) fn add_flows_of(&self, totals: &mut FlowTotals, session: SessionId) {
        for flow in self.out_of(session).into_iter().filter_map(|id| self.out(id)).filter(|f| f.open.index != CONTROL_INDEX) {
            totals.add(true, &flow.stats());
        }
        for flow in self.in_of(session).into_iter().filter_map(|id| self.incoming(id)).filter(|f| f.open.index != CONTROL_INDEX) {
            totals.add(false, &flow.stats());
        }
    }
}

//! Flows that neighbours offer: whose they are, and the receiving half of those that are for this node.

use super::Node;
use super::reroute::PARKING;
use super::sessions::limits_of;
use crate::config::INITIAL_CREDIT;
use crate::error::Code;
use crate::flow::{Receiver, ReceiverConfig};
use crate::ids::{FlowLabel, LinkId, SessionId};
use crate::link::MOST_NEW_PARTS;
use crate::link::flows::{floor_of, memory_wish, options_of};
use crate::session::{RecvHalf, RecvLimits};
use crate::units::{Duration, Time};
use crate::wire::frame::FlowOpen;

impl Node {
    /// The neighbour offers a flow of a session with this node.
    pub(super) fn on_neighbours_open(&mut self, now: Time, id: LinkId, open: FlowOpen) {
        let Some(link) = self.links.get(&id) else { return };
        let (label, from, limits) = (open.label, link.neighbour(), limits_of(link));
        let session = self.session_for_open(now, from, id, &open, limits, Duration::ZERO);
        let result = session.and_then(|session| self.accept_flow(id, open, session));
        if let Err(code) = result {
            self.refuse_offer(id, label, code);
        } else {
            self.look_at_offer(id, label);
        }
    }

    /// What became of a flow that names its ends.
    pub(super) fn answer_offer(&mut self, id: LinkId, label: FlowLabel, result: Result<(), Code>) {
        match result {
            Ok(()) => self.look_at_offer(id, label),
            // Too early: it is offered again when its packets have been refused.
            Err(Code::UnknownFlow) => {}
            Err(code) => self.refuse_offer(id, label, code),
        }
    }

    fn refuse_offer(&mut self, id: LinkId, label: FlowLabel, code: Code) {
        self.shared.counters.refused_flows += 1;
        if let Some(link) = self.links.get_mut(&id) {
            link.refuse_flow(label, code);
        }
    }

    fn look_at_offer(&mut self, id: LinkId, label: FlowLabel) {
        if let Some(link) = self.links.get_mut(&id) {
            link.hold(label);
        }
    }

    /// The receiving half of a flow of ours that the neighbour offers. Refused without the memory that it must own (P15).
    pub(super) fn accept_flow(&mut self, on: LinkId, open: FlowOpen, session: SessionId) -> Result<(), Code> {
        let (label, config) = (open.label, &self.shared.config);
        let link = self.links.get_mut(&on).ok_or(Code::Internal)?;
        if link.flows.incoming.contains_key(&label) {
            return Err(Code::SessionProtocol);
        }
        if open.part() > 0 && link.flows.new_parts() >= MOST_NEW_PARTS {
            return Err(Code::TooMany);
        }
        let is_parked = on == PARKING;
        if !is_parked && link.flows.incoming.len() >= config.max_link_flows {
            return Err(Code::TooMany);
        }
        let ceiling = memory_wish(open.index, config.flow_memory);
        let limits = RecvLimits { memory: ceiling, max_message: config.max_message };
        let account = self.shared.ledger.open_for(link.neighbour(), floor_of(&open), ceiling).ok_or(Code::NoMemory)?;
        let memory = self.shared.ledger.allowed(&account);
        let mut sink = RecvHalf::with_budget(&options_of(&open), limits, self.shared.messages.clone());
        if open.part() > 0 {
            sink.take_pieces_only();
        }
        if is_parked {
            // A flow that comes by several parts.
            sink.part_up();
        } else if let Some(securing) = self.sessions.entry_mut(session).and_then(|e| e.securing.as_mut())
            && let Err(code) = securing.equip_in(&open, &mut sink)
        {
            self.shared.ledger.close(&account);
            return Err(code);
        }
        let receiver = Receiver::new(ReceiverConfig {
            label,
            batch_size: open.batch_size,
            symbol: open.symbol,
            memory,
            initial_credit: INITIAL_CREDIT,
        });
        self.sessions.note_hop(session, on);
        link.open_in(self.shared.next_flow_id(), session, open, receiver, sink, account);
        Ok(())
    }
}

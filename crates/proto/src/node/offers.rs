//! Flows that neighbours offer: whose they are, and the receiving half of those that are for this node.

use super::Node;
use super::sessions::limits_of;
use crate::config::INITIAL_CREDIT;
use crate::error::Code;
use crate::flow::{Receiver, ReceiverConfig};
use crate::flows::{InFlow, floor_of, memory_wish, options_of};
use crate::ids::{FlowId, FlowLabel, LinkId, SessionId};
use crate::link::MOST_NEW_PARTS;
use crate::neighbour::Neighbour;
use crate::session::{RecvHalf, RecvLimits};
use crate::units::{Duration, Time};
use crate::wire::frame::FlowOpen;

impl Node {
    /// The neighbour offers a flow of a session with this node.
    pub(super) fn on_neighbours_open(&mut self, now: Time, id: LinkId, open: FlowOpen) {
        let Some(link) = self.links.get(&id) else { return };
        let (label, from, limits) = (open.label, link.neighbour(), limits_of(link));
        let session = self.session_for_open(now, from, id, &open, limits, Duration::ZERO);
        let result = session.and_then(|session| self.accept_flow(Some(id), open, session));
        match result {
            Ok(_) => self.look_at_offer(id, label),
            Err(code) => self.refuse_offer(id, label, code),
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
    /// `on`: the link that it comes by; none if it comes by parts.
    pub(super) fn accept_flow(&mut self, on: Option<LinkId>, open: FlowOpen, session: SessionId) -> Result<FlowId, Code> {
        let config = &self.shared.config;
        let mut link = match on {
            Some(on) => Some(self.links.get_mut(&on).ok_or(Code::Internal)?),
            None => None,
        };
        if let Some(link) = &mut link {
            if link.labels.incoming_id(open.label).is_some() {
                return Err(Code::SessionProtocol);
            }
            if open.part() > 0 && link.labels.new_parts(&self.shared.flows) >= MOST_NEW_PARTS {
                return Err(Code::TooMany);
            }
            if link.labels.incoming_len() >= config.max_link_flows {
                return Err(Code::TooMany);
            }
        }
        let ceiling = memory_wish(open.index, config.flow_memory);
        let limits = RecvLimits { memory: ceiling, max_message: config.max_message };
        let opener = link.as_ref().map_or(Neighbour::Several, |link| link.neighbour());
        let floor = if link.is_some() { floor_of(&open) } else { floor_of(&open).always() };
        let account = self.shared.ledger.open_for(opener, floor, ceiling).ok_or(Code::NoMemory)?;
        let memory = self.shared.ledger.allowed(&account);
        let (options, budget) = (options_of(&open), self.shared.messages.clone());
        let mut sink = match link {
            Some(_) => RecvHalf::with_budget(&options, limits, budget),
            None => RecvHalf::whole(&options, limits, budget),
        };
        if open.part() > 0 {
            sink.take_pieces_only();
        }
        if link.is_some()
            && let Some(securing) = self.sessions.entry_mut(session).and_then(|e| e.securing.as_mut())
            && let Err(code) = securing.equip_in(&open, &mut sink)
        {
            self.shared.ledger.close(&account);
            return Err(code);
        }
        let receiver = Receiver::new(ReceiverConfig {
            label: open.label,
            batch_size: open.batch_size,
            symbol: open.symbol,
            memory,
            initial_credit: INITIAL_CREDIT,
        });
        let id = self.shared.next_flow_id();
        self.shared.flows.insert_in(InFlow::new(id, session, open, receiver, sink, account));
        match link {
            Some(link) => link.accept_in(id, &mut self.shared.flows),
            None => self.rest.on_opened(id),
        }
        Ok(id)
    }
}

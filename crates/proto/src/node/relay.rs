//! Relaying: flows that pass this node (P14, P15, P17). docs/spec/relay.md describes the rules.
//!
//! A relayed flow is a receiving half on the link that it comes by and a sending half on the link that it goes by; this file joins the two. What
//! raises the rank here is passed on at once, what is lost on the next link is made up by combinations there, and credit follows what leaves. A relay
//! takes no custody: when a route breaks, it forgets the flow and tells both sides, and the source opens it again.

use super::Node;
use crate::config::INITIAL_CREDIT;
use crate::error::{CloseReason, Code};
use crate::flow::{Drain, Receiver, ReceiverConfig, Sender, SenderConfig};
use crate::flows::{InFlow, NO_SESSION, OutFlow, floor_of, options_of};
use crate::ids::{FlowId, LinkId, RelayId, SessionKey};
use crate::link::Control;
use crate::neighbour::Neighbour;
use crate::options::Mode;
use crate::session::{CONTROL_INDEX, RecvHalf, RecvLimits, SendHalf, SendLimits};
use crate::stats::{FlowStats, RelayedStats, SpanStats};
use crate::switch::{self, Mechanism};
use crate::table::Table;
use crate::units::{Duration, Time};
use crate::wire::frame::{FlowOpen, OpeningProof, Relayed};
use crate::work;
use smallvec::SmallVec;
use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;

/// What a node forwards at most.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RelayLimits {
    /// Flows, one direction each. Default 4096. Their memory is that of the node's flows altogether.
    pub flows: usize,
}

impl Default for RelayLimits {
    fn default() -> Self {
        Self { flows: 4096 }
    }
}

/// A flow as all nodes know it, and which opening of it this is. A relay cannot check what an opening claims, so that one never ends another: the destination
/// decides between them, and refuses the one that is over (P16).
type Name = (IpAddr, IpAddr, SessionKey, u64, u64, u64, Option<OpeningProof>);
/// Of the flows that may pass and that others leave, those that come from one neighbour may be so many in four.
const FLOWS_OF_ONE: usize = 3;
/// A half of a flow that passes, and the link that carries it.
type Hop = (LinkId, FlowId);

/// A flow that passes.
#[derive(Debug)]
pub(crate) struct Relay {
    open: FlowOpen,
    ends: Relayed,
    up: Hop,
    /// The neighbour that it comes from.
    from: Neighbour,
    down: Hop,
    /// Links that refused it.
    tried: SmallVec<[LinkId; 2]>,
    drain: Drain,
}

impl Relay {
    fn name(&self) -> Name {
        name_of(&self.open, &self.ends)
    }

    /// What is left of the lifetime of a packet that comes now.
    fn lifetime(&self) -> Option<Duration> {
        self.open.lifetime.filter(|_| self.open.mode == Mode::Btp && !switch::is_off(Mechanism::RelayLifetimes))
    }
}

fn name_of(open: &FlowOpen, ends: &Relayed) -> Name {
    (ends.source, ends.destination, open.session, open.index, ends.part, ends.incarnation, ends.proof)
}

/// All flows that pass, and whether any may.
#[derive(Debug, Default)]
pub(crate) struct Relays {
    limits: Option<RelayLimits>,
    flows: Table<RelayId, Relay>,
    by_name: BTreeMap<Name, RelayId>,
    /// By the links that they come and go by.
    by_link: BTreeSet<(LinkId, RelayId)>,
    /// How many come from each neighbour.
    coming: BTreeMap<Neighbour, usize>,
    next: u64,
}

impl Relays {
    /// One more may come from a neighbour.
    fn has_room(&self, from: Neighbour, limits: RelayLimits) -> bool {
        let (all, own) = (self.flows.len(), self.coming.get(&from).copied().unwrap_or(0));
        all < limits.flows && (own == 0 || own < (limits.flows - (all - own)) * FLOWS_OF_ONE / 4)
    }

    fn insert(&mut self, id: RelayId, relay: Relay) {
        self.by_name.insert(relay.name(), id);
        self.by_link.extend([(relay.up.0, id), (relay.down.0, id)]);
        *self.coming.entry(relay.from).or_default() += 1;
        self.flows.insert(id, relay);
    }

    fn remove(&mut self, id: RelayId) -> Option<Relay> {
        let relay = self.flows.remove(&id)?;
        self.by_name.remove(&relay.name());
        self.by_link.remove(&(relay.up.0, id));
        self.by_link.remove(&(relay.down.0, id));
        if let Some(count) = self.coming.get_mut(&relay.from) {
            *count -= 1;
            if *count == 0 {
                self.coming.remove(&relay.from);
            }
        }
        Some(relay)
    }

    /// The flow goes by another link from now on.
    fn divert(&mut self, id: RelayId, down: Hop) {
        if let Some(relay) = self.flows.get_mut(&id) {
            self.by_link.remove(&(relay.down.0, id));
            relay.down = down;
            self.by_link.extend([(relay.up.0, id), (down.0, id)]);
        }
    }

    /// Flows that come or go by a link.
    fn on(&self, link: LinkId) -> Vec<RelayId> {
        self.by_link.range((link, RelayId(0))..=(link, RelayId(u64::MAX))).inspect(|_| work::step()).map(|(_, id)| *id).collect()
    }
}

impl Node {
    /// Permits to forward flows of others, or forbids it, which is how a node begins; flows that pass already go on.
    pub fn enable_relaying(&mut self, limits: Option<RelayLimits>) {
        self.relays.limits = limits;
    }

    /// The flows that pass this node.
    pub fn relayed_flows(&self) -> impl Iterator<Item = RelayedStats> + '_ {
        self.relays.flows.values().filter_map(|relay| {
            let up = self.shared.flows.incoming(relay.up.1)?;
            let down = self.shared.flows.out(relay.down.1)?;
            let (received, sent) = (up.receiver.stats(), down.sender.stats());
            let (recoded_packets, dropped_packets) = down.sender.relayed_counts();
            Some(RelayedStats {
                source: relay.ends.source,
                destination: relay.ends.destination,
                index: relay.open.index,
                part: relay.ends.part,
                incoming: relay.up.0,
                outgoing: relay.down.0,
                rank_in: received.source_packets,
                redundant_packets: received.redundant_packets,
                rank_out: sent.source_packets.saturating_sub(sent.outstanding),
                passed_packets: sent.source_packets,
                recoded_packets,
                spans: down.sender.span_stats(),
                dropped_packets,
                waiting: down.sender.waiting(),
                queueing_delay: relay.drain.queueing_delay(),
                memory: down.sender.memory() + up.receiver.memory(),
            })
        })
    }

    /// The neighbour offers a flow that names its ends.
    pub(super) fn on_relayed_open(&mut self, now: Time, link: LinkId, open: FlowOpen, ends: Relayed) {
        // What came before may be what decides.
        self.drain_link(now, link);
        let label = open.label;
        let result = if !ends.first.0.is_multiple_of(u64::from(open.batch_size)) {
            Err(Code::SpanInvalid)
        } else if self.routing.is_local(ends.destination) {
            self.bind(now, link, open)
        } else {
            self.begin_relay(now, link, open, ends)
        };
        self.answer_offer(link, label, result);
    }

    fn begin_relay(&mut self, now: Time, link: LinkId, open: FlowOpen, ends: Relayed) -> Result<(), Code> {
        // A transparent flow has no packets that could be made up for.
        let limits = self.relays.limits.filter(|_| open.mode != Mode::Transparent).ok_or(Code::NoRelay)?;
        let hop_limit = open.hop_limit.checked_sub(1).ok_or(Code::HopLimit)?;
        let name = name_of(&open, &ends);
        // The same opening again: it has come back.
        if self.relays.by_name.contains_key(&name) {
            return Err(Code::HopLimit);
        }
        let Some(l) = self.links.get(&link) else { return Err(Code::NoRoute) };
        let from = l.neighbour();
        if l.labels.incoming_len() >= self.shared.config.max_link_flows || !self.relays.has_room(from, limits) {
            return Err(Code::NoMemory);
        }
        let next = self.next_hop(ends.destination, &[link]).ok_or(Code::NoRoute)?;
        let floor = floor_of(&open).always();
        let account = self.shared.ledger.open_for(from, floor, self.shared.config.flow_memory).ok_or(Code::NoMemory)?;
        let Some(held) = self.shared.ledger.open(0, self.shared.config.flow_memory) else {
            self.shared.ledger.close(&account);
            return Err(Code::NoMemory);
        };
        self.relays.next += 1;
        let id = RelayId(self.relays.next);
        let options = options_of(&open);
        let mut receiver = Receiver::relaying(
            ReceiverConfig {
                label: open.label,
                batch_size: open.batch_size,
                symbol: open.symbol,
                memory: account.floor(),
                initial_credit: INITIAL_CREDIT,
            },
            ends.first,
        );
        if open.index == CONTROL_INDEX {
            receiver.report_done_of_next();
        }
        let sink = RecvHalf::with_budget(&options, RecvLimits { memory: 0, max_message: 0 }, self.shared.messages.clone());
        let incoming = InFlow::new(self.shared.next_flow_id(), NO_SESSION, open.clone(), receiver, sink, held).passing(id);
        let mut lifetime = open.lifetime;
        let up = (link, incoming.id);
        self.shared.flows.insert_in(incoming);
        if let Some(l) = self.links.get_mut(&link) {
            // P17: lifetimes are what remains.
            lifetime = lifetime.map(|t| t.saturating_sub(l.min_rtt() / 2).max(Duration::from_millis(1)));
            l.carry_in(up.1, &mut self.shared.flows);
        }
        let open = FlowOpen { hop_limit, lifetime, ..open };
        let Some(l) = self.links.get_mut(&next) else { return Err(Code::NoRoute) };
        let fits = ends.fits.min(l.fits(open.batch_size, &self.shared));
        let (label, initial_credit) = l.offer_out();
        let sender = Sender::relaying(SenderConfig::of(&open, label, account.floor(), initial_credit), ends.first);
        let source = SendHalf::new(&options, SendLimits { buffer: 0, max_message: 0 });
        let onward = FlowOpen { label, relayed: Some(Relayed { fits, ..ends }), ..open.clone() };
        let outgoing = OutFlow::new(self.shared.next_flow_id(), NO_SESSION, onward, sender, source, account).passing(id, from);
        let down = (next, self.begin_out(now, outgoing, Some(next)));
        let relay = Relay { open, ends, up, from, down, tried: SmallVec::new(), drain: Drain::new(now) };
        self.relays.insert(id, relay);
        self.advance_relay(now, id);
        Ok(())
    }

    /// One half of a relayed flow changed: moves packets and ends forward, and credit back.
    pub(super) fn advance_relay(&mut self, now: Time, id: RelayId) {
        let Some(relay) = self.relays.flows.get_mut(&id) else { return };
        let (up, down) = (relay.up, relay.down);
        let deadline = relay.lifetime().map(|t| now + t);
        let flows = &mut self.shared.flows;
        let Some(incoming) = flows.incoming_mut(up.1) else { return };
        incoming.is_relay_told = true;
        let mut passing = SmallVec::<[_; 4]>::new();
        while let Some(packet) = incoming.receiver.poll_passing() {
            passing.push(packet);
        }
        let receiver = &incoming.receiver;
        let (end, skipped, received, rtt) = (receiver.end(), receiver.skipped(), receiver.done(), receiver.rtt());
        self.shared.ledger.settle(&mut incoming.account, incoming.receiver.memory(), false);
        let Some(outgoing) = flows.out_mut(down.1) else { return };
        outgoing.is_relay_told = true;
        for packet in passing {
            outgoing.sender.push_passing(packet, deadline);
        }
        outgoing.sender.skip(skipped);
        outgoing.sender.give_up_below(received);
        if let Some(end) = end {
            outgoing.sender.finish_at(end);
        }
        let held = outgoing.sender.memory();
        let allowed = self.shared.ledger.settle(&mut outgoing.account, held, false);
        outgoing.sender.set_memory(allowed);
        let (done, waiting, passed) = (outgoing.sender.done(), outgoing.sender.waiting(), outgoing.sender.stats().source_packets);
        let is_delivered = outgoing.sender.is_delivered();
        let window = relay.drain.sample(now, passed, waiting, rtt);
        self.touch_out(now, down.1);
        if let Some(outgoing) = self.shared.flows.out_mut(down.1) {
            outgoing.is_relay_told = false;
        }
        let Some(incoming) = self.shared.flows.incoming_mut(up.1) else { return };
        let (receiver, label) = (&mut incoming.receiver, incoming.open.label);
        receiver.on_next_done(done);
        receiver.follow(waiting, window, allowed.saturating_sub(held + receiver.memory()));
        let is_complete = receiver.is_complete();
        incoming.is_relay_told = false;
        if let Some(link) = self.links.get_mut(&up.0) {
            link.queue_report(label, now, &mut self.shared.flows);
        }
        for link in [up.0, down.0] {
            self.mark_ready(link);
        }
        if is_delivered && is_complete {
            self.finish_relay(id);
        }
    }

    /// Everything has passed.
    fn finish_relay(&mut self, id: RelayId) {
        let Some(relay) = self.forget_relay(id) else { return };
        if let Some(flow) = self.remove_in(relay.up.1) {
            self.shared.ledger.close(&flow.account);
            self.add_ended(relay.up.0, false, flow.stats());
        }
        self.drop_relay_out(relay.down);
        self.mark_ready(relay.up.0);
    }

    fn drop_relay_out(&mut self, (link, id): Hop) {
        if let Some(flow) = self.remove_out(id) {
            self.add_ended(link, true, flow.stats());
        }
    }

    fn add_ended(&mut self, link: LinkId, is_outgoing: bool, stats: FlowStats) {
        if let Some(link) = self.links.get_mut(&link) {
            link.ended.add_ended(is_outgoing, stats);
        }
    }

    fn forget_relay(&mut self, id: RelayId) -> Option<Relay> {
        let relay = self.relays.remove(id)?;
        // What its links have counted stays with them.
        let spans = self.spans_of(&relay);
        if let Some(up) = self.links.get_mut(&relay.up.0) {
            up.spans.add(&SpanStats { rank_in: spans.rank_in.clone(), ..SpanStats::default() });
        }
        if let Some(down) = self.links.get_mut(&relay.down.0) {
            down.spans.add(&SpanStats { rank_in: Vec::new(), ..spans });
        }
        Some(relay)
    }

    fn spans_of(&self, relay: &Relay) -> SpanStats {
        let out = self.shared.flows.out(relay.down.1);
        out.map_or_else(SpanStats::default, |flow| flow.sender.span_stats())
    }

    /// Spans of all flows that came by a link or went by it.
    pub(super) fn link_spans(&self, id: LinkId) -> SpanStats {
        let mut sum = self.links.get(&id).map_or_else(SpanStats::default, |l| l.spans.clone());
        for relay in self.relays.on(id).iter().filter_map(|relay| self.relays.flows.get(relay)) {
            let SpanStats { rank_in, rank_out, recoded } = self.spans_of(relay);
            if relay.up.0 == id {
                sum.add(&SpanStats { rank_in, ..SpanStats::default() });
            }
            if relay.down.0 == id {
                sum.add(&SpanStats { rank_in: Vec::new(), rank_out, recoded });
            }
        }
        sum
    }

    /// The flow does not pass here any more: upstream is told why, if it can be told, downstream that the flow comes by another route now.
    fn break_relay(&mut self, id: RelayId, to_upstream: Option<Code>, tell_downstream: bool) {
        let Some(relay) = self.forget_relay(id) else { return };
        if let Some(flow) = self.abandon_in(relay.up.1) {
            self.add_ended(relay.up.0, false, flow.stats());
            if let Some((link, code)) = self.links.get_mut(&relay.up.0).zip(to_upstream) {
                link.refuse_flow(flow.open.label, code);
            }
        }
        let label = self.shared.flows.out(relay.down.1).map(|f| f.open.label);
        self.drop_relay_out(relay.down);
        if let Some((link, flow)) = self.links.get_mut(&relay.down.0).zip(label).filter(|_| tell_downstream) {
            link.send_control(Control::FlowReset { flow, reason: Code::Rerouted as u64 });
        }
        for link in [relay.up.0, relay.down.0] {
            self.mark_ready(link);
            self.rearm(link);
        }
    }

    /// The route on is closed. Another one is taken if this node still has all that it accepted; otherwise the source has to begin again.
    fn divert_relay(&mut self, now: Time, id: RelayId, reason: Code, is_down_alive: bool) {
        let Some(relay) = self.relays.flows.get_mut(&id) else { return };
        let (up, down, destination, first) = (relay.up, relay.down, relay.ends.destination, relay.ends.first);
        relay.tried.push(down.0);
        let mut without = relay.tried.clone();
        without.push(up.0);
        let next = self.next_hop(destination, &without);
        let flow = self.shared.flows.out(down.1);
        let is_whole = flow.is_some_and(|flow| flow.sender.first_held() <= first && flow.sender.done() <= first);
        let label = flow.map(|flow| flow.open.label);
        let (Some(next), true) = (next, is_whole) else {
            return self.break_relay(id, Some(reason), is_down_alive);
        };
        if is_down_alive && let Some((link, flow)) = self.links.get_mut(&down.0).zip(label) {
            link.send_control(Control::FlowReset { flow, reason: Code::Rerouted as u64 });
            self.mark_ready(down.0);
        }
        self.carry_out(now, down.1, Some(next));
        if let Some(relayed) = self.shared.flows.out_mut(down.1).and_then(|f| f.open.relayed.as_mut()) {
            relayed.first = first; // as its proof says
        }
        self.relays.divert(id, (next, down.1));
        self.advance_relay(now, id);
    }

    /// The next node refused the flow.
    pub(super) fn on_relay_refused(&mut self, now: Time, id: RelayId, reason: &CloseReason) {
        match reason.code {
            // Not a matter of the route.
            Code::Stopped | Code::SpanInvalid | Code::FlowControl => self.break_relay(id, Some(reason.code), false),
            code => self.divert_relay(now, id, code, false),
        }
    }

    /// The node before gave the flow up, or contradicts itself.
    pub(super) fn on_relay_reset(&mut self, id: RelayId, reason: &CloseReason) {
        let code = (!reason.is_remote).then_some(reason.code);
        self.break_relay(id, code, true);
    }

    /// A link is gone: its flows come, or go, no more.
    pub(super) fn on_relays_link_down(&mut self, now: Time, link: LinkId) {
        for id in self.relays.on(link) {
            let Some(relay) = self.relays.flows.get(&id) else { continue };
            if relay.up.0 == link {
                self.break_relay(id, None, true);
            } else {
                self.divert_relay(now, id, Code::Rerouted, false);
            }
        }
    }

    /// Routes, or links that they lead over, have changed: flows follow the best route.
    pub(super) fn revise_relays(&mut self, now: Time) {
        let moved: Vec<RelayId> = self
            .relays
            .flows
            .iter()
            .filter(|(_, relay)| self.next_hop(relay.ends.destination, &[relay.up.0]).is_some_and(|next| next != relay.down.0))
            .map(|(id, _)| *id)
            .collect();
        for id in moved {
            if let Some(relay) = self.relays.flows.get_mut(&id) {
                relay.tried.clear();
            }
            self.divert_relay(now, id, Code::Rerouted, true);
        }
    }
}

//! The two halves of a flow at this node, as a link keeps them: coded machine and what feeds or drains it.
//!
//! At an end node the outgoing half is fed by a session's [`SendHalf`] and the incoming half drained by a [`RecvHalf`].
//! A relay feeds one half from the other (`node/relay.rs`); its session halves stay empty.

use super::schedule::{Origin, Turn};
use crate::config::INITIAL_CREDIT;
use crate::flow;
use crate::ids::{FlowId, FlowLabel, RelayId, Seq, SessionId, SessionKey};
use crate::ledger::{Account, Ledger};
use crate::neighbour::Neighbour;
use crate::options::{Class, FlowOptions, Mode};
use crate::session::{CONTROL_INDEX, RecvHalf, SendHalf};
use crate::stats::FlowStats;
use crate::switch::{self, Mechanism};
use crate::table::Table;
use crate::units::{Duration, Time};
use crate::wire::frame::{Coded, FlowOpen};
use crate::work;
use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

/// Memory that a session's control flow gets at most, in bytes.
const CONTROL_MEMORY: usize = 256 * 1024;

/// Memory that a flow may grow to, in bytes, before the node's ledger has its say.
pub(crate) fn memory_wish(index: u64, flow_memory: usize) -> usize {
    if index == 0 { CONTROL_MEMORY.min(flow_memory) } else { flow_memory }
}

/// What a flow costs its node beside what it holds, in bytes, rounded up: without it flows of tiny symbols would cost nothing in the ledger
/// (docs/results/attack.md).
pub(crate) const FLOW_COST: usize = 8192;

/// Memory that a flow owns at each node, or is refused when it opens (P15): two batches, and for data the packets that may come before the first
/// CREDIT. A session's control messages are far shorter than its packets could be, and taken at once.
pub(crate) fn floor_of(open: &FlowOpen) -> usize {
    let batches = 2 * usize::from(open.batch_size);
    let packets = if open.index == CONTROL_INDEX { batches } else { batches.max(INITIAL_CREDIT as usize) };
    FLOW_COST + packets * usize::from(open.symbol)
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

/// A flow that this node sends over a link.
#[derive(Debug)]
pub(crate) struct OutFlow {
    pub(crate) id: FlowId,
    pub(crate) session: SessionId,
    pub(crate) open: FlowOpen,
    /// FLOW_OPEN rides with data until the neighbour has it (P17).
    pub(crate) is_open_acked: bool,
    pub(crate) sender: flow::Sender,
    pub(crate) source: SendHalf,
    /// Waits in the ring of transparent flows.
    pub(crate) is_datagram_queued: bool,
    /// The relayed flow that it is the going half of.
    pub(crate) relay: Option<RelayId>,
    /// The neighbour that it came from, if it passes.
    pub(crate) origin: Origin,
    /// The node will look at that relayed flow.
    pub(crate) is_relay_told: bool,
    /// A part of a flow that takes several routes: the node gives it more when fewer than this wait, if there is more; 0: not now.
    pub(crate) hungry_below: u64,
    /// Packets of the whole that are kept until they are known to be there, in bytes.
    pub(crate) kept_bytes: usize,
    /// A part's: how many flows of this link carry parts of the same flow. Together they take the turns of one.
    pub(crate) siblings: Option<Arc<AtomicU32>>,
    /// Waits in the scheduler's ring.
    pub(crate) is_queued: bool,
    /// Waits for spare rate, for proactive repair.
    pub(crate) is_proactive_queued: bool,
    /// Deficit-round-robin balance in bytes.
    pub(crate) balance: i64,
    /// `Sender::finish` was called.
    pub(crate) is_ended: bool,
    /// The session was told that nothing follows.
    pub(crate) is_end_told: bool,
    /// The session was told that nothing below comes any more.
    pub(crate) skip_told: Seq,
    /// FLOW_OPEN was sent at least once: flows without data still have to be announced.
    pub(crate) is_announced: bool,
    /// What the node's ledger knows of it.
    pub(crate) account: Account,
}

impl OutFlow {
    /// One that nothing was sent of. No session: it passes.
    pub(crate) fn new(id: FlowId, session: SessionId, open: FlowOpen, sender: flow::Sender, source: SendHalf, account: Account) -> Self {
        Self {
            id,
            session,
            open,
            is_open_acked: false,
            sender,
            source,
            is_datagram_queued: false,
            relay: None,
            origin: None,
            is_relay_told: false,
            hungry_below: 0,
            kept_bytes: 0,
            siblings: None,
            is_queued: false,
            is_proactive_queued: false,
            balance: 0,
            is_ended: false,
            is_end_told: false,
            skip_told: Seq(0),
            is_announced: false,
            account,
        }
    }

    /// The going half of one that passes, which this neighbour sends.
    pub(crate) fn passing(self, relay: RelayId, from: Neighbour) -> Self {
        Self { relay: Some(relay), origin: Some(from), ..self }
    }

    /// Something can be put into a packet now, proactive repair and probes not counted.
    pub(crate) fn has_work(&self, now: Time) -> bool {
        // Before its session has keys there is nothing to say of a flow.
        if self.source.is_held() {
            return false;
        }
        !self.is_announced
            || self.sender.has(flow::Stage::Repair)
            || self.sender.has_control()
            || (self.open.relayed.is_some() && self.sender.has(flow::Stage::Source))
            || (self.has_symbols(now) && self.sender.room() > 0)
    }

    /// Whose turns it takes.
    pub(crate) fn origin(&self) -> Origin {
        self.origin.filter(|_| !switch::is_off(Mechanism::SharesOfOrigins))
    }

    /// What the schedule has to know of it.
    pub(crate) fn turn(&self, label: FlowLabel) -> Turn {
        let siblings = match switch::is_off(Mechanism::SharedTurns) {
            true => 1,
            false => self.siblings.as_ref().map_or(1, |count| count.load(Ordering::Relaxed)),
        };
        Turn { label, class: self.open.class, origin: self.origin(), siblings }
    }

    /// Datagrams that wait for each other are to be sent or protected.
    fn is_ordered_waiting(&self) -> bool {
        self.open.waits_in_order() && (self.is_queued || self.is_proactive_queued)
    }

    /// Data wait to become symbols.
    pub(crate) fn has_symbols(&self, now: Time) -> bool {
        self.open.mode != Mode::Transparent && self.source.has_data(now)
    }

    /// Something waits that was never sent.
    pub(crate) fn has_fresh(&self, now: Time) -> bool {
        self.has_symbols(now) || self.sender.has(flow::Stage::Source)
    }

    /// Messages of a transparent flow that the neighbour has heard of wait.
    pub(crate) fn has_datagrams(&self, now: Time) -> bool {
        self.open.mode == Mode::Transparent && self.is_announced && self.source.has_data(now)
    }

    /// Data wait, whatever credit says.
    pub(crate) fn has_backlog(&self, now: Time) -> bool {
        if self.open.relayed.is_some() {
            // What waits for credit does not wait for the link.
            return self.has_work(now);
        }
        self.has_symbols(now) || self.sender.has(flow::Stage::Repair)
    }

    /// Bytes that wait to be sent, repair included; without end where more comes as soon as some leave.
    pub(crate) fn waiting_bytes(&self, now: Time) -> u64 {
        let is_endless = self.source.is_blocked() || self.hungry_below > 0 || (self.relay.is_some() && self.open.class == Class::Bulk);
        if is_endless && self.has_work(now) {
            return u64::MAX;
        }
        self.source.buffered() as u64 + self.sender.waiting_packets() * u64::from(self.open.symbol)
    }

    /// Tells the coded machine that nothing follows, once the source is dry.
    pub(crate) fn end_if_drained(&mut self) {
        if !self.is_ended && self.source.is_drained() {
            self.is_ended = true;
            self.sender.finish();
        }
    }

    pub(crate) fn memory(&self) -> usize {
        self.sender.memory() + self.source.memory() + self.kept_bytes
    }

    /// Tells the ledger what is held now, and both halves what they may hold.
    pub(crate) fn settle(&mut self, ledger: &mut Ledger) {
        if self.sender.outstanding() == 0 && self.source.buffered() == 0 {
            self.source.shrink();
        }
        let held = self.memory();
        let allowed = ledger.settle(&mut self.account, held);
        self.source.set_buffer(buffer_of(allowed));
        self.sender.set_memory(allowed.saturating_sub(self.source.memory()));
    }

    /// Counts of both halves.
    pub(crate) fn stats(&self) -> FlowStats {
        // What the coded machine calls application bytes are payloads; the application's own are the session's to count.
        let mut stats = FlowStats { app_bytes: 0, ..self.sender.stats() };
        self.source.add_stats(&mut stats);
        stats.memory = self.memory();
        stats
    }

    pub(crate) fn poll_timeout(&self) -> Option<Time> {
        [self.sender.poll_timeout(), self.source.poll_timeout()].into_iter().flatten().min()
    }
}

/// What the far end was told of a sealed flow's arrival (P14).
#[derive(Debug, Default)]
pub(crate) struct Progress {
    told: u64,
    /// Since when there is more to tell.
    since: Option<Time>,
}

/// The far end is told of so many more packets at once,
const PROGRESS_PACKETS: u64 = 64;
/// and of fewer after this long.
const PROGRESS_DELAY: Duration = Duration::from_millis(25);

impl Progress {
    /// Everything below `done` is there: true if the far end should hear of it now.
    fn is_due(&mut self, now: Time, done: u64) -> bool {
        if done <= self.told {
            self.since = None;
            return false;
        }
        let since = *self.since.get_or_insert(now);
        let is_due = done - self.told >= PROGRESS_PACKETS || now >= since + PROGRESS_DELAY;
        if is_due {
            (self.told, self.since) = (done, None);
        }
        is_due
    }

    fn poll_timeout(&self) -> Option<Time> {
        self.since.map(|at| at + PROGRESS_DELAY)
    }
}

/// A flow that this node receives over a link.
#[derive(Debug)]
pub(crate) struct InFlow {
    pub(crate) id: FlowId,
    pub(crate) session: SessionId,
    pub(crate) open: FlowOpen,
    pub(crate) receiver: flow::Receiver,
    pub(crate) sink: RecvHalf,
    /// The relayed flow that it is the coming half of.
    pub(crate) relay: Option<RelayId>,
    /// The node will look at that relayed flow.
    pub(crate) is_relay_told: bool,
    /// Waits in the ring of flows that may have something to report.
    pub(crate) is_report_queued: bool,
    /// The owner was told that everything was read.
    pub(crate) is_finish_told: bool,
    /// Stream: the application has read the empty chunk at the end.
    pub(crate) is_end_read: bool,
    /// The session was told that everything is here.
    pub(crate) is_received_told: bool,
    /// The session was told that the far end has its keys.
    pub(crate) is_proof_told: bool,
    /// What the far end of a relayed session knows to be here.
    pub(crate) progress: Progress,
    /// Coded packets that nobody with the session's key made (P16).
    pub(crate) polluted: u64,
    /// Decoded packets that the trace was told of.
    pub(crate) traced_decoded: u64,
    /// What the node's ledger knows of it.
    pub(crate) account: Account,
}

impl InFlow {
    /// One of which nothing came. No session: it passes.
    pub(crate) fn new(id: FlowId, session: SessionId, open: FlowOpen, receiver: flow::Receiver, sink: RecvHalf, account: Account) -> Self {
        Self {
            id,
            session,
            open,
            receiver,
            sink,
            relay: None,
            is_relay_told: false,
            is_report_queued: false,
            is_finish_told: false,
            is_end_read: false,
            is_received_told: false,
            is_proof_told: false,
            progress: Progress::default(),
            polluted: 0,
            traced_decoded: 0,
            account,
        }
    }

    /// The coming half of one that passes.
    pub(crate) fn passing(self, relay: RelayId) -> Self {
        Self { relay: Some(relay), ..self }
    }

    /// Gaps in it are acknowledged at once (P8).
    fn is_urgent(&self) -> bool {
        (self.open.class == Class::Latency && self.open.index != CONTROL_INDEX) || self.open.waits_in_order()
    }

    /// The far end of a relayed session should hear how far this flow has come.
    pub(crate) fn is_progress_due(&mut self, now: Time) -> bool {
        let done = self.done_with();
        self.sink.is_keyed() && self.progress.is_due(now, done)
    }

    /// How far it has come, as its source is to know.
    pub(crate) fn done_with(&self) -> u64 {
        self.sink.newest_piece().unwrap_or(self.receiver.done().0)
    }

    pub(crate) fn poll_timeout(&self) -> Option<Time> {
        [self.receiver.poll_timeout(), self.progress.poll_timeout()].into_iter().flatten().min()
    }

    /// A sound packet shows that the hop's FLOW_END was none of the far end's (P16).
    pub(crate) fn is_beyond_false_end(&self, coded: &Coded<'_>) -> bool {
        let is_beyond = self.receiver.end().is_some_and(|end| coded.base.0.saturating_add(coded.n.into()) > end.0);
        is_beyond && !self.sink.believes_ends_of_hops() && !self.sink.knows_end()
    }

    pub(crate) fn memory(&self) -> usize {
        // What waits for its turn there and is kept here for decoding its batch lies in memory once.
        let shared = if self.sink.waits_in_order() { self.receiver.handed_over().min(self.sink.held()) } else { 0 };
        self.receiver.memory() + self.sink.memory() - shared
    }

    /// Tells the ledger what is held now, and the receiver what it may hold.
    pub(crate) fn settle(&mut self, ledger: &mut Ledger) {
        let held = self.memory();
        let allowed = ledger.settle(&mut self.account, held);
        // What a relay may hold is a matter of both halves.
        if self.relay.is_none() {
            self.receiver.set_memory(allowed);
            self.sink.set_memory(allowed);
        }
    }

    /// Counts of both halves.
    pub(crate) fn stats(&self) -> FlowStats {
        let mut stats = FlowStats { app_bytes: 0, polluted_packets: self.polluted, ..self.receiver.stats() };
        self.sink.add_stats(&mut stats);
        stats.memory = self.memory();
        stats
    }
}

/// Labels of flows that ended: packets of them that are still under way are dropped in silence. Labels are given out in
/// ascending order, so a floor and the few gaps above it say everything.
#[derive(Debug, Default)]
pub(crate) struct ClosedLabels {
    floor: u64,
    above: BTreeSet<u64>,
}

impl ClosedLabels {
    pub(crate) fn insert(&mut self, label: FlowLabel) {
        self.above.insert(label.0);
        while self.above.remove(&self.floor) {
            self.floor += 1;
        }
        // A neighbour that leaves ever more gaps loses the oldest of them: a bound on memory, not on correctness of honest ones.
        if self.above.len() > 4096
            && let Some(first) = self.above.pop_first()
        {
            self.floor = first + 1;
            while self.above.remove(&self.floor) {
                self.floor += 1;
            }
        }
    }

    pub(crate) fn contains(&self, label: FlowLabel) -> bool {
        label.0 < self.floor || self.above.contains(&label.0)
    }
}

/// A flow that is parted, as all nodes know it.
type PartedName = (IpAddr, IpAddr, SessionKey, u64);

fn parted_name(open: &FlowOpen) -> Option<PartedName> {
    open.relayed.filter(|r| r.part > 0).map(|r| (r.source, r.destination, open.session, open.index))
}

/// All flows of a link. What concerns one flow, or those of one session, costs nothing for the others: no walk over all of them per frame or packet.
#[derive(Debug, Default)]
pub(crate) struct Flows {
    pub(crate) out: Table<FlowLabel, OutFlow>,
    pub(crate) incoming: Table<FlowLabel, InFlow>,
    pub(crate) closed: ClosedLabels,
    /// Flows of this node's sessions, control flows included; `true`: outgoing.
    of_session: BTreeSet<(SessionId, bool, FlowLabel)>,
    /// Incoming flows for which time counts.
    urgent: usize,
    /// Outgoing parts, by the flow that they are parts of.
    parted: BTreeMap<PartedName, Arc<AtomicU32>>,
    /// Incoming parts of which no packet had opened when they were last looked at.
    new_parts: BTreeSet<FlowLabel>,
    /// Outgoing flows of ordered datagrams that wait for a turn or for spare rate.
    ordered_waiting: usize,
    next_label: u64,
}

/// A flow of no session: it passes.
const NO_SESSION: SessionId = SessionId(0);

impl Flows {
    /// A flow goes out by this link from now on.
    pub(crate) fn insert_out(&mut self, label: FlowLabel, mut flow: OutFlow) {
        flow.siblings = parted_name(&flow.open).map(|name| self.parted.entry(name).or_default().clone());
        if let Some(count) = &flow.siblings {
            count.fetch_add(1, Ordering::Relaxed);
        }
        if flow.session != NO_SESSION {
            self.of_session.insert((flow.session, true, label));
        }
        self.ordered_waiting += usize::from(flow.is_ordered_waiting());
        self.out.insert(label, flow);
    }

    /// A flow goes out by this link no more.
    pub(crate) fn remove_out(&mut self, label: FlowLabel) -> Option<OutFlow> {
        let mut flow = self.out.remove(&label)?;
        self.of_session.remove(&(flow.session, true, label));
        self.ordered_waiting -= usize::from(flow.is_ordered_waiting());
        if let Some(count) = flow.siblings.take()
            && count.fetch_sub(1, Ordering::Relaxed) == 1
            && let Some(name) = parted_name(&flow.open)
        {
            self.parted.remove(&name);
        }
        Some(flow)
    }

    /// A flow comes in by this link from now on.
    pub(crate) fn insert_in(&mut self, label: FlowLabel, flow: InFlow) {
        if flow.session != NO_SESSION {
            self.of_session.insert((flow.session, false, label));
            if flow.open.part() > 0 {
                self.new_parts.insert(label);
            }
        }
        self.urgent += usize::from(flow.is_urgent());
        self.incoming.insert(label, flow);
    }

    /// A flow comes in by this link no more.
    pub(crate) fn remove_in(&mut self, label: FlowLabel) -> Option<InFlow> {
        let flow = self.incoming.remove(&label)?;
        self.of_session.remove(&(flow.session, false, label));
        self.new_parts.remove(&label);
        self.urgent -= usize::from(flow.is_urgent());
        self.closed.insert(label);
        Some(flow)
    }

    /// Changes whether a flow waits for its turn, or for spare rate.
    pub(crate) fn set_waiting(&mut self, label: FlowLabel, change: impl FnOnce(&mut OutFlow)) {
        if let Some(flow) = self.out.get_mut(&label) {
            let was = usize::from(flow.is_ordered_waiting());
            change(flow);
            self.ordered_waiting = self.ordered_waiting + usize::from(flow.is_ordered_waiting()) - was;
        }
    }

    /// Datagrams that wait for each other are to be sent or protected.
    pub(crate) fn has_ordered_waiting(&self) -> bool {
        self.ordered_waiting > 0
    }

    /// A flow comes in for which time counts.
    pub(crate) fn has_urgent(&self) -> bool {
        self.urgent > 0
    }

    /// Flows of a session that go out here, its control flow included.
    pub(crate) fn out_of(&self, session: SessionId) -> Vec<FlowLabel> {
        self.labels_of(session, true)
    }

    /// Flows of a session that come in here, its control flow included.
    pub(crate) fn in_of(&self, session: SessionId) -> Vec<FlowLabel> {
        self.labels_of(session, false)
    }

    fn labels_of(&self, session: SessionId, is_outgoing: bool) -> Vec<FlowLabel> {
        let all = (session, is_outgoing, FlowLabel(0))..=(session, is_outgoing, FlowLabel(u64::MAX));
        self.of_session.range(all).inspect(|_| work::step()).map(|(_, _, label)| *label).collect()
    }

    /// Parts of which no packet has opened yet: nobody knows whose they are.
    pub(crate) fn new_parts(&mut self) -> usize {
        self.new_parts.retain(|label| self.incoming.get(label).is_some_and(|f| !f.sink.is_proven()));
        self.new_parts.len()
    }

    /// The next label for a flow that we send.
    pub(crate) fn allocate_label(&mut self) -> FlowLabel {
        let label = FlowLabel(self.next_label);
        self.next_label += 1;
        label
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn closed_labels_stay_closed_and_collapse() {
        let mut c = ClosedLabels::default();
        c.insert(FlowLabel(1));
        assert!(c.contains(FlowLabel(1)) && !c.contains(FlowLabel(0)));
        c.insert(FlowLabel(0));
        assert!(c.above.is_empty() && c.floor == 2);
        for l in (3..20_000).step_by(2) {
            c.insert(FlowLabel(l));
        }
        assert!(c.above.len() <= 4096, "gaps are bounded");
    }
}

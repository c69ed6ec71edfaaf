//! A flow that this node receives: the `Receiver` that decodes its packets, and the session's half that takes what is decoded.

use crate::error::CloseReason;
use crate::flow;
use crate::ids::{FlowId, LinkId, RelayId, Seq, SessionId};
use crate::ledger::{Account, Ledger};
use crate::options::Class;
use crate::session::{CONTROL_INDEX, RecvHalf};
use crate::stats::FlowStats;
use crate::trace::{Tracer, What};
use crate::units::{Duration, Time};
use crate::wire::frame::{Coded, FlowOpen};
use bytes::Bytes;

/// What happened to a flow that this node receives.
#[derive(Debug)]
pub(crate) enum InEvent {
    /// The far end opened it, and this node accepted it.
    Opened,
    /// A relayed session's control flow brought a packet of the handshake.
    Lead(SessionId, Bytes),
    /// The first packet of a sealed flow opened: the far end has the session's keys.
    Proven(SessionId),
    /// The session's control flow brought a message.
    Control(SessionId, Bytes),
    Readable,
    /// The neighbour sent frames about it that contradict each other.
    Polluted,
    /// A packet of it was altered on the path. `is_news`: the owner is to be told, which happens at the first such packet and then ever more rarely.
    Forged {
        is_news: bool,
    },
    /// It is a part of a flow that takes several routes, and packets of the whole came by it.
    Pieces,
    /// It is sealed, and more of it has arrived than the far end was told.
    Progress,
    /// All of it has arrived, whether the application has read it or not.
    Received,
    Finished,
    /// It is the receiving half of a relayed flow, and changed.
    Relay(RelayId),
    Closed(CloseReason),
}

impl InEvent {
    /// Whether the event concerns one route only: it is void once the flow comes by another.
    pub(crate) fn is_of_its_route(&self) -> bool {
        !matches!(self, Self::Proven(_) | Self::Control(..) | Self::Readable | Self::Relay(_))
    }
}

/// What the far end was told of how much of a sealed flow has arrived (P14).
#[derive(Debug, Default)]
pub(crate) struct Progress {
    told: u64,
    /// Since when more has arrived than was told.
    since: Option<Time>,
}

/// The far end is told at once when so many more packets have arrived,
const PROGRESS_PACKETS: u64 = 64;
/// and when fewer have, after this long.
const PROGRESS_DELAY: Duration = Duration::from_millis(25);

impl Progress {
    /// All packets below `done` have arrived. True if the far end should be told now.
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

/// A flow that this node receives.
#[derive(Debug)]
pub(crate) struct InFlow {
    pub(crate) id: FlowId,
    pub(crate) session: SessionId,
    /// The link that it comes by, under the label in `open`. `None` if its route broke or it comes in parts.
    pub(crate) on: Option<LinkId>,
    pub(crate) open: FlowOpen,
    pub(crate) receiver: flow::Receiver,
    pub(crate) sink: RecvHalf,
    /// The relayed flow whose receiving half it is, if any.
    pub(crate) relay: Option<RelayId>,
    /// The node has been told to look at that relayed flow, and has not done so yet.
    pub(crate) is_relay_told: bool,
    /// It waits in the ring of flows that may have something to report.
    pub(crate) is_report_queued: bool,
    /// Its link has noted that it is not complete.
    pub(crate) is_coming_noted: bool,
    /// The owner was told that everything was read.
    pub(crate) is_finish_told: bool,
    /// Stream: the application has read the empty chunk at the end.
    pub(crate) is_end_read: bool,
    /// The session was told that everything is here.
    pub(crate) is_received_told: bool,
    /// The session was told that the far end has its keys.
    pub(crate) is_proof_told: bool,
    /// What the far end of a relayed session was told of its arrival.
    pub(crate) progress: Progress,
    /// Coded packets with a wrong tag (P16).
    pub(crate) polluted: u64,
    /// Decoded packets that stand in the trace.
    pub(crate) traced_decoded: u64,
    /// Its account in the node's ledger of memory.
    pub(crate) account: Account,
    /// It waits for memory: packets of it were refused.
    pub(crate) is_waiting: bool,
    /// It has waited and got memory then: what was refused has been asked for.
    pub(crate) invited: Option<Time>,
}

impl InFlow {
    /// A flow of which no packet has come yet. This node's own if it has a session, else relayed.
    pub(crate) fn new(id: FlowId, session: SessionId, open: FlowOpen, receiver: flow::Receiver, sink: RecvHalf, account: Account) -> Self {
        Self {
            id,
            session,
            on: None,
            open,
            receiver,
            sink,
            relay: None,
            is_relay_told: false,
            is_report_queued: false,
            is_coming_noted: false,
            is_finish_told: false,
            is_end_read: false,
            is_received_told: false,
            is_proof_told: false,
            progress: Progress::default(),
            polluted: 0,
            traced_decoded: 0,
            account,
            is_waiting: false,
            invited: None,
        }
    }

    /// The receiving half of a relayed flow.
    pub(crate) fn passing(self, relay: RelayId) -> Self {
        Self { relay: Some(relay), ..self }
    }

    /// It comes by another link from now on, or by none.
    pub(crate) fn rebind(&mut self, open: FlowOpen, initial_credit: u64) {
        let first = open.relayed.map_or(Seq(0), |r| r.first);
        self.receiver.rebind(open.label, first, initial_credit);
        self.open = open;
        self.is_report_queued = false;
    }

    /// To be called after any change: hands over what came, and tells its owner.
    pub(crate) fn tell(&mut self, now: Time, trace: &Tracer, mut tell: impl FnMut(InEvent)) {
        if let Some(relay) = self.relay {
            if !core::mem::replace(&mut self.is_relay_told, true) {
                tell(InEvent::Relay(relay));
            }
            return;
        }
        let mut failure = None;
        while let Some((seq, payload)) = self.receiver.poll_delivery() {
            if let Err(reason) = self.sink.on_packet(now, seq, payload) {
                failure = Some(reason);
                break;
            }
        }
        if self.sink.has_older_key() {
            self.sink.settle_key(self.receiver.done().0);
        }
        if failure.is_none()
            && let Some(end) = self.receiver.end()
        {
            failure = self.sink.on_end(end).err();
        }
        if self.sink.is_proven() && !core::mem::replace(&mut self.is_proof_told, true) {
            tell(InEvent::Proven(self.session));
        }
        if self.open.index == CONTROL_INDEX {
            while let Some(packet) = self.sink.poll_lead() {
                tell(InEvent::Lead(self.session, packet));
            }
            while let Some(message) = self.sink.recv_message() {
                tell(InEvent::Control(self.session, message.data));
            }
        } else if self.sink.has_pieces() {
            tell(InEvent::Pieces);
        } else if self.sink.take_readable() {
            tell(InEvent::Readable);
        }
        self.receiver.consume(self.sink.consumed());
        if trace.is_on() {
            let decoded = self.receiver.stats().decoded_packets;
            let packets = decoded - core::mem::replace(&mut self.traced_decoded, decoded);
            if packets > 0 {
                trace.emit(now, || What::Decoded { flow: self.open.label.0, packets });
            }
        }
        if self.is_progress_due(now) {
            tell(InEvent::Progress);
        }
        if self.sink.has_all() && !core::mem::replace(&mut self.is_received_told, true) {
            tell(InEvent::Received);
        }
        if self.sink.is_finished() && !core::mem::replace(&mut self.is_finish_told, true) {
            tell(InEvent::Finished);
        }
        if let Some(reason) = failure {
            tell(InEvent::Closed(reason));
        }
    }

    /// Whether gaps in it are acknowledged at once (P8).
    pub(crate) fn is_urgent(&self) -> bool {
        (self.open.class == Class::Latency && self.open.index != CONTROL_INDEX) || self.open.waits_in_order()
    }

    /// Whether the far end of a relayed session is to be told now how much has arrived.
    pub(crate) fn is_progress_due(&mut self, now: Time) -> bool {
        let done = self.done_with();
        self.sink.is_keyed() && self.progress.is_due(now, done)
    }

    /// What its source is told: all packets below this number have arrived.
    pub(crate) fn done_with(&self) -> u64 {
        self.sink.newest_piece().unwrap_or(self.receiver.done().0)
    }

    pub(crate) fn poll_timeout(&self) -> Option<Time> {
        [self.receiver.poll_timeout(), self.progress.poll_timeout()].into_iter().flatten().min()
    }

    /// Whether this packet, whose tag is right, lies behind the end that a FLOW_END named: then the far end did not send that FLOW_END (P16).
    pub(crate) fn is_beyond_false_end(&self, coded: &Coded<'_>) -> bool {
        let is_beyond = self.receiver.end().is_some_and(|end| coded.base.0.saturating_add(coded.n.into()) > end.0);
        is_beyond && !self.sink.believes_ends_of_hops() && !self.sink.knows_end()
    }

    pub(crate) fn memory(&self) -> usize {
        // Packets that wait in the sink for their turn and are kept in the receiver to decode their batch exist once in memory.
        let shared = if self.sink.waits_in_order() { self.receiver.handed_over().min(self.sink.held()) } else { 0 };
        self.receiver.memory() + self.sink.memory() - shared
    }

    /// Tells the ledger what is held now, and the receiver what it may hold.
    pub(crate) fn settle(&mut self, ledger: &mut Ledger) {
        let held = self.memory();
        let may_rest = (self.invited.is_none() || !self.receiver.is_short()) && self.account.fits_at_rest(held);
        let allowed = ledger.settle(&mut self.account, held, may_rest);
        // The limit of a relayed flow is for both of its halves together, and set elsewhere. One that rests hears of its limit when it wakes.
        if self.relay.is_none() && allowed >= self.account.floor() {
            self.receiver.set_memory(allowed);
            self.sink.set_memory(allowed);
        }
    }

    /// Something is about to come: it is taken if the flow gets its floor of memory now.
    pub(crate) fn wake(&mut self, ledger: &mut Ledger) -> bool {
        let is_awake = ledger.wake(&mut self.account);
        if is_awake {
            self.receiver.set_memory(ledger.allowed(&self.account));
        }
        self.receiver.withhold(!is_awake);
        is_awake
    }

    /// Counts of both halves.
    pub(crate) fn stats(&self) -> FlowStats {
        let mut stats = FlowStats { app_bytes: 0, polluted_packets: self.polluted, ..self.receiver.stats() };
        self.sink.add_stats(&mut stats);
        stats.memory = self.memory();
        stats
    }
}

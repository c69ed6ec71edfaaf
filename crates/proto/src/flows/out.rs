//! The half of a flow that this node sends: a coded machine, and the session's half that feeds it.

use super::buffer_of;
use crate::error::CloseReason;
use crate::flow;
use crate::ids::{FlowId, FlowLabel, LinkId, RelayId, Seq, SessionId};
use crate::ledger::{Account, Ledger};
use crate::neighbour::Neighbour;
use crate::options::{Class, Mode};
use crate::session::SendHalf;
use crate::stats::FlowStats;
use crate::units::Time;
use crate::wire::frame::FlowOpen;
use std::sync::Arc;
use std::sync::atomic::AtomicU32;

/// What happened to a flow that this node sends.
#[derive(Debug)]
pub(crate) enum OutEvent {
    Writable,
    /// The first packets of a sealed flow were given up.
    Skipped,
    /// A sealed flow has no further packets.
    Ended,
    /// A part can take more of its flow.
    LowWater(SessionId, u64),
    Delivered,
    /// The going half of a flow that passes changed.
    Relay(RelayId),
    Closed(CloseReason),
}

impl OutEvent {
    /// It means nothing when the flow goes by another route by now.
    pub(crate) fn is_of_its_route(&self) -> bool {
        !matches!(self, Self::Writable | Self::LowWater(..) | Self::Relay(_))
    }
}

/// A flow that this node sends.
#[derive(Debug)]
pub(crate) struct OutFlow {
    pub(crate) id: FlowId,
    pub(crate) session: SessionId,
    /// The link that carries it, under the label in `open`. None: it waits for one, or goes by parts.
    pub(crate) on: Option<LinkId>,
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
    pub(crate) origin: Option<Neighbour>,
    /// The node will look at that relayed flow.
    pub(crate) is_relay_told: bool,
    /// A part of a flow that takes several routes: the node gives it more when fewer than this wait, if there is more; 0: not now.
    pub(crate) low_water: u64,
    /// Packets of the whole that are kept until they are known to be there, in bytes.
    pub(crate) kept_bytes: usize,
    /// A part's: how many flows of this link carry parts of the same flow. Together they take the turns of one.
    pub(crate) siblings: Option<Arc<AtomicU32>>,
    /// Waits in the scheduler's ring.
    pub(crate) is_queued: bool,
    /// Waits for spare rate, for proactive repair.
    pub(crate) is_proactive_queued: bool,
    /// Its link has noted that it has a backlog while it waits,
    pub(crate) is_backlog_noted: bool,
    /// something that was never sent,
    pub(crate) is_fresh_noted: bool,
    /// something in flight.
    pub(crate) is_probing: bool,
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
            on: None,
            open,
            is_open_acked: false,
            sender,
            source,
            is_datagram_queued: false,
            relay: None,
            origin: None,
            is_relay_told: false,
            low_water: 0,
            kept_bytes: 0,
            siblings: None,
            is_queued: false,
            is_proactive_queued: false,
            is_backlog_noted: false,
            is_fresh_noted: false,
            is_probing: false,
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

    /// A flow that went by another link, or by none, goes on under this label.
    pub(crate) fn restart(&mut self, label: FlowLabel, initial_credit: u64) {
        self.open.label = label;
        self.sender.restart(label, initial_credit);
        (self.is_open_acked, self.is_announced, self.is_queued, self.is_proactive_queued, self.balance) = (false, false, false, false, 0);
        if let Some(relayed) = &mut self.open.relayed {
            relayed.first = self.sender.first_held();
        }
    }

    /// After anything changed in it: its owner hears what.
    pub(crate) fn tell(&mut self, mut tell: impl FnMut(OutEvent)) {
        while let Some(range) = self.source.poll_abandoned() {
            self.sender.abandon(range);
        }
        self.end_if_drained();
        if self.is_ended && self.source.is_sealed() && !core::mem::replace(&mut self.is_end_told, true) {
            tell(OutEvent::Ended);
        }
        if self.source.is_sealed() && self.sender.skipped() > self.skip_told {
            self.skip_told = self.sender.skipped();
            tell(OutEvent::Skipped);
        }
        if self.source.take_writable() {
            tell(OutEvent::Writable);
        }
        if let Some(relay) = self.relay
            && !core::mem::replace(&mut self.is_relay_told, true)
        {
            tell(OutEvent::Relay(relay));
        }
        if self.sender.unsent() < self.low_water && self.sender.room() > 0 {
            self.low_water = 0;
            tell(OutEvent::LowWater(self.session, self.open.index));
        }
        if self.is_ended && self.sender.is_delivered() {
            tell(OutEvent::Delivered);
        }
    }

    /// Its deadline has come.
    pub(crate) fn handle_timeout(&mut self, now: Time) {
        self.sender.handle_timeout(now);
        self.source.handle_timeout(now);
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

    /// Datagrams that wait for each other are to be sent or protected.
    pub(crate) fn is_ordered_waiting(&self) -> bool {
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
        let is_endless = self.source.is_blocked() || self.low_water > 0 || (self.relay.is_some() && self.open.class == Class::Bulk);
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
        let allowed = ledger.settle(&mut self.account, held, false);
        self.allow(allowed);
    }

    /// Something is about to be written: what others hold may have changed since it last held anything.
    pub(crate) fn look_at_limit(&mut self, ledger: &Ledger) {
        self.allow(ledger.allowed(&self.account));
    }

    fn allow(&mut self, allowed: usize) {
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

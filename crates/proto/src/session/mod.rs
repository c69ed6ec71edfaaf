//! Sessions: end to end over any number of hops. Messages and byte streams over flows, several flows per session, and a close that says
//! whether everything arrived.
//!
//! A session has a control flow in each direction (index 0, `brtp`, ordered messages) for the frames of [`control`], and data flows numbered
//! from 1 in each direction. [`SendHalf`] turns what the application sends into source packets, [`RecvHalf`] turns source packets into what the
//! application receives, [`Session`] keeps the flows' names and the state of the whole. `docs/spec/session.md` describes the bytes.

mod budget;
mod close;
pub mod control;
mod datagrams;
mod flows;
pub mod handshake;
mod inorder;
mod items;
mod join;
mod message;
mod ordered;
mod packetise;
mod part;
mod queue;
mod reassemble;
mod seal;
mod slab_size;
mod stale;
mod stream;
mod stream_queue;
#[cfg(test)]
mod tests;
mod unordered;

pub use budget::{MessageBudget, Reservation};
pub use control::{SessionFrame, SessionLimits};
pub use flows::{Accepted, Direction, FlowTable};
pub use message::Message;
pub use packetise::{MIN_SYMBOL, OutSymbol, SendHalf, SendLimits};
pub use reassemble::{RecvHalf, RecvLimits, Verdict};
pub use seal::Cipher;

use crate::error::{CloseReason, Code, CommandError, Layer};
use crate::event::SessionOutcome;
use crate::ids::{FlowId, SessionKey};
use crate::options::{Class, FlowKind, FlowOptions, Mode};
use crate::units::{Duration, Time};
use crate::wire::varint::{self, Reader};
use bytes::Bytes;
use close::Closing;
use std::collections::{BTreeMap, VecDeque};

/// Index of the control flow.
pub const CONTROL_INDEX: u64 = 0;
/// Largest control message, bytes: limit of both control halves.
pub const MAX_CONTROL_MESSAGE: usize = 64 * 1024;
/// Frames waiting for the control flow, beyond which no further flow of the far end is accepted.
const MAX_QUEUED: usize = 4096;
/// PART_DELIVERED and WINDOW that wait for the control flow, for each flow that the far end may have: it has eight parts of one at once, and may replace them.
const MOST_WORDS_PER_FLOW: usize = 16;
/// Flows that one KEYS names, if it is not the last of its generation.
pub(crate) const FIRSTS_AT_ONCE: usize = 64;
/// Control messages are cut when they exceed this many bytes.
const CONTROL_TARGET: usize = 1024;

/// Which end of the session this is.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Hash)]
pub enum SessionRole {
    /// It chose the key.
    Opener,
    /// It got the first FLOW_OPEN with a new key.
    Acceptor,
}

/// Where a session stands.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Hash)]
pub enum SessionState {
    /// Opened here; the far end has not answered. Data flows already.
    Opening,
    /// Both ends know it.
    Open,
    /// One end closes; what was written is still being delivered.
    Closing,
    /// Over: [`Session::outcome`] is known.
    Closed,
}

/// What a control message asks of the owner of the flows.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum SessionAction {
    /// The far end accepted the session.
    Opened,
    /// The far end's limits: `max_message` for every [`SendHalf`], `credit` for flows opened from now on.
    Limits(SessionLimits),
    /// The far end's session acknowledges the first `packets` packets of a flow of ours (P14).
    Delivered {
        /// Our flow.
        flow: FlowId,
        /// Packets.
        packets: u64,
        /// The flow is finished, and this is all of it.
        is_complete: bool,
    },
    /// The far end gave up a flow towards us.
    Reset {
        /// The receiving half.
        flow: FlowId,
        /// The application's code.
        code: u64,
    },
    /// The far end wants no more of a flow of ours.
    Stop {
        /// The sending half.
        flow: FlowId,
        /// The application's code.
        code: u64,
    },
    /// The far end closes the session: finish every sending flow; what was written will still be delivered.
    PeerClosing(CloseReason),
    /// Symbols of at most so many bytes reach the far end uncut: for flows opened from now on.
    Fits(u16),
    /// The first packets of a flow towards us were given up.
    Skip {
        /// The receiving half.
        flow: FlowId,
        /// First packet that still counts.
        floor: u64,
    },
    /// Packets of ours were altered on the route to the far end.
    Polluted,
    /// The far end has the first packets of a part of a flow of ours.
    PartDelivered {
        /// Our flow.
        flow: FlowId,
        /// Part.
        part: u64,
        /// Packets of the part.
        packets: u64,
    },
    /// The far end has room for the packets of a flow of ours below a limit.
    Window {
        /// Our flow.
        flow: FlowId,
        /// One past the last packet.
        limit: u64,
    },
    /// The far end's session acknowledges the first packets of our control flow (P14).
    ControlDelivered(u64),
    /// A message of the exchange that leads to the next generation of keys.
    Rekey {
        /// Generation.
        generation: u64,
        /// 0: the opener's, 1: the acceptor's.
        step: u8,
        /// Noise message.
        message: Vec<u8>,
    },
    /// The far end seals with a generation of keys from now on.
    Keys {
        /// Generation.
        generation: u64,
        /// All its flows have been named.
        is_last: bool,
        /// Index, part and first packet of the generation.
        firsts: Vec<(u64, u64, u64)>,
    },
    /// A flow towards us has this many packets in all.
    FlowEnd {
        /// The receiving half.
        flow: FlowId,
        /// Packets.
        packets: u64,
    },
}

/// Options of the control flow, in both directions.
pub fn control_options() -> FlowOptions {
    // Small batches: what a flow owns at each node is two of them (P15), and control messages never fill many.
    FlowOptions { mode: Mode::Brtp, kind: FlowKind::OrderedMessages, class: Class::Latency, batch_size: 8, ..FlowOptions::default() }
}

/// Refuses options that contradict each other, with a sentence that says which.
///
/// # Errors
/// `Misuse`.
pub fn check_options(options: &FlowOptions) -> Result<(), CommandError> {
    let misuse = |text| Err(CommandError::Misuse(text));
    match options {
        FlowOptions { kind: FlowKind::Stream, mode: Mode::Btp | Mode::Transparent, .. } => {
            misuse("a stream is reliable: it needs mode brtp")
        }
        FlowOptions { kind: FlowKind::OrderedMessages, mode: Mode::Transparent, .. } => {
            misuse("datagrams come in the order in which the network brings them: transparent needs unordered messages")
        }
        FlowOptions { kind: FlowKind::Stream, lifetime: Some(_), .. } => misuse("a stream has no messages, so no lifetime either"),
        FlowOptions { batch_size, .. } if ![8, 16, 32, 64].contains(batch_size) => misuse("the batch size must be 8, 16, 32 or 64"),
        FlowOptions { tag, .. } if *tag > varint::MAX => misuse("the tag must be below 2^62"),
        _ => Ok(()),
    }
}

pub(crate) fn violation(what: &str) -> CloseReason {
    CloseReason::local(Code::SessionProtocol, Layer::Session, what)
}

pub(crate) fn message_too_large(size: u64, limit: usize) -> CloseReason {
    CloseReason::local(Code::MessageTooLarge, Layer::Session, format!("a message of {size} bytes, at most {limit} were announced"))
}

/// What the far end says of a flow on the control flow, with authority.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct FarWord {
    /// Packets in all.
    pub end: Option<u64>,
    /// First packet that still counts.
    pub floor: u64,
}

/// A session: names, limits, control frames and the close handshake. The halves of its flows belong to the owner of the flows.
#[derive(Debug)]
pub struct Session {
    key: SessionKey,
    role: SessionRole,
    state: SessionState,
    local: SessionLimits,
    peer: SessionLimits,
    has_peer_params: bool,
    flows: FlowTable,
    out: VecDeque<SessionFrame>,
    /// Frames that have left `out`, and where in all there were the SKIPs stand that wait there.
    taken: u64,
    skips: BTreeMap<u64, u64>,
    /// What the far end said of flows that were not heard of yet.
    early: BTreeMap<u64, FarWord>,
    /// The far end's control flow brought more than acknowledgements of ours, and has not been acknowledged since.
    is_control_owed: bool,
    /// See [`take_asks`](Self::take_asks).
    asks: bool,
    /// Packets of our control flow that the far end has acknowledged.
    control_delivered: u64,
    /// FLOW_DELIVERED to be sent: only the newest count of a flow matters.
    acknowledgements: BTreeMap<u64, u64>,
    /// PART_DELIVERED and WINDOW to be sent, for the same reason.
    parts: BTreeMap<(u64, u64), u64>,
    windows: BTreeMap<u64, u64>,
    closing: Option<Closing>,
    outcome: Option<SessionOutcome>,
}

impl Session {
    /// A session. `local`: what this side takes; `peer`: what the far end takes for certain, from the link's handshake or a floor that every node
    /// grants; its own PARAMS may raise that.
    pub fn new(key: SessionKey, role: SessionRole, local: SessionLimits, peer: SessionLimits) -> Self {
        let mut out = VecDeque::from([SessionFrame::Params(local)]);
        if role == SessionRole::Acceptor {
            out.push_back(SessionFrame::Accept);
        }
        Self {
            key,
            role,
            state: if role == SessionRole::Opener { SessionState::Opening } else { SessionState::Open },
            local,
            peer,
            has_peer_params: false,
            flows: FlowTable::default(),
            out,
            taken: 0,
            skips: BTreeMap::new(),
            early: BTreeMap::new(),
            is_control_owed: false,
            asks: false,
            control_delivered: 0,
            acknowledgements: BTreeMap::new(),
            parts: BTreeMap::new(),
            windows: BTreeMap::new(),
            closing: None,
            outcome: None,
        }
    }

    /// The session takes another name, as long as the far end has not heard of it.
    pub(crate) fn rename(&mut self, key: SessionKey) {
        self.key = key;
    }

    /// Name of the session at both ends.
    pub fn key(&self) -> SessionKey {
        self.key
    }
    /// Which end this is.
    pub fn role(&self) -> SessionRole {
        self.role
    }
    /// Where it stands.
    pub fn state(&self) -> SessionState {
        self.state
    }
    /// What the far end takes, as far as is known.
    pub fn peer_limits(&self) -> SessionLimits {
        self.peer
    }
    /// The flow of this side that a flow of the far end with this word answers; the flow may be over since long.
    pub fn take_question(&mut self, index: u64) -> Option<FlowId> {
        self.flows.take_question(index)
    }
    /// Its flows.
    pub fn flows(&self) -> &FlowTable {
        &self.flows
    }
    /// How it ended.
    pub fn outcome(&self) -> Option<&SessionOutcome> {
        self.outcome.as_ref()
    }

    /// Opens a data flow towards the far end; its index for FLOW_OPEN.
    ///
    /// # Errors
    /// `Limit`, `Misuse` for options that contradict each other, `Closed`.
    pub fn open_flow(&mut self, flow: FlowId, options: &FlowOptions) -> Result<u64, CommandError> {
        check_options(options)?;
        if let Some(closing) = &self.closing {
            return Err(CommandError::Closed(closing.reason().clone()));
        }
        if let Some(outcome) = &self.outcome {
            return Err(CommandError::Closed(outcome.reason.clone()));
        }
        self.flows.open(flow, options, self.peer.max_flows)
    }

    /// What a FLOW_OPEN of this index would be; see [`accept_flow`](Self::accept_flow).
    ///
    /// # Errors
    /// As for `accept_flow`.
    pub fn inspect_flow(&self, index: u64) -> Result<Accepted, CloseReason> {
        self.flows.inspect(index, self.local.max_flows)
    }

    /// The far end opened the data flow `index`, which is called `flow` here if it is new.
    ///
    /// # Errors
    /// `TooMany` or `SessionProtocol`: the session must be closed.
    pub fn accept_flow(&mut self, index: u64, flow: FlowId, options: &FlowOptions) -> Result<Accepted, CloseReason> {
        check_options(options).map_err(|e| violation(&e.to_string()))?;
        if self.out.len() + self.acknowledgements.len() > MAX_QUEUED {
            return Err(CloseReason::local(Code::TooMany, Layer::Session, "flows come and go, but the control flow is not acknowledged"));
        }
        self.flows.accept(index, flow, options.mode, self.local.max_flows)
    }

    /// A flow of ours is finished and packetised: `total` packets in all. True if the far end has already acknowledged all of them.
    pub fn flow_finished(&mut self, now: Time, flow: FlowId, total: u64) -> bool {
        let Some((Direction::Outgoing, index)) = self.flows.index_of(flow) else { return false };
        let is_complete = self.flows.finish(index, total);
        self.step(now);
        is_complete
    }

    /// The flow layer knows that everything of a finished flow of ours arrived. To be told only where the neighbour is the far end: behind a
    /// relay nothing but FLOW_DELIVERED counts (P14). True if that is news.
    pub fn flow_delivered(&mut self, now: Time, flow: FlowId) -> bool {
        let Some((Direction::Outgoing, index)) = self.flows.index_of(flow) else { return false };
        let is_news = self.flows.complete_outgoing(index);
        self.step(now);
        is_news
    }

    /// The first `packets` packets of a flow towards us were received; `is_all`: that is the whole flow ([`RecvHalf::has_all`]). Queues
    /// FLOW_DELIVERED (P14): always for a whole flow; progress when the caller finds it worth a frame.
    pub fn flow_received(&mut self, now: Time, flow: FlowId, packets: u64, is_all: bool) {
        let Some((Direction::Incoming, index)) = self.flows.index_of(flow) else { return };
        if is_all && !self.flows.complete_incoming(index) {
            return;
        }
        let newest = self.acknowledgements.entry(index).or_default();
        *newest = packets.max(*newest);
        self.step(now);
    }

    /// Packets of a flow of ours that the far end has acknowledged.
    pub fn delivered(&self, flow: FlowId) -> u64 {
        match self.flows.index_of(flow) {
            Some((Direction::Outgoing, index)) => self.flows.acknowledged(index),
            _ => 0,
        }
    }

    /// Packets of our control flow that the far end has acknowledged.
    pub fn control_delivered(&self) -> u64 {
        self.control_delivered
    }

    /// The far end waits for word of its control flow; once.
    pub fn take_control_worth(&mut self) -> bool {
        core::mem::take(&mut self.is_control_owed)
    }

    /// The first `packets` packets of the far end's control flow were received (P14).
    pub fn control_received(&mut self, packets: u64) {
        self.acknowledgements.insert(CONTROL_INDEX, packets);
    }

    /// A flow towards us ended without everything having been received, in mode `btp` the normal case.
    pub fn flow_ended(&mut self, now: Time, flow: FlowId) {
        if let Some((Direction::Incoming, index)) = self.flows.index_of(flow) {
            self.flows.give_up_incoming(index);
            self.step(now);
        }
    }

    /// This side gives up a flow of its own: queues RESET.
    pub fn reset_flow(&mut self, now: Time, flow: FlowId, mode: Mode, code: u64) {
        if let Some((Direction::Outgoing, index)) = self.flows.index_of(flow)
            && self.flows.give_up_outgoing(index)
        {
            self.out.push_back(SessionFrame::Reset { index, mode, code: code.min(varint::MAX) });
            self.step(now);
        }
    }

    /// This side wants no more of a flow towards it: queues STOP.
    pub fn stop_flow(&mut self, now: Time, flow: FlowId, code: u64) {
        if let Some((Direction::Incoming, index)) = self.flows.index_of(flow)
            && self.flows.give_up_incoming(index)
        {
            self.out.push_back(SessionFrame::Stop { index, code: code.min(varint::MAX) });
            self.step(now);
        }
    }

    /// The neighbour refused or reset a flow at its own level: it counts as given up.
    pub fn flow_lost(&mut self, now: Time, flow: FlowId) {
        match self.flows.index_of(flow) {
            Some((Direction::Outgoing, index)) => drop(self.flows.give_up_outgoing(index)),
            Some((Direction::Incoming, index)) => drop(self.flows.give_up_incoming(index)),
            None => {}
        }
        self.step(now);
    }

    /// Forgets a flow whose halves are gone; its place counts against the limits until then. An open flow counts as given up.
    pub fn remove_flow(&mut self, now: Time, flow: FlowId) {
        self.flows.remove(flow);
        self.step(now);
    }

    /// Everything that was written to this flow of ours is known to be there.
    pub fn is_flow_delivered(&self, flow: FlowId) -> bool {
        matches!(self.flows.index_of(flow), Some((Direction::Outgoing, index)) if self.flows.is_complete_outgoing(index))
    }

    /// Closes gracefully: no new flows; the owner finishes all sending flows; CLOSE is sent when they are delivered, and the session ends at the
    /// latest after `linger`. A second call can only shorten the time.
    pub fn close(&mut self, now: Time, reason: CloseReason, linger: Duration) {
        if self.state == SessionState::Closed {
            return;
        }
        let deadline = now + linger;
        match &mut self.closing {
            Some(closing) => closing.shorten(deadline),
            None => self.closing = Some(Closing::asked(reason, deadline)),
        }
        self.state = SessionState::Closing;
        self.step(now);
    }

    /// A control message of the far end. What it asks for is done in order; afterwards [`outcome`](Self::outcome) may be known.
    ///
    /// # Errors
    /// The session must be closed with this reason at once.
    pub fn on_control(&mut self, now: Time, message: &[u8]) -> Result<Vec<SessionAction>, CloseReason> {
        let mut actions = Vec::new();
        if self.state == SessionState::Closed {
            return Ok(actions);
        }
        let mut reader = Reader::new(message);
        while let Some(frame) = SessionFrame::parse(&mut reader)? {
            // Acknowledgements of acknowledgements would never end.
            self.is_control_owed |= !matches!(frame, SessionFrame::FlowDelivered { index: CONTROL_INDEX, .. });
            self.on_frame(now, frame, &mut actions)?;
        }
        self.step(now);
        Ok(actions)
    }

    fn on_frame(&mut self, now: Time, frame: SessionFrame, actions: &mut Vec<SessionAction>) -> Result<(), CloseReason> {
        if !self.has_peer_params && !matches!(frame, SessionFrame::Params(_)) {
            return Err(violation("the first frame of a session must be PARAMS"));
        }
        match frame {
            SessionFrame::Params(limits) => self.on_params(limits, actions)?,
            SessionFrame::Accept if self.role == SessionRole::Acceptor => {
                return Err(violation("ACCEPT from the side that opened the session"));
            }
            SessionFrame::Accept => {
                if self.state == SessionState::Opening {
                    self.state = SessionState::Open;
                    actions.push(SessionAction::Opened);
                }
            }
            SessionFrame::FlowDelivered { index: CONTROL_INDEX, packets } => {
                self.control_delivered = self.control_delivered.max(packets);
                actions.push(SessionAction::ControlDelivered(packets));
            }
            SessionFrame::FlowDelivered { index, packets } => {
                self.check_opened(index)?;
                let is_complete = self.flows.acknowledge(index, packets)?;
                if let Some(flow) = self.flows.outgoing(index) {
                    actions.push(SessionAction::Delivered { flow, packets, is_complete });
                }
            }
            SessionFrame::PartDelivered { index, part, packets } => {
                self.check_opened(index)?;
                if let Some(flow) = self.flows.outgoing(index) {
                    actions.push(SessionAction::PartDelivered { flow, part, packets });
                }
            }
            SessionFrame::Window { index, limit } => {
                self.check_opened(index)?;
                if let Some(flow) = self.flows.outgoing(index) {
                    actions.push(SessionAction::Window { flow, limit });
                }
            }
            SessionFrame::Rekey { generation, step, message } => actions.push(SessionAction::Rekey { generation, step, message }),
            SessionFrame::Keys { generation, is_last, firsts } => actions.push(SessionAction::Keys { generation, is_last, firsts }),
            SessionFrame::Fits { symbol } => actions.push(SessionAction::Fits(u16::try_from(symbol).unwrap_or(u16::MAX))),
            SessionFrame::End { index, packets } => match self.flows.incoming(index) {
                Some(flow) => actions.push(SessionAction::FlowEnd { flow, packets }),
                None => {
                    if let Some(word) = self.early_word(index)? {
                        word.end = Some(packets);
                    }
                }
            },
            SessionFrame::Skip { index, floor } => match self.flows.incoming(index) {
                Some(flow) => actions.push(SessionAction::Skip { flow, floor }),
                None => {
                    if let Some(word) = self.early_word(index)? {
                        word.floor = floor;
                    }
                }
            },
            SessionFrame::Polluted { index, .. } => {
                if index != CONTROL_INDEX {
                    self.check_opened(index)?;
                }
                actions.push(SessionAction::Polluted);
            }
            SessionFrame::Stop { index, code } => {
                self.check_opened(index)?;
                if let Some(flow) = self.flows.outgoing(index)
                    && self.flows.give_up_outgoing(index)
                {
                    actions.push(SessionAction::Stop { flow, code });
                }
            }
            SessionFrame::Reset { index, mode, code } => {
                let was_open = self.flows.reset_incoming(index, mode)?;
                if let Some(flow) = self.flows.incoming(index)
                    && was_open
                {
                    actions.push(SessionAction::Reset { flow, code });
                }
            }
            SessionFrame::Close { mut reason, linger, totals } => {
                reason.is_remote = true;
                self.tell_ends(&totals, actions);
                if self.closing.is_none() {
                    actions.push(SessionAction::PeerClosing(reason.clone()));
                }
                let closing = self.closing.get_or_insert_with(|| Closing::by_peer(reason, now + linger));
                if linger.is_zero() {
                    closing.shorten(now); // The far end is gone already.
                }
                closing.on_close(totals);
                self.state = SessionState::Closing;
            }
            SessionFrame::Closed { all_received, totals } => {
                self.tell_ends(&totals, actions);
                if !self.closing.as_mut().is_some_and(|c| c.on_closed(all_received, totals)) {
                    return Err(violation("CLOSED without CLOSE"));
                }
            }
        }
        Ok(())
    }

    /// Where the far end's word about a flow to come is kept; `None` if the flow is over.
    fn early_word(&mut self, index: u64) -> Result<Option<&mut FarWord>, CloseReason> {
        let is_known = self.early.contains_key(&index);
        if !is_known && self.early.len() as u64 >= self.local.max_flows {
            return Err(CloseReason::local(Code::TooMany, Layer::Session, "the ends of more flows than were permitted"));
        }
        Ok(match self.inspect_flow(index)? {
            Accepted::New => Some(self.early.entry(index).or_default()),
            Accepted::Known(_) | Accepted::Over => None,
        })
    }

    /// What the far end said of a flow before its FLOW_OPEN came.
    pub fn take_far_word(&mut self, index: u64) -> FarWord {
        self.early.remove(&index).unwrap_or_default()
    }

    /// Tells the far end how a flow of ours ends (P16).
    pub fn tell_end(&mut self, now: Time, flow: FlowId, packets: u64) {
        if let Some((Direction::Outgoing, index)) = self.flows.index_of(flow) {
            self.out.push_back(SessionFrame::End { index, packets });
            self.flow_finished(now, flow, packets);
        }
    }

    /// Tells the far end that the first packets of a flow of ours do not come any more.
    pub fn tell_skip(&mut self, flow: FlowId, floor: u64) {
        if let Some((Direction::Outgoing, index)) = self.flows.index_of(flow) {
            // Only the newest counts, and where no way is open many may come to wait.
            let at = self.skips.get(&index).map(|at| (at - self.taken) as usize);
            match at.and_then(|at| self.out.get_mut(at)) {
                Some(SessionFrame::Skip { floor: known, .. }) => *known = floor.max(*known),
                _ => {
                    self.skips.insert(index, self.taken + self.out.len() as u64);
                    self.out.push_back(SessionFrame::Skip { index, floor });
                }
            }
        }
    }

    /// Sends a message of the exchange that leads to the next generation of keys.
    pub fn tell_rekey(&mut self, generation: u64, step: u8, message: Vec<u8>) {
        self.out.push_back(SessionFrame::Rekey { generation, step, message });
    }

    /// Tells the far end that what leaves from now on is sealed by this generation of keys, and which packets of which flows are the first.
    pub fn tell_keys(&mut self, generation: u64, firsts: &[(u64, u64, u64)]) {
        let mut rest = firsts;
        loop {
            let (these, others) = rest.split_at(rest.len().min(FIRSTS_AT_ONCE));
            rest = others;
            self.out.push_back(SessionFrame::Keys { generation, is_last: rest.is_empty(), firsts: these.to_vec() });
            if rest.is_empty() {
                return;
            }
        }
    }

    /// Tells the far end that packets of its flow `index` were altered on the route.
    pub fn tell_pollution(&mut self, index: u64, packets: u64) {
        self.out.push_back(SessionFrame::Polluted { index, packets });
    }

    /// Tells the far end how far a part of its flow `index` has come.
    pub fn tell_part(&mut self, index: u64, part: u64, packets: u64) {
        self.parts.insert((index, part), packets);
    }

    /// Tells the far end what this side has room for of its flow `index`.
    pub fn tell_window(&mut self, index: u64, limit: u64) {
        self.windows.insert(index, limit);
    }

    /// Tells the far end what symbols reach this side uncut.
    pub fn tell_fits(&mut self, symbol: u16) {
        self.out.push_back(SessionFrame::Fits { symbol: symbol.into() });
    }

    fn on_params(&mut self, limits: SessionLimits, actions: &mut Vec<SessionAction>) -> Result<(), CloseReason> {
        if core::mem::replace(&mut self.has_peer_params, true) {
            return Err(violation("PARAMS came twice"));
        }
        if limits.max_message < self.peer.max_message || limits.max_flows < self.peer.max_flows || limits.credit < self.peer.credit {
            return Err(CloseReason::local(Code::Parameter, Layer::Session, "PARAMS take back what the handshake granted"));
        }
        self.peer = limits;
        actions.push(SessionAction::Limits(limits));
        Ok(())
    }

    fn check_opened(&self, index: u64) -> Result<(), CloseReason> {
        if self.flows.was_opened(index) { Ok(()) } else { Err(violation("a frame names a flow that was never opened")) }
    }

    fn tell_ends(&self, totals: &control::Totals, actions: &mut Vec<SessionAction>) {
        let known = totals.ends.iter().filter_map(|&(index, packets)| Some((self.flows.incoming(index)?, packets)));
        actions.extend(known.map(|(flow, packets)| SessionAction::FlowEnd { flow, packets }));
    }

    /// The control messages that were polled since this was asked hold something that the far end will acknowledge.
    pub fn take_asks(&mut self) -> bool {
        core::mem::take(&mut self.asks)
    }

    /// The next control message to send on the control flow.
    pub fn poll_control(&mut self, _now: Time) -> Option<Bytes> {
        if !self.has_control() {
            return None;
        }
        self.asks |= !self.out.is_empty() || !self.parts.is_empty() || !self.windows.is_empty();
        self.asks |= self.acknowledgements.keys().any(|index| *index != CONTROL_INDEX);
        let mut message = Vec::new();
        // PARAMS come first; CLOSED must come after the acknowledgements that it builds on.
        while message.len() < CONTROL_TARGET {
            let is_behind = matches!(self.out.front(), Some(SessionFrame::Close { .. } | SessionFrame::Closed { .. }) | None);
            if is_behind && let Some(((index, part), packets)) = self.parts.pop_first() {
                SessionFrame::PartDelivered { index, part, packets }.emit(&mut message);
            } else if is_behind && let Some((index, limit)) = self.windows.pop_first() {
                SessionFrame::Window { index, limit }.emit(&mut message);
            } else if is_behind && let Some((index, packets)) = self.acknowledgements.pop_first() {
                SessionFrame::FlowDelivered { index, packets }.emit(&mut message);
            } else if let Some(frame) = self.out.pop_front() {
                self.taken += 1;
                if let SessionFrame::Skip { index, .. } = frame {
                    self.skips.remove(&index);
                }
                frame.emit(&mut message);
            } else {
                break;
            }
        }
        Some(message.into())
    }

    /// The far end makes this side say ever more, of numbers that it chooses, and takes none of it.
    pub fn owes_too_much(&self) -> bool {
        let most = MOST_WORDS_PER_FLOW * usize::try_from(self.local.max_flows).unwrap_or(usize::MAX).clamp(64, MAX_QUEUED);
        self.state != SessionState::Closed && self.parts.len() + self.windows.len() > most
    }

    /// [`poll_control`](Self::poll_control) has something. O(1).
    pub fn has_control(&self) -> bool {
        !self.out.is_empty() || !self.acknowledgements.is_empty() || !self.parts.is_empty() || !self.windows.is_empty()
    }

    /// Everything that `poll_control` gave is known to have reached the far end. Only matters while closing.
    pub fn on_control_delivered(&mut self, now: Time) {
        if !self.has_control()
            && let Some(closing) = &mut self.closing
        {
            closing.on_control_delivered();
            self.step(now);
        }
    }

    /// The link is gone: the session ends with what is known.
    pub fn on_link_lost(&mut self, _now: Time, reason: CloseReason) {
        if self.state == SessionState::Closed {
            return;
        }
        self.end(match &self.closing {
            Some(closing) => closing.broken(&self.flows, reason),
            None => SessionOutcome { reason, all_delivered: self.flows.outgoing_complete(), all_received: false },
        });
    }

    /// Ends at once because the far end broke the protocol or this side cannot go on: queues a CLOSE that says why, which the owner sends if it can.
    pub fn fail(&mut self, now: Time, reason: CloseReason) {
        if self.state == SessionState::Closed {
            return;
        }
        let totals = self.flows.totals(close::MAX_ENDS);
        self.out.push_back(SessionFrame::Close { reason: reason.clone(), linger: Duration::ZERO, totals });
        self.on_link_lost(now, reason);
    }

    /// When [`handle_timeout`](Self::handle_timeout) wants to be called. O(1).
    pub fn poll_timeout(&self) -> Option<Time> {
        match self.state {
            SessionState::Closed => None,
            _ => self.closing.as_ref().map(Closing::deadline),
        }
    }

    /// The linger time may be over.
    pub fn handle_timeout(&mut self, now: Time) {
        self.step(now);
    }

    /// Bytes of memory held, roughly: the table of flows and queued frames.
    pub fn memory(&self) -> usize {
        size_of::<Self>() + self.out.len() * size_of::<SessionFrame>() + (self.acknowledgements.len() + self.flows.len()) * 64
    }

    fn step(&mut self, now: Time) {
        let Some(closing) = &mut self.closing else { return };
        if self.state == SessionState::Closed {
            return;
        }
        while let Some(frame) = closing.step(now, &self.flows) {
            self.out.push_back(frame);
        }
        if let Some(outcome) = closing.outcome(now, &self.flows) {
            self.end(outcome);
        }
    }

    fn end(&mut self, outcome: SessionOutcome) {
        self.state = SessionState::Closed;
        self.outcome = Some(outcome);
    }
}

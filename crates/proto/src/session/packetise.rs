//! The sending half of a flow: turns messages or bytes into source packets, pulled by the link when the flow has room.
//!
//! Packets are numbered in the order in which they are polled, exactly as [`flow::Sender::push`](crate::flow) numbers them.

use super::items;
use super::queue::{MessageQueue, Queued};
use super::seal::Cipher;
use super::slab_size::SlabSize;
use super::stale::StaleMessages;
use super::stream_queue::StreamQueue;
use crate::crypto::{FlowGeneration, FlowKey};
use crate::error::{CloseReason, Code, CommandError, Layer};
use crate::flow::Symbol;
use crate::ids::Seq;
use crate::options::{Class, FlowKind, FlowOptions, MessageOptions, Mode};
use crate::stats::FlowStats;
use crate::units::{Duration, Time};
use bytes::{BufMut, Bytes, BytesMut};
use core::ops::Range;
use std::collections::VecDeque;

/// Symbols smaller than this are not made: there would be hardly room for framing.
pub const MIN_SYMBOL: usize = 64;
/// With less room than this behind a message no further message is begun in its packet.
const MIN_FOLLOW: usize = 16;
/// A message is not cut for fewer bytes than this.
const MIN_PIECE: usize = 64;

/// Bounds of a sending half, in bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SendLimits {
    /// Queued and not yet packetised, at most; one message is taken in any case when the queue is empty (P18).
    pub buffer: usize,
    /// Largest message that the far end takes, as far as is known (P18).
    pub max_message: usize,
}

/// One source packet.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct OutSymbol {
    /// Its number: the one that the flow gives it when symbols are pushed in the order in which they were polled.
    pub seq: Seq,
    /// The packet.
    pub symbol: Symbol,
    /// When nothing in it matters any more.
    pub deadline: Option<Time>,
    /// A message ends in it, or the stream has no more bytes now.
    pub last_of_message: bool,
}

#[derive(Clone, Debug, PartialEq, Eq)]
enum SendState {
    Open,
    Finished,
    Reset(u64),
}

/// A message of which a part has been packetised.
#[derive(Debug)]
struct Begun {
    id: u64,
    rest: Bytes,
    /// Packet with its head.
    head: u64,
    /// Other messages share the packet with the head.
    head_is_shared: bool,
    deadline: Option<Time>,
}

/// The sending half. See the module's documentation.
#[derive(Debug)]
pub struct SendHalf {
    kind: FlowKind,
    mode: Mode,
    /// Messages that would fit into a packet of their own may be cut to fill packets.
    fills_packets: bool,
    /// Time counts, and what comes too late is worth nothing.
    drops_stale: bool,
    stale: StaleMessages,
    lifetime: Option<Duration>,
    limits: SendLimits,
    /// What the owner asked for, beside what memory allows.
    wished_buffer: usize,
    /// Largest message that fits a packet, where messages are not cut.
    largest_whole: usize,
    cipher: Cipher,
    /// What it carries goes by several parts, which are sealed, each for itself.
    is_whole: bool,
    /// Handshake packets of a sealed session's control flow, which go first and as they are.
    lead: VecDeque<Bytes>,
    state: SendState,
    stream: StreamQueue,
    queue: MessageQueue,
    begun: Option<Begun>,
    /// Head of a begun message that was given up and that the receiver must hear of.
    abort: Option<u64>,
    abandoned: VecDeque<Range<Seq>>,
    next_seq: u64,
    next_id: u64,
    slab: BytesMut,
    slab_size: SlabSize,
    /// Room that the last refused command wanted.
    blocked: Option<usize>,
    app_bytes: u64,
    messages: u64,
    dropped: u64,
}

impl SendHalf {
    /// A half for a flow with these options, which must have passed [`check_options`](super::check_options).
    pub fn new(options: &FlowOptions, limits: SendLimits) -> Self {
        Self {
            kind: options.kind,
            mode: options.mode,
            // A message in one packet needs one packet to arrive; a full packet saves headers. Each where it counts.
            fills_packets: options.class == Class::Bulk && options.mode == Mode::Brtp,
            drops_stale: options.class == Class::Latency && options.mode == Mode::Btp,
            stale: StaleMessages::default(),
            lifetime: options.lifetime,
            limits: SendLimits { buffer: limits.buffer.min(options.send_buffer.unwrap_or(usize::MAX)), ..limits },
            wished_buffer: options.send_buffer.unwrap_or(usize::MAX),
            largest_whole: usize::MAX,
            cipher: Cipher::None,
            is_whole: false,
            lead: VecDeque::new(),
            state: SendState::Open,
            stream: StreamQueue::default(),
            queue: MessageQueue::default(),
            begun: None,
            abort: None,
            abandoned: VecDeque::new(),
            next_seq: 0,
            next_id: 0,
            slab: BytesMut::new(),
            slab_size: SlabSize::default(),
            blocked: None,
            app_bytes: 0,
            messages: 0,
            dropped: 0,
        }
    }

    /// A half for a flow that goes by several parts (docs/spec/multipath.md 6).
    pub fn whole(options: &FlowOptions, limits: SendLimits) -> Self {
        Self { is_whole: true, ..Self::new(options, limits) }
    }

    /// What this flow carries is sealed end to end: until [`set_key`](Self::set_key) nothing but handshake packets leaves.
    pub fn await_key(&mut self) {
        self.cipher = Cipher::Awaited;
    }

    /// It goes by several parts.
    pub fn is_in_parts(&self) -> bool {
        self.is_whole
    }

    /// The next source packet of a part: a packet of the whole with its number. `None` if it cannot be sealed.
    pub fn seal_piece(&mut self, number: u64, packet: &[u8]) -> Option<Bytes> {
        let mut symbol = super::part::symbol_of(number, packet, self.cipher.prefix(), self.cipher.overhead());
        self.cipher.seal(Seq(self.next_seq), &mut symbol).ok()?;
        self.next_seq += 1;
        Some(symbol.freeze())
    }

    /// The key of this flow.
    pub fn set_key(&mut self, key: FlowKey) {
        self.cipher = Cipher::Sealed(Box::new(key));
    }

    /// The next packet is the first that the session's next generation of keys seals.
    pub fn renew_key(&mut self, next: FlowGeneration) {
        if let Some(key) = self.cipher.key_mut() {
            key.renew(next);
        }
    }

    /// There is a key.
    pub fn is_keyed(&self) -> bool {
        self.cipher.key().is_some()
    }

    /// What this flow carries is sealed end to end.
    pub fn is_sealed(&self) -> bool {
        self.is_whole || !matches!(self.cipher, Cipher::None)
    }

    /// Nothing but handshake packets can leave.
    pub fn is_awaiting_key(&self) -> bool {
        !self.cipher.is_ready()
    }

    /// The next packet belongs to the handshake.
    pub fn has_lead(&self) -> bool {
        !self.lead.is_empty()
    }

    /// The flow need not be announced yet: nothing of it has left, or can.
    pub fn is_held(&self) -> bool {
        self.is_awaiting_key() && self.lead.is_empty() && self.next_seq == 0
    }

    /// Queues a packet of the session's handshake: it leaves before anything else, neither framed nor sealed.
    pub fn push_lead(&mut self, packet: Vec<u8>) {
        self.lead.push_back(packet.into());
    }

    /// Queues a copy of bytes of a stream and says how many were taken.
    ///
    /// # Errors
    /// `Blocked` if there is no room for a single byte, `Closed` after [`finish`](Self::finish) or [`reset`](Self::reset), `Misuse` on a message flow.
    pub fn write(&mut self, data: &[u8]) -> Result<usize, CommandError> {
        let taken = self.room_for(data.len())?;
        self.stream.copy(&data[..taken], self.limits.buffer);
        Ok(taken)
    }

    /// The same without a copy: takes the front of a block, as much as there is room for, and keeps it alive until it has been packetised.
    ///
    /// # Errors
    /// As [`write`](Self::write); the block is then as it was.
    pub fn write_chunk(&mut self, data: &mut Bytes) -> Result<usize, CommandError> {
        let taken = self.room_for(data.len())?;
        self.stream.push(data.split_to(taken), self.limits.buffer);
        Ok(taken)
    }

    /// How much of so many bytes of a stream is taken now.
    fn room_for(&mut self, len: usize) -> Result<usize, CommandError> {
        if self.kind != FlowKind::Stream {
            return Err(CommandError::Misuse("bytes can be written to a stream only; this flow carries messages"));
        }
        self.check_open()?;
        let taken = len.min(self.limits.buffer.max(1).saturating_sub(self.stream.len()));
        if taken == 0 && len > 0 {
            self.blocked = Some(1);
            return Err(CommandError::Blocked);
        }
        self.app_bytes += taken as u64;
        Ok(taken)
    }

    /// Queues a message and returns its number, counted from 0.
    ///
    /// # Errors
    /// `MessageTooLarge` with both numbers, `Blocked` when the buffer is full (never when it is empty), `Closed`, `Misuse` on a stream or for a `btp` message without lifetime.
    pub fn send_message(&mut self, now: Time, data: Bytes, options: MessageOptions) -> Result<u64, CommandError> {
        if self.kind == FlowKind::Stream {
            return Err(CommandError::Misuse("messages can be sent on a message flow only; this flow is a stream"));
        }
        self.check_open()?;
        let lifetime = options.lifetime.or(self.lifetime);
        if self.mode == Mode::Btp && lifetime.is_none() {
            return Err(CommandError::Misuse("a btp message needs a lifetime, its own or the flow's"));
        }
        let limit = self.limits.max_message.min(self.largest_whole);
        if data.len() > limit {
            return Err(CommandError::MessageTooLarge { size: data.len(), limit });
        }
        self.expire(now);
        let need = data.len() + super::queue::MESSAGE_COST;
        if self.buffered() > 0 && self.buffered() + need > self.limits.buffer {
            self.blocked = Some(need);
            return Err(CommandError::Blocked);
        }
        let id = self.next_id;
        self.next_id += 1;
        self.messages += 1;
        self.app_bytes += data.len() as u64;
        if self.queue.is_empty() {
            self.stale.begin(now);
        }
        self.queue.push(options.priority, Queued { id, data, queued_at: now, deadline: lifetime.map(|d| now + d) });
        Ok(id)
    }

    /// Withdraws a message that has not been packetised completely; true if it will not be delivered.
    /// What was already sent of it appears in [`poll_abandoned`](Self::poll_abandoned).
    pub fn cancel(&mut self, message: u64) -> bool {
        if self.begun.as_ref().is_some_and(|b| b.id == message) {
            self.give_up_begun();
        } else if self.queue.remove(message).is_none() {
            return false;
        }
        self.dropped += 1;
        true
    }

    /// Nothing more follows. What is queued is still packetised.
    pub fn finish(&mut self) {
        if self.state == SendState::Open {
            self.state = SendState::Finished;
        }
    }

    /// Gives the flow up at once, with the application's code; what is queued is dropped.
    pub fn reset(&mut self, code: u64) {
        if matches!(self.state, SendState::Reset(_)) {
            return;
        }
        self.state = SendState::Reset(code);
        self.dropped += self.queue.len() as u64 + u64::from(self.begun.is_some());
        self.queue.clear();
        self.stream = StreamQueue::default();
        self.begun = None;
        self.abort = None;
        self.abandoned.clear();
        self.lead.clear();
        self.blocked = None;
        self.slab = BytesMut::new();
    }

    /// The code of [`reset`](Self::reset), if it was called.
    pub fn reset_code(&self) -> Option<u64> {
        if let SendState::Reset(code) = self.state { Some(code) } else { None }
    }

    /// The far end's largest message became known (P18). Applies to messages sent from now on.
    pub fn set_max_message(&mut self, bytes: usize) {
        self.limits.max_message = bytes;
    }

    /// Messages are not cut, so none may be larger than this (transparent flows).
    pub fn keep_whole(&mut self, largest: usize) {
        self.largest_whole = largest;
    }

    /// Something waits to be packetised. O(1). May be true for messages whose lifetime has just ended; polling then yields nothing and settles it.
    pub fn has_data(&self, _now: Time) -> bool {
        !self.lead.is_empty() || (self.cipher.is_ready() && self.has_content())
    }

    fn has_content(&self) -> bool {
        !self.stream.is_empty() || !self.queue.is_empty() || self.begun.is_some() || self.abort.is_some()
    }

    /// When nobody wants what goes next any more, and what time there was for it; of a message that has been begun, what there is.
    pub fn front_life(&self) -> Option<(Time, Duration)> {
        match &self.begun {
            Some(begun) => begun.deadline.map(|deadline| (deadline, Duration::ZERO)),
            None => self.queue.peek().and_then(|m| m.deadline.map(|deadline| (deadline, deadline.since(m.queued_at)))),
        }
    }

    /// What goes next has waited for half of its lifetime.
    pub fn has_waited_half(&self, now: Time) -> bool {
        let life = self.front_life().filter(|_| self.begun.is_none());
        life.is_some_and(|(deadline, life)| now + life / 2 >= deadline)
    }

    /// The route that is to take what goes next brings it too late. If the message could have waited for this route, and waited too long, it makes room for
    /// younger ones: true, and it is gone. `time`: how long the route takes, if that is known, and by how much faster others are, which waiting for it costs.
    pub fn drop_overdue(&mut self, now: Time, time: Option<(Duration, Duration)>) -> bool {
        if self.begun.is_some() || self.abort.is_some() {
            return false;
        }
        let Some((deadline, life)) = self.front_life() else { return false };
        let (time, ahead) = time.unwrap_or((life / 2, Duration::ZERO));
        let is_overdue = deadline < now + time && life >= time + ahead;
        if is_overdue {
            self.queue.pop();
            self.dropped += 1;
        }
        is_overdue
    }

    /// When [`handle_timeout`](Self::handle_timeout) wants to be called: the first lifetime that ends. O(1).
    pub fn poll_timeout(&self) -> Option<Time> {
        let begun = self.begun.as_ref().and_then(|b| b.deadline);
        match (begun, self.queue.next_deadline()) {
            (Some(a), Some(b)) => Some(a.min(b)),
            (a, b) => a.or(b),
        }
    }

    /// Drops messages whose lifetime has ended.
    pub fn handle_timeout(&mut self, now: Time) {
        self.expire(now);
    }

    /// The application was told `Blocked` and waits for room: more comes as soon as there is some.
    pub fn is_blocked(&self) -> bool {
        self.blocked.is_some()
    }

    /// True once after a `Blocked`, when there is room for what was refused and for at least a quarter of the buffer.
    pub fn take_writable(&mut self) -> bool {
        let Some(need) = self.blocked else { return false };
        let used = self.buffered();
        let free = self.limits.buffer.saturating_sub(used);
        let is_writable = self.state == SendState::Open && (used == 0 || free >= need.max(self.limits.buffer / 4));
        if is_writable {
            self.blocked = None;
        }
        is_writable
    }

    /// Finished (or reset), and everything has been packetised.
    pub fn is_drained(&self) -> bool {
        match self.state {
            SendState::Open => false,
            SendState::Finished => self.lead.is_empty() && !self.has_content(),
            SendState::Reset(_) => true,
        }
    }

    /// [`finish`](Self::finish) or [`reset`](Self::reset) was called.
    pub fn is_finished(&self) -> bool {
        self.state != SendState::Open
    }

    /// Source packets made so far: one past the last sequence number.
    pub fn packets(&self) -> u64 {
        self.next_seq
    }

    /// What it carries.
    pub fn kind(&self) -> FlowKind {
        self.kind
    }

    /// Bytes queued and not yet packetised; each queued message counts 64 bytes more than its content.
    pub fn buffered(&self) -> usize {
        self.stream.len() + self.queue.cost() + self.begun.as_ref().map_or(0, |b| b.rest.len())
    }

    /// From now on so many bytes may be queued, or fewer if the flow was opened so; what is queued stays.
    pub fn set_buffer(&mut self, bytes: usize) {
        let bytes = bytes.min(self.wished_buffer);
        self.limits.buffer = bytes;
        if self.stream.memory() > 2 * bytes {
            self.stream.shrink();
        }
    }

    /// Gives back what only a sender with much to send needs.
    pub fn shrink(&mut self) {
        self.stream.shrink();
    }

    /// Bytes of memory held.
    pub fn memory(&self) -> usize {
        self.stream.memory()
            + self.queue.cost()
            + self.begun.as_ref().map_or(0, |b| b.rest.len())
            + self.slab.capacity()
            + self.cipher.memory()
    }

    /// Adds what this half counts: application bytes, messages, dropped messages, what waits, memory.
    pub fn add_stats(&self, stats: &mut FlowStats) {
        stats.app_bytes += self.app_bytes;
        stats.messages += self.messages;
        stats.expired_messages += self.dropped;
        stats.waiting += self.buffered();
        stats.memory += self.memory();
    }

    /// Source packets whose content was given up after they had been handed out: the flow need not repair them any more.
    pub fn poll_abandoned(&mut self) -> Option<Range<Seq>> {
        self.abandoned.pop_front()
    }

    /// The next source packet of at most `max_symbol` bytes, the two length bytes included. `None` if nothing waits, or if `max_symbol` is below [`MIN_SYMBOL`].
    pub fn poll_symbol(&mut self, now: Time, max_symbol: usize) -> Option<OutSymbol> {
        let max_symbol = max_symbol.min(2 + usize::from(u16::MAX));
        if max_symbol < MIN_SYMBOL + self.cipher.overhead() {
            return None;
        }
        if let Some(packet) = self.lead.pop_front() {
            self.next_seq += 1;
            return Some(OutSymbol { seq: Seq(self.next_seq - 1), symbol: Symbol::bare(packet), deadline: None, last_of_message: true });
        }
        self.expire(now);
        if self.drops_stale {
            self.dropped += self.stale.drop_stale(now, &mut self.queue);
        }
        if !self.has_data(now) {
            return None;
        }
        let room = max_symbol - 2 - self.cipher.overhead();
        if self.cipher.overhead() == 0
            && let Some(piece) = self.stream.cut(room)
        {
            let seq = Seq(self.next_seq);
            self.next_seq += 1;
            return Some(OutSymbol { seq, symbol: Symbol::bare(piece), deadline: None, last_of_message: self.stream.is_empty() });
        }
        // A slab that is not held any more is used again.
        if self.slab.capacity() < max_symbol {
            self.slab.reserve(self.slab_size.next(SlabSize::MOST).max(max_symbol));
        }
        self.slab.put_u16(0);
        self.slab.put_bytes(0, self.cipher.prefix());
        let (deadline, last_of_message) = match self.kind {
            FlowKind::Stream => self.fill_from_stream(room),
            FlowKind::OrderedMessages | FlowKind::UnorderedMessages => self.fill_with_messages(room),
        };
        let seq = Seq(self.next_seq);
        self.next_seq += 1;
        self.slab.put_bytes(0, self.cipher.overhead() - self.cipher.prefix());
        let mut symbol = self.slab.split();
        if self.cipher.seal(seq, &mut symbol).is_err() {
            // Never: keys are there, and the room was kept. What cannot be sealed must not leave.
            self.reset(Code::Internal as u64);
            return None;
        }
        Some(OutSymbol { seq, symbol: Symbol::whole(symbol.freeze()), deadline, last_of_message })
    }

    /// The next message of a transparent flow, whole, with its number; messages of more than `largest` bytes are dropped, and counted as dropped.
    pub fn poll_datagram(&mut self, now: Time, largest: usize) -> Option<(u64, Bytes)> {
        self.expire(now);
        loop {
            let Queued { id, data, .. } = self.queue.pop()?;
            if data.len() <= largest {
                return Some((id, data));
            }
            self.dropped += 1;
        }
    }

    /// Bytes of the message that [`poll_datagram`](Self::poll_datagram) would give, and its number.
    pub fn peek_datagram(&self) -> Option<(u64, usize)> {
        self.queue.peek().map(|m| (m.id, m.data.len()))
    }

    fn fill_from_stream(&mut self, room: usize) -> (Option<Time>, bool) {
        self.stream.take(room, &mut self.slab);
        (None, self.stream.is_empty())
    }

    fn fill_with_messages(&mut self, room: usize) -> (Option<Time>, bool) {
        let seq = self.next_seq;
        let end = self.slab.len() + room;
        let mut life = Life::default();
        let mut ends_message = false;
        if let Some(head) = self.abort.take() {
            items::put_abort(&mut self.slab, seq - head);
        } else if let Some(begun) = &mut self.begun {
            life.covers(begun.deadline);
            let distance = seq - begun.head;
            let open = items::continuation_overhead(distance, None);
            let with_length = items::continuation_overhead(distance, Some(begun.rest.len()));
            if begun.rest.len() + open > room {
                items::put_middle(&mut self.slab, distance, &begun.rest.split_to(room - open));
                return (life.end(), false);
            }
            let goes_on = !self.queue.is_empty() && begun.rest.len() + with_length + MIN_FOLLOW <= room;
            items::put_tail(&mut self.slab, distance, &begun.rest, goes_on);
            self.begun = None;
            ends_message = true;
            if !goes_on {
                return (life.end(), true);
            }
        }
        let mut previous = None;
        while let Some(next) = self.queue.peek() {
            let left = end - self.slab.len();
            let size = next.data.len();
            let id = (previous != next.id.checked_sub(1) || previous.is_none()).then_some(next.id);
            let is_first = left == room;
            if size + items::whole_overhead(id, None) <= left {
                let goes_on = self.queue.len() > 1 && size + items::whole_overhead(id, Some(size)) + MIN_FOLLOW <= left;
                let Some(message) = self.queue.pop() else { break };
                life.covers(message.deadline);
                previous = Some(message.id);
                items::put_whole(&mut self.slab, id, &message.data, goes_on);
                ends_message = true;
                if goes_on {
                    continue;
                }
                break;
            }
            let overhead = items::head_overhead(id, size);
            let must_be_cut = size + items::whole_overhead(Some(next.id), None) > room;
            if is_first || ((must_be_cut || self.fills_packets) && left >= overhead + MIN_PIECE) {
                let Some(mut message) = self.queue.pop() else { break };
                life.covers(message.deadline);
                let piece = message.data.split_to(left - overhead);
                items::put_head(&mut self.slab, id, size, &piece);
                let Queued { id, data: rest, deadline, .. } = message;
                self.begun = Some(Begun { id, rest, head: seq, head_is_shared: !is_first, deadline });
            }
            break;
        }
        (life.end(), ends_message)
    }

    fn check_open(&self) -> Result<(), CommandError> {
        match self.state {
            SendState::Open => Ok(()),
            SendState::Finished => {
                Err(CommandError::Closed(CloseReason::local(Code::NoError, Layer::Session, "this side finished the flow")))
            }
            SendState::Reset(code) => Err(CommandError::Closed(CloseReason::application(code, "this side reset the flow"))),
        }
    }

    fn expire(&mut self, now: Time) {
        self.dropped += self.queue.expire(now);
        if self.begun.as_ref().is_some_and(|b| b.deadline.is_some_and(|d| d <= now)) {
            self.give_up_begun();
            self.dropped += 1;
        }
    }

    fn give_up_begun(&mut self) {
        if let Some(begun) = self.begun.take() {
            self.abort = Some(begun.head);
            let first = begun.head + u64::from(begun.head_is_shared);
            if first < self.next_seq {
                self.abandoned.push_back(Seq(first)..Seq(self.next_seq));
            }
        }
    }
}

/// Until when a packet matters: as long as the longest-lived message in it.
#[derive(Default)]
struct Life {
    latest: Option<Time>,
    is_unlimited: bool,
}

impl Life {
    fn covers(&mut self, deadline: Option<Time>) {
        match deadline {
            Some(t) => self.latest = self.latest.max(Some(t)),
            None => self.is_unlimited = true,
        }
    }
    /// A packet with no message at all (an abort alone) matters without limit.
    fn end(&self) -> Option<Time> {
        if self.is_unlimited { None } else { self.latest }
    }
}

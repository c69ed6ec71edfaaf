//! The receiving half of a flow: takes source packets in any order and gives messages or bytes to the application.

use super::budget::MessageBudget;
use super::datagrams::Datagrams;
use super::message::Message;
use super::ordered::Ordered;
use super::part::Pieces;
use super::seal::Cipher;
use super::stream::Stream;
use super::unordered::Unordered;
use super::violation;
use crate::crypto::{FlowGeneration, FlowKey};
use crate::error::{CloseReason, Code, Layer};
use crate::flow::{MAX_SPAN, coefficient_row};
use crate::ids::Seq;
use crate::options::{FlowKind, FlowOptions, Mode};
use crate::stats::FlowStats;
use crate::switch::{self, Mechanism};
use crate::units::Time;
use crate::wire::frame::{Coded, Coefficients};
use bytes::Bytes;
use noctule_codes::gf256::kernels;
use smallvec::SmallVec;
use std::collections::BTreeMap;

/// Bytes of memory per packet of the largest window: below the smallest symbol that a path carries (P5: 1200 bytes of UDP payload).
const WINDOW_SYMBOL: usize = 512;
/// A window of this many packets is always permitted.
const MIN_WINDOW: usize = 4096;

/// Bounds of a receiving half, in bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RecvLimits {
    /// Payload of packets not yet consumed: at least what the flow gives credit for.
    pub memory: usize,
    /// Largest message taken (P18), as announced to the far end.
    pub max_message: usize,
}

/// What a sealed flow says of a coded packet before anything is done with it (P16).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Verdict {
    /// It is the combination that it claims to be, or nothing is sealed here.
    Sound,
    /// Nobody with the session's key made this: it must not be used.
    Polluted,
    /// It cannot be judged before the keys are there; not taken, not counted against anyone.
    Premature,
}

/// The front of a sealed session's control flow.
#[derive(Debug, Default)]
struct Lead {
    /// Handshake packets that the flow begins with; 0 on every other flow.
    len: u64,
    /// Those that are here, as symbols: combinations that cover them are checked without them.
    symbols: SmallVec<[Option<Bytes>; 2]>,
    /// Handshake packets handed over.
    handed: u64,
    /// Packets that came before the keys, all of the first batch.
    early: BTreeMap<u64, Bytes>,
}

#[derive(Debug)]
enum Kind {
    Stream(Stream),
    Ordered(Ordered),
    Unordered(Unordered),
    /// A transparent flow: messages as they come.
    Datagrams(Datagrams),
    /// A part of a flow that takes several routes.
    Pieces(Pieces),
    /// Stopped or reset: everything is discarded.
    Closed(Closed),
}

#[derive(Debug)]
struct Closed {
    /// Packets below this number count as consumed.
    high: u64,
    code: u64,
    is_remote: bool,
}

/// The receiving half. Memory is at most `limits.memory` plus one message, tables beside that in proportion to the packets held.
#[derive(Debug)]
pub struct RecvHalf {
    kind: Kind,
    flow_kind: FlowKind,
    mode: Mode,
    batch_size: u8,
    limits: RecvLimits,
    cipher: Cipher,
    /// What it takes comes by several parts, whose packets have been opened when they get here.
    is_whole: bool,
    lead: Lead,
    /// One past the highest sequence number seen.
    high: u64,
    /// Distinct packets taken.
    received: u64,
    skipped_below: u64,
    end: Option<u64>,
    /// The next readable edge may be told.
    is_armed: bool,
    app_bytes: u64,
    messages: u64,
    dropped: u64,
}

impl RecvHalf {
    /// A half with a message budget of its own, large enough for one message.
    pub fn new(options: &FlowOptions, limits: RecvLimits) -> Self {
        Self::with_budget(options, limits, MessageBudget::new(limits.max_message))
    }

    /// A half whose incomplete messages share `budget` with those of other flows (P18).
    pub fn with_budget(options: &FlowOptions, limits: RecvLimits, budget: MessageBudget) -> Self {
        let kind = match options.kind {
            FlowKind::Stream => Kind::Stream(Stream::default()),
            FlowKind::OrderedMessages => Kind::Ordered(Ordered::new(limits.max_message, budget)),
            FlowKind::UnorderedMessages if options.mode == Mode::Transparent => Kind::Datagrams(Datagrams::new(limits.memory)),
            FlowKind::UnorderedMessages => Kind::Unordered(Unordered::new(limits.max_message, budget)),
        };
        Self {
            kind,
            flow_kind: options.kind,
            mode: options.mode,
            batch_size: options.batch_size,
            limits,
            cipher: Cipher::None,
            is_whole: false,
            lead: Lead::default(),
            high: 0,
            received: 0,
            skipped_below: 0,
            end: None,
            is_armed: true,
            app_bytes: 0,
            messages: 0,
            dropped: 0,
        }
    }

    /// A half for a flow that comes by several parts (docs/spec/multipath.md 6).
    pub fn whole(options: &FlowOptions, limits: RecvLimits, budget: MessageBudget) -> Self {
        Self { is_whole: true, ..Self::with_budget(options, limits, budget) }
    }

    /// This half belongs to a part, and takes what of the whole comes by it.
    pub fn take_pieces_only(&mut self) {
        self.kind = Kind::Pieces(Pieces::default());
    }

    /// Source packets of the whole that came by this part, with their numbers.
    pub fn take_pieces(&mut self) -> Vec<(u64, Bytes)> {
        if let Kind::Pieces(pieces) = &mut self.kind { pieces.take() } else { Vec::new() }
    }

    /// How far a part has come whose packets have a lifetime: what is missing before its newest packet is still repaired, or nobody wants it any more.
    pub fn newest_piece(&self) -> Option<u64> {
        match &self.kind {
            Kind::Pieces(pieces) if self.mode != Mode::Brtp => Some(pieces.newest()),
            _ => None,
        }
    }

    /// There are some.
    pub fn has_pieces(&self) -> bool {
        matches!(&self.kind, Kind::Pieces(pieces) if pieces.has_some())
    }

    /// It comes by several parts.
    pub fn is_in_parts(&self) -> bool {
        self.is_whole
    }

    /// First packet that has not come.
    pub fn first_missing(&self) -> u64 {
        match &self.kind {
            Kind::Stream(s) => s.next(),
            Kind::Ordered(o) => o.next(),
            Kind::Unordered(u) => u.first_missing(),
            Kind::Pieces(p) => p.consumed(),
            Kind::Datagrams(_) => 0,
            Kind::Closed(closed) => closed.high,
        }
    }

    /// What this flow carries is sealed end to end, and begins with `lead` packets of the session's handshake.
    pub fn await_key(&mut self, lead: u64) {
        self.cipher = Cipher::Awaited;
        self.set_lead(lead);
    }

    /// The handshake turned out to have so many packets.
    pub fn set_lead(&mut self, lead: u64) {
        self.lead.len = lead;
        self.lead.symbols.resize(lead as usize, None);
        for seq in 0..lead {
            if let Some(payload) = self.lead.early.remove(&seq) {
                self.keep_lead(seq, &payload);
            }
        }
    }

    /// The next packet of the handshake, each once and in order.
    pub fn poll_lead(&mut self) -> Option<Bytes> {
        let symbol = self.lead.symbols.get(self.lead.handed as usize)?.as_ref()?;
        self.lead.handed += 1;
        Some(symbol.slice(2..))
    }

    /// The key of this flow. What came before it is looked at now.
    ///
    /// # Errors
    /// As [`on_packet`](Self::on_packet).
    pub fn set_key(&mut self, key: FlowKey) -> Result<(), CloseReason> {
        self.cipher = Cipher::Sealed(Box::new(key));
        let result = core::mem::take(&mut self.lead.early).into_iter().try_for_each(|(seq, payload)| self.take_packet(Seq(seq), payload));
        self.close_on_error(result)
    }

    /// From some packet on the session's next generation of keys seals.
    pub fn expect_key(&mut self, next: FlowGeneration) {
        if let Some(key) = self.cipher.key_mut() {
            key.expect(next);
        }
    }

    /// The key, for what the far end says of it.
    pub fn key_mut(&mut self) -> Option<&mut FlowKey> {
        self.cipher.key_mut()
    }

    /// Packets of an older generation of keys may still come.
    pub fn has_older_key(&self) -> bool {
        self.cipher.key().is_some_and(FlowKey::has_older)
    }

    /// The same, and it is known how many there are.
    pub fn has_older_key_with_border(&self) -> bool {
        self.cipher.key().is_some_and(FlowKey::has_older_with_border)
    }

    /// All packets below `done` are here or given up: the older generation of keys is forgotten when it sealed nothing else.
    pub fn settle_key(&mut self, done: u64) {
        if let Some(key) = self.cipher.key_mut() {
            // None that can occur: pads of packets that were checked before.
            let _ = key.settle(done);
        }
    }

    /// Nothing of this flow means anything before a key has opened it.
    pub fn is_sealed(&self) -> bool {
        self.is_whole || !matches!(self.cipher, Cipher::None)
    }

    /// Sealed, and the key is there.
    pub fn is_keyed(&self) -> bool {
        matches!(self.cipher, Cipher::Sealed(_))
    }

    /// A packet opened under the key.
    pub fn is_proven(&self) -> bool {
        self.is_keyed() && self.received > self.lead.symbols.iter().flatten().count() as u64
    }

    /// A coded packet of this flow, before it enters the basis (P16).
    pub fn examine(&mut self, coded: &Coded<'_>) -> Verdict {
        let key = match &mut self.cipher {
            Cipher::None => return Verdict::Sound,
            // The first batch holds the handshake, and combinations of it are the only way to a packet of it that was lost. What a relay makes of
            // them then is found out by the handshake, or when the key opens the rest of the batch.
            Cipher::Awaited if self.lead.len > 0 && coded.base.0 == 0 && coded.n <= self.batch_size => return Verdict::Sound,
            Cipher::Awaited => return Verdict::Premature,
            Cipher::Sealed(key) => key,
        };
        if switch::is_off(Mechanism::PollutionCheck) {
            return Verdict::Sound;
        }
        let n = usize::from(coded.n).min(MAX_SPAN);
        let (base, mut row) = match coded.coefficients {
            // One of the flow's packets as it is: most are.
            Coefficients::Index(index) if coded.base.0.saturating_add(index.into()) >= self.lead.len => {
                let is_sound = index < coded.n && key.is_sound(Seq(coded.base.0.saturating_add(index.into())), &[1], coded.symbol);
                return if is_sound { Verdict::Sound } else { Verdict::Polluted };
            }
            Coefficients::Vector(vector) if vector.len() != n => return Verdict::Polluted,
            ref coefficients => (coded.base, coefficient_row(coefficients, coded.n)),
        };
        let mut rest: Option<Vec<u8>> = None;
        for (c, seq) in row[..n].iter_mut().zip(base.0..).filter(|(c, seq)| **c != 0 && *seq < self.lead.len) {
            let Some(Some(symbol)) = self.lead.symbols.get(seq as usize) else { return Verdict::Premature };
            let rest = rest.get_or_insert_with(|| coded.symbol.to_vec());
            rest.resize(rest.len().max(symbol.len()), 0);
            kernels().mul_add(&mut rest[..symbol.len()], symbol, *c);
            *c = 0;
        }
        let is_sound = key.is_sound(base, &row[..n], rest.as_deref().unwrap_or(coded.symbol));
        if is_sound { Verdict::Sound } else { Verdict::Polluted }
    }

    fn keep_lead(&mut self, seq: u64, payload: &Bytes) {
        let mut symbol = Vec::with_capacity(2 + payload.len());
        symbol.extend_from_slice(&(payload.len() as u16).to_be_bytes());
        symbol.extend_from_slice(payload);
        if let Some(place @ None) = self.lead.symbols.get_mut(seq as usize) {
            *place = Some(symbol.into());
            self.received += 1;
        }
    }

    /// A source packet arrived or was recovered; in any order, duplicates are ignored.
    ///
    /// # Errors
    /// `SessionProtocol` when framing is violated, `MessageTooLarge` for a message beyond what was announced, `FlowControl` for packets beyond any
    /// credit that can have been given. The flow must then be closed; the half discards whatever else arrives.
    pub fn on_packet(&mut self, _now: Time, seq: Seq, payload: Bytes) -> Result<(), CloseReason> {
        let result = self.take_packet(seq, payload);
        self.close_on_error(result)
    }

    fn take_packet(&mut self, seq: Seq, payload: Bytes) -> Result<(), CloseReason> {
        if self.end.is_some_and(|end| seq.0 >= end) {
            return Err(violation("a packet lies behind the flow's end"));
        }
        self.high = self.high.max(seq.0 + 1);
        if let Kind::Closed(closed) = &mut self.kind {
            closed.high = self.high;
            return Ok(());
        }
        let is_far = seq.0.saturating_sub(self.consumed().max(self.skipped_below)) > self.window();
        if is_far || self.held() > self.limits.memory.saturating_add(self.limits.max_message) {
            return Err(CloseReason::local(Code::FlowControl, Layer::Session, "packets beyond the credit given"));
        }
        if seq.0 < self.lead.len {
            self.keep_lead(seq.0, &payload);
            return Ok(());
        }
        if !self.cipher.is_ready() {
            self.lead.early.insert(seq.0, payload);
            return Ok(());
        }
        let payload = self.cipher.open(seq, payload).map_err(|e| {
            // It was sound and is not sealed right: the far end's defect, or pollution from before the keys.
            CloseReason::local(e.code(), Layer::Session, "a source packet does not open under the session's key")
        })?;
        let number = seq.0 - self.lead.len;
        let is_new = match &mut self.kind {
            Kind::Stream(s) => s.on_packet(number, payload)?,
            Kind::Ordered(o) => o.on_packet(number, payload)?,
            Kind::Unordered(u) => u.on_packet(number, &payload)?,
            Kind::Pieces(p) => p.on_packet(number, payload)?,
            Kind::Datagrams(_) => return Err(violation("a coded packet on a transparent flow")),
            Kind::Closed(_) => false,
        };
        self.received += u64::from(is_new);
        Ok(())
    }

    /// A datagram of a transparent flow arrived. What does not fit the memory is dropped, the newest first, as a full socket would; on a half that
    /// was closed all of it is.
    pub fn on_datagram(&mut self, number: u64, data: Bytes) {
        if let Kind::Datagrams(d) = &mut self.kind {
            d.push(number, data);
        }
    }

    /// What a transparent flow may hold, in bytes; other kinds are bounded by the credit that the flow gives.
    pub fn set_memory(&mut self, bytes: usize) {
        if let Kind::Datagrams(d) = &mut self.kind {
            d.set_memory(bytes);
        }
    }

    /// FLOW_SKIP: the sender of this hop will not send anything below `floor` any more. On a sealed `brtp` flow only the far end's own word counts,
    /// [`on_far_skip`](Self::on_far_skip): no relay may leave out what was promised.
    ///
    /// # Errors
    /// As `on_far_skip`.
    pub fn on_skip(&mut self, floor: Seq) -> Result<(), CloseReason> {
        if self.believes_skips_of_hops() { self.on_far_skip(floor) } else { Ok(()) }
    }

    /// FLOW_SKIP of a hop counts: the flow is not sealed, or promises nothing.
    pub fn believes_skips_of_hops(&self) -> bool {
        self.mode != Mode::Brtp || self.believes_ends_of_hops()
    }

    /// FLOW_END of a hop counts: nothing but the link lies between the ends.
    pub fn believes_ends_of_hops(&self) -> bool {
        !self.is_sealed() || switch::is_off(Mechanism::FarEnds)
    }

    /// The far end has said how many packets there are in all.
    pub fn knows_end(&self) -> bool {
        self.end.is_some()
    }

    /// The far end will not send anything below `floor` any more.
    ///
    /// # Errors
    /// `SessionProtocol` if bytes of a stream would be left out, or `floor` lies behind the flow's end.
    pub fn on_far_skip(&mut self, floor: Seq) -> Result<(), CloseReason> {
        let floor = floor.0;
        let result = if self.end.is_some_and(|end| floor > end) {
            Err(violation("the flow was skipped beyond its end"))
        } else {
            self.skipped_below = self.skipped_below.max(floor);
            let number = floor.saturating_sub(self.lead.len);
            match &mut self.kind {
                Kind::Stream(s) => s.on_skip(number),
                Kind::Ordered(o) => o.on_skip(number),
                Kind::Unordered(u) => {
                    u.on_skip(number);
                    Ok(())
                }
                Kind::Pieces(_) if self.mode == Mode::Brtp => Err(violation("a part has nothing to skip")),
                Kind::Pieces(p) => {
                    p.on_skip(number);
                    Ok(())
                }
                Kind::Datagrams(_) => Err(violation("a transparent flow has nothing to skip")),
                Kind::Closed(_) => Ok(()),
            }
        };
        self.close_on_error(result)
    }

    /// FLOW_END: the flow has `end` packets in all, says the sender of this hop. A sealed flow believes the far end only,
    /// [`on_far_end`](Self::on_far_end): no relay may cut a stream short.
    ///
    /// # Errors
    /// As `on_far_end`.
    pub fn on_end(&mut self, end: Seq) -> Result<(), CloseReason> {
        if self.believes_ends_of_hops() { self.on_far_end(end) } else { Ok(()) }
    }

    /// The flow has `end` packets in all. May be told again.
    ///
    /// # Errors
    /// `SessionProtocol` if packets beyond it were received, or another end was told before.
    pub fn on_far_end(&mut self, end: Seq) -> Result<(), CloseReason> {
        let result = match self.end {
            Some(known) if known != end.0 => Err(violation("the flow has two different ends")),
            _ if end.0 < self.high.max(self.skipped_below) => Err(violation("the flow ended before what was received of it")),
            _ => {
                self.end = Some(end.0);
                Ok(())
            }
        };
        self.close_on_error(result)
    }

    /// The next complete message.
    pub fn recv_message(&mut self) -> Option<Message> {
        let message = match &mut self.kind {
            Kind::Ordered(o) => o.recv(),
            Kind::Unordered(u) => u.recv(),
            Kind::Datagrams(d) => d.recv(),
            Kind::Stream(_) | Kind::Pieces(_) | Kind::Closed(_) => None,
        };
        match &message {
            Some(m) => {
                self.messages += 1;
                self.app_bytes += m.data.len() as u64;
            }
            None => self.is_armed = true,
        }
        message
    }

    /// The next bytes of a stream, at most `max` of them, as a slice of the packet that brought them. `None`: nothing now; empty: the stream has ended.
    pub fn read(&mut self, max: usize) -> Option<Bytes> {
        let Kind::Stream(stream) = &mut self.kind else { return None };
        if max == 0 {
            return None;
        }
        let chunk = stream.read(max);
        match &chunk {
            Some(bytes) => self.app_bytes += bytes.len() as u64,
            None => {
                self.is_armed = true;
                if self.is_finished() {
                    return Some(Bytes::new());
                }
            }
        }
        chunk
    }

    /// There is something to read.
    pub fn is_readable(&self) -> bool {
        match &self.kind {
            Kind::Stream(s) => s.is_readable(),
            Kind::Ordered(o) => o.is_readable(),
            Kind::Unordered(u) => u.is_readable(),
            Kind::Datagrams(d) => d.is_readable(),
            Kind::Pieces(_) | Kind::Closed(_) => false,
        }
    }

    /// True when something became readable; once until a read has found nothing more.
    pub fn take_readable(&mut self) -> bool {
        let is_edge = self.is_armed && self.is_readable();
        if is_edge {
            self.is_armed = false;
        }
        is_edge
    }

    /// The far end finished and everything was read (or will never come).
    pub fn is_finished(&self) -> bool {
        let Some(end) = self.end.map(|end| end.saturating_sub(self.lead.len)) else { return false };
        match &self.kind {
            Kind::Stream(s) => s.next() >= end && !s.is_readable(),
            Kind::Ordered(o) => o.next() >= end && !o.is_readable(),
            Kind::Unordered(u) => u.consumed() >= end && !u.is_readable(),
            Kind::Datagrams(d) => !d.is_readable(),
            Kind::Pieces(_) | Kind::Closed(_) => false,
        }
    }

    /// The end is known and every single packet was received, read or not.
    pub fn has_all(&self) -> bool {
        self.end == Some(self.received)
    }

    /// Distinct packets received.
    pub fn received(&self) -> u64 {
        self.received
    }

    /// Packets from the first on whose memory the flow may give to others: the argument of `flow::Receiver::consume`. Never falls.
    pub fn consumed(&self) -> u64 {
        let content = match &self.kind {
            Kind::Stream(s) => s.consumed(),
            Kind::Ordered(o) => o.consumed(),
            Kind::Unordered(u) => u.consumed(),
            Kind::Pieces(p) => p.consumed(),
            Kind::Datagrams(_) => 0,
            Kind::Closed(closed) => return closed.high.max(self.skipped_below),
        };
        // Packets of a handshake are a few hundred bytes, and taken at once.
        self.lead.symbols.iter().take_while(|s| s.is_some()).count() as u64 + content
    }

    /// An incomplete message waits for room in the shared budget; [`retry`](Self::retry) when another flow's message has been read.
    pub fn is_starved(&self) -> bool {
        match &self.kind {
            Kind::Ordered(o) => o.is_starved(),
            Kind::Unordered(u) => u.is_starved(),
            Kind::Stream(_) | Kind::Datagrams(_) | Kind::Pieces(_) | Kind::Closed(_) => false,
        }
    }

    /// Asks the shared budget again; [`consumed`](Self::consumed) may have moved afterwards.
    pub fn retry(&mut self) {
        match &mut self.kind {
            Kind::Ordered(o) => o.retry(),
            Kind::Unordered(u) => u.retry(),
            Kind::Stream(_) | Kind::Datagrams(_) | Kind::Pieces(_) | Kind::Closed(_) => {}
        }
    }

    /// The application wants no more; everything held is dropped and everything further is discarded.
    pub fn stop(&mut self, code: u64) {
        self.close(code, false);
    }

    /// The far end gave the flow up; everything held is dropped.
    pub fn reset(&mut self, code: u64) {
        self.close(code, true);
    }

    /// Code of the [`stop`](Self::stop) or [`reset`](Self::reset) that closed this half, and whether the far end did it.
    pub fn closed(&self) -> Option<(u64, bool)> {
        if let Kind::Closed(closed) = &self.kind { Some((closed.code, closed.is_remote)) } else { None }
    }

    /// What it carries.
    pub fn kind(&self) -> FlowKind {
        self.flow_kind
    }

    /// Bytes of memory held, tables included.
    pub fn memory(&self) -> usize {
        self.held()
            + self.cipher.memory()
            + match &self.kind {
                Kind::Stream(s) => s.tables(),
                Kind::Ordered(o) => o.tables(),
                Kind::Unordered(u) => u.tables(),
                Kind::Pieces(p) => p.tables(),
                Kind::Datagrams(_) | Kind::Closed(_) => 0,
            }
    }

    /// Adds what this half counts: application bytes, messages, messages dropped incomplete, memory.
    pub fn add_stats(&self, stats: &mut FlowStats) {
        stats.app_bytes += self.app_bytes;
        stats.messages += self.messages;
        stats.expired_messages += self.dropped_messages();
        stats.memory += self.memory();
    }

    /// Packets that any credit can cover: tables must not grow without bound either.
    fn window(&self) -> u64 {
        (self.limits.memory / WINDOW_SYMBOL).max(MIN_WINDOW) as u64
    }

    /// What came is held until what was sent before it is there.
    pub fn waits_in_order(&self) -> bool {
        matches!(self.kind, Kind::Stream(_) | Kind::Ordered(_))
    }

    /// Bytes of what arrived and was not read yet, tables aside.
    pub fn held(&self) -> usize {
        match &self.kind {
            Kind::Stream(s) => s.bytes(),
            Kind::Ordered(o) => o.bytes(),
            Kind::Unordered(u) => u.bytes(),
            Kind::Datagrams(d) => d.bytes(),
            Kind::Pieces(p) => p.bytes(),
            Kind::Closed(_) => 0,
        }
    }

    fn dropped_messages(&self) -> u64 {
        self.dropped
            + match &self.kind {
                Kind::Ordered(o) => o.dropped,
                Kind::Unordered(u) => u.dropped,
                Kind::Datagrams(d) => d.dropped,
                Kind::Stream(_) | Kind::Pieces(_) | Kind::Closed(_) => 0,
            }
    }

    fn close(&mut self, code: u64, is_remote: bool) {
        if !matches!(self.kind, Kind::Closed(_)) {
            self.dropped = self.dropped_messages();
            self.kind = Kind::Closed(Closed { high: self.high.max(self.consumed()), code, is_remote });
        }
    }

    fn close_on_error(&mut self, result: Result<(), CloseReason>) -> Result<(), CloseReason> {
        if let Err(reason) = &result {
            self.close(reason.code as u64, false);
        }
        result
    }
}

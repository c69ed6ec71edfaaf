//! The sending half of a coded flow on one hop.
//!
//! Four queues, all O(1) amortised: batches with a deficit, the cursor of source packets, batches to protect from spare capacity, and
//! control frames. Symbols are kept until the receiver says that it needs them no more (`done`), because what ACKs let us believe of its
//! rank may be wrong (P9) and because a source keeps custody (P14).

use super::batch::Batch;
use super::deadlines::Deadlines;
use super::{FlowControlFrame, Outgoing, SendContext, Stage};
use crate::error::Code;
use crate::ids::{FlowLabel, Seq};
use crate::options::{Class, Mode};
use crate::redundancy::{RedundancyInput, plan, repair_extra};
use crate::sent::SentItem;
use crate::stats::FlowStats;
use crate::units::{Duration, Probability, Time};
use crate::wire::frame::Coefficients;
use bytes::Bytes;
use noctule_codes::span::{MAX_SPAN, encode, repair_coefficients};
use std::collections::VecDeque;

/// How a [`Sender`] is made.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct SenderConfig {
    /// Hop-local label.
    pub label: FlowLabel,
    /// Packets per batch, 1..=64.
    pub batch_size: u8,
    /// Largest symbol T in bytes.
    pub symbol: u16,
    /// Scheduling class.
    pub class: Class,
    /// Promise.
    pub mode: Mode,
    /// Asked probability that a message of an application-limited flow needs no second round trip.
    pub no_retransmit: Probability,
    /// Bytes of symbols that may be held; at least two batches are (P15).
    pub memory: usize,
    /// Source packets that may be sent before the first CREDIT.
    pub initial_credit: u64,
}

/// Bytes that a held symbol costs beyond its own.
const SYMBOL_OVERHEAD: usize = 48;
/// Source packets that may wait to be sent: enough for a few trains, little enough that the session decides late what goes next.
const MOST_UNSENT: u64 = 128;
/// Part of the packets of the last flight of a finished bulk flow that shall need no second round trip: the link has nothing else to do.
const TAIL_TARGET: f64 = 0.99;

/// A frame that is repeated until it is acknowledged.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum Repeated {
    #[default]
    Idle,
    Due,
    Sent,
    Acked,
}

/// The sending half of a flow.
#[derive(Debug)]
pub struct Sender {
    config: SenderConfig,
    batches: VecDeque<Batch>,
    /// Number of the first batch held.
    first: u64,
    /// One past the last source packet pushed / sent.
    pushed: u64,
    cursor: u64,
    /// From CREDIT: one past the last packet allowed, and what the receiver needs no more.
    credit: u64,
    done: u64,
    /// Everything below is given up or done.
    floor: u64,
    /// Floor that the receiver has to be told, and how far that went.
    skip: u64,
    skip_state: Repeated,
    /// Batches with a deficit, those that lost first in front.
    repair: VecDeque<u64>,
    /// Batches to protect from spare capacity.
    proactive: VecDeque<u64>,
    tail_protected: bool,
    deadlines: Deadlines,
    is_established: bool,
    finished: bool,
    /// The session has more data right now.
    has_more: bool,
    end_state: Repeated,
    bytes: usize,
    outstanding: u64,
    pace: Pace,
    /// Smoothed RTT of the path that was last sent on.
    rtt: Duration,
    /// Vectors of freed batches waiting for reuse.
    spare: Vec<Vec<Bytes>>,
    /// Last question to the redundancy policy and its answer: most are repeated.
    last_plan: Option<(RedundancyInput, u8)>,
    stats: FlowStats,
    /// Switches the rule of the third transmission off, to show what it is worth (P26).
    #[cfg(test)]
    pub(super) is_exact_only: bool,
}

impl Sender {
    /// A sender with nothing to send.
    pub fn new(config: SenderConfig) -> Self {
        let config = SenderConfig { batch_size: config.batch_size.clamp(1, MAX_SPAN as u8), ..config };
        Self {
            config,
            batches: VecDeque::new(),
            first: 0,
            pushed: 0,
            cursor: 0,
            credit: config.initial_credit,
            done: 0,
            floor: 0,
            skip: 0,
            skip_state: Repeated::Idle,
            repair: VecDeque::new(),
            proactive: VecDeque::new(),
            tail_protected: false,
            deadlines: Deadlines::default(),
            is_established: false,
            finished: false,
            has_more: false,
            end_state: Repeated::Idle,
            bytes: 0,
            outstanding: 0,
            pace: Pace::default(),
            rtt: Duration::from_millis(100),
            spare: Vec::new(),
            last_plan: None,
            stats: FlowStats::default(),
            #[cfg(test)]
            is_exact_only: false,
        }
    }

    /// Hop-local label.
    pub fn label(&self) -> FlowLabel {
        self.config.label
    }

    /// From now on symbols of so many bytes may be held; what is held already stays, and two batches are always possible (P15).
    pub fn set_memory(&mut self, bytes: usize) {
        self.config.memory = bytes;
    }

    /// Source packets that may be pushed now: what credit, memory and the short queue of unsent packets leave.
    pub fn room(&self) -> u64 {
        if self.finished {
            return 0;
        }
        let unsent = MOST_UNSENT.saturating_sub(self.pushed - self.cursor);
        unsent.min(self.credit.saturating_sub(self.pushed)).min(self.memory_room())
    }

    /// Source packets for which there is memory; two batches always (P15).
    fn memory_room(&self) -> u64 {
        let each = usize::from(self.config.symbol) + SYMBOL_OVERHEAD;
        let reserve = 2 * u64::from(self.config.batch_size);
        let held = self.pushed - self.first * self.batch_size();
        ((self.config.memory.saturating_sub(self.bytes) / each) as u64).max(reserve.saturating_sub(held))
    }

    fn batch_size(&self) -> u64 {
        u64::from(self.config.batch_size)
    }

    /// Takes the next source packet. `symbol` begins with its 2-byte length (P5); after `deadline` nobody wants it.
    ///
    /// The caller asks [`Sender::room`] first; a packet beyond credit would be refused by the receiver.
    pub fn push(&mut self, _now: Time, symbol: Bytes, deadline: Option<Time>) -> Seq {
        debug_assert!(self.pushed < self.credit && !self.finished, "push without room");
        let seq = self.pushed;
        let number = seq / self.batch_size();
        if number >= self.first + self.batches.len() as u64 {
            if self.batches.is_empty() {
                self.first = number;
            }
            let symbols = self.spare.pop().unwrap_or_else(|| Vec::with_capacity(usize::from(self.config.batch_size)));
            self.batches.push_back(Batch::new(symbols));
        }
        self.bytes += symbol.len() + SYMBOL_OVERHEAD;
        self.stats.app_bytes += symbol.len().saturating_sub(2) as u64;
        if let Some(batch) = self.batches.back_mut() {
            if let Some(deadline) = deadline {
                batch.deadlines.resize(batch.symbols.len(), Time::MAX);
                batch.deadlines.push(deadline);
            }
            batch.symbols.push(symbol);
        }
        if let Some(deadline) = deadline {
            self.deadlines.add(Seq(seq), deadline);
        }
        self.pushed += 1;
        Seq(seq)
    }

    /// No more packets follow: FLOW_END is sent, and repeated until acknowledged.
    pub fn finish(&mut self) {
        if !self.finished {
            self.finished = true;
            self.end_state = Repeated::Due;
        }
    }

    /// One past the last sequence number given out.
    pub fn next_seq(&self) -> Seq {
        Seq(self.pushed)
    }

    /// Nobody waits for the packets in `range` any more (a message was cancelled or its lifetime ended): neither sent nor repaired.
    pub fn abandon(&mut self, range: core::ops::Range<Seq>) {
        let end = range.end.0.min(self.pushed);
        for seq in range.start.0.max(self.floor)..end {
            self.abandon_one(seq);
        }
        self.advance_floor();
    }

    /// Abandons packets whose deadline has passed.
    pub fn abandon_expired(&mut self, now: Time) {
        let mut any = false;
        while let Some(seq) = self.deadlines.pop_expired(now) {
            any |= seq.0 >= self.floor;
            if seq.0 >= self.floor {
                self.abandon_one(seq.0);
            }
        }
        if any {
            self.advance_floor();
        }
    }

    fn abandon_one(&mut self, seq: u64) {
        let index = (seq % self.batch_size()) as u8;
        self.touch(seq / self.batch_size(), |batch| batch.abandon(index));
    }

    /// Moves the floor over packets that are given up or done; tells the receiver if it waits for one of them.
    fn advance_floor(&mut self) {
        let before = self.floor;
        let mut is_awaited = false;
        self.floor = self.floor.max(self.done);
        while self.floor < self.pushed {
            let index = (self.floor % self.batch_size()) as u8;
            let Some(batch) = self.batch(self.floor / self.batch_size()) else { break };
            if !batch.is_abandoned(index) {
                break;
            }
            is_awaited |= !batch.is_acked(index);
            self.floor += 1;
        }
        if self.floor > before {
            // Packets given up before they were sent are passed over by the cursor.
            if is_awaited {
                self.skip = self.floor;
                self.skip_state = Repeated::Due;
            }
            self.deadlines.forget_below(Seq(self.floor));
            self.free();
        }
    }

    /// Something to send in this stage. May be true when `poll` then finds nothing; never false when there is something.
    pub fn has(&self, stage: Stage) -> bool {
        match stage {
            Stage::Repair => !self.repair.is_empty() || (self.is_urgent() && self.is_protection_due()),
            Stage::Source => self.cursor < self.pushed,
            Stage::Proactive => self.is_protection_due(),
            Stage::Probe => self.outstanding > 0,
        }
    }

    /// Protection is part of the promise, not a use of spare capacity: datagrams whose lifetime leaves no time for feedback.
    fn is_urgent(&self) -> bool {
        self.config.mode == Mode::Btp
    }

    /// The session has more data for this flow at this moment: the burst is not over, and a batch that will grow is not protected yet.
    /// Matters to flows whose protection does not wait until the link has nothing else to do; false until told otherwise.
    pub fn expect_more(&mut self, more: bool) {
        self.has_more = more;
    }

    /// A batch waits for proactive packets and will not be sent more of at once.
    fn is_protection_due(&self) -> bool {
        let grows = |number: &u64| (number + 1) * self.batch_size() > self.pushed;
        let is_waiting = self.proactive.front().is_some_and(|front| !self.has_more || !grows(front));
        self.cursor == self.pushed && (is_waiting || self.is_tail_open())
    }

    fn is_tail_open(&self) -> bool {
        self.finished && !self.tail_protected && self.outstanding > 0
    }

    /// The next coded packet of a stage, at most `max_symbol` bytes of symbol; `None` if there is none (that fits).
    ///
    /// A packet handed out counts as on its way until its fate is told. O(1) amortised.
    pub fn poll(&mut self, now: Time, stage: Stage, context: &SendContext, max_symbol: usize) -> Option<Outgoing> {
        self.rtt = context.rtt;
        self.pace.sample(now, context.rtt, self.cursor);
        match stage {
            Stage::Repair => self
                .poll_repair(now, context, max_symbol)
                .or_else(|| if self.is_urgent() { self.poll_proactive(now, context, max_symbol) } else { None }),
            Stage::Source => self.poll_source(now, max_symbol),
            Stage::Proactive if context.spare => self.poll_proactive(now, context, max_symbol),
            Stage::Proactive => None,
            Stage::Probe => self.poll_probe(now, max_symbol),
        }
    }

    fn poll_repair(&mut self, now: Time, context: &SendContext, max_symbol: usize) -> Option<Outgoing> {
        let slack = self.slack();
        while let Some(&number) = self.repair.front() {
            let tight = self.config.class == Class::Latency;
            if let Some(batch) = self.batch_mut(number) {
                let deficit = batch.deficit();
                // P13; one grant per round trip, whatever the number of losses that it heard of meanwhile.
                if deficit > 0 && batch.transmission >= 3 && now.since(batch.extra_at) >= context.rtt / 2 {
                    batch.extra = repair_extra(batch.transmission, slack, context.rtt);
                    batch.extra_at = now;
                    batch.transmission = 2;
                }
                let is_extra = deficit == 0;
                if !is_extra || (batch.extra > 0 && batch.missing() > 0) {
                    let from = fitting_from(batch, tight, max_symbol);
                    if batch.longest(from) > max_symbol {
                        return None;
                    }
                    batch.extra -= u8::from(is_extra);
                    self.protect(number);
                    return self.combination(now, number, from);
                }
                batch.extra = 0;
                batch.in_repair = false;
            }
            self.repair.pop_front();
        }
        None
    }

    fn poll_source(&mut self, now: Time, max_symbol: usize) -> Option<Outgoing> {
        while self.cursor < self.pushed {
            let (number, index) = (self.cursor / self.batch_size(), (self.cursor % self.batch_size()) as u8);
            let batch = self.batch(number)?;
            let flies = !batch.is_abandoned(index);
            let len = batch.symbols[usize::from(index)].len();
            if flies && len > max_symbol {
                return None;
            }
            self.touch(number, |batch| batch.take_turn(now, index, flies));
            self.cursor += 1;
            if !flies {
                continue;
            }
            self.protect(number);
            self.stats.source_packets += 1;
            self.stats.coded_bytes += len as u64;
            let (flow, base, n) = (self.config.label, Seq(number * self.batch_size()), index + 1);
            return Some(Outgoing {
                base,
                n,
                coefficients: Coefficients::Index(index),
                len,
                item: SentItem::Coded { flow, base, n, from: 0, index: Some(index) },
            });
        }
        None
    }

    fn poll_proactive(&mut self, now: Time, context: &SendContext, max_symbol: usize) -> Option<Outgoing> {
        if !self.is_protection_due() {
            return None;
        }
        if self.is_tail_open() {
            self.protect_tail();
        }
        while let Some(&number) = self.proactive.front() {
            let planned = self.planned(now, number, context);
            if let Some(batch) = self.batch_mut(number).filter(|_| planned > 0) {
                let from = fitting_from(batch, true, max_symbol);
                if batch.longest(from) > max_symbol {
                    return None;
                }
                batch.planned = Some(planned - 1);
                self.stats.proactive_packets += 1;
                return self.combination(now, number, from);
            }
            if let Some(batch) = self.batch_mut(number) {
                batch.in_proactive = false;
            }
            self.proactive.pop_front();
            if !self.is_protection_due() {
                break;
            }
        }
        None
    }

    /// Proactive packets still to send for a batch, by the redundancy policy (DESIGN 3.3).
    fn planned(&mut self, now: Time, number: u64, context: &SendContext) -> u8 {
        let target = match (self.config.class, self.config.mode) {
            (Class::Bulk, Mode::Brtp) => Probability::new(self.config.no_retransmit.get().min(TAIL_TARGET)),
            _ => self.config.no_retransmit,
        };
        let is_bulk = self.config.class == Class::Bulk && !self.finished;
        let Some(batch) = self.batch(number) else { return 0 };
        if let Some(planned) = batch.planned {
            return if batch.missing() > 0 { planned } else { 0 };
        }
        let lifetime = if self.config.mode == Mode::Btp { batch.deadline().map(|at| at.since(now)) } else { None };
        // Only the question whether there is time for feedback depends on the lifetime: coarser, it repeats more often.
        let lifetime = lifetime.map(|l| if l >= context.rtt * 2 { context.rtt * 2 } else { Duration::ZERO });
        let input = RedundancyInput { loss: context.loss, runs: batch.runs(), target, spare: u8::MAX, lifetime, rtt: context.rtt, is_bulk };
        let answer = match &self.last_plan {
            Some((asked, answer)) if *asked == input => *answer,
            _ if batch.missing() == 0 => 0,
            _ => plan(&input),
        };
        self.last_plan = Some((input, answer));
        if let Some(batch) = self.batch_mut(number) {
            batch.planned = Some(answer);
        }
        answer
    }

    fn poll_probe(&mut self, now: Time, max_symbol: usize) -> Option<Outgoing> {
        // Once per PTO: the newest batch that is not known to be there; near the end unless almost everything was acknowledged.
        let newest = self.batches.iter().rposition(|b| b.missing() > 0)?;
        let from = fitting_from(&self.batches[newest], true, max_symbol);
        if self.batches[newest].longest(from) > max_symbol {
            return None;
        }
        self.combination(now, self.first + newest as u64, from)
    }

    /// A fresh combination over what was sent of a batch, from packet `from` on.
    fn combination(&mut self, now: Time, number: u64, from: u8) -> Option<Outgoing> {
        let (seed, n, len) = self.touch(number, |batch| (batch.combine(now, from), batch.end(), batch.longest(from)))?;
        let coefficients = match n - from {
            1 => Coefficients::Index(from), // a multiple of one packet is that packet
            _ if from == 0 => Coefficients::Seed(seed),
            _ => Coefficients::BitmapSeed { bitmap: super::mask(n) & !super::mask(from), seed },
        };
        self.stats.repair_packets += 1;
        self.stats.coded_bytes += len as u64;
        let (flow, base) = (self.config.label, Seq(number * self.batch_size()));
        Some(Outgoing { base, n, coefficients, len, item: SentItem::Coded { flow, base, n, from, index: None } })
    }

    /// Appends the bytes of a packet that `poll` handed out. Nothing is appended if its batch is gone meanwhile.
    pub fn write_symbol(&self, outgoing: &Outgoing, out: &mut Vec<u8>) {
        let Some(batch) = self.batch(outgoing.base.0 / self.batch_size()) else { return };
        let (seed, covered) = match outgoing.coefficients {
            Coefficients::Index(index) => {
                return out.extend_from_slice(batch.symbols.get(usize::from(index)).map_or(&[], |s| s));
            }
            Coefficients::Seed(seed) => (seed, u64::MAX),
            Coefficients::BitmapSeed { bitmap, seed } => (seed, bitmap),
            Coefficients::Vector(_) => return,
        };
        let n = usize::from(outgoing.n).min(batch.symbols.len());
        let (mut coefficients, mut sources): ([u8; MAX_SPAN], [&[u8]; MAX_SPAN]) = ([0; MAX_SPAN], [&[]; MAX_SPAN]);
        repair_coefficients(seed, n, &mut coefficients);
        for (j, symbol) in batch.symbols[..n].iter().enumerate() {
            if covered >> j & 1 == 1 {
                sources[j] = symbol;
            } else {
                coefficients[j] = 0;
            }
        }
        let start = out.len();
        out.resize(start + outgoing.len, 0);
        encode(&coefficients[..n], &sources[..n], &mut out[start..]);
    }

    /// A packet arrived.
    pub fn on_acked(&mut self, now: Time, item: &SentItem) {
        self.on_fate(now, item, true, false);
    }

    /// A packet was lost.
    pub fn on_lost(&mut self, now: Time, item: &SentItem) {
        self.on_fate(now, item, false, false);
    }

    /// A packet that had been declared lost arrived after all.
    pub fn on_spurious(&mut self, now: Time, item: &SentItem) {
        self.on_fate(now, item, true, true);
    }

    fn on_fate(&mut self, now: Time, item: &SentItem, arrived: bool, was_lost: bool) {
        match *item {
            SentItem::Coded { base, n, from, index, .. } => {
                self.touch(base.0 / self.batch_size(), |batch| {
                    if arrived { batch.on_acked(now, index, from, n, was_lost) } else { batch.on_lost(index, from, n) }
                });
            }
            SentItem::FlowEnd(_) => self.end_state = after(self.end_state, arrived),
            SentItem::FlowSkip { floor, .. } if floor.0 == self.skip => self.skip_state = after(self.skip_state, arrived),
            _ => {}
        }
    }

    /// RANK: the receiver's own word about a span (P9).
    pub fn on_rank(&mut self, now: Time, base: Seq, n: u8, rank: u8, missing: u64) {
        self.is_established = true;
        let rtt = self.rtt;
        if base.0.is_multiple_of(self.batch_size()) {
            let is_mistaken = self.touch(base.0 / self.batch_size(), |batch| batch.on_rank(now, rtt, n, rank, missing));
            self.stats.corrections += u64::from(is_mistaken == Some(true));
        }
    }

    /// The receiver has spoken of this flow: it exists there.
    pub fn is_established(&self) -> bool {
        self.is_established
    }

    /// CREDIT (P15): absolute, so an old one changes nothing.
    pub fn on_credit(&mut self, limit: Seq, done: Seq) {
        self.is_established = true;
        self.credit = self.credit.max(limit.0);
        let done = done.0.min(self.cursor);
        if done > self.done {
            self.done = done;
            self.advance_floor();
            self.free();
            let index = (done % self.batch_size()) as u8;
            if index > 0 {
                self.touch(done / self.batch_size(), |batch| batch.on_done(index));
            }
        }
    }

    /// FLOW_REFUSED: packets were acknowledged on their path but not taken.
    ///
    /// An unknown flow means that the receiver has nothing from `base` on (it restarted): all of it is sent again, as combinations.
    /// Any other reason concerns the one span, about which RANK follows.
    pub fn on_refused(&mut self, base: Seq, code: Code) {
        let number = base.0 / self.batch_size();
        if code == Code::UnknownFlow {
            for number in number.max(self.first)..self.first + self.batches.len() as u64 {
                self.touch(number, Batch::forget);
            }
            self.end_state = if self.finished { Repeated::Due } else { Repeated::Idle };
        } else {
            self.touch(number, |batch| batch.is_doubtful = true);
        }
    }

    /// FLOW_END and FLOW_SKIP that are due.
    pub fn poll_control(&mut self, _now: Time) -> Option<FlowControlFrame> {
        let flow = self.config.label;
        if self.end_state == Repeated::Due {
            self.end_state = Repeated::Sent;
            return Some(FlowControlFrame::End { flow, end: Seq(self.pushed) });
        }
        if self.skip_state == Repeated::Due {
            self.skip_state = Repeated::Sent;
            return Some(FlowControlFrame::Skip { flow, floor: Seq(self.skip) });
        }
        None
    }

    /// A control frame is due.
    pub fn has_control(&self) -> bool {
        self.end_state == Repeated::Due || self.skip_state == Repeated::Due
    }

    /// Finished, the receiver knows where the end is and what was given up, and it needs nothing more.
    pub fn is_delivered(&self) -> bool {
        let is_skip_known = matches!(self.skip_state, Repeated::Idle | Repeated::Acked);
        self.finished && self.floor >= self.pushed && self.end_state == Repeated::Acked && is_skip_known
    }

    /// Source packets sent and not yet known to be there.
    pub fn outstanding(&self) -> u64 {
        self.outstanding
    }

    /// Bytes held.
    pub fn memory(&self) -> usize {
        self.bytes
    }

    /// Counts so far.
    pub fn stats(&self) -> FlowStats {
        FlowStats { outstanding: self.outstanding, credit_limit: self.credit, memory: self.bytes, ..self.stats.clone() }
    }

    /// When `handle_timeout` wants to be called: the earliest deadline of a packet.
    pub fn poll_timeout(&self) -> Option<Time> {
        self.deadlines.next()
    }

    /// Gives up what has expired.
    pub fn handle_timeout(&mut self, now: Time) {
        self.abandon_expired(now);
    }

    /// How long the flow can go on sending new packets at its present rate.
    fn slack(&self) -> Duration {
        #[cfg(test)]
        if self.is_exact_only {
            return Duration::MAX;
        }
        if self.finished && self.cursor == self.pushed {
            return Duration::ZERO; // the end: nothing but repairs is left to do
        }
        if self.config.class == Class::Latency {
            return Duration::ZERO;
        }
        let window = self.credit.min(self.pushed + self.memory_room());
        self.pace.time_for(window - self.cursor.min(window))
    }

    /// Batches, packets sent of each, and the rank that the receiver is believed to have of them.
    #[cfg(test)]
    pub(super) fn believed_ranks(&self) -> impl Iterator<Item = (u64, u8, u8)> {
        self.batches.iter().enumerate().map(|(at, batch)| (self.first + at as u64, batch.end(), batch.end() - batch.missing()))
    }

    fn batch(&self, number: u64) -> Option<&Batch> {
        self.batches.get(usize::try_from(number.checked_sub(self.first)?).ok()?)
    }

    fn batch_mut(&mut self, number: u64) -> Option<&mut Batch> {
        self.batches.get_mut(usize::try_from(number.checked_sub(self.first)?).ok()?)
    }

    /// Changes a batch and keeps what depends on it: the count of outstanding packets and the queue of deficits.
    fn touch<R>(&mut self, number: u64, change: impl FnOnce(&mut Batch) -> R) -> Option<R> {
        let at = usize::try_from(number.checked_sub(self.first)?).ok()?;
        let batch = self.batches.get_mut(at)?;
        let result = change(batch);
        let missing = batch.missing();
        self.outstanding = self.outstanding + u64::from(missing) - u64::from(core::mem::replace(&mut batch.counted, missing));
        if !batch.in_repair && batch.deficit() > 0 {
            batch.in_repair = true;
            self.repair.push_back(number);
        }
        Some(result)
    }

    /// Puts a batch into the queue of those that deserve proactive packets, to be planned afresh.
    fn protect(&mut self, number: u64) {
        if self.config.class == Class::Bulk && self.config.mode == Mode::Brtp {
            return;
        }
        let Some(batch) = self.batch_mut(number) else { return };
        batch.planned = None;
        if !batch.in_proactive {
            batch.in_proactive = true;
            self.proactive.push_back(number);
        }
    }

    /// A finished bulk flow protects what is still out, once: then the link would be idle for round trips.
    fn protect_tail(&mut self) {
        self.tail_protected = true;
        for at in 0..self.batches.len() {
            let batch = &mut self.batches[at];
            if batch.missing() > 0 && !batch.in_proactive {
                batch.planned = None;
                batch.in_proactive = true;
                self.proactive.push_back(self.first + at as u64);
            }
        }
    }

    /// Frees batches that are wholly done or given up.
    fn free(&mut self) {
        let floor = self.floor.max(self.done);
        while self.batches.front().is_some_and(|_| (self.first + 1) * self.batch_size() <= floor) {
            let Some(mut batch) = self.batches.pop_front() else { break };
            self.outstanding -= u64::from(batch.counted);
            self.first += 1;
            // A batch that was given up before its turn came.
            self.cursor = self.cursor.max(self.first * self.batch_size());
            self.bytes -= batch.symbols.iter().map(|s| s.len() + SYMBOL_OVERHEAD).sum::<usize>();
            batch.symbols.clear();
            if self.spare.len() < 64 {
                self.spare.push(batch.symbols);
            }
        }
    }
}

/// Where a combination begins. Leaving known packets out at the front takes a bitmap in the header: not if the packet is nearly full.
fn fitting_from(batch: &Batch, tight: bool, max_symbol: usize) -> u8 {
    let from = batch.from(tight);
    if tight && batch.longest(from) + BITMAP > max_symbol { batch.from(false) } else { from }
}

/// Most bytes that the bitmap form takes beyond the seed form.
const BITMAP: usize = 8;

fn after(state: Repeated, arrived: bool) -> Repeated {
    match (state, arrived) {
        (_, true) => Repeated::Acked,
        (Repeated::Sent, false) => Repeated::Due,
        (state, false) => state,
    }
}

/// Source packets sent per unit of time, over the last round trips.
#[derive(Debug, Default)]
struct Pace {
    since: Time,
    count: u64,
    per_second: f64,
}

impl Pace {
    fn sample(&mut self, now: Time, rtt: Duration, cursor: u64) {
        let elapsed = now.since(self.since);
        if elapsed >= rtt.max(Duration::from_millis(1)) {
            self.per_second = (cursor - self.count) as f64 / elapsed.as_secs_f64();
            (self.since, self.count) = (now, cursor);
        }
    }

    fn time_for(&self, packets: u64) -> Duration {
        let seconds = packets as f64 / self.per_second;
        if seconds.is_finite() && seconds < 1e6 { Duration::from_secs_f64(seconds) } else { Duration::MAX }
    }
}

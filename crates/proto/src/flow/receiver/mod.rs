//! The receiving half of a coded flow on one hop.
//!
//! Spans stand in a queue from the first one that is not wholly there. Every bound is checked before anything is kept: a packet outside
//! the credit granted, larger than T, or at odds with the batch size is refused, and so is one for which there is no memory.

mod overlap;
mod relaying;
mod report;

use super::credit::Credit;
use super::rank::RankReports;
use super::row::Passing;
use super::span::{self, Pool, Received, Solved, Span, trim};
use super::window::WindowRepair;
use super::{Offer, mask};
use crate::error::Code;
use crate::ids::{FlowLabel, Seq};
use crate::stats::FlowStats;
use crate::units::Time;
use crate::wire::frame::{Coded, Coefficients};
use bytes::Bytes;
use noctule_codes::span::{MAX_SPAN, repair_coefficients};
use std::collections::VecDeque;

/// How a [`Receiver`] is made.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct ReceiverConfig {
    /// Hop-local label, chosen by the sender.
    pub label: FlowLabel,
    /// Packets per batch, 1..=64.
    pub batch_size: u8,
    /// Largest symbol T in bytes.
    pub symbol: u16,
    /// Bytes that the flow may hold; at least two batches (P15). Also the ceiling of the credit window.
    pub memory: usize,
    /// Source packets that the sender may send before the first CREDIT, as announced to it.
    pub initial_credit: u64,
}

/// The receiving half of a flow.
#[derive(Debug)]
pub struct Receiver {
    config: ReceiverConfig,
    /// Batches from number `first` on.
    spans: VecDeque<Span>,
    first: u64,
    /// Everything below is there or given up.
    done: u64,
    /// One past the highest sequence number seen.
    high: u64,
    end: Option<u64>,
    credit: Credit,
    /// A batch that was not complete when the next one began, and when that was.
    hole: Option<(u64, Time)>,
    ranks: RankReports,
    pool: Pool,
    window: WindowRepair,
    ready: VecDeque<(Seq, Bytes)>,
    ready_bytes: usize,
    solved: Vec<Solved>,
    woken_at: Time,
    /// At a relay: packets that raised the rank, to be passed on.
    passing: Option<VecDeque<Passing>>,
    /// At a relay, for flows whose end says nothing else of its own: what the next node is done with is what is reported as done.
    next_done: Option<u64>,
    /// At a relay: the first packet of its part of the flow.
    begun: u64,
    /// FLOW_SKIP's floor.
    skipped: u64,
    /// There is no memory for anything: what comes is refused, and asked for later.
    is_withheld: bool,
    stats: FlowStats,
}

/// Bytes that a packet costs beyond its symbol while its span is incomplete: row, its share of the basis and of the span.
const PACKET_OVERHEAD: usize = 128;
/// Bytes of one entry of the queue of spans.
const SPAN_BYTES: usize = size_of::<Span>();

impl Receiver {
    /// A receiver that has nothing yet.
    pub fn new(config: ReceiverConfig) -> Self {
        let config = ReceiverConfig { batch_size: config.batch_size.clamp(1, MAX_SPAN as u8), ..config };
        let ceiling = Self::packets_in(config.memory, config.symbol);
        Self {
            credit: Credit::new(config.initial_credit.max(2 * u64::from(config.batch_size)), ceiling),
            config,
            spans: VecDeque::new(),
            first: 0,
            done: 0,
            high: 0,
            end: None,
            hole: None,
            ranks: RankReports::default(),
            pool: Pool::default(),
            window: WindowRepair::default(),
            ready: VecDeque::new(),
            ready_bytes: 0,
            solved: Vec::new(),
            woken_at: Time::ZERO,
            passing: None,
            next_done: None,
            begun: 0,
            skipped: 0,
            is_withheld: false,
            stats: FlowStats::default(),
        }
    }

    /// Credit to announce for a flow of such packets before it begins: 1024 packets or what memory allows.
    pub fn initial_credit(memory: usize, symbol: u16) -> u64 {
        Self::packets_in(memory, symbol).clamp(128, 1024)
    }

    /// From now on so many bytes may be held. Credit that was given stands, but packets beyond what memory covers now are refused (P9) until it
    /// covers them again.
    pub fn set_memory(&mut self, bytes: usize) {
        if bytes != self.config.memory {
            self.config.memory = bytes;
            self.credit.set_ceiling(Self::packets_in(bytes, self.config.symbol));
        }
    }

    /// From now on nothing is taken, or all that memory covers again: then the first packets that were refused are asked for.
    pub fn withhold(&mut self, is_withheld: bool) {
        let was_withheld = core::mem::replace(&mut self.is_withheld, is_withheld);
        if was_withheld && !is_withheld && self.done < self.wanted() {
            self.ranks.want(self.done / self.batch_size());
        }
    }

    /// Packets that fit the memory even if every one waits for decoding, with some room to decode into.
    fn packets_in(memory: usize, symbol: u16) -> u64 {
        let room = memory.saturating_sub(16 * usize::from(symbol));
        (room / (usize::from(symbol) + PACKET_OVERHEAD)) as u64
    }

    /// Hop-local label.
    pub fn label(&self) -> FlowLabel {
        self.config.label
    }

    fn batch_size(&self) -> u64 {
        u64::from(self.config.batch_size)
    }

    /// Offers a coded packet. The packet is acknowledged on its path only after this (P9), whatever the outcome.
    pub fn on_coded(&mut self, now: Time, coded: &Coded<'_>) -> Offer {
        let mut offer = self.receive(coded);
        if offer == Offer::Accepted && !self.take_from_window() {
            offer = Offer::Refused(Code::SpanInvalid);
        }
        match offer {
            Offer::Accepted => {
                self.measure_holes(now);
                self.credit.on_arrival(now);
                self.watch(now);
            }
            Offer::Redundant => self.stats.redundant_packets += 1,
            Offer::Refused(_) => self.stats.refused_packets += 1,
        }
        offer
    }

    /// Follows one hole after the other: how long they last tells how far away the packets were lost.
    fn measure_holes(&mut self, now: Time) {
        let size = self.batch_size();
        let is_open = |number: u64, spans: &VecDeque<Span>, first: u64| {
            let span = number.checked_sub(first).and_then(|at| spans.get(at as usize));
            span.is_some_and(|span| span.missing(size as u8) != 0)
        };
        if let Some((number, since)) = self.hole {
            if !is_open(number, &self.spans, self.first) {
                self.hole = None;
                self.credit.on_filled(now.since(since));
            }
        } else if let Some(number) = (self.high.saturating_sub(1) / size).checked_sub(1)
            && is_open(number, &self.spans, self.first)
        {
            self.hole = Some((number, now));
        }
    }

    fn receive(&mut self, coded: &Coded<'_>) -> Offer {
        let span_end = match self.check(coded) {
            Ok(end) => end,
            Err(code) => return Offer::Refused(code),
        };
        if span_end <= self.done {
            self.expect_windows(coded);
            return Offer::Redundant;
        }
        if span_end > self.credit.covered() || self.is_withheld {
            // The application reads too slowly for what all flows hold together. Rank is reported when there is room again.
            self.high = self.high.max(span_end);
            return Offer::Refused(Code::NoMemory);
        }
        if !self.is_batch(coded) {
            return self.receive_window(coded, span_end);
        }
        let number = coded.base.0 / self.batch_size();
        let needed = usize::try_from(number + 1 - self.first.min(number + 1)).unwrap_or(usize::MAX);
        let held = number.checked_sub(self.first).and_then(|at| self.spans.get(at as usize));
        let decodes = held.map_or(0, |span| span.combinations()) * usize::from(self.config.symbol);
        let growth = needed.saturating_sub(self.spans.len()) * SPAN_BYTES
            + 2 * coded.symbol.len()
            + decodes
            + span::row_bytes(self.config.batch_size);
        if self.memory() + growth > self.config.memory.max(self.reserve()) {
            self.ranks.want(number);
            return Offer::Refused(Code::NoMemory);
        }
        self.stats.coded_bytes += coded.symbol.len() as u64;
        self.high = self.high.max(span_end);
        while self.spans.len() < needed {
            self.spans.push_back(Span::default());
        }
        let (n, at) = (coded.n, needed - 1);
        if self.spans[at].missing(n) == 0 {
            return Offer::Redundant;
        }
        let received = match coded.coefficients {
            _ if self.passing.is_some() => self.receive_passing(coded, at),
            Coefficients::Index(index) => {
                if trim(coded.symbol) != Some(coded.symbol.len()) {
                    return Offer::Refused(Code::SpanInvalid);
                }
                self.spans[at].on_source(index, coded.symbol, &mut self.pool, &mut self.solved)
            }
            ref others => {
                self.stats.repair_packets += 1;
                let mut row = [0; MAX_SPAN];
                vector(others, n, &mut row);
                let full = usize::from(self.config.batch_size);
                self.spans[at].on_combination(&row[..full], coded.symbol, &mut self.pool, &mut self.solved)
            }
        };
        self.hand_over(number);
        if self.spans[at].settled() == mask(self.config.batch_size) {
            self.spans[at].release(&mut self.pool);
        }
        match received {
            Received::Innovative => {
                self.settle();
                Offer::Accepted
            }
            Received::Redundant => {
                // P9: the sender believes in a deficit that this did not mend.
                self.ranks.want(number);
                Offer::Redundant
            }
            Received::Contradiction => {
                self.settle();
                self.ranks.want(number);
                Offer::Refused(Code::SpanInvalid)
            }
        }
    }

    /// A span is a batch, so far as it was sent, if it begins where batches begin and is no longer than one.
    fn is_batch(&self, coded: &Coded<'_>) -> bool {
        coded.n <= self.config.batch_size && coded.base.0.is_multiple_of(self.batch_size())
    }

    /// Bounds that every packet keeps; the end of its span.
    fn check(&self, coded: &Coded<'_>) -> Result<u64, Code> {
        let n = coded.n;
        let end = coded.base.0.checked_add(n.into()).ok_or(Code::SpanInvalid)?;
        let fits = match coded.coefficients {
            Coefficients::Index(index) => index < n,
            Coefficients::Seed(_) => true,
            Coefficients::BitmapSeed { bitmap, .. } => bitmap != 0 && bitmap & !mask(n) == 0,
            Coefficients::Vector(vector) => vector.len() == usize::from(n),
        };
        let len = coded.symbol.len();
        if !fits
            || n == 0
            || usize::from(n) > MAX_SPAN
            || len < 2
            || len > usize::from(self.config.symbol)
            || self.end.is_some_and(|known| end > known)
        {
            return Err(Code::SpanInvalid);
        }
        if end > self.credit.limit() {
            return Err(Code::FlowControl);
        }
        Ok(end)
    }

    /// Memory that a flow may always use (P15): two batches.
    fn reserve(&self) -> usize {
        2 * usize::from(self.config.batch_size) * (usize::from(self.config.symbol) + 256)
    }

    /// Queues what became known for delivery.
    fn hand_over(&mut self, number: u64) {
        let base = number * self.batch_size();
        for Solved { index, symbol, is_decoded } in self.solved.drain(..) {
            let seq = Seq(base + u64::from(index));
            self.window.source(seq, &symbol);
            let payload = symbol.slice(2..);
            self.stats.source_packets += 1;
            self.stats.decoded_packets += u64::from(is_decoded);
            self.stats.app_bytes += payload.len() as u64;
            self.ready_bytes += payload.len();
            self.ready.push_back((seq, payload));
        }
    }

    /// Moves `done` over what is there and frees spans that are complete.
    fn settle(&mut self) {
        let size = self.batch_size();
        while let Some(span) = self.spans.get_mut((self.done / size - self.first) as usize) {
            let from = (self.done % size) as u8;
            let run = ((span.settled() >> from).trailing_ones() as u8).min(self.config.batch_size - from);
            if run == 0 {
                break;
            }
            self.done += u64::from(run);
            if self.done.is_multiple_of(size) {
                span.release(&mut self.pool);
            } else {
                break;
            }
        }
        while (self.first + 1) * size <= self.done && self.spans.pop_front().is_some() {
            self.first += 1;
        }
        self.first = self.first.max(self.done / size);
        self.release_if_complete();
    }

    /// At the end of the flow nothing is left to decode.
    fn release_if_complete(&mut self) {
        if self.is_complete() {
            self.spans.iter_mut().for_each(|span| span.release(&mut self.pool));
        }
    }

    /// The next packet, each once, in the order in which they became known; the payload without its length field.
    pub fn poll_delivery(&mut self) -> Option<(Seq, Bytes)> {
        let (seq, payload) = self.ready.pop_front()?;
        self.ready_bytes -= payload.len();
        Some((seq, payload))
    }

    /// The application has taken, or freed, all packets below `total`: credit follows.
    pub fn consume(&mut self, total: u64) {
        self.credit.consume(total.min(self.high));
    }

    /// FLOW_SKIP: nothing below `floor` will be sent any more. A floor beyond the credit granted is cut to it.
    pub fn on_skip(&mut self, floor: Seq) {
        let floor = floor.0.min(self.credit.limit()).min(self.end.unwrap_or(u64::MAX));
        self.skipped = self.skipped.max(floor);
        if floor <= self.done {
            return;
        }
        self.high = self.high.max(floor);
        let size = self.batch_size();
        while (self.first + 1) * size <= floor {
            let Some(mut span) = self.spans.pop_front() else {
                // Nothing is kept from here on: the floor may be far away, and costs no steps.
                self.first = floor / size;
                break;
            };
            span.release(&mut self.pool);
            self.first += 1;
        }
        let within = (floor - self.first * size) as u8;
        if within > 0 {
            if self.spans.is_empty() {
                self.spans.push_back(Span::default());
            }
            self.spans[0].give_up(mask(within));
        }
        self.done = self.done.max(self.first * size);
        self.settle();
    }

    /// FLOW_END: `end` packets in all. Refused if it contradicts what was received, or an end that was announced before.
    pub fn on_end(&mut self, end: Seq) -> Result<(), Code> {
        if self.end.is_some_and(|known| known != end.0) || end.0 < self.high {
            return Err(Code::SpanInvalid);
        }
        self.end = Some(end.0);
        self.release_if_complete();
        Ok(())
    }

    /// What is known of the end now, by a word that counts more than the hop's (P16); `None`: the hop's was no true one.
    pub fn set_end(&mut self, end: Option<Seq>) {
        self.end = end.map(|end| end.0);
        // Whatever a hop made of packets beyond it, there are none.
        self.high = self.high.min(self.end.unwrap_or(u64::MAX));
        self.release_if_complete();
    }

    /// One past the last sequence number, once it is known.
    pub fn end(&self) -> Option<Seq> {
        self.end.map(Seq)
    }

    /// Everything up to the end is there or given up. What was not polled yet remains to be polled.
    pub fn is_complete(&self) -> bool {
        self.end.is_some_and(|end| self.done >= end)
    }

    /// Every packet below is there or given up.
    pub fn done(&self) -> Seq {
        Seq(self.done)
    }

    /// One past the last sequence number for which credit was granted.
    pub fn credit_limit(&self) -> Seq {
        Seq(self.credit.limit())
    }

    /// One past the last packet that exists and for which there is memory: asking for more of them would only move them in vain.
    fn wanted(&self) -> u64 {
        if self.is_withheld { self.done } else { self.known() }
    }

    /// The same if the flow had its memory.
    fn known(&self) -> u64 {
        self.end.unwrap_or(self.high).min(self.credit.covered())
    }

    /// Packets are missing for which there would be memory if the flow worked.
    pub fn is_short(&self) -> bool {
        self.done < self.known()
    }

    /// Bytes held: rows kept for decoding, packets not polled yet, spans.
    pub fn memory(&self) -> usize {
        self.pool.bytes + self.window.memory(self.config.symbol) + self.ready_bytes + self.spans.len() * SPAN_BYTES
    }

    /// Bytes among these of packets that were handed over as they came and are kept for decoding their batch: an application that waits for
    /// what lies before them holds the same memory.
    pub fn handed_over(&self) -> usize {
        self.pool.handed_over
    }

    /// Rank held of the first `n` packets of a batch.
    #[cfg(test)]
    pub(super) fn held_rank(&self, number: u64, n: u8) -> u8 {
        let at = number.checked_sub(self.first);
        at.map_or(n, |at| self.spans.get(at as usize).map_or(0, |span| if span.missing(n) == 0 { n } else { span.rank(n) }))
    }

    /// Counts so far.
    pub fn stats(&self) -> FlowStats {
        FlowStats {
            credit_limit: self.credit.limit(),
            outstanding: self.high - self.done.min(self.high),
            memory: self.memory(),
            ..self.stats.clone()
        }
    }
}

/// The coefficients of a combination over `n` packets, one for each place of the longest span.
pub(crate) fn coefficient_row(coefficients: &Coefficients<'_>, n: u8) -> [u8; MAX_SPAN] {
    let mut row = [0; MAX_SPAN];
    vector(coefficients, n, &mut row);
    row
}

/// The coefficients of a combination as a vector; entries beyond `n` stay 0.
fn vector(coefficients: &Coefficients<'_>, n: u8, out: &mut [u8; MAX_SPAN]) {
    let n = usize::from(n).min(MAX_SPAN);
    match *coefficients {
        Coefficients::Index(index) => out[usize::from(index) % MAX_SPAN] = 1,
        Coefficients::Seed(seed) => repair_coefficients(seed, n, &mut out[..n]),
        Coefficients::BitmapSeed { bitmap, seed } => {
            repair_coefficients(seed, n, &mut out[..n]);
            for (j, c) in out[..n].iter_mut().enumerate() {
                *c *= (bitmap >> j & 1) as u8;
            }
        }
        Coefficients::Vector(vector) => out[..n].copy_from_slice(&vector[..n]),
    }
}

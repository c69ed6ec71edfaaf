//! Window-coded repair of small flows (P4): combinations over the newest packets that are not acknowledged, whatever batches they lie in.
//!
//! How many and when says [`plan_window`]; this file keeps what was planned and what was sent. A combination whose packets lie in one batch
//! goes as one of that batch; one over a boundary is a span of its own, and its acknowledgement counts here.

use super::Sender;
use super::poll::{BITMAP, fitting_from};
use crate::flow::batch::Batch;
use crate::flow::{Outgoing, SendContext, Symbol, mask};
use crate::ids::Seq;
use crate::options::{Class, Mode};
use crate::redundancy::{Run, WindowInput, mid_burst, plan_window};
use crate::sent::SentItem;
use crate::switch::{self, Mechanism};
use crate::units::{Duration, Probability, Time};
use crate::wire::frame::Coefficients;
use noctule_codes::span::{CAUCHY_SEEDS, MAX_SPAN};
use smallvec::SmallVec;
use std::collections::VecDeque;

/// A burst that goes on although its first packets get out of reach: some combinations are sent now, and more after so many packets each.
const MID_BURST: u64 = 16;
/// Packets before a burst that its plan looks at, and most packets of the burst itself.
const OLDER: u64 = MAX_SPAN as u64;
const MOST_PLANNED: u64 = 128;
/// Bursts that wait for their copies; beyond that the oldest is left to feedback.
const MOST_WAITING: usize = 64;
/// Spans over batch boundaries that are kept count of.
const MOST_SPANS: usize = 48;

/// State of the window repair of a flow.
#[derive(Debug, Default)]
pub(super) struct WindowRepair {
    /// Packets below were planned for.
    planned: u64,
    /// Combinations to send at the end of the burst, and in its middle.
    due: u8,
    mid: u8,
    /// Packets sent before the last combinations in the middle of a burst, and the part of one that they were too few; below zero, too many.
    mid_at: u64,
    mid_owed: f64,
    copies: VecDeque<Copies>,
    spans: Vec<SentSpan>,
    next_seed: u16,
    debt: Probability,
    /// The receiver has no memory for spans that are no batches.
    is_refused: bool,
}

/// Combinations to come for a burst, unless it is acknowledged first.
#[derive(Debug)]
struct Copies {
    at: Time,
    every: Duration,
    rounds: u8,
    per_round: u8,
    burst: core::ops::Range<u64>,
}

/// Combinations over the same packets across a batch boundary.
#[derive(Debug)]
struct SentSpan {
    range: core::ops::Range<u64>,
    flying: u8,
    there: u8,
    sent_at: Time,
}

impl WindowRepair {
    /// When the next copies are due.
    pub fn next(&self) -> Option<Time> {
        self.copies.iter().map(|c| c.at).min()
    }

    /// The receiver has nothing from `base` on.
    pub fn forget(&mut self, base: u64) {
        self.planned = self.planned.min(base);
        self.spans.clear();
    }

    /// Plans for the packets from `seq` on once more: one of them had to be repaired.
    pub fn again_from(&mut self, seq: u64) {
        self.planned = self.planned.min(seq);
    }

    /// A packet whose span begins at `base` found no memory: if it was one over a batch boundary, no more of them, and those that are there or in
    /// flight count for nothing.
    fn on_refused(&mut self, base: u64, begins_batch: bool) {
        if !begins_batch || self.spans.iter().any(|s| s.range.start == base) {
            self.is_refused = true;
            self.spans.clear();
        }
    }

    /// Whatever was sent so long ago and has no fate must not be waited for.
    pub fn give_up_before(&mut self, long_ago: Time) {
        self.spans.iter_mut().filter(|s| s.sent_at < long_ago).for_each(|s| s.flying = 0);
    }

    fn on_fate(&mut self, base: u64, n: u8, arrived: bool, was_lost: bool) {
        let range = base..base + u64::from(n);
        if let Some(span) = self.spans.iter_mut().find(|s| s.range == range) {
            span.flying -= u8::from(!was_lost && span.flying > 0);
            span.there = span.there.saturating_add(u8::from(arrived));
        }
    }
}

impl Sender {
    /// Small flows: protection by combinations over the last packets instead of over batches. A relay recodes what shares one span (P4).
    pub(super) fn is_windowed(&self) -> bool {
        self.config.class == Class::Latency && self.config.mode == Mode::Brtp && self.relay.is_none()
    }

    /// Whether a span is no batch (P4).
    pub(super) fn is_window_span(&self, base: Seq, n: u8) -> bool {
        !base.0.is_multiple_of(self.batch_size()) || n > self.config.batch_size
    }

    /// The receiver has no memory for a packet whose span begins at `base`. Its acknowledgement may have been heard already, and may have said that
    /// packets are known which are not: RANK would not take that back, for the receiver does not know of the newest of them.
    pub(super) fn on_window_refused(&mut self, base: u64) {
        if switch::is_off(Mechanism::RefusedInference) {
            return;
        }
        let size = self.batch_size();
        self.window.on_refused(base, base.is_multiple_of(size));
        for number in base / size..=(base + MAX_SPAN as u64 - 1) / size {
            self.touch(number, Batch::doubt_inferred);
        }
    }

    /// Combinations wait, or a burst is over that nothing was planned for.
    pub(super) fn is_window_due(&self) -> bool {
        self.cursor == self.pushed && (self.window.due > 0 || (!self.has_more && self.window.planned < self.cursor))
    }

    /// What is due at the end of a burst and later.
    pub(super) fn poll_window(&mut self, now: Time, context: &SendContext, max_symbol: usize) -> Option<Outgoing> {
        if self.cursor < self.pushed {
            return None;
        }
        if self.window.planned < self.cursor && !self.has_more {
            self.plan_burst(now, context);
        }
        if self.window.due == 0 {
            return None;
        }
        let outgoing = self.window_combination(now, max_symbol);
        self.window.due = if outgoing.is_some() { self.window.due - 1 } else { 0 };
        outgoing
    }

    /// Combinations are due in the middle of a burst that goes on.
    pub(super) fn is_mid_burst(&self) -> bool {
        let step = if self.window.mid_at > self.window.planned { MID_BURST } else { MAX_SPAN as u64 };
        self.is_windowed() && (self.cursor < self.pushed || self.has_more) && (self.window.mid > 0 || self.since_mid() >= step)
    }

    /// Packets of the burst that no combinations in its middle were planned for.
    fn since_mid(&self) -> u64 {
        self.cursor - self.window.mid_at.max(self.window.planned).min(self.cursor)
    }

    /// In the middle of a long burst: what is out of reach at its end must have been covered before.
    pub(super) fn poll_mid_burst(&mut self, now: Time, context: &SendContext, max_symbol: usize) -> Option<Outgoing> {
        if !self.is_mid_burst() {
            return None;
        }
        if self.window.mid == 0 {
            let is_first = self.window.mid_at <= self.window.planned;
            let packets = self.since_mid().min(MAX_SPAN as u64) as u8;
            let owed = self.window.mid_owed + mid_burst(&context.loss, packets, is_first, context.gap);
            self.window.mid = owed.ceil().clamp(0.0, MAX_SPAN as f64) as u8;
            self.window.mid_owed = owed - f64::from(self.window.mid);
            self.window.mid_at = self.cursor;
        }
        if self.window.mid == 0 {
            return None;
        }
        let outgoing = self.window_combination(now, max_symbol);
        self.window.mid = if outgoing.is_some() { self.window.mid - 1 } else { 0 };
        outgoing
    }

    fn plan_burst(&mut self, now: Time, context: &SendContext) {
        let begin = self.window.planned.max(self.cursor.saturating_sub(MOST_PLANNED)).max(self.floor);
        self.window.planned = self.cursor;
        let older = begin.saturating_sub(OLDER).max(self.floor);
        let input = WindowInput {
            loss: context.loss,
            older: self.window_runs(older, begin),
            burst: self.window_runs(begin, self.cursor),
            target: self.config.no_retransmit,
            debt: self.window.debt,
            gap: context.gap,
        };
        let plan = plan_window(&input);
        self.window.debt = plan.debt;
        self.window.due = self.window.due.max(plan.at_once);
        if plan.rounds > 0 {
            let copies = Copies {
                at: now + plan.spacing,
                every: plan.spacing,
                rounds: plan.rounds,
                per_round: plan.per_round,
                burst: begin..self.cursor,
            };
            self.window.copies.push_back(copies);
            if self.window.copies.len() > MOST_WAITING {
                self.window.copies.pop_front();
            }
        }
    }

    /// Copies whose time has come, for bursts that are not acknowledged.
    pub(super) fn wake_window(&mut self, now: Time) {
        if self.window.next().is_none_or(|at| at > now) {
            return;
        }
        let mut waiting = core::mem::take(&mut self.window.copies);
        let mut due = 0;
        waiting.retain_mut(|copies| {
            let lacking = copies.burst.clone().filter(|seq| self.is_lacking(*seq)).count() as u64;
            if copies.at > now || lacking == 0 {
                return lacking > 0;
            }
            due = (lacking.min(copies.per_round.into()) as u8).saturating_add(due);
            copies.rounds -= 1;
            copies.at = now + copies.every;
            copies.rounds > 0
        });
        self.window.copies = waiting;
        self.window.due = self.window.due.max(due);
    }

    /// A packet that the reader waits for and that is not known to be there.
    fn is_lacking(&self, seq: u64) -> bool {
        let index = (seq % self.batch_size()) as u8;
        seq >= self.floor
            && self.batch(seq / self.batch_size()).is_some_and(|b| !b.is_acked(index) && !b.is_abandoned(index) && b.missing() > 0)
    }

    /// A combination over the newest packets that are not known to be there, at most 64 back.
    fn window_combination(&mut self, now: Time, max_symbol: usize) -> Option<Outgoing> {
        let size = self.batch_size();
        let start = self.cursor.saturating_sub(MAX_SPAN as u64).max(self.floor);
        let last = (start..self.cursor).rev().find(|seq| self.is_lacking(*seq))?;
        let first = (start..=last).find(|seq| self.is_lacking(*seq))?;
        let is_one_batch = first / size == last / size;
        self.stats.proactive_packets += 1;
        if is_one_batch || self.window.is_refused || switch::is_off(Mechanism::WindowSpans) {
            let batch = self.batch(last / size)?;
            let from = fitting_from(batch, true, max_symbol);
            if batch.longest(from) > max_symbol {
                self.stats.proactive_packets -= 1;
                return None;
            }
            return self.combination(now, last / size, from);
        }
        let n = (last + 1 - first) as u8;
        let lacking = (first..=last).rev().fold(0u64, |bits, seq| bits << 1 | u64::from(self.is_lacking(seq)));
        let longest = |covered: u64| {
            let of = |j: u8| self.symbol_at(first + u64::from(j)).map_or(0, Symbol::len);
            (0..n).filter(|j| covered >> j & 1 == 1).map(of).max().unwrap_or(0)
        };
        // What is known needs no part in it, if there is room to say so.
        let is_whole = lacking == mask(n) || longest(lacking) + BITMAP > max_symbol;
        let len = longest(if is_whole { mask(n) } else { lacking });
        if len > max_symbol {
            self.stats.proactive_packets -= 1;
            return None;
        }
        let seed = self.window.next_seed;
        self.window.next_seed = (seed + 1) % CAUCHY_SEEDS;
        let coefficients = if is_whole { Coefficients::Seed(seed) } else { Coefficients::BitmapSeed { bitmap: lacking, seed } };
        self.note_span(now, first..last + 1);
        self.stats.repair_packets += 1;
        self.stats.coded_bytes += len as u64;
        let (flow, base) = (self.config.label, Seq(first));
        Some(Outgoing { base, n, form: coefficients, recoded: None, len, item: SentItem::Coded { flow, base, n, from: 0, index: None } })
    }

    fn note_span(&mut self, now: Time, range: core::ops::Range<u64>) {
        if let Some(span) = self.window.spans.iter_mut().find(|s| s.range == range) {
            span.flying = span.flying.saturating_add(1);
            span.sent_at = now;
            return;
        }
        if self.window.spans.len() >= MOST_SPANS {
            self.window.spans.remove(0);
        }
        self.window.spans.push(SentSpan { range, flying: 1, there: 0, sent_at: now });
    }

    pub(super) fn symbol_at(&self, seq: u64) -> Option<&Symbol> {
        self.batch(seq / self.batch_size())?.symbols.get((seq % self.batch_size()) as usize)
    }

    /// The fate of a combination over a batch boundary.
    pub(super) fn on_window_fate(&mut self, now: Time, base: Seq, n: u8, arrived: bool, was_lost: bool) {
        self.window.on_fate(base.0, n, arrived, was_lost);
        if arrived {
            self.infer(now);
        }
        let size = self.batch_size();
        for number in base.0 / size..=(base.0 + u64::from(n) - 1) / size {
            self.touch(number, |_| ());
        }
    }

    /// As many combinations over a batch and its neighbours are in flight as are lacking there: its deficit may be mended already.
    pub(super) fn is_covered(&self, number: u64) -> bool {
        let size = self.batch_size();
        let reaches = |s: &&SentSpan| s.range.start < (number + 1) * size && s.range.end > number * size;
        let (mut flying, mut all) = (0u64, 0u64);
        let (mut low, mut high) = (number, number);
        for span in self.window.spans.iter().filter(reaches) {
            flying += u64::from(span.flying);
            all += u64::from(span.flying) + u64::from(span.there);
            low = low.min(span.range.start / size);
            high = high.max((span.range.end - 1) / size);
        }
        let deficits = || (low..=high).filter_map(|n| self.batch(n)).map(|b| u64::from(b.deficit())).sum::<u64>();
        flying > 0 && deficits() <= all
    }

    /// Packets that the receiver must know because as many combinations over them are there as packets are not.
    pub(super) fn infer(&mut self, now: Time) {
        let floor = self.floor;
        self.window.spans.retain(|s| s.range.end > floor);
        if self.window.spans.iter().all(|s| s.there == 0) {
            return;
        }
        let starts: SmallVec<[u64; 8]> = self.window.spans.iter().filter(|s| s.there > 0).map(|s| s.range.start).collect();
        let ends: SmallVec<[u64; 8]> = self.window.spans.iter().filter(|s| s.there > 0).map(|s| s.range.end).collect();
        for from in starts {
            for end in ends.iter().copied().filter(|end| *end > from) {
                let inside = |s: &&SentSpan| s.range.start >= from && s.range.end <= end;
                let combinations: u64 = self.window.spans.iter().filter(inside).map(|s| u64::from(s.there)).sum();
                if combinations > 0 && self.lacking_in(from..end) <= combinations {
                    self.settle_range(now, from..end);
                }
            }
        }
        let mut spans = core::mem::take(&mut self.window.spans);
        spans.retain(|s| s.flying > 0 || s.range.clone().any(|seq| self.is_lacking(seq)));
        self.window.spans = spans;
    }

    /// Rank that the receiver is not known to have in a range: no batch lacks more than its missing rank.
    fn lacking_in(&self, range: core::ops::Range<u64>) -> u64 {
        let size = self.batch_size();
        let parts = range.start / size..=(range.end - 1) / size;
        parts
            .map(|number| {
                let part = range.start.max(number * size)..range.end.min((number + 1) * size);
                let missing = self.batch(number).map_or(0, Batch::missing);
                (part.filter(|seq| self.is_lacking(*seq)).count() as u64).min(missing.into())
            })
            .sum()
    }

    fn settle_range(&mut self, now: Time, range: core::ops::Range<u64>) {
        for seq in range.start.max(self.floor)..range.end.min(self.cursor) {
            if self.is_lacking(seq) {
                let index = (seq % self.batch_size()) as u8;
                self.touch(seq / self.batch_size(), |batch| batch.infer(now, index));
            }
        }
    }

    /// Packets of a range that are not known to be there, with the combinations that reach to the end of each part.
    fn window_runs(&self, from: u64, end: u64) -> SmallVec<[Run; 4]> {
        let size = self.batch_size();
        let mut runs: SmallVec<[Run; 4]> = SmallVec::new();
        if from >= end {
            return runs;
        }
        let mut repairs: SmallVec<[(u64, u8, u8); 16]> = SmallVec::new();
        for number in from / size..=(end - 1) / size {
            let Some(batch) = self.batch(number) else { continue };
            repairs.extend(batch.repairs().map(|(n, there, flying)| (number * size + u64::from(n), there, flying)));
        }
        repairs.extend(self.window.spans.iter().map(|s| (s.range.end, s.there, s.flying)));
        repairs.retain(|(to, ..)| *to > from && *to <= end);
        repairs.sort_unstable();
        let mut at = from;
        let mut run = Run::default();
        for (to, there, flying) in repairs.into_iter().chain([(end, 0, 0)]) {
            if to > at {
                if at > from {
                    runs.push(core::mem::take(&mut run));
                }
                for seq in at..to {
                    if self.is_lacking(seq) {
                        let flies = self.batch(seq / size).is_some_and(|b| b.is_flying((seq % size) as u8));
                        let count = if flies { &mut run.flying } else { &mut run.lost };
                        *count = count.saturating_add(1);
                    }
                }
                at = to;
            }
            run.repairs_there = run.repairs_there.saturating_add(there);
            run.repairs_flying = run.repairs_flying.saturating_add(flying);
        }
        runs.push(run);
        runs
    }
}

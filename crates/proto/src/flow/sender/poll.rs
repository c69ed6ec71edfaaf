//! What goes out next: repairs of known deficits, source packets, the tail probe; and the bytes of each.

use super::Sender;
use crate::flow::batch::Batch;
use crate::flow::{Outgoing, SendContext, Stage, Symbol, mask};
use crate::ids::Seq;
use crate::options::{Class, Mode};
use crate::redundancy::{RepairInput, repair_extra};
use crate::sent::SentItem;
use crate::switch::{self, Mechanism};
use crate::units::{Duration, Time};
use crate::wire::frame::Coefficients;
use noctule_codes::span::{MAX_SPAN, repair_coefficients};

/// Round trips in which a flow is young: start-up takes up to nine of them (P11), exact repair of what the last one sent seven more at 20 % of loss.
const YOUNG_ROUNDS: u32 = 16;

impl Sender {
    /// Something to send in this stage. May be true when `poll` then finds nothing; never false when there is something.
    pub fn has(&self, stage: Stage) -> bool {
        match stage {
            Stage::Repair | Stage::Proactive if !self.allowance.is_left() => false,
            Stage::Repair => !self.repair.is_empty() || (self.is_urgent() && self.is_protection_due()) || self.is_mid_burst(),
            Stage::Source if self.relay.is_some() => self.has_row(),
            Stage::Source => self.cursor < self.pushed.min(self.credit),
            Stage::Proactive => self.is_protection_due(),
            Stage::Probe => self.outstanding > 0,
        }
    }

    /// The next coded packet of a stage, at most `max_symbol` bytes of symbol; `None` if there is none (that fits).
    ///
    /// A packet handed out counts as in flight until its fate is told. O(1) amortised.
    pub fn poll(&mut self, now: Time, stage: Stage, context: &SendContext, max_symbol: usize) -> Option<Outgoing> {
        self.rtt = context.rtt;
        self.allowance.on_path(context.uncontrolled);
        self.pace.sample(now, context.rtt, self.cursor);
        let repair = match stage {
            Stage::Source => return self.poll_source(now, max_symbol),
            Stage::Probe => return self.poll_probe(now, max_symbol),
            _ if !self.allowance.is_left() => None,
            Stage::Repair => self.poll_repair(now, context, max_symbol).or_else(|| {
                if self.is_urgent() {
                    self.poll_proactive(now, context, max_symbol)
                } else if context.spare {
                    self.poll_mid_burst(now, context, max_symbol)
                } else {
                    None
                }
            }),
            Stage::Proactive if context.spare && (context.slack || !self.is_patient()) => self.poll_proactive(now, context, max_symbol),
            Stage::Proactive => None,
        };
        self.allowance.on_repair(repair.is_some());
        repair
    }

    fn poll_repair(&mut self, now: Time, context: &SendContext, max_symbol: usize) -> Option<Outgoing> {
        let size = self.batch_size();
        while let Some(&number) = self.repair.front() {
            let tight = self.config.class == Class::Latency;
            let is_covered = self.is_covered(number);
            if let Some(batch) = self.batch_mut(number).filter(|_| is_covered) {
                // Whatever becomes of the combinations that may mend it brings the batch back here.
                batch.in_repair = false;
            } else {
                let extra = self.extra_due(now, number, context);
                let Some(batch) = self.batch_mut(number) else {
                    self.repair.pop_front();
                    continue;
                };
                let deficit = batch.deficit();
                if let Some(extra) = extra {
                    batch.extra = extra;
                    batch.extra_at = now;
                    batch.transmission = 2;
                    batch.in_vain = batch.in_vain.saturating_add(1);
                }
                let is_extra = deficit == 0;
                if !is_extra || (batch.extra > 0 && batch.missing() > 0) {
                    let from = fitting_from(batch, tight, max_symbol);
                    if batch.longest(from) > max_symbol {
                        return None;
                    }
                    batch.extra -= u8::from(is_extra);
                    let first = number * size + u64::from(batch.from(true));
                    // What is repaired shall not need yet another round trip; copies that are spaced in time go on anyway.
                    if self.is_windowed() && context.loss.burst.is_zero() {
                        self.window.again_from(first);
                    }
                    self.protect(now, number);
                    return self.combination(now, number, from);
                }
                batch.extra = 0;
                batch.in_repair = false;
            }
            self.repair.pop_front();
        }
        None
    }

    /// What is to be sent beyond the deficit of a batch that lost a repair (P13): asked once per round trip, whatever the number of losses that it
    /// heard of meanwhile.
    fn extra_due(&self, now: Time, number: u64, context: &SendContext) -> Option<u8> {
        let batch = self.batch(number)?;
        if batch.deficit() == 0 || batch.transmission < 3 || now.since(batch.extra_at) < context.rtt / 2 {
            return None;
        }
        #[cfg(test)]
        if self.is_exact_only {
            return Some(0);
        }
        let is_asked = self.config.mode == Mode::Btp && !switch::is_off(Mechanism::LifetimeLeft);
        let lifetime = batch.deadline().filter(|_| is_asked).map(|at| at.since(now));
        // The window of a latency flow never matters, its latency does; datagrams with a lifetime have that much time.
        let is_hurried = self.config.class == Class::Latency && lifetime.is_none();
        Some(repair_extra(&RepairInput {
            transmission: batch.transmission,
            in_vain: batch.in_vain,
            deficit: batch.deficit(),
            loss: context.loss.mean,
            left: if is_hurried { Duration::ZERO } else { self.time_left(number) },
            lifetime,
            rtt: context.rtt,
            is_relayed: self.is_relayed(),
            is_young: self.began.is_some_and(|began| now.since(began) < context.rtt * YOUNG_ROUNDS),
            is_lasting: self.config.mode == Mode::Brtp && self.config.class == Class::Bulk,
        }))
    }

    /// How long the flow can go on sending new packets at its present rate until its window halts at a batch: what lies before the batch in
    /// the window leaves it if nothing else holds it up.
    fn time_left(&self, number: u64) -> Duration {
        if self.finished && self.is_all_sent() {
            return Duration::ZERO; // the end: nothing but repairs is left to do
        }
        let window = self.credit.min(self.pushed + self.memory_room());
        let before = if switch::is_off(Mechanism::TimeLeft) { 0 } else { number.saturating_sub(self.first) * self.batch_size() };
        self.pace.time_for(window - self.cursor.min(window) + before)
    }

    fn poll_source(&mut self, now: Time, max_symbol: usize) -> Option<Outgoing> {
        if self.relay.is_some() {
            return self.poll_row(now, max_symbol);
        }
        // Beyond credit only what was sent before over another hop.
        while self.cursor < self.pushed.min(self.credit) {
            let (number, index) = (self.cursor / self.batch_size(), (self.cursor % self.batch_size()) as u8);
            let batch = self.batch(number)?;
            let flies = !batch.is_abandoned(index);
            let len = batch.symbols[usize::from(index)].len();
            if flies && len > max_symbol {
                return None;
            }
            self.touch(number, |batch| batch.take_turn(now, index, flies));
            self.cursor += 1;
            self.began.get_or_insert(now);
            if !flies {
                continue;
            }
            self.protect(now, number);
            self.stats.source_packets += 1;
            self.stats.coded_bytes += len as u64;
            let (flow, base, n) = (self.config.label, Seq(number * self.batch_size()), index + 1);
            return Some(Outgoing {
                base,
                n,
                form: Coefficients::Index(index),
                recoded: None,
                len,
                item: SentItem::Coded { flow, base, n, from: 0, index: Some(index) },
            });
        }
        None
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
    pub(super) fn combination(&mut self, now: Time, number: u64, from: u8) -> Option<Outgoing> {
        if self.relay.is_some() {
            return self.recombination(now, number, from);
        }
        let (seed, n, len) = self.touch(number, |batch| (batch.combine(now, from), batch.end(), batch.longest(from)))?;
        let coefficients = match n - from {
            1 => Coefficients::Index(from), // a multiple of one packet is that packet
            _ if from == 0 => Coefficients::Seed(seed),
            _ => Coefficients::BitmapSeed { bitmap: mask(n) & !mask(from), seed },
        };
        self.stats.repair_packets += 1;
        self.stats.coded_bytes += len as u64;
        let (flow, base) = (self.config.label, Seq(number * self.batch_size()));
        Some(Outgoing { base, n, form: coefficients, recoded: None, len, item: SentItem::Coded { flow, base, n, from, index: None } })
    }

    /// Appends the bytes of a packet that `poll` handed out. Nothing is appended if its batch is gone meanwhile.
    pub fn write_symbol(&self, outgoing: &Outgoing, out: &mut Vec<u8>) {
        let base = outgoing.base.0;
        let Some(batch) = self.batch(base / self.batch_size()) else { return };
        if self.relay.is_some() {
            return Self::write_row(batch, outgoing, out);
        }
        let (seed, covered) = match outgoing.form {
            Coefficients::Index(index) => {
                return self.symbol_at(base + u64::from(index)).into_iter().for_each(|symbol| symbol.write(out));
            }
            Coefficients::Seed(seed) => (seed, u64::MAX),
            Coefficients::BitmapSeed { bitmap, seed } => (seed, bitmap),
            Coefficients::Vector(_) => return,
        };
        let n = usize::from(outgoing.n).min(MAX_SPAN);
        let mut coefficients = [0; MAX_SPAN];
        repair_coefficients(seed, n, &mut coefficients);
        let is_covered = |j: usize| covered >> j & 1 == 1;
        let terms = (0..n).filter(|j| is_covered(*j)).filter_map(|j| Some((coefficients[j], self.symbol_at(base + j as u64)?)));
        Symbol::combine(terms, outgoing.len, out);
    }
}

/// Where a combination begins. Leaving known packets out at the front takes a bitmap in the header: not if the packet is nearly full.
pub(super) fn fitting_from(batch: &Batch, tight: bool, max_symbol: usize) -> u8 {
    let from = batch.from(tight);
    if tight && batch.longest(from) + BITMAP > max_symbol { batch.from(false) } else { from }
}

/// Most bytes that the bitmap form takes beyond the seed form.
pub(super) const BITMAP: usize = 8;

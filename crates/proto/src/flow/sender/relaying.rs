//! A relay's sender: its source is what the relay's receiver passes on, in the order of batches (P14).

use super::{Repeated, SYMBOL_OVERHEAD, Sender, SenderConfig};
use crate::flow::batch::Batch;
use crate::flow::row::{self, Passing};
use crate::flow::{Outgoing, Symbol};
use crate::ids::Seq;
use crate::sent::SentItem;
use crate::stats::SpanStats;
use crate::units::Time;
use crate::wire::frame::Coefficients;
use std::collections::BTreeSet;

/// State of a sender that is fed by a receiver.
#[derive(Debug, Default)]
pub(super) struct Relaying {
    /// Batches with packets that wait for their turn.
    waiting: BTreeSet<u64>,
    /// Packets that wait.
    count: u64,
    /// One past the last source packet, once the upstream node has told.
    end: Option<u64>,
    /// Packets combined here.
    recoded: u64,
    /// What became of the batches that are over.
    spans: SpanStats,
    /// Packets that were given up before their turn came.
    dropped: u64,
}

impl Sender {
    /// A sender that passes on what a relay receives, from source packet `first` on.
    pub fn relaying(config: SenderConfig, first: Seq) -> Self {
        let mut sender = Self::new(config);
        let number = first.0 / sender.batch_size();
        sender.first = number;
        let first = number * sender.batch_size();
        (sender.pushed, sender.cursor, sender.done, sender.floor) = (first, first, first, first);
        sender.credit = first + config.initial_credit;
        sender.relay = Some(Relaying::default());
        sender
    }

    /// Takes an innovative packet to pass on; after `deadline` nobody wants it.
    pub fn push_passing(&mut self, passing: Passing, deadline: Option<Time>) {
        let number = passing.base.0 / self.batch_size();
        let Some(at) = number.checked_sub(self.first) else { return };
        while self.batches.len() as u64 <= at {
            let symbols = self.spare.pop().unwrap_or_else(|| Vec::with_capacity(usize::from(self.config.batch_size)));
            self.batches.push_back(Batch::new(symbols));
        }
        let end = passing.base.0 + u64::from(passing.row.n);
        if end <= self.floor {
            return; // the next node has it, or nobody wants it
        }
        let size = self.batch_size();
        self.bytes += passing.symbol.len() + SYMBOL_OVERHEAD + passing.row.bytes();
        if let (Some(batch), Some(relay)) = (self.batches.get_mut(at as usize), &mut self.relay) {
            let k = batch.symbols.len();
            if let Some(deadline) = deadline {
                batch.deadlines.resize(k, Time::MAX);
                batch.deadlines.push(deadline);
                // Numbered as rows, which is how packets of a batch are given up here.
                self.deadlines.add(Seq(number * size + k as u64), deadline);
            }
            batch.symbols.push(Symbol::whole(passing.symbol));
            batch.rows.push(passing.row);
            relay.waiting.insert(number);
            relay.count += 1;
        }
        self.pushed = self.pushed.max(end);
    }

    /// The upstream node has told how many packets there are.
    pub fn finish_at(&mut self, end: Seq) {
        if let Some(relay) = &mut self.relay
            && !self.finished
        {
            relay.end = Some(end.0);
            self.finished = true;
            self.end_state = Repeated::Due;
        }
    }

    /// The upstream node sends nothing below `floor` any more.
    pub fn skip(&mut self, floor: Seq) {
        if floor.0 <= self.floor {
            return;
        }
        self.floor = floor.0;
        self.skip = floor.0;
        self.skip_state = Repeated::Due;
        self.pushed = self.pushed.max(self.floor);
        self.free();
    }

    /// The relay will get nothing more below `done`: batches of which everything was given up, or is there, are over (P17).
    pub fn give_up_below(&mut self, done: Seq) {
        let size = self.batch_size();
        let mut floor = self.floor;
        let mut is_awaited = false;
        while (floor / size + 1) * size <= done.0 {
            let Some(batch) = self.batch(floor / size).filter(|batch| batch.is_over()) else { break };
            is_awaited |= batch.missing_given_up();
            floor = (floor / size + 1) * size;
        }
        if is_awaited {
            self.skip(Seq(floor));
        }
    }

    /// The flow passes relays, this one or others after it.
    pub(super) fn is_relayed(&self) -> bool {
        self.relay.is_some() || self.kept.is_some()
    }

    /// Packets that wait for their first turn.
    pub fn waiting(&self) -> u64 {
        self.relay.as_ref().map_or(0, |relay| relay.count)
    }

    /// Packets that were combined here, and packets that were given up before their turn.
    pub fn relayed_counts(&self) -> (u64, u64) {
        self.relay.as_ref().map_or((0, 0), |relay| (relay.recoded, relay.dropped))
    }

    /// What became of the batches that are over.
    pub fn span_stats(&self) -> SpanStats {
        self.relay.as_ref().map_or_else(SpanStats::default, |relay| relay.spans.clone())
    }

    /// The first batch is over.
    pub(super) fn note_batch(&mut self, batch: &Batch) {
        let is_all_there = (self.first + 1) * self.batch_size() <= self.done;
        let rank_in = batch.symbols.len();
        if let Some(relay) = &mut self.relay {
            let rank_out = if is_all_there { rank_in } else { batch.known_rank().into() };
            relay.spans.note(rank_in, rank_out, batch.recoded.into());
        }
    }

    /// Everything below is known to be there, as the receiver says.
    pub fn done(&self) -> Seq {
        Seq(self.done)
    }

    /// One past the last packet.
    pub(super) fn end(&self) -> u64 {
        self.relay.as_ref().and_then(|relay| relay.end).unwrap_or(self.pushed)
    }

    pub(super) fn is_all_sent(&self) -> bool {
        self.relay.as_ref().map_or(self.cursor == self.pushed, |relay| relay.count == 0)
    }

    /// Everything that is held waits for its turn again.
    pub(super) fn restart_rows(&mut self) {
        let first = self.first;
        if let Some(relay) = &mut self.relay {
            let rows = self.batches.iter().enumerate().filter(|(_, batch)| batch.has_unsent());
            relay.waiting = rows.clone().map(|(at, _)| first + at as u64).collect();
            relay.count = rows.map(|(_, batch)| batch.symbols.len() as u64).sum();
        }
    }

    /// Packets of freed batches wait no more.
    pub(super) fn forget_waiting(&mut self) {
        let first = self.first;
        if let Some(relay) = &mut self.relay {
            while relay.waiting.first().is_some_and(|number| *number < first) {
                relay.waiting.pop_first();
            }
        }
    }

    /// A batch is freed with so many packets that had no turn.
    pub(super) fn note_dropped(&mut self, unsent: usize) {
        if let Some(relay) = &mut self.relay {
            relay.count -= (unsent as u64).min(relay.count);
            relay.dropped += unsent as u64;
        }
    }

    /// A packet may have its turn now, as far as credit goes.
    pub(super) fn has_row(&self) -> bool {
        let Some(&number) = self.relay.as_ref().and_then(|relay| relay.waiting.first()) else { return false };
        self.batch(number)
            .and_then(|batch| batch.rows.get(usize::from(batch.next_turn())))
            .is_some_and(|row| number * self.batch_size() + u64::from(row.n) <= self.credit)
    }

    /// The next packet to pass on: of the oldest batch first, which is what the reader waits for.
    pub(super) fn poll_row(&mut self, now: Time, max_symbol: usize) -> Option<Outgoing> {
        while self.has_row() {
            let number = *self.relay.as_ref()?.waiting.first()?;
            let batch = self.batch(number)?;
            let k = batch.next_turn();
            let (row, len) = (batch.rows.get(usize::from(k))?, batch.symbols.get(usize::from(k))?.len());
            let flies = !batch.is_abandoned(k);
            if flies && len > max_symbol {
                return None;
            }
            let n = row.n;
            let (form, recoded) = row.coefficients();
            let has_more = self.touch(number, |batch| {
                batch.take_turn(now, k, flies);
                batch.has_unsent()
            })?;
            let relay = self.relay.as_mut()?;
            relay.count = relay.count.saturating_sub(1);
            relay.dropped += u64::from(!flies);
            if !has_more {
                relay.waiting.remove(&number);
            }
            let base = Seq(number * self.batch_size());
            self.cursor = self.cursor.max(base.0 + u64::from(n));
            if !flies {
                continue;
            }
            self.protect(now, number);
            self.stats.source_packets += 1;
            self.stats.coded_bytes += len as u64;
            let item = SentItem::Coded { flow: self.config.label, base, n: k + 1, from: 0, index: Some(k) };
            return Some(Outgoing { base, n, form, recoded, len, item });
        }
        None
    }

    /// A fresh combination of the packets held of a batch, from the `from`-th on.
    pub(super) fn recombination(&mut self, now: Time, number: u64, from: u8) -> Option<Outgoing> {
        let (seed, end, len) = self.touch(number, |batch| (batch.combine(now, from), batch.end(), batch.longest(from)))?;
        let rows = self.batch(number)?.rows.get(..usize::from(end))?;
        let (n, form, recoded) = row::combine(rows, seed, from.into());
        if let Some(relay) = &mut self.relay {
            relay.recoded += 1;
        }
        if let Some(batch) = self.batch_mut(number) {
            batch.recoded = batch.recoded.saturating_add(1);
        }
        self.stats.repair_packets += 1;
        self.stats.coded_bytes += len as u64;
        let (flow, base) = (self.config.label, Seq(number * self.batch_size()));
        Some(Outgoing { base, n, form, recoded, len, item: SentItem::Coded { flow, base, n: end, from, index: None } })
    }

    /// The data of a packet that is passed on or combined.
    pub(super) fn write_row(batch: &Batch, outgoing: &Outgoing, out: &mut Vec<u8>) {
        let SentItem::Coded { n: end, from, index, .. } = outgoing.item else { return };
        let single = index.or_else(|| (end == from + 1).then_some(from));
        if let Some(k) = single {
            return batch.symbols.get(usize::from(k)).into_iter().for_each(|symbol| symbol.write(out));
        }
        let seed = match outgoing.form {
            Coefficients::Seed(seed) | Coefficients::BitmapSeed { seed, .. } => seed,
            _ => outgoing.recoded.as_ref().map_or(0, |r| r.seed),
        };
        let end = usize::from(end).min(batch.symbols.len());
        let weights = row::weights(&batch.rows[..end.min(batch.rows.len())], seed, from.into());
        Symbol::combine(weights.into_iter().zip(&batch.symbols[..end]), outgoing.len, out);
    }
}

//! What a sender knows of one batch: which packets had their turn, which are there, what is in flight.
//!
//! Rank is counted, not computed: sources by index, combinations by the part `from..n` of the span that they cover. Combinations with
//! fresh seeds are in general position, so that a set of them together with sources has the rank that counting gives; where this fails
//! (mixed prefixes, one case in some 256), the receiver's RANK corrects it (P9).

use super::mask;
use super::row::{Row, RowForm};
use super::symbol::Symbol;
use crate::redundancy::Run;
use crate::switch::{self, Mechanism};
use crate::units::{Duration, Time};
use noctule_codes::span::{Basis, CAUCHY_SEEDS, MAX_SPAN};
use smallvec::SmallVec;

/// Combinations over the same part of the span.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Class {
    from: u8,
    n: u8,
    acked: u8,
    flying: u8,
    /// Those that RANK has counted before their acknowledgement came, which then counts no more: in flight as far as the path knows, and
    /// declared lost.
    early: u8,
    early_lost: u8,
}

impl Class {
    /// Which combinations RANK counted is a guess: as long as acknowledgements of any are to come, none counts again.
    fn on_acked(&mut self, was_lost: bool) {
        match (self.early, self.early_lost, was_lost) {
            (0, 0, _) => {
                self.acked = self.acked.saturating_add(1).min(64);
                self.flying = self.flying.saturating_sub(u8::from(!was_lost));
            }
            (1.., _, false) => self.early -= 1,
            (_, 1.., true) => self.early_lost -= 1,
            (_, _, true) => {
                self.early -= 1;
                self.flying = self.flying.saturating_add(1);
            }
            (_, _, false) => {
                self.early_lost -= 1;
                self.flying = self.flying.saturating_sub(1);
            }
        }
    }

    fn on_lost(&mut self) {
        if self.flying > 0 {
            self.flying -= 1;
        } else if self.early > 0 {
            self.early -= 1;
            self.early_lost = self.early_lost.saturating_add(1);
        }
    }

    /// Of `count` combinations that the receiver has and no acknowledgement told of, as many as may be of this kind; returns the others.
    fn count_early(&mut self, count: u8) -> u8 {
        let early = count.min(self.flying);
        self.flying -= early;
        self.early = self.early.saturating_add(early);
        count - early
    }
}

/// Sender's state of one batch.
#[derive(Debug)]
pub(super) struct Batch {
    /// Symbols pushed so far.
    pub symbols: Vec<Symbol>,
    /// At a relay, what each symbol is in terms of source packets, and "source packet" means "row" here; empty at a source.
    pub rows: Vec<Row>,
    /// Deadlines of the packets that have one, by index (`Time::MAX`: none); empty if no packet has.
    pub deadlines: Vec<Time>,
    /// Packets of the front that had their turn: sent uncoded, or passed over because they were given up before.
    sent: u8,
    /// Source packets known to be there.
    acked: u64,
    /// Of these, packets that only follow from combinations that arrived: the receiver's word may take them back.
    inferred: u64,
    /// Source packets in flight, uncoded.
    flying: u64,
    /// Source packets that nobody waits for any more.
    abandoned: u64,
    classes: SmallVec<[Class; 3]>,
    next_seed: u16,
    /// Transmissions of the present deficit: 2 after a source packet was lost, 3 after a combination was.
    pub transmission: u8,
    /// Round trips in which a repair fell short.
    pub in_vain: u8,
    /// Combinations to send beyond the deficit (P13).
    pub extra: u8,
    /// When `extra` was last granted.
    pub extra_at: Time,
    /// Proactive packets still to send, once planned.
    pub planned: Option<u8>,
    /// `missing` as it was last counted among the sender's outstanding packets.
    pub counted: u8,
    /// In the queue of batches with a deficit.
    pub in_repair: bool,
    /// In the queue of batches to protect.
    pub in_proactive: bool,
    /// The receiver refused packets of this batch: its acknowledgements may not stand for rank.
    pub is_doubtful: bool,
    /// When an acknowledgement of this batch was last heard.
    acked_at: Time,
    /// When a packet of this batch last went out.
    sent_at: Time,
    /// At a relay, combinations made.
    pub recoded: u8,
}

impl Batch {
    pub fn new(symbols: Vec<Symbol>) -> Self {
        Self {
            symbols,
            rows: Vec::new(),
            deadlines: Vec::new(),
            sent: 0,
            acked: 0,
            inferred: 0,
            flying: 0,
            abandoned: 0,
            classes: SmallVec::new(),
            next_seed: 0,
            transmission: 1,
            in_vain: 0,
            extra: 0,
            extra_at: Time::ZERO,
            planned: None,
            counted: 0,
            in_repair: false,
            in_proactive: false,
            is_doubtful: false,
            acked_at: Time::ZERO,
            sent_at: Time::ZERO,
            recoded: 0,
        }
    }

    pub fn is_abandoned(&self, index: u8) -> bool {
        self.abandoned >> index & 1 == 1
    }

    pub fn is_acked(&self, index: u8) -> bool {
        self.acked >> index & 1 == 1
    }

    pub fn is_flying(&self, index: u8) -> bool {
        self.flying >> index & 1 == 1
    }

    /// Packet `index` follows from combinations over a batch boundary that arrived.
    pub fn infer(&mut self, now: Time, index: u8) {
        self.acked_at = now;
        self.acked |= 1 << index;
        self.inferred |= 1 << index;
        self.flying &= !(1 << index);
    }

    /// Combinations by the end of what they cover: arrived, and in flight.
    pub fn repairs(&self) -> impl Iterator<Item = (u8, u8, u8)> + '_ {
        self.classes.iter().map(|c| (c.n, c.acked, c.flying))
    }

    /// Source packet `index` goes out uncoded, or is passed over.
    pub fn take_turn(&mut self, now: Time, index: u8, flies: bool) {
        self.sent_at = now;
        self.sent = index + 1;
        self.flying |= u64::from(flies) << index;
    }

    /// Given-up packets at the front: combinations need not cover them.
    fn given_up(&self) -> u8 {
        (self.abandoned.trailing_ones() as u8).min(self.sent)
    }

    /// First packet that a combination has to cover. With `tight`, packets known to be there are left out at the front as well:
    /// shorter symbols and less to compute, for a longer header.
    pub fn from(&self, tight: bool) -> u8 {
        if !tight {
            return self.given_up();
        }
        ((self.abandoned | self.acked).trailing_ones() as u8).min(self.sent)
    }

    /// One past the last packet that is waited for: combinations need not go beyond it.
    pub fn end(&self) -> u8 {
        64 - (mask(self.sent) & !self.abandoned).leading_zeros() as u8
    }

    /// Rank of what is known to be there, with what is in flight if `with_flying`, within the part from `given_up` on.
    fn rank(&self, with_flying: bool) -> u8 {
        let start = self.given_up();
        let sources = if with_flying { self.acked | self.flying } else { self.acked };
        let end = self.end().max(start);
        let inside = mask(end) & !mask(start);
        let mut rank = (sources & inside).count_ones() as u8;
        if self.classes.is_empty() {
            return rank;
        }
        let count = |c: &Class| {
            // A combination that covers given-up packets which never arrived says nothing about the others.
            let spoiled = c.from < start && (mask(start) & !mask(c.from) & !sources) != 0;
            if spoiled { 0 } else { u32::from(c.acked) + if with_flying { u32::from(c.flying) } else { 0 } }
        };
        let length = end - start;
        if self.classes.iter().all(|c| c.n >= end) {
            let combinations: u32 = self.classes.iter().map(count).sum();
            return (u32::from(rank) + combinations).min(length.into()) as u8;
        }
        // Prefixes of different length: no prefix can hold more rank than packets.
        rank = 0;
        for part in start + 1..=end {
            let at_part = |c: &&Class| c.n == part || (part == end && c.n > end);
            let combinations: u32 = self.classes.iter().filter(at_part).map(count).sum();
            let total = u32::from(rank) + (sources >> (part - 1) & 1) as u32 + combinations;
            rank = total.min(u32::from(part - start)) as u8;
        }
        rank
    }

    fn is_satisfied(&self) -> bool {
        mask(self.sent) & !self.abandoned & !self.acked == 0
    }

    /// Rank that the receiver is not yet known to have.
    pub fn missing(&self) -> u8 {
        if self.is_satisfied() { 0 } else { self.end() - self.given_up() - self.rank(false) }
    }

    /// Rank that the receiver is known to have of what is held here.
    pub fn known_rank(&self) -> u8 {
        self.rank(false)
    }

    /// Rank that will be missing even if everything in flight arrives.
    pub fn deficit(&self) -> u8 {
        if self.is_satisfied() { 0 } else { self.end() - self.given_up() - self.rank(true) }
    }

    /// The batch as the redundancy policy sees it: what lacks or is in flight, prefix by prefix.
    pub fn runs(&self) -> SmallVec<[Run; 4]> {
        let start = self.given_up();
        let last = self.end().max(start);
        let mut ends: SmallVec<[u8; 4]> = self.classes.iter().map(|c| c.n).filter(|n| *n > start && *n < last).collect();
        ends.push(last);
        ends.sort_unstable();
        ends.dedup();
        let mut from = start;
        let mut runs = SmallVec::new();
        for end in ends {
            let inside = mask(end) & !mask(from) & !self.acked;
            let mut run = Run { flying: (inside & self.flying).count_ones() as u8, ..Run::default() };
            run.lost = inside.count_ones() as u8 - run.flying;
            for class in self.classes.iter().filter(|c| c.n == end || (end == last && c.n > last)) {
                run.repairs_there = run.repairs_there.saturating_add(class.acked);
                run.repairs_flying = run.repairs_flying.saturating_add(class.flying);
            }
            runs.push(run);
            from = end;
        }
        runs
    }

    fn class(&mut self, from: u8, n: u8) -> Option<&mut Class> {
        self.classes.iter_mut().find(|c| c.from == from && c.n == n)
    }

    /// A combination over `from..end` goes out: its seed, fresh in this span.
    pub fn combine(&mut self, now: Time, from: u8) -> u16 {
        self.sent_at = now;
        let n = self.end();
        if self.class(from, n).is_none() {
            if self.classes.len() >= MOST_CLASSES {
                self.classes.retain(|c| c.acked > 0 || c.flying > 0 || c.early > 0);
            }
            self.classes.push(Class { from, n, ..Class::default() });
        }
        if let Some(class) = self.class(from, n) {
            class.flying = class.flying.saturating_add(1);
        }
        let seed = self.next_seed;
        self.next_seed = seed.checked_add(1).unwrap_or(CAUCHY_SEEDS);
        seed
    }

    /// A packet arrived; `was_lost`: it had been declared lost before.
    pub fn on_acked(&mut self, now: Time, index: Option<u8>, from: u8, n: u8, was_lost: bool) {
        self.acked_at = now;
        match index {
            Some(index) => {
                self.acked |= 1 << index;
                self.inferred &= !(1 << index);
                self.flying &= !(1 << index);
            }
            None => {
                if let Some(class) = self.class(from, n) {
                    class.on_acked(was_lost);
                }
            }
        }
    }

    /// A packet was lost.
    pub fn on_lost(&mut self, index: Option<u8>, from: u8, n: u8) {
        match index {
            Some(index) => {
                self.flying &= !(1 << index);
                self.transmission = self.transmission.max(2);
            }
            None => {
                if let Some(class) = self.class(from, n) {
                    class.on_lost();
                }
                self.transmission = 3;
            }
        }
    }

    /// The receiver's own word (P9): of the first `n` packets it has rank `rank` and lacks those in `missing`. True if the sender had believed
    /// in more rank than that: it is repaired as a deficit that was repaired in vain.
    ///
    /// Its word may be older than acknowledgements of uncoded packets that were heard since; these stand, unless the receiver said that
    /// it refuses packets, or the last of them is older than `staleness`, the time that a report can have been under way. It may also be
    /// newer than the acknowledgements: combinations in it count once.
    pub fn on_rank(&mut self, now: Time, staleness: Duration, n: u8, rank: u8, missing: u64) -> bool {
        let before = self.missing();
        let inside = self.inside(n);
        let determined = self.determined(inside, missing);
        let rank = self.rank_from_here(inside, n, rank, missing);
        let n = 64 - inside.leading_zeros() as u8;
        if self.is_doubtful || now.since(self.acked_at) > staleness {
            self.acked &= !inside;
            self.is_doubtful = false;
        }
        self.acked &= !(self.inferred & inside & missing);
        self.inferred &= !(inside & missing);
        self.acked |= determined;
        // Combinations that were passed on as they came count where they were acknowledged.
        let passed_on = self.acked & inside & !self.plain();
        let combinations = rank.min(n).saturating_sub((determined | passed_on).count_ones() as u8);
        let known: u8 = self.classes.iter().filter(|c| c.n <= n).fold(0, |sum, c| sum.saturating_add(c.acked));
        let mut early = combinations.saturating_sub(known);
        for class in self.classes.iter_mut().filter(|c| c.n <= n) {
            class.acked = 0;
            early = class.count_early(early);
        }
        // Whatever was sent so long ago and has no fate was never sent, or its path is gone: it must not be waited for.
        let is_all_there_is = switch::is_off(Mechanism::LossFeedback) && now.since(self.sent_at) > staleness;
        if now.since(self.sent_at) > staleness * 3 || is_all_there_is {
            self.flying &= !inside;
            self.classes.iter_mut().for_each(|c| c.flying = 0);
        }
        // A span whose end was given up counts combinations up to its present end.
        let n = n.min(self.end().max(1));
        if combinations > 0 {
            let from = self.given_up().min(n.saturating_sub(1));
            if self.class(from, n).is_none() {
                self.classes.push(Class { from, n, ..Class::default() });
            }
            if let Some(class) = self.class(from, n) {
                class.acked = combinations;
                // Neither acknowledged nor in flight: they had been declared lost.
                class.early_lost = class.early_lost.saturating_add(early);
            }
        }
        let is_mistaken = self.missing() > before;
        if is_mistaken {
            self.transmission = 3;
        }
        is_mistaken
    }

    /// Everything below `index` is there or not needed.
    pub fn on_done(&mut self, index: u8) {
        self.acked |= self.inside(index);
    }

    /// Those of the packets that were sent that lie within the first `n` source packets of the span.
    fn inside(&self, n: u8) -> u64 {
        if self.rows.is_empty() {
            return mask(n.min(self.sent));
        }
        self.rows.iter().enumerate().filter(|(_, row)| row.n <= n).fold(0, |bits, (k, _)| bits | 1 << k) & mask(self.sent)
    }

    /// Those that are source packets.
    fn plain(&self) -> u64 {
        if self.rows.is_empty() {
            return u64::MAX;
        }
        let is_plain = |row: &Row| u64::from(matches!(row.form, RowForm::Source(_)));
        self.rows.iter().enumerate().fold(0, |bits, (k, row)| bits | is_plain(row) << k)
    }

    /// Those among `inside` that are source packets and not `missing`, which is by source index.
    fn determined(&self, inside: u64, missing: u64) -> u64 {
        if self.rows.is_empty() {
            return inside & !missing;
        }
        let is_there = |row: &Row| matches!(row.form, RowForm::Source(index) if missing >> index & 1 == 0);
        self.rows.iter().enumerate().fold(0, |bits, (k, row)| bits | u64::from(is_there(row)) << k) & inside
    }

    /// Nothing is left to do for it, and something was given up.
    pub fn is_over(&self) -> bool {
        let all = mask(self.symbols.len() as u8);
        !self.has_unsent() && self.abandoned != 0 && all & !self.abandoned & !self.acked == 0
    }

    /// Something was given up that is not known to be there.
    pub fn missing_given_up(&self) -> bool {
        self.abandoned & !self.acked != 0
    }

    /// How much of the rank that the receiver has of the first `n` source packets lies in what is held here. All of it, unless the receiver knows packets
    /// from elsewhere: a destination whose flow now comes by another route.
    fn rank_from_here(&self, inside: u64, n: u8, rank: u8, missing: u64) -> u8 {
        if self.rows.is_empty() {
            return rank;
        }
        let known = mask(n) & !missing;
        let combinations = rank.saturating_sub(known.count_ones() as u8);
        // What remains of the rows held once the known packets are taken out of them.
        let mut rest = Basis::new(usize::from(n.clamp(1, 64)));
        for (_, row) in self.rows.iter().enumerate().filter(|(k, _)| inside >> k & 1 == 1) {
            let mut vector = [0; MAX_SPAN];
            match &row.form {
                RowForm::Source(index) => vector[usize::from(*index) % MAX_SPAN] = 1,
                RowForm::Combination { vector: of, .. } => vector[..of.len()].copy_from_slice(of),
            }
            vector.iter_mut().enumerate().filter(|(j, _)| known >> j & 1 == 1).for_each(|(_, c)| *c = 0);
            rest.insert(&vector[..rest.n()]);
        }
        (inside.count_ones() as u8).saturating_sub(rest.rank() as u8) + combinations
    }

    /// A packet waits for its turn.
    pub fn has_unsent(&self) -> bool {
        usize::from(self.sent) < self.symbols.len()
    }

    /// The packet whose turn is next.
    pub fn next_turn(&self) -> u8 {
        self.sent
    }

    /// Earliest deadline of a packet that is wanted and not known to be there.
    pub fn deadline(&self) -> Option<Time> {
        let wanted = |index: usize| !(self.abandoned | self.acked) >> index & 1 == 1;
        self.deadlines.iter().enumerate().filter(|(i, at)| wanted(*i) && **at < Time::MAX).map(|(_, at)| *at).min()
    }

    /// Nobody waits for packet `index` any more.
    pub fn abandon(&mut self, index: u8) {
        self.abandoned |= 1 << index;
    }

    /// What was inferred from packets that arrived (window repairs) is not known after all: one of them was not taken.
    pub fn doubt_inferred(&mut self) {
        self.acked &= !self.inferred;
        self.inferred = 0;
    }

    /// The receiver has nothing of this batch: it restarted, or did not know the flow.
    pub fn forget(&mut self) {
        self.acked = 0;
        self.inferred = 0;
        self.flying = 0;
        self.classes.clear();
    }

    /// Everything is sent anew to a receiver that has nothing, uncoded packets first.
    pub fn restart(&mut self) {
        self.forget();
        self.sent = 0;
        (self.transmission, self.in_vain, self.extra, self.planned, self.counted) = (1, 0, 0, None, 0);
        (self.in_repair, self.in_proactive, self.is_doubtful) = (false, false, false);
    }

    /// Length of the longest symbol in `from..end`: the length of a combination over it (P5).
    pub fn longest(&self, from: u8) -> usize {
        self.symbols[usize::from(from.min(self.end()))..usize::from(self.end())].iter().map(Symbol::len).max().unwrap_or(0)
    }
}

/// Kinds of combinations that a batch keeps count of before it drops those that no longer matter.
const MOST_CLASSES: usize = 16;

//! The sending half of a coded flow on one hop.
//!
//! Four queues, all O(1) amortised: batches with a deficit, the cursor of source packets, batches to protect from spare capacity, and
//! control frames. Symbols are kept until the receiver says that it needs them no more (`done`), because what ACKs let us believe of its
//! rank may be wrong (P9) and because a source keeps custody (P14).

mod allowance;
mod control;
mod feedback;
mod giving_up;
mod pace;
mod poll;
mod protection;
mod relaying;
mod reopening;
mod window;

use super::batch::Batch;
use super::deadlines::Deadlines;
use super::row::Row;
use super::symbol::Symbol;
use crate::ids::{FlowLabel, Seq};
use crate::options::{Class, Mode};
use crate::redundancy::RedundancyInput;
use crate::stats::FlowStats;
use crate::switch::{self, Mechanism};
use crate::units::{Duration, Probability, Time};
use crate::wire::frame::FlowOpen;
use allowance::Allowance;
use control::Repeated;
use noctule_codes::span::MAX_SPAN;
use pace::Pace;
use std::collections::VecDeque;
use window::WindowRepair;

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
    /// Whether what is missing holds up what came after it while all of it grows old ([`FlowOpen::waits_in_order`]).
    pub waits_in_order: bool,
    /// Asked probability that a message of an application-limited flow needs no second round trip.
    pub no_retransmit: Probability,
    /// Bytes of symbols that may be held; two packets are in any case.
    pub memory: usize,
    /// Source packets that may be sent before the first CREDIT.
    pub initial_credit: u64,
}

impl SenderConfig {
    /// What the opening of a flow says, under that label; memory and credit until more is known of them.
    pub fn of(open: &FlowOpen, label: FlowLabel, memory: usize, initial_credit: u64) -> Self {
        Self {
            label,
            batch_size: open.batch_size,
            symbol: open.symbol,
            class: open.class,
            mode: open.mode,
            waits_in_order: open.waits_in_order(),
            no_retransmit: open.no_retransmit,
            memory,
            initial_credit,
        }
    }
}

/// Bytes that a held symbol costs beyond its own.
pub(crate) const SYMBOL_OVERHEAD: usize = 48;
/// Packets that a source may hold whatever memory is left: what it holds it can send, so that it waits for no more.
pub(crate) const RESERVED_PACKETS: u64 = 2;
/// Source packets that may wait to be sent: enough for a few trains, little enough that the session decides late what goes next.
const MOST_UNSENT: u64 = 128;
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
    /// Batches to protect from spare capacity, or, where there is no time for feedback, at once.
    proactive: VecDeque<u64>,
    /// Their lifetime leaves no time for feedback, or did so a moment ago.
    is_urgent: bool,
    /// Until when that is thought of the batches that follow such a one.
    pressed_until: Time,
    tail_protected: bool,
    /// When a packet was last put in flight that protection is thought of for.
    protect_at: Time,
    /// Nothing was for a while: what has not grown to a whole batch is protected as it is.
    is_quiet: bool,
    /// Repair of small flows over the last packets.
    window: WindowRepair,
    deadlines: Deadlines,
    is_established: bool,
    finished: bool,
    /// The session has more data right now.
    has_more: bool,
    end_state: Repeated,
    bytes: usize,
    outstanding: u64,
    pace: Pace,
    allowance: Allowance,
    /// When the first source packet left.
    began: Option<Time>,
    /// Smoothed RTT of the path that was last sent on.
    rtt: Duration,
    /// Vectors of freed batches waiting for reuse.
    spare: Vec<Vec<Symbol>>,
    /// Last question to the redundancy policy and its answer: most are repeated.
    last_plan: Option<(RedundancyInput, u8)>,
    /// What a relay's sender needs beyond that of a source.
    relay: Option<relaying::Relaying>,
    /// At the source of a relayed flow: everything from here on is kept, because the destination has not acknowledged it (P14).
    kept: Option<u64>,
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
            is_urgent: false,
            pressed_until: Time::ZERO,
            tail_protected: false,
            protect_at: Time::ZERO,
            is_quiet: false,
            window: WindowRepair::default(),
            deadlines: Deadlines::default(),
            is_established: false,
            finished: false,
            has_more: false,
            end_state: Repeated::Idle,
            bytes: 0,
            outstanding: 0,
            allowance: Allowance::default(),
            pace: Pace::default(),
            began: None,
            rtt: Duration::from_millis(100),
            spare: Vec::new(),
            last_plan: None,
            relay: None,
            kept: None,
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

    /// T turned out to be smaller, before anything was sent.
    pub fn set_symbol(&mut self, symbol: u16) {
        self.config.symbol = symbol;
    }

    /// Source packets that may be pushed now: what credit, memory and the short queue of unsent packets leave.
    pub fn room(&self) -> u64 {
        if self.finished {
            return 0;
        }
        let unsent = MOST_UNSENT.saturating_sub(self.pushed - self.cursor);
        unsent.min(self.credit.saturating_sub(self.pushed)).min(self.memory_room())
    }

    /// Source packets for which there is memory; [`RESERVED_PACKETS`] always.
    fn memory_room(&self) -> u64 {
        let each = usize::from(self.config.symbol) + SYMBOL_OVERHEAD;
        let held = self.pushed - self.first * self.batch_size();
        ((self.config.memory.saturating_sub(self.bytes) / each) as u64).max(RESERVED_PACKETS.saturating_sub(held))
    }

    fn batch_size(&self) -> u64 {
        u64::from(self.config.batch_size)
    }

    /// Takes the next source packet; after `deadline` nobody wants it.
    ///
    /// The caller asks [`Sender::room`] first; a packet beyond credit would be refused by the receiver.
    pub fn push(&mut self, _now: Time, symbol: Symbol, deadline: Option<Time>) -> Seq {
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

    /// Source packets sent and not yet known to be there.
    pub fn outstanding(&self) -> u64 {
        self.outstanding
    }

    /// Source packets that wait for their first turn.
    pub fn unsent(&self) -> u64 {
        self.pushed.saturating_sub(self.cursor)
    }

    /// Source packets that wait for their turn, and batches for repair: what is still to be sent, at least.
    pub fn waiting_packets(&self) -> u64 {
        self.unsent() + self.repair.len() as u64
    }

    /// Bytes held.
    pub fn memory(&self) -> usize {
        self.bytes
    }

    /// Counts so far.
    pub fn stats(&self) -> FlowStats {
        FlowStats { outstanding: self.outstanding, credit_limit: self.credit, memory: self.bytes, ..self.stats.clone() }
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
        let repairs = self.relay.is_none() || !switch::is_off(Mechanism::Recoding);
        if !batch.in_repair && repairs && batch.deficit() > 0 {
            batch.in_repair = true;
            self.repair.push_back(number);
        }
        Some(result)
    }

    /// Frees batches that are wholly done or given up.
    fn free(&mut self) {
        let floor = self.free_below();
        while self.batches.front().is_some_and(|_| (self.first + 1) * self.batch_size() <= floor) {
            let Some(mut batch) = self.batches.pop_front() else { break };
            self.outstanding -= u64::from(batch.counted);
            self.note_batch(&batch);
            self.note_dropped(batch.symbols.len() - usize::from(batch.next_turn()));
            self.first += 1;
            // A batch that was given up before its turn came.
            self.cursor = self.cursor.max(self.first * self.batch_size());
            self.bytes -= batch.symbols.iter().map(|s| s.len() + SYMBOL_OVERHEAD).sum::<usize>();
            self.bytes -= batch.rows.iter().map(Row::bytes).sum::<usize>();
            batch.symbols.clear();
            if self.spare.len() < 64 {
                self.spare.push(batch.symbols);
            }
        }
        self.forget_waiting();
    }
}

//! A relay's receiver: what raises the rank passes on as it came; nothing is decoded and no data are kept here.

use super::{Receiver, ReceiverConfig, vector};
use crate::flow::row::{Passing, Row, RowForm};
use crate::flow::sender::SYMBOL_OVERHEAD;
use crate::flow::span::Received;
use crate::ids::{FlowLabel, Seq};
use crate::switch::{self, Mechanism};
use crate::units::Duration;
use crate::wire::frame::{Coded, Coefficients};
use noctule_codes::span::MAX_SPAN;
use smallvec::SmallVec;
use std::collections::VecDeque;

use crate::flow::credit::Credit;

/// Bytes that a relay keeps beyond a packet's own: as the sending half counts them, and the coefficients of a combination.
const ROW_OVERHEAD: usize = SYMBOL_OVERHEAD + MAX_SPAN;

impl Receiver {
    /// A receiver that passes on what it gets, from source packet `first` on.
    pub fn relaying(config: ReceiverConfig, first: Seq) -> Self {
        let mut receiver = Self::new(config);
        let number = first.0 / receiver.batch_size();
        let first = number * receiver.batch_size();
        (receiver.first, receiver.done, receiver.high, receiver.begun) = (number, first, first, first);
        receiver.credit = Credit::following(first, config.initial_credit.max(2 * u64::from(config.batch_size)));
        receiver.passing = Some(VecDeque::new());
        receiver
    }

    /// Notes a packet and, if it raises the rank, queues it.
    pub(super) fn receive_passing(&mut self, coded: &Coded<'_>, at: usize) -> Received {
        let mut coefficients = [0; MAX_SPAN];
        let full = usize::from(self.config.batch_size);
        let (received, form) = match coded.coefficients {
            Coefficients::Index(index) => (self.spans[at].note_source(index), RowForm::Source(index)),
            ref others => {
                self.stats.repair_packets += 1;
                vector(others, coded.n, &mut coefficients);
                let received = self.spans[at].note_combination(&coefficients[..full], &mut self.pool);
                let seeded = match *others {
                    Coefficients::Seed(seed) => Some(Coefficients::Seed(seed)),
                    Coefficients::BitmapSeed { bitmap, seed } => Some(Coefficients::BitmapSeed { bitmap, seed }),
                    _ => None,
                };
                (received, RowForm::Combination { seeded, vector: SmallVec::from_slice(&coefficients[..usize::from(coded.n)]) })
            }
        };
        if received == Received::Innovative
            && let Some(passing) = &mut self.passing
        {
            let symbol = self.pool.slab.copy(coded.symbol);
            if let RowForm::Source(index) = form {
                self.window.source(Seq(coded.base.0 + u64::from(index)), &symbol);
            }
            self.stats.source_packets += 1;
            self.ready_bytes += symbol.len();
            passing.push_back(Passing { base: coded.base, row: Row { n: coded.n, form }, symbol });
        }
        received
    }

    /// The next packet to pass on.
    pub fn poll_passing(&mut self) -> Option<Passing> {
        let passing = self.passing.as_mut()?.pop_front()?;
        self.ready_bytes -= passing.symbol.len();
        Some(passing)
    }

    /// What is reported as done is what the next node is done with: for flows of which the far end's session says nothing.
    pub fn report_done_of_next(&mut self) {
        self.next_done = Some(self.done);
    }

    /// The next node needs nothing below `done`, so nothing of it is needed here.
    pub fn on_next_done(&mut self, done: Seq) {
        if let Some(next) = &mut self.next_done {
            *next = done.0.max(*next);
        }
        if done.0 > self.done {
            let skipped = self.skipped;
            self.on_skip(done);
            self.skipped = skipped;
        }
    }

    /// Nothing below is sent any more, as the node before says.
    pub fn skipped(&self) -> Seq {
        Seq(self.skipped)
    }

    /// What is reported as done.
    pub(super) fn reported_done(&self) -> u64 {
        self.next_done.map_or(self.done, |next| next.min(self.done))
    }

    /// Smoothed RTT of the link that the flow comes by, as far as known.
    pub fn rtt(&self) -> Duration {
        self.credit.rtt()
    }

    /// All but the last `waiting` of the packets up to the highest have left the relay, and so many packets may be in flight here or wait (P15), as far as
    /// they fit into `memory` bytes, which is what is left of the flow's beside all that both halves hold. What is missing below the highest has its place there,
    /// too: it cannot be refused, for what was passed on waits for it.
    pub fn follow(&mut self, waiting: u64, window: u64, memory: usize) {
        self.config.memory = memory + self.memory();
        let room = (memory / (usize::from(self.config.symbol) + ROW_OVERHEAD)) as u64;
        let room =
            if switch::is_off(Mechanism::RelayMemory) { room.max(self.config.initial_credit) } else { room.saturating_sub(self.gaps()) };
        self.credit.follow(self.high.saturating_sub(waiting), window, waiting.min(self.high) + room);
    }

    /// Packets below the highest that have not come, at most: what was skipped may be among them.
    fn gaps(&self) -> u64 {
        (self.high - self.done.min(self.high)).min((self.high - self.begun.min(self.high)).saturating_sub(self.stats.source_packets))
    }

    /// The destination goes on with a flow that now comes by another hop.
    pub fn rebind(&mut self, label: FlowLabel, first: Seq, initial_credit: u64) {
        self.config.label = label;
        self.credit.restart(first.0, initial_credit);
    }
}

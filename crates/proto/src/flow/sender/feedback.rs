//! What the sender hears: the fates of its packets, and the receiver's own word (P9, P15).

use super::control::after;
use super::{Repeated, Sender};
use crate::error::Code;
use crate::flow::batch::Batch;
use crate::ids::Seq;
use crate::sent::SentItem;
use crate::switch::{self, Mechanism};
use crate::units::Time;

impl Sender {
    /// A packet arrived.
    pub fn on_acked(&mut self, now: Time, item: &SentItem) {
        if matches!(item, SentItem::Coded { .. }) {
            self.allowance.on_acked(self.outstanding);
        }
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
            SentItem::Coded { .. } if !arrived && switch::is_off(Mechanism::LossFeedback) => {}
            SentItem::Coded { base, n, index: None, .. } if self.is_window_span(base, n) => {
                self.on_window_fate(now, base, n, arrived, was_lost);
            }
            SentItem::Coded { base, n, from, index, .. } => {
                self.touch(base.0 / self.batch_size(), |batch| {
                    if arrived { batch.on_acked(now, index, from, n, was_lost) } else { batch.on_lost(index, from, n) }
                });
                if arrived {
                    self.infer(now);
                }
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
        self.window.give_up_before(now.saturating_sub(rtt * 3));
        if rank < n {
            self.allowance.on_deficit();
        }
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
        // What comes by several routes may be there before this relay has it.
        let done = done.0.min(if self.relay.is_some() { self.credit } else { self.cursor });
        if done > self.done {
            let before = core::mem::replace(&mut self.done, done);
            self.pushed = self.pushed.max(done);
            self.advance_floor();
            self.free();
            let size = self.batch_size();
            // Batches that are kept though the receiver is done with them (P14). What it claims to have may lie far beyond what is held.
            let held = self.first + self.batches.len() as u64;
            for number in (before / size).max(self.first)..(done / size).min(held) {
                self.touch(number, |batch| batch.on_done(size as u8));
            }
            let index = (done % size) as u8;
            if index > 0 {
                self.touch(done / size, |batch| batch.on_done(index));
            }
        }
    }

    /// FLOW_REFUSED: packets were acknowledged on their path but not taken.
    ///
    /// An unknown flow means that the receiver has nothing from `base` on (it restarted): all of it is sent again, as combinations.
    /// Any other reason concerns the one span, about which RANK follows.
    pub fn on_refused(&mut self, base: Seq, code: Code) {
        let number = base.0 / self.batch_size();
        if code == Code::NoMemory {
            self.on_window_refused(base.0);
        }
        if code == Code::UnknownFlow {
            self.window.forget(base.0);
            for number in number.max(self.first)..self.first + self.batches.len() as u64 {
                self.touch(number, Batch::forget);
            }
            self.end_state = if self.finished { Repeated::Due } else { Repeated::Idle };
        } else {
            self.touch(number, |batch| batch.is_doubtful = true);
        }
    }
}

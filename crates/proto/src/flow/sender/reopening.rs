//! The source of a relayed flow: what it keeps until the destination has it (P14), and how it starts again over another route.

use super::pace::Pace;
use super::{Repeated, Sender};
use crate::ids::{FlowLabel, Seq};

impl Sender {
    /// From now on everything is kept until [`Sender::on_delivered`]: the neighbour is no end, and its word that it needs nothing more says nothing about
    /// the destination (P14).
    pub fn keep_until_delivered(&mut self) {
        self.kept = Some(self.first * self.batch_size());
    }

    /// Nothing is kept for the destination's sake any more.
    pub fn release_custody(&mut self) {
        self.kept = None;
        self.free();
    }

    /// The destination's session has everything below `below`.
    pub fn on_delivered(&mut self, below: Seq) {
        if let Some(kept) = &mut self.kept
            && below.0 > *kept
        {
            *kept = below.0.min(self.pushed);
            self.free();
        }
    }

    /// Some packets are kept only because the destination has not acknowledged them.
    pub(super) fn has_custody(&self) -> bool {
        self.kept.is_some() && self.free_below() < self.pushed
    }

    /// Batches below may be freed: the receiver needs them no more, and where that is not enough neither does the destination.
    pub(super) fn free_below(&self) -> u64 {
        let floor = self.floor.max(self.done);
        let Some(mut below) = self.kept else { return floor };
        while below < floor {
            let index = (below % self.batch_size()) as u8;
            if !self.batch(below / self.batch_size()).is_none_or(|batch| batch.is_abandoned(index)) {
                break;
            }
            below += 1;
        }
        below
    }

    /// First packet that is still held: where a new incarnation of the flow begins.
    pub fn first_held(&self) -> Seq {
        Seq(self.first * self.batch_size())
    }

    /// The flow goes on over another hop, whose receiver has nothing: everything that is held is sent again, uncoded and in order.
    pub fn restart(&mut self, label: FlowLabel, initial_credit: u64) {
        self.config.label = label;
        let first = self.first * self.batch_size();
        (self.cursor, self.done, self.floor) = (first, first, first);
        self.credit = first + initial_credit;
        self.outstanding = 0;
        self.pace = Pace::default();
        self.repair.clear();
        self.proactive.clear();
        (self.tail_protected, self.is_established) = (false, false);
        for batch in &mut self.batches {
            batch.restart();
        }
        if self.finished {
            self.end_state = Repeated::Due;
        }
        self.skip_state = Repeated::Idle;
        self.restart_rows();
        self.advance_floor();
    }
}

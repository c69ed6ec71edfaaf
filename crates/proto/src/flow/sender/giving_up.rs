//! Giving packets up: what was cancelled or has expired is neither sent nor repaired, and the floor moves over it.

use super::{Repeated, Sender};
use crate::ids::Seq;
use crate::units::Time;

impl Sender {
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

    /// Packets below were given up although the receiver may wait for some of them.
    pub fn skipped(&self) -> Seq {
        Seq(self.skip)
    }

    fn abandon_one(&mut self, seq: u64) {
        let index = (seq % self.batch_size()) as u8;
        self.touch(seq / self.batch_size(), |batch| batch.abandon(index));
    }

    /// Moves the floor over packets that are given up or done; tells the receiver if it waits for one of them.
    pub(super) fn advance_floor(&mut self) {
        let before = self.floor;
        let mut is_awaited = false;
        self.floor = self.floor.max(self.done);
        while self.floor < self.pushed && self.relay.is_none() {
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

    /// When `handle_timeout` wants to be called: the earliest deadline of a packet, or copies that are due.
    pub fn poll_timeout(&self) -> Option<Time> {
        [self.deadlines.next(), self.window.next(), self.quiet_at()].into_iter().flatten().min()
    }

    /// Gives up what has expired; copies whose time has come are there for [`Sender::poll`].
    pub fn handle_timeout(&mut self, now: Time) {
        self.abandon_expired(now);
        self.wake_window(now);
        self.is_quiet |= self.quiet_at().is_some_and(|at| at <= now);
    }
}

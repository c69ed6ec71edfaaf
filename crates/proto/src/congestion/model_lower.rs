//! What `model` learns by sending less: whether loss goes away with the rate (a test), what remains of the queue without our part of it (a refresh), and
//! what follows (P12b, P12d).

use super::compete::SLOWEST_RISE;
use super::{MAX_UNCLEAR_ROUNDS, MIN_QUEUE_LIMIT, Model, ModelState, STUCK_ROUNDS};
use crate::switch::{self, Mechanism};
use crate::units::{Duration, Time};

/// A queue below the first is no sign of a crowd, one above the second is, whatever a flow with little aims at.
const CROWD: Duration = Duration::from_millis(1);
const MAX_CROWD: Duration = Duration::from_micros(4500);
/// A path that was taken to have become longer lately, and on which as much is lost now, was a full queue: that does not move, either.
const FULL_LOSS: f64 = 0.4;
const FULL_LATELY: Duration = Duration::from_secs(60);
/// No other is believed in for so long then.
const FULL_FOR: Duration = Duration::from_secs(30);
/// Share of the capacity from before that is taken up again where the path has become longer.
const REGAIN: f64 = 0.7;

impl Model {
    /// A delay that is a queue, longer than the one that is aimed at, and not the path's noise.
    pub(super) fn is_crowd(&self, delay: Duration) -> bool {
        delay > self.target().max(CROWD) && !self.queue.is_restless(delay)
    }

    /// Our rate was low and most of the queue remained: what was lost may have been lost there, by others' doing.
    pub(super) fn is_crowded(&self) -> bool {
        self.queue.remained() > (self.target() * 2 / 3).clamp(CROWD, MAX_CROWD) && !self.is_noisy()
    }

    /// Share of the capacity that the path surely carries; half where what it delivered was never measured, as at the start of an application that has little to send.
    pub(super) fn surely_carried(&self) -> f64 {
        match self.capacity.surely_delivered() {
            delivered if delivered > 0.0 => delivered / self.capacity.get(),
            _ => 0.5,
        }
    }

    pub(super) fn end_test(&mut self, now: Time) {
        let is_random = self.loss.end_low(self.is_crowded());
        if is_random {
            self.is_refused = false;
            self.hold_until = self.round;
        } else {
            // Loss went away with the rate: the rate that was delivered is the capacity, and the queue is shorter than we wished.
            self.capacity.settle_delivered(self.loss.base());
            self.refuse();
            let limit = self.queue.peak() / 2;
            self.queue_limit = self.queue_limit.min(limit.max(MIN_QUEUE_LIMIT));
            self.limited_at = self.round;
        }
        self.suspicion = 0;
        if !self.resume_startup(now) {
            self.enter(ModelState::Cruise, now);
        }
    }

    pub(super) fn end_refresh(&mut self, now: Time) {
        self.loss.end_low(self.is_crowded());
        self.unclear_for = (self.unclear_for * 2).min(MAX_UNCLEAR_ROUNDS);
        self.unclear_until = self.round + self.unclear_for;
        let is_stuck = self.stuck >= STUCK_ROUNDS || self.rival.is_some();
        let remained = self.queue.remained();
        let was_stuck = self.stuck > 0;
        self.stuck = 0;
        if is_stuck && remained > self.own_kinds_longest() && !self.queue.is_flat() && !self.queue.is_restless(remained) {
            self.on_foreign_queue(now);
            return;
        }
        if self.rival.is_some() {
            self.relent(now);
            return;
        }
        if is_stuck && self.comes_back(now, remained) {
            self.begin_competing(now);
            return;
        }
        if self.queue.now() > self.target() / 4 {
            self.queue.raise_floor();
        } else {
            self.accused_at = None;
        }
        // It did not shrink when we sent less, and did not move: the path has become longer. The rate was taken from us for nothing.
        // What losses made us aim at is not what others leave: our own kind's queue hardly moves, either.
        let left = if switch::is_off(Mechanism::OwnKindsQueues) { self.target() } else { self.target().max(self.clear_target()) };
        let is_longer = was_stuck && remained > left && self.queue.is_flat() && now >= self.full_until;
        let (old, rate) = (self.queue.min_rtt(), self.anchor.max(self.capacity.get()));
        self.queue.end_refresh(now, is_longer);
        if self.queue.min_rtt() > old + SLOWEST_RISE && !self.is_noisy() && self.creeps(now, old, rate) {
            self.begin_competing(now);
            return;
        }
        if is_longer {
            self.taken_longer = Some((now, old));
            self.capacity.raise(self.anchor * REGAIN);
        }
        if was_stuck {
            // The queue was ours. Only what is yielded from here on is new evidence.
            self.anchor = self.capacity.get();
        }
        self.enter(ModelState::Cruise, now);
    }

    /// What was taken for a longer path loses so much that it must be a queue that others keep full.
    pub(super) fn doubt_longer_path(&mut self, now: Time) {
        if self.recent_loss < FULL_LOSS || switch::is_off(Mechanism::FullQueues) {
            return;
        }
        let seen = 2 * self.smoothed_rtt;
        if let Some((at, old)) = self.taken_longer.take_if(|(at, _)| now.since(*at) > seen)
            && now.since(at) < FULL_LATELY
        {
            self.queue.lower(old);
            self.full_until = now + FULL_FOR;
        }
    }
}

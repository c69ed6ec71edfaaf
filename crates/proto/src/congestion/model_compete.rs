//! `model` beside cross traffic that fills the queue (P12d): when it is believed, how the rate is held beside it, and when it is gone.

use super::{Model, ModelState, REFRESH, SQUEEZED_TIME, STUCK_ROUNDS};
use crate::congestion::cubic::Cubic;
use crate::congestion::recurring::RecurringQueue;
use crate::congestion::{Controller, LossEvent};
use crate::switch::{self, Mechanism};
use crate::units::{Duration, Time};

/// A queue that is not ours must be found twice within this time.
const ACCUSED: Duration = Duration::from_secs(20);
/// Rounds after a reduction of the competitive window in which it shows whether others reduced theirs.
const CUT_ROUNDS: u64 = 3;
/// What our share of the capacity is taken to be follows what we get by this part per round.
const SHARE_MEMORY: f64 = 1.0 / 16.0;
/// A share that has grown by this part over its mean for four rounds, without our doing: the flow that had it may be gone.
const WINDFALL: f64 = 1.25;
/// Longest time between two questions whether the other is still there.
const MAX_ASK_AFTER: Duration = Duration::from_secs(20);
/// Share of the rate before it that is kept where they did not.
const YIELD: f64 = 0.95;
/// What was left of our share after reductions, on average, follows the latest by this part.
const KEPT_MEMORY: f64 = 0.25;
/// A flow that has half of a queue and alone reduces to 0.7 keeps 0.82 of its rate: below this the others have more than we, and do not back off.
const UNYIELDING: f64 = 0.85;
/// Loss of the path's own from which on we back off wholly for flows that take it for congestion.
const WEAKENING_LOSS: f64 = 0.005;
/// Rounds since our own rate has grown last, in which the queue is ours.
const GROWTH_ROUNDS: u64 = 8;
/// How often a queue that others have pushed up counts besides.
const GIVING_WAY: f64 = 2.0;
/// A path that becomes longer twice within this time, while our rate falls to less than this part of itself, is a queue that cross traffic fills.
const CREEPING: Duration = Duration::from_secs(30);
const CREPT: f64 = 0.9;
/// It must be longer by more than this.
pub(super) const SLOWEST_RISE: Duration = Duration::from_millis(1);
/// Rounds without a queue after which the flow that filled it is taken to be gone.
const RIVAL_ROUNDS: u64 = 256;

/// A path that became longer.
#[derive(Clone, Copy, Debug)]
pub(super) struct Lengthened {
    at: Time,
    /// The RTT before.
    old: Duration,
    /// What was ours then, bytes per second.
    rate: f64,
}

impl Model {
    pub(super) fn compete_round(&mut self, now: Time) {
        self.risen = if self.capacity.get() > self.anchor * WINDFALL { self.risen + 1 } else { 0 };
        self.anchor += (self.capacity.get() - self.anchor) * SHARE_MEMORY;
        if self.round == self.judge_cut_at
            && let Some(rival) = &mut self.rival
        {
            // If all backed off alike each keeps its rate while the queue shrinks. What only we gave up is taken back but for a part.
            let rtt = self.queue.base() + self.queue.now();
            self.kept += (self.capacity.get() / self.anchor.max(1.0) - self.kept) * KEPT_MEMORY;
            rival.restore((YIELD * self.anchor * rtt.as_secs_f64()) as u64);
            if self.kept < UNYIELDING {
                self.held_half.begin(now, self.capacity.delivered());
            }
        }
        self.below = if self.queue.now() < self.target() / 2 { self.below + 1 } else { 0 };
        if self.below >= STUCK_ROUNDS {
            self.relent(now);
        } else if self.risen >= STUCK_ROUNDS || now.since(self.since) >= 2 * self.ask_after.max(20 * self.smoothed_rtt) {
            // Is the other still there?
            self.enter(ModelState::Refresh, now);
        }
    }

    /// The queue is gone. If it was only between two of the other's cuts, its coming back will tell.
    pub(super) fn relent(&mut self, now: Time) {
        self.rival_until = self.round + RIVAL_ROUNDS;
        self.above = 0;
        self.stuck = 0;
        self.enter(ModelState::Cruise, now);
    }

    /// P12d: our own share of the queue is gone, the queue is not.
    pub(super) fn on_foreign_queue(&mut self, now: Time) {
        // Cross traffic keeps it filled. It may be one of our own kind that came
        // when there was a queue, and takes it for base RTT: such a flow loses nothing by it, and this was its chance to see it better.
        if self.rival.is_none() && !self.is_confirmed(now) {
            self.above = 0;
            self.queue.end_refresh(now, false);
            self.enter(ModelState::Cruise, now);
            return;
        }
        self.begin_competing(now);
    }

    /// A path that is longer than `old` has been found. True if it was the second time in a while, and `rate`, which was ours, less than the time before: by
    /// itself a longer path takes no rate. Cross traffic fills the queue, too slowly for us to see it move.
    pub(super) fn creeps(&mut self, now: Time, old: Duration, rate: f64) -> bool {
        if switch::is_off(Mechanism::CreepingQueues) {
            return false;
        }
        let Some(before) = self.lengthened.filter(|before| now.since(before.at) < CREEPING) else {
            self.lengthened = Some(Lengthened { at: now, old, rate });
            return false;
        };
        // No longer than flows of our own kind make it: one of them may have come while there was a queue, and take its part of it for the path.
        let is_long = self.queue.min_rtt() > before.old + self.own_kinds_longest();
        if is_long && rate < before.rate * CREPT {
            self.lengthened = None;
            self.queue.lower(before.old);
            return true;
        }
        false
    }

    /// A round of `cruise`: whether to look into a queue that is longer than our own kind leaves it most of the time. The flow that fills it may empty it once a
    /// second, so that it never stays for long.
    pub(super) fn stands_too_long(&mut self, now: Time) -> bool {
        let is_long = self.queue.now() > self.own_kinds_longest();
        !switch::is_off(Mechanism::RecurringQueues) && self.recurring.on_round(now, self.smoothed_rtt, is_long)
    }

    /// Our own flight was cut and less remained of the queue than our own kind may leave. True if it has come back so often that it is not ours all the same.
    pub(super) fn comes_back(&mut self, now: Time, remained: Duration) -> bool {
        let is_there = remained > self.target() / 4 && !self.queue.is_flat() && !self.queue.is_restless(remained);
        !switch::is_off(Mechanism::RecurringQueues) && self.recurring.on_look(now, is_there, REFRESH + SQUEEZED_TIME)
    }

    pub(super) fn begin_competing(&mut self, now: Time) {
        if self.rival.is_some() {
            self.ask_after = (self.ask_after * 2).min(MAX_ASK_AFTER);
        } else {
            // A flow that never was at ease here starts as a window does; else what was yielded counts as one reduction.
            let is_new = self.anchor == 0.0;
            self.kept = 1.0;
            // There are two at least now: half of what was ours when the other came is no more than our share, whatever was given up since.
            let rate = if is_new { self.capacity.get() } else { self.anchor.max(self.accused_share / 2.0) };
            let window = (rate * self.smoothed_rtt.as_secs_f64()) as u64;
            self.rival = Some(Box::new(Cubic::resume(self.datagram as u64, self.smoothed_rtt, window, is_new)));
            self.ask_after = REFRESH;
        }
        // An RTT that is the same every time is the path's own after all.
        self.queue.end_refresh(now, false);
        self.queue.begin_watch();
        self.recurring = RecurringQueue::new(now);
        self.enter(ModelState::Compete, now);
    }

    /// What is above this queue was pushed up by cross traffic.
    pub(super) fn longest_at_rest(&self) -> Duration {
        self.target() * 3 / 2
    }

    /// The queue that others have pushed up, in seconds, as often as it counts besides (P12d). A flow that takes the path's own loss for congestion becomes weaker by
    /// itself, round by round, and can win back its share by pushing only. Where nothing is lost nobody needs that, and delay that varies is no
    /// push.
    pub(super) fn pushed_by_others(&self) -> f64 {
        if self.is_noisy() || self.round < self.grew_at + GROWTH_ROUNDS || switch::is_off(Mechanism::BackingOff) {
            return 0.0;
        }
        let pushed = self.queue.now().as_secs_f64() - self.longest_at_rest().as_secs_f64();
        GIVING_WAY * (self.loss.at_rest() / WEAKENING_LOSS).min(1.0) * pushed.max(0.0)
    }

    /// Packets were lost while the queue was near its longest.
    pub(super) fn on_competitive_loss(&mut self, event: &LossEvent) {
        if self.round < self.judge_cut_at {
            return;
        }
        let Some(rival) = &mut self.rival else { return };
        let before = rival.window();
        rival.on_loss(event);
        if rival.window() < before {
            self.judge_cut_at = self.round + CUT_ROUNDS;
            if event.now.since(self.since) >= self.ask_after {
                // Others of our kind met the same loss: a question asked now is asked together with them.
                self.enter(ModelState::Refresh, event.now);
            }
        }
    }

    /// A queue that is not ours was found a second time, and is so long, or has overflowed since, that it is not of our kind's making.
    fn is_confirmed(&mut self, now: Time) -> bool {
        match self.accused_at {
            Some(at) if now.since(at) < ACCUSED => {
                // One of our own kind that starts up may overflow the queue and leave it far above the target, but not for long. Or it has
                // outlived the time after which all of our kind look for the RTT without a queue.
                let settled = at + SQUEEZED_TIME;
                now >= settled
                    && (self.is_far || self.overflowed_at.is_some_and(|lost| lost > settled) || now.since(at) > REFRESH + SQUEEZED_TIME)
            }
            _ => {
                self.accused_at = Some(now);
                self.accused_share = self.anchor;
                false
            }
        }
    }
}

//! A queue that stands longer than flows of our own kind would let it, however often it falls in between (P12d).

use crate::units::{Duration, Time};

/// The part of the time in which it was short enough that is set off against the time in which it was too long.
const RELIEF: u32 = 4;
/// It is looked into after so long, two of the cycles in which `bbr` empties it where the path is short, and so many rounds.
const LOOK: Duration = Duration::from_secs(2);
const LOOK_ROUNDS: u32 = 48;
/// Between two looks pass three quarters of that: a flow that empties the queue at regular times is not to be met at the same moment again and again.
const AGAIN: (u32, u32) = (3, 4);
/// After looks that found nothing, up to so many times as long.
const MAX_PATIENCE: u32 = 4;
/// Proof: looks that found something count twice, those that did not take one off. A flow that empties the queue at regular times is missed by many of them.
const FOUND: u32 = 2;
const PROOF: u32 = 6;

/// For how long it has been too long, and what was found.
#[derive(Clone, Debug)]
pub(super) struct RecurringQueue {
    time: Duration,
    round_at: Time,
    looked_at: Time,
    /// A look is under way.
    is_looking: bool,
    finds: u32,
    /// The first of them.
    found_at: Time,
    patience: u32,
}

impl RecurringQueue {
    pub(super) fn new(now: Time) -> Self {
        Self { time: Duration::ZERO, round_at: now, looked_at: now, is_looking: false, finds: 0, found_at: now, patience: 1 }
    }

    /// A round of `rtt` has ended with a queue that is too long, or is not. Whether to look.
    pub(super) fn on_round(&mut self, now: Time, rtt: Duration, is_long: bool) -> bool {
        let took = now.since(self.round_at).min(rtt * 2);
        self.round_at = now;
        self.time = if is_long { self.time + took } else { self.time.saturating_sub(took / RELIEF) };
        if self.time == Duration::ZERO {
            self.finds = 0;
        }
        let look = LOOK.max(rtt * LOOK_ROUNDS);
        self.is_looking = self.time >= look && now.since(self.looked_at) >= look * AGAIN.0 / AGAIN.1 * self.patience;
        if self.is_looking {
            self.looked_at = now;
            self.time = look;
        }
        self.is_looking
    }

    /// Our own flight was cut, and something of the queue remained, or nothing. True if that was so often enough, and for longer than `time`.
    pub(super) fn on_look(&mut self, now: Time, is_there: bool, time: Duration) -> bool {
        if !std::mem::take(&mut self.is_looking) {
            return false;
        }
        if self.finds == 0 {
            self.found_at = now;
        }
        if is_there {
            self.finds += FOUND;
            self.patience = 1;
        } else {
            if self.finds == 0 {
                // It was ours.
                self.patience = (self.patience * 2).min(MAX_PATIENCE);
            }
            self.finds = self.finds.saturating_sub(1);
        }
        is_there && self.finds >= PROOF && now.since(self.found_at) > time
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Looks until a queue that stands longer than it should for a minute is taken for cross traffic, if so many looks of `of` find something.
    fn looks_until_proof(found: usize, of: usize) -> Option<usize> {
        let rtt = Duration::from_millis(20);
        let mut recurring = RecurringQueue::new(Time::ZERO);
        let mut looks = 0;
        (0..3000).find_map(|round| {
            let now = Time::from_millis(20 * round);
            if !recurring.on_round(now, rtt, true) {
                return None;
            }
            looks += 1;
            recurring.on_look(now, looks % of < found, Duration::from_secs(6)).then_some(looks)
        })
    }

    /// P12d: a flow that empties the queue at regular times is missed by every other look; our own kind is found now and then only.
    #[test]
    fn every_other_look_is_enough_and_every_third_is_not() {
        let (always, often, seldom) = (looks_until_proof(1, 1), looks_until_proof(1, 2), looks_until_proof(1, 3));
        assert!(always.is_some_and(|looks| looks <= 6), "{always:?}");
        assert!(often.is_some_and(|looks| looks <= 14), "{often:?}");
        assert_eq!(seldom, None);
    }
}

//! Half of what the path carries, held on trial beside an unresponsive flow (P12d). BBRv1, which takes no loss for congestion, comes to terms
//! with it within some rounds, for less of what it sends arrives; a stream of a fixed rate never does.

use crate::switch::{self, Mechanism};
use crate::units::{Duration, Time};

/// What was delivered before the other came is remembered for so long, up to twice; what was delivered since, as long as the other is there.
const MEMORY: Duration = Duration::from_secs(10);
/// Where it was in vain it is not tried again for so long.
const PAUSE: Duration = Duration::from_secs(30);
/// Rounds in which the other may come to terms with it, and rounds over which loss is averaged after them.
const TRIAL: u32 = 32;
const MEAN: u32 = 32;
/// As many must have been averaged before it counts.
const LEAST: u32 = 8;
/// A flow that has more than this part of the half is not in need of it.
const LESS: f64 = 0.8;
/// Loss above p0 from which on it is in vain.
const VAIN: f64 = 0.25;
/// Below this the other backs off by itself.
const YIELDS: f64 = 0.05;

#[derive(Clone, Debug)]
pub(super) struct HeldHalf {
    /// The most that was delivered in this period and in the one before it, bytes per second.
    best: [f64; 2],
    period: Time,
    /// Rounds since it began, and the loss above p0 after the trial.
    rounds: Option<u32>,
    loss: f64,
    /// Until when it is not tried again.
    vain_until: Time,
}

impl HeldHalf {
    pub(super) fn new(now: Time) -> Self {
        Self { best: [0.0; 2], period: now, rounds: None, loss: 0.0, vain_until: now }
    }

    /// The other was seen not to back off, and so much is ours, bytes per second in delivered units.
    pub(super) fn begin(&mut self, now: Time, share: f64) {
        if self.rounds.is_none() && share < LESS * self.half() && now >= self.vain_until && !switch::is_off(Mechanism::HeldHalf) {
            self.rounds = Some(0);
            self.loss = 0.0;
        }
    }

    pub(super) fn end(&mut self) {
        self.rounds = None;
    }

    /// What is held, bytes per second in delivered units.
    pub(super) fn rate(&self) -> Option<f64> {
        self.rounds.map(|_| self.half())
    }

    fn half(&self) -> f64 {
        self.best[0].max(self.best[1]) / 2.0
    }

    /// A round in which so much was delivered, beside cross traffic or not, with so much loss above p0 if we compete.
    pub(super) fn on_round(&mut self, now: Time, delivered: f64, is_beside: bool, competitive_loss: Option<f64>) {
        if now.since(self.period) > MEMORY && !is_beside {
            self.best = [0.0, self.best[0]];
            self.period = now;
        }
        self.best[0] = self.best[0].max(delivered);
        let (Some(rounds), Some(loss)) = (&mut self.rounds, competitive_loss) else { return };
        *rounds += 1;
        let averaged = rounds.saturating_sub(TRIAL);
        if averaged == 0 {
            return;
        }
        self.loss += (loss - self.loss) / f64::from(averaged.min(MEAN));
        if averaged >= LEAST && !(YIELDS..=VAIN).contains(&self.loss) {
            self.rounds = None;
            if self.loss > VAIN {
                self.vain_until = now + PAUSE;
                self.best = [delivered; 2];
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Rounds for which half of 100 is held beside a flow that causes so much loss, of a thousand in which it leaves so much and never backs off.
    fn held_for(loss: f64, left: f64) -> usize {
        let at = |round: u64| Time::from_millis(20 * round);
        let mut held_half = HeldHalf::new(at(0));
        held_half.on_round(at(0), 100.0, false, None);
        (1..=1000)
            .filter(|&round| {
                held_half.begin(at(round), left);
                let held = held_half.rate();
                assert!(held.is_none_or(|rate| rate == 50.0), "{held:?}");
                held_half.on_round(at(round), left, true, Some(loss));
                held.is_some()
            })
            .count()
    }

    /// P12d: held while it is of use, let go where it is in vain, and not held by flows that have it.
    #[test]
    fn half_is_held_until_it_is_in_vain() {
        assert_eq!(held_for(0.15, 20.0), 1000);
        assert_eq!(held_for(0.3, 20.0), (TRIAL + LEAST) as usize);
        assert_eq!(held_for(0.15, 45.0), 0);
    }

    /// P12d: then not for half a minute, and half of what was delivered in vain.
    #[test]
    fn what_was_in_vain_is_not_tried_again_at_once() {
        let mut held_half = HeldHalf::new(Time::ZERO);
        held_half.on_round(Time::ZERO, 100.0, false, None);
        held_half.begin(Time::ZERO, 20.0);
        (1..=TRIAL + LEAST).for_each(|_| held_half.on_round(Time::ZERO, 20.0, true, Some(0.3)));
        let mut held_at = |second: u64| {
            held_half.begin(Time::from_millis(1000 * second), 5.0);
            held_half.rate()
        };
        assert_eq!([29, 30].map(&mut held_at), [None, Some(10.0)]);
    }

    /// P12d: a flow that backs off by itself is left to it.
    #[test]
    fn half_is_let_go_where_nothing_is_lost() {
        let mut held_half = HeldHalf::new(Time::ZERO);
        held_half.on_round(Time::ZERO, 100.0, false, None);
        held_half.begin(Time::ZERO, 20.0);
        (1..=TRIAL + LEAST).for_each(|round| held_half.on_round(Time::from_millis(u64::from(round)), 20.0, true, Some(0.0)));
        assert_eq!(held_half.rate(), None);
    }

    /// What was carried half a minute before the other came is forgotten, and nothing while the other is there.
    #[test]
    fn what_was_carried_long_before_the_other_came_is_forgotten() {
        let held_after = |seconds: u64, is_beside: bool| {
            let mut held_half = HeldHalf::new(Time::ZERO);
            held_half.on_round(Time::ZERO, 100.0, false, None);
            (1..=seconds).for_each(|second| held_half.on_round(Time::from_millis(1000 * second), 20.0, is_beside, None));
            held_half.begin(Time::from_millis(1000 * seconds), 5.0);
            held_half.rate()
        };
        assert_eq!([held_after(15, false), held_after(60, true), held_after(25, false)], [Some(50.0), Some(50.0), Some(10.0)]);
    }
}

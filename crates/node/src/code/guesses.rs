//! The code that a receiver shows at present, and what is left of it: three wrong proofs withdraw it, an hour ends it, one key uses it.

use super::Code;
use super::records::Why;
use noctule::PublicKey;
use std::collections::HashSet;
use std::time::Duration;
use tokio::time::Instant;

/// Wrong proofs that withdraw a code.
pub const GUESSES: u32 = 3;
/// Wrong proofs of one run, however many codes it has shown; then it shows no more. Each is right with a probability of 2^-22.6.
pub const ALL_GUESSES: u32 = 10 * GUESSES;
/// An unused code is replaced after so long.
pub const LIFETIME: Duration = Duration::from_secs(3600);

/// What the owner of the receiver is to hear.
#[derive(Debug, PartialEq, Eq)]
pub enum News {
    /// A wrong code was tried; so many tries are left.
    Wrong(u32),
    /// This code takes the place of the one before.
    Fresh(Code),
    /// There is no code any more in this run.
    NoMore,
    /// This key had the right code.
    Admitted(PublicKey),
}

/// See the file's heading.
pub struct Guesses {
    /// `None`: withdrawn for good.
    code: Option<Code>,
    made: Instant,
    /// Counts codes, so that a proof is judged by the code that it was asked for.
    generation: u32,
    wrong: u32,
    /// Of all codes.
    wrong_in_all: u32,
    /// The key that used it.
    owner: Option<PublicKey>,
    admitted: HashSet<PublicKey>,
    make: fn() -> Option<Code>,
    /// Not told yet, in their order.
    pub news: Vec<News>,
}

impl Guesses {
    /// Begins with a code of `make`, which gives `None` if there is no randomness.
    pub fn new(make: fn() -> Option<Code>, now: Instant) -> Self {
        Self {
            code: make(),
            made: now,
            generation: 0,
            wrong: 0,
            wrong_in_all: 0,
            owner: None,
            admitted: HashSet::new(),
            make,
            news: Vec::new(),
        }
    }

    /// The code to show.
    pub fn shown(&self) -> Option<&Code> {
        self.code.as_ref()
    }

    /// Whether a key has had the right code.
    pub fn is_admitted(&self, key: &PublicKey) -> bool {
        self.admitted.contains(key)
    }

    /// The code for an exchange with `key`, and its number.
    pub fn begin(&mut self, key: &PublicKey, now: Instant) -> Result<(Code, u32), Why> {
        if self.owner.is_none() && self.code.is_some() && now.duration_since(self.made) >= LIFETIME {
            // Nobody has seen the new one: this exchange is not judged by it.
            self.replace(now);
            return Err(Why::Withdrawn);
        }
        match (&self.code, &self.owner) {
            (_, Some(owner)) if owner != key => Err(Why::Used),
            (None, _) => Err(Why::Withdrawn),
            (Some(code), _) => Ok((code.clone(), self.generation)),
        }
    }

    /// Judges the proof of an exchange that began with code `generation`. Exchanges that run side by side share the guesses of their code: once those
    /// are used up, a proof gets no verdict.
    pub fn judge(&mut self, generation: u32, key: &PublicKey, is_right: bool, now: Instant) -> Result<(), Why> {
        if generation != self.generation || self.code.is_none() {
            return Err(Why::Withdrawn);
        }
        if self.owner.is_some_and(|owner| owner != *key) {
            return Err(Why::Used);
        }
        if is_right {
            self.owner = Some(*key);
            self.admitted.insert(*key);
            self.news.push(News::Admitted(*key));
            return Ok(());
        }
        self.wrong += 1;
        self.news.push(News::Wrong(GUESSES - self.wrong));
        self.wrong_in_all += 1;
        if self.wrong == GUESSES || self.wrong_in_all == ALL_GUESSES {
            // One that was used has done its work.
            if self.owner.is_none() && self.wrong_in_all < ALL_GUESSES {
                self.replace(now);
            } else {
                self.code = None;
                self.news.push(News::NoMore);
            }
        }
        Err(Why::Wrong)
    }

    fn replace(&mut self, now: Instant) {
        (self.code, self.made, self.wrong) = ((self.make)(), now, 0);
        self.generation += 1;
        self.news.push(self.code.clone().map_or(News::NoMore, News::Fresh));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn key(n: u8) -> PublicKey {
        PublicKey([n; 32])
    }

    fn guesses() -> (Guesses, Instant) {
        let now = Instant::now();
        (Guesses::new(|| Code::random().ok(), now), now)
    }

    #[test]
    fn three_wrong_proofs_withdraw_a_code_however_many_exchanges_run_side_by_side() {
        let (mut g, now) = guesses();
        let first = g.shown().unwrap().clone();
        let begun: Vec<u32> = (0..8).map(|n| g.begin(&key(n), now).unwrap().1).collect();
        let verdicts: Vec<_> = (0..8u8).map(|n| g.judge(begun[usize::from(n)], &key(n), n == 7, now)).collect();
        assert_eq!(verdicts[..3], [Err(Why::Wrong); 3]);
        // Not even the right one among them: it was the withdrawn code's.
        assert_eq!(verdicts[3..], [Err(Why::Withdrawn); 5]);
        assert!(!g.is_admitted(&key(7)));
        let second = g.shown().unwrap().clone();
        assert!(first != second);
        assert_eq!(g.news, [News::Wrong(2), News::Wrong(1), News::Wrong(0), News::Fresh(second)]);
    }

    #[test]
    fn a_run_allows_thirty_wrong_proofs_in_all() {
        let (mut g, now) = guesses();
        let mut tried = 0;
        while let Ok((_, generation)) = g.begin(&key(1), now) {
            assert_eq!(g.judge(generation, &key(1), false, now), Err(Why::Wrong));
            tried += 1;
        }
        assert_eq!((tried, g.shown().is_none()), (ALL_GUESSES, true));
        assert_eq!(g.begin(&key(2), now), Err(Why::Withdrawn));
        assert_eq!(g.news.last(), Some(&News::NoMore));
    }

    #[test]
    fn an_hour_gives_no_guess_back() {
        let (mut g, mut now) = guesses();
        let mut tried = 0;
        for _ in 0..1000 {
            for _ in 1..GUESSES {
                if let Ok((_, generation)) = g.begin(&key(1), now) {
                    tried += u32::from(g.judge(generation, &key(1), false, now).is_err());
                }
            }
            now += LIFETIME;
        }
        assert!(g.shown().is_none() && tried <= ALL_GUESSES, "{tried}");
    }

    #[test]
    fn a_code_is_used_by_one_key_which_may_use_it_again() {
        let (mut g, now) = guesses();
        let (_, early) = g.begin(&key(2), now).unwrap();
        let (_, generation) = g.begin(&key(1), now).unwrap();
        assert_eq!(g.judge(generation, &key(1), true, now), Ok(()));
        assert!(g.is_admitted(&key(1)));
        assert_eq!(g.begin(&key(2), now), Err(Why::Used));
        // It began before the other had proven anything.
        assert_eq!(g.judge(early, &key(2), true, now), Err(Why::Used));
        assert!(!g.is_admitted(&key(2)));
        let (_, again) = g.begin(&key(1), now + 2 * LIFETIME).unwrap();
        assert_eq!(g.judge(again, &key(1), true, now), Ok(()));
        for _ in 0..GUESSES {
            let _ = g.judge(again, &key(1), false, now);
        }
        assert!(g.shown().is_none() && g.is_admitted(&key(1)), "no new code, and the key that had the right one stays");
    }

    #[test]
    fn a_code_that_nobody_used_is_replaced_after_an_hour() {
        let (mut g, now) = guesses();
        let (old, generation) = g.begin(&key(1), now).unwrap();
        // What comes with the old one is not judged by the new one, which nobody has seen.
        assert_eq!(g.begin(&key(1), now + LIFETIME), Err(Why::Withdrawn));
        let (new, _) = g.begin(&key(1), now + LIFETIME).unwrap();
        assert!(old != new && g.news == [News::Fresh(new)]);
        assert_eq!(g.judge(generation, &key(1), true, now + LIFETIME), Err(Why::Withdrawn));
    }
}

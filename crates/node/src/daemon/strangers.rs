//! Warnings that a stranger can cause at will: counted always, said at most once in [`EVERY`].

use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

/// Pause between two lines of one kind: a flood leaves at most six a minute.
const EVERY: Duration = Duration::from_secs(10);

/// One kind of such events.
#[derive(Debug, Default)]
pub struct Strangers(Mutex<Seen>);

#[derive(Debug, Default)]
struct Seen {
    total: u64,
    unsaid: u64,
    said: Option<Instant>,
}

impl Strangers {
    /// Notes one. If a line is due: how many came since the last line, this one included.
    pub fn note(&self, now: Instant) -> Option<u64> {
        let mut seen = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        seen.total += 1;
        seen.unsaid += 1;
        if seen.said.is_some_and(|said| now.duration_since(said) < EVERY) {
            return None;
        }
        seen.said = Some(now);
        Some(std::mem::take(&mut seen.unsaid))
    }

    /// All of them.
    pub fn total(&self) -> u64 {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).total
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_flood_is_one_line_and_the_next_line_says_how_many_there_were() {
        let (strangers, start) = (Strangers::default(), Instant::now());
        let said: Vec<Option<u64>> = (0..1000).map(|n| strangers.note(start + EVERY / 1000 * n)).collect();
        assert_eq!((said[0], said.iter().flatten().count()), (Some(1), 1));
        assert_eq!((strangers.note(start + EVERY), strangers.total()), (Some(1000), 1001));
    }
}

//! Gives tests their turns: one at a time, since two at once would measure each other. A few may wait, and are told how long at most.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;
use tokio::sync::oneshot;
use tokio::time::Instant;

/// Tests that may wait; further ones are refused.
pub const MOST_WAITING: usize = 8;

/// See the file's heading.
#[derive(Clone, Default)]
pub struct Turns(Arc<Mutex<Line>>);

#[derive(Default)]
struct Line {
    /// When the running test has to be over.
    until: Option<Instant>,
    waiting: VecDeque<(oneshot::Sender<Turn>, Duration)>,
}

/// The right to run a test; passed on when dropped.
pub struct Turn(Option<Turns>);

/// The answer to a request for a turn.
pub enum Asked {
    /// Now.
    Now(Turn),
    /// Later: after so many others, which take at most so long.
    Later(oneshot::Receiver<Turn>, usize, Duration),
    /// Too many wait.
    Full,
}

impl Turns {
    /// Asks for a turn of at most `limit`.
    pub fn ask(&self, limit: Duration) -> Asked {
        let now = Instant::now();
        let mut line = self.lock();
        let Some(until) = line.until else {
            line.until = Some(now + limit);
            return Asked::Now(Turn(Some(self.clone())));
        };
        // Clients that have gone meanwhile do not count.
        line.waiting.retain(|(next, _)| !next.is_closed());
        if line.waiting.len() >= MOST_WAITING {
            return Asked::Full;
        }
        let (next, turn) = oneshot::channel();
        let (ahead, wait) = (line.waiting.len() + 1, line.waiting.iter().map(|(_, limit)| *limit).sum::<Duration>());
        line.waiting.push_back((next, limit));
        Asked::Later(turn, ahead, until.saturating_duration_since(now) + wait)
    }

    fn lock(&self) -> MutexGuard<'_, Line> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn pass_on(&self) {
        loop {
            let mut line = self.lock();
            let Some((next, limit)) = line.waiting.pop_front() else {
                line.until = None;
                return;
            };
            line.until = Some(Instant::now() + limit);
            drop(line);
            match next.send(Turn(Some(self.clone()))) {
                Ok(()) => return,
                // It has gone: this loop passes its turn on.
                Err(mut turn) => turn.0 = None,
            }
        }
    }
}

impl Drop for Turn {
    fn drop(&mut self) {
        if let Some(turns) = self.0.take() {
            turns.pass_on();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn turns_go_round_in_order_and_clients_that_wait_know_how_long() {
        let turns = Turns::default();
        let limit = Duration::from_secs(10);
        let Asked::Now(first) = turns.ask(limit) else { panic!("nobody is before it") };
        tokio::time::advance(Duration::from_secs(4)).await;
        let Asked::Later(second, 1, wait) = turns.ask(limit) else { panic!("one is before it") };
        assert_eq!(wait, Duration::from_secs(6));
        let Asked::Later(third, 2, wait) = turns.ask(limit) else { panic!("two are before it") };
        assert_eq!(wait, Duration::from_secs(16));
        // The second leaves: the third comes next, and once only.
        drop(second);
        drop(first);
        let third = third.await.unwrap();
        assert!(matches!(turns.ask(limit), Asked::Later(_, 1, _)));
        drop(third);
        assert!(matches!(turns.ask(limit), Asked::Now(_)));
    }

    #[tokio::test]
    async fn few_wait_and_clients_that_left_make_room() {
        let turns = Turns::default();
        let _first = turns.ask(Duration::from_secs(1));
        let mut waiting: Vec<Asked> = (0..MOST_WAITING).map(|_| turns.ask(Duration::from_secs(1))).collect();
        assert!(matches!(turns.ask(Duration::from_secs(1)), Asked::Full));
        waiting.pop();
        assert!(matches!(turns.ask(Duration::from_secs(1)), Asked::Later(..)));
    }
}

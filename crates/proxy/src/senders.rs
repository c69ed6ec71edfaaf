//! Sources of datagrams that one listener tells apart. Anybody can send from any address, so a place proves nothing: as in a firewall that keeps state, a source
//! keeps its place for certain only once it has sent something after it was answered. Another one gives way when the places are full and it has been silent.

use std::collections::HashMap;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::time::Duration;
use tokio::time::Instant;

/// Sources that one listener tells apart, at most: fewer than the 1024 that a far end grants a key, for one that gives way ends there a little later.
pub(crate) const MOST: usize = 960;
/// One that is not certain gives way after this silence.
const SILENT: Duration = Duration::from_secs(5);
/// One gives way in this time, at most: a flood from invented addresses costs so many associations and looks.
const TURN: Duration = Duration::from_millis(50);

struct Sender<T> {
    value: T,
    heard: Instant,
    was_answered: Arc<AtomicBool>,
    is_certain: bool,
}

/// See the file's heading. Each has something of its own.
pub(crate) struct Senders<T> {
    all: HashMap<SocketAddr, Sender<T>>,
    looked: Option<Instant>,
}

impl<T> Default for Senders<T> {
    fn default() -> Self {
        Self { all: HashMap::new(), looked: None }
    }
}

impl<T> Senders<T> {
    /// What a source that has just sent something has.
    pub fn heard(&mut self, from: &SocketAddr) -> Option<&T> {
        let sender = self.all.get_mut(from)?;
        sender.heard = Instant::now();
        sender.is_certain = sender.is_certain || sender.was_answered.load(Relaxed);
        Some(&sender.value)
    }

    /// Whether there is a place for one more; perhaps another gives way for it, whose value is dropped.
    pub fn has_room(&mut self) -> bool {
        if self.all.len() < MOST {
            return true;
        }
        let now = Instant::now();
        if self.looked.is_some_and(|at| now - at < TURN) {
            return false;
        }
        self.looked = Some(now);
        let silent = self.all.iter().filter(|(_, sender)| !sender.is_certain && now - sender.heard >= SILENT);
        let longest = silent.min_by_key(|(_, sender)| sender.heard).map(|(from, _)| *from);
        longest.and_then(|from| self.all.remove(&from)).is_some()
    }

    /// A new one; what is to be set to true once something goes back to it.
    pub fn insert(&mut self, from: SocketAddr, value: T) -> Arc<AtomicBool> {
        let was_answered = Arc::<AtomicBool>::default();
        let sender = Sender { value, heard: Instant::now(), was_answered: Arc::clone(&was_answered), is_certain: false };
        self.all.insert(from, sender);
        was_answered
    }

    /// Forgets those that are over.
    pub fn forget(&mut self, from: Option<&SocketAddr>, is_over: impl Fn(&T) -> bool) {
        match from {
            // It may have come back already.
            Some(from) if self.all.get(from).is_some_and(|sender| is_over(&sender.value)) => drop(self.all.remove(from)),
            Some(_) => {}
            None => self.all.retain(|_, sender| !is_over(&sender.value)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use tokio::time::advance;

    fn at(n: usize) -> SocketAddr {
        SocketAddr::from(([10, 0, (n >> 8) as u8, n as u8], 9))
    }

    #[tokio::test(start_paused = true)]
    async fn invented_addresses_give_way_and_those_that_hear_their_answers_do_not() {
        let mut senders = Senders::default();
        for n in 0..MOST {
            assert!(senders.has_room());
            let answered = senders.insert(at(n), n);
            answered.store(n < 2, Relaxed);
            if n == 1 {
                advance(Duration::from_millis(1)).await;
            }
        }
        assert!(!senders.has_room(), "nobody has been silent yet");
        // The first has heard its answer, and the third goes on without one.
        assert_eq!(senders.heard(&at(0)), Some(&0));
        advance(SILENT).await;
        assert_eq!(senders.heard(&at(2)), Some(&2));
        let mut taken = 0;
        for n in MOST..4 * MOST {
            if senders.has_room() {
                senders.insert(at(n), n);
                taken += 1;
            }
            advance(Duration::from_millis(1)).await;
        }
        assert!(senders.all.contains_key(&at(0)) && senders.all.contains_key(&at(2)));
        assert!(!senders.all.contains_key(&at(1)), "it was answered, and may never have heard that");
        assert!((50..=3 * MOST / 50 + 1).contains(&taken) && senders.all.len() == MOST, "{taken}");
    }

    #[tokio::test(start_paused = true)]
    async fn one_that_has_come_back_is_not_forgotten_with_what_it_was() {
        let mut senders = Senders::default();
        senders.insert(at(1), true);
        senders.insert(at(1), false);
        senders.forget(Some(&at(1)), |is_over| *is_over);
        assert!(senders.heard(&at(1)).is_some());
        senders.forget(None, |is_over| !is_over);
        assert!(senders.heard(&at(1)).is_none());
    }
}

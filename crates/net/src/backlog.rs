//! Sessions that wait to be accepted: a queue for each shard of an endpoint, and one limit for all.

use noctule_proto::ids::SessionId;
use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};

/// See the file's heading.
#[derive(Debug)]
pub(crate) struct Backlog {
    queue: VecDeque<SessionId>,
    /// Those of all shards.
    waiting: Arc<AtomicUsize>,
    most: usize,
}

impl Backlog {
    /// One for each of so many shards.
    pub(crate) fn of_shards(most: usize) -> impl Iterator<Item = Self> {
        let waiting = Arc::new(AtomicUsize::new(0));
        std::iter::repeat_with(move || Self { queue: VecDeque::new(), waiting: Arc::clone(&waiting), most })
    }

    /// One more waits; false if there is no place.
    pub(crate) fn push(&mut self, session: SessionId) -> bool {
        let has_place = self.waiting.fetch_update(Relaxed, Relaxed, |waiting| (waiting < self.most).then_some(waiting + 1)).is_ok();
        if has_place {
            self.queue.push_back(session);
        }
        has_place
    }

    /// The one that has waited longest in this shard.
    pub(crate) fn pop(&mut self) -> Option<SessionId> {
        let session = self.queue.pop_front();
        self.waiting.fetch_sub(usize::from(session.is_some()), Relaxed);
        session
    }

    /// It is over.
    pub(crate) fn remove(&mut self, session: SessionId) {
        let before = self.queue.len();
        self.queue.retain(|waiting| *waiting != session);
        self.waiting.fetch_sub(before - self.queue.len(), Relaxed);
    }

    pub(crate) fn clear(&mut self) {
        self.waiting.fetch_sub(self.queue.len(), Relaxed);
        self.queue.clear();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn shards_have_one_limit_and_what_leaves_makes_room_in_all() {
        let mut shards: Vec<Backlog> = Backlog::of_shards(3).take(2).collect();
        let id = SessionId;
        assert!(shards[0].push(id(1)) && shards[1].push(id(1)) && shards[0].push(id(2)) && !shards[1].push(id(2)));
        assert_eq!((shards[1].pop(), shards[1].pop()), (Some(id(1)), None));
        assert!(shards[1].push(id(3)) && !shards[0].push(id(3)));
        shards[0].remove(id(2));
        shards[0].remove(id(2));
        assert!(shards[1].push(id(4)) && !shards[1].push(id(5)));
        shards[0].clear();
        assert!(shards[1].push(id(5)) && !shards[1].push(id(6)));
    }
}

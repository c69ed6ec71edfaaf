//! Messages that wait to be packetised: highest priority first, within a priority in order, each dropped when its lifetime ends.

use crate::units::Time;
use bytes::Bytes;
use std::collections::{BTreeMap, VecDeque};

/// What a queued message costs beside its bytes, so that empty messages cannot be queued without end.
pub(super) const MESSAGE_COST: usize = 64;

#[derive(Debug)]
pub(super) struct Queued {
    pub id: u64,
    pub data: Bytes,
    pub queued_at: Time,
    pub deadline: Option<Time>,
}

impl Queued {
    fn cost(&self) -> usize {
        self.data.len() + MESSAGE_COST
    }
}

#[derive(Debug)]
struct Lane {
    priority: u8,
    queue: VecDeque<Queued>,
}

/// The queue. Lanes are few (one per priority in use) and kept when they run empty, so nothing is allocated per message in the steady state.
#[derive(Debug, Default)]
pub(super) struct MessageQueue {
    /// Highest priority first; numbers ascend within a lane.
    lanes: Vec<Lane>,
    /// Lifetimes of queued messages that have one, with the lane's priority.
    deadlines: BTreeMap<(Time, u64), u8>,
    len: usize,
    cost: usize,
}

impl MessageQueue {
    pub fn len(&self) -> usize {
        self.len
    }
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }
    /// Bytes, with [`MESSAGE_COST`] for each message.
    pub fn cost(&self) -> usize {
        self.cost
    }
    pub fn next_deadline(&self) -> Option<Time> {
        self.deadlines.first_key_value().map(|(&(t, _), _)| t)
    }

    pub fn push(&mut self, priority: u8, message: Queued) {
        let at = self.lanes.partition_point(|l| l.priority > priority);
        if self.lanes.get(at).is_none_or(|l| l.priority != priority) {
            self.lanes.insert(at, Lane { priority, queue: VecDeque::new() });
        }
        if let Some(deadline) = message.deadline {
            self.deadlines.insert((deadline, message.id), priority);
        }
        self.len += 1;
        self.cost += message.cost();
        self.lanes[at].queue.push_back(message);
    }

    pub fn peek(&self) -> Option<&Queued> {
        self.lanes.iter().find_map(|l| l.queue.front())
    }

    pub fn pop(&mut self) -> Option<Queued> {
        let message = self.lanes.iter_mut().find_map(|l| l.queue.pop_front())?;
        self.forget(&message);
        Some(message)
    }

    pub fn remove(&mut self, id: u64) -> Option<Queued> {
        let message = self.lanes.iter_mut().find_map(|l| take(l, id))?;
        self.forget(&message);
        Some(message)
    }

    /// Drops what has outlived its lifetime; how many that were.
    pub fn expire(&mut self, now: Time) -> u64 {
        let mut expired = 0;
        while let Some((&(deadline, id), &priority)) = self.deadlines.first_key_value()
            && deadline <= now
        {
            match self.lanes.iter_mut().find(|l| l.priority == priority).and_then(|l| take(l, id)) {
                Some(message) => self.forget(&message),
                None => drop(self.deadlines.pop_first()),
            }
            expired += 1;
        }
        expired
    }

    pub fn clear(&mut self) {
        *self = Self::default();
    }

    fn forget(&mut self, message: &Queued) {
        self.len -= 1;
        self.cost -= message.cost();
        if let Some(deadline) = message.deadline {
            self.deadlines.remove(&(deadline, message.id));
        }
    }
}

fn take(lane: &mut Lane, id: u64) -> Option<Queued> {
    let at = lane.queue.binary_search_by_key(&id, |m| m.id).ok()?;
    lane.queue.remove(at)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn queue(messages: &[(u64, u8, Option<u64>)]) -> MessageQueue {
        let mut q = MessageQueue::default();
        for &(id, priority, ms) in messages {
            q.push(priority, Queued { id, data: Bytes::from_static(b"abc"), queued_at: Time::ZERO, deadline: ms.map(Time::from_millis) });
        }
        q
    }

    fn order(q: &mut MessageQueue) -> Vec<u64> {
        core::iter::from_fn(|| q.pop().map(|m| m.id)).collect()
    }

    #[test]
    fn highest_priority_goes_first_and_equals_keep_their_order() {
        let mut q = queue(&[(0, 0, None), (1, 9, None), (2, 0, None), (3, 9, None), (4, 5, None)]);
        assert_eq!(q.peek().map(|m| m.id), Some(1));
        assert_eq!(order(&mut q), [1, 3, 4, 0, 2]);
        assert_eq!((q.len(), q.cost()), (0, 0));
    }

    #[test]
    fn what_expires_leaves_the_queue_and_its_books() {
        let mut q = queue(&[(0, 0, Some(10)), (1, 3, Some(5)), (2, 0, None), (3, 0, Some(20))]);
        assert_eq!(q.next_deadline(), Some(Time::from_millis(5)));
        assert_eq!(q.expire(Time::from_millis(10)), 2);
        assert_eq!(q.next_deadline(), Some(Time::from_millis(20)));
        assert_eq!(q.cost(), 2 * (3 + MESSAGE_COST));
        assert_eq!(order(&mut q), [2, 3]);
        assert_eq!(q.next_deadline(), None);
    }

    #[test]
    fn a_message_is_removed_by_number_from_any_lane() {
        let mut q = queue(&[(0, 0, None), (1, 9, Some(7)), (2, 0, None)]);
        assert!(q.remove(1).is_some());
        assert!(q.remove(1).is_none());
        assert!(q.remove(7).is_none());
        assert_eq!(q.next_deadline(), None);
        assert_eq!(order(&mut q), [0, 2]);
    }
}

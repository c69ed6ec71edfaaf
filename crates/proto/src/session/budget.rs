//! The budget that the incomplete messages of all flows share (P18).

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};

/// Bytes that incomplete messages may hold beyond the windows of their flows; clones share one budget.
///
/// A message is admitted with its whole length when it becomes the oldest of its flow, so what has been admitted can always be completed: no two
/// messages can wait for each other. A message that is not admitted stays within its flow's window, whose credit then stands still.
#[derive(Clone, Debug)]
pub struct MessageBudget(Arc<Inner>);

#[derive(Debug)]
struct Inner {
    limit: usize,
    used: AtomicUsize,
    /// Reservations that were given back.
    freed: AtomicU64,
}

impl MessageBudget {
    /// A budget of `limit` bytes.
    pub fn new(limit: usize) -> Self {
        Self(Arc::new(Inner { limit, used: AtomicUsize::new(0), freed: AtomicU64::new(0) }))
    }
    /// Bytes promised to messages now.
    pub fn used(&self) -> usize {
        self.0.used.load(Ordering::Relaxed)
    }
    /// Bytes that there are in all.
    pub fn limit(&self) -> usize {
        self.0.limit
    }
    /// How often room was given back: while this stands still, what found none finds none.
    pub fn freed(&self) -> u64 {
        self.0.freed.load(Ordering::Acquire)
    }
    /// Room for a message of `bytes`, given back when the reservation is dropped. While nothing is reserved one message of any size is admitted, so that the budget can never lock a flow out.
    pub fn reserve(&self, bytes: usize) -> Option<Reservation> {
        let admit = |used: usize| (used == 0 || bytes <= self.0.limit.saturating_sub(used)).then(|| used.saturating_add(bytes));
        self.0.used.fetch_update(Ordering::Relaxed, Ordering::Relaxed, admit).ok()?;
        Some(Reservation { budget: self.clone(), bytes })
    }
}

/// Room that one message holds.
#[derive(Debug)]
pub struct Reservation {
    budget: MessageBudget,
    bytes: usize,
}

impl Drop for Reservation {
    fn drop(&mut self) {
        self.budget.0.used.fetch_sub(self.bytes, Ordering::Relaxed);
        // Released after the room: a thread that reads this count finds the room as well.
        self.budget.0.freed.fetch_add(1, Ordering::Release);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn budget_is_shared_and_given_back() {
        let a = MessageBudget::new(100);
        let b = a.clone();
        let first = a.reserve(60).expect("there is room");
        assert!(b.reserve(41).is_none());
        let second = b.reserve(40).expect("exactly what is left");
        assert_eq!((a.used(), a.freed()), (100, 0));
        drop(first);
        assert_eq!((b.used(), b.freed()), (40, 1));
        drop(second);
        assert_eq!(b.used(), 0);
    }

    #[test]
    fn one_message_is_admitted_whatever_its_size() {
        let budget = MessageBudget::new(10);
        let large = budget.reserve(1000).expect("nothing else is reserved");
        assert!(budget.reserve(1).is_none());
        drop(large);
        assert!(budget.reserve(1).is_some());
    }
}

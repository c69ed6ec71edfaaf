//! Deadlines of source packets, earliest first.

use crate::ids::Seq;
use crate::units::Time;
use std::cmp::Reverse;
use std::collections::BinaryHeap;

/// Source packets that are of no use after some instant.
#[derive(Debug, Default)]
pub(super) struct Deadlines {
    heap: BinaryHeap<Reverse<(Time, u64)>>,
}

impl Deadlines {
    pub fn add(&mut self, seq: Seq, deadline: Time) {
        self.heap.push(Reverse((deadline, seq.0)));
    }

    /// The earliest deadline.
    pub fn next(&self) -> Option<Time> {
        self.heap.peek().map(|Reverse((at, _))| *at)
    }

    /// A packet whose deadline has passed.
    pub fn pop_expired(&mut self, now: Time) -> Option<Seq> {
        if self.next()? > now {
            return None;
        }
        self.heap.pop().map(|Reverse((_, seq))| Seq(seq))
    }

    /// Drops deadlines of packets below `floor`. Amortised: each is dropped once.
    pub fn forget_below(&mut self, floor: Seq) {
        while self.heap.peek().is_some_and(|Reverse((_, seq))| *seq < floor.0) {
            self.heap.pop();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn packets_expire_in_the_order_of_their_deadlines() {
        let mut deadlines = Deadlines::default();
        for (seq, at) in [(0, 30), (1, 10), (2, 20)] {
            deadlines.add(Seq(seq), Time::from_millis(at));
        }
        assert_eq!(deadlines.next(), Some(Time::from_millis(10)));
        assert_eq!(deadlines.pop_expired(Time::from_millis(9)), None);
        assert_eq!(deadlines.pop_expired(Time::from_millis(20)), Some(Seq(1)));
        assert_eq!(deadlines.pop_expired(Time::from_millis(20)), Some(Seq(2)));
        assert_eq!(deadlines.pop_expired(Time::from_millis(20)), None);
        deadlines.forget_below(Seq(1));
        assert_eq!(deadlines.next(), None);
    }
}

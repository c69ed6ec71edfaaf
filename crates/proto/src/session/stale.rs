//! Messages with a lifetime in a queue that stands: where more is sent than leaves, a queue in order of arrival makes every message as old as its lifetime before it leaves,
//! and all come too late. What is old then makes room for what is new, so that only as much is lost as there was too much of.

use super::queue::MessageQueue;
use crate::switch::{self, Mechanism};
use crate::units::Time;

/// Whether the queue stands.
#[derive(Debug, Default)]
pub(super) struct StaleMessages {
    /// When the message in front had last waited for less than half of its lifetime, or there was none.
    fresh_at: Time,
}

impl StaleMessages {
    /// A message comes to a queue without any.
    pub fn begin(&mut self, now: Time) {
        self.fresh_at = now;
    }

    /// Messages that were dropped: if all that was in front for half of a lifetime had waited for more than half of its own, what has waited for more than a quarter. A
    /// burst, however large, is over or expired by then.
    pub fn drop_stale(&mut self, now: Time, queue: &mut MessageQueue) -> u64 {
        let waited = |queue: &MessageQueue| {
            let head = queue.peek()?;
            Some((now.since(head.queued_at), head.deadline?.since(head.queued_at)))
        };
        let Some((wait, lifetime)) = waited(queue) else {
            self.fresh_at = now;
            return 0;
        };
        if wait * 2 <= lifetime {
            self.fresh_at = now;
        }
        if now.since(self.fresh_at) * 2 <= lifetime || switch::is_off(Mechanism::StandingQueues) {
            return 0;
        }
        let mut dropped = 0;
        while waited(queue).is_some_and(|(wait, lifetime)| wait * 4 > lifetime) {
            queue.pop();
            dropped += 1;
        }
        self.fresh_at = now;
        dropped
    }
}

#[cfg(test)]
mod tests {
    use super::super::queue::Queued;
    use super::*;
    use crate::switch::without;
    use bytes::Bytes;

    /// A message every ms that lives for 40 ms, of which one leaves every `every` ms; how old those are that leave after a second, and how many leave.
    fn ages(every: u64) -> (u64, u64) {
        let (mut queue, mut stale, mut oldest, mut left) = (MessageQueue::default(), StaleMessages::default(), 0, 0);
        for ms in 0..3000 {
            let now = Time::from_millis(ms);
            if queue.is_empty() {
                stale.begin(now);
            }
            queue.push(0, Queued { id: ms, data: Bytes::new(), queued_at: now, deadline: Some(Time::from_millis(ms + 40)) });
            if ms % every == 0 {
                queue.expire(now);
                stale.drop_stale(now, &mut queue);
                let age = queue.pop().map_or(0, |message| now.since(message.queued_at).as_millis() as u64);
                if ms > 1000 {
                    (oldest, left) = (oldest.max(age), left + u64::from(age < 30));
                }
            }
        }
        (oldest, left)
    }

    #[test]
    fn what_leaves_a_queue_that_stands_is_not_as_old_as_its_lifetime() {
        let (_, young) = ages(2);
        assert!(young > 600, "{young} of 1000");
        let (oldest, young) = without(Mechanism::StandingQueues, || ages(2));
        assert!(oldest >= 38 && young == 0, "{oldest} {young}");
    }

    #[test]
    fn a_burst_that_leaves_within_its_lifetime_loses_nothing() {
        let (mut queue, mut stale) = (MessageQueue::default(), StaleMessages::default());
        for round in 0..5 {
            let begin = Time::from_millis(1000 * round);
            stale.begin(begin);
            for id in 0..38 {
                queue.push(
                    0,
                    Queued { id, data: Bytes::new(), queued_at: begin, deadline: Some(begin + core::time::Duration::from_millis(40)) },
                );
            }
            for ms in 0..38 {
                let now = Time::from_millis(1000 * round + ms);
                assert_eq!(stale.drop_stale(now, &mut queue), 0, "{ms}");
                assert!(queue.pop().is_some());
            }
        }
    }
}

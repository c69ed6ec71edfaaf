//! When a receiver reports rank (P9): on evidence that the sender is mistaken, and when nothing moves.

use crate::units::{Duration, Time};
use std::collections::VecDeque;

/// Spans whose rank is to be reported, and the watch over progress.
#[derive(Debug)]
pub(super) struct RankReports {
    /// Numbers of batches, without repetition.
    queue: VecDeque<u64>,
    /// `done` and arrivals when progress was last seen, and when that was.
    mark: (u64, u64),
    marked_at: Option<Time>,
    /// Reports on a stalled flow back off.
    backoff: u32,
}

/// Spans reported at a time.
pub(super) const MOST_REPORTS: usize = 8;
/// A stalled flow reports at least this often.
const LONGEST_WAIT: Duration = Duration::from_secs(1);

impl RankReports {
    pub fn new() -> Self {
        Self { queue: VecDeque::new(), mark: (0, 0), marked_at: None, backoff: 0 }
    }

    /// The sender should know the rank of this batch.
    pub fn want(&mut self, number: u64) {
        if self.queue.len() < MOST_REPORTS && !self.queue.contains(&number) {
            self.queue.push_back(number);
        }
    }

    pub fn pop(&mut self) -> Option<u64> {
        self.queue.pop_front()
    }

    pub fn is_empty(&self) -> bool {
        self.queue.is_empty()
    }

    /// Notes progress; true when an incomplete flow has stood still for too long and its first spans should be reported.
    ///
    /// `wait`: how long nothing may move; one RTT when the end is known, more otherwise, doubling up to a second.
    pub fn is_stalled(&mut self, now: Time, progress: (u64, u64), wait: Duration) -> bool {
        let since = *self.marked_at.get_or_insert(now);
        if progress != self.mark {
            self.mark = progress;
            self.marked_at = Some(now);
            self.backoff = 0;
            return false;
        }
        if now < since + self.interval(wait) {
            return false;
        }
        self.marked_at = Some(now);
        self.backoff = (self.backoff + 1).min(6);
        true
    }

    /// Nothing is missing: no watch.
    pub fn rest(&mut self) {
        self.marked_at = None;
        self.backoff = 0;
    }

    /// When `is_stalled` should be asked again.
    pub fn due(&self, wait: Duration) -> Option<Time> {
        self.marked_at.map(|at| at + self.interval(wait))
    }

    fn interval(&self, wait: Duration) -> Duration {
        (wait * (1 << self.backoff)).min(LONGEST_WAIT.max(wait))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MS: fn(u64) -> Time = Time::from_millis;

    #[test]
    fn standstill_is_reported_after_the_wait_and_then_less_and_less_often() {
        let (mut reports, wait) = (RankReports::new(), Duration::from_millis(100));
        assert!(!reports.is_stalled(MS(0), (0, 1), wait));
        assert!(!reports.is_stalled(MS(99), (0, 1), wait));
        assert!(reports.is_stalled(MS(100), (0, 1), wait));
        assert!(!reports.is_stalled(MS(299), (0, 1), wait));
        assert!(reports.is_stalled(MS(300), (0, 1), wait));
        assert!(!reports.is_stalled(MS(400), (0, 2), wait), "progress starts the watch afresh");
        assert_eq!(reports.due(wait), Some(MS(500)));
    }

    #[test]
    fn a_span_waits_only_once() {
        let mut reports = RankReports::new();
        (0..100).for_each(|n| reports.want(n % 3));
        assert_eq!((reports.pop(), reports.pop(), reports.pop(), reports.pop()), (Some(0), Some(1), Some(2), None));
        (0..100).for_each(|n| reports.want(n));
        assert_eq!(reports.queue.len(), MOST_REPORTS);
    }
}

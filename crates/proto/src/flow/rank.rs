//! When a receiver reports rank (P9): on evidence that the sender is mistaken, and about spans that should have been repaired by now.

use crate::switch::{self, Mechanism};
use crate::units::{Duration, Time};
use std::collections::VecDeque;

/// Spans whose rank is to be reported, and the watch over spans that stay incomplete.
#[derive(Debug, Default)]
pub(super) struct RankReports {
    /// Numbers of batches, without repetition.
    queue: VecDeque<u64>,
    watch: Option<Watch>,
}

/// Time is cut into steps of half the patience; what existed two steps ago and is not there yet is overdue.
#[derive(Debug)]
struct Watch {
    stepped_at: Time,
    /// Packets that existed at the last step, and at the one before.
    known: u64,
    known_before: u64,
    /// `done` at the last step.
    done: u64,
    /// Steps in a row that `done` has not moved: reports back off.
    stalled: u32,
}

/// Spans reported at a time.
pub(super) const MOST_REPORTS: usize = 8;
/// A flow that stands still is reported at least this often.
const LONGEST_STEP: Duration = Duration::from_secs(1);

impl Watch {
    fn due(&self, patience: Duration) -> Time {
        let step = patience / 2;
        // Where reports are all the feedback there is they do not back off (ablation, docs/decisions/0037).
        let stalled = if switch::is_off(Mechanism::LossFeedback) { 0 } else { self.stalled.min(6) };
        self.stepped_at + (step * (1 << stalled)).min(LONGEST_STEP.max(step))
    }
}

impl RankReports {
    /// The sender should know the rank of this batch.
    pub fn want(&mut self, number: u64) {
        if (self.queue.len() < MOST_REPORTS || switch::is_off(Mechanism::LossFeedback)) && !self.queue.contains(&number) {
            self.queue.push_back(number);
        }
    }

    pub fn pop(&mut self) -> Option<u64> {
        self.queue.pop_front()
    }

    pub fn is_empty(&self) -> bool {
        self.queue.is_empty()
    }

    /// Packets below the number returned should be there by now: those that are not deserve a report. `None` while no step is due.
    ///
    /// `done`: everything below is there; `known`: so many packets exist; `patience`: how long a healthy repair takes.
    pub fn overdue(&mut self, now: Time, done: u64, known: u64, patience: Duration) -> Option<u64> {
        let watch = self.watch.get_or_insert(Watch { stepped_at: now, known, known_before: 0, done, stalled: 0 });
        if done != watch.done && watch.stalled > 0 {
            watch.stalled = 0; // the next step is near again
        }
        if now < watch.due(patience) {
            return None;
        }
        let overdue = watch.known_before;
        let stalled = if done == watch.done && done < overdue { watch.stalled + 1 } else { 0 };
        *watch = Watch { stepped_at: now, known, known_before: watch.known, done, stalled };
        Some(overdue)
    }

    /// Nothing is missing: no watch.
    pub fn rest(&mut self) {
        self.watch = None;
    }

    /// When `overdue` should be asked again.
    pub fn due(&self, patience: Duration) -> Option<Time> {
        self.watch.as_ref().map(|watch| watch.due(patience))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MS: fn(u64) -> Time = Time::from_millis;
    const PATIENCE: Duration = Duration::from_millis(100);

    #[test]
    fn packets_are_overdue_after_the_patience_whatever_arrives_meanwhile() {
        let mut reports = RankReports::default();
        assert_eq!(reports.overdue(MS(0), 10, 20, PATIENCE), None);
        assert_eq!(reports.due(PATIENCE), Some(MS(50)));
        assert_eq!(reports.overdue(MS(50), 11, 30, PATIENCE), Some(0), "nothing is older than the patience");
        assert_eq!(reports.overdue(MS(99), 12, 35, PATIENCE), None);
        assert_eq!(reports.overdue(MS(100), 12, 40, PATIENCE), Some(20));
        assert_eq!(reports.overdue(MS(150), 13, 50, PATIENCE), Some(30));
    }

    #[test]
    fn a_flow_that_stands_still_is_reported_less_and_less_often() {
        let mut reports = RankReports::default();
        let at: Vec<u64> = (0..8000).filter(|ms| reports.overdue(MS(*ms), 3, 20, PATIENCE).is_some_and(|o| o > 0)).collect();
        assert_eq!(at, [100, 200, 400, 800, 1600, 2600, 3600, 4600, 5600, 6600, 7600]);
        assert_eq!(reports.overdue(MS(8000), 4, 20, PATIENCE), Some(20), "progress makes it watchful again");
        assert_eq!(reports.due(PATIENCE), Some(MS(8050)));
        reports.rest();
        assert_eq!(reports.due(PATIENCE), None);
    }

    #[test]
    fn a_span_waits_only_once() {
        let mut reports = RankReports::default();
        (0..100).for_each(|n| reports.want(n % 3));
        assert_eq!((reports.pop(), reports.pop(), reports.pop(), reports.pop()), (Some(0), Some(1), Some(2), None));
        (0..100).for_each(|n| reports.want(n));
        assert_eq!(reports.queue.len(), MOST_REPORTS);
    }
}

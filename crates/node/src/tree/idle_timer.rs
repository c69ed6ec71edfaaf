//! Whether anything still goes on in a branch: one that only keeps its place gives it back.

use noctule_proto::object::{ChildId, Status};
use std::collections::BTreeMap;
use std::time::{Duration, Instant};

/// A branch without a packet, and without a status that says anything new, for so long is over. Its receivers get the packets from the source itself then.
const LONGEST: Duration = Duration::from_secs(30);

/// See the file's heading.
#[derive(Debug)]
pub struct IdleTimer {
    since: Instant,
    said: BTreeMap<ChildId, Status>,
}

impl IdleTimer {
    /// Something has just happened.
    pub fn new(now: Instant) -> Self {
        Self { since: now, said: BTreeMap::new() }
    }

    /// A packet came.
    pub fn packet(&mut self, now: Instant) {
        self.since = now;
    }

    /// A child said how far it is. Saying the same again is no progress.
    pub fn status(&mut self, now: Instant, child: ChildId, status: &Status) {
        if self.said.get(&child) != Some(status) {
            self.said.insert(child, status.clone());
            self.since = now;
        }
    }

    /// Nothing happened for too long.
    pub fn is_over(&self, now: Instant) -> bool {
        now.saturating_duration_since(self.since) >= LONGEST
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_packets_and_news_keep_a_branch() {
        let start = Instant::now();
        let at = |seconds| start + Duration::from_secs(seconds);
        let status = |first| Status { first, ahead: first, wanted: vec![7] };
        let mut idle = IdleTimer::new(start);
        assert!(!idle.is_over(at(29)) && idle.is_over(at(30)));
        idle.packet(at(20));
        assert!(!idle.is_over(at(49)) && idle.is_over(at(50)));
        idle.status(at(40), ChildId(1), &status(3));
        for seconds in 41..70 {
            idle.status(at(seconds), ChildId(1), &status(3));
        }
        assert!(!idle.is_over(at(69)) && idle.is_over(at(70)), "the same again and again");
        idle.status(at(69), ChildId(1), &status(4));
        assert!(!idle.is_over(at(98)));
    }
}

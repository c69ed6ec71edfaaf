//! ECN on a path (RFC 9000 §13.4): mark, check that the marks arrive, stop marking where they are bleached or dropped.

use crate::switch::{self, Mechanism};
use crate::units::{Duration, Ecn, Time};
use crate::wire::ack::EcnCounts;

/// Marked packets sent before the first report must confirm them.
const TESTING_PACKETS: u64 = 10;
/// So many packets in a row that were marked CE, over so many round trips, say nothing about congestion: every controller has had its window at the
/// minimum by then, and something marks whatever comes.
const MEANINGLESS_PACKETS: u64 = 100;
const MEANINGLESS_RTTS: u32 = 20;

/// One more packet arrived with this codepoint.
pub fn count(counts: &mut EcnCounts, ecn: Ecn) {
    match ecn {
        Ecn::NotEct => {}
        Ecn::Ect0 => counts.ect0 += 1,
        Ecn::Ect1 => counts.ect1 += 1,
        Ecn::Ce => counts.ce += 1,
    }
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum EcnState {
    Testing,
    Capable,
    Failed,
}

/// Sender's side of ECN.
#[derive(Clone, Debug)]
pub struct EcnValidator {
    state: EcnState,
    marked: u64,
    acked_marked: u64,
    lost_marked: u64,
    reported: EcnCounts,
    /// Packets marked, and marks reported, before the path moved to the present addresses.
    before: (u64, u64),
    /// Marked packets reported in a row, all of them CE, and since when.
    ce_run: Option<(u64, Time)>,
    /// Codepoint of the train that is being made.
    train: Option<Ecn>,
}

impl EcnValidator {
    /// `is_wanted`: whether to mark at all.
    pub fn new(is_wanted: bool) -> Self {
        let state = if is_wanted { EcnState::Testing } else { EcnState::Failed };
        Self {
            state,
            marked: 0,
            acked_marked: 0,
            lost_marked: 0,
            reported: EcnCounts::default(),
            before: (0, 0),
            ce_run: None,
            train: None,
        }
    }

    /// Codepoint for the next packet.
    pub fn codepoint(&self) -> Ecn {
        match self.state {
            _ if switch::is_off(Mechanism::EcnValidation) => Ecn::Ect0,
            EcnState::Capable => Ecn::Ect0,
            EcnState::Testing if self.marked - self.before.0 < TESTING_PACKETS => Ecn::Ect0,
            _ => Ecn::NotEct,
        }
    }

    /// The path leads elsewhere: tested anew. The far end's counts go on.
    pub fn restart(&mut self, is_wanted: bool) {
        self.state = if is_wanted { EcnState::Testing } else { EcnState::Failed };
        self.before = (self.marked, self.reported.ect0 + self.reported.ce);
        (self.acked_marked, self.lost_marked, self.ce_run) = (0, 0, None);
    }

    /// The packets that follow leave in one train, which has one codepoint; `None`: packets are sent one by one again.
    pub fn set_train(&mut self, train: Option<Ecn>) {
        self.train = train;
    }

    /// A packet left; true if it is marked.
    pub fn on_sent(&mut self) -> bool {
        let is_ect = self.train.unwrap_or_else(|| self.codepoint()) == Ecn::Ect0;
        self.marked += u64::from(is_ect);
        is_ect
    }

    /// A marked packet was lost.
    pub fn on_lost(&mut self) {
        self.lost_marked += 1;
        // A path that drops what is marked: none of the test packets arrived while others do.
        if self.state == EcnState::Testing && self.acked_marked == 0 && self.lost_marked >= TESTING_PACKETS {
            self.state = EcnState::Failed;
        }
    }

    /// An acknowledgement brought `newly_marked` of `newly_acked` packets that were sent to the present address as marked and, if it is the newest,
    /// these totals. `rtt`: of the path. Gives packets newly marked CE.
    pub fn on_ack(
        &mut self,
        now: Time,
        rtt: Duration,
        (newly_marked, newly_acked): (u64, u64),
        is_newest: bool,
        counts: Option<EcnCounts>,
    ) -> u64 {
        self.acked_marked += newly_marked;
        if self.state == EcnState::Failed || !is_newest {
            return 0;
        }
        let Some(counts) = counts else {
            if newly_marked > 0 {
                self.state = EcnState::Failed;
            }
            return 0;
        };
        let is_monotonic = counts.ect0 >= self.reported.ect0 && counts.ce >= self.reported.ce && counts.ect1 >= self.reported.ect1;
        // Everything marked that arrived must be counted; ECT(1) was never sent.
        let (marks, expected) = (counts.ect0 + counts.ce, self.before.1 + self.acked_marked);
        if !is_monotonic || marks < expected || counts.ect1 > 0 || marks > self.marked {
            self.state = EcnState::Failed;
            return 0;
        }
        let (ce, unmarked) = (counts.ce - self.reported.ce, counts.ect0 - self.reported.ect0);
        self.reported = counts;
        if self.is_meaningless(now, rtt, ce, unmarked) {
            self.state = EcnState::Failed;
            return 0;
        }
        if newly_marked > 0 {
            self.state = EcnState::Capable;
        }
        ce.min(newly_acked.max(1))
    }

    /// `ce` more packets came with CE, `unmarked` more without.
    fn is_meaningless(&mut self, now: Time, rtt: Duration, ce: u64, unmarked: u64) -> bool {
        if unmarked > 0 {
            self.ce_run = None;
        } else if ce > 0 {
            let (packets, since) = self.ce_run.unwrap_or((0, now));
            self.ce_run = Some((packets + ce, since));
        }
        self.ce_run.is_some_and(|(packets, since)| packets >= MEANINGLESS_PACKETS && now.since(since) >= rtt * MEANINGLESS_RTTS)
    }

    /// The path carries ECN.
    pub fn is_capable(&self) -> bool {
        self.state == EcnState::Capable
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn tested() -> EcnValidator {
        let mut v = EcnValidator::new(true);
        for _ in 0..4 {
            assert!(v.on_sent());
        }
        v
    }

    fn acked(v: &mut EcnValidator, marked: u64, packets: u64, counts: Option<EcnCounts>) -> u64 {
        v.on_ack(Time::ZERO, Duration::from_millis(20), (marked, packets), true, counts)
    }

    fn counts(ect0: u64, ce: u64) -> Option<EcnCounts> {
        Some(EcnCounts { ect0, ect1: 0, ce })
    }

    #[test]
    fn marking_whatever_comes_is_not_believed_for_ever_but_a_full_queue_is() {
        for clean_every in [1000, 20] {
            let mut v = EcnValidator::new(true);
            let (mut ect0, mut ce) = (0, 0);
            for i in 1..=400u64 {
                v.on_sent();
                (ect0, ce) = if i % clean_every == 0 { (ect0 + 1, ce) } else { (ect0, ce + 1) };
                v.on_ack(Time::from_millis(i * 2), Duration::from_millis(20), (1, 1), true, counts(ect0, ce));
            }
            assert_eq!(v.is_capable(), clean_every == 20);
        }
    }

    #[test]
    fn a_path_that_moved_is_tested_anew_whatever_the_old_one_did() {
        let mut v = tested();
        acked(&mut v, 2, 2, counts(0, 0));
        assert_eq!(v.codepoint(), Ecn::NotEct, "bleached");
        v.restart(true);
        assert!(v.on_sent() && v.on_sent());
        acked(&mut v, 2, 2, counts(2, 0));
        assert!(v.is_capable());
        v.restart(true);
        assert!(v.on_sent());
        acked(&mut v, 1, 1, counts(2, 0));
        assert_eq!(v.codepoint(), Ecn::NotEct, "now bleached");
    }

    #[test]
    fn marks_that_arrive_make_the_path_capable_and_ce_is_counted_once() {
        let mut v = tested();
        assert_eq!(acked(&mut v, 2, 2, Some(EcnCounts { ect0: 1, ect1: 0, ce: 1 })), 1);
        assert!(v.is_capable());
        assert_eq!(acked(&mut v, 2, 2, Some(EcnCounts { ect0: 3, ect1: 0, ce: 1 })), 0);
    }

    #[test]
    fn a_train_is_marked_as_a_whole_although_the_test_ends_within_it() {
        let mut v = EcnValidator::new(true);
        let train = v.codepoint();
        v.set_train(Some(train));
        for _ in 0..16 {
            assert!(v.on_sent());
        }
        v.set_train(None);
        assert!(!v.on_sent());
        acked(&mut v, 16, 17, Some(EcnCounts { ect0: 16, ect1: 0, ce: 0 }));
        assert!(v.is_capable());
    }

    #[test]
    fn bleached_marks_end_marking() {
        for counts in [None, Some(EcnCounts::default()), Some(EcnCounts { ect0: 1, ect1: 1, ce: 0 })] {
            let mut v = tested();
            acked(&mut v, 2, 2, counts);
            assert_eq!(v.codepoint(), Ecn::NotEct, "{counts:?}");
        }
    }

    #[test]
    fn a_path_that_drops_marked_packets_is_left_unmarked() {
        let mut v = EcnValidator::new(true);
        while v.on_sent() {}
        for _ in 0..TESTING_PACKETS {
            v.on_lost();
        }
        assert_eq!(v.codepoint(), Ecn::NotEct);
        assert_eq!(acked(&mut v, 0, 1, Some(EcnCounts::default())), 0);
        assert!(!v.is_capable());
    }
}

//! ECN on a path (RFC 9000 §13.4): mark, check that the marks arrive, stop marking where they are bleached or dropped.

use crate::switch::{self, Mechanism};
use crate::units::Ecn;
use crate::wire::ack::EcnCounts;

/// Marked packets sent before the first report must confirm them.
const TESTING_PACKETS: u64 = 10;

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
enum State {
    Testing,
    Capable,
    Failed,
}

/// Sender's side of ECN.
#[derive(Clone, Debug)]
pub struct EcnValidator {
    state: State,
    marked: u64,
    acked_marked: u64,
    lost_marked: u64,
    reported: EcnCounts,
    /// Codepoint of the train that is being made.
    train: Option<Ecn>,
}

impl EcnValidator {
    /// `is_wanted`: whether to mark at all.
    pub fn new(is_wanted: bool) -> Self {
        let state = if is_wanted { State::Testing } else { State::Failed };
        Self { state, marked: 0, acked_marked: 0, lost_marked: 0, reported: EcnCounts::default(), train: None }
    }

    /// Codepoint for the next packet.
    pub fn codepoint(&self) -> Ecn {
        match self.state {
            _ if switch::is_off(Mechanism::EcnValidation) => Ecn::Ect0,
            State::Capable => Ecn::Ect0,
            State::Testing if self.marked < TESTING_PACKETS => Ecn::Ect0,
            _ => Ecn::NotEct,
        }
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
        if self.state == State::Testing && self.acked_marked == 0 && self.lost_marked >= TESTING_PACKETS {
            self.state = State::Failed;
        }
    }

    /// An acknowledgement brought `newly_marked` marked packets and, if it is the newest, these totals. Gives packets newly marked CE.
    pub fn on_ack(&mut self, newly_marked: u64, newly_acked: u64, is_newest: bool, counts: Option<EcnCounts>) -> u64 {
        self.acked_marked += newly_marked;
        if self.state == State::Failed || !is_newest {
            return 0;
        }
        let Some(counts) = counts else {
            if newly_marked > 0 {
                self.state = State::Failed;
            }
            return 0;
        };
        let is_monotonic = counts.ect0 >= self.reported.ect0 && counts.ce >= self.reported.ce && counts.ect1 >= self.reported.ect1;
        // Everything marked that arrived must be counted; ECT(1) was never sent.
        if !is_monotonic || counts.ect0 + counts.ce < self.acked_marked || counts.ect1 > 0 || counts.ect0 + counts.ce > self.marked {
            self.state = State::Failed;
            return 0;
        }
        let ce = counts.ce - self.reported.ce;
        self.reported = counts;
        if newly_marked > 0 {
            self.state = State::Capable;
        }
        ce.min(newly_acked.max(1))
    }

    /// The path carries ECN.
    pub fn is_capable(&self) -> bool {
        self.state == State::Capable
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

    #[test]
    fn marks_that_arrive_make_the_path_capable_and_ce_is_counted_once() {
        let mut v = tested();
        assert_eq!(v.on_ack(2, 2, true, Some(EcnCounts { ect0: 1, ect1: 0, ce: 1 })), 1);
        assert!(v.is_capable());
        assert_eq!(v.on_ack(2, 2, true, Some(EcnCounts { ect0: 3, ect1: 0, ce: 1 })), 0);
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
        v.on_ack(16, 17, true, Some(EcnCounts { ect0: 16, ect1: 0, ce: 0 }));
        assert!(v.is_capable());
    }

    #[test]
    fn bleached_marks_end_marking() {
        for counts in [None, Some(EcnCounts::default()), Some(EcnCounts { ect0: 1, ect1: 1, ce: 0 })] {
            let mut v = tested();
            v.on_ack(2, 2, true, counts);
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
        assert_eq!(v.on_ack(0, 1, true, Some(EcnCounts::default())), 0);
        assert!(!v.is_capable());
    }
}

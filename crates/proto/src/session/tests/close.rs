//! The close handshake in every order. The flows themselves are played by the test: it says when data arrives.

use super::*;
use crate::event::SessionOutcome;
use crate::ids::FlowId;
use proptest::prelude::*;

const LINGER: Duration = Duration::from_secs(10);

/// Two sessions and what is under way between them on the control flows, in order.
struct Pair {
    ends: [Session; 2],
    wires: [VecDeque<Bytes>; 2],
    /// Flows that an end sends: finished, their number of packets, arrived.
    flows: Vec<(usize, FlowId, u64, bool)>,
    told: [Vec<SessionAction>; 2],
    now: Time,
}

impl Pair {
    fn new() -> Self {
        let limits = SessionLimits::default();
        let end = |role| Session::new(SessionKey(1), role, limits, limits);
        let mut pair = Self {
            ends: [end(SessionRole::Opener), end(SessionRole::Acceptor)],
            wires: Default::default(),
            flows: Vec::new(),
            told: Default::default(),
            now: NOW,
        };
        pair.settle();
        pair
    }

    /// A `brtp` flow of three packets from one end to the other, written and finished but not delivered.
    fn flow(&mut self, from: usize) {
        let id = FlowId(self.flows.len() as u64 + 1);
        let index = self.ends[from].open_flow(id, &ordered()).expect("room");
        self.ends[1 - from].accept_flow(index, id, &ordered()).expect("room");
        self.ends[from].flow_finished(self.now, id, 3);
        self.flows.push((from, id, 3, false));
    }

    /// A flow's data arrives; FLOW_DELIVERED goes back.
    fn arrive(&mut self, at: usize) {
        let (from, id, packets, arrived) = &mut self.flows[at];
        if !core::mem::replace(arrived, true) {
            self.ends[1 - *from].flow_received(self.now, *id, *packets, true);
        }
    }

    /// One control message crosses.
    fn cross(&mut self, from: usize) -> bool {
        while let Some(message) = self.ends[from].poll_control(self.now) {
            self.wires[from].push_back(message);
        }
        let Some(message) = self.wires[from].pop_front() else { return false };
        let told = self.ends[1 - from].on_control(self.now, &message).expect("well formed");
        self.told[1 - from].extend(told);
        if self.wires[from].is_empty() {
            self.ends[from].on_control_delivered(self.now);
        }
        true
    }

    fn settle(&mut self) {
        while self.cross(0) || self.cross(1) {}
    }

    fn close(&mut self, end: usize) {
        self.ends[end].close(self.now, CloseReason::application(end as u64, "done"), LINGER);
    }

    fn wait(&mut self, time: Duration) {
        self.now += time;
        let now = self.now;
        self.ends.iter_mut().for_each(|s| s.handle_timeout(now));
    }

    fn outcome(&self, end: usize) -> Option<(bool, bool)> {
        self.ends[end].outcome().map(|o| (o.all_delivered, o.all_received))
    }
}

#[test]
fn a_close_without_data_is_complete_at_both_ends() {
    let mut p = Pair::new();
    p.close(0);
    assert_eq!(p.outcome(0), None);
    p.settle();
    assert_eq!([p.outcome(0), p.outcome(1)], [Some((true, true)); 2]);
    let reasons = p.ends.each_ref().map(|s| s.outcome().map(|o| (o.reason.application, o.reason.is_remote)));
    assert_eq!(reasons, [Some((0, false)), Some((0, true))]);
    assert!(p.ends.iter().all(|s| s.poll_timeout().is_none()));
}

#[test]
fn close_waits_until_the_closers_data_is_delivered() {
    let mut p = Pair::new();
    p.flow(0);
    p.close(0);
    p.settle();
    assert_eq!(p.told[1], [SessionAction::Limits(SessionLimits::default())], "no CLOSE yet");
    p.arrive(0);
    p.settle();
    assert_eq!([p.outcome(0), p.outcome(1)], [Some((true, true)); 2]);
}

#[test]
fn the_other_sides_data_is_delivered_too() {
    let mut p = Pair::new();
    p.flow(1);
    p.close(0);
    p.settle();
    assert!(p.told[1].iter().any(|a| matches!(a, SessionAction::PeerClosing(r) if r.is_remote)));
    assert_eq!([p.outcome(0), p.outcome(1)], [None, None]);
    assert!(matches!(p.ends[1].open_flow(FlowId(50), &ordered()), Err(CommandError::Closed(_))));
    p.arrive(0);
    p.settle();
    assert_eq!([p.outcome(0), p.outcome(1)], [Some((true, true)); 2]);
}

#[test]
fn both_may_close_at_once() {
    let mut p = Pair::new();
    p.flow(0);
    p.flow(1);
    p.close(0);
    p.close(1);
    p.arrive(0);
    p.arrive(1);
    p.settle();
    assert_eq!([p.outcome(0), p.outcome(1)], [Some((true, true)); 2]);
}

#[test]
fn linger_ends_the_wait_and_both_sides_say_what_is_missing() {
    let mut p = Pair::new();
    p.flow(0);
    p.flow(0);
    p.arrive(1);
    p.settle();
    p.close(0);
    p.settle();
    assert_eq!(p.ends[0].poll_timeout(), Some(NOW + LINGER));
    p.wait(LINGER);
    assert_eq!(p.outcome(0), Some((false, false)), "nobody answered");
    p.settle();
    assert_eq!(p.outcome(1), Some((true, false)));
    assert!(p.told[1].contains(&SessionAction::FlowEnd { flow: FlowId(1), packets: 3 }), "the total of what is missing");
}

#[test]
fn no_linger_is_an_abrupt_close() {
    let mut p = Pair::new();
    p.flow(0);
    p.flow(1);
    p.ends[0].close(NOW, CloseReason::application(1, ""), Duration::ZERO);
    assert_eq!(p.outcome(0), Some((false, false)));
    p.settle();
    assert_eq!(p.outcome(1), Some((false, false)));
}

#[test]
fn a_lost_link_gives_what_is_known_and_no_more() {
    let lost = CloseReason::local(Code::IdleTimeout, Layer::Link, "");
    for (arrives, told, delivered) in [(false, false, false), (true, false, false), (true, true, true)] {
        let mut p = Pair::new();
        p.flow(0);
        if arrives {
            p.arrive(0);
        }
        if told {
            p.settle();
        }
        p.ends[0].on_link_lost(NOW, lost.clone());
        let known = SessionOutcome { reason: lost.clone(), all_delivered: delivered, all_received: false };
        assert_eq!(p.ends[0].outcome(), Some(&known), "arrives {arrives}, told {told}");
    }
}

#[test]
fn a_link_lost_after_the_last_answer_is_no_failure() {
    let mut p = Pair::new();
    p.flow(0);
    p.arrive(0);
    p.settle();
    p.close(0);
    assert!(p.cross(0), "CLOSE crosses");
    assert!(p.ends[1].poll_control(NOW).is_some(), "CLOSED is in flight");
    assert_eq!(p.outcome(1), None, "it may not have arrived");
    p.ends[1].on_link_lost(NOW, CloseReason::local(Code::Shutdown, Layer::Link, ""));
    assert_eq!(p.outcome(1), Some((true, true)));
    assert!(p.ends[1].outcome().is_some_and(|o| o.reason.layer == Layer::Application));
    p.ends[0].on_link_lost(NOW, CloseReason::local(Code::IdleTimeout, Layer::Link, ""));
    assert_eq!(p.outcome(0), Some((true, false)), "what the far end sent was never told");
}

#[test]
fn a_flow_given_up_on_either_side_is_not_everything() {
    for stops in [false, true] {
        let mut p = Pair::new();
        p.flow(0);
        if stops {
            p.ends[1].stop_flow(NOW, FlowId(1), 5);
        } else {
            p.ends[0].reset_flow(NOW, FlowId(1), Mode::Brtp, 5);
        }
        p.settle();
        p.close(0);
        p.settle();
        assert_eq!([p.outcome(0), p.outcome(1)], [Some((false, true)), Some((true, false))], "stops {stops}");
    }
}

#[test]
fn a_flow_that_was_reset_before_it_was_heard_of_does_not_hold_the_close_up() {
    let mut p = Pair::new();
    let index = p.ends[0].open_flow(FlowId(1), &ordered()).expect("room");
    p.ends[0].reset_flow(NOW, FlowId(1), Mode::Brtp, 5);
    p.close(0);
    p.settle();
    assert_eq!([p.outcome(0), p.outcome(1)], [Some((false, true)), Some((true, false))]);
    assert_eq!(p.ends[1].inspect_flow(index), Ok(Accepted::Over));
}

#[test]
fn btp_flows_do_not_count() {
    let mut p = Pair::new();
    let options = FlowOptions { mode: Mode::Btp, lifetime: Some(Duration::from_millis(1)), ..unordered() };
    let index = p.ends[0].open_flow(FlowId(1), &options).expect("room");
    p.ends[1].accept_flow(index, FlowId(1), &options).expect("room");
    p.close(0);
    p.settle();
    assert_eq!([p.outcome(0), p.outcome(1)], [Some((true, true)); 2]);
}

#[test]
fn a_failed_session_tells_the_far_end_why() {
    let mut p = Pair::new();
    p.ends[0].fail(NOW, violation("nonsense"));
    assert_eq!(p.ends[0].state(), SessionState::Closed);
    p.settle();
    let outcome = p.ends[1].outcome().expect("closed at once");
    assert_eq!((outcome.reason.code, outcome.reason.is_remote), (Code::SessionProtocol, true));
    assert_eq!(outcome.reason.reason, "nonsense");
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 1000, ..ProptestConfig::default() })]
    #[test]
    fn no_order_of_events_makes_a_session_lie_or_hang(steps in proptest::collection::vec((0u8..6, 0usize..4), 0..40), waits: bool) {
        let mut p = Pair::new();
        let mut closed = [false; 2];
        for (step, n) in steps {
            let end = n % 2;
            match step {
                0 if !closed[0] && !closed[1] && p.flows.len() < 4 => p.flow(end),
                1 if n < p.flows.len() => p.arrive(n),
                2 | 3 => drop(p.cross(end)),
                4 => {
                    closed[end] = true;
                    p.close(end);
                }
                5 if waits => p.wait(Duration::from_secs(n as u64)),
                _ => {}
            }
        }
        p.close(0);
        if !waits {
            (0..p.flows.len()).for_each(|i| p.arrive(i));
        }
        p.settle();
        if !waits {
            prop_assert_eq!([p.outcome(0), p.outcome(1)], [Some((true, true)); 2], "time enough for everything");
        }
        p.wait(LINGER);
        p.settle();
        for end in 0..2 {
            let (delivered, received) = p.outcome(end).expect("linger is over");
            let all_from = |end| p.flows.iter().all(|&(from, _, _, arrived)| from != end || arrived);
            prop_assert!(!delivered || all_from(end), "claims delivery of what did not arrive");
            prop_assert!(!received || all_from(1 - end), "claims to have received what did not arrive");
        }
    }
}

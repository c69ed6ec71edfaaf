use super::*;
use crate::ids::FlowId;

fn session(max_flows: u64) -> Session {
    let limits = SessionLimits { max_flows, ..SessionLimits::default() };
    Session::new(SessionKey(1), SessionRole::Opener, limits, limits)
}

#[test]
fn indices_and_flows_are_found_both_ways() {
    let mut s = session(10);
    assert_eq!(s.open_flow(FlowId(100), &ordered()), Ok(1));
    assert_eq!(s.open_flow(FlowId(101), &ordered()), Ok(2));
    assert_eq!(s.accept_flow(1, FlowId(102), &ordered()), Ok(Accepted::New));
    assert_eq!(s.flows().outgoing(1), Some(FlowId(100)));
    assert_eq!(s.flows().incoming(1), Some(FlowId(102)));
    assert_eq!(s.flows().index_of(FlowId(101)), Some((Direction::Outgoing, 2)));
    assert_eq!(s.flows().ids().count(), 3);
}

/// A short question may be delivered, and be over, before its answer comes.
#[test]
fn an_answer_finds_its_question_even_when_that_is_over() {
    let mut s = session(10);
    let both = FlowOptions { kind: FlowKind::Stream, bidirectional: true, ..FlowOptions::default() };
    let (first, second) = (s.open_flow(FlowId(1), &both).unwrap(), s.open_flow(FlowId(2), &ordered()).unwrap());
    s.remove_flow(NOW, FlowId(1));
    s.remove_flow(NOW, FlowId(2));
    assert_eq!(s.answered(first), Some(FlowId(1)));
    assert_eq!(s.answered(first), None, "once");
    assert_eq!(s.answered(second), None, "no answer was asked for");
    let third = s.open_flow(FlowId(3), &both).unwrap();
    assert_eq!(s.answered(third), Some(FlowId(3)));
    s.remove_flow(NOW, FlowId(3));
    assert_eq!(s.answered(third), None);
}

#[test]
fn a_repeated_flow_open_is_known_and_one_of_a_flow_that_is_over_stays_over() {
    let mut s = session(10);
    assert_eq!(s.accept_flow(2, FlowId(1), &ordered()), Ok(Accepted::New));
    assert_eq!(s.accept_flow(2, FlowId(9), &ordered()), Ok(Accepted::Known(FlowId(1))));
    s.remove_flow(NOW, FlowId(1));
    assert_eq!(s.inspect_flow(2), Ok(Accepted::Over));
    assert_eq!(s.accept_flow(1, FlowId(2), &ordered()), Ok(Accepted::New), "its FLOW_OPEN came late");
    assert_eq!(s.inspect_flow(0).map_err(|r| r.code), Err(Code::SessionProtocol));
}

#[test]
fn flows_are_limited_at_both_ends_and_places_become_free() {
    let mut s = session(2);
    s.open_flow(FlowId(1), &ordered()).expect("room");
    s.open_flow(FlowId(2), &ordered()).expect("room");
    assert_eq!(s.open_flow(FlowId(3), &ordered()), Err(CommandError::Limit { what: "flows in a session", limit: 2 }));
    s.remove_flow(NOW, FlowId(1));
    assert_eq!(s.open_flow(FlowId(3), &ordered()), Ok(3));
    s.accept_flow(1, FlowId(4), &ordered()).expect("room");
    s.accept_flow(2, FlowId(5), &ordered()).expect("room");
    assert_eq!(s.accept_flow(3, FlowId(6), &ordered()).map_err(|r| r.code), Err(Code::TooMany));
    assert_eq!(s.accept_flow(1 << 40, FlowId(6), &ordered()).map_err(|r| r.code), Err(Code::TooMany));
}

#[test]
fn indices_that_leap_ahead_cost_no_memory() {
    let mut s = session(100_000);
    assert_eq!(s.accept_flow(5000, FlowId(1), &ordered()).map_err(|r| r.code), Err(Code::TooMany));
    let mut next = 1;
    let refused = (0..100).find_map(|i| {
        next += 1000;
        s.accept_flow(next, FlowId(i), &ordered()).err()
    });
    assert_eq!(refused.map(|r| r.code), Some(Code::TooMany));
}

#[test]
fn a_far_end_that_ignores_the_control_flow_cannot_make_it_grow() {
    let mut s = session(10);
    let refused = (1..10_000).find_map(|i| {
        let flow = FlowId(i);
        if let Err(reason) = s.accept_flow(i, flow, &ordered()) {
            return Some(reason);
        }
        s.flow_received(NOW, flow, 1, true);
        s.remove_flow(NOW, flow);
        None
    });
    assert_eq!(refused.map(|r| r.code), Some(Code::TooMany));
}

#[test]
fn options_that_contradict_each_other_are_refused_from_both_sides() {
    let mut s = session(10);
    let bad = FlowOptions { mode: Mode::Btp, ..options(FlowKind::Stream) };
    assert!(matches!(s.open_flow(FlowId(1), &bad), Err(CommandError::Misuse(_))));
    assert_eq!(s.accept_flow(1, FlowId(1), &bad).map_err(|r| r.code), Err(Code::SessionProtocol));
}

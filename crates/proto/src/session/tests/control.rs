use super::super::control::{SessionFrame, Totals};
use super::*;
use crate::error::Layer;
use crate::ids::FlowId;
use proptest::prelude::*;

fn limits() -> SessionLimits {
    SessionLimits::default()
}

fn opener() -> Session {
    Session::new(SessionKey(1), SessionRole::Opener, limits(), limits())
}

fn emit(frames: &[SessionFrame]) -> Vec<u8> {
    let mut out = Vec::new();
    frames.iter().for_each(|f| f.emit(&mut out));
    out
}

fn parse(bytes: &[u8]) -> Result<Vec<SessionFrame>, CloseReason> {
    let mut reader = Reader::new(bytes);
    let mut frames = Vec::new();
    while let Some(frame) = SessionFrame::parse(&mut reader)? {
        frames.push(frame);
    }
    Ok(frames)
}

/// A session that has the far end's PARAMS.
fn open() -> Session {
    let mut s = opener();
    s.on_control(NOW, &emit(&[SessionFrame::Params(limits()), SessionFrame::Accept])).expect("well formed");
    assert_eq!(s.state(), SessionState::Open);
    while s.poll_control(NOW).is_some() {}
    s
}

#[test]
fn session_frames_have_these_bytes() {
    assert_eq!(emit(&[SessionFrame::Accept]), [0x02, 0]);
    let params = SessionFrame::Params(SessionLimits { max_message: 1 << 24, max_flows: 256, credit: 1024 });
    assert_eq!(emit(&[params]), [0x00, 14, 1, 4, 0x81, 0, 0, 0, 2, 2, 0x41, 0, 3, 2, 0x44, 0]);
    assert_eq!(emit(&[SessionFrame::FlowDelivered { index: 1, packets: 70 }]), [0x04, 3, 1, 0x40, 70]);
    assert_eq!(emit(&[SessionFrame::Reset { index: 1, mode: Mode::Btp, code: 9 }]), [0x06, 3, 1, 1, 9]);
    assert_eq!(emit(&[SessionFrame::Stop { index: 2, code: 9 }]), [0x08, 2, 2, 9]);
    assert_eq!(emit(&[SessionFrame::Fits { symbol: 1300 }]), [0x0e, 2, 0x45, 0x14]);
    assert_eq!(emit(&[SessionFrame::End { index: 1, packets: 70 }]), [0x10, 3, 1, 0x40, 70]);
    assert_eq!(emit(&[SessionFrame::Skip { index: 1, floor: 16 }]), [0x12, 2, 1, 16]);
    assert_eq!(emit(&[SessionFrame::Polluted { index: 1, packets: 2 }]), [0x14, 2, 1, 2]);
    assert_eq!(emit(&[SessionFrame::PartDelivered { index: 1, part: 2, packets: 70 }]), [0x16, 4, 1, 2, 0x40, 70]);
    assert_eq!(emit(&[SessionFrame::Window { index: 1, limit: 300 }]), [0x18, 3, 1, 0x41, 0x2c]);
    assert_eq!(emit(&[SessionFrame::Rekey { generation: 1, step: 0, message: vec![7, 8] }]), [0x1a, 4, 1, 0, 7, 8]);
    let keys = SessionFrame::Keys { generation: 1, is_last: true, firsts: vec![(0, 0, 9), (3, 2, 300)] };
    let bytes = emit(std::slice::from_ref(&keys));
    assert_eq!(bytes, [0x1c, 10, 1, 1, 2, 0, 0, 9, 3, 2, 0x41, 0x2c]);
    assert_eq!(parse(&bytes), Ok(vec![keys]));
    let totals = Totals { opened: 3, ends: vec![(2, 10)] };
    assert_eq!(emit(&[SessionFrame::Closed { all_received: true, totals: totals.clone() }]), [0x0c, 5, 1, 3, 1, 2, 10]);
    let close = SessionFrame::Close { reason: CloseReason::application(5, "bye"), linger: Duration::from_millis(60), totals };
    assert_eq!(emit(&[close]), [0x0a, 13, 0, 5, 5, 0, 3, b'b', b'y', b'e', 60, 3, 1, 2, 10]);
}

#[test]
fn unknown_optional_frames_are_skipped_and_unknown_mandatory_ones_close() {
    let mut message = vec![0x41, 0x01, 3, 1, 2, 3];
    message.extend(emit(&[SessionFrame::Accept]));
    assert_eq!(parse(&message), Ok(vec![SessionFrame::Accept]));
    message[1] = 0x02;
    let refused = parse(&message).expect_err("even, so mandatory");
    assert_eq!((refused.code, refused.frame, refused.layer), (Code::UnknownFrame, 0x102, Layer::Session));
}

#[test]
fn unknown_parameters_are_ignored_and_missing_or_double_ones_refused() {
    let mut good = emit(&[SessionFrame::Params(limits())]);
    good[1] += 4;
    good.extend([0x1b, 2, 0xff, 0xff]);
    assert_eq!(parse(&good), Ok(vec![SessionFrame::Params(limits())]));
    assert!(parse(&[0x00, 3, 1, 1, 5]).is_err(), "two are missing");
    assert!(parse(&[0x00, 12, 1, 1, 5, 2, 1, 5, 3, 1, 5, 3, 1, 5]).is_err(), "one is double");
    assert!(parse(&[0x00, 10, 1, 2, 5, 5, 2, 1, 5, 3, 1, 5]).is_err(), "a value with a tail");
}

#[test]
fn ends_of_flows_may_be_told_before_the_flows_are_opened() {
    let mut s = open();
    let told = s.on_control(NOW, &emit(&[SessionFrame::End { index: 2, packets: 9 }, SessionFrame::Skip { index: 2, floor: 4 }]));
    assert_eq!(told, Ok(vec![]));
    let flow = FlowId(5);
    assert_eq!(s.accept_flow(2, flow, &FlowOptions::default()), Ok(Accepted::New));
    assert_eq!(s.take_far_word(2), FarWord { end: Some(9), floor: 4 });
    assert_eq!(s.take_far_word(2), FarWord::default());
    let told = s.on_control(NOW, &emit(&[SessionFrame::End { index: 2, packets: 9 }]));
    assert_eq!(told, Ok(vec![SessionAction::FlowEnd { flow, packets: 9 }]));
    let many: Vec<_> = (3..).take(300).map(|index| SessionFrame::End { index, packets: 1 }).collect();
    assert_eq!(s.on_control(NOW, &emit(&many)).expect_err("more than flows are permitted").code, Code::TooMany);
}

#[test]
fn pollution_is_told_of_the_control_flow_and_of_flows_that_exist() {
    let mut s = open();
    let told = |s: &mut Session, index| s.on_control(NOW, &emit(&[SessionFrame::Polluted { index, packets: 1 }]));
    assert_eq!(told(&mut s, CONTROL_INDEX), Ok(vec![SessionAction::Polluted]));
    assert_eq!(told(&mut s, 1).expect_err("never opened").code, Code::SessionProtocol);
    let delivered = SessionFrame::FlowDelivered { index: CONTROL_INDEX, packets: 3 };
    assert_eq!(s.on_control(NOW, &emit(&[delivered])), Ok(vec![SessionAction::ControlDelivered(3)]));
}

#[test]
fn of_parts_and_windows_the_newest_word_is_said_and_only_of_flows_that_exist() {
    let mut s = open();
    while s.poll_control(NOW).is_some() {}
    [(1, 5), (2, 6), (1, 9)].into_iter().for_each(|(part, packets)| s.tell_part(3, part, packets));
    [70, 90].into_iter().for_each(|limit| s.tell_window(3, limit));
    let part = |part, packets| SessionFrame::PartDelivered { index: 3, part, packets };
    assert_eq!(s.poll_control(NOW).unwrap(), emit(&[part(1, 9), part(2, 6), SessionFrame::Window { index: 3, limit: 90 }]));
    assert!(!s.has_control());
    for frame in [part(1, 9), SessionFrame::Window { index: 3, limit: 90 }] {
        assert_eq!(s.on_control(NOW, &emit(&[frame])).expect_err("never opened").code, Code::SessionProtocol);
    }
    let flow = FlowId(7);
    let index = s.open_flow(flow, &FlowOptions::default()).unwrap();
    let limit = s.on_control(NOW, &emit(&[SessionFrame::Window { index, limit: 90 }]));
    assert_eq!(limit, Ok(vec![SessionAction::Window { flow, limit: 90 }]));
}

#[test]
fn a_long_reason_is_cut_at_a_character() {
    let reason = CloseReason::application(1, "ä".repeat(200));
    let frame = SessionFrame::Close { reason, linger: Duration::ZERO, totals: Totals::default() };
    let Ok(frames) = parse(&emit(&[frame])) else { panic!("well formed") };
    let SessionFrame::Close { reason, .. } = &frames[0] else { panic!("CLOSE") };
    assert_eq!(reason.reason.raw(), "ä".repeat(127));
    assert!(reason.is_remote);
}

#[test]
fn the_first_message_carries_the_limits_and_the_acceptor_accepts_with_it() {
    let mine = SessionLimits { max_message: 1 << 20, max_flows: 7, credit: 99 };
    let floor = SessionLimits { max_message: 1000, max_flows: 1, credit: 1 };
    let mut a = Session::new(SessionKey(1), SessionRole::Opener, limits(), floor);
    let mut b = Session::new(SessionKey(1), SessionRole::Acceptor, mine, floor);
    assert_eq!((a.state(), b.state()), (SessionState::Opening, SessionState::Open));
    let hello = a.poll_control(NOW).expect("PARAMS");
    assert_eq!(b.on_control(NOW, &hello), Ok(vec![SessionAction::Limits(limits())]));
    let answer = b.poll_control(NOW).expect("PARAMS and ACCEPT");
    assert_eq!(b.poll_control(NOW), None);
    assert_eq!(a.on_control(NOW, &answer), Ok(vec![SessionAction::Limits(mine), SessionAction::Opened]));
    assert_eq!((a.state(), a.peer_limits()), (SessionState::Open, mine));
}

#[test]
fn rules_of_the_control_flow_are_enforced() {
    let refusal = |mut s: Session, frames: &[SessionFrame]| s.on_control(NOW, &emit(frames)).expect_err("a violation").code;
    let params = SessionFrame::Params(limits());
    let closed = SessionFrame::Closed { all_received: true, totals: Totals::default() };
    assert_eq!(refusal(opener(), &[SessionFrame::Accept]), Code::SessionProtocol, "PARAMS must be first");
    assert_eq!(refusal(opener(), &[params.clone(), params.clone()]), Code::SessionProtocol);
    let less = SessionFrame::Params(SessionLimits { max_message: 5, ..limits() });
    assert_eq!(refusal(opener(), &[less]), Code::Parameter);
    let acceptor = Session::new(SessionKey(1), SessionRole::Acceptor, limits(), limits());
    assert_eq!(refusal(acceptor, &[params, SessionFrame::Accept]), Code::SessionProtocol);
    assert_eq!(refusal(open(), &[SessionFrame::FlowDelivered { index: 1, packets: 0 }]), Code::SessionProtocol, "never opened");
    assert_eq!(refusal(open(), &[SessionFrame::Stop { index: 0, code: 0 }]), Code::SessionProtocol, "the control flow");
    assert_eq!(refusal(open(), &[closed]), Code::SessionProtocol, "nobody asked");
}

#[test]
fn more_packets_acknowledged_than_sent_is_a_violation() {
    let mut s = open();
    let index = s.open_flow(FlowId(1), &ordered()).expect("room");
    s.flow_finished(NOW, FlowId(1), 10);
    let frame = |packets| emit(&[SessionFrame::FlowDelivered { index, packets }]);
    let told = s.on_control(NOW, &frame(9)).expect("well formed");
    assert_eq!(told, [SessionAction::Delivered { flow: FlowId(1), packets: 9, is_complete: false }]);
    let told = s.on_control(NOW, &frame(10)).expect("well formed");
    assert_eq!(told, [SessionAction::Delivered { flow: FlowId(1), packets: 10, is_complete: true }]);
    assert!(s.is_flow_delivered(FlowId(1)));
    assert_eq!(s.on_control(NOW, &frame(11)).map_err(|r| r.code), Err(Code::SessionProtocol));
}

#[test]
fn acknowledgements_of_a_flow_are_merged() {
    let mut s = open();
    s.accept_flow(1, FlowId(5), &ordered()).expect("room");
    s.flow_received(NOW, FlowId(5), 10, false);
    s.flow_received(NOW, FlowId(5), 20, true);
    s.flow_received(NOW, FlowId(5), 20, true);
    let message = s.poll_control(NOW).expect("an acknowledgement");
    assert_eq!(parse(&message), Ok(vec![SessionFrame::FlowDelivered { index: 1, packets: 20 }]));
    assert_eq!(s.poll_control(NOW), None);
}

#[test]
fn reset_and_stop_reach_the_other_half() {
    let mut a = open();
    let mut b = open();
    let index = a.open_flow(FlowId(1), &ordered()).expect("room");
    b.accept_flow(index, FlowId(9), &ordered()).expect("room");
    a.reset_flow(NOW, FlowId(1), Mode::Brtp, 77);
    let told = b.on_control(NOW, &a.poll_control(NOW).expect("RESET")).expect("well formed");
    assert_eq!(told, [SessionAction::Reset { flow: FlowId(9), code: 77 }]);
    let index = a.open_flow(FlowId(2), &ordered()).expect("room");
    b.accept_flow(index, FlowId(10), &ordered()).expect("room");
    b.stop_flow(NOW, FlowId(10), 78);
    let told = a.on_control(NOW, &b.poll_control(NOW).expect("STOP")).expect("well formed");
    assert_eq!(told, [SessionAction::Stop { flow: FlowId(2), code: 78 }]);
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 1000, ..ProptestConfig::default() })]
    #[test]
    fn arbitrary_control_messages_never_panic(messages in proptest::collection::vec(proptest::collection::vec(any::<u8>(), 0..60), 1..5)) {
        let mut s = open();
        for message in messages {
            if let Err(reason) = s.on_control(NOW, &message) {
                s.fail(NOW, reason);
            }
            while let Some(message) = s.poll_control(NOW) {
                prop_assert!(message.len() <= MAX_CONTROL_MESSAGE);
            }
        }
    }

    #[test]
    fn frames_survive_the_wire(index in 0..=varint::MAX, n in 0..=varint::MAX, ends in proptest::collection::vec((0..=varint::MAX, 0..=varint::MAX), 0..20), ms in 0u64..1 << 40, text in ".{0,60}") {
        let totals = Totals { opened: n, ends };
        let reason = CloseReason { is_remote: true, frame: index, ..CloseReason::application(n, text) };
        let frames = vec![
            SessionFrame::Params(SessionLimits { max_message: index, max_flows: n, credit: ms }),
            SessionFrame::FlowDelivered { index, packets: n },
            SessionFrame::Reset { index, mode: Mode::Brtp, code: n },
            SessionFrame::Stop { index, code: n },
            SessionFrame::Close { reason, linger: Duration::from_millis(ms), totals: totals.clone() },
            SessionFrame::Closed { all_received: false, totals },
        ];
        prop_assert_eq!(parse(&emit(&frames)), Ok(frames));
    }
}

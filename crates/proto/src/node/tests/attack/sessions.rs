//! Sessions of a hostile neighbour: opened without end, opened and closed, with control messages of any content.

use super::*;
use crate::options::MessageOptions;
use crate::session::control::frame_type;
use crate::session::{SendHalf, SendLimits, control_options};
use crate::wire::frame::{Coded, Coefficients};
use crate::wire::varint;

#[test]
fn sessions_without_end_are_bounded_and_leave_room_for_a_newcomer() {
    let mut s = siege(NodeConfig { max_sessions: 64, ..NodeConfig::default() });
    // A second link of the honest neighbour, which has no session yet.
    let link = s.m.connect(1);
    let mut late = None;
    s.m.run(MS(100));
    let end = s.withstand(MS(1), MS(1000), |s, round| {
        let control = |i| FlowOpen { symbol: 200, batch_size: 8, ..s.open(SessionKey(1000 + round * 8 + i), 0, 100 + round * 8 + i) };
        let frames: Vec<_> = (0..8).map(|i| Frame::FlowOpen(control(i))).collect();
        s.send(&frames);
        let now = s.m.now;
        if round == 500 {
            assert_eq!(s.m.nodes[VICTIM].sessions().count(), 48, "three quarters of the places");
            late = Some(s.m.nodes[HONEST].open_session(now, link).unwrap());
        }
        if round == 800 {
            let is_open = |id| s.m.events[HONEST].contains(&Event::SessionOpened { session: id });
            assert!(late.is_some_and(is_open), "there is place for a newcomer");
        }
    });
    end.assert_withstood();
    assert!(end.counters.refused_sessions > 1000, "{:?}", end.counters);
}

/// A session that is opened by one packet, whose control flow brings this message.
fn control(s: &mut Siege, name: u64, message: Vec<u8>) {
    let open = FlowOpen { kind: FlowKind::OrderedMessages, batch_size: 8, ..s.open(SessionKey(name), 0, name) };
    let mut source = SendHalf::new(&control_options(), SendLimits { buffer: 65536, max_message: 65536 });
    source.send_message(s.m.now, message.into(), MessageOptions::default()).unwrap();
    let mut symbol = Vec::new();
    source.poll_symbol(s.m.now, 1300).unwrap().symbol.write(&mut symbol);
    let coded = Coded { flow: open.label, base: seq(0), n: 1, coefficients: Coefficients::Index(0), symbol: &symbol };
    s.send(&[Frame::FlowOpen(open), Frame::Coded(coded)]);
}

#[test]
fn control_messages_of_any_content_end_their_session_and_nothing_else() {
    let kinds = [
        frame_type::PARAMS,
        frame_type::FLOW_DELIVERED,
        frame_type::END,
        frame_type::SKIP,
        frame_type::CLOSE,
        frame_type::POLLUTED,
        frame_type::PART_DELIVERED,
        frame_type::WINDOW,
        0x7e,
        0x7f,
    ];
    let end = siege(NodeConfig::default()).withstand(MS(2), MS(1000), |s, round| {
        let kind = kinds[round as usize % kinds.len()];
        let (mut message, mut body) = (Vec::new(), Vec::new());
        numbers(round).into_iter().cycle().take(round as usize / kinds.len() % 7).for_each(|n| varint::emit(&mut body, n));
        varint::emit(&mut message, kind);
        varint::emit_prefixed(&mut message, &body);
        control(s, 1000 + round, message);
    });
    end.assert_withstood();
    assert_eq!(end.closed, None);
    let memory = end.memory;
    assert!(memory.used < memory.limit / 4, "{memory:?}");
}

#[test]
fn an_idle_crowd_of_sessions_is_refused_when_there_are_as_many_as_there_may_be() {
    let end = siege(NodeConfig::default()).withstand(MS(1), MS(1000), |s, round| {
        let open = |i| Frame::FlowOpen(FlowOpen { batch_size: 8, ..s.open(SessionKey(1000 + round * 8 + i), 0, 100 + round * 8 + i) });
        let frames: Vec<_> = (0..8).map(open).collect();
        s.send(&frames);
    });
    end.assert_withstood();
    assert!(end.counters.refused_flows > 1000, "{:?}", end.counters);
}

//! Transparent flows: what the network does to bare datagrams, seen from inside the link.

use super::MS;
use super::pair::{A, B, Conditions, Pair, bytes};
use crate::error::{Code, CommandError};
use crate::event::Event;
use crate::ids::{FlowId, SessionId};
use crate::options::{FlowKind, FlowOptions, MessageOptions, Mode};
use crate::units::Duration;

fn options() -> FlowOptions {
    FlowOptions { mode: Mode::Transparent, kind: FlowKind::UnorderedMessages, ..FlowOptions::default() }
}

fn open(p: &mut Pair, session: SessionId) -> FlowId {
    p.nodes[A].open_flow(p.now, session, options()).unwrap()
}

/// Offers `count` messages of `len` bytes, one each `gap`, with the link up before; which of them arrived, in the order of arrival.
fn offer(p: &mut Pair, count: u64, len: usize, gap: Duration) -> Vec<u64> {
    let (_, session) = p.connect();
    assert!(p.transfer(session, b"before", MS(2000)) == b"before");
    let flow = open(p, session);
    // A first message waits for FLOW_OPEN's round trip; the others find it there.
    p.run_until(MS(300), |_| false);
    let (mut sent, mut arrived, mut theirs) = (0, Vec::new(), None);
    let start = p.now;
    let end = start + gap * count as u32 + MS(1000);
    while p.now < end {
        while sent < count && start + gap * sent as u32 <= p.now {
            p.nodes[A].send_message(p.now, flow, bytes(len, sent), MessageOptions::default()).unwrap();
            sent += 1;
        }
        p.run_until(gap, |_| false);
        theirs = theirs.or_else(|| p.incoming_flow(B).map(|f| f.0));
        while let Some(m) = theirs.and_then(|f| p.nodes[B].recv_message(p.now, f).unwrap()) {
            assert!(m.data == bytes(len, m.id), "what arrives is what was sent");
            arrived.push(m.id);
        }
    }
    arrived
}

#[test]
fn datagrams_are_sent_once_and_the_network_decides_which_arrive() {
    let mut p = Pair::simple(0.1, 3);
    let arrived = offer(&mut p, 2000, 1000, MS(1));
    let share = arrived.len() as f64 / 2000.0;
    assert!((0.87..0.93).contains(&share), "{share}: neither repaired nor lost by us");
    assert!(arrived.is_sorted(), "nothing reorders them here");
}

#[test]
fn a_probe_never_rides_behind_a_datagram() {
    // At such a loss the packets that ask for an acknowledgement time out again and again.
    let mut p = Pair::simple(0.5, 11);
    let arrived = offer(&mut p, 3000, 700, MS(3));
    assert!(arrived.len() > 1200, "{}", arrived.len());
}

#[test]
fn no_congestion_control_holds_datagrams_back() {
    // Twice what the bottleneck takes, for two seconds: any controller would have backed off long before.
    let mut p = Pair::new(Default::default(), Conditions { rate: Some(500_000.0), ..Conditions::default() }, 4);
    let before = p.sent_bytes[A];
    let arrived = offer(&mut p, 2000, 1000, MS(1));
    assert!(p.sent_bytes[A] - before > 2_000_000, "all of them left: {}", p.sent_bytes[A]);
    assert!((850..1250).contains(&arrived.len()), "and half of them arrived: {}", arrived.len());
}

#[test]
fn a_message_larger_than_a_packet_is_refused_with_both_numbers() {
    let mut p = Pair::simple(0.0, 5);
    let (_, session) = p.connect();
    let flow = open(&mut p, session);
    let refused = p.nodes[A].send_message(p.now, flow, bytes(1500, 1), MessageOptions::default());
    let Err(CommandError::MessageTooLarge { size: 1500, limit }) = refused else { panic!("{refused:?}") };
    assert!((1400..1472).contains(&limit));
    assert!(p.nodes[A].send_message(p.now, flow, bytes(limit, 1), MessageOptions::default()).is_ok());
    let mut theirs = None;
    assert!(p.run_until(MS(1000), |p| {
        theirs = theirs.or_else(|| p.incoming_flow(B).map(|f| f.0));
        theirs.is_some_and(|f| p.nodes[B].recv_message(p.now, f).unwrap().is_some_and(|m| m.data.len() == limit))
    }));
}

#[test]
fn streams_and_ordered_messages_cannot_be_transparent() {
    let mut p = Pair::simple(0.0, 6);
    let (_, session) = p.connect();
    for kind in [FlowKind::Stream, FlowKind::OrderedMessages] {
        let refused = p.nodes[A].open_flow(p.now, session, FlowOptions { kind, ..options() });
        assert!(matches!(refused, Err(CommandError::Misuse(_))), "{refused:?}");
    }
}

#[test]
fn the_end_is_told_and_later_messages_are_refused() {
    let mut p = Pair::simple(0.2, 7);
    let (_, session) = p.connect();
    let flow = open(&mut p, session);
    for i in 0..50 {
        p.nodes[A].send_message(p.now, flow, bytes(100, i), MessageOptions::default()).unwrap();
    }
    p.nodes[A].finish(p.now, flow).unwrap();
    assert!(p.nodes[A].send_message(p.now, flow, bytes(100, 1), MessageOptions::default()).is_err());
    let mut theirs = None;
    let mut count = 0;
    assert!(p.run_until(MS(3000), |p| {
        theirs = theirs.or_else(|| p.incoming_flow(B).map(|f| f.0));
        while theirs.and_then(|f| p.nodes[B].recv_message(p.now, f).ok().flatten()).is_some() {
            count += 1;
        }
        let is_delivered = p.events[A].contains(&Event::FlowDelivered(flow));
        is_delivered && p.events[B].iter().any(|e| matches!(e, Event::FlowFinished(f) if Some(*f) == theirs))
    }));
    assert!(count > 20, "{count}");
}

#[test]
fn a_neighbour_that_never_answers_ends_the_link_although_nothing_is_acknowledged_by_itself() {
    let mut p = Pair::simple(0.0, 8);
    let (_, session) = p.connect();
    let flow = open(&mut p, session);
    p.run_until(MS(300), |_| false);
    let now = p.now;
    super::deaf(&mut p, B, now, now + MS(120_000));
    let is_down =
        |e: &Event| matches!(e, Event::LinkDown { reason, .. } if matches!(reason.code, Code::CircuitBreaker | Code::IdleTimeout));
    let start = p.now;
    while p.now.since(start) < MS(60_000) && !p.events[A].iter().any(is_down) {
        let _ = p.nodes[A].send_message(p.now, flow, bytes(100, 1), MessageOptions::default());
        p.run_until(MS(50), |_| false);
    }
    assert!(p.events[A].iter().any(is_down));
}

#[test]
fn a_link_with_datagrams_alone_outlives_the_idle_timeout() {
    let mut p = Pair::simple(0.1, 9);
    let arrived = offer(&mut p, 800, 100, MS(100));
    assert!(arrived.len() > 600, "{}", arrived.len());
    assert!(p.events.iter().flatten().all(|e| !matches!(e, Event::LinkDown { .. })));
}

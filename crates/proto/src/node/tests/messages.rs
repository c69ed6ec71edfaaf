//! The last packet of all, and the last word of a link (P4, P10).

use super::pair::{A, B, Conditions, Pair, bytes};
use super::{MS, deaf};
use crate::error::Code;
use crate::event::Event;
use crate::options::{FlowOptions, MessageOptions};
use crate::switch::{Mechanism, without};
use crate::units::Duration;

/// A single message after a pause; its packet and everything that follows within 35 ms, repair included, is lost, and so many packets after that. How
/// long it took.
fn tail(mut lost_probes: u32) -> Option<Duration> {
    let mut p = Pair::new(Default::default(), Conditions::default(), 2);
    let (_, session) = p.connect();
    assert!(p.transfer(session, b"before", MS(1000)) == b"before");
    let flow = p.nodes[A].open_flow(p.now, session, FlowOptions::default()).unwrap();
    p.nodes[A].send_message(p.now, flow, bytes(300, 1), MessageOptions::default()).unwrap();
    let mut incoming = None;
    assert!(p.run_until(MS(1000), |p| {
        incoming = incoming.or_else(|| p.incoming_flow(B).map(|f| f.0));
        incoming.is_some_and(|f| p.nodes[B].recv_message(p.now, f).unwrap().is_some())
    }));
    p.run_until(MS(500), |_| false);
    let start = p.now;
    p.filter = Some(Box::new(move |by, now, _| {
        let is_probe = by == A && now >= start + MS(35);
        let is_lost = is_probe && lost_probes > 0;
        lost_probes -= u32::from(is_lost);
        is_lost || (by == A && now >= start && !is_probe)
    }));
    p.nodes[A].send_message(p.now, flow, bytes(300, 2), MessageOptions::default()).unwrap();
    let is_there = p.run_until(MS(5000), |p| incoming.is_some_and(|f| p.nodes[B].recv_message(p.now, f).unwrap().is_some()));
    is_there.then(|| p.now.since(start))
}

#[test]
fn the_last_packet_and_its_repair_are_lost_and_a_probe_brings_them() {
    let took = tail(0);
    assert!(took.is_some_and(|t| t < MS(200)), "{took:?}");
    assert_eq!(without(Mechanism::TailProbes, || tail(0)), None);
}

#[test]
fn a_probe_that_is_lost_has_a_second_beside_it() {
    let (one, both) = (tail(1).unwrap(), tail(2).unwrap());
    assert_eq!(Some(one), tail(0), "not a time-out later");
    assert!(both > one * 3 / 2, "{both:?}");
    assert_eq!(without(Mechanism::SecondProbe, || tail(1)), Some(both), "{one:?}");
}

/// A closes its link, but the first CLOSE is lost; B still has something to say. How long until B knows.
fn last_word() -> Option<Duration> {
    let mut p = Pair::new(Default::default(), Conditions::default(), 2);
    let (link, session) = p.connect();
    let flow = p.nodes[A].open_flow(p.now, session, FlowOptions::default()).unwrap();
    p.nodes[A].send_message(p.now, flow, bytes(10, 1), MessageOptions::default()).unwrap();
    let mut theirs = None;
    assert!(p.run_until(MS(1000), |p| {
        theirs = theirs.or_else(|| {
            p.take(B, |e| match e {
                Event::SessionIncoming { session, .. } => Some(*session),
                _ => None,
            })
        });
        theirs.is_some() && p.incoming_flow(B).is_some()
    }));
    p.run_until(MS(300), |_| false);
    let start = p.now;
    deaf(&mut p, A, start, start + MS(5));
    p.nodes[A].close_link(p.now, link, 0, "gone").unwrap();
    let flow = p.nodes[B].open_flow(p.now, theirs.unwrap(), FlowOptions::default()).unwrap();
    p.nodes[B].send_message(p.now, flow, bytes(10, 2), MessageOptions::default()).unwrap();
    let is_down = |e: &Event| matches!(e, Event::LinkDown { reason, .. } if reason.code == Code::NoError && reason.is_remote);
    p.run_until(MS(5000), |p| p.events[B].iter().any(is_down)).then(|| p.now.since(start))
}

#[test]
fn a_lost_close_is_repeated_to_a_neighbour_that_keeps_talking() {
    let took = last_word();
    assert!(took.is_some_and(|t| t < MS(50)), "{took:?}");
    assert_eq!(without(Mechanism::CloseRepetition, last_word), None);
}

/// A closes its link and is gone; so many of the packets with which it says so are lost. How long until B knows.
fn heard_of_a_close(mut lost: u32) -> Option<Duration> {
    let mut p = Pair::new(Default::default(), Conditions::default(), 2);
    let (link, _) = p.connect();
    // Until nothing is in flight that would make A say it again.
    p.run_until(MS(3000), |_| false);
    let start = p.now;
    p.filter = Some(Box::new(move |by, _, _| {
        let is_lost = by == B || lost > 0;
        lost -= u32::from(by == A && lost > 0);
        is_lost
    }));
    p.nodes[A].close_link(p.now, link, 0, "gone").unwrap();
    let is_down = |e: &Event| matches!(e, Event::LinkDown { reason, .. } if reason.code == Code::NoError && reason.is_remote);
    p.run_until(MS(5000), |p| p.events[B].iter().any(is_down)).then(|| p.now.since(start))
}

#[test]
fn an_end_that_closes_and_is_gone_is_heard_although_two_packets_are_lost() {
    let took = heard_of_a_close(2);
    assert!(took.is_some_and(|t| t < MS(50)), "{took:?}");
    assert_eq!(without(Mechanism::CloseCopies, || heard_of_a_close(2)), None);
}

//! Sessions named by addresses, between neighbours.

use super::pair::{A, B, Conditions, Pair, content};
use super::{MS, lossy};
use crate::error::{Code, CommandError};
use crate::event::Event;
use crate::ids::{LinkId, SessionId};
use crate::node::NodeConfig;
use crate::node::routing::{Route, Via};
use std::net::IpAddr;

pub(super) fn ip(text: &str) -> IpAddr {
    text.parse().unwrap()
}

/// A linked to B, which has an address of each family.
fn neighbours() -> (Pair, LinkId) {
    neighbours_with(Default::default(), lossy())
}

/// The same under given circumstances.
pub(super) fn neighbours_with(configs: [NodeConfig; 2], conditions: Conditions) -> (Pair, LinkId) {
    neighbours_by_chance(configs, conditions, 3)
}

/// The same; which packets are lost follows from `seed`.
pub(super) fn neighbours_by_chance(configs: [NodeConfig; 2], conditions: Conditions, seed: u64) -> (Pair, LinkId) {
    let mut p = Pair::new(configs, conditions, seed);
    let peer = p.nodes[B].public_key();
    let link = p.nodes[A].connect(p.now, super::pair::address(B), Some(peer)).unwrap();
    p.nodes[A].set_addresses(&[ip("10.9.0.1"), ip("fd09::1")]);
    p.nodes[B].set_addresses(&[ip("10.9.0.2"), ip("fd09::2")]);
    let back = Via::Neighbour(p.nodes[A].public_key());
    let routes = |via| ["10.9.0.0/16", "fd09::/16"].map(|to| Route { to: to.parse().unwrap(), via, metric: 0 }).to_vec();
    p.nodes[A].set_routes(p.now, routes(Via::Link(link)));
    p.nodes[B].set_routes(p.now, routes(back));
    (p, link)
}

pub(super) fn closed(p: &mut Pair, session: SessionId) -> Option<Code> {
    p.take(A, |e| match e {
        Event::SessionClosed { session: s, outcome, .. } if *s == session => Some(outcome.reason.code),
        _ => None,
    })
}

#[test]
fn a_session_to_an_address_of_the_neighbour_carries_data_over_either_family() {
    for to in ["10.9.0.2", "fd09::2"] {
        let (mut p, _) = neighbours();
        let session = p.nodes[A].open_session_to(p.now, ip(to), None).unwrap();
        assert_eq!(p.nodes[A].session_far(session), Some(ip(to)));
        let data = content(300_000, 3);
        assert!(p.transfer(session, &data, MS(20_000)) == data);
        let far = p.take(B, |e| match e {
            Event::SessionIncoming { far, .. } => Some(*far),
            _ => None,
        });
        assert_eq!(far.unwrap(), Some(if to.contains(':') { ip("fd09::1") } else { ip("10.9.0.1") }));
    }
}

#[test]
fn an_end_that_does_not_relay_refuses_what_is_for_others() {
    let (mut p, _) = neighbours();
    let session = p.nodes[A].open_session_to(p.now, ip("10.9.0.3"), None).unwrap();
    p.run_until(MS(3000), |_| false);
    assert_eq!(closed(&mut p, session), Some(Code::NoRelay));
}

#[test]
fn without_a_route_or_an_address_of_ones_own_nothing_is_opened() {
    let (mut p, _) = neighbours();
    assert_eq!(p.nodes[A].open_session_to(p.now, ip("192.0.2.1"), None), Err(CommandError::NoRoute(ip("192.0.2.1"))));
    p.nodes[A].set_addresses(&[ip("fd09::1")]);
    assert!(matches!(p.nodes[A].open_session_to(p.now, ip("10.9.0.2"), None), Err(CommandError::Misuse(_))));
}

#[test]
fn what_begins_on_a_link_that_ends_is_not_taken() {
    let (mut p, first) = neighbours_with(Default::default(), Conditions::default());
    assert!(p.run_until(MS(1000), |p| p.events[B].iter().any(|e| matches!(e, Event::LinkUp { .. }))));
    let old = *p.nodes[B].links.keys().last().unwrap();
    // A has a return path to B all the while, by another link.
    let second = p.nodes[A].connect(p.now, super::pair::address(B), Some(p.nodes[B].public_key())).unwrap();
    p.nodes[A].set_routes(p.now, vec![Route { to: "10.9.0.0/16".parse().unwrap(), via: Via::Link(second), metric: 0 }]);
    p.nodes[B].set_routes(p.now, vec![Route { to: "10.9.0.0/16".parse().unwrap(), via: Via::Link(old), metric: 0 }]);
    assert!(p.run_until(MS(1000), |p| p.nodes[B].links.len() == 2));
    // B opens something in the moment in which A ends the link.
    p.nodes[B].open_session_to(p.now, ip("10.9.0.1"), None).unwrap();
    p.nodes[A].close_link(p.now, first, 0, "").unwrap();
    p.run_until(MS(15), |_| false);
    assert_eq!(p.nodes[A].sessions().count(), 0);
}

#[test]
fn a_far_end_that_is_asked_whether_it_is_there_takes_no_link_for_it() {
    let mut p = Pair::new(Default::default(), lossy(), 3);
    let peer = p.nodes[B].public_key();
    let question = p.nodes[A].ask(p.now, super::pair::address(B), Some(peer)).unwrap();
    let answer = |e: &Event| match e {
        Event::LinkDown { link, reason, .. } if *link == question => Some(reason.code),
        _ => None,
    };
    assert!(p.run_until(MS(3000), |p| p.events[A].iter().any(|e| answer(e).is_some())));
    assert_eq!(p.take(A, answer), Some(Code::NoError));
    p.run_until(MS(15_000), |_| false);
    assert!(p.events[B].is_empty(), "{:?}", p.events[B]);
    assert_eq!(p.nodes[B].counters().half_open, 0, "and has forgotten it");
    // Another node answers there.
    let stranger = p.nodes[A].public_key();
    let question = p.nodes[A].ask(p.now, super::pair::address(B), Some(stranger)).unwrap();
    p.run_until(MS(15_000), |_| false);
    let answer = p.take(A, |e| match e {
        Event::LinkDown { link, reason, .. } if *link == question => Some(reason.code),
        _ => None,
    });
    assert_ne!(answer, Some(Code::NoError));
    assert!(answer.is_some());
}

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
    let mut p = Pair::new(configs, conditions, 3);
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

//! Handshakes under a flood, and handshakes whose flights are lost (P3, P19).

use super::pair::{A, B, Conditions, Pair, address};
use super::{MS, at, deaf, lossy};
use crate::crypto::mac1::Mac1;
use crate::crypto::{Initiator, PublicKey, SecretKey};
use crate::event::Event;
use crate::node::half_open::MAX_HALF_OPEN;
use crate::switch::{Mechanism, without};
use crate::units::{Duration, Ecn, Time};
use crate::wire::packet::{ConnectionId, HandshakeBody, HandshakePacket, Packet, Pattern, VERSION};
use crate::wire::params::Params;
use rand_chacha::ChaCha12Rng;
use rand_core::SeedableRng;
use std::net::SocketAddr;

/// A first flight of the node with `secret`, XX or, if the responder's key is given, IK, with a token, padded to 1200 bytes.
pub(super) fn flight_of(secret: u8, responder: Option<PublicKey>, source: u32, token: &[u8]) -> Vec<u8> {
    let id = |n: u32| ConnectionId::new(&n.to_be_bytes()).unwrap();
    let pattern = if responder.is_some() { Pattern::Ik } else { Pattern::Xx };
    let packet = |message| HandshakePacket {
        version: VERSION,
        destination: id(7),
        source: id(source),
        body: HandshakeBody::Initiate { pattern, mac1: [0; 16], token, message },
    };
    let mut payload = Vec::new();
    Params::default().emit(&mut payload, 0);
    let mut rng = ChaCha12Rng::seed_from_u64(source.into());
    let prologue = packet(&[]).prologue().unwrap();
    let (_, message) = Initiator::start(&SecretKey::from_bytes([secret; 32]), responder, None, &prologue, &payload, &mut rng).unwrap();
    let mut packet = packet(&message);
    responder.iter().for_each(|key| Mac1::new(key).sign(&mut packet));
    let mut out = Vec::new();
    packet.emit(&mut out);
    out.resize(1200, 0);
    out
}

/// A first flight that can be sent under any source id: the first message of XX is not bound to it. Where the id stands in it.
pub(super) fn first_flight() -> (Vec<u8>, usize) {
    let out = flight_of(1, None, 0x5eed_5eed, b"");
    let place = out.windows(4).position(|w| w == [0x5e, 0xed, 0x5e, 0xed]).unwrap();
    (out, place)
}

/// The same with a token that was issued for it.
pub(super) fn with_token(flight: &[u8], token: &[u8]) -> Vec<u8> {
    let Ok(Packet::Handshake(mut packet, _)) = Packet::parse(flight, 4) else { panic!() };
    let HandshakeBody::Initiate { pattern, mac1, message, .. } = packet.body else { panic!() };
    packet.body = HandshakeBody::Initiate { pattern, mac1, token, message };
    let mut out = Vec::new();
    packet.emit(&mut out);
    out.resize(flight.len(), 0);
    out
}

fn is_up(p: &Pair, node: usize) -> bool {
    p.events[node].iter().any(|e| matches!(e, Event::LinkUp { .. }))
}

/// Ten thousand first flights a second from as many addresses, and in the middle of it an honest node at 10 % loss. When it was up, if ever, and the
/// most half-open links.
fn flood() -> (Option<Duration>, usize) {
    let mut p = Pair::new(Default::default(), lossy(), 3);
    let (flight, place) = first_flight();
    let mut sent = 0u32;
    let mut begun = None;
    let mut most = 0;
    let mut was_up = None;
    // Nothing of the flood is answered to anyone: its addresses exist nowhere.
    for step in 0..30_000u64 {
        let now = at(0) + Duration::from_micros(100 * step);
        p.changes.push_back((now, Box::new(|_| {})));
        p.run_until(MS(60_000), |p| p.now >= now);
        sent += 1;
        let mut datagram = flight.clone();
        datagram[place..place + 4].copy_from_slice(&sent.to_be_bytes());
        let from = SocketAddr::from(([172, (sent >> 16) as u8, (sent >> 8) as u8, sent as u8], 9));
        p.nodes[B].handle_datagram(p.now, from, None, Ecn::NotEct, &mut datagram);
        drain_strangers(&mut p);
        most = most.max(p.nodes[B].half_open.len());
        if step == 10_000 {
            let peer = p.nodes[B].public_key();
            p.nodes[A].connect(p.now, address(B), Some(peer)).unwrap();
            begun = Some(p.now);
        }
        if was_up.is_none() && is_up(&p, A) && is_up(&p, B) {
            was_up = begun.map(|t| p.now.since(t));
            break;
        }
    }
    assert!(p.nodes[B].counters().throttled > 1000);
    (was_up, most)
}

/// What the node answers to addresses of the flood goes nowhere; what it sends to the honest node stays in its queue for the pair.
fn drain_strangers(p: &mut Pair) {
    p.nodes[B].replies.retain(|(remote, ..)| *remote == address(A));
    let strangers = p.nodes[B].half_open.from(|remote| remote != address(A));
    p.nodes[B].ready.retain(|id| id.is_none_or(|id| !strangers.contains(&id)));
}

#[test]
fn a_flood_of_first_flights_costs_bounded_state_and_an_honest_node_gets_in_by_cookie() {
    let (was_up, most) = flood();
    assert!(most <= MAX_HALF_OPEN, "{most} half-open links");
    assert!(was_up.is_some_and(|t| t < MS(1500)), "{was_up:?}");
}

#[test]
fn without_cookies_a_flood_keeps_honest_nodes_out() {
    let (was_up, most) = without(Mechanism::Cookies, flood);
    assert!(was_up.is_none() && most <= MAX_HALF_OPEN, "{was_up:?} {most}");
}

/// How long a handshake takes whose datagrams from `node` are lost in a span, in ms of the time since its beginning. `None`: never.
fn handshake(node: usize, from: u64, to: u64, delay: Duration) -> Option<Duration> {
    let mut p = Pair::new(Default::default(), Conditions { delay, ..Conditions::default() }, 3);
    deaf(&mut p, node, at(from), at(to));
    p.connect();
    let start: Time = p.now;
    p.run_until(MS(9000), |p| is_up(p, A) && is_up(p, B)).then(|| p.now.since(start))
}

#[test]
fn lost_flights_of_a_handshake_are_sent_again() {
    for node in [A, B] {
        // The first flight, or its answer, and what follows for half a second.
        let took = handshake(node, 0, 500, MS(10));
        assert!(took.is_some_and(|t| t < MS(700)), "{took:?}");
        assert_eq!(without(Mechanism::HandshakeRepetition, || handshake(node, 0, 500, MS(10))), None);
    }
}

#[test]
fn the_initiators_lost_proof_of_life_is_repeated_long_before_a_time_out() {
    // The answer arrives after 220 ms; what the initiator then says first is lost.
    let story = || handshake(A, 205, 225, MS(110));
    let took = story();
    assert!(took.is_some_and(|t| t <= MS(220 + 110 + 10)), "{took:?}");
    let without = without(Mechanism::Confirmation, story);
    assert!(without.is_none_or(|t| t > MS(600)), "{without:?}");
}

//! What a stranger gets and costs before it has shown anything, step by step (docs/spec/wire.md 2.5): sizes, proofs, tokens, answers, links.

use super::super::pair::{A, B, Pair, address};
use super::super::strangers::{flight_of, with_token};
use super::*;
use crate::crypto::PublicKey;
use crate::error::CloseReason;
use crate::ids::PathId;
use crate::node::Answer;
use crate::node::half_open::MAX_HALF_OPEN;
use crate::switch::{Mechanism, without};
use crate::units::Ecn;
use crate::wire::packet::{ConnectionId, HandshakeBody, HandshakePacket, Packet, VERSION};
use crate::work::Work;
use std::net::SocketAddr;

const START: Time = Time::from_millis(1000);

fn victim(config: NodeConfig) -> Node {
    Node::new(config, key(9), [3; 32], START)
}

fn victims_key() -> PublicKey {
    key(9).public()
}

fn somewhere() -> SocketAddr {
    "192.0.2.1:7000".parse().unwrap()
}

fn id(n: u32) -> ConnectionId {
    ConnectionId::new(&n.to_be_bytes()).unwrap()
}

/// What a node sends after a datagram.
fn answers(node: &mut Node, now: Time, from: SocketAddr, datagram: &[u8]) -> Vec<Vec<u8>> {
    node.handle_datagram(now, from, None, Ecn::NotEct, &mut datagram.to_vec());
    let (mut all, mut buf) = (Vec::new(), Vec::new());
    while node.poll_transmit(now, 1, &mut buf).is_some() {
        all.push(buf.clone());
    }
    while node.poll_event().is_some() {}
    all
}

fn body(datagram: &[u8]) -> HandshakePacket<'_> {
    match Packet::parse(datagram, 4) {
        Ok(Packet::Handshake(packet, _)) => packet,
        other => panic!("{other:?}"),
    }
}

/// The token of the RETRY that is the only answer.
fn token_of(answers: &[Vec<u8>]) -> Vec<u8> {
    let [answer] = answers else { panic!("{} answers", answers.len()) };
    let HandshakeBody::Retry { token } = body(answer).body else { panic!() };
    token.to_vec()
}

/// What a datagram costs a node: scalar multiplications, hashes.
fn cost(node: &mut Node, datagram: &[u8]) -> (u64, u64) {
    let (work, _) = Work::of(|| answers(node, START, somewhere(), datagram));
    (work.dh, work.hash)
}

#[test]
fn a_stranger_without_the_key_gets_a_cookie_for_one_hash_and_nothing_is_kept() {
    let mut node = victim(NodeConfig::default());
    let flight = flight_of(1, None, 5, b"");
    assert_eq!(cost(&mut node, &flight), (0, 1));
    let token = token_of(&answers(&mut node, START, somewhere(), &flight));
    assert_eq!((node.half_open.len(), node.links.len()), (0, 0));
    // A forged one, whose time is right, is not even answered.
    let mut forged = token.clone();
    forged[20] ^= 1;
    let forged = flight_of(1, None, 5, &forged);
    assert!(answers(&mut node, START, somewhere(), &forged).is_empty());
    assert_eq!(cost(&mut node, &forged), (0, 1));
    let [answer] = &answers(&mut node, START, somewhere(), &flight_of(1, None, 5, &token))[..] else { panic!() };
    assert!(matches!(body(answer).body, HandshakeBody::Respond(_)));
    assert_eq!(node.half_open.len(), 1);
}

#[test]
fn a_first_flight_without_the_proof_of_the_key_costs_one_hash_and_is_not_answered_at_all() {
    let mut node = victim(NodeConfig::default());
    let flight = flight_of(1, Some(victims_key()), 5, b"");
    let mut wrong = flight.clone();
    // Within the Noise message: the proof covers it.
    wrong[90] ^= 1;
    for wrong in [wrong, flight_of(1, Some(key(8).public()), 5, b"")] {
        assert!(answers(&mut node, START, somewhere(), &wrong).is_empty());
        assert_eq!(cost(&mut node, &wrong), (0, 1));
    }
    assert_eq!((node.half_open.len(), node.counters().throttled), (0, 4));
    // The right one needs no cookie, so one round trip.
    let [answer] = &answers(&mut node, START, somewhere(), &flight)[..] else { panic!() };
    assert!(matches!(body(answer).body, HandshakeBody::Respond(_)));
}

#[test]
fn first_flights_shorter_than_800_bytes_are_dropped() {
    for responder in [None, Some(victims_key())] {
        let mut node = victim(NodeConfig::default());
        let flight = flight_of(1, responder, 5, b"");
        assert_eq!(cost(&mut node, &flight[..799]), (0, 0));
        node = victim(NodeConfig::default());
        assert!(answers(&mut node, START, somewhere(), &flight[..799]).is_empty());
        assert_eq!(node.counters().malformed, 1);
        assert_eq!(answers(&mut node, START, somewhere(), &flight[..800]).len(), 1);
    }
}

#[test]
fn a_repeated_first_flight_is_answered_eight_times_and_another_under_its_id_is_not() {
    let mut node = victim(NodeConfig::default());
    let flight = flight_of(1, Some(victims_key()), 5, b"");
    let (mut got, mut sent, mut count) = (0, 0, 0);
    let mut now = START;
    for n in 0..1000 {
        now += MS(1);
        // Shorter than the first, which was answered at its size.
        let repeat = if n == 0 { &flight[..] } else { &flight[..800] };
        got += repeat.len();
        let answers = answers(&mut node, now, somewhere(), repeat);
        sent += answers.iter().map(Vec::len).sum::<usize>();
        count += answers.len();
        assert!(sent <= 3 * got);
    }
    assert_eq!(count, 8);
    // The same address and id with something else: IK, and XX with nothing at all.
    let mut node = victim(NodeConfig::default());
    assert_eq!(answers(&mut node, START, somewhere(), &flight).len(), 1);
    for other in [flight_of(2, Some(victims_key()), 5, b""), flight_of(1, None, 5, b"")] {
        assert!(answers(&mut node, START, somewhere(), &other).is_empty());
        assert_eq!(cost(&mut node, &other), (0, 1));
    }
}

#[test]
fn a_caller_that_was_answered_without_a_cookie_and_has_one_now_is_answered_afresh() {
    let mut node = victim(NodeConfig::default());
    assert_eq!(answers(&mut node, START, somewhere(), &flight_of(1, Some(victims_key()), 5, b"")).len(), 1);
    let token = node.throttle.lock().issue_for_tests(START, somewhere(), &id(5));
    let answers = answers(&mut node, START, somewhere(), &flight_of(1, Some(victims_key()), 5, &token));
    assert!(matches!(body(&answers[0]).body, HandshakeBody::Respond(_)));
    assert_eq!(node.half_open.len(), 1);
}

#[test]
fn garbage_with_a_cookie_is_paid_for_by_its_host() {
    let mut node = victim(NodeConfig::default());
    let template = flight_of(1, Some(victims_key()), 77, b"");
    let token = node.throttle.lock().issue_for_tests(START, somewhere(), &id(77));
    let mut garbage = Vec::new();
    let mut packet = body(&template).clone();
    packet.body = HandshakeBody::Initiate { pattern: crate::wire::packet::Pattern::Ik, mac1: [0; 16], token: &token, message: &[9; 140] };
    // It knows the key, so that the proof is right.
    crate::crypto::mac1::Mac1::new(&victims_key()).sign(&mut packet);
    packet.emit(&mut garbage);
    garbage.resize(1200, 0);
    let before = Work::done().dh;
    for _ in 0..10_000 {
        assert!(answers(&mut node, START, somewhere(), &garbage).is_empty());
    }
    // The node's own key and one agreement each.
    assert_eq!(Work::done().dh - before, 2 * 40, "the burst of one host");
    assert!(node.counters().throttled >= 9_900 && node.half_open.len() == 0);
    // Another host is not in its shade.
    let other: SocketAddr = "192.0.2.2:7000".parse().unwrap();
    let token = node.throttle.lock().issue_for_tests(START, other, &id(5));
    assert_eq!(answers(&mut node, START, other, &flight_of(1, None, 5, &token)).len(), 1);
}

/// A half-open XX link, and the id by which its initiator is to name it.
fn half_open(node: &mut Node, n: u32) -> ConnectionId {
    let token = node.throttle.lock().issue_for_tests(START, somewhere(), &id(n));
    let answers = answers(node, START, somewhere(), &flight_of(1, None, n, &token));
    body(&answers[0]).source.clone()
}

fn finish(destination: &ConnectionId, source: u32) -> Vec<u8> {
    let mut out = Vec::new();
    HandshakePacket { version: VERSION, destination: destination.clone(), source: id(source), body: HandshakeBody::Finish(&[7; 64]) }
        .emit(&mut out);
    out
}

#[test]
fn a_forged_finish_counts_from_the_address_of_its_first_flight_only_and_four_end_it() {
    let mut node = victim(NodeConfig::default());
    let theirs = half_open(&mut node, 5);
    let forged = finish(&theirs, 5);
    let before = Work::done().dh;
    for _ in 0..1000 {
        answers(&mut node, START, "203.0.113.9:1".parse().unwrap(), &forged);
        answers(&mut node, START, "192.0.2.1:7001".parse().unwrap(), &forged);
    }
    assert_eq!((Work::done().dh, node.half_open.len()), (before, 1));
    for n in 1..=1000 {
        answers(&mut node, START, somewhere(), &forged);
        assert_eq!(node.half_open.len(), usize::from(n < 4));
    }
    // The answer, computed again: the node's own key, another, two agreements.
    assert_eq!(Work::done().dh - before, 4 * 4);
}

#[test]
fn forged_finishes_for_many_links_are_paid_for_by_their_host() {
    let mut node = victim(NodeConfig::default());
    let links: Vec<_> = (1..=30).map(|n| (n, half_open(&mut node, n))).collect();
    let before = Work::done().dh;
    for (n, theirs) in &links {
        (0..3).for_each(|_| drop(answers(&mut node, START, somewhere(), &finish(theirs, *n))));
    }
    // Of forty tokens thirty are gone with the first flights.
    assert_eq!(Work::done().dh - before, 4 * 10);
}

/// Half-open links from so many hosts, which all have cookies.
fn fill(node: &mut Node, hosts: u16) {
    let flight = flight_of(1, None, 0x5eed_5eed, b"");
    let place = flight.windows(4).position(|w| w == [0x5e, 0xed, 0x5e, 0xed]).unwrap();
    for host in 0..hosts {
        for n in 0..32u32 {
            let number = u32::from(host) * 100 + n + 1;
            let from = SocketAddr::from(([198, 51, (host >> 8) as u8, host as u8], 7000 + n as u16));
            let token = node.throttle.lock().issue_for_tests(START, from, &id(number));
            let mut datagram = flight.clone();
            datagram[place..place + 4].copy_from_slice(&number.to_be_bytes());
            answers(node, START, from, &with_token(&datagram, &token));
        }
    }
}

#[test]
fn half_open_links_are_bounded_and_keep_neither_the_node_from_calling_nor_a_newcomer_from_being_answered() {
    let mut node = victim(NodeConfig::default());
    // At once; with tokens of networks it would take seconds.
    without(Mechanism::NetworkTokens, || fill(&mut node, 40));
    assert_eq!(node.half_open.len(), MAX_HALF_OPEN);
    assert_eq!(node.links.len(), MAX_HALF_OPEN);
    assert!(node.connect(START, "192.0.2.9:4242".parse().unwrap(), Some(key(1).public())).is_ok());
    // The oldest makes room for one that has a cookie.
    half_open(&mut node, 5);
    assert_eq!(node.half_open.len(), MAX_HALF_OPEN);
    assert!(node.half_open.find(&(somewhere(), id(5))).is_some());
    assert!(node.half_open.find(&("198.51.0.0:7000".parse().unwrap(), id(1))).is_none());
}

#[test]
fn what_a_link_leaves_is_found_without_looking_at_other_links() {
    let mut node = victim(NodeConfig::default());
    let call = |node: &mut Node, n: u32| node.connect(START, SocketAddr::from((n.to_be_bytes(), 5)), None).unwrap();
    let links: Vec<_> = (0..300).map(|n| call(&mut node, n)).collect();
    let steps = |act: &mut dyn FnMut()| Work::of(act).0.steps;
    assert!(steps(&mut || node.shared.forget_link(links[7])) <= 2);
    assert!(steps(&mut || node.shared.forget_link(links[7])) <= 1, "there is none left");
    assert!(steps(&mut || node.forget_link(links[8])) <= 2);
}

/// For so long, and not until something happens next.
fn run(p: &mut Pair, time: Duration) {
    let until = p.now + time;
    p.changes.push_back((until, Box::new(|_| {})));
    p.run_until(time, |p| p.now >= until);
}

#[test]
fn one_key_has_its_newest_links_and_the_node_itself_may_call() {
    let config = NodeConfig { max_links: 64, max_links_per_key: 4, ..NodeConfig::default() };
    let mut p = Pair::new([NodeConfig::default(), config], Conditions::default(), 3);
    let peer = p.nodes[B].public_key();
    for _ in 0..30 {
        p.nodes[A].connect(p.now, address(B), Some(peer)).unwrap();
    }
    run(&mut p, MS(3000));
    let count = |p: &Pair, node: usize, is: fn(&Event) -> bool| p.events[node].iter().filter(|e| is(e)).count();
    let is_too_many = |e: &Event| matches!(e, Event::LinkDown { reason: CloseReason { code: Code::TooMany, .. }, .. });
    assert_eq!(count(&p, B, |e| matches!(e, Event::LinkUp { .. })), 30);
    assert_eq!((count(&p, B, is_too_many), count(&p, A, is_too_many)), (26, 26));
    assert_eq!(p.nodes[B].links.values().filter(|l| l.is_up()).count(), 4);
    assert!(p.nodes[B].connect(p.now, "192.0.2.9:4242".parse().unwrap(), None).is_ok());
}

#[test]
fn links_beyond_the_limit_are_told_so_and_never_come_up() {
    let config = NodeConfig { max_links: 2, ..NodeConfig::default() };
    let mut p = Pair::new([NodeConfig::default(), config], Conditions::default(), 3);
    let peer = p.nodes[B].public_key();
    let links: Vec<_> = (0..3).map(|_| p.nodes[A].connect(p.now, address(B), Some(peer)).unwrap()).collect();
    p.nodes[A].open_session(p.now, links[2]).unwrap();
    run(&mut p, MS(6000));
    assert_eq!(p.events[B].iter().filter(|e| matches!(e, Event::LinkUp { .. })).count(), 2);
    assert!(!p.events[B].iter().any(|e| matches!(e, Event::SessionIncoming { .. } | Event::LinkDown { .. })));
    let is_told = |e: &Event| matches!(e, Event::LinkDown { reason, .. } if reason.code == Code::TooMany && reason.is_remote);
    assert_eq!(p.events[A].iter().filter(|e| is_told(e)).count(), 1);
    assert_eq!(p.nodes[B].links.len(), 2);
}

#[test]
fn a_packet_that_does_not_open_makes_neither_keys_nor_a_path() {
    let mut node = victim(NodeConfig::default());
    let answers_to = answers(&mut node, START, somewhere(), &flight_of(1, Some(victims_key()), 5, b""));
    let theirs = body(&answers_to[0]).source.clone();
    for n in 0..100u32 {
        let mut forged = vec![0x40];
        forged.extend_from_slice(theirs.as_bytes());
        forged.extend_from_slice(&n.to_be_bytes());
        forged.extend_from_slice(&[5; 60]);
        assert!(answers(&mut node, START, somewhere(), &forged).is_empty());
    }
    let id = node.half_open.find(&(somewhere(), id(5))).unwrap();
    let link = &node.links[&id];
    assert!(link.keys.is_none() && link.paths.is_empty());
    assert_eq!(node.counters().undecryptable, 100);
}

#[test]
fn a_closing_link_answers_only_packets_that_open() {
    let mut p = Pair::new(Default::default(), Conditions::default(), 3);
    let (link, _) = p.connect();
    run(&mut p, MS(500));
    let theirs = p.nodes[A].links[&link].cids.local_id(0).unwrap().1.clone();
    p.nodes[A].close_link(p.now, link, 0, "").unwrap();
    // Its CLOSEs leave.
    let mut buf = Vec::new();
    while p.nodes[A].poll_transmit(p.now, 1, &mut buf).is_some() {}
    let mut forged = vec![0x40];
    forged.extend_from_slice(theirs.as_bytes());
    forged.extend_from_slice(&[0, 0, 1, 0]);
    forged.extend_from_slice(&[5; 60]);
    for _ in 0..10 {
        assert!(answers(&mut p.nodes[A], p.now, address(B), &forged).is_empty());
    }
}

#[test]
fn a_silent_node_answers_only_those_that_know_its_key() {
    let mut node = victim(NodeConfig { answer: Answer::Known, ..NodeConfig::default() });
    let token = node.throttle.lock().issue_for_tests(START, somewhere(), &id(6));
    let mut other_version = flight_of(1, None, 7, b"");
    other_version[4] = b'9';
    for unknown in [flight_of(1, None, 5, b""), flight_of(1, None, 6, &token), other_version.clone()] {
        assert!(answers(&mut node, START, somewhere(), &unknown).is_empty());
        assert_eq!(cost(&mut node, &unknown), (0, 0));
    }
    assert_eq!(node.half_open.len(), 0);
    assert_eq!(answers(&mut node, START, somewhere(), &flight_of(1, Some(victims_key()), 8, b"")).len(), 1);
    // As does one that answers any host, and one that takes no links is silent to all.
    assert_eq!(answers(&mut victim(NodeConfig::default()), START, somewhere(), &other_version).len(), 1);
    assert!(answers(&mut victim(NodeConfig::default()), START, somewhere(), &other_version[..799]).is_empty());
    assert!(answers(&mut victim(NodeConfig { accept: false, ..NodeConfig::default() }), START, somewhere(), &other_version).is_empty());
}

/// What an unlisted key's first flights cost, one after the other, and how many half-open links they leave; and what the owner hears.
fn unlisted(count: u32, remote: impl Fn(u32) -> SocketAddr) -> (Vec<u64>, usize, Vec<Event>) {
    let mut node = victim(NodeConfig { authorised: Some(vec![key(5).public()]), ..NodeConfig::default() });
    let (mut costs, mut events, mut buf) = (Vec::new(), Vec::new(), Vec::new());
    for n in 0..count {
        let mut flight = flight_of(1, Some(victims_key()), 1000 + n, b"");
        let (work, ()) = Work::of(|| node.handle_datagram(START, remote(n), None, Ecn::NotEct, &mut flight));
        costs.push(work.dh);
        while node.poll_transmit(START, 1, &mut buf).is_some() {}
        events.extend(core::iter::from_fn(|| node.poll_event()));
    }
    (costs, node.half_open.len(), events)
}

#[test]
fn a_key_that_may_not_call_is_refused_when_it_is_known_and_told_so_as_often_as_costs_nothing() {
    for hosts in [1, 50] {
        let (costs, half_open, events) = unlisted(50, |n| SocketAddr::from(([192, 0, 2, (n % hosts) as u8], 7)));
        let told = costs.iter().filter(|dh| **dh > 3).count();
        assert!(costs[0] == 6 && told == half_open, "an honest one is told: {costs:?}");
        assert!(told <= if hosts == 1 { 3 } else { 24 } && costs.iter().filter(|dh| **dh <= 3).count() == 50 - told, "{costs:?}");
        let caller = crate::crypto::SecretKey::from_bytes([1; 32]).public();
        let refused = |e: &Event| matches!(e, Event::LinkRefused { peer, reason: Code::NotAuthorised, .. } if *peer == caller);
        assert!(events.iter().all(refused) && (1..=16).contains(&events.len()), "{events:?}");
    }
}

#[test]
fn the_owner_hears_of_refusals_once_a_second_and_how_many_it_did_not_hear_of() {
    let mut node = victim(NodeConfig { max_links: 4, ..NodeConfig::default() });
    for n in 0..100u64 {
        node.shared.note_refusal(START + MS(10 * n), key(1).public(), somewhere(), Code::TooMany);
    }
    let heard: Vec<u64> = core::iter::from_fn(|| node.poll_event())
        .map(|e| if let Event::LinkRefused { left_out, .. } = e { left_out } else { panic!("{e:?}") })
        .collect();
    assert_eq!(heard.len(), 16);
    node.shared.note_refusal(START + MS(5000), key(1).public(), somewhere(), Code::TooMany);
    let last = node.poll_event();
    assert_eq!(last, Some(Event::LinkRefused { peer: key(1).public(), remote: somewhere(), reason: Code::TooMany, left_out: 84 }));
}

/// Round trips of 100 ms until both ends of a link are up, in halves.
fn halves(is_pinned: bool) -> u128 {
    let mut p = Pair::new(Default::default(), Conditions { delay: MS(50), ..Conditions::default() }, 3);
    let (began, peer) = (p.now, is_pinned.then(|| p.nodes[B].public_key()));
    p.nodes[A].connect(p.now, address(B), peer).unwrap();
    let is_up = |e: &Event| matches!(e, Event::LinkUp { .. });
    assert!(p.run_until(MS(3000), |p| p.events[A].iter().any(is_up)));
    let link = p.nodes[A].links.values().find(|l| l.is_up()).unwrap();
    assert_eq!(link.paths[&PathId(0)].rtt(), MS(100), "measured, by whichever answer");
    p.now.since(began).as_millis() / 50
}

#[test]
fn a_link_to_a_known_key_takes_one_round_trip_and_to_an_unknown_one_two() {
    assert_eq!((halves(true), halves(false)), (2, 4));
}

/// What a connection of A with a pinned key came to while a host on the path does as it likes for so long: the code, if it failed, and when.
fn meddled(mut p: Pair, meddle: impl Fn(&mut Pair, &[u8]) + 'static, until: Duration) -> (Option<Code>, Duration) {
    let began = p.now;
    let peer = p.nodes[B].public_key();
    let seen = std::rc::Rc::new(std::cell::RefCell::new(Vec::new()));
    let flights = std::rc::Rc::clone(&seen);
    // What A sends is seen and does not pass, for so long.
    p.filter = Some(Box::new(move |by, now, bytes| {
        let is_held = by == A && now.since(began) < until;
        if is_held {
            flights.borrow_mut().push(bytes.to_vec());
        }
        is_held
    }));
    p.nodes[A].connect(p.now, address(B), Some(peer)).unwrap();
    loop {
        run(&mut p, MS(10));
        let flights = std::mem::take(&mut *seen.borrow_mut());
        flights.iter().for_each(|flight| meddle(&mut p, flight));
        let outcome = p.events[A].iter().find_map(|e| match e {
            Event::LinkUp { .. } => Some(None),
            Event::LinkDown { reason, .. } => Some(Some(reason.code)),
            _ => None,
        });
        if let Some(code) = outcome {
            return (code, p.now.since(began));
        }
        assert!(p.now.since(began) < MS(20_000));
    }
}

/// Another node takes the place of B: it answers what needs no key of B's, with its own.
fn by_another(p: &mut Pair, flight: &[u8]) {
    if matches!(body(flight).body, HandshakeBody::Initiate { pattern, .. } if pattern.is_pinned()) {
        return;
    }
    let now = p.now;
    // The same secret behind its cookies each time.
    let mut other = Node::new(NodeConfig::default(), key(33), [44; 32], START);
    for mut datagram in answers(&mut other, now, address(A), flight) {
        p.nodes[A].handle_datagram(now, address(B), None, Ecn::NotEct, &mut datagram);
    }
}

/// Says that it speaks another version.
fn by_version(p: &mut Pair, flight: &[u8]) {
    let packet = body(flight);
    let mut list = Vec::new();
    HandshakePacket {
        version: 0,
        destination: packet.source.clone(),
        source: packet.destination.clone(),
        body: HandshakeBody::VersionList(&0x6e6f_6339u32.to_be_bytes()),
    }
    .emit(&mut list);
    let now = p.now;
    p.nodes[A].handle_datagram(now, address(B), None, Ecn::NotEct, &mut list);
}

#[test]
fn what_a_host_on_the_path_says_is_the_verdict_only_when_the_time_is_over() {
    let pair = || Pair::new(Default::default(), Conditions::default(), 3);
    let (code, took) = meddled(pair(), by_version, MS(1500));
    assert!(code.is_none() && took < MS(3500), "{code:?} {took:?}");
    let (code, took) = meddled(pair(), by_version, MS(60_000));
    assert!(code == Some(Code::VersionMismatch) && took >= MS(9900), "{code:?} {took:?}");
}

#[test]
fn a_wrong_key_is_the_verdict_only_when_the_time_is_over() {
    let pair = || Pair::new(Default::default(), Conditions::default(), 3);
    let (code, took) = meddled(pair(), by_another, MS(1500));
    assert!(code.is_none() && took < MS(3500), "{code:?} {took:?}");
    let (code, took) = meddled(pair(), by_another, MS(60_000));
    assert!(code == Some(Code::WrongKey) && took >= MS(9900), "{code:?} {took:?}");
}

#[test]
fn a_node_that_is_copied_does_not_repeat_what_it_draws() {
    let first = |entropy: Option<u8>| {
        let mut node = Node::new(NodeConfig::default(), key(1), [7; 32], START);
        entropy.into_iter().for_each(|byte| node.set_entropy(move |fresh| fresh.fill(byte)));
        node.connect(START, somewhere(), Some(victims_key())).unwrap();
        let mut buf = Vec::new();
        node.poll_transmit(START, 1, &mut buf).unwrap();
        buf
    };
    assert_eq!(first(None), first(None), "tests and simulations are repeatable");
    assert_eq!(first(Some(1)), first(Some(1)));
    assert_ne!(first(Some(1)), first(Some(2)));
    assert_ne!(first(Some(1)), first(None));
}

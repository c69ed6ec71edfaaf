//! A hundred thousand first packets from strangers (P19): half-open links, replies and work keep within their bounds, and an honest node gets in.

use super::super::strangers::{first_flight, flight_of, with_token};
use super::*;
use crate::node::half_open::{MAX_HALF_OPEN, MAX_HALF_OPEN_OF_ONE};
use crate::switch::{Mechanism, without};
use crate::units::Ecn;
use crate::wire::packet::ConnectionId;
use crate::work::Work;
use std::collections::{HashMap, VecDeque};
use std::net::SocketAddr;

const FORGED: u32 = 100_000;
const ADDRESSES: [([u8; 4], u16); 2] = [([10, 0, 0, 1], 4000), ([10, 0, 0, 2], 4000)];

/// A node that is flooded and an honest one, 10 ms apart.
struct Town {
    now: Time,
    nodes: [Node; 2],
    inbox: [VecDeque<(Time, Vec<u8>)>; 2],
    is_up: [bool; 2],
    /// Bytes from and to each address of the flood.
    balance: HashMap<SocketAddr, (usize, usize)>,
    most_half_open: usize,
}

impl Town {
    fn new() -> Self {
        let now = Time::from_millis(1000);
        let node = |i: u8| Node::new(NodeConfig::default(), key(i), [i + 1; 32], now);
        let nodes = [node(0), node(1)];
        Self { now, nodes, inbox: Default::default(), is_up: [false; 2], balance: HashMap::new(), most_half_open: 0 }
    }

    fn address(node: usize) -> SocketAddr {
        ADDRESSES[node].into()
    }

    fn forge(&mut self, from: SocketAddr, datagram: &mut [u8]) {
        self.balance.entry(from).or_default().0 += datagram.len();
        self.nodes[0].handle_datagram(self.now, from, None, Ecn::NotEct, datagram);
        self.most_half_open = self.most_half_open.max(self.nodes[0].half_open.len());
    }

    fn advance(&mut self, by: Duration) {
        self.now += by;
        let mut buf = Vec::new();
        for i in 0..2 {
            while self.inbox[i].front().is_some_and(|(at, _)| *at <= self.now) {
                let Some((_, mut datagram)) = self.inbox[i].pop_front() else { break };
                self.nodes[i].handle_datagram(self.now, Self::address(1 - i), None, Ecn::NotEct, &mut datagram);
            }
            if self.nodes[i].poll_timeout().is_some_and(|t| t <= self.now) {
                self.nodes[i].handle_timeout(self.now);
            }
            while let Some(t) = self.nodes[i].poll_transmit(self.now, 1, &mut buf) {
                if t.remote == Self::address(1 - i) {
                    self.inbox[1 - i].push_back((self.now + MS(10), buf.clone()));
                } else {
                    self.balance.entry(t.remote).or_default().1 += t.len;
                }
            }
            while let Some(e) = self.nodes[i].poll_event() {
                self.is_up[i] |= matches!(e, Event::LinkUp { .. });
            }
        }
    }
}

/// What a flood has shown.
struct Flood {
    /// Since the honest node began, until both ends say that the link is up.
    connected: Option<Duration>,
    most_half_open: usize,
    /// Bytes out for each byte in, for the address that gained most.
    amplification: f64,
    counters: Counters,
    /// What is left of it when it is over for 25 seconds: half-open links, all links.
    left: (usize, usize),
}

/// 100,000 packets in a second, made by `forge`; an honest node begins in the middle.
fn flood(mut forge: impl FnMut(u32) -> (SocketAddr, Vec<u8>)) -> Flood {
    let mut t = Town::new();
    let mut begun = None;
    let mut connected = None;
    for n in 0..FORGED {
        let (from, mut datagram) = forge(n);
        t.forge(from, &mut datagram);
        if n == FORGED / 3 {
            let (now, peer) = (t.now, t.nodes[0].public_key());
            t.nodes[1].connect(now, Town::address(0), Some(peer)).unwrap();
            begun = Some(now);
        }
        t.advance(Duration::from_micros(10));
        if connected.is_none() && t.is_up == [true; 2] {
            connected = begun.map(|at| t.now.since(at));
        }
    }
    for _ in 0..2500 {
        t.advance(MS(10));
    }
    // The address of the honest node is not of the flood.
    t.balance.remove(&Town::address(1));
    let amplification = t.balance.values().map(|(got, sent)| *sent as f64 / *got as f64).fold(0.0, f64::max);
    let counters = t.nodes[0].counters();
    Flood {
        connected,
        most_half_open: t.most_half_open,
        amplification,
        counters,
        left: (t.nodes[0].half_open.len(), t.nodes[0].links.len()),
    }
}

fn stranger(n: u32) -> SocketAddr {
    SocketAddr::from(([172, (n >> 16) as u8, (n >> 8) as u8, n as u8], 9))
}

/// True first flights, each from an address of its own that does not exist.
fn first_flights() -> impl FnMut(u32) -> (SocketAddr, Vec<u8>) {
    let (flight, place) = first_flight();
    move |n| {
        let mut datagram = flight.clone();
        datagram[place..place + 4].copy_from_slice(&(n + 1).to_be_bytes());
        (stranger(n), datagram)
    }
}

/// First flights of a stranger that knows the node's key, each from an address of its own that does not exist. Some distinct ones, again and again.
fn pinned_flights() -> impl FnMut(u32) -> (SocketAddr, Vec<u8>) {
    let responder = key(0).public();
    let flights: Vec<_> = (1..=64).map(|n| flight_of(1, Some(responder), n, b"")).collect();
    move |n| (stranger(n), flights[n as usize % flights.len()].clone())
}

#[test]
fn a_flood_by_strangers_that_know_the_key_costs_bounded_state_and_work_and_an_honest_node_connects_within_a_second() {
    let flights = pinned_flights();
    let before = Work::done().dh;
    let f = flood(flights);
    assert!(f.connected.is_some_and(|t| t < MS(1000)), "{:?}", f.connected);
    assert!((100..=300).contains(&f.most_half_open), "100 at once and 100 a second are answered without a cookie: {}", f.most_half_open);
    assert!(f.amplification <= 3.0, "{}", f.amplification);
    assert!(f.counters.retries > 90_000 && f.counters.throttled >= f.counters.retries, "{:?}", f.counters);
    assert_eq!(f.left, (0, 1), "the honest link");
    // IK: the node's own key, two agreements of the first message, a key and two agreements of the answer.
    assert!(Work::done().dh - before <= 7 * 310, "{}", Work::done().dh - before);
}

#[test]
fn a_hundred_thousand_forged_first_packets_cost_bounded_state_and_an_honest_node_connects_within_a_second() {
    let f = flood(first_flights());
    assert!(f.connected.is_some_and(|t| t < MS(1000)), "{:?}", f.connected);
    assert!(f.most_half_open <= 1, "only the honest node's: {}", f.most_half_open);
    assert!(f.amplification <= 0.1, "{}", f.amplification);
    assert!(f.counters.retries > 90_000 && f.counters.throttled >= f.counters.retries, "{:?}", f.counters);
    assert_eq!(f.left, (0, 1), "the honest link");
}

#[test]
fn without_cookies_the_same_flood_keeps_the_honest_node_out() {
    let f = without(Mechanism::Cookies, || flood(first_flights()));
    assert!(f.connected.is_none_or(|t| t > MS(600)), "{:?}", f.connected);
}

#[test]
fn first_packets_with_invented_cookies_cost_no_key_agreement() {
    let (flight, _) = first_flight();
    let before = Work::done().dh;
    let f = flood(|n| (stranger(n), with_token(&flight, &[n as u8; 40])));
    assert!(f.connected.is_some_and(|t| t < MS(1000)), "{:?}", f.connected);
    assert!(f.most_half_open <= 1 && f.amplification <= 3.0, "{} {}", f.most_half_open, f.amplification);
    assert!(f.counters.retries > 90_000, "{:?}", f.counters);
    // The honest node's, at both ends, and those of the two nodes' own keys.
    assert!(Work::done().dh - before <= 30, "{}", Work::done().dh - before);
}

#[test]
fn arbitrary_bytes_from_strangers_are_counted_and_forgotten() {
    let mut state = 1u64;
    let f = flood(|n| {
        let mut datagram = vec![0; n as usize % 200];
        for byte in &mut datagram {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            *byte = (state >> 56) as u8;
        }
        (stranger(n % 1000), datagram)
    });
    assert!(f.connected.is_some_and(|t| t < MS(100)), "{:?}", f.connected);
    assert!(f.amplification <= 3.0 && f.most_half_open <= 300);
    assert!(f.counters.malformed + f.counters.unknown > 50_000, "{:?}", f.counters);
}

/// A stranger that receives at one address, and so has a cookie for each of ten thousand handshakes there, which it never ends.
#[test]
fn one_address_cannot_hold_all_half_open_links() {
    let (flight, place) = first_flight();
    let from = stranger(1);
    let mut t = Town::new();
    for n in 0..10_000u32 {
        let mut datagram = flight.clone();
        datagram[place..place + 4].copy_from_slice(&(n + 1).to_be_bytes());
        let source = ConnectionId::new(&(n + 1).to_be_bytes()).unwrap();
        let token = t.nodes[0].throttle.lock().issue_for_tests(t.now, from, &source);
        t.forge(from, &mut with_token(&datagram, &token));
        t.advance(MS(1));
    }
    assert!((32..=MAX_HALF_OPEN_OF_ONE).contains(&t.nodes[0].half_open.len()), "{}", t.nodes[0].half_open.len());
    assert!(t.most_half_open <= MAX_HALF_OPEN_OF_ONE && MAX_HALF_OPEN > 4 * t.most_half_open, "{}", t.most_half_open);
}

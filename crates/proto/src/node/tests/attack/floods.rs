//! Floods of each kind at a node whose CPU is charged for its work: an honest client still connects within a second, and a bulk flow keeps nine tenths of
//! its rate.
//!
//! Counted work costs what the slowest machine that we care for needs (`price`). Datagrams wait for the CPU in a queue as long as a socket's buffer, and
//! what finds it full is lost, honest or not. So a flood that costs too much per packet stops the node here as it would a real one.

use super::super::strangers::first_flight;
use super::*;
use crate::blind::{Announcement, Receiver, Relay, RelayConfig, Shape, StreamName};
use crate::crypto::SecretKey;
use crate::crypto::mac1::Mac1;
use crate::switch::{Mechanism, without};
use crate::units::{Bandwidth, Ecn};
use crate::wire::packet::{ConnectionId, HandshakeBody, HandshakePacket, Packet, VERSION};
use crate::work::Work;
use std::collections::VecDeque;
use std::net::SocketAddr;

/// Packets of a flood, at 100,000 a second.
const FLOOD: u32 = 100_000;
const EVERY: Duration = Duration::from_micros(10);
/// Datagrams that wait for the CPU at most: a socket's buffer of 4 MiB, as the kernel counts small datagrams.
const BUFFER: usize = 4096;
/// Datagrams of an honest node take this long to arrive.
const DELAY: Duration = Duration::from_millis(10);
/// Bytes a second of the bulk flow.
const BULK: u64 = 2_500_000;
/// What its application writes at a time.
const CHUNK: u64 = 12_000;

const NODE: usize = 0;
const CLIENT: usize = 1;
const BULKY: usize = 2;
const HOSTILE: usize = 3;

/// Its share of a system call, and the parsers.
const PER_DATAGRAM: Duration = Duration::from_micros(3);

/// Time of a CPU of some 1.5 GHz for counted work: 60 us for each scalar multiplication, 1 us for each hash and each packet sealed or opened, 20 ns for each
/// entry that a loop looked at.
fn price(work: Work) -> Duration {
    Duration::from_nanos(60_000 * work.dh + 1000 * (work.hash + work.aead) + 20 * work.steps)
}

fn address(n: usize) -> SocketAddr {
    SocketAddr::from(([10, 0, 0, 1 + n as u8], 4000))
}

/// A node, its relay and receiver of one-way streams, honest nodes around it, and a CPU.
struct Town {
    now: Time,
    nodes: Vec<Node>,
    relay: Relay,
    receiver: Receiver,
    /// What waits for the CPU of the node, and until when that is busy.
    waiting: VecDeque<(SocketAddr, Vec<u8>)>,
    busy_until: Time,
    idle: Duration,
    lost: u64,
    /// On the way to the node, and to each of the others.
    inbox: [VecDeque<(Time, Vec<u8>)>; 4],
    is_up: [bool; 4],
    /// Bytes from and to the address of the flood that gained most are judged by `most`.
    balance: std::collections::HashMap<SocketAddr, (usize, usize)>,
    flow: Option<FlowId>,
    incoming: Option<FlowId>,
    got: u64,
    written: u64,
    since: Time,
    /// Clients do not know the node's key.
    is_first_contact: bool,
    answer: Vec<u8>,
    buf: Vec<u8>,
}

impl Town {
    fn new() -> Self {
        let now = Time::from_millis(1000);
        let config = || NodeConfig { ecn: false, ..NodeConfig::default() };
        let nodes = (0..4).map(|i: u8| Node::new(config(), key(i), [i + 1; 32], now)).collect();
        let mut t = Self {
            now,
            nodes,
            relay: Relay::new(RelayConfig::new(Bandwidth::from_mbit(100.0), Probability::new(0.1)), [2; 32]),
            receiver: Receiver::new(SecretKey::from_bytes([200; 32]), None, [(SecretKey::from_bytes([201; 32]).public(), 0)], [3; 32]),
            waiting: VecDeque::new(),
            busy_until: now,
            idle: Duration::ZERO,
            lost: 0,
            inbox: Default::default(),
            is_up: [false; 4],
            balance: Default::default(),
            flow: None,
            incoming: None,
            got: 0,
            written: 0,
            since: now,
            is_first_contact: false,
            answer: Vec::new(),
            buf: Vec::new(),
        };
        // The bulk flow has been going on for a second when the flood begins, and the hostile neighbour has a link.
        let link = t.connect(BULKY);
        t.connect(HOSTILE);
        t.run(MS(200));
        let session = t.nodes[BULKY].open_session(t.now, link).unwrap();
        t.flow = Some(t.nodes[BULKY].open_flow(t.now, session, FlowOptions { kind: FlowKind::Stream, ..FlowOptions::default() }).unwrap());
        t.since = t.now;
        t.run(MS(1000));
        t
    }

    fn connect(&mut self, node: usize) -> LinkId {
        let peer = Some(self.nodes[NODE].public_key()).filter(|_| !self.is_first_contact);
        self.nodes[node].connect(self.now, address(NODE), peer).unwrap()
    }

    /// A datagram reaches the node's socket.
    fn arrive(&mut self, from: SocketAddr, datagram: Vec<u8>) {
        if self.waiting.len() < BUFFER { self.waiting.push_back((from, datagram)) } else { self.lost += 1 }
    }

    fn forge(&mut self, from: SocketAddr, datagram: Vec<u8>) {
        self.balance.entry(from).or_default().0 += datagram.len();
        self.arrive(from, datagram);
    }

    /// The CPU does what it has time for.
    fn work(&mut self) {
        while self.busy_until <= self.now {
            let is_due = self.nodes[NODE].poll_timeout().is_some_and(|t| t <= self.now);
            if self.waiting.is_empty() && !is_due {
                self.idle += self.now.since(self.busy_until);
                self.busy_until = self.now;
                return;
            }
            let mut datagrams = 0;
            let (work, ()) = Work::of(|| {
                if is_due {
                    self.nodes[NODE].handle_timeout(self.now);
                }
                if let Some((from, mut datagram)) = self.waiting.pop_front() {
                    datagrams = 1;
                    self.hear(from, &mut datagram);
                }
                self.answer_all();
            });
            self.busy_until += price(work) + PER_DATAGRAM * datagrams;
        }
    }

    fn hear(&mut self, from: SocketAddr, datagram: &mut [u8]) {
        if matches!(datagram.first(), Some(0x42 | 0x43)) {
            self.receiver.handle_datagram(self.now, from.ip(), datagram);
            self.relay.handle_datagram(self.now, from.ip(), datagram);
            while self.relay.poll_transmit(self.now, &mut self.buf) {}
        } else {
            self.nodes[NODE].handle_datagram(self.now, from, None, Ecn::NotEct, datagram);
        }
    }

    fn answer_all(&mut self) {
        let mut buf = core::mem::take(&mut self.buf);
        while let Some(t) = self.nodes[NODE].poll_transmit(self.now, 1, &mut buf) {
            match (1..4).find(|n| address(*n) == t.remote) {
                Some(n) => self.inbox[n].push_back((self.now + DELAY, buf.clone())),
                None => {
                    self.balance.entry(t.remote).or_default().1 += t.len;
                    self.answer.clone_from(&buf);
                }
            }
        }
        self.buf = buf;
        while let Some(event) = self.nodes[NODE].poll_event() {
            match event {
                Event::FlowIncoming { flow, .. } if self.incoming.is_none() => self.incoming = Some(flow),
                Event::LinkUp { peer, .. } if peer == self.nodes[CLIENT].public_key() => self.is_up[NODE] = true,
                _ => {}
            }
        }
        while let Some(Ok(Some(bytes))) = self.incoming.map(|flow| self.nodes[NODE].read(self.now, flow, 1 << 20)) {
            self.got += bytes.len() as u64;
            if bytes.is_empty() {
                break;
            }
        }
    }

    fn advance(&mut self, by: Duration) {
        self.now += by;
        while self.inbox[NODE].front().is_some_and(|(at, _)| *at <= self.now) {
            let Some((_, mut datagram)) = self.inbox[NODE].pop_front() else { break };
            let from = usize::from(datagram.pop().unwrap_or(0));
            self.arrive(address(from), datagram);
        }
        self.work();
        for n in 1..4 {
            while self.inbox[n].front().is_some_and(|(at, _)| *at <= self.now) {
                let Some((_, mut datagram)) = self.inbox[n].pop_front() else { break };
                self.nodes[n].handle_datagram(self.now, address(NODE), None, Ecn::NotEct, &mut datagram);
            }
            if self.nodes[n].poll_timeout().is_some_and(|t| t <= self.now) {
                self.nodes[n].handle_timeout(self.now);
            }
            if n == BULKY
                && let Some(flow) = self.flow
            {
                // At its rate, and no faster.
                let due = (self.now.since(self.since).as_secs_f64() * BULK as f64) as u64;
                while due - self.written >= CHUNK {
                    match self.nodes[BULKY].write(self.now, flow, &[7; CHUNK as usize]) {
                        Ok(n) => self.written += n as u64,
                        Err(_) => break,
                    }
                }
            }
            while self.nodes[n].poll_transmit(self.now, 1, &mut self.buf).is_some() {
                let mut datagram = self.buf.clone();
                datagram.push(n as u8);
                self.inbox[NODE].push_back((self.now + DELAY, datagram));
            }
            while let Some(event) = self.nodes[n].poll_event() {
                self.is_up[n] |= matches!(event, Event::LinkUp { .. });
            }
        }
    }

    fn run(&mut self, time: Duration) {
        let end = self.now + time;
        while self.now < end {
            self.advance(Duration::from_micros(100));
        }
    }

    /// The hostile neighbour sends these frames in a packet.
    fn inject(&mut self, frames: Vec<u8>) {
        let link = *self.nodes[HOSTILE].links.keys().next_back().unwrap();
        self.nodes[HOSTILE].inject(self.now, link, frames);
    }
}

/// What a flood has shown.
#[derive(Debug)]
struct Outcome {
    /// Since the honest client began, until both ends say that the link is up.
    connected: Option<Duration>,
    /// Of the rate at which the bulk flow is written, what arrived in the flood.
    bulk: f64,
    /// Share of its time that the CPU was busy, and datagrams that found no room.
    busy: f64,
    lost: u64,
    /// Bytes out for each byte in, for the address that gained most.
    amplification: f64,
    /// Half-open links at most.
    half_open: usize,
}

impl Outcome {
    fn assert_withstood(&self) {
        println!("{self:?}");
        assert!(self.connected.is_some_and(|t| t < MS(1000)), "an honest client connects within a second: {self:?}");
        assert!(self.bulk >= 0.9, "a bulk flow keeps nine tenths of its rate: {self:?}");
        assert!(self.amplification <= 3.0 && self.half_open <= 1024, "{self:?}");
    }
}

/// 100,000 packets in a second; `forge` sends the n-th. An honest client begins after 0.2 s.
fn flood(mut prepare: impl FnMut(&mut Town), mut forge: impl FnMut(&mut Town, u32)) -> Outcome {
    let mut t = Town::new();
    prepare(&mut t);
    t.run(MS(50));
    let (begun, got, idle) = (t.now, t.got, t.idle);
    t.balance.clear();
    let (mut asked, mut connected, mut half_open) = (None, None, 0);
    for n in 0..FLOOD {
        forge(&mut t, n);
        if n == FLOOD / 5 {
            t.connect(CLIENT);
            asked = Some(t.now);
        }
        t.advance(EVERY);
        half_open = half_open.max(t.nodes[NODE].half_open.len());
        if connected.is_none() && t.is_up[NODE] && t.is_up[CLIENT] {
            connected = asked.map(|at| t.now.since(at));
        }
    }
    let took = t.now.since(begun);
    let bulk = (t.got - got) as f64 / (BULK as f64 * took.as_secs_f64());
    let busy = 1.0 - t.idle.saturating_sub(idle).as_secs_f64() / took.as_secs_f64();
    for _ in 0..200 {
        if connected.is_some() {
            break;
        }
        t.advance(MS(1));
        if t.is_up[NODE] && t.is_up[CLIENT] {
            connected = asked.map(|at| t.now.since(at));
        }
    }
    // What was in a half-open link's favour is judged by its own tests; here the address counts.
    let amplification = t.balance.values().map(|(got, sent)| *sent as f64 / (*got).max(1) as f64).fold(0.0, f64::max);
    Outcome { connected, bulk, busy, lost: t.lost, amplification, half_open }
}

fn stranger(n: u32) -> SocketAddr {
    SocketAddr::from(([172, (n >> 16) as u8, (n >> 8) as u8, n as u8], 9))
}

fn id(n: u32) -> ConnectionId {
    ConnectionId::new(&n.to_be_bytes()).unwrap()
}

/// A first flight of an honest node to the node, or to another key.
fn flight_to(peer: Option<crate::crypto::PublicKey>) -> Vec<u8> {
    let now = Time::from_millis(1);
    let mut node = Node::new(NodeConfig::default(), key(77), [9; 32], now);
    node.connect(now, address(NODE), peer).unwrap();
    let mut buf = Vec::new();
    node.poll_transmit(now, 1, &mut buf).unwrap();
    buf
}

fn front(datagram: &[u8]) -> usize {
    match Packet::parse(datagram, 4) {
        Ok(Packet::Handshake(_, len)) => len,
        _ => datagram.len(),
    }
}

#[test]
fn without_a_flood_the_town_is_quiet() {
    let o = flood(|_| {}, |_, _| {});
    o.assert_withstood();
    assert!(o.busy < 0.2 && o.lost == 0, "{o:?}");
}

#[test]
fn first_flights_of_xx() {
    let (flight, place) = first_flight();
    flood(
        |_| {},
        |t, n| {
            let mut datagram = flight.clone();
            datagram[place..place + 4].copy_from_slice(&(n + 1).to_be_bytes());
            t.forge(stranger(n), datagram);
        },
    )
    .assert_withstood();
}

#[test]
fn first_flights_to_the_true_key() {
    let flight = flight_to(Some(key(0).public()));
    flood(|_| {}, |t, n| t.forge(stranger(n), flight.clone())).assert_withstood();
}

#[test]
fn first_flights_to_another_key() {
    let flight = flight_to(Some(key(5).public()));
    flood(|_| {}, |t, n| t.forge(stranger(n), flight.clone())).assert_withstood();
}

/// First flights from one host with a cookie each, as a sender has that receives at its addresses.
fn with_cookies(peer: Option<crate::crypto::PublicKey>) -> Outcome {
    with_cookies_from(peer, |_| {}, |n| SocketAddr::from(([198, 51, 100, 1], 1024 + (n % 60_000) as u16)))
}

/// The same from many addresses.
fn with_cookies_from(peer: Option<crate::crypto::PublicKey>, prepare: impl FnMut(&mut Town), from: impl Fn(u32) -> SocketAddr) -> Outcome {
    let flight = flight_to(peer);
    flood(prepare, |t, n| {
        let from = from(n);
        let Ok(Packet::Handshake(mut packet, _)) = Packet::parse(&flight, 4) else { panic!("a first flight") };
        let token = t.nodes[NODE].throttle.lock().issue_for_tests(t.now, from, &packet.source);
        if let HandshakeBody::Initiate { token: place, .. } = &mut packet.body {
            *place = &token;
        }
        // Its sender knows the node's key; a message that was made without the token does not open.
        Mac1::new(&key(0).public()).sign(&mut packet);
        let mut out = Vec::new();
        packet.emit(&mut out);
        out.resize(1200, 0);
        t.forge(from, out);
    })
}

#[test]
fn first_flights_of_xx_with_cookies_from_one_host() {
    with_cookies(None).assert_withstood();
}

#[test]
fn first_flights_that_do_not_open_with_cookies_from_one_host() {
    with_cookies(Some(key(0).public())).assert_withstood();
}

/// A site has 65,536 networks, each of which counts as a host.
fn from_a_site() -> Outcome {
    let site = |n: u32| SocketAddr::from(([0x2001, 0xdb8, 1, n as u16, 0, 0, 0, 1], 9));
    with_cookies_from(None, |t| t.is_first_contact = true, site)
}

#[test]
fn first_flights_with_cookies_from_all_networks_of_a_site() {
    from_a_site().assert_withstood();
    let o = without(Mechanism::NetworkTokens, from_a_site);
    assert!(o.connected.is_none_or(|t| t > MS(1000)) || o.bulk < 0.9, "{o:?}");
}

/// The client has had a link before, and does not know the key any more.
fn from_everywhere() -> Outcome {
    let before = |t: &mut Town| {
        t.connect(CLIENT);
        t.run(MS(100));
        assert!(t.is_up[CLIENT]);
        t.is_up = [false; 4];
        t.is_first_contact = true;
    };
    with_cookies_from(None, before, |n| SocketAddr::from((n.wrapping_mul(0x9e37_79b9).to_be_bytes(), 9)))
}

#[test]
fn first_flights_with_cookies_from_everywhere_and_a_client_that_was_here_before() {
    from_everywhere().assert_withstood();
    let o = without(Mechanism::NetworkTokens, from_everywhere);
    assert!(o.connected.is_none_or(|t| t > MS(1000)) || o.bulk < 0.9, "{o:?}");
}

#[test]
fn repeated_and_short_first_flights() {
    let flight = flight_to(Some(key(0).public()));
    let short = flight[..front(&flight)].to_vec();
    let from: SocketAddr = "192.0.2.1:7000".parse().unwrap();
    flood(
        |t| {
            t.forge(from, flight.clone());
            t.run(MS(1));
        },
        |t, n| t.forge(from, if n % 2 == 0 { short.clone() } else { flight.clone() }),
    )
    .assert_withstood();
}

#[test]
fn forged_finishes() {
    for is_other_address in [false, true] {
        let from: SocketAddr = "192.0.2.1:7000".parse().unwrap();
        let finish = std::cell::RefCell::new(Vec::new());
        flood(
            |t| {
                // An honest first contact up to the last message, which is altered.
                let mut node = Node::new(NodeConfig::default(), key(78), [9; 32], t.now);
                node.connect(t.now, address(NODE), None).unwrap();
                let (mut buf, mut last) = (Vec::new(), Vec::new());
                while last.is_empty() && node.poll_transmit(t.now, 1, &mut buf).is_some() {
                    if matches!(Packet::parse(&buf, 4), Ok(Packet::Handshake(HandshakePacket { body: HandshakeBody::Finish(_), .. }, _))) {
                        last.clone_from(&buf);
                        break;
                    }
                    t.forge(from, buf.clone());
                    t.run(MS(1));
                    node.handle_datagram(t.now, address(NODE), None, Ecn::NotEct, &mut t.answer.clone());
                }
                let end = front(&last);
                last.truncate(end);
                last[end - 1] ^= 1;
                *finish.borrow_mut() = last;
            },
            |t, n| t.forge(if is_other_address { stranger(n) } else { from }, finish.borrow().clone()),
        )
        .assert_withstood();
    }
}

#[test]
fn packets_of_other_versions_and_answers_without_a_question() {
    flood(
        |_| {},
        |t, n| {
            let (version, body) = match n % 4 {
                0 => (0x1234_5678, HandshakeBody::OtherVersion),
                1 => (0, HandshakeBody::VersionList(&[1, 2, 3, 4])),
                2 => (VERSION, HandshakeBody::Respond(&[5; 96])),
                _ => (VERSION, HandshakeBody::Finish(&[5; 64])),
            };
            let mut out = Vec::new();
            HandshakePacket { version, destination: id(n), source: id(n + 1), body }.emit(&mut out);
            out.resize(1200, 0);
            t.forge(stranger(n), out);
        },
    )
    .assert_withstood();
}

#[test]
fn protected_packets_to_ids_that_exist_and_to_ids_that_do_not() {
    let seen = std::cell::RefCell::new(Vec::new());
    flood(
        |t| {
            // A packet of the bulk flow as a host on the path sees it.
            *seen.borrow_mut() = t.inbox[NODE].iter().map(|(_, d)| d.clone()).find(|d| d.last() == Some(&(BULKY as u8))).unwrap();
        },
        |t, n| {
            let mut datagram = seen.borrow().clone();
            datagram.truncate(200);
            if n % 2 == 0 {
                datagram[1..5].copy_from_slice(&n.to_be_bytes());
            }
            // A packet number near those in use.
            datagram[8] = datagram[8].wrapping_add(n as u8);
            t.forge(stranger(n), datagram);
        },
    )
    .assert_withstood();
}

#[test]
fn one_way_packets_and_announcements() {
    let shape = Shape::new(32, 8, 2, 64).unwrap();
    let said = Announcement { stamp: 9, stream: StreamName(*b"live"), key: [5; 32], shape, block: 0, messages: 0 };
    // Made for the receiver, by a key that it does not know.
    let announcement = said.seal(&SecretKey::from_bytes([202; 32]), &SecretKey::from_bytes([200; 32]).public(), None, [3; 32]).unwrap();
    flood(
        |_| {},
        |t, n| {
            let datagram = match n % 3 {
                0 => announcement.clone(),
                1 => {
                    let mut altered = announcement.clone();
                    let at = altered.len() - 1 - (n as usize / 3) % 16;
                    altered[at] ^= (n >> 8) as u8 | 1;
                    altered
                }
                _ => {
                    let mut out = vec![0x42];
                    out.extend_from_slice(&(n % 32).to_be_bytes());
                    out.push(1);
                    out.extend_from_slice(&(n >> 8).to_be_bytes());
                    out.extend_from_slice(&[0, (n >> 5) as u8 & 1, n as u8 & 7]);
                    out.resize(1000, 1);
                    out
                }
            };
            t.forge(stranger(n), datagram);
        },
    )
    .assert_withstood();
}

#[test]
fn flow_open_frames_of_a_neighbour() {
    let template = FlowOpen {
        session: SessionKey(0),
        index: 0,
        label: FlowLabel(0),
        symbol: 200,
        mode: Mode::Brtp,
        kind: FlowKind::OrderedMessages,
        class: Class::Bulk,
        lifetime: None,
        batch_size: 8,
        hop_limit: 16,
        no_retransmit: Probability::new(0.99),
        answers: None,
        bidirectional: false,
        tag: 0,
        relayed: None,
    };
    // Twenty frames in a packet of each twentieth moment: 100,000 frames a second. Half of them open sessions, half flows of one.
    flood(
        |_| {},
        |t, n| {
            if n % 20 != 0 {
                return;
            }
            let mut bytes = Vec::new();
            for i in 0..20u64 {
                let name = 100 + u64::from(n) + i;
                let (session, index) = if i % 2 == 0 { (SessionKey(name), 0) } else { (SessionKey(100), name) };
                Frame::FlowOpen(FlowOpen { session, index, label: FlowLabel(name), ..template.clone() }).emit(&mut bytes);
            }
            t.inject(bytes);
        },
    )
    .assert_withstood();
}

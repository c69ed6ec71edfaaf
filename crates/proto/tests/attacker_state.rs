//! What a node keeps for attackers that want it to keep much, counted by the allocator (P22): per packet of a stranger, half-open link, idle link, idle
//! session, idle flow. `cargo test -p noctule-proto --test attacker_state -- --nocapture` prints the table of docs/results/attack.md.

use noctule_proto::crypto::mac1::Mac1;
use noctule_proto::crypto::{Initiator, PublicKey, SecretKey};
use noctule_proto::event::Event;
use noctule_proto::ids::{FlowId, LinkId, SessionId};
use noctule_proto::options::{FlowKind, FlowOptions, MessageOptions};
use noctule_proto::units::{Duration, Ecn, Time};
use noctule_proto::wire::packet::{ConnectionId, HandshakeBody, HandshakePacket, Packet, Pattern, VERSION};
use noctule_proto::wire::params::Params;
use noctule_proto::{Node, NodeConfig};
use rand_chacha::ChaCha12Rng;
use rand_core::SeedableRng;
use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;
use std::collections::VecDeque;
use std::net::SocketAddr;

/// Counts what is held of all that was taken while the node under attack was at work.
struct Counting;

thread_local! {
    static IS_COUNTED: Cell<bool> = const { Cell::new(false) };
    static HELD: Cell<isize> = const { Cell::new(0) };
    static PEAK: Cell<isize> = const { Cell::new(0) };
}

fn count(by: isize) {
    if IS_COUNTED.get() {
        HELD.set(HELD.get() + by);
        PEAK.set(PEAK.get().max(HELD.get()));
    }
}

// SAFETY: everything is handed on to the system's allocator.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        count(layout.size() as isize);
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, memory: *mut u8, layout: Layout) {
        count(-(layout.size() as isize));
        unsafe { System.dealloc(memory, layout) }
    }
}

#[global_allocator]
static ALLOCATOR: Counting = Counting;

/// The node under attack and one that is not counted, in turn, without delay.
struct Attack {
    now: Time,
    victim: Node,
    other: Node,
    buf: Vec<u8>,
    to_victim: VecDeque<Vec<u8>>,
    to_other: VecDeque<Vec<u8>>,
    victims: Vec<Event>,
    others: Vec<Event>,
}

fn address(i: u8) -> SocketAddr {
    SocketAddr::from(([10, 0, 0, i], 4000))
}

impl Attack {
    fn new() -> Self {
        let now = Time::from_millis(1000);
        // One key, so that one node at the other end does.
        let config = NodeConfig { max_links_per_key: 64, ..NodeConfig::default() };
        let node = |i: u8| Node::new(config.clone(), SecretKey::from_bytes([i + 7; 32]), [i + 1; 32], now);
        IS_COUNTED.set(true);
        HELD.set(0);
        let victim = node(0);
        IS_COUNTED.set(false);
        Self {
            now,
            victim,
            other: node(1),
            buf: Vec::with_capacity(1 << 17),
            to_victim: VecDeque::with_capacity(1 << 12),
            to_other: VecDeque::with_capacity(1 << 12),
            victims: Vec::with_capacity(1 << 14),
            others: Vec::new(),
        }
    }

    /// The node under attack does something, and what it takes is counted.
    fn victim<T>(&mut self, act: impl FnOnce(&mut Node, Time) -> T) -> T {
        IS_COUNTED.set(true);
        let result = act(&mut self.victim, self.now);
        IS_COUNTED.set(false);
        result
    }

    fn datagram(&mut self, from: SocketAddr, datagram: &mut [u8]) {
        self.victim(|node, now| node.handle_datagram(now, from, None, Ecn::NotEct, datagram));
        self.drain();
    }

    /// The cookie that a first flight gets.
    fn cookie(&mut self, from: SocketAddr, mut flight: Vec<u8>) -> Vec<u8> {
        self.victim(|node, now| node.handle_datagram(now, from, None, Ecn::NotEct, &mut flight));
        let (buf, now) = (&mut self.buf, self.now);
        IS_COUNTED.set(true);
        let sent = self.victim.poll_transmit(now, 1, buf);
        IS_COUNTED.set(false);
        assert!(sent.is_some_and(|t| t.remote == from));
        let Ok(Packet::Handshake(HandshakePacket { body: HandshakeBody::Retry { token }, .. }, _)) = Packet::parse(&self.buf, 4) else {
            panic!("no RETRY")
        };
        token.to_vec()
    }

    /// Sends what is to be sent; what goes to nobody is forgotten.
    fn drain(&mut self) {
        loop {
            let (buf, now) = (&mut self.buf, self.now);
            IS_COUNTED.set(true);
            let sent = self.victim.poll_transmit(now, 1, buf);
            IS_COUNTED.set(false);
            match sent {
                Some(t) if t.remote == address(1) => self.to_other.push_back(self.buf.clone()),
                Some(_) => {}
                None => break,
            }
        }
        while let Some(event) = self.victim(|node, _| node.poll_event()) {
            self.victims.push(event);
        }
        while self.other.poll_transmit(self.now, 1, &mut self.buf).is_some() {
            self.to_victim.push_back(self.buf.clone());
        }
        while let Some(event) = self.other.poll_event() {
            self.others.push(event);
        }
    }

    /// Both nodes work for so long, in steps of a millisecond.
    fn run(&mut self, time: Duration) {
        let end = self.now + time;
        while self.now < end {
            self.drain();
            while let Some(mut datagram) = self.to_victim.pop_front() {
                self.datagram(address(1), &mut datagram);
            }
            while let Some(mut datagram) = self.to_other.pop_front() {
                self.other.handle_datagram(self.now, address(0), None, Ecn::NotEct, &mut datagram);
            }
            self.drain();
            self.now += Duration::from_millis(1);
            if self.victim.poll_timeout().is_some_and(|t| t <= self.now) {
                self.victim(Node::handle_timeout);
            }
            if self.other.poll_timeout().is_some_and(|t| t <= self.now) {
                self.other.handle_timeout(self.now);
            }
        }
        self.drain();
    }

    fn links(&mut self, count: usize) -> Vec<LinkId> {
        let peer = self.victim.public_key();
        let links = (0..count)
            .map(|_| {
                self.run(Duration::from_millis(15));
                self.other.connect(self.now, address(0), Some(peer)).unwrap()
            })
            .collect();
        self.run(Duration::from_secs(2));
        links
    }
}

/// A first flight of a pattern under a source id of its own.
fn first_flight(n: u32, responder: PublicKey, is_pinned: bool, token: &[u8]) -> Vec<u8> {
    let mut rng = ChaCha12Rng::seed_from_u64(n.into());
    let id = |n: u32| ConnectionId::new(&n.to_be_bytes()).unwrap();
    let pattern = if is_pinned { Pattern::Ik } else { Pattern::Xx };
    let packet = |message| HandshakePacket {
        version: VERSION,
        destination: id(7),
        source: id(n),
        body: HandshakeBody::Initiate { pattern, mac1: [0; 16], token, message },
    };
    let mut payload = Vec::new();
    Params::default().emit(&mut payload, 0);
    let prologue = packet(&[]).prologue().unwrap();
    let peer = is_pinned.then_some(responder);
    let (_, message) = Initiator::start(&SecretKey::from_bytes([1; 32]), peer, None, &prologue, &payload, &mut rng).unwrap();
    let mut packet = packet(&message);
    peer.iter().for_each(|key| Mac1::new(key).sign(&mut packet));
    let mut out = Vec::new();
    packet.emit(&mut out);
    out.resize(1200, 0);
    out
}

/// Bytes for each of `count` things, of which `make` makes so many.
fn each<T>(a: &mut Attack, count: usize, make: impl FnOnce(&mut Attack) -> T) -> (isize, T) {
    let before = HELD.get();
    let made = make(a);
    ((HELD.get() - before) / count as isize, made)
}

fn half_open(is_pinned: bool) -> isize {
    let mut a = Attack::new();
    let key = a.victim.public_key();
    let from = |n: u32| SocketAddr::from(([172, 0, 0, n as u8], 9));
    // The table of hosts' tokens is there from the first cookie on and grows no more.
    let token = a.cookie(from(100), first_flight(100, key, false, b""));
    a.datagram(from(100), &mut first_flight(100, key, false, &token));
    let flights: Vec<_> = (1..=90)
        .map(|n| {
            let token = if is_pinned { Vec::new() } else { a.cookie(from(n), first_flight(n, key, false, b"")) };
            (from(n), first_flight(n, key, is_pinned, &token))
        })
        .collect();
    let (bytes, ()) = each(&mut a, 90, |a| {
        for (from, mut flight) in flights {
            a.datagram(from, &mut flight);
        }
    });
    assert_eq!(a.victim.counters().half_open, 91);
    bytes
}

/// Bytes that each packet of a stranger leaves behind, in thousandths, and the most that one takes while it is looked at.
fn stranger() -> (isize, isize) {
    let mut a = Attack::new();
    let key = a.victim.public_key();
    for n in 1..=200 {
        a.datagram(SocketAddr::from(([172, 0, 1, n as u8], 9)), &mut first_flight(n, key, false, b""));
    }
    let flight = first_flight(1000, key, false, b"");
    let (held, mut most) = (HELD.get(), 0);
    for n in 0..20_000u32 {
        let mut datagram = flight.clone();
        let before = HELD.get();
        PEAK.set(before);
        a.datagram(SocketAddr::from((n.to_be_bytes(), 9)), &mut datagram);
        most = most.max(PEAK.get() - before);
    }
    ((HELD.get() - held) * 1000 / 20_000, most)
}

#[test]
fn what_an_attacker_makes_a_node_keep_is_bounded_and_known() {
    let (left, most) = stranger();
    let (xx, ik) = (half_open(false), half_open(true));
    let mut a = Attack::new();
    let (link, links) = each(&mut a, 64, |a| a.links(64));
    let (session, sessions) = each(&mut a, 500, |a| {
        let sessions: Vec<SessionId> = (0..500).map(|_| a.other.open_session(a.now, links[0]).unwrap()).collect();
        a.run(Duration::from_secs(5));
        sessions
    });
    let flows = |a: &mut Attack, options: &FlowOptions, of: &[SessionId]| {
        let flows: Vec<FlowId> = of.iter().map(|s| a.other.open_flow(a.now, *s, options.clone()).unwrap()).collect();
        for flow in flows {
            match options.kind {
                FlowKind::Stream => drop(a.other.write(a.now, flow, &[7; 10])),
                _ => drop(a.other.send_message(a.now, flow, vec![7; 10].into(), MessageOptions::default())),
            }
        }
        a.run(Duration::from_secs(2));
        let opened: Vec<FlowId> = a
            .victims
            .drain(..)
            .filter_map(|e| match e {
                Event::FlowIncoming { flow, .. } => Some(flow),
                _ => None,
            })
            .collect();
        assert_eq!(opened.len(), of.len());
        for flow in opened {
            let is_read = a.victim(|node, now| match options.kind {
                FlowKind::Stream => node.read(now, flow, 100).is_ok_and(|bytes| bytes.is_some()),
                _ => node.recv_message(now, flow).is_ok_and(|message| message.is_some()),
            });
            assert!(is_read);
        }
        a.run(Duration::from_secs(2));
    };
    let stream = FlowOptions { kind: FlowKind::Stream, ..FlowOptions::default() };
    let messages = FlowOptions { kind: FlowKind::UnorderedMessages, ..FlowOptions::default() };
    let (of_stream, ()) = each(&mut a, 250, |a| flows(a, &stream, &sessions[..250]));
    let (of_messages, ()) = each(&mut a, 250, |a| flows(a, &messages, &sessions[250..]));
    println!("| state | bytes |");
    println!("|---|---:|");
    println!("| left by a packet of a stranger that is answered with a cookie | {:.3} |", left as f64 / 1000.0);
    println!("| while it is looked at | {most} |");
    println!("| half-open link, first flight XX | {xx} |");
    println!("| half-open link, first flight IK | {ik} |");
    println!("| idle link | {link} |");
    println!("| idle session (both control flows included) | {session} |");
    println!("| idle incoming flow, stream | {of_stream} |");
    println!("| idle incoming flow, messages | {of_messages} |");
    // Half as much again as docs/results/attack.md has.
    assert!(left < 1000 && most < 4096, "{left} {most}");
    for (what, bytes, bound) in [
        ("half-open XX", xx, 4 << 10),
        ("half-open IK", ik, 4 << 10),
        ("link", link, 16 << 10),
        ("session", session, 40 << 10),
        // What the ledger counts at least for a flow whose symbols are empty.
        ("stream", of_stream, 8192),
        ("messages", of_messages, 8192),
    ] {
        assert!(bytes > 0 && bytes < bound, "{what}: {bytes} bytes, {bound} allowed");
    }
}

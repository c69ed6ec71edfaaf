//! Two nodes joined by several wires in virtual time, each with its own addresses, rate, delay, loss and outages.

use super::super::pair::{A, B, content, key};
use crate::event::Event;
use crate::ids::{FlowId, LinkId, SessionId};
use crate::options::{FlowKind, FlowOptions};
use crate::stats::PathStats;
use crate::units::{Bandwidth, Duration, Ecn, Time};
use crate::{Node, NodeConfig};
use rand_chacha::ChaCha12Rng;
use rand_core::{Rng, SeedableRng};
use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::net::{IpAddr, SocketAddr};

/// One wire, both directions alike.
#[derive(Clone)]
pub(super) struct Wire {
    pub(super) rate: Bandwidth,
    pub(super) delay: Duration,
    pub(super) loss: f64,
    /// Nothing passes in these spans; what is under way is lost.
    pub(super) outages: Vec<(Time, Time)>,
    /// Datagrams and bytes that entered it, by the node that sent them.
    pub(super) sent: [(u64, u64); 2],
}

impl Wire {
    pub(super) fn new(mbit: f64, delay: Duration, loss: f64) -> Self {
        Self { rate: Bandwidth::from_mbit(mbit), delay, loss, outages: Vec::new(), sent: [(0, 0); 2] }
    }

    fn is_out(&self, from: Time, to: Time) -> bool {
        self.outages.iter().any(|(begin, end)| from < *end && to >= *begin)
    }
}

#[derive(PartialEq, Eq, PartialOrd, Ord)]
struct Flight {
    at: Time,
    order: u64,
    to: usize,
    wire: usize,
    data: Vec<u8>,
}

pub(super) struct Bundle {
    pub(super) now: Time,
    pub(super) nodes: [Node; 2],
    pub(super) events: [Vec<Event>; 2],
    pub(super) wires: Vec<Wire>,
    busy_until: Vec<[Time; 2]>,
    flights: BinaryHeap<Reverse<Flight>>,
    rng: ChaCha12Rng,
    order: u64,
}

pub(super) fn address(wire: usize, node: usize) -> SocketAddr {
    SocketAddr::from(([10, 1, wire as u8, 1 + node as u8], 4000))
}

/// What a transfer was like.
pub(super) struct Transfer {
    pub(super) is_done: bool,
    pub(super) took: Duration,
    /// When the application read something, and how much.
    pub(super) reads: Vec<(Time, usize)>,
}

impl Transfer {
    /// The longest pause in what the application read that begins within `span` of `from`.
    pub(super) fn gap(&self, from: Time, span: Duration) -> Duration {
        let around = from.saturating_sub(Duration::from_millis(20))..from + span;
        self.reads.windows(2).filter(|w| around.contains(&w[0].0)).map(|w| w[1].0.since(w[0].0)).max().unwrap_or(Duration::MAX)
    }

    /// Rate at which the application read between two instants.
    pub(super) fn rate(&self, from: Time, to: Time) -> Bandwidth {
        let bytes: usize = self.reads.iter().filter(|r| (from..to).contains(&r.0)).map(|r| r.1).sum();
        Bandwidth::from_transfer(bytes as u64, to.since(from))
    }
}

impl Bundle {
    pub(super) fn new(wires: Vec<Wire>, seed: u64) -> Self {
        let now = Time::from_millis(1000);
        let node = |i: u8| Node::new(NodeConfig::default(), key(i), [seed as u8 ^ (i + 1); 32], now);
        Self {
            now,
            nodes: [node(0), node(1)],
            events: Default::default(),
            busy_until: vec![[now; 2]; wires.len()],
            wires,
            flights: BinaryHeap::new(),
            rng: ChaCha12Rng::seed_from_u64(seed),
            order: 0,
        }
    }

    /// A connects to B over the first wire and adds a path over each other one.
    pub(super) fn connect(&mut self) -> (LinkId, SessionId) {
        let peer = self.nodes[B].public_key();
        let link = self.nodes[A].connect(self.now, address(0, B), Some(peer)).unwrap();
        let session = self.nodes[A].open_session(self.now, link).unwrap();
        for wire in 1..self.wires.len() {
            self.nodes[A].add_path(self.now, link, address(wire, B), Some(address(wire, A).ip())).unwrap();
        }
        (link, session)
    }

    pub(super) fn paths(&self, node: usize) -> Vec<PathStats> {
        let link = self.nodes[node].sessions().next().map(|s| s.1);
        link.and_then(|l| self.nodes[node].link_stats(l)).map(|s| s.paths).unwrap_or_default()
    }

    fn flush(&mut self, from: usize) {
        let mut buf = Vec::new();
        let mut trains = 0;
        while let Some(t) = self.nodes[from].poll_transmit(self.now, 8, &mut buf) {
            trains += 1;
            assert!(trains < 20_000, "sends without end at {:?}", self.now);
            let IpAddr::V4(to) = t.remote.ip() else { panic!("IPv4 only") };
            let number = usize::from(to.octets()[2]);
            let Some(wire) = self.wires.get_mut(number) else { continue };
            assert!(t.local.is_none_or(|l| l == address(number, from).ip()), "sent from {:?} to {}", t.local, t.remote);
            for piece in buf.chunks(t.segment_size.unwrap_or(t.len)) {
                wire.sent[from].0 += 1;
                wire.sent[from].1 += piece.len() as u64;
                let busy = self.busy_until[number][from].max(self.now);
                // A queue of 50 ms, drop-tail.
                if busy.since(self.now) > Duration::from_millis(50) {
                    continue;
                }
                self.busy_until[number][from] = busy + wire.rate.time_for(piece.len() as u64 + 28);
                let at = self.busy_until[number][from] + wire.delay;
                let lost = (self.rng.next_u64() as f64 / u64::MAX as f64) < wire.loss;
                if lost || wire.is_out(self.now, at) {
                    continue;
                }
                self.order += 1;
                self.flights.push(Reverse(Flight { at, order: self.order, to: 1 - from, wire: number, data: piece.to_vec() }));
            }
        }
        while let Some(e) = self.nodes[from].poll_event() {
            self.events[from].push(e);
        }
    }

    pub(super) fn step(&mut self) -> bool {
        self.flush(A);
        self.flush(B);
        let next = [self.nodes[A].poll_timeout(), self.nodes[B].poll_timeout(), self.flights.peek().map(|f| f.0.at)];
        let Some(next) = next.into_iter().flatten().min() else { return false };
        self.now = self.now.max(next);
        while self.flights.peek().is_some_and(|f| f.0.at <= self.now) {
            let Some(Reverse(mut f)) = self.flights.pop() else { break };
            let local = address(f.wire, f.to).ip();
            self.nodes[f.to].handle_datagram(self.now, address(f.wire, 1 - f.to), Some(local), Ecn::NotEct, &mut f.data);
            self.flush(f.to);
        }
        for n in 0..2 {
            if self.nodes[n].poll_timeout().is_some_and(|t| t <= self.now) {
                self.nodes[n].handle_timeout(self.now);
            }
            self.flush(n);
        }
        true
    }

    pub(super) fn run_until(&mut self, limit: Duration, mut done: impl FnMut(&mut Self) -> bool) -> bool {
        let end = self.now + limit;
        let (mut still, mut last) = (0, self.now);
        loop {
            if done(self) {
                return true;
            }
            still = if self.now == last { still + 1 } else { 0 };
            last = self.now;
            assert!(still < 10_000, "time stands still at {:?}", self.now);
            if !self.step() || self.now > end {
                return done(self);
            }
        }
    }

    pub(super) fn incoming(&mut self, node: usize) -> Option<FlowId> {
        let at = self.events[node].iter().position(|e| matches!(e, Event::FlowIncoming { .. }))?;
        match self.events[node].remove(at) {
            Event::FlowIncoming { flow, .. } => Some(flow),
            _ => None,
        }
    }

    /// A stream of `len` bytes from A to B.
    pub(super) fn transfer(&mut self, session: SessionId, len: usize, limit: Duration) -> Transfer {
        let data = content(len, 9);
        let flow = self.nodes[A].open_flow(self.now, session, FlowOptions { kind: FlowKind::Stream, ..Default::default() }).unwrap();
        let (mut written, mut is_finished, mut incoming, mut got) = (0, false, None, Vec::with_capacity(len));
        let mut reads = Vec::new();
        let began = self.now;
        let is_done = self.run_until(limit, |b| {
            while written < len {
                match b.nodes[A].write(b.now, flow, &data[written..]) {
                    Ok(n) => written += n,
                    Err(_) => break,
                }
            }
            if written == len && !core::mem::replace(&mut is_finished, written == len) {
                let _ = b.nodes[A].finish(b.now, flow);
            }
            if incoming.is_none() {
                incoming = b.incoming(B);
            }
            while let Some(f) = incoming
                && let Ok(Some(chunk)) = b.nodes[B].read(b.now, f, 1 << 20)
                && !chunk.is_empty()
            {
                reads.push((b.now, chunk.len()));
                got.extend_from_slice(&chunk);
            }
            b.events[A].iter().any(|e| matches!(e, Event::FlowDelivered(f) if *f == flow))
        });
        assert!(!is_done || got == data, "the content arrives as it was sent");
        Transfer { is_done, took: self.now.since(began), reads }
    }
}

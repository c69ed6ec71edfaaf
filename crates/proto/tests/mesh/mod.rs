//! Several nodes joined by links in virtual time: like the pair, for what takes more than two.
#![allow(dead_code)]

use super::pair::{Conditions, key};
use noctule_proto::event::Event;
use noctule_proto::ids::{FlowId, LinkId, SessionId};
use noctule_proto::node::RelayLimits;
use noctule_proto::node::routing::{Route, Via};
use noctule_proto::options::{FlowKind, FlowOptions};
use noctule_proto::units::{Duration, Ecn, Time};
use noctule_proto::{Node, NodeConfig};
use rand_chacha::ChaCha12Rng;
use rand_core::{Rng, SeedableRng};
use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::net::{IpAddr, SocketAddr};

/// Two neighbours and what happens to datagrams between them, in each direction.
pub struct Edge {
    pub ends: [usize; 2],
    pub conditions: [Conditions; 2],
    /// Bytes of UDP payload sent and delivered.
    pub sent: [u64; 2],
    pub datagrams: [u64; 2],
    pub delivered: [u64; 2],
    /// The edge through whose queue its packets go, if not its own.
    pub trunk: Option<usize>,
    /// Longest queue in front of it, in time.
    pub queue: [Duration; 2],
    busy_until: [Time; 2],
}

#[derive(PartialEq, Eq, PartialOrd, Ord)]
struct Flight {
    at: Time,
    order: u64,
    edge: usize,
    to: usize,
    data: Vec<u8>,
}

pub struct Mesh {
    pub now: Time,
    pub nodes: Vec<Node>,
    pub events: Vec<Vec<Event>>,
    pub edges: Vec<Edge>,
    /// Nodes that neither send nor hear.
    pub dead: Vec<bool>,
    /// When the applications want to act next.
    pub wake_at: Option<Time>,
    /// Deepest queue of the edges, in time.
    pub buffer: Duration,
    flights: BinaryHeap<Reverse<Flight>>,
    rng: ChaCha12Rng,
    order: u64,
}

/// The overlay's address of a node.
pub fn ip(node: usize) -> IpAddr {
    IpAddr::from([10, 9, 0, 1 + node as u8])
}

/// The address that a node has on an edge.
pub fn address(edge: usize, node: usize) -> SocketAddr {
    SocketAddr::from(([10, edge as u8, 0, 1 + node as u8], 4000))
}

pub fn config() -> NodeConfig {
    NodeConfig::default()
}

impl Mesh {
    /// Nodes that relay, with links between them; no routes yet.
    pub fn new(count: usize, edges: &[(usize, usize, Conditions)], seed: u64) -> Self {
        let now = Time::from_millis(1000);
        let mut mesh = Self {
            now,
            nodes: Vec::new(),
            events: (0..count).map(|_| Vec::new()).collect(),
            edges: Vec::new(),
            dead: vec![false; count],
            wake_at: None,
            buffer: Duration::from_millis(50),
            flights: BinaryHeap::new(),
            rng: ChaCha12Rng::seed_from_u64(seed),
            order: 0,
        };
        for node in 0..count {
            mesh.nodes.push(mesh.fresh(node, config(), seed));
        }
        for (a, b, conditions) in edges {
            mesh.edges.push(Edge {
                ends: [*a, *b],
                conditions: [conditions.clone(), conditions.clone()],
                sent: [0; 2],
                datagrams: [0; 2],
                delivered: [0; 2],
                trunk: None,
                queue: [Duration::ZERO; 2],
                busy_until: [now; 2],
            });
        }
        mesh
    }

    fn fresh(&self, node: usize, config: NodeConfig, seed: u64) -> Node {
        let mut n = Node::new(config, key(node as u8), [seed as u8 ^ (node as u8 + 1); 32], self.now);
        n.set_addresses(&[ip(node)]);
        n.enable_relaying(Some(RelayLimits::default()));
        n
    }

    /// The node begins with another configuration; before it has links.
    pub fn configure(&mut self, node: usize, config: NodeConfig) {
        self.nodes[node] = self.fresh(node, config, 7 + self.order);
    }

    /// Nodes in a row, linked, with routes both ways.
    pub fn chain(conditions: &[Conditions], seed: u64) -> Self {
        let edges: Vec<_> = conditions.iter().enumerate().map(|(i, c)| (i, i + 1, c.clone())).collect();
        let mut mesh = Self::new(conditions.len() + 1, &edges, seed);
        mesh.connect_all();
        for node in 0..mesh.nodes.len() {
            mesh.route_by_chain(node);
        }
        mesh
    }

    /// Links every edge, from its first end, and lets them come up.
    pub fn connect_all(&mut self) {
        for edge in 0..self.edges.len() {
            self.connect(edge);
        }
        self.run_until(Duration::from_secs(5), |m| {
            m.events.iter().flatten().filter(|e| matches!(e, Event::LinkUp { .. })).count() >= 2 * m.edges.len()
        });
    }

    pub fn connect(&mut self, edge: usize) -> LinkId {
        let [a, b] = self.edges[edge].ends;
        let peer = self.nodes[b].public_key();
        let now = self.now;
        self.nodes[a].connect(now, address(edge, b), Some(peer)).unwrap()
    }

    /// Routes of a node in a chain: lower addresses one way, higher ones the other.
    pub fn route_by_chain(&mut self, node: usize) {
        let mut routes = Vec::new();
        for other in (0..self.nodes.len()).filter(|other| *other != node) {
            let next = if other < node { node - 1 } else { node + 1 };
            routes.push(self.route(other, next, 0));
        }
        let now = self.now;
        self.nodes[node].set_routes(now, routes);
    }

    pub fn route(&self, to: usize, via: usize, metric: u32) -> Route {
        Route { to: ip(to).into(), via: Via::Neighbour(self.nodes[via].public_key()), metric }
    }

    /// The node loses everything but its identity, and its links come up again.
    pub fn restart(&mut self, node: usize) {
        self.forget(node);
        for edge in 0..self.edges.len() {
            if self.edges[edge].ends.contains(&node) {
                self.connect(edge);
            }
        }
    }

    /// The node loses everything but its identity.
    pub fn forget(&mut self, node: usize) {
        self.nodes[node] = self.fresh(node, config(), 77 + self.order);
        self.events[node].clear();
    }

    fn chance(&mut self) -> f64 {
        self.rng.next_u64() as f64 / u64::MAX as f64
    }

    fn flush(&mut self, from: usize) {
        let mut buf = Vec::new();
        let mut trains = 0;
        while let Some(t) = self.nodes[from].poll_transmit(self.now, 8, &mut buf) {
            trains += 1;
            assert!(trains < 20_000, "node {from} sends without end at {:?}", self.now);
            let IpAddr::V4(v4) = t.remote.ip() else { continue };
            let edge = usize::from(v4.octets()[1]);
            assert!(t.local.is_none_or(|local| local == address(edge, from).ip()), "sent from {:?} to {}", t.local, t.remote);
            for piece in buf.chunks(t.segment_size.unwrap_or(t.len)) {
                let lost = self.chance();
                let line = self.edges[edge].trunk.unwrap_or(edge);
                let way = usize::from(self.edges[edge].ends[1] == from);
                let free_at = self.edges[line].busy_until[way];
                let e = &mut self.edges[edge];
                let to = e.ends[1 - way];
                let c = &e.conditions[way];
                e.sent[way] += piece.len() as u64;
                e.datagrams[way] += 1;
                let busy = free_at.max(self.now);
                if let Some(rate) = c.rate {
                    let wait = busy.since(self.now);
                    if wait > self.buffer {
                        continue;
                    }
                    e.queue[way] = e.queue[way].max(wait);
                    e.busy_until[way] = busy + Duration::from_secs_f64((piece.len() + 28) as f64 / rate);
                } else {
                    e.busy_until[way] = self.now;
                }
                let left_at = e.busy_until[way];
                let at = left_at + c.delay;
                // What is under way when an outage begins is lost, too.
                let out = c.outages.iter().any(|(a, b)| *a <= at && self.now < *b);
                let is_lost = lost < c.loss || out || piece.len() > c.mtu || self.dead[from] || self.dead[to];
                e.delivered[way] += if is_lost { 0 } else { piece.len() as u64 };
                self.edges[line].busy_until[way] = left_at;
                if is_lost {
                    continue;
                }
                self.order += 1;
                self.flights.push(Reverse(Flight { at, order: self.order, edge, to, data: piece.to_vec() }));
            }
        }
        while let Some(e) = self.nodes[from].poll_event() {
            self.events[from].push(e);
        }
    }

    pub fn step(&mut self) -> bool {
        for n in 0..self.nodes.len() {
            self.flush(n);
        }
        let timeouts = self.nodes.iter().filter_map(Node::poll_timeout);
        let Some(next) = timeouts.chain(self.flights.peek().map(|f| f.0.at)).chain(self.wake_at.filter(|at| *at > self.now)).min() else {
            return false;
        };
        self.now = self.now.max(next);
        while self.flights.peek().is_some_and(|f| f.0.at <= self.now) {
            let Some(Reverse(mut f)) = self.flights.pop() else { break };
            if self.dead[f.to] {
                continue;
            }
            let [a, b] = self.edges[f.edge].ends;
            let from = if f.to == a { b } else { a };
            let local = address(f.edge, f.to).ip();
            self.nodes[f.to].handle_datagram(self.now, address(f.edge, from), Some(local), Ecn::NotEct, &mut f.data);
            self.flush(f.to);
        }
        for n in 0..self.nodes.len() {
            if self.nodes[n].poll_timeout().is_some_and(|t| t <= self.now) {
                self.nodes[n].handle_timeout(self.now);
                self.flush(n);
            }
        }
        true
    }

    /// Runs until `done` or for `limit`; true if it was done.
    pub fn run_until(&mut self, limit: Duration, mut done: impl FnMut(&mut Self) -> bool) -> bool {
        let end = self.now + limit;
        let (mut still, mut last) = (0, self.now);
        loop {
            if done(self) {
                return true;
            }
            still = if self.now == last { still + 1 } else { 0 };
            last = self.now;
            assert!(still < 10_000, "time stands still at {:?}", self.now);
            if self.now > end || !self.step() {
                return done(self);
            }
        }
    }

    pub fn run(&mut self, time: Duration) {
        self.run_until(time, |_| false);
    }

    pub fn take<T>(&mut self, node: usize, mut pick: impl FnMut(&Event) -> Option<T>) -> Option<T> {
        let at = self.events[node].iter().position(|e| pick(e).is_some())?;
        pick(&self.events[node].remove(at))
    }

    /// The next flow that was opened to a node.
    pub fn incoming_flow(&mut self, node: usize) -> Option<FlowId> {
        self.take(node, |e| match e {
            Event::FlowIncoming { flow, .. } => Some(*flow),
            _ => None,
        })
    }

    pub fn open(&mut self, from: usize, to: usize) -> SessionId {
        let now = self.now;
        self.nodes[from].open_session_to(now, ip(to), None).unwrap()
    }

    pub fn stream(&mut self, from: usize, session: SessionId) -> Stream {
        let now = self.now;
        let flow = self.nodes[from].open_flow(now, session, FlowOptions { kind: FlowKind::Stream, ..Default::default() }).unwrap();
        Stream {
            from,
            flow,
            incoming: None,
            written: 0,
            pending: Vec::new(),
            is_finished: false,
            got: 0,
            is_ended: false,
            is_right: true,
            is_delivered: false,
        }
    }
}

/// A byte of the content at a place.
fn byte(at: u64) -> u8 {
    (at.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 56) as u8
}

/// A stream whose content is known at every place.
pub struct Stream {
    from: usize,
    pub flow: FlowId,
    incoming: Option<(usize, FlowId)>,
    pub written: u64,
    /// Content that waits for room, from `written` on.
    pending: Vec<u8>,
    is_finished: bool,
    /// Bytes read.
    pub got: u64,
    pub is_ended: bool,
    pub is_right: bool,
    pub is_delivered: bool,
}

impl Stream {
    /// Writes what fits of the first `size` bytes.
    pub fn write(&mut self, m: &mut Mesh, size: u64) {
        while self.written < size {
            if self.pending.is_empty() {
                self.pending = (self.written..size.min(self.written + 65536)).map(byte).collect();
            }
            match m.nodes[self.from].write(m.now, self.flow, &self.pending) {
                Ok(n) => {
                    self.written += n as u64;
                    self.pending.drain(..n);
                }
                Err(_) => return,
            }
        }
        if !self.is_finished {
            self.is_finished = m.nodes[self.from].finish(m.now, self.flow).is_ok();
        }
    }

    /// Reads what is there at `node`.
    pub fn read(&mut self, m: &mut Mesh, node: usize) {
        if self.incoming.is_none() {
            self.incoming = m.incoming_flow(node).map(|flow| (node, flow));
        }
        let Some((node, flow)) = self.incoming else { return };
        while !self.is_ended {
            match m.nodes[node].read(m.now, flow, 1 << 20) {
                Ok(Some(bytes)) if bytes.is_empty() => self.is_ended = true,
                Ok(Some(bytes)) => {
                    self.is_right &= bytes.iter().zip(self.got..).all(|(b, at)| *b == byte(at));
                    self.got += bytes.len() as u64;
                }
                _ => break,
            }
        }
        let ours = self.flow;
        self.is_delivered |= m.take(self.from, |e| (*e == Event::FlowDelivered(ours)).then_some(())).is_some();
    }

    /// Sends `size` bytes to `to`; true if all of them arrived and are known to have.
    pub fn transfer(&mut self, m: &mut Mesh, to: usize, size: u64, limit: Duration) -> bool {
        let is_done = m.run_until(limit, |m| {
            self.write(m, size);
            self.read(m, to);
            self.is_ended && self.is_delivered
        });
        assert!(self.is_right, "what arrived is what was sent");
        is_done && self.got == size
    }
}

//! Two nodes joined by a link in virtual time: delay, independent loss, a seed. The laboratory has the full link model; this one is for the
//! mechanisms of the protocol.
#![allow(dead_code)]

use bytes::Bytes;
use noctule_proto::crypto::SecretKey;
use noctule_proto::event::Event;
use noctule_proto::ids::{FlowId, LinkId, SessionId};
use noctule_proto::units::{Duration, Ecn, Time};
use noctule_proto::{Node, NodeConfig};
use rand_chacha::ChaCha12Rng;
use rand_core::{Rng, SeedableRng};
use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::net::SocketAddr;

pub const A: usize = 0;
pub const B: usize = 1;

/// What happens to datagrams in one direction.
#[derive(Clone)]
pub struct Conditions {
    pub delay: Duration,
    pub loss: f64,
    /// Bytes of UDP payload per second; `None`: no limit.
    pub rate: Option<f64>,
    /// Longest time that a datagram waits for the bottleneck; drop-tail.
    pub queue: Duration,
    /// Datagrams longer than this vanish.
    pub mtu: usize,
    /// Nothing passes in these spans.
    pub outages: Vec<(Time, Time)>,
    /// Each datagram takes up to so much longer, so that datagrams overtake each other.
    pub jitter: Duration,
    /// Share of datagrams that arrive twice.
    pub duplicates: f64,
    /// What becomes of ECN codepoints.
    pub ecn: EcnFate,
}

/// What a path does to ECN codepoints.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum EcnFate {
    /// Marks datagrams that waited longer than this for the bottleneck.
    Marked(Duration),
    /// Passes none on.
    Bleached,
    /// Drops what is marked as capable.
    Dropped,
    /// Marks all that is capable.
    AllMarked,
    /// Passes another codepoint on, ECT(1).
    Remarked,
}

/// Looks at each datagram: from which node, when, its bytes. True: it is lost.
pub type Filter = Box<dyn FnMut(usize, Time, &[u8]) -> bool>;
/// A change of the conditions at an instant.
pub type Change = (Time, Box<dyn FnOnce(&mut [Conditions; 2])>);
/// Looks at each datagram that arrives: from which node, when, its bytes. A copy comes a little sooner from the address that it gives.
pub type Racer = Box<dyn FnMut(usize, Time, &[u8]) -> Option<SocketAddr>>;

/// A node changes its address.
#[derive(Clone, Copy, Debug)]
pub struct Move {
    pub at: Time,
    pub node: usize,
    pub to: SocketAddr,
    /// The node knows of it; otherwise it is a NAT that forgot.
    pub is_known: bool,
}

impl Default for Conditions {
    fn default() -> Self {
        Self {
            delay: Duration::from_millis(10),
            loss: 0.0,
            rate: None,
            queue: Duration::from_millis(50),
            mtu: 1472,
            outages: Vec::new(),
            jitter: Duration::ZERO,
            duplicates: 0.0,
            ecn: EcnFate::Bleached,
        }
    }
}

#[derive(PartialEq, Eq, PartialOrd, Ord)]
struct Flight {
    at: Time,
    order: u64,
    to: usize,
    /// Addresses of both ends, as they were when it was sent.
    from: SocketAddr,
    towards: SocketAddr,
    data: Vec<u8>,
    is_ect: bool,
    is_marked: bool,
}

pub struct Pair {
    pub now: Time,
    pub nodes: [Node; 2],
    pub events: [Vec<Event>; 2],
    pub conditions: [Conditions; 2],
    pub sent: [u64; 2],
    pub sent_bytes: [u64; 2],
    /// Datagrams sent as ECN-capable.
    pub sent_ect: [u64; 2],
    /// Datagrams lost for want of room in the bottleneck's queue.
    pub overflowed: [u64; 2],
    /// Lost, besides what the conditions lose.
    pub filter: Option<Filter>,
    /// Where the nodes are.
    pub addresses: [SocketAddr; 2],
    /// Moves to come, in their order.
    pub moves: std::collections::VecDeque<Move>,
    /// A host that copies datagrams.
    pub racer: Option<Racer>,
    /// Bytes of UDP payload that each node's own system sends at most; it refuses more, and says so.
    pub own_limit: [usize; 2],
    /// Datagrams that it refused.
    pub refused: [u64; 2],
    /// What is sent to this address is passed on to the other node, so much later.
    pub relayed: Option<(SocketAddr, Duration)>,
    /// Datagrams to addresses where nobody is: where, when, how many bytes.
    pub strays: Vec<(SocketAddr, Time, usize)>,
    /// The host of a node is suspended from the first instant to the second: it does nothing and hears nothing.
    pub suspended: [Option<(Time, Time)>; 2],
    /// The host of a node is busy with other things: it hears, does and sends something only at multiples of this.
    pub turns: [Option<Duration>; 2],
    /// When datagrams arrived at each node, and how large they were, if wanted.
    pub arrivals: Option<[Vec<(Time, usize)>; 2]>,
    /// Changes to come, in their order.
    pub changes: std::collections::VecDeque<Change>,
    busy_until: [Time; 2],
    flights: BinaryHeap<Reverse<Flight>>,
    rng: ChaCha12Rng,
    order: u64,
}

pub fn address(i: usize) -> SocketAddr {
    SocketAddr::from(([10, 0, 0, 1 + i as u8], 4000))
}

pub fn key(i: u8) -> SecretKey {
    SecretKey::from_bytes([i + 7; 32])
}

impl Pair {
    pub fn new(configs: [NodeConfig; 2], conditions: Conditions, seed: u64) -> Self {
        let [a, b] = configs;
        let now = Time::from_millis(1000);
        let node = |c, i: u8| Node::new(c, key(i), [seed as u8 ^ (i + 1); 32], now);
        Self {
            now,
            nodes: [node(a, 0), node(b, 1)],
            events: [Vec::new(), Vec::new()],
            conditions: [conditions.clone(), conditions],
            sent: [0; 2],
            sent_bytes: [0; 2],
            sent_ect: [0; 2],
            overflowed: [0; 2],
            filter: None,
            addresses: [address(A), address(B)],
            moves: Default::default(),
            racer: None,
            own_limit: [usize::MAX; 2],
            refused: [0; 2],
            relayed: None,
            strays: Vec::new(),
            suspended: [None; 2],
            turns: [None; 2],
            arrivals: None,
            changes: Default::default(),
            busy_until: [now; 2],
            flights: BinaryHeap::new(),
            rng: ChaCha12Rng::seed_from_u64(seed),
            order: 0,
        }
    }

    pub fn simple(loss: f64, seed: u64) -> Self {
        Self::new(Default::default(), Conditions { loss, ..Conditions::default() }, seed)
    }

    /// A connects to B, pinned, and opens a session.
    pub fn connect(&mut self) -> (LinkId, SessionId) {
        let peer = self.nodes[B].public_key();
        let link = self.nodes[A].connect(self.now, self.addresses[B], Some(peer)).unwrap();
        let session = self.nodes[A].open_session(self.now, link).unwrap();
        (link, session)
    }

    fn is_suspended(&self, node: usize) -> bool {
        self.suspended[node].is_some_and(|(from, to)| from <= self.now && self.now < to)
    }

    /// When the node does something next, at the earliest: now, or at the next turn of a busy host.
    fn turn(&self, node: usize, from: Time) -> Time {
        let Some(every) = self.turns[node] else { return from };
        Time::from_nanos(from.as_nanos().next_multiple_of(every.as_nanos() as u64))
    }

    fn is_awake(&self, node: usize) -> bool {
        !self.is_suspended(node) && self.turn(node, self.now) == self.now
    }

    fn flush(&mut self, from: usize) {
        if !self.is_awake(from) {
            return;
        }
        let mut buf = Vec::new();
        let mut trains = 0;
        while let Some(t) = self.nodes[from].poll_transmit(self.now, 8, &mut buf) {
            assert!(t.len == buf.len() && t.len > 0);
            trains += 1;
            assert!(
                trains < 20_000,
                "sends without end at {:?}: {} {:?}",
                self.now,
                t.len,
                self.nodes[from].sessions().next().and_then(|(_, l)| self.nodes[from].link_stats(l))
            );
            let size = t.segment_size.unwrap_or(t.len);
            if size > self.own_limit[from] {
                self.nodes[from].on_size_refused(self.now, t.remote, size as u16, self.now);
            }
            for piece in buf.chunks(size) {
                // The driver sends what is left of a refused train alone.
                if piece.len() > self.own_limit[from] {
                    self.refused[from] += 1;
                    continue;
                }
                self.sent[from] += 1;
                self.sent_bytes[from] += piece.len() as u64;
                let is_ect = t.ecn != Ecn::NotEct;
                self.sent_ect[from] += u64::from(is_ect);
                let c = &self.conditions[from];
                if let Some(rate) = c.rate {
                    let busy = self.busy_until[from].max(self.now);
                    self.busy_until[from] = busy + Duration::from_secs_f64(piece.len() as f64 / rate);
                    if busy.since(self.now) > c.queue {
                        self.busy_until[from] = busy;
                        self.overflowed[from] += 1;
                        continue;
                    }
                } else {
                    self.busy_until[from] = self.now;
                }
                let lost = (self.rng.next_u64() as f64 / u64::MAX as f64) < c.loss;
                let out = c.outages.iter().any(|(a, b)| *a <= self.now && self.now < *b);
                let filtered = self.filter.as_mut().is_some_and(|f| f(from, self.now, piece));
                if lost || out || filtered || piece.len() > c.mtu || (is_ect && c.ecn == EcnFate::Dropped) {
                    continue;
                }
                let queue = self.busy_until[from].since(self.now);
                let is_marked = is_ect && (c.ecn == EcnFate::AllMarked || matches!(c.ecn, EcnFate::Marked(limit) if queue > limit));
                let racing = self.racer.as_mut().and_then(|r| r(from, self.now, piece));
                let copies = if c.duplicates > 0.0 && (self.rng.next_u64() as f64 / u64::MAX as f64) < c.duplicates { 2 } else { 1 };
                for _ in 0..copies {
                    let late = if c.jitter.is_zero() { Duration::ZERO } else { c.jitter * (self.rng.next_u32() % 1000) / 1000 };
                    self.order += 1;
                    self.flights.push(Reverse(Flight {
                        at: self.busy_until[from] + c.delay + late,
                        order: self.order,
                        to: 1 - from,
                        from: self.addresses[from],
                        towards: t.remote,
                        data: piece.to_vec(),
                        is_ect: is_ect && c.ecn != EcnFate::Bleached,
                        is_marked,
                    }));
                    if let Some(address) = racing {
                        self.flights.push(Reverse(Flight {
                            at: (self.busy_until[from] + c.delay + late).saturating_sub(Duration::from_micros(100)),
                            order: self.order,
                            to: 1 - from,
                            from: address,
                            towards: t.remote,
                            data: piece.to_vec(),
                            is_ect: false,
                            is_marked: false,
                        }));
                    }
                }
            }
        }
        while let Some(e) = self.nodes[from].poll_event() {
            self.events[from].push(e);
        }
    }

    /// Lets everything that is due now happen, then moves on to the next thing. False when nothing will ever happen again.
    pub fn step(&mut self) -> bool {
        self.flush(A);
        self.flush(B);
        let timeout = |n: usize| {
            if self.turns[n].is_some() {
                return Some(self.turn(n, self.now + Duration::from_nanos(1)));
            }
            let due = self.nodes[n].poll_timeout()?;
            Some(self.suspended[n].map_or(due, |(from, to)| if due >= from { due.max(to) } else { due }))
        };
        let next = [timeout(A), timeout(B), self.flights.peek().map(|f| f.0.at)].into_iter().flatten();
        let next = next.chain(self.changes.front().map(|c| c.0)).chain(self.moves.front().map(|m| m.at)).min();
        let Some(next) = next else { return false };
        self.now = self.now.max(next);
        while self.changes.front().is_some_and(|c| c.0 <= self.now) {
            if let Some((_, change)) = self.changes.pop_front() {
                change(&mut self.conditions);
            }
        }
        while let Some(m) = self.moves.front().copied().filter(|m| m.at <= self.now) {
            self.moves.pop_front();
            self.addresses[m.node] = m.to;
            if m.is_known {
                self.nodes[m.node].migrate(self.now);
            }
        }
        while self.flights.peek().is_some_and(|f| f.0.at <= self.now) {
            let Some(Reverse(mut f)) = self.flights.pop() else { break };
            if let Some((_, delay)) = self.relayed.filter(|(relay, _)| *relay == f.towards) {
                (f.at, f.towards) = (f.at + delay, self.addresses[f.to]);
                self.flights.push(Reverse(f));
                continue;
            }
            if f.towards != self.addresses[f.to] {
                self.strays.push((f.towards, self.now, f.data.len()));
                continue;
            }
            if self.is_suspended(f.to) {
                continue;
            }
            if !self.is_awake(f.to) {
                f.at = self.turn(f.to, self.now);
                self.flights.push(Reverse(f));
                continue;
            }
            if let Some(arrivals) = &mut self.arrivals {
                arrivals[f.to].push((self.now, f.data.len()));
            }
            let is_remarked = self.conditions[1 - f.to].ecn == EcnFate::Remarked;
            let ecn = match (f.is_marked, f.is_ect) {
                (true, _) => Ecn::Ce,
                (_, true) if is_remarked => Ecn::Ect1,
                (_, true) => Ecn::Ect0,
                _ => Ecn::NotEct,
            };
            self.nodes[f.to].handle_datagram(self.now, f.from, None, ecn, &mut f.data);
            self.flush(f.to);
        }
        for n in 0..2 {
            if self.is_awake(n) && self.nodes[n].poll_timeout().is_some_and(|t| t <= self.now) {
                self.nodes[n].handle_timeout(self.now);
            }
            self.flush(n);
        }
        true
    }

    /// Runs until `done` or for `limit`; true if it was done.
    pub fn run_until(&mut self, limit: Duration, mut done: impl FnMut(&mut Self) -> bool) -> bool {
        let end = self.now + limit;
        let mut steps = 0u64;
        let (mut still, mut last) = (0, self.now);
        loop {
            if done(self) {
                return true;
            }
            steps += 1;
            assert!(steps < 3_000_000, "the nodes are busy without end");
            // Time must move: a deadline in the past that nothing removes is a defect.
            still = if self.now == last { still + 1 } else { 0 };
            last = self.now;
            assert!(
                still < 10_000,
                "time stands still at {:?}: {:?} {:?}",
                self.now,
                self.nodes[A].poll_timeout(),
                self.nodes[B].poll_timeout()
            );
            if !self.step() || self.now > end {
                return done(self);
            }
        }
    }

    /// The event that `pick` accepts, removed.
    pub fn take<T>(&mut self, node: usize, mut pick: impl FnMut(&Event) -> Option<T>) -> Option<T> {
        let at = self.events[node].iter().position(|e| pick(e).is_some())?;
        pick(&self.events[node].remove(at))
    }

    pub fn incoming_flow(&mut self, node: usize) -> Option<(FlowId, noctule_proto::options::FlowOptions)> {
        self.take(node, |e| match e {
            Event::FlowIncoming { flow, options, .. } => Some((*flow, options.clone())),
            _ => None,
        })
    }

    /// Sends `data` on a stream from A to B and returns what B read. Panics if it does not arrive in `limit`.
    pub fn transfer(&mut self, session: SessionId, data: &[u8], limit: Duration) -> Vec<u8> {
        let (got, is_done) = self.attempt(session, data, limit, |_| true);
        assert!(
            is_done,
            "transfer incomplete: {} of {} bytes at {:?}; events {:?} {:?}",
            got.len(),
            data.len(),
            self.now,
            self.events[A],
            self.events[B]
        );
        got
    }

    /// The same, but it may fail: what was read, and whether everything was and A knows it. B reads while `is_reading`.
    pub fn attempt(&mut self, session: SessionId, data: &[u8], limit: Duration, is_reading: impl Fn(Time) -> bool) -> (Vec<u8>, bool) {
        use noctule_proto::options::{FlowKind, FlowOptions};
        let flow = self.nodes[A].open_flow(self.now, session, FlowOptions { kind: FlowKind::Stream, ..Default::default() }).unwrap();
        let mut written = 0;
        let mut finished = false;
        let mut incoming = None;
        let mut got = Vec::new();
        let mut ended = false;
        let done = self.run_until(limit, |p| {
            while written < data.len() {
                match p.nodes[A].write(p.now, flow, &data[written..]) {
                    Ok(n) => written += n,
                    Err(noctule_proto::error::CommandError::Blocked) => break,
                    // The link is gone, and the transfer has failed.
                    Err(_) => break,
                }
            }
            if written == data.len() && !finished {
                finished = true;
                let _ = p.nodes[A].finish(p.now, flow);
            }
            if incoming.is_none() {
                incoming = p.incoming_flow(B).map(|f| f.0);
            }
            if let Some(f) = incoming.filter(|_| is_reading(p.now)) {
                while !ended {
                    match p.nodes[B].read(p.now, f, 1 << 20) {
                        Ok(Some(chunk)) if chunk.is_empty() => ended = true,
                        Ok(Some(chunk)) => got.extend_from_slice(&chunk),
                        Ok(None) => break,
                        Err(_) => break,
                    }
                }
            }
            ended && p.take(A, |e| matches!(e, Event::FlowDelivered(f) if *f == flow).then_some(())).is_some()
        });
        (got, done)
    }
}

pub fn content(len: usize, seed: u64) -> Vec<u8> {
    let mut data = vec![0; len];
    ChaCha12Rng::seed_from_u64(seed).fill_bytes(&mut data);
    data
}

pub fn bytes(len: usize, seed: u64) -> Bytes {
    Bytes::from(content(len, seed))
}

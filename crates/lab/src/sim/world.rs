//! The engine: hosts joined by links in virtual time. It knows nothing of the protocol; a [`Host`] is anything that handles datagrams and time.
//!
//! Deterministic: what is due at the same moment happens in the order of its number. Packets live in buffers that are used again, so that
//! a run allocates nothing per packet once it is warm.

use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::net::{IpAddr, SocketAddr};

use noctule_proto::node::Transmit;
use noctule_proto::units::{Ecn, Time};

use crate::link::{LinkModel, LinkSpec, SpecError, flip_bits};

/// A machine that speaks datagrams; answers the verbs of the protocol's node.
pub trait Host {
    /// A datagram arrived.
    fn handle_datagram(&mut self, now: Time, remote: SocketAddr, local: IpAddr, ecn: Ecn, data: &mut [u8]);
    /// `poll_timeout` is due.
    fn handle_timeout(&mut self, now: Time);
    /// The next datagrams to send, in `buf`.
    fn poll_transmit(&mut self, now: Time, buf: &mut Vec<u8>) -> Option<Transmit>;
    /// When to call `handle_timeout`.
    fn poll_timeout(&self) -> Option<Time>;
    /// Lets the host's application react to its events; true if it did anything, after which `poll_transmit` is asked again.
    fn pump(&mut self, now: Time) -> bool;
}

/// A run that cannot go on.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum WorldError {
    /// A host asks to be woken at a moment that has passed, again and again.
    #[error("host {host} asks for the same moment {at:?} without end")]
    Spinning {
        /// Number of the host.
        host: usize,
        /// The moment.
        at: Time,
    },
    /// A host announces more bytes than it wrote.
    #[error("host {host} announced {announced} bytes to send and wrote {written}")]
    ShortTransmit {
        /// Number of the host.
        host: usize,
        /// `Transmit::len`.
        announced: usize,
        /// Length of the buffer.
        written: usize,
    },
}

/// Index of a host.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct HostId(pub usize);

/// Index of a link, one direction.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct PipeId(pub usize);

#[derive(Clone)]
struct Packet {
    /// Number of its route.
    route: usize,
    /// Which of the route's links it is on.
    stage: usize,
    from: SocketAddr,
    ecn: Ecn,
    data: Vec<u8>,
}

/// The links between two hosts: one, or several with routers between them that pass on what fits the next one.
struct Route {
    from: HostId,
    to: HostId,
    /// Of several paths between two hosts, which: each end has an address of its own for each.
    lane: usize,
    pipes: Vec<PipeId>,
}

struct Slot<H> {
    host: H,
    addr: SocketAddr,
    /// Further addresses, from the second lane on.
    lanes: Vec<SocketAddr>,
    /// Numbers of the routes that begin here.
    routes: Vec<usize>,
    /// Times that the host asked in a row for a moment that was not later than the last.
    spins: u32,
}

impl<H> Slot<H> {
    fn address(&self, lane: usize) -> SocketAddr {
        lane.checked_sub(1).and_then(|i| self.lanes.get(i)).copied().unwrap_or(self.addr)
    }
}

/// What the heap orders: first the time, then pipes before hosts, then the number.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Due {
    Pipe(usize),
    Host(usize),
}

/// A host that asks for no later moment so often in a row will never stop.
const SPINS: u32 = 10_000;

/// Bytes of IP and UDP header on top of a datagram.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct WireOverhead(pub u32);

/// Hosts, links and the clock.
pub struct World<H> {
    now: Time,
    overhead: u32,
    hosts: Vec<Slot<H>>,
    pipes: Vec<LinkModel<Packet>>,
    routes: Vec<Route>,
    heap: BinaryHeap<Reverse<(Time, Due)>>,
    /// The earliest entry of the heap per pipe and per host; later ones are stale.
    pipe_due: Vec<Time>,
    host_due: Vec<Time>,
    pool: Vec<Vec<u8>>,
    transmit_buf: Vec<u8>,
    packets: u64,
    unroutable: u64,
    tap: Option<Tap>,
}

/// Where a datagram is seen.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Sighting {
    /// Before this link, as it leaves its host.
    Leaves(PipeId),
    /// Before this link, as a router passes it on.
    Passes(PipeId),
    /// Behind this link.
    Arrives(PipeId),
}

/// Sees every datagram at both ends of every link: when, where, from where, where to, its ECN field, its bytes.
pub type Tap = Box<dyn FnMut(Time, Sighting, SocketAddr, SocketAddr, Ecn, &[u8]) + Send>;

impl<H: Host> World<H> {
    /// An empty world.
    pub fn new(overhead: WireOverhead) -> Self {
        Self {
            now: Time::ZERO,
            overhead: overhead.0,
            hosts: Vec::new(),
            pipes: Vec::new(),
            routes: Vec::new(),
            heap: BinaryHeap::new(),
            pipe_due: Vec::new(),
            host_due: Vec::new(),
            pool: Vec::new(),
            transmit_buf: Vec::new(),
            packets: 0,
            unroutable: 0,
            tap: None,
        }
    }

    /// Adds a host.
    pub fn add_host(&mut self, addr: SocketAddr, host: H) -> HostId {
        self.hosts.push(Slot { host, addr, lanes: Vec::new(), routes: Vec::new(), spins: 0 });
        self.host_due.push(Time::MAX);
        HostId(self.hosts.len() - 1)
    }

    /// Adds one direction of a link.
    pub fn add_pipe(&mut self, spec: &LinkSpec, seed: u64) -> Result<PipeId, SpecError> {
        self.pipes.push(LinkModel::new(spec, seed)?);
        self.pipe_due.push(Time::MAX);
        Ok(PipeId(self.pipes.len() - 1))
    }

    /// What `from` sends to the address of `to` goes through `pipe`.
    pub fn add_route(&mut self, from: HostId, to: HostId, pipe: PipeId) {
        self.add_route_over(from, to, vec![pipe]);
    }

    /// What `from` sends to the address of `to` goes through all of `pipes`, one after the other; through none, it is lost.
    pub fn add_route_over(&mut self, from: HostId, to: HostId, pipes: Vec<PipeId>) {
        self.hosts[from.0].routes.push(self.routes.len());
        self.routes.push(Route { from, to, lane: 0, pipes });
    }

    /// A further path between two hosts, there and back, with addresses of its own; the addresses, of `a` and of `b`.
    pub fn add_lane(&mut self, a: HostId, b: HostId, there: PipeId, back: PipeId) -> (SocketAddr, SocketAddr) {
        let lane = 1 + self.hosts[a.0].lanes.len().max(self.hosts[b.0].lanes.len());
        let mut add = |host: HostId| {
            let slot = &mut self.hosts[host.0];
            while slot.lanes.len() < lane {
                slot.lanes.push(beside(slot.addr, slot.lanes.len() + 1));
            }
            slot.address(lane)
        };
        let addresses = (add(a), add(b));
        for (from, to, pipe) in [(a, b, there), (b, a, back)] {
            self.hosts[from.0].routes.push(self.routes.len());
            self.routes.push(Route { from, to, lane, pipes: vec![pipe] });
        }
        addresses
    }

    /// Gives a host another address; what is sent to the old one is lost, as after a change of network.
    pub fn rebind(&mut self, host: HostId, addr: SocketAddr) {
        self.hosts[host.0].addr = addr;
    }

    /// A host.
    pub fn host(&self, id: HostId) -> &H {
        &self.hosts[id.0].host
    }

    /// A host, to prepare it before anything has happened; afterwards [`World::with_host`] also lets it send.
    pub fn host_mut(&mut self, id: HostId) -> &mut H {
        &mut self.hosts[id.0].host
    }

    /// Every host.
    pub fn hosts(&self) -> impl Iterator<Item = &H> {
        self.hosts.iter().map(|slot| &slot.host)
    }

    /// The number of every host.
    pub fn host_ids(&self) -> impl Iterator<Item = HostId> + use<H> {
        (0..self.hosts.len()).map(HostId)
    }

    /// One direction of a link.
    pub fn pipe_stats(&self, id: PipeId) -> &crate::link::LinkStats {
        self.pipes[id.0].stats()
    }

    /// Lets every link count anew.
    pub fn clear_pipe_stats(&mut self) {
        for pipe in &mut self.pipes {
            pipe.clear_stats();
        }
    }

    /// The present moment.
    pub fn now(&self) -> Time {
        self.now
    }

    /// Datagrams handed to links so far.
    pub fn packets(&self) -> u64 {
        self.packets
    }

    /// Datagrams sent to an address that nobody has.
    pub fn unroutable(&self) -> u64 {
        self.unroutable
    }

    /// Lets `tap` see every datagram from now on.
    pub fn set_tap(&mut self, tap: Tap) {
        self.tap = Some(tap);
    }

    /// Runs until nothing is due at or before `until`, and sets the clock to it.
    pub fn run_until(&mut self, until: Time) -> Result<(), WorldError> {
        while let Some(&Reverse((at, due))) = self.heap.peek() {
            if at > until {
                break;
            }
            self.heap.pop();
            self.now = self.now.max(at);
            match due {
                Due::Pipe(i) if self.pipe_due[i] == at => self.run_pipe(i)?,
                Due::Host(i) if self.host_due[i] == at => self.run_host_timer(i)?,
                _ => {} // stale
            }
        }
        self.now = self.now.max(until);
        Ok(())
    }

    /// Calls `act` on a host and then lets it send; how anything from outside happens to a host.
    pub fn with_host<R>(&mut self, id: HostId, act: impl FnOnce(&mut H, Time) -> R) -> Result<R, WorldError> {
        let result = act(&mut self.hosts[id.0].host, self.now);
        self.drain(id.0)?;
        Ok(result)
    }

    fn run_pipe(&mut self, i: usize) -> Result<(), WorldError> {
        self.pipe_due[i] = Time::MAX;
        while let Some(mut delivery) = self.pipes[i].poll_deliver(self.now) {
            let mut packet = delivery.packet;
            if let Some(seed) = delivery.corrupt.take() {
                flip_bits(&mut packet.data, seed);
            }
            packet.ecn = delivery.ecn;
            packet.stage += 1;
            let Route { to, lane, pipes, .. } = &self.routes[packet.route];
            let (to, lane) = (*to, *lane);
            let next = pipes.get(packet.stage).copied();
            if let Some(tap) = &mut self.tap {
                let remote = self.hosts[to.0].address(lane);
                for sighting in [Some(Sighting::Arrives(PipeId(i))), next.map(Sighting::Passes)].into_iter().flatten() {
                    tap(self.now, sighting, packet.from, remote, packet.ecn, &packet.data);
                }
            }
            if let Some(next) = next {
                self.enqueue(next, packet);
                self.schedule_pipe(next.0);
                continue;
            }
            let slot = &mut self.hosts[to.0];
            let local = slot.address(lane).ip();
            slot.host.handle_datagram(self.now, packet.from, local, packet.ecn, &mut packet.data);
            self.pool.push(packet.data);
            self.drain(to.0)?;
        }
        while let Some(lost) = self.pipes[i].poll_discarded() {
            self.pool.push(lost.data);
        }
        self.schedule_pipe(i);
        Ok(())
    }

    fn run_host_timer(&mut self, i: usize) -> Result<(), WorldError> {
        self.host_due[i] = Time::MAX;
        // The timeout may have moved on since it was put into the heap.
        if self.hosts[i].host.poll_timeout().is_some_and(|at| at <= self.now) {
            self.hosts[i].host.handle_timeout(self.now);
            self.drain(i)?;
        } else {
            self.schedule_host(i)?;
        }
        Ok(())
    }

    /// Sends all that a host wants to send, lets its application react, and asks for its next timeout.
    fn drain(&mut self, i: usize) -> Result<(), WorldError> {
        loop {
            let mut buf = std::mem::take(&mut self.transmit_buf);
            while let Some(transmit) = self.hosts[i].host.poll_transmit(self.now, &mut buf) {
                self.send(i, &transmit, &buf)?;
            }
            self.transmit_buf = buf;
            if !self.hosts[i].host.pump(self.now) {
                break;
            }
        }
        self.schedule_host(i)
    }

    fn send(&mut self, i: usize, transmit: &Transmit, buf: &[u8]) -> Result<(), WorldError> {
        let short = WorldError::ShortTransmit { host: i, announced: transmit.len, written: buf.len() };
        let bytes = buf.get(..transmit.len).ok_or(short)?;
        let slot = &self.hosts[i];
        let leads = |route: &Route| self.hosts[route.to.0].address(route.lane) == transmit.remote;
        let route = slot.routes.iter().copied().find(|&route| leads(&self.routes[route]));
        let Some((route, first)) = route.and_then(|route| Some((route, *self.routes[route].pipes.first()?))) else {
            self.unroutable += 1;
            return Ok(());
        };
        let from = slot.address(self.routes[route].lane);
        for segment in bytes.chunks(transmit.segment_size.unwrap_or(transmit.len).max(1)) {
            let mut data = self.pool.pop().unwrap_or_default();
            data.clear();
            data.extend_from_slice(segment);
            self.packets += 1;
            if let Some(tap) = &mut self.tap {
                tap(self.now, Sighting::Leaves(first), from, transmit.remote, transmit.ecn, segment);
            }
            self.enqueue(first, Packet { route, stage: 0, from, ecn: transmit.ecn, data });
        }
        self.schedule_pipe(first.0);
        Ok(())
    }

    fn enqueue(&mut self, pipe: PipeId, packet: Packet) {
        let Route { from, to, lane, .. } = self.routes[packet.route];
        // A pair of addresses is a flow to the queues on the path: all its datagrams have one 5-tuple.
        let flow = ((lane as u64) << 48) ^ ((from.0 as u64) << 32) | to.0 as u64;
        let wire_len = packet.data.len() as u32 + self.overhead;
        if let Err(dropped) = self.pipes[pipe.0].enqueue_of_flow(self.now, flow, wire_len, packet.ecn, packet) {
            self.pool.push(dropped.packet.data);
        }
    }

    fn schedule_pipe(&mut self, i: usize) {
        if let Some(at) = self.pipes[i].next_deadline()
            && at < self.pipe_due[i]
        {
            self.pipe_due[i] = at;
            self.heap.push(Reverse((at, Due::Pipe(i))));
        }
    }

    fn schedule_host(&mut self, i: usize) -> Result<(), WorldError> {
        let Some(at) = self.hosts[i].host.poll_timeout() else {
            self.hosts[i].spins = 0;
            return Ok(());
        };
        let at = if at > self.now {
            self.hosts[i].spins = 0;
            at
        } else {
            self.hosts[i].spins += 1;
            if self.hosts[i].spins > SPINS {
                return Err(WorldError::Spinning { host: i, at });
            }
            self.now
        };
        if at < self.host_due[i] {
            self.host_due[i] = at;
            self.heap.push(Reverse((at, Due::Host(i))));
        }
        Ok(())
    }
}

/// The address of a host in another of the networks that it is in.
fn beside(address: SocketAddr, lane: usize) -> SocketAddr {
    let ip = match address.ip() {
        IpAddr::V4(ip) => {
            let [a, b, c, d] = ip.octets();
            IpAddr::from([a.wrapping_add(lane as u8), b, c, d])
        }
        IpAddr::V6(ip) => {
            let mut segments = ip.segments();
            segments[1] = lane as u16;
            IpAddr::from(segments)
        }
    };
    SocketAddr::new(ip, address.port())
}

#[cfg(test)]
#[path = "world_tests.rs"]
mod tests;

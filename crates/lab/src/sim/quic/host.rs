//! A host of the simulator that speaks QUIC: one connection, one stream from client to server, of whatever its load is.

use std::collections::VecDeque;
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;
use std::time::{Duration, Instant};

use bytes::{Bytes, BytesMut};
use noctule_proto::node::Transmit;
use noctule_proto::units::{Ecn, Time};
use quinn_proto::{ClientConfig, Connection, ConnectionHandle, DatagramEvent, Dir, EcnCodepoint, Endpoint, Event, StreamEvent, StreamId};

use super::config::{self, QuicCongestion};
use crate::sim::meter::{Meter, Window};
use crate::sim::world::Host;

/// Datagrams of one train: what quinn hands to the kernel at once.
const MAX_SEGMENTS: usize = 10;
/// What the application writes at once.
const BLOCK: usize = 64 * 1024;

/// What the client sends.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum QuicLoad {
    /// As much as goes.
    Bulk,
    /// So many bytes, and the end of the stream.
    Once(u64),
    /// So many bytes at `from` and every `interval` after it; the server's meter counts each as a message when it has all of it.
    Frames {
        /// Bytes of each.
        size: usize,
        /// Time of the first.
        from: Time,
        /// Between two.
        interval: Duration,
    },
    /// What [`QuicHost::pass_on`] is given.
    Relayed,
}

impl QuicLoad {
    /// Bytes that the client is to have written by then.
    fn due_by(self, now: Time) -> u64 {
        match self {
            Self::Bulk => u64::MAX,
            Self::Once(bytes) => bytes,
            Self::Frames { size, from, interval } if now >= from => {
                size as u64 * (1 + u64::try_from(now.since(from).as_nanos() / interval.as_nanos().max(1)).unwrap_or(u64::MAX - 1))
            }
            Self::Frames { .. } | Self::Relayed => 0,
        }
    }

    /// When frame number `index` is to be sent.
    fn time_of(self, index: u64) -> Time {
        match self {
            Self::Frames { from, interval, .. } => from + Duration::from_nanos(interval.as_nanos() as u64 * index),
            Self::Bulk | Self::Once(_) | Self::Relayed => Time::MAX,
        }
    }
}

/// A connection to be.
#[derive(Debug, Clone, Copy)]
pub struct QuicPlan {
    /// Of both ends.
    pub congestion: QuicCongestion,
    /// Largest UDP payload.
    pub max_datagram: u16,
    /// Bytes that the receiver lets be under way.
    pub receive_window: u32,
    /// What the client sends.
    pub load: QuicLoad,
    /// What the server's meter counts.
    pub window: Window,
    /// Of everything random.
    pub seed: u64,
}

impl QuicPlan {
    /// Data without end, with windows that never limit.
    pub fn bulk(congestion: QuicCongestion, max_datagram: u16, window: Window, seed: u64) -> Self {
        Self { congestion, max_datagram, receive_window: config::WINDOW, load: QuicLoad::Bulk, window, seed }
    }
}

/// One end.
pub struct QuicHost {
    endpoint: Endpoint,
    /// quinn's clock is the system's type; only differences to this moment matter.
    epoch: Instant,
    connection: Option<(ConnectionHandle, Connection)>,
    dials: Option<(SocketAddr, ClientConfig)>,
    sends_on: Option<StreamId>,
    load: QuicLoad,
    written: u64,
    replies: VecDeque<(quinn_proto::Transmit, Vec<u8>)>,
    block: Bytes,
    /// What was given to it to be passed on, and waits.
    passes: VecDeque<Bytes>,
    held: usize,
    /// Reads only when it is asked to.
    has_reader: bool,
    reads_from: Option<StreamId>,
    due: Option<Time>,
    /// What the server read.
    pub meter: Meter,
    /// When the far end had acknowledged everything, if that has an end.
    pub delivered: Option<Time>,
    /// How the connection ended before its time, in words.
    pub failure: Option<String>,
}

/// A client that sends and a server that reads.
pub struct QuicPair {
    /// Sends, once started.
    pub client: QuicHost,
    /// Reads.
    pub server: QuicHost,
}

impl QuicPair {
    /// Two ends; the client will connect to `server`.
    pub fn new(plan: QuicPlan, server: SocketAddr) -> Result<Self, String> {
        let mut seed = [0; 32];
        seed[..8].copy_from_slice(&plan.seed.to_be_bytes());
        let (endpoint, client, accept) = config::pair(plan.congestion, plan.max_datagram, plan.receive_window, seed)?;
        let epoch = Instant::now();
        let host = |endpoint, dials| QuicHost {
            endpoint,
            epoch,
            connection: None,
            dials,
            sends_on: None,
            load: plan.load,
            written: 0,
            replies: VecDeque::new(),
            block: Bytes::from(vec![0x5a; BLOCK]),
            passes: VecDeque::new(),
            held: 0,
            has_reader: false,
            reads_from: None,
            due: None,
            meter: Meter::new(plan.window),
            delivered: None,
            failure: None,
        };
        Ok(Self {
            client: host(Endpoint::new(Arc::clone(&endpoint), None, false, None), Some((server, client))),
            server: host(Endpoint::new(endpoint, Some(accept), false, None), None),
        })
    }
}

impl QuicHost {
    /// Sends this as well.
    pub fn pass_on(&mut self, now: Time, bytes: Vec<Bytes>) {
        self.held += bytes.iter().map(Bytes::len).sum::<usize>();
        self.passes.extend(bytes);
        self.write(now);
    }

    /// Bytes that were passed on and wait.
    pub fn held(&self) -> usize {
        self.held
    }

    /// From now on it reads only when [`Self::take`] asks it to.
    pub fn waits_for_its_reader(&mut self) {
        self.has_reader = true;
    }

    /// What has come since the last call.
    pub fn take(&mut self, now: Time) -> Vec<Bytes> {
        self.reads_from.map_or_else(Vec::new, |stream| self.read(now, stream))
    }

    /// Begins to connect, if that is this end's part.
    pub fn start(&mut self, now: Time) {
        let Some((remote, config)) = self.dials.take() else { return };
        match self.endpoint.connect(self.instant(now), config, remote, "localhost") {
            Ok(connection) => self.connection = Some(connection),
            Err(error) => self.failure = Some(format!("cannot connect: {error}")),
        }
    }

    fn instant(&self, now: Time) -> Instant {
        self.epoch + Duration::from_nanos(now.as_nanos())
    }

    fn time(&self, at: Instant) -> Time {
        let nanos = at.saturating_duration_since(self.epoch).as_nanos();
        Time::from_nanos(u64::try_from(nanos).unwrap_or(u64::MAX))
    }

    /// Passes messages between the connection and its endpoint.
    fn exchange(&mut self) {
        let Some((handle, connection)) = &mut self.connection else { return };
        while let Some(event) = connection.poll_endpoint_events() {
            if let Some(event) = self.endpoint.handle_event(*handle, event) {
                connection.handle_event(event);
            }
        }
    }

    fn rearm(&mut self) {
        let at = self.connection.as_mut().and_then(|(_, connection)| connection.poll_timeout());
        self.due = at.map(|at| self.time(at));
        if let (Some(_), QuicLoad::Frames { size, .. }) = (self.sends_on, self.load) {
            let next = self.load.time_of(self.written.div_ceil(size.max(1) as u64));
            self.due = Some(self.due.map_or(next, |due| due.min(next)));
        }
    }

    fn write(&mut self, now: Time) {
        let (Some((_, connection)), Some(stream)) = (&mut self.connection, self.sends_on) else { return };
        let due = self.load.due_by(now);
        let mut stream = connection.send_stream(stream);
        // Blocked is the usual end; anything else ends the connection, which `poll` reports.
        while let Some(front) = self.passes.front_mut()
            && let Ok(written) = stream.write_chunks(std::slice::from_mut(front))
        {
            self.held -= written.bytes;
            if front.is_empty() {
                self.passes.pop_front();
            }
        }
        while self.written < due {
            let size = (due - self.written).min(BLOCK as u64) as usize;
            let Ok(written) = stream.write_chunks(&mut [self.block.slice(..size)]) else { break };
            self.written += written.bytes as u64;
        }
        if self.written == due && matches!(self.load, QuicLoad::Once(_)) {
            // Already finished is no error here.
            let _ = stream.finish();
        }
    }

    /// There is something to read.
    fn on_readable(&mut self, now: Time, stream: StreamId) {
        self.reads_from = Some(stream);
        if !self.has_reader {
            self.read(now, stream);
        }
    }

    fn read(&mut self, now: Time, stream: StreamId) -> Vec<Bytes> {
        let mut read = Vec::new();
        let Some((_, connection)) = &mut self.connection else { return read };
        let mut recv = connection.recv_stream(stream);
        let Ok(mut chunks) = recv.read(true) else { return read };
        while let Ok(Some(chunk)) = chunks.next(usize::MAX) {
            let wrong = chunk.bytes.iter().filter(|byte| **byte != 0x5a).count();
            let before = self.meter.bytes;
            self.meter.read(now, chunk.bytes.len(), wrong as u64);
            if let QuicLoad::Frames { size, .. } = self.load {
                for index in before / size as u64..self.meter.bytes / size as u64 {
                    self.meter.message(now, index, self.load.time_of(index), None);
                }
            }
            read.push(chunk.bytes);
        }
        // What it says about frames to send is asked of the connection anyway.
        let _ = chunks.finalize();
        read
    }
}

impl Host for QuicHost {
    fn handle_datagram(&mut self, now: Time, remote: SocketAddr, local: IpAddr, ecn: Ecn, data: &mut [u8]) {
        let at = self.instant(now);
        let mut answer = Vec::new();
        match self.endpoint.handle(at, remote, Some(local), codepoint(ecn), BytesMut::from(&*data), &mut answer) {
            Some(DatagramEvent::ConnectionEvent(_, event)) => {
                if let Some((_, connection)) = &mut self.connection {
                    connection.handle_event(event);
                }
            }
            Some(DatagramEvent::NewConnection(incoming)) => match self.endpoint.accept(incoming, at, &mut answer, None) {
                Ok(connection) => self.connection = Some(connection),
                Err(error) => {
                    self.failure = Some(format!("cannot accept: {}", error.cause));
                    self.replies.extend(error.response.map(|transmit| (transmit, answer)));
                }
            },
            Some(DatagramEvent::Response(transmit)) => self.replies.push_back((transmit, answer)),
            None => {}
        }
        self.exchange();
    }

    fn handle_timeout(&mut self, now: Time) {
        let at = self.instant(now);
        if let Some((_, connection)) = &mut self.connection {
            connection.handle_timeout(at);
        }
        self.write(now);
        self.exchange();
        self.rearm();
    }

    fn poll_transmit(&mut self, now: Time, buf: &mut Vec<u8>) -> Option<Transmit> {
        buf.clear();
        let at = self.instant(now);
        let transmit = if let Some((transmit, answer)) = self.replies.pop_front() {
            buf.extend_from_slice(&answer);
            Some(transmit)
        } else {
            self.connection.as_mut().and_then(|(_, connection)| connection.poll_transmit(at, MAX_SEGMENTS, buf))
        };
        if transmit.is_none() {
            self.exchange();
            self.rearm();
        }
        transmit.map(|transmit| Transmit {
            remote: transmit.destination,
            local: transmit.src_ip,
            ecn: mark(transmit.ecn),
            len: transmit.size,
            segment_size: transmit.segment_size,
        })
    }

    fn poll_timeout(&self) -> Option<Time> {
        self.due
    }

    fn pump(&mut self, now: Time) -> bool {
        let mut any = false;
        while let Some(event) = self.connection.as_mut().and_then(|(_, connection)| connection.poll()) {
            any = true;
            let Some((_, connection)) = &mut self.connection else { break };
            match event {
                Event::Connected if connection.side().is_client() => {
                    self.sends_on = connection.streams().open(Dir::Uni);
                    self.write(now);
                }
                Event::Stream(StreamEvent::Writable { .. } | StreamEvent::Available { .. }) => {
                    if self.sends_on.is_none() && connection.side().is_client() {
                        self.sends_on = connection.streams().open(Dir::Uni);
                    }
                    self.write(now);
                }
                Event::Stream(StreamEvent::Opened { dir: Dir::Uni }) => {
                    while let Some(stream) = self.connection.as_mut().and_then(|(_, c)| c.streams().accept(Dir::Uni)) {
                        self.on_readable(now, stream);
                    }
                }
                Event::Stream(StreamEvent::Readable { id }) => self.on_readable(now, id),
                Event::Stream(StreamEvent::Finished { id }) if self.sends_on == Some(id) => {
                    self.delivered.get_or_insert(now);
                }
                Event::ConnectionLost { reason } => self.failure = Some(format!("connection lost: {reason}")),
                _ => {}
            }
        }
        any
    }
}

fn codepoint(ecn: Ecn) -> Option<EcnCodepoint> {
    match ecn {
        Ecn::NotEct => None,
        Ecn::Ect0 => Some(EcnCodepoint::Ect0),
        Ecn::Ect1 => Some(EcnCodepoint::Ect1),
        Ecn::Ce => Some(EcnCodepoint::Ce),
    }
}

fn mark(ecn: Option<EcnCodepoint>) -> Ecn {
    match ecn {
        None => Ecn::NotEct,
        Some(EcnCodepoint::Ect0) => Ecn::Ect0,
        Some(EcnCodepoint::Ect1) => Ecn::Ect1,
        Some(EcnCodepoint::Ce) => Ecn::Ce,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::link::{LinkSpec, Period};
    use crate::sim::{WireOverhead, World};

    /// Bytes that one connection carries over 20 Mbit/s with 20 ms of delay in 10 s, and how often the wire was used.
    fn carried(congestion: QuicCongestion, loss: f64) -> (u64, u64) {
        let [here, there] = [1, 2].map(|end| SocketAddr::from(([10, 1, 0, end], 4433)));
        let window = Window { from: Time::ZERO, until: Time::MAX };
        let pair = QuicPair::new(QuicPlan::bulk(congestion, 1472, window, 7), there).unwrap();
        let mut world = World::new(WireOverhead(28));
        let mut spec = LinkSpec { rate: Some("20mbit".parse().unwrap()), ..LinkSpec::default() };
        spec.delay = Period(Duration::from_millis(20));
        spec.bdp_rtt = Some(Duration::from_millis(40));
        spec.loss = crate::link::Probability::new(loss).unwrap();
        let forward = world.add_pipe(&spec, 1).unwrap();
        spec.loss = crate::link::Probability::new(0.0).unwrap();
        let reverse = world.add_pipe(&spec, 2).unwrap();
        let client = world.add_host(here, pair.client);
        let server = world.add_host(there, pair.server);
        world.add_route(client, server, forward);
        world.add_route(server, client, reverse);
        world.with_host(client, |host, now| host.start(now)).unwrap();
        world.run_until(Time::from_millis(10_000)).unwrap();
        assert_eq!(world.host(client).failure, None);
        assert_eq!(world.host(server).meter.bytes_wrong, 0);
        (world.host(server).meter.bytes, world.packets())
    }

    #[test]
    fn quic_fills_a_clean_link_and_loses_to_random_loss_by_its_congestion_control() {
        let whole = 10.0 * 20e6 / 8.0;
        for congestion in [QuicCongestion::Cubic, QuicCongestion::Reno, QuicCongestion::Bbr] {
            let (bytes, _) = carried(congestion, 0.0);
            assert!(bytes as f64 > 0.85 * whole, "{congestion:?}: {bytes} of {whole}");
        }
        let (cubic, _) = carried(QuicCongestion::Cubic, 0.03);
        let (bbr, _) = carried(QuicCongestion::Bbr, 0.03);
        assert!(2 * cubic < bbr, "CUBIC {cubic}, BBR {bbr}");
    }

    #[test]
    fn a_run_with_quic_repeats_exactly() {
        assert_eq!(carried(QuicCongestion::Cubic, 0.01), carried(QuicCongestion::Cubic, 0.01));
    }
}

//! A node whose flows carry the packets of machines behind it, as the daemon's TUN device does: each inner connection has a flow and a queue of its own.

use std::net::{IpAddr, SocketAddr};

use noctule_proto::Node;
use noctule_proto::codel::CodelQueue;
use noctule_proto::crypto::PublicKey;
use noctule_proto::error::CommandError;
use noctule_proto::event::Event;
use noctule_proto::ids::{FlowId, LinkId, SessionId};
use noctule_proto::node::Transmit;
use noctule_proto::options::{FlowOptions, MessageOptions};
use noctule_proto::units::{Duration, Ecn, Time};

use super::{Inner, tcp};
use crate::link::Histogram;
use crate::sim::world::Host;

/// Segments of one train, at most (P11).
const MAX_SEGMENTS: usize = 8;

/// One inner connection: a machine behind the node, and the flow that carries what it sends.
pub struct Channel {
    /// The machine.
    pub inner: Inner,
    options: FlowOptions,
    flow: Option<FlowId>,
    incoming: Option<FlowId>,
    /// Taken out of the queue, and waits for room in the transport.
    held: Option<Vec<u8>>,
    is_blocked: bool,
    /// What waits before the transport.
    pub queue: CodelQueue<Vec<u8>>,
    /// How long segments waited there, if the machine is a TCP.
    pub waited: Histogram,
}

impl Channel {
    /// What `inner` sends goes by a flow with these options; the queue is that of a tunnel with this round trip.
    pub fn new(inner: Inner, options: FlowOptions, round_trip: Duration) -> Self {
        let mut queue = CodelQueue::new(|_| false);
        queue.set_round_trip(round_trip);
        Self { inner, options, flow: None, incoming: None, held: None, is_blocked: false, queue, waited: Histogram::default() }
    }

    /// The flow, once it is open.
    pub fn flow(&self) -> Option<FlowId> {
        self.flow
    }

    /// Takes what the machine sends, and hands on what the transport takes; whether anything moved.
    fn feed(&mut self, now: Time, node: &mut Node, session: SessionId, scratch: &mut Vec<u8>) -> bool {
        let mut any = self.inner.as_host().pump(now);
        while self.inner.as_host().poll_transmit(now, scratch).is_some() {
            any = true;
            self.queue.push(now, scratch.clone());
        }
        while !self.is_blocked {
            let Some(packet) = self.held.take().or_else(|| self.queue.pop(now)) else { break };
            let flow = match self.flow {
                Some(flow) => flow,
                None => {
                    let Ok(flow) = node.open_flow(now, session, self.options.clone()) else { break };
                    *self.flow.insert(flow)
                }
            };
            match node.send_message(now, flow, packet.clone().into(), MessageOptions::default()) {
                Err(CommandError::Blocked) => {
                    self.is_blocked = true;
                    self.held = Some(packet);
                }
                _ => {
                    any = true;
                    if let (Inner::Sender(_), Some(sent)) = (&self.inner, tcp::sent_at(&packet)) {
                        self.waited.record(now.since(sent));
                    }
                }
            }
        }
        any
    }
}

/// A node with what lies behind it.
pub struct TunnelHost {
    /// The node.
    pub node: Node,
    /// The host that it calls.
    pub dials: Vec<(SocketAddr, PublicKey)>,
    /// Inner connections; the tag of a flow is the number of its connection.
    pub channels: Vec<Channel>,
    /// Links that are up.
    pub links: Vec<LinkId>,
    /// The session with the other end of the tunnel.
    pub session: Option<SessionId>,
    scratch: Vec<u8>,
}

impl TunnelHost {
    /// Nothing behind it yet.
    pub fn new(node: Node) -> Self {
        Self { node, dials: Vec::new(), channels: Vec::new(), links: Vec::new(), session: None, scratch: Vec::new() }
    }

    /// Connects to its neighbours.
    pub fn dial(&mut self, now: Time) -> Result<(), CommandError> {
        self.dials.iter().try_for_each(|(remote, key)| self.node.connect(now, *remote, Some(*key)).map(|_| ()))
    }

    fn on_event(&mut self, now: Time, event: Event) {
        match event {
            Event::LinkUp { link, .. } => self.links.push(link),
            Event::SessionIncoming { session, .. } => self.session = Some(session),
            Event::FlowIncoming { flow, options, .. } => {
                if let Some(channel) = self.channels.get_mut(options.tag as usize) {
                    channel.incoming = Some(flow);
                }
                self.read(now, flow);
            }
            Event::FlowReadable(flow) => self.read(now, flow),
            Event::FlowWritable(flow) => {
                for channel in self.channels.iter_mut().filter(|channel| channel.flow == Some(flow)) {
                    channel.is_blocked = false;
                }
            }
            _ => {}
        }
    }

    fn read(&mut self, now: Time, flow: FlowId) {
        let Some(channel) = self.channels.iter_mut().find(|channel| channel.incoming == Some(flow)) else { return };
        let somewhere = SocketAddr::from(([0, 0, 0, 0], 0));
        while let Ok(Some(message)) = self.node.recv_message(now, flow) {
            let mut data = message.data.to_vec();
            channel.inner.as_host().handle_datagram(now, somewhere, somewhere.ip(), Ecn::NotEct, &mut data);
        }
    }
}

impl Host for TunnelHost {
    fn handle_datagram(&mut self, now: Time, remote: SocketAddr, local: IpAddr, ecn: Ecn, data: &mut [u8]) {
        self.node.handle_datagram(now, remote, Some(local), ecn, data);
    }

    fn handle_timeout(&mut self, now: Time) {
        if self.node.poll_timeout().is_some_and(|at| at <= now) {
            self.node.handle_timeout(now);
        }
        for channel in &mut self.channels {
            let inner = channel.inner.as_host();
            if inner.poll_timeout().is_some_and(|at| at <= now) {
                inner.handle_timeout(now);
            }
        }
    }

    fn poll_transmit(&mut self, now: Time, buf: &mut Vec<u8>) -> Option<Transmit> {
        self.node.poll_transmit(now, MAX_SEGMENTS, buf)
    }

    fn poll_timeout(&self) -> Option<Time> {
        let inner = self.channels.iter().filter_map(|channel| channel.inner.as_ref().poll_timeout()).min();
        [self.node.poll_timeout(), inner].into_iter().flatten().min()
    }

    fn pump(&mut self, now: Time) -> bool {
        let mut any = false;
        while let Some(event) = self.node.poll_event() {
            any = true;
            self.on_event(now, event);
        }
        if let Some(session) = self.session {
            for channel in &mut self.channels {
                any |= channel.feed(now, &mut self.node, session, &mut self.scratch);
            }
        }
        any
    }
}

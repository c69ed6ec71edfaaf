//! What the simulator needs of a node, as a trait. So the lab's own checks can be tested on a false node that loses, alters and repeats.

use std::net::{IpAddr, SocketAddr};
use std::time::Duration;

use bytes::Bytes;
use noctule_proto::Node;
use noctule_proto::crypto::PublicKey;
use noctule_proto::error::CommandError;
use noctule_proto::event::Event;
use noctule_proto::ids::{FlowId, LinkId, PathId, SessionId};
use noctule_proto::node::routing::Route;
use noctule_proto::node::{Message, RelayLimits, Transmit};
use noctule_proto::options::{FlowOptions, MessageOptions};
use noctule_proto::stats::{FlowStats, LinkStats, Memory, RelayedStats};
use noctule_proto::trace::TraceEvent;
use noctule_proto::units::{Ecn, Time};

/// Methods of [`Node`], each as documented there.
#[allow(missing_docs)]
pub trait Machine {
    fn handle_datagram(&mut self, now: Time, remote: SocketAddr, local: Option<IpAddr>, ecn: Ecn, data: &mut [u8]);
    fn handle_timeout(&mut self, now: Time);
    fn poll_transmit(&mut self, now: Time, max_segments: usize, buf: &mut Vec<u8>) -> Option<Transmit>;
    fn poll_timeout(&self) -> Option<Time>;
    fn poll_event(&mut self) -> Option<Event>;
    fn connect(&mut self, now: Time, remote: SocketAddr, peer: Option<PublicKey>) -> Result<LinkId, CommandError>;
    fn add_path(&mut self, now: Time, link: LinkId, remote: SocketAddr, local: Option<IpAddr>) -> Result<PathId, CommandError>;
    fn open_session(&mut self, now: Time, link: LinkId) -> Result<SessionId, CommandError>;
    fn open_session_to(&mut self, now: Time, destination: IpAddr, peer: Option<PublicKey>) -> Result<SessionId, CommandError>;
    fn session_link(&self, session: SessionId) -> Option<LinkId>;
    fn set_addresses(&mut self, addresses: &[IpAddr]);
    fn set_routes(&mut self, now: Time, routes: Vec<Route>);
    fn enable_relaying(&mut self, limits: Option<RelayLimits>);
    fn relayed_flows(&self) -> Vec<RelayedStats>;
    fn close_session(&mut self, now: Time, session: SessionId, code: u64, reason: &str, linger: Duration) -> Result<(), CommandError>;
    fn open_flow(&mut self, now: Time, session: SessionId, options: FlowOptions) -> Result<FlowId, CommandError>;
    fn send_message(&mut self, now: Time, flow: FlowId, data: Bytes, options: MessageOptions) -> Result<u64, CommandError>;
    fn recv_message(&mut self, now: Time, flow: FlowId) -> Result<Option<Message>, CommandError>;
    fn write(&mut self, now: Time, flow: FlowId, data: &[u8]) -> Result<usize, CommandError>;
    fn read(&mut self, now: Time, flow: FlowId, max: usize) -> Result<Option<Bytes>, CommandError>;
    fn finish(&mut self, now: Time, flow: FlowId) -> Result<(), CommandError>;
    fn link_stats(&self, link: LinkId) -> Option<LinkStats>;
    fn flow_stats(&self, flow: FlowId) -> Option<FlowStats>;
    fn memory(&self) -> Memory;
    fn poll_trace(&mut self) -> Option<TraceEvent>;
}

impl Machine for Node {
    fn handle_datagram(&mut self, now: Time, remote: SocketAddr, local: Option<IpAddr>, ecn: Ecn, data: &mut [u8]) {
        Node::handle_datagram(self, now, remote, local, ecn, data);
    }
    fn handle_timeout(&mut self, now: Time) {
        Node::handle_timeout(self, now);
    }
    fn poll_transmit(&mut self, now: Time, max_segments: usize, buf: &mut Vec<u8>) -> Option<Transmit> {
        Node::poll_transmit(self, now, max_segments, buf)
    }
    fn poll_timeout(&self) -> Option<Time> {
        Node::poll_timeout(self)
    }
    fn poll_event(&mut self) -> Option<Event> {
        Node::poll_event(self)
    }
    fn connect(&mut self, now: Time, remote: SocketAddr, peer: Option<PublicKey>) -> Result<LinkId, CommandError> {
        Node::connect(self, now, remote, peer)
    }
    fn add_path(&mut self, now: Time, link: LinkId, remote: SocketAddr, local: Option<IpAddr>) -> Result<PathId, CommandError> {
        Node::add_path(self, now, link, remote, local)
    }
    fn open_session(&mut self, now: Time, link: LinkId) -> Result<SessionId, CommandError> {
        Node::open_session(self, now, link)
    }
    fn open_session_to(&mut self, now: Time, destination: IpAddr, peer: Option<PublicKey>) -> Result<SessionId, CommandError> {
        Node::open_session_to(self, now, destination, peer)
    }
    fn session_link(&self, session: SessionId) -> Option<LinkId> {
        Node::session_link(self, session)
    }
    fn set_addresses(&mut self, addresses: &[IpAddr]) {
        Node::set_addresses(self, addresses);
    }
    fn set_routes(&mut self, now: Time, routes: Vec<Route>) {
        Node::set_routes(self, now, routes);
    }
    fn enable_relaying(&mut self, limits: Option<RelayLimits>) {
        Node::enable_relaying(self, limits);
    }
    fn relayed_flows(&self) -> Vec<RelayedStats> {
        Node::relayed_flows(self).collect()
    }
    fn close_session(&mut self, now: Time, session: SessionId, code: u64, reason: &str, linger: Duration) -> Result<(), CommandError> {
        Node::close_session(self, now, session, code, reason, linger)
    }
    fn open_flow(&mut self, now: Time, session: SessionId, options: FlowOptions) -> Result<FlowId, CommandError> {
        Node::open_flow(self, now, session, options)
    }
    fn send_message(&mut self, now: Time, flow: FlowId, data: Bytes, options: MessageOptions) -> Result<u64, CommandError> {
        Node::send_message(self, now, flow, data, options)
    }
    fn recv_message(&mut self, now: Time, flow: FlowId) -> Result<Option<Message>, CommandError> {
        Node::recv_message(self, now, flow)
    }
    fn write(&mut self, now: Time, flow: FlowId, data: &[u8]) -> Result<usize, CommandError> {
        Node::write(self, now, flow, data)
    }
    fn read(&mut self, now: Time, flow: FlowId, max: usize) -> Result<Option<Bytes>, CommandError> {
        Node::read(self, now, flow, max)
    }
    fn finish(&mut self, now: Time, flow: FlowId) -> Result<(), CommandError> {
        Node::finish(self, now, flow)
    }
    fn link_stats(&self, link: LinkId) -> Option<LinkStats> {
        Node::link_stats(self, link)
    }
    fn flow_stats(&self, flow: FlowId) -> Option<FlowStats> {
        Node::flow_stats(self, flow)
    }
    fn memory(&self) -> Memory {
        Node::memory(self)
    }
    fn poll_trace(&mut self) -> Option<TraceEvent> {
        Node::poll_trace(self)
    }
}

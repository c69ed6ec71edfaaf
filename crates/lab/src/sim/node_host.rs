//! A host of the simulator: a noctule node with its application.

use std::net::{IpAddr, SocketAddr};

use noctule_proto::Node;
use noctule_proto::node::Transmit;
use noctule_proto::units::{Ecn, Time};

use super::app::App;
use super::machine::Machine;
use super::world::Host;

/// Segments of one train, at most (P11: bursts of at most 8 packets).
const MAX_SEGMENTS: usize = 8;

/// A node and its application.
#[derive(Debug)]
pub struct NodeHost<N = Node> {
    /// The node.
    pub node: N,
    /// Its application.
    pub app: App,
}

impl<N: Machine> NodeHost<N> {
    /// Begins to connect, if that is this end's part.
    pub fn start(&mut self, now: Time) {
        self.app.start(now, &mut self.node);
    }
}

impl<N: Machine> Host for NodeHost<N> {
    fn handle_datagram(&mut self, now: Time, remote: SocketAddr, local: IpAddr, ecn: Ecn, data: &mut [u8]) {
        self.node.handle_datagram(now, remote, Some(local), ecn, data);
    }

    fn handle_timeout(&mut self, now: Time) {
        if self.node.poll_timeout().is_some_and(|at| at <= now) {
            self.node.handle_timeout(now);
        }
        if self.app.next_time().is_some_and(|at| at <= now) {
            self.app.on_time(now, &mut self.node);
        }
    }

    fn poll_transmit(&mut self, now: Time, buf: &mut Vec<u8>) -> Option<Transmit> {
        self.node.poll_transmit(now, MAX_SEGMENTS, buf)
    }

    fn poll_timeout(&self) -> Option<Time> {
        match (self.node.poll_timeout(), self.app.next_time()) {
            (Some(a), Some(b)) => Some(a.min(b)),
            (a, b) => a.or(b),
        }
    }

    fn pump(&mut self, now: Time) -> bool {
        let mut any = false;
        while let Some(event) = self.node.poll_event() {
            any = true;
            self.app.on_event(now, &mut self.node, event);
        }
        any
    }
}

//! The node: links, sessions and flows in keyed collections, driven by datagrams and time.
//!
//! This file only composes; each machine has its own file, state, deadline and tests.

use crate::congestion::CongestionControl;
use crate::crypto::{PublicKey, SecretKey};
use crate::error::CommandError;
use crate::event::Event;
use crate::ids::{FlowId, LinkId, SessionId};
use crate::options::{FlowOptions, MessageOptions};
use crate::stats::{FlowStats, LinkStats, Memory};
use crate::units::{Duration, Ecn, Time};
use bytes::Bytes;
use std::net::{IpAddr, SocketAddr};

/// Everything about a node that its owner may set. Each default is stated with its unit.
#[derive(Clone, Debug)]
pub struct NodeConfig {
    /// Congestion control of every path. Default `model`.
    pub congestion: CongestionControl,
    /// Largest UDP payload to send, in bytes: the interface's MTU minus IP and UDP headers. Default 1472; at least 1200.
    pub max_datagram: u16,
    /// Nothing heard for this long ends a link (P23). Default 30 s.
    pub idle_timeout: Duration,
    /// An attempt to reach a peer ends after this long. Default 10 s.
    pub connect_timeout: Duration,
    /// Ceiling of the memory of one flow, in bytes, at each end (P13). Default 128 MiB.
    pub flow_memory: usize,
    /// Ceiling of the memory of all flows of the node, in bytes. Default 512 MiB.
    pub node_memory: usize,
    /// Largest message that this node takes, in bytes (P18). Default 16 MiB.
    pub max_message: usize,
    /// Links, at most. Default 1024.
    pub max_links: usize,
    /// Sessions, at most. Default 1024.
    pub max_sessions: usize,
    /// Flows per session and direction, at most. Default 256.
    pub max_flows: usize,
    /// Packets in one key epoch (P3); a power of two. Default 2^20; tests use 1024.
    pub epoch_packets: u64,
    /// Fresh Diffie-Hellman after this long or 2^26 packets (P3). Default 120 s.
    pub rekey_after: Duration,
    /// Mark packets as ECN-capable. Default true.
    pub ecn: bool,
    /// Keys that may connect; `None` lets anyone. Default `None`.
    pub authorised: Option<Vec<PublicKey>>,
    /// Accept links that others open. Default true.
    pub accept: bool,
    /// Seal nothing, for measurement only; both sides must say so. Default false.
    pub plaintext: bool,
}

impl Default for NodeConfig {
    fn default() -> Self {
        Self {
            congestion: CongestionControl::Model,
            max_datagram: 1472,
            idle_timeout: Duration::from_secs(30),
            connect_timeout: Duration::from_secs(10),
            flow_memory: 128 << 20,
            node_memory: 512 << 20,
            max_message: 16 << 20,
            max_links: 1024,
            max_sessions: 1024,
            max_flows: 256,
            epoch_packets: 1 << 20,
            rekey_after: Duration::from_secs(120),
            ecn: true,
            authorised: None,
            accept: true,
            plaintext: false,
        }
    }
}

/// Datagrams to send: `buf[..len]` of the buffer handed in, cut into `segment_size` pieces if there are several (GSO).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Transmit {
    /// Where to.
    pub remote: SocketAddr,
    /// From which local address, if it matters.
    pub local: Option<IpAddr>,
    /// ECN codepoint.
    pub ecn: Ecn,
    /// Total bytes.
    pub len: usize,
    /// All pieces have this length except the last, which may be shorter; `None`: one datagram.
    pub segment_size: Option<usize>,
}

/// A message that was received.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Message {
    /// Number that the sender counted, from 0.
    pub id: u64,
    /// Content.
    pub data: Bytes,
}

/// A noctule node as a sans-IO state machine. See the crate's documentation for the order of calls.
#[derive(Debug)]
pub struct Node {}

#[allow(unused_variables)]
impl Node {
    /// A node with an identity; `seed` feeds every random choice that it will ever make, keys included, and must come from a secure source outside tests.
    pub fn new(config: NodeConfig, identity: SecretKey, seed: [u8; 32], now: Time) -> Self {
        Self {}
    }
    /// A datagram arrived. Decrypts in place.
    pub fn handle_datagram(&mut self, now: Time, remote: SocketAddr, local: Option<IpAddr>, ecn: Ecn, data: &mut [u8]) {}
    /// `poll_timeout` is due.
    pub fn handle_timeout(&mut self, now: Time) {}
    /// Writes the next datagrams to send into `buf` (cleared first), at most `max_segments` of equal size; `None` when there is nothing to send now.
    pub fn poll_transmit(&mut self, now: Time, max_segments: usize, buf: &mut Vec<u8>) -> Option<Transmit> {
        None
    }
    /// When `handle_timeout` wants to be called next. O(1).
    pub fn poll_timeout(&self) -> Option<Time> {
        None
    }
    /// The next event. O(1) when there is none.
    pub fn poll_event(&mut self) -> Option<Event> {
        None
    }

    /// Starts a link to a neighbour. `peer`: the key that it must have; `None` accepts whatever key answers (the caller decides on `LinkUp`).
    pub fn connect(&mut self, now: Time, remote: SocketAddr, peer: Option<PublicKey>) -> Result<LinkId, CommandError> {
        Err(CommandError::Unknown("link"))
    }
    /// Ends a link and all that runs over it, at once.
    pub fn close_link(&mut self, now: Time, link: LinkId, code: u64, reason: &str) -> Result<(), CommandError> {
        Err(CommandError::Unknown("link"))
    }
    /// Opens a session with the neighbour; flows can be opened and written at once, even before the link is up.
    pub fn open_session(&mut self, now: Time, link: LinkId) -> Result<SessionId, CommandError> {
        Err(CommandError::Unknown("link"))
    }
    /// Closes gracefully: everything written to `brtp` flows is delivered first (`SessionClosed` says whether it was), at most `linger` long.
    pub fn close_session(&mut self, now: Time, session: SessionId, code: u64, reason: &str, linger: Duration) -> Result<(), CommandError> {
        Err(CommandError::Unknown("session"))
    }
    /// Opens a flow towards the far end.
    pub fn open_flow(&mut self, now: Time, session: SessionId, options: FlowOptions) -> Result<FlowId, CommandError> {
        Err(CommandError::Unknown("session"))
    }
    /// Queues a message; returns its number.
    pub fn send_message(&mut self, now: Time, flow: FlowId, data: Bytes, options: MessageOptions) -> Result<u64, CommandError> {
        Err(CommandError::Unknown("flow"))
    }
    /// Withdraws a message that has not been sent completely; true if it will not be delivered.
    pub fn cancel_message(&mut self, now: Time, flow: FlowId, message: u64) -> Result<bool, CommandError> {
        Err(CommandError::Unknown("flow"))
    }
    /// The next message, if one is complete.
    pub fn recv_message(&mut self, now: Time, flow: FlowId) -> Result<Option<Message>, CommandError> {
        Err(CommandError::Unknown("flow"))
    }
    /// Queues bytes on a stream; returns how many were taken (at least 1) or `Blocked`.
    pub fn write(&mut self, now: Time, flow: FlowId, data: &[u8]) -> Result<usize, CommandError> {
        Err(CommandError::Unknown("flow"))
    }
    /// The next bytes of a stream, without copying: at most `max` of them. `Ok(None)`: nothing now; an empty chunk: the stream has ended.
    pub fn read(&mut self, now: Time, flow: FlowId, max: usize) -> Result<Option<Bytes>, CommandError> {
        Err(CommandError::Unknown("flow"))
    }
    /// Sending half: nothing more follows; `FlowDelivered` tells when everything arrived.
    pub fn finish(&mut self, now: Time, flow: FlowId) -> Result<(), CommandError> {
        Err(CommandError::Unknown("flow"))
    }
    /// Sending half: give up at once.
    pub fn reset(&mut self, now: Time, flow: FlowId, code: u64) -> Result<(), CommandError> {
        Err(CommandError::Unknown("flow"))
    }
    /// Receiving half: no more wanted.
    pub fn stop(&mut self, now: Time, flow: FlowId, code: u64) -> Result<(), CommandError> {
        Err(CommandError::Unknown("flow"))
    }
    /// Adds a UDP path to a link (P7), once it is up.
    pub fn add_path(&mut self, now: Time, link: LinkId, remote: SocketAddr, local: Option<IpAddr>) -> Result<(), CommandError> {
        Err(CommandError::Unknown("link"))
    }

    /// Statistics of a link and its paths.
    pub fn link_stats(&self, link: LinkId) -> Option<LinkStats> {
        None
    }
    /// Statistics of a flow.
    pub fn flow_stats(&self, flow: FlowId) -> Option<FlowStats> {
        None
    }
    /// The link that a session runs over.
    pub fn session_link(&self, session: SessionId) -> Option<LinkId> {
        None
    }
    /// Memory in use and its bound.
    pub fn memory(&self) -> Memory {
        Memory::default()
    }
}

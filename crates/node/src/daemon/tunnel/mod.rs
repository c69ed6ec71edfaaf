//! IP over the overlay: packets from the TUN device to the node that has their destination, and packets of other nodes to the device.
//!
//! A packet into the tunnel: (1) is read from the device; (2) its destination chooses the node, longest prefix first; (3) if it is too big for the
//! path there, it is answered with ICMP; (4) TCP's segment size is clamped; (5) its 5-tuple and DSCP choose the flow; (6) it goes through CoDel's
//! queue to the transport. If a stream in one direction leads to the node, that replaces (5) and (6).
//!
//! A packet out of the tunnel comes from a flow of another node, and goes to the device if its source lies behind that node.

mod classify;
mod delivery;
mod device;
mod flow;
mod icmp;
mod kernel_state;
mod lan;
mod leftovers;
mod node;
mod packet;
mod prefixes;

pub use classify::Key;
pub use device::{Device, DeviceError};
pub use flow::FlowView;
pub use kernel_state::{PROTOCOL, number_of, unless};
pub use leftovers::numbers_of_devices;
pub use node::TunnelNode;

use super::config::{RemoteNode, Treatment, TunConfig};
use super::one_way::Outlet;
use super::peer::Peer;
use super::split::Far;
use bytes::{Bytes, BytesMut};
use icmp::Refusal;
use ipnet::IpNet;
use noctule::{IncomingFlow, MessageReceiver, PublicKey};
use packet::Header;
use prefixes::Prefixes;
use std::collections::HashMap;
use std::io;
use std::net::IpAddr;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, PoisonError, RwLock};
use std::time::{Duration, Instant};

/// Packets read before other tasks have their turn.
const BURST: usize = 64;
/// Bytes that packets are read into before a new buffer is begun.
const SLAB: usize = 256 * 1024;
/// ICMP errors per second at most (RFC 1812 §4.3.2.8).
const ERRORS_PER_SECOND: u64 = 100;
/// A device that cannot be read, as while it is down, is tried again after this long.
const DEVICE_PAUSE: Duration = Duration::from_millis(200);

/// See the file's heading.
pub struct Tunnel {
    device: Device,
    table: RwLock<Arc<Table>>,
    counters: Counters,
    started: Instant,
    /// Second and ICMP errors sent in it.
    errors: (AtomicU64, AtomicU64),
    /// TCP goes as streams to nodes that take them.
    splits: AtomicBool,
}

/// What the file says, in the form that packets need.
struct Table {
    nodes: HashMap<PublicKey, Arc<TunnelNode>>,
    by_prefix: Prefixes<NodeRoute>,
    treatment: Treatment,
}

/// The node that a destination belongs to, and how it is reached.
#[derive(Clone)]
struct NodeRoute {
    node: Arc<TunnelNode>,
    mtu: u16,
    /// The stream that takes its packets, where nothing comes back.
    one_way: Option<Arc<Outlet>>,
}

/// What happened to packets that reached no flow.
#[derive(Debug, Default)]
struct Counters {
    unreachable: AtomicU64,
    too_big: AtomicU64,
    malformed: AtomicU64,
}

/// Counts of the whole tunnel.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Totals {
    /// Packets for which the file names no node.
    pub unreachable: u64,
    /// Packets larger than their node takes.
    pub too_big: u64,
    /// What was no IP packet.
    pub malformed: u64,
}

/// Multicast of one link (RFC 5771 §4, RFC 4291 §2.7), which no router passes on.
fn is_local_multicast(to: IpAddr) -> bool {
    match to {
        IpAddr::V4(v4) => v4.octets()[..3] == [224, 0, 0],
        IpAddr::V6(v6) => v6.segments()[0] & 0xff0f == 0xff02,
    }
}

/// Sent to all that may want it: that no node has the destination is no fault, and nobody may be told (RFC 1122 §3.2.2, RFC 4443 §2.4).
fn is_for_many(to: IpAddr) -> bool {
    to.is_multicast() || to == IpAddr::from([255; 4])
}

impl Tunnel {
    /// A tunnel on a device that is up. Nothing is carried before [`configure`](Self::configure).
    pub fn new(device: Device) -> Arc<Self> {
        let treatment = device.config.treatment;
        let table = Table { nodes: HashMap::new(), by_prefix: Prefixes::default(), treatment };
        Arc::new(Self {
            device,
            table: RwLock::new(Arc::new(table)),
            counters: Counters::default(),
            started: Instant::now(),
            errors: Default::default(),
            splits: AtomicBool::new(false),
        })
    }

    fn table(&self) -> Arc<Table> {
        Arc::clone(&self.table.read().unwrap_or_else(PoisonError::into_inner))
    }

    /// Takes over what the file says; flows towards nodes that stay go on. Says what changed in the kernel.
    pub async fn configure(
        &self,
        peers: &[Arc<Peer>],
        one_ways: &HashMap<PublicKey, Arc<Outlet>>,
        config: &TunConfig,
    ) -> Result<Vec<String>, DeviceError> {
        let old = self.table();
        let mut table = Table { nodes: HashMap::new(), by_prefix: Prefixes::default(), treatment: config.treatment };
        let mut prefixes = Vec::new();
        for peer in peers {
            let node = old
                .nodes
                .get(&peer.key)
                .cloned()
                .filter(|n| Arc::ptr_eq(n.peer(), peer))
                .unwrap_or_else(|| TunnelNode::new(Arc::clone(peer)));
            let behind: RemoteNode = peer.config();
            let mtu = behind.mtu.unwrap_or(u16::MAX).min(self.device.config.mtu);
            for prefix in behind.addresses.iter().map(|a| IpNet::from(*a)).chain(behind.prefixes) {
                let one_way = one_ways.get(&peer.key).cloned();
                table.by_prefix.insert(prefix, NodeRoute { node: Arc::clone(&node), mtu, one_way });
                prefixes.push(prefix);
            }
            table.nodes.insert(peer.key, node);
        }
        for (key, node) in &old.nodes {
            if table.nodes.get(key).is_none_or(|n| !Arc::ptr_eq(n, node)) {
                node.retire();
            }
        }
        *self.table.write().unwrap_or_else(PoisonError::into_inner) = Arc::new(table);
        self.device.route(if config.install_routes { prefixes } else { Vec::new() }, config.lan).await
    }

    /// Whether TCP goes as streams to nodes that take them.
    pub fn set_splits(&self, splits: bool) {
        self.splits.store(splits, Relaxed);
    }

    /// What was set last.
    pub fn splits(&self) -> bool {
        self.splits.load(Relaxed)
    }

    /// The node to which packets for an address, or from it, belong, if it has sessions.
    pub fn node_of(&self, address: IpAddr) -> Option<Arc<TunnelNode>> {
        self.table().by_prefix.get(address).filter(|route| route.one_way.is_none()).map(|route| Arc::clone(&route.node))
    }

    /// Addresses of nodes that take connections as streams: intervals that do not overlap.
    pub fn split_targets(&self) -> Vec<(IpAddr, IpAddr)> {
        let is_meant = |route: &NodeRoute| route.one_way.is_none() && route.node.peer().split.far() == Far::Splits;
        self.table().by_prefix.intervals(is_meant)
    }

    /// The device.
    pub fn device(&self) -> &Device {
        &self.device
    }

    /// Nodes with their flows.
    pub fn nodes(&self) -> Vec<Arc<TunnelNode>> {
        let mut nodes: Vec<_> = self.table().nodes.values().cloned().collect();
        nodes.sort_by_key(|n| n.name());
        nodes
    }

    /// Counts of what reached no flow.
    pub fn totals(&self) -> Totals {
        let c = &self.counters;
        Totals { unreachable: c.unreachable.load(Relaxed), too_big: c.too_big.load(Relaxed), malformed: c.malformed.load(Relaxed) }
    }

    // --- into the tunnel -------------------------------------------------------------------------------------------------------

    /// Reads the device for ever.
    pub async fn read_device(self: Arc<Self>) {
        let room = usize::from(u16::MAX);
        let mut slab = BytesMut::new();
        loop {
            if let Err(error) = self.device.io.readable().await {
                tracing::warn!(device = %self.device.config.name, %error, "cannot wait for the device");
                tokio::time::sleep(DEVICE_PAUSE).await;
                continue;
            }
            let table = self.table();
            for _ in 0..BURST {
                if slab.len() < room {
                    slab = BytesMut::zeroed(SLAB);
                }
                match self.device.io.try_recv(&mut slab[..room]) {
                    Ok(length) => {
                        let packet = slab.split_to(length);
                        self.on_packet(&table, packet);
                    }
                    Err(error) if error.kind() == io::ErrorKind::WouldBlock => break,
                    Err(error) => {
                        tracing::debug!(device = %self.device.config.name, %error, "cannot read the device");
                        tokio::time::sleep(DEVICE_PAUSE).await;
                        break;
                    }
                }
            }
            tokio::task::yield_now().await;
        }
    }

    fn on_packet(&self, table: &Table, packet: BytesMut) {
        let Some(header) = Header::parse(&packet) else {
            self.counters.malformed.fetch_add(1, Relaxed);
            return;
        };
        // The kernel's own chatter on a device that comes up (RFC 4861, RFC 3810) is for nobody behind it, and no router passes it on.
        if is_local_multicast(header.destination) {
            return;
        }
        let Some(NodeRoute { node, mtu, one_way }) = table.by_prefix.get(header.destination) else {
            // A host announces itself on every device (mDNS, SSDP, DHCP): chatter, as long as no prefix holds it.
            if is_for_many(header.destination) {
                return;
            }
            self.counters.unreachable.fetch_add(1, Relaxed);
            self.refuse(&packet, &header, Refusal::Unreachable);
            return;
        };
        if packet.len() > usize::from(*mtu) {
            self.counters.too_big.fetch_add(1, Relaxed);
            self.refuse(&packet, &header, Refusal::TooBig(*mtu));
            return;
        }
        // Whether it could be a stream is not known yet: its sender repeats it, and finds out.
        let may_split = one_way.is_none() && self.splits() && packet::is_first_of_tcp(&packet, &header);
        if may_split && node.peer().split.far() == Far::Unknown {
            node.peer().want_session();
            return;
        }
        match one_way {
            Some(outlet) => node.send_one_way(outlet, &header, packet, *mtu),
            None => node.send(Instant::now(), &header, packet, *mtu, &table.treatment),
        }
    }

    /// Tells the sender, if it may be told.
    fn refuse(&self, packet: &[u8], header: &Header, refusal: Refusal) {
        let second = self.started.elapsed().as_secs();
        if self.errors.0.swap(second, Relaxed) != second {
            self.errors.1.store(0, Relaxed);
        }
        if self.errors.1.fetch_add(1, Relaxed) >= ERRORS_PER_SECOND {
            return;
        }
        // In the destination's name: a message from one of this host's own addresses would be a martian to its kernel, and ignored.
        if let Some(message) = icmp::message(packet, header, refusal, header.destination) {
            // The sender is this host or behind it; a device that is full or down loses the message as any router might.
            let _ = self.device.io.try_send(&message);
        }
    }

    // --- out of the tunnel -----------------------------------------------------------------------------------------------------

    /// Takes a flow of another node.
    pub fn take(self: &Arc<Self>, flow: IncomingFlow, from: PublicKey) {
        let tag = flow.tag();
        match flow {
            IncomingFlow::Messages(messages) if tag == classify::TAG => drop(tokio::spawn(Arc::clone(self).write_device(messages, from))),
            // Dropped: the far end is told that nobody wants it.
            _ => tracing::debug!(tag, "a flow that is no tunnel's was refused"),
        }
    }

    async fn write_device(self: Arc<Self>, mut messages: MessageReceiver, from: PublicKey) {
        // Ends with the flow, whatever the reason: its opener opens another one if there is more.
        while let Ok(Some(message)) = messages.recv().await {
            if !self.deliver(from, message.data).await {
                return;
            }
        }
    }

    /// Gives a packet of another node to the device, if it is one of its own; false if the node is not known any more.
    pub async fn deliver(&self, from: PublicKey, mut data: Bytes) -> bool {
        let table = self.table();
        let Some(node) = table.nodes.get(&from) else { return false };
        // Nobody speaks for others: the source must lie behind the node that the session, or the stream, authenticated.
        let theirs = |header: Header| {
            let NodeRoute { node: owner, mtu, .. } = table.by_prefix.get(header.source)?;
            Arc::ptr_eq(owner, node).then_some((header, *mtu))
        };
        let Some((header, mtu)) = Header::parse(&data).and_then(theirs) else {
            node.received.refused.fetch_add(1, Relaxed);
            return true;
        };
        if header.protocol == packet::TCP {
            data = packet::clamped(data, &header, mtu);
        }
        match self.device.io.send(&data).await {
            Ok(_) => {
                node.received.packets.fetch_add(1, Relaxed);
                node.received.bytes.fetch_add(data.len() as u64, Relaxed);
            }
            Err(error) => tracing::debug!(device = %self.device.config.name, %error, "the device refused a packet"),
        }
        true
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_host_tells_every_device_is_for_nobody() {
        for own in ["224.0.0.251", "ff02::2", "ff12::1"] {
            assert!(is_local_multicast(own.parse().unwrap()) && is_for_many(own.parse().unwrap()), "{own}");
        }
        for many in ["239.255.255.250", "255.255.255.255", "ff05::c"] {
            assert!(!is_local_multicast(many.parse().unwrap()) && is_for_many(many.parse().unwrap()), "{many}");
        }
        for one in ["10.9.0.2", "fd09::2", "0.0.0.0"] {
            assert!(!is_for_many(one.parse().unwrap()), "{one}");
        }
    }
}

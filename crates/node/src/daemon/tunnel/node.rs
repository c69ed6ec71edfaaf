//! The tunnel's state for another node: the flows towards it, and counts of what came from it.

use super::classify::Key;
use super::flow::{FlowView, TunnelFlow};
use super::packet::{self, Header};
use crate::daemon::config::Treatment;
use crate::daemon::one_way::Outlet;
use crate::daemon::peer::Peer;
use bytes::BytesMut;
use noctule::Session;
use std::collections::HashMap;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering::Relaxed};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

/// See the file's heading.
#[derive(Debug)]
pub struct TunnelNode {
    peer: Arc<Peer>,
    flows: Mutex<HashMap<Key, Arc<TunnelFlow>>>,
    /// Number of flows that have asked for a session: flows take turns at the routes.
    turns: AtomicUsize,
    /// Sums over flows that ended. Packets that left by a stream in one direction, which has no flows, are counted here too.
    ended: Ended,
    /// What came from the node.
    pub received: Received,
}

#[derive(Debug, Default)]
struct Ended {
    flows: AtomicU64,
    packets: AtomicU64,
    bytes: AtomicU64,
    marked: AtomicU64,
    dropped: AtomicU64,
    refused: AtomicU64,
}

/// Packets that came out of the tunnel.
#[derive(Debug, Default)]
pub struct Received {
    /// Given to the device.
    pub packets: AtomicU64,
    /// Bytes of these.
    pub bytes: AtomicU64,
    /// Refused because their source does not lie behind the node, or because they are no packets.
    pub refused: AtomicU64,
}

/// Sums over the flows towards a node, ended ones included.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Sums {
    /// Flows that ended.
    pub ended_flows: u64,
    /// Packets handed to the transport.
    pub packets: u64,
    /// Bytes of these.
    pub bytes: u64,
    /// Marked by CoDel.
    pub marked: u64,
    /// Dropped by CoDel, by full queues, or with a flow.
    pub dropped: u64,
    /// Flows that the session did not open.
    pub refused_flows: u64,
}

impl TunnelNode {
    /// No flows yet.
    pub fn new(peer: Arc<Peer>) -> Arc<Self> {
        Arc::new(Self { peer, flows: Mutex::default(), turns: AtomicUsize::new(0), ended: Ended::default(), received: Received::default() })
    }

    /// The node itself.
    pub fn peer(&self) -> &Arc<Peer> {
        &self.peer
    }

    /// The name that the file gives it.
    pub fn name(&self) -> String {
        self.peer.name()
    }

    /// A session for the next flow towards the node, once there is one, and how long it took to open. Flows take turns at equally good routes.
    pub async fn session(&self) -> (Session, Option<Duration>) {
        self.peer.session_by(self.turns.fetch_add(1, Relaxed)).await
    }

    fn flows(&self) -> MutexGuard<'_, HashMap<Key, Arc<TunnelFlow>>> {
        self.flows.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Sends a packet towards the node by the flow that it belongs to.
    pub fn send(self: &Arc<Self>, now: Instant, header: &Header, mut packet: BytesMut, mtu: u16, treatment: &Treatment) {
        packet::clamp_segment_size(&mut packet, header, mtu);
        // A flow that has just ended gives the packet back: it goes to the flow that comes next.
        let Err(packet) = self.flow(Key::of(header), treatment).push(now, packet) else { return };
        if self.flow(Key::of(header), treatment).push(now, packet).is_err() {
            self.ended.dropped.fetch_add(1, Relaxed);
        }
    }

    /// Sends a packet towards the node by the stream in one direction that leads there.
    pub fn send_one_way(&self, outlet: &Outlet, header: &Header, mut packet: BytesMut, mtu: u16) {
        packet::clamp_segment_size(&mut packet, header, mtu);
        let bytes = packet.len() as u64;
        if outlet.push(packet) {
            self.ended.packets.fetch_add(1, Relaxed);
            self.ended.bytes.fetch_add(bytes, Relaxed);
        } else {
            self.ended.dropped.fetch_add(1, Relaxed);
        }
    }

    fn flow(self: &Arc<Self>, key: Key, treatment: &Treatment) -> Arc<TunnelFlow> {
        let mut flows = self.flows();
        let is_full = flows.len() >= treatment.max_flows && !flows.contains_key(&key);
        let key = if is_full { key.shared() } else { key };
        match flows.get(&key).filter(|f| !f.is_over()) {
            Some(flow) => Arc::clone(flow),
            None => {
                let flow = TunnelFlow::start(self, key, *treatment);
                flows.insert(key, Arc::clone(&flow));
                flow
            }
        }
    }

    /// A flow has ended, with so many packets unsent.
    pub fn forget_flow(&self, flow: &Arc<TunnelFlow>, lost: u64) {
        let mut flows = self.flows();
        if flows.get(&flow.key).is_some_and(|f| Arc::ptr_eq(f, flow)) {
            flows.remove(&flow.key);
        }
        let counts = flow.view().counts;
        self.ended.flows.fetch_add(1, Relaxed);
        self.ended.packets.fetch_add(counts.passed, Relaxed);
        self.ended.bytes.fetch_add(counts.bytes, Relaxed);
        self.ended.marked.fetch_add(counts.marked, Relaxed);
        self.ended.dropped.fetch_add(counts.dropped + counts.overflowed + lost, Relaxed);
    }

    /// Counts a flow for which the session had no room.
    pub fn note_refused_flow(&self) {
        self.ended.refused.fetch_add(1, Relaxed);
    }

    /// Called when the node is not in the file any more: queued packets are still sent, and no flow begins.
    pub fn retire(&self) {
        for flow in self.flows().values() {
            flow.retire();
        }
    }

    /// Every present flow.
    pub fn views(&self) -> Vec<FlowView> {
        let flows: Vec<_> = self.flows().values().cloned().collect();
        flows.iter().map(|f| f.view()).collect()
    }

    /// Sums over all flows.
    pub fn sums(&self, views: &[FlowView]) -> Sums {
        let e = &self.ended;
        let mut sums = Sums {
            ended_flows: e.flows.load(Relaxed),
            packets: e.packets.load(Relaxed),
            bytes: e.bytes.load(Relaxed),
            marked: e.marked.load(Relaxed),
            dropped: e.dropped.load(Relaxed),
            refused_flows: e.refused.load(Relaxed),
        };
        for counts in views.iter().map(|v| v.counts) {
            sums.packets += counts.passed;
            sums.bytes += counts.bytes;
            sums.marked += counts.marked;
            sums.dropped += counts.dropped + counts.overflowed;
        }
        sums
    }
}

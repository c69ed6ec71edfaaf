//! What a node says about itself: the report that `noctule status` and Prometheus show.

mod describe;
mod gather;
mod screen;
mod table;

pub use describe::describe;
pub use screen::{Screen, Section};
pub use table::print;

use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// The whole report. Counters count from the node's start. What has a unit has it in its name: `_s`, `_ms`, `_bytes`, `_bits_per_second`, `_ratio`.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct Report {
    /// The node's name.
    pub name: String,
    /// Its public key.
    pub key: String,
    /// Version of the program.
    pub version: String,
    /// The commit that it was built from.
    pub commit: String,
    /// Time since it started.
    pub uptime_s: f64,
    /// UDP address.
    pub listen: String,
    /// Overlay addresses.
    pub addresses: Vec<String>,
    /// It forwards flows of others.
    pub relay: bool,
    /// Bytes that flows hold, and their bound.
    pub memory: MemoryReport,
    /// Datagrams of the UDP socket.
    pub socket: SocketReport,
    /// What the node refused or survived, by name (docs/results/attack.md).
    #[serde(default)]
    pub refused: BTreeMap<String, u64>,
    /// Every other node of the file.
    pub nodes: Vec<NodeReport>,
    /// Every route, those in use marked.
    pub routes: Vec<RouteReport>,
    /// Flows of others that pass this node, one direction each.
    pub relayed: Vec<RelayedReport>,
    /// Objects that this node passes on to several neighbours now.
    #[serde(default)]
    pub trees: Vec<TreeReport>,
    /// Streams in one direction.
    #[serde(default)]
    pub one_way: OneWayReport,
    /// The tunnel; none without a device.
    pub tunnel: Option<TunnelReport>,
}

/// Streams over links that bring nothing back.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct OneWayReport {
    /// To other nodes.
    pub to: Vec<OneWayToReport>,
    /// From other nodes to this one.
    pub from: Vec<OneWayFromReport>,
    /// Between other nodes, passing this one.
    pub relays: Vec<OneWayRelayReport>,
}

/// A stream to another node.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct OneWayToReport {
    /// Its name in the file.
    pub name: String,
    pub endpoint: String,
    /// As the file says.
    pub rate_bits_per_second: f64,
    /// Packets of a block.
    pub block_packets: usize,
    /// Datagrams that are sent for each packet of a block.
    pub redundancy: f64,
    /// Packets of the tunnel that it took.
    pub packets: u64,
    /// Packets of the tunnel for which there was no room.
    pub dropped: u64,
    /// Blocks that were sent.
    pub blocks: u64,
    /// Datagrams and bytes of UDP payload that were sent, announcements not counted.
    pub sent_datagrams: u64,
    pub sent_bytes: u64,
    pub announcements: u64,
    /// Streams begun; each has another key.
    pub streams: u64,
    /// Datagrams that the system did not take.
    pub send_errors: u64,
}

/// A port on which streams of other nodes arrive.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct OneWayFromReport {
    pub listen: String,
    /// Datagrams that were rejected, by reason: `garbage`, packets of `unknown` streams, those of another `source` than the file's, announcements that were
    /// `unaddressed`, `refused`, `replayed` or `unread`.
    pub ignored: BTreeMap<String, u64>,
    /// The nodes.
    pub senders: Vec<OneWaySenderReport>,
}

/// A node whose streams are taken.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct OneWaySenderReport {
    /// Its name in the file.
    pub name: String,
    /// Streams that it announced.
    pub streams: u64,
    /// Time since a packet of it came that was authentic.
    pub heard_s: Option<f64>,
    /// Datagrams of its streams.
    pub datagrams: u64,
    /// Of these, innovative ones: they raised the rank.
    pub innovative: u64,
    /// Of these, altered or forged on the path.
    pub polluted: u64,
    /// Of these, those of past blocks: late, or replayed.
    pub over: u64,
    /// Blocks that became whole, and that were given up.
    pub blocks: u64,
    pub given_up: u64,
    /// Packets that arrived, and those of them that had to be recovered.
    pub packets: u64,
    pub recovered: u64,
    /// Packets that were sent and lost for good, as far as it has said.
    pub lost: u64,
}

/// Streams of other nodes that pass this one.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct OneWayRelayReport {
    pub listen: String,
    pub endpoint: String,
    /// As the file says.
    pub rate_bits_per_second: f64,
    /// Datagrams and bytes of UDP payload.
    pub received_datagrams: u64,
    pub received_bytes: u64,
    pub sent_datagrams: u64,
    pub sent_bytes: u64,
    /// Packets passed on as they came, and combined here.
    pub passed: u64,
    pub recoded: u64,
    /// Packets that were not innovative, that came too late, and for which there was no room.
    pub redundant: u64,
    pub late: u64,
    pub dropped: u64,
    /// Datagrams that may not pass.
    pub refused: u64,
    pub announcements: u64,
    /// Datagrams of no stream.
    pub foreign: u64,
    /// Datagrams that the system did not take.
    pub send_errors: u64,
    pub queueing_delay_ms: f64,
    pub memory_bytes: usize,
    /// Batches by the rank that came: place `k` counts those of rank `k`.
    pub ranks: Vec<u64>,
}

/// An object that this node passes on to several receivers.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct TreeReport {
    /// The neighbour that gives it.
    pub from: String,
    pub size_bytes: u64,
    /// Packets that came.
    pub packets: u64,
    /// Packets that were given to neighbours.
    pub sent: u64,
    /// Packets that a neighbour missed because it lags.
    pub skipped: u64,
    /// Neighbours that it goes to.
    pub to: Vec<TreeChildReport>,
}

/// A neighbour that an object goes to.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct TreeChildReport {
    /// Its name in the file.
    pub name: String,
    /// Receivers behind it.
    pub receivers: usize,
    /// What all of them have.
    pub there_bytes: u64,
    /// `asked`, `on`, `lagging`, `done` or `gone`.
    pub state: String,
}

/// Memory.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct MemoryReport {
    pub used_bytes: usize,
    pub peak_bytes: usize,
    pub limit_bytes: usize,
}

/// The UDP socket.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct SocketReport {
    pub sent_datagrams: u64,
    pub sent_bytes: u64,
    pub received_datagrams: u64,
    pub received_bytes: u64,
    pub send_errors: u64,
    pub recv_errors: u64,
}

/// Another node.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct NodeReport {
    /// Its name in the file.
    pub name: String,
    /// Its public key.
    pub key: String,
    /// It has a link of its own to this node, or should have.
    pub is_neighbour: bool,
    /// Where it is called; none if it calls.
    pub endpoint: Option<String>,
    /// `up`, `down`, or none for a node reached over others.
    pub link: Option<LinkReport>,
    /// `direct`, `relayed` or none.
    pub session: Option<String>,
    /// How many sessions with it there are: with several equally good routes one by each, once they are used.
    #[serde(default)]
    pub sessions: usize,
    /// Its flows' sums over these sessions.
    pub flows: Option<FlowSums>,
    /// The last thing that went wrong.
    pub trouble: Option<Trouble>,
}

/// What went wrong last.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct Trouble {
    /// Unix time.
    pub at_s: u64,
    /// In words.
    pub text: String,
}

/// A link that is up.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct LinkReport {
    pub up_for_s: f64,
    /// Times that a link to the node came up.
    pub times_up: u64,
    /// Its paths.
    pub paths: Vec<PathReport>,
    /// Datagrams that could not be authenticated.
    pub undecryptable: u64,
    /// Packets of sealed flows that came by it and were altered or forged, by the neighbour or a node behind it.
    #[serde(default)]
    pub polluted: u64,
    /// All flows that it carries or has carried.
    pub flows: FlowSums,
    /// Spans of relayed flows that came or went by it.
    #[serde(default)]
    pub spans: SpanReport,
}

/// What this node did as a relay, span by span, as histograms: place `k` counts the spans with `k` packets, the last of 65 places those with as many or more.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct SpanReport {
    /// Innovative packets that came.
    pub rank_in: Vec<u64>,
    /// Rank that the next node has.
    pub rank_out: Vec<u64>,
    /// Packets combined here.
    pub recoded: Vec<u64>,
}

/// A path.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct PathReport {
    /// Number within the link.
    pub path: u32,
    pub remote: String,
    /// Where packets are sent from, if a particular address.
    pub local: Option<String>,
    /// `opening`, `open` or `silent`.
    pub state: String,
    /// Other paths of the link in the same bottleneck, with which it shares the part of one flow.
    pub coupled: u32,
    /// Of UDP payload.
    pub mtu_bytes: u16,
    pub rtt_ms: f64,
    pub min_rtt_ms: f64,
    pub rtt_deviation_ms: f64,
    /// Of what this node sends.
    pub loss_ratio: f64,
    pub delivery_rate_bits_per_second: f64,
    pub in_flight_bytes: u64,
    pub sent_packets: u64,
    pub sent_bytes: u64,
    pub received_packets: u64,
    pub received_bytes: u64,
    pub lost_packets: u64,
    pub spurious_losses: u64,
    pub ce_packets: u64,
}

/// Sums over flows, in both directions.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct FlowSums {
    pub sent: FlowCounts,
    pub received: FlowCounts,
}

/// Counts of one direction.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct FlowCounts {
    pub source_packets: u64,
    pub repair_packets: u64,
    pub proactive_packets: u64,
    pub decoded_packets: u64,
    pub redundant_packets: u64,
    pub refused_packets: u64,
    pub coded_bytes: u64,
    pub messages: u64,
    pub expired_messages: u64,
    pub outstanding: u64,
}

/// A route.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct RouteReport {
    pub to: String,
    /// The neighbour's name.
    pub via: String,
    pub metric: u32,
    /// `neighbour`, `file` or `kernel`.
    pub origin: String,
    /// The neighbour's link is up.
    pub usable: bool,
}

/// One direction of a flow that passes.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct RelayedReport {
    pub source: String,
    pub destination: String,
    /// Its number in its session; 0 is the control flow.
    pub index: u64,
    /// Which part of it passes here, if it takes several routes at once; 0: all of it.
    #[serde(default)]
    pub part: u64,
    /// Packets received that raised the rank here, and rank that the next node has.
    pub rank_in: u64,
    pub rank_out: u64,
    pub redundant_packets: u64,
    pub passed_packets: u64,
    pub recoded_packets: u64,
    /// The same span by span.
    #[serde(default)]
    pub spans: SpanReport,
    pub dropped_packets: u64,
    pub waiting: u64,
    pub queueing_delay_ms: f64,
    pub memory_bytes: usize,
}

/// The tunnel.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct TunnelReport {
    pub device: String,
    pub mtu_bytes: u16,
    /// Packets for which the file names no node.
    pub unreachable: u64,
    /// Packets larger than their node takes.
    pub too_big: u64,
    /// What was no IP packet.
    pub malformed: u64,
    /// TCP goes as streams to nodes that take them.
    #[serde(default)]
    pub splits: bool,
    /// By node.
    pub nodes: BTreeMap<String, TunnelNodeReport>,
}

/// The tunnel's traffic with one node.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct TunnelNodeReport {
    pub sent_packets: u64,
    pub sent_bytes: u64,
    pub marked: u64,
    pub dropped: u64,
    pub received_packets: u64,
    pub received_bytes: u64,
    pub received_refused: u64,
    pub refused_flows: u64,
    pub ended_flows: u64,
    pub flows: Vec<TunnelFlowReport>,
    /// TCP as streams.
    #[serde(default)]
    pub split: SplitReport,
}

/// TCP connections with one node that go as streams, of both directions.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct SplitReport {
    /// How TCP goes to the node: `split`, `carry`, or `unknown` before it has said whether it splits.
    pub tcp: String,
    /// Connections that are open, that began, and that were refused.
    pub open: usize,
    pub begun: u64,
    pub refused: u64,
    /// Bytes of connections to the node, and from it.
    pub sent_bytes: u64,
    pub received_bytes: u64,
}

/// One flow into the tunnel.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct TunnelFlowReport {
    pub source: String,
    pub destination: String,
    pub protocol: u8,
    pub dscp: u8,
    pub packets: u64,
    pub bytes: u64,
    pub marked: u64,
    pub dropped: u64,
    pub waiting_packets: usize,
    pub waiting_bytes: usize,
    pub transport: Option<FlowCounts>,
}

//! Snapshots of what a node knows: every estimate, decision and drop is visible here.

use crate::congestion::ControlState;
use crate::ids::{LinkId, PathId};
use crate::units::{Bandwidth, Duration, Probability};
use serde::Serialize;
use std::net::{IpAddr, SocketAddr};

/// What a path is fit for at present.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum PathState {
    /// Its far address has not answered yet.
    Opening,
    /// It is open and carries packets.
    Open,
    /// No answer comes on it, while another path of the link is answered.
    Silent,
}

impl PathState {
    /// A word for tables and traces.
    pub fn word(self) -> &'static str {
        match self {
            Self::Opening => "opening",
            Self::Open => "open",
            Self::Silent => "silent",
        }
    }
}

/// One path of a link.
#[derive(Clone, Debug, PartialEq)]
pub struct PathStats {
    /// Its number in the link.
    pub path: PathId,
    /// Far address.
    pub remote: SocketAddr,
    /// Local address, where packets are sent from a particular one.
    pub local: Option<IpAddr>,
    /// What it is fit for at present.
    pub state: PathState,
    /// Largest datagram known to pass, bytes of UDP payload.
    pub mtu: u16,
    /// No search for a larger size is running at present.
    pub is_mtu_found: bool,
    /// Smoothed RTT.
    pub smoothed_rtt: Duration,
    /// Smallest RTT in the window.
    pub min_rtt: Duration,
    /// Last RTT sample.
    pub latest_rtt: Duration,
    /// Number of other paths of the link that seem to share this one's bottleneck. Together they take one flow's share of it.
    pub coupled: u32,
    /// Mean deviation of the RTT.
    pub rtt_var: Duration,
    /// Loss rate of what this side sends.
    pub loss: Probability,
    /// Mean length of loss bursts, packets.
    pub loss_burst: f64,
    /// Delivery rate.
    pub delivery_rate: Bandwidth,
    /// Bytes in flight.
    pub in_flight: u64,
    /// The congestion controller.
    pub control: ControlState,
    /// Datagrams and bytes of UDP payload sent.
    pub sent_packets: u64,
    /// Bytes of UDP payload sent.
    pub sent_bytes: u64,
    /// Datagrams received and authenticated.
    pub received_packets: u64,
    /// Bytes of UDP payload received and authenticated.
    pub received_bytes: u64,
    /// Packets declared lost.
    pub lost_packets: u64,
    /// Of these, declared lost but acknowledged later.
    pub spurious_losses: u64,
    /// Packets reported as CE-marked.
    pub ce_packets: u64,
    /// Probe time-outs.
    pub ptos: u64,
    /// Packets that were replayed or arrived beyond the replay window.
    pub replayed: u64,
    /// How often the path has moved to another address, of the far end or of this one.
    pub migrations: u64,
}

/// A link.
#[derive(Clone, Debug, PartialEq)]
pub struct LinkStats {
    /// Its paths.
    pub paths: Vec<PathStats>,
    /// Datagrams that could not be authenticated.
    pub undecryptable: u64,
    /// Nothing is encrypted: both sides asked for that.
    pub is_plaintext: bool,
    /// Coded packets of sealed flows that came by this link with a wrong tag (P16): the neighbour, or a node behind it, alters what it relays.
    pub polluted: u64,
    /// Key generation (fresh Diffie-Hellman) in use.
    pub key_generation: u64,
    /// Key epoch of the latest packet sent.
    pub key_epoch: u64,
    /// Handshake datagrams sent, retransmissions included.
    pub handshake_packets: u64,
    /// Duration of the handshake.
    pub handshake_time: Duration,
    /// All data flows that the link has carried, ended ones included.
    pub flows: FlowTotals,
    /// Spans of relayed flows: those that came by this link, and those that left by it. Ended flows are included.
    pub spans: SpanStats,
}

/// Sums over all data flows that a session or a link has had, ended ones included. Only `outstanding` and `memory` are sums over the flows that exist
/// now. `credit_limit` is 0.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct FlowTotals {
    /// Flows that this side sends.
    pub sent: FlowStats,
    /// Flows that this side receives.
    pub received: FlowStats,
}

impl FlowTotals {
    /// Adds a flow that exists.
    pub(crate) fn add(&mut self, is_outgoing: bool, flow: &FlowStats) {
        if is_outgoing { &mut self.sent } else { &mut self.received }.add(flow);
    }

    /// Adds those of another session.
    pub fn merge(&mut self, other: &Self) {
        self.sent.add(&other.sent);
        self.received.add(&other.received);
    }

    /// Adds a flow that ends now.
    pub(crate) fn add_ended(&mut self, is_outgoing: bool, flow: FlowStats) {
        self.add(is_outgoing, &FlowStats { outstanding: 0, waiting: 0, memory: 0, ..flow });
    }
}

/// One direction of a flow. Counts on the sending or receiving side of this node.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct FlowStats {
    /// Source packets sent uncoded for the first time, or received/recovered.
    pub source_packets: u64,
    /// Coded repair packets sent or received.
    pub repair_packets: u64,
    /// Of these, sent without a known deficit (proactive).
    pub proactive_packets: u64,
    /// Bytes of CODED frames sent or received.
    pub coded_bytes: u64,
    /// Bytes of application data handed over to the flow or to the application.
    pub app_bytes: u64,
    /// Messages sent or handed over.
    pub messages: u64,
    /// Messages dropped because their lifetime ended or because they were cancelled.
    pub expired_messages: u64,
    /// Source packets that were recovered by decoding.
    pub decoded_packets: u64,
    /// Received coded packets that were not innovative.
    pub redundant_packets: u64,
    /// Refused packets: no memory, outside credit, contradictory.
    pub refused_packets: u64,
    /// Coded packets of a sealed flow with a wrong tag, rejected before they were used (P16).
    pub polluted_packets: u64,
    /// RANK reports that lowered the rank which the sender believed the receiver to have (P9).
    pub corrections: u64,
    /// Source packets outstanding: sent, not yet known to have arrived.
    pub outstanding: u64,
    /// Bytes that the application has written and no source packet carries yet. A message counts as its content and 64 bytes. 0 on the receiving side.
    pub waiting: usize,
    /// One past the highest sequence number allowed by credit.
    pub credit_limit: u64,
    /// Bytes of memory held.
    pub memory: usize,
}

impl FlowStats {
    pub(crate) fn add(&mut self, other: &Self) {
        self.source_packets += other.source_packets;
        self.repair_packets += other.repair_packets;
        self.proactive_packets += other.proactive_packets;
        self.coded_bytes += other.coded_bytes;
        self.app_bytes += other.app_bytes;
        self.messages += other.messages;
        self.expired_messages += other.expired_messages;
        self.decoded_packets += other.decoded_packets;
        self.redundant_packets += other.redundant_packets;
        self.refused_packets += other.refused_packets;
        self.polluted_packets += other.polluted_packets;
        self.outstanding += other.outstanding;
        self.waiting += other.waiting;
        self.memory += other.memory;
    }
}

/// One direction of a flow that passes this node.
#[derive(Clone, Debug, PartialEq)]
pub struct RelayedStats {
    /// Address of its source.
    pub source: IpAddr,
    /// Address of its destination.
    pub destination: IpAddr,
    /// Its number in its session; 0 is the control flow.
    pub index: u64,
    /// Number of the part that passes here, if the flow takes several routes at once; 0 if all of it passes here.
    pub part: u64,
    /// The link that it comes by.
    pub incoming: LinkId,
    /// The link that it goes by.
    pub outgoing: LinkId,
    /// Innovative packets received.
    pub rank_in: u64,
    /// Packets received that were not innovative.
    pub redundant_packets: u64,
    /// Rank that the next node is believed to have of what passed.
    pub rank_out: u64,
    /// Packets passed on as they came.
    pub passed_packets: u64,
    /// Packets combined here.
    pub recoded_packets: u64,
    /// The same span by span.
    pub spans: SpanStats,
    /// Packets given up before they were sent.
    pub dropped_packets: u64,
    /// Packets that wait for their turn now.
    pub waiting: u64,
    /// Smallest delay that packets had in this node's queue lately (P15: at most 10 ms).
    pub queueing_delay: Duration,
    /// Bytes held.
    pub memory: usize,
}

/// What a relay did with each span, as histograms. Place `k` of 65 counts the spans with `k` packets, the last place those with 64 or more. A span is
/// counted when the relay is done with it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct SpanStats {
    /// Innovative packets received.
    pub rank_in: Vec<u64>,
    /// Rank that the next node has reported.
    pub rank_out: Vec<u64>,
    /// Packets combined here.
    pub recoded: Vec<u64>,
}

impl SpanStats {
    const PLACES: usize = 65;

    /// Counts one more span.
    pub(crate) fn note(&mut self, rank_in: usize, rank_out: usize, recoded: usize) {
        for (histogram, value) in [(&mut self.rank_in, rank_in), (&mut self.rank_out, rank_out), (&mut self.recoded, recoded)] {
            let at = value.min(Self::PLACES - 1);
            if histogram.len() <= at {
                histogram.resize(at + 1, 0);
            }
            histogram[at] += 1;
        }
    }

    /// Adds the spans of another.
    pub(crate) fn add(&mut self, other: &Self) {
        add_histogram(&mut self.rank_in, &other.rank_in);
        add_histogram(&mut self.rank_out, &other.rank_out);
        add_histogram(&mut self.recoded, &other.recoded);
    }
}

fn add_histogram(to: &mut Vec<u64>, from: &[u64]) {
    if to.len() < from.len() {
        to.resize(from.len(), 0);
    }
    to.iter_mut().zip(from).for_each(|(to, from)| *to += from);
}

/// Traffic of one of the routes that the flows of a session take at once: what the far end acknowledged, and what came from it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct RouteStats {
    /// Packets that the far end acknowledged.
    pub sent_packets: u64,
    /// Their bytes.
    pub sent_bytes: u64,
    /// Packets that came from the far end.
    pub received_packets: u64,
    /// Their bytes.
    pub received_bytes: u64,
}

impl RouteStats {
    pub(crate) fn note_sent(&mut self, packets: u64, bytes: u64) {
        self.sent_packets += packets;
        self.sent_bytes += bytes;
    }

    /// Sum of two routes.
    pub fn and(self, other: Self) -> Self {
        Self {
            sent_packets: self.sent_packets + other.sent_packets,
            sent_bytes: self.sent_bytes + other.sent_bytes,
            received_packets: self.received_packets + other.received_packets,
            received_bytes: self.received_bytes + other.received_bytes,
        }
    }

    pub(crate) fn note_received(&mut self, packets: u64, bytes: u64) {
        self.received_packets += packets;
        self.received_bytes += bytes;
    }
}

/// Memory of a node.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Memory {
    /// Bytes held by flows and sessions now.
    pub used: usize,
    /// Highest value so far.
    pub peak: usize,
    /// Configured bound.
    pub limit: usize,
}

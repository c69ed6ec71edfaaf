//! What the owner of a node may set.

use crate::congestion::CongestionControl;
use crate::crypto::{PreSharedKeys, PublicKey, SharedKey};
use crate::units::Duration;
use crate::wire::params::MIN_DATAGRAM;
use std::collections::BTreeMap;
use std::net::{IpAddr, SocketAddr};

/// Source packets that may come on a new flow before its first CREDIT (P15).
pub(crate) const INITIAL_CREDIT: u64 = 64;

/// Everything about a node that its owner may set. Each default is stated with its unit.
#[derive(Clone)]
pub struct NodeConfig {
    /// Congestion control of every path. Default `model`.
    pub congestion: CongestionControl,
    /// Largest UDP payload to send over IPv4, in bytes: the largest packet minus IP and UDP headers. Over IPv6 it is 20 less, for its header is longer.
    /// Default 1472, which makes packets of 1500; at least 800. What routes and paths take below it is found out.
    pub max_datagram: u16,
    /// Nothing heard for this long ends a link (P23). Default 30 s.
    pub idle_timeout: Duration,
    /// A link with sessions is never silent for longer than this, so that NATs and firewalls on the path do not forget it (P23). Default none: a third of
    /// the idle timeout, which is also the most.
    pub keep_alive: Option<Duration>,
    /// An attempt to reach a peer ends after this long. Default 10 s.
    pub connect_timeout: Duration,
    /// Ceiling of the memory of one flow, in bytes, at each end (P13). Default 128 MiB.
    pub flow_memory: usize,
    /// Ceiling of the memory of all flows of the node, in bytes. Default 512 MiB.
    pub node_memory: usize,
    /// Largest message that this node takes, in bytes (P18). Default 16 MiB.
    pub max_message: usize,
    /// Links that others open, at most, once they are up; the node's own are as many at most, and not counted among these. Default 1024.
    pub max_links: usize,
    /// Of these, links of one key at a time: a further one takes the place of the oldest, which ends with `TooMany`. Default 32, a 32nd of all: programs of one user
    /// that call at the same time have as many, and what restarts and lost addresses leave behind is far less.
    pub max_links_per_key: usize,
    /// Sessions, at most. Default 1024.
    pub max_sessions: usize,
    /// Flows per session and direction, at most. Default 256.
    pub max_flows: usize,
    /// Flows that come by one link, those that pass this node included, at most. Default 4096.
    pub max_link_flows: usize,
    /// Packets in one key epoch (P3); a power of two. Default 2^20; tests use 1024.
    pub epoch_packets: u64,
    /// Fresh Diffie-Hellman after this long or 2^26 packets (P3), on links and in relayed sessions that are opened here. Default 120 s.
    pub rekey_after: Duration,
    /// Packets, both directions together, after which a fresh Diffie-Hellman is due, on a link and in a relayed session. Default 2^26.
    pub rekey_packets: u64,
    /// Mark packets as ECN-capable. Default true.
    pub ecn: bool,
    /// How often this node's packets shall be acknowledged (P8); its neighbours are told.
    pub acks: AckWish,
    /// Keys that may connect; `None` lets anyone. Default `None`.
    pub authorised: Option<Vec<PublicKey>>,
    /// Keys that may open sessions to this node's addresses over relays. Default: those that may open links.
    pub sessions_from: SessionAccess,
    /// Pre-shared key mixed into the handshakes of relayed sessions, in both directions; the far ends need the same. Default none.
    pub session_psk: Option<SharedKey>,
    /// Accept links that others open. Default true.
    pub accept: bool,
    /// Which keys are answered at all. Default: any.
    pub answer: Answer,
    /// Seal nothing, for measurement only; both sides must say so. Default false.
    pub plaintext: bool,
    /// Pre-shared key mixed into the handshake; both sides need the same. Default none.
    pub psk: Option<SharedKey>,
    /// Pre-shared keys of single neighbours, by their static key: each takes the place of [`Self::psk`] for one. Default none.
    pub neighbour_psks: BTreeMap<PublicKey, SharedKey>,
    /// Longest burst in time that the pacer releases at once. Default 100 us (P11); a driver whose timers and system calls are coarser asks for more,
    /// and `noctule`'s own does (docs/decisions/0021).
    pub pacing_quantum: Duration,
    /// Flows that promise delivery and go to a far end that several routes of one metric lead to take all of them at once (docs/spec/multipath.md 6). Default true;
    /// false: each flow takes one route at a time.
    pub several_routes: bool,
    /// Make trace events, to be drained with [`crate::Node::poll_trace`] (P22). Default false.
    pub trace: bool,
    /// Each neighbour's key belongs to one process: a link that comes up with a later process of the same key ends the links of the one before, whose other
    /// end is gone. Default false, as several programs of one user have one key.
    pub one_process_per_key: bool,
}

/// Whose first packets are answered.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Answer {
    /// Anyone's: a stranger learns that there is a node, and its key.
    #[default]
    Anyone,
    /// Those of nodes that know this node's public key. To others the port is silent.
    Known,
}

/// What a sender asks of the peer that acknowledges its packets (P8). Gaps in what comes of latency flows are acknowledged at once all the same.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct AckWish {
    /// One acknowledgement per so many packets, if they come faster than one per millisecond. Default 32; 1 to 1024.
    pub every: u16,
    /// None waits longer than this, nor than a quarter of a round trip (or 2 ms, where that is more). Default 25 ms; 1 to 25 ms. Sooner costs
    /// bytes on the return path.
    pub max_delay: Duration,
}

impl AckWish {
    const MOST_PACKETS: u16 = 1024;
    const LONGEST: Duration = Duration::from_millis(25);

    /// Within what both ends understand: loss detection waits for acknowledgements as long as the rule says, no longer.
    pub(crate) fn bounded(self) -> Self {
        Self { every: self.every.clamp(1, Self::MOST_PACKETS), max_delay: self.max_delay.clamp(Duration::from_millis(1), Self::LONGEST) }
    }
}

impl Default for AckWish {
    fn default() -> Self {
        Self { every: 32, max_delay: Self::LONGEST }
    }
}

/// The header of IPv6 is so much longer than that of IPv4, in bytes.
const IPV6_EXTRA: u16 = 20;

impl NodeConfig {
    /// Largest UDP payload towards this address, in bytes.
    pub fn max_datagram_to(&self, remote: SocketAddr) -> u16 {
        match remote.ip().to_canonical() {
            IpAddr::V4(_) => self.max_datagram,
            IpAddr::V6(_) => self.max_datagram.saturating_sub(IPV6_EXTRA).max(MIN_DATAGRAM),
        }
    }

    /// Every pre-shared key that is mixed into handshakes of links.
    pub(crate) fn psks(&self) -> PreSharedKeys<'_> {
        PreSharedKeys { everybody: self.psk.as_ref().map(SharedKey::as_bytes), own: &self.neighbour_psks }
    }
}

impl Default for NodeConfig {
    fn default() -> Self {
        Self {
            congestion: CongestionControl::Model,
            max_datagram: 1472,
            idle_timeout: Duration::from_secs(30),
            keep_alive: None,
            connect_timeout: Duration::from_secs(10),
            flow_memory: 128 << 20,
            node_memory: 512 << 20,
            max_message: 16 << 20,
            max_links: 1024,
            max_links_per_key: 32,
            max_sessions: 1024,
            max_flows: 256,
            max_link_flows: 4096,
            epoch_packets: 1 << 20,
            rekey_after: Duration::from_secs(120),
            rekey_packets: crate::crypto::GENERATION_PACKETS,
            ecn: true,
            acks: AckWish::default(),
            authorised: None,
            sessions_from: SessionAccess::AsLinks,
            session_psk: None,
            accept: true,
            answer: Answer::Anyone,
            plaintext: false,
            psk: None,
            neighbour_psks: BTreeMap::new(),
            pacing_quantum: Duration::from_micros(100),
            several_routes: true,
            trace: false,
            one_process_per_key: false,
        }
    }
}

/// Keys that may open sessions to this node over relays.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum SessionAccess {
    /// Those that may open links: the keys of `NodeConfig::authorised`, or any if there is no such list.
    #[default]
    AsLinks,
    /// Anyone.
    Anyone,
    /// Owners of these keys.
    Keys(Vec<PublicKey>),
}

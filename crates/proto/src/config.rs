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
    /// Largest UDP payload to send over IPv4, in bytes: the largest packet minus IP and UDP headers. Over IPv6 it is 20 less, as the header is longer.
    /// Default 1472, which makes packets of 1500; at least 800. Where a path takes less, the node finds its size by probes.
    pub max_datagram: u16,
    /// Nothing heard for this long ends a link (P23). Default 30 s.
    pub idle_timeout: Duration,
    /// A link with sessions sends a packet at least this often, so that NATs and firewalls on the path do not forget it (P23). `None`, the default,
    /// means a third of the idle timeout; longer times count as that.
    pub keep_alive: Option<Duration>,
    /// An attempt to reach a peer ends after this long. Default 10 s.
    pub connect_timeout: Duration,
    /// Ceiling of the memory of one flow, in bytes, at each end (P13). Default 128 MiB.
    pub flow_memory: usize,
    /// Ceiling of the memory of all flows of the node, in bytes. Default 512 MiB.
    pub node_memory: usize,
    /// Largest message that this node takes, in bytes (P18). Default 16 MiB.
    pub max_message: usize,
    /// Largest number of links that others opened and that are up. Links opened here have a limit of the same size, counted apart. Default 1024.
    pub max_links: usize,
    /// Of these, the largest number of links of one key. A further link ends the oldest one with `TooMany`. Default 32, a 32nd of all: enough for the
    /// programs that one user runs at a time, and far more than the dead links that restarts and changes of address leave.
    pub max_links_per_key: usize,
    /// Largest number of sessions. Default 1024.
    pub max_sessions: usize,
    /// Largest number of flows per session and direction. Default 256.
    pub max_flows: usize,
    /// Largest number of flows that come by one link, those that this node relays included. Default 4096.
    pub max_link_flows: usize,
    /// Packets in one key epoch (P3); a power of two. Default 2^20; tests use 1024.
    pub epoch_packets: u64,
    /// Time after which a fresh Diffie-Hellman is due (P3), on links and in relayed sessions that are opened here. Default 120 s. So it is after
    /// [`Self::rekey_packets`].
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
    /// Pre-shared keys of single neighbours, by their static key. Each takes the place of [`Self::psk`] for its neighbour. Default none.
    pub neighbour_psks: BTreeMap<PublicKey, SharedKey>,
    /// Longest burst in time that the pacer releases at once. Default 100 us (P11); a driver whose timers and system calls are coarser asks for more,
    /// and `noctule`'s own does (docs/decisions/0021).
    pub pacing_quantum: Duration,
    /// Where several routes of one metric lead to a far end, a flow that promises delivery takes all of them at once (docs/spec/multipath.md 6).
    /// Default true; with false each flow takes one route at a time.
    pub several_routes: bool,
    /// Make trace events, to be drained with [`crate::Node::poll_trace`] (P22). Default false.
    pub trace: bool,
    /// Each neighbour's key belongs to one process. A link with a later process of the same key then ends the links with the earlier one, which is gone.
    /// Default false, as several programs of one user have one key.
    pub one_process_per_key: bool,
}

/// Senders whose first packets are answered.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Answer {
    /// All: a stranger learns that there is a node, and its key.
    #[default]
    Anyone,
    /// Nodes that know this node's public key. To others the port is silent.
    Known,
}

/// What a sender asks of the peer that acknowledges its packets (P8). Gaps in latency flows are acknowledged at once, whatever is set here.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct AckWish {
    /// One acknowledgement per so many packets, if they come faster than one per millisecond. Default 32; 1 to 1024.
    pub every: u16,
    /// The longest that an acknowledgement is delayed; a quarter of a round trip (at least 2 ms) is a further limit. Default 25 ms; 1 to 25 ms.
    /// A shorter time costs bytes on the return path.
    pub max_delay: Duration,
}

impl AckWish {
    const MOST_PACKETS: u16 = 1024;
    const LONGEST: Duration = Duration::from_millis(25);

    /// The values, brought into the ranges above. Loss detection at the other end waits for acknowledgements no longer than these ranges allow.
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

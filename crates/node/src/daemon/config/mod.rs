//! The node's file, checked: what `noctule node` runs by.

mod check;
mod complaint;
mod file;
pub mod keys;
mod read;
#[cfg(test)]
mod tests;

pub use complaint::Complaints;

use crate::further_path::FurtherPath;
use ipnet::IpNet;
use noctule::{Answer, Bandwidth, CongestionControl, PublicKey, SharedKey};
use noctule_proto::blind::{Plan, Shape};
use noctule_proto::units::Probability;
use std::net::{IpAddr, SocketAddr};
use std::path::{Path, PathBuf};
use std::time::Duration;

/// A node's file that cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum ConfigError {
    /// It cannot be read at all.
    #[error("cannot read {}: {error}; name the node's file with --config, or make one with noctule node init", path.display())]
    Read {
        /// Which.
        path: PathBuf,
        /// Why.
        error: std::io::Error,
    },
    /// Something in it is wrong.
    #[error(transparent)]
    Wrong(#[from] Complaints),
}

/// Everything that the file says, with its defaults.
#[derive(Clone, Debug, PartialEq)]
pub struct Config {
    /// For logs and status.
    pub name: String,
    /// File of the secret key.
    pub key: PathBuf,
    /// UDP addresses to listen on, no two with the same IP address; none: any, on the default port.
    pub listen: Vec<SocketAddr>,
    /// Addresses of this node in the overlay.
    pub addresses: Vec<IpAddr>,
    /// Forwards flows of others.
    pub relay: bool,
    /// Whose first packets are answered.
    pub answer: Answer,
    /// A pre-shared key for all links but those of neighbours that have one of their own.
    pub psk: Option<SharedKey>,
    /// Congestion control of every path.
    pub congestion: CongestionControl,
    /// Silence that ends a link.
    pub idle_timeout: Duration,
    /// Longest silence of a link with sessions, if it is not to be a third of that.
    pub keep_alive: Option<Duration>,
    /// All other nodes that the file names, neighbours first.
    pub nodes: Vec<RemoteNode>,
    /// Routes to them.
    pub routes: Vec<StaticRoute>,
    /// The kernel's table to follow.
    pub kernel_routes: Option<KernelRoutes>,
    /// Streams in one direction, over links that bring nothing back.
    pub one_ways: Vec<OneWay>,
    /// Where is kept what those streams must not forget.
    pub state: PathBuf,
    /// The device for IP packets.
    pub tun: Option<TunConfig>,
    /// Bounds.
    pub limits: Limits,
    /// Unix socket for `noctule status` and `reload`.
    pub control: PathBuf,
    /// Where Prometheus may ask.
    pub metrics: Option<MetricsConfig>,
}

/// Metrics over HTTP.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MetricsConfig {
    /// Where.
    pub listen: SocketAddr,
    /// Names, besides addresses and localhost, under which they may be asked for.
    pub names: Vec<String>,
}

/// Another node of the overlay.
#[derive(Clone, Debug, PartialEq)]
pub struct RemoteNode {
    /// The name that this file gives it.
    pub name: String,
    /// Its static key.
    pub key: PublicKey,
    /// Its addresses in the overlay.
    pub addresses: Vec<IpAddr>,
    /// What lies behind it; its own addresses do without being named.
    pub prefixes: Vec<IpNet>,
    /// Largest IP packet to send to it, if smaller than the device's.
    pub mtu: Option<u16>,
    /// How it is linked to this node; `None`: over others.
    pub link: Option<LinkConfig>,
}

impl RemoteNode {
    /// The node at `host` as an end sees it that is attached to it and to no other.
    pub fn gateway(host: String, key: PublicKey) -> Self {
        let link = LinkConfig { endpoint: Some(host.clone()), paths: Vec::new(), next_hops: Vec::new(), psk: None };
        Self { name: host, key, addresses: Vec::new(), prefixes: Vec::new(), mtu: None, link: Some(link) }
    }
}

/// The link to a neighbour.
#[derive(Clone, Debug, PartialEq)]
pub struct LinkConfig {
    /// Where to call it; `None`: it calls.
    pub endpoint: Option<String>,
    /// Further paths of the link, where this node calls.
    pub paths: Vec<FurtherPath>,
    /// Addresses by which the kernel's table names it as next hop, beside its overlay addresses and the link's remote address.
    pub next_hops: Vec<IpAddr>,
    /// A pre-shared key for this link.
    pub psk: Option<SharedKey>,
}

/// A route of the file.
#[derive(Clone, Debug, PartialEq)]
pub struct StaticRoute {
    /// Destinations.
    pub to: IpNet,
    /// Key of the neighbour.
    pub via: PublicKey,
    /// Smaller first.
    pub metric: u32,
}

/// The kernel's table to follow.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct KernelRoutes {
    /// Number of the table; 254 is the main one.
    pub table: u32,
    /// Routes over this device only.
    pub interface: Option<String>,
}

/// What this node does with streams in one direction (docs/spec/blind.md).
#[derive(Clone, Debug, PartialEq)]
pub enum OneWay {
    /// It sends the tunnel's packets for a node.
    To(OneWayTo),
    /// It receives such packets of some nodes.
    From(OneWayFrom),
    /// It passes streams on.
    Relay(OneWayRelay),
}

/// A stream to a node.
#[derive(Clone, Debug, PartialEq)]
pub struct OneWayTo {
    /// The name that the file gives it.
    pub name: String,
    /// Its static key.
    pub key: PublicKey,
    /// Where datagrams go first.
    pub endpoint: SocketAddr,
    /// At which they go.
    pub rate: Bandwidth,
    /// How long a packet waits for others of its block.
    pub delay: Duration,
    /// A key that both ends share beside.
    pub psk: Option<SharedKey>,
    /// The cut.
    pub shape: Shape,
    /// How much is sent.
    pub plan: Plan,
}

/// Streams of some nodes.
#[derive(Clone, Debug, PartialEq)]
pub struct OneWayFrom {
    /// Names and static keys.
    pub senders: Vec<(String, PublicKey)>,
    /// Where their datagrams come.
    pub listen: SocketAddr,
    /// From where; empty: from anywhere.
    pub sources: Vec<IpNet>,
    /// A key that both ends share beside.
    pub psk: Option<SharedKey>,
}

/// Streams of others.
#[derive(Clone, Debug, PartialEq)]
pub struct OneWayRelay {
    /// Where their datagrams come.
    pub listen: SocketAddr,
    /// From where; empty: from anywhere.
    pub sources: Vec<IpNet>,
    /// For which nodes, by public key; empty: for any.
    pub destinations: Vec<PublicKey>,
    /// Where they go.
    pub endpoint: SocketAddr,
    /// At which.
    pub rate: Bandwidth,
    /// Expected on the path there.
    pub loss: Probability,
    /// Bytes of the largest symbol.
    pub symbol: u16,
    /// Bytes that may be held.
    pub memory: usize,
}

impl OneWay {
    /// The address that it has for itself.
    pub fn listen(&self) -> Option<SocketAddr> {
        match self {
            Self::To(_) => None,
            Self::From(from) => Some(from.listen),
            Self::Relay(relay) => Some(relay.listen),
        }
    }
}

/// The device for IP packets.
#[derive(Clone, Debug, PartialEq)]
pub struct TunConfig {
    /// Its name.
    pub name: String,
    /// Largest IP packet, bytes.
    pub mtu: u16,
    /// Its addresses.
    pub addresses: Vec<IpNet>,
    /// Set kernel routes to what lies behind other nodes.
    pub install_routes: bool,
    /// Which networks of the main table stay outside the prefixes around them; `None`: by what the prefixes are.
    pub lan: Option<Lan>,
    /// How TCP goes to nodes that take streams.
    pub tcp: TunTcp,
    /// How tunnelled traffic is treated.
    pub treatment: Treatment,
}

/// Which networks of the kernel's main table stay outside the tunnel's prefixes around them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Lan {
    /// All that the main table knows better.
    Bypass,
    /// Private networks that the host is attached to.
    Private,
    /// None.
    Tunnel,
}

/// How TCP goes through the tunnel.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TunTcp {
    /// As packets.
    Carry,
    /// Each connection as a stream, to nodes that take them.
    Split,
}

/// How tunnelled traffic is treated.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Treatment {
    /// Lifetime of a packet that is not TCP.
    pub datagram_lifetime: Duration,
    /// Lifetime of a TCP packet.
    pub tcp_lifetime: Duration,
    /// A flow without packets is closed after this long.
    pub flow_idle: Duration,
    /// Flows towards one node at most; more share.
    pub max_flows: usize,
}

/// What the node may use.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    /// Bytes of all flows.
    pub memory: usize,
    /// Bytes of one flow.
    pub flow_memory: usize,
    /// Links.
    pub links: usize,
    /// Flows of others.
    pub relayed_flows: usize,
    /// Sessions.
    pub sessions: usize,
    /// Objects that it passes on to several neighbours at a time.
    pub trees: usize,
    /// Bytes of streams in one direction that pass.
    pub one_way_memory: usize,
}

/// What a file with this content means, as if it lay in the usual place.
#[cfg(any(test, fuzzing))]
pub fn parse(content: &str) -> Result<Config, Complaints> {
    check::check(Path::new("/etc/noctule/node.toml"), content)
}

/// What a file with this content means, if it lay there.
pub fn check_text(path: &Path, content: &str) -> Result<Config, Complaints> {
    check::check(path, content)
}

/// The control socket that a file names, whatever else is in it. `None`: it names none.
///
/// # Errors
/// It cannot be read, or is no TOML.
pub fn control_socket(path: &Path) -> Result<Option<PathBuf>, String> {
    let content = std::fs::read_to_string(path).map_err(|e| e.to_string())?;
    let table: toml::Table = content.parse().map_err(|e: toml::de::Error| e.message().to_owned())?;
    let socket = table.get("control").and_then(|c| c.get("socket")).and_then(toml::Value::as_str);
    Ok(socket.map(|socket| path.parent().unwrap_or(Path::new("")).join(socket)))
}

impl Config {
    /// Reads and checks a file.
    pub fn read(path: &Path) -> Result<Self, ConfigError> {
        let content = std::fs::read_to_string(path).map_err(|error| ConfigError::Read { path: path.to_owned(), error })?;
        Ok(check::check(path, &content)?)
    }

    /// Whether a stream in one direction is all that the file says of how to reach a node.
    pub fn is_one_way_only(&self, node: &RemoteNode) -> bool {
        let is_named = |o: &OneWay| match o {
            OneWay::To(to) => to.key == node.key,
            OneWay::From(from) => from.senders.iter().any(|(_, key)| *key == node.key),
            OneWay::Relay(_) => false,
        };
        let has_route = || self.routes.iter().any(|r| node.addresses.iter().any(|a| r.to.contains(a)));
        node.link.is_none() && self.one_ways.iter().any(is_named) && !has_route()
    }

    /// Nodes with a link of their own to this one.
    pub fn neighbours(&self) -> impl Iterator<Item = (&RemoteNode, &LinkConfig)> {
        self.nodes.iter().filter_map(|n| Some((n, n.link.as_ref()?)))
    }
}

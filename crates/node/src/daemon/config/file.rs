//! The node's file as it is written: TOML tables and keys, each value with its place, nothing checked beyond its kind.

use serde::Deserialize;
use serde::de::{Deserializer, SeqAccess, Visitor};
use std::fmt;
use std::ops::Range;
use toml::Spanned;

/// A text with its place in the file.
pub type Text = Spanned<String>;

/// One text, or a list of them.
#[derive(Debug)]
pub enum OneOrMore {
    /// Its place is that of the whole value.
    One(String),
    More(Vec<Text>),
}

impl OneOrMore {
    /// All of them; `place` is that of the whole value.
    pub fn texts(&self, place: Range<usize>) -> Vec<Text> {
        match self {
            Self::One(text) => vec![Spanned::new(place, text.clone())],
            Self::More(texts) => texts.clone(),
        }
    }
}

impl<'de> Deserialize<'de> for OneOrMore {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Either;
        impl<'de> Visitor<'de> for Either {
            type Value = OneOrMore;
            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a text or a list of texts")
            }
            fn visit_str<E>(self, text: &str) -> Result<OneOrMore, E> {
                Ok(OneOrMore::One(text.to_owned()))
            }
            fn visit_seq<A: SeqAccess<'de>>(self, mut list: A) -> Result<OneOrMore, A::Error> {
                let mut texts = Vec::new();
                while let Some(text) = list.next_element()? {
                    texts.push(text);
                }
                Ok(OneOrMore::More(texts))
            }
        }
        deserializer.deserialize_any(Either)
    }
}

/// The whole file.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub struct File {
    /// What this node is.
    pub node: NodeTable,
    /// Nodes with a link to this one.
    #[serde(default, rename = "neighbour")]
    pub neighbours: Vec<NeighbourTable>,
    /// Nodes further away.
    #[serde(default, rename = "remote")]
    pub remotes: Vec<RemoteTable>,
    /// Routes to them.
    #[serde(default, rename = "route")]
    pub routes: Vec<RouteTable>,
    /// The kernel's table to take routes from.
    pub kernel_routes: Option<KernelTable>,
    /// Streams in one direction.
    #[serde(default, rename = "one-way")]
    pub one_ways: Vec<Spanned<OneWayTable>>,
    /// The device that carries IP packets.
    pub tun: Option<TunTable>,
    /// What the node may use.
    #[serde(default)]
    pub limits: LimitsTable,
    /// Where `noctule status` asks.
    #[serde(default)]
    pub control: ControlTable,
    /// Prometheus.
    pub metrics: Option<MetricsTable>,
}

/// `[node]`
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub struct NodeTable {
    pub name: Option<Text>,
    pub key: Text,
    pub listen: Option<Spanned<OneOrMore>>,
    #[serde(default)]
    pub addresses: Vec<Text>,
    #[serde(default)]
    pub relay: bool,
    pub answer: Option<Text>,
    pub psk: Option<Text>,
    pub congestion: Option<Text>,
    pub idle_timeout: Option<Text>,
    pub keep_alive: Option<Text>,
    pub state: Option<Text>,
}

/// `[[neighbour]]`
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub struct NeighbourTable {
    pub name: Text,
    pub key: Text,
    pub endpoint: Option<Text>,
    #[serde(default)]
    pub paths: Vec<Text>,
    #[serde(default)]
    pub addresses: Vec<Text>,
    #[serde(default)]
    pub prefixes: Vec<Text>,
    #[serde(default)]
    pub next_hops: Vec<Text>,
    pub psk: Option<Text>,
    pub mtu: Option<Spanned<u16>>,
}

/// `[[remote]]`
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub struct RemoteTable {
    pub name: Text,
    pub key: Text,
    #[serde(default)]
    pub addresses: Vec<Text>,
    #[serde(default)]
    pub prefixes: Vec<Text>,
    pub mtu: Option<Spanned<u16>>,
}

/// `[[route]]`
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub struct RouteTable {
    pub to: Text,
    pub via: Text,
    #[serde(default)]
    pub metric: u32,
}

/// `[kernel-routes]`
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub struct KernelTable {
    pub table: Spanned<u32>,
    pub interface: Option<Text>,
}

/// `[[one-way]]`
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub struct OneWayTable {
    pub to: Option<Text>,
    pub from: Option<Spanned<OneOrMore>>,
    pub listen: Option<Text>,
    pub endpoint: Option<Text>,
    pub rate: Option<Text>,
    pub loss: Option<Spanned<OneOrMore>>,
    pub delay: Option<Text>,
    pub psk: Option<Text>,
    pub sources: Option<Spanned<OneOrMore>>,
    #[serde(rename = "for")]
    pub destinations: Option<Spanned<OneOrMore>>,
    pub symbol: Option<Spanned<u16>>,
}

/// `[tun]`
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub struct TunTable {
    pub name: Option<Text>,
    pub mtu: Option<Spanned<u16>>,
    #[serde(default)]
    pub addresses: Vec<Text>,
    pub install_routes: Option<bool>,
    pub lan: Option<Text>,
    pub tcp: Option<Text>,
    pub datagram_lifetime: Option<Text>,
    pub tcp_lifetime: Option<Text>,
    pub flow_idle: Option<Text>,
    pub max_flows: Option<Spanned<usize>>,
}

/// `[limits]`
#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub struct LimitsTable {
    pub memory: Option<Text>,
    pub flow_memory: Option<Text>,
    pub links: Option<Spanned<usize>>,
    pub relayed_flows: Option<Spanned<usize>>,
    pub sessions: Option<Spanned<usize>>,
    pub trees: Option<Spanned<usize>>,
    pub one_way_memory: Option<Text>,
}

/// `[control]`
#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub struct ControlTable {
    pub socket: Option<Text>,
}

/// `[metrics]`
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub struct MetricsTable {
    pub listen: Option<Text>,
    #[serde(default)]
    pub names: Vec<String>,
}

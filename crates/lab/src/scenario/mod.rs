//! One run: topology, conditions, workload and how long; what limits follow from the configuration (P24, P25).

mod effort;
mod file;
mod limits;
mod network_file;
mod place;
mod sender;
mod topology;
mod workload;

use std::time::Duration;

use serde::{Deserialize, Serialize};

use crate::link::{Bandwidth, LinkSpec, Outage, Period, SpecError};

pub use file::{Case, Expectations, FileError, ScenarioFile};
pub use limits::{Limits, lost_in_a_row, mathis, payload_share};
pub use network_file::{FlowTable, HopTable, RouteTable, TopologyTable};
pub use sender::{Sender, Senders};
pub use topology::{Crossing, FlowEnds, MOST_HOPS, MOST_PATHS, Network, NextHop, Relays};
pub use workload::{Congestion, ModeName, SMALLEST_MESSAGE, Workload};

/// Both directions of a link.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Hop {
    /// Towards the receiver.
    pub forward: LinkSpec,
    /// Back.
    pub reverse: LinkSpec,
}

/// IP version: decides the overhead of a packet.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Ip {
    /// 28 bytes of IP and UDP header.
    #[default]
    V4,
    /// 48 bytes.
    V6,
}

impl Ip {
    /// Bytes of IP and UDP header.
    pub const fn overhead(self) -> u32 {
        match self {
            Self::V4 => 28,
            Self::V6 => 48,
        }
    }
}

/// Everything that determines a run.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub struct Scenario {
    /// The links; in a chain from sender to receiver.
    pub hops: Vec<Hop>,
    /// The nodes that they join, and the flows over them.
    pub network: Network,
    /// IP version.
    pub ip: Ip,
    /// Promise of the flows.
    pub mode: ModeName,
    /// Congestion control of every node.
    pub cc: Congestion,
    /// Lifetime of messages.
    pub lifetime: Option<Period>,
    /// Messages are handed over as they come, not in order. Always so in `btp`.
    pub unordered: bool,
    /// Separate pairs of nodes over the same links.
    pub pairs: u32,
    /// What is sent.
    pub workload: Workload,
    /// The far end sends the same at the same time.
    pub both: bool,
    /// Length of the run, warm-up included.
    pub seconds: Period,
    /// What is not counted at its start.
    pub warmup: Period,
    /// Seed of everything random.
    pub seed: u64,
    /// Ceiling of the memory of a flow in bytes; the protocol's default if none.
    pub flow_memory: Option<usize>,
    /// Time that a handshake may take; the protocol's default if none.
    pub connect_timeout: Option<Period>,
    /// Packets per batch; the protocol's default if none.
    pub batch_size: Option<u8>,
    /// Asked share of messages that need no second round trip; the protocol's default if none.
    pub no_retransmit: Option<crate::link::Probability>,
    /// Packets per key epoch; the protocol's default if none.
    pub epoch_packets: Option<u64>,
    /// Packets per acknowledgement that the ends ask for; the protocol's default if none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ack_every: Option<u16>,
    /// A time in which the receiving applications read nothing.
    pub stall: Option<Outage>,
    /// Bulk senders beside each other over the same links; empty: noctule alone, as all the rest says.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub senders: Vec<Sender>,
}

/// A scenario that cannot be run.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ScenarioError {
    /// A link that cannot be.
    #[error("hop {hop}: {source}")]
    Link {
        /// Counted from 1.
        hop: usize,
        /// What is wrong with it.
        source: SpecError,
    },
    /// A flow that cannot be.
    #[error("flow {flow}: {reason}")]
    Flow {
        /// Counted from 1.
        flow: usize,
        /// What is wrong with it.
        reason: String,
    },
    /// Everything else.
    #[error("{0}")]
    Invalid(String),
}

impl Scenario {
    /// A run of default length over a chain of `hops` with everything else as the command line has it by default.
    pub fn new(hops: Vec<Hop>) -> Self {
        let mut scenario = Self {
            network: Network::chain(hops.len()),
            hops,
            ip: Ip::default(),
            mode: ModeName(noctule_proto::options::Mode::Brtp),
            cc: Congestion::Model,
            lifetime: None,
            unordered: false,
            pairs: 1,
            workload: Workload::Bulk,
            both: false,
            seconds: Period::ZERO,
            warmup: Period::ZERO,
            seed: 7,
            flow_memory: None,
            connect_timeout: None,
            batch_size: None,
            no_retransmit: None,
            epoch_packets: None,
            ack_every: None,
            stall: None,
            senders: Vec::new(),
        };
        scenario.set_default_length(None, None);
        scenario
    }

    /// The least rate of a link towards the receiver; none, if no link has one.
    pub fn slowest(&self) -> Option<Bandwidth> {
        self.hops.iter().filter_map(|hop| hop.forward.capacity()).min()
    }

    /// The least MTU of a link towards the receiver.
    pub fn least_mtu(&self) -> u32 {
        self.hops.iter().map(|hop| hop.forward.mtu).min().unwrap_or(1500)
    }

    /// Sum of the propagation delays there and back; of several flows, the longest.
    pub fn base_rtt(&self) -> Duration {
        let slowest = |crossing| self.network.lanes(crossing).map(|lane| self.crossed(lane).delay.0).max().unwrap_or_default();
        self.network.longest(true, slowest)
    }

    /// Sum of the propagation delays towards the receiver, over the fastest of links side by side; of several flows, the longest.
    pub fn base_delay(&self) -> Duration {
        let fastest = |crossing| self.network.lanes(crossing).map(|lane| self.crossed(lane).delay.0).min().unwrap_or_default();
        self.network.longest(false, fastest)
    }

    /// Round trip that `bdp` means at the queues of a link: that of the longest flow; of links side by side, each has its own.
    pub fn queue_rtt(&self, link: usize) -> Duration {
        let hop = &self.hops[link];
        if self.network.beside(link).count() == 1 { self.base_rtt() } else { hop.forward.delay.0 + hop.reverse.delay.0 }
    }

    /// The direction of the link that a flow crosses.
    pub fn crossed(&self, crossing: Crossing) -> &LinkSpec {
        let hop = &self.hops[crossing.link];
        if crossing.forward { &hop.forward } else { &hop.reverse }
    }

    /// P24: warm-up = max(5 s, 12 RTT), run = warm-up + max(25 s, 60 RTT), unless stated.
    pub fn set_default_length(&mut self, seconds: Option<Period>, warmup: Option<Period>) {
        let rtt = self.base_rtt();
        self.warmup = warmup.unwrap_or(Period(Duration::from_secs(5).max(rtt * 12)));
        self.seconds = seconds.unwrap_or(Period(self.warmup.0 + Duration::from_secs(25).max(rtt * 60)));
    }

    /// Bytes of UDP payload that fit the largest of a node's links, which is what it knows of its interfaces.
    pub fn max_datagram(&self, node: usize) -> u32 {
        let of_node = self.network.ends.iter().zip(&self.hops).filter(|((a, b), _)| *a == node || *b == node);
        of_node.map(|(_, hop)| hop.forward.mtu).max().unwrap_or(1500) - self.ip.overhead()
    }

    /// Refuses what cannot be run, before anything runs.
    pub fn check(&self) -> Result<(), ScenarioError> {
        let invalid = |text: &str| Err(ScenarioError::Invalid(text.to_owned()));
        for (i, hop) in self.hops.iter().enumerate() {
            for spec in [&hop.forward, &hop.reverse] {
                spec.check().map_err(|source| ScenarioError::Link { hop: i + 1, source })?;
            }
        }
        if self.hops.is_empty() {
            return invalid("a run needs at least one hop");
        }
        let least = u32::from(noctule_proto::wire::params::MIN_DATAGRAM) + self.ip.overhead();
        if let Some(hop) = self.hops.iter().find(|hop| hop.forward.mtu.min(hop.reverse.mtu) < least) {
            return Err(ScenarioError::Invalid(format!(
                "an MTU of {} is below the {least} bytes that noctule needs",
                hop.forward.mtu.min(hop.reverse.mtu)
            )));
        }
        self.check_network()?;
        if self.ack_every.is_some_and(|every| !(1..=1024).contains(&every)) {
            return invalid("ack-every: between 1 and 1024 packets");
        }
        if self.pairs == 0 || self.pairs > 100 {
            return invalid("pairs: between 1 and 100");
        }
        if self.pairs > 1 && !self.network.is_end_to_end() {
            return invalid("pairs are nodes of their own over the same links; over noctule relays, name several flows ([[flow]])");
        }
        if self.warmup.0 >= self.seconds.0 && !matches!(self.workload, Workload::Transfer { .. }) {
            return Err(ScenarioError::Invalid(format!(
                "a warm-up of {} leaves nothing to measure in a run of {}",
                self.warmup, self.seconds
            )));
        }
        let btp = self.mode.0 == noctule_proto::options::Mode::Btp;
        let transparent = self.mode.0 == noctule_proto::options::Mode::Transparent;
        if transparent && matches!(self.workload, Workload::Transfer { .. } | Workload::Bulk) {
            return invalid(
                "transparent has no congestion control, so \"as fast as possible\" has no end; give it messages (--workload messages:...)",
            );
        }
        if btp && self.lifetime.is_none() {
            return invalid("btp needs a lifetime (--lifetime 100ms): messages are dropped when it ends");
        }
        if self.lifetime.is_some() && !btp && !transparent {
            return invalid("a lifetime belongs to btp; in brtp every message arrives however late");
        }
        if btp && matches!(self.workload, Workload::Transfer { .. }) {
            return invalid("a transfer promises every byte, which btp does not; use brtp");
        }
        if self.unordered && matches!(self.workload, Workload::Transfer { .. } | Workload::Bulk) && !btp {
            return invalid("bulk and transfer are byte streams in brtp; a stream cannot be unordered");
        }
        Ok(())
    }

    fn check_network(&self) -> Result<(), ScenarioError> {
        let network = &self.network;
        if network.ends.len() != self.hops.len() {
            return Err(ScenarioError::Invalid(format!("{} links between nodes and {} described", network.ends.len(), self.hops.len())));
        }
        network.check().map_err(ScenarioError::Invalid)?;
        for (i, flow) in network.flows.iter().enumerate() {
            let wrong = |reason: String| Err(ScenarioError::Flow { flow: i + 1, reason });
            if let Err(reason) = network.check_flow(flow) {
                return wrong(reason);
            }
            if matches!(flow.workload, Some(Workload::Transfer { .. })) != matches!(self.workload, Workload::Transfer { .. })
                && flow.workload.is_some()
            {
                return wrong(
                    "a transfer ends when it is complete and other workloads by the clock; a run has the one or the others".to_owned(),
                );
            }
            if flow.start.0 >= self.seconds.0 {
                return wrong(format!("it begins at {} and the run ends at {}", flow.start, self.seconds));
            }
        }
        Ok(())
    }
}

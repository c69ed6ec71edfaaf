//! One run from beginning to end: builds the world of a scenario, lets it go, and says what came of it.

use std::net::{Ipv4Addr, Ipv6Addr, SocketAddr};
use std::time::Duration;

use noctule_proto::crypto::SecretKey;
use noctule_proto::options::Mode;
use noctule_proto::units::Time;
use noctule_proto::{Node, NodeConfig};

use super::app::{App, AppPlan};
use super::machine::Machine;
use super::measure::{Sides, measure};
use super::meter::Window;
use super::node_host::NodeHost;
use super::world::{HostId, PipeId, WireOverhead, World, WorldError};
use crate::link::SpecError;
use crate::report::Report;
use crate::scenario::{Ip, Scenario, ScenarioError, Workload};

/// A run that could not be made, or not be finished.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum SimError {
    /// The scenario contradicts itself.
    #[error("{0}")]
    Scenario(#[from] ScenarioError),
    /// A link cannot be.
    #[error("{0}")]
    Link(#[from] SpecError),
    /// The simulator or the protocol cannot do this yet.
    #[error("{0}")]
    Unsupported(String),
    /// The run could not go on.
    #[error("{0}")]
    World(#[from] WorldError),
}

/// Header bytes of a noctule datagram on a single link, at most (P6), and of a message in it.
const HEADROOM: u32 = 72;

/// How long a transfer or the last messages may take to come to their end after the run.
const LINGER: Duration = Duration::from_secs(30);

/// Runs `scenario` in virtual time.
pub fn run(scenario: &Scenario) -> Result<Report, SimError> {
    let mut sim = Simulation::new(scenario)?;
    sim.go()?;
    Ok(sim.report())
}

/// A scenario with its world; [`run`] does all its steps, tests may do them one by one.
pub struct Simulation<N = Node> {
    scenario: Scenario,
    /// Hosts and links.
    pub world: World<NodeHost<N>>,
    /// The connecting and the waiting end of each pair.
    pub pairs: Vec<(HostId, HostId)>,
    /// Links, direction of the data and back.
    pub pipes: Vec<(PipeId, PipeId)>,
    warm: Sides,
    done: Option<Sides>,
    failures: Vec<String>,
}

/// A seed for one purpose, from the seed of the run.
fn sub_seed(seed: u64, purpose: u64) -> u64 {
    let mut bytes = [0; 8];
    super::content::Content::new(seed, purpose).fill(0, &mut bytes);
    u64::from_le_bytes(bytes)
}

fn seed_bytes(seed: u64, purpose: u64) -> [u8; 32] {
    let mut bytes = [0; 32];
    super::content::Content::new(seed, purpose).fill(0, &mut bytes);
    bytes
}

impl Simulation<Node> {
    /// Builds the world of a scenario; nothing has happened in it yet.
    pub fn new(scenario: &Scenario) -> Result<Self, SimError> {
        Self::with_machines(scenario, |config, key, seed| Node::new(config, key, seed, Time::ZERO))
    }
}

impl<N: Machine> Simulation<N> {
    /// As [`Simulation::new`], with machines of another kind.
    pub fn with_machines(scenario: &Scenario, make: impl Fn(NodeConfig, SecretKey, [u8; 32]) -> N) -> Result<Self, SimError> {
        scenario.check()?;
        if scenario.hops.len() > 1 {
            return Err(SimError::Unsupported(format!(
                "{} hops need relays, and noctule nodes do not relay yet; run one hop",
                scenario.hops.len()
            )));
        }
        let mut world = World::new(WireOverhead(scenario.ip.overhead()));
        let rtt = scenario.base_rtt();
        let mut pipes = Vec::new();
        for (i, hop) in scenario.hops.iter().enumerate() {
            let mut pipe = |spec: &crate::link::LinkSpec, way: u64| {
                let mut spec = spec.clone();
                spec.bdp_rtt.get_or_insert(rtt);
                world.add_pipe(&spec, sub_seed(scenario.seed, 100 + 2 * i as u64 + way))
            };
            pipes.push((pipe(&hop.forward, 0)?, pipe(&hop.reverse, 1)?));
        }
        let mut pairs = Vec::new();
        for pair in 0..scenario.pairs {
            let (here, there) = addresses(scenario.ip, pair);
            let client = world.add_host(here, host(scenario, pair, Some(there), &make));
            let server = world.add_host(there, host(scenario, pair, None, &make));
            let (forward, reverse) = pipes[0];
            world.add_route(client, server, forward);
            world.add_route(server, client, reverse);
            pairs.push((client, server));
        }
        let warm = Sides::default();
        Ok(Self { scenario: scenario.clone(), world, pairs, pipes, warm, done: None, failures: Vec::new() })
    }

    /// The whole run.
    pub fn go(&mut self) -> Result<(), SimError> {
        self.start()?;
        match self.scenario.workload {
            Workload::Transfer { .. } => self.transfer()?,
            _ => self.timed()?,
        }
        self.close()
    }

    /// Starts the pairs, spread over one round trip so that they do not move in step.
    pub fn start(&mut self) -> Result<(), SimError> {
        let gap = self.scenario.base_rtt() / self.scenario.pairs;
        for (i, (client, _)) in self.pairs.clone().into_iter().enumerate() {
            self.world.run_until(Time::ZERO + gap * i as u32)?;
            self.world.with_host(client, |host, now| host.start(now))?;
        }
        Ok(())
    }

    fn timed(&mut self) -> Result<(), SimError> {
        self.world.run_until(Time::ZERO + self.scenario.warmup.0)?;
        self.warm = Sides::of(&self.world, &self.pipes, &self.pairs);
        self.world.clear_pipe_stats();
        self.world.run_until(Time::ZERO + self.scenario.seconds.0)?;
        self.done = Some(Sides::of(&self.world, &self.pipes, &self.pairs));
        for (client, server) in self.pairs.clone() {
            for id in [client, server] {
                self.world.with_host(id, |host, _| host.app.stop_sending())?;
            }
        }
        if matches!(self.scenario.workload, Workload::Messages { .. } | Workload::Block { .. }) {
            // What was sent may still arrive: in brtp it must, in btp within its lifetime.
            let patience = self.scenario.lifetime.map_or(LINGER, |l| l.0 + self.scenario.base_rtt());
            let end = self.world.now() + patience;
            while self.world.now() < end && !self.all_messages_arrived() {
                self.world.run_until((self.world.now() + Duration::from_millis(20)).min(end))?;
            }
            if self.scenario.mode.0 == Mode::Brtp && !self.all_messages_arrived() {
                self.failures.push(format!("messages still missing {} s after the run", LINGER.as_secs()));
            }
        }
        Ok(())
    }

    fn all_messages_arrived(&self) -> bool {
        self.pairs.iter().all(|&(client, server)| {
            let (client, server) = (&self.world.host(client).app, &self.world.host(server).app);
            server.meter.messages >= client.sent() && client.meter.messages >= server.sent()
        })
    }

    fn transfer(&mut self) -> Result<(), SimError> {
        let end = Time::ZERO + self.scenario.seconds.0;
        while self.world.now() < end && !self.transferred() {
            self.world.run_until((self.world.now() + Duration::from_millis(10)).min(end))?;
        }
        self.done = Some(Sides::of(&self.world, &self.pipes, &self.pairs));
        if !self.transferred() {
            self.failures.push(format!("the transfer was not complete after {}", self.scenario.seconds));
        }
        Ok(())
    }

    /// Both sides know that every transfer is complete.
    pub fn transferred(&self) -> bool {
        self.pairs.iter().all(|&(client, server)| {
            let (client, server) = (&self.world.host(client).app, &self.world.host(server).app);
            let back = !self.scenario.both || (server.delivered.is_some() && client.finished.is_some());
            client.delivered.is_some() && server.finished.is_some() && back
        })
    }

    /// Closes the sessions; after a transfer, both ends must say that everything arrived.
    fn close(&mut self) -> Result<(), SimError> {
        let must_deliver = !matches!(self.scenario.workload, Workload::Bulk);
        let linger = if must_deliver { LINGER } else { Duration::ZERO };
        for (client, _) in self.pairs.clone() {
            self.world.with_host(client, |host, now| host.app.close(now, &mut host.node, linger))?;
        }
        let closed = |sim: &Self| sim.world.hosts().all(|host| host.app.outcome.is_some());
        let end = self.world.now() + LINGER + Duration::from_secs(5);
        while self.world.now() < end && !closed(self) {
            self.world.run_until((self.world.now() + Duration::from_millis(20)).min(end))?;
        }
        if must_deliver && self.scenario.mode.0 == Mode::Brtp && self.failures.is_empty() {
            for &(client, _) in &self.pairs {
                match &self.world.host(client).app.outcome {
                    None => self.failures.push("the session did not close".to_owned()),
                    Some(outcome) if !outcome.all_delivered => {
                        self.failures.push(format!("the session closed and not everything is known to have arrived: {}", outcome.reason));
                    }
                    Some(_) => {}
                }
            }
        }
        Ok(())
    }

    /// What came of it.
    pub fn report(&self) -> Report {
        let done = self.done.clone().unwrap_or_else(|| Sides::of(&self.world, &self.pipes, &self.pairs));
        measure(&self.scenario, &self.world, &self.pairs, &self.warm, &done, self.failures.clone())
    }
}

/// Addresses of the two ends of a pair.
fn addresses(ip: Ip, pair: u32) -> (SocketAddr, SocketAddr) {
    let pair = pair as u8;
    match ip {
        Ip::V4 => (SocketAddr::from((Ipv4Addr::new(10, 1, pair, 1), 40_000)), SocketAddr::from((Ipv4Addr::new(10, 1, pair, 2), 4_117))),
        Ip::V6 => {
            let addr = |end| Ipv6Addr::new(0xfd00, 0, 0, 0, 0, 0, u16::from(pair), end);
            (SocketAddr::from((addr(1), 40_000)), SocketAddr::from((addr(2), 4_117)))
        }
    }
}

fn host<N>(
    scenario: &Scenario,
    pair: u32,
    connect: Option<SocketAddr>,
    make: impl Fn(NodeConfig, SecretKey, [u8; 32]) -> N,
) -> NodeHost<N> {
    let is_client = connect.is_some();
    let number = 1_000 + 2 * u64::from(pair) + u64::from(!is_client);
    let mut config =
        NodeConfig { congestion: scenario.cc.to_proto(), max_datagram: scenario.max_datagram() as u16, ..NodeConfig::default() };
    if let Some(bytes) = scenario.flow_memory {
        config.flow_memory = bytes;
    }
    if let Some(packets) = scenario.epoch_packets {
        config.epoch_packets = packets;
    }
    let seed = seed_bytes(scenario.seed, number);
    let server_key = SecretKey::from_bytes(seed_bytes(scenario.seed, 10_000 + 1_001 + 2 * u64::from(pair)));
    let node = make(config, SecretKey::from_bytes(seed_bytes(scenario.seed, 10_000 + number)), seed);
    let plan = AppPlan {
        connect: connect.map(|remote| (remote, Some(server_key.public()))),
        sends: is_client || scenario.both,
        workload: scenario.workload,
        mode: scenario.mode.0,
        lifetime: scenario.lifetime.map(|l| l.0),
        unordered: scenario.unordered,
        batch_size: scenario.batch_size,
        flood_size: (scenario.max_datagram() - HEADROOM) as usize,
        window: match scenario.workload {
            // A transfer is counted from its first to its last byte.
            Workload::Transfer { .. } => Window { from: Time::ZERO, until: Time::MAX },
            _ => Window { from: Time::ZERO + scenario.warmup.0, until: Time::ZERO + scenario.seconds.0 },
        },
        stall: scenario.stall.map(|s| (Time::ZERO + s.at.0, Time::ZERO + s.at.0 + s.lasts.0)),
        seed: scenario.seed.wrapping_add(u64::from(pair) << 32),
        stream: u64::from(!is_client),
    };
    NodeHost { node, app: App::new(plan) }
}

#[cfg(test)]
#[path = "run_tests.rs"]
mod tests;

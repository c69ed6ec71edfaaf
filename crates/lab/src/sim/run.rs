//! One run from beginning to end: builds the world of a scenario, lets it go, and says what came of it.

use std::time::Duration;

use noctule_proto::crypto::SecretKey;
use noctule_proto::options::Mode;
use noctule_proto::units::Time;
use noctule_proto::{Node, NodeConfig};

use super::app::App;
use super::build::{self, AppId, Built, Ends};
use super::machine::Machine;
use super::measure::{Sides, measure, smoothed_rtt};
use super::node_host::NodeHost;
use super::proxies;
use super::sampler::{self, Look, Sampler, Watch};
use super::senders;
use super::world::{PipeId, World, WorldError};
use crate::link::SpecError;
use crate::report::Report;
use crate::scenario::{Relays, Scenario, ScenarioError, Workload};

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

/// How long a transfer or the last messages may take to come to their end after the run.
const LINGER: Duration = Duration::from_secs(30);

/// How long the links of a network may take to come up before its flows begin.
const LINKS_UP: Duration = Duration::from_secs(10);

/// Runs `scenario` in virtual time.
pub fn run(scenario: &Scenario) -> Result<Report, SimError> {
    run_watched(scenario, None)
}

/// The same, and `watch` hears of every interval as soon as it is over; the result does not depend on it.
pub fn run_watched(scenario: &Scenario, watch: Option<Watch>) -> Result<Report, SimError> {
    if scenario.network.relays == Relays::Proxy && scenario.hops.len() > 1 && scenario.senders.is_empty() {
        return proxies::run(scenario, watch);
    }
    if !scenario.senders.is_empty() {
        return senders::run(scenario, watch);
    }
    let mut sim = Simulation::new(scenario)?;
    sim.set_watch(watch);
    sim.go()?;
    Ok(sim.report())
}

/// A scenario with its world; [`run`] does all its steps, tests may do them one by one.
pub struct Simulation<N = Node> {
    scenario: Scenario,
    /// Hosts and links.
    pub world: World<NodeHost<N>>,
    /// The two ends of each flow.
    pub ends: Vec<Ends>,
    /// Links, forward and back.
    pub pipes: Vec<(PipeId, PipeId)>,
    /// Flows that are still to begin, the last one first.
    to_start: Vec<(Time, AppId)>,
    /// When the links of a network were all up.
    links_up: Option<Time>,
    sampler: Option<Sampler>,
    warm: Sides,
    done: Option<Sides>,
    failures: Vec<String>,
}

impl Simulation<Node> {
    /// Builds the world of a scenario; nothing has happened in it yet.
    pub fn new(scenario: &Scenario) -> Result<Self, SimError> {
        Self::with_machines(scenario, |config, key, seed| Node::new(config, key, seed, Time::ZERO))
    }

    /// The same, and every node traces; [`NodeHost::trace`] hears of it.
    pub fn traced(scenario: &Scenario) -> Result<Self, SimError> {
        Self::with_machines(scenario, |config, key, seed| Node::new(NodeConfig { trace: true, ..config }, key, seed, Time::ZERO))
    }
}

impl<N: Machine> Simulation<N> {
    /// As [`Simulation::new`], with machines of another kind.
    pub fn with_machines(scenario: &Scenario, make: impl Fn(NodeConfig, SecretKey, [u8; 32]) -> N) -> Result<Self, SimError> {
        scenario.check()?;
        let elsewhere = match scenario.network.relays {
            _ if !scenario.senders.is_empty() => Some("--senders have ends of several kinds, which --pcap and --capture do not look into"),
            Relays::Recode | Relays::Ip => None,
            Relays::Proxy => Some("a chain of proxies needs two hops, and has no noctule nodes that --pcap or --capture could look into"),
            Relays::Tunnel => Some("TUN devices are the kernel's: --relays tunnel runs on namespaces (noctule-lab net)"),
        };
        if let Some(text) = elsewhere {
            return Err(SimError::Unsupported(text.to_owned()));
        }
        let Built { world, ends, pipes } = build::build(scenario, &make)?;
        Ok(Self {
            scenario: scenario.clone(),
            world,
            ends,
            pipes,
            to_start: Vec::new(),
            links_up: None,
            sampler: None,
            warm: Sides::default(),
            done: None,
            failures: Vec::new(),
        })
    }

    /// Lets `watch` hear of every interval of the run.
    pub fn set_watch(&mut self, watch: Option<Watch>) {
        self.sampler = watch.map(|watch| Sampler::new(&self.scenario, &self.pipes, watch));
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

    /// Brings up the links of a network; then flows begin, spread over one round trip so that they do not move in step.
    pub fn start(&mut self) -> Result<(), SimError> {
        if !self.scenario.network.is_end_to_end() {
            self.bring_links_up()?;
        }
        let begin = self.world.now();
        let gap = self.scenario.base_rtt() / self.ends.len().max(1) as u32;
        let flows = &self.scenario.network.flows;
        let at = |(i, ends): (usize, &Ends)| ((begin + gap * i as u32).max(Time::ZERO + flows[ends.flow].start.0), ends.client);
        self.to_start = self.ends.iter().enumerate().map(at).collect();
        self.to_start.sort_by_key(|&(at, client)| std::cmp::Reverse((at, client.host, client.app)));
        let prompt = begin + gap * self.ends.len() as u32;
        while self.to_start.last().is_some_and(|&(at, _)| at < prompt || at == begin) {
            self.start_next()?;
        }
        Ok(())
    }

    fn bring_links_up(&mut self) -> Result<(), SimError> {
        for id in self.world.host_ids() {
            self.world.with_host(id, NodeHost::dial)?;
        }
        let network = &self.scenario.network;
        let wanted = 2 * (0..self.scenario.hops.len()).filter(|&link| network.beside(link).next() == Some(link)).count();
        let up = |sim: &Self| sim.world.hosts().filter_map(|host| host.neighbourhood.as_ref()).map(|n| n.up.len()).sum::<usize>();
        while up(self) < wanted && self.world.now() < Time::ZERO + LINKS_UP {
            self.world.run_until(self.world.now() + Duration::from_millis(1))?;
        }
        if up(self) < wanted {
            self.failures.push(format!("{} of {wanted} ends of links were up after {} s", up(self), LINKS_UP.as_secs()));
        }
        self.links_up = Some(self.world.now());
        Ok(())
    }

    fn start_next(&mut self) -> Result<(), SimError> {
        if let Some((at, client)) = self.to_start.pop() {
            self.advance(at)?;
            self.world.with_host(client.host, |host, now| host.start(now, client.app))?;
        }
        Ok(())
    }

    /// Runs until then; flows begin when it is their time.
    fn run_until(&mut self, until: Time) -> Result<(), SimError> {
        while self.to_start.last().is_some_and(|&(at, _)| at <= until) {
            self.start_next()?;
        }
        self.advance(until)
    }

    /// Lets time pass; a watch is told of the intervals that end on the way.
    fn advance(&mut self, until: Time) -> Result<(), SimError> {
        let ends = &self.ends;
        let look = |world: &World<NodeHost<N>>| {
            let bytes = ends.iter().map(|ends| world.host(ends.server.host).apps[ends.server.app].meter.bytes).sum();
            Look { bytes, rtt: ends.first().and_then(|ends| smoothed_rtt(world, ends)) }
        };
        Ok(sampler::run_until(&mut self.world, until, &mut self.sampler, look)?)
    }

    /// An application.
    pub fn app(&self, id: AppId) -> &App {
        &self.world.host(id.host).apps[id.app]
    }

    /// The connecting and the waiting application of each flow.
    fn apps(&self) -> impl Iterator<Item = (&App, &App)> {
        self.ends.iter().map(|ends| (self.app(ends.client), self.app(ends.server)))
    }

    fn sides(&self) -> Sides {
        Sides::of(&self.world, &self.pipes, &self.ends)
    }

    fn timed(&mut self) -> Result<(), SimError> {
        self.run_until(Time::ZERO + self.scenario.warmup.0)?;
        self.warm = self.sides();
        self.world.clear_pipe_stats();
        self.run_until(Time::ZERO + self.scenario.seconds.0)?;
        self.done = Some(self.sides());
        for id in self.world.host_ids() {
            self.world.with_host(id, |host, _| host.apps.iter_mut().for_each(App::stop_sending))?;
        }
        if self.apps().any(|(client, _)| client.is_periodic()) {
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
        let arrived = |(client, server): (&App, &App)| server.meter.messages >= client.sent() && client.meter.messages >= server.sent();
        self.apps().filter(|(client, _)| client.is_periodic()).all(arrived)
    }

    fn transfer(&mut self) -> Result<(), SimError> {
        let end = Time::ZERO + self.scenario.seconds.0;
        while self.world.now() < end && !self.transferred() {
            self.run_until((self.world.now() + Duration::from_millis(10)).min(end))?;
        }
        self.done = Some(self.sides());
        if !self.transferred() {
            self.failures.push(format!("the transfer was not complete after {}", self.scenario.seconds));
        }
        Ok(())
    }

    /// Both sides know that every transfer is complete.
    pub fn transferred(&self) -> bool {
        self.apps().all(|(client, server)| {
            let back = !self.scenario.both || (server.delivered.is_some() && client.finished.is_some());
            client.delivered.is_some() && server.finished.is_some() && back
        })
    }

    /// Closes the sessions; after a transfer, both ends must say that everything arrived.
    fn close(&mut self) -> Result<(), SimError> {
        let must_deliver: Vec<bool> = self.apps().map(|(client, _)| !client.is_bulk()).collect();
        for (ends, must_deliver) in self.ends.clone().into_iter().zip(&must_deliver) {
            let linger = if *must_deliver { LINGER } else { Duration::ZERO };
            self.world.with_host(ends.client.host, |host, now| host.apps[ends.client.app].close(now, &mut host.node, linger))?;
        }
        let closed = |sim: &Self| sim.apps().all(|(client, server)| client.outcome.is_some() && server.outcome.is_some());
        let end = self.world.now() + LINGER + Duration::from_secs(5);
        while self.world.now() < end && !closed(self) {
            self.world.run_until((self.world.now() + Duration::from_millis(20)).min(end))?;
        }
        if self.scenario.mode.0 == Mode::Brtp && self.failures.is_empty() {
            let unsure = |((client, _), must_deliver): ((&App, &App), &bool)| match &client.outcome {
                _ if !must_deliver => None,
                None => Some("the session did not close".to_owned()),
                Some(outcome) if !outcome.all_delivered => {
                    Some(format!("the session closed and not everything is known to have arrived: {}", outcome.reason))
                }
                Some(_) => None,
            };
            self.failures = self.apps().zip(&must_deliver).filter_map(unsure).collect();
        }
        Ok(())
    }

    /// What came of it.
    pub fn report(&self) -> Report {
        let done = self.done.clone().unwrap_or_else(|| self.sides());
        measure(&self.scenario, &self.world, &self.ends, self.links_up, &self.warm, &done, self.failures.clone())
    }
}

#[cfg(test)]
#[path = "run_tests.rs"]
mod tests;

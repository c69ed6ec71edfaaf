//! The world of a scenario: hosts, links and applications, before anything has happened.

use std::net::{Ipv4Addr, Ipv6Addr, SocketAddr};

use noctule_proto::NodeConfig;
use noctule_proto::crypto::{PublicKey, SecretKey};
use noctule_proto::node::RelayLimits;
use noctule_proto::node::routing::{Route, Via};
use noctule_proto::units::Time;

use super::app::{App, AppPlan, Reach};
use super::machine::Machine;
use super::meter::Window;
use super::node_host::{Dial, NodeHost};
use super::run::SimError;
use super::world::{Host, HostId, PipeId, WireOverhead, World};
use crate::link::LinkSpec;
use crate::scenario::{Crossing, FlowEnds, Ip, Scenario, Workload};

/// Header bytes of a noctule datagram on a single link, at most (P6), and of a message in it.
pub(super) const HEADROOM: u32 = 72;
/// The same when the flow is relayed.
const HEADROOM_RELAYED: u32 = 112;

/// Where an application lives.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct AppId {
    /// On which host.
    pub host: HostId,
    /// Which of its applications.
    pub app: usize,
}

/// The two applications of a flow; with several pairs there are as many of one flow of the scenario.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Ends {
    /// Which flow of the scenario.
    pub flow: usize,
    /// The end that connects.
    pub client: AppId,
    /// The end that waits.
    pub server: AppId,
}

/// A world in which nothing has happened.
pub(super) struct Built<N> {
    pub(super) world: World<NodeHost<N>>,
    pub(super) ends: Vec<Ends>,
    /// Links, forward and back.
    pub(super) pipes: Vec<(PipeId, PipeId)>,
}

/// Makes a machine from its configuration, its key and its seed.
pub(super) type Make<'a, N> = &'a dyn Fn(NodeConfig, SecretKey, [u8; 32]) -> N;

/// Builds the world of a scenario.
pub(super) fn build<N: Machine>(scenario: &Scenario, make: Make<'_, N>) -> Result<Built<N>, SimError> {
    let mut world = World::new(WireOverhead(scenario.ip.overhead()));
    let pipes = pipes(scenario, &mut world)?;
    let mut built = Built { world, ends: Vec::new(), pipes };
    if scenario.network.is_end_to_end() {
        pairs_of_hosts(scenario, make, &mut built);
    } else {
        network_of_hosts(scenario, make, &mut built);
    }
    Ok(built)
}

/// The links of a scenario, forward and back.
pub(super) fn pipes<H: Host>(scenario: &Scenario, world: &mut World<H>) -> Result<Vec<(PipeId, PipeId)>, SimError> {
    let mut pipes = Vec::new();
    for (i, hop) in scenario.hops.iter().enumerate() {
        let mut pipe = |spec: &LinkSpec, direction: u64| {
            let mut spec = spec.clone();
            spec.bdp_rtt.get_or_insert(scenario.queue_rtt(i));
            world.add_pipe(&spec, sub_seed(scenario.seed, 100 + 2 * i as u64 + direction))
        };
        pipes.push((pipe(&hop.forward, 0)?, pipe(&hop.reverse, 1)?));
    }
    Ok(pipes)
}

/// Every flow has two hosts of its own with a link between them, over the links of the scenario and routers where they meet.
fn pairs_of_hosts<N: Machine>(scenario: &Scenario, make: Make<'_, N>, built: &mut Built<N>) {
    for (i, flow) in scenario.network.flows.iter().enumerate() {
        let (there, back) = scenario.network.routes(flow);
        for pair in 0..scenario.pairs {
            let number = i as u32 * scenario.pairs + pair;
            let (here, far) = addresses(scenario.ip, number);
            let key = |end: u64| SecretKey::from_bytes(seed_bytes(scenario.seed, 10_000 + 1_000 + 2 * u64::from(number) + end));
            let host = |end: u64, node: usize, reach: Reach| {
                let seed = seed_bytes(scenario.seed, 1_000 + 2 * u64::from(number) + end);
                let plan = plan(scenario, flow, number, reach, HEADROOM);
                NodeHost::alone(make(config(scenario, node), key(end), seed), App::new(plan))
            };
            let client = built.world.add_host(here, host(0, flow.from, Reach::Neighbour(far, Some(key(1).public()))));
            let server = built.world.add_host(far, host(1, flow.to, Reach::Waits));
            built.world.add_route_over(client, server, crossed(&built.pipes, &there));
            built.world.add_route_over(server, client, crossed(&built.pipes, &back));
            if let [only] = there[..] {
                for lane in scenario.network.lanes(only).filter(|lane| lane.link != only.link) {
                    let (forward, reverse) = (pipe(&built.pipes, lane), pipe(&built.pipes, lane.turned()));
                    let (near, far) = built.world.add_lane(client, server, forward, reverse);
                    built.world.host_mut(client).apps[0].add_path(far, near.ip());
                }
            }
            built.ends.push(Ends { flow: i, client: AppId { host: client, app: 0 }, server: AppId { host: server, app: 0 } });
        }
    }
}

/// Every node is a host with links to its neighbours, addresses and routes; flows find their way.
fn network_of_hosts<N: Machine>(scenario: &Scenario, make: Make<'_, N>, built: &mut Built<N>) {
    let network = &scenario.network;
    let nodes = 0..network.nodes.len();
    let key = |node: usize| SecretKey::from_bytes(seed_bytes(scenario.seed, 20_000 + node as u64));
    let keys: Vec<PublicKey> = nodes.clone().map(|node| key(node).public()).collect();
    let hosts: Vec<HostId> = nodes
        .clone()
        .map(|node| {
            let machine = make(config(scenario, node), key(node), seed_bytes(scenario.seed, 2_000 + node as u64));
            built.world.add_host(socket(scenario.ip, node), NodeHost::of_network(machine))
        })
        .collect();
    for (link, (&(a, b), &(forward, reverse))) in network.ends.iter().zip(&built.pipes).enumerate() {
        let is_first = network.beside(link).next() == Some(link);
        if !is_first {
            let (a, b, forward, reverse) = match network.link_between(a, b).map(|first| network.ends[first]) {
                // The first one's ends decide which of them calls.
                Some(ends) if ends == (b, a) => (b, a, reverse, forward),
                _ => (a, b, forward, reverse),
            };
            let (near, far) = built.world.add_lane(hosts[a], hosts[b], forward, reverse);
            let dials = built.world.host_mut(hosts[a]).neighbourhood.iter_mut().flat_map(|n| &mut n.dials);
            dials.filter(|dial| dial.key == keys[b]).for_each(|dial| dial.further.push((far, near.ip())));
            continue;
        }
        built.world.add_route(hosts[a], hosts[b], forward);
        built.world.add_route(hosts[b], hosts[a], reverse);
        let dial = Dial { remote: socket(scenario.ip, b), key: keys[b], further: Vec::new() };
        if let Some(neighbourhood) = &mut built.world.host_mut(hosts[a]).neighbourhood {
            neighbourhood.dials.push(dial);
        }
    }
    for node in nodes {
        let table = network.table(node);
        let routes = table.iter().map(|hop| Route {
            to: network.address(hop.to, scenario.ip).into(),
            via: Via::Neighbour(keys[hop.via]),
            metric: hop.metric,
        });
        let machine = &mut built.world.host_mut(hosts[node]).node;
        machine.set_addresses(&[network.address(node, scenario.ip)]);
        machine.set_routes(Time::ZERO, routes.collect());
        machine.enable_relaying(Some(RelayLimits::default()));
    }
    for (i, flow) in network.flows.iter().enumerate() {
        let mut end = |node: usize, reach: Reach| {
            let apps = &mut built.world.host_mut(hosts[node]).apps;
            apps.push(App::new(plan(scenario, flow, i as u32, reach, HEADROOM_RELAYED)));
            AppId { host: hosts[node], app: apps.len() - 1 }
        };
        let client = end(flow.from, Reach::Overlay(network.address(flow.to, scenario.ip), keys[flow.to]));
        let server = end(flow.to, Reach::Waits);
        built.ends.push(Ends { flow: i, client, server });
    }
}

/// The pipes of a path, in its direction.
fn crossed(pipes: &[(PipeId, PipeId)], route: &[Crossing]) -> Vec<PipeId> {
    route.iter().map(|crossing| pipe(pipes, *crossing)).collect()
}

/// The direction of a link that a flow crosses.
pub(super) fn pipe(pipes: &[(PipeId, PipeId)], crossing: Crossing) -> PipeId {
    let (forward, reverse) = pipes[crossing.link];
    if crossing.forward { forward } else { reverse }
}

fn config(scenario: &Scenario, node: usize) -> NodeConfig {
    let mut config =
        NodeConfig { congestion: scenario.cc.to_proto(), max_datagram: scenario.max_datagram(node) as u16, ..NodeConfig::default() };
    if let Some(bytes) = scenario.flow_memory {
        config.flow_memory = bytes;
    }
    if let Some(time) = scenario.connect_timeout {
        config.connect_timeout = time.0;
    }
    if let Some(packets) = scenario.epoch_packets {
        config.epoch_packets = packets;
    }
    if let Some(every) = scenario.ack_every {
        config.acks.every = every;
    }
    config
}

/// What the application at one end of a flow does; `number` tells the flows of a run apart.
pub(super) fn plan(scenario: &Scenario, flow: &FlowEnds, number: u32, reach: Reach, headroom: u32) -> AppPlan {
    let is_client = reach != Reach::Waits;
    let workload = flow.workload.unwrap_or(scenario.workload);
    let (there, _) = scenario.network.routes(flow);
    let mtu = there.iter().map(|&crossing| scenario.crossed(crossing).mtu).min().unwrap_or(1500);
    AppPlan {
        reach,
        further: Vec::new(),
        number: u64::from(number),
        sends: is_client || scenario.both,
        workload,
        mode: scenario.mode.0,
        lifetime: scenario.lifetime.map(|l| l.0),
        unordered: scenario.unordered,
        batch_size: scenario.batch_size,
        no_retransmit: scenario.no_retransmit.map(|share| noctule_proto::units::Probability::new(share.get())),
        flood_size: (mtu - scenario.ip.overhead() - headroom) as usize,
        window: match workload {
            // A transfer is counted from its first to its last byte.
            Workload::Transfer { .. } => Window { from: Time::ZERO, until: Time::MAX },
            _ => Window { from: Time::ZERO + scenario.warmup.0, until: Time::ZERO + scenario.seconds.0 },
        },
        base_rtt: scenario.base_rtt(),
        stall: scenario.stall.map(|s| (Time::ZERO + s.at.0, Time::ZERO + s.at.0 + s.lasts.0)),
        seed: scenario.seed.wrapping_add(u64::from(number) << 32),
        stream: u64::from(!is_client),
    }
}

/// A seed for one purpose, from the seed of the run.
pub(super) fn sub_seed(seed: u64, purpose: u64) -> u64 {
    let mut bytes = [0; 8];
    super::content::Content::new(seed, purpose).fill(0, &mut bytes);
    u64::from_le_bytes(bytes)
}

pub(super) fn seed_bytes(seed: u64, purpose: u64) -> [u8; 32] {
    let mut bytes = [0; 32];
    super::content::Content::new(seed, purpose).fill(0, &mut bytes);
    bytes
}

/// Addresses of the two ends of a pair.
pub(super) fn addresses(ip: Ip, pair: u32) -> (SocketAddr, SocketAddr) {
    let [high, low] = (pair as u16).to_be_bytes();
    match ip {
        Ip::V4 => {
            let addr = |end| Ipv4Addr::new(10, 1 + high, low, end);
            (SocketAddr::from((addr(1), 40_000)), SocketAddr::from((addr(2), 4_117)))
        }
        Ip::V6 => {
            let addr = |end| Ipv6Addr::new(0xfd00, 0, 0, 0, 0, 0, pair as u16, end);
            (SocketAddr::from((addr(1), 40_000)), SocketAddr::from((addr(2), 4_117)))
        }
    }
}

/// Where a node of a network is reached by its neighbours.
pub(super) fn socket(ip: Ip, node: usize) -> SocketAddr {
    let [high, low] = (node as u16).to_be_bytes();
    match ip {
        Ip::V4 => SocketAddr::from((Ipv4Addr::new(10, 128, high, low), 4_117)),
        Ip::V6 => SocketAddr::from((Ipv6Addr::new(0xfd00, 0, 0, 0, 0, 0, 0xffff, node as u16), 4_117)),
    }
}

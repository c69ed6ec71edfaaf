//! Several senders of bulk data over the same links, noctule and QUIC in any number: what each gets of a bottleneck.
//!
//! QUIC (`quinn-proto`) stands for TCP's congestion controls, which the simulator has not; its recovery from loss is at least as good.
//! All go from the first to the last node of a chain; the nodes between are routers.

use std::net::{IpAddr, SocketAddr};
use std::time::Duration;

use noctule_proto::crypto::SecretKey;
use noctule_proto::node::Transmit;
use noctule_proto::options::Mode;
use noctule_proto::units::{Ecn, Time};
use noctule_proto::{Node, NodeConfig};

use super::app::{App, Reach};
use super::build;
use super::measure::{Sides, measure_meters};
use super::meter::{Meter, Window};
use super::node_host::NodeHost;
use super::quic::{QuicCongestion, QuicHost, QuicPair, QuicPlan};
use super::run::SimError;
use super::sampler::{self, Look, Sampler, Watch};
use super::world::{Host, HostId, WireOverhead, World};
use crate::report::Report;
use crate::scenario::{Congestion, Relays, Scenario, Sender, Workload};

/// Between the starts of two senders; which is first depends on the seed.
const APART: Duration = Duration::from_secs(2);

/// One end of either.
#[allow(clippy::large_enum_variant, reason = "a handful in all")]
enum End {
    Noctule(NodeHost<Node>),
    Quic(QuicHost),
}

impl End {
    fn start(&mut self, now: Time) {
        match self {
            Self::Noctule(host) => host.start(now, 0),
            Self::Quic(host) => host.start(now),
        }
    }

    fn meter(&self) -> &Meter {
        match self {
            Self::Noctule(host) => &host.apps[0].meter,
            Self::Quic(host) => &host.meter,
        }
    }

    fn failures(&self) -> Vec<String> {
        match self {
            Self::Noctule(host) => host.apps[0].failures.clone(),
            Self::Quic(host) => host.failure.clone().into_iter().collect(),
        }
    }
}

impl Host for End {
    fn handle_datagram(&mut self, now: Time, remote: SocketAddr, local: IpAddr, ecn: Ecn, data: &mut [u8]) {
        match self {
            Self::Noctule(host) => host.handle_datagram(now, remote, local, ecn, data),
            Self::Quic(host) => host.handle_datagram(now, remote, local, ecn, data),
        }
    }

    fn handle_timeout(&mut self, now: Time) {
        match self {
            Self::Noctule(host) => host.handle_timeout(now),
            Self::Quic(host) => host.handle_timeout(now),
        }
    }

    fn poll_transmit(&mut self, now: Time, buf: &mut Vec<u8>) -> Option<Transmit> {
        match self {
            Self::Noctule(host) => host.poll_transmit(now, buf),
            Self::Quic(host) => host.poll_transmit(now, buf),
        }
    }

    fn poll_timeout(&self) -> Option<Time> {
        match self {
            Self::Noctule(host) => host.poll_timeout(),
            Self::Quic(host) => host.poll_timeout(),
        }
    }

    fn pump(&mut self, now: Time) -> bool {
        match self {
            Self::Noctule(host) => host.pump(now),
            Self::Quic(host) => host.pump(now),
        }
    }
}

/// A sender with its receiver.
struct Pair {
    sender: Sender,
    client: HostId,
    server: HostId,
    begins: Time,
}

/// Runs a scenario that names its senders.
pub(super) fn run(scenario: &Scenario, watch: Option<Watch>) -> Result<Report, SimError> {
    scenario.check()?;
    check(scenario)?;
    let until = Time::ZERO + scenario.seconds.0;
    let window = Window { from: Time::ZERO + scenario.warmup.0, until };
    let mut world = World::new(WireOverhead(scenario.ip.overhead()));
    let pipes = build::pipes(scenario, &mut world)?;
    let count = scenario.senders.len();
    let mut pairs: Vec<Pair> = Vec::with_capacity(count);
    for (i, &sender) in scenario.senders.iter().enumerate() {
        let (here, far) = build::addresses(scenario.ip, i as u32);
        let (client, server) = match sender {
            Sender::Noctule => noctule(scenario, i as u32, far),
            Sender::Quic(congestion) => quic(scenario, i as u64, congestion, far, window)?,
        };
        let (client, server) = (world.add_host(here, client), world.add_host(far, server));
        world.add_route_over(client, server, pipes.iter().map(|pipe| pipe.0).collect());
        world.add_route_over(server, client, pipes.iter().rev().map(|pipe| pipe.1).collect());
        // The seed decides which is there first, so that seeds together show both orders.
        let rank = (i as u64 + scenario.seed) % count as u64;
        pairs.push(Pair { sender, client, server, begins: Time::ZERO + APART * rank as u32 });
    }
    let mut starts: Vec<(Time, HostId)> = pairs.iter().map(|pair| (pair.begins, pair.client)).collect();
    starts.sort_unstable();
    let mut sampler = watch.map(|watch| Sampler::new(scenario, &pipes, watch));
    let look = |world: &World<End>| Look { bytes: pairs.iter().map(|pair| world.host(pair.server).meter().bytes).sum(), rtt: None };
    for (at, client) in starts {
        sampler::run_until(&mut world, at.min(window.from), &mut sampler, look)?;
        world.with_host(client, End::start)?;
    }
    sampler::run_until(&mut world, window.from, &mut sampler, look)?;
    let warm = Sides::of_links(&world, &pipes);
    world.clear_pipe_stats();
    sampler::run_until(&mut world, until, &mut sampler, look)?;
    let done = Sides::of_links(&world, &pipes);
    let mut failures = Vec::new();
    for (number, pair) in pairs.iter().enumerate() {
        let said = [pair.client, pair.server].into_iter().flat_map(|end| world.host(end).failures());
        failures.extend(said.map(|failure| format!("sender {} ({}): {failure}", number + 1, pair.sender)));
    }
    let meters: Vec<&Meter> = pairs.iter().map(|pair| world.host(pair.server).meter()).collect();
    let names: Vec<String> = scenario.senders.iter().map(|sender| sender.of(scenario.cc)).collect();
    Ok(measure_meters(scenario, names.join(", "), &warm, &done, &meters, world.packets(), failures))
}

fn noctule(scenario: &Scenario, number: u32, far: SocketAddr) -> (End, End) {
    let flow = &scenario.network.flows[0];
    let key = |end: u64| SecretKey::from_bytes(build::seed_bytes(scenario.seed, 30_000 + 2 * u64::from(number) + end));
    let end = |end: u64, reach: Reach| {
        let config = NodeConfig {
            congestion: scenario.cc.to_proto(),
            max_datagram: scenario.max_datagram(if end == 0 { flow.from } else { flow.to }) as u16,
            ..NodeConfig::default()
        };
        let node = Node::new(config, key(end), build::seed_bytes(scenario.seed, 31_000 + 2 * u64::from(number) + end), Time::ZERO);
        End::Noctule(NodeHost::alone(node, App::new(build::plan(scenario, flow, number, reach, build::HEADROOM))))
    };
    (end(0, Reach::Neighbour(far, Some(key(1).public()))), end(1, Reach::Waits))
}

fn quic(scenario: &Scenario, number: u64, congestion: QuicCongestion, far: SocketAddr, window: Window) -> Result<(End, End), SimError> {
    let mtu = scenario.hops.iter().map(|hop| hop.forward.mtu.min(hop.reverse.mtu)).min().unwrap_or(1500);
    let datagram = (mtu - scenario.ip.overhead()) as u16;
    let plan = QuicPlan::bulk(congestion, datagram, window, build::sub_seed(scenario.seed, 4_000 + number));
    let pair = QuicPair::new(plan, far).map_err(SimError::Unsupported)?;
    Ok((End::Quic(pair.client), End::Quic(pair.server)))
}

/// What senders beside each other cannot do is said before anything runs.
fn check(scenario: &Scenario) -> Result<(), SimError> {
    // Every field by name: a new one does not compile until it is decided here.
    let Scenario {
        hops: _,
        network,
        ip: _,
        mode,
        cc,
        lifetime,
        unordered,
        pairs,
        workload,
        both,
        seconds: _,
        warmup,
        seed: _,
        flow_memory,
        batch_size,
        no_retransmit,
        epoch_packets,
        stall,
        senders,
        connect_timeout,
    } = scenario;
    let last = APART * (senders.len() as u32 - 1);
    let refused = [
        (!network.is_chain() || network.flows.len() != 1, "a chain with one flow".to_owned()),
        ((0..network.ends.len()).any(|link| network.beside(link).count() > 1), "one path per hop".to_owned()),
        (
            network.nodes.len() > 2 && network.relays != Relays::Ip,
            "--relays ip: senders of both kinds need routers between them".to_owned(),
        ),
        (*workload != Workload::Bulk || mode.0 != Mode::Brtp, "--workload bulk in --mode brtp".to_owned()),
        (*both || *pairs > 1 || *unordered || lifetime.is_some() || stall.is_some(), "one direction, no --pairs and no --stall".to_owned()),
        (connect_timeout.is_some(), "the usual time to connect, no --connect-timeout".to_owned()),
        (
            flow_memory.is_some() || batch_size.is_some() || no_retransmit.is_some() || epoch_packets.is_some(),
            "the protocol's own batch size, memory and epochs".to_owned(),
        ),
        (!senders.contains(&Sender::Noctule) && *cc != Congestion::Model, "no --cc where no noctule sends".to_owned()),
        (warmup.0 < last, format!("a warm-up of {} s: they start {} s apart", last.as_secs(), APART.as_secs())),
    ];
    match refused.into_iter().find(|(is_refused, _)| *is_refused) {
        Some((_, text)) => Err(SimError::Unsupported(format!("--senders: {text}"))),
        None => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cli::RunLine;

    fn report(line: &str) -> Result<Report, String> {
        let scenario = RunLine(line.split(' ').map(str::to_owned).collect()).scenario()?;
        crate::sim::run(&scenario).map_err(|e| e.to_string())
    }

    #[test]
    fn a_bottleneck_is_shared_and_each_share_is_told() {
        let both = report("--rate=10mbit --delay=10ms --senders=noctule,quic-cubic --seconds=12 --warmup=4 --seed=1").unwrap();
        assert_eq!((both.pairs_mbit.len(), &both.failures[..]), (2, &[][..]));
        assert!(both.pairs_mbit.iter().all(|mbit| *mbit > 0.5) && both.share.unwrap() > 0.8, "{:?}", both.pairs_mbit);
        assert_eq!(both.scenario.cc, "noctule model, quic-cubic");
        // Alone over two routers' worth of links, as a stand-in of TCP.
        let alone = report("--hops=2 --relays=ip --rate=10mbit --delay=5ms --senders=quic-bbr --seconds=8 --warmup=4").unwrap();
        assert!(alone.share.unwrap() > 0.8 && alone.bytes_wrong == 0, "{:?}", alone.share);
    }

    #[test]
    fn what_senders_cannot_do_is_refused_by_name() {
        for (line, names) in [
            ("--senders=noctule,quic-cubic --hops=2", "--relays ip"),
            ("--senders=quic-cubic --workload=transfer:1MB", "bulk"),
            ("--senders=quic-cubic --cc=cubic", "--cc"),
            ("--senders=quic-cubic,quic-bbr,noctule --seconds=9 --warmup=3", "warm-up of 4 s"),
            ("--senders=quic-vegas", "quic-vegas"),
            ("--senders=noctule --stall=1s+1s", "--stall"),
        ] {
            let error = report(line).map(|_| ()).unwrap_err();
            assert!(error.contains(names), "{line}: {error}");
        }
    }
}

//! Several senders of one kind of load over the same links, noctule and QUIC in any number: what each gets of a bottleneck.
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
use super::measure::{Metered, Sides, measure_meters};
use super::meter::{Meter, Window};
use super::node_host::NodeHost;
use super::quic::{QuicCongestion, QuicHost, QuicLoad, QuicPair, QuicPlan};
use super::run::SimError;
use super::sampler::{self, Look, Sampler, Watch};
use super::world::{Host, HostId, WireOverhead, World};
use crate::report::Report;
use crate::scenario::{Congestion, Relays, Scenario, Sender, Workload};

/// Between the starts of two senders; which is first depends on the seed.
const APART: Duration = Duration::from_secs(2);

/// How often it is looked whether a transfer is complete; its end is known to the packet.
const STEP: Duration = Duration::from_millis(10);

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

    /// The moment at which this end knew that everything it sent had arrived.
    fn delivered(&self) -> Option<Time> {
        match self {
            Self::Noctule(host) => host.apps[0].delivered,
            Self::Quic(host) => host.delivered,
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
    let is_transfer = matches!(scenario.workload, Workload::Transfer { .. });
    // A transfer is counted from its first to its last byte.
    let window =
        if is_transfer { Window { from: Time::ZERO, until: Time::MAX } } else { Window { from: Time::ZERO + scenario.warmup.0, until } };
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
    let mut failures = Vec::new();
    let warm = if is_transfer {
        let is_delivered = |world: &World<End>| pairs.iter().all(|pair| world.host(pair.client).delivered().is_some());
        while world.now() < until && !is_delivered(&world) {
            let next = (world.now() + STEP).min(until);
            sampler::run_until(&mut world, next, &mut sampler, look)?;
        }
        if !is_delivered(&world) {
            failures.push(format!("the transfer was not complete after {}", scenario.seconds));
        }
        Sides::default()
    } else {
        sampler::run_until(&mut world, window.from, &mut sampler, look)?;
        let warm = Sides::of_links(&world, &pipes);
        world.clear_pipe_stats();
        sampler::run_until(&mut world, until, &mut sampler, look)?;
        warm
    };
    let done = Sides::of_links(&world, &pipes);
    let delivered: Option<Vec<Time>> = pairs.iter().map(|pair| world.host(pair.client).delivered()).collect();
    let transfer_s = delivered.filter(|_| is_transfer).and_then(|ends| ends.into_iter().max()).map(Time::as_secs_f64);
    for (number, pair) in pairs.iter().enumerate() {
        let said = [pair.client, pair.server].into_iter().flat_map(|end| world.host(end).failures());
        failures.extend(said.map(|failure| format!("sender {} ({}): {failure}", number + 1, pair.sender)));
    }
    let meters: Vec<&Meter> = pairs.iter().map(|pair| world.host(pair.server).meter()).collect();
    let names: Vec<String> = scenario.senders.iter().map(|sender| sender.of(scenario.cc)).collect();
    let metered = Metered { senders: names.join(", "), meters: &meters, transfer_s, datagrams: world.packets(), failures };
    Ok(measure_meters(scenario, &warm, &done, metered))
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
    let load = match scenario.workload {
        Workload::Transfer { size } => QuicLoad::Once(size),
        // The first at once, as that of a noctule session: its handshake counts.
        Workload::Block { size, interval } => QuicLoad::Frames { size, from: Time::ZERO, interval: interval.0 },
        Workload::Bulk | Workload::Messages { .. } => QuicLoad::Bulk,
    };
    let plan = QuicPlan::bulk(congestion, datagram, window, build::sub_seed(scenario.seed, 4_000 + number));
    let plan = QuicPlan { load, ..plan };
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
        ack_every,
        stall,
        senders,
        connect_timeout,
    } = scenario;
    let last = APART * (senders.len() as u32 - 1);
    let is_timed = !matches!(workload, Workload::Transfer { .. });
    // What begins at a time of its own would have to be told to the meters.
    let is_alone_only = !matches!(workload, Workload::Bulk);
    let refused = [
        (!network.is_chain() || network.flows.len() != 1, "a chain with one flow".to_owned()),
        ((0..network.ends.len()).any(|link| network.beside(link).count() > 1), "one path per hop".to_owned()),
        (
            network.nodes.len() > 2 && network.relays != Relays::Ip,
            "--relays ip: senders of both kinds need routers between them".to_owned(),
        ),
        (
            matches!(workload, Workload::Messages { .. }) || mode.0 != Mode::Brtp,
            "--workload bulk, transfer or block in --mode brtp".to_owned(),
        ),
        (is_alone_only && senders.len() > 1, "--workload bulk where there are several of them".to_owned()),
        (*both || *pairs > 1 || *unordered || lifetime.is_some() || stall.is_some(), "one direction, no --pairs and no --stall".to_owned()),
        (connect_timeout.is_some(), "the usual time to connect, no --connect-timeout".to_owned()),
        (
            flow_memory.is_some() || batch_size.is_some() || no_retransmit.is_some() || epoch_packets.is_some() || ack_every.is_some(),
            "the protocol's own batch size, memory, epochs and acknowledgements".to_owned(),
        ),
        (!senders.contains(&Sender::Noctule) && *cc != Congestion::Model, "no --cc where no noctule sends".to_owned()),
        (is_timed && warmup.0 < last, format!("a warm-up of {} s: they start {} s apart", last.as_secs(), APART.as_secs())),
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
    fn a_transfer_ends_when_its_sender_knows_and_blocks_are_timed() {
        for sender in ["quic-cubic", "noctule"] {
            let one = report(&format!("--rate=10mbit --delay=10ms --senders={sender} --workload=transfer:100KB --warmup=0 --seconds=60"));
            let one = one.unwrap();
            let seconds = one.transfer_s.unwrap();
            // 0.08 s of bytes, a handshake, and the last acknowledgement.
            assert!((0.12..0.6).contains(&seconds) && one.failures.is_empty(), "{sender}: {seconds} {:?}", one.failures);
            assert!((one.goodput_mbit - 0.8 / seconds).abs() < 0.01, "{sender}: {}", one.goodput_mbit);
            let blocks =
                report(&format!("--rate=10mbit --delay=10ms --senders={sender} --workload=block:20KB:100ms --warmup=1 --seconds=4"));
            let times = blocks.unwrap().message_one_way_ms.unwrap();
            assert!((29..=30).contains(&times.count) && (20.0..60.0).contains(&times.mean), "{sender}: {times:?}");
        }
        let never = report("--rate=10mbit --delay=10ms --senders=quic-cubic --workload=transfer:10MB --warmup=0 --seconds=1").unwrap();
        assert!(never.transfer_s.is_none() && never.failures[0].contains("not complete"), "{:?}", never.failures);
    }

    #[test]
    fn what_senders_cannot_do_is_refused_by_name() {
        for (line, names) in [
            ("--senders=noctule,quic-cubic --hops=2", "--relays ip"),
            ("--senders=quic-cubic,quic-bbr --workload=transfer:1MB", "several"),
            ("--senders=quic-cubic --workload=messages:10/s:100B", "transfer or block"),
            ("--senders=quic-cubic --ack-every=2", "acknowledgements"),
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

//! From counters to the report: goodput, limits and what makes a run fail (P24).

use std::net::IpAddr;
use std::time::Duration;

use noctule_proto::stats::RelayedStats;
use noctule_proto::units::Time;

use super::app::App;
use super::build::Ends;
use super::machine::Machine;
use super::meter::Meter;
use super::node_host::NodeHost;
use super::world::{Host, PipeId, World};
use crate::link::{Histogram, LinkStats};
use crate::report::{Configured, Direction, FlowReport, LinkCounts, REPORT_VERSION, RelayReport, Report, SenderView, Times, jain, round};
use crate::scenario::{Crossing, Limits, Network, Scenario, Workload, payload_share};

/// Share of the limit at which start-up is over.
const STARTED: f64 = 0.95;

/// Counters at one moment: every link, forward and back, and the first sender.
#[derive(Debug, Clone, Default)]
pub(super) struct Sides {
    links: Vec<(LinkStats, LinkStats)>,
    /// What the first sender knew at that moment, before it closed.
    sender: Option<SenderView>,
    /// The flows that passed each node at that moment.
    relayed: Vec<Vec<RelayedStats>>,
}

impl Sides {
    pub(super) fn of<N: Machine>(world: &World<NodeHost<N>>, pipes: &[(PipeId, PipeId)], ends: &[Ends]) -> Self {
        Self {
            sender: ends.first().and_then(|ends| sender_view(world, ends)),
            relayed: world.hosts().map(|host| host.node.relayed_flows()).collect(),
            ..Self::of_links(world, pipes)
        }
    }

    /// The links alone.
    pub(super) fn of_links<H: Host>(world: &World<H>, pipes: &[(PipeId, PipeId)]) -> Self {
        let links = pipes.iter().map(|&(f, r)| (world.pipe_stats(f).clone(), world.pipe_stats(r).clone())).collect();
        Self { links, sender: None, relayed: Vec::new() }
    }

    fn crossed(&self, crossing: Crossing) -> &LinkStats {
        let (forward, reverse) = &self.links[crossing.link];
        if crossing.forward { forward } else { reverse }
    }

    /// What the last links of all flows delivered that could be of use.
    fn useful(&self, network: &Network) -> u64 {
        let ends = network.flows.iter().flat_map(|flow| network.routes_at_once(flow)).filter_map(|route| route.last().copied());
        let mut last: Vec<Crossing> = ends.flat_map(|end| network.lanes(end)).collect();
        last.sort_unstable();
        last.dedup();
        if self.links.is_empty() { 0 } else { last.into_iter().map(|crossing| self.crossed(crossing).useful_bytes).sum() }
    }

    /// IP bytes handed to each link per byte read of the flows that cross it: in the direction of the data, and in the other.
    fn per_byte(&self, network: &Network, by_flow: &[u64], other: bool) -> Vec<Option<f64>> {
        // Of a flow that takes several routes each carries a part.
        let routes: Vec<Vec<Crossing>> = network.flows.iter().map(|flow| network.routes_at_once(flow).concat()).collect();
        (0..self.links.len())
            .map(|link| {
                let data = Crossing { link, forward: network.data_is_forward(link)? };
                // Links side by side carry the same flows together, and have one ratio.
                let lanes: Vec<Crossing> = network.lanes(data).collect();
                let is_crossed = |route: &[Crossing]| lanes.iter().any(|lane| route.contains(lane));
                let read: u64 = routes.iter().zip(by_flow).filter(|(route, _)| is_crossed(route)).map(|(_, &bytes)| bytes).sum();
                let direction = |lane: &Crossing| if other { lane.turned() } else { *lane };
                let offered: u64 = lanes.iter().map(|lane| self.crossed(direction(lane)).offered_bytes).sum();
                (read > 0).then(|| round(offered as f64 / read as f64, 5))
            })
            .collect()
    }
}

/// The report of a run: `warm` are the counters of the warm-up, `done` those after it.
pub(super) fn measure<N: Machine>(
    scenario: &Scenario,
    world: &World<NodeHost<N>>,
    ends: &[Ends],
    links_up: Option<Time>,
    warm: &Sides,
    done: &Sides,
    mut failures: Vec<String>,
) -> Report {
    let is_transfer = matches!(scenario.workload, Workload::Transfer { .. });
    let network = &scenario.network;
    let app = |id: super::build::AppId| &world.host(id.host).apps[id.app];
    let apps: Vec<(&App, &App)> = ends.iter().map(|ends| (app(ends.client), app(ends.server))).collect();
    let transfer_s = transfer_seconds(is_transfer, &apps);
    let counted = match (is_transfer, transfer_s) {
        (true, Some(s)) => s,
        (true, None) => scenario.seconds.0.as_secs_f64(),
        (false, _) => scenario.seconds.0.as_secs_f64() - scenario.warmup.0.as_secs_f64(),
    };
    let span = match transfer_s {
        Some(s) => (Time::ZERO, Time::ZERO + Duration::from_secs_f64(s)),
        None => (Time::ZERO + scenario.warmup.0, Time::ZERO + scenario.seconds.0),
    };
    let limits = Limits::between(scenario, span.0, span.1);
    let mut by_flow = vec![0; network.flows.len()];
    for (ends, (_, server)) in ends.iter().zip(&apps) {
        by_flow[ends.flow] += server.meter.bytes_in_window;
    }
    let read = Read {
        span,
        counted,
        whole: if is_transfer { counted } else { scenario.seconds.0.as_secs_f64() },
        pairs: apps.iter().map(|(_, server)| server.meter.bytes_in_window).collect(),
        by_flow,
        bytes: apps.iter().map(|(_, server)| server.meter.bytes).sum(),
        wrong: apps.iter().map(|(_, server)| server.meter.bytes_wrong).sum(),
    };

    for (ends, (client, server)) in ends.iter().zip(&apps) {
        let flow = if network.flows.len() > 1 { format!("flow {}, ", ends.flow + 1) } else { String::new() };
        failures.extend(client.failures.iter().map(|f| format!("{flow}connecting end, {f}")));
        failures.extend(server.failures.iter().map(|f| format!("{flow}waiting end, {f}")));
        if server.meter.bytes == 0 {
            failures.push(format!("{flow}not one byte arrived"));
        }
    }
    for (host, node) in world.hosts().zip(&network.nodes) {
        let failed = host.neighbourhood.iter().flat_map(|neighbourhood| &neighbourhood.failures);
        failures.extend(failed.map(|f| format!("{node}, {f}")));
    }
    let wrong_back: u64 = apps.iter().map(|(client, _)| client.meter.bytes_wrong).sum();
    if read.wrong + wrong_back > 0 {
        failures.push(format!("{} bytes wrong", read.wrong + wrong_back));
    }
    let out_of_order: u64 = apps.iter().map(|(client, server)| client.meter.out_of_order + server.meter.out_of_order).sum();
    let ordered = !scenario.unordered && scenario.mode.0 == noctule_proto::options::Mode::Brtp;
    if ordered && out_of_order > 0 {
        failures.push(format!("{out_of_order} messages out of order on an ordered flow"));
    }
    let memory = world.hosts().map(|host| host.node.memory()).max_by_key(|m| m.peak).unwrap_or_default();
    if memory.peak > memory.limit {
        failures.push(format!("memory reached {} bytes, its bound is {}", memory.peak, memory.limit));
    }

    let is_messages = apps.iter().any(|(client, _)| client.is_periodic());
    let mut rtt = Histogram::default();
    let mut one_way = Histogram::default();
    for (client, server) in &apps {
        rtt.merge(&client.rtt);
        one_way.merge(&server.meter.one_way);
    }
    let (due, on_time) = residual(&apps, true);

    let link_up = links_up.or(apps.first().and_then(|(client, _)| client.link_up));

    Report {
        message_rtt_ms: is_messages.then(|| Times::of(&rtt)).flatten(),
        message_rtt_ms_by_ten: apps.first().map_or_else(Vec::new, |(client, _)| client.rtt_by_ten.iter().map(|ms| round(*ms, 3)).collect()),
        message_rtt_ms_percentiles: percentiles(&rtt),
        message_one_way_ms: is_messages.then(|| Times::of(&one_way)).flatten(),
        first_message_rtt_ms: apps.first().and_then(|(client, _)| client.first_rtt).map(|d| round(d.as_secs_f64() * 1e3, 3)),
        residual_loss: (is_messages && due > 0).then(|| round(1.0 - on_time as f64 / due as f64, 7)),
        messages_due: due,
        messages_out_of_order: out_of_order,
        memory_peak_bytes: memory.peak,
        memory_limit_bytes: memory.limit,
        startup_rtts: link_up.and_then(|begin| startup_rtts(scenario, &apps, begin)),
        handshake_ms: link_up.map(|t| round(t.as_secs_f64() * 1e3, 3)),
        transfer_s: transfer_s.map(|s| round(s, 6)),
        goodput_mbit_by_second: by_second(&apps),
        reverse: scenario.both.then(|| reverse_direction(&apps, counted, limits.reverse)),
        flows: ends.iter().zip(&apps).map(|(ends, apps)| flow_report(scenario, ends, *apps, counted, span)).collect(),
        relays: relay_reports(scenario, done),
        sender: done.sender.clone(),
        datagrams: world.packets(),
        ..report_on_links(scenario, warm, done, &read, failures)
    }
}

/// What is read by meters.
pub(super) struct Metered<'a> {
    /// What sends.
    pub senders: String,
    /// Of each receiver.
    pub meters: &'a [&'a Meter],
    /// When the last sender of a transfer knew that everything had arrived.
    pub transfer_s: Option<f64>,
    /// Datagrams simulated.
    pub datagrams: u64,
    /// What went wrong.
    pub failures: Vec<String>,
}

/// The report of senders over the one way of a scenario, each read by a meter.
pub(super) fn measure_meters(scenario: &Scenario, warm: &Sides, done: &Sides, metered: Metered<'_>) -> Report {
    let Metered { senders, meters, transfer_s, datagrams, mut failures } = metered;
    let is_transfer = matches!(scenario.workload, Workload::Transfer { .. });
    let from = if is_transfer { Time::ZERO } else { Time::ZERO + scenario.warmup.0 };
    let whole = transfer_s.unwrap_or(scenario.seconds.0.as_secs_f64());
    let read = Read {
        span: (from, Time::ZERO + Duration::from_secs_f64(whole)),
        counted: whole - from.as_secs_f64(),
        whole,
        pairs: meters.iter().map(|meter| meter.bytes_in_window).collect(),
        by_flow: vec![meters.iter().map(|meter| meter.bytes_in_window).sum()],
        bytes: meters.iter().map(|meter| meter.bytes).sum(),
        wrong: meters.iter().map(|meter| meter.bytes_wrong).sum(),
    };
    for (number, meter) in meters.iter().enumerate() {
        let of = if meters.len() > 1 { format!("of sender {} ", number + 1) } else { String::new() };
        if meter.bytes == 0 {
            failures.push(format!("not one byte {of}arrived"));
        }
        if meter.bytes_wrong > 0 {
            failures.push(format!("{} bytes {of}wrong", meter.bytes_wrong));
        }
    }
    let mut one_way = Histogram::default();
    meters.iter().for_each(|meter| one_way.merge(&meter.one_way));
    let seconds = meters.iter().map(|meter| meter.by_second.len()).max().unwrap_or(0);
    let in_second = |second: usize| meters.iter().filter_map(|meter| meter.by_second.get(second)).sum::<u64>();
    Report {
        scenario: Configured { cc: senders, ..Configured::of(scenario) },
        goodput_mbit_by_second: (0..seconds).map(|second| round(in_second(second) as f64 * 8e-6, 3)).collect(),
        message_one_way_ms: Times::of(&one_way),
        transfer_s: transfer_s.map(|s| round(s, 6)),
        datagrams,
        ..report_on_links(scenario, warm, done, &read, failures)
    }
}

/// What the receiving ends read of a run.
struct Read {
    /// From when to when, in the run and in seconds that count; of the whole run in seconds.
    span: (Time, Time),
    counted: f64,
    whole: f64,
    /// Bytes in that time by pair of ends and by flow, of the whole run, and the wrong ones.
    pairs: Vec<u64>,
    by_flow: Vec<u64>,
    bytes: u64,
    wrong: u64,
}

/// What can be said of any kind of ends: what they read beside what the links carried.
fn report_on_links(scenario: &Scenario, warm: &Sides, done: &Sides, read: &Read, mut failures: Vec<String>) -> Report {
    let network = &scenario.network;
    let limits = Limits::between(scenario, read.span.0, read.span.1);
    let finite = |bits: f64| bits.is_finite().then_some(bits);
    let mbit = |bytes: u64| bytes as f64 * 8e-6 / read.counted;
    let pairs_mbit: Vec<f64> = read.pairs.iter().map(|&bytes| mbit(bytes)).collect();
    let goodput: f64 = pairs_mbit.iter().sum();
    let mtu = scenario.hops.iter().map(|hop| hop.forward.mtu).max().unwrap_or(1500);
    let efficiency = payload_share(mtu, scenario.ip.overhead());
    let realised = mbit(done.useful(network)) * efficiency;
    // More bytes read than the link delivered cannot be: the lab itself would be wrong (P24).
    let carried = (warm.useful(network) + done.useful(network)) as f64 * efficiency;
    if read.bytes as f64 > carried {
        failures.push(format!("{} bytes were read, and the link delivered room for {carried:.0}", read.bytes));
    }
    Report {
        report_version: REPORT_VERSION,
        backend: "sim".into(),
        scenario: Configured::of(scenario),
        without: crate::without::names().to_vec(),
        goodput_mbit: round(goodput, 4),
        nominal_limit_mbit: finite(limits.forward).map(|limit| round(limit / 1e6, 4)),
        realised_limit_mbit: round(realised, 4),
        share: finite(limits.forward).map(|limit| round(goodput * 1e6 / limit, 5)),
        share_whole: finite(limits.forward_whole).map(|limit| round(read.bytes as f64 * 8.0 / read.whole / limit, 5)),
        share_realised: (realised > 0.0).then(|| round(goodput / realised, 5)),
        bytes_delivered: read.bytes,
        bytes_wrong: read.wrong,
        wire_per_byte: done.per_byte(network, &read.by_flow, false),
        reverse_wire_per_byte: done.per_byte(network, &read.by_flow, true),
        queue_ms_p95: queues(network, done).fold(0.0, f64::max),
        jain: jain(&pairs_mbit).map(|j| round(j, 5)),
        pairs_mbit: pairs_mbit.iter().map(|&m| round(m, 4)).collect(),
        links: done.links.iter().map(|(f, r)| [LinkCounts::from(f), LinkCounts::from(r)]).collect(),
        failures,
        message_rtt_ms: None,
        message_rtt_ms_by_ten: Vec::new(),
        message_rtt_ms_percentiles: Vec::new(),
        message_one_way_ms: None,
        first_message_rtt_ms: None,
        residual_loss: None,
        messages_due: 0,
        messages_out_of_order: 0,
        memory_peak_bytes: 0,
        memory_limit_bytes: 0,
        startup_rtts: None,
        handshake_ms: None,
        transfer_s: None,
        goodput_mbit_by_second: Vec::new(),
        reverse: None,
        flows: Vec::new(),
        relays: Vec::new(),
        sender: None,
        datagrams: 0,
    }
}

/// Percentiles 0 to 100 in ms; empty without a value.
fn percentiles(times: &Histogram) -> Vec<f64> {
    if times.count() == 0 {
        return Vec::new();
    }
    (0..=100).map(|percent| round(times.quantile(f64::from(percent) / 100.0).as_secs_f64() * 1e3, 3)).collect()
}

/// Start-up of a bulk transfer that has its path for itself.
fn startup_rtts(scenario: &Scenario, apps: &[(&App, &App)], begin: Time) -> Option<f64> {
    let &[(_, server)] = apps else { return None };
    if scenario.workload != Workload::Bulk {
        return None;
    }
    let startup = server.meter.startup.as_ref()?;
    let limit = Limits::between(scenario, begin, begin + startup.recorded().min(scenario.seconds.0)).forward;
    limit.is_finite().then(|| startup.rtts_until(begin, STARTED * limit))?
}

/// From the start to the moment at which the sender knows that all arrived, of the slowest pair.
fn transfer_seconds(is_transfer: bool, apps: &[(&App, &App)]) -> Option<f64> {
    if !is_transfer {
        return None;
    }
    let ends: Option<Vec<Time>> = apps.iter().map(|(client, _)| client.delivered).collect();
    ends?.into_iter().max().map(Time::as_secs_f64)
}

/// Messages due in the window and those that arrived in time, towards the waiting end or back.
fn residual(apps: &[(&App, &App)], forward: bool) -> (u64, u64) {
    apps.iter().fold((0, 0), |(due, on_time), (client, server)| {
        let (from, to) = if forward { (client, server) } else { (server, client) };
        (due + from.due_in_window(), on_time + to.meter.on_time)
    })
}

fn by_second(apps: &[(&App, &App)]) -> Vec<f64> {
    let seconds = apps.iter().map(|(_, server)| server.meter.by_second.len()).max().unwrap_or(0);
    (0..seconds)
        .map(|i| {
            let bytes: u64 = apps.iter().filter_map(|(_, server)| server.meter.by_second.get(i)).sum();
            round(bytes as f64 * 8e-6, 3)
        })
        .collect()
}

fn reverse_direction(apps: &[(&App, &App)], counted: f64, limit: f64) -> Direction {
    let goodput = apps.iter().map(|(client, _)| client.meter.bytes_in_window).sum::<u64>() as f64 * 8.0 / counted;
    let (due, on_time) = residual(apps, false);
    Direction {
        goodput_mbit: round(goodput / 1e6, 4),
        nominal_limit_mbit: limit.is_finite().then_some(round(limit / 1e6, 4)),
        share: limit.is_finite().then(|| round(goodput / limit, 5)),
        bytes_delivered: apps.iter().map(|(client, _)| client.meter.bytes).sum(),
        bytes_wrong: apps.iter().map(|(client, _)| client.meter.bytes_wrong).sum(),
        residual_loss: (due > 0).then(|| round(1.0 - on_time as f64 / due as f64, 7)),
    }
}

/// 95th percentiles of the queueing delay of each link, in the direction of the data.
fn queues<'a>(network: &'a Network, sides: &'a Sides) -> impl Iterator<Item = f64> + 'a {
    let data = (0..sides.links.len()).filter_map(|link| Some(Crossing { link, forward: network.data_is_forward(link)? }));
    data.map(|crossing| LinkCounts::from(sides.crossed(crossing)).queue_ms_p95)
}

/// The data flows that passed each node of a network; control flows are left out.
fn relay_reports(scenario: &Scenario, sides: &Sides) -> Vec<RelayReport> {
    let network = &scenario.network;
    if network.is_end_to_end() {
        return Vec::new();
    }
    let name = |address: IpAddr| {
        let node = (0..network.nodes.len()).find(|&node| network.address(node, scenario.ip) == address);
        node.map_or_else(|| address.to_string(), |node| network.nodes[node].clone())
    };
    let of_node = |(node, flows): (&String, &Vec<RelayedStats>)| -> Vec<RelayReport> {
        let report = |s: &RelayedStats| RelayReport {
            node: node.clone(),
            from: name(s.source),
            to: name(s.destination),
            rank_in: s.rank_in,
            redundant_in: s.redundant_packets,
            rank_out: s.rank_out,
            passed_packets: s.passed_packets,
            recoded_packets: s.recoded_packets,
            batches_by_rank_in: s.spans.rank_in.clone(),
            batches_by_rank_out: s.spans.rank_out.clone(),
            batches_by_recoded: s.spans.recoded.clone(),
            dropped_packets: s.dropped_packets,
            waiting_packets: s.waiting,
            queueing_delay_ms: round(s.queueing_delay.as_secs_f64() * 1e3, 3),
            memory_bytes: s.memory,
        };
        flows.iter().filter(|s| s.index != 0).map(report).collect()
    };
    network.nodes.iter().zip(&sides.relayed).flat_map(of_node).collect()
}

fn flow_report(scenario: &Scenario, ends: &Ends, (client, server): (&App, &App), counted: f64, span: (Time, Time)) -> FlowReport {
    let network = &scenario.network;
    let flow = &network.flows[ends.flow];
    let goodput = server.meter.bytes_in_window as f64 * 8.0 / counted;
    let limit = Limits::of_flow(scenario, flow, span.0, span.1).forward;
    let (due, on_time) = residual(&[(client, server)], true);
    FlowReport {
        from: network.nodes[flow.from].clone(),
        to: network.nodes[flow.to].clone(),
        links: network.routes_at_once(flow).concat().iter().map(|crossing| crossing.link + 1).collect(),
        workload: flow.workload.unwrap_or(scenario.workload).to_string(),
        goodput_mbit: round(goodput / 1e6, 4),
        limit_alone_mbit: limit.is_finite().then(|| round(limit / 1e6, 4)),
        share_alone: limit.is_finite().then(|| round(goodput / limit, 5)),
        bytes_delivered: server.meter.bytes,
        bytes_wrong: server.meter.bytes_wrong + client.meter.bytes_wrong,
        message_rtt_ms: Times::of(&client.rtt),
        message_one_way_ms: Times::of(&server.meter.one_way),
        residual_loss: (due > 0).then(|| round(1.0 - on_time as f64 / due as f64, 7)),
    }
}

/// The round trip that the sender of a flow has measured; none before the first one.
pub(super) fn smoothed_rtt<N: Machine>(world: &World<NodeHost<N>>, ends: &Ends) -> Option<Duration> {
    let client = world.host(ends.client.host);
    let sends = &client.apps[ends.client.app];
    let link = sends.link().or_else(|| client.node.session_link(sends.session()?))?;
    let stats = client.node.link_stats(link)?;
    let path = stats.paths.first()?;
    (path.min_rtt > Duration::ZERO && path.min_rtt <= path.smoothed_rtt).then_some(path.smoothed_rtt)
}

fn sender_view<N: Machine>(world: &World<NodeHost<N>>, ends: &Ends) -> Option<SenderView> {
    let (client, server) = (world.host(ends.client.host), world.host(ends.server.host));
    let (sends, receives) = (&client.apps[ends.client.app], &server.apps[ends.server.app]);
    let link = sends.link().or_else(|| client.node.session_link(sends.session()?))?;
    let link = client.node.link_stats(link)?;
    let path = link.paths.first()?;
    let flow = sends.outgoing_flow().and_then(|flow| client.node.flow_stats(flow)).unwrap_or_default();
    let received = receives.incoming_flow().and_then(|flow| server.node.flow_stats(flow)).unwrap_or_default();
    let ms = |d: Duration| round(d.as_secs_f64() * 1e3, 3);
    Some(SenderView {
        rtt_ms: ms(path.smoothed_rtt),
        min_rtt_ms: ms(path.min_rtt),
        loss: round(path.loss.get(), 5),
        delivery_rate_mbit: round(path.delivery_rate.mbit(), 3),
        cwnd: path.control.cwnd,
        pacing_mbit: round(path.control.pacing_rate.mbit(), 3),
        capacity_mbit: round(path.control.capacity.mbit(), 3),
        control: path.control.state.to_owned(),
        sent_packets: path.sent_packets,
        lost_packets: path.lost_packets,
        spurious_losses: path.spurious_losses,
        ptos: path.ptos,
        source_packets: flow.source_packets,
        repair_packets: flow.repair_packets,
        proactive_packets: flow.proactive_packets,
        redundant_at_receiver: received.redundant_packets,
        decoded_at_receiver: received.decoded_packets,
    })
}

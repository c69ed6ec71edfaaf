//! noctule (`model`) and QUIC (quinn's controls, the same sans-IO machine that its users run) over one bottleneck, in virtual time.
//!
//! `cargo run --release -p noctule-lab --example beside -- compete|crowd|aqm|short|video [SEEDS]`, or `… trace [SEEDS] FILE...`; one run second by second:
//! `… story SEED MBIT DELAY_MS QUEUE_BDP cubic|BBRv1`.

use std::io::Write;
use std::net::{IpAddr, SocketAddr};
use std::time::Duration;

use noctule_lab::link::{Histogram, LinkSpec};
use noctule_lab::scenario::Workload;
use noctule_lab::sim::{
    App, AppPlan, Host, HostId, NodeHost, PipeId, QuicCongestion, QuicHost, QuicLoad, QuicPair, QuicPlan, Reach, Window, WireOverhead,
    World,
};
use noctule_proto::crypto::SecretKey;
use noctule_proto::node::Transmit;
use noctule_proto::options::Mode;
use noctule_proto::units::{Ecn, Time};
use noctule_proto::{Node, NodeConfig};

/// UDP payload of both, on a link with an MTU of 1500.
const DATAGRAM: u16 = 1472;
/// A flow of `model` or one of QUIC.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Kind {
    Model,
    Quic(QuicCongestion),
}

const OTHERS: [(&str, QuicCongestion); 2] = [("cubic", QuicCongestion::Cubic), ("BBRv1", QuicCongestion::Bbr)];

/// One end of either.
#[allow(clippy::large_enum_variant, reason = "a handful in all")]
enum End {
    Noctule(NodeHost<Node>),
    Quic(QuicHost),
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

/// Pairs of hosts over one link, each with its own time to begin.
struct Bottleneck {
    world: World<End>,
    pipes: (PipeId, PipeId),
    window: Window,
    base_rtt: Duration,
    seed: u64,
    now: Time,
    /// Client, server, when it begins.
    pairs: Vec<(HostId, HostId, Time)>,
}

impl Bottleneck {
    fn new(there: &LinkSpec, back: &LinkSpec, window: Window, seed: u64) -> Self {
        let mut world = World::new(WireOverhead(28));
        let mut pipe = |spec: &LinkSpec, way| {
            let mut spec = spec.clone();
            spec.bdp_rtt = Some(there.delay.0 + back.delay.0);
            world.add_pipe(&spec, seed * 1000 + way).expect("a link that can be")
        };
        let pipes = (pipe(there, 1), pipe(back, 2));
        Self { world, pipes, window, base_rtt: there.delay.0 + back.delay.0, seed, now: Time::ZERO, pairs: Vec::new() }
    }

    /// Adds a flow; its number.
    fn add(&mut self, kind: Kind, load: QuicLoad, begins: Time) -> usize {
        let n = self.pairs.len();
        let [here, there] = [1, 2].map(|end| SocketAddr::from(([10, 1, n as u8, end], 4433)));
        let seed = self.seed * 1000 + n as u64;
        let (client, server) = match kind {
            Kind::Quic(congestion) => {
                let pair = QuicPair::new(QuicPlan { load, ..QuicPlan::bulk(congestion, DATAGRAM, self.window, seed) }, there)
                    .expect("keys can be made");
                (End::Quic(pair.client), End::Quic(pair.server))
            }
            Kind::Model => {
                let key = |end: u8| {
                    SecretKey::from_bytes([seed as u8 + 1, (seed >> 8) as u8, end].repeat(11)[..32].try_into().expect("32 bytes"))
                };
                let workload = match load {
                    QuicLoad::Bulk => Workload::Bulk,
                    QuicLoad::Relayed => unreachable!("nobody relays here"),
                    QuicLoad::Once(size) => Workload::Transfer { size },
                    QuicLoad::Frames { size, interval, .. } => Workload::Block { size, interval: noctule_lab::link::Period(interval) },
                };
                let end = |end: u8, reach: Reach| {
                    let plan = AppPlan {
                        sends: reach != Reach::Waits,
                        reach,
                        further: Vec::new(),
                        number: n as u64,
                        workload,
                        mode: Mode::Brtp,
                        lifetime: None,
                        unordered: false,
                        batch_size: None,
                        no_retransmit: None,
                        flood_size: 1400,
                        window: self.window,
                        base_rtt: self.base_rtt,
                        stall: None,
                        seed,
                        stream: u64::from(end),
                    };
                    let config = NodeConfig { max_datagram: DATAGRAM, ..NodeConfig::default() };
                    let node = Node::new(config, key(end), [seed as u8, end].repeat(16).try_into().expect("32 bytes"), Time::ZERO);
                    End::Noctule(NodeHost::alone(node, App::new(plan)))
                };
                (end(0, Reach::Neighbour(there, Some(key(1).public()))), end(1, Reach::Waits))
            }
        };
        let (client, server) = (self.world.add_host(here, client), self.world.add_host(there, server));
        self.world.add_route(client, server, self.pipes.0);
        self.world.add_route(server, client, self.pipes.1);
        self.pairs.push((client, server, begins));
        n
    }

    /// Runs to the end of the window; links count what came after the warm-up.
    fn run(&mut self) {
        self.run_to(self.window.from);
        self.world.clear_pipe_stats();
        self.run_to(self.window.until);
    }

    /// Goes on until `until`, starting flows that begin before.
    fn run_to(&mut self, until: Time) {
        let mut starts: Vec<(Time, HostId)> =
            self.pairs.iter().filter(|pair| (self.now..until).contains(&pair.2)).map(|&(client, _, at)| (at, client)).collect();
        starts.sort_unstable();
        for (at, client) in starts {
            self.go(at);
            let start = |end: &mut End, now| match end {
                End::Noctule(host) => host.start(now, 0),
                End::Quic(host) => host.start(now),
            };
            self.world.with_host(client, start).expect("a host that sends");
        }
        self.go(until);
    }

    fn go(&mut self, until: Time) {
        self.world.run_until(until).expect("a run that goes on");
        self.now = until;
    }

    fn meter(&self, flow: usize) -> &noctule_lab::sim::Meter {
        match self.world.host(self.pairs[flow].1) {
            End::Noctule(host) => &host.apps[0].meter,
            End::Quic(host) => &host.meter,
        }
    }

    /// Mbit/s read in the window.
    fn mbit(&self, flow: usize) -> f64 {
        self.meter(flow).bytes_in_window as f64 * 8e-6 / (self.window.until - self.window.from).as_secs_f64()
    }

    /// Why a QUIC connection ended, if it did.
    fn failure(&self, flow: usize) -> Option<&str> {
        let (client, server, _) = self.pairs[flow];
        [client, server].into_iter().find_map(|end| match self.world.host(end) {
            End::Noctule(_) => None,
            End::Quic(host) => host.failure.as_deref(),
        })
    }

    fn queue_p95_ms(&self) -> f64 {
        ms(self.world.pipe_stats(self.pipes.0).queue_delay.quantile(0.95))
    }
}

fn ms(d: Duration) -> f64 {
    d.as_secs_f64() * 1e3
}

fn at(ms: u64) -> Time {
    Time::from_millis(ms)
}

fn link(settings: &str) -> LinkSpec {
    let mut spec = LinkSpec::default();
    spec.set_list(settings).unwrap_or_else(|e| panic!("{settings}: {e}"));
    spec
}

fn main() {
    let args: Vec<String> = std::env::args().skip(1).collect();
    let seeds = args.get(1).map_or(4, |n| n.parse().expect("a number of seeds"));
    match args.first().map(String::as_str) {
        Some("compete") => compete(seeds),
        Some("crowd") => crowd(seeds),
        Some("aqm") => aqm(seeds),
        Some("short") => short(seeds),
        Some("video") => video(seeds),
        Some("trace") if args.len() > 2 => args[2..].iter().for_each(|file| trace(seeds, file)),
        Some("story") if args.len() == 6 => story(seeds, &args[2..]),
        _ => eprintln!(
            "beside compete|crowd|aqm|short|video [SEEDS], beside trace SEEDS FILE..., or beside story SEED MBIT DELAY_MS QUEUE_BDP cubic|BBRv1"
        ),
    }
}

/// `model` and bulk QUIC from 10 to 60 s. Odd seeds: QUIC comes 2 s later, even seeds: it was there 2 s before.
fn bulk_beside(there: &LinkSpec, back: &LinkSpec, other: QuicCongestion, seed: u64) -> Bottleneck {
    let mut b = both(there, back, other, seed);
    b.run();
    b
}

fn both(there: &LinkSpec, back: &LinkSpec, other: QuicCongestion, seed: u64) -> Bottleneck {
    let mut b = Bottleneck::new(there, back, Window { from: at(10_000), until: at(60_000) }, seed);
    let (ours, theirs) = if seed % 2 == 1 { (0, 2000) } else { (2000, 0) };
    b.add(Kind::Model, QuicLoad::Bulk, at(ours));
    b.add(Kind::Quic(other), QuicLoad::Bulk, at(theirs));
    b
}

/// The same second by second.
fn story(seed: u64, args: &[String]) {
    let [rate, delay, queue, other] = args else { unreachable!("four of them") };
    let (_, other) = OTHERS.into_iter().find(|(name, _)| name == other).unwrap_or_else(|| panic!("{other}: neither cubic nor BBRv1"));
    let there = link(&format!("rate={rate}mbit,delay={delay}ms,queue={queue}bdp"));
    let back = link(&format!("rate={rate}mbit,delay={delay}ms"));
    let mut b = both(&there, &back, other, seed);
    for second in 1..=60 {
        let before = [0, 1].map(|flow| b.meter(flow).bytes);
        b.run_to(at(1000 * second));
        let [ours, theirs] = [0, 1].map(|flow| (b.meter(flow).bytes - before[flow]) as f64 * 8e-6);
        println!("{second:3} s: {ours:6.1} {theirs:6.1} Mbit/s");
    }
}

/// Mean, least and most.
fn spread(shares: &[f64]) -> Option<(f64, f64, f64)> {
    let (low, high) = shares.iter().fold((f64::MAX, 0.0f64), |(low, high), s| (low.min(*s), high.max(*s)));
    (!shares.is_empty()).then(|| (shares.iter().sum::<f64>() / shares.len() as f64, low, high))
}

/// Share of `model` beside bulk QUIC in drop-tail queues, of the seeds in which the QUIC connection lasts: quinn ends one whose receiver has more than 1024
/// gaps in a stream.
fn compete(seeds: u64) {
    let mut ended = Vec::new();
    for (name, other) in OTHERS {
        println!("beside QUIC {name}: share of model in %, mean (range), by the queue in BDP");
        for (rate, delay) in [(20, 10), (20, 40), (100, 10), (100, 40)] {
            print!("{rate} Mbit/s RTT {} ms:", 2 * delay);
            for queue in [0.5, 1.0, 2.0, 4.0] {
                let there = link(&format!("rate={rate}mbit,delay={delay}ms,queue={queue}bdp"));
                let back = link(&format!("rate={rate}mbit,delay={delay}ms"));
                let mut shares = Vec::new();
                for seed in 1..=seeds {
                    let b = bulk_beside(&there, &back, other, seed);
                    match b.failure(1) {
                        None => shares.push(100.0 * b.mbit(0) / (b.mbit(0) + b.mbit(1))),
                        Some(why) => ended.push(format!("{name}, {rate} Mbit/s RTT {} ms, {queue} BDP, seed {seed}: {why}", 2 * delay)),
                    }
                }
                match spread(&shares) {
                    None => print!("  {queue}: all ended"),
                    Some((mean, low, high)) => print!("  {queue}: {mean:4.1} ({low:4.1}-{high:4.1})"),
                }
                std::io::stdout().flush().expect("somewhere to print to");
            }
            println!();
        }
    }
    ended.iter().for_each(|why| println!("ended: {why}"));
}

/// Several of both, starts 2 s apart in an order that the seed rotates: equal shares that a flow of each kind has on average, and the least and the most.
fn crowd(seeds: u64) {
    for (rate, delay, queue) in [(20, 10, 1.0), (100, 10, 1.0), (100, 40, 1.0), (100, 40, 2.0)] {
        let there = link(&format!("rate={rate}mbit,delay={delay}ms,queue={queue}bdp"));
        let back = link(&format!("rate={rate}mbit,delay={delay}ms"));
        for (name, other) in OTHERS {
            for (ours, theirs) in [(1, 3), (2, 1), (2, 2), (4, 1), (0, 4)] {
                let (mut shares, mut ended, mut lost) = ([Vec::new(), Vec::new()], 0, 0.0);
                for seed in 1..=seeds {
                    let flows = ours + theirs;
                    let mut b = Bottleneck::new(&there, &back, Window { from: at(20_000), until: at(70_000) }, seed);
                    for i in 0..flows {
                        let kind = if i < ours { Kind::Model } else { Kind::Quic(other) };
                        b.add(kind, QuicLoad::Bulk, at(2000 * ((i as u64 + seed) % flows as u64)));
                    }
                    b.run();
                    if (0..flows).any(|flow| b.failure(flow).is_some()) {
                        ended += 1;
                        continue;
                    }
                    let total: f64 = (0..flows).map(|flow| b.mbit(flow)).sum();
                    for flow in 0..flows {
                        shares[usize::from(flow >= ours)].push(b.mbit(flow) * flows as f64 / total);
                    }
                    let stats = b.world.pipe_stats(b.pipes.0);
                    lost += 1.0 - stats.useful_bytes as f64 / stats.offered_bytes.max(1) as f64;
                }
                let [ours_had, theirs_had] = shares.map(|shares| match spread(&shares) {
                    None => "-".to_owned(),
                    Some((mean, low, high)) => format!("{mean:.2} ({low:.2}-{high:.2})"),
                });
                println!(
                    "{rate} Mbit/s RTT {} ms {queue} BDP, {ours} of model and {theirs} of QUIC {name}: {ours_had}, {theirs_had}; {:.1} % lost; {ended} ended",
                    2 * delay,
                    100.0 * lost / (seeds - ended).max(1) as f64
                );
            }
        }
    }
}

/// Shares beside bulk QUIC in queues that decide themselves what to drop.
fn aqm(seeds: u64) {
    for queue in ["fq_codel", "fq_codel:flows=1", "pie"] {
        for (name, other) in OTHERS {
            print!("{queue}, 100 Mbit/s, 20 ms one way, beside QUIC {name}: share of model in %");
            for seed in 1..=seeds {
                let spec = link(&format!("rate=100mbit,delay=20ms,aqm={queue}"));
                let b = bulk_beside(&spec, &spec, other, seed);
                let (ours, theirs) = (b.mbit(0), b.mbit(1));
                print!("  {:.1} (sum {:.1}, queue {:.1} ms)", 100.0 * ours / (ours + theirs), ours + theirs, b.queue_p95_ms());
            }
            println!();
        }
    }
}

/// A link with a trace of opportunities: what each uses of them alone, and with the others.
fn trace(seeds: u64, file: &str) {
    let there = link(&format!("trace={file},delay=20ms"));
    let back = link("rate=20mbit,delay=20ms");
    let window = Window { from: at(5000), until: at(65_000) };
    let rate = there.capacity().expect("a trace has a mean rate");
    println!("{file}: {rate} on average");
    let run = |kinds: &[Kind], seed: u64| {
        let mut b = Bottleneck::new(&there, &back, window, seed);
        for (i, &kind) in kinds.iter().enumerate() {
            // Odd seeds: the first was there before.
            let order = if seed % 2 == 1 { i } else { kinds.len() - 1 - i };
            b.add(kind, QuicLoad::Bulk, at(2000 * order as u64));
        }
        b.run();
        b
    };
    let all = [("model", Kind::Model), ("QUIC cubic", Kind::Quic(QuicCongestion::Cubic)), ("QUIC BBRv1", Kind::Quic(QuicCongestion::Bbr))];
    for (name, kind) in all {
        print!("  {name:10} alone: share of the opportunities, queue p95:");
        for seed in 1..=seeds {
            let b = run(&[kind], seed);
            let trace = there.trace.as_ref().expect("it was set");
            let opportunities = trace.opportunities(window.from, window.until) as f64 * f64::from(there.mtu);
            let carried = b.world.pipe_stats(b.pipes.0).useful_bytes as f64;
            print!("  {:.1} % {:.0} ms", 100.0 * carried / opportunities, b.queue_p95_ms());
        }
        println!();
    }
    for (name, other) in OTHERS {
        print!("  model beside QUIC {name}: share, sum, queue p95:");
        for seed in 1..=seeds {
            let b = run(&[Kind::Model, Kind::Quic(other)], seed);
            let (ours, theirs) = (b.mbit(0), b.mbit(1));
            print!("  {:.1} % of {:.1} Mbit/s {:.0} ms", 100.0 * ours / (ours + theirs), ours + theirs, b.queue_p95_ms());
        }
        println!();
    }
}

/// Time that fresh QUIC connections take for 100 KB, one every 500 ms, beside one bulk flow of each kind and beside none.
fn short(seeds: u64) {
    const BYTES: u64 = 100_000;
    const FLOWS: u64 = 60;
    for (rate, delay) in [(20, 10), (20, 40), (100, 10), (100, 40)] {
        let spec = link(&format!("rate={rate}mbit,delay={delay}ms"));
        for (name, bulk) in [
            ("nobody", None),
            ("model", Some(Kind::Model)),
            ("QUIC cubic", Some(Kind::Quic(QuicCongestion::Cubic))),
            ("QUIC BBRv1", Some(Kind::Quic(QuicCongestion::Bbr))),
        ] {
            let (mut took, mut unfinished, mut bulk_mbit) = (Histogram::default(), 0, 0.0);
            for seed in 1..=seeds {
                let window = Window { from: at(10_000), until: at(10_000 + 500 * FLOWS + 10_000) };
                let mut b = Bottleneck::new(&spec, &spec, window, seed);
                if let Some(kind) = bulk {
                    b.add(kind, QuicLoad::Bulk, Time::ZERO);
                }
                let flows: Vec<(usize, Time)> = (0..FLOWS)
                    .map(|i| {
                        let begins = at(10_000 + 500 * i);
                        (b.add(Kind::Quic(QuicCongestion::Cubic), QuicLoad::Once(BYTES), begins), begins)
                    })
                    .collect();
                b.run();
                for (flow, begins) in flows {
                    let meter = b.meter(flow);
                    match meter.last_byte {
                        Some(last) if meter.bytes == BYTES => took.record(last.since(begins)),
                        _ => unfinished += 1,
                    }
                }
                bulk_mbit += bulk.map_or(0.0, |_| b.mbit(0)) / seeds as f64;
            }
            println!(
                "{rate} Mbit/s, RTT {} ms, beside {name:10}: median {:4.0}, p95 {:4.0}, longest {:4.0} ms, {unfinished} unfinished; bulk {bulk_mbit:.1} Mbit/s",
                2 * delay,
                ms(took.quantile(0.5)),
                ms(took.quantile(0.95)),
                ms(took.max())
            );
        }
    }
}

/// 30 frames of 20,833 bytes a second (5 Mbit/s), RTT 10 ms: how long a frame takes. A buffer that holds more than the longest never empties.
fn video(seeds: u64) {
    let interval = Duration::from_micros(33_333);
    for loss in ["2%", "10%"] {
        let spec = link(&format!("rate=100mbit,delay=5ms,loss={loss}"));
        let back = link("rate=100mbit,delay=5ms");
        for (name, kind) in [
            ("model", Kind::Model),
            ("QUIC cubic", Kind::Quic(QuicCongestion::Cubic)),
            ("QUIC reno", Kind::Quic(QuicCongestion::Reno)),
            ("QUIC BBRv1", Kind::Quic(QuicCongestion::Bbr)),
        ] {
            let (mut took, mut due) = (Histogram::default(), 0);
            for seed in 1..=seeds {
                let window = Window { from: at(5000), until: at(125_000) };
                let mut b = Bottleneck::new(&spec, &back, window, seed);
                b.add(kind, QuicLoad::Frames { size: 20_833, from: at(1000), interval }, Time::ZERO);
                b.run();
                took.merge(&b.meter(0).one_way);
                due += 3600;
            }
            println!(
                "{loss}, {name:10}: {} of {due} frames, median {:.1}, p95 {:.1}, p99.9 {:.1}, longest {:.1} ms",
                took.count(),
                ms(took.quantile(0.5)),
                ms(took.quantile(0.95)),
                ms(took.quantile(0.999)),
                ms(took.max())
            );
        }
    }
}

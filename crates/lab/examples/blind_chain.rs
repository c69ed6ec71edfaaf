//! A stream over a chain of links without any feedback (docs/spec/blind.md), in virtual time:
//! `cargo run --release -p noctule-lab --example blind_chain -- --loss 0,5,10,15,20`.
//!
//! Prints, for each loss, the goodput, its share of the limit C(1-p)·1472/1500, and what adaptive recoding can reach at best (the exact chain of ranks).

use std::net::{IpAddr, SocketAddr};
use std::time::Duration;

use clap::Parser;
use noctule_lab::link::LinkSpec;
use noctule_lab::sim::{Host, HostId, WireOverhead, World};
use noctule_proto::blind::{Plan, Relay, RelayConfig, Shape, Sink, Source, SourceConfig, StreamName};
use noctule_proto::node::Transmit;
use noctule_proto::units::{Bandwidth, Ecn, Probability, Time};

#[derive(Parser)]
struct Flags {
    /// Links in a row.
    #[arg(long, default_value_t = 6)]
    hops: usize,
    /// Of each link, Mbit/s of IP packets.
    #[arg(long, default_value_t = 300.0)]
    rate: f64,
    /// Of each link, one way.
    #[arg(long, default_value_t = 1)]
    delay_ms: u64,
    /// Percent lost on each link: a list.
    #[arg(long, value_delimiter = ',', default_value = "0,5,10,15,20")]
    loss: Vec<f64>,
    /// How links lose: independent, or `gilbert:B` for bursts of B packets on average.
    #[arg(long, default_value = "independent")]
    loss_model: String,
    /// Of the whole run.
    #[arg(long, default_value_t = 36)]
    seconds: u64,
    /// Not counted.
    #[arg(long, default_value_t = 6)]
    warmup: u64,
    /// Packets of a batch.
    #[arg(long, default_value_t = 32)]
    batch: u8,
    /// Packets of a block.
    #[arg(long, default_value_t = 4096)]
    block: u16,
    /// Batches that take turns.
    #[arg(long, default_value_t = 1)]
    depth: u8,
    #[arg(long, value_delimiter = ',', default_value = "7")]
    seed: Vec<u64>,
}

const STREAM: StreamName = StreamName(*b"lab!");
const KEY: [u8; 32] = [5; 32];

enum Role {
    Source(Box<Source>),
    Relay(Box<Relay>),
    Sink(Box<Sink>),
}

struct BlindHost {
    role: Role,
    to: Option<SocketAddr>,
    /// Source: messages pushed. Sink: bytes read in the window, and wrong ones.
    pushed: u64,
    bytes: u64,
    wrong: u64,
    window: (Time, Time),
    len: usize,
}

fn message(number: u64, len: usize) -> Vec<u8> {
    let mut state = number;
    let words = len.div_ceil(8);
    let mut out = Vec::with_capacity(words * 8);
    for _ in 0..words {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        out.extend_from_slice(&state.to_le_bytes());
    }
    out.truncate(len);
    out
}

impl BlindHost {
    fn fill(&mut self) {
        if let Role::Source(source) = &mut self.role {
            while source.room() > 0 && source.push(message(self.pushed, self.len)).is_ok() {
                self.pushed += 1;
            }
        }
    }
}

impl Host for BlindHost {
    fn handle_datagram(&mut self, now: Time, from: SocketAddr, _: IpAddr, _: Ecn, data: &mut [u8]) {
        match &mut self.role {
            Role::Source(_) => {}
            Role::Relay(relay) => relay.handle_datagram(now, from.ip(), data),
            Role::Sink(sink) => {
                sink.handle_datagram(data);
                while let Some((number, data)) = sink.poll_message() {
                    self.wrong += u64::from(data != message(number, self.len));
                    if now >= self.window.0 && now < self.window.1 {
                        self.bytes += data.len() as u64;
                    }
                }
            }
        }
    }

    fn handle_timeout(&mut self, now: Time) {
        if let Role::Relay(relay) = &mut self.role {
            relay.handle_timeout(now);
        }
    }

    fn poll_transmit(&mut self, now: Time, buf: &mut Vec<u8>) -> Option<Transmit> {
        self.fill();
        let is_sent = match &mut self.role {
            Role::Source(source) => source.poll_transmit(now, buf),
            Role::Relay(relay) => relay.poll_transmit(now, buf),
            Role::Sink(_) => false,
        };
        let remote = self.to.filter(|_| is_sent)?;
        Some(Transmit { remote, local: None, ecn: Ecn::NotEct, len: buf.len(), segment_size: None })
    }

    fn poll_timeout(&self) -> Option<Time> {
        match &self.role {
            Role::Source(source) => source.poll_timeout(),
            Role::Relay(relay) => relay.poll_timeout(),
            Role::Sink(_) => None,
        }
    }

    fn pump(&mut self, _: Time) -> bool {
        false
    }
}

fn run(flags: &Flags, percent: f64, seed: u64) -> Result<(), Box<dyn std::error::Error>> {
    let loss = Probability::new(percent / 100.0);
    let symbol = 1472 - 12 - u16::from(flags.batch);
    let shape = Shape::new(flags.block, flags.batch, flags.depth, symbol)?;
    let plan = Plan::new(&shape, &vec![loss; flags.hops])?;
    let rate = Bandwidth::from_mbit(flags.rate * 0.999);
    let window = (Time::from_millis(flags.warmup * 1000), Time::from_millis(flags.seconds * 1000));
    let address = |node: usize| SocketAddr::from(([10, 0, 0, 1 + node as u8], 4117));
    let mut world = World::new(WireOverhead(28));
    let mut hosts: Vec<HostId> = Vec::new();
    for node in 0..=flags.hops {
        let random = [node as u8 ^ seed as u8; 32];
        let role = if node == 0 {
            Role::Source(Box::new(Source::new(SourceConfig { stream: STREAM, shape, plan, key: KEY, rate, patience: None }, random)?))
        } else if node == flags.hops {
            Role::Sink(Box::new(Sink::new(STREAM, shape, &KEY)?))
        } else {
            Role::Relay(Box::new(Relay::new(RelayConfig::new(rate, loss), random)))
        };
        let to = (node < flags.hops).then(|| address(node + 1));
        hosts.push(world.add_host(address(node), BlindHost { role, to, pushed: 0, bytes: 0, wrong: 0, window, len: shape.max_message() }));
    }
    for hop in 0..flags.hops {
        let mut spec = LinkSpec::default();
        let model = if flags.loss_model == "independent" { String::new() } else { format!(",loss-model={}", flags.loss_model) };
        spec.set_list(&format!("rate={}mbit,delay={}ms,loss={percent}%{model}", flags.rate, flags.delay_ms))?;
        spec.bdp_rtt = Some(Duration::from_millis(50));
        let pipe = world.add_pipe(&spec, 1000 * seed + hop as u64)?;
        world.add_route(hosts[hop], hosts[hop + 1], pipe);
    }
    world.with_host(hosts[0], |host, _| host.fill())?;
    world.run_until(window.1)?;
    let last = world.host(hosts[flags.hops]);
    let Role::Sink(sink) = &last.role else { return Ok(()) };
    let goodput = last.bytes as f64 * 8e-6 / (flags.seconds - flags.warmup) as f64;
    let limit = flags.rate * loss.complement().get() * 1472.0 / 1500.0;
    let stats = sink.stats();
    let recoded: Vec<u64> = hosts
        .iter()
        .filter_map(|id| if let Role::Relay(relay) = &world.host(*id).role { Some(relay.stats().recoded) } else { None })
        .collect();
    println!(
        "| {percent} % | {seed} | {goodput:.1} | {:.1} % | {:.1} % | {:.3} | {} of {} | {} | {recoded:?} |",
        100.0 * goodput / limit,
        100.0 * plan.rate().get() / loss.complement().get(),
        plan.redundancy(&shape),
        stats.given_up,
        stats.blocks + stats.given_up,
        last.wrong,
    );
    Ok(())
}

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let flags = Flags::parse();
    println!(
        "| loss per link | seed | Mbit/s | share of the limit | adaptive recoding, at best | sent per packet | blocks given up | wrong | recoded by relays |"
    );
    println!("|---|---|---|---|---|---|---|---|---|");
    for percent in &flags.loss {
        for seed in &flags.seed {
            run(&flags, *percent, *seed)?;
        }
    }
    Ok(())
}

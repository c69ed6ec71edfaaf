//! Runs of a test: every round of its topology with every protocol and every tool, as scenarios of the laboratory, or why not.

use std::time::Duration;

use noctule_proto::options::Mode;

use super::protocols::{Contender, Protocol};
use super::suite::{Class, Test, Tool};
use super::topology::Shape;
use super::{Note, Notes};
use crate::link::{LinkSpec, Period, SpecError};
use crate::net::run::Peer;
use crate::scenario::{Hop, ModeName, Relays, Scenario, Sender, Workload};
use crate::sim::QuicCongestion;

/// A link as fast as nothing else here: what shapes is the token bucket before it.
const WIRE: &str = "100gbit";
/// UDP datagrams of iperf3 over an MTU of 1500, the headers of a node's packets left room.
pub const UDP_BYTES: usize = 1300;
/// Bytes of an ICMP echo.
const PING_BYTES: usize = 64;
/// Lifetime of messages of btp: Oasis' tools know none, so they get what `noctule perf` gives.
const LIFETIME: Period = Period::from_millis(500);

/// Where it runs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Place {
    /// In virtual time.
    Simulator,
    /// On kernels.
    Namespaces,
}

/// One run.
#[derive(Debug, Clone)]
pub struct Run {
    /// `topology-N`.
    pub round: usize,
    /// What is tested.
    pub protocol: Protocol,
    /// By which tool.
    pub tool: Tool,
    /// What to run, or why not.
    pub what: Result<What, String>,
}

/// A run as the laboratory has it.
#[derive(Debug, Clone)]
pub struct What {
    /// For either.
    pub scenario: Scenario,
    /// On namespaces.
    pub peer: Peer,
    /// What sends, in words.
    pub sender: String,
}

/// Every run of a test, in the order of Oasis: round by round, protocol by protocol, tool by tool.
pub fn runs(test: &Test, place: Place, seed: u64, notes: &mut Notes) -> Result<Vec<Run>, SpecError> {
    say_differences(test, place, notes);
    let mut runs = Vec::new();
    for (round, shapes) in test.topology.rounds.iter().enumerate() {
        for protocol in &test.protocols {
            for tool in &test.tools {
                let hops = hops(test, shapes, tool)?;
                let what = match hops {
                    None => Err(format!("no route leads from host {} to host {}", tool.client, tool.server)),
                    Some(hops) => what(test, protocol, tool, hops, place, seed),
                };
                runs.push(Run { round, protocol: protocol.clone(), tool: tool.clone(), what });
            }
        }
    }
    Ok(runs)
}

/// What is not as in Oasis, once per test.
fn say_differences(test: &Test, place: Place, notes: &mut Notes) {
    let mut say = |is_so: bool, text: &str| {
        if is_so {
            notes.push(Note::text(format!("test {}: {text}", test.name)));
        }
    };
    let has = |class: Class| test.tools.iter().any(|tool| tool.class == class);
    let contender =
        |of: &dyn Fn(&Contender) -> bool| test.protocols.iter().any(|protocol| protocol.contender().is_ok_and(|contender| of(&contender)));
    let ours = contender(&|contender| matches!(contender, Contender::Btp | Contender::Brtp));
    let tcp = contender(&|contender| matches!(contender, Contender::Tcp(_)));
    say(has(Class::Ping), "Oasis' analysis of `ping` fails always; here it is measured, as messages of 64 bytes");
    say(
        ours && (has(Class::Iperf) || has(Class::Rtt)),
        "btp and brtp carry the data themselves, without the TCP that Oasis runs inside its TUN device",
    );
    say(
        ours && test.protocols.iter().any(|protocol| protocol.name.contains("brtp_proxy")),
        "brtp_proxy is brtp from the first to the last host, without the TCP at its two ends",
    );
    say(
        tcp && place == Place::Simulator,
        "TCP is stood for by QUIC's machine with the congestion control of that name; --net runs the kernel's",
    );
    say(test.protocols.iter().any(|protocol| protocol.name == "tcp"), "a bare `tcp` runs CUBIC");
    say(!test.topology.is_linear && ours, "only the hosts on the route of a tool take part, no detours at the same time");
    say(test.tools.iter().any(|tool| tool.is_udp), "each datagram of UDP is echoed, and both directions are counted");
}

/// The links from the client to the server, each in the direction of the data.
fn hops(test: &Test, shapes: &[Shape], tool: &Tool) -> Result<Option<Vec<Hop>>, SpecError> {
    let Some(route) = test.topology.route(tool.client, tool.server) else { return Ok(None) };
    let hop = |(link, is_up): (usize, bool)| -> Result<Hop, SpecError> {
        let spec = |direction: usize| link_spec(&shapes[link], direction);
        let (up, down) = (spec(0)?, spec(1)?);
        Ok(if is_up { Hop { forward: up, reverse: down } } else { Hop { forward: down, reverse: up } })
    };
    route.into_iter().map(hop).collect::<Result<Vec<_>, _>>().map(Some)
}

/// One direction as Oasis shapes it: `tbf rate R burst R*1.25kb latency 1ms` where packets leave, netem with loss, delay and normal jitter
/// where they arrive. A kb of tc is 1024 bytes (tc(8), PARAMETERS), so that the bucket holds 10.24 ms, and 1 ms more may wait.
pub fn link_spec(shape: &Shape, direction: usize) -> Result<LinkSpec, SpecError> {
    let rate = shape.rate[direction];
    let bucket = (rate * 1280.0).round().max(1600.0);
    let mut spec = LinkSpec::default();
    spec.set("rate", WIRE)?;
    spec.set("bucket", &format!("{rate}mbit:{bucket}B"))?;
    spec.set("queue", &format!("{}B", bucket + (rate * 125.0).round()))?;
    spec.set("delay", &format!("{}ms", shape.latency[direction]))?;
    spec.set("loss", &format!("{}%", shape.loss[direction]))?;
    if shape.jitter[direction] > 0.0 && shape.latency[direction] > 0.0 {
        spec.set("jitter", &format!("{}ms", shape.jitter[direction]))?;
        spec.set("jitter-dist", "normal")?;
        spec.set("jitter-reorder", "true")?;
    }
    Ok(spec)
}

fn what(test: &Test, protocol: &Protocol, tool: &Tool, hops: Vec<Hop>, place: Place, seed: u64) -> Result<What, String> {
    let contender = protocol.contender()?;
    let name = &protocol.name;
    if !test.competition.is_empty() {
        return Err("competing flows that begin and end in mid-run: not here yet, and without them it is another test".to_owned());
    }
    if tool.parallel > 1 {
        return Err(format!("{} streams at the same time: not here yet", tool.parallel));
    }
    if tool.is_udp && !["btp", "brtp", "udp"].contains(&name.as_str()) {
        return Err("UDP tools go with protocols named btp, brtp or udp; Oasis fails this test".to_owned());
    }
    let is_next = name.contains("-next");
    if is_next != (tool.class == Class::BatsIperf) {
        return Err(
            if is_next { "names with -next go with bats_iperf only" } else { "bats_iperf goes with names with -next only" }.to_owned()
        );
    }
    let (mode, tcp) = match &contender {
        Contender::Brtp => (Mode::Brtp, None),
        Contender::Btp => (Mode::Btp, None),
        Contender::Tcp(congestion) => (Mode::Brtp, Some(*congestion)),
        Contender::Program(bin) => {
            return Err(format!("`{bin}` is a real program, which this laboratory does not start from an Oasis file yet"));
        }
    };
    let bulk = Period(Duration::from_secs_f64(tool.interval * f64::from(tool.count)));
    let messages = |count: u32, size: usize| {
        let interval = Duration::from_secs_f64(tool.interval);
        (Workload::Messages { interval: Period(interval), size }, Period((interval * count).max(Duration::from_secs(2))))
    };
    let (workload, seconds) = match tool.class {
        Class::Iperf if tool.is_udp => {
            let interval = Duration::from_secs_f64(UDP_BYTES as f64 * 8e-6 / tool.bitrate);
            (Workload::Messages { interval: Period(interval), size: UDP_BYTES }, bulk)
        }
        Class::Iperf | Class::BatsIperf if tool.bitrate > 0.0 => {
            return Err(format!("TCP held to {} Mbit/s by iperf3 -b: not here yet", tool.bitrate));
        }
        Class::Iperf | Class::BatsIperf => (Workload::Bulk, bulk),
        Class::Rtt => messages(tool.packets.0, tool.packets.1),
        Class::Ping => messages(tool.count, PING_BYTES),
        Class::Scp if place == Place::Simulator && mode == Mode::Brtp && tcp.is_none() => {
            (Workload::Transfer { size: u64::from(tool.file_size) << 20 }, Period(Duration::from_secs(3600)))
        }
        Class::Scp => return Err("scp: in the simulator with brtp only".to_owned()),
        Class::Program => return Err(format!("the program `{}`: real programs are not started from an Oasis file yet", tool.name)),
    };
    let mut scenario = Scenario::new(hops);
    scenario.workload = workload;
    scenario.mode = ModeName(mode);
    scenario.lifetime = (mode == Mode::Btp).then_some(LIFETIME);
    scenario.seed = seed;
    // Oasis counts from the first moment on.
    scenario.set_default_length(Some(seconds), Some(Period::ZERO));
    let mut peer = Peer::Noctule;
    let mut sender = format!("noctule {}", scenario.mode);
    if let Some(congestion) = tcp {
        scenario.network.relays = Relays::Ip;
        peer = match congestion {
            QuicCongestion::Cubic => Peer::TcpCubic,
            QuicCongestion::Reno => Peer::TcpReno,
            QuicCongestion::Bbr => Peer::TcpBbr,
        };
        if place == Place::Simulator {
            if workload != Workload::Bulk {
                return Err(format!("{} over TCP: with --net only, the simulator has no TCP", tool.name));
            }
            scenario.senders = vec![Sender::Quic(congestion)];
            sender = congestion.to_string();
        } else {
            sender = format!("kernel TCP {}", congestion.to_string().trim_start_matches("quic-"));
        }
    }
    scenario.check().map_err(|e| e.to_string())?;
    Ok(What { scenario, peer, sender })
}

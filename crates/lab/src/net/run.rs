//! `noctule-lab net`: the run that the flags of `noctule-lab sim` describe, on real kernels.

use std::fmt;
use std::io;
use std::time::Duration;

use serde::Serialize;

use super::capture::Capture;
use super::chain::{BackendChoice, Chain};
use super::contender_path::ContenderPath;
use super::contest::{Account, Conditions, ContestError, Course};
use super::emulator::{Options, Tolerance};
use super::program::Made;
use super::tcp::{self, Payload, Transfer};
use super::tcp_proxy::Place;
use super::timeline::Timeline;
use super::watch::Watch;
use super::{curl, iperf3, kcptun, perf, ping, quic, srt, uftp};
use crate::capture::Folder;
use crate::report::{Configured, LinkCounts, REPORT_VERSION, Times, round};
use crate::scenario::{Congestion, Limits, ModeName, Relays, Scenario, Workload};
use crate::sim::QuicCongestion;
use crate::sweep::samples::SampleFile;
use noctule_proto::options::Mode;

/// The sender.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, clap::ValueEnum, Serialize, serde::Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Peer {
    /// `noctule perf`.
    #[default]
    Noctule,
    /// The kernel's TCP with CUBIC.
    TcpCubic,
    /// The kernel's TCP with its version of BBR.
    TcpBbr,
    /// The kernel's TCP with NewReno.
    TcpReno,
    /// iperf3 with TCP and the kernel's own congestion control.
    Iperf3,
    /// iperf3 with UDP at 85 % of the path's limit.
    Iperf3Udp,
    /// curl, from a server on the first host.
    Curl,
    /// QUIC by the library quinn, with its BBR.
    QuinnBbr,
    /// QUIC by the library quinn, with CUBIC, its default.
    QuinnCubic,
    /// kcptun: a TCP connection over KCP with Reed-Solomon.
    Kcptun,
    /// SRT's live stream at 95 % of the path's limit, its rate and latency set by hand.
    Srt,
    /// SRT's transfer of a file.
    SrtFile,
    /// UFTP: a file at a rate that is set by hand.
    Uftp,
}

impl Peer {
    /// The congestion control of kernel TCP, if that is what sends.
    pub fn tcp(self) -> Option<tcp::Congestion> {
        match self {
            Self::TcpCubic => Some(tcp::Congestion::Cubic),
            Self::TcpBbr => Some(tcp::Congestion::Bbr),
            Self::TcpReno => Some(tcp::Congestion::Reno),
            Self::Noctule | Self::Iperf3 | Self::Iperf3Udp | Self::Curl => None,
            Self::QuinnBbr | Self::QuinnCubic | Self::Kcptun | Self::Srt | Self::SrtFile | Self::Uftp => None,
        }
    }

    /// What it consists of.
    fn made(self) -> Made {
        match self {
            Self::Noctule => Made::Noctule,
            Self::TcpCubic | Self::TcpBbr | Self::TcpReno => Made::Kernel,
            Self::Iperf3 | Self::Iperf3Udp => Made::Of(&iperf3::PROGRAMS),
            Self::Curl => Made::Of(&curl::PROGRAMS),
            Self::QuinnBbr | Self::QuinnCubic => Made::Library(quic::LIBRARY),
            Self::Kcptun => Made::Of(&kcptun::PROGRAMS),
            Self::Srt => Made::Of(&srt::LIVE),
            Self::SrtFile => Made::Of(&srt::FILE),
            Self::Uftp => Made::Of(&uftp::PROGRAMS),
        }
    }

    /// Whether the kernel's TCP carries it, over the links or as far as a program of its own.
    fn uses_tcp(self) -> bool {
        !matches!(self, Self::Noctule | Self::QuinnBbr | Self::QuinnCubic | Self::Srt | Self::SrtFile | Self::Uftp)
    }

    /// Whether its packets and its rate are set by the links, which a tunnel over them does not have.
    fn is_set_by_the_links(self) -> bool {
        matches!(self, Self::QuinnBbr | Self::QuinnCubic | Self::Kcptun | Self::Srt | Self::SrtFile | Self::Uftp)
    }
}

impl fmt::Display for Peer {
    /// As `--peer` has it.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(clap::ValueEnum::to_possible_value(self).as_ref().map_or("", |value| value.get_name()))
    }
}

/// How to run it here.
#[derive(Debug, Clone, Copy)]
pub struct Settings {
    /// The sender.
    pub peer: Peer,
    /// What emulates the links.
    pub backend: BackendChoice,
    /// How late the emulator may be.
    pub tolerance: Tolerance,
}

/// One run, in the fields of [`crate::report::Report`] as far as this back end can see them; null otherwise.
#[derive(Debug, Clone, Serialize)]
pub struct NetReport {
    /// [`REPORT_VERSION`].
    pub report_version: u32,
    /// Back end: `net`.
    pub backend: &'static str,
    /// The sender.
    pub peer: Peer,
    /// Its version, as it says it itself; the kernel's where that sends.
    pub peer_version: String,
    /// The run as configured.
    pub scenario: Configured,
    /// Bytes read by the receiving application per second after the warm-up.
    pub goodput_mbit: f64,
    /// From the configuration (P24).
    pub nominal_limit_mbit: Option<f64>,
    /// From the bytes that the link delivered (P24).
    pub realised_limit_mbit: f64,
    /// Goodput over nominal limit after the warm-up.
    pub share: Option<f64>,
    /// The same, the start included.
    pub share_whole: Option<f64>,
    /// Goodput over realised limit.
    pub share_realised: Option<f64>,
    /// Bytes read by the receiving application, the warm-up included.
    pub bytes_delivered: u64,
    /// Bytes that differ from what was sent; null where the contender itself checks and says nothing.
    pub bytes_wrong: Option<u64>,
    /// IP bytes put on each link, in the direction of the data, per application byte read.
    pub wire_per_byte: Vec<Option<f64>>,
    /// IP bytes that came back over each link per application byte read.
    pub reverse_wire_per_byte: Vec<Option<f64>>,
    /// 95th percentile of the queueing delay at the slowest bottleneck; null with netem.
    pub queue_ms_p95: Option<f64>,
    /// Round trips of messages, those of the warm-up included.
    pub message_rtt_ms: Option<Times>,
    /// Messages without an answer, or datagrams that did not arrive.
    pub residual_loss: Option<f64>,
    /// Peak of the node's own accounting; null where no node runs or it does not say.
    pub memory_peak_bytes: Option<u64>,
    /// Goodput in each second of the run.
    pub goodput_mbit_by_second: Vec<f64>,
    /// Each emulated link, direction of the data and back; empty with netem.
    pub links: Vec<[LinkCounts; 2]>,
    /// What the contender itself reported.
    pub contender: Option<serde_json::Value>,
    /// Where it ran and how well.
    pub conditions: Conditions,
}

/// Arrivals at the receiving application.
pub(super) struct Arrivals {
    pub(super) timeline: Timeline,
    pub(super) bytes_wrong: Option<u64>,
    pub(super) memory_peak_bytes: Option<u64>,
    pub(super) message_rtt_ms: Option<Times>,
    pub(super) residual_loss: Option<f64>,
    pub(super) contender: Option<serde_json::Value>,
}

impl Arrivals {
    /// Of which nothing else is known.
    pub(super) fn of(timeline: Timeline) -> Self {
        Self { timeline, bytes_wrong: None, memory_peak_bytes: None, message_rtt_ms: None, residual_loss: None, contender: None }
    }
}

/// Runs a scenario.
pub fn run(scenario: &Scenario, settings: &Settings) -> Result<NetReport, ContestError> {
    run_kept(scenario, settings, Keep::default())
}

/// What is kept of a run besides its report.
#[derive(Debug, Default)]
pub struct Keep {
    /// What the links do, while it goes on.
    pub samples: Option<SampleFile>,
    /// What crosses the links, and what noctule traces.
    pub capture: Option<Folder>,
}

/// The same, and more of it is kept. A capture is there also if the run fails.
pub fn run_kept(scenario: &Scenario, settings: &Settings, keep: Keep) -> Result<NetReport, ContestError> {
    refuse_unsupported(scenario, settings.peer)?;
    if let Some(missing) = settings.peer.made().missing() {
        return Err(ContestError::Unsupported(format!("{missing}, or name another --peer")));
    }
    let chain = Chain::build(&scenario.hops, scenario.ip, settings.backend, scenario.seed)?;
    let mut conditions = Conditions::of(chain.backend(), chain.privilege());
    // Asked on a host of the run, which nothing leaves.
    let version = settings.peer.made().version(|program| chain.first().command(program))?;
    if settings.peer.uses_tcp() {
        conditions.tcp_buffer_bytes = Some(tune_tcp(&chain, scenario)?);
    }
    let capture = keep.capture.map(|folder| Capture::start(&chain, folder)).transpose()?;
    let course = Course::start(chain, Options::default())?;
    // Of other contenders there is nothing to trace.
    let traced = capture.as_ref().filter(|_| settings.peer == Peer::Noctule);
    let ran = ContenderPath::start(course.chain(), scenario, traced)
        .and_then(|path| with_warmup(&course, scenario, keep.samples, |started| contend(&path, scenario, settings.peer, started)));
    let captured = capture.map_or(Ok(()), Capture::finish);
    let (arrivals, accounts) = ran?;
    captured?;
    conditions.emulator = course.finish(&settings.tolerance)?;
    report(scenario, (settings.peer, version), &arrivals, &accounts, conditions)
}

/// Lets the contender send.
fn contend(path: &ContenderPath<'_>, scenario: &Scenario, peer: Peer, started: &dyn Fn()) -> Result<Arrivals, ContestError> {
    match (peer, peer.tcp(), scenario.workload) {
        (_, congestion, Workload::Messages { .. }) => ping::run(path, scenario, congestion, started),
        (_, Some(congestion), _) => bulk_tcp(path, scenario, congestion, started),
        (Peer::Iperf3 | Peer::Iperf3Udp, ..) => iperf3::run(path, scenario, peer == Peer::Iperf3Udp, started),
        (Peer::Curl, ..) => curl::run(path, scenario, started),
        (Peer::QuinnBbr, ..) => quic::run(path, scenario, QuicCongestion::Bbr, started),
        (Peer::QuinnCubic, ..) => quic::run(path, scenario, QuicCongestion::Cubic, started),
        (Peer::Kcptun, ..) => kcptun::run(path, scenario, started),
        (Peer::Srt, ..) => srt::run_live(path, scenario, started),
        (Peer::SrtFile, ..) => srt::run_file(path, scenario, started),
        (Peer::Uftp, ..) => uftp::run(path, scenario, started),
        _ => perf::run(path, scenario, started),
    }
}

/// What a flag cannot do here is an error, never ignored.
pub(crate) fn refuse_unsupported(scenario: &Scenario, peer: Peer) -> Result<(), ContestError> {
    let ours = peer == Peer::Noctule;
    // Every field by name: a new one does not compile until it is decided here.
    let Scenario {
        hops: _,
        network,
        ip: _,
        mode,
        cc,
        lifetime: _,
        unordered,
        pairs,
        workload,
        both,
        seconds: _,
        warmup: _,
        seed: _,
        flow_memory,
        connect_timeout,
        batch_size,
        no_retransmit,
        epoch_packets,
        ack_every,
        stall,
        senders,
    } = scenario;
    let relays = network.relays;
    let is_bulk = matches!(workload, Workload::Bulk);
    let has_messages = matches!(workload, Workload::Messages { .. }) && (ours || peer.tcp().is_some());
    let simulator_only = [
        (!is_bulk && !has_messages, "workloads other than bulk, and messages with a program of others"),
        (*both, "--both"),
        (*pairs > 1, "--pairs"),
        (flow_memory.is_some(), "--flow-memory"),
        (epoch_packets.is_some(), "--epoch-packets"),
        (ack_every.is_some(), "--ack-every"),
        (connect_timeout.is_some(), "--connect-timeout"),
        (batch_size.is_some(), "--batch-size"),
        (no_retransmit.is_some(), "--no-retransmit"),
        (*unordered, "--unordered"),
        (stall.is_some(), "--stall"),
        (!senders.is_empty(), "--senders"),
    ]
    .map(|(given, flag)| (given, format!("{flag}: in the simulator only (noctule-lab sim)")));
    let contender_only = [
        (!ours && *mode != ModeName(Mode::Brtp), "--mode is noctule's; TCP has one mode"),
        (
            peer.is_set_by_the_links() && relays == Relays::Tunnel,
            "--relays tunnel: this contender is set by rate and MTU of the links; name noctule, tcp-*, iperf3 or curl",
        ),
        (!ours && relays != Relays::Tunnel && *cc != Congestion::Model, "--cc is noctule's; TCP's congestion control is named by --peer"),
        (!network.is_chain(), "a topology other than a chain with one flow: in the simulator only"),
        (
            relays == Relays::Proxy && (peer.tcp().is_none() || !is_bulk),
            "--relays proxy: TCP proxies pass on a TCP bulk transfer; name it by --peer tcp-bbr",
        ),
    ]
    .map(|(given, text)| (given, text.to_owned()));
    match simulator_only.into_iter().chain(contender_only).find(|(given, _)| *given) {
        Some((_, text)) => Err(ContestError::Unsupported(text)),
        None => Ok(()),
    }
}

/// Buffers by the bandwidth-delay product of the path, queue included.
pub(crate) fn tune_tcp(chain: &Chain, scenario: &Scenario) -> io::Result<u64> {
    let bdp = scenario.slowest().map_or(64 << 20, |rate| {
        let round_trip = scenario.base_rtt() + Duration::from_millis(10);
        rate.bytes_in(round_trip)
    });
    let bytes = tcp::buffer_bytes(bdp);
    for host in chain.hosts() {
        tcp::tune(host, bytes)?;
    }
    Ok(bytes)
}

/// Longest file that is sent.
const MOST_FILE: u64 = 4 << 30;

/// As many bytes as the path carries at most in the run, so that the file of a contender that sends one does not end before it.
pub(super) fn file_bytes(scenario: &Scenario, contender: &str) -> Result<u64, ContestError> {
    // The mean of the whole run: what comes after the warm-up may be less.
    let bytes = Limits::of(scenario).forward_whole / 8.0 * scenario.seconds.0.as_secs_f64();
    if !bytes.is_finite() {
        return Err(ContestError::Unsupported(format!("{contender} sends a file as long as the path's limit: give the links a rate")));
    }
    if bytes > MOST_FILE as f64 {
        return Err(ContestError::Unsupported(format!(
            "{contender} would send a file of {:.1} GB, beyond 4 GiB: choose a shorter run or a lower rate",
            bytes * 1e-9
        )));
    }
    Ok((bytes as u64).max(1))
}

/// What the links carried: in the part of the run that is counted, and in all of it.
struct Accounts {
    counted: Account,
    whole: Account,
}

/// Runs `work`, which calls its second argument when the contender starts. The account that counts begins with the
/// end of the warm-up and ends with the scenario, whatever the contender still has to drain then.
fn with_warmup(
    course: &Course,
    scenario: &Scenario,
    samples: Option<SampleFile>,
    work: impl FnOnce(&dyn Fn()) -> Result<Arrivals, ContestError>,
) -> Result<(Arrivals, Accounts), ContestError> {
    let (events, heard) = std::sync::mpsc::channel::<()>();
    std::thread::scope(|scope| {
        let accounting = scope.spawn(move || -> io::Result<Account> {
            // The first event is the start.
            if heard.recv().is_ok() {
                let mut watch = Watch::new(course, scenario, samples);
                if watch.wait(&heard, scenario.warmup.0)? {
                    course.mark()?;
                    watch.wait(&heard, scenario.seconds.0 - scenario.warmup.0)?;
                }
            }
            course.account(scenario)
        });
        let started = || {
            // Nobody listens only when the account has failed, which is reported below.
            let _ = events.send(());
        };
        let arrivals = work(&started);
        drop(events);
        let counted = accounting.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic));
        let arrivals = arrivals?;
        Ok((arrivals, Accounts { counted: counted?, whole: course.account(scenario)? }))
    })
}

fn bulk_tcp(
    path: &ContenderPath<'_>,
    scenario: &Scenario,
    congestion: tcp::Congestion,
    started: &dyn Fn(),
) -> Result<Arrivals, ContestError> {
    let chain = path.chain;
    let proxies = match scenario.network.relays {
        Relays::Proxy => chain.between().map(|(host, address)| Place { host: host.clone(), address }).collect(),
        Relays::Recode | Relays::Ip | Relays::Tunnel => Vec::new(),
    };
    let payload = Payload::Pattern(scenario.seed);
    let transfer = Transfer { congestion, to: path.far, payload, limit: scenario.seconds.0, proxies, relayed: None };
    started();
    let received = tcp::run(chain.first(), chain.last(), &transfer)?;
    Ok(Arrivals { bytes_wrong: Some(received.bytes_wrong), ..Arrivals::of(received.timeline) })
}

fn report(
    scenario: &Scenario,
    (peer, peer_version): (Peer, String),
    arrivals: &Arrivals,
    accounts: &Accounts,
    conditions: Conditions,
) -> Result<NetReport, ContestError> {
    let (warmup, seconds) = (scenario.warmup.0, scenario.seconds.0);
    let account = &accounts.counted;
    let timeline = &arrivals.timeline;
    let counted = timeline.between(warmup, seconds);
    let goodput_mbit = counted as f64 * 8e-6 / (seconds - warmup).as_secs_f64();
    let whole_mbit = timeline.between(Duration::ZERO, seconds) as f64 * 8e-6 / seconds.as_secs_f64();
    let limits = Limits::of(scenario);
    let finite = |bits: f64| bits.is_finite().then_some(bits * 1e-6);
    let realised_limit_mbit = account.realised_limit_mbit;
    // From the start on, because bytes of the warm-up may be handed over after it.
    let (received, delivered) = (timeline.total(), accounts.whole.delivered_payload);
    if received > delivered {
        return Err(ContestError::Impossible { received, delivered });
    }
    let per_byte = |bytes: &u64| (counted > 0).then(|| round(*bytes as f64 / counted as f64, 5));
    Ok(NetReport {
        report_version: REPORT_VERSION,
        backend: "net",
        peer,
        peer_version,
        scenario: Configured::of(scenario),
        goodput_mbit: round(goodput_mbit, 4),
        nominal_limit_mbit: finite(limits.forward).map(|limit| round(limit, 4)),
        realised_limit_mbit: round(realised_limit_mbit, 4),
        share: finite(limits.forward).map(|limit| round(goodput_mbit / limit, 5)),
        share_whole: finite(limits.forward_whole).map(|limit| round(whole_mbit / limit, 5)),
        share_realised: (realised_limit_mbit > 0.0).then(|| round(goodput_mbit / realised_limit_mbit, 5)),
        bytes_delivered: timeline.total(),
        bytes_wrong: arrivals.bytes_wrong,
        wire_per_byte: account.sent.iter().map(per_byte).collect(),
        reverse_wire_per_byte: account.returned.iter().map(per_byte).collect(),
        queue_ms_p95: account.queue_p95.map(|delay| round(delay.as_secs_f64() * 1e3, 3)),
        message_rtt_ms: arrivals.message_rtt_ms,
        residual_loss: arrivals.residual_loss,
        memory_peak_bytes: arrivals.memory_peak_bytes,
        goodput_mbit_by_second: timeline.rates(10, seconds).into_iter().map(|(_, rate)| round(rate, 4)).collect(),
        links: account.links.iter().map(|link| [(&link.forward).into(), (&link.backward).into()]).collect(),
        contender: arrivals.contender.clone(),
        conditions,
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::link::LinkSpec;
    use crate::scenario::Hop;

    fn over(list: &str) -> Scenario {
        let mut spec = LinkSpec::default();
        spec.set_list(list).unwrap();
        let mut scenario = Scenario::new(vec![Hop { forward: spec.clone(), reverse: spec }]);
        scenario.seconds = crate::link::Period(Duration::from_secs(10));
        scenario
    }

    #[test]
    fn a_file_lasts_for_the_whole_run_and_is_bounded() {
        let bytes = file_bytes(&over("rate=50mbit"), "it").unwrap();
        assert!((61_000_000..62_500_000).contains(&bytes), "{bytes}");
        // Ten times as much in the first half, which is warm-up.
        let mut scenario = over("rate=100mbit");
        scenario.warmup = crate::link::Period(Duration::from_secs(5));
        scenario.hops[0].forward.at.push("5s:rate=10mbit".parse().unwrap());
        let bytes = file_bytes(&scenario, "it").unwrap();
        assert!((66_000_000..69_000_000).contains(&bytes), "{bytes}");
        for (link, names) in [("delay=1ms", "give the links a rate"), ("rate=10gbit", "4 GiB")] {
            assert!(file_bytes(&over(link), "it").unwrap_err().to_string().contains(names), "{link}");
        }
    }
}

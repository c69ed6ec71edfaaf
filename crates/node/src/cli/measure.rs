//! Options and arguments of `perf` and `ping`.
#![allow(rustdoc::broken_intra_doc_links, reason = "the texts of --help have brackets of their own")]

use super::exits::{self, EXITS};
use super::heading::{KEYS, PATH};
use super::{AccessArgs, HostsArgs, IdentityArgs, ListenArgs, PeerArgs, TraceArgs, ViaArgs};
use crate::failure::Failure;
use crate::perf::protocol::Mode;
use crate::units::{Amount, BitRate, CcName, Scale, Span};
use clap::{Args, ValueHint};
use std::path::PathBuf;
use std::time::Duration;

/// `noctule perf`.
#[derive(Debug, Args)]
#[command(after_help = exits::help(EXITS))]
pub struct PerfArgs {
    /// Serve: wait for clients of perf and ping; one test after another.
    #[arg(short = 's', long, conflicts_with = "client", required_unless_present = "client")]
    pub server: bool,
    /// Measure against the server at HOST (or HOST:PORT).
    #[arg(short = 'c', long, value_name = "HOST", value_hint = ValueHint::Hostname)]
    pub client: Option<String>,
    #[command(flatten)]
    pub listen: ListenArgs,
    /// Client: the file of hosts; none: no file [default: config beside the default key, if it exists]. (-F is a file to send, as in iperf3.)
    #[arg(long, value_name = "FILE", env = "NOCTULE_CONFIG", hide_env_values = true, help_heading = KEYS)]
    pub client_config: Option<PathBuf>,
    #[command(flatten)]
    pub identity: IdentityArgs,
    #[command(flatten)]
    pub via: ViaArgs,
    #[command(flatten)]
    pub peer: PeerArgs,
    #[command(flatten)]
    pub access: AccessArgs,
    #[command(flatten)]
    pub trace: TraceArgs,
    /// Server: end after one test, or one ping, that succeeded.
    #[arg(short = '1', long, visible_alias = "one-off", requires = "server")]
    pub once: bool,
    /// Server: seconds that one test may take; a longer one is refused.
    #[arg(long, default_value_t = 3600.0, value_name = "SECONDS", conflicts_with = "client")]
    pub longest: f64,
    /// Client: what carries the data.
    #[arg(long, value_enum, default_value = "brtp", conflicts_with = "server")]
    pub mode: Mode,
    /// Client: time to send (10, 10s). What has not arrived soon after it is given up.
    #[arg(short = 't', long, default_value = "10s", value_name = "TIME", conflicts_with = "server")]
    pub time: Span,
    /// Client: bytes to send in each direction instead (100M: powers of 1024), however long it takes.
    #[arg(short = 'n', long, value_name = "BYTES", conflicts_with_all = ["server", "time"])]
    pub bytes: Option<Amount>,
    /// Client: time at the beginning that counts for nothing.
    #[arg(short = 'O', long, default_value = "0s", value_name = "TIME", conflicts_with_all = ["server", "bytes", "file"])]
    pub omit: Span,
    /// Client: time between reports (1, 500ms), at least 100ms.
    #[arg(short = 'i', long, default_value = "1s", value_name = "TIME", conflicts_with = "server")]
    pub interval: Span,
    /// Client: parallel flows (tcp: connections).
    #[arg(short = 'P', long, default_value_t = 1, value_parser = clap::value_parser!(u16).range(1..=128), conflicts_with = "server")]
    pub parallel: u16,
    /// Client: the server sends.
    #[arg(short = 'r', visible_short_alias = 'R', long, conflicts_with = "server")]
    pub reverse: bool,
    /// Client: both send at once.
    #[arg(long, conflicts_with_all = ["server", "reverse"])]
    pub bidir: bool,
    /// Client: rate that the application offers, all flows of a direction together (20mbit, 1gbit; a letter alone is bits: 20M) [default: as fast as possible; transparent needs
    /// one].
    #[arg(short = 'b', long, value_name = "RATE", conflicts_with = "server")]
    pub rate: Option<BitRate>,
    /// Client: bytes per message, at least 16 [default: a byte stream for brtp, 1200 for btp and transparent].
    #[arg(short = 'l', long, value_name = "BYTES", conflicts_with = "server")]
    pub length: Option<Amount>,
    /// Client, btp: lifetime of a message.
    #[arg(long, value_name = "TIME", default_value = "500ms", conflicts_with = "server")]
    pub lifetime: Span,
    /// Client: send this file, once, instead of a pattern for some time; its hash is compared at the end.
    #[arg(short = 'F', long, value_name = "FILE", conflicts_with_all = ["server", "reverse", "bidir", "time", "length"])]
    pub file: Option<PathBuf>,
    /// Congestion control of what this side sends: model, cubic, reno, vegas, bbr, gcc, none, or rate:RATE [default: model]. The server uses the client's choice for
    /// what it sends in a test.
    #[arg(long, value_name = "NAME", value_parser = super::suggest::cc(), hide_possible_values = true, help_heading = PATH)]
    pub cc: Option<CcName>,
    /// Client, tcp: congestion control of both kernels (cubic, bbr, ...) [default: each kernel's own].
    #[arg(short = 'C', long, visible_alias = "congestion", value_name = "NAME", conflicts_with = "server")]
    pub tcp_cc: Option<String>,
    /// Client: append what is printed to this file instead.
    #[arg(long, value_name = "FILE", conflicts_with = "server")]
    pub logfile: Option<PathBuf>,
    /// Client: the time of day (UTC) before each line.
    #[arg(long, conflicts_with_all = ["server", "json"])]
    pub timestamps: bool,
    /// Client: JSON at the end, fields named as iperf3 names them where they mean the same.
    #[arg(short = 'J', long, conflicts_with = "server")]
    pub json: bool,
    /// Client: units of rates: k, m, g, t for bits, K, M, G, T for bytes per second [default: Mbit/s, then Gbit/s].
    #[arg(short = 'f', long, value_name = "UNIT", conflicts_with_all = ["server", "json"])]
    pub format: Option<Scale>,
    /// Client: CPU and repair ahead of loss, too; lines are longer than 80 columns.
    #[arg(short = 'V', long, conflicts_with_all = ["server", "json"])]
    pub wide: bool,
    /// Known from iperf3; see [`PerfArgs::foreign`].
    #[arg(short = 'u', long = "udp", hide = true)]
    udp: bool,
    #[arg(short = '4', hide = true)]
    only_ipv4: bool,
    #[arg(short = '6', hide = true)]
    only_ipv6: bool,
    #[arg(long, hide = true, value_name = "MS")]
    connect_timeout: Option<String>,
    #[arg(short = 'w', long = "window", hide = true, value_name = "BYTES")]
    window: Option<String>,
}

impl PerfArgs {
    /// Options of iperf3 that have another name here, or no meaning: each is refused with what to say instead.
    pub fn foreign(&self) -> Result<(), Failure> {
        let known: [(bool, &str); 5] = [
            (self.udp, "-u: datagrams that may be lost are --mode btp (with coding) or --mode transparent (without), their rate is -b"),
            (self.only_ipv4, "-4: give an IPv4 address as HOST; a server listens on both, or on one address with --bind"),
            (self.only_ipv6, "-6: give an IPv6 address as HOST; a server listens on both, or on one address with --bind"),
            (self.connect_timeout.is_some(), "--connect-timeout: --timeout TIME gives the other side up, 1s to 30s"),
            (self.window.is_some(), "-w: windows follow the path by themselves"),
        ];
        match known.iter().find(|(is_given, _)| *is_given) {
            Some((_, instead)) => Err(Failure::Usage((*instead).to_owned())),
            None => Ok(()),
        }
    }
}

/// `noctule ping`.
#[derive(Debug, Args)]
#[command(after_help = exits::help(EXITS))]
pub struct PingArgs {
    /// A host that runs `noctule perf -s`: HOST, HOST:PORT or [IPV6]:PORT.
    #[arg(value_hint = ValueHint::Hostname)]
    pub host: String,
    /// UDP port of HOST, where it names none [default: 4242].
    #[arg(short, long, value_name = "PORT", value_parser = clap::value_parser!(u16).range(1..), help_heading = PATH)]
    pub port: Option<u16>,
    #[command(flatten)]
    pub hosts: HostsArgs,
    #[command(flatten)]
    pub identity: IdentityArgs,
    #[command(flatten)]
    pub via: ViaArgs,
    #[command(flatten)]
    pub peer: PeerArgs,
    /// What carries the messages.
    #[arg(long, value_enum, default_value = "brtp")]
    pub mode: Mode,
    /// Messages to send.
    #[arg(short = 'c', long, default_value_t = 100, value_name = "N", value_parser = clap::value_parser!(u64).range(1..=10_000_000))]
    count: u64,
    /// Time between messages.
    #[arg(short = 'i', long, default_value = "100ms", value_name = "TIME")]
    interval: Span,
    /// Bytes per message, 16 to 1048576.
    #[arg(short = 'l', long, default_value_t = 64, value_name = "BYTES")]
    pub length: usize,
    /// An answer that takes longer counts as lost.
    #[arg(short = 'W', long, default_value = "2s", value_name = "TIME")]
    pub wait: Span,
    /// btp: lifetime of a message in each of the two directions [default: half of --wait].
    #[arg(long, value_name = "TIME")]
    lifetime: Option<Span>,
    /// brtp: hand messages over as they come, not in order.
    #[arg(long)]
    pub unordered: bool,
    #[command(flatten)]
    pub trace: TraceArgs,
    /// Measure beginnings instead: so many fresh connections with one message each, and the mean of their first answers.
    #[arg(long, value_name = "STARTS", num_args = 0..=1, default_missing_value = "15", value_parser = clap::value_parser!(u32).range(1..=10_000), conflicts_with_all = ["csv", "svg", "count", "interval", "trace"])]
    pub first: Option<u32>,
    /// Congestion control of this side: model, cubic, reno, vegas, bbr, gcc, none, or rate:RATE [default: model].
    #[arg(long, value_name = "NAME", value_parser = super::suggest::cc(), hide_possible_values = true, help_heading = PATH)]
    pub cc: Option<CcName>,
    /// tcp: congestion control of this side's kernel [default: the kernel's own].
    #[arg(long, value_name = "NAME")]
    pub tcp_cc: Option<String>,
    /// The time of day (UTC) before each line.
    #[arg(long, conflicts_with = "json")]
    pub timestamps: bool,
    /// One JSON object instead of text.
    #[arg(short = 'J', long)]
    pub json: bool,
    /// One line per message, to this file.
    #[arg(long, value_name = "FILE")]
    pub csv: Option<PathBuf>,
    /// A figure, round trips over time and their distribution, to this file.
    #[arg(long, value_name = "FILE")]
    pub svg: Option<PathBuf>,
}

impl PingArgs {
    /// Messages to send.
    pub fn count(&self) -> u64 {
        self.count
    }

    /// Time between messages.
    pub fn interval(&self) -> Result<Duration, Failure> {
        match self.interval.0 {
            d if d < Duration::from_micros(100) => Err(Failure::Usage("the interval (-i) must be at least 100us".into())),
            d => Ok(d),
        }
    }

    /// Lifetime of a message in one direction, for btp.
    pub fn lifetime(&self) -> Duration {
        self.lifetime.map_or(self.wait.0 / 2, |l| l.0)
    }
}

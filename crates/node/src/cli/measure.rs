//! What `perf` and `ping` take on the command line.
#![allow(rustdoc::broken_intra_doc_links, reason = "the texts of --help have brackets of their own")]

use super::{AccessArgs, DEFAULT_PORT, EXIT_CODES, IdentityArgs, PeerArgs, TraceArgs, ViaArgs};
use crate::failure::Failure;
use crate::perf::protocol::Mode;
use crate::units::{CcName, Rate, Span};
use clap::Args;
use std::path::PathBuf;
use std::time::Duration;

/// `noctule perf`.
#[derive(Debug, Args)]
#[command(after_help = EXIT_CODES)]
pub struct PerfArgs {
    /// Serve: wait for clients of perf and ping; one test after another.
    #[arg(short = 's', long, conflicts_with = "client", required_unless_present = "client")]
    pub server: bool,
    /// Measure against the server at HOST (or HOST:PORT).
    #[arg(short = 'c', long, value_name = "HOST")]
    pub client: Option<String>,
    /// UDP port.
    #[arg(short = 'p', long, default_value_t = DEFAULT_PORT)]
    pub port: u16,
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
    #[arg(long, requires = "server")]
    pub once: bool,
    /// Server: seconds that one test may take; a longer one is refused.
    #[arg(long, default_value_t = 3600.0, value_name = "SECONDS", conflicts_with = "client")]
    pub longest: f64,
    /// Client: what carries the data.
    #[arg(long, value_enum, default_value = "brtp", conflicts_with = "server")]
    pub mode: Mode,
    /// Client: seconds to send.
    #[arg(short = 't', long, default_value_t = 10.0, value_name = "SECONDS", conflicts_with = "server")]
    pub time: f64,
    /// Client: seconds between reports, at least 0.1.
    #[arg(short = 'i', long, default_value_t = 1.0, value_name = "SECONDS", conflicts_with = "server")]
    pub interval: f64,
    /// Client: parallel flows (tcp: connections).
    #[arg(short = 'P', long, default_value_t = 1, value_parser = clap::value_parser!(u16).range(1..=128), conflicts_with = "server")]
    pub parallel: u16,
    /// Client: the server sends.
    #[arg(short = 'r', long, conflicts_with = "server")]
    pub reverse: bool,
    /// Client: both send at once.
    #[arg(long, conflicts_with_all = ["server", "reverse"])]
    pub bidir: bool,
    /// Client: rate that the application offers, all flows of a direction together (20mbit, 1gbit) [default: as fast as possible; transparent needs
    /// one].
    #[arg(short = 'b', long, value_name = "RATE", conflicts_with = "server")]
    pub rate: Option<Rate>,
    /// Client: bytes per message, at least 16 [default: a byte stream for brtp, 1200 for btp and transparent].
    #[arg(short = 'l', long, value_name = "BYTES", conflicts_with = "server")]
    pub length: Option<usize>,
    /// Client, btp: lifetime of a message.
    #[arg(long, value_name = "TIME", default_value = "500ms", conflicts_with = "server")]
    pub lifetime: Span,
    /// Client: send this file, once, instead of a pattern for some time; its hash is compared at the end.
    #[arg(short = 'F', long, value_name = "FILE", conflicts_with_all = ["server", "reverse", "bidir", "time", "length"])]
    pub file: Option<PathBuf>,
    /// Congestion control of what this side sends: model, cubic, reno, vegas, bbr, none, or rate:RATE. The server uses the client's choice for
    /// what it sends in a test.
    #[arg(long, default_value = "model", value_name = "NAME")]
    pub cc: CcName,
    /// Client, tcp: congestion control of both kernels (cubic, bbr, ...) [default: each kernel's own].
    #[arg(long, value_name = "NAME", conflicts_with = "server")]
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
}

/// `noctule ping`.
#[derive(Debug, Args)]
#[command(after_help = EXIT_CODES)]
pub struct PingArgs {
    /// A host that runs `noctule perf -s`: HOST, HOST:PORT or [IPV6]:PORT.
    pub host: String,
    /// UDP port.
    #[arg(short = 'p', long, default_value_t = DEFAULT_PORT)]
    pub port: u16,
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
    /// btp: lifetime of a message on each of its two ways [default: half of --wait].
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
    /// Congestion control of this side: model, cubic, reno, vegas, bbr, none, or rate:RATE.
    #[arg(long, default_value = "model", value_name = "NAME")]
    pub cc: CcName,
    /// tcp: congestion control of this side's kernel [default: the kernel's own].
    #[arg(long, value_name = "NAME")]
    pub tcp_cc: Option<String>,
    /// No line for each ten messages.
    #[arg(short = 'q', long)]
    pub quiet: bool,
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

    /// Lifetime of a message one way, for btp.
    pub fn lifetime(&self) -> Duration {
        self.lifetime.map_or(self.wait.0 / 2, |l| l.0)
    }
}

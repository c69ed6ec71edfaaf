//! The command line.
#![allow(rustdoc::broken_intra_doc_links, reason = "the texts of --help have brackets of their own")]

mod exits;
mod heading;
mod hosts;
mod identity;
pub mod intercept;
mod listen;
mod log;
mod measure;
mod node;
mod ordered;
mod overlay;
mod proxy;
mod serve;
mod share;
mod suggest;
mod tools;
mod transfer;

pub use exits::{EXITS, NODE_EXITS};
pub use hosts::HostsArgs;
pub use identity::{AccessArgs, IdentityArgs, KeygenArgs, LEAST_MTU, PeerArgs};
pub use listen::ListenArgs;
pub use log::LogArgs;
pub use measure::{PerfArgs, PingArgs};
pub use node::{AddNeighbourArgs, InitArgs, NODE_FILE, NodeArgs, NodeTask, ReloadArgs, StatusArgs};
pub use overlay::ViaArgs;
pub use proxy::{ProxyApiArgs, ProxyArgs, ProxyKickArgs, ProxyRulesArgs, ProxyServeArgs, ProxyStatusArgs, ProxyTask};
pub use serve::{FilterArgs, GetArgs, KeepArgs, LimitArgs, ServeArgs};
pub use share::{ProxyShareArgs, SourceArgs};
pub use tools::{CompletionsArgs, DoctorArgs, ManArgs, TraceArgs};
pub use transfer::{RecvArgs, SendArgs, SendMode};

use clap::{Parser, Subcommand};

/// Version, commit, date of the source: what a report of a defect has to name.
const VERSION: &str = concat!(env!("CARGO_PKG_VERSION"), " (", env!("NOCTULE_COMMIT"), " ", env!("NOCTULE_DATE"), ")");
const LONG_VERSION: &str = concat!(
    env!("CARGO_PKG_VERSION"),
    "\ncommit:   ",
    env!("NOCTULE_COMMIT"),
    "\nsource:   ",
    env!("NOCTULE_DATE"),
    "\ntarget:   ",
    env!("NOCTULE_TARGET"),
    "\nfeatures: none are optional"
);

/// Moves files, measures paths and carries IP networks over lossy, long links with network coding.
#[derive(Debug, Parser)]
#[command(name = "noctule", version = VERSION, long_version = LONG_VERSION, after_help = exits::help(EXITS), max_term_width = 110)]
pub struct Cli {
    /// What to do.
    #[command(subcommand)]
    pub command: Command,
    #[command(flatten)]
    pub log: LogArgs,
}

impl Cli {
    /// Whether errors are printed as JSON. A measurement's error is part of its report.
    pub fn has_json_errors(&self) -> bool {
        match &self.command {
            Command::Keygen(_) => false,
            Command::Send(a) => a.json,
            Command::Recv(a) => a.json,
            Command::Serve(a) => a.json,
            Command::Get(a) => a.json,
            Command::Perf(a) => a.json && a.client.is_none(),
            Command::Ping(_) => false,
            Command::Proxy(a) => a.has_json_errors(),
            Command::Doctor(a) => a.json,
            Command::Man(_) | Command::Completions(_) | Command::CompleteHosts => false,
            Command::Status(a) => a.json,
            Command::Node(_) | Command::Reload(_) => false,
        }
    }
}

/// Subcommands.
#[derive(Debug, Subcommand)]
#[allow(clippy::large_enum_variant, reason = "there is one of them in a process")]
pub enum Command {
    /// Make a key, show its fingerprint, or forget the key of a host.
    Keygen(KeygenArgs),
    /// Send files and directories to a host that runs `noctule recv`.
    Send(SendArgs),
    /// Receive files; prints the command for the sender.
    Recv(RecvArgs),
    /// Offer a directory to `noctule get`; prints the command for the other side.
    Serve(ServeArgs),
    /// Get files and directories from a host that runs `noctule serve`.
    Get(GetArgs),
    /// Measure goodput between two hosts; `perf -s` also answers `ping`.
    Perf(PerfArgs),
    /// Measure round trips of messages, over any mode or TCP, against a host that runs `noctule perf -s`.
    Ping(PingArgs),
    /// Carry TCP and UDP programs over a bad path: ports as with ssh, SOCKS and HTTP; `proxy serve` runs on the other side.
    Proxy(ProxyArgs),
    /// Look at this host, and at the path to another one: what holds noctule back, and what to do about it.
    Doctor(DoctorArgs),
    /// Write the manual pages.
    Man(ManArgs),
    /// Print completions for a shell, to be put where it looks for them.
    Completions(CompletionsArgs),
    /// Print the names of known hosts, for completions.
    #[command(hide = true)]
    CompleteHosts,
    /// Run a node of a network: links to neighbours, relaying, routes, IP traffic through a TUN device.
    Node(NodeArgs),
    /// Show links, routes and flows of the node that runs on this host.
    Status(StatusArgs),
    /// Make the node that runs on this host read its file again, without dropping flows.
    Reload(ReloadArgs),
}

impl Command {
    /// It serves others until it is ended.
    pub fn serves(&self) -> bool {
        match self {
            Self::Recv(_) | Self::Serve(_) | Self::Node(_) => true,
            Self::Perf(args) => args.client.is_none(),
            Self::Proxy(args) => matches!(args.task, Some(ProxyTask::Serve(_) | ProxyTask::Rules(_))),
            _ => false,
        }
    }
}

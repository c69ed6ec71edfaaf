//! The command line.
#![allow(rustdoc::broken_intra_doc_links, reason = "the texts of --help have brackets of their own")]

mod measure;

pub use measure::{PerfArgs, PerfMode};

use crate::units::CcName;
use clap::{Args, Parser, Subcommand};
use noctule::PublicKey;
use std::net::SocketAddr;
use std::path::PathBuf;

/// UDP port unless another is named.
pub const DEFAULT_PORT: u16 = 4242;

const EXIT_CODES: &str = "Exit codes:\n  \
0 everything was done and verified       8 the peer's key is not the expected one\n  \
1 internal error, or the system's        9 this key is not authorised by the peer\n  \
2 wrong usage                           10 the port is in use, or not permitted\n  \
3 a source cannot be read               11 a name was refused\n  \
4 the target cannot be written          12 a hash did not match, or a file changed\n  \
5 the disk is full                      13 the host name cannot be resolved\n  \
6 the peer does not answer              14 the target exists already\n  \
7 the peer went away                   130 interrupted";

/// Moves files and measures paths over lossy, long links with network coding.
#[derive(Debug, Parser)]
#[command(name = "noctule", version, about, after_help = EXIT_CODES, max_term_width = 110)]
pub struct Cli {
    /// What to do.
    #[command(subcommand)]
    pub command: Command,
}

impl Cli {
    /// Errors are to be printed as JSON.
    pub fn is_json(&self) -> bool {
        match &self.command {
            Command::Keygen(_) => false,
            Command::Send(a) => a.json,
            Command::Recv(a) => a.json,
            Command::Perf(a) => a.json,
        }
    }
}

/// Subcommands.
#[derive(Debug, Subcommand)]
pub enum Command {
    /// Make an identity and print its public key.
    Keygen(KeygenArgs),
    /// Send files and directories to a host that runs `noctule recv`.
    Send(SendArgs),
    /// Receive files; prints the command for the sender.
    Recv(RecvArgs),
    /// Measure goodput between two hosts.
    Perf(PerfArgs),
}

/// `noctule keygen`.
#[derive(Debug, Args)]
pub struct KeygenArgs {
    /// File for the secret key [default: $XDG_CONFIG_HOME/noctule/key or ~/.config/noctule/key].
    #[arg(short, long, value_name = "FILE")]
    pub output: Option<PathBuf>,
    /// Replace a key that exists: whoever pinned the old one will refuse the new one.
    #[arg(long)]
    pub force: bool,
}

/// `noctule send`.
#[derive(Debug, Args)]
#[command(after_help = EXIT_CODES)]
pub struct SendArgs {
    /// Files and directories, then HOST, HOST:PORT or [IPV6]:PORT as the last argument.
    #[arg(required = true, num_args = 2.., value_name = "FILE... HOST")]
    pub words: Vec<String>,
    /// The receiver's public key, as `noctule recv` prints it.
    #[arg(long, value_name = "KEY")]
    pub peer_key: PublicKey,
    /// This side's secret key [default: the one that keygen made, else a fresh one for this run].
    #[arg(long, value_name = "FILE")]
    pub key: Option<PathBuf>,
    /// Congestion control: model, cubic, reno, vegas, bbr, none, or rate:RATE for reserved bandwidth (rate:100mbit).
    #[arg(long, default_value = "model", value_name = "NAME")]
    pub cc: CcName,
    /// One JSON object per line instead of text.
    #[arg(long)]
    pub json: bool,
}

/// `noctule recv`.
#[derive(Debug, Args)]
#[command(after_help = EXIT_CODES)]
pub struct RecvArgs {
    /// Address and port to listen on [default: [::]:4242, or 0.0.0.0:4242 on hosts without IPv6].
    #[arg(long, value_name = "ADDR:PORT")]
    pub bind: Option<SocketAddr>,
    /// Directory to write to; must exist.
    #[arg(long, default_value = ".", value_name = "DIR")]
    pub into: PathBuf,
    /// This side's secret key [default: the one that keygen made, else a fresh one for this run].
    #[arg(long, value_name = "FILE")]
    pub key: Option<PathBuf>,
    /// Accept only senders with this public key; may be given several times [default: anyone who has ours].
    #[arg(long, value_name = "KEY")]
    pub allow: Vec<PublicKey>,
    /// Replace files that exist.
    #[arg(long)]
    pub overwrite: bool,
    /// End after one transfer, with its result.
    #[arg(long)]
    pub once: bool,
    /// Congestion control of what this side sends: model, cubic, reno, vegas, bbr, none, or rate:RATE.
    #[arg(long, default_value = "model", value_name = "NAME")]
    pub cc: CcName,
    /// One JSON object per line instead of text.
    #[arg(long)]
    pub json: bool,
}

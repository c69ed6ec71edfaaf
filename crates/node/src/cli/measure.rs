//! What `perf` takes on the command line.
#![allow(rustdoc::broken_intra_doc_links, reason = "the texts of --help have brackets of their own")]

use super::{DEFAULT_PORT, EXIT_CODES};
use crate::units::{CcName, Rate, Span};
use clap::{Args, ValueEnum};
use noctule::PublicKey;
use std::path::PathBuf;

/// Transport mode.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum PerfMode {
    /// Everything arrives.
    Brtp,
    /// Messages with a lifetime.
    Btp,
}

/// `noctule perf`.
#[derive(Debug, Args)]
#[command(after_help = EXIT_CODES)]
pub struct PerfArgs {
    /// Serve: wait for clients.
    #[arg(short = 's', long, conflicts_with = "client", required_unless_present = "client")]
    pub server: bool,
    /// Measure against the server at HOST.
    #[arg(short = 'c', long, value_name = "HOST")]
    pub client: Option<String>,
    /// UDP port.
    #[arg(short = 'p', long, default_value_t = DEFAULT_PORT)]
    pub port: u16,
    /// Client: the server's public key.
    #[arg(long, value_name = "KEY", requires = "client", required_unless_present = "server")]
    pub peer_key: Option<PublicKey>,
    /// Secret key [default: the one that keygen made, else a fresh one for this run].
    #[arg(long, value_name = "FILE")]
    pub key: Option<PathBuf>,
    /// Server: end after one test.
    #[arg(long, requires = "server")]
    pub once: bool,
    /// Client: mode.
    #[arg(long, value_enum, default_value = "brtp", conflicts_with = "server")]
    pub mode: PerfMode,
    /// Client: seconds to send.
    #[arg(short = 't', long, default_value_t = 10.0, conflicts_with = "server")]
    pub time: f64,
    /// Client: seconds between reports, at least 0.1.
    #[arg(short = 'i', long, default_value_t = 1.0, conflicts_with = "server")]
    pub interval: f64,
    /// Client: parallel flows.
    #[arg(short = 'P', long, default_value_t = 1, value_parser = clap::value_parser!(u16).range(1..=128), conflicts_with = "server")]
    pub parallel: u16,
    /// Client: the server sends.
    #[arg(short = 'r', long, conflicts_with = "server")]
    pub reverse: bool,
    /// Client: rate that the application offers, all flows together (20mbit, 1gbit) [default: as fast as possible].
    #[arg(short = 'b', long, value_name = "RATE", conflicts_with = "server")]
    pub rate: Option<Rate>,
    /// Client: bytes per message, at least 16 [default: a byte stream for brtp, 1200 for btp].
    #[arg(short = 'l', long, value_name = "BYTES", conflicts_with = "server")]
    pub length: Option<usize>,
    /// Client, btp: lifetime of a message.
    #[arg(long, value_name = "TIME", default_value = "500ms", conflicts_with = "server")]
    pub lifetime: Span,
    /// Congestion control of this side: model, cubic, reno, vegas, bbr, none, or rate:RATE. A client's choice is passed to the server when it sends.
    #[arg(long, default_value = "model", value_name = "NAME")]
    pub cc: CcName,
    /// Client: JSON at the end, fields named as iperf3 names them where they mean the same.
    #[arg(short = 'J', long, conflicts_with = "server")]
    pub json: bool,
}

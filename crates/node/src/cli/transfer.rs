//! What `send` and `recv` take on the command line.
#![allow(rustdoc::broken_intra_doc_links, reason = "the texts of --help have brackets of their own")]

use super::{AccessArgs, EXIT_CODES, IdentityArgs, PeerArgs};
use crate::units::CcName;
use clap::Args;
use std::net::SocketAddr;
use std::path::PathBuf;

/// `noctule send`.
#[derive(Debug, Args)]
#[command(after_help = EXIT_CODES)]
pub struct SendArgs {
    /// Files and directories, then HOST, HOST:PORT or [IPV6]:PORT as the last argument.
    #[arg(required = true, num_args = 2.., value_name = "FILE... HOST")]
    pub words: Vec<String>,
    #[command(flatten)]
    pub peer: PeerArgs,
    #[command(flatten)]
    pub identity: IdentityArgs,
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
    #[command(flatten)]
    pub access: AccessArgs,
    #[command(flatten)]
    pub identity: IdentityArgs,
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

//! The daemon on the command line: `node`, `status`, `reload`.
#![allow(rustdoc::broken_intra_doc_links, reason = "the texts of --help have brackets of their own")]

use crate::daemon::DEFAULT_SOCKET;
use crate::units::Span;
use clap::Args;
use std::path::PathBuf;

const NODE_EXIT_CODES: &str = "Exit codes:\n  \
0 ended on request, or --check found nothing wrong\n  \
1 the system refused something (TUN, sockets)\n  \
2 the file is wrong; the message names line and key\n  \
3 file or key cannot be read\n 10 the port is in use, or not permitted";

/// `noctule node`.
#[derive(Debug, Args)]
#[command(after_help = NODE_EXIT_CODES)]
pub struct NodeArgs {
    /// The node's file; docs/guide/node.md describes it.
    #[arg(short, long, value_name = "FILE", default_value = "/etc/noctule/node.toml")]
    pub config: PathBuf,
    /// Only check the file and the key that it names, and say what it means.
    #[arg(long)]
    pub check: bool,
}

/// `noctule status`.
#[derive(Debug, Args)]
pub struct StatusArgs {
    /// The node's control socket.
    #[arg(short, long, value_name = "PATH", default_value = DEFAULT_SOCKET)]
    pub socket: PathBuf,
    /// As JSON, for programs.
    #[arg(long)]
    pub json: bool,
    /// Show every flow, not only sums.
    #[arg(long)]
    pub flows: bool,
    /// Again and again, this far apart, with rates.
    #[arg(short, long, value_name = "TIME", num_args = 0..=1, default_missing_value = "1s")]
    pub watch: Option<Span>,
}

/// `noctule reload`.
#[derive(Debug, Args)]
pub struct ReloadArgs {
    /// The node's control socket.
    #[arg(short, long, value_name = "PATH", default_value = DEFAULT_SOCKET)]
    pub socket: PathBuf,
}

//! The daemon on the command line: `node`, `status`, `reload`.
#![allow(rustdoc::broken_intra_doc_links, reason = "the texts of --help have brackets of their own")]

use super::exits::{self, NODE_EXITS};
use crate::units::Span;
use clap::{Args, Subcommand};
use ipnet::IpNet;
use noctule::PublicKey;
use std::net::IpAddr;
use std::path::PathBuf;

/// The node's file.
pub const NODE_FILE: &str = "/etc/noctule/node.toml";

/// `noctule node`.
#[derive(Debug, Args)]
#[command(after_help = exits::help(NODE_EXITS))]
pub struct NodeArgs {
    /// The node's file; noctule.toml(5) describes it.
    #[arg(short, long, value_name = "FILE", default_value = NODE_FILE, global = true)]
    pub config: PathBuf,
    /// Only check the file and the key that it names, and say what it means.
    #[arg(long, conflicts_with = "example")]
    pub check: bool,
    /// Only print a file with every key explained.
    #[arg(long)]
    pub example: bool,
    /// Make or change the file instead of running.
    #[command(subcommand)]
    pub task: Option<NodeTask>,
}

impl NodeArgs {
    /// Whether a node is to run.
    pub fn is_running(&self) -> bool {
        !self.check && !self.example && self.task.is_none()
    }
}

/// What is done with the file.
#[derive(Debug, Subcommand)]
pub enum NodeTask {
    /// Make a key and a file, and say how the node is started.
    Init(InitArgs),
    /// Add a neighbour to the file, and print the command by which it adds this node.
    AddNeighbour(AddNeighbourArgs),
}

/// `noctule node init`.
#[derive(Debug, Default, PartialEq, Args)]
pub struct InitArgs {
    /// Name of this node, for logs and status [default: the host's name].
    #[arg(long, value_name = "NAME")]
    pub name: Option<String>,
    /// Its address in the overlay (10.9.0.1, fd09::1); may be given several times.
    #[arg(long, value_name = "IP")]
    pub address: Vec<IpAddr>,
    /// Where it listens: ADDR, ADDR:PORT, :PORT or PORT [default: port 4242 of every address].
    #[arg(long, value_name = "ADDR[:PORT]", value_parser = crate::daemon::setup::listen)]
    pub listen: Option<String>,
    /// It forwards flows of others.
    #[arg(long)]
    pub relay: bool,
    /// It carries IP packets through a device with this address (10.9.0.1/24); may be given several times.
    #[arg(long, value_name = "ADDR/LEN")]
    pub tun: Vec<IpNet>,
    /// Its control socket; each node of a host needs its own [default: /run/noctule/node.sock].
    #[arg(long, value_name = "PATH")]
    pub socket: Option<PathBuf>,
}

/// `noctule node add-neighbour`.
#[derive(Debug, Args)]
pub struct AddNeighbourArgs {
    /// The name by which this node's file, logs and status name it.
    pub name: String,
    /// Its public key, as `noctule node init` prints it there.
    pub key: PublicKey,
    /// Where to call it; left out where it calls this node.
    #[arg(value_name = "HOST[:PORT]")]
    pub endpoint: Option<String>,
    /// Its address in the overlay; may be given several times.
    #[arg(long, value_name = "IP")]
    pub address: Vec<IpAddr>,
    /// A network behind it; may be given several times.
    #[arg(long, value_name = "NETWORK")]
    pub prefix: Vec<IpNet>,
    /// A pre-shared key of this link (keygen --shared), which the neighbour must have too.
    #[arg(long, value_name = "FILE")]
    pub psk: Option<PathBuf>,
}

/// `noctule status`.
#[derive(Debug, Args)]
pub struct StatusArgs {
    /// The node's control socket [default: the one that its file names].
    #[arg(short, long, value_name = "PATH")]
    pub socket: Option<PathBuf>,
    /// The node's file.
    #[arg(short, long, value_name = "FILE", default_value = NODE_FILE, conflicts_with = "socket")]
    pub config: PathBuf,
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
    /// The node's control socket [default: the one that its file names].
    #[arg(short, long, value_name = "PATH")]
    pub socket: Option<PathBuf>,
    /// The node's file.
    #[arg(short, long, value_name = "FILE", default_value = NODE_FILE, conflicts_with = "socket")]
    pub config: PathBuf,
}

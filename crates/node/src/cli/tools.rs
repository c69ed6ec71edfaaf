//! What `doctor`, `man` and `completions` take on the command line, and the option for traces.
#![allow(rustdoc::broken_intra_doc_links, reason = "the texts of --help have brackets of their own")]

use super::exits::{self, EXITS};
use super::heading::PATH;
use super::{HostsArgs, IdentityArgs};
use crate::failure::Failure;
use clap::{Args, ValueHint};
use noctule::{EndpointConfig, TraceLog};
use std::path::PathBuf;

/// `noctule doctor`.
#[derive(Debug, Args)]
#[command(after_help = exits::help(EXITS))]
pub struct DoctorArgs {
    /// Look at the path to this host too: HOST, HOST:PORT or [IPV6]:PORT, where `noctule perf -s` or `noctule recv` runs.
    #[arg(value_hint = ValueHint::Hostname)]
    pub host: Option<String>,
    /// UDP port of HOST, where it names none [default: 4242].
    #[arg(short, long, value_name = "PORT", requires = "host", value_parser = clap::value_parser!(u16).range(1..), help_heading = PATH)]
    pub port: Option<u16>,
    #[command(flatten)]
    pub hosts: HostsArgs,
    #[command(flatten)]
    pub identity: IdentityArgs,
    /// One JSON object instead of text.
    #[arg(long)]
    pub json: bool,
}

/// `noctule man`.
#[derive(Debug, Args)]
pub struct ManArgs {
    /// Directory to write the pages to, one per command; it is made if it is not there.
    pub directory: PathBuf,
}

/// `noctule completions`.
#[derive(Debug, Args)]
pub struct CompletionsArgs {
    /// The shell to write them for, to standard output.
    pub shell: clap_complete::Shell,
}

/// Traces. Goes into every command with a link of its own.
#[derive(Clone, Debug, Default, Args)]
pub struct TraceArgs {
    /// Write what the protocol does, packet by packet, to FILE: JSON text sequence with qlog's names (docs/guide/traces.md).
    #[arg(long, value_name = "FILE")]
    pub trace: Option<PathBuf>,
}

impl TraceArgs {
    /// Lets an endpoint write its trace.
    pub fn apply(&self, config: &mut EndpointConfig, command: &str) -> Result<(), Failure> {
        if let Some(path) = &self.trace {
            config.trace = Some(TraceLog::create(path, command).map_err(|e| Failure::target(path, &e))?);
        }
        Ok(())
    }
}

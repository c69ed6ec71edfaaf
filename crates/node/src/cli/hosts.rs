//! The option that names the user's file of hosts.

use super::heading::KEYS;
use clap::Args;
use std::path::PathBuf;

/// The variable that names the file.
const VARIABLE: &str = "NOCTULE_CONFIG";

/// Part of every command that connects, except `perf`, whose -F is iperf3's.
#[derive(Clone, Debug, Default, Args)]
pub struct HostsArgs {
    /// The file of hosts (noctule-config(5)); none: no file [default: config beside the default key, if it exists].
    #[arg(short = 'F', long, value_name = "FILE", env = VARIABLE, hide_env_values = true, help_heading = KEYS)]
    pub client_config: Option<PathBuf>,
}

impl HostsArgs {
    /// The value without a command line: from the environment.
    pub fn from_environment() -> Self {
        Self { client_config: std::env::var_os(VARIABLE).map(PathBuf::from) }
    }
}

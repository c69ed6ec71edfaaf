//! The user's file of hosts on the command line.

use super::heading::KEYS;
use clap::Args;
use std::path::PathBuf;

/// The variable that names the file.
const VARIABLE: &str = "NOCTULE_CONFIG";

/// Goes into every command that connects, but `perf`, whose -F is iperf3's.
#[derive(Clone, Debug, Default, Args)]
pub struct HostsArgs {
    /// The file of hosts (noctule-config(5)); none: no file [default: config beside the default key, if it exists].
    #[arg(short = 'F', long, value_name = "FILE", env = VARIABLE, hide_env_values = true, help_heading = KEYS)]
    pub client_config: Option<PathBuf>,
}

impl HostsArgs {
    /// As without a command line.
    pub fn from_environment() -> Self {
        Self { client_config: std::env::var_os(VARIABLE).map(PathBuf::from) }
    }
}

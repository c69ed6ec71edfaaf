//! What commands tell besides their results, on the command line: the same for all of them.
#![allow(rustdoc::broken_intra_doc_links, reason = "the texts of --help have brackets of their own")]

use super::heading::LOG;
use crate::log::{Levels, LogFormat};
use clap::Args;
use tracing::Level;

/// Goes before or after the name of any command.
#[derive(Clone, Debug, Args)]
pub struct LogArgs {
    /// Log more: what happens inside (debug); twice: all of it (trace).
    #[arg(short, long, action = clap::ArgAction::Count, global = true, conflicts_with = "quiet", help_heading = LOG)]
    pub verbose: u8,
    /// Tell only results, warnings and errors.
    #[arg(short, long, global = true, help_heading = LOG)]
    pub quiet: bool,
    /// What to log: error, warn, info, debug, trace or off, for everything or by module (info,noctule::daemon::peer=debug); -v and -q go before it
    /// [default: info where others are served (node, recv, serve, perf -s), else warn].
    #[arg(long, global = true, value_name = "LEVEL", env = "NOCTULE_LOG", hide_env_values = true, value_parser = super::suggest::levels(), hide_possible_values = true, help_heading = LOG)]
    pub log_level: Option<Levels>,
    /// Form of the log on standard error.
    #[arg(long, global = true, value_enum, default_value = "text", value_name = "FORMAT", help_heading = LOG)]
    pub log_format: LogFormat,
}

impl LogArgs {
    /// What is logged; `serves`: by a command that serves others, whose comings and goings its user wants to see.
    pub fn levels(&self, serves: bool) -> Levels {
        let usual = if serves { Level::INFO } else { Level::WARN };
        match (self.quiet, self.verbose) {
            (true, _) => Levels::all(Level::WARN),
            (false, 0) => self.log_level.clone().unwrap_or_else(|| Levels::all(usual)),
            (false, 1) => Levels::all(Level::DEBUG),
            (false, _) => Levels::all(Level::TRACE),
        }
    }
}

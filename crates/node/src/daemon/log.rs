//! The daemon's log: one line per event on standard error, for people or as JSON.

use crate::failure::Failure;
use std::io::IsTerminal;
use tracing_subscriber::EnvFilter;

/// Form of the log.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub enum LogFormat {
    /// A line for people.
    Text,
    /// One JSON object per line.
    Json,
}

/// Starts logging.
///
/// # Errors
/// The level is none.
pub fn start(format: LogFormat, level: &str) -> Result<(), Failure> {
    let filter = EnvFilter::builder().parse(level).map_err(|e| {
        Failure::Usage(format!("--log-level {level:?}: {e}; write error, warn, info, debug, trace, or MODULE=LEVEL separated by commas"))
    })?;
    let builder = tracing_subscriber::fmt().with_env_filter(filter).with_writer(std::io::stderr);
    match format {
        LogFormat::Json => builder.json().flatten_event(true).with_target(false).init(),
        // The journal has clocks of its own.
        LogFormat::Text if std::env::var_os("JOURNAL_STREAM").is_some() => {
            builder.without_time().with_target(false).with_ansi(false).init()
        }
        LogFormat::Text => builder.with_target(false).with_ansi(std::io::stderr().is_terminal()).init(),
    }
    Ok(())
}

//! The daemon's log: one line per event on standard error, for people or as JSON.
//!
//! Values of fields may hold text of other hosts. As text each value is escaped, so that none begins a line of its own; JSON escapes line breaks
//! itself, and what else could drive a terminal is escaped when the line is written.

use crate::failure::Failure;
use noctule_proto::far_text::{escaped, guarded};
use std::fmt::{self, Debug};
use std::io::{self, IsTerminal, Write};
use tracing::field::Field;
use tracing_subscriber::EnvFilter;
use tracing_subscriber::field::MakeExt;
use tracing_subscriber::fmt::format::{Writer, debug_fn};

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
    let builder = tracing_subscriber::fmt().with_env_filter(filter).with_target(false);
    let text_fields = || debug_fn(text_field).delimited(" ");
    match format {
        LogFormat::Json => builder.with_writer(|| Guarded(io::stderr())).json().flatten_event(true).init(),
        // The journal has clocks of its own.
        LogFormat::Text if std::env::var_os("JOURNAL_STREAM").is_some() => {
            builder.with_writer(io::stderr).fmt_fields(text_fields()).without_time().with_ansi(false).init()
        }
        LogFormat::Text => builder.with_writer(io::stderr).fmt_fields(text_fields()).with_ansi(io::stderr().is_terminal()).init(),
    }
    Ok(())
}

fn text_field(out: &mut Writer<'_>, field: &Field, value: &dyn Debug) -> fmt::Result {
    let value = format!("{value:?}");
    match field.name() {
        "message" => write!(out, "{}", escaped(&value)),
        name => write!(out, "{name}={}", escaped(&value)),
    }
}

/// Writes whole lines of JSON, each character of which may be shown.
struct Guarded<W>(W);

impl<W: Write> Write for Guarded<W> {
    fn write(&mut self, line: &[u8]) -> io::Result<usize> {
        self.0.write_all(guarded(&String::from_utf8_lossy(line)).as_bytes())?;
        Ok(line.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        self.0.flush()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use noctule_proto::far_text::is_deceptive;
    use std::sync::{Arc, Mutex};

    /// One of each kind, as a far end could put it into a reason.
    const HOSTILE: &str = "\x1b]0;owned\x07\x1b[2J\r\n2026-01-01 INFO verified\u{9b}2J\u{202e}\u{2028}\u{200b}";

    #[derive(Clone, Default)]
    struct Kept(Arc<Mutex<Vec<u8>>>);

    impl Write for Kept {
        fn write(&mut self, line: &[u8]) -> io::Result<usize> {
            self.0.lock().unwrap().write(line)
        }
        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }

    fn log_hostile() {
        tracing::warn!(plain = HOSTILE, display = %HOSTILE, "{HOSTILE}");
    }

    #[test]
    fn a_line_of_either_format_stays_one_line_without_deceptive_characters() {
        let (text, json) = (Kept::default(), Kept::default());
        let writer = text.clone();
        let builder = tracing_subscriber::fmt().with_ansi(false).fmt_fields(debug_fn(text_field).delimited(" "));
        tracing::subscriber::with_default(builder.with_writer(move || writer.clone()).finish(), log_hostile);
        let writer = json.clone();
        let builder = tracing_subscriber::fmt().with_writer(move || Guarded(writer.clone())).json();
        tracing::subscriber::with_default(builder.finish(), log_hostile);
        for out in [text, json] {
            let out = String::from_utf8(out.0.lock().unwrap().clone()).unwrap();
            let line = out.strip_suffix('\n').expect("a line");
            assert!(line.contains("owned") && !line.chars().any(is_deceptive), "{line:?}");
        }
    }
}

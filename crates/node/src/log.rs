//! The log of every command: one line per event on standard error, for people or as JSON.
//!
//! Values of fields may hold text of other hosts. As text each value is escaped, so that none begins a line of its own; JSON escapes line breaks
//! itself, and what else could drive a terminal is escaped when the line is written.

use crate::cli::LogArgs;
use crate::failure::Failure;
use noctule_proto::far_text::{escaped, guarded};
use std::fmt::{self, Debug};
use std::io::{self, IsTerminal, Write};
use std::str::FromStr;
use tracing::Level;
use tracing::field::Field;
use tracing::level_filters::LevelFilter;
use tracing_subscriber::field::MakeExt;
use tracing_subscriber::filter::Targets;
use tracing_subscriber::fmt::format::{Writer, debug_fn};
use tracing_subscriber::layer::SubscriberExt;
use tracing_subscriber::util::SubscriberInitExt;

/// Form of the log.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub enum LogFormat {
    /// A line for people.
    Text,
    /// One JSON object per line.
    Json,
}

/// Levels, by name.
pub const LEVELS: [&str; 6] = ["off", "error", "warn", "info", "debug", "trace"];

/// What is logged: a level for everything, and others for single modules.
#[derive(Clone, Debug, PartialEq)]
pub struct Levels {
    rest: LevelFilter,
    modules: Vec<(String, LevelFilter)>,
}

impl Levels {
    /// Everything from this level on.
    pub fn all(level: Level) -> Self {
        Self { rest: level.into(), modules: Vec::new() }
    }
}

impl FromStr for Levels {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let level = |name: &str| match LEVELS.contains(&name.to_ascii_lowercase().as_str()) {
            true => name.parse::<LevelFilter>().map_err(|e| e.to_string()),
            false => Err(format!("{name:?} is no level: write {}; a level of one module is written MODULE=LEVEL", LEVELS.join(", "))),
        };
        let mut levels = Self { rest: LevelFilter::INFO, modules: Vec::new() };
        let mut has_rest = false;
        for part in text.split(',').map(str::trim) {
            match part.split_once('=') {
                None if std::mem::replace(&mut has_rest, true) => {
                    return Err(format!("{part:?} is a second level for everything: one is enough"));
                }
                None => levels.rest = level(part)?,
                Some((module, name)) => {
                    let is_path = |c: char| c.is_ascii_alphanumeric() || c == '_' || c == ':';
                    if module.is_empty() || !module.chars().all(is_path) {
                        return Err(format!("{module:?} is no module: they are written as noctule::daemon::peer"));
                    }
                    levels.modules.push((module.to_owned(), level(name)?));
                }
            }
        }
        Ok(levels)
    }
}

/// Starts logging; `serves`: of a command that serves others.
///
/// # Errors
/// It was started before.
pub fn start(args: &LogArgs, serves: bool) -> Result<(), Failure> {
    let levels = args.levels(serves);
    let targets = Targets::new().with_default(levels.rest).with_targets(levels.modules);
    let layer = tracing_subscriber::fmt::layer().with_target(false);
    let text_fields = || debug_fn(text_field).delimited(" ");
    // https://no-color.org
    let has_no_colour = std::env::var_os("NO_COLOR").is_some_and(|value| !value.is_empty());
    let registry = tracing_subscriber::registry().with(targets);
    let started = match args.log_format {
        LogFormat::Json => registry.with(layer.with_writer(|| Guarded(Lines)).json().flatten_event(true)).try_init(),
        // The journal has clocks of its own.
        LogFormat::Text if std::env::var_os("JOURNAL_STREAM").is_some() => {
            registry.with(layer.with_writer(|| Lines).fmt_fields(text_fields()).without_time().with_ansi(false)).try_init()
        }
        LogFormat::Text => registry
            .with(layer.with_writer(|| Lines).fmt_fields(text_fields()).with_ansi(io::stderr().is_terminal() && !has_no_colour))
            .try_init(),
    };
    started.map_err(|e| Failure::system("the log", e))
}

/// Standard error, past what is drawn there.
struct Lines;

impl Write for Lines {
    fn write(&mut self, line: &[u8]) -> io::Result<usize> {
        crate::terminal::log_line(line);
        Ok(line.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

fn text_field(out: &mut Writer<'_>, field: &Field, value: &dyn Debug) -> fmt::Result {
    let value = format!("{value:?}");
    // What is not there is left out: `value.map(tracing::field::display)` instead of `?value`.
    debug_assert!(!value.starts_with("Some(") && value != "None", "{}={value}", field.name());
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

    #[test]
    fn levels_are_read_or_refused_with_those_that_exist() {
        let read = |text: &str| text.parse::<Levels>();
        assert_eq!(read("warn"), Ok(Levels::all(Level::WARN)));
        let two = read("INFO,noctule::daemon::peer=debug").unwrap();
        assert_eq!((two.rest, &two.modules[..]), (LevelFilter::INFO, &[("noctule::daemon::peer".to_owned(), LevelFilter::DEBUG)][..]));
        for (wrong, words) in [
            ("warnn", "\"warnn\" is no level"),
            ("", "is no level"),
            ("info,warn", "second level"),
            ("noctule::daemon", "MODULE=LEVEL"),
            ("noctule=loud", "\"loud\" is no level"),
            ("=info", "is no module"),
            ("3", "is no level"),
        ] {
            let told = read(wrong).unwrap_err();
            assert!(told.contains(words), "{wrong}: {told}");
        }
    }

    /// `?value` in a log prints Rust's own form of a value: `Some(..)` of what may be missing, quotes around text.
    #[test]
    fn no_value_is_logged_in_the_form_of_the_programming_language() {
        let mut files = vec![std::path::PathBuf::from(concat!(env!("CARGO_MANIFEST_DIR"), "/src"))];
        let mut seen = 0;
        while let Some(path) = files.pop() {
            if path.is_dir() {
                files.extend(std::fs::read_dir(&path).unwrap().map(|entry| entry.unwrap().path()));
                continue;
            }
            let text = std::fs::read_to_string(&path).unwrap();
            for call in text.split("tracing::").skip(1) {
                let Some((_, fields)) =
                    call.split_once("!(").filter(|(name, _)| ["error", "warn", "info", "debug", "trace"].contains(name))
                else {
                    continue;
                };
                let fields = fields.split(");").next().unwrap_or_default();
                let before_text = fields.split('"').next().unwrap_or_default();
                assert!(
                    !before_text.contains("= ?") && !before_text.contains(" ?") && !before_text.starts_with('?'),
                    "{}: {fields}",
                    path.display()
                );
                seen += 1;
            }
        }
        assert!(seen > 20, "{seen}");
    }

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

//! Where a measurement's lines go: to the terminal or to a file, with the time of day in front if wished.

use crate::failure::Failure;
use noctule_proto::far_text::guarded;
use std::fs::File;
use std::io::{self, BufWriter, Write};
use std::path::{Path, PathBuf};
use std::time::SystemTime;

/// See the file's heading.
pub struct Output {
    file: Option<(PathBuf, BufWriter<File>)>,
    has_stamps: bool,
    /// Writing failed; told once, at the end.
    error: Option<io::Error>,
}

impl Output {
    /// To standard output, or at the end of a file; `has_stamps`: each line begins with the wall-clock time (UTC, RFC 3339).
    pub fn new(log: Option<&Path>, has_stamps: bool) -> Result<Self, Failure> {
        let open = |path: &Path| File::options().create(true).append(true).open(path).map_err(|e| Failure::target(path, &e));
        let file = match log {
            Some(path) => Some((path.to_owned(), BufWriter::new(open(path)?))),
            None => None,
        };
        Ok(Self { file, has_stamps, error: None })
    }

    /// One line.
    pub fn line(&mut self, text: &str) {
        match self.has_stamps && !text.is_empty() {
            true => self.plain(&format!("{} {text}", humantime::format_rfc3339_millis(SystemTime::now()))),
            false => self.plain(text),
        }
    }

    /// One line without a stamp: JSON has its own.
    pub fn plain(&mut self, text: &str) {
        let written = match &mut self.file {
            // Flushed at each line: a user may follow the file.
            Some((_, file)) => writeln!(file, "{}", guarded(text)).and_then(|()| file.flush()),
            None => crate::terminal::try_out(format_args!("{text}\n")),
        };
        if let Err(error) = written {
            self.error.get_or_insert(error);
        }
    }

    /// All of it is written.
    ///
    /// # Errors
    /// The disk was full, or the reader of a pipe went away.
    pub fn flush(&mut self) -> Result<(), Failure> {
        match (self.error.take(), &self.file) {
            (None, _) => Ok(()),
            (Some(error), Some((path, _))) => Err(Failure::target(path, &error)),
            (Some(error), None) => Err(Failure::system("cannot write to standard output", error)),
        }
    }
}

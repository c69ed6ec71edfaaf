//! What is wrong with a node's file: which line, which key, and what to do about it.

use std::fmt;
use std::ops::Range;
use std::path::{Path, PathBuf};

/// One thing that is wrong.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Complaint {
    /// Line in the file, from 1.
    pub line: usize,
    /// Key, with its table.
    pub key: String,
    /// What is wrong and what to do.
    pub text: String,
}

/// Everything that is wrong with a file: it is better to hear it at once.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Complaints {
    /// Which file.
    pub file: PathBuf,
    /// In the order of lines; never empty in an error.
    pub all: Vec<Complaint>,
}

impl fmt::Display for Complaints {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (i, c) in self.all.iter().enumerate() {
            let lead = if i == 0 { "" } else { "\n         " };
            write!(f, "{lead}{}:{}: ", self.file.display(), c.line)?;
            if !c.key.is_empty() {
                write!(f, "{}: ", c.key)?;
            }
            f.write_str(&c.text)?;
        }
        Ok(())
    }
}

impl std::error::Error for Complaints {}

/// Collects complaints about one file.
#[derive(Debug)]
pub struct Book<'a> {
    file: &'a Path,
    content: &'a str,
    all: Vec<Complaint>,
    has_kinds: bool,
}

impl<'a> Book<'a> {
    /// An empty book for a file with this content.
    pub fn new(file: &'a Path, content: &'a str) -> Self {
        Self { file, content, all: Vec::new(), has_kinds: false }
    }

    /// The line of a place, from 1.
    pub fn line(&self, at: usize) -> usize {
        1 + self.content.as_bytes()[..at.min(self.content.len())].iter().filter(|byte| **byte == b'\n').count()
    }

    /// Enters a complaint about the value at `place`.
    pub fn complain(&mut self, place: Range<usize>, key: impl Into<String>, text: impl Into<String>) {
        let line = self.line(place.start);
        self.all.push(Complaint { line, key: key.into(), text: text.into() });
    }

    /// Enters what the TOML reader says.
    pub fn complain_of_syntax(&mut self, error: &toml::de::Error) {
        let line = self.line(error.span().map_or(0, |s| s.start));
        let text = format!("{}; noctule.toml(5) describes every table and key", error.message().trim_end().replace('\n', " "));
        self.all.push(Complaint { line, key: String::new(), text });
    }

    /// Enters what the TOML reader says about a value of the wrong kind, or a key that is missing.
    pub fn complain_of_kind(&mut self, error: &toml::de::Error) {
        self.complain_of_syntax(error);
        self.has_kinds = true;
    }

    /// Whether a value was of the wrong kind.
    pub fn has_kinds(&self) -> bool {
        self.has_kinds
    }

    /// `value`, unless there was something to complain of.
    pub fn close<T>(mut self, value: Option<T>) -> Result<T, Complaints> {
        match value {
            Some(value) if self.all.is_empty() => Ok(value),
            _ => {
                self.all.sort_by_key(|c| c.line);
                Err(Complaints { file: self.file.to_owned(), all: self.all })
            }
        }
    }
}

//! `noctule-lab oasis`: test files of Oasis, read as they are and run in the simulator or on namespaces.
//!
//! What Oasis would skip, cut or get wrong is said as a note with its place, and done as the file says. What this laboratory has not is
//! refused by name. [`suite`] reads tests, [`topology`] and [`protocols`] what they name, [`plan`] makes runs of them, [`command`] runs them.

pub mod command;
pub mod layout;
pub mod plan;
pub mod protocols;
pub mod suite;
mod table;
pub mod topology;
pub mod yaml;

use std::fmt;

pub use command::OasisArgs;
use table::Table;

/// Something that a reader of the file would want to know.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Note(String);

/// Notes in the order in which they came up.
pub type Notes = Vec<Note>;

impl Note {
    /// About a key of a table.
    pub(crate) fn at(table: &Table, key: &str, text: impl Into<String>) -> Self {
        Self::line(table, table.line(), key, text)
    }

    /// About a line in it.
    pub(crate) fn line(table: &Table, line: usize, key: &str, text: impl Into<String>) -> Self {
        Self(table.wrong(line, key, text).to_string())
    }

    /// About no place in particular.
    pub(crate) fn text(text: impl Into<String>) -> Self {
        Self(text.into())
    }
}

impl fmt::Display for Note {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

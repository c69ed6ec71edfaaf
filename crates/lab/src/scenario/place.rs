//! Where in a scenario file something stands, so that an error can name its line.

use std::fmt;

use toml::de::{DeTable, DeValue};

/// A key in a table of a scenario file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Place<'a> {
    /// Name of the table.
    pub(super) table: &'a str,
    /// Which of several tables of this name.
    pub(super) index: Option<usize>,
    /// The key; empty for the table itself.
    pub(super) key: &'a str,
}

impl Place<'_> {
    /// Its line in `text`, counted from 1; none if the text has no such key.
    pub(super) fn line(&self, text: &str) -> Option<usize> {
        let file = DeTable::parse(text).ok()?;
        let (name, value) = file.get_ref().iter().find(|(name, _)| name.get_ref() == self.table)?;
        let (start, table) = match (self.index, value.get_ref()) {
            (Some(i), DeValue::Array(list)) => (list.get(i)?.span().start, list.get(i)?.get_ref()),
            (None, table) => (name.span().start, table),
            _ => return None,
        };
        let key = table.as_table().and_then(|table| table.iter().find(|(key, _)| key.get_ref() == self.key));
        let at = key.map_or(start, |(key, _)| key.span().start);
        Some(text.get(..at)?.matches('\n').count() + 1)
    }
}

impl fmt::Display for Place<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.index {
            Some(i) => write!(f, "[[{}]] number {}", self.table, i + 1)?,
            None => write!(f, "[{}]", self.table)?,
        }
        if !self.key.is_empty() {
            write!(f, " {}", self.key)?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_key_is_found_in_its_table() {
        let text = "name = \"x\"\n\n[grid]\nloss = [\"1%\"]\n\n[[hop]]\nlink = 1\n[[hop]]\nlink = 2\nloss = \"3%\"\n";
        let line = |table, index, key| Place { table, index, key }.line(text);
        assert_eq!(line("grid", None, "loss"), Some(4));
        assert_eq!(line("hop", Some(1), "loss"), Some(10));
        assert_eq!(line("hop", Some(1), ""), Some(8));
        assert_eq!(line("hop", Some(2), "loss"), None);
        assert_eq!(line("quick", None, "loss"), None);
    }
}

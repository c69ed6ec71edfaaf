//! Published tables to stand beside a matrix: those in the program, and those of the user.

use super::assets::PUBLISHED;
use crate::matrix::{Beside, Summary};

/// Published tables: those in the program, and those of the user.
#[derive(Debug, Clone)]
pub struct Tables(Vec<Published>);

/// A published table, and what it was measured over.
#[derive(Debug, Clone)]
pub struct Published {
    table: Beside,
    pub(super) hops: Option<usize>,
}

impl Tables {
    /// Those in the program, then those of `files`.
    ///
    /// # Errors
    /// A file is no table.
    pub fn new(files: &[std::path::PathBuf]) -> Result<Self, crate::matrix::BesideError> {
        let mut tables = Vec::new();
        for (name, hops, text) in PUBLISHED {
            let table = Beside::parse(text, std::path::Path::new(&format!("{name}.csv")))?;
            tables.push(Published { table, hops: Some(hops) });
        }
        for file in files {
            tables.push(Published { table: Beside::read(file)?, hops: None });
        }
        Ok(Self(tables))
    }

    /// Their names.
    pub fn names(&self) -> Vec<&str> {
        self.0.iter().map(Published::name).collect()
    }

    /// One of them.
    pub fn get(&self, name: &str) -> Option<&Published> {
        self.0.iter().find(|table| table.name() == name)
    }

    /// Joins the first one that has a figure for any cell.
    pub fn first_that_fits(&self, summary: &mut Summary) -> Option<String> {
        self.0.iter().find(|table| table.join(summary)).map(|table| table.name().to_owned())
    }
}

impl Published {
    /// As it is asked for.
    pub fn name(&self) -> &str {
        &self.table.name
    }

    /// Puts its figures beside cells with as many hops; false if it has none for them.
    pub fn join(&self, summary: &mut Summary) -> bool {
        if self.table.join(summary).is_err() {
            return false;
        }
        for cell in &mut summary.cells {
            if self.hops.is_some_and(|hops| hops != cell.scenario.hops.len()) {
                cell.beside_mbit = None;
            }
        }
        summary.cells.iter().any(|cell| cell.beside_mbit.is_some())
    }
}

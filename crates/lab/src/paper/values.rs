//! Values that stand beside ours, by cell.

use super::data::CellRuns;
use super::figure::{Beside, Figure, Kind};
use super::published::Published;
use crate::scenario::Scenario;

/// Values of others, or of an equation.
#[derive(Debug)]
pub(super) struct Values {
    /// Whose.
    pub(super) name: &'static str,
    /// A cell that is worse than its value is lost.
    pub(super) is_rival: bool,
    source: Source,
}

#[derive(Debug)]
enum Source {
    Published(Published),
    Equation(fn(&Scenario) -> Option<f64>),
}

impl Values {
    fn of(beside: &Beside) -> Result<Self, String> {
        let source = match beside.kind {
            Kind::Equation(of) => Source::Equation(of),
            Kind::Published(text) => Source::Published(Published::parse(text).map_err(|e| format!("{}: {e}", beside.name))?),
        };
        Ok(Self { name: beside.name, is_rival: beside.is_rival, source })
    }

    /// What stands beside each table of a figure.
    ///
    /// # Errors
    /// A published table is wrong.
    pub(super) fn beside_tables(figure: &Figure) -> Result<Vec<Vec<Self>>, String> {
        figure.tables.iter().map(|table| table.besides.iter().map(Self::of).collect()).collect()
    }

    /// Where published ones come from; empty for an equation.
    pub(super) fn notes(&self) -> &str {
        match &self.source {
            Source::Published(table) => &table.notes,
            Source::Equation(_) => "",
        }
    }

    /// That of a cell, if it has one.
    pub(super) fn at(&self, cell: &CellRuns) -> Option<f64> {
        match &self.source {
            Source::Published(table) => table.of(&cell.settings),
            Source::Equation(of) => cell.scenario().and_then(of),
        }
    }
}

//! `noctule-lab matrix`: a grid of conditions, each cell run with several seeds, as tables and figures.
//!
//! A cell is what `noctule-lab sim` (or, with `--net`, `noctule-lab net`) does with the same flags; a list of cells is what a scenario
//! file has. [`flags`] and [`crate::scenario::ScenarioFile`] both give [`crate::scenario::Case`]s, and from there on there is one way.

mod beside;
mod command;
pub mod flags;
mod outcome;
mod summary;
mod table;

pub use beside::{Beside, BesideError};
pub use command::MatrixArgs;
pub(crate) use command::{FAILED, IMPOSSIBLE};
pub use flags::GridFlags;
pub use outcome::{Outcome, RunFailure};
#[cfg(test)]
pub(crate) use summary::tests::outcome as fixture;
pub use summary::{Axis, Cell, Spread, Summary, tell_apart};
pub(crate) use table::csv_field;
pub use table::{Heading, Layout, csv, markdown, plane_name};

//! `noctule-lab paper`: every figure and table of the founding documents beside ours, in the simulator.
//!
//! A figure (`figure`, listed in `catalogue`) is scenario files, what is read off their runs (`quantity`), and what was published
//! (`published`) or follows from an equation (`equation`), both as `values`. Cells are run by [`crate::sweep`], which keeps each;
//! `data` gathers them, `page` and `chart` write them down.

mod catalogue;
mod chart;
mod command;
mod data;
mod effort;
mod equation;
mod figure;
mod page;
mod published;
mod quantity;
mod values;

pub use catalogue::{ELSEWHERE, FIGURES};
pub use command::PaperArgs;
pub use figure::{Beside, Chart, Contender, Course, Elsewhere, Extra, Figure, Kind, Runs, Statistic, Table};
pub use quantity::Quantity;

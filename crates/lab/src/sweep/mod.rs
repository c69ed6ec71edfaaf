//! Many cells, each run once: on all cores of a machine, or one by one on machines that something else hands out.
//!
//! There is no engine here that talks to other machines. A list of cells is JSON, a cell has a number in it, and what came of it is a file
//! named by the hash of the cell and of the program ([`cell`]). That file is written whole or not at all, and a cell that has one is not run
//! again ([`folder`]). Schedulers hand out numbers ([`which`]); [`gather`] reads what they left.

pub mod cell;
pub mod command;
pub mod folder;
pub mod gather;
pub mod list;
pub mod run;
pub mod samples;
pub mod which;

pub use cell::{Build, Cell, Measured, Record, Second};
pub use folder::{Folder, FolderError};
pub use run::{Sweep, SweepError};

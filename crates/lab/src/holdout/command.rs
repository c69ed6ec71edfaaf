//! The command line of `noctule-lab holdout`.

use std::path::PathBuf;
use std::process::ExitCode;

use clap::Args;

use super::{Kind, cells, summary};
use crate::matrix::FAILED;
use crate::sim;
use crate::sweep::{Build, Cell, Folder, Sweep, command::announce};

/// Which draws.
#[derive(Debug, Clone, Args)]
pub struct DrawArgs {
    /// How many draws.
    #[arg(value_parser = clap::value_parser!(u64).range(1..=1_000_000))]
    pub count: u64,
    /// Seed of the set: with it and its number a draw is the same everywhere.
    #[arg(long)]
    pub seed: u64,
    /// What runs under the conditions.
    #[arg(long, value_enum, default_value_t)]
    pub kind: Kind,
    /// Number of the first draw.
    #[arg(long, default_value_t = 0)]
    pub first: u64,
}

/// `noctule-lab holdout`.
#[derive(Debug, Clone, Args)]
pub struct HoldoutArgs {
    /// Which draws.
    #[command(flatten)]
    pub draws: DrawArgs,
    /// Folder in which each result is kept as soon as it is there; what is there is not run again.
    #[arg(long, value_name = "DIR", default_value = "noctule-results")]
    pub results: PathBuf,
    /// Runs at the same time [default: one per core]. The results are the same for any number.
    #[arg(long, value_parser = clap::value_parser!(u16).range(1..))]
    pub workers: Option<u16>,
    /// Keep the course of each run beside its result, for `noctule-lab serve`.
    #[arg(long)]
    pub samples: bool,
    /// How many of the worst runs to print for each figure.
    #[arg(long, default_value_t = 10)]
    pub worst: usize,
    /// Print each result as a line of JSON, as `merge` reads it.
    #[arg(long)]
    pub json: bool,
    /// Print the commands and run nothing.
    #[arg(long, conflicts_with_all = ["json", "workers"])]
    pub list: bool,
}

impl DrawArgs {
    /// Their cells.
    pub fn cells(&self) -> Result<Vec<Cell>, String> {
        cells(self.kind, self.seed, self.first, self.count)
    }
}

impl HoldoutArgs {
    /// Runs and prints.
    pub fn execute(&self) -> Result<ExitCode, Box<dyn std::error::Error>> {
        let cells = self.draws.cells()?;
        if self.list {
            for cell in &cells {
                println!("{}", cell.case.command.as_deref().unwrap_or_default());
            }
            return Ok(ExitCode::SUCCESS);
        }
        let cells: Vec<(usize, Cell)> = cells.into_iter().enumerate().collect();
        let folder = Folder::open(&self.results)?;
        announce(folder.path())?;
        let build = Build::of_this_program()?;
        let workers = self.workers.map_or_else(sim::all_cores, usize::from);
        let records = Sweep { cells: &cells, folder: Some(&folder), build: &build, workers, samples: self.samples }.run()?;
        if self.json {
            for record in &records {
                println!("{}", serde_json::to_string(record)?);
            }
        } else {
            print!("{}", summary::text(&records, self.worst));
        }
        let is_clean = records.iter().all(|record| record.complaints().is_empty());
        Ok(if is_clean { ExitCode::SUCCESS } else { ExitCode::from(FAILED) })
    }
}

//! The command lines of `noctule-lab cells`, `cell` and `merge`.

use std::path::{Path, PathBuf};
use std::process::ExitCode;

use clap::{Args, Subcommand};

use super::cell::{Build, Cell, Record};
use super::folder::{self, Folder};
use super::gather::{gather, missing, ranges};
use super::list;
use super::run::Sweep;
use super::which::{Asked, Shard, VARIABLES, Which};
use crate::holdout::command::DrawArgs;
use crate::holdout::summary;
use crate::matrix::flags::GridFlags;
use crate::matrix::{FAILED, Heading, Layout, Summary, csv, markdown, tell_apart};
use crate::report::count;
use crate::scenario::Case;
use crate::sim;

type Failure = Box<dyn std::error::Error>;

/// `noctule-lab cells`.
#[derive(Debug, Clone, Args)]
#[command(args_conflicts_with_subcommands = true, subcommand_negates_reqs = true)]
pub struct CellsArgs {
    /// Scenario files (TOML).
    #[arg(required = true)]
    pub files: Vec<PathBuf>,
    /// All cells and all seeds, not only the quick subset.
    #[arg(long)]
    pub full: bool,
    /// Cells of something else.
    #[command(subcommand)]
    pub of: Option<CellsOf>,
}

/// What has cells besides files.
#[derive(Debug, Clone, Subcommand)]
pub enum CellsOf {
    /// Draws of `noctule-lab holdout`.
    Holdout(DrawArgs),
    /// A grid of flags, as `noctule-lab matrix` takes them.
    Matrix(Box<GridFlags>),
}

/// `noctule-lab cell`.
#[derive(Debug, Clone, Args)]
pub struct CellArgs {
    /// The list: what `noctule-lab cells` printed, or a scenario file.
    #[arg(long, value_name = "FILE")]
    pub of: PathBuf,
    /// With a scenario file: all cells and all seeds, not only the quick subset.
    #[arg(long)]
    pub full: bool,
    /// Number of the cell, from 0 [default: from SLURM_ARRAY_TASK_ID, HQ_TASK_ID, JOB_COMPLETION_INDEX, or PARALLEL_SEQ less one].
    #[arg(conflicts_with_all = ["shard", "shards", "index_from"])]
    pub number: Option<usize>,
    /// Run a part of the list instead: 3/16 is the third of sixteen.
    #[arg(long, value_name = "I/N", conflicts_with_all = ["shards", "index_from"])]
    pub shard: Option<Shard>,
    /// The same, the number of the part from the environment.
    #[arg(long, value_name = "N", value_parser = clap::builder::RangedU64ValueParser::<usize>::new().range(1..))]
    pub shards: Option<usize>,
    /// Which variable says the number, where several are set.
    #[arg(long, value_name = "VARIABLE", value_parser = VARIABLES.map(|(name, _)| name))]
    pub index_from: Option<String>,
    /// Folder in which results are kept; a cell that has one is not run.
    #[arg(long, value_name = "DIR", default_value = "noctule-results")]
    pub results: PathBuf,
    /// Cells at the same time [default: one per core].
    #[arg(long, value_parser = clap::value_parser!(u16).range(1..))]
    pub workers: Option<u16>,
    /// Keep the course of each cell beside its result, for `noctule-lab serve`.
    #[arg(long)]
    pub samples: bool,
}

/// `noctule-lab merge`.
#[derive(Debug, Clone, Args)]
pub struct MergeArgs {
    /// Folders of results, and files with a result per line.
    #[arg(required = true)]
    pub from: Vec<PathBuf>,
    /// The list that the results belong to: says which cells have none.
    #[arg(long, value_name = "FILE")]
    pub of: Option<PathBuf>,
    /// With a scenario file as the list: all cells and all seeds.
    #[arg(long, requires = "of")]
    pub full: bool,
    /// Take the results of this program only.
    #[arg(long, value_name = "NAME")]
    pub build: Option<String>,
    /// Write all results to a file, one per line.
    #[arg(long, value_name = "FILE")]
    pub jsonl: Option<PathBuf>,
    /// Write the cells of scenarios and grids as CSV.
    #[arg(long, value_name = "FILE")]
    pub csv: Option<PathBuf>,
    /// How many of the worst draws to print for each figure.
    #[arg(long, default_value_t = 10)]
    pub worst: usize,
}

/// Says where results go, now and when the user interrupts.
///
/// # Errors
/// The signals cannot be cared for.
pub fn announce(folder: &Path) -> std::io::Result<()> {
    let path = folder.display().to_string();
    eprintln!("results go to {path}; a run that was interrupted goes on from there");
    crate::net::scratch::end_on_signals(move || eprintln!("\ninterrupted: finished cells are in {path}, and the same command goes on"))
}

/// Runs cases in the simulator, into a folder if there is one; with `samples`, the course of each goes there too.
pub fn simulate(cases: &[Case], results: Option<&Path>, workers: usize, samples: bool) -> Result<Vec<Record>, Failure> {
    if samples && results.is_none() {
        return Err("--samples keeps the course of each run beside its result: name a folder for both by --results DIR".into());
    }
    let cells: Vec<(usize, Cell)> = cases.iter().cloned().map(Cell::from).enumerate().collect();
    let folder = results.map(Folder::open).transpose()?;
    if let Some(folder) = &folder {
        announce(folder.path())?;
    }
    let build = Build::of_this_program()?;
    Ok(Sweep { cells: &cells, folder: folder.as_ref(), build: &build, workers, samples }.run()?)
}

impl CellsArgs {
    /// Prints the list.
    pub fn execute(&self) -> Result<ExitCode, Failure> {
        let cells: Vec<Cell> = match &self.of {
            Some(CellsOf::Holdout(draws)) => draws.cells()?,
            Some(CellsOf::Matrix(grid)) => grid.cases()?.into_iter().map(Cell::from).collect(),
            None => {
                let mut cells = Vec::new();
                for path in &self.files {
                    cells.extend(list::read(path, self.full)?);
                }
                cells
            }
        };
        print!("{}", list::to_json(&cells)?);
        Ok(ExitCode::SUCCESS)
    }
}

impl CellArgs {
    /// Runs what is asked for. A cell that was run is a success whatever came of it: the scheduler has nothing to repeat.
    pub fn execute(&self) -> Result<ExitCode, Failure> {
        let asked = Asked { number: self.number, shard: self.shard, shards: self.shards, index_from: self.index_from.as_deref() };
        let which = Which::of(asked, |name| std::env::var(name).ok())?;
        let cells = which.of_list(list::read(&self.of, self.full)?)?;
        let folder = Folder::open(&self.results)?;
        announce(folder.path())?;
        let build = Build::of_this_program()?;
        let workers = self.workers.map_or_else(sim::all_cores, usize::from);
        let records = Sweep { cells: &cells, folder: Some(&folder), build: &build, workers, samples: self.samples }.run()?;
        for record in &records {
            let what = match (&record.measured, record.complaints()) {
                (super::Measured::Run { outcome, .. }, complaints) if complaints.is_empty() => format!("{} Mbit/s", outcome.goodput_mbit),
                (_, complaints) => complaints.join("; "),
            };
            println!("{} {} {}: {what}", record.id, record.place, record.cell.case.name);
        }
        Ok(ExitCode::SUCCESS)
    }
}

impl MergeArgs {
    /// Reads, writes, prints.
    pub fn execute(&self) -> Result<ExitCode, Failure> {
        let records = gather(&self.from, self.build.as_deref())?;
        let is_clean = records.iter().all(|record| record.complaints().is_empty());
        if let Some(path) = &self.jsonl {
            let mut text = String::new();
            for record in &records {
                text.push_str(&serde_json::to_string(record)?);
                text.push('\n');
            }
            folder::write_named(path, text.as_bytes())?;
        }
        let (draws, others): (Vec<Record>, Vec<Record>) = records.into_iter().partition(|record| record.cell.draw.is_some());
        print!("{}", summary::text(&draws, self.worst));
        if !others.is_empty() {
            let (mut cases, results): (Vec<Case>, Vec<_>) = others.iter().map(|record| (record.cell.case.clone(), record.result())).unzip();
            tell_apart(&mut cases);
            let summary = Summary::of(&cases, results);
            let heading = Heading {
                title: count(cases.len(), "run"),
                conditions: format!("in the simulator, noctule-lab {}", others[0].build),
                beside: None,
            };
            print!("{}", markdown(&summary, &Layout::of(&summary, None, None)?, &heading));
            if let Some(path) = &self.csv {
                folder::write_named(path, csv(&summary).as_bytes())?;
            }
        } else if self.csv.is_some() {
            return Err("--csv: these are draws of holdout; --jsonl keeps them".into());
        }
        let all: Vec<Record> = draws.into_iter().chain(others).collect();
        if let Some(path) = &self.of {
            let list = list::read(path, self.full)?;
            let missing = missing(&list, &all);
            if !missing.is_empty() {
                eprintln!("{} of {} cells have no result: {}", missing.len(), list.len(), ranges(&missing));
                return Ok(ExitCode::from(FAILED));
            }
        }
        Ok(if is_clean { ExitCode::SUCCESS } else { ExitCode::from(FAILED) })
    }
}

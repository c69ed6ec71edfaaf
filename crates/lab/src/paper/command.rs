//! The command line of `noctule-lab paper`.

use std::path::{Path, PathBuf};
use std::process::ExitCode;

use clap::Args;

use super::catalogue::{ELSEWHERE, FIGURES};
use super::chart;
use super::data::{Gathered, report};
use super::effort;
use super::figure::{Amount, Figure};
use super::page::{self, Entry, Head};
use super::values::Values;
use crate::cli::Quoted;
use crate::files::{self, Links};
use crate::matrix::FAILED;
use crate::report::count;
use crate::scenario::Case;
use crate::sim;
use crate::sweep::command::announce;
use crate::sweep::{Build, Cell, Folder, Sweep, folder};
use crate::without;

type Failure = Box<dyn std::error::Error>;

/// `noctule-lab paper`.
#[derive(Debug, Clone, Args)]
pub struct PaperArgs {
    /// Figures by their names; all without.
    pub figures: Vec<String>,
    /// Name each figure, its source, what is simulated and about how long that takes; run nothing.
    #[arg(long, conflicts_with = "out")]
    pub list: bool,
    /// Folder for pages, tables and drawings; `cells` in it keeps each run, and what is there is not run again.
    #[arg(long, value_name = "DIR", required_unless_present = "list")]
    pub out: Option<PathBuf>,
    /// A few small cells of each figure, one seed: a first look, not the figure.
    #[arg(long)]
    pub quick: bool,
    /// Only the first so many seeds of each scenario file; a file that has fewer runs all of its own.
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u16).range(1..))]
    pub seeds: Option<u16>,
    /// Runs at the same time [default: one per core]. The results are the same for any number.
    #[arg(long, value_parser = clap::value_parser!(u16).range(1..))]
    pub workers: Option<u16>,
}

impl PaperArgs {
    /// Lists, or runs and writes.
    pub fn execute(&self) -> Result<ExitCode, Failure> {
        let figures = self.chosen()?;
        let Some(out) = self.out.as_deref().filter(|_| !self.list) else {
            print!("{}", self.listed(&figures)?);
            return Ok(ExitCode::SUCCESS);
        };
        self.check_seeds(&figures)?;
        // Every file is read before the first run.
        let cases: Vec<Vec<Case>> = figures.iter().map(|figure| figure.cases(self.amount())).collect::<Result<_, _>>()?;
        let cells = Folder::open(&out.join("cells"))?;
        announce(cells.path())?;
        let build = Build::of_this_program()?;
        let mut has_failed = false;
        for (figure, cases) in figures.iter().zip(cases) {
            eprintln!("{}: {}", figure.id, figure.title);
            has_failed |= self.make(figure, cases, &cells, &build, out)?;
            folder::replace(&out.join("index.md"), page::index(&entries(out)).as_bytes())?;
        }
        eprintln!("{} in {}; begin with index.md", count(figures.len(), "figure"), out.display());
        Ok(if has_failed { ExitCode::from(FAILED) } else { ExitCode::SUCCESS })
    }

    fn amount(&self) -> Amount {
        Amount { is_quick: self.quick, seeds: self.seeds.map(usize::from) }
    }

    /// Refuses more seeds than any file of these figures has.
    fn check_seeds(&self, figures: &[&Figure]) -> Result<(), Failure> {
        let Some(asked) = self.seeds.map(usize::from) else { return Ok(()) };
        let mut most = 0;
        for runs in figures.iter().flat_map(|figure| figure.runs) {
            most = most.max(runs.seeds()?);
        }
        if asked > most {
            return Err(format!("--seeds {asked}: no file of these figures has more than {}", count(most, "seed")).into());
        }
        Ok(())
    }

    /// The figures that are asked for, in the order of the documents.
    fn chosen(&self) -> Result<Vec<&'static Figure>, Failure> {
        for name in &self.figures {
            if let Some(elsewhere) = ELSEWHERE.iter().find(|elsewhere| elsewhere.id == name) {
                return Err(format!("{name} is not made in the simulator: {}", elsewhere.reason).into());
            }
            if !FIGURES.iter().any(|figure| figure.id == name) {
                let names: Vec<&str> = FIGURES.iter().map(|figure| figure.id).collect();
                return Err(format!("no figure is named {name}; there are {}", names.join(", ")).into());
            }
        }
        let is_chosen = |figure: &&Figure| self.figures.is_empty() || self.figures.iter().any(|name| name == figure.id);
        Ok(FIGURES.iter().copied().filter(is_chosen).collect())
    }

    fn listed(&self, figures: &[&Figure]) -> Result<String, Failure> {
        use std::fmt::Write;
        let mut out = String::new();
        self.check_seeds(figures)?;
        for figure in figures {
            let cases = figure.cases(self.amount())?;
            let seconds: f64 = cases.iter().map(|case| effort::seconds(&case.scenario)).sum();
            let workers = self.workers.map_or_else(sim::all_cores, usize::from);
            let files: Vec<&str> = figure.runs.iter().map(|runs| runs.path).collect();
            let time = effort::words(seconds / workers as f64);
            // Writing to a String cannot fail.
            let _ = writeln!(out, "{}\n    {}\n    {}", figure.id, figure.title, figure.source);
            let _ = writeln!(out, "    {}", figure.setup);
            let _ = writeln!(out, "    {} of {}, {time} on {}\n", count(cases.len(), "run"), files.join(", "), count(workers, "core"));
        }
        if self.figures.is_empty() {
            let _ = writeln!(out, "Not made by the simulator:\n");
            for elsewhere in ELSEWHERE {
                let _ = writeln!(out, "{}\n    {}\n    {}\n    {}\n", elsewhere.id, elsewhere.title, elsewhere.source, elsewhere.reason);
            }
        }
        Ok(out)
    }

    /// Runs what is missing of a figure and writes its files; whether a run does not count.
    fn make(&self, figure: &Figure, cases: Vec<Case>, cells: &Folder, build: &Build, out: &Path) -> Result<bool, Failure> {
        for runs in figure.runs {
            let (asked, seeds) = (self.seeds.map_or(0, usize::from), runs.seeds()?);
            if asked > seeds {
                eprintln!("{} has only {}: all of them are run", runs.path, count(seeds, "seed"));
            }
        }
        let is_whole = !self.quick && cases.len() == figure.cases(Amount { is_quick: false, seeds: None })?.len();
        let list: Vec<(usize, Cell)> = cases.into_iter().map(Cell::from).enumerate().collect();
        let workers = self.workers.map_or_else(sim::all_cores, usize::from);
        let records = Sweep { cells: &list, folder: Some(cells), build, workers, samples: false }.run()?;
        let has_failed = records.iter().any(|record| report(record).is_none());
        let gathered = Gathered::of(records);
        let values = Values::beside_tables(figure).map_err(|e| format!("{}: {e}", figure.id))?;
        let mut drawings = Vec::new();
        let drawn = chart::drawings(figure, &gathered, &values)?;
        let is_alone = drawn.len() == 1;
        for ((shows, svg), number) in drawn.into_iter().zip(1..) {
            let name = if is_alone { format!("{}.svg", figure.id) } else { format!("{}-{number}.svg", figure.id) };
            folder::replace(&out.join(&name), svg.as_bytes())?;
            drawings.push((name, shows));
        }
        let further = page::further(figure, &gathered);
        for (name, text) in &further {
            folder::replace(&out.join(name), text.as_bytes())?;
        }
        folder::replace(&out.join(format!("{}.csv", figure.id)), page::csv(figure, &gathered).as_bytes())?;
        let files: Vec<String> = further.into_iter().map(|(name, _)| name).collect();
        let head = Head { command: &self.command(figure, out), build: build.name(), drawings: &drawings, files: &files, is_whole };
        let page = page::page(figure, &gathered, &values, &head);
        folder::replace(&out.join(format!("{}.md", figure.id)), page.text.as_bytes())?;
        eprintln!("{}: {}", figure.id, lost_in_words(page.lost));
        Ok(has_failed)
    }

    /// The command that makes this figure alone.
    fn command(&self, figure: &Figure, out: &Path) -> String {
        let mut command = format!("noctule-lab paper {} --out {}", figure.id, Quoted(&out.to_string_lossy()));
        if self.quick {
            command += " --quick";
        }
        if let Some(seeds) = self.seeds {
            command += &format!(" --seeds {seeds}");
        }
        command + &without::flag()
    }
}

fn lost_in_words(lines: usize) -> String {
    match lines {
        0 => "nothing lost".to_owned(),
        lines => format!("{} of what was lost", count(lines, "line")),
    }
}

/// All figures with what is in the folder of each.
fn entries(out: &Path) -> Vec<Entry> {
    let made = FIGURES.iter().map(|figure| {
        let page = files::text(&out.join(format!("{}.md", figure.id)), Links::Refuse, files::MOST_BYTES).ok();
        let state = match &page {
            None => "not made yet".to_owned(),
            Some(page) => lost_in_words(page::lost_in(page)),
        };
        Entry { id: figure.id, title: figure.title, source: figure.source, state, has_page: page.is_some() }
    });
    let elsewhere = ELSEWHERE.iter().map(|elsewhere| Entry {
        id: elsewhere.id,
        title: elsewhere.title,
        source: elsewhere.source,
        state: format!("not made by the simulator: {}", elsewhere.reason),
        has_page: false,
    });
    let mut entries: Vec<Entry> = made.chain(elsewhere).collect();
    entries.sort_by_key(|entry| entry.id);
    entries
}

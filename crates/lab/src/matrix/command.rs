//! The command line of `noctule-lab matrix`.

use std::path::PathBuf;
use std::process::ExitCode;

use clap::Args;

use super::beside::Beside;
use super::flags::GridFlags;
use super::outcome::{Outcome, RunFailure};
use super::summary::Summary;
use super::table::{Heading, Layout, csv, markdown};
use crate::net::chain::BackendChoice;
use crate::net::command::{code_of, prepare};
use crate::net::emulator::Tolerance;
use crate::net::run::{Peer, Settings};
use crate::plot::MatrixFigure;
use crate::report::Progress;
use crate::scenario::{Case, ScenarioFile};
use crate::sim;
use crate::sweep;

/// A run was made and failed, or an expectation was not met.
pub(crate) const FAILED: u8 = 1;
/// A run could not be made.
pub(crate) const IMPOSSIBLE: u8 = 2;

/// `noctule-lab matrix`.
#[derive(Debug, Clone, Args)]
pub struct MatrixArgs {
    /// Scenario files (TOML) whose cells to run, instead of flags.
    pub files: Vec<PathBuf>,
    /// With files: all cells and all seeds, not only the quick subset.
    #[arg(long)]
    pub full: bool,
    /// The grid: the flags of `sim`, each with one value or with a list.
    #[command(flatten)]
    pub grid: GridFlags,
    /// Run on network namespaces, one after the other, instead of in the simulator.
    #[arg(long)]
    pub net: bool,
    /// With --net: the sender.
    #[arg(long, value_enum, requires = "net")]
    pub peer: Option<Peer>,
    /// With --net: what emulates the links.
    #[arg(long, value_enum, requires = "net")]
    pub backend: Option<BackendChoice>,
    /// Runs at the same time in the simulator [default: one per core]. The results are the same for any number.
    #[arg(long, conflicts_with = "net", value_parser = clap::value_parser!(u16).range(1..))]
    pub workers: Option<u16>,
    /// Folder in which each result is kept as soon as it is there; what is there is not run again.
    #[arg(long, value_name = "DIR", conflicts_with = "net")]
    pub results: Option<PathBuf>,
    /// Keep the course of each run in the folder of --results too, for `noctule-lab serve`.
    #[arg(long, conflicts_with = "net")]
    pub samples: bool,
    /// A published table to print beside ours: rate,delay,loss,mbit (any keys of a link, and mbit).
    #[arg(long, value_name = "FILE.csv")]
    pub beside: Option<PathBuf>,
    /// Title of tables and figures.
    #[arg(long)]
    pub title: Option<String>,
    /// Axis that goes downwards [default: loss].
    #[arg(long, value_name = "KEY")]
    pub rows: Option<String>,
    /// Axis that goes to the right [default: delay].
    #[arg(long, value_name = "KEY")]
    pub columns: Option<String>,
    /// Write one line per cell.
    #[arg(long, value_name = "FILE")]
    pub csv: Option<PathBuf>,
    /// Write everything, every run included.
    #[arg(long, value_name = "FILE")]
    pub json: Option<PathBuf>,
    /// Write the tables that are printed.
    #[arg(long, value_name = "FILE")]
    pub markdown: Option<PathBuf>,
    /// Draw shares as a heat map.
    #[arg(long, value_name = "FILE.svg")]
    pub heatmap: Option<PathBuf>,
    /// Draw goodput as bars in three dimensions.
    #[arg(long, value_name = "FILE.svg")]
    pub bars: Option<PathBuf>,
}

type Failure = Box<dyn std::error::Error>;

impl MatrixArgs {
    /// Runs, prints, writes.
    pub fn execute(&self) -> Result<ExitCode, Failure> {
        let (cases, heading) = self.cases()?;
        let beside = self.beside.as_deref().map(Beside::read).transpose()?;
        let heading = Heading { beside: beside.as_ref().map(|table| table.name.clone()), ..heading };
        // What is wrong with the layout or the table is said before an hour of runs, not after it.
        self.arrange(&cases, Vec::new(), beside.as_ref())?;
        self.refuse_unwritable()?;
        let results = if self.net { self.on_namespaces(&cases)? } else { self.simulated(&cases)? };
        let code = results.iter().filter_map(|r| r.as_ref().err()).map(|failure| failure.code).max();
        let (summary, layout) = self.arrange(&cases, results, beside.as_ref())?;
        let text = markdown(&summary, &layout, &heading);
        print!("{text}");
        let write = |path: &Option<PathBuf>, text: &dyn Fn() -> Result<String, Failure>| -> Result<(), Failure> {
            if let Some(path) = path {
                std::fs::write(path, text()?).map_err(|e| format!("{}: {e}", path.display()))?;
            }
            Ok(())
        };
        write(&self.markdown, &|| Ok(text.clone()))?;
        write(&self.csv, &|| Ok(csv(&summary)))?;
        write(&self.json, &|| {
            let value = serde_json::json!({
                "title": heading.title, "conditions": heading.conditions, "beside": heading.beside, "matrix": summary,
            });
            Ok(serde_json::to_string_pretty(&value)? + "\n")
        })?;
        let figure = MatrixFigure { heading: &heading, summary: &summary, layout: &layout };
        write(&self.heatmap, &|| Ok(figure.heatmap()?))?;
        write(&self.bars, &|| Ok(figure.bars()?))?;
        Ok(match code {
            Some(code) => ExitCode::from(code),
            None if summary.is_clean() => ExitCode::SUCCESS,
            None => ExitCode::from(FAILED),
        })
    }

    /// The cells of the files or of the flags.
    fn cases(&self) -> Result<(Vec<Case>, Heading), Failure> {
        let backend = match (self.net, self.peer) {
            (false, _) => "in the simulator".to_owned(),
            (true, peer) => {
                format!("on network namespaces, {} sends", serde_json::to_value(peer.unwrap_or_default())?.as_str().unwrap_or(""))
            }
        };
        let title = |usual: &str| self.title.clone().unwrap_or_else(|| usual.to_owned());
        if self.files.is_empty() {
            if self.full {
                return Err("--full belongs to scenario files".into());
            }
            let cases = self.grid.cases()?;
            let conditions = conditions(&self.grid.conditions(), &cases, &backend);
            return Ok((cases, Heading { title: title("noctule-lab matrix"), conditions, beside: None }));
        }
        if self.grid.describes_a_run() {
            return Err("scenario files describe their runs; of the flags of a run only --seed goes with them".into());
        }
        let seeds = self.grid.seeds()?;
        let (mut cases, mut names) = (Vec::new(), Vec::new());
        for path in &self.files {
            let mut file = ScenarioFile::read(path)?;
            if !seeds.is_empty() {
                file.run.seeds.clone_from(&seeds);
            }
            let mut of_file = file.cases_of(self.full, self.full || !seeds.is_empty()).map_err(|e| format!("{}: {e}", path.display()))?;
            if self.files.len() > 1 {
                for case in &mut of_file {
                    case.cell.insert(0, ("scenario".to_owned(), file.name.clone()));
                }
            }
            cases.extend(of_file);
            names.push(file.name);
        }
        let conditions = conditions("", &cases, &backend);
        Ok((cases, Heading { title: title(&names.join(", ")), conditions, beside: None }))
    }

    fn arrange(
        &self,
        cases: &[Case],
        mut results: Vec<Result<Outcome, RunFailure>>,
        beside: Option<&Beside>,
    ) -> Result<(Summary, Layout), Failure> {
        let not_yet = |case: &Case| Err(RunFailure { seed: case.scenario.seed, reason: "not run".to_owned(), code: IMPOSSIBLE });
        results.extend(cases.iter().skip(results.len()).map(not_yet));
        let mut summary = Summary::of(cases, results);
        if let Some(table) = beside {
            table.join(&mut summary)?;
        }
        let layout = Layout::of(&summary, self.rows.as_deref(), self.columns.as_deref())?;
        Ok((summary, layout))
    }

    /// A result that cannot be written is an hour lost.
    fn refuse_unwritable(&self) -> Result<(), Failure> {
        for path in [&self.csv, &self.json, &self.markdown, &self.heatmap, &self.bars].into_iter().flatten() {
            std::fs::OpenOptions::new()
                .append(true)
                .create(true)
                .open(path)
                .map_err(|e| format!("{} cannot be written: {e}", path.display()))?;
        }
        Ok(())
    }

    fn simulated(&self, cases: &[Case]) -> Result<Vec<Result<Outcome, RunFailure>>, Failure> {
        let workers = self.workers.map_or_else(sim::all_cores, usize::from);
        let records = sweep::command::simulate(cases, self.results.as_deref(), workers, self.samples)?;
        Ok(records.iter().map(sweep::Record::result).collect())
    }

    /// One after the other: two emulators on one machine would measure each other.
    fn on_namespaces(&self, cases: &[Case]) -> Result<Vec<Result<Outcome, RunFailure>>, Failure> {
        prepare()?;
        let settings =
            Settings { peer: self.peer.unwrap_or_default(), backend: self.backend.unwrap_or_default(), tolerance: Tolerance::default() };
        // A run takes as long as it says, whatever its rate.
        let seconds = |case: &Case| case.scenario.seconds.0.as_secs_f64();
        let progress = Progress::new(cases.iter().map(seconds));
        let run = |case: &Case| {
            let result = crate::net::run::run(&case.scenario, &settings);
            progress.done(&case.name, seconds(case));
            match result {
                Ok(report) => Ok(Outcome::of_net(&report, &case.expect)),
                Err(error) => Err(RunFailure { seed: case.scenario.seed, reason: error.to_string(), code: code_of(&error) }),
            }
        };
        Ok(cases.iter().map(run).collect())
    }
}

/// What all cells have in common, and how they were run.
fn conditions(given: &str, cases: &[Case], backend: &str) -> String {
    type Text<'a> = &'a dyn Fn(&Case) -> String;
    let mut seeds: Vec<u64> = cases.iter().map(|case| case.scenario.seed).collect();
    seeds.sort_unstable();
    seeds.dedup();
    let seeds = match seeds[..] {
        [seed] => format!("seed {seed}"),
        _ => format!("median of seeds {}", seeds.iter().map(u64::to_string).collect::<Vec<_>>().join(", ")),
    };
    let same = |text: Text<'_>| cases.first().map(text).filter(|first| cases.iter().all(|case| text(case) == *first));
    let mut words: Vec<String> = Vec::new();
    // Named even where nobody gave them: a figure is nothing without them.
    let named = |key: &str| format!(", {given}").contains(&format!(", {key} "));
    let usual: [(&str, Text<'_>); 4] = [
        ("queue", &|case| format!("queue {}", case.scenario.hops[0].forward.queue)),
        ("mode", &|case| format!("mode {}", case.scenario.mode)),
        ("cc", &|case| format!("cc {}", case.scenario.cc)),
        ("workload", &|case| format!("workload {}", case.scenario.workload)),
    ];
    words.extend(Some(given.to_owned()).filter(|text| !text.is_empty()));
    words.extend(usual.iter().filter(|(key, _)| !named(key)).filter_map(|(_, text)| same(*text)));
    words.extend([seeds, backend.to_owned()]);
    words.join(", ")
}

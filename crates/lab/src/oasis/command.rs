//! The command line of `noctule-lab oasis`.

use std::fmt::Write;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use clap::Args;

use super::plan::{self, Place, Run, What};
use super::suite::{self, Test};
use super::{Notes, layout};
use crate::matrix::{FAILED, IMPOSSIBLE, Outcome};
use crate::net::chain::BackendChoice;
use crate::net::command::{code_of, prepare};
use crate::net::emulator::Tolerance;
use crate::net::run::Settings;
use crate::report::Progress;
use crate::scenario::{Case, Expectations};
use crate::sim;
use crate::sweep::{self, Measured, folder::replace};

/// `noctule-lab oasis`.
#[derive(Debug, Clone, Args)]
pub struct OasisArgs {
    /// A test file of Oasis and, after a colon, the test; without it all of them.
    #[arg(value_name = "FILE.yaml[:TEST]")]
    pub file: String,
    /// The folder with the files that tests name: predefined.protocols.yaml, topologies, matrices.
    #[arg(short = 'p', value_name = "CONFIGDIR")]
    pub config: PathBuf,
    /// Run on network namespaces, one after the other, with the kernel's TCP, instead of in the simulator.
    #[arg(long)]
    pub net: bool,
    /// Read everything, say what would run and what would not, and run nothing.
    #[arg(long)]
    pub check: bool,
    /// Write results where Oasis puts them: DIR/test_results/TEST/topology-N/.
    #[arg(long, value_name = "DIR", conflicts_with = "check")]
    pub out: Option<PathBuf>,
    /// In the simulator: folder in which each result is kept as soon as it is there; what is there is not run again.
    #[arg(long, value_name = "DIR", conflicts_with_all = ["net", "check"])]
    pub results: Option<PathBuf>,
    /// In the simulator: runs at the same time [default: one per core].
    #[arg(long, conflicts_with = "net", value_parser = clap::value_parser!(u16).range(1..))]
    pub workers: Option<u16>,
    /// Seed of everything random in the links.
    #[arg(long, default_value_t = 7)]
    pub seed: u64,
    /// Print a JSON array.
    #[arg(long)]
    pub json: bool,
}

type Failure = Box<dyn std::error::Error>;

/// What came of a run.
struct Finished {
    outcome: Outcome,
    by_second: Vec<f64>,
}

/// A run that could not be made, and the exit code that says so.
struct NotMade {
    reason: String,
    code: u8,
}

/// Of one run.
type Came = Result<Finished, NotMade>;

impl OasisArgs {
    /// Reads, runs, prints, writes.
    pub fn execute(&self) -> Result<ExitCode, Failure> {
        if !self.config.is_dir() {
            return Err(format!("-p {}: no such folder", self.config.display()).into());
        }
        let (path, only) = suite::file_and_test(&self.file, &self.config);
        let place = if self.net { Place::Namespaces } else { Place::Simulator };
        let mut notes = Notes::new();
        let tests = suite::tests(&path, only.as_deref(), &self.config, &mut notes)?;
        let mut planned: Vec<(Test, Vec<Run>)> = Vec::new();
        for test in tests {
            let runs = plan::runs(&test, place, self.seed, &mut notes)?;
            planned.push((test, runs));
        }
        notes.dedup();
        for note in &notes {
            eprintln!("note: {note}");
        }
        if self.check {
            for (test, runs) in &planned {
                print!("{}", plan_text(test, runs));
            }
            return Ok(ExitCode::SUCCESS);
        }
        let flat: Vec<(&Test, &Run)> = planned.iter().flat_map(|(test, runs)| runs.iter().map(move |run| (test, run))).collect();
        let results = if self.net { on_namespaces(&flat)? } else { self.simulated(&flat)? };
        if self.json {
            let objects: Vec<_> = flat.iter().zip(&results).map(|((test, run), result)| json(test, run, result)).collect();
            println!("{}", serde_json::to_string_pretty(&objects)?);
        } else {
            print!("{}", table(&flat, &results));
        }
        if let Some(out) = &self.out {
            write_out(out, &flat, &results)?;
        }
        Ok(ExitCode::from(code(&flat, &results)))
    }

    fn simulated(&self, runs: &[(&Test, &Run)]) -> Result<Vec<Came>, Failure> {
        let cases: Vec<Case> = runs.iter().filter_map(|(test, run)| Some(case(test, run, run.what.as_ref().ok()?))).collect();
        let workers = self.workers.map_or_else(sim::all_cores, usize::from);
        let mut records = sweep::command::simulate(&cases, self.results.as_deref(), workers, false)?.into_iter();
        let mut next = || match records.next().map(|record| record.measured) {
            Some(Measured::Run { outcome, report, .. }) => {
                Ok(Finished { outcome, by_second: report.map(|report| report.goodput_mbit_by_second).unwrap_or_default() })
            }
            Some(Measured::NotRun { reason }) => Err(NotMade { reason, code: IMPOSSIBLE }),
            None => Err(NotMade { reason: "no result".to_owned(), code: IMPOSSIBLE }),
        };
        let result = |(_, run): &(&Test, &Run)| match &run.what {
            Ok(_) => next(),
            Err(reason) => Err(NotMade { reason: reason.clone(), code: IMPOSSIBLE }),
        };
        Ok(runs.iter().map(result).collect())
    }
}

fn case(test: &Test, run: &Run, what: &What) -> Case {
    let texts = [
        ("test", test.name.clone()),
        ("topology", run.round.to_string()),
        ("protocol", run.protocol.name.clone()),
        ("tool", run.tool.name.clone()),
    ];
    Case {
        name: format!("{} topology-{} {} {}", test.name, run.round, run.protocol.name, run.tool.name),
        cell: texts.map(|(key, value)| (key.to_owned(), value)).to_vec(),
        scenario: what.scenario.clone(),
        expect: Expectations::default(),
        command: None,
    }
}

/// One after the other: two emulators on one machine would measure each other.
fn on_namespaces(runs: &[(&Test, &Run)]) -> Result<Vec<Came>, Failure> {
    prepare()?;
    let seconds = |run: &Run| run.what.as_ref().map_or(0.0, |what| what.scenario.seconds.0.as_secs_f64());
    let progress = Progress::new(runs.iter().filter(|(_, run)| run.what.is_ok()).map(|(_, run)| seconds(run)));
    let one = |(test, run): &(&Test, &Run)| {
        let what = run.what.as_ref().map_err(|reason| NotMade { reason: reason.clone(), code: IMPOSSIBLE })?;
        let settings = Settings { peer: what.peer, backend: BackendChoice::default(), tolerance: Tolerance::default() };
        let result = crate::net::run::run(&what.scenario, &settings);
        progress.done(&format!("{} topology-{} {}", test.name, run.round, run.protocol.name), seconds(run));
        match result {
            Ok(report) => {
                Ok(Finished { outcome: Outcome::of_net(&report, &Expectations::default()), by_second: report.goodput_mbit_by_second })
            }
            Err(error) => Err(NotMade { reason: error.to_string(), code: code_of(&error) }),
        }
    };
    Ok(runs.iter().map(one).collect())
}

/// Failed runs and runs that were not made count, unless their test allows failure.
fn code(runs: &[(&Test, &Run)], results: &[Came]) -> u8 {
    let of = |((test, _), result): (&(&Test, &Run), &Came)| match result {
        _ if test.allow_failure => 0,
        Ok(finished) if finished.outcome.violations.is_empty() => 0,
        Ok(_) => FAILED,
        Err(not_made) => not_made.code,
    };
    runs.iter().zip(results).map(of).max().unwrap_or(0)
}

fn plan_text(test: &Test, runs: &[Run]) -> String {
    // Writing to a String cannot fail, here and below.
    let mut out = String::new();
    let _ = writeln!(out, "{}: {}, {} rounds, {} runs", test.name, test.route, test.topology.rounds.len(), runs.len());
    for run in runs {
        let what = match &run.what {
            Ok(what) => {
                format!("{}, {} over {} links, {}", what.sender, what.scenario.workload, what.scenario.hops.len(), what.scenario.seconds)
            }
            Err(reason) => format!("not run: {reason}"),
        };
        let _ = writeln!(out, "  topology-{} {} {}: {what}", run.round, run.protocol.name, run.tool.name);
    }
    out
}

fn number(value: Option<f64>, digits: usize) -> String {
    value.map_or("-".to_owned(), |value| format!("{value:.digits$}"))
}

fn table(runs: &[(&Test, &Run)], results: &[Came]) -> String {
    let mut out = String::new();
    let mut before = "";
    for ((test, run), result) in runs.iter().zip(results) {
        if before != test.name {
            let _ = writeln!(out, "## {}\n", test.name);
            let _ = writeln!(
                out,
                "| topology | links | protocol | tool | runs as | Mbit/s | share of the limit | rtt mean ms | rtt p99 ms | lost | result |"
            );
            let _ = writeln!(out, "|{}", "---|".repeat(11));
            before = &test.name;
        }
        let links = test.topology.describe(run.round).replace('\n', " ");
        let head = format!("| topology-{} | {links} | {} | {} |", run.round, run.protocol.name, run.tool.name);
        let _ = match result {
            Ok(Finished { outcome, .. }) => {
                let verdict =
                    if outcome.violations.is_empty() { "passed".to_owned() } else { format!("failed: {}", outcome.violations.join("; ")) };
                let sender = run.what.as_ref().map_or("", |what| &what.sender);
                let (mbit, share) = (number(Some(outcome.goodput_mbit), 2), number(outcome.share, 3));
                let (mean, p99, lost) = (number(outcome.rtt_ms_mean, 2), number(outcome.rtt_ms_p99, 2), number(outcome.residual_loss, 4));
                writeln!(out, "{head} {sender} | {mbit} | {share} | {mean} | {p99} | {lost} | {verdict} |")
            }
            Err(not_made) => writeln!(out, "{head} - | - | - | - | - | - | not run: {} |", not_made.reason),
        };
    }
    out
}

fn json(test: &Test, run: &Run, result: &Came) -> serde_json::Value {
    let (outcome, not_run) = match result {
        Ok(finished) => (Some(&finished.outcome), None),
        Err(not_made) => (None, Some(&not_made.reason)),
    };
    serde_json::json!({
        "test": test.name, "topology": run.round, "links": test.topology.describe(run.round), "protocol": run.protocol.name, "tool": run.tool.name,
        "sender": run.what.as_ref().ok().map(|what| &what.sender), "outcome": outcome, "not_run": not_run,
    })
}

/// Logs, descriptions, a table of throughput, and the word that CI looks at.
fn write_out(out: &Path, runs: &[(&Test, &Run)], results: &[Came]) -> Result<(), Failure> {
    let make = |folder: &Path| std::fs::create_dir_all(folder).map_err(|e| format!("{} cannot be made: {e}", folder.display()));
    make(out)?;
    let mut csv = String::from("test,topology,latency_ms,loss_percent,protocol,tool,mbit\n");
    for ((test, run), result) in runs.iter().zip(results) {
        let folder = out.join("test_results").join(layout::safe(&test.name)).join(format!("topology-{}", run.round));
        make(&folder)?;
        replace(&folder.join("topology_description.txt"), test.topology.describe(run.round).as_bytes())?;
        let (Ok(finished), Ok(what)) = (result, &run.what) else { continue };
        let seconds = what.scenario.seconds.0.as_secs_f64();
        let log = layout::log(&run.tool, &what.sender, &finished.outcome, &finished.by_second, seconds);
        replace(&folder.join(layout::safe(&layout::log_name(run))), log.as_bytes())?;
        if let Some(shape) = test.topology.rounds[run.round].first() {
            let _ = writeln!(
                csv,
                "{},{},{},{},{},{},{}",
                layout::safe(&test.name),
                run.round,
                shape.latency[0],
                shape.loss[0],
                layout::safe(&run.protocol.name),
                layout::safe(&run.tool.name),
                finished.outcome.goodput_mbit
            );
        }
    }
    replace(&out.join("throughput_latency_loss.csv"), csv.as_bytes())?;
    let verdict = if code(runs, results) == 0 { "test.success" } else { "test.failed" };
    for old in ["test.success", "test.failed"] {
        let _ = std::fs::remove_file(out.join(old));
    }
    let failed: Vec<&str> = runs
        .iter()
        .zip(results)
        .filter(|(run, result)| code(&[**run], std::slice::from_ref(*result)) != 0)
        .map(|((test, _), _)| &*test.name)
        .collect();
    replace(&out.join(verdict), failed.first().copied().unwrap_or_default().as_bytes())?;
    Ok(())
}

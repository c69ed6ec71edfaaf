//! The noctule laboratory: the command line. What it does is in the library.

use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::{Arc, Mutex, PoisonError};

use clap::Parser;
use noctule_lab::capture::{self, CaptureArgs};
use noctule_lab::cli::{Cli, Command, RunArgs};
use noctule_lab::report::{Report, Row, count, differences, grid_table, run_table, shares_table};
use noctule_lab::scenario::{Case, ScenarioFile};
use noctule_lab::sim;
use noctule_lab::sweep::command::simulate as simulate_cases;
use noctule_lab::sweep::samples::{Head, SampleFile, this_command};
use noctule_lab::sweep::{Measured, Record};
use noctule_lab::without;

/// The run was made and failed: wrong bytes, an impossible share, an expectation that was not met.
const FAILED: u8 = 1;
/// The run could not be made.
const IMPOSSIBLE: u8 = 2;

fn main() -> ExitCode {
    let cli = Cli::parse();
    execute(cli).unwrap_or_else(|error| {
        eprintln!("noctule-lab: {error}");
        ExitCode::from(IMPOSSIBLE)
    })
}

fn execute(cli: Cli) -> Outcome {
    if !cli.without.is_empty() && cli.is_beyond_switches() {
        return Err("--without: only runs of the simulator can leave mechanisms out (sim, run, matrix, holdout, cell, paper)".into());
    }
    without::set(&cli.without)?;
    if !cli.without.is_empty() {
        eprintln!("noctule-lab: without {}", without::names().join(", "));
    }
    match cli.command {
        Command::Sim { run, json, pcap, samples, capture } => simulate(&run, json, pcap.as_deref(), samples.as_deref(), &capture),
        Command::Run { files, full, json, results, samples, against, update } => {
            run_files(&files, full, json, (results.as_deref(), samples), against.as_deref().map(|path| (path, update)))
        }
        Command::Holdout(holdout) => holdout.execute(),
        Command::Cells(cells) => cells.execute(),
        Command::Cell(cell) => cell.execute(),
        Command::Merge(merge) => merge.execute(),
        Command::Oasis(oasis) => oasis.execute(),
        Command::Paper(paper) => paper.execute(),
        Command::Matrix(matrix) => matrix.execute(),
        Command::Serve(serve) => serve.execute(),
        Command::Export(export) => export.execute(),
        Command::Demo(demo) => Ok(demo.execute()),
        Command::Net(net) => Ok(net.execute()),
        Command::Mininet(mininet) => mininet.execute(),
        Command::Link(link) => Ok(link.execute()),
        Command::Proxy(proxy) => proxy.execute(),
        Command::Fidelity(fidelity) => Ok(fidelity.execute()),
        Command::Mechanisms => {
            print!("{}", without::list()?);
            Ok(ExitCode::SUCCESS)
        }
    }
}

type Outcome = Result<ExitCode, Box<dyn std::error::Error>>;

fn simulate(args: &RunArgs, json: bool, pcap: Option<&Path>, samples: Option<&Path>, capture: &CaptureArgs) -> Outcome {
    let report = match (pcap, capture.folder()?) {
        (Some(path), _) => captured(args, path, capture.capture_limit)?,
        (None, Some(folder)) => capture::simulated::run(&args.scenario()?, &folder)?,
        (None, None) => {
            let scenario = args.scenario()?;
            let file = samples.map(|path| SampleFile::create(path, &Head::of(&this_command(), &scenario))).transpose()?;
            sim::run_watched(&scenario, file.map(SampleFile::watch))?
        }
    };
    if json {
        println!("{}", serde_json::to_string_pretty(&report)?);
    } else {
        print!("{}", run_table(&report));
    }
    Ok(if report.failures.is_empty() { ExitCode::SUCCESS } else { ExitCode::from(FAILED) })
}

/// A run whose datagrams go to a file.
fn captured(args: &RunArgs, path: &Path, limit: u64) -> Result<Report, Box<dyn std::error::Error>> {
    let scenario = args.scenario()?;
    let failed = |e: std::io::Error| format!("cannot write {}: {e}", path.display());
    let mut simulation = sim::Simulation::new(&scenario)?;
    let file = std::io::BufWriter::new(std::fs::File::create(path).map_err(failed)?);
    let pcap = Arc::new(Mutex::new(capture::pcap::Pcap::new(file, limit).map_err(failed)?));
    let tap = Arc::clone(&pcap);
    simulation.world.set_tap(Box::new(move |now, sighting, from, to, ecn, data| {
        if matches!(sighting, sim::Sighting::Leaves(_)) {
            tap.lock().unwrap_or_else(PoisonError::into_inner).record(now, from, to, ecn, data);
        }
    }));
    simulation.go()?;
    let kept = pcap.lock().unwrap_or_else(PoisonError::into_inner).finish(&path.to_string_lossy()).map_err(failed)?;
    if kept.beyond > 0 {
        eprintln!("noctule-lab: {} has reached its bound (--capture-limit): {} later datagrams are not in it", path.display(), kept.beyond);
    }
    Ok(simulation.report())
}

fn run_files(
    files: &[PathBuf],
    full: bool,
    json: bool,
    (results, samples): (Option<&Path>, bool),
    against: Option<(&Path, bool)>,
) -> Outcome {
    let mut cases: Vec<Case> = Vec::new();
    for path in files {
        let file = ScenarioFile::read(path)?;
        cases.extend(file.cases(full).map_err(|e| format!("{}: {e}", path.display()))?);
    }
    let records = simulate_cases(&cases, results, sim::all_cores(), samples)?;
    let mut rows = Vec::new();
    for Record { cell, measured, .. } in &records {
        match measured {
            Measured::Run { outcome, report: Some(report), .. } => {
                rows.push((cell.case.name.clone(), &**report, outcome.violations.clone()));
            }
            Measured::Run { report: None, .. } => return Err(format!("{}: its result has no report", cell.case.name).into()),
            Measured::NotRun { reason } => return Err(format!("{}: {reason}", cell.case.name).into()),
        }
    }
    if json {
        let objects: Vec<_> = rows
            .iter()
            .map(|(name, report, violations)| serde_json::json!({ "case": name, "violations": violations, "report": report }))
            .collect();
        println!("{}", serde_json::to_string_pretty(&objects)?);
    } else {
        print!("{}", grid_table(&rows));
    }
    let failed = rows.iter().filter(|(_, _, violations)| !violations.is_empty()).count();
    eprintln!("{}, {failed} failed", count(rows.len(), "case"));
    let shares: Vec<_> = rows.iter().map(|(name, report, _)| (name.clone(), report.share)).collect();
    let moved = against.map(|(path, update)| compare(path, &shares, update)).transpose()?.unwrap_or(0);
    Ok(if failed + moved == 0 { ExitCode::SUCCESS } else { ExitCode::from(FAILED) })
}

/// Compares shares with the table that was kept, or keeps them; how many differ.
fn compare(path: &Path, shares: &[Row], update: bool) -> Result<usize, String> {
    let failed = |e: std::io::Error| format!("{}: {e}", path.display());
    if update {
        std::fs::write(path, shares_table(shares)).map_err(failed)?;
        return Ok(0);
    }
    let differences = differences(&std::fs::read_to_string(path).map_err(failed)?, shares);
    for difference in &differences {
        eprintln!("{difference}");
    }
    eprintln!("{} shares differ from {}; where that is meant, --update keeps the new ones", differences.len(), path.display());
    Ok(differences.len())
}

//! The command line of `noctule-lab proxy`.

use std::path::{Path, PathBuf};
use std::process::ExitCode;

use clap::Args;

use super::contender::Contender;
use super::course::Lane;
use super::table::{Figure, Record, markdown};
use super::{bulk, load, messages, programs};
use crate::files::{self, Links};
use crate::matrix::{FAILED, GridFlags};
use crate::net::command::prepare;
use crate::net::contest::ContestError;
use crate::net::noctule;
use crate::net::run::{Peer, refuse_unsupported};
use crate::report::Progress;
use crate::scenario::{Case, ModeName};
use crate::sweep::command::announce;
use crate::sweep::folder::{replace, write_named};
use crate::sweep::{Build, Cell};
use noctule_proto::options::Mode;

/// What is measured.
#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
pub enum Measure {
    /// One full connection: goodput after the warm-up, bytes compared.
    Bulk,
    /// Round trips of --workload messages:RATE:SIZE on one connection.
    Messages,
    /// From connect to the first echo on 15 fresh connections, the proxies warm.
    First,
    /// A page of 100 objects of 20 KB by curl, six connections at once.
    Objects,
    /// redis-benchmark, 20 clients.
    Redis,
    /// pgbench, ten clients with twenty transactions of seven statements each.
    Pgbench,
    /// rsync of a tree of 500 files.
    Rsync,
    /// Over loopback: memory and descriptors of --count open connections.
    Idle,
    /// Over loopback: connections opened, used and ended, per second.
    Rate,
    /// Over loopback: four full connections.
    Throughput,
}

/// `noctule-lab proxy`.
#[derive(Debug, Clone, Args)]
pub struct ProxyArgs {
    /// What to measure.
    #[arg(value_enum)]
    pub what: Measure,
    /// What carries the connections, one after the other in each cell; those whose programs are missing are left out, which is said.
    #[arg(long, value_enum, value_delimiter = ',', default_value = "noctule,tcp-cubic,tcp-bbr,kcptun,shadowsocks")]
    pub contenders: Vec<Contender>,
    /// The grid: the flags of `sim`, each with one value or with a list.
    #[command(flatten)]
    pub grid: GridFlags,
    /// Of idle: how many connections; each takes two descriptors of this process.
    #[arg(long, default_value_t = 9_000, value_parser = clap::value_parser!(u32).range(1..=25_000))]
    pub count: u32,
    /// Folder in which each result is kept as soon as it is there; what is there is not run again.
    #[arg(long, value_name = "DIR")]
    pub results: Option<PathBuf>,
    /// Write the tables that are printed.
    #[arg(long, value_name = "FILE")]
    pub markdown: Option<PathBuf>,
    /// Print a JSON array instead of tables.
    #[arg(long)]
    pub json: bool,
}

type Failure = Box<dyn std::error::Error>;

impl ProxyArgs {
    /// Runs, prints, writes.
    pub fn execute(&self) -> Result<ExitCode, Failure> {
        let cases = self.grid.cases()?;
        for case in &cases {
            refuse_unsupported(&case.scenario, Peer::Noctule)?;
            if case.scenario.mode != ModeName(Mode::Brtp) {
                return Err("--mode: TCP connections are carried by brtp".into());
            }
        }
        prepare()?;
        load::raise_descriptor_limit()?;
        let mut contenders = Vec::new();
        for contender in &self.contenders {
            match contender.missing() {
                Some(why) => eprintln!("note: {} is left out: {why}", contender.name()),
                None => contenders.push((*contender, contender.version()?)),
            }
        }
        for (contender, version) in &contenders {
            eprintln!("{}: {version}", contender.name());
        }
        let keeper = self.results.as_deref().map(Keeper::open).transpose()?;
        let weight = |case: &Case| case.scenario.seconds.0.as_secs_f64();
        let progress = Progress::new(cases.iter().flat_map(|case| contenders.iter().map(move |_| weight(case))));
        let mut records = Vec::new();
        for case in &cases {
            for (contender, version) in &contenders {
                records.push(self.record(case, *contender, version, keeper.as_ref())?);
                progress.done(&format!("{} {}", contender.name(), case.name), weight(case));
            }
        }
        let table = markdown(&records);
        if self.json {
            println!("{}", serde_json::to_string_pretty(&records)?);
        } else {
            print!("{table}");
        }
        if let Some(path) = &self.markdown {
            write_named(path, table.as_bytes())?;
        }
        let is_clean = records.iter().all(|record| record.failure.is_none());
        Ok(if is_clean { ExitCode::SUCCESS } else { ExitCode::from(FAILED) })
    }

    /// What is kept, or a run; what failed is not kept, so that the same command tries it again.
    fn record(&self, case: &Case, contender: Contender, version: &str, keeper: Option<&Keeper>) -> Result<Record, Failure> {
        let measure = format!("{:?} {}", self.what, self.count);
        let kept = keeper.map(|keeper| keeper.file(case, contender, version, &measure));
        if let Some(text) = kept.as_ref().and_then(|path| files::read(path, Links::Refuse, files::MOST_BYTES).ok()) {
            return Ok(serde_json::from_slice(&text)?);
        }
        let (figures, failure) = match self.run(case, contender) {
            Ok(figures) => (figures, None),
            Err(error) => (Vec::new(), Some(error.to_string())),
        };
        let (cell, seed, version) = (case.cell.clone(), case.scenario.seed, version.to_owned());
        let record = Record { measure, contender, version, cell, seed, figures, failure };
        if let (Some(path), None) = (&kept, &record.failure) {
            replace(path, &serde_json::to_vec(&record)?)?;
        }
        Ok(record)
    }

    fn run(&self, case: &Case, contender: Contender) -> Result<Vec<Figure>, ContestError> {
        let is_loopback = matches!(self.what, Measure::Idle | Measure::Rate | Measure::Throughput);
        let lane = match is_loopback {
            true => Lane::over_loopback(&case.scenario, contender)?,
            false => Lane::over_links(&case.scenario, contender)?,
        };
        let figures = match self.what {
            Measure::Bulk => bulk::run(&lane),
            Measure::Messages => messages::stream(&lane),
            Measure::First => messages::first(&lane),
            Measure::Objects => programs::objects(&lane),
            Measure::Redis => programs::redis(&lane),
            Measure::Pgbench => programs::pgbench(&lane),
            Measure::Rsync => programs::rsync(&lane),
            Measure::Idle => load::idle(&lane, self.count as usize),
            Measure::Rate => load::rate(&lane),
            Measure::Throughput => load::throughput(&lane),
        }?;
        lane.finish()?;
        Ok(figures)
    }
}

/// A folder of results, each named by the hash of its cell, its contender, and the programs.
struct Keeper {
    folder: PathBuf,
    build: Build,
    noctule: blake3::Hash,
}

impl Keeper {
    fn open(folder: &Path) -> Result<Self, Failure> {
        std::fs::create_dir_all(folder).map_err(|error| format!("{}: {error}", folder.display()))?;
        let noctule = blake3::hash(&std::fs::read(noctule::binary()?)?);
        announce(folder)?;
        Ok(Self { folder: folder.to_owned(), build: Build::of_this_program()?, noctule })
    }

    fn file(&self, case: &Case, contender: Contender, version: &str, measure: &str) -> PathBuf {
        let cell = self.build.id(&Cell::from(case.clone()));
        let text = format!("{cell} {} {version} {measure} {}", contender.name(), self.noctule);
        self.folder.join(format!("{}.json", &blake3::hash(text.as_bytes()).to_hex()[..32]))
    }
}

//! Scenario files: a grid of conditions with one workload, and what is expected of each cell.

use std::collections::BTreeMap;
use std::fmt::Display;
use std::path::{Path, PathBuf};
use std::str::FromStr;

use serde::{Deserialize, Serialize};

use crate::link::{LinkSpec, Outage, Period, SpecError};

use super::network_file::{self, FlowTable, HopTable, RouteTable, TopologyTable};
use super::place::Place;
use super::{Congestion, Hop, Ip, ModeName, Relays, Scenario, ScenarioError, Sender, Senders, Workload};

/// A file that cannot be read as a scenario.
#[derive(Debug, thiserror::Error)]
pub enum FileError {
    /// It cannot be read at all.
    #[error("{path}: {source}")]
    Read {
        /// Which file.
        path: PathBuf,
        /// Why.
        source: std::io::Error,
    },
    /// It is not the TOML that it should be.
    #[error("{path}: {source}")]
    Parse {
        /// Which file.
        path: PathBuf,
        /// Why.
        source: Box<toml::de::Error>,
    },
    /// Something in it cannot be.
    #[error("{place}: {reason}")]
    At {
        /// Line, table and key.
        place: String,
        /// Why not.
        reason: String,
    },
    /// It describes a link that cannot be.
    #[error("{0}")]
    Link(#[from] SpecError),
    /// It describes a run that cannot be.
    #[error("{0}")]
    Scenario(#[from] ScenarioError),
}

/// A scenario file: `[link]`, `[reverse]`, `[topology]`, `[[hop]]`, `[[flow]]`, `[[route]]`, `[run]`, `[[case]]`, `[grid]`, `[quick]`,
/// `[expect]`.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub struct ScenarioFile {
    /// Name in tables.
    pub name: String,
    /// One sentence: what it is for and where its figures come from.
    #[serde(default)]
    pub about: String,
    /// Every link, both directions.
    #[serde(default)]
    pub link: LinkSpec,
    /// The nodes and how links join them; one link without.
    pub topology: Option<TopologyTable>,
    /// What is different on single links.
    #[serde(default, rename = "hop")]
    pub hop: Vec<HopTable>,
    /// Instead of one flow from the first node to the last.
    #[serde(default, rename = "flow")]
    pub flows: Vec<FlowTable>,
    /// Instead of routes over the shortest routes.
    #[serde(default, rename = "route")]
    pub routes: Vec<RouteTable>,
    /// What differs on the return path, by the keys of `[link]`.
    #[serde(default)]
    pub reverse: BTreeMap<String, String>,
    /// The run.
    #[serde(default)]
    pub run: RunTable,
    /// Keys of `[link]` or of `[run]`, each with the values that it takes: every combination is a cell.
    #[serde(default)]
    pub grid: BTreeMap<String, Vec<String>>,
    /// Named cells, each with values for keys of `[link]` or of `[run]`; every one of them is run in every cell of the grid.
    #[serde(default, rename = "case")]
    pub named: Vec<BTreeMap<String, String>>,
    /// As `grid`, for the quick subset.
    #[serde(default)]
    pub quick: Option<BTreeMap<String, Vec<String>>>,
    /// What must hold in every cell.
    #[serde(default)]
    pub expect: Expectations,
    /// What was read, so that errors know their line.
    #[serde(skip)]
    text: String,
}

/// The `[run]` of a scenario file; the names are those of the flags.
#[derive(Debug, Clone, Deserialize)]
#[serde(default, deny_unknown_fields, rename_all = "kebab-case")]
pub struct RunTable {
    mode: ModeName,
    cc: Congestion,
    workload: Workload,
    ip: u8,
    lifetime: Option<Period>,
    unordered: bool,
    pairs: u32,
    both: bool,
    seconds: Option<Period>,
    warmup: Option<Period>,
    pub(crate) seeds: Vec<u64>,
    flow_memory: Option<usize>,
    batch_size: Option<u8>,
    no_retransmit: Option<crate::link::Probability>,
    epoch_packets: Option<u64>,
    ack_every: Option<u16>,
    stall: Option<Outage>,
    senders: Vec<Sender>,
    relays: Relays,
    loss_from: Option<Period>,
}

impl Default for RunTable {
    fn default() -> Self {
        Self {
            mode: ModeName(noctule_proto::options::Mode::Brtp),
            cc: Congestion::Model,
            workload: Workload::Bulk,
            ip: 4,
            lifetime: None,
            unordered: false,
            pairs: 1,
            both: false,
            seconds: None,
            warmup: None,
            seeds: vec![7],
            flow_memory: None,
            batch_size: None,
            no_retransmit: None,
            epoch_packets: None,
            ack_every: None,
            stall: None,
            senders: Vec::new(),
            relays: Relays::default(),
            loss_from: None,
        }
    }
}

/// Bounds on the results of a cell; what is not named is not checked. Wrong bytes and a share above the realised limit always fail.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields, rename_all = "kebab-case")]
pub struct Expectations {
    /// Least share of the nominal limit after warm-up.
    pub min_share: Option<f64>,
    /// Most bytes sent per useful byte, times (1-p).
    pub max_wire_per_byte_times_pass: Option<f64>,
    /// Most residual loss.
    pub max_residual_loss: Option<f64>,
    /// Highest 95th percentile of queueing delay, ms.
    pub max_queue_ms_p95: Option<f64>,
    /// Highest mean round trip of a message above the base, ms.
    pub max_rtt_above_base_ms: Option<f64>,
    /// Least Jain index among pairs.
    pub min_jain: Option<f64>,
    /// Most memory of a node, in MiB.
    pub max_memory_mib: Option<f64>,
    /// Most round trips of start-up (see the report).
    pub max_startup_rtts: Option<f64>,
    /// Most bytes sent backwards per useful byte, on any link.
    pub max_reverse_wire_per_byte: Option<f64>,
}

/// One cell of the grid with one seed. As JSON it is all that another machine needs to run it; only traces stay files.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Case {
    /// File and cell: `grid loss=2% delay=10ms seed=7`.
    pub name: String,
    /// What tells this cell from the others, the seed left out: cases of the same cell differ in their seed only.
    pub cell: Vec<(String, String)>,
    /// What to run.
    pub scenario: Scenario,
    /// What must hold.
    #[serde(default)]
    pub expect: Expectations,
    /// The command that makes this run alone, where flags can say it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub command: Option<String>,
}

impl ScenarioFile {
    /// Reads a file.
    pub fn read(path: &Path) -> Result<Self, FileError> {
        let text = std::fs::read_to_string(path).map_err(|source| FileError::Read { path: path.to_owned(), source })?;
        Self::parse(path, text)
    }

    /// Reads the text of the file `path`.
    pub fn parse(path: &Path, text: String) -> Result<Self, FileError> {
        let wrong = |source| FileError::Parse { path: path.to_owned(), source: Box::new(source) };
        let mut table: toml::Table = toml::from_str(&text).map_err(wrong)?;
        let has_traces = resolve_traces(&mut table, path.parent().unwrap_or(Path::new("")));
        // Read from the text where that is possible, so that an error knows its line.
        let file: Self = if has_traces { table.try_into() } else { toml::from_str(&text) }.map_err(wrong)?;
        Ok(Self { text, ..file })
    }

    /// An error at a place of this file.
    fn wrong(&self, place: Place<'_>, reason: impl ToString) -> FileError {
        let line = place.line(&self.text).map_or(String::new(), |line| format!("line {line}, "));
        FileError::At { place: format!("{line}{place}"), reason: reason.to_string() }
    }

    /// Every cell and seed; with `full` off, the `[quick]` grid if there is one, and the first seed only.
    pub fn cases(&self, full: bool) -> Result<Vec<Case>, FileError> {
        self.cases_of(full, full)
    }

    /// As [`Self::cases`], cells and seeds chosen apart.
    pub fn cases_of(&self, full: bool, all_seeds: bool) -> Result<Vec<Case>, FileError> {
        let (grid, table) = match &self.quick {
            Some(quick) if !full => (quick, "quick"),
            _ => (&self.grid, "grid"),
        };
        let mut cells: Vec<Vec<Setting<'_>>> = self.named.iter().enumerate().map(|(i, case)| settings("case", Some(i), case)).collect();
        if cells.is_empty() {
            cells.push(Vec::new());
        }
        for (key, values) in grid {
            cells = cells
                .into_iter()
                .flat_map(|cell| {
                    values.iter().map(move |value| {
                        let mut cell = cell.clone();
                        cell.push(Setting { value, at: Place { table, index: None, key } });
                        cell
                    })
                })
                .collect();
        }
        let seeds = if all_seeds { &self.run.seeds[..] } else { &self.run.seeds[..self.run.seeds.len().min(1)] };
        let mut cases = Vec::with_capacity(cells.len() * seeds.len());
        for cell in &cells {
            for &seed in seeds {
                cases.push(self.case(cell, seed)?);
            }
        }
        Ok(cases)
    }

    fn case(&self, cell: &[Setting<'_>], seed: u64) -> Result<Case, FileError> {
        let mut run = self.run.clone();
        let mut forward = self.link.clone();
        let mut name = self.name.clone();
        let mut hops = None;
        let mut on_hops = Vec::new();
        let mut reverse_settings = settings("reverse", None, &self.reverse);
        let case_name = cell.iter().find(|setting| setting.at.key == "name");
        if let Some(case) = case_name {
            name.push_str(&format!(" {}", case.value));
        }
        for setting in cell {
            let Setting { value, at } = *setting;
            if at.key == "name" {
                continue;
            }
            if case_name.is_none() || at.index.is_none() || self.grid.contains_key(at.key) {
                name.push_str(&format!(" {}={value}", at.key));
            }
            if at.key.starts_with("rev-") {
                reverse_settings.push(*setting);
            } else if at.key.starts_with("hop-") {
                on_hops.push(*setting);
            } else if at.key == "hops" {
                hops = Some(value.parse().map_err(|e| self.wrong(at, e))?);
            } else if !run.set(at.key, value).map_err(|e| self.wrong(at, e))? {
                let change = |spec: &mut LinkSpec| match at.key {
                    "at" => value.parse().map(|change| spec.at.push(change)).map_err(|e| e.to_string()),
                    key => spec.set(key, value).map_err(|e| e.to_string()),
                };
                change(&mut forward).map_err(|e| self.wrong(at, e))?;
            }
        }
        let mut reverse = forward.clone();
        for Setting { value, at } in reverse_settings {
            reverse.set(at.key.strip_prefix("rev-").unwrap_or(at.key), value).map_err(|e| self.wrong(at, e))?;
        }
        let wrong = |(place, reason)| self.wrong(place, reason);
        let network = network_file::network(self.topology.as_ref(), hops, &self.flows, &self.routes).map_err(wrong)?;
        let mut hops = vec![Hop { forward, reverse }; network.ends.len()];
        network_file::set_hops(&self.hop, &network, &mut hops).map_err(wrong)?;
        for Setting { value, at } in on_hops {
            let number = at.key.strip_prefix("hop-").unwrap_or_default();
            network_file::set_hop_list(number, value, &mut hops).map_err(|e| self.wrong(at, e))?;
        }
        if let Some(from) = run.loss_from {
            for hop in &mut hops {
                hop.forward.lose_from(from);
                hop.reverse.lose_from(from);
            }
        }
        let mut scenario = Scenario::new(hops);
        scenario.network = network;
        run.apply(&mut scenario)?;
        scenario.seed = seed;
        scenario.check().map_err(|e| self.unfit(e))?;
        name.push_str(&format!(" seed={seed}"));
        let cell = cell.iter().map(|s| (if s.at.key == "name" { "case" } else { s.at.key }.to_owned(), s.value.to_owned())).collect();
        // What a file expects, it expects of noctule: baselines are there to be compared with.
        let is_baseline = scenario.hops.len() > 1 && scenario.network.relays != Relays::Recode;
        let expect = if is_baseline { Expectations::default() } else { self.expect.clone() };
        Ok(Case { name, cell, scenario, expect, command: None })
    }

    /// What a scenario refuses about one flow is said with the line of the flow.
    fn unfit(&self, error: ScenarioError) -> FileError {
        match error {
            ScenarioError::Flow { flow, reason } if !self.flows.is_empty() => {
                self.wrong(Place { table: "flow", index: Some(flow - 1), key: "" }, reason)
            }
            other => other.into(),
        }
    }
}

/// A key with its value, and where it stands.
#[derive(Debug, Clone, Copy)]
struct Setting<'a> {
    value: &'a str,
    at: Place<'a>,
}

fn settings<'a>(table: &'a str, index: Option<usize>, of: &'a BTreeMap<String, String>) -> Vec<Setting<'a>> {
    of.iter().map(|(key, value)| Setting { value, at: Place { table, index, key } }).collect()
}

impl RunTable {
    /// Sets what `key` names, as flags write it; false if no run has it.
    fn set(&mut self, key: &str, value: &str) -> Result<bool, String> {
        fn read<T: FromStr<Err: Display>>(value: &str) -> Result<T, String> {
            value.parse().map_err(|e: T::Err| e.to_string())
        }
        match key {
            "mode" => self.mode = read(value)?,
            "cc" => self.cc = read(value)?,
            "workload" => self.workload = read(value)?,
            "ip" => self.ip = read(value)?,
            "lifetime" => self.lifetime = Some(read(value)?),
            "unordered" => self.unordered = read(value)?,
            "both" => self.both = read(value)?,
            "pairs" => self.pairs = read(value)?,
            "stall" => self.stall = Some(read(value)?),
            "senders" => self.senders = read::<Senders>(value)?.0,
            "ack-every" => self.ack_every = Some(read(value)?),
            "epoch-packets" => self.epoch_packets = Some(read(value)?),
            "flow-memory" => self.flow_memory = Some(crate::link::parse_bytes(value).map_err(|e| e.to_string())? as usize),
            "no-retransmit" => self.no_retransmit = Some(read(value)?),
            "batch-size" => self.batch_size = Some(read(value)?),
            "relays" => self.relays = read(value)?,
            "seconds" => self.seconds = Some(read(value)?),
            "warmup" => self.warmup = Some(read(value)?),
            "loss-from" => self.loss_from = Some(read(value)?),
            _ => return Ok(false),
        }
        Ok(true)
    }

    fn apply(&self, scenario: &mut Scenario) -> Result<(), ScenarioError> {
        scenario.ip = match self.ip {
            4 => Ip::V4,
            6 => Ip::V6,
            other => return Err(ScenarioError::Invalid(format!("ip = {other}: 4 or 6"))),
        };
        scenario.mode = self.mode;
        scenario.cc = self.cc;
        scenario.workload = self.workload;
        scenario.lifetime = self.lifetime;
        scenario.unordered = self.unordered;
        scenario.pairs = self.pairs;
        scenario.both = self.both;
        scenario.flow_memory = self.flow_memory;
        scenario.batch_size = self.batch_size;
        scenario.no_retransmit = self.no_retransmit;
        scenario.epoch_packets = self.epoch_packets;
        scenario.ack_every = self.ack_every;
        scenario.stall = self.stall;
        scenario.senders.clone_from(&self.senders);
        scenario.network.relays = self.relays;
        scenario.set_default_length(self.seconds, self.warmup);
        Ok(())
    }
}

/// The names of traces in a file mean files beside it, wherever the laboratory is started. Whether there were any.
fn resolve_traces(table: &mut toml::Table, beside: &Path) -> bool {
    let mut found = false;
    let mut resolve = |value: &mut toml::Value| {
        let names: Vec<&mut toml::Value> = match value {
            toml::Value::Array(list) => list.iter_mut().collect(),
            one => vec![one],
        };
        for name in names {
            if let toml::Value::String(name) = name
                && name != "none"
            {
                *name = beside.join(&*name).to_string_lossy().into_owned();
                found = true;
            }
        }
    };
    for (key, value) in table.iter_mut() {
        let tables: Vec<&mut toml::Value> = match value {
            toml::Value::Array(list) if key == "case" => list.iter_mut().collect(),
            one => vec![one],
        };
        for table in tables.into_iter().filter_map(toml::Value::as_table_mut) {
            for (_, value) in table.iter_mut().filter(|(key, _)| *key == "trace" || *key == "rev-trace") {
                resolve(value);
            }
        }
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    const FILE: &str = r#"
        name = "grid"
        about = "The cells of a table."
        [link]
        rate = "100mbit"
        [run]
        workload = "bulk"
        seeds = [7, 8]
        [grid]
        loss = ["0%", "10%"]
        delay = ["10ms", "50ms", "110ms"]
        [quick]
        loss = ["10%"]
        delay = ["10ms"]
        [expect]
        min-share = 0.85
    "#;

    #[test]
    fn a_grid_has_every_combination_and_seed() {
        let file: ScenarioFile = toml::from_str(FILE).unwrap();
        let cases = file.cases(true).unwrap();
        assert_eq!(cases.len(), 12);
        assert_eq!(cases[0].name, "grid delay=10ms loss=0% seed=7");
        assert_eq!(cases[0].cell, [("delay".to_owned(), "10ms".to_owned()), ("loss".to_owned(), "0%".to_owned())]);
        assert_eq!(cases[0].cell, cases[1].cell);
        assert_eq!(cases[0].expect.min_share, Some(0.85));
        assert_eq!(file.cases(false).unwrap().len(), 1);
    }

    #[test]
    fn named_cases_are_run_in_every_cell() {
        let file = FILE.replace(
            "[quick]",
            "[[case]]\nname = \"bursts\"\nloss-model = \"gilbert:10\"\n[[case]]\nname = \"lost acks\"\nrev-loss = \"30%\"\n[quick]",
        );
        let file: ScenarioFile = toml::from_str(&file).unwrap();
        let cases = file.cases(false).unwrap();
        let names: Vec<&str> = cases.iter().map(|c| c.name.as_str()).collect();
        assert_eq!(names, ["grid bursts delay=10ms loss=10% seed=7", "grid lost acks delay=10ms loss=10% seed=7"]);
        let hop = &cases[1].scenario.hops[0];
        assert_eq!((hop.forward.loss.to_string(), hop.reverse.loss.to_string()), ("10%".to_owned(), "30%".to_owned()));
    }

    #[test]
    fn unknown_words_in_a_file_are_errors() {
        assert!(toml::from_str::<ScenarioFile>(&FILE.replace("min-share", "min-shear")).is_err());
        let file: ScenarioFile = toml::from_str(&FILE.replace("loss =", "los =")).unwrap();
        assert!(file.cases(true).is_err());
    }

    #[test]
    fn a_trace_is_looked_for_beside_the_file_that_names_it() {
        let dir = tempfile::tempdir().unwrap();
        std::fs::write(dir.path().join("one.trace"), "1\n2\n").unwrap();
        let path = dir.path().join("file.toml");
        std::fs::write(&path, "name = \"traced\"\n[link]\ntrace = \"one.trace\"\n[grid]\ntrace = [\"one.trace\"]\n").unwrap();
        let cases = ScenarioFile::read(&path).unwrap().cases(true).unwrap();
        let spec = &cases[0].scenario.hops[0].forward;
        assert_eq!(spec.capacity().unwrap().to_string(), "12mbit");
        std::fs::write(&path, "name = \"traced\"\n[link]\ntrace = \"two.trace\"\n").unwrap();
        assert!(ScenarioFile::read(&path).unwrap_err().to_string().contains("two.trace"));
    }

    #[test]
    fn every_scenario_file_of_the_project_can_be_run() {
        let dir = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../scenarios");
        let mut files = 0;
        for entry in std::fs::read_dir(dir).unwrap() {
            let path = entry.unwrap().path();
            if path.extension().is_some_and(|e| e == "toml") {
                let file = ScenarioFile::read(&path).unwrap();
                assert!(!file.about.is_empty(), "{}", path.display());
                assert!(!file.cases(true).unwrap_or_else(|e| panic!("{}: {e}", path.display())).is_empty());
                assert!(!file.cases(false).unwrap().is_empty());
                files += 1;
            }
        }
        assert!(files > 3);
    }
}

//! A run that is asked for: typed data, read by the parsers of the command line, never words for a shell.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use clap::Parser;
use serde::{Deserialize, Serialize};

use super::answer::Problem;
use crate::files::{self, Links};
use crate::holdout::{self, Kind};
use crate::link::Traces;
use crate::matrix::GridFlags;
use crate::net::chain::BackendChoice;
use crate::net::run::Peer;
use crate::scenario::ScenarioFile;
use crate::sweep::Cell;

/// Cells of a started run at most.
pub const MOST_CELLS: usize = 10_000;
/// Longest name of a run.
const NAME_MOST: usize = 64;
/// Most flags, and values of a flag.
const FLAGS_MOST: usize = 64;
/// Longest value.
const VALUE_MOST: usize = 200;
/// Longest scenario file, bytes.
const SCENARIO_MOST: u64 = 1 << 20;
/// Simulated seconds of a cell at most.
const SECONDS_MOST: f64 = 3_600.0;

/// `POST /api/runs`.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Request {
    /// Of the folder that is made for it: lower-case letters, digits, `.`, `_` and `-`.
    pub name: String,
    /// What runs.
    pub what: What,
    /// Cells at the same time; one per core if it is left out.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub workers: Option<u16>,
}

/// What runs.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, tag = "kind", rename_all = "lowercase")]
pub enum What {
    /// A run or a grid of runs in the simulator, by the flags of `noctule-lab matrix`.
    Grid {
        /// Flags without their dashes.
        #[serde(default)]
        flags: BTreeMap<String, Value>,
    },
    /// Random conditions, as `noctule-lab holdout`.
    Holdout {
        /// How many draws.
        count: u64,
        /// Seed of the set.
        seed: u64,
        /// What runs under them.
        #[serde(default)]
        of: Kind,
        /// Number of the first draw.
        #[serde(default)]
        first: u64,
    },
    /// A scenario file of the folder that the server was given.
    Scenario {
        /// Its name, `bulk-grid.toml`.
        file: String,
        /// All cells and all seeds.
        #[serde(default)]
        full: bool,
    },
    /// One run on network namespaces, as `noctule-lab net`.
    Namespaces {
        /// Flags without their dashes.
        #[serde(default)]
        flags: BTreeMap<String, Value>,
        /// The sender.
        #[serde(default)]
        peer: Peer,
        /// What emulates the links.
        #[serde(default)]
        backend: BackendChoice,
    },
}

/// The value of a flag.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(untagged)]
pub enum Value {
    /// A switch: there or not.
    Switch(bool),
    /// A number.
    Number(serde_json::Number),
    /// Text as on the command line.
    Text(String),
    /// Several: an axis of the grid, or a flag that may be given several times.
    List(Vec<Item>),
}

/// A value of a list.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(untagged)]
pub enum Item {
    /// A number.
    Number(serde_json::Number),
    /// Text.
    Text(String),
}

/// What a request comes to.
#[derive(Debug, Clone, PartialEq)]
pub enum Job {
    /// Cells for the simulator.
    Cells(Vec<Cell>),
    /// Words after `noctule-lab net`.
    Net(Vec<String>),
}

impl Request {
    /// Reads the JSON of a request.
    ///
    /// # Errors
    /// It is none: what is wrong, and where.
    pub fn parse(body: &[u8]) -> Result<Self, Problem> {
        let request: Self = serde_json::from_slice(body).map_err(|e| Problem::bad(format!("the request: {e}")))?;
        let is_plain = |b: u8| b.is_ascii_lowercase() || b.is_ascii_digit() || b"._-".contains(&b);
        let name = &request.name;
        let begins = name.bytes().next().is_some_and(|b| b.is_ascii_lowercase() || b.is_ascii_digit());
        if !begins || name.len() > NAME_MOST || !name.bytes().all(is_plain) {
            let text = format!("name: 1 to {NAME_MOST} of a-z, 0-9, '.', '_' and '-', the first a letter or a digit");
            return Err(Problem::bad(text));
        }
        let cores = crate::sim::all_cores();
        if request.workers.is_some_and(|n| n == 0 || usize::from(n) > cores) {
            return Err(Problem::bad(format!("workers: 1 to {cores}")));
        }
        Ok(request)
    }

    /// What is to be run.
    ///
    /// # Errors
    /// It cannot be: in the words of the command line.
    pub fn job(&self, scenarios: Option<&Path>) -> Result<Job, Problem> {
        let cells = match &self.what {
            What::Grid { flags } => grid(&words(flags)?)?,
            What::Holdout { count, seed, of, first } => {
                if *count == 0 || *count > MOST_CELLS as u64 {
                    return Err(Problem::bad(format!("count: 1 to {MOST_CELLS}")));
                }
                if first.checked_add(*count).is_none() {
                    return Err(Problem::bad("first: there are not so many draws"));
                }
                holdout::cells(*of, *seed, *first, *count).map_err(Problem::bad)?
            }
            What::Scenario { file, full } => {
                let path = scenario_path(scenarios, file)?;
                let failed = |e: crate::scenario::FileError| Problem::bad(e.to_string());
                let unread = |e: std::io::Error| Problem::bad(format!("{file}: {e}"));
                let text = files::text(&path, Links::Refuse, SCENARIO_MOST).map_err(unread)?;
                let cases = ScenarioFile::parse(&path, text).and_then(|file| file.cases(*full)).map_err(failed)?;
                cases.into_iter().map(Cell::from).collect()
            }
            What::Namespaces { flags, peer, backend } => return net(&words(flags)?, *peer, *backend),
        };
        if cells.is_empty() || cells.len() > MOST_CELLS {
            return Err(Problem::bad(format!("{} cells: 1 to {MOST_CELLS}", cells.len())));
        }
        if let Some(cell) = cells.iter().find(|cell| cell.case.scenario.seconds.0.as_secs_f64() > SECONDS_MOST) {
            return Err(Problem::bad(format!("{}: a run of {} s at most", cell.case.name, SECONDS_MOST)));
        }
        Ok(Job::Cells(cells))
    }
}

/// Files that may be asked for: regular ones, not links that lead out of the folder.
pub fn scenario_names(folder: Option<&Path>) -> Vec<String> {
    let entries = folder.and_then(|folder| std::fs::read_dir(folder).ok()).into_iter().flatten().flatten();
    let regular = entries.filter(|entry| entry.file_type().is_ok_and(|kind| kind.is_file()));
    let mut names: Vec<String> =
        regular.filter_map(|entry| entry.file_name().into_string().ok()).filter(|name| name.ends_with(".toml")).collect();
    names.sort();
    names
}

fn scenario_path(folder: Option<&Path>, file: &str) -> Result<PathBuf, Problem> {
    match folder {
        None => Err(Problem::not_found("this server was given no scenario files: start it with --scenarios DIR")),
        // Only what is listed can be named: nothing is said of other files.
        Some(folder) if scenario_names(Some(folder)).iter().any(|name| name == file) => Ok(folder.join(file)),
        Some(_) => Err(Problem::not_found(format!("there is no scenario file {file:?}"))),
    }
}

/// Flags as words of a command line, each in one word with its value.
fn words(flags: &BTreeMap<String, Value>) -> Result<Vec<String>, Problem> {
    if flags.len() > FLAGS_MOST {
        return Err(Problem::bad(format!("flags: {FLAGS_MOST} at most")));
    }
    let mut words = Vec::new();
    for (name, value) in flags {
        let wrong = |text: &str| Problem::bad(format!("flag {name:?}: {text}"));
        if !name.starts_with(|c: char| c.is_ascii_lowercase())
            || !name.bytes().all(|b| b.is_ascii_lowercase() || b == b'-' || b.is_ascii_digit())
        {
            return Err(wrong("a flag has the name that `noctule-lab sim --help` has, without dashes in front"));
        }
        let items: Vec<String> = match value {
            Value::Switch(false) => continue,
            Value::Switch(true) => {
                words.push(format!("--{name}"));
                continue;
            }
            Value::Number(number) => vec![number.to_string()],
            Value::Text(text) => vec![text.clone()],
            Value::List(items) => {
                let text = |item: &Item| match item {
                    Item::Number(number) => number.to_string(),
                    Item::Text(text) => text.clone(),
                };
                items.iter().map(text).collect()
            }
        };
        if items.is_empty() || items.len() > FLAGS_MOST {
            return Err(wrong(&format!("1 to {FLAGS_MOST} values")));
        }
        for item in items {
            if item.is_empty() || item.len() > VALUE_MOST || item.chars().any(char::is_control) {
                return Err(wrong(&format!("1 to {VALUE_MOST} printable characters")));
            }
            words.push(format!("--{name}={item}"));
        }
    }
    Ok(words)
}

/// The first line of what clap says.
fn said(error: &clap::Error) -> Problem {
    let text = error.to_string();
    Problem::bad(text.lines().next().unwrap_or_default().trim_start_matches("error: ").to_owned())
}

fn grid(words: &[String]) -> Result<Vec<Cell>, Problem> {
    #[derive(Parser)]
    #[command(no_binary_name = true, disable_help_flag = true)]
    struct Line {
        #[command(flatten)]
        grid: GridFlags,
    }
    let line = Line::try_parse_from(words).map_err(|e| said(&e))?;
    let size = line.grid.size();
    if size > MOST_CELLS {
        return Err(Problem::bad(format!("{size} cells are more than {MOST_CELLS}")));
    }
    Ok(line.grid.cases_with(Traces::Refuse).map_err(|e| Problem::bad(e.to_string()))?.into_iter().map(Cell::from).collect())
}

fn net(words: &[String], peer: Peer, backend: BackendChoice) -> Result<Job, Problem> {
    #[derive(Parser)]
    #[command(no_binary_name = true, disable_help_flag = true)]
    struct Line {
        #[command(flatten)]
        run: crate::cli::RunArgs,
        #[arg(long)]
        peer: Peer,
        #[arg(long)]
        backend: BackendChoice,
    }
    let words: Vec<String> = words.iter().cloned().chain([format!("--peer={peer}"), format!("--backend={backend}")]).collect();
    let line = Line::try_parse_from(&words).map_err(|e| said(&e))?;
    let scenario = line.run.scenario_with(Traces::Refuse).map_err(|e| Problem::bad(e.to_string()))?;
    if scenario.seconds.0.as_secs_f64() > SECONDS_MOST {
        return Err(Problem::bad(format!("seconds: {SECONDS_MOST} at most")));
    }
    crate::net::run::refuse_unsupported(&scenario, line.peer).map_err(|e| Problem::bad(e.to_string()))?;
    Ok(Job::Net(words))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn job(json: &str) -> Result<Job, String> {
        Request::parse(json.as_bytes()).and_then(|request| request.job(None)).map_err(|problem| problem.text)
    }

    #[test]
    fn flags_are_data_and_make_the_cells_of_the_command_line() {
        let text = r#"{"name":"one","what":{"kind":"grid","flags":{"rate":"5mbit","loss":["0%","2%"],"seconds":8,"warmup":2,"both":true,"unordered":false}}}"#;
        let Job::Cells(cells) = job(text).unwrap() else { panic!() };
        assert_eq!(cells.len(), 2);
        let command = cells[1].case.command.as_deref().unwrap();
        assert_eq!(command, "noctule-lab sim --rate=5mbit --both --seconds=8 --warmup=2 --loss=2% --seed=7");
        let draws = job(r#"{"name":"one","what":{"kind":"holdout","count":3,"seed":1,"of":"btp"}}"#).unwrap();
        assert!(matches!(draws, Job::Cells(cells) if cells.len() == 3));
        let net = job(r#"{"name":"one","what":{"kind":"namespaces","flags":{"rate":"5mbit"},"peer":"tcp-bbr","backend":"emulator"}}"#);
        assert_eq!(net, Ok(Job::Net(["--rate=5mbit", "--peer=tcp-bbr", "--backend=emulator"].map(str::to_owned).into())));
    }

    #[test]
    fn what_cannot_be_is_refused_in_words() {
        let grid = |flags: &str| job(&format!(r#"{{"name":"one","what":{{"kind":"grid","flags":{{{flags}}}}}}}"#)).unwrap_err();
        for (flags, names) in [
            (r#""rate":"100""#, "100"),
            (r#""speed":"1""#, "--speed"),
            (r#""; rm -rf /":"1""#, "without dashes"),
            (r#""--pcap":"x""#, "without dashes"),
            (r#""pcap":"/tmp/x""#, "--pcap"),
            (r#""samples":"/tmp/x""#, "--samples"),
            (r#""help":true"#, "--help"),
            (r#""trace":"/etc/passwd""#, "traces are files"),
            (r#""hop":"1:trace=/etc/passwd""#, "traces are files"),
            (r#""rev":["rate=1mbit,trace=/etc/passwd"]"#, "traces are files"),
            (r#""rev":"trace =/etc/passwd""#, "traces are files"),
            (r#""rev":"rate=1mbit,\u00a0trace\u2003= /etc/passwd""#, "traces are files"),
            (r#""hop":"1: trace =/etc/passwd""#, "traces are files"),
            (r#""at":"3s:loss=1%, trace =/etc/passwd""#, "traces are files"),
            (r#""rate":[]"#, "1 to 64 values"),
            (r#""rate":"""#, "printable"),
            (r#""rate":"1mbit\n""#, "printable"),
            (r#""rate":{"a":1}"#, "request"),
            (r#""seconds":100000,"warmup":1"#, "3600 s at most"),
        ] {
            let said = grid(flags);
            assert!(said.contains(names), "{flags}: {said}");
        }
        let many: Vec<String> = (1..=64).map(|n| format!("\"{n}ms\"")).collect();
        let axis = many.join(",");
        assert!(grid(&format!(r#""delay":[{axis}],"jitter":[{axis}],"lifetime":[{axis}]"#)).contains("more than 10000"));
        for (text, names) in [
            ("", "EOF"),
            ("[]", "request"),
            (r#"{"name":"../x","what":{"kind":"grid"}}"#, "name"),
            (r#"{"name":".x","what":{"kind":"grid"}}"#, "name"),
            (r#"{"name":"A","what":{"kind":"grid"}}"#, "name"),
            (r#"{"name":"a","what":{"kind":"shell"}}"#, "shell"),
            (r#"{"name":"a","what":{"kind":"grid"},"workers":0}"#, "workers"),
            (r#"{"name":"a","what":{"kind":"grid"},"command":"id"}"#, "command"),
            (r#"{"name":"a","what":{"kind":"holdout","count":1000000,"seed":1}}"#, "count"),
            (r#"{"name":"a","what":{"kind":"holdout","count":2,"seed":1,"first":18446744073709551615}}"#, "first"),
            (r#"{"name":"a","what":{"kind":"scenario","file":"bulk-grid.toml"}}"#, "--scenarios"),
            (r#"{"name":"a","what":{"kind":"namespaces","flags":{"pairs":2}}}"#, "--pairs"),
            (r#"{"name":"a","what":{"kind":"namespaces","peer":"sh"}}"#, "sh"),
            (r#"{"name":"a","what":{"kind":"namespaces","flags":{"rev":"trace =/etc/passwd"}}}"#, "traces are files"),
        ] {
            let said = job(text).unwrap_err();
            assert!(said.contains(names), "{text}: {said}");
        }
    }

    #[test]
    fn only_scenario_files_that_are_listed_are_read() {
        let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../scenarios");
        let ask = |file: &str| {
            let what = What::Scenario { file: file.to_owned(), full: false };
            Request { name: "a".to_owned(), what, workers: None }.job(Some(&folder)).map_err(|problem| problem.text)
        };
        assert!(matches!(ask("bulk-grid.toml"), Ok(Job::Cells(cells)) if !cells.is_empty()));
        for file in ["../Cargo.toml", "/etc/passwd", "", "none.toml"] {
            assert!(ask(file).unwrap_err().contains("no scenario file"), "{file}");
        }
        let dir = tempfile::tempdir().unwrap();
        let at = |name: &str| dir.path().join(name);
        crate::files::tests::fifo(&at("fifo.toml"));
        std::fs::create_dir(at("folder.toml")).unwrap();
        std::os::unix::fs::symlink(folder.join("bulk-grid.toml"), at("link.toml")).unwrap();
        std::fs::copy(folder.join("bulk-grid.toml"), at("file.toml")).unwrap();
        assert_eq!(scenario_names(Some(dir.path())), ["file.toml"]);
        let long = format!("# {}", "x".repeat(1 << 20));
        std::fs::write(at("file.toml"), long).unwrap();
        let what = What::Scenario { file: "file.toml".to_owned(), full: false };
        let said = Request { name: "a".to_owned(), what, workers: None }.job(Some(dir.path())).unwrap_err();
        assert!(said.text.contains("longer than 1048576 bytes"), "{said}");
    }
}

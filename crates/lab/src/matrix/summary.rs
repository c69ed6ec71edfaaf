//! Runs gathered into cells: the median over the seeds, and the worst of them beside it.

use std::collections::{BTreeMap, BTreeSet};

use serde::Serialize;

use super::outcome::{Outcome, RunFailure};
use crate::cli::Quoted;
use crate::report::round;
use crate::scenario::{Case, Scenario};

/// A quantity over the seeds of a cell.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub struct Spread {
    /// Of an even number of seeds the mean of the two in the middle.
    pub median: f64,
    /// Smallest.
    pub min: f64,
    /// Largest.
    pub max: f64,
}

impl Spread {
    /// None if there is no value.
    pub fn of(values: impl IntoIterator<Item = f64>) -> Option<Self> {
        let mut values: Vec<f64> = values.into_iter().collect();
        values.sort_by(f64::total_cmp);
        let (first, last) = (values.first()?, values.last()?);
        let middle = values.len() / 2;
        let median = if values.len() % 2 == 1 { values[middle] } else { (values[middle - 1] + values[middle]) / 2.0 };
        Some(Self { median: round(median, 6), min: *first, max: *last })
    }
}

/// One cell with all its seeds.
#[derive(Debug, Clone, Serialize)]
pub struct Cell {
    /// Its value of each axis.
    pub settings: Vec<(String, String)>,
    /// Goodput, Mbit/s.
    pub goodput_mbit: Option<Spread>,
    /// What the configuration allows, Mbit/s.
    pub limit_mbit: Option<f64>,
    /// Goodput over the limit.
    pub share: Option<Spread>,
    /// IP bytes sent per byte read.
    pub wire_per_byte: Option<Spread>,
    /// The same the other way.
    pub reverse_wire_per_byte: Option<Spread>,
    /// 95th percentile of the queueing delay, ms.
    pub queue_ms_p95: Option<Spread>,
    /// Start-up in round trips.
    pub startup_rtts: Option<Spread>,
    /// Highest memory of any node, MiB.
    pub memory_mib: Option<Spread>,
    /// Sum over the seeds.
    pub bytes_wrong: Option<u64>,
    /// Mean round trip of messages, ms.
    pub rtt_ms_mean: Option<Spread>,
    /// Its 99th percentile, ms.
    pub rtt_ms_p99: Option<Spread>,
    /// Residual loss of messages.
    pub residual_loss: Option<Spread>,
    /// Goodput in the published table beside ours, Mbit/s.
    pub beside_mbit: Option<f64>,
    /// Each run.
    pub runs: Vec<Outcome>,
    /// Runs that could not be made.
    pub not_run: Vec<RunFailure>,
    /// The scenario of its first seed.
    #[serde(skip)]
    pub scenario: Scenario,
}

/// A key with the values that it takes, in the order in which they came.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Axis {
    /// Name of the flag.
    pub key: String,
    /// Its values.
    pub values: Vec<String>,
}

/// Gives results of several lists one axis more, where the same values of their axes stand for several scenarios.
///
/// Else those would be taken for seeds of one cell. On the axis `scenario` stands where they come from: the file, or the flags that are no axes.
pub fn tell_apart(cases: &mut [Case]) {
    let scenarios: Vec<Fields> = cases.iter().map(fields).collect();
    let mut firsts: BTreeMap<&[(String, String)], &Fields> = BTreeMap::new();
    // What runs of one cell differ in: no axis is among it.
    let mut differing: BTreeSet<&str> = BTreeSet::new();
    for (case, scenario) in cases.iter().zip(&scenarios) {
        let first = *firsts.entry(&case.cell).or_insert(scenario);
        let both = first.keys().chain(scenario.keys());
        differing.extend(both.filter(|field| first.get(*field) != scenario.get(*field)).map(String::as_str));
    }
    if differing.is_empty() {
        return;
    }
    let known: Vec<(String, Vec<Option<&String>>)> = cases
        .iter()
        .zip(&scenarios)
        .map(|(case, scenario)| (origin(case), differing.iter().map(|field| scenario.get(*field)).collect()))
        .collect();
    // Of all cells, since one may lack a scenario that others have.
    let all: BTreeSet<_> = known.iter().collect();
    let label = |known: &(String, _)| match all.iter().filter(|other| other.0 == known.0 && **other < known).count() {
        0 => known.0.clone(),
        before => format!("{} ({})", known.0, before + 1),
    };
    let labels: Vec<String> = known.iter().map(label).collect();
    for (case, label) in cases.iter_mut().zip(labels) {
        case.cell.insert(0, ("scenario".to_owned(), label));
    }
}

/// The values of a scenario, its seed left out, each by where it stands.
type Fields = BTreeMap<String, String>;

fn fields(case: &Case) -> Fields {
    fn walk(value: &serde_json::Value, place: &str, found: &mut Fields) {
        match value {
            serde_json::Value::Object(map) => map.iter().for_each(|(key, value)| walk(value, &format!("{place}.{key}"), found)),
            serde_json::Value::Array(list) => list.iter().enumerate().for_each(|(n, value)| walk(value, &format!("{place}.{n}"), found)),
            value => drop(found.insert(place.to_owned(), value.to_string())),
        }
    }
    let mut found = Fields::new();
    walk(&serde_json::to_value(Scenario { seed: 0, ..case.scenario.clone() }).unwrap_or_default(), "", &mut found);
    found
}

/// What the name or the command of a case says besides its axes and its seed.
fn origin(case: &Case) -> String {
    let said = |word: &&str| {
        let word = word.trim_start_matches("--");
        let is_axis = |(key, value): &(String, String)| word.split_once('=') == Some((key, value)) || (key == "case" && word == value);
        !word.starts_with("seed=") && !case.cell.iter().any(is_axis)
    };
    let text = case.command.as_deref().map_or(&*case.name, |command| command.trim_start_matches("noctule-lab sim"));
    let words = words(text);
    let words: Vec<String> = words.iter().map(String::as_str).filter(said).map(|word| Quoted(word).to_string()).collect();
    if words.is_empty() { "as it is".to_owned() } else { words.join(" ") }
}

/// The words of a command line, their quotes taken off: what [`Quoted`] writes.
fn words(text: &str) -> Vec<String> {
    let (mut words, mut word, mut is_quoted, mut is_escaped) = (Vec::new(), None::<String>, false, false);
    for c in text.chars() {
        match c {
            _ if is_escaped => {
                word.get_or_insert_default().push(c);
                is_escaped = false;
            }
            '\'' => {
                is_quoted = !is_quoted;
                word.get_or_insert_default();
            }
            '\\' if !is_quoted => is_escaped = true,
            c if c.is_whitespace() && !is_quoted => words.extend(word.take()),
            c => word.get_or_insert_default().push(c),
        }
    }
    words.extend(word);
    words
}

/// Every cell of a matrix.
#[derive(Debug, Clone, Serialize)]
pub struct Summary {
    /// What was varied.
    pub axes: Vec<Axis>,
    /// Cells in the order of the cases.
    pub cells: Vec<Cell>,
}

impl Summary {
    /// Gathers the results of `cases`, given in their order.
    pub fn of(cases: &[Case], results: Vec<Result<Outcome, RunFailure>>) -> Self {
        type Group<'a> = (&'a Case, Vec<Result<Outcome, RunFailure>>);
        let mut groups: Vec<Group<'_>> = Vec::new();
        for (case, result) in cases.iter().zip(results) {
            match groups.iter_mut().rev().find(|(first, _)| first.cell == case.cell) {
                Some((_, group)) => group.push(result),
                None => groups.push((case, vec![result])),
            }
        }
        let mut axes: Vec<Axis> = Vec::new();
        for (key, value) in groups.iter().flat_map(|(case, _)| &case.cell) {
            let at = axes.iter().position(|axis| axis.key == *key).unwrap_or_else(|| {
                axes.push(Axis { key: key.clone(), values: Vec::new() });
                axes.len() - 1
            });
            if !axes[at].values.contains(value) {
                axes[at].values.push(value.clone());
            }
        }
        Self { axes, cells: groups.into_iter().map(|(case, results)| Cell::of(case, results)).collect() }
    }

    /// Whether every run was made and counts.
    pub fn is_clean(&self) -> bool {
        self.cells.iter().all(|cell| cell.not_run.is_empty() && cell.runs.iter().all(|run| run.violations.is_empty()))
    }
}

impl Cell {
    fn of(case: &Case, results: Vec<Result<Outcome, RunFailure>>) -> Self {
        let (mut runs, mut not_run) = (Vec::new(), Vec::new());
        for result in results {
            match result {
                Ok(outcome) => runs.push(outcome),
                Err(failure) => not_run.push(failure),
            }
        }
        let spread = |of: &dyn Fn(&Outcome) -> Option<f64>| Spread::of(runs.iter().filter_map(of));
        Self {
            settings: case.cell.clone(),
            goodput_mbit: spread(&|run| Some(run.goodput_mbit)),
            limit_mbit: runs.first().and_then(|run| run.limit_mbit),
            share: spread(&|run| run.share),
            wire_per_byte: spread(&|run| run.wire_per_byte),
            reverse_wire_per_byte: spread(&|run| run.reverse_wire_per_byte),
            queue_ms_p95: spread(&|run| run.queue_ms_p95),
            startup_rtts: spread(&|run| run.startup_rtts),
            memory_mib: spread(&|run| run.memory_mib),
            bytes_wrong: runs.iter().map(|run| run.bytes_wrong).sum::<Option<u64>>().filter(|_| !runs.is_empty()),
            rtt_ms_mean: spread(&|run| run.rtt_ms_mean),
            rtt_ms_p99: spread(&|run| run.rtt_ms_p99),
            residual_loss: spread(&|run| run.residual_loss),
            beside_mbit: None,
            runs,
            not_run,
            scenario: case.scenario.clone(),
        }
    }

    /// Its value on an axis.
    pub fn setting(&self, key: &str) -> Option<&str> {
        self.settings.iter().find(|(name, _)| name == key).map(|(_, value)| &**value)
    }

    /// Everything that is wrong with it, with the seed of the run.
    pub fn complaints(&self) -> Vec<String> {
        let violated = self.runs.iter().flat_map(|run| run.violations.iter().map(|v| format!("seed {}: {v}", run.seed)));
        violated.chain(self.not_run.iter().map(|f| format!("seed {}: {}", f.seed, f.reason))).collect()
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;
    use crate::link::LinkSpec;
    use crate::scenario::{Expectations, Hop};

    pub(crate) fn outcome(seed: u64, goodput_mbit: f64) -> Outcome {
        Outcome {
            seed,
            goodput_mbit,
            pairs_mbit: Vec::new(),
            limit_mbit: Some(100.0),
            share: Some(goodput_mbit / 100.0),
            wire_per_byte: Some(1.05),
            reverse_wire_per_byte: Some(0.01),
            queue_ms_p95: Some(seed as f64),
            startup_rtts: None,
            memory_mib: None,
            bytes_wrong: Some(0),
            rtt_ms_mean: None,
            rtt_ms_p99: None,
            residual_loss: None,
            violations: Vec::new(),
        }
    }

    pub(in crate::matrix) fn case(cell: &[(&str, &str)], seed: u64) -> Case {
        let mut spec = LinkSpec::default();
        for (key, value) in cell {
            spec.set(key, value).unwrap();
        }
        let scenario = Scenario::new(vec![Hop { forward: spec.clone(), reverse: spec }]);
        let cell = cell.iter().map(|&(k, v)| (k.to_owned(), v.to_owned())).collect();
        Case { name: String::new(), cell, scenario: Scenario { seed, ..scenario }, expect: Expectations::default(), command: None }
    }

    #[test]
    fn cases_of_several_lists_are_told_apart_where_their_axes_do_not() {
        let of = |name: &str, rate: &str, command: Option<&str>, seed: u64| {
            let mut case = case(&[("loss", "2%")], seed);
            case.scenario.hops[0].forward.set("rate", rate).unwrap();
            Case { name: format!("{name} loss=2% seed={seed}"), command: command.map(str::to_owned), ..case }
        };
        let first = |cases: Vec<Case>| {
            let mut cases = cases;
            tell_apart(&mut cases);
            cases.into_iter().map(|case| case.cell.into_iter().next().unwrap().1).collect::<Vec<_>>()
        };
        assert_eq!(first(vec![of("a", "1mbit", None, 1), of("b", "1mbit", None, 2)]), ["2%", "2%"], "seeds of one scenario");
        assert_eq!(first(vec![of("a", "1mbit", None, 1), of("b", "2mbit", None, 1)]), ["a", "b"]);
        // A file that was changed between two runs.
        let changed = [of("a", "2mbit", None, 1), of("a", "1mbit", None, 1), of("a", "1mbit", None, 2)];
        assert_eq!(first(changed.into()), ["a (2)", "a", "a"]);
        // One cell has both, another one the newer one alone: that has the same name there.
        let elsewhere = |case: Case| Case { name: "a loss=5% seed=1".to_owned(), cell: vec![("loss".to_owned(), "5%".to_owned())], ..case };
        let partly = [of("a", "1mbit", None, 1), of("a", "2mbit", None, 1), elsewhere(of("a", "2mbit", None, 1))];
        assert_eq!(first(partly.into()), ["a", "a (2)", "a (2)"]);
        let line = |flags: &str| format!("noctule-lab sim{flags} --loss=2% --seed=1");
        let grids = [of("", "1mbit", Some(&line("")), 1), of("", "2mbit", Some(&line(" --rate=2mbit")), 1)];
        assert_eq!(first(grids.into()), ["as it is", "--rate=2mbit"]);
        // A name with spaces is one word.
        let traced = |rate: &str, flags: &str| {
            let command = format!("noctule-lab sim{flags} '--trace=my file' --seed=1");
            Case { cell: vec![("trace".to_owned(), "my file".to_owned())], ..of("", rate, Some(&command), 1) }
        };
        assert_eq!(first(vec![traced("1mbit", ""), traced("2mbit", " --rate=2mbit")]), ["as it is", "--rate=2mbit"]);
        assert_eq!(words(&format!("{} {} b", Quoted("it's a"), Quoted(""))), ["it's a", "", "b"]);
    }

    #[test]
    fn a_cell_is_the_median_of_its_seeds_with_the_worst_beside_it() {
        let cases: Vec<Case> = [7, 8, 9].map(|seed| case(&[("loss", "2%")], seed)).into();
        let results = vec![Ok(outcome(7, 90.0)), Ok(outcome(8, 40.0)), Ok(outcome(9, 95.0))];
        let summary = Summary::of(&cases, results);
        assert_eq!(summary.cells.len(), 1);
        let cell = &summary.cells[0];
        assert_eq!(cell.share, Some(Spread { median: 0.9, min: 0.4, max: 0.95 }));
        assert_eq!(cell.queue_ms_p95.unwrap().max, 9.0);
        assert_eq!(summary.axes, [Axis { key: "loss".to_owned(), values: vec!["2%".to_owned()] }]);
        assert!(summary.is_clean());
    }

    #[test]
    fn a_run_that_could_not_be_made_is_seen_and_leaves_the_others() {
        let cases: Vec<Case> = [7, 8].map(|seed| case(&[("loss", "2%")], seed)).into();
        let failure = RunFailure { seed: 8, reason: "no room".to_owned(), code: 2 };
        let summary = Summary::of(&cases, vec![Ok(outcome(7, 90.0)), Err(failure)]);
        assert!(!summary.is_clean());
        assert_eq!(summary.cells[0].complaints(), ["seed 8: no room"]);
        assert_eq!(summary.cells[0].share.unwrap().median, 0.9);
    }

    #[test]
    fn the_median_of_two_lies_between_them() {
        assert_eq!(Spread::of([1.0, 2.0]).unwrap().median, 1.5);
        assert_eq!(Spread::of([]), None);
    }
}

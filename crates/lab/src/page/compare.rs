//! Two runs beside each other: cells of the same axes and seed in both, whatever program made them, and what else differs in their scenarios.

use std::collections::{BTreeMap, BTreeSet};

use serde::Serialize;
use serde_json::Value;

use super::answer::Problem;
use super::store::Run;
use super::view::outcome;
use crate::holdout::Draw;
use crate::matrix::Spread;
use crate::scenario::Scenario;
use crate::sweep::Record;

/// Cells that both runs have.
#[derive(Debug, Serialize)]
pub struct Comparison {
    /// Name of the first.
    pub a: String,
    /// Name of the second.
    pub b: String,
    /// The build whose results of the first these are; null without any.
    pub a_build: Option<String>,
    /// The same of the second.
    pub b_build: Option<String>,
    /// Cells that both have, in the order of the first.
    pub rows: Vec<Pair>,
    /// Results of the first that the second has not.
    pub only_a: usize,
    /// Results of the second that the first has not.
    pub only_b: usize,
    /// Median of the factors; null without any.
    pub median_factor: Option<f64>,
    /// The least of them.
    pub least_factor: Option<f64>,
    /// The largest of them.
    pub most_factor: Option<f64>,
}

/// A cell in both runs.
#[derive(Debug, Serialize)]
pub struct Pair {
    /// As tables have it.
    pub name: String,
    /// Of everything random.
    pub seed: u64,
    /// In the first.
    pub a: Side,
    /// In the second.
    pub b: Side,
    /// What else than the axes differs in the scenarios of the two: `hops.0.forward.rate`. Empty: the same scenario.
    pub differs: Vec<String>,
    /// Goodput of the second over that of the first.
    pub factor: Option<f64>,
}

/// A cell in one of them.
#[derive(Debug, Serialize)]
pub struct Side {
    /// Hash of the cell and the program.
    pub id: String,
    /// Goodput, Mbit/s.
    pub goodput_mbit: Option<f64>,
    /// Goodput over the limit.
    pub share: Option<f64>,
    /// 95th percentile of the queueing delay, ms.
    pub queue_ms_p95: Option<f64>,
    /// Mean round trip of messages, ms.
    pub rtt_ms_mean: Option<f64>,
    /// What is wrong with it.
    pub complaints: Vec<String>,
}

/// What pairs cells.
type Key<'a> = (&'a [(String, String)], u64, Option<Draw>, String);

fn key(record: &Record) -> Key<'_> {
    let case = &record.cell.case;
    // Single runs have no axes: there the scenario itself says whether they are the same.
    let scenario = if case.cell.is_empty() && record.cell.draw.is_none() {
        serde_json::to_string(&case.scenario).unwrap_or_default()
    } else {
        String::new()
    };
    (&case.cell, case.scenario.seed, record.cell.draw, scenario)
}

/// For each of `ours` the one of `theirs` that stands beside it; each of `theirs` once.
///
/// A folder may hold several grids with the same axes. There the same cell finds itself first, then the same scenario, then what is left.
fn pairs<'a>(ours: &[&'a Record], theirs: &[&'a Record]) -> Vec<Option<&'a Record>> {
    let mut left: BTreeMap<Key<'_>, Vec<&Record>> = BTreeMap::new();
    for record in theirs {
        left.entry(key(record)).or_default().push(record);
    }
    let mut found = vec![None; ours.len()];
    let nearest_first: [fn(&Record, &Record) -> bool; 3] =
        [|a, b| a.cell == b.cell, |a, b| a.cell.case.scenario == b.cell.case.scenario, |_, _| true];
    for is_pair in nearest_first {
        for (record, other) in ours.iter().zip(&mut found).filter(|(_, other)| other.is_none()) {
            let Some(of_key) = left.get_mut(&key(record)) else { continue };
            *other = of_key.iter().position(|other| is_pair(record, other)).map(|at| of_key.remove(at));
        }
    }
    found
}

/// Paths of the values in which two scenarios differ.
fn differences(a: &Scenario, b: &Scenario) -> Vec<String> {
    let mut found = Vec::new();
    if a == b {
        return found;
    }
    if let (Ok(a), Ok(b)) = (serde_json::to_value(a), serde_json::to_value(b)) {
        differ("", &a, &b, &mut found);
    }
    found
}

fn differ(path: &str, a: &Value, b: &Value, found: &mut Vec<String>) {
    if a == b {
        return;
    }
    let below = |key: &str| if path.is_empty() { key.to_owned() } else { format!("{path}.{key}") };
    match (a, b) {
        (Value::Object(a), Value::Object(b)) => {
            let keys: BTreeSet<&String> = a.keys().chain(b.keys()).collect();
            for key in keys {
                differ(&below(key), a.get(key).unwrap_or(&Value::Null), b.get(key).unwrap_or(&Value::Null), found);
            }
        }
        (Value::Array(a), Value::Array(b)) if a.len() == b.len() => {
            for (number, (a, b)) in a.iter().zip(b).enumerate() {
                differ(&below(&number.to_string()), a, b, found);
            }
        }
        _ => found.push(path.to_owned()),
    }
}

fn side(record: &Record) -> Side {
    let outcome = outcome(record);
    Side {
        id: record.id.clone(),
        goodput_mbit: outcome.map(|outcome| outcome.goodput_mbit),
        share: outcome.and_then(|outcome| outcome.share),
        queue_ms_p95: outcome.and_then(|outcome| outcome.queue_ms_p95),
        rtt_ms_mean: outcome.and_then(|outcome| outcome.rtt_ms_mean),
        complaints: record.complaints(),
    }
}

impl Comparison {
    /// Of two runs, each the results of one build: the named one, or that of the newest result.
    ///
    /// # Errors
    /// There are none of a build that is named.
    pub fn of((a, a_build): (&Run, Option<&str>), (b, b_build): (&Run, Option<&str>)) -> Result<Self, Problem> {
        let (ours, theirs) = (a.of_asked_build(a_build)?, b.of_asked_build(b_build)?);
        let others = pairs(&ours, &theirs);
        let mut rows = Vec::new();
        for (record, other) in ours.iter().zip(others) {
            let Some(other) = other else { continue };
            let differs = differences(&record.cell.case.scenario, &other.cell.case.scenario);
            let (a, b) = (side(record), side(other));
            let factor = a.goodput_mbit.zip(b.goodput_mbit).filter(|(a, _)| *a > 0.0).map(|(a, b)| crate::report::round(b / a, 4));
            rows.push(Pair { name: record.cell.case.name.clone(), seed: record.cell.case.scenario.seed, a, b, differs, factor });
        }
        let (only_a, only_b) = (ours.len() - rows.len(), theirs.len() - rows.len());
        let spread = Spread::of(rows.iter().filter_map(|row| row.factor));
        Ok(Self {
            a: a.name.clone(),
            b: b.name.clone(),
            a_build: a_build.or(a.build.as_deref()).map(str::to_owned),
            b_build: b_build.or(b.build.as_deref()).map(str::to_owned),
            rows,
            only_a,
            only_b,
            median_factor: spread.map(|spread| spread.median),
            least_factor: spread.map(|spread| spread.min),
            most_factor: spread.map(|spread| spread.max),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::super::store::Store;
    use super::super::store::tests::{cells, keep, record};
    use super::*;
    use crate::sweep::Build;

    #[test]
    fn cells_of_two_runs_find_each_other_by_their_axes_and_seed() {
        let dir = tempfile::tempdir().unwrap();
        let cells = cells();
        for (run, mbit, taken) in [("a", 80.0, 0..3), ("b", 60.0, 1..4)] {
            for place in taken {
                keep(&dir.path().join(run), &record(place, &cells[place], mbit));
            }
        }
        let store = Store::new(dir.path(), Build::named("test"));
        let (a, b) = (store.run("a").unwrap(), store.run("b").unwrap());
        let both = Comparison::of((&a, None), (&b, None)).unwrap();
        assert_eq!((both.rows.len(), both.only_a, both.only_b), (2, 1, 1));
        assert_eq!(both.a_build.as_deref(), Some("test"));
        assert_eq!((both.median_factor, both.rows[0].factor), (Some(0.75), Some(0.75)));
        assert!(both.rows.iter().all(|row| row.differs.is_empty()));
        // Two builds in one folder are two sides as well.
        let newer = Build::named("newer");
        let record = Record { id: newer.id(&cells[0]), build: "newer".to_owned(), ..record(0, &cells[0], 40.0) };
        keep(&dir.path().join("a"), &record);
        let a = store.run("a").unwrap();
        assert!(Comparison::of((&a, Some("older")), (&b, None)).unwrap_err().text.contains("newer, test"));
        let both = Comparison::of((&a, Some("test")), (&a, Some("newer"))).unwrap();
        assert_eq!((both.rows.len(), both.only_a, both.only_b, both.median_factor), (1, 2, 0, Some(0.5)));
    }

    #[test]
    fn results_of_the_same_axes_and_seed_do_not_hide_each_other() {
        let dir = tempfile::tempdir().unwrap();
        // Two grids in one folder, in one order and in the other.
        for (run, rates) in [("a", ["1mbit", "4mbit"]), ("b", ["4mbit", "1mbit"])] {
            for rate in rates {
                keep(&dir.path().join(run), &record(0, &of_rate(rate)[1], 80.0));
            }
        }
        keep(&dir.path().join("b"), &record(0, &of_rate("9mbit")[1], 80.0));
        let store = Store::new(dir.path(), Build::named("test"));
        let both = Comparison::of((&store.run("a").unwrap(), None), (&store.run("b").unwrap(), None)).unwrap();
        assert_eq!((both.rows.len(), both.only_a, both.only_b), (2, 0, 1));
        for row in &both.rows {
            assert_eq!(row.a.id, row.b.id, "the same scenarios find each other first");
        }
        let turned = Comparison::of((&store.run("b").unwrap(), None), (&store.run("a").unwrap(), None)).unwrap();
        assert_eq!((turned.rows.len(), turned.only_a, turned.only_b), (2, 1, 0));
    }

    /// Cells of two losses at a rate.
    fn of_rate(rate: &str) -> Vec<crate::sweep::Cell> {
        let text = format!("name = \"small\"\n[link]\nrate = \"{rate}\"\n[grid]\nloss = [\"0%\", \"2%\"]\n");
        let cases = toml::from_str::<crate::scenario::ScenarioFile>(&text).unwrap().cases(true).unwrap();
        cases.into_iter().map(crate::sweep::Cell::from).collect()
    }

    #[test]
    fn pairs_whose_scenarios_differ_elsewhere_say_in_what() {
        let dir = tempfile::tempdir().unwrap();
        for (run, rate) in [("a", "1mbit"), ("b", "4mbit")] {
            for (place, cell) in of_rate(rate).iter().enumerate() {
                keep(&dir.path().join(run), &record(place, cell, 80.0));
            }
        }
        let store = Store::new(dir.path(), Build::named("test"));
        let both = Comparison::of((&store.run("a").unwrap(), None), (&store.run("b").unwrap(), None)).unwrap();
        assert_eq!(both.rows.len(), 2);
        for row in &both.rows {
            assert_eq!(row.differs, ["hops.0.forward.rate", "hops.0.reverse.rate"]);
        }
    }
}

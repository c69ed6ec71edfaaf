//! Runs gathered into cells, in the order in which the figure has them.

use super::figure::Statistic;
use super::quantity::Quantity;
use crate::matrix::Axis;
use crate::report::Report;
use crate::scenario::Scenario;
use crate::sweep::{Measured, Record};

/// All cells of a figure.
#[derive(Debug)]
pub(super) struct Gathered {
    /// What was varied.
    pub(super) axes: Vec<Axis>,
    /// Cells in the order of their first run.
    pub(super) cells: Vec<CellRuns>,
}

/// A cell with all its runs.
#[derive(Debug)]
pub(super) struct CellRuns {
    /// Its value of each axis.
    pub(super) settings: Vec<(String, String)>,
    /// Its runs.
    pub(super) records: Vec<Record>,
}

/// What several runs say.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) struct Spread {
    pub(super) mean: f64,
    pub(super) least: f64,
    pub(super) most: f64,
    /// Of a sample: n - 1.
    pub(super) deviation: f64,
    pub(super) runs: usize,
}

impl Spread {
    pub(super) fn of(values: &[f64]) -> Option<Self> {
        let runs = values.len();
        let mean = values.iter().sum::<f64>() / runs as f64;
        let squares: f64 = values.iter().map(|value| (value - mean).powi(2)).sum();
        let deviation = if runs > 1 { (squares / (runs as f64 - 1.0)).sqrt() } else { 0.0 };
        let least = values.iter().copied().reduce(f64::min)?;
        let most = values.iter().copied().reduce(f64::max)?;
        Some(Self { mean, least, most, deviation, runs })
    }

    pub(super) fn value(&self, statistic: Statistic) -> f64 {
        match statistic {
            Statistic::Mean => self.mean,
            Statistic::Deviation => self.deviation,
        }
    }
}

/// The report of a run that counts.
pub(super) fn report(record: &Record) -> Option<&Report> {
    match &record.measured {
        Measured::Run { report: Some(report), .. } if report.failures.is_empty() => Some(report),
        _ => None,
    }
}

impl CellRuns {
    pub(super) fn setting(&self, key: &str) -> Option<&str> {
        self.settings.iter().find(|(k, _)| k == key).map(|(_, value)| &**value)
    }

    pub(super) fn scenario(&self) -> Option<&Scenario> {
        self.records.first().map(|record| &record.cell.case.scenario)
    }

    pub(super) fn spread(&self, quantity: &Quantity) -> Option<Spread> {
        let values: Vec<f64> = self.records.iter().filter_map(report).filter_map(quantity.of).collect();
        Spread::of(&values)
    }

    /// Without these keys.
    pub(super) fn others<'a>(&'a self, keys: &[&str]) -> Vec<(&'a str, &'a str)> {
        self.settings.iter().filter(|(key, _)| !keys.contains(&&**key)).map(|(key, value)| (&**key, &**value)).collect()
    }
}

impl Gathered {
    /// Of the records of a figure in the order of its cases.
    pub(super) fn of(records: Vec<Record>) -> Self {
        let mut cells: Vec<CellRuns> = Vec::new();
        let mut axes: Vec<Axis> = Vec::new();
        for record in records {
            let settings = record.cell.case.cell.clone();
            for (key, value) in &settings {
                let at = axes.iter().position(|axis| axis.key == *key).unwrap_or_else(|| {
                    axes.push(Axis { key: key.clone(), values: Vec::new() });
                    axes.len() - 1
                });
                if !axes[at].values.contains(value) {
                    axes[at].values.push(value.clone());
                }
            }
            match cells.iter_mut().find(|cell| cell.settings == settings) {
                Some(cell) => cell.records.push(record),
                None => cells.push(CellRuns { settings, records: vec![record] }),
            }
        }
        Self { axes, cells }
    }

    /// Keys that have more than one value, but for these.
    pub(super) fn varied(&self, without: &[&str]) -> Vec<&str> {
        let is_varied = |axis: &&Axis| axis.values.len() > 1 && !without.contains(&&*axis.key);
        self.axes.iter().filter(is_varied).map(|axis| &*axis.key).collect()
    }

    /// Values of an axis; one empty value if there is no such axis.
    pub(super) fn values(&self, key: &str) -> Vec<&str> {
        self.axes.iter().find(|axis| axis.key == key).map_or(vec![""], |axis| axis.values.iter().map(|value| &**value).collect())
    }
}

/// Values of these keys in words: `model, 125ms, hops 3`.
pub(super) fn name_of(cell: &CellRuns, keys: &[&str]) -> String {
    let word = |key: &&str| {
        let value = cell.setting(key)?;
        // A bare number says nothing by itself.
        Some(if *key != "case" && value.parse::<f64>().is_ok() { format!("{key} {value}") } else { value.to_owned() })
    };
    keys.iter().filter_map(word).collect::<Vec<_>>().join(", ")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_deviation_is_that_of_a_sample() {
        let spread = Spread::of(&[2.0, 4.0, 6.0]).unwrap();
        assert_eq!((spread.mean, spread.least, spread.most, spread.deviation, spread.runs), (4.0, 2.0, 6.0, 2.0, 3));
        assert_eq!(Spread::of(&[5.0]).unwrap().deviation, 0.0);
        assert_eq!(Spread::of(&[]), None);
    }
}

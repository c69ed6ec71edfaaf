//! How the runs of many draws are spread: low quantiles, the worst of them, and the command of each.

use std::fmt::Write;

use super::Kind;
use crate::report::count;
use crate::sweep::{Measured, Record};
use crate::without;

/// Quantiles that are printed, and their names.
const QUANTILES: [(&str, f64); 4] = [("p1", 0.01), ("p5", 0.05), ("p10", 0.1), ("p50", 0.5)];

/// A figure of a run; the lower, the worse.
#[derive(Debug, Clone, Copy)]
pub struct Figure {
    /// What it is.
    pub name: &'static str,
    of: fn(&Record) -> Option<f64>,
}

impl Figure {
    /// Of a run; none if the run failed or does not have it.
    pub fn of(&self, record: &Record) -> Option<f64> {
        if record.complaints().is_empty() { (self.of)(record) } else { None }
    }
}

/// What a kind of draw is judged by.
pub fn figures(kind: Kind) -> &'static [Figure] {
    match kind {
        Kind::Bulk => &[
            Figure { name: "share of the limit", of: share },
            Figure { name: "goodput over that of the same run told 97 % of the narrowest link", of: over_told },
        ],
        Kind::Btp => &[Figure { name: "share of the limit", of: share }],
        Kind::Beside => &[
            Figure { name: "QUIC's goodput beside noctule over that beside QUIC", of: other_beside },
            Figure { name: "noctule's goodput over that of QUIC in its place", of: in_its_place },
            Figure { name: "share of the limit, both together", of: share },
        ],
        Kind::Messages => &[
            Figure { name: "base round trip over the mean one", of: mean_rtt },
            Figure { name: "base round trip over the 99th percentile", of: p99_rtt },
            Figure { name: "messages that arrived", of: arrived },
        ],
    }
}

fn share(record: &Record) -> Option<f64> {
    let Measured::Run { outcome, .. } = &record.measured else { return None };
    outcome.share
}

fn over_told(record: &Record) -> Option<f64> {
    let Measured::Run { outcome, second_mbit: Some(second), .. } = &record.measured else { return None };
    let told: f64 = second.iter().sum();
    (told > 0.0).then(|| outcome.goodput_mbit / told)
}

/// Goodput of a sender over that of the one in its place in the second run.
fn over_second(record: &Record, place: usize) -> Option<f64> {
    let Measured::Run { outcome, second_mbit: Some(second), .. } = &record.measured else { return None };
    let before = second.get(place).copied().filter(|mbit| *mbit > 0.0)?;
    Some(outcome.pairs_mbit.get(place)? / before)
}

fn in_its_place(record: &Record) -> Option<f64> {
    over_second(record, 0)
}

fn other_beside(record: &Record) -> Option<f64> {
    over_second(record, 1)
}

fn base_over(record: &Record, ms: Option<f64>) -> Option<f64> {
    ms.filter(|ms| *ms > 0.0).map(|ms| record.cell.case.scenario.base_rtt().as_secs_f64() * 1e3 / ms)
}

fn mean_rtt(record: &Record) -> Option<f64> {
    let Measured::Run { outcome, .. } = &record.measured else { return None };
    base_over(record, outcome.rtt_ms_mean)
}

fn p99_rtt(record: &Record) -> Option<f64> {
    let Measured::Run { outcome, .. } = &record.measured else { return None };
    base_over(record, outcome.rtt_ms_p99)
}

fn arrived(record: &Record) -> Option<f64> {
    let Measured::Run { outcome, .. } = &record.measured else { return None };
    outcome.residual_loss.map(|lost| 1.0 - lost)
}

/// The smallest value that at least the share `q` of `sorted` does not exceed (nearest rank).
pub fn quantile(sorted: &[f64], q: f64) -> Option<f64> {
    let rank = (q * sorted.len() as f64).ceil() as usize;
    sorted.get(rank.max(1) - 1).copied()
}

/// Draws of any kinds as text, with the `worst` of each figure.
pub fn text(records: &[Record], worst: usize) -> String {
    let mut out = String::new();
    for kind in Kind::ALL {
        let of_kind: Vec<&Record> = records.iter().filter(|record| record.cell.draw.is_some_and(|draw| draw.kind == kind)).collect();
        if !of_kind.is_empty() {
            // Writing to a String cannot fail, here and below.
            let _ = write!(out, "{}", of(kind, &of_kind, worst));
        }
    }
    out
}

fn of(kind: Kind, records: &[&Record], worst: usize) -> String {
    let mut out = String::new();
    let mut seeds: Vec<u64> = records.iter().filter_map(|record| record.cell.draw.map(|draw| draw.seed)).collect();
    seeds.sort_unstable();
    seeds.dedup();
    let seeds: Vec<String> = seeds.iter().map(u64::to_string).collect();
    let build = records.first().map_or("", |record| &record.build);
    let _ = writeln!(out, "holdout {kind}: {} of seed {}, noctule-lab {build}\n", count(records.len(), "draw"), seeds.join(", "));
    let width = figures(kind).iter().map(|figure| figure.name.len()).max().unwrap_or(0);
    let heads: String = QUANTILES.iter().map(|(name, _)| format!(" {name:>7}")).collect();
    let _ = writeln!(out, "{:<width$}{heads}    runs", "");
    let mut ranked: Vec<(&Figure, Vec<(f64, &Record)>)> = Vec::new();
    for figure in figures(kind) {
        let mut values: Vec<(f64, &Record)> = records.iter().filter_map(|record| Some((figure.of(record)?, *record))).collect();
        values.sort_by(|a, b| a.0.total_cmp(&b.0));
        let sorted: Vec<f64> = values.iter().map(|(value, _)| *value).collect();
        let numbers: String =
            QUANTILES.iter().map(|(_, q)| quantile(&sorted, *q).map_or(format!(" {:>7}", "-"), |value| format!(" {value:>7.3}"))).collect();
        let _ = writeln!(out, "{:<width$}{numbers} {:>7}", figure.name, sorted.len());
        ranked.push((figure, values));
    }
    let failed: Vec<&&Record> = records.iter().filter(|record| !record.complaints().is_empty()).collect();
    if !failed.is_empty() {
        let _ = writeln!(out, "\n{} draws do not count:", failed.len());
        for record in failed {
            let _ = writeln!(out, "  {}: {}\n          {}", record.cell.case.name, record.complaints().join("; "), command(record));
        }
    }
    for (figure, values) in ranked.iter().filter(|(_, values)| worst > 0 && !values.is_empty()) {
        let _ = writeln!(out, "\nworst by {}:", figure.name);
        for (value, record) in values.iter().take(worst) {
            let others = figures(kind).iter().filter(|other| other.name != figure.name).filter_map(|other| other.of(record));
            let others: Vec<String> = others.map(|value| format!("{value:.3}")).collect();
            let others = if others.is_empty() { String::new() } else { format!(" ({})", others.join(", ")) };
            let _ = writeln!(out, "  {value:.3}{others}  {}", command(record));
        }
    }
    out
}

fn command(record: &Record) -> String {
    format!("{}{}", record.cell.case.command.as_deref().unwrap_or(&record.cell.case.name), without::flag())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_quantile_is_a_value_that_was_measured() {
        let values: Vec<f64> = (1..=200).map(f64::from).collect();
        assert_eq!([0.01, 0.05, 0.1, 0.5].map(|q| quantile(&values, q)), [Some(2.0), Some(10.0), Some(20.0), Some(100.0)]);
        assert_eq!(quantile(&[3.0], 0.01), Some(3.0));
        assert_eq!(quantile(&[], 0.5), None);
    }
}

//! What was measured, as records for programs and tables for people.

use std::fmt::Write;

use serde::{Deserialize, Serialize};

use super::contender::Contender;

/// A named number.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub(super) struct Figure {
    pub(super) name: String,
    pub(super) value: f64,
}

impl Figure {
    pub(super) fn new(name: &str, value: f64) -> Self {
        Self { name: name.to_owned(), value: crate::report::round(value, 4) }
    }
}

/// One contender in one cell.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(super) struct Record {
    pub(super) measure: String,
    pub(super) contender: Contender,
    pub(super) version: String,
    /// Values of the axes.
    pub(super) cell: Vec<(String, String)>,
    pub(super) seed: u64,
    pub(super) figures: Vec<Figure>,
    /// Why there are no figures.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) failure: Option<String>,
}

impl Record {
    fn figure(&self, name: &str) -> Option<f64> {
        self.figures.iter().find(|figure| figure.name == name).map(|figure| figure.value)
    }

    fn setting(&self, key: &str) -> Option<&str> {
        self.cell.iter().find(|(name, _)| name == key).map(|(_, value)| &**value)
    }
}

/// A row for each record; where loss and delay both vary, a plane of `share` for each contender before it.
pub(super) fn markdown(records: &[Record]) -> String {
    let mut out = String::new();
    let names = |of: &dyn Fn(&Record) -> Vec<String>| {
        let mut names: Vec<String> = Vec::new();
        for name in records.iter().flat_map(of) {
            if !names.contains(&name) {
                names.push(name);
            }
        }
        names
    };
    let values = |key: &str| names(&|record| record.setting(key).map(str::to_owned).into_iter().collect());
    let (losses, delays) = (values("loss"), values("delay"));
    if losses.len() > 1 && delays.len() > 1 {
        for contender in names(&|record| vec![record.contender.name().to_owned()]) {
            // Writing to a String cannot fail, here and below.
            let _ = writeln!(out, "{contender}, Mbit/s (share of the limit):\n\n| loss ↓ delay → | {} |", delays.join(" | "));
            let _ = writeln!(out, "|---|{}", "---:|".repeat(delays.len()));
            for loss in &losses {
                let cells = delays.iter().map(|delay| plane_cell(records, &contender, loss, delay));
                let _ = writeln!(out, "| {loss} | {} |", cells.collect::<Vec<_>>().join(" | "));
            }
            out.push('\n');
        }
    }
    let keys = names(&|record| record.cell.iter().map(|(key, _)| key.clone()).collect());
    let figures = names(&|record| record.figures.iter().map(|figure| figure.name.clone()).collect());
    let heads: Vec<&str> = ["contender"].into_iter().chain(keys.iter().chain(&figures).map(|name| &**name)).chain(["seed"]).collect();
    let _ = writeln!(out, "| {} |\n|{}", heads.join(" | "), "---|".repeat(heads.len()));
    for record in records {
        let mut row = vec![record.contender.name().to_owned()];
        row.extend(keys.iter().map(|key| record.setting(key).unwrap_or("-").to_owned()));
        match &record.failure {
            Some(_) => row.extend(figures.iter().map(|_| "failed".to_owned())),
            None => row.extend(figures.iter().map(|name| record.figure(name).map_or("-".to_owned(), number))),
        }
        row.push(record.seed.to_string());
        let _ = writeln!(out, "| {} |", row.join(" | "));
    }
    for record in records {
        if let Some(failure) = &record.failure {
            let cell: String = record.cell.iter().map(|(key, value)| format!(" {key} {value},")).collect();
            let _ = writeln!(out, "\n- {}{cell} seed {}: {failure}", record.contender.name(), record.seed);
        }
    }
    out
}

/// The median of the seeds.
fn plane_cell(records: &[Record], contender: &str, loss: &str, delay: &str) -> String {
    let is_here = |record: &&Record| {
        record.contender.name() == contender && record.setting("loss") == Some(loss) && record.setting("delay") == Some(delay)
    };
    let median = |name: &str| {
        let values = records.iter().filter(is_here).filter_map(|record| record.figure(name));
        crate::matrix::Spread::of(values).map(|spread| spread.median)
    };
    match (median("Mbit/s"), median("share %")) {
        (Some(mbit), Some(share)) => format!("{mbit:.1} ({share:.1} %)"),
        (Some(mbit), None) => format!("{mbit:.1}"),
        _ => "-".to_owned(),
    }
}

fn number(value: f64) -> String {
    match value.abs() {
        0.0..10.0 => format!("{value:.3}"),
        10.0..1000.0 => format!("{value:.1}"),
        _ => format!("{value:.0}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn record(contender: Contender, loss: &str, delay: &str, mbit: f64) -> Record {
        let cell = vec![("loss".to_owned(), loss.to_owned()), ("delay".to_owned(), delay.to_owned())];
        let figures = vec![Figure::new("Mbit/s", mbit), Figure::new("share %", mbit)];
        let (measure, version) = ("bulk".to_owned(), "1".to_owned());
        Record { measure, contender, version, cell, seed: 7, figures, failure: None }
    }

    #[test]
    fn every_contender_has_a_plane_and_what_failed_is_said() {
        let mut records: Vec<Record> = Vec::new();
        for (loss, delay) in [("0%", "10ms"), ("0%", "50ms"), ("2%", "10ms"), ("2%", "50ms")] {
            records.push(record(Contender::Noctule, loss, delay, 90.0));
        }
        records[3].figures.clear();
        records[3].failure = Some("no room".to_owned());
        let text = markdown(&records);
        assert!(text.contains("| 2% | 90.0 (90.0 %) | - |"), "{text}");
        assert!(text.contains("noctule loss 2%, delay 50ms, seed 7: no room"), "{text}");
        assert!(text.contains("| noctule | 2% | 50ms | failed | failed | 7 |"), "{text}");
    }
}

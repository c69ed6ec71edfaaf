//! Runs that are no cells of a list: one by `sim` or `net`, known by its course and, where the page started it, by what it printed.

use std::path::Path;

use serde_json::Value;

use super::view::{CellState, Row};
use crate::files::{self, Links};
use crate::sweep::samples::Head;

/// A run that is no cell.
#[derive(Debug, Clone)]
pub struct Single {
    /// The first line of its course, once it is there.
    pub head: Option<Head>,
    /// There is a file for its report.
    pub promised: bool,
    /// What that file says, once it is there.
    pub figures: Option<Figures>,
}

/// The figures of a report that every back end has.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Figures {
    goodput_mbit: Option<f64>,
    share: Option<f64>,
    queue_ms_p95: Option<f64>,
    rtt_ms_mean: Option<f64>,
    residual_loss: Option<f64>,
    wire_per_byte: Option<f64>,
    seed: Option<u64>,
    bytes_wrong: u64,
}

/// The report in a file, if it is whole.
pub fn report(path: &Path) -> Option<Value> {
    let text = files::read(path, Links::Refuse, files::MOST_BYTES).ok()?;
    serde_json::from_slice(&text).ok().filter(Value::is_object)
}

impl Figures {
    /// Those of a file; none while it is not whole.
    pub fn read(path: &Path) -> Option<Self> {
        report(path).map(|report| Self::of(&report))
    }

    fn of(report: &Value) -> Self {
        let figure = |name: &str| report[name].as_f64();
        let links = report["wire_per_byte"].as_array();
        Self {
            goodput_mbit: figure("goodput_mbit"),
            share: figure("share"),
            queue_ms_p95: figure("queue_ms_p95"),
            rtt_ms_mean: report["message_rtt_ms"]["mean"].as_f64(),
            residual_loss: figure("residual_loss"),
            wire_per_byte: links.and_then(|links| links.iter().filter_map(Value::as_f64).reduce(f64::max)),
            seed: report["scenario"]["seed"].as_u64(),
            bytes_wrong: report["bytes_wrong"].as_u64().unwrap_or_default(),
        }
    }
}

impl Single {
    /// How far it is; `works` says that its process has not ended.
    pub fn state(&self, works: bool) -> CellState {
        match &self.figures {
            Some(figures) if figures.bytes_wrong > 0 => CellState::Failed,
            Some(_) => CellState::Done,
            None if works => CellState::Running,
            None if self.promised => CellState::Failed,
            None => CellState::Course,
        }
    }

    /// Its line.
    pub fn row(&self, name: &str, works: bool, has_samples: bool) -> Row {
        let state = self.state(works);
        let row = Row::empty(name, state, has_samples);
        let row = match &self.head {
            Some(head) => Row { name: head.name.clone(), limit_mbit: head.limit_mbit, ..row },
            None => row,
        };
        match &self.figures {
            Some(figures) => {
                let wrong = (figures.bytes_wrong > 0).then(|| format!("{} wrong bytes", figures.bytes_wrong));
                Row {
                    goodput_mbit: figures.goodput_mbit,
                    share: figures.share,
                    queue_ms_p95: figures.queue_ms_p95,
                    rtt_ms_mean: figures.rtt_ms_mean,
                    residual_loss: figures.residual_loss,
                    wire_per_byte: figures.wire_per_byte,
                    seed: figures.seed,
                    complaints: wrong.into_iter().collect(),
                    ..row
                }
            }
            None if state == CellState::Failed => Row { complaints: vec!["it has ended and left no report".to_owned()], ..row },
            None => row,
        }
    }
}

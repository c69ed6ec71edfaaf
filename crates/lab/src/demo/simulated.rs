//! The demonstration without namespaces: the same transfer between nodes in the simulator.

use std::time::Duration;

use super::outcome::Outcome;
use super::{Job, say};
use crate::net::timeline::Timeline;
use crate::scenario::{Scenario, Workload};
use crate::sim::{self, SimError};

pub(super) fn run(job: &Job) -> Result<Outcome, SimError> {
    let scenario = Scenario { workload: Workload::Transfer { size: job.bytes }, seed: job.seed, ..job.scenario.clone() };
    say("noctule in the simulator ...");
    let report = sim::run(&scenario)?;
    let mut timeline = Timeline::default();
    let second = Duration::from_secs(1);
    for (index, mbit) in report.goodput_mbit_by_second.iter().enumerate() {
        let from = second * index as u32;
        timeline.record_between(from, from + second, (mbit * 1e6 / 8.0) as u64);
    }
    let elapsed = report.transfer_s.map_or(scenario.seconds.0, Duration::from_secs_f64);
    Ok(Outcome {
        name: "noctule".to_owned(),
        elapsed,
        bytes: report.bytes_delivered,
        complete: report.transfer_s.is_some() && report.bytes_delivered == job.bytes,
        identical: report.bytes_wrong == 0,
        timeline,
        wire_per_byte: report.wire_per_byte.first().copied().flatten(),
        conditions: None,
    })
}

//! `noctule perf` as a contender: server and client in the end namespaces, its JSON read back.

use std::time::Duration;

use serde_json::Value;

use super::contender_path::ContenderPath;
use super::contest::ContestError;
use super::ends::Ends;
use super::run::Arrivals;
use super::timeline::Timeline;
use crate::scenario::Scenario;
use noctule_proto::options::Mode;

/// Runs perf for the length of the scenario.
pub(super) fn run(path: &ContenderPath<'_>, scenario: &Scenario, started: &dyn Fn()) -> Result<Arrivals, ContestError> {
    let mut ends = Ends::start(path, scenario, &["perf", "-c"])?;
    arrivals(ends.run(&flags(scenario), scenario.seconds.0, started)?)
}

fn flags(scenario: &Scenario) -> Vec<String> {
    let mut flags = vec![
        "-t".to_owned(),
        scenario.seconds.0.as_secs_f64().to_string(),
        // Shorter than the lab's own seconds, so that the warm-up is cut off exactly.
        "-i".to_owned(),
        "0.1".to_owned(),
        "--cc".to_owned(),
        scenario.cc.to_string(),
        "--mode".to_owned(),
        scenario.mode.to_string(),
    ];
    if let (Mode::Btp, Some(lifetime)) = (scenario.mode.0, scenario.lifetime) {
        flags.extend(["--lifetime".to_owned(), lifetime.to_string()]);
    }
    flags
}

/// Reads the intervals, named as iperf3 names them: start and end in seconds and bytes at the receiving application.
pub(super) fn arrivals(report: Value) -> Result<Arrivals, ContestError> {
    let missing = |what: &str| ContestError::Process(format!("the report has no {what}"));
    let intervals = report["intervals"].as_array().ok_or_else(|| missing("intervals"))?;
    let mut timeline = Timeline::default();
    for interval in intervals {
        let sum = interval.get("sum").unwrap_or(interval);
        let number = |name: &str| sum[name].as_f64().filter(|value| *value >= 0.0).ok_or_else(|| missing(name));
        let (start, end) = (number("start")?, number("end")?.max(number("start")?));
        let bytes = sum["bytes"].as_u64().ok_or_else(|| missing("bytes"))?;
        timeline.record_between(Duration::from_secs_f64(start.min(1e6)), Duration::from_secs_f64(end.min(1e6)), bytes);
    }
    Ok(Arrivals {
        bytes_wrong: report["end"]["bytes_wrong"].as_u64(),
        memory_peak_bytes: report["end"]["memory_peak_bytes"].as_u64(),
        contender: Some(report["end"].clone()),
        ..Arrivals::of(timeline)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn intervals_become_a_timeline() {
        let report = serde_json::json!({
            "intervals": [
                {"sum": {"start": 0.0, "end": 0.1, "bytes": 1000}},
                {"sum": {"start": 0.1, "end": 0.2, "bytes": 3000}},
            ],
            "end": {"bytes_wrong": 0, "goodput_mbit": 0.16},
        });
        let arrivals = arrivals(report).unwrap();
        assert_eq!(arrivals.timeline.intervals(), [1000, 3000]);
        assert_eq!(arrivals.bytes_wrong, Some(0));
    }

    #[test]
    fn report_without_intervals_is_refused() {
        for report in [serde_json::json!({}), serde_json::json!({"intervals": [{"sum": {"start": 0.0}}]})] {
            assert!(arrivals(report).is_err());
        }
    }
}

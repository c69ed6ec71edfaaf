//! Messages at a fixed rate that the far end echoes: `noctule ping`, over noctule or over the kernel's TCP.

use serde_json::Value;

use super::contender_path::ContenderPath;
use super::contest::ContestError;
use super::ends::Ends;
use super::run::Arrivals;
use super::tcp;
use super::timeline::Timeline;
use crate::report::{Times, round};
use crate::scenario::{Scenario, Workload};
use noctule_proto::options::Mode;
use std::time::Duration;

/// Sends messages for the length of the scenario, over TCP if a congestion control of it is named. The warm-up counts.
pub(super) fn run(
    path: &ContenderPath<'_>,
    scenario: &Scenario,
    congestion: Option<tcp::Congestion>,
    started: &dyn Fn(),
) -> Result<Arrivals, ContestError> {
    let Workload::Messages { interval, size } = scenario.workload else {
        return Err(ContestError::Unsupported("ping sends messages".to_owned()));
    };
    let count = (scenario.seconds.0.as_secs_f64() / interval.0.as_secs_f64()) as u64;
    let mut words = vec!["-c".to_owned(), count.max(1).to_string(), "-l".to_owned(), size.to_string()];
    words.extend(["-i".to_owned(), format!("{}us", interval.0.as_micros()), "--cc".to_owned(), scenario.cc.to_string()]);
    match congestion {
        Some(congestion) => words.extend(["--mode", "tcp", "--tcp-cc", congestion.name()].map(str::to_owned)),
        None => words.extend(["--mode".to_owned(), scenario.mode.to_string()]),
    }
    if let (None, Mode::Btp, Some(lifetime)) = (congestion, scenario.mode.0, scenario.lifetime) {
        words.extend(["--lifetime".to_owned(), lifetime.to_string()]);
    }
    // What it waits for an answer: a late one is lost in its count, not in the distribution.
    words.extend(["-W", "10s"].map(str::to_owned));
    let mut ends = Ends::start(path, scenario, &["ping"])?;
    arrivals(ends.run(&words, scenario.seconds.0 + Duration::from_secs(10), started)?, size, scenario.seconds.0)
}

fn arrivals(report: Value, size: usize, time: Duration) -> Result<Arrivals, ContestError> {
    let summary = &report["summary"];
    let number = |name: &str| summary[name].as_f64().ok_or_else(|| ContestError::Process(format!("noctule ping -J has no {name}")));
    let ms = |name: &str| number(name).map(|ms| round(ms, 3));
    let count = number("received")? as u64;
    let mut timeline = Timeline::default();
    timeline.record_between(Duration::ZERO, time, count * size as u64);
    let rtt = Times {
        mean: ms("mean_ms")?,
        p50: ms("p50_ms")?,
        p95: ms("p95_ms")?,
        p99: ms("p99_ms")?,
        p999: ms("p999_ms")?,
        max: ms("max_ms")?,
        count,
    };
    let residual_loss = Some(number("residual_loss")?);
    Ok(Arrivals { message_rtt_ms: Some(rtt), residual_loss, contender: Some(report), ..Arrivals::of(timeline) })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_summary_becomes_round_trips_and_bytes() {
        let report = serde_json::json!({"summary": {"received": 90, "residual_loss": 0.1, "mean_ms": 30.5, "p50_ms": 30.0, "p95_ms": 31.0,
            "p99_ms": 33.0, "p999_ms": 35.0, "max_ms": 36.0}});
        let arrivals = arrivals(report, 100, Duration::from_secs(1)).unwrap();
        assert_eq!(arrivals.timeline.total(), 9000);
        assert_eq!((arrivals.message_rtt_ms.unwrap().mean, arrivals.residual_loss), (30.5, Some(0.1)));
    }

    #[test]
    fn a_report_without_a_summary_is_refused() {
        assert!(arrivals(serde_json::json!({}), 100, Duration::from_secs(1)).is_err());
    }
}

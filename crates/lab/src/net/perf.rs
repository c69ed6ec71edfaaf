//! `noctule perf` as a contender: server and client in the end namespaces, its JSON read back.

use std::sync::mpsc;
use std::time::{Duration, Instant};

use serde_json::Value;

use super::chain::Chain;
use super::contest::ContestError;
use super::noctule;
use super::process::Process;
use super::relays::Chained;
use super::run::Arrivals;
use super::timeline::Timeline;
use crate::scenario::Scenario;
use noctule_proto::options::Mode;

const PORT: u16 = 4242;
const READY: Duration = Duration::from_secs(10);
/// How long perf may take beyond its measurement to open, close and report.
const MARGIN: Duration = Duration::from_secs(30);

/// Runs perf for the length of the scenario.
pub(super) fn run(chain: &Chain, scenario: &Scenario, started: &dyn Fn()) -> Result<Arrivals, ContestError> {
    let binary = noctule::binary()?;
    let keys = super::scratch::Scratch::new("noctule-lab-keys")?;
    let (client_key, server_key) = (keys.path().join("client"), keys.path().join("server"));
    let client_public = noctule::keygen(&binary, &client_key)?;
    let public = noctule::keygen(&binary, &server_key)?;
    let relays = match scenario.network.is_end_to_end() {
        true => None,
        false => Some(Chained::start(chain, scenario, &binary, keys.path(), [&client_public, &public])?),
    };
    let port = PORT.to_string();
    let mut command = chain.last().command(&binary);
    command.args(["perf", "-s", "--once", "-p", &port, "--key"]).arg(&server_key);
    command.args(relays.as_ref().map(Chained::far).unwrap_or_default());
    let mut server = Process::start(&mut command, |_| {})?;
    wait_until_it_serves(&mut server)?;
    let mut command = chain.first().command(&binary);
    let far = relays.as_ref().map_or(chain.last_address(), Chained::far_address);
    command.args(["perf", "-J", "-c", &far.to_string(), "-p", &port, "--peer-key", &public, "--key"]).arg(&client_key);
    command.args(relays.as_ref().map(Chained::near).unwrap_or_default());
    command.args(flags(scenario));
    let (heard, lines) = mpsc::channel();
    started();
    // The receiver is gone only when this function has returned.
    let mut client = Process::start(&mut command, move |line| drop(heard.send(line.to_owned())))?;
    let deadline = Instant::now() + scenario.seconds.0 + MARGIN;
    match client.wait(deadline)? {
        Some(status) if status.success() => {}
        Some(status) => return Err(ContestError::Process(format!("noctule perf failed ({status}): {}", client.complaint()))),
        None => return Err(ContestError::Process(format!("noctule perf did not end within {MARGIN:?} of its time"))),
    }
    let text: Vec<String> = lines.try_iter().collect();
    let report: Value = serde_json::from_str(&text.join("\n"))
        .map_err(|error| ContestError::Process(format!("noctule perf -J printed no JSON object: {error}")))?;
    arrivals(report)
}

/// Attached to its node, if there are any, and listening.
fn wait_until_it_serves(server: &mut Process) -> Result<(), ContestError> {
    let deadline = Instant::now() + READY;
    while !server.complaint().contains("serving tests") {
        if let Some(status) = server.try_wait()? {
            server.wait(deadline)?;
            return Err(ContestError::Process(format!("noctule perf -s ended before it served ({status}): {}", server.complaint())));
        }
        if Instant::now() >= deadline {
            return Err(ContestError::Process(format!("noctule perf -s did not serve within {READY:?}: {}", server.complaint())));
        }
        std::thread::sleep(Duration::from_millis(10));
    }
    Ok(())
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
fn arrivals(report: Value) -> Result<Arrivals, ContestError> {
    let missing = |what: &str| ContestError::Process(format!("noctule perf -J has no {what}"));
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
        timeline,
        bytes_wrong: report["end"]["bytes_wrong"].as_u64(),
        memory_peak_bytes: report["end"]["memory_peak_bytes"].as_u64(),
        contender: Some(report["end"].clone()),
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

//! iperf3 as a contender: its server on the last host, whose intervals are what arrived there.

use std::sync::mpsc;
use std::time::{Duration, Instant};

use serde_json::Value;

use super::contender_path::ContenderPath;
use super::contest::ContestError;
use super::noctule::{self, Protocol};
use super::perf;
use super::process::Process;
use super::program::Program;
use super::run::Arrivals;
use crate::scenario::{Limits, Scenario};

/// One program for both ends.
pub(crate) const PROGRAMS: [Program; 1] = [Program { name: "iperf3", package: "iperf3", asked: &["--version"] }];

const PORT: u16 = 5201;
const READY: Duration = Duration::from_secs(5);
/// Beyond the time of the test: over a bad path its control connection takes long to end.
const MARGIN: Duration = Duration::from_secs(60);
/// UDP offers this part of the path's limit; datagrams of so many bytes.
pub(super) const UDP_LOAD: f64 = 0.85;
const UDP_PAYLOAD: u32 = 1200;

/// Runs a test of the scenario's length, with TCP and the kernel's own congestion control, or with UDP.
pub(super) fn run(path: &ContenderPath<'_>, scenario: &Scenario, is_udp: bool, started: &dyn Fn()) -> Result<Arrivals, ContestError> {
    let port = PORT.to_string();
    let mut command = path.chain.last().command("iperf3");
    command.args(["-s", "-1", "-J", "-i", "0.1", "-p", &port]);
    let (heard, lines) = mpsc::channel();
    let mut server = Process::start(&mut command, move |line| drop(heard.send(line.to_owned())))?;
    noctule::wait_for_port(path.chain.last(), Protocol::Tcp, PORT, READY, &mut server)?;
    let mut command = path.chain.first().command("iperf3");
    command.args(["-c", &path.far.to_string(), "-p", &port, "-J", "-t", &scenario.seconds.0.as_secs_f64().ceil().to_string()]);
    if is_udp {
        let offered = Limits::of(scenario).forward * UDP_LOAD;
        if !offered.is_finite() {
            return Err(ContestError::Unsupported("iperf3 with UDP offers a share of the path's limit: give the links a rate".to_owned()));
        }
        command.args(["-u", "-l", &UDP_PAYLOAD.to_string(), "-b", &format!("{offered:.0}")]);
    }
    started();
    let mut client = Process::start(&mut command, |_| {})?;
    let deadline = Instant::now() + scenario.seconds.0 + MARGIN;
    for (process, what) in [(&mut client, "client"), (&mut server, "server")] {
        match process.wait(deadline)? {
            Some(status) if status.success() => {}
            Some(status) => return Err(ContestError::Process(format!("the iperf3 {what} failed ({status}): {}", process.complaint()))),
            None => return Err(ContestError::Process(format!("the iperf3 {what} did not end within {MARGIN:?} of its time"))),
        }
    }
    let text: Vec<String> = lines.try_iter().collect();
    let report: Value = serde_json::from_str(&text.join("\n"))
        .map_err(|error| ContestError::Process(format!("iperf3 -J printed no JSON object: {error}")))?;
    // Of UDP the server counts what is missing; the sum is over the whole test.
    let lost = report["end"]["sum"]["lost_percent"].as_f64().filter(|_| is_udp).map(|percent| percent / 100.0);
    Ok(Arrivals { residual_loss: lost, ..perf::arrivals(report)? })
}

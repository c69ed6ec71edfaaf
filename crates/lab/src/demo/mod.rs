//! `noctule-lab demo`: one real file over one bad link, with noctule and with the kernel's TCP, and what came of it.

mod course;
mod outcome;
mod simulated;
mod transfer;

use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::Duration;

use clap::Args;

use crate::link::{LinkSpec, Period, SpecError, parse_bytes};
use crate::net::chain::BackendChoice;
use crate::net::command::{NOT_PERMITTED, code_of, fail};
use crate::net::contest::ContestError;
use crate::plot::{Curve, GoodputFigure};
use crate::scenario::{Hop, Limits, Scenario, ScenarioError};

use outcome::{Outcome, table};

/// Flags of the demonstration; the defaults are the job that the README shows.
#[derive(Debug, Clone, Args)]
pub struct DemoArgs {
    /// Capacity of the link in IP bits per second.
    #[arg(long, default_value = "100mbit")]
    pub rate: String,
    /// Propagation delay one way.
    #[arg(long, default_value = "50ms")]
    pub delay: String,
    /// Loss in each direction, after the bottleneck.
    #[arg(long, default_value = "10%")]
    pub loss: String,
    /// Size of the file, e.g. 50MB [default: what the link carries in ten seconds].
    #[arg(long)]
    pub size: Option<String>,
    /// A TCP that is not finished by then is cut off; what arrived is reported.
    #[arg(long, default_value = "60s")]
    pub tcp_limit: Period,
    /// Seed of the link and of the file.
    #[arg(long, default_value_t = 7)]
    pub seed: u64,
    /// What emulates the link.
    #[arg(long, value_enum, default_value_t)]
    pub backend: BackendChoice,
    /// Where the figure is written.
    #[arg(long, default_value = "noctule-demo.svg")]
    pub svg: PathBuf,
    /// Print one JSON object and not the table.
    #[arg(long)]
    pub json: bool,
}

/// What the flags describe.
struct Job {
    scenario: Scenario,
    bytes: u64,
    limit_mbit: f64,
    tcp_limit: Duration,
    seed: u64,
    backend: BackendChoice,
}

/// Length of the job at the limit of the link.
const SECONDS_AT_LIMIT: f64 = 10.0;

impl DemoArgs {
    /// Runs the demonstration and prints what came of it.
    pub fn execute(&self) -> ExitCode {
        let job = match self.job() {
            Ok(job) => job,
            Err(error) => return fail(&error, 2),
        };
        say(&format!(
            "two hosts, one link: {} {} one way, {} lost each way; {:.1} MB; limit of the link {:.1} Mbit/s",
            self.rate,
            self.delay,
            self.loss,
            job.bytes as f64 / 1e6,
            job.limit_mbit
        ));
        let (outcomes, simulated) = match course::run(&job) {
            Ok(outcomes) => (outcomes, false),
            Err(error) if code_of(&error) == NOT_PERMITTED => {
                say(&format!("{error}"));
                say("so the same happens in the simulator, in virtual time; there is no kernel TCP in it to compare with");
                match simulated::run(&job) {
                    Ok(outcome) => (vec![outcome], true),
                    Err(error) => return fail(&error, 1),
                }
            }
            Err(error) => return fail(&error, code_of(&error)),
        };
        if let Err(error) = self.write_figure(&job, &outcomes) {
            return fail(&error, 1);
        }
        if self.json {
            let object = serde_json::json!({
                "simulated": simulated,
                "bytes": job.bytes,
                "limit_mbit": job.limit_mbit,
                "figure": self.svg,
                "contenders": outcomes.iter().map(|outcome| outcome.json(&job)).collect::<Vec<_>>(),
            });
            println!("{object:#}");
        } else {
            print!("{}", table(&outcomes, job.limit_mbit));
            println!("goodput over time: {}", self.svg.display());
        }
        // A slow TCP is a result; a wrong byte, or a noctule that did not finish, is a failure.
        let noctule = outcomes.first().is_some_and(|outcome| outcome.complete);
        if noctule && outcomes.iter().all(|outcome| outcome.identical) { ExitCode::SUCCESS } else { ExitCode::FAILURE }
    }

    fn job(&self) -> Result<Job, ScenarioError> {
        let link = |source: SpecError| ScenarioError::Link { hop: 1, source };
        let mut spec = LinkSpec::default();
        for (key, text) in [("rate", &self.rate), ("delay", &self.delay), ("loss", &self.loss)] {
            spec.set(key, text).map_err(link)?;
        }
        let scenario = Scenario::new(vec![Hop { forward: spec.clone(), reverse: spec }]);
        scenario.check()?;
        let limit = Limits::of(&scenario).forward;
        if !limit.is_finite() {
            return Err(ScenarioError::Invalid("the demonstration needs a link with a rate".to_owned()));
        }
        let bytes = match &self.size {
            Some(text) => parse_bytes(text).map_err(|error| ScenarioError::Invalid(format!("--size: {error}")))?,
            None => (limit / 8.0 * SECONDS_AT_LIMIT) as u64,
        };
        if bytes == 0 {
            return Err(ScenarioError::Invalid("--size: a file of no bytes shows nothing".to_owned()));
        }
        Ok(Job { scenario, bytes, limit_mbit: limit * 1e-6, tcp_limit: self.tcp_limit.0, seed: self.seed, backend: self.backend })
    }

    fn write_figure(&self, job: &Job, outcomes: &[Outcome]) -> Result<(), ContestError> {
        let figure = GoodputFigure {
            title: format!("One file of {:.0} MB over a bad link", job.bytes as f64 / 1e6),
            subtitle: format!("{}, {} one way, {} of the packets lost in each direction", self.rate, self.delay, self.loss),
            curves: outcomes.iter().map(|outcome| curve(outcome, job)).collect(),
            limit_mbit: job.limit_mbit,
            until: until(outcomes),
        };
        let svg = figure.svg().map_err(std::io::Error::other)?;
        std::fs::write(&self.svg, svg).map_err(|error| at_path(&self.svg, error).into())
    }
}

fn curve(outcome: &Outcome, job: &Job) -> Curve {
    let seconds = outcome.elapsed.as_secs_f64();
    let label = if outcome.complete {
        format!("{}: {seconds:.1} s", outcome.name)
    } else {
        format!("{}: {:.1} of {:.0} MB in {seconds:.0} s", outcome.name, outcome.bytes as f64 / 1e6, job.bytes as f64 / 1e6)
    };
    Curve {
        label,
        // Half a second per point: shorter than what a viewer can tell apart, longer than a round trip.
        points: outcome.timeline.rates(5, outcome.elapsed),
        done: outcome.complete.then_some(seconds),
    }
}

/// Right end of the time axis: everything of the fast contender stays readable beside a slow one.
fn until(outcomes: &[Outcome]) -> f64 {
    let longest = outcomes.iter().map(|outcome| outcome.elapsed.as_secs_f64()).fold(1.0, f64::max);
    let first = outcomes.first().map_or(longest, |outcome| outcome.elapsed.as_secs_f64());
    (longest * 1.03).min((first * 3.0).max(10.0)).ceil()
}

/// Progress for the user; results go to standard output.
fn say(text: &str) {
    eprintln!("noctule-lab: {text}");
}

fn at_path(path: &Path, error: std::io::Error) -> std::io::Error {
    std::io::Error::new(error.kind(), format!("{}: {error}", path.display()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::Parser;

    #[derive(Parser)]
    struct Line {
        #[command(flatten)]
        demo: DemoArgs,
    }

    fn job(line: &str) -> Result<Job, ScenarioError> {
        Line::parse_from(["demo"].into_iter().chain(line.split_whitespace())).demo.job()
    }

    #[test]
    fn default_job_takes_ten_seconds_at_the_limit() {
        let job = job("").unwrap();
        assert!((job.limit_mbit - 90.0 * 1472.0 / 1500.0).abs() < 1e-9);
        assert_eq!(job.bytes, 110_400_000);
        assert_eq!(job.scenario.hops[0].reverse.loss.to_string(), "10%");
    }

    #[test]
    fn impossible_jobs_are_refused() {
        for line in ["--rate none", "--size 0", "--loss 200%", "--size lots"] {
            assert!(job(line).is_err(), "{line}");
        }
    }
}

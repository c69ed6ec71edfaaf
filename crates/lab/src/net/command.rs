//! The command line of everything that runs on namespaces.

use std::path::PathBuf;
use std::process::ExitCode;

use clap::Args;

use super::chain::{BackendChoice, ChainError};
use super::contest::ContestError;
use super::emulator::Tolerance;
use super::fidelity;
use super::run::{self, Keep, NetReport, Peer, Settings};
use super::{privilege, scratch};
use crate::capture::CaptureArgs;
use crate::cli::RunArgs;
use crate::link::{LinkSpec, Period};
use crate::sweep::samples::{Head, SampleFile, this_command};

/// Exit code when the machine does not permit namespaces or emulated links to this user.
pub const NOT_PERMITTED: u8 = 3;
/// Exit code when the machine was too slow for the link, so that the run does not count.
pub const UNFAITHFUL: u8 = 4;

/// `noctule-lab net`.
#[derive(Debug, Clone, Args)]
pub struct NetArgs {
    /// The run.
    #[command(flatten)]
    pub run: RunArgs,
    /// The sender.
    #[arg(long, value_enum, default_value_t)]
    pub peer: Peer,
    /// What emulates the links.
    #[arg(long, value_enum, default_value_t)]
    pub backend: BackendChoice,
    /// Reject the run when the emulator's 99th percentile of lateness is above this [default: 3ms].
    #[arg(long)]
    pub max_lateness: Option<Period>,
    /// Print one JSON object.
    #[arg(long)]
    pub json: bool,
    /// Write what the links do twice a second to a file as the run goes on, a JSON object per line, for `noctule-lab serve`.
    #[arg(long, value_name = "FILE")]
    pub samples: Option<PathBuf>,
    /// What is captured.
    #[command(flatten)]
    pub capture: CaptureArgs,
}

/// `noctule-lab fidelity`.
#[derive(Debug, Clone, Args)]
pub struct FidelityArgs {
    /// The link, for example rate=100mbit,delay=50ms,loss=10%.
    #[arg(default_value = "rate=100mbit,delay=20ms,loss=5%")]
    pub link: String,
    /// What emulates it.
    #[arg(long, value_enum, default_value_t)]
    pub backend: BackendChoice,
    /// Probes per second while delay and loss are measured.
    #[arg(long, default_value_t = 1000)]
    pub probes: u32,
    /// For how long.
    #[arg(long, default_value = "10s")]
    pub probing: Period,
    /// How long the link is filled to measure its rate.
    #[arg(long, default_value = "4s")]
    pub filling: Period,
    /// Seed of the link.
    #[arg(long, default_value_t = 7)]
    pub seed: u64,
    /// Print one JSON object.
    #[arg(long)]
    pub json: bool,
}

impl NetArgs {
    /// Runs and prints.
    pub fn execute(&self) -> ExitCode {
        let scenario = match self.run.scenario() {
            Ok(scenario) => scenario,
            Err(error) => return fail(&error, 2),
        };
        let mut tolerance = Tolerance::default();
        if let Some(p99) = self.max_lateness {
            tolerance = tolerance.with_p99(p99.0);
        }
        if let Err(error) = prepare() {
            return fail(&error, code_of(&error));
        }
        let samples = self.samples.as_deref().map(|path| SampleFile::create(path, &Head::of(&this_command(), &scenario)));
        let samples = match samples.transpose() {
            Ok(samples) => samples,
            Err(error) => {
                eprintln!("noctule-lab: {error}");
                return ExitCode::from(2);
            }
        };
        let capture = match self.capture.folder() {
            Ok(capture) => capture,
            Err(error) => return fail(&error, 2),
        };
        let settings = Settings { peer: self.peer, backend: self.backend, tolerance };
        match run::run_kept(&scenario, &settings, Keep { samples, capture }) {
            Ok(report) if self.json => print_json(&report),
            Ok(report) => {
                print_table(&report);
                ExitCode::SUCCESS
            }
            Err(error) => fail(&error, code_of(&error)),
        }
    }
}

impl FidelityArgs {
    /// Measures and prints.
    pub fn execute(&self) -> ExitCode {
        let mut spec = LinkSpec::default();
        if let Err(error) = spec.set_list(&self.link) {
            return fail(&error, 2);
        }
        match fidelity::measure(&spec, self.backend, &Tolerance::default(), self.seed, self.probes, self.probing.0, self.filling.0) {
            Ok(measured) if self.json => print_json(&measured),
            Ok(measured) => {
                print!("{measured}");
                ExitCode::SUCCESS
            }
            Err(error) => fail(&error, code_of(&error)),
        }
    }
}

/// The exit code that tells scripts what kind of failure it was.
pub(crate) fn code_of(error: &ContestError) -> u8 {
    match error {
        ContestError::Chain(error) if error.is_not_permitted() => NOT_PERMITTED,
        ContestError::Unfaithful(_) => UNFAITHFUL,
        ContestError::Unsupported(_) => 2,
        ContestError::Chain(error) if error.is_beyond_the_back_end() => 2,
        _ => 1,
    }
}

/// Gains the right to make namespaces while the process has one thread, then cares for signals.
pub(crate) fn prepare() -> Result<(), ContestError> {
    privilege::acquire().map_err(ChainError::from)?;
    scratch::remove_on_signals()?;
    Ok(())
}

/// Says what went wrong, on one line.
pub(crate) fn fail(error: &dyn std::error::Error, code: u8) -> ExitCode {
    eprintln!("noctule-lab: {error}");
    ExitCode::from(code)
}

fn print_json(value: &impl serde::Serialize) -> ExitCode {
    match serde_json::to_string_pretty(value) {
        Ok(text) => {
            println!("{text}");
            ExitCode::SUCCESS
        }
        Err(error) => fail(&error, 1),
    }
}

fn print_table(report: &NetReport) {
    let percent = |share: Option<f64>| share.map_or("-".to_owned(), |share| format!("{:.1} %", share * 100.0));
    let limit = report.nominal_limit_mbit.map_or("no limit".to_owned(), |limit| format!("{limit:.2} Mbit/s"));
    println!("sender           {}: {}", report.peer, report.peer_version);
    println!("goodput          {:.2} Mbit/s, {} of the limit ({limit})", report.goodput_mbit, percent(report.share));
    println!("with the start   {} of the limit", percent(report.share_whole));
    println!("link delivered   {:.2} Mbit/s of payload", report.realised_limit_mbit);
    println!(
        "bytes            {} received, {} wrong",
        report.bytes_delivered,
        report.bytes_wrong.map_or("not counted".to_owned(), |n| n.to_string())
    );
    let list = |values: &[Option<f64>]| -> String {
        let words: Vec<String> = values.iter().map(|value| value.map_or("-".to_owned(), |value| format!("{value:.3}"))).collect();
        words.join(", ")
    };
    println!("sent per byte    {} (back: {})", list(&report.wire_per_byte), list(&report.reverse_wire_per_byte));
    if let Some(t) = report.message_rtt_ms {
        println!(
            "round trips      mean {:.2}, p50 {:.2}, p99 {:.2}, p99.9 {:.2}, max {:.2} ms of {} messages",
            t.mean, t.p50, t.p99, t.p999, t.max, t.count
        );
    }
    if let Some(lost) = report.residual_loss {
        println!("residual loss    {:.3} %", lost * 100.0);
    }
    if let Some(delay) = report.queue_ms_p95 {
        println!("queue            {delay:.1} ms at p95");
    }
    let conditions = &report.conditions;
    println!("links            {}, namespaces by {}", conditions.backend, conditions.privilege);
    if let Some(emulator) = &conditions.emulator {
        println!(
            "emulator         late by {:.0} us (p99 {:.0} us), {:.0} % of a core, {:.1} % stolen, real-time {}",
            emulator.lateness_mean_us,
            emulator.lateness_p99_us,
            emulator.cpu_share * 100.0,
            emulator.stolen_share * 100.0,
            if emulator.granted.fifo { "yes" } else { "refused" }
        );
    }
    if let Some(bytes) = conditions.tcp_buffer_bytes {
        println!("TCP buffers      up to {} MiB (tcp_rmem, tcp_wmem)", bytes >> 20);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::net::netem::DirectionCommands;

    #[test]
    fn what_a_back_end_cannot_do_is_bad_usage_and_not_a_failed_run() {
        let mut spec = LinkSpec::default();
        spec.set_list("rate=10mbit,outage=1s+1s").unwrap();
        let error = DirectionCommands::new(&spec, "right", 1).unwrap_err();
        assert_eq!(code_of(&ChainError::from(error).into()), 2);
        assert_eq!(code_of(&ChainError::Length.into()), 2);
    }
}

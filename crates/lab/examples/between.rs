//! Runs a command on one host and another command on the far one, two network namespaces joined by an emulated link:
//!
//! ```text
//! cargo run --release -p noctule-lab --example between -- --rate 100mbit --delay 20ms --loss 2% \
//!     --there 'noctule perf -s --anyone --key k' -- noctule ping {there} --peer-key "$KEY"
//! ```
//!
//! `{there}` and `{here}` in the words of both become the addresses. The far command is ended when the near one has ended.

use std::process::{Command, ExitCode};
use std::time::{Duration, Instant};

use clap::Parser;
use noctule_lab::cli::RunArgs;
use noctule_lab::net::chain::{BackendChoice, Chain};
use noctule_lab::net::contest::Course;
use noctule_lab::net::emulator::{Options, Tolerance};
use noctule_lab::net::{privilege, process::Process};

/// Runs two commands on two hosts that an emulated link joins.
#[derive(Parser)]
struct Between {
    #[command(flatten)]
    run: RunArgs,
    /// What runs on the far host (a line for `sh -c`), started first.
    #[arg(long, value_name = "LINE")]
    there: Option<String>,
    /// How long the far command has to get ready.
    #[arg(long, value_name = "SECONDS", default_value_t = 1.0)]
    head_start: f64,
    /// What runs on the near host.
    #[arg(last = true, required = true)]
    here: Vec<String>,
}

fn main() -> Result<ExitCode, Box<dyn std::error::Error>> {
    // While the process has one thread.
    privilege::acquire()?;
    let args = Between::parse();
    let scenario = args.run.scenario()?;
    let chain = Chain::build(&scenario.hops, scenario.ip, BackendChoice::default(), scenario.seed)?;
    let course = Course::start(chain, Options::default())?;
    let chain = course.chain();
    let (here, there) = (chain.first_address().to_string(), chain.last_address().to_string());
    let filled = |word: &str| word.replace("{there}", &there).replace("{here}", &here);
    let mut far = None;
    if let Some(line) = &args.there {
        let mut command: Command = chain.last().command("sh");
        // `exec`, so that what is ended is the command and not only its shell.
        far = Some(Process::start(command.arg("-c").arg(format!("exec {}", filled(line))), |line| println!("there: {line}"))?);
        std::thread::sleep(Duration::from_secs_f64(args.head_start));
    }
    let mut words = args.here.iter().map(|word| filled(word));
    let program = words.next().ok_or("no command")?;
    let status = chain.first().command(&program).args(words).status()?;
    if let Some(mut far) = far
        && let Some(ended) = far.try_wait()?
    {
        far.wait(Instant::now() + Duration::from_secs(1))?;
        eprintln!("there: ended ({ended}): {}", far.complaint());
    }
    if let Some(report) = course.finish(&Tolerance::default())? {
        eprintln!("emulator late by {:.0} us (p99 {:.0} us)", report.lateness_mean_us, report.lateness_p99_us);
    }
    Ok(status.code().and_then(|code| u8::try_from(code).ok()).map_or(ExitCode::FAILURE, ExitCode::from))
}

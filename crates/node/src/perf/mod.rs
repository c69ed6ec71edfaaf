//! `noctule perf`: goodput between two hosts, measured by the receiving application.
//!
//! A test is asked for on a control stream; the data flows run beside it. Each side reports its part once per interval.

mod arrivals;
pub mod client;
mod end;
pub mod output;
pub mod pattern;
pub mod protocol;
mod report;
mod server;
mod sink;
pub mod source;
pub mod tcp;
mod turns;
mod watch;

use crate::cli::PerfArgs;
use crate::failure::Failure;

/// Serves or measures.
pub async fn run(args: PerfArgs) -> Result<(), Failure> {
    match &args.client {
        Some(host) => client::run(&args, host).await,
        None => server::run(&args).await,
    }
}

//! `noctule proxy`: keys, hosts, codes and screens of both ends; the proxy itself is the crate `noctule-proxy`.

mod api;
mod ask;
mod client;
mod intercept;
pub mod link;
mod metrics;
mod screen;
mod server;
mod share;
mod state;
mod stdio;
pub mod users;
pub mod words;

use crate::cli::{ProxyArgs, ProxyTask};
use crate::failure::Failure;
use noctule::NodeConfig;
use noctule_proxy::{Answer, Outcome, Report, Transport};

/// Flows in each direction of a session: each connection is one.
const FLOWS: usize = 16_384;

/// Runs either end.
pub async fn run(args: ProxyArgs) -> Result<(), Failure> {
    match args.task {
        Some(ProxyTask::Serve(args)) => server::run(*args).await,
        Some(ProxyTask::Status(args)) => ask::status(args).await,
        Some(ProxyTask::Kick(args)) => ask::kick(args).await,
        Some(ProxyTask::Rules(args)) => intercept::rules(*args).await,
        Some(ProxyTask::Share(args)) => share::run(&args),
        None => client::run(args).await,
    }
}

/// What both ends need of their node.
fn configure(node: &mut NodeConfig) {
    (node.max_flows, node.max_link_flows) = (FLOWS, 2 * FLOWS);
}

/// What the other side answered instead of what was asked for.
fn failure(target: String, answer: &Answer) -> Failure {
    match answer.outcome {
        Outcome::Denied => Failure::MayNot(format!("the other side denies {target}: {}", answer.text)),
        Outcome::Busy => Failure::Busy(answer.words()),
        Outcome::Unsupported => Failure::Stranger(answer.words()),
        _ => Failure::NoConnection { target, why: answer.words() },
    }
}

/// The transport of a report, for a log.
fn transport(report: &Report) -> &'static str {
    match report.transport {
        Transport::Tcp => "tcp",
        Transport::Udp => "udp",
    }
}

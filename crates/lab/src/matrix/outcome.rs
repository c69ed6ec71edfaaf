//! What a run says to a matrix, whether it was made in the simulator or on namespaces.

use serde::{Deserialize, Serialize};

use crate::net::run::NetReport;
use crate::report::{Report, Times};
use crate::scenario::Expectations;

/// One run of a cell.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Outcome {
    /// Its seed.
    pub seed: u64,
    /// Application bytes read per time, Mbit/s.
    pub goodput_mbit: f64,
    /// The same of each pair of ends or each sender, where there are several.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub pairs_mbit: Vec<f64>,
    /// What the configuration allows (P24), Mbit/s.
    pub limit_mbit: Option<f64>,
    /// Goodput over that limit.
    pub share: Option<f64>,
    /// IP bytes sent per byte read, on the link that carried most.
    pub wire_per_byte: Option<f64>,
    /// The same the other way.
    pub reverse_wire_per_byte: Option<f64>,
    /// 95th percentile of the queueing delay at the bottleneck, ms.
    pub queue_ms_p95: Option<f64>,
    /// Start-up in round trips.
    pub startup_rtts: Option<f64>,
    /// Highest memory of any node, MiB.
    pub memory_mib: Option<f64>,
    /// Bytes read that were not those that were sent; none where the contender does not say.
    pub bytes_wrong: Option<u64>,
    /// Mean round trip of messages, ms.
    pub rtt_ms_mean: Option<f64>,
    /// Its 99th percentile, ms.
    pub rtt_ms_p99: Option<f64>,
    /// Share of messages that did not arrive in time.
    pub residual_loss: Option<f64>,
    /// Why the run does not count, and what of the expectations was not met.
    pub violations: Vec<String>,
}

/// A run that could not be made.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct RunFailure {
    /// Its seed.
    pub seed: u64,
    /// Why.
    pub reason: String,
    /// Exit code for scripts.
    #[serde(skip)]
    pub code: u8,
}

impl Outcome {
    /// Of a run in the simulator.
    pub fn of_sim(report: &Report, violations: Vec<String>) -> Self {
        Self {
            seed: report.scenario.seed,
            goodput_mbit: report.goodput_mbit,
            pairs_mbit: if report.pairs_mbit.len() > 1 { report.pairs_mbit.clone() } else { Vec::new() },
            limit_mbit: report.nominal_limit_mbit,
            share: report.share,
            wire_per_byte: most(&report.wire_per_byte),
            reverse_wire_per_byte: most(&report.reverse_wire_per_byte),
            queue_ms_p95: Some(report.queue_ms_p95),
            startup_rtts: report.startup_rtts,
            memory_mib: Some(crate::report::round(report.memory_peak_bytes as f64 / f64::from(1 << 20), 2)),
            bytes_wrong: Some(report.bytes_wrong),
            rtt_ms_mean: report.message_rtt_ms.map(|t: Times| t.mean),
            rtt_ms_p99: report.message_rtt_ms.map(|t: Times| t.p99),
            residual_loss: report.residual_loss,
            violations,
        }
    }

    /// Of a run on namespaces. Of the expectations, the least share is checked: the others are about the simulator's exact links.
    pub fn of_net(report: &NetReport, expect: &Expectations) -> Self {
        let wrong = report.bytes_wrong.filter(|&n| n > 0).map(|n| format!("{n} bytes wrong"));
        let below = expect.min_share.filter(|&least| report.share.is_none_or(|share| share < least));
        let below = below.map(|least| format!("share {} below {least}", report.share.unwrap_or(0.0)));
        Self {
            seed: report.scenario.seed,
            goodput_mbit: report.goodput_mbit,
            pairs_mbit: Vec::new(),
            limit_mbit: report.nominal_limit_mbit,
            share: report.share,
            wire_per_byte: most(&report.wire_per_byte),
            reverse_wire_per_byte: most(&report.reverse_wire_per_byte),
            queue_ms_p95: report.queue_ms_p95,
            startup_rtts: None,
            memory_mib: None,
            bytes_wrong: report.bytes_wrong,
            rtt_ms_mean: report.message_rtt_ms.map(|t| t.mean),
            rtt_ms_p99: report.message_rtt_ms.map(|t| t.p99),
            residual_loss: report.residual_loss,
            violations: wrong.into_iter().chain(below).collect(),
        }
    }
}

fn most(links: &[Option<f64>]) -> Option<f64> {
    links.iter().flatten().copied().reduce(f64::max)
}

//! What a run says: one JSON object with stable names, and a table for people.

mod progress;
mod snapshot;
mod table;

use std::borrow::Cow;
use std::fmt;

use serde::{Deserialize, Serialize};

use crate::link::{Histogram, LinkStats};
use crate::scenario::{Expectations, Scenario};

pub use progress::Progress;
pub use snapshot::{Row, TOLERANCE_POINTS, differences, shares_table};
pub use table::{grid_table, run_table};

/// So many things, whose name has a regular plural: `1 cell`, `2 cells`.
pub fn count<N: fmt::Display + PartialEq + From<u8>>(number: N, name: &str) -> String {
    format!("{number} {name}{}", if number == N::from(1) { "" } else { "s" })
}

/// Version of the JSON object; grows when a field changes its meaning, not when one is added.
pub const REPORT_VERSION: u32 = 1;

/// The result of a run. Rates are Mbit/s (10^6 bits), times ms; counts after warm-up unless `whole` is in the name.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Report {
    /// [`REPORT_VERSION`].
    pub report_version: u32,
    /// Back end: `sim` or `net`.
    pub backend: Cow<'static, str>,
    /// The run as configured.
    pub scenario: Configured,
    /// Mechanisms that were switched off.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub without: Vec<String>,
    /// Application bytes read per time at the receivers.
    pub goodput_mbit: f64,
    /// What the configuration allows: min over hops of C(1-p)(MTU-h)/MTU.
    pub nominal_limit_mbit: Option<f64>,
    /// What the bytes that the link delivered allow.
    pub realised_limit_mbit: f64,
    /// Goodput over nominal limit, after warm-up.
    pub share: Option<f64>,
    /// The same over the whole run, start-up included.
    pub share_whole: Option<f64>,
    /// Goodput over realised limit.
    pub share_realised: Option<f64>,
    /// Application bytes read in the whole run.
    pub bytes_delivered: u64,
    /// Of these, bytes that were not those that were sent, or came twice.
    pub bytes_wrong: u64,
    /// IP bytes handed to each link, in the direction of the data, per application byte read of the flows that cross it.
    pub wire_per_byte: Vec<Option<f64>>,
    /// IP bytes handed to each link in the other direction, per application byte read.
    pub reverse_wire_per_byte: Vec<Option<f64>>,
    /// 95th percentile of the queueing delay at the bottleneck.
    pub queue_ms_p95: f64,
    /// Round trips of messages with their echo (blocks: with their answer).
    pub message_rtt_ms: Option<Times>,
    /// Mean round trip of each ten consecutive echoes, ms, of the first flow: at most 10,000 such means.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub message_rtt_ms_by_ten: Vec<f64>,
    /// Percentiles 0 to 100 of the round trips.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub message_rtt_ms_percentiles: Vec<f64>,
    /// One way, from the moment at which a message was to be sent.
    pub message_one_way_ms: Option<Times>,
    /// Round trip of the first message, handshake included.
    pub first_message_rtt_ms: Option<f64>,
    /// Share of messages that did not arrive, or later than their lifetime.
    pub residual_loss: Option<f64>,
    /// Messages that were due after warm-up.
    pub messages_due: u64,
    /// Messages that arrived out of order.
    pub messages_out_of_order: u64,
    /// Highest memory of any node, from its own accounting.
    pub memory_peak_bytes: usize,
    /// Its configured bound.
    pub memory_limit_bytes: usize,
    /// Base round trips from the link being usable until goodput over the next four of them is 95 % of the limit; bulk, one flow.
    pub startup_rtts: Option<f64>,
    /// From the start of the connecting node to the link being usable.
    pub handshake_ms: Option<f64>,
    /// From the start to the end of a transfer, as the sender knows it.
    pub transfer_s: Option<f64>,
    /// Goodput in each second of the run.
    pub goodput_mbit_by_second: Vec<f64>,
    /// Goodput of each pair.
    pub pairs_mbit: Vec<f64>,
    /// Jain's index among the pairs.
    pub jain: Option<f64>,
    /// The other direction, if it carries the workload too.
    pub reverse: Option<Direction>,
    /// Each link, forward (in a chain: the direction of the data) and back.
    pub links: Vec<[LinkCounts; 2]>,
    /// Each flow.
    pub flows: Vec<FlowReport>,
    /// Each data flow at each noctule node that it passes, one direction each, as it was at the end of the run.
    pub relays: Vec<RelayReport>,
    /// What the first sender knows of its path and flow.
    pub sender: Option<SenderView>,
    /// Datagrams simulated in the whole run.
    pub datagrams: u64,
    /// Why the run does not count; empty if it does.
    pub failures: Vec<String>,
}

/// The run as configured, as text.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Configured {
    /// Each link, both directions.
    pub hops: Vec<crate::scenario::Hop>,
    /// The nodes.
    pub nodes: Vec<String>,
    /// The nodes at the ends of each link.
    pub ends: Vec<[String; 2]>,
    /// What the nodes between the ends of a flow do; null if there are none.
    pub relays: Option<crate::scenario::Relays>,
    /// Transport mode.
    pub mode: String,
    /// Congestion control.
    pub cc: String,
    /// Workload.
    pub workload: String,
    /// Length, warm-up included.
    pub seconds: f64,
    /// Warm-up.
    pub warmup: f64,
    /// Seed.
    pub seed: u64,
    /// Pairs of nodes.
    pub pairs: u32,
    /// Sum of delays there and back, ms.
    pub base_rtt_ms: f64,
}

impl Configured {
    /// The text of `scenario`.
    pub fn of(scenario: &Scenario) -> Self {
        let network = &scenario.network;
        Self {
            hops: scenario.hops.clone(),
            nodes: network.nodes.clone(),
            ends: network.ends.iter().map(|&(a, b)| [a, b].map(|node| network.nodes[node].clone())).collect(),
            relays: (network.ends.len() > 1).then_some(network.relays),
            mode: scenario.mode.to_string(),
            cc: scenario.cc.to_string(),
            workload: scenario.workload.to_string(),
            seconds: scenario.seconds.0.as_secs_f64(),
            warmup: scenario.warmup.0.as_secs_f64(),
            seed: scenario.seed,
            pairs: scenario.pairs,
            base_rtt_ms: round(scenario.base_rtt().as_secs_f64() * 1e3, 6),
        }
    }
}

/// Quantiles of a time in ms.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct Times {
    /// Arithmetic mean.
    pub mean: f64,
    /// Median.
    pub p50: f64,
    /// 95th percentile.
    pub p95: f64,
    /// 99th percentile.
    pub p99: f64,
    /// 99.9th percentile.
    pub p999: f64,
    /// Largest.
    pub max: f64,
    /// Number of values.
    pub count: u64,
}

impl Times {
    /// Of a histogram; none if it is empty.
    pub fn of(h: &Histogram) -> Option<Self> {
        let ms = |d: std::time::Duration| round(d.as_secs_f64() * 1e3, 3);
        (h.count() > 0).then(|| Self {
            mean: ms(h.mean()),
            p50: ms(h.quantile(0.5)),
            p95: ms(h.quantile(0.95)),
            p99: ms(h.quantile(0.99)),
            p999: ms(h.quantile(0.999)),
            max: ms(h.max()),
            count: h.count(),
        })
    }
}

/// One flow of a run; of several pairs, one pair.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct FlowReport {
    /// The sender.
    pub from: String,
    /// The receiver.
    pub to: String,
    /// Numbers of the links that it crosses while all are up, counted from 1.
    pub links: Vec<usize>,
    /// What is sent.
    pub workload: String,
    /// Application bytes read per time.
    pub goodput_mbit: f64,
    /// The limit of its links if it had them for itself.
    pub limit_alone_mbit: Option<f64>,
    /// Goodput over that.
    pub share_alone: Option<f64>,
    /// Application bytes read in the whole run.
    pub bytes_delivered: u64,
    /// Wrong ones, at either end.
    pub bytes_wrong: u64,
    /// Round trips of messages.
    pub message_rtt_ms: Option<Times>,
    /// One way.
    pub message_one_way_ms: Option<Times>,
    /// Share of messages that did not arrive in time.
    pub residual_loss: Option<f64>,
}

/// A flow at a node that it passes; packets since it was opened there.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct RelayReport {
    /// Which node.
    pub node: String,
    /// Where the flow comes from.
    pub from: String,
    /// Where it goes.
    pub to: String,
    /// Packets received that raised the rank here.
    pub rank_in: u64,
    /// Packets received that did not.
    pub redundant_in: u64,
    /// Rank that the next node is believed to have.
    pub rank_out: u64,
    /// Packets passed on as they came.
    pub passed_packets: u64,
    /// Packets combined here.
    pub recoded_packets: u64,
    /// Batches by their rank here: place `k` counts those with `k` innovative packets, the last of 65 places those with as many or more.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub batches_by_rank_in: Vec<u64>,
    /// Batches by the rank that the next node has told of.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub batches_by_rank_out: Vec<u64>,
    /// Batches by the packets that were combined here.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub batches_by_recoded: Vec<u64>,
    /// Packets given up before they were sent.
    pub dropped_packets: u64,
    /// Packets that wait for their turn.
    pub waiting_packets: u64,
    /// Delay that no packet was spared lately (P15).
    pub queueing_delay_ms: f64,
    /// Bytes held.
    pub memory_bytes: usize,
}

/// The second direction of a run with `--both`.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Direction {
    /// Goodput.
    pub goodput_mbit: f64,
    /// Limit from the configuration.
    pub nominal_limit_mbit: Option<f64>,
    /// Goodput over it.
    pub share: Option<f64>,
    /// Bytes read.
    pub bytes_delivered: u64,
    /// Wrong ones.
    pub bytes_wrong: u64,
    /// Residual loss of messages.
    pub residual_loss: Option<f64>,
}

/// Counters of one direction of a link after warm-up.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct LinkCounts {
    /// Packets handed to it.
    pub offered_packets: u64,
    /// IP bytes handed to it.
    pub offered_bytes: u64,
    /// Packets that left the transmitter.
    pub carried_packets: u64,
    /// Packets at the far end.
    pub delivered_packets: u64,
    /// Dropped by the full queue.
    pub queue_drops: u64,
    /// Dropped by active queue management before it was full.
    pub aqm_drops: u64,
    /// Lost by the loss model.
    pub lost: u64,
    /// Their share.
    pub loss_share: f64,
    /// Lost in outages.
    pub outage_lost: u64,
    /// Above the MTU.
    pub too_big: u64,
    /// Dropped by the policer.
    pub policed: u64,
    /// Marked CE.
    pub marked: u64,
    /// Mean queueing delay, ms.
    pub queue_ms_mean: f64,
    /// Its 95th percentile.
    pub queue_ms_p95: f64,
}

impl From<&LinkStats> for LinkCounts {
    fn from(s: &LinkStats) -> Self {
        Self {
            offered_packets: s.offered_packets,
            offered_bytes: s.offered_bytes,
            carried_packets: s.carried_packets,
            delivered_packets: s.delivered_packets,
            queue_drops: s.queue_drops,
            aqm_drops: s.aqm_drops,
            lost: s.lost,
            loss_share: round(s.loss_share(), 6),
            outage_lost: s.outage_lost,
            too_big: s.too_big,
            policed: s.policed,
            marked: s.marked,
            queue_ms_mean: round(s.queue_delay.mean().as_secs_f64() * 1e3, 3),
            queue_ms_p95: round(s.queue_delay.quantile(0.95).as_secs_f64() * 1e3, 3),
        }
    }
}

/// Estimates and counts of the first sender at the end of the run.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct SenderView {
    /// Smoothed RTT, ms.
    pub rtt_ms: f64,
    /// Smallest RTT, ms.
    pub min_rtt_ms: f64,
    /// Loss of what it sends, as it sees it.
    pub loss: f64,
    /// Delivery rate.
    pub delivery_rate_mbit: f64,
    /// Congestion window, bytes.
    pub cwnd: u64,
    /// Pacing rate.
    pub pacing_mbit: f64,
    /// Capacity estimate of the controller.
    pub capacity_mbit: f64,
    /// State of the controller.
    pub control: String,
    /// Datagrams sent.
    pub sent_packets: u64,
    /// Declared lost.
    pub lost_packets: u64,
    /// Declared lost and acknowledged later.
    pub spurious_losses: u64,
    /// Probe time-outs.
    pub ptos: u64,
    /// Source packets of the flow.
    pub source_packets: u64,
    /// Coded repair packets of the flow.
    pub repair_packets: u64,
    /// Of these, before a loss was known.
    pub proactive_packets: u64,
    /// Coded packets that brought the receiver nothing.
    pub redundant_at_receiver: u64,
    /// Source packets that the receiver recovered by decoding.
    pub decoded_at_receiver: u64,
}

impl Report {
    /// What is not as expected, in words; `pass` is the share of its packets that each link delivers.
    pub fn violations(&self, expect: &Expectations, pass: &[f64], base_rtt_ms: f64) -> Vec<String> {
        let mut out = self.failures.clone();
        let mut at_least = |what: &str, value: Option<f64>, bound: Option<f64>| {
            if let Some(bound) = bound
                && value.is_none_or(|v| v < bound)
            {
                out.push(format!("{what} {} below {bound}", show(value)));
            }
        };
        at_least("share", self.share, expect.min_share);
        at_least("Jain index", self.jain, expect.min_jain);
        let mut at_most = |what: &str, value: Option<f64>, bound: Option<f64>| {
            if let Some(bound) = bound
                && value.is_none_or(|v| v > bound)
            {
                out.push(format!("{what} {} above {bound}", show(value)));
            }
        };
        let wire = self.wire_per_byte.iter().zip(pass).filter_map(|(wire, pass)| Some((*wire)? * pass)).reduce(f64::max);
        at_most("wire bytes per byte x (1-p)", wire, expect.max_wire_per_byte_times_pass);
        at_most("residual loss", self.residual_loss, expect.max_residual_loss);
        at_most("queue p95 ms", Some(self.queue_ms_p95), expect.max_queue_ms_p95);
        at_most("memory in MiB", Some(self.memory_peak_bytes as f64 / f64::from(1 << 20)), expect.max_memory_mib);
        at_most("start-up in round trips", self.startup_rtts, expect.max_startup_rtts);
        let back = self.reverse_wire_per_byte.iter().copied().flatten().reduce(f64::max);
        at_most("reverse wire bytes per byte", back, expect.max_reverse_wire_per_byte);
        at_most("mean message RTT above base, ms", self.message_rtt_ms.map(|t| t.mean - base_rtt_ms), expect.max_rtt_above_base_ms);
        out
    }
}

fn show(value: Option<f64>) -> String {
    value.map_or("(none)".to_owned(), |v| format!("{v:.4}"))
}

/// `value` with so many digits after the point: results are compared as text.
pub fn round(value: f64, digits: i32) -> f64 {
    let scale = 10f64.powi(digits);
    (value * scale).round() / scale
}

/// Jain, Chiu, Hawe 1984: 1 if all are equal, 1/n if one has all.
pub fn jain(values: &[f64]) -> Option<f64> {
    let squares: f64 = values.iter().map(|v| v * v).sum();
    let sum: f64 = values.iter().sum();
    (values.len() > 1 && squares > 0.0).then(|| sum * sum / (values.len() as f64 * squares))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn jain_is_one_for_equals_and_one_over_n_for_a_monopoly() {
        assert_eq!(jain(&[5.0, 5.0, 5.0]), Some(1.0));
        assert_eq!(jain(&[9.0, 0.0, 0.0]), Some(1.0 / 3.0));
        assert_eq!(jain(&[9.0]), None);
    }
}

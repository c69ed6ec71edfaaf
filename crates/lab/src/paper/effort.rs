//! About how long a run takes to simulate.

use super::equation::mathis;
use crate::link::Bandwidth;
use crate::scenario::{Congestion, Scenario, Sender, Workload};
use crate::sim::QuicCongestion;

/// Packets on a link per second of one core of the machine that this was measured on, release profile.
const PACKETS_PER_SECOND: f64 = 120_000.0;

/// Seconds of one core.
pub(super) fn seconds(scenario: &Scenario) -> f64 {
    let mtu = f64::from(scenario.hops.iter().map(|hop| hop.forward.mtu).max().unwrap_or(1500));
    let length = scenario.seconds.0.as_secs_f64();
    let packets = match scenario.workload {
        Workload::Transfer { size } => 1.1 * size as f64 / mtu,
        // They are echoed or answered.
        Workload::Messages { interval, size } | Workload::Block { interval, size } => {
            2.0 * (size as f64 / mtu).ceil() * length / interval.0.as_secs_f64().max(1e-6)
        }
        Workload::Bulk => length * bits_per_second(scenario) / (8.0 * mtu),
    };
    (packets * scenario.hops.len() as f64 / PACKETS_PER_SECOND).max(0.002)
}

/// What is sent, which controls that take every loss for congestion do not bring up to the limit.
fn bits_per_second(scenario: &Scenario) -> f64 {
    let capacity = scenario.hops.iter().filter_map(|hop| hop.forward.capacity()).map(Bandwidth::bits_per_sec).min().unwrap_or(0) as f64;
    let noctule = matches!(scenario.cc, Congestion::Cubic | Congestion::Reno | Congestion::Vegas);
    let quic = |sender: &Sender| matches!(sender, Sender::Quic(QuicCongestion::Cubic | QuicCongestion::Reno));
    let is_loss_based = if scenario.senders.is_empty() { noctule } else { scenario.senders.iter().all(quic) };
    let flows = scenario.pairs.max(scenario.senders.len() as u32);
    // CUBIC is a little faster than the equation.
    let equation = mathis(scenario).filter(|_| is_loss_based).map(|mbit| 2e6 * mbit * f64::from(flows));
    equation.map_or(capacity, |bits| bits.min(capacity))
}

/// A time in words.
pub(super) fn words(seconds: f64) -> String {
    match seconds {
        s if s < 1.5 => "about a second".to_owned(),
        s if s < 90.0 => format!("about {s:.0} s"),
        s => format!("about {:.0} min", s / 60.0),
    }
}

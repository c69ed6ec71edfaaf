//! About what a run costs to simulate.

use super::{Congestion, Scenario, Sender, Workload, mathis};
use crate::link::Bandwidth;
use crate::sim::QuicCongestion;

/// Bytes of a transfer on the wire per byte of it: headers, repair, the other direction's acknowledgements.
const OVERHEAD: f64 = 1.1;

impl Scenario {
    /// Packets on all links of the run. It tells runs that take long from short ones, and how far a list of them is.
    pub fn effort(&self) -> f64 {
        let mtu = f64::from(self.hops.iter().map(|hop| hop.forward.mtu).max().unwrap_or(1500));
        let length = self.seconds.0.as_secs_f64();
        let packets = match self.workload {
            // It ends when it is complete, not by the clock.
            Workload::Transfer { size } => OVERHEAD * size as f64 / mtu,
            // They are echoed or answered.
            Workload::Messages { interval, size } | Workload::Block { interval, size } => {
                2.0 * (size as f64 / mtu).ceil() * length / interval.0.as_secs_f64().max(1e-6)
            }
            Workload::Bulk => length * bits_per_second(self) / (8.0 * mtu),
        };
        packets * self.hops.len() as f64
    }
}

/// What is taken for the rate of links that have none, bits per second.
const WITHOUT_RATE: u64 = 1_000_000_000;

/// What bulk flows send, which controls that take every loss for congestion do not bring up to the limit.
fn bits_per_second(scenario: &Scenario) -> f64 {
    let capacity = scenario.slowest().map_or(WITHOUT_RATE, Bandwidth::bits_per_sec) as f64;
    let noctule = matches!(scenario.cc, Congestion::Cubic | Congestion::Reno | Congestion::Vegas);
    let quic = |sender: &Sender| matches!(sender, Sender::Quic(QuicCongestion::Cubic | QuicCongestion::Reno));
    let is_loss_based = if scenario.senders.is_empty() { noctule } else { scenario.senders.iter().all(quic) };
    if !is_loss_based {
        return capacity;
    }
    let flows = f64::from(scenario.pairs).max(scenario.senders.len() as f64);
    // CUBIC is a little faster than the equation.
    (2.0 * mathis(scenario) * flows).min(capacity)
}

#[cfg(test)]
mod tests {
    use crate::cli::RunLine;

    fn effort(line: &str) -> f64 {
        RunLine(line.split(' ').map(str::to_owned).collect()).scenario().unwrap().effort()
    }

    #[test]
    fn effort_is_packets_on_links() {
        // 120 Mbit/s of 1500 bytes are 10,000 packets a second.
        assert!((effort("--hops=3 --rate=120mbit --seconds=10 --warmup=1") - 300_000.0).abs() < 1.0);
        // 100 messages of two packets a second, echoed.
        assert!((effort("--workload=messages:100/s:2000B --seconds=10 --warmup=1") - 4_000.0).abs() < 1.0);
        // A transfer ends by itself.
        assert!((effort("--workload=transfer:15MB --seconds=20000") - 11_000.0).abs() < 1.0);
        assert!(effort("--loss=5% --cc=reno") < 0.1 * effort("--loss=5%"));
    }
}

//! Packets that pass a slow link faster than others because they are smaller.
//!
//! A full packet takes 0.12 s over 100 kbit/s, an acknowledged control packet 5 ms. The difference is no queue: a controller that compared the two would find one
//! behind each full packet, and give way to it.

use crate::switch::{self, Mechanism};
use crate::units::{Bandwidth, Duration};

/// Samples of small packets without one of a full packet in between, after which the flow is taken to have small ones only.
const MEMORY: u32 = 16;
/// A link is slow if a full packet takes so much longer than a small one: as long as the longest queue that flows of our kind aim at.
const SLOW: Duration = Duration::from_millis(9);
/// While no rate is known: the RTT that distance alone does not explain (`congestion::initial_packets`).
const FAR: Duration = Duration::from_secs(1);

/// Which round-trip samples can be compared with one another. Begins with those of the handshake's full packets.
#[derive(Clone, Debug, Default)]
pub(super) struct Faster {
    since_full: u32,
}

impl Faster {
    /// Whether a packet of `bytes` on a path that takes `full` was faster than others of late because it is smaller. `rate` is what the path carries, zero if
    /// unknown.
    pub(super) fn is_faster(&mut self, bytes: u64, full: u64, rate: Bandwidth, rtt: Duration) -> bool {
        if bytes * 2 > full {
            self.since_full = 0;
            return false;
        }
        self.since_full = self.since_full.saturating_add(1);
        let is_slow = if rate == Bandwidth::ZERO { rtt > FAR } else { rate.time_for(full - bytes) > SLOW };
        is_slow && self.since_full <= MEMORY && !switch::is_off(Mechanism::SlowPaths)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn small_packets_among_full_ones_are_faster_on_slow_links_only() {
        let (slow, fast) = (Bandwidth::from_bytes_per_sec(12_500.0), Bandwidth::from_bytes_per_sec(1_250_000.0));
        let rtt = Duration::from_millis(200);
        let mut faster = Faster::default();
        assert!(!faster.is_faster(1200, 1472, slow, rtt));
        assert!(faster.is_faster(50, 1472, slow, rtt));
        assert!(!faster.is_faster(50, 1472, fast, rtt));
        assert!(faster.is_faster(50, 1472, Bandwidth::ZERO, Duration::from_secs(2)));
        assert!(!faster.is_faster(50, 1472, Bandwidth::ZERO, rtt));
        // A flow of small packets has only these to measure by.
        assert_eq!((0..40).filter(|_| faster.is_faster(50, 1472, slow, rtt)).count(), 12);
    }
}

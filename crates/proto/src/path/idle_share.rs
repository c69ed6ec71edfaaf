//! How much a path could have carried lately and did not: what may be spent ahead of data that waits without taking anything from it in the end.
//!
//! A sender in trains leaves a path idle between them. What protects a train is worth most with the train, and is paid for by the pause after it. A sender that
//! leaves no pauses has nothing to spend.

use crate::units::{Bandwidth, Duration, Probability, Time};

/// Part of the capacity that counts as there: the rest is the estimate's error.
const SURE: f64 = 0.95;
/// Round trips that are remembered, of what was not used and of what was used too much.
const MEMORY: u32 = 2;

/// See the file's heading.
#[derive(Clone, Debug)]
pub(super) struct IdleShare {
    /// Bytes that were not used at `at`; negative: the path owes pauses.
    balance: f64,
    at: Time,
}

impl IdleShare {
    pub fn new(now: Time) -> Self {
        Self { balance: 0.0, at: now }
    }

    /// What is left of what the path could have carried at this rate, as a part of the most that is remembered.
    pub fn left(&self, now: Time, capacity: Bandwidth, rtt: Duration) -> Probability {
        let most = capacity.bytes_in(rtt * MEMORY) as f64;
        Probability::new(self.balance_at(now, capacity, rtt) / most)
    }

    /// So many bytes leave.
    pub fn on_sent(&mut self, now: Time, bytes: u64, capacity: Bandwidth, rtt: Duration) {
        let most = capacity.bytes_in(rtt * MEMORY) as f64;
        self.balance = (self.balance_at(now, capacity, rtt) - bytes as f64).max(-most);
        self.at = now;
    }

    fn balance_at(&self, now: Time, capacity: Bandwidth, rtt: Duration) -> f64 {
        let most = capacity.bytes_in(rtt * MEMORY) as f64;
        (self.balance + SURE * capacity.bytes_in(now.since(self.at)) as f64).min(most)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Trains of so many packets of 1000 bytes every 10 ms over 1 MB/s; how many of the packets leave while something is left.
    fn spared(train: u64) -> u64 {
        let (rate, rtt) = (Bandwidth::from_bytes_per_sec(1e6), Duration::from_millis(20));
        let mut idle_share = IdleShare::new(Time::ZERO);
        let mut spared = 0;
        for ms in (0..1000).step_by(10) {
            for packet in 0..train {
                let now = Time::from_millis(ms) + rate.time_for(packet * 1000);
                spared += u64::from(idle_share.left(now, rate, rtt) > Probability::ZERO);
                idle_share.on_sent(now, 1000, rate, rtt);
            }
        }
        spared
    }

    #[test]
    fn pauses_pay_for_what_is_sent_ahead_of_data_and_no_pauses_pay_for_nothing() {
        assert!(spared(6) > 590, "{}", spared(6));
        assert!(spared(10) < 10, "{}", spared(10));
    }

    #[test]
    fn a_long_pause_is_forgotten_but_for_two_round_trips_of_it() {
        let (rate, rtt) = (Bandwidth::from_bytes_per_sec(1e6), Duration::from_millis(20));
        let mut idle_share = IdleShare::new(Time::ZERO);
        let now = Time::from_millis(10_000);
        idle_share.on_sent(now, 39_000, rate, rtt);
        assert!(idle_share.left(now, rate, rtt) > Probability::ZERO);
        idle_share.on_sent(now, 2_000, rate, rtt);
        assert_eq!(idle_share.left(now, rate, rtt), Probability::ZERO);
    }
}

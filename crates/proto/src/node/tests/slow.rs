//! Links on which a packet takes longer than timers of fast ones: from 20 down to 2.4 kbit/s, half a second or one away.

use super::MS;
use super::pair::{Conditions, Pair, content};
use crate::NodeConfig;
use crate::switch::{Mechanism, without};
use crate::units::Duration;

/// So many bit/s, and a queue that takes two minutes.
fn slow(rate: f64, delay: Duration) -> Conditions {
    Conditions { rate: Some(rate / 8.0), delay, queue: MS(120_000), ..Conditions::default() }
}

/// Whether so many bytes are there so many seconds after the first packet of the handshake, both ends being this patient.
fn arrives(conditions: Conditions, patience: Duration, bytes: usize, seconds: u64, seed: u64) -> bool {
    let config = || NodeConfig { connect_timeout: patience, ..NodeConfig::default() };
    let mut p = Pair::new([config(), config()], conditions, seed);
    let (_, session) = p.connect();
    let data = content(bytes, 5);
    let (got, is_done) = p.attempt(session, &data, MS(seconds * 1000), |_| true);
    is_done && got == data
}

#[test]
fn a_link_of_20_kilobits_and_half_a_second_carries_a_transfer() {
    // 20 KB take 8 s, and what the handshake left in the queue 6 s.
    assert!(arrives(slow(20e3, MS(500)), MS(10_000), 20_000, 30, 5));
}

#[test]
fn a_lossy_link_of_2400_bits_and_a_second_carries_a_transfer_whichever_packets_of_the_handshake_are_lost() {
    // 20 KB take 67 s, and the packet that confirms the handshake comes 28 s after the first one.
    let conditions = || Conditions { queue: MS(20_000), loss: 0.05, ..slow(2.4e3, MS(1000)) };
    let story = |seed| arrives(conditions(), MS(30_000), 20_000, 200, seed);
    for seed in 0..12 {
        assert!(story(seed), "{seed}");
    }
    assert!(!without(Mechanism::SlowPaths, || story(0)));
}

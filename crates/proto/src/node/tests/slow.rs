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
fn arrives(conditions: Conditions, patience: Duration, bytes: usize, seconds: u64) -> bool {
    let config = || NodeConfig { connect_timeout: patience, ..NodeConfig::default() };
    let mut p = Pair::new([config(), config()], conditions, 5);
    let (_, session) = p.connect();
    let data = content(bytes, 5);
    let (got, is_done) = p.attempt(session, &data, MS(seconds * 1000), |_| true);
    is_done && got == data
}

#[test]
fn a_link_of_20_kilobits_and_half_a_second_carries_a_transfer() {
    // 20 KB take 8 s, and what the handshake left in the queue 6 s.
    let story = |seconds| arrives(slow(20e3, MS(500)), MS(10_000), 20_000, seconds);
    assert!(story(30));
    assert!(!without(Mechanism::SlowPaths, || story(30)));
}

//! Bursts of loss that are counted in packets, as in models of loss: nothing passes until so many packets have been sent and lost.

use super::MS;
use super::pair::{Conditions, Pair, content};
use crate::NodeConfig;
use crate::switch::{Mechanism, without};
use crate::units::{Duration, Time};
use std::cell::Cell;
use std::rc::Rc;

/// How long 5 MB take over 50 Mbit/s and 5 ms; `None` if they do not arrive. From 200 ms on `burst` packets of each direction are lost in a row.
fn takes(burst: [u32; 2], seed: u64) -> Option<Duration> {
    let conditions = Conditions { rate: Some(50e6 / 8.0), delay: MS(5), queue: MS(10), ..Conditions::default() };
    let mut p = Pair::new([NodeConfig::default(), NodeConfig::default()], conditions, seed);
    let (_, session) = p.connect();
    let left = Rc::new(Cell::new(burst));
    p.filter = Some(Box::new(move |from, now, _| {
        let mut counts = left.get();
        let is_lost = now >= Time::from_millis(1200) && counts[from] > 0;
        counts[from] -= u32::from(is_lost);
        left.set(counts);
        is_lost
    }));
    let data = content(5_000_000, seed);
    let (got, is_done) = p.attempt(session, &data, MS(60_000), |_| true);
    (is_done && got == data).then(|| p.now.since(Time::from_millis(1000)))
}

#[test]
fn a_burst_that_swallows_all_in_flight_and_a_hundred_packets_more_is_over_within_seconds() {
    // 5 MB take 0.9 s, and some 90 packets are in flight.
    for (burst, seed) in [([200, 0], 1), ([0, 100], 2), ([200, 100], 3)] {
        let took = takes(burst, seed);
        assert!(took.is_some_and(|took| took < MS(4000)), "{burst:?}: {took:?}");
        let without = without(Mechanism::SilenceProbes, || takes(burst, seed));
        assert!(without.is_none_or(|without| without > MS(6000)), "{burst:?}: {without:?}");
    }
}

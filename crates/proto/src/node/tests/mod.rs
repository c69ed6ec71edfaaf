//! P26: each mechanism of links and paths is forced in mid-transfer, mostly under 10 % loss, and the same story fails, or loses what the mechanism
//! is for, when it is switched off (`crate::switch`).

mod attack;
mod corpus;
mod costs;
mod datagram_routes;
mod hostile;
mod hostile_early;
mod keys;
mod limits;
mod loaded;
mod many_flows;
#[path = "../../../tests/mesh/mod.rs"]
mod mesh;
mod messages;
mod mobility;
mod mtu;
mod multicast;
mod multipath;
mod objects;
mod openings;
mod ordered;
#[path = "../../../tests/pair/mod.rs"]
mod pair;
mod paths;
mod relayed;
mod relays;
mod renewal;
mod restarts;
mod routes;
mod sealed;
mod shards;
mod shares;
mod silence;
mod slow;
mod strangers;
mod trains;
mod transparent;
#[path = "../../../tests/tree/mod.rs"]
mod tree;

use crate::units::{Duration, Time};
use pair::{Conditions, Pair};

const MS: fn(u64) -> Duration = Duration::from_millis;

/// 20 ms of RTT, 100 Mbit/s, 10 % loss each way.
fn lossy() -> Conditions {
    Conditions { loss: 0.1, rate: Some(12.5e6), ..Conditions::default() }
}

/// A time after the pair's beginning.
fn at(ms: u64) -> Time {
    Time::from_millis(1000 + ms)
}

/// Datagrams from `node` in this span are lost.
fn deaf(p: &mut Pair, node: usize, from: Time, to: Time) {
    p.filter = Some(Box::new(move |by, now, _| by == node && from <= now && now < to));
}

//! Keys change in mid-transfer (P3, P20).

use super::pair::{A, B, Conditions, Pair, content};
use super::{MS, lossy};
use crate::NodeConfig;
use crate::stats::LinkStats;
use crate::switch::{Mechanism, without};

/// 8 MB over a path that reorders over 15 ms, with keys of 1024 packets and a fresh Diffie-Hellman every 3000: what both ends say of the link.
fn story(loss: f64) -> [LinkStats; 2] {
    let config = NodeConfig { epoch_packets: 1024, rekey_packets: 3000, ..NodeConfig::default() };
    let mut p = Pair::new([config.clone(), config], Conditions { loss, jitter: MS(15), ..lossy() }, 5);
    let (link, session) = p.connect();
    let data = content(8_000_000, 5);
    assert!(p.transfer(session, &data, MS(60_000)) == data);
    let (_, theirs) = p.nodes[B].sessions().next().unwrap();
    [p.nodes[A].link_stats(link).unwrap(), p.nodes[B].link_stats(theirs).unwrap()]
}

#[test]
fn epochs_and_generations_change_under_reordering_and_every_packet_is_opened() {
    let stats = story(0.1);
    assert!(stats[0].key_epoch >= 5, "epoch {}", stats[0].key_epoch);
    for s in &stats {
        assert!(s.key_generation >= 2 && s.undecryptable == 0, "generation {}, {} undecryptable", s.key_generation, s.undecryptable);
    }
}

#[test]
fn without_the_neighbouring_epochs_keys_packets_over_the_boundary_are_lost() {
    let stats = without(Mechanism::NeighbouringEpochs, || story(0.1));
    assert!(stats[1].undecryptable > 20, "{}", stats[1].undecryptable);
}

//! Keys change in mid-transfer (P3, P20).

use super::pair::{A, B, Conditions, Pair, content};
use super::{MS, lossy};
use crate::NodeConfig;
use crate::stats::LinkStats;
use crate::switch::{Mechanism, numbered_from, without};

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

/// 4 MB in packets whose numbers pass 2^32 meanwhile: whether all arrived in 10 s.
fn beyond_32_bits() -> bool {
    numbered_from((1 << 32) - 1000, || {
        let mut p = Pair::new(Default::default(), lossy(), 9);
        let (link, session) = p.connect();
        let data = content(4_000_000, 9);
        let (got, is_done) = p.attempt(session, &data, MS(10_000), |_| true);
        assert!(!is_done || got == data && p.nodes[A].link_stats(link).unwrap().key_epoch == 1 << 12, "past 2^32");
        is_done
    })
}

#[test]
fn packet_numbers_pass_32_bits_in_mid_transfer() {
    assert!(beyond_32_bits());
}

#[test]
fn without_completing_numbers_it_ends_there() {
    assert!(!without(Mechanism::NumberExpansion, beyond_32_bits));
}

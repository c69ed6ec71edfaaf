//! Rank statistics of the inner code against exact and simulated ones.

use noctule_codes::interleave::interleave;
use noctule_codes::prng::SplitMix64;
use noctule_codes::recoding::{Probability, RankDistribution};
use noctule_codes::span::{Received, SpanBuffer};

/// Rate after `hops` links: expected rank over packets sent per link.
fn rate(m: usize, hops: usize, loss: f64, adaptive: bool) -> f64 {
    let p = Probability::new(loss);
    let mut ranks = RankDistribution::full(m);
    for _ in 0..hops {
        let sends = if adaptive { ranks.adaptive(p, m as f64) } else { ranks.uniform(m as u32) };
        assert!(ranks.mean_sends(&sends) <= m as f64 + 1e-9);
        ranks = ranks.after_link(p, &sends);
    }
    ranks.mean() / m as f64
}

/// (M, hops, loss, systematic recoding with M sends, adaptive recoding with M sends on average): exact values of the chain.
const TABLE: [(usize, usize, f64, f64, f64); 22] = [
    (8, 1, 0.10, 0.9000, 0.9000),
    (8, 3, 0.02, 0.9480, 0.9494),
    (8, 3, 0.10, 0.8112, 0.8339),
    (8, 3, 0.20, 0.6803, 0.7121),
    (8, 6, 0.02, 0.9144, 0.9200),
    (8, 6, 0.10, 0.7565, 0.7877),
    (8, 6, 0.20, 0.6135, 0.6555),
    (16, 1, 0.20, 0.8000, 0.8000),
    (16, 3, 0.00, 1.0000, 1.0000),
    (16, 3, 0.02, 0.9532, 0.9557),
    (16, 3, 0.05, 0.9044, 0.9154),
    (16, 3, 0.10, 0.8362, 0.8526),
    (16, 3, 0.15, 0.7740, 0.7938),
    (16, 3, 0.20, 0.7149, 0.7372),
    (16, 6, 0.02, 0.9314, 0.9390),
    (16, 6, 0.10, 0.7994, 0.8210),
    (16, 6, 0.20, 0.6689, 0.6972),
    (32, 6, 0.10, 0.8297, 0.8446),
    (32, 6, 0.20, 0.7080, 0.7273),
    (64, 3, 0.10, 0.8679, 0.8762),
    (64, 6, 0.02, 0.9562, 0.9610),
    (64, 6, 0.20, 0.7353, 0.7488),
];

#[test]
fn rates_equal_the_exact_chain_to_four_digits() {
    for (m, hops, loss, systematic, adaptive) in TABLE {
        assert!((rate(m, hops, loss, false) - systematic).abs() < 6e-5, "M={m} L={hops} p={loss}: {}", rate(m, hops, loss, false));
        assert!((rate(m, hops, loss, true) - adaptive).abs() < 6e-5, "M={m} L={hops} p={loss}: {}", rate(m, hops, loss, true));
    }
}

#[test]
fn real_recoding_follows_the_chain_within_the_sampling_error() {
    let (m, loss, batches) = (16, 0.1, 3000);
    let mut random = SplitMix64::new(11);
    for hops in [1, 3, 6] {
        let mut sum = 0;
        for _ in 0..batches {
            let mut node = SpanBuffer::new(m);
            for j in 0..m {
                node.receive_source(j, &[]);
            }
            for _ in 0..hops {
                let mut next = SpanBuffer::new(m);
                for t in 0..m {
                    let mut weights = vec![0; node.rank()];
                    if t < node.rank() {
                        weights[t] = 1
                    } else {
                        random.fill(&mut weights)
                    }
                    let (mut coefficients, mut data) = (vec![0; m], Vec::new());
                    node.recode(&weights, &mut coefficients, &mut data);
                    if random.unit() >= loss {
                        assert_ne!(next.receive(&coefficients, &data), Received::Malformed);
                    }
                }
                node = next;
            }
            sum += node.rank();
        }
        let measured = sum as f64 / (batches * m) as f64;
        let exact = rate(m, hops, loss, false);
        // Standard deviation of a rank is below 2.2, of the mean rate below 2.2 / (16 · sqrt 3000) = 0.0025.
        assert!((measured - exact).abs() < 0.008, "L={hops}: {measured} against {exact}");
    }
}

/// Rate over three hops with Gilbert losses: all is lost in the bad state, whose mean length is `burst`.
fn bursty(m: usize, loss: f64, burst: f64, depth: u32) -> f64 {
    let batches = 12_000u32;
    let mut random = SplitMix64::new(5);
    let (leave, enter) = (1.0 / burst, loss / (burst * (1.0 - loss)));
    let mut ranks = vec![m; batches as usize];
    for _ in 0..3 {
        let mut bad = false;
        let mut received = vec![0; batches as usize];
        for (batch, _) in interleave(0..batches, m, depth) {
            bad = random.unit() < if bad { 1.0 - leave } else { enter };
            received[batch as usize] += usize::from(!bad);
        }
        for (rank, received) in ranks.iter_mut().zip(received) {
            *rank = (*rank).min(received);
        }
    }
    ranks.iter().sum::<usize>() as f64 / f64::from(batches) / m as f64
}

#[test]
fn interleaving_wins_back_what_bursts_cost() {
    for (m, loss, burst, depth, expected) in [
        (16, 0.1, 10.0, 1, 0.7372),
        (16, 0.1, 10.0, 4, 0.7756),
        (16, 0.1, 10.0, 16, 0.8281),
        (16, 0.1, 3.0, 1, 0.7786),
        (32, 0.05, 10.0, 16, 0.9123),
    ] {
        let rate = bursty(m, loss, burst, depth);
        assert!((rate - expected).abs() < 0.012, "M={m} burst={burst} depth={depth}: {rate} against {expected}");
    }
}

#[test]
fn interleaving_sends_every_packet_once() {
    let mut order: Vec<(u32, usize)> = interleave(3..20, 5, 4).collect();
    order.sort_unstable();
    assert_eq!(order, (3..20).flat_map(|b| (0..5).map(move |i| (b, i))).collect::<Vec<_>>());
    assert_eq!(interleave(7..7, 16, 4).count(), 0);
    assert_eq!(interleave(0..2, 2, 0).count(), 4, "depth 0 counts as none");
}

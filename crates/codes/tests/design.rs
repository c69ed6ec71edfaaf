//! The degree optimiser: near the limit in the analysis, and near the limit with real packets.

use noctule_codes::prng::SplitMix64;
use noctule_codes::recoding::{Probability, RankDistribution};
use noctule_codes::rfc9426::{Decoder, Design, Encoder, FieldSize, Parameters};
use noctule_codes::rlc::coding_coefficients;

fn ranks(m: usize, hops: usize, loss: f64) -> RankDistribution {
    let loss = Probability::new(loss);
    (0..hops).fold(RankDistribution::full(m), |ranks, _| ranks.after_link(loss, &ranks.uniform(m as u32)))
}

#[test]
fn designed_degrees_reach_the_mean_rank_within_five_percent() {
    for (m, hops, loss) in [(1, 1, 0.0), (8, 1, 0.1), (8, 3, 0.2), (16, 2, 0.1)] {
        let ranks = ranks(m, hops, loss);
        let design = Design::optimise(&ranks, 0.98, 12 * m.max(4));
        let sum: f64 = design.probabilities.iter().sum();
        assert!((sum - 1.0).abs() < 1e-6 && design.probabilities.iter().all(|p| *p >= 0.0));
        // BP recovers 0.98 of theta packets per batch; nobody recovers more than the rank.
        let reached = 0.98 * design.source_packets_per_batch / ranks.mean();
        assert!((0.95..=1.0).contains(&reached), "M={m} L={hops} p={loss}: {reached}");
        assert!(design.slack(&ranks, 0.98) > -0.02 * design.source_packets_per_batch, "the condition holds between grid points as well");
        assert!(design.slack(&ranks, 0.9999) < 0.0, "and not much beyond what was asked for");
    }
}

#[test]
fn degrees_designed_for_other_ranks_do_worse() {
    let (here, elsewhere) = (ranks(16, 1, 0.05), ranks(16, 6, 0.2));
    let own = Design::optimise(&here, 0.95, 100);
    let foreign = Design::optimise(&elsewhere, 0.95, 100);
    let mut moved = foreign.clone();
    moved.source_packets_per_batch = 0.0;
    assert!(moved.slack(&here, 0.95) < 0.97 * own.source_packets_per_batch, "the mixture matters");
}

#[test]
fn designed_codes_decode_near_k_with_real_packets() {
    let (k, loss) = (600, 0.1);
    let parameters = Parameters::new(16, FieldSize::Q256, 20).unwrap();
    let degrees = Design::optimise(&ranks(16, 1, loss), 0.9, 100).covering(k).distribution().unwrap();
    let mut extra = 0;
    for trial in 0..6 {
        let mut random = SplitMix64::new(trial);
        let mut data = vec![0; k * 4 - 1];
        random.fill(&mut data);
        let encoder = Encoder::new(parameters, degrees.clone(), &data).unwrap();
        let mut decoder = Decoder::new(parameters, degrees.clone(), k).unwrap();
        let first = random.below(4000) as u16;
        for bid in first..first + 200 {
            for packet in encoder.batch(bid) {
                if random.unit() >= loss {
                    decoder.receive(bid, &packet);
                }
            }
            if decoder.is_complete() {
                break;
            }
        }
        extra += decoder.rank() - k;
        assert_eq!(decoder.into_data(), Some(data));
    }
    assert!(extra <= 6 * 12, "{extra} packets beyond K in six blocks");
}

#[test]
fn rlc_coefficients_follow_rfc_8681() {
    // The low octets of the outputs that RFC 8682 lists for seed 1, none of which is zero.
    let mut out = [0; 8];
    coding_coefficients(1, 15, &mut out);
    assert_eq!(out, [37, 225, 177, 176, 21, 246, 54, 139]);
    coding_coefficients(1, 7, &mut out);
    let zeros = (0..200u16)
        .map(|key| {
            coding_coefficients(key, 7, &mut out);
            out.iter().filter(|c| **c == 0).count()
        })
        .sum::<usize>();
    assert!((700..900).contains(&zeros), "half of 1600: {zeros}");
}

//! LT and semi-random LT: the paper's parameters, and the paper's advantage.

use noctule_codes::lt::{PeelingDecoder, SemiRandom, Soliton, coverage};
use noctule_codes::prng::SplitMix64;
use noctule_codes::recoding::Probability;

/// Equation 4 of the paper as written, with Stirling numbers of the second kind.
fn coverage_by_stirling_numbers(n: usize, q: usize, k: usize) -> f64 {
    let mut stirling = vec![vec![0.0f64; q + 1]; k + 1];
    stirling[0][0] = 1.0;
    for l in 1..=k {
        for j in 1..=q {
            stirling[l][j] = j as f64 * stirling[l - 1][j] + stirling[l - 1][j - 1];
        }
    }
    let choose = |k: usize, l: usize| (0..l).fold(1.0, |c, i| c * (k - i) as f64 / (i + 1) as f64);
    let factorial: f64 = (1..=q).map(|i| i as f64).product();
    let share = q as f64 / n as f64;
    (q..=k)
        .map(|l| {
            let hit = choose(k, l) * share.powi(l as i32) * (1.0 - share).powi((k - l) as i32);
            hit * stirling[l][q] * factorial / (q as f64).powi(l as i32)
        })
        .sum()
}

#[test]
fn coverage_equals_the_sum_with_stirling_numbers() {
    for (n, q, k) in [(50, 3, 60), (50, 3, 168), (100, 6, 100), (30, 5, 90), (10, 1, 20)] {
        let (chain, paper) = (coverage(n, q, k).get(), coverage_by_stirling_numbers(n, q, k));
        assert!((chain - paper).abs() < 1e-9, "n={n} q={q} k={k}: {chain} against {paper}");
    }
}

#[test]
fn parameters_follow_from_the_loss_as_the_paper_derives_them() {
    let p = Probability::new;
    let code = SemiRandom::new(100, p(0.06), p(0.01), p(0.9)).unwrap();
    assert_eq!(code.degree(), 14, "floor(1 / 0.07)");
    // The smallest k with P(k) >= T for q = 6.
    assert!(coverage(100, 6, code.samples()).get() >= 0.9 && coverage(100, 6, code.samples() - 1).get() < 0.9);
    assert_eq!(code.repairs(), (code.samples() as f64 / (14.0 * 0.94)).ceil() as usize);
    let lossless = SemiRandom::new(100, p(0.0), p(0.0), p(0.9)).unwrap();
    assert_eq!((lossless.repairs(), lossless.degree()), (0, 100));
    assert!(SemiRandom::new(100, p(0.9), p(0.1), p(0.9)).is_none());
    assert!(SemiRandom::new(0, p(0.1), p(0.1), p(0.9)).is_none());
}

#[test]
fn robust_soliton_is_a_distribution_with_the_known_mean() {
    assert!(Soliton::new(0, 0.1, 0.5).is_none());
    assert!(Soliton::new(100, 0.0, 0.5).is_none());
    let code = Soliton::new(1000, 0.1, 0.5).unwrap();
    let mean = (0..20_000).map(|number| code.neighbours(number).len()).sum::<usize>() as f64 / 20_000.0;
    assert!((mean / code.mean_degree() - 1.0).abs() < 0.08, "{mean} against {}", code.mean_degree());
    for n in [1, 2, 3, 10] {
        let code = Soliton::new(n, 0.1, 0.5).unwrap();
        for number in 0..100 {
            let mut neighbours = code.neighbours(number);
            neighbours.sort_unstable();
            neighbours.dedup();
            assert!(!neighbours.is_empty() && neighbours.iter().all(|j| (*j as usize) < n));
        }
    }
}

/// Packets sent until the block is there, over n, minus one.
fn redundancy(n: usize, originals: usize, loss: f64, neighbours: impl Fn(u32) -> Vec<u32>) -> f64 {
    let mut sum = 0;
    for trial in 0..60u64 {
        let mut random = SplitMix64::new(trial);
        let mut decoder = PeelingDecoder::new(n, 1);
        let offset = random.below(1 << 20);
        for number in 0u32.. {
            sum += 1;
            if random.unit() >= loss {
                // Repair packets at another place for each trial, so that trials are independent.
                let number = if (number as usize) < originals { number } else { number + offset };
                decoder.receive(&neighbours(number), &[0]);
            }
            if decoder.is_complete() {
                break;
            }
        }
    }
    f64::from(sum) / (60 * n) as f64 - 1.0
}

#[test]
fn semi_random_needs_at_most_half_the_redundancy_of_lt_at_six_percent() {
    let p = Probability::new;
    let semi = SemiRandom::new(100, p(0.06), p(0.01), p(0.9)).unwrap();
    let soliton = Soliton::new(100, 0.1, 0.5).unwrap();
    let (semi, lt) = (redundancy(100, 100, 0.06, |n| semi.neighbours(n)), redundancy(100, 0, 0.06, |n| soliton.neighbours(n)));
    assert!(semi <= lt / 2.0, "semi-random {semi:.3}, LT {lt:.3}");
}

#[test]
fn malformed_packets_are_refused_and_repeated_neighbours_cancel() {
    let mut decoder = PeelingDecoder::new(3, 2);
    assert!(!decoder.receive(&[3], &[0, 0]));
    assert!(!decoder.receive(&[0], &[0]));
    assert!(!decoder.receive(&[], &[0, 0]));
    assert!(!decoder.receive(&[1, 1], &[0, 0]));
    assert!(decoder.receive(&[0, 1, 2, 2], &[5, 5]));
    assert!(decoder.receive(&[1], &[1, 2]));
    assert_eq!((decoder.source(0), decoder.source(1), decoder.source(2)), (Some(&[4, 7][..]), Some(&[1, 2][..]), None));
}

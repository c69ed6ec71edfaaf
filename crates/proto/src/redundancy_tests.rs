use super::*;
use smallvec::smallvec;

fn input(needed: u8, p: f64, target: f64) -> RedundancyInput {
    RedundancyInput {
        loss: LossEstimate { mean: Probability::new(p), ..LossEstimate::default() },
        runs: smallvec![Run { flying: needed, ..Run::default() }],
        target: Probability::new(target),
        spare: u8::MAX,
        lifetime: None,
        rtt: Duration::from_millis(50),
        is_bulk: false,
    }
}

/// P(at least `k` of `n` arrive) with independent losses, computed the other way round: from the binomial coefficients.
fn binomial_at_least(n: u32, k: u32, p: f64) -> f64 {
    let choose = |n: u32, k: u32| (0..k).fold(1.0, |c, i| c * f64::from(n - i) / f64::from(i + 1));
    (k..=n).map(|i| choose(n, i) * (1.0 - p).powi(i as i32) * p.powi((n - i) as i32)).sum()
}

#[test]
fn plan_is_the_fewest_packets_that_exact_binomials_ask_for() {
    for p in [0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.3, 0.5] {
        for needed in [1u8, 2, 3, 5, 8, 16, 32, 64] {
            for target in [0.9, 0.99, 0.999, 0.9999] {
                let planned = plan(&input(needed, p, target));
                let most = u32::from(needed) + 8;
                let exact = (0..=most).find(|r| binomial_at_least(u32::from(needed) + r, needed.into(), p) >= target).unwrap_or(most);
                assert_eq!(u32::from(planned), exact.min(most), "p {p}, needed {needed}, target {target}");
            }
        }
    }
}

#[test]
fn chain_with_long_bursts_asks_for_more_than_the_binomial() {
    let independent = plan(&input(16, 0.05, 0.99));
    let mut bursty = input(16, 0.05, 0.99);
    bursty.loss.burst_packets = 5.0;
    assert!(plan(&bursty) > independent + 2, "{} against {independent}", plan(&bursty));
}

#[test]
fn chain_is_a_distribution_with_the_given_mean() {
    for burst in [1.0, 3.0, 10.0] {
        let mut chain = DeficitChain::new(0.1, burst, 40);
        (0..40).for_each(|_| chain.send_source());
        let total: f64 = (0..=40).map(|k| chain.arrived[k] + chain.lost[k]).sum();
        let mean: f64 = (0..=40).map(|k| k as f64 * (chain.arrived[k] + chain.lost[k])).sum();
        assert!((total - 1.0).abs() < 1e-9 && (mean - 4.0).abs() < 1e-9, "burst {burst}: total {total}, mean {mean}");
    }
}

#[test]
fn bulk_gets_no_blind_redundancy_while_feedback_is_in_time() {
    let bulk = RedundancyInput { is_bulk: true, ..input(16, 0.1, 0.999) };
    assert_eq!(plan(&bulk), 0);
    let late = RedundancyInput { lifetime: Some(Duration::from_millis(60)), ..bulk.clone() };
    assert!(plan(&late) > 0, "no time for feedback: proactive");
    let in_time = RedundancyInput { lifetime: Some(Duration::from_millis(200)), ..bulk };
    assert_eq!(plan(&in_time), 0);
}

#[test]
fn plan_respects_spare_capacity_and_counts_what_is_in_flight() {
    assert_eq!(plan(&RedundancyInput { spare: 2, ..input(16, 0.2, 0.999) }), 2);
    let all = plan(&input(16, 0.2, 0.999));
    let with = |repairs_flying| {
        let run = Run { flying: 16, repairs_flying, ..Run::default() };
        plan(&RedundancyInput { runs: smallvec![run], ..input(16, 0.2, 0.999) })
    };
    assert_eq!((with(all), with(1)), (0, all - 1));
    assert_eq!(plan(&input(0, 0.2, 0.999)), 0);
    assert_eq!(plan(&input(16, 0.0, 0.999)), 0, "a lossless path needs none");
}

#[test]
fn residual_loss_stays_below_a_thousandth_up_to_30_percent() {
    for p in [0.01, 0.1, 0.2, 0.3] {
        for needed in 1..=16u8 {
            let planned = plan(&input(needed, p, 0.999));
            let fails = 1.0 - binomial_at_least(u32::from(needed + planned), needed.into(), p);
            assert!(fails <= 0.001, "p {p}, needed {needed}: {planned} packets leave {fails}");
        }
    }
}

fn repair(transmission: u8, left: f64) -> RepairInput {
    let rtt = Duration::from_millis(100);
    RepairInput {
        transmission,
        in_vain: 0,
        deficit: 1,
        loss: Probability::new(0.2),
        left: rtt.mul_f64(left),
        lifetime: None,
        rtt,
        is_relayed: false,
        is_young: false,
        is_lasting: true,
    }
}

#[test]
fn first_repair_is_exact_and_later_ones_are_the_safer_the_less_time_is_left() {
    assert_eq!(repair_extra(&repair(2, 0.0)), 0);
    assert_eq!(repair_extra(&repair(3, 4.0)), 0);
    assert_eq!(repair_extra(&repair(3, 3.0)), 2);
    assert_eq!(repair_extra(&repair(3, 1.0)), 4, "0.2^5 < 1/1000");
    // Datagrams may be lost in the end.
    assert_eq!(repair_extra(&RepairInput { is_lasting: false, ..repair(3, 1.0) }), 2);
    // A relay's window is two round trips wide when nothing is wrong.
    assert_eq!(repair_extra(&RepairInput { is_relayed: true, ..repair(3, 2.0) }), 0);
    assert_eq!(repair_extra(&RepairInput { is_relayed: true, ..repair(3, 0.5) }), 2);
    // Datagrams with a lifetime: there too, while there is time for more.
    for is_relayed in [false, true] {
        let lives = |rtts: f64| RepairInput { lifetime: Some(repair(3, rtts).left), is_lasting: false, is_relayed, ..repair(3, 10.0) };
        assert_eq!((repair_extra(&lives(4.0)), repair_extra(&lives(3.0))), (0, 2));
    }
}

#[test]
fn second_and_later_repairs_of_a_young_flow_are_safe() {
    let young = |in_vain| RepairInput { in_vain, is_young: true, ..repair(3, 10.0) };
    // One combination of which a fifth is lost, two of which a twenty-fifth, five of which a 3125th.
    assert_eq!((repair_extra(&young(0)), repair_extra(&young(1)), repair_extra(&young(7))), (1, 4, 4));
    assert_eq!(repair_extra(&RepairInput { transmission: 2, ..young(0) }), 0, "the first is exact");
    assert_eq!(repair_extra(&RepairInput { loss: Probability::new(0.05), ..young(0) }), 0, "exact suffices nine times in ten");
    assert_eq!(repair_extra(&RepairInput { loss: Probability::new(0.31), ..young(1) }), 0, "too dear");
    // Little time asks for more; a relay repairs what its link loses; datagrams hold nobody up.
    assert_eq!(repair_extra(&RepairInput { in_vain: 0, is_young: true, ..repair(3, 3.0) }), 2);
    assert_eq!(repair_extra(&RepairInput { is_relayed: true, ..young(1) }), 0);
    assert_eq!(repair_extra(&RepairInput { is_lasting: false, ..young(1) }), 0);
}

#[test]
fn the_last_repair_in_time_falls_short_once_in_a_thousand() {
    for (deficit, p) in [(1, 0.01), (1, 0.12), (2, 0.1), (4, 0.1), (1, 0.2), (3, 0.2), (1, 0.3)] {
        let input = RepairInput { deficit, loss: Probability::new(p), ..repair(3, 0.5) };
        let extra = u32::from(repair_extra(&input));
        let d = u32::from(deficit);
        let suffices = |k: u32| binomial_at_least(d + k, d, p);
        assert!(suffices(extra) >= 0.999 && (extra == 2 || suffices(extra - 1) < 0.999), "{deficit} at {p}: {extra}");
    }
    let lost = RepairInput { deficit: 16, loss: Probability::ONE, ..repair(3, 0.5) };
    assert_eq!(repair_extra(&lost), MOST_EXTRA, "bounded whatever is lost");
}

#[test]
fn odd_estimates_are_survived() {
    for mean in [f64::NAN, -1.0, 0.0, 1.0, 2.0] {
        for burst in [f64::NAN, f64::INFINITY, -5.0, 0.0, 1e9] {
            let mut odd = input(64, mean, 1.0);
            odd.loss.burst_packets = burst;
            assert!(plan(&odd) <= 72);
        }
    }
}

#[test]
fn repairs_of_a_shorter_prefix_do_not_count_for_the_packets_behind_it() {
    let old = Run { flying: 1, repairs_flying: 5, ..Run::default() };
    let new = Run { flying: 1, ..Run::default() };
    let both = RedundancyInput { runs: smallvec![old, new], ..input(0, 0.1, 0.98) };
    assert_eq!((plan(&both), plan(&input(1, 0.1, 0.98))), (1, 1));
}

#[test]
fn known_losses_and_known_repairs_are_certain() {
    let lost = Run { lost: 2, ..Run::default() };
    let two = |repairs_there| RedundancyInput { runs: smallvec![Run { repairs_there, ..lost }], ..input(0, 0.1, 0.95) };
    // Two lacking, none in flight: P(at least 2 of 3) = 0.972.
    assert_eq!((plan(&two(0)), plan(&two(1)), plan(&two(2))), (3, 2, 0));
}

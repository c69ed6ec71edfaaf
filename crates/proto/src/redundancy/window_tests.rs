use super::*;
use smallvec::smallvec;

const MS: Duration = Duration::from_millis(1);

fn input(packets: u8, p: f64, target: f64) -> WindowInput {
    WindowInput {
        loss: LossEstimate { mean: Probability::new(p), ..LossEstimate::default() },
        older: SmallVec::new(),
        burst: smallvec![Run { flying: packets, ..Run::default() }],
        target: Probability::new(target),
        debt: Probability::ZERO,
        gap: MS / 10,
    }
}

/// Mean combinations per burst, and mean probability to fail, over many bursts of one packet.
fn over_many(p: f64, target: f64) -> (f64, f64) {
    let mut now = input(1, p, target);
    let (mut packets, mut fails) = (0.0, 0.0);
    for _ in 0..10_000 {
        let plan = plan_window(&now);
        packets += f64::from(plan.at_once);
        fails += p.powi(1 + i32::from(plan.at_once));
        now.debt = plan.debt;
    }
    (packets / 1e4, fails / 1e4)
}

#[test]
fn the_asked_probability_is_met_over_many_bursts_and_not_paid_for_twice() {
    for p in [0.01, 0.02, 0.05, 0.1, 0.105, 0.2, 0.3] {
        for target in [0.9, 0.99, 0.999, 0.9999] {
            let (packets, fails) = over_many(p, target);
            assert!(fails <= (1.0 - target) * 1.001, "loss {p}, target {target}: {fails} with {packets}");
            // Never more than the fewest that meet it every time.
            let each: f64 = (0..).map(f64::from).find(|n| p.powf(1.0 + n) <= 1.0 - target + 1e-12).unwrap();
            assert!(packets <= each, "loss {p}, target {target}: {packets} against {each}");
        }
    }
    let (packets, _) = over_many(0.105, 0.999);
    assert!((2.0..2.4).contains(&packets), "{packets}: 10.5 % needs little more than two combinations behind each packet");
}

#[test]
fn a_lossless_path_and_an_empty_burst_need_nothing() {
    assert_eq!(plan_window(&input(5, 0.0, 0.999)).at_once, 0);
    assert_eq!(plan_window(&WindowInput { burst: smallvec![], ..input(1, 0.1, 0.999) }).at_once, 0);
}

#[test]
fn older_packets_in_flight_do_not_have_to_be_paid_for_again() {
    let older = Run { flying: 1, repairs_flying: 2, ..Run::default() };
    let alone = plan_window(&input(1, 0.1, 0.998)).at_once;
    let behind = WindowInput { older: (0..10).map(|_| older).collect(), ..input(1, 0.1, 0.998) };
    assert_eq!(plan_window(&behind).at_once, alone);
}

#[test]
fn an_older_packet_known_to_be_lost_takes_the_first_combination_for_itself() {
    let lost = Run { lost: 1, ..Run::default() };
    let behind = WindowInput { older: smallvec![lost], ..input(1, 0.1, 0.998) };
    assert_eq!((plan_window(&behind).at_once, plan_window(&input(1, 0.1, 0.998)).at_once), (3, 2));
}

#[test]
fn a_block_is_protected_as_one() {
    // 72 packets, 6 %: P(at most k of 72 + k lost) reaches 0.97 at k = 9, an eighth of the block.
    let plan = plan_window(&input(72, 0.06, 0.97));
    assert!((8..=9).contains(&plan.at_once), "{plan:?}");
    // Combinations sent in its middle count.
    let half = Run { flying: 48, repairs_flying: 4, ..Run::default() };
    let rest = Run { flying: 24, ..Run::default() };
    let second = plan_window(&WindowInput { burst: smallvec![half, rest], ..input(0, 0.06, 0.97) });
    assert!((4..=5).contains(&second.at_once), "{second:?}");
}

#[test]
fn in_the_middle_of_a_burst_goes_what_leaves_the_reach_and_a_deviation_later() {
    let loss = LossEstimate { mean: Probability::new(0.06), ..LossEstimate::default() };
    let (first, then) = (mid_burst(&loss, 64, true, MS / 10), mid_burst(&loss, 16, false, MS / 10));
    assert!((4.0..4.2).contains(&first) && (1.4..1.6).contains(&then), "{first}, {then}");
    assert_eq!(mid_burst(&LossEstimate::default(), 64, true, MS / 10), 0.0);
    assert_eq!(mid_burst(&LossEstimate { burst: MS * 20, ..loss }, 64, true, MS / 10), 0.0, "copies follow later");
}

#[test]
fn copies_are_spaced_by_the_duration_of_bursts_that_would_take_them_along() {
    let bursty = |burst, packets| {
        let loss = LossEstimate { burst, ..input(1, 0.02, 0.999).loss };
        plan_window(&WindowInput { loss, ..input(packets, 0.02, 0.999) })
    };
    let plan = bursty(MS * 20, 1);
    assert_eq!((plan.at_once, plan.per_round, plan.spacing), (0, 1, MS * 20));
    // 0.02 · 0.373^n <= 0.001
    assert_eq!(plan.rounds, 4);
    assert_eq!(bursty(MS * 20, 3).per_round, 3, "a burst takes all of a message");
    assert_eq!(bursty(MS * 20, 72).per_round, MOST_PER_ROUND);
    let short = bursty(MS / 5, 1);
    assert!(short.at_once >= 1 && short.rounds == 0, "{short:?}");
    assert_eq!(bursty(MS * 2, 72).rounds, 0, "a block that lasts longer than the bursts is protected as one");
}

#[test]
fn odd_estimates_are_survived() {
    for mean in [f64::NAN, -1.0, 0.0, 1.0, 2.0] {
        for burst in [Duration::ZERO, Duration::MAX] {
            for gap in [Duration::ZERO, Duration::from_secs(1000)] {
                let loss = LossEstimate { mean: Probability::new(mean), burst, ..LossEstimate::default() };
                let plan = plan_window(&WindowInput { loss, gap, ..input(64, 0.1, 1.0) });
                assert!(plan.at_once <= 72 && plan.rounds <= MOST_ROUNDS);
                assert!((0.0..=64.0).contains(&mid_burst(&loss, 64, false, gap)));
            }
        }
    }
}

/// Share of bursts of `packets` that combinations do not mend, `(from, to, how many)` each, at independent losses: each lost packet takes one that covers it.
fn fails(packets: u32, p: f64, combinations: &[(u32, u32, u32)]) -> f64 {
    let mut dice = 7u64;
    let mut is_lost = || {
        dice = dice.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        ((dice >> 11) as f64) < p * (1u64 << 53) as f64
    };
    let bursts = 10_000;
    let mut failed = 0;
    for _ in 0..bursts {
        let lost: Vec<u32> = (0..packets).filter(|_| is_lost()).collect();
        // In the order of their ends: a packet takes the one that others need least.
        let mut there: Vec<(u32, u32)> = Vec::new();
        for (from, to, count) in combinations {
            there.extend((0..*count).filter(|_| !is_lost()).map(|_| (*from, *to)));
        }
        let is_mended = lost.iter().all(|seq| {
            let found = there.iter().position(|(from, to)| (*from..*to).contains(seq));
            found.map(|at| there.remove(at)).is_some()
        });
        failed += u32::from(!is_mended);
    }
    f64::from(failed) / f64::from(bursts)
}

/// What a burst of so many packets gets when `at_end` follow it, and how many that are.
fn sent_for(packets: u32, p: f64, at_end: u32) -> (Vec<(u32, u32, u32)>, u32) {
    let loss = LossEstimate { mean: Probability::new(p), ..LossEstimate::default() };
    let (mut combinations, mut owed, mut all) = (Vec::new(), 0.0, at_end);
    let mut at = 64;
    while at < packets {
        let first = at == 64;
        owed += mid_burst(&loss, if first { 64 } else { 16 }, first, MS / 10);
        let count = f64::ceil(owed) as u32;
        owed -= f64::from(count);
        all += count;
        combinations.push((at - 64, at, count));
        at += 16;
    }
    combinations.push((packets.saturating_sub(64), packets, at_end));
    (combinations, all)
}

#[test]
fn a_burst_beyond_the_reach_of_one_combination_is_protected_as_well_as_if_it_were_not() {
    let (combinations, all) = sent_for(72, 0.06, 5);
    let (now, ideal) = (fails(72, 0.06, &combinations), fails(72, 0.06, &[(0, 72, all)]));
    assert!(now < ideal * 1.2, "{now} of bursts of 72 fail with {all}, {ideal} if each covered all");
    // Five behind each 48 packets and five at the end, as it was: a tenth of the bursts of 200 failed.
    let (combinations, all) = sent_for(200, 0.06, 6);
    let now = fails(200, 0.06, &combinations);
    assert!(all <= 24 && now < 0.05, "{now} of bursts of 200 fail with {all}");
}

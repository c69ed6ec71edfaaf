//! The laws of fq_codel: when CoDel drops, how flows share, what goes when it is full.

use super::*;

fn at(us: u64) -> Time {
    Time::ZERO + Duration::from_micros(us)
}

fn packet(since: Time, flow: u64, ecn: Ecn, number: usize) -> Waiting<usize> {
    Waiting { since, wire_len: 1500, ecn, flow, packet: number }
}

/// One flow that fills a link of 12 Mbit/s (a packet per ms) with 30 packets at once and then one per ms: the delay stands at 30 ms.
/// Times of the drops (or marks) in ms.
fn standing_queue(parameters: FqCodelParameters, ecn: Ecn, ms: u64) -> Vec<f64> {
    let mut queue = FqCodel::new(parameters, 1);
    let mut dropped = Vec::new();
    let mut times = Vec::new();
    for i in 0..30 {
        queue.push(packet(at(0), 1, ecn, i), &mut dropped);
    }
    for t in 0..ms {
        let now = at(t * 1000);
        // What was dropped is made up for, so that the queue stands.
        queue.push(packet(now, 1, ecn, 0), &mut dropped);
        let before = dropped.len();
        let (_, marked) = queue.pop(now, &mut dropped).unwrap();
        for _ in before..dropped.len() {
            queue.push(packet(now, 1, ecn, 0), &mut Vec::new());
        }
        if marked || dropped.len() > before {
            times.push(t as f64);
        }
    }
    times
}

#[test]
fn drops_come_an_interval_after_the_target_and_then_ever_closer_by_the_root_of_their_number() {
    let times = standing_queue(FqCodelParameters::default(), Ecn::NotEct, 1000);
    // The first packet above 5 ms leaves at 5 ms; 100 ms later the first drop.
    assert_eq!(times[0], 105.0);
    for (n, pair) in times.windows(2).enumerate().take(8) {
        let law = 100.0 / f64::from(n as u32 + 1).sqrt();
        // Packets leave on whole milliseconds.
        assert!((pair[1] - pair[0] - law).abs() <= 1.0, "drop {}: {} ms after the last, the law says {law}", n + 2, pair[1] - pair[0]);
    }
}

#[test]
fn target_and_interval_are_what_is_asked_for() {
    let parameters =
        FqCodelParameters { target: "20ms".parse().unwrap(), interval: "50ms".parse().unwrap(), ..FqCodelParameters::default() };
    assert_eq!(standing_queue(parameters, Ecn::NotEct, 200)[..2], [70.0, 120.0]);
    let parameters = FqCodelParameters { target: "40ms".parse().unwrap(), ..FqCodelParameters::default() };
    assert!(standing_queue(parameters, Ecn::NotEct, 1000).is_empty(), "30 ms are below the target");
}

#[test]
fn packets_that_can_be_marked_are_marked_when_asked_and_none_is_dropped() {
    let asked = FqCodelParameters { ecn: true, ..FqCodelParameters::default() };
    let drops = standing_queue(FqCodelParameters::default(), Ecn::Ect0, 600);
    let marks = standing_queue(asked, Ecn::Ect0, 600);
    assert_eq!(marks[0], 105.0);
    assert!((marks.len() as i64 - drops.len() as i64).abs() <= 1, "{marks:?} {drops:?}");
    let mut queue = FqCodel::new(asked, 1);
    let mut dropped = Vec::new();
    for i in 0..200 {
        queue.push(packet(at(0), 1, Ecn::Ect0, i), &mut dropped);
    }
    let marked = (0..200).filter(|ms| queue.pop(at(ms * 1000), &mut dropped).is_some_and(|(p, m)| m && p.ecn == Ecn::Ce)).count();
    assert!(marked >= 1 && dropped.is_empty());
}

#[test]
fn a_queue_below_the_target_loses_nothing() {
    let mut queue = FqCodel::new(FqCodelParameters::default(), 1);
    let mut dropped = Vec::new();
    for ms in 0..2000 {
        queue.push(packet(at(ms * 1000), 1, Ecn::NotEct, 0), &mut dropped);
        if ms >= 4 {
            assert!(queue.pop(at(ms * 1000), &mut dropped).is_some());
        }
    }
    assert!(dropped.is_empty());
}

#[test]
fn a_thin_flow_passes_a_fat_one_and_fat_ones_take_turns() {
    let mut queue = FqCodel::new(FqCodelParameters::default(), 1);
    let mut dropped = Vec::new();
    for i in 0..100 {
        queue.push(packet(at(0), 1, Ecn::NotEct, i), &mut dropped);
    }
    for _ in 0..3 {
        queue.pop(at(0), &mut dropped).unwrap();
    }
    queue.push(packet(at(0), 2, Ecn::NotEct, 1000), &mut dropped);
    assert_eq!(queue.pop(at(0), &mut dropped).unwrap().0.packet, 1000);
    for i in 0..50 {
        queue.push(packet(at(0), 3, Ecn::NotEct, 2000 + i), &mut dropped);
    }
    let next: Vec<usize> = (0..40).map(|_| queue.pop(at(0), &mut dropped).unwrap().0.flow as usize).collect();
    let third = next.iter().filter(|&&flow| flow == 3).count();
    assert!((19..=21).contains(&third), "{next:?}");
    // Within a flow the order stays.
    assert_eq!(queue.len(), 100 + 1 + 50 - 4 - 40);
}

#[test]
fn when_it_is_full_the_fattest_flow_loses_from_its_head() {
    let mut queue = FqCodel::new(FqCodelParameters::default(), 1);
    queue.set_limits(Limits { packets: 10, bytes: u64::MAX }, 1500);
    let mut dropped = Vec::new();
    queue.push(packet(at(0), 2, Ecn::NotEct, 100), &mut dropped);
    for i in 0..9 {
        queue.push(packet(at(0), 1, Ecn::NotEct, i), &mut dropped);
    }
    assert!(dropped.is_empty());
    queue.push(packet(at(0), 2, Ecn::NotEct, 101), &mut dropped);
    assert_eq!(dropped.iter().map(|d| (d.flow, d.packet)).collect::<Vec<_>>(), [(1, 0), (1, 1), (1, 2), (1, 3)]);
    assert_eq!(queue.len(), 7);
    let rest = std::iter::from_fn(|| queue.pop(at(0), &mut Vec::new())).count();
    assert_eq!((rest, queue.len(), queue.bytes), (7, 0, 0));
}

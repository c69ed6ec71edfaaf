//! Which part gets what, without a network.

use super::*;
use crate::switch::without;

const START: Time = Time::from_millis(1000);
const MS: fn(u64) -> Duration = Duration::from_millis;
const PACKET: u64 = 1400;
const FREE: Room = Room { unsent: 0, packets: 100 };

/// A part whose route takes this long and carries so many bytes per second.
fn part(number: u64, delay: Duration, rate: f64) -> Part {
    let mut part = Part::new(START, number, LinkId(number), FlowId(number));
    part.course.on_delay(START, delay, Duration::ZERO);
    part.course.rate = rate;
    part
}

/// 50 Mbit/s with 40 ms and 30 Mbit/s with 120 ms.
fn two() -> Spread {
    let mut spread = Spread::new(SessionId(1), FlowId(1));
    spread.parts = vec![part(1, MS(40), 6.25e6), part(2, MS(120), 3.75e6)];
    spread
}

#[test]
fn the_slower_route_gets_what_the_faster_does_not_bring_meanwhile() {
    let spread = two();
    assert_eq!(spread.choose(100_000, PACKET, &[FREE, FREE]), Some(0));
    let full = Room { unsent: 90, packets: 100 };
    // 80 ms of the faster are half a megabyte.
    assert_eq!(spread.choose(400_000, PACKET, &[full, FREE]), None, "the rest goes by the faster");
    assert_eq!(spread.choose(600_000, PACKET, &[full, FREE]), Some(1));
    assert_eq!(spread.choose(u64::MAX, PACKET, &[full, Room { unsent: 0, packets: 0 }]), None, "no credit");
}

#[test]
fn nothing_new_goes_by_a_late_part_while_there_is_another() {
    let mut spread = two();
    spread.parts[0].is_late = true;
    assert_eq!(spread.choose(1000, PACKET, &[FREE, FREE]), Some(1));
    spread.parts.remove(1);
    assert_eq!(spread.choose(1000, PACKET, &[FREE]), Some(0));
}

/// Ten packets of which each part was given half, and the second part's acknowledgements come.
fn half_silent() -> Spread {
    let mut spread = two();
    for number in 0..10 {
        spread.keep(START, Bytes::from_static(&[7; 100]), None);
        spread.parts[(number % 2) as usize].give(START, number, 130);
    }
    spread.on_part_delivered(START + MS(125), 2, 3);
    spread
}

#[test]
fn what_is_overdue_goes_by_the_other_part_once_and_what_is_there_does_not() {
    let mut spread = half_silent();
    spread.on_delivered(1);
    let late = START + MS(40) + MS(20) * 4 + GRACE;
    assert!(spread.look(START + MS(219), false).is_empty() && spread.again.is_empty());
    assert!(spread.look(late, false).is_empty(), "nothing is given up yet");
    assert_eq!(spread.again.iter().copied().collect::<Vec<_>>(), [2, 4, 6, 8]);
    assert!(spread.parts[0].is_late);
    spread.again.clear();
    spread.look(late + MS(10), false);
    assert!(spread.again.is_empty(), "once");
    spread.on_part_delivered(late + MS(20), 1, 5);
    assert!(!spread.parts[0].is_late && spread.parts[0].fed.is_empty());
    let silent = || {
        let mut spread = half_silent();
        spread.look(late, false);
        spread.again.len()
    };
    assert_eq!(without(Mechanism::LateCopies, silent), 0);
}

#[test]
fn a_part_that_delivers_nothing_is_given_up_only_while_another_delivers() {
    let mut spread = half_silent();
    assert!(spread.look(START + PATIENCE, false).is_empty(), "the other has been silent since, too");
    spread.on_part_delivered(START + MS(300), 2, 4);
    assert_eq!(spread.look(START + PATIENCE, false)[..], [0]);
    let taken = spread.take_part(0);
    assert_eq!((taken.number, spread.again.len()), (1, 5));
    spread.ban(START, LinkId(1));
    assert!(spread.is_banned(START + MS(999), LinkId(1)) && !spread.is_banned(START + MS(1000), LinkId(1)));
    spread.ban(START, LinkId(1));
    assert!(spread.is_banned(START + MS(1999), LinkId(1)));
    spread.parts.clear();
    assert!(spread.is_banned(START + MS(249), LinkId(1)) && !spread.is_banned(START + MS(250), LinkId(1)), "the only way");
    // Nothing is heard of either: it may be the return path.
    let mut spread = two();
    for number in 0..2 {
        spread.keep(START, Bytes::from_static(&[7; 100]), None);
        spread.parts[number as usize].give(START, number, 130);
    }
    assert!(spread.look(START + PATIENCE * 4, false).is_empty() && spread.again.is_empty());
}

/// A route dies, and with it the return path of all acknowledgements: those of the other route, which was slower just then, were heard of last a moment earlier.
#[test]
fn a_route_that_lives_is_neither_late_nor_given_up_because_acknowledgements_ceased_with_another() {
    let mut spread = two();
    for number in 0..10 {
        spread.keep(START, Bytes::from_static(&[7; 100]), None);
        spread.parts[(number % 2) as usize].give(START + MS(10 * number), number, 130);
    }
    spread.on_part_delivered(START + MS(150), 2, 1);
    spread.on_part_delivered(START + MS(160), 1, 1);
    for after in [MS(500), MS(700), MS(900), MS(1200), MS(3000)] {
        assert!(spread.look(START + after, false).is_empty() && spread.again.is_empty());
    }
    assert!(!spread.parts[0].is_late && !spread.parts[1].is_late);
    // They come again by another route: what the first route owes goes by the second.
    spread.on_part_delivered(START + MS(3100), 2, 5);
    spread.look(START + MS(3100), false);
    assert_eq!(spread.again.len(), 4);
}

#[test]
fn a_route_s_delay_is_the_smallest_of_the_last_seconds_and_its_rate_what_was_acknowledged() {
    let mut part = part(1, MS(40), 0.0);
    part.course.on_delay(START + MS(6000), MS(90), Duration::ZERO);
    assert_eq!(part.course.delay(), Some(MS(40)));
    part.course.on_delay(START + MS(12_000), MS(80), Duration::ZERO);
    part.course.on_delay(START + MS(18_000), MS(85), Duration::ZERO);
    assert_eq!(part.course.delay(), Some(MS(80)));
    let mut now = START + MS(20_000);
    part.give(now, 0, 0);
    for _ in 0..10 {
        now += MS(50);
        part.course.on_bytes(now, 50_000);
    }
    assert!((0.9e6..1.1e6).contains(&part.course.rate), "{}", part.course.rate);
}

/// Two routes of one-way times 20 and 60 ms, with datagrams.
fn datagrams() -> Spread {
    let mut spread = two().with_lifetimes(false);
    spread.parts[1].course.on_delay(START, MS(80), Duration::ZERO);
    spread
}

#[test]
fn what_is_not_wanted_any_more_is_forgotten_and_the_far_end_told_now_and_then() {
    let mut spread = datagrams();
    for life in [100, 300, 50] {
        spread.keep(START, Bytes::from_static(&[7; 100]), Some(START + MS(life)));
    }
    spread.again.extend([0, 2]);
    spread.expire(START + MS(99));
    assert_eq!((spread.acked, spread.take_skip(START + MS(99))), (0, None), "the first is wanted");
    assert!(!spread.is_wanted(START + MS(99), 2) && spread.is_wanted(START + MS(99), 1));
    assert_eq!(spread.expiry(), Some(START + MS(100)));
    spread.expire(START + MS(100));
    assert_eq!((spread.acked, spread.kept_bytes), (1, 200));
    assert_eq!(spread.again.iter().copied().collect::<Vec<_>>(), [2]);
    assert_eq!(spread.take_skip(START + MS(100)), Some(1));
    spread.on_delivered(2);
    spread.expire(START + MS(110));
    assert_eq!(spread.take_skip(START + MS(110)), None, "not so soon");
    assert_eq!(spread.expiry(), Some(START + MS(125)));
    assert_eq!(spread.take_skip(START + MS(125)), Some(3));
    assert_eq!(spread.take_last_skip(), None);
}

#[test]
fn what_holds_up_others_is_given_up_in_time_for_the_far_end_to_hear_of_it() {
    let mut spread = two().with_lifetimes(true);
    spread.keep(START, Bytes::from_static(&[7; 100]), Some(START + MS(300)));
    // Half of the mean, a deviation, and the pause between two SKIPs.
    let at = START + MS(300 - 20 - 20 - 5);
    assert_eq!(spread.expiry(), Some(at));
    spread.expire(at);
    assert_eq!(spread.take_skip(at), Some(1));
    spread.keep(START, Bytes::from_static(&[7; 100]), Some(START + MS(40)));
    assert_eq!(spread.expiry(), Some(START + MS(30)), "a quarter at most");
}

#[test]
fn a_route_that_takes_too_long_is_too_late_and_the_fastest_never_for_want_of_a_faster() {
    let spread = datagrams();
    let life = |ms| Some((START + MS(ms), MS(ms)));
    let late = |at, ms| spread.is_too_late(START, at, &FREE, PACKET, life(ms));
    assert!(spread.is_fastest(0) && !spread.is_fastest(1));
    assert!(late(1, 90) && !late(1, 130));
    assert!(late(0, 20) && !late(0, 130));
    assert!(!without(Mechanism::TimelyRoutes, || late(1, 20)));
    assert!(!spread.is_too_late(START, 1, &FREE, PACKET, None), "without lifetime");
}

#[test]
fn an_unknown_route_gets_copies_until_it_is_known_and_an_idle_one_now_and_then() {
    let mut spread = datagrams();
    for _ in 0..20 {
        spread.keep(START, Bytes::from_static(&[7; 100]), Some(START + MS(3000)));
    }
    spread.parts[1].course = Course::default();
    assert!(spread.is_on_trial(&spread.parts[1]) && !spread.is_on_trial(&spread.parts[0]));
    assert_eq!(spread.choose(u64::MAX, PACKET, &[Room { unsent: 90, packets: 100 }, FREE]), None);
    assert_eq!(spread.last_resort(PACKET, &[FREE, FREE]), Some(1));
    let probes = |spread: &Spread, ms| spread.probes_for(START + MS(ms), &spread.parts[1], &FREE).to_vec();
    assert_eq!(probes(&spread, 0), (12..20).rev().collect::<Vec<_>>());
    for number in probes(&spread, 0) {
        spread.parts[1].give_probe(START, number);
    }
    assert_eq!(probes(&spread, 500), [0; 0], "enough");
    assert!(spread.look(START + MS(3000), false).is_empty() && spread.again.is_empty(), "copies are not owed");
    spread.on_part_delivered(START + MS(90), 2, 8);
    assert!(!spread.is_on_trial(&spread.parts[1]));
    assert_eq!(probes(&spread, 999), [0; 0]);
    assert_eq!(probes(&spread, 1000), [19]);
    // The other owes an answer.
    spread.parts[0].give(START + MS(100), 0, 130);
    assert_eq!(probes(&spread, 500), [19]);
}

//! `gcc` on a virtual bottleneck: share and queue alone, steps of the rate, beside `cubic`, loss at random, marks, silence.

mod bottleneck;

use bottleneck::{Bottleneck, FlowSpec, Link, jain, rates};
use noctule_proto::congestion::CongestionControl::{self, Cubic, Gcc, Reno};
use noctule_proto::units::Time;

/// Share of the link from 10 to 40 s, and the queue's p95 in ms.
fn alone(link: Link, control: CongestionControl) -> (f64, f64) {
    let mbit = link.mbit;
    let mut b = Bottleneck::new(link, vec![FlowSpec::bulk(control)], 5);
    let rate = rates(&mut b, 1, 10_000, 40_000)[0];
    (rate / mbit, b.queue_ms(0.95))
}

#[test]
fn alone_it_uses_most_of_the_link_with_a_short_queue() {
    for (mbit, delay) in [(2.0, 10), (2.0, 50), (10.0, 10), (10.0, 50)] {
        let link = || Link::new(mbit, delay, 0.0).queue_bdp(8.0);
        let (share, queue) = alone(link(), Gcc);
        assert!((0.8..1.02).contains(&share), "{mbit} Mbit/s, {delay} ms: {share}");
        assert!(queue <= 50.0, "{mbit} Mbit/s, {delay} ms: {queue} ms");
        // P26: what only loss stops fills the queue.
        assert!(alone(link(), Reno).1 >= 3.0 * queue);
    }
}

#[test]
fn a_fall_of_the_capacity_leaves_a_queue_for_two_seconds_and_a_rise_is_taken_up() {
    let mut b = Bottleneck::new(Link::new(10.0, 25, 0.0).queue_bdp(8.0), vec![FlowSpec::bulk(Gcc)], 5);
    b.at(15_000, |l| l.mbit = 3.0);
    b.at(30_000, |l| l.mbit = 10.0);
    let fallen = rates(&mut b, 1, 17_500, 20_000)[0];
    let queue = b.queue_ms(0.95);
    assert!(fallen >= 2.5 && queue <= 50.0, "{fallen} Mbit/s, {queue} ms");
    // First half a packet per response time, until more gets through than at any decrease; then 8 % per second, and no more.
    let soon = rates(&mut b, 1, 38_000, 40_000)[0];
    assert!((3.1..6.5).contains(&soon), "{soon}");
    let late = rates(&mut b, 1, 52_000, 58_000)[0];
    assert!(late >= 8.5, "{late}");
}

#[test]
fn neither_side_starves_beside_cubic() {
    for bdp in [1.0, 4.0] {
        let specs = vec![FlowSpec::bulk(Gcc), FlowSpec::bulk(Cubic).at(5000)];
        let mut b = Bottleneck::new(Link::new(10.0, 25, 0.0).queue_bdp(bdp), specs, 5);
        let r = rates(&mut b, 2, 10_000, 60_000);
        assert!(r.iter().all(|r| *r >= 1.0), "{bdp} BDP: {r:?}");
    }
}

/// Between 2 and 10 % the rate stands (§6), above 10 % it falls whatever causes the loss: the draft takes it for congestion.
#[test]
fn five_per_cent_of_loss_are_borne_and_twelve_are_not() {
    let share = |loss: f64| alone(Link::new(10.0, 25, loss).queue_bdp(8.0), Gcc).0 / (1.0 - loss);
    let (clean, five, twelve) = (share(0.0), share(0.05), share(0.12));
    assert!(five >= 0.8 * clean, "{clean} {five}");
    assert!(twelve < 0.3, "{twelve}");
}

/// RFC 8085 §3.1: where the buffer is too short for a queue to be seen, the loss part stops the growth.
#[test]
fn a_buffer_too_short_to_show_a_queue_loses_little() {
    let mut b = Bottleneck::new(Link::new(10.0, 10, 0.0).queue_bdp(0.5), vec![FlowSpec::bulk(Gcc)], 5);
    let rate = rates(&mut b, 1, 10_000, 60_000)[0];
    let lost = b.dropped as f64 / b.path(0).stats().sent_packets as f64;
    assert!(rate >= 7.0 && lost <= 0.04, "{rate} Mbit/s, {lost}");
}

#[test]
fn marks_lower_the_rate_as_losses_would() {
    let mut link = Link::new(10.0, 25, 0.0).queue_bdp(8.0);
    link.mark_above = Some(6000);
    let mut b = Bottleneck::new(link, vec![FlowSpec::bulk(Gcc)], 5);
    let rate = rates(&mut b, 1, 10_000, 40_000)[0];
    let (marked, queue) = (b.path(0).stats().ce_packets, b.queue_ms(0.99));
    assert!(marked > 0 && rate >= 7.0 && queue <= 10.0, "{rate} Mbit/s, {queue} ms, {marked} marks");
}

/// A fast flow must not be the last to see a queue.
#[test]
fn two_flows_become_equal_within_three_minutes() {
    let specs = vec![FlowSpec::bulk(Gcc), FlowSpec::bulk(Gcc).at(5000)];
    let mut b = Bottleneck::new(Link::new(10.0, 25, 0.0).queue_bdp(2.0), specs, 5);
    let r = rates(&mut b, 2, 180_000, 220_000);
    assert!(jain(&r) >= 0.95 && r.iter().sum::<f64>() >= 8.5, "{r:?}");
}

/// RFC 8084, RFC 9002 §7.6: in an outage probes only, afterwards from the least, doubling.
#[test]
fn an_outage_is_sat_out_and_the_rate_found_again() {
    let mut b = Bottleneck::new(Link::new(5.0, 20, 0.0), vec![FlowSpec::bulk(Gcc)], 5);
    b.at(10_000, |l| l.loss_after = 1.0);
    b.at(14_000, |l| l.loss_after = 0.0);
    b.run_until(Time::from_millis(11_500));
    let before = b.path(0).stats().sent_packets;
    b.run_until(Time::from_millis(13_500));
    let probes = b.path(0).stats().sent_packets - before;
    assert!(probes <= 60, "{probes} packets in two seconds of silence");
    let first = rates(&mut b, 1, 14_000, 15_000)[0];
    assert!(first <= 1.0, "{first} Mbit/s: not at the old rate at once");
    let back = rates(&mut b, 1, 18_000, 24_000)[0];
    assert!(back >= 3.5, "{back}");
}

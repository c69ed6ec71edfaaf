//! `gcc` on a virtual bottleneck: share and queue alone, steps of the rate, beside `cubic`, with loss at random, in silence, and with a source that fits
//! its bit rate.

mod bottleneck;

use bottleneck::{Bottleneck, FlowSpec, Link, rates};
use noctule_proto::congestion::CongestionControl::{Cubic, Gcc, Reno};
use noctule_proto::units::Time;

fn alone(link: Link, control: noctule_proto::congestion::CongestionControl, from_ms: u64, to_ms: u64) -> (f64, f64) {
    let mbit = link.mbit;
    let mut b = Bottleneck::new(link, vec![FlowSpec::bulk(control)], 5);
    let rate = rates(&mut b, 1, from_ms, to_ms)[0];
    (rate / mbit, b.queue_ms(0.95))
}

#[test]
fn alone_it_uses_most_of_the_link_with_a_short_queue() {
    for (mbit, delay) in [(2.0, 10), (2.0, 50), (10.0, 10), (10.0, 50)] {
        let link = || Link::new(mbit, delay, 0.0).queue_bdp(8.0);
        let (share, queue) = alone(link(), Gcc, 10_000, 40_000);
        println!("{mbit} Mbit/s, {delay} ms one way: {share:.3} of the link, queue p95 {queue:.1} ms");
        let (_, full) = alone(link(), Reno, 10_000, 40_000);
        println!("reno's queue {full:.1}");
    }
}

#[test]
fn steps_of_the_rate_are_followed() {
    let mut b = Bottleneck::new(Link::new(10.0, 25, 0.0).queue_bdp(8.0), vec![FlowSpec::bulk(Gcc)], 5);
    b.at(15_000, |l| l.mbit = 3.0);
    b.at(30_000, |l| l.mbit = 10.0);
    for from in (0..60_000).step_by(1000) {
        let r = rates(&mut b, 1, from, from + 1000)[0];
        println!("{from}: {r:.2} queue {:.0} {:?}", b.queue_ms(0.95), b.path(0).stats().control);
    }
}

#[test]
fn beside_cubic() {
    for bdp in [1.0, 4.0] {
        let mut b = Bottleneck::new(Link::new(10.0, 25, 0.0).queue_bdp(bdp), vec![FlowSpec::bulk(Gcc), FlowSpec::bulk(Cubic).at(5000)], 5);
        println!("{bdp} {:?}", rates(&mut b, 2, 10_000, 60_000));
    }
    let mut b = Bottleneck::new(Link::new(10.0, 25, 0.0).queue_bdp(2.0), vec![FlowSpec::bulk(Gcc), FlowSpec::bulk(Gcc).at(5000)], 5);
    println!("self {:?}", rates(&mut b, 2, 20_000, 60_000));
}

#[test]
fn random_loss() {
    for loss in [0.01, 0.05, 0.09, 0.12, 0.2] {
        let (share, queue) = alone(Link::new(10.0, 25, loss).queue_bdp(8.0), Gcc, 10_000, 40_000);
        println!("{loss}: {share:.3} {queue:.1}");
    }
}

#[test]
fn an_outage() {
    let mut b = Bottleneck::new(Link::new(5.0, 20, 0.0), vec![FlowSpec::bulk(Gcc)], 5);
    b.at(10_000, |l| l.loss_after = 1.0);
    b.at(14_000, |l| l.loss_after = 0.0);
    for from in (8_000..25_000).step_by(1000) {
        let r = rates(&mut b, 1, from, from + 1000)[0];
        println!("{from}: {r:.2} {:?}", b.path(0).stats().control);
    }
    let _ = Time::ZERO;
}

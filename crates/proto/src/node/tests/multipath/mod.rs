//! Several paths under one link: their rates add up, one that breaks is replaced by the others at once, messages take the fastest (P7).

mod bundle;
mod coupling;

use super::mesh::Mesh;
use super::pair::{A, B, Conditions, bytes};
use super::{MS, at};
use crate::ids::PathId;
use crate::options::{FlowOptions, MessageOptions};
use crate::path::PathState;
use crate::switch::{Mechanism, without};
use crate::units::Duration;
use crate::wire::frame::Frame;
use crate::wire::packet::ConnectionId;
use bundle::{Transfer, bundle, connect, paths, transfer, wire};

/// 50 Mbit/s with 20 ms one way and 30 Mbit/s with 60 ms, 3 % loss on both.
fn wires() -> Vec<Conditions> {
    vec![wire(50.0, MS(20), 0.03), wire(30.0, MS(60), 0.03)]
}

/// The slower path's round trip.
const SLOWER: Duration = Duration::from_millis(120);

fn bulk(wires: Vec<Conditions>, bytes: usize, seed: u64) -> (Mesh, Transfer) {
    let mut b = bundle(wires, seed);
    let (_, session) = connect(&mut b);
    let t = transfer(&mut b, session, bytes, MS(30_000));
    (b, t)
}

#[test]
fn rates_of_two_paths_add_up() {
    let rate = |seed| {
        let (b, t) = bulk(wires(), 30_000_000, seed);
        assert!(t.is_done);
        for p in paths(&b, A) {
            println!(
                "{} {:?} {:.1} Mbit/s loss {:?} spurious {} of {}",
                p.path,
                p.smoothed_rtt,
                p.delivery_rate.mbit(),
                p.loss,
                p.spurious_losses,
                p.sent_packets
            );
        }
        t.rate(at(1200), at(2800)).mbit()
    };
    let both: Vec<f64> = (1..3).map(rate).collect();
    let one = without(Mechanism::Paths, || rate(1));
    println!("{both:?} Mbit/s, {one} without the second path");
    // Of 80 Mbit/s: headers, and 3 % loss.
    assert!(both.iter().all(|r| *r >= 0.9 * 80.0 * 0.97 * 0.96), "{both:?}");
    assert!(one < 50.0);
}

/// P19: nothing is due to an address that has not answered and may not be sent to, so that its owner does not turn without end.
#[test]
fn a_path_whose_tests_are_lost_leaves_its_owner_asleep() {
    for seed in 1..8 {
        let (_, t) = bulk(vec![wire(50.0, MS(20), 0.03), wire(30.0, MS(60), 0.5)], 1_000_000, seed);
        assert!(t.is_done, "{seed}");
    }
}

/// The wire of this number is cut after 1.5 s and mended 1.5 s later; what the application noticed of it.
fn cut(which: usize, seed: u64) -> (Duration, bool) {
    let mut cables = wires();
    cables[which].outages.push((at(1500), at(3000)));
    let (b, t) = bulk(cables, 25_000_000, seed);
    let of = paths(&b, A);
    println!("{:?} took {:?}", of.iter().map(|p| (p.state, p.sent_packets, p.spurious_losses)).collect::<Vec<_>>(), t.took);
    (t.gap(at(1500), MS(1500)), t.is_done)
}

/// How long it takes depends on what was in flight when the path broke: now and then a repair is lost with it, and waits for its own.
#[test]
fn a_path_that_breaks_costs_two_round_trips_of_the_slower_and_seldom_more() {
    let cuts: Vec<(usize, u64)> = [0, 1].into_iter().flat_map(|which| (2..10).map(move |seed| (which, seed))).collect();
    let gaps: Vec<Duration> = cuts
        .iter()
        .map(|(which, seed)| {
            let (gap, is_done) = cut(*which, *seed);
            println!("wire {which} is cut, seed {seed}: pause {gap:?}");
            assert!(is_done && gap <= SLOWER * 4, "wire {which}, seed {seed}: {gap:?}");
            gap
        })
        .collect();
    assert!(gaps.iter().filter(|gap| **gap <= SLOWER * 2).count() >= 13, "{gaps:?}");
    let few = [0, 1, 8, 9];
    let unnoticed = few.iter().fold(Duration::ZERO, |sum, at| {
        let (which, seed) = cuts[*at];
        let (gap, is_done) = without(Mechanism::SilentPaths, || cut(which, seed));
        assert!(is_done);
        sum + gap
    });
    let noticed = few.iter().fold(Duration::ZERO, |sum, at| sum + gaps[*at]);
    assert!(unnoticed > SLOWER * 2 * 4 && unnoticed > noticed * 2, "{noticed:?} {unnoticed:?}");
}

#[test]
fn a_path_that_was_silent_carries_again() {
    let mut cables = wires();
    cables[1].outages.push((at(1000), at(3000)));
    let (b, t) = bulk(cables, 40_000_000, 5);
    assert!(t.is_done && paths(&b, A).iter().all(|p| p.state == PathState::Open));
    let (during, after) = (t.rate(at(1500), at(3000)).mbit(), t.rate(at(4200), at(5000)).mbit());
    println!("{during} Mbit/s by one path, {after} by both");
    assert!(during < 50.0 && after > 65.0, "{during} {after}");
}

#[test]
fn a_path_that_does_not_answer_takes_nothing_away() {
    let mut cables = wires();
    cables[1].outages.push((at(0), at(60_000)));
    let (b, t) = bulk(cables, 10_000_000, 2);
    assert!(t.is_done && t.took < MS(2500), "{:?}", t.took);
    assert_eq!(paths(&b, A).iter().map(|p| p.state).collect::<Vec<_>>(), [PathState::Open, PathState::Opening]);
    assert!(b.edges[1].sent[A] < 30_000, "{:?}", b.edges[1].sent);
    assert_eq!(paths(&b, B).len(), 1, "nothing was heard of it there");
}

#[test]
fn messages_that_the_fastest_path_can_carry_go_by_it_alone() {
    let mut b = bundle(vec![wire(50.0, MS(20), 0.0), wire(30.0, MS(60), 0.0)], 3);
    let (_, session) = connect(&mut b);
    b.run_until(MS(500), |_| false);
    assert!(paths(&b, A).iter().all(|p| p.state == PathState::Open));
    let flow = b.nodes[A].open_flow(b.now, session, FlowOptions::default()).unwrap();
    let before: Vec<u64> = b.edges.iter().map(|e| e.sent[A]).collect();
    let (mut incoming, mut sent, mut late) = (None, Vec::new(), Vec::new());
    let began = b.now;
    let is_done = b.run_until(MS(5000), |b| {
        while sent.len() < 200 && b.now >= began + MS(10) * sent.len() as u32 {
            b.nodes[A].send_message(b.now, flow, bytes(2000, sent.len() as u64), MessageOptions::default()).unwrap();
            sent.push(b.now);
        }
        incoming = incoming.or_else(|| b.incoming_flow(B));
        while let Some(m) = incoming.and_then(|f| b.nodes[B].recv_message(b.now, f).unwrap()) {
            late.push(b.now.since(sent[m.id as usize]));
        }
        late.len() == 200
    });
    let bytes: Vec<u64> = b.edges.iter().zip(before).map(|(e, before)| e.sent[A] - before).collect();
    println!("longest {:?}, bytes by path {bytes:?}", late.iter().max());
    assert!(is_done && late.iter().all(|l| *l < MS(30)), "{:?}", late.iter().max());
    assert!(bytes[1] * 20 < bytes[0], "{bytes:?}");
}

#[test]
fn a_neighbour_that_offers_paths_without_end_gets_eight() {
    let mut b = bundle(vec![wire(50.0, MS(5), 0.0)], 3);
    let (link, _) = connect(&mut b);
    b.run_until(MS(200), |_| false);
    for path in 1..40 {
        let mut frame = Vec::new();
        let id = ConnectionId::new(&[path as u8; 4]).unwrap();
        Frame::NewConnectionId { path: PathId(2 * path), sequence: 100 + u64::from(path), id }.emit(&mut frame);
        b.nodes[A].inject(b.now, link, frame);
        b.run_until(MS(5), |_| false);
    }
    b.run_until(MS(200), |_| false);
    let theirs = b.nodes[B].sessions().next().unwrap().1;
    assert_eq!(b.nodes[B].links[&theirs].cids.paths(), 8);
    assert_eq!(paths(&b, B).len(), 1, "no packet of theirs came");
    assert_eq!(b.nodes[B].counters().violations, 0);
}

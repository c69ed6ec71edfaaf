//! Ends that change their address in mid-transfer, and others that pretend to (P7, P19).

use super::pair::{A, B, Conditions, Move, Pair, address, content};
use super::{MS, at, lossy};
use crate::NodeConfig;
use crate::error::Code;
use crate::event::Event;
use crate::stats::PathStats;
use crate::switch::{Mechanism, without};
use crate::units::{Duration, Time};
use std::net::SocketAddr;

const BYTES: usize = 10_000_000;
const RTT: Duration = Duration::from_millis(20);

fn elsewhere(n: u8) -> SocketAddr {
    SocketAddr::from(([10, 9, 9, n], 5000))
}

/// The same host behind a NAT that gave it another port.
fn other_port(node: usize) -> SocketAddr {
    SocketAddr::new(address(node).ip(), 60_001)
}

struct Story {
    p: Pair,
    is_done: bool,
    /// The sender's view, as long as its link exists.
    sender: Option<PathStats>,
    /// Longest time without data at the receiver around the move.
    gap: Duration,
}

/// 10 MB from A to B with 10 % loss; `node` moves after 500 ms.
fn story(seed: u64, node: usize, to: SocketAddr, is_known: bool, prepare: impl FnOnce(&mut Pair)) -> Story {
    let mut p = Pair::new(Default::default(), lossy(), seed);
    let when = at(500);
    p.moves.push_back(Move { at: when, node, to, is_known });
    p.arrivals = Some(Default::default());
    prepare(&mut p);
    let (link, session) = p.connect();
    let data = content(BYTES, seed);
    let (got, is_done) = p.attempt(session, &data, MS(15_000), |_| true);
    assert!(!is_done || got == data && p.now > when + MS(200), "the move came in mid-transfer");
    let sender = p.nodes[A].link_stats(link).map(|mut s| s.paths.remove(0));
    let gap = gap(&p.arrivals.as_ref().unwrap()[B], when);
    Story { p, is_done, sender, gap }
}

/// The longest pause between datagrams with data that began within 300 ms of `when`; the transfer's end comes later.
fn gap(arrivals: &[(Time, usize)], when: Time) -> Duration {
    let around = when.saturating_sub(MS(50))..when + MS(300);
    let pauses = arrivals.iter().filter(|a| a.1 > 600).map(|a| a.0).collect::<Vec<_>>();
    pauses.windows(2).filter(|w| around.contains(&w[0])).map(|w| w[1].since(w[0])).max().unwrap_or(Duration::MAX)
}
const SEEDS: std::ops::Range<u64> = 1..6;

#[test]
fn a_sender_or_a_receiver_that_moves_in_mid_transfer_goes_on_within_two_round_trips() {
    for node in [A, B] {
        let mut gaps = Vec::new();
        for seed in SEEDS {
            let s = story(seed, node, elsewhere(1), true, |_| ());
            assert!(s.is_done, "node {node}, seed {seed}");
            let sender = s.sender.as_ref().unwrap();
            assert_eq!((sender.migrations, sender.remote), (1, if node == A { address(B) } else { elsewhere(1) }));
            gaps.push(s.gap);
        }
        println!("node {node} moves and knows it: pauses {gaps:?}");
        assert!(gaps.iter().all(|g| *g <= RTT * 2), "{gaps:?}");
    }
}

#[test]
fn behind_a_nat_that_forgot_no_end_needs_to_know() {
    for (node, to) in [(A, elsewhere(1)), (B, elsewhere(1)), (A, other_port(A)), (B, other_port(B))] {
        let mut gaps = Vec::new();
        for seed in SEEDS {
            let s = story(seed, node, to, false, |_| ());
            assert!(s.is_done, "node {node} to {to}, seed {seed}");
            gaps.push(s.gap);
        }
        println!("node {node} is moved to {to}: pauses {gaps:?}");
        assert!(gaps.iter().all(|g| *g <= RTT * 2), "{gaps:?}");
    }
}

#[test]
fn a_receiver_that_does_not_show_itself_in_the_gap_is_believed_later() {
    for to in [elsewhere(1), other_port(B)] {
        let pauses = || SEEDS.map(|seed| story(seed, B, to, false, |_| ()).gap).collect::<Vec<_>>();
        let (with, without) = (pauses(), without(Mechanism::GapProbes, pauses));
        println!("a receiver at {to}: pauses {with:?}, {without:?} without showing itself");
        assert!(without.iter().all(|g| *g > RTT * 2), "{without:?}");
    }
}

#[test]
fn without_migration_the_transfer_ends_there() {
    for node in [A, B] {
        for is_known in [true, false] {
            assert!(!without(Mechanism::Migration, || story(1, node, elsewhere(1), is_known, |_| ())).is_done);
        }
    }
}

#[test]
fn a_router_that_starts_again_and_forgets_costs_a_probe() {
    // Nothing passes for two seconds, and then the receiver has another address and does not know it: its own probes show it.
    let s = story(1, B, elsewhere(1), false, |p| p.conditions.iter_mut().for_each(|c| c.outages.push((at(500), at(2500)))));
    println!("the router was away for 2 s, data for {:?}", s.gap);
    assert!(s.is_done && s.gap < MS(2000 + 1300), "{:?}", s.gap);
}

/// From 100 Mbit/s to a tenth, as soon as the sender has heard of the move: what overflows the bottleneck.
fn to_a_slower_network() -> u64 {
    let overflowed = |seed| {
        let s = story(seed, B, elsewhere(1), true, |p| {
            p.changes.push_back((at(530), Box::new(|c| c[A].rate = Some(1.25e6))));
        });
        assert!(s.is_done);
        s.p.overflowed[A]
    };
    SEEDS.map(overflowed).sum()
}

#[test]
fn another_address_is_another_path_and_its_rate_is_found_anew() {
    let afresh = to_a_slower_network();
    let kept = without(Mechanism::FreshPathState, to_a_slower_network);
    assert!(afresh * 3 < kept * 2, "{afresh} datagrams overflowed, {kept} with the old path's rate");
}

#[test]
fn another_port_is_the_same_path_and_what_is_known_of_it_stays() {
    // Datagrams of 1200 bytes: the path MTU is not known.
    let small = |to| {
        let of = |seed| {
            let s = story(seed, B, to, false, |_| ());
            assert!(s.is_done);
            let [_, soon] = s.p.arrivals.unwrap();
            soon.iter().filter(|(t, size)| (at(500)..at(600)).contains(t) && (1100..=1200).contains(size)).count()
        };
        (1..9).map(of).sum::<usize>()
    };
    let (port, host) = (small(other_port(B)), small(elsewhere(1)));
    assert!(port == 0 && host > 2, "{port} with another port, {host} at another address");
}

/// An attacker that can copy datagrams of the receiver and is quicker, but is off the path: each tenth arrives from its address first.
fn copied(seed: u64) -> (Story, u64, u64) {
    let mut n = 0u64;
    let copied = std::rc::Rc::new(std::cell::Cell::new(0u64));
    let counter = copied.clone();
    let mut p = Pair::new(Default::default(), lossy(), seed);
    p.arrivals = Some(Default::default());
    p.racer = Some(Box::new(move |from, now, data| {
        n += 1;
        let is_copied = from == B && now > at(300) && n.is_multiple_of(10);
        counter.set(counter.get() + if is_copied { data.len() as u64 } else { 0 });
        is_copied.then_some(elsewhere(66))
    }));
    let (link, session) = p.connect();
    let data = content(BYTES, seed);
    let (got, is_done) = p.attempt(session, &data, MS(15_000), |_| true);
    assert!(!is_done || got == data);
    let sender = p.nodes[A].link_stats(link).map(|mut s| s.paths.remove(0));
    let strays: u64 = p.strays.iter().filter(|s| s.0 == elsewhere(66)).map(|s| s.2 as u64).sum();
    (Story { p, is_done, sender, gap: Duration::ZERO }, copied.get(), strays)
}

#[test]
fn an_attacker_off_the_path_that_copies_packets_takes_nothing_away_and_is_sent_three_times_as_much_at_most() {
    let (s, copied, strays) = copied(4);
    let sender = s.sender.as_ref().unwrap();
    assert!(s.is_done && sender.migrations == 0 && sender.remote == address(B), "{sender:?}");
    assert!(strays > 0 && strays <= 3 * copied, "{strays} bytes sent to where {copied} came from");
    let took = s.p.now;
    let mut alone = Pair::new(Default::default(), lossy(), 4);
    let (_, session) = alone.connect();
    let data = content(BYTES, 4);
    assert!(alone.attempt(session, &data, MS(15_000), |_| true).1);
    let [took, alone] = [took, alone.now].map(|t| t.since(at(0)));
    println!("{took:?} with a copier, {alone:?} without");
    assert!(took < alone * 6 / 5, "{took:?} {alone:?}");
}

#[test]
fn without_validation_the_copier_takes_the_link_away() {
    let (_, copied, strays) = without(Mechanism::AddressValidation, || copied(4));
    assert!(strays > 3 * copied, "{strays} bytes sent to where {copied} came from");
}

/// It also passes on what is sent to it, so that the tested address answers; as far as it is let.
#[test]
fn an_address_that_answers_stays_although_a_copier_answers_too() {
    let mut p = Pair::new(Default::default(), Conditions { rate: Some(12.5e6), ..Conditions::default() }, 4);
    let mut n = 0u64;
    p.racer = Some(Box::new(move |from, now, _| {
        n += 1;
        (from == B && now > at(100) && n.is_multiple_of(3)).then_some(elsewhere(66))
    }));
    p.relayed = Some((elsewhere(66), MS(1)));
    let (link, session) = p.connect();
    let data = content(2_000_000, 1);
    assert!(p.attempt(session, &data, MS(15_000), |_| true).1);
    let sender = p.nodes[A].link_stats(link).unwrap().paths.remove(0);
    assert_eq!((sender.migrations, sender.remote), (0, address(B)));
}

#[test]
fn an_idle_link_is_found_at_its_new_address() {
    let mut p = Pair::new(Default::default(), lossy(), 8);
    let (_, session) = p.connect();
    assert!(p.attempt(session, &content(1000, 1), MS(5000), |_| true).1);
    p.run_until(MS(2000), |_| false);
    p.moves.push_back(Move { at: p.now, node: A, to: elsewhere(1), is_known: true });
    p.run_until(MS(500), |_| false);
    let (_, theirs) = p.nodes[B].sessions().next().unwrap();
    assert_eq!(p.nodes[B].link_stats(theirs).unwrap().paths[0].remote, elsewhere(1));
}

#[test]
fn several_moves_in_one_transfer_use_ids_that_were_never_used_before() {
    let s = story(5, A, elsewhere(1), true, |p| {
        for i in 2..7 {
            p.moves.push_back(Move { at: at(400 + 100 * u64::from(i)), node: usize::from(i % 2 == 0), to: elsewhere(i), is_known: true });
        }
    });
    assert!(s.is_done && s.sender.unwrap().migrations == 6);
}

/// Reason and text with which a link ended.
fn down(p: &mut Pair, node: usize) -> Option<(Code, String)> {
    p.take(node, |e| match e {
        Event::LinkDown { reason, .. } => Some((reason.code, reason.to_string())),
        _ => None,
    })
}

/// The host of `node` is suspended in mid-transfer for so long; whether the transfer is done within `limit`.
fn suspended(node: usize, span: Duration, limit: Duration) -> (Pair, bool) {
    let mut p = Pair::new(Default::default(), lossy(), 3);
    p.suspended[node] = Some((at(500), at(500) + span));
    let (_, session) = p.connect();
    let data = content(BYTES, 3);
    let (got, is_done) = p.attempt(session, &data, limit, |_| true);
    assert!(!is_done || got == data);
    (p, is_done)
}

#[test]
fn a_host_that_was_suspended_for_less_than_the_idle_timeout_goes_on() {
    for node in [A, B] {
        let (p, is_done) = suspended(node, MS(20_000), MS(40_000));
        let late = p.now.since(at(20_500));
        println!("node {node}: done {late:?} after the host came back");
        assert!(is_done && late < MS(5000), "node {node}: {late:?}");
    }
}

#[test]
fn after_hours_of_suspension_both_ends_know_that_the_link_is_over_and_why() {
    for node in [A, B] {
        let (mut p, is_done) = suspended(node, MS(2 * 3600 * 1000), MS(3 * 3600 * 1000));
        assert!(!is_done);
        for end in [A, B] {
            let (code, text) = down(&mut p, end).expect("both are told");
            assert!(matches!(code, Code::IdleTimeout | Code::CircuitBreaker), "{text}");
        }
        assert!(p.nodes.iter().all(|n| n.sessions().next().is_none()), "nothing is left");
    }
}

/// Time from the end of an outage of twenty seconds until the first data comes.
fn after_twenty_seconds(seed: u64) -> Duration {
    let mut p = Pair::new(Default::default(), lossy(), seed);
    p.conditions.iter_mut().for_each(|c| c.outages.push((at(500), at(20_500))));
    p.arrivals = Some(Default::default());
    let (_, session) = p.connect();
    let data = content(BYTES, 3);
    let (got, is_done) = p.attempt(session, &data, MS(40_000), |_| true);
    assert!(is_done && got == data);
    let after = p.arrivals.unwrap()[B].iter().find(|a| a.0 > at(20_500) && a.1 > 600).unwrap().0.since(at(20_500));
    println!("seed {seed}: data {after:?} after the outage, done {:?} after it", p.now.since(at(20_500)));
    after
}

/// P10: a probe each second; one in ten is lost.
#[test]
fn an_outage_of_twenty_seconds_is_over_a_probe_after_its_end() {
    let mut after: Vec<_> = (1..=7).map(after_twenty_seconds).collect();
    after.sort();
    assert!(after[4] < MS(1100) && after[6] < MS(2200), "{after:?}");
}

/// A caller leaves by another port every two seconds while nothing is heard (detours): that ends no silence.
#[test]
fn silence_lasts_until_something_is_heard_however_often_this_end_moves() {
    let mut p = Pair::new(Default::default(), lossy(), 4);
    p.conditions.iter_mut().for_each(|c| c.outages.push((at(500), at(10_500))));
    p.moves.extend((1..5).map(|n| Move { at: at(500 + 2000 * u64::from(n)), node: A, to: elsewhere(n), is_known: true }));
    let (_, session) = p.connect();
    let data = content(BYTES, 4);
    let (got, is_done) = p.attempt(session, &data, MS(40_000), |_| true);
    assert!(is_done && got == data);
    let told: Vec<bool> = std::iter::from_fn(|| {
        p.take(A, |e| match e {
            Event::LinkSilent { is_silent, .. } => Some(*is_silent),
            _ => None,
        })
    })
    .collect();
    assert_eq!(told, [true, false], "one silence, and its end");
}

/// A session without data for two minutes: datagrams that the initiator sent in the second, and whether the link still stands.
fn quiet(keep_alive: Option<Duration>) -> (u64, bool) {
    let config = NodeConfig { keep_alive, ..NodeConfig::default() };
    let mut p = Pair::new([config, NodeConfig::default()], lossy(), 3);
    let (link, session) = p.connect();
    assert!(p.attempt(session, &content(1000, 1), MS(5000), |_| true).1);
    p.run_until(MS(60_000), |_| false);
    let before = p.sent[A];
    p.run_until(MS(60_000), |_| false);
    (p.sent[A] - before, p.nodes[A].link_stats(link).is_some())
}

#[test]
fn a_session_that_says_nothing_is_kept_alive_as_often_as_asked() {
    let (rarely, is_up) = quiet(None);
    assert!(is_up && (3..20).contains(&rarely), "{rarely}");
    let (often, is_up) = quiet(Some(MS(2000)));
    assert!(is_up && (28..90).contains(&often), "{often}");
    assert!(!without(Mechanism::KeepAlive, || quiet(None)).1, "a silent link ends");
}

//! Ends, relays and neighbours that restart (docs/spec/session.md 8.5). Sessions of the earlier process end at once, and no honest node is accused.
//! A relay that falsely says that a session is unknown gains nothing.

use super::MS;
use super::mesh::{Mesh, config, ip};
use super::pair::Conditions;
use crate::error::Code;
use crate::event::Event;
use crate::ids::SessionId;
use crate::node::NodeConfig;
use crate::switch::{Mechanism, without};
use crate::units::{Duration, Time};

/// 20 Mbit/s of IP packets, 5 ms one way.
fn link(loss: f64) -> Conditions {
    Conditions { loss, delay: MS(5), rate: Some(2.5e6), ..Conditions::default() }
}

fn one_process() -> NodeConfig {
    NodeConfig { one_process_per_key: true, ..config() }
}

/// A chain of nodes, each with a key that no other process has.
fn chain(hops: usize, seed: u64) -> Mesh {
    let edges: Vec<_> = (0..hops).map(|i| (i, i + 1, link(0.02))).collect();
    let mut m = Mesh::new(hops + 1, &edges, seed);
    (0..=hops).for_each(|node| m.configure(node, one_process()));
    m.connect_all();
    (0..=hops).for_each(|node| m.route_by_chain(node));
    m
}

/// Replaces the node by a new process without any CLOSE; its neighbours' links come up again.
fn kill(m: &mut Mesh, node: usize) {
    m.forget(node);
    m.configure(node, one_process());
    m.route_by_chain(node);
    for edge in 0..m.edges.len() {
        if m.edges[edge].ends.contains(&node) {
            m.connect(edge);
        }
    }
}

/// Without this timer an idle mesh would step to its next event, beyond the end of the pause.
fn pause(m: &mut Mesh, time: Duration) {
    let end = m.now + time;
    m.wake_at = Some(end);
    m.run_until(time, |m| m.now >= end);
}

fn ending(m: &mut Mesh, node: usize, session: SessionId) -> Option<Code> {
    m.take(node, |e| match e {
        Event::SessionClosed { session: s, outcome, .. } if *s == session => Some(outcome.reason.code),
        _ => None,
    })
}

fn is_open(m: &mut Mesh, node: usize, session: SessionId) -> bool {
    m.take(node, |e| matches!(e, Event::SessionOpened { session: s } if *s == session).then_some(())).is_some()
}

/// Packets counted as altered, and flows refused as stale, over all nodes and links.
fn altered_and_stale(m: &Mesh) -> (u64, u64) {
    m.nodes.iter().fold((0, 0), |(altered, stale), node| {
        let links: u64 = node.links.values().map(|l| l.stats(&node.shared.flows).polluted).sum();
        (altered + links + node.counters().polluted, stale + node.counters().stale_flows)
    })
}

/// A stream goes from node 0 to the last one, which is killed in mid-transfer. Returns how long node 0 takes to know that the session is over, and until
/// a second session carries data.
fn end_killed(hops: usize, seed: u64) -> (Mesh, Option<Duration>) {
    let mut m = chain(hops, seed);
    let session = m.open(0, hops);
    let mut s = m.stream(0, session);
    let at = m.now + MS(500);
    m.run_until(MS(1000), |m| {
        s.write(m, 60_000_000);
        s.read(m, hops);
        m.now >= at
    });
    assert!(s.got > 100_000, "in mid-transfer: {}", s.got);
    kill(&mut m, hops);
    let began = m.now;
    let mut over = None;
    m.run_until(MS(5000), |m| {
        s.write(m, 60_000_000);
        over = over.or_else(|| ending(m, 0, session));
        over.is_some()
    });
    let after = over.map(|_| m.now.since(began));
    (m, after)
}

#[test]
fn an_end_that_restarts_is_found_out_at_once_and_no_relay_is_accused() {
    for hops in [2, 3] {
        for seed in 0..4 {
            let (mut m, after) = end_killed(hops, seed);
            let after = after.expect("the session ends");
            assert!(after < MS(1000), "{hops} hops, seed {seed}: {after:?}");
            let again = m.open(0, hops);
            assert!(m.stream(0, again).transfer(&mut m, hops, 300_000, MS(2_000)), "the new session carries");
            let (altered, stale) = altered_and_stale(&m);
            assert_eq!(altered, 0, "nothing was altered");
            assert!(stale > 0);
        }
    }
}

#[test]
fn without_restart_epochs_the_end_is_found_out_late_or_a_relay_accused() {
    let found = |seed| {
        let (mut m, after) = end_killed(2, seed);
        pause(&mut m, MS(2000));
        after.is_some_and(|t| t < MS(1000)) && altered_and_stale(&m).0 == 0
    };
    assert!(!without(Mechanism::RestartEpochs, || (0..4).all(found)));
}

/// After its restart the far end opens a session. That ends the session of its earlier process, although nothing is sent in it.
#[test]
fn an_idle_session_ends_when_the_far_end_shows_that_it_is_another_process() {
    let story = || {
        let mut m = chain(2, 5);
        let session = m.open(0, 2);
        assert!(m.stream(0, session).transfer(&mut m, 2, 100_000, MS(2_000)));
        pause(&mut m, MS(500));
        // The relay keeps its link: only the end is a new process, and what the relay says about the old flows is lost.
        kill(&mut m, 2);
        pause(&mut m, MS(100));
        let from_it = m.open(2, 0);
        m.run_until(MS(1000), |m| is_open(m, 2, from_it));
        pause(&mut m, MS(200));
        ending(&mut m, 0, session)
    };
    assert!(matches!(story(), Some(Code::Gone | Code::UnknownSession)));
}

#[test]
fn a_caller_that_is_killed_and_calls_again_ends_its_old_link() {
    let story = || {
        let mut m = Mesh::new(2, &[(0, 1, link(0.02))], 3);
        (0..2).for_each(|node| m.configure(node, one_process()));
        m.connect_all();
        m.forget(0);
        m.configure(0, one_process());
        m.connect(0);
        pause(&mut m, MS(500));
        m.nodes[1].links.values().filter(|l| l.is_up()).count()
    };
    assert_eq!(story(), 1);
    assert_eq!(without(Mechanism::RestartEpochs, story), 2);
}

#[test]
fn a_second_link_of_the_same_process_leaves_the_first_alone_and_so_do_processes_that_share_a_key() {
    let mut m = Mesh::new(2, &[(0, 1, link(0.0))], 3);
    (0..2).for_each(|node| m.configure(node, one_process()));
    m.connect_all();
    m.connect(0);
    pause(&mut m, MS(500));
    assert_eq!(m.nodes[1].links.values().filter(|l| l.is_up()).count(), 2, "the same process");
    let mut m = Mesh::new(2, &[(0, 1, link(0.0))], 3);
    m.connect_all();
    m.forget(0);
    m.connect(0);
    pause(&mut m, MS(500));
    assert_eq!(m.nodes[1].links.values().filter(|l| l.is_up()).count(), 2, "two programs of one user");
}

#[test]
fn any_end_or_relay_restarts_again_and_again_and_data_flow_after_each() {
    let mut m = chain(3, 11);
    for round in 0..12u64 {
        let node = [3, 1, 0, 2][round as usize % 4];
        pause(&mut m, MS(37 * (round % 5)));
        kill(&mut m, node);
        let began = m.now;
        pause(&mut m, MS(300));
        assert!((1..3).all(|n| m.nodes[n].links.values().filter(|l| l.is_up()).count() == 2), "round {round}: links are up again");
        let session = m.open(0, 3);
        assert!(m.stream(0, session).transfer(&mut m, 3, 50_000, MS(2_000)), "round {round}, node {node}: {:?}", m.now.since(began));
    }
    assert_eq!(altered_and_stale(&m).0, 0);
}

/// Two routes lead from 0 to 3, by 1 and by 2. The one by 1 is preferred. In mid-transfer 1 says that the far end does not know the session.
#[test]
fn a_relay_that_says_that_a_session_is_unknown_loses_it_to_another_route_and_ends_nothing() {
    let edges = [(0, 1), (1, 3), (0, 2), (2, 3)].map(|(a, b)| (a, b, link(0.0)));
    let mut m = Mesh::new(4, &edges, 4);
    m.connect_all();
    for (node, far) in [(0, 3), (3, 0)] {
        let routes = vec![m.route(far, 1, 1), m.route(far, 2, 2)];
        let now = m.now;
        m.nodes[node].set_routes(now, routes);
    }
    for relay in [1, 2] {
        let routes = vec![m.route(0, 0, 0), m.route(3, 3, 0)];
        let now = m.now;
        m.nodes[relay].set_routes(now, routes);
    }
    let session = m.open(0, 3);
    let mut s = m.stream(0, session);
    let at = m.now + MS(500);
    m.run_until(MS(1000), |m| {
        s.write(m, 3_000_000);
        s.read(m, 3);
        m.now >= at
    });
    assert!(s.got > 50_000 && s.got < 3_000_000);
    let entry = m.nodes[0].sessions.entry(session).unwrap();
    let (control, by) = (entry.control().unwrap(), entry.link);
    let label = m.nodes[0].shared.flows.out(control).unwrap().open.label;
    let now = m.now;
    let to_0 = m.nodes[1].next_hop(ip(0), &[]).unwrap();
    let mut frames = Vec::new();
    crate::wire::frame::Frame::FlowRefused { flow: label, base: crate::ids::Seq(0), reason: Code::UnknownSession as u64 }.emit(&mut frames);
    m.nodes[1].inject(now, to_0, frames);
    assert!(s.transfer(&mut m, 3, 3_000_000, MS(4_000)), "the session goes on");
    assert_ne!(m.nodes[0].sessions.entry(session).map(|e| e.link), Some(by), "by the other route");
}

/// A relay that alters everything from node 2 to node 0 once the session is open: node 0 hears nothing that is valid.
fn silent(idle: Duration) -> Option<(Code, Duration)> {
    let mut m = chain(2, 9);
    m.configure(0, NodeConfig { idle_timeout: idle, ..one_process() });
    m.connect(0);
    m.route_by_chain(0);
    pause(&mut m, MS(200));
    let session = m.open(0, 2);
    assert!(m.stream(0, session).transfer(&mut m, 2, 100_000, MS(2_000)));
    let began: Time = m.now;
    // Symbols of coded packets are long; acknowledgements and reports stay as they are, and so does the link.
    m.nodes[1].shared.lies.set(|frames| {
        if frames.len() > 40 {
            let last = frames.len() - 1;
            frames[last] ^= 1;
        }
    });
    let mut s = m.stream(0, session);
    let mut over = None;
    m.run_until(idle * 3, |m| {
        s.write(m, 60_000_000);
        over = over.or_else(|| ending(m, 0, session));
        over.is_some()
    });
    over.map(|code| (code, m.now.since(began)))
}

#[test]
fn a_session_that_hears_nothing_valid_ends_after_the_idle_timeout_whatever_a_relay_repeats() {
    let idle = Duration::from_secs(10);
    let (code, after) = silent(idle).expect("it ends");
    assert_eq!(code, Code::IdleTimeout);
    assert!(after >= idle && after < idle * 2, "{after:?}");
    assert_eq!(without(Mechanism::SilentSessions, || silent(idle)), None);
}

/// The only relay falsely says that the far end does not know the session, so often and so long apart. Returns whether 2 MB arrive all the same, and how
/// many questions the far end got.
fn lone_words(times: u32, apart: Duration) -> (bool, usize) {
    let mut m = chain(2, 6);
    let session = m.open(0, 2);
    let mut s = m.stream(0, session);
    assert!(!s.transfer(&mut m, 2, 2_000_000, MS(300)), "in mid-transfer");
    let to_0 = m.nodes[1].next_hop(ip(0), &[]).unwrap();
    let mut asked = std::collections::BTreeSet::new();
    for _ in 0..times {
        if let Some(control) = m.nodes[0].sessions.entry(session).filter(|e| e.link.is_some()).and_then(|e| e.control()) {
            let label = m.nodes[0].shared.flows.out(control).unwrap().open.label;
            let (now, mut frames) = (m.now, Vec::new());
            let reason = Code::UnknownSession as u64;
            crate::wire::frame::Frame::FlowRefused { flow: label, base: crate::ids::Seq(0), reason }.emit(&mut frames);
            m.nodes[1].inject(now, to_0, frames);
        }
        let end = m.now + apart;
        m.wake_at = Some(end);
        m.run_until(apart, |m| {
            asked.extend(m.nodes[2].sessions.entries().map(|e| e.session.key()));
            m.now >= end
        });
    }
    let is_complete = s.transfer(&mut m, 2, 2_000_000, MS(8_000));
    (is_complete && !m.events.iter().flatten().any(|e| matches!(e, Event::SessionClosed { .. })), asked.len() - 1)
}

#[test]
fn a_word_that_a_session_is_unknown_ends_nothing_and_is_a_reason_to_ask_once_a_second() {
    let (is_complete, asked) = lone_words(1, MS(20));
    assert!(is_complete && asked <= 1, "{asked}");
    let (is_complete, asked) = lone_words(100, MS(20));
    assert!(is_complete && (1..=3).contains(&asked), "{asked} questions in two seconds");
    assert!(!without(Mechanism::QuestionsToEnds, || lone_words(1, MS(20))).0);
}

/// A relay holds back the last message of a handshake until its opener has restarted and opened another session.
#[test]
fn a_handshake_that_was_held_back_does_not_end_what_is_newer() {
    let mut m = chain(2, 8);
    m.nodes[1].shared.lies.set(|frames| {
        // What comes after the handshake is longer than a report, and has no FLOW_OPEN.
        if frames.len() > 60 && !crate::wire::Frames::new(frames).flatten().any(|f| matches!(f, crate::wire::frame::Frame::FlowOpen(_))) {
            super::hostile::swallow(frames);
        }
    });
    let (now, peer) = (m.now, m.nodes[2].public_key());
    m.nodes[0].open_session_to(now, ip(2), Some(peer)).unwrap();
    pause(&mut m, MS(60));
    let held = m.nodes[2].sessions().next().expect("it is answered").0;
    m.nodes[1].shared.lies.set(|_| {});
    kill(&mut m, 0);
    pause(&mut m, MS(300));
    let session = m.open(0, 2);
    let mut s = m.stream(0, session);
    assert!(!s.transfer(&mut m, 2, 2_000_000, MS(300)), "in mid-transfer");
    let now = m.now;
    m.nodes[2].confirm(now, held);
    assert!(s.transfer(&mut m, 2, 2_000_000, MS(5_000)), "{:?}", m.events[2]);
}

/// Between neighbours: the far end closes the session while no packet passes, and has forgotten it when packets pass again. Returns how long the near end
/// then takes to know.
fn forgotten_in_an_outage(hops: usize, is_sending: bool, seed: u64) -> Option<Duration> {
    let mut m = chain(hops, seed);
    let (now, link) = (m.now, m.nodes[0].next_hop(ip(hops), &[]).unwrap());
    let session = match hops {
        1 => m.nodes[0].open_session(now, link).unwrap(),
        _ => m.open(0, hops),
    };
    let mut s = m.stream(0, session);
    assert!(!s.transfer(&mut m, hops, 60_000_000, MS(500)), "in mid-transfer");
    let (theirs, _) = m.nodes[hops].sessions().next().expect("it is open");
    m.dead[hops] = true;
    let now = m.now;
    m.nodes[hops].close_session(now, theirs, 7, "over", MS(500)).unwrap();
    pause(&mut m, MS(5000));
    assert!(m.nodes[hops].sessions().all(|(id, _)| id != theirs), "it is forgotten");
    m.dead[hops] = false;
    let (began, mut over) = (m.now, None);
    m.run_until(MS(20_000), |m| {
        if is_sending {
            s.write(m, 60_000_000);
        }
        over = over.or_else(|| ending(m, 0, session));
        over.is_some()
    });
    println!("{hops} hops, sending: {is_sending}, seed {seed}: {over:?} after {:?}", m.now.since(began));
    over.map(|_| m.now.since(began))
}

#[test]
fn a_neighbour_that_forgot_a_session_while_nothing_passed_says_so_when_something_does() {
    for (is_sending, seed) in [(true, 1), (true, 2), (false, 3)] {
        let after = forgotten_in_an_outage(1, is_sending, seed);
        assert!(after.is_some_and(|t| t < MS(5000)), "{after:?}");
    }
}

#[test]
fn a_far_end_that_forgot_a_session_while_nothing_passed_says_so_over_relays_too() {
    for (is_sending, seed) in [(true, 1), (true, 2), (false, 3)] {
        let after = forgotten_in_an_outage(2, is_sending, seed);
        assert!(after.is_some_and(|t| t < MS(15_000)), "{after:?}");
    }
}

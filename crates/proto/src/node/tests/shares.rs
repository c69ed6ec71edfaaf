//! What one neighbour does costs the others nothing: places for sessions whose opener has proven nothing are shared by links (P19), and what a flow costs to open
//! and to end does not depend on how many others there are.

use super::MS;
use super::hostile::{LIAR, diamond, flip, lie};
use super::mesh::{Mesh, ip};
use super::pair::Conditions;
use crate::NodeConfig;
use crate::error::Code;
use crate::event::Event;
use crate::ids::{FlowLabel, LinkId, Seq, SessionKey};
use crate::node::sessions::MOST_FORGERIES;
use crate::options::{Class, FlowKind, Mode};
use crate::switch::{Mechanism, without};
use crate::units::{Duration, Probability};
use crate::wire::frame::{Coded, Coefficients, FlowOpen, Frame, Relayed};
use crate::wire::packet::{Pattern, VERSION};
use crate::work::Work;

/// FLOW_OPEN of a flow between these nodes, or between neighbours.
pub(super) fn open(session: u64, index: u64, label: u64, ends: Option<(usize, usize)>) -> FlowOpen {
    FlowOpen {
        session: SessionKey(session),
        index,
        label: FlowLabel(label),
        symbol: 1200,
        mode: Mode::Brtp,
        kind: FlowKind::OrderedMessages,
        class: Class::Bulk,
        lifetime: None,
        batch_size: 8,
        hop_limit: 16,
        no_retransmit: Probability::new(0.99),
        answers: None,
        bidirectional: false,
        tag: 0,
        relayed: ends.map(|(source, destination)| Relayed {
            destination: ip(destination),
            source: ip(source),
            incarnation: 0,
            first: Seq(0),
            fits: 1200,
            part: 0,
            proof: None,
        }),
    }
}

pub(super) fn wait(m: &mut Mesh, time: Duration) {
    let until = m.now + time;
    m.wake_at = Some(until);
    m.run_until(time, |m| m.now >= until);
}

fn inject(m: &mut Mesh, node: usize, link: LinkId, frames: &[Frame<'_>]) {
    for frames in frames.chunks(12) {
        let mut bytes = Vec::new();
        frames.iter().for_each(|frame| frame.emit(&mut bytes));
        let now = m.now;
        m.nodes[node].inject(now, link, bytes);
        wait(m, MS(3));
    }
}

/// Node 0 and its neighbours 1, which is hostile, and 2, which is not.
pub(super) fn star() -> Mesh {
    let c = Conditions { delay: MS(5), rate: Some(12.5e6), ..Conditions::default() };
    let mut m = Mesh::new(3, &[(1, 0, c.clone()), (2, 0, c)], 9);
    m.connect_all();
    let now = m.now;
    let routes = vec![m.route(1, 1, 0), m.route(2, 2, 0)];
    m.nodes[0].set_routes(now, routes);
    for n in [1, 2] {
        let routes = vec![m.route(0, 0, 0)];
        m.nodes[n].set_routes(now, routes);
    }
    m
}

/// The honest neighbour opens and closes relayed sessions beside one that opens without handshakes: how many of 20 open.
fn honest_attempts(m: &mut Mesh, is_attacked: bool) -> usize {
    let link = m.nodes[1].next_hop(ip(0), &[]).unwrap();
    let (mut opened, mut name) = (0, 5000);
    for round in 0..22 {
        if is_attacked {
            let frames: Vec<Frame<'_>> = (0..if round == 0 { 130 } else { 26 })
                .map(|_| {
                    name += 1;
                    Frame::FlowOpen(open(name, 0, name, Some((1, 0))))
                })
                .collect();
            inject(m, 1, link, &frames);
        }
        wait(m, MS(50));
        if round < 2 {
            continue;
        }
        let now = m.now;
        let session = m.nodes[2].open_session_to(now, ip(0), None).unwrap();
        wait(m, MS(50));
        opened += usize::from(m.events[2].contains(&Event::SessionOpened { session }));
        let now = m.now;
        let _ = m.nodes[2].close_session(now, session, 0, "", MS(10));
    }
    opened
}

#[test]
fn one_neighbour_does_not_shut_others_out_of_relayed_sessions() {
    let mut m = star();
    assert_eq!(honest_attempts(&mut m, true), 20);
    let hostile = m.nodes[0].next_hop(ip(1), &[]).unwrap();
    let held = m.nodes[0].sessions().filter(|(_, link)| *link == hostile).count();
    assert!(held <= 96, "{held} places");
    let answers = m.nodes[0].link_flows(hostile);
    assert_eq!(answers.0, 0, "nothing is answered, and no memory spent on answers, before the first packet of a handshake is here");
}

/// A neighbour opens sessions with first messages that nobody can read, or that are answered, 2000 a second: how many of ten sessions of another open in the meantime,
/// and how many scalar multiplications all nodes made.
fn beside_leads(pattern: Pattern) -> (usize, u64) {
    let mut m = star();
    let link = m.nodes[1].next_hop(ip(0), &[]).unwrap();
    let mut packet = VERSION.to_be_bytes().to_vec();
    packet.push(pattern as u8);
    packet.extend_from_slice(&[9; 140]);
    let mut symbol = u16::to_be_bytes(packet.len() as u16).to_vec();
    symbol.extend_from_slice(&packet);
    let (mut opened, mut name) = (0, 5000);
    let before = Work::done().dh;
    for _ in 0..10 {
        let now = m.now;
        let session = m.nodes[2].open_session_to(now, ip(0), None).unwrap();
        for _ in 0..50 {
            let mut bytes = Vec::new();
            for _ in 0..4 {
                name += 1;
                let open = open(name, 0, name, Some((1, 0)));
                let coded = Coded { flow: open.label, base: Seq(0), n: 1, coefficients: Coefficients::Index(0), symbol: &symbol };
                Frame::FlowOpen(open).emit(&mut bytes);
                Frame::Coded(coded).emit(&mut bytes);
            }
            let now = m.now;
            m.nodes[1].inject(now, link, bytes);
            wait(&mut m, MS(2));
        }
        opened += usize::from(m.events[2].contains(&Event::SessionOpened { session }));
        let now = m.now;
        let _ = m.nodes[2].close_session(now, session, 0, "", MS(10));
    }
    (opened, Work::done().dh - before)
}

#[test]
fn handshakes_of_one_neighbour_cost_what_its_link_may_spend_and_others_open_beside_them() {
    for pattern in [Pattern::Ik, Pattern::Xx] {
        let (opened, dh) = beside_leads(pattern);
        assert_eq!(opened, 10, "{pattern:?}");
        // 64 at once and 10 a second for the one end that is claimed; ten honest ones make some 17 each.
        assert!(dh < 6 * 75 + 10 * 20, "{pattern:?}: {dh}");
        let (_, dh) = without(Mechanism::OpenerTokens, || beside_leads(pattern));
        assert!(dh > 2000, "{pattern:?}: {dh}");
    }
}

#[test]
fn sessions_that_others_open_take_no_place_of_the_nodes_own() {
    let c = Conditions { delay: MS(1), ..Conditions::default() };
    let mut m = Mesh::new(2, &[(1, 0, c)], 9);
    m.configure(0, NodeConfig { max_sessions: 16, ..NodeConfig::default() });
    m.connect_all();
    let (now, link) = (m.now, m.nodes[1].next_hop_link());
    let mut bytes = Vec::new();
    (0..20).for_each(|n| Frame::FlowOpen(open(1000 + n, 0, 100 + n, None)).emit(&mut bytes));
    m.nodes[1].inject(now, link, bytes);
    m.run_until(MS(100), |m| m.nodes[0].sessions().count() > 0);
    assert_eq!(m.nodes[0].sessions().count(), 12, "three quarters");
    let (now, back) = (m.now, m.nodes[0].next_hop_link());
    for _ in 0..16 {
        m.nodes[0].open_session(now, back).unwrap();
    }
    assert!(m.nodes[0].open_session(now, back).is_err());
}

/// Entries of tables and loops that are looked at while 24 flows are opened and ended, with so many others on the link and in the session.
fn work_beside(others: u64) -> u64 {
    let c = Conditions { delay: MS(1), ..Conditions::default() };
    let mut m = Mesh::new(2, &[(1, 0, c)], 9);
    m.configure(0, NodeConfig { max_flows: 100_000, max_link_flows: 100_000, ..NodeConfig::default() });
    m.connect_all();
    let (now, link) = (m.now, m.nodes[1].next_hop_link());
    let session = m.nodes[1].open_session(now, link).unwrap();
    let name = m.nodes[1].session_key(session).unwrap();
    wait(&mut m, MS(100));
    let flow = |n| FlowOpen { symbol: 64, kind: FlowKind::UnorderedMessages, ..open(name.0, n, 1000 + n, None) };
    let mut next = 1;
    while next <= others {
        let frames: Vec<Frame<'_>> = (next..next + 12).map(|n| Frame::FlowOpen(flow(n))).collect();
        inject(&mut m, 1, link, &frames);
        next += 12;
    }
    let back = m.nodes[0].next_hop_link();
    assert!(m.nodes[0].link_flows(back).1 as u64 > others, "all are here");
    let before = Work::done();
    let frames: Vec<Frame<'_>> = (next..next + 24).map(|n| Frame::FlowOpen(flow(n))).collect();
    inject(&mut m, 1, link, &frames);
    let ends: Vec<Frame<'_>> =
        (next..next + 24).map(|n| Frame::FlowReset { flow: FlowLabel(1000 + n), reason: Code::Reset as u64 }).collect();
    inject(&mut m, 1, link, &ends);
    assert!((m.nodes[0].link_flows(back).1 as u64) < others + 13, "they ended");
    (Work::done() - before).steps
}

#[test]
fn what_a_flow_costs_to_open_and_to_end_does_not_depend_on_how_many_there_are() {
    assert_eq!(work_beside(20_000), work_beside(100));
}

#[test]
fn a_link_brings_so_many_flows_and_no_more() {
    let c = Conditions { delay: MS(1), ..Conditions::default() };
    let mut m = Mesh::new(2, &[(1, 0, c)], 9);
    m.configure(0, NodeConfig { max_link_flows: 30, ..NodeConfig::default() });
    m.connect_all();
    let (now, link) = (m.now, m.nodes[1].next_hop_link());
    let session = m.nodes[1].open_session(now, link).unwrap();
    let name = m.nodes[1].session_key(session).unwrap();
    wait(&mut m, MS(100));
    let frames: Vec<Frame<'_>> = (1..60).map(|n| Frame::FlowOpen(FlowOpen { symbol: 64, ..open(name.0, n, 1000 + n, None) })).collect();
    inject(&mut m, 1, link, &frames);
    let back = m.nodes[0].next_hop_link();
    assert_eq!(m.nodes[0].link_flows(back).1, 30);
    assert_eq!(m.nodes[0].counters().refused_flows, 30);
}

#[test]
fn so_many_altered_packets_that_a_tag_might_be_guessed_end_the_session() {
    let mut m = diamond(0.0);
    let session = m.open(0, 3);
    let mut s = m.stream(0, session);
    let at = m.now + MS(300);
    m.run_until(MS(300), |m| {
        s.write(m, 3_000_000);
        s.read(m, 3);
        m.now >= at
    });
    let (theirs, _) = m.nodes[3].sessions().next().unwrap();
    m.nodes[3].sessions.entry_mut(theirs).unwrap().polluted = MOST_FORGERIES - 2;
    lie(&mut m, flip(|symbol| symbol.end - 1, 1));
    let _ = s.transfer(&mut m, 3, 3_000_000, MS(5000));
    let reason = m.events[3].iter().find_map(|e| match e {
        Event::SessionClosed { session, outcome, .. } if *session == theirs => Some(outcome.reason.code),
        _ => None,
    });
    assert_eq!(reason, Some(Code::Polluted), "by node {LIAR}");
}

#[test]
fn a_far_end_that_has_ever_more_said_to_it_and_takes_nothing_ends_its_session() {
    for (parts, is_over) in [(16 * 256, false), (16 * 256 + 1, true)] {
        let mut m = diamond(0.0);
        let session = m.open(0, 3);
        let mut s = m.stream(0, session);
        assert!(!s.transfer(&mut m, 3, 3_000_000, MS(300)));
        let (theirs, _) = m.nodes[3].sessions().next().unwrap();
        let entry = m.nodes[3].sessions.entry_mut(theirs).unwrap();
        (0..parts).for_each(|part| entry.session.tell_part(1, part, 1));
        let _ = s.transfer(&mut m, 3, 3_000_000, MS(300));
        let reason = m.events[3].iter().find_map(|e| match e {
            Event::SessionClosed { outcome, .. } if outcome.reason.code == Code::TooMany => Some(outcome.reason.reason.clone()),
            _ => None,
        });
        assert_eq!(reason.is_some(), is_over, "{parts}: {reason:?}");
    }
}

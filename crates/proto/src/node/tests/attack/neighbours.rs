//! A node between an honest neighbour and a hostile one with as many flows and links as it likes: each has half of the link out (P17), and places are shared by keys and
//! not by links (P19).

use super::{HONEST, HOSTILE, VICTIM};
use crate::event::Event;
use crate::ids::{FlowId, LinkId, SessionId};
use crate::node::RelayLimits;
use crate::node::routing::{Route, Via};
use crate::node::tests::MS;
use crate::node::tests::mesh::{Mesh, ip};
use crate::node::tests::pair::Conditions;
use crate::node::tests::shares::open;
use crate::options::{Class, FlowKind, FlowOptions};
use crate::switch::{Mechanism, without};
use crate::wire::frame::Frame;
use crate::{Node, NodeConfig};
use std::collections::BTreeMap;

/// Where both send to, by the victim.
const FAR: usize = 3;
/// Bytes per second of the link out.
const RATE: f64 = 2.5e6;

/// Two neighbours of a relay; the hostile one has so many links.
fn fork(links: usize) -> Mesh {
    fork_with(links, NodeConfig::default())
}

fn fork_with(links: usize, config: NodeConfig) -> Mesh {
    let wide = Conditions { delay: MS(5), rate: Some(12.5e6), ..Conditions::default() };
    let narrow = Conditions { rate: Some(RATE), ..wide.clone() };
    let mut edges = vec![(HONEST, VICTIM, wide.clone()), (VICTIM, FAR, narrow)];
    edges.resize(2 + links, (HOSTILE, VICTIM, wide));
    let mut m = Mesh::new(4, &edges, 5);
    m.configure(VICTIM, config);
    m.connect_all();
    for node in [HOSTILE, HONEST, FAR] {
        let routes = [HOSTILE, HONEST, FAR].into_iter().filter(|to| *to != node).map(|to| m.route(to, VICTIM, 0)).collect();
        let now = m.now;
        m.nodes[node].set_routes(now, routes);
    }
    let routes = [HOSTILE, HONEST, FAR].map(|to| m.route(to, to, 0)).to_vec();
    let now = m.now;
    m.nodes[VICTIM].set_routes(now, routes);
    m
}

struct Sender {
    node: usize,
    flows: Vec<FlowId>,
}

impl Sender {
    /// Opens one session for each link of the node, and the flows in turns over them.
    fn new(m: &mut Mesh, node: usize, classes: &[Class]) -> Self {
        let links: Vec<_> = m.nodes[node].links.iter().filter(|(_, l)| l.is_up()).map(|(id, _)| *id).collect();
        let mut sessions: Vec<SessionId> = Vec::new();
        for link in links {
            let now = m.now;
            m.nodes[node].set_routes(now, vec![Route { to: ip(FAR).into(), via: Via::Link(link), metric: 0 }]);
            sessions.push(m.open(node, FAR));
            m.run(MS(100));
        }
        let now = m.now;
        let open = |(i, class): (usize, &Class)| {
            let options = FlowOptions { kind: FlowKind::Stream, class: *class, ..FlowOptions::default() };
            m.nodes[node].open_flow(now, sessions[i % sessions.len()], options).unwrap()
        };
        Self { node, flows: classes.iter().enumerate().map(open).collect() }
    }

    fn write(&self, m: &mut Mesh) {
        for flow in &self.flows {
            while m.nodes[self.node].write(m.now, *flow, &[7; 16384]).is_ok() {}
        }
    }
}

/// The honest neighbour's part of what arrives, while the hostile one has these flows.
fn part_of_honest(links: usize, classes: &[Class]) -> f64 {
    let mut m = fork(links);
    let honest = Sender::new(&mut m, HONEST, &[Class::Bulk]);
    let hostile = Sender::new(&mut m, HOSTILE, classes);
    let theirs = m.nodes[HONEST].public_key();
    let (mut sessions, mut flows, mut got) = (BTreeMap::new(), BTreeMap::new(), [0usize; 2]);
    let begun = m.now;
    for round in 0u32..700 {
        [&honest, &hostile].into_iter().for_each(|sender| sender.write(&mut m));
        let until = begun + MS(10) * (round + 1);
        m.wake_at = Some(until);
        m.run_until(MS(10), |m| m.now >= until);
        for event in core::mem::take(&mut m.events[FAR]) {
            match event {
                Event::SessionIncoming { session, peer, .. } => drop(sessions.insert(session, usize::from(peer != theirs))),
                Event::FlowIncoming { session, flow, .. } => drop(flows.insert(flow, sessions[&session])),
                _ => {}
            }
        }
        for (flow, whose) in &flows {
            while let Ok(Some(bytes)) = m.nodes[FAR].read(m.now, *flow, 1 << 20)
                && !bytes.is_empty()
            {
                // The first two seconds belong to the start.
                got[*whose] += if round < 200 { 0 } else { bytes.len() };
            }
        }
    }
    let all = (got[0] + got[1]) as f64;
    println!("honest {} hostile {} of {}", got[0], got[1], RATE * 5.0);
    assert!(all > 0.85 * RATE * 5.0, "the link out is used: {got:?}");
    got[0] as f64 / all
}

#[test]
fn a_neighbour_with_one_flow_keeps_its_half_beside_one_with_64() {
    let part = part_of_honest(1, &[Class::Bulk; 64]);
    assert!(part >= 0.45, "{part}");
    let before = without(Mechanism::SharesOfOrigins, || part_of_honest(1, &[Class::Bulk; 64]));
    assert!(before < 0.1, "{before}");
}

#[test]
fn flows_of_both_classes_bring_a_neighbour_no_second_share() {
    let classes: Vec<Class> = [Class::Bulk, Class::Latency].into_iter().cycle().take(32).collect();
    let part = part_of_honest(1, &classes);
    assert!(part >= 0.45, "{part}");
}

#[test]
fn links_of_one_key_bring_no_further_shares() {
    let part = part_of_honest(8, &[Class::Bulk; 64]);
    assert!(part >= 0.45, "{part}");
}

/// The hostile node sends 60 openings by each of its eight links, in turns; the most that `count` says of the victim meanwhile.
fn crowd(m: &mut Mesh, ends: Option<(usize, usize)>, count: impl Fn(&Node) -> usize) -> usize {
    let links: Vec<LinkId> = m.nodes[HOSTILE].links.iter().filter(|(_, l)| l.is_up()).map(|(id, _)| *id).collect();
    assert_eq!(links.len(), 8);
    let (mut name, mut most) = (7000, 0);
    for _ in 0..10 {
        for link in &links {
            let mut bytes = Vec::new();
            for _ in 0..6 {
                name += 1;
                Frame::FlowOpen(open(name, 0, name, ends)).emit(&mut bytes);
            }
            let now = m.now;
            m.nodes[HOSTILE].inject(now, *link, bytes);
        }
        m.run_until(MS(3), |m| {
            most = most.max(count(&m.nodes[VICTIM]));
            false
        });
    }
    most
}

#[test]
fn links_of_one_key_bring_no_further_places_for_flows_that_pass() {
    let mut m = fork(8);
    m.nodes[VICTIM].enable_relaying(Some(RelayLimits { flows: 64 }));
    let most = crowd(&mut m, Some((HOSTILE, FAR)), |victim| victim.relayed_flows().count());
    assert_eq!(most, 48, "three quarters");
    let session = m.open(HONEST, FAR);
    assert!(m.run_until(MS(1000), |m| m.events[HONEST].contains(&Event::SessionOpened { session })));
}

#[test]
fn links_of_one_key_bring_no_further_places_for_sessions() {
    let mut m = fork_with(8, NodeConfig { max_sessions: 64, ..NodeConfig::default() });
    let most = crowd(&mut m, None, |victim| victim.sessions().count());
    assert_eq!(most, 48, "three quarters");
    let link = m.nodes[HONEST].next_hop(ip(VICTIM), &[]).or_else(|| m.nodes[HONEST].next_hop(ip(FAR), &[])).unwrap();
    let now = m.now;
    let session = m.nodes[HONEST].open_session(now, link).unwrap();
    assert!(m.run_until(MS(1000), |m| m.events[HONEST].contains(&Event::SessionOpened { session })));
}

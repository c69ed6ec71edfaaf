//! Keys of relayed sessions are renewed in mid-transfer (P3, P20): nothing stops, nothing is taken for altered, old keys go; and the same without (P26).

use super::MS;
use super::mesh::{Mesh, ip};
use super::routes::{link, route};
use crate::event::Event;
use crate::ids::SessionId;
use crate::node::NodeConfig;
use crate::options::{Class, FlowKind, FlowOptions, MessageOptions, Mode};
use crate::switch::{Mechanism, without};
use crate::units::Duration;

/// Node 0 is linked with 3 by two relays in a row, 20 Mbit/s with 10 % loss on each link; the ends renew keys this often.
fn chain(every: Duration, packets: u64) -> Mesh {
    let c = link(20.0, MS(5), 0.1);
    let mut m = Mesh::new(4, &[(0, 1, c.clone()), (1, 2, c.clone()), (2, 3, c)], 5);
    for node in [0, 3] {
        m.configure(node, NodeConfig { rekey_after: every, rekey_packets: packets, ..NodeConfig::default() });
    }
    m.connect_all();
    (0..4).for_each(|node| m.route_by_chain(node));
    m
}

fn theirs(m: &Mesh) -> SessionId {
    m.nodes[3].sessions().next().unwrap().0
}

/// The acceptor of a session, at the moment in which it has answered the first request for new keys.
fn answered() -> (Mesh, SessionId) {
    let mut m = chain(MS(200), u64::MAX);
    let session = m.open(0, 3);
    let mut s = m.stream(0, session);
    let is_asked = |m: &Mesh| m.nodes[3].sessions().next().is_some_and(|(id, _)| m.nodes[3].session_generation(id) == Some(1));
    assert!(m.run_until(MS(5000), |m| {
        s.write(m, 4_000_000);
        s.read(m, 3);
        is_asked(m)
    }));
    let there = theirs(&m);
    (m, there)
}

#[test]
fn a_list_of_flows_with_new_keys_is_not_cut_into_many() {
    let full: Vec<(u64, u64, u64)> = (0..64).map(|n| (n, 0, 1 << 40)).collect();
    for pieces in [&[][..], &full[..1], &full[..63]] {
        let (mut m, id) = answered();
        let now = m.now;
        m.nodes[3].on_session_keys(now, id, 1, false, pieces);
        assert_eq!(m.nodes[3].sessions().count(), 0, "{} flows", pieces.len());
    }
    // Frames that are full, one after the other, end as well.
    let (mut m, id) = answered();
    let now = m.now;
    let taken = (0..1000).take_while(|_| {
        m.nodes[3].on_session_keys(now, id, 1, false, &full);
        m.nodes[3].sessions().count() == 1
    });
    assert_eq!(taken.count(), 16 * NodeConfig::default().max_flows / 64);
}

fn assert_nothing_was_altered(m: &Mesh) {
    for (node, events) in m.nodes.iter().zip(&m.events) {
        assert_eq!(node.counters().polluted, 0);
        assert!(!events.iter().any(|e| matches!(e, Event::Polluted { .. } | Event::SessionClosed { .. })), "{events:?}");
    }
}

/// Generations of both ends after 4 MB.
fn transfer(every: Duration, packets: u64) -> (u64, u64) {
    let mut m = chain(every, packets);
    let session = m.open(0, 3);
    let mut s = m.stream(0, session);
    assert!(s.transfer(&mut m, 3, 4_000_000, MS(20_000)));
    let there = theirs(&m);
    let generations = (m.nodes[0].session_generation(session).unwrap(), m.nodes[3].session_generation(there).unwrap());
    // What is left to do of the last renewal is done, and the secrets of the generation before are gone.
    let mut has_older = |node: usize, id| {
        let securing = m.nodes[node].sessions.entry_mut(id).and_then(|e| e.securing.as_mut());
        securing.and_then(|s| s.keys()).is_some_and(|keys| keys.receive.has_older())
    };
    let before = has_older(0, session) || has_older(3, there);
    let mut gone = [!before; 2];
    let until = m.now + MS(4000);
    m.run_until(MS(4000), |m| {
        for (at, (node, id)) in [(0, session), (3, there)].into_iter().enumerate() {
            let securing = m.nodes[node].sessions.entry_mut(id).and_then(|e| e.securing.as_mut());
            gone[at] |= securing.and_then(|s| s.keys()).is_some_and(|keys| !keys.receive.has_older());
        }
        gone == [true; 2] || m.now >= until
    });
    assert_eq!(gone, [true; 2], "old secrets are forgotten");
    assert_nothing_was_altered(&m);
    generations
}

#[test]
fn keys_of_a_session_are_renewed_in_mid_transfer_by_time() {
    let (ours, theirs) = transfer(MS(200), u64::MAX);
    assert!(ours >= 3 && theirs >= 3, "{ours}, {theirs}");
    let (ours, theirs) = without(Mechanism::SessionRenewal, || transfer(MS(200), u64::MAX));
    assert_eq!((ours, theirs), (0, 0));
}

#[test]
fn keys_of_a_session_are_renewed_in_mid_transfer_by_packets() {
    let (ours, theirs) = transfer(Duration::from_secs(3600), 500);
    assert!(ours >= 3 && theirs >= 3, "{ours}, {theirs}");
}

#[test]
fn messages_both_ways_with_and_without_lifetimes_pass_many_generations() {
    let mut m = chain(MS(150), u64::MAX);
    let session = m.open(0, 3);
    let now = m.now;
    let options = |mode, lifetime| FlowOptions {
        mode,
        kind: FlowKind::UnorderedMessages,
        class: Class::Latency,
        lifetime,
        one_route: true,
        ..FlowOptions::default()
    };
    let flows = [(Mode::Brtp, None), (Mode::Btp, Some(MS(200)))].map(|(mode, lifetime)| {
        let flow = m.nodes[0].open_flow(now, session, options(mode, lifetime)).unwrap();
        (flow, mode)
    });
    let (mut next, mut sent, mut got) = (now, 0u32, 0u32);
    let mut back = None;
    m.wake_at = Some(next);
    m.run_until(MS(6000), |m| {
        if m.now >= next && m.now < now + MS(4000) {
            next += MS(7);
            m.wake_at = Some(next);
            for (flow, _) in &flows {
                m.nodes[0].send_message(m.now, *flow, vec![7; 300].into(), MessageOptions::default()).unwrap();
                sent += 1;
            }
            if back.is_none() && m.events[3].iter().any(|e| matches!(e, Event::SessionIncoming { .. })) {
                let there = theirs(m);
                back = Some(m.nodes[3].open_flow(m.now, there, options(Mode::Brtp, None)).unwrap());
            }
            if let Some(flow) = back {
                m.nodes[3].send_message(m.now, flow, vec![8; 300].into(), MessageOptions::default()).unwrap();
                sent += 1;
            }
        }
        for node in [0, 3] {
            let incoming: Vec<_> =
                m.events[node].iter().filter_map(|e| if let Event::FlowIncoming { flow, .. } = e { Some(*flow) } else { None }).collect();
            for flow in incoming {
                while let Ok(Some(_)) = m.nodes[node].recv_message(m.now, flow) {
                    got += 1;
                }
            }
        }
        false
    });
    assert!(f64::from(got) > 0.97 * f64::from(sent), "{got} of {sent}");
    assert!(m.nodes[0].session_generation(session).unwrap() >= 5, "{:?}", m.nodes[0].session_generation(session));
    assert_nothing_was_altered(&m);
}

#[test]
fn a_flow_over_several_routes_passes_generations_with_all_its_parts() {
    let (fast, slow) = (link(50.0, MS(10), 0.03), link(30.0, MS(30), 0.03));
    let edges = [(0, 1, fast.clone()), (1, 3, fast), (0, 2, slow.clone()), (2, 3, slow)];
    let mut m = Mesh::new(4, &edges, 7);
    for node in [0, 3] {
        m.configure(node, NodeConfig { rekey_after: MS(300), ..NodeConfig::default() });
    }
    m.connect_all();
    route(&mut m);
    let session = m.open(0, 3);
    let mut s = m.stream(0, session);
    assert!(s.transfer(&mut m, 3, 12_000_000, MS(20_000)));
    assert!(m.nodes[0].session_generation(session).unwrap() >= 3, "{:?}", m.nodes[0].session_generation(session));
    assert_nothing_was_altered(&m);
    assert!(m.nodes[0].session_routes(session).iter().filter(|r| r.1.sent_packets > 500).count() >= 1, "{:?}", ip(3));
}

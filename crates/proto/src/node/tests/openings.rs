//! The flows of a relayed session are opened again by its source, and by no relay that knows their names (P16); and the same stories when nothing is asked (P26).

use super::MS;
use super::hostile::{LIAR, diamond, finish, link_to, swallow};
use super::mesh::{Mesh, ip};
use super::pair::{Conditions, key};
use super::shares::wait;
use crate::error::Code;
use crate::event::Event;
use crate::ids::{FlowLabel, Seq};
use crate::options::Mode;
use crate::switch::{Mechanism, without};
use crate::units::Duration;
use crate::wire::Frames;
use crate::wire::frame::{Coded, Coefficients, FlowOpen, Frame, Relayed};
use std::cell::RefCell;
use std::rc::Rc;

/// Openings of the session's flows towards a node that pass another from now on.
fn watch(m: &mut Mesh, at: usize, to: usize) -> Rc<RefCell<Vec<FlowOpen>>> {
    let seen: Rc<RefCell<Vec<FlowOpen>>> = Rc::default();
    let found = Rc::clone(&seen);
    m.nodes[at].shared.lies.set(move |frames| {
        let opens = Frames::new(frames).flatten().filter_map(|frame| match frame {
            Frame::FlowOpen(open) if open.relayed.is_some_and(|r| r.destination == ip(to)) => Some(open),
            _ => None,
        });
        found.borrow_mut().extend(opens);
    });
    seen
}

/// The same flows once more, as the newest incarnation that there can be.
fn claims(opens: &[FlowOpen], from: u64) -> Vec<u8> {
    let mut bytes = Vec::new();
    for (n, open) in opens.iter().enumerate() {
        let relayed = open.relayed.map(|r| Relayed { incarnation: (1 << 62) - 1, ..r });
        Frame::FlowOpen(FlowOpen { label: FlowLabel(from + n as u64), relayed, ..open.clone() }).emit(&mut bytes);
    }
    bytes
}

/// The liar passes a session on for 300 ms, then opens all its flows at the destination with the largest incarnation and swallows what comes: whether a transfer is
/// completed by the other route.
fn captured() -> bool {
    let mut m = diamond(0.0);
    let session = m.open(0, 3);
    let mut s = m.stream(0, session);
    let seen = watch(&mut m, LIAR, 3);
    let at = m.now + MS(300);
    m.run_until(MS(300), |m| {
        s.write(m, 3_000_000);
        s.read(m, 3);
        m.now >= at
    });
    let opens = seen.borrow().clone();
    assert!(opens.iter().any(|open| open.index > 0), "flows of the session have passed");
    m.nodes[LIAR].shared.lies.set(swallow);
    let (now, link) = (m.now, link_to(&m, LIAR, 3));
    m.nodes[LIAR].inject(now, link, claims(&opens, 1_000_000));
    finish(&mut m, &mut s, 3_000_000)
}

#[test]
fn a_relay_cannot_keep_the_flows_of_a_session_by_a_newer_incarnation() {
    assert!(captured());
}

#[test]
fn a_relay_keeps_them_where_no_end_asks_whose_incarnation_it_is() {
    assert!(!without(Mechanism::OpeningProofs, captured));
}

/// Node 0 sends to 2 by the relay 1, of which 3 is another neighbour.
#[test]
fn what_one_neighbour_of_a_relay_claims_of_anothers_flows_does_not_end_them() {
    let c = Conditions { delay: MS(5), rate: Some(2.5e6), ..Conditions::default() };
    let mut m = Mesh::new(4, &[(0, 1, c.clone()), (1, 2, c.clone()), (3, 1, c)], 5);
    m.connect_all();
    let now = m.now;
    let routes = vec![m.route(0, 0, 0), m.route(2, 2, 0)];
    m.nodes[1].set_routes(now, routes);
    for (node, far) in [(0, 2), (2, 0), (3, 2)] {
        let routes = vec![m.route(far, 1, 0)];
        m.nodes[node].set_routes(now, routes);
    }
    let seen = watch(&mut m, 1, 2);
    let session = m.open(0, 2);
    let mut s = m.stream(0, session);
    assert!(!s.transfer(&mut m, 2, 2_000_000, MS(300)));
    let (opens, link) = (seen.borrow().clone(), link_to(&m, 3, 2));
    assert!(opens.iter().any(|open| open.index > 0));
    for round in 0..10 {
        let now = m.now;
        m.nodes[3].inject(now, link, claims(&opens, 1_000 * (1 + round)));
        assert!(!s.transfer(&mut m, 2, 2_000_000, MS(20)), "in mid-transfer");
    }
    assert!(s.transfer(&mut m, 2, 2_000_000, MS(10_000)));
    assert_eq!(m.nodes[0].sessions.entry(session).unwrap().incarnation, 0, "the route was never lost");
    wait(&mut m, MS(200));
    assert!(m.nodes[1].relayed_flows().count() <= 4, "what the destination refused is gone");
}

/// A node that knows a session's name opens its control flow once more: as a flow that may skip, far ahead; once the keys are there, as what it is, too.
#[test]
fn a_control_flow_that_is_claimed_once_more_far_ahead_costs_nothing_and_stays_where_it_is() {
    for (after, modes) in [(MS(0), &[Mode::Btp][..]), (MS(60), &[Mode::Btp, Mode::Brtp]), (MS(300), &[Mode::Btp, Mode::Brtp])] {
        let mut m = diamond(0.0);
        let seen = watch(&mut m, LIAR, 3);
        let session = m.open(0, 3);
        let mut s = m.stream(0, session);
        let control = loop {
            assert!(!s.transfer(&mut m, 3, 3_000_000, MS(1)));
            if let Some(open) = seen.borrow().iter().find(|open| open.index == 0) {
                break open.clone();
            }
        };
        assert!(!s.transfer(&mut m, 3, 3_000_000, after));
        let mut bytes = Vec::new();
        for (label, mode) in (7_000..).zip(modes) {
            let relayed = control.relayed.map(|r| Relayed { first: Seq(1 << 61), ..r });
            Frame::FlowOpen(FlowOpen { label: FlowLabel(label), mode: *mode, relayed, ..control.clone() }).emit(&mut bytes);
        }
        let (now, link) = (m.now, link_to(&m, LIAR, 3));
        m.nodes[LIAR].inject(now, link, bytes);
        assert!(s.transfer(&mut m, 3, 3_000_000, MS(20_000)), "claimed {after:?} after the opening");
    }
}

#[test]
fn flows_that_a_relay_invents_are_none_of_the_session() {
    let mut m = diamond(0.0);
    let session = m.open(0, 3);
    let mut s = m.stream(0, session);
    let seen = watch(&mut m, LIAR, 3);
    assert!(!s.transfer(&mut m, 3, 1_000_000, MS(200)));
    let open = seen.borrow().iter().find(|open| open.index > 0).cloned().unwrap();
    let invented: Vec<FlowOpen> = (0..12).map(|n| FlowOpen { index: 2 + n, ..open.clone() }).collect();
    let (now, link) = (m.now, link_to(&m, LIAR, 3));
    m.nodes[LIAR].inject(now, link, claims(&invented, 5_000));
    assert!(s.transfer(&mut m, 3, 1_000_000, MS(5000)));
    let flows = m.events[3].iter().filter(|e| matches!(e, Event::FlowIncoming { .. })).count();
    assert_eq!(flows, 0, "the stream has taken its own");
}

/// The preferred relay says that it is the destination: it refuses what is written for the destination's key, and shows its own key when it is asked for one.
fn beside_an_impostor(has_other_route: bool) -> Mesh {
    let mut m = diamond(0.0);
    m.nodes[LIAR].set_addresses(&[ip(LIAR), ip(3)]);
    if !has_other_route {
        let now = m.now;
        let routes = vec![m.route(3, LIAR, 1)];
        m.nodes[0].set_routes(now, routes);
    }
    let now = m.now;
    m.nodes[0].open_session_to(now, ip(3), Some(key(3).public())).unwrap();
    m.run_until(MS(15_000), |m| m.events[0].iter().any(|e| matches!(e, Event::SessionOpened { .. } | Event::SessionClosed { .. })));
    m
}

#[test]
fn a_node_that_shows_another_key_is_not_the_destination_and_another_route_is_taken() {
    let m = beside_an_impostor(true);
    let session = m.events[0].iter().find_map(|e| if let Event::SessionOpened { session } = e { Some(*session) } else { None });
    assert_eq!(session.and_then(|s| m.nodes[0].session_peer(s)), Some(m.nodes[3].public_key()), "{:?}", m.events[0]);
}

#[test]
fn where_no_other_node_answers_the_other_key_is_named_when_the_time_is_over() {
    let mut m = beside_an_impostor(false);
    let reason = m.take(0, |e| if let Event::SessionClosed { outcome, .. } = e { Some(outcome.reason.clone()) } else { None }).unwrap();
    assert_eq!(reason.code, Code::WrongKey);
    assert!(reason.to_string().contains(&m.nodes[LIAR].public_key().to_string()), "{reason}");
}

/// A session is opened through the liar, which lets the opener's first packet and the answer pass, holds back what follows, and opens the control flow at the destination
/// every two milliseconds as its own: when a stream of 300 kB has arrived by the other route.
fn contended(is_pinned: bool) -> Option<Duration> {
    let mut m = diamond(0.0);
    let seen = watch(&mut m, LIAR, 3);
    let began = m.now;
    let peer = is_pinned.then(|| key(3).public());
    let session = m.nodes[0].open_session_to(began, ip(3), peer).unwrap();
    let mut s = m.stream(0, session);
    // Until the answer is in flight.
    while m.nodes[3].sessions.entries().next().and_then(|e| e.control()).is_none() {
        assert!(m.step());
    }
    let open = seen.borrow().iter().find(|open| open.index == 0).cloned().unwrap();
    let link = link_to(&m, LIAR, 3);
    let towards_3 = std::cell::Cell::new(0u64);
    m.nodes[LIAR].shared.lies.set(swallow_towards_destination);
    let mut next = m.now;
    let is_done = m.run_until(MS(9_000), |m| {
        if m.now >= next {
            towards_3.set(towards_3.get() + 1);
            let now = m.now;
            let mut bytes = Vec::new();
            // Once as if its opener had no keys, once as if it had.
            for (label, proof) in [(0, None), (1, Some([7; 16]))] {
                let relayed = open.relayed.map(|r| Relayed { incarnation: (1 << 62) - 1, proof, ..r });
                let label = FlowLabel(1_000_000 + 2 * towards_3.get() + label);
                Frame::FlowOpen(FlowOpen { label, relayed, ..open.clone() }).emit(&mut bytes);
            }
            m.nodes[LIAR].inject(now, link, bytes);
            next = now + MS(2);
        }
        m.wake_at = Some(next);
        s.write(m, 300_000);
        s.read(m, 3);
        s.got == 300_000
    });
    is_done.then(|| m.now.since(began))
}

/// What goes to the destination by the liar's link is long; acknowledgements and answers are not.
fn swallow_towards_destination(frames: &mut [u8]) {
    let goes_there = Frames::new(frames).flatten().any(|frame| match frame {
        Frame::FlowOpen(open) => open.relayed.is_some_and(|r| r.destination == ip(3) && r.incarnation < 1 << 60),
        Frame::Coded(coded) => coded.flow.0 < 1_000_000,
        _ => false,
    });
    if goes_there {
        swallow(frames);
    }
}

#[test]
fn a_control_flow_belongs_to_its_handshake_until_keys_prove_whose_it_is() {
    for is_pinned in [true, false] {
        let took = contended(is_pinned).expect("the session opens by the other route");
        assert!(took < MS(4_000), "{took:?}, pinned {is_pinned}");
        let took = without(Mechanism::HandshakeOwners, || contended(is_pinned));
        assert!(took.is_none_or(|t| t > MS(4_000)), "{took:?}, pinned {is_pinned}");
    }
}

/// An opener that is trusted on first use: while the destination waits for its last message, the liar puts packets behind it that the opener did not make.
#[test]
fn what_a_relay_puts_behind_a_handshake_does_not_end_the_session() {
    let mut m = diamond(0.0);
    let now = m.now;
    let session = m.nodes[0].open_session_to(now, ip(3), None).unwrap();
    let mut s = m.stream(0, session);
    while m.nodes[3].sessions.entries().next().and_then(|e| e.control()).is_none() {
        assert!(m.step());
    }
    let (id, _) = m.nodes[3].sessions().next().unwrap();
    let control = m.nodes[3].sessions.control_in(id).unwrap();
    let label = m.nodes[3].shared.flows.incoming(control).unwrap().open.label;
    let symbol = [&[0, 30][..], &[9; 30]].concat();
    let mut bytes = Vec::new();
    for seq in 2..5 {
        let coded = Coded { flow: label, base: Seq(seq), n: 1, coefficients: Coefficients::Index(0), symbol: &symbol };
        Frame::Coded(coded).emit(&mut bytes);
    }
    let (now, link) = (m.now, link_to(&m, LIAR, 3));
    m.nodes[LIAR].inject(now, link, bytes);
    assert!(s.transfer(&mut m, 3, 300_000, MS(5_000)), "{:?} {:?}", m.events[0], m.events[3]);
    assert!(!m.events.iter().flatten().any(|e| matches!(e, Event::SessionClosed { .. })));
}

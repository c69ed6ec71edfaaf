//! Relayed sessions agree on keys of their own, whichever node is the neighbour (P16, P19, P20).

use super::pair::{A, B, Pair, content};
use super::relayed::{closed, ip, neighbours_by_chance, neighbours_with};
use super::{MS, lossy};
use crate::crypto::{SecretKey, SharedKey};
use crate::error::{Code, Layer};
use crate::event::Event;
use crate::ids::SessionId;
use crate::node::{NodeConfig, SessionAccess};
use crate::options::{FlowKind, FlowOptions, MessageOptions};
use crate::switch::{Mechanism, without};
use bytes::Bytes;

fn stranger() -> crate::crypto::PublicKey {
    SecretKey::from_bytes([99; 32]).public()
}

fn open(p: &mut Pair, peer: Option<crate::crypto::PublicKey>) -> SessionId {
    p.nodes[A].open_session_to(p.now, ip("10.9.0.2"), peer).unwrap()
}

fn outcome(p: &mut Pair, session: SessionId) -> (Code, Layer, String) {
    p.run_until(MS(20_000), |p| p.events[A].iter().any(|e| matches!(e, Event::SessionClosed { .. })));
    let e = p.take(A, |e| match e {
        Event::SessionClosed { session: s, outcome, .. } if *s == session => Some(outcome.reason.clone()),
        _ => None,
    });
    let reason = e.unwrap();
    (reason.code, reason.layer, reason.reason.raw().to_owned())
}

#[test]
fn a_pinned_destination_and_one_trusted_on_first_use_both_prove_their_keys() {
    for pinned in [true, false] {
        for psk in [None, Some([3; 32])] {
            let config = NodeConfig { session_psk: psk.map(SharedKey::from_bytes), ..NodeConfig::default() };
            let (mut p, _) = neighbours_with([config.clone(), config], lossy());
            let theirs = p.nodes[B].public_key();
            let session = open(&mut p, pinned.then_some(theirs));
            assert_eq!(p.nodes[A].session_peer(session), None, "nothing is proven yet");
            let data = content(200_000, 7);
            assert!(p.transfer(session, &data, MS(20_000)) == data);
            assert_eq!(p.nodes[A].session_peer(session), Some(theirs));
            let peer = p.take(B, |e| match e {
                Event::SessionIncoming { peer, session, .. } => Some((*peer, *session)),
                _ => None,
            });
            let (peer, incoming) = peer.unwrap();
            assert_eq!((peer, p.nodes[B].session_peer(incoming)), (p.nodes[A].public_key(), Some(peer)));
            p.nodes[A].close_session(p.now, session, 0, "", MS(3000)).unwrap();
            p.run_until(MS(5000), |p| p.events[B].iter().any(|e| matches!(e, Event::SessionClosed { .. })));
            for node in [A, B] {
                let all = p.take(node, |e| match e {
                    Event::SessionClosed { outcome, .. } => Some(outcome.all_delivered && outcome.all_received),
                    _ => None,
                });
                assert_eq!(all, Some(true), "node {node}");
            }
        }
    }
}

/// The control flow's memory is small: a window repair of its end is refused. Acknowledgements of such repairs come later and would say that the last packet is
/// known, which is lost.
#[test]
fn the_end_is_told_although_a_window_repair_of_it_was_refused() {
    let seeds = [227, 241, 676, 828];
    let told = |seed: &&u64| {
        let (mut p, _) = neighbours_by_chance(Default::default(), lossy(), **seed);
        let session = open(&mut p, None);
        p.attempt(session, &content(200_000, 7), MS(5_000), |_| true).1
    };
    assert_eq!(seeds.iter().filter(told).count(), seeds.len());
    assert_eq!(without(Mechanism::RefusedInference, || seeds.iter().filter(told).count()), 0, "other seeds show it");
}

#[test]
fn data_leave_one_round_trip_after_the_session_was_opened() {
    for pinned in [true, false] {
        let (mut p, _) = neighbours_with(Default::default(), super::pair::Conditions::default());
        let theirs = p.nodes[B].public_key();
        p.run_until(MS(500), |p| p.events[B].iter().any(|e| matches!(e, Event::LinkUp { .. })));
        let (session, opened) = (open(&mut p, pinned.then_some(theirs)), p.now);
        let flow = p.nodes[A].open_flow(p.now, session, FlowOptions::default()).unwrap();
        p.nodes[A].send_message(p.now, flow, Bytes::from_static(b"early"), MessageOptions::default()).unwrap();
        assert!(p.run_until(MS(1000), |p| p.events[B].iter().any(|e| matches!(e, Event::FlowReadable(_)))));
        // 10 ms each way: one round trip for the keys, half of one for the message.
        assert!(p.now.since(opened) <= MS(31), "{:?}, pinned {pinned}", p.now.since(opened));
        let order: Vec<_> = p.events[B].iter().map(core::mem::discriminant).collect();
        let at = |wanted: fn(&Event) -> bool| p.events[B].iter().position(wanted).unwrap();
        let incoming = at(|e| matches!(e, Event::SessionIncoming { .. }));
        assert!(incoming < at(|e| matches!(e, Event::FlowIncoming { .. })), "{order:?}");
    }
}

#[test]
fn another_key_than_the_pinned_one_is_named_and_belongs_to_the_session() {
    let (mut p, _) = neighbours_with(Default::default(), lossy());
    let session = open(&mut p, Some(stranger()));
    let theirs = p.nodes[B].public_key();
    let (code, layer, text) = outcome(&mut p, session);
    assert_eq!((code, layer), (Code::WrongKey, Layer::Session));
    assert!(text.contains(&theirs.to_string()) && text.contains(&stranger().to_string()), "{text}");
    assert!(
        !p.events[B].iter().any(|e| matches!(e, Event::SessionIncoming { .. } | Event::SessionClosed { .. })),
        "nobody there hears of it"
    );
}

#[test]
fn an_opener_that_is_not_authorised_is_told_so_by_the_destination_itself() {
    for pinned in [true, false] {
        let config = NodeConfig { sessions_from: SessionAccess::Keys(vec![stranger()]), ..NodeConfig::default() };
        let (mut p, _) = neighbours_with([NodeConfig::default(), config], lossy());
        let theirs = p.nodes[B].public_key();
        let session = open(&mut p, pinned.then_some(theirs));
        let (code, layer, _) = outcome(&mut p, session);
        assert_eq!((code, layer), (Code::NotAuthorised, Layer::Session));
        assert!(!p.events[B].iter().any(|e| matches!(e, Event::SessionIncoming { .. })));
    }
}

#[test]
fn a_node_that_may_open_links_may_open_sessions_unless_told_otherwise() {
    let own = SecretKey::from_bytes([7; 32]).public(); // the key of node A
    let authorised = NodeConfig { authorised: Some(vec![own]), ..NodeConfig::default() };
    let none = NodeConfig { authorised: Some(vec![own]), sessions_from: SessionAccess::Keys(Vec::new()), ..NodeConfig::default() };
    let anyone = NodeConfig { sessions_from: SessionAccess::Anyone, ..none.clone() };
    for (config, is_let_in) in [(authorised, true), (none, false), (anyone, true)] {
        let (mut p, _) = neighbours_with([NodeConfig::default(), config], lossy());
        let theirs = p.nodes[B].public_key();
        let session = open(&mut p, Some(theirs));
        p.run_until(MS(2000), |_| false);
        assert_eq!(closed(&mut p, session).is_none(), is_let_in);
    }
}

#[test]
fn a_pre_shared_key_on_one_side_only_ends_the_session_and_a_different_one_never_begins_it() {
    let with = |psk: Option<[u8; 32]>| NodeConfig { session_psk: psk.map(SharedKey::from_bytes), ..NodeConfig::default() };
    let (mut p, _) = neighbours_with([with(None), with(Some([1; 32]))], lossy());
    let session = open(&mut p, None);
    assert_eq!(outcome(&mut p, session).0, Code::Handshake);
    let (mut p, _) = neighbours_with([with(Some([2; 32])), with(Some([1; 32]))], lossy());
    let theirs = p.nodes[B].public_key();
    let session = open(&mut p, Some(theirs));
    assert_eq!(outcome(&mut p, session).0, Code::Handshake);
    assert!(!p.events[B].iter().any(|e| matches!(e, Event::SessionIncoming { .. })));
}

#[test]
fn messages_streams_and_cancelled_messages_arrive_sealed_under_loss() {
    let (mut p, _) = neighbours_with(Default::default(), lossy());
    let session = open(&mut p, None);
    let flow = p.nodes[A]
        .open_flow(p.now, session, FlowOptions { kind: FlowKind::UnorderedMessages, lifetime: Some(MS(400)), ..Default::default() })
        .unwrap();
    let (mut sent, mut got) = (0, Vec::new());
    let mut incoming = None;
    p.run_until(MS(4000), |p| {
        if p.now >= super::at(20 * sent) && sent < 150 {
            let data = Bytes::from(content(3000, sent));
            p.nodes[A].send_message(p.now, flow, data, MessageOptions::default()).unwrap();
            sent += 1;
        }
        incoming = incoming.or_else(|| p.incoming_flow(B).map(|f| f.0));
        while let Some(m) = incoming.and_then(|f| p.nodes[B].recv_message(p.now, f).unwrap()) {
            got.push(m);
        }
        false
    });
    assert!(got.len() >= 145, "{}", got.len());
    assert!(got.iter().all(|m| m.data == content(3000, m.id)));
}

#[test]
fn a_session_ends_when_its_opener_is_not_authorised_any_more() {
    let (mut p, _) = neighbours_with(Default::default(), lossy());
    let session = open(&mut p, None);
    let data = content(20_000, 7);
    assert!(p.transfer(session, &data, MS(20_000)) == data);
    let mine = p.nodes[A].public_key();
    p.nodes[B].set_authorised(p.now, None, SessionAccess::Keys(vec![mine, stranger()]));
    assert_eq!(p.nodes[B].sessions().count(), 1, "it still is");
    p.nodes[B].set_authorised(p.now, None, SessionAccess::Keys(vec![stranger()]));
    assert_eq!(p.nodes[B].sessions().count(), 0);
    let (code, _, _) = outcome(&mut p, session);
    assert_eq!(code, Code::NotAuthorised);
}

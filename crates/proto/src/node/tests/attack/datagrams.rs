//! What a host on the path does to datagrams without the keys: repeats them, changes, cuts or invents them (P3).

use super::super::lossy;
use super::super::pair::{A, B, Pair, address, content};
use super::MS;
use crate::node::Counters;
use crate::options::{FlowKind, FlowOptions};
use crate::switch::{Mechanism, without};
use crate::units::Ecn;
use std::cell::RefCell;
use std::collections::VecDeque;
use std::rc::Rc;

/// 3 MB at 10 % loss, and for every datagram to B another that `change` makes of it, given the latest ones: whether all arrived, what B counted, and
/// packets that it took of those that A sent.
fn story(change: impl Fn(&[u8], &VecDeque<Vec<u8>>, u64) -> Vec<u8>) -> (bool, Counters, u64, u64) {
    let mut p = Pair::new(Default::default(), lossy(), 5);
    let seen: Rc<RefCell<Vec<Vec<u8>>>> = Rc::default();
    let tap = seen.clone();
    p.filter = Some(Box::new(move |by, _, datagram| {
        if by == A {
            tap.borrow_mut().push(datagram.to_vec());
        }
        false
    }));
    let (link, session) = p.connect();
    let data = content(3_000_000, 5);
    let mut latest = VecDeque::new();
    let mut count = 0;
    let injected = seen.clone();
    let options = FlowOptions { kind: FlowKind::Stream, ..FlowOptions::default() };
    let flow = p.nodes[A].open_flow(p.now, session, options).unwrap();
    let (mut written, mut got, mut incoming) = (0, Vec::new(), None);
    let is_done = p.run_until(MS(10_000), |p| {
        while written < data.len()
            && let Ok(n) = p.nodes[A].write(p.now, flow, &data[written..])
        {
            written += n;
            if written == data.len() {
                p.nodes[A].finish(p.now, flow).unwrap();
            }
        }
        incoming = incoming.or_else(|| p.incoming_flow(B).map(|f| f.0));
        while let Some(Ok(Some(bytes))) = incoming.map(|flow| p.nodes[B].read(p.now, flow, 1 << 20)) {
            got.extend_from_slice(&bytes);
            if bytes.is_empty() {
                return true;
            }
        }
        for datagram in injected.borrow_mut().drain(..) {
            count += 1;
            latest.push_back(datagram.clone());
            if latest.len() > 1000 {
                latest.pop_front();
            }
            let mut changed = change(&datagram, &latest, count);
            p.nodes[B].handle_datagram(p.now, address(A), None, Ecn::NotEct, &mut changed);
        }
        false
    });
    let is_done = is_done && got == data;
    let received = p.nodes[B].sessions().next().and_then(|(_, l)| p.nodes[B].link_stats(l)).map_or(0, |s| s.paths[0].received_packets);
    let sent = p.nodes[A].link_stats(link).map_or(0, |s| s.paths[0].sent_packets);
    (is_done, p.nodes[B].counters(), received, sent)
}

#[test]
fn replayed_datagrams_old_and_new_are_taken_once() {
    let replay = || story(|datagram, latest, n| if n % 2 == 0 { latest[0].clone() } else { datagram.to_vec() });
    let (is_done, counters, received, sent) = replay();
    assert!(is_done && received <= sent, "{received} of {sent}");
    assert!(counters.replayed > 500, "{counters:?}");
    let (_, _, received, sent) = without(Mechanism::ReplayWindow, replay);
    assert!(received > sent, "{received} of {sent}");
}

#[test]
fn flipped_bits_are_noticed_wherever_they_are() {
    let (is_done, counters, ..) = story(|datagram, _, n| {
        let mut changed = datagram.to_vec();
        let at = (n as usize * 7919) % (8 * changed.len());
        changed[at / 8] ^= 1 << (at % 8);
        changed
    });
    assert!(is_done && counters.undecryptable > 1000, "{counters:?}");
}

#[test]
fn datagrams_cut_anywhere_are_noticed() {
    let (is_done, counters, ..) = story(|datagram, _, n| datagram[..n as usize % datagram.len()].to_vec());
    assert!(is_done && counters.undecryptable + counters.malformed > 1000, "{counters:?}");
}

#[test]
fn invented_datagrams_with_a_true_connection_id_are_noticed() {
    let (is_done, counters, ..) = story(|datagram, _, n| {
        let mut changed = datagram.to_vec();
        let kept = 5.min(changed.len());
        changed[kept..].iter_mut().enumerate().for_each(|(i, b)| *b = (i as u64 * 31 + n * 17) as u8);
        changed
    });
    assert!(is_done && counters.undecryptable > 1000, "{counters:?}");
}

#[test]
fn datagrams_of_connections_that_do_not_exist_are_counted() {
    let (is_done, counters, ..) = story(|datagram, _, n| {
        let mut changed = datagram.to_vec();
        let end = 5.min(changed.len());
        changed[1..end].copy_from_slice(&(n as u32).to_be_bytes()[..end - 1]);
        changed
    });
    assert!(is_done && counters.unknown > 1000, "{counters:?}");
}

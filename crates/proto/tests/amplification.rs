//! P19: nobody can make a node send more than three times what came in from an address that has proven nothing.

use noctule_proto::crypto::mac1::Mac1;
use noctule_proto::crypto::{Initiator, PublicKey, SecretKey};
use noctule_proto::units::{Duration, Ecn, Time};
use noctule_proto::wire::packet::{ConnectionId, HandshakeBody, HandshakePacket, Pattern, VERSION};
use noctule_proto::wire::params::Params;
use noctule_proto::{Node, NodeConfig};
use rand_chacha::ChaCha12Rng;
use rand_core::SeedableRng;

/// A first flight under the source id `number`, to the node with `responder`'s key or, if that is not known, to any node that answers. Not padded.
fn initiate(responder: Option<PublicKey>, number: u32) -> Vec<u8> {
    let mut rng = ChaCha12Rng::seed_from_u64(u64::from(number));
    let id = |n: u32| ConnectionId::new(&n.to_be_bytes()).unwrap();
    let pattern = Initiator::pattern_for(responder, None);
    let packet = |message| HandshakePacket {
        version: VERSION,
        destination: id(7),
        source: id(number),
        body: HandshakeBody::Initiate { pattern, mac1: [0; 16], token: b"", message },
    };
    let mut payload = Vec::new();
    Params::default().emit(&mut payload, 0);
    let prologue = packet(&[]).prologue().unwrap();
    let (_, message) = Initiator::start(&SecretKey::from_bytes([1; 32]), responder, None, &prologue, &payload, &mut rng).unwrap();
    let mut packet = packet(&message);
    responder.iter().for_each(|key| Mac1::new(key).sign(&mut packet));
    let mut out = Vec::new();
    packet.emit(&mut out);
    out
}

fn victims_key() -> PublicKey {
    SecretKey::from_bytes([2; 32]).public()
}

/// Bytes that a node answers in a minute to datagrams that come a millisecond apart from an address that says nothing more.
fn answered<'a>(datagrams: impl IntoIterator<Item = &'a [u8]>) -> usize {
    let start = Time::from_millis(1);
    let mut node = Node::new(NodeConfig::default(), SecretKey::from_bytes([2; 32]), [3; 32], start);
    let remote = "192.0.2.1:7000".parse().unwrap();
    let mut buf = Vec::new();
    let mut sent = 0;
    let mut now = start;
    let mut drain = |node: &mut Node, now| {
        while let Some(transmit) = node.poll_transmit(now, 16, &mut buf) {
            sent += transmit.len;
        }
        while node.poll_event().is_some() {}
    };
    for datagram in datagrams {
        node.handle_datagram(now, remote, None, Ecn::NotEct, &mut datagram.to_vec());
        drain(&mut node, now);
        now += Duration::from_millis(1);
    }
    for _ in 0..1000 {
        drain(&mut node, now);
        match node.poll_timeout() {
            Some(due) if due <= start + Duration::from_secs(60) => now = now.max(due),
            _ => return sent,
        }
        node.handle_timeout(now);
    }
    panic!("the node never becomes idle");
}

/// With `size` bytes, of which the packet may be fewer.
fn padded(mut datagram: Vec<u8>, size: usize) -> Vec<u8> {
    datagram.resize(datagram.len().max(size), 0);
    datagram
}

#[test]
fn a_first_flight_is_answered_with_no_more_than_three_times_its_size() {
    for responder in [None, Some(victims_key())] {
        for size in [800, 1200, 1472] {
            let datagram = padded(initiate(responder, 1), size);
            let sent = answered([&datagram[..]]);
            assert!(sent > 0 && sent <= datagram.len(), "{sent} bytes for {}", datagram.len());
        }
        for size in [0, 300, 799] {
            assert_eq!(answered([&padded(initiate(responder, 1), size)[..]]), 0, "{size} bytes are no first flight");
        }
    }
}

#[test]
fn repeated_first_flights_are_answered_with_no_more_than_came_in_and_a_few_times_only() {
    for responder in [None, Some(victims_key())] {
        let (first, repeat) = (padded(initiate(responder, 1), 1472), padded(initiate(responder, 1), 800));
        let all: Vec<&[u8]> = std::iter::once(&first[..]).chain(std::iter::repeat_n(&repeat[..], 4000)).collect();
        let got: usize = all.iter().map(|d| d.len()).sum();
        let sent = answered(all.iter().copied());
        assert!(sent > 0 && sent * 10 <= got, "{sent} bytes for {got}");
        let few = &all[..3];
        let sent = answered(few.iter().copied());
        assert!(sent <= few.iter().map(|d| d.len()).sum::<usize>());
    }
    // What comes under the id of a half-open link and says something else, or nothing, is not answered, whatever its size.
    let first = padded(initiate(Some(victims_key()), 1), 1472);
    let empty = HandshakePacket {
        version: VERSION,
        destination: ConnectionId::new(&[7; 4]).unwrap(),
        source: ConnectionId::new(&1u32.to_be_bytes()).unwrap(),
        body: HandshakeBody::Initiate { pattern: Pattern::Xx, mac1: [0; 16], token: b"", message: &[] },
    };
    let mut repeat = Vec::new();
    empty.emit(&mut repeat);
    for size in [0, 800] {
        let repeat = padded(repeat.clone(), size);
        let all = std::iter::once(&first[..]).chain(std::iter::repeat_n(&repeat[..], 4000));
        assert_eq!(answered(all), 1472);
    }
}

#[test]
fn many_first_flights_in_one_datagram_are_not_each_answered() {
    let datagram: Vec<u8> = (1..=10).flat_map(|n| initiate(None, n)).collect();
    assert!((800..=1472).contains(&datagram.len()), "{}", datagram.len());
    let sent = answered([&padded(datagram, 1472)[..]]);
    assert!(sent > 0 && sent <= 1472, "{sent} bytes");
}

//! P19: nobody can make a node send more than three times what came in from an address that has proven nothing.

use noctule_proto::crypto::{Initiator, SecretKey};
use noctule_proto::units::{Duration, Ecn, Time};
use noctule_proto::wire::packet::{ConnectionId, HandshakeBody, HandshakePacket, Pattern, VERSION};
use noctule_proto::wire::params::Params;
use noctule_proto::{Node, NodeConfig};
use rand_chacha::ChaCha12Rng;
use rand_core::SeedableRng;

/// A true first flight under the source id `number`.
fn initiate(number: u32) -> Vec<u8> {
    let mut rng = ChaCha12Rng::seed_from_u64(u64::from(number));
    let id = |n: u32| ConnectionId::new(&n.to_be_bytes()).unwrap();
    let packet = |message| HandshakePacket {
        version: VERSION,
        destination: id(7),
        source: id(number),
        body: HandshakeBody::Initiate { pattern: Pattern::Xx, token: b"", message },
    };
    let mut payload = Vec::new();
    Params::default().emit(&mut payload, 0);
    let prologue = packet(&[]).prologue().unwrap();
    let (_, message) = Initiator::start(&SecretKey::from_bytes([1; 32]), None, None, &prologue, &payload, &mut rng).unwrap();
    let mut out = Vec::new();
    packet(&message).emit(&mut out);
    out
}

/// Bytes that a node answers within its half-open lifetime to `datagram`, which came from an address that says nothing more.
fn answered(datagram: &mut [u8]) -> usize {
    let start = Time::from_millis(1);
    let mut node = Node::new(NodeConfig::default(), SecretKey::from_bytes([2; 32]), [3; 32], start);
    let remote = "192.0.2.1:7000".parse().unwrap();
    let mut buf = Vec::new();
    let mut sent = 0;
    node.handle_datagram(start, remote, None, Ecn::NotEct, datagram);
    let mut now = start;
    for _ in 0..1000 {
        while let Some(transmit) = node.poll_transmit(now, 16, &mut buf) {
            sent += transmit.len;
        }
        while node.poll_event().is_some() {}
        match node.poll_timeout() {
            Some(due) if due <= start + Duration::from_secs(60) => now = now.max(due),
            _ => return sent,
        }
        node.handle_timeout(now);
    }
    panic!("the node never becomes idle");
}

#[test]
fn a_first_flight_is_answered_with_no_more_than_three_times_its_size() {
    for size in [0, 300, 1200, 1472] {
        let mut datagram = initiate(1);
        datagram.resize(datagram.len().max(size), 0);
        let sent = answered(&mut datagram);
        assert!(sent > 0 && sent <= 3 * datagram.len(), "{sent} bytes for {}", datagram.len());
    }
}

#[test]
fn many_first_flights_in_one_datagram_are_not_each_answered() {
    let mut datagram: Vec<u8> = (1..=12).flat_map(initiate).collect();
    assert!(datagram.len() <= 1472, "{}", datagram.len());
    datagram.resize(1472, 0);
    let sent = answered(&mut datagram);
    assert!(sent > 0 && sent <= 3 * datagram.len(), "{sent} bytes for {}", datagram.len());
}

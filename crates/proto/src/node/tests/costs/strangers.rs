//! Datagrams of a sender without keys: what a node does, keeps and answers for each.

use super::super::pair::key;
use super::{Cost, Measured, hold};
use crate::crypto::PublicKey;
use crate::crypto::mac1::Mac1;
use crate::ids::LinkId;
use crate::units::{Duration, Ecn, Time};
use crate::wire::packet::{ConnectionId, HandshakeBody, HandshakePacket, Packet, VERSION};
use crate::{Node, NodeConfig};
use std::net::SocketAddr;

const START: Time = Time::from_millis(1000);
/// Where the node under attack is, as its clients see it.
const HERE: ([u8; 4], u16) = ([10, 0, 0, 1], 4000);
/// Datagrams that a row is measured over.
const EACH: u32 = 32;

/// The node that is measured.
struct Victim {
    node: Node,
    now: Time,
    buf: Vec<u8>,
    /// The last datagram that it sent to each address is kept here, in room that is there before.
    answer: Vec<u8>,
}

impl Victim {
    /// A node that is opening `links` links of its own, so that ids and links of others stand beside what is measured.
    fn beside(links: usize) -> Self {
        let mut node = Node::new(NodeConfig { max_links: 4096, ..NodeConfig::default() }, key(9), [3; 32], START);
        for n in 0..links {
            node.connect(START, SocketAddr::from(([10, 1, (n >> 8) as u8, n as u8], 5)), Some(key(8).public())).unwrap();
        }
        let mut victim = Self { node, now: START, buf: Vec::with_capacity(1 << 17), answer: Vec::with_capacity(1 << 17) };
        victim.drain();
        victim
    }

    fn drain(&mut self) -> usize {
        let mut bytes = 0;
        while let Some(t) = self.node.poll_transmit(self.now, 1, &mut self.buf) {
            bytes += t.len;
            core::mem::swap(&mut self.buf, &mut self.answer);
        }
        while self.node.poll_event().is_some() {}
        bytes
    }

    /// Hears a datagram and answers.
    fn hear(&mut self, from: SocketAddr, datagram: &[u8]) -> Cost {
        let mut datagram = datagram.to_vec();
        self.answer.clear();
        Cost::of(|| {
            self.node.handle_datagram(self.now, from, None, Ecn::NotEct, &mut datagram);
            self.drain()
        })
    }

    fn several(&mut self, mut make: impl FnMut(&mut Self, u32) -> (SocketAddr, Vec<u8>)) -> Cost {
        let mut costs = Vec::new();
        for n in 0..EACH {
            let (from, datagram) = make(self, n);
            costs.push(self.hear(from, &datagram));
        }
        Cost::of_several(&costs)
    }
}

/// An honest node that makes what strangers send.
struct Client(Node);

impl Client {
    fn new() -> Self {
        Self(Node::new(NodeConfig { max_links: 100_000, ..NodeConfig::default() }, key(1), [5; 32], START))
    }

    /// Its datagrams; those of one kind only if they were made together.
    fn drain(&mut self, now: Time) -> Vec<Vec<u8>> {
        let (mut out, mut buf) = (Vec::new(), Vec::new());
        while self.0.poll_transmit(now, 1, &mut buf).is_some() {
            out.push(buf.clone());
        }
        while self.0.poll_event().is_some() {}
        out
    }

    /// The first flight to a node, whose key is known or not.
    fn first(&mut self, now: Time, peer: Option<PublicKey>) -> (LinkId, Vec<u8>) {
        let link = self.0.connect(now, HERE.into(), peer).unwrap();
        (link, self.drain(now).remove(0))
    }

    /// What it says to an answer.
    fn next(&mut self, now: Time, answer: &[u8]) -> Vec<u8> {
        self.0.handle_datagram(now, HERE.into(), None, Ecn::NotEct, &mut answer.to_vec());
        self.drain(now).into_iter().next().unwrap_or_default()
    }
}

/// An address of a host of its own.
fn host(n: u32) -> SocketAddr {
    SocketAddr::from(([172, 16, (n >> 8) as u8, n as u8], 7000))
}

fn id(n: u32) -> ConnectionId {
    ConnectionId::new(&n.to_be_bytes()).unwrap()
}

/// A handshake packet, padded as first flights are.
fn packet(version: u32, source: u32, body: HandshakeBody<'_>) -> Vec<u8> {
    let mut out = Vec::new();
    HandshakePacket { version, destination: id(7), source: id(source), body }.emit(&mut out);
    out.resize(out.len().max(1200), 0);
    out
}

/// Only the handshake packet at the front of a datagram.
fn front(datagram: &[u8]) -> &[u8] {
    match Packet::parse(datagram, 4) {
        Ok(Packet::Handshake(_, len)) => &datagram[..len],
        _ => datagram,
    }
}

/// The datagram that a client sends when it was sent back for a cookie, if it was.
fn with_cookie(v: &mut Victim, c: &mut Client, from: SocketAddr, first: Vec<u8>) -> Vec<u8> {
    v.hear(from, &first);
    match Packet::parse(&v.answer, 4) {
        Ok(Packet::Handshake(HandshakePacket { body: HandshakeBody::Retry { .. }, .. }, _)) => c.next(v.now, &v.answer.clone()),
        other => panic!("no cookie: {other:?}"),
    }
}

/// From now on first flights need a cookie, for as long as the clock stands still.
fn tire(v: &mut Victim, c: &mut Client) {
    for n in 0..300 {
        let flight = c.first(v.now, Some(v.node.public_key())).1;
        v.hear(host(40_000 + n), &flight);
    }
}

/// The last byte of what a packet contains is another.
fn altered(datagram: &[u8]) -> Vec<u8> {
    let mut out = datagram.to_vec();
    let end = front(&out).len();
    out[end - 1] ^= 1;
    out
}

/// Rows of packets before a link, each for a fresh node.
fn before_links(beside: usize) -> Measured {
    let mut rows = Measured::new();
    let mut row = |name, measure: &mut dyn FnMut(&mut Victim, &mut Client) -> Cost| {
        rows.push((name, measure(&mut Victim::beside(beside), &mut Client::new())));
    };
    row("arbitrary bytes", &mut |v, _| v.several(|_, n| (host(n), vec![n as u8 & 0x3f; 200])));
    row("other version", &mut |v, _| v.several(|_, n| (host(n), packet(0x1234_5678, n, HandshakeBody::Finish(&[1; 64])))));
    row("version list", &mut |v, _| v.several(|_, n| (host(n), packet(0, n, HandshakeBody::VersionList(&0x1234_5678u32.to_be_bytes())))));
    row("INITIATE, short", &mut |v, c| {
        v.several(|v, n| {
            let flight = c.first(v.now, Some(v.node.public_key())).1;
            (host(n), front(&flight).to_vec())
        })
    });
    row("INITIATE of XX", &mut |v, c| v.several(|v, n| (host(n), c.first(v.now, None).1)));
    row("INITIATE of IK", &mut |v, c| v.several(|v, n| (host(n), c.first(v.now, Some(v.node.public_key())).1)));
    row("INITIATE of IK, for another key", &mut |v, c| v.several(|v, n| (host(n), c.first(v.now, Some(key(5).public())).1)));
    row("INITIATE of IK, under load", &mut |v, c| {
        tire(v, c);
        v.several(|v, n| (host(n), c.first(v.now, Some(v.node.public_key())).1))
    });
    row("INITIATE of XX, with cookie", &mut |v, c| {
        tire(v, c);
        v.several(|v, n| {
            let flight = c.first(v.now, None).1;
            (host(n), with_cookie(v, c, host(n), flight))
        })
    });
    row("INITIATE of IK, with cookie", &mut |v, c| {
        tire(v, c);
        v.several(|v, n| {
            let flight = c.first(v.now, Some(v.node.public_key())).1;
            (host(n), with_cookie(v, c, host(n), flight))
        })
    });
    row("INITIATE of IK, with cookie, altered", &mut |v, c| {
        tire(v, c);
        let flight = c.first(v.now, Some(v.node.public_key())).1;
        let mut second = altered(&with_cookie(v, c, host(1), flight));
        let size = second.len();
        let mut signed = Vec::new();
        let Ok(Packet::Handshake(mut packet, _)) = Packet::parse(&second, 4) else { panic!("a first flight") };
        Mac1::new(&v.node.public_key()).sign(&mut packet);
        packet.emit(&mut signed);
        signed.resize(size, 0);
        second = signed;
        v.several(|_, _| (host(1), second.clone()))
    });
    row("INITIATE, repeated", &mut |v, c| {
        let flight = c.first(v.now, Some(v.node.public_key())).1;
        v.hear(host(1), &flight);
        v.several(|_, _| (host(1), flight.clone()))
    });
    row("RESPOND, unknown id", &mut |v, _| v.several(|_, n| (host(n), packet(VERSION, n, HandshakeBody::Respond(&[1; 96])))));
    row("RETRY, unknown id", &mut |v, c| {
        // One of the node's own, sent back to it.
        tire(v, c);
        let retry = v.answer.clone();
        assert!(matches!(Packet::parse(&retry, 4), Ok(Packet::Handshake(HandshakePacket { body: HandshakeBody::Retry { .. }, .. }, _))));
        v.several(|_, n| (host(n), retry.clone()))
    });
    row("FINISH, unknown id", &mut |v, _| v.several(|_, n| (host(n), packet(VERSION, n, HandshakeBody::Finish(&[1; 64])))));
    row("protected, unknown id", &mut |v, _| v.several(|_, n| (host(n), [&[0x40, 1, 2, 3, n as u8][..], &[7; 200]].concat())));
    rows
}

/// A first contact that was answered, cookie or not: the FINISH of the client.
fn finish_of(v: &mut Victim, c: &mut Client, from: SocketAddr) -> Vec<u8> {
    let flight = c.first(v.now, None).1;
    v.hear(from, &flight);
    let mut next = c.next(v.now, &v.answer.clone());
    if matches!(Packet::parse(&next, 4), Ok(Packet::Handshake(HandshakePacket { body: HandshakeBody::Initiate { .. }, .. }, _))) {
        v.hear(from, &next);
        next = c.next(v.now, &v.answer.clone());
    }
    assert!(matches!(Packet::parse(&next, 4), Ok(Packet::Handshake(HandshakePacket { body: HandshakeBody::Finish(_), .. }, _))));
    next
}

/// A link of a client that is up, and a true packet of it.
fn link_of(v: &mut Victim, c: &mut Client, from: SocketAddr) -> (LinkId, Vec<u8>) {
    let (link, flight) = c.first(v.now, Some(v.node.public_key()));
    v.hear(from, &flight);
    let first = c.next(v.now, &v.answer.clone());
    (link, first)
}

/// Rows of packets to links that stand, or are about to.
fn at_links(beside: usize) -> Measured {
    let mut rows = Measured::new();
    let mut row = |name, measure: &mut dyn FnMut(&mut Victim, &mut Client) -> Cost| {
        rows.push((name, measure(&mut Victim::beside(beside), &mut Client::new())));
    };
    row("FINISH, forged", &mut |v, c| {
        let finish = altered(&finish_of(v, c, host(1)));
        v.several(|_, _| (host(1), finish.clone()))
    });
    row("FINISH, forged, other address", &mut |v, c| {
        let finish = altered(&finish_of(v, c, host(1)));
        v.several(|_, n| (host(2 + n), finish.clone()))
    });
    row("FINISH", &mut |v, c| {
        v.several(|v, n| {
            v.now += Duration::from_millis(20);
            (host(n), front(&finish_of(v, c, host(n))).to_vec())
        })
    });
    row("RESPOND, forged", &mut |v, _| {
        // The victim's own attempt, as a host on the path sees it.
        v.node.connect(v.now, host(1), Some(key(8).public())).unwrap();
        v.drain();
        let seen = v.answer.clone();
        let Ok(Packet::Handshake(initiate, _)) = Packet::parse(&seen, 4) else { panic!("a first flight") };
        let mut out = Vec::new();
        let body = HandshakeBody::Respond(&[1; 96]);
        HandshakePacket { version: VERSION, destination: initiate.source, source: id(3), body }.emit(&mut out);
        v.several(|_, _| (host(1), out.clone()))
    });
    row("protected, forged, to an answered link", &mut |v, c| {
        v.several(|v, n| {
            v.now += Duration::from_millis(20);
            let (_, first) = link_of(v, c, host(n));
            let last = first.len() - 1;
            let mut forged = first;
            forged[last] ^= 1;
            (host(n), forged)
        })
    });
    row("protected, forged", &mut |v, c| {
        let (_, first) = link_of(v, c, host(1));
        v.hear(host(1), &first);
        c.next(v.now, &v.answer.clone());
        let mut forged = first;
        let last = forged.len() - 1;
        forged[last] ^= 1;
        v.several(|_, n| {
            // Each names a packet number of its own.
            forged[8] = 100 + n as u8;
            (host(1), forged.clone())
        })
    });
    row("protected, repeated", &mut |v, c| {
        let (_, first) = link_of(v, c, host(1));
        v.hear(host(1), &first);
        v.several(|_, _| (host(1), first.clone()))
    });
    row("protected, forged, to a closing link", &mut |v, c| {
        let (_, first) = link_of(v, c, host(1));
        v.hear(host(1), &first);
        let link = *v.node.links.keys().next_back().unwrap();
        v.node.close_link(v.now, link, 0, "").unwrap();
        v.drain();
        let mut forged = first;
        let last = forged.len() - 1;
        forged[last] ^= 1;
        v.several(|_, n| {
            forged[8] = 100 + n as u8;
            (host(1), forged.clone())
        })
    });
    rows
}

#[test]
fn what_a_sender_without_keys_can_cost_is_what_the_table_says() {
    let all = |beside: usize| [before_links(beside), at_links(beside), super::one_way::rows(beside)].concat();
    hold("1", &all(10), &all(1000));
}

//! Any sequence of handshake datagrams at a node: true first flights of known and unknown keys, repeated, short, altered, sent back for cookies, from few
//! addresses, with pauses. Nothing panics; an address that has proven nothing gets at most three bytes for each of its own; work and memory keep within a
//! bound for each datagram, and what is kept is gone when the handshakes have timed out.

use super::Input;
use noctule_proto::crypto::{PublicKey, SecretKey};
use noctule_proto::units::{Duration, Ecn, Time};
use noctule_proto::wire::packet::{HandshakeBody, Packet};
use noctule_proto::work::Work;
use noctule_proto::{Node, NodeConfig};
use std::collections::VecDeque;
use std::net::SocketAddr;

/// Steps of one run, and addresses that datagrams come from.
const STEPS: usize = 200;
const ADDRESSES: usize = 4;
/// Work that one datagram may cause, whatever it is: a FINISH computes a whole XX again, an INITIATE of IK makes a key pair and four agreements.
const DEAREST: Work = Work { dh: 6, hash: 8, aead: 4, steps: 64 };
/// Bytes that may be allocated while one datagram is looked at, and that may stay for each handshake.
const WHILE_LOOKING: u64 = TABLES as u64 + (48 << 10);
const KEPT: i64 = 48 << 10;
/// The tables of hosts and networks, which the first datagram with a cookie makes.
const TABLES: i64 = 112 << 10;

struct Street {
    now: Time,
    node: Node,
    client: Node,
    /// Bytes from and to each address, and whether it has completed a handshake.
    balance: [(usize, usize, bool); ADDRESSES],
    /// The latest datagrams of the client, and the latest answers to each address.
    sent: VecDeque<Vec<u8>>,
    answers: [VecDeque<Vec<u8>>; ADDRESSES],
    handshakes: i64,
    kept: i64,
}

fn here() -> SocketAddr {
    SocketAddr::from(([10, 0, 0, 1], 4000))
}

fn address(n: usize) -> SocketAddr {
    SocketAddr::from(([192, 0, 2, 1 + n as u8 / 2], 7000 + n as u16))
}

fn secret(n: u8) -> SecretKey {
    SecretKey::from_bytes([n; 32])
}

fn remember(list: &mut VecDeque<Vec<u8>>, datagram: &[u8]) {
    list.push_front(datagram.to_vec());
    list.truncate(8);
}

impl Street {
    fn new() -> Self {
        let now = Time::from_millis(1000);
        let node = |n: u8| Node::new(NodeConfig::default(), secret(n), [n; 32], now);
        Self {
            now,
            node: node(1),
            client: node(2),
            balance: [(0, 0, false); ADDRESSES],
            sent: VecDeque::new(),
            answers: Default::default(),
            handshakes: 0,
            kept: 0,
        }
    }

    /// What the client wants to send is remembered.
    fn collect(&mut self) {
        let mut buf = Vec::new();
        while self.client.poll_transmit(self.now, 1, &mut buf).is_some() {
            remember(&mut self.sent, &buf);
        }
        while self.client.poll_event().is_some() {}
    }

    fn drain(&mut self) {
        let mut buf = Vec::new();
        while let Some(t) = self.node.poll_transmit(self.now, 1, &mut buf) {
            let at = (0..ADDRESSES).find(|n| address(*n) == t.remote).expect("nobody else is answered");
            self.balance[at].1 += buf.len();
            remember(&mut self.answers[at], &buf);
        }
        while self.node.poll_event().is_some() {}
        for (from, to, is_proven) in self.balance {
            assert!(is_proven || to <= 3 * from, "{to} bytes for {from}");
        }
    }

    fn hear(&mut self, from: usize, datagram: &[u8]) {
        let first = Packet::parse(datagram, 4);
        self.balance[from].0 += datagram.len();
        // A host that completes a handshake has proven its address.
        self.balance[from].2 |=
            !matches!(&first, Ok(Packet::Handshake(p, _)) if !matches!(p.body, HandshakeBody::Finish(_))) && first.is_ok();
        self.handshakes += i64::from(matches!(first, Ok(Packet::Handshake(..))));
        drop(first);
        let mut datagram = datagram.to_vec();
        let (node, now) = (&mut self.node, self.now);
        let mut work = Work::default();
        let memory = allocation_counter::measure(|| {
            (work, ()) = Work::of(|| node.handle_datagram(now, address(from), None, Ecn::NotEct, &mut datagram));
        });
        assert!(work.is_within(&DEAREST), "{work:?}");
        assert!(memory.bytes_max <= WHILE_LOOKING, "{memory:?}");
        self.kept += memory.bytes_current;
        assert!(self.kept <= TABLES + KEPT * (1 + self.handshakes), "{} bytes for {}", self.kept, self.handshakes);
        self.drain();
    }

    fn wait(&mut self, time: Duration) {
        self.now += time;
        for node in [&mut self.node, &mut self.client] {
            for _ in 0..64 {
                if node.poll_timeout().is_none_or(|t| t > self.now) {
                    break;
                }
                node.handle_timeout(self.now);
            }
        }
        self.drain();
        self.collect();
    }
}

pub fn run(data: &[u8]) {
    let mut input = Input::new(data);
    let mut s = Street::new();
    let ours: PublicKey = s.node.public_key();
    for _ in 0..STEPS {
        if input.is_empty() {
            break;
        }
        let choice = input.u8();
        let from = usize::from(choice) % ADDRESSES;
        let pick = |list: &VecDeque<Vec<u8>>, n: u8| list.get(usize::from(n) % list.len().max(1)).cloned();
        match choice >> 2 & 7 {
            0 => {
                let peer = [Some(ours), None, Some(secret(3).public()), Some(ours)][usize::from(choice >> 5 & 3)];
                let _ = s.client.connect(s.now, here(), peer);
                s.collect();
            }
            1 | 2 => {
                if let Some(datagram) = pick(&s.sent, input.u8()) {
                    s.hear(from, &datagram);
                }
            }
            3 => {
                if let Some(mut datagram) = pick(&s.sent, input.u8()) {
                    datagram.truncate(usize::from(input.u16()) % 1500);
                    if let Some(byte) = datagram.get_mut(usize::from(input.u8())) {
                        *byte ^= input.u8();
                    }
                    s.hear(from, &datagram);
                }
            }
            4 | 5 => {
                if let Some(mut answer) = pick(&s.answers[from], input.u8()) {
                    s.client.handle_datagram(s.now, here(), None, Ecn::NotEct, &mut answer);
                    s.collect();
                }
            }
            6 => {
                let datagram = input.bytes().to_vec();
                s.hear(from, &datagram);
            }
            _ => s.wait(Duration::from_millis(u64::from(input.u8()) * 8)),
        }
    }
    // Half-open links live for twenty seconds.
    s.wait(Duration::from_secs(21));
    assert_eq!(s.node.counters().half_open, 0);
}

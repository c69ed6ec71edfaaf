//! Frames of a neighbour, which has a link and its keys, one packet for each.

use super::super::pair::key;
use super::{Cost, Measured, hold};
use crate::error::{CloseReason, Code, Layer};
use crate::event::Event;
use crate::ids::{FlowId, FlowLabel, LinkId, PacketNumber, PathId, Seq, SessionId, SessionKey};
use crate::node::RelayLimits;
use crate::options::{Class, FlowKind, FlowOptions, Mode};
use crate::units::{Duration, Ecn, Probability, Time};
use crate::wire::ack::{self, AckHead, EcnCounts};
use crate::wire::frame::{Coded, Coefficients, FlowOpen, Frame, Relayed};
use crate::wire::packet::ConnectionId;
use crate::{Node, NodeConfig};
use rand_chacha::ChaCha12Rng;
use rand_core::SeedableRng;
use std::net::{IpAddr, SocketAddr};

const MS: fn(u64) -> Duration = Duration::from_millis;
/// Packets that a row is measured over.
const EACH: u64 = 16;

/// The node that is measured and its hostile neighbour, without delay between them.
pub(super) struct Duo {
    pub(super) now: Time,
    victim: Node,
    pub(super) hostile: Node,
    buf: Vec<u8>,
    pub(super) link: LinkId,
    /// As the victim calls it.
    pub(super) victims_link: LinkId,
    pub(super) name: SessionKey,
    session: SessionId,
    victims: Vec<Event>,
    /// Answers to what was measured, which the hostile node hears when both go on.
    unheard: Vec<Vec<u8>>,
    next: u64,
    /// Of flows: one that is far above the others is refused.
    index: u64,
}

fn address(i: u8) -> SocketAddr {
    SocketAddr::from(([10, 0, 0, i], 4000))
}

fn ip(i: u8) -> IpAddr {
    IpAddr::from([10, 9, 0, i])
}

impl Duo {
    /// `flows` flows in each direction, and as many links that the victim is opening, stand beside what is measured.
    pub(super) fn beside(flows: usize) -> Self {
        let now = Time::from_millis(1000);
        let config = || NodeConfig { max_flows: 4096, max_links: 4096, ecn: false, ..NodeConfig::default() };
        let mut victim = Node::new(config(), key(0), [77; 32], now);
        victim.set_addresses(&[ip(1)]);
        victim.enable_relaying(Some(RelayLimits::default()));
        let mut hostile = Node::new(config(), key(1), [78; 32], now);
        hostile.set_addresses(&[ip(2)]);
        let link = hostile.connect(now, address(1), Some(victim.public_key())).unwrap();
        let mut d = Self {
            now,
            victim,
            hostile,
            buf: Vec::with_capacity(1 << 17),
            link,
            victims_link: LinkId(0),
            name: SessionKey(0),
            session: SessionId(0),
            victims: Vec::new(),
            unheard: Vec::new(),
            next: 1 << 20,
            index: 2000,
        };
        d.run(MS(100));
        d.session = d.hostile.open_session(d.now, link).unwrap();
        d.name = d.hostile.session_key(d.session).unwrap();
        d.run(MS(100));
        let theirs = d.victims.iter().find_map(|e| match e {
            Event::SessionIncoming { link, session, .. } => Some((*link, *session)),
            _ => None,
        });
        let (victims_link, victims_session) = theirs.expect("a session");
        d.victims_link = victims_link;
        let options = FlowOptions { kind: FlowKind::Stream, ..FlowOptions::default() };
        for n in 0..flows {
            let out: FlowId = d.hostile.open_flow(d.now, d.session, options.clone()).unwrap();
            let back: FlowId = d.victim.open_flow(d.now, victims_session, options.clone()).unwrap();
            d.hostile.write(d.now, out, &[7; 10]).unwrap();
            d.victim.write(d.now, back, &[7; 10]).unwrap();
            d.victim.connect(d.now, SocketAddr::from(([10, 1, (n >> 8) as u8, n as u8], 5)), Some(key(8).public())).unwrap();
            if n % 16 == 15 {
                d.run(MS(20));
            }
        }
        d.run(MS(500));
        d
    }

    /// Both work for so long, in steps of a millisecond.
    pub(super) fn run(&mut self, time: Duration) {
        let end = self.now + time;
        while self.now < end {
            self.exchange();
            self.now += MS(1);
            for node in [&mut self.victim, &mut self.hostile] {
                if node.poll_timeout().is_some_and(|t| t <= self.now) {
                    node.handle_timeout(self.now);
                }
            }
        }
        self.exchange();
    }

    fn exchange(&mut self) {
        for mut answer in core::mem::take(&mut self.unheard) {
            self.hostile.handle_datagram(self.now, address(1), None, Ecn::NotEct, &mut answer);
        }
        let mut buf = core::mem::take(&mut self.buf);
        for _ in 0..1000 {
            let mut is_still = true;
            while self.hostile.poll_transmit(self.now, 1, &mut buf).is_some() {
                is_still = false;
                self.victim.handle_datagram(self.now, address(2), None, Ecn::NotEct, &mut buf.clone());
            }
            while let Some(t) = self.victim.poll_transmit(self.now, 1, &mut buf) {
                if t.remote == address(2) {
                    is_still = false;
                    self.hostile.handle_datagram(self.now, address(1), None, Ecn::NotEct, &mut buf.clone());
                }
            }
            while let Some(event) = self.victim.poll_event() {
                self.victims.push(event);
            }
            while self.hostile.poll_event().is_some() {}
            if is_still {
                break;
            }
        }
        self.buf = buf;
    }

    /// The datagrams that the hostile node sends now reach the victim one by one: what the dearest costs, answers included.
    fn deliver(&mut self) -> Vec<Cost> {
        let (mut costs, mut unheard) = (Vec::new(), Vec::new());
        let mut sent = Vec::new();
        while self.hostile.poll_transmit(self.now, 1, &mut self.buf).is_some() {
            sent.push(self.buf.clone());
        }
        for mut datagram in sent {
            let mut answers = Vec::new();
            let cost = Cost::of(|| {
                self.victim.handle_datagram(self.now, address(2), None, Ecn::NotEct, &mut datagram);
                let mut bytes = 0;
                while let Some(t) = self.victim.poll_transmit(self.now, 1, &mut self.buf) {
                    if t.remote == address(2) {
                        bytes += t.len;
                        allocation_counter::opt_out(|| answers.push(self.buf.clone()));
                    }
                }
                while let Some(event) = self.victim.poll_event() {
                    allocation_counter::opt_out(|| self.victims.push(event));
                }
                bytes
            });
            costs.push(cost);
            unheard.append(&mut answers);
        }
        self.unheard.append(&mut unheard);
        costs
    }

    /// Frames in a packet of their own, which is not measured.
    pub(super) fn send(&mut self, frames: &[Frame<'_>]) {
        let mut bytes = Vec::new();
        frames.iter().for_each(|frame| frame.emit(&mut bytes));
        self.hostile.inject(self.now, self.link, bytes);
        self.run(MS(5));
    }

    /// What a packet of these frames costs.
    pub(super) fn cost(&mut self, bytes: Vec<u8>) -> Cost {
        self.run(MS(30));
        self.hostile.inject(self.now, self.link, bytes);
        let costs = self.deliver();
        assert!(!costs.is_empty(), "it was sent: {:?} {:?}", self.victims.last(), self.victim.counters());
        let cost = Cost::of_several(&costs);
        self.run(MS(5));
        Cost { kept: cost.kept * costs.len() as i64, ..cost }
    }

    /// What the second of two packets costs that follow each other, before the hostile node, which knows nothing of what it was made to say, answers.
    pub(super) fn cost_of_second(&mut self, first: Vec<u8>, second: Vec<u8>) -> Cost {
        self.run(MS(30));
        let mut costs = Vec::new();
        for bytes in [first, second] {
            self.hostile.inject(self.now, self.link, bytes);
            costs = self.deliver();
        }
        assert!(!costs.is_empty(), "it was sent");
        let cost = Cost::of_several(&costs);
        self.run(MS(5));
        Cost { kept: cost.kept * costs.len() as i64, ..cost }
    }

    /// A number that was not used before.
    pub(super) fn fresh(&mut self) -> u64 {
        self.next += 1;
        self.next
    }

    pub(super) fn open(&self, session: SessionKey, index: u64, label: u64) -> FlowOpen {
        FlowOpen {
            session,
            index,
            label: FlowLabel(label),
            symbol: 1400,
            mode: Mode::Brtp,
            kind: FlowKind::Stream,
            class: Class::Bulk,
            lifetime: None,
            batch_size: 16,
            hop_limit: 16,
            no_retransmit: Probability::new(0.99),
            answers: None,
            bidirectional: false,
            tag: 0,
            relayed: None,
        }
    }

    fn relayed(&self, session: u64, to: IpAddr) -> FlowOpen {
        let relayed = Relayed { destination: to, source: ip(2), incarnation: 0, first: Seq(0), fits: 1200, part: 0, proof: None };
        FlowOpen {
            symbol: 1200,
            batch_size: 8,
            kind: FlowKind::OrderedMessages,
            relayed: Some(relayed),
            ..self.open(SessionKey(session), 0, session)
        }
    }

    /// What opens one more flow of the session, and its label.
    fn fresh_open(&mut self) -> (u64, FlowOpen) {
        let n = self.fresh();
        self.index += 1;
        (n, self.open(self.name, self.index, n))
    }

    /// A flow of the hostile node that stands at the victim.
    fn flow(&mut self) -> FlowLabel {
        let (n, open) = self.fresh_open();
        self.send(&[Frame::FlowOpen(open)]);
        let link = &self.victim.links[&self.victims_link];
        assert!(link.labels.incoming_id(FlowLabel(n)).is_some(), "the flow stands");
        FlowLabel(n)
    }

    /// A flow of the victim.
    fn outgoing(&mut self, n: u64) -> FlowLabel {
        self.victim.links[&self.victims_link].labels.all_out().nth(2 + n as usize % 8).expect("a flow").0
    }
}

fn one(frame: &Frame<'_>) -> Vec<u8> {
    let mut bytes = Vec::new();
    frame.emit(&mut bytes);
    bytes
}

/// A row: its name and the frames of the n-th packet.
type Make<'a> = &'a mut dyn FnMut(&mut Duo, u64) -> Vec<u8>;

fn rows(beside: usize) -> Measured {
    let mut rows = Measured::new();
    let mut d = Duo::beside(beside);
    let mut row = |d: &mut Duo, name, make: Make<'_>| {
        let costs: Vec<Cost> = (0..EACH)
            .map(|n| {
                let bytes = make(d, n);
                d.cost(bytes)
            })
            .collect();
        rows.push((name, Cost::of_several(&costs)));
    };
    let symbol = [&[0, 98][..], &[5; 98]].concat();
    row(&mut d, "PADDING", &mut |_, _| vec![0; 1000]);
    row(&mut d, "PING", &mut |_, _| one(&Frame::Ping));
    for (name, ecn) in [("ACK", None), ("ACK_ECN", Some(EcnCounts { ect0: 0, ect1: 0, ce: 0 }))] {
        row(&mut d, name, &mut |d, _| {
            let largest = d.victim.links[&d.victims_link].paths[&PathId(0)].next_number().0 - 1;
            let head = AckHead { path: PathId(0), largest: PacketNumber(largest), delay: Duration::ZERO, ecn };
            let mut out = Vec::new();
            let _ = ack::emit(&mut out, &head, |w| if w == largest / 64 { 1 << (largest % 64) } else { 0 }, PacketNumber(0), 1200);
            out
        });
    }
    row(&mut d, "CODED", &mut |d, _| {
        let flow = d.flow();
        let mut out = Vec::new();
        Coded { flow, base: Seq(0), n: 1, coefficients: Coefficients::Index(0), symbol: &symbol }.emit_last(&mut out);
        out
    });
    row(&mut d, "CODED, a combination of 16", &mut |d, _| {
        let flow = d.flow();
        let coded = Coded { flow, base: Seq(0), n: 16, coefficients: Coefficients::Seed(7), symbol: &symbol };
        one(&Frame::Coded(coded))
    });
    row(&mut d, "CODED, of an unknown flow", &mut |d, _| {
        let flow = FlowLabel(d.fresh());
        one(&Frame::Coded(Coded { flow, base: Seq(0), n: 1, coefficients: Coefficients::Index(0), symbol: &symbol }))
    });
    row(&mut d, "CODED_LENGTH", &mut |d, _| {
        let flow = d.flow();
        one(&Frame::Coded(Coded { flow, base: Seq(0), n: 1, coefficients: Coefficients::Index(0), symbol: &symbol }))
    });
    row(&mut d, "FLOW_OPEN", &mut |d, _| {
        let (_, open) = d.fresh_open();
        one(&Frame::FlowOpen(open))
    });
    row(&mut d, "FLOW_OPEN, of a new session", &mut |d, _| {
        let n = d.fresh();
        one(&Frame::FlowOpen(FlowOpen { symbol: 200, batch_size: 8, ..d.open(SessionKey(n), 0, n) }))
    });
    row(&mut d, "FLOW_OPEN, of a new relayed session", &mut |d, _| {
        let n = d.fresh();
        one(&Frame::FlowOpen(d.relayed(n, ip(1))))
    });
    row(&mut d, "FLOW_OPEN, to a node without a route", &mut |d, _| {
        let n = d.fresh();
        one(&Frame::FlowOpen(d.relayed(n, ip(77))))
    });
    row(&mut d, "RANK", &mut |d, n| one(&Frame::Rank { flow: d.outgoing(n), base: Seq(0), n: 16, rank: 1, missing: 0xfffe }));
    row(&mut d, "CREDIT", &mut |d, n| one(&Frame::Credit { flow: d.outgoing(n), limit: Seq(1 << 40), done: Seq(0) }));
    row(&mut d, "FLOW_REFUSED", &mut |d, n| {
        one(&Frame::FlowRefused { flow: d.outgoing(n), base: Seq(0), reason: Code::UnknownFlow as u64 })
    });
    row(&mut d, "PATH_CHALLENGE", &mut |_, n| one(&Frame::PathChallenge([n as u8; 8])));
    row(&mut d, "PATH_RESPONSE", &mut |_, n| one(&Frame::PathResponse([n as u8; 8])));
    row(&mut d, "FRAGMENT", &mut |_, n| one(&Frame::Fragment { id: n, index: 0, data: &[1; 600] }));
    row(&mut d, "DATAGRAM", &mut |d, n| {
        let (label, open) = d.fresh_open();
        d.send(&[Frame::FlowOpen(FlowOpen { mode: Mode::Transparent, kind: FlowKind::UnorderedMessages, ..open })]);
        one(&Frame::Datagram { flow: FlowLabel(label), number: n, data: &[1; 600] })
    });
    // These end a link, a session or a flow of the world, or change what only few may be of: each has a world of its own.
    let mut alone = |name, make: &mut dyn FnMut(&mut Duo) -> Vec<u8>| {
        let mut d = Duo::beside(beside);
        let bytes = make(&mut d);
        let cost = d.cost(bytes);
        rows.push((name, cost));
    };
    alone("FLOW_END", &mut |d| one(&Frame::FlowEnd { flow: d.flow(), end: Seq(0) }));
    alone("FLOW_RESET", &mut |d| one(&Frame::FlowReset { flow: d.flow(), reason: 7 }));
    alone("FLOW_SKIP", &mut |d| {
        let (label, open) = d.fresh_open();
        d.send(&[Frame::FlowOpen(FlowOpen { mode: Mode::Btp, kind: FlowKind::UnorderedMessages, ..open })]);
        one(&Frame::FlowSkip { flow: FlowLabel(label), floor: Seq(1 << 40) })
    });
    alone("FLOW_SKIP, of a stream", &mut |d| one(&Frame::FlowSkip { flow: d.flow(), floor: Seq(1 << 40) }));
    alone("FLOW_STOP", &mut |d| one(&Frame::FlowStop { flow: d.outgoing(0), reason: 7 }));
    alone("NEW_CONNECTION_ID", &mut |_| {
        one(&Frame::NewConnectionId { path: PathId(0), sequence: 9, id: ConnectionId::new(&[9; 4]).unwrap() })
    });
    alone("RETIRE_CONNECTION_ID", &mut |_| one(&Frame::RetireConnectionId { sequence: 1 }));
    let rekey = Frame::Rekey { generation: 1, step: 0, message: &[9; 48] };
    alone("REKEY", &mut |d| {
        let keys = d.hostile.links.get_mut(&d.link).and_then(|link| link.keys.as_mut()).expect("a link that is up");
        keys.start_rekey(d.now, &mut ChaCha12Rng::from_seed([5; 32])).unwrap();
        one(&keys.poll_frame().expect("a request"))
    });
    alone("REKEY, altered", &mut |_| one(&rekey));
    alone("CLOSE", &mut |_| one(&Frame::Close(CloseReason::local(Code::NoError, Layer::Link, ""))));
    alone("unknown, even", &mut |_| vec![0x7e]);
    rows
}

#[test]
fn what_a_neighbour_can_cost_is_what_the_table_says() {
    hold("2", &rows(10), &rows(1000));
}

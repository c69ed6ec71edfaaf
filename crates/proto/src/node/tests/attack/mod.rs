//! A victim between a hostile neighbour, which has a link and the right keys, and an honest one whose transfer must not suffer (P3, P9, P15, P19, P22).
//!
//! Each story sends what its name says in mid-transfer under loss, asserts the counter that shows it and a bound on memory, and the honest
//! neighbour's megabyte arrives. What strangers can do is in `door.rs`, `flood.rs` and `datagrams.rs`.

mod datagrams;
mod door;
mod flood;
mod floods;
mod flows;
mod lies;
mod neighbours;
mod sessions;

use super::MS;
use super::mesh::{Mesh, ip};
use super::pair::{Conditions, key};
use crate::error::Code;
use crate::event::Event;
use crate::ids::{FlowId, FlowLabel, LinkId, Seq, SessionId, SessionKey};
use crate::node::Counters;
use crate::options::{Class, FlowKind, FlowOptions, Mode};
use crate::stats::{LinkStats, Memory};
use crate::units::{Duration, Probability, Time};
use crate::wire::frame::{FlowOpen, Frame};
use crate::{Node, NodeConfig};

const VICTIM: usize = 0;
const HOSTILE: usize = 1;
const HONEST: usize = 2;

/// What the honest neighbour sends.
const SIZE: usize = 1_000_000;

struct Siege {
    m: Mesh,
    /// The hostile node's link, as itself and as the victim call it.
    link: LinkId,
    victims_link: LinkId,
    /// The name of the hostile node's own honest session.
    name: SessionKey,
    flow: FlowId,
    session_of_honest: SessionId,
    written: usize,
    incoming: Option<FlowId>,
    got: usize,
}

/// What is left when the honest transfer is over.
struct End {
    is_complete: bool,
    took: Duration,
    counters: Counters,
    memory: Memory,
    /// Why the victim ended the link to the hostile node, if it did.
    closed: Option<Code>,
    /// The same link, if it still exists.
    stats: Option<LinkStats>,
}

fn siege(config: NodeConfig) -> Siege {
    let conditions = Conditions { loss: 0.02, delay: MS(5), rate: Some(12.5e6), ..Conditions::default() };
    let edges = [(HOSTILE, VICTIM, conditions.clone()), (HONEST, VICTIM, conditions)];
    let mut m = Mesh::new(3, &edges, 9);
    let mut victim = Node::new(config, key(VICTIM as u8), [77; 32], m.now);
    victim.set_addresses(&[ip(VICTIM)]);
    m.nodes[VICTIM] = victim;
    let links = [m.connect(0), m.connect(1)];
    let up = |m: &Mesh| m.events[VICTIM].iter().filter(|e| matches!(e, Event::LinkUp { .. })).count();
    assert!(m.run_until(MS(5000), |m| up(m) == 2));
    let hostile = m.nodes[HOSTILE].public_key();
    let victims_link = m
        .take(VICTIM, |e| match e {
            Event::LinkUp { link, peer } if *peer == hostile => Some(*link),
            _ => None,
        })
        .unwrap();
    let now = m.now;
    let session = m.nodes[HOSTILE].open_session(now, links[0]).unwrap();
    let name = m.nodes[HOSTILE].session_key(session).unwrap();
    let session_of_honest = m.nodes[HONEST].open_session(now, links[1]).unwrap();
    let options = FlowOptions { kind: FlowKind::Stream, ..FlowOptions::default() };
    let flow = m.nodes[HONEST].open_flow(now, session_of_honest, options).unwrap();
    m.run(MS(100));
    Siege { m, link: links[0], victims_link, name, flow, session_of_honest, written: 0, incoming: None, got: 0 }
}

impl Siege {
    /// Frames in a packet of their own from the hostile node.
    fn send(&mut self, frames: &[Frame<'_>]) {
        let mut bytes = Vec::new();
        frames.iter().for_each(|frame| frame.emit(&mut bytes));
        self.send_raw(bytes);
    }

    fn send_raw(&mut self, bytes: Vec<u8>) {
        let now = self.m.now;
        self.m.nodes[HOSTILE].inject(now, self.link, bytes);
    }

    /// A well-formed FLOW_OPEN of the hostile node.
    fn open(&self, session: SessionKey, index: u64, label: u64) -> FlowOpen {
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

    /// Moves the honest transfer on; true when all of it is there.
    fn advance(&mut self) -> bool {
        while self.written < SIZE {
            let now = self.m.now;
            match self.m.nodes[HONEST].write(now, self.flow, &vec![7; (SIZE - self.written).min(65536)]) {
                Ok(n) => self.written += n,
                Err(_) => break,
            }
            if self.written == SIZE {
                self.m.nodes[HONEST].finish(now, self.flow).unwrap();
            }
        }
        if self.incoming.is_none() {
            let honest = self.m.nodes[HONEST].public_key();
            let theirs: Vec<SessionId> = self.m.events[VICTIM]
                .iter()
                .filter_map(|e| match e {
                    Event::SessionIncoming { session, peer, .. } if *peer == honest => Some(*session),
                    _ => None,
                })
                .collect();
            self.incoming = self.m.take(VICTIM, |e| match e {
                Event::FlowIncoming { session, flow, .. } if theirs.contains(session) => Some(*flow),
                _ => None,
            });
        }
        let now = self.m.now;
        while let Some(Ok(Some(bytes))) = self.incoming.map(|flow| self.m.nodes[VICTIM].read(now, flow, 1 << 20)) {
            assert!(bytes.iter().all(|b| *b == 7));
            self.got += bytes.len();
            if bytes.is_empty() {
                return true;
            }
        }
        false
    }

    /// `attack` every so often for as long as the honest transfer takes, and for `least` in any case.
    fn withstand(mut self, every: Duration, least: Duration, mut attack: impl FnMut(&mut Self, u64)) -> End {
        let begun = self.m.now;
        let (mut rounds, mut took, mut next) = (0, None, self.m.now);
        let mut m_now: Time = self.m.now;
        while m_now.since(begun) < least + Duration::from_secs(10) && (took.is_none() || m_now.since(begun) < least) {
            if m_now >= next {
                attack(&mut self, rounds);
                rounds += 1;
                next = m_now + every;
                self.m.wake_at = Some(next);
            }
            if !self.m.step() {
                break;
            }
            m_now = self.m.now;
            if took.is_none() && self.advance() {
                took = Some(m_now.since(begun));
            }
        }
        assert!(rounds > 5, "the attack went on: {rounds} rounds");
        self.end(took, begun)
    }

    fn end(mut self, took: Option<Duration>, begun: Time) -> End {
        let (link, now) = (self.victims_link, self.m.now);
        let closed = self.m.take(VICTIM, |e| match e {
            Event::LinkDown { link: l, reason, .. } if *l == link => Some(reason.code),
            _ => None,
        });
        assert!(self.m.nodes[HONEST].session_link(self.session_of_honest).is_some(), "the honest session lives");
        End {
            is_complete: took.is_some() && self.got == SIZE,
            took: took.unwrap_or(now.since(begun)),
            counters: self.m.nodes[VICTIM].counters(),
            memory: self.m.nodes[VICTIM].memory(),
            closed,
            stats: self.m.nodes[VICTIM].link_stats(link),
        }
    }
}

impl End {
    /// The honest transfer is whole and not much slower than alone, and memory kept within its bound.
    fn assert_withstood(&self) {
        assert!(self.is_complete, "the honest transfer is whole");
        assert!(self.took < MS(2000), "a megabyte at 100 Mbit/s: {:?}", self.took);
        assert!(self.memory.peak <= self.memory.limit, "{:?}", self.memory);
    }
}

/// The largest number of the wire.
const MOST: u64 = (1 << 62) - 1;

fn seq(n: u64) -> Seq {
    Seq(n)
}

/// Numbers as an attacker likes them.
fn numbers(round: u64) -> [u64; 4] {
    let mixed = round.wrapping_mul(0x9e37_79b9_7f4a_7c15);
    [round, mixed & MOST, MOST - round % 3, (1 << (mixed % 62)) - (round & 1)]
}

//! Two nodes joined by several wires, each with its own addresses, rate, delay, loss and outages: a mesh of two.

use super::super::mesh::{Mesh, address};
use super::super::pair::{A, B, Conditions, content};
use crate::event::Event;
use crate::ids::{LinkId, SessionId};
use crate::options::{FlowKind, FlowOptions};
use crate::stats::PathStats;
use crate::units::{Bandwidth, Duration, Time};

/// One wire, both directions alike.
pub(super) fn wire(mbit: f64, delay: Duration, loss: f64) -> Conditions {
    Conditions { rate: Some(mbit * 1e6 / 8.0), delay, loss, ..Conditions::default() }
}

/// Nodes A and B with these wires between them.
pub(super) fn bundle(wires: Vec<Conditions>, seed: u64) -> Mesh {
    let edges: Vec<_> = wires.into_iter().map(|wire| (A, B, wire)).collect();
    Mesh::new(2, &edges, seed)
}

/// A connects to B over the first wire and adds a path over each other one.
pub(super) fn connect(m: &mut Mesh) -> (LinkId, SessionId) {
    let link = m.connect(0);
    let session = m.nodes[A].open_session(m.now, link).unwrap();
    for wire in 1..m.edges.len() {
        m.nodes[A].add_path(m.now, link, address(wire, B), Some(address(wire, A).ip())).unwrap();
    }
    (link, session)
}

pub(super) fn paths(m: &Mesh, node: usize) -> Vec<PathStats> {
    let link = m.nodes[node].sessions().next().map(|s| s.1);
    link.and_then(|l| m.nodes[node].link_stats(l)).map(|s| s.paths).unwrap_or_default()
}

/// What a transfer was like.
pub(super) struct Transfer {
    pub(super) is_done: bool,
    pub(super) took: Duration,
    /// When the application read something, and how much.
    pub(super) reads: Vec<(Time, usize)>,
}

impl Transfer {
    /// The longest pause in what the application read that begins within `span` of `from`.
    pub(super) fn gap(&self, from: Time, span: Duration) -> Duration {
        let around = from.saturating_sub(Duration::from_millis(20))..from + span;
        self.reads.windows(2).filter(|w| around.contains(&w[0].0)).map(|w| w[1].0.since(w[0].0)).max().unwrap_or(Duration::MAX)
    }

    /// Rate at which the application read between two instants.
    pub(super) fn rate(&self, from: Time, to: Time) -> Bandwidth {
        let bytes: usize = self.reads.iter().filter(|r| (from..to).contains(&r.0)).map(|r| r.1).sum();
        Bandwidth::from_transfer(bytes as u64, to.since(from))
    }
}

/// A stream of `len` bytes from A to B.
pub(super) fn transfer(m: &mut Mesh, session: SessionId, len: usize, limit: Duration) -> Transfer {
    let data = content(len, 9);
    let flow = m.nodes[A].open_flow(m.now, session, FlowOptions { kind: FlowKind::Stream, ..Default::default() }).unwrap();
    let (mut written, mut is_finished, mut incoming, mut got) = (0, false, None, Vec::with_capacity(len));
    let mut reads = Vec::new();
    let began = m.now;
    let is_done = m.run_until(limit, |m| {
        while written < len {
            match m.nodes[A].write(m.now, flow, &data[written..]) {
                Ok(n) => written += n,
                Err(_) => break,
            }
        }
        if written == len && !core::mem::replace(&mut is_finished, true) {
            let _ = m.nodes[A].finish(m.now, flow);
        }
        incoming = incoming.or_else(|| m.incoming_flow(B));
        while let Some(f) = incoming
            && let Ok(Some(chunk)) = m.nodes[B].read(m.now, f, 1 << 20)
            && !chunk.is_empty()
        {
            reads.push((m.now, chunk.len()));
            got.extend_from_slice(&chunk);
        }
        m.events[A].iter().any(|e| matches!(e, Event::FlowDelivered(f) if *f == flow))
    });
    assert!(!is_done || got == data, "the content arrives as it was sent");
    Transfer { is_done, took: m.now.since(began), reads }
}

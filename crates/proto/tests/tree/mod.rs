//! One object down a tree of nodes in virtual time: a source, nodes that pass it on, receivers. Each link carries a session of its own, with the packets as
//! datagrams downwards and what is told upwards as messages; packets stay sealed for the receivers.
#![allow(dead_code)]

use super::mesh::Mesh;
use super::pair::{Conditions, content};
use bytes::Bytes;
use noctule_proto::event::Event;
use noctule_proto::ids::{FlowId, LinkId, SessionId};
use noctule_proto::object::one_way::{Announcement, DataKey, id_of};
use noctule_proto::object::{
    ChildId, HashTree, Layout, Poll, Receiver, ReceiverId, Relay, RelayConfig, Root, Sender, SenderConfig, Status, leaf,
};
use noctule_proto::options::{Class, FlowKind, FlowOptions, MessageOptions, Mode};
use noctule_proto::units::{Duration, Probability, Time};
use noctule_proto::wire::varint::Reader;
use std::collections::{BTreeMap, VecDeque};

/// Between two looks of the applications.
const LOOK: Duration = Duration::from_millis(1);
/// Between two statuses while nothing else is to be told.
const TELL: Duration = Duration::from_millis(100);
/// What the packets' links have for repairs.
const LIFETIME: Duration = Duration::from_secs(1);
/// Datagrams that wait in a node per child, in bytes.
const BUFFER: usize = 64 << 10;

/// The way to a child.
struct Down {
    session: SessionId,
    data: FlowId,
    told: Option<FlowId>,
    is_full: bool,
}

/// The way to the parent.
#[derive(Default)]
struct Up {
    data: Option<FlowId>,
    tell: Option<FlowId>,
    told: Option<Status>,
    told_at: Time,
}

struct Passing {
    relay: Relay,
    down: BTreeMap<ChildId, Down>,
    /// A packet that came and was not asked for yet.
    ready: Option<Bytes>,
}

/// A receiver and when it had everything.
pub struct Leaf {
    receiver: Receiver,
    got: BTreeMap<u32, Vec<u8>>,
    pub done_at: Option<Time>,
}

pub struct Tree {
    pub m: Mesh,
    layout: Layout,
    data: Vec<u8>,
    key: DataKey,
    pub sender: Sender,
    passing: BTreeMap<usize, Passing>,
    up: BTreeMap<usize, Up>,
    pub leaves: BTreeMap<usize, Leaf>,
    next_look: Time,
    pub started: Time,
}

const ABOUT: &[u8] = b"an object for many";

impl Tree {
    /// Links from parents to children; node 0 is the source, nodes without children receive. Every parent stands before its children.
    pub fn new(count: usize, links: &[(usize, usize, Conditions)], size: usize, relay: RelayConfig, seed: u64) -> Self {
        let layout = Layout::new(size as u64, 1300, 256, 16, 5).expect("a layout");
        let data = content(size, seed);
        let part = |b: u32| {
            let range = layout.range(b);
            &data[range.start as usize..range.end as usize]
        };
        let tree = HashTree::new((0..layout.blocks()).map(|b| leaf(part(b))).collect());
        let root = Root::of(&layout, ABOUT, &tree.top()).expect("a root");
        let key = Announcement { key: [seed as u8; 32], root, layout, about: ABOUT.to_vec() }.data_key().expect("a key");
        let mut m = Mesh::new(count, links, seed);
        let ids: Vec<LinkId> = (0..links.len()).map(|edge| m.connect(edge)).collect();
        m.run_until(Duration::from_secs(5), |m| {
            m.events.iter().flatten().filter(|e| matches!(e, Event::LinkUp { .. })).count() >= 2 * links.len()
        });
        let (mut passing, mut up, mut leaves): (BTreeMap<usize, Passing>, BTreeMap<usize, Up>, BTreeMap<usize, Leaf>) = Default::default();
        for (edge, (parent, child, _)) in links.iter().enumerate() {
            let now = m.now;
            let session = m.nodes[*parent].open_session(now, ids[edge]).expect("a session");
            let options = FlowOptions {
                mode: Mode::Btp,
                kind: FlowKind::UnorderedMessages,
                class: Class::Bulk,
                lifetime: Some(LIFETIME),
                no_retransmit: Probability::ZERO,
                send_buffer: Some(BUFFER),
                ..FlowOptions::default()
            };
            let data = m.nodes[*parent].open_flow(now, session, options).expect("a flow");
            let of =
                passing.entry(*parent).or_insert_with(|| Passing { relay: Relay::new(layout, relay), down: BTreeMap::new(), ready: None });
            of.relay.add(ChildId(*child as u32));
            of.down.insert(ChildId(*child as u32), Down { session, data, told: None, is_full: false });
            up.insert(*child, Up::default());
        }
        for node in 0..count {
            if !passing.contains_key(&node) {
                let mut receiver = Receiver::new(layout, ABOUT, root, 16 << 20).expect("a receiver");
                receiver.set_leaves(tree.leaves().to_vec()).expect("leaves");
                leaves.insert(node, Leaf { receiver, got: BTreeMap::new(), done_at: None });
            }
        }
        let window = (12 << 20) / layout.block_bytes() as u32;
        let sender = Sender::new(layout, tree, SenderConfig { window, settle: LIFETIME + Duration::from_millis(500) });
        let now = m.now;
        Self { m, layout, data, key, sender, passing, up, leaves, next_look: now, started: now }
    }

    /// Runs until every receiver in `of` has everything; true if they have in time.
    pub fn run(&mut self, limit: Duration, of: impl Fn(usize) -> bool) -> bool {
        let end = self.m.now + limit;
        while self.m.now < end {
            if self.m.now >= self.next_look {
                self.look();
                self.next_look = self.m.now + LOOK;
                self.m.wake_at = Some(self.next_look);
            }
            if self.leaves.iter().filter(|(node, _)| of(**node)).all(|(_, leaf)| leaf.done_at.is_some()) {
                return true;
            }
            self.m.step();
        }
        false
    }

    /// Whether each receiver has what was sent.
    pub fn is_right(&self) -> bool {
        self.leaves.values().all(|leaf| leaf.got.values().flatten().eq(self.data.iter()))
    }

    /// Bytes of IP packets sent down a link, over those of the object.
    pub fn cost(&self, edge: usize) -> f64 {
        (self.m.edges[edge].sent[0] + 28 * self.m.edges[edge].datagrams[0]) as f64 / self.data.len() as f64
    }

    pub fn relay(&self, node: usize) -> &Relay {
        &self.passing[&node].relay
    }

    fn look(&mut self) {
        for node in 0..self.m.nodes.len() {
            self.take_events(node);
        }
        for node in 0..self.m.nodes.len() {
            self.hear(node);
            if node == 0 {
                self.feed();
            } else if self.passing.contains_key(&node) {
                self.pass(node);
            } else {
                self.receive(node);
            }
            self.tell(node);
        }
    }

    fn take_events(&mut self, node: usize) {
        let now = self.m.now;
        for event in std::mem::take(&mut self.m.events[node]) {
            match event {
                Event::SessionIncoming { session, .. } => {
                    let flow = self.m.nodes[node].open_flow(now, session, FlowOptions::default());
                    if let Some(up) = self.up.get_mut(&node) {
                        up.tell = flow.ok();
                    }
                }
                Event::FlowIncoming { session, flow, .. } => {
                    let down = self.passing.get_mut(&node).and_then(|p| p.down.values_mut().find(|d| d.session == session));
                    match (down, self.up.get_mut(&node)) {
                        (Some(down), _) => down.told = Some(flow),
                        (None, Some(up)) => up.data = Some(flow),
                        _ => {}
                    }
                }
                _ => {}
            }
        }
    }

    /// What the children tell.
    fn hear(&mut self, node: usize) {
        let Some(passing) = self.passing.get_mut(&node) else { return };
        for (id, down) in &mut passing.down {
            down.is_full = false;
            let Some(told) = down.told else { continue };
            while let Ok(Some(message)) = self.m.nodes[node].recv_message(self.m.now, told) {
                let status = Status::parse(&mut Reader::new(&message.data), &self.layout).expect("a status");
                passing.relay.on_status(*id, status);
            }
        }
        if node == 0
            && let Some(status) = passing.relay.status()
        {
            self.sender.on_status(self.m.now, ReceiverId(0), status);
        }
    }

    /// The source: fresh packets for its children.
    fn feed(&mut self) {
        while let Some(block) = self.sender.wanted_block() {
            let range = self.layout.range(block);
            self.sender.load(block, self.data[range.start as usize..range.end as usize].to_vec()).expect("unchanged");
        }
        let (sender, key, now) = (&mut self.sender, &self.key, self.m.now);
        let Some(passing) = self.passing.get_mut(&0) else { return };
        Self::give(&mut self.m, 0, passing, |_| {
            let (mut packet, mut datagram) = (Vec::new(), Vec::new());
            let id = sender.poll_packet(now, &mut packet)?;
            key.begin(id, &mut datagram);
            datagram.extend_from_slice(&packet);
            key.finish(&mut datagram).expect("sealed");
            Some(Bytes::from(datagram))
        });
    }

    /// A node in the middle.
    fn pass(&mut self, node: usize) {
        let data = self.up.get(&node).and_then(|up| up.data);
        let Some(passing) = self.passing.get_mut(&node) else { return };
        Self::give(&mut self.m, node, passing, |m| {
            let message = m.nodes[node].recv_message(m.now, data?).ok()??;
            Some(message.data)
        });
    }

    fn give(m: &mut Mesh, node: usize, passing: &mut Passing, mut next: impl FnMut(&mut Mesh) -> Option<Bytes>) {
        loop {
            let Passing { relay, down, .. } = passing;
            match relay.poll(m.now, |child| down.get(&child).is_some_and(|d| !d.is_full)) {
                Poll::Wait(_) => return,
                Poll::Want => match next(m) {
                    None => return,
                    Some(packet) => {
                        if let Some(id) = id_of(&packet) {
                            relay.push(id, packet);
                        }
                    }
                },
                Poll::Send(child, packet) => {
                    let Some(way) = down.get_mut(&child) else { continue };
                    if m.nodes[node].send_message(m.now, way.data, packet, MessageOptions::default()).is_err() {
                        way.is_full = true;
                        relay.refused(child);
                    }
                }
            }
        }
    }

    fn receive(&mut self, node: usize) {
        let (Some(data), Some(leaf)) = (self.up.get(&node).and_then(|up| up.data), self.leaves.get_mut(&node)) else { return };
        let mut datagrams = VecDeque::new();
        while let Ok(Some(message)) = self.m.nodes[node].recv_message(self.m.now, data) {
            datagrams.push_back(message.data);
        }
        for datagram in datagrams {
            if let Ok(packet) = self.key.open(&mut datagram.to_vec()) {
                leaf.receiver.on_packet(packet);
            }
            while let Some((block, content)) = leaf.receiver.poll_block() {
                leaf.got.insert(block, content);
            }
        }
        if leaf.receiver.is_complete() && leaf.done_at.is_none() {
            leaf.done_at = Some(self.m.now);
        }
    }

    /// What the parent should know, when it changed or is some time old.
    fn tell(&mut self, node: usize) {
        let Some(up) = self.up.get_mut(&node) else { return };
        let status = match (self.passing.get(&node), self.leaves.get(&node)) {
            (Some(passing), _) => passing.relay.status(),
            (None, Some(leaf)) => Some(leaf.receiver.status()),
            _ => None,
        };
        let (Some(flow), Some(status)) = (up.tell, status) else { return };
        let is_news = up.told.as_ref().is_none_or(|told| (told.first, told.ahead) != (status.first, status.ahead));
        let is_due = self.m.now.since(up.told_at) >= TELL && up.told.as_ref() != Some(&status);
        // A status that asks for something is an absolute statement: repeated, so that the source knows what time it is of.
        let is_old = self.m.now.since(up.told_at) >= TELL * 5 && !status.is_complete(&self.layout);
        if is_news || is_due || is_old {
            let mut bytes = Vec::new();
            status.emit(&mut bytes);
            if self.m.nodes[node].send_message(self.m.now, flow, bytes.into(), MessageOptions::default()).is_ok() {
                (up.told, up.told_at) = (Some(status), self.m.now);
            }
        }
    }
}

//! The node: links, sessions and flows in keyed collections, driven by datagrams and time.
//!
//! This file only composes: datagrams in (`accept.rs` for those of strangers), datagrams and events out. What an application
//! commands is in `commands.rs`; each machine has its own file, state, deadline and tests.

mod accept;
mod carrying;
mod commands;
mod delivery_monitor;
mod flow_events;
mod half_open;
mod hosts;
mod known;
#[cfg(any(test, fuzzing))]
mod lies;
mod offers;
mod openers;
mod others;
mod relay;
mod renewal;
mod reroute;
mod rest;
mod restarts;
pub mod routing;
mod secure;
mod session_life;
pub(crate) mod sessions;
mod spread;
#[cfg(test)]
mod tests;
mod trains;
mod unproven;

use crate::crypto::{PublicKey, SecretKey};
use crate::deadlines::Deadlines;
use crate::error::{CloseReason, Code, Layer};
use crate::event::Event;
use crate::flows::{InFlow, OutFlow};
use crate::ids::{FlowId, LinkId, PathId, SessionId};
use crate::link::{Link, LinkEvent};
use crate::shard::{Common, Steering};
use crate::shared::{Entropy, Shared};
use crate::trace::{TraceEvent, What};
use crate::units::{Ecn, Time};
use crate::wire::params::MIN_DATAGRAM;
use rand_chacha::ChaCha12Rng;
use rest::RestEvent;
use std::collections::{BTreeMap, BTreeSet, HashMap, VecDeque};
use std::net::{IpAddr, SocketAddr};

pub use crate::config::{AckWish, Answer, NodeConfig, SessionAccess};
pub use crate::datagram::Transmit;
pub use crate::session::Message;
pub use crate::shared::Counters;
pub use relay::RelayLimits;

/// A noctule node as a sans-IO state machine. See the crate's documentation for the order of calls.
#[derive(Debug)]
pub struct Node {
    /// Boxed, as the paths of a link are: a table has room for eleven at each of its places (docs/decisions/0071).
    links: BTreeMap<LinkId, Box<Link>>,
    /// Those that came up, by their neighbour's key.
    by_peer: BTreeSet<(PublicKey, LinkId)>,
    shared: Shared,
    sessions: sessions::Sessions,
    routing: routing::Routing,
    openers: openers::Openers,
    /// Flows that no link carries.
    rest: rest::Rest,
    /// How often other shards and this one had given back room for messages, when flows here were last offered it.
    freed_seen: u64,
    /// Data flows that the application knows.
    known: known::KnownFlows,
    events: VecDeque<Event>,
    /// Links that may have something to send; none: flows that no link carries may have something to tell.
    ready: VecDeque<Option<LinkId>>,
    timers: Deadlines<TimerKey>,
    /// Links that were answered but not confirmed.
    half_open: half_open::HalfOpen,
    /// Links that this node opened.
    initiated: usize,
    /// Datagrams without a link: version lists, cookies.
    replies: VecDeque<(SocketAddr, Option<IpAddr>, Vec<u8>)>,
    throttle: Common<accept::Throttle>,
    /// Links of other shards whose places newer ones took.
    superseded: Vec<LinkId>,
    /// Flows of others that pass.
    relays: relay::Relays,
    /// Flows of ours that take several routes at once, and flows towards us that come so.
    spreads: BTreeMap<FlowId, spread::Spread>,
    joins: HashMap<FlowId, spread::Join>,
    /// Incoming flows whose session is over and that hold everything, until they are read.
    orphans: HashMap<FlowId, Orphan>,
}

/// An incoming flow whose session is over.
#[derive(Debug)]
struct Orphan {
    flow: InFlow,
    /// The link that it came by last.
    came_by: Option<LinkId>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum TimerKey {
    /// Other shards are looked at: see `others.rs`.
    Others,
    Rest,
    Link(LinkId),
    Session(SessionId),
    Spread(FlowId),
}

impl Node {
    /// A node with an identity; `seed` feeds every random choice that it will ever make, keys included, and must come from a secure source outside tests.
    pub fn new(config: NodeConfig, identity: SecretKey, seed: [u8; 32], now: Time) -> Self {
        let config = NodeConfig { max_datagram: config.max_datagram.max(MIN_DATAGRAM), ..config };
        let (mut shared, chance) = Shared::new(config, identity, seed);
        let throttle = Common::new(accept::Throttle::new(now, shared.fork_rng()));
        Self::of(shared, chance, throttle)
    }

    fn of(shared: Shared, mut chance: ChaCha12Rng, throttle: Common<accept::Throttle>) -> Self {
        Self {
            links: BTreeMap::new(),
            by_peer: BTreeSet::new(),
            shared,
            sessions: Default::default(),
            routing: Default::default(),
            openers: openers::Openers::new(&mut chance),
            rest: Default::default(),
            freed_seen: 0,
            known: Default::default(),
            events: VecDeque::new(),
            ready: VecDeque::new(),
            timers: Deadlines::new(),
            half_open: Default::default(),
            initiated: 0,
            replies: VecDeque::new(),
            throttle,
            superseded: Vec::new(),
            relays: Default::default(),
            spreads: BTreeMap::new(),
            joins: HashMap::new(),
            orphans: HashMap::new(),
        }
    }

    /// Mixes what `source` writes into every generator that the node makes from now on: at each handshake, fresh keys and paths. A node that was copied or
    /// set back, with its machine, so does not repeat its secrets. Without it the seed alone decides, as tests want it.
    pub fn set_entropy(&mut self, source: impl FnMut(&mut [u8; 32]) + Send + 'static) {
        self.shared.entropy = Entropy::new(source);
    }

    /// The shards of one endpoint: nodes of which each has links, sessions and flows of its own, and which keep the rules for strangers, keys, places and
    /// memory together. Datagrams go to the shard that [`steering`](Self::steering) says. At least one.
    pub fn shards(config: NodeConfig, identity: SecretKey, seed: [u8; 32], now: Time, count: usize) -> Vec<Self> {
        let mut first = Self::new(config, identity, seed, now);
        let others = if count > 1 { first.shared.split(count) } else { Vec::new() };
        let beside = |mut shared: Shared| {
            let chance = shared.fork_rng();
            let node = Self::of(shared, chance, first.throttle.clone());
            Self { sessions: first.sessions.beside(), half_open: first.half_open.beside(), ..node }
        };
        let others: Vec<Self> = others.into_iter().map(beside).collect();
        std::iter::once(first).chain(others).collect()
    }

    /// Which datagrams are for which shard.
    pub fn steering(&self) -> Steering {
        self.shared.shard.steering
    }

    /// A link of another shard, whose place a newer one of this shard took: [`give_place`](Self::give_place) has to be called there.
    pub fn poll_superseded(&mut self) -> Option<LinkId> {
        self.superseded.pop()
    }

    /// A newer link of the same key took the place of this one.
    pub fn give_place(&mut self, now: Time, link: LinkId) {
        if let Some(older) = self.links.get_mut(&link) {
            older.close(now, CloseReason::local(Code::TooMany, Layer::Link, "newer links of the same key took its place"));
        }
        self.settle(now, link);
    }

    /// This node's public key.
    pub fn public_key(&self) -> PublicKey {
        self.shared.public_key()
    }

    /// `poll_timeout` is due. Calling it early does no harm.
    pub fn handle_timeout(&mut self, now: Time) {
        // Each machine at most once per call: a deadline that only sending can move stays due until the owner has drained `poll_transmit`.
        let mut due: smallvec::SmallVec<[TimerKey; 8]> = smallvec::SmallVec::new();
        while let Some(key) = self.timers.pop_due(now) {
            due.push(key);
        }
        for key in due {
            match key {
                TimerKey::Link(id) => {
                    if let Some(link) = self.links.get_mut(&id) {
                        link.handle_timeout(now, &mut self.shared);
                        self.settle(now, id);
                    }
                }
                TimerKey::Rest => {
                    self.rest.handle_timeout(now, &mut self.shared.flows);
                    self.settle_rest(now);
                }
                TimerKey::Others => self.on_others_timeout(now),
                TimerKey::Session(id) => self.on_session_timeout(now, id),
                TimerKey::Spread(flow) => self.on_spread_timeout(now, flow),
            }
        }
    }

    /// Writes the next datagrams to send into `buf` (cleared first), at most `max_segments` of equal size; `None` when there is nothing to send now.
    pub fn poll_transmit(&mut self, now: Time, max_segments: usize, buf: &mut Vec<u8>) -> Option<Transmit> {
        buf.clear();
        if let Some((remote, local, datagram)) = self.replies.pop_front() {
            buf.extend_from_slice(&datagram);
            return Some(Transmit { remote, local, ecn: Ecn::NotEct, len: buf.len(), segment_size: None });
        }
        while let Some(id) = self.ready.pop_front() {
            let Some(id) = id else {
                self.rest.is_ready = false;
                self.drain_rest(now);
                self.rearm_rest();
                continue;
            };
            let Some(link) = self.links.get_mut(&id) else { continue };
            link.is_ready = false;
            let transmit = link.poll_transmit(now, max_segments, &mut self.shared, buf);
            let is_sent = transmit.is_some();
            self.settle_after_transmit(now, id, is_sent);
            if is_sent {
                return transmit;
            }
            buf.clear();
        }
        None
    }

    /// When `handle_timeout` wants to be called next. O(1).
    pub fn poll_timeout(&self) -> Option<Time> {
        self.timers.earliest()
    }

    /// The next event. O(1) when there is none.
    pub fn poll_event(&mut self) -> Option<Event> {
        self.events.pop_front().or_else(|| self.shared.poll_refusal())
    }

    /// The next trace event, if [`NodeConfig::trace`] asks for them. O(1). Undrained ones are dropped beyond 65,536.
    pub fn poll_trace(&mut self) -> Option<TraceEvent> {
        self.shared.tracer.poll()
    }

    /// Counts of what was refused.
    pub fn counters(&self) -> Counters {
        Counters { half_open: self.half_open.len() as u64, ..self.shared.counters }
    }

    /// Notes that a link may have something to send.
    fn mark_ready(&mut self, id: LinkId) {
        if let Some(link) = self.links.get_mut(&id)
            && !link.is_ready
        {
            link.is_ready = true;
            self.ready.push_back(Some(id));
        }
    }

    fn mark_rest_ready(&mut self) {
        if !core::mem::replace(&mut self.rest.is_ready, true) {
            self.ready.push_back(None);
        }
    }

    /// After a link changed: its events and its turn to send. Its timer is set when it has been asked what it wants to send, which the owner does before
    /// it reads `poll_timeout`: walking every machine's deadline for each datagram of a train cost a seventh of a receiver's time.
    fn settle(&mut self, now: Time, id: LinkId) {
        self.drain_link(now, id);
        self.mark_ready(id);
        self.invite_waiting(now);
        self.await_others(now);
    }

    /// Flows that found no memory may go on, if there is some now.
    fn invite_waiting(&mut self, now: Time) {
        while !self.shared.waiting.is_empty() {
            let Shared { waiting, flows, ledger, .. } = &mut self.shared;
            let Some(id) = waiting.invite(now, flows, ledger) else { return };
            self.touch_in(now, id);
            self.mark_ready_at(self.in_on(id));
        }
    }

    fn settle_after_transmit(&mut self, now: Time, id: LinkId, is_sent: bool) {
        self.drain_link(now, id);
        if is_sent {
            self.mark_ready(id);
        } else {
            // The timer matters only when the link has gone quiet: until then it is polled anyway.
            self.rearm(id);
        }
    }

    fn rearm(&mut self, id: LinkId) {
        let deadline = self.links.get(&id).and_then(|l| l.poll_timeout(&self.shared));
        self.timers.set(TimerKey::Link(id), deadline);
    }

    /// After flows changed that no link carries.
    fn settle_rest(&mut self, now: Time) {
        self.drain_rest(now);
        self.mark_rest_ready();
        self.await_others(now);
    }

    fn rearm_rest(&mut self) {
        self.timers.set(TimerKey::Rest, self.rest.poll_timeout());
    }

    /// What happened to flows that no link carries.
    fn drain_rest(&mut self, now: Time) {
        while let Some(event) = self.rest.poll_event() {
            match event {
                RestEvent::Out(flow, event) => {
                    if !event.is_of_its_route() || self.shared.flows.out(flow).is_some_and(|f| f.on.is_none()) {
                        self.on_out_event(now, flow, event);
                    }
                }
                RestEvent::In(flow, event) => {
                    if !event.is_of_its_route() || self.shared.flows.incoming(flow).is_some_and(|f| f.on.is_none()) {
                        self.on_in_event(now, flow, event);
                    }
                }
            }
        }
        self.pump_sessions_of(now, None);
    }

    /// Turns what happened on a link into sessions' business and the owner's events.
    fn drain_link(&mut self, now: Time, id: LinkId) {
        loop {
            let Some(link) = self.links.get_mut(&id) else { return };
            let Some(event) = link.events.pop_front() else { break };
            match event {
                LinkEvent::Up => {
                    link.was_up = true;
                    self.half_open.remove(id);
                    let (remote, is_up) = (link.paths.get(&PathId(0)).map(|path| path.remote()), link.is_up());
                    if let Some(peer) = link.peer {
                        self.by_peer.insert((peer, id));
                        self.shared.tracer.of(id).emit(now, || What::LinkUp { new: "up", peer: peer.to_string() });
                        self.events.push_back(Event::LinkUp { link: id, peer });
                    }
                    if let Some(remote) = remote.filter(|_| is_up) {
                        self.throttle.lock().on_link_from(now, remote.ip());
                    }
                    self.end_links_of_earlier_process(now, id);
                    self.on_link_up(now, id);
                    self.revise_routes(now);
                }
                LinkEvent::Supersedes(older) if self.shared.shard.owns(older) => self.give_place(now, older),
                LinkEvent::Supersedes(older) => self.superseded.push(older),
                LinkEvent::Down(reason) => {
                    self.half_open.remove(id);
                    self.shared.admitted.lock().remove(id);
                    self.shared.tracer.of(id).emit(now, || What::down(&reason));
                    self.on_link_down(now, id, reason);
                }
                LinkEvent::Out(flow, label, event) => {
                    let is_here = |f: &OutFlow| f.on == Some(id) && f.open.label == label;
                    if !event.is_of_its_route() || self.shared.flows.out(flow).is_some_and(is_here) {
                        self.on_out_event(now, flow, event);
                    }
                }
                LinkEvent::In(flow, label, event) => {
                    let is_here = |f: &InFlow| f.on == Some(id) && f.open.label == label;
                    if !event.is_of_its_route() || self.shared.flows.incoming(flow).is_some_and(is_here) {
                        self.on_in_event(now, flow, event);
                    }
                }
                LinkEvent::Silence => {
                    self.events.push_back(Event::LinkSilent { link: id, is_silent: link.is_silent });
                    self.revise_routes(now);
                }
            }
        }
        if let Some(link) = self.links.get_mut(&id) {
            self.events.extend(core::iter::from_fn(|| link.poll_path_state()));
            self.events.extend(link.poll_target_rate());
        }
        self.pump_sessions_of(now, Some(id));
        if self.links.get(&id).is_some_and(|l| l.is_closed()) {
            self.forget_link(id);
        }
    }

    /// Links with this neighbour that are up, the newest last.
    fn links_with(&self, peer: PublicKey) -> impl DoubleEndedIterator<Item = &Link> {
        let known = self.by_peer.range((peer, LinkId(0))..=(peer, LinkId(u64::MAX))).inspect(|_| crate::work::step());
        known.filter_map(|(_, id)| self.links.get(id)).map(|link| &**link).filter(|link| link.is_up())
    }

    fn forget_link(&mut self, id: LinkId) {
        let Some(link) = self.links.remove(&id) else { return };
        if let Some(peer) = link.peer {
            self.by_peer.remove(&(peer, id));
        }
        self.half_open.remove(id);
        self.shared.admitted.lock().remove(id);
        if link.peer.is_none_or(|peer| !self.shared.admitted.lock().has_one_of(peer)) {
            self.openers.forget(link.neighbour());
        }
        self.initiated -= usize::from(link.is_initiator);
        for (_, flow) in link.labels.all_out() {
            if let Some(flow) = self.shared.flows.lose_out(flow) {
                self.shared.ledger.close(&flow.account);
            }
            self.known.remove(flow);
        }
        for (_, flow) in link.labels.all_in() {
            if let Some(flow) = self.shared.flows.lose_in(flow) {
                self.shared.ledger.close(&flow.account);
            }
            self.known.remove(flow);
        }
        self.shared.forget_link(id);
        self.timers.set(TimerKey::Link(id), None);
    }
}

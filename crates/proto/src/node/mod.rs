//! The node: links, sessions and flows in keyed collections, driven by datagrams and time.
//!
//! This file only composes: datagrams in (`accept.rs` for those of strangers), datagrams and events out. What an application
//! commands is in `commands.rs`; each machine has its own file, state, deadline and tests.

mod accept;
pub(crate) mod admission;
mod bucket;
mod commands;
mod flow_events;
mod half_open;
mod hosts;
pub(crate) mod ledger;
#[cfg(any(test, fuzzing))]
mod lies;
mod openers;
mod places;
mod refusals;
mod relay;
mod renewal;
mod reroute;
mod restarts;
pub mod routing;
mod secure;
mod session_life;
pub(crate) mod sessions;
pub(crate) mod shared;
mod spread;
#[cfg(test)]
mod tests;
mod trains;
mod unproven;
mod vigilance;

use crate::congestion::CongestionControl;
use crate::crypto::{PreSharedKeys, PublicKey, SecretKey, SharedKey};
use crate::deadlines::Deadlines;
use crate::error::{CloseReason, Code, Layer};
use crate::event::Event;
use crate::ids::{FlowId, LinkId, PathId, SessionId};
use crate::link::flows::InFlow;
use crate::link::{Link, LinkEvent};
use crate::trace::{TraceEvent, What};
use crate::units::{Duration, Ecn, Time};
use crate::wire::params::MIN_DATAGRAM;
use bytes::Bytes;
use shared::Shared;
use std::collections::{BTreeMap, HashMap, VecDeque};
use std::net::{IpAddr, SocketAddr};

pub use relay::RelayLimits;
pub use secure::SessionAccess;
pub use shared::Counters;

/// Everything about a node that its owner may set. Each default is stated with its unit.
#[derive(Clone)]
pub struct NodeConfig {
    /// Congestion control of every path. Default `model`.
    pub congestion: CongestionControl,
    /// Largest UDP payload to send over IPv4, in bytes: the largest packet minus IP and UDP headers. Over IPv6 it is 20 less, for its header is longer.
    /// Default 1472, which makes packets of 1500; at least 800. What routes and paths take below it is found out.
    pub max_datagram: u16,
    /// Nothing heard for this long ends a link (P23). Default 30 s.
    pub idle_timeout: Duration,
    /// A link with sessions is never silent for longer than this, so that NATs and firewalls on the way do not forget it (P23). Default none: a third of
    /// the idle timeout, which is also the most.
    pub keep_alive: Option<Duration>,
    /// An attempt to reach a peer ends after this long. Default 10 s.
    pub connect_timeout: Duration,
    /// Ceiling of the memory of one flow, in bytes, at each end (P13). Default 128 MiB.
    pub flow_memory: usize,
    /// Ceiling of the memory of all flows of the node, in bytes. Default 512 MiB.
    pub node_memory: usize,
    /// Largest message that this node takes, in bytes (P18). Default 16 MiB.
    pub max_message: usize,
    /// Links that others open, at most, once they are up; the node's own are as many at most, and not counted among these. Default 1024.
    pub max_links: usize,
    /// Of these, links of one key at a time: a further one takes the place of the oldest, which ends with `TooMany`. Default 32, a 32nd of all: programs of one user
    /// that call at the same time have as many, and what restarts and lost addresses leave behind is far less.
    pub max_links_per_key: usize,
    /// Sessions, at most. Default 1024.
    pub max_sessions: usize,
    /// Flows per session and direction, at most. Default 256.
    pub max_flows: usize,
    /// Flows that come by one link, those that pass this node included, at most. Default 4096.
    pub max_link_flows: usize,
    /// Packets in one key epoch (P3); a power of two. Default 2^20; tests use 1024.
    pub epoch_packets: u64,
    /// Fresh Diffie-Hellman after this long or 2^26 packets (P3), on links and in relayed sessions that are opened here. Default 120 s.
    pub rekey_after: Duration,
    /// Packets, both directions together, after which a fresh Diffie-Hellman is due, on a link and in a relayed session. Default 2^26.
    pub rekey_packets: u64,
    /// Mark packets as ECN-capable. Default true.
    pub ecn: bool,
    /// How often this node's packets shall be acknowledged (P8); its neighbours are told.
    pub acks: AckWish,
    /// Keys that may connect; `None` lets anyone. Default `None`.
    pub authorised: Option<Vec<PublicKey>>,
    /// Who may open sessions to this node's addresses over relays. Default: whoever may open links.
    pub sessions_from: SessionAccess,
    /// Pre-shared key mixed into the handshakes of relayed sessions, in both directions; the far ends need the same. Default none.
    pub session_psk: Option<SharedKey>,
    /// Accept links that others open. Default true.
    pub accept: bool,
    /// Who is answered at all. Default anyone.
    pub answer: Answer,
    /// Seal nothing, for measurement only; both sides must say so. Default false.
    pub plaintext: bool,
    /// Pre-shared key mixed into the handshake; both sides need the same. Default none.
    pub psk: Option<SharedKey>,
    /// Pre-shared keys of single neighbours, by their static key: each takes the place of [`Self::psk`] for one. Default none.
    pub neighbour_psks: BTreeMap<PublicKey, SharedKey>,
    /// Longest burst in time that the pacer releases at once. Default 100 us (P11); a driver whose timers and system calls are coarser asks for more,
    /// and `noctule`'s own does (docs/decisions/0021).
    pub pacing_quantum: Duration,
    /// Flows that promise delivery and go to a far end that several routes of one metric lead to take all of them at once (docs/spec/multipath.md 6). Default true;
    /// false: each flow takes one route at a time.
    pub several_routes: bool,
    /// Make trace events, to be drained with [`Node::poll_trace`] (P22). Default false.
    pub trace: bool,
    /// Each neighbour's key belongs to one process: a link that comes up with a later process of the same key ends the links of the one before, whose other
    /// end is gone. Default false, as several programs of one user have one key.
    pub one_process_per_key: bool,
}

/// Whose first packets are answered.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Answer {
    /// Anyone's: a stranger learns that there is a node, and its key.
    #[default]
    Anyone,
    /// Those of nodes that know this node's public key. To others the port is silent.
    Known,
}

/// What a sender asks of those who acknowledge its packets (P8). Gaps in what comes of latency flows are acknowledged at once all the same.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct AckWish {
    /// One acknowledgement per so many packets, if they come faster than one per millisecond. Default 32; 1 to 1024.
    pub every: u16,
    /// None waits longer than this, nor than a quarter of a round trip (or 2 ms, where that is more). Default 25 ms; 1 to 25 ms. Sooner costs
    /// bytes on the way back.
    pub max_delay: Duration,
}

impl AckWish {
    const MOST_PACKETS: u16 = 1024;
    const LONGEST: Duration = Duration::from_millis(25);

    /// Within what both ends understand: loss detection waits for acknowledgements as long as the rule says, no longer.
    pub(crate) fn bounded(self) -> Self {
        Self { every: self.every.clamp(1, Self::MOST_PACKETS), max_delay: self.max_delay.clamp(Duration::from_millis(1), Self::LONGEST) }
    }
}

impl Default for AckWish {
    fn default() -> Self {
        Self { every: 32, max_delay: Self::LONGEST }
    }
}

/// The header of IPv6 is so much longer than that of IPv4, in bytes.
const IPV6_EXTRA: u16 = 20;

impl NodeConfig {
    /// Largest UDP payload towards this address, in bytes.
    pub fn max_datagram_to(&self, remote: SocketAddr) -> u16 {
        match remote.ip().to_canonical() {
            IpAddr::V4(_) => self.max_datagram,
            IpAddr::V6(_) => self.max_datagram.saturating_sub(IPV6_EXTRA).max(MIN_DATAGRAM),
        }
    }

    /// Every pre-shared key that is mixed into handshakes of links.
    pub(crate) fn psks(&self) -> PreSharedKeys<'_> {
        PreSharedKeys { everybody: self.psk.as_ref().map(SharedKey::as_bytes), own: &self.neighbour_psks }
    }
}

impl Default for NodeConfig {
    fn default() -> Self {
        Self {
            congestion: CongestionControl::Model,
            max_datagram: 1472,
            idle_timeout: Duration::from_secs(30),
            keep_alive: None,
            connect_timeout: Duration::from_secs(10),
            flow_memory: 128 << 20,
            node_memory: 512 << 20,
            max_message: 16 << 20,
            max_links: 1024,
            max_links_per_key: 32,
            max_sessions: 1024,
            max_flows: 256,
            max_link_flows: 4096,
            epoch_packets: 1 << 20,
            rekey_after: Duration::from_secs(120),
            rekey_packets: crate::crypto::GENERATION_PACKETS,
            ecn: true,
            acks: AckWish::default(),
            authorised: None,
            sessions_from: SessionAccess::AsLinks,
            session_psk: None,
            accept: true,
            answer: Answer::Anyone,
            plaintext: false,
            psk: None,
            neighbour_psks: BTreeMap::new(),
            pacing_quantum: Duration::from_micros(100),
            several_routes: true,
            trace: false,
            one_process_per_key: false,
        }
    }
}

/// Datagrams to send: `buf[..len]` of the buffer handed in, cut into `segment_size` pieces if there are several (GSO).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Transmit {
    /// Where to.
    pub remote: SocketAddr,
    /// From which local address, if it matters.
    pub local: Option<IpAddr>,
    /// ECN codepoint.
    pub ecn: Ecn,
    /// Total bytes.
    pub len: usize,
    /// All pieces have this length except the last, which may be shorter; `None`: one datagram.
    pub segment_size: Option<usize>,
}

/// A message that was received.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Message {
    /// Number that the sender counted, from 0.
    pub id: u64,
    /// Content.
    pub data: Bytes,
}

/// A noctule node as a sans-IO state machine. See the crate's documentation for the order of calls.
#[derive(Debug)]
pub struct Node {
    /// Boxed, as the paths of a link are: a table has room for eleven at each of its places (docs/decisions/0071).
    links: BTreeMap<LinkId, Box<Link>>,
    shared: Shared,
    /// Where each flow of an application lives.
    flows: places::Places,
    events: VecDeque<Event>,
    /// Links that may have something to send.
    ready: VecDeque<LinkId>,
    timers: Deadlines<TimerKey>,
    /// Links that were answered but not confirmed.
    half_open: half_open::HalfOpen,
    /// Links that this node opened.
    initiated: usize,
    /// Datagrams without a link: version lists, cookies.
    replies: VecDeque<(SocketAddr, Option<IpAddr>, Vec<u8>)>,
    throttle: accept::Throttle,
    /// Flows of others that pass.
    relays: relay::Relays,
    /// Flows of ours that take several routes at once, and flows towards us that come so.
    spreads: BTreeMap<FlowId, spread::Spread>,
    joins: HashMap<FlowId, spread::Join>,
    /// Incoming flows whose session is over and that hold everything, until they are read.
    orphans: HashMap<FlowId, InFlow>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum TimerKey {
    Link(LinkId),
    Session(SessionId),
    Spread(FlowId),
}

impl Node {
    /// A node with an identity; `seed` feeds every random choice that it will ever make, keys included, and must come from a secure source outside tests.
    pub fn new(config: NodeConfig, identity: SecretKey, seed: [u8; 32], now: Time) -> Self {
        let config = NodeConfig { max_datagram: config.max_datagram.max(MIN_DATAGRAM), ..config };
        let mut shared = Shared::new(config, identity, seed);
        let throttle = accept::Throttle::new(now, shared.fork_rng());
        Self {
            links: BTreeMap::from([(reroute::PARKING, Box::new(reroute::parking(now)))]),
            shared,
            flows: places::Places::default(),
            events: VecDeque::new(),
            ready: VecDeque::new(),
            timers: Deadlines::new(),
            half_open: Default::default(),
            initiated: 0,
            replies: VecDeque::new(),
            throttle,
            relays: Default::default(),
            spreads: BTreeMap::new(),
            joins: HashMap::new(),
            orphans: HashMap::new(),
        }
    }

    /// Mixes what `source` writes into every generator that the node makes from now on: at each handshake, fresh keys and paths. A node that was copied or
    /// set back, with its machine, so does not repeat its secrets. Without it the seed alone decides, as tests want it.
    pub fn set_entropy(&mut self, source: impl FnMut(&mut [u8; 32]) + Send + 'static) {
        self.shared.entropy = shared::Entropy::new(source);
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
        self.events.pop_front().or_else(|| self.shared.refusals.poll())
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
            self.ready.push_back(id);
        }
    }

    /// After a link changed: its events and its turn to send. Its timer is set when it has been asked what it wants to send, which the owner does before
    /// it reads `poll_timeout`: walking every machine's deadline for each datagram of a train cost a seventh of a receiver's time.
    fn settle(&mut self, now: Time, id: LinkId) {
        self.drain_link(now, id);
        self.mark_ready(id);
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
                        self.shared.tracer.of(id).emit(now, || What::LinkUp { new: "up", peer: peer.to_string() });
                        self.events.push_back(Event::LinkUp { link: id, peer });
                    }
                    if let Some(remote) = remote.filter(|_| is_up) {
                        self.throttle.on_link_from(now, remote.ip());
                    }
                    self.end_links_of_earlier_process(now, id);
                    self.on_link_up(now, id);
                    self.revise_routes(now);
                }
                LinkEvent::Supersedes(older) => {
                    if let Some(older) = self.links.get_mut(&older) {
                        older.close(now, CloseReason::local(Code::TooMany, Layer::Link, "newer links of the same key took its place"));
                    }
                    self.settle(now, older);
                }
                LinkEvent::Down(reason) => {
                    self.half_open.remove(id);
                    self.shared.admitted.remove(id);
                    self.shared.tracer.of(id).emit(now, || What::down(&reason));
                    self.on_link_down(now, id, reason);
                }
                LinkEvent::FlowOpened(label) => self.on_flow_opened(now, id, label),
                LinkEvent::Lead(session, label, packet) => self.on_session_lead(now, id, label, session, &packet),
                LinkEvent::Proven(session) => self.confirm(now, session),
                LinkEvent::Control(session, message) => self.on_session_message(now, session, &message),
                LinkEvent::Readable(flow) => self.events.push_back(Event::FlowReadable(flow)),
                LinkEvent::Writable(flow) => self.events.push_back(Event::FlowWritable(flow)),
                LinkEvent::Polluted(label) => self.on_pollution(now, id, label),
                LinkEvent::Skipped(label) => self.on_flow_skipped(now, id, label),
                LinkEvent::Ended(label) => self.on_flow_ended(now, id, label),
                LinkEvent::Received(label) => self.on_flow_received(now, id, label),
                LinkEvent::Finished(label) => self.on_flow_finished(now, id, label),
                LinkEvent::Delivered(label) => self.on_flow_delivered(now, id, label),
                LinkEvent::OutClosed(label, reason) => self.on_out_closed(now, id, label, reason),
                LinkEvent::InClosed(label, reason) => self.on_in_closed(now, id, label, reason),
                LinkEvent::RelayedOpen(open) => self.on_relayed_open(now, id, *open),
                LinkEvent::Relay(relay) => self.advance_relay(now, relay),
                LinkEvent::Pieces(label) => self.take_pieces(now, id, label),
                LinkEvent::Hungry(session, index) => {
                    if let Some(flow) = self.shared.sessions.entry(session).and_then(|e| e.session.flows().outgoing(index)) {
                        self.feed(now, flow);
                    }
                }
                LinkEvent::Progress(label) => self.on_flow_progress(now, id, label),
                LinkEvent::Silence => {
                    self.events.push_back(Event::LinkSilent { link: id, is_silent: link.is_silent });
                    self.revise_routes(now);
                }
            }
        }
        if let Some(link) = self.links.get_mut(&id) {
            self.events.extend(core::iter::from_fn(|| link.poll_standing()));
        }
        self.pump_sessions_of(now, id);
        if self.links.get(&id).is_some_and(|l| l.is_closed()) {
            self.forget_link(id);
        }
    }

    fn forget_link(&mut self, id: LinkId) {
        let Some(link) = self.links.remove(&id) else { return };
        self.half_open.remove(id);
        self.shared.admitted.remove(id);
        if link.peer.is_none_or(|peer| !self.shared.admitted.has_one_of(peer)) {
            self.shared.openers.forget(link.neighbour());
        }
        self.initiated -= usize::from(link.is_initiator);
        for flow in link.flows.out.values() {
            self.shared.ledger.close(&flow.account);
            self.flows.remove(&flow.id);
        }
        for flow in link.flows.incoming.values() {
            self.shared.ledger.close(&flow.account);
            self.flows.remove(&flow.id);
        }
        self.shared.forget_link(id);
        self.timers.set(TimerKey::Link(id), None);
    }
}

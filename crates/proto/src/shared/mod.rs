//! What all links of a node share: configuration, identity, randomness, names, connection ids, memory.

mod admitted;
pub(crate) mod bucket;
#[cfg(any(test, fuzzing))]
mod lies;
mod refusals;
mod waiting;

use crate::config::{INITIAL_CREDIT, NodeConfig};
use crate::crypto::mac1::Mac1;
use crate::crypto::{PublicKey, SecretKey};
use crate::error::Code;
use crate::event::Event;
use crate::flows::Flows;
use crate::ids::{FlowId, LinkId, PathId};
use crate::ledger::Ledger;
use crate::path::PathConfig;
use crate::session::MessageBudget;
use crate::shard::{Common, Shard, Steering};
use crate::trace::Tracer;
use crate::units::Time;
use crate::wire::packet::ConnectionId;
use crate::wire::params::Params;
use crate::work;
use rand_chacha::ChaCha12Rng;
use rand_core::{Rng, SeedableRng};
use smallvec::SmallVec;
use std::collections::{BTreeSet, HashMap, VecDeque};
use std::net::SocketAddr;

pub(crate) use admitted::Admission;

/// Connection ids that this node gives out have this many bytes (P2, P6).
pub(crate) const CID_LEN: usize = 4;

/// Counts of what a node refused or survived.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counters {
    /// Datagrams that were no packet of ours.
    pub malformed: u64,
    /// Protected packets of connections that this node does not have.
    pub unknown: u64,
    /// Protected packets that the keys did not open, or for which there was no key any more.
    pub undecryptable: u64,
    /// Packets that were replayed, or arrived beyond the replay window.
    pub replayed: u64,
    /// Handshakes refused or answered with a cookie.
    pub throttled: u64,
    /// Of these, answered with a cookie (stateless retry).
    pub retries: u64,
    /// Coded packets refused.
    pub refused: u64,
    /// Flows of neighbours refused: no memory, too many, unknown, or not for this node.
    pub refused_flows: u64,
    /// Of these, refused because their session is not known here, or not any more: an end of it has restarted, or has left it.
    pub stale_flows: u64,
    /// Of these, refused because there are too many sessions.
    pub refused_sessions: u64,
    /// Links ended because the neighbour sent what no honest one sends: lies in acknowledgements, frames that cannot be read.
    pub violations: u64,
    /// Coded packets of sealed flows that nobody with their keys made (P16).
    pub polluted: u64,
    /// Links that were answered and not confirmed, at present.
    pub half_open: u64,
}

impl std::ops::AddAssign for Counters {
    fn add_assign(&mut self, other: Self) {
        let Self {
            malformed,
            unknown,
            undecryptable,
            replayed,
            throttled,
            retries,
            refused,
            refused_flows,
            stale_flows,
            refused_sessions,
            violations,
            polluted,
            half_open,
        } = other;
        self.malformed += malformed;
        self.unknown += unknown;
        self.undecryptable += undecryptable;
        self.replayed += replayed;
        self.throttled += throttled;
        self.retries += retries;
        self.refused += refused;
        self.refused_flows += refused_flows;
        self.stale_flows += stale_flows;
        self.refused_sessions += refused_sessions;
        self.violations += violations;
        self.polluted += polluted;
        self.half_open += half_open;
    }
}

impl Counters {
    /// Every count with its name, for reports; `half_open` is a state, the others only grow.
    pub fn named(&self) -> [(&'static str, u64); 13] {
        [
            ("malformed", self.malformed),
            ("unknown", self.unknown),
            ("undecryptable", self.undecryptable),
            ("replayed", self.replayed),
            ("throttled", self.throttled),
            ("retries", self.retries),
            ("refused", self.refused),
            ("refused_flows", self.refused_flows),
            ("stale_flows", self.stale_flows),
            ("refused_sessions", self.refused_sessions),
            ("violations", self.violations),
            ("polluted", self.polluted),
            ("half_open", self.half_open),
        ]
    }
}

/// Writes fresh random bytes.
type Source = dyn FnMut(&mut [u8; 32]) + Send;

/// Where fresh randomness comes from: the driver, for this crate draws none itself.
#[derive(Default)]
pub(crate) struct Entropy(Option<Box<Source>>);

impl Entropy {
    pub(crate) fn new(source: impl FnMut(&mut [u8; 32]) + Send + 'static) -> Self {
        Self(Some(Box::new(source)))
    }

    fn draw(&mut self) -> Option<[u8; 32]> {
        let source = self.0.as_mut()?;
        let mut fresh = [0; 32];
        source(&mut fresh);
        Some(fresh)
    }
}

impl core::fmt::Debug for Entropy {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.write_str(if self.0.is_some() { "Entropy(driver)" } else { "Entropy(seed)" })
    }
}

/// See the module's documentation.
#[derive(Debug)]
pub(crate) struct Shared {
    pub(crate) config: NodeConfig,
    pub(crate) identity: SecretKey,
    /// This process among all that have had this identity: handshakes say it, so that far ends tell a restarted node from one that was away.
    pub(crate) restart_epoch: u64,
    /// For first packets to this node.
    pub(crate) mac1: Mac1,
    /// This node among those of its endpoint.
    pub(crate) shard: Shard,
    pub(crate) admitted: Common<admitted::Admitted>,
    refusals: Common<refusals::Refusals>,
    /// Refusals that the owner is to hear of.
    refused: VecDeque<Event>,
    /// All flows of the node.
    pub(crate) flows: Flows,
    pub(crate) ledger: Ledger,
    pub(crate) counters: Counters,
    pub(crate) tracer: Tracer,
    /// What incomplete messages of all flows may hold together (P18).
    pub(crate) messages: MessageBudget,
    /// Incoming flows whose message waits for room in that budget.
    pub(crate) starved: BTreeSet<FlowId>,
    /// Incoming flows that wait for memory.
    pub(crate) waiting: waiting::Waiting,
    #[cfg(any(test, fuzzing))]
    pub(crate) lies: lies::Lies,
    rng: ChaCha12Rng,
    pub(crate) entropy: Entropy,
    cids: HashMap<ConnectionId, (LinkId, PathId)>,
    /// The same ids by link: what a link leaves is found without looking at others'.
    cids_of: BTreeSet<(LinkId, ConnectionId)>,
    next_flow: u64,
    next_link: u64,
}

impl Shared {
    /// The second: chances of their own for machines beside, on which nothing else depends.
    pub(crate) fn new(config: NodeConfig, identity: SecretKey, seed: [u8; 32]) -> (Self, ChaCha12Rng) {
        let messages = MessageBudget::new(config.max_message.max(config.node_memory / 4));
        let mut rng = ChaCha12Rng::from_seed(seed);
        let mut epoch = [0; 8];
        rng.fill_bytes(&mut epoch);
        // Chances of its own: nothing else depends on whether there are these.
        let mut chance = rng.clone();
        chance.set_stream(1);
        let mut told = [0; 32];
        chance.fill_bytes(&mut told);
        let shared = Self {
            shard: Shard::alone(),
            refusals: Common::new(refusals::Refusals::new(told)),
            refused: VecDeque::new(),
            flows: Flows::default(),
            ledger: Ledger::new(config.node_memory),
            tracer: Tracer::new(config.trace),
            config,
            mac1: Mac1::new(&identity.public()),
            admitted: Default::default(),
            identity,
            restart_epoch: u64::from_be_bytes(epoch) >> 2,
            counters: Counters::default(),
            messages,
            starved: BTreeSet::new(),
            waiting: Default::default(),
            #[cfg(any(test, fuzzing))]
            lies: Default::default(),
            rng,
            entropy: Entropy::default(),
            cids: HashMap::new(),
            cids_of: BTreeSet::new(),
            next_flow: 0,
            next_link: 0,
        };
        (shared, chance)
    }

    /// Makes it the first of several shards; what the others begin with.
    pub(crate) fn split(&mut self, count: usize) -> Vec<Self> {
        let [add, first, second] = std::array::from_fn(|_| u32::from_be_bytes(self.random_bytes()));
        let steering = Steering::new(u32::try_from(count).unwrap_or(u32::MAX), [add, first, second]);
        let mut ledgers = Ledger::of_shards(self.config.node_memory, count);
        if let Some(ledger) = ledgers.next() {
            (self.ledger, self.shard) = (ledger, Shard { steering, index: 0 });
        }
        let others = ledgers.enumerate().map(|(at, ledger)| {
            let (shared, _) = Self::new(self.config.clone(), self.identity.clone(), self.random_bytes());
            Self {
                shard: Shard { steering, index: at + 1 },
                ledger,
                admitted: self.admitted.clone(),
                refusals: self.refusals.clone(),
                messages: self.messages.clone(),
                // One process, whichever shard a neighbour's links come to.
                restart_epoch: self.restart_epoch,
                ..shared
            }
        });
        others.collect()
    }

    /// Whether a caller that may not call is told so.
    pub(crate) fn may_tell_refusal(&self, now: Time, remote: SocketAddr) -> bool {
        self.refusals.lock().may_tell(now, remote)
    }

    /// A link was refused.
    pub(crate) fn note_refusal(&mut self, now: Time, peer: PublicKey, remote: SocketAddr, reason: Code) {
        let is_full = self.refused.len() >= refusals::HEARD.burst as usize;
        if let Some(left_out) = self.refusals.lock().note(now, is_full) {
            self.refused.push_back(Event::LinkRefused { peer, remote, reason, left_out });
        }
    }

    /// The next refusal that the owner is to hear of.
    pub(crate) fn poll_refusal(&mut self) -> Option<Event> {
        self.refused.pop_front()
    }

    pub(crate) fn random_bytes<const N: usize>(&mut self) -> [u8; N] {
        let mut out = [0; N];
        self.rng.fill_bytes(&mut out);
        out
    }

    /// A generator of its own for a machine below, fed afresh if there is something to feed it with.
    pub(crate) fn fork_rng(&mut self) -> ChaCha12Rng {
        if let Some(fresh) = self.entropy.draw() {
            let old = self.random_bytes::<32>();
            self.rng = ChaCha12Rng::from_seed(crate::crypto::mixed(&old, &fresh));
        }
        ChaCha12Rng::from_seed(self.random_bytes())
    }

    pub(crate) fn random_cid(&mut self) -> ConnectionId {
        ConnectionId::new(&self.random_bytes::<CID_LEN>()).unwrap_or_default()
    }

    /// A fresh connection id that leads to a path of a link.
    pub(crate) fn new_cid(&mut self, link: LinkId, path: PathId) -> ConnectionId {
        loop {
            let id = self.random_cid();
            let word = id.as_bytes().first_chunk().map_or(0, |word| u32::from_be_bytes(*word));
            if self.shard.steering.of_word(word) != self.shard.index {
                continue;
            }
            if let std::collections::hash_map::Entry::Vacant(slot) = self.cids.entry(id.clone()) {
                slot.insert((link, path));
                self.cids_of.insert((link, id.clone()));
                return id;
            }
        }
    }

    pub(crate) fn lookup_cid(&self, id: &ConnectionId) -> Option<(LinkId, PathId)> {
        self.cids.get(id).copied()
    }

    pub(crate) fn forget_cid(&mut self, id: &ConnectionId) {
        if let Some((link, _)) = self.cids.remove(id) {
            self.cids_of.remove(&(link, id.clone()));
        }
    }

    /// Forgets a link's ids, in as many steps as it has ids.
    pub(crate) fn forget_link(&mut self, link: LinkId) {
        let first = (link, ConnectionId::default());
        let own = self.cids_of.range(first..).inspect(|_| work::step()).take_while(|(l, _)| *l == link);
        let ids: SmallVec<[ConnectionId; 4]> = own.map(|(_, id)| id.clone()).collect();
        ids.iter().for_each(|id| self.forget_cid(id));
    }

    /// Tells the ledger what a flow holds.
    pub(crate) fn settle_out(&mut self, id: FlowId) {
        if let Some(flow) = self.flows.out_mut(id) {
            flow.settle(&mut self.ledger);
        }
    }

    pub(crate) fn settle_in(&mut self, id: FlowId) {
        if let Some(flow) = self.flows.incoming_mut(id) {
            flow.settle(&mut self.ledger);
            if flow.sink.is_starved() {
                self.starved.insert(id);
            }
        }
    }

    pub(crate) fn next_flow_id(&mut self) -> FlowId {
        self.next_flow = self.shard.next_name(self.next_flow);
        FlowId(self.next_flow)
    }

    pub(crate) fn next_link_id(&mut self) -> LinkId {
        self.next_link = self.shard.next_name(self.next_link);
        LinkId(self.next_link)
    }

    /// What this node says of itself in a handshake.
    pub(crate) fn local_params(&self, answered_size: Option<u16>) -> Params {
        Params {
            idle_timeout: self.config.idle_timeout,
            max_datagram: self.config.max_datagram,
            initial_credit: INITIAL_CREDIT,
            max_message: self.config.max_message as u64,
            max_flows: self.config.max_flows as u64,
            epoch_log2: self.config.epoch_packets.max(1024).ilog2() as u8,
            plaintext: self.config.plaintext,
            answered_size,
            restart_epoch: Some(self.restart_epoch),
            max_ack_delay: self.config.acks.bounded().max_delay,
            ack_every: self.config.acks.bounded().every.into(),
            ciphers: crate::crypto::preferred_ciphers().into_iter().collect(),
            ..Params::default()
        }
    }

    /// The same as bytes; `is_private`: only the far end can read them.
    pub(crate) fn params_payload(&mut self, answered_size: Option<u16>, is_private: bool) -> Vec<u8> {
        let mut out = Vec::new();
        let grease = self.random_bytes::<1>()[0];
        let mut params = self.local_params(answered_size);
        params.restart_epoch = params.restart_epoch.filter(|_| is_private);
        params.emit(&mut out, grease);
        out
    }

    pub(crate) fn path_config(&self) -> PathConfig {
        PathConfig {
            congestion: self.config.congestion,
            ecn: self.config.ecn,
            pacing_quantum: self.config.pacing_quantum,
            ..PathConfig::default()
        }
    }

    pub(crate) fn public_key(&self) -> PublicKey {
        self.identity.public()
    }
}

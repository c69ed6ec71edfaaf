//! A relay of blind streams: what raises the rank passes at once, and when a batch is over, combinations follow, more of them for batches of higher rank.
//!
//! It has no keys and decodes nothing. How much it may send for a batch follows from its link: the packets that the rate carries while one batch
//! comes in. How they are shared among batches of different rank is adaptive recoding for the loss that the owner states and the ranks that
//! were seen (RFC 9426 §4.1).

use super::held::in_turn;
use super::passing::{PAUSE, Place, Stream};
use super::queue::{Backlog, PacedQueue};
use super::{Announcement, Coefficients, Packet, StreamName};
use crate::admission::{Admission, Host};
use crate::crypto::{Addressed, PublicKey};
use crate::switch::{self, Mechanism};
use crate::units::{Bandwidth, Duration, Probability, Time};
use core::net::IpAddr;
use rand_chacha::ChaCha12Rng;
use rand_core::{Rng, SeedableRng};
use std::collections::{BTreeMap, BTreeSet, VecDeque};

/// What a [`Relay`] is made of.
#[derive(Clone, Debug)]
pub struct RelayConfig {
    /// Of the link that leads on, in IP bytes.
    pub rate: Bandwidth,
    /// What it is expected to lose.
    pub loss: Probability,
    /// Bytes of the largest symbol that passes.
    pub symbol: u16,
    /// Bytes of rows and of datagrams that wait, of all streams; of one stream and one host see [`Relay`].
    pub memory: usize,
    /// Whose streams pass, by the public keys of their destinations; empty: all.
    pub destinations: Vec<PublicKey>,
}

impl RelayConfig {
    /// Bytes of the largest symbol, unless stated otherwise: with its header it fills a packet of 1500 bytes.
    pub const SYMBOL: u16 = 1472;
    /// Bytes, unless stated otherwise.
    pub const MEMORY: usize = 64 << 20;

    /// For a link of this rate and loss, for all destinations, with the usual bounds.
    pub fn new(rate: Bandwidth, loss: Probability) -> Self {
        Self { rate, loss, symbol: Self::SYMBOL, memory: Self::MEMORY, destinations: Vec::new() }
    }
}

/// Counts of a relay.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct RelayStats {
    /// Packets that raised the rank of their batch and were passed on.
    pub passed: u64,
    /// Packets that told nothing new.
    pub redundant: u64,
    /// Packets of batches that were forgotten.
    pub late: u64,
    /// Combinations made here.
    pub recoded: u64,
    /// Batches that are over, and the sum of their ranks.
    pub batches: u64,
    /// See there.
    pub rank: u64,
    /// Packets for which there was no room.
    pub dropped: u64,
    /// Datagrams that may not pass: symbols beyond what is permitted, announcements for nobody that this relay serves, streams that none announced, packets of a
    /// stream from another host or in another cut.
    pub refused: u64,
    /// Announcements passed on.
    pub announcements: u64,
    /// Datagrams that are of no stream.
    pub foreign: u64,
}

/// Announcements of a second, of one host and of all hosts without a stream here, and those of late that are not passed twice.
const OF_ONE_HOST: u32 = 100;
const OF_STRANGERS: u32 = 200;
const REMEMBERED: usize = 1024;
/// A host whose announcement was for a destination of this relay may begin streams for so long: a source announces every 10 s at least.
const VOUCHED: Duration = Duration::from_secs(30);
const MOST_VOUCHED: usize = 64;
/// Announcements for which there is room while data stand here.
const ANNOUNCEMENTS_WAITING: usize = 64;
/// Bytes of a datagram in front of its symbol, at most.
const LONGEST_HEAD: usize = 12 + noctule_codes::span::MAX_SPAN;
/// Ranks of a batch: 0 to 64.
const RANKS: usize = noctule_codes::span::MAX_SPAN + 1;

/// Streams that pass at the same time.
const MOST_STREAMS: usize = 16;
/// A stream of which nothing comes is forgotten.
const IDLE: Duration = Duration::from_secs(5);
/// No combinations while so much stands here: the next link is slower than the one before (P15). Where a link carries less than two groups of
/// batches in that time, so many.
const STANDING: Duration = Duration::from_millis(10);
const STANDING_GROUPS: usize = 2;
/// Nothing passes at all while so many times as much stands here.
const FULL: usize = 4;

/// Passes streams on.
///
/// Streams of one host share what there is of that host's; hosts have equal shares of the queue, and of the places for streams as soon as there are more streams than
/// places; where each has one, the stream that carries least makes room by chance. Rows take three quarters of the memory at most, each stream a sixteenth of that; the queue takes the rest.
#[derive(Debug)]
pub struct Relay {
    config: RelayConfig,
    destinations: Vec<Addressed>,
    streams: BTreeMap<StreamName, Stream>,
    queue: PacedQueue,
    rng: ChaCha12Rng,
    stats: RelayStats,
    /// Batches that are over, by rank.
    ranks: [u64; RANKS],
    admission: Admission,
    /// Announcements that passed, the oldest first.
    passed: (BTreeSet<[u8; 32]>, VecDeque<[u8; 32]>),
    /// Until when hosts may begin streams.
    vouched: BTreeMap<Host, Time>,
}

impl Relay {
    /// A relay; `seed` is random.
    pub fn new(config: RelayConfig, seed: [u8; 32]) -> Self {
        let mut rng = ChaCha12Rng::from_seed(seed);
        let mut chance = [0; 32];
        rng.fill_bytes(&mut chance);
        Self {
            destinations: config.destinations.iter().map(Addressed::to).collect(),
            streams: BTreeMap::new(),
            queue: PacedQueue::new(config.rate),
            rng,
            stats: RelayStats::default(),
            ranks: [0; RANKS],
            admission: Admission::new(OF_ONE_HOST, OF_STRANGERS, chance),
            passed: Default::default(),
            vouched: BTreeMap::new(),
            config,
        }
    }

    /// How many batches came with each rank, from 0 to 64.
    pub fn ranks(&self) -> &[u64] {
        &self.ranks
    }

    /// Counts so far.
    pub fn stats(&self) -> RelayStats {
        self.stats
    }

    /// How long what stands here takes to leave.
    pub fn queueing_delay(&self) -> Duration {
        self.queue.delay()
    }

    /// Bytes held, at most as many as the configuration says.
    pub fn memory(&self) -> usize {
        self.streams.values().map(Stream::memory).sum::<usize>() + self.queue.bytes
    }

    /// Streams that pass.
    #[cfg(test)]
    pub(super) fn streams(&self) -> usize {
        self.streams.len()
    }

    /// A datagram from the link before, and the address that it came from. What is none of a blind stream is dropped.
    pub fn handle_datagram(&mut self, now: Time, from: IpAddr, datagram: &[u8]) {
        let host = Host::from(from);
        if Announcement::is_one(datagram) {
            return self.pass_announcement(now, host, datagram);
        }
        let Ok(packet) = Packet::parse(datagram) else {
            self.stats.foreign += 1;
            return;
        };
        if packet.symbol.len() > usize::from(self.config.symbol) {
            self.stats.refused += 1;
            return;
        }
        self.handle_packet(now, host, &packet, datagram);
    }

    fn handle_packet(&mut self, now: Time, host: Host, packet: &Packet<'_>, datagram: &[u8]) {
        self.streams.retain(|_, stream| now.since(stream.heard_at) <= IDLE);
        let name = packet.stream;
        if !self.streams.contains_key(&name) && !self.begin(now, host, packet, datagram.len()) {
            return;
        }
        let Some(stream) = self.streams.get_mut(&name) else { return };
        match stream.place(host, packet) {
            Place::Present => {}
            Place::Next => {
                if stream.is_open {
                    self.end_group(now, name);
                }
                let Some(stream) = self.streams.get_mut(&name) else { return };
                stream.open(packet.group());
            }
            place => return self.on_rival(now, host, place, packet, datagram),
        }
        self.take(now, host, packet, datagram);
    }

    /// A stream that was not known: whether there is a place for it.
    fn begin(&mut self, now: Time, host: Host, packet: &Packet<'_>, bytes: usize) -> bool {
        if !self.may_begin(now, host) {
            self.stats.refused += 1;
            return false;
        }
        if self.streams.len() >= MOST_STREAMS {
            // Hosts have equal shares: the one that has most gives a place to one that has two less, the stream that was silent for longest.
            let of = |host: Host| self.streams.values().filter(|s| s.host == host).count();
            let Some(most) = self.streams.values().map(|s| s.host).max_by_key(|host| of(*host)) else { return false };
            let silent = self.streams.iter().filter(|(_, s)| s.host == most).min_by_key(|(_, s)| s.heard_at).map(|(name, _)| *name);
            let Some(name) = silent.filter(|_| of(host) + 1 < of(most)).or_else(|| self.make_room(now, bytes)) else {
                self.stats.dropped += 1;
                return false;
            };
            self.streams.remove(&name);
        }
        self.streams.insert(packet.stream, Stream::new(now, host, packet));
        true
    }

    /// The stream that has carried least of late, if chance lets a datagram of so many bytes have its place: in proportion to both. Addresses cost a sender nothing, and
    /// bytes do: a sender that would hold all places has to carry more than a newcomer sends, on each of them.
    fn make_room(&mut self, now: Time, bytes: usize) -> Option<StreamName> {
        let carried = self.streams.iter().map(|(name, stream)| (stream.carried(now), *name));
        let (least, name) = carried.min_by(|a, b| a.0.total_cmp(&b.0))?;
        let chance = bytes as f64 / (bytes as f64 + least);
        (f64::from(self.rng.next_u32()) < chance * f64::from(u32::MAX)).then_some(name)
    }

    fn may_begin(&self, now: Time, host: Host) -> bool {
        self.destinations.is_empty() || self.vouched.get(&host).is_some_and(|until| now < *until)
    }

    /// A packet that contradicts what is known of its stream.
    fn on_rival(&mut self, now: Time, host: Host, place: Place, packet: &Packet<'_>, datagram: &[u8]) {
        let may_begin = self.may_begin(now, host);
        let Some(stream) = self.streams.get_mut(&packet.stream) else { return };
        match place {
            Place::Ahead => {}
            Place::Behind => self.stats.late += 1,
            _ => self.stats.refused += 1,
        }
        if matches!(place, Place::Elsewhere(_)) {
            // What this relay sent comes around a circle with nothing new.
            let of_here = stream.place(stream.host, packet);
            if !may_begin || (of_here == Place::Present && !stream.is_innovative(packet)) {
                return;
            }
        }
        if !stream.note_rival(now, place, packet, datagram) {
            return;
        }
        if place == Place::Ahead {
            return self.believe(now, packet.stream);
        }
        stream.begin_again(now, host, packet);
        self.take(now, host, packet, datagram);
    }

    /// Goes on with the group ahead of which packets came.
    fn believe(&mut self, now: Time, name: StreamName) {
        if self.streams.get(&name).is_some_and(|s| s.is_open) {
            self.end_group(now, name);
        }
        let Some(stream) = self.streams.get_mut(&name) else { return };
        let Some(rival) = stream.rival.take() else { return };
        let host = stream.host;
        stream.open(rival.group);
        for datagram in rival.kept {
            if let Ok(packet) = Packet::parse(&datagram) {
                self.handle_packet(now, host, &packet, &datagram);
            }
        }
    }

    /// A packet of a group that is held: passes if it is new and there is room. What cannot pass is not kept.
    fn take(&mut self, now: Time, host: Host, packet: &Packet<'_>, datagram: &[u8]) {
        if !self.has_room(host, packet.batch_size, packet.depth, FULL) || !self.holds(packet) {
            self.stats.dropped += 1;
            return;
        }
        let Some(stream) = self.streams.get_mut(&packet.stream) else { return };
        if !stream.insert(now, packet) {
            self.stats.redundant += 1;
            return;
        }
        stream.carry(now, datagram.len());
        self.stats.passed += 1;
        self.enqueue(host, datagram);
    }

    /// Bytes of a datagram at most.
    fn largest(&self) -> usize {
        usize::from(self.config.symbol) + LONGEST_HEAD
    }

    /// Whether there is room for one more row of the stream, with what is kept of a rival.
    fn holds(&mut self, packet: &Packet<'_>) -> bool {
        let most = self.config.memory / 4 * 3 / MOST_STREAMS;
        let size = usize::from(packet.batch_size);
        let more = 4 * self.largest() + 3 * size * size;
        let Some(stream) = self.streams.get_mut(&packet.stream) else { return false };
        if stream.bytes + more > most && stream.before.is_some() {
            stream.forget_before();
        }
        stream.bytes + more <= most
    }

    /// Whether less than so many times as much stands here of a host as should at most.
    fn has_room(&self, host: Host, batch_size: u8, depth: u8, times: usize) -> bool {
        let hosts = self.hosts();
        let Backlog { datagrams, bytes } = self.queue.share(host);
        let share = Backlog { datagrams: datagrams * hosts, bytes: bytes * hosts };
        let is_long = self.queue.time_for(share) > STANDING * times as u32;
        let is_deep = share.datagrams > STANDING_GROUPS * times * usize::from(batch_size) * usize::from(depth);
        !(is_long && is_deep) && self.fits(share.bytes)
    }

    /// Whether the queue's memory takes one more datagram of a host of which so much would stand here if it were alone.
    fn fits(&self, share: usize) -> bool {
        share.max(self.queue.bytes) + self.largest() <= self.config.memory / 4
    }

    /// Hosts that have streams here.
    fn hosts(&self) -> usize {
        let hosts = || self.streams.values().map(|stream| stream.host);
        hosts().enumerate().filter(|(at, host)| !hosts().take(*at).any(|other| other == *host)).count().max(1)
    }

    fn enqueue(&mut self, host: Host, datagram: &[u8]) {
        let mut out = self.queue.buffer();
        out.extend_from_slice(datagram);
        self.queue.push_of(Some(host), out);
    }

    /// Passes on what only the destination can read: each once, so that paths in a circle do no harm, and not too many.
    fn pass_announcement(&mut self, now: Time, host: Host, datagram: &[u8]) {
        if !self.destinations.is_empty() && !self.destinations.iter().any(|to| to.check(datagram).is_some()) {
            self.stats.refused += 1;
            return;
        }
        let Some(mark) = Announcement::mark(datagram) else { return };
        if self.passed.0.contains(&mark) {
            self.stats.redundant += 1;
            return;
        }
        let is_known = self.streams.values().any(|stream| stream.host == host);
        let share = self.queue.share(host);
        let is_full = self.queue.time_for(share) > STANDING * FULL as u32 && share.datagrams > ANNOUNCEMENTS_WAITING;
        if !self.admission.admits(now, host, is_known) || is_full || !self.fits(share.bytes) {
            self.stats.dropped += 1;
            return;
        }
        self.remember(mark);
        self.vouch(now, host);
        self.stats.announcements += 1;
        self.enqueue(host, datagram);
    }

    fn remember(&mut self, mark: [u8; 32]) {
        let (known, order) = &mut self.passed;
        if order.len() == REMEMBERED
            && let Some(oldest) = order.pop_front()
        {
            known.remove(&oldest);
        }
        known.insert(mark);
        order.push_back(mark);
    }

    fn vouch(&mut self, now: Time, host: Host) {
        if self.vouched.len() == MOST_VOUCHED
            && !self.vouched.contains_key(&host)
            && let Some(oldest) = self.vouched.iter().min_by_key(|(_, until)| **until).map(|(host, _)| *host)
        {
            self.vouched.remove(&oldest);
        }
        self.vouched.insert(host, now + VOUCHED);
    }

    /// The batches that came in are over: their combinations follow.
    fn end_group(&mut self, now: Time, name: StreamName) {
        let Some(stream) = self.streams.get_mut(&name) else { return };
        let held = core::mem::take(&mut stream.held);
        for batch in &held {
            let rank = batch.rank().min(stream.ranks.len() - 1);
            stream.ranks[rank] += 1;
            self.ranks[rank.min(RANKS - 1)] += 1;
            self.stats.batches += 1;
            self.stats.rank += rank as u64;
        }
        stream.seen += held.len() as u64;
        if stream.seen >= stream.sample || stream.sends.is_empty() {
            stream.judge(now, &self.queue, self.config.loss);
        }
        let (host, batch_size, depth, group) = (stream.host, stream.batch_size, stream.depth, stream.group);
        let sends = &stream.sends;
        let rng = &mut self.rng;
        let counts: Vec<usize> = held
            .iter()
            .map(|batch| {
                let Some(planned) = sends.get(batch.rank()).filter(|_| batch.rank() > 0) else { return 0 };
                let chance = (rng.next_u32() as f64) < planned.extra.get() * f64::from(u32::MAX);
                (planned.packets as usize + usize::from(chance)).saturating_sub(batch.rank())
            })
            .collect();
        if self.has_room(host, batch_size, depth, 1) && !switch::is_off(Mechanism::BlindRecoding) {
            let like =
                Packet { stream: name, batch_size, depth, block: group.0, batch: 0, coefficients: Coefficients::Index(0), symbol: &[] };
            for at in in_turn(&counts) {
                // A group's combinations are as many as planned, unless the memory ends.
                if !self.fits(self.queue.share(host).bytes * self.hosts()) {
                    break;
                }
                let mut out = self.queue.buffer();
                held[at].combine(like, &mut self.rng, &mut out);
                self.queue.push_of(Some(host), out);
                self.stats.recoded += 1;
            }
        }
        if let Some(stream) = self.streams.get_mut(&name) {
            stream.close(held);
        }
    }

    /// When to call [`handle_timeout`](Self::handle_timeout), or [`poll_transmit`](Self::poll_transmit) again.
    pub fn poll_timeout(&self) -> Option<Time> {
        let pause = self.streams.values().filter(|s| s.is_open).map(|s| s.heard_at + PAUSE).min();
        let believe = self.streams.values().filter_map(Stream::believes_at).min();
        let send = (!self.queue.is_empty()).then(|| self.queue.due());
        [pause, believe, send].into_iter().flatten().min()
    }

    /// Time has passed.
    pub fn handle_timeout(&mut self, now: Time) {
        let paused: Vec<StreamName> =
            self.streams.iter().filter(|(_, s)| s.is_open && now >= s.heard_at + PAUSE).map(|(name, _)| *name).collect();
        paused.into_iter().for_each(|name| self.end_group(now, name));
        let believed: Vec<StreamName> =
            self.streams.iter().filter(|(_, s)| s.believes_at().is_some_and(|at| now >= at)).map(|(name, _)| *name).collect();
        believed.into_iter().for_each(|name| self.believe(now, name));
    }

    /// The next datagram for the link that leads on, if one is due: `out` becomes its bytes.
    pub fn poll_transmit(&mut self, now: Time, out: &mut Vec<u8>) -> bool {
        self.queue.pop(now, out)
    }
}

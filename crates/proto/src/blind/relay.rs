//! A relay of blind streams: what raises the rank passes at once, and when a batch is over, combinations follow, more of them for batches of higher rank.
//!
//! It has no keys and decodes nothing. How much it may send for a batch follows from its link: the packets that the rate carries while one batch
//! comes in. How they are shared among batches of different rank is adaptive recoding for the loss that the owner states and the ranks that
//! were seen (RFC 9426 §4.1).

use super::held::{Held, in_turn};
use super::queue::Queue;
use super::{Announcement, Packet, StreamName};
use crate::switch::{self, Mechanism};
use crate::units::{Bandwidth, Duration, Probability, Time};
use noctule_codes::recoding::{self, RankDistribution, Sends};
use rand_chacha::ChaCha12Rng;
use rand_core::{Rng, SeedableRng};
use std::collections::{BTreeMap, VecDeque};

/// What a [`Relay`] is made of.
#[derive(Clone, Copy, Debug)]
pub struct RelayConfig {
    /// Of the link that leads on, in IP bytes.
    pub rate: Bandwidth,
    /// What it is expected to lose.
    pub loss: Probability,
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
    /// Announcements passed on.
    pub announcements: u64,
    /// Datagrams that are of no stream.
    pub foreign: u64,
}

/// Announcements of a second, and those of late that are not passed twice: a relay cannot tell who made them.
const ANNOUNCEMENTS: u32 = 100;
const REMEMBERED: usize = 64;
/// Those for which there is room while data stand here.
const ANNOUNCEMENTS_WAITING: usize = 64;
/// Ranks of a batch: 0 to 64.
const RANKS: usize = noctule_codes::span::MAX_SPAN + 1;

/// Streams that pass at the same time.
const MOST_STREAMS: usize = 16;
/// A stream of which nothing comes is forgotten.
const IDLE: Duration = Duration::from_secs(5);
/// Nothing more comes of batches that are this old: the stream pauses.
const PAUSE: Duration = Duration::from_millis(20);
/// No combinations while so much stands here: the next link is slower than the one before (P15). Where a link carries less than two groups of
/// batches in that time, so many.
const STANDING: Duration = Duration::from_millis(10);
const STANDING_GROUPS: usize = 2;
/// Nothing passes at all while so many times as much stands here.
const FULL: usize = 4;
/// Batches by which the ranks that come are judged: few at first, then more.
const FIRST_SAMPLE: u64 = 4;
const SAMPLE: u64 = 64;
/// A batch is worth no more than this many times its size: what one packet more adds is next to nothing then.
const MOST_SENDS: f64 = 2.0;

/// Passes streams on.
#[derive(Debug)]
pub struct Relay {
    config: RelayConfig,
    streams: BTreeMap<StreamName, Stream>,
    queue: Queue,
    rng: ChaCha12Rng,
    stats: RelayStats,
    /// Batches that are over, by rank.
    ranks: [u64; RANKS],
    /// When announcements were last counted, how many may still pass, and what begins those that did.
    announced: (Time, u32, VecDeque<[u8; 32]>),
}

/// One stream.
#[derive(Debug)]
struct Stream {
    /// The batches that come in now, and those before, of which stragglers still pass.
    group: (u32, u16),
    held: Vec<Held>,
    before: Option<((u32, u16), Vec<Held>)>,
    heard_at: Time,
    is_open: bool,
    batch_size: u8,
    depth: u8,
    ranks: Vec<u64>,
    seen: u64,
    sample: u64,
    /// When the sample began, and packets to send for each rank as it was judged last.
    since: Time,
    sends: Vec<Sends>,
}

impl Relay {
    /// A relay; `seed` is random.
    pub fn new(config: RelayConfig, seed: [u8; 32]) -> Self {
        Self {
            config,
            streams: BTreeMap::new(),
            queue: Queue::new(config.rate),
            rng: ChaCha12Rng::from_seed(seed),
            stats: RelayStats::default(),
            ranks: [0; RANKS],
            announced: (Time::ZERO, ANNOUNCEMENTS, VecDeque::new()),
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
    pub fn standing(&self) -> Duration {
        self.queue.delay()
    }

    /// Bytes held: at most two groups of batches of each of 16 streams, and what the rate carries in 40 ms, or eight groups, with one group's combinations.
    pub fn memory(&self) -> usize {
        let rows = |held: &Vec<Held>| held.iter().map(Held::memory).sum::<usize>();
        let streams = self.streams.values().map(|s| rows(&s.held) + s.before.as_ref().map_or(0, |(_, held)| rows(held)));
        streams.sum::<usize>() + self.queue.bytes
    }

    /// A datagram from the link before. What is none of a blind stream is dropped.
    pub fn handle_datagram(&mut self, now: Time, datagram: &[u8]) {
        if let Some(mark) = Announcement::mark(datagram) {
            return self.pass_announcement(now, mark, datagram);
        }
        let Ok(packet) = Packet::parse(datagram) else {
            self.stats.foreign += 1;
            return;
        };
        self.forget_idle(now);
        if !self.streams.contains_key(&packet.stream) && self.streams.len() == MOST_STREAMS {
            self.stats.dropped += 1;
            return;
        }
        let known = self.streams.entry(packet.stream).or_insert_with(|| Stream::new(now, &packet));
        known.heard_at = now;
        if known.batch_size != packet.batch_size {
            *known = Stream::new(now, &packet);
        }
        if packet.group() > known.group {
            if known.is_open {
                self.end_group(now, packet.stream);
            }
            if let Some(stream) = self.streams.get_mut(&packet.stream) {
                (stream.group, stream.is_open) = (packet.group(), true);
            }
        }
        let Some(stream) = self.streams.get_mut(&packet.stream) else { return };
        let held = match &mut stream.before {
            _ if stream.is_open && packet.group() == stream.group => &mut stream.held,
            Some((before, held)) if *before == packet.group() => held,
            _ => {
                self.stats.late += 1;
                return;
            }
        };
        let at = held.iter().position(|h| h.batch == packet.batch).unwrap_or_else(|| {
            held.push(Held::new(packet.batch, packet.batch_size));
            held.len() - 1
        });
        if !held[at].insert(&packet) {
            self.stats.redundant += 1;
            return;
        }
        if is_held_up(&self.queue, packet.batch_size, packet.depth, FULL) {
            self.stats.dropped += 1;
            return;
        }
        self.stats.passed += 1;
        let mut out = self.queue.buffer();
        out.extend_from_slice(datagram);
        self.queue.push(out);
    }

    /// Passes on what only the destination can read: each once, so that ways in a circle do no harm, and not too many.
    fn pass_announcement(&mut self, now: Time, mark: [u8; 32], datagram: &[u8]) {
        let (since, left, seen) = &mut self.announced;
        if now.since(*since) >= Duration::from_secs(1) {
            (*since, *left) = (now, ANNOUNCEMENTS);
        }
        if seen.contains(&mark) {
            self.stats.redundant += 1;
            return;
        }
        if *left == 0 || (self.queue.delay() > STANDING * FULL as u32 && self.queue.len() > ANNOUNCEMENTS_WAITING) {
            self.stats.dropped += 1;
            return;
        }
        *left -= 1;
        if seen.len() == REMEMBERED {
            seen.pop_front();
        }
        seen.push_back(mark);
        self.stats.announcements += 1;
        let mut out = self.queue.buffer();
        out.extend_from_slice(datagram);
        self.queue.push(out);
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
        if !is_held_up(&self.queue, stream.batch_size, stream.depth, 1) && !switch::is_off(Mechanism::BlindRecoding) {
            let rng = &mut self.rng;
            let sends = &stream.sends;
            let counts: Vec<usize> = held
                .iter()
                .map(|batch| {
                    let Some(planned) = sends.get(batch.rank()).filter(|_| batch.rank() > 0) else { return 0 };
                    let chance = (rng.next_u32() as f64) < planned.extra.get() * f64::from(u32::MAX);
                    (planned.packets as usize + usize::from(chance)).saturating_sub(batch.rank())
                })
                .collect();
            let like = Packet {
                stream: name,
                batch_size: stream.batch_size,
                depth: stream.depth,
                block: stream.group.0,
                batch: 0,
                coefficients: super::Coefficients::Index(0),
                symbol: &[],
            };
            for at in in_turn(&counts) {
                let mut out = self.queue.buffer();
                held[at].combine(like, rng, &mut out);
                self.queue.push(out);
                self.stats.recoded += 1;
            }
        }
        stream.before = Some((stream.group, held));
        stream.is_open = false;
    }

    fn forget_idle(&mut self, now: Time) {
        if self.streams.len() > 1 || self.streams.values().any(|s| now.since(s.heard_at) > IDLE) {
            self.streams.retain(|_, stream| now.since(stream.heard_at) <= IDLE);
        }
    }

    /// When to call [`handle_timeout`](Self::handle_timeout), or [`poll_transmit`](Self::poll_transmit) again.
    pub fn poll_timeout(&self) -> Option<Time> {
        let pause = self.streams.values().filter(|s| s.is_open).map(|s| s.heard_at + PAUSE).min();
        let send = (!self.queue.is_empty()).then(|| self.queue.due());
        [pause, send].into_iter().flatten().min()
    }

    /// Time has passed.
    pub fn handle_timeout(&mut self, now: Time) {
        let paused: Vec<StreamName> =
            self.streams.iter().filter(|(_, s)| s.is_open && now >= s.heard_at + PAUSE).map(|(name, _)| *name).collect();
        paused.into_iter().for_each(|name| self.end_group(now, name));
    }

    /// The next datagram for the link that leads on, if one is due: `out` becomes its bytes.
    pub fn poll_transmit(&mut self, now: Time, out: &mut Vec<u8>) -> bool {
        self.queue.pop(now, out)
    }
}

impl Stream {
    fn new(now: Time, packet: &Packet<'_>) -> Self {
        Self {
            group: packet.group(),
            held: Vec::new(),
            before: None,
            heard_at: now,
            is_open: true,
            batch_size: packet.batch_size,
            depth: packet.depth,
            ranks: vec![0; usize::from(packet.batch_size) + 1],
            seen: 0,
            sample: FIRST_SAMPLE,
            since: now,
            sends: Vec::new(),
        }
    }

    /// Packets to send for each rank from now on: as many on average as the link carries while a batch comes in.
    fn judge(&mut self, now: Time, queue: &Queue, loss: Probability) {
        let size = f64::from(self.batch_size);
        let each = now.since(self.since) / u32::try_from(self.seen.max(1)).unwrap_or(u32::MAX);
        let carried = queue.packets_in(each);
        // Of the first batches too little is known: as many as came.
        let budget = if self.seen < FIRST_SAMPLE { size * (1.0 + loss.get()) } else { carried.min(size * MOST_SENDS) };
        if let Some(ranks) = RankDistribution::from_counts(&self.ranks) {
            self.sends = ranks.adaptive(recoding::Probability::new(loss.get()), budget);
            // Ranks that were not seen yet are treated as the nearest one that was.
            let seen: Vec<usize> = (1..self.sends.len()).filter(|rank| self.ranks[*rank] > 0).collect();
            for rank in 1..self.sends.len() {
                if let Some(&nearest) = seen.iter().min_by_key(|known| known.abs_diff(rank)) {
                    let Sends { packets, extra } = self.sends[nearest];
                    self.sends[rank] = Sends { packets: (rank + packets as usize).saturating_sub(nearest) as u32, extra };
                }
            }
        }
        self.ranks.iter_mut().for_each(|count| *count /= 2);
        if self.seen >= FIRST_SAMPLE {
            (self.since, self.seen, self.sample) = (now, 0, (2 * self.sample).min(SAMPLE));
        }
    }
}

/// So many times as much stands as should at most.
fn is_held_up(queue: &Queue, batch_size: u8, depth: u8, times: usize) -> bool {
    queue.delay() > STANDING * times as u32 && queue.len() > STANDING_GROUPS * times * usize::from(batch_size) * usize::from(depth)
}

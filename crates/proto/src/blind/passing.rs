//! One stream that passes a relay: the group of batches that comes in, the one before, and what it takes to believe that another one has begun.
//!
//! A relay has no keys, so any host that has seen a stream's name can write datagrams that look like its own. One of them must not decide anything. So the group
//! moves on at once only to the one that follows, and only from one of which some packets came; whatever else contradicts what came so far is a *rival*, and has to
//! outnumber the packets that fit.

use super::held::Held;
use super::packet::Packet;
use super::queue::PacedQueue;
use crate::admission::Host;
use crate::units::{Duration, Probability, Time};
use noctule_codes::recoding::{self, RankDistribution, Sends};

/// Nothing more comes of batches that are this old: the stream pauses.
pub(super) const PAUSE: Duration = Duration::from_millis(20);
/// After so long the stream goes on wherever its next packet says.
const SILENCE: Duration = Duration::from_millis(200);
/// Packets of a group near ahead that make it believed, beyond those of the group before that came meanwhile.
const BELIEVED: u32 = 3;
/// And of one anywhere ahead, unless nothing else came for so long before: nothing proves them, and three small datagrams must not carry a stream off.
const FAR_BELIEVED: u32 = 64;
/// Packets of groups that lie behind, or of another cut, that make the stream begin again there, beyond those that fitted meanwhile.
const PREVAIL: u32 = 8;
/// And of another host. What goes around in a circle comes from another host as well.
const MOVED: u32 = 64;
/// Groups further on that are believed once nothing comes of the present one.
const NEAR: u16 = 8;
/// Batches by which the ranks that come are judged: few at first, then more.
pub(super) const FIRST_SAMPLE: u64 = 4;
const SAMPLE: u64 = 64;
/// A batch is worth no more than this many times its size: what one packet more adds is next to nothing then.
const MOST_SENDS: f64 = 2.0;

/// A block, and a group of batches in it.
pub(super) type Group = (u32, u16);

/// What a packet says of its place in the stream.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Place {
    /// Of the group that comes in, or the one before.
    Present,
    /// Of the one that follows.
    Next,
    /// Further on.
    Ahead,
    /// Of a group that is forgotten.
    Behind,
    /// Of another cut.
    Recut,
    /// From another host.
    Elsewhere(Host),
}

/// What contradicts the stream as it is known.
#[derive(Debug)]
pub(super) struct Rival {
    pub(super) place: Place,
    pub(super) group: Group,
    /// Packets for it, less those against it.
    count: u32,
    /// The first ones of a group ahead: they pass after the combinations of the groups before.
    pub(super) kept: Vec<Vec<u8>>,
    since: Time,
}

/// One stream.
#[derive(Debug)]
pub(super) struct Stream {
    pub(super) host: Host,
    /// The batches that come in now, and those before, of which stragglers still pass.
    pub(super) group: Group,
    pub(super) held: Vec<Held>,
    pub(super) before: Option<(Group, Vec<Held>)>,
    /// When something last came that was new.
    pub(super) heard_at: Time,
    pub(super) is_open: bool,
    pub(super) batch_size: u8,
    pub(super) depth: u8,
    /// Packets of the present group that were new.
    fresh: u32,
    /// The last group of a block, as it was seen.
    last: Option<u16>,
    pub(super) rival: Option<Rival>,
    /// Bytes of rows, of both groups.
    pub(super) bytes: usize,
    /// Bytes that it has passed of late, halved with each second, and as of when.
    carried: (f64, Time),
    pub(super) ranks: Vec<u64>,
    pub(super) seen: u64,
    pub(super) sample: u64,
    /// When the sample began, and packets to send for each rank as it was judged last.
    since: Time,
    pub(super) sends: Vec<Sends>,
}

impl Stream {
    pub(super) fn new(now: Time, host: Host, packet: &Packet<'_>) -> Self {
        Self {
            host,
            group: packet.group(),
            held: Vec::new(),
            before: None,
            heard_at: now,
            is_open: true,
            batch_size: packet.batch_size,
            depth: packet.depth,
            fresh: 0,
            last: None,
            rival: None,
            bytes: 0,
            carried: (0.0, now),
            ranks: vec![0; usize::from(packet.batch_size) + 1],
            seen: 0,
            sample: FIRST_SAMPLE,
            since: now,
            sends: Vec::new(),
        }
    }

    /// Bytes that it has passed of late: half of those of a second ago count.
    pub(super) fn carried(&self, now: Time) -> f64 {
        let (bytes, since) = self.carried;
        bytes * (-now.since(since).as_secs_f64()).exp2()
    }

    /// A datagram of so many bytes passes.
    pub(super) fn carry(&mut self, now: Time, bytes: usize) {
        self.carried = (self.carried(now) + bytes as f64, now);
    }

    /// Bytes held.
    pub(super) fn memory(&self) -> usize {
        self.bytes + self.rival.as_ref().map_or(0, |rival| rival.kept.iter().map(Vec::len).sum())
    }

    pub(super) fn place(&self, host: Host, packet: &Packet<'_>) -> Place {
        let group = packet.group();
        let is_before = self.before.as_ref().is_some_and(|(before, _)| *before == group);
        match () {
            () if host != self.host => Place::Elsewhere(host),
            () if (packet.batch_size, packet.depth) != (self.batch_size, self.depth) => Place::Recut,
            () if is_before || (self.is_open && group == self.group) => Place::Present,
            () if group <= self.group => Place::Behind,
            () if self.fresh >= BELIEVED && self.follows(group) => Place::Next,
            () => Place::Ahead,
        }
    }

    fn follows(&self, (block, group): Group) -> bool {
        let (here, at) = self.group;
        match here.checked_add(1) {
            _ if block == here => at.checked_add(1) == Some(group),
            next => next == Some(block) && group == 0 && self.last == Some(at),
        }
    }

    /// Whether it tells something new of a group that is held.
    pub(super) fn is_innovative(&self, packet: &Packet<'_>) -> bool {
        let held = match &self.before {
            _ if self.is_open && packet.group() == self.group => &self.held,
            Some((before, held)) if *before == packet.group() => held,
            _ => return false,
        };
        held.iter().find(|h| h.batch == packet.batch).is_none_or(|h| h.is_innovative(packet))
    }

    /// Keeps a packet of a group that is held, if it tells something new; true if it did.
    pub(super) fn insert(&mut self, now: Time, packet: &Packet<'_>) -> bool {
        let is_present = self.is_open && packet.group() == self.group;
        let held = match &mut self.before {
            _ if is_present => &mut self.held,
            Some((_, held)) => held,
            None => return false,
        };
        let at = held.iter().position(|h| h.batch == packet.batch).unwrap_or_else(|| {
            held.push(Held::new(packet.batch, packet.batch_size));
            self.bytes += Held::empty_memory(packet.batch_size);
            held.len() - 1
        });
        if !held[at].insert(packet) {
            return false;
        }
        self.bytes += Held::row_memory(packet);
        self.heard_at = now;
        self.fresh += u32::from(is_present);
        let against = match &mut self.rival {
            // What comes from elsewhere has to be twice as much: packets in a circle are as many as those that pass.
            Some(rival) => {
                let weight = if matches!(rival.place, Place::Elsewhere(_)) { 2 } else { 1 };
                rival.count = rival.count.saturating_sub(weight);
                rival.count == 0
            }
            None => false,
        };
        if against {
            self.rival = None;
        }
        true
    }

    /// The group that came in is over.
    pub(super) fn close(&mut self, held: Vec<Held>) {
        self.before = Some((self.group, held));
        self.bytes = self.before.iter().flat_map(|(_, held)| held).map(Held::memory).sum();
        self.is_open = false;
    }

    /// Gives up the stragglers of the group before.
    pub(super) fn forget_before(&mut self) {
        self.before = None;
        self.bytes = self.held.iter().map(Held::memory).sum();
    }

    /// Another group comes in. The one before has been closed.
    pub(super) fn open(&mut self, group: Group) {
        if self.group.0.checked_add(1) == Some(group.0) {
            self.last = Some(self.group.1);
        }
        (self.group, self.is_open, self.fresh) = (group, true, 0);
    }

    /// All of a sudden the stream is somewhere else.
    pub(super) fn begin_again(&mut self, now: Time, host: Host, packet: &Packet<'_>) {
        *self = Self { carried: self.carried, ..Self::new(now, host, packet) };
    }

    /// Notes a packet that contradicts the stream as it is known. Whether there are enough of them.
    pub(super) fn note_rival(&mut self, now: Time, place: Place, packet: &Packet<'_>, datagram: &[u8]) -> bool {
        let group = packet.group();
        let is_same =
            |rival: &Rival| rival.place == place && (place != Place::Ahead || is_near(rival.group, group) || is_near(group, rival.group));
        match &mut self.rival {
            Some(rival) if !is_same(rival) => {
                rival.count -= 1;
                if rival.count == 0 {
                    self.rival = None;
                }
                return false;
            }
            Some(rival) => {
                // The same one again is no second witness.
                if rival.kept.iter().any(|kept| kept == datagram) {
                    return false;
                }
                rival.count += 1;
            }
            None => self.rival = Some(Rival { place, group, count: 1, kept: Vec::new(), since: now }),
        }
        let Some(rival) = &mut self.rival else { return false };
        rival.group = if place == Place::Ahead { rival.group.min(group) } else { group };
        if place == Place::Ahead && rival.kept.len() < BELIEVED as usize {
            rival.kept.push(datagram.to_vec());
        }
        let enough = match place {
            Place::Ahead if !is_near(self.group, rival.group) && rival.since < self.heard_at + SILENCE => FAR_BELIEVED,
            Place::Present | Place::Next | Place::Ahead => BELIEVED,
            Place::Behind | Place::Recut => PREVAIL,
            Place::Elsewhere(_) => MOVED,
        };
        rival.count >= enough
    }

    /// When packets of a group ahead are believed because nothing else comes.
    pub(super) fn believes_at(&self) -> Option<Time> {
        let rival = self.rival.as_ref().filter(|rival| rival.place == Place::Ahead)?;
        let wait = if is_near(self.group, rival.group) { PAUSE } else { SILENCE };
        Some(self.heard_at.max(rival.since) + wait)
    }

    /// Packets to send for each rank from now on: as many on average as the link carries while a batch comes in.
    pub(super) fn judge(&mut self, now: Time, queue: &PacedQueue, loss: Probability) {
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

/// Whether the second group lies a few groups behind the first one, or at it.
fn is_near((block, group): Group, (other, at): Group) -> bool {
    match other.checked_sub(block) {
        Some(0) => at >= group && at - group <= NEAR,
        Some(1) => true,
        _ => false,
    }
}

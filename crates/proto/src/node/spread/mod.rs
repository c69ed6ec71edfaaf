//! Flows that take several relayed routes at once (docs/spec/multipath.md 6, docs/decisions/0092).
//!
//! A flow of a relayed session whose far end is reached by several routes of one metric is parted: its *whole*, which no link carries, takes what the
//! application writes, and makes source packets of it. Each route has a *part*, an ordinary relayed flow with numbers, credit and keys of its own, which carries
//! packets of the whole with their numbers in front. Nodes on the route see ordinary flows. This file says which packet goes by which part and when one is sent
//! again by another; `feeding.rs` moves them, `joining.rs` is the far end's side, and `lifetimes.rs` says what is
//! different for datagrams with a lifetime.

mod feeding;
mod joining;
mod lifetimes;
#[cfg(test)]
mod tests;

pub(crate) use joining::Join;

use crate::ids::{FlowId, LinkId, SessionId};
use crate::switch::{self, Mechanism};
use crate::units::{Duration, Time};
use bytes::Bytes;
use lifetimes::{ACK_WAIT, Kept, Skips};
use smallvec::SmallVec;
use std::collections::{BTreeSet, VecDeque};

/// Parts of a flow at once, at most.
pub(crate) const MAX_PARTS: usize = 8;
/// Packets of the whole that may be sent before the far end has said what it has room for.
pub(crate) const FIRST_WINDOW: u64 = 256;
/// A part is kept supplied with what its route takes in this time, so that what goes by it is decided late.
const SUPPLY: Duration = Duration::from_millis(4);
const LEAST_SUPPLY: u64 = 8;
const MOST_SUPPLY: u64 = 96;
/// Packets that a route takes before anything of it is known.
const UNKNOWN: usize = 128;
/// A route beside the first is not worth opening for less than this, in bytes.
const WORTH_A_ROUTE: u64 = 64 * 1024;
/// Delays that differ by less, or by less than an eighth, are taken for equal: acknowledgements of parts come every 25 ms or 64 packets.
const ALIKE: Duration = Duration::from_millis(15);
/// What is not acknowledged this long after it should have been is sent by another part as well.
const GRACE: Duration = Duration::from_millis(100);
/// The same where nothing is known of the route.
const FIRST_GRACE: Duration = Duration::from_millis(500);
/// A part that delivers nothing for this long, and for six times its delay, while another does, is given up.
const PATIENCE: Duration = Duration::from_millis(500);
const PATIENCE_DELAYS: u32 = 6;
/// The same where nothing is known of the route: it may have just been mended, and what it owes goes by another route meanwhile.
const FIRST_PATIENCE: Duration = Duration::from_secs(2);
/// A route whose part was given up is tried again after this, doubled each time.
const FIRST_BAN: Duration = Duration::from_secs(1);
const LONGEST_BAN: Duration = Duration::from_secs(30);

/// A packet of the whole that a part was given.
#[derive(Debug)]
struct Fed {
    number: u64,
    at: Time,
    bytes: u32,
    /// Another part was given it too, because this one is late.
    is_copied: bool,
}

/// How long a route takes and what it carries, as acknowledgements from end to end show.
#[derive(Debug, Default)]
struct Course {
    /// Smallest delay from here to the acknowledgement, now and in the window before.
    least: Option<(Time, Duration, Duration)>,
    smoothed: Duration,
    deviation: Duration,
    /// Bytes per second.
    rate: f64,
    /// Bytes acknowledged since.
    meter: (Time, u64),
}

/// The smallest delay is that of the last one or two of these.
const WINDOW: Duration = Duration::from_secs(5);

impl Course {
    fn is_known(&self) -> bool {
        self.least.is_some()
    }

    fn delay(&self) -> Option<Duration> {
        self.least.map(|(_, now, before)| now.min(before))
    }

    /// `wait`: how long the acknowledgement may have waited for more to acknowledge.
    fn on_delay(&mut self, now: Time, sample: Duration, wait: Duration) {
        let delay = sample.saturating_sub(wait);
        match &mut self.least {
            None => {
                self.least = Some((now, delay, delay));
                (self.smoothed, self.deviation) = (sample, sample / 2);
            }
            Some((since, least, before)) => {
                if now.since(*since) >= WINDOW {
                    (*since, *before, *least) = (now, *least, delay);
                }
                *least = delay.min(*least);
                let error = sample.abs_diff(self.smoothed);
                self.deviation = (self.deviation * 3 + error) / 4;
                self.smoothed = (self.smoothed * 7 + sample) / 8;
            }
        }
    }

    /// So many bytes were acknowledged.
    fn on_bytes(&mut self, now: Time, bytes: u64) {
        self.meter.1 += bytes;
        let span = now.since(self.meter.0);
        if span >= Duration::from_millis(100).max(self.smoothed / 2) {
            let sample = self.meter.1 as f64 / span.as_secs_f64();
            // What an application offers less than the route carries says little.
            self.rate = if sample > self.rate { sample } else { self.rate + (sample - self.rate) / 8.0 };
            self.meter = (now, 0);
        }
    }

    /// Bytes that it carries in some time.
    fn bytes_in(&self, time: Duration) -> u64 {
        (self.rate * time.as_secs_f64()) as u64
    }

    /// Time in which it carries so many bytes.
    fn time_for(&self, bytes: u64) -> Duration {
        if self.rate > 0.0 { Duration::from_secs_f64((bytes as f64 / self.rate).min(60.0)) } else { Duration::ZERO }
    }
}

/// One route's part of a flow.
#[derive(Debug)]
pub(crate) struct Part {
    number: u64,
    pub(crate) link: LinkId,
    /// The flow that it is.
    pub(crate) flow: FlowId,
    /// What it was given and what is not known to be there, and the part's own number of the first.
    fed: VecDeque<Fed>,
    base: u64,
    course: Course,
    /// When an acknowledgement last brought news.
    progress_at: Time,
    /// When it was last given something.
    given_at: Time,
    /// It owes acknowledgements: nothing new goes by it while others have room.
    is_late: bool,
}

impl Part {
    fn new(now: Time, number: u64, link: LinkId, flow: FlowId) -> Self {
        Self {
            number,
            link,
            flow,
            fed: VecDeque::new(),
            base: 0,
            course: Course::default(),
            progress_at: now,
            given_at: now,
            is_late: false,
        }
    }

    /// Packets that should wait at its link.
    fn supply(&self, packet: u64) -> u64 {
        match self.course.is_known() {
            true => (self.course.bytes_in(SUPPLY) / packet.max(1)).clamp(LEAST_SUPPLY, MOST_SUPPLY),
            false => 2 * LEAST_SUPPLY,
        }
    }

    fn give(&mut self, now: Time, number: u64, bytes: usize) {
        if self.fed.is_empty() {
            self.course.meter = (now, 0);
        }
        self.given_at = now;
        self.fed.push_back(Fed { number, at: now, bytes: bytes as u32, is_copied: false });
    }

    /// It is given a copy of what goes by another part, by which its route is found out: if it does not arrive, nothing is owed.
    fn give_probe(&mut self, now: Time, number: u64) {
        self.given_at = now;
        self.fed.push_back(Fed { number, at: now, bytes: 0, is_copied: true });
    }

    /// The first `packets` of the part are there; bytes and packets that this is news of.
    fn on_delivered(&mut self, now: Time, packets: u64, is_lossy: bool) -> (u64, u64) {
        let (mut count, mut bytes, mut newest) = (0, 0, None);
        while self.base < packets
            && let Some(fed) = self.fed.pop_front()
        {
            self.base += 1;
            count += 1;
            bytes += u64::from(fed.bytes);
            newest = Some(fed.at);
        }
        if let Some(at) = newest {
            let wait = if is_lossy { Duration::from_secs_f64(ACK_WAIT.as_secs_f64() / count as f64) } else { Duration::ZERO };
            self.course.on_delay(now, now.since(at), wait);
            if bytes > 0 {
                self.course.on_bytes(now, bytes);
            }
            self.progress_at = now;
            self.is_late = false;
        }
        (count, bytes)
    }

    /// When a packet that was given at a time should be known to be there.
    fn expected(&self, at: Time) -> Time {
        at + if self.course.is_known() { self.course.smoothed + self.course.deviation * 4 } else { FIRST_GRACE - GRACE }
    }

    /// When it is too late.
    fn due(&self, at: Time) -> Time {
        self.expected(at) + GRACE
    }

    /// Since when it delivers nothing.
    fn stuck_since(&self) -> Option<Time> {
        self.fed.front().map(|fed| fed.at.max(self.progress_at))
    }

    /// How long it may deliver nothing.
    fn patience(&self) -> Duration {
        if self.course.is_known() { PATIENCE.max(self.course.smoothed * PATIENCE_DELAYS) } else { FIRST_PATIENCE }
    }

    fn given_up_at(&self) -> Option<Time> {
        Some(self.stuck_since()? + self.patience())
    }

    /// Delivers, or has nothing to.
    fn moves_since(&self, time: Time) -> bool {
        self.fed.is_empty() || self.progress_at > time
    }
}

/// What a part's link would take now.
#[derive(Clone, Copy, Debug, Default)]
struct Room {
    /// Packets that wait there.
    unsent: u64,
    /// Packets for which there is credit and memory.
    packets: u64,
}

/// A link that is not used for new parts for a while.
#[derive(Debug)]
struct Ban {
    link: LinkId,
    since: Time,
    lasts: Duration,
}

/// A flow that goes by several routes. See the module's documentation.
#[derive(Debug)]
pub(crate) struct Spread {
    pub(crate) session: SessionId,
    pub(crate) flow: FlowId,
    pub(crate) parts: Vec<Part>,
    /// Largest symbol of a part, once there is one.
    symbol: Option<u16>,
    made: u64,
    /// Packets of the whole: first that is not known to be there, and those from there on.
    acked: u64,
    kept: VecDeque<Kept>,
    kept_bytes: usize,
    /// Packets have a lifetime, and those whose lifetime has ended are left out.
    is_lossy: bool,
    skips: Skips,
    /// One past the last that the far end has room for.
    limit: u64,
    /// To be sent once more, by another part than before.
    again: BTreeSet<u64>,
    bans: SmallVec<[Ban; 2]>,
    /// The far end knows of the flow.
    is_heard: bool,
}

impl Spread {
    pub(crate) fn new(session: SessionId, flow: FlowId) -> Self {
        Self {
            session,
            flow,
            parts: Vec::new(),
            symbol: None,
            made: 0,
            acked: 0,
            kept: VecDeque::new(),
            kept_bytes: 0,
            is_lossy: false,
            skips: Skips::default(),
            limit: FIRST_WINDOW,
            again: BTreeSet::new(),
            bans: SmallVec::new(),
            is_heard: false,
        }
    }

    /// One past the last packet made.
    fn next(&self) -> u64 {
        self.acked + self.kept.len() as u64
    }

    fn kept_at(&self, number: u64) -> Option<&Kept> {
        self.kept.get(usize::try_from(number.checked_sub(self.acked)?).ok()?)
    }

    fn keep(&mut self, now: Time, packet: Bytes, deadline: Option<Time>) {
        self.kept_bytes += packet.len();
        self.kept.push_back(Kept { packet, made_at: now, deadline });
    }

    fn forget_first(&mut self) -> bool {
        let Some(kept) = self.kept.pop_front() else { return false };
        self.kept_bytes -= kept.packet.len();
        self.acked += 1;
        true
    }

    /// The far end has the first `packets` of the whole, whichever route they came by.
    pub(super) fn on_delivered(&mut self, packets: u64) {
        while self.acked < packets && self.forget_first() {}
        self.again = self.again.split_off(&self.acked);
    }

    pub(super) fn on_window(&mut self, limit: u64) {
        self.limit = self.limit.max(limit);
    }

    /// A part's first packets are there; packets and bytes that this is news of.
    pub(super) fn on_part_delivered(&mut self, now: Time, part: u64, packets: u64) -> Option<(LinkId, u64, u64)> {
        let part = self.parts.iter_mut().find(|p| p.number == part)?;
        let (count, bytes) = part.on_delivered(now, packets, self.is_lossy);
        let link = part.link;
        if count > 0 {
            self.is_heard = true;
            self.bans.retain(|ban| ban.link != link);
        }
        Some((link, count, bytes))
    }

    /// The part to which the next packet goes: of those that have room the one by which it arrives first. One that is slower than others gets it only if what waits
    /// takes these longer than they are ahead. `waiting`: bytes; `rooms`: of each part.
    fn choose(&self, waiting: u64, packet: u64, rooms: &[Room]) -> Option<usize> {
        let is_only = self.parts.len() == 1;
        let usable = |part: &Part| is_only || !part.is_late;
        let has_room = |part: &Part, room: &Room| {
            let is_unproven = !part.course.is_known() && part.fed.len() >= UNKNOWN && !(is_only && self.is_lossy);
            room.packets > 0 && room.unsent < part.supply(packet) && !is_unproven && !self.is_on_trial(part)
        };
        let best = self.parts.iter().filter(|p| usable(p)).filter_map(|p| p.course.delay()).min().unwrap_or(Duration::ZERO);
        let delay = |part: &Part| part.course.delay().unwrap_or(best);
        let is_worth = |part: &Part| {
            let own = delay(part);
            let faster = self.parts.iter().filter(|p| usable(p) && delay(p) + ALIKE.max(delay(p) / 8) < own);
            let mut ahead = faster.map(|p| p.course.bytes_in(own - delay(p))).peekable();
            ahead.peek().is_none() || ahead.fold(0, u64::saturating_add) < waiting
        };
        let candidates = self.parts.iter().zip(rooms).enumerate();
        candidates
            .filter(|(_, (part, room))| usable(part) && has_room(part, room) && is_worth(part))
            .min_by_key(|(_, (part, room))| delay(part) + part.course.time_for(room.unsent * packet))
            .map(|(at, _)| at)
    }

    /// What should have been acknowledged goes by other parts as well, while these deliver. Returns the parts to be given up. `has_other`: another route may be opened.
    ///
    /// Acknowledgements of all parts come by one way, which may be that of the dead one: only what is heard of another part after it was time for this
    /// one's says something about this one.
    fn look(&mut self, now: Time, has_other: bool) -> SmallVec<[usize; 2]> {
        let mut lost = SmallVec::new();
        for at in 0..self.parts.len() {
            let moves = |p: &Part, since: Time| if self.is_lossy { p.progress_at > since } else { p.moves_since(since) };
            let others = |since: Time| self.parts.iter().enumerate().any(|(i, p)| i != at && moves(p, since));
            let delivers = |since: Time| self.parts.iter().enumerate().any(|(i, p)| i != at && p.progress_at > since);
            let part = &self.parts[at];
            let acked = self.acked;
            if switch::is_off(Mechanism::LateCopies) {
                continue;
            }
            // What nobody wants any more shows that a part is late, but goes by no other.
            let late: SmallVec<[u64; 16]> = part
                .fed
                .iter()
                .filter(|fed| (fed.number >= acked || self.is_lossy) && !fed.is_copied)
                .take_while(|fed| part.due(fed.at) <= now && (others(part.expected(fed.at)) || (has_other && self.parts.len() == 1)))
                .map(|fed| fed.number)
                .collect();
            let is_lost = part.stuck_since().is_some_and(|since| since + part.patience() <= now && delivers(since + part.patience() / 2));
            if is_lost {
                lost.push(at);
            }
            if late.is_empty() {
                continue;
            }
            let part = &mut self.parts[at];
            part.is_late = true;
            for fed in part.fed.iter_mut().filter(|fed| late.contains(&fed.number)) {
                fed.is_copied = true;
            }
            self.again.extend(late.into_iter().filter(|number| *number >= acked));
        }
        lost
    }

    /// When to look again.
    fn look_at(&self, now: Time) -> Option<Time> {
        let acked = self.acked;
        let parts = self.parts.iter().flat_map(|part| {
            let open = part.fed.iter().find(|fed| (fed.number >= acked || self.is_lossy) && !fed.is_copied).map(|fed| part.due(fed.at));
            [open, part.given_up_at()].into_iter().flatten()
        });
        let bans = self.bans.iter().map(|ban| self.ends(ban)).filter(|at| *at > now);
        // What is due and waits for news of another part is looked at again soon.
        parts.map(|at| if at <= now { now + GRACE / 2 } else { at }).chain(bans).chain(self.expiry()).min()
    }

    /// Takes a part away; what it carried and is not known to be there goes by others.
    fn take_part(&mut self, at: usize) -> Part {
        let part = self.parts.remove(at);
        let acked = self.acked;
        self.again.extend(part.fed.iter().map(|fed| fed.number).filter(|number| *number >= acked));
        part
    }

    fn ban(&mut self, now: Time, link: LinkId) {
        match self.bans.iter_mut().find(|ban| ban.link == link) {
            Some(ban) => {
                ban.lasts = (ban.lasts * 2).min(LONGEST_BAN);
                ban.since = now;
            }
            None => self.bans.push(Ban { link, since: now, lasts: FIRST_BAN }),
        }
    }

    fn is_banned(&self, now: Time, link: LinkId) -> bool {
        self.bans.iter().any(|ban| ban.link == link && now < self.ends(ban))
    }

    /// Where there is no other route, one is tried sooner.
    fn ends(&self, ban: &Ban) -> Time {
        ban.since + if self.parts.is_empty() { ban.lasts / 8 } else { ban.lasts }
    }
}

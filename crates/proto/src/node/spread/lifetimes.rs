//! Flows of datagrams with a lifetime over several routes: nothing is kept or sent again that nobody wants any more, nothing goes by a route that would bring it too
//! late, and a route of which nothing is known is found out with copies.

use super::{ALIKE, Part, Room, Spread};
use crate::switch::{self, Mechanism};
use crate::units::{Duration, Time};
use bytes::Bytes;
use smallvec::SmallVec;

/// The far end is told at most once in this time what does not come any more; where that holds up what came after it,
const SKIP_PAUSE: Duration = Duration::from_millis(25);
/// in this.
const ORDERED_SKIP_PAUSE: Duration = Duration::from_millis(5);
/// Copies by which a route of which nothing is known is measured before anything depends on it: the acknowledgement of one suffices, and of eight packets one arrives
/// even where half of them are lost.
const PROBES: usize = 8;
/// A route that nothing went by for this long gets a copy of the next packet: what is known of it must not be older than what its delay is remembered for.
const STALE: Duration = Duration::from_secs(1);

/// Nearly all comes by the fastest route within its mean delay and so many deviations.
const DEVIATIONS: u32 = 4;
/// An acknowledgement waits so long for more to acknowledge, at most: that much less, shared by the packets that came meanwhile, is the last one's delay.
pub(super) const ACK_WAIT: Duration = Duration::from_millis(25);

/// A packet of the whole that is not known to be there.
#[derive(Clone, Debug)]
pub(super) struct Kept {
    pub(super) packet: Bytes,
    pub(super) made_at: Time,
    /// When nobody wants it any more.
    pub(super) deadline: Option<Time>,
}

impl Kept {
    pub(super) fn is_wanted(&self, now: Time) -> bool {
        self.deadline.is_none_or(|at| now < at)
    }

    /// When it is given up, by so much before its time is over, or a quarter of the time that there was.
    fn ends(&self, lead: Duration) -> Option<Time> {
        self.deadline.map(|at| {
            let life = at.since(self.made_at);
            self.made_at + (life - lead.min(life / 4))
        })
    }
}

/// What the far end has to be told of packets that do not come any more.
#[derive(Debug, Default)]
pub(super) struct Skips {
    /// What comes after a missing packet waits for it there.
    is_ordered: bool,
    /// Everything below is there or given up, and how far the far end was told so.
    floor: u64,
    told: u64,
    told_at: Option<Time>,
}

impl Skips {
    fn at(&self) -> Option<Time> {
        let pause = if self.is_ordered { ORDERED_SKIP_PAUSE } else { SKIP_PAUSE };
        (self.floor > self.told).then(|| self.told_at.map_or(Time::ZERO, |at| at + pause))
    }
}

impl Spread {
    /// It carries datagrams with a lifetime. `is_ordered`: in order.
    pub(in crate::node) fn with_lifetimes(mut self, is_ordered: bool) -> Self {
        self.is_lossy = true;
        self.skips.is_ordered = is_ordered;
        self
    }

    /// What came after a missing packet waits for it until the far end hears of its end: that is to be so when the packet's time is over, not a one-way delay later, when the
    /// time of those behind it is over, too.
    fn lead(&self) -> Duration {
        let fastest = self.parts.iter().filter(|p| p.course.is_known()).map(|p| p.course.smoothed / 2 + p.course.deviation).min();
        fastest.filter(|_| self.skips.is_ordered).map_or(Duration::ZERO, |time| time + ORDERED_SKIP_PAUSE)
    }

    pub(super) fn is_wanted(&self, now: Time, number: u64) -> bool {
        self.kept_at(number).is_some_and(|kept| kept.is_wanted(now))
    }

    pub(super) fn deadline(&self, number: u64) -> Option<Time> {
        self.kept_at(number)?.deadline
    }

    /// When nobody wants a packet any more, and what time there was for it.
    pub(super) fn life(&self, number: u64) -> Option<(Time, Duration)> {
        let kept = self.kept_at(number)?;
        kept.deadline.map(|deadline| (deadline, deadline.since(kept.made_at)))
    }

    /// Forgets the first packets as far as their time is over.
    pub(super) fn expire(&mut self, now: Time) {
        let (before, lead) = (self.acked, self.lead());
        while self.kept.front().and_then(|kept| kept.ends(lead)).is_some_and(|at| at <= now) {
            self.forget_first();
        }
        if self.acked > before {
            self.skips.floor = self.acked;
            self.again = self.again.split_off(&self.acked);
        }
    }

    /// Packets below do not come any more, and it is time to tell the far end.
    pub(super) fn take_skip(&mut self, now: Time) -> Option<u64> {
        self.skips.at().filter(|at| *at <= now)?;
        (self.skips.told, self.skips.told_at) = (self.skips.floor, Some(now));
        Some(self.skips.told)
    }

    /// The same, when the flow is over.
    pub(super) fn take_last_skip(&mut self) -> Option<u64> {
        (self.skips.floor > core::mem::replace(&mut self.skips.told, self.skips.floor)).then_some(self.skips.floor)
    }

    /// When there is something to forget, or to tell.
    pub(super) fn expiry(&self) -> Option<Time> {
        let first = self.kept.front().and_then(|kept| kept.ends(self.lead()));
        [first, self.skips.at()].into_iter().flatten().min()
    }

    /// How long a part's route takes, and by how much faster the fastest is; `None` if nothing is known. What is measured ends with the acknowledgement, which comes
    /// back by the same route for all parts: that takes half of the fastest's delay, if its return path is as long as its path there.
    pub(super) fn route_time(&self, at: usize) -> Option<(Duration, Duration)> {
        let own = self.parts.get(at)?.course.delay()?;
        let best = self.parts.iter().filter_map(|p| p.course.delay()).min().unwrap_or(own);
        let (course, ahead) = (&self.parts[at].course, own - best);
        // What waits on the route is in the mean. Deviations, which few samples exaggerate, must shut no route out; without the fastest nothing goes at all.
        let margin = if ahead <= ALIKE { course.deviation * DEVIATIONS } else { Duration::ZERO };
        Some(((course.smoothed + margin).max(own) - best / 2, ahead))
    }

    /// The same, with what waits at the part's link.
    pub(super) fn route_time_behind(&self, at: usize, room: &Room, packet: u64) -> Option<(Duration, Duration)> {
        let (time, ahead) = self.route_time(at)?;
        Some((time + self.parts[at].course.time_for(room.unsent * packet), ahead))
    }

    /// A packet would come too late by this part. `life`: when nobody wants it any more, and what time there was for it.
    pub(super) fn is_too_late(&self, now: Time, at: usize, room: &Room, packet: u64, life: Option<(Time, Duration)>) -> bool {
        let Some((deadline, life)) = life else { return false };
        // A route of which nothing is known is taken to need half of the time that there was.
        let time = self.route_time_behind(at, room, packet).map_or(life / 2, |(time, _)| time);
        now + time > deadline && !switch::is_off(Mechanism::TimelyRoutes)
    }

    /// No route is faster than this part's, so that nothing is gained by waiting for another.
    pub(super) fn is_fastest(&self, at: usize) -> bool {
        self.route_time(at).is_none_or(|(_, ahead)| ahead <= ALIKE)
    }

    /// Nothing is known of this part, while another one is known: it gets copies only.
    pub(super) fn is_on_trial(&self, part: &Part) -> bool {
        let others = |p: &Part| p.course.is_known() && !p.is_late;
        self.is_lossy && !part.course.is_known() && self.parts.iter().any(others)
    }

    /// Where nothing that is known has room, and what waits has done so for half of its lifetime, it is risked on a route of which nothing is known.
    pub(super) fn last_resort(&self, packet: u64, rooms: &[Room]) -> Option<usize> {
        let takes = |(part, room): &(&Part, &Room)| self.is_on_trial(part) && room.packets > 0 && room.unsent < part.supply(packet);
        self.parts.iter().zip(rooms).position(|place| takes(&place))
    }

    /// Numbers of packets of which a part gets copies, so that its route becomes or remains known: the newest that are wanted.
    pub(super) fn probes_for(&self, now: Time, part: &Part, room: &Room) -> SmallVec<[u64; PROBES]> {
        // What is heard of this route says whether it is time to be heard of another.
        let is_asked = || self.parts.iter().any(|p| p.link != part.link && p.fed.front().is_some_and(|fed| p.due(fed.at) <= now));
        let is_idle = part.course.is_known() && part.fed.is_empty() && self.parts.len() > 1;
        let is_stale = is_idle && (now.since(part.given_at) >= STALE || is_asked());
        let count = match (is_stale, self.is_on_trial(part)) {
            _ if !self.is_lossy => 0,
            (true, _) => 1,
            (_, true) => PROBES.saturating_sub(part.fed.len()),
            _ => 0,
        };
        let newest = self.kept.iter().rev().zip((self.acked..self.next()).rev()).take(count.min(room.packets as usize));
        newest.filter(|(kept, _)| kept.is_wanted(now)).map(|(_, number)| number).collect()
    }
}

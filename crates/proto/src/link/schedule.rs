//! Which flow goes next: latency before bulk but at most half of a busy link, and within a class deficit round robin twice: over the origins of flows, and over the flows of
//! each origin (P17). An origin is a neighbour whose flows pass here, or this node itself: a neighbour gets no more of a link by opening more flows.

use crate::flows::OutFlow;
use crate::ids::FlowLabel;
use crate::neighbour::Neighbour;
use crate::options::Class;
use crate::switch::{self, Mechanism};
use crate::work;
use std::collections::{BTreeMap, VecDeque};
use std::sync::atomic::Ordering;

/// Bytes that an origin may send per turn, and so may a flow.
const QUANTUM: i64 = 3000;
/// How far the latency class may run ahead of its half while bulk flows wait, in bytes, and how much an origin owes the others for what it sent in that class.
const LATENCY_LEAD: i64 = 64 * 1024;
/// Labels of flows that are gone may stay in a queue, so many and as many as there are others.
const STALE: usize = 16;

/// Where a flow comes from: the neighbour that opened it here, by whatever link, or this node.
pub(crate) type Origin = Option<Neighbour>;

/// Classes whose flows a path may take.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Wanted {
    pub(crate) latency: bool,
    pub(crate) bulk: bool,
}

impl Wanted {
    pub(crate) const ALL: Self = Self { latency: true, bulk: true };
}

/// What the schedule has to know of a flow.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Turn {
    pub(crate) label: FlowLabel,
    pub(crate) class: Class,
    pub(crate) origin: Origin,
    /// So many flows share what one may send per turn.
    pub(crate) siblings: u32,
}

/// Whose turns a flow takes.
pub(crate) fn origin_of(flow: &OutFlow) -> Origin {
    flow.origin.filter(|_| !switch::is_off(Mechanism::SharesOfOrigins))
}

impl Turn {
    /// A flow's turn.
    pub(crate) fn of(flow: &OutFlow) -> Self {
        let siblings = match switch::is_off(Mechanism::SharedTurns) {
            true => 1,
            false => flow.siblings.as_ref().map_or(1, |count| count.load(Ordering::Relaxed)),
        };
        Self { label: flow.open.label, class: flow.open.class, origin: origin_of(flow), siblings }
    }
}

/// Flows of one origin in one class that have something to send.
#[derive(Debug)]
struct OriginQueue {
    flows: VecDeque<FlowLabel>,
    /// Bytes that it may send before the others have their turn.
    balance: i64,
    /// It is in the ring of its class.
    is_waiting: bool,
    /// Flows at most that ended while they waited.
    stale: usize,
}

impl Default for OriginQueue {
    fn default() -> Self {
        Self { flows: VecDeque::new(), balance: QUANTUM, is_waiting: false, stale: 0 }
    }
}

#[derive(Debug, Default)]
struct Share {
    /// Flows that go out here, whether they wait or not.
    flows: usize,
    latency: OriginQueue,
    bulk: OriginQueue,
}

impl Share {
    fn queue(&mut self, class: Class) -> &mut OriginQueue {
        match class {
            Class::Latency => &mut self.latency,
            Class::Bulk => &mut self.bulk,
        }
    }

    /// Nothing is to be remembered of it.
    fn is_over(&self) -> bool {
        self.flows == 0 && !self.latency.is_waiting && !self.bulk.is_waiting
    }
}

/// Rings of origins whose flows have something to send, and these flows. A flow waits at most once; its owner keeps the flag.
#[derive(Debug, Default)]
pub(crate) struct Schedule {
    /// Of all flows that go out here.
    shares: BTreeMap<Origin, Share>,
    latency: VecDeque<Origin>,
    bulk: VecDeque<Origin>,
    /// Origins whose last waiting flow was taken for the packet that is being filled: they are still there.
    away: Vec<(Class, Origin)>,
    /// Bytes that the latency class sent beyond the bulk class since both were waiting.
    lead: i64,
}

impl Schedule {
    /// A flow of this origin goes out here from now on.
    pub(crate) fn join(&mut self, origin: Origin) {
        self.shares.entry(origin).or_default().flows += 1;
    }

    /// A flow of this origin goes out here no more; `queued` is its class if it waits. `is_live`: whether a flow is still there.
    pub(crate) fn leave(&mut self, origin: Origin, queued: Option<Class>, is_live: impl Fn(&FlowLabel) -> bool) {
        let Some(share) = self.shares.get_mut(&origin) else { return };
        share.flows -= 1;
        if let Some(class) = queued {
            let queue = share.queue(class);
            queue.stale += 1;
            if queue.stale > STALE + queue.flows.len() / 2 {
                queue.flows.retain(is_live);
                queue.stale = 0;
            }
        }
        if share.is_over() {
            self.shares.remove(&origin);
        }
    }

    /// A flow has something to send: it waits behind those of its origin.
    pub(crate) fn push(&mut self, label: FlowLabel, class: Class, origin: Origin) {
        let queue = self.shares.entry(origin).or_default().queue(class);
        queue.flows.push_back(label);
        if !core::mem::replace(&mut queue.is_waiting, true) {
            self.ring(class).push_back(origin);
        }
    }

    /// All flows that wait.
    #[cfg(test)]
    pub(crate) fn iter(&self) -> impl Iterator<Item = &FlowLabel> {
        self.latency().chain(self.bulk())
    }

    /// Flows of the latency class that wait.
    pub(crate) fn latency(&self) -> impl Iterator<Item = &FlowLabel> {
        self.latency.iter().filter_map(|origin| self.shares.get(origin)).flat_map(|share| &share.latency.flows)
    }

    /// Flows of the bulk class that wait.
    pub(crate) fn bulk(&self) -> impl Iterator<Item = &FlowLabel> {
        self.bulk.iter().filter_map(|origin| self.shares.get(origin)).flat_map(|share| &share.bulk.flows)
    }

    /// A packet is to be filled, or the next: what was taken for the one before was given back.
    pub(crate) fn begin(&mut self) {
        self.away.clear();
    }

    /// Takes the flow whose turn it is among the wanted. The owner says what it sent with [`Schedule::charge`], and gives it back with [`Schedule::again`] if it
    /// still has work.
    pub(crate) fn pop(&mut self, wanted: Wanted) -> Option<FlowLabel> {
        match (wanted.latency, wanted.bulk) {
            (true, true) => {}
            (true, false) => return self.pop_of(Class::Latency),
            (false, true) => return self.pop_of(Class::Bulk),
            (false, false) => return None,
        }

        if self.bulk.is_empty() || self.latency.is_empty() {
            self.lead = 0;
        }
        let is_latency_first = !self.latency.is_empty() && (self.bulk.is_empty() || self.lead < LATENCY_LEAD);
        let (first, second) = if is_latency_first { (Class::Latency, Class::Bulk) } else { (Class::Bulk, Class::Latency) };
        self.pop_of(first).or_else(|| self.pop_of(second))
    }

    /// The origin in front goes on while its balance lasts. Each that has to wait gets the next turn's bytes, so that each wait is paid for by what the origin sent.
    fn pop_of(&mut self, class: Class) -> Option<FlowLabel> {
        loop {
            let origin = *self.ring(class).front()?;
            let (is_last, is_contended) = (self.ring(class).len() == 1, self.is_contended(class, origin));
            let Some(share) = self.shares.get_mut(&origin) else {
                self.ring(class).pop_front();
                continue;
            };
            let queue = share.queue(class);
            if !is_contended {
                queue.balance = queue.balance.max(0); // nobody is owed anything
            }
            if queue.balance <= 0 && !is_last {
                work::step();
                queue.balance += QUANTUM;
                self.ring(class).rotate_left(1);
                continue;
            }
            let label = queue.flows.pop_front();
            if queue.flows.is_empty() {
                queue.is_waiting = false;
                if share.is_over() {
                    self.shares.remove(&origin);
                }
                self.ring(class).pop_front();
                self.away.push((class, origin));
            }
            if label.is_some() {
                return label;
            }
        }
    }

    fn ring(&mut self, class: Class) -> &mut VecDeque<Origin> {
        match class {
            Class::Latency => &mut self.latency,
            Class::Bulk => &mut self.bulk,
        }
    }

    /// Others than `origin` wait in a class.
    fn is_contended(&mut self, class: Class, origin: Origin) -> bool {
        let is_other_away = self.away.iter().any(|(c, o)| *c == class && *o != origin);
        let ring = self.ring(class);
        is_other_away || ring.len() > 1 || ring.front().is_some_and(|o| *o != origin)
    }

    /// A flow that was taken sent `bytes`: its origin pays, whether the flow has more or not.
    pub(crate) fn charge(&mut self, turn: &Turn, bytes: usize) {
        let bytes = bytes as i64;
        let is_owed = turn.class == Class::Latency && self.is_contended(Class::Bulk, turn.origin);
        let is_shared = self.is_contended(turn.class, turn.origin);
        let Some(share) = self.shares.get_mut(&turn.origin) else { return };
        if is_shared {
            let queue = share.queue(turn.class);
            queue.balance = (queue.balance - bytes).max(-LATENCY_LEAD);
        }
        // An origin that sends in both classes gets no second share in the second. Not the other way round: a neighbour could else fill the latency class and so take from
        // others what they send in it.
        if is_owed {
            share.bulk.balance = (share.bulk.balance - bytes).max(-LATENCY_LEAD);
        }
    }

    /// The turn of one of several flows that take the turns of one has come: true if it has not saved enough for it, and waits for the next.
    pub(crate) fn defers(&mut self, turn: &Turn, balance: &mut i64) -> bool {
        let waits = turn.siblings > 1 && *balance < 0;
        if waits {
            *balance += QUANTUM / i64::from(turn.siblings);
            self.push(turn.label, turn.class, turn.origin);
        }
        waits
    }

    /// The flow that was taken sent `bytes` and has more to send: it keeps its turn while its balance lasts, then goes behind the others of its origin.
    pub(crate) fn again(&mut self, turn: &Turn, bytes: usize, balance: &mut i64) {
        let bytes = bytes as i64;
        let is_other_empty = match turn.class {
            Class::Latency => self.bulk.is_empty(),
            Class::Bulk => self.latency.is_empty(),
        };
        if !is_other_empty {
            self.lead = (self.lead + if turn.class == Class::Latency { bytes } else { -bytes }).max(0);
        }
        *balance -= bytes;
        let keeps = *balance > 0;
        let queue = self.shares.entry(turn.origin).or_default().queue(turn.class);
        if keeps {
            queue.flows.push_front(turn.label);
        } else {
            *balance += QUANTUM / i64::from(turn.siblings.max(1));
            queue.flows.push_back(turn.label);
        }
        // Its origin goes on where it was, unless its only flow has a share of a turn and has had it.
        let is_over = !keeps && turn.siblings > 1 && queue.flows.len() == 1;
        if is_over {
            queue.balance = queue.balance.min(0) + QUANTUM;
        }
        if !core::mem::replace(&mut queue.is_waiting, true) {
            match is_over {
                false => self.ring(turn.class).push_front(turn.origin),
                true => self.ring(turn.class).push_back(turn.origin),
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ids::LinkId;
    use crate::work::Work;

    /// Flows that always have a packet of their size to send; how many bytes each sends in so many packets.
    fn run(flows: &[(Class, Origin, u32, usize)], packets: usize) -> Vec<u64> {
        let mut s = Schedule::default();
        let mut balance = vec![0i64; flows.len()];
        let mut sent = vec![0u64; flows.len()];
        for (i, (class, origin, _, _)) in flows.iter().enumerate() {
            s.join(*origin);
            s.push(FlowLabel(i as u64), *class, *origin);
        }
        for _ in 0..packets {
            s.begin();
            let label = s.pop(Wanted::ALL).unwrap();
            let i = label.0 as usize;
            let (class, origin, siblings, size) = flows[i];
            let turn = Turn { label, class, origin, siblings };
            if !s.defers(&turn, &mut balance[i]) {
                s.charge(&turn, size);
                s.again(&turn, size, &mut balance[i]);
                sent[i] += size as u64;
            }
        }
        sent
    }

    fn neighbour(number: u64) -> Origin {
        Some(Neighbour::Link(LinkId(number)))
    }

    fn assert_alike(a: u64, b: u64) {
        assert!((0.9..1.1).contains(&(a as f64 / b as f64)), "{a} {b}");
    }

    #[test]
    fn flows_of_one_class_share_bytes_whatever_their_packet_size() {
        let sent = run(&[(Class::Bulk, None, 1, 1400), (Class::Bulk, None, 1, 200)], 8000);
        assert_alike(sent[0], sent[1]);
        let sent = run(&[(Class::Bulk, neighbour(1), 1, 1400), (Class::Bulk, neighbour(2), 1, 200)], 8000);
        assert_alike(sent[0], sent[1]);
    }

    #[test]
    fn three_parts_of_a_flow_take_what_another_flow_takes() {
        let part = |origin| (Class::Bulk, origin, 3, 1400);
        let sent = run(&[part(None), part(None), part(None), (Class::Bulk, None, 1, 1400)], 20_000);
        assert_alike(sent[..3].iter().sum(), sent[3]);
        let apart = [part(neighbour(1)), part(neighbour(2)), part(neighbour(3)), (Class::Bulk, neighbour(4), 1, 1400)];
        let sent = run(&apart, 20_000);
        assert_alike(sent[..3].iter().sum(), sent[3]);
    }

    #[test]
    fn latency_class_is_capped_at_half_of_a_busy_link() {
        let sent = run(&[(Class::Latency, None, 1, 1400), (Class::Bulk, None, 1, 1400)], 10_000);
        let share = sent[0] as f64 / (sent[0] + sent[1]) as f64;
        assert!((0.45..0.56).contains(&share), "{sent:?}");
    }

    #[test]
    fn origins_share_alike_however_many_flows_and_classes_they_have() {
        let mut flows = vec![(Class::Bulk, neighbour(1), 1, 1400)];
        flows.resize(65, (Class::Bulk, neighbour(2), 1, 1000));
        flows.resize(97, (Class::Bulk, None, 1, 1200));
        let sent = run(&flows, 30_000);
        let (one, two, own) = (sent[0], sent[1..65].iter().sum(), sent[65..].iter().sum());
        assert_alike(one, two);
        assert_alike(one, own);
        flows.resize(129, (Class::Latency, neighbour(2), 1, 700));
        let sent = run(&flows, 60_000);
        let two = sent[1..65].iter().sum::<u64>() + sent[97..].iter().sum::<u64>();
        // The latency class has half of the link, and an origin that fills it has nothing besides.
        let own = sent[65..97].iter().sum::<u64>();
        assert_alike(sent[0], own);
        assert_alike(two, sent[0] + own);
    }

    #[test]
    fn a_packet_costs_the_same_with_few_origins_and_with_many() {
        let steps = |origins| {
            let flows: Vec<_> = (0..origins).map(|n| (Class::Bulk, neighbour(n), 1, 1400)).collect();
            let before = Work::done().steps;
            run(&flows, 10_000);
            Work::done().steps - before
        };
        let (few, many) = (steps(4), steps(2000));
        assert!(few <= 10_000 && many <= 10_000, "{few} {many}");
    }

    #[test]
    fn flows_that_end_while_they_wait_leave_nothing_behind() {
        let mut s = Schedule::default();
        s.join(neighbour(1));
        for i in 0..10_000 {
            s.join(neighbour(2));
            s.push(FlowLabel(i), Class::Bulk, neighbour(2));
            s.leave(neighbour(2), Some(Class::Bulk), |_| false);
        }
        assert!(s.bulk().count() <= 2 * STALE, "{}", s.bulk().count());
        while s.pop(Wanted::ALL).is_some() {}
        assert_eq!(s.shares.len(), 1, "an origin without flows is forgotten");
        s.leave(neighbour(1), None, |_| false);
        assert!(s.shares.is_empty());
    }
}

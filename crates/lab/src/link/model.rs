//! The link itself: one direction, sans-IO and deterministic. The simulator and the namespace emulator both run it.
//!
//! ```
//! use noctule_lab::link::{Bandwidth, Ecn, LinkModel, LinkSpec, Time};
//! use std::time::Duration;
//!
//! let spec = LinkSpec::new(Bandwidth::from_mbit(100), Duration::from_millis(50));
//! let mut link = LinkModel::new(&spec, 7)?;
//! link.enqueue(Time::ZERO, 1500, Ecn::NotEct, "a packet").expect("the queue has room");
//! // 120 us of transmission and 50 ms of propagation.
//! let arrives = Time::from_nanos(50_120_000);
//! assert_eq!(link.next_deadline(), Some(arrives));
//! assert_eq!(link.poll_deliver(arrives).map(|d| d.packet), Some("a packet"));
//! # Ok::<(), noctule_lab::link::SpecError>(())
//! ```

use std::cmp::Ordering;
use std::collections::{BinaryHeap, VecDeque};
use std::time::Duration;

use noctule_proto::units::{Ecn, Time};

use super::discipline::{Discipline, Limits, Waiting};
use super::jitter::shifted;
use super::loss::{LossAt, LossProcess};
use super::pie::Refused;
use super::queue::{BucketState, QueueLimit};
use super::random::{Dice, Purpose};
use super::spec::{LinkSpec, SpecError};
use super::stats::LinkStats;
use super::trace::Opportunities;
use super::units::Probability;

/// Why a packet was not taken.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum DropReason {
    /// Larger than the MTU of the link.
    TooBig,
    /// No token in the policer.
    Policed,
    /// The queue is full.
    QueueFull,
    /// Active queue management, before the queue was full.
    Aqm,
    /// The loss model, before the bottleneck.
    Lost,
}

/// A packet that the link did not take, handed back so that its memory can be used again.
#[derive(Debug)]
pub struct Dropped<P> {
    /// Why.
    pub reason: DropReason,
    /// The packet.
    pub packet: P,
}

/// A packet at the far end.
#[derive(Debug)]
pub struct Delivery<P> {
    /// When it arrives.
    pub at: Time,
    /// The packet.
    pub packet: P,
    /// Its length in IP bytes.
    pub wire_len: u32,
    /// Its ECN field as it arrives.
    pub ecn: Ecn,
    /// Some if bits are to be flipped: the seed for [`flip_bits`].
    pub corrupt: Option<u64>,
    copy: bool,
    seq: u64,
}

impl<P> PartialEq for Delivery<P> {
    fn eq(&self, other: &Self) -> bool {
        (self.at, self.seq) == (other.at, other.seq)
    }
}
impl<P> Eq for Delivery<P> {}
impl<P> PartialOrd for Delivery<P> {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}
impl<P> Ord for Delivery<P> {
    /// Reversed: the heap gives the earliest first.
    fn cmp(&self, other: &Self) -> Ordering {
        (other.at, other.seq).cmp(&(self.at, self.seq))
    }
}

/// What the transmitter does.
enum Transmitter<P> {
    /// Nothing waits.
    Idle,
    /// It takes a packet from the queue at this time: a trace has no opportunity before.
    Picks(Time),
    /// It sends a packet, whose first and last bit pass at these times.
    Sends { waiting: Waiting<P>, starts: Time, ends: Time },
}

/// Lost packets kept for [`LinkModel::poll_discarded`]; more than these are freed.
const DISCARDED_KEPT: usize = 256;

/// One direction of a link in a run; see the module documentation.
pub struct LinkModel<P> {
    spec: LinkSpec,
    changes: VecDeque<(Time, LinkSpec)>,
    now: Time,
    max_packets: u64,
    max_bytes: u64,
    queue: Discipline<P>,
    /// Of the queue and of the packet in transmission.
    queue_bytes: u64,
    transmitter: Transmitter<P>,
    opportunities: Option<Opportunities>,
    /// Fraction of a nanosecond not yet charged, times the rate.
    carry: u64,
    bucket: Option<BucketState>,
    policer: Option<BucketState>,
    loss: LossProcess,
    jitter: Dice,
    duplicate: Dice,
    reorder: Dice,
    corrupt: Dice,
    /// Deliveries whose times do not decrease; those that come out of order are in `strays`.
    in_flight: VecDeque<Delivery<P>>,
    strays: BinaryHeap<Delivery<P>>,
    last_in_order: Time,
    seq: u64,
    discarded: Vec<P>,
    /// Scratch: what the queue has just dropped.
    dropped: Vec<Waiting<P>>,
    stats: LinkStats,
}

impl<P: Clone> LinkModel<P> {
    /// A link as `spec` says; the same seed gives the same run.
    pub fn new(spec: &LinkSpec, seed: u64) -> Result<Self, SpecError> {
        spec.check()?;
        let mut link = Self {
            spec: LinkSpec::default(),
            changes: spec.states()?.into(),
            now: Time::ZERO,
            max_packets: 0,
            max_bytes: 0,
            queue: Discipline::new(spec.aqm, seed),
            queue_bytes: 0,
            transmitter: Transmitter::Idle,
            opportunities: spec.trace.clone().map(|trace| Opportunities::new(trace, spec.mtu)),
            carry: 0,
            bucket: None,
            policer: None,
            loss: LossProcess::new(spec.loss_model, spec.loss, seed),
            jitter: Dice::new(seed, Purpose::Jitter),
            duplicate: Dice::new(seed, Purpose::Duplicate),
            reorder: Dice::new(seed, Purpose::Reorder),
            corrupt: Dice::new(seed, Purpose::Corrupt),
            in_flight: VecDeque::new(),
            strays: BinaryHeap::new(),
            last_in_order: Time::ZERO,
            seq: 0,
            discarded: Vec::new(),
            dropped: Vec::new(),
            stats: LinkStats::default(),
        };
        link.adopt(LinkSpec { at: Vec::new(), ..spec.clone() });
        Ok(link)
    }

    /// The link as it is at present.
    pub fn spec(&self) -> &LinkSpec {
        &self.spec
    }

    /// Counters since the start or since [`Self::clear_stats`].
    pub fn stats(&self) -> &LinkStats {
        &self.stats
    }

    /// Begins to count anew, at the end of the warm-up.
    pub fn clear_stats(&mut self) {
        self.stats.clear();
    }

    /// IP bytes that wait or are in transmission.
    pub fn queue_bytes(&self) -> u64 {
        self.queue_bytes
    }

    /// Hands a packet to the link at `now`, which must not lie before an earlier call's.
    pub fn enqueue(&mut self, now: Time, wire_len: u32, ecn: Ecn, packet: P) -> Result<(), Dropped<P>> {
        self.enqueue_of_flow(now, 0, wire_len, ecn, packet)
    }

    /// As [`Self::enqueue`], with a number that tells flows apart, for queues that give each its turn: any hash of addresses and ports.
    pub fn enqueue_of_flow(&mut self, now: Time, flow: u64, wire_len: u32, ecn: Ecn, packet: P) -> Result<(), Dropped<P>> {
        self.advance(now);
        let now = self.now;
        self.stats.offered_packets += 1;
        self.stats.offered_bytes += u64::from(wire_len);
        if let Some(reason) = self.refuse(now, wire_len) {
            return Err(Dropped { reason, packet });
        }
        match self.queue.push(now, Waiting { since: now, wire_len, ecn, flow, packet }, &mut self.dropped) {
            Ok(marked) => self.stats.marked += u64::from(marked),
            Err((Refused::Full, waiting)) => {
                self.stats.queue_drops += 1;
                return Err(Dropped { reason: DropReason::QueueFull, packet: waiting.packet });
            }
            Err((Refused::Early, waiting)) => {
                self.stats.aqm_drops += 1;
                return Err(Dropped { reason: DropReason::Aqm, packet: waiting.packet });
            }
        }
        self.queue_bytes += u64::from(wire_len);
        // What has to go when a packet is put into a full queue.
        self.stats.queue_drops += self.dropped.len() as u64;
        self.discard_dropped();
        self.stats.queue_bytes_max = self.stats.queue_bytes_max.max(self.queue_bytes);
        if matches!(self.transmitter, Transmitter::Idle) {
            self.carry = 0;
            self.next_packet(now);
        }
        Ok(())
    }

    fn discard_dropped(&mut self) {
        for waiting in self.dropped.drain(..) {
            self.queue_bytes -= u64::from(waiting.wire_len);
            if self.discarded.len() < DISCARDED_KEPT {
                self.discarded.push(waiting.packet);
            }
        }
    }

    fn refuse(&mut self, now: Time, wire_len: u32) -> Option<DropReason> {
        if wire_len > self.spec.mtu {
            self.stats.too_big += 1;
            return Some(DropReason::TooBig);
        }
        if let Some(policer) = &mut self.policer {
            if policer.ready_at(now, wire_len) > now {
                self.stats.policed += 1;
                return Some(DropReason::Policed);
            }
            policer.take(now, wire_len);
        }
        if self.spec.loss_at == LossAt::Before && self.loss.is_lost(now, wire_len) {
            self.stats.lost += 1;
            return Some(DropReason::Lost);
        }
        // An empty queue takes any packet: a limit below one packet would stop the link.
        let in_transmission = usize::from(matches!(self.transmitter, Transmitter::Sends { .. }));
        let packets = self.queue.len() + in_transmission;
        let full = self.queue.is_tail()
            && packets > 0
            && (packets as u64 >= self.max_packets || self.queue_bytes + u64::from(wire_len) > self.max_bytes);
        if full {
            self.stats.queue_drops += 1;
            return Some(DropReason::QueueFull);
        }
        None
    }

    /// The next packet that has arrived by `now`.
    pub fn poll_deliver(&mut self, now: Time) -> Option<Delivery<P>> {
        self.advance(now);
        let stray_first = match (self.in_flight.front(), self.strays.peek()) {
            // `>` in the reversed order: the stray is earlier.
            (Some(a), Some(b)) => b > a,
            (None, Some(_)) => true,
            _ => false,
        };
        let delivery = if stray_first {
            if self.strays.peek()?.at > self.now {
                return None;
            }
            self.strays.pop()?
        } else {
            if self.in_flight.front()?.at > self.now {
                return None;
            }
            self.in_flight.pop_front()?
        };
        self.stats.delivered_packets += 1;
        self.stats.delivered_bytes += u64::from(delivery.wire_len);
        if !delivery.copy && delivery.corrupt.is_none() {
            self.stats.useful_bytes += u64::from(delivery.wire_len);
        }
        Some(delivery)
    }

    /// A packet lost on the path, for its memory. At most some hundred are kept.
    pub fn poll_discarded(&mut self) -> Option<P> {
        self.discarded.pop()
    }

    /// When to call [`Self::poll_deliver`] next: never later than the next delivery, seldom earlier. None if the link is empty.
    pub fn next_deadline(&self) -> Option<Time> {
        let mut deadline = Time::MAX;
        if let Some(d) = self.in_flight.front() {
            deadline = d.at;
        }
        if let Some(d) = self.strays.peek() {
            deadline = deadline.min(d.at);
        }
        let leaves = self.transmitter_due();
        if leaves != Time::MAX {
            let earliest = match self.spec.jitter.as_nanos() {
                0 => self.spec.delay.0,
                j => self.spec.delay.0.saturating_sub(Duration::from_nanos(self.spec.jitter_dist.earliest(j))),
            };
            deadline = deadline.min(leaves + earliest);
            if let Some((at, _)) = self.changes.front() {
                deadline = deadline.min(*at);
            }
        }
        (deadline != Time::MAX).then_some(deadline)
    }

    /// Moves everything inside the link on to `now`.
    fn advance(&mut self, now: Time) {
        loop {
            let change_at = self.changes.front().map_or(Time::MAX, |(at, _)| *at);
            let head_ends = self.transmitter_due();
            if change_at <= head_ends {
                if change_at > now || change_at == Time::MAX {
                    break;
                }
                if let Some((at, state)) = self.changes.pop_front() {
                    self.now = self.now.max(at);
                    self.change(at, state);
                }
            } else {
                if head_ends > now {
                    break;
                }
                self.now = self.now.max(head_ends);
                match self.transmitter {
                    Transmitter::Picks(at) => self.pick(at),
                    _ => self.finish_transmission(head_ends),
                }
            }
        }
        self.now = self.now.max(now);
    }

    /// When the transmitter does something by itself next.
    fn transmitter_due(&self) -> Time {
        match self.transmitter {
            Transmitter::Idle => Time::MAX,
            Transmitter::Picks(at) => at,
            Transmitter::Sends { ends, .. } => ends,
        }
    }

    /// The transmitter is free at `now`.
    fn next_packet(&mut self, now: Time) {
        if self.queue.len() == 0 {
            self.transmitter = Transmitter::Idle;
            return;
        }
        match self.opportunities.as_ref().map(|o| o.ready_at(now)) {
            // The queue decides at the opportunity what goes, not before: it may wait long.
            Some(at) if at > now => self.transmitter = Transmitter::Picks(at),
            _ => self.pick(now),
        }
    }

    fn pick(&mut self, now: Time) {
        let picked = self.queue.pop(now, &mut self.dropped);
        self.stats.aqm_drops += self.dropped.len() as u64;
        self.discard_dropped();
        let Some((waiting, marked)) = picked else {
            self.transmitter = Transmitter::Idle;
            return;
        };
        self.stats.marked += u64::from(marked);
        let wire_len = waiting.wire_len;
        let mut starts = now;
        if let Some(bucket) = &mut self.bucket {
            starts = bucket.ready_at(now, wire_len);
            bucket.take(starts, wire_len);
        }
        let ends = match (&mut self.opportunities, self.spec.rate) {
            (Some(opportunities), _) => opportunities.take(now, wire_len),
            (None, Some(rate)) => {
                // Charge the fraction of a nanosecond later, so that the rate is exact over a busy period.
                let work = u64::from(wire_len) * 8_000_000_000 + self.carry;
                self.carry = work % rate.bits_per_sec();
                starts + Duration::from_nanos(work / rate.bits_per_sec())
            }
            (None, None) => starts,
        };
        self.transmitter = Transmitter::Sends { waiting, starts, ends };
    }

    fn finish_transmission(&mut self, at: Time) {
        let Transmitter::Sends { waiting: sent, starts, .. } = std::mem::replace(&mut self.transmitter, Transmitter::Idle) else {
            return;
        };
        let waited = starts.since(sent.since);
        self.queue_bytes -= u64::from(sent.wire_len);
        self.stats.carried_packets += 1;
        self.stats.carried_bytes += u64::from(sent.wire_len);
        self.stats.queue_delay.record(waited);
        self.next_packet(at);
        let mut ecn = sent.ecn;
        if self.spec.ecn.is_some_and(|limit| waited > limit.0) && matches!(ecn, Ecn::Ect0 | Ecn::Ect1) {
            ecn = Ecn::Ce;
            self.stats.marked += 1;
        }
        let in_outage = self.spec.outage.iter().any(|o| at >= Time::ZERO + o.at.0 && at < Time::ZERO + o.at.0 + o.lasts.0);
        let lost = self.spec.loss_at == LossAt::After && self.loss.is_lost(at, sent.wire_len);
        if in_outage || lost {
            if in_outage {
                self.stats.outage_lost += 1;
            } else {
                self.stats.lost += 1;
            }
            if self.discarded.len() < DISCARDED_KEPT {
                self.discarded.push(sent.packet);
            }
            return;
        }
        self.propagate(at, sent, ecn);
    }

    fn propagate(&mut self, at: Time, sent: Waiting<P>, ecn: Ecn) {
        let corrupt = hit(&mut self.corrupt, self.spec.corrupt).then(|| {
            self.stats.corrupted += 1;
            self.corrupt.next_u64()
        });
        let mut arrives = at
            + match self.spec.jitter.as_nanos() {
                0 => self.spec.delay.0,
                j => shifted(self.spec.delay.0, self.spec.jitter_dist.sample(j, &mut self.jitter)),
            };
        let mut held = false;
        if let Some(reorder) = self.spec.reorder
            && hit(&mut self.reorder, reorder.share)
        {
            arrives += Duration::from_nanos((reorder.by.as_nanos() as f64 * self.reorder.unit()) as u64);
            self.stats.reordered += 1;
            held = true;
        }
        if !held && !self.spec.jitter_reorder {
            arrives = arrives.max(self.last_in_order);
            self.last_in_order = arrives;
        }
        let copy = hit(&mut self.duplicate, self.spec.duplicate).then(|| sent.packet.clone());
        self.deliver_at(arrives, sent.packet, sent.wire_len, ecn, corrupt, false);
        if let Some(packet) = copy {
            self.stats.duplicated += 1;
            self.deliver_at(arrives, packet, sent.wire_len, ecn, corrupt, true);
        }
    }

    fn deliver_at(&mut self, at: Time, packet: P, wire_len: u32, ecn: Ecn, corrupt: Option<u64>, copy: bool) {
        self.seq += 1;
        let delivery = Delivery { at, packet, wire_len, ecn, corrupt, copy, seq: self.seq };
        if self.in_flight.back().is_none_or(|last| last.at <= at) {
            self.in_flight.push_back(delivery);
        } else {
            self.strays.push(delivery);
        }
    }

    /// A change in mid-run at `at`: what is in transmission goes on at the new rate.
    fn change(&mut self, at: Time, state: LinkSpec) {
        let (old_rate, old_bucket) = (self.spec.rate, self.spec.bucket);
        self.adopt(state);
        let Transmitter::Sends { waiting, starts, ends } = &mut self.transmitter else { return };
        if self.spec.rate == old_rate && self.spec.bucket == old_bucket {
            return;
        }
        let wire_len = waiting.wire_len;
        let whole = self.spec.rate.map_or(0, |rate| rate.transmit_nanos(u64::from(wire_len)));
        self.carry = 0;
        if *starts >= at {
            *ends = *starts + Duration::from_nanos(whole);
        } else {
            let old_whole = old_rate.map_or(0, |rate| rate.transmit_nanos(u64::from(wire_len))).max(1);
            let left = ends.since(at).as_nanos() as f64 / old_whole as f64;
            *ends = at + Duration::from_nanos((left.min(1.0) * whole as f64).round() as u64);
        }
    }

    fn adopt(&mut self, state: LinkSpec) {
        let rtt = state.bdp_rtt.unwrap_or(state.delay.0 * 2);
        let has_queue = state.rate.is_some() || state.trace.is_some();
        (self.max_packets, self.max_bytes) = match state.aqm {
            // The usual limit of a link is drop-tail's; beside another queue it means that nobody gave one.
            Some(aqm) if state.queue == QueueLimit::default() => (aqm.usual_limit(), u64::MAX),
            _ => state.queue.resolve(state.capacity().filter(|_| has_queue), rtt),
        };
        self.queue.set_limits(Limits { packets: self.max_packets, bytes: self.max_bytes }, state.mtu);
        if state.bucket != self.spec.bucket {
            self.bucket = state.bucket.map(BucketState::new);
        }
        if state.policer != self.spec.policer {
            self.policer = state.policer.map(BucketState::new);
        }
        self.loss.change(state.loss_model, state.loss);
        self.spec = state;
    }
}

/// One throw of `dice`; none is spent on what never happens.
fn hit(dice: &mut Dice, p: Probability) -> bool {
    !p.is_zero() && dice.hit(p)
}

/// Flips one to four bits of `bytes`, the same ones for the same seed.
pub fn flip_bits(bytes: &mut [u8], seed: u64) {
    let mut dice = Dice::new(seed, Purpose::Corrupt);
    if bytes.is_empty() {
        return;
    }
    for _ in 0..=dice.next_u64() % 4 {
        let bit = dice.next_u64() % (bytes.len() as u64 * 8);
        bytes[(bit / 8) as usize] ^= 1 << (bit % 8);
    }
}

#[cfg(test)]
#[path = "model_tests.rs"]
mod tests;

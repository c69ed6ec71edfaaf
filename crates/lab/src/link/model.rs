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

use super::jitter::shifted;
use super::loss::{LossAt, LossProcess};
use super::queue::BucketState;
use super::random::{Dice, Purpose};
use super::spec::{LinkSpec, SpecError};
use super::stats::LinkStats;
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

struct Waiting<P> {
    since: Time,
    wire_len: u32,
    ecn: Ecn,
    packet: P,
}

/// The packet at the head of the queue: when its first and last bit pass.
#[derive(Clone, Copy)]
struct Transmission {
    starts: Time,
    ends: Time,
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
    queue: VecDeque<Waiting<P>>,
    queue_bytes: u64,
    head: Transmission,
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
            queue: VecDeque::new(),
            queue_bytes: 0,
            head: Transmission { starts: Time::ZERO, ends: Time::ZERO },
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
        self.advance(now);
        let now = self.now;
        self.stats.offered_packets += 1;
        self.stats.offered_bytes += u64::from(wire_len);
        if let Some(reason) = self.refuse(now, wire_len) {
            return Err(Dropped { reason, packet });
        }
        let waiting = Waiting { since: now, wire_len, ecn, packet };
        self.queue_bytes += u64::from(wire_len);
        self.stats.queue_bytes_max = self.stats.queue_bytes_max.max(self.queue_bytes);
        self.queue.push_back(waiting);
        if self.queue.len() == 1 {
            self.carry = 0;
            self.begin_transmission(now);
        }
        Ok(())
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
        let full = !self.queue.is_empty()
            && (self.queue.len() as u64 >= self.max_packets || self.queue_bytes + u64::from(wire_len) > self.max_bytes);
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

    /// A packet lost on the way, for its memory. At most some hundred are kept.
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
        if !self.queue.is_empty() {
            let earliest = match self.spec.jitter.as_nanos() {
                0 => self.spec.delay.0,
                j => self.spec.delay.0.saturating_sub(Duration::from_nanos(self.spec.jitter_dist.earliest(j))),
            };
            deadline = deadline.min(self.head.ends + earliest);
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
            let head_ends = if self.queue.is_empty() { Time::MAX } else { self.head.ends };
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
                self.finish_transmission(head_ends);
            }
        }
        self.now = self.now.max(now);
    }

    fn begin_transmission(&mut self, now: Time) {
        let Some(head) = self.queue.front() else {
            return;
        };
        let wire_len = head.wire_len;
        let mut starts = now;
        if let Some(bucket) = &mut self.bucket {
            starts = bucket.ready_at(now, wire_len);
            bucket.take(starts, wire_len);
        }
        let nanos = match self.spec.rate {
            Some(rate) => {
                // Charge the fraction of a nanosecond later, so that the rate is exact over a busy period.
                let work = u64::from(wire_len) * 8_000_000_000 + self.carry;
                self.carry = work % rate.bits_per_sec();
                work / rate.bits_per_sec()
            }
            None => 0,
        };
        self.head = Transmission { starts, ends: starts + Duration::from_nanos(nanos) };
    }

    fn finish_transmission(&mut self, at: Time) {
        let Some(sent) = self.queue.pop_front() else {
            return;
        };
        let waited = self.head.starts.since(sent.since);
        self.queue_bytes -= u64::from(sent.wire_len);
        self.stats.carried_packets += 1;
        self.stats.carried_bytes += u64::from(sent.wire_len);
        self.stats.queue_delay.record(waited);
        if !self.queue.is_empty() {
            self.begin_transmission(at);
        }
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
        let old_rate = self.spec.rate;
        let (old_bucket, starts) = (self.spec.bucket, self.head.starts);
        self.adopt(state);
        if self.queue.is_empty() || (self.spec.rate == old_rate && self.spec.bucket == old_bucket) {
            return;
        }
        let wire_len = self.queue.front().map_or(0, |head| head.wire_len);
        let whole = self.spec.rate.map_or(0, |rate| rate.transmit_nanos(u64::from(wire_len)));
        self.carry = 0;
        if starts >= at {
            self.head.ends = starts + Duration::from_nanos(whole);
        } else {
            let old_whole = old_rate.map_or(0, |rate| rate.transmit_nanos(u64::from(wire_len))).max(1);
            let left = self.head.ends.since(at).as_nanos() as f64 / old_whole as f64;
            self.head.ends = at + Duration::from_nanos((left.min(1.0) * whole as f64).round() as u64);
        }
    }

    fn adopt(&mut self, state: LinkSpec) {
        let rtt = state.bdp_rtt.unwrap_or(state.delay.0 * 2);
        (self.max_packets, self.max_bytes) = state.queue.resolve(state.capacity().filter(|_| state.rate.is_some()), rtt);
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

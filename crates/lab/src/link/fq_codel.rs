//! fq_codel: deficit round robin over queues of flows (RFC 8290), CoDel on each (RFC 8289).

use std::collections::VecDeque;
use std::time::Duration;

use noctule_proto::units::{Ecn, Time};

use super::aqm::FqCodelParameters;
use super::discipline::{Limits, Waiting};

/// RFC 8290 §4.1: at most so many packets are dropped at once from the fattest queue.
const DROP_BATCH: usize = 64;

/// CoDel's own state, one per queue (RFC 8289 §4.4, §5).
#[derive(Debug, Clone, Default)]
struct Codel {
    first_above: Option<Time>,
    dropping: bool,
    drop_next: Time,
    count: u32,
    last_count: u32,
}

/// Packets of the flows that hash to the same number.
#[derive(Debug)]
struct FlowQueue<P> {
    packets: VecDeque<Waiting<P>>,
    bytes: u64,
    deficit: i64,
    is_listed: bool,
    codel: Codel,
}

/// The queue before the transmitter.
#[derive(Debug)]
pub(super) struct FqCodel<P> {
    parameters: FqCodelParameters,
    mtu: u32,
    limits: Limits,
    /// So that two runs do not have the same collisions.
    perturbation: u64,
    flows: Vec<FlowQueue<P>>,
    new: VecDeque<usize>,
    old: VecDeque<usize>,
    packets: usize,
    bytes: u64,
}

impl<P> FqCodel<P> {
    pub(super) fn new(parameters: FqCodelParameters, seed: u64) -> Self {
        let flow = || FlowQueue { packets: VecDeque::new(), bytes: 0, deficit: 0, is_listed: false, codel: Codel::default() };
        Self {
            parameters,
            mtu: 1500,
            limits: Limits::default(),
            perturbation: seed,
            flows: (0..parameters.flows).map(|_| flow()).collect(),
            new: VecDeque::new(),
            old: VecDeque::new(),
            packets: 0,
            bytes: 0,
        }
    }

    pub(super) fn set_limits(&mut self, limits: Limits, mtu: u32) {
        (self.limits, self.mtu) = (limits, mtu);
    }

    pub(super) fn len(&self) -> usize {
        self.packets
    }

    /// Takes a packet; what has to go for it comes back in `dropped`.
    pub(super) fn push(&mut self, waiting: Waiting<P>, dropped: &mut Vec<Waiting<P>>) {
        let at = (mixed(waiting.flow ^ self.perturbation) % self.flows.len() as u64) as usize;
        let flow = &mut self.flows[at];
        self.packets += 1;
        self.bytes += u64::from(waiting.wire_len);
        flow.bytes += u64::from(waiting.wire_len);
        flow.packets.push_back(waiting);
        if !flow.is_listed {
            flow.is_listed = true;
            flow.deficit = i64::from(self.parameters.quantum);
            self.new.push_back(at);
        }
        if self.limits.exceeded(self.packets as u64, self.bytes) {
            self.drop_from_fattest(dropped);
        }
    }

    /// RFC 8290 §4.1: half the packets of the queue with the most bytes, from its head.
    fn drop_from_fattest(&mut self, dropped: &mut Vec<Waiting<P>>) {
        let Some(flow) = self.flows.iter_mut().max_by_key(|flow| flow.bytes) else { return };
        for _ in 0..(flow.packets.len() / 2).clamp(1, DROP_BATCH) {
            let Some(waiting) = flow.packets.pop_front() else { break };
            flow.bytes -= u64::from(waiting.wire_len);
            self.packets -= 1;
            self.bytes -= u64::from(waiting.wire_len);
            dropped.push(waiting);
        }
    }

    /// The next packet to send at `now` (RFC 8290 §4.2) and whether it was marked; what CoDel drops comes back in `dropped`.
    pub(super) fn pop(&mut self, now: Time, dropped: &mut Vec<Waiting<P>>) -> Option<(Waiting<P>, bool)> {
        loop {
            let is_new = !self.new.is_empty();
            let at = *if is_new { self.new.front() } else { self.old.front() }?;
            let flow = &mut self.flows[at];
            if flow.deficit <= 0 {
                flow.deficit += i64::from(self.parameters.quantum);
                if is_new {
                    self.new.pop_front()
                } else {
                    self.old.pop_front()
                };
                self.old.push_back(at);
                continue;
            }
            let before = dropped.len();
            let sent = flow.pop(now, &self.parameters, self.mtu, dropped);
            for gone in dropped[before..].iter().chain(sent.as_ref().map(|(waiting, _)| waiting)) {
                self.packets -= 1;
                self.bytes -= u64::from(gone.wire_len);
            }
            if let Some((waiting, marked)) = sent {
                flow.deficit -= i64::from(waiting.wire_len);
                return Some((waiting, marked));
            }
            // An empty new queue goes behind the old ones first, so that a flow cannot have every turn by coming and going.
            if is_new {
                self.new.pop_front();
            } else {
                self.old.pop_front();
            }
            if is_new && !self.old.is_empty() {
                self.old.push_back(at);
            } else {
                self.flows[at].is_listed = false;
            }
        }
    }
}

impl<P> FlowQueue<P> {
    /// RFC 8289 §5.6, `dodequeue`: the head, and whether it has been above the target for an interval.
    fn head(&mut self, now: Time, parameters: &FqCodelParameters, mtu: u32) -> (Option<Waiting<P>>, bool) {
        let Some(waiting) = self.packets.pop_front() else {
            self.codel.first_above = None;
            return (None, false);
        };
        self.bytes -= u64::from(waiting.wire_len);
        if now.since(waiting.since) < parameters.target.0 || self.bytes <= u64::from(mtu) {
            self.codel.first_above = None;
            return (Some(waiting), false);
        }
        let above_since = *self.codel.first_above.get_or_insert(now + parameters.interval.0);
        (Some(waiting), now >= above_since)
    }

    /// RFC 8289 §5.5, `dequeue`.
    fn pop(&mut self, now: Time, parameters: &FqCodelParameters, mtu: u32, dropped: &mut Vec<Waiting<P>>) -> Option<(Waiting<P>, bool)> {
        let (mut head, mut may_drop) = self.head(now, parameters, mtu);
        if self.codel.dropping {
            self.codel.dropping = may_drop;
            while self.codel.dropping && now >= self.codel.drop_next {
                let waiting = head?;
                self.codel.count = self.codel.count.saturating_add(1);
                if let Some(marked) = mark(&waiting, parameters.ecn) {
                    self.codel.drop_next = control_law(self.codel.drop_next, parameters.interval.0, self.codel.count);
                    return Some((Waiting { ecn: marked, ..waiting }, true));
                }
                dropped.push(waiting);
                (head, may_drop) = self.head(now, parameters, mtu);
                if may_drop {
                    self.codel.drop_next = control_law(self.codel.drop_next, parameters.interval.0, self.codel.count);
                } else {
                    self.codel.dropping = false;
                }
            }
        } else if may_drop {
            let waiting = head?;
            let marked = mark(&waiting, parameters.ecn);
            self.begin_dropping(now, parameters.interval.0);
            if let Some(ecn) = marked {
                return Some((Waiting { ecn, ..waiting }, true));
            }
            dropped.push(waiting);
            (head, _) = self.head(now, parameters, mtu);
        }
        head.map(|waiting| (waiting, false))
    }

    /// RFC 8289 §5.5: if it dropped not long ago, it goes on near the rate that held the queue then.
    fn begin_dropping(&mut self, now: Time, interval: Duration) {
        let codel = &mut self.codel;
        codel.dropping = true;
        let delta = codel.count.saturating_sub(codel.last_count);
        codel.count = if delta > 1 && now.since(codel.drop_next) < interval * 16 { delta } else { 1 };
        codel.drop_next = control_law(now, interval, codel.count);
        codel.last_count = codel.count;
    }
}

/// RFC 8289 §4.2: the next drop comes interval / sqrt(count) after the last.
fn control_law(t: Time, interval: Duration, count: u32) -> Time {
    t + Duration::from_nanos((interval.as_nanos() as f64 / f64::from(count.max(1)).sqrt()) as u64)
}

/// CE, if marks are asked for and the packet can carry one.
pub(super) fn mark<P>(waiting: &Waiting<P>, asked: bool) -> Option<Ecn> {
    (asked && matches!(waiting.ecn, Ecn::Ect0 | Ecn::Ect1)).then_some(Ecn::Ce)
}

/// The finaliser of SplitMix64 (Steele, Lea, Flood 2014): spreads flows over the queues.
fn mixed(mut x: u64) -> u64 {
    x = (x ^ (x >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    x = (x ^ (x >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    x ^ (x >> 31)
}

#[cfg(test)]
#[path = "fq_codel_tests.rs"]
mod tests;

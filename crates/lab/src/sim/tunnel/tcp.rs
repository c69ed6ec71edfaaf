//! A TCP connection as the kernel runs it, as far as a tunnel can tell: CUBIC (RFC 9438) with HyStart (RFC 9406 describes its successor; this is the
//! original of Ha and Rhee 2008, which Linux has), selective acknowledgements, an acknowledgement for every second segment. One direction, for ever.
//!
//! Not a TCP: nothing is negotiated, numbers count segments, and the receiver's window never fills. Not `noctule_proto`'s own CUBIC either, which paces and counts
//! bytes: what stands in for a foreign end must not share faults with what it is carried by.

use std::collections::BTreeSet;
use std::net::{IpAddr, SocketAddr};
use std::time::Duration;

use noctule_proto::node::Transmit;
use noctule_proto::units::{Ecn, Time};

use crate::link::Histogram;
use crate::sim::meter::{Meter, Window};
use crate::sim::world::Host;

/// Bytes of IP and TCP header with the timestamp option.
const HEADERS: usize = 52;
/// RFC 9438 §5: scale of the curve and what is left of the window after a loss; Linux has 717/1024.
const C: f64 = 0.4;
const BETA: f64 = 0.7;
const INITIAL_WINDOW: f64 = 10.0;
/// Segments that may be out: four MiB, the kernel's default for send buffers.
const MOST_OUT: u64 = 3100;
/// A segment is lost once three behind it arrived (RFC 6675).
const REORDERING: u64 = 3;
const MIN_RTO: Duration = Duration::from_millis(200);
const DELAYED_ACK: Duration = Duration::from_millis(40);
/// HyStart, as in Linux: not below this window; acknowledgements of one train are no further apart; samples of a round that are looked at.
const HYSTART_LOW: f64 = 16.0;
const HYSTART_SPACING: Duration = Duration::from_millis(2);
const HYSTART_SAMPLES: u32 = 8;

/// The end that sends.
pub struct TcpSender {
    peer: SocketAddr,
    packet: usize,
    /// One past the last segment sent; first not acknowledged.
    next: u64,
    acked: u64,
    /// Beyond `acked`, those known to be there; those known to be lost and not sent again; those sent again.
    there: BTreeSet<u64>,
    lost: BTreeSet<u64>,
    again: BTreeSet<u64>,
    highest: u64,
    cwnd: f64,
    ssthresh: f64,
    /// Losses below this belong to the reduction that was made.
    recover: u64,
    cubic: Cubic,
    hystart: Hystart,
    srtt: Option<Duration>,
    rttvar: Duration,
    rto_at: Option<Time>,
    backoff: u32,
    started: bool,
    /// Reductions for losses, and time-outs.
    pub reductions: u32,
    /// Time-outs.
    pub timeouts: u32,
    /// Window at which slow start ended, and when.
    pub left_slow_start: Option<(f64, Time)>,
    /// Round trips seen since they were last taken.
    pub round_trips: Vec<Duration>,
    /// How long acknowledgements took.
    pub acks_took: Histogram,
}

#[derive(Default)]
struct Cubic {
    epoch: Option<Time>,
    last_max: f64,
    origin: f64,
    k: f64,
    friendly: f64,
}

#[derive(Default)]
struct Hystart {
    round_end: u64,
    round_start: Time,
    last_ack: Time,
    lowest: Duration,
    samples: u32,
    delay_min: Option<Duration>,
}

impl TcpSender {
    /// Sends packets of so many bytes, headers included, to `peer`.
    pub fn new(peer: SocketAddr, packet: usize) -> Self {
        Self {
            peer,
            packet,
            next: 0,
            acked: 0,
            there: BTreeSet::new(),
            lost: BTreeSet::new(),
            again: BTreeSet::new(),
            highest: 0,
            cwnd: INITIAL_WINDOW,
            ssthresh: f64::INFINITY,
            recover: 0,
            cubic: Cubic::default(),
            hystart: Hystart::default(),
            srtt: None,
            rttvar: Duration::ZERO,
            rto_at: None,
            backoff: 0,
            started: false,
            reductions: 0,
            timeouts: 0,
            left_slow_start: None,
            round_trips: Vec::new(),
            acks_took: Histogram::default(),
        }
    }

    /// Begins.
    pub fn start(&mut self) {
        self.started = true;
    }

    /// The window, segments.
    pub fn window(&self) -> f64 {
        self.cwnd
    }

    fn out(&self) -> u64 {
        // Lost ones that were not sent again are not out.
        self.next - self.acked - self.there.len() as u64 - self.lost.len() as u64
    }

    fn rto(&self) -> Duration {
        let base = self.srtt.map_or(Duration::from_secs(1), |srtt| (srtt + 4 * self.rttvar).max(srtt + MIN_RTO));
        base * 2u32.pow(self.backoff.min(6))
    }

    fn on_ack(&mut self, now: Time, ack: &Ack) {
        let newly = ack.below.saturating_sub(self.acked);
        if newly > 0 {
            self.acked = ack.below;
            self.next = self.next.max(ack.below);
            self.there = self.there.split_off(&ack.below);
            self.lost = self.lost.split_off(&ack.below);
            self.again = self.again.split_off(&ack.below);
            self.backoff = 0;
            self.rto_at = Some(now + self.rto());
        }
        let mut sacked = 0;
        for &(from, to) in &ack.ranges {
            for segment in from.max(self.acked)..to {
                sacked += u64::from(self.there.insert(segment));
                self.lost.remove(&segment);
                self.highest = self.highest.max(segment);
            }
        }
        self.highest = self.highest.max(ack.below.saturating_sub(1));
        if newly + sacked > 0 {
            let rtt = now.since(ack.echo);
            self.round_trips.push(rtt);
            let srtt = self.srtt.unwrap_or(rtt);
            self.rttvar = if self.srtt.is_none() { rtt / 2 } else { (self.rttvar * 3 + srtt.abs_diff(rtt)) / 4 };
            self.srtt = Some((srtt * 7 + rtt) / 8);
            self.hystart_sample(now, rtt);
        }
        let before = self.lost.len();
        if !ack.ranges.is_empty() {
            for segment in self.acked..self.highest.saturating_sub(REORDERING - 1) {
                if !self.there.contains(&segment) && !self.again.contains(&segment) {
                    self.lost.insert(segment);
                }
            }
        }
        if self.lost.len() > before && self.lost.iter().next_back().is_some_and(|&last| last >= self.recover) {
            self.reduce();
        } else if self.acked >= self.recover {
            self.grow(now, newly);
        }
    }

    fn reduce(&mut self) {
        self.reductions += 1;
        self.recover = self.next;
        // Fast convergence.
        self.cubic.last_max = if self.cwnd < self.cubic.last_max { self.cwnd * (1.0 + BETA) / 2.0 } else { self.cwnd };
        self.cubic.epoch = None;
        self.ssthresh = (self.cwnd * BETA).max(2.0);
        // Proportional rate reduction lets the window shrink over a round trip; what is out is above it meanwhile and nothing new is sent.
        self.cwnd = self.ssthresh;
    }

    fn grow(&mut self, now: Time, newly: u64) {
        let mut newly = newly as f64;
        // RFC 7661, as Linux has it: a window that was not used does not grow.
        if (self.out() as f64 + newly) * 2.0 < self.cwnd {
            return;
        }
        if self.cwnd < self.ssthresh {
            let room = (self.ssthresh - self.cwnd).min(newly);
            self.cwnd += room;
            newly -= room;
        }
        if newly <= 0.0 {
            return;
        }
        let rtt = self.hystart.delay_min.unwrap_or_default();
        let c = &mut self.cubic;
        let epoch = *c.epoch.get_or_insert_with(|| {
            c.friendly = self.cwnd;
            (c.k, c.origin) = if self.cwnd < c.last_max { (((c.last_max - self.cwnd) / C).cbrt(), c.last_max) } else { (0.0, self.cwnd) };
            now
        });
        let t = (now.since(epoch) + rtt).as_secs_f64() - c.k;
        let target = c.origin + C * t.powi(3);
        let mut per_ack = if target > self.cwnd { (target - self.cwnd) / self.cwnd } else { 0.01 / self.cwnd };
        c.friendly += 3.0 * (1.0 - BETA) / (1.0 + BETA) * newly / self.cwnd;
        if c.friendly > self.cwnd {
            per_ack = per_ack.max((c.friendly - self.cwnd) / self.cwnd);
        }
        self.cwnd += per_ack.min(0.5) * newly;
    }

    fn hystart_sample(&mut self, now: Time, rtt: Duration) {
        let in_slow_start = self.cwnd < self.ssthresh;
        let h = &mut self.hystart;
        let delay_min = *h.delay_min.insert(h.delay_min.map_or(rtt, |least| least.min(rtt)));
        if self.acked > h.round_end {
            (h.round_end, h.round_start, h.last_ack) = (self.next, now, now);
            (h.lowest, h.samples) = (Duration::MAX, 0);
        }
        if !in_slow_start || self.cwnd < HYSTART_LOW {
            return;
        }
        let mut is_over = false;
        if now.since(h.last_ack) <= HYSTART_SPACING {
            h.last_ack = now;
            // Half, for a sender that is not paced.
            is_over = now.since(h.round_start) > delay_min / 2;
        }
        if h.samples < HYSTART_SAMPLES {
            h.lowest = h.lowest.min(rtt);
            h.samples += 1;
        } else {
            let tolerance = (delay_min / 8).clamp(Duration::from_millis(4), Duration::from_millis(16));
            is_over |= h.lowest > delay_min + tolerance;
        }
        if is_over {
            self.ssthresh = self.cwnd;
            self.left_slow_start.get_or_insert((self.cwnd, now));
        }
    }

    fn time_out(&mut self, now: Time) {
        self.timeouts += 1;
        self.backoff += 1;
        self.reduce();
        self.ssthresh = (self.out() as f64 * BETA).max(2.0);
        self.cwnd = 1.0;
        self.again.clear();
        self.lost.extend((self.acked..self.next).filter(|segment| !self.there.contains(segment)));
        self.rto_at = Some(now + self.rto());
    }
}

impl Host for TcpSender {
    fn handle_datagram(&mut self, now: Time, _: SocketAddr, _: IpAddr, _: Ecn, data: &mut [u8]) {
        if let Some(ack) = Ack::parse(data) {
            self.acks_took.record(now.since(ack.said));
            self.on_ack(now, &ack);
        }
    }

    fn handle_timeout(&mut self, now: Time) {
        if self.rto_at.is_some_and(|at| at <= now) {
            self.time_out(now);
        }
    }

    fn poll_transmit(&mut self, now: Time, buf: &mut Vec<u8>) -> Option<Transmit> {
        if !self.started || self.out() as f64 >= self.cwnd.floor().max(1.0) {
            return None;
        }
        let segment = match self.lost.pop_first() {
            Some(segment) => {
                self.again.insert(segment);
                segment
            }
            None if self.next - self.acked < MOST_OUT => {
                self.next += 1;
                self.next - 1
            }
            None => return None,
        };
        self.rto_at.get_or_insert(now + self.rto());
        buf.clear();
        buf.extend_from_slice(&segment.to_be_bytes());
        buf.extend_from_slice(&now.as_nanos().to_be_bytes());
        buf.resize(self.packet, 0x5a);
        Some(Transmit { remote: self.peer, local: None, ecn: Ecn::NotEct, len: buf.len(), segment_size: None })
    }

    fn poll_timeout(&self) -> Option<Time> {
        self.rto_at.filter(|_| self.next > self.acked)
    }

    fn pump(&mut self, _: Time) -> bool {
        false
    }
}

/// When a segment was sent, as it says itself.
pub(super) fn sent_at(segment: &[u8]) -> Option<Time> {
    Some(Time::from_nanos(u64::from_be_bytes(segment.get(8..16)?.try_into().ok()?)))
}

/// What the receiver says.
struct Ack {
    below: u64,
    /// When that was sent which made it speak.
    echo: Time,
    said: Time,
    ranges: Vec<(u64, u64)>,
}

impl Ack {
    fn parse(data: &[u8]) -> Option<Self> {
        let mut words = data.chunks_exact(8).map(|word| u64::from_be_bytes(word.try_into().unwrap_or_default()));
        let (below, echo, said, count) = (words.next()?, words.next()?, words.next()?, words.next()?);
        let mut ranges = Vec::new();
        for _ in 0..count.min(3) {
            ranges.push((words.next()?, words.next()?));
        }
        Some(Self { below, echo: Time::from_nanos(echo), said: Time::from_nanos(said), ranges })
    }

    fn write(&self, buf: &mut Vec<u8>) {
        buf.clear();
        for word in [self.below, self.echo.as_nanos(), self.said.as_nanos(), self.ranges.len() as u64] {
            buf.extend_from_slice(&word.to_be_bytes());
        }
        for (from, to) in &self.ranges {
            buf.extend_from_slice(&from.to_be_bytes());
            buf.extend_from_slice(&to.to_be_bytes());
        }
        buf.resize(buf.len().max(HEADERS + 8 * self.ranges.len()), 0);
    }
}

/// The end that reads.
pub struct TcpReceiver {
    peer: SocketAddr,
    below: u64,
    /// Runs beyond a hole, in order.
    runs: Vec<(u64, u64)>,
    unacked: u32,
    acks: Vec<Ack>,
    delayed: Option<(Time, Time)>,
    /// What its application read.
    pub meter: Meter,
    /// Segments that came before one that was sent earlier.
    pub out_of_order: u64,
    /// How long segments took.
    pub one_way: Histogram,
}

impl TcpReceiver {
    /// Acknowledges to `peer`.
    pub fn new(peer: SocketAddr, window: Window) -> Self {
        Self {
            peer,
            below: 0,
            runs: Vec::new(),
            unacked: 0,
            acks: Vec::new(),
            delayed: None,
            meter: Meter::new(window),
            out_of_order: 0,
            one_way: Histogram::default(),
        }
    }

    fn answer(&mut self, now: Time, echo: Time, latest: u64) {
        // The block with what has just come first (RFC 2018 §4).
        let mut ranges = self.runs.clone();
        ranges.sort_by_key(|&(from, to)| (!(from..to).contains(&latest), std::cmp::Reverse(from)));
        ranges.truncate(3);
        (self.unacked, self.delayed) = (0, None);
        self.acks.push(Ack { below: self.below, echo, said: now, ranges });
    }
}

impl Host for TcpReceiver {
    fn handle_datagram(&mut self, now: Time, _: SocketAddr, _: IpAddr, _: Ecn, data: &mut [u8]) {
        let number = data.get(..8).and_then(|word| word.try_into().ok()).map(u64::from_be_bytes);
        let (Some(segment), Some(sent)) = (number, sent_at(data)) else { return };
        self.one_way.record(now.since(sent));
        let before = self.below;
        if segment == self.below {
            self.below += 1;
            if let Some(&(from, to)) = self.runs.first()
                && from == self.below
            {
                self.below = to;
                self.runs.remove(0);
            }
        } else if segment > self.below {
            self.out_of_order += 1;
            match self.runs.iter().position(|&(from, to)| segment + 1 >= from && segment <= to) {
                Some(at) => {
                    self.runs[at] = (self.runs[at].0.min(segment), self.runs[at].1.max(segment + 1));
                    if at + 1 < self.runs.len() && self.runs[at].1 >= self.runs[at + 1].0 {
                        self.runs[at].1 = self.runs[at].1.max(self.runs[at + 1].1);
                        self.runs.remove(at + 1);
                    }
                }
                None => {
                    let at = self.runs.partition_point(|&(from, _)| from < segment);
                    self.runs.insert(at, (segment, segment + 1));
                }
            }
        }
        self.meter.read(now, (self.below - before) as usize * (data.len() - HEADERS), 0);
        self.unacked += 1;
        let in_order = segment == before && self.runs.is_empty();
        // The first ones at once, as the kernel does: the sender is in slow start.
        if !in_order || self.unacked >= 2 || self.below < 16 {
            self.answer(now, sent, segment);
        } else {
            self.delayed = Some((now + DELAYED_ACK, sent));
        }
    }

    fn handle_timeout(&mut self, now: Time) {
        if let Some((at, sent)) = self.delayed
            && at <= now
        {
            self.answer(now, sent, self.below);
        }
    }

    fn poll_transmit(&mut self, _: Time, buf: &mut Vec<u8>) -> Option<Transmit> {
        if self.acks.is_empty() {
            return None;
        }
        self.acks.remove(0).write(buf);
        Some(Transmit { remote: self.peer, local: None, ecn: Ecn::NotEct, len: buf.len(), segment_size: None })
    }

    fn poll_timeout(&self) -> Option<Time> {
        self.delayed.map(|(at, _)| at)
    }

    fn pump(&mut self, _: Time) -> bool {
        false
    }
}

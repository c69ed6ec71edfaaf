//! A bottleneck under a virtual clock: several pairs of `Path`s over one drop-tail queue, packet by packet, no bytes of data.
//!
//! Sender and receiver are both `Path`s; acknowledgements are real frames. Rates count IP bytes (UDP payload + 28).
#![allow(dead_code)]

use noctule_proto::congestion::CongestionControl;
use noctule_proto::ids::PathId;
use noctule_proto::path::{Fates, Path, PathConfig};
use noctule_proto::sent::{SentItem, SentItems};
use noctule_proto::units::{Bandwidth, Duration, Ecn, Time};
use noctule_proto::wire::frame::Frame;
use noctule_proto::wire::varint::Reader;
use rand_chacha::ChaCha12Rng;
use rand_core::{Rng, SeedableRng};
use std::cmp::Reverse;
use std::collections::BinaryHeap;

pub const DATAGRAM: u16 = 1472;
pub const IP_UDP: u64 = 28;

/// The link. Loss as probabilities.
#[derive(Clone, Debug)]
pub struct Link {
    pub mbit: f64,
    /// One way.
    pub delay: Duration,
    /// Uniform 0..=jitter, added to the forward delay; may reorder.
    pub jitter: Duration,
    /// Uniform 0..=this, both ways, packets stay in order: one that is held back holds back those behind it.
    pub hold_back: Duration,
    pub queue_bytes: u64,
    pub loss_before: f64,
    pub loss_after: f64,
    /// Mean burst length of `loss_after`, in packets; 1 = independent.
    pub burst: f64,
    pub ack_loss: f64,
    /// Token bucket instead of a queue: depth in bytes.
    pub policer: Option<u64>,
    /// CE-mark instead of dropping above this backlog, bytes.
    pub mark_above: Option<u64>,
}

impl Link {
    /// A queue of one bandwidth-delay product; loss after the bottleneck, in both directions.
    pub fn new(mbit: f64, delay_ms: u64, loss: f64) -> Self {
        let delay = Duration::from_millis(delay_ms);
        let bdp = mbit * 125.0 * 2.0 * delay_ms as f64;
        Self {
            mbit,
            delay,
            jitter: Duration::ZERO,
            hold_back: Duration::ZERO,
            queue_bytes: (bdp as u64).max(12 * 1500),
            loss_before: 0.0,
            loss_after: loss,
            burst: 1.0,
            ack_loss: loss,
            policer: None,
            mark_above: None,
        }
    }
    pub fn queue_bdp(mut self, share: f64) -> Self {
        let bdp = self.mbit * 125_000.0 * 2.0 * self.delay.as_secs_f64();
        self.queue_bytes = ((bdp * share) as u64).max(3000);
        self
    }
    pub fn capacity(&self) -> f64 {
        self.mbit * 125_000.0
    }
}

/// A sender's appetite.
#[derive(Clone, Copy, Debug)]
pub enum Load {
    Bulk,
    /// So many packets every so often.
    Bursts(u32, Duration),
}

#[derive(Clone, Debug)]
pub struct FlowSpec {
    pub control: CongestionControl,
    pub start: Time,
    pub stop: Time,
    pub load: Load,
    pub extra_delay: Duration,
}

impl FlowSpec {
    pub fn bulk(control: CongestionControl) -> Self {
        Self { control, start: Time::ZERO, stop: Time::MAX, load: Load::Bulk, extra_delay: Duration::ZERO }
    }
    pub fn at(mut self, ms: u64) -> Self {
        self.start = Time::from_millis(ms);
        self
    }
}

struct Packet {
    pn: u64,
    bytes: u16,
    ecn: Ecn,
    eliciting: bool,
    ack: Option<Vec<u8>>,
    /// When it has left the bottleneck.
    departs: Time,
}

struct End {
    path: Path,
    wake: Time,
}

struct Flow {
    spec: FlowSpec,
    config: PathConfig,
    seed: u64,
    ends: [End; 2],
    backlog: u64,
    next_burst: Time,
    /// When the present burst began, and how long each of those before took to leave.
    burst_began: Time,
    bursts: Vec<Duration>,
    received_ip: u64,
}

enum Event {
    Start(usize),
    Wake(usize, usize),
    Arrive(usize, usize, Packet),
    Change(usize),
}

type Change = Box<dyn FnMut(&mut Link)>;

/// One line of the record.
#[derive(Clone, Debug)]
pub struct Record {
    pub at: Time,
    /// Per flow: IP bytes received so far, controller state.
    pub flows: Vec<(u64, noctule_proto::congestion::ControlState, Duration, Duration)>,
    pub queue: Duration,
}

pub struct Bottleneck {
    pub link: Link,
    pub now: Time,
    busy_until: Time,
    tokens: f64,
    tokens_at: Time,
    in_bad: bool,
    rng: ChaCha12Rng,
    flows: Vec<Flow>,
    events: BinaryHeap<Reverse<(Time, u64)>>,
    slots: Vec<Option<Event>>,
    free: Vec<usize>,
    seq: u64,
    pub queue_delays: Vec<u32>,
    pub record_queue_from: Time,
    pub records: Vec<Record>,
    pub record_every: Duration,
    next_record: Time,
    changes: Vec<(Time, Change)>,
    /// Latest arrival at either end.
    latest: [Time; 2],
    pub dropped: u64,
    fates: Fates,
    pub ack_bytes: u64,
    pub data_bytes: u64,
}

/// Sender and receiver.
fn ends(config: &PathConfig, seed: u64, now: Time) -> [End; 2] {
    let addr = "192.0.2.1:4000".parse().expect("address");
    [0, 1].map(|k| {
        let rng = ChaCha12Rng::seed_from_u64(seed + k);
        End { path: Path::new(PathId(k as u32), addr, None, config.clone(), rng, now), wake: Time::MAX }
    })
}

impl Bottleneck {
    pub fn new(link: Link, specs: Vec<FlowSpec>, seed: u64) -> Self {
        Self::with_config(link, specs, seed, PathConfig::default())
    }

    pub fn with_config(link: Link, specs: Vec<FlowSpec>, seed: u64, base: PathConfig) -> Self {
        let mut s = Self {
            now: Time::ZERO,
            busy_until: Time::ZERO,
            tokens: link.policer.unwrap_or(0) as f64,
            tokens_at: Time::ZERO,
            in_bad: false,
            rng: ChaCha12Rng::seed_from_u64(seed),
            flows: Vec::new(),
            events: BinaryHeap::new(),
            slots: Vec::new(),
            free: Vec::new(),
            seq: 0,
            queue_delays: Vec::new(),
            record_queue_from: Time::ZERO,
            records: Vec::new(),
            record_every: Duration::from_millis(100),
            next_record: Time::ZERO,
            changes: Vec::new(),
            latest: [Time::ZERO; 2],
            dropped: 0,
            fates: Fates::default(),
            ack_bytes: 0,
            data_bytes: 0,
            link,
        };
        for (i, spec) in specs.into_iter().enumerate() {
            let rtt = (s.link.delay + spec.extra_delay) * 2 + Duration::from_micros(200);
            let config = PathConfig {
                congestion: spec.control,
                max_datagram: DATAGRAM,
                initial_datagram: DATAGRAM,
                initial_rtt: Some(rtt),
                ..base.clone()
            };
            let seed = seed * 1000 + i as u64 * 2;
            let ends = ends(&config, seed, spec.start);
            let start = spec.start;
            s.flows.push(Flow {
                next_burst: start,
                burst_began: start,
                bursts: Vec::new(),
                spec,
                config,
                seed,
                ends,
                backlog: 0,
                received_ip: 0,
            });
            s.push(start, Event::Start(i));
        }
        s
    }

    /// Changes the link at a time.
    pub fn at(&mut self, ms: u64, change: impl FnMut(&mut Link) + 'static) {
        self.changes.push((Time::from_millis(ms), Box::new(change)));
        let i = self.changes.len() - 1;
        self.push(Time::from_millis(ms), Event::Change(i));
    }

    fn push(&mut self, at: Time, event: Event) {
        let slot = self.free.pop().unwrap_or_else(|| {
            self.slots.push(None);
            self.slots.len() - 1
        });
        self.slots[slot] = Some(event);
        self.seq += 1;
        // Sequence in the high bits keeps events of one instant in order.
        self.events.push(Reverse((at, self.seq << 24 | slot as u64)));
    }

    fn chance(&mut self, p: f64) -> bool {
        p > 0.0 && (self.rng.next_u32() as f64) < p * 4_294_967_296.0
    }

    fn lost_after(&mut self) -> bool {
        let p = self.link.loss_after;
        if self.link.burst <= 1.0 || p <= 0.0 {
            return self.chance(p);
        }
        // Gilbert: everything is lost in the bad state, whose mean length is `burst`.
        let leave = 1.0 / self.link.burst;
        let enter = leave * p / (1.0 - p);
        let flip = if self.in_bad { leave } else { enter };
        if self.chance(flip) {
            self.in_bad = !self.in_bad;
        }
        self.in_bad
    }

    pub fn run_until(&mut self, end: Time) {
        while let Some(&Reverse((at, tag))) = self.events.peek() {
            if at > end {
                break;
            }
            self.events.pop();
            while self.next_record <= at {
                self.now = self.next_record;
                self.record();
                self.next_record += self.record_every;
            }
            self.now = at;
            let slot = (tag & 0xff_ffff) as usize;
            let event = self.slots[slot].take().expect("event");
            self.free.push(slot);
            match event {
                Event::Wake(f, e) => {
                    if self.flows[f].ends[e].wake == at || self.flows[f].ends[e].wake == Time::MAX {
                        self.flows[f].ends[e].wake = Time::MAX;
                        self.drive(f, e);
                    }
                }
                Event::Start(f) => {
                    // The handshake that precedes it has met what stands in the queue, and was held back like anything else.
                    let held_back = [self.link.jitter, self.link.hold_back, self.link.hold_back]
                        .into_iter()
                        .filter(|most| *most > Duration::ZERO)
                        .map(|most| self.up_to(most))
                        .sum::<Duration>();
                    let flow = &mut self.flows[f];
                    let full = Duration::from_secs_f64(f64::from(DATAGRAM) / self.link.capacity());
                    let config = PathConfig {
                        initial_rtt: flow.config.initial_rtt.map(|rtt| rtt + full + self.busy_until.since(at) + held_back),
                        ..flow.config.clone()
                    };
                    flow.ends = ends(&config, flow.seed, at);
                    self.drive(f, 0);
                }
                Event::Arrive(f, e, packet) => self.arrive(f, e, packet),
                Event::Change(i) => {
                    let before = self.link.capacity();
                    let mut link = self.link.clone();
                    (self.changes[i].1)(&mut link);
                    self.link = link;
                    self.reschedule(before / self.link.capacity());
                }
            }
        }
        self.now = end;
    }

    /// What stands in the queue leaves in the same order at the new rate, in so many times the time that was left.
    fn reschedule(&mut self, times: f64) {
        let now = self.now;
        let anew = |t: Time| now + Duration::from_secs_f64(t.since(now).as_secs_f64() * times);
        let slots = &mut self.slots;
        let moved = |Reverse((at, tag)): Reverse<(Time, u64)>| match &mut slots[(tag & 0xff_ffff) as usize] {
            Some(Event::Arrive(_, 1, packet)) if packet.departs > now => {
                let after = at.since(packet.departs);
                packet.departs = anew(packet.departs);
                Reverse((packet.departs + after, tag))
            }
            _ => Reverse((at, tag)),
        };
        self.events = std::mem::take(&mut self.events).into_iter().map(moved).collect();
        self.busy_until = anew(self.busy_until.max(now));
    }

    fn record(&mut self) {
        let flows = self
            .flows
            .iter()
            .map(|f| (f.received_ip, f.ends[0].path.control(), f.ends[0].path.rtt(), f.ends[0].path.stats().min_rtt))
            .collect();
        let queue = self.busy_until.since(self.now);
        self.records.push(Record { at: self.now, flows, queue });
    }

    fn arrive(&mut self, f: usize, e: usize, packet: Packet) {
        let now = self.now;
        let end = &mut self.flows[f].ends[e];
        let pn = end.path.expand(packet.pn as u32);
        assert_eq!(pn.0, packet.pn);
        if end.path.is_duplicate(pn) {
            return;
        }
        end.path.on_received(now, pn, packet.ecn, packet.bytes, packet.eliciting);
        if let Some(bytes) = &packet.ack {
            let Ok(Some(Frame::Ack(view))) = Frame::parse(&mut Reader::new(bytes)) else { panic!("an ACK") };
            let mut fates = std::mem::take(&mut self.fates);
            end.path.on_ack(now, &view, &mut fates).expect("an honest ACK");
            for item in fates.acked.drain(..) {
                if let SentItem::Ack { reported_below, .. } = item {
                    end.path.on_ack_of_ack(reported_below);
                }
            }
            fates.clear();
            self.fates = fates;
        }
        if e == 1 && packet.ack.is_none() {
            self.flows[f].received_ip += u64::from(packet.bytes) + IP_UDP;
        }
        self.drive(f, e);
    }

    fn drive(&mut self, f: usize, e: usize) {
        let now = self.now;
        if now < self.flows[f].spec.start {
            return;
        }
        let mut fates = std::mem::take(&mut self.fates);
        if self.flows[f].ends[e].path.poll_timeout().is_some_and(|t| t <= now) {
            self.flows[f].ends[e].path.handle_timeout(now, &mut fates);
        }
        fates.clear();
        self.fates = fates;
        if self.flows[f].ends[e].path.ack_due(now) {
            self.send_ack(f, e);
        }
        if e == 0 {
            self.send_data(f);
        } else if self.flows[f].ends[e].path.probe_wanted() {
            self.transmit(f, e, 60, true, true, None);
        }
        if self.flows[f].ends[e].path.is_silence_probe_wanted() {
            self.transmit(f, e, 60, true, true, None);
        }
        // Packets have one size here: a search for larger ones that is due counts as begun, and finds nothing.
        self.flows[f].ends[e].path.poll_mtu_probe(now);
        let mut next = self.flows[f].ends[e].path.poll_timeout().unwrap_or(Time::MAX);
        if e == 0 && matches!(self.flows[f].spec.load, Load::Bursts(..)) {
            next = next.min(self.flows[f].next_burst);
        }
        // An event is strictly later than now, or the loop could stand still.
        let next = next.max(now + Duration::from_nanos(1));
        let end = &mut self.flows[f].ends[e];
        if next < end.wake {
            end.wake = next;
            if next < Time::MAX {
                self.push(next, Event::Wake(f, e));
            }
        }
    }

    fn send_data(&mut self, f: usize) {
        let now = self.now;
        if now >= self.flows[f].spec.stop {
            return;
        }
        if let Load::Bursts(n, every) = self.flows[f].spec.load {
            while self.flows[f].next_burst <= now {
                if self.flows[f].backlog == 0 {
                    self.flows[f].burst_began = now;
                }
                self.flows[f].next_burst += every;
                self.flows[f].backlog += u64::from(n);
            }
        }
        loop {
            let flow = &mut self.flows[f];
            let is_bulk = matches!(flow.spec.load, Load::Bulk);
            let path = &mut flow.ends[0].path;
            let is_probe = path.probe_wanted();
            if !is_probe {
                if !is_bulk && flow.backlog == 0 {
                    break;
                }
                if path.send_allowance(now) == 0 {
                    path.on_blocked(now);
                    break;
                }
            }
            flow.backlog = flow.backlog.saturating_sub(1);
            let is_app_limited = !is_bulk && flow.backlog == 0;
            if is_app_limited && !is_probe {
                let took = now.since(flow.burst_began);
                flow.bursts.push(took);
            }
            let size = path.datagram_size();
            self.transmit(f, 0, size, true, is_app_limited, None);
        }
    }

    fn send_ack(&mut self, f: usize, e: usize) {
        let now = self.now;
        let path = &mut self.flows[f].ends[e].path;
        let mut bytes = Vec::new();
        let wants = path.ack_wants_ping(now);
        let Some(item) = path.write_ack(now, 1150, &mut bytes) else { return };
        if wants {
            path.on_eliciting_ack(now);
        }
        let size = bytes.len() as u16 + 25;
        let has_more = e == 0 && matches!(self.flows[f].spec.load, Load::Bulk);
        self.transmit(f, e, size, wants, !has_more, Some((bytes, item)));
    }

    fn up_to(&mut self, most: Duration) -> Duration {
        match most.as_nanos() as u64 {
            0 => Duration::ZERO,
            j => Duration::from_nanos(self.rng.next_u64() % (j + 1)),
        }
    }

    /// When a packet arrives that would have at `at`, if some are held back and none overtakes.
    fn held_back(&mut self, end: usize, at: Time) -> Time {
        if self.link.hold_back == Duration::ZERO {
            return at;
        }
        let at = (at + self.up_to(self.link.hold_back)).max(self.latest[end]);
        self.latest[end] = at;
        at
    }

    fn transmit(&mut self, f: usize, e: usize, bytes: u16, eliciting: bool, is_app_limited: bool, ack: Option<(Vec<u8>, SentItem)>) {
        let now = self.now;
        let path = &mut self.flows[f].ends[e].path;
        let pn = path.next_packet_number();
        let mut ecn = path.ecn_codepoint();
        let mut items = SentItems::new();
        let ack = ack.map(|(b, i)| {
            items.push(i);
            b
        });
        if ack.is_none() {
            items.push(SentItem::Ping);
        }
        path.on_sent(now, pn, bytes, eliciting, is_app_limited, items);
        let size = u64::from(bytes) + IP_UDP;
        let delay = self.link.delay + self.flows[f].spec.extra_delay;
        if e == 1 {
            self.ack_bytes += size;
            let loss = self.link.ack_loss;
            if !self.chance(loss) {
                let arrive = self.held_back(0, now + delay);
                self.push(arrive, Event::Arrive(f, 0, Packet { pn: pn.0, bytes, ecn, eliciting, ack, departs: now }));
            }
            return;
        }
        self.data_bytes += size;
        let before = self.link.loss_before;
        if self.chance(before) {
            return;
        }
        let backlog = self.busy_until.since(now);
        if now >= self.record_queue_from {
            self.queue_delays.push(backlog.as_micros() as u32);
        }
        if let Some(depth) = self.link.policer {
            self.tokens = (self.tokens + now.since(self.tokens_at).as_secs_f64() * self.link.capacity()).min(depth as f64);
            self.tokens_at = now;
            if self.tokens < size as f64 {
                self.dropped += 1;
                return;
            }
            self.tokens -= size as f64;
            self.busy_until = now;
        } else {
            let backlog_bytes = (backlog.as_secs_f64() * self.link.capacity()) as u64;
            if backlog_bytes + size > self.link.queue_bytes {
                self.dropped += 1;
                return;
            }
            if self.link.mark_above.is_some_and(|m| backlog_bytes > m) && ecn == Ecn::Ect0 {
                ecn = Ecn::Ce;
            }
            self.busy_until = self.busy_until.max(now) + Duration::from_secs_f64(size as f64 / self.link.capacity());
        }
        if self.lost_after() {
            return;
        }
        let jitter = self.up_to(self.link.jitter);
        let departs = self.busy_until.max(now);
        let arrive = self.held_back(1, departs + delay + jitter);
        self.push(arrive, Event::Arrive(f, 1, Packet { pn: pn.0, bytes, ecn, eliciting, ack, departs }));
    }

    /// IP bytes that reached the receiver of a flow.
    pub fn received(&self, f: usize) -> u64 {
        self.flows[f].received_ip
    }

    /// How long each burst of a flow took to leave, since the last call.
    pub fn take_bursts(&mut self, f: usize) -> Vec<Duration> {
        std::mem::take(&mut self.flows[f].bursts)
    }

    pub fn path(&self, f: usize) -> &Path {
        &self.flows[f].ends[0].path
    }

    pub fn receiver(&self, f: usize) -> &Path {
        &self.flows[f].ends[1].path
    }

    /// Queueing delay in ms at a quantile of the packets.
    pub fn queue_ms(&mut self, q: f64) -> f64 {
        if self.queue_delays.is_empty() {
            return 0.0;
        }
        let i = ((self.queue_delays.len() - 1) as f64 * q) as usize;
        *self.queue_delays.select_nth_unstable(i).1 as f64 / 1000.0
    }
}

/// Result of one flow alone on a link.
#[derive(Clone, Debug)]
pub struct Alone {
    /// Received rate after warm-up over C(1-p) (C if the loss lies before the bottleneck).
    pub share: f64,
    pub queue_p95_ms: f64,
    pub spurious: f64,
    pub reverse: f64,
}

/// Runs one flow: P24's warm-up and duration, shortened by `scale`.
pub fn alone(link: &Link, control: CongestionControl, seed: u64, scale: f64) -> Alone {
    let rtt = link.delay.as_secs_f64() * 2.0;
    let warm = 5.0f64.max(12.0 * rtt);
    let run = warm + (25.0f64.max(60.0 * rtt)) * scale;
    let mut b = Bottleneck::new(link.clone(), vec![FlowSpec::bulk(control)], seed);
    b.record_queue_from = Time::ZERO + Duration::from_secs_f64(warm);
    b.run_until(Time::ZERO + Duration::from_secs_f64(warm));
    let before = b.received(0);
    b.run_until(Time::ZERO + Duration::from_secs_f64(run));
    let got = (b.received(0) - before) as f64 / (run - warm);
    let limit = link.capacity() * (1.0 - link.loss_after);
    let limit = limit.min(link.capacity());
    let stats = b.path(0).stats();
    Alone {
        share: got / limit,
        queue_p95_ms: b.queue_ms(0.95),
        spurious: stats.spurious_losses as f64 / stats.sent_packets.max(1) as f64,
        reverse: b.ack_bytes as f64 / b.data_bytes.max(1) as f64,
    }
}

/// IP rate in Mbit/s of each flow between two times.
pub fn rates(b: &mut Bottleneck, flows: usize, from_ms: u64, to_ms: u64) -> Vec<f64> {
    b.run_until(Time::from_millis(from_ms));
    let before: Vec<u64> = (0..flows).map(|f| b.received(f)).collect();
    b.queue_delays.clear();
    b.run_until(Time::from_millis(to_ms));
    (0..flows).map(|f| (b.received(f) - before[f]) as f64 * 8e-3 / (to_ms - from_ms) as f64).collect()
}

/// Jain's index.
pub fn jain(rates: &[f64]) -> f64 {
    let sum: f64 = rates.iter().sum();
    let squares: f64 = rates.iter().map(|r| r * r).sum();
    sum * sum / (rates.len() as f64 * squares).max(1e-12)
}

/// Flows of `model` that start 5 s apart over 100 Mbit/s, every other with 40 ms instead of 10; the queue is one BDP of the shorter.
pub fn of_two_distances(flows: u64, seed: u64) -> Bottleneck {
    let extra = |i: u64| Duration::from_millis(if i % 2 == 1 { 15 } else { 0 });
    let flow = |i| FlowSpec { extra_delay: extra(i), ..FlowSpec::bulk(CongestionControl::Model).at(i * 5000) };
    Bottleneck::new(Link::new(100.0, 5, 0.0), (0..flows).map(flow).collect(), seed)
}

/// What becomes of a flow of `model` beside a stream of a fixed rate that does not back off.
#[derive(Clone, Copy, Debug)]
pub struct BesideStream {
    /// Mbit/s of the flow and of the stream that arrive.
    pub ours: f64,
    pub theirs: f64,
    /// The part of its packets that the flow loses.
    pub lost: f64,
    /// The highest rate that it asks for, Mbit/s.
    pub highest: f64,
}

/// Over a link with a queue of 1 BDP, starts in ms: from second 10 on, until `seconds` or until the flow asks for 2 Gbit/s.
pub fn beside_a_stream(link: &Link, stream: Bandwidth, (ours, theirs): (u64, u64), seconds: u64, seed: u64) -> BesideStream {
    let flows = vec![FlowSpec::bulk(CongestionControl::Model).at(ours), FlowSpec::bulk(CongestionControl::Rate(stream)).at(theirs)];
    let mut b = Bottleneck::new(link.clone(), flows, seed);
    let (start, mut ms, mut highest) = (10_000, 10_000, 0.0f64);
    b.run_until(Time::from_millis(start));
    let (received, before) = ([b.received(0), b.received(1)], b.path(0).stats());
    while ms < seconds * 1000 && highest < 2000.0 {
        ms += 20;
        b.run_until(Time::from_millis(ms));
        highest = highest.max(b.path(0).stats().control.pacing_rate.mbit());
    }
    let after = b.path(0).stats();
    let got = |f: usize| (b.received(f) - received[f]) as f64 * 8e-3 / (ms - start) as f64;
    let sent = (after.sent_packets - before.sent_packets).max(1);
    BesideStream { ours: got(0), theirs: got(1), lost: (after.lost_packets - before.lost_packets) as f64 / sent as f64, highest }
}

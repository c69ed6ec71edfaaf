//! The virtual link: a serialiser of fixed rate, a delay each way, loss patterns; fates are told one round trip after sending.

use crate::flow::{FlowControlFrame, Offer, Receiver, ReceiverConfig, SendContext, Sender, SenderConfig, Stage, Symbol};
use crate::ids::{FlowLabel, Seq};
use crate::options::{Class, Mode};
use crate::redundancy::LossEstimate;
use crate::sent::SentItem;
use crate::units::{Duration, Probability, Time};
use crate::wire::frame::{Coded, Coefficients};
use bytes::Bytes;
use std::cmp::Reverse;
use std::collections::{BTreeMap, BinaryHeap};

/// xorshift64*: good enough to lose packets with.
#[derive(Clone, Debug)]
pub struct Dice(pub u64);

impl Dice {
    pub fn next(&mut self) -> u64 {
        self.0 ^= self.0 >> 12;
        self.0 ^= self.0 << 25;
        self.0 ^= self.0 >> 27;
        self.0.wrapping_mul(0x2545_F491_4F6C_DD1D)
    }
    pub fn below(&mut self, n: u64) -> u64 {
        self.next() % n.max(1)
    }
    pub fn chance(&mut self, p: f64) -> bool {
        ((self.next() >> 11) as f64) < p * (1u64 << 53) as f64
    }
}

/// What a test may set.
#[derive(Clone, Debug)]
pub struct Story {
    pub seed: u64,
    pub loss: f64,
    /// Mean run of lost packets; 0 = independent.
    pub burst: f64,
    /// Duration of bursts of losses as the path has measured it.
    pub burst_time: Duration,
    /// Loss of control frames of the receiver.
    pub report_loss: f64,
    /// Fates that are never told in time: the packet counts as lost though it arrived, and is told spurious later.
    pub late_fates: f64,
    /// Acknowledgements that come up to two round trips late, so that reports overtake them.
    pub late_acks: f64,
    /// Extra random delay of each packet, which reorders.
    pub jitter: Duration,
    pub one_way: Duration,
    /// Packets per second.
    pub rate: f64,
    pub batch_size: u8,
    pub class: Class,
    pub mode: Mode,
    pub no_retransmit: f64,
    pub symbol: u16,
    pub sender_memory: usize,
    pub receiver_memory: usize,
    pub initial_credit: u64,
    /// Mechanisms that a test switches off (P26).
    pub off: Off,
    /// The application reads only so many packets per second.
    pub read_rate: Option<f64>,
}

#[derive(Clone, Copy, Debug, Default)]
pub struct Off {
    pub repair: bool,
    pub rank: bool,
    pub credit: bool,
    pub third: bool,
    pub proactive: bool,
    pub skip: bool,
    pub end: bool,
}

impl Default for Story {
    fn default() -> Self {
        Self {
            seed: 1,
            loss: 0.0,
            burst: 0.0,
            burst_time: Duration::ZERO,
            report_loss: 0.0,
            late_fates: 0.0,
            late_acks: 0.0,
            jitter: Duration::ZERO,
            one_way: Duration::from_millis(50),
            rate: 1000.0,
            batch_size: 16,
            class: Class::Bulk,
            mode: Mode::Brtp,
            no_retransmit: 0.999,
            symbol: 200,
            sender_memory: 128 << 20,
            receiver_memory: 128 << 20,
            initial_credit: 1024,
            off: Off::default(),
            read_rate: None,
        }
    }
}

#[derive(Debug, PartialEq, Eq)]
enum Happening {
    /// A coded packet reaches the receiver.
    Arrive(Packet),
    /// The sender learns the fate.
    Fate(SentItem, FateKind),
    /// A control frame of the sender arrives.
    ToReceiver(FlowControlFrame),
    /// A control frame of the receiver arrives.
    ToSender(FlowControlFrame),
    /// The receiver learns the fate of its report.
    ReportFate(SentItem, bool),
}

#[derive(Debug, PartialEq, Eq, Clone, Copy)]
enum FateKind {
    Acked,
    Lost,
    Spurious,
}

#[derive(Debug, PartialEq, Eq, Clone)]
struct Packet {
    base: Seq,
    n: u8,
    coefficients: Coefficients<'static>,
    symbol: Vec<u8>,
}

#[derive(Debug)]
struct Event {
    at: Time,
    order: u64,
    what: Happening,
}
impl PartialEq for Event {
    fn eq(&self, other: &Self) -> bool {
        (self.at, self.order) == (other.at, other.order)
    }
}
impl Eq for Event {}
impl PartialOrd for Event {
    fn partial_cmp(&self, other: &Self) -> Option<std::cmp::Ordering> {
        Some(self.cmp(other))
    }
}
impl Ord for Event {
    fn cmp(&self, other: &Self) -> std::cmp::Ordering {
        (self.at, self.order).cmp(&(other.at, other.order))
    }
}

/// A packet that the application gave to the flow, and when.
#[derive(Clone, Copy, Debug)]
pub struct Given {
    pub at: Time,
    pub len: usize,
}

pub struct World {
    pub story: Story,
    pub now: Time,
    pub sender: Sender,
    pub receiver: Receiver,
    events: BinaryHeap<Reverse<Event>>,
    order: u64,
    pub dice: Dice,
    in_burst: bool,
    next_slot: Time,
    /// Packets the application still wants to send (bulk).
    pub backlog: u64,
    pub lifetime: Option<Duration>,
    pub given: Vec<Given>,
    /// When each packet was delivered.
    pub delivered: BTreeMap<u64, Time>,
    consumed: u64,
    read_credit: f64,
    last_read: Time,
    pub packets_sent: u64,
    pub packets_lost: u64,
    pub bytes_sent: u64,
    pub reports_sent: u64,
    pub refused: u64,
    pub peak_receiver: usize,
    pub peak_sender: usize,
    want_finish: bool,
    /// Arrivals (by number) that reach the node and are acknowledged, but not the flow.
    pub swallow: core::ops::Range<u64>,
    pub arrived: u64,
    /// Losses of coded packets from a script instead of dice: n-th packet sent.
    pub scripted: Option<Script>,
}

/// Says of the n-th packet whether it is lost.
pub type Script = Box<dyn FnMut(u64, &SentItem) -> bool>;

pub const LABEL: FlowLabel = FlowLabel(7);

/// What packet `seq` contains: length and bytes follow from its number.
pub fn content(seq: u64, len: usize) -> Vec<u8> {
    let mut dice = Dice(seq.wrapping_mul(0x9E37_79B9_7F4A_7C15) | 1);
    (0..len).map(|_| dice.next() as u8).collect()
}

pub fn symbol(payload: &[u8]) -> Bytes {
    let mut s = Vec::with_capacity(payload.len() + 2);
    s.extend_from_slice(&(payload.len() as u16).to_be_bytes());
    s.extend_from_slice(payload);
    s.into()
}

impl World {
    pub fn new(story: Story) -> Self {
        let sender = Sender::new(SenderConfig {
            label: LABEL,
            batch_size: story.batch_size,
            symbol: story.symbol,
            class: story.class,
            mode: story.mode,
            waits_in_order: false,
            no_retransmit: Probability::new(story.no_retransmit),
            memory: story.sender_memory,
            initial_credit: story.initial_credit,
        });
        let mut sender = sender;
        sender.is_exact_only = story.off.third;
        let receiver = Receiver::new(ReceiverConfig {
            label: LABEL,
            batch_size: story.batch_size,
            symbol: story.symbol,
            memory: story.receiver_memory,
            initial_credit: story.initial_credit,
        });
        Self {
            now: Time::from_millis(1),
            sender,
            receiver,
            events: BinaryHeap::new(),
            order: 0,
            dice: Dice(story.seed.wrapping_mul(0x9E37_79B9_7F4A_7C15) | 1),
            in_burst: false,
            next_slot: Time::ZERO,
            backlog: 0,
            lifetime: None,
            given: Vec::new(),
            delivered: BTreeMap::new(),
            consumed: 0,
            read_credit: 0.0,
            last_read: Time::ZERO,
            packets_sent: 0,
            packets_lost: 0,
            bytes_sent: 0,
            reports_sent: 0,
            refused: 0,
            peak_receiver: 0,
            peak_sender: 0,
            want_finish: false,
            swallow: 0..0,
            arrived: 0,
            scripted: None,
            story,
        }
    }

    pub fn rtt(&self) -> Duration {
        self.story.one_way * 2
    }

    pub fn context(&self) -> SendContext {
        let burst = if self.story.burst > 0.0 { self.story.burst } else { 1.0 / (1.0 - self.story.loss) };
        SendContext {
            rtt: self.rtt() + self.story.jitter / 2,
            rtt_var: self.story.jitter / 4,
            min_rtt: self.rtt(),
            loss: LossEstimate {
                mean: Probability::new(self.story.loss),
                deviation: Probability::ZERO,
                burst_packets: burst,
                burst: self.story.burst_time,
            },
            gap: Duration::from_secs_f64(1.0 / self.story.rate),
            spare: true,
            idle_share: Probability::ONE,
            heard: 1000,
            slack: true,
            uncontrolled: false,
        }
    }

    fn schedule(&mut self, at: Time, what: Happening) {
        self.order += 1;
        self.events.push(Reverse(Event { at, order: self.order, what }));
    }

    fn is_lost(&mut self, item: &SentItem) -> bool {
        if let Some(script) = &mut self.scripted {
            return script(self.packets_sent, item);
        }
        if self.story.burst > 1.0 {
            let (p, b) = (self.story.loss, self.story.burst);
            let change = if self.in_burst { 1.0 / b } else { p / (b * (1.0 - p)) };
            if self.dice.chance(change) {
                self.in_burst = !self.in_burst;
            }
            return self.in_burst;
        }
        self.dice.chance(self.story.loss)
    }

    /// Gives one packet to the flow now.
    pub fn give(&mut self, len: usize) -> Seq {
        let seq = self.sender.next_seq().0;
        let deadline = self.lifetime.map(|l| self.now + l);
        let got = self.sender.push(self.now, Symbol::bare(content(seq, len).into()), deadline);
        assert_eq!(got.0, seq);
        self.given.push(Given { at: self.now, len });
        got
    }

    /// No more follows once the backlog is empty.
    pub fn finish_when_empty(&mut self) {
        self.want_finish = true;
    }

    fn feed(&mut self) {
        while self.backlog > 0 && self.sender.room() > 0 {
            self.backlog -= 1;
            let len = usize::from(self.story.symbol) - 2 - self.dice.below(3) as usize;
            self.give(len);
        }
        if self.want_finish && self.backlog == 0 {
            self.want_finish = false;
            self.sender.finish();
        }
    }

    /// Sends what the link has room for at this instant; true if something went out.
    fn transmit(&mut self) {
        self.feed();
        while let Some(frame) = self.sender.poll_control(self.now) {
            let off = match frame {
                FlowControlFrame::End { .. } => self.story.off.end,
                _ => self.story.off.skip,
            };
            let lost = off || self.dice.chance(self.story.loss);
            let (there, back) = (self.now + self.story.one_way, self.now + self.rtt());
            if !lost {
                self.schedule(there, Happening::ToReceiver(frame));
            }
            self.schedule(back, Happening::Fate(frame.item(), if lost && !off { FateKind::Lost } else { FateKind::Acked }));
        }
        while self.next_slot <= self.now {
            let context = self.context();
            let mut stages = vec![Stage::Source];
            if !self.story.off.repair {
                stages.insert(0, Stage::Repair);
            }
            if !self.story.off.proactive {
                stages.push(Stage::Proactive);
            }
            let Some(out) =
                stages.into_iter().find_map(|s| if self.sender.has(s) { self.sender.poll(self.now, s, &context, 1400) } else { None })
            else {
                break;
            };
            self.send(out);
            self.feed();
        }
    }

    fn send(&mut self, out: crate::flow::Outgoing) {
        let mut bytes = Vec::new();
        self.sender.write_symbol(&out, &mut bytes);
        assert_eq!(bytes.len(), out.len, "the length announced is the length written");
        self.packets_sent += 1;
        self.bytes_sent += bytes.len() as u64;
        self.next_slot = self.next_slot.max(self.now) + Duration::from_secs_f64(1.0 / self.story.rate);
        let lost = self.is_lost(&out.item);
        let jitter = Duration::from_nanos(self.dice.below(self.story.jitter.as_nanos() as u64 + 1));
        let arrival = self.next_slot + self.story.one_way + jitter;
        let told = self.next_slot + self.rtt() + self.story.jitter + Duration::from_millis(1);
        if lost {
            self.packets_lost += 1;
            // Time-based detection (P10): a little later than an acknowledgement would have come.
            self.schedule(told + self.rtt() / 8, Happening::Fate(out.item, FateKind::Lost));
        } else {
            self.schedule(arrival, Happening::Arrive(Packet { base: out.base, n: out.n, coefficients: out.form, symbol: bytes }));
            if self.dice.chance(self.story.late_fates) {
                self.schedule(told + self.rtt() / 8, Happening::Fate(out.item.clone(), FateKind::Lost));
                self.schedule(told + self.rtt(), Happening::Fate(out.item, FateKind::Spurious));
            } else {
                let late = if self.dice.chance(self.story.late_acks) { self.rtt() * 2 } else { Duration::ZERO };
                let late = Duration::from_nanos(self.dice.below(late.as_nanos() as u64 + 1));
                self.schedule(told + late, Happening::Fate(out.item, FateKind::Acked));
            }
        }
    }

    fn happen(&mut self, what: Happening) {
        match what {
            Happening::Arrive(p) => {
                self.arrived += 1;
                if self.swallow.contains(&self.arrived) {
                    return;
                }
                let coded = Coded { flow: LABEL, base: p.base, n: p.n, coefficients: p.coefficients, symbol: &p.symbol };
                if let Offer::Refused(code) = self.receiver.on_coded(self.now, &coded) {
                    self.refused += 1;
                    self.sender.on_refused(p.base, code);
                }
            }
            Happening::Fate(item, kind) => match kind {
                FateKind::Acked => self.sender.on_acked(self.now, &item),
                FateKind::Lost => self.sender.on_lost(self.now, &item),
                FateKind::Spurious => self.sender.on_spurious(self.now, &item),
            },
            Happening::ToReceiver(FlowControlFrame::End { end, .. }) => self.receiver.on_end(end).expect("a true end"),
            Happening::ToReceiver(FlowControlFrame::Skip { floor, .. }) => self.receiver.on_skip(floor),
            Happening::ToSender(FlowControlFrame::Credit { limit, done, .. }) => self.sender.on_credit(limit, done),
            Happening::ToSender(FlowControlFrame::Rank { base, n, rank, missing, .. }) => {
                self.sender.on_rank(self.now, base, n, rank, missing)
            }
            Happening::ReportFate(item, false) => self.receiver.on_report_lost(&item),
            Happening::ReportFate(_, true) => {}
            Happening::ToReceiver(_) | Happening::ToSender(_) => unreachable!("frames go one way"),
        }
        self.read();
        self.reports();
    }

    fn read(&mut self) {
        while let Some((seq, payload)) = self.receiver.poll_delivery() {
            let len = self.given[seq.0 as usize].len;
            assert!(payload == content(seq.0, len), "packet {seq} is what was sent");
            assert!(self.delivered.insert(seq.0, self.now).is_none(), "packet {seq} delivered twice");
        }
        let done = self.receiver.done().0;
        let total = match self.story.read_rate {
            None => done,
            Some(rate) => {
                self.read_credit += self.now.since(self.last_read).as_secs_f64() * rate;
                self.last_read = self.now;
                let take = (self.read_credit as u64).min(done - self.consumed);
                self.read_credit = (self.read_credit - take as f64).min(64.0);
                self.consumed + take
            }
        };
        self.consumed = total;
        self.receiver.consume(total);
        self.peak_receiver = self.peak_receiver.max(self.receiver.memory());
        self.peak_sender = self.peak_sender.max(self.sender.memory());
    }

    fn reports(&mut self) {
        let rtt = self.rtt();
        while let Some(frame) = self.receiver.poll_report(self.now, rtt) {
            self.reports_sent += 1;
            let off = match frame {
                FlowControlFrame::Credit { .. } => self.story.off.credit,
                _ => self.story.off.rank,
            };
            let lost = off || self.dice.chance(self.story.report_loss);
            if !lost {
                self.schedule(self.now + self.story.one_way, Happening::ToSender(frame));
            }
            self.schedule(self.now + rtt, Happening::ReportFate(frame.item(), !lost || off));
        }
    }

    /// A batch of which the sender believes the receiver to have more rank than it has: its number, the rank believed, and the rank held.
    pub fn overestimate(&self) -> Option<(u64, u8, u8)> {
        self.sender.believed_ranks().map(|(number, n, believed)| (number, believed, self.receiver.held_rank(number, n))).find(|b| b.1 > b.2)
    }

    /// One step: to the next instant at which something happens, at most `until`. False if nothing is left to happen.
    pub fn step(&mut self, until: Time) -> bool {
        self.transmit();
        let mut next = until;
        let mut any = false;
        let slot = if [Stage::Repair, Stage::Source, Stage::Proactive].iter().any(|s| self.sender.has(*s)) && self.next_slot > self.now {
            Some(self.next_slot)
        } else {
            None
        };
        let candidates = [self.events.peek().map(|Reverse(e)| e.at), slot, self.sender.poll_timeout(), self.receiver.poll_timeout()];
        for at in candidates.into_iter().flatten() {
            any = true;
            next = next.min(at);
        }
        if self.story.read_rate.is_some() {
            any = true;
            next = next.min(self.now + Duration::from_millis(5));
        }
        self.now = next.max(self.now);
        while self.events.peek().is_some_and(|Reverse(e)| e.at <= self.now) {
            if let Some(Reverse(event)) = self.events.pop() {
                self.happen(event.what);
            }
        }
        if self.sender.poll_timeout().is_some_and(|at| at <= self.now) {
            self.sender.handle_timeout(self.now);
        }
        if self.receiver.poll_timeout().is_some_and(|at| at <= self.now) {
            self.receiver.handle_timeout(self.now);
        }
        self.read();
        self.reports();
        any && self.now < until
    }

    /// Runs until `until`, or until everything is delivered and known to be.
    pub fn run(&mut self, until: Time) {
        while !self.sender.is_delivered() && self.step(until) {}
    }

    /// Runs for exactly this long.
    pub fn run_for(&mut self, d: Duration) {
        let until = self.now + d;
        while self.now < until {
            self.step(until);
        }
    }

    /// A bulk transfer of `packets`, to its end or for `limit`.
    pub fn transfer(story: Story, packets: u64, limit: Duration) -> Self {
        let mut world = Self::new(story);
        world.backlog = packets;
        world.finish_when_empty();
        let until = world.now + limit;
        world.run(until);
        world
    }

    pub fn assert_all_there(&self) {
        assert!(self.sender.is_delivered(), "the sender knows that all is delivered: {:?}", self.sender.stats());
        assert!(self.receiver.is_complete());
        assert_eq!(self.delivered.len(), self.given.len());
    }
}

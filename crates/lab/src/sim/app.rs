//! The application at each end of a run: opens flows, sends the workload, checks and measures what arrives, echoes.

use std::collections::{BTreeMap, VecDeque};
use std::net::{IpAddr, SocketAddr};
use std::time::Duration;

use bytes::Bytes;
use noctule_proto::crypto::PublicKey;
use noctule_proto::error::CommandError;
use noctule_proto::event::{Event, SessionOutcome};
use noctule_proto::ids::{FlowId, LinkId, SessionId};
use noctule_proto::options::{Class, FlowKind, FlowOptions, MessageOptions, Mode};
use noctule_proto::units::{Probability, Time};

use super::content::Content;
use super::machine::Machine;
use super::meter::{Meter, Window};
use super::outgoing::{Outgoing, decode_message, encode_message};
use crate::link::Histogram;
use crate::scenario::{SMALLEST_MESSAGE, Workload};

/// What a flow is for, carried in the low bits of its `tag`; above them is the number of the application's flow.
const TAG_DATA: u64 = 1;
const TAG_ANSWER: u64 = 2;
const TAG_BITS: u32 = 2;

/// The number of the scenario's flow that a tag names.
pub(super) fn flow_number(tag: u64) -> u64 {
    tag >> TAG_BITS
}

/// How an application reaches the far end.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Reach {
    /// It waits to be reached.
    Waits,
    /// By a link of its own to this address, where this key must answer.
    Neighbour(SocketAddr, Option<PublicKey>),
    /// By the node's routes to this address, where this key must answer.
    Overlay(IpAddr, PublicKey),
}

/// What an application does.
#[derive(Debug, Clone)]
pub struct AppPlan {
    /// The far end.
    pub reach: Reach,
    /// Further paths of a link of its own: the far end's address and the near one.
    pub further: Vec<(SocketAddr, IpAddr)>,
    /// Number of the scenario's flow.
    pub number: u64,
    /// Sends the workload (and does not only receive it).
    pub sends: bool,
    /// The workload.
    pub workload: Workload,
    /// Transport mode.
    pub mode: Mode,
    /// Lifetime of messages.
    pub lifetime: Option<Duration>,
    /// Messages as they come.
    pub unordered: bool,
    /// Packets per batch, if not the default.
    pub batch_size: Option<u8>,
    /// Asked probability that a message needs no second round trip, if not the default.
    pub no_retransmit: Option<Probability>,
    /// Size of the messages of a `btp` bulk flow.
    pub flood_size: usize,
    /// What is counted.
    pub window: Window,
    /// Sum of the propagation delays there and back.
    pub base_rtt: Duration,
    /// Reads nothing from the first moment to the second.
    pub stall: Option<(Time, Time)>,
    /// Seed of the content, the same at both ends.
    pub seed: u64,
    /// Distinguishes the two directions.
    pub stream: u64,
}

/// An application; see [`AppPlan`].
#[derive(Debug)]
pub struct App {
    plan: AppPlan,
    link: Option<LinkId>,
    session: Option<SessionId>,
    outgoing: Option<Outgoing>,
    blocked: bool,
    sending: bool,
    incoming: BTreeMap<FlowId, Incoming>,
    answers: Option<Answers>,
    stall_ends: Option<Time>,
    /// What was received.
    pub meter: Meter,
    /// Round trips of messages whose time of sending lies in the window.
    pub rtt: Histogram,
    /// Mean of each ten consecutive ones, ms; at most `MOST_TENS`.
    pub rtt_by_ten: Vec<f64>,
    tens: (u32, f64),
    /// Round trip of the first message, handshake included.
    pub first_rtt: Option<Duration>,
    /// Moment at which the link came up.
    pub link_up: Option<Time>,
    /// Moment at which the far end had everything (transfer).
    pub delivered: Option<Time>,
    /// Moment at which the far end's flow was read to its end (transfer).
    pub finished: Option<Time>,
    /// How the session ended, if it did.
    pub outcome: Option<SessionOutcome>,
    /// What went wrong, in words; empty if nothing did.
    pub failures: Vec<String>,
}

#[derive(Debug)]
struct Incoming {
    is_stream: bool,
    is_answer: bool,
    offset: u64,
}

#[derive(Debug)]
struct Answers {
    flow: FlowId,
    waiting: VecDeque<(Bytes, MessageOptions)>,
}

/// Answers that wait for room, at most; more are dropped and count as lost.
const ANSWERS_WAITING: usize = 4096;

/// Means of ten round trips that are kept, at most.
const MOST_TENS: usize = 10_000;

/// Messages of up to so many bytes may be sent before the far end has told its limit.
const EARLY_MESSAGE: usize = 64 * 1024;

impl App {
    /// Its link is to have these paths as well; told before it begins.
    pub fn add_path(&mut self, remote: SocketAddr, local: IpAddr) {
        self.plan.further.push((remote, local));
    }

    /// An application that has done nothing yet.
    pub fn new(plan: AppPlan) -> Self {
        Self {
            meter: Meter::new(plan.window).with_startup(plan.base_rtt),
            sending: plan.sends,
            plan,
            link: None,
            session: None,
            outgoing: None,
            blocked: false,
            incoming: BTreeMap::new(),
            answers: None,
            stall_ends: None,
            rtt: Histogram::default(),
            rtt_by_ten: Vec::new(),
            tens: (0, 0.0),
            first_rtt: None,
            link_up: None,
            delivered: None,
            finished: None,
            outcome: None,
            failures: Vec::new(),
        }
    }

    /// The link that the application opened or was reached by; none over relays.
    pub fn link(&self) -> Option<LinkId> {
        self.link
    }

    /// Its session, once there is one.
    pub fn session(&self) -> Option<SessionId> {
        self.session
    }

    /// Number of the scenario's flow.
    pub fn number(&self) -> u64 {
        self.plan.number
    }

    /// Whether it sends or receives on this flow.
    pub fn has_flow(&self, flow: FlowId) -> bool {
        self.outgoing_flow() == Some(flow) || self.answers.as_ref().is_some_and(|a| a.flow == flow) || self.incoming.contains_key(&flow)
    }

    /// The flow that it sends on.
    pub fn outgoing_flow(&self) -> Option<FlowId> {
        self.outgoing.as_ref().map(Outgoing::flow)
    }

    /// The flows that it receives the workload on.
    pub fn incoming_flow(&self) -> Option<FlowId> {
        self.incoming.iter().find(|(_, incoming)| !incoming.is_answer).map(|(&flow, _)| flow)
    }

    /// Whether its workload is messages or blocks at their times.
    pub fn is_periodic(&self) -> bool {
        matches!(self.plan.workload, Workload::Messages { .. } | Workload::Block { .. })
    }

    /// Whether its workload has no end but that of the run.
    pub fn is_bulk(&self) -> bool {
        matches!(self.plan.workload, Workload::Bulk)
    }

    /// Messages (bytes of a stream) handed over so far.
    pub fn sent(&self) -> u64 {
        self.outgoing.as_ref().map_or(0, Outgoing::sent)
    }

    /// Messages due in the window.
    pub fn due_in_window(&self) -> u64 {
        self.outgoing.as_ref().map_or(0, |o| o.due_between(self.plan.window.from, self.plan.window.until))
    }

    /// Begins: the connecting end opens link, session and flow at once and writes without waiting, unless its messages are so large that
    /// the far end's limit must be known (P18).
    pub fn start(&mut self, now: Time, node: &mut dyn Machine) {
        let opened = match self.plan.reach {
            Reach::Waits => return,
            Reach::Neighbour(remote, peer) => node.connect(now, remote, peer).and_then(|link| {
                for &(remote, local) in &self.plan.further {
                    node.add_path(now, link, remote, Some(local))?;
                }
                self.link = Some(link);
                node.open_session(now, link)
            }),
            Reach::Overlay(address, peer) => node.open_session_to(now, address, Some(peer)),
        };
        match opened {
            Ok(session) => {
                self.session = Some(session);
                if self.plan.workload.message_size() <= EARLY_MESSAGE {
                    self.open_outgoing(now, node);
                }
            }
            Err(error) => self.fail(now, format!("cannot connect: {error}")),
        }
    }

    /// Sends nothing new from now on.
    pub fn stop_sending(&mut self) {
        self.sending = false;
    }

    /// Closes the session gracefully.
    pub fn close(&mut self, now: Time, node: &mut dyn Machine, linger: Duration) {
        if let Some(session) = self.session
            && self.outcome.is_none()
            && let Err(error) = node.close_session(now, session, 0, "run is over", linger)
        {
            self.fail(now, format!("cannot close: {error}"));
        }
    }

    /// When the application wants to act.
    pub fn next_time(&self) -> Option<Time> {
        let wakes = self.stall_ends;
        if !self.sending || self.blocked {
            return wakes;
        }
        let sends = self.outgoing.as_ref().and_then(Outgoing::next_time);
        [wakes, sends].into_iter().flatten().min()
    }

    /// `next_time` is due.
    pub fn on_time(&mut self, now: Time, node: &mut dyn Machine) {
        if self.stall_ends.is_some_and(|end| end <= now) {
            self.stall_ends = None;
            for flow in self.incoming.keys().copied().collect::<Vec<_>>() {
                self.read_all(now, node, flow);
            }
        }
        self.feed(now, node);
    }

    /// Something happened at the node.
    pub fn on_event(&mut self, now: Time, node: &mut dyn Machine, event: Event) {
        match event {
            Event::LinkUp { link, .. } => {
                self.link.get_or_insert(link);
                self.link_up.get_or_insert(now);
            }
            Event::LinkDown { reason, .. } => {
                if !reason.is_clean() && self.outcome.as_ref().is_none_or(|o| !o.reason.is_clean()) {
                    self.fail(now, format!("link down: {reason}"));
                }
            }
            Event::SessionIncoming { session, .. } => {
                self.session = Some(session);
                self.open_outgoing(now, node);
            }
            Event::SessionOpened { .. } => self.open_outgoing(now, node),
            Event::SessionClosed { outcome, .. } => {
                if !outcome.reason.is_clean() {
                    self.fail(now, format!("session closed: {}", outcome.reason));
                }
                self.outcome = Some(outcome);
            }
            Event::FlowIncoming { flow, options, .. } => {
                let is_stream = options.kind == FlowKind::Stream;
                self.incoming.insert(flow, Incoming { is_stream, is_answer: options.tag == self.tag(TAG_ANSWER), offset: 0 });
                self.read_all(now, node, flow);
            }
            Event::FlowReadable(flow) => self.read_all(now, node, flow),
            Event::FlowWritable(flow) => {
                if self.outgoing_flow() == Some(flow) {
                    self.blocked = false;
                    self.feed(now, node);
                } else {
                    self.feed_answers(now, node);
                }
            }
            Event::FlowFinished(flow) => {
                self.read_all(now, node, flow);
                self.finished.get_or_insert(now);
            }
            Event::FlowDelivered(flow) => {
                if self.outgoing_flow() == Some(flow) {
                    self.delivered.get_or_insert(now);
                }
            }
            Event::FlowClosed { flow, reason } => {
                if !reason.is_clean() {
                    self.fail(now, format!("flow {flow} closed: {reason}"));
                }
            }
            // A driver would see what is wrong with the path; here the link's own conditions are what is wrong.
            Event::LinkSilent { .. } | Event::PathChanged { .. } | Event::TargetRate { .. } | Event::LinkRefused { .. } => {}
            // The end of the session follows, and is what counts.
            Event::SessionClosing { .. } => {}
            other => self.fail(now, format!("an event that the application does not know: {other:?}")),
        }
    }

    fn open_outgoing(&mut self, now: Time, node: &mut dyn Machine) {
        if !self.plan.sends || self.outgoing.is_some() {
            return;
        }
        let Some(session) = self.session else { return };
        let is_stream = self.plan.mode == Mode::Brtp && matches!(self.plan.workload, Workload::Bulk | Workload::Transfer { .. });
        let class = match self.plan.workload {
            Workload::Bulk | Workload::Transfer { .. } => Class::Bulk,
            Workload::Messages { .. } | Workload::Block { .. } => Class::Latency,
        };
        let options = FlowOptions { class, tag: self.tag(TAG_DATA), ..self.flow_options(is_stream) };
        let flow = match node.open_flow(now, session, options) {
            Ok(flow) => flow,
            Err(error) => return self.fail(now, format!("cannot open a flow: {error}")),
        };
        let content = Content::new(self.plan.seed, self.plan.stream);
        let lifetime = self.plan.lifetime;
        self.outgoing = Some(match self.plan.workload {
            Workload::Bulk if is_stream => Outgoing::stream(flow, content, u64::MAX),
            Workload::Transfer { size } => Outgoing::stream(flow, content, size),
            Workload::Bulk => Outgoing::Flood { flow, content, next: 0, size: self.plan.flood_size, lifetime },
            Workload::Messages { interval, size } | Workload::Block { interval, size } => {
                Outgoing::Periodic { flow, content, begin: now, interval: interval.0, next: 0, size, lifetime }
            }
        });
        self.feed(now, node);
    }

    fn tag(&self, purpose: u64) -> u64 {
        (self.plan.number << TAG_BITS) | purpose
    }

    fn flow_options(&self, is_stream: bool) -> FlowOptions {
        let unordered = self.plan.unordered || self.plan.mode != Mode::Brtp;
        let kind = match (is_stream, unordered) {
            (true, _) => FlowKind::Stream,
            (false, true) => FlowKind::UnorderedMessages,
            (false, false) => FlowKind::OrderedMessages,
        };
        let mut options = FlowOptions { mode: self.plan.mode, kind, lifetime: self.plan.lifetime, ..FlowOptions::default() };
        if let Some(batch_size) = self.plan.batch_size {
            options.batch_size = batch_size;
        }
        if let Some(probability) = self.plan.no_retransmit {
            options.no_retransmit = probability;
        }
        options
    }

    fn feed(&mut self, now: Time, node: &mut dyn Machine) {
        if !self.sending || self.blocked {
            return;
        }
        let Some(outgoing) = &mut self.outgoing else { return };
        match outgoing.feed(now, node) {
            Ok(blocked) => self.blocked = blocked,
            Err(error) => {
                self.sending = false;
                self.fail(now, format!("cannot send: {error}"));
            }
        }
    }

    fn read_all(&mut self, now: Time, node: &mut dyn Machine, flow: FlowId) {
        if let Some((from, until)) = self.plan.stall
            && now >= from
            && now < until
        {
            self.stall_ends = Some(until);
            return;
        }
        let Some(incoming) = self.incoming.get(&flow) else {
            return self.fail(now, format!("flow {flow} is readable and was never announced"));
        };
        if incoming.is_stream {
            self.read_stream(now, node, flow);
        } else {
            self.read_messages(now, node, flow, incoming.is_answer);
        }
    }

    fn read_stream(&mut self, now: Time, node: &mut dyn Machine, flow: FlowId) {
        let content = self.far_content();
        loop {
            match node.read(now, flow, 64 * 1024) {
                Ok(Some(bytes)) if !bytes.is_empty() => {
                    let Some(incoming) = self.incoming.get_mut(&flow) else { return };
                    let wrong = content.count_wrong(incoming.offset, &bytes);
                    incoming.offset += bytes.len() as u64;
                    self.meter.read(now, bytes.len(), wrong);
                }
                Ok(_) => return,
                Err(CommandError::Unknown(_) | CommandError::Closed(_)) => return,
                Err(error) => return self.fail(now, format!("cannot read: {error}")),
            }
        }
    }

    fn read_messages(&mut self, now: Time, node: &mut dyn Machine, flow: FlowId, is_answer: bool) {
        loop {
            match node.recv_message(now, flow) {
                Ok(Some(message)) if is_answer => self.on_answer(now, &message.data),
                Ok(Some(message)) => self.on_message(now, node, &message.data),
                Ok(None) | Err(CommandError::Unknown(_) | CommandError::Closed(_)) => return,
                Err(error) => return self.fail(now, format!("cannot receive: {error}")),
            }
        }
    }

    fn on_message(&mut self, now: Time, node: &mut dyn Machine, data: &Bytes) {
        let len = data.len();
        let Some((index, sent, mut wrong)) = decode_message(self.far_content(), data) else {
            return self.meter.read(now, len, len as u64);
        };
        let expected = match self.plan.workload {
            Workload::Messages { size, .. } | Workload::Block { size, .. } => size,
            Workload::Bulk | Workload::Transfer { .. } => self.plan.flood_size,
        };
        // A number that no run reaches means that the first bytes are wrong; it would also make the record of numbers huge.
        if len != expected || index > 1 << 32 || sent > now || !self.meter.message(now, index, sent, self.plan.lifetime) {
            wrong = len as u64;
        }
        self.meter.read(now, len, wrong);
        match self.plan.workload {
            Workload::Messages { .. } => self.answer(now, node, data.clone(), sent),
            Workload::Block { .. } => self.answer(now, node, data.slice(..SMALLEST_MESSAGE), sent),
            Workload::Bulk | Workload::Transfer { .. } => {}
        }
    }

    fn answer(&mut self, now: Time, node: &mut dyn Machine, data: Bytes, _sent: Time) {
        if self.answers.is_none() {
            let Some(session) = self.session else { return };
            let options = FlowOptions { class: Class::Latency, tag: self.tag(TAG_ANSWER), ..self.flow_options(false) };
            match node.open_flow(now, session, options) {
                Ok(flow) => self.answers = Some(Answers { flow, waiting: VecDeque::new() }),
                Err(error) => return self.fail(now, format!("cannot open a flow to answer: {error}")),
            }
        }
        if let Some(answers) = &mut self.answers
            && answers.waiting.len() < ANSWERS_WAITING
        {
            answers.waiting.push_back((data, MessageOptions { lifetime: self.plan.lifetime, ..MessageOptions::default() }));
        }
        self.feed_answers(now, node);
    }

    fn feed_answers(&mut self, now: Time, node: &mut dyn Machine) {
        let Some(answers) = &mut self.answers else { return };
        while let Some((data, options)) = answers.waiting.front() {
            match node.send_message(now, answers.flow, data.clone(), *options) {
                Ok(_) => {
                    answers.waiting.pop_front();
                }
                Err(CommandError::Blocked) => return,
                // After the run, nobody waits for it.
                Err(CommandError::Closed(_)) if now >= self.plan.window.until => return answers.waiting.clear(),
                Err(error) => {
                    answers.waiting.clear();
                    return self.fail(now, format!("cannot answer: {error}"));
                }
            }
        }
    }

    fn on_answer(&mut self, now: Time, data: &Bytes) {
        let content = Content::new(self.plan.seed, self.plan.stream);
        let Some((index, sent, _)) = decode_message(content, data) else {
            self.meter.bytes_wrong += data.len() as u64;
            return;
        };
        let expected = match self.plan.workload {
            Workload::Messages { size, .. } => size,
            _ => SMALLEST_MESSAGE,
        };
        if data.len() != expected || *data != encode_message(content, index, sent, expected) {
            self.meter.bytes_wrong += data.len() as u64;
            return;
        }
        let rtt = now.since(sent);
        if index == 0 {
            self.first_rtt.get_or_insert(rtt);
        }
        if self.plan.window.holds(sent) {
            self.rtt.record(rtt);
            self.tens = (self.tens.0 + 1, self.tens.1 + rtt.as_secs_f64() * 1e3);
            if self.tens.0 == 10 && self.rtt_by_ten.len() < MOST_TENS {
                self.rtt_by_ten.push(self.tens.1 / 10.0);
                self.tens = (0, 0.0);
            }
        }
    }

    /// What the far end sends: the other of the two directions of this pair.
    fn far_content(&self) -> Content {
        Content::new(self.plan.seed, self.plan.stream ^ 1)
    }

    fn fail(&mut self, now: Time, text: String) {
        // The first few say what happened; a thousand repetitions would not say more.
        if self.failures.len() < 8 {
            self.failures.push(format!("{now:?}: {text}"));
        }
    }
}

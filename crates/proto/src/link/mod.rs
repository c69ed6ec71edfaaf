//! A link: the authenticated association of two neighbours over one or more UDP paths, and the flows that it carries.
//!
//! This file holds the link's state and what its owner calls; which flows it carries is in `carrying.rs`, receiving in `receive.rs`, building datagrams in
//! `transmit.rs`, getting keys in `initiate.rs`, `answer.rs` and `handshake.rs`.

mod aggregate;
pub(crate) mod answer;
mod carrying;
pub(crate) mod cids;
mod coupling;
mod datagrams;
mod draft;
mod event;
mod fragment;
pub(crate) mod handshake;
pub(crate) mod initiate;
pub(crate) mod labels;
mod migration;
mod noted;
mod receive;
mod rekey;
mod schedule;
mod sizes;
mod target;
mod transmit;

use crate::config::NodeConfig;
use crate::crypto::{LinkKeys, PublicKey};
use crate::deadlines::Deadlines;
use crate::error::{CloseReason, Code, Layer};
use crate::flow::SendContext;
use crate::flows::Flows;
use crate::ids::{FlowLabel, LinkId, PathId, Seq};
use crate::neighbour::Neighbour;
use crate::path::{Address, Fates, Path, PathState};
use crate::redundancy::LossEstimate;
use crate::session::CONTROL_INDEX;
use crate::shared::Shared;
use crate::stats::{FlowTotals, LinkStats, SpanStats};
use crate::switch::{self, Mechanism};
use crate::trace::Tracer;
use crate::units::{Bandwidth, Duration, Ecn, Probability, Time};
use crate::wire::params::Params;
use cids::Cids;
pub(crate) use datagrams::DATAGRAM_ROOM;
pub(crate) use event::LinkEvent;
use handshake::Handshake;
use labels::Labels;
pub(crate) use receive::{MOST_NEW_PARTS, Reading};
use schedule::Schedule;
use std::collections::{BTreeMap, BTreeSet, VecDeque};

/// How long the end of a link is repeated to a neighbour that keeps sending, in PTOs (RFC 9000 §10.2).
const DRAIN_PTOS: u32 = 3;
/// CLOSE that leave one behind the other: a process that ends has no time to answer a neighbour that has heard none, and would leave it waiting for 30 s.
const CLOSE_COPIES: u8 = 3;
/// However short an interval is asked for.
const SHORTEST_KEEP_ALIVE: Duration = Duration::from_millis(100);
/// A neighbour that owes answers for so long, and for three probes, is silent: routes prefer others.
const SILENCE: Duration = Duration::from_millis(500);

/// Where a link is in its life.
#[derive(Debug)]
pub(crate) enum LinkState {
    /// Keys are being agreed.
    Handshaking(Handshake),
    /// Usable.
    Up,
    /// Closed here: CLOSE is repeated to a neighbour that keeps sending until the deadline; so many are due now.
    Closing { until: Time, reason: CloseReason, due: u8 },
    /// Nothing more is sent or expected.
    Closed,
}

/// Link-level control frames that wait to be sent.
#[derive(Debug, Clone)]
pub(crate) enum Control {
    Ping,
    NewConnectionId(u64),
    RetireConnectionId(u64),
    PathResponse(PathId, [u8; 8]),
    /// The last CREDIT of a flow that was received whole.
    FlowDone {
        flow: FlowLabel,
        end: Seq,
    },
    FlowRefused {
        flow: FlowLabel,
        base: u64,
        reason: u64,
    },
    FlowReset {
        flow: FlowLabel,
        reason: u64,
    },
    FlowStop {
        flow: FlowLabel,
        reason: u64,
    },
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum TimerKey {
    Out(FlowLabel),
    In(FlowLabel),
}

/// A link. See the module's documentation.
#[derive(Debug)]
pub(crate) struct Link {
    pub(crate) id: LinkId,
    pub(crate) state: LinkState,
    pub(crate) peer: Option<PublicKey>,
    pub(crate) paths: BTreeMap<PathId, Box<Path>>,
    pub(crate) cids: Cids,
    plans: aggregate::Plans,
    /// Rate that the application was last told to produce.
    told_rate: Option<Bandwidth>,
    coupling: coupling::Coupling,
    pub(crate) keys: Option<Box<LinkKeys>>,
    pub(crate) labels: Labels,
    pub(crate) events: VecDeque<LinkEvent>,
    pub(crate) peer_params: Params,
    pub(crate) opened_at: Time,
    pub(crate) is_initiator: bool,
    /// It ends when the far end has answered: whether it does was the question.
    pub(crate) is_question: bool,
    /// Where events of the link go.
    pub(crate) trace: Tracer,
    /// Key generation that the trace was told last.
    traced_generation: u64,
    /// The owner was told that the link is up.
    pub(crate) was_up: bool,
    /// Waits in the node's ring of links that may have something to send.
    pub(crate) is_ready: bool,
    /// FINISH, until the responder is heard.
    finish_packet: Option<Vec<u8>>,
    /// Initiator: when to show ourselves to the responder again, as long as it was not heard.
    confirmation: Option<handshake::Confirmation>,
    /// Initiator: a responder that was not heard by then is not there.
    confirm_by: Option<Time>,
    schedule: Schedule,
    /// Of the flows that wait for their turn, those with a backlog, and those with something that was never sent.
    backlog: noted::Noted,
    fresh: noted::Noted,
    /// Flows that have something in flight: a tail probe is one of theirs.
    probing: BTreeSet<FlowLabel>,
    /// Data flows that come in and are not complete.
    coming: noted::Noted,
    /// Flows with proactive repair to spend spare rate on.
    proactive: VecDeque<FlowLabel>,
    /// Transparent flows with messages to send.
    datagrams: VecDeque<FlowLabel>,
    /// When a datagram last asked for an acknowledgement.
    datagram_asked_at: Time,
    /// Incoming flows that may have CREDIT or RANK to send.
    reports: VecDeque<FlowLabel>,
    control: VecDeque<Control>,
    /// The node was told that the neighbour is silent.
    pub(crate) is_silent: bool,
    timers: Deadlines<TimerKey>,
    /// Incoming flows that have not been looked at since packets came for them.
    held: receive::Touched,
    /// How gaps are acknowledged changes when the packet that is being read has been noted: those before a relayed flow's first packet are no news of it.
    is_urgency_due: Option<bool>,
    fates: Fates,
    fragments: fragment::Fragments,
    /// Second half of a coded packet whose first half was just sent (P5).
    pending_fragment: Option<(u64, Vec<u8>)>,
    /// A finished packet that did not fit into the train before it, its path, and the codepoint that it was numbered with.
    overlong: Option<(PathId, Ecn, Vec<u8>)>,
    last_heard: Time,
    last_sent: Time,
    /// Where the packet that is being read came from, if not from where its path leads.
    arriving: Option<Address>,
    /// When a bulk flow last sent.
    bulk_at: Option<Time>,
    handshake_packets: u64,
    handshake_time: Duration,
    undecryptable: u64,
    polluted: u64,
    /// What the data flows that are gone have counted.
    pub(crate) ended: FlowTotals,
    /// The same of flows that were relayed, span by span.
    pub(crate) spans: SpanStats,
    /// Key epoch of the newest packet sent.
    send_epoch: u64,
    epoch_log2: u8,
}

impl Link {
    pub(crate) fn new(id: LinkId, now: Time, state: LinkState) -> Self {
        Self {
            id,
            state,
            peer: None,
            paths: BTreeMap::new(),
            cids: Cids::default(),
            plans: aggregate::Plans::default(),
            told_rate: None,
            coupling: coupling::Coupling::default(),
            keys: None,
            labels: Labels::default(),
            events: VecDeque::new(),
            peer_params: Params::default(),
            opened_at: now,
            is_initiator: false,
            is_question: false,
            trace: Tracer::default(),
            traced_generation: 0,
            was_up: false,
            is_ready: false,
            finish_packet: None,
            confirmation: None,
            confirm_by: None,
            schedule: Schedule::default(),
            backlog: Default::default(),
            fresh: Default::default(),
            probing: BTreeSet::new(),
            coming: Default::default(),
            proactive: VecDeque::new(),
            datagrams: VecDeque::new(),
            datagram_asked_at: now,
            reports: VecDeque::new(),
            control: VecDeque::new(),
            is_silent: false,
            timers: Deadlines::new(),
            held: Default::default(),
            is_urgency_due: None,
            fates: Fates::default(),
            fragments: fragment::Fragments::default(),
            pending_fragment: None,
            overlong: None,
            last_heard: now,
            last_sent: now,
            arriving: None,
            bulk_at: None,
            handshake_packets: 0,
            handshake_time: Duration::ZERO,
            undecryptable: 0,
            polluted: 0,
            ended: FlowTotals::default(),
            spans: SpanStats::default(),
            send_epoch: 0,
            epoch_log2: 20,
        }
    }

    pub(crate) fn is_closed(&self) -> bool {
        matches!(self.state, LinkState::Closed)
    }

    pub(crate) fn is_usable(&self) -> bool {
        matches!(self.state, LinkState::Up | LinkState::Handshaking(_))
    }

    /// Keys are agreed.
    pub(crate) fn is_up(&self) -> bool {
        matches!(self.state, LinkState::Up)
    }

    pub(crate) fn pto(&self) -> Duration {
        self.paths.values().filter(|p| p.state() != PathState::Opening).map(|p| p.pto()).max().unwrap_or(Duration::from_secs(1))
    }

    /// What flow senders need to know of the path they go by.
    /// What is asked for rarely, and costs, is left for callers that ask: spare rate, slack, idle share.
    fn context(path: &Path) -> SendContext {
        let rtt = path.rtt_estimator();
        let loss = path.loss_stats();
        SendContext {
            rtt: rtt.smoothed(),
            rtt_var: rtt.var(),
            min_rtt: rtt.min(),
            loss: LossEstimate {
                mean: loss.mean,
                deviation: loss.deviation,
                burst_packets: loss.burst_packets.max(1.0),
                burst: loss.burst_duration,
            },
            gap: path.pacing_rate().map_or(Duration::ZERO, |rate| rate.time_for(u64::from(path.datagram_size()))),
            spare: false,
            idle_share: Probability::ONE,
            heard: loss.packets,
            slack: false,
            uncontrolled: path.is_uncontrolled(),
        }
    }

    /// Queues a link control frame.
    pub(crate) fn send_control(&mut self, control: Control) {
        // Bounded: a neighbour that provokes answers faster than they leave loses the oldest refusals, which are repeated on demand.
        if self.control.len() < 1024 {
            self.control.push_back(control);
        }
    }

    /// Closes the link from here. Everything it carries ends.
    pub(crate) fn close(&mut self, now: Time, reason: CloseReason) {
        match self.state {
            LinkState::Up => {
                let until = now + self.pto() * DRAIN_PTOS;
                let due = if switch::is_off(Mechanism::CloseCopies) { 1 } else { CLOSE_COPIES };
                self.state = LinkState::Closing { until, reason: reason.clone(), due };
            }
            LinkState::Handshaking(_) => self.state = LinkState::Closed,
            LinkState::Closing { .. } | LinkState::Closed => return,
        }
        self.events.push_back(LinkEvent::Down(reason));
    }

    /// The neighbour closed, or is gone: nothing more is sent.
    fn die(&mut self, reason: CloseReason) {
        if matches!(self.state, LinkState::Closing { .. } | LinkState::Closed) {
            self.state = LinkState::Closed;
            return;
        }
        self.state = LinkState::Closed;
        self.events.push_back(LinkEvent::Down(reason));
    }

    /// Nobody is there any more, says the owner.
    pub(crate) fn abandon(&mut self, reason: CloseReason) {
        if matches!(self.state, LinkState::Up) {
            self.die(reason);
        }
    }

    /// `poll_timeout` came.
    pub(crate) fn handle_timeout(&mut self, now: Time, shared: &mut Shared) {
        match &mut self.state {
            LinkState::Closed => return,
            LinkState::Closing { until, due, .. } => {
                // An owner that comes late first takes what is still to be said, and with it this deadline is due again.
                if now >= *until && *due == 0 {
                    self.state = LinkState::Closed;
                }
                return;
            }
            LinkState::Handshaking(handshake) => {
                if let Some(reason) = handshake.handle_timeout(now, &shared.config) {
                    self.peer = handshake.wrong_key().or(self.peer);
                    self.die(reason);
                }
                return;
            }
            LinkState::Up => {}
        }
        if self.confirm_by.is_some_and(|t| now >= t) {
            // The answer to our first flight came, but nothing after it: the responder's half-open state may be gone.
            self.die(CloseReason::local(Code::Unreachable, Layer::Link, "the peer answered once and was not heard again"));
            return;
        }
        self.repeat_confirmation(now);
        if now >= self.idle_deadline(shared.config.idle_timeout) {
            let silent = now.since(self.last_heard).as_secs_f64();
            self.close(now, CloseReason::local(Code::IdleTimeout, Layer::Link, format!("nothing heard for {silent:.0} s")));
            self.state = LinkState::Closed;
            return;
        }
        if self.labels.is_used() {
            // P23: keep-alive only while something lives on the link.
            if now >= self.keepalive_deadline(&shared.config) {
                self.send_control(Control::Ping);
                // A path beside the one that the PING goes by is forgotten by NATs as well.
                if self.paths.len() > 1 {
                    self.paths.values_mut().for_each(|p| p.want_probe());
                }
                self.last_sent = now;
            }
        }
        let mut fates = core::mem::take(&mut self.fates);
        self.paths.values_mut().for_each(|path| path.handle_timeout(now, &mut fates));
        let mut used = self.paths.values().filter(|p| p.state() != PathState::Opening).peekable();
        let is_broken = used.peek().is_some() && used.all(|p| p.is_circuit_open(now));
        self.dispatch_fates(now, &mut fates, &mut shared.flows);
        self.fates = fates;
        if is_broken {
            self.close(now, CloseReason::local(Code::CircuitBreaker, Layer::Link, "data was sent but nothing came back"));
            return;
        }
        self.watch_paths(now, &mut shared.flows);
        self.watch_silence(now);
        self.run_flow_timers(now, &mut shared.flows);
        self.drive_rekey(now, shared);
    }

    /// Tells the node when the neighbour falls silent, and when it is heard again.
    pub(crate) fn watch_silence(&mut self, now: Time) {
        let mut used = self.paths.values().filter(|p| p.state() != PathState::Opening).peekable();
        let is_silent = used.peek().is_some() && used.all(|p| p.is_unanswered(now, SILENCE));
        if core::mem::replace(&mut self.is_silent, is_silent) != is_silent {
            self.events.push_back(LinkEvent::Silence);
        }
    }

    /// When `handle_timeout` wants to be called.
    pub(crate) fn poll_timeout(&self, shared: &Shared) -> Option<Time> {
        match &self.state {
            LinkState::Closed => None,
            LinkState::Closing { until, .. } => Some(*until),
            LinkState::Handshaking(handshake) => handshake.poll_timeout(&shared.config),
            LinkState::Up => {
                let mut next = self.idle_deadline(shared.config.idle_timeout);
                if self.labels.is_used() {
                    next = next.min(self.keepalive_deadline(&shared.config));
                }
                for path in self.paths.values() {
                    if let Some(t) = path.poll_timeout() {
                        next = next.min(t);
                    }
                }
                if let Some(t) = self.timers.earliest() {
                    next = next.min(t);
                }
                if let Some(t) = self.plans.watch_at {
                    next = next.min(t);
                }
                if let Some(t) = self.keys.as_ref().and_then(|k| k.poll_timeout()) {
                    next = next.min(t);
                }
                [self.confirm_by, self.confirmation.as_ref().map(|c| c.at)].into_iter().flatten().for_each(|t| next = next.min(t));
                Some(next)
            }
        }
    }

    fn idle_deadline(&self, idle: Duration) -> Time {
        // RFC 9000 §10.1: what both sides can live with, but never below three PTOs.
        self.last_heard + idle.min(self.peer_params.idle_timeout).max(self.pto() * 3)
    }

    fn keepalive_deadline(&self, config: &NodeConfig) -> Time {
        if switch::is_off(Mechanism::KeepAlive) {
            return Time::MAX;
        }
        let longest = config.idle_timeout.min(self.peer_params.idle_timeout) / 3;
        // What was heard was not sent: a NAT on the path needs packets from both sides.
        let since = if config.keep_alive.is_some() { self.last_sent } else { self.last_sent.max(self.last_heard) };
        since + config.keep_alive.unwrap_or(longest).min(longest).max(SHORTEST_KEEP_ALIVE)
    }

    /// A snapshot.
    pub(crate) fn stats(&self, flows: &Flows) -> LinkStats {
        LinkStats {
            paths: self.paths.values().map(|p| p.stats()).collect(),
            undecryptable: self.undecryptable,
            polluted: self.polluted,
            is_plaintext: self.keys.as_ref().is_some_and(|k| k.is_plaintext()),
            key_generation: self.keys.as_ref().map_or(0, |k| k.generation()),
            key_epoch: self.send_epoch,
            handshake_packets: self.handshake_packets,
            handshake_time: self.handshake_time,
            flows: {
                let mut totals = self.ended.clone();
                self.add_flows(&mut totals, flows);
                totals
            },
            // The node adds those of flows that still pass.
            spans: self.spans.clone(),
        }
    }

    /// Adds the data flows that it carries.
    fn add_flows(&self, totals: &mut FlowTotals, flows: &Flows) {
        let out = self.labels.all_out().filter_map(|(_, id)| flows.out(id)).filter(|f| f.open.index != CONTROL_INDEX);
        out.for_each(|f| totals.add(true, &f.stats()));
        let incoming = self.labels.all_in().filter_map(|(_, id)| flows.incoming(id)).filter(|f| f.open.index != CONTROL_INDEX);
        incoming.for_each(|f| totals.add(false, &f.stats()));
    }

    /// Whose share pays for what comes by it.
    pub(crate) fn neighbour(&self) -> Neighbour {
        self.peer.map_or(Neighbour::Link(self.id), Neighbour::Key)
    }

    /// Smallest round trip of its paths in their windows.
    pub(crate) fn min_rtt(&self) -> Duration {
        self.paths.values().map(|p| p.rtt_estimator().min()).min().unwrap_or(Duration::ZERO)
    }

    /// Largest symbol of a relayed flow that needs no cutting on this link.
    pub(crate) fn fits(&self, batch_size: u8, shared: &Shared) -> u16 {
        let ceiling = shared.config.max_datagram.min(self.peer_params.max_datagram);
        let datagram = self.paths.values().map(|p| p.likely_size()).max().unwrap_or(ceiling);
        let header = draft::relayed_header(batch_size, Seq(1 << 29)) as u16;
        datagram.saturating_sub(draft::PACKET_OVERHEAD + header)
    }

    /// Gaps are acknowledged at once while a flow comes in for which time counts (P8).
    pub(crate) fn set_ack_urgency(&mut self) {
        if let Some(is_due) = &mut self.is_urgency_due {
            *is_due = true;
            return;
        }
        let is_urgent = self.labels.has_urgent();
        for path in self.paths.values_mut() {
            path.set_immediate_acks(is_urgent);
        }
    }
}

/// Largest symbol that a packet takes, for flows that open now.
pub(crate) fn symbol_ceiling(config: &NodeConfig) -> u16 {
    config.max_datagram.saturating_sub(draft::PACKET_OVERHEAD + draft::MIN_CODED_HEADER)
}

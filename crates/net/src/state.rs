//! What an endpoint keeps about its links, sessions and flows, and how the node's events reach the tasks that wait for them.

use crate::backlog::Backlog;
use crate::events::{LinkEvent, Readers};
use crate::links::{LinkEntry, Links};
use crate::route::Route;
use crate::sockets::Sockets;
use noctule_proto::Node;
use noctule_proto::crypto::PublicKey;
use noctule_proto::error::{CloseReason, Code, Layer};
use noctule_proto::event::{Event, SessionOutcome};
use noctule_proto::ids::{FlowId, LinkId, SessionId};
use noctule_proto::options::{FlowKind, FlowOptions};
use noctule_proto::stats::{FlowStats, FlowTotals, LinkStats};
use noctule_proto::units::{Bandwidth, Time};
use smallvec::SmallVec;
use std::collections::{BTreeSet, HashMap, VecDeque};
use std::net::SocketAddr;
use std::sync::Arc;
use std::task::Waker;
use std::time::Duration;
use tokio::sync::Notify;

/// How long the end that did not begin a graceful close keeps the link afterwards, so that its last word can be repeated.
const CLOSED_LINK_GRACE: Duration = Duration::from_secs(1);

/// Tasks that wait for one thing. A task that waits twice is kept once.
#[derive(Debug, Default)]
pub(crate) struct Wakers(SmallVec<[Waker; 1]>);

impl Wakers {
    pub(crate) fn add(&mut self, waker: &Waker) {
        if !self.0.iter().any(|w| w.will_wake(waker)) {
            self.0.push(waker.clone());
        }
    }
}

/// Tasks to be woken once the lock is free.
pub(crate) type Woken = SmallVec<[Waker; 4]>;

#[derive(Debug)]
pub(crate) struct SessionEntry {
    pub(crate) link: LinkId,
    pub(crate) peer: PublicKey,
    /// The far end's address when it opened the session: a far end that leaves at once has no path any more when it is accepted.
    pub(crate) came_from: Option<SocketAddr>,
    pub(crate) outcome: Option<SessionOutcome>,
    /// This end has begun to close it, with this code and reason.
    pub(crate) closing: Option<(u64, String)>,
    /// Nobody holds a handle any more.
    pub(crate) is_orphan: bool,
    /// Flows that the far end opened and nobody has accepted yet.
    pub(crate) incoming: VecDeque<FlowId>,
    /// Every flow of the session that has an entry.
    pub(crate) flows: BTreeSet<FlowId>,
    pub(crate) accept_wakers: Wakers,
    pub(crate) close_wakers: Wakers,
    /// The far end has taken the session; it may not have heard of it, or not have decided yet.
    pub(crate) is_confirmed: bool,
    /// The last known state of the link, for callers that ask after it is gone.
    pub(crate) last_stats: Option<LinkStats>,
    /// What the session's flows counted when it ended.
    pub(crate) last_totals: FlowTotals,
    pub(crate) readers: Readers,
    /// The flow of bare datagrams that this end opened.
    pub(crate) datagrams_out: Option<FlowId>,
    /// That of the far end.
    pub(crate) datagrams_in: Option<FlowId>,
}

#[derive(Debug)]
pub(crate) struct FlowEntry {
    pub(crate) session: SessionId,
    pub(crate) options: FlowOptions,
    pub(crate) is_sender: bool,
    /// Receiving half: the far end finished and everything was read.
    pub(crate) is_finished: bool,
    /// Sending half: the far end has everything.
    pub(crate) is_delivered: bool,
    pub(crate) closed: Option<CloseReason>,
    /// Sending half of a bidirectional stream: the far end's answer, once it came.
    pub(crate) answer: Answer,
    pub(crate) wakers: Wakers,
    pub(crate) last_stats: FlowStats,
}

/// A link goes on from another port.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Detour {
    pub(crate) link: LinkId,
    pub(crate) remote: SocketAddr,
    /// From a fresh one; otherwise from the endpoint's own again.
    pub(crate) is_fresh: bool,
}

/// The flow back of a stream that this end opened.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Answer {
    /// None is expected.
    None,
    /// Has not come yet.
    Awaited,
    /// Not wanted any more: stop it with this code when it comes.
    Unwanted(u64),
    /// Came.
    Here(FlowId),
}

/// See the file's heading.
pub(crate) struct EndpointState {
    pub(crate) node: Node,
    pub(crate) links: Links,
    pub(crate) sessions: HashMap<SessionId, SessionEntry>,
    pub(crate) flows: HashMap<FlowId, FlowEntry>,
    pub(crate) incoming: Backlog,
    /// Links that neighbours opened and nobody has taken yet; filled only once they are asked for.
    pub(crate) incoming_links: VecDeque<LinkId>,
    pub(crate) takes_links: bool,
    /// Links that were refused, until they are asked for; the newest few.
    pub(crate) refusals: VecDeque<Refusal>,
    pub(crate) accept_wakers: Wakers,
    pub(crate) idle_wakers: Wakers,
    /// The endpoint was closed, or its driver is gone: nothing new begins.
    pub(crate) closed: Option<CloseReason>,
    /// No handle of the endpoint is left.
    pub(crate) is_orphan: bool,
    accepts: bool,
    woken: Woken,
    driver: Option<Waker>,
    /// The driver will look at the node again without being woken.
    is_kicked: bool,
    /// There is no driver any more.
    is_driverless: bool,
    /// Sessions by the link that they began on.
    sessions_of: BTreeSet<(LinkId, SessionId)>,
    /// The driver is to go on with this one.
    pub(crate) new_sockets: Option<Sockets>,
    /// Links that are to go on from another port of this host, and where they lead; see `watch.rs`.
    pub(crate) detours: Vec<Detour>,
    trouble: Arc<Notify>,
}

/// Refusals that wait to be asked for.
const MOST_REFUSALS: usize = 16;

/// A link that was refused to a caller that has shown its key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Refusal {
    /// The caller's static key.
    pub peer: PublicKey,
    /// Where it called from.
    pub remote: SocketAddr,
    /// `NotAuthorised`: the key is not among those that may call. `TooMany`: there is no place for another link.
    pub reason: Code,
    /// Refusals before this one that are told nowhere: one a second is told, and sixteen at once.
    pub left_out: u64,
}

/// The outcome of a session whose end nobody could negotiate.
pub(crate) fn lost(reason: CloseReason) -> SessionOutcome {
    SessionOutcome { reason, all_delivered: false, all_received: false }
}

impl EndpointState {
    pub(crate) fn new(node: Node, accepts: bool, backlog: Backlog, trouble: Arc<Notify>) -> Self {
        Self {
            node,
            links: Links::default(),
            sessions: HashMap::new(),
            flows: HashMap::new(),
            incoming: backlog,
            incoming_links: VecDeque::new(),
            takes_links: false,
            refusals: VecDeque::new(),
            accept_wakers: Wakers::default(),
            idle_wakers: Wakers::default(),
            closed: None,
            is_orphan: false,
            accepts,
            woken: Woken::new(),
            driver: None,
            is_kicked: true,
            is_driverless: false,
            sessions_of: BTreeSet::new(),
            new_sockets: None,
            detours: Vec::new(),
            trouble,
        }
    }

    // --- tasks -----------------------------------------------------------------------------------------------------------------

    pub(crate) fn take_woken(&mut self) -> Woken {
        std::mem::take(&mut self.woken)
    }

    fn wake(woken: &mut Woken, wakers: &mut Wakers) {
        woken.extend(wakers.0.drain(..));
    }

    /// The driver must look at the node: there may be something to send, or an earlier deadline.
    pub(crate) fn kick(&mut self) {
        if !self.is_kicked {
            self.is_kicked = true;
            self.woken.extend(self.driver.clone());
        }
    }

    /// The driver starts to look; a kick from now on only raises the flag.
    pub(crate) fn driver_looks(&mut self) {
        self.is_kicked = true;
    }

    /// The driver has seen everything and will sleep until it is woken.
    pub(crate) fn driver_sleeps(&mut self, waker: &Waker) {
        self.is_kicked = false;
        if self.is_idle() {
            Self::wake(&mut self.woken, &mut self.idle_wakers);
        }
        if !self.driver.as_ref().is_some_and(|w| w.will_wake(waker)) {
            self.driver = Some(waker.clone());
        }
    }

    pub(crate) fn wait_for_flow(&mut self, flow: FlowId, waker: &Waker) {
        if let Some(entry) = self.flows.get_mut(&flow) {
            entry.wakers.add(waker);
        }
    }

    fn wake_flow(&mut self, flow: FlowId) {
        if let Some(entry) = self.flows.get_mut(&flow) {
            Self::wake(&mut self.woken, &mut entry.wakers);
        }
    }

    // --- events ----------------------------------------------------------------------------------------------------------------

    /// Drains the node's events into the entries and wakes the tasks that they concern.
    pub(crate) fn dispatch(&mut self, now: Time) {
        while let Some(event) = self.node.poll_event() {
            self.on_event(now, event);
        }
    }

    /// From now on links that neighbours open are told; those that are up already are the first.
    pub(crate) fn take_links(&mut self) {
        if core::mem::replace(&mut self.takes_links, true) {
            return;
        }
        let is_theirs = |entry: &LinkEntry| !entry.is_ours && !entry.is_watched && entry.up.is_some() && entry.down.is_none();
        let mut links: Vec<LinkId> = self.links.iter().filter(|(_, entry)| is_theirs(entry)).map(|(id, _)| id).collect();
        links.sort_unstable();
        self.incoming_links.extend(links);
    }

    fn on_event(&mut self, now: Time, event: Event) {
        match event {
            Event::LinkUp { link, peer } => {
                let (is_incoming, entry) = self.links.heard(link, peer);
                self.trouble.notify_one();
                Self::wake(&mut self.woken, &mut entry.wakers);
                // Links without an owner are bounded by the node's own limit.
                if is_incoming && self.takes_links {
                    self.incoming_links.push_back(link);
                    Self::wake(&mut self.woken, &mut self.accept_wakers);
                }
            }
            Event::LinkSilent { link, is_silent } => {
                if let Some(entry) = self.links.get_mut(link) {
                    entry.silent_since = is_silent.then_some(now);
                    self.trouble.notify_one();
                }
                self.tell_link(link, &if is_silent { LinkEvent::Silent } else { LinkEvent::Heard });
            }
            Event::PathChanged { link, path, remote, state } => {
                self.tell_link(link, &LinkEvent::PathChanged { path, remote, state });
            }
            Event::TargetRate { link, rate } => self.tell_link(link, &LinkEvent::TargetRate(rate)),
            Event::LinkRefused { peer, remote, reason, left_out } => {
                let oldest = if self.refusals.len() >= MOST_REFUSALS { self.refusals.pop_front() } else { None };
                let left_out = left_out + oldest.map_or(0, |r| r.left_out + 1);
                self.refusals.push_back(Refusal { peer, remote, reason, left_out });
                Self::wake(&mut self.woken, &mut self.accept_wakers);
            }
            Event::LinkDown { link, reason, peer } => {
                if let Some(entry) = self.links.get_mut(link) {
                    entry.up = entry.up.or(peer);
                }
                self.on_link_down(link, reason);
            }
            Event::SessionIncoming { session, link, peer, .. } => self.on_session_incoming(now, session, link, peer),
            Event::SessionOpened { session } => {
                if let Some(entry) = self.sessions.get_mut(&session) {
                    entry.is_confirmed = true;
                    Self::wake(&mut self.woken, &mut entry.close_wakers);
                }
            }
            Event::SessionClosing { session, reason } => {
                if let Some(entry) = self.sessions.get_mut(&session) {
                    entry.readers.tell(&LinkEvent::Closing(reason), &mut self.woken);
                }
            }
            Event::SessionClosed { session, outcome, totals } => {
                if let Some(entry) = self.sessions.get_mut(&session) {
                    entry.last_totals = *totals;
                }
                self.on_session_closed(now, session, outcome);
            }
            Event::FlowIncoming { session, flow, options } => self.on_flow_incoming(now, session, flow, options),
            Event::FlowReadable(flow) | Event::FlowWritable(flow) => self.wake_flow(flow),
            Event::FlowFinished(flow) => {
                self.snapshot_flow(flow);
                if let Some(entry) = self.flows.get_mut(&flow) {
                    entry.is_finished = true;
                    // The node keeps a stream until its end is read; handles ask `is_finished` instead.
                    if entry.options.kind == FlowKind::Stream {
                        let _ = self.node.read(now, flow, 1);
                    }
                }
                self.wake_flow(flow);
            }
            Event::FlowDelivered(flow) => {
                if let Some(entry) = self.flows.get_mut(&flow) {
                    entry.is_delivered = true;
                }
                self.wake_flow(flow);
            }
            Event::FlowClosed { flow, reason } => {
                self.snapshot_flow(flow);
                if let Some(entry) = self.flows.get_mut(&flow) {
                    entry.closed.get_or_insert(reason);
                }
                self.wake_flow(flow);
            }
            _ => {}
        }
    }

    /// The rate that a session's application should produce; `None` if there is none to tell, or the session is over.
    pub(crate) fn target_rate(&self, session: SessionId) -> Option<Bandwidth> {
        let link = self.node.session_link(session).or_else(|| Some(self.sessions.get(&session)?.link))?;
        self.node.target_rate(link)
    }

    /// Tells the readers of a link, and of the sessions that run over it.
    fn tell_link(&mut self, link: LinkId, event: &LinkEvent) {
        if let Some(entry) = self.links.get_mut(link) {
            entry.readers.tell(event, &mut self.woken);
        }
        let mut on_it = self.node.sessions_over(link);
        // Relayed sessions may have changed links; those that the node does not know any more have not.
        on_it.extend(self.sessions_begun_on(link).filter(|id| self.node.session_link(*id).is_none()));
        for id in on_it {
            if let Some(entry) = self.sessions.get_mut(&id) {
                entry.readers.tell(event, &mut self.woken);
            }
        }
    }

    fn on_link_down(&mut self, link: LinkId, reason: CloseReason) {
        let Some(entry) = self.links.end(link, reason.clone()) else { return };
        entry.readers.tell(&LinkEvent::Closed(reason.clone()), &mut self.woken);
        Self::wake(&mut self.woken, &mut entry.wakers);
        if !entry.is_watched {
            self.links.remove(link);
        }
        // The node ends sessions before their link; this is for those that it never knew. Relayed ones live on and find another route.
        let is_left = |id: &SessionId| self.sessions.get(id).is_some_and(|s| s.outcome.is_none()) && self.node.session_link(*id).is_none();
        let left: SmallVec<[SessionId; 4]> = self.sessions_begun_on(link).filter(is_left).collect();
        for session in left {
            self.end_session(session, lost(reason.clone()));
        }
        self.wake_idle();
    }

    fn on_session_incoming(&mut self, now: Time, session: SessionId, link: LinkId, peer: PublicKey) {
        let refused = match &self.closed {
            Some(_) => Some((Code::Shutdown, "the endpoint is closing")),
            None if self.is_orphan || !self.accepts => Some((Code::Shutdown, "the endpoint does not accept sessions")),
            None if !self.incoming.push(session) => Some((Code::TooMany, "too many sessions are waiting to be accepted")),
            None => None,
        };
        let came_from = self.node.link_address(link).map(|(remote, _)| remote);
        self.add_session(session, link, peer);
        if let Some(entry) = self.sessions.get_mut(&session) {
            entry.came_from = came_from;
        }
        if let Some((code, text)) = refused {
            self.abandon_session(now, session, code as u64, text);
            return;
        }
        Self::wake(&mut self.woken, &mut self.accept_wakers);
    }

    fn on_session_closed(&mut self, now: Time, session: SessionId, outcome: SessionOutcome) {
        let Some(entry) = self.sessions.get(&session) else { return };
        let (link, closing) = (entry.link, entry.closing.clone());
        self.end_session(session, outcome);
        match closing {
            _ if !self.links.get(link).is_some_and(|l| l.is_ours) => {}
            // With the session's own words, for a far end that did not hear them.
            Some((code, reason)) => self.close_link(now, link, code, &reason),
            None => self.close_link_at(link, now + CLOSED_LINK_GRACE),
        }
        self.wake_idle();
    }

    fn end_session(&mut self, session: SessionId, outcome: SessionOutcome) {
        let flows: SmallVec<[FlowId; 8]> = match self.sessions.get(&session) {
            Some(entry) => entry.flows.iter().copied().collect(),
            None => return,
        };
        for flow in flows {
            self.snapshot_flow(flow);
            self.wake_flow(flow);
        }
        let Some(entry) = self.sessions.get_mut(&session) else { return };
        if let Some(stats) = self.node.link_stats(entry.link) {
            entry.last_stats = Some(stats);
        }
        let reason = entry.outcome.get_or_insert(outcome).reason.clone();
        entry.readers.tell(&LinkEvent::Closed(reason), &mut self.woken);
        Self::wake(&mut self.woken, &mut entry.accept_wakers);
        Self::wake(&mut self.woken, &mut entry.close_wakers);
        if entry.is_orphan {
            self.forget_session(session);
        }
    }

    fn on_flow_incoming(&mut self, now: Time, session: SessionId, flow: FlowId, options: FlowOptions) {
        let Some(entry) = self.sessions.get_mut(&session) else { return };
        let unwanted = entry.is_orphan;
        entry.flows.insert(flow);
        let answers = options.answers;
        self.flows.insert(flow, FlowEntry::new(session, options, false));
        let waiting = answers.and_then(|ours| self.flows.get_mut(&ours));
        match waiting {
            Some(ours) => match ours.answer {
                Answer::Awaited => {
                    ours.answer = Answer::Here(flow);
                    Self::wake(&mut self.woken, &mut ours.wakers);
                }
                Answer::Unwanted(code) => self.stop_flow(now, flow, code),
                // A second answer, or one to a flow that asked for none.
                Answer::None | Answer::Here(_) => self.stop_flow(now, flow, 0),
            },
            // The question was dropped in the meantime.
            None if answers.is_some() || unwanted => self.stop_flow(now, flow, 0),
            None => {
                if let Some(entry) = self.sessions.get_mut(&session) {
                    entry.incoming.push_back(flow);
                    Self::wake(&mut self.woken, &mut entry.accept_wakers);
                }
            }
        }
    }

    /// What waits for idleness is told when the driver goes to sleep: then the last packets are in flight.
    fn wake_idle(&mut self) {
        if self.is_idle() {
            self.kick();
        }
    }

    // --- commands of the handles -----------------------------------------------------------------------------------------------

    /// Nothing is alive: no link, so no session either.
    pub(crate) fn is_idle(&self) -> bool {
        self.links.is_idle()
    }

    /// Nothing is alive, and what there was to say about it has been sent.
    pub(crate) fn is_settled(&self) -> bool {
        self.is_idle() && (!self.is_kicked || self.is_driverless)
    }

    /// Enters a session.
    pub(crate) fn add_session(&mut self, session: SessionId, link: LinkId, peer: PublicKey) {
        self.sessions_of.insert((link, session));
        self.sessions.insert(session, SessionEntry::new(link, peer));
    }

    fn sessions_begun_on(&self, link: LinkId) -> impl Iterator<Item = SessionId> {
        self.sessions_of.range((link, SessionId(0))..=(link, SessionId(u64::MAX))).map(|(_, id)| *id)
    }

    /// Enters a flow that this end opened.
    pub(crate) fn add_flow(&mut self, session: SessionId, flow: FlowId, options: FlowOptions) {
        let mut entry = FlowEntry::new(session, options, true);
        if entry.options.bidirectional {
            entry.answer = Answer::Awaited;
        }
        self.flows.insert(flow, entry);
        if let Some(session) = self.sessions.get_mut(&session) {
            session.flows.insert(flow);
        }
    }

    /// The handle of a sending half is gone: nothing more follows.
    pub(crate) fn drop_sender(&mut self, now: Time, flow: FlowId, is_finished: bool) {
        if !is_finished && self.flows.get(&flow).is_some_and(|f| f.closed.is_none()) {
            // Refused only if the flow is gone already.
            let _ = self.node.finish(now, flow);
        }
        // A stream's flow back is looked up through the flow there, so that entry stays as long as an answer may come.
        match self.flows.get(&flow).map(|f| f.answer) {
            Some(Answer::Awaited) => {}
            _ => self.forget_flow(flow),
        }
        self.kick();
    }

    /// The handle of a receiving half is gone: no more is wanted.
    pub(crate) fn stop_flow(&mut self, now: Time, flow: FlowId, code: u64) {
        if self.flows.get(&flow).is_some_and(|f| f.closed.is_none() && !f.is_finished) {
            // Refused only if the flow is gone already.
            let _ = self.node.stop(now, flow, code);
        }
        self.forget_flow(flow);
        self.kick();
    }

    /// The flow back of `ours` is not wanted any more.
    pub(crate) fn stop_answer(&mut self, now: Time, ours: FlowId, code: u64) {
        let Some(entry) = self.flows.get_mut(&ours) else { return };
        match entry.answer {
            Answer::Here(flow) => self.stop_flow(now, flow, code),
            Answer::Awaited => entry.answer = Answer::Unwanted(code),
            Answer::None | Answer::Unwanted(_) => {}
        }
    }

    pub(crate) fn forget_flow(&mut self, flow: FlowId) {
        if let Some(entry) = self.flows.remove(&flow)
            && let Some(session) = self.sessions.get_mut(&entry.session)
        {
            session.flows.remove(&flow);
            session.incoming.retain(|f| *f != flow);
        }
    }

    /// Begins a graceful close; nothing happens if one is under way.
    pub(crate) fn close_session(&mut self, now: Time, session: SessionId, code: u64, reason: &str, linger: Duration) {
        let Some(entry) = self.sessions.get_mut(&session) else { return };
        if entry.outcome.is_some() {
            return;
        }
        entry.closing.get_or_insert_with(|| (code, reason.to_owned()));
        if let Err(error) = self.node.close_session(now, session, code, reason, linger) {
            // The node does not know it any more, so no event will tell.
            self.dispatch(now);
            self.end_session(session, lost(CloseReason::local(Code::UnknownSession, Layer::Session, error.to_string())));
        }
        self.kick();
    }

    /// The last handle of a session is gone.
    pub(crate) fn orphan_session(&mut self, now: Time, session: SessionId, linger: Duration) {
        let Some(entry) = self.sessions.get_mut(&session) else { return };
        entry.is_orphan = true;
        for flow in std::mem::take(&mut entry.incoming) {
            self.stop_flow(now, flow, 0);
        }
        match self.sessions.get(&session) {
            Some(entry) if entry.outcome.is_some() => self.forget_session(session),
            Some(entry) if entry.closing.is_none() => self.close_session(now, session, 0, "", linger),
            _ => {}
        }
    }

    fn abandon_session(&mut self, now: Time, session: SessionId, code: u64, reason: &str) {
        if let Some(entry) = self.sessions.get_mut(&session) {
            entry.is_orphan = true;
        }
        self.close_session(now, session, code, reason, Duration::ZERO);
    }

    fn forget_session(&mut self, session: SessionId) {
        if let Some(entry) = self.sessions.remove(&session) {
            self.sessions_of.remove(&(entry.link, session));
            for flow in entry.flows {
                self.flows.remove(&flow);
            }
        }
        self.incoming.remove(session);
    }

    // --- links -----------------------------------------------------------------------------------------------------------------

    pub(crate) fn close_link_at(&mut self, link: LinkId, at: Time) {
        if self.links.close_at(link, at) {
            self.kick();
        }
    }

    /// The earliest instant at which a link is to be taken down.
    pub(crate) fn next_link_close(&self) -> Option<Time> {
        self.links.next_close()
    }

    /// Takes down the links whose time has come.
    pub(crate) fn close_due_links(&mut self, now: Time) {
        while let Some(link) = self.links.pop_due(now) {
            self.close_link(now, link, 0, "");
        }
    }

    /// Ends a link at once.
    pub(crate) fn close_link(&mut self, now: Time, link: LinkId, code: u64, reason: &str) {
        let result = self.node.close_link(now, link, code, reason);
        self.dispatch(now);
        if self.links.get(link).is_some_and(|l| l.down.is_none()) {
            // Either the node does not know it, or it tells later; nobody needs to wait for that.
            let mut why = CloseReason::application(code, reason);
            if result.is_err() {
                why = CloseReason::local(Code::Internal, Layer::Link, "the link is gone");
            }
            self.on_link_down(link, why);
        }
        self.kick();
    }

    /// Ends a link without a word: nobody is there to hear it.
    pub(crate) fn abandon_link(&mut self, now: Time, link: LinkId, why: CloseReason) {
        self.node.abandon_link(now, link, why);
        self.dispatch(now);
        self.kick();
    }

    /// The node learns how large datagrams to an address may be. A path into the own tunnel says nothing of the one below it, which the node's own
    /// packets take.
    pub(crate) fn tell_size(&mut self, now: Time, route: Option<Route>, remote: SocketAddr) {
        let below = route.filter(|route| !self.node.has_address(route.source));
        if let Some(size) = below.and_then(|route| route.datagram(remote)) {
            self.node.on_route_size(now, remote.ip(), size);
        }
    }

    /// The own system refuses to send there: attempts that nobody has answered end with its words.
    pub(crate) fn on_refused(&mut self, remote: SocketAddr, errno: i32) {
        for entry in self.links.values_mut().filter(|l| l.remote == Some(remote) && l.up.is_none() && l.down.is_none()) {
            entry.refused.get_or_insert(errno);
            Self::wake(&mut self.woken, &mut entry.wakers);
        }
    }

    /// There is no driver any more.
    pub(crate) fn is_driverless(&self) -> bool {
        self.is_driverless
    }

    /// The driver is gone; nothing will be sent any more.
    pub(crate) fn driver_ends(&mut self) {
        self.is_driverless = true;
        self.trouble.notify_one();
        self.driver = None;
        Self::wake(&mut self.woken, &mut self.idle_wakers);
    }

    /// Ends everything: no handle will get anything more from this endpoint.
    pub(crate) fn shut_down(&mut self, now: Time, why: CloseReason) {
        self.closed.get_or_insert(why.clone());
        let sessions: SmallVec<[SessionId; 4]> = self.sessions.iter().filter(|(_, s)| s.outcome.is_none()).map(|(id, _)| *id).collect();
        for session in sessions {
            self.end_session(session, lost(why.clone()));
        }
        let links: SmallVec<[LinkId; 4]> = self.links.iter().filter(|(_, l)| l.down.is_none()).map(|(id, _)| id).collect();
        for link in links {
            self.close_link(now, link, why.application, why.reason.raw());
        }
        self.incoming.clear();
        Self::wake(&mut self.woken, &mut self.accept_wakers);
        self.wake_idle();
        self.kick();
    }

    // --- statistics ------------------------------------------------------------------------------------------------------------

    fn snapshot_flow(&mut self, flow: FlowId) {
        if let (Some(stats), Some(entry)) = (self.node.flow_stats(flow), self.flows.get_mut(&flow)) {
            entry.last_stats = stats;
        }
    }

    pub(crate) fn flow_stats(&self, flow: FlowId) -> FlowStats {
        self.node.flow_stats(flow).or_else(|| self.flows.get(&flow).map(|f| f.last_stats.clone())).unwrap_or_default()
    }
}

impl SessionEntry {
    fn new(link: LinkId, peer: PublicKey) -> Self {
        Self {
            link,
            peer,
            came_from: None,
            outcome: None,
            closing: None,
            is_orphan: false,
            incoming: VecDeque::new(),
            flows: BTreeSet::new(),
            accept_wakers: Wakers::default(),
            close_wakers: Wakers::default(),
            is_confirmed: false,
            last_stats: None,
            last_totals: FlowTotals::default(),
            readers: Readers::default(),
            datagrams_out: None,
            datagrams_in: None,
        }
    }
}

impl FlowEntry {
    fn new(session: SessionId, options: FlowOptions, is_sender: bool) -> Self {
        Self {
            session,
            options,
            is_sender,
            is_finished: false,
            is_delivered: false,
            closed: None,
            answer: Answer::None,
            wakers: Wakers::default(),
            last_stats: FlowStats::default(),
        }
    }
}

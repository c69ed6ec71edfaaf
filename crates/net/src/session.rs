//! A session with another node: where flows are opened and accepted.

use crate::datagram;
use crate::error::{ConnectError, OpenError, SessionClosed};
use crate::events::LinkEvents;
use crate::message::{MessageReceiver, MessageSender};
use crate::shared::Shared;
use crate::state::EndpointState;
use crate::stream::{RecvStream, SendStream};
use crate::target::TargetRates;
use noctule_proto::congestion::CongestionControl;
use noctule_proto::crypto::PublicKey;
use noctule_proto::error::{CloseReason, Code, Layer};
use noctule_proto::event::SessionOutcome;
use noctule_proto::ids::{FlowId, PathId, SessionId};
use noctule_proto::options::{FlowKind, FlowOptions};
use noctule_proto::stats::{FlowStats, FlowTotals, LinkStats, PathStats, RouteStats, SpanStats};
use noctule_proto::units::{Bandwidth, Time};
use std::future::poll_fn;
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;
use std::task::{Context, Poll, ready};
use std::time::Duration;

/// A session with another node. Clones are handles of the same session.
///
/// **Dropping** the last handle (those inside senders and receivers of the session count too) closes the session gracefully in the
/// background: what was finished is delivered, for at most the endpoint's [`linger`](crate::EndpointConfig::linger).
#[derive(Clone)]
pub struct Session {
    handle: Arc<Handle>,
}

/// What keeps a session alive.
pub(crate) struct Handle {
    pub(crate) shared: Arc<Shared>,
    pub(crate) session: SessionId,
    /// The far end's static key.
    peer: PublicKey,
}

/// A flow that the far end opened.
#[derive(Debug)]
#[non_exhaustive]
pub enum IncomingFlow {
    /// Messages, ordered or not.
    Messages(MessageReceiver),
    /// A byte stream; `send` is there if it is bidirectional.
    Stream {
        /// From the far end.
        recv: RecvStream,
        /// To the far end.
        send: Option<SendStream>,
    },
}

impl IncomingFlow {
    /// What the far end asked for.
    pub fn options(&self) -> &FlowOptions {
        match self {
            Self::Messages(recv) => recv.options(),
            Self::Stream { recv, .. } => recv.options(),
        }
    }
    /// The application's number for this flow.
    pub fn tag(&self) -> u64 {
        self.options().tag
    }
}

/// Statistics of a session.
#[derive(Clone, Debug, PartialEq)]
pub struct SessionStats {
    /// The link that the session runs over; the last known state of it once the session is closed.
    pub link: LinkStats,
    /// Further links over which flows of the session go that take several relayed routes at once.
    pub further: Vec<LinkStats>,
    /// Sums over the session's flows, those that ended included; as they were at its end once the session is closed.
    pub flows: FlowTotals,
}

impl SessionStats {
    /// The link's paths.
    pub fn paths(&self) -> &[PathStats] {
        &self.link.paths
    }

    /// The paths of all links that flows of the session go over.
    pub fn all_paths(&self) -> impl Iterator<Item = &PathStats> {
        std::iter::once(&self.link).chain(&self.further).flat_map(|link| &link.paths)
    }
}

/// Statistics of one flow of a session.
#[derive(Clone, Debug, PartialEq)]
pub struct FlowReport {
    /// Which flow.
    pub flow: FlowId,
    /// This end sends.
    pub is_sender: bool,
    /// How it was opened.
    pub options: FlowOptions,
    /// Counts on this side.
    pub stats: FlowStats,
}

impl Session {
    /// `peer`: the far end's static key.
    pub(crate) fn new(shared: Arc<Shared>, session: SessionId, peer: PublicKey) -> Self {
        Self { handle: Arc::new(Handle { shared, session, peer }) }
    }

    pub(crate) fn handle(&self) -> &Handle {
        &self.handle
    }

    /// Adds a path to the link that the session runs over: see [`Link::add_path`](crate::Link::add_path).
    ///
    /// # Errors
    /// As there; and over relays, where the link leads to the first of them only.
    pub fn add_path(&self, remote: Option<SocketAddr>, local: Option<IpAddr>) -> Result<PathId, OpenError> {
        let Handle { shared, session, .. } = &*self.handle;
        let (link, far) = {
            let state = shared.lock();
            (state.node.session_link(*session), state.node.session_far(*session))
        };
        match (link, far) {
            (_, Some(_)) => Err(OpenError::Misuse("the session is relayed: add the path to the link to the neighbour".into())),
            (None, None) => Err(OpenError::Misuse("the session is over".into())),
            (Some(link), None) => crate::link::add_path(shared, link, remote, local),
        }
    }

    /// How long the neighbour that the session's link leads to has said nothing although it was asked (half a second and several probes precede this);
    /// `None` while it answers, and when the session is over. Over relays that is the first of them.
    pub fn silence(&self) -> Option<Duration> {
        let Handle { shared, session, .. } = &*self.handle;
        let state = shared.lock();
        let link = state.links.get(state.node.session_link(*session)?)?;
        link.silent_since.filter(|_| link.down.is_none()).map(|since| state.now.since(since))
    }

    /// Opens a flow of messages towards the far end. Costs no round trip: the first message may be sent at once.
    ///
    /// # Errors
    /// The session is closed, has too many flows, or the options are not those of a message flow.
    pub fn open_messages(&self, options: FlowOptions) -> Result<MessageSender, OpenError> {
        if options.kind == FlowKind::Stream {
            return Err(OpenError::Misuse("open_messages was asked for a stream: use open_bi or open_uni".into()));
        }
        let flow = self.open(&options)?;
        Ok(MessageSender::new(Arc::clone(&self.handle), flow, options))
    }

    /// Opens a byte stream in both directions; costs no round trip, and the far end hears of it with the first bytes. `kind` and `bidirectional` of the options are
    /// set here.
    ///
    /// # Errors
    /// The session is closed, has too many flows, or the options do not fit a stream.
    pub fn open_bi(&self, options: FlowOptions) -> Result<(SendStream, RecvStream), OpenError> {
        let options = FlowOptions { kind: FlowKind::Stream, bidirectional: true, ..options };
        let flow = self.open(&options)?;
        let recv = RecvStream::awaited(Arc::clone(&self.handle), flow, options.clone());
        Ok((SendStream::new(Arc::clone(&self.handle), flow, options), recv))
    }

    /// Opens a byte stream towards the far end only.
    ///
    /// # Errors
    /// As [`open_bi`](Self::open_bi).
    pub fn open_uni(&self, options: FlowOptions) -> Result<SendStream, OpenError> {
        let options = FlowOptions { kind: FlowKind::Stream, bidirectional: false, ..options };
        let flow = self.open(&options)?;
        Ok(SendStream::new(Arc::clone(&self.handle), flow, options))
    }

    fn open(&self, options: &FlowOptions) -> Result<FlowId, OpenError> {
        if options.tag == datagram::TAG {
            return Err(OpenError::Misuse(format!("the tag {} belongs to send_datagram: choose a smaller one", datagram::TAG)));
        }
        let mut state = self.handle.shared.lock();
        let now = state.now;
        let session = self.handle.session;
        if let Some(closed) = state.session_closed(session) {
            return Err(closed.into());
        }
        match state.node.open_flow(now, session, options.clone()) {
            Ok(flow) => {
                state.add_flow(session, flow, options.clone());
                state.kick();
                Ok(flow)
            }
            Err(error) => Err(state.open_error(session, error)),
        }
    }

    /// The next flow that the far end opened, of any kind.
    ///
    /// # Cancel safety
    /// Dropping the future loses nothing. So with all calls that accept.
    ///
    /// # Errors
    /// The session is closed and every flow that came was accepted.
    pub async fn accept_flow(&self) -> Result<IncomingFlow, SessionClosed> {
        poll_fn(|cx| self.poll_accept_flow(cx)).await
    }

    /// The next flow of those whose options `wants` takes. Others wait for other calls: flows come in any order, since what opens one may be lost.
    ///
    /// # Errors
    /// As [`accept_flow`](Self::accept_flow).
    pub async fn accept_flow_if(&self, wants: impl Fn(&FlowOptions) -> bool) -> Result<IncomingFlow, SessionClosed> {
        poll_fn(|cx| self.poll_accept(cx, &wants)).await
    }

    /// The form of [`accept_flow`](Self::accept_flow) for tasks that poll.
    ///
    /// # Errors
    /// As there.
    pub fn poll_accept_flow(&self, cx: &mut Context<'_>) -> Poll<Result<IncomingFlow, SessionClosed>> {
        self.poll_accept(cx, |_| true)
    }

    /// The next byte stream in both directions that the far end opened. Flows of other kinds wait for their own calls.
    ///
    /// # Errors
    /// As [`accept_flow`](Self::accept_flow).
    pub async fn accept_bi(&self) -> Result<(SendStream, RecvStream), SessionClosed> {
        poll_fn(|cx| {
            loop {
                match ready!(self.poll_accept(cx, |o| o.kind == FlowKind::Stream && o.bidirectional))? {
                    IncomingFlow::Stream { recv, send: Some(send) } => return Poll::Ready(Ok((send, recv))),
                    // The session ended before the flow back was there; the next look says so.
                    other => drop(other),
                }
            }
        })
        .await
    }

    /// The next byte stream in one direction that the far end opened. Flows of other kinds wait for their own calls.
    ///
    /// # Errors
    /// As [`accept_flow`](Self::accept_flow).
    pub async fn accept_uni(&self) -> Result<RecvStream, SessionClosed> {
        poll_fn(|cx| {
            loop {
                if let IncomingFlow::Stream { recv, .. } = ready!(self.poll_accept(cx, |o| o.kind == FlowKind::Stream && !o.bidirectional))?
                {
                    return Poll::Ready(Ok(recv));
                }
            }
        })
        .await
    }

    /// The next flow of messages that the far end opened. Flows of other kinds wait for their own calls.
    ///
    /// # Errors
    /// As [`accept_flow`](Self::accept_flow).
    pub async fn accept_messages(&self) -> Result<MessageReceiver, SessionClosed> {
        poll_fn(|cx| {
            loop {
                if let IncomingFlow::Messages(recv) = ready!(self.poll_accept(cx, |o| o.kind != FlowKind::Stream))? {
                    return Poll::Ready(Ok(recv));
                }
            }
        })
        .await
    }

    /// The next flow that `wants` takes, if it is here; those that carry datagrams are left to `recv_datagram`.
    fn poll_accept(&self, cx: &mut Context<'_>, wants: impl Fn(&FlowOptions) -> bool) -> Poll<Result<IncomingFlow, SessionClosed>> {
        let Handle { shared, session, .. } = &*self.handle;
        shared.poll_state(
            cx,
            |state, now| loop {
                let Some((flow, options)) = take_incoming(state, *session, &wants) else {
                    return state.session_closed(*session).map(Err);
                };
                if let Some(flow) = self.accepted_flow(state, now, flow, options) {
                    return Some(Ok(flow));
                }
            },
            |state| state.sessions.get_mut(session).map(|s| &mut s.accept_wakers),
        )
    }

    /// The handles of a flow that was taken; `None` if it cannot be answered.
    fn accepted_flow(&self, state: &mut EndpointState, now: Time, flow: FlowId, options: FlowOptions) -> Option<IncomingFlow> {
        let session = self.handle.session;
        if options.kind != FlowKind::Stream {
            return Some(IncomingFlow::Messages(MessageReceiver::new(Arc::clone(&self.handle), flow, options)));
        }
        let mut send = None;
        if options.bidirectional {
            let back = FlowOptions { answers: Some(flow), bidirectional: false, ..options.clone() };
            match state.node.open_flow(now, session, back.clone()) {
                Ok(id) => {
                    state.add_flow(session, id, back.clone());
                    state.kick();
                    send = Some(SendStream::new(Arc::clone(&self.handle), id, back));
                }
                Err(_) if state.session_closed(session).is_some() => {}
                // No flow left for the flow back: half a conversation is worse than a clear refusal.
                Err(_) => {
                    state.stop_flow(now, flow, 0);
                    return None;
                }
            }
        }
        Some(IncomingFlow::Stream { recv: RecvStream::here(Arc::clone(&self.handle), flow, options), send })
    }

    /// Waits until the far end has taken this session, which [`connect`](crate::Endpoint::connect) has done already and
    /// [`connect_early`](crate::Endpoint::connect_early) has not.
    ///
    /// # Errors
    /// The far end declined, for instance because it does not know this node's key; or it fell silent before it answered.
    pub async fn accepted(&self) -> Result<(), ConnectError> {
        let Handle { shared, session, .. } = &*self.handle;
        poll_fn(|cx| {
            shared.poll_state(
                cx,
                |state, _| match (state.session_closed(*session), state.sessions.get(session)) {
                    // One that was taken and then ended well was taken.
                    (Some(closed), entry) if !(entry.is_some_and(|s| s.is_confirmed) && closed.0.reason.is_clean()) => {
                        let remote = entry.and_then(|s| state.links.get(s.link)?.remote).unwrap_or_else(|| shared.bound().local());
                        Some(Err(ConnectError::from_reason(closed.0.reason, remote, entry.map(|s| s.peer), None)))
                    }
                    (Some(_), _) => Some(Ok(())),
                    (None, entry) => entry.is_some_and(|s| s.is_confirmed).then_some(Ok(())),
                },
                |state| state.sessions.get_mut(session).map(|s| &mut s.close_wakers),
            )
        })
        .await
    }

    /// Closes gracefully: what was written to `brtp` flows and finished is delivered first, for at most the endpoint's linger. Resolves
    /// when the session is over and says whether everything arrived. The close goes on if the future is dropped.
    pub async fn close(&self, code: u64, reason: &str) -> SessionOutcome {
        self.close_within(code, reason, self.handle.shared.linger).await
    }

    /// Like [`close`](Self::close), with a linger of its own.
    pub async fn close_within(&self, code: u64, reason: &str, linger: Duration) -> SessionOutcome {
        {
            let mut state = self.handle.shared.lock();
            let now = state.now;
            state.close_session(now, self.handle.session, code, reason, linger);
        }
        self.closed().await
    }

    /// Ends the session at once; what is undelivered is lost.
    pub fn abort(&self, code: u64, reason: &str) {
        let mut state = self.handle.shared.lock();
        let now = state.now;
        state.close_session(now, self.handle.session, code, reason, Duration::ZERO);
    }

    /// Changes the congestion control of what this side sends over the session's link, which starts afresh with it.
    pub fn set_congestion(&self, congestion: CongestionControl) {
        let mut state = self.handle.shared.lock();
        let now = state.now;
        if let Some(link) = state.sessions.get(&self.handle.session).map(|s| s.link) {
            // Refused only if the link is gone, and then nothing is sent any more.
            let _ = state.node.set_congestion(now, link, congestion);
            state.kick();
        }
    }

    /// Waits until the session is over, whichever end ended it, and says how it ended.
    pub async fn closed(&self) -> SessionOutcome {
        let Handle { shared, session, .. } = &*self.handle;
        poll_fn(|cx| {
            shared.poll_state(
                cx,
                |state, _| state.session_closed(*session).map(|c| c.0),
                |state| state.sessions.get_mut(session).map(|s| &mut s.close_wakers),
            )
        })
        .await
    }

    /// How the session ended, if it did.
    pub fn close_reason(&self) -> Option<CloseReason> {
        self.handle.shared.lock().session_closed(self.handle.session).map(|c| c.0.reason)
    }

    /// The far end's static key, authenticated by the handshake.
    pub fn peer_key(&self) -> PublicKey {
        self.handle.peer
    }

    /// What happens to the session from now on: paths that change, silence, the far end's close, the end.
    pub fn events(&self) -> LinkEvents {
        let Handle { shared, session, .. } = &*self.handle;
        let mut state = shared.lock();
        let queue = match state.session_closed(*session) {
            Some(closed) => Err(closed.0.reason),
            None => state
                .sessions
                .get_mut(session)
                .map(|entry| entry.readers.add())
                .ok_or_else(|| CloseReason::local(Code::UnknownSession, Layer::Session, "")),
        };
        drop(state);
        LinkEvents::new(Arc::clone(shared), queue)
    }

    /// The rate that the application should produce now, in bytes per second, headers and repair taken off.
    /// `None`: the congestion control tells none (`gcc` does), or the session is over.
    pub fn target_rate(&self) -> Option<Bandwidth> {
        self.handle.shared.lock().target_rate(self.handle.session)
    }

    /// The rates that the application should produce from now on, the present one first: for encoders, with
    /// [`CongestionControl::Gcc`](crate::CongestionControl::Gcc). A rate is told when it differs by a twentieth from the one before.
    pub fn target_rates(&self) -> TargetRates {
        let events = self.events();
        TargetRates::new(events, self.handle.session, self.target_rate())
    }

    /// The far end's address on the session's first path, as long as it is known.
    pub fn remote_address(&self) -> Option<SocketAddr> {
        // Asked for each connection of a proxy: not by the way of statistics, which add up all flows.
        let state = self.handle.shared.lock();
        let entry = state.sessions.get(&self.handle.session);
        let link = state.node.session_link(self.handle.session).or(entry.map(|s| s.link));
        if let Some(remote) = link.and_then(|link| state.node.link_remote(link)) {
            return Some(remote);
        }
        let entry = entry?;
        if let Some(path) = entry.last_stats.as_ref().and_then(|stats| stats.paths.first()) {
            return Some(path.remote);
        }
        state.links.get(entry.link).and_then(|link| link.remote).or(entry.came_from)
    }

    /// The far end's overlay address, if the session is or may be relayed; `None` if the neighbour is the far end.
    pub fn far_address(&self) -> Option<std::net::IpAddr> {
        self.handle.shared.lock().node.session_far(self.handle.session)
    }

    /// Statistics of the link and its paths, and what all flows of the session have counted.
    pub fn stats(&self) -> SessionStats {
        let state = self.handle.shared.lock();
        let entry = state.sessions.get(&self.handle.session);
        // A relayed session may have changed links.
        let own = entry.map(|s| state.node.session_link(self.handle.session).unwrap_or(s.link));
        let live = own.and_then(|link| state.node.link_stats(link));
        let routes = state.node.session_routes(self.handle.session);
        let further = routes.iter().filter(|(link, _)| Some(*link) != own).filter_map(|(link, _)| state.node.link_stats(*link)).collect();
        let link = live.or_else(|| entry.and_then(|s| s.last_stats.clone())).unwrap_or_else(|| LinkStats {
            paths: Vec::new(),
            undecryptable: 0,
            polluted: 0,
            is_plaintext: false,
            key_generation: 0,
            key_epoch: 0,
            handshake_packets: 0,
            handshake_time: Duration::ZERO,
            flows: FlowTotals::default(),
            spans: SpanStats::default(),
        });
        let flows = state.node.session_stats(self.handle.session).or_else(|| entry.map(|s| s.last_totals.clone())).unwrap_or_default();
        SessionStats { link, further, flows }
    }

    /// What flows of the session that take several relayed routes at once have carried by each neighbour, from end to end; empty if none does.
    pub fn routes(&self) -> Vec<(PublicKey, RouteStats)> {
        let state = self.handle.shared.lock();
        let mut routes: Vec<(PublicKey, RouteStats)> = Vec::new();
        for (link, stats) in state.node.session_routes(self.handle.session) {
            let Some(peer) = state.links.get(link).and_then(|l| l.up) else { continue };
            // A neighbour's link that was made again is the same route.
            match routes.iter_mut().find(|(known, _)| *known == peer) {
                Some((_, sum)) => *sum = sum.and(stats),
                None => routes.push((peer, stats)),
            }
        }
        routes
    }

    /// Statistics of every flow of the session that still has a handle, in the order of opening.
    pub fn flow_stats(&self) -> Vec<FlowReport> {
        let state = self.handle.shared.lock();
        let Some(entry) = state.sessions.get(&self.handle.session) else { return Vec::new() };
        let report = |flow: &FlowId| {
            let entry = state.flows.get(flow)?;
            Some(FlowReport { flow: *flow, is_sender: entry.is_sender, options: entry.options.clone(), stats: state.flow_stats(*flow) })
        };
        entry.flows.iter().filter_map(report).collect()
    }
}

/// Takes the first waiting flow of a session that `wants` takes.
fn take_incoming(state: &mut EndpointState, session: SessionId, wants: impl Fn(&FlowOptions) -> bool) -> Option<(FlowId, FlowOptions)> {
    let flows = &state.flows;
    let is_wanted = |o: &FlowOptions| !datagram::is_datagrams(o) && wants(o);
    let entry = state.sessions.get_mut(&session)?;
    let at = entry.incoming.iter().position(|flow| flows.get(flow).is_some_and(|f| is_wanted(&f.options)))?;
    let flow = entry.incoming.remove(at)?;
    Some((flow, flows.get(&flow)?.options.clone()))
}

impl Drop for Handle {
    fn drop(&mut self) {
        let mut state = self.shared.lock();
        let now = state.now;
        state.orphan_session(now, self.session, self.shared.linger);
    }
}

impl std::fmt::Debug for Session {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Session").field("id", &self.handle.session).field("peer", &self.peer_key()).finish_non_exhaustive()
    }
}

//! The node behind its lock: what the driver and the application's handles share.

use crate::backlog::Backlog;
use crate::error::{FlowError, OpenError, SessionClosed};
use crate::socket::BufferSizes;
use crate::sockets::Sockets;
use crate::state::{EndpointState, Wakers};
use noctule_proto::Node;
use noctule_proto::error::{CloseReason, Code, CommandError, Layer};
use noctule_proto::ids::{FlowId, SessionId};
use noctule_proto::units::Time;
use std::net::{IpAddr, SocketAddr};
use std::ops::{Deref, DerefMut};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, RwLock};
use std::task::{Context, Poll};
use std::time::{Duration, Instant};
use tokio::sync::Notify;

/// Everything that the handles and the driver of one endpoint, or of one of its shards, have in common.
pub(crate) struct Shared {
    state: Mutex<EndpointState>,
    /// Origin of the node's clock.
    epoch: Instant,
    bound: RwLock<Bound>,
    pub(crate) linger: Duration,
    /// The kernel refused to send, or a link fell silent or ended: `watch.rs` has something to look at.
    pub(crate) trouble: Arc<Notify>,
}

/// The state, locked. When it goes, what the calls caused is settled: events are dispatched, the driver is told, tasks are woken after
/// the lock is free.
pub(crate) struct Locked<'a> {
    guard: Option<MutexGuard<'a, EndpointState>>,
    /// The instant at which the lock was taken; instants under one lock never decrease.
    pub(crate) now: Time,
}

impl Deref for Locked<'_> {
    type Target = EndpointState;
    fn deref(&self) -> &EndpointState {
        self.guard.as_ref().expect("held until drop")
    }
}

impl DerefMut for Locked<'_> {
    fn deref_mut(&mut self) -> &mut EndpointState {
        self.guard.as_mut().expect("held until drop")
    }
}

impl Drop for Locked<'_> {
    fn drop(&mut self) {
        let Some(mut guard) = self.guard.take() else { return };
        guard.dispatch(self.now);
        let wakers = guard.take_woken();
        drop(guard);
        wakers.into_iter().for_each(|w| w.wake());
    }
}

/// What an endpoint's handles need to know of its sockets without the lock.
#[derive(Clone, Debug)]
pub(crate) struct Bound {
    /// Address of each, never empty.
    pub(crate) locals: Arc<[SocketAddr]>,
    pub(crate) reaches_v4: bool,
    pub(crate) reaches_v6: bool,
    pub(crate) buffers: BufferSizes,
}

impl Bound {
    pub(crate) fn of(sockets: &Sockets) -> Self {
        Self {
            locals: sockets.local_addrs().into(),
            reaches_v4: sockets.reaches_v4(),
            reaches_v6: sockets.reaches_v6(),
            buffers: sockets.buffers(),
        }
    }

    /// The first address.
    pub(crate) fn local(&self) -> SocketAddr {
        self.locals[0]
    }

    /// The first address of the family of `remote`, if there is one.
    pub(crate) fn local_for(&self, remote: SocketAddr) -> SocketAddr {
        self.locals.iter().find(|l| l.is_ipv4() == remote.is_ipv4()).copied().unwrap_or(self.locals[0])
    }

    /// Whether packets can be sent from this address.
    pub(crate) fn sends_from(&self, local: IpAddr) -> bool {
        self.locals.iter().any(|l| l.ip().is_unspecified() || l.ip() == local)
    }

    /// Whether this address can be sent to at all.
    pub(crate) fn reaches(&self, remote: SocketAddr) -> bool {
        if remote.is_ipv4() { self.reaches_v4 } else { self.reaches_v6 }
    }
}

impl Shared {
    /// One shard of an endpoint. `epoch`: origin of the clock of all its nodes.
    pub(crate) fn new(node: Node, epoch: Instant, accepts: bool, backlog: Backlog, bound: Bound, linger: Duration) -> Arc<Self> {
        let trouble = Arc::new(Notify::new());
        let state = EndpointState::new(node, accepts, backlog, Arc::clone(&trouble));
        Arc::new(Self { state: Mutex::new(state), epoch, bound: RwLock::new(bound), linger, trouble })
    }

    /// Where the sockets are.
    pub(crate) fn bound(&self) -> Bound {
        self.bound.read().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// The driver is to go on with these sockets: links move to them (P7).
    pub(crate) fn replace_sockets(&self, sockets: Sockets) {
        *self.bound.write().unwrap_or_else(PoisonError::into_inner) = Bound::of(&sockets);
        let mut state = self.lock();
        state.new_sockets = Some(sockets);
        state.kick();
    }

    /// Takes the lock. A panic of another thread under the lock leaves the node as it was between two calls; going on is better than
    /// taking every session of the process down with it.
    pub(crate) fn lock(&self) -> Locked<'_> {
        let guard = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        let now = self.now();
        Locked { guard: Some(guard), now }
    }

    pub(crate) fn now(&self) -> Time {
        Time::ZERO + self.epoch.elapsed()
    }

    /// One attempt at a flow operation that may have to wait: `Ok(None)` from `op` means "not now".
    pub(crate) fn poll_flow<T>(
        &self,
        cx: &mut Context<'_>,
        flow: FlowId,
        op: impl FnOnce(&mut EndpointState, Time) -> Result<Option<T>, CommandError>,
    ) -> Poll<Result<T, FlowError>> {
        let mut state = self.lock();
        let now = state.now;
        match op(&mut state, now) {
            Ok(Some(value)) => {
                state.kick();
                Poll::Ready(Ok(value))
            }
            Ok(None) | Err(CommandError::Blocked) => {
                // What the attempt itself caused (credit, the end of a flow) must be seen before this task goes to sleep.
                state.dispatch(now);
                if let Some(error) = state.flow_ended(flow) {
                    return Poll::Ready(Err(error));
                }
                state.wait_for_flow(flow, cx.waker());
                Poll::Pending
            }
            Err(error) => {
                state.dispatch(now);
                Poll::Ready(Err(state.flow_error(flow, error)))
            }
        }
    }

    /// Waits until `ready` finds what it looks for; `list` names the wakers to join.
    pub(crate) fn poll_state<T>(
        &self,
        cx: &mut Context<'_>,
        ready: impl FnOnce(&mut EndpointState, Time) -> Option<T>,
        list: impl FnOnce(&mut EndpointState) -> Option<&mut Wakers>,
    ) -> Poll<T> {
        let mut state = self.lock();
        let now = state.now;
        if let Some(value) = ready(&mut state, now) {
            return Poll::Ready(value);
        }
        if let Some(wakers) = list(&mut state) {
            wakers.add(cx.waker());
        }
        Poll::Pending
    }
}

impl EndpointState {
    /// Why nothing more can come of a flow, if that is so.
    pub(crate) fn flow_ended(&self, flow: FlowId) -> Option<FlowError> {
        let Some(entry) = self.flows.get(&flow) else {
            return Some(FlowError::Closed(CloseReason::local(Code::UnknownFlow, Layer::Flow, "")));
        };
        if let Some(reason) = &entry.closed {
            return Some(FlowError::Closed(reason.clone()));
        }
        self.session_closed(entry.session).map(FlowError::Session)
    }

    /// What a refused command means to the owner of the flow.
    pub(crate) fn flow_error(&self, flow: FlowId, error: CommandError) -> FlowError {
        match error {
            CommandError::MessageTooLarge { size, limit } => FlowError::MessageTooLarge { size, limit },
            CommandError::Misuse(what) => FlowError::Misuse(what.to_owned()),
            CommandError::Unknown(_) | CommandError::Closed(_) => self.flow_ended(flow).unwrap_or_else(|| match error {
                CommandError::Closed(reason) => FlowError::Closed(reason),
                other => FlowError::Misuse(other.to_string()),
            }),
            other => FlowError::Misuse(other.to_string()),
        }
    }

    /// What a refused opening means.
    pub(crate) fn open_error(&self, session: SessionId, error: CommandError) -> OpenError {
        match error {
            CommandError::Limit { what, limit } => OpenError::Limit { what, limit },
            other => match self.session_closed(session) {
                Some(closed) => OpenError::Session(closed),
                // Either end has begun to close it: how that ends is not known yet.
                None => match other {
                    CommandError::Closed(reason) => OpenError::Session(SessionClosed(crate::state::lost(reason))),
                    other => OpenError::Misuse(other.to_string()),
                },
            },
        }
    }

    /// How a session ended, if it did.
    pub(crate) fn session_closed(&self, session: SessionId) -> Option<SessionClosed> {
        match self.sessions.get(&session) {
            Some(entry) => entry.outcome.clone().map(SessionClosed),
            None => Some(SessionClosed(crate::state::lost(CloseReason::local(Code::UnknownSession, Layer::Session, "")))),
        }
    }
}

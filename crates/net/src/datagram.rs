//! Bare datagrams of a session, by one call each: messages of one `btp` flow that opens itself.

use crate::error::{FlowError, SessionClosed, TrySendError};
use crate::session::Session;
use crate::state::EndpointState;
use bytes::Bytes;
use noctule_proto::error::{CloseReason, Code, CommandError, Layer};
use noctule_proto::ids::{FlowId, SessionId};
use noctule_proto::options::{Class, FlowKind, FlowOptions, MessageOptions, Mode};
use noctule_proto::units::Time;
use std::future::poll_fn;
use std::task::{Context, Poll};
use std::time::Duration;

/// The tag of flows that carry datagrams, the largest there is. Applications cannot use it for flows of their own.
pub(crate) const TAG: u64 = (1 << 62) - 1;

/// A datagram that is older is given up.
pub const DATAGRAM_LIFETIME: Duration = Duration::from_millis(500);

fn options() -> FlowOptions {
    FlowOptions {
        mode: Mode::Btp,
        kind: FlowKind::UnorderedMessages,
        class: Class::Latency,
        lifetime: Some(DATAGRAM_LIFETIME),
        tag: TAG,
        ..FlowOptions::default()
    }
}

impl Session {
    /// Sends a datagram: a message that arrives within [`DATAGRAM_LIFETIME`], in no order, or not at all. It may be larger than a packet. The first one opens a flow,
    /// without a round trip.
    ///
    /// # Errors
    /// [`TrySendError::Full`] when as much is waiting as the far end takes; otherwise the session is over or the datagram is too large. Either gives it back.
    pub fn send_datagram(&self, data: Bytes) -> Result<(), TrySendError> {
        let mut state = self.handle().shared.lock();
        let now = state.now;
        let flow = match state.datagrams_out(now, self.handle().session) {
            Ok(flow) => flow,
            Err(error) => return Err(TrySendError::Failed { message: data, error }),
        };
        match state.node.send_message(now, flow, data.clone(), MessageOptions::default()) {
            Ok(_) => {
                state.kick();
                Ok(())
            }
            Err(CommandError::Blocked) => Err(TrySendError::Full(data)),
            Err(error) => Err(TrySendError::Failed { message: data, error: state.flow_error(flow, error) }),
        }
    }

    /// The next datagram of the far end. Those that nobody reads wait in bounded memory, and are given up when they are too old.
    ///
    /// # Cancel safety
    /// Dropping the future loses nothing.
    ///
    /// # Errors
    /// The session is closed, and every datagram that came was read.
    pub async fn recv_datagram(&self) -> Result<Bytes, SessionClosed> {
        poll_fn(|cx| self.poll_recv_datagram(cx)).await
    }

    /// The form of [`recv_datagram`](Self::recv_datagram) for tasks that poll.
    ///
    /// # Errors
    /// As there.
    pub fn poll_recv_datagram(&self, cx: &mut Context<'_>) -> Poll<Result<Bytes, SessionClosed>> {
        let session = self.handle().session;
        let mut state = self.handle().shared.lock();
        let now = state.now;
        while let Some(flow) = state.datagrams_in(session) {
            if let Ok(Some(message)) = state.node.recv_message(now, flow) {
                state.kick();
                return Poll::Ready(Ok(message.data));
            }
            // Reading to the end is what makes the node say that it is the end.
            state.dispatch(now);
            let is_open = state.flows.get(&flow).is_some_and(|f| f.closed.is_none() && !f.is_finished);
            if is_open && state.session_closed(session).is_none() {
                state.wait_for_flow(flow, cx.waker());
                break;
            }
            state.forget_flow(flow);
            if let Some(entry) = state.sessions.get_mut(&session) {
                entry.datagrams_in = None;
            }
        }
        if let Some(closed) = state.session_closed(session) {
            return Poll::Ready(Err(closed));
        }
        if let Some(entry) = state.sessions.get_mut(&session) {
            entry.accept_wakers.add(cx.waker());
        }
        Poll::Pending
    }
}

impl EndpointState {
    /// The flow for datagrams towards the far end.
    fn datagrams_out(&mut self, now: Time, session: SessionId) -> Result<FlowId, FlowError> {
        if let Some(closed) = self.session_closed(session) {
            return Err(closed.into());
        }
        if let Some(flow) = self.sessions.get(&session).and_then(|entry| entry.datagrams_out) {
            return self.flow_ended(flow).map_or(Ok(flow), Err);
        }
        let flow = self
            .node
            .open_flow(now, session, options())
            .map_err(|error| FlowError::Closed(CloseReason::local(Code::TooMany, Layer::Flow, error.to_string())))?;
        self.add_flow(session, flow, options());
        if let Some(entry) = self.sessions.get_mut(&session) {
            entry.datagrams_out = Some(flow);
        }
        Ok(flow)
    }

    /// The flow on which the far end's datagrams come, if it has sent any.
    fn datagrams_in(&mut self, session: SessionId) -> Option<FlowId> {
        let flows = &self.flows;
        let entry = self.sessions.get_mut(&session)?;
        if entry.datagrams_in.is_none() {
            let at = entry.incoming.iter().position(|flow| flows.get(flow).is_some_and(|f| is_datagrams(&f.options)))?;
            entry.datagrams_in = entry.incoming.remove(at);
        }
        entry.datagrams_in
    }
}

/// Whether a flow carries datagrams.
pub(crate) fn is_datagrams(options: &FlowOptions) -> bool {
    options.tag == TAG && options.kind == FlowKind::UnorderedMessages
}

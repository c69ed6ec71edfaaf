//! The two halves of a flow of messages.

use crate::error::{FlowError, TrySendError};
use crate::session::Handle;
use crate::state::EndpointState;
use bytes::Bytes;
use futures_core::Stream;
use futures_sink::Sink;
use noctule_proto::error::CommandError;
use noctule_proto::ids::FlowId;
use noctule_proto::node::Message;
use noctule_proto::options::{FlowOptions, MessageOptions};
use noctule_proto::stats::FlowStats;
use std::future::poll_fn;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};

/// Sends messages over one flow.
///
/// As a [`Sink`] it takes messages with the flow's own priority and lifetime; `flush` waits until the last one is queued, `close` until the far end has
/// everything.
///
/// **Dropping** it finishes the flow: what was queued is delivered. To give it up, [`reset`](Self::reset) it.
pub struct MessageSender {
    handle: Arc<Handle>,
    flow: FlowId,
    options: FlowOptions,
    is_finished: bool,
    /// Taken by the sink, and not queued yet.
    waiting: Option<Bytes>,
}

impl MessageSender {
    pub(crate) fn new(handle: Arc<Handle>, flow: FlowId, options: FlowOptions) -> Self {
        Self { handle, flow, options, is_finished: false, waiting: None }
    }

    /// Queues a message, waiting for room if there is none; its number within the flow, from 0.
    ///
    /// # Cancel safety
    /// Dropping the future before it resolves queues nothing.
    ///
    /// # Errors
    /// The flow or session is over, or the message is larger than the far end takes.
    pub async fn send(&self, data: Bytes, options: MessageOptions) -> Result<u64, FlowError> {
        poll_fn(|cx| self.poll_send(cx, &data, options)).await
    }

    /// The form of [`send`](Self::send) for tasks that poll.
    ///
    /// # Errors
    /// As there.
    pub fn poll_send(&self, cx: &mut Context<'_>, data: &Bytes, options: MessageOptions) -> Poll<Result<u64, FlowError>> {
        self.handle.shared.poll_flow(cx, self.flow, |state, now| {
            // A clone of `Bytes` is a reference; the content is not copied here.
            state.node.send_message(now, self.flow, data.clone(), options).map(Some)
        })
    }

    /// Queues a message if there is room now.
    ///
    /// # Errors
    /// [`TrySendError::Full`] when there is no room; otherwise as [`send`](Self::send). Either gives the message back.
    pub fn try_send(&self, data: Bytes, options: MessageOptions) -> Result<u64, TrySendError> {
        let mut state = self.handle.shared.lock();
        let now = state.now;
        match state.node.send_message(now, self.flow, data.clone(), options) {
            Ok(id) => {
                state.kick();
                Ok(id)
            }
            Err(CommandError::Blocked) => Err(TrySendError::Full(data)),
            Err(error) => Err(TrySendError::Failed { message: data, error: state.flow_error(self.flow, error) }),
        }
    }

    /// Withdraws a message; true if it will not be delivered, false if it is in flight or there.
    ///
    /// # Errors
    /// The flow or session is over.
    pub fn cancel(&self, message: u64) -> Result<bool, FlowError> {
        let mut state = self.handle.shared.lock();
        let now = state.now;
        let result = state.node.cancel_message(now, self.flow, message);
        state.kick();
        result.map_err(|e| state.flow_error(self.flow, e))
    }

    /// Nothing more follows; resolves when the far end has everything (`btp`: everything whose lifetime has not ended).
    ///
    /// # Cancel safety
    /// Dropping the future loses nothing; the call may be repeated.
    ///
    /// # Errors
    /// The flow or session ended before that was known.
    pub async fn finish(&mut self) -> Result<(), FlowError> {
        poll_fn(|cx| self.poll_finish(cx)).await
    }

    /// The form of [`finish`](Self::finish) for tasks that poll.
    ///
    /// # Errors
    /// As there.
    pub fn poll_finish(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), FlowError>> {
        ready!(self.poll_waiting(cx))?;
        crate::stream::finish(&self.handle, self.flow, &mut self.is_finished)?;
        crate::stream::poll_delivered(&self.handle, self.flow, cx)
    }

    /// Queues what the sink has taken.
    fn poll_waiting(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), FlowError>> {
        if let Some(data) = &self.waiting {
            let sent = ready!(self.poll_send(cx, data, MessageOptions::default()));
            self.waiting = None;
            sent?;
        }
        Poll::Ready(Ok(()))
    }

    /// Gives the flow up at once with a code for the far end's application.
    pub fn reset(mut self, code: u64) {
        crate::stream::reset(&self.handle, self.flow, code);
        self.is_finished = true;
    }

    /// How the flow was opened.
    pub fn options(&self) -> &FlowOptions {
        &self.options
    }
    /// The flow's name at this node.
    pub fn id(&self) -> FlowId {
        self.flow
    }
    /// Counts of the sending side.
    pub fn stats(&self) -> FlowStats {
        self.handle.shared.lock().flow_stats(self.flow)
    }
}

impl Sink<Bytes> for MessageSender {
    type Error = FlowError;

    fn poll_ready(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Result<(), FlowError>> {
        self.poll_waiting(cx)
    }
    fn start_send(mut self: Pin<&mut Self>, data: Bytes) -> Result<(), FlowError> {
        if self.waiting.is_some() {
            return Err(FlowError::Misuse("start_send was called before poll_ready said that there is room".into()));
        }
        match self.try_send(data, MessageOptions::default()) {
            Ok(_) => Ok(()),
            Err(TrySendError::Full(data)) => {
                self.waiting = Some(data);
                Ok(())
            }
            Err(TrySendError::Failed { error, .. }) => Err(error),
        }
    }
    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Result<(), FlowError>> {
        self.poll_waiting(cx)
    }
    fn poll_close(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Result<(), FlowError>> {
        self.poll_finish(cx)
    }
}

impl Drop for MessageSender {
    fn drop(&mut self) {
        let mut state = self.handle.shared.lock();
        let now = state.now;
        state.drop_sender(now, self.flow, self.is_finished);
    }
}

impl std::fmt::Debug for MessageSender {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("MessageSender").field("flow", &self.flow).finish_non_exhaustive()
    }
}

/// Receives the messages of one flow.
///
/// **Dropping** it before the end tells the far end to stop sending.
pub struct MessageReceiver {
    handle: Arc<Handle>,
    flow: FlowId,
    options: FlowOptions,
    /// The [`Stream`] has given an error.
    has_failed: bool,
}

impl MessageReceiver {
    pub(crate) fn new(handle: Arc<Handle>, flow: FlowId, options: FlowOptions) -> Self {
        Self { handle, flow, options, has_failed: false }
    }

    /// The next message; `None` when the far end has finished and everything was read. A message that came in one packet is handed over
    /// without copying.
    ///
    /// # Cancel safety
    /// Dropping the future loses nothing.
    ///
    /// # Errors
    /// The far end gave the flow up, or the session is over.
    pub async fn recv(&mut self) -> Result<Option<Message>, FlowError> {
        poll_fn(|cx| self.poll_recv(cx)).await
    }

    /// The form of [`recv`](Self::recv) for tasks that poll.
    ///
    /// # Errors
    /// As there.
    pub fn poll_recv(&mut self, cx: &mut Context<'_>) -> Poll<Result<Option<Message>, FlowError>> {
        let flow = self.flow;
        self.handle.shared.poll_flow(cx, flow, |state, now| {
            let is_finished = |state: &EndpointState| state.flows.get(&flow).is_some_and(|f| f.is_finished);
            if is_finished(state) {
                return Ok(Some(None));
            }
            if let Some(message) = state.node.recv_message(now, flow)? {
                return Ok(Some(Some(message)));
            }
            // Reading to the end is what makes the node say that it is the end.
            state.dispatch(now);
            Ok(is_finished(state).then_some(None))
        })
    }

    /// Tells the far end that no more is wanted, with a code for its application.
    pub fn stop(self, code: u64) {
        let mut state = self.handle.shared.lock();
        let now = state.now;
        state.stop_flow(now, self.flow, code);
    }

    /// How the far end opened the flow.
    pub fn options(&self) -> &FlowOptions {
        &self.options
    }
    /// The flow's name at this node.
    pub fn id(&self) -> FlowId {
        self.flow
    }
    /// Counts of the receiving side.
    pub fn stats(&self) -> FlowStats {
        self.handle.shared.lock().flow_stats(self.flow)
    }
}

impl Stream for MessageReceiver {
    type Item = Result<Message, FlowError>;

    /// As [`recv`](MessageReceiver::recv); nothing follows an error.
    fn poll_next(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        if self.has_failed {
            return Poll::Ready(None);
        }
        let next = ready!(self.poll_recv(cx));
        self.has_failed = next.is_err();
        Poll::Ready(next.transpose())
    }
}

impl Drop for MessageReceiver {
    fn drop(&mut self) {
        let mut state = self.handle.shared.lock();
        let now = state.now;
        state.stop_flow(now, self.flow, 0);
    }
}

impl std::fmt::Debug for MessageReceiver {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("MessageReceiver").field("flow", &self.flow).finish_non_exhaustive()
    }
}

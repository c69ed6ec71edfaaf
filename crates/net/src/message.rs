//! The two halves of a flow of messages.

use crate::error::FlowError;
use crate::session::Handle;
use crate::state::State;
use bytes::Bytes;
use noctule_proto::ids::FlowId;
use noctule_proto::node::Message;
use noctule_proto::options::{FlowOptions, MessageOptions};
use noctule_proto::stats::FlowStats;
use std::future::poll_fn;
use std::sync::Arc;

/// Sends messages over one flow.
///
/// **Dropping** it without [`finish`](Self::finish) resets the flow: what is not delivered yet is given up. After `finish` was called (even
/// if its future was dropped) delivery goes on without the handle.
pub struct MessageSender {
    handle: Arc<Handle>,
    flow: FlowId,
    options: FlowOptions,
    is_finished: bool,
}

impl MessageSender {
    pub(crate) fn new(handle: Arc<Handle>, flow: FlowId, options: FlowOptions) -> Self {
        Self { handle, flow, options, is_finished: false }
    }

    /// Queues a message, waiting for room if there is none; its number within the flow, from 0. Dropping the future before it resolves
    /// queues nothing.
    ///
    /// # Errors
    /// The flow or session is over, or the message is larger than the far end takes.
    pub async fn send(&self, data: Bytes, options: MessageOptions) -> Result<u64, FlowError> {
        poll_fn(|cx| {
            self.handle.shared.poll_flow(cx, self.flow, |state, now| {
                // A clone of `Bytes` is a reference; the content is not copied here.
                state.node.send_message(now, self.flow, data.clone(), options).map(Some)
            })
        })
        .await
    }

    /// Queues a message if there is room now.
    ///
    /// # Errors
    /// [`FlowError::Blocked`] when there is no room; otherwise as [`send`](Self::send).
    pub fn try_send(&self, data: Bytes, options: MessageOptions) -> Result<u64, FlowError> {
        let mut state = self.handle.shared.lock();
        let now = state.now;
        match state.node.send_message(now, self.flow, data, options) {
            Ok(id) => {
                state.kick();
                Ok(id)
            }
            Err(error) => Err(state.flow_error(self.flow, error)),
        }
    }

    /// Withdraws a message; true if it will not be delivered, false if it is on its way or there.
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

    /// Nothing more follows; resolves when the far end has everything (`btp`: everything whose lifetime has not ended). May be called again
    /// if its future was dropped.
    ///
    /// # Errors
    /// The flow or session ended before that was known.
    pub async fn finish(&mut self) -> Result<(), FlowError> {
        crate::stream::finish(&self.handle, self.flow, &mut self.is_finished)?;
        poll_fn(|cx| crate::stream::poll_delivered(&self.handle, self.flow, cx)).await
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
}

impl MessageReceiver {
    pub(crate) fn new(handle: Arc<Handle>, flow: FlowId, options: FlowOptions) -> Self {
        Self { handle, flow, options }
    }

    /// The next message; `None` when the far end has finished and everything was read. A message that came in one packet is handed over
    /// without copying. Dropping the future loses nothing.
    ///
    /// # Errors
    /// The far end gave the flow up, or the session is over.
    pub async fn recv(&mut self) -> Result<Option<Message>, FlowError> {
        let flow = self.flow;
        poll_fn(|cx| {
            self.handle.shared.poll_flow(cx, flow, |state, now| {
                let is_finished = |state: &State| state.flows.get(&flow).is_some_and(|f| f.is_finished);
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
        })
        .await
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

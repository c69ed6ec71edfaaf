//! The two halves of a byte stream.

use crate::error::{FlowError, ReadToEndError};
use crate::session::Handle;
use crate::state::Answer;
use bytes::Bytes;
use noctule_proto::ids::FlowId;
use noctule_proto::options::FlowOptions;
use noctule_proto::stats::FlowStats;
use std::future::poll_fn;
use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

/// Writes bytes towards the far end.
///
/// As [`AsyncWrite`]: `flush` returns at once, since nothing is held back; `shutdown` marks the end without waiting. Use
/// [`finish`](Self::finish) to learn that everything arrived.
///
/// **Dropping** it finishes the stream: what was written is delivered, and the far end reads the end of the stream after it. To give the stream up,
/// [`reset`](Self::reset) it.
pub struct SendStream {
    handle: Arc<Handle>,
    flow: FlowId,
    options: FlowOptions,
    is_finished: bool,
}

impl SendStream {
    pub(crate) fn new(handle: Arc<Handle>, flow: FlowId, options: FlowOptions) -> Self {
        Self { handle, flow, options, is_finished: false }
    }

    /// Writes as much as there is room for, at least one byte, waiting if there is none; returns how much. The bytes are copied once, into the
    /// packets that carry them.
    ///
    /// # Cancel safety
    /// Dropping the future before it resolves writes nothing.
    ///
    /// # Errors
    /// The far end stopped the stream, or the session is over.
    pub async fn write(&mut self, data: &[u8]) -> Result<usize, FlowError> {
        poll_fn(|cx| self.poll_write_bytes(cx, data)).await
    }

    /// Writes all of `data`.
    ///
    /// # Cancel safety
    /// None: if the future is dropped, some of `data` may have been written.
    ///
    /// # Errors
    /// As [`write`](Self::write).
    pub async fn write_all(&mut self, mut data: &[u8]) -> Result<(), FlowError> {
        while !data.is_empty() {
            let n = self.write(data).await?;
            data = &data[n..];
        }
        Ok(())
    }

    /// Writes all of a block that is handed over: not copied until it is put into packets, it lives until then. For data that is held as [`Bytes`] anyway; what is
    /// written in small pieces is better copied by [`write_all`](Self::write_all).
    ///
    /// # Cancel safety
    /// None: if the future is dropped, some of `data` may have been written.
    ///
    /// # Errors
    /// As [`write`](Self::write).
    pub async fn write_chunk(&mut self, mut data: Bytes) -> Result<(), FlowError> {
        while !data.is_empty() {
            poll_fn(|cx| self.poll_write_chunk(cx, &mut data)).await?;
        }
        Ok(())
    }

    /// The form of [`write_chunk`](Self::write_chunk) for tasks that poll: takes the front of `data`, at least one byte; how much. What is left in `data` is not
    /// written yet.
    ///
    /// # Errors
    /// As there.
    pub fn poll_write_chunk(&mut self, cx: &mut Context<'_>, data: &mut Bytes) -> Poll<Result<usize, FlowError>> {
        if data.is_empty() {
            return Poll::Ready(Ok(0));
        }
        self.handle.shared.poll_flow(cx, self.flow, |state, now| state.node.write_chunk(now, self.flow, data).map(Some))
    }

    fn poll_write_bytes(&mut self, cx: &mut Context<'_>, data: &[u8]) -> Poll<Result<usize, FlowError>> {
        if data.is_empty() {
            return Poll::Ready(Ok(0));
        }
        self.handle.shared.poll_flow(cx, self.flow, |state, now| state.node.write(now, self.flow, data).map(Some))
    }

    /// Nothing more follows; resolves when the far end has everything.
    ///
    /// # Cancel safety
    /// The first poll marks the end. Dropping the future loses nothing; the call may be repeated.
    ///
    /// # Errors
    /// The stream or session ended before that was known.
    pub async fn finish(&mut self) -> Result<(), FlowError> {
        poll_fn(|cx| self.poll_finish(cx)).await
    }

    /// The form of [`finish`](Self::finish) for tasks that poll.
    ///
    /// # Errors
    /// As there.
    pub fn poll_finish(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), FlowError>> {
        finish(&self.handle, self.flow, &mut self.is_finished)?;
        poll_delivered(&self.handle, self.flow, cx)
    }

    /// Gives the stream up at once with a code for the far end's application.
    pub fn reset(mut self, code: u64) {
        reset(&self.handle, self.flow, code);
        self.is_finished = true;
    }

    /// Waits until nothing more can be sent because the far end stopped the stream or the session is over, and says which. For a writer that has nothing to write at
    /// present and would learn of it only by the next write. A stream that was delivered as a whole is no longer stopped.
    ///
    /// # Cancel safety
    /// Dropping the future loses nothing.
    pub async fn stopped(&self) -> FlowError {
        poll_fn(|cx| match self.handle.shared.poll_flow::<std::convert::Infallible>(cx, self.flow, |_, _| Ok(None)) {
            Poll::Ready(Err(error)) => Poll::Ready(error),
            Poll::Ready(Ok(never)) => match never {},
            Poll::Pending => Poll::Pending,
        })
        .await
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

/// Marks the end of a sending half, once.
pub(crate) fn finish(handle: &Handle, flow: FlowId, is_finished: &mut bool) -> Result<(), FlowError> {
    if *is_finished {
        return Ok(());
    }
    let mut state = handle.shared.lock();
    let now = state.now;
    match state.node.finish(now, flow) {
        Ok(()) => {
            *is_finished = true;
            state.kick();
            Ok(())
        }
        Err(error) => {
            state.dispatch(now);
            Err(state.flow_error(flow, error))
        }
    }
}

/// Waits until the far end has everything of a finished half.
pub(crate) fn poll_delivered(handle: &Handle, flow: FlowId, cx: &mut Context<'_>) -> Poll<Result<(), FlowError>> {
    handle.shared.poll_flow(cx, flow, |state, now| {
        state.dispatch(now);
        Ok(state.flows.get(&flow).is_some_and(|f| f.is_delivered).then_some(()))
    })
}

/// Gives a sending half up.
pub(crate) fn reset(handle: &Handle, flow: FlowId, code: u64) {
    let mut state = handle.shared.lock();
    let now = state.now;
    // Refused only if the flow is gone already.
    let _ = state.node.reset(now, flow, code);
    state.kick();
}

impl AsyncWrite for SendStream {
    fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, data: &[u8]) -> Poll<io::Result<usize>> {
        self.poll_write_bytes(cx, data).map_err(io::Error::from)
    }
    fn poll_flush(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }
    fn poll_shutdown(mut self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        let Self { handle, flow, is_finished, .. } = &mut *self;
        Poll::Ready(finish(handle, *flow, is_finished).map_err(io::Error::from))
    }
}

impl Drop for SendStream {
    fn drop(&mut self) {
        let mut state = self.handle.shared.lock();
        let now = state.now;
        state.drop_sender(now, self.flow, self.is_finished);
    }
}

impl std::fmt::Debug for SendStream {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("SendStream").field("flow", &self.flow).finish_non_exhaustive()
    }
}

/// Reads bytes from the far end.
///
/// **Dropping** it before the end tells the far end to stop sending.
pub struct RecvStream {
    handle: Arc<Handle>,
    source: Source,
    options: FlowOptions,
}

/// Where a receiving half's bytes come from.
#[derive(Clone, Copy, Debug)]
enum Source {
    /// This flow.
    Flow(FlowId),
    /// The flow with which the far end answers this one, when it comes.
    AnswerTo(FlowId),
    /// Nowhere any more.
    Stopped,
}

impl RecvStream {
    pub(crate) fn here(handle: Arc<Handle>, flow: FlowId, options: FlowOptions) -> Self {
        Self { handle, source: Source::Flow(flow), options }
    }
    pub(crate) fn awaited(handle: Arc<Handle>, question: FlowId, options: FlowOptions) -> Self {
        Self { handle, source: Source::AnswerTo(question), options }
    }

    /// The next bytes, at most `max` of them, without copying; `None` at the end of the stream.
    ///
    /// # Cancel safety
    /// Dropping the future loses nothing.
    ///
    /// # Errors
    /// The far end gave the stream up, or the session is over.
    pub async fn read_chunk(&mut self, max: usize) -> Result<Option<Bytes>, FlowError> {
        poll_fn(|cx| self.poll_read_chunk(cx, max)).await
    }

    /// The form of [`read_chunk`](Self::read_chunk) for tasks that poll.
    ///
    /// # Errors
    /// As there.
    pub fn poll_read_chunk(&mut self, cx: &mut Context<'_>, max: usize) -> Poll<Result<Option<Bytes>, FlowError>> {
        let mut chunk = None;
        ready!(self.poll_chunks(cx, max, |c| {
            chunk = Some(c);
            0
        }))?;
        Poll::Ready(Ok(chunk))
    }

    /// Appends what is there to `chunks`, at most `max` bytes in all, without copying, waiting only if nothing is; returns the number of
    /// bytes, 0 at the end of the stream. Cheaper than [`read_chunk`](Self::read_chunk) at high rates, since a chunk is at most a packet.
    ///
    /// # Cancel safety
    /// Dropping the future loses nothing.
    ///
    /// # Errors
    /// As [`read_chunk`](Self::read_chunk).
    pub async fn read_chunks(&mut self, chunks: &mut Vec<Bytes>, max: usize) -> Result<usize, FlowError> {
        poll_fn(|cx| {
            let mut left = max;
            self.poll_chunks(cx, max, |chunk| {
                left -= chunk.len();
                chunks.push(chunk);
                left
            })
        })
        .await
    }

    /// Reads to the end, at most `limit` bytes.
    ///
    /// # Cancel safety
    /// None: what was read is lost with the future.
    ///
    /// # Errors
    /// As [`read_chunk`](Self::read_chunk), and [`ReadToEndError::TooLong`] beyond `limit`.
    pub async fn read_to_end(&mut self, limit: usize) -> Result<Vec<u8>, ReadToEndError> {
        let (mut all, mut chunks) = (Vec::new(), Vec::new());
        while self.read_chunks(&mut chunks, 1 << 20).await? > 0 {
            for chunk in chunks.drain(..) {
                if all.len() + chunk.len() > limit {
                    return Err(ReadToEndError::TooLong { limit });
                }
                all.extend_from_slice(&chunk);
            }
        }
        Ok(all)
    }

    /// Hands the chunks that are there to `take`, which says how many further bytes it has room for (`max` to begin with). Ready with the
    /// number of bytes, 0 at the end of the stream.
    fn poll_chunks(&mut self, cx: &mut Context<'_>, max: usize, mut take: impl FnMut(Bytes) -> usize) -> Poll<Result<usize, FlowError>> {
        if max == 0 {
            return Poll::Ready(Ok(0));
        }
        if let Source::AnswerTo(question) = self.source {
            let answer = ready!(self.handle.shared.poll_flow(cx, question, |state, _| {
                Ok(match state.flows.get(&question).map(|f| f.answer) {
                    Some(Answer::Here(flow)) => Some(flow),
                    _ => None,
                })
            }))?;
            self.source = Source::Flow(answer);
        }
        let Source::Flow(flow) = self.source else { return Poll::Ready(Ok(0)) };
        self.handle.shared.poll_flow(cx, flow, |state, now| {
            if state.flows.get(&flow).is_some_and(|f| f.is_finished) {
                return Ok(Some(0));
            }
            let (mut room, mut taken) = (max, 0);
            while room > 0 {
                match state.node.read(now, flow, room) {
                    Ok(Some(chunk)) if chunk.is_empty() => {
                        if let Some(entry) = state.flows.get_mut(&flow) {
                            entry.is_finished = true;
                        }
                        return Ok(Some(taken));
                    }
                    Ok(Some(chunk)) => {
                        taken += chunk.len();
                        room = take(chunk);
                    }
                    Ok(None) => break,
                    // What was taken before counts first; the error comes again with the next call.
                    Err(error) if taken == 0 => return Err(error),
                    Err(_) => break,
                }
            }
            Ok((taken > 0).then_some(taken))
        })
    }

    /// Tells the far end that no more is wanted, with a code for its application.
    pub fn stop(mut self, code: u64) {
        self.stop_with(code);
    }

    fn stop_with(&mut self, code: u64) {
        let mut state = self.handle.shared.lock();
        let now = state.now;
        match std::mem::replace(&mut self.source, Source::Stopped) {
            Source::Flow(flow) => state.stop_flow(now, flow, code),
            Source::AnswerTo(question) => state.stop_answer(now, question, code),
            Source::Stopped => {}
        }
    }

    /// How the flow was opened.
    pub fn options(&self) -> &FlowOptions {
        &self.options
    }
    /// The flow's name at this node; `None` as long as the far end has not answered.
    pub fn id(&self) -> Option<FlowId> {
        match self.source {
            Source::Flow(flow) => Some(flow),
            Source::AnswerTo(_) | Source::Stopped => None,
        }
    }
    /// Counts of the receiving side.
    pub fn stats(&self) -> FlowStats {
        self.id().map_or_else(FlowStats::default, |flow| self.handle.shared.lock().flow_stats(flow))
    }
}

impl AsyncRead for RecvStream {
    fn poll_read(mut self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        if buf.remaining() == 0 {
            return Poll::Ready(Ok(()));
        }
        let room = buf.remaining();
        ready!(self.poll_chunks(cx, room, |chunk| {
            buf.put_slice(&chunk);
            buf.remaining()
        }))?;
        Poll::Ready(Ok(()))
    }
}

impl Drop for RecvStream {
    fn drop(&mut self) {
        self.stop_with(0);
    }
}

impl std::fmt::Debug for RecvStream {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("RecvStream").field("source", &self.source).finish_non_exhaustive()
    }
}

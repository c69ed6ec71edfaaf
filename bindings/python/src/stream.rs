//! The two halves of a byte stream.

use crate::bridge::{Waiter, Waiting, lock};
use crate::buffer::{self, View};
use crate::error::Fault;
use crate::runtime::{self, Kept};
use crate::session::answer;
use crate::{Polled, stats};
use noctule::{Bytes, FlowError, RecvStream, SendStream};
use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;
use pyo3::types::{PyBytes, PyDict};
use std::collections::VecDeque;
use std::future::{Future, poll_fn};
use std::pin::pin;
use std::sync::{Arc, Mutex};
use std::task::{Context, Poll, Waker};

/// Read in one call at most, so that a fast sender does not keep an event loop from its other tasks.
const TURN: usize = 4 << 20;

const RESET: Fault = Fault::Usage("the stream was given up by reset()");
const STOPPED: Fault = Fault::Usage("the stream was given up by stop()");
const FINISHED: Fault = Fault::Usage("the stream is finished: nothing can be written after finish()");

/// The sending half. What the node has no room for waits here; a task of the packet loop hands it over.
#[pyclass(frozen, module = "noctule._core")]
pub struct Sender {
    half: Kept<Arc<Half>>,
}

struct Half {
    state: Mutex<Sending>,
    waiting: Waiting,
}

struct Sending {
    /// `None` after a reset.
    stream: Option<SendStream>,
    pending: VecDeque<Bytes>,
    /// A task hands `pending` over.
    is_flushing: bool,
    /// Nothing may be written any more, and the end is marked once `pending` is empty.
    is_finishing: bool,
    /// Why what was pending could not be handed over.
    failed: Option<FlowError>,
}

impl Sending {
    /// Hands over what there is room for.
    fn poll_flush(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), FlowError>> {
        let Some(stream) = &mut self.stream else {
            self.pending.clear();
            return Poll::Ready(Ok(()));
        };
        while let Some(block) = self.pending.front_mut() {
            match stream.poll_write_chunk(cx, block) {
                Poll::Ready(Ok(_)) if block.is_empty() => drop(self.pending.pop_front()),
                Poll::Ready(Ok(_)) => {}
                Poll::Ready(Err(error)) => {
                    self.pending.clear();
                    self.failed = Some(error.clone());
                    return Poll::Ready(Err(error));
                }
                Poll::Pending => return Poll::Pending,
            }
        }
        if self.is_finishing {
            // Marks the end, whichever call waits for its delivery.
            let _ = stream.poll_finish(&mut Context::from_waker(Waker::noop()));
        }
        Poll::Ready(Ok(()))
    }
}

impl Sender {
    pub fn new(stream: SendStream) -> Self {
        let state = Sending { stream: Some(stream), pending: VecDeque::new(), is_flushing: false, is_finishing: false, failed: None };
        Self { half: Kept::new(Arc::new(Half { state: Mutex::new(state), waiting: Waiting::default() })) }
    }

    /// Takes a block; true: a task is to hand over what is pending.
    fn take(&self, block: Bytes) -> Result<bool, Fault> {
        let mut state = lock(&self.half.state);
        if let Some(failed) = &state.failed {
            return Err(failed.clone().into());
        }
        if state.stream.is_none() {
            return Err(RESET);
        }
        if state.is_finishing {
            return Err(FINISHED);
        }
        if block.is_empty() {
            return Ok(false);
        }
        state.pending.push_back(block);
        if state.is_flushing {
            return Ok(false);
        }
        match state.poll_flush(&mut Context::from_waker(Waker::noop())) {
            Poll::Ready(result) => result.map(|()| false).map_err(Fault::Flow),
            Poll::Pending => {
                state.is_flushing = true;
                Ok(true)
            }
        }
    }
}

impl Half {
    /// Hands over what is pending as there is room, and wakes the tasks that wait for that.
    async fn flush(self: Arc<Self>) {
        poll_fn(|cx| {
            let mut state = lock(&self.state);
            let polled = state.poll_flush(cx);
            state.is_flushing = polled.is_pending();
            polled.map(drop)
        })
        .await;
        self.waiting.wake();
    }
}

#[pymethods]
impl Sender {
    /// Takes all of `data`. What there is no room for waits: `poll_drain` tells when it has gone.
    fn write(&self, py: Python<'_>, data: &Bound<'_, PyAny>) -> PyResult<()> {
        let runtime = runtime::get()?;
        let block = buffer::block(data)?;
        if self.take(block).map_err(|fault| fault.raise(py))? {
            runtime.spawn(Arc::clone(&self.half).flush());
        }
        Ok(())
    }

    /// Bytes that wait.
    fn pending(&self) -> PyResult<usize> {
        runtime::check()?;
        Ok(lock(&self.half.state).pending.iter().map(Bytes::len).sum())
    }

    /// `True` when nothing waits.
    fn poll_drain<'py>(&self, py: Python<'py>, waiter: Option<Bound<'py, Waiter>>) -> Polled<'py> {
        runtime::check()?;
        let polled = self.half.waiting.attempt(waiter.as_ref(), |_| {
            let state = lock(&self.half.state);
            match &state.failed {
                Some(failed) => Poll::Ready(Err(failed.clone().into())),
                None if state.pending.is_empty() => Poll::Ready(Ok(())),
                None => Poll::Pending,
            }
        });
        answer(py, polled)
    }

    /// Marks the end; `True` when the far end has everything.
    fn poll_finish<'py>(&self, py: Python<'py>, waiter: Option<Bound<'py, Waiter>>) -> Polled<'py> {
        runtime::check()?;
        let polled = self.half.waiting.attempt(waiter.as_ref(), |cx| {
            let mut state = lock(&self.half.state);
            let Sending { stream, pending, is_finishing, failed, .. } = &mut *state;
            *is_finishing = true;
            match (failed, stream) {
                (Some(failed), _) => Poll::Ready(Err(failed.clone().into())),
                (None, None) => Poll::Ready(Err(RESET)),
                (None, Some(stream)) if pending.is_empty() => stream.poll_finish(cx).map_err(Fault::Flow),
                // The task of `flush` marks the end, and wakes the tasks that wait.
                (None, Some(_)) => Poll::Pending,
            }
        });
        answer(py, polled)
    }

    /// Gives the stream up; nothing if it was given up before.
    fn reset(&self, code: u64) -> PyResult<()> {
        runtime::check()?;
        let taken = {
            let mut state = lock(&self.half.state);
            state.pending.clear();
            state.stream.take()
        };
        if let Some(stream) = taken {
            stream.reset(code);
        }
        self.half.waiting.wake();
        Ok(())
    }

    /// Counters.
    fn stats<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyDict>> {
        runtime::check()?;
        let counted = lock(&self.half.state).stream.as_ref().map(SendStream::stats).unwrap_or_default();
        stats::flow(py, &counted)
    }
}

/// The receiving half, and what was read of a piece that is not complete yet.
#[pyclass(frozen, module = "noctule._core")]
pub struct Receiver {
    state: Kept<Mutex<Receiving>>,
    waiting: Waiting,
    tag: u64,
}

struct Receiving {
    /// `None` after `stop`.
    stream: Option<RecvStream>,
    /// Read for `readexactly` or `read_to_end`, which did not get all that they want.
    kept: VecDeque<u8>,
    chunks: Vec<Bytes>,
}

impl Receiving {
    /// What is there, at most `max` bytes, into `chunks`: how much; 0 at the end.
    fn poll_chunks(&mut self, cx: &mut Context<'_>, max: usize) -> Poll<Result<usize, Fault>> {
        self.chunks.clear();
        let Some(stream) = &mut self.stream else { return Poll::Ready(Err(STOPPED)) };
        pin!(stream.read_chunks(&mut self.chunks, max)).poll(cx).map_err(Fault::Flow)
    }

    /// Reads until `wanted` bytes are kept: true, or false at the end of the stream.
    fn poll_fill(&mut self, cx: &mut Context<'_>, wanted: usize) -> Poll<Result<bool, Fault>> {
        let mut taken = 0;
        while self.kept.len() < wanted {
            if taken >= TURN {
                cx.waker().wake_by_ref();
                return Poll::Pending;
            }
            match self.poll_chunks(cx, (wanted - self.kept.len()).min(TURN)) {
                Poll::Ready(Ok(0)) => return Poll::Ready(Ok(false)),
                Poll::Ready(Ok(n)) => {
                    taken += n;
                    self.chunks.drain(..).for_each(|chunk| self.kept.extend(&chunk[..]));
                }
                Poll::Ready(Err(e)) => return Poll::Ready(Err(e)),
                Poll::Pending => return Poll::Pending,
            }
        }
        Poll::Ready(Ok(true))
    }

    /// The first bytes of those that are kept.
    fn take_kept(&mut self, max: usize) -> Vec<Bytes> {
        let n = max.min(self.kept.len());
        let taken = if n == self.kept.len() { std::mem::take(&mut self.kept).into() } else { self.kept.drain(..n).collect::<Vec<u8>>() };
        vec![taken.into()]
    }
}

/// Pieces as one object of Python: copied once.
fn bytes<'py>(py: Python<'py>, polled: Poll<Result<Vec<Bytes>, Fault>>) -> Polled<'py> {
    let pieces = match polled {
        Poll::Pending => return Ok(None),
        Poll::Ready(Err(fault)) => return Err(fault.raise(py)),
        Poll::Ready(Ok(pieces)) => pieces,
    };
    let bytes = PyBytes::new_with(py, pieces.iter().map(Bytes::len).sum(), |mut to| {
        for piece in &pieces {
            let (here, rest) = to.split_at_mut(piece.len());
            here.copy_from_slice(piece);
            to = rest;
        }
        Ok(())
    });
    Ok(Some(bytes?.into_any()))
}

impl Receiver {
    pub fn new(stream: RecvStream) -> Self {
        let tag = stream.options().tag;
        let state = Receiving { stream: Some(stream), kept: VecDeque::new(), chunks: Vec::new() };
        Self { state: Kept::new(Mutex::new(state)), waiting: Waiting::default(), tag }
    }
}

#[pymethods]
impl Receiver {
    /// The next bytes, at most `max`; none at the end.
    fn poll_read<'py>(&self, py: Python<'py>, waiter: Option<Bound<'py, Waiter>>, max: usize) -> Polled<'py> {
        runtime::check()?;
        if max == 0 {
            return Err(PyValueError::new_err("read() needs a number of bytes, 1 or more; read_to_end() reads everything"));
        }
        let polled = self.waiting.attempt(waiter.as_ref(), |cx| {
            let mut state = lock(&self.state);
            if !state.kept.is_empty() {
                return Poll::Ready(Ok(state.take_kept(max)));
            }
            state.poll_chunks(cx, max).map_ok(|_| std::mem::take(&mut state.chunks))
        });
        bytes(py, polled)
    }

    /// The next bytes into a buffer: how many; 0 at the end.
    fn poll_readinto<'py>(&self, py: Python<'py>, waiter: Option<Bound<'py, Waiter>>, buffer: &Bound<'py, PyAny>) -> Polled<'py> {
        runtime::check()?;
        let mut view = View::writable(buffer)?;
        let max = view.len();
        if max == 0 {
            return Err(PyValueError::new_err("readinto() needs a buffer with room for a byte"));
        }
        let polled = self.waiting.attempt(waiter.as_ref(), |cx| {
            let mut state = lock(&self.state);
            if !state.kept.is_empty() {
                return Poll::Ready(Ok(state.take_kept(max)));
            }
            state.poll_chunks(cx, max).map_ok(|_| std::mem::take(&mut state.chunks))
        });
        match polled {
            Poll::Pending => Ok(None),
            Poll::Ready(Err(fault)) => Err(fault.raise(py)),
            Poll::Ready(Ok(chunks)) => {
                let mut at = 0;
                for chunk in chunks {
                    view.put(at, &chunk)?;
                    at += chunk.len();
                }
                Ok(Some(at.into_pyobject(py)?.into_any()))
            }
        }
    }

    /// Exactly `n` bytes. What was read stays for the next call if there are fewer now.
    fn poll_readexactly<'py>(&self, py: Python<'py>, waiter: Option<Bound<'py, Waiter>>, n: usize) -> Polled<'py> {
        runtime::check()?;
        let polled = self.waiting.attempt(waiter.as_ref(), |cx| {
            let mut state = lock(&self.state);
            state.poll_fill(cx, n).map(|filled| match filled? {
                true => Ok(state.take_kept(n)),
                false => Err(Fault::Incomplete(std::mem::take(&mut state.kept).into(), n)),
            })
        });
        bytes(py, polled)
    }

    /// Everything up to the end, at most `limit` bytes; beyond them an error, and what was read stays.
    fn poll_read_to_end<'py>(&self, py: Python<'py>, waiter: Option<Bound<'py, Waiter>>, limit: usize) -> Polled<'py> {
        runtime::check()?;
        let polled = self.waiting.attempt(waiter.as_ref(), |cx| {
            let mut state = lock(&self.state);
            state.poll_fill(cx, limit.saturating_add(1)).map(|filled| match filled? {
                true => Err(Fault::TooLong(limit)),
                false => Ok(state.take_kept(usize::MAX)),
            })
        });
        bytes(py, polled)
    }

    /// Tells the far end that no more is wanted; nothing if it was told before.
    fn stop(&self, code: u64) -> PyResult<()> {
        runtime::check()?;
        if let Some(stream) = lock(&self.state).stream.take() {
            stream.stop(code);
        }
        self.waiting.wake();
        Ok(())
    }

    /// The application's number for the stream.
    #[getter]
    fn tag(&self) -> u64 {
        self.tag
    }

    /// Counters.
    fn stats<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyDict>> {
        runtime::check()?;
        let counted = lock(&self.state).stream.as_ref().map(RecvStream::stats).unwrap_or_default();
        stats::flow(py, &counted)
    }
}

//! Flows of messages.

use crate::bridge::{Waiter, Waiting, lock};
use crate::error::Fault;
use crate::runtime::{self, Kept};
use crate::session::answer;
use crate::{Polled, buffer, end, options, stats};
use noctule::MessageOptions;
use pyo3::prelude::*;
use pyo3::types::{PyBytes, PyDict};
use std::sync::Mutex;
use std::task::Poll;

/// One message.
#[pyclass(frozen, get_all, module = "noctule")]
pub struct Message {
    /// Its number within the flow, from 0, as the sender counts.
    id: u64,
    /// Its content.
    data: Py<PyBytes>,
}

#[pymethods]
impl Message {
    #[classattr]
    fn __match_args__() -> (&'static str, &'static str) {
        ("data", "id")
    }

    fn __len__(&self, py: Python<'_>) -> usize {
        self.data.as_bytes(py).len()
    }

    fn __bytes__(&self, py: Python<'_>) -> Py<PyBytes> {
        self.data.clone_ref(py)
    }

    fn __repr__(&self, py: Python<'_>) -> String {
        format!("<Message {}, {} bytes>", self.id, self.__len__(py))
    }
}

const GONE: Fault = Fault::Usage("the flow was given up by reset() or stop()");

/// The sending end.
#[pyclass(frozen, module = "noctule._core")]
pub struct MessageSender {
    inner: Kept<Mutex<Option<noctule::MessageSender>>>,
    waiting: Waiting,
}

impl MessageSender {
    pub fn new(inner: noctule::MessageSender) -> Self {
        Self { inner: Kept::new(Mutex::new(Some(inner))), waiting: Waiting::default() }
    }
}

#[pymethods]
impl MessageSender {
    /// Queues a message: its number, if there is room.
    fn poll_send<'py>(
        &self,
        py: Python<'py>,
        waiter: Option<Bound<'py, Waiter>>,
        data: &Bound<'py, PyAny>,
        lifetime: Option<f64>,
        priority: u8,
    ) -> Polled<'py> {
        runtime::check()?;
        let data = buffer::block(data)?;
        let options = MessageOptions { lifetime: lifetime.map(|s| options::seconds("lifetime", s)).transpose()?, priority };
        let polled = self.waiting.attempt(waiter.as_ref(), |cx| match lock(&self.inner).as_ref() {
            Some(sender) => sender.poll_send(cx, &data, options).map_err(Fault::Flow),
            None => Poll::Ready(Err(GONE)),
        });
        match polled {
            Poll::Ready(Ok(id)) => Ok(Some(id.into_pyobject(py)?.into_any())),
            Poll::Pending => Ok(None),
            Poll::Ready(Err(fault)) => Err(fault.raise(py)),
        }
    }

    /// Withdraws a message; true if it will not be delivered.
    fn cancel(&self, py: Python<'_>, message: u64) -> PyResult<bool> {
        runtime::check()?;
        let cancelled = lock(&self.inner).as_ref().ok_or(GONE).and_then(|sender| sender.cancel(message).map_err(Fault::Flow));
        cancelled.map_err(|fault| fault.raise(py))
    }

    /// Marks the end; `True` when the far end has everything.
    fn poll_finish<'py>(&self, py: Python<'py>, waiter: Option<Bound<'py, Waiter>>) -> Polled<'py> {
        runtime::check()?;
        let polled = self.waiting.attempt(waiter.as_ref(), |cx| match lock(&self.inner).as_mut() {
            Some(sender) => sender.poll_finish(cx).map_err(Fault::Flow),
            None => Poll::Ready(Err(GONE)),
        });
        answer(py, polled)
    }

    /// Gives the flow up; nothing if it was given up before.
    fn reset(&self, code: u64) -> PyResult<()> {
        runtime::check()?;
        if let Some(sender) = lock(&self.inner).take() {
            sender.reset(code);
        }
        self.waiting.wake();
        Ok(())
    }

    /// Counters.
    fn stats<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyDict>> {
        runtime::check()?;
        let counted = lock(&self.inner).as_ref().map(noctule::MessageSender::stats).unwrap_or_default();
        stats::flow(py, &counted)
    }
}

/// The receiving end.
#[pyclass(frozen, module = "noctule._core")]
pub struct MessageReceiver {
    inner: Kept<Mutex<Option<noctule::MessageReceiver>>>,
    waiting: Waiting,
    mode: &'static str,
    tag: u64,
}

impl MessageReceiver {
    pub fn new(inner: noctule::MessageReceiver) -> Self {
        let (mode, tag) = (options::mode_name(inner.options().mode), inner.options().tag);
        Self { inner: Kept::new(Mutex::new(Some(inner))), waiting: Waiting::default(), mode, tag }
    }
}

#[pymethods]
impl MessageReceiver {
    /// The next message; `False` at the end.
    fn poll_recv<'py>(&self, py: Python<'py>, waiter: Option<Bound<'py, Waiter>>) -> Polled<'py> {
        runtime::check()?;
        let polled = self.waiting.attempt(waiter.as_ref(), |cx| match lock(&self.inner).as_mut() {
            Some(receiver) => receiver.poll_recv(cx).map_err(Fault::Flow),
            None => Poll::Ready(Err(GONE)),
        });
        match polled {
            Poll::Ready(Ok(Some(message))) => {
                let message = Message { id: message.id, data: PyBytes::new(py, &message.data).unbind() };
                Ok(Some(Bound::new(py, message)?.into_any()))
            }
            Poll::Ready(Ok(None)) => Ok(Some(end(py))),
            Poll::Pending => Ok(None),
            Poll::Ready(Err(fault)) => Err(fault.raise(py)),
        }
    }

    /// Tells the far end that no more is wanted; nothing if it was told before.
    fn stop(&self, code: u64) -> PyResult<()> {
        runtime::check()?;
        if let Some(receiver) = lock(&self.inner).take() {
            receiver.stop(code);
        }
        self.waiting.wake();
        Ok(())
    }

    /// The promise that the far end opened it with.
    #[getter]
    fn mode(&self) -> &'static str {
        self.mode
    }

    /// The application's number for it.
    #[getter]
    fn tag(&self) -> u64 {
        self.tag
    }

    /// Counters.
    fn stats<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyDict>> {
        runtime::check()?;
        let counted = lock(&self.inner).as_ref().map(noctule::MessageReceiver::stats).unwrap_or_default();
        stats::flow(py, &counted)
    }
}

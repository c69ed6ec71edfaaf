//! A session with another node: where flows are opened and accepted.

use crate::bridge::{Waiter, Waiting, lock};
use crate::error::{self, Fault};
use crate::keys::PublicKey;
use crate::message::{MessageReceiver, MessageSender};
use crate::options;
use crate::runtime::{self, Kept};
use crate::stream::{Receiver, Sender};
use crate::{Polled, buffer, done, stats};
use noctule::{FlowKind, FlowOptions, IncomingFlow, TargetRates, TrySendError};
use pyo3::prelude::*;
use pyo3::types::{PyBytes, PyDict, PyFloat};
use std::future::Future;
use std::pin::pin;
use std::sync::Mutex;
use std::task::{Context, Poll, Waker, ready};

/// A session.
#[pyclass(frozen, module = "noctule._core")]
pub struct Session {
    inner: Kept<noctule::Session>,
    streams: Waiting,
    messages: Waiting,
    datagrams: Waiting,
    closed: Waiting,
    target_rate: Waiting,
    /// From the first question after the rate on.
    rates: Mutex<Option<TargetRates>>,
}

impl Session {
    pub fn new(session: noctule::Session) -> Self {
        Self {
            inner: Kept::new(session),
            streams: Waiting::default(),
            messages: Waiting::default(),
            datagrams: Waiting::default(),
            closed: Waiting::default(),
            target_rate: Waiting::default(),
            rates: Mutex::default(),
        }
    }

    fn accept(&self, cx: &mut Context<'_>, wants: impl Fn(&FlowOptions) -> bool) -> Poll<Result<IncomingFlow, noctule::SessionClosed>> {
        pin!(self.inner.accept_flow_if(wants)).poll(cx)
    }
}

#[pymethods]
impl Session {
    /// Opens a byte stream: its sending half, and the receiving one if it is bidirectional.
    fn open_stream(&self, py: Python<'_>, bidirectional: bool, traffic_class: &str, tag: u64) -> PyResult<(Sender, Option<Receiver>)> {
        runtime::check()?;
        let options = options::stream(traffic_class, tag)?;
        if bidirectional {
            let (send, recv) = self.inner.open_bi(options).map_err(|e| error::open(py, &e))?;
            return Ok((Sender::new(send), Some(Receiver::new(recv))));
        }
        Ok((Sender::new(self.inner.open_uni(options).map_err(|e| error::open(py, &e))?), None))
    }

    /// Opens a flow of messages.
    fn open_messages(
        &self,
        py: Python<'_>,
        mode: &str,
        ordered: bool,
        lifetime: Option<f64>,
        traffic_class: &str,
        tag: u64,
    ) -> PyResult<MessageSender> {
        runtime::check()?;
        let options = options::messages(mode, ordered, lifetime, traffic_class, tag)?;
        Ok(MessageSender::new(self.inner.open_messages(options).map_err(|e| error::open(py, &e))?))
    }

    /// The next stream of the far end: its sending half, if it is bidirectional, and its receiving half.
    fn poll_accept_stream<'py>(&self, py: Python<'py>, waiter: Option<Bound<'py, Waiter>>) -> Polled<'py> {
        runtime::check()?;
        match self.streams.attempt(waiter.as_ref(), |cx| self.accept(cx, |o| o.kind == FlowKind::Stream)) {
            Poll::Ready(Ok(IncomingFlow::Stream { recv, send })) => {
                let halves = (send.map(Sender::new), Receiver::new(recv));
                Ok(Some(halves.into_pyobject(py)?.into_any()))
            }
            Poll::Ready(Ok(_)) | Poll::Pending => Ok(None),
            Poll::Ready(Err(closed)) => Err(error::session(py, &closed)),
        }
    }

    /// The next flow of messages of the far end.
    fn poll_accept_messages<'py>(&self, py: Python<'py>, waiter: Option<Bound<'py, Waiter>>) -> Polled<'py> {
        runtime::check()?;
        match self.messages.attempt(waiter.as_ref(), |cx| self.accept(cx, |o| o.kind != FlowKind::Stream)) {
            Poll::Ready(Ok(IncomingFlow::Messages(recv))) => Ok(Some(Bound::new(py, MessageReceiver::new(recv))?.into_any())),
            Poll::Ready(Ok(_)) | Poll::Pending => Ok(None),
            Poll::Ready(Err(closed)) => Err(error::session(py, &closed)),
        }
    }

    /// Sends a datagram; false: there is no room, and it was dropped.
    fn send_datagram(&self, py: Python<'_>, data: &Bound<'_, PyAny>) -> PyResult<bool> {
        runtime::check()?;
        match self.inner.send_datagram(buffer::block(data)?) {
            Ok(()) => Ok(true),
            Err(TrySendError::Full(_)) => Ok(false),
            Err(TrySendError::Failed { error, .. }) => Err(error::flow(py, &error)),
        }
    }

    /// The next datagram of the far end.
    fn poll_recv_datagram<'py>(&self, py: Python<'py>, waiter: Option<Bound<'py, Waiter>>) -> Polled<'py> {
        runtime::check()?;
        match self.datagrams.attempt(waiter.as_ref(), |cx| self.inner.poll_recv_datagram(cx)) {
            Poll::Ready(Ok(data)) => Ok(Some(PyBytes::new(py, &data).into_any())),
            Poll::Pending => Ok(None),
            Poll::Ready(Err(closed)) => Err(error::session(py, &closed)),
        }
    }

    /// Begins to close gracefully, for at most so many seconds (the endpoint's linger if none are given).
    fn close(&self, code: u64, reason: &str, linger: Option<f64>) -> PyResult<()> {
        runtime::check()?;
        let linger = linger.map(|s| options::seconds("linger", s)).transpose()?;
        let mut cx = Context::from_waker(Waker::noop());
        // The first look begins it, and it goes on.
        match linger {
            Some(linger) => drop(pin!(self.inner.close_within(code, reason, linger)).poll(&mut cx)),
            None => drop(pin!(self.inner.close(code, reason)).poll(&mut cx)),
        }
        Ok(())
    }

    /// Ends it at once.
    fn abort(&self, code: u64, reason: &str) -> PyResult<()> {
        runtime::check()?;
        self.inner.abort(code, reason);
        Ok(())
    }

    /// How it ended, once it has.
    fn poll_closed<'py>(&self, py: Python<'py>, waiter: Option<Bound<'py, Waiter>>) -> Polled<'py> {
        runtime::check()?;
        match self.closed.attempt(waiter.as_ref(), |cx| pin!(self.inner.closed()).poll(cx)) {
            Poll::Ready(outcome) => Ok(Some(error::outcome(py, &outcome)?)),
            Poll::Pending => Ok(None),
        }
    }

    /// Why it ended, if it did.
    fn close_reason<'py>(&self, py: Python<'py>) -> PyResult<Option<Bound<'py, PyAny>>> {
        runtime::check()?;
        self.inner.close_reason().map(|reason| error::close_reason(py, &reason)).transpose()
    }

    /// The next rate to produce, in bits per second.
    fn poll_target_rate<'py>(&self, py: Python<'py>, waiter: Option<Bound<'py, Waiter>>) -> Polled<'py> {
        runtime::check()?;
        let mut rates = lock(&self.rates);
        let rates = rates.get_or_insert_with(|| self.inner.target_rates());
        let next = |cx: &mut Context<'_>| match ready!(rates.poll_rate(cx)) {
            Some(rate) => Poll::Ready(Ok(rate)),
            None => pin!(self.inner.closed()).poll(cx).map(|outcome| Err(noctule::SessionClosed(outcome))),
        };
        match self.target_rate.attempt(waiter.as_ref(), next) {
            Poll::Ready(Ok(rate)) => Ok(Some(PyFloat::new(py, rate.bytes_per_sec() * 8.0).into_any())),
            Poll::Pending => Ok(None),
            Poll::Ready(Err(closed)) => Err(error::session(py, &closed)),
        }
    }

    /// The far end's key.
    fn peer_key(&self) -> PublicKey {
        PublicKey(self.inner.peer_key())
    }

    /// The far end's address, as long as it is known.
    fn remote_address(&self) -> PyResult<Option<(String, u16)>> {
        runtime::check()?;
        Ok(self.inner.remote_address().map(|a| (a.ip().to_string(), a.port())))
    }

    /// Changes the congestion control of what this side sends.
    fn set_congestion(&self, name: &str) -> PyResult<()> {
        runtime::check()?;
        self.inner.set_congestion(options::congestion(name)?);
        Ok(())
    }

    /// Counters and estimates.
    fn stats<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyDict>> {
        runtime::check()?;
        stats::session(py, &self.inner.stats())
    }
}

/// What a call that answers `True` returns.
pub fn answer<'py>(py: Python<'py>, polled: Poll<Result<(), Fault>>) -> Polled<'py> {
    match polled {
        Poll::Ready(Ok(())) => Ok(Some(done(py))),
        Poll::Pending => Ok(None),
        Poll::Ready(Err(fault)) => Err(fault.raise(py)),
    }
}

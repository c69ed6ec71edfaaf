//! One node on one or several UDP sockets: opens sessions and takes those that others open.

use crate::bridge::{Waiter, Waiting, lock};
use crate::error;
use crate::keys::{Identity, PublicKey};
use crate::options::EndpointOptions;
use crate::runtime::{self, Kept};
use crate::session::Session;
use crate::{Polled, done, end, stats};
use noctule::ConnectError;
use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;
use pyo3::types::PyDict;
use std::future::Future;
use std::pin::pin;
use std::sync::Mutex;
use std::task::Poll;
use tokio::sync::oneshot;
use tokio::task::AbortHandle;

/// A node.
#[pyclass(frozen, module = "noctule._core")]
pub struct Endpoint {
    inner: Kept<noctule::Endpoint>,
    incoming: Waiting,
    idle: Waiting,
}

#[pymethods]
impl Endpoint {
    /// On these addresses, `ADDRESS:PORT` each; on a port that the system chooses if there are none.
    #[new]
    fn new(addresses: Vec<String>, identity: Option<Bound<'_, Identity>>, options: EndpointOptions, py: Python<'_>) -> PyResult<Self> {
        let addresses: Result<Vec<_>, String> = addresses.iter().map(|text| noctule::parse_address(text)).collect();
        let addresses = addresses.map_err(PyValueError::new_err)?;
        let config = options.config(identity.as_ref().map(Bound::get))?;
        let _entered = runtime::get()?.enter();
        let opened =
            if addresses.is_empty() { noctule::Endpoint::client(config) } else { noctule::Endpoint::bind_each(&addresses, config) };
        let inner = Kept::new(opened.map_err(|e| error::bind(py, &e))?);
        Ok(Self { inner, incoming: Waiting::default(), idle: Waiting::default() })
    }

    /// Begins to open a session with `host` (`HOST:PORT`), which must have this key if one is given.
    fn connect(&self, host: String, key: Option<Bound<'_, PublicKey>>) -> PyResult<Attempt> {
        let (endpoint, key) = (self.inner.clone(), key.map(|key| key.get().0));
        let (tell, told) = oneshot::channel();
        let task = runtime::get()?.spawn(async move {
            // The attempt may have been given up: then the session is closed when it is dropped.
            let _ = tell.send(endpoint.connect_host(&host, key).await);
        });
        Ok(Attempt { told: Mutex::new(Some(told)), task: Kept::new(Aborting(task.abort_handle())), waiting: Waiting::default() })
    }

    /// The next session that another node opened; `False` once the endpoint is closed.
    fn poll_accept<'py>(&self, py: Python<'py>, waiter: Option<Bound<'py, Waiter>>) -> Polled<'py> {
        runtime::check()?;
        match self.incoming.attempt(waiter.as_ref(), |cx| self.inner.poll_accept(cx)) {
            Poll::Pending => Ok(None),
            Poll::Ready(None) => Ok(Some(end(py))),
            Poll::Ready(Some(session)) => Ok(Some(Bound::new(py, Session::new(session))?.into_any())),
        }
    }

    /// Where its sockets are bound, with the ports that the system chose.
    fn local_addresses(&self) -> PyResult<Vec<(String, u16)>> {
        runtime::check()?;
        Ok(self.inner.local_addrs().iter().map(|a| (a.ip().to_string(), a.port())).collect())
    }

    /// Ends all sessions at once.
    fn close(&self, code: u64, reason: &str) -> PyResult<()> {
        runtime::check()?;
        self.inner.close(code, reason);
        Ok(())
    }

    /// `True` when no session and no link is left.
    fn poll_idle<'py>(&self, py: Python<'py>, waiter: Option<Bound<'py, Waiter>>) -> Polled<'py> {
        runtime::check()?;
        let polled = self.idle.attempt(waiter.as_ref(), |cx| pin!(self.inner.wait_idle()).poll(cx));
        Ok(polled.is_ready().then(|| done(py)))
    }

    /// Counters of the sockets and the node.
    fn stats<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyDict>> {
        runtime::check()?;
        stats::endpoint(py, &self.inner.stats())
    }
}

/// A session that is being opened. Dropping it gives the attempt up.
#[pyclass(frozen, module = "noctule._core")]
pub struct Attempt {
    told: Mutex<Option<oneshot::Receiver<Result<noctule::Session, ConnectError>>>>,
    task: Kept<Aborting>,
    waiting: Waiting,
}

struct Aborting(AbortHandle);

impl Drop for Aborting {
    fn drop(&mut self) {
        self.0.abort();
    }
}

#[pymethods]
impl Attempt {
    /// The session.
    fn poll<'py>(&self, py: Python<'py>, waiter: Option<Bound<'py, Waiter>>) -> Polled<'py> {
        runtime::check()?;
        let polled = self.waiting.attempt(waiter.as_ref(), |cx| {
            let mut told = lock(&self.told);
            let Some(receiver) = told.as_mut() else { return Poll::Ready(None) };
            let polled = pin!(receiver).poll(cx).map(Some);
            if polled.is_ready() {
                *told = None;
            }
            polled
        });
        match polled {
            Poll::Pending => Ok(None),
            Poll::Ready(None) => Err(error::usage(py, "the attempt is over")),
            Poll::Ready(Some(result)) => {
                // The task ends without a word only if it is given up.
                let session = result.unwrap_or(Err(ConnectError::EndpointClosed)).map_err(|e| error::connect(py, &e))?;
                Ok(Some(Bound::new(py, Session::new(session))?.into_any()))
            }
        }
    }

    /// Gives the attempt up.
    fn cancel(&self) -> PyResult<()> {
        runtime::check()?;
        self.task.0.abort();
        Ok(())
    }
}

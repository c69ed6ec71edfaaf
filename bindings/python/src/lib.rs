//! The compiled part of the Python package `noctule`: handles of `crates/net`, and calls that never wait.
//!
//! Whatever may have to wait is a method `poll_...` that answers at once: a value, or `None` and then a promise that the [`Waiter`](bridge::Waiter) which it was
//! given becomes ready. How to wait, on an event loop of asyncio or in a blocked thread, is Python's part (`python/noctule/_wait.py`). So no thread of the
//! packet loop ever takes the interpreter's lock (docs/decisions/0191).

mod bridge;
mod buffer;
mod endpoint;
mod error;
mod keys;
mod message;
mod options;
mod runtime;
mod session;
mod stats;
mod stream;

use pyo3::prelude::*;

/// `noctule._core`: see its stub, `_core.pyi`.
#[pymodule(gil_used = false)]
mod _core {
    use pyo3::prelude::*;

    #[pymodule_export]
    use crate::bridge::{Bridge, Waiter};
    #[pymodule_export]
    use crate::endpoint::{Attempt, Endpoint};
    #[pymodule_export]
    use crate::keys::{Identity, PublicKey};
    #[pymodule_export]
    use crate::message::{Message, MessageReceiver, MessageSender};
    #[pymodule_export]
    use crate::options::congestion_controls;
    #[pymodule_export]
    use crate::session::Session;
    #[pymodule_export]
    use crate::stream::{Receiver, Sender};

    #[pymodule_init]
    fn init(module: &Bound<'_, PyModule>) -> PyResult<()> {
        crate::runtime::refuse_subinterpreters()?;
        crate::runtime::watch_forks()?;
        module.add("__version__", env!("CARGO_PKG_VERSION"))
    }
}

/// What `poll_...` returns: `None` when there is nothing yet.
pub(crate) type Polled<'py> = PyResult<Option<Bound<'py, PyAny>>>;

/// The answer of calls that have nothing to say but that they are done.
pub(crate) fn done(py: Python<'_>) -> Bound<'_, PyAny> {
    pyo3::types::PyBool::new(py, true).to_owned().into_any()
}

/// The answer of calls that have come to an end: nothing more follows.
pub(crate) fn end(py: Python<'_>) -> Bound<'_, PyAny> {
    pyo3::types::PyBool::new(py, false).to_owned().into_any()
}

//! Errors of `crates/net` as exceptions of `noctule._errors`, with what is known as attributes.

use noctule::{BindError, CloseReason, ConnectError, FlowError, OpenError, PublicKey, SessionClosed, SessionOutcome};
use pyo3::exceptions::PyRuntimeError;
use pyo3::prelude::*;
use pyo3::sync::PyOnceLock;
use pyo3::types::{PyBytes, PyDict, PyType};

/// `IdleTimeout` gives `idle_timeout`.
pub fn snake(name: &str) -> String {
    let mut text = String::with_capacity(name.len() + 4);
    for (at, c) in name.char_indices() {
        if c.is_ascii_uppercase() && at > 0 {
            text.push('_');
        }
        text.push(c.to_ascii_lowercase());
    }
    text
}

/// A class of the Python part.
fn class<'py>(py: Python<'py>, module: &str, name: &str) -> PyResult<Bound<'py, PyAny>> {
    py.import(module)?.getattr(name)
}

/// An exception of `noctule._errors`, with keyword arguments for its attributes.
fn make(py: Python<'_>, name: &str, message: &str, fields: Option<&Bound<'_, PyDict>>) -> PyErr {
    match class(py, "noctule._errors", name).and_then(|class| class.call((message,), fields)) {
        Ok(exception) => PyErr::from_value(exception),
        Err(error) => error,
    }
}

/// An exception that has a field `kind` only.
fn of_kind(py: Python<'_>, name: &str, kind: &str, message: &str) -> PyErr {
    let fields = PyDict::new(py);
    match fields.set_item("kind", kind) {
        Ok(()) => make(py, name, message, Some(&fields)),
        Err(error) => error,
    }
}

/// A call that does not fit the object.
pub fn usage(py: Python<'_>, message: &str) -> PyErr {
    make(py, "UsageError", message, None)
}

/// `CloseReason` of `noctule._types`.
pub fn close_reason<'py>(py: Python<'py>, reason: &CloseReason) -> PyResult<Bound<'py, PyAny>> {
    static CLASS: PyOnceLock<Py<PyType>> = PyOnceLock::new();
    let class = CLASS.import(py, "noctule._types", "CloseReason")?;
    class.call1((
        snake(&format!("{:?}", reason.code)),
        snake(&format!("{:?}", reason.layer)),
        reason.application,
        reason.reason.to_string(),
        reason.is_remote,
        reason.to_string(),
    ))
}

/// `Outcome` of `noctule._types`.
pub fn outcome<'py>(py: Python<'py>, outcome: &SessionOutcome) -> PyResult<Bound<'py, PyAny>> {
    static CLASS: PyOnceLock<Py<PyType>> = PyOnceLock::new();
    let class = CLASS.import(py, "noctule._types", "Outcome")?;
    class.call1((close_reason(py, &outcome.reason)?, outcome.all_delivered, outcome.all_received))
}

pub fn bind(py: Python<'_>, error: &BindError) -> PyErr {
    let kind = match error {
        BindError::InUse(_) => "in_use",
        BindError::Permission(_) => "permission",
        BindError::NotAvailable(_) => "not_available",
        BindError::Config(_) => "config",
        BindError::NoRuntime => return PyRuntimeError::new_err(error.to_string()),
        _ => "io",
    };
    of_kind(py, "BindError", kind, &error.to_string())
}

pub fn connect(py: Python<'_>, error: &ConnectError) -> PyErr {
    let kind = match error {
        ConnectError::Unreachable(_) => "unreachable",
        ConnectError::NobodyListens(_) => "nobody_listens",
        ConnectError::Local { .. } => "local",
        ConnectError::Prohibited { .. } => "prohibited",
        ConnectError::Family { .. } => "family",
        ConnectError::WrongKey { .. } => "wrong_key",
        ConnectError::NotAuthorised => "not_authorised",
        ConnectError::VersionMismatch => "version_mismatch",
        ConnectError::Refused(_) => "refused",
        ConnectError::Resolve { .. } => "resolve",
        ConnectError::NoAddress(_) => "no_address",
        ConnectError::Syntax(_) => "syntax",
        ConnectError::Limit { .. } => "limit",
        ConnectError::EndpointClosed => "endpoint_closed",
        _ => "failed",
    };
    let fields = || {
        let fields = PyDict::new(py);
        fields.set_item("kind", kind)?;
        match error {
            ConnectError::WrongKey { expected, got } => {
                let key = |key: &Option<PublicKey>| key.map(crate::keys::PublicKey);
                fields.set_item("expected", key(expected))?;
                fields.set_item("found", key(got))?;
            }
            ConnectError::Refused(reason) | ConnectError::Failed(reason) => fields.set_item("reason", close_reason(py, reason)?)?,
            _ => {}
        }
        Ok(fields)
    };
    match fields() {
        Ok(fields) => make(py, "ConnectError", &error.to_string(), Some(&fields)),
        Err(error) => error,
    }
}

pub fn session(py: Python<'_>, closed: &SessionClosed) -> PyErr {
    let fields = || {
        let fields = PyDict::new(py);
        fields.set_item("outcome", outcome(py, &closed.0)?)?;
        Ok(fields)
    };
    match fields() {
        Ok(fields) => make(py, "SessionClosed", &closed.to_string(), Some(&fields)),
        Err(error) => error,
    }
}

pub fn open(py: Python<'_>, error: &OpenError) -> PyErr {
    match error {
        OpenError::Session(closed) => session(py, closed),
        OpenError::Limit { .. } => make(py, "LimitError", &error.to_string(), None),
        other => usage(py, &other.to_string()),
    }
}

pub fn flow(py: Python<'_>, error: &FlowError) -> PyErr {
    use noctule::Code;
    match error {
        FlowError::Session(closed) => session(py, closed),
        FlowError::Closed(reason) => {
            let name = match reason.code {
                Code::Reset => "StreamReset",
                Code::Stopped => "StreamStopped",
                _ => "FlowClosed",
            };
            let fields = || {
                let fields = PyDict::new(py);
                fields.set_item("reason", close_reason(py, reason)?)?;
                Ok(fields)
            };
            match fields() {
                Ok(fields) => make(py, name, &error.to_string(), Some(&fields)),
                Err(error) => error,
            }
        }
        FlowError::MessageTooLarge { size, limit } => {
            let fields = || {
                let fields = PyDict::new(py);
                fields.set_item("size", size)?;
                fields.set_item("limit", limit)?;
                Ok(fields)
            };
            match fields() {
                Ok(fields) => make(py, "MessageTooLarge", &error.to_string(), Some(&fields)),
                Err(error) => error,
            }
        }
        other => usage(py, &other.to_string()),
    }
}

/// Why a call on a flow failed. It becomes an exception when no lock is held any more: making one runs Python, which may switch to a thread that wants the lock.
#[derive(Clone, Debug)]
pub enum Fault {
    /// The flow or the session says so.
    Flow(FlowError),
    /// The call does not fit the object.
    Usage(&'static str),
    /// The stream ended early: what was read, and how much was wanted.
    Incomplete(Vec<u8>, usize),
    /// More than the caller takes; nothing is lost.
    TooLong(usize),
}

impl From<FlowError> for Fault {
    fn from(error: FlowError) -> Self {
        Self::Flow(error)
    }
}

impl Fault {
    /// As an exception.
    pub fn raise(self, py: Python<'_>) -> PyErr {
        match self {
            Self::Flow(error) => flow(py, &error),
            Self::Usage(message) => usage(py, message),
            Self::Incomplete(partial, expected) => incomplete(py, &partial, expected),
            Self::TooLong(limit) => {
                let message = format!("the stream has more than {limit} bytes: read it in parts, or ask for more");
                make(py, "LimitError", &message, None)
            }
        }
    }
}

fn incomplete(py: Python<'_>, partial: &[u8], expected: usize) -> PyErr {
    let made = class(py, "noctule._errors", "IncompleteReadError").and_then(|class| class.call1((PyBytes::new(py, partial), expected)));
    made.map_or_else(|error| error, PyErr::from_value)
}

//! Words and numbers of Python as options of flows and endpoints.

use crate::keys::{Identity, PublicKey};
use noctule::{Class, CongestionControl, EndpointConfig, FlowKind, FlowOptions, Mode, SharedKey};
use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;
use std::time::Duration;

/// Seconds as a duration; `what` names the option in the error.
pub fn seconds(what: &str, value: f64) -> PyResult<Duration> {
    Duration::try_from_secs_f64(value).map_err(|_| PyValueError::new_err(format!("{what} must be a number of seconds, 0 or more: {value}")))
}

/// The same, more than none at all.
fn some_seconds(what: &str, value: f64) -> PyResult<Duration> {
    let duration = seconds(what, value)?;
    if duration.is_zero() {
        return Err(PyValueError::new_err(format!("{what} must be more than 0 seconds")));
    }
    Ok(duration)
}

/// Names of the congestion controls.
#[pyfunction]
pub fn congestion_controls() -> Vec<String> {
    CongestionControl::names().split(", ").map(str::to_owned).collect()
}

pub fn congestion(name: &str) -> PyResult<CongestionControl> {
    CongestionControl::from_name(name).ok_or_else(|| {
        PyValueError::new_err(format!("no congestion control is called {name:?}: choose one of {}", CongestionControl::names()))
    })
}

fn mode(name: &str) -> PyResult<Mode> {
    match name {
        "brtp" => Ok(Mode::Brtp),
        "btp" => Ok(Mode::Btp),
        "transparent" => Ok(Mode::Transparent),
        _ => Err(PyValueError::new_err(format!("no mode of a flow is called {name:?}: choose one of brtp, btp, transparent"))),
    }
}

pub fn mode_name(mode: Mode) -> &'static str {
    match mode {
        Mode::Brtp => "brtp",
        Mode::Btp => "btp",
        Mode::Transparent => "transparent",
    }
}

fn class(name: &str) -> PyResult<Class> {
    match name {
        "bulk" => Ok(Class::Bulk),
        "latency" => Ok(Class::Latency),
        _ => Err(PyValueError::new_err(format!("no traffic class is called {name:?}: choose bulk or latency"))),
    }
}

/// The application's number for a flow has 62 bits, and the largest belongs to datagrams.
fn tag(tag: u64) -> PyResult<u64> {
    let most = (1 << 62) - 2;
    if tag > most {
        return Err(PyValueError::new_err(format!("a tag is at most {most}")));
    }
    Ok(tag)
}

pub fn stream(traffic_class: &str, number: u64) -> PyResult<FlowOptions> {
    Ok(FlowOptions { kind: FlowKind::Stream, class: class(traffic_class)?, tag: tag(number)?, ..FlowOptions::default() })
}

pub fn messages(name: &str, is_ordered: bool, lifetime: Option<f64>, traffic_class: &str, number: u64) -> PyResult<FlowOptions> {
    Ok(FlowOptions {
        mode: mode(name)?,
        kind: if is_ordered { FlowKind::OrderedMessages } else { FlowKind::UnorderedMessages },
        class: class(traffic_class)?,
        lifetime: lifetime.map(|s| some_seconds("lifetime", s)).transpose()?,
        tag: tag(number)?,
        ..FlowOptions::default()
    })
}

/// What an endpoint is opened with, as keyword arguments.
#[derive(FromPyObject)]
#[pyo3(from_item_all)]
pub struct EndpointOptions {
    authorised: Option<Vec<Py<PublicKey>>>,
    shared_key: Option<String>,
    congestion: String,
    connect_timeout: f64,
    idle_timeout: f64,
    linger: f64,
    max_message: usize,
    accept: bool,
}

impl EndpointOptions {
    pub fn config(self, identity: Option<&Identity>) -> PyResult<EndpointConfig> {
        let mut config = match identity {
            Some(identity) => EndpointConfig::new(identity.0.clone()),
            None => EndpointConfig::ephemeral()?,
        };
        config.node.authorised = self.authorised.map(|keys| keys.iter().map(|key| key.get().0).collect());
        if let Some(text) = self.shared_key {
            let key: SharedKey = text.parse().map_err(|e: noctule::KeyTextError| PyValueError::new_err(format!("shared_key: {e}")))?;
            config.node.psk = Some(key);
        }
        config.node.congestion = congestion(&self.congestion)?;
        config.node.connect_timeout = some_seconds("connect_timeout", self.connect_timeout)?;
        config.node.idle_timeout = some_seconds("idle_timeout", self.idle_timeout)?;
        config.linger = seconds("linger", self.linger)?;
        config.node.max_message = self.max_message;
        config.node.accept = self.accept;
        Ok(config)
    }
}

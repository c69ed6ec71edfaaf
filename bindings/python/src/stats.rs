//! Counters and estimates as dictionaries, from which the Python part makes its dataclasses. Times are seconds, rates bits per second.

use crate::error::snake;
use noctule::{EndpointStats, FlowStats, PathStats, SessionStats};
use pyo3::prelude::*;
use pyo3::types::{PyDict, PyList};

macro_rules! dict {
    ($py:expr, { $($name:ident: $value:expr),* $(,)? }) => {{
        let dict = PyDict::new($py);
        $(dict.set_item(stringify!($name), $value)?;)*
        Ok(dict)
    }};
}

pub fn flow<'py>(py: Python<'py>, s: &FlowStats) -> PyResult<Bound<'py, PyDict>> {
    dict!(py, {
        app_bytes: s.app_bytes,
        messages: s.messages,
        expired_messages: s.expired_messages,
        source_packets: s.source_packets,
        repair_packets: s.repair_packets,
        decoded_packets: s.decoded_packets,
        redundant_packets: s.redundant_packets,
        outstanding_packets: s.outstanding,
        memory: s.memory,
    })
}

fn path<'py>(py: Python<'py>, p: &PathStats) -> PyResult<Bound<'py, PyDict>> {
    dict!(py, {
        remote: (p.remote.ip().to_string(), p.remote.port()),
        state: snake(&format!("{:?}", p.state)),
        mtu: p.mtu,
        rtt: p.smoothed_rtt.as_secs_f64(),
        min_rtt: p.min_rtt.as_secs_f64(),
        loss: p.loss.get(),
        delivery_rate: 8.0 * p.delivery_rate.bytes_per_sec(),
        in_flight: p.in_flight,
        congestion_window: p.control.cwnd,
        congestion_state: p.control.state,
        sent_packets: p.sent_packets,
        sent_bytes: p.sent_bytes,
        received_packets: p.received_packets,
        received_bytes: p.received_bytes,
        lost_packets: p.lost_packets,
        migrations: p.migrations,
    })
}

pub fn session<'py>(py: Python<'py>, s: &SessionStats) -> PyResult<Bound<'py, PyDict>> {
    let paths = s.all_paths().map(|p| path(py, p)).collect::<PyResult<Vec<_>>>()?;
    dict!(py, {
        paths: PyList::new(py, paths)?,
        sent: flow(py, &s.flows.sent)?,
        received: flow(py, &s.flows.received)?,
        handshake_time: s.link.handshake_time.as_secs_f64(),
        is_plaintext: s.link.is_plaintext,
    })
}

pub fn endpoint<'py>(py: Python<'py>, s: &EndpointStats) -> PyResult<Bound<'py, PyDict>> {
    dict!(py, {
        sent_datagrams: s.sent_datagrams,
        sent_bytes: s.sent_bytes,
        received_datagrams: s.received_datagrams,
        received_bytes: s.received_bytes,
        memory_used: s.memory.used,
        memory_limit: s.memory.limit,
    })
}

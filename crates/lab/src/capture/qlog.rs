//! What a node of the simulator traces, as a file of qlog (draft-ietf-quic-qlog-main-schema; RFC 7464), with virtual times.

use std::io::{self, Write};

use noctule_proto::trace::{TraceEvent, file};
use serde_json::json;

use super::bounded::{Bounded, Kept};

/// A file of one node's events.
#[derive(Debug)]
pub struct Qlog<W> {
    out: Bounded<W>,
}

impl<W: Write> Qlog<W> {
    /// Begins with the header, whose `title` tells people what was traced.
    ///
    /// # Errors
    /// It cannot be written.
    pub fn new(out: W, limit: u64, title: &str) -> io::Result<Self> {
        let header = json!({
            "file_schema": file::SCHEMA,
            "serialization_format": file::SERIALIZATION,
            "qlog_version": file::VERSION,
            "qlog_format": file::FORMAT,
            "title": title,
            "trace": {
                "vantage_point": {"type": "unknown", "name": format!("noctule-lab {}", env!("CARGO_PKG_VERSION"))},
                // Virtual time begins at zero.
                "common_fields": {"protocol_type": [file::PROTOCOL], "time_format": "relative", "reference_time": 0.0},
            },
        });
        let head = format!("{}{header}\n", char::from(file::RECORD_SEPARATOR));
        Ok(Self { out: Bounded::new(out, limit, head.as_bytes())? })
    }

    /// Something happened.
    pub fn put(&mut self, event: &TraceEvent) {
        match serde_json::to_vec(event) {
            Ok(text) => self.out.put(&[&[file::RECORD_SEPARATOR], &text, b"\n"]),
            Err(error) => self.out.fail(error.into()),
        }
    }

    /// Everything is written.
    ///
    /// # Errors
    /// Something was not.
    pub fn finish(&mut self, file: &str) -> io::Result<Kept> {
        self.out.finish(file)
    }
}

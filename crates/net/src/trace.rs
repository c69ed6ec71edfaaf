//! The file of trace events: qlog's JSON text sequence (draft-ietf-quic-qlog-main-schema §5; RFC 7464), from what the node tells (P22).

use noctule_proto::trace::{TraceEvent, file};
use serde_json::json;
use std::fmt;
use std::fs::File;
use std::io::{self, Write};
use std::path::Path;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{SystemTime, UNIX_EPOCH};

struct Inner {
    out: Box<dyn Write + Send>,
    title: String,
    /// Records of one call: they are written together.
    records: Vec<u8>,
    /// The disk is full, or the like: nothing more is written, and the owner can ask.
    failed: Option<io::Error>,
}

/// Where an endpoint writes its trace events. Clones write to the same place; one endpoint at a time should.
#[derive(Clone)]
pub struct TraceLog {
    inner: Arc<Mutex<Inner>>,
}

impl TraceLog {
    /// Writes to a file, which is created or emptied.
    ///
    /// # Errors
    /// The file cannot be created.
    pub fn create(path: &Path, title: &str) -> io::Result<Self> {
        Ok(Self::new(Box::new(File::create(path)?), title))
    }

    /// Writes to anything; what happened together is one write, and a flush. `title` tells people what was traced.
    pub fn new(out: Box<dyn Write + Send>, title: &str) -> Self {
        Self { inner: Arc::new(Mutex::new(Inner { out, title: title.to_owned(), records: Vec::new(), failed: None })) }
    }

    /// Why writing ended early, if it did; told once.
    pub fn take_error(&self) -> Option<io::Error> {
        self.lock().failed.take()
    }

    fn lock(&self) -> MutexGuard<'_, Inner> {
        self.inner.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The first record. The node's clock begins now.
    pub(crate) fn begin(&self, is_server: bool) {
        let mut inner = self.lock();
        let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        let header = json!({
            "file_schema": file::SCHEMA,
            "serialization_format": file::SERIALIZATION,
            "qlog_version": file::VERSION,
            "qlog_format": file::FORMAT,
            "title": inner.title,
            "trace": {
                "vantage_point": {"type": if is_server { "server" } else { "client" }, "name": format!("noctule {}", env!("CARGO_PKG_VERSION"))},
                "common_fields": {
                    "protocol_type": [file::PROTOCOL],
                    "time_format": "relative",
                    "reference_time": since.as_secs_f64() * 1e3,
                },
            },
        });
        inner.put(&header);
        inner.write();
    }

    pub(crate) fn write(&self, events: &[TraceEvent]) {
        let mut inner = self.lock();
        for event in events {
            inner.put(event);
        }
        // Nothing waits here: a process that is killed leaves what it has told.
        inner.write();
    }
}

impl Inner {
    fn put(&mut self, record: &impl serde::Serialize) {
        self.records.push(file::RECORD_SEPARATOR);
        if let Err(error) = serde_json::to_writer(&mut self.records, record) {
            self.failed.get_or_insert(error.into());
        }
        self.records.push(b'\n');
    }

    fn write(&mut self) {
        if self.failed.is_none()
            && let Err(error) = self.out.write_all(&self.records).and_then(|()| self.out.flush())
        {
            self.failed = Some(error);
        }
        self.records.clear();
    }
}

impl fmt::Debug for TraceLog {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("TraceLog").field("title", &self.lock().title).finish_non_exhaustive()
    }
}

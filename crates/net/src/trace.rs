//! The file of trace events: qlog's JSON text sequence (draft-ietf-quic-qlog-main-schema §5; RFC 7464), from what the node tells (P22).

use noctule_proto::trace::{TraceEvent, file};
use serde_json::json;
use std::fmt;
use std::fs::File;
use std::io::{self, BufWriter, Write};
use std::path::Path;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

/// A process that is killed loses events of so long at most.
const FLUSH_EVERY: Duration = Duration::from_millis(200);

struct Inner {
    out: Box<dyn Write + Send>,
    title: String,
    flushed: Instant,
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
        Ok(Self::new(Box::new(BufWriter::with_capacity(256 * 1024, File::create(path)?)), title))
    }

    /// Writes to anything. `title` tells people what was traced.
    pub fn new(out: Box<dyn Write + Send>, title: &str) -> Self {
        Self { inner: Arc::new(Mutex::new(Inner { out, title: title.to_owned(), flushed: Instant::now(), failed: None })) }
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
        inner.flush();
    }

    pub(crate) fn write(&self, events: &[TraceEvent]) {
        let mut inner = self.lock();
        for event in events {
            inner.put(event);
        }
        if inner.flushed.elapsed() > FLUSH_EVERY {
            inner.flush();
        }
    }

    pub(crate) fn flush(&self) {
        self.lock().flush();
    }
}

impl Inner {
    fn flush(&mut self) {
        if let Err(error) = self.out.flush() {
            self.failed.get_or_insert(error);
        }
        self.flushed = Instant::now();
    }

    fn put(&mut self, record: &impl serde::Serialize) {
        if self.failed.is_some() {
            return;
        }
        let written = self
            .out
            .write_all(&[file::RECORD_SEPARATOR])
            .and_then(|()| serde_json::to_writer(&mut self.out, record).map_err(io::Error::from))
            .and_then(|()| self.out.write_all(b"\n"));
        if let Err(error) = written {
            self.failed = Some(error);
        }
    }
}

impl fmt::Debug for TraceLog {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("TraceLog").field("title", &self.lock().title).finish_non_exhaustive()
    }
}

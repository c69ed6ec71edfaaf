//! Reads records from a stream.

use super::super::CHUNK;
use super::{MAX_RECORD, Malformed, Record, malformed};
use crate::failure::Failure;
use bytes::{Buf, Bytes, BytesMut};
use noctule::{FlowError, RecvStream};
use noctule_proto::wire::varint::Reader;
use std::time::Duration;
use thiserror::Error;

/// Takes a whole record from the front of `buffer`, if there is one. Records of unknown optional types are skipped.
pub fn split(buffer: &mut BytesMut) -> Result<Option<Record>, Malformed> {
    loop {
        let mut r = Reader::new(buffer);
        let (Ok(kind), Ok(length)) = (r.varint(), r.varint()) else { return Ok(None) };
        let Some(length) = usize::try_from(length).ok().filter(|l| *l <= MAX_RECORD) else {
            return malformed(format!("it has {length} bytes, at most {MAX_RECORD} are allowed"));
        };
        if r.rest().len() < length {
            return Ok(None);
        }
        let head = buffer.len() - r.rest().len();
        buffer.advance(head);
        let body = buffer.split_to(length).freeze();
        if let Some(record) = Record::parse(kind, body)? {
            return Ok(Some(record));
        }
    }
}

/// Reads records of a stream in a task.
pub struct Records {
    stream: RecvStream,
    /// How long the other side may take for its next bytes.
    idle: Duration,
    buffer: BytesMut,
    chunks: Vec<Bytes>,
}

/// Why there is no record.
#[derive(Debug, Error)]
pub enum RecordError {
    /// The stream broke.
    #[error(transparent)]
    Flow(#[from] FlowError),
    /// The bytes are no valid record.
    #[error(transparent)]
    Malformed(#[from] Malformed),
    /// Nothing came for too long.
    #[error("nothing came for {} s", .0.as_secs())]
    Idle(Duration),
}

impl Records {
    /// Reads from the front of `stream`.
    pub fn new(stream: RecvStream) -> Self {
        Self { stream, idle: Duration::MAX, buffer: BytesMut::new(), chunks: Vec::new() }
    }

    /// Sets how long the other side may be silent, from now on.
    pub fn set_idle(&mut self, idle: Duration) {
        self.idle = idle;
    }

    /// The next record; `None` at the end of the stream. May be dropped and called again, as `select!` does.
    pub async fn next(&mut self) -> Result<Option<Record>, RecordError> {
        loop {
            if let Some(record) = split(&mut self.buffer)? {
                return Ok(Some(record));
            }
            let read = tokio::time::timeout(self.idle, self.stream.read_chunks(&mut self.chunks, CHUNK)).await;
            if read.map_err(|_| RecordError::Idle(self.idle))?? == 0 {
                return if self.buffer.is_empty() { Ok(None) } else { Ok(malformed("it ends half-way")?) };
            }
            self.chunks.drain(..).for_each(|c| self.buffer.extend_from_slice(&c));
        }
    }

    /// The receiver's next record; the end of the stream is an error. Dropping the future loses nothing.
    pub async fn answer(&mut self) -> Result<Record, Failure> {
        match self.next().await {
            Ok(Some(record)) => Ok(record),
            Ok(None) => Err(Failure::PeerGone("it ended before it had verified everything".into())),
            Err(RecordError::Flow(e)) => Err(e.into()),
            Err(e) => Err(Failure::PeerGone(e.to_string())),
        }
    }
}

//! Length-prefixed JSON records over a stream, for conversations that are short.

use crate::failure::Failure;
use bytes::Bytes;
use noctule::{FlowError, RecvStream, SendStream};
use noctule_proto::far_text::escaped;
use serde::Serialize;
use serde::de::DeserializeOwned;
use std::collections::VecDeque;

/// Longest record in bytes.
pub const MAX_RECORD: usize = 1 << 20;
/// Appends a record to `out`.
pub fn put<T: Serialize>(out: &mut Vec<u8>, record: &T) -> Result<(), Failure> {
    let body = serde_json::to_vec(record).map_err(|e| Failure::system("a record", e))?;
    if body.len() > MAX_RECORD {
        return Err(Failure::Usage("a name is too long to be sent".into()));
    }
    out.extend_from_slice(&(body.len() as u32).to_be_bytes());
    out.extend_from_slice(&body);
    Ok(())
}

/// Sends a record at once.
pub async fn write<T: Serialize>(stream: &mut SendStream, record: &T) -> Result<(), Failure> {
    let mut out = Vec::new();
    put(&mut out, record)?;
    stream.write_all(&out).await?;
    Ok(())
}

/// Reads records and contents from a stream, without copying contents.
pub struct Reader {
    stream: RecvStream,
    chunks: VecDeque<Bytes>,
    scratch: Vec<Bytes>,
    /// The beginning of a record, kept here so that a reading that is dropped half-way loses nothing.
    partial: Vec<u8>,
}

impl Reader {
    /// Reads from the front of `stream`.
    pub fn new(stream: RecvStream) -> Self {
        Self { stream, chunks: VecDeque::new(), scratch: Vec::new(), partial: Vec::new() }
    }

    /// At least one chunk is there afterwards; false at the end of the stream.
    async fn fill(&mut self) -> Result<bool, FlowError> {
        if self.chunks.is_empty() {
            self.stream.read_chunks(&mut self.scratch, super::CHUNK).await?;
            self.chunks.extend(self.scratch.drain(..));
        }
        Ok(!self.chunks.is_empty())
    }

    /// Up to `max` bytes of content; `None` at the end of the stream.
    pub async fn content(&mut self, max: u64) -> Result<Option<Bytes>, FlowError> {
        if !self.fill().await? {
            return Ok(None);
        }
        let Some(front) = self.chunks.front_mut() else { return Ok(None) };
        let n = usize::try_from(max).unwrap_or(usize::MAX).min(front.len());
        let part = front.split_to(n);
        if front.is_empty() {
            self.chunks.pop_front();
        }
        Ok(Some(part))
    }

    /// Reads until `partial` holds `n` bytes; false at the end of the stream.
    async fn gather(&mut self, n: usize) -> Result<bool, FlowError> {
        while self.partial.len() < n {
            match self.content((n - self.partial.len()) as u64).await? {
                Some(part) => self.partial.extend_from_slice(&part),
                None => return Ok(false),
            }
        }
        Ok(true)
    }

    /// The next record; `None` at the end of the stream. May be dropped and called again, as `select!` does.
    pub async fn record<T: DeserializeOwned>(&mut self) -> Result<Option<T>, Failure> {
        if !self.gather(4).await? {
            return Ok(None);
        }
        let prefix = &self.partial;
        let len = u32::from_be_bytes([prefix[0], prefix[1], prefix[2], prefix[3]]) as usize;
        if len > MAX_RECORD {
            return Err(Failure::Stranger(format!("it sent a record of {len} bytes, at most {MAX_RECORD} are allowed")));
        }
        if !self.gather(4 + len).await? {
            return Ok(None);
        }
        let body = std::mem::take(&mut self.partial).split_off(4);
        serde_json::from_slice(&body)
            .map(Some)
            .map_err(|e| Failure::Stranger(format!("it sent a record that cannot be read: {}", escaped(&e.to_string()))))
    }
}

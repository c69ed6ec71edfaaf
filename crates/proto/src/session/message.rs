//! What the application of the far end sent.

use bytes::Bytes;

/// A message that was received.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Message {
    /// Number that the sender counted, from 0.
    pub id: u64,
    /// Content.
    pub data: Bytes,
}

//! The sealing point of a session: one source packet is the unit of sealing (P20).
//!
//! A source packet is sealed after it has been framed and before it is coded, with a nonce made of flow and sequence number; it is opened
//! after it has been decoded and before its framing is looked at. Nothing between the two ends sees its inside.

use crate::error::CloseReason;
use crate::ids::Seq;
use bytes::{Bytes, BytesMut};

/// Cipher of a session, fixed for its life.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum Cipher {
    /// Nothing is sealed: permitted only where the link's peer *is* the session's peer, since the link's own cipher then covers the whole way (P20).
    #[default]
    None,
}

impl Cipher {
    /// Bytes by which sealing lengthens a source packet.
    pub fn overhead(&self) -> usize {
        match self {
            Self::None => 0,
        }
    }

    /// Seals the payload that `packet` holds from `start` on, in place. Called exactly once per sequence number, since the plaintext of a sequence number never changes (P20).
    pub fn seal(&self, _seq: Seq, _packet: &mut BytesMut, _start: usize) {
        match self {
            Self::None => {}
        }
    }

    /// Opens a decoded payload. A payload that was altered on its way is an error.
    pub fn open(&self, _seq: Seq, payload: Bytes) -> Result<Bytes, CloseReason> {
        match self {
            Self::None => Ok(payload),
        }
    }
}

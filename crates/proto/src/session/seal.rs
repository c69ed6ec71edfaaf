//! The sealing point of a session: one source packet is the unit of sealing (P20).
//!
//! A source packet is sealed after it has been framed and before it is coded; it is opened after it has been decoded and before its framing is
//! looked at. Nothing between the two ends sees its inside.

use crate::crypto::{CryptoError, FlowKey, SESSION_OVERHEAD, SESSION_PREFIX};
use crate::ids::Seq;
use bytes::Bytes;

/// Cipher of a flow, fixed for its life once it is known.
#[derive(Debug, Default)]
pub enum Cipher {
    /// Nothing is sealed: permitted only where the link's peer *is* the session's peer, since the link's own cipher then covers the whole route (P20).
    #[default]
    None,
    /// The session's keys are still being agreed: nothing but handshake packets may pass.
    Awaited,
    /// Sealed and tagged end to end.
    Sealed(Box<FlowKey>),
}

impl Cipher {
    /// Bytes by which sealing lengthens a source packet.
    pub fn overhead(&self) -> usize {
        match self {
            Self::None => 0,
            Self::Awaited | Self::Sealed(_) => SESSION_OVERHEAD,
        }
    }

    /// Bytes between the length field and the payload, to be left free.
    pub fn prefix(&self) -> usize {
        match self {
            Self::None => 0,
            Self::Awaited | Self::Sealed(_) => SESSION_PREFIX,
        }
    }

    /// The key, if there is one.
    pub fn key_mut(&mut self) -> Option<&mut FlowKey> {
        if let Self::Sealed(key) = self { Some(key) } else { None }
    }

    /// The same to look at.
    pub fn key(&self) -> Option<&FlowKey> {
        if let Self::Sealed(key) = self { Some(key) } else { None }
    }

    /// There are keys, or none are needed.
    pub fn is_ready(&self) -> bool {
        !matches!(self, Self::Awaited)
    }

    /// Completes a symbol in place: `length | prefix | payload | rest of the overhead`, of which only the payload has been written. Called exactly once
    /// per sequence number, since the plaintext of a sequence number never changes (P20).
    ///
    /// # Errors
    /// `NoKey` if the key is awaited, `Misuse` if the room was not kept.
    pub fn seal(&mut self, seq: Seq, symbol: &mut [u8]) -> Result<(), CryptoError> {
        match self {
            Self::None => {
                let length = symbol.len() - 2;
                symbol[..2].copy_from_slice(&(length as u16).to_be_bytes()); // P5
                Ok(())
            }
            Self::Awaited => Err(CryptoError::NoKey),
            Self::Sealed(key) => key.seal(seq, symbol),
        }
    }

    /// Opens a decoded payload.
    ///
    /// # Errors
    /// `Packet` if it was altered on the route.
    pub fn open(&mut self, seq: Seq, payload: Bytes) -> Result<Bytes, CryptoError> {
        match self {
            Self::None => Ok(payload),
            Self::Awaited => Err(CryptoError::NoKey),
            Self::Sealed(key) => key.open(seq, &payload),
        }
    }

    /// Bytes of memory held.
    pub fn memory(&self) -> usize {
        match self {
            Self::None | Self::Awaited => 0,
            Self::Sealed(key) => key.memory(),
        }
    }
}

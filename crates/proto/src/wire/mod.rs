//! Bytes on the wire: checked views and value types (P1-P6). The format is described in `docs/spec/wire.md`.
//!
//! Nothing here panics on network bytes or allocates more than a small multiple of what came in.

pub mod ack;
pub mod coded;
mod display;
pub mod frame;
mod frame_codec;
#[cfg(test)]
mod frame_tests;
pub mod packet;
#[cfg(test)]
mod packet_tests;
pub mod params;
pub mod varint;

pub use frame_codec::{Frames, emit_grease, frame_type};
pub use varint::Reader;

use crate::error::Code;

/// Why bytes could not be understood.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
pub enum WireError {
    /// The bytes end too early.
    #[error("bytes end too early")]
    Truncated,
    /// A mandatory frame type that this version does not know (P1).
    #[error("unknown mandatory frame type {0:#x}")]
    UnknownFrame(u64),
    /// A field has a value that is not allowed.
    #[error("invalid {0}")]
    Invalid(&'static str),
}

impl WireError {
    /// Close code that a link ends with when its peer sent this (P1).
    pub fn code(self) -> Code {
        match self {
            Self::UnknownFrame(_) => Code::UnknownFrame,
            Self::Truncated | Self::Invalid(_) => Code::FrameEncoding,
        }
    }
}

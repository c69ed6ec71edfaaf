//! Identity, handshake, keys and sealing (P3, P19, P20).
//!
//! Nothing here reads a clock or a random source of its own: time and generators come from outside. The formats are described in `docs/spec/wire.md`.

mod aead;
pub mod cookie;
mod flow_key;
mod handshake;
#[cfg(test)]
mod handshake_tests;
mod identity;
#[cfg(test)]
mod key_tests;
mod keys;
mod link_keys;
pub mod mac1;
mod noise;
mod one_way;
mod rekey;
#[cfg(fuzzing)]
mod remembered;
mod session_keys;
mod session_renewal;
#[cfg(test)]
mod vector_tests;

pub use aead::{OpenJob, SealJob, choose_cipher, preferred_ciphers};
pub use flow_key::{FlowGeneration, FlowKey};
pub use handshake::{Established, Initiator, PreSharedKeys, Responder, ResponderStep};
pub use identity::{KeyTextError, PublicKey, SecretKey, SharedKey};
pub use keys::{RawKey, ReceiveKeys, SendKeys};
pub use link_keys::{GENERATION_PACKETS, LinkKeys, LinkKeysConfig};
pub use noctule_codes::mac::Tag as MacTag;
pub use one_way::{ANNOUNCEMENT_HEAD, ANNOUNCEMENT_TAG, Addressed, ObjectKey, open_announcement, seal_announcement};
pub use session_keys::{DirectionKeys, OVERHEAD as SESSION_OVERHEAD, PREFIX as SESSION_PREFIX, SessionKeys};
pub use session_renewal::{Fresh, Renewal};

use crate::error::{CloseReason, Code};

/// A seed that cannot be found from one of the two alone.
pub(crate) fn mixed(old: &[u8; 32], fresh: &[u8; 32]) -> [u8; 32] {
    let mut context = ring::digest::Context::new(&ring::digest::SHA256);
    context.update(b"noctule entropy");
    context.update(old);
    context.update(fresh);
    let mut seed = [0; 32];
    seed.copy_from_slice(context.finish().as_ref());
    seed
}

/// Why something secret could not be done.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
#[non_exhaustive]
pub enum CryptoError {
    /// A handshake message was not made with the right keys: a wrong static key, a wrong pre-shared key, or a change on the path.
    #[error("a handshake message failed authentication")]
    Authentication,
    /// The peer proved to own another key than the expected one.
    #[error("the peer's key is {actual}, not {expected}")]
    WrongKey {
        /// The key asked for.
        expected: PublicKey,
        /// The key that the peer owns.
        actual: PublicKey,
    },
    /// A handshake message is too short, too long or out of turn.
    #[error("a handshake message is malformed")]
    Malformed,
    /// This side's owner refused the peer or its parameters.
    #[error("refused: {0}")]
    Refused(CloseReason),
    /// A packet failed authentication.
    #[error("a packet failed authentication")]
    Packet,
    /// The keys for this packet are gone, not there yet, or may not be used any more (P3).
    #[error("no key for this packet")]
    NoKey,
    /// A key reached its limit of use (P3).
    #[error("a key reached its limit of use")]
    Exhausted,
    /// Use that does not fit the state, a defect of the caller.
    #[error("{0}")]
    Misuse(&'static str),
}

impl CryptoError {
    /// Close code that a link ends with because of this.
    pub fn code(&self) -> Code {
        match self {
            Self::WrongKey { .. } => Code::WrongKey,
            Self::Refused(reason) => reason.code,
            Self::Exhausted => Code::KeyExhausted,
            Self::Misuse(_) => Code::Internal,
            Self::Authentication | Self::Malformed | Self::Packet | Self::NoKey => Code::Handshake,
        }
    }
}

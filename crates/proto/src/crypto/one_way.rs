//! Keys where there is no return path: an announcement by Noise's one-way pattern X, packets under the key that it carries (docs/spec/object.md 5).

use super::aead::PacketKey;
use super::keys::RawKey;
use super::noise::{self, Setup};
use super::{CryptoError, PublicKey, SecretKey};
use crate::ids::{PacketNumber, PathId};
use crate::wire::packet::TAG_LEN;
use crate::wire::params::Cipher;
use crate::work;
use core::fmt;
use rand_chacha::ChaCha12Rng;
use rand_core::SeedableRng;
use ring::{digest, hmac};

const PROLOGUE: &[u8] = b"noctule one-way";
/// Bytes in front of an announcement's tag: type and version.
pub const ANNOUNCEMENT_HEAD: usize = 1 + 4;
/// Bytes of the tag.
pub const ANNOUNCEMENT_TAG: usize = 16;

/// A MAC on announcements that needs the receiver's public key, as WireGuard's mac1. One hash tells a receiver which of them are not worth two Diffie-Hellman operations,
/// and a relay that was told the key which ones not to pass on.
#[derive(Clone)]
pub struct Addressed(hmac::Key);

impl Addressed {
    /// Of announcements to this receiver.
    pub fn to(receiver: &PublicKey) -> Self {
        let mut key = digest::Context::new(&digest::SHA256);
        key.update(b"noctule announcement");
        key.update(&receiver.0);
        Self(hmac::Key::new(hmac::HMAC_SHA256, key.finish().as_ref()))
    }

    fn tag(&self, head: &[u8], message: &[u8]) -> [u8; ANNOUNCEMENT_TAG] {
        work::hash();
        let mut mac = hmac::Context::with_key(&self.0);
        mac.update(head);
        mac.update(message);
        let mut tag = [0; ANNOUNCEMENT_TAG];
        tag.iter_mut().zip(mac.sign().as_ref()).for_each(|(to, from)| *to = *from);
        tag
    }

    /// The datagram with this head and Noise message.
    pub fn emit(&self, head: &[u8; ANNOUNCEMENT_HEAD], message: &[u8]) -> Vec<u8> {
        [head, &self.tag(head, message)[..], message].concat()
    }

    /// The Noise message of a datagram whose tag is right. Cost: one hash.
    pub fn check<'a>(&self, datagram: &'a [u8]) -> Option<&'a [u8]> {
        let (head, rest) = datagram.split_first_chunk::<ANNOUNCEMENT_HEAD>()?;
        let (said, message) = rest.split_first_chunk::<ANNOUNCEMENT_TAG>()?;
        // All bytes, whichever differs.
        let differs = self.tag(head, message).iter().zip(said).fold(0, |all, (a, b)| all | (a ^ b));
        (differs == 0).then_some(message)
    }
}

impl fmt::Debug for Addressed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Addressed(..)")
    }
}

fn setup<'a>(prologue: &'a [u8], secret: &'a SecretKey, peer: Option<&'a PublicKey>, psk: Option<&'a [u8; 32]>) -> Setup<'a> {
    Setup {
        name: if psk.is_some() { "Noise_Xpsk1_25519_ChaChaPoly_BLAKE2s" } else { "Noise_X_25519_ChaChaPoly_BLAKE2s" },
        prologue,
        secret: Some(secret.as_bytes()),
        peer: peer.map(|key| &key.0),
        psk: psk.map(|key| (1, key)),
    }
}

/// A message that only `peer` can read, and that only the owner of `secret` (or of the peer's own secret) can have made. `seed` must be random and of one use.
///
/// # Errors
/// The payload is too long (above 400 bytes), or a key is none.
pub fn seal_announcement(
    head: &[u8],
    secret: &SecretKey,
    peer: &PublicKey,
    psk: Option<&[u8; 32]>,
    seed: [u8; 32],
    payload: &[u8],
) -> Result<Vec<u8>, CryptoError> {
    let prologue = [PROLOGUE, head].concat();
    let mut state = setup(&prologue, secret, Some(peer), psk).build(true, &mut ChaCha12Rng::from_seed(seed))?;
    noise::write(&mut state, payload)
}

/// Sender and payload of such a message.
///
/// # Errors
/// It was made for another key, with another pre-shared key, or was altered.
pub fn open_announcement(
    head: &[u8],
    secret: &SecretKey,
    psk: Option<&[u8; 32]>,
    message: &[u8],
) -> Result<(PublicKey, Vec<u8>), CryptoError> {
    let prologue = [PROLOGUE, head].concat();
    // The reading side of a one-way pattern draws no randomness.
    let mut state = setup(&prologue, secret, None, psk).build(false, &mut ChaCha12Rng::from_seed([0; 32]))?;
    let payload = noise::read(&mut state, message)?;
    let peer = state.get_remote_static().and_then(|key| key.try_into().ok()).map(PublicKey).ok_or(CryptoError::Malformed)?;
    Ok((peer, payload))
}

/// Seals the packets of one object: ChaCha20-Poly1305, which is fast everywhere; no receiver can be asked what it prefers.
pub struct ObjectKey(PacketKey);

impl ObjectKey {
    /// Key and IV from the key that the announcement carries, bound to the object's root.
    ///
    /// # Errors
    /// None with 32 bytes.
    pub fn new(key: &[u8; 32], root: &[u8; 32]) -> Result<Self, CryptoError> {
        PacketKey::expand(&RawKey::new(*key), Cipher::ChaCha20Poly1305, &[b"noctule object packet", root]).map(Self)
    }

    /// Seals in place; the tag. Each number must be used once only.
    ///
    /// # Errors
    /// More bytes than the cipher takes.
    pub fn seal(&self, number: u64, header: &[u8], data: &mut [u8]) -> Result<[u8; TAG_LEN], CryptoError> {
        self.0.seal(self.0.nonce(PathId(0), PacketNumber(number)), header, data)
    }

    /// Opens in place.
    ///
    /// # Errors
    /// Not sealed with this key and number.
    pub fn open<'a>(&self, number: u64, header: &[u8], sealed: &'a mut [u8]) -> Result<&'a [u8], CryptoError> {
        self.0.open(self.0.nonce(PathId(0), PacketNumber(number)), header, sealed).map(|opened| &*opened)
    }
}

impl fmt::Debug for ObjectKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("ObjectKey(..)")
    }
}

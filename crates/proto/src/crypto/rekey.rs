//! Fresh Diffie-Hellman for the next key generation (P3): Noise NNpsk0 inside REKEY frames, bound to the generation before it.

use super::CryptoError;
use super::aead::Len;
use super::keys::RawKey;
use super::noise::{self, Setup};
use rand_chacha::ChaCha12Rng;
use ring::hkdf;
use snow::HandshakeState;
use zeroize::Zeroize;

const NAME: &str = "Noise_NNpsk0_25519_ChaChaPoly_BLAKE2s";

/// The label of links.
pub(super) const OF_LINKS: &[u8] = b"noctule rekey";

/// What the next generation is authenticated by: a key that only the two neighbours have, and the hash of the handshake before.
#[derive(Debug)]
pub(super) struct Root {
    /// What it is the root of: links and sessions never mistake each other's.
    label: &'static [u8],
    psk: RawKey,
    hash: [u8; 32],
}

impl Root {
    /// From the secrets of a generation (the link initiator's direction first) and its handshake hash.
    pub(super) fn new(label: &'static [u8], from_initiator: &RawKey, from_responder: &RawKey, hash: [u8; 32]) -> Result<Self, CryptoError> {
        let mut secrets = [0; 64];
        secrets[..32].copy_from_slice(from_initiator.as_bytes());
        secrets[32..].copy_from_slice(from_responder.as_bytes());
        let prk = hkdf::Salt::new(hkdf::HKDF_SHA256, &hash).extract(&secrets);
        secrets.zeroize();
        let mut psk = [0; 32];
        prk.expand(&[label], Len(32)).and_then(|okm| okm.fill(&mut psk)).map_err(|_| CryptoError::NoKey)?;
        let root = Self { label, psk: RawKey::new(psk), hash };
        psk.zeroize();
        Ok(root)
    }

    /// The pre-shared key of the exchange.
    #[cfg(test)]
    pub(super) fn psk(&self) -> &[u8; 32] {
        self.psk.as_bytes()
    }

    fn state(&self, generation: u64, is_initiator: bool, rng: &mut ChaCha12Rng) -> Result<HandshakeState, CryptoError> {
        let mut prologue = self.label.to_vec();
        prologue.extend_from_slice(&generation.to_be_bytes());
        prologue.extend_from_slice(&self.hash);
        Setup { name: NAME, prologue: &prologue, secret: None, peer: None, psk: Some((0, self.psk.as_bytes())) }.build(is_initiator, rng)
    }

    /// Step 0 for `generation`: what to keep and the message.
    pub(super) fn start(&self, generation: u64, rng: &mut ChaCha12Rng) -> Result<(HandshakeState, Vec<u8>), CryptoError> {
        let mut state = self.state(generation, true, rng)?;
        let message = noise::write(&mut state, &[])?;
        Ok((state, message))
    }

    /// The answer to step 0: new secrets and the message of step 1.
    pub(super) fn answer(&self, generation: u64, message: &[u8], rng: &mut ChaCha12Rng) -> Result<(Secrets, Vec<u8>), CryptoError> {
        let mut state = self.state(generation, false, rng)?;
        noise::read(&mut state, message)?;
        let reply = noise::write(&mut state, &[])?;
        Ok((Secrets::from(&mut state), reply))
    }
}

/// Secrets of a new generation.
pub(super) struct Secrets {
    pub from_initiator: RawKey,
    pub from_responder: RawKey,
    pub hash: [u8; 32],
}

impl Secrets {
    fn from(state: &mut HandshakeState) -> Self {
        let mut hash = [0; 32];
        hash.iter_mut().zip(state.get_handshake_hash()).for_each(|(to, from)| *to = *from);
        let (i, r) = state.dangerously_get_raw_split();
        Self { from_initiator: RawKey::new(i), from_responder: RawKey::new(r), hash }
    }
    /// From the answer of step 1.
    pub(super) fn finish(state: &mut HandshakeState, message: &[u8]) -> Result<Self, CryptoError> {
        noise::read(state, message)?;
        Ok(Self::from(state))
    }
}

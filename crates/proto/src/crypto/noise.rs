//! The Noise framework by `snow`, with its random source injected (P19).

use super::CryptoError;
use crate::wire::packet::Pattern;
use crate::work;
use core::cell::Cell;
use rand_chacha::ChaCha12Rng;
use rand_core::{Rng, SeedableRng};
use snow::params::{CipherChoice, DHChoice, HashChoice, NoiseParams};
use snow::resolvers::{CryptoResolver, DefaultResolver};
use snow::types::{Cipher, Dh, Hash, Random};
use snow::{Builder, Error, HandshakeState};

/// Longest Noise message that is read or written. Keys and parameters take half of it; more would only make half-open handshakes larger (P19).
pub(super) const MAX_MESSAGE: usize = 512;

/// Everything from `snow`'s pure-Rust set except randomness.
struct Resolver {
    /// Handed out once: two users must not draw the same numbers.
    rng: Cell<Option<ChaCha12Rng>>,
}

struct Source(ChaCha12Rng);

impl Random for Source {
    fn try_fill_bytes(&mut self, dest: &mut [u8]) -> Result<(), Error> {
        self.0.fill_bytes(dest);
        Ok(())
    }
}

impl CryptoResolver for Resolver {
    fn resolve_rng(&self) -> Option<Box<dyn Random>> {
        self.rng.take().map(|rng| Box::new(Source(rng)) as Box<dyn Random>)
    }
    fn resolve_dh(&self, choice: &DHChoice) -> Option<Box<dyn Dh>> {
        let dh = if *choice == DHChoice::Curve25519 { curve25519() } else { None };
        dh.map(|dh| Box::new(ContributoryDh(dh)) as Box<dyn Dh>)
    }
    fn resolve_hash(&self, choice: &HashChoice) -> Option<Box<dyn Hash>> {
        DefaultResolver.resolve_hash(choice)
    }
    fn resolve_cipher(&self, choice: &CipherChoice) -> Option<Box<dyn Cipher>> {
        DefaultResolver.resolve_cipher(choice)
    }
}

/// X25519 as `snow` has it.
pub(super) fn curve25519() -> Option<Box<dyn Dh>> {
    #[cfg(fuzzing)]
    return Some(Box::new(super::remembered::Remembered::default()));
    #[cfg(not(fuzzing))]
    DefaultResolver.resolve_dh(&DHChoice::Curve25519)
}

/// X25519 that refuses points of small order (RFC 7748 §6.1): their result is zero whatever the secret, so anyone could pose as such a key.
struct ContributoryDh(Box<dyn Dh>);

impl Dh for ContributoryDh {
    fn name(&self) -> &'static str {
        self.0.name()
    }
    fn pub_len(&self) -> usize {
        self.0.pub_len()
    }
    fn priv_len(&self) -> usize {
        self.0.priv_len()
    }
    fn set(&mut self, privkey: &[u8]) {
        work::dh();
        self.0.set(privkey);
    }
    fn generate(&mut self, rng: &mut dyn Random) -> Result<(), Error> {
        work::dh();
        self.0.generate(rng)
    }
    fn pubkey(&self) -> &[u8] {
        self.0.pubkey()
    }
    fn privkey(&self) -> &[u8] {
        self.0.privkey()
    }
    fn dh(&self, pubkey: &[u8], out: &mut [u8]) -> Result<(), Error> {
        work::dh();
        self.0.dh(pubkey, out)?;
        let is_zero = out.iter().take(self.0.dh_len()).fold(0, |all, b| all | b) == 0;
        if is_zero { Err(Error::Dh) } else { Ok(()) }
    }
}

/// What a Noise handshake is set up from.
pub(super) struct Setup<'a> {
    pub name: &'static str,
    pub prologue: &'a [u8],
    pub secret: Option<&'a [u8; 32]>,
    pub peer: Option<&'a [u8; 32]>,
    /// Position and key.
    pub psk: Option<(u8, &'a [u8; 32])>,
}

impl Setup<'_> {
    /// `rng` seeds the handshake's own generator.
    pub(super) fn build(&self, is_initiator: bool, rng: &mut ChaCha12Rng) -> Result<HandshakeState, CryptoError> {
        let mut seed = [0; 32];
        rng.fill_bytes(&mut seed);
        let resolver = Resolver { rng: Cell::new(Some(ChaCha12Rng::from_seed(seed))) };
        let build = || {
            let params: NoiseParams = self.name.parse()?;
            let mut builder = Builder::with_resolver(params, Box::new(resolver)).prologue(self.prologue)?;
            if let Some(secret) = self.secret {
                builder = builder.local_private_key(secret)?;
            }
            if let Some(peer) = self.peer {
                builder = builder.remote_public_key(peer)?;
            }
            if let Some((position, psk)) = self.psk {
                builder = builder.psk(position, psk)?;
            }
            if is_initiator { builder.build_initiator() } else { builder.build_responder() }
        };
        build().map_err(|_: Error| CryptoError::Misuse("keys and handshake pattern do not fit together"))
    }
}

/// Name of the protocol that a pattern stands for.
pub(super) const fn name(pattern: Pattern) -> &'static str {
    match pattern {
        Pattern::Ik => "Noise_IK_25519_ChaChaPoly_BLAKE2s",
        Pattern::Xx => "Noise_XX_25519_ChaChaPoly_BLAKE2s",
        Pattern::IkPsk2 => "Noise_IKpsk2_25519_ChaChaPoly_BLAKE2s",
        Pattern::XxPsk3 => "Noise_XXpsk3_25519_ChaChaPoly_BLAKE2s",
    }
}

/// The pre-shared key of a handshake that was set up without.
pub(super) fn set_psk(state: &mut HandshakeState, position: u8, psk: &[u8; 32]) -> Result<(), CryptoError> {
    state.set_psk(position.into(), psk).map_err(|_| CryptoError::Misuse("the pattern needs a pre-shared key"))
}

/// Position of the pre-shared key in a pattern.
pub(super) const fn psk_position(pattern: Pattern) -> Option<u8> {
    match pattern {
        Pattern::Ik | Pattern::Xx => None,
        Pattern::IkPsk2 => Some(2),
        Pattern::XxPsk3 => Some(3),
    }
}

fn error(e: &Error) -> CryptoError {
    match e {
        Error::Decrypt | Error::Dh => CryptoError::Authentication,
        _ => CryptoError::Malformed,
    }
}

/// The next message with `payload`.
pub(super) fn write(state: &mut HandshakeState, payload: &[u8]) -> Result<Vec<u8>, CryptoError> {
    // snow wants room for a tag even where the payload is not encrypted.
    let mut message = vec![0; MAX_MESSAGE + 16];
    let len = state.write_message(payload, &mut message).map_err(|e| error(&e))?;
    if len > MAX_MESSAGE {
        return Err(CryptoError::Malformed);
    }
    message.truncate(len);
    Ok(message)
}

/// The payload of the peer's message. A message that fails leaves the handshake as it was.
pub(super) fn read(state: &mut HandshakeState, message: &[u8]) -> Result<Vec<u8>, CryptoError> {
    if message.len() > MAX_MESSAGE {
        return Err(CryptoError::Malformed);
    }
    let mut payload = vec![0; message.len()];
    let len = state.read_message(message, &mut payload).map_err(|e| error(&e))?;
    payload.truncate(len);
    Ok(payload)
}

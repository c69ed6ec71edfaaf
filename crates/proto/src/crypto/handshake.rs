//! The handshake between two neighbours (P19): Noise IK when the far key is known, XX on first contact, each with an optional pre-shared key.
//!
//! These are pure steps from message to message; retransmission, retry by cookie and limits on half-open handshakes belong to the link.
//!
//! A responder cannot read an IK message that was made for another key and stays silent. An initiator with a pinned key that hears nothing can find
//! out which key answers with [`Initiator::start_with`] and [`Pattern::Xx`]: [`CryptoError::WrongKey`] then names the key, and nothing was revealed.

use super::keys::RawKey;
use super::noise::{self, Setup};
use super::{CryptoError, PublicKey, SecretKey, SharedKey};
use crate::error::CloseReason;
use crate::wire::packet::Pattern;
use core::fmt;
use rand_chacha::ChaCha12Rng;
use rand_core::{Rng, SeedableRng};
use snow::HandshakeState;
use std::collections::BTreeMap;

/// The result of a handshake.
#[derive(Debug)]
pub struct Established {
    /// The neighbour's static key, proven.
    pub peer: PublicKey,
    /// What the neighbour said in its last message (transport parameters).
    pub payload: Vec<u8>,
    /// Secret of the first key generation for what this side sends.
    pub send: RawKey,
    /// Secret of the first key generation for what this side receives.
    pub receive: RawKey,
    /// XX, initiator: the message for FINISH, which the responder needs before anything else.
    pub third_message: Option<Vec<u8>>,
    /// Hash over the whole handshake, equal on both sides and unique to this one.
    pub hash: [u8; 32],
}

fn established(mut state: HandshakeState, payload: Vec<u8>, third_message: Option<Vec<u8>>) -> Result<Established, CryptoError> {
    let peer = remote_static(&state)?.ok_or(CryptoError::Malformed)?;
    let mut hash = [0; 32];
    hash.copy_from_slice(state.get_handshake_hash().get(..32).ok_or(CryptoError::Malformed)?);
    let (initiator, responder) = state.dangerously_get_raw_split();
    let (send, receive) = if state.is_initiator() { (initiator, responder) } else { (responder, initiator) };
    Ok(Established { peer, payload, send: RawKey::new(send), receive: RawKey::new(receive), third_message, hash })
}

fn remote_static(state: &HandshakeState) -> Result<Option<PublicKey>, CryptoError> {
    let key = |bytes: &[u8]| <[u8; 32]>::try_from(bytes).map(PublicKey).map_err(|_| CryptoError::Malformed);
    state.get_remote_static().map(key).transpose()
}

fn psk_for(pattern: Pattern, psk: Option<&[u8; 32]>) -> Result<Option<(u8, &[u8; 32])>, CryptoError> {
    match (noise::psk_position(pattern), psk) {
        (None, _) => Ok(None),
        (Some(position), Some(psk)) => Ok(Some((position, psk))),
        (Some(_), None) => Err(CryptoError::Misuse("the pattern needs a pre-shared key")),
    }
}

/// The pre-shared keys of a node: one for all, and those of single neighbours, which take its place.
#[derive(Clone, Copy)]
pub struct PreSharedKeys<'a> {
    /// The key for neighbours that have none of their own.
    pub everybody: Option<&'a [u8; 32]>,
    /// Keys of single neighbours, by the neighbour's static key.
    pub own: &'a BTreeMap<PublicKey, SharedKey>,
}

/// Pre-shared keys of single neighbours where there are none.
static NONE_OF_THEIR_OWN: BTreeMap<PublicKey, SharedKey> = BTreeMap::new();

impl<'a> PreSharedKeys<'a> {
    /// The same key for all, or none.
    pub fn one(everybody: Option<&'a [u8; 32]>) -> Self {
        Self { everybody, own: &NONE_OF_THEIR_OWN }
    }

    /// The key that a handshake with this neighbour needs; `None`: its identity is not known yet.
    pub fn of(&self, peer: Option<PublicKey>) -> Option<&'a [u8; 32]> {
        peer.and_then(|peer| self.own.get(&peer)).map(SharedKey::as_bytes).or(self.everybody)
    }
}

/// The side that begins, after its first message.
pub struct Initiator {
    state: Option<HandshakeState>,
    peer: Option<PublicKey>,
}

impl fmt::Debug for Initiator {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Initiator").field("peer", &self.peer).finish_non_exhaustive()
    }
}

impl Initiator {
    /// The pattern to begin with: IK if the peer's key is known, else XX; with a pre-shared key if there is one.
    pub fn pattern_for(peer: Option<PublicKey>, psk: Option<&[u8; 32]>) -> Pattern {
        match (peer.is_some(), psk.is_some()) {
            (true, false) => Pattern::Ik,
            (false, false) => Pattern::Xx,
            (true, true) => Pattern::IkPsk2,
            (false, true) => Pattern::XxPsk3,
        }
    }

    /// Begins with [`Initiator::pattern_for`] `peer` and `psk`. `prologue` is that of the INITIATE packet
    /// ([`HandshakePacket::prologue`](crate::wire::packet::HandshakePacket::prologue)); `payload`, the parameters, can be read by anyone in XX. Returns the first message.
    pub fn start(
        secret: &SecretKey,
        peer: Option<PublicKey>,
        psk: Option<&[u8; 32]>,
        prologue: &[u8],
        payload: &[u8],
        rng: &mut ChaCha12Rng,
    ) -> Result<(Self, Vec<u8>), CryptoError> {
        Self::start_with(Self::pattern_for(peer, psk), secret, peer, psk, prologue, payload, rng)
    }

    /// Begins with a pattern of choice. With XX and a `peer`, [`Initiator::finish`] fails if another node answers.
    pub fn start_with(
        pattern: Pattern,
        secret: &SecretKey,
        peer: Option<PublicKey>,
        psk: Option<&[u8; 32]>,
        prologue: &[u8],
        payload: &[u8],
        rng: &mut ChaCha12Rng,
    ) -> Result<(Self, Vec<u8>), CryptoError> {
        let is_known = matches!(pattern, Pattern::Ik | Pattern::IkPsk2);
        let setup = Setup {
            name: noise::name(pattern),
            prologue,
            secret: Some(secret.as_bytes()),
            peer: peer.as_ref().map(|p| &p.0).filter(|_| is_known),
            psk: psk_for(pattern, psk)?,
        };
        let mut state = setup.build(true, rng)?;
        let message = noise::write(&mut state, payload)?;
        Ok((Self { state: Some(state), peer }, message))
    }

    /// Reads the responder's message. `final_payload` goes into the third message of XX and is not sent in IK.
    ///
    /// After [`CryptoError::Authentication`] or [`CryptoError::Malformed`] the handshake stands as before, and the true answer is still accepted: a
    /// forged one cannot end it.
    pub fn finish(&mut self, message: &[u8], final_payload: &[u8]) -> Result<Established, CryptoError> {
        let state = self.state.as_mut().ok_or(CryptoError::Misuse("the handshake is finished"))?;
        let payload = noise::read(state, message)?;
        if let (Some(expected), Some(actual)) = (self.peer, remote_static(state)?)
            && expected != actual
        {
            self.state = None;
            return Err(CryptoError::WrongKey { expected, actual });
        }
        let third_message = if state.is_handshake_finished() { None } else { Some(noise::write(state, final_payload)?) };
        let state = self.state.take().ok_or(CryptoError::Misuse("the handshake is finished"))?;
        established(state, payload, third_message)
    }
}

/// The answering side of XX, waiting for the third message.
///
/// It keeps its inputs, some 500 bytes, and computes the state again for each third message. `snow` cannot return to the state before a forged one.
/// So a half-open handshake stays small, too (P19).
pub struct Responder {
    secret: SecretKey,
    psk: Option<RawKey>,
    pattern: Pattern,
    prologue: Vec<u8>,
    message: Vec<u8>,
    answer: Vec<u8>,
    seed: RawKey,
}

impl fmt::Debug for Responder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Responder").field("pattern", &self.pattern).finish_non_exhaustive()
    }
}

/// The result of answering a first message.
#[derive(Debug)]
pub enum ResponderStep {
    /// IK: keys are agreed. The peer has proven its key only once a packet under these keys has been opened: the message may be a replay.
    Established {
        /// Message for RESPOND.
        reply: Vec<u8>,
        /// The result.
        established: Established,
    },
    /// XX: the peer is known after the third message.
    Waiting {
        /// Message for RESPOND.
        reply: Vec<u8>,
        /// What completes the handshake.
        responder: Responder,
    },
}

impl Responder {
    /// Answers a first message. `reply` sees the peer's key (IK only) and the payload, and gives the payload of the answer or refuses.
    ///
    /// Only the first message of IK names its sender, so only IK can use a neighbour's own pre-shared key. XX uses the key for all, and the caller
    /// then refuses a neighbour that has one of its own.
    pub fn respond(
        secret: &SecretKey,
        psks: PreSharedKeys<'_>,
        pattern: Pattern,
        prologue: &[u8],
        message: &[u8],
        reply: impl FnOnce(Option<PublicKey>, &[u8]) -> Result<Vec<u8>, CloseReason>,
        rng: &mut ChaCha12Rng,
    ) -> Result<ResponderStep, CryptoError> {
        let position = noise::psk_position(pattern);
        let names_sender = matches!(pattern, Pattern::Ik | Pattern::IkPsk2);
        // A node with a pre-shared key serves only nodes that have it.
        if (!names_sender || psks.own.is_empty()) && psks.everybody.is_some() != position.is_some() {
            return Err(CryptoError::Authentication);
        }
        let mut seed = [0; 32];
        rng.fill_bytes(&mut seed);
        let mut this = Self {
            secret: secret.clone(),
            psk: psks.everybody.copied().filter(|_| !names_sender).map(RawKey::new),
            pattern,
            prologue: prologue.to_vec(),
            message: message.to_vec(),
            answer: Vec::new(),
            seed: RawKey::new(seed),
        };
        let (mut state, payload) = this.read_first()?;
        let peer = remote_static(&state)?;
        if names_sender {
            match (position, psks.of(peer)) {
                (Some(position), Some(psk)) => noise::set_psk(&mut state, position, psk)?,
                (None, None) => {}
                _ => return Err(CryptoError::Authentication),
            }
        }
        this.answer = reply(peer, &payload).map_err(CryptoError::Refused)?;
        let reply = noise::write(&mut state, &this.answer)?;
        if state.is_handshake_finished() {
            Ok(ResponderStep::Established { reply, established: established(state, payload, None)? })
        } else {
            Ok(ResponderStep::Waiting { reply, responder: this })
        }
    }

    /// Computes the state after the first message, and that message's payload; the same each time.
    fn read_first(&self) -> Result<(HandshakeState, Vec<u8>), CryptoError> {
        let setup = Setup {
            name: noise::name(self.pattern),
            prologue: &self.prologue,
            secret: Some(self.secret.as_bytes()),
            peer: None,
            // IK mixes its pre-shared key in later, when the first message has named the sender.
            psk: noise::psk_position(self.pattern).zip(self.psk.as_ref().map(RawKey::as_bytes)),
        };
        let mut state = setup.build(false, &mut ChaCha12Rng::from_seed(*self.seed.as_bytes()))?;
        let payload = noise::read(&mut state, &self.message)?;
        Ok((state, payload))
    }

    /// Reads the third message of XX. Forged ones change nothing.
    pub fn complete(&self, message: &[u8]) -> Result<Established, CryptoError> {
        let (mut state, _) = self.read_first()?;
        noise::write(&mut state, &self.answer)?;
        let payload = noise::read(&mut state, message)?;
        established(state, payload, None)
    }

    /// Bytes of heap that it holds.
    pub fn memory(&self) -> usize {
        self.prologue.capacity() + self.message.capacity() + self.answer.capacity()
    }
}

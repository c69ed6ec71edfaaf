//! Fresh keys for a relayed session in mid-life (P3, P20): Noise NNpsk0 on its control flows, bound to the generation before, as links have it.
//!
//! The opener asks, so that two ends never begin at once. The end that seals with the next generation first knows that the other can read it: the acceptor has the keys when
//! it answers, the opener uses them when it has the answer, and the acceptor when it hears that the opener does. `docs/spec/session.md` 8.6.

use super::CryptoError;
use super::keys::RawKey;
use super::rekey::{Root, Secrets};
use crate::units::{Duration, Time};
use core::fmt;
use rand_chacha::ChaCha12Rng;
use snow::HandshakeState;

const LABEL: &[u8] = b"noctule session rekey";

/// Where an exchange stands.
enum Stage {
    Idle,
    /// Opener: asked, no answer yet.
    Asked(Box<HandshakeState>),
    /// Acceptor: answered. What it sends is still sealed by the generation before.
    Answered(Box<Secrets>),
    /// Opener: seals with the new keys; the acceptor has not said that it does.
    Awaiting,
}

/// The generation in use and the exchange that leads to the next one.
pub struct Renewal {
    is_opener: bool,
    generation: u64,
    root: Root,
    stage: Stage,
    born: Time,
    after: Duration,
    packets: u64,
}

/// Secrets that an exchange led to, for this side.
pub struct Fresh {
    /// Of what it sends.
    pub send: Option<RawKey>,
    /// Of what it receives.
    pub receive: Option<RawKey>,
    /// To be said to the far end.
    pub message: Option<Vec<u8>>,
}

impl Renewal {
    pub(super) fn new(from_opener: &RawKey, from_acceptor: &RawKey, hash: [u8; 32], is_opener: bool) -> Result<Self, CryptoError> {
        let root = Root::new(LABEL, from_opener, from_acceptor, hash)?;
        let never = (Duration::MAX, u64::MAX);
        Ok(Self { is_opener, generation: 0, root, stage: Stage::Idle, born: Time::ZERO, after: never.0, packets: never.1 })
    }

    /// The first generation is in use since now; each lasts for `after`, or so many packets.
    pub fn begin(&mut self, now: Time, after: Duration, packets: u64) {
        (self.born, self.after, self.packets) = (now, after, packets);
    }

    /// The generation that this side knows best: 0 is that of the handshake.
    pub fn generation(&self) -> u64 {
        self.generation
    }

    /// Opener: when the next generation is due, `packets` having been sealed and opened in this one; an instant in the past means at once.
    pub fn due(&self, packets: u64) -> Option<Time> {
        let is_idle = self.is_opener && matches!(self.stage, Stage::Idle);
        is_idle.then(|| if packets >= self.packets { Time::ZERO } else { self.born + self.after })
    }

    /// Opener: the message that asks for the next generation.
    ///
    /// # Errors
    /// A defect.
    pub fn ask(&mut self, rng: &mut ChaCha12Rng) -> Result<Vec<u8>, CryptoError> {
        let (state, message) = self.root.start(self.generation + 1, rng)?;
        self.stage = Stage::Asked(Box::new(state));
        Ok(message)
    }

    /// The far end's message of step 0 or 1 for a generation.
    ///
    /// # Errors
    /// `Malformed` if it is not its turn, `Authentication`: the session has to end, since nobody else can have sealed it.
    pub fn on_message(
        &mut self,
        now: Time,
        generation: u64,
        step: u8,
        message: &[u8],
        rng: &mut ChaCha12Rng,
    ) -> Result<Fresh, CryptoError> {
        if generation != self.generation + 1 || step != u8::from(self.is_opener) {
            return Err(CryptoError::Malformed);
        }
        match core::mem::replace(&mut self.stage, Stage::Idle) {
            Stage::Idle if !self.is_opener => {
                let (secrets, reply) = self.root.answer(generation, message, rng)?;
                let receive = Some(secrets.from_initiator.clone());
                self.enter(now, generation, &secrets)?;
                self.stage = Stage::Answered(Box::new(secrets));
                Ok(Fresh { send: None, receive, message: Some(reply) })
            }
            Stage::Asked(mut state) => {
                let secrets = Secrets::finish(&mut state, message)?;
                self.enter(now, generation, &secrets)?;
                self.stage = Stage::Awaiting;
                Ok(Fresh { send: Some(secrets.from_initiator.clone()), receive: Some(secrets.from_responder.clone()), message: None })
            }
            _ => Err(CryptoError::Malformed),
        }
    }

    /// The far end seals with this generation. The acceptor does so from now on as well: its secret.
    ///
    /// # Errors
    /// `Malformed` if it cannot.
    pub fn on_used(&mut self, generation: u64) -> Result<Option<RawKey>, CryptoError> {
        match core::mem::replace(&mut self.stage, Stage::Idle) {
            Stage::Answered(secrets) if generation == self.generation => Ok(Some(secrets.from_responder.clone())),
            Stage::Awaiting if generation == self.generation => Ok(None),
            _ => Err(CryptoError::Malformed),
        }
    }

    fn enter(&mut self, now: Time, generation: u64, secrets: &Secrets) -> Result<(), CryptoError> {
        self.root = Root::new(LABEL, &secrets.from_initiator, &secrets.from_responder, secrets.hash)?;
        (self.generation, self.born) = (generation, now);
        Ok(())
    }
}

impl fmt::Debug for Renewal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Renewal").field("is_opener", &self.is_opener).field("generation", &self.generation).finish_non_exhaustive()
    }
}

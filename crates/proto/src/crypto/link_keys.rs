//! The keys of a link: the generation in use, the one before and the one to come, and the exchange that leads from one to the next (P3).
//!
//! The link's initiator asks for each new generation. The responder can read it as soon as it has answered, and sends with it once a packet under it
//! has arrived; the initiator sends with it as soon as it has the answer. So the old keys work until the new ones are confirmed.

use super::CryptoError;
use super::aead::{OpenJob, SealJob};
use super::handshake::Established;
use super::keys::{ReceiveKeys, SendKeys};
use super::rekey::{OF_LINKS, Root, Secrets};
use crate::ids::{PacketNumber, PathId};
use crate::units::{Duration, Time};
use crate::wire::frame::Frame;
use crate::wire::params::Cipher;
use core::fmt;
use rand_chacha::ChaCha12Rng;
use snow::HandshakeState;

/// Packets, both directions together, after which a new generation is due (P3).
pub const GENERATION_PACKETS: u64 = 1 << 26;
/// A request that was acknowledged but not answered is repeated after this long.
const ANSWER_PATIENCE: Duration = Duration::from_secs(3);

/// What the keys of a link are set up from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LinkKeysConfig {
    /// This side began the handshake.
    pub is_initiator: bool,
    /// Cipher agreed in the parameters.
    pub cipher: Cipher,
    /// Base-2 logarithm of the packets per epoch in what this side sends (its own parameter).
    pub send_epoch_log2: u8,
    /// The same in what it receives (the peer's parameter).
    pub receive_epoch_log2: u8,
    /// Age at which a new generation is due (P3: two minutes).
    pub rekey_after: Duration,
    /// Packets after which one is due; [`GENERATION_PACKETS`] but in tests.
    pub rekey_packets: u64,
    /// Age at which a generation that none has followed dies, and the link with it (WireGuard: REJECT_AFTER_TIME).
    pub reject_after: Duration,
    /// Packets, both directions together, after which it dies.
    pub reject_packets: u64,
}

struct Generation {
    number: u64,
    send: SendKeys,
    receive: ReceiveKeys,
    root: Root,
    born: Time,
}

impl Generation {
    fn new(number: u64, config: &LinkKeysConfig, secrets: Secrets, now: Time) -> Result<Self, CryptoError> {
        let root = Root::new(OF_LINKS, &secrets.from_initiator, &secrets.from_responder, secrets.hash)?;
        let (send, receive) = match config.is_initiator {
            true => (secrets.from_initiator, secrets.from_responder),
            false => (secrets.from_responder, secrets.from_initiator),
        };
        Ok(Self {
            number,
            send: SendKeys::new(send, config.cipher, config.send_epoch_log2),
            receive: ReceiveKeys::new(receive, config.cipher, config.receive_epoch_log2, number),
            root,
            born: now,
        })
    }
    fn packets(&self) -> u64 {
        self.send.sealed() + self.receive.opened()
    }
}

/// The exchange that is under way; the newest message is kept for repetition.
enum Exchange {
    Idle,
    /// Initiator: asked, no answer yet.
    Asked {
        state: Box<HandshakeState>,
        message: Vec<u8>,
        since: Time,
    },
    /// Responder: answered, no packet under the new keys yet.
    Answered {
        request: Vec<u8>,
        reply: Vec<u8>,
    },
}

/// All keys of a link.
pub struct LinkKeys {
    config: LinkKeysConfig,
    current: Generation,
    /// Responder only: readable, not yet confirmed.
    next: Option<Generation>,
    /// The generation before and its end; `Time::MAX` until the peer is known to have left it.
    previous: Option<(Generation, Time)>,
    exchange: Exchange,
    has_message: bool,
}

impl LinkKeys {
    /// The first generation, from a finished handshake.
    pub fn new(config: LinkKeysConfig, established: &Established, now: Time) -> Result<Self, CryptoError> {
        let (send, receive) = (established.send.clone(), established.receive.clone());
        let (from_initiator, from_responder) = if config.is_initiator { (send, receive) } else { (receive, send) };
        let current = Generation::new(0, &config, Secrets { from_initiator, from_responder, hash: established.hash }, now)?;
        Ok(Self { config, current, next: None, previous: None, exchange: Exchange::Idle, has_message: false })
    }

    /// Nothing is sealed, because both sides asked for that (P20).
    pub fn is_plaintext(&self) -> bool {
        self.config.cipher == Cipher::Plaintext
    }

    /// The generation that packets are sent in; modulo 4 it goes into their header.
    pub fn generation(&self) -> u64 {
        self.current.number
    }
    /// The generation as the header of the next packet states it.
    pub fn generation_bits(&self) -> u8 {
        (self.current.number & 3) as u8
    }

    /// The job that seals packet `number` of `path` in the generation of [`LinkKeys::generation_bits`].
    pub fn seal_job(&mut self, path: PathId, number: PacketNumber) -> Result<SealJob, CryptoError> {
        self.current.send.seal_job(path, number)
    }

    fn receive(&mut self, now: Time, is_wanted: impl Fn(u64) -> bool) -> Option<&mut ReceiveKeys> {
        if is_wanted(self.current.number) {
            return Some(&mut self.current.receive);
        }
        if self.next.as_ref().is_some_and(|g| is_wanted(g.number)) {
            return self.next.as_mut().map(|g| &mut g.receive);
        }
        self.previous.as_mut().filter(|(g, expires)| is_wanted(g.number) && now < *expires).map(|(g, _)| &mut g.receive)
    }

    /// The job that opens a packet whose header states `generation_bits`; `None` if there is no key for it (any more).
    pub fn open_job(&mut self, now: Time, generation_bits: u8, path: PathId, number: PacketNumber) -> Option<OpenJob> {
        self.receive(now, |g| g & 3 == u64::from(generation_bits))?.open_job(now, path, number)
    }

    /// The job opened its packet; keys that this supersedes end after `retention` (three PTOs).
    pub fn on_opened(&mut self, now: Time, job: &OpenJob, retention: Duration) {
        if let Some(keys) = self.receive(now, |g| g == job.generation) {
            keys.on_opened(now, job, retention);
        }
        if self.next.as_ref().is_some_and(|g| g.number == job.generation)
            && let Some(next) = self.next.take()
        {
            // The peer sends with the new keys: they are confirmed.
            let old = core::mem::replace(&mut self.current, next);
            self.previous = Some((old, now + retention));
            self.exchange = Exchange::Idle;
            self.has_message = false;
        } else if job.generation == self.current.number
            && let Some((_, expires)) = &mut self.previous
            && *expires == Time::MAX
        {
            *expires = now + retention;
        }
        self.drop_expired(now);
    }

    /// The job did not open its packet. An error when so many failed that the link has to end.
    pub fn on_failed(&mut self, now: Time, job: &OpenJob) -> Result<(), CryptoError> {
        self.receive(now, |g| g == job.generation).map_or(Ok(()), ReceiveKeys::on_failed)
    }

    fn drop_expired(&mut self, now: Time) {
        if self.previous.as_ref().is_some_and(|(_, expires)| *expires <= now) {
            self.previous = None;
        }
    }

    /// When [`LinkKeys::handle_timeout`] wants to be called; an instant in the past means at once. O(1).
    pub fn poll_timeout(&self) -> Option<Time> {
        let expiry = self.previous.as_ref().map(|(_, expires)| *expires).filter(|&t| t < Time::MAX);
        let due = match &self.exchange {
            // One exchange at a time: the last one has to be confirmed.
            Exchange::Idle if self.config.is_initiator && self.previous.is_none() => Some(match self.current.packets() {
                n if n >= self.config.rekey_packets => Time::ZERO,
                _ => self.current.born + self.config.rekey_after,
            }),
            Exchange::Asked { since, .. } if !self.has_message => Some(*since + ANSWER_PATIENCE),
            _ => None,
        };
        [expiry, due, Some(self.death())].into_iter().flatten().min()
    }

    /// When the generation in use dies; in the past if it has served for too many packets.
    fn death(&self) -> Time {
        if self.current.packets() >= self.config.reject_packets { Time::ZERO } else { self.current.born + self.config.reject_after }
    }

    /// Drops keys that ended and begins a new generation if one is due. An error when the peer has let the present one grow too old: the link has to end.
    pub fn handle_timeout(&mut self, now: Time, rng: &mut ChaCha12Rng) -> Result<(), CryptoError> {
        self.drop_expired(now);
        if self.death() <= now {
            return Err(CryptoError::Exhausted);
        }
        if self.poll_timeout().is_none_or(|due| due > now) {
            return Ok(());
        }
        match &mut self.exchange {
            Exchange::Idle => self.start_rekey(now, rng),
            Exchange::Asked { since, .. } => {
                *since = now;
                self.has_message = true;
                Ok(())
            }
            Exchange::Answered { .. } => Ok(()),
        }
    }

    /// Initiator: begins a new generation now. Nothing happens if the last one is not finished, or on the responder.
    pub fn start_rekey(&mut self, now: Time, rng: &mut ChaCha12Rng) -> Result<(), CryptoError> {
        if !self.config.is_initiator || self.previous.is_some() || !matches!(self.exchange, Exchange::Idle) {
            return Ok(());
        }
        let (state, message) = self.current.root.start(self.current.number + 1, rng)?;
        self.exchange = Exchange::Asked { state: Box::new(state), message, since: now };
        self.has_message = true;
        Ok(())
    }

    /// There is a REKEY frame to send.
    pub fn has_message(&self) -> bool {
        self.has_message
    }

    /// The REKEY frame to send now, if any. It counts as sent: [`LinkKeys::on_lost`] asks for it again.
    pub fn poll_frame(&mut self) -> Option<Frame<'_>> {
        if !core::mem::take(&mut self.has_message) {
            return None;
        }
        let generation = self.current.number + 1;
        match &self.exchange {
            Exchange::Idle => None,
            Exchange::Asked { message, .. } => Some(Frame::Rekey { generation, step: 0, message }),
            Exchange::Answered { reply, .. } => Some(Frame::Rekey { generation, step: 1, message: reply }),
        }
    }

    /// A packet with a REKEY frame was lost.
    pub fn on_lost(&mut self) {
        self.has_message = !matches!(self.exchange, Exchange::Idle);
    }

    /// A REKEY frame arrived. Repetitions are harmless; an error ends the link.
    pub fn on_frame(&mut self, now: Time, generation: u64, step: u8, message: &[u8], rng: &mut ChaCha12Rng) -> Result<(), CryptoError> {
        if generation <= self.current.number {
            return Ok(());
        }
        let expected_step = u8::from(self.config.is_initiator);
        if generation != self.current.number + 1 || step != expected_step {
            return Err(CryptoError::Malformed);
        }
        match &mut self.exchange {
            // Responder: the same request again means that the answer was lost.
            Exchange::Answered { request, .. } => {
                if request != message {
                    return Err(CryptoError::Malformed);
                }
                self.has_message = true;
                Ok(())
            }
            // Initiator: the answer; the peer can already read the new keys.
            Exchange::Asked { state, .. } => {
                let secrets = Secrets::finish(state, message)?;
                let next = Generation::new(generation, &self.config, secrets, now)?;
                self.previous = Some((core::mem::replace(&mut self.current, next), Time::MAX));
                self.exchange = Exchange::Idle;
                self.has_message = false;
                Ok(())
            }
            Exchange::Idle if self.config.is_initiator => Err(CryptoError::Malformed),
            // One exchange per three PTOs, however often one is asked for: each costs a Diffie-Hellman. The initiator asks again.
            Exchange::Idle if self.previous.as_ref().is_some_and(|(_, expires)| now < *expires) => Ok(()),
            Exchange::Idle => {
                let (secrets, reply) = self.current.root.answer(generation, message, rng)?;
                self.next = Some(Generation::new(generation, &self.config, secrets, now)?);
                self.exchange = Exchange::Answered { request: message.to_vec(), reply };
                self.has_message = true;
                Ok(())
            }
        }
    }
}

impl fmt::Debug for LinkKeys {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut s = f.debug_struct("LinkKeys");
        s.field("config", &self.config).field("generation", &self.current.number);
        s.field("has_next", &self.next.is_some()).field("has_previous", &self.previous.is_some()).finish_non_exhaustive()
    }
}

//! A stream that announces itself to one node, whose key is known: a source, its announcements, and a new stream when this one is long.

use super::{Announcement, BlindError, Plan, Shape, Source, SourceConfig, SourceStats, StreamName};
use crate::crypto::{PublicKey, SecretKey, SharedKey};
use crate::units::{Bandwidth, Duration, Time};
use rand_chacha::ChaCha12Rng;
use rand_core::{Rng, SeedableRng};

/// Announcements before the first packet, so that few streams lose their beginning.
const GREETINGS: u32 = 5;
const GREETING_GAP: Duration = Duration::from_millis(20);
/// Between announcements: how long a receiver that starts late waits. More where a block takes longer, and where announcements would be more
/// than a hundredth of the rate.
const EVERY: Duration = Duration::from_millis(200);
const LONGEST_PAUSE: Duration = Duration::from_secs(5);
const SHARE: f64 = 0.01;
/// Bytes of an announcement with headers.
const ANNOUNCEMENT: u64 = 207;

/// What a [`Sender`] is made of.
#[derive(Clone)]
pub struct SenderConfig {
    /// The sender's identity.
    pub secret: SecretKey,
    /// Key of the only receiver.
    pub receiver: PublicKey,
    /// A key that both share beside, if any.
    pub psk: Option<SharedKey>,
    /// The cut of its streams.
    pub shape: Shape,
    /// How much is sent.
    pub plan: Plan,
    /// At which datagrams leave, with 28 bytes of headers each.
    pub rate: Bandwidth,
    /// How long the first message of a block waits for the block to be full.
    pub patience: Duration,
    /// Blocks after which a new stream begins, with a new key.
    pub renew_after: u32,
}

impl SenderConfig {
    /// A new stream after so many blocks: weeks, at some blocks a second, and far from where their numbers end.
    pub const RENEW_AFTER: u32 = 1 << 24;
}

/// Counts of a sender, over all its streams.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct SenderStats {
    /// What their sources sent.
    pub source: SourceStats,
    /// Announcements.
    pub announcements: u64,
    /// Streams begun.
    pub streams: u64,
}

/// Sends messages to one node that nothing comes back from.
pub struct Sender {
    config: SenderConfig,
    rng: ChaCha12Rng,
    source: Source,
    stream: StreamName,
    key: [u8; 32],
    /// When this one began, and with which stamp; the last one that was given.
    origin: (Time, u64),
    stamp: u64,
    greetings: u32,
    announce_at: Time,
    is_ending: bool,
    /// Of streams that are over.
    before: SenderStats,
}

impl Sender {
    /// A sender; `seed` is random, `stamp` greater than any that a sender with this key has reached before ([`stamp`](Self::stamp)).
    ///
    /// # Errors
    /// None with keys of 32 bytes.
    pub fn new(config: SenderConfig, now: Time, stamp: u64, seed: [u8; 32]) -> Result<Self, BlindError> {
        let mut rng = ChaCha12Rng::from_seed(seed);
        let (stream, key, source) = begin(&config, &mut rng)?;
        Ok(Self {
            config,
            rng,
            source,
            stream,
            key,
            origin: (now, stamp),
            stamp,
            greetings: GREETINGS,
            announce_at: now,
            is_ending: false,
            before: SenderStats { streams: 1, ..SenderStats::default() },
        })
    }

    /// Takes a message.
    ///
    /// # Errors
    /// Too long, empty, or no room.
    pub fn push(&mut self, message: Vec<u8>) -> Result<(), BlindError> {
        if self.is_ending {
            return Err(BlindError::Full);
        }
        self.source.push(message).map(|_| ())
    }

    /// Messages that are taken now.
    pub fn room(&self) -> usize {
        if self.is_ending { 0 } else { self.source.room() }
    }

    /// The stamp of the last announcement: a sender that succeeds this one needs a greater one.
    pub fn stamp(&self) -> u64 {
        self.stamp
    }

    /// Counts so far.
    pub fn stats(&self) -> SenderStats {
        let (SourceStats { messages, datagrams, bytes, blocks }, past) = (self.source.stats(), self.before.source);
        SenderStats {
            source: SourceStats {
                messages: messages + past.messages,
                datagrams: datagrams + past.datagrams,
                bytes: bytes + past.bytes,
                blocks: blocks + past.blocks,
            },
            ..self.before
        }
    }

    fn is_greeting(&self) -> bool {
        self.greetings > 0
    }

    /// When to call [`poll_transmit`](Self::poll_transmit) again.
    pub fn poll_timeout(&self) -> Time {
        let next = self.source.poll_timeout().filter(|_| !self.is_greeting());
        next.map_or(self.announce_at, |at| at.min(self.announce_at))
    }

    /// The next datagram, if one is due: `out` becomes its bytes.
    pub fn poll_transmit(&mut self, now: Time, out: &mut Vec<u8>) -> bool {
        if now >= self.announce_at && self.announce(now, out) {
            return true;
        }
        if self.is_greeting() {
            return false;
        }
        if !self.is_ending && self.source.position().0 >= self.config.renew_after {
            self.is_ending = true;
            self.source.finish();
        }
        if self.source.poll_transmit(now, out) {
            return true;
        }
        if self.is_ending && self.source.is_done() {
            return self.renew(now) && self.announce(now, out);
        }
        false
    }

    fn renew(&mut self, now: Time) -> bool {
        let Ok((stream, key, source)) = begin(&self.config, &mut self.rng) else { return false };
        self.before = self.stats();
        self.before.streams += 1;
        (self.stream, self.key, self.source) = (stream, key, source);
        (self.greetings, self.announce_at, self.is_ending) = (GREETINGS, now, false);
        true
    }

    fn announce(&mut self, now: Time, out: &mut Vec<u8>) -> bool {
        let (begun, first) = self.origin;
        let clock = first.saturating_add(u64::try_from(now.since(begun).as_micros()).unwrap_or(u64::MAX));
        self.stamp = clock.max(self.stamp.saturating_add(1));
        let (block, messages) = self.source.position();
        let said = Announcement { stamp: self.stamp, stream: self.stream, key: self.key, shape: self.config.shape, block, messages };
        self.greetings = self.greetings.saturating_sub(1);
        let thin = self.config.rate.time_for((ANNOUNCEMENT as f64 / SHARE) as u64).min(LONGEST_PAUSE);
        let pause = if self.is_greeting() { GREETING_GAP } else { EVERY.max(self.config.patience).max(thin) };
        self.announce_at = now + pause;
        match said.seal(
            &self.config.secret,
            &self.config.receiver,
            self.config.psk.as_ref().map(SharedKey::as_bytes),
            random(&mut self.rng),
        ) {
            Ok(datagram) => {
                *out = datagram;
                self.before.announcements += 1;
                true
            }
            Err(_) => false, // a key that was checked when the sender was made
        }
    }
}

fn random<const N: usize>(rng: &mut ChaCha12Rng) -> [u8; N] {
    let mut bytes = [0; N];
    rng.fill_bytes(&mut bytes);
    bytes
}

/// A source with a name and a key of its own.
fn begin(config: &SenderConfig, rng: &mut ChaCha12Rng) -> Result<(StreamName, [u8; 32], Source), BlindError> {
    let (stream, key) = (StreamName(random(rng)), random(rng));
    let SenderConfig { shape, plan, rate, patience, .. } = *config;
    // What announcements take is taken from the data.
    let rate = rate.scaled(1.0 - SHARE);
    let source = Source::new(SourceConfig { stream, shape, plan, key, rate, patience: Some(patience) }, random(rng))?;
    Ok((stream, key, source))
}

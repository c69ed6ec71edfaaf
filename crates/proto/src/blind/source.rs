//! The source of a blind stream: messages become blocks, blocks become batches, and all leave at a given rate.

use super::held::{Held, in_turn};
use super::queue::PacedQueue;
use super::{Coefficients, Packet, Plan, Shape, StreamName};
use crate::crypto::{CryptoError, FlowKey, SESSION_PREFIX};
use crate::ids::Seq;
use crate::units::{Bandwidth, Duration, Time};
use crate::wire::packet::TAG_LEN;
use noctule_codes::bats::BlockEncoder;
use rand_chacha::ChaCha12Rng;
use rand_core::SeedableRng;
use std::collections::VecDeque;

/// Messages that wait to be cut, at most.
const MOST_PENDING: usize = 256;
/// Where the plaintext of a symbol begins.
const BODY: usize = 2 + SESSION_PREFIX;

/// What a [`Source`] is made of.
#[derive(Clone, Copy)]
pub struct SourceConfig {
    /// Name of the stream.
    pub stream: StreamName,
    /// Its cut.
    pub shape: Shape,
    /// How much is sent.
    pub plan: Plan,
    /// Secret that source and destination share: of this stream alone.
    pub key: [u8; 32],
    /// At which datagrams leave, with 28 bytes of headers each.
    pub rate: Bandwidth,
    /// A block whose first packet is so old is filled up with empty ones as soon as nothing waits, so that its repair packets do not wait for ever;
    /// none: only [`Source::finish`] does so.
    pub patience: Option<Duration>,
}

/// Counts of a source.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct SourceStats {
    /// Messages taken.
    pub messages: u64,
    /// Datagrams sent.
    pub datagrams: u64,
    /// Bytes of these.
    pub bytes: u64,
    /// Blocks of which everything was sent.
    pub blocks: u64,
}

/// What a source does not take.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum BlindError {
    /// Longer than a packet.
    #[error("a message of {len} bytes is longer than a packet of this stream, {longest}")]
    TooLong {
        /// As given.
        len: usize,
        /// Permitted.
        longest: usize,
    },
    /// An empty message cannot be told from padding.
    #[error("a message of no bytes")]
    Empty,
    /// No room: ask [`Source::room`] first.
    #[error("{MOST_PENDING} messages wait already")]
    Full,
    /// Finished.
    #[error("the stream was finished")]
    Finished,
    /// As many blocks as their numbers count: the next packet would be sealed with a key and number that were used (P3).
    #[error("the stream has had 2^32 blocks: begin another, with another name and key")]
    Exhausted,
    /// Keys.
    #[error(transparent)]
    Crypto(#[from] CryptoError),
}

/// Sends a stream.
#[derive(Debug)]
pub struct Source {
    config: SourceConfig,
    key: FlowKey,
    rng: ChaCha12Rng,
    pending: VecDeque<Vec<u8>>,
    is_finished: bool,
    /// The last block is complete.
    is_exhausted: bool,
    block: u32,
    /// Source packets of the block, in their places.
    symbols: Vec<u8>,
    /// Packets of the block that were cut.
    cut: usize,
    /// When the first of them was.
    begun_at: Time,
    /// Messages of this block, and of all blocks before.
    messages: (u64, u64),
    /// The batches that take turns now.
    group: Vec<Held>,
    /// Fractions of packets that are owed to batches.
    owed: f64,
    queue: PacedQueue,
    stats: SourceStats,
}

impl Source {
    /// A source; `seed` is random.
    ///
    /// # Errors
    /// None with keys of 32 bytes.
    pub fn new(config: SourceConfig, seed: [u8; 32]) -> Result<Self, BlindError> {
        Ok(Self {
            key: FlowKey::of_stream(&config.key, config.shape.symbol())?,
            rng: ChaCha12Rng::from_seed(seed),
            pending: VecDeque::new(),
            is_finished: false,
            is_exhausted: false,
            block: 0,
            symbols: Vec::new(),
            cut: 0,
            begun_at: Time::ZERO,
            messages: (0, 0),
            group: Vec::new(),
            owed: 0.0,
            queue: PacedQueue::new(config.rate),
            stats: SourceStats::default(),
            config,
        })
    }

    /// Messages that are taken now.
    pub fn room(&self) -> usize {
        if self.is_finished { 0 } else { (MOST_PENDING - self.pending.len()).min(self.left()) }
    }

    /// Messages that the numbers of blocks still hold.
    fn left(&self) -> usize {
        match self.block {
            _ if self.is_exhausted => 0,
            u32::MAX => (self.config.shape.block_packets() - self.cut).saturating_sub(self.pending.len()),
            _ => MOST_PENDING,
        }
    }

    /// As if all blocks before this one had been sent.
    #[cfg(test)]
    pub(super) fn skip_to(&mut self, block: u32) {
        self.block = block;
    }

    /// Takes a message; its number counts from 0.
    ///
    /// # Errors
    /// Too long, empty, no room, after the end, or no number left.
    pub fn push(&mut self, message: Vec<u8>) -> Result<u64, BlindError> {
        let longest = self.config.shape.max_message();
        match message.len() {
            _ if self.is_finished => return Err(BlindError::Finished),
            0 => return Err(BlindError::Empty),
            len if len > longest => return Err(BlindError::TooLong { len, longest }),
            _ if self.left() == 0 => return Err(BlindError::Exhausted),
            _ if self.room() == 0 => return Err(BlindError::Full),
            _ => {}
        }
        self.pending.push_back(message);
        self.stats.messages += 1;
        Ok(self.stats.messages - 1)
    }

    /// Nothing follows: the last block is filled up with empty packets.
    pub fn finish(&mut self) {
        self.is_finished = true;
    }

    /// Everything has left.
    pub fn is_done(&self) -> bool {
        self.is_finished && self.pending.is_empty() && self.cut == 0 && self.queue.is_empty()
    }

    /// Counts so far.
    pub fn stats(&self) -> SourceStats {
        self.stats
    }

    /// The block whose packets are cut now, and how many messages all before it hold.
    pub fn position(&self) -> (u32, u64) {
        (self.block, self.messages.1)
    }

    /// When to ask again; `None` while there is nothing to send.
    pub fn poll_timeout(&self) -> Option<Time> {
        if !self.pending.is_empty() || !self.queue.is_empty() {
            return Some(self.queue.due());
        }
        self.fill_up_at().map(|at| at.max(self.queue.due()))
    }

    /// When the rest of the block becomes empty packets, if nothing comes.
    fn fill_up_at(&self) -> Option<Time> {
        match self.config.patience {
            _ if self.cut == 0 => None,
            _ if self.is_finished => Some(self.begun_at),
            patience => patience.map(|patience| self.begun_at + patience),
        }
    }

    /// The next datagram, if one is due: `out` becomes its bytes.
    pub fn poll_transmit(&mut self, now: Time, out: &mut Vec<u8>) -> bool {
        if now < self.queue.due() {
            return false;
        }
        while self.queue.is_empty() {
            let message = match self.pending.pop_front() {
                Some(message) => message,
                None if self.fill_up_at().is_some_and(|at| at <= now) => Vec::new(),
                None => return false,
            };
            if self.cut == 0 {
                self.begun_at = now;
            }
            if self.cut_packet(&message).is_err() {
                return false; // a key of 32 bytes seals every packet that was let in
            }
        }
        let is_sent = self.queue.pop(now, out);
        if is_sent {
            if !self.pending.is_empty() {
                self.queue.has_more_behind();
            }
            self.stats.datagrams += 1;
            self.stats.bytes += out.len() as u64;
        }
        is_sent
    }

    fn blank(&self) -> Packet<'static> {
        Packet {
            stream: self.config.stream,
            batch_size: self.config.shape.batch_size(),
            depth: self.config.shape.depth(),
            block: self.block,
            batch: 0,
            coefficients: Coefficients::Index(0),
            symbol: &[],
        }
    }

    /// The next packet of the block; at the end of its group and of the block, what follows as well.
    fn cut_packet(&mut self, message: &[u8]) -> Result<(), CryptoError> {
        if self.is_exhausted {
            return Err(CryptoError::Exhausted);
        }
        let shape = self.config.shape;
        let (k, stride, size) = (shape.block_packets(), usize::from(shape.symbol()), usize::from(shape.batch_size()));
        if self.cut == 0 {
            self.symbols.clear();
            self.symbols.resize(k * stride, 0);
        }
        let (batch, index) = shape.place(self.cut);
        let j = usize::from(batch) * size + index;
        let len = BODY + message.len() + TAG_LEN;
        let symbol = &mut self.symbols[j * stride..][..len];
        symbol[BODY..BODY + message.len()].copy_from_slice(message);
        self.key.seal(Seq(u64::from(self.block) * k as u64 + j as u64), symbol)?;
        let symbols = core::mem::take(&mut self.symbols);
        self.enqueue(batch, index, &symbols[j * stride..][..len]);
        self.symbols = symbols;
        self.cut += 1;
        self.messages.0 += u64::from(!message.is_empty());
        if self.cut.is_multiple_of(size * usize::from(shape.depth())) {
            self.end_group();
        }
        if self.cut == k {
            self.repair_batches();
            self.cut = 0;
            match self.block.checked_add(1) {
                Some(next) => self.block = next,
                None => self.is_exhausted = true,
            }
            self.stats.blocks += 1;
            self.messages = (0, self.messages.0 + self.messages.1);
        }
        Ok(())
    }

    /// Sends a packet as the outer code made it, and keeps it for the combinations at the end of its group.
    fn enqueue(&mut self, batch: u16, index: usize, symbol: &[u8]) {
        let packet = Packet { batch, coefficients: Coefficients::Index(index as u8), symbol, ..self.blank() };
        let mut out = self.queue.buffer();
        packet.emit(&mut out);
        self.queue.push(out);
        let size = self.config.shape.batch_size();
        let at = self.group.iter().position(|held| held.batch == batch).unwrap_or_else(|| {
            self.group.push(Held::new(batch, size));
            self.group.len() - 1
        });
        self.group[at].insert(&packet);
    }

    /// The combinations of the batches that took turns.
    fn end_group(&mut self) {
        let beyond = self.config.plan.sends() - f64::from(self.config.shape.batch_size());
        let counts: Vec<usize> = self
            .group
            .iter()
            .map(|_| {
                self.owed += beyond;
                let whole = self.owed.floor();
                self.owed -= whole;
                whole as usize
            })
            .collect();
        let (group, blank) = (core::mem::take(&mut self.group), self.blank());
        for at in in_turn(&counts) {
            let mut out = self.queue.buffer();
            group[at].combine(blank, &mut self.rng, &mut out);
            self.queue.push(out);
        }
    }

    /// All repair batches of the block that is complete now.
    fn repair_batches(&mut self) {
        let shape = self.config.shape;
        let stride = usize::from(shape.symbol());
        let (Some(profile), first) = (shape.profile(), (shape.block_packets() / usize::from(shape.batch_size())) as u16) else { return };
        let Ok(mut encoder) = BlockEncoder::new(profile, stride, core::mem::take(&mut self.symbols)) else { return };
        let group = usize::from(shape.batch_size()) * usize::from(shape.depth());
        let mut symbol = vec![0; stride];
        for n in 0..usize::from(self.config.plan.batches().saturating_sub(first)) * usize::from(shape.batch_size()) {
            let (batch, index) = shape.place(n);
            if encoder.packet(u32::from(first + batch), index, &mut symbol).is_some() {
                self.enqueue(first + batch, index, &symbol);
            }
            if (n + 1).is_multiple_of(group) {
                self.end_group();
            }
        }
    }
}

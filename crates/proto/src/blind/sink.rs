//! The destination of a blind stream: blocks are solved from whatever arrives of them; what does not check is thrown away before it is used (P16).

use super::packet::HEADER;
use super::{Coefficients, Packet, Shape, StreamName};
use crate::crypto::{CryptoError, FlowKey, MacTag};
use crate::ids::Seq;
use crate::switch::{self, Mechanism};
use bytes::Bytes;
use noctule_codes::bats::{BlockDecoder, BlockEncoder, Profile, Received};
use noctule_codes::span::MAX_SPAN;
use std::collections::{BTreeMap, VecDeque};

/// Blocks that are being solved at the same time.
const MOST_BLOCKS: usize = 3;
/// Repair batches whose pads are at hand, beside those that take turns.
const PADS: usize = 4;
/// Blocks whose pads are at hand although nothing of them has checked: the first and the next.
const SPARE: usize = 2;

/// Counts of a sink.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct SinkStats {
    /// Datagrams of the stream.
    pub datagrams: u64,
    /// Packets that told something new.
    pub innovative: u64,
    /// Packets that nobody with the stream's key made, nor anyone combined from such.
    pub polluted: u64,
    /// Packets of blocks that lie behind: late, or played again.
    pub over: u64,
    /// Blocks that were solved.
    pub blocks: u64,
    /// Blocks that were given up.
    pub given_up: u64,
    /// Packets of these that never came.
    pub missing: u64,
    /// Messages handed over.
    pub messages: u64,
    /// Messages whose packet did not come as it was sent: of combinations and repair packets.
    pub recovered: u64,
}

/// Receives a stream.
#[derive(Debug)]
pub struct Sink {
    stream: StreamName,
    shape: Shape,
    profile: Profile,
    key: FlowKey,
    blocks: BTreeMap<u32, Block>,
    /// Of blocks that are not begun: what is forged for them costs their pads once.
    spare: VecDeque<(u32, Pads)>,
    /// Blocks whose pads were made.
    #[cfg(test)]
    pub(super) padded: u64,
    /// Blocks below are over.
    floor: u32,
    ready: VecDeque<(u64, Bytes)>,
    stats: SinkStats,
}

#[derive(Debug)]
enum Block {
    Open(Box<Open>),
    Solved,
}

#[derive(Debug)]
struct Open {
    decoder: BlockDecoder,
    pads: Option<Pads>,
}

/// What repair packets of a block are checked with.
#[derive(Debug)]
struct Pads {
    /// Makes the pads of repair packets from those of source packets: the outer code is linear.
    encoder: BlockEncoder<'static>,
    /// Of batches of which something checked, and of the last one of which nothing did: what is forged displaces nothing.
    of_batches: VecDeque<(u16, Vec<MacTag>)>,
    doubtful: Option<(u16, Vec<MacTag>)>,
}

impl Sink {
    /// A sink for a stream of this name, cut and key.
    ///
    /// # Errors
    /// None with keys of 32 bytes.
    pub fn new(stream: StreamName, shape: Shape, key: &[u8; 32]) -> Result<Self, CryptoError> {
        Ok(Self {
            stream,
            profile: shape.profile().ok_or(CryptoError::Misuse("a shape without a code"))?,
            shape,
            key: FlowKey::of_stream(key, shape.symbol())?,
            blocks: BTreeMap::new(),
            spare: VecDeque::new(),
            #[cfg(test)]
            padded: 0,
            floor: 0,
            ready: VecDeque::new(),
            stats: SinkStats::default(),
        })
    }

    /// Blocks before this one are none of this sink's.
    pub fn begin_at(&mut self, block: u32) {
        self.floor = self.floor.max(block);
        self.blocks.retain(|number, _| *number >= block);
    }

    /// Counts so far.
    pub fn stats(&self) -> SinkStats {
        self.stats
    }

    /// The next message with its number, in the order in which they became known.
    pub fn poll_message(&mut self) -> Option<(u64, Bytes)> {
        self.ready.pop_front()
    }

    /// A datagram. What is none of this stream is dropped; true if it was made with this stream's key.
    pub fn handle_datagram(&mut self, datagram: &[u8]) -> bool {
        let Ok(packet) = Packet::parse(datagram) else { return false };
        if packet.stream != self.stream || !packet.fits(&self.shape) || datagram.len() < HEADER {
            return false;
        }
        self.stats.datagrams += 1;
        if packet.block < self.floor {
            self.stats.over += 1;
            return false;
        }
        if matches!(self.blocks.get(&packet.block), Some(Block::Solved)) {
            return false;
        }
        if !switch::is_off(Mechanism::PollutionCheck) {
            match self.is_sound(&packet) {
                Some(true) => {}
                Some(false) => {
                    self.stats.polluted += 1;
                    return false;
                }
                None => return false,
            }
        }
        let is_source = u32::from(packet.batch) < self.profile.systematic_batches();
        let mut fresh = None;
        let open = match self.blocks.get_mut(&packet.block) {
            Some(Block::Open(open)) => open,
            _ => {
                let Ok(decoder) = BlockDecoder::new(self.profile, usize::from(self.shape.symbol())) else { return false };
                let spare = self.spare.iter().position(|(block, _)| *block == packet.block).and_then(|at| self.spare.remove(at));
                fresh.insert(Box::new(Open { decoder, pads: spare.map(|(_, pads)| pads) }))
            }
        };
        let received = match packet.coefficients {
            Coefficients::Index(index) => open.decoder.receive_uncoded(packet.batch.into(), index.into(), packet.symbol),
            Coefficients::Vector(vector) => open.decoder.receive(packet.batch.into(), vector, packet.symbol),
        };
        self.stats.innovative += u64::from(received == Received::Innovative);
        let direct = match packet.coefficients {
            Coefficients::Index(index) if is_source => {
                Some(usize::from(packet.batch) * usize::from(self.shape.batch_size()) + usize::from(index))
            }
            _ => None,
        };
        let (messages, recovered) = open.hand_over(packet.block, direct, &self.shape, &mut self.key, &mut self.ready);
        self.stats.messages += messages;
        self.stats.recovered += recovered;
        let is_solved = open.decoder.is_complete();
        if let Some(open) = fresh {
            self.blocks.insert(packet.block, Block::Open(open));
        }
        if is_solved {
            self.stats.blocks += 1;
            self.blocks.insert(packet.block, Block::Solved);
        }
        while self.blocks.len() > MOST_BLOCKS {
            let Some((number, block)) = self.blocks.pop_first() else { break };
            self.floor = number.saturating_add(1);
            if let Block::Open(open) = block {
                self.stats.given_up += 1;
                self.stats.missing += open.decoder.missing() as u64;
            }
        }
        true
    }

    /// Whether a packet is the combination that it claims to be; none if it is not worth looking at. Nothing is begun for a packet that does not check.
    fn is_sound(&mut self, packet: &Packet<'_>) -> Option<bool> {
        let size = usize::from(self.shape.batch_size());
        let first = u64::from(packet.block) * self.shape.block_packets() as u64;
        let mut row = [0; MAX_SPAN];
        packet.vector(&mut row[..size]);
        if u32::from(packet.batch) < self.profile.systematic_batches() {
            return Some(self.key.is_sound(Seq(first + u64::from(packet.batch) * size as u64), &row[..size], packet.symbol));
        }
        let newest = self.blocks.last_key_value().map(|(number, _)| *number);
        let pads = match self.blocks.get_mut(&packet.block) {
            Some(Block::Open(open)) => &mut open.pads,
            // Repair packets begin the first block or the next one: other blocks are begun by their source packets, whose check costs nothing beforehand.
            _ if packet.block.checked_sub(1) != newest && (packet.block, newest) != (self.floor, None) => return None,
            _ => {
                let at = match self.spare.iter().position(|(block, _)| *block == packet.block) {
                    Some(at) => at,
                    None => {
                        let pads = Pads::new(&self.shape, &self.profile, &mut self.key, first)?;
                        #[cfg(test)]
                        {
                            self.padded += 1;
                        }
                        self.spare.truncate(SPARE - 1);
                        self.spare.push_front((packet.block, pads));
                        0
                    }
                };
                return self.spare.get_mut(at)?.1.is_sound(&self.shape, &self.key, packet, &row[..size]);
            }
        };
        if pads.is_none() {
            *pads = Pads::new(&self.shape, &self.profile, &mut self.key, first);
            #[cfg(test)]
            {
                self.padded += 1;
            }
        }
        pads.as_mut()?.is_sound(&self.shape, &self.key, packet, &row[..size])
    }
}

impl Pads {
    /// From those of a block's source packets, whose first has this number.
    fn new(shape: &Shape, profile: &Profile, key: &mut FlowKey, first: u64) -> Option<Self> {
        let mut all = Vec::with_capacity(shape.block_packets() * size_of::<MacTag>());
        for j in 0..shape.block_packets() as u64 {
            all.extend_from_slice(&key.pad(first + j).ok()?);
        }
        let encoder = BlockEncoder::new(*profile, size_of::<MacTag>(), all).ok()?;
        Some(Self { encoder, of_batches: VecDeque::new(), doubtful: None })
    }

    fn is_sound(&mut self, shape: &Shape, key: &FlowKey, packet: &Packet<'_>, row: &[u8]) -> Option<bool> {
        let batch = packet.batch;
        if let Some((_, pads)) = self.of_batches.iter().find(|(known, _)| *known == batch) {
            return Some(key.is_sound_with(pads, row, packet.symbol));
        }
        let pads = match self.doubtful.take() {
            Some((known, pads)) if known == batch => pads,
            _ => {
                let mut pads = vec![MacTag::default(); usize::from(shape.batch_size())];
                for (index, pad) in pads.iter_mut().enumerate() {
                    self.encoder.packet(batch.into(), index, pad)?;
                }
                pads
            }
        };
        let is_sound = key.is_sound_with(&pads, row, packet.symbol);
        if is_sound {
            if self.of_batches.len() >= PADS + 2 * usize::from(shape.depth()) {
                self.of_batches.pop_front();
            }
            self.of_batches.push_back((batch, pads));
        } else {
            self.doubtful = Some((batch, pads));
        }
        Some(is_sound)
    }
}

impl Open {
    /// Opens what became known; how many messages there were, and how many of them but for packet `direct`, which came as it is.
    fn hand_over(
        &mut self,
        block: u32,
        direct: Option<usize>,
        shape: &Shape,
        key: &mut FlowKey,
        ready: &mut VecDeque<(u64, Bytes)>,
    ) -> (u64, u64) {
        let k = shape.block_packets() as u64;
        let (mut count, mut recovered) = (0, 0);
        while let Some((j, symbol)) = self.decoder.take_recovered() {
            let (length, rest) = symbol.split_at(2);
            let length = usize::from(u16::from_be_bytes([length[0], length[1]]));
            let Some(sealed) = rest.get(..length) else { continue };
            let opened = key.open(Seq(u64::from(block) * k + j as u64), &Bytes::copy_from_slice(sealed));
            if let Ok(message) = opened
                && !message.is_empty()
            {
                count += 1;
                recovered += u64::from(direct != Some(j));
                ready.push_back((u64::from(block) * k + shape.order(j) as u64, message));
            }
        }
        (count, recovered)
    }
}

//! Parameters of a block and the support of each repair packet as a function of its number (docs/spec/codes.md §3).

use crate::gf256::RowTerm;
use crate::prng::SplitMix64;
use crate::span::MAX_SPAN;
use alloc::vec::Vec;
use core::fmt;

/// Parameters of one coded block, the same at encoder and decoder.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Profile {
    packets: u32,
    batch_size: u8,
    low_loss: u16,
    /// ceil(K/M), asked for with every packet.
    systematic_batches: u32,
}

/// Why parameters are refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ProfileError {
    /// The number of source packets is not in 1..65536 (RFC 9426 §2.3).
    Packets(usize),
    /// The batch size is not in 1..=64.
    BatchSize(usize),
    /// The loss is not in 1..=1000 permille.
    LowLoss(u16),
    /// The packet length is 0, or the block would not fit into memory addresses.
    PacketLength(usize),
    /// The data do not fit into the block.
    Data {
        /// Bytes given.
        given: usize,
        /// Bytes that the block holds.
        room: usize,
    },
}

impl fmt::Display for ProfileError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Packets(n) => write!(f, "{n} source packets: not in 1..65536"),
            Self::BatchSize(m) => write!(f, "batch size {m}: not in 1..=64"),
            Self::LowLoss(p) => write!(f, "loss of {p} permille: not in 1..=1000"),
            Self::PacketLength(t) => write!(f, "packet length {t}: zero or too large"),
            Self::Data { given, room } => write!(f, "{given} bytes of data for a block of {room}"),
        }
    }
}

impl core::error::Error for ProfileError {}

/// Missing packets that a repair packet covers on average when the loss is at its low end: half of the repair packets cover the first number,
/// half the second. Short supports start the peeling, longer ones reach more; how they were found is in docs/spec/codes.md §3.3.
const DEGREES: [u64; 2] = [2, 4];

impl Profile {
    /// A block of `packets` source packets in batches of `batch_size`, for links that lose at least `low_loss` permille.
    ///
    /// Repair packets then cover `3000 / low_loss` source packets on average. `low_loss` should be the low end of the estimate (half the mean is a good choice): more loss than that costs only time, less loss
    /// makes single packets hard to reach.
    pub fn new(packets: usize, batch_size: usize, low_loss: u16) -> Result<Self, ProfileError> {
        let packets = u16::try_from(packets).ok().filter(|n| *n > 0).ok_or(ProfileError::Packets(packets))?;
        if batch_size == 0 || batch_size > MAX_SPAN {
            return Err(ProfileError::BatchSize(batch_size));
        }
        if !(1..=1000).contains(&low_loss) {
            return Err(ProfileError::LowLoss(low_loss));
        }
        let packets = u32::from(packets);
        Ok(Self { packets, batch_size: batch_size as u8, low_loss, systematic_batches: packets.div_ceil(batch_size as u32) })
    }

    /// Source packets K.
    pub fn packets(&self) -> usize {
        self.packets as usize
    }

    /// Batch size M.
    pub fn batch_size(&self) -> usize {
        usize::from(self.batch_size)
    }

    /// Number of systematic batches, ceil(K/M). Batches from this number on are repair batches.
    pub fn systematic_batches(&self) -> u32 {
        self.systematic_batches
    }

    /// Packets in a batch: M, or what is left for the last systematic one.
    pub fn batch_len(&self, batch: u32) -> usize {
        if batch == self.systematic_batches - 1 { (self.packets - batch * u32::from(self.batch_size)) as usize } else { self.batch_size() }
    }

    /// Whether supports are so large that repair packets simply cover everything; there is no precode then.
    pub(crate) fn is_dense(&self) -> bool {
        // Mean support 3/loss against K: below four times that, sparse rows save nothing.
        self.packets * u32::from(self.low_loss) < 12_000
    }

    /// Parities of the precode: one for each ten packets missing at the low end of the loss, of which supports leave some 8 % alone.
    pub(crate) fn parities(&self) -> u32 {
        if self.is_dense() { 0 } else { 10 + self.packets * u32::from(self.low_loss) / 10_000 }
    }

    /// Arena rows that repair packets draw from: K source packets, then the parities.
    pub(crate) fn rows(&self) -> usize {
        (self.packets + self.parities()) as usize
    }

    /// Writes the support of packet `index` of repair batch `batch`: rows in ascending order with their coefficients, all distinct.
    pub(crate) fn support(&self, batch: u32, index: usize, out: &mut Vec<RowTerm>) {
        out.clear();
        let k = u64::from(self.packets);
        let mut random = SplitMix64::new(u64::from(batch) << 32 | (index as u64) << 16 | k);
        if self.is_dense() {
            for first in (0..self.packets).step_by(8) {
                let bytes = random.next_u64().to_le_bytes();
                let rows = first..self.packets.min(first + 8);
                out.extend(rows.zip(bytes).map(|(row, byte)| RowTerm { row, factor: byte.max(1) }));
            }
            return;
        }
        let head = random.next_u64();
        let size = (DEGREES[head as usize & 1] * 1000 / u64::from(self.low_loss)).clamp(1, k);
        // One packet from each of `size` strata: ascending, nearly distinct, even over the block. Q32 arithmetic, K < 2^16.
        let step = (k << 32) / size;
        let mut bits = 0;
        for i in 0..size {
            if i % 2 == 0 {
                bits = random.next_u64();
            }
            let row = ((i * step + (((bits & 0xffff) * step) >> 16)) >> 32) as u32;
            let factor = ((bits >> 16) as u8).max(1);
            bits >>= 32;
            match out.last_mut() {
                Some(last) if last.row == row => {
                    last.factor ^= factor;
                    if last.factor == 0 {
                        out.pop();
                    }
                }
                _ => out.push(RowTerm { row, factor }),
            }
        }
        let parities = u64::from(self.parities());
        let first = ((head >> 8 & 0xffff) * parities) >> 16;
        let other = (first + 1 + (((head >> 24 & 0xffff) * (parities - 1)) >> 16)) % parities;
        out.push(RowTerm { row: self.packets + first as u32, factor: ((head >> 40) as u8).max(1) });
        out.push(RowTerm { row: self.packets + other as u32, factor: ((head >> 48) as u8).max(1) });
    }
}

//! How an object is cut: blocks of nearly equal numbers of packets, each a block of the outer code.

use super::{MAX_BLOCK, MAX_BLOCKS, ObjectError};
use crate::wire::varint::{Reader, emit};
use core::ops::Range;
use noctule_codes::bats::Profile;

/// An object's size and cut, and the parameters of the outer code: what both ends must agree on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Layout {
    size: u64,
    packet_len: u16,
    block_packets: u16,
    batch_size: u8,
    low_loss: u16,
}

impl Layout {
    /// An object of `size` bytes in packets of `packet_len` bytes and blocks of at most `block_packets` packets; `batch_size` and `low_loss` (permille) are
    /// those of [`Profile`].
    ///
    /// # Errors
    /// Zero where something is needed, a block above [`MAX_BLOCK`], or more than [`MAX_BLOCKS`] blocks.
    pub fn new(size: u64, packet_len: u16, block_packets: u16, batch_size: u8, low_loss: u16) -> Result<Self, ObjectError> {
        let layout = Self { size, packet_len, block_packets, batch_size, low_loss };
        let fail = |why| Err(ObjectError::Layout { size, packet_len, block_packets, why });
        if packet_len < 16 || block_packets == 0 {
            return fail("packets need 16 bytes, and blocks a packet");
        }
        if !matches!(batch_size, 8 | 16 | 32 | 64) || !(1..=1000).contains(&low_loss) {
            return fail("the batch size is 8, 16, 32 or 64, the loss 1 to 1000 permille");
        }
        if u64::from(block_packets) * u64::from(packet_len) > MAX_BLOCK {
            return fail("a block is too large");
        }
        if size.div_ceil(u64::from(packet_len)).div_ceil(u64::from(block_packets)) > MAX_BLOCKS {
            return fail("there are too many blocks: larger packets or blocks are needed");
        }
        Ok(layout)
    }

    /// Bytes of the object.
    pub fn size(&self) -> u64 {
        self.size
    }

    /// Bytes of a packet's payload.
    pub fn packet_len(&self) -> usize {
        usize::from(self.packet_len)
    }

    /// Packets of the object.
    pub fn packets(&self) -> u64 {
        self.size.div_ceil(u64::from(self.packet_len))
    }

    /// Blocks of the object; an empty object has none.
    pub fn blocks(&self) -> u32 {
        self.packets().div_ceil(u64::from(self.block_packets)) as u32
    }

    /// Packets of a block: numbers differ by at most one.
    pub fn block_packets(&self, block: u32) -> u32 {
        let (each, more) = self.shares();
        (each + u64::from(u64::from(block) < more)) as u32
    }

    /// Bytes of the largest block.
    pub fn block_bytes(&self) -> usize {
        self.block_packets(0) as usize * self.packet_len()
    }

    /// Where a block lies in the object.
    pub fn range(&self, block: u32) -> Range<u64> {
        let (each, more) = self.shares();
        let first = |b: u64| (b * each + b.min(more)) * u64::from(self.packet_len);
        let b = u64::from(block);
        first(b).min(self.size)..first(b + 1).min(self.size)
    }

    /// Packets of each block, and how many blocks have one more.
    fn shares(&self) -> (u64, u64) {
        let blocks = u64::from(self.blocks()).max(1);
        (self.packets() / blocks, self.packets() % blocks)
    }

    /// The outer code's parameters for a block.
    ///
    /// # Errors
    /// There is no such block.
    pub fn profile(&self, block: u32) -> Result<Profile, ObjectError> {
        if block >= self.blocks() {
            return Err(ObjectError::NoBlock(block));
        }
        Profile::new(self.block_packets(block) as usize, self.batch_size.into(), self.low_loss).map_err(|_| ObjectError::NoBlock(block))
    }

    /// Batch and place in it of packet `number` of a block: K source packets, then the repair batches one after the other.
    pub fn place(&self, profile: &Profile, number: u32) -> (u32, usize) {
        let (k, m) = (profile.packets() as u32, u32::from(self.batch_size));
        match number.checked_sub(k) {
            None => (number / m, (number % m) as usize),
            Some(repair) => (profile.systematic_batches() + repair / m, (repair % m) as usize),
        }
    }

    /// Appends it.
    pub fn emit(&self, out: &mut Vec<u8>) {
        emit(out, self.size);
        out.extend_from_slice(&self.packet_len.to_be_bytes());
        out.extend_from_slice(&self.block_packets.to_be_bytes());
        out.push(self.batch_size);
        out.extend_from_slice(&self.low_loss.to_be_bytes());
    }

    /// Reads it.
    ///
    /// # Errors
    /// It is cut off, or what it says is not permitted.
    pub fn parse(r: &mut Reader<'_>) -> Result<Self, ObjectError> {
        let (size, packet_len, block_packets, batch_size, low_loss) = (r.varint()?, r.u16()?, r.u16()?, r.u8()?, r.u16()?);
        Self::new(size, packet_len, block_packets, batch_size, low_loss)
    }
}

//! What a receiver tells: block feedback, nothing about single packets.

use super::{Layout, ObjectError};
use crate::wire::WireError;
use crate::wire::varint::{Reader, emit};

/// Blocks that a status describes one by one, at most.
pub const MAX_DESCRIBED: usize = 4096;

/// How far a receiver is. Absolute, so that the newest says all.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Status {
    /// Blocks below are there.
    pub first: u32,
    /// Of several receivers together: one of them has all blocks below. Of one: `first`.
    pub ahead: u32,
    /// Innovative packets that each block from `first` on still needs; 0: it is there. Blocks beyond need everything.
    pub wanted: Vec<u32>,
}

impl Status {
    /// Packets that a block needs.
    pub fn need(&self, layout: &Layout, block: u32) -> u32 {
        match block.checked_sub(self.first) {
            None => 0,
            Some(at) => self.wanted.get(at as usize).copied().unwrap_or_else(|| layout.block_packets(block)),
        }
    }

    /// All blocks are there.
    pub fn is_complete(&self, layout: &Layout) -> bool {
        self.first >= layout.blocks()
    }

    /// What a sender has to know of two receivers: the larger need of each block. Relays merge the feedback of many into that of one.
    pub fn merge(&self, other: &Self, layout: &Layout) -> Self {
        let first = self.first.min(other.first);
        let end = (self.first as usize + self.wanted.len()).max(other.first as usize + other.wanted.len());
        let end = end.min(first as usize + MAX_DESCRIBED).min(layout.blocks() as usize) as u32;
        Self {
            first,
            ahead: self.ahead.max(other.ahead),
            wanted: (first..end).map(|b| self.need(layout, b).max(other.need(layout, b))).collect(),
        }
    }

    /// Appends it.
    pub fn emit(&self, out: &mut Vec<u8>) {
        emit(out, self.first.into());
        emit(out, self.ahead.into());
        emit(out, self.wanted.len() as u64);
        self.wanted.iter().for_each(|n| emit(out, (*n).into()));
    }

    /// Reads it.
    ///
    /// # Errors
    /// Cut off, or beyond the object.
    pub fn parse(r: &mut Reader<'_>, layout: &Layout) -> Result<Self, ObjectError> {
        let (first, ahead, count) = (r.varint()?, r.varint()?, r.varint()?);
        let blocks = u64::from(layout.blocks());
        if count > MAX_DESCRIBED as u64 || first + count > blocks || ahead < first || ahead > blocks {
            return Err(WireError::Invalid("status of blocks that do not exist").into());
        }
        let mut wanted = Vec::with_capacity(count as usize);
        for block in first..first + count {
            let most = layout.block_packets(block as u32);
            wanted.push(r.varint()?.min(most.into()) as u32);
        }
        Ok(Self { first: first as u32, ahead: ahead as u32, wanted })
    }
}

//! The sender where nobody answers: all blocks, once with a given overhead or again and again.
//!
//! Packets of some blocks take turns, so that a burst of losses costs each of them a little. Every pass of a carousel has fresh packets: a receiver that joins
//! late, or lost part of a pass, needs any K packets of a block and a few more, whichever they are.

use super::tree::HashTree;
use super::{Layout, ObjectError, Packet, PacketId, SourceBlock};
use std::collections::BTreeMap;
use std::sync::Arc;

/// How long a carousel turns.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Plan {
    /// Until its owner stops it.
    Endless,
    /// One pass, with so many permille of packets more than each block has.
    Once {
        /// Permille of a block's packets.
        overhead: u32,
    },
}

/// What to do next.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Step {
    /// Load this block, then go on.
    Load(u32),
    /// This packet was appended.
    Packet(PacketId),
    /// Everything that was planned has gone out.
    End,
}

/// The same where packets are made elsewhere.
#[derive(Clone, Debug)]
pub enum Next {
    /// Load this block, then go on.
    Load(u32),
    /// This packet comes next.
    Packet(PacketJob),
    /// Everything that was planned has gone out.
    End,
}

/// A packet that is named and not made yet: any thread may do that (P21).
#[derive(Clone, Debug)]
pub struct PacketJob {
    id: PacketId,
    what: What,
}

#[derive(Clone, Debug)]
enum What {
    Proof(Vec<u8>),
    Coded(Arc<SourceBlock>, u32),
}

impl PacketJob {
    /// Which packet it is.
    pub fn id(&self) -> PacketId {
        self.id
    }

    /// Appends it. Cost: as [`SourceBlock::write`].
    pub fn write(&self, out: &mut Vec<u8>) {
        match &self.what {
            What::Proof(bytes) => out.extend_from_slice(bytes),
            What::Coded(source, number) => source.write_shared(*number, out),
        }
    }
}

/// Turns of a block between two proofs of its hash, at most, and proofs in a pass, at least: all of them may not be lost.
const PROOF_EVERY: u32 = 64;
const PROOFS: u32 = 8;
/// Bytes of the blocks that take turns, at most (two blocks always).
const GROUP_BYTES: usize = 32 << 20;

/// Packets of an object without end.
#[derive(Debug)]
pub struct Carousel {
    layout: Layout,
    tree: HashTree,
    plan: Plan,
    loaded: BTreeMap<u32, Arc<SourceBlock>>,
    group: u32,
    pass: u32,
    /// First block of the group, and where in it we are: turn and block.
    start: u32,
    turn: u32,
    at: u32,
    is_proven: bool,
}

impl Carousel {
    /// At its beginning.
    pub fn new(layout: Layout, tree: HashTree, plan: Plan) -> Self {
        let group = (GROUP_BYTES / layout.block_bytes().max(1)).clamp(2, 64) as u32;
        Self { layout, tree, plan, loaded: BTreeMap::new(), group, pass: 0, start: 0, turn: 0, at: 0, is_proven: false }
    }

    /// Passes that are complete.
    pub fn passes(&self) -> u32 {
        self.pass
    }

    /// The content of a block that was asked for.
    ///
    /// # Errors
    /// It is not what was announced.
    pub fn load(&mut self, block: u32, content: Vec<u8>) -> Result<(), ObjectError> {
        let leaf = self.tree.leaves().get(block as usize).ok_or(ObjectError::NoBlock(block))?;
        self.add(SourceBlock::new(self.layout, block, content, leaf)?);
        Ok(())
    }

    /// A block of this object that another thread has checked, and best [prepared](SourceBlock::prepare), already (P21).
    pub fn add(&mut self, mut source: SourceBlock) {
        source.prepare();
        self.loaded.insert(source.block(), Arc::new(source));
    }

    /// Blocks that will be asked for soon, the next first.
    pub fn wanted(&self) -> impl Iterator<Item = u32> + '_ {
        (self.start..self.group_end()).filter(|block| !self.loaded.contains_key(block))
    }

    /// Packets of a block in one pass.
    fn share(&self, block: u32) -> u32 {
        let k = self.layout.block_packets(block);
        match self.plan {
            Plan::Endless => k,
            Plan::Once { overhead } => {
                k.saturating_add((u64::from(k) * u64::from(overhead)).div_ceil(1000).min(u64::from(u32::MAX)) as u32)
            }
        }
    }

    fn group_end(&self) -> u32 {
        self.start.saturating_add(self.group).min(self.layout.blocks())
    }

    /// The next packet is appended to `out`, or something has to be done first.
    pub fn poll(&mut self, out: &mut Vec<u8>) -> Step {
        match self.poll_job() {
            Next::Load(block) => Step::Load(block),
            Next::End => Step::End,
            Next::Packet(job) => {
                job.write(out);
                Step::Packet(job.id())
            }
        }
    }

    /// The next packet is named, or something has to be done first.
    pub fn poll_job(&mut self) -> Next {
        if self.layout.blocks() == 0 {
            return Next::End;
        }
        loop {
            if self.start >= self.layout.blocks() {
                (self.start, self.pass) = (0, self.pass.saturating_add(1));
            }
            if self.pass > 0 && self.plan != Plan::Endless {
                return Next::End;
            }
            let end = self.group_end();
            if self.at == end {
                (self.at, self.turn) = (self.start, self.turn + 1);
            }
            // The first block of a group is the largest.
            if self.turn >= self.share(self.start) {
                (self.start, self.at, self.turn) = (end, end, 0);
                // What fits is kept for the next pass.
                if self.layout.blocks() > self.group {
                    self.loaded.clear();
                }
                if end == self.layout.blocks() {
                    self.at = 0;
                }
                continue;
            }
            let block = self.at;
            if self.turn >= self.share(block) {
                self.at += 1;
                continue;
            }
            let number = self.number(block);
            let proof_every = PROOF_EVERY.min(self.share(block).div_ceil(PROOFS));
            let Some(source) = self.loaded.get(&block) else { return Next::Load(block) };
            if self.layout.blocks() > 1 && self.turn.is_multiple_of(proof_every) && !self.is_proven {
                self.is_proven = true;
                let leaf = self.tree.leaves()[block as usize];
                let mut bytes = Vec::new();
                Packet::emit_proof(&mut bytes, block, &leaf, &self.tree.path(block));
                return Next::Packet(PacketJob { id: PacketId::proof(block), what: What::Proof(bytes) });
            }
            self.is_proven = false;
            let what = What::Coded(Arc::clone(source), number);
            self.at += 1;
            return Next::Packet(PacketJob { id: PacketId::coded(block, number), what });
        }
    }

    /// Fresh numbers in every pass; after 2^32 packets of a block they begin again. The last one is that of the proof.
    fn number(&self, block: u32) -> u32 {
        let number = u64::from(self.layout.block_packets(block)) * u64::from(self.pass) + u64::from(self.turn);
        (number % u64::from(u32::MAX)) as u32
    }
}

//! The receiver: packets in any order, verified blocks out, a bound on what is held in between.

use super::tree::{Digest, HashTree, Root, climb, leaf};
use super::{Layout, ObjectError, Packet, Status};
use crate::object::status::MAX_DESCRIBED;
use noctule_codes::bats::{BlockDecoder, Received};
use std::collections::{BTreeMap, VecDeque};

/// What became of a packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Taken {
    /// It told something new.
    New,
    /// Its block is there, or it told nothing new.
    Redundant,
    /// As many blocks are open as may be.
    NoRoom,
    /// It cannot be read, or does not belong to the object.
    Malformed,
}

/// Counts of a receiver.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ReceiverStats {
    /// Packets that told something new.
    pub new_packets: u64,
    /// Packets that told nothing new.
    pub redundant_packets: u64,
    /// Packets for which there was no room.
    pub unheld_packets: u64,
    /// Packets that could not be read.
    pub malformed_packets: u64,
    /// Blocks that were decoded and were not what the root says: somebody invented packets.
    pub spoiled_blocks: u64,
}

/// Receives one object.
#[derive(Debug)]
pub struct Receiver {
    layout: Layout,
    about: Vec<u8>,
    root: Root,
    leaves: Vec<Option<Digest>>,
    done: Vec<bool>,
    /// All blocks below are there.
    first: u32,
    missing: u32,
    /// One past the highest block of which anything came.
    high: u32,
    open: BTreeMap<u32, BlockDecoder>,
    max_open: usize,
    ready: VecDeque<(u32, Vec<u8>)>,
    stats: ReceiverStats,
}

impl Receiver {
    /// A receiver that holds `memory` bytes of blocks that are not complete or not taken yet (two blocks always). Decoding takes up to as much again.
    ///
    /// # Errors
    /// An object without blocks whose root is not its root.
    pub fn new(layout: Layout, about: &[u8], root: Root, memory: usize) -> Result<Self, ObjectError> {
        let blocks = layout.blocks() as usize;
        if blocks == 0 && Root::of(&layout, about, &[0; 32])? != root {
            return Err(ObjectError::Root);
        }
        Ok(Self {
            layout,
            about: about.to_vec(),
            root,
            leaves: vec![None; blocks],
            done: vec![false; blocks],
            first: 0,
            missing: layout.blocks(),
            high: 0,
            open: BTreeMap::new(),
            max_open: (memory / layout.block_bytes().max(1)).clamp(2, MAX_DESCRIBED),
            ready: VecDeque::new(),
            stats: ReceiverStats::default(),
        })
    }

    /// All leaves at once, where there is a way to get them surely. Proofs are not needed then.
    ///
    /// # Errors
    /// They do not lead to the root.
    pub fn set_leaves(&mut self, leaves: Vec<Digest>) -> Result<(), ObjectError> {
        if leaves.len() != self.leaves.len() {
            return Err(ObjectError::Root);
        }
        let tree = HashTree::new(leaves);
        if Root::of(&self.layout, &self.about, &tree.top())? != self.root {
            return Err(ObjectError::Root);
        }
        self.leaves = tree.leaves().iter().map(|leaf| Some(*leaf)).collect();
        Ok(())
    }

    /// Offers the content of a block that was here before; true if it is right, and the block need not come.
    pub fn offer_block(&mut self, block: u32, content: &[u8]) -> bool {
        let is_right = self.leaves.get(block as usize).copied().flatten().is_some_and(|known| known == leaf(content));
        if is_right {
            self.open.remove(&block);
            self.mark(block);
        }
        is_right
    }

    /// Blocks that it can hold open.
    pub fn window(&self) -> u32 {
        self.max_open as u32
    }

    /// The cut of the object.
    pub fn layout(&self) -> &Layout {
        &self.layout
    }

    /// Every block is there and was verified; some may still have to be [taken](Self::poll_block).
    pub fn is_complete(&self) -> bool {
        self.missing == 0
    }

    /// Blocks that are there.
    pub fn blocks_done(&self) -> u32 {
        self.layout.blocks() - self.missing
    }

    /// Counts.
    pub fn stats(&self) -> ReceiverStats {
        self.stats
    }

    /// A packet that came.
    pub fn on_packet(&mut self, bytes: &[u8]) -> Taken {
        let taken = match Packet::parse(bytes) {
            Ok(Packet::Coded { block, number, payload }) => self.on_coded(block, number, payload),
            Ok(Packet::Proof { block, leaf, path }) => self.on_proof(block, leaf, &path),
            Err(_) => Taken::Malformed,
        };
        let count = match taken {
            Taken::New => &mut self.stats.new_packets,
            Taken::Redundant => &mut self.stats.redundant_packets,
            Taken::NoRoom => &mut self.stats.unheld_packets,
            Taken::Malformed => &mut self.stats.malformed_packets,
        };
        *count += 1;
        taken
    }

    fn on_coded(&mut self, block: u32, number: u32, payload: &[u8]) -> Taken {
        match self.done.get(block as usize) {
            None => return Taken::Malformed,
            Some(true) => return Taken::Redundant,
            Some(false) => {}
        }
        if !self.open.contains_key(&block) {
            if self.open.len() + self.ready.len() >= self.max_open {
                return Taken::NoRoom;
            }
            let decoder = self.layout.profile(block).ok().and_then(|p| BlockDecoder::new(p, self.layout.packet_len()).ok());
            let Some(decoder) = decoder else { return Taken::Malformed };
            self.open.insert(block, decoder);
            self.high = self.high.max(block + 1);
        }
        let Some(decoder) = self.open.get_mut(&block) else { return Taken::Malformed };
        let (batch, index) = self.layout.place(decoder.profile(), number);
        match decoder.receive_uncoded(batch, index, payload) {
            Received::Innovative => {}
            Received::Malformed => return Taken::Malformed,
            Received::Refused => {
                // Nobody honest sends so many packets that cannot be solved.
                self.spoil(block);
                return Taken::Redundant;
            }
            Received::Redundant => return Taken::Redundant,
        }
        // Which packets became known is of no interest: blocks go out whole.
        while decoder.take_recovered().is_some() {}
        if decoder.is_complete() {
            self.verify(block);
        }
        Taken::New
    }

    fn on_proof(&mut self, block: u32, leaf: Digest, path: &[Digest]) -> Taken {
        match self.leaves.get(block as usize) {
            None => return Taken::Malformed,
            Some(Some(_)) => return Taken::Redundant,
            Some(None) => {}
        }
        let Some(top) = climb(block, self.layout.blocks(), &leaf, path) else { return Taken::Malformed };
        if Root::of(&self.layout, &self.about, &top) != Ok(self.root) {
            return Taken::Malformed;
        }
        self.leaves[block as usize] = Some(leaf);
        if self.open.get(&block).is_some_and(BlockDecoder::is_complete) {
            self.verify(block);
        }
        Taken::New
    }

    /// A block is decoded: it goes out if it is what the root says; it waits if nobody knows yet.
    fn verify(&mut self, block: u32) {
        let Some(data) = self.open.get(&block).and_then(BlockDecoder::data) else { return };
        let range = self.layout.range(block);
        let (content, padding) = data.split_at((range.end - range.start) as usize);
        let found = leaf(content);
        let is_right = match self.leaves[block as usize] {
            Some(known) => known == found,
            // The only block: its hash leads to the root by itself.
            None if self.leaves.len() == 1 => Root::of(&self.layout, &self.about, &found) == Ok(self.root),
            None => return,
        };
        if !is_right || padding.iter().any(|b| *b != 0) {
            return self.spoil(block);
        }
        let len = content.len();
        if let Some(mut data) = self.open.remove(&block).and_then(BlockDecoder::into_data) {
            data.truncate(len);
            self.ready.push_back((block, data));
            self.mark(block);
        }
    }

    fn spoil(&mut self, block: u32) {
        self.open.remove(&block);
        self.stats.spoiled_blocks += 1;
    }

    fn mark(&mut self, block: u32) {
        if let Some(done) = self.done.get_mut(block as usize).filter(|done| !**done) {
            *done = true;
            self.missing -= 1;
            self.high = self.high.max(block + 1);
            while self.done.get(self.first as usize) == Some(&true) {
                self.first += 1;
            }
        }
    }

    /// The next block that is complete and verified, each once, with its number.
    pub fn poll_block(&mut self) -> Option<(u32, Vec<u8>)> {
        self.ready.pop_front()
    }

    /// What the sender should know.
    pub fn status(&self) -> Status {
        let end = self.high.max(self.first).min(self.first.saturating_add(MAX_DESCRIBED as u32));
        Status { first: self.first, ahead: self.first, wanted: (self.first..end).map(|block| self.wanted(block)).collect() }
    }

    fn wanted(&self, block: u32) -> u32 {
        match (self.done.get(block as usize), self.open.get(&block)) {
            (Some(true) | None, _) => 0,
            (_, Some(decoder)) => decoder.wanted().max(1) as u32,
            (_, None) => self.layout.block_packets(block),
        }
    }
}

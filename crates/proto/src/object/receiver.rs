//! The receiver: packets in any order, verified blocks out, a bound on what is held in between.
//!
//! Packets of blocks as they are go to their place when they come. What costs something, combining repair packets, solving and hashing, is a job of the
//! block (`job.rs`), due once enough packets are here: [`Receiver::on_packet`] does it at once, [`Receiver::offer`] leaves it to a caller that has a core
//! to spare (P21). The results are the same.

use super::job::{BlockJob, BlockResult, Decoded, Outcome};
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
    /// Blocks that were decoded and were not what the root says: packets were invented.
    pub spoiled_blocks: u64,
}

/// A block that is not complete, or not verified yet.
#[derive(Debug)]
struct Open {
    /// `None` while a job has it.
    decoder: Option<BlockDecoder>,
    /// Packets that the next job gets, by their numbers.
    held: BTreeMap<u32, Vec<u8>>,
    /// Packets that it takes as they are.
    packets: u32,
    /// A job has had the decoder: what comes is for the next.
    was_tried: bool,
    is_queued: bool,
    /// Decoded; nobody knows its hash yet.
    decoded: Option<Decoded>,
}

impl Open {
    fn new(decoder: BlockDecoder, packets: u32) -> Self {
        Self { decoder: Some(decoder), held: BTreeMap::new(), packets, was_tried: false, is_queued: false, decoded: None }
    }

    /// A job could make something of what is here.
    fn is_ripe(&self) -> bool {
        !self.is_queued && self.decoder.as_ref().is_some_and(|d| self.held.len() >= d.wanted())
    }

    /// Packets to ask for; at least one as long as it is not verified.
    fn wanted(&self) -> u32 {
        self.decoder.as_ref().map_or(1, |d| d.wanted().saturating_sub(self.held.len()).max(1) as u32)
    }

    /// A packet of the block. What is only held is taken as new; its job may know better.
    fn take(&mut self, layout: &Layout, number: u32, payload: &[u8]) -> Taken {
        if payload.len() > layout.packet_len() {
            return Taken::Malformed;
        }
        if self.decoded.is_some() || self.held.contains_key(&number) {
            return Taken::Redundant;
        }
        if number < self.packets
            && !self.was_tried
            && let Some(decoder) = self.decoder.as_mut()
        {
            let (batch, index) = layout.place(decoder.profile(), number);
            let taken = match decoder.receive_uncoded(batch, index, payload) {
                Received::Innovative => Taken::New,
                Received::Malformed => Taken::Malformed,
                Received::Redundant | Received::Refused => Taken::Redundant,
            };
            // Which packets became known is of no interest: blocks go out whole.
            while decoder.take_recovered().is_some() {}
            return taken;
        }
        // While a job has the decoder nothing says how many more are of use.
        if self.held.len() >= self.packets as usize {
            return Taken::NoRoom;
        }
        self.held.insert(number, payload.to_vec());
        Taken::New
    }
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
    open: BTreeMap<u32, Open>,
    /// Blocks whose job is due.
    due: VecDeque<u32>,
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
            due: VecDeque::new(),
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
        self.offer_leaf(block, &leaf(content))
    }

    /// The same by its hash, which any thread may make.
    pub fn offer_leaf(&mut self, block: u32, found: &Digest) -> bool {
        let is_right = self.leaves.get(block as usize).copied().flatten().is_some_and(|known| known == *found);
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

    /// A packet that came; the job that it makes due, if any, is done here.
    pub fn on_packet(&mut self, bytes: &[u8]) -> Taken {
        let taken = self.offer(bytes);
        while let Some(job) = self.poll_job() {
            self.on_result(job.run());
        }
        taken
    }

    /// A packet that came; jobs are left to [`poll_job`](Self::poll_job).
    pub fn offer(&mut self, bytes: &[u8]) -> Taken {
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
            self.open.insert(block, Open::new(decoder, self.layout.block_packets(block)));
            self.high = self.high.max(block + 1);
        }
        let Some(open) = self.open.get_mut(&block) else { return Taken::Malformed };
        let taken = open.take(&self.layout, number, payload);
        self.queue_if_ripe(block);
        taken
    }

    fn queue_if_ripe(&mut self, block: u32) {
        if let Some(open) = self.open.get_mut(&block).filter(|o| o.is_ripe()) {
            open.is_queued = true;
            self.due.push_back(block);
        }
    }

    /// A job that any thread may do, in any order; its result goes to [`on_result`](Self::on_result).
    pub fn poll_job(&mut self) -> Option<BlockJob> {
        while let Some(block) = self.due.pop_front() {
            let Some(open) = self.open.get_mut(&block) else { continue };
            open.is_queued = false;
            let Some(decoder) = open.decoder.take() else { continue };
            open.was_tried = true;
            return Some(BlockJob { layout: self.layout, block, decoder, held: core::mem::take(&mut open.held) });
        }
        None
    }

    /// What became of a job.
    pub fn on_result(&mut self, result: BlockResult) {
        let BlockResult { block, redundant, outcome } = result;
        // What was taken as new before its job looked at it.
        self.stats.new_packets = self.stats.new_packets.saturating_sub(redundant);
        self.stats.redundant_packets += redundant;
        let Some(open) = self.open.get_mut(&block) else { return };
        match outcome {
            Outcome::Incomplete(decoder) => {
                open.decoder = Some(*decoder);
                self.queue_if_ripe(block);
            }
            Outcome::Decoded(decoded) => {
                open.decoded = Some(decoded);
                open.held.clear();
                self.verify(block);
            }
            Outcome::Spoiled => self.spoil(block),
        }
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
        self.verify(block);
        Taken::New
    }

    /// A block is decoded: it goes out if it is what the root says; it waits if nobody knows yet.
    fn verify(&mut self, block: u32) {
        let Some(decoded) = self.open.get(&block).and_then(|o| o.decoded.as_ref()) else { return };
        let is_right = match self.leaves[block as usize] {
            Some(known) => known == decoded.leaf,
            // The only block: its hash leads to the root by itself.
            None if self.leaves.len() == 1 => Root::of(&self.layout, &self.about, &decoded.leaf) == Ok(self.root),
            None => return,
        };
        if !is_right {
            return self.spoil(block);
        }
        if let Some(decoded) = self.open.remove(&block).and_then(|o| o.decoded) {
            self.ready.push_back((block, decoded.content));
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
            (_, Some(open)) => open.wanted(),
            (_, None) => self.layout.block_packets(block),
        }
    }
}

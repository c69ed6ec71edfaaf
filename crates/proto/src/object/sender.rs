//! The sender where receivers tell how far they are: each block goes out once as it is, then as many fresh packets of the outer code as a receiver still
//! needs, until all have it.
//!
//! What carries the packets repairs on its own as long as that pays (flows of datagrams do, link by link); what it gives up, for whatever reason, is what
//! a block still wants when all its packets have met their fate: its last packet is `settle` old, and the receiver has heard of what was sent after it, or of
//! nothing new for `settle`. Fresh packets go only then, so that nothing is sent twice, however much waits on the path to a slow receiver.

use super::tree::HashTree;
use super::{Layout, ObjectError, PacketId, SourceBlock, Status};
use crate::switch::{self, Mechanism};
use crate::units::{Duration, Time};
use std::collections::BTreeMap;

/// Packets beyond what a receiver needs that spare another round when the last of them tell nothing new.
const SPARE: u32 = 4;

/// A receiver, as its owner numbers them.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ReceiverId(pub u32);

/// How an object is sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SenderConfig {
    /// Blocks that may be begun before a receiver has the first of them, and that are held in memory at most; at least 2.
    pub window: u32,
    /// After so long nothing that was sent is still in flight.
    pub settle: Duration,
}

/// Counts of a sender.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct SenderStats {
    /// Packets of blocks as they are.
    pub source_packets: u64,
    /// Packets of the outer code beyond them.
    pub repair_packets: u64,
    /// Blocks that were read again for a receiver that lacked part of them.
    pub reloads: u64,
}

/// A block that was begun and that a receiver lacks.
#[derive(Clone, Copy, Debug, Default)]
struct Begun {
    next: u32,
    /// Packets to send now.
    budget: u32,
    /// Packets of this round, sent or to be sent.
    granted: u32,
    /// First and last packet of this round.
    first_at: Time,
    last_at: Time,
    was_loaded: bool,
}

/// A receiver, and what its statuses prove to have reached it.
#[derive(Clone, Debug)]
struct Known {
    status: Status,
    /// When a block last needed less than before.
    progress_at: Time,
    /// Something that was sent at or after this time has arrived.
    heard: Time,
}

/// Sends one object to any number of receivers that hear the same packets.
#[derive(Debug)]
pub struct Sender {
    layout: Layout,
    tree: HashTree,
    config: SenderConfig,
    receivers: BTreeMap<ReceiverId, Known>,
    begun: BTreeMap<u32, Begun>,
    loaded: BTreeMap<u32, SourceBlock>,
    /// Next packet numbers of blocks that were begun and that nobody lacked any more.
    ended: BTreeMap<u32, u32>,
    /// First block never begun.
    next: u32,
    stats: SenderStats,
}

impl Sender {
    /// A sender without receivers.
    pub fn new(layout: Layout, tree: HashTree, config: SenderConfig) -> Self {
        let config = SenderConfig { window: config.window.max(2), ..config };
        Self {
            layout,
            tree,
            config,
            receivers: BTreeMap::new(),
            begun: BTreeMap::new(),
            loaded: BTreeMap::new(),
            ended: BTreeMap::new(),
            next: 0,
            stats: SenderStats::default(),
        }
    }

    /// A receiver told how far it is; the first time makes it known.
    pub fn on_status(&mut self, now: Time, receiver: ReceiverId, status: Status) {
        let known = self.receivers.entry(receiver).or_insert_with(|| Known { status: status.clone(), progress_at: now, heard: Time::ZERO });
        for (&block, begun) in &self.begun {
            if status.need(&self.layout, block) < known.status.need(&self.layout, block) {
                known.progress_at = now;
                known.heard = known.heard.max(begun.first_at);
            }
        }
        known.status = status;
        // A receiver that was not heard of lacks what all others have.
        for block in known.status.first..self.next {
            if known.status.need(&self.layout, block) > 0 && !self.begun.contains_key(&block) {
                let next = self.ended.remove(&block).unwrap_or(0);
                self.begun.insert(block, Begun { next, ..Begun::default() });
            }
        }
        let Known { status, progress_at, heard } = known.clone();
        self.forget_done();
        let ahead = self.ahead();
        for (&block, begun) in &mut self.begun {
            let need = status.need(&self.layout, block);
            // A receiver that lags is completed when the furthest has everything.
            let is_later = block < ahead && ahead < self.layout.blocks();
            if need == 0 || is_later {
                continue;
            }
            let is_passed = heard > begun.last_at && now >= begun.last_at + self.config.settle;
            let is_silent = now >= begun.last_at.max(progress_at) + self.config.settle;
            if begun.budget == 0 && (is_passed || is_silent) && !switch::is_off(Mechanism::FreshPackets) {
                begun.granted = 0;
            }
            if need > begun.granted {
                if begun.granted == 0 {
                    begun.first_at = now;
                }
                let grant = need + need / 16 + 1;
                begun.budget += grant - begun.granted;
                begun.granted = grant;
            }
        }
    }

    /// Packets of blocks that never left for a receiver, because there was no room for them, and that it cannot do without: as soon as there is nothing
    /// else to send, others go in their place. To be said after a status.
    pub fn on_missed(&mut self, missed: impl Iterator<Item = (u32, u32)>) {
        let is_idle = !self.may_begin() && self.begun.values().all(|b| b.budget == 0);
        if !is_idle || switch::is_off(Mechanism::MissedPackets) {
            return;
        }
        for (block, missed) in missed {
            if let Some(begun) = self.begun.get_mut(&block) {
                let grant = missed + missed / 16 + SPARE;
                begun.budget += grant;
                begun.granted += grant;
            }
        }
    }

    /// A receiver has gone.
    pub fn remove(&mut self, receiver: ReceiverId) {
        self.receivers.remove(&receiver);
        self.forget_done();
    }

    /// Every receiver has everything, and there was one.
    pub fn is_complete(&self) -> bool {
        !self.receivers.is_empty() && self.receivers.values().all(|r| r.status.is_complete(&self.layout))
    }

    /// How far a receiver said it is.
    pub fn status(&self, receiver: ReceiverId) -> Option<&Status> {
        self.receivers.get(&receiver).map(|known| &known.status)
    }

    /// Counts.
    pub fn stats(&self) -> SenderStats {
        self.stats
    }

    /// A block to be loaded next: one with packets to send, or the one after them.
    pub fn wanted_block(&self) -> Option<u32> {
        let due = self.begun.iter().filter(|(_, b)| b.budget > 0).map(|(block, _)| *block);
        let next = self.may_begin().then_some(self.next);
        let mut ahead = due.chain(next).take(2);
        ahead.find(|block| !self.loaded.contains_key(block))
    }

    /// The content of a block.
    ///
    /// # Errors
    /// It is not what was announced.
    pub fn load(&mut self, block: u32, content: Vec<u8>) -> Result<(), ObjectError> {
        let leaf = self.tree.leaves().get(block as usize).ok_or(ObjectError::NoBlock(block))?;
        self.add(SourceBlock::new(self.layout, block, content, leaf)?);
        Ok(())
    }

    /// A block of this object that another thread has checked already: making a [`SourceBlock`] is a pure job (P21).
    pub fn add(&mut self, source: SourceBlock) {
        let block = source.block();
        if block >= self.next || self.begun.contains_key(&block) {
            let is_again = self.begun.get(&block).is_some_and(|b| b.was_loaded);
            self.stats.reloads += u64::from(is_again);
            self.make_room();
            self.loaded.insert(block, source);
        }
    }

    /// Appends the next packet and says which; `None` if there is none now: a block has to be loaded, or a receiver heard.
    pub fn poll_packet(&mut self, now: Time, out: &mut Vec<u8>) -> Option<PacketId> {
        let mut due = self.begun.iter().find(|(_, b)| b.budget > 0).map(|(block, _)| *block);
        if due.is_none() && self.may_begin() && self.loaded.contains_key(&self.next) {
            let k = self.layout.block_packets(self.next);
            self.begun.insert(self.next, Begun { budget: k, granted: k, first_at: now, ..Begun::default() });
            due = Some(self.next);
            self.next += 1;
            self.skip_there();
        }
        let block = due?;
        let (begun, source) = (self.begun.get_mut(&block)?, self.loaded.get_mut(&block)?);
        let id = PacketId::coded(block, begun.next);
        source.write(begun.next, out);
        if (begun.next as usize) < source.profile().packets() {
            self.stats.source_packets += 1;
        } else {
            self.stats.repair_packets += 1;
        }
        // 2^32 packets of a block are never sent; numbers that began again would repeat packets.
        begun.next = begun.next.saturating_add(1).min(u32::MAX - 1);
        begun.budget -= 1;
        begun.last_at = now;
        begun.was_loaded = true;
        Some(id)
    }

    /// The receivers' window lets the next block go. The one that is furthest decides: one that lags skips.
    fn may_begin(&self) -> bool {
        self.next < self.layout.blocks() && !self.receivers.is_empty() && self.next < self.ahead().saturating_add(self.config.window)
    }

    /// Some receiver has all blocks below.
    fn ahead(&self) -> u32 {
        self.receivers.values().map(|r| r.status.ahead).max().unwrap_or(0)
    }

    fn forget_done(&mut self) {
        self.skip_there();
        let (layout, receivers) = (&self.layout, &self.receivers);
        let ended = &mut self.ended;
        self.begun.retain(|block, begun| {
            let is_lacked = receivers.values().any(|r| r.status.need(layout, *block) > 0);
            if !is_lacked {
                ended.insert(*block, begun.next);
            }
            is_lacked
        });
        let (begun, next) = (&self.begun, self.next);
        self.loaded.retain(|block, _| *block >= next || begun.contains_key(block));
    }

    /// Passes over blocks that every receiver had before anything was sent.
    fn skip_there(&mut self) {
        let (layout, receivers) = (&self.layout, &self.receivers);
        while self.next < layout.blocks() && !receivers.is_empty() && receivers.values().all(|r| r.status.need(layout, self.next) == 0) {
            self.next += 1;
        }
    }

    /// Lets the block go that was not sent of for longest.
    fn make_room(&mut self) {
        if self.loaded.len() < self.config.window as usize {
            return;
        }
        let idle = self.loaded.keys().filter_map(|b| self.begun.get(b).filter(|s| s.budget == 0).map(|s| (s.last_at, *b))).min();
        if let Some((_, block)) = idle.or_else(|| self.loaded.keys().last().map(|b| (Time::ZERO, *b))) {
            self.loaded.remove(&block);
        }
    }
}

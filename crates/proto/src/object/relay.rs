//! One node of a tree that one object goes down: every packet that comes from the parent goes to each child that needs it, and what the children tell goes up
//! as if one told it.
//!
//! Packets stay sealed for the receivers: a relay reads only which block they belong to. A child that has a block gets nothing more of it. Children may
//! hold each other up, because their links differ and a little waiting costs less than sending twice; one that would hold the others up most of the
//! time *lags*: it takes what it has room for, misses the rest, and is completed from fresh packets when the others have had everything.

use super::status::MAX_DESCRIBED;
use super::{Layout, PacketId, Status};
use crate::switch::{self, Mechanism};
use crate::units::{Duration, Time};
use bytes::Bytes;
use std::collections::BTreeMap;

/// A child, as its owner numbers them.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ChildId(pub u32);

/// How a relay treats its children.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RelayConfig {
    /// Time over which waiting for a child is counted.
    pub interval: Duration,
    /// Share of it, in percent, that the others may wait for one child.
    pub patience: u32,
    /// After so long a child that lags is tried again.
    pub forgive: Duration,
    /// A child that takes nothing for so long lags, even where only children that lag wait for it.
    pub silence: Duration,
    /// Bytes of blocks that a receiver holds open at least.
    pub memory: usize,
}

impl Default for RelayConfig {
    fn default() -> Self {
        Self {
            interval: Duration::from_millis(100),
            patience: 50,
            forgive: Duration::from_secs(30),
            silence: Duration::from_secs(2),
            memory: 64 << 20,
        }
    }
}

/// Counts of a relay.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct RelayStats {
    /// Packets from the parent.
    pub packets: u64,
    /// Packets to children.
    pub sent: u64,
    /// Packets that a child missed because it lags.
    pub skipped: u64,
    /// Packets that a child did not need.
    pub spared: u64,
}

#[derive(Debug, Default)]
struct Child {
    /// `None`: it has not told anything yet, and needs everything.
    status: Option<Status>,
    is_owed: bool,
    /// Time that others waited for it in this interval.
    held_up: Duration,
    lags_until: Option<Time>,
    /// Blocks that it lacked when packets of them came, [`MAX_DESCRIBED`] at most.
    given: BTreeMap<u32, Given>,
}

/// What a child was given of a block.
#[derive(Clone, Copy, Debug)]
struct Given {
    /// Packets that it needed before the first.
    need: u32,
    /// Packets that left for it since.
    packets: u32,
}

/// What to do now.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Poll {
    /// Give this to a child that has room.
    Send(ChildId, Bytes),
    /// Bring the next packet from the parent.
    Want,
    /// Wait until a child has room, or until this time.
    Wait(Time),
}

/// Passes one object on.
#[derive(Debug)]
pub struct Relay {
    layout: Layout,
    config: RelayConfig,
    children: BTreeMap<ChildId, Child>,
    packet: Option<(PacketId, Bytes)>,
    now: Time,
    /// When the packet came.
    pushed: Time,
    since: Time,
    /// A child has had room since, while another had none.
    waiting_since: Option<Time>,
    stats: RelayStats,
}

impl Relay {
    /// Without children.
    pub fn new(layout: Layout, config: RelayConfig) -> Self {
        Self {
            layout,
            config,
            children: BTreeMap::new(),
            packet: None,
            now: Time::ZERO,
            pushed: Time::ZERO,
            since: Time::ZERO,
            waiting_since: None,
            stats: RelayStats::default(),
        }
    }

    /// A child that needs everything.
    pub fn add(&mut self, child: ChildId) {
        self.children.entry(child).or_default();
    }

    /// A child has gone.
    pub fn remove(&mut self, child: ChildId) {
        self.children.remove(&child);
    }

    /// A child told how far it, or its part of the tree, is.
    pub fn on_status(&mut self, child: ChildId, status: Status) {
        if let Some(child) = self.children.get_mut(&child) {
            child.given.retain(|block, _| status.need(&self.layout, *block) > 0);
            child.status = Some(status);
        }
    }

    /// Blocks that a child lacks, each with the packets of it that never left for this child and that it cannot do without.
    pub fn missed(&self, child: ChildId) -> impl Iterator<Item = (u32, u32)> + '_ {
        let given = self.children.get(&child).into_iter().flat_map(|child| &child.given);
        given.map(|(block, given)| (*block, given.need.saturating_sub(given.packets))).filter(|(_, missed)| *missed > 0)
    }

    /// How far a child said it is.
    pub fn child_status(&self, child: ChildId) -> Option<&Status> {
        self.children.get(&child)?.status.as_ref()
    }

    /// A child did not take what it was to be given: it has no room after all.
    pub fn refused(&mut self, child: ChildId) {
        if let Some(child) = self.children.get_mut(&child) {
            child.is_owed = true;
            self.stats.sent -= 1;
        }
    }

    /// What the parent should know; `None` until each child has told something.
    pub fn status(&self) -> Option<Status> {
        let mut all = self.children.values().map(|child| child.status.clone());
        let first = all.next()??;
        all.try_fold(first, |merged, status| Some(merged.merge(&status?, &self.layout)))
    }

    /// Children that lag now.
    pub fn lagging(&self) -> impl Iterator<Item = ChildId> + '_ {
        self.children.iter().filter(|(_, child)| child.lags_until.is_some()).map(|(id, _)| *id)
    }

    /// Counts.
    pub fn stats(&self) -> RelayStats {
        self.stats
    }

    /// A packet from the parent; asked for by [`Poll::Want`].
    pub fn push(&mut self, id: PacketId, packet: Bytes) {
        self.stats.packets += 1;
        let most = (self.config.memory / self.layout.block_bytes().max(1)).max(2);
        for child in self.children.values_mut() {
            let need = child.status.as_ref().map_or(self.layout.block_packets(id.block()), |s| s.need(&self.layout, id.block()));
            child.is_owed = need > 0 && child.takes(id.block(), need, most);
            self.stats.spared += u64::from(!child.is_owed);
        }
        self.packet = Some((id, packet));
        self.pushed = self.now;
    }

    /// What to do now; `has_room` says whether a child's link takes another packet. To be called until it answers [`Poll::Wait`], or a packet that is wanted is
    /// not there.
    pub fn poll(&mut self, now: Time, has_room: impl Fn(ChildId) -> bool) -> Poll {
        self.now = now;
        self.review(now);
        if let Some((sent, packet)) = &self.packet {
            for (id, child) in &mut self.children {
                if child.is_owed && has_room(*id) {
                    child.is_owed = false;
                    if let Some(given) = child.given.get_mut(&sent.block()) {
                        given.packets += 1;
                    }
                    self.stats.sent += 1;
                    return Poll::Send(*id, packet.clone());
                }
            }
        }
        // Nobody that is owed the packet has room.
        let waits: bool = self.children.values().any(|child| child.is_owed && child.lags_until.is_none());
        let is_alone = !self
            .children
            .iter()
            .any(|(id, child)| child.lags_until.is_none() && !child.is_owed && child.is_incomplete(&self.layout) && has_room(*id));
        // Those that lag wait, too, but not for one that takes nothing at all.
        let is_stuck = waits && now >= self.pushed + self.config.silence && !switch::is_off(Mechanism::SkippingChildren);
        if is_stuck && self.children.iter().any(|(id, child)| !child.is_owed && child.is_incomplete(&self.layout) && has_room(*id)) {
            for child in self.children.values_mut().filter(|child| child.is_owed) {
                child.lags_until = Some(now + self.config.forgive);
            }
            return Poll::Wait(now);
        }
        if self.packet.is_some() && waits {
            self.count_waiting(now, !is_alone);
            return Poll::Wait(now + self.config.interval / 8);
        }
        // All that are left lag: they skip it, unless no other child needs anything any more and waiting costs none.
        let others_want = self.children.values().any(|child| child.lags_until.is_none() && child.is_incomplete(&self.layout));
        if self.packet.is_some() && !others_want && self.children.values().any(|child| child.is_owed) {
            self.waiting_since = None;
            return Poll::Wait(now + self.config.interval);
        }
        self.count_waiting(now, false);
        self.packet = None;
        for child in self.children.values_mut().filter(|child| child.is_owed) {
            child.is_owed = false;
            self.stats.skipped += 1;
        }
        Poll::Want
    }

    /// Counts the time that others waited since the last call against those that are owed a packet.
    fn count_waiting(&mut self, now: Time, is_waiting: bool) {
        if let Some(since) = self.waiting_since.take() {
            for child in self.children.values_mut().filter(|child| child.is_owed && child.lags_until.is_none()) {
                child.held_up += now.since(since);
            }
        }
        self.waiting_since = is_waiting.then_some(now);
    }

    /// Once an interval: a child that held the others up for too long lags from now on.
    fn review(&mut self, now: Time) {
        // Those that are left when nobody else needs anything are each other's others: one of them that takes nothing does not stop the rest.
        let layout = self.layout;
        if self.children.values().filter(|child| child.is_incomplete(&layout)).all(|child| child.lags_until.is_some()) {
            self.children.values_mut().for_each(|child| child.lags_until = None);
        }
        let elapsed = now.since(self.since);
        if elapsed < self.config.interval {
            return;
        }
        self.since = now;
        let most = elapsed * self.config.patience / 100;
        for child in self.children.values_mut() {
            if child.held_up > most && !switch::is_off(Mechanism::SkippingChildren) {
                child.lags_until = Some(now + self.config.forgive);
            } else if child.lags_until.is_some_and(|until| until <= now) {
                child.lags_until = None;
            }
            child.held_up = Duration::ZERO;
        }
    }
}

impl Child {
    /// Whether a packet of a block that it needs is of use to it now: a receiver drops packets of blocks beyond the `most` that it holds open.
    fn takes(&mut self, block: u32, need: u32, most: usize) -> bool {
        let open = self.given.values().filter(|given| given.packets > 0).count();
        let is_one = self.status.as_ref().is_some_and(|s| s.ahead == s.first);
        if self.given.len() >= MAX_DESCRIBED && !self.given.contains_key(&block) {
            return true;
        }
        let given = self.given.entry(block).or_insert(Given { need, packets: 0 });
        given.packets > 0 || !is_one || open < most
    }

    fn is_incomplete(&self, layout: &Layout) -> bool {
        self.status.as_ref().is_none_or(|s| !s.is_complete(layout))
    }
}

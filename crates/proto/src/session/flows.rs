//! The flows of a session: index on the wire to flow of this node and back, and what became of each.

use super::control::Totals;
use super::violation;
use crate::error::{CloseReason, Code, CommandError, Layer};
use crate::ids::FlowId;
use crate::options::{FlowOptions, Mode};
use std::collections::{BTreeMap, BTreeSet};

/// FLOW_OPENs that may be missing below the highest index seen.
const MAX_GAPS: usize = 4096;
/// Flows of this side that are over and may still be answered, of which the oldest are forgotten first.
const MAX_UNANSWERED: usize = 4096;

/// Which way a flow goes, seen from this node.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Hash)]
pub enum Direction {
    /// This side sends.
    Outgoing,
    /// The far end sends.
    Incoming,
}

#[derive(Debug)]
struct Outgoing {
    flow: FlowId,
    mode: Mode,
    /// Packets in all, once the flow is finished.
    total: Option<u64>,
    /// Packets that the far end acknowledged.
    acknowledged: u64,
    fate: Fate,
    /// The far end is to open a flow that answers it, and has not yet.
    awaits_answer: bool,
}

#[derive(Debug)]
struct Incoming {
    flow: FlowId,
    mode: Mode,
    fate: Fate,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Fate {
    Open,
    /// Everything arrived.
    Complete,
    /// Reset, stopped or refused before everything arrived.
    GivenUp,
}

/// What the table says about a FLOW_OPEN.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Accepted {
    /// A new flow.
    New,
    /// A flow that was known before and is still here.
    Known(FlowId),
    /// A flow that is over, or was given up before its FLOW_OPEN arrived: to be refused or ignored.
    Over,
}

/// Table of the data flows of one session; the control flow (index 0) is not in it.
#[derive(Debug)]
pub struct FlowTable {
    outgoing: BTreeMap<u64, Outgoing>,
    incoming: BTreeMap<u64, Incoming>,
    by_id: BTreeMap<FlowId, (Direction, u64)>,
    /// Flows of this side that are over, by their index, and whose answer has not come: a short question is often delivered before it.
    unanswered: BTreeMap<u64, FlowId>,
    next_index: u64,
    /// One past the highest incoming index seen.
    seen_below: u64,
    /// Incoming indices below that and not yet seen.
    gaps: BTreeSet<u64>,
    /// `brtp` flows opened by this side, and how many of them ended complete or not.
    sent: Tally,
    received: Tally,
}

/// Counts of `brtp` flows in one direction.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Tally {
    opened: u64,
    complete: u64,
    given_up: u64,
}

impl Default for FlowTable {
    fn default() -> Self {
        Self {
            outgoing: BTreeMap::new(),
            incoming: BTreeMap::new(),
            by_id: BTreeMap::new(),
            unanswered: BTreeMap::new(),
            next_index: 1,
            seen_below: 1,
            gaps: BTreeSet::new(),
            sent: Tally::default(),
            received: Tally::default(),
        }
    }
}

impl FlowTable {
    /// A flow that this side opens; its index.
    ///
    /// # Errors
    /// `Limit` if `limit` flows are open already.
    pub(super) fn open(&mut self, flow: FlowId, options: &FlowOptions, limit: u64) -> Result<u64, CommandError> {
        if self.outgoing.len() as u64 >= limit {
            return Err(CommandError::Limit { what: "flows in a session", limit: usize::try_from(limit).unwrap_or(usize::MAX) });
        }
        let index = self.next_index;
        self.next_index += 1;
        if options.mode == Mode::Brtp {
            self.sent.opened += 1;
        }
        let awaits_answer = options.bidirectional;
        self.outgoing.insert(index, Outgoing { flow, mode: options.mode, total: None, acknowledged: 0, fate: Fate::Open, awaits_answer });
        self.by_id.insert(flow, (Direction::Outgoing, index));
        Ok(index)
    }

    /// What a FLOW_OPEN of `index` would be.
    ///
    /// # Errors
    /// `TooMany` if the far end opens more than `limit` at once, or leaves too many out.
    pub(super) fn inspect(&self, index: u64, limit: u64) -> Result<Accepted, CloseReason> {
        if let Some(known) = self.incoming.get(&index) {
            return Ok(Accepted::Known(known.flow));
        }
        if index == 0 {
            return Err(violation("index 0 is the control flow"));
        }
        if index < self.seen_below && !self.gaps.contains(&index) {
            return Ok(Accepted::Over);
        }
        let new_gaps = index.saturating_sub(self.seen_below);
        if self.incoming.len() as u64 >= limit || self.gaps.len() as u64 + new_gaps > MAX_GAPS as u64 {
            return Err(CloseReason::local(Code::TooMany, Layer::Session, "more flows than were permitted"));
        }
        Ok(Accepted::New)
    }

    /// A flow that the far end opened.
    ///
    /// # Errors
    /// As [`inspect`](Self::inspect).
    pub(super) fn accept(&mut self, index: u64, flow: FlowId, mode: Mode, limit: u64) -> Result<Accepted, CloseReason> {
        let accepted = self.inspect(index, limit)?;
        if accepted == Accepted::New {
            self.mark_seen(index);
            if mode == Mode::Brtp {
                self.received.opened += 1;
            }
            self.incoming.insert(index, Incoming { flow, mode, fate: Fate::Open });
            self.by_id.insert(flow, (Direction::Incoming, index));
        }
        Ok(accepted)
    }

    fn mark_seen(&mut self, index: u64) {
        self.gaps.remove(&index);
        if index >= self.seen_below {
            self.gaps.extend(self.seen_below..index);
            self.seen_below = index + 1;
        }
    }

    /// The flow of this side with this index.
    pub fn outgoing(&self, index: u64) -> Option<FlowId> {
        self.outgoing.get(&index).map(|f| f.flow)
    }
    /// The far end has opened a flow that answers the flow of this side with this index, which may be over by now.
    pub(super) fn answered(&mut self, index: u64) -> Option<FlowId> {
        match self.outgoing.get_mut(&index) {
            Some(f) => {
                f.awaits_answer = false;
                Some(f.flow)
            }
            None => self.unanswered.remove(&index),
        }
    }
    /// Packets of a flow of this side that the far end acknowledged.
    pub(super) fn acknowledged(&self, index: u64) -> u64 {
        self.outgoing.get(&index).map_or(0, |f| f.acknowledged)
    }
    /// The far end's flow with this index.
    pub fn incoming(&self, index: u64) -> Option<FlowId> {
        self.incoming.get(&index).map(|f| f.flow)
    }
    /// Direction and index of a flow.
    pub fn index_of(&self, flow: FlowId) -> Option<(Direction, u64)> {
        self.by_id.get(&flow).copied()
    }
    /// Flows in the table.
    pub fn len(&self) -> usize {
        self.by_id.len()
    }
    /// No flows at all.
    pub fn is_empty(&self) -> bool {
        self.by_id.is_empty()
    }
    /// Every flow of the session.
    pub fn ids(&self) -> impl Iterator<Item = FlowId> + '_ {
        self.by_id.keys().copied()
    }
    /// An index that this side has given to a flow at some time.
    pub(super) fn was_opened(&self, index: u64) -> bool {
        (1..self.next_index).contains(&index)
    }

    /// Forgets a flow. If it was open it counts as given up.
    pub(super) fn remove(&mut self, flow: FlowId) {
        match self.by_id.remove(&flow) {
            Some((Direction::Outgoing, index)) => {
                self.settle_outgoing(index, Fate::GivenUp);
                if self.outgoing.remove(&index).is_some_and(|f| f.awaits_answer) {
                    self.unanswered.insert(index, flow);
                    if self.unanswered.len() > MAX_UNANSWERED {
                        self.unanswered.pop_first();
                    }
                }
            }
            Some((Direction::Incoming, index)) => {
                self.settle_incoming(index, Fate::GivenUp);
                self.incoming.remove(&index);
            }
            None => {}
        }
    }

    /// This side finished a flow of `total` packets. True if that makes it complete, because all were acknowledged before.
    pub(super) fn finish(&mut self, index: u64, total: u64) -> bool {
        let Some(f) = self.outgoing.get_mut(&index) else { return false };
        f.total = Some(total);
        f.acknowledged >= total && total > 0 && self.complete_outgoing(index)
    }

    /// The far end acknowledged `packets` of a flow. True if that makes it complete.
    pub(super) fn acknowledge(&mut self, index: u64, packets: u64) -> Result<bool, CloseReason> {
        let Some(f) = self.outgoing.get_mut(&index) else { return Ok(false) };
        f.acknowledged = f.acknowledged.max(packets);
        match f.total {
            Some(total) if packets > total => Err(violation("more packets were acknowledged than were sent")),
            Some(total) if packets == total => Ok(self.complete_outgoing(index)),
            _ => Ok(false),
        }
    }

    /// Everything of a finished flow arrived; false if that is no news, or the flow is not finished.
    pub(super) fn complete_outgoing(&mut self, index: u64) -> bool {
        let is_finished = self.outgoing.get(&index).is_some_and(|f| f.total.is_some());
        is_finished && self.settle_outgoing(index, Fate::Complete)
    }
    pub(super) fn give_up_outgoing(&mut self, index: u64) -> bool {
        self.settle_outgoing(index, Fate::GivenUp)
    }
    pub(super) fn complete_incoming(&mut self, index: u64) -> bool {
        self.settle_incoming(index, Fate::Complete)
    }
    pub(super) fn give_up_incoming(&mut self, index: u64) -> bool {
        self.settle_incoming(index, Fate::GivenUp)
    }

    /// The far end gave up a flow; one that was never heard of is over before it begins.
    pub(super) fn reset_incoming(&mut self, index: u64, mode: Mode) -> Result<bool, CloseReason> {
        if self.inspect(index, u64::MAX)? == Accepted::New {
            self.mark_seen(index);
            if mode == Mode::Brtp {
                self.received.opened += 1;
                self.received.given_up += 1;
            }
            return Ok(false);
        }
        Ok(self.give_up_incoming(index))
    }

    fn settle_outgoing(&mut self, index: u64, fate: Fate) -> bool {
        let Some(f) = self.outgoing.get_mut(&index).filter(|f| f.fate == Fate::Open) else { return false };
        f.fate = fate;
        if f.mode == Mode::Brtp {
            self.sent.add(fate);
        }
        true
    }

    fn settle_incoming(&mut self, index: u64, fate: Fate) -> bool {
        let Some(f) = self.incoming.get_mut(&index).filter(|f| f.fate == Fate::Open) else { return false };
        f.fate = fate;
        if f.mode == Mode::Brtp {
            self.received.add(fate);
        }
        true
    }

    /// Everything arrived of this flow of ours.
    pub(super) fn is_complete_outgoing(&self, index: u64) -> bool {
        self.outgoing.get(&index).is_some_and(|f| f.fate == Fate::Complete)
    }

    /// No `brtp` flow of this side is still under way.
    pub fn outgoing_settled(&self) -> bool {
        self.sent.complete + self.sent.given_up == self.sent.opened
    }
    /// Every `brtp` flow that this side opened was delivered.
    pub fn outgoing_complete(&self) -> bool {
        self.sent.complete == self.sent.opened
    }
    /// No `brtp` flow of the `opened` ones is still under way.
    pub(super) fn incoming_settled(&self, opened: u64) -> bool {
        self.received.complete + self.received.given_up >= opened
    }
    /// Every `brtp` flow of the `opened` ones was received.
    pub(super) fn incoming_complete(&self, opened: u64) -> bool {
        self.received.complete == opened && self.received.opened == opened
    }

    /// What this side sent, for CLOSE and CLOSED. At most `max` ends are listed.
    pub(super) fn totals(&self, max: usize) -> Totals {
        let open = self.outgoing.iter().filter(|(_, f)| f.mode == Mode::Brtp && f.fate == Fate::Open);
        let ends = open.filter_map(|(&index, f)| f.total.map(|total| (index, total))).take(max).collect();
        Totals { opened: self.sent.opened, ends }
    }
}

impl Tally {
    fn add(&mut self, fate: Fate) {
        match fate {
            Fate::Complete => self.complete += 1,
            Fate::GivenUp => self.given_up += 1,
            Fate::Open => {}
        }
    }
}

//! Receiving ordered messages: packets are looked at in order, one message is assembled at a time.

use super::budget::{MessageBudget, Reservation};
use super::inorder::{InOrder, Step};
use super::items::{Contents, Front, Head, Wholes};
use super::join::Joiner;
use super::message::Message;
use super::{message_too_large, violation};
use crate::error::CloseReason;
use crate::ids::Seq;
use bytes::Bytes;
use smallvec::{SmallVec, smallvec};
use std::collections::VecDeque;

/// What the application can read.
#[derive(Debug)]
enum Ready {
    Wholes(Wholes),
    Assembled { message: Message, head: u64, _room: Option<Reservation> },
}

/// A message of which the end has not come.
#[derive(Debug)]
struct Assembly {
    id: u64,
    head: u64,
    total: u64,
    have: usize,
    /// Two fit without allocation: the message that merely straddles a packet's end.
    pieces: SmallVec<[Bytes; 2]>,
    room: Option<Reservation>,
}

#[derive(Debug)]
pub(super) struct Ordered {
    packets: InOrder,
    ready: VecDeque<Ready>,
    /// Bytes in `ready`.
    ready_bytes: usize,
    assembly: Option<Assembly>,
    joiner: Joiner,
    /// End of the last gap: continuations of messages that began before it may be orphans.
    gap_end: u64,
    consumed: u64,
    budget: MessageBudget,
    is_starved: bool,
    max_message: usize,
    pub dropped: u64,
}

impl Ordered {
    pub fn new(max_message: usize, budget: MessageBudget) -> Self {
        Self {
            packets: InOrder::default(),
            ready: VecDeque::new(),
            ready_bytes: 0,
            assembly: None,
            joiner: Joiner::default(),
            gap_end: 0,
            consumed: 0,
            budget,
            is_starved: false,
            max_message,
            dropped: 0,
        }
    }

    pub fn consumed(&self) -> u64 {
        self.consumed
    }
    pub fn next(&self) -> u64 {
        self.packets.next()
    }
    pub fn is_starved(&self) -> bool {
        self.is_starved
    }
    pub fn is_readable(&self) -> bool {
        !self.ready.is_empty()
    }
    /// Bytes of payload held.
    pub fn bytes(&self) -> usize {
        self.packets.bytes() + self.ready_bytes + self.assembly.as_ref().map_or(0, |a| a.have)
    }
    /// Bytes of the tables.
    pub fn tables(&self) -> usize {
        self.packets.table()
            + self.ready.capacity() * size_of::<Ready>()
            + self.joiner.memory()
            + self.assembly.as_ref().map_or(0, |a| a.pieces.capacity() * size_of::<Bytes>())
    }

    pub fn on_packet(&mut self, seq: u64, payload: Bytes) -> Result<bool, CloseReason> {
        let is_new = self.packets.insert(seq, payload);
        if is_new {
            self.advance()?;
        }
        Ok(is_new)
    }

    pub fn on_skip(&mut self, floor: u64) -> Result<(), CloseReason> {
        self.packets.skip(floor);
        self.advance()
    }

    pub fn recv(&mut self) -> Option<Message> {
        let message = match self.ready.front_mut()? {
            Ready::Wholes(wholes) => {
                let before = wholes.len();
                let message = wholes.take();
                self.ready_bytes -= before - wholes.len();
                if wholes.is_empty() {
                    self.ready.pop_front();
                }
                message
            }
            Ready::Assembled { .. } => match self.ready.pop_front() {
                Some(Ready::Assembled { message, .. }) => {
                    self.ready_bytes -= message.data.len();
                    Some(message)
                }
                _ => None,
            },
        };
        self.update_consumed();
        message
    }

    /// Asks the budget again.
    pub fn retry(&mut self) {
        self.update_consumed();
    }

    fn advance(&mut self) -> Result<(), CloseReason> {
        while let Some(step) = self.packets.take() {
            match step {
                Step::Packet(seq, payload) => self.open(seq, &payload)?,
                Step::Gap(end) => {
                    self.drop_assembly();
                    self.gap_end = end;
                }
            }
        }
        self.update_consumed();
        Ok(())
    }

    fn open(&mut self, seq: u64, payload: &Bytes) -> Result<(), CloseReason> {
        let Contents { front, wholes, head } = Contents::parse(Seq(seq), payload)?;
        match front {
            Some(Front::Middle { distance, data }) => self.continue_message(seq, distance, data, false)?,
            Some(Front::Tail { distance, data }) => self.continue_message(seq, distance, data, true)?,
            Some(Front::Abort { distance }) => {
                let is_ours = self.is_continued(seq, distance)?;
                if is_ours {
                    self.drop_assembly();
                }
            }
            None if self.assembly.is_some() => return Err(violation("a message was cut off without being given up")),
            None => {}
        }
        if let Some(wholes) = wholes {
            self.ready_bytes += wholes.len();
            self.ready.push_back(Ready::Wholes(wholes));
        }
        if let Some(Head { id, total, data }) = head {
            if total > self.max_message as u64 {
                return Err(message_too_large(total, self.max_message));
            }
            self.assembly = Some(Assembly { id, head: seq, total, have: data.len(), pieces: smallvec![data], room: None });
        }
        Ok(())
    }

    /// Does the continuation belong to the message in work? False: its beginning fell into a gap.
    fn is_continued(&self, seq: u64, distance: u64) -> Result<bool, CloseReason> {
        let head = seq.checked_sub(distance).ok_or_else(|| violation("a message began before the flow"))?;
        match &self.assembly {
            Some(a) if a.head == head => Ok(true),
            None if head < self.gap_end => Ok(false),
            _ => Err(violation("a packet continues a message that never began")),
        }
    }

    fn continue_message(&mut self, seq: u64, distance: u64, data: Bytes, is_last: bool) -> Result<(), CloseReason> {
        if !self.is_continued(seq, distance)? {
            return Ok(());
        }
        let Some(a) = &mut self.assembly else { return Ok(()) };
        a.have += data.len();
        a.pieces.push(data);
        if a.have as u64 > a.total || (is_last && a.have as u64 != a.total) {
            return Err(violation("a message does not have the length that its head announced"));
        }
        if is_last && let Some(a) = self.assembly.take() {
            let data = self.joiner.join(&a.pieces, a.have);
            self.ready_bytes += data.len();
            self.ready.push_back(Ready::Assembled { message: Message { id: a.id, data }, head: a.head, _room: a.room });
        }
        Ok(())
    }

    fn drop_assembly(&mut self) {
        if self.assembly.take().is_some() {
            self.dropped += 1;
        }
    }

    /// Packets count as consumed when the application took their messages; the packets of an incomplete message, if nothing unread lies before
    /// it and the budget admits it, already when they arrive. So a message may be larger than the flow's present window, and memory stays
    /// within window plus one message (P15, P18).
    fn update_consumed(&mut self) {
        self.is_starved = false;
        let floor = match self.ready.front() {
            Some(Ready::Wholes(wholes)) => wholes.seq,
            Some(Ready::Assembled { head, .. }) => *head,
            None => match &mut self.assembly {
                None => self.packets.next(),
                Some(a) => {
                    if a.room.is_none() {
                        a.room = self.budget.reserve(a.total as usize);
                    }
                    self.is_starved = a.room.is_none();
                    if self.is_starved { a.head } else { self.packets.next() }
                }
            },
        };
        self.consumed = self.consumed.max(floor);
    }
}

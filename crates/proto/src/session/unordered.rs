//! Receiving unordered messages: each is handed over as soon as all its packets are here, whatever is missing before it.

use super::budget::{MessageBudget, Reservation};
use super::items::{Contents, Front, Head, Wholes};
use super::join::Joiner;
use super::message::Message;
use super::{message_too_large, violation};
use crate::error::CloseReason;
use crate::ids::Seq;
use bytes::Bytes;
use smallvec::SmallVec;
use std::collections::{BTreeMap, VecDeque};

/// Slot of a packet that has not arrived; other values count the messages that still need the packet's place in the window.
const MISSING: u8 = u8::MAX;

#[derive(Debug)]
enum Ready {
    Wholes(Wholes),
    Assembled { message: Message, head: u64, tail: u64, room: Option<Reservation> },
}

/// A message of which something is missing, known by the number of the packet with its head.
#[derive(Debug, Default)]
struct Partial {
    id: Option<u64>,
    total: Option<u64>,
    tail: Option<u64>,
    last: u64,
    have: usize,
    /// In the order in which they came.
    pieces: SmallVec<[(u64, Bytes); 2]>,
    /// It will never be complete; kept so that late packets of it are known for what they are.
    is_dead: bool,
    /// The budget admitted it: its packets do not hold the window.
    room: Option<Reservation>,
}

#[derive(Debug)]
pub(super) struct Unordered {
    /// Every packet below is done with.
    base: u64,
    /// From `base` on.
    slots: VecDeque<u8>,
    skip: u64,
    /// First packet that is not here and may come; never falls.
    missing: u64,
    partials: BTreeMap<u64, Partial>,
    ready: VecDeque<Ready>,
    joiner: Joiner,
    bytes: usize,
    /// A message that the budget admitted is incomplete or unread.
    has_admitted: bool,
    budget: MessageBudget,
    is_starved: bool,
    max_message: usize,
    pub dropped: u64,
}

impl Unordered {
    pub fn new(max_message: usize, budget: MessageBudget) -> Self {
        Self {
            base: 0,
            slots: VecDeque::new(),
            skip: 0,
            missing: 0,
            partials: BTreeMap::new(),
            ready: VecDeque::new(),
            joiner: Joiner::default(),
            bytes: 0,
            has_admitted: false,
            budget,
            is_starved: false,
            max_message,
            dropped: 0,
        }
    }

    pub fn consumed(&self) -> u64 {
        self.base
    }
    /// First packet that is not here and may come.
    pub fn first_missing(&self) -> u64 {
        self.missing
    }
    pub fn is_starved(&self) -> bool {
        self.is_starved
    }
    pub fn is_readable(&self) -> bool {
        !self.ready.is_empty()
    }
    /// Bytes of payload held.
    pub fn bytes(&self) -> usize {
        self.bytes
    }
    /// Bytes of the tables.
    pub fn tables(&self) -> usize {
        let pieces: usize = self.partials.values().map(|p| p.pieces.capacity()).sum();
        self.slots.capacity()
            + self.ready.capacity() * size_of::<Ready>()
            + self.joiner.memory()
            + self.partials.len() * size_of::<Partial>()
            + pieces * size_of::<(u64, Bytes)>()
    }

    pub fn on_packet(&mut self, seq: u64, payload: &Bytes) -> Result<bool, CloseReason> {
        if seq < self.base.max(self.skip) {
            return Ok(false);
        }
        let at = (seq - self.base) as usize;
        if at >= self.slots.len() {
            self.slots.resize(at + 1, MISSING);
        }
        if self.slots[at] != MISSING {
            return Ok(false);
        }
        let Contents { front, wholes, head } = Contents::parse(Seq(seq), payload)?;
        self.slots[at] = 0;
        if let Some(wholes) = wholes {
            self.bytes += wholes.len();
            self.slots[at] += 1;
            self.ready.push_back(Ready::Wholes(wholes));
        }
        if let Some(head) = head {
            self.begin(seq, head)?;
        }
        match front {
            Some(Front::Middle { distance, data }) => self.continue_message(seq, distance, data, false)?,
            Some(Front::Tail { distance, data }) => self.continue_message(seq, distance, data, true)?,
            Some(Front::Abort { distance }) => {
                let head = head_of(seq, distance)?;
                if head >= self.base || self.partials.contains_key(&head) {
                    self.partials.entry(head).or_default();
                    self.kill(head);
                }
            }
            None => {}
        }
        self.advance();
        Ok(true)
    }

    pub fn on_skip(&mut self, floor: u64) {
        if floor <= self.skip {
            return;
        }
        let end = self.base + self.slots.len() as u64;
        for seq in self.base.max(self.skip)..floor.min(end) {
            if self.slots[(seq - self.base) as usize] == MISSING {
                self.lose(seq);
            }
        }
        if floor > end {
            self.lose(end.max(self.skip));
        }
        self.skip = floor;
        self.advance();
    }

    pub fn recv(&mut self) -> Option<Message> {
        let message = match self.ready.front_mut()? {
            Ready::Wholes(wholes) => {
                let before = wholes.len();
                let message = wholes.take();
                self.bytes -= before - wholes.len();
                if wholes.is_empty() {
                    let seq = wholes.seq;
                    self.ready.pop_front();
                    self.release(seq);
                }
                message
            }
            Ready::Assembled { .. } => match self.ready.pop_front() {
                Some(Ready::Assembled { message, head, tail, room }) => {
                    self.bytes -= message.data.len();
                    if room.is_some() {
                        self.has_admitted = false;
                    } else {
                        (head..=tail).for_each(|seq| self.release(seq));
                    }
                    Some(message)
                }
                _ => None,
            },
        };
        self.advance();
        message
    }

    /// Asks the budget again.
    pub fn retry(&mut self) {
        self.advance();
    }

    fn begin(&mut self, seq: u64, head: Head) -> Result<(), CloseReason> {
        if head.total > self.max_message as u64 {
            return Err(message_too_large(head.total, self.max_message));
        }
        let partial = self.partials.entry(seq).or_default();
        partial.id = Some(head.id);
        partial.total = Some(head.total);
        self.add(seq, seq, head.data)
    }

    fn continue_message(&mut self, seq: u64, distance: u64, data: Bytes, is_last: bool) -> Result<(), CloseReason> {
        let head = head_of(seq, distance)?;
        if !self.partials.contains_key(&head) {
            if head < self.base.max(self.skip) {
                return Ok(()); // Its head was skipped: an orphan.
            }
            if self.slots.get((head - self.base) as usize).is_some_and(|&s| s != MISSING) {
                return Err(violation("a packet continues a message that never began"));
            }
        }
        let partial = self.partials.entry(head).or_default();
        if partial.tail.is_some_and(|tail| seq > tail || is_last) || (is_last && partial.last > seq) {
            return Err(violation("a message goes on behind its end"));
        }
        if is_last {
            partial.tail = Some(seq);
        }
        self.add(head, seq, data)
    }

    /// Adds a piece and completes the message if it was the last one missing.
    fn add(&mut self, head: u64, seq: u64, data: Bytes) -> Result<(), CloseReason> {
        let Some(p) = self.partials.get_mut(&head) else { return Ok(()) };
        if p.is_dead {
            return Ok(());
        }
        p.have += data.len();
        self.bytes += data.len();
        p.last = p.last.max(seq);
        p.pieces.push((seq, data));
        if p.have as u64 > p.total.unwrap_or(self.max_message as u64) {
            return Err(violation("a message is longer than its head announced"));
        }
        if p.room.is_none() {
            self.slots[(seq - self.base) as usize] += 1;
        }
        let (Some(id), Some(total), Some(tail)) = (p.id, p.total, p.tail) else { return Ok(()) };
        if p.pieces.len() as u64 != tail - head + 1 {
            return Ok(());
        }
        if p.have as u64 != total {
            return Err(violation("a message is shorter than its head announced"));
        }
        let Some(mut p) = self.partials.remove(&head) else { return Ok(()) };
        p.pieces.sort_unstable_by_key(|&(seq, _)| seq);
        let data = self.joiner.join(p.pieces.iter().map(|(_, data)| data), p.have);
        self.ready.push_back(Ready::Assembled { message: Message { id, data }, head, tail, room: p.room });
        Ok(())
    }

    /// A packet that will never come loses two messages: the one that began in it, and the one that continued in it.
    fn lose(&mut self, seq: u64) {
        self.kill(seq);
        if let Some((&head, p)) = self.partials.range(..seq).next_back()
            && p.tail.is_none_or(|tail| tail >= seq)
        {
            self.kill(head);
        }
    }

    fn kill(&mut self, head: u64) {
        let Some(p) = self.partials.get_mut(&head) else { return };
        if p.is_dead {
            return;
        }
        p.is_dead = true;
        self.dropped += 1;
        self.bytes -= p.have;
        p.have = 0;
        let pieces = core::mem::take(&mut p.pieces);
        if p.room.take().is_some() {
            self.has_admitted = false;
        } else {
            pieces.iter().for_each(|&(seq, _)| self.release(seq));
        }
    }

    fn release(&mut self, seq: u64) {
        if let Some(at) = seq.checked_sub(self.base)
            && let Some(slot) = self.slots.get_mut(at as usize)
            && *slot != MISSING
        {
            *slot = slot.saturating_sub(1);
        }
    }

    /// Moves the floor over every packet that is done with. An incomplete message that stands at the floor is admitted if the budget has room,
    /// so that a message may be larger than the flow's present window (P15, P18); one at a time, until it has been read.
    fn advance(&mut self) {
        self.is_starved = false;
        while let Some(&slot) = self.slots.front() {
            let is_done = if slot == MISSING { self.base < self.skip } else { slot == 0 || self.admit(self.base) };
            if !is_done {
                break;
            }
            if slot == MISSING || self.slots[0] == 0 {
                self.slots.pop_front();
                self.base += 1;
            }
        }
        if self.slots.is_empty() {
            self.base = self.base.max(self.skip);
        }
        self.missing = self.missing.max(self.base);
        while self.slots.get((self.missing - self.base) as usize).is_some_and(|slot| *slot != MISSING || self.missing < self.skip) {
            self.missing += 1;
        }
        while let Some((&head, _)) = self.partials.range(..self.base).find(|(_, p)| p.is_dead) {
            self.partials.remove(&head);
        }
    }

    /// Lets the message that begins in packet `head` go beyond the window; false if there is none or no room.
    fn admit(&mut self, head: u64) -> bool {
        if self.has_admitted {
            return false;
        }
        let Some(p) = self.partials.get_mut(&head) else { return false };
        let Some(total) = p.total.filter(|_| !p.is_dead) else { return false };
        p.room = self.budget.reserve(total as usize);
        self.is_starved = p.room.is_none();
        if self.is_starved {
            return false;
        }
        self.has_admitted = true;
        let seqs: Vec<u64> = p.pieces.iter().map(|&(seq, _)| seq).collect();
        seqs.into_iter().for_each(|seq| self.release(seq));
        true
    }
}

fn head_of(seq: u64, distance: u64) -> Result<u64, CloseReason> {
    seq.checked_sub(distance).ok_or_else(|| violation("a message began before the flow"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::session::items;
    use bytes::BytesMut;

    #[test]
    fn the_first_missing_packet_is_known_whatever_comes_or_is_given_up() {
        let mut u = Unordered::new(1000, MessageBudget::new(1000));
        let take = |u: &mut Unordered, seq: u64| {
            let mut packet = BytesMut::new();
            items::put_whole(&mut packet, Some(seq), b"x", false);
            u.on_packet(seq, &packet.freeze()).unwrap();
        };
        let missing: Vec<u64> = [1, 2, 0, 4, 3, 7].map(|seq| (take(&mut u, seq), u.first_missing()).1).to_vec();
        assert_eq!(missing, [0, 0, 3, 3, 5, 5]);
        u.on_skip(6);
        assert_eq!(u.first_missing(), 6);
        while u.recv().is_some() {}
        take(&mut u, 6);
        assert_eq!(u.first_missing(), 8);
        u.on_skip(20);
        assert_eq!((u.first_missing(), u.consumed()), (8, 6));
        while u.recv().is_some() {}
        assert_eq!((u.first_missing(), u.consumed()), (20, 20));
    }
}

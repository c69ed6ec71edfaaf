//! Source packets that arrive in any order, handed on in order: what lies between the first gap and the newest packet.

use bytes::Bytes;
use std::collections::VecDeque;

/// The next thing in order.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Step {
    /// A source packet.
    Packet(u64, Bytes),
    /// Everything below this number that has not been handed on will never come.
    Gap(u64),
}

#[derive(Debug, Default)]
pub(super) struct InOrder {
    next: u64,
    /// From `next` on.
    slots: VecDeque<Option<Bytes>>,
    skip: u64,
    bytes: usize,
}

impl InOrder {
    /// One past the last packet handed on.
    pub fn next(&self) -> u64 {
        self.next
    }
    /// Bytes of payload held.
    pub fn bytes(&self) -> usize {
        self.bytes
    }
    /// Bytes of the table itself.
    pub fn table(&self) -> usize {
        self.slots.capacity() * size_of::<Option<Bytes>>()
    }

    /// Keeps a packet; false if it is a duplicate or was skipped. The caller bounds how far `seq` may lie ahead.
    pub fn insert(&mut self, seq: u64, payload: Bytes) -> bool {
        if seq < self.next.max(self.skip) {
            return false;
        }
        let at = (seq - self.next) as usize;
        if at >= self.slots.len() {
            self.slots.resize(at + 1, None);
        }
        if self.slots[at].is_some() {
            return false;
        }
        self.bytes += payload.len();
        self.slots[at] = Some(payload);
        true
    }

    /// Nothing below `floor` comes any more.
    pub fn skip(&mut self, floor: u64) {
        self.skip = self.skip.max(floor);
    }

    pub fn take(&mut self) -> Option<Step> {
        match self.slots.front_mut() {
            Some(slot @ Some(_)) => {
                let payload = slot.take()?;
                self.slots.pop_front();
                self.bytes -= payload.len();
                self.next += 1;
                Some(Step::Packet(self.next - 1, payload))
            }
            _ if self.next < self.skip => {
                while self.next < self.skip && matches!(self.slots.front(), Some(None)) {
                    self.slots.pop_front();
                    self.next += 1;
                }
                if self.slots.is_empty() {
                    self.next = self.next.max(self.skip);
                }
                Some(Step::Gap(self.next))
            }
            _ => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn b(n: u8) -> Bytes {
        Bytes::from(vec![n])
    }

    #[test]
    fn packets_come_out_in_order_and_once() {
        let mut q = InOrder::default();
        assert!(q.insert(2, b(2)));
        assert!(q.insert(0, b(0)));
        assert!(!q.insert(2, b(9)), "duplicate");
        assert_eq!(q.take(), Some(Step::Packet(0, b(0))));
        assert_eq!(q.take(), None);
        assert!(!q.insert(0, b(0)), "already handed on");
        assert!(q.insert(1, b(1)));
        assert_eq!(q.take(), Some(Step::Packet(1, b(1))));
        assert_eq!(q.take(), Some(Step::Packet(2, b(2))));
        assert_eq!(q.bytes(), 0);
    }

    #[test]
    fn a_skip_shows_each_gap_and_keeps_what_arrived() {
        let mut q = InOrder::default();
        q.insert(1, b(1));
        q.insert(4, b(4));
        q.skip(3);
        assert!(!q.insert(2, b(2)), "skipped");
        assert_eq!(q.take(), Some(Step::Gap(1)));
        assert_eq!(q.take(), Some(Step::Packet(1, b(1))));
        assert_eq!(q.take(), Some(Step::Gap(3)));
        assert_eq!(q.take(), None, "3 may still come");
        q.skip(1 << 60);
        assert_eq!(q.take(), Some(Step::Gap(4)));
        assert_eq!(q.take(), Some(Step::Packet(4, b(4))));
        assert_eq!(q.take(), Some(Step::Gap(1 << 60)));
        assert_eq!(q.take(), None);
    }
}

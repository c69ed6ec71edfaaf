//! The receiving half of a transparent flow: a bounded queue of datagrams.

use super::message::Message;
use bytes::Bytes;
use std::collections::VecDeque;

/// Bytes that wait at most, whatever the node has: an application that is further behind is served better by losses than by a longer queue.
const MAX_WAITING: usize = 4 << 20;
/// What a datagram costs beside its bytes, so that empty ones cannot be queued without end.
const DATAGRAM_COST: usize = 64;

#[derive(Debug)]
pub(super) struct Datagrams {
    queue: VecDeque<Message>,
    bytes: usize,
    limit: usize,
    pub dropped: u64,
}

impl Datagrams {
    pub fn new(memory: usize) -> Self {
        Self { queue: VecDeque::new(), bytes: 0, limit: memory.min(MAX_WAITING), dropped: 0 }
    }

    /// From now on at most so many bytes wait.
    pub fn set_memory(&mut self, memory: usize) {
        self.limit = memory.min(MAX_WAITING);
    }

    pub fn push(&mut self, id: u64, data: Bytes) {
        let cost = data.len() + DATAGRAM_COST;
        if self.bytes + cost > self.limit {
            self.dropped += 1;
            return;
        }
        self.bytes += cost;
        self.queue.push_back(Message { id, data });
    }

    pub fn recv(&mut self) -> Option<Message> {
        let message = self.queue.pop_front()?;
        self.bytes -= message.data.len() + DATAGRAM_COST;
        Some(message)
    }

    pub fn is_readable(&self) -> bool {
        !self.queue.is_empty()
    }

    /// Bytes held.
    pub fn bytes(&self) -> usize {
        self.bytes
    }
}

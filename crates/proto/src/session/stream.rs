//! Receiving a byte stream: a source packet's payload is bytes of the stream and nothing else, so a stream pays no framing at all.

use super::inorder::{InOrder, Step};
use super::violation;
use crate::error::CloseReason;
use bytes::Bytes;
use std::collections::VecDeque;

#[derive(Debug, Default)]
pub(super) struct Stream {
    packets: InOrder,
    /// Unread payloads, one per packet.
    ready: VecDeque<Bytes>,
    ready_bytes: usize,
}

impl Stream {
    /// Packets read to their last byte.
    pub fn consumed(&self) -> u64 {
        self.packets.next() - self.ready.len() as u64
    }
    pub fn next(&self) -> u64 {
        self.packets.next()
    }
    pub fn is_readable(&self) -> bool {
        !self.ready.is_empty()
    }
    /// Bytes of payload held.
    pub fn bytes(&self) -> usize {
        self.packets.bytes() + self.ready_bytes
    }
    /// Bytes of the tables.
    pub fn tables(&self) -> usize {
        self.packets.table() + self.ready.capacity() * size_of::<Bytes>()
    }

    pub fn on_packet(&mut self, seq: u64, payload: Bytes) -> Result<bool, CloseReason> {
        if payload.is_empty() {
            return Err(violation("an empty source packet"));
        }
        let is_new = self.packets.insert(seq, payload);
        while let Some(Step::Packet(_, payload)) = self.packets.take() {
            self.ready_bytes += payload.len();
            self.ready.push_back(payload);
        }
        Ok(is_new)
    }

    /// A stream has no lifetimes, so nothing of it may be left out.
    pub fn on_skip(&mut self, floor: u64) -> Result<(), CloseReason> {
        if floor > self.packets.next() { Err(violation("bytes of a stream were left out")) } else { Ok(()) }
    }

    pub fn read(&mut self, max: usize) -> Option<Bytes> {
        let front = self.ready.front_mut()?;
        let chunk = if front.len() > max { front.split_to(max) } else { self.ready.pop_front()? };
        self.ready_bytes -= chunk.len();
        Some(chunk)
    }
}

//! Parts of a flow that takes several routes at once (docs/spec/multipath.md 6): each is a flow of its own with numbers of its own, and carries source packets of
//! the whole, each with its number in front. Both ends' *whole* is a half like any other, in which nothing is sealed: that is the parts' business.

use super::violation;
use crate::error::CloseReason;
use crate::wire::varint::{self, Reader};
use bytes::{Bytes, BytesMut};
use std::collections::BTreeSet;

/// Source packets of the whole that came by one part, until they are handed on.
#[derive(Debug, Default)]
pub(super) struct Pieces {
    waiting: Vec<(u64, Bytes)>,
    /// An announcement came: a piece without a packet.
    is_announced: bool,
    bytes: usize,
    /// Packets of the part below are here, and some above.
    next: u64,
    ahead: BTreeSet<u64>,
    /// One past the last packet of the part that came.
    newest: u64,
}

impl Pieces {
    pub fn on_packet(&mut self, seq: u64, payload: Bytes) -> Result<bool, CloseReason> {
        if seq < self.next || !self.ahead.insert(seq) {
            return Ok(false);
        }
        while self.ahead.remove(&self.next) {
            self.next += 1;
        }
        self.newest = self.newest.max(seq + 1);
        let mut reader = Reader::new(&payload);
        let number = reader.varint().map_err(|_| violation("a part's packet has no number"))?;
        let rest = payload.slice_ref(reader.rest());
        if rest.is_empty() {
            self.is_announced = true;
            return Ok(true);
        }
        self.bytes += rest.len();
        self.waiting.push((number, rest));
        Ok(true)
    }

    /// The part's packets below do not come any more.
    pub fn on_skip(&mut self, floor: u64) {
        self.next = self.next.max(floor);
        self.ahead = self.ahead.split_off(&self.next);
        while self.ahead.remove(&self.next) {
            self.next += 1;
        }
    }

    /// Everything that came since the last call, with its number in the whole.
    pub fn take(&mut self) -> Vec<(u64, Bytes)> {
        self.bytes = 0;
        self.is_announced = false;
        core::mem::take(&mut self.waiting)
    }

    pub fn has_some(&self) -> bool {
        self.is_announced || !self.waiting.is_empty()
    }

    /// Packets are handed on when they come: what may come is a matter of the whole.
    pub fn consumed(&self) -> u64 {
        self.next
    }

    /// One past the last packet of the part that came, whatever came of those before.
    pub fn newest(&self) -> u64 {
        self.newest
    }

    /// Bytes of payload held.
    pub fn bytes(&self) -> usize {
        self.bytes
    }

    /// Bytes of the tables.
    pub fn tables(&self) -> usize {
        self.ahead.len() * size_of::<u64>() + self.waiting.capacity() * size_of::<(u64, Bytes)>()
    }
}

/// A part's symbol before it is sealed: room for the length and `prefix` bytes, the packet's number in the whole, the packet, room for the rest of the overhead.
pub(super) fn symbol_of(number: u64, packet: &[u8], prefix: usize, overhead: usize) -> BytesMut {
    let mut symbol = BytesMut::with_capacity(2 + overhead + varint::size(number) + packet.len());
    symbol.resize(2 + prefix, 0);
    varint::emit(&mut symbol, number);
    symbol.extend_from_slice(packet);
    symbol.resize(symbol.len() + overhead - prefix, 0);
    symbol
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pieces_are_handed_on_once_in_whatever_order_they_come() {
        let mut pieces = Pieces::default();
        let piece = |number: u64| symbol_of(number, b"x", 0, 0).freeze().slice(2..);
        assert!(pieces.on_packet(1, piece(70)).unwrap());
        assert_eq!(pieces.consumed(), 0);
        assert!(pieces.on_packet(0, piece(9)).unwrap());
        assert!(!pieces.on_packet(1, piece(70)).unwrap() && !pieces.on_packet(0, piece(9)).unwrap());
        assert_eq!((pieces.consumed(), pieces.bytes()), (2, 2));
        assert_eq!(pieces.take().iter().map(|p| p.0).collect::<Vec<_>>(), [70, 9]);
        assert!(!pieces.has_some() && pieces.bytes() == 0);
        assert!(pieces.on_packet(3, symbol_of(0, b"", 0, 0).freeze().slice(2..)).unwrap() && pieces.has_some(), "an announcement");
        assert!(pieces.take().is_empty() && !pieces.has_some());
        assert!(pieces.on_packet(2, Bytes::from_static(&[0xc0])).is_err(), "a number that is cut off");
    }

    #[test]
    fn what_was_skipped_is_not_waited_for_and_not_taken() {
        let mut pieces = Pieces::default();
        let piece = |number: u64| symbol_of(number, b"x", 0, 0).freeze().slice(2..);
        assert!(pieces.on_packet(3, piece(3)).unwrap());
        assert!(pieces.on_packet(1, piece(1)).unwrap());
        pieces.on_skip(3);
        assert_eq!(pieces.newest(), 4);
        assert_eq!((pieces.consumed(), pieces.tables()), (4, pieces.waiting.capacity() * size_of::<(u64, Bytes)>()));
        assert!(!pieces.on_packet(2, piece(2)).unwrap(), "too late");
        assert_eq!(pieces.take().iter().map(|p| p.0).collect::<Vec<_>>(), [3, 1]);
    }
}

//! Rows of memory cut from slabs: one allocation for some ten packets.
//!
//! A row that is kept keeps its slab, whatever became of the other rows of it: a slab is so large that allocating is cheap and so small that a far end
//! that makes a node keep one row of each wins little (docs/decisions/0053). The first is small, because most flows never bring much.

use bytes::{Bytes, BytesMut};

/// Bytes of the first slab of a flow.
const FIRST: usize = 2 << 10;
/// Bytes of a slab at most, unless one row is longer.
const MOST: usize = 16 << 10;

/// A source of `Bytes` that share allocations.
#[derive(Debug, Default)]
pub(super) struct Slab {
    room: BytesMut,
    /// Bytes of the latest slab.
    latest: usize,
}

impl Slab {
    fn reserve(&mut self, len: usize) {
        if self.room.capacity() < len {
            self.latest = (self.latest * 2).clamp(FIRST, MOST);
            self.room = BytesMut::with_capacity(self.latest.max(len));
        }
    }

    /// A copy of `data`.
    pub fn copy(&mut self, data: &[u8]) -> Bytes {
        self.reserve(data.len());
        self.room.extend_from_slice(data);
        self.room.split().freeze()
    }

    /// A row of `len` bytes, zeroed and then filled by `fill`.
    pub fn fill(&mut self, len: usize, fill: impl FnOnce(&mut [u8])) -> Bytes {
        self.reserve(len);
        self.room.resize(len, 0);
        fill(&mut self.room);
        self.room.split().freeze()
    }
}

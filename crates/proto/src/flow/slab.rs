//! Rows of memory cut from large slabs: one allocation for some fifty packets.

use bytes::{Bytes, BytesMut};

/// Bytes of one slab.
const SLAB: usize = 64 << 10;

/// A source of `Bytes` that share large allocations.
#[derive(Debug, Default)]
pub(super) struct Slab {
    room: BytesMut,
}

impl Slab {
    fn reserve(&mut self, len: usize) {
        if self.room.capacity() < len {
            self.room = BytesMut::with_capacity(SLAB.max(len));
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

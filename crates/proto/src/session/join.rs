//! Putting the parts of a message into one buffer, copied once.

use bytes::{Bytes, BytesMut};

/// Bytes of the slabs that small messages are cut from: the first is small, each further one twice as large, because most flows join few.
const FIRST_SLAB: usize = 4 * 1024;
const SLAB: usize = 64 * 1024;
/// Larger messages get a buffer of their own, so that one kept by the application pins little besides itself.
const SMALL: usize = 8 * 1024;

/// Makes the buffers; nothing is allocated per small message.
#[derive(Debug, Default)]
pub(super) struct Joiner {
    slab: BytesMut,
    /// Bytes of the latest slab.
    latest: usize,
}

impl Joiner {
    /// The pieces, `total` bytes in all, as one.
    pub fn join<'a>(&mut self, pieces: impl IntoIterator<Item = &'a Bytes>, total: usize) -> Bytes {
        if total > SMALL {
            let mut data = Vec::with_capacity(total);
            pieces.into_iter().for_each(|piece| data.extend_from_slice(piece));
            return data.into();
        }
        if self.slab.capacity() < total {
            self.latest = (self.latest * 2).clamp(FIRST_SLAB, SLAB).max(total);
            self.slab.reserve(self.latest);
        }
        pieces.into_iter().for_each(|piece| self.slab.extend_from_slice(piece));
        self.slab.split().freeze()
    }

    /// Bytes of memory held.
    pub fn memory(&self) -> usize {
        self.slab.capacity()
    }
}

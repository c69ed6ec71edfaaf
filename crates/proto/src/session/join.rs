//! Putting the parts of a message into one buffer, copied once.

use super::slab_size::SlabSize;
use bytes::{Bytes, BytesMut};

/// Larger messages get a buffer of their own, so that one kept by the application pins little besides itself.
const SMALL: usize = 8 * 1024;

/// Makes the buffers; nothing is allocated per small message.
#[derive(Debug, Default)]
pub(super) struct Joiner {
    slab: BytesMut,
    size: SlabSize,
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
            self.slab.reserve(self.size.next(SlabSize::MOST).max(total));
        }
        pieces.into_iter().for_each(|piece| self.slab.extend_from_slice(piece));
        self.slab.split().freeze()
    }

    /// Bytes of memory held.
    pub fn memory(&self) -> usize {
        self.slab.capacity()
    }
}

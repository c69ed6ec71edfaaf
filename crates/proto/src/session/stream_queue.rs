//! Bytes of a stream that wait to be sent: copied from the application, or handed over by it.
//!
//! Either way they stand in blocks, and what is cut off the front is a part of a block, not another copy (docs/decisions/0122).

use super::slab_size::SlabSize;
use bytes::{Buf, Bytes, BytesMut};
use std::collections::VecDeque;

/// Smaller blocks are copied: what keeps them in order would weigh as much.
const LEAST_BLOCK: usize = 1024;

/// Blocks come first, then the block that copies are put into at present.
#[derive(Debug, Default)]
pub(super) struct StreamQueue {
    blocks: VecDeque<Bytes>,
    in_blocks: usize,
    copied: BytesMut,
    size: SlabSize,
}

impl StreamQueue {
    pub fn len(&self) -> usize {
        self.in_blocks + self.copied.len()
    }

    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Appends a copy, in blocks of at most an eighth of what may wait: their empty ends are memory that others could use.
    pub fn copy(&mut self, mut data: &[u8], may_wait: usize) {
        while !data.is_empty() {
            if self.copied.len() == self.copied.capacity() {
                self.close_copied();
                self.copied.reserve(self.size.next(may_wait / 8));
            }
            let n = data.len().min(self.copied.capacity() - self.copied.len());
            self.copied.extend_from_slice(&data[..n]);
            data = &data[n..];
        }
    }

    /// Appends the block itself.
    pub fn push(&mut self, block: Bytes, may_wait: usize) {
        if block.len() < LEAST_BLOCK {
            return self.copy(&block, may_wait);
        }
        self.close_copied();
        self.in_blocks += block.len();
        self.blocks.push_back(block);
    }

    /// What was copied becomes a block, and what its memory has left takes the next copies.
    fn close_copied(&mut self) {
        if !self.copied.is_empty() {
            let block = self.copied.split().freeze();
            self.in_blocks += block.len();
            self.blocks.push_back(block);
        }
    }

    /// Cuts off the first bytes, `len` of them or all, if they stand in one piece.
    pub fn cut(&mut self, len: usize) -> Option<Bytes> {
        if self.blocks.is_empty() {
            // What the block has left takes the next copies.
            let n = len.min(self.copied.len());
            return (n > 0).then(|| self.copied.split_to(n).freeze());
        }
        let is_all = self.len() <= len && self.blocks.len() == 1 && self.copied.is_empty();
        let block = self.blocks.front_mut().filter(|block| block.len() >= len || is_all)?;
        let piece = block.split_to(len.min(block.len()));
        self.in_blocks -= piece.len();
        if block.is_empty() {
            self.blocks.pop_front();
        }
        Some(piece)
    }

    /// Moves the first bytes, at most `room` of them, to the end of `to`. O(bytes moved).
    pub fn take(&mut self, mut room: usize, to: &mut BytesMut) {
        while room > 0
            && let Some(block) = self.blocks.front_mut()
        {
            let n = room.min(block.len());
            to.extend_from_slice(&block[..n]);
            block.advance(n);
            room -= n;
            self.in_blocks -= n;
            if block.is_empty() {
                self.blocks.pop_front();
            }
        }
        let n = room.min(self.copied.len());
        to.extend_from_slice(&self.copied[..n]);
        self.copied.advance(n);
    }

    /// Gives back what only a stream with much to send needs, if nothing waits.
    pub fn shrink(&mut self) {
        if self.is_empty() && self.copied.capacity() > SlabSize::FIRST {
            (self.copied, self.size) = (BytesMut::new(), SlabSize::default());
        }
    }

    /// Bytes of memory that copies have, used or not, and that blocks keep.
    pub fn memory(&self) -> usize {
        self.copied.capacity() + self.in_blocks
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn what_goes_in_comes_out_in_order(
            steps in prop::collection::vec((any::<bool>(), any::<bool>(), 0..2 * LEAST_BLOCK, 0..2 * LEAST_BLOCK), 0..100),
        ) {
            let (mut queue, mut expected, mut got, mut next) = (StreamQueue::default(), Vec::new(), BytesMut::new(), 0u8);
            for (is_block, is_cut, len, room) in steps {
                let data: Vec<u8> = (0..len).map(|_| { next = next.wrapping_add(1); next }).collect();
                expected.extend_from_slice(&data);
                if is_block { queue.push(data.into(), 1 << 20) } else { queue.copy(&data, 1 << 20) }
                prop_assert_eq!(queue.len(), expected.len() - got.len());
                if is_cut {
                    if let Some(piece) = queue.cut(room) {
                        prop_assert!(piece.len() == room || (piece.len() < room && queue.is_empty()));
                        got.extend_from_slice(&piece);
                    }
                } else {
                    queue.take(room, &mut got);
                }
                prop_assert_eq!(queue.len(), expected.len() - got.len());
                prop_assert!(queue.memory() >= queue.len() && queue.blocks.len() <= 2 * queue.in_blocks / LEAST_BLOCK + queue.in_blocks / SlabSize::FIRST + 2);
            }
            queue.take(usize::MAX, &mut got);
            prop_assert_eq!(&got[..], &expected[..]);
        }
    }

    #[test]
    fn pieces_are_parts_of_the_block() {
        let mut queue = StreamQueue::default();
        let block = Bytes::from(vec![1; 5000]);
        queue.push(block.clone(), 1 << 20);
        let pieces: Vec<Bytes> = core::iter::from_fn(|| queue.cut(1400)).collect();
        assert_eq!(pieces.iter().map(Bytes::len).collect::<Vec<_>>(), [1400, 1400, 1400, 800]);
        assert!(pieces.iter().all(|piece| block.as_ptr_range().contains(&piece.as_ptr())));
    }
}

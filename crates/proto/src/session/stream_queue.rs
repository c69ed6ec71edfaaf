//! Bytes of a stream that wait to be sent: copied from the application, or handed over by it.

use bytes::{Buf, Bytes, BytesMut};
use std::collections::VecDeque;

/// Smaller blocks are copied: what keeps them in order would weigh as much.
const LEAST_BLOCK: usize = 1024;

/// Blocks come first, copied bytes after them; a block that follows copied bytes makes a block of these.
#[derive(Debug, Default)]
pub(super) struct StreamQueue {
    blocks: VecDeque<Bytes>,
    in_blocks: usize,
    copied: VecDeque<u8>,
}

impl StreamQueue {
    pub fn len(&self) -> usize {
        self.in_blocks + self.copied.len()
    }

    pub fn is_empty(&self) -> bool {
        self.blocks.is_empty() && self.copied.is_empty()
    }

    /// Appends a copy.
    pub fn copy(&mut self, data: &[u8]) {
        self.copied.extend(data);
    }

    /// Appends the block itself.
    pub fn push(&mut self, block: Bytes) {
        if block.len() < LEAST_BLOCK {
            return self.copy(&block);
        }
        if !self.copied.is_empty() {
            let before = Bytes::from_iter(self.copied.drain(..));
            self.in_blocks += before.len();
            self.blocks.push_back(before);
        }
        self.in_blocks += block.len();
        self.blocks.push_back(block);
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
        let (a, b) = self.copied.as_slices();
        let from_a = n.min(a.len());
        to.extend_from_slice(&a[..from_a]);
        to.extend_from_slice(&b[..n - from_a]);
        self.copied.drain(..n);
    }

    /// Gives back memory beyond `bytes`, if nothing waits.
    pub fn shrink_to(&mut self, bytes: usize) {
        if self.is_empty() {
            self.copied.shrink_to(bytes);
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
            steps in prop::collection::vec((any::<bool>(), 0..2 * LEAST_BLOCK, 0..2 * LEAST_BLOCK), 0..100),
        ) {
            let (mut queue, mut expected, mut got, mut next) = (StreamQueue::default(), Vec::new(), BytesMut::new(), 0u8);
            for (is_block, len, room) in steps {
                let data: Vec<u8> = (0..len).map(|_| { next = next.wrapping_add(1); next }).collect();
                expected.extend_from_slice(&data);
                if is_block { queue.push(data.into()) } else { queue.copy(&data) }
                prop_assert_eq!(queue.len(), expected.len() - got.len());
                queue.take(room, &mut got);
                prop_assert_eq!(queue.len(), expected.len() - got.len());
                prop_assert!(queue.memory() >= queue.len() && queue.blocks.len() <= 2 * queue.in_blocks / LEAST_BLOCK + 2);
            }
            queue.take(usize::MAX, &mut got);
            prop_assert_eq!(&got[..], &expected[..]);
        }
    }
}

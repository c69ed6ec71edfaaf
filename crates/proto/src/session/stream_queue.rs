//! Bytes of a stream that wait to be sent: copied from the application, or handed over by it.

use bytes::{Buf, Bytes, BytesMut};
use std::collections::VecDeque;

/// Copied bytes come first; once a block waits, whatever follows it waits as a block.
#[derive(Debug, Default)]
pub(super) struct StreamQueue {
    copied: VecDeque<u8>,
    blocks: VecDeque<Bytes>,
    in_blocks: usize,
}

impl StreamQueue {
    pub fn len(&self) -> usize {
        self.copied.len() + self.in_blocks
    }

    pub fn is_empty(&self) -> bool {
        self.copied.is_empty() && self.blocks.is_empty()
    }

    /// Appends a copy.
    pub fn copy(&mut self, data: &[u8]) {
        if self.blocks.is_empty() {
            self.copied.extend(data);
        } else {
            self.push(Bytes::copy_from_slice(data));
        }
    }

    /// Appends the block itself.
    pub fn push(&mut self, block: Bytes) {
        if !block.is_empty() {
            self.in_blocks += block.len();
            self.blocks.push_back(block);
        }
    }

    /// Moves the first bytes, at most `room` of them, to the end of `to`. O(bytes moved).
    pub fn take(&mut self, room: usize, to: &mut BytesMut) {
        let from_copied = room.min(self.copied.len());
        let (a, b) = self.copied.as_slices();
        let from_a = from_copied.min(a.len());
        to.extend_from_slice(&a[..from_a]);
        to.extend_from_slice(&b[..from_copied - from_a]);
        self.copied.drain(..from_copied);
        let mut room = room - from_copied;
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
        fn what_goes_in_comes_out_in_order(steps in prop::collection::vec((any::<bool>(), 0usize..40, 0usize..50), 0..200)) {
            let (mut queue, mut expected, mut got, mut next) = (StreamQueue::default(), Vec::new(), BytesMut::new(), 0u8);
            for (is_block, len, room) in steps {
                let data: Vec<u8> = (0..len).map(|_| { next = next.wrapping_add(1); next }).collect();
                expected.extend_from_slice(&data);
                if is_block { queue.push(data.into()) } else { queue.copy(&data) }
                prop_assert_eq!(queue.len(), expected.len() - got.len());
                queue.take(room, &mut got);
                prop_assert_eq!(queue.len(), expected.len() - got.len());
                prop_assert!(queue.memory() >= queue.len());
            }
            queue.take(usize::MAX, &mut got);
            prop_assert_eq!(&got[..], &expected[..]);
        }
    }
}

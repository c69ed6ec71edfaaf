//! Rows of memory cut from slabs: one allocation for some ten packets, and none as long as slabs come back.
//!
//! A row that is kept keeps its slab, whatever became of the other rows of it: a slab is so large that allocating is cheap and so small that a far end
//! that makes a node keep one row of each wins little (docs/decisions/0053). The first is small, because most flows never bring much. Slabs of full size
//! are used again (docs/decisions/0122): freed and allocated anew, they go back to the system and come from it a page at a time.

use bytes::{Bytes, BytesMut};
use std::cell::RefCell;
use std::collections::VecDeque;

/// Bytes of the first slab of a flow.
const FIRST: usize = 512;
/// Bytes of a slab at most, unless one row is longer.
const MOST: usize = 16 << 10;
/// Full slabs that a thread keeps until their rows are gone: 1 MiB.
const KEPT: usize = 64;
/// Of these, looked at for one that has come back.
const LOOKS: usize = 4;

thread_local! {
    /// Slabs of `MOST` bytes in the order in which they became full; of all flows of this thread, so that flows that rest keep none.
    static FULL: RefCell<VecDeque<BytesMut>> = const { RefCell::new(VecDeque::new()) };
}

/// A slab of `MOST` bytes none of whose rows is held any more.
fn come_back() -> Option<BytesMut> {
    FULL.with_borrow_mut(|full| {
        let at = full.iter_mut().take(LOOKS).position(|slab| slab.try_reclaim(MOST))?;
        full.remove(at)
    })
}

/// Keeps a slab until it has come back, or until `KEPT` others became full.
fn keep(slab: BytesMut) {
    FULL.with_borrow_mut(|full| {
        if full.len() >= KEPT {
            full.pop_front();
        }
        full.push_back(slab);
    });
}

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
            let full = core::mem::take(&mut self.room);
            if self.latest == MOST {
                keep(full);
            }
            self.latest = (self.latest * 2).clamp(FIRST, MOST).max(len);
            let used = if self.latest == MOST { come_back() } else { None };
            self.room = used.unwrap_or_else(|| BytesMut::with_capacity(self.latest));
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

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::HashSet;

    /// Slabs that rows were cut from of which the latest `held` are kept.
    fn slabs(held: usize) -> usize {
        FULL.with_borrow_mut(VecDeque::clear);
        let (mut slab, mut rows, mut starts) = (Slab::default(), VecDeque::new(), HashSet::new());
        // What others allocate meanwhile keeps the allocator from giving the same addresses by chance.
        let mut others = Vec::new();
        for i in 0..11_000u32 {
            let row = slab.copy(&i.to_be_bytes().repeat(350));
            if i % 11 == 0 {
                starts.insert(row.as_ptr());
                others.push(vec![0u8; MOST]);
            }
            rows.push_back((i, row));
            if rows.len() > held
                && let Some((i, row)) = rows.pop_front()
            {
                assert!(row.chunks(4).all(|c| c == i.to_be_bytes()), "a row that is held stays as it was");
            }
        }
        starts.len()
    }

    #[test]
    fn rows_that_are_read_in_order_stay_in_the_same_memory() {
        for (held, bound) in [(100, 20), (600, 70)] {
            let slabs = slabs(held);
            assert!(slabs < bound, "{slabs} of 1000 for {held} rows");
        }
    }

    #[test]
    fn slabs_that_are_held_are_neither_used_again_nor_kept() {
        assert!(slabs(2000) >= 2000 / 11, "so many are held at once");
        FULL.with_borrow(|full| assert!(full.len() <= KEPT));
    }
}

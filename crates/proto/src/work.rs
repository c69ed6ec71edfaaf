//! Work that bytes of others cause, counted rather than timed: operations that cost microseconds, and steps of loops over what a node keeps.
//!
//! The counts are of the calling thread and only grow. docs/spec/costs.md states what each packet may cost, and `tests/costs.rs` holds the code to it; the
//! simulator's floods and the fuzzers' cost oracles read the same counts. A count is one addition beside an operation of at least a hundred nanoseconds.

use core::cell::Cell;
use core::ops::{Add, Sub};

/// Counts of one thread.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct Work {
    /// Scalar multiplications of X25519: agreements, and public keys made from secret ones. Some 50 us each.
    pub dh: u64,
    /// Keyed hashes and key derivations: cookies, tags of first packets, packet keys. Some 1 us each. Those inside a handshake count with its `dh`.
    pub hash: u64,
    /// Packets sealed or opened, whether or not they opened. Some 1 us each.
    pub aead: u64,
    /// Entries looked at by loops whose length others can choose: links, flows, ids, sessions.
    pub steps: u64,
}

impl Work {
    const NONE: Self = Self { dh: 0, hash: 0, aead: 0, steps: 0 };

    /// What the calling thread has done so far.
    pub fn done() -> Self {
        DONE.get()
    }

    /// What the calling thread does in `act`, and what `act` returns.
    pub fn of<T>(act: impl FnOnce() -> T) -> (Self, T) {
        let before = Self::done();
        let result = act();
        (Self::done() - before, result)
    }

    /// No count is larger than the other's.
    pub fn is_within(&self, bound: &Self) -> bool {
        self.dh <= bound.dh && self.hash <= bound.hash && self.aead <= bound.aead && self.steps <= bound.steps
    }
}

impl Sub for Work {
    type Output = Self;
    fn sub(self, other: Self) -> Self {
        Self {
            dh: self.dh.wrapping_sub(other.dh),
            hash: self.hash.wrapping_sub(other.hash),
            aead: self.aead.wrapping_sub(other.aead),
            steps: self.steps.wrapping_sub(other.steps),
        }
    }
}

impl Add for Work {
    type Output = Self;
    fn add(self, other: Self) -> Self {
        Self {
            dh: self.dh.wrapping_add(other.dh),
            hash: self.hash.wrapping_add(other.hash),
            aead: self.aead.wrapping_add(other.aead),
            steps: self.steps.wrapping_add(other.steps),
        }
    }
}

thread_local! {
    static DONE: Cell<Work> = const { Cell::new(Work::NONE) };
}

fn count(more: Work) {
    DONE.set(DONE.get() + more);
}

/// One scalar multiplication.
pub(crate) fn dh() {
    count(Work { dh: 1, ..Work::NONE });
}

/// One keyed hash or key derivation.
pub(crate) fn hash() {
    count(Work { hash: 1, ..Work::NONE });
}

/// One packet sealed or opened.
pub(crate) fn aead() {
    count(Work { aead: 1, ..Work::NONE });
}

/// One entry that a loop looks at, to be used as `.inspect(|_| work::step())`.
pub(crate) fn step() {
    count(Work { steps: 1, ..Work::NONE });
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn work_is_counted_by_kind_and_for_one_thread() {
        let (work, ()) = Work::of(|| {
            dh();
            hash();
            aead();
            (0..3).for_each(|_| step());
        });
        assert_eq!(work, Work { dh: 1, hash: 1, aead: 1, steps: 3 });
        assert!(work.is_within(&work) && !work.is_within(&Work { dh: 1, hash: 1, aead: 1, steps: 2 }));
        assert_eq!(std::thread::spawn(Work::done).join().unwrap(), Work::NONE);
    }
}

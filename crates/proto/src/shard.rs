//! What the nodes of one endpoint have in common where it is in several parts, so that links use several cores (docs/decisions/0212).
//!
//! A *shard* is a whole node with links, sessions and flows of its own. What an endpoint promises of strangers, keys, places and memory holds for all its shards
//! together: what these rules count is shared, behind locks that are taken per handshake, per link and per session. No packet of a link waits for one. A node alone
//! is the only shard of its endpoint; then nothing here makes a difference.

use crate::ids::LinkId;
use crate::neighbour::Neighbour;
use crate::wire::packet::label_word;
use std::collections::BTreeMap;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// Which shard a label belongs to: a keyed hash of its first four bytes, so that nobody outside tells from labels which shard they lead to.
///
/// It is no cipher: a filter of the kernel computes it for each datagram (32-bit numbers, no more than multiplications and shifts).
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct Steering {
    count: u32,
    key: [u32; 3],
}

impl Steering {
    /// Shifts between the multiplications of the hash.
    pub const SHIFTS: [u32; 3] = [16, 15, 16];

    /// Between `count` shards, with a secret key.
    pub fn new(count: u32, [add, first, second]: [u32; 3]) -> Self {
        // An even factor would lose a bit.
        Self { count: count.max(1), key: [add, first | 1, second | 1] }
    }

    /// Of a node that is alone.
    pub fn alone() -> Self {
        Self::new(1, [0; 3])
    }

    /// How many shards there are; at least 1.
    pub fn count(&self) -> u32 {
        self.count
    }

    /// What is added modulo 2 first, and the factors after the first two shifts.
    pub fn key(&self) -> [u32; 3] {
        self.key
    }

    /// The shard of labels that begin with this word, in network order.
    pub fn of_word(&self, word: u32) -> usize {
        let [add, first, second] = self.key;
        let [a, b, c] = Self::SHIFTS;
        let mut hash = word ^ add;
        hash = (hash ^ hash >> a).wrapping_mul(first);
        hash = (hash ^ hash >> b).wrapping_mul(second);
        hash ^= hash >> c;
        (hash % self.count) as usize
    }

    /// The shard that a datagram is for: by its receiver's label, which in a first flight is any number and stays the same when it is repeated. `None`: it is too
    /// short to be of any use to one.
    pub fn of_datagram(&self, datagram: &[u8]) -> Option<usize> {
        label_word(datagram).map(|word| self.of_word(word))
    }

    /// The shard whose link this is.
    pub fn of_link(&self, link: LinkId) -> usize {
        (link.0 % u64::from(self.count)) as usize
    }
}

impl core::fmt::Debug for Steering {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.debug_struct("Steering").field("count", &self.count).finish_non_exhaustive()
    }
}

/// One of the shards of an endpoint.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Shard {
    pub(crate) steering: Steering,
    pub(crate) index: usize,
}

impl Shard {
    pub(crate) fn alone() -> Self {
        Self { steering: Steering::alone(), index: 0 }
    }

    pub(crate) fn is_alone(self) -> bool {
        self.steering.count() == 1
    }

    pub(crate) fn owns(self, link: LinkId) -> bool {
        self.steering.of_link(link) == self.index
    }

    /// This shard's part of places that are shared out evenly.
    pub(crate) fn part_of(self, places: usize) -> usize {
        places.div_ceil(self.steering.count() as usize)
    }

    /// The name after `last`, which no other shard gives; begin with 0.
    pub(crate) fn next_name(self, last: u64) -> u64 {
        let last = if last == 0 { self.index as u64 } else { last };
        last + u64::from(self.steering.count())
    }
}

/// A thing that all shards of an endpoint share. Clones are handles of the same thing.
#[derive(Debug, Default)]
pub(crate) struct Common<T>(Arc<Mutex<T>>);

impl<T> Common<T> {
    pub(crate) fn new(thing: T) -> Self {
        Self(Arc::new(Mutex::new(thing)))
    }

    /// Never held while another one is taken.
    pub(crate) fn lock(&self) -> MutexGuard<'_, T> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl<T> Clone for Common<T> {
    fn clone(&self) -> Self {
        Self(Arc::clone(&self.0))
    }
}

/// What all shards hold together: all neighbours' flows, and those of each neighbour, in bytes.
#[derive(Clone, Debug)]
pub(crate) struct Holdings {
    all: Arc<AtomicUsize>,
    of: Common<BTreeMap<Neighbour, Arc<AtomicUsize>>>,
    /// A shard tells the others of changes that are as large as this.
    step: usize,
}

impl Holdings {
    pub(crate) fn new(step: usize) -> Self {
        Self { all: Arc::default(), of: Common::default(), step: step.max(1) }
    }

    /// One shard's part of what is held for all.
    pub(crate) fn part_of_all(&self) -> Part {
        Part { sum: Some(Arc::clone(&self.all)), told: 0, step: self.step }
    }

    /// One shard's part of what is held for a neighbour.
    pub(crate) fn part_of(&self, neighbour: Neighbour) -> Part {
        let sum = Arc::clone(self.of.lock().entry(neighbour).or_default());
        Part { sum: Some(sum), told: 0, step: self.step }
    }

    /// A shard holds nothing for a neighbour any more; its part is gone.
    pub(crate) fn forget(&self, neighbour: Neighbour) {
        let mut of = self.of.lock();
        if of.get(&neighbour).is_some_and(|sum| Arc::strong_count(sum) == 1) {
            of.remove(&neighbour);
        }
    }
}

/// What one shard holds of something, as far as the others need to know. By default there are no others.
#[derive(Debug, Default)]
pub(crate) struct Part {
    sum: Option<Arc<AtomicUsize>>,
    told: usize,
    step: usize,
}

impl Part {
    /// This shard holds so much now.
    pub(crate) fn set(&mut self, own: usize) {
        if own.abs_diff(self.told) >= self.step {
            self.tell(own);
        }
    }

    fn tell(&mut self, own: usize) {
        if let Some(sum) = &self.sum {
            // Modulo 2^64, like the sum: less is added as its complement.
            sum.fetch_add(own.wrapping_sub(self.told), Relaxed);
            self.told = own;
        }
    }

    /// What the other shards hold.
    pub(crate) fn others(&self) -> usize {
        self.sum.as_ref().map_or(0, |sum| sum.load(Relaxed).wrapping_sub(self.told))
    }
}

impl Drop for Part {
    fn drop(&mut self) {
        self.tell(0);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn labels_fall_on_shards_evenly_and_elsewhere_under_another_key() {
        let (one, other) = (Steering::new(8, [1, 0x9e37_79b9, 0x85eb_ca6b]), Steering::new(8, [2, 0x9e37_79b8, 0x85eb_ca6b]));
        let mut counts = [0; 8];
        (0..80_000).for_each(|word| counts[one.of_word(word)] += 1);
        assert!(counts.iter().all(|n| (9_000..11_000).contains(n)), "{counts:?}");
        let same = (0..80_000).filter(|word| one.of_word(*word) == other.of_word(*word)).count();
        assert!((8_000..12_000).contains(&same), "{same}: labels of one shard are spread over all");
        assert!((0..1000).all(|word| Steering::alone().of_word(word) == 0));
    }

    #[test]
    fn names_of_shards_differ_and_those_of_one_alone_begin_with_one() {
        let names = |shard: Shard| {
            let mut last = 0;
            std::iter::from_fn(move || {
                last = shard.next_name(last);
                Some(last)
            })
        };
        assert_eq!(names(Shard::alone()).take(3).collect::<Vec<_>>(), [1, 2, 3]);
        let steering = Steering::new(3, [0; 3]);
        let mut all: Vec<u64> = (0..3).flat_map(|index| names(Shard { steering, index }).take(3)).collect();
        assert!((0..3).all(|index| names(Shard { steering, index }).take(3).all(|name| steering.of_link(LinkId(name)) == index)));
        all.sort_unstable();
        assert_eq!(all, (3..12).collect::<Vec<_>>());
    }

    #[test]
    fn what_a_shard_holds_the_others_know_in_steps_and_what_is_gone_they_know_at_once() {
        let all = Holdings::new(100);
        let (mut one, mut two) = (all.part_of_all(), all.part_of_all());
        one.set(99);
        assert_eq!(two.others(), 0);
        one.set(500);
        two.set(1000);
        assert_eq!((one.others(), two.others()), (1000, 500));
        one.set(420);
        assert_eq!(two.others(), 500);
        one.set(400);
        assert_eq!(two.others(), 400);
        drop(one);
        assert_eq!(two.others(), 0);
        let neighbour = Neighbour::Link(LinkId(1));
        let part = all.part_of(neighbour);
        all.forget(neighbour);
        assert_eq!(all.of.lock().len(), 1, "another shard has a part of it");
        drop(part);
        all.forget(neighbour);
        assert_eq!(all.of.lock().len(), 0);
    }
}

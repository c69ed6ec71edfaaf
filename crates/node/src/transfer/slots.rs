//! What a receiver knows of each entry's content before it comes, and which have come.

use super::ours::Seen;
use super::staging::Grown;
use blake3::Hasher;
use std::collections::HashMap;

/// What is known of an entry's content before it comes.
#[derive(Debug)]
pub enum Slot {
    /// Nothing: the name was free.
    Missing,
    /// The beginning, from an earlier try of the same sender; locked.
    Partial(u64, Box<Hasher>, Grown),
    /// A file of the same size has the name, with this hash; it may be replaced.
    InPlace(blake3::Hash, Seen),
    /// A file of the same size has the name, and it may not be replaced.
    Existing,
    /// Something else has the name, and may be replaced.
    Replace,
    /// It has failed already: what comes is passed over.
    Refused,
    /// A file that is newer has the name, and stays: what comes is passed over.
    Newer,
}

/// The slots of all entries; the usual case, nothing known and nothing come, takes a bit.
#[derive(Default)]
pub struct Slots {
    known: HashMap<u64, Slot>,
    taken: Vec<u64>,
}

impl Slots {
    /// This is known of an entry.
    pub fn set(&mut self, index: u64, slot: Slot) {
        self.known.insert(index, slot);
    }

    /// Of so many entries something is known.
    pub fn known(&self) -> usize {
        self.known.len()
    }

    /// The entry has failed before anything came.
    pub fn is_refused(&self, index: u64) -> bool {
        matches!(self.known.get(&index), Some(Slot::Refused))
    }

    /// What is known of an entry whose content comes now; `None`: it came already. The index is one of the manifest's.
    pub fn take(&mut self, index: u64) -> Option<Slot> {
        let (word, bit) = (index as usize / 64, 1 << (index % 64));
        if self.taken.len() <= word {
            self.taken.resize(word + 1, 0);
        }
        if self.taken[word] & bit != 0 {
            return None;
        }
        self.taken[word] |= bit;
        match self.known.get(&index) {
            // Remembered for the end.
            Some(Slot::Refused) => Some(Slot::Refused),
            _ => Some(self.known.remove(&index).unwrap_or(Slot::Missing)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_entry_is_taken_once() {
        let mut slots = Slots::default();
        slots.set(70, Slot::Existing);
        slots.set(3, Slot::Refused);
        assert!(matches!(slots.take(70), Some(Slot::Existing)) && slots.take(70).is_none());
        assert!(matches!(slots.take(1_000), Some(Slot::Missing)) && slots.take(1_000).is_none());
        assert!(matches!(slots.take(3), Some(Slot::Refused)) && slots.take(3).is_none() && slots.is_refused(3));
    }
}

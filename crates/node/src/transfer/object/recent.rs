//! The last few of what came: what is older is forgotten, so that strangers cannot make this grow.

use std::collections::{HashSet, VecDeque};
use std::hash::Hash;

/// See the file's heading.
#[derive(Debug)]
pub struct Recent<T> {
    most: usize,
    known: HashSet<T>,
    order: VecDeque<T>,
}

impl<T: Copy + Eq + Hash> Recent<T> {
    /// Remembers so many.
    pub fn new(most: usize) -> Self {
        Self { most: most.max(1), known: HashSet::new(), order: VecDeque::new() }
    }

    /// Whether it is among them.
    pub fn contains(&self, what: &T) -> bool {
        self.known.contains(what)
    }

    /// One more.
    pub fn insert(&mut self, what: T) {
        if !self.known.insert(what) {
            return;
        }
        self.order.push_back(what);
        if self.order.len() > self.most
            && let Some(oldest) = self.order.pop_front()
        {
            self.known.remove(&oldest);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_oldest_is_forgotten() {
        let mut recent = Recent::new(3);
        (0..1000).for_each(|n| recent.insert(n));
        recent.insert(999);
        assert_eq!((recent.known.len(), recent.order.len()), (3, 3));
        assert!(recent.contains(&997) && recent.contains(&999) && !recent.contains(&996));
    }
}

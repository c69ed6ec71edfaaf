//! One ordered set of deadlines for keyed things: the earliest is found in O(1), a change costs O(log n), nothing is scanned.

use crate::units::Time;
use std::collections::{BTreeMap, BTreeSet};

/// Deadlines of keyed machines.
#[derive(Debug, Default)]
pub(crate) struct Deadlines<K: Ord + Copy> {
    order: BTreeSet<(Time, K)>,
    current: BTreeMap<K, Time>,
}

impl<K: Ord + Copy> Deadlines<K> {
    /// An empty set.
    pub(crate) fn new() -> Self {
        Self { order: BTreeSet::new(), current: BTreeMap::new() }
    }

    /// Notes what `key` answers to `poll_timeout`; `None` removes it. Cheap when nothing changed.
    pub(crate) fn set(&mut self, key: K, deadline: Option<Time>) {
        match (self.current.get(&key).copied(), deadline) {
            (old, new) if old == new => {}
            (old, new) => {
                if let Some(old) = old {
                    self.order.remove(&(old, key));
                }
                match new {
                    Some(new) => {
                        self.order.insert((new, key));
                        self.current.insert(key, new);
                    }
                    None => {
                        self.current.remove(&key);
                    }
                }
            }
        }
    }

    /// Whether this key has a deadline.
    pub(crate) fn has(&self, key: K) -> bool {
        self.current.contains_key(&key)
    }

    /// The earliest deadline.
    pub(crate) fn earliest(&self) -> Option<Time> {
        self.order.first().map(|(t, _)| *t)
    }

    /// A key whose deadline has come, removed from the set; the owner sets its next one.
    pub(crate) fn pop_due(&mut self, now: Time) -> Option<K> {
        let &(at, key) = self.order.first()?;
        if at > now {
            return None;
        }
        self.order.pop_first();
        self.current.remove(&key);
        Some(key)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn earliest_deadline_comes_first_and_changes_take_effect() {
        let mut d = Deadlines::new();
        d.set(1u8, Some(Time::from_millis(5)));
        d.set(2, Some(Time::from_millis(3)));
        assert_eq!(d.earliest(), Some(Time::from_millis(3)));
        d.set(2, Some(Time::from_millis(9)));
        assert_eq!(d.earliest(), Some(Time::from_millis(5)));
        assert_eq!(d.pop_due(Time::from_millis(4)), None);
        assert_eq!(d.pop_due(Time::from_millis(9)), Some(1));
        d.set(2, None);
        assert_eq!(d.earliest(), None);
    }
}

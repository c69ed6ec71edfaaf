//! Ordered tables of what a node keeps many of, flows above all. A walk through one is paid for by others, so that every entry of it counts as work.
//!
//! Most look-ups are for what the last one was for: a packet, its flow, and what it changes. So where that stands is kept, and found without a search, whose
//! cost grows with the table and with what the processor's cache does not hold of it.

use crate::work;
use std::cell::Cell;
use std::collections::BTreeMap;

/// A map whose walks are counted ([`work::step`]), in the order of keys; single look-ups are free.
#[derive(Clone, Debug)]
pub(crate) struct Table<K, V> {
    places: BTreeMap<K, usize>,
    entries: Vec<Option<(K, V)>>,
    /// Of these, the empty ones.
    free: Vec<usize>,
    /// Where the last one that was looked for stands.
    latest: Cell<usize>,
}

impl<K: Ord, V> Default for Table<K, V> {
    fn default() -> Self {
        Self { places: BTreeMap::new(), entries: Vec::new(), free: Vec::new(), latest: Cell::new(0) }
    }
}

impl<K: Ord + Copy, V> Table<K, V> {
    fn place(&self, key: &K) -> Option<usize> {
        let latest = self.latest.get();
        if let Some(Some((found, _))) = self.entries.get(latest)
            && found == key
        {
            return Some(latest);
        }
        let place = *self.places.get(key)?;
        self.latest.set(place);
        Some(place)
    }

    pub(crate) fn get(&self, key: &K) -> Option<&V> {
        self.entries.get(self.place(key)?)?.as_ref().map(|(_, value)| value)
    }

    pub(crate) fn get_mut(&mut self, key: &K) -> Option<&mut V> {
        let place = self.place(key)?;
        self.entries.get_mut(place)?.as_mut().map(|(_, value)| value)
    }

    pub(crate) fn insert(&mut self, key: K, value: V) -> Option<V> {
        if let Some(old) = self.get_mut(&key) {
            return Some(core::mem::replace(old, value));
        }
        let place = match self.free.pop() {
            Some(place) => {
                self.entries[place] = Some((key, value));
                place
            }
            None => {
                self.entries.push(Some((key, value)));
                self.entries.len() - 1
            }
        };
        self.places.insert(key, place);
        None
    }

    pub(crate) fn remove(&mut self, key: &K) -> Option<V> {
        let place = self.places.remove(key)?;
        let (_, value) = self.entries.get_mut(place)?.take()?;
        match self.places.is_empty() {
            // As if it had never held any.
            true => (self.entries, self.free) = Default::default(),
            false => self.free.push(place),
        }
        Some(value)
    }

    pub(crate) fn contains_key(&self, key: &K) -> bool {
        self.place(key).is_some()
    }

    pub(crate) fn len(&self) -> usize {
        self.places.len()
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.places.is_empty()
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = (&K, &V)> {
        let entry = |place: &usize| self.entries.get(*place)?.as_ref().map(|(key, value)| (key, value));
        self.places.values().inspect(|_| work::step()).filter_map(entry)
    }

    pub(crate) fn values(&self) -> impl Iterator<Item = &V> {
        self.iter().map(|(_, value)| value)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn a_table_is_a_map_in_the_order_of_keys(ops in proptest::collection::vec((0u8..12, 0u8..5), 0..200)) {
            let (mut table, mut map) = (Table::default(), BTreeMap::new());
            for (n, (key, op)) in ops.into_iter().enumerate() {
                match op {
                    0 | 1 => prop_assert_eq!(table.insert(key, n), map.insert(key, n)),
                    2 => prop_assert_eq!(table.remove(&key), map.remove(&key)),
                    3 => prop_assert_eq!(table.get_mut(&key), map.get_mut(&key)),
                    _ => prop_assert_eq!((table.get(&key), table.contains_key(&key)), (map.get(&key), map.contains_key(&key))),
                }
                prop_assert_eq!((table.len(), table.is_empty()), (map.len(), map.is_empty()));
                prop_assert!(table.iter().eq(map.iter()) && table.values().eq(map.values()));
                prop_assert!(table.entries.len() <= 12, "places are used again");
            }
        }
    }
}

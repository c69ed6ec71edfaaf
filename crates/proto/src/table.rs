//! Ordered tables of what a node keeps many of, flows above all. A walk through one is paid for by others, so that every entry of it counts as work.

use crate::work;
use std::collections::BTreeMap;

/// A `BTreeMap` whose walks are counted ([`work::step`]); single look-ups are free.
#[derive(Clone, Debug)]
pub(crate) struct Table<K, V>(BTreeMap<K, V>);

impl<K: Ord, V> Default for Table<K, V> {
    fn default() -> Self {
        Self(BTreeMap::new())
    }
}

impl<K: Ord, V> Table<K, V> {
    pub(crate) fn get(&self, key: &K) -> Option<&V> {
        self.0.get(key)
    }

    pub(crate) fn get_mut(&mut self, key: &K) -> Option<&mut V> {
        self.0.get_mut(key)
    }

    pub(crate) fn insert(&mut self, key: K, value: V) -> Option<V> {
        self.0.insert(key, value)
    }

    pub(crate) fn remove(&mut self, key: &K) -> Option<V> {
        self.0.remove(key)
    }

    pub(crate) fn contains_key(&self, key: &K) -> bool {
        self.0.contains_key(key)
    }

    pub(crate) fn len(&self) -> usize {
        self.0.len()
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = (&K, &V)> {
        self.0.iter().inspect(|_| work::step())
    }

    pub(crate) fn values(&self) -> impl Iterator<Item = &V> {
        self.0.values().inspect(|_| work::step())
    }
}

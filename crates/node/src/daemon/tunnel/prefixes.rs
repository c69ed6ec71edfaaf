//! Finds the longest prefix that covers an address: the node of a destination, or of a source.

use ipnet::IpNet;
use std::collections::{BTreeSet, HashMap};
use std::net::IpAddr;

/// Values by prefix. Looking up costs one hash per prefix length in use.
#[derive(Clone, Debug)]
pub struct Prefixes<T> {
    v4: Family<T>,
    v6: Family<T>,
}

#[derive(Clone, Debug)]
struct Family<T> {
    lengths: BTreeSet<u8>,
    values: HashMap<IpNet, T>,
}

impl<T> Default for Family<T> {
    fn default() -> Self {
        Self { lengths: BTreeSet::new(), values: HashMap::new() }
    }
}

impl<T> Default for Prefixes<T> {
    fn default() -> Self {
        Self { v4: Family::default(), v6: Family::default() }
    }
}

impl<T> Prefixes<T> {
    /// Adds a prefix, or replaces its value.
    pub fn insert(&mut self, prefix: IpNet, value: T) {
        let family = if prefix.addr().is_ipv4() { &mut self.v4 } else { &mut self.v6 };
        family.lengths.insert(prefix.prefix_len());
        family.values.insert(prefix.trunc(), value);
    }

    /// The value of the longest prefix that covers an address.
    pub fn get(&self, address: IpAddr) -> Option<&T> {
        let family = if address.is_ipv4() { &self.v4 } else { &self.v6 };
        family.lengths.iter().rev().find_map(|length| family.values.get(&IpNet::new(address, *length).ok()?.trunc()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_longest_prefix_wins_in_each_family() {
        let mut table = Prefixes::default();
        for (prefix, value) in [("10.0.0.0/8", 1), ("10.9.0.0/16", 2), ("10.9.0.2/32", 3), ("fd09::/16", 4), ("fd09::2/128", 5)] {
            table.insert(prefix.parse().unwrap(), value);
        }
        for (address, value) in [
            ("10.1.1.1", Some(&1)),
            ("10.9.0.1", Some(&2)),
            ("10.9.0.2", Some(&3)),
            ("11.0.0.1", None),
            ("fd09::1", Some(&4)),
            ("fd09::2", Some(&5)),
            ("::1", None),
        ] {
            assert_eq!(table.get(address.parse().unwrap()), value, "{address}");
        }
        table.insert("::/0".parse().unwrap(), 6);
        assert_eq!(table.get("::1".parse().unwrap()), Some(&6));
        assert_eq!(table.get("11.0.0.1".parse().unwrap()), None);
    }
}

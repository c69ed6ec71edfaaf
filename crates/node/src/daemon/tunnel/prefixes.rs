//! Finds the longest prefix that covers an address: the node of a destination, or of a source.

use ipnet::IpNet;
use std::collections::{BTreeSet, HashMap};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

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

fn bits(address: IpAddr) -> u128 {
    match address {
        IpAddr::V4(v4) => u32::from(v4).into(),
        IpAddr::V6(v6) => v6.into(),
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

    /// Addresses whose value is meant, as intervals that neither overlap nor touch.
    pub fn intervals(&self, is_meant: impl Fn(&T) -> bool) -> Vec<(IpAddr, IpAddr)> {
        let mut out: Vec<(IpAddr, IpAddr)> = Vec::new();
        for (family, is_v4) in [(&self.v4, true), (&self.v6, false)] {
            let address = |bits: u128| match is_v4 {
                // It is one of 32 bits.
                true => IpAddr::from(Ipv4Addr::from(bits as u32)),
                false => Ipv6Addr::from(bits).into(),
            };
            let ends = |net: &IpNet| (bits(net.network()), bits(net.broadcast()));
            // The value changes at these only.
            let last = family.values.keys().map(|net| ends(net).1).max();
            let beginnings: BTreeSet<u128> =
                family.values.keys().map(ends).flat_map(|(first, last)| [Some(first), last.checked_add(1)]).flatten().collect();
            let mut beginnings = beginnings.into_iter().peekable();
            while let (Some(first), Some(last)) = (beginnings.next(), last) {
                let until = beginnings.peek().map_or(last, |next| next - 1);
                if first > until || !self.get(address(first)).is_some_and(&is_meant) {
                    continue;
                }
                match out.last_mut() {
                    Some((begun, end)) if begun.is_ipv4() == is_v4 && bits(*end) + 1 == first => *end = address(until),
                    _ => out.push((address(first), address(until))),
                }
            }
        }
        out
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn intervals_are_those_of_the_longest_prefixes() {
        let intervals = |list: &[(&str, bool)]| {
            let mut table = Prefixes::default();
            list.iter().for_each(|(prefix, value)| table.insert(prefix.parse().unwrap(), *value));
            table.intervals(|value| *value).into_iter().map(|(first, last)| format!("{first}-{last}")).collect::<Vec<_>>()
        };
        assert!(intervals(&[]).is_empty() && intervals(&[("10.0.0.0/8", false)]).is_empty());
        assert_eq!(intervals(&[("0.0.0.0/0", true), ("::/0", true)]).len(), 2);
        let nested = [("10.0.0.0/8", true), ("10.9.0.0/16", false), ("10.9.0.2/32", true), ("192.168.0.0/24", false)];
        assert_eq!(intervals(&nested), ["10.0.0.0-10.8.255.255", "10.9.0.2-10.9.0.2", "10.10.0.0-10.255.255.255"]);
        assert_eq!(intervals(&[("10.0.0.0/9", true), ("10.128.0.0/9", true)]), ["10.0.0.0-10.255.255.255"]);
        assert_eq!(intervals(&[("0.0.0.0/0", true), ("255.255.255.255/32", false)]), ["0.0.0.0-255.255.255.254"]);
        assert_eq!(intervals(&[("::/0", false), ("fd09::2/128", true), ("fd09::3/128", true)]), ["fd09::2-fd09::3"]);
    }

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

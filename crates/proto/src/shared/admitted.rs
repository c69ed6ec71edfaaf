//! Which links that others opened may come up: a share for each key, each host, and a rest for keys that have none (P19).

use crate::admission::Host;
use crate::config::NodeConfig;
use crate::crypto::PublicKey;
use crate::ids::LinkId;
use std::collections::{HashMap, VecDeque};
use std::net::IpAddr;

/// Of the places for links one part in so many is left for keys that have no link.
const NEWCOMERS: usize = 64;
/// Where any host may call, one host has one part in so many of the places, and [`LEAST_OF_A_HOST`] in any case.
const HOST_SHARE: usize = 8;
const LEAST_OF_A_HOST: usize = 4;

/// What becomes of a link that came up.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Admission {
    Taken,
    /// In place of the oldest link of the same key.
    Instead(LinkId),
    /// There are too many.
    Refused,
}

/// The links that others opened and that are up.
#[derive(Debug, Default)]
pub(crate) struct Admitted {
    links: HashMap<LinkId, (PublicKey, Host)>,
    /// Oldest first.
    of_key: HashMap<PublicKey, VecDeque<LinkId>>,
    of_host: HashMap<Host, usize>,
}

impl Admitted {
    /// Whether there is a link from this host.
    pub(crate) fn has_one_from(&self, host: Host) -> bool {
        self.of_host.contains_key(&host)
    }

    /// Whether there is a link of this key.
    pub(crate) fn has_one_of(&self, peer: PublicKey) -> bool {
        self.of_key.contains_key(&peer)
    }

    /// A link of this key comes up.
    pub(crate) fn admit(&mut self, link: LinkId, peer: PublicKey, address: IpAddr, config: &NodeConfig) -> Admission {
        let host = Host::from(address);
        let own = self.of_key.get(&peer).map_or(0, VecDeque::len);
        let oldest = self.of_key.get(&peer).and_then(|links| links.front()).copied().filter(|_| own >= config.max_links_per_key);
        if oldest.is_none() {
            let reserved = if own > 0 { config.max_links / NEWCOMERS } else { 0 };
            let share = (config.max_links / HOST_SHARE).max(LEAST_OF_A_HOST);
            let is_host_full = config.authorised.is_none() && self.of_host.get(&host).copied().unwrap_or(0) >= share;
            if self.links.len() + reserved >= config.max_links || is_host_full {
                return Admission::Refused;
            }
        }
        oldest.into_iter().for_each(|oldest| self.remove(oldest));
        self.links.insert(link, (peer, host));
        self.of_key.entry(peer).or_default().push_back(link);
        *self.of_host.entry(host).or_default() += 1;
        oldest.map_or(Admission::Taken, Admission::Instead)
    }

    /// The link ends. Nothing happens if it was not admitted.
    pub(crate) fn remove(&mut self, link: LinkId) {
        let Some((peer, host)) = self.links.remove(&link) else { return };
        if let Some(links) = self.of_key.get_mut(&peer) {
            // At most as many as one key may have.
            links.retain(|l| *l != link);
            if links.is_empty() {
                self.of_key.remove(&peer);
            }
        }
        if let Some(count) = self.of_host.get_mut(&host) {
            *count -= 1;
            if *count == 0 {
                self.of_host.remove(&host);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn key(n: u16) -> PublicKey {
        let mut bytes = [0; 32];
        bytes[..2].copy_from_slice(&n.to_be_bytes());
        PublicKey(bytes)
    }

    fn host(n: u16) -> IpAddr {
        let [a, b] = n.to_be_bytes();
        [10, 0, a, b].into()
    }

    #[test]
    fn a_key_has_its_newest_links() {
        let config = NodeConfig { max_links_per_key: 4, ..NodeConfig::default() };
        let mut all = Admitted::default();
        for n in 1..=4 {
            assert_eq!(all.admit(LinkId(n), key(1), host(1), &config), Admission::Taken);
        }
        assert_eq!(all.admit(LinkId(5), key(1), host(1), &config), Admission::Instead(LinkId(1)));
        all.remove(LinkId(2));
        assert_eq!(all.admit(LinkId(6), key(1), host(1), &config), Admission::Taken);
        assert_eq!(all.admit(LinkId(7), key(1), host(1), &config), Admission::Instead(LinkId(3)));
        for n in 1..=7 {
            all.remove(LinkId(n));
        }
        assert!(all.links.is_empty() && all.of_key.is_empty() && all.of_host.is_empty());
    }

    #[test]
    fn places_are_left_for_keys_that_have_none() {
        let config = NodeConfig { max_links: 128, max_links_per_key: 4, ..NodeConfig::default() };
        let mut all = Admitted::default();
        let mut admit = |link, k: u16| all.admit(LinkId(link), key(k), host(k), &config);
        let taken = (0..200).filter(|n| admit(*n, (*n / 3) as u16) == Admission::Taken).count();
        assert!(taken <= 128, "{taken}");
        // Two places for a neighbour that has none.
        let mut all = Admitted::default();
        let mut admit = |link, k: u16| all.admit(LinkId(link), key(k), host(k), &config);
        (0..126).for_each(|n| assert_eq!(admit(n, (n / 2) as u16), Admission::Taken));
        assert_eq!(admit(126, 0), Admission::Refused);
        assert_eq!((admit(127, 100), admit(128, 101), admit(129, 102)), (Admission::Taken, Admission::Taken, Admission::Refused));
    }

    #[test]
    fn one_host_with_many_keys_does_not_take_all_where_anybody_may_call() {
        let open = NodeConfig::default();
        let closed = NodeConfig { authorised: Some(Vec::new()), ..NodeConfig::default() };
        for (config, expected) in [(open, 128), (closed, 300)] {
            let mut all = Admitted::default();
            let taken = (0..300).filter(|n| all.admit(LinkId(*n), key(*n as u16), host(1), &config) == Admission::Taken).count();
            assert_eq!(taken, expected);
        }
    }
}

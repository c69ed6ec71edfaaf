//! Which networks of the main table stay outside the tunnel although a prefix of the tunnel holds them.
//!
//! A DHCP server or a router of the host's network writes routes into the main table, and chooses how long their prefixes are. Longer prefixes win, so such
//! routes would pull traffic out of a full tunnel: CVE-2024-3661 (option 121 of DHCP), CVE-2023-36672 (an attached network that claims addresses of the
//! internet).

use crate::daemon::config::Lan;
use ipnet::{IpNet, Ipv4Net, Ipv6Net};
use std::collections::{BTreeMap, BTreeSet};
use std::net::{Ipv4Addr, Ipv6Addr};

/// Addresses that no network but one's own gives meaning to: RFC 1918, RFC 3927.
const PRIVATE_V4: [Ipv4Net; 4] = [
    Ipv4Net::new_assert(Ipv4Addr::new(10, 0, 0, 0), 8),
    Ipv4Net::new_assert(Ipv4Addr::new(172, 16, 0, 0), 12),
    Ipv4Net::new_assert(Ipv4Addr::new(192, 168, 0, 0), 16),
    Ipv4Net::new_assert(Ipv4Addr::new(169, 254, 0, 0), 16),
];
/// RFC 4193, RFC 4291 §2.5.6.
const PRIVATE_V6: [Ipv6Net; 2] = [
    Ipv6Net::new_assert(Ipv6Addr::new(0xfc00, 0, 0, 0, 0, 0, 0, 0), 7),
    Ipv6Net::new_assert(Ipv6Addr::new(0xfe80, 0, 0, 0, 0, 0, 0, 0), 10),
];
/// All global unicast addresses (RFC 4291 §2.5.4, as IANA assigns them).
const GLOBAL_V6: Ipv6Net = Ipv6Net::new_assert(Ipv6Addr::new(0x2000, 0, 0, 0, 0, 0, 0, 0), 3);

fn is_private(net: &IpNet) -> bool {
    match net {
        IpNet::V4(v4) => PRIVATE_V4.iter().any(|private| private.contains(v4)),
        IpNet::V6(v6) => PRIVATE_V6.iter().any(|private| private.contains(v6)),
    }
}

/// What holds where the file says nothing: a tunnel for most of the internet, however its prefixes are cut, keeps what others write into the main table out.
pub fn default_for(prefixes: &BTreeSet<IpNet>) -> Lan {
    let all = IpNet::aggregate(&prefixes.iter().copied().collect());
    // In addresses: half of all of IPv4.
    let of_v4: u64 = all.iter().filter(|net| net.addr().is_ipv4()).map(|net| 1u64 << (32 - net.prefix_len())).sum();
    let is_full = of_v4 >= 1 << 31 || all.iter().any(|net| matches!(net, IpNet::V6(v6) if v6.contains(&GLOBAL_V6)));
    if is_full { Lan::Private } else { Lan::Bypass }
}

/// Networks within the tunnel's prefixes that stay outside. `main`: what the main table knows, and whether the kernel itself has set it, as it does for
/// attached networks. A network counts if it is longer than the prefix around it, or as long and attached.
pub fn outside(lan: Lan, prefixes: &BTreeSet<IpNet>, main: &BTreeMap<IpNet, bool>) -> impl Iterator<Item = IpNet> {
    let is_allowed = move |net: &IpNet, is_attached: bool| match lan {
        Lan::Bypass => true,
        Lan::Private => is_attached && is_private(net),
        Lan::Tunnel => false,
    };
    let is_known_better = |net: &IpNet, is_attached: bool| {
        let around = prefixes.iter().filter(|p| p.contains(net)).map(IpNet::prefix_len).max();
        around.is_some_and(|longest| longest < net.prefix_len() || is_attached)
    };
    // The default route is the tunnel's if it is among the prefixes.
    let is_outside =
        move |net: &IpNet, is_attached: bool| net.prefix_len() > 0 && is_allowed(net, is_attached) && is_known_better(net, is_attached);
    main.iter().filter(move |(net, is_attached)| is_outside(net, **is_attached)).map(|(net, _)| *net)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn nets(list: &[&str]) -> BTreeSet<IpNet> {
        list.iter().map(|n| n.parse().unwrap()).collect()
    }

    fn table(list: &[(&str, bool)]) -> BTreeMap<IpNet, bool> {
        list.iter().map(|(n, k)| (n.parse().unwrap(), *k)).collect()
    }

    #[test]
    fn networks_that_the_host_knows_better_are_left_to_it() {
        let main = table(&[
            ("0.0.0.0/0", false),
            ("10.1.0.0/16", true),
            ("10.1.2.0/24", false),
            ("192.168.7.0/24", true),
            ("172.16.0.0/12", false),
        ]);
        let left = |prefixes: &[&str]| outside(Lan::Bypass, &nets(prefixes), &main).collect::<BTreeSet<_>>();
        assert_eq!(left(&["0.0.0.0/0"]), nets(&["10.1.0.0/16", "10.1.2.0/24", "192.168.7.0/24", "172.16.0.0/12"]));
        assert_eq!(left(&["10.0.0.0/8", "10.1.2.0/24"]), nets(&["10.1.0.0/16"]), "of two as long the tunnel's, unless it is attached");
        assert_eq!(left(&["192.168.7.0/24", "172.16.0.0/12"]), nets(&["192.168.7.0/24"]));
        assert_eq!(left(&["10.1.2.128/25"]), nets(&[]), "the tunnel knows it better");
    }

    #[test]
    fn routes_that_a_dhcp_server_or_a_router_pushes_pull_nothing_out_of_a_full_tunnel() {
        let main = table(&[
            // Option 121, and router advertisements: with a gateway.
            ("0.0.0.0/1", false),
            ("128.0.0.0/1", false),
            ("10.5.0.0/16", false),
            ("2000::/3", false),
            // A lease, and a prefix that is on link: attached, of addresses that belong to others.
            ("8.8.8.0/24", true),
            ("2001:4860::/32", true),
            // The host's own network.
            ("192.168.1.0/24", true),
            ("fd00:1::/64", true),
            ("fe80::/64", true),
        ]);
        let full = nets(&["0.0.0.0/0", "::/0"]);
        assert_eq!(default_for(&full), Lan::Private);
        assert_eq!(outside(Lan::Private, &full, &main).collect::<BTreeSet<_>>(), nets(&["192.168.1.0/24", "fd00:1::/64", "fe80::/64"]));
        assert_eq!(outside(Lan::Tunnel, &full, &main).count(), 0);
    }

    #[test]
    fn a_tunnel_is_full_however_its_prefixes_are_cut() {
        for full in
            [&["0.0.0.0/0"][..], &["0.0.0.0/1", "128.0.0.0/1"], &["::/0"], &["2000::/3"], &["0.0.0.0/2", "64.0.0.0/3", "96.0.0.0/3"]]
        {
            assert_eq!(default_for(&nets(full)), Lan::Private, "{full:?}");
        }
        for site in [&["10.0.0.0/8"][..], &["fd50::/16", "192.168.0.0/16"], &[], &["64.0.0.0/2"], &["2001:db8::/32"]] {
            assert_eq!(default_for(&nets(site)), Lan::Bypass, "{site:?}");
        }
    }
}

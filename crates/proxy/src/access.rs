//! Which targets the far end may be asked for. What is checked is the address that is dialled, after its name was resolved.

use crate::target::{Host, Target, port_of};
use ipnet::IpNet;
use std::fmt;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, UdpSocket};
use std::str::FromStr;

/// Some targets: `HOST|NET[:PORT[-PORT]]`, or `all`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Pattern {
    hosts: Hosts,
    ports: Option<(u16, u16)>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
enum Hosts {
    All,
    Net(IpNet),
    /// The name that was asked for, whatever address it has; with a dot in front every name below it, too.
    Name(String),
}

impl Pattern {
    /// Every target.
    pub const ALL: Self = Self { hosts: Hosts::All, ports: None };

    /// Whether it is about `ip`, which the host that was asked for is or has.
    pub(crate) fn matches(&self, asked: &Host, ip: IpAddr, port: u16) -> bool {
        let is_host = match (&self.hosts, asked) {
            (Hosts::All, _) => true,
            (Hosts::Net(net), _) => net.contains(&ip),
            (Hosts::Name(pattern), Host::Name(name)) => {
                let name = name.trim_end_matches('.').to_ascii_lowercase();
                match pattern.strip_prefix('.') {
                    Some(domain) => name == domain || name.ends_with(pattern.as_str()),
                    None => name == *pattern,
                }
            }
            (Hosts::Name(_), Host::Ip(_)) => false,
        };
        is_host && self.ports.is_none_or(|(first, last)| (first..=last).contains(&port))
    }
}

impl FromStr for Pattern {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let (host, ports) = match (text.strip_prefix('['), text.parse::<Ipv6Addr>().is_ok() || text.parse::<IpNet>().is_ok()) {
            (_, true) => (text, None),
            (Some(rest), _) => {
                let (host, after) = rest.split_once(']').ok_or_else(|| format!("{text:?} lacks its ]"))?;
                // [2001:db8::]/32 as well as [2001:db8::/32].
                match after.split_once(':') {
                    Some(("", ports)) => (host, Some(ports)),
                    None if after.is_empty() => (host, None),
                    _ => return Err(format!("{after:?} after ] in {text:?}: only :PORT or :PORT-PORT may follow")),
                }
            }
            (None, _) => match text.split_once(':') {
                Some((host, ports)) => (host, Some(ports)),
                None => (text, None),
            },
        };
        let ports = ports.map(|ports| {
            let (first, last) = ports.split_once('-').unwrap_or((ports, ports));
            let (first, last) = (port_of(first)?, port_of(last)?);
            if first > last {
                return Err(format!("{ports:?}: the first port is above the last"));
            }
            Ok((first, last))
        });
        let hosts = if host == "all" {
            Hosts::All
        } else if host.contains('/') {
            Hosts::Net(host.parse().map_err(|_| format!("{host:?} is no network: write 10.0.0.0/8 or 2001:db8::/32"))?)
        } else {
            let bracketed = if host.contains(':') { format!("[{host}]") } else { host.to_owned() };
            if let Some(below) = host.strip_prefix("*.") {
                return Err(format!("{host:?}: write .{below}, which is {below} and every name below it"));
            }
            match Host::parse(&bracketed)? {
                Host::Ip(ip) => Hosts::Net(ip.into()),
                Host::Name(name) if name.trim_matches('.').is_empty() => return Err(format!("{name:?} is no name")),
                Host::Name(name) => Hosts::Name(name.trim_end_matches('.').to_ascii_lowercase()),
            }
        };
        Ok(Self { hosts, ports: ports.transpose()? })
    }
}

impl fmt::Display for Pattern {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.hosts {
            Hosts::All => f.write_str("all")?,
            Hosts::Net(IpNet::V6(net)) if self.ports.is_some() => write!(f, "[{net}]")?,
            Hosts::Net(net) => write!(f, "{net}")?,
            Hosts::Name(name) => f.write_str(name)?,
        }
        match self.ports {
            Some((first, last)) if first == last => write!(f, ":{first}"),
            Some((first, last)) => write!(f, ":{first}-{last}"),
            None => Ok(()),
        }
    }
}

/// What is said of the targets that match.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Rule {
    /// They may be reached.
    pub allows: bool,
    /// Which.
    pub pattern: Pattern,
}

/// What may be reached. The first rule that matches decides; where none does, public addresses may, and others only with `allow_private`.
#[derive(Clone, Debug, Default)]
pub struct Rules {
    /// In the order in which they are asked.
    pub rules: Vec<Rule>,
    /// Loopback, link-local and private addresses, and those of this host, may be reached.
    pub allow_private: bool,
}

impl fmt::Display for Rule {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {}", if self.allows { "allow" } else { "deny" }, self.pattern)
    }
}

/// Why a target may not be reached.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Denial {
    /// A rule says so.
    Rule,
    /// It is an address of the far end's own network.
    Private(IpAddr),
}

impl Denial {
    /// What to do about it, for the user that asked for `target`.
    pub(crate) fn words(&self, target: &Target) -> String {
        match self {
            Self::Rule => format!("a rule there denies {target}"),
            Self::Private(ip) => {
                format!("{ip} is private to that side; it is reached with --allow-target {target} or --allow-private there")
            }
        }
    }
}

impl Rules {
    /// What decides about an address of the host that was asked for, for a log.
    pub(crate) fn reason(&self, asked: &Host, ip: IpAddr, port: u16) -> String {
        let ip = ip.to_canonical();
        let denies_inner =
            |inner: Ipv4Addr| self.rules.iter().find(|rule| rule.pattern.matches(asked, inner.into(), port)).filter(|rule| !rule.allows);
        let of_rule = embedded(ip).and_then(denies_inner).or_else(|| self.rules.iter().find(|rule| rule.pattern.matches(asked, ip, port)));
        match of_rule {
            Some(rule) => rule.to_string(),
            None if self.allow_private => "allow-private".into(),
            None if self.check(asked, ip, port).is_ok() => "public address".into(),
            None => "private address".into(),
        }
    }

    /// The rule that decides about a name whatever its address is, if there is one.
    pub(crate) fn by_name(&self, target: &Target) -> Option<String> {
        let is_about = |rule: &&Rule| match &rule.pattern.hosts {
            Hosts::Net(_) => false,
            _ => rule.pattern.matches(&target.host, Ipv4Addr::UNSPECIFIED.into(), target.port),
        };
        self.rules.iter().find(is_about).map(Rule::to_string)
    }

    /// Whether an address of the host that was asked for may be dialled.
    pub(crate) fn check(&self, asked: &Host, ip: IpAddr, port: u16) -> Result<(), Denial> {
        let ip = ip.to_canonical();
        // What a rule denies is denied behind a translator, too; what it allows there is no allowance for the address of IPv6.
        if let Some(inner) = embedded(ip)
            && let Some(Rule { allows: false, .. }) = self.rules.iter().find(|rule| rule.pattern.matches(asked, inner.into(), port))
        {
            return Err(Denial::Rule);
        }
        match self.rules.iter().find(|rule| rule.pattern.matches(asked, ip, port)) {
            Some(rule) if rule.allows => Ok(()),
            Some(_) => Err(Denial::Rule),
            None if self.allow_private || !(is_special(ip) || is_own(ip)) => Ok(()),
            None => Err(Denial::Private(ip)),
        }
    }
}

/// Whether an address is one that is not reached over the public Internet (IANA's registries of special-purpose addresses, RFC 6890 and later).
pub fn is_special(ip: IpAddr) -> bool {
    match ip.to_canonical() {
        IpAddr::V4(ip) => is_special_v4(ip),
        IpAddr::V6(ip) => is_special_v6(ip),
    }
}

fn is_special_v4(ip: Ipv4Addr) -> bool {
    let [a, b, c, _] = ip.octets();
    ip.is_private()
        || ip.is_loopback()
        || ip.is_link_local()
        || a == 0
        // RFC 6598: carriers' NAT.
        || a == 100 && (64..128).contains(&b)
        || (a, b, c) == (192, 0, 0)
        // RFC 2544: benchmarks.
        || a == 198 && (b == 18 || b == 19)
        // Multicast, reserved, broadcast.
        || a >= 224
}

fn is_special_v6(ip: Ipv6Addr) -> bool {
    let [a, b, c, d, ..] = ip.segments();
    ip.is_loopback()
        || ip.is_unspecified()
        || ip.is_multicast()
        || ip.is_unique_local()
        || ip.is_unicast_link_local()
        // RFC 3879: site-local.
        || a & 0xffc0 == 0xfec0
        || embedded(ip.into()).is_some_and(is_special_v4)
        // RFC 8215: IPv4 behind a translator of the own network.
        || [a, b, c] == [0x64, 0xff9b, 1]
        // RFC 6666: discard.
        || [a, b, c, d] == [0x100, 0, 0, 0]
}

/// Whether this host has the address: what is sent there never leaves it, and passes no firewall.
pub(crate) fn is_own(ip: IpAddr) -> bool {
    let any: IpAddr = if ip.is_ipv4() { Ipv4Addr::UNSPECIFIED.into() } else { Ipv6Addr::UNSPECIFIED.into() };
    // What cannot be found out is denied. Nothing is sent.
    let Ok(socket) = UdpSocket::bind((any, 0)) else { return true };
    // To an own address the system sends from that address.
    match socket.connect((ip, 9)) {
        Ok(()) => socket.local_addr().is_ok_and(|local| local.ip() == ip),
        // No route: it cannot be dialled either.
        Err(_) => false,
    }
}

/// The IPv4 address that an address of IPv6 leads to behind a translator or a tunnel.
fn embedded(ip: IpAddr) -> Option<Ipv4Addr> {
    let IpAddr::V6(ip) = ip else { return None };
    let [a, b, c, d, e, f, g, h] = ip.segments();
    let (high, low) = match [a, b, c, d, e, f] {
        // RFC 4291 §2.5.5.1, RFC 6052, RFC 2765.
        [0, 0, 0, 0, 0, 0] | [0x64, 0xff9b, 0, 0, 0, 0] | [0, 0, 0, 0, 0xffff, 0] => (g, h),
        // RFC 3056.
        [0x2002, high, low, ..] => (high, low),
        _ => return None,
    };
    let ([a, b], [c, d]) = (high.to_be_bytes(), low.to_be_bytes());
    Some(Ipv4Addr::new(a, b, c, d))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(rules: &Rules, target: &str, ip: &str) -> Result<(), Denial> {
        let target: Target = target.parse().unwrap();
        rules.check(&target.host, ip.parse().unwrap(), target.port)
    }

    fn rules(words: &[(bool, &str)]) -> Rules {
        Rules {
            rules: words.iter().map(|(allows, p)| Rule { allows: *allows, pattern: p.parse().unwrap() }).collect(),
            allow_private: false,
        }
    }

    #[test]
    fn a_rule_about_ipv4_holds_behind_translators_and_tunnels() {
        let rules = rules(&[(false, "198.51.100.0/24")]);
        for ip in ["198.51.100.9", "::ffff:198.51.100.9", "64:ff9b::c633:6409", "2002:c633:6409::1", "::ffff:0:198.51.100.9"] {
            assert_eq!(check(&rules, "host.example:80", ip), Err(Denial::Rule), "{ip}");
        }
        assert_eq!(check(&rules, "host.example:80", "64:ff9b::808:808"), Ok(()));
    }

    #[test]
    fn private_addresses_are_denied_in_every_dress() {
        for ip in [
            "127.0.0.1",
            "127.9.9.9",
            "0.0.0.0",
            "0.1.2.3",
            "10.0.0.1",
            "172.16.0.1",
            "172.31.255.255",
            "192.168.1.1",
            "169.254.169.254",
            "100.64.0.1",
            "198.18.0.1",
            "224.0.0.1",
            "255.255.255.255",
            "192.0.0.8",
            "::1",
            "::",
            "::ffff:127.0.0.1",
            "::ffff:10.1.2.3",
            "fe80::1",
            "fd00::1",
            "fec0::1",
            "ff02::1",
            "64:ff9b::7f00:1",
            "::ffff:0:10.0.0.1",
            "64:ff9b:1::1",
            "2002:7f00:1::",
            "::10.0.0.1",
            "100::1",
        ] {
            assert!(is_special(ip.parse().unwrap()), "{ip}");
            assert!(matches!(check(&Rules::default(), "public.example:80", ip), Err(Denial::Private(_))), "{ip}");
            assert_eq!(check(&Rules { allow_private: true, ..Rules::default() }, "public.example:80", ip), Ok(()), "{ip}");
        }
        for ip in ["192.0.2.1", "8.8.8.8", "172.32.0.1", "100.128.0.1", "2001:db8::1", "64:ff9b::808:808", "2002:808:808::1"] {
            assert!(!is_special(ip.parse().unwrap()), "{ip}");
            assert_eq!(check(&Rules::default(), "public.example:80", ip), Ok(()), "{ip}");
        }
    }

    #[test]
    fn the_first_rule_that_matches_decides() {
        let rules = rules(&[(false, "10.0.0.5"), (true, "10.0.0.0/8:5432"), (true, ".example.org:80-90"), (false, "all")]);
        assert_eq!(check(&rules, "10.0.0.5:5432", "10.0.0.5"), Err(Denial::Rule));
        assert_eq!(check(&rules, "10.0.0.6:5432", "10.0.0.6"), Ok(()));
        assert_eq!(check(&rules, "10.0.0.6:22", "10.0.0.6"), Err(Denial::Rule));
        assert_eq!(check(&rules, "db:5432", "10.0.0.6"), Ok(()), "the address counts");
        assert_eq!(check(&rules, "WWW.example.org.:85", "127.0.0.1"), Ok(()), "a name counts whatever its address is");
        assert_eq!(check(&rules, "example.org:80", "127.0.0.1"), Ok(()));
        assert_eq!(check(&rules, "evilexample.org:80", "192.0.2.1"), Err(Denial::Rule));
        assert_eq!(check(&rules, "example.org:443", "192.0.2.1"), Err(Denial::Rule));
    }

    /// An address of a denied network is denied in IPv6 dress, too.
    #[test]
    fn mapped_addresses_do_not_pass_rules() {
        let rules = rules(&[(false, "192.0.2.0/24")]);
        assert_eq!(check(&rules, "x:1", "::ffff:192.0.2.7"), Err(Denial::Rule));
    }

    #[test]
    fn patterns_are_read_as_they_are_written() {
        for (text, shown) in [
            ("all", "all"),
            ("all:25", "all:25"),
            ("10.0.0.0/8", "10.0.0.0/8"),
            ("10.0.0.0/8:22-23", "10.0.0.0/8:22-23"),
            ("192.0.2.1", "192.0.2.1/32"),
            ("2001:db8::1", "2001:db8::1/128"),
            ("2001:db8::/32", "2001:db8::/32"),
            ("[2001:db8::/32]:80", "[2001:db8::/32]:80"),
            ("[2001:db8::1]:80", "[2001:db8::1/128]:80"),
            ("DB.internal:5432", "db.internal:5432"),
        ] {
            assert_eq!(text.parse::<Pattern>().map(|p| p.to_string()), Ok(shown.to_owned()), "{text}");
        }
        for (text, words) in [
            ("10.0.0.0/40", "no network"),
            ("h:9-8", "above the last"),
            ("h:x", "no port"),
            ("", "missing"),
            ("[::1", "lacks its ]"),
            ("a b", "has a ' '"),
        ] {
            let error = text.parse::<Pattern>().unwrap_err();
            assert!(error.contains(words), "{text}: {error}");
        }
    }

    #[test]
    fn own_addresses_are_known() {
        assert!(is_own("127.0.0.1".parse().unwrap()));
        assert!(!is_own("192.0.2.77".parse().unwrap()));
    }
}

//! What is to be intercepted: the same words for `proxy` and `proxy rules`, and in a file.
#![allow(rustdoc::broken_intra_doc_links, reason = "the texts of --help have brackets of their own")]

use super::heading::INTERCEPTION;
use clap::{Args, ValueEnum};
use ipnet::IpNet;
use std::fmt;
use std::net::IpAddr;
use std::str::FromStr;

/// Options of interception.
#[derive(Clone, Debug, Args)]
pub struct InterceptArgs {
    /// Take in connections of programs that know nothing of a proxy: own are those of this host, clients those that this host forwards for others, of one
    /// DEVICE only if it is named. May be given several times. Needs the rights of root (CAP_NET_ADMIN) and the program nft.
    #[arg(long, value_name = "own|clients[:DEVICE]", help_heading = INTERCEPTION)]
    pub intercept: Vec<Scope>,
    /// How TCP comes here.
    #[arg(long, value_name = "HOW", default_value = "tproxy", requires = "intercept", help_heading = INTERCEPTION)]
    pub intercept_tcp: TcpBy,
    /// How UDP comes here.
    #[arg(long, value_name = "HOW", default_value = "no", requires = "intercept", help_heading = INTERCEPTION)]
    pub intercept_udp: UdpBy,
    /// Port of this host that it is diverted to.
    #[arg(long, value_name = "PORT", default_value_t = 4243, requires = "intercept", value_parser = clap::value_parser!(u16).range(1..), help_heading = INTERCEPTION)]
    pub intercept_port: u16,
    /// Leave these alone: an address or a network of targets, private (10.0.0.0/8 and the like), port:PORT[-PORT] of targets, user:NAME or cgroup:PATH of
    /// programs of this host. May be given several times. The server, this host, loopback, link-local and multicast are always left alone.
    #[arg(long = "exclude", value_name = "WHAT", requires = "intercept", help_heading = INTERCEPTION)]
    pub excluded: Vec<Exclusion>,
    /// While the server is not reachable, and if this process is killed: closed, nothing of what is intercepted passes; open, it passes beside the proxy.
    #[arg(long, value_name = "closed|open", default_value = "closed", requires = "intercept", help_heading = INTERCEPTION)]
    pub fail: Fail,
}

/// Whose connections.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Scope {
    /// Those of this host's programs.
    Own,
    /// Those that this host forwards; of this device.
    Clients(Option<String>),
}

impl FromStr for Scope {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        match text.split_once(':') {
            None if text == "own" => Ok(Self::Own),
            None if text == "clients" => Ok(Self::Clients(None)),
            Some(("clients", device)) if is_device(device) => Ok(Self::Clients(Some(device.to_owned()))),
            Some(("clients", device)) => Err(format!("{device:?} is no name of a device: see ip link")),
            _ => Err(format!("{text:?}: write own, clients or clients:DEVICE")),
        }
    }
}

/// What the kernel takes for a name of a device (`dev_valid_name`), without what would have to be quoted.
fn is_device(name: &str) -> bool {
    (1..16).contains(&name.len()) && name.bytes().all(|b| b.is_ascii_alphanumeric() || b"-_.@".contains(&b)) && ![".", ".."].contains(&name)
}

/// How TCP is diverted.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum TcpBy {
    /// Packets keep their addresses.
    Tproxy,
    /// By address translation, for kernels without TPROXY.
    Redirect,
    /// Not at all.
    No,
}

/// How UDP is diverted.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum UdpBy {
    /// Packets keep their addresses.
    Tproxy,
    /// Not at all.
    No,
}

/// What happens where the proxy cannot carry.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Fail {
    /// Nothing passes.
    Closed,
    /// It passes beside the proxy.
    Open,
}

/// What is left alone.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Exclusion {
    /// Targets.
    Net(IpNet),
    /// The networks that are private everywhere.
    Private,
    /// Ports of targets, the first and the last.
    Ports(u16, u16),
    /// Programs of a user: its number.
    User(u32),
    /// Programs of a control group: its path below the root of cgroup v2.
    Cgroup(String),
}

impl FromStr for Exclusion {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        match text.split_once(':') {
            _ if text == "private" => Ok(Self::Private),
            Some(("port", ports)) => {
                let (first, last) = ports.split_once('-').unwrap_or((ports, ports));
                let port = |text: &str| {
                    let number = text.parse::<u16>().ok().filter(|port| *port > 0 && text.bytes().all(|b| b.is_ascii_digit()));
                    number.ok_or_else(|| format!("{text:?} is no port: ports are numbers from 1 to 65535"))
                };
                let (first, last) = (port(first)?, port(last)?);
                if first > last {
                    return Err(format!("{ports:?}: the first port is above the last"));
                }
                Ok(Self::Ports(first, last))
            }
            Some(("user", name)) => match name.parse() {
                Ok(number) => Ok(Self::User(number)),
                Err(_) => uid_of(name).map(Self::User),
            },
            Some(("cgroup", path)) => {
                let path = path.trim_matches('/');
                let is_path = |b: u8| b.is_ascii_alphanumeric() || b"-_./@:".contains(&b);
                let is_below = path.split('/').all(|part| !["", ".", ".."].contains(&part));
                match is_below && path.bytes().all(is_path) {
                    true => Ok(Self::Cgroup(path.to_owned())),
                    false => Err(format!(
                        "{path:?} is no path of a control group: write it as /proc/PID/cgroup shows it, cgroup:system.slice/a.service"
                    )),
                }
            }
            _ => match (text.parse::<IpNet>(), text.parse::<IpAddr>()) {
                (Ok(net), _) => Ok(Self::Net(net.trunc())),
                (_, Ok(ip)) => Ok(Self::Net(ip.into())),
                _ => Err(format!("{text:?}: write an address, a network, private, port:PORT[-PORT], user:NAME or cgroup:PATH")),
            },
        }
    }
}

/// The number of a user of this host.
fn uid_of(name: &str) -> Result<u32, String> {
    let file = std::fs::read_to_string("/etc/passwd").map_err(|e| format!("/etc/passwd: {e}; write the user's number"))?;
    // passwd(5): name:password:number:...
    let number = file.lines().find_map(|line| {
        let mut fields = line.split(':');
        (fields.next() == Some(name)).then(|| fields.nth(1).and_then(|number| number.parse().ok())).flatten()
    });
    number.ok_or_else(|| format!("this host has no user {name:?} in /etc/passwd; write the user's number"))
}

impl fmt::Display for Exclusion {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Net(net) if net.prefix_len() == net.max_prefix_len() => write!(f, "{}", net.addr()),
            Self::Net(net) => write!(f, "{net}"),
            Self::Private => f.write_str("private"),
            Self::Ports(first, last) if first == last => write!(f, "port:{first}"),
            Self::Ports(first, last) => write!(f, "port:{first}-{last}"),
            Self::User(number) => write!(f, "user:{number}"),
            Self::Cgroup(path) => write!(f, "cgroup:{path}"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_left_alone_is_read_and_what_is_not_understood_is_told() {
        for (text, shown) in [
            ("192.0.2.7", "192.0.2.7"),
            ("10.1.2.3/8", "10.0.0.0/8"),
            ("2001:db8::1", "2001:db8::1"),
            ("2001:db8::/32", "2001:db8::/32"),
            ("private", "private"),
            ("port:22", "port:22"),
            ("port:6000-6010", "port:6000-6010"),
            ("user:root", "user:0"),
            ("user:1000", "user:1000"),
            ("cgroup:/system.slice/a.service/", "cgroup:system.slice/a.service"),
        ] {
            assert_eq!(text.parse::<Exclusion>().unwrap().to_string(), shown, "{text}");
        }
        for (text, words) in [
            ("example.org", "write an address"),
            ("port:0", "no port"),
            ("port:9-8", "above the last"),
            ("port:x", "no port"),
            ("user:nobody-of-that-name", "no user"),
            ("cgroup:/", "no path"),
            ("cgroup:../..", "no path"),
            ("cgroup:a\"b", "no path"),
            ("10.0.0.0/33", "write an address"),
        ] {
            let error = text.parse::<Exclusion>().unwrap_err();
            assert!(error.contains(words), "{text}: {error}");
        }
    }

    #[test]
    fn devices_are_named_as_the_kernel_names_them() {
        assert_eq!("clients:br-lan".parse(), Ok(Scope::Clients(Some("br-lan".into()))));
        assert_eq!("clients".parse(), Ok(Scope::Clients(None)));
        for text in ["clients:", "clients:a\"b", "clients:0123456789abcdef", "mine", "own:eth0"] {
            assert!(text.parse::<Scope>().is_err(), "{text}");
        }
    }
}

//! What is to be forwarded, in ssh's words: `-L [BIND:]PORT:HOST:PORT`, `-R` with the same, `-D [BIND:]PORT`; `udp:` in front of the first two.

use crate::target::{Host, Target, port_of};
use crate::wire::Transport;
use std::fmt;
use std::net::{IpAddr, Ipv6Addr};
use std::str::FromStr;

/// A place to listen.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Bind {
    /// Of which addresses.
    pub on: On,
    /// 0: any that is free.
    pub port: u16,
}

/// The addresses of a place to listen.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum On {
    /// Those of the loopback device: the default, as with ssh.
    Loopback,
    /// Every address of the host: `*`, or nothing before the colon.
    Everywhere,
    /// This one.
    Ip(IpAddr),
}

impl Bind {
    fn new(on: Option<&str>, port: &str) -> Result<Self, String> {
        let on = match on {
            None | Some("localhost") => On::Loopback,
            Some("" | "*") => On::Everywhere,
            Some(text) => match Host::parse(text)? {
                Host::Ip(ip) if ip.is_unspecified() => On::Everywhere,
                Host::Ip(ip) => On::Ip(ip),
                Host::Name(name) => {
                    return Err(format!("{name:?} is no address to listen on: write an address of that host, localhost or *"));
                }
            },
        };
        Ok(Self { on, port: port_of(port)? })
    }

    /// As it stands in a record.
    pub(crate) fn target(&self) -> Target {
        let host = match &self.on {
            On::Loopback => Host::Name("localhost".into()),
            On::Everywhere => Host::Ip(Ipv6Addr::UNSPECIFIED.into()),
            On::Ip(ip) => Host::Ip(*ip),
        };
        Target::new(host, self.port)
    }

    /// From a record.
    pub(crate) fn of(target: &Target) -> Option<Self> {
        let on = match &target.host {
            Host::Name(name) if name == "localhost" => On::Loopback,
            Host::Name(_) => return None,
            Host::Ip(ip) if ip.is_unspecified() => On::Everywhere,
            Host::Ip(ip) => On::Ip(*ip),
        };
        Some(Self { on, port: target.port })
    }
}

impl fmt::Display for Bind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.on {
            On::Loopback => write!(f, "localhost:{}", self.port),
            On::Everywhere => write!(f, "*:{}", self.port),
            On::Ip(IpAddr::V6(ip)) => write!(f, "[{ip}]:{}", self.port),
            On::Ip(IpAddr::V4(ip)) => write!(f, "{ip}:{}", self.port),
        }
    }
}

/// `[BIND:]PORT`.
impl FromStr for Bind {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        match &parts(text)?[..] {
            [port] => Self::new(None, port),
            [on, port] => Self::new(Some(on), port),
            _ => Err(format!("{text:?}: write PORT or BIND:PORT, an IPv6 address in brackets")),
        }
    }
}

/// One port that leads to one target.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Forward {
    /// Connections or datagrams.
    pub transport: Transport,
    /// Where to listen.
    pub bind: Bind,
    /// Where it leads.
    pub target: Target,
}

impl FromStr for Forward {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let (transport, rest) = match text.strip_prefix("udp:") {
            Some(rest) => (Transport::Udp, rest),
            None => (Transport::Tcp, text.strip_prefix("tcp:").unwrap_or(text)),
        };
        let (bind, host, port) = match &parts(rest)?[..] {
            [at, host, port] => (Bind::new(None, at)?, *host, *port),
            [on, at, host, port] => (Bind::new(Some(on), at)?, *host, *port),
            _ => return Err(format!("{text:?}: write [BIND:]PORT:HOST:PORT, an IPv6 address in brackets, udp: in front for UDP")),
        };
        let target = format!("{host}:{port}").parse()?;
        Ok(Self { transport, bind, target })
    }
}

impl fmt::Display for Forward {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let transport = if self.transport == Transport::Udp { "udp:" } else { "" };
        write!(f, "{transport}{}:{}", self.bind, self.target)
    }
}

/// What stands between colons outside of brackets.
fn parts(text: &str) -> Result<Vec<&str>, String> {
    let (mut parts, mut depth, mut start) = (Vec::new(), 0u8, 0);
    for (at, c) in text.char_indices() {
        match c {
            '[' if depth == 0 => depth = 1,
            ']' if depth == 1 => depth = 0,
            '[' | ']' => return Err(format!("{text:?}: brackets stand around an IPv6 address")),
            ':' if depth == 0 => {
                parts.push(&text[start..at]);
                start = at + 1;
            }
            _ => {}
        }
    }
    if depth != 0 {
        return Err(format!("{text:?} lacks its ]"));
    }
    parts.push(&text[start..]);
    Ok(parts)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn forms_of_ssh_mean_what_they_mean_there() {
        for (text, shown) in [
            ("5432:db.internal:5432", "localhost:5432:db.internal:5432"),
            ("127.0.0.1:80:[2001:db8::1]:8080", "127.0.0.1:80:[2001:db8::1]:8080"),
            ("[::1]:80:h:81", "[::1]:80:h:81"),
            ("*:80:h:81", "*:80:h:81"),
            (":80:h:81", "*:80:h:81"),
            ("0.0.0.0:80:h:81", "*:80:h:81"),
            ("localhost:0:h:81", "localhost:0:h:81"),
            ("udp:53:192.0.2.1:53", "udp:localhost:53:192.0.2.1:53"),
            ("tcp:53:192.0.2.1:53", "localhost:53:192.0.2.1:53"),
        ] {
            let forward: Forward = text.parse().unwrap();
            assert_eq!(forward.to_string(), shown, "{text}");
            assert_eq!(Bind::of(&forward.bind.target()), Some(forward.bind));
        }
        assert_eq!("1080".parse::<Bind>().unwrap().to_string(), "localhost:1080");
        assert_eq!("*:1080".parse::<Bind>().unwrap().to_string(), "*:1080");
    }

    #[test]
    fn what_is_no_forward_is_told() {
        for (text, words) in [
            ("80", "write [BIND:]PORT"),
            ("80:h", "write [BIND:]PORT"),
            ("a:b:80:h:81", "write [BIND:]PORT"),
            ("80:h:0", "port 0"),
            ("x:h:80", "no port"),
            ("2001:db8::1:80:h:81", "write [BIND:]PORT"),
            ("[::1:80:h:81", "lacks its ]"),
            ("[::1]]:80:h:81", "brackets"),
            ("somewhere:80:h:81", "no address to listen on"),
            ("udp:80", "write [BIND:]PORT"),
        ] {
            let error = text.parse::<Forward>().unwrap_err();
            assert!(error.contains(words), "{text}: {error}");
        }
        assert!("1:2:3".parse::<Bind>().is_err() && "".parse::<Bind>().is_err());
    }
}

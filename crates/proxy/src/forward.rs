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

/// One port that leads to one target, or a range of ports of which each leads to one of a range: `8000-8010:HOST:9000-9010`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Forwards(pub Vec<Forward>);

/// Ports of one range, at most.
const MOST_PORTS: u16 = 1024;

impl FromStr for Forwards {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let (transport, rest) = match text.split_once(':') {
            Some((name @ ("udp" | "tcp"), rest)) => (&text[..name.len() + 1], rest),
            _ => ("", text),
        };
        let parts = parts(rest)?;
        let ([.., ports, host, to], true) = (&parts[..], (3..=4).contains(&parts.len())) else { return Ok(Self(vec![text.parse()?])) };
        if !ports.contains('-') && !to.contains('-') {
            return Ok(Self(vec![text.parse()?]));
        }
        let (from, to) = (range_of(ports)?, range_of(to)?);
        if from.1 - from.0 != to.1 - to.0 {
            let count = |(first, last): (u16, u16)| u32::from(last - first) + 1;
            return Err(format!("{text:?} leads {} ports to {}: both ranges have to be as long", count(from), count(to)));
        }
        if from.1 - from.0 >= MOST_PORTS {
            return Err(format!("{text:?} has more than {MOST_PORTS} ports"));
        }
        if from.0 == 0 {
            return Err(format!("{text:?}: a range of ports does not begin at 0"));
        }
        let bind = if parts.len() == 4 { format!("{}:", parts[0]) } else { String::new() };
        (0..=from.1 - from.0)
            .map(|n| format!("{transport}{bind}{}:{host}:{}", from.0 + n, to.0 + n).parse())
            .collect::<Result<_, _>>()
            .map(Self)
    }
}

/// The first and the last port.
fn range_of(text: &str) -> Result<(u16, u16), String> {
    let (first, last) = text.split_once('-').unwrap_or((text, text));
    let (first, last) = (port_of(first)?, port_of(last)?);
    if first > last { Err(format!("{text:?}: the first port is above the last")) } else { Ok((first, last)) }
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
    fn a_range_leads_each_port_to_its_own() {
        let shown = |text: &str| text.parse::<Forwards>().map(|all| all.0.iter().map(ToString::to_string).collect::<Vec<_>>());
        assert_eq!(shown("8000-8002:h:9000-9002").unwrap(), ["localhost:8000:h:9000", "localhost:8001:h:9001", "localhost:8002:h:9002"]);
        assert_eq!(shown("udp:[::1]:5-6:[2001:db8::1]:7-8").unwrap(), ["udp:[::1]:5:[2001:db8::1]:7", "udp:[::1]:6:[2001:db8::1]:8"]);
        assert_eq!(shown("*:80:h-o-st:81").unwrap(), ["*:80:h-o-st:81"], "one port, as ever");
        for (text, words) in [
            ("8000-8010:h:9000", "11 ports to 1"),
            ("8000:h:9000-9001", "1 ports to 2"),
            ("9-8:h:9-8", "above the last"),
            ("0-1:h:8-9", "begin at 0"),
            ("1-2000:h:1-2000", "more than 1024"),
            ("1-x:h:1-2", "no port"),
            ("80", "write [BIND:]PORT"),
        ] {
            let error = shown(text).unwrap_err();
            assert!(error.contains(words), "{text}: {error}");
        }
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

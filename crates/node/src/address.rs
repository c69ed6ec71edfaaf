//! Addresses and ports as they are written, by one rule everywhere: `HOST[:PORT]` names another host, `ADDR[:PORT]`, `:PORT` or `PORT` a place of this
//! one to listen.

use std::fmt;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, SocketAddrV6};
use std::str::FromStr;

/// UDP port unless another is named.
pub const DEFAULT_PORT: u16 = 4242;

/// Another host: a name or an address, and a port if one is written.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HostPort {
    /// Without brackets.
    host: String,
    port: Option<u16>,
}

impl HostPort {
    /// The name or address, without brackets.
    pub fn host(&self) -> &str {
        &self.host
    }

    /// The same host with this port, or with none.
    pub fn with(&self, port: Option<u16>) -> Self {
        Self { host: self.host.clone(), port }
    }

    /// The port, if one was written.
    pub fn port(&self) -> Option<u16> {
        self.port
    }

    /// HOST:PORT as it can be looked up, with the port of `-p` or the default where none is written.
    ///
    /// # Errors
    /// Two ports are named.
    pub fn named(&self, beside: Option<u16>) -> Result<String, String> {
        let port = match (self.port, beside) {
            (Some(written), Some(beside)) if written != beside => {
                return Err(format!("{self} names port {written}, and -p names {beside}: leave one of them out"));
            }
            (_, Some(0)) => return Err("-p 0 names no port that could be reached: ports are numbers from 1 to 65535".into()),
            (written, beside) => written.or(beside).unwrap_or(DEFAULT_PORT),
        };
        Ok(Self { host: self.host.clone(), port: Some(port) }.to_string())
    }
}

/// `HOST[:PORT]` with its port; see [`HostPort::named`].
pub fn host_port(text: &str, beside: Option<u16>) -> Result<String, String> {
    text.parse::<HostPort>()?.named(beside)
}

impl fmt::Display for HostPort {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match (self.host.contains(':'), self.port) {
            (true, Some(port)) => write!(f, "[{}]:{port}", self.host),
            (false, Some(port)) => write!(f, "{}:{port}", self.host),
            (_, None) => f.write_str(&self.host),
        }
    }
}

/// An IPv6 address, with the interface of a link-local one after `%`.
fn is_ipv6(text: &str) -> bool {
    let (address, zone) = text.split_once('%').map_or((text, None), |(address, zone)| (address, Some(zone)));
    address.parse::<Ipv6Addr>().is_ok() && zone.is_none_or(is_zone)
}

fn is_zone(zone: &str) -> bool {
    !zone.is_empty() && zone.chars().all(|c| c.is_ascii_alphanumeric() || "-_.@".contains(c))
}

/// The port after a colon. `0` is one only where any free port will do.
fn port_of(text: &str, whole: &str, lowest: u16) -> Result<u16, String> {
    if text.is_empty() {
        return Err(format!("{whole:?} ends in a colon: the port is missing, or leave the colon out"));
    }
    match text.parse() {
        Ok(port) if port >= lowest && text.bytes().all(|b| b.is_ascii_digit()) => Ok(port),
        _ => Err(format!("{text:?} in {whole:?} is no port: ports are numbers from {lowest} to 65535")),
    }
}

/// An address and what is written after it: `[IPV6]`, `[IPV6]:PORT`, `IPV6`, `X`, `X:PORT`.
fn split(text: &str, lowest: u16) -> Result<(&str, Option<u16>), String> {
    if let Some(rest) = text.strip_prefix('[') {
        let Some((address, after)) = rest.split_once(']') else {
            return Err(format!("{text:?} lacks its ]: an IPv6 address with a port is written [2001:db8::1]:4242"));
        };
        if !is_ipv6(address) {
            return Err(format!("{address:?} between [ and ] is no IPv6 address: only those are written in brackets"));
        }
        return match after.strip_prefix(':') {
            Some(port) => Ok((address, Some(port_of(port, text, lowest)?))),
            None if after.is_empty() => Ok((address, None)),
            None => Err(format!("{after:?} after ] in {text:?}: only :PORT may follow")),
        };
    }
    if is_ipv6(text) {
        return Ok((text, None));
    }
    match text.split_once(':') {
        None => Ok((text, None)),
        Some((_, rest)) if rest.contains(':') => Err(match text.contains("://") {
            true => format!("{text:?} is a URL: write HOST or HOST:PORT alone"),
            false => format!("{text:?} is no IPv6 address; with a port one is written [2001:db8::1]:4242"),
        }),
        Some((_, rest)) if rest.starts_with("//") => Err(format!("{text:?} is a URL: write HOST or HOST:PORT alone")),
        Some((host, port)) => Ok((host, Some(port_of(port, text, lowest)?))),
    }
}

impl FromStr for HostPort {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        if text.is_empty() {
            return Err("a host is missing: write HOST, HOST:PORT or [IPV6]:PORT".into());
        }
        let (host, port) = split(text, 1)?;
        if host.is_empty() {
            return Err(format!("{text:?} lacks the host before the colon: write HOST:PORT"));
        }
        // The resolver takes 4242 for the address 0.0.16.146.
        if host.bytes().all(|b| b.is_ascii_digit()) {
            return Err(format!("{host:?} is a number and no host: a port is written HOST:{host} or -p {host}"));
        }
        if let Some((user, host)) = host.split_once('@') {
            return Err(format!("{text:?}: there are no user names here, keys say who is who: write {host} without {user}@"));
        }
        let is_fit = |c: char| c.is_alphanumeric() || "-_.".contains(c);
        if let Some(wrong) = host.chars().find(|c| !is_fit(*c)).filter(|_| !is_ipv6(host)) {
            return Err(format!("{host:?} has a {wrong:?} in it, which no host name and no address has"));
        }
        Ok(Self { host: host.to_owned(), port })
    }
}

/// A place of this host to listen.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Listen {
    /// `None`: every address.
    ip: Option<IpAddr>,
    /// Of a link-local address.
    zone: Option<String>,
    /// `0`: any that is free.
    port: Option<u16>,
}

impl Listen {
    /// Where to listen, with the port of `-p` or the default where none is written: the first of these that this host can. Two only where any address
    /// will do and the host may have no IPv6.
    ///
    /// # Errors
    /// Two ports are named, or the interface is none of this host.
    pub fn places(&self, beside: Option<u16>) -> Result<Vec<SocketAddr>, String> {
        let port = match (self.port, beside) {
            (Some(written), Some(beside)) if written != beside => {
                return Err(format!("--bind names port {written}, and -p names {beside}: leave one of them out"));
            }
            (written, beside) => written.or(beside).unwrap_or(DEFAULT_PORT),
        };
        Ok(match (self.ip, &self.zone) {
            (Some(IpAddr::V6(ip)), Some(zone)) => vec![SocketAddrV6::new(ip, port, 0, index(zone)?).into()],
            (Some(ip), _) => vec![SocketAddr::new(ip, port)],
            (None, _) => vec![SocketAddr::from((Ipv6Addr::UNSPECIFIED, port)), SocketAddr::from((Ipv4Addr::UNSPECIFIED, port))],
        })
    }

    /// The same where no command line names a port.
    ///
    /// # Errors
    /// The interface is none of this host.
    pub fn places_or(&self, port: u16) -> Result<Vec<SocketAddr>, String> {
        Self { port: Some(self.port.unwrap_or(port)), ..self.clone() }.places(None)
    }

    /// The address, if one is named.
    pub fn ip(&self) -> Option<IpAddr> {
        self.ip
    }
}

/// The kernel's number of an interface.
fn index(zone: &str) -> Result<u32, String> {
    noctule::interface_index(zone).ok_or_else(|| format!("{zone:?} is no interface of this host: ip link lists them"))
}

impl FromStr for Listen {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        if text.is_empty() {
            return Err("an address or a port is missing: write ADDR, ADDR:PORT, [IPV6]:PORT, :PORT or PORT".into());
        }
        if text.bytes().all(|b| b.is_ascii_digit()) {
            return Ok(Self { port: Some(port_of(text, text, 0)?), ..Self::default() });
        }
        let (address, port) = split(text, 0)?;
        if address.is_empty() {
            return Ok(Self { port, ..Self::default() });
        }
        let (address, zone) = match address.split_once('%') {
            Some((address, zone)) => (address, Some(zone.to_owned())),
            None => (address, None),
        };
        match address.parse() {
            Ok(ip) => Ok(Self { ip: Some(ip), zone, port }),
            Err(_) => Err(format!(
                "{address:?} is no address: this host listens on one of its own (192.0.2.1, 2001:db8::1) or on all, by port alone"
            )),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_form_of_a_host_gets_its_port() {
        for (given, expected) in [
            ("example.org", "example.org:7"),
            ("192.0.2.1", "192.0.2.1:7"),
            ("::1", "[::1]:7"),
            ("[::1]", "[::1]:7"),
            ("fe80::1%eth0", "[fe80::1%eth0]:7"),
            ("münchen.example", "münchen.example:7"),
        ] {
            assert_eq!(host_port(given, Some(7)).as_deref(), Ok(expected));
        }
        for (given, expected) in [
            ("example.org", "example.org:4242"),
            ("example.org:99", "example.org:99"),
            ("[2001:db8::1]:99", "[2001:db8::1]:99"),
            ("[fe80::1%2]:99", "[fe80::1%2]:99"),
        ] {
            assert_eq!(host_port(given, None).as_deref(), Ok(expected));
        }
        assert_eq!(host_port("h:7", Some(7)).as_deref(), Ok("h:7"));
    }

    #[test]
    fn every_bad_form_of_a_host_has_words_of_its_own() {
        for (given, words) in [
            ("", "a host is missing"),
            (":4242", "lacks the host"),
            ("h:", "the port is missing"),
            ("h:0", "from 1 to 65535"),
            ("h:65536", "is no port"),
            ("h:ssh", "\"ssh\" in"),
            ("h:+5", "is no port"),
            ("4242", "-p 4242"),
            ("[::1", "lacks its ]"),
            ("[::1]4242", "only :PORT may follow"),
            ("[host]:4242", "between [ and ]"),
            ("1:2:3", "no IPv6 address"),
            ("::1:4242x", "no IPv6 address"),
            ("https://h", "is a URL"),
            ("ann@h", "without ann@"),
            ("h/dir", "'/' in it"),
            ("a b", "' ' in it"),
            ("h%eth0", "'%' in it"),
        ] {
            let told = given.parse::<HostPort>().unwrap_err();
            assert!(told.contains(words), "{given:?}: {told}");
        }
        assert!(host_port("h", Some(0)).unwrap_err().contains("-p 0"));
        assert!(host_port("h:7", Some(8)).unwrap_err().contains("leave one of them out"));
    }

    #[test]
    fn a_place_to_listen_is_an_address_or_a_port_or_both() {
        let places = |text: &str, beside| {
            text.parse::<Listen>().unwrap().places(beside).map(|p| p.iter().map(ToString::to_string).collect::<Vec<_>>())
        };
        let any = |port: u16| vec![format!("[::]:{port}"), format!("0.0.0.0:{port}")];
        assert_eq!(places("5555", None), Ok(any(5555)));
        assert_eq!(places(":5555", Some(5555)), Ok(any(5555)));
        assert_eq!(Listen::default().places(None).unwrap().len(), 2);
        for (given, beside, expected) in [
            ("0.0.0.0", None, "0.0.0.0:4242"),
            ("127.0.0.1:0", None, "127.0.0.1:0"),
            ("::1", Some(9), "[::1]:9"),
            ("[::1]:9", None, "[::1]:9"),
            ("[fe80::1%3]:9", None, "[fe80::1%3]:9"),
        ] {
            assert_eq!(places(given, beside), Ok(vec![expected.to_owned()]), "{given}");
        }
        for (given, words) in [
            ("", "is missing"),
            ("host", "is no address"),
            ("host:1", "is no address"),
            ("127.0.0.1:", "the port is missing"),
            ("127.0.0.1:x", "is no port"),
            ("65536", "is no port"),
            ("300.1.1.1:5", "is no address"),
            ("[::1", "lacks its ]"),
            ("::1:99999", "no IPv6 address"),
        ] {
            let told = given.parse::<Listen>().unwrap_err();
            assert!(told.contains(words), "{given:?}: {told}");
        }
        assert!(places("127.0.0.1:5", Some(6)).unwrap_err().contains("leave one of them out"));
        assert!(places("fe80::1%nowhere", None).unwrap_err().contains("no interface"));
    }
}

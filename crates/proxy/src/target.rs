//! What a connection is to reach: a name or an address, and a port; as text and as bytes.

use std::fmt;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::str::FromStr;

/// RFC 1928 §5: types of addresses. 0 is ours: no address.
pub(crate) const NONE: u8 = 0;
const V4: u8 = 1;
const NAME: u8 = 3;
const V6: u8 = 4;

/// Bytes of the longest name (RFC 1928: its length is one byte).
pub const MOST_NAME: usize = 255;

/// A host: a name that only the end that dials resolves, or an address.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Host {
    /// At most 255 bytes of letters, digits, `-`, `_` and `.`.
    Name(String),
    /// An address; one of IPv4 in an IPv6 address is taken for what it is.
    Ip(IpAddr),
}

impl Host {
    /// A name or an address as programs write it, IPv6 with or without brackets.
    ///
    /// # Errors
    /// Neither a name nor an address.
    pub fn parse(text: &str) -> Result<Self, String> {
        let inner = text.strip_prefix('[').and_then(|t| t.strip_suffix(']'));
        if let Some(inner) = inner {
            let ip: Ipv6Addr = inner.parse().map_err(|_| format!("{inner:?} between [ and ] is no IPv6 address"))?;
            return Ok(Self::Ip(IpAddr::V6(ip).to_canonical()));
        }
        if let Ok(ip) = text.parse::<IpAddr>() {
            return Ok(Self::Ip(ip.to_canonical()));
        }
        if text.is_empty() {
            return Err("a host is missing".into());
        }
        if text.len() > MOST_NAME {
            return Err(format!("a name of {} bytes; names have at most {MOST_NAME}", text.len()));
        }
        match text.chars().find(|c| !(c.is_ascii_alphanumeric() || "-_.".contains(*c))) {
            Some(wrong) => Err(format!("{text:?} has a {wrong:?} in it, which no host name and no address has")),
            None => Ok(Self::Name(text.to_owned())),
        }
    }
}

impl fmt::Display for Host {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Name(name) => f.write_str(name),
            Self::Ip(IpAddr::V6(ip)) => write!(f, "[{ip}]"),
            Self::Ip(IpAddr::V4(ip)) => write!(f, "{ip}"),
        }
    }
}

/// A host and a port.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Target {
    /// Which host.
    pub host: Host,
    /// Its port; 0 only where one is to be chosen.
    pub port: u16,
}

impl Target {
    /// One of a name or an address.
    pub fn new(host: Host, port: u16) -> Self {
        Self { host, port }
    }

    /// Appends type, host and port, as SOCKS 5 writes them.
    pub fn emit(&self, out: &mut Vec<u8>) {
        match &self.host {
            Host::Ip(IpAddr::V4(ip)) => {
                out.push(V4);
                out.extend(ip.octets());
            }
            Host::Ip(IpAddr::V6(ip)) => {
                out.push(V6);
                out.extend(ip.octets());
            }
            Host::Name(name) => {
                let name = &name.as_bytes()[..name.len().min(MOST_NAME)];
                out.push(NAME);
                out.push(name.len() as u8);
                out.extend(name);
            }
        }
        out.extend(self.port.to_be_bytes());
    }

    /// Takes what [`emit`](Self::emit) wrote from the front of `bytes`, and how long it was.
    pub(crate) fn parse_bytes(bytes: &[u8]) -> Result<(Self, usize), AddressError> {
        let kind = *bytes.first().ok_or(AddressError::Short)?;
        let (host, len) = match kind {
            V4 => {
                let octets: [u8; 4] = field(bytes, 1)?;
                (Host::Ip(Ipv4Addr::from(octets).into()), 5)
            }
            V6 => {
                let octets: [u8; 16] = field(bytes, 1)?;
                (Host::Ip(IpAddr::V6(octets.into()).to_canonical()), 17)
            }
            NAME => {
                let len = usize::from(*bytes.get(1).ok_or(AddressError::Short)?);
                let name = bytes.get(2..2 + len).ok_or(AddressError::Short)?;
                let name = str::from_utf8(name).map_err(|_| AddressError::Name)?;
                (Host::parse(name).map_err(|_| AddressError::Name)?, 2 + len)
            }
            other => return Err(AddressError::Kind(other)),
        };
        let port = u16::from_be_bytes(field(bytes, len)?);
        Ok((Self { host, port }, len + 2))
    }
}

/// So many bytes at this place.
pub(crate) fn field<const N: usize>(bytes: &[u8], at: usize) -> Result<[u8; N], AddressError> {
    bytes.get(at..at + N).and_then(|field| field.try_into().ok()).ok_or(AddressError::Short)
}

/// Bytes that are no address.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub(crate) enum AddressError {
    /// More may follow.
    #[error("cut off")]
    Short,
    #[error("unknown type of address {0}")]
    Kind(u8),
    #[error("no host name")]
    Name,
}

impl From<SocketAddr> for Target {
    fn from(address: SocketAddr) -> Self {
        Self { host: Host::Ip(address.ip().to_canonical()), port: address.port() }
    }
}

impl fmt::Display for Target {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}", self.host, self.port)
    }
}

/// `HOST:PORT`, `[IPV6]:PORT`.
impl FromStr for Target {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let (host, port) = text.rsplit_once(':').ok_or_else(|| format!("{text:?} lacks a port: write HOST:PORT or [IPV6]:PORT"))?;
        if host.contains(':') && !host.starts_with('[') {
            return Err(format!("{text:?}: an IPv6 address with a port is written [2001:db8::1]:443"));
        }
        let port = port_of(port)?;
        if port == 0 {
            return Err(format!("{text:?}: port 0 cannot be reached"));
        }
        Ok(Self { host: Host::parse(host)?, port })
    }
}

/// A port as people write it.
pub(crate) fn port_of(text: &str) -> Result<u16, String> {
    match text.parse() {
        Ok(port) if text.bytes().all(|b| b.is_ascii_digit()) => Ok(port),
        _ => Err(format!("{text:?} is no port: ports are numbers up to 65535")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn targets_are_the_same_as_text_and_as_bytes() {
        for text in ["example.org:443", "192.0.2.1:80", "[2001:db8::1]:22", "a_b-c.d:65535"] {
            let target: Target = text.parse().unwrap();
            assert_eq!(target.to_string(), text);
            let mut bytes = Vec::new();
            target.emit(&mut bytes);
            assert_eq!(Target::parse_bytes(&bytes), Ok((target, bytes.len())));
            for len in 0..bytes.len() {
                assert_eq!(Target::parse_bytes(&bytes[..len]), Err(AddressError::Short), "{text} {len}");
            }
        }
    }

    #[test]
    fn what_is_no_target_is_told() {
        for (text, words) in [
            ("example.org", "lacks a port"),
            ("2001:db8::1:22", "[2001:db8::1]:443"),
            (":80", "a host is missing"),
            ("a b:80", "has a ' '"),
            ("a:http", "no port"),
            ("a:0", "port 0"),
            ("a:65536", "no port"),
            ("a:+1", "no port"),
            ("[1.2.3.4]:80", "no IPv6"),
        ] {
            let error = text.parse::<Target>().unwrap_err();
            assert!(error.contains(words), "{text}: {error}");
        }
        assert_eq!(Target::parse_bytes(&[9, 0, 0]), Err(AddressError::Kind(9)));
        assert_eq!(Target::parse_bytes(&[3, 2, b'a', 0, 0, 80]), Err(AddressError::Name));
        assert_eq!(Target::parse_bytes(&[3, 0, 0, 80]), Err(AddressError::Name));
    }

    #[test]
    fn an_ipv4_address_in_an_ipv6_one_is_what_it_is() {
        let target: Target = "[::ffff:127.0.0.1]:80".parse().unwrap();
        assert_eq!(target.to_string(), "127.0.0.1:80");
    }
}

//! Addresses as they are written: `192.0.2.1:4242`, `[2001:db8::1]:4242`, and `[fe80::1%eth0]:4242`, whose interface is given by name or number
//! (RFC 4007 §11), which the standard library reads as a number only.

use crate::error::ConnectError;
use std::ffi::CString;
use std::net::{IpAddr, Ipv6Addr, SocketAddr, SocketAddrV6};

/// Reads `ADDRESS:PORT`, an address of IPv6 in brackets and, if it is link-local, with its interface: `[fe80::1%eth0]:4242`.
///
/// # Errors
/// In words: it is no such thing, or this host has no interface of that name.
pub fn parse_address(text: &str) -> Result<SocketAddr, String> {
    let wrong = || format!("{text:?} is no address with a port: write 192.0.2.1:4242, [2001:db8::1]:4242 or [fe80::1%eth0]:4242");
    // The standard library takes 0 for an interface.
    if let Ok(address) = text.parse()
        && !text.contains('%')
    {
        return Ok(address);
    }
    let (host, port) = text.rsplit_once(':').ok_or_else(wrong)?;
    let port = port.parse().map_err(|_| wrong())?;
    let scoped = host.strip_prefix('[').and_then(|h| h.strip_suffix(']')).ok_or_else(wrong)?;
    let (ip, scope) = scoped_address(scoped).ok_or_else(wrong)??;
    Ok(SocketAddrV6::new(ip, port, 0, scope).into())
}

/// Reads an address of either family without a port, `fe80::1%eth0` included: it, and the number of its interface (0: none is given).
///
/// # Errors
/// As [`parse_address`].
pub fn parse_ip(text: &str) -> Result<(IpAddr, u32), String> {
    if let Ok(ip) = text.parse() {
        return Ok((ip, 0));
    }
    match scoped_address(text) {
        Some(Ok((ip, scope))) => Ok((ip.into(), scope)),
        Some(Err(error)) => Err(error),
        None => Err(format!("{text:?} is no IP address: write 192.0.2.1, 2001:db8::1 or fe80::1%eth0")),
    }
}

/// All addresses of `HOST:PORT`: a name, or an address with its interface where it has one.
///
/// # Errors
/// It is written in another way, or the resolver does not know it.
pub async fn lookup(host: &str) -> Result<Vec<SocketAddr>, ConnectError> {
    let has_port = host.rsplit_once(':').is_some_and(|(name, port)| {
        let is_literal = name.starts_with('[') && name.ends_with(']');
        !name.is_empty() && (is_literal || !name.contains(':')) && port.parse::<u16>().is_ok()
    });
    if !has_port {
        return Err(ConnectError::Syntax(host.to_owned()));
    }
    if host.starts_with('[') {
        let literal =
            parse_address(host).map_err(|error| ConnectError::Resolve { name: host.to_owned(), source: std::io::Error::other(error) });
        return literal.map(|address| vec![address]);
    }
    let found = tokio::net::lookup_host(host).await;
    Ok(found.map_err(|source| ConnectError::Resolve { name: host.to_owned(), source })?.collect())
}

/// `ADDRESS%INTERFACE`; `None`: it is nothing like that.
fn scoped_address(text: &str) -> Option<Result<(Ipv6Addr, u32), String>> {
    let (ip, interface) = text.split_once('%')?;
    let ip = ip.parse::<Ipv6Addr>().ok()?;
    Some(interface_index(interface).map(|scope| (ip, scope)).ok_or_else(|| format!("{text}: this host has no interface {interface:?}")))
}

/// The number of an interface of this host, which may be given as one.
pub fn interface_index(interface: &str) -> Option<u32> {
    if let Ok(number) = interface.parse::<u32>() {
        return (number > 0).then_some(number);
    }
    let name = CString::new(interface).ok()?;
    // SAFETY: a live C string; the call keeps nothing of it.
    let index = unsafe { libc::if_nametoindex(name.as_ptr()) };
    (index > 0).then_some(index)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_interface_is_given_by_name_or_number() {
        let scope = |text: &str| match parse_address(text).unwrap() {
            SocketAddr::V6(v6) => (v6.ip().to_string(), v6.port(), v6.scope_id()),
            SocketAddr::V4(_) => panic!("{text}"),
        };
        assert_eq!(scope("[fe80::1%lo]:7"), ("fe80::1".into(), 7, 1));
        assert_eq!(scope("[fe80::1%12]:7"), ("fe80::1".into(), 7, 12));
        assert_eq!(scope("[2001:db8::1]:7").2, 0);
        assert_eq!(parse_ip("fe80::1%lo").unwrap(), ("fe80::1".parse().unwrap(), 1));
        assert_eq!(parse_ip("192.0.2.1").unwrap().1, 0);
        assert!(parse_address("[fe80::1%nosuchthing]:7").unwrap_err().contains("no interface \"nosuchthing\""));
        for text in ["fe80::1%lo", "[fe80::1%lo]", "[fe80::1%]:7", "[10.0.0.1%lo]:7", "host:7", "[fe80::1%0]:7"] {
            assert!(parse_address(text).is_err(), "{text}");
        }
    }
}

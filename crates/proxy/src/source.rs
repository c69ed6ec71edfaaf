//! Where a connection came from, as its target is told: by a header of the PROXY protocol in front of its bytes, or by the address that it is dialled from.

use crate::access::{Pattern, is_own};
use crate::proxy_protocol::header;
use crate::target::{Host, Target};
use crate::wire::{Answer, Outcome};
use noctule::PublicKey;
use socket2::{Domain, Protocol, Socket, Type};
use std::io;
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;

/// Which near ends are believed when they say where a connection came from.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Trusted {
    /// Those with these keys.
    Keys(Vec<PublicKey>),
    /// Every one that may use the proxy.
    All,
}

/// How targets hear where a connection came from. The source is what a trusted near end says; otherwise it is the near end itself.
#[derive(Clone, Debug)]
pub struct Sources {
    /// Near ends that are believed.
    pub trusted: Trusted,
    /// Connections to these begin with a header of the PROXY protocol, version 2.
    pub send_proxy_v2: Vec<Pattern>,
    /// Connections to these are made from the source's own address, which takes CAP_NET_ADMIN and routes (Linux).
    pub as_client: Vec<Pattern>,
}

impl Default for Sources {
    fn default() -> Self {
        Self { trusted: Trusted::Keys(Vec::new()), send_proxy_v2: Vec::new(), as_client: Vec::new() }
    }
}

impl Sources {
    /// The source that the near end with this key says, if it is believed.
    ///
    /// # Errors
    /// It can be nobody's, or would make a connection look like one of this host.
    pub(crate) fn told(&self, peer: &PublicKey, said: Option<&Target>) -> Result<Option<SocketAddr>, Answer> {
        let is_trusted = match &self.trusted {
            Trusted::Keys(keys) => keys.contains(peer),
            Trusted::All => true,
        };
        let Some(said) = said.filter(|_| is_trusted) else { return Ok(None) };
        let ip = match said.host {
            Host::Ip(ip) => ip.to_canonical(),
            Host::Name(_) => return Err(Answer::new(Outcome::Denied, format!("the source {said} is no address"))),
        };
        let is_a_clients = match ip {
            // RFC 1122 §3.2.1.3: 0/8 is this network, 255.255.255.255 everything on it.
            IpAddr::V4(v4) => v4.octets()[0] != 0 && !v4.is_broadcast(),
            // RFC 4291 §2.5.5.1: IPv4 within ::/96, no more in use.
            IpAddr::V6(v6) => v6.octets()[..12] != [0; 12],
        };
        if !is_a_clients || ip.is_multicast() || ip.is_loopback() || is_own(ip) {
            return Err(Answer::new(
                Outcome::Denied,
                format!("the source address {ip} is the server's own or no host's: no client can have it"),
            ));
        }
        Ok(Some((ip, said.port).into()))
    }
}

/// The client of one connection.
#[derive(Clone, Debug)]
pub(crate) struct Client {
    pub sources: Arc<Sources>,
    /// Where it is; `None`: nobody knows any more.
    pub at: Option<SocketAddr>,
}

impl Client {
    /// What stands in front of the bytes for this target, which was dialled at `to`.
    pub fn header(&self, asked: &Host, to: SocketAddr) -> Option<Vec<u8>> {
        let is_listed = self.sources.send_proxy_v2.iter().any(|pattern| pattern.matches(asked, to.ip(), to.port()));
        is_listed.then(|| header(self.at, to))
    }

    /// The address to dial from; `None`: the system's choice.
    ///
    /// # Errors
    /// It is to be the client's, and that is of another family.
    pub fn from(&self, asked: &Host, to: SocketAddr) -> Result<Option<IpAddr>, Answer> {
        if !self.sources.as_client.iter().any(|pattern| pattern.matches(asked, to.ip(), to.port())) {
            return Ok(None);
        }
        match self.at {
            Some(at) if at.is_ipv4() == to.is_ipv4() => Ok(Some(at.ip())),
            Some(at) => Err(Answer::new(
                Outcome::Unreachable,
                format!("{to} is dialled from the client's own address there, and {} is of another family", at.ip()),
            )),
            None => Err(Answer::new(Outcome::Unreachable, "the client's address is not known any more")),
        }
    }
}

/// Lets a socket be bound to an address of another host.
fn be_transparent(socket: &Socket, is_v4: bool) -> io::Result<()> {
    #[cfg(target_os = "linux")]
    return if is_v4 { socket.set_ip_transparent_v4(true) } else { socket.set_ip_transparent_v6(true) };
    #[cfg(not(target_os = "linux"))]
    {
        let _ = (socket, is_v4);
        Err(io::Error::new(io::ErrorKind::Unsupported, "addresses of other hosts are dialled from on Linux only"))
    }
}

/// Binds a socket to the client's address, at any port.
pub(crate) fn bind_as(socket: &Socket, from: IpAddr) -> io::Result<()> {
    let bound = be_transparent(socket, from.is_ipv4()).and_then(|()| socket.bind(&SocketAddr::new(from, 0).into()));
    // Not the same as a target that cannot be reached.
    bound.map_err(|error| io::Error::other(format!("it cannot be dialled from the client's address {from}: {error}")))
}

/// Whether this process may dial from addresses of clients.
///
/// # Errors
/// The system's: it lacks CAP_NET_ADMIN, or the system is not Linux.
pub fn may_dial_as_client() -> io::Result<()> {
    be_transparent(&Socket::new(Domain::IPV4, Type::STREAM, Some(Protocol::TCP))?, true)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(text: &str) -> SocketAddr {
        text.parse().unwrap()
    }

    #[test]
    fn only_a_trusted_end_is_believed_and_never_that_it_is_this_host() {
        let (friend, other) = (PublicKey([1; 32]), PublicKey([2; 32]));
        let said: Target = "198.51.100.9:4000".parse().unwrap();
        let sources = Sources { trusted: Trusted::Keys(vec![friend]), ..Sources::default() };
        assert_eq!(sources.told(&friend, Some(&said)), Ok(Some(at("198.51.100.9:4000"))));
        assert_eq!(sources.told(&other, Some(&said)), Ok(None));
        assert_eq!(sources.told(&friend, None), Ok(None));
        assert_eq!(Sources::default().told(&friend, Some(&said)), Ok(None), "nobody is believed unless it is said");
        let all = Sources { trusted: Trusted::All, ..Sources::default() };
        assert_eq!(all.told(&other, Some(&said)), Ok(Some(at("198.51.100.9:4000"))));
        for odd in [
            "127.0.0.1:1",
            "[::1]:1",
            "[::ffff:127.0.0.1]:1",
            "0.0.0.0:1",
            "[::]:1",
            "0.1.2.3:1",
            "255.255.255.255:1",
            "[::127.0.0.1]:1",
            "224.0.0.1:1",
            "host.example:1",
        ] {
            let denied = all.told(&friend, Some(&odd.parse().unwrap())).unwrap_err();
            assert_eq!(denied.outcome, Outcome::Denied, "{odd}");
        }
    }

    #[test]
    fn the_client_s_address_serves_targets_of_its_family() {
        let sources = Sources { as_client: vec!["all:80".parse().unwrap()], ..Sources::default() };
        let client = Client { sources: Arc::new(sources), at: Some(at("198.51.100.9:4000")) };
        let asked = Host::Name("web.example".into());
        assert_eq!(client.from(&asked, at("192.0.2.1:80")), Ok(Some("198.51.100.9".parse().unwrap())));
        assert_eq!(client.from(&asked, at("192.0.2.1:81")), Ok(None));
        assert!(client.from(&asked, at("[2001:db8::1]:80")).is_err());
        assert_eq!(client.header(&asked, at("192.0.2.1:80")), None);
    }
}

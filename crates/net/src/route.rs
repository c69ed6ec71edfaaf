//! What the kernel knows of the way to an address: from where it would send, and how large a packet may be.

use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, SocketAddrV6, UdpSocket};

/// The kernel's answer for one far address.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Route {
    /// The address that it would send from.
    pub(crate) source: IpAddr,
    /// Largest IP packet, in bytes: that of the interface, of the route, or what an ICMP message said.
    pub(crate) mtu: Option<u16>,
}

impl Route {
    /// Asks the kernel; nothing is sent. `local`: the address that the endpoint is bound to, if it is bound to one.
    ///
    /// # Errors
    /// What the kernel says: no route, an address of this host that is gone, a link-local address without its interface.
    pub(crate) fn towards(local: Option<IpAddr>, remote: SocketAddr) -> io::Result<Self> {
        let local = local.filter(|ip| !ip.is_unspecified() && ip.is_ipv4() == remote.is_ipv4());
        let socket = UdpSocket::bind(at(local.unwrap_or_else(|| unspecified(remote.ip())), remote))?;
        socket.connect(remote)?;
        Ok(Self { source: socket.local_addr()?.ip(), mtu: mtu_of(&socket, remote) })
    }

    /// Largest UDP payload, in bytes.
    pub(crate) fn datagram(&self, remote: SocketAddr) -> Option<u16> {
        self.mtu.map(|mtu| mtu.saturating_sub(headers(remote)))
    }
}

/// Bytes of IP and UDP header of packets to this address.
pub fn headers(remote: SocketAddr) -> u16 {
    if remote.ip().to_canonical().is_ipv4() { 28 } else { 48 }
}

/// Largest IP packet, in bytes, that the kernel's route to an address takes: that of the interface, of the route, or what an ICMP message said. `None`: there is
/// no route, or the system does not say.
pub fn route_mtu(remote: SocketAddr) -> Option<u16> {
    Route::towards(None, remote).ok()?.mtu
}

/// Whether an interface of this host has the address. `like`: an address that is reached from it, for a link-local one belongs to an interface.
pub(crate) fn is_of_this_host(ip: IpAddr, like: SocketAddr) -> bool {
    UdpSocket::bind(at(ip, like)).is_ok()
}

/// A port of the system's choice at an address; a link-local one on the interface of `like`.
fn at(ip: IpAddr, like: SocketAddr) -> SocketAddr {
    match (ip, like) {
        (IpAddr::V6(v6), SocketAddr::V6(like)) if v6.is_unicast_link_local() => SocketAddrV6::new(v6, 0, 0, like.scope_id()).into(),
        _ => SocketAddr::new(ip, 0),
    }
}

fn unspecified(like: IpAddr) -> IpAddr {
    if like.is_ipv4() { Ipv4Addr::UNSPECIFIED.into() } else { Ipv6Addr::UNSPECIFIED.into() }
}

/// ip(7), `IP_MTU`; ipv6(7), `IPV6_MTU`.
#[cfg(target_os = "linux")]
fn mtu_of(socket: &UdpSocket, remote: SocketAddr) -> Option<u16> {
    use std::os::fd::AsRawFd;
    let (level, option) = if remote.is_ipv4() { (libc::IPPROTO_IP, libc::IP_MTU) } else { (libc::IPPROTO_IPV6, libc::IPV6_MTU) };
    let (mut value, mut len): (libc::c_int, _) = (0, size_of::<libc::c_int>() as libc::socklen_t);
    // SAFETY: the descriptor is open while `socket` lives; the kernel writes one integer.
    let result = unsafe { libc::getsockopt(socket.as_raw_fd(), level, option, (&raw mut value).cast(), &raw mut len) };
    // That of the loopback interface is larger than any packet.
    (result == 0 && value > 0).then(|| u16::try_from(value).unwrap_or(u16::MAX))
}
#[cfg(not(target_os = "linux"))]
fn mtu_of(_: &UdpSocket, _: SocketAddr) -> Option<u16> {
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_source_address_is_that_of_the_route_and_its_mtu_is_known() {
        let here: IpAddr = Ipv4Addr::LOCALHOST.into();
        let route = Route::towards(None, (here, 9).into()).unwrap();
        assert_eq!((route.source, route.datagram((here, 9).into())), (here, Some(u16::MAX - 28)));
        assert_eq!(headers("[fd00::1]:1".parse().unwrap()), 48);
        assert_eq!(headers("[::ffff:10.0.0.1]:1".parse().unwrap()), 28);
    }

    #[test]
    fn foreign_addresses_are_not_of_this_host() {
        let like = (Ipv4Addr::LOCALHOST, 1).into();
        assert!(is_of_this_host(Ipv4Addr::LOCALHOST.into(), like) && !is_of_this_host("192.0.2.1".parse().unwrap(), like));
    }

    #[test]
    fn a_link_local_address_without_its_interface_is_refused_by_the_kernel() {
        assert!(Route::towards(None, "[fe80::1]:1".parse().unwrap()).is_err());
    }
}

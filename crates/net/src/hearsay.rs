//! What others say of an address that does not answer: its host that the port is closed, a router or firewall that packets do not get there. Asked when
//! a peer has not answered the first flight, so that this is told from silence in half a second.
//!
//! An ICMP message is a hint that anyone could send, and the endpoint's socket, which serves every session, must not listen to
//! such hints. So the question is put from sockets of their own, connected to the address: the kernel reports only an ICMP message that quotes
//! their ephemeral port, only the attempt that is under way can be ended by it, and only by two such answers. No established
//! session can be touched (docs/decisions/0167).

use crate::route::is_of_this_host;
use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::time::Duration;
use tokio::net::UdpSocket;

/// A peer that listens has answered by then, unless it is far away or packets were lost: the first retransmission is out (P19).
const ASK_EVERY: Duration = Duration::from_millis(250);
/// Answers that are believed.
const ENOUGH: u32 = 2;
/// How often it is asked without any such answer. The kernel itself looks for a neighbour for three seconds before it says that there is none.
const ATTEMPTS: u32 = 30;
/// No packet of ours begins with this byte: an endpoint drops it.
const QUESTION: &[u8] = &[0];

/// What was said.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Hearsay {
    /// By the host: nobody has the port.
    PortClosed,
    /// By a host on the path, in words.
    Unreachable(String),
}

/// Resolves when the same was said twice of `remote`, and nothing else in between; otherwise never. `local`: where the endpoint is bound.
pub(crate) async fn heard(local: SocketAddr, remote: SocketAddr) -> Hearsay {
    let (mut last, mut count) = (None, 0);
    // Hosts and routers send a few such messages in a second at most (RFC 1812 §4.3.2.8), and the first flight has had some of them: silence in between is no
    // contradiction.
    tokio::time::sleep(ASK_EVERY).await;
    for _ in 0..ATTEMPTS {
        let asked = tokio::time::Instant::now();
        let said = match tokio::time::timeout(ASK_EVERY, ask(local, remote)).await {
            Ok(Ok(said)) => said,
            // Silence, an answer, or a socket that could not be had: no hint.
            _ => None,
        };
        if let Some(said) = said {
            count = if last.as_ref() == Some(&said) { count + 1 } else { 1 };
            if count >= ENOUGH {
                return said;
            }
            last = Some(said);
        }
        tokio::time::sleep_until(asked + ASK_EVERY).await;
    }
    std::future::pending().await
}

/// Resolves when the host at `remote` has said that the port is closed; otherwise never.
pub(crate) async fn port_closed(local: SocketAddr, remote: SocketAddr) {
    if heard(local, remote).await != Hearsay::PortClosed {
        std::future::pending::<()>().await;
    }
}

/// Sends one datagram and waits until something comes back.
async fn ask(local: SocketAddr, remote: SocketAddr) -> io::Result<Option<Hearsay>> {
    let ip = match (local.ip(), remote) {
        (ip, _) if !ip.is_unspecified() && ip.is_ipv4() == remote.is_ipv4() => ip,
        (_, SocketAddr::V4(_)) => IpAddr::V4(Ipv4Addr::UNSPECIFIED),
        (_, SocketAddr::V6(_)) => IpAddr::V6(Ipv6Addr::UNSPECIFIED),
    };
    let socket = UdpSocket::bind((ip, 0)).await?;
    errors::keep(&socket, remote);
    socket.connect(remote).await?;
    socket.send(QUESTION).await?;
    match socket.recv(&mut [0; 1]).await {
        Err(e) if e.kind() == io::ErrorKind::ConnectionRefused => Ok(Some(Hearsay::PortClosed)),
        Err(e) if is_unreachable(&e) => Ok(match errors::words(&socket) {
            // This host itself, for instance its tunnel, into which the question went: the endpoint's own packets may take another path.
            Some((Some(by), _)) if is_of_this_host(by, remote) => None,
            Some((Some(by), what)) => Some(Hearsay::Unreachable(format!("{by} says: {what}"))),
            Some((None, what)) => Some(Hearsay::Unreachable(what.to_owned())),
            None => None,
        }),
        Err(_) | Ok(_) => Ok(None),
    }
}

/// What the kernel makes of ICMP "destination unreachable": icmp(7), and `EACCES` for what ICMPv6 calls prohibited.
fn is_unreachable(error: &io::Error) -> bool {
    use io::ErrorKind::{HostUnreachable, NetworkUnreachable, PermissionDenied};
    matches!(error.kind(), HostUnreachable | NetworkUnreachable | PermissionDenied)
}

/// The socket's queue of errors (ip(7), `IP_RECVERR`), which has the sender of an ICMP message and its kind.
#[cfg(target_os = "linux")]
mod errors {
    use std::net::{IpAddr, SocketAddr};
    use std::os::fd::AsRawFd;
    use tokio::net::UdpSocket;

    /// Room for one control message with an extended error and an address.
    const CONTROL: usize = 512;

    pub(super) fn keep(socket: &UdpSocket, remote: SocketAddr) {
        let (level, option) =
            if remote.is_ipv4() { (libc::IPPROTO_IP, libc::IP_RECVERR) } else { (libc::IPPROTO_IPV6, libc::IPV6_RECVERR) };
        let on: libc::c_int = 1;
        // SAFETY: a live integer and its size, on a descriptor that `socket` keeps open. Refused, it costs words only.
        unsafe {
            libc::setsockopt(socket.as_raw_fd(), level, option, (&raw const on).cast(), size_of::<libc::c_int>() as libc::socklen_t);
        }
    }

    /// What was said and by which host, if the queue has it and its meaning is known.
    pub(super) fn words(socket: &UdpSocket) -> Option<(Option<IpAddr>, &'static str)> {
        #[repr(C, align(8))]
        struct Control([u8; CONTROL]);
        let mut control = Control([0; CONTROL]);
        let mut byte = [0u8; 64];
        let mut iov = libc::iovec { iov_base: byte.as_mut_ptr().cast(), iov_len: byte.len() };
        // SAFETY: all zero is a valid message header; the pointers set below live as long as the call.
        let mut message: libc::msghdr = unsafe { std::mem::zeroed() };
        message.msg_iov = &raw mut iov;
        message.msg_iovlen = 1;
        message.msg_control = control.0.as_mut_ptr().cast();
        message.msg_controllen = CONTROL as _;
        // SAFETY: an open descriptor and a message header with room as it says.
        if unsafe { libc::recvmsg(socket.as_raw_fd(), &raw mut message, libc::MSG_ERRQUEUE | libc::MSG_DONTWAIT) } < 0 {
            return None;
        }
        // SAFETY: the kernel has filled the header; the macros stay within `msg_controllen`.
        unsafe {
            let mut cmsg = libc::CMSG_FIRSTHDR(&raw const message);
            while let Some(header) = cmsg.as_ref() {
                let is_error = matches!(
                    (header.cmsg_level, header.cmsg_type),
                    (libc::IPPROTO_IP, libc::IP_RECVERR) | (libc::IPPROTO_IPV6, libc::IPV6_RECVERR)
                );
                #[allow(clippy::unnecessary_cast, reason = "another type with musl")]
                let room = (header.cmsg_len as usize).saturating_sub(libc::CMSG_LEN(0) as usize);
                if is_error && room >= size_of::<libc::sock_extended_err>() {
                    let data = libc::CMSG_DATA(cmsg);
                    let error = data.cast::<libc::sock_extended_err>().read_unaligned();
                    let offender = data.add(size_of::<libc::sock_extended_err>());
                    let by = address(offender, room - size_of::<libc::sock_extended_err>());
                    return what(error.ee_origin, error.ee_type, error.ee_code).map(|what| (by, what));
                }
                cmsg = libc::CMSG_NXTHDR(&raw const message, cmsg);
            }
        }
        None
    }

    /// The address behind an extended error, if it has one in `room` bytes.
    ///
    /// # Safety
    /// `at` points to `room` readable bytes.
    unsafe fn address(at: *const u8, room: usize) -> Option<IpAddr> {
        if room < size_of::<libc::sockaddr_in>() {
            return None;
        }
        // SAFETY: as promised; each is read only where there is room for it.
        unsafe {
            match libc::c_int::from(at.cast::<libc::sa_family_t>().read_unaligned()) {
                libc::AF_INET => Some(IpAddr::from(at.cast::<libc::sockaddr_in>().read_unaligned().sin_addr.s_addr.to_ne_bytes())),
                libc::AF_INET6 if room >= size_of::<libc::sockaddr_in6>() => {
                    Some(IpAddr::from(at.cast::<libc::sockaddr_in6>().read_unaligned().sin6_addr.s6_addr))
                }
                _ => None,
            }
        }
    }

    /// RFC 792 and RFC 1812 §5.2.7.1; RFC 4443 §3.1.
    pub(super) fn what(origin: u8, kind: u8, code: u8) -> Option<&'static str> {
        match (origin, kind, code) {
            (libc::SO_EE_ORIGIN_ICMP, 3, 0 | 6) => Some("network unreachable"),
            (libc::SO_EE_ORIGIN_ICMP, 3, 1 | 7) => Some("host unreachable"),
            (libc::SO_EE_ORIGIN_ICMP, 3, 9 | 10 | 13) => Some("administratively prohibited (a firewall refuses it)"),
            (libc::SO_EE_ORIGIN_ICMP6, 1, 0) => Some("no route to the destination"),
            (libc::SO_EE_ORIGIN_ICMP6, 1, 1) => Some("administratively prohibited (a firewall refuses it)"),
            (libc::SO_EE_ORIGIN_ICMP6, 1, 2 | 3) => Some("address unreachable"),
            (libc::SO_EE_ORIGIN_ICMP6, 1, 5 | 6) => Some("refused by policy (a firewall or a route refuses it)"),
            _ => None,
        }
    }
}

#[cfg(not(target_os = "linux"))]
mod errors {
    use std::net::{IpAddr, SocketAddr};
    use tokio::net::UdpSocket;

    pub(super) fn keep(_: &UdpSocket, _: SocketAddr) {}
    pub(super) fn words(_: &UdpSocket) -> Option<(Option<IpAddr>, &'static str)> {
        None
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    async fn is_found(remote: SocketAddr) -> bool {
        let local = if remote.is_ipv4() { "0.0.0.0:0" } else { "[::]:0" };
        tokio::time::timeout(Duration::from_secs(2), port_closed(local.parse().unwrap(), remote)).await.is_ok()
    }

    #[tokio::test]
    async fn a_closed_port_is_told_from_a_silent_one() {
        for ip in ["127.0.0.1:0", "[::1]:0"] {
            let silent = UdpSocket::bind(ip).await.unwrap();
            let address = silent.local_addr().unwrap();
            assert!(!is_found(address).await, "{address} is open");
            drop(silent);
            assert!(is_found(address).await, "{address} is closed");
        }
    }

    #[cfg(target_os = "linux")]
    #[test]
    fn what_a_firewall_says_is_told_from_what_a_router_says() {
        assert!(errors::what(libc::SO_EE_ORIGIN_ICMP, 3, 13).unwrap().contains("prohibited"));
        assert!(errors::what(libc::SO_EE_ORIGIN_ICMP6, 1, 0).unwrap().contains("no route"));
        assert_eq!(errors::what(libc::SO_EE_ORIGIN_LOCAL, 3, 13), None);
    }
}

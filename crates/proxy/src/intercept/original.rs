//! Where a packet was sent to before it was diverted.

use nix::cmsg_space;
use nix::sys::socket::{ControlMessageOwned, MsgFlags, SockaddrIn, SockaddrIn6, SockaddrStorage, recvmsg, setsockopt, sockopt};
use socket2::{SockRef, Socket};
use std::io::{self, IoSliceMut};
use std::net::SocketAddr;
use std::os::fd::AsRawFd;
use tokio::io::Interest;
use tokio::net::{TcpStream, UdpSocket};

/// A datagram: how long it is, where it comes from and where it was sent to.
#[derive(Clone, Copy, Debug)]
pub(super) struct Diverted {
    pub len: usize,
    pub from: SocketAddr,
    pub to: SocketAddr,
}

/// Lets the system say with each datagram where it was sent to.
pub(super) fn ask(socket: &Socket, is_v4: bool) -> io::Result<()> {
    if is_v4 { setsockopt(socket, sockopt::Ipv4OrigDstAddr, &true) } else { setsockopt(socket, sockopt::Ipv6OrigDstAddr, &true) }?;
    Ok(())
}

/// The next datagram.
///
/// # Errors
/// The system's; one that lacks its destination is [`io::ErrorKind::InvalidData`].
///
/// # Cancel safety
/// Dropping the future loses nothing.
pub(super) async fn receive(socket: &UdpSocket, buffer: &mut [u8]) -> io::Result<Diverted> {
    socket.async_io(Interest::READABLE, || now(socket, buffer)).await
}

fn now(socket: &UdpSocket, buffer: &mut [u8]) -> io::Result<Diverted> {
    let (mut slices, mut space) = ([IoSliceMut::new(buffer)], cmsg_space!(nix::libc::sockaddr_in6));
    let received = recvmsg::<SockaddrStorage>(socket.as_raw_fd(), &mut slices, Some(&mut space), MsgFlags::MSG_DONTWAIT)?;
    let lacks = |what| io::Error::new(io::ErrorKind::InvalidData, what);
    let from = received.address.as_ref().and_then(address).ok_or_else(|| lacks("a datagram from nowhere"))?;
    let to = received.cmsgs()?.find_map(|message| match message {
        ControlMessageOwned::Ipv4OrigDstAddr(to) => Some(SockaddrIn::from(to)).map(|to| SocketAddr::from((to.ip(), to.port()))),
        ControlMessageOwned::Ipv6OrigDstAddr(to) => Some(SockaddrIn6::from(to)).map(|to| SocketAddr::from((to.ip(), to.port()))),
        _ => None,
    });
    Ok(Diverted { len: received.bytes, from, to: to.ok_or_else(|| lacks("a datagram without its destination"))? })
}

fn address(storage: &SockaddrStorage) -> Option<SocketAddr> {
    match (storage.as_sockaddr_in(), storage.as_sockaddr_in6()) {
        (Some(v4), _) => Some(SocketAddr::from((v4.ip(), v4.port()))),
        (_, Some(v6)) => Some(SocketAddr::from((v6.ip(), v6.port()))),
        _ => None,
    }
}

/// Where a redirected connection was sent to.
///
/// # Errors
/// The system knows of no such address: the connection was made to this socket itself.
pub(super) fn of_redirected(tcp: &TcpStream) -> io::Result<SocketAddr> {
    let is_v4 = tcp.local_addr()?.ip().to_canonical().is_ipv4();
    let socket = SockRef::from(tcp);
    let original = if is_v4 { socket.original_dst_v4() } else { socket.original_dst_v6() }?;
    original.as_socket().ok_or_else(|| io::ErrorKind::InvalidData.into())
}

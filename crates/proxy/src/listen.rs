//! Sockets that listen.

use crate::dial::is_out_of;
use crate::forward::{Bind, On};
use socket2::{Domain, Protocol, Socket, Type};
use std::io;
use std::net::{Ipv4Addr, Ipv6Addr, SocketAddr};
use std::time::Duration;
use tokio::net::{TcpListener, TcpStream, UdpSocket};

/// Connections that wait to be accepted, at most.
pub(crate) const BACKLOG: i32 = 1024;
/// Where descriptors have run out, some may be free again after this.
const PAUSE: Duration = Duration::from_millis(100);

/// A port cannot be listened at.
#[derive(Debug, thiserror::Error)]
#[error("cannot listen on {kind} {place}: {error}")]
pub struct BindError {
    /// "TCP" or "UDP".
    pub kind: &'static str,
    /// Address and port.
    pub place: String,
    /// The system's words.
    pub error: io::Error,
}

/// The sockets for a place: of `localhost` one of each family that the host has, with the same port.
fn each<T>(bind: &Bind, kind: &'static str, open: impl Fn(SocketAddr) -> io::Result<(T, u16)>) -> Result<Vec<T>, BindError> {
    let failed = |error| BindError { kind, place: bind.to_string(), error };
    let places: Vec<SocketAddr> = match bind.on {
        On::Ip(ip) => return open((ip, bind.port).into()).map(|(socket, _)| vec![socket]).map_err(failed),
        On::Loopback => vec![(Ipv4Addr::LOCALHOST, bind.port).into(), (Ipv6Addr::LOCALHOST, bind.port).into()],
        On::Everywhere => vec![(Ipv6Addr::UNSPECIFIED, bind.port).into(), (Ipv4Addr::UNSPECIFIED, bind.port).into()],
    };
    let (mut sockets, mut port, mut last) = (Vec::new(), bind.port, None);
    for mut place in places {
        place.set_port(port);
        match open(place) {
            Ok((socket, bound)) => {
                port = bound;
                sockets.push(socket);
                // [::] serves IPv4, too.
                if bind.on == On::Everywhere {
                    break;
                }
            }
            // A host may lack a family.
            Err(error) if lacks_family(&error) => last = Some(error),
            // Any port was asked for, and the other family's happens to be taken.
            Err(_) if bind.port == 0 && !sockets.is_empty() => {}
            Err(error) => return Err(failed(error)),
        }
    }
    match (sockets.is_empty(), last) {
        (true, Some(error)) => Err(failed(error)),
        _ => Ok(sockets),
    }
}

pub(crate) fn lacks_family(error: &io::Error) -> bool {
    const EAFNOSUPPORT: i32 = 97;
    error.kind() == io::ErrorKind::AddrNotAvailable || error.raw_os_error() == Some(EAFNOSUPPORT)
}

fn socket(place: SocketAddr, kind: Type, protocol: Protocol) -> io::Result<Socket> {
    let socket = Socket::new(Domain::for_address(place), kind, Some(protocol))?;
    if place.is_ipv6() {
        socket.set_only_v6(!place.ip().is_unspecified())?;
    }
    if kind == Type::STREAM {
        socket.set_reuse_address(true)?;
    }
    socket.set_nonblocking(true)?;
    socket.bind(&place.into())?;
    Ok(socket)
}

/// Listens for connections.
pub(crate) fn tcp(bind: &Bind) -> Result<Vec<TcpListener>, BindError> {
    each(bind, "TCP", |place| {
        let socket = socket(place, Type::STREAM, Protocol::TCP)?;
        socket.listen(BACKLOG)?;
        let listener = TcpListener::from_std(socket.into())?;
        let port = listener.local_addr()?.port();
        Ok((listener, port))
    })
}

/// Listens for datagrams.
pub(crate) fn udp(bind: &Bind) -> Result<Vec<UdpSocket>, BindError> {
    each(bind, "UDP", |place| {
        let socket = UdpSocket::from_std(socket(place, Type::DGRAM, Protocol::UDP)?.into())?;
        let port = socket.local_addr()?.port();
        Ok((socket, port))
    })
}

/// Marks what a socket sends, where a mark is wanted.
pub(crate) fn set_mark(socket: &Socket, mark: Option<u32>) -> io::Result<()> {
    #[cfg(target_os = "linux")]
    return mark.map_or(Ok(()), |mark| socket.set_mark(mark));
    #[cfg(not(target_os = "linux"))]
    return match (socket, mark) {
        (_, Some(_)) => Err(io::Error::new(io::ErrorKind::Unsupported, "packets are marked on Linux only")),
        (_, None) => Ok(()),
    };
}

/// A socket for datagrams to anywhere, of both families where the host has them.
pub(crate) fn udp_anywhere(mark: Option<u32>) -> io::Result<UdpSocket> {
    let open = |any| {
        let socket = socket(any, Type::DGRAM, Protocol::UDP)?;
        set_mark(&socket, mark)?;
        UdpSocket::from_std(socket.into())
    };
    open((Ipv6Addr::UNSPECIFIED, 0).into()).or_else(|_| open((Ipv4Addr::UNSPECIFIED, 0).into()))
}

/// The next connection. What fails is the connection's own, or over in a while.
pub(crate) async fn accept(listener: &TcpListener) -> (TcpStream, SocketAddr) {
    loop {
        match listener.accept().await {
            Ok((tcp, source)) => return (tcp, SocketAddr::new(source.ip().to_canonical(), source.port())),
            Err(error) if is_out_of(&error) => tokio::time::sleep(PAUSE).await,
            Err(_) => tokio::task::yield_now().await,
        }
    }
}

//! The UDP socket: batches in both directions, GSO, GRO and ECN by `quinn-udp`, IPv4 through a dual-stack socket where there is one.

use crate::steer;
use noctule_proto::node::Transmit;
use noctule_proto::shard::Steering;
use noctule_proto::units::Ecn;
use quinn_udp::{EcnCodepoint, RecvMeta, UdpSockRef, UdpSocketState};
use socket2::{Domain, Protocol, SockRef, Socket as RawSocket, Type};
use std::io::{self, IoSliceMut};
use std::net::{IpAddr, SocketAddr, SocketAddrV6};
use std::task::{Context, Poll, ready};
use tokio::io::Interest;
use tokio::net::UdpSocket;

/// Buffer sizes of the socket, in bytes as the kernel counts them (its own overhead included; Linux grants twice what is asked for, up to
/// `net.core.rmem_max` and `wmem_max`).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct BufferSizes {
    /// Send buffer granted.
    pub send: usize,
    /// Receive buffer granted.
    pub recv: usize,
}

/// What a socket is asked to have.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Wishes {
    /// Bytes of its buffers.
    pub(crate) send_buffer: usize,
    pub(crate) recv_buffer: usize,
    /// `SO_MARK`.
    pub(crate) mark: Option<u32>,
}

impl Wishes {
    pub(crate) fn buffers(send_buffer: usize, recv_buffer: usize) -> Self {
        Self { send_buffer, recv_buffer, mark: None }
    }
}

/// Receive buffers handed to one recvmmsg: each takes a whole GRO train. More would only spread the data over more cache.
pub(crate) const RECV_BUFFERS: usize = 8;
/// Bytes of one receive buffer: no UDP datagram, coalesced or not, is larger.
pub(crate) const RECV_BUFFER_LEN: usize = 65_536;
/// A GSO train is one IP datagram to the kernel: 65,535 bytes less the largest of our headers.
const MAX_TRAIN: usize = 65_535 - 48;

pub(crate) struct Socket {
    io: UdpSocket,
    state: UdpSocketState,
    local: SocketAddr,
    /// The socket speaks IPv6, so IPv4 addresses travel as v4-mapped ones.
    is_v6: bool,
    /// IPv4 addresses are reachable.
    has_v4: bool,
    buffers: BufferSizes,
}

/// Where the bytes of one receive buffer came from: `len` bytes, cut into datagrams every `stride` bytes.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Received {
    pub(crate) remote: SocketAddr,
    pub(crate) local: Option<IpAddr>,
    pub(crate) ecn: Ecn,
    pub(crate) len: usize,
    pub(crate) stride: usize,
}

impl Socket {
    pub(crate) fn bind(addr: SocketAddr, wishes: Wishes) -> io::Result<Self> {
        Self::open(addr, wishes, false)
    }

    /// Another socket on the same address, which has to be bound to it already; see `steer.rs`.
    pub(crate) fn beside(&self, wishes: Wishes) -> io::Result<Self> {
        steer::share(&SockRef::from(&self.io))?;
        Self::open(self.local, wishes, true)
    }

    /// No further one may be bound beside it.
    pub(crate) fn keep(&self) {
        steer::keep(&SockRef::from(&self.io));
    }

    /// Sockets beside this one get what is theirs.
    pub(crate) fn steer(&self, steering: Steering) -> io::Result<()> {
        steer::attach(&SockRef::from(&self.io), steering)
    }

    fn open(addr: SocketAddr, wishes: Wishes, is_beside: bool) -> io::Result<Self> {
        let raw = RawSocket::new(Domain::for_address(addr), Type::DGRAM, Some(Protocol::UDP))?;
        let is_v6 = addr.is_ipv6();
        let is_dual = is_v6 && addr.ip().is_unspecified();
        if is_v6 {
            // Where the host cannot do both, IPv6 alone still serves.
            let _ = raw.set_only_v6(!is_dual);
        }
        let has_v4 = !is_v6 || (is_dual && !raw.only_v6().unwrap_or(true));
        if let Some(mark) = wishes.mark {
            set_mark(&raw, mark)?;
        }
        raw.set_nonblocking(true)?;
        if is_beside {
            steer::share(&raw)?;
        }
        raw.bind(&addr.into())?;
        // A refusal only costs speed: what was granted is reported.
        let _ = raw.set_send_buffer_size(wishes.send_buffer);
        let _ = raw.set_recv_buffer_size(wishes.recv_buffer);
        let buffers = BufferSizes { send: raw.send_buffer_size()?, recv: raw.recv_buffer_size()? };
        let io = UdpSocket::from_std(raw.into())?;
        let state = UdpSocketState::new(UdpSockRef::from(&io))?;
        without_timestamps(&io);
        let local = io.local_addr()?;
        Ok(Self { io, state, local, is_v6, has_v4, buffers })
    }

    /// Forgets that trains could not be sent: `quinn-udp` takes a train whose datagrams are too long for the route for a socket that cannot send trains, or
    /// control messages, at all.
    pub(crate) fn renew(&mut self) {
        if let Ok(state) = UdpSocketState::new(UdpSockRef::from(&self.io)) {
            self.state = state;
            without_timestamps(&self.io);
        }
    }

    pub(crate) fn local_addr(&self) -> SocketAddr {
        self.local
    }
    pub(crate) fn buffers(&self) -> BufferSizes {
        self.buffers
    }
    pub(crate) fn reaches_v6(&self) -> bool {
        self.is_v6
    }
    pub(crate) fn reaches_v4(&self) -> bool {
        self.has_v4
    }
    /// Datagrams of at most `size` bytes that fit into one train.
    pub(crate) fn max_segments(&self, size: u16) -> usize {
        self.state.max_gso_segments().min(MAX_TRAIN / usize::from(size).max(1)).max(1)
    }

    /// Receives into as many of `bufs` as there are trains waiting; `meta[..n]` describes them. After a lone datagram (see [`is_lone`]) ask
    /// [`is_readable`](Self::is_readable) before sleeping: it needs no system call.
    pub(crate) fn poll_recv(&self, cx: &mut Context<'_>, bufs: &mut [IoSliceMut<'_>], meta: &mut [RecvMeta]) -> Poll<io::Result<usize>> {
        loop {
            ready!(self.io.poll_recv_ready(cx))?;
            let mut alone = None;
            let result = self.io.try_io(Interest::READABLE, || {
                let n = self.state.recv(UdpSockRef::from(&self.io), bufs, meta)?;
                if is_lone(&meta[..n]) {
                    // The kernel found no second one: said to the reactor now, from the event before the call, as it is said after a call that found
                    // nothing. What comes from here on is an event of its own.
                    alone = Some(n);
                    return Err(io::ErrorKind::WouldBlock.into());
                }
                Ok(n)
            });
            match (result, alone) {
                (Err(_), Some(n)) => return Poll::Ready(Ok(n)),
                (Err(e), None) if e.kind() == io::ErrorKind::WouldBlock => {}
                (result, _) => return Poll::Ready(result),
            }
        }
    }

    /// Whether there may be something to receive; otherwise the task is woken when there is.
    pub(crate) fn is_readable(&self, cx: &mut Context<'_>) -> bool {
        self.io.poll_recv_ready(cx).is_ready()
    }

    /// What `meta` says, in the node's terms.
    pub(crate) fn received(meta: &RecvMeta) -> Received {
        Received {
            remote: unmap(meta.addr),
            local: meta.dst_ip.map(|ip| ip.to_canonical()),
            ecn: from_codepoint(meta.ecn),
            len: meta.len,
            stride: if meta.stride == 0 { meta.len.max(1) } else { meta.stride },
        }
    }

    /// Sends one train; pending when the socket's buffer is full.
    pub(crate) fn poll_send(&self, cx: &mut Context<'_>, transmit: &Transmit, contents: &[u8]) -> Poll<io::Result<()>> {
        let out = self.outgoing(transmit, contents);
        loop {
            // Trying first saves the reactor's bookkeeping in the usual case; readiness is asked for only when the kernel said no.
            match self.io.try_io(Interest::WRITABLE, || self.state.try_send(UdpSockRef::from(&self.io), &out)) {
                Err(e) if e.kind() == io::ErrorKind::WouldBlock => ready!(self.io.poll_send_ready(cx))?,
                result => return Poll::Ready(result),
            }
        }
    }

    /// Sends one train if the socket takes it at once, without tokio: for the moment when there is no runtime any more.
    pub(crate) fn send_now(&self, transmit: &Transmit, contents: &[u8]) -> io::Result<()> {
        self.state.try_send(UdpSockRef::from(&self.io), &self.outgoing(transmit, contents))
    }

    fn outgoing<'a>(&self, transmit: &Transmit, contents: &'a [u8]) -> quinn_udp::Transmit<'a> {
        quinn_udp::Transmit {
            destination: self.map(transmit.remote),
            ecn: to_codepoint(transmit.ecn),
            contents,
            segment_size: transmit.segment_size,
            src_ip: transmit.local.filter(|ip| !ip.is_unspecified()).map(|ip| self.map_ip(ip)),
        }
    }

    fn map(&self, addr: SocketAddr) -> SocketAddr {
        match addr {
            SocketAddr::V4(v4) if self.is_v6 => SocketAddr::V6(SocketAddrV6::new(v4.ip().to_ipv6_mapped(), v4.port(), 0, 0)),
            other => other,
        }
    }
    fn map_ip(&self, ip: IpAddr) -> IpAddr {
        match ip {
            IpAddr::V4(v4) if self.is_v6 => IpAddr::V6(v4.to_ipv6_mapped()),
            other => other,
        }
    }
}

/// Marks what the socket sends.
#[cfg(target_os = "linux")]
fn set_mark(socket: &RawSocket, mark: u32) -> io::Result<()> {
    socket.set_mark(mark)
}

#[cfg(not(target_os = "linux"))]
fn set_mark(_: &RawSocket, _: u32) -> io::Result<()> {
    Err(io::Error::new(io::ErrorKind::Unsupported, "packets are marked on Linux only"))
}

/// `quinn-udp` 0.6 asks for receive timestamps, which nothing here uses, and then its control buffer of 96 bytes has no room left for the
/// ECN field of an IPv4 train: the kernel drops what does not fit (`MSG_CTRUNC`), and the mark is lost whenever GRO is at work.
#[cfg(target_os = "linux")]
fn without_timestamps(io: &UdpSocket) {
    use std::os::fd::AsRawFd;
    let off: libc::c_int = 0;
    // SAFETY: a live integer and its size, on a descriptor that `io` keeps open. A failure leaves timestamps on, which costs ECN only.
    unsafe {
        libc::setsockopt(
            io.as_raw_fd(),
            libc::SOL_SOCKET,
            libc::SO_TIMESTAMPNS,
            (&raw const off).cast(),
            size_of::<libc::c_int>() as libc::socklen_t,
        );
    }
}
#[cfg(not(target_os = "linux"))]
fn without_timestamps(_: &UdpSocket) {}

fn unmap(addr: SocketAddr) -> SocketAddr {
    match addr {
        SocketAddr::V6(v6) => match v6.ip().to_ipv4_mapped() {
            Some(v4) => SocketAddr::from((v4, v6.port())),
            None => addr,
        },
        SocketAddr::V4(_) => addr,
    }
}

/// One datagram that was the only one waiting, as one recvmmsg with room for more has told: a message that its receiver waits for, rather than part of
/// a stream. Elsewhere a call takes one datagram however many there are.
pub(crate) fn is_lone(received: &[RecvMeta]) -> bool {
    cfg!(target_os = "linux") && received.len() == 1 && received[0].len <= received[0].stride
}

fn from_codepoint(ecn: Option<EcnCodepoint>) -> Ecn {
    match ecn {
        None => Ecn::NotEct,
        Some(EcnCodepoint::Ect0) => Ecn::Ect0,
        Some(EcnCodepoint::Ect1) => Ecn::Ect1,
        Some(EcnCodepoint::Ce) => Ecn::Ce,
    }
}

fn to_codepoint(ecn: Ecn) -> Option<EcnCodepoint> {
    match ecn {
        Ecn::NotEct => None,
        Ecn::Ect0 => Some(EcnCodepoint::Ect0),
        Ecn::Ect1 => Some(EcnCodepoint::Ect1),
        Ecn::Ce => Some(EcnCodepoint::Ce),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::future::poll_fn;

    async fn send(socket: &Socket, transmit: &Transmit, contents: &[u8]) -> io::Result<()> {
        poll_fn(|cx| socket.poll_send(cx, transmit, contents)).await
    }

    /// Receives until `bytes` have come; each datagram with where it came from.
    async fn receive(socket: &Socket, bytes: usize) -> Vec<(Received, Vec<u8>)> {
        let mut storage = vec![0; RECV_BUFFERS * RECV_BUFFER_LEN];
        let (mut seen, mut total) = (Vec::new(), 0);
        while total < bytes {
            let mut meta = [RecvMeta::default(); RECV_BUFFERS];
            let n = {
                let mut chunks = storage.chunks_exact_mut(RECV_BUFFER_LEN);
                let mut bufs: [IoSliceMut<'_>; RECV_BUFFERS] = std::array::from_fn(|_| IoSliceMut::new(chunks.next().unwrap()));
                let filled = poll_fn(|cx| socket.poll_recv(cx, &mut bufs, &mut meta));
                tokio::time::timeout(std::time::Duration::from_secs(5), filled).await.expect("the datagrams arrive").unwrap()
            };
            for (meta, buf) in meta[..n].iter().zip(storage.chunks_exact(RECV_BUFFER_LEN)) {
                let from = Socket::received(meta);
                total += from.len;
                seen.extend(buf[..from.len].chunks(from.stride).map(|d| (from, d.to_vec())));
            }
        }
        seen
    }

    fn bind(addr: &str) -> io::Result<Socket> {
        Socket::bind(addr.parse().unwrap(), Wishes::buffers(1 << 20, 1 << 20))
    }

    #[tokio::test]
    async fn a_train_arrives_as_its_datagrams_with_their_ecn_mark() {
        let (from, to) = (bind("127.0.0.1:0").unwrap(), bind("127.0.0.1:0").unwrap());
        let pieces = from.max_segments(1200).min(10);
        let contents: Vec<u8> = (0..pieces).flat_map(|i| vec![i as u8; if i + 1 == pieces { 77 } else { 1200 }]).collect();
        let transmit = Transmit {
            remote: to.local_addr(),
            local: Some("127.0.0.1".parse().unwrap()),
            ecn: Ecn::Ect0,
            len: contents.len(),
            segment_size: (pieces > 1).then_some(1200),
        };
        send(&from, &transmit, &contents).await.unwrap();
        let seen = receive(&to, contents.len()).await;
        assert_eq!(seen.len(), pieces);
        for (i, (origin, datagram)) in seen.iter().enumerate() {
            assert_eq!((origin.remote, origin.local), (from.local_addr(), Some("127.0.0.1".parse().unwrap())));
            assert_eq!(origin.ecn, Ecn::Ect0);
            assert_eq!(datagram, &contents[i * 1200..(i * 1200 + 1200).min(contents.len())]);
        }
    }

    #[tokio::test]
    async fn a_dual_stack_socket_speaks_ipv4_and_shows_plain_ipv4_addresses() {
        let Ok(both) = bind("[::]:0") else {
            eprintln!("skipped: no IPv6 on this host");
            return;
        };
        if !both.reaches_v4() {
            eprintln!("skipped: no dual-stack sockets on this host");
            return;
        }
        let four = bind("127.0.0.1:0").unwrap();
        let to_both = SocketAddr::from(([127, 0, 0, 1], both.local_addr().port()));
        let hello = Transmit { remote: to_both, local: None, ecn: Ecn::Ect1, len: 5, segment_size: None };
        send(&four, &hello, b"hello").await.unwrap();
        let (origin, datagram) = receive(&both, 5).await.remove(0);
        assert_eq!((origin.remote, origin.local, origin.ecn), (four.local_addr(), Some("127.0.0.1".parse().unwrap()), Ecn::Ect1));
        assert_eq!(datagram, b"hello");
        // And back, from the address that the question was sent to.
        let answer = Transmit { remote: origin.remote, local: origin.local, ecn: Ecn::Ce, len: 2, segment_size: None };
        send(&both, &answer, b"yo").await.unwrap();
        let (origin, datagram) = receive(&four, 2).await.remove(0);
        assert_eq!((origin.remote, origin.ecn, &datagram[..]), (to_both, Ecn::Ce, &b"yo"[..]));
    }

    #[tokio::test]
    async fn a_port_in_use_an_address_of_another_host_and_a_free_port_are_told_apart() {
        use crate::error::BindError;
        let first = bind("127.0.0.1:0").unwrap();
        let taken = first.local_addr();
        let error = |addr: SocketAddr| BindError::from_io(addr, Socket::bind(addr, Wishes::buffers(0, 0)).map(|_| ()).unwrap_err());
        assert!(matches!(error(taken), BindError::InUse(a) if a == taken));
        let elsewhere = "192.0.2.1:0".parse().unwrap();
        assert!(matches!(error(elsewhere), BindError::NotAvailable(a) if a == elsewhere));
        let granted = first.buffers();
        assert!(granted.send > 0 && granted.recv > 0);
    }
}

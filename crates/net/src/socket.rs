//! The UDP socket: batches in both directions, GSO, GRO and ECN by `quinn-udp`, IPv4 through a dual-stack socket where there is one.

use noctule_proto::node::Transmit;
use noctule_proto::units::Ecn;
use quinn_udp::{EcnCodepoint, RecvMeta, UdpSockRef, UdpSocketState};
use socket2::{Domain, Protocol, Socket as RawSocket, Type};
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
    pub(crate) fn bind(addr: SocketAddr, send_buffer: usize, recv_buffer: usize) -> io::Result<Self> {
        let raw = RawSocket::new(Domain::for_address(addr), Type::DGRAM, Some(Protocol::UDP))?;
        let is_v6 = addr.is_ipv6();
        let is_dual = is_v6 && addr.ip().is_unspecified();
        if is_v6 {
            // Where the host cannot do both, IPv6 alone still serves.
            let _ = raw.set_only_v6(!is_dual);
        }
        let has_v4 = !is_v6 || (is_dual && !raw.only_v6().unwrap_or(true));
        raw.set_nonblocking(true)?;
        raw.bind(&addr.into())?;
        // A refusal only costs speed: what was granted is reported.
        let _ = raw.set_send_buffer_size(send_buffer);
        let _ = raw.set_recv_buffer_size(recv_buffer);
        let buffers = BufferSizes { send: raw.send_buffer_size()?, recv: raw.recv_buffer_size()? };
        let io = UdpSocket::from_std(raw.into())?;
        let state = UdpSocketState::new(UdpSockRef::from(&io))?;
        let local = io.local_addr()?;
        Ok(Self { io, state, local, is_v6, has_v4, buffers })
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

    /// Receives into as many of `bufs` as there are trains waiting; `meta[..n]` describes them.
    pub(crate) fn poll_recv(&self, cx: &mut Context<'_>, bufs: &mut [IoSliceMut<'_>], meta: &mut [RecvMeta]) -> Poll<io::Result<usize>> {
        loop {
            ready!(self.io.poll_recv_ready(cx))?;
            match self.io.try_io(Interest::READABLE, || self.state.recv(UdpSockRef::from(&self.io), bufs, meta)) {
                Err(e) if e.kind() == io::ErrorKind::WouldBlock => {}
                result => return Poll::Ready(result),
            }
        }
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
        let out = quinn_udp::Transmit {
            destination: self.map(transmit.remote),
            ecn: to_codepoint(transmit.ecn),
            contents,
            segment_size: transmit.segment_size,
            src_ip: transmit.local.filter(|ip| !ip.is_unspecified()).map(|ip| self.map_ip(ip)),
        };
        loop {
            // Trying first saves the reactor's bookkeeping in the usual case; readiness is asked for only when the kernel said no.
            match self.io.try_io(Interest::WRITABLE, || self.state.try_send(UdpSockRef::from(&self.io), &out)) {
                Err(e) if e.kind() == io::ErrorKind::WouldBlock => ready!(self.io.poll_send_ready(cx))?,
                result => return Poll::Ready(result),
            }
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

fn unmap(addr: SocketAddr) -> SocketAddr {
    match addr {
        SocketAddr::V6(v6) => match v6.ip().to_ipv4_mapped() {
            Some(v4) => SocketAddr::from((v4, v6.port())),
            None => addr,
        },
        SocketAddr::V4(_) => addr,
    }
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

//! The sockets of an endpoint: one, or one for each of the addresses that it listens on.
//!
//! No two of them have the same IP address, so that the local address of a datagram names its socket: what came by one is answered by it. A link that is
//! called goes by the socket whose address the kernel would send from.

use crate::error::BindError;
use crate::socket::{BufferSizes, Socket};
use noctule_proto::node::Transmit;
use quinn_udp::RecvMeta;
use std::collections::HashMap;
use std::io::{self, IoSliceMut};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, UdpSocket};
use std::task::{Context, Poll};

/// Far addresses whose socket is remembered, at most.
const REMEMBERED: usize = 1024;

/// See the file's heading.
pub(crate) struct Sockets {
    /// Never empty.
    all: Vec<Socket>,
    /// The one to be asked first for what has come.
    turn: usize,
    /// Sockets towards far addresses, where the node leaves the choice to the system.
    towards: HashMap<IpAddr, usize>,
}

impl Sockets {
    /// A socket on each address, with buffers of so many bytes.
    pub(crate) fn bind(addrs: &[SocketAddr], send_buffer: usize, recv_buffer: usize) -> Result<Self, BindError> {
        for (i, addr) in addrs.iter().enumerate() {
            let is_alone = addrs.len() == 1 || !addr.ip().is_unspecified();
            if !is_alone || addrs[..i].iter().any(|other| other.ip() == addr.ip()) {
                return Err(BindError::Config(
                    "several addresses to listen on have to be different ones of this host, none of them [::] or 0.0.0.0",
                ));
            }
        }
        let bind = |addr: &SocketAddr| Socket::bind(*addr, send_buffer, recv_buffer).map_err(|e| BindError::from_io(*addr, e));
        let all = addrs.iter().map(bind).collect::<Result<Vec<_>, _>>()?;
        if all.is_empty() {
            return Err(BindError::Config("an endpoint needs an address"));
        }
        Ok(Self { all, turn: 0, towards: HashMap::new() })
    }

    pub(crate) fn local_addrs(&self) -> Vec<SocketAddr> {
        self.all.iter().map(Socket::local_addr).collect()
    }

    pub(crate) fn reaches_v4(&self) -> bool {
        self.all.iter().any(Socket::reaches_v4)
    }

    pub(crate) fn reaches_v6(&self) -> bool {
        self.all.iter().any(Socket::reaches_v6)
    }

    /// The smallest that any of them was granted.
    pub(crate) fn buffers(&self) -> BufferSizes {
        let least = |of: fn(&Socket) -> usize| self.all.iter().map(of).min().unwrap_or(0);
        BufferSizes { send: least(|s| s.buffers().send), recv: least(|s| s.buffers().recv) }
    }

    /// Datagrams of at most `size` bytes that fit into one train.
    pub(crate) fn max_segments(&self, size: u16) -> usize {
        self.all.iter().map(|s| s.max_segments(size)).min().unwrap_or(1)
    }

    /// Receives from the next socket that has something, each in turn.
    pub(crate) fn poll_recv(
        &mut self,
        cx: &mut Context<'_>,
        bufs: &mut [IoSliceMut<'_>],
        meta: &mut [RecvMeta],
    ) -> Poll<io::Result<usize>> {
        for _ in 0..self.all.len() {
            let at = self.turn;
            self.turn = (self.turn + 1) % self.all.len();
            if let Poll::Ready(result) = self.all[at].poll_recv(cx, bufs, meta) {
                return Poll::Ready(result);
            }
        }
        Poll::Pending
    }

    /// Whether any may have something to receive; otherwise the task is woken when one has.
    pub(crate) fn is_readable(&self, cx: &mut Context<'_>) -> bool {
        let mut any = false;
        // Every one of them is asked: that is what wakes the task.
        for socket in &self.all {
            any |= socket.is_readable(cx);
        }
        any
    }

    /// Sends one train; pending when its socket's buffer is full.
    pub(crate) fn poll_send(&mut self, cx: &mut Context<'_>, transmit: &Transmit, contents: &[u8]) -> Poll<io::Result<()>> {
        self.of(transmit).poll_send(cx, transmit, contents)
    }

    /// As [`Socket::send_now`].
    pub(crate) fn send_now(&mut self, transmit: &Transmit, contents: &[u8]) -> io::Result<()> {
        self.of(transmit).send_now(transmit, contents)
    }

    fn of(&mut self, transmit: &Transmit) -> &Socket {
        if self.all.len() == 1 {
            return &self.all[0];
        }
        let local = transmit.local.and_then(|ip| self.all.iter().position(|s| s.local_addr().ip() == ip));
        let at = local.unwrap_or_else(|| self.towards(transmit.remote));
        &self.all[at]
    }

    /// The socket from whose address the kernel would send there; if there is none, the first of the family.
    fn towards(&mut self, remote: SocketAddr) -> usize {
        if let Some(at) = self.towards.get(&remote.ip()) {
            return *at;
        }
        let addresses = || self.all.iter().map(|s| s.local_addr().ip());
        let source = source_towards(remote).and_then(|ip| addresses().position(|own| own == ip));
        let at = source.or_else(|| addresses().position(|own| own.is_ipv4() == remote.is_ipv4())).unwrap_or(0);
        if self.towards.len() >= REMEMBERED {
            self.towards.clear();
        }
        self.towards.insert(remote.ip(), at);
        at
    }
}

fn unspecified(like: IpAddr) -> IpAddr {
    if like.is_ipv4() { Ipv4Addr::UNSPECIFIED.into() } else { Ipv6Addr::UNSPECIFIED.into() }
}

/// The address from which the kernel would send to `remote` now; `None`: it would not.
pub(crate) fn source_towards(remote: SocketAddr) -> Option<IpAddr> {
    let socket = UdpSocket::bind((unspecified(remote.ip()), 0)).ok()?;
    socket.connect(remote).ok()?;
    socket.local_addr().ok().map(|a| a.ip())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::socket::{RECV_BUFFER_LEN, RECV_BUFFERS};
    use noctule_proto::units::Ecn;
    use std::future::poll_fn;
    use std::time::Duration;

    fn bind(addrs: &[&str]) -> Result<Sockets, BindError> {
        Sockets::bind(&addrs.iter().map(|a| a.parse().unwrap()).collect::<Vec<_>>(), 1 << 20, 1 << 20)
    }

    /// Where the next datagram came from, and to which address.
    async fn origin(sockets: &mut Sockets) -> (SocketAddr, Option<IpAddr>) {
        let mut storage = vec![0; RECV_BUFFERS * RECV_BUFFER_LEN];
        let mut meta = [RecvMeta::default(); RECV_BUFFERS];
        let mut chunks = storage.chunks_exact_mut(RECV_BUFFER_LEN);
        let mut bufs: [IoSliceMut<'_>; RECV_BUFFERS] = std::array::from_fn(|_| IoSliceMut::new(chunks.next().unwrap()));
        let came = poll_fn(|cx| sockets.poll_recv(cx, &mut bufs, &mut meta));
        tokio::time::timeout(Duration::from_secs(5), came).await.expect("it arrives").unwrap();
        let from = Socket::received(&meta[0]);
        (from.remote, from.local)
    }

    fn datagram(remote: SocketAddr, local: Option<IpAddr>) -> Transmit {
        Transmit { remote, local, ecn: Ecn::NotEct, len: 2, segment_size: None }
    }

    #[tokio::test]
    async fn what_came_by_one_socket_is_answered_by_it() {
        let mut ours = bind(&["127.0.0.1:0", "127.0.0.2:0"]).unwrap();
        let mut far = bind(&["127.0.0.1:0"]).unwrap();
        let there = far.local_addrs()[0];
        for at in ours.local_addrs() {
            poll_fn(|cx| far.poll_send(cx, &datagram(at, None), b"hi")).await.unwrap();
            let (remote, local) = origin(&mut ours).await;
            assert_eq!((remote, local), (there, Some(at.ip())));
            poll_fn(|cx| ours.poll_send(cx, &datagram(remote, local), b"yo")).await.unwrap();
            assert_eq!(origin(&mut far).await.0, at, "address and port");
        }
        // Nothing says from where: as the kernel would.
        poll_fn(|cx| ours.poll_send(cx, &datagram(there, None), b"oh")).await.unwrap();
        assert_eq!(origin(&mut far).await.0, ours.local_addrs()[0]);
    }

    #[tokio::test]
    async fn addresses_that_hide_each_other_are_refused() {
        for addrs in [&["127.0.0.1:0", "127.0.0.1:0"][..], &["0.0.0.0:0", "127.0.0.1:0"], &["127.0.0.1:0", "[::]:0"], &[]] {
            assert!(matches!(bind(addrs), Err(BindError::Config(_))), "{addrs:?}");
        }
    }

    #[test]
    fn the_source_address_is_that_of_the_way() {
        let here: IpAddr = Ipv4Addr::LOCALHOST.into();
        assert_eq!(source_towards((here, 9).into()), Some(here));
    }
}

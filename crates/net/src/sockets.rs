//! The sockets of an endpoint: one, or one for each of the addresses that it listens on.
//!
//! No two of them have the same IP address, so that the local address of a datagram names its socket: what came by one is answered by it. A link that is
//! called goes by the socket whose address the kernel would send from.
//!
//! A *detour* is a further socket, for one far address: a pair of ports that a host on the path blocks is left by it (docs/decisions/0168).

use crate::error::BindError;
use crate::route::Route;
use crate::socket::{BufferSizes, Socket, Wishes};
use noctule_proto::node::Transmit;
use noctule_proto::shard::Steering;
use quinn_udp::RecvMeta;
use std::collections::HashMap;
use std::io::{self, IoSliceMut};
use std::net::{IpAddr, SocketAddr, SocketAddrV6};
use std::task::{Context, Poll};

/// Far addresses whose socket is remembered, at most.
const REMEMBERED: usize = 1024;

/// Detours at a time: the oldest makes room.
const DETOURS: usize = 16;

/// See the file's heading.
pub(crate) struct Sockets {
    /// Never empty.
    all: Vec<Socket>,
    /// The one to be asked first for what has come.
    turn: usize,
    /// Sockets towards far addresses, where the node leaves the choice to the system.
    towards: HashMap<IpAddr, usize>,
    /// Sockets of their own for some far addresses, the oldest first.
    detours: Vec<(SocketAddr, Socket)>,
    /// What each was asked to have.
    wishes: Wishes,
}

impl Sockets {
    /// A socket on each address.
    pub(crate) fn bind(addrs: &[SocketAddr], wishes: Wishes) -> Result<Self, BindError> {
        for (i, addr) in addrs.iter().enumerate() {
            let is_alone = addrs.len() == 1 || !addr.ip().is_unspecified();
            if !is_alone || addrs[..i].iter().any(|other| other.ip() == addr.ip()) {
                return Err(BindError::Config(
                    "several addresses to listen on have to be different ones of this host, none of them [::] or 0.0.0.0",
                ));
            }
        }
        let bind = |addr: &SocketAddr| Socket::bind(*addr, wishes).map_err(|e| BindError::from_io(*addr, e));
        let all = addrs.iter().map(bind).collect::<Result<Vec<_>, _>>()?;
        if all.is_empty() {
            return Err(BindError::Config("an endpoint needs an address"));
        }
        Ok(Self::new(all, wishes))
    }

    fn new(all: Vec<Socket>, wishes: Wishes) -> Self {
        Self { all, turn: 0, towards: HashMap::new(), detours: Vec::new(), wishes }
    }

    /// The same for each of so many shards of an endpoint: their sockets share the addresses. The first is bound as if it were alone, so that an address that another
    /// process has is refused. `or_one`: where sockets cannot share an address, one shard that works is better than none. [`steer`](Self::steer) is to follow.
    pub(crate) fn bind_shards(addrs: &[SocketAddr], wishes: Wishes, count: usize, or_one: bool) -> Result<Vec<Self>, BindError> {
        let first = Self::bind(addrs, wishes)?;
        let others = match first.beside(count) {
            Err(_) if or_one => {
                first.all.iter().for_each(Socket::keep);
                Vec::new()
            }
            others => others?,
        };
        Ok(std::iter::once(first).chain(others).collect())
    }

    /// Those of the other shards, on the addresses of the first.
    fn beside(&self, count: usize) -> Result<Vec<Self>, BindError> {
        let wishes = self.wishes;
        let beside = |socket: &Socket| socket.beside(wishes).map_err(|e| BindError::from_io(socket.local_addr(), e));
        let one = |_| {
            let all = self.all.iter().map(beside).collect::<Result<Vec<_>, _>>()?;
            Ok(Self::new(all, wishes))
        };
        (1..count).map(one).collect()
    }

    /// The kernel is told how to divide datagrams among the shards, of which these are the first one's sockets.
    pub(crate) fn steer(&self, steering: Steering) {
        if steering.count() > 1 {
            // A refusal costs speed only: the kernel divides datagrams by their addresses, and drivers pass them on.
            self.all.iter().for_each(|socket| drop(socket.steer(steering)));
        }
    }

    /// From now on packets to `remote` leave from a port of their own, another one at each call.
    pub(crate) fn make_detour(&mut self, remote: SocketAddr) -> io::Result<()> {
        let at = self.index(None, remote);
        let like = self.all[at].local_addr();
        let from = match like {
            SocketAddr::V4(v4) => SocketAddr::from((*v4.ip(), 0)),
            SocketAddr::V6(v6) => SocketAddrV6::new(*v6.ip(), 0, 0, v6.scope_id()).into(),
        };
        let socket = Socket::bind(from, self.wishes)?;
        self.end_detour(remote);
        if self.detours.len() == DETOURS {
            self.detours.remove(0);
        }
        self.detours.push((remote, socket));
        Ok(())
    }

    /// Packets to `remote` leave from the endpoint's own port again.
    pub(crate) fn end_detour(&mut self, remote: SocketAddr) {
        self.detours.retain(|(to, _)| *to != remote);
    }

    /// See [`Socket::renew`].
    pub(crate) fn renew(&mut self, transmit: &Transmit) {
        match self.detours.iter_mut().find(|(to, _)| *to == transmit.remote) {
            Some((_, socket)) => socket.renew(),
            None => {
                let at = self.index(transmit.local, transmit.remote);
                self.all[at].renew();
            }
        }
    }

    fn each(&self) -> impl Iterator<Item = &Socket> {
        self.all.iter().chain(self.detours.iter().map(|(_, socket)| socket))
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
        self.each().map(|s| s.max_segments(size)).min().unwrap_or(1)
    }

    /// Receives from the next socket that has something, each in turn.
    pub(crate) fn poll_recv(
        &mut self,
        cx: &mut Context<'_>,
        bufs: &mut [IoSliceMut<'_>],
        meta: &mut [RecvMeta],
    ) -> Poll<io::Result<usize>> {
        let count = self.all.len() + self.detours.len();
        for _ in 0..count {
            let at = self.turn % count;
            self.turn = (at + 1) % count;
            let socket = self.all.get(at).unwrap_or_else(|| &self.detours[at - self.all.len()].1);
            if let Poll::Ready(result) = socket.poll_recv(cx, bufs, meta) {
                return Poll::Ready(result);
            }
        }
        Poll::Pending
    }

    /// Whether any may have something to receive; otherwise the task is woken when one has.
    pub(crate) fn is_readable(&self, cx: &mut Context<'_>) -> bool {
        let mut any = false;
        // Every one of them is asked: that is what wakes the task.
        for socket in self.each() {
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
        if let Some(at) = self.detours.iter().position(|(to, _)| *to == transmit.remote) {
            return &self.detours[at].1;
        }
        let at = self.index(transmit.local, transmit.remote);
        &self.all[at]
    }

    /// The socket for packets from `local`, if the node says from where, to `remote`.
    fn index(&mut self, local: Option<IpAddr>, remote: SocketAddr) -> usize {
        if self.all.len() == 1 {
            return 0;
        }
        let local = local.and_then(|ip| self.all.iter().position(|s| s.local_addr().ip() == ip));
        local.unwrap_or_else(|| self.towards(remote))
    }

    /// The socket from whose address the kernel would send there; if there is none, the first of the family.
    fn towards(&mut self, remote: SocketAddr) -> usize {
        if let Some(at) = self.towards.get(&remote.ip()) {
            return *at;
        }
        let addresses = || self.all.iter().map(|s| s.local_addr().ip());
        let source = Route::towards(None, remote).ok().and_then(|route| addresses().position(|own| own == route.source));
        let at = source.or_else(|| addresses().position(|own| own.is_ipv4() == remote.is_ipv4())).unwrap_or(0);
        if self.towards.len() >= REMEMBERED {
            self.towards.clear();
        }
        self.towards.insert(remote.ip(), at);
        at
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::socket::{RECV_BUFFER_LEN, RECV_BUFFERS, Wishes};
    use noctule_proto::units::Ecn;
    use std::future::poll_fn;
    use std::time::Duration;

    fn bind(addrs: &[&str]) -> Result<Sockets, BindError> {
        Sockets::bind(&addrs.iter().map(|a| a.parse().unwrap()).collect::<Vec<_>>(), Wishes::buffers(1 << 20, 1 << 20))
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

    #[tokio::test]
    async fn a_detour_is_another_port_for_one_far_address_and_hears_what_comes_to_it() {
        let mut ours = bind(&["127.0.0.1:0"]).unwrap();
        let (mut far, mut other) = (bind(&["127.0.0.1:0"]).unwrap(), bind(&["127.0.0.1:0"]).unwrap());
        let own = ours.local_addrs()[0];
        let (there, elsewhere) = (far.local_addrs()[0], other.local_addrs()[0]);
        let mut ports = vec![own.port()];
        for _ in 0..2 {
            ours.make_detour(there).unwrap();
            poll_fn(|cx| ours.poll_send(cx, &datagram(there, None), b"hi")).await.unwrap();
            let from = origin(&mut far).await.0;
            assert!(!ports.contains(&from.port()), "a fresh one each time");
            ports.push(from.port());
            poll_fn(|cx| far.poll_send(cx, &datagram(from, None), b"yo")).await.unwrap();
            assert_eq!(origin(&mut ours).await.0, there);
        }
        poll_fn(|cx| ours.poll_send(cx, &datagram(elsewhere, None), b"hi")).await.unwrap();
        assert_eq!(origin(&mut other).await.0, own);
        ours.end_detour(there);
        poll_fn(|cx| ours.poll_send(cx, &datagram(there, None), b"hi")).await.unwrap();
        assert_eq!(origin(&mut far).await.0, own);
        for port in 1..=2 * DETOURS as u16 {
            ours.make_detour(SocketAddr::from(([192, 0, 2, 1], port))).unwrap();
        }
        assert_eq!(ours.detours.len(), DETOURS);
    }
}

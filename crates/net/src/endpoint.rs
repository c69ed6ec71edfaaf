//! The endpoint: a socket, an identity and a node, shared by all its clones.

use crate::backlog::Backlog;
use crate::config::EndpointConfig;
use crate::connect;
use crate::driver::Driver;
use crate::error::{BindError, ConnectError};
use crate::link::{self, Link};
use crate::session::Session;
use crate::shared::{Bound, Shared};
use crate::socket::{BufferSizes, Wishes};
use crate::sockets::Sockets;
use crate::state::Refusal;
use crate::steer;
use crate::watch;
use noctule_proto::Node;
use noctule_proto::crypto::PublicKey;
use noctule_proto::error::CloseReason;
use noctule_proto::node::Transmit;
use noctule_proto::shard::Steering;
use noctule_proto::stats::Memory;
use noctule_proto::units::Time;
use std::future::poll_fn;
use std::net::{Ipv4Addr, Ipv6Addr, SocketAddr};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering::Relaxed};
use std::task::{Context, Poll, ready};
use std::time::{Duration, Instant};

/// A wake-up costs two context switches and a system call: at the 100 us of P11 they would be most of the work (docs/decisions/0021).
const PACING_QUANTUM: Duration = Duration::from_micros(500);

/// One node on one UDP socket. Clones are handles of the same endpoint.
///
/// **Dropping** the last handle does not end sessions: they live as long as their own handles, and the driver ends after the last of them.
/// Sessions that nobody has accepted yet are closed, and no new ones are taken. [`close`](Self::close) ends everything at once.
#[derive(Clone)]
pub struct Endpoint {
    inner: Arc<Inner>,
}

struct Inner {
    /// Never empty.
    shards: Arc<[Arc<Shared>]>,
    counters: Vec<Arc<Counters>>,
    steering: Steering,
    /// The shard that is asked first for what has come.
    asked: AtomicUsize,
    /// The one that calls next.
    calls: AtomicUsize,
    /// What each socket is asked to have.
    wishes: Wishes,
    #[cfg(all(test, target_os = "linux"))]
    drivers: Vec<tokio::task::AbortHandle>,
}

/// Counted by the driver, read by all clones.
#[derive(Debug, Default)]
pub(crate) struct Counters {
    pub(crate) sent_datagrams: AtomicU64,
    pub(crate) sent_bytes: AtomicU64,
    pub(crate) sent_trains: AtomicU64,
    pub(crate) received_datagrams: AtomicU64,
    pub(crate) received_bytes: AtomicU64,
    pub(crate) send_blocked: AtomicU64,
    pub(crate) send_errors: AtomicU64,
    pub(crate) recv_errors: AtomicU64,
    pub(crate) astray: AtomicU64,
}

impl Counters {
    pub(crate) fn sent(&self, transmit: &Transmit) {
        let datagrams = transmit.segment_size.map_or(1, |s| transmit.len.div_ceil(s.max(1)));
        self.sent_datagrams.fetch_add(datagrams as u64, Relaxed);
        self.sent_bytes.fetch_add(transmit.len as u64, Relaxed);
        self.sent_trains.fetch_add(1, Relaxed);
    }
}

/// What an endpoint's socket has done and what its node holds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct EndpointStats {
    /// Buffer sizes that the operating system granted.
    pub buffers: BufferSizes,
    /// Datagrams handed to the socket.
    pub sent_datagrams: u64,
    /// Bytes of UDP payload handed to the socket.
    pub sent_bytes: u64,
    /// System calls that they took: a GSO train is one.
    pub sent_trains: u64,
    /// Datagrams taken from the socket.
    pub received_datagrams: u64,
    /// Bytes of UDP payload taken from the socket.
    pub received_bytes: u64,
    /// Times that the socket's send buffer was full; the train waits and goes out later.
    pub send_blocked: u64,
    /// Trains that the operating system refused to send.
    pub send_errors: u64,
    /// Errors other than "nothing there" when receiving.
    pub recv_errors: u64,
    /// Parts that the endpoint works in: one, although more were asked for, where sockets cannot share a port.
    pub shards: usize,
    /// Datagrams that came to the socket of another shard than theirs, and were passed on.
    pub astray: u64,
    /// Memory of all sessions and flows.
    pub memory: Memory,
    /// What the node refused or survived.
    pub refused: noctule_proto::node::Counters,
}

impl Endpoint {
    /// Opens a socket on `addr` and starts the driver on the current tokio runtime. Port 0 lets the system choose. The unspecified IPv6
    /// address `[::]` serves IPv4 as well, where the system allows it.
    ///
    /// # Errors
    /// The port is taken, not permitted, or the address is not one of this host; see [`BindError`].
    pub fn bind(addr: SocketAddr, config: EndpointConfig) -> Result<Self, BindError> {
        Self::bind_each(&[addr], config)
    }

    /// The same with a socket on each of several addresses: different ones of this host, of either family, each with its port. What comes to one is
    /// answered from it; links that are called go from the address that the system chooses among them.
    ///
    /// # Errors
    /// As [`bind`](Self::bind); [`BindError::Config`] if there is no address, one comes twice, or one of several is `[::]` or `0.0.0.0`, which are all.
    pub fn bind_each(addrs: &[SocketAddr], config: EndpointConfig) -> Result<Self, BindError> {
        if config.node.max_datagram < noctule_proto::wire::params::MIN_DATAGRAM {
            return Err(BindError::Config("max_datagram must be at least 800 bytes"));
        }
        let runtime = tokio::runtime::Handle::try_current().map_err(|_| BindError::NoRuntime)?;
        let wishes = Wishes { send_buffer: config.send_buffer, recv_buffer: config.recv_buffer, mark: config.mark };
        let io_error = |e| BindError::from_io(addrs[0], e);
        let mut seed = [0; 32];
        getrandom::fill(&mut seed).map_err(|e| io_error(e.into()))?;
        let EndpointConfig { identity, mut node, backlog, shards, trace, linger, send_buffer: _, recv_buffer: _, mark: _ } = config;
        node.pacing_quantum = node.pacing_quantum.max(PACING_QUANTUM);
        node.trace |= trace.is_some();
        let (max_datagram, accepts) = (node.max_datagram, node.accept);
        // Which links belong to a process that is gone, one node has to know; and the events of a trace are in one order.
        let is_one = node.one_process_per_key || trace.is_some();
        let count = if is_one { 1 } else { steer::shards(shards) };
        let epoch = Instant::now();
        let sockets = Sockets::bind_shards(addrs, wishes, count, true)?;
        let mut nodes = Node::shards(node, identity, seed, Time::ZERO, sockets.len());
        let steering = nodes[0].steering();
        sockets[0].steer(steering);
        let bound = Bound::of(&sockets[0]);
        for node in &mut nodes {
            // A host that is copied or set back with its memory does not repeat what it draws. What worked for the seed does not fail later
            // (getrandom(2), NOTES); if it did, the node would go on with what it has.
            node.set_entropy(|fresh| {
                let _ = getrandom::fill(fresh);
            });
        }
        let shard = |(node, backlog)| Shared::new(node, epoch, accepts, backlog, bound.clone(), linger);
        let shards: Arc<[Arc<Shared>]> = nodes.into_iter().zip(Backlog::of_shards(backlog)).map(shard).collect();
        if let Some(log) = &trace {
            log.begin(accepts);
        }
        let counters: Vec<Arc<Counters>> = sockets.iter().map(|_| Arc::default()).collect();
        let driver = |(index, sockets)| {
            Driver::new(Arc::clone(&shards), index, steering, sockets, max_datagram, Arc::clone(&counters[index]), trace.clone())
        };
        let drivers = sockets.into_iter().enumerate().map(driver).collect::<std::io::Result<Vec<_>>>().map_err(io_error)?;
        #[cfg(all(test, target_os = "linux"))]
        let mut handles = Vec::new();
        for (driver, shard) in drivers.into_iter().zip(&*shards) {
            let driving = runtime.spawn(driver);
            #[cfg(all(test, target_os = "linux"))]
            handles.push(driving.abort_handle());
            drop(driving);
            runtime.spawn(watch::run(Arc::clone(shard)));
        }
        let inner = Inner {
            shards,
            counters,
            steering,
            asked: AtomicUsize::new(0),
            calls: AtomicUsize::new(0),
            wishes,
            #[cfg(all(test, target_os = "linux"))]
            drivers: handles,
        };
        Ok(Self { inner: Arc::new(inner) })
    }

    /// An endpoint on a port that the system chooses, reaching IPv6 and IPv4 where the host has both.
    ///
    /// # Errors
    /// As [`bind`](Self::bind).
    pub fn client(config: EndpointConfig) -> Result<Self, BindError> {
        match Self::bind((Ipv6Addr::UNSPECIFIED, 0).into(), config.clone()) {
            Err(BindError::NotAvailable(_) | BindError::Io { .. }) => Self::bind((Ipv4Addr::UNSPECIFIED, 0).into(), config),
            result => result,
        }
    }

    /// Opens a session with the node at `remote`. `peer` is the key that it must have; `None` takes whatever key answers, to be checked
    /// with [`Session::peer_key`]. Resolves after two round trips, one more without a `peer`, when the far end has taken the session: it decides about this node's key when
    /// it has heard it proved, and its refusal is an error here. To send after one round trip use
    /// [`connect_early`](Self::connect_early). Dropping the future gives the attempt up.
    ///
    /// # Errors
    /// See [`ConnectError`]; an address where nobody answers is given up after [`connect_timeout`](noctule_proto::NodeConfig::connect_timeout),
    /// a port that the host says is closed after half a second.
    pub async fn connect(&self, remote: SocketAddr, peer: Option<PublicKey>) -> Result<Session, ConnectError> {
        accepted(connect::to_address(self.next(), remote, peer).await?).await
    }

    /// Like [`connect`](Self::connect), but resolves after one round trip (two without a `peer`), when the far end is authenticated: what is sent at once is there half a
    /// round trip later. The far end may still decline; then the session ends with its reason, and [`Session::accepted`] tells it as the
    /// error that `connect` would have returned.
    ///
    /// # Errors
    /// As [`connect`](Self::connect), a refusal excepted.
    pub async fn connect_early(&self, remote: SocketAddr, peer: Option<PublicKey>) -> Result<Session, ConnectError> {
        connect::to_address(self.next(), remote, peer).await
    }

    /// Like [`connect`](Self::connect), with a host name: `"host:port"`, `"192.0.2.1:port"` or `"[2001:db8::1]:port"`. All addresses of the
    /// name are tried in the resolver's order, IPv6 and IPv4 in turn, each 250 ms after the one before or as soon as that one fails; the
    /// first that answers with the right key is taken (after RFC 8305).
    ///
    /// # Errors
    /// Those of [`connect`](Self::connect) for the most telling of the attempts, and those of name resolution.
    pub async fn connect_host(&self, host: &str, peer: Option<PublicKey>) -> Result<Session, ConnectError> {
        accepted(connect::to_host(self.next(), host, peer).await?).await
    }

    /// [`connect_early`](Self::connect_early) with a host name.
    ///
    /// # Errors
    /// As [`connect_host`](Self::connect_host), a refusal excepted.
    pub async fn connect_host_early(&self, host: &str, peer: Option<PublicKey>) -> Result<Session, ConnectError> {
        connect::to_host(self.next(), host, peer).await
    }

    /// The key that `host` (written as for [`connect_host`](Self::connect_host)) proves to own, without opening a session: what is to be shown to
    /// the user that decides whether to trust it. The far end learns this endpoint's key; an [ephemeral](EndpointConfig::ephemeral) one tells
    /// it nothing.
    ///
    /// # Errors
    /// As [`connect_host`](Self::connect_host), a refusal excepted.
    pub async fn key_of_host(&self, host: &str) -> Result<PublicKey, ConnectError> {
        connect::key_of_host(self.next(), host).await
    }

    /// The next session that another node opened; `None` once the endpoint is closed.
    ///
    /// # Cancel safety
    /// Dropping the future loses nothing.
    pub async fn accept(&self) -> Option<Session> {
        poll_fn(|cx| self.poll_accept(cx)).await
    }

    /// The form of [`accept`](Self::accept) for tasks that poll.
    pub fn poll_accept(&self, cx: &mut Context<'_>) -> Poll<Option<Session>> {
        self.poll_each(cx, |shared, cx| {
            let next = ready!(shared.poll_state(
                cx,
                |state, _| loop {
                    let Some(session) = state.incoming.pop() else { return state.closed.is_some().then_some(None) };
                    if let Some(entry) = state.sessions.get(&session) {
                        return Some(Some((session, entry.peer)));
                    }
                },
                |state| Some(&mut state.accept_wakers),
            ));
            Poll::Ready(next.map(|(session, peer)| Session::new(Arc::clone(shared), session, peer)))
        })
    }

    /// What comes first from any shard, each in turn; `None` when nothing more comes from any.
    fn poll_each<T>(&self, cx: &mut Context<'_>, poll: impl Fn(&Arc<Shared>, &mut Context<'_>) -> Poll<Option<T>>) -> Poll<Option<T>> {
        let (shards, mut is_over) = (&self.inner.shards, true);
        let first = if shards.len() == 1 { 0 } else { self.inner.asked.fetch_add(1, Relaxed) };
        for at in 0..shards.len() {
            match poll(&shards[first.wrapping_add(at) % shards.len()], cx) {
                Poll::Ready(None) => {}
                Poll::Ready(next) => return Poll::Ready(next),
                Poll::Pending => is_over = false,
            }
        }
        if is_over { Poll::Ready(None) } else { Poll::Pending }
    }

    /// Opens a link to a neighbour, to be kept for its own sake; resolves after one round trip (two without a `peer`), when the neighbour is authenticated. It may still
    /// decline: then the link goes down ([`Link::closed`]). Dropping the future gives the attempt up.
    ///
    /// # Errors
    /// As [`connect_early`](Self::connect_early).
    pub async fn connect_link(&self, remote: SocketAddr, peer: PublicKey) -> Result<Link, ConnectError> {
        link::connect(self.next(), remote, peer).await
    }

    /// [`connect_link`](Self::connect_link) with a host name: its addresses as [`connect_host`](Self::connect_host) tries them.
    ///
    /// # Errors
    /// As [`connect_host_early`](Self::connect_host_early).
    pub async fn connect_link_host(&self, host: &str, peer: PublicKey) -> Result<Link, ConnectError> {
        connect::link_to_host(self.next(), host, peer).await
    }

    /// The next link that a neighbour opened, whether or not a session comes with it; `None` once the endpoint is closed. The first call
    /// begins with those that are up already. Dropping the future loses nothing.
    pub async fn accept_link(&self) -> Option<Link> {
        poll_fn(|cx| self.poll_each(cx, link::poll_accept)).await
    }

    /// The next link that was refused to a caller which has shown its key, for a log; `None` once the endpoint is closed. Dropping the future loses nothing.
    pub async fn refused(&self) -> Option<Refusal> {
        let poll = |shared: &Arc<Shared>, cx: &mut Context<'_>| {
            shared.poll_state(
                cx,
                |state, _| match state.refusals.pop_front() {
                    Some(refusal) => Some(Some(refusal)),
                    None => state.closed.is_some().then_some(None),
                },
                |state| Some(&mut state.accept_wakers),
            )
        };
        poll_fn(|cx| self.poll_each(cx, poll)).await
    }

    /// The address that the socket is bound to, with the port that the system chose; the first of several.
    pub fn local_addr(&self) -> SocketAddr {
        self.first().bound().local()
    }

    /// The addresses of all sockets, in the order in which they were asked for.
    pub fn local_addrs(&self) -> Vec<SocketAddr> {
        self.first().bound().locals.to_vec()
    }

    /// Goes on from another local address: a new socket takes the place of the old one, every link shows its neighbour where it is now, and what is
    /// under way goes on, after about a round trip. An endpoint on the unspecified address (`[::]`, `0.0.0.0`, and every
    /// [`client`](Self::client)) needs this only for another port: when the host's addresses change it follows by itself. Of several sockets one is left.
    ///
    /// # Errors
    /// As [`bind`](Self::bind); then everything stays as it was.
    pub fn rebind(&self, addr: SocketAddr) -> Result<(), BindError> {
        tokio::runtime::Handle::try_current().map_err(|_| BindError::NoRuntime)?;
        let sockets = Sockets::bind_shards(&[addr], self.inner.wishes, self.shards().len(), false)?;
        sockets[0].steer(self.inner.steering);
        self.shards().iter().zip(sockets).for_each(|(shard, sockets)| shard.replace_sockets(sockets));
        Ok(())
    }

    /// Ends all sessions at once with this code, without waiting for what is undelivered, and takes no more. For a graceful end close the
    /// sessions first.
    pub fn close(&self, code: u64, reason: &str) {
        for shard in self.shards() {
            let mut state = shard.lock();
            let now = state.now;
            state.shut_down(now, CloseReason::application(code, reason));
        }
    }

    /// Waits until no session and no link is left and the farewells are sent. A program that ends right after closing should wait for it.
    pub async fn wait_idle(&self) {
        poll_fn(|cx| {
            let is_settled = |shared: &Arc<Shared>| {
                shared.poll_state(cx, |state, _| state.is_settled().then_some(()), |state| Some(&mut state.idle_wakers)).is_ready()
            };
            // All have to be quiet at one look, and each that is not wakes this task.
            if self.shards().iter().map(is_settled).fold(true, |all, is_settled| all & is_settled) {
                Poll::Ready(())
            } else {
                Poll::Pending
            }
        })
        .await;
    }

    /// What the socket has done and the node holds.
    pub fn stats(&self) -> EndpointStats {
        let (buffers, shards) = (self.first().bound().buffers, self.shards().len());
        let mut stats = EndpointStats { buffers, shards, ..EndpointStats::default() };
        for (shard, c) in self.shards().iter().zip(&self.inner.counters) {
            stats.sent_datagrams += c.sent_datagrams.load(Relaxed);
            stats.sent_bytes += c.sent_bytes.load(Relaxed);
            stats.sent_trains += c.sent_trains.load(Relaxed);
            stats.received_datagrams += c.received_datagrams.load(Relaxed);
            stats.received_bytes += c.received_bytes.load(Relaxed);
            stats.send_blocked += c.send_blocked.load(Relaxed);
            stats.send_errors += c.send_errors.load(Relaxed);
            stats.recv_errors += c.recv_errors.load(Relaxed);
            stats.astray += c.astray.load(Relaxed);
            let state = shard.lock();
            let memory = state.node.memory();
            // Shards have their peaks at different times: all together had no more.
            let (used, peak) = (stats.memory.used + memory.used, stats.memory.peak + memory.peak);
            stats.memory = Memory { used, peak, limit: memory.limit };
            stats.refused += state.node.counters();
        }
        stats
    }
}

impl Endpoint {
    /// Parts with a lock and a driver of their own.
    pub(crate) fn shards(&self) -> &[Arc<Shared>] {
        &self.inner.shards
    }

    /// The only one, where there is one.
    pub(crate) fn first(&self) -> &Arc<Shared> {
        &self.inner.shards[0]
    }

    /// The one that calls next.
    fn next(&self) -> &Arc<Shared> {
        let shards = &self.inner.shards;
        &shards[if shards.len() == 1 { 0 } else { self.inner.calls.fetch_add(1, Relaxed) % shards.len() }]
    }
}

impl Drop for Inner {
    fn drop(&mut self) {
        for shard in &*self.shards {
            let mut state = shard.lock();
            let now = state.now;
            state.is_orphan = true;
            while let Some(session) = state.incoming.pop() {
                state.orphan_session(now, session, Duration::ZERO);
            }
            state.kick();
        }
    }
}

async fn accepted(session: Session) -> Result<Session, ConnectError> {
    session.accepted().await?;
    Ok(session)
}

impl std::fmt::Debug for Endpoint {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Endpoint").field("local", &self.local_addr()).finish_non_exhaustive()
    }
}

#[cfg(all(test, target_os = "linux"))]
mod tests {
    use super::*;

    fn config() -> EndpointConfig {
        EndpointConfig::ephemeral().unwrap()
    }

    async fn within<T>(future: impl Future<Output = T>) -> T {
        tokio::time::timeout(Duration::from_secs(20), future).await.expect("finished in time")
    }

    /// Regression: a shard whose driver panicked left an endpoint that accepted calls of the other shards only.
    #[tokio::test]
    async fn an_endpoint_that_loses_a_driver_ends_whole() {
        let server = Endpoint::bind((Ipv4Addr::LOCALHOST, 0).into(), config().with_shards(3)).unwrap();
        server.inner.drivers[1].abort();
        assert!(within(server.accept()).await.is_none());
        within(server.wait_idle()).await;
        assert!(server.shards().iter().all(|shard| shard.lock().closed.is_some()));
    }

    /// Regression: where sockets cannot share a port an endpoint in several shards did not start.
    #[tokio::test]
    async fn an_endpoint_has_one_shard_where_sockets_cannot_share_a_port() {
        // At once, when another socket was to have the address, and after one had it.
        for granted in [0, 1, 2] {
            steer::refusal::after(granted);
            let server = Endpoint::bind((Ipv4Addr::LOCALHOST, 0).into(), config().with_shards(4)).unwrap();
            steer::refusal::after(u32::MAX);
            assert_eq!(server.stats().shards, 1);
            let beside = socket2::Socket::new(socket2::Domain::IPV4, socket2::Type::DGRAM, None).unwrap();
            beside.set_reuse_port(true).unwrap();
            assert!(beside.bind(&server.local_addr().into()).is_err(), "its port is not shared");
            let client = Endpoint::bind((Ipv4Addr::LOCALHOST, 0).into(), config().with_shards(2)).unwrap();
            assert_eq!(client.stats().shards, 2);
            within(client.connect(server.local_addr(), None)).await.expect("it answers");
            // One that has several stays where it is rather than lose some.
            let before = client.local_addr();
            steer::refusal::after(0);
            assert!(client.rebind((Ipv4Addr::LOCALHOST, 0).into()).is_err());
            steer::refusal::after(u32::MAX);
            assert_eq!(client.local_addr(), before);
        }
    }
}

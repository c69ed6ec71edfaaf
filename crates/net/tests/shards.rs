//! An endpoint in several shards: links use all of them, stay where they are when they move, and nothing depends on the kernel's filter (docs/decisions/0212).
#![cfg(target_os = "linux")]

mod support;

use noctule::{BindError, Code, Endpoint, EndpointConfig, FlowOptions, IncomingFlow, MessageOptions, Session};
use std::collections::BTreeSet;
use std::net::{Ipv6Addr, SocketAddr, UdpSocket};
use support::*;

const SHARDS: usize = 4;

fn server(addr: &str) -> Endpoint {
    bind(addr, config(2).with_shards(SHARDS))
}

/// Sends so many bytes over a session, and reads them at the other end; the shard there.
async fn carry(ours: &Session, theirs: &Session, bytes: usize) -> u64 {
    let data = pattern(bytes, 7);
    let sending = async {
        let mut stream = ours.open_uni(FlowOptions::default()).expect("a flow");
        stream.write_all(&data).await.expect("written");
        stream.finish().await.expect("delivered");
    };
    let receiving = async {
        match theirs.accept_flow().await.expect("a flow") {
            IncomingFlow::Stream { mut recv, .. } => (recv.id(), recv.read_to_end(bytes).await.expect("read")),
            other => panic!("unexpected {other:?}"),
        }
    };
    let ((), (id, read)) = within(async { tokio::join!(sending, receiving) }).await;
    assert_eq!(read, data);
    id.expect("a flow has a name").0 % SHARDS as u64
}

/// Sessions of one client, each with a link of its own.
async fn sessions(client: &Endpoint, to: SocketAddr, server: &Endpoint, count: usize) -> Vec<(Session, Session)> {
    let mut all = Vec::new();
    for _ in 0..count {
        all.push(join(client, to, server).await);
    }
    all
}

/// The shards of the server that sessions are in.
async fn shards_of(sessions: &[(Session, Session)]) -> Vec<u64> {
    let mut shards = Vec::new();
    for (ours, theirs) in sessions {
        shards.push(carry(ours, theirs, 100).await);
    }
    shards
}

fn are_several(shards: &[u64]) -> bool {
    shards.iter().any(|shard| *shard != shards[0])
}

/// A further socket on an address that sockets share.
fn beside(addr: SocketAddr) -> std::io::Result<socket2::Socket> {
    let socket = socket2::Socket::new(socket2::Domain::for_address(addr), socket2::Type::DGRAM, None)?;
    socket.set_reuse_port(true)?;
    socket.bind(&addr.into())?;
    Ok(socket)
}

/// From now on all datagrams come to the first socket of an address: another filter takes the place of the endpoint's own.
fn without_steering(addr: SocketAddr) {
    let socket = beside(addr).unwrap();
    let mut code = libc::sock_filter { code: (libc::BPF_RET | libc::BPF_K) as u16, jt: 0, jf: 0, k: 0 };
    let program = libc::sock_fprog { len: 1, filter: &raw mut code };
    use std::os::fd::AsRawFd;
    // SAFETY: a live descriptor, and a program that outlives the call.
    let result = unsafe {
        libc::setsockopt(
            socket.as_raw_fd(),
            libc::SOL_SOCKET,
            libc::SO_ATTACH_REUSEPORT_CBPF,
            (&raw const program).cast(),
            size_of::<libc::sock_fprog>() as libc::socklen_t,
        )
    };
    assert_eq!(result, 0, "{}", std::io::Error::last_os_error());
}

async fn links_are_divided(bound: &str, to: &str) {
    let (client, server) = (bind(to, config(1)), server(bound));
    let at = SocketAddr::new(client.local_addr().ip(), server.local_addr().port());
    // One socket of the client for all: its trains have packets for several shards.
    let sessions = sessions(&client, at, &server, 12).await;
    let shards = shards_of(&sessions).await;
    assert!(are_several(&shards), "twelve links are in one shard once in four million runs");
    within(futures_util::future::join_all(sessions.iter().map(|(ours, theirs)| async {
        carry(ours, theirs, 300_000).await;
        carry(theirs, ours, 100_000).await;
    })))
    .await;
    let stats = server.stats();
    assert_eq!(stats.astray, 0, "the kernel gives each datagram to its shard: {stats:?}");
    // The client goes on from another port, under other labels.
    client.rebind(to.parse().unwrap()).unwrap();
    for (ours, theirs) in &sessions {
        carry(ours, theirs, 20_000).await;
        assert_eq!(theirs.remote_address(), Some(client.local_addr()));
    }
    let stats = server.stats();
    assert_eq!((shards_of(&sessions).await, stats.astray, stats.refused.unknown), (shards, 0, 0));
    for (ours, _) in &sessions {
        assert!(within(ours.close(0, "")).await.all_delivered);
    }
    within(client.wait_idle()).await;
    server.close(0, "");
    within(server.wait_idle()).await;
}

#[tokio::test]
async fn links_are_divided_over_ipv4_and_stay_when_the_caller_moves() {
    links_are_divided("127.0.0.1:0", "127.0.0.1:0").await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn links_are_divided_over_ipv6_and_stay_when_the_caller_moves() {
    if UdpSocket::bind((Ipv6Addr::LOCALHOST, 0)).is_err() {
        eprintln!("skipped: no IPv6 on this host");
        return;
    }
    links_are_divided("[::1]:0", "[::1]:0").await;
}

#[tokio::test]
async fn links_are_divided_by_a_socket_of_both_families() {
    if UdpSocket::bind((Ipv6Addr::UNSPECIFIED, 0)).is_err() {
        eprintln!("skipped: no IPv6 on this host");
        return;
    }
    links_are_divided("[::]:0", "127.0.0.1:0").await;
}

#[tokio::test]
async fn nothing_depends_on_the_filter() {
    let (client, server) = (bind("127.0.0.1:0", config(1)), server("127.0.0.1:0"));
    without_steering(server.local_addr());
    let sessions = sessions(&client, server.local_addr(), &server, 8).await;
    let shards = shards_of(&sessions).await;
    assert!(are_several(&shards), "{shards:?}");
    within(futures_util::future::join_all(sessions.iter().map(|(ours, theirs)| carry(ours, theirs, 300_000)))).await;
    assert!(server.stats().astray > 0);
    client.rebind("127.0.0.1:0".parse().unwrap()).unwrap();
    for (ours, theirs) in &sessions {
        carry(ours, theirs, 20_000).await;
    }
    assert_eq!(shards_of(&sessions).await, shards);
    for (ours, _) in &sessions {
        assert!(within(ours.close(0, "")).await.all_delivered);
    }
}

#[tokio::test]
async fn a_key_has_its_newest_links_over_all_shards() {
    let mut limited = config(2).with_shards(SHARDS);
    limited.node.max_links_per_key = 4;
    let (client, server) = (bind("127.0.0.1:0", config(1)), bind("127.0.0.1:0", limited));
    let sessions = sessions(&client, server.local_addr(), &server, 12).await;
    for (ours, _) in &sessions[..8] {
        let outcome = within(ours.closed()).await;
        assert!(outcome.reason.code == Code::TooMany && outcome.reason.is_remote, "{outcome:?}");
    }
    for (ours, theirs) in &sessions[8..] {
        carry(ours, theirs, 1000).await;
    }
}

#[tokio::test]
async fn the_backlog_is_one_for_all_shards() {
    let mut limited = config(2).with_shards(SHARDS);
    limited.backlog = 4;
    let (client, server) = (bind("127.0.0.1:0", config(1)), bind("127.0.0.1:0", limited));
    // Told or not, what found no place is never accepted.
    let mut sessions = Vec::new();
    for _ in 0..12 {
        let session = within(client.connect_early(server.local_addr(), Some(key_of(2)))).await.expect("connected");
        let flow = session.open_messages(FlowOptions::default()).expect("a flow");
        let _ = within(flow.send("hello".into(), MessageOptions::default())).await;
        if let Err(error) = within(session.accepted()).await {
            assert!(error.to_string().contains("waiting to be accepted"), "{error}");
        }
        sessions.push((session, flow));
    }
    let mut accepted = Vec::new();
    for _ in 0..4 {
        accepted.push(within(server.accept()).await.expect("open"));
    }
    let more = tokio::time::timeout(std::time::Duration::from_millis(200), server.accept()).await;
    assert!(more.is_err(), "{more:?}");
}

#[tokio::test]
async fn a_port_that_another_endpoint_has_is_refused_and_one_that_is_over_is_free() {
    let first = server("127.0.0.1:0");
    let addr = first.local_addr();
    for shards in [1, SHARDS] {
        assert!(matches!(Endpoint::bind(addr, config(3).with_shards(shards)), Err(BindError::InUse(at)) if at == addr), "{shards}");
    }
    let client = bind("127.0.0.1:0", config(1));
    let sessions = sessions(&client, addr, &first, 6).await;
    // Handles of sessions outlive that of the endpoint; with the last the port is free.
    drop(first);
    carry(&sessions[0].0, &sessions[0].1, 1000).await;
    for (ours, theirs) in sessions {
        within(ours.close(0, "")).await;
        drop(theirs);
    }
    let free = async {
        while UdpSocket::bind(addr).is_err() {
            tokio::time::sleep(std::time::Duration::from_millis(20)).await;
        }
    };
    within(free).await;
}

#[tokio::test]
async fn an_endpoint_that_goes_on_elsewhere_takes_all_its_shards_along() {
    let (client, server) = (bind("127.0.0.1:0", config(1)), server("127.0.0.1:0"));
    let sessions = sessions(&client, server.local_addr(), &server, 8).await;
    let before = server.local_addr();
    server.rebind("127.0.0.1:0".parse().unwrap()).unwrap();
    assert_ne!(server.local_addr(), before);
    for (ours, theirs) in &sessions {
        carry(theirs, ours, 20_000).await;
        carry(ours, theirs, 20_000).await;
    }
    assert_eq!(server.stats().astray, 0);
}

#[tokio::test]
async fn links_are_accepted_and_called_from_all_shards_and_the_end_is_told_once() {
    let (caller, called) = (bind("127.0.0.1:0", config(1).with_shards(3)), server("127.0.0.1:0"));
    let (mut ours, mut theirs) = (Vec::new(), Vec::new());
    for _ in 0..9 {
        let (mine, its) = within(async { tokio::join!(caller.connect_link(called.local_addr(), key_of(2)), called.accept_link()) }).await;
        ours.push(mine.expect("connected"));
        theirs.push(its.expect("open"));
    }
    let names: BTreeSet<u64> = ours.iter().map(|link| link.id().0 % 3).collect();
    assert_eq!(names.len(), 3, "each shard calls in turn");
    called.close(5, "enough");
    for link in &ours {
        assert_eq!(within(link.closed()).await.application, 5);
    }
    assert!(
        within(called.accept()).await.is_none() && within(called.accept_link()).await.is_none() && within(called.refused()).await.is_none()
    );
    within(called.wait_idle()).await;
    within(caller.wait_idle()).await;
}

#[tokio::test]
async fn what_needs_all_links_in_one_place_has_one_shard() {
    let mut one = config(2).with_shards(SHARDS);
    one.node.one_process_per_key = true;
    let server = bind("127.0.0.1:0", one);
    assert!(beside(server.local_addr()).is_err(), "its port is not shared");
    assert!(beside(self::server("127.0.0.1:0").local_addr()).is_ok());
    assert_eq!(EndpointConfig::ephemeral().unwrap().shards, 1);
}

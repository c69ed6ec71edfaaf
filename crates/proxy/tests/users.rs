//! Users of a server: rates by credit, quotas, connections at a time, and what their owner does with them.

mod support;

use noctule_proxy::{Account, End, Limits, Outcome, Period, Quota, Rules};
use std::net::SocketAddr;
use std::time::Instant;
use support::*;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};

const RATE: u64 = 400_000;
/// What passes at once: a quarter of a second.
const BURST: u64 = RATE / 4;

fn open() -> Rules {
    Rules { allow_private: true, ..Rules::default() }
}

/// The client of a pair, as a user.
fn user(limits: Limits) -> Account {
    let key = noctule::SecretKey::from_bytes([1; 32]).public();
    Account { name: "ann".into(), keys: vec![key], limits: Limits { rules: open(), max_connections: 10, ..limits } }
}

async fn pair(limits: Limits) -> Pair {
    Pair::allowing(Allowed { accounts: vec![user(limits)], ..Allowed::default() }).await
}

/// Says without an end, and counts nothing.
async fn source() -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    tokio::spawn(async move {
        while let Ok((mut tcp, _)) = listener.accept().await {
            tokio::spawn(async move { while tcp.write_all(&[7; 16 << 10]).await.is_ok() {} });
        }
    });
    address
}

/// Reads for ever.
async fn sink() -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    tokio::spawn(async move {
        while let Ok((mut tcp, _)) = listener.accept().await {
            tokio::spawn(async move {
                let mut buffer = vec![0; 64 << 10];
                while tcp.read(&mut buffer).await.is_ok_and(|len| len > 0) {}
            });
        }
    });
    address
}

/// However fast or slow this host is, no more than this has passed.
fn most(began: Instant) -> u64 {
    BURST + (RATE as f64 * began.elapsed().as_secs_f64()) as u64
}

#[tokio::test]
async fn the_rate_of_a_user_holds_over_all_its_connections_and_nothing_is_lost() {
    let (pair, target) = (pair(Limits { rate_down: Some(RATE), ..Limits::default() }).await, source().await);
    let (_listener, address) = pair.leads_to(target);
    let began = Instant::now();
    let mut clients = Vec::new();
    for _ in 0..3 {
        clients.push(within(TcpStream::connect(address)).await.unwrap());
    }
    let (mut passed, mut buffer) = (0, vec![0; 16 << 10]);
    let wanted = BURST + 2 * RATE;
    while passed < wanted {
        let [a, b, c] = &mut clients[..] else { unreachable!() };
        let mut parts = [vec![0; 16 << 10], vec![0; 16 << 10]];
        let [second, third] = &mut parts;
        let len = within(async {
            tokio::select! { len = a.read(&mut buffer) => len, len = b.read(second) => len, len = c.read(third) => len }
        });
        let len = len.await.unwrap();
        assert!(len > 0);
        passed += len as u64;
        assert!(passed <= most(began), "{passed} in {:?}", began.elapsed());
    }
    // The other bound: that it is not much slower is for a host that has nothing else to do, and so measured with the clock stopped (rate.rs).
    let user = pair.far.snapshot().users.remove(0);
    assert!(user.down >= wanted && user.down <= most(began) + 3 * RATE / 10, "{user:?}");
    assert_eq!((user.name.as_str(), user.connections, user.sessions, user.max_rate_down), ("ann", 3, 1, Some(RATE)));
}

#[tokio::test]
async fn a_slow_user_is_slow_to_its_targets_too_and_a_new_rate_holds_for_what_is_there() {
    let (pair, target) = (pair(Limits { rate_up: Some(RATE), ..Limits::default() }).await, sink().await);
    let (_listener, address) = pair.leads_to(target);
    let began = Instant::now();
    let mut client = within(TcpStream::connect(address)).await.unwrap();
    let writer = tokio::spawn(async move { while client.write_all(&[7; 16 << 10]).await.is_ok() {} });
    let up = || pair.far.snapshot().users[0].up;
    until("the burst and a second's bytes have passed", || up() > BURST + RATE).await;
    // One chunk may be counted and wait.
    assert!(up() <= most(began) + RATE / 10, "{} in {:?}", up(), began.elapsed());
    pair.far.configure(Limits::default(), vec![user(Limits::default())]);
    let (before, began) = (up(), Instant::now());
    // No old rate would give that much in the time that a test is waited for.
    until("without a limit", || up() > before + RATE * PATIENCE.as_secs()).await;
    assert!(began.elapsed() < PATIENCE && pair.far.open() == 1, "and the connection is the same");
    writer.abort();
}

#[tokio::test]
async fn a_quota_ends_connections_and_says_so_to_new_ones() {
    let quotas = vec![Quota { period: Period::Day, bytes: 300_000 }];
    let (pair, target) = (pair(Limits { quotas, ..Limits::default() }).await, source().await);
    let (_listener, address) = pair.leads_to(target);
    let mut client = within(TcpStream::connect(address)).await.unwrap();
    let (mut passed, mut buffer) = (0, vec![0; 64 << 10]);
    loop {
        match within(client.read(&mut buffer)).await {
            Ok(0) => panic!("an orderly end"),
            Ok(len) => passed += len,
            Err(error) => {
                assert_eq!(error.kind(), std::io::ErrorKind::ConnectionReset);
                break;
            }
        }
    }
    assert!(passed <= 300_000 + (64 << 10), "{passed}");
    until("told", || !pair.far_reports.lock().unwrap().is_empty()).await;
    let end = pair.far_reports.lock().unwrap()[0].clone();
    assert!(matches!(&end.end, End::Closed(why) if why.contains("quota of 300000 bytes per day is used up")), "{end:?}");
    assert_eq!((end.user.as_deref(), end.rule.as_deref()), (Some("ann"), Some("allow-private")));
    assert!(end.from_target >= 300_000 && end.wire.sent.is_some(), "{end:?}");
    let (_front, front) = pair.front();
    let mut http = within(TcpStream::connect(front)).await.unwrap();
    http.write_all(format!("CONNECT {target} HTTP/1.1\r\n\r\n").as_bytes()).await.unwrap();
    let mut answer = String::new();
    within(http.read_to_string(&mut answer)).await.unwrap();
    assert!(answer.starts_with("HTTP/1.1 403 ") && answer.contains("used up; it begins again at midnight"), "{answer}");
    let mut socks = within(TcpStream::connect(front)).await.unwrap();
    socks.write_all(&[5, 1, 0, 5, 1, 0, 1, 127, 0, 0, 1, 0, 80]).await.unwrap();
    let mut answer = [0; 4];
    within(socks.read_exact(&mut answer)).await.unwrap();
    assert_eq!(answer, [5, 0, 5, 2]);
    assert_eq!(pair.far.snapshot().users[0].refused, 2);
    assert!(pair.far.usage()["ann"].total >= 300_000);
}

#[tokio::test]
async fn the_owner_ends_connections_and_what_new_rules_forbid_ends_and_nothing_else() {
    let (pair, one, other) = (pair(Limits::default()).await, source().await, source().await);
    let ((_a, to_one), (_b, to_other)) = (pair.leads_to(one), pair.leads_to(other));
    let mut clients = Vec::new();
    for address in [to_one, to_one, to_other] {
        let mut client = within(TcpStream::connect(address)).await.unwrap();
        within(client.read_exact(&mut [0; 100])).await.unwrap();
        clients.push(client);
        until("there", || pair.far.connections().len() == clients.len()).await;
    }
    let view = pair.far.connections();
    assert_eq!((view[0].target.clone(), view[0].address.clone()), (one.to_string(), Some(one.to_string())));
    assert!(view[2].down > 0 && view[2].user == "ann", "{view:?}");
    let ids: Vec<u64> = view.iter().map(|connection| connection.id).collect();
    assert!(pair.far.kick_connection(ids[0]) && !pair.far.kick_connection(999_999));
    until("one is gone", || pair.far.open() == 2).await;
    let denied = |port: u16| {
        let rule = noctule_proxy::Rule { allows: false, pattern: format!("all:{port}").parse().unwrap() };
        let mut account = user(Limits::default());
        account.limits.rules.rules.push(rule);
        account
    };
    pair.far.configure(Limits::default(), vec![denied(one.port())]);
    until("what is forbidden is gone", || pair.far.open() == 1).await;
    assert_eq!(pair.far.connections()[0].id, ids[2]);
    let ends: Vec<String> = pair.far_reports.lock().unwrap().iter().map(|report| report.end.to_string()).collect();
    assert_eq!(ends, ["ended by the server's owner", "the rules do not allow it any more"]);
    let mut denied = within(TcpStream::connect(to_one)).await.unwrap();
    assert!(within(denied.read(&mut [0])).await.is_err());
    until("told", || pair.far_reports.lock().unwrap().len() == 3).await;
    let report = pair.far_reports.lock().unwrap()[2].clone();
    assert!(matches!(&report.end, End::Refused(answer) if answer.outcome == Outcome::Denied), "{report:?}");
    assert_eq!(report.rule, Some(format!("deny all:{}", one.port())));
    assert_eq!(pair.far.kick_user("nobody"), None);
    assert_eq!(pair.far.kick_user("ann"), Some((1, 1)));
    until("all is gone", || pair.far.open() == 0 && pair.session.close_reason().is_some()).await;
}

/// Bytes of which each four say where they are.
fn numbered(len: u32) -> Vec<u8> {
    (0..len / 4).flat_map(u32::to_be_bytes).collect()
}

/// Reads until the connection is reset.
async fn read_to_reset(client: &mut TcpStream) -> Vec<u8> {
    let (mut all, mut buffer) = (Vec::new(), vec![0; 64 << 10]);
    loop {
        match within(client.read(&mut buffer)).await {
            Ok(0) => panic!("an orderly end after {}", all.len()),
            Ok(len) => all.extend_from_slice(&buffer[..len]),
            Err(_) => return all,
        }
    }
}

#[tokio::test]
async fn what_a_target_said_before_its_reset_has_no_hole_while_it_waits_for_its_rate() {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let target = listener.local_addr().unwrap();
    let says = numbered(2 * RATE as u32);
    let said = says.clone();
    tokio::spawn(async move {
        let (mut tcp, _) = listener.accept().await.unwrap();
        tcp.write_all(&said[..3 * BURST as usize]).await.unwrap();
        // Those that are read wait now, and more is in the socket.
        tokio::time::sleep(std::time::Duration::from_millis(300)).await;
        socket2::SockRef::from(&tcp).set_linger(Some(std::time::Duration::ZERO)).unwrap();
    });
    let pair = pair(Limits { rate_down: Some(RATE), ..Limits::default() }).await;
    let (_listener, address) = pair.leads_to(target);
    let mut client = within(TcpStream::connect(address)).await.unwrap();
    let got = read_to_reset(&mut client).await;
    assert!(got.len() > BURST as usize / 2 && says.starts_with(&got), "{} bytes, with a hole", got.len());
}

#[tokio::test]
async fn what_a_quota_has_counted_arrives_also_at_a_rate() {
    let quotas = vec![Quota { period: Period::Total, bytes: 3 * BURST }];
    let (pair, target) = (pair(Limits { quotas, rate_down: Some(RATE), ..Limits::default() }).await, source().await);
    let (_listener, address) = pair.leads_to(target);
    let mut client = within(TcpStream::connect(address)).await.unwrap();
    let got = read_to_reset(&mut client).await;
    until("told", || !pair.far_reports.lock().unwrap().is_empty()).await;
    assert_eq!(pair.far_reports.lock().unwrap()[0].from_target, got.len() as u64);
}

#[tokio::test]
async fn a_connection_does_not_keep_the_limits_of_a_user_that_its_key_is_no_more() {
    let (pair, target) = (pair(Limits { rate_down: Some(RATE), ..Limits::default() }).await, source().await);
    let (_listener, address) = pair.leads_to(target);
    let mut client = within(TcpStream::connect(address)).await.unwrap();
    within(client.read_exact(&mut [0; 1000])).await.unwrap();
    let renamed = Account { name: "bobby".into(), ..user(Limits { rate_down: Some(RATE), ..Limits::default() }) };
    pair.far.configure(Limits::default(), vec![renamed]);
    read_to_reset(&mut client).await;
    until("told", || !pair.far_reports.lock().unwrap().is_empty()).await;
    let end = pair.far_reports.lock().unwrap()[0].clone();
    assert!(matches!(&end.end, End::Closed(why) if why.contains("belongs to another user")), "{end:?}");
}

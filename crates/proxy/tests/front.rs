//! SOCKS 4, 4a, 5 and HTTP on one port, by bytes that are written by hand; what may be reached, and how it is told what may not.

mod support;

use noctule_proxy::{End, Near, Outcome, Rules};
use std::net::SocketAddr;
use std::time::Duration;
use support::*;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream, UdpSocket};

/// Sends back what it gets, and ends when its client does.
async fn echo() -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    tokio::spawn(async move {
        while let Ok((mut tcp, _)) = listener.accept().await {
            tokio::spawn(async move {
                let (mut read, mut write) = tcp.split();
                let _ = tokio::io::copy(&mut read, &mut write).await;
                let _ = write.shutdown().await;
            });
        }
    });
    address
}

/// What is answered to these bytes, up to the end, with "ping" and an end behind them.
async fn ask(front: SocketAddr, bytes: &[u8]) -> Vec<u8> {
    within(async {
        let mut tcp = TcpStream::connect(front).await.unwrap();
        tcp.write_all(bytes).await.unwrap();
        tcp.write_all(b"ping").await.unwrap();
        tcp.shutdown().await.unwrap();
        let mut answer = Vec::new();
        tcp.read_to_end(&mut answer).await.unwrap();
        answer
    })
    .await
}

fn socks5(target: &str, port: u16) -> Vec<u8> {
    let mut bytes = vec![5, 1, 0, 5, 1, 0, 3, target.len() as u8];
    bytes.extend(target.as_bytes());
    bytes.extend(port.to_be_bytes());
    bytes
}

#[tokio::test]
async fn every_tongue_leads_to_the_target() {
    let (pair, target) = (Pair::new().await, echo().await);
    let (_listener, front) = pair.front();
    let port = target.port();
    let [high, low] = port.to_be_bytes();
    // The reply of SOCKS 5 has the address at the far end.
    let answer = ask(front, &socks5("localhost", port)).await;
    assert_eq!((&answer[..6], &answer[answer.len() - 4..]), (&[5, 0, 5, 0, 0, 1][..], &b"ping"[..]));
    let answer = ask(front, &[5, 2, 2, 0, 5, 1, 0, 1, 127, 0, 0, 1, high, low]).await;
    assert_eq!((&answer[..5], &answer[12..]), (&[5, 0, 5, 0, 0][..], &b"ping"[..]));
    let answer = ask(front, &[4, 1, high, low, 127, 0, 0, 1, b'm', b'e', 0]).await;
    assert_eq!(answer, b"\0\x5a\0\0\0\0\0\0ping");
    let answer = ask(front, &[&[4, 1, high, low, 0, 0, 0, 7, 0][..], b"localhost\0"].concat()).await;
    assert_eq!(answer, b"\0\x5a\0\0\0\0\0\0ping");
    let answer = ask(front, format!("CONNECT localhost:{port} HTTP/1.1\r\nHost: x\r\n\r\n").as_bytes()).await;
    assert_eq!(answer, b"HTTP/1.1 200 Connection established\r\n\r\nping");
    // The echo answers a plain request with the request as it reached it.
    let answer = ask(front, format!("POST http://localhost:{port}/a HTTP/1.1\r\nHost: h\r\nContent-Length: 4\r\n\r\n").as_bytes()).await;
    let head = format!("POST /a HTTP/1.1\r\nHost: localhost:{port}\r\nContent-Length: 4\r\nConnection: close\r\n\r\nping");
    assert_eq!(String::from_utf8(answer).unwrap(), head);
    // What follows it may be a request for another host, and is not for this one.
    let answer = ask(front, format!("GET http://localhost:{port}/a HTTP/1.1\r\n\r\nGET http://other/ HTTP/1.1\r\n\r\n").as_bytes()).await;
    assert!(!String::from_utf8_lossy(&answer).contains("other"), "{answer:?}");
    until("all are forgotten", || pair.far.open() == 0).await;
}

#[tokio::test]
async fn clients_that_say_nothing_keep_no_others_out() {
    let (pair, target) = (Pair::new().await, echo().await);
    let (_listener, front) = pair.front();
    let mut idle = Vec::new();
    for n in 0..300 {
        let mut tcp = within(TcpStream::connect(front)).await.unwrap();
        // A beginning is no request.
        tcp.write_all(&[5, 1][..n % 3 % 2]).await.unwrap();
        idle.push(tcp);
    }
    // The first that came have given way.
    for tcp in &mut idle[..300 - 256] {
        assert!(!matches!(within(tcp.read(&mut [0; 1])).await, Ok(1..)));
    }
    let answer = ask(front, &[4, 1, target.port().to_be_bytes()[0], target.port().to_be_bytes()[1], 127, 0, 0, 1, 0]).await;
    assert_eq!(answer, b"\0\x5a\0\0\0\0\0\0ping");
}

#[tokio::test]
async fn refusals_are_told_in_each_tongue() {
    let pair = Pair::new().await;
    let (_listener, front) = pair.front();
    let free = TcpListener::bind("127.0.0.1:0").await.unwrap().local_addr().unwrap().port();
    let [high, low] = free.to_be_bytes();
    assert_eq!(ask(front, &socks5("127.0.0.1", free)).await[..4], [5, 0, 5, 5]);
    assert_eq!(ask(front, &socks5("no.such.name.invalid", 80)).await[..4], [5, 0, 5, 4]);
    assert_eq!(ask(front, &[4, 1, high, low, 127, 0, 0, 1, 0]).await, [0, 0x5b, 0, 0, 0, 0, 0, 0]);
    let text = |answer: Vec<u8>| String::from_utf8(answer).unwrap();
    let answer = text(ask(front, format!("CONNECT 127.0.0.1:{free} HTTP/1.1\r\n\r\n").as_bytes()).await);
    assert!(answer.starts_with("HTTP/1.1 502 ") && answer.ends_with("connection refused\n"), "{answer}");
    let answer = text(ask(front, b"GET / HTTP/1.1\r\nHost: h\r\n\r\n").await);
    assert!(answer.starts_with("HTTP/1.1 400 ") && answer.contains("this is a proxy"), "{answer}");
    // BIND, no method that we have, an address of no type: each has its answer.
    assert_eq!(ask(front, &[5, 1, 0, 5, 2, 0, 1, 127, 0, 0, 1, 0, 80]).await[..4], [5, 0, 5, 7]);
    assert_eq!(ask(front, &[5, 1, 2]).await, [5, 0xff]);
    assert_eq!(ask(front, &[5, 1, 0, 5, 1, 0, 9]).await[..4], [5, 0, 5, 8]);
    // A scan of the port gets no answer at all.
    assert_eq!(ask(front, &[0x16, 3, 1, 0]).await, b"");
    until("refused ones are forgotten", || pair.far.open() == 0).await;
}

#[tokio::test]
async fn what_the_rules_deny_is_not_reached() {
    let target = echo().await;
    let rules = Rules::default();
    let pair = Pair::allowing(Allowed { rules, ..Allowed::default() }).await;
    let (_listener, front) = pair.front();
    for host in ["127.0.0.1", "localhost", "::1", "[::ffff:127.0.0.1]", "0.0.0.0", "2130706433", "0x7f.1"] {
        let answer = ask(front, &socks5(host, target.port())).await;
        assert_eq!(answer[..4], [5, 0, 5, 2], "{host}");
    }
    let answer = ask(front, format!("CONNECT {target} HTTP/1.1\r\n\r\n").as_bytes()).await;
    let answer = String::from_utf8(answer).unwrap();
    assert!(answer.starts_with("HTTP/1.1 403 ") && answer.contains(&format!("--allow-target {target}")), "{answer}");
    let allowed = noctule_proxy::Rule { allows: true, pattern: format!("localhost:{}", target.port()).parse().unwrap() };
    let pair = Pair::allowing(Allowed { rules: Rules { rules: vec![allowed], allow_private: false }, ..Allowed::default() }).await;
    let (_listener, front) = pair.front();
    assert_eq!(ask(front, &socks5("localhost", target.port())).await[..4], [5, 0, 5, 0]);
    assert_eq!(ask(front, &socks5("127.0.0.1", target.port())).await[..4], [5, 0, 5, 2]);
}

#[tokio::test]
async fn a_key_has_so_many_connections_and_others_wait_for_none() {
    let target = echo().await;
    let pair = Pair::allowing(Allowed { max_connections: 2, ..Allowed::default() }).await;
    let (_listener, address) = pair.leads_to(target);
    let mut held = Vec::new();
    for _ in 0..2 {
        let mut tcp = within(TcpStream::connect(address)).await.unwrap();
        tcp.write_all(b"x").await.unwrap();
        within(tcp.read_exact(&mut [0])).await.unwrap();
        held.push(tcp);
    }
    let mut third = within(TcpStream::connect(address)).await.unwrap();
    assert_eq!(within(third.read(&mut [0])).await.unwrap_err().kind(), std::io::ErrorKind::ConnectionReset);
    held.pop();
    until("a place is free", || pair.far.open() < 2).await;
    let mut tcp = within(TcpStream::connect(address)).await.unwrap();
    tcp.write_all(b"x").await.unwrap();
    within(tcp.read_exact(&mut [0])).await.unwrap();
}

#[tokio::test]
async fn datagrams_of_an_association_reach_any_target_and_any_target_answers() {
    let pair = Pair::new().await;
    let (_listener, front) = pair.front();
    let (one, other) = (UdpSocket::bind("127.0.0.1:0").await.unwrap(), UdpSocket::bind("127.0.0.1:0").await.unwrap());
    within(async {
        let mut control = TcpStream::connect(front).await.unwrap();
        control.write_all(&[5, 1, 0, 5, 3, 0, 1, 0, 0, 0, 0, 0, 0]).await.unwrap();
        let mut reply = [0; 12];
        control.read_exact(&mut reply).await.unwrap();
        assert_eq!(reply[..6], [5, 0, 5, 0, 0, 1]);
        let relay = SocketAddr::from(([reply[6], reply[7], reply[8], reply[9]], u16::from_be_bytes([reply[10], reply[11]])));
        let client = UdpSocket::bind("127.0.0.1:0").await.unwrap();
        let port = one.local_addr().unwrap().port().to_be_bytes();
        client.send_to(&[&[0, 0, 0, 3, 9][..], b"localhost", &port, b"hello"].concat(), relay).await.unwrap();
        let mut buffer = [0; 100];
        let (len, source) = one.recv_from(&mut buffer).await.unwrap();
        assert_eq!(&buffer[..len], b"hello");
        // Full cone: any address that knows the port may answer.
        other.send_to(b"from elsewhere", source).await.unwrap();
        let (len, _) = client.recv_from(&mut buffer).await.unwrap();
        let port = other.local_addr().unwrap().port().to_be_bytes();
        assert_eq!(buffer[..len], [&[0, 0, 0, 1, 127, 0, 0, 1][..], &port, b"from elsewhere"].concat());
        // Fragments are dropped, and what comes behind them is not.
        client.send_to(&[&[0, 0, 1, 1, 127, 0, 0, 1][..], &port, b"part"].concat(), relay).await.unwrap();
        client.send_to(&[&[0, 0, 0, 1, 127, 0, 0, 1][..], &port, b"whole"].concat(), relay).await.unwrap();
        let (len, _) = other.recv_from(&mut buffer).await.unwrap();
        assert_eq!(&buffer[..len], b"whole");
        drop(control);
    })
    .await;
    until("the association ends with its connection", || pair.far.open() == 0).await;
    let reports = pair.far_reports.lock().unwrap();
    assert_eq!((reports[0].to_target, reports[0].from_target), (10, 14));
}

#[tokio::test]
async fn datagrams_of_a_forwarded_port_come_back_to_their_source() {
    let pair = Pair::new().await;
    let server = UdpSocket::bind("127.0.0.1:0").await.unwrap();
    let forward = format!("udp:127.0.0.1:0:{}", server.local_addr().unwrap()).parse().unwrap();
    let listener = pair.near.forward(&forward).unwrap();
    within(async {
        for _ in 0..3 {
            let client = UdpSocket::bind("127.0.0.1:0").await.unwrap();
            client.connect(listener.addresses[0]).await.unwrap();
            for size in [0, 1, 1200, 9000] {
                let sent = vec![7; size];
                client.send(&sent).await.unwrap();
                let mut buffer = vec![0; 10_000];
                let (len, source) = server.recv_from(&mut buffer).await.unwrap();
                assert!(buffer[..len] == sent);
                server.send_to(&buffer[..len], source).await.unwrap();
                let len = client.recv(&mut buffer).await.unwrap();
                assert!(buffer[..len] == sent);
            }
        }
    })
    .await;
    assert_eq!(pair.far.open(), 3, "each source has an association");
}

#[tokio::test]
async fn refused_associations_leave_nothing_that_fills_their_session() {
    // Some 2000 flows that nobody took ended a session for all others.
    let pair = Pair::allowing(Allowed { rules: Rules::default(), ..Allowed::default() }).await;
    let listener = pair.near.forward(&"udp:127.0.0.1:0:127.0.0.1:9".parse().unwrap()).unwrap();
    let (_front, front) = pair.front();
    for n in 1..=3000usize {
        let client = UdpSocket::bind("127.0.0.1:0").await.unwrap();
        client.send_to(b"ping", listener.addresses[0]).await.unwrap();
        if n % 100 == 0 {
            until("they are refused", || pair.near_reports.lock().unwrap().len() + 50 >= n).await;
        }
    }
    let answer = ask(front, &socks5("127.0.0.1", 9)).await;
    assert_eq!(&answer[..4], [5, 0, 5, 2], "denied, as before: {answer:?}");
}

#[tokio::test]
async fn associations_have_places_of_their_own_and_succeed_only_where_the_server_took_them() {
    let target = echo().await;
    let pair = Pair::allowing(Allowed { max_connections: 1, ..Allowed::default() }).await;
    let ((_listener, address), (_front, front)) = (pair.leads_to(target), pair.front());
    let mut held = within(TcpStream::connect(address)).await.unwrap();
    held.write_all(b"x").await.unwrap();
    within(held.read_exact(&mut [0])).await.unwrap();
    let associate = async || {
        let mut control = TcpStream::connect(front).await.unwrap();
        control.write_all(&[5, 1, 0, 5, 3, 0, 1, 0, 0, 0, 0, 0, 0]).await.unwrap();
        let mut reply = [0; 4];
        control.read_exact(&mut reply).await.unwrap();
        (control, reply[3])
    };
    let (_first, code) = within(associate()).await;
    assert_eq!(code, 0, "connections take no place from it");
    let (_second, code) = within(associate()).await;
    assert_eq!(code, 1, "a server that has no place for it is not called a success");
}

#[tokio::test]
async fn a_server_that_says_nothing_is_given_up() {
    let (client, server) = (endpoint(3), endpoint(4));
    let address = server.local_addr();
    tokio::spawn(async move {
        let mut sessions = Vec::new();
        while let Some(session) = server.accept().await {
            sessions.push(session);
        }
    });
    let session = within(client.connect_early(address, None)).await.unwrap();
    // Sessions run by the system's clock; the limit is one of this clock, which has nothing else to wait for.
    tokio::time::pause();
    let answer = Near::greet(&session).await.unwrap_err();
    assert_eq!(answer.outcome, Outcome::TimedOut);
    assert!(answer.words().contains("has not answered for 30 s"), "{}", answer.words());
}

#[tokio::test]
async fn more_sources_than_a_port_tells_apart_are_told_once() {
    let pair = Pair::new().await;
    // Their associations wait for another session meanwhile.
    pair.uplink.set(None);
    let listener = pair.near.forward(&"udp:127.0.0.1:0:127.0.0.1:9".parse().unwrap()).unwrap();
    let is_told =
        || pair.near_reports.lock().unwrap().iter().filter(|r| matches!(&r.end, End::Refused(a) if a.outcome == Outcome::Busy)).count();
    let send = async || {
        let client = UdpSocket::bind("127.0.0.1:0").await.unwrap();
        client.send_to(b"ping", listener.addresses[0]).await.unwrap();
        // The port's buffer holds a few hundred.
        tokio::time::sleep(Duration::from_micros(100)).await;
    };
    within(async {
        while is_told() == 0 {
            send().await;
        }
    })
    .await;
    for _ in 0..20 {
        send().await;
    }
    assert_eq!(is_told(), 1);
    let words = pair.near_reports.lock().unwrap()[0].end.to_string();
    assert!(words.contains("960 UDP sources"), "{words}");
}

#[tokio::test]
async fn a_connection_for_which_the_server_has_no_memory_is_told_so_in_each_tongue_and_in_the_log() {
    let pair = Pair::allowing(Allowed { server_memory: 1 << 20, ..Allowed::default() }).await;
    let target = echo().await;
    let (_listener, front) = pair.front();
    let mut open = Vec::new();
    let refusal = within(async {
        loop {
            let mut tcp = TcpStream::connect(front).await.unwrap();
            tcp.write_all(&socks5("localhost", target.port())).await.unwrap();
            let mut answer = [0; 4];
            tcp.read_exact(&mut answer).await.unwrap();
            if answer[3] != 0 {
                return answer;
            }
            open.push(tcp);
        }
    })
    .await;
    assert_eq!(refusal, [5, 0, 5, 1]);
    assert!(open.len() > 10, "{} are open", open.len());
    let http = format!("CONNECT localhost:{} HTTP/1.1\r\n\r\n", target.port());
    let answer = ask(front, http.as_bytes()).await;
    assert!(answer.starts_with(b"HTTP/1.1 503"), "{}", String::from_utf8_lossy(&answer));
    let (_listener, direct) = pair.leads_to(target);
    assert!(within(TcpStream::connect(direct)).await.unwrap().read(&mut [0; 10]).await.is_err(), "reset");
    until("all are in the log", || pair.near_reports.lock().unwrap().len() == 3).await;
    for report in pair.near_reports.lock().unwrap().iter() {
        let End::Refused(answer) = &report.end else { panic!("{report:?}") };
        assert!(answer.outcome == Outcome::Busy && answer.words().contains("no memory for one more"), "{report:?}");
    }
    // Those that are open go on, and make room when they end.
    let mut first = open.swap_remove(0);
    first.write_all(b"ping").await.unwrap();
    let mut echoed = [0; 4];
    let mut rest = Vec::new();
    within(async {
        // The address in the reply.
        while !rest.ends_with(b"ping") {
            let len = first.read(&mut echoed).await.unwrap();
            assert!(len > 0);
            rest.extend_from_slice(&echoed[..len]);
        }
    })
    .await;
    drop((first, open));
    until("there is room again", || pair.near_reports.lock().unwrap().len() > 10).await;
    let answer = ask(front, http.as_bytes()).await;
    assert!(answer.starts_with(b"HTTP/1.1 200"), "{}", String::from_utf8_lossy(&answer));
}

//! Listeners at the server (`-R`), and many connections that end in every way.

mod support;

use noctule_proxy::{Forward, Remote};
use rand_chacha::ChaCha8Rng;
use rand_core::{Rng, SeedableRng};
use socket2::SockRef;
use std::net::SocketAddr;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};
use std::sync::{Arc, Mutex};
use std::time::Duration;
use support::*;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream, UdpSocket};

/// Asks for listeners at the server; what came of each.
async fn listen(pair: &Pair, forwards: &[String]) -> Vec<Remote> {
    let forwards: Vec<Forward> = forwards.iter().map(|f| f.parse().unwrap()).collect();
    let (near, session, told) = (pair.near.clone(), pair.session.clone(), Arc::new(Mutex::new(Vec::new())));
    let (hears, count) = (Arc::clone(&told), forwards.len());
    tokio::spawn(async move { near.serve(session, &forwards, move |remote| hears.lock().unwrap().push(remote.clone())).await });
    until("every listener is answered", || told.lock().unwrap().len() == count).await;
    told.lock().unwrap().clone()
}

fn place(remote: &Remote) -> SocketAddr {
    remote.result.as_ref().unwrap().to_string().parse().unwrap()
}

#[tokio::test]
async fn connections_and_datagrams_of_the_server_come_here() {
    let pair = Pair::new().await;
    let (server, datagrams) = (TcpListener::bind("127.0.0.1:0").await.unwrap(), UdpSocket::bind("127.0.0.1:0").await.unwrap());
    let (tcp, udp) = (server.local_addr().unwrap(), datagrams.local_addr().unwrap());
    let told = listen(&pair, &[format!("127.0.0.1:0:{tcp}"), format!("udp:127.0.0.1:0:{udp}")]).await;
    let find = |is_udp: bool| told.iter().find(|r| r.forward.to_string().starts_with("udp:") == is_udp).map(place).unwrap();
    within(async {
        let mut client = TcpStream::connect(find(false)).await.unwrap();
        client.write_all(b"question").await.unwrap();
        client.shutdown().await.unwrap();
        let (mut accepted, _) = server.accept().await.unwrap();
        let mut question = Vec::new();
        accepted.read_to_end(&mut question).await.unwrap();
        assert_eq!(question, b"question");
        accepted.write_all(b"answer").await.unwrap();
        drop(accepted);
        let mut answer = Vec::new();
        client.read_to_end(&mut answer).await.unwrap();
        assert_eq!(answer, b"answer");
        let client = UdpSocket::bind("127.0.0.1:0").await.unwrap();
        client.send_to(b"ping", find(true)).await.unwrap();
        let mut buffer = [0; 10];
        let (len, from) = datagrams.recv_from(&mut buffer).await.unwrap();
        datagrams.send_to(&buffer[..len], from).await.unwrap();
        let (len, _) = client.recv_from(&mut buffer).await.unwrap();
        assert_eq!(&buffer[..len], b"ping");
    })
    .await;
    let at = find(false);
    pair.session.abort(0, "over");
    within(async {
        while TcpStream::connect(at).await.is_ok() {
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    })
    .await;
}

#[tokio::test]
async fn a_server_listens_only_if_it_may_and_can() {
    let pair = Pair::allowing(Allowed { remote_listen: false, ..Allowed::default() }).await;
    let told = listen(&pair, &["0:localhost:1".into()]).await;
    let words = told[0].result.as_ref().unwrap_err().words();
    assert!(words.contains("--allow-remote-listen"), "{words}");
    let pair = Pair::new().await;
    let taken = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let told = listen(&pair, &[format!("127.0.0.1:{}:localhost:1", taken.local_addr().unwrap().port())]).await;
    let words = told[0].result.as_ref().unwrap_err().words();
    assert!(words.contains("cannot listen on TCP 127.0.0.1:") && words.contains("in use"), "{words}");
}

/// A session that is dead holds its port until the other end notices.
#[tokio::test]
async fn a_port_of_the_server_that_is_held_is_asked_for_again() {
    let pair = Pair::new().await;
    let taken = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let at = taken.local_addr().unwrap();
    let (near, session, told) = (pair.near.clone(), pair.session.clone(), Arc::new(Mutex::new(Vec::<Remote>::new())));
    let (hears, forward) = (Arc::clone(&told), format!("{at}:localhost:1").parse().unwrap());
    tokio::spawn(async move { near.serve(session, &[forward], move |remote| hears.lock().unwrap().push(remote.clone())).await });
    until("it is told that it is taken", || told.lock().unwrap().len() == 1).await;
    assert!(told.lock().unwrap()[0].result.is_err());
    drop(taken);
    until("it listens after all", || told.lock().unwrap().len() == 2).await;
    assert_eq!(place(&told.lock().unwrap()[1]), at);
}

#[tokio::test]
async fn a_port_that_is_taken_here_is_named() {
    let pair = Pair::new().await;
    let taken = TcpListener::bind("127.0.0.1:0").await.unwrap().into_std().unwrap();
    let port = taken.local_addr().unwrap().port();
    let error = pair.near.front(&format!("127.0.0.1:{port}").parse().unwrap()).unwrap_err().to_string();
    assert!(error.contains(&format!("TCP 127.0.0.1:{port}")), "{error}");
}

fn descriptors() -> usize {
    std::fs::read_dir("/proc/self/fd").unwrap().count()
}

/// The content of a connection's one way, by its number.
fn content(number: u64, len: usize) -> Vec<u8> {
    let mut bytes = vec![0; len];
    ChaCha8Rng::seed_from_u64(number).fill_bytes(&mut bytes);
    bytes
}

/// Connections that end in every way: what was sent before an orderly end arrives unchanged, and nothing is left of any of them.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn two_hundred_connections_that_end_in_every_way_leave_nothing_behind() {
    let pair = Pair::new().await;
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let (_port, address) = pair.leads_to(listener.local_addr().unwrap());
    let orderly = Arc::new(AtomicUsize::new(0));
    // The server's side is told by the first bytes what to do: number, length of its content, how it ends.
    tokio::spawn(async move {
        while let Ok((mut tcp, _)) = listener.accept().await {
            tokio::spawn(async move {
                let mut head = [0; 17];
                if tcp.read_exact(&mut head).await.is_err() {
                    return;
                }
                let (number, len) =
                    (u64::from_be_bytes(head[..8].try_into().unwrap()), u64::from_be_bytes(head[8..16].try_into().unwrap()));
                let sent = tcp.write_all(&content(number, len as usize)).await;
                match head[16] {
                    // Ends its side at once, or when the client has ended its own.
                    0 => drop(tcp.shutdown().await),
                    1 => {}
                    _ => {
                        let _ = SockRef::from(&tcp).set_linger(Some(Duration::ZERO));
                        return;
                    }
                }
                let mut rest = Vec::new();
                if tcp.read_to_end(&mut rest).await.is_ok() && sent.is_ok() {
                    assert!(rest == content(!number, rest.len()), "what the client sent is changed");
                    let _ = tcp.write_all(&(rest.len() as u64).to_be_bytes()).await;
                }
            });
        }
    });
    let before = descriptors();
    let held = pair.client.stats().memory.used + pair.server.stats().memory.used + (256 << 10);
    let mut random = ChaCha8Rng::seed_from_u64(42);
    let mut clients = Vec::new();
    for number in 0..200u64 {
        let (down, up) = ((random.next_u32() % 200_000) as usize, (random.next_u32() % 200_000) as usize);
        let (server_end, client_end) = ((random.next_u32() % 3) as u8, random.next_u32() % 4);
        let orderly = Arc::clone(&orderly);
        clients.push(tokio::spawn(async move {
            let mut tcp = TcpStream::connect(address).await.unwrap();
            let head = [&number.to_be_bytes()[..], &(down as u64).to_be_bytes(), &[server_end]].concat();
            if tcp.write_all(&head).await.is_err() {
                return;
            }
            if client_end == 3 {
                tokio::time::sleep(Duration::from_millis(u64::from(number as u32 % 20))).await;
                let _ = SockRef::from(&tcp).set_linger(Some(Duration::ZERO));
                return;
            }
            let (mut read, mut write) = tcp.split();
            let writing = async {
                let sent = write.write_all(&content(!number, up)).await;
                sent.and(write.shutdown().await)
            };
            let reading = async {
                let mut all = Vec::new();
                read.read_to_end(&mut all).await.map(|_| all)
            };
            let (sent, got) = tokio::join!(writing, reading);
            if server_end < 2 {
                sent.unwrap();
                let got = got.unwrap();
                assert!(got[..down] == content(number, down), "what the server sent is changed");
                // After its own end it says nothing more.
                let told = if server_end == 1 { (up as u64).to_be_bytes().to_vec() } else { Vec::new() };
                assert_eq!(got[down..], told);
                orderly.fetch_add(1, Relaxed);
            }
        }));
    }
    within(async {
        for client in clients {
            client.await.unwrap();
        }
    })
    .await;
    assert!(orderly.load(Relaxed) > 60);
    until("the server forgets them", || pair.far.open() == 0).await;
    until("flows are back to the start", || pair.session.flow_stats().len() <= 1).await;
    until("descriptors are back to the start", || descriptors() <= before).await;
    let used = || pair.client.stats().memory.used + pair.server.stats().memory.used;
    until("memory is back to the start", || used() <= held).await;
}

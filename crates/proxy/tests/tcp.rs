//! What TCP tells its two ends: each script is run over a connection of the kernel alone and over the proxy, and both ends must see the same.

mod support;

use noctule_proxy::{End, Near, NearOptions, Uplink};
use socket2::SockRef;
use std::future::Future;
use std::io::ErrorKind;
use std::net::{Shutdown, SocketAddr};
use std::time::Duration;
use support::*;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};

/// What an end has seen, in order.
type Seen = Vec<String>;

fn word(error: &std::io::Error) -> String {
    match error.kind() {
        // A write to a closed connection gives either error: which one depends on the moment.
        ErrorKind::BrokenPipe | ErrorKind::ConnectionReset => "reset".into(),
        kind => format!("{kind:?}"),
    }
}

/// Reads to the end or an error.
async fn drain(tcp: &mut TcpStream) -> Seen {
    let (mut buffer, mut sum, mut count) = (vec![0; 64 << 10], 0u64, 0u64);
    let end = loop {
        match tcp.read(&mut buffer).await {
            Ok(0) => break "end".to_owned(),
            Ok(len) => {
                for byte in &buffer[..len] {
                    sum = sum.wrapping_mul(31).wrapping_add(u64::from(*byte));
                }
                count += len as u64;
            }
            Err(error) => break word(&error),
        }
    };
    vec![format!("{count} bytes, sum {sum}"), end]
}

fn content(len: usize) -> Vec<u8> {
    (0..len as u32).map(|i| (i.wrapping_mul(2_654_435_761) >> 24) as u8).collect()
}

fn abort(tcp: TcpStream) {
    SockRef::from(&tcp).set_linger(Some(Duration::ZERO)).unwrap();
}

/// Waits until a write fails, which a connection that was reset does.
async fn write_until_reset(tcp: &mut TcpStream) -> String {
    loop {
        if let Err(error) = tcp.write_all(b"more").await {
            return word(&error);
        }
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
}

/// Runs a script over the kernel alone and over the proxy.
async fn same<C, S, CF, SF>(client: C, server: S)
where
    C: Fn(TcpStream) -> CF,
    S: Fn(TcpStream) -> SF,
    CF: Future<Output = Seen>,
    SF: Future<Output = Seen>,
{
    let run = async |through: Option<&Pair>| {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let target = listener.local_addr().unwrap();
        let port = through.map(|pair| pair.leads_to(target));
        let address = port.as_ref().map_or(target, |(_, address)| *address);
        let near = async { client(TcpStream::connect(address).await.unwrap()).await };
        let far = async { server(listener.accept().await.unwrap().0).await };
        within(async { tokio::join!(near, far) }).await
    };
    let direct = run(None).await;
    let pair = Pair::new().await;
    for _ in 0..5 {
        assert_eq!(run(Some(&pair)).await, direct);
    }
    // And nothing is left of it.
    until("connections that ended are forgotten", || pair.far.open() == 0).await;
    until("flows that ended are forgotten", || pair.session.flow_stats().len() <= 1).await;
}

#[tokio::test]
async fn an_end_in_one_direction_leaves_the_other_open() {
    same(
        async |mut tcp: TcpStream| {
            tcp.write_all(b"question").await.unwrap();
            tcp.shutdown().await.unwrap();
            drain(&mut tcp).await
        },
        async |mut tcp: TcpStream| {
            let mut seen = drain(&mut tcp).await;
            tcp.write_all(&content(10 << 20)).await.unwrap();
            seen.push("written".into());
            seen
        },
    )
    .await;
}

#[tokio::test]
async fn the_server_may_end_first_and_still_hear() {
    same(
        async |mut tcp: TcpStream| {
            let mut seen = drain(&mut tcp).await;
            tcp.write_all(&content(3 << 20)).await.unwrap();
            seen.push("written".into());
            seen
        },
        async |mut tcp: TcpStream| {
            tcp.write_all(b"greeting").await.unwrap();
            tcp.shutdown().await.unwrap();
            drain(&mut tcp).await
        },
    )
    .await;
}

#[tokio::test]
async fn all_that_was_written_before_a_close_arrives() {
    same(
        async |mut tcp: TcpStream| {
            tcp.write_all(&content(5 << 20)).await.unwrap();
            vec!["closed".into()]
        },
        async |mut tcp: TcpStream| drain(&mut tcp).await,
    )
    .await;
}

#[tokio::test]
async fn a_connection_without_a_byte_ends_as_it_does_without_us() {
    same(
        async |tcp: TcpStream| {
            drop(tcp);
            vec![]
        },
        async |mut tcp: TcpStream| drain(&mut tcp).await,
    )
    .await;
    same(
        async |mut tcp: TcpStream| drain(&mut tcp).await,
        async |tcp: TcpStream| {
            drop(tcp);
            vec![]
        },
    )
    .await;
}

#[tokio::test]
async fn a_reset_of_the_client_is_a_reset_for_the_server() {
    same(
        async |mut tcp: TcpStream| {
            tcp.write_all(b"hello").await.unwrap();
            let mut answer = [0; 2];
            tcp.read_exact(&mut answer).await.unwrap();
            abort(tcp);
            vec!["reset it".into()]
        },
        async |mut tcp: TcpStream| {
            tcp.write_all(b"ok").await.unwrap();
            let mut hello = [0; 5];
            tcp.read_exact(&mut hello).await.unwrap();
            drain(&mut tcp).await
        },
    )
    .await;
}

#[tokio::test]
async fn a_reset_of_the_server_is_a_reset_for_the_client() {
    same(
        async |mut tcp: TcpStream| {
            tcp.write_all(b"hello").await.unwrap();
            let mut ok = [0; 2];
            tcp.read_exact(&mut ok).await.unwrap();
            drain(&mut tcp).await
        },
        async |mut tcp: TcpStream| {
            let mut hello = [0; 5];
            tcp.read_exact(&mut hello).await.unwrap();
            tcp.write_all(b"ok").await.unwrap();
            abort(tcp);
            vec!["reset it".into()]
        },
    )
    .await;
}

/// A server that closes with bytes unread: the kernel makes a reset of it, and the client reads what was written before.
#[tokio::test]
async fn an_answer_before_a_reset_is_read() {
    same(
        async |mut tcp: TcpStream| {
            tcp.write_all(&content(100)).await.unwrap();
            let mut answer = vec![0; 2000];
            tcp.read_exact(&mut answer).await.unwrap();
            drain(&mut tcp).await
        },
        async |mut tcp: TcpStream| {
            let mut byte = [0; 1];
            tcp.read_exact(&mut byte).await.unwrap();
            // All of it is here, and is never read.
            while tcp.peek(&mut [0; 100]).await.unwrap() < 99 {
                tokio::task::yield_now().await;
            }
            tcp.write_all(&content(2000)).await.unwrap();
            vec!["closed".into()]
        },
    )
    .await;
}

#[tokio::test]
async fn writes_to_a_server_that_has_closed_fail() {
    same(
        async |mut tcp: TcpStream| {
            let mut seen = drain(&mut tcp).await;
            seen.push(write_until_reset(&mut tcp).await);
            seen
        },
        async |tcp: TcpStream| {
            drop(tcp);
            vec!["closed".into()]
        },
    )
    .await;
}

#[tokio::test]
async fn a_reset_after_the_client_has_ended_its_side_reaches_it() {
    same(
        async |mut tcp: TcpStream| {
            tcp.write_all(b"question").await.unwrap();
            tcp.shutdown().await.unwrap();
            drain(&mut tcp).await
        },
        async |mut tcp: TcpStream| {
            let seen = drain(&mut tcp).await;
            abort(tcp);
            seen
        },
    )
    .await;
}

#[tokio::test]
async fn a_reset_reaches_an_end_that_says_nothing_and_only_waits_to_write() {
    same(
        async |mut tcp: TcpStream| {
            let mut end = [0; 1];
            assert_eq!(tcp.read(&mut end).await.unwrap(), 0);
            // Half closed: it may write still, and does when it learns that nobody reads.
            let broken = tcp.ready(tokio::io::Interest::ERROR).await.unwrap();
            vec![format!("{}", broken.is_error())]
        },
        async |mut tcp: TcpStream| {
            tcp.shutdown().await.unwrap();
            tokio::time::sleep(Duration::from_millis(50)).await;
            abort(tcp);
            vec!["reset it".into()]
        },
    )
    .await;
}

#[tokio::test]
async fn half_close_in_both_orders_with_bytes_both_ways_at_once() {
    let both = async |mut tcp: TcpStream| {
        let (mut read, mut write) = tcp.split();
        let writing = async {
            write.write_all(&content(4 << 20)).await.unwrap();
            write.shutdown().await.unwrap();
        };
        let reading = async {
            let mut all = Vec::new();
            read.read_to_end(&mut all).await.unwrap();
            assert!(all == content(4 << 20));
            all.len()
        };
        let ((), len) = tokio::join!(writing, reading);
        vec![format!("{len}")]
    };
    same(both, both).await;
}

/// A port where nobody listens: the kernel's client hears "refused"; one of a forwarded port is connected already, and is reset.
#[tokio::test]
async fn a_refused_target_resets_a_forwarded_connection() {
    let free = TcpListener::bind("127.0.0.1:0").await.unwrap().local_addr().unwrap();
    let pair = Pair::new().await;
    let (_listener, address) = pair.leads_to(free);
    let mut tcp = within(TcpStream::connect(address)).await.unwrap();
    assert_eq!(within(drain(&mut tcp)).await, ["0 bytes, sum 0", "reset"]);
    until("it is reported", || !pair.near_reports.lock().unwrap().is_empty()).await;
    let end = pair.near_reports.lock().unwrap()[0].end.to_string();
    assert_eq!(end, "connection refused");
}

/// Credit, not memory: what nobody reads waits at its source.
#[tokio::test]
async fn a_slow_reader_holds_its_sender_back() {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let pair = Pair::new().await;
    let (_port, address) = pair.leads_to(listener.local_addr().unwrap());
    let mut client = within(TcpStream::connect(address)).await.unwrap();
    let (mut server, _) = within(listener.accept()).await.unwrap();
    let chunk = content(1 << 20);
    let mut written = 0usize;
    // Until nothing is taken any more.
    while let Ok(len) = tokio::time::timeout(Duration::from_secs(2), client.write(&chunk)).await {
        written += len.unwrap();
        assert!(written < 1 << 30, "a reader that reads nothing was sent {written} bytes");
    }
    assert!(pair.server.stats().memory.used < 256 << 20 && pair.client.stats().memory.used < 256 << 20);
    client.shutdown().await.unwrap();
    let mut count = 0;
    let mut buffer = vec![0; 1 << 20];
    within(async {
        loop {
            match server.read(&mut buffer).await.unwrap() {
                0 => break,
                len => count += len,
            }
        }
    })
    .await;
    assert_eq!(count, written);
}

#[tokio::test]
async fn connections_end_with_their_session_and_others_take_the_next() {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let pair = Pair::new().await;
    let (_port, address) = pair.leads_to(listener.local_addr().unwrap());
    let mut client = within(TcpStream::connect(address)).await.unwrap();
    client.write_all(b"x").await.unwrap();
    let (mut server, _) = within(listener.accept()).await.unwrap();
    server.read_exact(&mut [0]).await.unwrap();
    pair.session.abort(1, "over");
    assert_eq!(within(drain(&mut client)).await[1], "reset");
    assert_eq!(within(drain(&mut server)).await[1], "reset");
    let next = within(pair.client.connect_early(pair.server.local_addr(), None)).await.unwrap();
    pair.uplink.set(Some(next));
    let mut client = within(TcpStream::connect(address)).await.unwrap();
    client.write_all(b"y").await.unwrap();
    let (mut server, _) = within(listener.accept()).await.unwrap();
    within(server.read_exact(&mut [0])).await.unwrap();
}

/// The open request travels with no answer awaited: bytes are there before an answer said "connected".
#[tokio::test]
async fn small_writes_are_not_held_back() {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let pair = Pair::new().await;
    let (_port, address): (_, SocketAddr) = pair.leads_to(listener.local_addr().unwrap());
    let client = within(TcpStream::connect(address)).await.unwrap();
    let (server, _) = within(listener.accept()).await.unwrap();
    assert!(client.peer_addr().is_ok() && server.peer_addr().is_ok());
    SockRef::from(&server).shutdown(Shutdown::Both).unwrap();
}

#[tokio::test]
async fn a_reset_is_noticed_although_the_target_reads_nothing() {
    let pair = Pair::new().await;
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let (_port, address) = pair.leads_to(listener.local_addr().unwrap());
    let mut client = within(TcpStream::connect(address)).await.unwrap();
    let (_target, _) = within(listener.accept()).await.unwrap();
    // Until buffers and credit are full.
    let block = vec![0; 1 << 20];
    while tokio::time::timeout(Duration::from_millis(500), client.write_all(&block)).await.is_ok() {}
    abort(client);
    until("both ends have let it go", || pair.far.open() == 0 && !pair.near_reports.lock().unwrap().is_empty()).await;
}

/// A reset overtakes what was sent before it, also the answer that the connection stands.
#[tokio::test]
async fn a_reset_that_overtakes_the_answer_is_a_reset_and_no_refusal() {
    let (client, server) = (endpoint(1), endpoint(2));
    let address = server.local_addr();
    tokio::spawn(async move {
        let session = server.accept().await.unwrap();
        while let Ok(noctule::IncomingFlow::Stream { mut recv, send: Some(send) }) = session.accept_flow().await {
            recv.read_chunk(2000).await.unwrap();
            send.reset(1);
            recv.stop(1);
        }
    });
    let (uplink, (reports, sink)) = (Uplink::default(), sink());
    let near = Near::new(uplink.clone(), NearOptions::default(), sink);
    uplink.set(Some(within(client.connect_early(address, None)).await.unwrap()));
    let listener = near.forward(&"127.0.0.1:0:192.0.2.1:80".parse().unwrap()).unwrap();
    let mut tcp = TcpStream::connect(listener.addresses[0]).await.unwrap();
    assert_eq!(word(&within(tcp.read(&mut [0; 1])).await.unwrap_err()), "reset");
    until("a report", || !reports.lock().unwrap().is_empty()).await;
    assert_eq!(reports.lock().unwrap()[0].end, End::ResetThere);
}

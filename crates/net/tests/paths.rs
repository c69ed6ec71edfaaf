//! Several paths of a link, on real sockets.

mod support;

use noctule::{FlowOptions, IncomingFlow, OpenError, PathState};
use std::net::{IpAddr, SocketAddr};
use std::time::Duration;
use support::*;

fn loopback(last: u8) -> IpAddr {
    IpAddr::from([127, 0, 0, last])
}

#[cfg(target_os = "linux")]
#[tokio::test]
async fn a_second_path_opens_between_other_addresses_of_both_hosts_and_a_stream_arrives_whole() {
    let server = bind("0.0.0.0:0", config(2));
    let port = server.local_addr().port();
    let client = bind("0.0.0.0:0", config(1));
    let session = within(client.connect(SocketAddr::from(([127, 0, 0, 1], port)), Some(key_of(2)))).await.unwrap();
    session.add_path(Some(SocketAddr::new(loopback(2), port)), Some(loopback(3))).unwrap();
    let theirs = within(server.accept()).await.unwrap();
    let both_open = |session: &noctule::Session| {
        let stats = session.stats();
        stats.paths().len() == 2 && stats.paths().iter().all(|p| p.state == PathState::Open)
    };
    within(async {
        while !both_open(&session) || !both_open(&theirs) {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    })
    .await;
    let (ours, seen) = (session.stats(), theirs.stats());
    assert_eq!((ours.paths()[1].remote.ip(), ours.paths()[1].local), (loopback(2), Some(loopback(3))));
    assert_eq!((seen.paths()[1].remote.ip(), seen.paths()[1].local), (loopback(3), Some(loopback(2))));

    let data: Vec<u8> = (0..4_000_000u32).map(|i| (i.wrapping_mul(0x9e37_79b9) >> 24) as u8).collect();
    let mut send = session.open_uni(FlowOptions::default()).unwrap();
    let sent = data.clone();
    let writer = tokio::spawn(async move {
        send.write_all(&sent).await.unwrap();
        send.finish().await.unwrap();
    });
    let IncomingFlow::Stream { mut recv, .. } = within(theirs.accept_flow()).await.unwrap() else { panic!("a stream") };
    let mut got = Vec::new();
    while let Some(chunk) = within(recv.read_chunk(1 << 20)).await.unwrap() {
        got.extend_from_slice(&chunk);
    }
    assert!(got == data, "{} of {} bytes", got.len(), data.len());
    within(writer).await.unwrap();
}

#[tokio::test]
async fn a_path_that_cannot_be_is_refused_with_the_reason() {
    let (server, client) = (bind("127.0.0.1:0", config(2)), bind("0.0.0.0:0", config(1)));
    let session = within(client.connect(server.local_addr(), Some(key_of(2)))).await.unwrap();
    let _theirs = within(server.accept()).await.unwrap();
    let mixed = session.add_path(None, Some("::1".parse().unwrap())).unwrap_err();
    assert!(matches!(&mixed, OpenError::Misuse(text) if text.contains("one family")), "{mixed}");
    let narrow = bind("127.0.0.1:0", config(3));
    let bound = within(narrow.connect(server.local_addr(), Some(key_of(2)))).await.unwrap().add_path(None, Some(loopback(9))).unwrap_err();
    assert!(matches!(&bound, OpenError::Misuse(text) if text.contains("bind it to that address too, or to all")), "{bound}");
    for n in 0..7 {
        session.add_path(None, Some(loopback(10 + n))).unwrap();
    }
    let beyond = session.add_path(None, Some(loopback(20))).unwrap_err();
    assert!(matches!(beyond, OpenError::Limit { limit: 8, .. }), "{beyond}");
}

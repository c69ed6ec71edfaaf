//! Targets that hear where a connection comes from by a header of the PROXY protocol.

mod support;

use noctule_proxy::{End, Outcome, Sources, Trusted};
use std::sync::Arc;
use support::*;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};

/// What a target reads of a connection on which the client says this.
async fn heard(pair: &Pair, said: &[u8]) -> Vec<u8> {
    let target = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let (_listener, port) = pair.leads_to(target.local_addr().unwrap());
    let mut client = TcpStream::connect(port).await.unwrap();
    client.write_all(said).await.unwrap();
    client.shutdown().await.unwrap();
    let (mut tcp, _) = within(target.accept()).await.unwrap();
    let mut heard = Vec::new();
    within(tcp.read_to_end(&mut heard)).await.unwrap();
    heard
}

/// The client of an end that is not believed is that end; a program of the near end's own host is, too.
#[tokio::test]
async fn a_listed_target_hears_of_the_source_before_the_bytes() {
    for tell_source in [false, true] {
        let sources = Sources { send_proxy_v2: vec!["127.0.0.0/8".parse().unwrap()], ..Sources::default() };
        let pair = Pair::allowing(Allowed { sources: Arc::new(sources), tell_source, ..Allowed::default() }).await;
        let heard = heard(&pair, b"hello").await;
        assert_eq!(heard[..16], *b"\r\n\r\n\0\r\nQUIT\n\x21\x11\0\x0c");
        assert_eq!(heard[16..24], [127, 0, 0, 1, 127, 0, 0, 1]);
        assert_eq!(heard[24..26], pair.client.local_addr().port().to_be_bytes());
        assert_eq!(&heard[28..], b"hello");
    }
}

#[tokio::test]
async fn a_target_that_is_not_listed_hears_the_bytes_alone() {
    let sources = Sources { send_proxy_v2: vec!["all:25".parse().unwrap()], ..Sources::default() };
    let pair = Pair::allowing(Allowed { sources: Arc::new(sources), ..Allowed::default() }).await;
    assert_eq!(heard(&pair, b"hello").await, b"hello");
}

/// HAProxy in front of the near end, whose word goes all the way to a target that is told.
#[tokio::test]
async fn a_header_at_the_near_end_says_what_the_target_hears() {
    let sources = Sources { trusted: Trusted::All, send_proxy_v2: vec!["all".parse().unwrap()], ..Sources::default() };
    let sources = Arc::new(sources);
    let front = vec!["127.0.0.0/8".parse().unwrap()];
    let pair = Pair::allowing(Allowed { sources, tell_source: true, accept_proxy: front, ..Allowed::default() }).await;
    let heard = heard(&pair, b"PROXY TCP4 198.51.100.9 192.0.2.1 4000 80\r\nhello").await;
    assert_eq!((&heard[16..20], &heard[24..26], &heard[28..]), (&[198, 51, 100, 9][..], &4000u16.to_be_bytes()[..], &b"hello"[..]));
    until("the connection is reported", || pair.far_reports.lock().unwrap().len() == 1).await;
    assert_eq!(pair.far_reports.lock().unwrap()[0].source, "198.51.100.9:4000");
    // One that begins otherwise, and one whose source can be nobody's.
    let target = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let (_listener, port) = pair.leads_to(target.local_addr().unwrap());
    for (said, why) in
        [(&b"GET / HTTP/1.1\r\n\r\n"[..], "has to begin with a header"), (b"PROXY TCP4 0.0.0.0 192.0.2.1 1 2\r\n", "no host's")]
    {
        pair.near_reports.lock().unwrap().clear();
        let mut client = TcpStream::connect(port).await.unwrap();
        client.write_all(said).await.unwrap();
        let error = within(client.read(&mut [0])).await.unwrap_err();
        assert_eq!(error.kind(), std::io::ErrorKind::ConnectionReset);
        until("it is reported", || !pair.near_reports.lock().unwrap().is_empty()).await;
        let End::Refused(answer) = pair.near_reports.lock().unwrap()[0].end.clone() else { panic!() };
        assert!(answer.outcome == Outcome::Denied && answer.text.raw().contains(why), "{answer:?}");
    }
}

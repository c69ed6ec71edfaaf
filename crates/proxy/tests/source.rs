//! Targets that hear where a connection comes from by a header of the PROXY protocol.

mod support;

use noctule_proxy::Sources;
use std::sync::Arc;
use support::*;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};

/// What a target reads of a connection on which the client says "hello".
async fn heard(pair: &Pair) -> Vec<u8> {
    let target = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let (_listener, port) = pair.leads_to(target.local_addr().unwrap());
    let mut client = TcpStream::connect(port).await.unwrap();
    client.write_all(b"hello").await.unwrap();
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
        let heard = heard(&pair).await;
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
    assert_eq!(heard(&pair).await, b"hello");
}

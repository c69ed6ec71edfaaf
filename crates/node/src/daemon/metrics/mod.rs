//! Serves Prometheus: the report in its text format over HTTP, on loopback unless the file says otherwise. `families` lists the metrics.

mod families;

use super::Daemon;
use super::places::Places;
use crate::failure::Failure;
use prometheus_client::encoding::prometheus_text::CONTENT_TYPE;
use std::io;
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;
use std::time::Duration;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};

/// How long a request may take, from the connection on.
const PATIENCE: Duration = Duration::from_secs(5);
/// Requests at a time; the oldest is closed for a new one.
const MAX_REQUESTS: usize = 8;
/// Bytes of a request, at most.
const MAX_REQUEST: usize = 8192;

/// Binds the port.
///
/// # Errors
/// The address is taken, or not permitted.
pub async fn listen(at: SocketAddr) -> Result<TcpListener, Failure> {
    TcpListener::bind(at).await.map_err(|e| Failure::Listen(format!("metrics on {at}: {e}; choose another address with [metrics] listen")))
}

/// Answers requests, and never returns.
pub async fn serve(listener: TcpListener, daemon: Arc<Daemon>) {
    let mut places = Places::new(MAX_REQUESTS, PATIENCE);
    loop {
        match listener.accept().await {
            Ok((stream, _)) => {
                let daemon = Arc::clone(&daemon);
                places.begin(async move {
                    let names = daemon.config().metrics.as_ref().map(|m| m.names.clone()).unwrap_or_default();
                    // A client that has closed the connection needs no answer.
                    let _ = answer(stream, &names, || families::text(daemon.report())).await;
                });
            }
            Err(error) => {
                tracing::warn!(%error, "the metrics port");
                tokio::time::sleep(PATIENCE).await;
            }
        }
    }
}

async fn answer(mut stream: TcpStream, names: &[String], text: impl Fn() -> String) -> io::Result<()> {
    let mut request = Vec::new();
    while !request.windows(4).any(|w| w == b"\r\n\r\n") && request.len() < MAX_REQUEST {
        let mut part = [0; 1024];
        match stream.read(&mut part).await? {
            0 => break,
            n => request.extend_from_slice(&part[..n]),
        }
    }
    let line = request.split(|b| *b == b'\r').next().unwrap_or_default();
    let mut words = line.split(|b| *b == b' ');
    let (method, target) = (words.next().unwrap_or_default(), words.next().unwrap_or_default());
    let path = target.split(|b| *b == b'?').next().unwrap_or_default();
    let (status, body) = match (method, path) {
        _ if !is_meant(&request, names) => {
            ("421 Misdirected Request", "ask by address, as localhost, or by a name in [metrics] names\n".to_owned())
        }
        (b"GET" | b"HEAD", b"/metrics") => ("200 OK", text()),
        (b"GET" | b"HEAD", _) => ("404 Not Found", "the metrics are at /metrics\n".to_owned()),
        _ => ("405 Method Not Allowed\r\nAllow: GET, HEAD", "only GET and HEAD\n".to_owned()),
    };
    let head = format!("HTTP/1.1 {status}\r\nContent-Type: {CONTENT_TYPE}\r\nContent-Length: {}\r\nConnection: close\r\n\r\n", body.len());
    stream.write_all(head.as_bytes()).await?;
    // RFC 9110 §9.3.2: the same head, and nothing after it.
    if method == b"HEAD" { Ok(()) } else { stream.write_all(body.as_bytes()).await }
}

/// Whether a request names this host. A foreign web page whose name is made to lead here (DNS rebinding) would read the metrics through a browser, but its
/// requests name the page's host: only an address, localhost, and what the file names are served. A request of HTTP/1.0 may name none; a browser's always does.
fn is_meant(request: &[u8], names: &[String]) -> bool {
    let text = String::from_utf8_lossy(request);
    let mut hosts = text.split("\r\n").skip(1).take_while(|line| !line.is_empty()).filter_map(|line| {
        let (name, value) = line.split_once(':')?;
        name.trim().eq_ignore_ascii_case("host").then(|| value.trim())
    });
    let Some(host) = hosts.next() else { return !text.contains(" HTTP/1.1\r\n") };
    let name = match host.rsplit_once(':') {
        Some((name, port)) if port.bytes().all(|b| b.is_ascii_digit()) => name,
        _ => host,
    };
    let is_address = name.strip_prefix('[').and_then(|n| n.strip_suffix(']')).unwrap_or(name).parse::<IpAddr>().is_ok();
    hosts.next().is_none() && (is_address || name.eq_ignore_ascii_case("localhost") || names.iter().any(|n| n.eq_ignore_ascii_case(name)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_requests_that_name_this_host_are_served() {
        let names = ["Node1.example".to_owned()];
        let meant = |head: &str| is_meant(format!("GET /metrics {head}\r\n\r\n").as_bytes(), &names);
        for host in ["127.0.0.1:9494", "[::1]:9494", "[::1]", "10.0.0.1", "localhost", "LOCALHOST:9494", "node1.example:9494"] {
            assert!(meant(&format!("HTTP/1.1\r\nAccept: */*\r\nhost: {host}")), "{host}");
        }
        for host in ["evil.example:9494", "localhost.evil.example", "127.0.0.1.evil.example", "", "127.0.0.1\r\nHost: evil.example"] {
            assert!(!meant(&format!("HTTP/1.1\r\nHost: {host}")), "{host}");
        }
        assert!(meant("HTTP/1.0") && !meant("HTTP/1.1"));
    }

    #[tokio::test]
    async fn head_is_answered_like_get_without_the_text() {
        let listener = listen(([127, 0, 0, 1], 0).into()).await.expect("binds");
        let at = listener.local_addr().expect("is bound");
        let ask = async |head: &str| {
            let mut stream = TcpStream::connect(at).await.expect("connects");
            stream.write_all(format!("{head} HTTP/1.1\r\nHost: localhost\r\n\r\n").as_bytes()).await.expect("writes");
            let (served, _) = listener.accept().await.expect("accepts");
            answer(served, &[], || "noctule_x 1\n".to_owned()).await.expect("answers");
            let mut text = String::new();
            stream.read_to_string(&mut text).await.expect("reads");
            text
        };
        let (get, head) = (ask("GET /metrics?x=1").await, ask("HEAD /metrics").await);
        assert!(get.starts_with("HTTP/1.1 200 OK\r\n") && get.ends_with("\r\n\r\nnoctule_x 1\n"), "{get}");
        assert_eq!(head, get.strip_suffix("noctule_x 1\n").expect("has it"));
        let post = ask("POST /metrics").await;
        assert!(post.starts_with("HTTP/1.1 405 ") && post.contains("\r\nAllow: GET, HEAD\r\n"), "{post}");
    }
}

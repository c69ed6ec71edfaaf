//! Serves Prometheus: the report in its text format over HTTP, on loopback unless the file says otherwise. `families` lists the metrics.

pub mod families;

use super::Daemon;
use super::places::Places;
use crate::failure::Failure;
use crate::http::{self, Answer, Asked};
use hyper::header::{ALLOW, HeaderValue};
use hyper::{Method, StatusCode};
use prometheus_client::encoding::prometheus_text::CONTENT_TYPE;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;
use tokio::net::TcpListener;

/// How long a request may take, from the connection on.
const PATIENCE: Duration = Duration::from_secs(5);
/// Requests at a time; the oldest is closed for a new one.
const MAX_REQUESTS: usize = 8;

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
                    http::serve(stream, |request| answer(&request, &names, || families::text(daemon.report()))).await;
                });
            }
            Err(error) => {
                tracing::warn!(%error, "the metrics port");
                tokio::time::sleep(PATIENCE).await;
            }
        }
    }
}

fn answer(request: &Asked, names: &[String], text: impl Fn() -> String) -> Answer {
    let plain = |status, text: &'static str| http::answer(status, "text/plain", text);
    match (request.method(), request.uri().path()) {
        _ if !http::is_meant(request, names) => {
            plain(StatusCode::MISDIRECTED_REQUEST, "ask by address, as localhost, or by a name in [metrics] names\n")
        }
        // RFC 9110 §9.3.2: to HEAD hyper sends the same head, and nothing after it.
        (&Method::GET | &Method::HEAD, "/metrics") => http::answer(StatusCode::OK, CONTENT_TYPE, text()),
        (&Method::GET | &Method::HEAD, _) => plain(StatusCode::NOT_FOUND, "the metrics are at /metrics\n"),
        _ => {
            let mut answer = plain(StatusCode::METHOD_NOT_ALLOWED, "only GET and HEAD\n");
            answer.headers_mut().insert(ALLOW, HeaderValue::from_static("GET, HEAD"));
            answer
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use tokio::io::{AsyncReadExt, AsyncWriteExt};
    use tokio::net::TcpStream;

    #[tokio::test]
    async fn head_is_answered_like_get_without_the_text() {
        let listener = listen(([127, 0, 0, 1], 0).into()).await.expect("binds");
        let at = listener.local_addr().expect("is bound");
        let ask = async |head: &str| {
            let mut stream = TcpStream::connect(at).await.expect("connects");
            stream.write_all(format!("{head} HTTP/1.1\r\nHost: localhost\r\n\r\n").as_bytes()).await.expect("writes");
            let (served, _) = listener.accept().await.expect("accepts");
            http::serve(served, |request| answer(&request, &[], || "noctule_x 1\n".to_owned())).await;
            let mut text = String::new();
            stream.read_to_string(&mut text).await.expect("reads");
            text
        };
        let (get, head) = (ask("GET /metrics?x=1").await, ask("HEAD /metrics").await);
        assert!(get.starts_with("HTTP/1.1 200 OK\r\n") && get.ends_with("\r\n\r\nnoctule_x 1\n"), "{get}");
        assert_eq!(head, get.strip_suffix("noctule_x 1\n").expect("has it"));
        let post = ask("POST /metrics").await;
        assert!(post.starts_with("HTTP/1.1 405 ") && post.contains("\r\nallow: GET, HEAD\r\n"), "{post}");
    }
}

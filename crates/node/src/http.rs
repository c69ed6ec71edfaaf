//! HTTP of local ports: short requests, one for each connection, each with one answer. `hyper` reads and writes it.

use http_body_util::{BodyExt, Full, Limited};
use hyper::body::{Bytes, Incoming};
use hyper::header::{CONTENT_TYPE, HOST, HeaderValue};
use hyper::service::service_fn;
use hyper::{Request, Response, StatusCode, Version};
use hyper_util::rt::TokioIo;
use std::convert::Infallible;
use std::net::IpAddr;
use tokio::io::{AsyncRead, AsyncWrite};

/// Bytes of the longest head of a request.
const MOST_HEAD: usize = 8192;
/// Bytes of the longest body of one.
const MOST_BODY: usize = 4096;

/// A request, whole.
pub type Asked = Request<Bytes>;
/// An answer, whole.
pub type Answer = Response<Full<Bytes>>;

/// A text as an answer.
pub fn answer(status: StatusCode, kind: &'static str, text: impl Into<Bytes>) -> Answer {
    let mut answer = Response::new(Full::new(text.into()));
    *answer.status_mut() = status;
    answer.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static(kind));
    answer
}

/// Answers the one request of a connection. What is no request is answered by `hyper`, or not at all.
pub async fn serve(stream: impl AsyncRead + AsyncWrite + Unpin, respond: impl Fn(Asked) -> Answer) {
    let service = service_fn(|request: Request<Incoming>| async {
        let (head, body) = request.into_parts();
        Ok::<_, Infallible>(match Limited::new(body, MOST_BODY).collect().await {
            Ok(body) => respond(Request::from_parts(head, body.to_bytes())),
            Err(_) => answer(StatusCode::PAYLOAD_TOO_LARGE, "text/plain", "the body is too long, or broke off\n"),
        })
    });
    let served = hyper::server::conn::http1::Builder::new()
        .keep_alive(false)
        .half_close(true)
        .max_buf_size(MOST_HEAD)
        .serve_connection(TokioIo::new(stream), service);
    // A client that hangs up is no loss.
    let _ = served.await;
}

/// A page of another site whose name suddenly leads to this host (DNS rebinding) would read this through a browser here. Its requests name
/// the page's host: only an address, localhost, and these names are served. A request of HTTP/1.0 may name none; a browser's always does.
pub fn is_meant<T>(request: &Request<T>, names: &[String]) -> bool {
    let mut hosts = request.headers().get_all(HOST).into_iter();
    let Some(host) = hosts.next() else { return request.version() != Version::HTTP_11 };
    let Ok(host) = host.to_str() else { return false };
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
        let meant = |version, hosts: &[&str]| {
            let request = hosts.iter().fold(Request::builder().version(version), |request, host| request.header("Host", *host));
            is_meant(&request.body(()).unwrap(), &names)
        };
        for host in ["127.0.0.1:9494", "[::1]:9494", "[::1]", "10.0.0.1", "localhost", "LOCALHOST:9494", "node1.example:9494"] {
            assert!(meant(Version::HTTP_11, &[host]), "{host}");
        }
        for hosts in
            [&["evil.example:9494"][..], &["localhost.evil.example"], &["127.0.0.1.evil.example"], &[""], &["127.0.0.1", "evil.example"]]
        {
            assert!(!meant(Version::HTTP_11, hosts), "{hosts:?}");
        }
        assert!(meant(Version::HTTP_10, &[]) && !meant(Version::HTTP_11, &[]));
    }
}

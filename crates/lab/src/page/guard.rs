//! Which requests are answered: a browser is told by every page that it visits what to request, so an address that answers on loopback is not private.
//!
//! - `Host` has to be an IP address, `localhost` or a name that the user gave: a foreign name that resolves to this host (DNS rebinding) is refused.
//! - Requests that another site makes are refused by `Sec-Fetch-Site` and `Origin`; no CORS header is ever sent, so none can read an answer.
//! - Whatever changes something has to carry `X-Noctule-Lab`, which forms cannot send and scripts of other sites may not.
//! - Where a token is set, everything below `/api` demands it. It is compared by its hash, in constant time.

use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;

use axum::extract::{Request, State};
use axum::http::{HeaderMap, HeaderValue, Method, StatusCode, header};
use axum::middleware::Next;
use axum::response::{IntoResponse, Response};

use super::answer::Problem;

/// The header that a request which changes something has to carry, with the value 1.
pub const HEADER: &str = "x-noctule-lab";
/// Characters that a token has at least.
pub const TOKEN_LEAST: usize = 16;

/// The page loads its own files and nothing else, runs no script but its own, and stands in no frame.
const CSP: &str = "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; connect-src 'self'; base-uri 'none'; \
                   form-action 'none'; frame-ancestors 'none'";

/// What is checked.
#[derive(Debug, Clone, Default)]
pub struct Guard {
    token: Option<blake3::Hash>,
    names: Vec<String>,
}

impl Guard {
    /// For an address. Without a token only loopback is served.
    ///
    /// # Errors
    /// A token that is missing or too short: in words.
    pub fn new(listen: SocketAddr, token: Option<&str>, names: &[String]) -> Result<Self, String> {
        match token {
            None if !listen.ip().is_loopback() => {
                return Err(format!(
                    "--listen {listen}: every host that reaches this address could start runs; set a token by NOCTULE_LAB_TOKEN or --token, or listen on \
                     127.0.0.1"
                ));
            }
            Some(token) if token.len() < TOKEN_LEAST => {
                return Err(format!("--token: {} characters can be guessed; at least {TOKEN_LEAST}", token.len()));
            }
            Some(token) if !token.bytes().all(|b| b.is_ascii_graphic()) => {
                return Err("--token: printable ASCII without spaces, as a header carries it".to_owned());
            }
            _ => {}
        }
        let names = names.iter().map(|name| name.trim_end_matches('.').to_ascii_lowercase()).collect();
        Ok(Self { token: token.map(|token| blake3::hash(token.as_bytes())), names })
    }

    /// Whether a request passes.
    ///
    /// # Errors
    /// What it lacks.
    pub fn check(&self, method: &Method, path: &str, headers: &HeaderMap) -> Result<(), Problem> {
        let host = one(headers, header::HOST.as_str()).ok_or_else(|| Problem::bad("the request has to have one Host"))?;
        if !self.is_ours(host) {
            let text = format!("Host {host:?} is no name of this server; ask by its IP address, by localhost, or start it with --name");
            return Err(Problem::new(StatusCode::MISDIRECTED_REQUEST, text));
        }
        if !path.starts_with("/api/") && path != "/api" {
            return Ok(());
        }
        let foreign = || Problem::new(StatusCode::FORBIDDEN, "requests of other sites are refused");
        // Sent by browsers only, and no script can forge it.
        if headers.get("sec-fetch-site").is_some_and(|site| site != "same-origin" && site != "none") {
            return Err(foreign());
        }
        if let Some(origin) = headers.get(header::ORIGIN) {
            let origin = origin.to_str().ok().and_then(|origin| origin.split_once("://"));
            if origin.is_none_or(|(_, authority)| !authority.eq_ignore_ascii_case(host)) {
                return Err(foreign());
            }
        }
        if let Some(token) = self.token {
            let given = one(headers, header::AUTHORIZATION.as_str()).and_then(|text| text.strip_prefix("Bearer "));
            // Hashes compare in constant time, and a hash says nothing of how much of a token was right.
            if given.is_none_or(|given| blake3::hash(given.as_bytes()) != token) {
                return Err(Problem::new(StatusCode::UNAUTHORIZED, "the token is missing or wrong: Authorization: Bearer TOKEN"));
            }
        }
        if *method != Method::GET && *method != Method::HEAD && headers.get(HEADER).is_none_or(|value| value != "1") {
            return Err(Problem::new(StatusCode::FORBIDDEN, "a request that changes something has to carry the header X-Noctule-Lab: 1"));
        }
        Ok(())
    }

    /// Whether `host`, with or without a port, names this server.
    fn is_ours(&self, host: &str) -> bool {
        let (name, port) = match host.strip_prefix('[') {
            Some(rest) => match rest.split_once(']') {
                Some((name, port)) if name.contains(':') => (name, port.strip_prefix(':').or(port.is_empty().then_some(""))),
                _ => return false,
            },
            None => host.split_once(':').map_or((host, Some("")), |(name, port)| (name, Some(port))),
        };
        if port.is_none_or(|port| !port.bytes().all(|b| b.is_ascii_digit())) {
            return false;
        }
        let name = name.trim_end_matches('.').to_ascii_lowercase();
        name.parse::<IpAddr>().is_ok() || name == "localhost" || self.names.contains(&name)
    }
}

/// The value of a header that is there once, as text.
fn one<'a>(headers: &'a HeaderMap, name: &str) -> Option<&'a str> {
    let mut all = headers.get_all(name).iter();
    let value = all.next()?.to_str().ok()?;
    all.next().is_none().then_some(value)
}

/// In front of every route.
pub async fn layer(State(guard): State<Arc<Guard>>, request: Request, next: Next) -> Response {
    let is_api = request.uri().path().starts_with("/api");
    let mut response = match guard.check(request.method(), request.uri().path(), request.headers()) {
        Ok(()) => next.run(request).await,
        Err(problem) => problem.into_response(),
    };
    let headers = response.headers_mut();
    for (name, value) in [
        ("content-security-policy", CSP),
        ("x-content-type-options", "nosniff"),
        ("referrer-policy", "no-referrer"),
        ("cross-origin-resource-policy", "same-origin"),
        ("cross-origin-opener-policy", "same-origin"),
        // Another build serves other files under the same names.
        ("cache-control", if is_api { "no-store" } else { "no-cache" }),
    ] {
        headers.insert(name, HeaderValue::from_static(value));
    }
    if response.status() == StatusCode::UNAUTHORIZED {
        response.headers_mut().insert(header::WWW_AUTHENTICATE, HeaderValue::from_static("Bearer"));
    }
    response
}

#[cfg(test)]
mod tests {
    use super::*;

    const LOOPBACK: &str = "127.0.0.1:4280";

    fn status(guard: &Guard, method: &Method, path: &str, headers: &[(&'static str, &'static str)]) -> u16 {
        let mut map = HeaderMap::new();
        for (name, value) in headers {
            map.append(*name, HeaderValue::from_static(value));
        }
        guard.check(method, path, &map).map_or_else(|problem| problem.status.as_u16(), |()| 200)
    }

    #[test]
    fn a_foreign_name_for_this_host_is_refused() {
        let guard = Guard::new(LOOPBACK.parse().unwrap(), None, &["Lab.Example.org".to_owned()]).unwrap();
        for (host, is_ours) in [
            ("127.0.0.1:4280", true),
            ("localhost", true),
            ("LOCALHOST.:9", true),
            ("[::1]:4280", true),
            ("[::1]", true),
            ("10.1.2.3", true),
            ("lab.example.org:80", true),
            ("evil.example", false),
            ("127.0.0.1.evil.example", false),
            ("localhost.evil.example", false),
            ("localhost:80@evil.example", false),
            ("[localhost]:80", false),
            ("[::1].evil.example", false),
            ("localhost:8x", false),
            ("", false),
        ] {
            assert_eq!(guard.is_ours(host), is_ours, "{host}");
        }
        assert_eq!(status(&guard, &Method::GET, "/", &[("host", "evil.example")]), 421);
        assert_eq!(status(&guard, &Method::GET, "/", &[]), 400);
        assert_eq!(status(&guard, &Method::GET, "/", &[("host", "localhost"), ("host", "localhost")]), 400);
    }

    #[test]
    fn a_page_of_another_site_can_neither_read_nor_start_anything() {
        let guard = Guard::new(LOOPBACK.parse().unwrap(), None, &[]).unwrap();
        let host = ("host", "localhost:4280");
        let ask = |method: Method, more: &[(&'static str, &'static str)]| status(&guard, &method, "/api/runs", &[&[host], more].concat());
        assert_eq!(ask(Method::GET, &[]), 200);
        assert_eq!(ask(Method::GET, &[("sec-fetch-site", "same-origin")]), 200);
        assert_eq!(ask(Method::GET, &[("sec-fetch-site", "cross-site")]), 403);
        // A form or a simple request: no header of ours.
        assert_eq!(ask(Method::POST, &[]), 403);
        assert_eq!(ask(Method::POST, &[(HEADER, "1"), ("origin", "http://evil.example")]), 403);
        assert_eq!(ask(Method::POST, &[(HEADER, "1"), ("origin", "null")]), 403);
        assert_eq!(ask(Method::POST, &[(HEADER, "1"), ("origin", "http://localhost:9999")]), 403);
        assert_eq!(ask(Method::POST, &[(HEADER, "1"), ("origin", "http://localhost:4280")]), 200);
    }

    #[test]
    fn beyond_loopback_everything_demands_the_token() {
        let address = "0.0.0.0:4280".parse().unwrap();
        assert!(Guard::new(address, None, &[]).unwrap_err().contains("NOCTULE_LAB_TOKEN"));
        assert!(Guard::new(address, Some("short"), &[]).unwrap_err().contains("at least 16"));
        assert!(Guard::new(address, Some("with a space in it"), &[]).is_err());
        let guard = Guard::new(address, Some("0123456789abcdef"), &[]).unwrap();
        let ask = |path: &str, token: Option<&'static str>| {
            let headers: Vec<_> = [("host", "10.0.0.1:4280")].into_iter().chain(token.map(|token| ("authorization", token))).collect();
            status(&guard, &Method::GET, path, &headers)
        };
        assert_eq!(ask("/api/runs", None), 401);
        assert_eq!(ask("/api/runs", Some("Bearer 0123456789abcdeX")), 401);
        assert_eq!(ask("/api/runs", Some("Bearer 0123456789abcde")), 401);
        assert_eq!(ask("/api/runs", Some("0123456789abcdef")), 401);
        assert_eq!(ask("/api/runs", Some("Bearer 0123456789abcdef")), 200);
        // The page itself has no secrets; it asks for the token.
        assert_eq!(ask("/", None), 200);
    }
}

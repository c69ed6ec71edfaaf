//! The part of HTTP that a proxy takes: CONNECT, and plain requests with a whole URL. No sockets here.
//!
//! A plain request is passed on with `Connection: close`, and a connection carries no more than one: the next one may be for another host.

use crate::target::{Host, Target};
use crate::wire::{Answer, Outcome};

/// Bytes of the longest head of a request.
pub const MOST_HEAD: usize = 32 << 10;
/// Headers that are between the client and this proxy (RFC 9110 §7.6.1).
const HOP_BY_HOP: [&str; 7] =
    ["connection", "proxy-connection", "keep-alive", "proxy-authorization", "proxy-authenticate", "te", "trailer"];

/// A request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Request {
    /// The connection's bytes are for the target.
    Connect(Target),
    /// For the target, with the head that it gets.
    Plain {
        /// Of the URL.
        target: Target,
        /// As the target wants it.
        head: Vec<u8>,
        /// Bytes that follow it: of a body, or any number after an upgrade.
        body: u64,
    },
}

/// A request and its length; `None`: more has to come.
///
/// # Errors
/// The bytes are no request; the text says why, for the client.
pub fn parse(bytes: &[u8]) -> Result<Option<(Request, usize)>, &'static str> {
    let Some(end) = bytes.windows(4).position(|w| w == b"\r\n\r\n") else {
        return match bytes.len() > MOST_HEAD {
            true => Err("the head of the request is too long"),
            false => Ok(None),
        };
    };
    if end > MOST_HEAD {
        return Err("the head of the request is too long");
    }
    let text = str::from_utf8(&bytes[..end]).map_err(|_| "the head of the request is no text")?;
    let mut lines = text.split("\r\n");
    let line = lines.next().unwrap_or_default();
    let mut words = line.split(' ');
    let (Some(method), Some(place), Some(version), None) = (words.next(), words.next(), words.next(), words.next()) else {
        return Err("the first line is not METHOD TARGET VERSION");
    };
    if !matches!(version, "HTTP/1.1" | "HTTP/1.0") {
        return Err("only HTTP/1.1 and HTTP/1.0 are spoken here");
    }
    if method.is_empty() || !method.bytes().all(|b| b.is_ascii_alphabetic() || b == b'-') {
        return Err("the method is no word");
    }
    if method == "CONNECT" {
        let target = place.parse().map_err(|_| "CONNECT needs HOST:PORT")?;
        return Ok(Some((Request::Connect(target), end + 4)));
    }
    let Some(rest) = strip_scheme(place) else { return Err("this is a proxy: it takes CONNECT HOST:PORT and http:// URLs") };
    let (authority, path) = rest.find(['/', '?']).map_or((rest, ""), |at| rest.split_at(at));
    let authority = authority.rsplit_once('@').map_or(authority, |(_, host)| host);
    let target = authority_of(authority).ok_or("the URL names no host")?;
    let slash = if path.starts_with('/') { "" } else { "/" };
    let mut head = format!("{method} {slash}{path} {version}\r\n").into_bytes();
    let body = headers(lines, authority, &mut head)?;
    Ok(Some((Request::Plain { target, head, body }, end + 4)))
}

fn strip_scheme(url: &str) -> Option<&str> {
    let scheme = url.get(..7)?;
    scheme.eq_ignore_ascii_case("http://").then(|| &url[7..])
}

fn authority_of(text: &str) -> Option<Target> {
    let has_port = match text.rfind(']') {
        Some(end) => text[end..].contains(':'),
        None => text.contains(':'),
    };
    match text.strip_suffix(':').or((!has_port).then_some(text)) {
        Some(host) => Host::parse(host).ok().map(|host| Target::new(host, 80)),
        None => text.parse().ok(),
    }
}

/// Appends the headers that go on to the target, and the empty line. Returns how many bytes follow. The host is the URL's (RFC 9112 §3.2.2).
fn headers<'a>(lines: impl Iterator<Item = &'a str>, authority: &str, head: &mut Vec<u8>) -> Result<u64, &'static str> {
    let lines: Vec<(&str, &str)> = lines
        .map(|line| line.split_once(':').filter(|(name, _)| !name.is_empty() && name.bytes().all(|b| b.is_ascii_graphic())))
        .collect::<Option<_>>()
        .ok_or("a line of the head is no header")?;
    let is = |name: &str, other: &str| name.eq_ignore_ascii_case(other);
    let named: Vec<&str> =
        lines.iter().filter(|(name, _)| is(name, "connection")).flat_map(|(_, value)| value.split(',').map(str::trim)).collect();
    let upgrades = named.iter().any(|name| is(name, "upgrade"));
    if lines.iter().any(|(_, value)| value.contains(['\n', '\r', '\0'])) {
        return Err("a header has a character that none may have");
    }
    if lines.iter().any(|(name, _)| is(name, "transfer-encoding")) {
        return Err("a body of unknown length is not taken here: send its length, or use CONNECT");
    }
    let mut lengths = lines.iter().filter(|(name, _)| is(name, "content-length")).map(|(_, value)| value.trim());
    let body = match (lengths.next(), lengths.next()) {
        (None, _) => 0,
        (Some(length), None) if length.bytes().all(|b| b.is_ascii_digit()) => {
            length.parse().map_err(|_| "the length of the body is no number")?
        }
        _ => return Err("the length of the body is no number, or said twice"),
    };
    head.extend(format!("Host: {authority}\r\n").bytes());
    for (name, value) in &lines {
        let is_between = is(name, "host")
            || HOP_BY_HOP.iter().any(|hop| is(name, hop))
            || !is(name, "content-length") && named.iter().any(|other| is(name, other)) && !(upgrades && is(name, "upgrade"));
        if !is_between {
            head.extend(format!("{name}:{value}\r\n").bytes());
        }
    }
    head.extend(format!("Connection: {}\r\n\r\n", if upgrades { "Upgrade" } else { "close" }).bytes());
    Ok(if upgrades { u64::MAX } else { body })
}

/// What a client of CONNECT hears when the connection stands.
pub const ESTABLISHED: &[u8] = b"HTTP/1.1 200 Connection established\r\n\r\n";

/// A whole answer for a request whose target cannot be reached.
pub fn refusal(answer: &Answer) -> Vec<u8> {
    let status = match answer.outcome {
        Outcome::Denied => "403 Forbidden",
        Outcome::TimedOut => "504 Gateway Timeout",
        Outcome::Busy => "503 Service Unavailable",
        _ => "502 Bad Gateway",
    };
    response(status, &answer.words())
}

/// A whole answer for bytes that are no request.
pub fn bad(why: &str) -> Vec<u8> {
    response("400 Bad Request", why)
}

fn response(status: &str, why: &str) -> Vec<u8> {
    let body = format!("noctule proxy: {why}\n");
    let head = format!(
        "HTTP/1.1 {status}\r\nContent-Type: text/plain; charset=utf-8\r\nContent-Length: {}\r\nConnection: close\r\n\r\n",
        body.len()
    );
    [head.into_bytes(), body.into_bytes()].concat()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn plain(text: &str) -> (String, String) {
        match parse(text.as_bytes()) {
            Ok(Some((Request::Plain { target, head, .. }, len))) if len == text.len() => {
                (target.to_string(), String::from_utf8(head).unwrap())
            }
            other => panic!("{text}: {other:?}"),
        }
    }

    #[test]
    fn connect_is_read_in_pieces_and_what_follows_is_left_alone() {
        let text = b"CONNECT [2001:db8::1]:443 HTTP/1.1\r\nHost: x\r\n\r\n";
        for len in 0..text.len() {
            assert_eq!(parse(&text[..len]), Ok(None));
        }
        let longer = [&text[..], b"\x16\x03"].concat();
        assert_eq!(parse(&longer), Ok(Some((Request::Connect("[2001:db8::1]:443".parse().unwrap()), text.len()))));
    }

    #[test]
    fn plain_requests_get_the_head_that_a_server_wants() {
        let (target, head) = plain(
            "GET http://Example.org/a?b=c HTTP/1.1\r\nHost: internal.example\r\nProxy-Connection: keep-alive\r\nConnection: keep-alive, X-Own\r\nX-Own: 1\r\nProxy-Authorization: Basic eDp5\r\nAccept: */*\r\n\r\n",
        );
        assert_eq!(target, "Example.org:80");
        assert_eq!(head, "GET /a?b=c HTTP/1.1\r\nHost: Example.org\r\nAccept: */*\r\nConnection: close\r\n\r\n");
        let (target, head) = plain("GET HTTP://u:p@[::1]:8080?q HTTP/1.0\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\r\n");
        assert_eq!(target, "[::1]:8080");
        assert_eq!(head, "GET /?q HTTP/1.0\r\nHost: [::1]:8080\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n\r\n");
        assert_eq!(plain("HEAD http://[2001:db8::1] HTTP/1.1\r\n\r\n").0, "[2001:db8::1]:80");
        assert_eq!(plain("HEAD http://h: HTTP/1.1\r\n\r\n").0, "h:80");
    }

    #[test]
    fn a_request_says_how_much_follows_it() {
        let body = |headers: &str| match parse(format!("POST http://h/ HTTP/1.1\r\n{headers}\r\n").as_bytes()) {
            Ok(Some((Request::Plain { body, .. }, _))) => body,
            other => panic!("{headers}: {other:?}"),
        };
        assert_eq!((body(""), body("Content-Length: 12\r\n"), body("Connection: content-length\r\nContent-Length: 3\r\n")), (0, 12, 3));
        assert_eq!(body("Connection: Upgrade\r\nUpgrade: websocket\r\n"), u64::MAX);
    }

    #[test]
    fn what_is_no_request_is_told() {
        for (text, words) in [
            ("GET / HTTP/1.1\r\n\r\n", "this is a proxy"),
            ("GET https://h/ HTTP/1.1\r\n\r\n", "this is a proxy"),
            ("GET http:// HTTP/1.1\r\n\r\n", "names no host"),
            ("GET http://h:x/ HTTP/1.1\r\n\r\n", "names no host"),
            ("GET http://h/\r\n\r\n", "first line"),
            ("GET  http://h/ HTTP/1.1\r\n\r\n", "first line"),
            ("PRI * HTTP/2.0\r\n\r\n", "HTTP/1.1"),
            ("CONNECT h HTTP/1.1\r\n\r\n", "HOST:PORT"),
            ("GET http://h/ HTTP/1.1\r\nno header\r\n\r\n", "no header"),
            ("GET http://h/ HTTP/1.1\r\nA: b\r\n folded\r\n\r\n", "no header"),
            ("\r\n\r\n", "first line"),
            ("POST http://h/ HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\n", "unknown length"),
            ("POST http://h/ HTTP/1.1\r\nContent-Length: 1\r\nContent-Length: 2\r\n\r\n", "said twice"),
            ("POST http://h/ HTTP/1.1\r\nContent-Length: +1\r\n\r\n", "no number"),
            ("GET http://h/ HTTP/1.1\r\nA: b\nHost: c\r\n\r\n", "none may have"),
        ] {
            let error = parse(text.as_bytes()).unwrap_err();
            assert!(error.contains(words), "{text:?}: {error}");
        }
        assert!(parse(&[b'A'; MOST_HEAD + 1]).is_err());
        assert!(parse(b"GET http://h/\xff HTTP/1.1\r\n\r\n").is_err());
    }

    #[test]
    fn refusals_have_their_status() {
        let text = |outcome| String::from_utf8(refusal(&Answer::new(outcome, "why"))).unwrap();
        for (outcome, status) in [
            (Outcome::Denied, "403"),
            (Outcome::TimedOut, "504"),
            (Outcome::Refused, "502"),
            (Outcome::Unreachable, "502"),
            (Outcome::NameNotFound, "502"),
            (Outcome::Busy, "503"),
        ] {
            assert!(text(outcome).starts_with(&format!("HTTP/1.1 {status} ")), "{}", text(outcome));
        }
        assert!(text(Outcome::Refused).ends_with("connection refused: why\n"));
    }
}

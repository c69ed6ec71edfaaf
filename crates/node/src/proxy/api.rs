//! The status of a server over HTTP: on a Unix socket that only its user may open, or on loopback for programs that know a secret.

use super::metrics;
use crate::daemon::control::{self, Local};
use crate::daemon::places::Places;
use crate::directories;
use crate::failure::Failure;
use crate::http::{self, Answer, Asked};
use crate::identity;
use hyper::header::{AUTHORIZATION, HeaderValue, WWW_AUTHENTICATE};
use hyper::{Method, StatusCode};
use noctule_proxy::{Far, Snapshot};
use prometheus_client::encoding::prometheus_text;
use serde::{Deserialize, Serialize};
use serde_json::json;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, SystemTime};
use tokio::net::TcpListener;
use tokio::time::Instant;

/// A client that connects and asks nothing is not waited for.
const PATIENCE: Duration = Duration::from_secs(5);
/// Requests at a time; the oldest makes room.
const MAX_REQUESTS: usize = 16;
/// Bytes of the shortest secret.
const LEAST_SECRET: usize = 16;
/// The socket: its user's alone.
const SOCKET: Local = Local { name: "API socket", owner: "process", option: "--api", mode: 0o600 };

/// Where a server is asked.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Place {
    /// A Unix socket.
    Socket(PathBuf),
    /// An address on loopback.
    Address(SocketAddr),
}

impl Place {
    /// As it is written: an address has a port, a path a slash.
    pub fn parse(text: &str) -> Result<Self, Failure> {
        match text.parse::<SocketAddr>() {
            Ok(address) if address.port() == 0 => Err(Failure::Usage(format!("--api {text}: a port from 1 to 65535"))),
            Ok(address) if address.ip().is_loopback() => Ok(Self::Address(address)),
            Ok(address) => Err(Failure::Usage(format!("--api {address}: only on loopback, as 127.0.0.1:{}", address.port()))),
            Err(_) if text.contains('/') => Ok(Self::Socket(text.into())),
            Err(_) => Err(Failure::Usage(format!("--api {text}: a path with a slash (./proxy.sock), or an address (127.0.0.1:9495)"))),
        }
    }
}

/// The directory of sockets that nobody named: systemd's, the user's, or root's.
pub fn runtime_directory() -> Option<PathBuf> {
    let of_root = || rustix::process::geteuid().is_root().then(|| PathBuf::from("/run/noctule"));
    directories::of_unit("RUNTIME_DIRECTORY")
        .or_else(|| directories::named_by("XDG_RUNTIME_DIR").map(|base| base.join("noctule")))
        .or_else(of_root)
}

/// The name of a server's socket. Servers on several addresses of a host may have one port.
fn socket_name(serves: SocketAddr) -> String {
    match serves.ip().is_unspecified() {
        true => format!("proxy-{}.sock", serves.port()),
        false => format!("proxy-{}-{}.sock", serves.ip(), serves.port()),
    }
}

/// The secret of a file.
pub fn secret(file: &Path) -> Result<blake3::Hash, Failure> {
    let text = identity::read_secret(file)?;
    match text.trim() {
        secret if secret.len() < LEAST_SECRET || !secret.bytes().all(|byte| byte.is_ascii_graphic()) => {
            let what = format!("a secret has {LEAST_SECRET} characters of ASCII at least, and no spaces: head -c 24 /dev/urandom | base64");
            Err(Failure::source(file, what))
        }
        secret => Ok(blake3::hash(secret.as_bytes())),
    }
}

/// What is told.
#[derive(Debug, Serialize, Deserialize)]
pub struct Report {
    /// Of the program.
    pub version: String,
    /// Since the start, in seconds.
    pub uptime_s: f64,
    /// Users, targets.
    #[serde(flatten)]
    pub now: Snapshot,
}

/// What is to be ended.
#[derive(Debug, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Kick {
    /// By name or key.
    User(String),
    /// By number.
    Connection(u64),
}

/// What was ended.
#[derive(Debug, Serialize, Deserialize)]
pub struct Kicked {
    /// So many.
    pub connections: usize,
    /// So many.
    pub sessions: usize,
}

/// Asked, it answers about this server.
pub struct Api {
    far: Arc<Far>,
    begun: (Instant, SystemTime),
    /// The hash of the secret that a request has to name: hashes are compared in constant time.
    secret: Option<blake3::Hash>,
}

impl Api {
    fn answer(&self, request: &Asked) -> Answer {
        if let Some(secret) = &self.secret {
            let said = request.headers().get(AUTHORIZATION).and_then(|value| value.as_bytes().strip_prefix(b"Bearer "));
            if !http::is_meant(request, &[]) {
                return problem(StatusCode::MISDIRECTED_REQUEST, "ask by address, or as localhost");
            }
            if !said.is_some_and(|said| blake3::hash(said.trim_ascii()) == *secret) {
                let mut refusal = problem(StatusCode::UNAUTHORIZED, "say the secret: Authorization: Bearer SECRET");
                refusal.headers_mut().insert(WWW_AUTHENTICATE, HeaderValue::from_static("Bearer"));
                return refusal;
            }
        }
        match (request.method(), request.uri().path()) {
            (&Method::GET, "/v1/status") => {
                let (version, uptime_s) = (env!("CARGO_PKG_VERSION").to_owned(), self.begun.0.elapsed().as_secs_f64());
                told(&Report { version, uptime_s, now: self.far.snapshot() })
            }
            (&Method::GET, "/v1/connections") => told(&json!({"connections": self.far.connections()})),
            (&Method::GET, "/metrics") => {
                let text = metrics::text(self.far.snapshot(), self.begun.1);
                http::answer(StatusCode::OK, prometheus_text::CONTENT_TYPE, text)
            }
            (&Method::POST, "/v1/kick") => self.kick(request.body()),
            (_, "/v1/status" | "/v1/connections" | "/metrics" | "/v1/kick") => {
                problem(StatusCode::METHOD_NOT_ALLOWED, "GET, and POST for /v1/kick")
            }
            _ => problem(StatusCode::NOT_FOUND, "there are /v1/status, /v1/connections, /v1/kick and /metrics"),
        }
    }

    fn kick(&self, body: &[u8]) -> Answer {
        let kick = match serde_json::from_slice(body) {
            Ok(kick) => kick,
            Err(error) => return problem(StatusCode::BAD_REQUEST, &format!("{{\"user\": NAME}} or {{\"connection\": NUMBER}}: {error}")),
        };
        let kicked = match &kick {
            Kick::User(name) => self.far.kick_user(name).map(|(connections, sessions)| Kicked { connections, sessions }),
            Kick::Connection(id) => self.far.kick_connection(*id).then_some(Kicked { connections: 1, sessions: 0 }),
        };
        match (kicked, kick) {
            (Some(kicked), kick) => {
                let what = match kick {
                    Kick::User(name) => name,
                    Kick::Connection(id) => id.to_string(),
                };
                tracing::info!(%what, connections = kicked.connections, sessions = kicked.sessions, "kicked");
                told(&kicked)
            }
            (None, Kick::User(name)) => problem(StatusCode::NOT_FOUND, &format!("there is no user {name:?}")),
            (None, Kick::Connection(id)) => problem(StatusCode::NOT_FOUND, &format!("there is no connection {id}")),
        }
    }
}

fn told(value: &impl Serialize) -> Answer {
    match serde_json::to_vec(value) {
        Ok(text) => http::answer(StatusCode::OK, "application/json", text),
        Err(error) => problem(StatusCode::INTERNAL_SERVER_ERROR, &error.to_string()),
    }
}

fn problem(status: StatusCode, why: &str) -> Answer {
    http::answer(status, "application/json", json!({"error": why}).to_string())
}

enum Listener {
    Socket(control::Listener),
    Address(TcpListener),
}

/// A place that is listened at.
pub struct Bound {
    listener: Listener,
    secret: Option<blake3::Hash>,
}

/// Listens where that is wanted; `None`: nowhere. Where nobody has named a place, that it cannot be had is no error.
pub async fn bind(named: Option<&str>, secret_file: Option<&Path>, serves: SocketAddr) -> Result<Option<Bound>, Failure> {
    let Some(named) = named else {
        let Some(directory) = runtime_directory() else { return Ok(None) };
        return Ok(match control::listen(&directory.join(socket_name(serves)), &SOCKET) {
            Ok(socket) => Some(Bound { listener: Listener::Socket(socket), secret: None }),
            Err(failure) => {
                tracing::warn!("no status is told: {failure}");
                None
            }
        });
    };
    if named == "no" {
        return match secret_file {
            None => Ok(None),
            Some(_) => Err(Failure::Usage("--api no has no use for --api-secret: leave one of them out".into())),
        };
    }
    match (Place::parse(named)?, secret_file) {
        (Place::Socket(_), Some(_)) => Err(Failure::Usage("--api-secret is for an address: a socket is its user's alone".into())),
        (Place::Socket(path), None) => Ok(Some(Bound { listener: Listener::Socket(control::listen(&path, &SOCKET)?), secret: None })),
        (Place::Address(at), None) => Err(Failure::Usage(format!(
            "--api {at} needs --api-secret FILE: every user of this host could ask there; or name a socket, which is its user's alone"
        ))),
        (Place::Address(at), Some(file)) => {
            let secret = Some(secret(file)?);
            let listener = TcpListener::bind(at).await.map_err(|e| Failure::Listen(format!("--api {at}: {e}; choose another address")))?;
            Ok(Some(Bound { listener: Listener::Address(listener), secret }))
        }
    }
}

/// Answers for ever. The socket's file is removed when this is dropped.
pub async fn serve(bound: Bound, far: Arc<Far>) {
    let Bound { listener, secret } = bound;
    let api = Arc::new(Api { far, begun: (Instant::now(), SystemTime::now()), secret });
    let mut places = Places::new(MAX_REQUESTS, PATIENCE);
    loop {
        let api = Arc::clone(&api);
        let accepted = match &listener {
            Listener::Socket(socket) => socket.accept().await.map(|stream| {
                places.begin(async move { http::serve(stream, |request| api.answer(&request)).await });
            }),
            Listener::Address(tcp) => tcp.accept().await.map(|(stream, _)| {
                places.begin(async move { http::serve(stream, |request| api.answer(&request)).await });
            }),
        };
        if let Err(error) = accepted {
            tracing::warn!(%error, "the port of the API");
            tokio::time::sleep(PATIENCE).await;
        }
    }
}

//! `noctule proxy status` and `noctule proxy kick`: the questions to a server on this host.

use super::api::{self, Kick, Kicked, Place, Report};
use super::screen;
use crate::cli::{ProxyApiArgs, ProxyKickArgs, ProxyStatusArgs};
use crate::daemon::control::escape;
use crate::daemon::status::Screen;
use crate::failure::Failure;
use crate::identity;
use http_body_util::{BodyExt, Full, Limited};
use hyper::body::Bytes;
use hyper::header::{AUTHORIZATION, HOST};
use hyper::{Method, Request};
use hyper_util::rt::TokioIo;
use noctule_proxy::ConnectionView;
use serde::Deserialize;
use serde::de::DeserializeOwned;
use serde_json::Value;
use std::io::ErrorKind;
use std::path::PathBuf;
use std::time::Duration;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::{TcpStream, UnixStream};

/// How long an answer may take.
const PATIENCE: Duration = Duration::from_secs(10);
/// Bytes of the longest answer.
const MOST_ANSWER: usize = 64 << 20;

/// A server that can be asked.
struct Server {
    place: Place,
    secret: Option<String>,
}

#[derive(Deserialize)]
struct Connections {
    connections: Vec<ConnectionView>,
}

trait Stream: AsyncRead + AsyncWrite + Send + Unpin {}
impl<T: AsyncRead + AsyncWrite + Send + Unpin> Stream for T {}

impl Server {
    /// The one that the command line names, or the one that is there.
    async fn find(args: &ProxyApiArgs) -> Result<Self, Failure> {
        if let Some(named) = &args.api {
            let place = Place::parse(named)?;
            let secret = match (&place, &args.api_secret) {
                (Place::Address(_), Some(file)) => Some(identity::read_secret(file)?.trim().to_owned()),
                (Place::Address(at), None) => return Err(Failure::Usage(format!("--api {at} needs --api-secret FILE"))),
                (Place::Socket(_), Some(_)) => return Err(Failure::Usage("--api-secret is for an address".into())),
                (Place::Socket(_), None) => None,
            };
            return Ok(Self { place, secret });
        }
        let directory = api::runtime_directory().ok_or_else(|| {
            Failure::Usage("there is no runtime directory (XDG_RUNTIME_DIR): name the socket with --api, here and at proxy serve".into())
        })?;
        let names = std::fs::read_dir(&directory).into_iter().flatten().flatten().map(|entry| entry.path());
        let is_ours = |path: &PathBuf| {
            path.file_name().and_then(|name| name.to_str()).is_some_and(|name| name.starts_with("proxy-") && name.ends_with(".sock"))
        };
        let mut live = Vec::new();
        for path in names.filter(is_ours) {
            if UnixStream::connect(&path).await.is_ok() {
                live.push(path);
            }
        }
        live.sort();
        match &live[..] {
            [] => Err(Failure::NoNode(format!(
                "no `noctule proxy serve` answers in {}: is one running, and by this user? Otherwise name it with --api",
                directory.display()
            ))),
            [one] => Ok(Self { place: Place::Socket(one.clone()), secret: None }),
            several => {
                let names: Vec<String> = several.iter().map(|path| path.display().to_string()).collect();
                Err(Failure::Usage(format!("several are running: say which with --api {}", names.join(" or --api "))))
            }
        }
    }

    fn shown(&self) -> String {
        match &self.place {
            Place::Socket(path) => path.display().to_string(),
            Place::Address(at) => at.to_string(),
        }
    }

    async fn connect(&self) -> Result<Box<dyn Stream>, Failure> {
        let connected: std::io::Result<Box<dyn Stream>> = match &self.place {
            Place::Socket(path) => UnixStream::connect(path).await.map(|stream| Box::new(stream) as _),
            Place::Address(at) => TcpStream::connect(at).await.map(|stream| Box::new(stream) as _),
        };
        connected.map_err(|error| {
            let advice = match error.kind() {
                ErrorKind::PermissionDenied => "ask as the user that runs the server",
                _ => "is `noctule proxy serve` running, with this --api?",
            };
            Failure::NoNode(format!("{}: {error}; {advice}", self.shown()))
        })
    }

    /// Asks, and reads the answer.
    async fn ask<T: DeserializeOwned>(&self, method: Method, path: &str, body: Vec<u8>) -> Result<T, Failure> {
        let stream = self.connect().await?;
        let strange =
            |what: String| Failure::System(format!("{} answered something else: {what}; is it of the same version?", self.shown()));
        let mut request = Request::builder().method(method).uri(path).header(HOST, "localhost");
        if let Some(secret) = &self.secret {
            request = request.header(AUTHORIZATION, format!("Bearer {secret}"));
        }
        let request = request.body(Full::new(Bytes::from(body))).map_err(|e| Failure::system("the request", e))?;
        let exchange = async {
            let (mut sender, connection) =
                hyper::client::conn::http1::handshake(TokioIo::new(stream)).await.map_err(|e| strange(e.to_string()))?;
            let connection = tokio::spawn(connection);
            let answer = sender.send_request(request).await.map_err(|e| strange(e.to_string()))?;
            let status = answer.status();
            let body = Limited::new(answer.into_body(), MOST_ANSWER).collect().await.map_err(|e| strange(e.to_string()))?.to_bytes();
            connection.abort();
            Ok::<_, Failure>((status, body))
        };
        let (status, body) =
            tokio::time::timeout(PATIENCE, exchange).await.map_err(|_| Failure::System(format!("{} does not answer", self.shown())))??;
        // Its user may have fewer rights than the one that asks, and names come from others.
        let mut value: Value = serde_json::from_slice(&body).map_err(|e| strange(e.to_string()))?;
        escape(&mut value);
        if !status.is_success() {
            let why = value["error"].as_str().unwrap_or("no reason").to_owned();
            return Err(Failure::Usage(format!("{}: {why}", self.shown())));
        }
        serde_json::from_value(value).map_err(|e| strange(e.to_string()))
    }
}

/// `noctule proxy status`.
pub async fn status(args: ProxyStatusArgs) -> Result<(), Failure> {
    let server = Server::find(&args.api).await?;
    loop {
        let report: Report = server.ask(Method::GET, "/v1/status", Vec::new()).await?;
        let connections: Option<Vec<ConnectionView>> = match args.connections {
            true => Some(server.ask::<Connections>(Method::GET, "/v1/connections", Vec::new()).await?.connections),
            false => None,
        };
        if args.json {
            let mut value = serde_json::to_value(&report).map_err(|e| Failure::system("status", e))?;
            if let Some(connections) = connections {
                value["open"] = serde_json::to_value(connections).map_err(|e| Failure::system("status", e))?;
            }
            say!("{value}");
        } else {
            let screen = Screen::of_terminal(args.watch.is_none());
            if args.watch.is_some() && screen != Screen::default() {
                crate::terminal::clear();
            }
            crate::terminal::out(format_args!("{}", screen::print(&report, connections.as_deref(), screen)));
        }
        let Some(pause) = args.watch else { return Ok(()) };
        tokio::time::sleep(pause.0).await;
    }
}

/// `noctule proxy kick`.
pub async fn kick(args: ProxyKickArgs) -> Result<(), Failure> {
    let server = Server::find(&args.api).await?;
    let kick = args.what.parse().map_or_else(|_| Kick::User(args.what.clone()), Kick::Connection);
    let body = serde_json::to_vec(&kick).map_err(|e| Failure::system("the request", e))?;
    let Kicked { connections, sessions } = server.ask(Method::POST, "/v1/kick", body).await?;
    let counted = |count: usize, thing| crate::units::counted(count as u64, thing);
    say!("ended: {}, {}", counted(connections, "connection"), counted(sessions, "session"));
    Ok(())
}

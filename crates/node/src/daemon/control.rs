//! The control socket: a local unix socket that answers one request per connection, a line of JSON each way.

use super::Daemon;
use super::status::{self, Report};
use crate::cli::{ReloadArgs, StatusArgs};
use crate::failure::Failure;
use serde::{Deserialize, Serialize};
use std::io;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;
use tokio::io::{AsyncBufReadExt, AsyncReadExt, AsyncWriteExt, BufReader};
use tokio::net::{UnixListener, UnixStream};

/// Unless the file or `--socket` says otherwise.
pub const DEFAULT_SOCKET: &str = "/run/noctule/node.sock";
/// Longest request.
const MAX_REQUEST: u64 = 4096;
/// Who connects and says nothing is not waited for.
const PATIENCE: Duration = Duration::from_secs(5);

/// The bound socket.
pub type Listener = UnixListener;

#[derive(Debug, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
enum Request {
    Status,
    Reload,
}

#[derive(Debug, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
enum Answer {
    Status(Box<Report>),
    Reloaded { notes: Vec<String> },
    Error { message: String },
}

/// Binds the socket, for its owner and group only.
///
/// # Errors
/// Another node has it, or the directory cannot be written.
pub fn listen(path: &Path) -> Result<Listener, Failure> {
    let refuse = |what: String| Failure::Listen(format!("control socket {}: {what}", path.display()));
    if let Some(directory) = path.parent().filter(|p| !p.as_os_str().is_empty()) {
        std::fs::create_dir_all(directory)
            .map_err(|e| refuse(format!("cannot make its directory: {e}; choose another place with [control] socket")))?;
    }
    let bind = || UnixListener::bind(path);
    let listener = match bind() {
        Err(error) if error.kind() == io::ErrorKind::AddrInUse => {
            // Left behind by a node that was killed, unless somebody answers.
            if std::os::unix::net::UnixStream::connect(path).is_ok() {
                return Err(refuse("another node has it: end that node, or give this one its own with [control] socket".into()));
            }
            std::fs::remove_file(path).and_then(|()| bind())
        }
        result => result,
    };
    let listener = listener.map_err(|e| refuse(format!("{e}; choose another place with [control] socket")))?;
    std::fs::set_permissions(path, std::fs::Permissions::from_mode(0o660)).map_err(|e| refuse(format!("cannot restrict it: {e}")))?;
    Ok(listener)
}

/// Removes the socket when the node ends.
pub fn remove(path: &Path) {
    // A socket that is left behind is recognised by the next node.
    let _ = std::fs::remove_file(path);
}

/// Answers for ever.
pub async fn serve(listener: Listener, daemon: Arc<Daemon>) {
    loop {
        match listener.accept().await {
            Ok((stream, _)) => {
                let daemon = Arc::clone(&daemon);
                tokio::spawn(async move {
                    if let Ok(Err(error)) = tokio::time::timeout(PATIENCE, answer(stream, daemon)).await {
                        tracing::debug!(%error, "a request on the control socket failed");
                    }
                });
            }
            Err(error) => {
                tracing::warn!(%error, "the control socket");
                tokio::time::sleep(PATIENCE).await;
            }
        }
    }
}

async fn answer(stream: UnixStream, daemon: Arc<Daemon>) -> io::Result<()> {
    let (read, mut write) = stream.into_split();
    let mut line = String::new();
    BufReader::new(read).take(MAX_REQUEST).read_line(&mut line).await?;
    let answer = match serde_json::from_str(&line) {
        Ok(Request::Status) => Answer::Status(Box::new(daemon.report())),
        Ok(Request::Reload) => match daemon.reload().await {
            Ok(notes) => {
                tracing::info!(notes = notes.join("; "), "reloaded");
                Answer::Reloaded { notes }
            }
            Err(error) => {
                tracing::error!("not reloaded, the node goes on as it was: {error}");
                Answer::Error { message: error.to_string() }
            }
        },
        Err(error) => Answer::Error { message: format!("not a request: {error}") },
    };
    let mut text = serde_json::to_vec(&answer)?;
    text.push(b'\n');
    write.write_all(&text).await
}

async fn ask(socket: &Path, request: &Request) -> Result<Answer, Failure> {
    let mut stream = UnixStream::connect(socket).await.map_err(|error| {
        let advice = match error.kind() {
            io::ErrorKind::PermissionDenied => "ask as the user that runs the node",
            _ => "is `noctule node` running, and is this its [control] socket?",
        };
        Failure::NoNode(format!("{}: {error}; {advice}", socket.display()))
    })?;
    let exchange = async {
        let mut text = serde_json::to_vec(request)?;
        text.push(b'\n');
        stream.write_all(&text).await?;
        let mut answer = Vec::new();
        stream.read_to_end(&mut answer).await?;
        Ok::<_, io::Error>(serde_json::from_slice(&answer)?)
    };
    match tokio::time::timeout(2 * PATIENCE, exchange).await {
        Ok(Ok(answer)) => Ok(answer),
        Ok(Err(error)) => {
            Err(Failure::System(format!("the node at {} answered something else: {error}; is it of the same version?", socket.display())))
        }
        Err(_) => Err(Failure::System(format!("the node at {} does not answer", socket.display()))),
    }
}

/// `noctule status`.
pub async fn status(args: StatusArgs) -> Result<(), Failure> {
    let mut before: Option<Report> = None;
    loop {
        let report = match ask(&args.socket, &Request::Status).await? {
            Answer::Status(report) => *report,
            Answer::Error { message } => return Err(Failure::System(message)),
            Answer::Reloaded { .. } => return Err(Failure::System("the node answered another question".into())),
        };
        if args.json {
            say!("{}", serde_json::to_string(&report).map_err(|e| Failure::system("status", e))?);
        } else {
            if args.watch.is_some() && before.is_some() {
                // Back to the top of the screen, and what was there away.
                print!("\x1b[H\x1b[J");
            }
            print!("{}", status::print(&report, before.as_ref(), args.flows));
        }
        let Some(pause) = args.watch else { return Ok(()) };
        before = Some(report);
        tokio::time::sleep(pause.0).await;
    }
}

/// `noctule reload`.
pub async fn reload(args: ReloadArgs) -> Result<(), Failure> {
    match ask(&args.socket, &Request::Reload).await? {
        Answer::Reloaded { notes } => {
            say!("reloaded");
            notes.iter().for_each(|note| say!("{note}"));
            Ok(())
        }
        Answer::Error { message } => Err(Failure::Usage(format!("{message}\nthe node goes on as it was"))),
        Answer::Status(_) => Err(Failure::System("the node answered another question".into())),
    }
}

//! The control socket: a local unix socket that answers one request per connection, a line of JSON in each direction.

use super::Daemon;
use super::config::control_socket;
use super::places::Places;
use super::status::{self, Report, Screen};
use crate::cli::{ReloadArgs, StatusArgs};
use crate::failure::Failure;
use noctule_proto::far_text::escaped;
use serde::{Deserialize, Serialize};
use serde_json::Value;
use std::io;
use std::os::unix::fs::{DirBuilderExt, FileTypeExt, MetadataExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;
use tokio::io::{AsyncBufReadExt, AsyncReadExt, AsyncWriteExt, BufReader};
use tokio::net::{UnixListener, UnixStream};

/// Unless the file or `--socket` says otherwise.
pub const DEFAULT_SOCKET: &str = "/run/noctule/node.sock";
/// Requests at a time.
const MAX_REQUESTS: usize = 16;
/// Longest request.
const MAX_REQUEST: u64 = 4096;
/// A client that connects and says nothing is not waited for.
const PATIENCE: Duration = Duration::from_secs(5);
/// Longest wait for the first rates of `status --watch`.
pub const FIRST_LOOK: Duration = Duration::from_secs(1);

/// The bound socket; removes its file when the node ends.
pub struct Listener {
    socket: UnixListener,
    path: PathBuf,
    /// Device and inode of what was bound.
    file: (u64, u64),
}

impl Drop for Listener {
    fn drop(&mut self) {
        // The path may be another node's by now, if this one's was removed. A stale socket does no harm: the next node recognises it.
        if file_of(&self.path).is_ok_and(|file| file == self.file) {
            let _ = std::fs::remove_file(&self.path);
        }
    }
}

fn file_of(path: &Path) -> io::Result<(u64, u64)> {
    std::fs::symlink_metadata(path).map(|m| (m.dev(), m.ino()))
}

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

/// How a socket is made, and what is said about it.
pub struct Local {
    /// What it is.
    pub name: &'static str,
    /// What has it.
    pub owner: &'static str,
    /// What names another place.
    pub option: &'static str,
    /// Its rights.
    pub mode: u32,
}

/// The node's.
pub const CONTROL: Local = Local { name: "control socket", owner: "node", option: "[control] socket", mode: 0o660 };

impl Listener {
    /// The next client.
    ///
    /// # Cancel safety
    /// Dropping the future loses nothing.
    pub async fn accept(&self) -> io::Result<UnixStream> {
        self.socket.accept().await.map(|(stream, _)| stream)
    }
}

/// Binds the socket, for its owner and group at most.
///
/// # Errors
/// Another process has it, or the directory cannot be written.
pub fn listen(path: &Path, local: &Local) -> Result<Listener, Failure> {
    let Local { name, owner, option, mode } = local;
    let refuse = |what: String| Failure::Listen(format!("{name} {}: {what}", path.display()));
    if let Some(directory) = path.parent().filter(|p| !p.as_os_str().is_empty()) {
        (std::fs::DirBuilder::new().recursive(true).mode(0o750).create(directory))
            .map_err(|e| refuse(format!("cannot make its directory: {e}; choose another place with {option}")))?;
    }
    // Nobody but this user may connect in the moment before its rights are set. The mask is the process's: a file that another thread makes in this
    // moment gets fewer rights, not more.
    let bind = || {
        let before = rustix::process::umask(rustix::fs::Mode::from_raw_mode(0o177));
        let bound = UnixListener::bind(path);
        rustix::process::umask(before);
        bound
    };
    let listener = match bind() {
        Err(error) if error.kind() == io::ErrorKind::AddrInUse => {
            if !std::fs::symlink_metadata(path).is_ok_and(|m| m.file_type().is_socket()) {
                return Err(refuse(format!("there is a file of another kind: remove it, or choose another place with {option}")));
            }
            match std::os::unix::net::UnixStream::connect(path) {
                // Left behind by a node that was killed: only then nobody listens.
                Err(error) if error.kind() == io::ErrorKind::ConnectionRefused => std::fs::remove_file(path).and_then(|()| bind()),
                Err(error) => {
                    return Err(refuse(format!(
                        "another {owner} may have it, asking it fails: {error}; choose another place with {option}"
                    )));
                }
                Ok(_) => return Err(refuse(format!("another {owner} has it: end that {owner}, or give this one its own with {option}"))),
            }
        }
        result => result,
    };
    let socket = listener.map_err(|e| refuse(format!("{e}; choose another place with {option}")))?;
    std::fs::set_permissions(path, std::fs::Permissions::from_mode(*mode)).map_err(|e| refuse(format!("cannot restrict it: {e}")))?;
    let file = file_of(path).map_err(|e| refuse(e.to_string()))?;
    Ok(Listener { socket, path: path.to_owned(), file })
}

/// Answers for ever.
pub async fn serve(listener: Listener, daemon: Arc<Daemon>) {
    let mut places = Places::new(MAX_REQUESTS, PATIENCE);
    loop {
        match listener.socket.accept().await {
            Ok((stream, _)) => {
                let daemon = Arc::clone(&daemon);
                places.begin(async move {
                    if let Err(error) = answer(stream, daemon).await {
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
        let mut answer: Value = serde_json::from_slice(&answer)?;
        escape(&mut answer);
        Ok::<_, io::Error>(serde_json::from_value(answer)?)
    };
    match tokio::time::timeout(2 * PATIENCE, exchange).await {
        Ok(Ok(answer)) => Ok(answer),
        Ok(Err(error)) => {
            Err(Failure::System(format!("the node at {} answered something else: {error}; is it of the same version?", socket.display())))
        }
        Err(_) => Err(Failure::System(format!("the node at {} does not answer", socket.display()))),
    }
}

/// Every text in what a node says: its user may have fewer rights than the one that asks, and names come from its file.
pub fn escape(value: &mut Value) {
    match value {
        Value::String(text) => *text = escaped(text).to_string(),
        Value::Array(values) => values.iter_mut().for_each(escape),
        Value::Object(fields) => {
            *fields = std::mem::take(fields).into_iter().map(|(name, value)| (escaped(&name).to_string(), value)).collect();
            fields.values_mut().for_each(escape);
        }
        Value::Null | Value::Bool(_) | Value::Number(_) => {}
    }
}

/// The socket that the command line names, or else the node's file.
fn socket_of(named: Option<&PathBuf>, file: &Path) -> Result<PathBuf, Failure> {
    if let Some(named) = named {
        return Ok(named.clone());
    }
    // Without the usual file a node may run by another one, with the usual socket.
    if file == Path::new(crate::cli::NODE_FILE) && !file.exists() {
        return Ok(DEFAULT_SOCKET.into());
    }
    let socket = control_socket(file).map_err(|why| Failure::source(file, format!("{why}; name the control socket with --socket")))?;
    Ok(socket.unwrap_or_else(|| DEFAULT_SOCKET.into()))
}

/// `noctule status`.
pub async fn status(args: StatusArgs) -> Result<(), Failure> {
    let mut before = None;
    let socket = socket_of(args.socket.as_ref(), &args.config)?;
    loop {
        let report = match ask(&socket, &Request::Status).await? {
            Answer::Status(report) => *report,
            Answer::Error { message } => return Err(Failure::System(message)),
            Answer::Reloaded { .. } => return Err(Failure::System("the node answered another question".into())),
        };
        let screen = Screen::of_terminal(args.watch.is_none());
        match (args.json, args.watch, &before) {
            (true, ..) => say!("{}", serde_json::to_string(&report).map_err(|e| Failure::system("status", e))?),
            (false, None, _) => crate::terminal::out(format_args!("{}", status::print(&report, None, args.flows, screen))),
            // Rates have a beginning and an end.
            (false, Some(_), None) => {}
            (false, Some(_), Some(before)) => {
                if screen != Screen::default() {
                    crate::terminal::clear();
                }
                crate::terminal::out(format_args!("{}", status::print(&report, Some(before), args.flows, screen)));
            }
        }
        let Some(pause) = args.watch else { return Ok(()) };
        let is_first = before.is_none();
        before = Some(report);
        tokio::time::sleep(if is_first { pause.0.min(FIRST_LOOK) } else { pause.0 }).await;
    }
}

/// `noctule reload`.
pub async fn reload(args: ReloadArgs) -> Result<(), Failure> {
    let socket = socket_of(args.socket.as_ref(), &args.config)?;
    match ask(&socket, &Request::Reload).await? {
        Answer::Reloaded { notes } => {
            say!("reloaded");
            notes.iter().for_each(|note| say!("{note}"));
            Ok(())
        }
        Answer::Error { message } => Err(Failure::Usage(format!("{message}\nthe node goes on as it was"))),
        Answer::Status(_) => Err(Failure::System("the node answered another question".into())),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use noctule_proto::far_text::is_deceptive;
    use std::os::unix::net::UnixListener as StdListener;

    #[tokio::test]
    async fn the_socket_is_for_owner_and_group_and_the_mask_is_as_before() {
        let directory = tempfile::tempdir().expect("a directory");
        let path = directory.path().join("made/node.sock");
        let before = rustix::process::umask(rustix::fs::Mode::empty());
        let listener = listen(&path, &CONTROL).expect("binds");
        assert_eq!(rustix::process::umask(before), rustix::fs::Mode::empty());
        let mode = |path: &Path| std::fs::metadata(path).expect("is there").mode() & 0o777;
        assert_eq!((mode(&path), mode(path.parent().expect("made"))), (0o660, 0o750));
        drop(listener);
        assert!(!path.exists());
    }

    #[tokio::test]
    async fn only_a_socket_that_nobody_listens_to_is_taken_over() {
        let directory = tempfile::tempdir().expect("a directory");
        let path = directory.path().join("node.sock");
        let told = |path: &Path| listen(path, &CONTROL).map(|_| ()).expect_err("refused").to_string();
        std::fs::write(&path, "kept").expect("written");
        assert!(told(&path).contains("another kind"), "{}", told(&path));
        assert_eq!(std::fs::read(&path).expect("still there"), b"kept");
        std::fs::remove_file(&path).expect("removed");
        let other = StdListener::bind(&path).expect("binds");
        assert!(told(&path).contains("another node has it"));
        drop(other);
        let ours = listen(&path, &CONTROL).expect("stale, so taken over");
        // The socket is another node's by now: it stays.
        std::fs::remove_file(&path).expect("removed");
        let other = StdListener::bind(&path).expect("binds");
        drop(ours);
        assert!(path.exists());
        drop(other);
    }

    #[tokio::test]
    async fn a_socket_that_cannot_be_asked_is_left_alone() {
        let directory = tempfile::tempdir().expect("a directory");
        let path = directory.path().join("node.sock");
        // Of another type: connecting fails with another error than "refused".
        let datagrams = std::os::unix::net::UnixDatagram::bind(&path).expect("binds");
        let error = listen(&path, &CONTROL).map(|_| ()).expect_err("refused").to_string();
        assert!(error.contains("asking it fails") && path.exists(), "{error}");
        drop(datagrams);
    }

    #[test]
    fn texts_of_a_node_are_escaped_wherever_they_stand() {
        let mut value = serde_json::json!({"a\u{1b}": ["x\ny", {"\u{202e}b": "\u{9b}2J"}], "n": 1});
        escape(&mut value);
        assert!(!value.to_string().chars().any(is_deceptive), "{value}");
        assert_eq!(value["a\\u{1b}"][0], "x\\ny");
    }
}

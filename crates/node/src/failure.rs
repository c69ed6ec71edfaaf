//! What can go wrong for a user: each case has its own message, saying what to do, and its own exit code.

use crate::service::Service;
use crate::shell::quoted;
use crate::transfer::{OUTSIDE, Refusal, Refused, SINCE, as_pattern, shown};
use crate::units::counted;
use noctule::{BindError, CloseReason, Code, ConnectError, FlowError, OpenError, PublicKey, SessionClosed};
use std::io::{self, ErrorKind};
use std::net::SocketAddr;
use std::path::Path;

/// Why the command failed.
#[derive(Debug, thiserror::Error)]
pub enum Failure {
    /// A defect, or something of the system that has no better name here.
    #[error("{0}")]
    System(String),
    /// Wrong usage that the command line's grammar does not catch.
    #[error("{0}")]
    Usage(String),
    /// A source cannot be read.
    #[error("cannot read {path}: {error}")]
    Source {
        /// Which.
        path: String,
        /// Why.
        error: String,
    },
    /// The target cannot be written.
    #[error("cannot write {path}: {error}; check the permissions there, or choose another place")]
    Target {
        /// Which.
        path: String,
        /// Why.
        error: String,
    },
    /// No space.
    #[error("the receiver's disk is full: {0}; free some space there, or receive into another file system with --into")]
    DiskFull(String),
    /// No answer.
    #[error(
        "no answer from {0}: is `noctule recv`, `serve`, `proxy serve` or `perf -s` running there, does the firewall let UDP pass, and is --psk the same on both sides, or on neither?"
    )]
    Unreachable(String),
    /// The own system does not send there.
    #[error("cannot send to {address}: {what}")]
    Local {
        /// Where to.
        address: String,
        /// The system's words, and what to do.
        what: String,
    },
    /// No answer, and a host on the path says why (ICMP).
    #[error("no answer from {address}: {words}; the connection was not made, look at the firewalls and routes there")]
    Prohibited {
        /// Where to.
        address: String,
        /// What was said, and by which host.
        words: String,
    },
    /// The host says that the port is closed.
    #[error("nobody listens at {0}: start `noctule recv`, `serve`, `proxy serve` or `perf -s` there, or check the port")]
    NobodyListens(String),
    /// The peer vanished.
    #[error("the peer went away: {0}")]
    PeerGone(String),
    /// Nothing was heard of the peer for as long as its session bears.
    #[error("the peer went away: {0}")]
    Silence(String),
    /// The peer vanished in the middle of a transfer that can go on.
    #[error("the peer went away: {why}; what has arrived is kept: {then}, and it goes on from there")]
    TransferBroke {
        /// Why.
        why: String,
        /// What makes it go on.
        then: &'static str,
    },
    /// It is there, and does something else.
    #[error("the other side is not what this command needs: {0}; is another program running there, or another version?")]
    Stranger(String),
    /// It is noctule, and another of its services.
    #[error(
        "{} runs there: send needs `noctule recv`, get `noctule serve`, perf and ping `noctule perf -s`, proxy `noctule proxy serve`",
        .0.name()
    )]
    OtherService(Service),
    /// Another key.
    #[error("the peer is not who you asked for: expected key {expected}, {got}; if the peer has a new key, pass it with {flag}")]
    WrongKey {
        /// Pinned.
        expected: PublicKey,
        /// What is known of the other.
        got: String,
        /// Option by which the key is said.
        flag: &'static str,
    },
    /// Another key than the remembered one.
    #[error(
        "THE KEY OF {host} HAS CHANGED\n\nEither the host has a new key, or another host answers in its place. Nothing was sent.\n  remembered: {known} (fingerprint {}) in {file}, line {line}\n  now:        {now} (fingerprint {})\nIf its owner confirms the new key, forget the old one: noctule keygen --forget {host}",
        known.fingerprint(),
        now.fingerprint()
    )]
    ChangedKey {
        /// With its port.
        host: String,
        /// File of remembered keys.
        file: String,
        /// Line in it.
        line: usize,
        /// The remembered key.
        known: PublicKey,
        /// The key that answers.
        now: PublicKey,
    },
    /// Not remembered, and nobody said yes.
    #[error(
        "the key of {host} is not known: it is {key} (fingerprint {fingerprint}). Compare it with what the other side shows, then pass --peer-key {key}, or --code with the code that it shows, or --accept-new to take and remember whatever key a new host has"
    )]
    UnknownHost {
        /// With its port.
        host: String,
        /// Its key.
        key: PublicKey,
        /// For people.
        fingerprint: String,
    },
    /// Plain text was wanted by this side only.
    #[error(
        "the other side did not say --no-encryption too, so the link is encrypted; nothing was sent. Say it on both sides or on neither"
    )]
    Encrypted,
    /// Not among the allowed.
    #[error(
        "the peer does not accept this key; ask its owner to add --allow {0}, or a line in its file of authorised keys, or to start it with --code"
    )]
    NotAuthorised(PublicKey),
    /// Not among the allowed, but a code would do.
    #[error("the peer wants the code that it shows: add --code CODE; or ask its owner to add --allow {0}")]
    CodeWanted(PublicKey),
    /// The proof of a code failed.
    #[error(
        "this is not the code that the other side shows, or another host answers in its place; nothing was sent. Compare it: after three wrong ones the other side shows another"
    )]
    WrongCode,
    /// The code does not count.
    #[error("the other side did not take the code: {0}")]
    NoCode(String),
    /// The node of `--via` does not know us.
    #[error(
        "the node at {node} does not serve this end: its file needs a [[neighbour]] with key = \"{ours}\" and addresses = [\"{address}\"]"
    )]
    NotServed {
        /// With its port.
        node: String,
        /// Our key.
        ours: PublicKey,
        /// Our address in the overlay.
        address: std::net::IpAddr,
    },
    /// A node has no route to the destination.
    #[error(
        "no route leads there over the nodes ({0}): is the far end attached to its node, is --address here what the file of this end's node has in addresses for it, and do the [[route]]s of the nodes between lead to it, and back?"
    )]
    NoRoute(String),
    /// As [`Self::UnknownHost`], of the node of `--via`.
    #[error(
        "the key of the node {host} is not known: it is {key} (fingerprint {}). Compare it with what that node shows (noctule keygen --fingerprint), then pass --via-key {key}",
        key.fingerprint()
    )]
    UnknownNode {
        /// With its port.
        host: String,
        /// Its key.
        key: PublicKey,
    },
    /// May connect, and not do what it asks for: the other side's words.
    #[error("{0}")]
    MayNot(String),
    /// Something refused here, by what this side was told to do, with its exit code.
    #[error("{text}")]
    Here {
        /// In words.
        text: String,
        /// Of the kind of refusal.
        code: u8,
    },
    /// The port.
    #[error("{0}")]
    Port(String),
    /// The directory for what arrives.
    #[error("there is no directory {0}; make it first (mkdir -p {0}), or name another")]
    NoDirectory(String),
    /// A socket of a daemon.
    #[error("{0}")]
    Listen(String),
    /// The daemon of this host does not answer.
    #[error("cannot reach the node: {0}")]
    NoNode(String),
    /// A name was refused.
    #[error("the name {0} was refused")]
    RefusedName(String),
    /// Some entries are not there, the others are.
    #[error("{}{first}", missing(*.failed, *.of))]
    Incomplete {
        /// How many.
        failed: u64,
        /// Of so many, if that is known.
        of: Option<u64>,
        /// Exit code of the first.
        code: u8,
        /// The first, in words.
        first: String,
    },
    /// Some receivers do not have it, the others do.
    #[error("{}; run the same command again for those; the first: {first}", lacking(*failed, *of))]
    Receivers {
        /// How many.
        failed: u64,
        /// Of so many.
        of: u64,
        /// Exit code of the first.
        code: u8,
        /// The first, in words.
        first: String,
    },
    /// Another transfer has what is needed.
    #[error("the other side is busy: {0}; try again when that is over")]
    Busy(String),
    /// Content does not verify.
    #[error("{path}: {problem}; send it again")]
    Hash {
        /// File.
        path: String,
        /// What is wrong.
        problem: String,
    },
    /// Name resolution.
    #[error("{0}; check the spelling, or give an address")]
    Resolve(String),
    /// The target exists.
    #[error("{0} exists already at the receiver; start `noctule recv` with --overwrite to replace files")]
    Exists(String),
    /// A key that exists.
    #[error("there is a key in {0} already; --force replaces it, and whoever pinned it will refuse the new one")]
    KeyExists(String),
    /// A proxy's far end could not connect.
    #[error("{target}: {why}")]
    NoConnection {
        /// Where to.
        target: String,
        /// The other side's words.
        why: String,
    },
    /// Doctor found something.
    #[error("{}", problems(*.0))]
    Doctor(usize),
    /// Ctrl-C; with what becomes of the work.
    #[error("interrupted{0}")]
    Interrupted(&'static str),
}

fn problems(count: usize) -> String {
    format!("{} found", counted(count as u64, "problem"))
}

/// The option that leaves out this entry alone, as a shell takes it. The other side chose the name, so a command that holds it has to be quoted; a name that is
/// not shown as it is cannot be copied.
fn exclusion(path: &[u8]) -> String {
    let text = as_pattern(path).filter(|text| *text == shown(path));
    let is_special = |c: char| matches!(c, '*' | '?' | '[' | ']' | '{' | '}' | '\\');
    let literal = |c: char| is_special(c).then_some('\\').into_iter().chain([c]);
    match text {
        Some(text) => format!("--exclude {}", quoted(format!("/{}", text.chars().flat_map(literal).collect::<String>()))),
        None => "--exclude".to_owned(),
    }
}

/// How many entries are not there, before the first reason; nothing where there was one only.
fn missing(failed: u64, of: Option<u64>) -> String {
    match of {
        Some(1) => String::new(),
        Some(of) if of == failed => format!("none of {of} entries arrived; the first: "),
        _ => format!("{failed} of the entries did not arrive, everything else did; the first: "),
    }
}

/// Which receivers lack a file.
fn lacking(failed: u64, of: u64) -> String {
    match failed == of {
        true => format!("none of {of} receivers has it"),
        false => format!("{failed} of {of} receivers do not have it, the others do"),
    }
}

impl Failure {
    /// An address or a port that cannot be had, with what helps against this kind of error.
    pub fn port(kind: ErrorKind, what: &str) -> Self {
        let remedy = match kind {
            ErrorKind::AddrInUse => "choose another port with --bind or -p, or end the program that has it",
            ErrorKind::PermissionDenied => "choose a port above 1023 with --bind or -p",
            ErrorKind::AddrNotAvailable => "name one of this host's own with --bind (ip address shows them), or none",
            _ => "choose another address or port with --bind or -p",
        };
        Self::Port(format!("{what}; {remedy}"))
    }

    /// The system refused something.
    pub fn system(what: &str, error: impl std::fmt::Display) -> Self {
        Self::System(format!("{what}: {error}"))
    }

    /// A source could not be read.
    pub fn source(path: &Path, error: impl std::fmt::Display) -> Self {
        Self::Source { path: path.display().to_string(), error: error.to_string() }
    }

    /// Writing failed: a full disk has its own case.
    pub fn target(path: &Path, error: &io::Error) -> Self {
        match error.kind() {
            io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded => Self::DiskFull(format!("writing {}: {error}", path.display())),
            io::ErrorKind::AlreadyExists => Self::Exists(path.display().to_string()),
            _ => Self::Target { path: path.display().to_string(), error: error.to_string() },
        }
    }

    /// What a receiver refused.
    pub fn refused(refused: &Refused) -> Self {
        let (path, message) = (shown(&refused.path), refused.message.clone());
        match refused.refusal {
            Refusal::Name if message.ends_with(OUTSIDE) => Self::Here {
                text: format!(
                    "{path} is {message}: nothing of this transfer is taken; leave it out ({}), or start the receiver with --outside-links, which takes it as it is",
                    exclusion(&refused.path)
                ),
                code: 11,
            },
            Refusal::Name => Self::RefusedName(format!("{path} ({message})")),
            // Only what was there before can be replaced.
            Refusal::Exists if message.starts_with(SINCE) => Self::Here { text: format!("{path}: {message}"), code: 14 },
            Refusal::Exists => Self::Exists(path),
            Refusal::DiskFull => Self::DiskFull(message),
            Refusal::Target => Self::Target { path: format!("{path} at the receiver"), error: message },
            Refusal::Hash => Self::Hash { path, problem: message },
            Refusal::NotAllowed => Self::MayNot(message),
            Refusal::Source => Self::Source { path: format!("{path} at the sender"), error: message },
            Refusal::Busy => Self::Busy(message),
            Refusal::Protocol => Self::Stranger(message),
        }
    }

    /// What this side refused of what it asked for itself.
    pub fn here(refused: &Refused) -> Self {
        let (path, message) = (shown(&refused.path), &refused.message);
        let text = match refused.refusal {
            Refusal::Name if message.ends_with(OUTSIDE) => {
                let leave = exclusion(&refused.path);
                format!("{path} is {message}: nothing was taken; leave it out ({leave}), or take it as it is (--outside-links)")
            }
            Refusal::Exists => format!("{path} exists already here; --overwrite replaces files, --update those that are older"),
            Refusal::DiskFull => format!("the disk here is full: {message}; free some space, or name another directory"),
            Refusal::Target => format!("cannot write {path}: {message}; check the permissions, or choose another place"),
            _ => return Self::refused(refused),
        };
        Self::Here { text, code: Self::refused(refused).exit_code() }
    }

    /// What a host that offers files refused.
    pub fn denied(refused: &Refused) -> Self {
        let (path, message) = (shown(&refused.path), refused.message.clone());
        match refused.refusal {
            Refusal::Source if path.is_empty() => Self::Source { path: "what was asked for".into(), error: message },
            Refusal::Source => Self::Source { path: format!("{path} at the other side"), error: message },
            Refusal::Busy => Self::Here { text: format!("the other side is busy, or will not send that much: {message}"), code: 17 },
            _ => Self::refused(refused),
        }
    }

    /// What this side refused to another, for the log of this side: it speaks of this side as the other one sees it.
    pub fn told(refused: &Refused) -> Self {
        let path = if refused.path.is_empty() { String::new() } else { format!("{}: ", shown(&refused.path)) };
        let message = &refused.message;
        let own = ["the other side ", "the receiver "].into_iter().find_map(|there| message.strip_prefix(there));
        let text = own.map_or_else(|| format!("{path}{message}"), |rest| format!("{path}this side {rest}"));
        Self::Here { text, code: Self::refused(refused).exit_code() }
    }

    /// Some entries failed, for instance for this reason.
    pub fn incomplete(failed: u64, of: Option<u64>, first: Self) -> Self {
        Self::Incomplete { failed, of, code: first.exit_code(), first: first.to_string() }
    }

    /// The same in the middle of a transfer, which can go on where it stopped. The sender's user repeats the command; a receiver waits for that.
    pub fn of_transfer(self, is_sender: bool) -> Self {
        match self {
            Self::PeerGone(why) | Self::Silence(why) => Self::TransferBroke {
                why,
                then: if is_sender {
                    "run the same command again"
                } else {
                    "the sender tries again, by itself or when it runs its command again"
                },
            },
            other => other,
        }
    }

    /// The same of the node of `--via`, whose key has an option of its own.
    pub fn of_node(self) -> Self {
        match self {
            Self::UnknownHost { host, key, .. } => Self::UnknownNode { host, key },
            Self::WrongKey { expected, got, .. } => Self::WrongKey { expected, got, flag: "--via-key" },
            other => other,
        }
    }

    /// A connection could not be made.
    pub fn connect(host: &str, ours: PublicKey, expected: PublicKey, error: ConnectError) -> Self {
        match error {
            ConnectError::Unreachable(_) => Self::Unreachable(host.to_owned()),
            ConnectError::Local { remote, source } => Self::Local { address: remote.to_string(), what: local_words(&source, remote) },
            ConnectError::Prohibited { remote, words } => Self::Prohibited { address: remote.to_string(), words },
            ConnectError::NobodyListens(address) => Self::NobodyListens(address.to_string()),
            ConnectError::WrongKey { got, .. } => Self::WrongKey {
                expected,
                got: got.map_or_else(|| format!("{host} has another one"), |k| format!("{host} has {k}")),
                flag: "--peer-key",
            },
            ConnectError::NotAuthorised => Self::NotAuthorised(ours),
            e @ (ConnectError::Resolve { .. } | ConnectError::NoAddress(_)) => Self::Resolve(e.to_string()),
            e @ ConnectError::Syntax(_) => Self::Usage(e.to_string()),
            e => Self::PeerGone(e.to_string()),
        }
    }

    /// A session ended before its time.
    pub fn closed(ours: PublicKey, reason: &CloseReason) -> Self {
        match reason.code {
            Code::NotAuthorised => Self::NotAuthorised(ours),
            _ if reason.application == crate::code::WANTED && reason.is_remote => Self::CodeWanted(ours),
            _ => match Service::of(reason.application).filter(|_| reason.is_remote) {
                Some(service) => Self::OtherService(service),
                None => Self::ended(reason),
            },
        }
    }

    /// The same where this side's key is no matter.
    fn ended(reason: &CloseReason) -> Self {
        match reason.code {
            Code::NoRoute => Self::NoRoute(reason.to_string()),
            // Up at this end and nowhere else.
            Code::Unreachable => Self::Unreachable("the other side after its first".into()),
            Code::IdleTimeout | Code::CircuitBreaker if !reason.is_remote => Self::Silence(reason.to_string()),
            _ => Self::PeerGone(reason.to_string()),
        }
    }

    /// Whether this may be over in a while, of a peer that was there a moment ago.
    pub fn may_pass(&self) -> bool {
        matches!(
            self,
            Self::Silence(_)
                | Self::PeerGone(_)
                | Self::Unreachable(_)
                | Self::NobodyListens(_)
                | Self::Local { .. }
                | Self::Prohibited { .. }
                | Self::NoRoute(_)
                | Self::Resolve(_)
                | Self::Busy(_)
        )
    }

    /// Why, for the other side: without local names and advice.
    pub fn reason(&self) -> String {
        match self {
            Self::Source { error, .. } => error.clone(),
            Self::RefusedName(text) => text.clone(),
            other => other.to_string(),
        }
    }

    /// 1..=255; documented in `--help`.
    pub fn exit_code(&self) -> u8 {
        match self {
            Self::System(_) => 1,
            Self::Usage(_) => 2,
            Self::Source { .. } => 3,
            Self::Target { .. } | Self::NoDirectory(_) => 4,
            Self::DiskFull(_) => 5,
            Self::Unreachable(_)
            | Self::Local { .. }
            | Self::Prohibited { .. }
            | Self::NobodyListens(_)
            | Self::NoNode(_)
            | Self::NoRoute(_) => 6,
            Self::PeerGone(_) | Self::Silence(_) | Self::TransferBroke { .. } | Self::Stranger(_) | Self::OtherService(_) => 7,
            Self::WrongKey { .. } | Self::ChangedKey { .. } => 8,
            Self::NotAuthorised(_) | Self::CodeWanted(_) | Self::NotServed { .. } | Self::MayNot(_) => 9,
            Self::Here { code, .. } => *code,
            Self::Port(_) | Self::Listen(_) => 10,
            Self::RefusedName(_) => 11,
            Self::Hash { .. } => 12,
            Self::Incomplete { code, .. } | Self::Receivers { code, .. } => *code,
            Self::Busy(_) => 17,
            Self::Resolve(_) => 13,
            Self::Exists(_) | Self::KeyExists(_) => 14,
            Self::UnknownHost { .. } | Self::UnknownNode { .. } => 15,
            Self::Encrypted => 16,
            Self::Doctor(_) => 18,
            Self::NoConnection { .. } => 20,
            Self::WrongCode | Self::NoCode(_) => 19,
            Self::Interrupted(_) => 130,
        }
    }

    /// To standard output, for programs.
    pub fn report(&self) {
        say!("{}", serde_json::json!({"event": "error", "code": self.exit_code(), "message": self.to_string()}));
    }

    /// To standard error for people, to standard output as JSON.
    pub fn print(&self, is_json: bool) {
        if is_json {
            self.report();
        }
        tell!("noctule: {self}");
    }
}

/// What the own system says, and what that means.
fn local_words(error: &io::Error, remote: SocketAddr) -> String {
    let needs = if remote.is_ipv4() { LEAST_PACKET } else { LEAST_PACKET + 20 };
    let advice = match error.raw_os_error() {
        Some(libc::ENETUNREACH | libc::EHOSTUNREACH) => {
            "this host has no route there: look at ip route get, and whether its network is up".to_owned()
        }
        Some(libc::EPERM | libc::EACCES) => "this host's own firewall or a prohibiting route forbids it".to_owned(),
        Some(libc::EMSGSIZE) => {
            format!("this host's own interface takes no packets of {needs} bytes, the least that noctule needs: raise its MTU")
        }
        Some(libc::ENETDOWN) => "this host's own interface is down".to_owned(),
        Some(libc::EADDRNOTAVAIL) => "the address to send from is not, or no longer, one of this host".to_owned(),
        Some(libc::EINVAL) if matches!(remote, SocketAddr::V6(v6) if v6.ip().is_unicast_link_local() && v6.scope_id() == 0) => {
            "a link-local address needs its interface: fe80::1%eth0".to_owned()
        }
        _ => return error.to_string(),
    };
    format!("{error}; {advice}")
}

/// Bytes of the least IPv4 packet that every path must carry: 800 of UDP payload, and headers.
const LEAST_PACKET: u16 = 828;

impl From<BindError> for Failure {
    fn from(e: BindError) -> Self {
        match e {
            BindError::InUse(_) => Self::port(ErrorKind::AddrInUse, &e.to_string()),
            BindError::Permission(_) => Self::port(ErrorKind::PermissionDenied, &e.to_string()),
            BindError::NotAvailable(_) => Self::port(ErrorKind::AddrNotAvailable, &e.to_string()),
            e => Self::System(e.to_string()),
        }
    }
}

impl From<FlowError> for Failure {
    fn from(e: FlowError) -> Self {
        match e {
            FlowError::Session(closed) => closed.into(),
            FlowError::Closed(reason) => Self::PeerGone(reason.to_string()),
            e => Self::System(e.to_string()),
        }
    }
}

impl From<SessionClosed> for Failure {
    fn from(e: SessionClosed) -> Self {
        Self::ended(&e.0.reason)
    }
}

impl From<OpenError> for Failure {
    fn from(e: OpenError) -> Self {
        match e {
            OpenError::Session(closed) => closed.into(),
            OpenError::NoRoute(_) => Self::NoRoute(e.to_string()),
            e => Self::System(e.to_string()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A name that another host chose is pasted into a shell with the advice.
    #[test]
    fn advice_holds_names_of_others_as_one_word_and_as_they_are() {
        for (name, pattern) in [(&b"a/link"[..], "/a/link"), (b"x'$(id)'y; z", "/x'$(id)'y; z"), (b"50% [x]*", r"/50% \[x\]\*")] {
            assert_eq!(shlex::split(&exclusion(name)).unwrap(), ["--exclude", pattern]);
        }
        for name in [&b"line\nbreak"[..], b"\xff"] {
            assert_eq!(exclusion(name), "--exclude");
        }
        assert_eq!((missing(2, Some(2)), missing(1, Some(1))), ("none of 2 entries arrived; the first: ".to_owned(), String::new()));
        assert!(missing(2, Some(4)).starts_with("2 of the entries"));
    }
}

//! Why a call failed, typed so that a program can tell the cases apart and a person can read them.

use bytes::Bytes;
use noctule_proto::crypto::PublicKey;
use noctule_proto::error::{CloseReason, Code, CommandError};
use noctule_proto::event::SessionOutcome;
use std::io;
use std::net::SocketAddr;

/// An endpoint could not be bound.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum BindError {
    /// Another program, or another endpoint of this one, has the port.
    #[error("UDP port {} on {} is already in use", .0.port(), .0.ip())]
    InUse(SocketAddr),
    /// The system does not let this user bind the port.
    #[error("not permitted to bind UDP port {} on {}", .0.port(), .0.ip())]
    Permission(SocketAddr),
    /// No interface of this host has the address, or the host lacks the address family.
    #[error("address {} is not available on this host", .0.ip())]
    NotAvailable(SocketAddr),
    /// The configuration contradicts itself.
    #[error("invalid configuration: {0}")]
    Config(&'static str),
    /// Not called from within a tokio runtime with I/O enabled.
    #[error("an endpoint needs a running tokio runtime")]
    NoRuntime,
    /// Anything else that the operating system says.
    #[error("cannot open a UDP socket on {addr}: {source}")]
    Io {
        /// Address asked for.
        addr: SocketAddr,
        /// The system's error.
        source: io::Error,
    },
}

impl BindError {
    pub(crate) fn from_io(addr: SocketAddr, source: io::Error) -> Self {
        match source.kind() {
            io::ErrorKind::AddrInUse => Self::InUse(addr),
            io::ErrorKind::PermissionDenied => Self::Permission(addr),
            io::ErrorKind::AddrNotAvailable => Self::NotAvailable(addr),
            _ if source.raw_os_error() == Some(libc::EAFNOSUPPORT) => Self::NotAvailable(addr),
            _ => Self::Io { addr, source },
        }
    }
}

/// A session could not be opened.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ConnectError {
    /// Nobody answered at this address.
    #[error("no answer from {0}")]
    Unreachable(SocketAddr),
    /// The host is there and says that no program has the port open.
    #[error("nobody listens at {0}")]
    NobodyListens(SocketAddr),
    /// The own system refuses to send there: it has no route, its firewall forbids it, its interface takes no packet of the least size.
    #[error("this host cannot send to {remote}: {source}")]
    Local {
        /// Address asked for.
        remote: SocketAddr,
        /// The system's error.
        source: io::Error,
    },
    /// Nobody answered at this address, and a router or a host says why (ICMP, which any host can forge).
    #[error("no answer from {remote}: {words}")]
    Prohibited {
        /// Address asked for.
        remote: SocketAddr,
        /// What was said, and by which host.
        words: String,
    },
    /// The socket cannot reach this kind of address, for instance IPv6 from an endpoint bound to an IPv4 address.
    #[error("an endpoint bound to {local} cannot reach {remote}")]
    Family {
        /// Where the endpoint is bound.
        local: SocketAddr,
        /// Address asked for.
        remote: SocketAddr,
    },
    /// The peer is not the one that was asked for.
    #[error("the peer's key is {}, not {}", text(.got), text(.expected))]
    WrongKey {
        /// Key asked for.
        expected: Option<PublicKey>,
        /// Key that the peer has proved to own; always there as of this version.
        got: Option<PublicKey>,
    },
    /// The peer does not know this node's key.
    #[error("this node's key is not authorised by the peer")]
    NotAuthorised,
    /// No common protocol version.
    #[error("the peer speaks no common protocol version")]
    VersionMismatch,
    /// The peer answered and declined, for instance because it has too many sessions.
    #[error("refused: {0}")]
    Refused(CloseReason),
    /// The handshake or the link failed in another way.
    #[error("connection failed: {0}")]
    Failed(CloseReason),
    /// The host name could not be resolved.
    #[error("cannot resolve {name}: {source}")]
    Resolve {
        /// Name as given.
        name: String,
        /// The resolver's error.
        source: io::Error,
    },
    /// The name resolved to no address at all.
    #[error("{0} has no address")]
    NoAddress(String),
    /// Not of the form `host:port` or `[v6]:port`.
    #[error("{0:?} is not of the form host:port or [v6]:port")]
    Syntax(String),
    /// Too many links or sessions on this side.
    #[error("limit reached: at most {limit} {what}")]
    Limit {
        /// What there are too many of.
        what: &'static str,
        /// The configured limit.
        limit: usize,
    },
    /// The endpoint was closed.
    #[error("the endpoint is closed")]
    EndpointClosed,
}

fn text(key: &Option<PublicKey>) -> String {
    key.map_or_else(|| "unknown".to_owned(), |k| k.to_string())
}

impl ConnectError {
    /// `got`: the key that the peer has shown to own.
    pub(crate) fn from_reason(reason: CloseReason, remote: SocketAddr, expected: Option<PublicKey>, got: Option<PublicKey>) -> Self {
        match reason.code {
            Code::Unreachable => Self::Unreachable(remote),
            Code::WrongKey => Self::WrongKey { expected, got },
            Code::NotAuthorised => Self::NotAuthorised,
            Code::VersionMismatch => Self::VersionMismatch,
            Code::Shutdown if !reason.is_remote => Self::EndpointClosed,
            _ if reason.is_remote => Self::Refused(reason),
            _ => Self::Failed(reason),
        }
    }
    pub(crate) fn from_command(error: CommandError) -> Self {
        match error {
            CommandError::Limit { what, limit } => Self::Limit { what, limit },
            CommandError::Closed(reason) => Self::Failed(reason),
            other => Self::Failed(CloseReason::local(Code::Internal, noctule_proto::error::Layer::Link, other.to_string())),
        }
    }
}

/// The session is over; says how it ended.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
#[error("session closed: {}", .0.reason)]
pub struct SessionClosed(pub SessionOutcome);

/// A flow could not be opened.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
#[non_exhaustive]
pub enum OpenError {
    /// The session is over.
    #[error(transparent)]
    Session(#[from] SessionClosed),
    /// Too many flows.
    #[error("limit reached: at most {limit} {what}")]
    Limit {
        /// What there are too many of.
        what: &'static str,
        /// The limit.
        limit: usize,
    },
    /// No route leads there over a link that is up.
    #[error("no route to {0}: none of the node's routes covers it over a link that is up")]
    NoRoute(std::net::IpAddr),
    /// The options contradict each other or do not fit the call.
    #[error("{0}")]
    Misuse(String),
}

/// Writing to or reading from a flow failed.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
#[non_exhaustive]
pub enum FlowError {
    /// The session is over.
    #[error(transparent)]
    Session(#[from] SessionClosed),
    /// The flow ended before its time: reset by its sender, stopped by its receiver, refused, or used after it was finished.
    #[error("flow closed: {0}")]
    Closed(CloseReason),
    /// The message cannot be sent at all; nothing was queued (P18).
    #[error("message of {size} bytes is larger than the receiver's limit of {limit} bytes; send it in parts or as a stream")]
    MessageTooLarge {
        /// Bytes of the message.
        size: usize,
        /// Bytes that the receiver takes.
        limit: usize,
    },
    /// The call does not fit the flow.
    #[error("{0}")]
    Misuse(String),
}

/// [`RecvStream::read_to_end`](crate::RecvStream::read_to_end) failed.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
#[non_exhaustive]
pub enum ReadToEndError {
    /// The stream has more bytes than the caller takes. Those that were read are lost.
    #[error("the stream has more than {limit} bytes")]
    TooLong {
        /// Bytes that the caller takes.
        limit: usize,
    },
    /// The stream or session ended before its end was read.
    #[error(transparent)]
    Flow(#[from] FlowError),
}

/// [`MessageSender::try_send`](crate::MessageSender::try_send) did not take the message; here it is again.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
pub enum TrySendError {
    /// There is no room now.
    #[error("no room now")]
    Full(Bytes),
    /// It can never be sent: the flow or session is over, or the message is too large.
    #[error("{error}")]
    Failed {
        /// The message.
        message: Bytes,
        /// Why.
        error: FlowError,
    },
}

impl TrySendError {
    /// The message.
    pub fn into_message(self) -> Bytes {
        match self {
            Self::Full(message) | Self::Failed { message, .. } => message,
        }
    }
}

impl From<FlowError> for io::Error {
    fn from(error: FlowError) -> Self {
        let kind = match &error {
            FlowError::Session(closed) => match closed.0.reason.code {
                Code::IdleTimeout | Code::Unreachable | Code::CircuitBreaker | Code::Gone => io::ErrorKind::TimedOut,
                _ if closed.0.reason.is_clean() => io::ErrorKind::NotConnected,
                _ => io::ErrorKind::ConnectionAborted,
            },
            FlowError::Closed(reason) => match reason.code {
                Code::Stopped => io::ErrorKind::BrokenPipe,
                _ => io::ErrorKind::ConnectionReset,
            },
            FlowError::MessageTooLarge { .. } | FlowError::Misuse(_) => io::ErrorKind::InvalidInput,
        };
        Self::new(kind, error)
    }
}

//! The one registry of close codes (P1) and the reasons that links, sessions and flows end with.

use crate::far_text::FarText;
use core::fmt;

/// Layer at which an error arose, as carried in CLOSE.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Hash)]
#[repr(u8)]
pub enum Layer {
    /// Packets and frames.
    Wire = 0,
    /// Handshake and keys.
    Crypto = 1,
    /// The link between two neighbours.
    Link = 2,
    /// A coded flow on one hop.
    Flow = 3,
    /// The session between the ends.
    Session = 4,
    /// The application's own code.
    Application = 5,
}

macro_rules! codes {
    ($($(#[$doc:meta])* $name:ident = $value:literal, $text:literal;)*) => {
        /// Close codes (P1). One registry for every layer below the application.
        #[derive(Clone, Copy, PartialEq, Eq, Debug, Hash)]
        #[repr(u16)]
        pub enum Code { $($(#[$doc])* $name = $value,)* }

        impl Code {
            /// The code with this number, if it is registered.
            pub fn from_u64(v: u64) -> Option<Self> {
                match v { $($value => Some(Self::$name),)* _ => None }
            }
            /// A sentence for people.
            pub fn text(self) -> &'static str {
                match self { $(Self::$name => $text,)* }
            }
        }
    };
}

codes! {
    /// Nothing went wrong.
    NoError = 0x00, "closed without error";
    /// A defect of the implementation.
    Internal = 0x01, "internal error";
    /// A frame could not be parsed.
    FrameEncoding = 0x02, "a frame could not be parsed";
    /// A mandatory frame type is unknown.
    UnknownFrame = 0x03, "a mandatory frame type is unknown to this version";
    /// No common version.
    VersionMismatch = 0x04, "no common protocol version";
    /// A transport parameter is invalid.
    Parameter = 0x05, "a transport parameter is invalid";
    /// The handshake could not be completed.
    Handshake = 0x10, "the handshake failed";
    /// The peer's key is not the pinned one.
    WrongKey = 0x11, "the peer's key is not the expected one";
    /// This peer may not use this node.
    NotAuthorised = 0x12, "this key is not authorised";
    /// The peer never answered.
    Unreachable = 0x13, "no answer from the peer";
    /// Nothing was heard for the idle timeout.
    IdleTimeout = 0x14, "the peer fell silent";
    /// The peer acknowledged a packet number that was never sent (P3).
    AckOfSkipped = 0x15, "a packet that was never sent was acknowledged";
    /// A key may not be used any longer.
    KeyExhausted = 0x16, "a key reached its limit of use";
    /// The other end is shutting down.
    Shutdown = 0x17, "the node is shutting down";
    /// The circuit breaker opened: data was sent and nothing came back (RFC 8084).
    CircuitBreaker = 0x18, "sent data was not acknowledged for too long";
    /// The other end's process is gone, and its host says so, or another takes its place. Never sent.
    Gone = 0x19, "the peer is not there any more";
    /// A flow exceeded its credit.
    FlowControl = 0x20, "a flow exceeded its credit";
    /// The flow's label is not known here.
    UnknownFlow = 0x21, "the flow is not known";
    /// Memory for the flow could not be reserved.
    NoMemory = 0x22, "no memory for the flow";
    /// A coded packet contradicts its flow.
    SpanInvalid = 0x23, "a coded packet does not fit its flow";
    /// The receiver does not want more of the flow.
    Stopped = 0x24, "the receiver stopped the flow";
    /// The sender gave the flow up.
    Reset = 0x25, "the sender reset the flow";
    /// No route to the destination.
    NoRoute = 0x26, "no route to the destination";
    /// The flow passed as many nodes as it may: routes loop, or the route is too long.
    HopLimit = 0x27, "the flow came back to a node, or passed as many as it may (64): its routes loop, or are too long";
    /// The node does not forward flows of others.
    NoRelay = 0x28, "a node on the route does not relay";
    /// A node on the path lost the flow: it restarted, its next link is gone, or its route changed. The source opens the flow again.
    Rerouted = 0x29, "the route of the flow changed";
    /// Coded packets that nobody with the session's key made (P16).
    Polluted = 0x2a, "packets of the flow were altered on the route";
    /// Message larger than the receiver takes.
    MessageTooLarge = 0x30, "the message is larger than the receiver accepts";
    /// Session framing was violated.
    SessionProtocol = 0x31, "the session's framing was violated";
    /// Too many sessions or flows.
    TooMany = 0x32, "too many sessions or flows";
    /// The session is not known at the far end.
    UnknownSession = 0x33, "the session is not known";
}

/// Why a link, session or flow ended.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct CloseReason {
    /// Registered code; for `Layer::Application` always `NoError` with the number in `application`.
    pub code: Code,
    /// Layer that closed.
    pub layer: Layer,
    /// The application's own code, when the application closed.
    pub application: u64,
    /// Frame type that caused it, 0 if none.
    pub frame: u64,
    /// UTF-8 for people, at most 255 bytes on the wire; of the far end if `is_remote`.
    pub reason: FarText,
    /// Closed by the far end rather than here.
    pub is_remote: bool,
}

impl CloseReason {
    /// A reason that arose here.
    pub fn local(code: Code, layer: Layer, reason: impl Into<FarText>) -> Self {
        Self { code, layer, application: 0, frame: 0, reason: reason.into(), is_remote: false }
    }
    /// The application closed with its own code.
    pub fn application(code: u64, reason: impl Into<FarText>) -> Self {
        Self { code: Code::NoError, layer: Layer::Application, application: code, frame: 0, reason: reason.into(), is_remote: false }
    }
    /// Nothing went wrong.
    pub fn is_clean(&self) -> bool {
        self.code == Code::NoError && self.application == 0
    }
}

impl fmt::Display for CloseReason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(if self.is_remote { "far end: " } else { "" })?;
        if self.layer == Layer::Application && self.application != 0 {
            write!(f, "application code {}", self.application)?;
        } else {
            f.write_str(self.code.text())?;
        }
        if !self.reason.is_empty() {
            write!(f, " ({})", self.reason)?;
        }
        Ok(())
    }
}

impl std::error::Error for CloseReason {}

/// Why a command to a node was refused. Nothing changed when one of these is returned.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
#[non_exhaustive]
pub enum CommandError {
    /// No room now; a `FlowWritable` event follows when there is.
    #[error("blocked: no room now, wait for the flow to become writable")]
    Blocked,
    /// The message cannot be sent at all.
    #[error("message of {size} bytes is larger than the receiver's limit of {limit} bytes; send it in parts or as a stream")]
    MessageTooLarge {
        /// Bytes of the message.
        size: usize,
        /// Bytes that the receiver announced.
        limit: usize,
    },
    /// The link, session or flow does not exist (any more).
    #[error("no such {0}")]
    Unknown(&'static str),
    /// The flow or session was finished or closed.
    #[error("already closed: {0}")]
    Closed(CloseReason),
    /// The call does not fit the flow, for instance bytes on a message flow.
    #[error("{0}")]
    Misuse(&'static str),
    /// No route leads there over a link that is usable.
    #[error("no route to {0}: none of the node's routes covers it over a link that is up")]
    NoRoute(std::net::IpAddr),
    /// A limit of the configuration is reached.
    #[error("limit reached: at most {limit} {what}")]
    Limit {
        /// What there are too many of.
        what: &'static str,
        /// The configured limit.
        limit: usize,
    },
}

//! noctule: an open network-coded transport, as an async API on tokio.
//!
//! An [`Endpoint`] is one node of the network: it owns a UDP socket and an identity. It [connects](Endpoint::connect) to other nodes and
//! [accepts](Endpoint::accept) those that connect to it; both give a [`Session`]. A session carries any number of *flows*: messages
//! ([`MessageSender`], [`MessageReceiver`]) or byte streams ([`SendStream`], [`RecvStream`]), each with the promise that it was opened with
//! ([`Mode`]).
//!
//! What is not here: the protocol itself. It lives in `noctule-proto` as a state machine without sockets and clocks; this crate drives it.
#![deny(unsafe_op_in_unsafe_fn)]

mod config;
mod connect;
mod driver;
mod endpoint;
mod error;
mod message;
mod session;
mod shared;
mod socket;
mod state;
mod stream;
mod timer;

pub use config::EndpointConfig;
pub use endpoint::{Endpoint, EndpointStats};
pub use error::{BindError, ConnectError, FlowError, OpenError, SessionClosed};
pub use message::{MessageReceiver, MessageSender};
pub use session::{FlowReport, IncomingFlow, Session, SessionStats};
pub use socket::BufferSizes;
pub use stream::{RecvStream, SendStream};

pub use bytes::Bytes;
pub use noctule_proto::NodeConfig;
pub use noctule_proto::congestion::{CongestionControl, ControlState};
pub use noctule_proto::crypto::{PublicKey, SecretKey};
pub use noctule_proto::error::{CloseReason, Code, Layer};
pub use noctule_proto::event::SessionOutcome;
pub use noctule_proto::ids::{FlowId, LinkId, PathId, SessionId};
pub use noctule_proto::node::Message;
pub use noctule_proto::options::{Class, FlowKind, FlowOptions, MessageOptions, Mode};
pub use noctule_proto::stats::{FlowStats, LinkStats, Memory, PathStats};
pub use noctule_proto::units::{Bandwidth, Probability};

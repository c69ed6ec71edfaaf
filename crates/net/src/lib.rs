//! noctule: an open network-coded transport, as an async API on tokio.
//!
//! An [`Endpoint`] is one node of the network: it owns a UDP socket and an identity. It [connects](Endpoint::connect) to other nodes and
//! [accepts](Endpoint::accept) those that connect to it; both give a [`Session`]. A session carries any number of *flows*: messages
//! ([`MessageSender`], [`MessageReceiver`]) or byte streams ([`SendStream`], [`RecvStream`]), each with the promise that it was opened with
//! ([`Mode`]). What dropping, cancelling and closing mean is in `docs/guide/api.md` and at each type.
//!
//! What is not here: the protocol itself. It lives in `noctule-proto` as a state machine without sockets and clocks; this crate drives it.
//!
//! # A byte stream
//!
//! ```
//! use noctule::{Endpoint, EndpointConfig, FlowOptions, IncomingFlow};
//!
//! # #[tokio::main(flavor = "current_thread")]
//! # async fn main() -> Result<(), Box<dyn std::error::Error>> {
//! let config = EndpointConfig::ephemeral()?; // a real server keeps its identity in a file
//! let server_key = config.identity.public();
//! let server = Endpoint::bind("127.0.0.1:0".parse()?, config)?;
//! let address = server.local_addr();
//! let serving = tokio::spawn(async move {
//!     let session = server.accept().await.expect("the endpoint is open");
//!     let mut received = Vec::new();
//!     if let Ok(IncomingFlow::Stream { mut recv, .. }) = session.accept_flow().await {
//!         received = recv.read_to_end(1 << 20).await.expect("the stream ends well");
//!     }
//!     session.closed().await;
//!     received
//! });
//!
//! let client = Endpoint::client(EndpointConfig::ephemeral()?)?;
//! let session = client.connect(address, Some(server_key)).await?; // nobody else can answer
//! let mut stream = session.open_uni(FlowOptions::default())?;
//! stream.write_all(b"across a lossy link").await?;
//! stream.finish().await?; // resolves when the far end has every byte
//! let outcome = session.close(0, "done").await;
//! assert!(outcome.all_delivered);
//! client.wait_idle().await;
//! assert_eq!(serving.await?, b"across a lossy link");
//! # Ok(())
//! # }
//! ```
//!
//! # Messages that may be lost but are never late
//!
//! ```
//! use noctule::{Class, Endpoint, EndpointConfig, FlowKind, FlowOptions, IncomingFlow, MessageOptions, Mode};
//! use std::time::Duration;
//!
//! # #[tokio::main(flavor = "current_thread")]
//! # async fn main() -> Result<(), Box<dyn std::error::Error>> {
//! # let server = Endpoint::bind("127.0.0.1:0".parse()?, EndpointConfig::ephemeral()?)?;
//! # let client = Endpoint::client(EndpointConfig::ephemeral()?)?;
//! # let session = client.connect(server.local_addr(), None).await?;
//! let samples = session.open_messages(FlowOptions {
//!     mode: Mode::Btp,
//!     kind: FlowKind::UnorderedMessages,
//!     class: Class::Latency,
//!     lifetime: Some(Duration::from_millis(500)),
//!     ..Default::default()
//! })?;
//! samples.send("21.5 C".into(), MessageOptions::default()).await?;
//! # let there = server.accept().await.expect("the endpoint is open");
//! if let IncomingFlow::Messages(mut flow) = there.accept_flow().await? {
//!     let message = flow.recv().await?.expect("the flow goes on");
//!     assert_eq!((message.id, &message.data[..]), (0, &b"21.5 C"[..]));
//! }
//! # Ok(())
//! # }
//! ```
#![deny(unsafe_op_in_unsafe_fn)]

mod address;
mod attempt;
mod backlog;
mod config;
mod connect;
mod datagram;
mod driver;
mod endpoint;
mod error;
mod events;
pub mod eyeballs;
mod features;
mod hearsay;
mod link;
mod links;
mod message;
mod overlay;
mod route;
mod session;
mod shared;
mod socket;
mod sockets;
mod state;
mod steer;
mod stream;
mod target;
mod timer;
mod trace;
mod watch;

pub use address::{interface_index, lookup as lookup_address, parse_address, parse_ip};
pub use config::EndpointConfig;
pub use datagram::DATAGRAM_LIFETIME;
pub use endpoint::{Endpoint, EndpointStats};
pub use error::{BindError, ConnectError, FlowError, OpenError, ReadToEndError, SessionClosed, TrySendError};
pub use events::{LinkEvent, LinkEvents};
pub use features::{SocketFeatures, probe_sockets};
pub use link::Link;
pub use message::{MessageReceiver, MessageSender};
pub use route::{headers, route_mtu};
pub use session::{FlowReport, IncomingFlow, Session, SessionStats};
pub use socket::BufferSizes;
pub use state::Refusal;
pub use stream::{RecvStream, SendStream};
pub use target::TargetRates;
pub use trace::TraceLog;

pub use bytes::Bytes;
pub use noctule_proto::NodeConfig;
pub use noctule_proto::congestion::{self, CongestionControl, ControlState};
pub use noctule_proto::crypto::{KeyTextError, PublicKey, SecretKey, SharedKey};
pub use noctule_proto::error::{CloseReason, Code, Layer};
pub use noctule_proto::event::SessionOutcome;
pub use noctule_proto::far_text::FarText;
pub use noctule_proto::ids::{FlowId, LinkId, PathId, SessionId};
pub use noctule_proto::node::routing::{Prefix, Route, Via};
pub use noctule_proto::node::{Answer, Counters, Message, RelayLimits, SessionAccess};
pub use noctule_proto::options::{Class, FlowKind, FlowOptions, MessageOptions, Mode};
pub use noctule_proto::path::{MAX_PATHS, PathState};
pub use noctule_proto::stats::{FlowStats, FlowTotals, LinkStats, Memory, PathStats, RelayedStats, RouteStats, SpanStats};
pub use noctule_proto::units::{Bandwidth, Probability, Time};

/// The guide's code is compiled, too.
#[cfg(doctest)]
#[doc = include_str!("../../../docs/guide/api.md")]
struct Guide;

/// So is the README's.
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct Readme;

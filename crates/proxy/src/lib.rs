//! A proxy for TCP and UDP programs over noctule sessions.
//!
//! The [`Near`] end has the listeners: ports that lead to one target, and ports for SOCKS and HTTP. The [`Far`] end dials, within its [`Rules`]. Between
//! them each TCP connection is a bidirectional stream with a record in front ([`wire`]), and each UDP association a flow of messages each way;
//! `docs/spec/proxy.md` describes the bytes. What TCP tells its two ends, an end, a reset, a refusal, is told here as the kernel tells it.
//!
//! What is not here: which keys may open a session, and how it is opened. An [`Uplink`] takes whatever session its owner has.

pub mod access;
mod dial;
mod far;
mod forward;
mod front;
pub mod http;
#[cfg(target_os = "linux")]
mod intercept;
mod listen;
mod live;
mod lookup;
mod mute;
mod near;
pub mod proxy_protocol;
mod rate;
mod relay;
mod report;
mod senders;
pub mod socks;
mod source;
#[cfg(target_os = "linux")]
pub mod split;
mod stream;
mod target;
mod udp;
mod uplink;
mod user;
pub mod wire;

pub use access::{Pattern, Rule, Rules};
pub use far::{Far, FarConfig};
pub use forward::{Bind, Forward, Forwards, On};
#[cfg(target_os = "linux")]
pub use intercept::{Diversion, Interception};
pub use listen::BindError;
pub use live::{ConnectionView, GuestsView, MOST_TARGETS, QuotaView, Snapshot, TargetView, UserView};
pub use near::{Connection, Greeting, Listener, Near, NearOptions, Remote};
pub use report::{End, Report, Sink, Wire};
pub use source::{Sources, Trusted, may_dial_as_client};
pub use target::{Host, Target};
pub use udp::{LIFETIME as UDP_LIFETIME, is_datagrams};
pub use uplink::Uplink;
pub use user::{Account, Limits, Period, Quota, Usage};
pub use wire::{Answer, Outcome, TAG, Transport};

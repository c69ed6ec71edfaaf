//! Streams of messages over links without usable feedback: the whole BATS code, outer and inner, recoded by relays that hear nothing back
//! (docs/spec/blind.md).
//!
//! Where nothing is acknowledged no sender can know a neighbour's rank. So the redundancy is planned: the source cuts the stream into blocks of K
//! packets and sends batches of the outer code ([`Plan`]); every node sends more packets for batches of higher rank (adaptive recoding), batches take
//! turns so that a burst of losses costs each of them a little (interleaving); the destination needs any K and a few more innovative packets of a
//! block. Packets are sealed and tagged end to end as those of relayed sessions: relays combine what they cannot read, and what they alter is
//! rejected before it is used (P16).
//!
//! | file | what |
//! |---|---|
//! | [`Shape`], [`Plan`] | how a stream is cut, and how much is sent for the losses that are expected |
//! | [`Packet`] | bytes of a datagram |
//! | [`Source`] | messages in, datagrams out, at a given rate |
//! | [`Relay`] | datagrams in, more or fewer datagrams out |
//! | [`Sink`] | datagrams in, messages out |
//! | [`Announcement`] | name, cut and key of a stream, for one node that is known by its key |
//! | [`Sender`], [`Receiver`] | streams that announce themselves: a source, and the sinks of the senders that are expected |
//!
//! Nothing here asks whether the rate is permitted: the owner answers for it (RFC 8085 §3.1), as for one-way objects.

#[cfg(test)]
mod announced_tests;
mod announcement;
mod held;
mod packet;
mod passing;
mod plan;
mod queue;
mod receiver;
mod relay;
mod sender;
mod sink;
mod source;
#[cfg(test)]
mod stranger_tests;
#[cfg(test)]
mod tests;

pub use announcement::{Announcement, AnnouncementError};
pub use packet::{Coefficients, HEADER, Packet, StreamName};
pub use plan::{Plan, Shape, ShapeError};
pub use receiver::{Receiver, ReceiverStats, SenderView};
pub use relay::{Relay, RelayConfig, RelayStats};
pub use sender::{Sender, SenderConfig, SenderStats};
pub use sink::{Sink, SinkStats};
pub use source::{BlindError, Source, SourceConfig, SourceStats};

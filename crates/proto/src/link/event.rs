//! What a link tells its node, which drains it after every call.

use crate::error::CloseReason;
use crate::ids::{FlowId, FlowLabel, LinkId, RelayId, SessionId};
use bytes::Bytes;

/// What happened on a link that concerns the node or its sessions.
#[derive(Debug)]
pub(crate) enum LinkEvent {
    Up,
    /// This link took the place of an older one of the same key.
    Supersedes(LinkId),
    /// A flow that was offered was accepted and exists now.
    FlowOpened(FlowLabel),
    /// A relayed session's control flow brought a packet of the handshake.
    Lead(SessionId, FlowLabel, Bytes),
    /// The first packet of a sealed flow opened: the far end has the session's keys.
    Proven(SessionId),
    /// The session's control flow brought a message.
    Control(SessionId, Bytes),
    Readable(FlowId),
    Writable(FlowId),
    /// Packets of an incoming flow were altered on their way.
    Polluted(FlowLabel),
    /// A packet of an incoming flow was altered on its way; the owner hears of it at the first, and at ever larger numbers.
    Forged {
        flow: FlowLabel,
        is_news: bool,
    },
    /// The first packets of a sealed flow that we send were given up.
    Skipped(FlowLabel),
    /// A sealed flow that we send has no further packets; so many in all.
    Ended(FlowLabel),
    /// A part brought packets of its flow.
    Pieces(FlowLabel),
    /// A part that we send can take more of its flow.
    Hungry(SessionId, u64),
    /// More of a sealed incoming flow is here than the far end knows.
    Progress(FlowLabel),
    /// Everything of an incoming flow is here, read or not.
    Received(FlowLabel),
    Finished(FlowLabel),
    Delivered(FlowLabel),
    OutClosed(FlowLabel, CloseReason),
    InClosed(FlowLabel, CloseReason),
    /// One half of a relayed flow changed.
    Relay(RelayId),
    /// The neighbour has not answered for so long that another way is worth trying, or answers again.
    Silence,
    Down(CloseReason),
}

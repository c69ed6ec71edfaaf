//! What a link tells its node, which drains it after every call.

use crate::error::CloseReason;
use crate::flows::{InEvent, OutEvent};
use crate::ids::{FlowId, FlowLabel, LinkId};

/// What happened on a link that concerns the node or its sessions.
#[derive(Debug)]
pub(crate) enum LinkEvent {
    Up,
    /// This link took the place of an older one of the same key.
    Supersedes(LinkId),
    /// What happened to a flow that went out by it, under this label.
    Out(FlowId, FlowLabel, OutEvent),
    /// What happened to a flow that came in by it, under this label.
    In(FlowId, FlowLabel, InEvent),
    /// The neighbour has not answered for so long that another route is worth trying, or answers again.
    Silence,
    Down(CloseReason),
}

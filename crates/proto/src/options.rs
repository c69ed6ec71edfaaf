//! What an application may ask of a flow and of a message.

use crate::ids::FlowId;
use crate::units::{Duration, Probability};

/// Transport mode: the promise of a flow (names from the BATS protocol).
#[derive(Clone, Copy, PartialEq, Eq, Debug, Hash)]
pub enum Mode {
    /// Every message arrives once; coded repair on feedback until the far end has it.
    Brtp,
    /// Messages with a lifetime; not every one arrives.
    Btp,
    /// Plain datagrams inside the encrypted link: one message is one packet, sent once, at whatever rate it is offered; no coding, no
    /// acknowledgement, no congestion control. A baseline and a tool for finding faults, not for networks that others use too (RFC 8085).
    Transparent,
}

/// What the application exchanges over a flow.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Hash)]
pub enum FlowKind {
    /// Messages, handed over in the order in which they were sent.
    OrderedMessages,
    /// Messages, each handed over as soon as it is complete.
    UnorderedMessages,
    /// An ordered byte stream (`brtp` only).
    Stream,
}

/// Scheduling class at every node (P17).
#[derive(Clone, Copy, PartialEq, Eq, Debug, Hash)]
pub enum Class {
    /// Messages whose latency matters: served first, capped at half of the link, proactive repair from spare rate.
    Latency,
    /// Throughput matters.
    Bulk,
}

/// How a flow is opened.
#[derive(Clone, Debug, PartialEq)]
pub struct FlowOptions {
    /// The promise. Default `brtp`.
    pub mode: Mode,
    /// Messages or bytes. Default ordered messages.
    pub kind: FlowKind,
    /// Scheduling class. Default bulk.
    pub class: Class,
    /// Lifetime of each message unless the message states its own; `btp` needs one here or per message. Default none.
    pub lifetime: Option<Duration>,
    /// Probability with which a message of an application-limited flow should need no second round trip. Default 0.999.
    pub no_retransmit: Probability,
    /// Packets per batch: 8, 16, 32 or 64. Default 16.
    pub batch_size: u8,
    /// The flow in the opposite direction that this one answers: together they are one bidirectional stream.
    pub answers: Option<FlowId>,
    /// The opener expects an answering flow.
    pub bidirectional: bool,
    /// A number for the application's own use, carried to the far end. Default 0; at most 2^62 - 1.
    pub tag: u64,
    /// Bytes that may wait in this node before a command is `Blocked`, at most; the node's memory may allow less. A sender that keeps a queue
    /// of its own, and wants to decide late what leaves it, asks for little. Not carried to the far end. Default none: as much as memory allows,
    /// and 1 MiB at most.
    pub send_buffer: Option<usize>,
    /// Keeps to one route where several equally good ones lead to the far end: for an application that suffers from what arrives out of order, or spreads flows over routes
    /// itself. Not carried to the far end. Default false.
    pub one_route: bool,
}

impl Default for FlowOptions {
    fn default() -> Self {
        Self {
            mode: Mode::Brtp,
            kind: FlowKind::OrderedMessages,
            class: Class::Bulk,
            lifetime: None,
            no_retransmit: Probability::new(0.999),
            batch_size: 16,
            answers: None,
            bidirectional: false,
            tag: 0,
            send_buffer: None,
            one_route: false,
        }
    }
}

/// How one message is sent.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct MessageOptions {
    /// Overrides the flow's lifetime for this message.
    pub lifetime: Option<Duration>,
    /// Higher goes first among messages not yet begun; default 0.
    pub priority: u8,
}

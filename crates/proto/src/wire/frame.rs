//! Frames: what the inside of a protected packet consists of (P1). Value types; parsing and emitting are in the files beside.

use crate::error::CloseReason;
use crate::ids::{FlowLabel, PathId, Seq, SessionKey};
use crate::options::{Class, FlowKind, Mode};
use crate::units::{Duration, Probability};
use std::net::IpAddr;

/// Coefficients of a coded packet in one of four forms (P4).
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Coefficients<'a> {
    /// The packet is source packet `base + index`, uncoded.
    Index(u8),
    /// All `n` coefficients from `noctule_codes::span::repair_coefficients(seed, n)`.
    Seed(u16),
    /// Only the packets whose bit is set (bit j = base + j) take part, with the coefficients that the seed gives them.
    BitmapSeed {
        /// Packets that take part.
        bitmap: u64,
        /// Seed.
        seed: u16,
    },
    /// One byte per packet of the span.
    Vector(&'a [u8]),
}

/// CODED: one coded packet of a flow. On the wire the last frame of its packet (no length) or with a length.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Coded<'a> {
    /// Hop-local flow label.
    pub flow: FlowLabel,
    /// First source sequence number of the span.
    pub base: Seq,
    /// Packets in the span, 1..=64.
    pub n: u8,
    /// Coefficients.
    pub coefficients: Coefficients<'a>,
    /// Combination of symbols (2-byte length | data, P5), as long as the longest symbol covered.
    pub symbol: &'a [u8],
}

/// FLOW_OPEN (P17): rides with data until acknowledged.
#[derive(Clone, Debug, PartialEq)]
pub struct FlowOpen {
    /// Session as both ends name it.
    pub session: SessionKey,
    /// Number of the flow within the session, unique per direction; 0 is the session's control flow.
    pub index: u64,
    /// Hop-local label of the sender.
    pub label: FlowLabel,
    /// Largest symbol T in bytes.
    pub symbol: u16,
    /// Promise.
    pub mode: Mode,
    /// What it carries.
    pub kind: FlowKind,
    /// Scheduling class.
    pub class: Class,
    /// Default lifetime of its messages, in ms on the wire.
    pub lifetime: Option<Duration>,
    /// Batch size M.
    pub batch_size: u8,
    /// Nodes that it may still pass.
    pub hop_limit: u8,
    /// Asked probability of needing no second round trip.
    pub no_retransmit: Probability,
    /// Flow index in the opposite direction that this one answers.
    pub answers: Option<u64>,
    /// An answering flow is expected.
    pub bidirectional: bool,
    /// The application's number.
    pub tag: u64,
    /// Ends of a flow that may pass relays; `None`: the neighbour is the far end.
    pub relayed: Option<Relayed>,
}

impl FlowOpen {
    /// Datagrams that are handed over in order: one that is missing holds up those after it while all of them grow old.
    pub fn waits_in_order(&self) -> bool {
        self.mode == Mode::Btp && self.kind == FlowKind::OrderedMessages
    }

    /// Which part of its flow it carries; 0: the flow is no part of another.
    pub fn part(&self) -> u64 {
        self.relayed.map_or(0, |r| r.part)
    }
}

/// What FLOW_OPEN says beyond that of a flow that passes relays.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Relayed {
    /// Node that the flow goes to.
    pub destination: IpAddr,
    /// Node that it comes from.
    pub source: IpAddr,
    /// How often the source has opened the flow before: to the destination a newer incarnation replaces an older one, wherever it comes from.
    pub incarnation: u64,
    /// First sequence number of this incarnation: everything below was acknowledged end to end, or given up.
    pub first: Seq,
    /// Largest symbol that goes uncut over every link so far, in bytes; each relay lowers it to what its next link takes.
    pub fits: u16,
    /// Which part of a flow that takes several routes at once this is, from 1 on and never again in its flow; 0: the flow itself.
    pub part: u64,
    /// What only the source can say, and only the destination check: that it opens this flow, this part, this incarnation (P16).
    pub proof: Option<OpeningProof>,
}

/// A MAC under a key of the session (session.md 8.2).
pub type OpeningProof = [u8; 16];

/// A frame.
#[derive(Clone, Debug, PartialEq)]
pub enum Frame<'a> {
    /// Filler, any number of bytes of it.
    Padding,
    /// Asks for an acknowledgement.
    Ping,
    /// Acknowledgement (P8); a checked view, see [`crate::wire::ack`].
    Ack(crate::wire::ack::AckView<'a>),
    /// A coded packet.
    Coded(Coded<'a>),
    /// One message of a transparent flow, to the end of the packet.
    Datagram {
        /// Flow.
        flow: FlowLabel,
        /// Number of the message, counted by its sender.
        number: u64,
        /// The message.
        data: &'a [u8],
    },
    /// Opens a flow.
    FlowOpen(FlowOpen),
    /// The flow's last source sequence number plus one is known: `end` packets in all (P4).
    FlowEnd {
        /// Flow.
        flow: FlowLabel,
        /// One past the last sequence number.
        end: Seq,
    },
    /// The receiving node refuses packets of a flow (P9).
    FlowRefused {
        /// Flow.
        flow: FlowLabel,
        /// Span concerned.
        base: Seq,
        /// Close code.
        reason: u64,
    },
    /// The sender gives a flow up: nothing more follows.
    FlowReset {
        /// Flow.
        flow: FlowLabel,
        /// Close code.
        reason: u64,
    },
    /// The receiver wants no more of a flow.
    FlowStop {
        /// Flow.
        flow: FlowLabel,
        /// Close code.
        reason: u64,
    },
    /// The sender will not send or repair anything below `floor` any more (lifetimes ended, messages cancelled).
    FlowSkip {
        /// Flow.
        flow: FlowLabel,
        /// First sequence number that still counts.
        floor: Seq,
    },
    /// Rank that the receiver holds of a span (P9).
    Rank {
        /// Flow.
        flow: FlowLabel,
        /// First sequence number of the span.
        base: Seq,
        /// Packets in the span.
        n: u8,
        /// Rank held.
        rank: u8,
        /// Source packets not yet determined, bit j = base + j.
        missing: u64,
    },
    /// Credit (P15): absolute limit (one past the last sequence number allowed) and how far the receiver is done.
    Credit {
        /// Flow.
        flow: FlowLabel,
        /// One past the last sequence number that may be sent.
        limit: Seq,
        /// Every sequence number below this is no longer needed from the sender.
        done: Seq,
    },
    /// A further connection id for a path.
    NewConnectionId {
        /// Path it names.
        path: PathId,
        /// Order of issue.
        sequence: u64,
        /// 4..=8 bytes.
        id: crate::wire::packet::ConnectionId,
    },
    /// A connection id will not be used any more.
    RetireConnectionId {
        /// Order of issue.
        sequence: u64,
    },
    /// Is this path alive and mine?
    PathChallenge([u8; 8]),
    /// Yes.
    PathResponse([u8; 8]),
    /// A Noise message of a fresh Diffie-Hellman for key generation `generation` (P3).
    Rekey {
        /// Generation being agreed.
        generation: u64,
        /// 0 = initiator's message, 1 = responder's message.
        step: u8,
        /// Noise message.
        message: &'a [u8],
    },
    /// One of two fragments of a coded packet that no longer fits the path (P5).
    Fragment {
        /// Number of the cut packet.
        id: u64,
        /// 0 or 1.
        index: u8,
        /// Part of an encoded CODED frame.
        data: &'a [u8],
    },
    /// The end of the link (P1).
    Close(CloseReason),
}

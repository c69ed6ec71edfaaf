//! What a sent packet carried, remembered by its path until the packet's fate is known.

use crate::ids::{FlowLabel, PacketNumber, PathId, Seq};
use smallvec::SmallVec;

/// One thing that a packet carried and whose fate matters.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum SentItem {
    /// A coded packet: `index` says which source packet of the span went uncoded, `None` is a combination.
    Coded {
        /// Flow on this hop.
        flow: FlowLabel,
        /// First source sequence number of the span.
        base: Seq,
        /// Packets that the span covered when this one was made.
        n: u8,
        /// First packet of the span that takes part, counted from the base: a combination covers `from..n`; 0 unless a bitmap left the front out.
        from: u8,
        /// Uncoded source packet, counted from the base; `None` for a combination.
        index: Option<u8>,
    },
    /// FLOW_OPEN, repeated until acknowledged (P17).
    FlowOpen(FlowLabel),
    /// FLOW_END, repeated until acknowledged (P4).
    FlowEnd(FlowLabel),
    /// FLOW_SKIP with its floor, repeated until acknowledged.
    FlowSkip {
        /// Flow on this hop.
        flow: FlowLabel,
        /// First sequence number that still counts.
        floor: Seq,
    },
    /// FLOW_RESET.
    FlowReset(FlowLabel),
    /// FLOW_STOP.
    FlowStop(FlowLabel),
    /// FLOW_REFUSED, repeated until acknowledged: nothing else tells that what was acknowledged was not taken (P9).
    FlowRefused {
        /// Flow on this hop.
        flow: FlowLabel,
        /// Base of the packet that was refused.
        base: Seq,
        /// Code.
        reason: u64,
    },
    /// CREDIT with its absolute limit, repeated until acknowledged (P15).
    Credit {
        /// Flow on this hop.
        flow: FlowLabel,
        /// Limit that was granted.
        limit: Seq,
    },
    /// The last CREDIT of a flow that was received whole and is forgotten here, repeated until acknowledged.
    FlowDone {
        /// Flow on this hop.
        flow: FlowLabel,
        /// One past its last sequence number.
        end: Seq,
    },
    /// RANK report (P9).
    Rank {
        /// Flow on this hop.
        flow: FlowLabel,
        /// First source sequence number of the span.
        base: Seq,
    },
    /// An ACK of `path` up to `largest`: its acknowledgement lets the receiver forget (P8).
    Ack {
        /// Path whose packets were reported.
        path: PathId,
        /// Everything below this number had been reported when the packet was sent.
        reported_below: PacketNumber,
    },
    /// NEW_CONNECTION_ID with its sequence number.
    NewConnectionId(u64),
    /// RETIRE_CONNECTION_ID with its sequence number.
    RetireConnectionId(u64),
    /// A step of the fresh Diffie-Hellman (P3).
    Rekey,
    /// One of two fragments of a coded packet (P5): its loss is the loss of the whole, its arrival alone says nothing.
    Half {
        /// Number of the packet that was cut.
        id: u64,
        /// 0 or 1.
        index: u8,
    },
    /// A path MTU probe of this many bytes of UDP payload.
    MtuProbe(u16),
    /// PING, PATH_CHALLENGE and the like: only the packet's fate itself matters.
    Ping,
}

/// What one packet carried; two items fit without allocation.
pub type SentItems = SmallVec<[SentItem; 2]>;

//! Coded flows: the same sender and receiver machine at every hop (P4, P9, P13-P15).
//!
//! [`Sender`] groups symbols into batches, sends each once uncoded and then repairs the rank that the neighbour lacks with fresh
//! combinations. [`Receiver`] hands over every symbol once, as soon as it has it or can compute it, and reports credit and rank.
//! Neither knows packets, paths or keys: the link asks the sender for the next symbol of a [`Stage`] and tells it the fate of each
//! ([`SentItem`]). What a symbol contains is the session's affair.

mod batch;
mod credit;
mod deadlines;
mod drain;
mod rank;
mod receiver;
mod row;
mod sender;
mod slab;
mod span;
mod symbol;
#[cfg(test)]
mod tests;
mod window;

pub use drain::Drain;
pub use noctule_codes::span::MAX_SPAN;
pub(crate) use receiver::coefficient_row;
pub use receiver::{Receiver, ReceiverConfig};
pub use row::{Passing, Recoded, Row, RowForm};
pub(crate) use sender::RESERVED_PACKETS;
pub use sender::{Sender, SenderConfig};
pub use symbol::Symbol;

use crate::error::Code;
use crate::ids::{FlowLabel, Seq};
use crate::redundancy::LossEstimate;
use crate::sent::SentItem;
use crate::units::{Duration, Probability};
use crate::wire::frame::{Coefficients, Frame};

/// What the link asks a sender for, in the order in which a link asks.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Stage {
    /// Combinations for known deficits (P13).
    Repair,
    /// Source packets, uncoded, for the first time.
    Source,
    /// Combinations beyond what is known to be missing; only when there is nothing else to send and the path has capacity to spare.
    Proactive,
    /// One coded packet that makes the far end answer: the tail probe (P4).
    Probe,
}

/// What a sender needs to know of the path that the next packet leaves on.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct SendContext {
    /// Smoothed round-trip time.
    pub rtt: Duration,
    /// Its mean deviation.
    pub rtt_var: Duration,
    /// Smallest round-trip time in the path's window.
    pub min_rtt: Duration,
    /// Measured loss.
    pub loss: LossEstimate,
    /// Time between two full packets that the pacer sends one after the other.
    pub gap: Duration,
    /// The path has capacity that nobody else wants now.
    pub spare: bool,
    /// What may go ahead of new data in the end costs them nothing: all that is wanted where none wait, otherwise by how much the path was idle lately.
    pub idle_share: Probability,
    /// Packets whose fate is known, since the path began.
    pub heard: u32,
    /// So much that what takes it makes no queue.
    pub slack: bool,
    /// Nothing but what is offered bounds what leaves: congestion control is off.
    pub uncontrolled: bool,
}

/// A coded packet that a sender wants sent; `Sender::write_symbol` gives its bytes.
#[derive(Clone, Debug, PartialEq)]
pub struct Outgoing {
    /// First sequence number of the span.
    pub base: Seq,
    /// Packets that the span has so far.
    pub n: u8,
    /// Coefficients as they go on the wire; a vector stands in `recoded`. See [`Outgoing::coefficients`].
    pub form: Coefficients<'static>,
    /// The vector of a packet that a relay combined.
    pub recoded: Option<Box<Recoded>>,
    /// Bytes that `write_symbol` will add.
    pub len: usize,
    /// What the path remembers.
    pub item: SentItem,
}

impl Outgoing {
    /// Coefficients as they go on the wire.
    pub fn coefficients(&self) -> Coefficients<'_> {
        match &self.recoded {
            Some(recoded) => Coefficients::Vector(recoded.vector()),
            None => self.form.clone(),
        }
    }
}

/// What became of a coded packet that was offered to a [`Receiver`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Offer {
    /// It brought something new.
    Accepted,
    /// It brought nothing new: everything in it is there, or is given up.
    Redundant,
    /// It was not taken; the sender is told by FLOW_REFUSED (P9).
    Refused(Code),
}

/// A control frame of a flow: absolute, so that the newest one says all, and repeated until acknowledged.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FlowControlFrame {
    /// FLOW_END.
    End {
        /// Flow.
        flow: FlowLabel,
        /// One past the last sequence number.
        end: Seq,
    },
    /// FLOW_SKIP.
    Skip {
        /// Flow.
        flow: FlowLabel,
        /// First sequence number that still counts.
        floor: Seq,
    },
    /// CREDIT.
    Credit {
        /// Flow.
        flow: FlowLabel,
        /// One past the last sequence number that may be sent.
        limit: Seq,
        /// Everything below is no longer needed.
        done: Seq,
    },
    /// RANK.
    Rank {
        /// Flow.
        flow: FlowLabel,
        /// First sequence number of the span.
        base: Seq,
        /// Packets of the span that exist as far as the receiver knows.
        n: u8,
        /// Rank held.
        rank: u8,
        /// Packets not yet determined.
        missing: u64,
    },
}

impl FlowControlFrame {
    /// The frame for the wire.
    pub fn frame(&self) -> Frame<'static> {
        match *self {
            Self::End { flow, end } => Frame::FlowEnd { flow, end },
            Self::Skip { flow, floor } => Frame::FlowSkip { flow, floor },
            Self::Credit { flow, limit, done } => Frame::Credit { flow, limit, done },
            Self::Rank { flow, base, n, rank, missing } => Frame::Rank { flow, base, n, rank, missing },
        }
    }

    /// What the path remembers of it.
    pub fn item(&self) -> SentItem {
        match *self {
            Self::End { flow, .. } => SentItem::FlowEnd(flow),
            Self::Skip { flow, floor } => SentItem::FlowSkip { flow, floor },
            Self::Credit { flow, limit, .. } => SentItem::Credit { flow, limit },
            Self::Rank { flow, base, .. } => SentItem::Rank { flow, base },
        }
    }
}

/// The lowest `n` bits.
const fn mask(n: u8) -> u64 {
    if n >= 64 { u64::MAX } else { (1 << n) - 1 }
}

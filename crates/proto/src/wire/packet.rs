//! Packet headers (P2, P3).

use smallvec::SmallVec;

/// A connection id of 4-8 bytes.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct ConnectionId(pub SmallVec<[u8; 8]>);

//! What a node hands to its driver.

use crate::units::Ecn;
use std::net::{IpAddr, SocketAddr};

/// Datagrams to send: `buf[..len]` of the buffer handed in, cut into `segment_size` pieces if there are several (GSO).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Transmit {
    /// Where to.
    pub remote: SocketAddr,
    /// From which local address, if it matters.
    pub local: Option<IpAddr>,
    /// ECN codepoint.
    pub ecn: Ecn,
    /// Total bytes.
    pub len: usize,
    /// All pieces have this length except the last, which may be shorter; `None`: one datagram.
    pub segment_size: Option<usize>,
}

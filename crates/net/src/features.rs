//! What this host's UDP sockets can do, tried out on loopback.

use crate::socket::{RECV_BUFFER_LEN, RECV_BUFFERS, Socket, Wishes};
use noctule_proto::node::Transmit;
use noctule_proto::units::Ecn;
use quinn_udp::RecvMeta;
use std::future::poll_fn;
use std::io::{self, IoSliceMut};
use std::net::{Ipv4Addr, Ipv6Addr, SocketAddr};
use std::time::Duration;

/// Bytes of a datagram of the trial.
const PIECE: usize = 1200;
/// Datagrams of its train.
const PIECES: usize = 4;
/// How long loopback may take.
const PATIENCE: Duration = Duration::from_secs(2);

/// What sockets of this host can do; see [`probe_sockets`].
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct SocketFeatures {
    /// Datagrams that one system call sends (GSO); 1 without it.
    pub max_segments: usize,
    /// A train arrives as a whole (GRO).
    pub is_coalesced: bool,
    /// The ECN field arrives as it was sent.
    pub keeps_ecn: bool,
    /// IPv6 sockets can be opened.
    pub has_v6: bool,
}

/// Sends a train between two sockets on loopback and looks how it arrives.
///
/// # Errors
/// No socket can be opened, or nothing arrives.
pub async fn probe_sockets() -> io::Result<SocketFeatures> {
    let loopback = SocketAddr::from((Ipv4Addr::LOCALHOST, 0));
    let (from, to) =
        (Socket::bind(loopback, Wishes::buffers(1 << 18, 1 << 18))?, Socket::bind(loopback, Wishes::buffers(1 << 18, 1 << 18))?);
    let max_segments = from.max_segments(PIECE as u16);
    let pieces = PIECES.min(max_segments);
    let contents = vec![0x55; PIECE * pieces];
    let segment_size = (pieces > 1).then_some(PIECE);
    let transmit = Transmit { remote: to.local_addr(), local: None, ecn: Ecn::Ect0, len: contents.len(), segment_size };
    tokio::time::timeout(PATIENCE, poll_fn(|cx| from.poll_send(cx, &transmit, &contents))).await??;
    let mut storage = vec![0; RECV_BUFFERS * RECV_BUFFER_LEN];
    let mut meta = [RecvMeta::default(); RECV_BUFFERS];
    let received = {
        let mut chunks = storage.chunks_exact_mut(RECV_BUFFER_LEN);
        let mut bufs: [IoSliceMut<'_>; RECV_BUFFERS] =
            std::array::from_fn(|_| IoSliceMut::new(chunks.next().expect("as many chunks as buffers")));
        tokio::time::timeout(PATIENCE, poll_fn(|cx| to.poll_recv(cx, &mut bufs, &mut meta))).await??
    };
    let first = meta[..received].first().map(Socket::received);
    Ok(SocketFeatures {
        max_segments,
        is_coalesced: first.is_some_and(|f| f.len > f.stride),
        keeps_ecn: first.is_some_and(|f| f.ecn == Ecn::Ect0),
        has_v6: Socket::bind(SocketAddr::from((Ipv6Addr::LOCALHOST, 0)), Wishes::buffers(1 << 16, 1 << 16)).is_ok(),
    })
}

//! Counts and estimates as structures of C.

use crate::input::Sized1;
use noctule::{EndpointStats, FlowStats, SessionStats};

/// What an endpoint's socket has done. Set `size` before the call.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default)]
pub struct noctule_endpoint_stats {
    /// `sizeof(noctule_endpoint_stats)`.
    pub size: usize,
    /// Datagrams handed to the socket.
    pub sent_datagrams: u64,
    /// Bytes of UDP payload handed to the socket.
    pub sent_bytes: u64,
    /// System calls that they took.
    pub sent_trains: u64,
    /// Datagrams taken from the socket.
    pub received_datagrams: u64,
    /// Bytes of UDP payload taken from the socket.
    pub received_bytes: u64,
    /// Times that the socket's send buffer was full.
    pub send_blocked: u64,
    /// Trains that the operating system refused to send.
    pub send_errors: u64,
    /// Errors in receiving.
    pub recv_errors: u64,
    /// Bytes of the socket's send buffer, as granted.
    pub send_buffer: u64,
    /// Bytes of the socket's receive buffer, as granted.
    pub recv_buffer: u64,
    /// Bytes that sessions and flows hold now.
    pub memory_used: u64,
    /// The most so far.
    pub memory_peak: u64,
}

/// What is known of a session: its first path, and sums over its flows. Set `size` before the call.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default)]
pub struct noctule_session_stats {
    /// `sizeof(noctule_session_stats)`.
    pub size: usize,
    /// Smoothed round-trip time, microseconds.
    pub smoothed_rtt: u64,
    /// The least lately, microseconds.
    pub min_rtt: u64,
    /// Share of sent packets that are lost, 0 to 1.
    pub loss: f64,
    /// Rate at which what is sent arrives, bits per second.
    pub delivery_rate: f64,
    /// Rate at which packets may leave, bits per second.
    pub pacing_rate: f64,
    /// Congestion window, bytes.
    pub congestion_window: u64,
    /// Bytes in flight.
    pub in_flight: u64,
    /// Largest UDP payload that passes, bytes.
    pub mtu: u64,
    /// Paths of the link.
    pub paths: u64,
    /// Datagrams sent.
    pub sent_packets: u64,
    /// Bytes of UDP payload sent.
    pub sent_bytes: u64,
    /// Datagrams received.
    pub received_packets: u64,
    /// Bytes of UDP payload received.
    pub received_bytes: u64,
    /// Packets declared lost.
    pub lost_packets: u64,
    /// Bytes of the program that were sent.
    pub app_bytes_sent: u64,
    /// Bytes handed to the program.
    pub app_bytes_received: u64,
    /// Messages sent.
    pub messages_sent: u64,
    /// Messages handed to the program.
    pub messages_received: u64,
    /// Messages to be sent whose lifetime ended, or that were cancelled.
    pub messages_expired: u64,
    /// Coded packets sent for repair.
    pub repair_packets_sent: u64,
    /// Packets that were recovered by decoding.
    pub packets_decoded: u64,
}

/// What is known of one direction of a flow. Set `size` before the call.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default)]
pub struct noctule_flow_stats {
    /// `sizeof(noctule_flow_stats)`.
    pub size: usize,
    /// Bytes of the program.
    pub app_bytes: u64,
    /// Messages.
    pub messages: u64,
    /// Messages whose lifetime ended, or that were cancelled.
    pub messages_expired: u64,
    /// Source packets sent, or received and recovered.
    pub source_packets: u64,
    /// Coded packets for repair.
    pub repair_packets: u64,
    /// Source packets that were recovered by decoding.
    pub packets_decoded: u64,
    /// Packets that brought nothing new.
    pub packets_redundant: u64,
    /// Source packets sent and not known to be there.
    pub outstanding: u64,
    /// Bytes of memory held.
    pub memory: u64,
    /// Bytes given to the library that no packet carries yet, 64 more for each message; with `outstanding` 0 as well, the far end has everything.
    pub waiting: u64,
}

// SAFETY: repr(C), a size in front, eight bytes each.
unsafe impl Sized1 for noctule_endpoint_stats {
    const NAME: &'static str = "noctule_endpoint_stats";
}
// SAFETY: as above.
unsafe impl Sized1 for noctule_session_stats {
    const NAME: &'static str = "noctule_session_stats";
}
// SAFETY: as above.
unsafe impl Sized1 for noctule_flow_stats {
    const NAME: &'static str = "noctule_flow_stats";
}

impl From<EndpointStats> for noctule_endpoint_stats {
    fn from(s: EndpointStats) -> Self {
        Self {
            size: size_of::<Self>(),
            sent_datagrams: s.sent_datagrams,
            sent_bytes: s.sent_bytes,
            sent_trains: s.sent_trains,
            received_datagrams: s.received_datagrams,
            received_bytes: s.received_bytes,
            send_blocked: s.send_blocked,
            send_errors: s.send_errors,
            recv_errors: s.recv_errors,
            send_buffer: s.buffers.send as u64,
            recv_buffer: s.buffers.recv as u64,
            memory_used: s.memory.used as u64,
            memory_peak: s.memory.peak as u64,
        }
    }
}

impl From<SessionStats> for noctule_session_stats {
    fn from(s: SessionStats) -> Self {
        let sums = Self {
            size: size_of::<Self>(),
            paths: s.paths().len() as u64,
            app_bytes_sent: s.flows.sent.app_bytes,
            app_bytes_received: s.flows.received.app_bytes,
            messages_sent: s.flows.sent.messages,
            messages_received: s.flows.received.messages,
            messages_expired: s.flows.sent.expired_messages,
            repair_packets_sent: s.flows.sent.repair_packets,
            packets_decoded: s.flows.received.decoded_packets,
            ..Self::default()
        };
        let Some(path) = s.paths().first() else { return sums };
        Self {
            smoothed_rtt: path.smoothed_rtt.as_micros() as u64,
            min_rtt: path.min_rtt.as_micros() as u64,
            loss: path.loss.get(),
            delivery_rate: path.delivery_rate.bytes_per_sec() * 8.0,
            pacing_rate: path.control.pacing_rate.bytes_per_sec() * 8.0,
            congestion_window: path.control.cwnd,
            in_flight: path.in_flight,
            mtu: path.mtu.into(),
            sent_packets: s.all_paths().map(|p| p.sent_packets).sum(),
            sent_bytes: s.all_paths().map(|p| p.sent_bytes).sum(),
            received_packets: s.all_paths().map(|p| p.received_packets).sum(),
            received_bytes: s.all_paths().map(|p| p.received_bytes).sum(),
            lost_packets: s.all_paths().map(|p| p.lost_packets).sum(),
            ..sums
        }
    }
}

impl From<FlowStats> for noctule_flow_stats {
    fn from(s: FlowStats) -> Self {
        Self {
            size: size_of::<Self>(),
            app_bytes: s.app_bytes,
            messages: s.messages,
            messages_expired: s.expired_messages,
            source_packets: s.source_packets,
            repair_packets: s.repair_packets,
            packets_decoded: s.decoded_packets,
            packets_redundant: s.redundant_packets,
            outstanding: s.outstanding,
            memory: s.memory as u64,
            waiting: s.waiting as u64,
        }
    }
}

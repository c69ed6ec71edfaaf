//! What every controller with a window in segments does the same way: count in segments, pace a window over an RTT, know whether it is used.

use super::{ControlState, SentEvent, initial_packets};
use crate::units::{Bandwidth, Duration};

/// RFC 5681 §3.1: no reduction goes below this.
pub(super) const MIN_SEGMENTS: f64 = 2.0;
/// Pacing above cwnd / RTT: in slow start the window doubles within the RTT in which it is paced.
const SLOW_START_PACING: f64 = 2.0;
/// RFC 9002 §7.7: a little more than the window, so that the pacer never keeps it from being used.
const AVOIDANCE_PACING: f64 = 1.25;

/// Congestion window and slow start threshold in segments.
#[derive(Debug)]
pub(super) struct Window {
    /// Bytes of UDP payload per segment.
    pub(super) datagram: f64,
    pub(super) cwnd: f64,
    pub(super) ssthresh: f64,
    pub(super) srtt: Duration,
    /// The sender has too little to send to use it.
    pub(super) is_limited: bool,
}

impl Window {
    pub(super) fn new(datagram: u64, rtt: Duration) -> Self {
        Self { datagram: datagram as f64, cwnd: initial_packets(rtt), ssthresh: f64::INFINITY, srtt: rtt, is_limited: false }
    }

    pub(super) fn on_sent(&mut self, event: &SentEvent) {
        // RFC 9438 §4.2 and RFC 2861: a window that is not used does not grow.
        self.is_limited = event.is_app_limited && (event.in_flight as f64) < self.cwnd * self.datagram / 2.0;
    }

    pub(super) fn on_mtu(&mut self, max_datagram: u64) {
        let bytes = self.cwnd * self.datagram;
        self.datagram = max_datagram as f64;
        self.cwnd = (bytes / self.datagram).max(MIN_SEGMENTS);
    }

    pub(super) fn is_slow_start(&self) -> bool {
        self.cwnd < self.ssthresh
    }

    pub(super) fn bytes(&self) -> u64 {
        (self.cwnd * self.datagram) as u64
    }

    pub(super) fn pacing_rate(&self) -> Bandwidth {
        let gain = if self.is_slow_start() { SLOW_START_PACING } else { AVOIDANCE_PACING };
        Bandwidth::from_bytes_per_sec(gain * self.cwnd * self.datagram / self.srtt.as_secs_f64().max(1e-6))
    }

    /// `is_conservative`: slow start is about to end (HyStart++).
    pub(super) fn state(&self, is_conservative: bool) -> ControlState {
        let state = match self.is_slow_start() {
            true if is_conservative => "conservative_slow_start",
            true => "slow_start",
            false => "congestion_avoidance",
        };
        ControlState { state, cwnd: self.bytes(), pacing_rate: self.pacing_rate(), capacity: Bandwidth::ZERO, base_loss: 0.0 }
    }
}

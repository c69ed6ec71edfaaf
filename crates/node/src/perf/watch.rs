//! What the sending side knows of an interval: round trip, losses, repair, bytes on the wire, CPU.

use super::protocol::{DATA_TAG, Sent};
use super::tcp;
use noctule::Session;
use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

/// Takes the sending side's view once per interval.
pub struct Watch {
    session: Session,
    /// Connections of a test over TCP.
    tcp: Vec<OwnedFd>,
    messages: Arc<AtomicU64>,
    cpu: super::end::Cpu,
    /// Sent and lost.
    packets: (u64, u64),
    /// Source, repair, and of these proactive.
    coded: (u64, u64, u64),
    /// Before the test began: bytes sent, packets lost.
    before: (u64, u64),
}

fn share(part: u64, whole: u64) -> f64 {
    if whole == 0 { 0.0 } else { part as f64 / whole as f64 }
}

impl Watch {
    /// Begins.
    pub fn new(session: Session, tcp: Vec<OwnedFd>, messages: Arc<AtomicU64>) -> Self {
        let cpu = super::end::Cpu::start();
        let mut this = Self { session, tcp, messages, cpu, packets: (0, 0), coded: (0, 0, 0), before: (0, 0) };
        let first = this.take(0);
        this.before = (first.wire_bytes, first.lost_packets);
        this
    }

    /// The interval that ends now.
    pub fn take(&mut self, index: u64) -> Sent {
        let (rtt_ms, packets, wire) = if self.tcp.is_empty() {
            let stats = self.session.stats();
            let sum = |f: fn(&noctule::PathStats) -> u64| stats.all_paths().map(f).sum::<u64>();
            let rtt = stats.paths().first().map_or(0.0, |p| p.smoothed_rtt.as_secs_f64() * 1e3);
            (rtt, (sum(|p| p.sent_packets), sum(|p| p.lost_packets)), sum(|p| p.sent_bytes))
        } else {
            let views: Vec<_> = self.tcp.iter().map(tcp::view).collect();
            let rtt = views.iter().map(|v| v.rtt_ms).sum::<f64>() / views.len() as f64;
            (rtt, (views.iter().map(|v| v.segments).sum(), views.iter().map(|v| v.retransmitted).sum()), 0)
        };
        let flows = self.session.flow_stats();
        let flows = flows.iter().filter(|f| f.is_sender && f.options.tag == DATA_TAG).map(|f| &f.stats);
        let coded = flows
            .fold((0, 0, 0), |sum: (u64, u64, u64), f| (sum.0 + f.source_packets, sum.1 + f.repair_packets, sum.2 + f.proactive_packets));
        // A flow that ended is no longer listed.
        let of = |now: u64, before: u64| now.saturating_sub(before);
        let (source, repair, proactive) = (of(coded.0, self.coded.0), of(coded.1, self.coded.1), of(coded.2, self.coded.2));
        let sent = Sent {
            index,
            rtt_ms,
            loss: share(of(packets.1, self.packets.1), of(packets.0, self.packets.0)),
            repair_share: share(repair, repair + source),
            proactive_share: share(proactive, repair + source),
            cpu: self.cpu.take(),
            messages: self.messages.load(Relaxed),
            wire_bytes: wire.saturating_sub(self.before.0),
            lost_packets: packets.1.saturating_sub(self.before.1),
            blake3: None,
        };
        (self.packets, self.coded) = (packets, coded);
        sent
    }
}

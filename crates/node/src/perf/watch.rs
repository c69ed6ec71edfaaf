//! What the sending side knows of an interval: round trip, losses, repair, bytes on the wire, CPU.

use super::protocol::Sent;
use super::tcp;
use noctule::{FlowStats, Session};
use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};

/// Coded packets: all, of these repair, of these sent before anything was known to be missing.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Coded {
    all: u64,
    repair: u64,
    proactive: u64,
}

impl Coded {
    /// Of a session's flows, those that have ended among them.
    fn of(f: &FlowStats) -> Self {
        Self { all: f.source_packets + f.repair_packets, repair: f.repair_packets, proactive: f.proactive_packets }
    }

    fn since(self, before: Self) -> Self {
        let of = u64::saturating_sub;
        Self { all: of(self.all, before.all), repair: of(self.repair, before.repair), proactive: of(self.proactive, before.proactive) }
    }
}

/// What the tasks that send know and the session's counters do not.
#[derive(Debug, Default)]
pub struct Progress {
    /// Messages offered.
    pub messages: AtomicU64,
    /// Bytes that the streams have taken.
    pub written: AtomicU64,
    /// The time was over before everything had arrived.
    pub is_cut: AtomicBool,
}

/// Takes the sending side's view once per interval.
pub struct Watch {
    session: Session,
    /// Connections of a test over TCP.
    tcp: Vec<OwnedFd>,
    progress: Arc<Progress>,
    cpu: super::end::Cpu,
    /// Sent and lost.
    packets: (u64, u64),
    coded: Coded,
    /// Before the test began: bytes sent, packets sent, packets lost.
    before: (u64, u64, u64),
    coded_before: Coded,
}

/// At most all: packets that are found to be lost in an interval may have left in the one before.
fn share(part: u64, whole: u64) -> f64 {
    if whole == 0 { 0.0 } else { (part as f64 / whole as f64).min(1.0) }
}

impl Watch {
    /// Begins.
    pub fn new(session: Session, tcp: Vec<OwnedFd>, progress: Arc<Progress>) -> Self {
        let cpu = super::end::Cpu::start();
        let mut this = Self {
            session,
            tcp,
            progress,
            cpu,
            packets: (0, 0),
            coded: Coded::default(),
            before: (0, 0, 0),
            coded_before: Coded::default(),
        };
        let first = this.take(0);
        this.before = (first.wire_bytes, first.sent_packets, first.lost_packets);
        this.coded_before = this.coded;
        this
    }

    /// The interval that ends now.
    pub fn take(&mut self, index: u64) -> Sent {
        let stats = self.session.stats();
        let (rtt_ms, packets, wire) = if self.tcp.is_empty() {
            let sum = |f: fn(&noctule::PathStats) -> u64| stats.all_paths().map(f).sum::<u64>();
            let rtt = stats.paths().first().map_or(0.0, |p| p.smoothed_rtt.as_secs_f64() * 1e3);
            (rtt, (sum(|p| p.sent_packets), sum(|p| p.lost_packets)), sum(|p| p.sent_bytes))
        } else {
            let views: Vec<_> = self.tcp.iter().map(tcp::view).collect();
            let rtt = views.iter().map(|v| v.rtt_ms).sum::<f64>() / views.len() as f64;
            (rtt, (views.iter().map(|v| v.segments).sum(), views.iter().map(|v| v.retransmitted).sum()), 0)
        };
        let coded = Coded::of(&stats.flows.sent);
        let step = coded.since(self.coded);
        let total = coded.since(self.coded_before);
        let of = |now: u64, before: u64| now.saturating_sub(before);
        let sent = Sent {
            index,
            rtt_ms,
            loss: share(of(packets.1, self.packets.1), of(packets.0, self.packets.0)),
            repair_share: share(step.repair, step.all),
            proactive_share: share(step.proactive, step.all),
            coded_packets: total.all,
            repair_packets: total.repair,
            proactive_packets: total.proactive,
            sent_packets: of(packets.0, self.before.1),
            cpu: self.cpu.take(),
            messages: self.progress.messages.load(Relaxed),
            wire_bytes: of(wire, self.before.0),
            lost_packets: of(packets.1, self.before.2),
            blake3: None,
            is_cut: self.progress.is_cut.load(Relaxed),
            tcp_cc: self.tcp.first().and_then(tcp::congestion),
        };
        (self.packets, self.coded) = (packets, coded);
        sent
    }
}

//! What the sending side knows of an interval: round trip, losses, repair, bytes on the wire, CPU.

use super::protocol::{DATA_TAG, Sent};
use super::tcp;
use noctule::{FarText, FlowStats, Session};
use std::os::fd::OwnedFd;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, Mutex, PoisonError};

/// Coded packets: all, of these repair, of these sent before anything was known to be missing.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Coded {
    all: u64,
    repair: u64,
    proactive: u64,
}

impl Coded {
    fn add(&mut self, f: &FlowStats) {
        self.all += f.source_packets + f.repair_packets;
        self.repair += f.repair_packets;
        self.proactive += f.proactive_packets;
    }
}

/// What the tasks that send know and the session's counters do not.
#[derive(Debug, Default)]
pub struct Progress {
    /// Messages offered.
    pub messages: AtomicU64,
    /// The time was over before everything had arrived.
    pub is_cut: AtomicBool,
    /// Counts of flows that have ended: the session lists them no more.
    ended: Mutex<Coded>,
}

impl Progress {
    /// A flow has ended with these counts.
    pub fn ended(&self, stats: &FlowStats) {
        self.ended.lock().unwrap_or_else(PoisonError::into_inner).add(stats);
    }
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
}

fn share(part: u64, whole: u64) -> f64 {
    if whole == 0 { 0.0 } else { part as f64 / whole as f64 }
}

impl Watch {
    /// Begins.
    pub fn new(session: Session, tcp: Vec<OwnedFd>, progress: Arc<Progress>) -> Self {
        let cpu = super::end::Cpu::start();
        let mut this = Self { session, tcp, progress, cpu, packets: (0, 0), coded: Coded::default(), before: (0, 0, 0) };
        let first = this.take(0);
        this.before = (first.wire_bytes, first.sent_packets, first.lost_packets);
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
        // Ended flows first: one that ends in between is counted twice for a moment rather than never.
        let mut coded = *self.progress.ended.lock().unwrap_or_else(PoisonError::into_inner);
        for flow in self.session.flow_stats().iter().filter(|f| f.is_sender && f.options.tag == DATA_TAG) {
            coded.add(&flow.stats);
        }
        let of = |now: u64, before: u64| now.saturating_sub(before);
        let all = of(coded.all, self.coded.all);
        let sent = Sent {
            index,
            rtt_ms,
            loss: share(of(packets.1, self.packets.1), of(packets.0, self.packets.0)),
            repair_share: share(of(coded.repair, self.coded.repair), all),
            proactive_share: share(of(coded.proactive, self.coded.proactive), all),
            coded_packets: coded.all,
            repair_packets: coded.repair,
            proactive_packets: coded.proactive,
            sent_packets: of(packets.0, self.before.1),
            cpu: self.cpu.take(),
            messages: self.progress.messages.load(Relaxed),
            wire_bytes: of(wire, self.before.0),
            lost_packets: of(packets.1, self.before.2),
            blake3: None,
            is_cut: self.progress.is_cut.load(Relaxed),
            tcp_cc: self.tcp.first().and_then(tcp::congestion).map(FarText::from),
        };
        (self.packets, self.coded) = (packets, coded);
        sent
    }
}

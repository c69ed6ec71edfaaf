//! Trace events (P22): what a node decides and sees, packet by packet, to find out why a transfer went as it did.
//!
//! Off by default, and then an event costs one comparison. The owner turns it on with [`NodeConfig::trace`](crate::NodeConfig) and drains
//! [`Node::poll_trace`](crate::Node::poll_trace). Events serialise (serde) as records of qlog's JSON text sequences (draft-ietf-quic-qlog-main-schema, RFC 7464),
//! under qlog's names where they mean the same; what QUIC does not have is in the group `noctule`. `docs/guide/traces.md` explains each.

use crate::error::CloseReason;
use crate::far_text::FarText;
use crate::ids::{LinkId, PathId};
use crate::options::{Class, FlowKind, Mode};
use crate::sent::SentItem;
use crate::stats::PathStats;
use crate::units::{Duration, Ecn, Time};
use crate::wire::frame::FlowOpen;
use serde::{Serialize, Serializer};
use std::collections::VecDeque;
use std::sync::{Arc, Mutex, PoisonError};

/// Events that wait to be drained, at most; further ones are dropped and counted.
const MAX_WAITING: usize = 1 << 16;

/// The file that a sequence of these events is (draft-ietf-quic-qlog-main-schema §5), for the header of each that is written.
pub mod file {
    /// `file_schema`.
    pub const SCHEMA: &str = "urn:ietf:params:qlog:file:sequential";
    /// `serialization_format`.
    pub const SERIALIZATION: &str = "application/qlog+json-seq";
    /// `qlog_version`.
    pub const VERSION: &str = "0.3";
    /// `qlog_format`.
    pub const FORMAT: &str = "JSON-SEQ";
    /// `protocol_type`.
    pub const PROTOCOL: &str = "NOCTULE";
    /// RFC 7464 §2.2: each record begins with this byte and ends with a line feed.
    pub const RECORD_SEPARATOR: u8 = 0x1e;
}

/// Something that happened at an instant.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct TraceEvent {
    /// When; in ms after the origin of the node's clock.
    #[serde(serialize_with = "milliseconds_of")]
    pub time: Time,
    /// Which link, as the node names it: qlog's group of events that belong together.
    #[serde(rename = "group_id", serialize_with = "number_of")]
    pub link: LinkId,
    /// What.
    #[serde(flatten)]
    pub what: What,
}

/// What happened. Times are in ms, rates in bit/s, sizes in bytes of UDP payload.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(tag = "name", content = "data")]
#[non_exhaustive]
pub enum What {
    /// A link begins to be made.
    #[serde(rename = "connectivity:connection_started")]
    LinkStarted {
        /// The far address.
        remote: std::net::SocketAddr,
    },
    /// Keys are agreed; the neighbour is authenticated.
    #[serde(rename = "connectivity:connection_state_updated")]
    LinkUp {
        /// Always "up".
        new: &'static str,
        /// The neighbour's key.
        peer: String,
    },
    /// The link is over, or never came up.
    #[serde(rename = "connectivity:connection_closed")]
    LinkDown {
        /// "local" or "remote".
        owner: &'static str,
        /// Name of the code.
        trigger: String,
        /// The application's own code.
        application_code: u64,
        /// In words.
        reason: FarText,
    },
    /// A packet left.
    #[serde(rename = "transport:packet_sent")]
    PacketSent {
        /// Path.
        path: u32,
        /// Its number.
        header: Header,
        /// Its size.
        raw: Raw,
        /// What it carried of which the fate matters: acknowledgements alone have none.
        frames: Vec<TracedFrame>,
        /// It is in flight: counted by the congestion control, and asks for an acknowledgement.
        in_flight: bool,
    },
    /// An authentic packet came.
    #[serde(rename = "transport:packet_received")]
    PacketReceived {
        /// Path.
        path: u32,
        /// Its number.
        header: Header,
        /// Its size.
        raw: Raw,
        /// The ECN field of its IP header.
        ecn: &'static str,
    },
    /// A datagram was not taken.
    #[serde(rename = "transport:packet_dropped")]
    PacketDropped {
        /// Its size.
        raw: Raw,
        /// "decryption_failure", "key_unavailable" or "duplicate".
        trigger: &'static str,
    },
    /// A packet was declared lost.
    #[serde(rename = "recovery:packet_lost")]
    PacketLost {
        /// Path.
        path: u32,
        /// Its number.
        header: Header,
        /// ms since it was sent.
        age: f64,
    },
    /// A packet that had been declared lost was acknowledged.
    #[serde(rename = "noctule:spurious_loss")]
    SpuriousLoss {
        /// Path.
        path: u32,
        /// Its number.
        header: Header,
    },
    /// An acknowledgement came, and these are the estimates after it.
    #[serde(rename = "recovery:metrics_updated")]
    Metrics(Box<Metrics>),
    /// The congestion control changed its state.
    #[serde(rename = "recovery:congestion_state_updated")]
    CongestionState {
        /// Path.
        path: u32,
        /// Before.
        old: &'static str,
        /// Now.
        new: &'static str,
    },
    /// Nothing was heard for a probe time-out.
    #[serde(rename = "noctule:probe_timeout")]
    ProbeTimeout {
        /// Path.
        path: u32,
        /// How many in a row.
        pto_count: u32,
    },
    /// The path takes datagrams of another size.
    #[serde(rename = "recovery:mtu_updated")]
    Mtu {
        /// Path.
        path: u32,
        /// Before.
        old: u16,
        /// Now.
        new: u16,
    },
    /// A path goes to another far address, or (both are the same) comes from another near one.
    #[serde(rename = "connectivity:path_moved")]
    PathMoved {
        /// Path.
        path: u32,
        /// Far address before.
        old: std::net::SocketAddr,
        /// Far address now.
        new: std::net::SocketAddr,
    },
    /// A path beside others begins to carry, falls silent or is heard again.
    #[serde(rename = "connectivity:path_state_updated")]
    PathState {
        /// Path.
        path: u32,
        /// "opening", "open" or "silent".
        old: &'static str,
        /// The same, now.
        new: &'static str,
    },
    /// Another generation of keys (fresh Diffie-Hellman) is in use.
    #[serde(rename = "security:key_updated")]
    KeyUpdated {
        /// Generation, from 0.
        generation: u64,
    },
    /// A flow began.
    #[serde(rename = "noctule:flow_opened")]
    FlowOpened {
        /// The flow's label on this link.
        flow: u64,
        /// "out" or "in".
        direction: &'static str,
        /// Number within its session; 0 is the session's control flow.
        index: u64,
        /// Promise.
        mode: &'static str,
        /// What it carries.
        kind: &'static str,
        /// Scheduling class.
        class: &'static str,
        /// Packets per batch.
        batch_size: u8,
        /// Largest symbol in bytes.
        symbol: u16,
    },
    /// A flow ended, with what it has counted.
    #[serde(rename = "noctule:flow_closed")]
    FlowClosed {
        /// The flow's label on this link.
        flow: u64,
        /// "out" or "in".
        direction: &'static str,
        /// Source packets sent or received.
        source_packets: u64,
        /// Coded repair packets sent or received.
        repair_packets: u64,
        /// Source packets recovered by decoding.
        decoded_packets: u64,
        /// Received packets that brought nothing new.
        redundant_packets: u64,
        /// Messages given up.
        expired_messages: u64,
    },
    /// Lost source packets were recovered by decoding.
    #[serde(rename = "noctule:packets_decoded")]
    Decoded {
        /// The flow's label on this link.
        flow: u64,
        /// How many.
        packets: u64,
    },
    /// Events were dropped because nobody drained them.
    #[serde(rename = "noctule:events_dropped")]
    EventsDropped {
        /// How many.
        count: u64,
    },
}

/// Of a packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct Header {
    /// Number within the path and direction.
    pub packet_number: u64,
}

/// Of a packet as it travels.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct Raw {
    /// Bytes of UDP payload.
    pub length: u64,
}

/// Estimates of a path.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Metrics {
    /// Path.
    pub path: u32,
    /// ms.
    pub latest_rtt: f64,
    /// ms.
    pub smoothed_rtt: f64,
    /// ms.
    pub min_rtt: f64,
    /// ms, mean deviation.
    pub rtt_variance: f64,
    /// Bytes that may be in flight.
    pub congestion_window: u64,
    /// Bytes.
    pub bytes_in_flight: u64,
    /// bit/s.
    pub pacing_rate: u64,
    /// bit/s.
    pub delivery_rate: u64,
    /// bit/s; the controller's estimate, 0 if it has none.
    pub capacity: u64,
    /// Share of packets lost of late.
    pub loss: f64,
    /// Share of losses that the controller does not take for congestion.
    pub base_loss: f64,
}

/// Something that a packet carried.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(tag = "frame_type", rename_all = "snake_case")]
pub enum TracedFrame {
    /// A source packet, uncoded.
    Source {
        /// Flow.
        flow: u64,
        /// Its number.
        seq: u64,
    },
    /// A combination.
    Repair {
        /// Flow.
        flow: u64,
        /// First packet of the span.
        base: u64,
        /// Packets of the span.
        n: u8,
    },
    /// One of two halves of a coded packet.
    Fragment {
        /// Number of the cut packet.
        id: u64,
        /// 0 or 1.
        index: u8,
    },
    /// Acknowledgement.
    Ack,
    /// Asks for an acknowledgement.
    Ping,
    /// A probe of the path MTU.
    MtuProbe {
        /// Bytes of UDP payload.
        size: u16,
    },
    /// A step of a fresh Diffie-Hellman.
    Rekey,
    /// About a flow: its opening, end, skip, refusal, credit, rank.
    FlowControl {
        /// Flow.
        flow: u64,
        /// Which frame.
        frame: &'static str,
    },
    /// Connection ids.
    ConnectionId,
}

impl TracedFrame {
    fn of(item: &SentItem) -> Self {
        let control = |flow: crate::ids::FlowLabel, frame| Self::FlowControl { flow: flow.0, frame };
        match *item {
            SentItem::Coded { flow, base, index: Some(index), .. } => Self::Source { flow: flow.0, seq: base.0 + u64::from(index) },
            SentItem::Coded { flow, base, n, index: None, .. } => Self::Repair { flow: flow.0, base: base.0, n },
            SentItem::FlowOpen(flow) => control(flow, "flow_open"),
            SentItem::FlowEnd(flow) => control(flow, "flow_end"),
            SentItem::FlowSkip { flow, .. } => control(flow, "flow_skip"),
            SentItem::FlowReset(flow) => control(flow, "flow_reset"),
            SentItem::FlowStop(flow) => control(flow, "flow_stop"),
            SentItem::FlowRefused { flow, .. } => control(flow, "flow_refused"),
            SentItem::Credit { flow, .. } | SentItem::FlowDone { flow, .. } => control(flow, "credit"),
            SentItem::Rank { flow, .. } => control(flow, "rank"),
            SentItem::Ack { .. } => Self::Ack,
            SentItem::NewConnectionId(_) | SentItem::RetireConnectionId(_) => Self::ConnectionId,
            SentItem::Rekey => Self::Rekey,
            SentItem::Half { id, index } => Self::Fragment { id, index },
            SentItem::MtuProbe(size) => Self::MtuProbe { size },
            SentItem::Ping => Self::Ping,
        }
    }
}

impl What {
    /// A packet left.
    pub(crate) fn sent(path: PathId, number: u64, bytes: u16, items: &[SentItem], in_flight: bool) -> Self {
        Self::PacketSent {
            path: path.0,
            header: Header { packet_number: number },
            raw: Raw { length: bytes.into() },
            frames: items.iter().map(TracedFrame::of).collect(),
            in_flight,
        }
    }

    /// A packet came.
    pub(crate) fn received(path: PathId, number: u64, bytes: u16, ecn: Ecn) -> Self {
        let ecn = match ecn {
            Ecn::NotEct => "Not-ECT",
            Ecn::Ect0 => "ECT(0)",
            Ecn::Ect1 => "ECT(1)",
            Ecn::Ce => "CE",
        };
        Self::PacketReceived { path: path.0, header: Header { packet_number: number }, raw: Raw { length: bytes.into() }, ecn }
    }

    /// A datagram was not taken.
    pub(crate) fn dropped(bytes: usize, trigger: &'static str) -> Self {
        Self::PacketDropped { raw: Raw { length: bytes as u64 }, trigger }
    }

    /// The end of a link.
    pub(crate) fn down(reason: &CloseReason) -> Self {
        Self::LinkDown {
            owner: if reason.is_remote { "remote" } else { "local" },
            trigger: format!("{:?}", reason.code),
            application_code: reason.application,
            reason: reason.reason.clone(),
        }
    }

    /// A flow began.
    pub(crate) fn opened(open: &FlowOpen, direction: &'static str) -> Self {
        Self::FlowOpened {
            flow: open.label.0,
            direction,
            index: open.index,
            mode: match open.mode {
                Mode::Brtp => "brtp",
                Mode::Btp => "btp",
                Mode::Transparent => "transparent",
            },
            kind: match open.kind {
                FlowKind::OrderedMessages => "ordered_messages",
                FlowKind::UnorderedMessages => "unordered_messages",
                FlowKind::Stream => "stream",
            },
            class: match open.class {
                Class::Latency => "latency",
                Class::Bulk => "bulk",
            },
            batch_size: open.batch_size,
            symbol: open.symbol,
        }
    }

    /// A flow ended.
    pub(crate) fn closed(flow: u64, direction: &'static str, stats: &crate::stats::FlowStats) -> Self {
        Self::FlowClosed {
            flow,
            direction,
            source_packets: stats.source_packets,
            repair_packets: stats.repair_packets,
            decoded_packets: stats.decoded_packets,
            redundant_packets: stats.redundant_packets,
            expired_messages: stats.expired_messages,
        }
    }
}

impl Metrics {
    pub(crate) fn of(stats: &PathStats) -> Self {
        let bits = |rate: crate::units::Bandwidth| (rate.bytes_per_sec() * 8.0) as u64;
        Self {
            path: stats.path.0,
            latest_rtt: milliseconds(stats.latest_rtt),
            smoothed_rtt: milliseconds(stats.smoothed_rtt),
            min_rtt: milliseconds(stats.min_rtt),
            rtt_variance: milliseconds(stats.rtt_var),
            congestion_window: stats.control.cwnd,
            bytes_in_flight: stats.in_flight,
            pacing_rate: bits(stats.control.pacing_rate),
            delivery_rate: bits(stats.delivery_rate),
            capacity: bits(stats.control.capacity),
            loss: stats.loss.get(),
            base_loss: stats.control.base_loss,
        }
    }
}

/// In ms.
pub(crate) fn milliseconds(d: Duration) -> f64 {
    (d.as_secs_f64() * 1e6).round() * 1e-3
}

fn milliseconds_of<S: Serializer>(time: &Time, serializer: S) -> Result<S::Ok, S::Error> {
    serializer.serialize_f64(time.as_nanos() as f64 * 1e-6)
}

fn number_of<S: Serializer>(link: &LinkId, serializer: S) -> Result<S::Ok, S::Error> {
    serializer.serialize_u64(link.0)
}

#[derive(Debug, Default)]
struct Log {
    /// Of the last event.
    latest: Time,
    events: VecDeque<TraceEvent>,
    dropped: u64,
}

/// Where events go; every machine that has some holds one. Equal to another if both are off or both write into the same log.
#[derive(Clone, Debug)]
pub struct Tracer {
    link: LinkId,
    /// The lock is never contended: a node is called by one thread at a time. It only lets the machines share the log.
    log: Option<Arc<Mutex<Log>>>,
}

impl Default for Tracer {
    fn default() -> Self {
        Self { link: LinkId(0), log: None }
    }
}

impl PartialEq for Tracer {
    fn eq(&self, other: &Self) -> bool {
        match (&self.log, &other.log) {
            (None, None) => true,
            (Some(a), Some(b)) => Arc::ptr_eq(a, b) && self.link == other.link,
            _ => false,
        }
    }
}

impl Tracer {
    /// Off, or with a log of its own.
    pub(crate) fn new(is_on: bool) -> Self {
        Self { link: LinkId(0), log: is_on.then(Arc::default) }
    }

    /// The same log, for what happens on `link`.
    pub(crate) fn of(&self, link: LinkId) -> Self {
        Self { link, log: self.log.clone() }
    }

    /// Events are wanted.
    pub(crate) fn is_on(&self) -> bool {
        self.log.is_some()
    }

    /// Notes an event, which is made only if it is wanted.
    #[inline]
    pub(crate) fn emit(&self, time: Time, what: impl FnOnce() -> What) {
        if let Some(log) = &self.log {
            let mut log = log.lock().unwrap_or_else(PoisonError::into_inner);
            log.latest = time;
            if log.events.len() >= MAX_WAITING {
                log.dropped += 1;
                return;
            }
            if log.dropped > 0 {
                let count = core::mem::take(&mut log.dropped);
                log.events.push_back(TraceEvent { time, link: self.link, what: What::EventsDropped { count } });
            }
            log.events.push_back(TraceEvent { time, link: self.link, what: what() });
        }
    }

    /// Notes what the event before brought about, where nobody has a clock at hand.
    pub(crate) fn emit_also(&self, what: impl FnOnce() -> What) {
        if let Some(log) = &self.log {
            let time = log.lock().unwrap_or_else(PoisonError::into_inner).latest;
            self.emit(time, what);
        }
    }

    /// The next event.
    pub(crate) fn poll(&self) -> Option<TraceEvent> {
        self.log.as_ref()?.lock().unwrap_or_else(PoisonError::into_inner).events.pop_front()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn events_have_the_form_of_qlog() {
        let tracer = Tracer::new(true).of(LinkId(3));
        let items = [SentItem::Coded { flow: crate::ids::FlowLabel(1), base: crate::ids::Seq(16), n: 4, from: 0, index: Some(2) }];
        tracer.emit(Time::from_micros(1_500), || What::sent(PathId(0), 7, 1200, &items, true));
        let text = serde_json::to_string(&tracer.poll().unwrap()).unwrap();
        assert_eq!(
            text,
            r#"{"time":1.5,"group_id":3,"name":"transport:packet_sent","data":{"path":0,"header":{"packet_number":7},"raw":{"length":1200},"frames":[{"frame_type":"source","flow":1,"seq":18}],"in_flight":true}}"#
        );
        assert_eq!(tracer.poll(), None);
    }

    #[test]
    fn what_is_not_drained_is_dropped_and_counted() {
        let tracer = Tracer::new(true);
        let event = || What::ProbeTimeout { path: 0, pto_count: 1 };
        for _ in 0..MAX_WAITING + 5 {
            tracer.emit(Time::ZERO, event);
        }
        assert!(core::iter::from_fn(|| tracer.poll()).all(|e| e.what == event()));
        tracer.emit(Time::ZERO, event);
        assert_eq!(tracer.poll().map(|e| e.what), Some(What::EventsDropped { count: 5 }));
        assert_eq!(tracer.poll().map(|e| e.what), Some(event()));
    }

    #[test]
    fn nothing_is_made_when_no_reader_listens() {
        Tracer::default().emit(Time::ZERO, || panic!("made for nobody"));
    }
}

//! Writes the report as JSON. Fields have iperf3's names where they mean the same, and all that its Python parser asks for is there, besides noctule's own.

use super::super::protocol::{Direction, Mode, Request};
use super::leg::{Interval, Sums};
use noctule::RouteStats;
use serde_json::{Value, json};
use std::net::SocketAddr;
use std::time::{SystemTime, UNIX_EPOCH};

/// What is known before the first interval.
pub struct Start<'a> {
    pub request: &'a Request,
    pub remote: &'a str,
    pub local: Option<SocketAddr>,
    pub cc: &'a str,
    pub started: SystemTime,
    /// Seconds at the beginning that are not counted.
    pub omit: f64,
}

fn host_and_port(address: &str) -> (&str, Option<u16>) {
    let (host, port) = address.rsplit_once(':').unwrap_or((address, ""));
    (host.trim_matches(['[', ']']), port.parse().ok())
}

/// iperf3 knows byte streams and datagrams only.
fn iperf3_protocol(request: &Request) -> &'static str {
    if request.length.is_some() { "UDP" } else { "TCP" }
}

impl Start<'_> {
    pub fn json(&self) -> Value {
        let request = self.request;
        let since = self.started.duration_since(UNIX_EPOCH).unwrap_or_default();
        let (host, port) = host_and_port(self.remote);
        let (local_host, local_port) = self.local.map_or((String::new(), 0), |a| (a.ip().to_canonical().to_string(), a.port()));
        let connected: Vec<_> = (1..=request.parallel)
            .map(|socket| {
                json!({"socket": socket, "local_host": local_host, "local_port": local_port, "remote_host": host, "remote_port": port})
            })
            .collect();
        json!({
            "version": format!("noctule {}", env!("CARGO_PKG_VERSION")),
            "system_info": system(),
            "remote": self.remote,
            "connecting_to": {"host": host, "port": port},
            "connected": connected,
            "timestamp": {
                "time": humantime::format_rfc3339_millis(self.started).to_string(), "timesecs": since.as_secs(), "timemillis": since.as_millis() as u64,
            },
            "mode": request.mode.name(),
            "cc": self.cc,
            "test_start": {
                "protocol": iperf3_protocol(request), "num_streams": request.parallel, "blksize": request.length.unwrap_or(super::super::pattern::MAX_PIECE),
                "omit": self.omit, "duration": request.seconds, "bytes": request.bytes.unwrap_or(0), "blocks": 0,
                "reverse": u8::from(request.direction == Direction::Reverse), "bidir": u8::from(request.direction == Direction::Both),
                "target_bitrate": request.rate.unwrap_or(0.0), "interval": request.interval, "lifetime_ms": request.lifetime_ms,
            },
        })
    }
}

/// As `uname -srm` prints it, where the system says.
fn system() -> String {
    let name = rustix::system::uname();
    [name.sysname(), name.nodename(), name.release(), name.machine()].map(|s| s.to_string_lossy().into_owned()).join(" ")
}

fn of_messages(request: &Request, value: Value) -> Value {
    if request.length.is_some() { value } else { Value::Null }
}

/// An interval: its sum, and its flows.
pub fn interval(request: &Request, i: &Interval) -> (Value, Value) {
    let (r, s, seconds) = (&i.received, &i.sent, i.seconds());
    let bits = |bytes: u64| bytes as f64 * 8.0 / seconds;
    let expected = i.expected_messages();
    let lost_percent = if expected > 0 { r.lost_messages as f64 * 100.0 / expected as f64 } else { 0.0 };
    let sum = json!({
        "start": r.start, "end": r.end, "seconds": seconds, "bytes": r.bytes, "bits_per_second": bits(r.bytes), "goodput_mbit": bits(r.bytes) * 1e-6,
        "messages": r.messages, "rtt_ms": s.rtt_ms, "loss": i.loss(request.mode), "repair_share": s.repair_share, "proactive_share": s.proactive_share,
        "jitter_ms": of_messages(request, json!(r.jitter_ms)), "lost_packets": of_messages(request, json!(r.lost_messages)),
        "packets": of_messages(request, json!(expected)), "lost_percent": of_messages(request, json!(lost_percent)),
        "cpu": {"sender": s.cpu, "receiver": r.cpu}, "cpu_seconds_per_gbit": i.cpu_per_gbit(), "omitted": i.is_omitted, "sender": false,
    });
    let streams = r.flows.iter().enumerate().map(|(flow, bytes)| {
        json!({
            "socket": flow + 1, "start": r.start, "end": r.end, "seconds": seconds, "bytes": bytes, "bits_per_second": bits(*bytes),
            "omitted": i.is_omitted, "sender": false,
        })
    });
    (sum, streams.collect())
}

/// The end of a direction.
pub fn end(request: &Request, s: &Sums) -> Value {
    let bits = s.bits_per_second();
    let stream = |socket: usize, bytes: u64| {
        let rate = bytes as f64 * 8.0 / s.seconds.max(1e-9);
        json!({"socket": socket + 1, "start": 0, "end": s.seconds, "seconds": s.seconds, "bytes": bytes, "bits_per_second": rate})
    };
    let streams: Vec<_> = (s.flows.iter().enumerate())
        .map(|(i, bytes)| match request.length {
            Some(_) => json!({"udp": stream(i, *bytes)}),
            None => json!({"sender": stream(i, *bytes), "receiver": stream(i, *bytes)}),
        })
        .collect();
    let sent_bytes = request.length.map_or(s.bytes, |l| s.messages_sent * l as u64);
    let received = json!({
        "start": 0, "end": s.seconds, "seconds": s.seconds, "bytes": s.bytes, "bits_per_second": bits, "sender": false,
        "jitter_ms": of_messages(request, json!(s.jitter_ms)), "lost_packets": of_messages(request, json!(s.messages_lost)),
        "packets": of_messages(request, json!(s.messages_sent)), "lost_percent": of_messages(request, json!(s.residual_loss() * 100.0)),
        "out_of_order": of_messages(request, json!(s.out_of_order)),
    });
    let (host, remote) = match request.direction {
        Direction::Reverse => (s.receiver_cpu, s.sender_cpu),
        Direction::Forward | Direction::Both => (s.sender_cpu, s.receiver_cpu),
    };
    json!({
        "seconds": s.seconds, "bytes": s.bytes, "bits_per_second": bits, "goodput_mbit": bits * 1e-6, "bytes_wrong": s.bytes_wrong,
        "messages_sent": s.messages_sent, "messages_received": s.messages_received, "residual_loss": s.residual_loss(),
        "wire_bytes": s.wire_bytes, "wire_per_byte": s.wire_per_byte(), "rtt_ms": s.rtt_ms,
        "loss": if request.mode == Mode::Transparent { s.residual_loss() } else { s.loss },
        "repair_share": s.repair_share, "proactive_share": s.proactive_share, "is_cut": s.is_cut,
        "cpu": {"sender": s.sender_cpu, "receiver": s.receiver_cpu}, "cpu_seconds_per_gbit": s.cpu_per_gbit(),
        "memory_peak_bytes": s.memory_peak_bytes, "blake3": s.hashes.1,
        "streams": streams,
        "sum": received,
        "sum_sent": {
            "start": 0, "end": s.seconds, "seconds": s.seconds, "sender": true, "bytes": sent_bytes,
            "bits_per_second": sent_bytes as f64 * 8.0 / s.seconds.max(1e-9), "packets": of_messages(request, json!(s.messages_sent)),
            "retransmits": if request.mode == Mode::Tcp { json!(s.lost_packets) } else { Value::Null },
        },
        "sum_received": received,
        "cpu_utilization_percent": {
            "host_total": 100.0 * host, "host_user": Value::Null, "host_system": Value::Null,
            "remote_total": 100.0 * remote, "remote_user": Value::Null, "remote_system": Value::Null,
        },
    })
}

/// Counts of one of several routes: what was sent and received by it, as the ends know it.
pub fn route(name: &str, r: &RouteStats) -> Value {
    json!({
        "via": name, "sent_packets": r.sent_packets, "sent_bytes": r.sent_bytes,
        "received_packets": r.received_packets, "received_bytes": r.received_bytes,
    })
}

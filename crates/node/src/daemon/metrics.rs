//! Prometheus: the report in its text format over HTTP, on loopback unless the file says otherwise.

use super::Daemon;
use super::places::Places;
use super::status::{FlowCounts, OneWayRelayReport, OneWayReport, OneWaySenderReport, OneWayToReport, Report};
use crate::failure::Failure;
use noctule_proto::far_text::escaped;
use std::fmt::Write;
use std::io;
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;
use std::time::Duration;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};

/// Who connects and asks nothing is not waited for.
const PATIENCE: Duration = Duration::from_secs(5);
/// Requests at a time; the oldest gives way.
const MAX_REQUESTS: usize = 8;
/// Longest request.
const MAX_REQUEST: usize = 8192;

/// Binds the port.
///
/// # Errors
/// It is taken or not permitted.
pub async fn listen(at: SocketAddr) -> Result<TcpListener, Failure> {
    TcpListener::bind(at).await.map_err(|e| Failure::Listen(format!("metrics on {at}: {e}; choose another address with [metrics] listen")))
}

/// Answers for ever.
pub async fn serve(listener: TcpListener, daemon: Arc<Daemon>) {
    let mut places = Places::new(MAX_REQUESTS, PATIENCE);
    loop {
        match listener.accept().await {
            Ok((stream, _)) => {
                let daemon = Arc::clone(&daemon);
                places.begin(async move {
                    let names = daemon.config().metrics.as_ref().map(|m| m.names.clone()).unwrap_or_default();
                    // A client that hangs up is no loss.
                    let _ = answer(stream, &names, || text(&daemon.report())).await;
                });
            }
            Err(error) => {
                tracing::warn!(%error, "the metrics port");
                tokio::time::sleep(PATIENCE).await;
            }
        }
    }
}

async fn answer(mut stream: TcpStream, names: &[String], text: impl Fn() -> String) -> io::Result<()> {
    let mut request = Vec::new();
    while !request.windows(4).any(|w| w == b"\r\n\r\n") && request.len() < MAX_REQUEST {
        let mut part = [0; 1024];
        match stream.read(&mut part).await? {
            0 => break,
            n => request.extend_from_slice(&part[..n]),
        }
    }
    let line = request.split(|b| *b == b'\r').next().unwrap_or_default();
    let target = line.split(|b| *b == b' ').nth(1).unwrap_or_default();
    let (status, body) = match (line.starts_with(b"GET "), target) {
        _ if !is_meant(&request, names) => {
            ("421 Misdirected Request", "ask by address, as localhost, or by a name in [metrics] names\n".to_owned())
        }
        (true, b"/metrics") => ("200 OK", text()),
        (true, _) => ("404 Not Found", "the metrics are at /metrics\n".to_owned()),
        (false, _) => ("405 Method Not Allowed", "only GET\n".to_owned()),
    };
    let head = format!(
        "HTTP/1.1 {status}\r\nContent-Type: text/plain; version=0.0.4\r\nContent-Length: {}\r\nConnection: close\r\n\r\n",
        body.len()
    );
    stream.write_all(head.as_bytes()).await?;
    stream.write_all(body.as_bytes()).await
}

/// A page of somebody else's whose name suddenly leads to this host (DNS rebinding) would read the metrics through a browser here. Its requests name
/// the page's host: only an address, localhost, and what the file names are served. A request of HTTP/1.0 may name none; a browser's always does.
fn is_meant(request: &[u8], names: &[String]) -> bool {
    let text = String::from_utf8_lossy(request);
    let mut hosts = text.split("\r\n").skip(1).take_while(|line| !line.is_empty()).filter_map(|line| {
        let (name, value) = line.split_once(':')?;
        name.trim().eq_ignore_ascii_case("host").then(|| value.trim())
    });
    let Some(host) = hosts.next() else { return !text.contains(" HTTP/1.1\r\n") };
    let name = match host.rsplit_once(':') {
        Some((name, port)) if port.bytes().all(|b| b.is_ascii_digit()) => name,
        _ => host,
    };
    let is_address = name.strip_prefix('[').and_then(|n| n.strip_suffix(']')).unwrap_or(name).parse::<IpAddr>().is_ok();
    hosts.next().is_none() && (is_address || name.eq_ignore_ascii_case("localhost") || names.iter().any(|n| n.eq_ignore_ascii_case(name)))
}

/// Samples of one metric.
struct Metric<'a> {
    out: &'a mut String,
    name: &'static str,
}

impl<'a> Metric<'a> {
    fn new(out: &'a mut String, name: &'static str, kind: &str, help: &str) -> Self {
        // Writing to a String cannot fail.
        let _ = write!(out, "# HELP noctule_{name} {help}\n# TYPE noctule_{name} {kind}\n");
        Self { out, name }
    }

    fn sample(&mut self, labels: &[(&str, &str)], value: f64) {
        let _ = write!(self.out, "noctule_{}", self.name);
        for (i, (key, text)) in labels.iter().enumerate() {
            let text = escaped(text).to_string().replace('\\', "\\\\").replace('"', "\\\"");
            let _ = write!(self.out, "{}{key}=\"{text}\"", if i == 0 { '{' } else { ',' });
        }
        let _ = writeln!(self.out, "{} {value}", if labels.is_empty() { "" } else { "}" });
    }
}

/// The report in Prometheus's text format.
fn text(report: &Report) -> String {
    let mut out = String::new();
    Metric::new(&mut out, "uptime_seconds", "gauge", "Time since the node started.").sample(&[], report.uptime);
    let mut m = Metric::new(&mut out, "memory_bytes", "gauge", "Memory of flows and sessions: held now, highest so far, bound.");
    m.sample(&[("what", "used")], report.memory.used as f64);
    m.sample(&[("what", "peak")], report.memory.peak as f64);
    m.sample(&[("what", "limit")], report.memory.limit as f64);
    let mut m = Metric::new(
        &mut out,
        "refused_total",
        "counter",
        "What the node refused or survived: packets, handshakes, flows, sessions, links.",
    );
    for (what, count) in report.refused.iter().filter(|(what, _)| *what != "half_open") {
        m.sample(&[("what", what)], *count as f64);
    }
    let half_open = report.refused.get("half_open").copied().unwrap_or(0);
    Metric::new(&mut out, "half_open_links", "gauge", "Links that were answered and not confirmed.").sample(&[], half_open as f64);
    let mut m = Metric::new(&mut out, "link_up", "gauge", "The link to a neighbour is up.");
    for n in report.nodes.iter().filter(|n| n.is_neighbour) {
        m.sample(&[("node", &n.name)], f64::from(u8::from(n.link.is_some())));
    }
    let mut m = Metric::new(
        &mut out,
        "link_polluted_packets_total",
        "counter",
        "Packets of sealed flows that came by the link to a neighbour and were altered there or behind it.",
    );
    for (n, link) in report.nodes.iter().filter_map(|n| Some((n, n.link.as_ref()?))) {
        m.sample(&[("node", &n.name)], link.polluted as f64);
    }
    let mut m = Metric::new(&mut out, "session_up", "gauge", "There is a session with a node, direct or relayed.");
    for n in &report.nodes {
        m.sample(&[("node", &n.name)], f64::from(u8::from(n.session.is_some())));
    }
    type OfPath = fn(&super::status::PathReport) -> f64;
    let of_paths: [(&str, &str, &str, OfPath); 11] = [
        ("path_rtt_seconds", "gauge", "Smoothed round-trip time.", |p| p.rtt / 1e3),
        ("path_loss_ratio", "gauge", "Loss rate of what this node sends.", |p| p.loss),
        ("path_delivery_bits_per_second", "gauge", "Delivery rate.", |p| p.delivery_rate),
        ("path_in_flight_bytes", "gauge", "Bytes in flight.", |p| p.in_flight as f64),
        ("path_mtu_bytes", "gauge", "Largest UDP payload known to pass.", |p| f64::from(p.mtu)),
        ("path_sent_packets_total", "counter", "Datagrams sent.", |p| p.sent_packets as f64),
        ("path_sent_bytes_total", "counter", "Bytes of UDP payload sent.", |p| p.sent_bytes as f64),
        ("path_received_packets_total", "counter", "Datagrams received and authenticated.", |p| p.received_packets as f64),
        ("path_received_bytes_total", "counter", "Bytes of UDP payload received and authenticated.", |p| p.received_bytes as f64),
        ("path_lost_packets_total", "counter", "Packets declared lost.", |p| p.lost_packets as f64),
        ("path_ce_packets_total", "counter", "Packets reported as marked.", |p| p.ce_packets as f64),
    ];
    for (name, kind, help, value) in of_paths {
        let mut m = Metric::new(&mut out, name, kind, help);
        for n in &report.nodes {
            for p in n.link.iter().flat_map(|l| &l.paths) {
                m.sample(&[("node", &n.name), ("path", &p.path.to_string()), ("remote", &p.remote)], value(p));
            }
        }
    }
    type OfFlows = fn(&FlowCounts) -> f64;
    let of_flows: [(&str, &str, OfFlows); 5] = [
        ("link_source_packets_total", "Source packets sent uncoded for the first time, or received or recovered.", |f| {
            f.source_packets as f64
        }),
        ("link_repair_packets_total", "Coded packets sent or received.", |f| f.repair_packets as f64),
        ("link_decoded_packets_total", "Source packets recovered by decoding.", |f| f.decoded_packets as f64),
        ("link_redundant_packets_total", "Coded packets that brought nothing new.", |f| f.redundant_packets as f64),
        ("link_expired_messages_total", "Messages whose lifetime ended.", |f| f.expired_messages as f64),
    ];
    for (name, help, value) in of_flows {
        let mut m = Metric::new(&mut out, name, "counter", help);
        for n in &report.nodes {
            if let Some(link) = &n.link {
                m.sample(&[("node", &n.name), ("direction", "sent")], value(&link.flows.sent));
                m.sample(&[("node", &n.name), ("direction", "received")], value(&link.flows.received));
            }
        }
    }
    let mut m = Metric::new(&mut out, "routes", "gauge", "Routes, by origin and whether their neighbour's link is up.");
    for origin in ["neighbour", "file", "kernel"] {
        for usable in [true, false] {
            let count = report.routes.iter().filter(|r| r.origin == origin && r.usable == usable).count();
            m.sample(&[("origin", origin), ("usable", if usable { "yes" } else { "no" })], count as f64);
        }
    }
    Metric::new(&mut out, "trees", "gauge", "Objects that pass on their way to several receivers.").sample(&[], report.trees.len() as f64);
    Metric::new(&mut out, "relayed_flows", "gauge", "Flows of others that pass, one direction each.")
        .sample(&[], report.relayed.len() as f64);
    one_way(&mut out, &report.one_way);
    if let Some(tunnel) = &report.tunnel {
        type OfNode = fn(&super::status::TunnelNodeReport) -> f64;
        let of_nodes: [(&str, &str, &str, OfNode); 7] = [
            ("tunnel_flows", "gauge", "Flows into the tunnel.", |t| t.flows.len() as f64),
            ("tunnel_sent_packets_total", "counter", "Packets handed to the transport.", |t| t.sent_packets as f64),
            ("tunnel_sent_bytes_total", "counter", "Bytes handed to the transport.", |t| t.sent_bytes as f64),
            ("tunnel_received_packets_total", "counter", "Packets given to the device.", |t| t.received_packets as f64),
            ("tunnel_received_bytes_total", "counter", "Bytes given to the device.", |t| t.received_bytes as f64),
            ("tunnel_marked_packets_total", "counter", "Packets marked by CoDel.", |t| t.marked as f64),
            ("tunnel_dropped_packets_total", "counter", "Packets dropped by CoDel or full queues.", |t| t.dropped as f64),
        ];
        for (name, kind, help, value) in of_nodes {
            let mut m = Metric::new(&mut out, name, kind, help);
            for (node, t) in &tunnel.nodes {
                m.sample(&[("node", node)], value(t));
            }
        }
        let mut m = Metric::new(&mut out, "tunnel_refused_packets_total", "counter", "Packets that reached no flow, by reason.");
        m.sample(&[("reason", "unreachable")], tunnel.unreachable as f64);
        m.sample(&[("reason", "too_big")], tunnel.too_big as f64);
        m.sample(&[("reason", "malformed")], tunnel.malformed as f64);
        m.sample(&[("reason", "foreign_source")], tunnel.nodes.values().map(|t| t.received_refused).sum::<u64>() as f64);
    }
    out
}

/// Streams over links that bring nothing back.
fn one_way(out: &mut String, report: &OneWayReport) {
    type OfTo = fn(&OneWayToReport) -> u64;
    let of_to: [(&str, &str, OfTo); 6] = [
        ("one_way_to_packets_total", "Packets of the tunnel that a stream to another node took.", |t| t.packets),
        ("one_way_to_dropped_packets_total", "Packets of the tunnel for which there was no room.", |t| t.dropped),
        ("one_way_to_blocks_total", "Blocks sent.", |t| t.blocks),
        ("one_way_to_datagrams_total", "Datagrams sent, announcements not counted.", |t| t.sent_datagrams),
        ("one_way_to_bytes_total", "Bytes of UDP payload sent, announcements not counted.", |t| t.sent_bytes),
        ("one_way_to_send_errors_total", "Datagrams that the system did not take.", |t| t.send_errors),
    ];
    for (name, help, value) in of_to {
        let mut m = Metric::new(out, name, "counter", help);
        for to in &report.to {
            m.sample(&[("node", &to.name)], value(to) as f64);
        }
    }
    type OfSender = fn(&OneWaySenderReport) -> u64;
    let of_senders: [(&str, &str, OfSender); 9] = [
        ("one_way_from_packets_total", "Packets that arrived.", |s| s.packets),
        ("one_way_from_recovered_packets_total", "Packets that had to be recovered.", |s| s.recovered),
        ("one_way_from_lost_packets_total", "Packets that were lost for good, as far as the sender has said.", |s| s.lost),
        ("one_way_from_blocks_total", "Blocks that became whole.", |s| s.blocks),
        ("one_way_from_given_up_blocks_total", "Blocks that were given up.", |s| s.given_up),
        ("one_way_from_datagrams_total", "Datagrams of the node's streams.", |s| s.datagrams),
        ("one_way_from_polluted_datagrams_total", "Datagrams that were altered or invented on the way.", |s| s.polluted),
        ("one_way_from_over_datagrams_total", "Datagrams of blocks that lie behind: late, or played again.", |s| s.over),
        ("one_way_from_streams_total", "Streams that the node announced.", |s| s.streams),
    ];
    for (name, help, value) in of_senders {
        let mut m = Metric::new(out, name, "counter", help);
        for (from, sender) in report.from.iter().flat_map(|f| f.senders.iter().map(move |s| (f, s))) {
            m.sample(&[("node", &sender.name), ("listen", &from.listen)], value(sender) as f64);
        }
    }
    let mut m = Metric::new(out, "one_way_heard_seconds", "gauge", "Time since something of a node came that checked.");
    for (from, sender) in report.from.iter().flat_map(|f| f.senders.iter().map(move |s| (f, s))) {
        if let Some(heard) = sender.heard {
            m.sample(&[("node", &sender.name), ("listen", &from.listen)], heard);
        }
    }
    let mut m = Metric::new(out, "one_way_ignored_datagrams_total", "counter", "Datagrams that were no use where streams come, by reason.");
    for from in &report.from {
        for (reason, count) in &from.ignored {
            m.sample(&[("listen", &from.listen), ("reason", reason)], *count as f64);
        }
    }
    type OfRelay = fn(&OneWayRelayReport) -> u64;
    let of_relays: [(&str, &str, OfRelay); 7] = [
        ("one_way_relay_received_datagrams_total", "Datagrams that came.", |r| r.received_datagrams),
        ("one_way_relay_passed_packets_total", "Packets passed on as they came.", |r| r.passed),
        ("one_way_relay_recoded_packets_total", "Packets combined here.", |r| r.recoded),
        ("one_way_relay_dropped_packets_total", "Packets for which there was no room.", |r| r.dropped),
        ("one_way_relay_refused_datagrams_total", "Datagrams that may not pass.", |r| r.refused),
        ("one_way_relay_sent_datagrams_total", "Datagrams that went on.", |r| r.sent_datagrams),
        ("one_way_relay_sent_bytes_total", "Bytes of UDP payload that went on.", |r| r.sent_bytes),
    ];
    for (name, help, value) in of_relays {
        let mut m = Metric::new(out, name, "counter", help);
        for relay in &report.relays {
            m.sample(&[("listen", &relay.listen), ("endpoint", &relay.endpoint)], value(relay) as f64);
        }
    }
    let mut m = Metric::new(out, "one_way_relay_batches_total", "counter", "Batches by the rank that came.");
    for relay in &report.relays {
        for (rank, count) in relay.ranks.iter().enumerate().filter(|(_, count)| **count > 0) {
            m.sample(&[("listen", &relay.listen), ("rank", &rank.to_string())], *count as f64);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn labels_are_escaped_and_samples_stand_under_their_metric() {
        let mut out = String::new();
        let mut m = Metric::new(&mut out, "x", "gauge", "Help.");
        m.sample(&[], 1.5);
        m.sample(&[("node", "a\"b\\c"), ("k", "v")], 2.0);
        assert_eq!(out, "# HELP noctule_x Help.\n# TYPE noctule_x gauge\nnoctule_x 1.5\nnoctule_x{node=\"a\\\"b\\\\c\",k=\"v\"} 2\n");
    }

    #[test]
    fn only_requests_that_name_this_host_are_served() {
        let names = ["Node1.example".to_owned()];
        let meant = |head: &str| is_meant(format!("GET /metrics {head}\r\n\r\n").as_bytes(), &names);
        for host in ["127.0.0.1:9494", "[::1]:9494", "[::1]", "10.0.0.1", "localhost", "LOCALHOST:9494", "node1.example:9494"] {
            assert!(meant(&format!("HTTP/1.1\r\nAccept: */*\r\nhost: {host}")), "{host}");
        }
        for host in ["evil.example:9494", "localhost.evil.example", "127.0.0.1.evil.example", "", "127.0.0.1\r\nHost: evil.example"] {
            assert!(!meant(&format!("HTTP/1.1\r\nHost: {host}")), "{host}");
        }
        assert!(meant("HTTP/1.0") && !meant("HTTP/1.1"));
    }

    #[test]
    fn a_label_has_no_deceptive_character() {
        let mut out = String::new();
        Metric::new(&mut out, "x", "gauge", "Help.").sample(&[("node", "a\x1b[2J\n\u{202e}b")], 1.0);
        assert!(out.ends_with("noctule_x{node=\"a\\\\u{1b}[2J\\\\n\\\\u{202e}b\"} 1\n"), "{out}");
    }

    #[test]
    fn streams_in_one_direction_have_their_counts_under_their_node_or_address() {
        let ignored = [("garbage".to_owned(), 7)].into();
        let report = serde_json::json!({
            "to": [{"name": "z", "endpoint": "192.0.2.1:1", "rate": 1e6, "block_packets": 64, "redundancy": 1.2, "packets": 11, "dropped": 12, "blocks": 13,
                "sent_datagrams": 14, "sent_bytes": 15, "announcements": 16, "streams": 1, "send_errors": 17}],
            "from": [], "relays": [{"listen": "l", "endpoint": "e", "rate": 1e6, "received_datagrams": 21, "received_bytes": 0, "sent_datagrams": 22,
                "sent_bytes": 23, "passed": 24, "recoded": 25, "redundant": 0, "late": 0, "dropped": 26, "announcements": 0, "refused": 0, "foreign": 0,
                "send_errors": 0, "standing_delay": 0.0, "memory": 0, "ranks": [0, 0, 27]}],
        });
        let mut report: OneWayReport = serde_json::from_value(report).expect("a report");
        let sender = OneWaySenderReport {
            name: "a".into(),
            streams: 1,
            heard: Some(0.5),
            datagrams: 30,
            innovative: 0,
            polluted: 31,
            over: 32,
            blocks: 33,
            given_up: 34,
            packets: 35,
            recovered: 36,
            lost: 37,
        };
        report.from.push(super::super::status::OneWayFromReport { listen: "l".into(), ignored, senders: vec![sender] });
        let mut out = String::new();
        one_way(&mut out, &report);
        for line in [
            "one_way_to_packets_total{node=\"z\"} 11",
            "one_way_to_send_errors_total{node=\"z\"} 17",
            "one_way_from_lost_packets_total{node=\"a\",listen=\"l\"} 37",
            "one_way_from_recovered_packets_total{node=\"a\",listen=\"l\"} 36",
            "one_way_heard_seconds{node=\"a\",listen=\"l\"} 0.5",
            "one_way_ignored_datagrams_total{listen=\"l\",reason=\"garbage\"} 7",
            "one_way_relay_recoded_packets_total{listen=\"l\",endpoint=\"e\"} 25",
            "one_way_relay_batches_total{listen=\"l\",rank=\"2\"} 27",
        ] {
            assert!(out.contains(&format!("\nnoctule_{line}\n")), "{line} in {out}");
        }
    }
}

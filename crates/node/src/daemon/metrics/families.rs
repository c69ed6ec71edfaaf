//! The metrics for Prometheus: names, units and labels (docs/guide/metrics.md lists them all).
//!
//! By the conventions of prometheus.io/docs/practices/naming: base units, `_total` for counters, one quantity for each family. No address is a label: it
//! changes when a NAT forgets, and each change would begin a new series.

use super::super::status::{
    FlowCounts, OneWayRelayReport, OneWayReport, OneWaySenderReport, OneWayToReport, PathReport, Report, TunnelNodeReport,
};
use noctule_proto::far_text::escaped;
use prometheus_client::collector::Collector;
use prometheus_client::encoding::{DescriptorEncoder, prometheus_text};
use prometheus_client::metrics::MetricType;
use prometheus_client::registry::Registry;
use std::fmt;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

/// Labels of one sample.
pub type Labels = Vec<(&'static str, String)>;
/// Name, help and value of one family for each entry of a report.
type Of<T, V> = (&'static str, &'static str, fn(&T) -> V);

/// The report in Prometheus's text format.
pub fn text(report: Report) -> String {
    let start = SystemTime::now().checked_sub(Duration::from_secs_f64(report.uptime_s.max(0.0))).unwrap_or(UNIX_EPOCH);
    let mut out = String::new();
    let mut process = Registry::default();
    process.register_collector(Box::new(Process { start }));
    let mut node = Registry::with_prefix("noctule");
    node.register_collector(Box::new(Node(report)));
    for registry in [&process, &node] {
        prometheus_text::encode(&mut out, registry).expect("writing to a String cannot fail");
    }
    out
}

/// The metrics that every process exports by Prometheus's conventions.
#[derive(Debug)]
pub struct Process {
    /// When it began.
    pub start: SystemTime,
}

impl Collector for Process {
    fn encode(&self, encoder: DescriptorEncoder<'_>) -> fmt::Result {
        let start = self.start.duration_since(UNIX_EPOCH).unwrap_or_default().as_secs_f64();
        Families(encoder).gauge("process_start_time_seconds", "Start time of the process since the Unix epoch.", [(Labels::new(), start)])
    }
}

#[derive(Debug)]
struct Node(Report);

/// Writes families; those without a sample are left out.
pub struct Families<'a>(pub DescriptorEncoder<'a>);

fn node(name: &str) -> Labels {
    vec![("node", name.to_owned())]
}

impl Families<'_> {
    /// A family of gauges.
    pub fn gauge(&mut self, name: &str, help: &str, samples: impl IntoIterator<Item = (Labels, f64)>) -> fmt::Result {
        let mut samples = samples.into_iter().peekable();
        if samples.peek().is_none() {
            return Ok(());
        }
        let mut family = self.0.encode_descriptor(name, help, None, MetricType::Gauge)?;
        for (labels, value) in samples {
            match labels.is_empty() {
                true => family.encode_gauge(&value)?,
                false => family.encode_family(&told(labels))?.encode_gauge(&value)?,
            }
        }
        Ok(())
    }

    /// Writes a family of counters; `_total` is added to the name.
    pub fn counter(&mut self, name: &str, help: &str, samples: impl IntoIterator<Item = (Labels, u64)>) -> fmt::Result {
        let mut samples = samples.into_iter().peekable();
        if samples.peek().is_none() {
            return Ok(());
        }
        let mut family = self.0.encode_descriptor(name, help, None, MetricType::Counter)?;
        for (labels, value) in samples {
            match labels.is_empty() {
                true => family.encode_counter::<Labels, _, u64>(&value, None)?,
                false => family.encode_family(&told(labels))?.encode_counter::<Labels, _, u64>(&value, None)?,
            }
        }
        Ok(())
    }
}

/// Escapes labels: they have names from the file, and text of other nodes.
fn told(labels: Labels) -> Labels {
    labels.into_iter().map(|(name, value)| (name, escaped(&value).to_string())).collect()
}

impl Collector for Node {
    fn encode(&self, encoder: DescriptorEncoder<'_>) -> fmt::Result {
        let (report, mut out) = (&self.0, Families(encoder));
        let none = Labels::new;
        let build = vec![("version", report.version.clone()), ("commit", report.commit.clone())];
        out.gauge("build_info", "What the program was built from; always 1.", [(build, 1.0)])?;
        let memory = &report.memory;
        out.gauge("memory_used_bytes", "Memory of flows and sessions that is held now.", [(none(), memory.used_bytes as f64)])?;
        out.gauge("memory_peak_bytes", "Most memory of flows and sessions that was held so far.", [(none(), memory.peak_bytes as f64)])?;
        out.gauge("memory_limit_bytes", "Bound of the memory of flows and sessions.", [(none(), memory.limit_bytes as f64)])?;
        out.counter(
            "refused",
            "What the node refused or survived: packets, handshakes, flows, sessions, links.",
            report.refused.iter().filter(|(reason, _)| *reason != "half_open").map(|(reason, n)| (vec![("reason", reason.clone())], *n)),
        )?;
        let half_open = report.refused.get("half_open").copied().unwrap_or(0);
        out.gauge("half_open_links", "Links that were answered and not confirmed.", [(none(), half_open as f64)])?;
        let socket = &report.socket;
        out.counter("sent_datagrams", "Datagrams that the node sent.", [(none(), socket.sent_datagrams)])?;
        out.counter("sent_bytes", "Bytes of UDP payload that the node sent.", [(none(), socket.sent_bytes)])?;
        out.counter("received_datagrams", "Datagrams that came to the node.", [(none(), socket.received_datagrams)])?;
        out.counter("received_bytes", "Bytes of UDP payload that came to the node.", [(none(), socket.received_bytes)])?;
        out.counter(
            "socket_errors",
            "Datagrams that the system did not take or give.",
            [(vec![("direction", "sent".into())], socket.send_errors), (vec![("direction", "received".into())], socket.recv_errors)],
        )?;
        links(&mut out, report)?;
        out.gauge(
            "routes",
            "Routes, by origin and whether their neighbour's link is up.",
            ["neighbour", "file", "kernel"].into_iter().flat_map(|origin| {
                [true, false].map(|usable| {
                    let count = report.routes.iter().filter(|r| r.origin == origin && r.usable == usable).count();
                    (vec![("origin", origin.into()), ("usable", if usable { "yes" } else { "no" }.into())], count as f64)
                })
            }),
        )?;
        out.gauge("trees", "Objects for several receivers that pass.", [(none(), report.trees.len() as f64)])?;
        out.gauge("relayed_flows", "Flows of others that pass, one direction each.", [(none(), report.relayed.len() as f64)])?;
        one_way(&mut out, &report.one_way)?;
        tunnel(&mut out, report)
    }
}

/// Links to neighbours, and sessions with all nodes of the file.
fn links(out: &mut Families<'_>, report: &Report) -> fmt::Result {
    let neighbours = || report.nodes.iter().filter(|n| n.is_neighbour);
    out.gauge("link_up", "The link to a neighbour is up.", neighbours().map(|n| (node(&n.name), f64::from(u8::from(n.link.is_some())))))?;
    let with_link = || report.nodes.iter().filter_map(|n| Some((n, n.link.as_ref()?)));
    out.counter(
        "link_polluted_packets",
        "Packets of sealed flows that came by the link to a neighbour and were altered there or behind it.",
        with_link().map(|(n, link)| (node(&n.name), link.polluted)),
    )?;
    out.gauge(
        "session_up",
        "There is a session with a node, direct or relayed.",
        report.nodes.iter().map(|n| (node(&n.name), f64::from(u8::from(n.session.is_some())))),
    )?;
    let paths =
        || with_link().flat_map(|(n, link)| link.paths.iter().map(|p| (vec![("node", n.name.clone()), ("path", p.path.to_string())], p)));
    let gauges: [Of<PathReport, f64>; 5] = [
        ("path_rtt_seconds", "Smoothed round-trip time.", |p| p.rtt_ms / 1e3),
        ("path_loss_ratio", "Loss rate of what this node sends.", |p| p.loss_ratio),
        ("path_delivery_rate_bytes_per_second", "Delivery rate.", |p| p.delivery_rate_bits_per_second / 8.0),
        ("path_in_flight_bytes", "Bytes in flight.", |p| p.in_flight_bytes as f64),
        ("path_mtu_bytes", "Largest UDP payload known to pass.", |p| f64::from(p.mtu_bytes)),
    ];
    for (name, help, value) in gauges {
        out.gauge(name, help, paths().map(|(labels, p)| (labels, value(p))))?;
    }
    let counters: [Of<PathReport, u64>; 6] = [
        ("path_sent_packets", "Datagrams sent.", |p| p.sent_packets),
        ("path_sent_bytes", "Bytes of UDP payload sent.", |p| p.sent_bytes),
        ("path_received_packets", "Datagrams received and authenticated.", |p| p.received_packets),
        ("path_received_bytes", "Bytes of UDP payload received and authenticated.", |p| p.received_bytes),
        ("path_lost_packets", "Packets declared lost.", |p| p.lost_packets),
        ("path_ce_packets", "Packets reported as marked.", |p| p.ce_packets),
    ];
    for (name, help, value) in counters {
        out.counter(name, help, paths().map(|(labels, p)| (labels, value(p))))?;
    }
    let of_flows: [Of<FlowCounts, u64>; 5] = [
        ("link_source_packets", "Source packets sent uncoded for the first time, or received or recovered.", |f| f.source_packets),
        ("link_repair_packets", "Coded packets sent or received.", |f| f.repair_packets),
        ("link_decoded_packets", "Source packets recovered by decoding.", |f| f.decoded_packets),
        ("link_redundant_packets", "Coded packets that brought nothing new.", |f| f.redundant_packets),
        ("link_expired_messages", "Messages whose lifetime ended.", |f| f.expired_messages),
    ];
    for (name, help, value) in of_flows {
        let both = with_link().flat_map(|(n, link)| {
            [("sent", &link.flows.sent), ("received", &link.flows.received)]
                .map(|(direction, counts)| (vec![("node", n.name.clone()), ("direction", direction.into())], value(counts)))
        });
        out.counter(name, help, both)?;
    }
    Ok(())
}

fn tunnel(out: &mut Families<'_>, report: &Report) -> fmt::Result {
    let Some(tunnel) = &report.tunnel else { return Ok(()) };
    let nodes = || tunnel.nodes.iter();
    out.gauge("tunnel_flows", "Flows into the tunnel.", nodes().map(|(name, t)| (node(name), t.flows.len() as f64)))?;
    let counters: [Of<TunnelNodeReport, u64>; 6] = [
        ("tunnel_sent_packets", "Packets handed to the transport.", |t| t.sent_packets),
        ("tunnel_sent_bytes", "Bytes handed to the transport.", |t| t.sent_bytes),
        ("tunnel_received_packets", "Packets given to the device.", |t| t.received_packets),
        ("tunnel_received_bytes", "Bytes given to the device.", |t| t.received_bytes),
        ("tunnel_marked_packets", "Packets marked by CoDel.", |t| t.marked),
        ("tunnel_dropped_packets", "Packets dropped by CoDel or full queues.", |t| t.dropped),
    ];
    for (name, help, value) in counters {
        out.counter(name, help, nodes().map(|(name, t)| (node(name), value(t))))?;
    }
    out.gauge("split_connections", "TCP connections that go as streams.", nodes().map(|(name, t)| (node(name), t.split.open as f64)))?;
    let is_split = |t: &TunnelNodeReport| f64::from(u8::from(t.split.tcp == "split"));
    out.gauge("split_tcp", "Whether TCP goes to the node as streams.", nodes().map(|(name, t)| (node(name), is_split(t))))?;
    let counters: [Of<TunnelNodeReport, u64>; 4] = [
        ("split_connections_begun", "TCP connections that began as streams.", |t| t.split.begun),
        ("split_connections_refused", "TCP connections that were refused or reset before they stood.", |t| t.split.refused),
        ("split_sent_bytes", "Bytes of split connections to the node.", |t| t.split.sent_bytes),
        ("split_received_bytes", "Bytes of split connections from the node.", |t| t.split.received_bytes),
    ];
    for (name, help, value) in counters {
        out.counter(name, help, nodes().map(|(name, t)| (node(name), value(t))))?;
    }
    let foreign = tunnel.nodes.values().map(|t| t.received_refused).sum();
    let reasons =
        [("unreachable", tunnel.unreachable), ("too_big", tunnel.too_big), ("malformed", tunnel.malformed), ("foreign_source", foreign)];
    let reasons = reasons.map(|(reason, count)| (vec![("reason", reason.into())], count));
    out.counter("tunnel_refused_packets", "Packets that reached no flow, by reason.", reasons)
}

/// The port of an address, which tells the streams of a node apart: no two have the same.
fn port(listen: &str) -> String {
    listen.rsplit_once(':').map_or(listen, |(_, port)| port).to_owned()
}

/// Streams over links that bring nothing back.
fn one_way(out: &mut Families<'_>, report: &OneWayReport) -> fmt::Result {
    let of_to: [Of<OneWayToReport, u64>; 6] = [
        ("one_way_to_packets", "Packets of the tunnel that a stream to another node took.", |t| t.packets),
        ("one_way_to_dropped_packets", "Packets of the tunnel for which there was no room.", |t| t.dropped),
        ("one_way_to_blocks", "Blocks sent.", |t| t.blocks),
        ("one_way_to_datagrams", "Datagrams sent, announcements not counted.", |t| t.sent_datagrams),
        ("one_way_to_bytes", "Bytes of UDP payload sent, announcements not counted.", |t| t.sent_bytes),
        ("one_way_to_send_errors", "Datagrams that the system did not take.", |t| t.send_errors),
    ];
    for (name, help, value) in of_to {
        out.counter(name, help, report.to.iter().map(|to| (node(&to.name), value(to))))?;
    }
    let senders = || {
        let of = |from: &super::super::status::OneWayFromReport, sender: &OneWaySenderReport| {
            vec![("node", sender.name.clone()), ("port", port(&from.listen))]
        };
        report.from.iter().flat_map(move |f| f.senders.iter().map(move |s| (of(f, s), s)))
    };
    let of_senders: [Of<OneWaySenderReport, u64>; 9] = [
        ("one_way_from_packets", "Packets that arrived.", |s| s.packets),
        ("one_way_from_recovered_packets", "Packets that had to be recovered.", |s| s.recovered),
        ("one_way_from_lost_packets", "Packets that were lost for good, as far as the sender has said.", |s| s.lost),
        ("one_way_from_blocks", "Blocks that became whole.", |s| s.blocks),
        ("one_way_from_given_up_blocks", "Blocks that were given up.", |s| s.given_up),
        ("one_way_from_datagrams", "Datagrams of the node's streams.", |s| s.datagrams),
        ("one_way_from_polluted_datagrams", "Datagrams that were altered or invented on the route.", |s| s.polluted),
        ("one_way_from_over_datagrams", "Datagrams of blocks that lie behind: late, or played again.", |s| s.over),
        ("one_way_from_streams", "Streams that the node announced.", |s| s.streams),
    ];
    for (name, help, value) in of_senders {
        out.counter(name, help, senders().map(|(labels, s)| (labels, value(s))))?;
    }
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().as_secs_f64();
    out.gauge(
        "one_way_last_heard_timestamp_seconds",
        "When something of a node last came that checked, since the Unix epoch.",
        senders().filter_map(|(labels, s)| Some((labels, now - s.heard_s?))),
    )?;
    out.counter(
        "one_way_ignored_datagrams",
        "Datagrams that were no use where streams come, by reason.",
        report.from.iter().flat_map(|from| {
            from.ignored.iter().map(|(reason, count)| (vec![("port", port(&from.listen)), ("reason", reason.clone())], *count))
        }),
    )?;
    let relays = || report.relays.iter().map(|relay| (vec![("port", port(&relay.listen))], relay));
    let of_relays: [Of<OneWayRelayReport, u64>; 7] = [
        ("one_way_relay_received_datagrams", "Datagrams that came.", |r| r.received_datagrams),
        ("one_way_relay_passed_packets", "Packets passed on as they came.", |r| r.passed),
        ("one_way_relay_recoded_packets", "Packets combined here.", |r| r.recoded),
        ("one_way_relay_dropped_packets", "Packets for which there was no room.", |r| r.dropped),
        ("one_way_relay_refused_datagrams", "Datagrams that may not pass.", |r| r.refused),
        ("one_way_relay_sent_datagrams", "Datagrams that went on.", |r| r.sent_datagrams),
        ("one_way_relay_sent_bytes", "Bytes of UDP payload that went on.", |r| r.sent_bytes),
    ];
    for (name, help, value) in of_relays {
        out.counter(name, help, relays().map(|(labels, r)| (labels, value(r))))?;
    }
    let by_rank = |(labels, relay): (Labels, &OneWayRelayReport)| {
        let counts: Vec<_> = relay.ranks.iter().enumerate().filter(|(_, count)| **count > 0).map(|(rank, n)| (rank, *n)).collect();
        counts.into_iter().map(move |(rank, count)| ([&labels[..], &[("rank", rank.to_string())]].concat(), count))
    };
    out.counter("one_way_relay_batches", "Batches by the rank that came.", relays().flat_map(by_rank))
}

#[cfg(test)]
mod tests {
    use super::super::super::status::{LinkReport, NodeReport, OneWayFromReport, TunnelReport};
    use super::*;
    use std::collections::BTreeSet;

    /// A report in which every family has a sample.
    fn whole() -> Report {
        let link = LinkReport {
            paths: vec![PathReport {
                rtt_ms: 250.0,
                delivery_rate_bits_per_second: 8e6,
                remote: "192.0.2.7:4242".into(),
                ..Default::default()
            }],
            ..Default::default()
        };
        let far = NodeReport { name: "a\x1b[2J\n\u{202e}\"b\\".into(), is_neighbour: true, link: Some(link), ..Default::default() };
        let sender = OneWaySenderReport { name: "z".into(), heard_s: Some(0.5), lost: 37, ..Default::default() };
        let from = OneWayFromReport { listen: "192.0.2.1:4500".into(), ignored: [("garbage".to_owned(), 7)].into(), senders: vec![sender] };
        let relay = OneWayRelayReport {
            listen: "[2001:db8::1]:4501".into(),
            endpoint: "192.0.2.9:1".into(),
            ranks: vec![0, 0, 27],
            ..Default::default()
        };
        let to = OneWayToReport { name: "y".into(), endpoint: "192.0.2.9:1".into(), packets: 11, ..Default::default() };
        let tunnel = TunnelReport { nodes: [("far".to_owned(), TunnelNodeReport::default())].into(), unreachable: 3, ..Default::default() };
        Report {
            version: "1.2.3".into(),
            commit: "abc".into(),
            uptime_s: 10.0,
            refused: [("half_open".to_owned(), 2), ("replayed".to_owned(), 5)].into(),
            nodes: vec![far],
            one_way: OneWayReport { to: vec![to], from: vec![from], relays: vec![relay] },
            tunnel: Some(tunnel),
            ..Default::default()
        }
    }

    #[test]
    fn samples_have_base_units_and_one_family_for_each_quantity() {
        let out = text(whole());
        for line in [
            "noctule_build_info{version=\"1.2.3\",commit=\"abc\"} 1",
            "noctule_memory_limit_bytes 0",
            "noctule_refused_total{reason=\"replayed\"} 5",
            "noctule_half_open_links 2",
            "noctule_path_rtt_seconds{node=\"a\\\\u{1b}[2J\\\\n\\\\u{202e}\\\"b\\\\\",path=\"0\"} 0.25",
            "noctule_tunnel_refused_packets_total{reason=\"unreachable\"} 3",
            "noctule_split_connections_begun_total{node=\"far\"} 0",
            "noctule_one_way_to_packets_total{node=\"y\"} 11",
            "noctule_one_way_from_lost_packets_total{node=\"z\",port=\"4500\"} 37",
            "noctule_one_way_ignored_datagrams_total{port=\"4500\",reason=\"garbage\"} 7",
            "noctule_one_way_relay_batches_total{port=\"4501\",rank=\"2\"} 27",
        ] {
            assert!(out.lines().any(|l| l == line || l == line.to_owned() + ".0"), "{line} in\n{out}");
        }
        assert!(out.contains("delivery_rate_bytes_per_second") && out.contains(" 1000000"), "{out}");
        assert!(out.starts_with("# HELP process_start_time_seconds "), "{out}");
    }

    #[test]
    fn no_label_is_an_address_and_no_text_drives_a_terminal() {
        let out = text(whole());
        for address in ["192.0.2.", "2001:db8"] {
            assert!(!out.contains(address), "{address} in\n{out}");
        }
        assert!(!out.chars().any(|c| c != '\n' && noctule_proto::far_text::is_deceptive(c)), "{out}");
    }

    /// What `promtool check metrics` asks for, as far as names go.
    #[test]
    fn names_follow_the_conventions() {
        let out = text(whole());
        let kinds: Vec<(&str, &str)> =
            out.lines().filter_map(|l| l.strip_prefix("# TYPE ")).map(|l| l.split_once(' ').expect("name and kind")).collect();
        assert!(kinds.len() > 50, "{}", kinds.len());
        assert_eq!(kinds.iter().map(|(name, _)| name).collect::<BTreeSet<_>>().len(), kinds.len(), "each family once");
        for (name, kind) in kinds {
            assert_eq!(name.ends_with("_total"), kind == "counter", "{name} is a {kind}");
            assert!(!["_ms", "_bits", "_kib", "_percent", "_count", "_sum"].iter().any(|unit| name.contains(unit)), "{name}");
        }
    }

    #[test]
    fn the_guide_lists_every_family_and_no_other() {
        let guide = include_str!("../../../../../docs/guide/metrics.md");
        let listed: BTreeSet<&str> =
            guide.lines().filter_map(|l| l.strip_prefix("| `")?.split(['`', '{']).next()).filter(|n| n.contains('_')).collect();
        let out = text(whole());
        let told: BTreeSet<&str> = out.lines().filter_map(|l| l.strip_prefix("# TYPE ")?.split(' ').next()).collect();
        assert_eq!(listed, told);
    }
}

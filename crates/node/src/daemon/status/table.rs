//! The report for people: at a glance, or what moves from one look to the next.

use super::screen::{Screen, Section};
use super::{LinkReport, NodeReport, OneWayReport, PathReport, Report, TunnelReport};
use crate::units::{rate, scaled};
use std::cmp::Reverse;

/// From this width on, rows have columns that narrower ones do without.
const WIDE: usize = 104;

/// Counters of one look, or what they rose by each second since the one before.
#[derive(Clone, Copy)]
struct Look<'a> {
    report: &'a Report,
    before: Option<(&'a Report, f64)>,
    is_wide: bool,
}

/// The report as a table; with the one before, rates since then and no sums.
pub fn print(report: &Report, before: Option<&Report>, with_flows: bool, screen: Screen) -> String {
    let seconds = before.map(|b| (b, report.uptime_s - b.uptime_s)).filter(|(_, s)| *s > 0.0);
    let look = Look { report, before: seconds, is_wide: screen.width.is_none_or(|width| width >= WIDE) };
    let mut sections = vec![look.summary(), look.links(), look.routes(), look.trees(), look.relayed(with_flows), look.one_way()];
    if let Some(tunnel) = &report.tunnel {
        sections.push(look.tunnel(tunnel));
        // Those of a node that splits no more are of interest until they are over.
        let has_split = tunnel.splits || tunnel.nodes.values().any(|t| t.split.open > 0);
        sections.extend(has_split.then(|| look.split(tunnel)));
        sections.extend(with_flows.then(|| look.tunnel_flows(tunnel)));
    }
    screen.fit(sections)
}

impl Look<'_> {
    /// A count: in all, or each second. `then` is asked for the count of the look before; what was not there had none.
    fn count(&self, now: u64, then: impl Fn(&Report) -> Option<u64>) -> String {
        match self.before {
            None => now.to_string(),
            Some((before, seconds)) => per_second(now.saturating_sub(then(before).unwrap_or(0)) as f64 / seconds),
        }
    }

    /// Bytes in all, or a rate.
    fn amount(&self, now: u64, then: impl Fn(&Report) -> Option<u64>) -> String {
        match self.before {
            None => bytes(now as f64),
            Some((before, seconds)) => rate(now.saturating_sub(then(before).unwrap_or(0)) as f64 * 8.0 / seconds),
        }
    }

    /// What an entry is sorted by: what it moved since the look before; all are equal in the first.
    fn moved(&self, now: u64, then: impl Fn(&Report) -> Option<u64>) -> Reverse<u64> {
        Reverse(self.before.map_or(0, |(before, _)| now.saturating_sub(then(before).unwrap_or(0))))
    }

    fn summary(&self) -> Section {
        let report = self.report;
        let mut text = vec![
            format!("{}  {}  up {}  listening on {}", report.name, join(&report.addresses), span(report.uptime_s), report.listen),
            format!(
                "memory {} of {} (peak {}), {}",
                bytes(report.memory.used_bytes as f64),
                bytes(report.memory.limit_bytes as f64),
                bytes(report.memory.peak_bytes as f64),
                if report.relay { "relaying" } else { "not relaying" }
            ),
        ];
        let then = |b: &Report, name: &str| b.refused.get(name).copied();
        let has_moved = |name: &str, count: u64| self.before.map_or(count, |(b, _)| count.saturating_sub(then(b, name).unwrap_or(0))) > 0;
        let refused = report.refused.iter().filter(|(name, count)| has_moved(name, **count));
        let refused: Vec<String> =
            refused.map(|(name, n)| format!("{} {}", name.replace('_', " "), self.count(*n, |b| then(b, name)))).collect();
        if !refused.is_empty() {
            text.push(format!("refused: {}", refused.join(", ")));
        }
        Section { text, ..Default::default() }
    }

    fn links(&self) -> Section {
        let report = self.report;
        let mut rows: Vec<(Reverse<u64>, String)> = Vec::new();
        for node in report.nodes.iter().filter(|n| n.is_neighbour) {
            match &node.link {
                Some(link) => rows.extend(link.paths.iter().map(|path| self.path_row(node, link, path))),
                None => rows.push((
                    Reverse(0),
                    format!(
                        "{:<12} {:<6} {:>38}{}  {}",
                        short(&node.name),
                        "down",
                        "",
                        if self.is_wide { " ".repeat(20) } else { String::new() },
                        node.endpoint.as_deref().unwrap_or("calls us")
                    ),
                )),
            }
        }
        rows.sort_by_key(|(moved, _)| *moved);
        let mut text = Vec::new();
        for (node, link) in report.nodes.iter().filter_map(|n| Some((n, n.link.as_ref()?))).filter(|(_, link)| link.polluted > 0) {
            text.push(format!(
                "{}: {} packets that came by this link were altered, there or behind it; they were not used",
                node.name, link.polluted
            ));
        }
        for node in report.nodes.iter().filter(|n| n.link.is_none() && (n.is_neighbour || n.session.is_none())) {
            text.extend(node.trouble.as_ref().map(|trouble| format!("{}: {}", node.name, trouble.text)));
        }
        let more = if self.is_wide { format!("{:>10}{:>10}", "recovered", "repair") } else { String::new() };
        let heading =
            format!("{:<12} {:<6} {:>7} {:>6} {:>11} {:>11}{more}  {}", "link", "up", "rtt ms", "loss %", "sent", "received", "remote");
        Section { text, heading: Some(heading), rows: rows.into_iter().map(|(_, row)| row).collect() }
    }

    fn path_row(&self, node: &NodeReport, link: &LinkReport, path: &PathReport) -> (Reverse<u64>, String) {
        let then_link = |b: &Report| b.nodes.iter().find(|n| n.name == node.name)?.link.clone();
        let then = |b: &Report| then_link(b)?.paths.into_iter().find(|p| p.path == path.path);
        let more = match self.is_wide {
            true => format!(
                "{:>10}{:>10}",
                self.count(link.flows.received.decoded_packets, |b| Some(then_link(b)?.flows.received.decoded_packets)),
                self.count(link.flows.sent.repair_packets, |b| Some(then_link(b)?.flows.sent.repair_packets))
            ),
            false => String::new(),
        };
        let row = format!(
            "{:<12} {:<6} {:>7.1} {:>6.1} {:>11} {:>11}{more}  {}",
            short(&node.name),
            span(link.up_for_s),
            path.rtt_ms,
            path.loss_ratio * 100.0,
            self.amount(path.sent_bytes, |b| Some(then(b)?.sent_bytes)),
            self.amount(path.received_bytes, |b| Some(then(b)?.received_bytes)),
            where_to(link, path)
        );
        (self.moved(path.sent_bytes + path.received_bytes, |b| then(b).map(|p| p.sent_bytes + p.received_bytes)), row)
    }

    fn routes(&self) -> Section {
        let row = |r: &super::RouteReport| {
            format!("{:<28} {:<16} {:>7}  {:<10}{}", r.to, r.via, r.metric, r.origin, if r.usable { "" } else { "  down" })
        };
        let heading = format!("{:<28} {:<16} {:>7}  {:<10}", "route to", "via", "metric", "from");
        Section { text: Vec::new(), heading: Some(heading), rows: self.report.routes.iter().map(row).collect() }
    }

    fn trees(&self) -> Section {
        let line = |tree: &super::TreeReport| {
            let to = |c: &super::TreeChildReport| {
                let share = 100.0 * c.there_bytes as f64 / tree.size_bytes.max(1) as f64;
                format!(
                    "{} ({} receivers) {share:.0} %{}",
                    c.name,
                    c.receivers,
                    if c.state == "on" { String::new() } else { format!(", {}", c.state) }
                )
            };
            let then = |b: &Report| b.trees.iter().find(|t| (&t.from, t.size_bytes) == (&tree.from, tree.size_bytes)).cloned();
            format!(
                "object of {} from {}: {} packets in, {} out, {} missed; to {}",
                bytes(tree.size_bytes as f64),
                tree.from,
                self.count(tree.packets, |b| Some(then(b)?.packets)),
                self.count(tree.sent, |b| Some(then(b)?.sent)),
                self.count(tree.skipped, |b| Some(then(b)?.skipped)),
                join(&tree.to.iter().map(to).collect::<Vec<_>>())
            )
        };
        Section { text: self.report.trees.iter().map(line).collect(), ..Default::default() }
    }

    fn relayed(&self, with_flows: bool) -> Section {
        let report = self.report;
        if !report.relay && report.relayed.is_empty() {
            return Section::default();
        }
        type Of = fn(&super::RelayedReport) -> u64;
        let sum = |of: Of| self.count(report.relayed.iter().map(of).sum(), |b| Some(b.relayed.iter().map(of).sum()));
        let text = format!(
            "relaying {} flows: {} packets in, {} passed, {} recoded, {} dropped",
            report.relayed.len(),
            sum(|r| r.rank_in),
            sum(|r| r.passed_packets),
            sum(|r| r.recoded_packets),
            sum(|r| r.dropped_packets)
        );
        let mut rows: Vec<(Reverse<u64>, String)> = Vec::new();
        for r in report.relayed.iter().filter(|_| with_flows) {
            let is =
                |o: &&super::RelayedReport| (&o.source, &o.destination, o.index, o.part) == (&r.source, &r.destination, r.index, r.part);
            let then = |b: &Report, of: Of| b.relayed.iter().find(is).map(of);
            rows.push((
                self.moved(r.rank_in, |b| then(b, |o| o.rank_in)),
                format!(
                    "{:>9} {:>9} {:>9} {:>7} {:>9.1}  {} > {} flow {}",
                    self.count(r.rank_in, |b| then(b, |o| o.rank_in)),
                    self.count(r.rank_out, |b| then(b, |o| o.rank_out)),
                    self.count(r.recoded_packets, |b| then(b, |o| o.recoded_packets)),
                    r.waiting,
                    r.queueing_delay_ms,
                    r.source,
                    r.destination,
                    r.index
                ),
            ));
        }
        rows.sort_by_key(|(moved, _)| *moved);
        let heading = format!("{:>9} {:>9} {:>9} {:>7} {:>9}  flow that passes", "rank in", "rank out", "recoded", "waiting", "delay ms");
        Section { text: vec![text], heading: (!rows.is_empty()).then_some(heading), rows: rows.into_iter().map(|(_, row)| row).collect() }
    }

    fn tunnel(&self, tunnel: &TunnelReport) -> Section {
        let totals = |of: fn(&TunnelReport) -> u64| self.count(of(tunnel), |b| b.tunnel.as_ref().map(of));
        let text = format!(
            "tunnel {}, MTU {}: {} unreachable, {} too big, {} malformed",
            tunnel.device,
            tunnel.mtu_bytes,
            totals(|t| t.unreachable),
            totals(|t| t.too_big),
            totals(|t| t.malformed)
        );
        let mut rows: Vec<(Reverse<u64>, String)> = Vec::new();
        for (name, t) in &tunnel.nodes {
            let far = self.report.nodes.iter().find(|n| n.name == *name);
            let session = match far.and_then(|n| Some((n.session.as_deref()?, n.sessions))) {
                None => "none".to_owned(),
                Some((kind, 0..=1)) => kind.to_owned(),
                Some((kind, several)) => format!("{kind} x{several}"),
            };
            type Of = fn(&super::TunnelNodeReport) -> u64;
            let then = |b: &Report, of: Of| b.tunnel.as_ref()?.nodes.get(name).map(of);
            let counted = |of: Of| self.count(of(t), |b| then(b, of));
            let carried = |of: Of| self.amount(of(t), |b| then(b, of));
            rows.push((
                self.moved(t.sent_bytes + t.received_bytes, |b| then(b, |o| o.sent_bytes + o.received_bytes)),
                format!(
                    "{:<12} {session:<10} {:>5} {:>11} {:>11} {:>8} {:>8} {:>8}",
                    short(name),
                    t.flows.len(),
                    carried(|t| t.sent_bytes),
                    carried(|t| t.received_bytes),
                    counted(|t| t.marked),
                    counted(|t| t.dropped),
                    counted(|t| t.received_refused)
                ),
            ));
        }
        rows.sort_by_key(|(moved, _)| *moved);
        let heading = format!(
            "{:<12} {:<10} {:>5} {:>11} {:>11} {:>8} {:>8} {:>8}",
            "node", "session", "flows", "sent", "received", "marked", "dropped", "refused"
        );
        Section { text: vec![text], heading: Some(heading), rows: rows.into_iter().map(|(_, row)| row).collect() }
    }

    /// TCP that goes as streams.
    fn split(&self, tunnel: &TunnelReport) -> Section {
        let mut rows: Vec<(Reverse<u64>, String)> = Vec::new();
        for (name, t) in &tunnel.nodes {
            type Of = fn(&super::SplitReport) -> u64;
            let then = |b: &Report, of: Of| b.tunnel.as_ref()?.nodes.get(name).map(|t| of(&t.split));
            let counted = |of: Of| self.count(of(&t.split), |b| then(b, of));
            let carried = |of: Of| self.amount(of(&t.split), |b| then(b, of));
            rows.push((
                self.moved(t.split.sent_bytes + t.split.received_bytes, |b| then(b, |o| o.sent_bytes + o.received_bytes)),
                format!(
                    "{:<12} {:<10} {:>5} {:>11} {:>11} {:>8} {:>8}",
                    short(name),
                    t.split.tcp,
                    t.split.open,
                    carried(|t| t.sent_bytes),
                    carried(|t| t.received_bytes),
                    counted(|t| t.begun),
                    counted(|t| t.refused)
                ),
            ));
        }
        rows.sort_by_key(|(moved, _)| *moved);
        let heading =
            format!("{:<12} {:<10} {:>5} {:>11} {:>11} {:>8} {:>8}", "node", "TCP", "open", "sent", "received", "begun", "refused");
        Section { text: Vec::new(), heading: Some(heading), rows: rows.into_iter().map(|(_, row)| row).collect() }
    }

    fn tunnel_flows(&self, tunnel: &TunnelReport) -> Section {
        let mut rows: Vec<(Reverse<u64>, String)> = Vec::new();
        for (name, f) in tunnel.nodes.iter().flat_map(|(name, t)| t.flows.iter().map(move |f| (name, f))) {
            let protocol = match f.protocol {
                1 => "icmp".to_owned(),
                6 => "tcp".to_owned(),
                17 => "udp".to_owned(),
                58 => "icmpv6".to_owned(),
                n => format!("ip {n}"),
            };
            let is = |o: &&super::TunnelFlowReport| {
                (&o.source, &o.destination, o.protocol, o.dscp) == (&f.source, &f.destination, f.protocol, f.dscp)
            };
            type Of = fn(&super::TunnelFlowReport) -> u64;
            let then = |b: &Report, of: Of| b.tunnel.as_ref()?.nodes.get(name)?.flows.iter().find(is).map(of);
            let counted = |of: Of| self.count(of(f), |b| then(b, of));
            rows.push((
                self.moved(f.bytes, |b| then(b, |o| o.bytes)),
                format!(
                    "{protocol:<6} {:>11} {:>8} {:>8} {:>7} {:>8}  {} > {}",
                    self.amount(f.bytes, |b| then(b, |o| o.bytes)),
                    counted(|f| f.packets),
                    counted(|f| f.transport.as_ref().map_or(0, |t| t.repair_packets)),
                    f.waiting_packets,
                    counted(|f| f.dropped),
                    f.source,
                    f.destination
                ),
            ));
        }
        rows.sort_by_key(|(moved, _)| *moved);
        let heading =
            format!("{:<6} {:>11} {:>8} {:>8} {:>7} {:>8}  from > to", "flow", "sent", "packets", "repairs", "waiting", "dropped");
        Section { text: Vec::new(), heading: (!rows.is_empty()).then_some(heading), rows: rows.into_iter().map(|(_, row)| row).collect() }
    }

    /// Streams over links that bring nothing back.
    fn one_way(&self) -> Section {
        let OneWayReport { to, from, relays } = &self.report.one_way;
        let mut text = Vec::new();
        for to in to {
            type Of = fn(&super::OneWayToReport) -> u64;
            let then = |b: &Report, of: Of| b.one_way.to.iter().find(|t| t.name == to.name).map(of);
            let counted = |of: Of| self.count(of(to), |b| then(b, of));
            text.push(format!(
                "one way to {} at {}: {} packets in, {} out in {} datagrams, {} blocks, {} dropped",
                to.name,
                to.endpoint,
                counted(|t| t.packets),
                self.amount(to.sent_bytes, |b| then(b, |t| t.sent_bytes)),
                counted(|t| t.sent_datagrams),
                counted(|t| t.blocks),
                counted(|t| t.dropped)
            ));
        }
        for from in from {
            let old = |b: &Report| b.one_way.from.iter().find(|f| f.listen == from.listen).cloned();
            for sender in &from.senders {
                type Of = fn(&super::OneWaySenderReport) -> u64;
                let then = |b: &Report, of: Of| old(b)?.senders.iter().find(|s| s.name == sender.name).map(of);
                let counted = |of: Of| self.count(of(sender), |b| then(b, of));
                let heard = sender.heard_s.map_or("never heard".to_owned(), |s| format!("heard {} ago", span(s)));
                text.push(format!(
                    "one way from {} at {}, {heard}: {} packets, {} of them recovered, {} lost; {} blocks whole, {} given up; {} datagrams altered, {} of what lies behind",
                    sender.name,
                    from.listen,
                    counted(|s| s.packets),
                    counted(|s| s.recovered),
                    counted(|s| s.lost),
                    counted(|s| s.blocks),
                    counted(|s| s.given_up),
                    counted(|s| s.polluted),
                    counted(|s| s.over)
                ));
            }
            let ignored = from.ignored.iter().filter(|(_, n)| **n > 0);
            let ignored: Vec<String> =
                ignored.map(|(what, n)| format!("{what} {}", self.count(*n, |b| old(b)?.ignored.get(what).copied()))).collect();
            if !ignored.is_empty() {
                text.push(format!("  ignored at {}: {}", from.listen, ignored.join(", ")));
            }
        }
        for relay in relays {
            type Of = fn(&super::OneWayRelayReport) -> u64;
            let then = |b: &Report, of: Of| b.one_way.relays.iter().find(|r| r.listen == relay.listen).map(of);
            let counted = |of: Of| self.count(of(relay), |b| then(b, of));
            text.push(format!(
                "one way from {} on to {}: {} datagrams in, {} passed, {} recoded, {} out; {} dropped, {} refused, queueing delay {:.1} ms",
                relay.listen,
                relay.endpoint,
                counted(|r| r.received_datagrams),
                counted(|r| r.passed),
                counted(|r| r.recoded),
                self.amount(relay.sent_bytes, |b| then(b, |r| r.sent_bytes)),
                counted(|r| r.dropped),
                counted(|r| r.refused),
                relay.queueing_delay_ms
            ));
        }
        Section { text, ..Default::default() }
    }
}

/// The far address; of one of several paths the near one as well, and what is the matter with it.
fn where_to(link: &LinkReport, path: &PathReport) -> String {
    let mut text = path.remote.clone();
    if let Some(local) = path.local.as_ref().filter(|_| link.paths.len() > 1) {
        text.push_str(&format!(" from {local}"));
    }
    if path.state != "open" {
        text.push_str(&format!(", {}", path.state));
    }
    if path.coupled > 0 {
        text.push_str(", one bottleneck with others");
    }
    text
}

pub(super) fn join<T: ToString>(list: &[T]) -> String {
    if list.is_empty() { "none".to_owned() } else { list.iter().map(ToString::to_string).collect::<Vec<_>>().join(", ") }
}

/// A name that would push its row aside.
fn short(name: &str) -> String {
    if name.chars().count() <= 12 { name.to_owned() } else { name.chars().take(11).chain(['…']).collect() }
}

/// As narrow as a count, and no count: `7.5/s`, `12k/s`.
fn per_second(value: f64) -> String {
    match value {
        0.0 => "0/s".to_owned(),
        ..99.95 => format!("{value:.1}/s"),
        ..9999.5 => format!("{value:.0}/s"),
        ..999_950.0 => format!("{:.0}k/s", value / 1e3),
        _ => format!("{:.1}M/s", value / 1e6),
    }
}

fn bytes(value: f64) -> String {
    scaled(value, 1024.0, &["B", "KiB", "MiB", "GiB", "TiB"])
}

fn span(seconds: f64) -> String {
    let s = seconds as u64;
    match s {
        0..60 => format!("{s}s"),
        60..3600 => format!("{}m{:02}s", s / 60, s % 60),
        3600..86_400 => format!("{}h{:02}m", s / 3600, s / 60 % 60),
        _ => format!("{}d{:02}h", s / 86_400, s / 3600 % 24),
    }
}

#[cfg(test)]
mod tests {
    use super::super::{FlowCounts, FlowSums, MemoryReport, RouteReport, TunnelFlowReport, TunnelNodeReport};
    use super::*;

    #[test]
    fn amounts_and_spans_are_short() {
        assert_eq!([bytes(0.0), bytes(1023.9), bytes(1536.0), bytes(3.0e9)], ["0 B", "1.0 KiB", "1.5 KiB", "2.8 GiB"]);
        assert_eq!([span(59.9), span(61.0), span(7322.0), span(90_000.0)], ["59s", "1m01s", "2h02m", "1d01h"]);
        assert_eq!(
            [per_second(0.0), per_second(7.46), per_second(1234.0), per_second(12_345.0), per_second(2.5e6)],
            ["0/s", "7.5/s", "1234/s", "12k/s", "2.5M/s"]
        );
    }

    /// A node with many of everything, after so many rounds; entry `i` moves `i` times as much as the first.
    fn busy(round: u64) -> Report {
        let counts =
            |i: u64| FlowCounts { repair_packets: 1_000_000_003 + round * i, decoded_packets: 2_000_000_003, ..Default::default() };
        let sums = |i: u64| FlowSums { sent: counts(i), received: counts(i) };
        let path = |i: u64| PathReport {
            path: 0,
            remote: format!("[2001:db8:1:2:3:4:5:{i:x}]:4242"),
            state: "open".into(),
            rtt_ms: 1234.5,
            loss_ratio: 1.0,
            sent_bytes: 5_000_000_003 + round * i * 10_000,
            received_bytes: 7_000_000_003,
            ..Default::default()
        };
        let name = |i: u64| format!("a-node-with-a-long-name-{i}");
        let nodes = (1..=20).map(|i| NodeReport {
            name: name(i),
            is_neighbour: true,
            link: (i != 20).then(|| LinkReport { up_for_s: 1e6, paths: vec![path(i)], flows: sums(i), ..Default::default() }),
            endpoint: Some("a-host-with-a-long-name.example.org:4242".into()),
            session: Some("relayed".into()),
            sessions: 8,
            ..Default::default()
        });
        let flow = |i: u64| TunnelFlowReport {
            source: format!("10.9.0.1:{i}"),
            destination: "192.168.200.100:65535".into(),
            protocol: 6,
            packets: 3_000_000_003 + round * i,
            bytes: 4_000_000_003 + round * i * 1000,
            dropped: 6_000_000_003,
            ..Default::default()
        };
        let tunnel_node = |i: u64| TunnelNodeReport {
            sent_bytes: 8_000_000_003 + round * i * 1000,
            received_bytes: 9_000_000_003,
            marked: 1_100_000_003,
            dropped: 1_200_000_003,
            received_refused: 1_300_000_003,
            flows: (1..=40).map(flow).collect(),
            ..Default::default()
        };
        let route =
            RouteReport { to: "2001:db8:1:2:3:4:5:6/128".into(), via: "hill".into(), origin: "kernel".into(), ..Default::default() };
        Report {
            name: "home".into(),
            uptime_s: 100.0 + round as f64,
            listen: "[::]:4242".into(),
            addresses: vec!["10.9.0.1".into(), "fd09:1234:5678:9abc:def0:1234:5678:9abc".into()],
            memory: MemoryReport { used_bytes: 1 << 20, peak_bytes: 2 << 20, limit_bytes: 512 << 20 },
            refused: (0..9).map(|i| (format!("reason_number_{i}"), 1_400_000_003 + round)).collect(),
            nodes: nodes.collect(),
            routes: vec![route; 30],
            tunnel: Some(TunnelReport {
                device: "noctule0".into(),
                mtu_bytes: 1380,
                nodes: (1..=3).map(|i| (name(i), tunnel_node(i))).collect(),
                ..Default::default()
            }),
            ..Default::default()
        }
    }

    #[test]
    fn a_busy_node_fits_80_columns_and_24_lines() {
        for (columns, lines) in [(80, 24), (120, 50)] {
            let screen = Screen { width: Some(columns), height: Some(lines) };
            for before in [None, Some(&busy(0))] {
                let text = print(&busy(1), before, true, screen);
                assert!(text.lines().count() < lines && text.lines().all(|l| l.chars().count() <= columns), "{columns}x{lines}:\n{text}");
                assert!(text.contains("\n+") && text.contains(" more\n"), "what is missing is counted:\n{text}");
            }
        }
        // Columns stay below their headings, whatever the counts.
        let text = print(&busy(1), Some(&busy(0)), true, Screen { width: Some(80), height: None });
        let ends = |from: &str, word: &str| {
            text.lines().find(|l| l.starts_with(from)).and_then(|l| Some(l.find(word)? + word.len())).expect("is there")
        };
        let row = text.lines().find(|l| l.starts_with("a-node-with…")).expect("a row");
        assert_eq!(
            row.chars().take(ends("link", "received")).collect::<String>().trim_end().chars().count(),
            ends("link", "received"),
            "{text}"
        );
    }

    #[test]
    fn a_second_look_shows_rates_only_the_fastest_first() {
        let text = print(&busy(1), Some(&busy(0)), true, Screen::default());
        assert!(!text.contains("000003") && !text.contains("GiB"), "no sums:\n{text}");
        let links: Vec<&str> = text.lines().filter(|l| l.contains("]:4242") && !l.contains("listening")).collect();
        assert!(links[0].contains("5:13]") && links[18].contains("5:1]"), "{text}");
        let flows: Vec<&str> = text.lines().filter(|l| l.starts_with("tcp")).collect();
        assert!(flows[0].ends_with("10.9.0.1:40 > 192.168.200.100:65535") && flows[0].contains("320 kbit/s"), "{text}");
        let first = print(&busy(1), None, false, Screen::default());
        assert!(first.contains("GiB") && !first.contains("/s"), "{first}");
    }
}

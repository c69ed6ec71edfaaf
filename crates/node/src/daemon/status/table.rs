//! The report for people.

use super::super::config::{Config, OneWay};
use super::{FlowSums, LinkReport, NodeReport, OneWayReport, PathReport, Report};
use noctule::PublicKey;
use std::fmt::Write;

/// What a file means, for `noctule node --check`.
pub fn describe(config: &Config, key: PublicKey) -> String {
    let mut out = String::new();
    let addresses = join(&config.addresses);
    // Writing to a String cannot fail.
    let _ = writeln!(out, "node {} with key {key}", config.name);
    let _ = writeln!(out, "  addresses {}; {}", addresses, if config.relay { "relays for others" } else { "does not relay for others" });
    for node in &config.nodes {
        let how = match &node.link {
            Some(link) => {
                let further: Vec<String> = link.paths.iter().map(|p| format!(" and by {p}")).collect();
                link.endpoint.as_ref().map_or("neighbour, calls us".to_owned(), |e| format!("neighbour, called at {e}{}", further.concat()))
            }
            None if config.is_one_way_only(node) => "one way".to_owned(),
            None => "reached over others".to_owned(),
        };
        let _ = writeln!(out, "  {}: {how}; addresses {}; behind it {}", node.name, join(&node.addresses), join(&node.prefixes));
    }
    for route in &config.routes {
        let via = config.nodes.iter().find(|n| n.key == route.via).map_or("?", |n| &n.name);
        let _ = writeln!(out, "  route to {} via {via}, metric {}", route.to, route.metric);
    }
    if let Some(kernel) = &config.kernel_routes {
        let _ = writeln!(out, "  routes from the kernel's table {}", kernel.table);
    }
    for one_way in &config.one_ways {
        let _ = match one_way {
            OneWay::To(to) => writeln!(
                out,
                "  one way to {}: to {} at {}, blocks of {} packets in batches of {}, {:.2} datagrams for each packet",
                to.name,
                to.endpoint,
                rate(to.rate.bytes_per_sec() * 8.0),
                to.shape.block_packets(),
                to.shape.batch_size(),
                to.plan.redundancy(&to.shape)
            ),
            OneWay::From(from) => {
                let names: Vec<&str> = from.senders.iter().map(|(name, _)| name.as_str()).collect();
                writeln!(out, "  one way from {}: at {}", names.join(", "), from.listen)
            }
            OneWay::Relay(relay) => {
                writeln!(out, "  one way from {} on to {} at {}", relay.listen, relay.endpoint, rate(relay.rate.bytes_per_sec() * 8.0))
            }
        };
    }
    match &config.tun {
        Some(tun) => {
            let _ = writeln!(out, "  tunnel {} with MTU {}, addresses {}", tun.name, tun.mtu, join(&tun.addresses));
        }
        None => out.push_str("  no tunnel\n"),
    }
    out.push_str("nothing is wrong with the file\n");
    out
}

fn join<T: ToString>(list: &[T]) -> String {
    if list.is_empty() { "none".to_owned() } else { list.iter().map(ToString::to_string).collect::<Vec<_>>().join(", ") }
}

/// The report as a table; with the one before, rates since then.
pub fn print(report: &Report, before: Option<&Report>, with_flows: bool) -> String {
    let mut out = String::new();
    let _ = writeln!(out, "{}  {}  up {}  listening on {}", report.name, join(&report.addresses), span(report.uptime), report.listen);
    let _ = writeln!(
        out,
        "memory {} of {} (peak {}), {}",
        bytes(report.memory.used as f64),
        bytes(report.memory.limit as f64),
        bytes(report.memory.peak as f64),
        if report.relay { "relaying" } else { "not relaying" }
    );
    let refused: Vec<String> =
        report.refused.iter().filter(|(_, count)| **count > 0).map(|(name, count)| format!("{name} {count}")).collect();
    if !refused.is_empty() {
        let _ = writeln!(out, "refused: {}", refused.join(", ").replace('_', " "));
    }
    let seconds = before.map(|b| report.uptime - b.uptime).filter(|s| *s > 0.0);
    let _ = writeln!(
        out,
        "\n{:<16} {:<9} {:>9} {:>7} {:>11} {:>11} {:>9} {:>8}  remote",
        "link", "state", "rtt", "loss", "sent", "received", "recovered", "repair"
    );
    for node in report.nodes.iter().filter(|n| n.is_neighbour) {
        let old = before.and_then(|b| b.nodes.iter().find(|n| n.name == node.name));
        link_row(&mut out, node, old.zip(seconds));
    }
    for (node, link) in report.nodes.iter().filter_map(|n| Some((n, n.link.as_ref()?))).filter(|(_, link)| link.polluted > 0) {
        let _ = writeln!(
            out,
            "  {}: {} packets that came by this link were altered, there or behind it; they were not used",
            node.name, link.polluted
        );
    }
    for node in report.nodes.iter().filter(|n| n.link.is_none()) {
        if let Some(trouble) = &node.trouble
            && (node.is_neighbour || node.session.is_none())
        {
            let _ = writeln!(out, "  {}: {}", node.name, trouble.text);
        }
    }
    let _ = writeln!(out, "\n{:<28} {:<16} {:>7}  {:<10}", "route to", "via", "metric", "from");
    for route in &report.routes {
        let _ = writeln!(
            out,
            "{:<28} {:<16} {:>7}  {:<10}{}",
            route.to,
            route.via,
            route.metric,
            route.origin,
            if route.usable { "" } else { "  down" }
        );
    }
    for tree in &report.trees {
        let to = |c: &super::TreeChildReport| {
            let share = 100.0 * c.there as f64 / tree.size.max(1) as f64;
            format!(
                "{} ({} receivers) {share:.0} %{}",
                c.name,
                c.receivers,
                if c.state == "on" { String::new() } else { format!(", {}", c.state) }
            )
        };
        let _ = writeln!(
            out,
            "\nobject of {} from {}: {} packets in, {} out, {} missed; to {}",
            bytes(tree.size as f64),
            tree.from,
            tree.packets,
            tree.sent,
            tree.skipped,
            join(&tree.to.iter().map(to).collect::<Vec<_>>())
        );
    }
    if report.relay || !report.relayed.is_empty() {
        let sum = |of: fn(&super::RelayedReport) -> u64| report.relayed.iter().map(of).sum::<u64>();
        let _ = writeln!(
            out,
            "\nrelaying {} flows: {} packets in, {} passed, {} recoded, {} dropped",
            report.relayed.len(),
            sum(|r| r.rank_in),
            sum(|r| r.passed_packets),
            sum(|r| r.recoded_packets),
            sum(|r| r.dropped_packets)
        );
        for r in report.relayed.iter().filter(|_| with_flows) {
            let _ = writeln!(
                out,
                "  {} > {} flow {}: rank {} in, {} out; {} recoded, {} waiting, standing delay {:.1} ms",
                r.source, r.destination, r.index, r.rank_in, r.rank_out, r.recoded_packets, r.waiting, r.standing_delay
            );
        }
    }
    one_way(&mut out, &report.one_way, before.map(|b| &b.one_way).zip(seconds));
    let Some(tunnel) = &report.tunnel else { return out };
    let _ = writeln!(
        out,
        "\ntunnel {}, MTU {}: {} unreachable, {} too big, {} malformed",
        tunnel.device, tunnel.mtu, tunnel.unreachable, tunnel.too_big, tunnel.malformed
    );
    let _ = writeln!(
        out,
        "{:<16} {:<10} {:>5} {:>11} {:>11} {:>8} {:>8} {:>8}",
        "node", "session", "flows", "sent", "received", "marked", "dropped", "refused"
    );
    for (name, t) in &tunnel.nodes {
        let far = report.nodes.iter().find(|n| n.name == *name);
        let session = match far.and_then(|n| Some((n.session.as_deref()?, n.sessions))) {
            None => "none".to_owned(),
            Some((kind, 0..=1)) => kind.to_owned(),
            Some((kind, several)) => format!("{kind} x{several}"),
        };
        let old = before.and_then(|b| b.tunnel.as_ref()?.nodes.get(name));
        let moved = |now: u64, then: Option<u64>| amount(now, then.zip(seconds));
        let _ = writeln!(
            out,
            "{name:<16} {session:<10} {:>5} {:>11} {:>11} {:>8} {:>8} {:>8}",
            t.flows.len(),
            moved(t.sent_bytes, old.map(|o| o.sent_bytes)),
            moved(t.received_bytes, old.map(|o| o.received_bytes)),
            t.marked,
            t.dropped,
            t.received_refused
        );
        if with_flows {
            for f in &t.flows {
                let protocol = match f.protocol {
                    1 => "icmp".to_owned(),
                    6 => "tcp".to_owned(),
                    17 => "udp".to_owned(),
                    58 => "icmpv6".to_owned(),
                    n => format!("ip {n}"),
                };
                let repair = f.transport.as_ref().map_or(0, |t| t.repair_packets);
                let _ = writeln!(
                    out,
                    "  {protocol} {} > {}: {} in {} packets, {repair} repairs, {} waiting, {} marked, {} dropped",
                    f.source,
                    f.destination,
                    bytes(f.bytes as f64),
                    f.packets,
                    f.waiting_packets,
                    f.marked,
                    f.dropped
                );
            }
        }
    }
    out
}

/// Streams over links that bring nothing back.
fn one_way(out: &mut String, report: &OneWayReport, old: Option<(&OneWayReport, f64)>) {
    for to in &report.to {
        let then = old.and_then(|(o, s)| Some((o.to.iter().find(|t| t.name == to.name)?.sent_bytes, s)));
        let _ = writeln!(
            out,
            "\none way to {} at {}: {} packets in, {} out in {} datagrams, {} blocks, {} dropped",
            to.name,
            to.endpoint,
            to.packets,
            amount(to.sent_bytes, then),
            to.sent_datagrams,
            to.blocks,
            to.dropped
        );
    }
    for from in &report.from {
        for sender in &from.senders {
            let heard = sender.heard.map_or("never heard".to_owned(), |s| format!("heard {} ago", span(s)));
            let _ = writeln!(
                out,
                "\none way from {} at {}, {heard}: {} packets, {} of them recovered, {} lost; {} blocks whole, {} given up; {} datagrams altered, {} of what lies behind",
                sender.name,
                from.listen,
                sender.packets,
                sender.recovered,
                sender.lost,
                sender.blocks,
                sender.given_up,
                sender.polluted,
                sender.over
            );
        }
        let ignored: Vec<String> = from.ignored.iter().filter(|(_, n)| **n > 0).map(|(what, n)| format!("{what} {n}")).collect();
        if !ignored.is_empty() {
            let _ = writeln!(out, "  ignored at {}: {}", from.listen, ignored.join(", "));
        }
    }
    for relay in &report.relays {
        let then = old.and_then(|(o, s)| Some((o.relays.iter().find(|r| r.listen == relay.listen)?.sent_bytes, s)));
        let _ = writeln!(
            out,
            "\none way from {} on to {}: {} datagrams in, {} passed, {} recoded, {} out; {} dropped, {} refused, standing delay {:.1} ms",
            relay.listen,
            relay.endpoint,
            relay.received_datagrams,
            relay.passed,
            relay.recoded,
            amount(relay.sent_bytes, then),
            relay.dropped,
            relay.refused,
            relay.standing_delay
        );
    }
}

fn link_row(out: &mut String, node: &NodeReport, old: Option<(&NodeReport, f64)>) {
    let Some(link) = &node.link else {
        let _ = writeln!(
            out,
            "{:<16} {:<9} {:>9} {:>7} {:>11} {:>11} {:>9} {:>8}  {}",
            node.name,
            "down",
            "",
            "",
            "",
            "",
            "",
            "",
            node.endpoint.as_deref().unwrap_or("calls us")
        );
        return;
    };
    let old_link = old.and_then(|(n, s)| Some((n.link.as_ref()?, s)));
    for path in &link.paths {
        let then = old_link.and_then(|(l, s)| Some((l.paths.iter().find(|p| p.path == path.path)?, s)));
        let FlowSums { sent, received } = &link.flows;
        let _ = writeln!(
            out,
            "{:<16} {:<9} {:>6.1} ms {:>5.2} % {:>11} {:>11} {:>9} {:>8}  {}",
            node.name,
            span(link.up_for),
            path.rtt,
            path.loss * 100.0,
            amount(path.sent_bytes, then.map(|(p, s)| (p.sent_bytes, s))),
            amount(path.received_bytes, then.map(|(p, s)| (p.received_bytes, s))),
            received.decoded_packets,
            sent.repair_packets,
            where_to(link, path)
        );
    }
}

/// The far address; of one of several paths the near one as well, and what is the matter with it.
fn where_to(link: &LinkReport, path: &PathReport) -> String {
    let mut text = path.remote.clone();
    if let Some(local) = path.local.as_ref().filter(|_| link.paths.len() > 1) {
        text.push_str(&format!(" from {local}"));
    }
    if path.standing != "open" {
        text.push_str(&format!(", {}", path.standing));
    }
    if path.coupled > 0 {
        text.push_str(", one bottleneck with others");
    }
    text
}

/// Bytes in all, or a rate since `then` and seconds ago.
fn amount(now: u64, then: Option<(u64, f64)>) -> String {
    match then {
        None => bytes(now as f64),
        Some((then, seconds)) => rate(now.saturating_sub(then) as f64 * 8.0 / seconds),
    }
}

fn scaled(value: f64, step: f64, units: &[&str]) -> String {
    let mut value = value;
    let mut unit = 0;
    while value >= step * 0.9995 && unit + 1 < units.len() {
        value /= step;
        unit += 1;
    }
    let digits = if unit == 0 || value >= 100.0 { 0 } else { 1 };
    format!("{value:.digits$} {}", units[unit])
}

fn bytes(value: f64) -> String {
    scaled(value, 1024.0, &["B", "KiB", "MiB", "GiB", "TiB"])
}

fn rate(bits: f64) -> String {
    scaled(bits, 1000.0, &["bit/s", "kbit/s", "Mbit/s", "Gbit/s"])
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
    use super::*;

    #[test]
    fn amounts_and_spans_are_short() {
        assert_eq!([bytes(0.0), bytes(1023.9), bytes(1536.0), bytes(3.0e9)], ["0 B", "1.0 KiB", "1.5 KiB", "2.8 GiB"]);
        assert_eq!([rate(999.0), rate(94.13e6)], ["999 bit/s", "94.1 Mbit/s"]);
        assert_eq!([span(59.9), span(61.0), span(7322.0), span(90_000.0)], ["59s", "1m01s", "2h02m", "1d01h"]);
    }
}

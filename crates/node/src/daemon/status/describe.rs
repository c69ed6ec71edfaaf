//! Describes a node's file in words.

use super::super::config::{Config, OneWay, TunTcp};
use super::table::join;
use crate::units::rate;
use noctule::PublicKey;
use std::fmt::Write;

/// The description that `noctule node --check` prints.
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
                "  one way to {}: to {} at {}, blocks of {} packets in batches of {}, {:.2} datagrams for each packet at full rate (more when few packets come)",
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
            if tun.tcp == TunTcp::Split {
                out.push_str("  TCP into the tunnel becomes streams, towards nodes whose file says tcp = \"split\" too; it goes as packets to others\n");
            }
        }
        None if config.addresses.is_empty() => out.push_str("  no tunnel\n"),
        // Said because an unanswered `ping` would be hard to explain at the far end.
        None => {
            let _ = writeln!(
                out,
                "  no tunnel: {addresses} will not answer a ping, and carry no traffic of this host; add [tun] if they should"
            );
        }
    }
    out.push_str("nothing is wrong with the file\n");
    out
}

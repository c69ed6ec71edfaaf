//! The rules: one table of our own for each device, and one rule and one route of policy routing.
//!
//! What begins is diverted if its destination belongs to a node that splits, and its route leaves by the device: of this host's programs that is known in
//! the output hook, of what is forwarded the table of routes is asked (`fib`). So routes that come and go are followed by themselves, and what another route
//! takes is left alone. The connection keeps a mark, and later packets follow that (decision 200).
//!
//! Connections that this node dials for others have the client's address. Answers to them are led back to this host by a mark of theirs.

use crate::daemon::tunnel;
use crate::divert::{self, Chain, DIALLED_MARKS, Found, MARKS_MASK, NODE_MARKS, OWN_MARK, PROXY_MARK, Policy, SYN, Set, Table};
use noctule_proxy::split::Ports;
use std::collections::BTreeSet;
use std::net::IpAddr;

/// By this a table is known to be ours.
const COMMENT: &str = "made by noctule node";
/// Before the rules of the tunnel, and of the proxy.
pub const PRIORITY: u32 = 5108;
/// Routing tables for diverted packets have numbers from here on, one for each device.
const FIRST_TABLE: u32 = 0x6e71_0000;

/// See the file's heading.
pub struct Rules {
    device: String,
    /// Of the device: its table, marks and routing table are told from those of others by it.
    number: u32,
    /// Leads diverted packets to this host.
    pub policy: Policy,
}

fn policy_of(number: u32) -> Policy {
    Policy { mark: NODE_MARKS + number, priority: PRIORITY, table: FIRST_TABLE + number }
}

/// The table by its name.
fn named(number: u32) -> Table {
    Table::named(format!("inet noctule_node_{number:04x}"), COMMENT)
}

impl Rules {
    /// Those of a device.
    pub fn of(device: &str) -> Self {
        let number = tunnel::number_of(device);
        Self { device: device.to_owned(), number, policy: policy_of(number) }
    }

    /// Mark of what this node dials for others.
    pub fn dialled_mark(&self) -> u32 {
        DIALLED_MARKS + self.number
    }

    /// The table by its name.
    pub fn name(&self) -> Table {
        named(self.number)
    }

    /// The table that diverts connections to these targets, given as intervals, to these ports.
    pub fn table(&self, ports: Ports, targets: &[(IpAddr, IpAddr)]) -> Table {
        let set = |(name, kind, is_v4): (_, _, bool)| {
            let interval = |(first, last): &(IpAddr, IpAddr)| if first == last { first.to_string() } else { format!("{first}-{last}") };
            Set { name, kind, elements: targets.iter().filter(|(first, _)| first.is_ipv4() == is_v4).map(interval).collect() }
        };
        let mut sets: Vec<Set> = [("split4", "ipv4_addr", true), ("split6", "ipv6_addr", false)].map(set).into();
        if ports.v6.is_none() {
            // There is no listener of IPv6: its packets are carried.
            sets[1].elements.clear();
        }
        Table { sets, chains: self.chains(ports), ..self.name() }
    }

    fn chains(&self, ports: Ports) -> Vec<Chain> {
        let device = &self.device;
        let (diverted, dialled) = (format!("{:#x}", self.policy.mark), format!("{:#x}", self.dialled_mark()));
        let mut divert =
            vec![format!("meta mark set {diverted} meta nfproto ipv4 meta l4proto tcp tproxy ip to 127.0.0.1:{} accept", ports.v4)];
        if let Some(port) = ports.v6 {
            divert.push(format!("meta mark set {diverted} meta nfproto ipv6 meta l4proto tcp tproxy ip6 to [::1]:{port} accept"));
        }
        // The node was killed: its programs hear of it at once.
        divert.push("meta l4proto tcp reject with tcp reset".into());
        // Answers to what was dialled for others, and errors that are about it.
        let back = format!("ct direction reply ct mark {dialled} meta mark set {diverted} accept");
        let begins = |condition: &str, then: &str| {
            ["ip daddr @split4", "ip6 daddr @split6"].map(|targets| format!("{SYN} {targets}{condition} ct mark set {diverted} {then}"))
        };
        let mut own = vec![
            format!("meta mark {{ {OWN_MARK:#x}, {PROXY_MARK:#x} }} return"),
            back.clone(),
            "ct direction reply return".into(),
            // What was dialled for others does not go on to a third node.
            format!("meta l4proto tcp meta mark {dialled} oifname \"{device}\" reject with tcp reset"),
            format!("meta mark {dialled} ct mark set {dialled} return"),
            // Another node of this host has dialled it: by this device it goes on as packets.
            format!("meta mark & {MARKS_MASK:#x} == {DIALLED_MARKS:#x} return"),
            format!("meta l4proto tcp ct mark {diverted} meta mark set {diverted} accept"),
            format!("oifname != \"{device}\" return"),
        ];
        // The mark leads it back in by the loopback device (ip rule).
        own.extend(begins("", &format!("meta mark set {diverted} accept")));
        let mut arriving = vec![
            format!("iifname \"lo\" ct direction original meta mark {diverted} jump divert"),
            // What comes out of the tunnel is not for the tunnel.
            format!("iifname {{ \"lo\", \"{device}\" }} return"),
            format!("meta mark {PROXY_MARK:#x} return"),
            back,
            // Errors about what this node sends to the client in the target's name.
            format!("meta l4proto {{ icmp, ipv6-icmp }} ct state related ct mark {diverted} meta mark set {diverted} accept"),
            "ct direction reply return".into(),
            format!("meta l4proto tcp ct mark {diverted} jump divert"),
        ];
        arriving.extend(begins(&format!(" fib daddr . mark oifname \"{device}\""), "jump divert"));
        // Behind the proxy's: what that intercepts is the proxy's.
        vec![
            Chain { name: "divert", hook: None, rules: divert },
            Chain { name: "own", hook: Some("type route hook output priority mangle + 1; policy accept;"), rules: own },
            Chain { name: "arriving", hook: Some("type filter hook prerouting priority mangle + 1; policy accept;"), rules: arriving },
        ]
    }

    /// Takes all of it away.
    pub async fn take_away(&self) {
        take_away(self.number).await;
    }
}

async fn take_away(number: u32) {
    if let Err(error) = tokio::task::block_in_place(|| named(number).delete()) {
        tracing::warn!("rules for TCP as streams may be left: {error}");
    }
    if let Err(error) = policy_of(number).clear().await {
        tracing::warn!("{error}");
    }
}

/// Takes away what a killed node has left, of this device or of one that is not there any more. The rule of the routing says that there is something: a host
/// without it needs no nft.
pub async fn sweep(device: &str) {
    let (own, living) = (tunnel::number_of(device), tunnel::numbers_of_devices().await);
    let tables = match divert::tables_at(PRIORITY).await {
        Ok(tables) => tables,
        Err(error) => return tracing::warn!("{error}"),
    };
    let numbers: BTreeSet<u32> = tables.into_iter().filter_map(|table| table.checked_sub(FIRST_TABLE)).filter(|n| *n <= 0xffff).collect();
    // Somebody may have removed the rule of the routing, and the table matches the new device by its name. A host without nft has no table.
    let is_there = || named(own).find().is_ok_and(|found| matches!(found, Found::Ours { .. }));
    let orphan = (!numbers.contains(&own) && tokio::task::block_in_place(is_there)).then_some(own);
    for number in numbers.into_iter().chain(orphan) {
        if number == own || living.as_ref().is_some_and(|living| !living.contains(&number)) {
            tracing::info!(
                table = named(number).name,
                "a node that did not end by itself has left rules for TCP as streams; they are taken away"
            );
            take_away(number).await;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_begins_is_diverted_by_target_and_route() {
        let rules = Rules::of("tun-7");
        let ip = |text: &str| text.parse::<IpAddr>().unwrap();
        let targets = [(ip("10.9.0.2"), ip("10.9.0.2")), (ip("10.0.0.0"), ip("10.0.0.255")), (ip("fd09::2"), ip("fd09::5"))];
        let mark = rules.policy.mark;
        let table = rules.table(Ports { v4: 4000, v6: Some(4001) }, &targets);
        let text = table.script(false);
        for line in [
            "elements = { 10.9.0.2, 10.0.0.0-10.0.0.255 }",
            "elements = { fd09::2-fd09::5 }",
            "oifname != \"tun-7\" return",
            &format!("meta mark set {mark:#x} meta nfproto ipv6 meta l4proto tcp tproxy ip6 to [::1]:4001 accept"),
            &format!(
                "tcp flags & (fin | syn | rst | ack) == syn ip daddr @split4 fib daddr . mark oifname \"tun-7\" ct mark set {mark:#x} jump divert"
            ),
        ] {
            assert!(text.contains(&format!("\t\t{line}\n")), "{line} in\n{text}");
        }
        let other = Rules::of("tun-8");
        assert!(table.name != other.name().name && mark != other.policy.mark, "each device has a table and marks");
        assert!(!rules.table(Ports { v4: 1, v6: None }, &[]).script(false).contains("elements"));
        let without = rules.table(Ports { v4: 1, v6: None }, &targets);
        assert!(without.sets[1].elements.is_empty() && !without.sets[0].elements.is_empty(), "without IPv6 its packets are carried");
    }
}

//! The rules for nft: one table of our own, `inet noctule_proxy`.
//!
//! Only what begins is diverted: the first packet of a connection marks it, and the later ones follow its mark. Connections that stood before the rules did
//! go on as they were, and answers of this host's own servers (`ct direction reply`) are nobody's to intercept.

use super::plan::Plan;
use crate::divert::{Chain, DIALLED_MARKS, MARKS_MASK, OWN_MARK, PROXY_MARK, SYN, Set, Table};

/// Family and name of the table.
pub const TABLE: &str = "inet noctule_proxy";
/// By this a table is known to be ours.
pub const COMMENT: &str = "made by noctule proxy";
/// The table of a plan.
pub fn table(plan: &Plan) -> Table {
    let set = |(name, kind, is_v4)| Set { name, kind, elements: plan.nets_of(is_v4).map(ToString::to_string).collect() };
    let sets = [("nets4", "ipv4_addr", true), ("nets6", "ipv6_addr", false)].map(set).into();
    Table { sets, chains: chains(plan), ..Table::named(TABLE.into(), COMMENT) }
}

/// The chains of a plan.
fn chains(plan: &Plan) -> Vec<Chain> {
    let diverted = format!("{PROXY_MARK:#x}");
    let by_tproxy = plan.by_tproxy();
    let mut chains = vec![Chain { name: "excluded", hook: None, rules: excluded(plan) }];
    if !by_tproxy.is_empty() {
        let protocols = format!("meta l4proto {{ {} }}", by_tproxy.join(", "));
        let to = |family: &str, ip: &str| format!("meta nfproto {family} {protocols} tproxy {ip}:{} accept", plan.port);
        let divert = [to("ipv4", "ip to 127.0.0.1"), to("ipv6", "ip6 to [::1]")];
        let mut rules: Vec<String> = divert.into_iter().map(|rule| format!("meta mark set {diverted} {rule}")).collect();
        // Where nobody listens any more, tproxy passes a packet on: it is refused, and not forwarded beside the proxy.
        rules.extend(["meta l4proto tcp reject with tcp reset", "reject"].map(String::from));
        chains.push(Chain { name: "divert", hook: None, rules });
    }
    // What decides about a packet that may be the first of something.
    let decide = |then: &dyn Fn(&str) -> String| {
        let mut rules = vec!["ct direction reply return".to_owned()];
        if by_tproxy.contains(&"tcp") {
            rules.push(format!("meta l4proto tcp ct mark {diverted} {}", then("")));
        }
        rules.push("jump excluded".into());
        if by_tproxy.contains(&"tcp") {
            rules.push(format!("{SYN} {}", then(&format!("ct mark set {diverted} "))));
        }
        if by_tproxy.contains(&"udp") {
            rules.push(format!("meta l4proto udp {}", then("")));
        }
        rules
    };
    let of_devices = plan.clients.as_ref().filter(|devices| !devices.is_empty()).map(|devices| {
        let names: Vec<String> = devices.iter().map(|device| format!("\"{device}\"")).collect();
        format!("iifname != {{ {} }} return", names.join(", "))
    });
    let redirect = [String::from("jump excluded"), format!("{SYN} redirect to :{}", plan.port)];
    if plan.own {
        // What a node dials for others is not for the proxy either.
        let ours = [format!("meta mark {OWN_MARK:#x} return"), format!("meta mark & {MARKS_MASK:#x} == {DIALLED_MARKS:#x} return")];
        if !by_tproxy.is_empty() {
            // The mark leads it back in by the loopback device (ip rule).
            let rules = decide(&|first: &str| format!("{first}meta mark set {diverted} accept"));
            let rules = ours.clone().into_iter().chain(programs(plan)).chain(rules).collect();
            chains.push(Chain { name: "own", hook: Some("type route hook output priority mangle; policy accept;"), rules });
        }
        if plan.redirects() {
            let rules = ours.into_iter().chain(programs(plan)).chain(redirect.clone()).collect();
            chains.push(Chain { name: "own_redirect", hook: Some("type nat hook output priority -100; policy accept;"), rules });
        }
    }
    if !by_tproxy.is_empty() {
        let mut rules = Vec::new();
        if plan.own {
            rules.push(format!("iifname \"lo\" meta mark {diverted} jump divert"));
        }
        if plan.clients.is_some() {
            rules.push("iifname \"lo\" return".into());
            rules.extend(of_devices.clone());
            rules.extend(decide(&|first: &str| format!("{first}jump divert")));
        }
        chains.push(Chain { name: "arriving", hook: Some("type filter hook prerouting priority mangle; policy accept;"), rules });
    }
    if plan.redirects() && plan.clients.is_some() {
        let rules = [String::from("iifname \"lo\" return")].into_iter().chain(of_devices).chain(redirect).collect();
        chains.push(Chain { name: "arriving_redirect", hook: Some("type nat hook prerouting priority -100; policy accept;"), rules });
    }
    chains
}

/// What is left alone: accepted here, and by no other table's rules.
fn excluded(plan: &Plan) -> Vec<String> {
    let mut rules: Vec<String> =
        ["fib daddr type { local, broadcast, multicast } accept", "ip daddr @nets4 accept", "ip6 daddr @nets6 accept"]
            .map(String::from)
            .into();
    if !plan.ports.is_empty() {
        let ports: Vec<String> = plan.ports.iter().map(|(first, last)| range(*first, *last)).collect();
        rules.push(format!("meta l4proto {{ tcp, udp }} th dport {{ {} }} accept", ports.join(", ")));
    }
    rules
}

fn range(first: u16, last: u16) -> String {
    if first == last { first.to_string() } else { format!("{first}-{last}") }
}

/// Programs of this host that are left alone.
fn programs(plan: &Plan) -> Vec<String> {
    let users: Vec<String> = plan.users.iter().map(u32::to_string).collect();
    let users = (!users.is_empty()).then(|| format!("meta skuid {{ {} }} accept", users.join(", ")));
    let group = |path: &String| format!("socket cgroupv2 level {} \"{path}\" accept", path.split('/').count());
    users.into_iter().chain(plan.cgroups.iter().map(group)).collect()
}

#[cfg(test)]
mod tests {
    use super::super::plan::tests::plan;
    use super::*;

    #[test]
    fn rules_say_what_the_plan_does() {
        let text = table(
            &plan("--intercept own --intercept-udp tproxy --exclude port:22 --exclude port:60-70 --exclude user:5 --exclude cgroup:a/b")
                .unwrap(),
        )
        .script(false);
        for line in [
            "meta mark 0x6e6f0001 return",
            "meta mark & 0xffff0000 == 0x6e730000 return",
            "meta skuid { 5 } accept",
            "socket cgroupv2 level 2 \"a/b\" accept",
            "meta l4proto { tcp, udp } th dport { 22, 60-70 } accept",
            "tcp flags & (fin | syn | rst | ack) == syn ct mark set 0x6e6f0002 meta mark set 0x6e6f0002 accept",
            "meta mark set 0x6e6f0002 meta nfproto ipv6 meta l4proto { tcp, udp } tproxy ip6 to [::1]:4243 accept",
        ] {
            assert!(text.contains(&format!("\t\t{line}\n")), "{line} in\n{text}");
        }
        assert!(text.contains("192.0.2.7") && !text.contains("owner") && !text.contains("hook prerouting priority -100"));
        let text = table(&plan("--intercept clients:br0 --intercept-tcp redirect").unwrap()).script(true);
        assert!(text.contains("iifname != { \"br0\" } return") && text.contains("redirect to :4243") && !text.contains("tproxy"), "{text}");
        assert!(text.contains("flags owner") && !text.contains("hook output"), "{text}");
    }
}

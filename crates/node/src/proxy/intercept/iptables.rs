//! The same rules for iptables, as a script of a shell: for hosts whose rules another tool makes. `noctule proxy` itself installs none of these.

use super::POLICY;
use super::plan::Plan;
use crate::divert::{DIALLED_MARKS, MARKS_MASK, OWN_MARK, PROXY_MARK};
use std::fmt::Write;

const SYN: &str = "-p tcp --tcp-flags FIN,SYN,RST,ACK SYN";
/// Chains of ours: name, table, the chain that leads there.
const CHAINS: [(&str, &str, &str); 4] = [
    ("NOCTULE_OWN", "mangle", "OUTPUT"),
    ("NOCTULE_ARRIVING", "mangle", "PREROUTING"),
    ("NOCTULE_OWN_NAT", "nat", "OUTPUT"),
    ("NOCTULE_ARR_NAT", "nat", "PREROUTING"),
];

/// The script.
pub fn script(plan: &Plan) -> String {
    let mut out =
        String::from("# Rules of noctule proxy. Run it as root, once; the lines at its end take everything away again.\nset -e\n");
    let mut removal = String::new();
    let (table, priority) = (POLICY.table, POLICY.priority);
    let has_tproxy = !plan.by_tproxy().is_empty();
    for (is_v4, tables, ip) in [(true, "iptables", "ip"), (false, "ip6tables", "ip -6")] {
        if has_tproxy {
            let _ = writeln!(out, "{ip} rule add fwmark {PROXY_MARK:#x} lookup {table} priority {priority}");
            let _ = writeln!(out, "{ip} route add local default dev lo table {table}");
            let _ = writeln!(removal, "# {ip} rule del fwmark {PROXY_MARK:#x} lookup {table} priority {priority}");
            let _ = writeln!(removal, "# {ip} route del local default dev lo table {table}");
        }
        for (chain, table, from) in CHAINS {
            let rules = rules(plan, chain, is_v4);
            if rules.is_empty() {
                continue;
            }
            let run = format!("{tables} -w -t {table}");
            let _ = writeln!(out, "{run} -N {chain}");
            for rule in rules {
                let _ = writeln!(out, "{run} -A {chain} {rule}");
            }
            let _ = writeln!(out, "{run} -A {from} -j {chain}");
            let _ = writeln!(removal, "# {run} -D {from} -j {chain}; {run} -F {chain}; {run} -X {chain}");
        }
    }
    out + "# To take it away:\n" + &removal
}

fn rules(plan: &Plan, chain: &str, is_v4: bool) -> Vec<String> {
    let by_tproxy = plan.by_tproxy();
    let is_own = chain.starts_with("NOCTULE_OWN");
    let is_nat = chain.ends_with("_NAT");
    let is_wanted = if is_nat { plan.redirects() } else { !by_tproxy.is_empty() };
    let has_clients = plan.clients.is_some();
    // What this host's programs send comes back in by the loopback device.
    if !is_wanted || is_own && !plan.own || !is_own && is_nat && !has_clients {
        return Vec::new();
    }
    let mut rules = Vec::new();
    let tproxy = |protocol: &str, before: &str| {
        let ip = if is_v4 { "127.0.0.1" } else { "::1" };
        format!("{before} -p {protocol} -j TPROXY --on-ip {ip} --on-port {} --tproxy-mark {PROXY_MARK:#x}", plan.port)
    };
    if is_own {
        rules.push(format!("-m mark --mark {OWN_MARK:#x} -j RETURN"));
        // What a node dials for others is not for the proxy either.
        rules.push(format!("-m mark --mark {DIALLED_MARKS:#x}/{MARKS_MASK:#x} -j RETURN"));
        rules.extend(plan.users.iter().map(|user| format!("-m owner --uid-owner {user} -j RETURN")));
        rules.extend(plan.cgroups.iter().map(|path| format!("-m cgroup --path {path} -j RETURN")));
    } else {
        if !is_nat && plan.own {
            rules.extend(by_tproxy.iter().map(|protocol| tproxy(protocol, &format!("-i lo -m mark --mark {PROXY_MARK:#x}"))));
        }
        if !has_clients {
            return rules;
        }
        rules.push("-i lo -j RETURN".into());
    }
    // Of which devices: one copy of what follows for each.
    let devices: Vec<String> = match plan.clients.as_deref().filter(|devices| !is_own && !devices.is_empty()) {
        Some(devices) => devices.iter().map(|device| format!("-i {device} ")).collect(),
        None => vec![String::new()],
    };
    for from in devices {
        let mut add = |rule: String| rules.push(format!("{from}{rule}"));
        if !is_nat {
            add("-m conntrack --ctdir REPLY -j RETURN".into());
        }
        let then = |protocol: &str, before: String| match is_own {
            true => format!("{before} -p {protocol} -j MARK --set-mark {PROXY_MARK:#x}"),
            false => tproxy(protocol, &before),
        };
        let is_tcp = !is_nat && by_tproxy.contains(&"tcp");
        let diverted = format!("-m connmark --mark {PROXY_MARK:#x}");
        if is_tcp {
            add(then("tcp", diverted.clone()));
            // To mark it is not the end of it, and to leave it alone may be decided below.
            add(format!("{diverted} -p tcp -j RETURN"));
        }
        // IPv6 has no broadcast, and its tables do not know the word.
        for kind in ["LOCAL", "MULTICAST", "BROADCAST"].iter().take(if is_v4 { 3 } else { 2 }) {
            add(format!("-m addrtype --dst-type {kind} -j RETURN"));
        }
        plan.nets_of(is_v4).for_each(|net| add(format!("-d {net} -j RETURN")));
        for (first, last) in &plan.ports {
            for protocol in ["tcp", "udp"] {
                add(format!("-p {protocol} --dport {first}:{last} -j RETURN"));
            }
        }
        if is_nat {
            add(format!("{SYN} -j REDIRECT --to-ports {}", plan.port));
        }
        if is_tcp {
            add(format!("{SYN} -j CONNMARK --set-mark {PROXY_MARK:#x}"));
            add(then("tcp", diverted));
        }
        if !is_nat && plan.udp {
            add(then("udp", String::new()));
        }
    }
    rules
}

#[cfg(test)]
mod tests {
    use super::super::plan::tests::plan;
    use super::*;

    #[test]
    fn the_script_has_both_families_and_takes_itself_away() {
        let text =
            script(&plan("--intercept own --intercept clients:br0 --intercept-udp tproxy --exclude port:22 --exclude user:5").unwrap());
        for line in [
            "iptables -w -t mangle -A NOCTULE_OWN -m mark --mark 0x6e6f0001 -j RETURN",
            "ip6tables -w -t mangle -A NOCTULE_OWN -m owner --uid-owner 5 -j RETURN",
            "iptables -w -t mangle -A NOCTULE_OWN -d 192.0.2.7/32 -j RETURN",
            "iptables -w -t mangle -A NOCTULE_ARRIVING -i br0 -p udp --dport 22:22 -j RETURN",
            "ip -6 route add local default dev lo table 1852833793",
            "# iptables -w -t mangle -D OUTPUT -j NOCTULE_OWN; iptables -w -t mangle -F NOCTULE_OWN; iptables -w -t mangle -X NOCTULE_OWN",
        ] {
            assert!(text.lines().any(|l| l == line), "{line} in\n{text}");
        }
        assert!(!text.contains("-t nat"));
    }
}

//! What a killed node has left in the kernel: rules and routes outlive their process. A node that starts, on whatever port and device, takes them away, and
//! leaves alone what a living node of the same host needs.

use super::kernel_state::{Broken, FIRST_TABLE, INTO_TUNNEL, OWN_PACKETS, PROTOCOL, facts, refused, rule_facts, table_of, unless};
use futures_util::TryStreamExt;
use rtnetlink::packet_route::link::LinkAttribute;
use rtnetlink::packet_route::rule::RuleMessage;
use rtnetlink::{Handle, IpVersion, RouteMessageBuilder};
use std::collections::BTreeSet;
use std::net::{Ipv4Addr, Ipv6Addr};

/// Takes away rules and routes of nodes that are gone. `own`: the ports of this node. Says what it took, one line each.
///
/// # Errors
/// The kernel refuses it.
pub async fn sweep(netlink: &Handle, own: &BTreeSet<u16>) -> Result<Vec<String>, Broken> {
    let living = tables_of_devices(netlink).await?;
    let bound = bound_ports();
    let mut done = Vec::new();
    for family in [IpVersion::V4, IpVersion::V6] {
        let is_v6 = matches!(family, IpVersion::V6);
        // A host without IPv6 has nothing of it to take away.
        let rules = match netlink.rule().get(family).execute().try_collect::<Vec<RuleMessage>>().await {
            Err(_) if is_v6 => continue,
            rules => rules.map_err(refused("read the kernel's rules"))?,
        };
        let ours: Vec<_> = rules.into_iter().filter_map(|rule| Some((rule_facts(&rule)?, rule))).collect();
        // Rules by port serve the tunnels whose rules come after them.
        let is_anybody_there = ours.iter().any(|((place, table, _), _)| *place == INTO_TUNNEL && living.contains(table));
        for ((place, table, port), rule) in ours {
            let is_left = match (place, port) {
                (INTO_TUNNEL, None) => !living.contains(&table),
                (OWN_PACKETS, Some(port)) => {
                    !own.contains(&port) && (!is_anybody_there || bound.as_ref().is_some_and(|bound| !bound.contains(&port)))
                }
                _ => false,
            };
            if is_left {
                let removed = netlink.rule().del(rule).execute().await;
                unless(libc::ENOENT, removed).map_err(refused(format_args!("remove the rule {place}")))?;
                done.push(match port {
                    Some(port) => format!("rule {place} for port {port} removed"),
                    None => format!("rule {place} into table {table} removed"),
                });
            }
        }
        let request = match is_v6 {
            false => RouteMessageBuilder::<Ipv4Addr>::new().build(),
            true => RouteMessageBuilder::<Ipv6Addr>::new().build(),
        };
        let routes: Vec<_> = netlink.route().get(request).execute().try_collect().await.map_err(refused("read the kernel's routes"))?;
        for route in routes.into_iter().filter(|route| route.header.protocol == PROTOCOL) {
            let Some((table, net, _)) = facts(&route) else { continue };
            if (FIRST_TABLE..=FIRST_TABLE + 0xffff).contains(&table) && !living.contains(&table) {
                unless(libc::ESRCH, netlink.route().del(route).execute().await)
                    .map_err(refused(format_args!("remove the route to {net}")))?;
                done.push(format!("route to {net} in table {table} removed"));
            }
        }
    }
    Ok(done)
}

/// Tables that belong to devices which are there.
async fn tables_of_devices(netlink: &Handle) -> Result<BTreeSet<u32>, Broken> {
    let mut tables = BTreeSet::new();
    let mut links = netlink.link().get().execute();
    while let Some(link) = links.try_next().await.map_err(refused("read the host's devices"))? {
        tables.extend(link.attributes.iter().filter_map(|a| if let LinkAttribute::IfName(name) = a { Some(table_of(name)) } else { None }));
    }
    Ok(tables)
}

/// Numbers of the devices that are there; `None` where the kernel does not say.
pub async fn numbers_of_devices() -> Option<BTreeSet<u32>> {
    let (connection, netlink, _) = rtnetlink::new_connection().ok()?;
    tokio::spawn(connection);
    Some(tables_of_devices(&netlink).await.ok()?.into_iter().map(|table| table - FIRST_TABLE).collect())
}

/// UDP ports that a socket of this host is bound to; `None` where the system does not say.
fn bound_ports() -> Option<BTreeSet<u16>> {
    let v4 = std::fs::read_to_string("/proc/self/net/udp").ok()?;
    // Not there without IPv6.
    let v6 = std::fs::read_to_string("/proc/self/net/udp6").unwrap_or_default();
    Some(v4.lines().chain(v6.lines()).filter_map(port_of).collect())
}

/// The local port of a line of `/proc/net/udp`: `sl  local_address rem_address …`, both in hexadecimal (proc_net_tcp.txt of the kernel).
fn port_of(line: &str) -> Option<u16> {
    let (_, port) = line.split_whitespace().nth(1)?.rsplit_once(':')?;
    u16::from_str_radix(port, 16).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_bound_port_is_found() {
        let socket = std::net::UdpSocket::bind("127.0.0.1:0").unwrap();
        let bound = bound_ports().expect("Linux has /proc");
        assert!(bound.contains(&socket.local_addr().unwrap().port()));
        assert_eq!(port_of("  sl  local_address rem_address   st tx_queue"), None);
    }
}

//! The kernel's routing table, followed live: a routing daemon (babeld, FRR) writes it, the node's routes follow it.
//!
//! A route counts if its next hop is a neighbour: by an address of the neighbour in the overlay, by the address that its link runs to, or by one
//! that the file lists under `next-hops`. Its metric is the kernel's. Nothing is written to the table.

use super::config::KernelRoutes;
use futures_util::{StreamExt, TryStreamExt};
use ipnet::IpNet;
use rtnetlink::packet_route::route::{RouteAddress, RouteAttribute, RouteMessage, RouteType, RouteVia};
use rtnetlink::{Handle, MulticastGroup, RouteMessageBuilder, new_multicast_connection};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::time::Duration;
use tokio::sync::watch;

/// Routing daemons change many routes in a row: the table is read after so long without a change.
const SETTLE: Duration = Duration::from_millis(20);
/// The table is read at least this often: a netlink socket that overflowed reports no changes.
const REREAD: Duration = Duration::from_secs(30);
/// Pause after an error.
const RETRY: Duration = Duration::from_secs(2);

/// A route of the kernel's table, one for each of its next hops.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct KernelRoute {
    /// Destinations that it leads to.
    pub to: IpNet,
    /// The next router's address.
    pub next_hop: IpAddr,
    /// Index of the device.
    pub device: u32,
    /// Smaller first.
    pub metric: u32,
}

/// Follows the table, and never returns; `routes` gets every new state of it.
pub async fn follow(config: KernelRoutes, routes: watch::Sender<Vec<KernelRoute>>) {
    loop {
        let error = match follow_once(&config, &routes).await {
            Ok(()) => "the netlink socket was closed".to_owned(),
            Err(error) => error,
        };
        tracing::warn!(table = config.table, error, "cannot follow the kernel's routes; trying again");
        tokio::time::sleep(RETRY).await;
    }
}

async fn follow_once(config: &KernelRoutes, routes: &watch::Sender<Vec<KernelRoute>>) -> Result<(), String> {
    let groups = [MulticastGroup::Ipv4Route, MulticastGroup::Ipv6Route, MulticastGroup::Link];
    let (connection, netlink, mut news) = new_multicast_connection(&groups).map_err(|e| e.to_string())?;
    tokio::spawn(connection);
    loop {
        let found = read(&netlink, config).await?;
        routes.send_if_modified(|old| {
            let is_new = *old != found;
            if is_new {
                tracing::info!(table = config.table, routes = found.len(), "the kernel's routes changed");
                *old = found;
            }
            is_new
        });
        match tokio::time::timeout(REREAD, news.next()).await {
            Ok(None) => return Ok(()),
            Ok(Some(_)) => {
                tokio::time::sleep(SETTLE).await;
                while let Ok(Some(_)) = tokio::time::timeout(Duration::ZERO, news.next()).await {}
            }
            Err(_) => {}
        }
    }
}

async fn read(netlink: &Handle, config: &KernelRoutes) -> Result<Vec<KernelRoute>, String> {
    let device = match &config.interface {
        None => None,
        Some(name) => match netlink.link().get().match_name(name.clone()).execute().try_next().await {
            Ok(Some(link)) => Some(link.header.index),
            // The device does not exist yet, or is gone: no routes.
            _ => return Ok(Vec::new()),
        },
    };
    let mut found = Vec::new();
    for request in [RouteMessageBuilder::<Ipv4Addr>::new().build(), RouteMessageBuilder::<Ipv6Addr>::new().build()] {
        let mut answers = netlink.route().get(request).execute();
        while let Some(message) = answers.try_next().await.map_err(|e| e.to_string())? {
            found.extend(routes_of(&message, config.table).into_iter().filter(|r| device.is_none_or(|d| d == r.device)));
        }
    }
    found.sort();
    found.dedup();
    Ok(found)
}

/// The routes of one message of the kernel, if it belongs to the table and leads anywhere.
fn routes_of(message: &RouteMessage, table: u32) -> Vec<KernelRoute> {
    let address = |a: &RouteAddress| match a {
        RouteAddress::Inet(v4) => Some(IpAddr::from(*v4)),
        RouteAddress::Inet6(v6) => Some(IpAddr::from(*v6)),
        _ => None,
    };
    let (mut to, mut metric, mut number) = (None, 0, u32::from(message.header.table));
    for attribute in &message.attributes {
        match attribute {
            RouteAttribute::Destination(a) => to = address(a),
            RouteAttribute::Priority(p) => metric = *p,
            RouteAttribute::Table(t) => number = *t,
            _ => {}
        }
    }
    if number != table || message.header.kind != RouteType::Unicast {
        return Vec::new();
    }
    let unspecified = match message.header.address_family {
        rtnetlink::packet_route::AddressFamily::Inet => IpAddr::V4(Ipv4Addr::UNSPECIFIED),
        rtnetlink::packet_route::AddressFamily::Inet6 => IpAddr::V6(Ipv6Addr::UNSPECIFIED),
        _ => return Vec::new(),
    };
    let Ok(to) = IpNet::new(to.unwrap_or(unspecified), message.header.destination_prefix_length) else { return Vec::new() };
    let hop = |attributes: &[RouteAttribute], device: Option<u32>| {
        let mut next = None;
        let mut device = device;
        for attribute in attributes {
            match attribute {
                RouteAttribute::Gateway(a) => next = address(a),
                RouteAttribute::Via(RouteVia::Inet(v4)) => next = Some((*v4).into()),
                RouteAttribute::Via(RouteVia::Inet6(v6)) => next = Some((*v6).into()),
                RouteAttribute::Oif(index) => device = Some(*index),
                _ => {}
            }
        }
        Some(KernelRoute { to, next_hop: next?, device: device?, metric })
    };
    let mut routes: Vec<KernelRoute> = hop(&message.attributes, None).into_iter().collect();
    for attribute in &message.attributes {
        if let RouteAttribute::MultiPath(hops) = attribute {
            routes.extend(hops.iter().filter_map(|h| hop(&h.attributes, Some(h.interface_index))));
        }
    }
    routes
}

#[cfg(test)]
mod tests {
    use super::*;
    use rtnetlink::RouteNextHopBuilder;

    fn message(table: u32) -> RouteMessageBuilder<Ipv4Addr> {
        RouteMessageBuilder::<Ipv4Addr>::new().destination_prefix("10.9.0.3".parse().unwrap(), 32).table_id(table).priority(7)
    }

    #[test]
    fn a_route_with_a_gateway_in_the_table_counts_and_no_other() {
        let gateway: Ipv4Addr = "192.0.2.2".parse().unwrap();
        let found = routes_of(&message(42).gateway(gateway).output_interface(3).build(), 42);
        assert_eq!(found, [KernelRoute { to: "10.9.0.3/32".parse().unwrap(), next_hop: gateway.into(), device: 3, metric: 7 }]);
        assert!(routes_of(&message(43).gateway(gateway).output_interface(3).build(), 42).is_empty());
        assert!(routes_of(&message(42).output_interface(3).build(), 42).is_empty(), "no next hop");
        assert!(routes_of(&message(42).kind(RouteType::BlackHole).gateway(gateway).output_interface(3).build(), 42).is_empty());
    }

    #[test]
    fn every_next_hop_is_a_route_of_its_own_and_tables_beyond_255_are_found() {
        let hops =
            ["192.0.2.2", "192.0.2.3"].map(|a| RouteNextHopBuilder::new_ipv4().interface(3).via(a.parse().unwrap()).unwrap().build());
        let found = routes_of(&message(1000).multipath(hops.to_vec()).build(), 1000);
        assert_eq!(found.iter().map(|r| r.next_hop.to_string()).collect::<Vec<_>>(), ["192.0.2.2", "192.0.2.3"]);
    }
}

//! The node's routes: those of the file, those of the kernel's table, and one to every neighbour's own addresses.

use super::Daemon;
use super::kernel::KernelRoute;
use super::peer::Peer;
use ipnet::IpNet;
use noctule::{PublicKey, Route, Via};
use std::net::IpAddr;
use std::sync::Arc;

/// Where a route comes from.
#[derive(Clone, Copy, Debug, PartialEq, Eq, serde::Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Origin {
    /// The neighbour's own address, over its link.
    Neighbour,
    /// The file.
    File,
    /// The kernel's table.
    Kernel,
}

/// A route with its origin.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct NamedRoute {
    /// As the node knows it.
    pub route: Route,
    /// The neighbour's key.
    pub via: PublicKey,
    /// Where it comes from.
    pub origin: Origin,
}

/// Keeps the node's routes up to date for ever.
pub async fn keep(daemon: Arc<Daemon>) {
    let mut kernel = daemon.kernel.subscribe();
    let mut last = Vec::new();
    loop {
        let routes = daemon.routes();
        if routes != last {
            daemon.endpoint.set_routes(routes.iter().map(|r| r.route).collect());
            tracing::debug!(routes = routes.len(), "routes set");
            last = routes;
        }
        tokio::select! {
            _ = kernel.changed() => {}
            () = daemon.routes_changed.notified() => {}
            // The address that a neighbour's link runs to may have changed, and with it the neighbour that a next hop means.
            () = tokio::time::sleep(std::time::Duration::from_secs(1)) => {}
        }
    }
}

impl Daemon {
    /// Every route that the node should have now.
    pub(super) fn routes(&self) -> Vec<NamedRoute> {
        let config = self.config();
        let named =
            |to: IpNet, via: PublicKey, metric, origin| NamedRoute { route: Route { to, via: Via::Neighbour(via), metric }, via, origin };
        let mut routes = Vec::new();
        for (node, _) in config.neighbours() {
            routes.extend(node.addresses.iter().map(|a| named(IpNet::from(*a), node.key, 0, Origin::Neighbour)));
        }
        routes.extend(config.routes.iter().map(|r| named(r.to, r.via, r.metric, Origin::File)));
        let kernel = self.kernel.borrow().clone();
        if !kernel.is_empty() {
            let peers: Vec<_> = self.peers().into_iter().filter_map(|p| next_hops(&p)).collect();
            for KernelRoute { to, next_hop, metric, .. } in kernel {
                if let Some((key, _)) = peers.iter().find(|(_, hops)| hops.contains(&next_hop)) {
                    routes.push(named(to, *key, metric, Origin::Kernel));
                }
            }
        }
        routes
    }
}

/// The addresses by which the kernel's table may name a neighbour.
fn next_hops(peer: &Arc<Peer>) -> Option<(PublicKey, Vec<IpAddr>)> {
    let view = peer.view();
    let link = view.config.link?;
    let mut hops = view.config.addresses;
    hops.extend(link.next_hops);
    hops.extend(view.link.and_then(|l| l.remote_address()).map(|a| a.ip()));
    Some((peer.key, hops))
}

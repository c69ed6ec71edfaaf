//! Addresses of this node and routes to others: longest prefix first, then metric; several routes to one prefix are alternatives in order.
//!
//! No routing protocol lives here: routes come from the owner, which reads a file or the kernel's table.

use super::Node;
use crate::crypto::PublicKey;
use crate::ids::LinkId;
use crate::units::Time;
use smallvec::SmallVec;
use std::net::IpAddr;

pub use ipnet::IpNet as Prefix;

/// The link that a route leads over.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Via {
    /// This link, as long as it lives.
    Link(LinkId),
    /// The newest link that is up to the neighbour with this key: survives that either side restarts.
    Neighbour(PublicKey),
}

/// A route to the nodes whose addresses a prefix covers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Route {
    /// The node that it leads to.
    pub to: Prefix,
    /// Over which link.
    pub via: Via,
    /// Among routes to prefixes of one length the smallest is taken first.
    pub metric: u32,
}

/// Addresses and routes of a node.
#[derive(Debug, Default)]
pub(crate) struct Routing {
    addresses: Vec<IpAddr>,
    /// Best first.
    routes: Vec<Route>,
}

impl Routing {
    pub(crate) fn is_local(&self, address: IpAddr) -> bool {
        self.addresses.contains(&address)
    }

    /// The address of ours that a session to `destination` comes from: the first one of its family.
    pub(crate) fn source_for(&self, destination: IpAddr) -> Option<IpAddr> {
        self.addresses.iter().copied().find(|a| a.is_ipv4() == destination.is_ipv4())
    }

    fn set_routes(&mut self, mut routes: Vec<Route>) {
        routes.sort_by_key(|r| (core::cmp::Reverse(r.to.prefix_len()), r.metric));
        self.routes = routes;
    }

    /// Routes that cover an address, best first. Prefixes of one family never cover addresses of the other.
    fn covering(&self, destination: IpAddr) -> impl Iterator<Item = &Route> {
        self.routes.iter().filter(move |r| r.to.contains(&destination))
    }
}

impl Node {
    /// The overlay's addresses of this node, of either family: flows to them end here. The first one of a family is where sessions come from.
    pub fn set_addresses(&mut self, addresses: &[IpAddr]) {
        self.routing.addresses = addresses.to_vec();
    }

    /// Whether this is one of the overlay's addresses of this node.
    pub fn has_address(&self, address: IpAddr) -> bool {
        self.routing.addresses.contains(&address)
    }

    /// Replaces all routes.
    /// Flows whose best route changed follow it.
    pub fn set_routes(&mut self, now: Time, routes: Vec<Route>) {
        self.routing.set_routes(routes);
        self.revise_routes(now);
    }

    /// The link over which `destination` is reached now: that of the best route whose link is usable and not among `without`. A link whose
    /// neighbour has not answered for a while comes after all others.
    pub fn next_hop(&self, destination: IpAddr, without: &[LinkId]) -> Option<LinkId> {
        self.next_hop_by(destination, 0, without)
    }

    /// The same for one of several that share equally good routes: `turn` says which of these it takes first.
    pub(super) fn next_hop_by(&self, destination: IpAddr, turn: usize, without: &[LinkId]) -> Option<LinkId> {
        let covering = || self.routing.covering(destination);
        let equal = self.equal_routes(destination).count();
        let first = turn.checked_rem(equal).unwrap_or(0);
        let order = covering().take(equal).skip(first).chain(covering().take(first)).chain(covering().skip(equal));
        let mut silent = None;
        for route in order {
            let Some(link) = self.resolve(route.via).filter(|link| !without.contains(link)) else { continue };
            if !self.links.get(&link).is_some_and(|l| l.is_silent) {
                return Some(link);
            }
            silent = silent.or(Some(link));
        }
        silent
    }

    /// The routes to a destination that are equally good: those of its longest prefix with the smallest metric.
    fn equal_routes(&self, destination: IpAddr) -> impl Iterator<Item = &Route> {
        let mut covering = self.routing.covering(destination).peekable();
        let best = covering.peek().map(|r| (r.to.prefix_len(), r.metric));
        covering.take_while(move |r| best == Some((r.to.prefix_len(), r.metric)))
    }

    /// How many equally good routes there are, up or not: so many a flow takes at once, and so many turns sessions may take
    /// ([`open_session_by`](Self::open_session_by)).
    pub fn ways_at_once(&self, destination: IpAddr) -> usize {
        let mut vias: SmallVec<[Via; 4]> = SmallVec::new();
        for route in self.equal_routes(destination) {
            if !vias.contains(&route.via) {
                vias.push(route.via);
            }
        }
        vias.len()
    }

    /// Links that flows to a destination take at once: those of equally good routes that are up and heard.
    pub(super) fn links_at_once(&self, destination: IpAddr) -> SmallVec<[LinkId; 4]> {
        let mut links: SmallVec<[LinkId; 4]> = SmallVec::new();
        for route in self.equal_routes(destination) {
            if let Some(link) = self.resolve(route.via)
                && !links.contains(&link)
                && self.links.get(&link).is_some_and(|l| l.is_up() && !l.is_silent)
            {
                links.push(link);
            }
        }
        links
    }

    fn resolve(&self, via: Via) -> Option<LinkId> {
        match via {
            Via::Link(id) => self.links.get(&id).filter(|l| l.is_usable()).map(|l| l.id),
            Via::Neighbour(key) => self.links_with(key).next_back().map(|l| l.id),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn route(to: &str, link: u64, metric: u32) -> Route {
        Route { to: to.parse().unwrap(), via: Via::Link(LinkId(link)), metric }
    }

    #[test]
    fn the_longest_prefix_comes_first_and_then_the_smallest_metric() {
        let mut routing = Routing::default();
        routing.set_routes(vec![
            route("0.0.0.0/0", 1, 0),
            route("10.0.0.0/8", 2, 9),
            route("10.1.0.0/16", 3, 5),
            route("10.1.0.0/16", 4, 1),
            route("::/0", 5, 0),
        ]);
        let vias = |to: &str| -> Vec<u64> {
            let link = |r: &Route| if let Via::Link(id) = r.via { id.0 } else { 0 };
            routing.covering(to.parse().unwrap()).map(link).collect()
        };
        assert_eq!(vias("10.1.2.3"), [4, 3, 2, 1]);
        assert_eq!(vias("192.0.2.1"), [1]);
        assert_eq!(vias("2001:db8::1"), [5]);
    }
}

//! An endpoint as a node of a network: its addresses, its routes, sessions with nodes that are not its neighbours.

use crate::endpoint::Endpoint;
use crate::error::OpenError;
use crate::session::Session;
use noctule_proto::crypto::{PublicKey, SharedKey};
use noctule_proto::error::CommandError;
use noctule_proto::ids::LinkId;
use noctule_proto::node::routing::Route;
use noctule_proto::node::{RelayLimits, SessionAccess};
use noctule_proto::stats::RelayedStats;
use std::collections::BTreeMap;
use std::net::IpAddr;
use std::sync::Arc;

/// An endpoint of a network has one shard ([`EndpointConfig::shards`](crate::EndpointConfig::shards)): which links there are, and where flows go, one node has to know.
impl Endpoint {
    /// The overlay's addresses of this node, of either family; sessions to others come from the first one of their family.
    pub fn set_addresses(&self, addresses: &[IpAddr]) {
        self.first().lock().node.set_addresses(addresses);
    }

    /// Replaces all routes: longest prefix first, then smallest metric; the next one where a neighbour's link is down. Flows whose next hop changes
    /// go on by the new one.
    pub fn set_routes(&self, routes: Vec<Route>) {
        let mut state = self.first().lock();
        let now = state.now;
        state.node.set_routes(now, routes);
        state.kick();
    }

    /// Permits to forward flows of others, or forbids it, which is how an endpoint begins; flows that pass already go on.
    pub fn enable_relaying(&self, limits: Option<RelayLimits>) {
        self.first().lock().node.enable_relaying(limits);
    }

    /// The flows that pass this node.
    pub fn relayed_flows(&self) -> Vec<RelayedStats> {
        self.first().lock().node.relayed_flows().collect()
    }

    /// The link over which `destination` would be reached now.
    pub fn next_hop(&self, destination: IpAddr) -> Option<LinkId> {
        self.first().lock().node.next_hop(destination, &[])
    }

    /// Replaces the lists of keys that may open links, and sessions over relays, from now on. Links that are up stay; sessions over relays whose far end opened them and may not do so
    /// any more are closed.
    pub fn set_authorised(&self, links: Option<Vec<PublicKey>>, sessions: SessionAccess) {
        for shard in self.shards() {
            let mut state = shard.lock();
            let now = state.now;
            state.node.set_authorised(now, links.clone(), sessions.clone());
            state.kick();
        }
    }

    /// Replaces the pre-shared keys of single neighbours, by their static key, from now on; links that are up stay.
    pub fn set_neighbour_psks(&self, psks: BTreeMap<PublicKey, SharedKey>) {
        self.shards().iter().for_each(|shard| shard.lock().node.set_neighbour_psks(psks.clone()));
    }

    /// Opens a session with the node that has the overlay address `destination` and this key, over the route to it, sealed end to end. Flows can
    /// be opened and written at once; that the far end has proven its key and takes the session is told by [`Session::accepted`].
    ///
    /// # Errors
    /// No route leads there over a link that is up, this node has no address of that family, or there are too many sessions.
    pub fn open_session_to(&self, destination: IpAddr, peer: PublicKey) -> Result<Session, OpenError> {
        self.open_session_by(destination, peer, 0)
    }

    /// How many equally good routes lead to a node, up or not.
    pub fn ways_at_once(&self, destination: IpAddr) -> usize {
        self.first().lock().node.ways_at_once(destination)
    }

    /// As [`open_session_to`](Self::open_session_to), for one of several sessions with the same node: it keeps to number `turn`, counted round, of the equally good
    /// routes ([`ways_at_once`](Self::ways_at_once)), as long as that one can be used. Flows take all of them by themselves; this is for those that are to keep to
    /// one route ([`FlowOptions::one_route`](crate::FlowOptions::one_route)).
    ///
    /// # Errors
    /// As [`open_session_to`](Self::open_session_to).
    pub fn open_session_by(&self, destination: IpAddr, peer: PublicKey, turn: usize) -> Result<Session, OpenError> {
        let mut state = self.first().lock();
        let now = state.now;
        let session = match state.node.open_session_by(now, destination, Some(peer), turn) {
            Ok(session) => session,
            Err(CommandError::Limit { what, limit }) => return Err(OpenError::Limit { what, limit }),
            Err(CommandError::NoRoute(to)) => return Err(OpenError::NoRoute(to)),
            Err(error) => return Err(OpenError::Misuse(error.to_string())),
        };
        if let Some(link) = state.node.session_link(session) {
            state.add_session(session, link, peer);
        }
        state.kick();
        Ok(Session::new(Arc::clone(self.first()), session, peer))
    }
}

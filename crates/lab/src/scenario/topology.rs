//! Which link joins which nodes, what those between the ends do, which flows there are and their directions.

use std::collections::BTreeMap;
use std::fmt;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::str::FromStr;
use std::time::Duration;

use serde::{Deserialize, Serialize};

use super::{Ip, Workload};
use crate::link::{ParseQuantityError, Period, text_in_serde};

/// Links of a chain and leaves of a star, at most: names of its hosts and devices stay short, and their default addresses distinct.
pub const MOST_HOPS: usize = 64;
/// Links side by side between two nodes, at most.
pub const MOST_PATHS: u8 = 8;

/// What the nodes between the ends of a flow do.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub enum Relays {
    /// They are noctule nodes that repair each hop with combinations of what they hold.
    #[default]
    Recode,
    /// They forward and no more, as IP routers do: one noctule link from end to end, whose ends code and repair.
    Ip,
    /// They are proxies, one connection per hop: kernel TCP on namespaces; in the simulator QUIC, with BBR unless the scenario names CUBIC or Reno.
    Proxy,
    /// They recode, and the ends are nodes too: the contender's IP packets cross the TUN devices of these (namespaces).
    Tunnel,
}

impl FromStr for Relays {
    type Err = ParseQuantityError;
    fn from_str(text: &str) -> Result<Self, Self::Err> {
        match text {
            "recode" => Ok(Self::Recode),
            "ip" => Ok(Self::Ip),
            "proxy" => Ok(Self::Proxy),
            "tunnel" => Ok(Self::Tunnel),
            _ => Err(ParseQuantityError::new(
                text,
                "what the nodes between the ends do: recode, ip (they forward, only the ends code), proxy (a connection per hop) or tunnel (the contender's IP packets go through nodes)",
            )),
        }
    }
}

impl fmt::Display for Relays {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Recode => "recode",
            Self::Ip => "ip",
            Self::Proxy => "proxy",
            Self::Tunnel => "tunnel",
        })
    }
}

text_in_serde!(Relays);

/// A flow between two nodes.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct FlowEnds {
    /// The sender.
    pub from: usize,
    /// The receiver.
    pub to: usize,
    /// What, if not the workload of the run.
    pub workload: Option<Workload>,
    /// When it begins, at the earliest.
    pub start: Period,
}

impl FlowEnds {
    /// A flow of the run's workload from its beginning.
    pub fn new(from: usize, to: usize) -> Self {
        Self { from, to, workload: None, start: Period::ZERO }
    }
}

/// One entry of a node's table.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct NextHop {
    /// Whose table.
    pub at: usize,
    /// For which destination.
    pub to: usize,
    /// Over which neighbour.
    pub via: usize,
    /// The smallest is taken first.
    pub metric: u32,
}

/// A link as a flow crosses it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct Crossing {
    /// Number of the link.
    pub link: usize,
    /// In its forward direction.
    pub forward: bool,
}

impl Crossing {
    /// The same link the other way round.
    pub fn turned(self) -> Self {
        Self { forward: !self.forward, ..self }
    }
}

/// Nodes, links and flows of a scenario; the properties of the links are the scenario's `hops`, in the same order.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Network {
    /// Names of the nodes.
    pub nodes: Vec<String>,
    /// Addresses given to nodes; others follow from their number.
    pub addresses: BTreeMap<usize, IpAddr>,
    /// The ends of each link; its forward direction leads from the first to the second.
    pub ends: Vec<(usize, usize)>,
    /// What the nodes between the ends of a flow do.
    pub relays: Relays,
    /// At least one.
    pub flows: Vec<FlowEnds>,
    /// Given entries of tables, which replace all that would be derived for the same node and destination.
    pub routes: Vec<NextHop>,
}

impl Network {
    /// Nodes in a row, one flow from the first to the last.
    pub fn chain(hops: usize) -> Self {
        Self::chain_of(hops, 1)
    }

    /// The same with so many links side by side between neighbours: paths of one noctule link. Those of the first hop come first.
    pub fn chain_of(hops: usize, paths: usize) -> Self {
        let ends = (0..hops).flat_map(|i| std::iter::repeat_n((i, i + 1), paths)).collect();
        Self::new(hops + 1, ends, FlowEnds::new(0, hops))
    }

    /// Node 0 in the middle of `leaves` others; one flow from the first leaf to the last.
    pub fn star(leaves: usize) -> Self {
        Self::new(leaves + 1, (1..=leaves).map(|i| (0, i)).collect(), FlowEnds::new(1.min(leaves), leaves))
    }

    /// The links that a matrix has above its diagonal, row by row, each entry saying how many there are side by side; one flow from the first node
    /// to the last.
    ///
    /// # Errors
    /// The matrix is not square, not symmetric, joins a node to itself, or has an entry above [`MOST_PATHS`]: in words.
    pub fn mesh(adjacency: &[Vec<u8>]) -> Result<Self, String> {
        let n = adjacency.len();
        let mut ends = Vec::new();
        for (i, row) in adjacency.iter().enumerate() {
            if row.len() != n {
                return Err(format!("row {} has {} entries, and there are {n} rows: as many entries as rows, please", i + 1, row.len()));
            }
            for (j, &entry) in row.iter().enumerate() {
                let place = format!("row {}, column {}", i + 1, j + 1);
                match entry {
                    1.. if i == j => return Err(format!("{place}: a node has no link to itself, write 0")),
                    0..=MOST_PATHS if adjacency.get(j).and_then(|row| row.get(i)).is_some_and(|&back| back != entry) => {
                        return Err(format!("{place} is {entry}, and the other way round it is not: links have two directions"));
                    }
                    1..=MOST_PATHS if i < j => ends.extend(std::iter::repeat_n((i, j), entry.into())),
                    0..=MOST_PATHS => {}
                    other => {
                        return Err(format!("{place} is {other}: 1 for a link, 0 for none, up to {MOST_PATHS} for links side by side"));
                    }
                }
            }
        }
        Ok(Self::new(n, ends, FlowEnds::new(0, n.saturating_sub(1))))
    }

    fn new(nodes: usize, ends: Vec<(usize, usize)>, flow: FlowEnds) -> Self {
        Self {
            nodes: (0..nodes).map(|i| format!("n{i}")).collect(),
            addresses: BTreeMap::new(),
            ends,
            relays: Relays::default(),
            flows: vec![flow],
            routes: Vec::new(),
        }
    }

    /// Whether the links join the nodes in a row, the route that all flows go from the first to the last.
    pub fn is_chain(&self) -> bool {
        let last = self.ends.len();
        self.ends.iter().enumerate().all(|(i, &ends)| ends == (i, i + 1))
            && self.nodes.len() == last + 1
            && self.flows.iter().all(|flow| (flow.from, flow.to) == (0, last))
    }

    /// Whether flows run over a link of their own ends, whatever lies between: there are no noctule relays.
    pub fn is_end_to_end(&self) -> bool {
        self.nodes.len() == 2 || matches!(self.relays, Relays::Ip | Relays::Tunnel)
    }

    /// Number of the node of this name.
    pub fn node(&self, name: &str) -> Option<usize> {
        self.nodes.iter().position(|node| node == name)
    }

    /// Number of the link between two nodes, whichever is named first.
    pub fn link_between(&self, a: usize, b: usize) -> Option<usize> {
        self.ends.iter().position(|&ends| ends == (a, b) || ends == (b, a))
    }

    /// The links with the same two ends as this one, itself included: paths of one noctule link.
    pub fn beside(&self, link: usize) -> impl Iterator<Item = usize> + '_ {
        let (a, b) = self.ends[link];
        (0..self.ends.len()).filter(move |&other| self.ends[other] == (a, b) || self.ends[other] == (b, a))
    }

    /// The links beside one that is crossed, itself included, in the same direction.
    pub fn lanes(&self, crossing: Crossing) -> impl Iterator<Item = Crossing> + '_ {
        let ends = self.ends[crossing.link];
        self.beside(crossing.link).map(move |link| Crossing { link, forward: crossing.forward == (self.ends[link] == ends) })
    }

    /// The address of a node in the overlay.
    pub fn address(&self, node: usize, ip: Ip) -> IpAddr {
        let number = node as u16 + 1;
        self.addresses.get(&node).copied().unwrap_or_else(|| match ip {
            Ip::V4 => Ipv4Addr::from(0x0a09_0000 | u32::from(number)).into(),
            Ip::V6 => Ipv6Addr::new(0xfd09, 0, 0, 0, 0, 0, 0, number).into(),
        })
    }

    /// The neighbours of a node and the links to them.
    fn neighbours(&self, node: usize) -> impl Iterator<Item = (usize, Crossing)> + '_ {
        self.ends.iter().enumerate().filter_map(move |(link, &(a, b))| match node {
            n if n == a => Some((b, Crossing { link, forward: true })),
            n if n == b => Some((a, Crossing { link, forward: false })),
            _ => None,
        })
    }

    /// Links from every node to `to`; none where no route leads.
    fn distances(&self, to: usize) -> Vec<Option<u32>> {
        let mut distances = vec![None; self.nodes.len()];
        distances[to] = Some(0);
        let mut frontier = vec![to];
        let mut length = 0;
        while !frontier.is_empty() {
            length += 1;
            let mut next = Vec::new();
            for node in frontier {
                for (neighbour, _) in self.neighbours(node) {
                    if distances[neighbour].is_none() {
                        distances[neighbour] = Some(length);
                        next.push(neighbour);
                    }
                }
            }
            frontier = next;
        }
        distances
    }

    /// The table of a node: to every node that it can reach, over the neighbour on the shortest route; neighbours whose own route does not lead
    /// back over this node are alternatives (RFC 5286, inequality 1). Given entries replace these.
    pub fn table(&self, at: usize) -> Vec<NextHop> {
        let from_here = self.distances(at);
        let mut table: Vec<NextHop> = Vec::new();
        for to in (0..self.nodes.len()).filter(|&to| to != at) {
            let given: Vec<NextHop> = self.routes.iter().filter(|route| (route.at, route.to) == (at, to)).copied().collect();
            if !given.is_empty() {
                table.extend(given);
                continue;
            }
            let distances = self.distances(to);
            let Some(own) = distances[at] else { continue };
            let vias: std::collections::BTreeSet<usize> = self.neighbours(at).map(|(neighbour, _)| neighbour).collect();
            for via in vias {
                if let (Some(its), Some(back)) = (distances[via], from_here[via])
                    && its < own + back
                {
                    table.push(NextHop { at, to, via, metric: its + 1 });
                }
            }
        }
        table.sort_by_key(|route| (route.to, route.metric, route.via));
        table
    }

    /// The links that a flow crosses while all of them are up.
    ///
    /// # Errors
    /// In words: there is no route, or it leads in a circle.
    pub fn route(&self, from: usize, to: usize) -> Result<Vec<Crossing>, String> {
        self.route_over(from, to, None)
    }

    /// The same over this neighbour first, if one is given.
    fn route_over(&self, from: usize, to: usize, first: Option<usize>) -> Result<Vec<Crossing>, String> {
        let name = |node: usize| &self.nodes[node];
        let mut route = Vec::new();
        let mut at = from;
        while at != to {
            if route.len() > self.nodes.len() {
                return Err(format!("the routes from {} to {} lead in a circle", name(from), name(to)));
            }
            let is_chosen = |route: &NextHop| route.to == to && (at != from || first.is_none_or(|via| route.via == via));
            let hop = self.table(at).into_iter().find(is_chosen);
            let hop = hop.ok_or_else(|| format!("no route leads from {} to {}: {} has no route", name(from), name(to), name(at)))?;
            let crossing = self.neighbours(at).find(|&(neighbour, _)| neighbour == hop.via).map(|(_, crossing)| crossing);
            route.push(crossing.ok_or_else(|| format!("{} has a route over {}, which is no neighbour", name(at), name(hop.via)))?);
            at = hop.via;
        }
        Ok(route)
    }

    /// Both routes of a flow: there and back. Empty where there is none, which the check of the network refuses.
    pub fn routes(&self, flow: &FlowEnds) -> (Vec<Crossing>, Vec<Crossing>) {
        (self.route(flow.from, flow.to).unwrap_or_default(), self.route(flow.to, flow.from).unwrap_or_default())
    }

    /// Every route that a flow takes at once towards its receiver: by each of the routes of its sender that are equally good.
    pub fn routes_at_once(&self, flow: &FlowEnds) -> Vec<Vec<Crossing>> {
        let routes: Vec<NextHop> = self.table(flow.from).into_iter().filter(|route| route.to == flow.to).collect();
        let best = routes.iter().map(|route| route.metric).min();
        let equal = routes.iter().filter(|route| Some(route.metric) == best && !self.is_end_to_end());
        let routes: Vec<_> = equal.filter_map(|route| self.route_over(flow.from, flow.to, Some(route.via)).ok()).collect();
        if routes.is_empty() { vec![self.routes(flow).0] } else { routes }
    }

    /// Whether the flows cross a link in its forward direction, or else only in the other; none if no flow crosses it.
    pub fn data_is_forward(&self, link: usize) -> Option<bool> {
        let crossed = |forward| {
            let lanes: Vec<Crossing> = self.lanes(Crossing { link, forward }).collect();
            self.flows.iter().flat_map(|flow| self.routes_at_once(flow)).flatten().any(|crossing| lanes.contains(&crossing))
        };
        [true, false].into_iter().find(|&forward| crossed(forward))
    }

    /// The longest time that `delay` of the crossings of a flow's two routes adds up to.
    pub(super) fn longest(&self, both: bool, delay: impl Fn(Crossing) -> Duration) -> Duration {
        let length = |flow: &FlowEnds| -> Duration {
            let (there, back) = self.routes(flow);
            there.into_iter().chain(back.into_iter().filter(|_| both)).map(&delay).sum()
        };
        self.flows.iter().map(length).max().unwrap_or_default()
    }

    /// Refuses what cannot be run: in words.
    pub(super) fn check(&self) -> Result<(), String> {
        if self.relays != Relays::Recode && self.nodes.len() > 2 && (0..self.ends.len()).any(|link| self.beside(link).count() > 1) {
            return Err(
                "links side by side are paths of noctule links: only noctule nodes between the ends use them (relays = \"recode\")"
                    .to_owned(),
            );
        }
        if self.nodes.len() > 1000 {
            return Err(format!("{} nodes: at most 1000", self.nodes.len()));
        }
        for (i, name) in self.nodes.iter().enumerate() {
            if self.nodes[..i].contains(name) {
                return Err(format!("two nodes are called `{name}`"));
            }
        }
        if self.flows.is_empty() || self.flows.len() > 1000 {
            return Err(format!("{} flows: between 1 and 1000", self.flows.len()));
        }
        Ok(())
    }

    /// Refuses a flow that cannot be run: in words.
    pub(super) fn check_flow(&self, flow: &FlowEnds) -> Result<(), String> {
        if flow.from == flow.to {
            return Err(format!("from {} to itself it crosses no link", self.nodes[flow.from]));
        }
        self.route(flow.from, flow.to)?;
        self.route(flow.to, flow.from).map_err(|e| format!("{e}, and acknowledgements need a route back"))?;
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn links(crossings: &[Crossing]) -> Vec<(usize, bool)> {
        crossings.iter().map(|c| (c.link, c.forward)).collect()
    }

    #[test]
    fn a_chain_is_crossed_from_end_to_end_and_back() {
        let chain = Network::chain(3);
        assert!(chain.is_chain());
        assert_eq!(links(&chain.route(0, 3).unwrap()), [(0, true), (1, true), (2, true)]);
        assert_eq!(links(&chain.route(3, 0).unwrap()), [(2, false), (1, false), (0, false)]);
        assert_eq!(chain.table(1).len(), 3, "one route per destination: there is no other route");
        assert_eq!(chain.address(1, Ip::V4).to_string(), "10.9.0.2");
        assert_eq!(chain.address(1, Ip::V6).to_string(), "fd09::2");
    }

    #[test]
    fn leaves_of_a_star_reach_each_other_over_its_middle() {
        let star = Network::star(3);
        assert_eq!(links(&star.route(1, 3).unwrap()), [(0, false), (2, true)]);
        assert!(!star.is_chain());
    }

    #[test]
    fn a_ring_has_an_alternative_that_does_not_lead_back() {
        // 0 - 1 - 3 and 0 - 2 - 3.
        let ring = Network::mesh(&[vec![0, 1, 1, 0], vec![1, 0, 0, 1], vec![1, 0, 0, 1], vec![0, 1, 1, 0]]).unwrap();
        let to_far: Vec<(usize, u32)> = ring.table(0).iter().filter(|r| r.to == 3).map(|r| (r.via, r.metric)).collect();
        assert_eq!(to_far, [(1, 2), (2, 2)]);
        // To the neighbour itself the long route would be 0 - 2 - 3 - 1; node 2 is as far from 1 over 0, so it might send back.
        assert_eq!(ring.table(0).iter().filter(|r| r.to == 1).count(), 1);
        let at_once: Vec<_> = ring.routes_at_once(&ring.flows[0]).iter().map(|route| links(route)).collect();
        assert_eq!(at_once, [[(0, true), (2, true)], [(1, true), (3, true)]]);
    }

    #[test]
    fn a_given_route_replaces_the_derived_ones_and_a_circle_is_refused() {
        let mut ring = Network::mesh(&[vec![0, 1, 1, 0], vec![1, 0, 0, 1], vec![1, 0, 0, 1], vec![0, 1, 1, 0]]).unwrap();
        ring.routes.push(NextHop { at: 0, to: 3, via: 2, metric: 1 });
        assert_eq!(links(&ring.route(0, 3).unwrap()), [(1, true), (3, true)]);
        ring.routes.push(NextHop { at: 2, to: 3, via: 0, metric: 1 });
        assert!(ring.check_flow(&ring.flows[0]).unwrap_err().contains("circle"));
    }

    #[test]
    fn matrices_that_are_none_are_refused_with_their_place() {
        let refused = |rows: &[Vec<u8>]| Network::mesh(rows).unwrap_err();
        assert!(refused(&[vec![0, 1]]).contains("row 1"));
        assert!(refused(&[vec![1]]).contains("itself"));
        assert!(refused(&[vec![0, 1], vec![0, 0]]).contains("row 1, column 2"));
        assert!(refused(&[vec![0, 9], vec![9, 0]]).contains("is 9"));
        let apart = Network::mesh(&[vec![0, 0], vec![0, 0]]).unwrap();
        assert!(apart.check_flow(&apart.flows[0]).unwrap_err().contains("no route leads from n0 to n1"));
    }
}

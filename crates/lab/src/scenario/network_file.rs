//! The parts of a scenario file that describe a network: `[topology]`, `[[hop]]`, `[[flow]]`, `[[route]]`.

use std::collections::BTreeMap;
use std::net::IpAddr;

use serde::Deserialize;

use super::place::Place;
use super::topology::{FlowEnds, MOST_HOPS, Network, NextHop};
use super::{Hop, Workload};
use crate::link::{Period, SpecError};

/// `[topology]`.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub struct TopologyTable {
    kind: Kind,
    hops: Option<usize>,
    leaves: Option<usize>,
    adjacency: Option<Vec<Vec<u8>>>,
    nodes: Option<Vec<String>>,
    #[serde(default)]
    addresses: BTreeMap<String, IpAddr>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "kebab-case")]
enum Kind {
    Chain,
    Star,
    Mesh,
}

/// `[[hop]]`: what is different on one link, in both directions; `rev-` before a key means the return path.
#[derive(Debug, Clone, Deserialize)]
pub struct HopTable {
    link: Option<usize>,
    between: Option<[String; 2]>,
    #[serde(flatten)]
    settings: BTreeMap<String, String>,
}

/// `[[flow]]`: instead of the one flow that every topology has.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct FlowTable {
    from: String,
    to: String,
    workload: Option<Workload>,
    start: Option<Period>,
}

/// `[[route]]`: replaces the derived routes of one node to one destination.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct RouteTable {
    at: String,
    to: String,
    via: String,
    #[serde(default = "one")]
    metric: u32,
}

fn one() -> u32 {
    1
}

/// Something wrong at a key.
pub(super) type Wrong<'a> = (Place<'a>, String);

/// The network that the tables describe; `hops` is the number of links of a chain that is not said in `[topology]`.
pub(super) fn network<'a>(
    topology: Option<&TopologyTable>,
    hops: Option<usize>,
    flows: &[FlowTable],
    routes: &[RouteTable],
) -> Result<Network, Wrong<'a>> {
    let at = |key: &'static str| Place { table: "topology", index: None, key };
    let mut network = match topology {
        None => Network::chain(number(hops.unwrap_or(1)).map_err(|e| (at("hops"), e))?),
        Some(table) => shape(table, hops).map_err(|(key, text)| (at(key), text))?,
    };
    if let Some(table) = topology {
        if let Some(names) = &table.nodes {
            if names.len() != network.nodes.len() {
                return Err((at("nodes"), format!("{} names for {} nodes", names.len(), network.nodes.len())));
            }
            network.nodes.clone_from(names);
        }
        for (name, &address) in &table.addresses {
            let node = named(&network, name).map_err(|e| (at("addresses"), e))?;
            network.addresses.insert(node, address);
        }
    }
    if !flows.is_empty() {
        network.flows.clear();
    }
    for (i, flow) in flows.iter().enumerate() {
        let at = |key: &'static str| Place { table: "flow", index: Some(i), key };
        let from = named(&network, &flow.from).map_err(|e| (at("from"), e))?;
        let to = named(&network, &flow.to).map_err(|e| (at("to"), e))?;
        network.flows.push(FlowEnds { from, to, workload: flow.workload, start: flow.start.unwrap_or(Period::ZERO) });
    }
    for (i, route) in routes.iter().enumerate() {
        let place = |key: &'static str| Place { table: "route", index: Some(i), key };
        let at = named(&network, &route.at).map_err(|e| (place("at"), e))?;
        let to = named(&network, &route.to).map_err(|e| (place("to"), e))?;
        let via = named(&network, &route.via).map_err(|e| (place("via"), e))?;
        if network.link_between(at, via).is_none() {
            return Err((place("via"), format!("{} and {} are not joined by a link", route.at, route.via)));
        }
        network.routes.push(NextHop { at, to, via, metric: route.metric });
    }
    Ok(network)
}

/// Of links of a chain, and of leaves of a star.
fn number(hops: usize) -> Result<usize, String> {
    if (1..=MOST_HOPS).contains(&hops) { Ok(hops) } else { Err(format!("{hops}: between 1 and {MOST_HOPS}")) }
}

fn shape(table: &TopologyTable, hops: Option<usize>) -> Result<Network, (&'static str, String)> {
    // What belongs to another kind is not ignored.
    let given = [
        ("hops", table.hops.or(hops).is_some(), Kind::Chain),
        ("leaves", table.leaves.is_some(), Kind::Star),
        ("adjacency", table.adjacency.is_some(), Kind::Mesh),
    ];
    for (key, is_given, kind) in given {
        if is_given && kind != table.kind {
            return Err((key, format!("belongs to kind = \"{kind:?}\"").to_lowercase()));
        }
        if !is_given && kind == table.kind {
            return Err(("kind", format!("a {} needs `{key}`", format!("{kind:?}").to_lowercase())));
        }
    }
    match (table.kind, &table.adjacency) {
        (Kind::Chain, _) => Ok(Network::chain(number(hops.or(table.hops).unwrap_or(0)).map_err(|e| ("hops", e))?)),
        (Kind::Star, _) => Ok(Network::star(number(table.leaves.unwrap_or(0)).map_err(|e| ("leaves", e))?)),
        (Kind::Mesh, Some(rows)) => Network::mesh(rows).map_err(|e| ("adjacency", e)),
        (Kind::Mesh, None) => Err(("kind", "a mesh needs `adjacency`".to_owned())),
    }
}

fn named(network: &Network, name: &str) -> Result<usize, String> {
    network.node(name).ok_or_else(|| format!("no node is called `{name}`; there are {}", network.nodes.join(", ")))
}

/// Applies what is different on single links.
pub(super) fn set_hops<'a>(tables: &'a [HopTable], network: &Network, hops: &mut [Hop]) -> Result<(), Wrong<'a>> {
    for (i, table) in tables.iter().enumerate() {
        let at = |key: &'a str| Place { table: "hop", index: Some(i), key };
        let link = match (table.link, &table.between) {
            (Some(n), None) => n.checked_sub(1).filter(|&i| i < hops.len()).ok_or_else(|| (at("link"), no_such_link(n, hops.len())))?,
            (None, Some([a, b])) => {
                let ends = (named(network, a).map_err(|e| (at("between"), e))?, named(network, b).map_err(|e| (at("between"), e))?);
                let link = network.link_between(ends.0, ends.1);
                link.ok_or_else(|| (at("between"), format!("{a} and {b} are not joined by a link")))?
            }
            _ => return Err((at(""), "says which link it means by `link` (a number) or by `between` (two names)".to_owned())),
        };
        for (key, value) in &table.settings {
            set_hop(&mut hops[link], key, value).map_err(|e| (at(key), e.to_string()))?;
        }
    }
    Ok(())
}

/// Applies `hop-2 = "rate=50mbit,rev-loss=20%"` of a cell.
pub(super) fn set_hop_list(number: &str, list: &str, hops: &mut [Hop]) -> Result<(), String> {
    let n: usize = number.parse().map_err(|_| format!("`{number}` is no number of a link: write hop-2"))?;
    let len = hops.len();
    let hop = n.checked_sub(1).and_then(|i| hops.get_mut(i)).ok_or_else(|| no_such_link(n, len))?;
    for (key, value) in crate::link::parse_settings(list).map_err(|e| e.to_string())? {
        set_hop(hop, &key, &value).map_err(|e| e.to_string())?;
    }
    Ok(())
}

fn no_such_link(n: usize, links: usize) -> String {
    format!("there is no link {n}; there are links 1 to {links}")
}

fn set_hop(hop: &mut Hop, key: &str, value: &str) -> Result<(), SpecError> {
    match key.strip_prefix("rev-") {
        Some(key) => hop.reverse.set(key, value),
        None => {
            hop.forward.set(key, value)?;
            hop.reverse.set(key, value)
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::ScenarioFile;

    fn error(tables: &str) -> String {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("net.toml");
        std::fs::write(&path, format!("name = \"net\"\n[link]\nrate = \"10mbit\"\n{tables}")).unwrap();
        ScenarioFile::read(&path).and_then(|file| file.cases(true)).expect_err(tables).to_string()
    }

    #[test]
    fn a_mistake_is_named_with_its_line_and_key() {
        let mesh = "[topology]\nkind = \"mesh\"\nadjacency = [[0, 1], [1, 0]]\nnodes = [\"a\", \"b\"]\n";
        for (tables, line, word) in [
            ("[topology]\nkind = \"ring\"", 5, "ring"),
            ("[topology]\nkind = \"chain\"", 5, "needs `hops`"),
            ("[topology]\nkind = \"chain\"\nhops = 2\nleaves = 3", 7, "leaves"),
            ("[topology]\nkind = \"chain\"\nhops = 0", 6, "between 1 and 64"),
            ("[topology]\nkind = \"mesh\"\nadjacency = [[0, 1], [0, 0]]", 6, "row 1, column 2"),
            (&format!("{mesh}[[flow]]\nfrom = \"a\"\nto = \"c\""), 10, "no node is called `c`; there are a, b"),
            (&format!("{mesh}[[flow]]\nfrom = \"a\"\nto = \"a\"\n"), 8, "to itself"),
            (&format!("{mesh}[[hop]]\nbetween = [\"a\", \"b\"]\nspeed = \"1mbit\""), 10, "a link has no `speed`"),
            (&format!("{mesh}[[hop]]\nlink = 2"), 9, "links 1 to 1"),
            (&format!("{mesh}[[hop]]\nloss = \"1%\""), 8, "between"),
            (&format!("{mesh}[[route]]\nat = \"a\"\nto = \"b\"\nvia = \"a\""), 11, "not joined"),
            ("[grid]\nhop-2 = [\"loss=1%\"]", 5, "links 1 to 1"),
            ("[grid]\nrelays = [\"magic\"]", 5, "recode, ip"),
        ] {
            let error = error(tables);
            assert!(error.contains(&format!("line {line}")), "{tables}\n{error}");
            assert!(error.contains(word), "{tables}\n{error}");
        }
    }

    #[test]
    fn a_chain_has_its_hops_and_what_differs_on_each() {
        let file: ScenarioFile = toml::from_str(
            "name = \"c\"\n[link]\nrate = \"10mbit\"\n[topology]\nkind = \"chain\"\nhops = 3\n[[hop]]\nlink = 2\nmtu = \"1400\"\nrev-loss = \"2%\"\n\
             [run]\nloss-from = \"6s\"\n[grid]\nhop-3 = [\"loss=30%\"]\n",
        )
        .unwrap();
        let scenario = &file.cases(true).unwrap()[0].scenario;
        assert!(scenario.network.is_chain());
        assert_eq!(scenario.hops.iter().map(|h| h.forward.mtu).collect::<Vec<_>>(), [1500, 1400, 1500]);
        let spec = &scenario.hops[2].forward;
        assert!(spec.loss.is_zero());
        assert_eq!(spec.at[0].to_string(), "6s:loss=30%,loss-model=random");
        assert_eq!(scenario.hops[1].reverse.at[0].to_string(), "6s:loss=2%,loss-model=random");
        assert!(scenario.hops[1].forward.at.is_empty());
    }
}

//! Topologies: which hosts a link joins, and the shapes of the links in each round of a grid of steps.

use std::collections::VecDeque;
use std::path::Path;

use super::table::{Table, number};
use super::yaml::{Node, Value, Wrong, read};
use super::{Note, Notes};

/// Oasis numbers the networks of links 10.0.0.0/24 to 10.0.255.0/24.
const MOST_NODES: i64 = 250;
/// Rounds of one grid at most.
const MOST_ROUNDS: usize = 10_000;
/// What Oasis cuts latencies to, ms.
const LATENCY_CUT: f64 = 200.0;
/// What Oasis cuts rates to, Mbit/s.
const RATE_CUT: f64 = 4000.0;

/// Nodes, links, and their shapes.
#[derive(Debug, Clone, PartialEq)]
pub struct Topology {
    /// Its name.
    pub name: String,
    /// Hosts h0, h1, ..
    pub nodes: usize,
    /// In a row, or any way.
    pub is_linear: bool,
    /// Ends of each link, the lower first.
    pub links: Vec<(usize, usize)>,
    /// `topology-0`, `topology-1`, ..: the shape of each link.
    pub rounds: Vec<Vec<Shape>>,
}

/// A link: from its lower-numbered host to the other, and back.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Shape {
    /// %.
    pub loss: [f64; 2],
    /// ms, one way.
    pub latency: [f64; 2],
    /// ms, standard deviation.
    pub jitter: [f64; 2],
    /// Mbit/s.
    pub rate: [f64; 2],
}

impl Topology {
    /// From the `topology` of a test: inline, or by name in a file of the configuration folder.
    pub fn read(mut table: Table, config: &Path, notes: &mut Notes) -> Result<Self, Wrong> {
        let (name, file) = (table.text("config_name")?, table.text("config_file")?);
        let mut table = match (name, file) {
            (None, None) => table,
            (Some(name), Some(file)) => {
                let found = entry(&config.join(&file), &name);
                let found = found.map_err(|reason| table.wrong_here(reason))??;
                table.end()?;
                found
            }
            _ => return Err(table.wrong_here("config_name and config_file belong together")),
        };
        let name = table.text("name")?.unwrap_or_default();
        let nodes = table.whole("nodes", (2, MOST_NODES))?;
        let nodes = table.required("nodes", nodes)? as usize;
        let kind = table.one_of("topology_type", &["linear", "mesh", "star", "tree", "butterfly"])?;
        let kind = table.required("topology_type", kind)?;
        if !["linear", "mesh"].contains(&kind) {
            return Err(table.wrong(table.line(), "topology_type", format!("Oasis names `{kind}` and refuses it; linear and mesh exist")));
        }
        let is_linear = kind == "linear";
        let (array, json) = (table.list("array_description")?, table.text("json_description")?);
        let topology = match (array, json) {
            (Some((line, _)), None) if !is_linear => {
                return Err(table.wrong(line, "array_description", "belongs to linear topologies; a mesh has a json_description"));
            }
            (Some((line, items)), None) => {
                let links = (1..nodes).map(|i| (i - 1, i)).collect::<Vec<_>>();
                let rounds = Attributes::read(&table, items, nodes, notes)?.rounds(&table, line, links.len())?;
                Self { name, nodes, is_linear, links, rounds }
            }
            (None, Some(file)) => {
                if is_linear {
                    let text =
                        "a linear topology with a json_description: Oasis runs no test at all and reports success; it is run once here";
                    notes.push(Note::at(&table, "json_description", text));
                }
                matrices(&config.join(file), name, nodes, is_linear, notes)?
            }
            (Some(_), Some(_)) => return Err(table.wrong_here("array_description and json_description exclude each other")),
            (None, None) => return Err(table.wrong_here("array_description or json_description is missing")),
        };
        table.end()?;
        topology.say_cuts(notes);
        Ok(topology)
    }

    /// What Oasis would cut is what the file says here.
    fn say_cuts(&self, notes: &mut Notes) {
        let most = |of: &dyn Fn(&Shape) -> [f64; 2]| self.rounds.iter().flatten().flat_map(of).fold(0.0, f64::max);
        let (latency, rate) = (most(&|shape| shape.latency), most(&|shape| shape.rate));
        let name = &self.name;
        if latency > LATENCY_CUT {
            notes.push(Note::text(format!(
                "topology {name}: a latency of {latency} ms; Oasis cuts it to {LATENCY_CUT}, here it is what it says"
            )));
        }
        if rate > RATE_CUT {
            notes.push(Note::text(format!(
                "topology {name}: a bandwidth of {rate} Mbit/s; Oasis cuts it to {RATE_CUT}, here it is what it says"
            )));
        }
        let still = |shape: &Shape| (0..2).any(|direction| shape.jitter[direction] > 0.0 && shape.latency[direction] == 0.0);
        if self.rounds.iter().flatten().any(still) {
            notes.push(Note::text(format!("topology {name}: jitter without latency; Oasis sets none then, and neither does this")));
        }
    }

    /// The links from one host to another by the fewest hops, each with its direction (true: from the lower end).
    pub fn route(&self, from: usize, to: usize) -> Option<Vec<(usize, bool)>> {
        let mut came: Vec<Option<(usize, usize)>> = vec![None; self.nodes];
        let mut queue = VecDeque::from([from]);
        while let Some(at) = queue.pop_front() {
            for (link, &(a, b)) in self.links.iter().enumerate() {
                let next = if a == at {
                    b
                } else if b == at {
                    a
                } else {
                    continue;
                };
                if next != from && came[next].is_none() {
                    came[next] = Some((at, link));
                    queue.push_back(next);
                }
            }
        }
        let mut route = Vec::new();
        let mut at = to;
        while at != from {
            let (before, link) = came.get(at).copied().flatten()?;
            route.push((link, self.links[link].0 == before));
            at = before;
        }
        route.reverse();
        Some(route)
    }

    /// As Oasis writes it to `topology_description.txt`, from the first link.
    pub fn describe(&self, round: usize) -> String {
        let Some(shape) = self.rounds.get(round).and_then(|links| links.first()) else { return String::new() };
        if !self.is_linear {
            return format!("Mesh {} nodes \nlatency {}ms,bandwidth {}Mbps.", self.nodes, shape.latency[0], shape.rate[0]);
        }
        let line = |direction: usize| {
            format!(
                "loss {}%,latency {}ms,jitter {}ms,bandwidth {}Mbps.",
                shape.loss[direction], shape.latency[direction], shape.jitter[direction], shape.rate[direction]
            )
        };
        let hops = self.nodes - 1;
        if line(0) == line(1) {
            format!("Linear {hops} hops \n{}", line(0))
        } else {
            format!("Linear {hops} hops \nforward {}\nreverse {}", line(0), line(1))
        }
    }
}

/// The entry called `name` in the list of a file of the configuration folder.
pub fn entry(path: &Path, name: &str) -> Result<Result<Table, Wrong>, String> {
    let root = match read(path) {
        Ok(root) => root,
        Err(wrong) => return Ok(Err(wrong)),
    };
    let mut names = Vec::new();
    let lists: Vec<(String, Vec<Node>)> = match root.value {
        Value::Map(map) => {
            map.into_iter().filter_map(|(key, _, node)| if let Value::List(list) = node.value { Some((key, list)) } else { None }).collect()
        }
        Value::List(list) => vec![(String::new(), list)],
        _ => Vec::new(),
    };
    for (key, list) in lists {
        for (i, node) in list.into_iter().enumerate() {
            let Value::Map(map) = &node.value else { continue };
            let own = map.iter().find(|(key, ..)| key == "name").map(|(_, _, node)| node.value.clone());
            match own {
                Some(Value::Text(own)) if own == name => return Ok(Table::of(path, &format!("{key}[{i}]"), node)),
                Some(Value::Text(own)) => names.push(own),
                _ => {}
            }
        }
    }
    Err(format!("`{name}` is not in {}; there are {}", path.display(), names.join(", ")))
}

/// Values of an attribute of links.
#[derive(Debug, Clone, PartialEq)]
enum Values {
    /// Everywhere the same, round by round.
    Rounds(Vec<f64>),
    /// In every round the same, link by link.
    Links(Vec<f64>),
}

/// The five attributes of `array_description`.
#[derive(Debug, Default)]
struct Attributes {
    loss: Option<Values>,
    latency: Option<Values>,
    jitter: Option<Values>,
    forward: Option<Values>,
    backward: Option<Values>,
}

const ATTRIBUTES: [(&str, (f64, f64)); 5] = [
    ("link_loss", (0.0, 100.0)),
    ("link_latency", (0.0, 100_000.0)),
    ("link_jitter", (0.0, 100_000.0)),
    ("link_bandwidth_forward", (0.001, 100_000.0)),
    ("link_bandwidth_backward", (0.001, 100_000.0)),
];

impl Attributes {
    fn read(parent: &Table, items: Vec<Node>, nodes: usize, notes: &mut Notes) -> Result<Self, Wrong> {
        let mut all = Self::default();
        for (i, item) in items.into_iter().enumerate() {
            let mut table = Table::of(parent.path(), &parent.name(&format!("array_description[{i}]")), item)?;
            let given: Vec<(&'static str, (f64, f64), Node)> =
                ATTRIBUTES.into_iter().filter_map(|(name, range)| table.take(name).map(|node| (name, range, node))).collect();
            let [(name, range, node)] = &given[..] else {
                let names = ATTRIBUTES.map(|(name, _)| name).join(", ");
                return Err(table.wrong_here(format!("one attribute is expected in each item: {names}")));
            };
            if node.value != Value::Null {
                let text = "the attribute is a key without a value, and init_value, step_len and step_num stand beside it (same indentation), not below";
                return Err(table.wrong(node.line, name, text));
            }
            let values = values(&mut table, name, *range, nodes, notes)?;
            let slot = match *name {
                "link_loss" => &mut all.loss,
                "link_latency" => &mut all.latency,
                "link_jitter" => &mut all.jitter,
                "link_bandwidth_forward" => &mut all.forward,
                _ => &mut all.backward,
            };
            if slot.replace(values).is_some() {
                return Err(table.wrong_here(format!("{name} is described twice")));
            }
            table.end()?;
        }
        Ok(all)
    }

    /// Every combination: loss outermost, then latency, jitter, bandwidth.
    fn rounds(self, table: &Table, line: usize, links: usize) -> Result<Vec<Vec<Shape>>, Wrong> {
        let forward = self.forward.ok_or_else(|| table.wrong(line, "array_description", "link_bandwidth_forward is missing"))?;
        if matches!(&self.backward, Some(Values::Rounds(rounds)) if rounds.len() > 1) {
            return Err(table.wrong(line, "array_description", "link_bandwidth_backward takes no steps: one value, or one per link"));
        }
        let none = || Values::Rounds(vec![0.0]);
        let (loss, latency, jitter) = (self.loss.unwrap_or_else(none), self.latency.unwrap_or_else(none), self.jitter.unwrap_or_else(none));
        let count = |values: &Values| if let Values::Rounds(rounds) = values { rounds.len() } else { 1 };
        let at = |values: &Values, round: usize, link: usize| match values {
            Values::Rounds(rounds) => rounds[round],
            Values::Links(links) => links[link],
        };
        let total = [&loss, &latency, &jitter, &forward].into_iter().fold(1usize, |n, values| n.saturating_mul(count(values)));
        if total > MOST_ROUNDS {
            return Err(table.wrong(line, "array_description", format!("{total} combinations are more than {MOST_ROUNDS}")));
        }
        let mut rounds = Vec::with_capacity(total);
        for a in 0..count(&loss) {
            for b in 0..count(&latency) {
                for c in 0..count(&jitter) {
                    for d in 0..count(&forward) {
                        let shape = |link: usize| {
                            let rate = at(&forward, d, link);
                            let back = self.backward.as_ref().map_or(rate, |values| at(values, 0, link));
                            Shape {
                                loss: [at(&loss, a, link); 2],
                                latency: [at(&latency, b, link); 2],
                                jitter: [at(&jitter, c, link); 2],
                                rate: [rate, back],
                            }
                        };
                        rounds.push((0..links).map(shape).collect());
                    }
                }
            }
        }
        Ok(rounds)
    }
}

/// `init_value`, `step_len`, `step_num`.
fn values(table: &mut Table, name: &str, range: (f64, f64), nodes: usize, notes: &mut Notes) -> Result<Values, Wrong> {
    let list = table.list("init_value")?;
    let (line, list) = table.required("init_value", list)?;
    let first = |node: &Node| match &node.value {
        Value::List(inner) => inner.first().and_then(|node| number(&node.value)),
        value => number(value),
    };
    let mut read: Vec<f64> = Vec::with_capacity(list.len());
    for node in &list {
        let value =
            first(node).ok_or_else(|| table.wrong(node.line, "init_value", format!("a number is expected, not {}", node.kind())))?;
        if !(range.0..=range.1).contains(&value) {
            return Err(table.wrong(node.line, "init_value", format!("{value} is not between {} and {}", range.0, range.1)));
        }
        read.push(value);
    }
    let (len, num) = (table.number("step_len", (-100_000.0, 100_000.0))?, table.whole("step_num", (0, MOST_ROUNDS as i64))?);
    let links = nodes - 1;
    match (read.len(), len, num) {
        (0, ..) => Err(table.wrong(line, "init_value", "at least one value is expected")),
        (1, None, None) => Ok(Values::Rounds(read)),
        (1, Some(len), Some(num)) => {
            let rounds: Vec<f64> = (0..=num).map(|i| read[0] + len * i as f64).collect();
            match rounds.iter().find(|value| !(range.0..=range.1).contains(*value)) {
                Some(value) => {
                    Err(table.wrong(line, "step_num", format!("a step of {name} is {value}, not between {} and {}", range.0, range.1)))
                }
                None => Ok(Values::Rounds(rounds)),
            }
        }
        (1, ..) => Err(table.wrong(line, "step_len", "step_len and step_num belong together")),
        (_, Some(_), _) | (_, _, Some(_)) => Err(table.wrong(line, "step_len", "steps go with a single init_value")),
        (n, None, None) if n == links || n == nodes => {
            let text = format!("{n} values of {name} are taken link by link; Oasis takes the first of them everywhere, or fails");
            // One per link in both directions, as its own documentation has it.
            if name != "link_bandwidth_backward" {
                notes.push(Note::at(table, "init_value", text));
            }
            read.truncate(links);
            Ok(Values::Links(read))
        }
        (n, ..) => {
            let text = format!("{n} values for {links} links: one for all, or one per link. Oasis would take the first and say nothing");
            Err(table.wrong(line, "init_value", text))
        }
    }
}

/// A file of matrices.
fn matrices(path: &Path, name: String, nodes: usize, is_linear: bool, notes: &mut Notes) -> Result<Topology, Wrong> {
    let mut root = Table::of(path, "", read(path)?)?;
    let data = root.list("data")?;
    let (_, data) = root.required("data", data)?;
    let mut found: [Option<Vec<Vec<f64>>>; 5] = Default::default();
    for (i, node) in data.into_iter().enumerate() {
        let mut table = Table::of(path, &format!("data[{i}]"), node)?;
        let kind = table.whole("matrix_type", (0, 4))?;
        let kind = table.required("matrix_type", kind)? as usize;
        table.text("description")?;
        let rows = table.list("matrix_data")?;
        let (line, rows) = table.required("matrix_data", rows)?;
        let matrix = matrix(&table, line, rows, nodes)?;
        if found[kind].replace(matrix).is_some() {
            return Err(table.wrong(line, "matrix_type", format!("a second matrix of type {kind}")));
        }
        table.end()?;
    }
    root.end()?;
    let wrong = |reason: &str| Wrong { path: path.to_owned(), line: 0, key: "data".to_owned(), reason: reason.to_owned() };
    let [adjacency, rate, loss, latency, jitter] = found;
    let adjacency = adjacency.ok_or_else(|| wrong("the adjacency matrix (matrix_type 0) is missing"))?;
    let rate = rate.ok_or_else(|| wrong("the bandwidth matrix (matrix_type 1) is missing"))?;
    let (mut links, mut shapes) = (Vec::new(), Vec::new());
    for i in 0..nodes {
        if adjacency[i][i] != 0.0 {
            notes.push(Note::text(format!(
                "{}: host {i} is joined to itself; Oasis reads above the diagonal only, and so does this",
                path.display()
            )));
        }
        for j in i + 1..nodes {
            if (adjacency[i][j] != 0.0) != (adjacency[j][i] != 0.0) {
                notes.push(Note::text(format!(
                    "{}: {i} to {j} and {j} to {i} are not the same in the adjacency matrix; what stands above the diagonal counts",
                    path.display()
                )));
            }
            if adjacency[i][j] == 0.0 {
                continue;
            }
            let both = |matrix: &Option<Vec<Vec<f64>>>| matrix.as_ref().map_or([0.0; 2], |matrix| [matrix[i][j], matrix[j][i]]);
            let shape = Shape { loss: both(&loss), latency: both(&latency), jitter: both(&jitter), rate: [rate[i][j], rate[j][i]] };
            if shape.rate.iter().any(|rate| *rate <= 0.0) {
                return Err(wrong(&format!("hosts {i} and {j} are joined and have no bandwidth, there or back")));
            }
            if shape.loss.iter().any(|loss| *loss > 100.0) {
                return Err(wrong(&format!("hosts {i} and {j}: a loss above 100 %")));
            }
            links.push((i, j));
            shapes.push(shape);
        }
    }
    if is_linear && links != (1..nodes).map(|i| (i - 1, i)).collect::<Vec<_>>() {
        return Err(wrong("the topology is linear and the adjacency matrix joins other hosts than neighbours"));
    }
    Ok(Topology { name, nodes, is_linear, links, rounds: vec![shapes] })
}

fn matrix(table: &Table, line: usize, rows: Vec<Node>, nodes: usize) -> Result<Vec<Vec<f64>>, Wrong> {
    let wrong = |line: usize, reason: String| table.wrong(line, "matrix_data", reason);
    if rows.len() != nodes {
        return Err(wrong(line, format!("{} rows for {nodes} nodes", rows.len())));
    }
    let mut matrix = Vec::with_capacity(nodes);
    for (i, row) in rows.into_iter().enumerate() {
        let Value::List(cells) = row.value else { return Err(wrong(row.line, format!("row {} is no list", i + 1))) };
        if cells.len() != nodes {
            return Err(wrong(row.line, format!("row {} has {} entries for {nodes} nodes", i + 1, cells.len())));
        }
        let read = |node: &Node| {
            number(&node.value)
                .filter(|value| *value >= 0.0)
                .ok_or_else(|| wrong(node.line, format!("row {}: {} is no number from 0 on", i + 1, node.kind())))
        };
        matrix.push(cells.iter().map(read).collect::<Result<_, _>>()?);
    }
    Ok(matrix)
}

//! Test files: tests with their topology, protocols and tools.

use std::path::{Path, PathBuf};

use super::protocols::{self, Protocol};
use super::table::Table;
use super::topology::{Topology, entry};
use super::yaml::{Value, Wrong, read};
use super::{Note, Notes};

/// A test of a file.
#[derive(Debug, Clone, PartialEq)]
pub struct Test {
    /// Its name.
    pub name: String,
    /// Hosts and links.
    pub topology: Topology,
    /// What is tested.
    pub protocols: Vec<Protocol>,
    /// How packets find their way.
    pub route: &'static str,
    /// In the order of the file.
    pub tools: Vec<Tool>,
    /// Other flows at the same time.
    pub competition: Vec<Competitor>,
    /// A failure does not fail the whole.
    pub allow_failure: bool,
}

/// What a tool is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Class {
    /// Bulk TCP, or UDP at a rate.
    Iperf,
    /// Bulk by the protocol's own interface.
    BatsIperf,
    /// Messages that are echoed.
    Rtt,
    /// ICMP echo.
    Ping,
    /// A file.
    Scp,
    /// Any other program.
    Program,
}

/// A tool of a test.
#[derive(Debug, Clone, PartialEq)]
pub struct Tool {
    /// Its name.
    pub name: String,
    /// What it is.
    pub class: Class,
    /// Between reports or messages, s.
    pub interval: f64,
    /// How many of them.
    pub count: u32,
    /// Streams.
    pub parallel: u32,
    /// UDP instead of TCP.
    pub is_udp: bool,
    /// Mbit/s; 0: as fast as it goes.
    pub bitrate: f64,
    /// Of a program.
    pub args: Vec<String>,
    /// Host at this end.
    pub client: usize,
    /// Host at the other.
    pub server: usize,
    /// `rtt`: messages, and bytes of each.
    pub packets: (u32, usize),
    /// `scp`: MB.
    pub file_size: u32,
}

/// A flow beside the tested one.
#[derive(Debug, Clone, PartialEq)]
pub struct Competitor {
    /// `tcp`, `tcp-bbr`, `btp`, `brtp`.
    pub kind: String,
    /// From this host to that.
    pub hosts: (usize, usize),
    /// When and for how long, s; Oasis draws what is missing.
    pub times: Option<(f64, f64)>,
}

/// Reads the tests of a file: all, or the one that is named.
pub fn tests(path: &Path, only: Option<&str>, config: &Path, notes: &mut Notes) -> Result<Vec<Test>, Wrong> {
    let mut root = Table::of(path, "", read(path)?)?;
    if let Some(mut containernet) = root.table("containernet")? {
        if let Some(node) = containernet.table("node_config")? {
            node_config(node, config)?;
        }
        containernet.end()?;
    }
    let listed = root.table("tests")?;
    let mut listed = root.required("tests", listed)?;
    root.end()?;
    let mut tests = Vec::new();
    let mut names = Vec::new();
    for (name, line, node) in listed.take_all() {
        names.push(name.clone());
        if only.is_some_and(|only| only != name) {
            continue;
        }
        let table = Table::of(path, &format!("tests.{name}"), node)?;
        match test(name.clone(), table, config, notes)? {
            Some(test) => tests.push(test),
            None => notes.push(Note::line(&listed, line, &name, "`if` is false: skipped")),
        }
    }
    match only {
        Some(only) if !names.iter().any(|name| name == only) => {
            Err(listed.wrong_here(format!("there is no test `{only}`; there are {}", names.join(", "))))
        }
        _ if names.is_empty() => Err(listed.wrong_here("there are no tests")),
        _ => Ok(tests),
    }
}

/// The containers of Oasis. Nothing of them is used here; that it is what it should be is looked at all the same.
fn node_config(mut table: Table, config: &Path) -> Result<(), Wrong> {
    let (name, file) = (table.text("config_name")?, table.text("config_file")?);
    table.text("init_script")?;
    let mut fields = match (name, file) {
        (None, None) => table,
        (Some(name), Some(file)) => {
            let found = entry(&config.join(file), &name).map_err(|reason| table.wrong_here(reason))??;
            table.end()?;
            found
        }
        _ => return Err(table.wrong_here("config_name and config_file belong together")),
    };
    for key in ["name", "img", "name_prefix", "ip_range", "init_script", "config_base_path"] {
        fields.text(key)?;
    }
    fields.words("vols")?;
    fields.truth("bind_port")?;
    fields.end()
}

fn test(name: String, mut table: Table, config: &Path, notes: &mut Notes) -> Result<Option<Test>, Wrong> {
    table.text("description")?;
    let is_on = table.truth("if")?.unwrap_or(true);
    let topology = table.table("topology")?;
    let topology = Topology::read(table.required("topology", topology)?, config, notes)?;
    let protocols = protocols::targets(&mut table, config, notes)?;
    let route = table.one_of("route", &["static_route", "static_bfs", "olsr_route", "openr_route"])?;
    let route = table.required("route", route)?;
    match route {
        "static_route" if !topology.is_linear => {
            return Err(table.wrong_here("static_route is for linear topologies; a mesh has static_bfs"));
        }
        "olsr_route" => notes.push(Note::at(&table, "route", "OLSR is not run here: routes by the fewest hops stand there at once")),
        "openr_route" => notes.push(Note::at(
            &table,
            "route",
            "Oasis has an empty class for it, so that nothing routes there; here it is the fewest hops",
        )),
        _ => {}
    }
    let tools = table.table("test_tools")?;
    let mut tools_table = table.required("test_tools", tools)?;
    let mut tools = Vec::new();
    for (tool, _, node) in tools_table.take_all() {
        let own = Table::of(tools_table.path(), &tools_table.name(&tool), node)?;
        tools.push(read_tool(tool, own, topology.nodes)?);
    }
    if tools.is_empty() {
        return Err(tools_table.wrong_here("at least one tool is expected"));
    }
    table.one_of("execution_mode", &["serial", "parallel"])?;
    let allow_failure = table.truth("allow_failure")?.unwrap_or(false);
    let mut competition = Vec::new();
    if let Some((_, list)) = table.list("competition_flows")? {
        for (i, node) in list.into_iter().enumerate() {
            competition.push(competitor(Table::of(table.path(), &table.name(&format!("competition_flows[{i}]")), node)?, topology.nodes)?);
        }
    }
    table.end()?;
    Ok(is_on.then_some(Test { name, topology, protocols, route, tools, competition, allow_failure }))
}

fn class_of(name: &str) -> Class {
    match name {
        _ if name.contains("bats_iperf") => Class::BatsIperf,
        _ if name.contains("iperf") => Class::Iperf,
        "rtt" => Class::Rtt,
        "ping" => Class::Ping,
        "scp" => Class::Scp,
        _ => Class::Program,
    }
}

fn read_tool(name: String, mut table: Table, nodes: usize) -> Result<Tool, Wrong> {
    let class = class_of(&name);
    let last = nodes as i64 - 1;
    let mut host = |key: &'static str, usual: usize| -> Result<usize, Wrong> {
        let Some(node) = table.take(key) else {
            return Err(table.wrong(table.line(), key, "is missing; null means the usual host, and Oasis asks for the key all the same"));
        };
        match node.value {
            Value::Null => Ok(usual),
            Value::Int(host) if (0..=last).contains(&host) => Ok(host as usize),
            _ => Err(table.wrong(node.line, key, format!("a host from 0 to {last} is expected, not {}", node.kind()))),
        }
    };
    let (client, server) = (host("client_host", 0)?, host("server_host", nodes - 1)?);
    if client == server {
        return Err(table.wrong_here(format!("client and server are both host {client}")));
    }
    let packets = (table.whole("packet_count", (1, 10_000_000))?, table.whole("packet_size", (17, 10_256))?);
    let packets = match (class, packets) {
        (Class::Rtt, (Some(count), Some(size))) => (count as u32, size as usize),
        (Class::Rtt, _) => return Err(table.wrong_here("packet_count and packet_size are needed")),
        (_, (None, None)) => (0, 0),
        _ => return Err(table.wrong_here("packet_count and packet_size are for the tool `rtt`")),
    };
    let is_udp = table.one_of("packet_type", &["tcp", "udp"])? == Some("udp");
    let bitrate = table.number("bitrate", (0.0, 100_000.0))?.unwrap_or(0.0);
    let file_size = table.whole("file_size", (1, 100_000))?;
    if file_size.is_some() && class != Class::Scp {
        return Err(table.wrong_here("file_size is for the tool `scp`"));
    }
    let tool = Tool {
        class,
        interval: table.number("interval", (0.001, 86_400.0))?.unwrap_or(1.0),
        count: table.whole("interval_num", (1, 1_000_000))?.unwrap_or(10) as u32,
        parallel: table.whole("parallel", (1, 128))?.unwrap_or(1) as u32,
        is_udp,
        // As Oasis has it.
        bitrate: if is_udp && bitrate == 0.0 { 10.0 } else { bitrate },
        args: table.words("args")?,
        client,
        server,
        packets,
        file_size: file_size.unwrap_or(1) as u32,
        name,
    };
    table.end()?;
    Ok(tool)
}

fn competitor(mut table: Table, nodes: usize) -> Result<Competitor, Wrong> {
    let names = ["tcp", "tcp-cubic", "tcp-bbr", "tcp-reno", "btp", "brtp"];
    let kind = table.one_of("flow_type", &names)?.unwrap_or("tcp").to_owned();
    let last = nodes as i64 - 1;
    let hosts = (table.whole("client_host", (0, last))?.unwrap_or(0), table.whole("server_host", (0, last))?.unwrap_or(1));
    let (delay, lasts) = (table.number("delay", (0.0, 86_400.0))?, table.number("duration", (0.001, 86_400.0))?);
    table.end()?;
    Ok(Competitor { kind, hosts: (hosts.0 as usize, hosts.1 as usize), times: delay.zip(lasts) })
}

/// Parts `FILE.yaml[:TEST]`; `all` is every test.
pub fn file_and_test(text: &str, config: &Path) -> (PathBuf, Option<String>) {
    let (file, test) = match text.rsplit_once(':') {
        Some((file, test)) if !test.contains('/') => (file, Some(test.to_owned()).filter(|test| test != "all")),
        _ => (text, None),
    };
    let path = PathBuf::from(file);
    // Oasis is started in the folder above its configuration, and people name the file either way.
    let beside = config.join(file);
    (if !path.exists() && beside.exists() { beside } else { path }, test)
}

//! Protocols: the entries of `predefined.protocols.yaml` and of tests, and what runs them here.

use std::path::Path;

use super::table::Table;
use super::yaml::{Node, Value, Wrong, read};
use super::{Note, Notes};
use crate::sim::QuicCongestion;

/// The file of the configuration folder.
const FILE: &str = "predefined.protocols.yaml";
/// Names that a test may spell out itself.
const INLINE: [&str; 5] = ["btp", "brtp", "brtp_proxy", "tcp", "kcp"];

/// An entry.
#[derive(Debug, Clone, PartialEq)]
pub struct Protocol {
    /// Its name.
    pub name: String,
    /// The program.
    pub bin: String,
    /// Its arguments.
    pub args: Vec<String>,
    /// Congestion control of TCP; part of the names of results.
    pub version: String,
    /// Where tools go, if somewhere else.
    pub port: u16,
    /// Client and server, where they differ.
    pub parts: Vec<Protocol>,
}

/// What runs a protocol here.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Contender {
    /// A node on every host, streams that arrive whole.
    Brtp,
    /// A node on every host, messages with a lifetime.
    Btp,
    /// TCP from end to end.
    Tcp(QuicCongestion),
    /// A real program.
    Program(String),
}

impl Protocol {
    fn read(mut table: Table) -> Result<Self, Wrong> {
        let name = table.text("name")?;
        let name = table.required("name", name)?;
        let kind = table.one_of("type", &["distributed", "none_distributed"])?.unwrap_or("distributed");
        let bin = table.text("bin")?.unwrap_or_default();
        let args = table.words("args")?;
        table.text("config_file")?;
        let version = table.text("version")?.unwrap_or_default();
        let port = table.whole("port", (0, 65_535))?.unwrap_or(0) as u16;
        table.list("hosts")?;
        let mut parts = Vec::new();
        if let Some((line, list)) = table.list("protocols")? {
            if list.len() != 2 {
                return Err(table.wrong(line, "protocols", format!("two are expected, client and server, not {}", list.len())));
            }
            for (i, node) in list.into_iter().enumerate() {
                parts.push(Self::read(Table::of(table.path(), &table.name(&format!("protocols[{i}]")), node)?)?);
            }
        }
        let protocol = Self { name, bin, args, version, port, parts };
        // A bare tcp has nothing to start, and so no pair either.
        if kind == "none_distributed" && protocol.parts.is_empty() && matches!(protocol.contender(), Ok(Contender::Program(_))) {
            return Err(table.wrong_here("none_distributed needs `protocols` with a client and a server"));
        }
        table.end()?;
        Ok(protocol)
    }

    /// What runs it.
    ///
    /// # Errors
    /// Its version is no congestion control, or its arguments name no mode: in words.
    pub fn contender(&self) -> Result<Contender, String> {
        let name = self.name.as_str();
        if name.contains("-next") {
            let mode = self.args.iter().position(|arg| arg == "-m").and_then(|at| self.args.get(at + 1)).map(String::as_str);
            return match mode {
                Some("0") => Ok(Contender::Btp),
                Some("1") => Ok(Contender::Brtp),
                Some("10") => Ok(Contender::Tcp(QuicCongestion::Cubic)),
                other => Err(format!("{name}: bats_iperf -m {} is not 0, 1 or 10", other.unwrap_or("(missing)"))),
            };
        }
        Ok(match name {
            _ if name.contains("brtp") => Contender::Brtp,
            _ if name.contains("btp") => Contender::Btp,
            _ if name.contains("tcp") => Contender::Tcp(match self.version.as_str() {
                "cubic" | "" | "latest" => QuicCongestion::Cubic,
                "reno" => QuicCongestion::Reno,
                "bbr" => QuicCongestion::Bbr,
                other => return Err(format!("{name}: version {other} is none of cubic, reno and bbr, which are all that Oasis sets")),
            }),
            _ => Contender::Program(if self.bin.is_empty() { name.to_owned() } else { self.bin.clone() }),
        })
    }

    /// As names of results begin: upper case, `-` for `_` in names of daemons, the version unless it is TCP's.
    pub fn label(&self) -> String {
        let mut label = self.name.to_uppercase();
        if self.name.contains("btp") || self.name.contains("brtp") {
            label = label.replace('_', "-");
        }
        if !self.version.is_empty() && self.version != "latest" && !self.name.contains("tcp") {
            label.push_str(&format!("-{}", self.version));
        }
        label
    }
}

/// The entries of the configuration folder; none if it has no such file.
fn predefined(config: &Path) -> Result<Vec<Protocol>, Wrong> {
    let path = config.join(FILE);
    if !path.exists() {
        return Ok(Vec::new());
    }
    let mut root = Table::of(&path, "", read(&path)?)?;
    let list = root.list("protocols")?;
    let (_, list) = root.required("protocols", list)?;
    root.end()?;
    let one = |(i, node): (usize, Node)| Protocol::read(Table::of(&path, &format!("protocols[{i}]"), node)?);
    list.into_iter().enumerate().map(one).collect()
}

/// The `target_protocols` of a test.
pub fn targets(table: &mut Table, config: &Path, notes: &mut Notes) -> Result<Vec<Protocol>, Wrong> {
    let list = table.list("target_protocols")?;
    let (line, list) = table.required("target_protocols", list)?;
    let are_names = list.iter().all(|node| matches!(node.value, Value::Text(_)));
    let are_entries = list.iter().all(|node| matches!(node.value, Value::Map(_)));
    let mut protocols = Vec::new();
    if are_entries && !list.is_empty() {
        for (i, node) in list.into_iter().enumerate() {
            let entry = Table::of(table.path(), &table.name(&format!("target_protocols[{i}]")), node)?;
            let line = entry.line();
            let protocol = Protocol::read(entry)?;
            if !INLINE.contains(&&*protocol.name) {
                let text = format!("`{}` is skipped, as Oasis skips it: entries in a test may be {}", protocol.name, INLINE.join(", "));
                notes.push(Note::line(table, line, "target_protocols", text));
                continue;
            }
            protocols.push(protocol);
        }
    } else if are_names {
        let known = predefined(config)?;
        for node in list {
            let Value::Text(name) = node.value else { continue };
            match known.iter().find(|protocol| protocol.name == name) {
                Some(protocol) => protocols.push(protocol.clone()),
                None if name == "tcp" => {
                    protocols.push(Protocol {
                        name,
                        bin: String::new(),
                        args: Vec::new(),
                        version: String::new(),
                        port: 0,
                        parts: Vec::new(),
                    });
                }
                None => {
                    let text = format!("`{name}` is not in {FILE}; it is skipped, which Oasis does without a word");
                    notes.push(Note::line(table, node.line, "target_protocols", text));
                }
            }
        }
    } else {
        return Err(table.wrong(line, "target_protocols", "all names or all mappings are expected"));
    }
    if protocols.is_empty() {
        return Err(table.wrong(line, "target_protocols", "none of them is known: nothing would run"));
    }
    for protocol in &protocols {
        protocol.contender().map_err(|reason| table.wrong(line, "target_protocols", reason))?;
    }
    Ok(protocols)
}

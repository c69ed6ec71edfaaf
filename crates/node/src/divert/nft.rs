//! A table of rules, as text for the program nft, and in the kernel.

use crate::failure::Failure;
use noctule::FarText;
use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::io::{self, ErrorKind, Read, Write};
use std::process::{Child, Command, ExitStatus, Output, Stdio};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

/// How long nft may take.
const PATIENCE: Duration = Duration::from_secs(5);
const PAUSE: Duration = Duration::from_millis(2);

/// A chain: its name, where it hangs, its rules.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Chain {
    /// Its name.
    pub name: &'static str,
    /// Type, hook, priority and policy; `None`: other chains lead to it.
    pub hook: Option<&'static str>,
    /// One each.
    pub rules: Vec<String>,
}

/// A set of addresses, which may be empty.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Set {
    /// Its name.
    pub name: &'static str,
    /// The type of its elements.
    pub kind: &'static str,
    /// Networks or intervals that do not overlap.
    pub elements: Vec<String>,
}

/// A table of our own.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Table {
    /// Family and name.
    pub name: String,
    /// By this it is known to be ours.
    pub comment: &'static str,
    /// What its rules look up.
    pub sets: Vec<Set>,
    /// Its rules.
    pub chains: Vec<Chain>,
}

/// What stands in a table's place.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Found {
    /// There is no such table.
    Nothing,
    /// One of ours. Owned: it goes with the process that made it.
    Ours {
        /// An `nft -i` owns it.
        is_owned: bool,
    },
    /// One that has not our comment.
    Others,
}

/// What kept nft from doing it.
#[derive(Debug, thiserror::Error)]
pub enum NftError {
    /// The program is not there.
    #[error("the program nft is not in PATH: install it (Debian: apt-get install nftables)")]
    Missing,
    /// It cannot be started.
    #[error("cannot start the program nft: {0}")]
    Start(io::Error),
    /// It does not end.
    #[error("the program nft did not end within {} s", PATIENCE.as_secs())]
    Late,
    /// It says no.
    #[error("nft {what}: {said}")]
    Said {
        /// What it was asked for.
        what: &'static str,
        /// Its words.
        said: String,
    },
}

impl From<NftError> for Failure {
    fn from(error: NftError) -> Self {
        Self::System(error.to_string())
    }
}

impl From<io::Error> for NftError {
    fn from(error: io::Error) -> Self {
        match error.kind() {
            ErrorKind::NotFound => Self::Missing,
            _ => Self::Start(error),
        }
    }
}

/// `nft` with these words and this on its standard input.
///
/// # Errors
/// It cannot be run. What it thinks of the words is in the output.
fn run(words: &[&str], input: &str) -> Result<Output, NftError> {
    let mut command = Command::new("nft");
    command.args(words).stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut child = command.spawn()?;
    let input = input.to_owned();
    if let Some(mut stdin) = child.stdin.take() {
        // One that reads nothing says why on its standard error.
        std::thread::spawn(move || drop(stdin.write_all(input.as_bytes())));
    }
    let (stdout, stderr) = (reader(child.stdout.take()), reader(child.stderr.take()));
    let status = ended(&mut child)?;
    let read = |reader: JoinHandle<Vec<u8>>| reader.join().unwrap_or_default();
    Ok(Output { status, stdout: read(stdout), stderr: read(stderr) })
}

/// Waits for the end of an nft that is about to end.
///
/// # Errors
/// It does not: it is killed.
pub fn ended(child: &mut Child) -> Result<ExitStatus, NftError> {
    let deadline = Instant::now() + PATIENCE;
    loop {
        if let Some(status) = child.try_wait()? {
            return Ok(status);
        }
        if Instant::now() > deadline {
            let _ = child.kill();
            let _ = child.wait();
            return Err(NftError::Late);
        }
        std::thread::sleep(PAUSE);
    }
}

/// Reads a pipe to its end, so that nobody waits for room in it.
fn reader(pipe: Option<impl Read + Send + 'static>) -> JoinHandle<Vec<u8>> {
    std::thread::spawn(move || {
        let mut all = Vec::new();
        // What was read before an error counts.
        let _ = pipe.map(|mut pipe| pipe.read_to_end(&mut all));
        all
    })
}

/// What nft said, in a line.
pub fn words(output: &Output) -> String {
    let said = output.stderr.split(|byte| *byte == b'\n').map(<[u8]>::trim_ascii).find(|line| !line.is_empty());
    let line = said.unwrap_or(b"it does not say why");
    FarText::from_wire(line.strip_prefix(b"Error: ").unwrap_or(line), usize::MAX).to_string()
}

/// An output that is a success.
fn success(what: &'static str, output: Output) -> Result<Output, NftError> {
    if output.status.success() { Ok(output) } else { Err(NftError::Said { what, said: words(&output) }) }
}

impl Table {
    /// One without sets and chains: for what only its name and comment count.
    pub fn named(name: String, comment: &'static str) -> Self {
        Self { name, comment, sets: Vec::new(), chains: Vec::new() }
    }

    fn family_and_name(&self) -> [&str; 2] {
        let (family, name) = self.name.split_once(' ').unwrap_or(("inet", &self.name));
        [family, name]
    }

    /// The whole table, which takes the place of one that is there. `owned`: it ends with the process that makes it.
    pub fn script(&self, owned: bool) -> String {
        let Self { name, comment, sets, chains } = self;
        let mut out = format!("add table {name}\ndelete table {name}\ntable {name} {{\n\tcomment \"{comment}\"\n");
        if owned {
            out.push_str("\tflags owner\n");
        }
        // Writing to a String cannot fail.
        for Set { name, kind, elements } in sets {
            let _ = writeln!(out, "\tset {name} {{\n\t\ttype {kind}\n\t\tflags interval");
            if !elements.is_empty() {
                let _ = writeln!(out, "\t\telements = {{ {} }}", elements.join(", "));
            }
            out.push_str("\t}\n");
        }
        for chain in chains {
            let _ = writeln!(out, "\tchain {} {{", chain.name);
            for line in chain.hook.into_iter().chain(chain.rules.iter().map(String::as_str)) {
                let _ = writeln!(out, "\t\t{line}");
            }
            out.push_str("\t}\n");
        }
        out.push_str("}\n");
        out
    }

    /// What stands in its place.
    ///
    /// # Errors
    /// nft cannot say.
    pub fn find(&self) -> Result<Found, NftError> {
        let listed = success("cannot list the tables of this host", run(&["list", "tables"], "")?)?;
        if !String::from_utf8_lossy(&listed.stdout).lines().any(|line| line.trim() == format!("table {}", self.name)) {
            return Ok(Found::Nothing);
        }
        let [family, name] = self.family_and_name();
        let table = run(&["list", "table", family, name], "")?;
        let text = String::from_utf8_lossy(&table.stdout);
        Ok(match text.contains(&format!("comment \"{}\"", self.comment)) {
            true => Found::Ours { is_owned: text.lines().any(|line| line.trim() == "flags owner") },
            // It went away in between.
            false if !table.status.success() => Found::Nothing,
            false => Found::Others,
        })
    }

    /// Puts it in the place of one that is there, in one transaction.
    ///
    /// # Errors
    /// nft does not take it: nothing has changed.
    pub fn put(&self) -> Result<(), NftError> {
        success("does not take the rules", run(&["-f", "-"], &self.script(false))?).map(drop)
    }

    /// Takes it away.
    ///
    /// # Errors
    /// It has another owner, or is not there.
    pub fn delete(&self) -> Result<(), NftError> {
        let [family, name] = self.family_and_name();
        success("does not remove the table", run(&["delete", "table", family, name], "")?).map(drop)
    }

    /// In what the kernel's table differs from this one: it has every chain with as many rules.
    ///
    /// # Errors
    /// nft cannot be run.
    pub fn differs(&self) -> Result<Option<String>, NftError> {
        let [family, name] = self.family_and_name();
        // Not as JSON: nft 1.0.6 writes the flags of an owned table from memory that is not its own.
        let listed = run(&["list", "table", family, name], "")?;
        if !listed.status.success() {
            return Ok(Some(format!("there is no table {}", self.name)));
        }
        let there = count(&String::from_utf8_lossy(&listed.stdout));
        let wrong = self.chains.iter().find(|chain| there.get(chain.name) != Some(&chain.rules.len()));
        Ok(wrong.map(|chain| {
            let found = there.get(chain.name).copied().unwrap_or(0);
            format!("the chain {} has {found} rules instead of {}", chain.name, chain.rules.len())
        }))
    }
}

/// A script in one line, as `nft -i` wants it.
pub fn in_a_line(script: &str) -> String {
    let mut out = String::new();
    for line in script.lines().map(str::trim) {
        out.push_str(line);
        out.push_str(if line.ends_with(['{', ';']) { " " } else { "; " });
    }
    out.push('\n');
    out
}

/// Rules of each chain: a line each, behind that which says where the chain hangs.
fn count(listed: &str) -> BTreeMap<String, usize> {
    let (mut there, mut chain) = (BTreeMap::new(), None);
    for line in listed.lines().map(str::trim).filter(|line| !line.is_empty()) {
        if let Some(name) = line.strip_prefix("chain ").and_then(|rest| rest.strip_suffix(" {")) {
            there.insert(name.to_owned(), 0);
            chain = Some(name);
        } else if line == "}" {
            chain = None;
        } else if let Some(rules) = chain.and_then(|name| there.get_mut(name))
            && !line.starts_with("type ")
        {
            *rules += 1;
        }
    }
    there
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rules_are_counted_as_nft_lists_them() {
        let listed = "table inet x { # progname nft\n\tflags owner\n\tset nets4 {\n\t\telements = { 10.0.0.0/8,\n\t\t\t127.0.0.0/8 }\n\t}\n\n\tchain divert {\n\t}\n\n\tchain own {\n\t\ttype route hook output priority mangle; policy accept;\n\t\tmeta skuid { 5, 6 } accept\n\t\treject\n\t}\n}\n";
        assert_eq!(count(listed), BTreeMap::from([("own".into(), 2), ("divert".into(), 0)]));
    }

    #[test]
    fn one_line_has_all_of_it() {
        let line = in_a_line("table x {\n\tchain c {\n\t\ttype filter; policy accept;\n\t\taccept\n\t}\n}\n");
        assert_eq!(line, "table x { chain c { type filter; policy accept; accept; }; }; \n");
    }

    #[test]
    fn an_empty_set_has_no_elements() {
        let set = |elements: &[&str]| Set { name: "s", kind: "ipv4_addr", elements: elements.iter().map(|e| (*e).to_owned()).collect() };
        let table = |sets| Table { sets, ..Table::named("inet x".into(), "c") };
        assert!(!table(vec![set(&[])]).script(false).contains("elements"));
        assert!(table(vec![set(&["10.0.0.0/8", "192.0.2.1"])]).script(false).contains("elements = { 10.0.0.0/8, 192.0.2.1 }"));
    }
}

//! Relays of a chain as real processes: `noctule node` on every host between the ends, to which the ends attach.

use std::net::{IpAddr, SocketAddr};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use super::chain::Chain;
use super::contest::ContestError;
use super::namespace::Namespace;
use super::noctule::{self, Protocol};
use super::process::Process;
use crate::scenario::Scenario;

pub(super) const PORT: u16 = 4243;
const READY: Duration = Duration::from_secs(10);

/// Running relays; they end when this is dropped.
pub(crate) struct Chained {
    _processes: Vec<Process>,
    near: Attachment,
    far: Attachment,
}

/// Where an end attaches.
struct Attachment {
    node: SocketAddr,
    key: String,
    address: IpAddr,
}

impl Attachment {
    fn words(&self) -> Vec<String> {
        ["--via", &self.node.to_string(), "--via-key", &self.key, "--address", &self.address.to_string()].map(str::to_owned).to_vec()
    }
}

/// The overlay's address of the host with this index.
pub(super) fn overlay(index: usize) -> IpAddr {
    IpAddr::from([10, 9, 0, index as u8 + 1])
}

impl Chained {
    /// Starts the relays of `chain`, whose ends have these public keys, and waits until each has a session with the next.
    pub(crate) fn start(chain: &Chain, scenario: &Scenario, binary: &Path, scratch: &Path, ends: [&str; 2]) -> Result<Self, ContestError> {
        let (Some((near, far)), last) = (chain.gateways(), chain.hosts().len() - 1) else {
            return Err(ContestError::Unsupported("a chain of one link has no relays".to_owned()));
        };
        let mut keys = vec![ends[0].to_owned()];
        for index in 1..last {
            std::fs::create_dir(directory(scratch, index))?;
            keys.push(noctule::keygen(binary, &directory(scratch, index).join("key"))?);
        }
        keys.push(ends[1].to_owned());
        let between: Vec<_> = chain.between().collect();
        let mut processes = Vec::new();
        // From the far end on, so that each finds the next one listening.
        for index in (1..last).rev() {
            let (host, _) = between[index - 1];
            let next = between.get(index).map(|(_, address)| SocketAddr::new(*address, PORT));
            let file = NodeFile { index, last, keys: &keys, next, congestion: &scenario.cc.to_string(), is_tunnel: false };
            processes.push(start_node(host, binary, scratch, &file)?);
        }
        let this = Self {
            _processes: processes,
            near: Attachment { node: SocketAddr::new(near, PORT), key: keys[1].clone(), address: overlay(0) },
            far: Attachment { node: SocketAddr::new(far, PORT), key: keys[last - 1].clone(), address: overlay(last) },
        };
        for index in 1..last - 1 {
            wait_for_session(binary, &directory(scratch, index), index + 1, || Ok(()))?;
        }
        Ok(this)
    }

    /// Flags of the end that calls.
    pub(crate) fn near(&self) -> Vec<String> {
        self.near.words()
    }

    /// Flags of the end that is called.
    pub(crate) fn far(&self) -> Vec<String> {
        self.far.words()
    }

    /// How the far end is named.
    pub(crate) fn far_address(&self) -> IpAddr {
        self.far.address
    }
}

/// Directory of the node of this index.
pub(super) fn directory(scratch: &Path, index: usize) -> PathBuf {
    scratch.join(format!("node-{index}"))
}

/// Starts a node by its file, in its directory where its key is, and waits until it listens.
pub(super) fn start_node(host: &Namespace, binary: &Path, scratch: &Path, node: &NodeFile<'_>) -> Result<Process, ContestError> {
    let file = directory(scratch, node.index).join("node.toml");
    std::fs::write(&file, node.text())?;
    let mut command = host.command(binary);
    command.args(["node", "--log-level", "warn", "--config"]).arg(&file);
    let mut process = Process::start(&mut command, |_| {})?;
    noctule::wait_for_port(host, Protocol::Udp, PORT, READY, &mut process)?;
    Ok(process)
}

/// What is in the file of a node of a chain.
pub(super) struct NodeFile<'a> {
    /// Its place, and that of the far end.
    pub(super) index: usize,
    pub(super) last: usize,
    /// Public keys of all.
    pub(super) keys: &'a [String],
    /// Where it calls the next node.
    pub(super) next: Option<SocketAddr>,
    pub(super) congestion: &'a str,
    /// The ends are nodes too, with a TUN device each.
    pub(super) is_tunnel: bool,
}

impl NodeFile<'_> {
    fn text(&self) -> String {
        let &Self { index, last, keys, next, congestion, is_tunnel } = self;
        let node = |kind: &str, at: usize, more: &str| {
            format!("[[{kind}]]\nname = \"n{at}\"\nkey = \"{}\"\naddresses = [\"{}\"]\n{more}\n", keys[at], overlay(at))
        };
        let route = |to: usize, via: usize| format!("[[route]]\nto = \"{}\"\nvia = \"n{via}\"\n", overlay(to));
        let call = next.map_or(String::new(), |next| format!("endpoint = \"{next}\"\n"));
        let is_end = index == 0 || index == last;
        let mut file = format!(
            "[node]\nkey = \"key\"\nlisten = \"[::]:{PORT}\"\naddresses = [\"{}\"]\nrelay = {}\ncongestion = \"{congestion}\"\n",
            overlay(index),
            !is_end
        );
        if index > 0 {
            file += &node("neighbour", index - 1, "");
        }
        if index < last {
            file += &node("neighbour", index + 1, &call);
        }
        if is_end && last > 1 {
            file += &node("remote", last - index, "");
        }
        if index > 1 {
            file += &route(0, index - 1);
        }
        if index + 1 < last {
            file += &route(last, index + 1);
        }
        if is_tunnel && is_end {
            file += &format!("[tun]\naddresses = [\"{}/24\"]\n", overlay(index));
        }
        file + "[control]\nsocket = \"socket\"\n"
    }
}

/// Waits until the node of this directory has a session with the one of index `with`; `nudge` is done before each look.
pub(super) fn wait_for_session(
    binary: &Path,
    directory: &Path,
    with: usize,
    nudge: impl Fn() -> Result<(), ContestError>,
) -> Result<(), ContestError> {
    let deadline = Instant::now() + READY;
    loop {
        nudge()?;
        let output = std::process::Command::new(binary).args(["status", "--json", "--socket"]).arg(directory.join("socket")).output()?;
        let report: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap_or_default();
        let name = format!("n{with}");
        let is_up = |node: &serde_json::Value| node["name"] == name.as_str() && node["session"].is_string();
        if report["nodes"].as_array().is_some_and(|nodes| nodes.iter().any(is_up)) {
            return Ok(());
        }
        if Instant::now() > deadline {
            return Err(ContestError::Process(format!("the relays did not find each other within {READY:?}")));
        }
        std::thread::sleep(Duration::from_millis(20));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_relay_in_the_middle_has_routes_to_both_ends_and_calls_the_next() {
        let keys = ["a", "b", "c", "d"].map(str::to_owned);
        let next = Some("10.77.1.2:4243".parse().unwrap());
        let of = |index, next| NodeFile { index, last: 3, keys: &keys, next, congestion: "model", is_tunnel: false }.text();
        let file = of(1, next);
        assert!(file.contains("endpoint = \"10.77.1.2:4243\"") && file.contains("to = \"10.9.0.4\"\nvia = \"n2\""), "{file}");
        assert!(!file.contains("to = \"10.9.0.1\""), "the near end is a neighbour: {file}");
        let file = of(2, None);
        assert!(!file.contains("endpoint") && file.contains("to = \"10.9.0.1\"\nvia = \"n1\""), "{file}");
    }

    #[test]
    fn an_end_of_a_tunnel_has_a_device_and_knows_the_other_end_as_a_remote_node() {
        let keys = ["a", "b", "c"].map(str::to_owned);
        let of = |index, last| NodeFile { index, last, keys: &keys, next: None, congestion: "model", is_tunnel: true }.text();
        let file = of(0, 2);
        assert!(file.contains("[tun]\naddresses = [\"10.9.0.1/24\"]") && file.contains("[[remote]]\nname = \"n2\""), "{file}");
        assert!(file.contains("to = \"10.9.0.3\"\nvia = \"n1\"") && file.contains("relay = false"), "{file}");
        assert!(!of(1, 2).contains("[tun]"), "a node in the middle has none");
        assert!(!of(1, 1).contains("[[remote]]"), "over one link it is a neighbour");
    }
}

//! Relays of a chain as real processes: `noctule node` on every host between the ends, to which the ends attach.

use std::net::{IpAddr, SocketAddr};
use std::path::Path;
use std::time::{Duration, Instant};

use super::chain::Chain;
use super::contest::ContestError;
use super::noctule;
use super::process::Process;
use crate::scenario::Scenario;

const PORT: u16 = 4243;
const READY: Duration = Duration::from_secs(10);

/// Running relays; they end when this is dropped.
pub(super) struct Chained {
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
fn overlay(index: usize) -> IpAddr {
    IpAddr::from([10, 9, 0, index as u8 + 1])
}

impl Chained {
    /// Starts the relays of `chain`, whose ends have these public keys, and waits until each has a session with the next.
    pub(super) fn start(chain: &Chain, scenario: &Scenario, binary: &Path, scratch: &Path, ends: [&str; 2]) -> Result<Self, ContestError> {
        let (Some((near, far)), last) = (chain.gateways(), chain.hosts().len() - 1) else {
            return Err(ContestError::Unsupported("a chain of one link has no relays".to_owned()));
        };
        let mut keys = vec![ends[0].to_owned()];
        let directory = |index: usize| scratch.join(format!("relay-{index}"));
        for index in 1..last {
            std::fs::create_dir(directory(index))?;
            keys.push(noctule::keygen(binary, &directory(index).join("key"))?);
        }
        keys.push(ends[1].to_owned());
        let between: Vec<_> = chain.between().collect();
        let mut processes = Vec::new();
        // From the far end on, so that each finds the next one listening.
        for index in (1..last).rev() {
            let (host, _) = between[index - 1];
            let next = between.get(index).map(|(_, address)| SocketAddr::new(*address, PORT));
            let file = directory(index).join("node.toml");
            std::fs::write(&file, configuration(index, last, &keys, next, &scenario.cc.to_string()))?;
            let mut command = host.command(binary);
            command.args(["node", "--log-level", "warn", "--config"]).arg(&file);
            let mut process = Process::start(&mut command, |_| {})?;
            noctule::wait_for_udp_port(host, PORT, READY, &mut process)?;
            processes.push(process);
        }
        let this = Self {
            _processes: processes,
            near: Attachment { node: SocketAddr::new(near, PORT), key: keys[1].clone(), address: overlay(0) },
            far: Attachment { node: SocketAddr::new(far, PORT), key: keys[last - 1].clone(), address: overlay(last) },
        };
        for index in 1..last - 1 {
            wait_for_session(binary, &directory(index), index + 1)?;
        }
        Ok(this)
    }

    /// Flags of the end that calls.
    pub(super) fn near(&self) -> Vec<String> {
        self.near.words()
    }

    /// Flags of the end that is called.
    pub(super) fn far(&self) -> Vec<String> {
        self.far.words()
    }

    /// How the far end is named.
    pub(super) fn far_address(&self) -> IpAddr {
        self.far.address
    }
}

/// The file of relay `index` in a chain whose far end is `last`; it calls the next relay at `next`.
fn configuration(index: usize, last: usize, keys: &[String], next: Option<SocketAddr>, congestion: &str) -> String {
    let neighbour = |at: usize, more: &str| {
        format!("[[neighbour]]\nname = \"n{at}\"\nkey = \"{}\"\naddresses = [\"{}\"]\n{more}\n", keys[at], overlay(at))
    };
    let route = |to: usize, via: usize| format!("[[route]]\nto = \"{}\"\nvia = \"n{via}\"\n", overlay(to));
    let call = next.map_or(String::new(), |next| format!("endpoint = \"{next}\"\n"));
    let head = format!(
        "[node]\nkey = \"key\"\nlisten = \"[::]:{PORT}\"\naddresses = [\"{}\"]\nrelay = true\ncongestion = \"{congestion}\"\n",
        overlay(index)
    );
    let mut file = head + &neighbour(index - 1, "") + &neighbour(index + 1, &call);
    if index > 1 {
        file += &route(0, index - 1);
    }
    if index + 1 < last {
        file += &route(last, index + 1);
    }
    file + "[control]\nsocket = \"socket\"\n"
}

fn wait_for_session(binary: &Path, directory: &Path, with: usize) -> Result<(), ContestError> {
    let deadline = Instant::now() + READY;
    loop {
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
        let file = configuration(1, 3, &keys, Some("10.77.1.2:4243".parse().unwrap()), "model");
        assert!(file.contains("endpoint = \"10.77.1.2:4243\"") && file.contains("to = \"10.9.0.4\"\nvia = \"n2\""), "{file}");
        assert!(!file.contains("to = \"10.9.0.1\""), "the near end is a neighbour: {file}");
        let file = configuration(2, 3, &keys, None, "model");
        assert!(!file.contains("endpoint") && file.contains("to = \"10.9.0.1\"\nvia = \"n1\""), "{file}");
    }
}

//! `noctule-lab mininet`: a chain of links as a script for mininet.

use std::fmt::Write;
use std::path::PathBuf;
use std::process::ExitCode;

use clap::Args;
use serde_json::{Map, Value};

use crate::cli::hops_of;
use crate::link::{LinkFlags, LinkSpec, Period, Traces};
use crate::scenario::{Congestion, Hop, MOST_PATHS, ScenarioError};
use crate::sweep::samples::this_command;

/// Names of hosts and devices stay short, and mininet's default addresses distinct.
const MOST_HOPS: usize = 64;

/// `noctule-lab mininet`.
#[derive(Debug, Clone, Args)]
pub struct MininetArgs {
    /// Links between the two ends.
    #[arg(long, default_value_t = 1)]
    pub hops: usize,
    /// Links side by side between neighbours; --hop numbers all links, those of the first hop first.
    #[arg(long, default_value_t = 1)]
    pub paths: usize,
    /// Every link.
    #[command(flatten)]
    pub link: LinkFlags,
    /// What is different on one hop, in both directions: 2:rate=50mbit,loss=20%.
    #[arg(long, value_name = "N:KEY=VALUE,..")]
    pub hop: Vec<String>,
    /// Congestion control of the nodes.
    #[arg(long, default_value = "model")]
    pub cc: Congestion,
    /// Seed of everything random.
    #[arg(long, default_value_t = 7)]
    pub seed: u64,
    /// File of the script [default: standard output].
    #[arg(long, value_name = "FILE.py")]
    pub out: Option<PathBuf>,
}

impl MininetArgs {
    /// Writes the script.
    ///
    /// # Errors
    /// Flags that describe no network, or a file that cannot be written.
    pub fn execute(&self) -> Result<ExitCode, Box<dyn std::error::Error>> {
        let script = self.script(&this_command())?;
        match &self.out {
            Some(path) => std::fs::write(path, script).map_err(|error| format!("cannot write {}: {error}", path.display()))?,
            None => print!("{script}"),
        }
        Ok(ExitCode::SUCCESS)
    }

    fn script(&self, command: &str) -> Result<String, ScenarioError> {
        let between = |flag: &str, value: usize, most: usize| match (1..=most).contains(&value) {
            true => Ok(()),
            false => Err(ScenarioError::Invalid(format!("{flag} {value}: between 1 and {most}"))),
        };
        between("--hops", self.hops, MOST_HOPS)?;
        between("--paths", self.paths, MOST_PATHS.into())?;
        let hops = hops_of(&self.link, self.hops * self.paths, &self.hop, Traces::Read)?;
        for hop in &hops {
            let checked = hop.forward.check().and_then(|()| hop.reverse.check());
            checked.map_err(|error| ScenarioError::Invalid(error.to_string()))?;
        }
        let round_trip = Period(hops.iter().map(|hop| hop.forward.delay.0 + hop.reverse.delay.0).sum());
        let mut links = String::new();
        for (index, hop) in hops.iter().enumerate() {
            let (left, seed) = (index / self.paths + 1, self.seed.wrapping_add(2 * index as u64));
            let words = keywords(hop);
            // A link reads `bdp` as its own round trip. The simulator means that of the chain, but for links side by side.
            let chain = if self.hops > 1 && self.paths == 1 { format!(", bdp_rtt=\"{round_trip}\"") } else { String::new() };
            let _ = writeln!(links, "        self.addLink(\"h{left}\", \"h{}\"{words}{chain}, seed={seed})", left + 1);
        }
        let host = match self.cc.to_string() {
            usual if usual == "model" => "NoctuleHost".to_owned(),
            other => format!("partial(NoctuleHost, congestion=\"{other}\")"),
        };
        let import = if host.starts_with("partial") { "from functools import partial\n\n" } else { "" };
        Ok(format!(
            r#"#!/usr/bin/env python3
# Written by: {command}
# Run it as root: python3 FILE, then for instance `h1 ping h{last}` or `h2 noctule status`.
{import}from mininet.cli import CLI
from mininet.net import Mininet
from mininet.topo import Topo
from noctule.mininet import NoctuleHost, NoctuleLink, wait_until_up


class Chain(Topo):
    def build(self):
        for number in range(1, {last} + 1):
            self.addHost(f"h{{number}}")
{links}

if __name__ == "__main__":
    net = Mininet(topo=Chain(), host={host}, link=NoctuleLink, controller=None)
    net.start()
    try:
        wait_until_up(net)
        CLI(net)
    finally:
        net.stop()
"#,
            last = self.hops + 1,
        ))
    }
}

/// What is not as on a clean link without a rate, as keywords of `NoctuleLink`, each after a comma.
fn keywords(hop: &Hop) -> String {
    let (forward, reverse, clean) = (properties(&hop.forward), properties(&hop.reverse), properties(&LinkSpec::default()));
    let mut words = String::new();
    for (key, value) in forward.iter().filter(|(key, value)| clean.get(*key) != Some(*value)) {
        let value = if value == &Value::Bool(true) { "True".to_owned() } else { value.to_string() };
        let _ = write!(words, ", {}={value}", key.replace('-', "_"));
    }
    let mut back = Vec::new();
    for key in clean.keys().chain(forward.keys().filter(|key| !clean.contains_key(*key))).chain(reverse.keys()) {
        let (there, here) = (forward.get(key), reverse.get(key));
        if there == here || key == "at" || back.iter().any(|(seen, _)| seen == key) {
            continue;
        }
        match here {
            // The flags of a direction add outages to those of both.
            Some(Value::Array(all)) => {
                let known = there.and_then(Value::as_array).map_or(0, Vec::len);
                back.extend(all.iter().skip(known).filter_map(Value::as_str).map(|value| (key.clone(), value.to_owned())));
            }
            Some(Value::String(text)) => back.push((key.clone(), text.clone())),
            Some(value) => back.push((key.clone(), value.to_string())),
            None => back.push((key.clone(), "none".to_owned())),
        }
    }
    if !back.is_empty() {
        let list: Vec<String> = back.iter().map(|(key, value)| format!("{key}={value}")).collect();
        let _ = write!(words, ", rev={}", Value::String(list.join(",")));
    }
    words
}

fn properties(spec: &LinkSpec) -> Map<String, Value> {
    match serde_json::to_value(spec) {
        Ok(Value::Object(map)) => map,
        other => unreachable!("a link is an object of texts and numbers: {other:?}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::Parser;

    #[derive(Debug, Parser)]
    #[command(no_binary_name = true)]
    struct Line {
        #[command(flatten)]
        args: MininetArgs,
    }

    fn script(line: &str) -> Result<String, String> {
        let line = Line::try_parse_from(line.split_whitespace()).map_err(|e| e.to_string())?;
        line.args.script("noctule-lab mininet").map_err(|e| e.to_string())
    }

    #[test]
    fn each_link_has_its_own_properties_and_seed() {
        let text =
            script("--hops 2 --rate 20mbit --delay 5ms --loss 2% --hop 2:loss=5%,outage=1s+2s --rev rate=1mbit --at 9s:loss=1% --cc cubic")
                .unwrap();
        let first = r#"self.addLink("h1", "h2", rate="20mbit", delay="5ms", loss="2%", at=["9s:loss=1%"], rev="rate=1mbit", bdp_rtt="20ms", seed=7)"#;
        let second = r#"self.addLink("h2", "h3", rate="20mbit", delay="5ms", loss="5%", outage=["1s+2s"], at=["9s:loss=1%"], rev="rate=1mbit", bdp_rtt="20ms", seed=9)"#;
        let sorted = |line: &str| {
            let mut words: Vec<String> = line.split(", ").map(str::to_owned).collect();
            words.sort();
            words
        };
        let lines: Vec<Vec<String>> = text.lines().map(str::trim).filter(|line| line.starts_with("self.addLink")).map(sorted).collect();
        assert_eq!(lines, [sorted(first), sorted(second)], "{text}");
        assert!(text.contains("range(1, 3 + 1)") && text.contains("partial(NoctuleHost, congestion=\"cubic\")"), "{text}");
    }

    #[test]
    fn links_side_by_side_join_the_same_hosts_and_what_the_way_back_lacks_is_none() {
        let text = script("--paths 2 --ecn 5ms --rev ecn=none,outage=3s+1s").unwrap();
        assert_eq!(text.matches("\"h1\", \"h2\"").count(), 2, "{text}");
        assert!(text.contains("ecn=none") && text.contains("outage=3s+1s") && !text.contains("bdp_rtt"), "{text}");
    }

    #[test]
    fn links_side_by_side_have_queues_for_their_own_round_trips_as_in_the_simulator() {
        let line = "--hops 2 --paths 2 --rate 10mbit --delay 5ms --hop 2:delay=30ms";
        assert!(!script(line).unwrap().contains("bdp_rtt"));
        let words = format!("noctule-lab sim {line}");
        let run = crate::cli::Cli::try_parse_from(words.split_whitespace()).unwrap();
        let crate::cli::Command::Sim { run, .. } = run.command else { panic!("a run") };
        let scenario = run.scenario().unwrap();
        assert!((0..4).all(|link| scenario.network.beside(link).count() == 2));
    }

    #[test]
    fn what_is_no_network_is_refused_by_name() {
        for (line, names) in
            [("--hops 0", "--hops 0"), ("--paths 99", "--paths 99"), ("--workload bulk", "--workload"), ("--rate none --queue 5p", "queue")]
        {
            let error = script(line).expect_err(line);
            assert!(error.contains(names), "{line}: {error}");
        }
    }
}

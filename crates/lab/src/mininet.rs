//! `noctule-lab mininet`: a chain of links as a script for mininet.

use std::collections::BTreeSet;
use std::fmt::Write;
use std::path::PathBuf;
use std::process::ExitCode;

use clap::Args;
use serde_json::{Map, Value};

use crate::cli::{check_size, hops_of};
use crate::link::{LinkFlags, LinkSpec, Period, Traces};
use crate::scenario::{Congestion, Hop, Network, Scenario, ScenarioError};
use crate::sweep::samples::this_command;

/// `noctule-lab mininet`.
#[derive(Debug, Clone, Args)]
pub struct MininetArgs {
    /// Links between the two ends, 1 to 64.
    #[arg(long, default_value_t = 1)]
    pub hops: usize,
    /// Links side by side between neighbours, 1 to 8; --hop numbers all links, those of the first hop first.
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
        check_size(self.hops, self.paths)?;
        let hops = hops_of(&self.link, self.hops * self.paths, &self.hop, Traces::Read)?;
        for hop in &hops {
            let checked = hop.forward.check().and_then(|()| hop.reverse.check());
            checked.map_err(|error| ScenarioError::Invalid(error.to_string()))?;
        }
        let mut scenario = Scenario::new(hops);
        scenario.network = Network::chain_of(self.hops, self.paths);
        let mut links = String::new();
        for (index, hop) in scenario.hops.iter().enumerate() {
            let (left, seed) = (index / self.paths + 1, self.seed.wrapping_add(2 * index as u64));
            let words = keywords(hop).map_err(|why| ScenarioError::Invalid(format!("link {}: {why}", index + 1)))?;
            // A link reads `bdp` as its own round trip.
            let (own, meant) = (hop.forward.delay.0 + hop.reverse.delay.0, scenario.queue_rtt(index));
            let chain = if meant == own { String::new() } else { format!(", bdp_rtt=\"{}\"", Period(meant)) };
            let _ = writeln!(links, "        self.addLink(\"h{left}\", \"h{}\"{words}{chain}, seed={seed})", left + 1);
        }
        let host = match self.cc.to_string() {
            usual if usual == "model" => "NoctuleHost".to_owned(),
            other => format!("partial(NoctuleHost, congestion=\"{other}\")"),
        };
        let import = if host.starts_with("partial") { "from functools import partial\n\n" } else { "" };
        // A line break would end the comment, and what follows it would be code.
        let command: String = command.chars().flat_map(|c| if c.is_control() { c.escape_default().collect() } else { vec![c] }).collect();
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
fn keywords(hop: &Hop) -> Result<String, String> {
    let (forward, reverse, clean) = (properties(&hop.forward), properties(&hop.reverse), properties(&LinkSpec::default()));
    let mut words = String::new();
    for (key, value) in forward.iter().filter(|(key, value)| clean.get(*key) != Some(*value)) {
        let value = if value == &Value::Bool(true) { "True".to_owned() } else { value.to_string() };
        let _ = write!(words, ", {}={value}", key.replace('-', "_"));
    }
    let keys: BTreeSet<&String> = clean.keys().chain(forward.keys()).chain(reverse.keys()).collect();
    let mut back = Vec::new();
    for key in keys {
        let (there, here) = (forward.get(key), reverse.get(key));
        if there == here {
            continue;
        }
        let texts = match (there, here) {
            (Some(Value::Array(there)), Some(Value::Array(here))) if key == "outage" => added(key, there, here)?,
            (_, Some(Value::Array(_))) => return Err(format!("{key} differs between the two directions, which --rev cannot say")),
            (_, Some(Value::String(text))) => vec![text.clone()],
            (_, Some(value)) => vec![value.to_string()],
            (_, None) => vec!["none".to_owned()],
        };
        // A list of --rev is parted at commas, and space around a value is dropped.
        if let Some(text) = texts.iter().find(|text| text.contains(',') || text.trim() != *text) {
            return Err(format!("{key} `{text}` on the return path alone: a list of --rev takes no comma, and no space around a value"));
        }
        back.extend(texts.into_iter().map(|text| format!("{key}={text}")));
    }
    if !back.is_empty() {
        let _ = write!(words, ", rev={}", Value::String(back.join(",")));
    }
    Ok(words)
}

/// What the return path has beyond the values of both directions: the flags of one direction add to those of both, in any order.
fn added(key: &str, there: &[Value], here: &[Value]) -> Result<Vec<String>, String> {
    let mut more = here.to_vec();
    for value in there {
        let at = more.iter().position(|other| other == value);
        let at = at.ok_or_else(|| format!("{key} {value} holds in one direction only, which --rev cannot take away"))?;
        more.remove(at);
    }
    Ok(more.iter().filter_map(Value::as_str).map(str::to_owned).collect())
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
    use crate::cli::RunLine;
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

    /// Arguments of each link that a script makes.
    fn links_of(text: &str) -> impl Iterator<Item = &str> {
        text.lines().filter_map(|line| line.trim().strip_prefix("self.addLink(")?.strip_suffix(')'))
    }

    #[test]
    fn queues_are_for_the_round_trips_that_the_simulator_takes() {
        for (line, round_trips) in [
            ("--hops 2 --paths 2 --rate 10mbit --delay 5ms --hop 2:delay=30ms", ["10ms", "60ms", "10ms", "10ms"]),
            ("--hops 4 --rate 10mbit --delay 5ms --hop 2:delay=30ms --rev delay=1ms", ["78ms"; 4]),
        ] {
            let scenario = RunLine(line.split_whitespace().map(str::to_owned).collect()).scenario().unwrap();
            let text = script(line).unwrap();
            for (index, line) in links_of(&text).enumerate() {
                let own = scenario.hops[index].forward.delay.0 + scenario.hops[index].reverse.delay.0;
                let said = words_of_link(line)
                    .iter()
                    .find_map(|word| word.strip_prefix("--bdp-rtt=").map(|text| text.parse::<Period>().unwrap().0));
                assert_eq!(
                    (said.unwrap_or(own), Period(scenario.queue_rtt(index)).to_string()),
                    (scenario.queue_rtt(index), round_trips[index].to_owned()),
                    "{line}"
                );
            }
        }
    }

    /// The words of `noctule-lab link` that `NoctuleLink` makes of a line `self.addLink(..)`: `_flags` of `noctule.mininet`, in short.
    fn words_of_link(line: &str) -> Vec<String> {
        let mut rest = line.split_once(", ").and_then(|(_, rest)| rest.split_once(", ")).unwrap().1;
        let mut given: Vec<(String, Value)> = Vec::new();
        while let Some((name, text)) = rest.split_once('=') {
            let (value, after) = match text.strip_prefix("True") {
                Some(after) => (Value::Bool(true), after),
                None => {
                    let mut values = serde_json::Deserializer::from_str(text).into_iter::<Value>();
                    let value = values.next().unwrap().unwrap_or_else(|error| panic!("{text}: {error}"));
                    (value, &text[values.byte_offset()..])
                }
            };
            given.push((name.to_owned(), value));
            rest = after.trim_start_matches(", ");
        }
        let has = |name: &str| given.iter().any(|(known, _)| known == name);
        let mut words: Vec<String> = ["--between=a:b", "--between=a:c"].map(str::to_owned).to_vec();
        words.extend((!has("rate") && !has("trace")).then(|| "--rate=none".to_owned()));
        words.extend((!has("delay")).then(|| "--delay=0ms".to_owned()));
        for (name, value) in &given {
            let flag = format!("--{}", name.replace('_', "-"));
            match value {
                Value::Bool(_) => words.push(flag),
                Value::Array(all) => words.extend(all.iter().map(|one| format!("{flag}={}", one.as_str().unwrap()))),
                Value::String(text) => words.push(format!("{flag}={text}")),
                other => words.push(format!("{flag}={other}")),
            }
        }
        words
    }

    /// Links that the script of `words` makes, both directions, beside those that the words describe.
    fn made_and_meant(words: &[String]) -> [Vec<(LinkSpec, LinkSpec)>; 2] {
        #[derive(Debug, Parser)]
        #[command(no_binary_name = true)]
        struct Link {
            #[command(flatten)]
            args: crate::net::between::LinkArgs,
        }
        let args = Line::try_parse_from(words).unwrap_or_else(|error| panic!("{words:?}: {error}")).args;
        let text = args.script("noctule-lab mininet").unwrap_or_else(|error| panic!("{words:?}: {error}"));
        let made = links_of(&text).map(|line| {
            let words = words_of_link(line);
            let link = Link::try_parse_from(&words).unwrap_or_else(|error| panic!("{words:?}: {error}"));
            link.args.link.both_directions(Traces::Read).unwrap_or_else(|error| panic!("{words:?}: {error}"))
        });
        let hops = hops_of(&args.link, args.hops * args.paths, &args.hop, Traces::Read).unwrap();
        // Times without an arrival have no order.
        let sorted = |mut specs: (LinkSpec, LinkSpec)| {
            for spec in [&mut specs.0, &mut specs.1] {
                spec.outage.sort_by_key(|outage| (outage.at, outage.lasts));
            }
            specs
        };
        [made.map(sorted).collect(), hops.into_iter().map(|hop| sorted((hop.forward, hop.reverse))).collect()]
    }

    fn assert_made_as_meant(words: &[String]) {
        let [made, meant] = made_and_meant(words);
        assert_eq!(made, meant, "{words:?}");
    }

    /// Each property with three values that can stand side by side, and what it needs beside it.
    fn properties_and_values(trace: &str) -> Vec<(&'static str, [String; 3], &'static str)> {
        let plain = |key, values: [&str; 3], needs| (key, values.map(str::to_owned), needs);
        let traces = ["none".to_owned(), trace.to_owned(), "none".to_owned()];
        vec![
            plain("rate", ["10mbit", "20mbit", "none"], ""),
            plain("delay", ["1ms", "2us", "0ms"], ""),
            plain("jitter", ["1ms", "2ms", "0ms"], ""),
            plain("jitter-dist", ["normal", "pareto", "uniform"], "--jitter=1ms"),
            plain("loss", ["1%", "0.123%", "0%"], ""),
            plain("loss-model", ["ber:1e-6", "markov4:1%:30%:20%:10%:1%", "random"], ""),
            plain("loss-at", ["before", "after", "before"], "--loss=1%"),
            plain("queue", ["10p", "2bdp", "none"], ""),
            plain("mtu", ["1400", "1300", "1500"], ""),
            plain("reorder", ["1%:20ms", "2%:5ms", "none"], ""),
            plain("duplicate", ["1%", "2%", "0%"], ""),
            plain("corrupt", ["1%", "2%", "0%"], ""),
            plain("aqm", ["fq_codel:flows=1:ecn", "pie", "none"], ""),
            ("trace", traces, "--rate=none"),
            plain("ecn", ["5ms", "6ms", "none"], ""),
            plain("bucket", ["20mbit:64KB", "10mbit:3KB", "none"], ""),
            plain("policer", ["20mbit:64KB", "10mbit:3KB", "none"], ""),
            plain("outage", ["1s+2s", "3s+4s", "1s+2s"], ""),
        ]
    }

    #[test]
    fn every_property_is_exported_in_each_direction_and_on_each_hop() {
        let file = tempfile::NamedTempFile::new().unwrap();
        std::fs::write(file.path(), "1\n2\n").unwrap();
        let table = properties_and_values(&file.path().to_string_lossy());
        // A property that gets a flag gets a row here.
        let flags = <LinkFlags as Args>::augment_args(clap::Command::new("link"));
        let known = |flag: &str| table.iter().any(|(key, ..)| *key == flag) || ["jitter-reorder", "rev-loss", "rev", "at"].contains(&flag);
        let unknown: Vec<&str> = flags.get_arguments().filter_map(clap::Arg::get_long).filter(|flag| !known(flag)).collect();
        assert!(unknown.is_empty(), "{unknown:?}");
        for (key, values, needs) in &table {
            for (of_all, of_back, of_hop) in
                [(0, 1, 2), (1, 2, 0), (2, 0, 1), (0, 0, 1), (1, 0, 1)].map(|(a, b, c)| (&values[a], &values[b], &values[c]))
            {
                let all = format!("--{key}={of_all}");
                let back = format!("--rev={key}={of_back}");
                let hop = format!("--hop=2:{key}={of_hop}");
                let lines: [&[&String]; 7] =
                    [&[&all], &[&back], &[&hop], &[&all, &back], &[&all, &hop], &[&back, &hop], &[&all, &back, &hop]];
                for line in lines {
                    let words = ["--hops=2", needs].into_iter().filter(|word| !word.is_empty()).map(str::to_owned);
                    let words: Vec<String> = words.chain(line.iter().map(|word| (*word).clone())).collect();
                    assert_made_as_meant(&words);
                }
            }
        }
        for line in [
            "--jitter-reorder",
            "--jitter-reorder --rev=jitter-reorder=false",
            "--rev=jitter-reorder=true --hop=1:jitter-reorder=false",
            "--hops=3 --loss=2% --rev-loss=1% --hop=2:loss=3% --rev=rate=1mbit,outage=1s+1s,outage=2s+1s --hop=3:outage=1s+1s --at=9s:loss=1% --at=3s:rate=2mbit,ecn=none",
        ] {
            let words: Vec<String> = line.split_whitespace().map(str::to_owned).collect();
            assert_made_as_meant(&words);
        }
    }

    #[test]
    fn a_line_break_of_the_command_does_not_end_the_comment() {
        let line = Line::try_parse_from(["--hops=1"]).unwrap();
        let text = line.args.script("noctule-lab mininet --out 'a\nimport os\rimport sys'").unwrap();
        let code = text.lines().flat_map(|line| line.split('\r')).filter(|line| !line.starts_with('#'));
        let imports: Vec<&str> = code.filter(|line| line.starts_with("import")).collect();
        assert_eq!(imports, Vec::<&str>::new(), "{text}");
        assert!(text.contains(r"'a\nimport os\rimport sys'"), "{text}");
    }

    #[test]
    fn what_the_flags_of_a_script_cannot_say_is_refused_by_name() {
        let hop = |forward: &str, reverse: &str| {
            let mut hop = Hop { forward: LinkSpec::default(), reverse: LinkSpec::default() };
            for (spec, list) in [(&mut hop.forward, forward), (&mut hop.reverse, reverse)] {
                spec.set_list(list).unwrap();
            }
            hop
        };
        let refused = |hop: &Hop| keywords(hop).unwrap_err();
        assert!(refused(&hop("outage=1s+2s", "outage=3s+4s")).contains("outage \"1s+2s\""));
        let mut traced = hop("mtu=1500", "mtu=1500");
        traced.reverse.trace = Some(crate::link::Trace::parse("up,down", "1\n").unwrap());
        assert!(refused(&traced).contains("trace `up,down`"));
        let mut changed = hop("mtu=1500", "mtu=1500");
        changed.reverse.at.push("1s:loss=1%".parse().unwrap());
        assert!(refused(&changed).contains("at differs"));
    }

    #[test]
    fn what_is_no_network_is_refused_by_name() {
        for (line, names) in [
            ("--hops 65", "--hops 65: between 1 and 64"),
            ("--paths 9", "--paths 9: between 1 and 8"),
            ("--workload bulk", "--workload"),
            ("--rate none --queue 5p", "queue"),
        ] {
            let error = script(line).expect_err(line);
            assert!(error.contains(names), "{line}: {error}");
        }
    }
}

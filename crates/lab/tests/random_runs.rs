//! Random links and workloads: no panic, nothing wrong, nothing missing, memory bounded. A failure prints the command line that repeats it.
//!
//! `NOCTULE_RANDOM_RUNS=1000 cargo test --release -p noctule-lab --test random_runs` runs more of them.

use clap::Parser;
use noctule_lab::cli::{Cli, Command};
use noctule_lab::sim::{self, Content};

/// Choices that follow from a number.
struct Choices {
    content: Content,
    at: u64,
}

impl Choices {
    fn below(&mut self, n: u64) -> u64 {
        let mut bytes = [0; 8];
        self.content.fill(self.at, &mut bytes);
        self.at += 8;
        u64::from_le_bytes(bytes) % n
    }

    fn one<'a>(&mut self, of: &[&'a str]) -> &'a str {
        of[self.below(of.len() as u64) as usize]
    }
}

/// The command line of random run number `n`.
fn line(n: u64) -> String {
    let mut c = Choices { content: Content::new(n, 77), at: 0 };
    let mut line = String::from("noctule-lab sim --seconds 600 --json");
    let mut add = |flag: &str, value: &str| {
        if !value.is_empty() {
            line.push_str(&format!(" --{flag} {value}"));
        }
    };
    // A load in time has to fit the link, whatever befalls it: 50 KB every 300 ms do not pass 1 Mbit/s, and no loss-based control carries them
    // at 20 % loss. A transfer takes what time it needs.
    let load = c.below(4);
    let (is_messages, is_blocks) = (load == 0, load == 1);
    let is_timed = is_messages || is_blocks;
    add("rate", c.one(if is_blocks { &["8mbit", "50mbit", "200mbit"] } else { &["1mbit", "8mbit", "50mbit", "200mbit"] }));
    add("delay", c.one(&["0ms", "1ms", "10ms", "60ms", "250ms"]));
    add("loss", c.one(&["", "1%", "5%", "15%", "30%"]));
    add("rev-loss", c.one(&["", "0%", "30%"]));
    // P25: where packets are rare (messages, the probes of a transfer that hears nothing) a burst of so many packets lasts for seconds, longer
    // than the run or than any circuit breaker; there its clock runs in time. Long bursts in packets are the torture's.
    let bursts = [if is_timed { "gilbert:3ms" } else { "gilbert:3" }, "gilbert:12ms", "gilbert:30ms"];
    add("loss-model", c.one(&["", "", bursts[0], bursts[1], bursts[2]]));
    add("queue", c.one(&["", "5p", "30KB", "20ms", "4bdp"]));
    add("jitter", c.one(&["", "", "2ms", "15ms"]));
    add("jitter-dist", c.one(&["uniform", "normal", "pareto"]));
    add("reorder", c.one(&["", "", "2%:5ms", "20%:40ms"]));
    add("duplicate", c.one(&["", "", "3%"]));
    add("corrupt", c.one(&["", "", "1%"]));
    add("mtu", c.one(&["1500", "1500", "1280", "1400", "9000"]));
    add("ip", c.one(&["4", "6"]));
    add("cc", c.one(if is_timed { &["model"] } else { &["model", "model", "cubic"] }));
    add("flow-memory", c.one(&["", "", "1MiB", "4MiB"]));
    add("batch-size", c.one(&["", "8", "32", "64"]));
    add("epoch-packets", c.one(&["", "1024"]));
    add("outage", c.one(&["", "", "", "400ms+3s"]));
    add("stall", c.one(&["", "", "", "500ms+2s"]));
    add("at", c.one(&["", "", if is_blocks { "700ms:rate=5mbit" } else { "700ms:rate=2mbit" }, "1s:delay=100ms", "500ms:loss=20%"]));
    match load {
        0 => add("workload", "messages:50/s:400B --seconds 12 --warmup 1"),
        1 => add("workload", "block:50KB:300ms --unordered --seconds 12 --warmup 1"),
        _ => add("workload", c.one(&["transfer:1B", "transfer:1000B", "transfer:300KB", "transfer:1MB"])),
    }
    if c.below(3) == 0 {
        line.push_str(" --both");
    }
    line.push_str(&format!(" --seed {n}"));
    // The later of two values is the one that holds.
    if line.matches("--seconds").count() > 1 {
        line = line.replacen(" --seconds 600", "", 1);
    }
    line
}

#[test]
fn random_runs_end_well() {
    let runs = std::env::var("NOCTULE_RANDOM_RUNS").ok().and_then(|n| n.parse().ok()).unwrap_or(24);
    let mut failed = Vec::new();
    for n in 0..runs {
        let line = line(n);
        let cli = Cli::try_parse_from(line.split_whitespace()).unwrap_or_else(|e| panic!("{line}: {e}"));
        let Command::Sim { run, .. } = cli.command else { panic!("{line}: not a simulation") };
        let scenario = match run.scenario() {
            Ok(scenario) => scenario,
            Err(error) => panic!("{line}: {error}"),
        };
        match sim::run(&scenario) {
            Ok(report) if report.failures.is_empty() => {}
            Ok(report) => failed.push(format!("{line}\n    {}", report.failures.join("\n    "))),
            Err(error) => failed.push(format!("{line}\n    {error}")),
        }
    }
    assert!(failed.is_empty(), "{} of {runs} failed:\n{}", failed.len(), failed.join("\n"));
}

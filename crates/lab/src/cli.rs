//! The command line. [`RunArgs`] describes a run and is the same for every back end.
#![allow(rustdoc::broken_intra_doc_links, reason = "the texts of --help have brackets of their own")]

use std::fmt;
use std::path::PathBuf;

use clap::{Args, Parser, Subcommand};

use crate::capture::CaptureArgs;
use crate::link::{LinkFlags, Outage, Period, SpecError, Traces};
use crate::scenario::{Congestion, Hop, Ip, MOST_HOPS, MOST_PATHS, ModeName, Network, Relays, Scenario, ScenarioError, Senders, Workload};

/// The noctule laboratory: links, simulator, scenarios.
#[derive(Debug, Parser)]
#[command(name = "noctule-lab", version)]
pub struct Cli {
    /// What to do.
    #[command(subcommand)]
    pub command: Command,
    /// In the simulator: run without these mechanisms of noctule (`noctule-lab mechanisms` lists them), to measure what they are worth. For builds with the
    /// feature `ablation`.
    #[arg(long, global = true, value_name = "NAME,NAME", value_delimiter = ',')]
    pub without: Vec<String>,
}

impl Cli {
    /// Whether the command runs something that `--without` does not reach: programs of their own, or nothing at all.
    pub fn is_beyond_switches(&self) -> bool {
        match &self.command {
            Command::Sim { .. } | Command::Run { .. } | Command::Holdout(_) | Command::Cell(_) | Command::Paper(_) => false,
            Command::Matrix(matrix) => matrix.net,
            Command::Demo(_) | Command::Net(_) | Command::Link(_) | Command::Proxy(_) | Command::Fidelity(_) | Command::Oasis(_) => true,
            Command::Mininet(_) | Command::Cells(_) | Command::Merge(_) | Command::Serve(_) | Command::Export(_) | Command::Mechanisms => {
                true
            }
        }
    }
}

/// What the laboratory can do.
#[allow(clippy::large_enum_variant, reason = "made once per process")]
#[derive(Debug, Subcommand)]
pub enum Command {
    /// Run noctule nodes in the deterministic simulator, in virtual time.
    Sim {
        /// The run.
        #[command(flatten)]
        run: Box<RunArgs>,
        /// Print one JSON object.
        #[arg(long)]
        json: bool,
        /// Write every datagram, as it leaves its host, to a capture that tcpdump and Wireshark read; up to --capture-limit.
        #[arg(long, value_name = "FILE", group = "captured")]
        pcap: Option<PathBuf>,
        /// Write goodput, queueing delay, round trip and loss of each interval to a file as the run goes on, a JSON object per line.
        #[arg(long, value_name = "FILE", conflicts_with_all = ["pcap", "capture"])]
        samples: Option<PathBuf>,
        /// What is captured.
        #[command(flatten)]
        capture: CaptureArgs,
    },
    /// Send one real file over one bad link with noctule and with the kernel's TCP, and compare.
    Demo(crate::demo::DemoArgs),
    /// Run noctule or kernel TCP between network namespaces joined by emulated links.
    Net(crate::net::command::NetArgs),
    /// Run TCP programs through noctule proxy, kernel TCP and other proxies between namespaces, one after the other.
    Proxy(Box<crate::proxied::ProxyArgs>),
    /// Join two network namespaces by an emulated link, for scripts that make their own: mininet, ip netns, containers.
    Link(Box<crate::net::between::LinkArgs>),
    /// Write a chain of links as a script for mininet, whose hosts run noctule.
    Mininet(Box<crate::mininet::MininetArgs>),
    /// Measure an emulated link against its description.
    Fidelity(crate::net::command::FidelityArgs),
    /// Run a grid of conditions, in the simulator or on namespaces: tables, CSV, JSON, heat map, bars.
    Matrix(Box<crate::matrix::MatrixArgs>),
    /// Draw conditions at random from a wide distribution and run under them: quantiles, and the worst with their commands.
    Holdout(crate::holdout::HoldoutArgs),
    /// Print the cells of scenario files, of a grid or of draws as JSON, for schedulers of many machines.
    Cells(crate::sweep::command::CellsArgs),
    /// Run one cell of a list, or a part of the list; what has a result is not run again.
    Cell(crate::sweep::command::CellArgs),
    /// Make one table of results from many places.
    Merge(crate::sweep::command::MergeArgs),
    /// Run test files of Oasis as they are, in the simulator or on namespaces.
    Oasis(crate::oasis::OasisArgs),
    /// Make the figures and tables of the founding documents beside ours: Markdown, CSV, SVG.
    Paper(crate::paper::PaperArgs),
    /// Show results and running tests in a browser: a page with tables, heat maps and live charts, and the same as JSON.
    Serve(crate::page::ServeArgs),
    /// Write the page of a finished run as one file that needs nothing else.
    Export(crate::page::ExportArgs),
    /// Print the mechanisms that --without takes, and what each does.
    Mechanisms,
    /// Run scenario files in the simulator and print a table; fails if an expectation in a file is not met.
    Run {
        /// Scenario files (TOML).
        #[arg(required = true)]
        files: Vec<PathBuf>,
        /// Run all seeds and all cells, not only the quick subset.
        #[arg(long)]
        full: bool,
        /// Print a JSON array.
        #[arg(long)]
        json: bool,
        /// Folder in which each result is kept as soon as it is there; what is there is not run again.
        #[arg(long, value_name = "DIR")]
        results: Option<PathBuf>,
        /// Keep the course of each run in the folder of --results too, for `noctule-lab serve`.
        #[arg(long)]
        samples: bool,
        /// Compare the share of every case with the table in this file: a point more or less fails.
        #[arg(long, value_name = "FILE")]
        against: Option<PathBuf>,
        /// Keep the shares of this run in that file instead.
        #[arg(long, requires = "against")]
        update: bool,
    },
}

/// Flags that describe a run; the same for the simulator and for namespaces.
#[derive(Debug, Clone, Args)]
pub struct RunArgs {
    /// Links between the two ends, 1 to 64.
    #[arg(long, default_value_t = 1)]
    pub hops: usize,
    /// Links side by side between neighbours, 1 to 8, each a path of their noctule link; --hop numbers all links, those of the first hop first.
    #[arg(long, default_value_t = 1)]
    pub paths: usize,
    /// What the nodes between the ends do: recode | ip (they forward, only the ends code) | proxy (a connection per hop) | tunnel
    /// (they recode, and the contender's IP packets cross the TUN devices of nodes at the ends; with namespaces).
    #[arg(long, default_value = "recode")]
    pub relays: Relays,
    /// Every link.
    #[command(flatten)]
    pub link: LinkFlags,
    /// IP version.
    #[arg(long, default_value_t = 4, value_parser = clap::value_parser!(u8).range(4..=6))]
    pub ip: u8,
    /// What is different on one hop, in both directions: 2:rate=50mbit,loss=20%.
    #[arg(long, value_name = "N:KEY=VALUE,..")]
    pub hop: Vec<String>,
    /// Transport mode: brtp or btp.
    #[arg(long, default_value = "brtp")]
    pub mode: ModeName,
    /// Congestion control: model, cubic, reno, vegas, bbr, gcc, rate:50mbit or none.
    #[arg(long, default_value = "model")]
    pub cc: Congestion,
    /// Lifetime of each message (btp); late is lost.
    #[arg(long)]
    pub lifetime: Option<Period>,
    /// Hand messages over as they come, not in order (btp always does).
    #[arg(long)]
    pub unordered: bool,
    /// Separate pairs of nodes over the same links.
    #[arg(long, default_value_t = 1)]
    pub pairs: u32,
    /// bulk | messages:100/s:1024B (echoed) | block:100KB[:INTERVAL] (answered) | transfer:10MB (to its end).
    #[arg(long, default_value = "bulk")]
    pub workload: Workload,
    /// The far end sends the same at the same time.
    #[arg(long)]
    pub both: bool,
    /// Length of the run in seconds, warm-up included [default: warm-up + max(25 s, 60 RTT)].
    #[arg(long)]
    pub seconds: Option<f64>,
    /// Seconds at the start that are not counted [default: max(5 s, 12 RTT)].
    #[arg(long)]
    pub warmup: Option<f64>,
    /// Bulk senders beside each other over the same links: noctule,quic-cubic (also quic-reno, quic-bbr). QUIC stands for TCP's controls.
    /// One alone sends transfers and blocks, too.
    #[arg(long, value_name = "LIST")]
    pub senders: Option<Senders>,
    /// Seed of everything random.
    #[arg(long, default_value_t = 7)]
    pub seed: u64,
    /// Ceiling of the memory of a flow at each end, e.g. 16MiB [default: 128MiB].
    #[arg(long)]
    pub flow_memory: Option<String>,
    /// Time that a handshake may take [default: 10s].
    #[arg(long)]
    pub connect_timeout: Option<Period>,
    /// Packets per batch: 8, 16, 32 or 64 [default: 16].
    #[arg(long)]
    pub batch_size: Option<u8>,
    /// Share of messages that shall need no second round trip: what the flow asks its redundancy for [default: 99.9%].
    #[arg(long)]
    pub no_retransmit: Option<crate::link::Probability>,
    /// Packets per key epoch, a power of two [default: 2^20].
    #[arg(long)]
    pub epoch_packets: Option<u64>,
    /// Packets per acknowledgement that the ends ask for, 1 to 1024 [default: 32]. One also leaves 1 ms after the last, once 4250 bytes have come:
    /// a wish for rarer ones has no effect.
    #[arg(long)]
    pub ack_every: Option<u16>,
    /// The receiving application reads nothing for a time: 10s+3s (when, how long).
    #[arg(long, value_name = "AT+FOR")]
    pub stall: Option<Outage>,
}

/// The words of a run after `noctule-lab sim`. It prints as the whole command, quoted for a shell.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RunLine(pub Vec<String>);

impl RunLine {
    /// The run, read by the parser of `sim`, so that a word cannot mean one thing here and another there.
    ///
    /// # Errors
    /// The parser or the check of the scenario refuses it: in words.
    pub fn scenario(&self) -> Result<Scenario, String> {
        self.scenario_with(Traces::Read)
    }

    /// The same, and says whether files of traces are read.
    ///
    /// # Errors
    /// As for [`Self::scenario`].
    pub fn scenario_with(&self, traces: Traces) -> Result<Scenario, String> {
        #[derive(Parser)]
        #[command(no_binary_name = true)]
        struct Line {
            #[command(flatten)]
            run: RunArgs,
        }
        let line = Line::try_parse_from(&self.0).map_err(|e| {
            let text = e.to_string();
            text.lines().next().unwrap_or_default().trim_start_matches("error: ").to_owned()
        })?;
        line.run.scenario_with(traces).map_err(|e| e.to_string())
    }
}

impl fmt::Display for RunLine {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("noctule-lab sim")?;
        for word in &self.0 {
            write!(f, " {}", Quoted(word))?;
        }
        Ok(())
    }
}

/// A word as a shell reads it.
#[derive(Debug, Clone, Copy)]
pub struct Quoted<'a>(pub &'a str);

impl fmt::Display for Quoted<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let word = self.0;
        let is_plain = word.chars().all(|c| c.is_ascii_alphanumeric() || "-_=:,.+%/@".contains(c));
        if is_plain && !word.is_empty() { f.write_str(word) } else { write!(f, "'{}'", word.replace('\'', r"'\''")) }
    }
}

impl RunArgs {
    /// The run that the flags describe; traces are read.
    pub fn scenario(&self) -> Result<Scenario, ScenarioError> {
        self.scenario_with(Traces::Read)
    }

    /// The same, and says whether files of traces are read.
    pub fn scenario_with(&self, traces: Traces) -> Result<Scenario, ScenarioError> {
        let invalid = |text: String| ScenarioError::Invalid(text);
        check_size(self.hops, self.paths)?;
        let hops = hops_of(&self.link, self.hops * self.paths, &self.hop, traces)?;
        let mut scenario = Scenario::new(hops);
        scenario.network = Network::chain_of(self.hops, self.paths);
        scenario.network.relays = self.relays;
        scenario.ip = match self.ip {
            4 => Ip::V4,
            6 => Ip::V6,
            other => return Err(invalid(format!("--ip {other}: 4 or 6"))),
        };
        scenario.mode = self.mode;
        scenario.cc = self.cc;
        scenario.lifetime = self.lifetime;
        scenario.unordered = self.unordered;
        scenario.pairs = self.pairs;
        scenario.workload = self.workload;
        scenario.both = self.both;
        scenario.seed = self.seed;
        scenario.batch_size = self.batch_size;
        scenario.no_retransmit = self.no_retransmit;
        scenario.epoch_packets = self.epoch_packets;
        scenario.ack_every = self.ack_every;
        scenario.stall = self.stall;
        scenario.connect_timeout = self.connect_timeout;
        scenario.senders = self.senders.clone().unwrap_or_default().0;
        if let Some(text) = &self.flow_memory {
            let bytes = crate::link::parse_bytes(text).map_err(|e| invalid(format!("--flow-memory: {e}")))?;
            scenario.flow_memory = Some(usize::try_from(bytes).map_err(|e| invalid(format!("--flow-memory: {e}")))?);
        }
        scenario.set_default_length(seconds("--seconds", self.seconds)?, seconds("--warmup", self.warmup)?);
        scenario.check()?;
        Ok(scenario)
    }
}

/// Refuses chains that are too long or too wide; the texts of --help say the same numbers.
pub(crate) fn check_size(hops: usize, paths: usize) -> Result<(), ScenarioError> {
    let between = |flag: &str, value: usize, most: usize| match (1..=most).contains(&value) {
        true => Ok(()),
        false => Err(ScenarioError::Invalid(format!("{flag} {value}: between 1 and {most}"))),
    };
    between("--hops", hops, MOST_HOPS)?;
    between("--paths", paths, MOST_PATHS.into())
}

/// The links of a network: so many of one kind, and what `--hop` says is different on some.
pub(crate) fn hops_of(flags: &LinkFlags, links: usize, differing: &[String], traces: Traces) -> Result<Vec<Hop>, ScenarioError> {
    let invalid = |text: String| ScenarioError::Invalid(text);
    let link = |source: SpecError| ScenarioError::Invalid(source.to_string());
    let (forward, reverse) = flags.both_directions(traces).map_err(link)?;
    let mut hops = vec![Hop { forward, reverse }; links];
    for text in differing {
        let (n, list) = text.split_once(':').ok_or_else(|| invalid(format!("--hop {text}: write N:key=value")))?;
        let n: usize = n.parse().map_err(|_| invalid(format!("--hop {text}: `{n}` is no hop number")))?;
        let hop = n.checked_sub(1).and_then(|i| hops.get_mut(i));
        let hop = hop.ok_or_else(|| invalid(format!("--hop {text}: there are hops 1 to {links}")))?;
        hop.forward.set_list_with(list, traces).map_err(link)?;
        hop.reverse.set_list_with(list, traces).map_err(link)?;
    }
    Ok(hops)
}

fn seconds(flag: &str, value: Option<f64>) -> Result<Option<Period>, ScenarioError> {
    let Some(value) = value else { return Ok(None) };
    if !(0.0..=1e6).contains(&value) {
        return Err(ScenarioError::Invalid(format!("{flag} {value}: between 0 and a million seconds")));
    }
    Ok(Some(Period(std::time::Duration::from_secs_f64(value))))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(line: &str) -> Result<Scenario, String> {
        let words = ["noctule-lab", "sim"].into_iter().chain(line.split_whitespace());
        match Cli::try_parse_from(words).map_err(|e| e.to_string())?.command {
            Command::Sim { run, .. } => run.scenario().map_err(|e| e.to_string()),
            other => Err(format!("{other:?}")),
        }
    }

    #[test]
    fn the_line_of_the_documentation_is_understood() {
        let s = parse(
            "--hops 2 --rate 100mbit --delay 50ms --jitter 1ms --jitter-dist uniform --loss 6% --loss-model gilbert:10 --loss-at after \
             --rev-loss 2% --queue 1bdp --mtu 1500 --ip 6 --reorder 1%:20ms --hop 2:rate=50mbit,loss=20% --at 10s:rate=20mbit --mode btp \
             --cc model --lifetime 60ms --pairs 1 --workload messages:100/s:1024B --seconds 30 --warmup 5 --seed 7 --json",
        )
        .unwrap();
        assert_eq!(s.hops[0].forward.loss.to_string(), "6%");
        assert_eq!(s.hops[0].reverse.loss.to_string(), "2%");
        assert_eq!(s.hops[1].reverse.loss.to_string(), "20%");
        assert_eq!(s.hops[1].forward.rate.unwrap().to_string(), "50mbit");
        assert_eq!((s.ip, s.seconds.to_string()), (Ip::V6, "30s".to_owned()));
    }

    #[test]
    fn help_says_the_limits_of_hops_and_paths() {
        use clap::CommandFactory;
        for name in ["sim", "net", "mininet"] {
            let command = Cli::command();
            let command = command.find_subcommand(name).unwrap();
            let help = |flag: &str| {
                let flag =
                    command.get_arguments().find(|known| known.get_long() == Some(flag)).unwrap_or_else(|| panic!("{name} --{flag}"));
                flag.get_help().unwrap().to_string()
            };
            assert!(help("hops").contains(&format!(", 1 to {MOST_HOPS}")), "{name}: {}", help("hops"));
            assert!(help("paths").contains(&format!(", 1 to {MOST_PATHS}")), "{name}: {}", help("paths"));
        }
    }

    #[test]
    fn what_a_flag_cannot_do_is_an_error_that_names_it() {
        for (line, names) in [
            ("--rate 100", "100"),
            ("--hop 3:rate=5mbit", "hops 1 to 1"),
            ("--hop 1:speed=5mbit", "speed"),
            ("--at 10s:foo=1", "foo=1"),
            ("--mode brctp", "brctp"),
            ("--cc copa", "copa"),
            ("--mode btp", "lifetime"),
            ("--lifetime 60ms", "lifetime"),
            ("--ip 5", "4 or 6"),
            ("--workload video", "video"),
            ("--seconds 5 --warmup 5", "warm-up"),
            ("--loss 5% --loss-model ber:1e-6", "loss"),
            ("--peer tcp-cubic", "--peer"),
            ("--aqm red", "fq_codel["),
            ("--aqm pie --ecn 5ms", "pie:ecn"),
            ("--aqm fq_codel --rate none", "without a rate"),
            ("--trace /no/such/file", "/no/such/file"),
            ("--pairs 0", "pairs"),
            ("--hops 65", "--hops 65: between 1 and 64"),
            ("--paths 9", "--paths 9: between 1 and 8"),
        ] {
            let error = parse(line).expect_err(line);
            assert!(error.contains(names), "{line}: {error}");
        }
    }
}

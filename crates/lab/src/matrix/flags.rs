//! The flags of `noctule-lab sim` with lists: every combination of the values is a cell.
//!
//! A cell is read by the parser of `sim` itself, so that a flag cannot mean one thing here and another there.

use clap::parser::ValueSource;
use clap::{ArgAction, ArgMatches, Args, Command, FromArgMatches};

use crate::cli::{RunArgs, RunLine};
use crate::link::Traces;
use crate::scenario::{Case, Expectations};

/// Flags whose values have commas of their own, or that may be given several times for one run: they take no lists.
const NO_LISTS: [&str; 8] = ["hop", "at", "outage", "rev", "stall", "seconds", "warmup", "senders"];
/// Cells times seeds; more is a slip of the keyboard.
const MOST_CASES: usize = 100_000;

/// Flags of a grid that were given, in the order in which `sim` lists them.
#[derive(Debug, Clone, Default)]
pub struct GridFlags {
    given: Vec<Flag>,
}

#[derive(Debug, Clone)]
struct Flag {
    name: String,
    values: Vec<String>,
    is_list: bool,
    is_switch: bool,
}

/// A grid that cannot be.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum GridError {
    /// The same value twice in a list.
    #[error("--{flag}: {value} is in the list twice")]
    Twice {
        /// Which list.
        flag: String,
        /// The value.
        value: String,
    },
    /// A cell that cannot be run.
    #[error("{}{reason}", if cell.is_empty() { String::new() } else { format!("cell {cell}: ") })]
    Cell {
        /// The values of its axes.
        cell: String,
        /// What the parser or the check of the scenario said.
        reason: String,
    },
    /// Too many.
    #[error("{0} runs are more than {MOST_CASES}")]
    TooMany(usize),
}

impl Args for GridFlags {
    fn augment_args(command: Command) -> Command {
        let mut command = RunArgs::augment_args(command);
        for (id, takes_value) in run_flags() {
            if takes_value {
                let is_list = !NO_LISTS.contains(&&*long_of(&id));
                command = command.mut_arg(id, |arg| {
                    let help = arg.get_help().map(ToString::to_string).unwrap_or_default();
                    let arg = arg.value_parser(clap::builder::NonEmptyStringValueParser::new()).action(ArgAction::Append);
                    if is_list { arg.value_delimiter(',').help(format!("{}; a list: a,b,c", help.trim_end_matches('.'))) } else { arg }
                });
            }
        }
        command
    }

    fn augment_args_for_update(command: Command) -> Command {
        Self::augment_args(command)
    }
}

impl FromArgMatches for GridFlags {
    fn from_arg_matches(matches: &ArgMatches) -> Result<Self, clap::Error> {
        let mut flags = Self::default();
        flags.update_from_arg_matches(matches)?;
        Ok(flags)
    }

    fn update_from_arg_matches(&mut self, matches: &ArgMatches) -> Result<(), clap::Error> {
        self.given = run_flags()
            .into_iter()
            .filter(|(id, _)| matches.value_source(id) == Some(ValueSource::CommandLine))
            .map(|(id, takes_value)| {
                let name = long_of(&id);
                let values =
                    if takes_value { matches.get_many::<String>(&id).into_iter().flatten().cloned().collect() } else { Vec::new() };
                Flag { is_list: takes_value && !NO_LISTS.contains(&&*name), is_switch: !takes_value, name, values }
            })
            .collect();
        Ok(())
    }
}

/// Ids of the flags of a run, and whether each takes a value.
fn run_flags() -> Vec<(String, bool)> {
    let command = RunArgs::augment_args(Command::new("run"));
    command.get_arguments().map(|arg| (arg.get_id().to_string(), arg.get_action().takes_values())).collect()
}

fn long_of(id: &str) -> String {
    id.replace('_', "-")
}

impl GridFlags {
    /// The seeds that were named; empty if none.
    pub fn seeds(&self) -> Result<Vec<u64>, GridError> {
        let texts = self.given.iter().find(|flag| flag.name == "seed").map(|flag| &flag.values[..]).unwrap_or_default();
        texts
            .iter()
            .map(|text| text.parse().map_err(|e| GridError::Cell { cell: format!("seed={text}"), reason: format!("{e}") }))
            .collect()
    }

    /// Whether anything but seeds was given.
    pub fn describes_a_run(&self) -> bool {
        self.given.iter().any(|flag| flag.name != "seed")
    }

    /// What every cell has in common, as words for a subtitle.
    pub fn conditions(&self) -> String {
        let words = self.given.iter().filter(|flag| !flag.is_axis() && flag.name != "seed");
        words.map(|flag| format!("{} {}", flag.name, flag.values.join(" ")).trim_end().to_owned()).collect::<Vec<_>>().join(", ")
    }

    /// Cells times seeds, without making them.
    pub fn size(&self) -> usize {
        let lists = self.given.iter().filter(|flag| flag.is_axis() || flag.name == "seed");
        lists.fold(1, |n: usize, flag| n.saturating_mul(flag.values.len().max(1)))
    }

    /// Every cell with every seed; traces are read.
    pub fn cases(&self) -> Result<Vec<Case>, GridError> {
        self.cases_with(Traces::Read)
    }

    /// The same, and says whether files of traces are read.
    pub fn cases_with(&self, traces: Traces) -> Result<Vec<Case>, GridError> {
        for flag in self.given.iter().filter(|flag| flag.is_list) {
            if let Some(value) = flag.values.iter().enumerate().find(|(i, v)| flag.values[..*i].contains(v)).map(|(_, v)| v) {
                return Err(GridError::Twice { flag: flag.name.clone(), value: value.clone() });
            }
        }
        let fixed: Vec<String> = self.given.iter().filter(|f| !f.is_axis() && f.name != "seed").flat_map(Flag::words).collect();
        let axes: Vec<&Flag> = self.given.iter().filter(|flag| flag.is_axis()).collect();
        let seeds = match self.seeds()? {
            seeds if seeds.is_empty() => vec![7],
            seeds => seeds,
        };
        let size = self.size();
        if size > MOST_CASES {
            return Err(GridError::TooMany(size));
        }
        let mut cells: Vec<Vec<(String, String)>> = vec![Vec::new()];
        for axis in axes {
            let longer = |cell: &Vec<(String, String)>, value: &String| {
                let mut cell = cell.clone();
                cell.push((axis.name.clone(), value.clone()));
                cell
            };
            cells = cells.iter().flat_map(|cell| axis.values.iter().map(move |value| longer(cell, value))).collect();
        }
        let mut cases = Vec::with_capacity(size);
        for cell in cells {
            for &seed in &seeds {
                cases.push(case(&fixed, &cell, seed, traces)?);
            }
        }
        Ok(cases)
    }
}

impl Flag {
    fn is_axis(&self) -> bool {
        self.is_list && self.values.len() > 1 && self.name != "seed"
    }

    fn words(&self) -> Vec<String> {
        if self.is_switch {
            return vec![format!("--{}", self.name)];
        }
        self.values.iter().map(|value| format!("--{}={value}", self.name)).collect()
    }
}

fn case(fixed: &[String], cell: &[(String, String)], seed: u64, traces: Traces) -> Result<Case, GridError> {
    let name = cell.iter().map(|(key, value)| format!("{key}={value} ")).collect::<String>();
    let refused = |reason: String| GridError::Cell { cell: name.trim_end().to_owned(), reason };
    let words = fixed.iter().cloned().chain(cell.iter().map(|(key, value)| format!("--{key}={value}")));
    let line = RunLine(words.chain([format!("--seed={seed}")]).collect());
    let scenario = line.scenario_with(traces).map_err(refused)?;
    let command = Some(line.to_string());
    Ok(Case { name: format!("{name}seed={seed}"), cell: cell.to_vec(), scenario, expect: Expectations::default(), command })
}

#[cfg(test)]
mod tests {
    use clap::Parser;

    use super::*;

    #[derive(Parser)]
    #[command(no_binary_name = true)]
    struct Line {
        #[command(flatten)]
        grid: GridFlags,
    }

    fn cases(line: &str) -> Result<Vec<Case>, String> {
        let line = Line::try_parse_from(line.split_whitespace()).map_err(|e| e.to_string())?;
        line.grid.cases().map_err(|e| e.to_string())
    }

    #[test]
    fn every_combination_is_a_cell_with_every_seed() {
        let cases = cases("--rate 10mbit,100mbit --delay 10ms,50ms,70ms --loss 2%,10% --queue 2bdp --both --seed 7,8").unwrap();
        assert_eq!(cases.len(), 2 * 3 * 2 * 2);
        assert_eq!(cases[0].name, "rate=10mbit delay=10ms loss=2% seed=7");
        assert_eq!(cases[0].cell.len(), 3);
        let last = &cases[23].scenario;
        let spec = &last.hops[0].forward;
        assert_eq!(
            (spec.rate.unwrap().to_string(), spec.delay.to_string(), spec.queue.to_string()),
            ("100mbit".into(), "70ms".into(), "2bdp".into())
        );
        assert_eq!((last.seed, last.both), (8, true));
    }

    #[test]
    fn a_cell_is_the_run_that_sim_makes_of_the_same_flags() {
        let line = "--rate 20mbit --delay 30ms --jitter 1ms --loss 5% --loss-model gilbert:8 --loss-at before --queue 0.1bdp --rev rate=1mbit,delay=2ms --at 10s:rate=5mbit,loss=1% --cc cubic --mode btp --lifetime 60ms --ip 6 --seconds 30 --warmup 6 --seed 9";
        let one = RunLine(line.split_whitespace().map(str::to_owned).collect()).scenario().unwrap();
        let cases = cases(line).unwrap();
        assert_eq!(cases[0].scenario, one);
        let words = cases[0].command.as_deref().and_then(|command| command.strip_prefix("noctule-lab sim "));
        assert_eq!(RunLine(words.unwrap().split(' ').map(str::to_owned).collect()).scenario(), Ok(one));
    }

    #[test]
    fn modes_controllers_and_workloads_are_axes_too() {
        assert_eq!(
            cases("--cc model,cubic --loss-model random,gilbert:8 --loss 1% --loss-at after,before --workload bulk,transfer:1MB")
                .unwrap()
                .len(),
            16
        );
    }

    #[test]
    fn what_is_wrong_in_a_list_is_named_with_its_cell() {
        for (line, names) in [
            ("--loss 2%,200%", "200%"),
            ("--loss 2%,10%,2%", "twice"),
            ("--cc model,bbrr", "bbrr"),
            ("--loss 0%,5% --loss-model ber:1e-6", "loss=5%"),
            ("--seed 7,x", "x"),
            ("--los 2%", "--los"),
            ("--delay 10ms,,20ms", "delay"),
            ("--hops 0,1", "hops=0"),
        ] {
            let error = cases(line).expect_err(line);
            assert!(error.contains(names), "{line}: {error}");
        }
    }
}

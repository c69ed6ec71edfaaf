//! What a figure is made of.

use std::collections::BTreeMap;
use std::path::Path;

use crate::scenario::{Case, FileError, Scenario, ScenarioFile};

use super::quantity::Quantity;

/// A figure or table of a founding document, and how it is repeated.
#[derive(Debug, Clone, Copy)]
pub struct Figure {
    /// Name on the command line and of its files.
    pub id: &'static str,
    /// What it shows.
    pub title: &'static str,
    /// Where it was published.
    pub source: &'static str,
    /// What is asked.
    pub question: &'static str,
    /// How it is simulated, and what is not as it was there.
    pub setup: &'static str,
    /// The runs.
    pub runs: &'static [Runs],
    /// What is read off them; the first one is drawn by [`Chart::Lines`].
    pub tables: &'static [Table],
    /// Which axis names contenders.
    pub contender: Option<Contender>,
    /// What else is said of the runs.
    pub extras: &'static [Extra],
    /// How it is drawn.
    pub chart: Chart,
}

/// A figure that the simulator does not make.
#[derive(Debug, Clone, Copy)]
pub struct Elsewhere {
    /// As [`Figure::id`].
    pub id: &'static str,
    /// What it shows.
    pub title: &'static str,
    /// Where it was published.
    pub source: &'static str,
    /// Why not, and what makes it instead.
    pub reason: &'static str,
}

/// Cells of a scenario file.
#[derive(Debug, Clone, Copy)]
pub struct Runs {
    /// The file in the repository.
    pub path: &'static str,
    /// What it says.
    pub text: &'static str,
    /// Cells that have all values of one of these lists; all cells without.
    pub only: &'static [&'static [(&'static str, &'static str)]],
}

/// A table of one quantity.
#[derive(Debug, Clone, Copy)]
pub struct Table {
    /// What.
    pub quantity: &'static Quantity,
    /// Of the runs of a cell.
    pub statistic: Statistic,
    /// The axis that goes to the right.
    pub columns: &'static str,
    /// What stands beside.
    pub besides: &'static [Beside],
}

/// What is said of several runs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Statistic {
    /// Their mean, with the least and the most.
    Mean,
    /// Their standard deviation.
    Deviation,
}

/// Figures of others beside ours.
#[derive(Debug, Clone, Copy)]
pub struct Beside {
    /// Whose.
    pub name: &'static str,
    /// Where they come from.
    pub kind: Kind,
    /// A cell that is worse than this is lost.
    pub is_rival: bool,
}

/// Where figures beside ours come from.
#[derive(Debug, Clone, Copy)]
pub enum Kind {
    /// A published table: CSV whose head names axes, and in the last column the unit.
    Published(&'static str),
    /// An equation.
    Equation(fn(&Scenario) -> Option<f64>),
}

/// The axis that tells contenders apart.
#[derive(Debug, Clone, Copy)]
pub struct Contender {
    /// Its key.
    pub key: &'static str,
    /// Its value for noctule as it is by default; the others are compared with it.
    pub ours: &'static str,
}

/// What else a page has.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Extra {
    /// What each link was offered, carried, lost, delivered.
    Links,
    /// Batches by rank at each relay.
    Batches,
}

/// How a figure is drawn.
#[derive(Debug, Clone, Copy)]
pub enum Chart {
    /// The first table over an axis, a line per combination of the others; a drawing per value of `plane`.
    Lines {
        /// The axis to the right.
        x: &'static str,
        /// Its name and unit.
        x_name: &'static str,
        /// Logarithmic axes, to the right and upwards.
        logarithmic: (bool, bool),
        /// The axis with a drawing for each of its values.
        plane: Option<&'static str>,
    },
    /// Shares of the limit as a heat map: the median of each cell.
    Matrix,
    /// The first run of each cell as it goes on.
    Course {
        /// What.
        course: Course,
        /// The axis with a drawing for each of its values.
        plane: Option<&'static str>,
    },
}

/// What a run is looked at for as it goes on.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Course {
    /// Goodput in each second.
    Goodput,
    /// Mean round trip of each ten messages.
    RoundTrips,
    /// How many of a hundred messages are back after a time.
    Distribution,
    /// Seconds of video of so many Mbit/s in a buffer.
    Buffer(f64),
}

/// Which cells of a figure to run.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Amount {
    /// A few small cells.
    pub is_quick: bool,
    /// The first so many seeds of each file; all without.
    pub seeds: Option<usize>,
}

impl Chart {
    /// What a reader of the drawing has to know beside the tables.
    pub fn caption(&self) -> Option<&'static str> {
        match self {
            Self::Lines { .. } => None,
            Self::Matrix => Some("Each cell of the drawing has the median of its runs, the tables have their mean."),
            Self::Course { .. } => Some("The drawing has the first run of each cell that counts, the tables have the mean of all."),
        }
    }
}

impl Runs {
    /// How many seeds the file has.
    ///
    /// # Errors
    /// The file is wrong.
    pub fn seeds(&self) -> Result<usize, FileError> {
        Ok(ScenarioFile::parse(Path::new(self.path), self.text.to_owned())?.run.seeds.len())
    }

    /// The cells.
    ///
    /// # Errors
    /// The file is wrong.
    pub fn cases(&self, amount: Amount) -> Result<Vec<Case>, FileError> {
        let file = ScenarioFile::parse(Path::new(self.path), self.text.to_owned())?;
        let seeds = amount.seeds.unwrap_or(if amount.is_quick { 1 } else { usize::MAX });
        let kept: Vec<u64> = file.run.seeds.iter().copied().take(seeds).collect();
        let mut cases = file.cases_of(!amount.is_quick, true)?;
        // A quick grid may leave an axis out: all its cells have the value of `[run]` then.
        let has = |case: &Case, (key, value): &(&str, &str)| case.cell.iter().all(|(k, v)| k != key || v == value);
        cases.retain(|case| {
            let is_asked = self.only.is_empty() || self.only.iter().any(|list| list.iter().all(|setting| has(case, setting)));
            is_asked && kept.contains(&case.scenario.seed)
        });
        // What a named case sets is said by its name; the settings of the grid follow those of the case.
        for case in &mut cases {
            let name = case.cell.iter().find(|(key, _)| key == "case").cloned();
            let of_case = |named: &&BTreeMap<String, String>| named.get("name") == name.as_ref().map(|(_, value)| value);
            if let (Some(name), Some(named)) = (&name, file.named.iter().find(of_case)) {
                case.cell.drain(..named.len());
                case.cell.insert(0, name.clone());
            }
        }
        Ok(cases)
    }
}

impl Figure {
    /// All cells.
    ///
    /// # Errors
    /// A scenario file is wrong.
    pub fn cases(&self, amount: Amount) -> Result<Vec<Case>, FileError> {
        let mut cases = Vec::new();
        for runs in self.runs {
            cases.extend(runs.cases(amount)?);
        }
        Ok(cases)
    }
}

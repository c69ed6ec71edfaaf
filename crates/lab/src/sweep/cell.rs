//! A cell as JSON, its name as a hash, and the record of what came of it.

use std::io;

use serde::{Deserialize, Serialize};

use crate::holdout::Draw;
use crate::matrix::{Outcome, RunFailure};
use crate::report::Report;
use crate::scenario::{Case, Congestion, Sender};
use crate::sim;
use crate::without;

/// One run with all that it needs; only the files of traces stay files.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Cell {
    /// The run.
    pub case: Case,
    /// Run it a second time with this difference, to compare with.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub second: Option<Second>,
    /// The draw that it came from.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub draw: Option<Draw>,
}

/// What is different in a second run.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub enum Second {
    /// The congestion control.
    Cc(Congestion),
    /// The senders.
    Senders(Vec<Sender>),
}

/// What came of a cell, with the cell: a line of JSON that needs nothing else to be understood.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Record {
    /// Hash of the cell and the program ([`Build::id`]).
    pub id: String,
    /// The program.
    pub build: String,
    /// Its number in the list that it was taken from: for the order of tables, no part of what it is.
    pub place: usize,
    /// The cell.
    pub cell: Cell,
    /// What came of it.
    pub measured: Measured,
}

/// What came of a cell.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
#[allow(clippy::large_enum_variant, reason = "nearly all are runs")]
pub enum Measured {
    /// It was run.
    Run {
        /// Figures and violations.
        outcome: Outcome,
        /// Goodput of each sender of the second run.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        second_mbit: Option<Vec<f64>>,
        /// The whole report; a draw has its command instead.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        report: Option<Box<Report>>,
    },
    /// It cannot be run, on any machine.
    NotRun {
        /// Why.
        reason: String,
    },
}

impl From<Case> for Cell {
    fn from(case: Case) -> Self {
        Self { case, second: None, draw: None }
    }
}

impl Cell {
    /// Runs it in the simulator.
    pub fn measure(&self) -> Measured {
        self.measure_watched(None)
    }

    /// The same, and `watch` hears of its first run while that goes on.
    pub fn measure_watched(&self, watch: Option<sim::Watch>) -> Measured {
        let refused = |error: sim::SimError| Measured::NotRun { reason: error.to_string() };
        let report = match sim::run_watched(&self.case.scenario, watch) {
            Ok(report) => report,
            Err(error) => return refused(error),
        };
        let second = self.second.as_ref().map(|second| {
            let mut scenario = self.case.scenario.clone();
            match second {
                Second::Cc(cc) => scenario.cc = *cc,
                Second::Senders(senders) => scenario.senders.clone_from(senders),
            }
            sim::run(&scenario).map(|report| report.pairs_mbit)
        });
        let second_mbit = match second.transpose() {
            Ok(second) => second,
            Err(error) => return refused(error),
        };
        let outcome = Outcome::of_sim(&report, sim::violations(&self.case, &report));
        Measured::Run { outcome, second_mbit, report: self.draw.is_none().then(|| Box::new(report)) }
    }

    /// What it costs to run, in the unit of [`crate::scenario::Scenario::effort`].
    pub fn effort(&self) -> f64 {
        self.case.scenario.effort() * if self.second.is_some() { 2.0 } else { 1.0 }
    }
}

/// What is no record, or not the one that it should be.
#[derive(Debug, thiserror::Error)]
pub enum RecordError {
    /// Other JSON, or none.
    #[error("not a result of a cell: {0}")]
    Json(#[from] serde_json::Error),
    /// Its cell or its id was changed.
    #[error("{0} is not the hash of the cell that stands there")]
    Changed(String),
    /// That of another cell.
    #[error("it holds the result of {0}")]
    Another(String),
}

impl Record {
    /// What a file or a line says; whether it may be believed, [`Record::checked`] knows.
    ///
    /// # Errors
    /// It is no record.
    pub fn from_slice(bytes: &[u8]) -> Result<Self, RecordError> {
        Ok(serde_json::from_slice(bytes)?)
    }

    /// The same, if its id is the hash of its cell.
    ///
    /// # Errors
    /// One of them was changed.
    pub fn checked(self) -> Result<Self, RecordError> {
        if Build::named(&self.build).id(&self.cell) == self.id { Ok(self) } else { Err(RecordError::Changed(self.id)) }
    }

    /// The record of the cell `id`.
    ///
    /// # Errors
    /// It is none, that of another cell, or changed.
    pub fn named(bytes: &[u8], id: &str) -> Result<Self, RecordError> {
        let record = Self::from_slice(bytes)?;
        if record.id == id { record.checked() } else { Err(RecordError::Another(record.id)) }
    }

    /// As a matrix wants it.
    pub fn result(&self) -> Result<Outcome, RunFailure> {
        match &self.measured {
            Measured::Run { outcome, .. } => Ok(outcome.clone()),
            Measured::NotRun { reason } => {
                Err(RunFailure { seed: self.cell.case.scenario.seed, reason: reason.clone(), code: crate::matrix::IMPOSSIBLE })
            }
        }
    }

    /// What is wrong with it, in words.
    pub fn complaints(&self) -> Vec<String> {
        match &self.measured {
            Measured::Run { outcome, .. } => outcome.violations.clone(),
            Measured::NotRun { reason } => vec![reason.clone()],
        }
    }
}

/// The program that runs cells: results of another one are other results.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Build(String);

impl Build {
    /// Version and hash of this program's file, and what is switched off: two builds of one version may differ in what they do.
    pub fn of_this_program() -> io::Result<Self> {
        let mut hasher = blake3::Hasher::new();
        // The file that runs, also where another has taken its name since.
        io::copy(&mut std::fs::File::open("/proc/self/exe")?, &mut hasher)?;
        let without = without::names().iter().map(|name| format!("-{name}")).collect::<String>();
        Ok(Self(format!("{}+{}{without}", env!("CARGO_PKG_VERSION"), &hasher.finalize().to_hex()[..16])))
    }

    /// A program by its name, for tests.
    pub fn named(name: &str) -> Self {
        Self(name.to_owned())
    }

    /// As records have it.
    pub fn name(&self) -> &str {
        &self.0
    }

    /// The hash of a cell and this program: 32 hexadecimal digits.
    pub fn id(&self, cell: &Cell) -> String {
        let mut hasher = blake3::Hasher::new();
        let mut add = |bytes: &[u8]| {
            hasher.update(&(bytes.len() as u64).to_le_bytes());
            hasher.update(bytes);
        };
        add(self.0.as_bytes());
        // A cell is made of texts and numbers: it always serialises.
        add(&serde_json::to_vec(cell).unwrap_or_default());
        for spec in cell.case.scenario.hops.iter().flat_map(|hop| [&hop.forward, &hop.reverse]) {
            if let Some(trace) = &spec.trace {
                add(trace.digest().as_bytes());
            }
        }
        hasher.finalize().to_hex()[..32].to_owned()
    }
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::*;
    use crate::scenario::ScenarioFile;

    #[test]
    fn a_cell_of_any_scenario_file_comes_back_from_json_as_it_was() {
        let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../scenarios");
        let build = Build::named("test");
        let mut cells = 0;
        let files = [folder.clone(), folder.join("paper")].into_iter().flat_map(|folder| std::fs::read_dir(folder).unwrap());
        for file in files.map(|file| file.unwrap().path()).filter(|path| path.extension().is_some_and(|end| end == "toml")) {
            for case in ScenarioFile::read(&file).unwrap().cases(true).unwrap() {
                let cell = Cell::from(case);
                let text = serde_json::to_string(&cell).unwrap();
                let back: Cell = serde_json::from_str(&text).unwrap_or_else(|e| panic!("{text}: {e}"));
                assert_eq!(back, cell);
                assert_eq!(build.id(&back), build.id(&cell), "{text}");
                cells += 1;
            }
        }
        assert!(cells > 100);
    }

    #[test]
    fn the_name_of_a_result_follows_the_cell_the_program_and_the_trace() {
        let case = || {
            let mut file: ScenarioFile = toml::from_str("name = \"small\"\n[link]\nrate = \"5mbit\"\n").unwrap();
            file.run.seeds = vec![3];
            Cell::from(file.cases(true).unwrap().remove(0))
        };
        let (build, cell) = (Build::named("one"), case());
        assert_eq!(build.id(&cell), build.id(&case()));
        assert_ne!(build.id(&cell), Build::named("two").id(&cell));
        let mut other = case();
        other.case.scenario.seed = 4;
        assert_ne!(build.id(&cell), build.id(&other));
        // The same name of a trace, and another file under it.
        let traced = |text: &str| {
            let mut cell = case();
            cell.case.scenario.hops[0].forward.rate = None;
            cell.case.scenario.hops[0].forward.trace = Some(crate::link::Trace::parse("lte", text).unwrap());
            cell
        };
        assert_ne!(build.id(&traced("1\n2\n")), build.id(&traced("1\n3\n")));
    }
}

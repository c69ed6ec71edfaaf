//! What the page says of runs, cells and matrices: the shapes of `assets/openapi.json`.

use std::collections::{HashMap, HashSet};

use axum::http::StatusCode;
use serde::Serialize;

use super::answer::Problem;
use super::single;
use super::store::{REPORT, Run};
use super::tables::Tables;
use crate::holdout::Draw;
use crate::matrix::{Layout, Outcome, Summary, plane_name, tell_apart};
use crate::scenario::Case;
use crate::sweep::{Cell, Measured, Record, samples};

/// Cells of a matrix at most: a table of more is none.
const MOST_CELLS: usize = 5_000;

/// How far a run is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum RunState {
    /// A worker has a cell in hand.
    Running,
    /// The server was asked to end it, and its workers have not ended yet.
    Stopping,
    /// Nobody works on it, and cells of its list have no result, or a run has left no report.
    Incomplete,
    /// Every cell of its list has a result, or nobody knows its list.
    Finished,
}

/// A line of the list of runs.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct RunSummary {
    /// Of the folder.
    pub name: String,
    /// How far it is.
    pub state: RunState,
    /// Cells of its list; null where it has none.
    pub cells: Option<usize>,
    /// Results of the build that made the newest one; the shares are theirs, too.
    pub done: usize,
    /// Cells that failed, missed an expectation or left no report.
    pub failed: usize,
    /// Cells that are being run.
    pub running: Vec<String>,
    /// Median share of the limit.
    pub median_share: Option<f64>,
    /// The least one.
    pub least_share: Option<f64>,
    /// Last change, seconds since 1970.
    pub modified: u64,
    /// It can be ended here.
    pub can_cancel: bool,
    /// It can go on here: nobody works on it, something of it is missing, and what was asked for is known.
    pub can_resume: bool,
}

/// How far a cell is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum CellState {
    /// It failed, missed an expectation or could not be run.
    Failed,
    /// It is being run.
    Running,
    /// It was run.
    Done,
    /// It has no result.
    Waiting,
    /// A course without a result: a single run, or one that broke off.
    Course,
}

/// A line of the list of cells.
#[derive(Debug, Clone, Serialize)]
pub struct Row {
    /// Hash of the cell and the program, or the name of a course.
    pub id: String,
    /// In the list.
    pub place: Option<usize>,
    /// As tables have it.
    pub name: String,
    /// How far it is.
    pub state: CellState,
    /// Value of each axis.
    pub settings: Vec<(String, String)>,
    /// The program that ran it; null where there is no result.
    pub build: Option<String>,
    /// Of everything random.
    pub seed: Option<u64>,
    /// Where it was drawn.
    pub draw: Option<Draw>,
    /// Application bytes read per time, Mbit/s.
    pub goodput_mbit: Option<f64>,
    /// What the configuration allows, Mbit/s.
    pub limit_mbit: Option<f64>,
    /// Goodput over the limit.
    pub share: Option<f64>,
    /// 95th percentile of the queueing delay at the bottleneck, ms.
    pub queue_ms_p95: Option<f64>,
    /// Mean round trip of messages, ms.
    pub rtt_ms_mean: Option<f64>,
    /// Share of messages that did not arrive in time.
    pub residual_loss: Option<f64>,
    /// IP bytes sent per byte read.
    pub wire_per_byte: Option<f64>,
    /// What is wrong with it.
    pub complaints: Vec<String>,
    /// There is a course to show.
    pub has_samples: bool,
}

/// A run with its cells.
#[derive(Debug, Serialize)]
pub struct RunView {
    /// Its line in the list.
    #[serde(flatten)]
    pub summary: RunSummary,
    /// Files that cannot be read.
    pub problems: Vec<String>,
    /// The last lines that a started run said.
    pub log: Vec<String>,
    /// Programs whose results these are.
    pub builds: Vec<String>,
    /// Cells in all.
    pub rows_total: usize,
    /// Those that were asked for.
    pub rows: Vec<Row>,
}

/// The course of a cell.
#[derive(Debug, Serialize)]
pub struct CourseView {
    /// What ran.
    #[serde(flatten)]
    pub head: samples::Head,
    /// Interval by interval.
    pub samples: Vec<crate::sim::Sample>,
}

/// A cell with all that is known.
#[derive(Debug, Serialize)]
pub struct CellView {
    /// Its line.
    #[serde(flatten)]
    pub row: Row,
    /// The command that makes this run alone; `cell.json` is a file with `list` in it.
    pub command: String,
    /// The cell as a list of one, as `noctule-lab cell --of` reads it.
    pub list: Vec<Cell>,
    /// Its report; null for draws and where there is no result.
    pub report: Option<serde_json::Value>,
    /// Goodput of each sender of the second run of a draw, Mbit/s.
    pub second_mbit: Option<Vec<f64>>,
}

/// A table of shares, and a published one beside it.
#[derive(Debug, Serialize)]
pub struct MatrixView {
    /// The program whose results these are.
    pub build: String,
    /// Name of the published table, if one stands beside.
    pub beside: Option<String>,
    /// Key and values downwards.
    pub rows: crate::matrix::Axis,
    /// Key and values to the right.
    pub columns: crate::matrix::Axis,
    /// Keys of all axes.
    pub axes: Vec<String>,
    /// A plane for each combination of the other axes.
    pub planes: Vec<Plane>,
}

/// One plane.
#[derive(Debug, Serialize)]
pub struct Plane {
    /// `queue 1bdp`; empty where there is one.
    pub name: String,
    /// Row by row; null where nothing was run.
    pub cells: Vec<Vec<Option<Square>>>,
}

/// One place of a matrix, its seeds together.
#[derive(Debug, Serialize)]
pub struct Square {
    /// The first of its results.
    pub id: Option<String>,
    /// Median goodput, Mbit/s.
    pub goodput_mbit: Option<f64>,
    /// The least.
    pub goodput_mbit_least: Option<f64>,
    /// Median share of the limit.
    pub share: Option<f64>,
    /// The least.
    pub share_least: Option<f64>,
    /// Goodput in the published table, Mbit/s.
    pub beside_mbit: Option<f64>,
    /// Ours over the published one.
    pub factor: Option<f64>,
    /// Runs that count.
    pub runs: usize,
    /// What is wrong with them.
    pub complaints: Vec<String>,
}

/// The outcome of a record, if it was run.
pub fn outcome(record: &Record) -> Option<&Outcome> {
    match &record.measured {
        Measured::Run { outcome, .. } => Some(outcome),
        Measured::NotRun { .. } => None,
    }
}

/// Whether the server works on a run, and has been asked to end it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Ours {
    /// No child of this server.
    No,
    /// A child works on it.
    Works,
    /// It was asked to end.
    Stopping,
}

impl RunSummary {
    /// Of a run.
    pub fn of(run: &Run, ours: Ours) -> Self {
        let records = run.of_build(None);
        let mut shares: Vec<f64> = records.iter().filter_map(|record| outcome(record)?.share).collect();
        shares.sort_by(f64::total_cmp);
        let singles: Vec<CellState> = run.singles.iter().map(|(name, single)| single.state(run.works_on(name, ours))).collect();
        let count = |state: CellState| singles.iter().filter(|single| **single == state).count();
        let left_nothing = run.singles.values().filter(|single| single.promised && single.figures.is_none()).count();
        let cells_missing = run.waiting().len();
        let missing = cells_missing + left_nothing;
        let state = match ours {
            Ours::Stopping => RunState::Stopping,
            Ours::Works => RunState::Running,
            Ours::No if !run.claimed.is_empty() => RunState::Running,
            Ours::No if missing > 0 => RunState::Incomplete,
            Ours::No => RunState::Finished,
        };
        Self {
            name: run.name.clone(),
            state,
            cells: (!run.list.is_empty()).then_some(run.list.len()),
            done: records.len() + run.singles.values().filter(|single| single.figures.is_some()).count(),
            failed: records.iter().filter(|record| !record.complaints().is_empty()).count() + count(CellState::Failed),
            running: run.claimed.iter().cloned().collect(),
            median_share: crate::matrix::Spread::of(shares.iter().copied()).map(|spread| spread.median),
            least_share: shares.first().copied(),
            modified: run.modified,
            can_cancel: ours == Ours::Works,
            can_resume: state == RunState::Incomplete && (cells_missing > 0 || run.is_asked),
        }
    }
}

impl RunView {
    /// Of a run, its cells from `offset` on, `limit` of them at most; without its log.
    pub fn of(summary: RunSummary, run: &Run, ours: Ours, offset: usize, limit: usize) -> Self {
        let rows = run.rows(ours);
        Self {
            summary,
            problems: run.problems.clone(),
            log: Vec::new(),
            builds: run.builds().into_iter().map(str::to_owned).collect(),
            rows_total: rows.len(),
            rows: rows.into_iter().skip(offset).take(limit).collect(),
        }
    }
}

impl CourseView {
    /// That of a cell of a run.
    ///
    /// # Errors
    /// There is none, or it cannot be read.
    pub fn of(run: &Run, id: &str) -> Result<Self, Problem> {
        if !run.samples.contains(id) {
            let text = format!("the run {:?} has no course of {id:?}; sweeps keep them with --samples", run.name);
            return Err(Problem::not_found(text));
        }
        let unread = |text: String| Problem::new(StatusCode::UNPROCESSABLE_ENTITY, text);
        let (head, samples) = samples::read(&samples::path_of(&run.path, id)).map_err(unread)?;
        Ok(Self { head, samples })
    }
}

impl Run {
    /// Whether a process writes on a course, or the child that the server has for this run may yet.
    fn works_on(&self, name: &str, ours: Ours) -> bool {
        ours != Ours::No || self.claimed.contains(name)
    }

    /// Cells of the list that have no result of the newest build, with their numbers.
    fn waiting(&self) -> Vec<(usize, &(String, Cell))> {
        let records = self.of_build(None);
        let ids: HashSet<&str> = records.iter().map(|record| &*record.id).collect();
        // Results of several lists in one folder have the same numbers.
        let mut places: HashMap<usize, Vec<&Record>> = HashMap::new();
        for record in &records {
            places.entry(record.place).or_default().push(record);
        }
        // The results of another build of this program have other names; then the cells themselves are compared.
        let is_done = |place: usize, id: &String, cell: &Cell| {
            ids.contains(&**id) || places.get(&place).is_some_and(|records| records.iter().any(|record| record.cell == *cell))
        };
        self.list.iter().enumerate().filter(|(place, (id, cell))| !is_done(*place, id, cell)).collect()
    }

    /// A line for each result, each cell that waits, and each run that is no cell.
    pub fn rows(&self, ours: Ours) -> Vec<Row> {
        let mut rows: Vec<Row> = self.records.iter().map(|record| Row::of(record, self.samples.contains(&record.id))).collect();
        for (place, (id, cell)) in self.waiting() {
            let state = if self.claimed.contains(id) { CellState::Running } else { CellState::Waiting };
            rows.push(Row { place: Some(place), ..Row::bare(id, cell, state, self.samples.contains(id)) });
        }
        rows.extend(self.singles.iter().map(|(name, single)| single.row(name, self.works_on(name, ours), self.samples.contains(name))));
        rows
    }

    /// A cell by its hash or the name of its course.
    ///
    /// # Errors
    /// There is none, or its file cannot be read.
    pub fn cell(&self, store: &super::store::Store, id: &str, ours: Ours) -> Result<CellView, Problem> {
        if self.records.iter().any(|record| record.id == id) {
            let record = store.whole(&self.name, id)?;
            let row = Row::of(&record, self.samples.contains(id));
            let (report, second_mbit) = match record.measured {
                Measured::Run { report, second_mbit, .. } => (report, second_mbit),
                Measured::NotRun { .. } => (None, None),
            };
            return Ok(CellView {
                row,
                command: command(&record.cell),
                list: vec![record.cell],
                report: report.and_then(|report| serde_json::to_value(report).ok()),
                second_mbit,
            });
        }
        let row = self.rows(ours).into_iter().find(|row| row.id == id);
        let row = row.ok_or_else(|| Problem::not_found(format!("the run {:?} has no cell {id:?}", self.name)))?;
        let list: Vec<Cell> = self.list.iter().filter(|(known, _)| known == id).map(|(_, cell)| cell.clone()).collect();
        // A single run names its course by its command.
        let alone = || if row.name.starts_with("noctule-lab ") { row.name.clone() } else { String::new() };
        let command = list.first().map_or_else(alone, command);
        let is_promised = self.singles.get(id).is_some_and(|single| single.promised);
        let report = is_promised.then(|| single::report(&self.path.join(REPORT))).flatten();
        Ok(CellView { row, command, list, report, second_mbit: None })
    }

    /// Shares as a table, beside a published one if there is one that fits.
    ///
    /// # Errors
    /// Draws and single runs make no table; an axis or a published table that is not there.
    pub fn matrix(&self, tables: &Tables, ask: &MatrixAsk) -> Result<MatrixView, Problem> {
        let unfit = |text: &str| Problem::not_found(text);
        let build = ask.build.as_deref().or(self.build.as_deref()).unwrap_or_default();
        let records: Vec<&Record> =
            self.of_asked_build(ask.build.as_deref())?.into_iter().filter(|record| record.cell.draw.is_none()).collect();
        if records.iter().all(|record| record.cell.case.cell.is_empty()) {
            return Err(unfit("these results have no axes: draws and single runs make no table"));
        }
        if records.len() > MOST_CELLS {
            return Err(unfit(&format!("{} results are more than a table of {MOST_CELLS} cells", records.len())));
        }
        let (mut cases, results): (Vec<Case>, Vec<_>) = records.iter().map(|record| (record.cell.case.clone(), record.result())).unzip();
        tell_apart(&mut cases);
        let mut summary = Summary::of(&cases, results);
        let beside = match ask.beside.as_deref() {
            Some("none") => None,
            Some(name) => {
                let table = tables.get(name).ok_or_else(|| Problem::not_found(format!("there is no published table {name:?}")))?;
                table.join(&mut summary);
                Some(table.name().to_owned())
            }
            None => tables.first_that_fits(&mut summary),
        };
        let layout = Layout::of(&summary, ask.rows.as_deref(), ask.columns.as_deref()).map_err(Problem::not_found)?;
        let square = |cell: &crate::matrix::Cell| Square {
            id: cases.iter().zip(&records).find(|(case, _)| case.cell == cell.settings).map(|(_, record)| record.id.clone()),
            goodput_mbit: cell.goodput_mbit.map(|spread| spread.median),
            goodput_mbit_least: cell.goodput_mbit.map(|spread| spread.min),
            share: cell.share.map(|spread| spread.median),
            share_least: cell.share.map(|spread| spread.min),
            beside_mbit: cell.beside_mbit,
            factor: cell.goodput_mbit.zip(cell.beside_mbit).filter(|(_, theirs)| *theirs > 0.0).map(|(ours, theirs)| ours.median / theirs),
            runs: cell.runs.len(),
            complaints: cell.complaints(),
        };
        let row = |plane: &[(String, String)], row: &String| -> Vec<Option<Square>> {
            layout.columns.values.iter().map(|column| layout.cell(&summary, plane, row, column).map(square)).collect()
        };
        let planes = layout
            .planes
            .iter()
            .map(|plane| Plane { name: plane_name(plane), cells: layout.rows.values.iter().map(|value| row(plane, value)).collect() });
        let planes = planes.collect();
        let axes = summary.axes.iter().filter(|axis| axis.values.len() > 1).map(|axis| axis.key.clone()).collect();
        Ok(MatrixView { build: build.to_owned(), beside, planes, axes, rows: layout.rows, columns: layout.columns })
    }
}

impl Row {
    /// One of which nothing is known.
    pub fn empty(id: &str, state: CellState, has_samples: bool) -> Self {
        Self {
            id: id.to_owned(),
            place: None,
            name: id.to_owned(),
            state,
            settings: Vec::new(),
            build: None,
            seed: None,
            draw: None,
            goodput_mbit: None,
            limit_mbit: None,
            share: None,
            queue_ms_p95: None,
            rtt_ms_mean: None,
            residual_loss: None,
            wire_per_byte: None,
            complaints: Vec::new(),
            has_samples,
        }
    }

    fn bare(id: &str, cell: &Cell, state: CellState, has_samples: bool) -> Self {
        Self {
            name: cell.case.name.clone(),
            settings: cell.case.cell.clone(),
            seed: Some(cell.case.scenario.seed),
            draw: cell.draw,
            ..Self::empty(id, state, has_samples)
        }
    }

    /// Of a result.
    pub fn of(record: &Record, has_samples: bool) -> Self {
        let complaints = record.complaints();
        let state = if complaints.is_empty() { CellState::Done } else { CellState::Failed };
        let row = Self {
            place: Some(record.place),
            build: Some(record.build.clone()),
            complaints,
            ..Self::bare(&record.id, &record.cell, state, has_samples)
        };
        let Some(outcome) = outcome(record) else { return row };
        Self {
            goodput_mbit: Some(outcome.goodput_mbit),
            limit_mbit: outcome.limit_mbit,
            share: outcome.share,
            queue_ms_p95: outcome.queue_ms_p95,
            rtt_ms_mean: outcome.rtt_ms_mean,
            residual_loss: outcome.residual_loss,
            wire_per_byte: outcome.wire_per_byte,
            ..row
        }
    }
}

/// What makes the run of a cell again: flags where they can say it, else its list.
fn command(cell: &Cell) -> String {
    cell.case.command.clone().unwrap_or_else(|| "noctule-lab cell --of cell.json 0 --results again".to_owned())
}

/// How a matrix is laid out.
#[derive(Debug, Clone, Default, serde::Deserialize)]
#[serde(deny_unknown_fields)]
pub struct MatrixAsk {
    /// Results of this build; those of the newest one if it is left out.
    pub build: Option<String>,
    /// A published table by name, or `none`; the first that fits if it is left out.
    pub beside: Option<String>,
    /// Key downwards.
    pub rows: Option<String>,
    /// Key to the right.
    pub columns: Option<String>,
}

#[cfg(test)]
mod tests {
    use super::super::store::tests::{cells, keep, record};
    use super::super::store::{LIST, Store};
    use super::*;
    use crate::sweep::{Build, list};

    fn store(results: usize) -> (tempfile::TempDir, Store) {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("one");
        for (i, cell) in cells().iter().enumerate().take(results) {
            keep(&path, &record(i, cell, [91.7, 90.5, 40.0, 80.6][i]));
        }
        std::fs::write(path.join(LIST), list::to_json(&cells()).unwrap()).unwrap();
        let store = Store::new(dir.path(), Build::named("test"));
        (dir, store)
    }

    #[test]
    fn a_matrix_stands_beside_the_published_table_that_fits() {
        let (_dir, store) = store(4);
        let tables = Tables::new(&[]).unwrap();
        let run = store.run("one").unwrap();
        let matrix = run.matrix(&tables, &MatrixAsk::default()).unwrap();
        assert_eq!(matrix.beside.as_deref(), Some("brtp-100mbit"));
        assert_eq!((matrix.rows.key.as_str(), matrix.columns.key.as_str()), ("loss", "delay"));
        let first = matrix.planes[0].cells[0][0].as_ref().unwrap();
        assert_eq!((first.beside_mbit, first.factor), (Some(91.7), Some(1.0)));
        let ask =
            |beside: &str, rows: &str| MatrixAsk { beside: Some(beside.to_owned()), rows: Some(rows.to_owned()), ..MatrixAsk::default() };
        assert_eq!(run.matrix(&tables, &ask("none", "loss")).unwrap().beside, None);
        assert!(run.matrix(&tables, &ask("nothing", "loss")).unwrap_err().text.contains("nothing"));
        assert!(run.matrix(&tables, &ask("none", "rate")).unwrap_err().text.contains("delay, loss"));
        // Six hops of the same rate are another set-up.
        assert_eq!(tables.get("bats-six-hops").map(|table| table.hops), Some(Some(6)));
    }

    #[test]
    fn cells_without_a_result_wait_and_those_that_failed_are_counted() {
        let (_dir, store) = store(3);
        let run = store.run("one").unwrap();
        let summary = RunSummary::of(&run, Ours::No);
        assert_eq!((summary.state, summary.cells, summary.done, summary.failed), (RunState::Incomplete, Some(4), 3, 1));
        assert_eq!(RunSummary::of(&run, Ours::Works).state, RunState::Running);
        let rows = run.rows(Ours::No);
        let states: Vec<CellState> = rows.iter().map(|row| row.state).collect();
        assert_eq!(states, [CellState::Done, CellState::Done, CellState::Failed, CellState::Waiting]);
        let cell = run.cell(&store, &rows[3].id, Ours::No).unwrap();
        assert_eq!((cell.list.len(), cell.command.as_str()), (1, "noctule-lab cell --of cell.json 0 --results again"));
        assert_eq!(run.cell(&store, "no", Ours::No).unwrap_err().status, StatusCode::NOT_FOUND);
    }

    #[test]
    fn two_lists_with_the_same_axes_in_one_folder_stay_apart() {
        let dir = tempfile::tempdir().unwrap();
        let cells = |rate: &str| -> Vec<Cell> {
            let text = format!("name = \"of {rate}\"\n[link]\nrate = \"{rate}\"\n[run]\nseeds = [1, 2]\n[grid]\nloss = [\"0%\", \"2%\"]\n");
            let cases = toml::from_str::<crate::scenario::ScenarioFile>(&text).unwrap().cases(true).unwrap();
            cases.into_iter().map(Cell::from).collect()
        };
        let path = dir.path().join("one");
        for (rate, mbit) in [("60mbit", 60.0), ("90mbit", 90.0)] {
            cells(rate).iter().enumerate().for_each(|(place, cell)| keep(&path, &record(place, cell, mbit)));
        }
        let store = Store::new(dir.path(), Build::named("test"));
        let run = store.run("one").unwrap();
        let matrix = run.matrix(&Tables::new(&[]).unwrap(), &MatrixAsk::default()).unwrap();
        let planes: Vec<_> = matrix.planes.iter().flat_map(|plane| plane.cells.iter().flatten().flatten()).collect();
        assert_eq!(planes.len(), 4, "{:?}", matrix.axes);
        for square in planes {
            let at = run.records.iter().find(|record| Some(&record.id) == square.id.as_ref()).unwrap();
            assert_eq!(square.runs, 2, "its two seeds");
            assert_eq!(square.goodput_mbit, outcome(at).map(|outcome| outcome.goodput_mbit));
        }
        assert!(matrix.axes.contains(&"scenario".to_owned()), "{:?}", matrix.axes);
    }

    #[test]
    fn a_result_of_another_list_does_not_hide_that_a_cell_is_done() {
        let (dir, store) = store(4);
        let path = dir.path().join("one");
        // All by another build, and beside them cells of another list under the same numbers.
        let other = Build::named("other");
        for (place, cell) in cells().iter().enumerate() {
            let mut strange = cell.clone();
            strange.case.scenario.seed = 99;
            for cell in [cell, &strange] {
                keep(&path, &Record { id: other.id(cell), build: "other".to_owned(), ..record(place, cell, 90.0) });
            }
        }
        for id in store.run("one").unwrap().records.iter().filter(|record| record.build == "test").map(|record| &record.id) {
            std::fs::remove_file(path.join(format!("{id}.json"))).unwrap();
        }
        assert_eq!(RunSummary::of(&store.run("one").unwrap(), Ours::No).state, RunState::Finished);
    }

    #[test]
    fn a_file_of_its_own_has_a_line_for_every_cell() {
        let cell = cells().remove(0);
        let list = (0..20_000).map(|number: usize| (number.to_string(), cell.clone())).collect();
        let run = Run { list: std::sync::Arc::new(list), ..Run::bare("-", "none".as_ref()) };
        let view = |offset, limit| RunView::of(RunSummary::of(&run, Ours::No), &run, Ours::No, offset, limit);
        // Only the answers of the server have a bound.
        assert_eq!((view(0, usize::MAX).rows.len(), view(0, 3).rows.len(), view(19_999, 3).rows.len()), (20_000, 3, 1));
    }

    #[test]
    fn results_of_two_builds_are_told_apart() {
        let (dir, store) = store(4);
        let path = dir.path().join("one");
        let made = std::fs::File::open(path.join(format!("{}.json", store.run("one").unwrap().records[0].id))).unwrap();
        let before = made.metadata().unwrap().modified().unwrap();
        let newer = Build::named("newer");
        for (i, cell) in cells().iter().enumerate().take(2) {
            let record = Record { id: newer.id(cell), build: "newer".to_owned(), ..record(i, cell, 45.0) };
            keep(&path, &record);
            let file = std::fs::File::open(path.join(format!("{}.json", record.id))).unwrap();
            file.set_modified(before + std::time::Duration::from_secs(60)).unwrap();
        }
        let run = store.run("one").unwrap();
        assert_eq!((run.records.len(), run.build.as_deref(), run.builds()), (6, Some("newer"), vec!["newer", "test"]));
        let summary = RunSummary::of(&run, Ours::No);
        assert_eq!((summary.state, summary.cells, summary.done, summary.failed), (RunState::Incomplete, Some(4), 2, 2));
        assert_eq!(summary.median_share, Some(0.45));
        let builds: Vec<Option<String>> = run.rows(Ours::No).into_iter().map(|row| row.build).collect();
        assert_eq!(builds.iter().filter(|build| build.as_deref() == Some("newer")).count(), 2);
        assert_eq!(builds.iter().filter(|build| build.is_none()).count(), 2, "cells that the newer build has not run");
        let tables = Tables::new(&[]).unwrap();
        let matrix = |build: Option<&str>| {
            let ask = MatrixAsk { build: build.map(str::to_owned), ..MatrixAsk::default() };
            let matrix = run.matrix(&tables, &ask).map_err(|problem| problem.text)?;
            let squares = matrix.planes[0].cells.iter().flatten().flatten();
            Ok::<_, String>((matrix.build.clone(), squares.map(|square| (square.runs, square.goodput_mbit)).collect::<Vec<_>>()))
        };
        assert_eq!(matrix(None).unwrap(), ("newer".to_owned(), vec![(1, Some(45.0)), (1, Some(45.0))]));
        assert_eq!(matrix(Some("test")).unwrap().1.len(), 4);
        assert!(matrix(Some("other")).unwrap_err().contains("newer, test"));
    }
}

//! Folders of results, read as they are: a file that is broken is told and leaves the others; a folder that vanishes is no longer there.
//!
//! Others may write there as well. Links are not followed, neither those to files nor those to folders, and nothing but regular files is read.

use std::collections::{BTreeMap, BTreeSet};
use std::fs::{DirEntry, Metadata};
use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::UNIX_EPOCH;

use axum::http::StatusCode;

use super::answer::Problem;
use super::cache::Cache;
use super::locks::Locks;
use super::request::Request;
use super::single::{Figures, Single};
use crate::files::{self, Links};
use crate::sweep::samples::{self, ENDING, Head};
use crate::sweep::{Build, Cell, Measured, Record, list};

/// Name of the served folder itself, where results lie in it and not below it.
pub const ITSELF: &str = "-";
/// The list of the cells of a run that the page started; hidden, so that `merge` does not take it for a result.
pub const LIST: &str = ".cells.json";
/// What was asked for, as `POST /api/runs` had it: from this a run on namespaces is started again.
pub const REQUEST: &str = ".request.json";
/// Longest such file.
const REQUEST_MOST: u64 = 64 << 10;
/// What such a run says on standard error.
pub const LOG: &str = ".log";
/// Name of the course of a run on namespaces that the page started, and of its line.
pub const NET: &str = "namespaces";
/// What such a run prints on standard output. The file is locked as long as its process has it.
pub const REPORT: &str = "namespaces.report";
/// Lines of a log that are shown, and bytes that are looked at for them.
const LOG_LINES: usize = 20;
const LOG_BYTES: u64 = 64 << 10;

/// Folders of results below one folder.
#[derive(Debug)]
pub struct Store {
    root: PathBuf,
    build: Build,
    records: Cache<Read>,
    lists: Cache<Listed>,
    heads: Cache<Option<Head>>,
    figures: Cache<Option<Figures>>,
}

/// A record without its report, or what is wrong with the file.
type Read = Result<Arc<Record>, String>;
/// The cells of a list with their hashes, or what is wrong with it.
type Listed = Result<Arc<Vec<(String, Cell)>>, String>;

/// A folder of results.
#[derive(Debug, Clone)]
pub struct Run {
    /// Of the folder.
    pub name: String,
    /// Where it is.
    pub path: PathBuf,
    /// Results in the order of their list, without their reports; of all builds.
    pub records: Vec<Arc<Record>>,
    /// The build of the newest result.
    pub build: Option<String>,
    /// Cells of its list, where it has one, with their hashes.
    pub list: Arc<Vec<(String, Cell)>>,
    /// Hashes of cells that a worker has in hand, and names of courses that are being written.
    pub claimed: BTreeSet<String>,
    /// Names of courses, without their ending.
    pub samples: BTreeSet<String>,
    /// Runs that are no cells, by the name of their course or report.
    pub singles: BTreeMap<String, Single>,
    /// There is a file with what was asked for.
    pub is_asked: bool,
    /// What cannot be read, in words.
    pub problems: Vec<String>,
    /// Last change, seconds since 1970.
    pub modified: u64,
}

impl Store {
    /// Over a folder; `build` is this program.
    pub fn new(root: &Path, build: Build) -> Self {
        Self {
            root: root.to_owned(),
            build,
            records: Cache::default(),
            lists: Cache::default(),
            heads: Cache::default(),
            figures: Cache::default(),
        }
    }

    /// The served folder.
    pub fn root(&self) -> &Path {
        &self.root
    }

    /// This program.
    pub fn build(&self) -> &Build {
        &self.build
    }

    /// Names of the runs.
    ///
    /// # Errors
    /// The folder cannot be read.
    pub fn names(&self) -> Result<Vec<String>, Problem> {
        let failed = |e: io::Error| Problem::new(StatusCode::SERVICE_UNAVAILABLE, format!("{}: {e}", self.root.display()));
        let mut names = Vec::new();
        for entry in files::entries(&self.root).map_err(failed)? {
            let entry = entry.map_err(failed)?;
            // A name that is no UTF-8 could not be asked for.
            if let Ok(name) = entry.file_name().into_string()
                && is_name(&name)
                && entry.file_type().is_ok_and(|kind| kind.is_dir())
                && has_results(&entry.path())
            {
                names.push(name);
            }
        }
        names.sort();
        if has_results(&self.root) {
            names.insert(0, ITSELF.to_owned());
        }
        let folders = names.iter().filter_map(|name| self.path_of(name).ok()).collect();
        self.records.keep_folders(&folders);
        self.lists.keep_folders(&folders);
        self.heads.keep_folders(&folders);
        self.figures.keep_folders(&folders);
        Ok(names)
    }

    /// Forgets the files of a folder that are not in `names`.
    fn keep_files(&self, folder: &Path, names: &BTreeSet<String>) {
        self.records.keep_files(folder, names);
        self.lists.keep_files(folder, names);
        self.heads.keep_files(folder, names);
        self.figures.keep_files(folder, names);
    }

    /// Where a run is, or would be.
    ///
    /// # Errors
    /// It is no name of a folder.
    pub fn path_of(&self, name: &str) -> Result<PathBuf, Problem> {
        match name {
            ITSELF => Ok(self.root.clone()),
            _ if is_name(name) => Ok(self.root.join(name)),
            _ => Err(Problem::not_found(format!("{name:?} is no name of a run"))),
        }
    }

    /// Reads a run.
    ///
    /// # Errors
    /// There is none of that name, or its folder cannot be read.
    pub fn run(&self, name: &str) -> Result<Run, Problem> {
        let path = self.path_of(name)?;
        // Asked first: a worker that ends while the folder is read has left its result there.
        let locks = Locks::now();
        let entries = self.entries_of(name, &path)?;
        let mut run = Run::bare(name, &path);
        let (mut held, mut seen) = (BTreeMap::new(), BTreeSet::new());
        let mut newest: Option<((i64, i64), Arc<Record>)> = None;
        let mut singles: BTreeMap<String, (Option<Metadata>, Option<Metadata>)> = BTreeMap::new();
        // Files come and go while a sweep runs: one that is gone when it is looked at is no problem.
        for entry in entries.flatten() {
            let Some((name, meta)) = regular(&entry) else { continue };
            let changed = seconds(&meta);
            let of_interest = match name.rsplit_once('.') {
                _ if name == LIST => {
                    match self.listed(&path, &meta) {
                        Some(Ok(list)) => run.list = list,
                        Some(Err(problem)) => run.problems.push(problem),
                        None => {}
                    }
                    true
                }
                _ if name == REPORT => {
                    held.insert(meta.ino(), NET.to_owned());
                    singles.entry(NET.to_owned()).or_default().1 = Some(meta);
                    true
                }
                _ if name == REQUEST => {
                    run.is_asked = true;
                    false
                }
                _ if name.starts_with('.') => false,
                Some((_, "json")) => {
                    match self.record(&path, &name, &meta) {
                        Some(Ok(record)) => {
                            let age = (meta.mtime(), meta.mtime_nsec());
                            if newest.as_ref().is_none_or(|(known, _)| *known < age) {
                                newest = Some((age, Arc::clone(&record)));
                            }
                            run.records.push(record);
                        }
                        Some(Err(problem)) => run.problems.push(problem),
                        None => {}
                    }
                    true
                }
                Some((id, "claim")) => held.insert(meta.ino(), id.to_owned()).is_none(),
                Some((id, ENDING)) => {
                    held.insert(meta.ino(), id.to_owned());
                    run.samples.insert(id.to_owned());
                    singles.entry(id.to_owned()).or_default().0 = Some(meta);
                    true
                }
                _ => false,
            };
            if of_interest {
                run.modified = run.modified.max(changed);
            }
            seen.insert(name);
        }
        self.keep_files(&path, &seen);
        run.build = newest.map(|(_, record)| record.build.clone());
        run.records.sort_by(|a, b| {
            (a.cell.draw, a.place, &a.cell.case.name, &a.build, &a.id).cmp(&(b.cell.draw, b.place, &b.cell.case.name, &b.build, &b.id))
        });
        run.problems.sort();
        run.claimed = locks.held(&path, &held);
        let cells: BTreeSet<&str> = run.records.iter().map(|record| &*record.id).chain(run.list.iter().map(|(id, _)| &**id)).collect();
        singles.retain(|id, _| !cells.contains(&**id));
        run.singles = singles.into_iter().map(|(id, files)| (id.clone(), self.single(&path, &id, files))).collect();
        Ok(run)
    }

    /// The entries of a run's folder, which is no link unless the user named it.
    fn entries_of(&self, name: &str, path: &Path) -> Result<std::fs::ReadDir, Problem> {
        let no_run = || Problem::not_found(format!("there is no run {name:?}"));
        if name != ITSELF && !std::fs::symlink_metadata(path).is_ok_and(|meta| meta.is_dir()) {
            self.keep_files(path, &BTreeSet::new());
            return Err(no_run());
        }
        files::entries(path).map_err(|e| match e.kind() {
            io::ErrorKind::NotFound | io::ErrorKind::NotADirectory if name != ITSELF => no_run(),
            _ => Problem::new(StatusCode::SERVICE_UNAVAILABLE, format!("{}: {e}", path.display())),
        })
    }

    /// A result with its report.
    ///
    /// # Errors
    /// There is none, or it cannot be read.
    pub fn whole(&self, run: &str, id: &str) -> Result<Record, Problem> {
        let none = || Problem::not_found(format!("the run {run:?} has no result {id:?}"));
        if !is_name(id) {
            return Err(none());
        }
        let path = self.path_of(run)?.join(format!("{id}.json"));
        parse(&path).ok_or_else(none)?.map_err(|problem| Problem::new(StatusCode::UNPROCESSABLE_ENTITY, problem))
    }

    fn record(&self, folder: &Path, name: &str, meta: &Metadata) -> Option<Read> {
        self.records.get(folder, name, meta, |path| {
            Some(parse(path)?.map(|mut record| {
                if let Measured::Run { report, .. } = &mut record.measured {
                    *report = None;
                }
                Arc::new(record)
            }))
        })
    }

    fn listed(&self, folder: &Path, meta: &Metadata) -> Option<Listed> {
        self.lists.get(folder, LIST, meta, |path| {
            let text = match files::text(path, Links::Refuse, files::MOST_BYTES) {
                Ok(text) => text,
                Err(e) if e.kind() == io::ErrorKind::NotFound => return None,
                Err(e) => return Some(Err(format!("{LIST}: {e}"))),
            };
            let named = |cell: Cell| (self.build.id(&cell), cell);
            let cells = list::parse(LIST.as_ref(), &text).map_err(|e| e.to_string());
            Some(cells.map(|cells| Arc::new(cells.into_iter().map(named).collect())))
        })
    }

    /// A run that is no cell, by the files of its course and its report.
    fn single(&self, folder: &Path, id: &str, (samples, report): (Option<Metadata>, Option<Metadata>)) -> Single {
        let head = |meta: &Metadata| self.heads.get(folder, &format!("{id}.{ENDING}"), meta, |path| Some(samples::head(path)));
        let figures = |meta: &Metadata| self.figures.get(folder, REPORT, meta, |path| Some(Figures::read(path)));
        Single {
            head: samples.as_ref().and_then(head).flatten(),
            promised: report.is_some(),
            figures: report.as_ref().and_then(figures).flatten(),
        }
    }
}

impl Run {
    /// One in whose folder there is nothing.
    pub fn bare(name: &str, path: &Path) -> Self {
        Self {
            name: name.to_owned(),
            path: path.to_owned(),
            records: Vec::new(),
            build: None,
            list: Arc::default(),
            claimed: BTreeSet::new(),
            samples: BTreeSet::new(),
            singles: BTreeMap::new(),
            is_asked: false,
            problems: Vec::new(),
            modified: 0,
        }
    }

    /// Builds that made results here, by name.
    pub fn builds(&self) -> Vec<&str> {
        self.records.iter().map(|record| &*record.build).collect::<BTreeSet<_>>().into_iter().collect()
    }

    /// The results of the build that a request names.
    ///
    /// # Errors
    /// There are none.
    pub fn of_asked_build(&self, build: Option<&str>) -> Result<Vec<&Record>, Problem> {
        match build {
            Some(build) if !self.builds().contains(&build) => Err(Problem::not_found(format!(
                "{}: no results of the build {build:?}; it has those of: {}",
                self.name,
                self.builds().join(", ")
            ))),
            _ => Ok(self.of_build(build)),
        }
    }

    /// The results of one build; of the newest if none is named.
    pub fn of_build(&self, build: Option<&str>) -> Vec<&Record> {
        let build = build.or(self.build.as_deref());
        self.records.iter().map(|record| &**record).filter(|record| build == Some(&record.build)).collect()
    }
}

/// What was asked for when a run was started; none where there is no such file.
///
/// # Errors
/// It is not as the page writes it: another program may have changed it.
pub fn request(folder: &Path) -> Result<Option<Request>, Problem> {
    let path = folder.join(REQUEST);
    let unread = |text: String| Problem::new(StatusCode::UNPROCESSABLE_ENTITY, format!("{}: {text}", path.display()));
    match files::read(&path, Links::Refuse, REQUEST_MOST) {
        Ok(bytes) => Request::parse(&bytes).map(Some).map_err(|problem| unread(problem.text)),
        Err(e) if e.kind() == io::ErrorKind::NotFound => Ok(None),
        Err(e) => Err(unread(e.to_string())),
    }
}

/// The last lines of what the workers of a started run said; none where there is no log.
pub fn log(folder: &Path) -> Vec<String> {
    let text = files::tail(&folder.join(LOG), LOG_BYTES).unwrap_or_default();
    let text = String::from_utf8_lossy(&text);
    let lines: Vec<&str> = text.lines().collect();
    lines[lines.len().saturating_sub(LOG_LINES)..].iter().map(|line| (*line).to_owned()).collect()
}

/// One folder below the served one, and not a hidden one.
pub fn is_name(name: &str) -> bool {
    !name.is_empty() && name.len() <= 255 && !name.starts_with('.') && name != ITSELF && !name.contains(['/', '\0'])
}

/// Name and state of a regular file; links are none.
fn regular(entry: &DirEntry) -> Option<(String, Metadata)> {
    let name = entry.file_name().into_string().ok()?;
    // Of the link itself, where it is one.
    let meta = entry.metadata().ok()?;
    meta.is_file().then_some((name, meta))
}

/// Whether anything in a folder is ours; other files may lie beside.
fn has_results(path: &Path) -> bool {
    let Ok(mut entries) = std::fs::read_dir(path) else { return false };
    entries.any(|entry| {
        let Ok(entry) = entry else { return false };
        let name = entry.file_name();
        let Some(name) = name.to_str() else { return false };
        match name.rsplit_once('.') {
            _ if name == LIST || name == REPORT => true,
            Some((id, "json")) => is_id(id),
            Some((id, ENDING)) => !id.is_empty(),
            _ => false,
        }
    })
}

/// As [`Build::id`] makes them.
fn is_id(text: &str) -> bool {
    text.len() == 32 && text.bytes().all(|b| b.is_ascii_hexdigit())
}

/// None: the file is gone.
fn parse(path: &Path) -> Option<Result<Record, String>> {
    let name = path.file_name().unwrap_or_default().to_string_lossy().into_owned();
    let text = match files::read(path, Links::Refuse, files::MOST_BYTES) {
        Ok(text) => text,
        Err(e) if e.kind() == io::ErrorKind::NotFound => return None,
        Err(e) => return Some(Err(format!("{name}: {e}"))),
    };
    let id = path.file_stem().unwrap_or_default().to_string_lossy();
    Some(Record::named(&text, &id).map_err(|e| format!("{name}: {e}; remove it, and its cell is run again")))
}

fn seconds(meta: &Metadata) -> u64 {
    meta.modified().ok().and_then(|at| at.duration_since(UNIX_EPOCH).ok()).map_or(0, |age| age.as_secs())
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;
    use crate::matrix::{Outcome, fixture};
    use crate::scenario::ScenarioFile;
    use crate::sweep::Folder;
    use crate::sweep::folder::Taken;

    /// The cells of two delays and two losses at 100 Mbit/s.
    pub(in crate::page) fn cells() -> Vec<Cell> {
        let text = "name = \"small\"\n[link]\nrate = \"100mbit\"\n[run]\nseeds = [1]\n[grid]\nloss = [\"0%\", \"2%\"]\ndelay = [\"10ms\", \"30ms\"]\n";
        toml::from_str::<ScenarioFile>(text).unwrap().cases(true).unwrap().into_iter().map(Cell::from).collect()
    }

    /// A result as if it had been run.
    pub(in crate::page) fn record(place: usize, cell: &Cell, mbit: f64) -> Record {
        let build = Build::named("test");
        let violations = if mbit < 50.0 { vec!["share 0.4 below 0.5".to_owned()] } else { Vec::new() };
        let outcome = Outcome { violations, ..fixture(cell.case.scenario.seed, mbit) };
        let measured = Measured::Run { outcome, second_mbit: None, report: None };
        Record { id: build.id(cell), build: "test".to_owned(), place, cell: cell.clone(), measured }
    }

    pub(in crate::page) fn keep(folder: &Path, record: &Record) {
        let Taken::Mine(claim) = Folder::open(folder).unwrap().take(&record.id, false).unwrap() else { panic!("claimed") };
        claim.keep(record).unwrap();
    }

    fn store() -> (tempfile::TempDir, Store) {
        let dir = tempfile::tempdir().unwrap();
        let store = Store::new(dir.path(), Build::named("test"));
        (dir, store)
    }

    #[test]
    fn folders_with_results_are_runs_and_others_are_not() {
        let (dir, store) = store();
        keep(&dir.path().join("one"), &record(0, &cells()[0], 90.0));
        std::fs::create_dir(dir.path().join("empty")).unwrap();
        std::fs::create_dir(dir.path().join("node_modules")).unwrap();
        std::fs::write(dir.path().join("node_modules/package.json"), "{}").unwrap();
        assert_eq!(store.names().unwrap(), ["one"]);
        keep(dir.path(), &record(0, &cells()[0], 90.0));
        assert_eq!(store.names().unwrap(), ["-", "one"]);
        for name in ["..", ".", "", "one/../..", ".hidden", "a\0b"] {
            assert_eq!(store.run(name).unwrap_err().status, StatusCode::NOT_FOUND, "{name}");
        }
        std::fs::remove_dir_all(dir.path()).unwrap();
        assert_eq!(store.run("one").unwrap_err().status, StatusCode::NOT_FOUND);
        assert_eq!(store.names().unwrap_err().status, StatusCode::SERVICE_UNAVAILABLE);
    }

    #[test]
    fn a_broken_result_is_told_and_leaves_the_others() {
        let (dir, store) = store();
        let path = dir.path().join("one");
        let records: Vec<Record> = cells().iter().enumerate().map(|(i, cell)| record(i, cell, 90.0)).collect();
        records.iter().for_each(|record| keep(&path, record));
        std::fs::write(path.join(format!("{}.json", records[1].id)), "{\"id\": ").unwrap();
        let changed = Record { place: 0, cell: cells()[0].clone(), ..records[2].clone() };
        std::fs::write(path.join(format!("{}.json", records[2].id)), serde_json::to_vec(&changed).unwrap()).unwrap();
        let run = store.run("one").unwrap();
        assert_eq!(run.records.iter().map(|record| record.place).collect::<Vec<_>>(), [0, 3]);
        let problems = run.problems.join("\n");
        assert!(problems.contains("not a result of a cell") && problems.contains("not the hash"), "{problems}");
        assert_eq!(store.whole("one", &records[1].id).unwrap_err().status, StatusCode::UNPROCESSABLE_ENTITY);
        assert_eq!(store.whole("one", "nothing").unwrap_err().status, StatusCode::NOT_FOUND);
        // Mended, it is there at once: what was read is kept by the stamp of its file.
        std::fs::remove_file(path.join(format!("{}.json", records[1].id))).unwrap();
        keep(&path, &records[1]);
        assert_eq!(store.run("one").unwrap().records.len(), 3);
    }

    #[test]
    fn only_the_file_that_the_page_makes_is_the_report_of_a_run_on_namespaces() {
        let (dir, store) = store();
        let path = dir.path().join("one");
        keep(&path, &record(0, &cells()[0], 90.0));
        std::fs::write(path.join("lint.report"), "of another program").unwrap();
        assert!(store.run("one").unwrap().singles.is_empty());
        std::fs::write(path.join("lint.samples"), "").unwrap();
        let run = store.run("one").unwrap();
        assert_eq!(run.singles.keys().collect::<Vec<_>>(), ["lint"]);
        assert!(!run.singles["lint"].promised, "it has samples, and no report of ours");
        std::fs::write(path.join("namespaces.report"), "").unwrap();
        assert!(store.run("one").unwrap().singles["namespaces"].promised);
    }

    #[test]
    fn a_cell_that_a_worker_has_in_hand_is_seen() {
        let (dir, store) = store();
        let folder = Folder::open(&dir.path().join("one")).unwrap();
        let record = record(0, &cells()[0], 90.0);
        let claim = folder.take(&record.id, false).unwrap();
        if std::fs::read_to_string("/proc/locks").is_ok_and(|text| text.contains("FLOCK")) {
            assert_eq!(store.run("one").unwrap().claimed, BTreeSet::from([record.id.clone()]));
        } else {
            eprintln!("*** SKIPPED: /proc/locks shows no locks here");
        }
        drop(claim);
        // What a killed worker left is not run by anybody.
        assert!(store.run("one").unwrap().claimed.is_empty());
    }
}

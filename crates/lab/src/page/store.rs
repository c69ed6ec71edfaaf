//! Folders of results, read as they are: a file that is broken is told and leaves the others; a folder that vanishes is no longer there.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::fs::Metadata;
use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::UNIX_EPOCH;

use axum::http::StatusCode;

use super::answer::Problem;
use crate::sweep::samples::ENDING;
use crate::sweep::{Build, Cell, Measured, Record, list};

/// Name of the served folder itself, where results lie in it and not below it.
pub const ITSELF: &str = "-";
/// The list of the cells of a run that the page started; hidden, so that `merge` does not take it for a result.
pub const LIST: &str = ".cells.json";
/// What such a run says on standard error.
pub const LOG: &str = ".log";
/// Longest file that is read at once.
const MOST_BYTES: u64 = 64 << 20;
/// Lines of a log that are shown.
const LOG_LINES: usize = 20;

/// Folders of results below one folder.
#[derive(Debug)]
pub struct Store {
    root: PathBuf,
    build: Build,
    cache: Mutex<HashMap<PathBuf, (Stamp, Read)>>,
    lists: Mutex<HashMap<PathBuf, (Stamp, Listed)>>,
}

/// Changes with what a file holds: results are renamed into place and have a new inode.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Stamp(u64, u64, i64, i64);

impl Stamp {
    fn of(meta: &Metadata) -> Self {
        Self(meta.ino(), meta.len(), meta.mtime(), meta.mtime_nsec())
    }
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
    /// Results in the order of their list, without their reports.
    pub records: Vec<Arc<Record>>,
    /// Cells of its list, where it has one, with their hashes.
    pub list: Arc<Vec<(String, Cell)>>,
    /// Hashes of cells that a worker has in hand.
    pub claimed: BTreeSet<String>,
    /// Names of courses, without their ending.
    pub samples: BTreeSet<String>,
    /// What cannot be read, in words.
    pub problems: Vec<String>,
    /// Last change, seconds since 1970.
    pub modified: u64,
}

impl Store {
    /// Over a folder; `build` is this program.
    pub fn new(root: &Path, build: Build) -> Self {
        Self { root: root.to_owned(), build, cache: Mutex::default(), lists: Mutex::default() }
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
        for entry in std::fs::read_dir(&self.root).map_err(failed)? {
            let entry = entry.map_err(failed)?;
            // A name that is no UTF-8 could not be asked for.
            if let Ok(name) = entry.file_name().into_string()
                && is_name(&name)
                && has_results(&entry.path())
            {
                names.push(name);
            }
        }
        names.sort();
        if has_results(&self.root) {
            names.insert(0, ITSELF.to_owned());
        }
        Ok(names)
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
        let entries = std::fs::read_dir(&path).map_err(|e| match e.kind() {
            io::ErrorKind::NotFound | io::ErrorKind::NotADirectory => Problem::not_found(format!("there is no run {name:?}")),
            _ => Problem::new(StatusCode::SERVICE_UNAVAILABLE, format!("{}: {e}", path.display())),
        })?;
        let mut run = Run {
            name: name.to_owned(),
            path: path.clone(),
            records: Vec::new(),
            list: Arc::default(),
            claimed: BTreeSet::new(),
            samples: BTreeSet::new(),
            problems: Vec::new(),
            modified: 0,
        };
        let (mut claims, mut seen) = (BTreeMap::new(), BTreeSet::new());
        // Files come and go while a sweep runs: one that is gone when it is looked at is no problem.
        for entry in entries.flatten() {
            let (file, Ok(name)) = (entry.path(), entry.file_name().into_string()) else { continue };
            let Ok(meta) = std::fs::metadata(&file) else { continue };
            if !meta.is_file() {
                continue;
            }
            let of_interest = match name.rsplit_once('.') {
                _ if name == LIST => {
                    match self.listed(&file, &meta) {
                        Ok(list) => run.list = list,
                        Err(problem) => run.problems.push(problem),
                    }
                    true
                }
                _ if name.starts_with('.') => false,
                Some((_, "json")) => {
                    seen.insert(file.clone());
                    match self.record(&file, &meta) {
                        Some(Ok(record)) => run.records.push(record),
                        Some(Err(problem)) => run.problems.push(problem),
                        None => {}
                    }
                    true
                }
                Some((id, "claim")) => claims.insert(meta.ino(), id.to_owned()).is_none(),
                Some((id, ending)) if ending == ENDING => run.samples.insert(id.to_owned()),
                _ => false,
            };
            if of_interest {
                run.modified = run.modified.max(seconds(&meta));
            }
        }
        let mut cache = self.cache.lock().unwrap_or_else(PoisonError::into_inner);
        cache.retain(|file, _| file.parent() != Some(&path) || seen.contains(file));
        drop(cache);
        run.records.sort_by(|a, b| (a.cell.draw, a.place, &a.cell.case.name, &a.id).cmp(&(b.cell.draw, b.place, &b.cell.case.name, &b.id)));
        run.problems.sort();
        run.claimed = locked(&claims);
        Ok(run)
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
        match std::fs::metadata(&path) {
            Ok(meta) if meta.is_file() => match parse(&path, &meta) {
                Some(read) => read.map_err(|problem| Problem::new(StatusCode::UNPROCESSABLE_ENTITY, problem)),
                None => Err(none()),
            },
            _ => Err(none()),
        }
    }

    fn record(&self, path: &Path, meta: &Metadata) -> Option<Read> {
        let stamp = Stamp::of(meta);
        if let Some((known, read)) = self.cache.lock().unwrap_or_else(PoisonError::into_inner).get(path)
            && *known == stamp
        {
            return Some(read.clone());
        }
        let read = parse(path, meta)?.map(|mut record| {
            if let Measured::Run { report, .. } = &mut record.measured {
                *report = None;
            }
            Arc::new(record)
        });
        self.cache.lock().unwrap_or_else(PoisonError::into_inner).insert(path.to_owned(), (stamp, read.clone()));
        Some(read)
    }

    fn listed(&self, path: &Path, meta: &Metadata) -> Listed {
        let stamp = Stamp::of(meta);
        if let Some((known, listed)) = self.lists.lock().unwrap_or_else(PoisonError::into_inner).get(path)
            && *known == stamp
        {
            return listed.clone();
        }
        let named = |cell: Cell| (self.build.id(&cell), cell);
        let listed = list::read(path, false).map(|cells| Arc::new(cells.into_iter().map(named).collect())).map_err(|e| e.to_string());
        let mut lists = self.lists.lock().unwrap_or_else(PoisonError::into_inner);
        lists.retain(|path, _| path.exists());
        lists.insert(path.to_owned(), (stamp, listed.clone()));
        listed
    }
}

impl Run {
    /// The last lines of what the workers of a started run said.
    pub fn log(&self) -> Vec<String> {
        let text = std::fs::read(self.path.join(LOG)).unwrap_or_default();
        let text = String::from_utf8_lossy(&text[text.len().saturating_sub(64 << 10)..]).into_owned();
        let lines: Vec<&str> = text.lines().collect();
        lines[lines.len().saturating_sub(LOG_LINES)..].iter().map(|line| (*line).to_owned()).collect()
    }
}

/// One folder below the served one, and not a hidden one.
pub fn is_name(name: &str) -> bool {
    !name.is_empty() && name.len() <= 255 && !name.starts_with('.') && name != ITSELF && !name.contains(['/', '\0'])
}

/// Whether anything in a folder is ours; other files may lie beside.
fn has_results(path: &Path) -> bool {
    let Ok(mut entries) = std::fs::read_dir(path) else { return false };
    entries.any(|entry| {
        let Ok(entry) = entry else { return false };
        let name = entry.file_name();
        let Some(name) = name.to_str() else { return false };
        match name.rsplit_once('.') {
            _ if name == LIST => true,
            Some((id, "json")) => is_id(id),
            Some((id, ending)) => ending == ENDING && !id.is_empty(),
            None => false,
        }
    })
}

/// As [`Build::id`] makes them.
fn is_id(text: &str) -> bool {
    text.len() == 32 && text.bytes().all(|b| b.is_ascii_hexdigit())
}

/// None: the file is gone.
fn parse(path: &Path, meta: &Metadata) -> Option<Result<Record, String>> {
    let name = path.file_name().unwrap_or_default().to_string_lossy().into_owned();
    if meta.len() > MOST_BYTES {
        return Some(Err(format!("{name}: {} bytes are more than a result has", meta.len())));
    }
    let text = match std::fs::read(path) {
        Ok(text) => text,
        Err(e) if e.kind() == io::ErrorKind::NotFound => return None,
        Err(e) => return Some(Err(format!("{name}: {e}"))),
    };
    let record: Record = match serde_json::from_slice(&text) {
        Ok(record) => record,
        Err(e) => return Some(Err(format!("{name}: not a result of a cell: {e}; remove it, and its cell is run again"))),
    };
    if path.file_stem().is_none_or(|stem| stem != &*record.id) {
        return Some(Err(format!("{name}: it holds the result of {}", record.id)));
    }
    if Build::named(&record.build).id(&record.cell) != record.id {
        return Some(Err(format!("{name}: its name is not the hash of the cell that stands in it, one of them was changed")));
    }
    Some(Ok(record))
}

fn seconds(meta: &Metadata) -> u64 {
    meta.modified().ok().and_then(|at| at.duration_since(UNIX_EPOCH).ok()).map_or(0, |age| age.as_secs())
}

/// Those of the claims (by inode) that a process on this machine holds: the kernel lists its locks, and nothing is locked to find out.
fn locked(claims: &BTreeMap<u64, String>) -> BTreeSet<String> {
    if claims.is_empty() {
        return BTreeSet::new();
    }
    let text = std::fs::read_to_string("/proc/locks").unwrap_or_default();
    // proc_locks(5): "1: FLOCK  ADVISORY  WRITE 10801 08:06:3080 0 EOF".
    let inode = |line: &str| {
        let mut words = line.split_whitespace().skip(1);
        (words.next()? == "FLOCK").then_some(())?;
        words.nth(3)?.rsplit(':').next()?.parse::<u64>().ok()
    };
    text.lines().filter_map(inode).filter_map(|inode| claims.get(&inode).cloned()).collect()
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

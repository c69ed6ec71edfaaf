//! Results from many places as one list: folders of results, and files with one record per line.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use super::cell::{Build, Cell, Record, RecordError};
use crate::files::{self, Links};
use crate::report::count;

/// Results that do not go together, or cannot be read.
#[derive(Debug, thiserror::Error)]
pub enum GatherError {
    /// A file or folder cannot be read.
    #[error("{path}: {source}")]
    Read {
        /// Which.
        path: PathBuf,
        /// Why.
        source: std::io::Error,
    },
    /// A line is no record.
    #[error("{path}, line {line}: {source}")]
    Line {
        /// Which file.
        path: PathBuf,
        /// Counted from 1.
        line: usize,
        /// What is wrong.
        source: RecordError,
    },
    /// One cell, one program, two results.
    #[error("{name} ({id}) has two different results; the second is in {path}: runs of one program are deterministic, one was changed")]
    Contradiction {
        /// Of the cell.
        name: String,
        /// Its hash.
        id: String,
        /// Where the second one is.
        path: PathBuf,
    },
    /// Results of several programs.
    #[error("results of different programs do not make one table: {}; --build NAME takes those of one", .0.join(", "))]
    Builds(Vec<String>),
    /// No results at all.
    #[error("no results in {0}")]
    Nothing(String),
}

/// Reads folders (their `.json` files) and files with one record per line. Each cell once, in the order of the list that it came from.
pub fn gather(paths: &[PathBuf], build: Option<&str>) -> Result<Vec<Record>, GatherError> {
    let mut records: BTreeMap<String, Record> = BTreeMap::new();
    for path in paths {
        for file in results_in(path)? {
            // A file that was named may be a pipe; what lies in a folder is not waited for.
            let text = if *path == file { std::fs::read_to_string(&file) } else { files::text(&file, Links::Follow, files::MOST_BYTES) };
            let text = text.map_err(|source| GatherError::Read { path: file.clone(), source })?;
            for (line, text) in text.lines().zip(1..).map(|(text, line)| (line, text)) {
                if !text.trim().is_empty() {
                    add(&mut records, &file, line, text, build)?;
                }
            }
        }
    }
    let mut builds: BTreeMap<&str, usize> = BTreeMap::new();
    for record in records.values() {
        *builds.entry(&record.build).or_default() += 1;
    }
    if builds.len() > 1 {
        return Err(GatherError::Builds(builds.iter().map(|(build, n)| format!("{build} ({})", count(*n, "result"))).collect()));
    }
    if records.is_empty() {
        let names: Vec<String> = paths.iter().map(|path| path.display().to_string()).collect();
        return Err(GatherError::Nothing(names.join(", ")));
    }
    let mut records: Vec<Record> = records.into_values().collect();
    records.sort_by(|a, b| (a.cell.draw, a.place, &a.cell.case.name).cmp(&(b.cell.draw, b.place, &b.cell.case.name)));
    Ok(records)
}

fn results_in(path: &Path) -> Result<Vec<PathBuf>, GatherError> {
    let failed = |source| GatherError::Read { path: path.to_owned(), source };
    if !path.is_dir() {
        return Ok(vec![path.to_owned()]);
    }
    let mut files = Vec::new();
    for entry in std::fs::read_dir(path).map_err(failed)? {
        let file = entry.map_err(failed)?.path();
        let is_hidden = file.file_name().is_some_and(|name| name.as_encoded_bytes().starts_with(b"."));
        if file.extension().is_some_and(|end| end == "json") && !is_hidden {
            files.push(file);
        }
    }
    files.sort();
    Ok(files)
}

fn add(records: &mut BTreeMap<String, Record>, path: &Path, line: usize, text: &str, build: Option<&str>) -> Result<(), GatherError> {
    let wrong = |source| GatherError::Line { path: path.to_owned(), line, source };
    let record = Record::from_slice(text.as_bytes()).map_err(wrong)?;
    if build.is_some_and(|build| build != record.build) {
        return Ok(());
    }
    let record = record.checked().map_err(wrong)?;
    if let Some(before) = records.get(&record.id) {
        let figures = |record: &Record| serde_json::to_string(&record.measured).unwrap_or_default();
        if figures(before) != figures(&record) {
            return Err(GatherError::Contradiction { name: record.cell.case.name, id: record.id, path: path.to_owned() });
        }
        return Ok(());
    }
    records.insert(record.id.clone(), record);
    Ok(())
}

/// Numbers of the cells of `list` that have no result here, as arrays of schedulers take them: `3,7-12`.
pub fn missing(list: &[Cell], records: &[Record]) -> Vec<usize> {
    let Some(build) = records.first().map(|record| Build::named(&record.build)) else { return (0..list.len()).collect() };
    let there: std::collections::BTreeSet<&str> = records.iter().map(|record| &*record.id).collect();
    (0..list.len()).filter(|&i| !there.contains(&*build.id(&list[i]))).collect()
}

/// `3,7-12`.
pub fn ranges(numbers: &[usize]) -> String {
    let mut parts: Vec<(usize, usize)> = Vec::new();
    for &number in numbers {
        match parts.last_mut() {
            Some((_, last)) if *last + 1 == number => *last = number,
            _ => parts.push((number, number)),
        }
    }
    let text = |&(first, last): &(usize, usize)| if first == last { first.to_string() } else { format!("{first}-{last}") };
    parts.iter().map(text).collect::<Vec<_>>().join(",")
}

#[cfg(test)]
mod tests {
    use super::super::cell::Measured;
    use super::*;
    use crate::scenario::ScenarioFile;

    fn records(build: &str) -> Vec<Record> {
        let text = "name = \"small\"\n[link]\nrate = \"5mbit\"\n[grid]\nloss = [\"0%\", \"1%\", \"2%\", \"3%\"]\n";
        let cases = toml::from_str::<ScenarioFile>(text).unwrap().cases(true).unwrap();
        let build = Build::named(build);
        let record = |(place, case)| {
            let cell = Cell::from(case);
            let measured = Measured::NotRun { reason: "a test".to_owned() };
            Record { id: build.id(&cell), build: build.name().to_owned(), place, cell, measured }
        };
        cases.into_iter().enumerate().map(record).collect()
    }

    fn write(path: &Path, records: &[Record]) {
        let lines: Vec<String> = records.iter().map(|record| serde_json::to_string(record).unwrap()).collect();
        std::fs::write(path, lines.join("\n")).unwrap();
    }

    #[test]
    fn folders_and_files_of_lines_make_one_list_with_each_cell_once() {
        let dir = tempfile::tempdir().unwrap();
        let all = records("one");
        let folder = dir.path().join("folder");
        std::fs::create_dir(&folder).unwrap();
        for record in &all[..2] {
            write(&folder.join(format!("{}.json", record.id)), std::slice::from_ref(record));
        }
        // Halves and claims are no results.
        std::fs::write(folder.join(".half.json"), "{").unwrap();
        std::fs::write(folder.join("x.claim"), "").unwrap();
        files::tests::fifo(&folder.join("fifo.json"));
        assert!(gather(std::slice::from_ref(&folder), None).unwrap_err().to_string().contains("fifo.json: not a regular file"));
        std::fs::remove_file(folder.join("fifo.json")).unwrap();
        let lines = dir.path().join("more.jsonl");
        write(&lines, &all[1..3]);
        let gathered = gather(&[folder, lines], None).unwrap();
        assert_eq!(gathered.iter().map(|record| record.place).collect::<Vec<_>>(), [0, 1, 2]);
        let list: Vec<Cell> = all.iter().map(|record| record.cell.clone()).collect();
        assert_eq!(missing(&list, &gathered), [3]);
        assert_eq!(ranges(&[0, 1, 2, 5, 7, 8]), "0-2,5,7-8");
    }

    #[test]
    fn what_does_not_go_together_is_refused() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("lines");
        let text = |paths: &[PathBuf], build| gather(paths, build).map(|_| ()).map_err(|e| e.to_string());
        let (one, two) = (records("one"), records("two"));
        write(&path, &[one[0].clone(), two[1].clone()]);
        assert!(text(std::slice::from_ref(&path), None).unwrap_err().contains("one (1 result), two (1 result)"));
        assert_eq!(text(std::slice::from_ref(&path), Some("two")), Ok(()));
        let changed = Record { measured: Measured::NotRun { reason: "another".to_owned() }, ..one[0].clone() };
        write(&path, &[one[0].clone(), changed]);
        assert!(text(std::slice::from_ref(&path), None).unwrap_err().contains("two different results"));
        let mut other = one[0].clone();
        other.cell.case.scenario.seed = 99;
        write(&path, &[other]);
        assert!(text(std::slice::from_ref(&path), None).unwrap_err().contains("line 1"));
        std::fs::write(&path, "\nx\n").unwrap();
        assert!(text(std::slice::from_ref(&path), None).unwrap_err().contains("line 2"));
        std::fs::write(&path, "").unwrap();
        assert!(text(std::slice::from_ref(&path), None).unwrap_err().contains("no results"));
    }
}

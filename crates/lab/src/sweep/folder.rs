//! A folder of results: a file per cell, whole or not there at all; a claim for each cell that is being run.
//!
//! `ID.json` is a [`Record`]. It is written under another name, brought to the disk (`fsync`) and renamed: a full disk, a killed worker or a
//! power cut leaves the old state or the new one. Workers that share a folder hold a lock on `ID.claim` while they run a cell. The kernel
//! lets go of the lock when its process ends, however it ends. Others may write there as well. A FIFO or a device in place of a result is
//! not read. A link in place of a claim is not followed. What lies under a temporary name is taken away (`files`).

use std::fs::{File, TryLockError};
use std::io::{self, Write};
use std::path::{Path, PathBuf};

use super::cell::Record;
use crate::files::{self, Links};

/// A folder that does not do what it has to.
#[derive(Debug, thiserror::Error)]
pub enum FolderError {
    /// It cannot be made or written.
    #[error("{path} cannot be written: {source}")]
    Write {
        /// Which file or folder.
        path: PathBuf,
        /// Why.
        source: io::Error,
    },
    /// A result is there and cannot be read.
    #[error("{path} cannot be read: {source}; remove it, and its cell is run again")]
    Read {
        /// Which file.
        path: PathBuf,
        /// Why.
        source: io::Error,
    },
    /// Its file system has no locks.
    #[error("{path} cannot be locked: {source}; give each worker a --results folder of its own and merge them")]
    Lock {
        /// Which file.
        path: PathBuf,
        /// Why.
        source: io::Error,
    },
}

/// Results of cells.
#[derive(Debug)]
pub struct Folder {
    path: PathBuf,
}

/// Whose turn it is.
#[derive(Debug)]
pub enum Taken {
    /// A machine has run it: this came of it.
    Done(Box<Record>),
    /// The one that asked runs it.
    Mine(Claim),
    /// Another worker is at it.
    Busy,
}

/// The right to run a cell; it ends with the process.
#[derive(Debug)]
pub struct Claim {
    /// Holds the lock.
    _lock: File,
    claim: PathBuf,
    part: PathBuf,
    result: PathBuf,
    folder: PathBuf,
}

impl Folder {
    /// Opens or makes it; says now, and not after an hour of runs, that nothing can be written there.
    pub fn open(path: &Path) -> Result<Self, FolderError> {
        let failed = |path: &Path| {
            let path = path.to_owned();
            move |source| FolderError::Write { path, source }
        };
        std::fs::create_dir_all(path).map_err(|e| match e.kind() {
            io::ErrorKind::AlreadyExists | io::ErrorKind::NotADirectory => failed(path)(files::not_a_folder()),
            _ => failed(path)(e),
        })?;
        let trial = path.join(format!(".trial.{}", std::process::id()));
        files::anew(&trial).and_then(|mut file| file.write_all(b"x")).map_err(failed(path))?;
        std::fs::remove_file(&trial).map_err(failed(path))?;
        Ok(Self { path: path.to_owned() })
    }

    /// Where it is.
    pub fn path(&self) -> &Path {
        &self.path
    }

    fn result_of(&self, id: &str) -> PathBuf {
        self.path.join(format!("{id}.json"))
    }

    /// Whether this cell has been run.
    pub fn has(&self, id: &str) -> bool {
        self.result_of(id).exists()
    }

    /// The result of a cell, if it has been run.
    pub fn read(&self, id: &str) -> Result<Option<Record>, FolderError> {
        let path = self.result_of(id);
        let text = match files::read(&path, Links::Follow, files::MOST_BYTES) {
            Ok(text) => text,
            Err(e) if e.kind() == io::ErrorKind::NotFound => return Ok(None),
            Err(source) => return Err(FolderError::Read { path, source }),
        };
        match Record::named(&text, id) {
            Ok(record) => Ok(Some(record)),
            Err(e) => Err(FolderError::Read { path, source: io::Error::new(io::ErrorKind::InvalidData, e) }),
        }
    }

    /// Asks for a cell; with `wait`, until the worker that runs it has ended.
    pub fn take(&self, id: &str, wait: bool) -> Result<Taken, FolderError> {
        let claim = self.path.join(format!("{id}.claim"));
        if let Some(record) = self.read(id)? {
            // Of a worker that was killed between its result and its claim.
            let _ = std::fs::remove_file(&claim);
            return Ok(Taken::Done(Box::new(record)));
        }
        let file = files::append(&claim).map_err(|source| FolderError::Write { path: claim.clone(), source })?;
        let locked = if wait { file.lock().map_err(TryLockError::Error) } else { file.try_lock() };
        match locked {
            Ok(()) => {}
            Err(TryLockError::WouldBlock) => return Ok(Taken::Busy),
            Err(TryLockError::Error(source)) => return Err(FolderError::Lock { path: claim, source }),
        }
        // The worker that held the lock before may have finished.
        if let Some(record) = self.read(id)? {
            let _ = std::fs::remove_file(&claim);
            return Ok(Taken::Done(Box::new(record)));
        }
        let part = self.path.join(format!(".{id}.part"));
        Ok(Taken::Mine(Claim { _lock: file, claim, part, result: self.result_of(id), folder: self.path.clone() }))
    }
}

impl Claim {
    /// Keeps what came of the cell. If that fails, nothing is kept, and the cell can be claimed again.
    pub fn keep(self, record: &Record) -> Result<(), FolderError> {
        self.write(record).map_err(|source| {
            // The space is wanted; nothing depends on it.
            let _ = std::fs::remove_file(&self.part);
            FolderError::Write { path: self.result.clone(), source }
        })?;
        // Only now: a claim without a result has to stay, or two workers could each lock a file of that name.
        let _ = std::fs::remove_file(&self.claim);
        Ok(())
    }

    fn write(&self, record: &Record) -> io::Result<()> {
        let mut text = serde_json::to_vec(record)?;
        text.push(b'\n');
        write_whole(&self.part, &self.result, &self.folder, &text)
    }
}

/// Writes a file whole or not at all, by way of `part` in the same folder.
fn write_whole(part: &Path, to: &Path, folder: &Path, bytes: &[u8]) -> io::Result<()> {
    let mut file = files::anew(part)?;
    file.write_all(bytes)?;
    file.sync_all()?;
    std::fs::rename(part, to)?;
    // The name is on the disk when its folder is.
    File::open(folder)?.sync_all()
}

/// Writes a file that the user named, whole or not at all. A link, a device or a FIFO is not replaced: it is written into, as `/dev/stdout`
/// wants it.
pub fn write_named(path: &Path, bytes: &[u8]) -> Result<(), FolderError> {
    if std::fs::symlink_metadata(path).is_ok_and(|meta| !meta.is_file()) {
        return std::fs::write(path, bytes).map_err(|source| FolderError::Write { path: path.to_owned(), source });
    }
    replace(path, bytes)
}

/// Writes a file of a folder, whole or not at all. What lies there under its name is replaced: a link is not followed, a FIFO not waited for.
pub fn replace(path: &Path, bytes: &[u8]) -> Result<(), FolderError> {
    let failed = |source| FolderError::Write { path: path.to_owned(), source };
    let name = path.file_name().ok_or_else(|| failed(io::Error::new(io::ErrorKind::InvalidInput, "not the name of a file")))?;
    let folder = path.parent().filter(|parent| !parent.as_os_str().is_empty()).unwrap_or(Path::new("."));
    let part = folder.join(format!(".{}.{}.part", name.to_string_lossy(), std::process::id()));
    write_whole(&part, path, folder, bytes).map_err(|source| {
        let _ = std::fs::remove_file(&part);
        failed(source)
    })
}

#[cfg(test)]
mod tests {
    use super::super::cell::{Build, Cell, Measured};
    use super::*;
    use crate::scenario::ScenarioFile;

    fn record(build: &Build) -> Record {
        let file: ScenarioFile = toml::from_str("name = \"small\"\n[link]\nrate = \"5mbit\"\n").unwrap();
        let cell = Cell::from(file.cases(true).unwrap().remove(0));
        let measured = Measured::NotRun { reason: "a test".to_owned() };
        Record { id: build.id(&cell), build: build.name().to_owned(), place: 0, cell, measured }
    }

    #[test]
    fn a_cell_is_run_by_one_worker_and_by_the_next_if_that_one_ends_without_a_result() {
        let dir = tempfile::tempdir().unwrap();
        let (one, two) = (Folder::open(dir.path()).unwrap(), Folder::open(dir.path()).unwrap());
        let record = record(&Build::named("test"));
        let Taken::Mine(claim) = one.take(&record.id, false).unwrap() else { panic!("nobody has it") };
        assert!(matches!(two.take(&record.id, false).unwrap(), Taken::Busy));
        // As if its process were killed: half a file under another name, and the lock is gone.
        std::fs::write(&claim.part, "{\"id\":").unwrap();
        drop(claim);
        let Taken::Mine(claim) = two.take(&record.id, false).unwrap() else { panic!("the lock ended with its owner") };
        claim.keep(&record).unwrap();
        // As if it were killed between its result and its claim.
        std::fs::write(dir.path().join(format!("{}.claim", record.id)), "").unwrap();
        let Taken::Done(done) = one.take(&record.id, true).unwrap() else { panic!("it is done") };
        assert_eq!(done.id, record.id);
        let names: Vec<_> = std::fs::read_dir(dir.path()).unwrap().map(|entry| entry.unwrap().file_name()).collect();
        assert_eq!(names, [format!("{}.json", record.id).as_str()], "claims and halves are gone");
    }

    #[test]
    fn a_result_that_is_none_is_named_with_its_file() {
        let dir = tempfile::tempdir().unwrap();
        let folder = Folder::open(dir.path()).unwrap();
        let record = record(&Build::named("test"));
        let path = dir.path().join(format!("{}.json", record.id));
        std::fs::write(&path, "{").unwrap();
        let error = folder.take(&record.id, false).unwrap_err().to_string();
        assert!(error.contains(&*path.to_string_lossy()) && error.contains("remove it"), "{error}");
        let other = Record { id: "0".repeat(32), ..record.clone() };
        std::fs::write(&path, serde_json::to_vec(&other).unwrap()).unwrap();
        assert!(folder.read(&record.id).unwrap_err().to_string().contains("0000"));
    }

    #[test]
    fn an_output_that_is_no_plain_file_is_written_into_and_stays_what_it_is() {
        let dir = tempfile::tempdir().unwrap();
        let at = |name: &str| dir.path().join(name);
        let link = |name: &str, to: &Path| std::os::unix::fs::symlink(to, at(name)).unwrap();
        let (read, write) = std::io::pipe().unwrap();
        std::fs::write(at("file"), "before").unwrap();
        link("to-file", &at("file"));
        link("to-nothing", &at("new"));
        link("to-device", Path::new("/dev/null"));
        link("to-pipe", Path::new(&format!("/proc/self/fd/{}", std::os::fd::AsRawFd::as_raw_fd(&write))));
        for name in ["to-file", "to-nothing", "to-device", "to-pipe"] {
            write_named(&at(name), name.as_bytes()).unwrap();
            assert!(std::fs::symlink_metadata(at(name)).unwrap().is_symlink(), "{name}");
        }
        drop(write);
        assert_eq!(std::io::read_to_string(read).unwrap(), "to-pipe");
        assert_eq!((std::fs::read(at("file")).unwrap(), std::fs::read(at("new")).unwrap()), (b"to-file".into(), b"to-nothing".into()));
        write_named(&at("plain"), b"plain").unwrap();
        assert_eq!(std::fs::read(at("plain")).unwrap(), b"plain");
        assert!(write_named(dir.path(), b"x").unwrap_err().to_string().contains("directory"));
    }

    #[test]
    fn a_file_of_a_folder_replaces_a_link_or_a_fifo_that_lies_under_its_name() {
        let dir = tempfile::tempdir().unwrap();
        let at = |name: &str| dir.path().join(name);
        std::fs::write(at("victim"), "kept").unwrap();
        std::os::unix::fs::symlink(at("victim"), at("link")).unwrap();
        files::tests::fifo(&at("fifo"));
        for name in ["link", "fifo", "new"] {
            replace(&at(name), name.as_bytes()).unwrap();
            assert!(std::fs::symlink_metadata(at(name)).unwrap().is_file(), "{name}");
            assert_eq!(std::fs::read(at(name)).unwrap(), name.as_bytes());
        }
        assert_eq!(std::fs::read(at("victim")).unwrap(), b"kept");
        assert!(replace(dir.path(), b"x").unwrap_err().to_string().contains("directory"));
    }

    #[test]
    fn what_lies_under_the_name_of_a_temporary_file_is_taken_away_and_not_written_into() {
        let dir = tempfile::tempdir().unwrap();
        let at = |name: &str| dir.path().join(name);
        std::fs::write(at("victim"), "kept").unwrap();
        let folder = Folder::open(dir.path()).unwrap();
        let record = record(&Build::named("test"));
        let part = at(&format!(".{}.part", record.id));
        let trial = at(&format!(".trial.{}", std::process::id()));
        let put: [&dyn Fn(&Path); 4] = [
            &|path| std::os::unix::fs::symlink(at("victim"), path).unwrap(),
            &|path| std::fs::hard_link(at("victim"), path).unwrap(),
            &|path| files::tests::fifo(path),
            &|path| std::fs::write(path, "half of another").unwrap(),
        ];
        for put in put {
            put(&part);
            put(&trial);
            Folder::open(dir.path()).unwrap();
            let Taken::Mine(mine) = folder.take(&record.id, false).unwrap() else { panic!("nobody has it") };
            mine.keep(&record).unwrap();
            assert_eq!(folder.read(&record.id).unwrap().map(|record| record.id).as_ref(), Some(&record.id));
            assert_eq!(std::fs::read(at("victim")).unwrap(), b"kept");
            assert!(!part.exists() && !trial.exists());
            std::fs::remove_file(at(&format!("{}.json", record.id))).unwrap();
        }
    }

    #[test]
    fn a_folder_that_cannot_be_written_is_refused_at_once() {
        let dir = tempfile::tempdir().unwrap();
        let file = dir.path().join("file");
        std::fs::write(&file, "").unwrap();
        for path in [&file, &file.join("below")] {
            let error = Folder::open(path).unwrap_err().to_string();
            assert!(error.contains("cannot be written: a file, not a folder"), "{error}");
        }
    }

    #[test]
    fn what_is_no_regular_file_under_a_name_of_ours_is_refused_and_not_waited_for() {
        let dir = tempfile::tempdir().unwrap();
        let folder = Folder::open(dir.path()).unwrap();
        let record = record(&Build::named("test"));
        let at = |name: String| dir.path().join(name);
        let claim = at(format!("{}.claim", record.id));
        files::tests::fifo(&claim);
        assert!(folder.take(&record.id, false).unwrap_err().to_string().contains("not a regular file"));
        std::fs::remove_file(&claim).unwrap();
        files::tests::fifo(&at(format!("{}.json", record.id)));
        assert!(folder.take(&record.id, false).unwrap_err().to_string().contains("not a regular file"));
    }
}

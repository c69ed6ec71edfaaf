//! Reads source files, for every mode. What is read is the whole file that was announced, and no more, or the entry fails.

use super::hashing::{Comparing, hash_file, segment};
use super::source::Item;
use crate::failure::Failure;
use blake3::Hasher;
use rustix::fs::{FileType, OFlags, Stat};
use rustix::io::Errno;
use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;

/// Why a file's content is not what was announced.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Problem {
    /// It cannot be read.
    Unreadable(String),
    /// It changed meanwhile.
    Changed(String),
}

impl Problem {
    /// The problem in words.
    pub fn text(&self) -> &str {
        match self {
            Self::Unreadable(text) | Self::Changed(text) => text,
        }
    }

    /// The failure of the entry of this name, for the user.
    pub fn failure(self, path: String) -> Failure {
        match self {
            Self::Unreadable(error) => Failure::Source { path, error },
            Self::Changed(problem) => Failure::Hash { path, problem },
        }
    }
}

impl From<io::Error> for Problem {
    fn from(e: io::Error) -> Self {
        match e.kind() {
            io::ErrorKind::UnexpectedEof => Self::shorter(),
            _ => Self::Unreadable(e.to_string()),
        }
    }
}

/// Facts that change when a file changes.
///
/// The inode is none of them: a file system in user space may give another number each time. A file that replaced another has a later time of change,
/// and all reading is by one descriptor.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Stamp {
    size: i64,
    mtime: (i64, i64),
    ctime: (i64, i64),
}

impl Stamp {
    /// The stamp of the file as it is now.
    #[allow(clippy::unnecessary_cast, reason = "the types of times differ between systems")]
    pub fn of(stat: &Stat) -> Self {
        Self {
            size: stat.st_size as i64,
            mtime: (stat.st_mtime as i64, stat.st_mtime_nsec as i64),
            ctime: (stat.st_ctime as i64, stat.st_ctime_nsec as i64),
        }
    }
}

/// An open source file.
pub struct Reading {
    file: File,
    stamp: Stamp,
    is_sparse: bool,
}

impl Reading {
    /// Opens the file of an item, if it is still the one that was announced.
    pub fn open(item: &Item) -> Result<Self, Problem> {
        let file = match item.top.root.open_plain(&item.local(), OFlags::RDONLY) {
            Ok(file) => file,
            Err(Errno::LOOP | Errno::NXIO) => return Err(Problem::Changed("it is no file any more".into())),
            Err(e) => return Err(Problem::Unreadable(io::Error::from(e).to_string())),
        };
        let stat = rustix::fs::fstat(&file).map_err(io::Error::from)?;
        if FileType::from_raw_mode(stat.st_mode) != FileType::RegularFile {
            return Err(Problem::Changed("it is no file any more".into()));
        }
        if Stamp::of(&stat) != item.stamp {
            return Err(Problem::Changed("it changed after the transfer had begun".into()));
        }
        Ok(Self { file, stamp: item.stamp, is_sparse: stat.st_blocks * 512 < stat.st_size })
    }

    /// The file, for threads that read it in their own order. [`end`](Self::end) checks it afterwards.
    pub fn file(&self) -> &File {
        &self.file
    }

    /// Bytes that were announced.
    pub fn size(&self) -> u64 {
        u64::try_from(self.stamp.size).unwrap_or(0)
    }

    /// Reads content at `at`: at least one byte, if that is before the announced end.
    pub fn read_at(&self, buffer: &mut [u8], at: u64) -> Result<usize, Problem> {
        loop {
            match self.file.read_at(buffer, at) {
                Err(e) if e.kind() == io::ErrorKind::Interrupted => {}
                Ok(0) if !buffer.is_empty() => return Err(Problem::shorter()),
                result => return Ok(result?),
            }
        }
    }

    /// The next data at or behind `at`, and its end.
    pub fn segment(&self, at: u64) -> (u64, u64) {
        if self.is_sparse { segment(&self.file, at, self.size()) } else { (at, self.size()) }
    }

    /// Hashes the first `limit` bytes, holes without reading them.
    pub fn hash(&self, limit: u64, comparing: &Comparing) -> Result<(Hasher, u64), Problem> {
        Ok(hash_file(&self.file, limit, comparing)?)
    }

    /// Checks that the file has not changed, as far as can be told without reading.
    pub fn check(&self) -> Result<(), Problem> {
        match rustix::fs::fstat(&self.file) {
            Ok(stat) if Stamp::of(&stat) == self.stamp => Ok(()),
            _ => Err(Problem::Changed("it changed while it was sent".into())),
        }
    }

    /// Checks, after all has been read, that the file has not become longer and has not changed.
    pub fn end(&self) -> Result<(), Problem> {
        self.check()?;
        match self.file.read_at(&mut [0], self.size()) {
            Ok(0) => Ok(()),
            Ok(_) => {
                Err(Problem::Changed("it has more content than its size says: send a copy of it, or pipe it into `noctule send -`".into()))
            }
            Err(e) => Err(e.into()),
        }
    }
}

impl Problem {
    fn shorter() -> Self {
        Self::Changed("it became shorter while it was sent".into())
    }
}

#[cfg(test)]
mod tests {
    use super::super::source::{Choice, collect};
    use super::*;
    use rustix::fs::{CWD, Mode};
    use std::io::Write;
    use std::os::unix::fs::symlink;
    use std::path::Path;

    fn item(path: &Path) -> Item {
        collect(&[path.to_owned()], None, &Choice::default()).unwrap().items.pop().unwrap()
    }

    fn changed(result: Result<Reading, Problem>, words: &str) {
        match result.err() {
            Some(Problem::Changed(text)) => assert!(text.contains(words), "{text}"),
            other => panic!("{other:?}"),
        }
    }

    /// F3: opening a FIFO waited for a writer, for ever.
    #[test]
    fn file_that_became_something_else_is_neither_waited_for_nor_followed() {
        let dir = tempfile::tempdir().unwrap();
        let (path, other) = (dir.path().join("d/f"), dir.path().join("other"));
        std::fs::create_dir(dir.path().join("d")).unwrap();
        std::fs::write(&path, b"content").unwrap();
        let announced = item(&path);
        std::fs::remove_file(&path).unwrap();
        rustix::fs::mknodat(CWD, &path, rustix::fs::FileType::Fifo, Mode::RWXU, 0).unwrap();
        changed(Reading::open(&announced), "no file any more");
        std::fs::remove_file(&path).unwrap();
        std::fs::write(&other, b"content").unwrap();
        symlink(&other, &path).unwrap();
        changed(Reading::open(&announced), "no file any more");
        std::fs::remove_file(&path).unwrap();
        std::fs::write(&path, b"content").unwrap();
        let announced = item(&path);
        std::fs::rename(dir.path().join("d"), dir.path().join("e")).unwrap();
        symlink(dir.path().join("e"), dir.path().join("d")).unwrap();
        changed(Reading::open(&announced), "no file any more");
    }

    #[test]
    fn content_behind_the_announced_end_and_changes_are_seen_at_the_end() {
        let cpus = Reading::open(&item(Path::new("/proc/cpuinfo"))).unwrap();
        assert!(cpus.size() == 0 && cpus.end().unwrap_err().text().contains("more content"));
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("f");
        std::fs::write(&path, b"content").unwrap();
        let reading = Reading::open(&item(&path)).unwrap();
        assert_eq!((reading.read_at(&mut [0; 7], 0), reading.end()), (Ok(7), Ok(())));
        std::fs::OpenOptions::new().append(true).open(&path).unwrap().write_all(b"more").unwrap();
        assert_eq!(reading.end(), Err(Problem::Changed("it changed while it was sent".into())));
        std::fs::write(&path, b"").unwrap();
        assert!(reading.read_at(&mut [0; 7], 0).is_err_and(|p| p.text().contains("shorter")));
    }

    /// S-remains of issue 39: a file system in user space whose numbers of inodes change under the sender failed every file.
    #[test]
    fn another_inode_with_the_same_times_and_size_is_no_change_and_another_file_is() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("f");
        std::fs::write(&path, b"content").unwrap();
        let stat = rustix::fs::stat(&path).unwrap();
        let mut made_up = stat;
        made_up.st_ino += 1;
        assert_eq!(Stamp::of(&stat), Stamp::of(&made_up));
        let announced = item(&path);
        let times = std::fs::metadata(&path).unwrap().modified().unwrap();
        // Times move in steps of some milliseconds.
        let is_later = || rustix::fs::stat(dir.path().join("g")).is_ok_and(|g| Stamp::of(&g).ctime > Stamp::of(&stat).ctime);
        while !is_later() {
            std::fs::write(dir.path().join("g"), b"another").unwrap();
            std::fs::File::options().write(true).open(dir.path().join("g")).unwrap().set_modified(times).unwrap();
        }
        std::fs::rename(dir.path().join("g"), &path).unwrap();
        changed(Reading::open(&announced), "it changed after");
    }
}

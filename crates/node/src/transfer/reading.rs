//! The reading of sources, for every mode: what is read is the file that was announced, all of it and no more, or the entry fails.

use super::hashing::{Comparing, hash_file, segment};
use super::source::Item;
use crate::failure::Failure;
use blake3::Hasher;
use rustix::fs::{CWD, Mode, OFlags, ResolveFlags};
use rustix::io::Errno;
use std::fs::{File, Metadata};
use std::io;
use std::os::unix::fs::{FileExt, MetadataExt};
use std::path::{Component, Path};

/// Why a file's content is not what was announced.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Problem {
    /// It cannot be read.
    Unreadable(String),
    /// It changed meanwhile.
    Changed(String),
}

impl Problem {
    /// In words.
    pub fn text(&self) -> &str {
        match self {
            Self::Unreadable(text) | Self::Changed(text) => text,
        }
    }

    /// For the user, of the entry of this name.
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

/// What shows that a file changed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Stamp {
    size: u64,
    mtime: (i64, i64),
    file: (u64, u64),
}

impl Stamp {
    /// As the file is now.
    pub fn of(meta: &Metadata) -> Self {
        Self { size: meta.size(), mtime: (meta.mtime(), meta.mtime_nsec()), file: (meta.dev(), meta.ino()) }
    }
}

/// An open source file.
pub struct Reading {
    file: File,
    stamp: Stamp,
    is_sparse: bool,
}

/// Opens an absolute name without links, no part of which may have become one, and waits for nothing.
fn open(path: &Path) -> Result<File, Errno> {
    let flags = OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::CLOEXEC;
    match rustix::fs::openat2(CWD, path, flags, Mode::empty(), ResolveFlags::NO_SYMLINKS) {
        // Linux before 5.6, or a sandbox that does not know it.
        Err(Errno::NOSYS | Errno::PERM) => {}
        result => return Ok(result?.into()),
    }
    let (Some(parent), Some(name)) = (path.parent(), path.file_name()) else { return Err(Errno::ISDIR) };
    let step = OFlags::PATH | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let mut dir = rustix::fs::openat(CWD, "/", step, Mode::empty())?;
    for part in parent.components() {
        if let Component::Normal(part) = part {
            dir = rustix::fs::openat(&dir, part, step, Mode::empty())?;
        }
    }
    Ok(rustix::fs::openat(&dir, name, flags, Mode::empty())?.into())
}

impl Reading {
    /// Opens the file of an item, if it is still the one that was announced.
    pub fn open(item: &Item) -> Result<Self, Problem> {
        let file = match open(&item.local) {
            Ok(file) => file,
            Err(Errno::LOOP | Errno::NXIO) => return Err(Problem::Changed("it is no file any more".into())),
            Err(e) => return Err(Problem::Unreadable(io::Error::from(e).to_string())),
        };
        let meta = file.metadata()?;
        if !meta.is_file() {
            return Err(Problem::Changed("it is no file any more".into()));
        }
        if Stamp::of(&meta) != item.stamp {
            return Err(Problem::Changed("it changed after the transfer had begun".into()));
        }
        Ok(Self { file, stamp: item.stamp, is_sparse: meta.blocks() * 512 < meta.size() })
    }

    /// For threads that read it in their own order; what they find is checked by [`end`](Self::end).
    pub fn file(&self) -> &File {
        &self.file
    }

    /// Bytes that were announced.
    pub fn size(&self) -> u64 {
        self.stamp.size
    }

    /// Content at `at`; at least a byte before the end that was announced.
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

    /// It is what was announced, as far as can be told without reading.
    pub fn check(&self) -> Result<(), Problem> {
        match self.file.metadata() {
            Ok(meta) if Stamp::of(&meta) == self.stamp => Ok(()),
            _ => Err(Problem::Changed("it changed while it was sent".into())),
        }
    }

    /// All has been read: it must not go on behind its end, and not have changed.
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
    use super::super::source::collect;
    use super::*;
    use std::io::Write;
    use std::os::unix::fs::symlink;

    fn item(path: &Path) -> Item {
        collect(&[path.to_owned()], None).unwrap().items.pop().unwrap()
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
}

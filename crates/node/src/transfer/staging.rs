//! Where files grow until they are whole: the directory `.noctule-partial` in the target directory.
//!
//! A large file grows under a name that follows from its own name, size and time, and is locked while it does: after whatever kind of end, the next try
//! finds it and goes on. Small files have names of the moment. Both move to their own names when their hash is right.

use super::entry::{Entry, STAGING_NAME};
use cap_std::fs::{Dir, OpenOptions, OpenOptionsExt};
use rustix::fs::{FlockOperation, OFlags};
use std::fs::File;
use std::io::{self, Write};
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

/// Names of the moment begin so; nobody goes on with such a file.
const MOMENT: &str = "tmp-";
/// Hexadecimal digits of names that follow from content.
const NAME_LEN: usize = 32;

/// The staging directory of one transfer, with a shared lock on it.
pub struct Staging {
    /// Handle.
    pub dir: Dir,
    run: u64,
    next: AtomicU64,
    /// Directories that this transfer made, now or in an earlier try.
    made: Mutex<Journal>,
}

struct Journal {
    name: String,
    paths: Vec<Vec<u8>>,
    file: Option<File>,
}

fn open_locked(root: &Dir) -> io::Result<Dir> {
    loop {
        match root.create_dir(STAGING_NAME) {
            Err(e) if e.kind() != io::ErrorKind::AlreadyExists => return Err(e),
            _ => {}
        }
        // Not through a link: what grows here must be on the same file system, and must not be read by others' choice.
        let flags = OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let dir = match rustix::fs::openat(root, STAGING_NAME, flags, rustix::fs::Mode::empty()) {
            Err(rustix::io::Errno::NOENT) => continue,
            result => result?,
        };
        if rustix::fs::flock(&dir, FlockOperation::NonBlockingLockExclusive).is_ok() {
            let dir = Dir::from_std_file(File::from(dir));
            remove_moments(&dir);
            rustix::fs::flock(&dir, FlockOperation::LockShared)?;
            if rustix::fs::fstat(&dir)?.st_nlink > 0 {
                return Ok(dir);
            }
            continue;
        }
        rustix::fs::flock(&dir, FlockOperation::LockShared)?;
        // Removed by its last user while we waited for the lock?
        if rustix::fs::fstat(&dir)?.st_nlink > 0 {
            return Ok(Dir::from_std_file(File::from(dir)));
        }
    }
}

/// Files of the moment that nobody will go on with; called with the directory to ourselves.
fn remove_moments(dir: &Dir) {
    let Ok(entries) = dir.entries() else { return };
    for entry in entries.flatten() {
        if entry.file_name().as_bytes().starts_with(MOMENT.as_bytes()) {
            let _ = entry.remove_file();
        }
    }
}

/// A file that grows, locked.
pub struct Grown {
    /// Positioned at its end.
    pub file: File,
    /// In the staging directory.
    pub name: String,
}

impl Staging {
    /// Opens (and makes) the staging directory of `root` for the transfer of this name.
    pub fn open(root: &Dir, transfer: &blake3::Hash) -> io::Result<Self> {
        let dir = open_locked(root)?;
        let mut bytes = [0; 8];
        getrandom::fill(&mut bytes).map_err(|e| io::Error::other(e.to_string()))?;
        let name = format!("{}.dirs", &transfer.to_hex()[..NAME_LEN]);
        let text = dir.read(&name).unwrap_or_default();
        let paths = text.split(|b| *b == 0).filter(|p| !p.is_empty()).map(<[u8]>::to_vec).collect();
        let made = Mutex::new(Journal { name, paths, file: None });
        Ok(Self { dir, run: u64::from_ne_bytes(bytes), next: AtomicU64::new(0), made })
    }

    fn name_of(entry: &Entry) -> String {
        format!("{}.part", &entry.content_id().to_hex()[..NAME_LEN])
    }

    /// What an earlier try left of a file: handle and bytes. Not locked.
    pub fn left(root: &Dir, entry: &Entry) -> Option<(File, u64)> {
        let path = Path::new(STAGING_NAME).join(Self::name_of(entry));
        let file = root.open(path).ok()?.into_std();
        let meta = file.metadata().ok().filter(|m| m.is_file() && m.len() > 0)?;
        Some((file, meta.len()))
    }

    /// Opens the file in which an entry grows, cut to `length` bytes; `None`: somebody else has it.
    pub fn grow(&self, entry: &Entry, length: u64) -> io::Result<Option<Grown>> {
        let name = Self::name_of(entry);
        let mut options = OpenOptions::new();
        options.read(true).write(true).create(true).mode(0o600).custom_flags(OFlags::NOFOLLOW.bits() as i32);
        let mut file = self.dir.open_with(&name, &options)?.into_std();
        match rustix::fs::flock(&file, FlockOperation::NonBlockingLockExclusive) {
            Err(rustix::io::Errno::WOULDBLOCK) => return Ok(None),
            result => result?,
        }
        file.set_len(length)?;
        io::Seek::seek(&mut file, io::SeekFrom::Start(length))?;
        Ok(Some(Grown { file, name }))
    }

    /// A file, or a name for a link, of the moment.
    pub fn moment(&self) -> String {
        format!("{MOMENT}{:016x}-{}", self.run, self.next.fetch_add(1, Relaxed))
    }

    /// Makes a file of the moment.
    pub fn create(&self) -> io::Result<Grown> {
        let name = self.moment();
        let mut options = OpenOptions::new();
        options.write(true).create_new(true).mode(0o600);
        Ok(Grown { file: self.dir.open_with(&name, &options)?.into_std(), name })
    }

    /// Removes a file that turned out wrong.
    pub fn remove(&self, name: &str) {
        let _ = self.dir.remove_file(name);
    }

    /// Notes that this transfer is about to make a directory, so that a later try knows it as its own.
    pub fn note_dir(&self, path: &[u8]) -> io::Result<()> {
        let mut journal = self.made.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
        if journal.file.is_none() {
            let mut options = OpenOptions::new();
            options.append(true).create(true).mode(0o600);
            journal.file = Some(self.dir.open_with(&journal.name, &options)?.into_std());
        }
        if let Some(file) = &mut journal.file {
            file.write_all(&[path, &[0]].concat())?;
        }
        journal.paths.push(path.to_vec());
        Ok(())
    }

    /// The directories that this transfer made.
    pub fn made(&self) -> std::collections::HashSet<Vec<u8>> {
        self.made.lock().unwrap_or_else(std::sync::PoisonError::into_inner).paths.iter().cloned().collect()
    }

    /// Everything is in place: forgets this transfer, and removes the directory if nobody else needs it.
    pub fn finish(&self, root: &Dir) {
        let journal = self.made.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
        if journal.file.is_some() || !journal.paths.is_empty() {
            let _ = self.dir.remove_file(&journal.name);
        }
        if rustix::fs::flock(&self.dir, FlockOperation::NonBlockingLockExclusive).is_ok() {
            // Fails while another transfer's files wait there to be gone on with.
            let _ = root.remove_dir(STAGING_NAME);
        }
    }
}

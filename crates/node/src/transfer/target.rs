//! The target directory: names are checked, files are written under a temporary name and renamed when their hash is right.
//!
//! All access goes through a directory handle of `cap-std`: no name, and no symbolic link in the way, leads out of it.

use super::CHUNK;
use super::records::{Entry, Kind, Refusal};
use cap_std::ambient_authority;
use cap_std::fs::{Dir, File, OpenOptions, Permissions, PermissionsExt};
use std::io::{self, Write};
use std::path::{Path, PathBuf};

/// A refusal with the name concerned.
#[derive(Debug)]
pub struct Refused {
    /// Kind.
    pub refusal: Refusal,
    /// Name.
    pub path: String,
    /// In words.
    pub message: String,
}

impl Refused {
    fn new(refusal: Refusal, path: impl Into<String>, message: impl Into<String>) -> Self {
        Self { refusal, path: path.into(), message: message.into() }
    }

    pub fn from_io(path: &Path, e: &io::Error) -> Self {
        let refusal = match e.kind() {
            io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded => Refusal::DiskFull,
            io::ErrorKind::AlreadyExists => Refusal::Exists,
            // cap-std: the name or a link in it leads out of the directory.
            io::ErrorKind::PermissionDenied if e.raw_os_error().is_none() => Refusal::Name,
            _ => Refusal::Target,
        };
        Self::new(refusal, path.display().to_string(), format!("{}: {e}", path.display()))
    }
}

/// The directory that receives.
pub struct Target {
    dir: Dir,
    path: PathBuf,
    overwrite: bool,
}

/// The relative path of an entry, if its name is one that stays below the target.
pub fn checked_path(entry: &Entry) -> Result<PathBuf, Refused> {
    let shown = entry.path.join("/");
    let is_bad = |c: &String| c.is_empty() || c == "." || c == ".." || c.len() > 255 || c.contains(['/', '\0']);
    if entry.path.is_empty() || entry.path.len() > 255 || entry.path.iter().any(is_bad) {
        return Err(Refused::new(
            Refusal::Name,
            shown,
            "a component of the name is empty, too long, a dot name, or contains a slash or NUL",
        ));
    }
    Ok(entry.path.iter().collect())
}

impl Target {
    /// Opens the directory; it must exist and be writable.
    pub fn open(path: &Path, overwrite: bool) -> io::Result<Self> {
        let dir = Dir::open_ambient_dir(path, ambient_authority())?;
        // Found out now rather than after the first gigabyte.
        let probe = format!(".noctule-{:016x}.probe", unique());
        dir.write(&probe, b"")?;
        dir.remove_file(&probe)?;
        Ok(Self { dir, path: path.to_owned(), overwrite })
    }

    /// The directory `below` it, made if it is missing, or itself.
    pub fn below(&self, below: Option<&Path>, overwrite: bool) -> io::Result<Self> {
        let Some(below) = below else { return Ok(Self { dir: self.dir.try_clone()?, path: self.path.clone(), overwrite }) };
        self.dir.create_dir_all(below)?;
        Ok(Self { dir: self.dir.open_dir(below)?, path: self.path.join(below), overwrite })
    }

    /// Enough room for `bytes`?
    pub fn check_space(&self, bytes: u64) -> Result<(), Refused> {
        match rustix::fs::statvfs(&self.path) {
            Ok(fs) if fs.f_bavail.saturating_mul(fs.f_frsize) < bytes => {
                let free = fs.f_bavail.saturating_mul(fs.f_frsize);
                let text = format!("{bytes} bytes are to come, {free} are free in {}", self.path.display());
                Err(Refused::new(Refusal::DiskFull, self.path.display().to_string(), text))
            }
            _ => Ok(()),
        }
    }

    /// Refuses names that are taken, before anything is written.
    pub fn check_entry(&self, entry: &Entry) -> Result<PathBuf, Refused> {
        let path = checked_path(entry)?;
        match (self.dir.symlink_metadata(&path), entry.kind) {
            (Ok(meta), Kind::Dir) if !meta.is_dir() => {
                Err(Refused::new(Refusal::Exists, entry.path.join("/"), "exists and is no directory"))
            }
            (Ok(meta), Kind::File) if !self.overwrite || meta.is_dir() => {
                Err(Refused::new(Refusal::Exists, entry.path.join("/"), "exists already"))
            }
            // A link in the way that leads out of the directory.
            (Err(e), _) if e.kind() == io::ErrorKind::PermissionDenied => Err(Refused::from_io(&path, &e)),
            _ => Ok(path),
        }
    }

    /// Makes a directory and those above it.
    pub fn make_dir(&self, path: &Path) -> Result<(), Refused> {
        self.dir.create_dir_all(path).map_err(|e| Refused::from_io(path, &e))
    }

    /// Begins a file.
    pub fn begin(&self, entry: &Entry, path: PathBuf) -> Result<Incoming<'_>, Refused> {
        if let Some(parent) = path.parent().filter(|p| !p.as_os_str().is_empty()) {
            self.make_dir(parent)?;
        }
        let temporary = path.with_file_name(format!(".noctule-{:016x}.part", unique()));
        let mut options = OpenOptions::new();
        options.write(true).create_new(true);
        let file = self.dir.open_with(&temporary, &options).map_err(|e| Refused::from_io(&path, &e))?;
        Ok(Incoming {
            target: self,
            entry: entry.clone(),
            path,
            temporary,
            file: Some(file),
            hasher: blake3::Hasher::new(),
            buffer: Vec::new(),
            left: entry.size,
            is_kept: false,
        })
    }
}

/// A number that no other run of this or another process uses at the same time.
fn unique() -> u64 {
    let mut bytes = [0; 8];
    // Without randomness `create_new` still keeps two files apart.
    let _ = getrandom::fill(&mut bytes);
    u64::from_ne_bytes(bytes)
}

/// A file that is being received. Dropped before [`Incoming::finish`], it leaves nothing behind.
pub struct Incoming<'a> {
    target: &'a Target,
    entry: Entry,
    path: PathBuf,
    temporary: PathBuf,
    file: Option<File>,
    hasher: blake3::Hasher,
    buffer: Vec<u8>,
    left: u64,
    is_kept: bool,
}

impl Incoming<'_> {
    /// Bytes still to come.
    pub fn left(&self) -> u64 {
        self.left
    }

    /// Takes content, never more than is left; true when it is time to [`flush`](Self::flush).
    pub fn write(&mut self, data: &[u8]) -> bool {
        self.buffer.extend_from_slice(data);
        self.left = self.left.saturating_sub(data.len() as u64);
        self.buffer.len() >= CHUNK
    }

    /// Hashes and writes what was taken.
    pub fn flush(&mut self) -> Result<(), Refused> {
        self.hasher.update(&self.buffer);
        if let Some(file) = &mut self.file {
            file.write_all(&self.buffer).map_err(|e| Refused::from_io(&self.path, &e))?;
        }
        self.buffer.clear();
        Ok(())
    }

    /// Puts the file under its name if its hash is right; the hash.
    pub fn finish(mut self, expected: &str, problem: Option<String>) -> Result<String, Refused> {
        self.flush()?;
        let name = || self.entry.path.join("/");
        if let Some(problem) = problem {
            return Err(Refused::new(Refusal::Hash, name(), problem));
        }
        let hash = self.hasher.finalize().to_hex().to_string();
        if hash != expected {
            return Err(Refused::new(Refusal::Hash, name(), format!("BLAKE3 is {hash} here, {expected} at the sender")));
        }
        let fail = |e: io::Error| Refused::from_io(&self.path, &e);
        if let Some(file) = self.file.take() {
            file.set_permissions(Permissions::from_mode(self.entry.mode & 0o777)).map_err(fail)?;
            let file = file.into_std();
            let mtime = std::time::UNIX_EPOCH + std::time::Duration::from_secs(u64::try_from(self.entry.mtime).unwrap_or(0));
            file.set_modified(mtime).map_err(fail)?;
            // A full disk may show only now.
            file.sync_data().map_err(fail)?;
        }
        if self.target.overwrite {
            self.target.dir.rename(&self.temporary, &self.target.dir, &self.path).map_err(fail)?;
            self.is_kept = true;
        } else {
            // A hard link fails if the name was taken meanwhile; a rename would replace it.
            self.target.dir.hard_link(&self.temporary, &self.target.dir, &self.path).map_err(fail)?;
        }
        Ok(hash)
    }
}

impl Drop for Incoming<'_> {
    fn drop(&mut self) {
        if !self.is_kept {
            let _ = self.target.dir.remove_file(&self.temporary);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn entry(path: &[&str], size: u64) -> Entry {
        Entry { path: path.iter().map(|s| (*s).to_owned()).collect(), kind: Kind::File, size, mode: 0o644, mtime: 5 }
    }

    fn refusal<T>(result: Result<T, Refused>) -> Option<Refusal> {
        result.err().map(|r| r.refusal)
    }

    #[test]
    fn names_that_would_lead_out_are_refused() {
        for path in [&["..", "x"][..], &["a", "..", "..", "x"], &["/etc/passwd"], &[""], &["."], &["a\0b"], &["a/b"], &[]] {
            assert_eq!(refusal(checked_path(&entry(path, 0))), Some(Refusal::Name), "{path:?}");
        }
        assert!(checked_path(&entry(&["a", "..b", "c..", "..."], 0)).is_ok());
    }

    #[test]
    fn symbolic_link_in_the_way_leads_nowhere() {
        let outside = tempfile::tempdir().unwrap();
        let inside = tempfile::tempdir().unwrap();
        std::os::unix::fs::symlink(outside.path(), inside.path().join("out")).unwrap();
        let target = Target::open(inside.path(), true).unwrap();
        let e = entry(&["out", "x"], 1);
        let result = target.check_entry(&e).and_then(|path| target.begin(&e, path).map(|_| ()));
        assert_eq!(refusal(result), Some(Refusal::Name));
        assert_eq!(std::fs::read_dir(outside.path()).unwrap().count(), 0);
    }

    #[test]
    fn only_what_verifies_gets_its_name_and_nothing_else_stays() {
        let dir = tempfile::tempdir().unwrap();
        let target = Target::open(dir.path(), false).unwrap();
        let e = entry(&["d", "f"], 3);
        let mut bad = target.begin(&e, target.check_entry(&e).unwrap()).unwrap();
        bad.write(b"abX");
        let good_hash = blake3::hash(b"abc").to_hex().to_string();
        assert_eq!(refusal(bad.finish(&good_hash, None)), Some(Refusal::Hash));
        drop(target.begin(&e, target.check_entry(&e).unwrap()).unwrap());
        assert_eq!(std::fs::read_dir(dir.path().join("d")).unwrap().count(), 0);
        let mut good = target.begin(&e, target.check_entry(&e).unwrap()).unwrap();
        good.write(b"abc");
        assert_eq!(good.finish(&good_hash, None).unwrap(), good_hash);
        assert_eq!(std::fs::read(dir.path().join("d/f")).unwrap(), b"abc");
        assert_eq!(std::fs::read_dir(dir.path().join("d")).unwrap().count(), 1);
        assert_eq!(refusal(target.check_entry(&e)), Some(Refusal::Exists));
    }
}

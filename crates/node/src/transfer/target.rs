//! The target directory: what may be written there, what is there already, and putting things under their names.
//!
//! All access goes through a directory handle of `cap-std`: no name, and no symbolic link in the way, leads out of it.

use super::entry::{Entry, Kind};
use super::links;
use super::wire::{Have, Refusal};
use blake3::Hash;
use cap_std::ambient_authority;
use cap_std::fs::{Dir, MetadataExt};
use rustix::fs::{AtFlags, Mode, OFlags, RenameFlags, Timespec, Timestamps};
use std::ffi::OsStr;
use std::fs::File;
use std::io::{self, Read};
use std::os::fd::AsFd;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

/// A refusal with the name concerned.
#[derive(Clone, Debug)]
pub struct Refused {
    /// Kind.
    pub refusal: Refusal,
    /// Name.
    pub path: Vec<u8>,
    /// In words.
    pub message: String,
}

impl Refused {
    /// Concerning `path`.
    pub fn new(refusal: Refusal, path: &Path, message: impl Into<String>) -> Self {
        Self { refusal, path: path.as_os_str().as_bytes().to_vec(), message: message.into() }
    }

    /// What an error of the system means.
    pub fn from_io(path: &Path, e: &io::Error) -> Self {
        let refusal = match e.kind() {
            io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded => Refusal::DiskFull,
            io::ErrorKind::AlreadyExists | io::ErrorKind::IsADirectory | io::ErrorKind::NotADirectory => Refusal::Exists,
            io::ErrorKind::InvalidFilename => Refusal::Name,
            // cap-std: the name or a link in it leads out of the directory.
            io::ErrorKind::PermissionDenied if e.raw_os_error().is_none() => Refusal::Name,
            _ => Refusal::Target,
        };
        let text = match e.kind() {
            io::ErrorKind::CrossesDevices => "it lies on another file system than the directory given with --into".to_owned(),
            _ => e.to_string(),
        };
        Self::new(refusal, path, format!("{}: {text}", super::entry::shown(path.as_os_str().as_bytes())))
    }
}

/// What a receiver was told to do.
#[derive(Clone, Copy, Debug, Default)]
pub struct Rules {
    /// Replace files and links that exist.
    pub overwrite: bool,
    /// Make symbolic links that lead out of the directory.
    pub outside_links: bool,
}

/// The directory that receives.
pub struct Target {
    pub(super) dir: Dir,
    path: PathBuf,
    pub(super) rules: Rules,
}

/// What stands under an entry's name.
pub enum There {
    /// Nothing.
    Nothing,
    /// A file that looks the same: its size and time do.
    Alike(File),
    /// The directory or link that is wanted.
    Wanted,
    /// Something else.
    Other,
}

/// Remembers the directory that the last name was in: names come sorted.
#[derive(Default)]
pub struct Parents {
    last: Option<(PathBuf, Dir)>,
    missing: Option<PathBuf>,
}

impl Parents {
    /// The directory of `path`, if it exists.
    pub fn find<'a>(&'a mut self, root: &Dir, path: &Path) -> io::Result<&'a Dir> {
        // A directory of which nothing is there yet has many names.
        if self.missing.is_some() && self.missing.as_deref() == path.parent() {
            return Err(io::ErrorKind::NotFound.into());
        }
        let mut missing = None;
        let is_found = self.open(root, path, |parent, e| {
            missing = (e.kind() == io::ErrorKind::NotFound).then(|| parent.to_owned());
            Err(e)
        });
        match is_found {
            Ok(_) => self.open(root, path, |_, e| Err(e)),
            Err(e) => {
                self.missing = missing;
                Err(e)
            }
        }
    }

    /// The directory of `path`, made with those above it if it is missing.
    pub fn make<'a>(&'a mut self, root: &Dir, path: &Path) -> io::Result<&'a Dir> {
        self.open(root, path, |parent, e| match e.kind() {
            io::ErrorKind::NotFound => root.create_dir_all(parent).and_then(|()| root.open_dir(parent)),
            _ => Err(e),
        })
    }

    fn open<'a>(&'a mut self, root: &Dir, path: &Path, missing: impl FnOnce(&Path, io::Error) -> io::Result<Dir>) -> io::Result<&'a Dir> {
        let parent = path.parent().filter(|p| !p.as_os_str().is_empty()).unwrap_or(Path::new("."));
        if self.last.as_ref().is_none_or(|(known, _)| known != parent) {
            let dir = root.open_dir(parent).or_else(|e| missing(parent, e))?;
            self.last = Some((parent.to_owned(), dir));
        }
        self.last.as_ref().map(|(_, dir)| dir).ok_or_else(|| io::Error::other("no directory"))
    }
}

/// The last component of a safe name.
pub fn file_name(path: &Path) -> &OsStr {
    path.file_name().unwrap_or_default()
}

impl Target {
    /// Opens the directory; it must exist and be writable.
    pub fn open(path: &Path, rules: Rules) -> io::Result<Self> {
        let dir = Dir::open_ambient_dir(path, ambient_authority())?;
        // Found out now rather than after the first gigabyte.
        rustix::fs::accessat(&dir, ".", rustix::fs::Access::WRITE_OK | rustix::fs::Access::EXEC_OK, AtFlags::empty())?;
        Ok(Self { dir, path: path.to_owned(), rules })
    }

    /// The same directory, or one below it that is made if it is missing, under other rules.
    pub fn below(&self, below: Option<&Path>, rules: Rules) -> io::Result<Self> {
        let Some(below) = below else { return Ok(Self { dir: self.dir.try_clone()?, path: self.path.clone(), rules }) };
        self.dir.create_dir_all(below)?;
        Ok(Self { dir: self.dir.open_dir(below)?, path: self.path.join(below), rules })
    }

    /// Enough room for `bytes`?
    pub fn check_space(&self, bytes: u64) -> Result<(), Refused> {
        match rustix::fs::fstatvfs(&self.dir) {
            Ok(fs) if fs.f_bavail.saturating_mul(fs.f_frsize) < bytes => {
                let free = fs.f_bavail.saturating_mul(fs.f_frsize);
                let text = format!("{bytes} bytes are to come, {free} are free in {}", self.path.display());
                Err(Refused::new(Refusal::DiskFull, &self.path, text))
            }
            _ => Ok(()),
        }
    }

    /// Names and links that are refused whatever is there.
    pub fn check_entry(&self, entry: &Entry) -> Result<(), Refused> {
        if !entry.is_safe() {
            let text = "a part of the name is empty, too long, a dot name, contains NUL, or belongs to noctule";
            return Err(Refused::new(Refusal::Name, entry.as_path(), text));
        }
        match &entry.kind {
            Kind::Link(target) if !self.rules.outside_links && !links::stays_inside(&entry.path, target) => {
                let text = format!(
                    "a symbolic link to {}, out of the directory; --outside-links at the receiver takes it",
                    super::entry::shown(target)
                );
                Err(Refused::new(Refusal::Name, entry.as_path(), text))
            }
            _ => Ok(()),
        }
    }

    /// Looks at what stands under an entry's name.
    pub fn look(&self, entry: &Entry, parents: &mut Parents) -> Result<There, Refused> {
        let path = entry.as_path();
        let refused = |e: &io::Error| Refused::from_io(path, e);
        let parent = match parents.find(&self.dir, path) {
            Ok(parent) => parent,
            Err(e) if e.kind() == io::ErrorKind::NotFound => return Ok(There::Nothing),
            Err(e) => return Err(refused(&e)),
        };
        let name = Path::new(file_name(path));
        let meta = match parent.symlink_metadata(name) {
            Ok(meta) => meta,
            Err(e) if e.kind() == io::ErrorKind::NotFound => return Ok(There::Nothing),
            Err(e) => return Err(refused(&e)),
        };
        Ok(match &entry.kind {
            Kind::Dir if meta.is_dir() => There::Wanted,
            Kind::Link(target) if meta.is_symlink() => match parent.read_link_contents(name) {
                Ok(found) if found.as_os_str().as_bytes() == target => There::Wanted,
                _ => There::Other,
            },
            Kind::File(size) if meta.is_file() && meta.size() == *size => {
                match (meta.mtime(), meta.mtime_nsec()) == (entry.mtime.seconds, i64::from(entry.mtime.nanos)) {
                    // A file that cannot be read cannot be compared.
                    true => parent.open(name).map_or(There::Other, |f| There::Alike(f.into_std())),
                    false => There::Other,
                }
            }
            _ => There::Other,
        })
    }

    /// Whether something else than wanted has to be refused (directories are never replaced).
    pub fn may_replace(&self, entry: &Entry, parents: &mut Parents) -> bool {
        let path = entry.as_path();
        let is_dir = |parent: &Dir| parent.symlink_metadata(file_name(path)).is_ok_and(|m| m.is_dir());
        self.rules.overwrite && entry.kind != Kind::Dir && !parents.find(&self.dir, path).is_ok_and(is_dir)
    }

    /// Moves `staged`, a name in `staging`, to its own name. Without `overwrite` a name that was taken meanwhile is an error.
    pub fn place(&self, staging: &Dir, staged: &OsStr, path: &Path, parents: &mut Parents) -> Result<(), Refused> {
        let refused = |e: io::Error| Refused::from_io(path, &e);
        let parent = parents.make(&self.dir, path).map_err(refused)?;
        let name = file_name(path);
        if self.rules.overwrite {
            return rustix::fs::renameat(staging, staged, parent, name).map_err(|e| refused(e.into()));
        }
        match rustix::fs::renameat_with(staging, staged, parent, name, RenameFlags::NOREPLACE) {
            // A file system that cannot do that: a hard link fails if the name is taken, too.
            Err(rustix::io::Errno::INVAL | rustix::io::Errno::NOSYS) => {
                rustix::fs::linkat(staging, staged, parent, name, AtFlags::empty()).map_err(|e| refused(e.into()))?;
                rustix::fs::unlinkat(staging, staged, AtFlags::empty()).map_err(|e| refused(e.into()))
            }
            result => result.map_err(|e| refused(e.into())),
        }
    }

    /// The directory that a link is made in: every component is a directory and none a link, or [`links::stays_inside`] would not hold.
    pub fn real_parent(&self, path: &Path) -> io::Result<Dir> {
        let mut dir = self.dir.try_clone()?;
        for part in path.parent().into_iter().flat_map(Path::components) {
            let next = rustix::fs::openat(&dir, part.as_os_str(), OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC, Mode::empty())?;
            dir = Dir::from_std_file(File::from(next));
        }
        Ok(dir)
    }

    /// Everything that was written to this file system is on disk afterwards.
    pub fn sync(&self) -> io::Result<()> {
        Ok(rustix::fs::syncfs(real_handle(&self.dir)?)?)
    }
}

/// A handle that attributes can be set by; those of `cap-std` only lead to names (O_PATH).
pub fn real_handle(dir: &Dir) -> io::Result<File> {
    Ok(rustix::fs::openat(dir, ".", OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC, Mode::empty())?.into())
}

/// Sets a modification time and leaves the time of access.
pub fn set_mtime(file: impl AsFd, entry: &Entry) -> io::Result<()> {
    Ok(rustix::fs::futimens(file, &stamps(entry))?)
}

/// For calls that take both times.
pub fn stamps(entry: &Entry) -> Timestamps {
    Timestamps {
        last_access: Timespec { tv_sec: 0, tv_nsec: rustix::fs::UTIME_OMIT },
        last_modification: Timespec { tv_sec: entry.mtime.seconds, tv_nsec: i64::from(entry.mtime.nanos) },
    }
}

/// Hashes a file from its beginning, at most `limit` bytes; how many there were.
pub fn hash_file(file: &mut impl Read, limit: u64) -> io::Result<(blake3::Hasher, u64)> {
    let mut hasher = blake3::Hasher::new();
    let mut buffer = vec![0; super::CHUNK];
    let mut total = 0;
    while total < limit {
        let want = usize::try_from(limit - total).unwrap_or(usize::MAX).min(buffer.len());
        match file.read(&mut buffer[..want]) {
            Ok(0) => break,
            Ok(n) => {
                hasher.update(&buffer[..n]);
                total += n as u64;
            }
            Err(e) if e.kind() == io::ErrorKind::Interrupted => {}
            Err(e) => return Err(e),
        }
    }
    Ok((hasher, total))
}

/// A plan's entry for what is in place.
pub fn in_place(length: u64, hash: Hash) -> Have {
    Have { is_in_place: true, is_other: false, length, hash }
}

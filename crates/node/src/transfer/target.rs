//! The target directory: what may be written there, what is there already, and putting things under their names.
//!
//! All access goes through a directory handle of `cap-std`: no name, and no symbolic link in it, leads out of that. What is opened there is opened without
//! following a link of that name or waiting for a FIFO, and its kind is read from the descriptor.

use super::attributes::Kept;
use super::entry::{Entry, Kind, Mtime, STAGING_NAME};
use super::links;
use super::ours::{self, Identity, Ours, Seen};
use super::staging::{Grown, Staging};
use super::wire::{Record, Refusal};
use crate::cli::KeepArgs;
use cap_std::ambient_authority;
use cap_std::fs::Dir;
use rustix::fs::{AtFlags, FileType, Mode, OFlags, RenameFlags, StatxAttributes, StatxFlags, Timespec, Timestamps};
use rustix::io::Errno;
use std::ffi::OsStr;
use std::fs::File;
use std::io;
use std::os::fd::AsRawFd;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{FileExt, MetadataExt};
use std::path::{Path, PathBuf};
use std::sync::{Mutex, PoisonError};

/// How the refusal begins of a file that came in the way meanwhile: no option replaces it.
pub const SINCE: &str = "it exists since this transfer began";
/// The end of a refusal of a link, by which both ends know what advice to give.
pub const OUTSIDE: &str = "which leads out of the directory";

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

impl From<Refused> for Record {
    fn from(refused: Refused) -> Self {
        let Refused { refusal, path, message } = refused;
        Self::Refused { refusal, path, message }
    }
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
#[derive(Clone, Copy, Debug)]
pub struct Rules {
    /// Replace files and links that exist.
    pub overwrite: bool,
    /// Make symbolic links that lead out of the directory.
    pub outside_links: bool,
    /// Delete what the sender does not have, if it asks for that.
    pub may_delete: bool,
    /// Attributes that files get, if they come.
    pub kept: Kept,
    /// Permission bits that nothing gets, whatever the sender says.
    pub masked: u32,
    /// Bytes of a transfer's contents, holes included; `None`: what is free on the disk.
    pub most: Option<u64>,
}

/// Write permission of group and others: a sender does not give it to what lies here.
const FOREIGN_WRITE: u32 = 0o022;

impl Default for Rules {
    fn default() -> Self {
        Self { overwrite: false, outside_links: false, may_delete: false, kept: Kept::None, masked: FOREIGN_WRITE, most: None }
    }
}

impl Rules {
    /// As the arguments say.
    pub fn of(args: &KeepArgs) -> Self {
        let masked = if args.preserve_modes { 0 } else { umask() | FOREIGN_WRITE };
        let (kept, most) = (args.xattrs.unwrap_or_default(), args.max_size.map(|size| size.0));
        Self { overwrite: args.overwrite, outside_links: args.outside_links, may_delete: false, kept, masked, most }
    }

    /// The permission bits that an entry gets here.
    pub fn mode(&self, entry: &Entry) -> u32 {
        entry.mode & 0o777 & !self.masked
    }
}

/// The umask of this process, read without changing it for a moment; where the system does not tell, the usual one.
fn umask() -> u32 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let value = status.lines().find_map(|line| line.strip_prefix("Umask:")).and_then(|v| u32::from_str_radix(v.trim(), 8).ok());
    value.unwrap_or(FOREIGN_WRITE)
}

/// The directory that receives.
pub struct Target {
    pub(super) dir: Dir,
    path: PathBuf,
    pub(super) rules: Rules,
    /// What this transfer has put in place, or found to be right, by its entry's index.
    placed: Mutex<Ours>,
}

/// What has an entry's name at the target.
pub enum There {
    /// Nothing.
    Nothing,
    /// A file of the same size.
    SameSize(File),
    /// The directory or link that is wanted.
    Wanted,
    /// Something else.
    Other,
}

/// How placing ended that the system allowed.
#[derive(Debug, PartialEq, Eq)]
pub enum Placed {
    /// It has its name.
    There,
    /// The target takes its name for that of another entry of the transfer, which is in place.
    OneNameWith(u64),
}

/// Remembers the directory that the last name was in: names come sorted.
#[derive(Default)]
pub struct Parents {
    last: Option<(PathBuf, Dir)>,
    missing: Option<PathBuf>,
    is_writable: bool,
}

/// How often the real name of a directory goes through a staging directory: a link that lies in the target may lead there.
fn staging_depth(dir: &Dir) -> usize {
    let real = std::fs::read_link(format!("/proc/self/fd/{}", dir.as_raw_fd())).unwrap_or_default();
    real.iter().filter(|part| *part == STAGING_NAME).count()
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

    /// Why nothing can be put next to `path`; nothing if its directory is still to be made.
    pub fn check_writable(&mut self, root: &Dir, path: &Path) -> io::Result<()> {
        match self.find(root, path) {
            Err(e) if e.kind() == io::ErrorKind::NotFound => return Ok(()),
            result => drop(result?),
        }
        if let Some((_, dir)) = self.last.as_ref().filter(|_| !self.is_writable) {
            rustix::fs::accessat(dir, ".", rustix::fs::Access::WRITE_OK | rustix::fs::Access::EXEC_OK, AtFlags::empty())?;
            self.is_writable = true;
        }
        Ok(())
    }

    fn open<'a>(&'a mut self, root: &Dir, path: &Path, missing: impl FnOnce(&Path, io::Error) -> io::Result<Dir>) -> io::Result<&'a Dir> {
        let parent = path.parent().filter(|p| !p.as_os_str().is_empty()).unwrap_or(Path::new("."));
        if self.last.as_ref().is_none_or(|(known, _)| known != parent) {
            let dir = root.open_dir(parent).or_else(|e| missing(parent, e))?;
            if parent != Path::new(".") && staging_depth(&dir) > staging_depth(root) {
                return Err(io::Error::new(io::ErrorKind::PermissionDenied, "it leads into noctule's own directory"));
            }
            self.last = Some((parent.to_owned(), dir));
            self.is_writable = false;
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
        let placed = Mutex::new(Ours::below(&dir));
        Ok(Self { dir, path: path.to_owned(), rules, placed })
    }

    /// The same directory for another transfer, or one below it that is made if it is missing, under other rules.
    pub fn below(&self, below: Option<&Path>, rules: Rules) -> io::Result<Self> {
        let Some(below) = below else {
            let placed = Mutex::new(Ours::below(&self.dir));
            return Ok(Self { dir: self.dir.try_clone()?, path: self.path.clone(), rules, placed });
        };
        self.dir.create_dir_all(below)?;
        let dir = self.dir.open_dir(below)?;
        let placed = Mutex::new(Ours::below(&dir));
        Ok(Self { dir, path: self.path.join(below), rules, placed })
    }

    /// What directory it is, by whatever name.
    pub fn identity(&self) -> io::Result<Identity> {
        let stat = rustix::fs::fstat(&self.dir)?;
        Ok((stat.st_dev, stat.st_ino))
    }

    /// Room for contents of `size` bytes, of which the sender says that `stored` take room on disk? What it says is not relied on: without `most`, a limit
    /// that the receiver's owner gave, everything has to fit.
    pub fn check_space(&self, size: u64, stored: u64) -> Result<(), Refused> {
        let most = self.rules.most;
        if let Some(most) = most.filter(|most| size > *most) {
            let text = format!("{size} bytes are to come, and --max-size of the receiver allows {most}");
            return Err(Refused { refusal: Refusal::DiskFull, path: Vec::new(), message: text });
        }
        let needed = if most.is_some() { stored } else { size };
        match rustix::fs::fstatvfs(&self.dir) {
            Ok(fs) if fs.f_bavail.saturating_mul(fs.f_frsize) < needed => {
                let free = fs.f_bavail.saturating_mul(fs.f_frsize);
                let holes =
                    if stored < size { "; for files with large holes --max-size at the receiver says how much is allowed" } else { "" };
                let text = format!("{needed} bytes are to come, {free} are free in {}{holes}", self.path.display());
                Err(Refused::new(Refusal::DiskFull, &self.path, text))
            }
            _ => Ok(()),
        }
    }

    /// Names and links that are refused whatever is there.
    pub fn check_entry(&self, entry: &Entry) -> Result<(), Refused> {
        if let Err(why) = entry.check_name() {
            return Err(Refused::new(Refusal::Name, entry.as_path(), why));
        }
        match &entry.kind {
            Kind::Link(target) if target.split(|b| *b == b'/').any(|part| part == STAGING_NAME.as_bytes()) => {
                Err(Refused::new(Refusal::Name, entry.as_path(), "a symbolic link into noctule's own directory"))
            }
            Kind::Link(target) if !self.rules.outside_links && !links::stays_inside(&entry.path, target) => {
                let text = format!("a symbolic link to {}, {OUTSIDE}", super::entry::shown(target));
                Err(Refused::new(Refusal::Name, entry.as_path(), text))
            }
            _ => Ok(()),
        }
    }

    /// Looks at what has an entry's name at the target.
    pub fn look(&self, entry: &Entry, parents: &mut Parents) -> Result<There, Refused> {
        let path = entry.as_path();
        let refused = |e: &io::Error| Refused::from_io(path, e);
        let parent = match parents.find(&self.dir, path) {
            Ok(parent) => parent,
            Err(e) if e.kind() == io::ErrorKind::NotFound => return Ok(There::Nothing),
            Err(e) => return Err(refused(&e)),
        };
        let name = file_name(path);
        let stat = match rustix::fs::statat(parent, name, AtFlags::SYMLINK_NOFOLLOW) {
            Ok(stat) => stat,
            Err(Errno::NOENT) => return Ok(There::Nothing),
            Err(e) => return Err(refused(&e.into())),
        };
        Ok(match (&entry.kind, FileType::from_raw_mode(stat.st_mode)) {
            (Kind::Dir, FileType::Directory) => There::Wanted,
            (Kind::Link(target), FileType::Symlink) => match parent.read_link_contents(name) {
                Ok(found) if found.as_os_str().as_bytes() == target => There::Wanted,
                _ => There::Other,
            },
            // A file that cannot be read cannot be compared.
            (Kind::File(_), FileType::RegularFile) => self.open_same_size(entry, parents).map_or(There::Other, There::SameSize),
            _ => There::Other,
        })
    }

    /// The file under an entry's name, if it is one and has its size.
    pub fn open_same_size(&self, entry: &Entry, parents: &mut Parents) -> Option<File> {
        let path = entry.as_path();
        let parent = parents.find(&self.dir, path).ok()?;
        let file = ours::open(parent, file_name(path)).ok()?;
        let meta = file.metadata().ok()?;
        (meta.is_file() && meta.len() == entry.size()).then_some(file)
    }

    /// Whether a file has the name that is newer than the entry; the file, if so.
    pub fn newer(&self, entry: &Entry, parents: &mut Parents) -> Option<Seen> {
        let path = entry.as_path();
        let parent = parents.find(&self.dir, path).ok()?;
        let stat = rustix::fs::statat(parent, file_name(path), AtFlags::SYMLINK_NOFOLLOW).ok()?;
        let is_newer = FileType::from_raw_mode(stat.st_mode) == FileType::RegularFile && Mtime::of(&stat) > entry.mtime;
        is_newer.then(|| Seen::at(parent, file_name(path)).ok()).flatten()
    }

    /// Whether something else than wanted may be replaced (directories never are), and can be.
    pub fn may_replace(&self, entry: &Entry, parents: &mut Parents) -> bool {
        let path = entry.as_path();
        let Ok(parent) = parents.find(&self.dir, path) else { return false };
        let stat = rustix::fs::statx(parent, file_name(path), AtFlags::SYMLINK_NOFOLLOW, StatxFlags::TYPE);
        let can_be = stat.is_ok_and(|s| {
            !s.stx_attributes.intersects(StatxAttributes::IMMUTABLE | StatxAttributes::APPEND)
                && FileType::from_raw_mode(s.stx_mode.into()) != FileType::Directory
        });
        self.rules.overwrite && entry.kind != Kind::Dir && can_be
    }

    /// Notes that an entry is in place as this file, which was there when it was `seen`; if another entry of this transfer has its place, which one.
    ///
    /// # Errors
    /// Something else has its name now.
    pub fn settle(&self, index: u64, path: &Path, seen: Seen) -> Result<Placed, Refused> {
        let mut placed = self.placed.lock().unwrap_or_else(PoisonError::into_inner);
        let mut parents = Parents::default();
        let now = parents.find(&self.dir, path).and_then(|parent| Seen::at(parent, file_name(path)));
        let now = now.map_err(|e| Refused::from_io(path, &e))?;
        // What looks as it did then is still what was compared, whatever other names it has.
        let is_same_id = now.id == seen.id;
        let other = match is_same_id && now.mark == seen.mark {
            true => placed.whose_inode(now.id),
            false => placed.whose(path, now, &mut self.opener()),
        };
        if let Some(other) = other.filter(|other| *other != index) {
            return Ok(Placed::OneNameWith(other));
        }
        if !is_same_id || !now.mark.has_content_of(&seen.mark) {
            return Err(Refused::new(Refusal::Exists, path, format!("{SINCE}: another file has taken its place")));
        }
        placed.found(index, path, now);
        Ok(Placed::There)
    }

    /// Opens names of the target to look at what they are.
    fn opener(&self) -> impl FnMut(&Path) -> io::Result<File> {
        |path| ours::open(Parents::default().find(&self.dir, path)?, file_name(path))
    }

    /// The entry of this transfer that is in place under this name.
    pub fn whose(&self, path: &Path) -> Option<u64> {
        let mut placed = self.placed.lock().unwrap_or_else(PoisonError::into_inner);
        let mut parents = Parents::default();
        let there = Seen::at(parents.find(&self.dir, path).ok()?, file_name(path)).ok()?;
        placed.whose(path, there, &mut self.opener())
    }

    /// Gives a whole file its name. What was there when the transfer began is only replaced if `replaces`; what the transfer has put there itself never is.
    pub fn place(
        &self,
        staging: &Staging,
        grown: &Grown,
        index: u64,
        path: &Path,
        replaces: bool,
        parents: &mut Parents,
    ) -> Result<Placed, Refused> {
        let refused = |e: io::Error| Refused::from_io(path, &e);
        let parent = parents.make(&self.dir, path).map_err(refused)?;
        let (name, staged) = (file_name(path), grown.name.as_str());
        // One at a time: between looking and placing no other stream of this transfer may place a name that is the same here.
        let mut placed = self.placed.lock().unwrap_or_else(PoisonError::into_inner);
        match Seen::at(parent, name) {
            Ok(there) => {
                if let Some(other) = placed.whose(path, there, &mut self.opener()).filter(|other| *other != index) {
                    return Ok(Placed::OneNameWith(other));
                }
                if !replaces {
                    let text = format!(
                        "{SINCE}; if it did not appear from elsewhere, the file system takes another name of the transfer for the same"
                    );
                    return Err(Refused::new(Refusal::Exists, path, text));
                }
                rustix::fs::renameat(&staging.dir, staged, parent, name).map_err(|e| refused(e.into()))?;
            }
            Err(e) if e.kind() == io::ErrorKind::NotFound => {
                rename_new(&staging.dir, staged, parent, name).map_err(|e| refused(e.into()))?
            }
            Err(e) => return Err(refused(e)),
        }
        // By name it was moved; that it is the verified file says its inode, and where a file system makes those up, its content.
        let there = Seen::at(parent, name).map_err(refused)?;
        let whole = grown.file.metadata().map_err(refused)?;
        if there.id != (whole.dev(), whole.ino()) {
            let file = ours::open(parent, name);
            if !file.is_ok_and(|file| is_same_content(&file, &grown.file)) {
                return Err(Refused::new(
                    Refusal::Hash,
                    path,
                    "it was exchanged while it was put in place: another process writes to this directory",
                ));
            }
        }
        placed.placed(index, path, there);
        Ok(Placed::There)
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

/// For calls that take both times.
pub fn stamps(entry: &Entry) -> Timestamps {
    Timestamps {
        last_access: Timespec { tv_sec: 0, tv_nsec: rustix::fs::UTIME_OMIT },
        last_modification: Timespec { tv_sec: entry.mtime.seconds, tv_nsec: i64::from(entry.mtime.nanos) },
    }
}

/// Moves a file to a name that is free.
fn rename_new(from: &Dir, staged: &str, parent: &Dir, name: &OsStr) -> Result<(), Errno> {
    match rustix::fs::renameat_with(from, staged, parent, name, RenameFlags::NOREPLACE) {
        Err(Errno::INVAL | Errno::NOSYS | Errno::OPNOTSUPP) => {}
        result => return result,
    }
    // A file system that cannot do that: a hard link fails if the name is taken, too.
    match rustix::fs::linkat(from, staged, parent, name, AtFlags::empty()) {
        Ok(()) => return rustix::fs::unlinkat(from, staged, AtFlags::empty()),
        Err(Errno::PERM | Errno::OPNOTSUPP | Errno::NOSYS | Errno::MLINK | Errno::INVAL) => {}
        Err(e) => return Err(e),
    }
    // Nor that. The name was free a moment ago, and this transfer places one file at a time.
    match rustix::fs::statat(parent, name, AtFlags::SYMLINK_NOFOLLOW) {
        Err(Errno::NOENT) => rustix::fs::renameat(from, staged, parent, name),
        Ok(_) => Err(Errno::EXIST),
        Err(e) => Err(e),
    }
}

fn is_same_content(a: &File, b: &File) -> bool {
    let (mut left, mut right, mut at) = (vec![0; super::CHUNK], vec![0; super::CHUNK], 0);
    loop {
        let (Ok(n), Ok(m)) = (a.read_at(&mut left, at), b.read_at(&mut right, at)) else { return false };
        match n.min(m) {
            0 => return n == m,
            both if left[..both] != right[..both] => return false,
            both => at += both as u64,
        }
    }
}

/// Gives a file the permissions and the time of its entry. False if the file system keeps none: no failure, and the caller says it once.
pub fn set_attributes(file: &File, entry: &Entry, rules: &Rules) -> io::Result<bool> {
    let is_refused = |e: Errno| match e {
        Errno::PERM | Errno::OPNOTSUPP | Errno::NOSYS | Errno::ACCESS => Ok(false),
        e => Err(io::Error::from(e)),
    };
    let mode = rustix::fs::fchmod(file, Mode::from_raw_mode(rules.mode(entry))).map_or_else(is_refused, |()| Ok(true))?;
    let time = rustix::fs::futimens(file, &stamps(entry)).map_or_else(is_refused, |()| Ok(true))?;
    Ok(mode && time)
}

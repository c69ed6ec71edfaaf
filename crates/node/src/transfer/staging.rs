//! Where files grow until they are whole: the directory `.noctule-partial` in the target directory, opened once and used by its descriptor only.
//!
//! A large file grows under a name that follows from its sender's key and its own name, size and time. It is locked from the moment at which what is there
//! of it is looked at until it has its own name. After whatever kind of end, the next try of the same sender finds it and goes on. Small files have names of
//! the moment. Both move to their own names when their hash is right.

use super::entry::{Entry, STAGING_NAME};
use cap_std::fs::Dir;
use noctule::PublicKey;
use rustix::fs::{AtFlags, FlockOperation, Mode, OFlags, Stat};
use rustix::io::Errno;
use std::fs::File;
use std::io::{self, Read, Write};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::MetadataExt;
use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::{Duration, SystemTime};

/// Names of the moment begin so; nobody goes on with such a file.
const MOMENT: &str = "tmp-";
/// Hexadecimal digits of names that follow from content.
const NAME_LEN: usize = 32;
/// Hexadecimal digits by which the files of one key are known.
const OWNER_LEN: usize = 16;
/// Partial files that no transfer has gone on with for so long are removed.
const KEPT_FOR: Duration = Duration::from_secs(14 * 24 * 3600);
/// Files that are kept for one key.
const KEPT_FILES: usize = 256;
/// Opens no link and waits for no FIFO, whatever has the name.
const PLAIN: OFlags = OFlags::NOFOLLOW.union(OFlags::NONBLOCK).union(OFlags::CLOEXEC);

/// The staging directory as one transfer uses it, with a shared lock on it.
pub struct Staging {
    /// The directory that it lies in.
    root: Dir,
    /// Handle.
    pub dir: Dir,
    owner: PublicKey,
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

/// A file that grows, locked.
#[derive(Debug)]
pub struct Grown {
    /// Positioned at its end.
    pub file: File,
    /// In the staging directory.
    pub name: String,
    /// It is found again by the next try, and so may stay.
    pub is_lasting: bool,
}

fn open_dir(root: &Dir) -> Result<File, Errno> {
    // Not through a link: what grows here must be on the same file system, and must not be read by others' choice.
    Ok(File::from(rustix::fs::openat(root, STAGING_NAME, OFlags::DIRECTORY | PLAIN, Mode::empty())?))
}

/// Nobody but this user may have put anything there.
fn check_owner(root: &Dir, dir: &File) -> io::Result<()> {
    let is_ours = |stat: &Stat| stat.st_uid == rustix::process::geteuid().as_raw() && stat.st_mode & 0o077 == 0;
    let stat = rustix::fs::fstat(dir)?;
    if is_ours(&stat) {
        return Ok(());
    }
    // Made by an earlier version, which let others read, or by hand: nobody else could write to it.
    if stat.st_uid == rustix::process::geteuid().as_raw() && stat.st_mode & 0o022 == 0 {
        rustix::fs::fchmod(dir, Mode::RWXU)?;
        return Ok(());
    }
    // A file system may keep neither owners nor modes: then a directory that is made now looks no better.
    let probe = format!("{STAGING_NAME}-{:016x}", random()?);
    rustix::fs::mkdirat(root, probe.as_str(), Mode::RWXU)?;
    let fresh = rustix::fs::statat(root, probe.as_str(), AtFlags::SYMLINK_NOFOLLOW);
    rustix::fs::unlinkat(root, probe.as_str(), AtFlags::REMOVEDIR)?;
    let fresh = fresh?;
    if !is_ours(&fresh) && (fresh.st_uid, fresh.st_mode) == (stat.st_uid, stat.st_mode) {
        return Ok(());
    }
    let text = format!(
        "it belongs to user {}, or others may write to it (mode {:o}): make sure of what is in it, then remove it, or receive into a directory of your own",
        stat.st_uid,
        stat.st_mode & 0o7777
    );
    Err(io::Error::new(io::ErrorKind::PermissionDenied, text))
}

fn random() -> io::Result<u64> {
    let mut bytes = [0; 8];
    getrandom::fill(&mut bytes).map_err(|e| io::Error::other(e.to_string()))?;
    Ok(u64::from_ne_bytes(bytes))
}

/// Opens and locks the directory; `None` if it is not there and is not to be made.
fn open_locked(root: &Dir, is_made: bool) -> io::Result<Option<Dir>> {
    loop {
        if is_made {
            match rustix::fs::mkdirat(root, STAGING_NAME, Mode::RWXU) {
                Err(Errno::EXIST) => {}
                result => result?,
            }
        }
        let dir = match open_dir(root) {
            Err(Errno::NOENT) if is_made => continue,
            Err(Errno::NOENT) => return Ok(None),
            result => result?,
        };
        check_owner(root, &dir)?;
        let is_alone = rustix::fs::flock(&dir, FlockOperation::NonBlockingLockExclusive).is_ok();
        let dir = Dir::from_std_file(dir);
        if is_alone {
            remove_moments(&dir);
        }
        rustix::fs::flock(&dir, FlockOperation::LockShared)?;
        // Removed by its last user while we waited for the lock?
        if rustix::fs::fstat(&dir)?.st_nlink > 0 {
            return Ok(Some(dir));
        }
    }
}

fn names(dir: &Dir) -> Vec<Vec<u8>> {
    dir.entries().into_iter().flatten().flatten().map(|e| e.file_name().as_bytes().to_vec()).collect()
}

/// Files of the moment that nobody will go on with; called with the directory to ourselves.
fn remove_moments(dir: &Dir) {
    for name in names(dir).iter().filter(|name| name.starts_with(MOMENT.as_bytes())) {
        let _ = rustix::fs::unlinkat(dir, &name[..], AtFlags::empty());
    }
}

fn prefix(owner: &PublicKey) -> String {
    format!("{}-", &blake3::hash(&owner.0).to_hex()[..OWNER_LEN])
}

/// Opens a regular file of the directory; `None`: there is none, or it is something else.
fn open_plain(dir: &Dir, name: &str, flags: OFlags) -> io::Result<Option<File>> {
    match rustix::fs::openat(dir, name, flags | PLAIN, Mode::RUSR | Mode::WUSR) {
        Err(Errno::NOENT | Errno::LOOP | Errno::NXIO | Errno::ISDIR) => Ok(None),
        Err(e) => Err(e.into()),
        Ok(file) => {
            let file = File::from(file);
            Ok(file.metadata()?.is_file().then_some(file))
        }
    }
}

/// A file that waits to be gone on with.
struct Kept {
    age: Duration,
    /// Bytes on disk.
    stored: u64,
    name: Vec<u8>,
}

/// Which of a key's files must go: the old, and the oldest beyond what one key may keep.
fn outdated(mut files: Vec<Kept>, room: u64) -> Vec<Vec<u8>> {
    files.sort_by_key(|f| f.age);
    let (mut number, mut sum) = (0, 0u64);
    files.retain(|file| {
        (number, sum) = (number + 1, sum.saturating_add(file.stored));
        number > KEPT_FILES || sum > room || file.age > KEPT_FOR
    });
    files.into_iter().map(|f| f.name).collect()
}

impl Staging {
    /// Opens (and makes) the staging directory of `root` for a transfer of this name and this sender.
    pub fn open(root: &Dir, owner: PublicKey, transfer: &blake3::Hash) -> io::Result<Self> {
        let dir = open_locked(root, true)?.ok_or_else(|| io::Error::from(io::ErrorKind::NotFound))?;
        Self::of(root, dir, owner, transfer)
    }

    /// The same, if there is one; makes nothing.
    pub fn find(root: &Dir, owner: PublicKey, transfer: &blake3::Hash) -> io::Result<Option<Self>> {
        open_locked(root, false)?.map(|dir| Self::of(root, dir, owner, transfer)).transpose()
    }

    fn of(root: &Dir, dir: Dir, owner: PublicKey, transfer: &blake3::Hash) -> io::Result<Self> {
        tidy(&dir, &owner);
        let mut hasher = blake3::Hasher::new();
        hasher.update(&owner.0).update(transfer.as_bytes());
        let name = format!("{}{}.dirs", prefix(&owner), &hasher.finalize().to_hex()[..NAME_LEN]);
        let mut text = Vec::new();
        if let Some(mut journal) = open_plain(&dir, &name, OFlags::RDONLY)? {
            journal.read_to_end(&mut text)?;
        }
        let paths = text.split(|b| *b == 0).filter(|p| !p.is_empty()).map(<[u8]>::to_vec).collect();
        let made = Mutex::new(Journal { name, paths, file: None });
        Ok(Self { root: root.try_clone()?, dir, owner, run: random()?, next: AtomicU64::new(0), made })
    }

    fn name_of(&self, entry: &Entry) -> String {
        let mut hasher = blake3::Hasher::new();
        hasher.update(&self.owner.0).update(entry.content_id().as_bytes());
        format!("{}{}.part", prefix(&self.owner), &hasher.finalize().to_hex()[..NAME_LEN])
    }

    /// What an earlier try of the same sender left of a file, locked, and its length; positioned at its beginning.
    pub fn left(&self, entry: &Entry) -> io::Result<Option<(Grown, u64)>> {
        let name = self.name_of(entry);
        let Some(file) = open_plain(&self.dir, &name, OFlags::RDWR)? else { return Ok(None) };
        if !lock(&file)? {
            return Ok(None);
        }
        // Placed, or removed, between opening and locking?
        let is_there = open_plain(&self.dir, &name, OFlags::RDONLY)?.is_some_and(|f| is_same(&f, &file));
        let meta = file.metadata()?;
        if !is_there || meta.len() == 0 || meta.len() > entry.size() || meta.nlink() != 1 {
            return Ok(None);
        }
        Ok(Some((Grown { file, name, is_lasting: true }, meta.len())))
    }

    /// The same of a file that grows from its beginning. One that is more hole than data is not worth the hashing: it is removed.
    pub fn left_in_order(&self, entry: &Entry) -> io::Result<Option<(Grown, u64)>> {
        let Some((grown, length)) = self.left(entry)? else { return Ok(None) };
        if grown.file.metadata()?.blocks() * 512 < length / 2 {
            self.remove(&grown.name);
            return Ok(None);
        }
        Ok(Some((grown, length)))
    }

    /// Makes the file in which an entry grows, or opens it as it is; `None`: another transfer has it.
    pub fn grow(&self, entry: &Entry) -> io::Result<Option<Grown>> {
        let name = self.name_of(entry);
        loop {
            let Some(file) = open_plain(&self.dir, &name, OFlags::RDWR | OFlags::CREATE)? else {
                return Err(io::Error::new(io::ErrorKind::AlreadyExists, "something else has the name of its partial file"));
            };
            if !lock(&file)? {
                return Ok(None);
            }
            // Removed, or placed, between opening and locking?
            if file.metadata()?.nlink() == 1 && open_plain(&self.dir, &name, OFlags::RDONLY)?.is_some_and(|f| is_same(&f, &file)) {
                return Ok(Some(Grown { file, name, is_lasting: true }));
            }
        }
    }

    /// A file, or a name for a link, of the moment.
    pub fn moment(&self) -> String {
        format!("{MOMENT}{:016x}-{}", self.run, self.next.fetch_add(1, Relaxed))
    }

    /// Makes a file of the moment.
    pub fn create(&self) -> io::Result<Grown> {
        let name = self.moment();
        let flags = OFlags::RDWR | OFlags::CREATE | OFlags::EXCL | PLAIN;
        let file = rustix::fs::openat(&self.dir, name.as_str(), flags, Mode::RUSR | Mode::WUSR)?;
        Ok(Grown { file: file.into(), name, is_lasting: false })
    }

    /// Removes a file that turned out wrong.
    pub fn remove(&self, name: &str) {
        let _ = rustix::fs::unlinkat(&self.dir, name, AtFlags::empty());
    }

    /// Notes that this transfer is about to make a directory, so that a later try knows it as its own.
    pub fn note_dir(&self, path: &[u8]) -> io::Result<()> {
        let mut journal = self.made.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
        if journal.file.is_none() {
            let file = open_plain(&self.dir, &journal.name, OFlags::WRONLY | OFlags::APPEND | OFlags::CREATE)?;
            journal.file = Some(file.ok_or_else(|| io::Error::from(io::ErrorKind::AlreadyExists))?);
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
    pub fn finish(&self) {
        let journal = self.made.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
        if journal.file.is_some() || !journal.paths.is_empty() {
            self.remove(&journal.name);
        }
        self.leave();
    }

    /// Removes the directory, unless another transfer uses it or partial files are kept there.
    fn leave(&self) {
        if rustix::fs::flock(&self.dir, FlockOperation::NonBlockingLockExclusive).is_err() {
            return;
        }
        // Once it is removed, its name may be that of another.
        let is_there = rustix::fs::fstat(&self.dir).is_ok_and(|stat| stat.st_nlink > 0);
        if is_there && rustix::fs::unlinkat(&self.root, STAGING_NAME, AtFlags::REMOVEDIR).is_err() {
            // Others go on sharing it while this transfer takes its leave.
            let _ = rustix::fs::flock(&self.dir, FlockOperation::NonBlockingLockShared);
        }
    }
}

/// The last that leaves tidies up, whether it arrived whole or broke off with nothing to keep.
impl Drop for Staging {
    fn drop(&mut self) {
        self.leave();
    }
}

fn lock(file: &File) -> io::Result<bool> {
    match rustix::fs::flock(file, FlockOperation::NonBlockingLockExclusive) {
        Err(Errno::WOULDBLOCK) => Ok(false),
        result => Ok(result.map(|()| true)?),
    }
}

fn is_same(a: &File, b: &File) -> bool {
    matches!((a.metadata(), b.metadata()), (Ok(a), Ok(b)) if (a.dev(), a.ino()) == (b.dev(), b.ino()))
}

/// Removes what has waited for too long, and what is too much for one key; what is locked is in use.
fn tidy(dir: &Dir, owner: &PublicKey) {
    let (prefix, now) = (prefix(owner), SystemTime::now());
    let (mut own, mut gone) = (Vec::new(), Vec::new());
    for name in names(dir).into_iter().filter(|name| !name.starts_with(MOMENT.as_bytes())) {
        let Ok(stat) = rustix::fs::statat(dir, &name[..], AtFlags::SYMLINK_NOFOLLOW) else { continue };
        // Not the time of modification, which is the sender's once a file is whole.
        let changed = SystemTime::UNIX_EPOCH + Duration::from_secs(u64::try_from(stat.st_ctime).unwrap_or(0));
        let age = now.duration_since(changed).unwrap_or_default();
        match name.starts_with(prefix.as_bytes()) {
            true => own.push(Kept { age, stored: u64::try_from(stat.st_blocks).unwrap_or(0) * 512, name }),
            false if age > KEPT_FOR => gone.push(name),
            false => {}
        }
    }
    let free = rustix::fs::fstatvfs(dir).map_or(u64::MAX, |fs| fs.f_bavail.saturating_mul(fs.f_frsize));
    let room = own.iter().fold(free, |sum, file| sum.saturating_add(file.stored)) / 2;
    gone.extend(outdated(own, room));
    for name in gone {
        let Ok(file) = rustix::fs::openat(dir, &name[..], OFlags::RDONLY | PLAIN, Mode::empty()) else { continue };
        if lock(&File::from(file)).is_ok_and(|is_free| is_free) {
            let _ = rustix::fs::unlinkat(dir, &name[..], AtFlags::empty());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::entry::{Kind, Mtime};
    use super::*;
    use cap_std::ambient_authority;
    use std::os::unix::fs::{PermissionsExt, symlink};

    const A: PublicKey = PublicKey([1; 32]);
    const B: PublicKey = PublicKey([2; 32]);

    fn root(dir: &tempfile::TempDir) -> Dir {
        Dir::open_ambient_dir(dir.path(), ambient_authority()).unwrap()
    }

    fn entry() -> Entry {
        Entry { path: b"f".to_vec(), kind: Kind::File(1000), mode: 0o644, mtime: Mtime::default() }
    }

    fn open(root: &Dir, owner: PublicKey) -> Staging {
        Staging::open(root, owner, &blake3::hash(b"manifest")).unwrap()
    }

    #[test]
    fn partial_file_belongs_to_its_sender_and_is_locked_while_it_is_looked_at() {
        let dir = tempfile::tempdir().unwrap();
        let (of_a, of_b) = (open(&root(&dir), A), open(&root(&dir), B));
        let mut grown = of_a.grow(&entry()).unwrap().unwrap();
        grown.file.write_all(b"beginning").unwrap();
        assert!(of_a.grow(&entry()).unwrap().is_none() && of_a.left(&entry()).unwrap().is_none(), "locked");
        drop(grown);
        assert!(of_b.left(&entry()).unwrap().is_none(), "what another key sent is not told");
        let (left, length) = of_a.left(&entry()).unwrap().unwrap();
        assert_eq!(length, 9);
        assert!(of_a.grow(&entry()).unwrap().is_none(), "from the survey on");
        drop(left);
        let mode = |path: &str| std::fs::metadata(dir.path().join(path)).unwrap().permissions().mode() & 0o777;
        assert_eq!(mode(STAGING_NAME), 0o700);
    }

    #[test]
    fn directory_that_others_could_have_filled_is_refused() {
        let dir = tempfile::tempdir().unwrap();
        let staging = dir.path().join(STAGING_NAME);
        std::fs::create_dir(&staging).unwrap();
        std::fs::set_permissions(&staging, std::fs::Permissions::from_mode(0o777)).unwrap();
        let refused = Staging::open(&root(&dir), A, &blake3::hash(b"m")).err().unwrap();
        assert!(refused.to_string().contains("others may write"), "{refused}");
        // Readable only, as an earlier version made it: closed.
        std::fs::set_permissions(&staging, std::fs::Permissions::from_mode(0o755)).unwrap();
        let open = open(&root(&dir), A);
        assert_eq!(std::fs::metadata(&staging).unwrap().permissions().mode() & 0o777, 0o700);
        // The last that leaves removes it, where nothing waits in it.
        drop(open);
        assert!(!staging.exists());
        std::fs::create_dir(dir.path().join("elsewhere")).unwrap();
        symlink("elsewhere", &staging).unwrap();
        assert!(Staging::open(&root(&dir), A, &blake3::hash(b"m")).is_err());
        // Of another user, where that can be made.
        if rustix::process::geteuid().is_root() {
            std::fs::remove_file(&staging).unwrap();
            std::fs::create_dir(&staging).unwrap();
            std::os::unix::fs::chown(&staging, Some(65_534), None).unwrap();
            std::fs::set_permissions(&staging, std::fs::Permissions::from_mode(0o700)).unwrap();
            let refused = Staging::find(&root(&dir), A, &blake3::hash(b"m")).err().unwrap();
            assert!(refused.to_string().contains("user 65534"), "{refused}");
        }
    }

    #[test]
    fn neither_links_nor_pipes_are_taken_for_a_partial_file() {
        let dir = tempfile::tempdir().unwrap();
        let staging = open(&root(&dir), A);
        let name = staging.grow(&entry()).unwrap().unwrap().name;
        let path = dir.path().join(STAGING_NAME).join(&name);
        std::fs::remove_file(&path).unwrap();
        std::fs::write(dir.path().join("mine"), b"mine").unwrap();
        symlink("../mine", &path).unwrap();
        assert!(staging.left(&entry()).unwrap().is_none() && staging.grow(&entry()).is_err());
        std::fs::remove_file(&path).unwrap();
        rustix::fs::mknodat(&staging.dir, name.as_str(), rustix::fs::FileType::Fifo, Mode::RWXU, 0).unwrap();
        assert!(staging.left(&entry()).unwrap().is_none() && staging.grow(&entry()).is_err());
        assert_eq!(std::fs::read(dir.path().join("mine")).unwrap(), b"mine");
    }

    /// S1: 14 bytes left a partial file of 4 GiB that every later manifest made this side hash.
    #[test]
    fn partial_file_that_is_more_hole_than_data_is_not_kept() {
        let dir = tempfile::tempdir().unwrap();
        let staging = open(&root(&dir), A);
        let entry = Entry { kind: Kind::File(1 << 40), ..entry() };
        let grown = staging.grow(&entry).unwrap().unwrap();
        grown.file.set_len(4 << 30).unwrap();
        drop(grown);
        assert!(staging.left_in_order(&entry).unwrap().is_none());
        assert_eq!(std::fs::read_dir(dir.path().join(STAGING_NAME)).unwrap().count(), 0);
    }

    #[test]
    fn files_of_a_key_go_with_age_and_beyond_their_number_and_their_room() {
        let day = Duration::from_secs(24 * 3600);
        let kept = |age: u32, stored: u64, name: &str| Kept { age: day * age, stored, name: name.into() };
        let gone = |files, room| outdated(files, room).into_iter().map(|n| String::from_utf8(n).unwrap()).collect::<Vec<_>>();
        assert_eq!(gone(vec![kept(15, 1, "old"), kept(13, 1, "new")], 100), ["old"]);
        assert_eq!(gone(vec![kept(3, 50, "c"), kept(1, 50, "a"), kept(2, 50, "b")], 100), ["c"]);
        let many =
            (0..KEPT_FILES + 2).map(|i| Kept { age: Duration::from_secs(i as u64), stored: 0, name: i.to_string().into() }).collect();
        assert_eq!(gone(many, 100), ["256", "257"]);
    }
}

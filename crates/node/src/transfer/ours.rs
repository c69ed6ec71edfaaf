//! What a transfer has put in place or found to be right, so that it never takes its own file for an older one that may be replaced.
//!
//! Two names are one file if device and inode are the same. Some file systems make inodes up, a new one for each name: there two names may be one if size and
//! times are the same, and they are if what is done to one shows at the other.

use rustix::fd::AsFd;
use rustix::fs::{AtFlags, FileType, Mode, OFlags, StatxFlags, StatxTimestamp, makedev};
use std::collections::HashMap;
use std::ffi::OsStr;
use std::fs::File;
use std::io;
use std::path::{Path, PathBuf};
use std::time::Duration;

/// Device and inode.
pub type Identity = (u64, u64);

/// Magic numbers (statfs(2)) of file systems that may give one file several inodes: FUSE, SMB, CIFS, SMB 2, 9P, and those of virtual machines.
const MADE_UP_INODES: [u64; 8] = [0x6573_5546, 0x517b, 0xff53_4d42, 0xfe53_4d42, 0x0102_1997, 0x786f_4256, 0xbacb_acbc, 0x7c7c_6673];
/// Looks at a file whose time of change has to move on, and the pause between two.
const LOOKS: u32 = 50;
const PAUSE: Duration = Duration::from_millis(2);

/// Size and times, which files that are one have in common.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Mark {
    size: u64,
    modified: (i64, u32),
    changed: (i64, u32),
}

impl Mark {
    /// Size and time of modification are the same.
    pub fn has_content_of(&self, other: &Self) -> bool {
        (self.size, self.modified) == (other.size, other.modified)
    }
}

/// A file as its file system shows it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Seen {
    /// Device and inode.
    pub id: Identity,
    /// Size and times.
    pub mark: Mark,
    /// Its kind.
    pub kind: FileType,
}

impl Seen {
    /// What has this name now: the file system is asked, whatever the kernel remembers. A link is not followed.
    pub fn at(parent: impl AsFd, name: &OsStr) -> io::Result<Self> {
        Self::look(parent, name, AtFlags::SYMLINK_NOFOLLOW)
    }

    /// An open file.
    pub fn of(file: &File) -> io::Result<Self> {
        Self::look(file, OsStr::new(""), AtFlags::EMPTY_PATH)
    }

    fn look(at: impl AsFd, name: &OsStr, flags: AtFlags) -> io::Result<Self> {
        let stat = rustix::fs::statx(at, name, flags | AtFlags::STATX_FORCE_SYNC, StatxFlags::BASIC_STATS)?;
        let time = |t: StatxTimestamp| (t.tv_sec, t.tv_nsec);
        Ok(Self {
            id: (makedev(stat.stx_dev_major, stat.stx_dev_minor), stat.stx_ino),
            mark: Mark { size: stat.stx_size, modified: time(stat.stx_mtime), changed: time(stat.stx_ctime) },
            kind: FileType::from_raw_mode(stat.stx_mode.into()),
        })
    }
}

/// Whether the file system of this directory may give one file several inodes.
pub fn makes_up_inodes(dir: impl AsFd) -> bool {
    // The type of the field differs between architectures.
    #[allow(clippy::unnecessary_cast, reason = "the type differs between architectures")]
    rustix::fs::fstatfs(dir).is_ok_and(|fs| MADE_UP_INODES.contains(&(fs.f_type as u64 & 0xffff_ffff)))
}

/// See the file's heading.
#[derive(Debug, Default)]
pub struct Ours {
    by_inode: HashMap<Identity, u64>,
    /// Where inodes say nothing.
    claims: Option<Claims>,
}

/// Entries by what their files look like.
#[derive(Debug, Default)]
struct Claims {
    /// Time of change of the first file that was placed: what changed before is not ours.
    since: Option<(i64, u32)>,
    /// By size and time of modification.
    alike: HashMap<(u64, (i64, u32)), Vec<Claim>>,
}

#[derive(Debug)]
struct Claim {
    index: u64,
    path: PathBuf,
    /// When its file last changed, of a file that was there before. One that was placed may change once more, when the last name in the staging directory goes.
    found: Option<(i64, u32)>,
}

impl Ours {
    /// Of a transfer below this directory: nothing so far.
    pub fn below(dir: impl AsFd) -> Self {
        Self { by_inode: HashMap::new(), claims: makes_up_inodes(dir).then(Claims::default) }
    }

    /// An entry was placed as this file.
    pub fn placed(&mut self, index: u64, path: &Path, seen: Seen) {
        if let Some(claims) = &mut self.claims {
            claims.since.get_or_insert(seen.mark.changed);
        }
        self.claim(index, path, seen, None);
    }

    /// An entry is in place as this file, which was there before.
    pub fn found(&mut self, index: u64, path: &Path, seen: Seen) {
        self.claim(index, path, seen, Some(seen.mark.changed));
    }

    fn claim(&mut self, index: u64, path: &Path, seen: Seen, found: Option<(i64, u32)>) {
        self.by_inode.insert(seen.id, index);
        if let Some(claims) = &mut self.claims {
            let claim = Claim { index, path: path.to_owned(), found };
            claims.alike.entry((seen.mark.size, seen.mark.modified)).or_default().push(claim);
        }
    }

    /// The entry that is in place as the file of this inode.
    pub fn whose_inode(&self, id: Identity) -> Option<u64> {
        self.by_inode.get(&id).copied()
    }

    /// The entry that is in place as this file, which has the name of `path`. `open` opens names of the target.
    pub fn whose(&mut self, path: &Path, seen: Seen, open: &mut dyn FnMut(&Path) -> io::Result<File>) -> Option<u64> {
        let by_inode = self.whose_inode(seen.id);
        if by_inode.is_some() || seen.kind != FileType::RegularFile {
            return by_inode;
        }
        let Claims { since, alike } = self.claims.as_mut()?;
        let changed = seen.mark.changed;
        let may_be = |claim: &&mut Claim| match claim.found {
            Some(found) => found == changed,
            None => since.is_some_and(|since| since <= changed),
        };
        for claim in alike.get_mut(&(seen.mark.size, seen.mark.modified))?.iter_mut().filter(may_be) {
            let Ok(file) = open(&claim.path) else { continue };
            match is_one(path, &file, open) {
                Ok((is_one, now)) => {
                    claim.found = claim.found.map(|_| now);
                    if is_one {
                        return Some(claim.index);
                    }
                }
                // Nothing is replaced that may be ours.
                Err(_) => return Some(claim.index),
            }
        }
        None
    }
}

/// Whether `path` leads to this file, of which nothing is changed but its time of change; and that time.
///
/// # Errors
/// It cannot be found out.
fn is_one(path: &Path, other: &File, open: &mut dyn FnMut(&Path) -> io::Result<File>) -> io::Result<(bool, (i64, u32))> {
    let mode = Mode::from_raw_mode(rustix::fs::fstat(other)?.st_mode);
    let before = Seen::of(&open(path)?)?.mark;
    for _ in 0..LOOKS {
        rustix::fs::fchmod(other, mode)?;
        let now = Seen::of(other)?.mark;
        if now.changed != before.changed {
            return Ok((Seen::of(&open(path)?)?.mark == now, now.changed));
        }
        // Times of change move in steps of some milliseconds.
        std::thread::sleep(PAUSE);
    }
    Err(io::ErrorKind::Unsupported.into())
}

/// Opens a file of a directory for looking at it: neither through a link nor waiting.
pub fn open(parent: impl AsFd, name: &OsStr) -> io::Result<File> {
    let flags = OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::CLOEXEC;
    Ok(rustix::fs::openat(parent, name, flags, Mode::empty())?.into())
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;

    /// Of a file system that gives each name an inode of its own.
    fn made_up(dir: &Path, name: &str, inode: u64) -> Seen {
        let seen = Seen::of(&File::open(dir.join(name)).unwrap()).unwrap();
        Seen { id: (seen.id.0, inode), ..seen }
    }

    #[test]
    fn names_with_inodes_of_their_own_are_one_if_a_change_of_one_shows_at_the_other() {
        let dir = tempfile::tempdir().unwrap();
        let dir = dir.path();
        fs::write(dir.join("README"), b"one").unwrap();
        fs::hard_link(dir.join("README"), dir.join("readme")).unwrap();
        let times = fs::metadata(dir.join("README")).unwrap().modified().unwrap();
        fs::write(dir.join("other"), b"two").unwrap();
        File::options().write(true).open(dir.join("other")).unwrap().set_modified(times).unwrap();
        let whose = |ours: &mut Ours, name: &str, inode: u64| {
            ours.whose(Path::new(name), made_up(dir, name, inode), &mut |path: &Path| File::open(dir.join(path)))
        };
        for is_placed in [true, false] {
            let mut ours = Ours { claims: Some(Claims::default()), ..Ours::default() };
            let (readme, seen) = (Path::new("README"), made_up(dir, "README", 1));
            if is_placed {
                ours.placed(3, readme, seen)
            } else {
                ours.found(3, readme, seen)
            }
            assert_eq!(whose(&mut ours, "readme", 2), Some(3));
            // A third name is found, too, although the time of change has moved.
            assert_eq!(whose(&mut ours, "readme", 4), Some(3));
            // Another file that looks like it is another one, however much.
            assert_eq!(whose(&mut ours, "other", 5), None);
            assert_eq!(whose(&mut ours, "readme", 6), Some(3));
        }
        // What changed before anything was placed is not ours.
        let mut ours = Ours { claims: Some(Claims::default()), ..Ours::default() };
        let old = made_up(dir, "README", 1);
        let later = Seen { mark: Mark { changed: (old.mark.changed.0 + 9, 0), ..old.mark }, ..old };
        ours.placed(3, Path::new("README"), later);
        assert_eq!(whose(&mut ours, "readme", 2), None);
        // By inode alone where inodes are the files' own.
        let mut ours = Ours::default();
        ours.placed(3, Path::new("README"), made_up(dir, "README", 1));
        assert_eq!((whose(&mut ours, "readme", 2), whose(&mut ours, "readme", 1)), (None, Some(3)));
    }
}

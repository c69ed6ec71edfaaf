//! What has to wait for all contents: links, then the attributes of directories, which what was written into them would have changed.

use super::deleting::{delete, extras};
use super::entry::{Entry, Kind};
use super::staging::Staging;
use super::target::{Parents, Refused, Target, stamps};
use super::writer::{Job, Sink};
use cap_std::fs::Dir;
use rustix::fs::{AtFlags, Mode, OFlags};
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

/// What came of the end of a transfer.
#[derive(Debug, Default)]
pub struct Finished {
    /// Entries that failed.
    pub failed: Vec<(u64, Refused)>,
    /// Names that were deleted.
    pub deleted: Vec<Vec<u8>>,
    /// Names that were not, although they should have been.
    pub left: Vec<Refused>,
}

/// Finishes a transfer; `is_whole`: no entry has failed so far, without which nothing is deleted. Blocks.
pub fn finish(job: &Job, is_whole: bool) -> Result<Finished, Refused> {
    let Sink::Directory(target, staging) = &job.sink else { return Ok(Finished::default()) };
    let mut finished = Finished::default();
    let failed = &mut finished.failed;
    for (index, entry) in (0..).zip(job.entries.iter()) {
        if let Kind::Link(to) = &entry.kind
            && !job.is_refused(index)
            && let Err(e) = make_link(target, staging, &entry, to)
        {
            failed.push((index, Refused::from_io(entry.as_path(), &e)));
        }
    }
    if let Some(deleting) = job.deleting.as_ref().filter(|_| is_whole && failed.is_empty()) {
        let gone = extras(target, &job.entries, deleting).and_then(|extras| delete(target, extras));
        let (gone, left) = gone.map_err(|e| Refused::from_io(Path::new("."), &e))?;
        let refused = |(name, e): (Vec<u8>, io::Error)| Refused::from_io(Path::new(std::ffi::OsStr::from_bytes(&name)), &e);
        (finished.deleted, finished.left) = (gone, left.into_iter().map(refused).collect());
    }
    let made = staging.made();
    // From below: the permissions of a directory may keep this side out of what it contains.
    for index in (0..job.entries.len() as u64).rev().filter(|_| !made.is_empty()) {
        let Some(entry) = job.entries.get(index).filter(|e| e.kind == Kind::Dir && made.contains(&e.path)) else { continue };
        let set = || -> io::Result<()> {
            let mut parents = Parents::default();
            let parent = parents.find(&target.dir, entry.as_path())?;
            let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
            let dir = rustix::fs::openat(parent, super::target::file_name(entry.as_path()), flags, Mode::empty())?;
            job.set_attributes(index, &entry, &dir.into(), target)
        };
        if let Err(e) = set() {
            finished.failed.push((index, Refused::from_io(entry.as_path(), &e)));
        }
    }
    target.sync().map_err(|e| Refused::from_io(Path::new("."), &e))?;
    // Before the sender hears of it, so that nothing is left when it has.
    staging.finish();
    job.setting.tell(target.rules.kept);
    Ok(finished)
}

fn make_link(target: &Target, staging: &Staging, entry: &Entry, to: &[u8]) -> io::Result<()> {
    let parent: Dir = target.real_parent(entry.as_path())?;
    let name = super::target::file_name(entry.as_path());
    let to = std::ffi::OsStr::from_bytes(to);
    if parent.read_link_contents(name).is_ok_and(|found| found.as_os_str() == to) {
        return Ok(());
    }
    match rustix::fs::symlinkat(to, &parent, name) {
        Err(rustix::io::Errno::EXIST) if target.rules.overwrite && target.whose(entry.as_path()).is_none() => {
            let moment = staging.moment();
            rustix::fs::symlinkat(to, &staging.dir, &moment)?;
            rustix::fs::renameat(&staging.dir, &moment, &parent, name)?;
        }
        result => result?,
    }
    Ok(rustix::fs::utimensat(&parent, name, &stamps(entry), AtFlags::SYMLINK_NOFOLLOW)?)
}

//! What has to wait for all contents: links, then the attributes of directories, which what was written into them would have changed.

use super::entry::{Entry, Kind};
use super::staging::Staging;
use super::target::{Parents, Refused, Target, set_attributes, stamps};
use super::writer::{Job, Sink};
use cap_std::fs::Dir;
use rustix::fs::{AtFlags, Mode, OFlags};
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

/// Finishes a transfer; the entries that failed. Blocks.
pub fn finish(job: &Job) -> Result<Vec<(u64, Refused)>, Refused> {
    let Sink::Directory(target, staging) = &job.sink else { return Ok(Vec::new()) };
    let mut failed = Vec::new();
    for (index, entry) in (0..).zip(job.entries.iter()) {
        if let Kind::Link(to) = &entry.kind
            && !job.is_refused(index)
            && let Err(e) = make_link(target, staging, &entry, to)
        {
            failed.push((index, Refused::from_io(entry.as_path(), &e)));
        }
    }
    let made = staging.made();
    // From below: the permissions of a directory may keep this side out of what it contains.
    for index in (0..job.entries.len() as u64).rev().filter(|_| !made.is_empty()) {
        let Some(entry) = job.entries.get(index).filter(|e| e.kind == Kind::Dir && made.contains(&e.path)) else { continue };
        let set = || -> io::Result<bool> {
            let mut parents = Parents::default();
            let parent = parents.find(&target.dir, entry.as_path())?;
            let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
            let dir = rustix::fs::openat(parent, super::target::file_name(entry.as_path()), flags, Mode::empty())?;
            set_attributes(&dir.into(), &entry, &target.rules)
        };
        match set() {
            Ok(true) => {}
            Ok(false) => job.counts.note_unset(),
            Err(e) => failed.push((index, Refused::from_io(entry.as_path(), &e))),
        }
    }
    target.sync().map_err(|e| Refused::from_io(Path::new("."), &e))?;
    // Before the sender hears of it, so that nothing is left when it has.
    staging.finish(&target.dir);
    Ok(failed)
}

fn make_link(target: &Target, staging: &Staging, entry: &Entry, to: &[u8]) -> io::Result<()> {
    let parent: Dir = target.real_parent(entry.as_path())?;
    let name = super::target::file_name(entry.as_path());
    let to = std::ffi::OsStr::from_bytes(to);
    if parent.read_link_contents(name).is_ok_and(|found| found.as_os_str() == to) {
        return Ok(());
    }
    match rustix::fs::symlinkat(to, &parent, name) {
        Err(rustix::io::Errno::EXIST) if target.rules.overwrite && !target.has_placed(&parent, name) => {
            let moment = staging.moment();
            rustix::fs::symlinkat(to, &staging.dir, &moment)?;
            rustix::fs::renameat(&staging.dir, &moment, &parent, name)?;
        }
        result => result?,
    }
    Ok(rustix::fs::utimensat(&parent, name, &stamps(entry), AtFlags::SYMLINK_NOFOLLOW)?)
}

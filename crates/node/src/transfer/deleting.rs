//! `--delete`: what the target has besides the manifest, in its directories, and taking it away.
//!
//! Nothing is found through a link, on another file system, or in noctule's own directory; what a filter left out stays, and so does what the file system
//! takes for an entry of the manifest by whatever name.

use super::beneath::Failing;
use super::entries::Entries;
use super::entry::{Kind, STAGING_NAME};
use super::filter::Filter;
use super::ours::{Identity, Mark, Seen, makes_up_inodes};
use super::target::{Parents, Target, file_name};
use rustix::fs::{AtFlags, FileType, Mode, OFlags};
use std::collections::HashSet;
use std::ffi::OsStr;
use std::fs::File;
use std::hash::{BuildHasher, RandomState};
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

/// That deleting is wanted, and what it depends on.
#[derive(Debug, Default)]
pub struct Deleting {
    /// What it leaves out is not deleted.
    pub filter: Filter,
    /// The manifest lists what the target directory itself is to hold.
    pub is_root: bool,
}

/// Something that is to go.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Extra {
    /// Its name.
    pub path: Vec<u8>,
    /// It is a directory, of which nothing is left when its turn comes.
    pub is_dir: bool,
}

struct Search<'a> {
    filter: &'a Filter,
    state: RandomState,
    /// Hashes of the manifest's names, keyed at random: a collision spares a file, and nobody can choose one.
    named: HashSet<u64>,
    /// Files and directories that the manifest's names lead to on this host.
    known: HashSet<Identity>,
    /// The same where inodes say nothing: what looks like one of them is spared.
    alike: HashSet<Mark>,
    device: u64,
    extras: Vec<Extra>,
}

/// Opens a directory below another one; no part of its name may be a link.
fn open_dir(root: &File, path: &Path) -> io::Result<File> {
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let mut dir = File::from(rustix::fs::openat(root, ".", flags, Mode::empty())?);
    for part in path.components() {
        dir = rustix::fs::openat(&dir, part.as_os_str(), flags, Mode::empty())?.into();
    }
    Ok(dir)
}

fn joined(directory: &[u8], name: &[u8]) -> Vec<u8> {
    if directory.is_empty() { name.to_vec() } else { [directory, b"/", name].concat() }
}

/// What is there and not in the manifest, contents before their directories. Blocks.
///
/// # Errors
/// A directory of the manifest that is there cannot be listed: then nothing may be deleted.
pub fn extras(target: &Target, entries: &Entries, deleting: &Deleting) -> io::Result<Vec<Extra>> {
    // A source that is empty is taken for one that is not there: a disk that is not mounted looks like that.
    if entries.len() == 0 {
        return Ok(Vec::new());
    }
    let root = super::target::real_handle(&target.dir)?;
    let state = RandomState::new();
    let named = entries.iter().map(|entry| state.hash_one(&entry.path)).collect();
    let mut parents = Parents::default();
    let known = entries.iter().filter_map(|entry| {
        let parent = parents.find(&target.dir, entry.as_path()).ok()?;
        let seen = Seen::at(parent, file_name(entry.as_path())).ok()?;
        Some((seen.id, seen.mark))
    });
    let (known, mut alike): (HashSet<_>, HashSet<_>) = known.unzip();
    if !makes_up_inodes(&root) {
        alike.clear();
    }
    let device = rustix::fs::fstat(&root)?.st_dev;
    let mut search = Search { filter: &deleting.filter, state, named, known, alike, device, extras: Vec::new() };
    if deleting.is_root {
        search.directory(&root, b"")?;
    }
    for entry in entries.iter().filter(|entry| entry.kind == Kind::Dir) {
        match open_dir(&root, entry.as_path()) {
            Ok(dir) => search.directory(&dir, &entry.path)?,
            // In a dry run it may not be there yet.
            Err(e) if matches!(e.kind(), io::ErrorKind::NotFound | io::ErrorKind::NotADirectory) => {}
            Err(e) => return Err(e),
        }
    }
    Ok(search.extras)
}

impl Search<'_> {
    /// What does not belong into a directory of the manifest.
    fn directory(&mut self, dir: &File, path: &[u8]) -> io::Result<()> {
        for found in rustix::fs::Dir::read_from(dir)? {
            let found = found?;
            let name = found.file_name().to_bytes();
            let whole = joined(path, name);
            if name != b"." && name != b".." && !self.named.contains(&self.state.hash_one(&whole)) {
                self.foreign(dir, name, whole);
            }
        }
        Ok(())
    }

    /// Notes what is not in the manifest, with all that it holds; whether all of it can go.
    fn foreign(&mut self, dir: &File, name: &[u8], path: Vec<u8>) -> bool {
        let Ok(seen) = Seen::at(dir, OsStr::from_bytes(name)) else { return false };
        let is_dir = seen.kind == FileType::Directory;
        let is_known = self.known.contains(&seen.id) || self.alike.contains(&seen.mark);
        if is_known || name == STAGING_NAME.as_bytes() || !self.filter.takes_with_parents(&path, is_dir) || seen.id.0 != self.device {
            return false;
        }
        if is_dir && !self.contents(dir, name, &path).unwrap_or(false) {
            return false;
        }
        self.extras.push(Extra { path, is_dir });
        true
    }

    fn contents(&mut self, parent: &File, name: &[u8], path: &[u8]) -> io::Result<bool> {
        let dir = open_dir(parent, Path::new(OsStr::from_bytes(name)))?;
        let mut is_all = true;
        for found in rustix::fs::Dir::read_from(&dir)? {
            let found = found?;
            let name = found.file_name().to_bytes();
            if name != b"." && name != b".." {
                is_all &= self.foreign(&dir, name, joined(path, name));
            }
        }
        Ok(is_all)
    }
}

/// Takes them away, in their order; the names that are gone, and those that are not, with their reasons. Blocks.
pub fn delete(target: &Target, extras: Vec<Extra>) -> io::Result<(Vec<Vec<u8>>, Vec<Failing>)> {
    let root = super::target::real_handle(&target.dir)?;
    let (mut gone, mut failed) = (Vec::new(), Vec::new());
    for Extra { path, is_dir } in extras {
        let name = Path::new(OsStr::from_bytes(&path));
        let flags = if is_dir { AtFlags::REMOVEDIR } else { AtFlags::empty() };
        let parent = open_dir(&root, name.parent().unwrap_or(Path::new("")));
        match parent.and_then(|parent| Ok(rustix::fs::unlinkat(&parent, file_name(name), flags)?)) {
            Ok(()) => gone.push(path),
            Err(e) if e.kind() == io::ErrorKind::NotFound => {}
            Err(e) => failed.push((path, e)),
        }
    }
    Ok((gone, failed))
}

#[cfg(test)]
mod tests {
    use super::super::entry::{Entry, Mtime};
    use super::super::filter::Rule;
    use super::super::target::Rules;
    use super::*;
    use std::fs;
    use std::os::unix::fs::symlink;

    fn entries(names: &[&str]) -> Entries {
        let entry = |name: &&str| {
            let kind = if name.ends_with('/') { Kind::Dir } else { Kind::File(1) };
            Entry { path: name.trim_end_matches('/').into(), kind, mode: 0o644, mtime: Mtime::default() }
        };
        names.iter().map(entry).collect()
    }

    fn target() -> (tempfile::TempDir, Target) {
        let dir = tempfile::tempdir().unwrap();
        for name in ["d/kept", "d/old", "d/olddir/a/b", "d/olddir/keep.me", "beside", ".noctule-partial/x", "outside/secret"] {
            let path = dir.path().join(name);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, "x").unwrap();
        }
        symlink("../outside", dir.path().join("d/link")).unwrap();
        let target = Target::open(dir.path(), Rules::default()).unwrap();
        (dir, target)
    }

    fn found(target: &Target, entries: &Entries, deleting: &Deleting) -> Vec<String> {
        let mut names: Vec<String> =
            extras(target, entries, deleting).unwrap().iter().map(|e| String::from_utf8_lossy(&e.path).into()).collect();
        names.sort();
        names
    }

    #[test]
    fn only_what_lies_in_the_manifest_s_directories_goes_and_links_are_not_followed() {
        let (dir, target) = target();
        let listed = entries(&["d/", "d/kept"]);
        let all = ["d/link", "d/old", "d/olddir", "d/olddir/a", "d/olddir/a/b", "d/olddir/keep.me"];
        assert_eq!(found(&target, &listed, &Deleting::default()), all);
        let (gone, failed) = delete(&target, extras(&target, &listed, &Deleting::default()).unwrap()).unwrap();
        assert!(gone.len() == 6 && failed.is_empty());
        assert!(dir.path().join("outside/secret").exists() && dir.path().join("beside").exists() && dir.path().join("d/kept").exists());
        assert_eq!(fs::read_dir(dir.path().join("d")).unwrap().count(), 1);
    }

    #[test]
    fn what_a_filter_left_out_stays_and_so_do_the_directories_that_hold_it() {
        let (_dir, target) = target();
        let rules = [Rule { is_include: false, pattern: "*.me".into() }, Rule { is_include: false, pattern: "/beside".into() }];
        let deleting = Deleting { filter: Filter::new(&rules).unwrap(), is_root: true };
        let listed = entries(&["d/", "d/kept", "outside/", "outside/secret"]);
        assert_eq!(found(&target, &listed, &deleting), ["d/link", "d/old", "d/olddir/a", "d/olddir/a/b"]);
    }

    /// Hard links simulate a file system that takes several names for one.
    #[test]
    fn neither_another_name_of_an_entry_nor_anything_for_an_empty_list_goes() {
        let (dir, target) = target();
        fs::hard_link(dir.path().join("d/kept"), dir.path().join("d/KEPT")).unwrap();
        assert!(!found(&target, &entries(&["d/", "d/kept"]), &Deleting::default()).contains(&"d/KEPT".to_owned()));
        assert!(found(&target, &entries(&[]), &Deleting { is_root: true, ..Deleting::default() }).is_empty());
    }
}

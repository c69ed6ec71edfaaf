//! Files that a process on this machine has locked: the kernel lists its locks, and nothing is locked to find out.

use std::collections::{BTreeMap, BTreeSet};
use std::fs::File;
use std::os::fd::AsRawFd;
use std::os::unix::fs::MetadataExt;
use std::path::Path;

/// Device, as numbers of its kind and its place, and inode of a locked file.
type Place = ((u32, u32), u64);

/// The locks of one moment.
#[derive(Debug, Default)]
pub struct Locks(BTreeSet<Place>);

impl Locks {
    /// Those that are held now; none where the kernel does not say.
    pub fn now() -> Self {
        Self::parse(&std::fs::read_to_string("/proc/locks").unwrap_or_default())
    }

    /// proc_locks(5): `1: FLOCK  ADVISORY  WRITE 10801 08:06:3080 0 EOF`, the device in hexadecimal.
    fn parse(text: &str) -> Self {
        let place = |line: &str| {
            let mut words = line.split_whitespace().skip(1);
            (words.next()? == "FLOCK").then_some(())?;
            let mut parts = words.nth(3)?.split(':');
            let mut number = || u32::from_str_radix(parts.next()?, 16).ok();
            let device = (number()?, number()?);
            Some((device, parts.next()?.parse().ok()?))
        };
        Self(text.lines().filter_map(place).collect())
    }

    /// Those of the files of a folder, by inode, that are locked.
    pub fn held(&self, folder: &Path, files: &BTreeMap<u64, String>) -> BTreeSet<String> {
        if files.is_empty() || self.0.is_empty() {
            return BTreeSet::new();
        }
        let Some(device) = device(folder) else { return BTreeSet::new() };
        self.on(device, files)
    }

    fn on(&self, device: (u32, u32), files: &BTreeMap<u64, String>) -> BTreeSet<String> {
        files.iter().filter(|(inode, _)| self.0.contains(&(device, **inode))).map(|(_, name)| name.clone()).collect()
    }
}

/// Device of a folder's file system as the kernel names it in its lists: on btrfs and on overlays, stat(2) says another.
fn device(folder: &Path) -> Option<(u32, u32)> {
    let folder = File::open(folder).ok()?;
    mounted(&folder).or_else(|| {
        let device = folder.metadata().ok()?.dev();
        Some((libc::major(device), libc::minor(device)))
    })
}

/// From the list of mounts: proc_pid_fdinfo(5), proc_pid_mountinfo(5).
fn mounted(folder: &File) -> Option<(u32, u32)> {
    let about = std::fs::read_to_string(format!("/proc/self/fdinfo/{}", folder.as_raw_fd())).ok()?;
    let mount = about.lines().find_map(|line| line.strip_prefix("mnt_id:"))?.trim();
    let mounts = std::fs::read_to_string("/proc/self/mountinfo").ok()?;
    let mut words = mounts.lines().map(str::split_whitespace).find_map(|mut words| (words.next()? == mount).then_some(words))?;
    let (major, minor) = words.nth(1)?.split_once(':')?;
    Some((major.parse().ok()?, minor.parse().ok()?))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_lock_on_a_file_of_the_same_number_on_another_device_is_another() {
        let text = "1: FLOCK  ADVISORY  WRITE 10801 08:1f:3080 0 EOF\n1: -> FLOCK  ADVISORY  WRITE 7 08:1f:3081 0 EOF\n\
                    2: POSIX  ADVISORY  WRITE 10802 08:1f:3082 0 EOF\n3: FLOCK  ADVISORY  WRITE 1 00:2a:3083 0 EOF\nx\n";
        let locks = Locks::parse(text);
        let files: BTreeMap<u64, String> = (3080..=3083).map(|inode| (inode, inode.to_string())).collect();
        // One that waits for a lock does not hold it; locks of another kind are not ours.
        assert_eq!(locks.on((0x08, 0x1f), &files), BTreeSet::from(["3080".to_owned()]));
        assert_eq!(locks.on((0, 42), &files), BTreeSet::from(["3083".to_owned()]));
        assert_eq!(locks.on((8, 0x1e), &files), BTreeSet::new());
    }

    #[test]
    fn a_locked_file_of_a_folder_is_found_and_one_that_is_not_locked_any_more_is_not() {
        let dir = tempfile::tempdir().unwrap();
        let file = File::create(dir.path().join("file")).unwrap();
        let files = BTreeMap::from([(file.metadata().unwrap().ino(), "file".to_owned())]);
        file.lock().unwrap();
        let locks = Locks::now();
        if locks.0.is_empty() {
            return eprintln!("*** SKIPPED: /proc/locks shows no locks here");
        }
        assert_eq!(locks.held(dir.path(), &files), BTreeSet::from(["file".to_owned()]));
        drop(file);
        assert_eq!(Locks::now().held(dir.path(), &files), BTreeSet::new());
    }
}

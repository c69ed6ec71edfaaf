//! What files of folders hold, kept in memory until they change or are gone.

use std::collections::{BTreeSet, HashMap};
use std::ffi::OsString;
use std::fs::Metadata;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, MutexGuard, PoisonError};

/// Changes with what a file holds: results are renamed into place and have a new inode.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Stamp(u64, u64, u64, i64, i64);

impl Stamp {
    fn of(meta: &Metadata) -> Self {
        Self(meta.dev(), meta.ino(), meta.len(), meta.mtime(), meta.mtime_nsec())
    }
}

/// Files by folder and name.
#[derive(Debug, Default)]
pub struct Cache<T>(Mutex<HashMap<PathBuf, HashMap<OsString, (Stamp, T)>>>);

impl<T: Clone> Cache<T> {
    fn folders(&self) -> MutexGuard<'_, HashMap<PathBuf, HashMap<OsString, (Stamp, T)>>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// What the file `name` holds; `read` is asked if that is not known. None of it is kept as nothing.
    pub fn get(&self, folder: &Path, name: &str, meta: &Metadata, read: impl FnOnce(&Path) -> Option<T>) -> Option<T> {
        let stamp = Stamp::of(meta);
        if let Some((known, held)) = self.folders().get(folder).and_then(|files| files.get(name.as_ref() as &std::ffi::OsStr))
            && *known == stamp
        {
            return Some(held.clone());
        }
        // Nothing is locked while a disk is waited for.
        let held = read(&folder.join(name))?;
        self.folders().entry(folder.to_owned()).or_default().insert(name.into(), (stamp, held.clone()));
        Some(held)
    }

    /// Forgets the files of a folder that are not in `names`.
    pub fn keep_files(&self, folder: &Path, names: &BTreeSet<OsString>) {
        if let Some(files) = self.folders().get_mut(folder) {
            files.retain(|name, _| names.contains(name));
        }
    }

    /// Forgets the folders that are not in `folders`.
    pub fn keep_folders(&self, folders: &BTreeSet<PathBuf>) {
        self.folders().retain(|folder, _| folders.contains(folder));
    }
}

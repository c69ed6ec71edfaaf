//! What files of folders hold, kept in memory until they change or are gone.

use std::collections::{BTreeSet, HashMap};
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

type Folders<T> = HashMap<PathBuf, HashMap<String, (Stamp, T)>>;

/// Files by folder and name.
#[derive(Debug)]
pub struct Cache<T>(Mutex<Folders<T>>);

impl<T> Default for Cache<T> {
    fn default() -> Self {
        Self(Mutex::default())
    }
}

impl<T: Clone> Cache<T> {
    fn folders(&self) -> MutexGuard<'_, Folders<T>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// What the file `name` holds; `read` is asked if that is not known. None of it is kept as nothing.
    pub fn get(&self, folder: &Path, name: &str, meta: &Metadata, read: impl FnOnce(&Path) -> Option<T>) -> Option<T> {
        let stamp = Stamp::of(meta);
        if let Some((known, held)) = self.folders().get(folder).and_then(|files| files.get(name))
            && *known == stamp
        {
            return Some(held.clone());
        }
        // Nothing is locked while a disk is waited for.
        let held = read(&folder.join(name))?;
        self.folders().entry(folder.to_owned()).or_default().insert(name.to_owned(), (stamp, held.clone()));
        Some(held)
    }

    /// Forgets the files of a folder that are not in `names`.
    pub fn keep_files(&self, folder: &Path, names: &BTreeSet<String>) {
        if let Some(files) = self.folders().get_mut(folder) {
            files.retain(|name, _| names.contains(name));
        }
    }

    /// Forgets the folders that are not in `folders`.
    pub fn keep_folders(&self, folders: &BTreeSet<PathBuf>) {
        self.folders().retain(|folder, _| folders.contains(folder));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_is_read_once_and_forgotten_with_its_name_or_its_folder() {
        let dir = tempfile::tempdir().unwrap();
        let cache = Cache::default();
        let reads = std::cell::Cell::new(0);
        let get = |name: &str| {
            let meta = std::fs::metadata(dir.path().join(name)).unwrap();
            cache.get(dir.path(), name, &meta, |path| {
                reads.set(reads.get() + 1);
                std::fs::read_to_string(path).ok()
            })
        };
        for name in ["a", "b"] {
            std::fs::write(dir.path().join(name), name).unwrap();
        }
        for _ in 0..3 {
            assert_eq!((get("a").as_deref(), get("b").as_deref()), (Some("a"), Some("b")));
        }
        assert_eq!(reads.get(), 2);
        std::fs::write(dir.path().join("a"), "longer").unwrap();
        assert_eq!((get("a").as_deref(), reads.get()), (Some("longer"), 3));
        let kept = || cache.folders().values().map(HashMap::len).sum::<usize>();
        cache.keep_files(dir.path(), &BTreeSet::from(["b".to_owned()]));
        assert_eq!(kept(), 1);
        cache.keep_folders(&BTreeSet::from([dir.path().to_owned()]));
        assert_eq!(kept(), 1);
        cache.keep_folders(&BTreeSet::new());
        assert_eq!(kept(), 0);
    }
}

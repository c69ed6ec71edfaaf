//! Files that are there whole at any time, after a loss of power too: a new content is written beside the old file, and then takes its place.

use std::ffi::OsString;
use std::fs::{File, Metadata, OpenOptions, Permissions};
use std::io::{self, ErrorKind, Write};
use std::os::unix::fs::{MetadataExt, OpenOptionsExt, PermissionsExt, fchown};
use std::path::{Path, PathBuf};

/// `path` with something behind its name.
pub fn beside(path: &Path, suffix: &str) -> PathBuf {
    let mut name = OsString::from(path);
    name.push(suffix);
    name.into()
}

/// Puts `content` in the place of what is at `path`, which only this user may read; or, with the metadata of the old file, its owner and mode stay.
///
/// # Errors
/// The system's. The old file is untouched.
pub fn replace(path: &Path, content: &[u8], like: Option<&Metadata>) -> io::Result<()> {
    let fresh = beside(path, ".new");
    match std::fs::remove_file(&fresh) {
        Err(error) if error.kind() != ErrorKind::NotFound => return Err(error),
        _ => {}
    }
    let write = || {
        // A new file: what a link there leads to is not ours.
        let mut file = OpenOptions::new().write(true).create_new(true).mode(0o600).open(&fresh)?;
        file.write_all(content)?;
        if let Some(like) = like {
            keep(&file, like)?;
        }
        file.sync_all()?;
        std::fs::rename(&fresh, path)
    };
    write().inspect_err(|_| drop(std::fs::remove_file(&fresh)))
}

fn keep(file: &File, like: &Metadata) -> io::Result<()> {
    file.set_permissions(Permissions::from_mode(like.permissions().mode()))?;
    match file.metadata()?.uid() == like.uid() {
        true => Ok(()),
        false => fchown(file, Some(like.uid()), Some(like.gid())),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_is_replaced_whole_and_nothing_that_a_link_beside_it_leads_to() {
        let dir = tempfile::tempdir().unwrap();
        let (file, other) = (dir.path().join("state"), dir.path().join("other"));
        std::fs::write(&other, "not ours").unwrap();
        std::os::unix::fs::symlink(&other, dir.path().join("state.new")).unwrap();
        replace(&file, b"first", None).unwrap();
        std::fs::set_permissions(&file, Permissions::from_mode(0o640)).unwrap();
        replace(&file, b"second", Some(&std::fs::metadata(&file).unwrap())).unwrap();
        let about = std::fs::symlink_metadata(&file).unwrap();
        assert!(about.is_file() && about.mode() & 0o777 == 0o640);
        assert_eq!(
            (std::fs::read_to_string(&file).unwrap().as_str(), std::fs::read_to_string(&other).unwrap().as_str()),
            ("second", "not ours")
        );
        // What cannot take its place leaves no rest.
        assert!(replace(dir.path(), b"third", None).is_err() && !beside(dir.path(), ".new").exists());
    }
}

//! What users have moved, kept over restarts: one file, replaced as a whole.

use crate::directories;
use crate::failure::Failure;
use crate::identity;
use crate::whole_file;
use noctule_proxy::{Far, Usage};
use std::collections::BTreeMap;
use std::fs::{File, TryLockError};
use std::io;
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};

/// Where it is kept unless the command line says so: systemd's directory, or the user's.
pub fn default_file() -> Result<PathBuf, Failure> {
    let of_user = || {
        directories::named_by("XDG_STATE_HOME")
            .or_else(|| identity::home().map(|home| home.join(".local/state")))
            .map(|base| base.join("noctule"))
    };
    let directory = directories::of_unit("STATE_DIRECTORY").or_else(of_user);
    directory
        .map(|directory| directory.join("proxy-quotas.json"))
        .ok_or_else(|| Failure::Usage("there is no home directory to keep quotas in: name a file with --state".into()))
}

/// What was kept; nothing if there is no file yet.
fn load(file: &Path) -> Result<BTreeMap<String, Usage>, Failure> {
    match std::fs::read(file) {
        Ok(bytes) => serde_json::from_slice(&bytes).map_err(|e| {
            Failure::source(
                file,
                format!("it is not what was kept of quotas: {e}; remove it to begin them again, or name another file with --state"),
            )
        }),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(BTreeMap::new()),
        Err(error) => Err(Failure::source(file, error)),
    }
}

/// Keeps what a server's users have moved, when it is told to and when it is dropped.
pub struct Keeper {
    file: PathBuf,
    far: Arc<Far>,
    kept: Mutex<BTreeMap<String, Usage>>,
    _lock: Lock,
}

/// That no other server writes the file: it would put its own counts in place of this one's.
pub struct Lock(#[expect(dead_code, reason = "locked while it is open")] File);

/// Takes a file for this server, and makes sure that it can be written; what was kept.
///
/// # Errors
/// Another server has it, it is something else, or it cannot be written.
pub fn open(file: &Path) -> Result<(Lock, BTreeMap<String, Usage>), Failure> {
    let failed = |e: io::Error| Failure::target(file, &e);
    if let Some(parent) = file.parent().filter(|parent| !parent.as_os_str().is_empty()) {
        std::fs::DirBuilder::new().recursive(true).mode(0o700).create(parent).map_err(failed)?;
    }
    // The file itself is another one after each time that it is written.
    let lock = whole_file::beside(file, ".lock");
    let lock = File::options().create(true).append(true).mode(0o600).custom_flags(libc::O_NOFOLLOW).open(lock).map_err(failed)?;
    lock.try_lock().map_err(|error| match error {
        TryLockError::WouldBlock => {
            Failure::Usage(format!("another noctule proxy serve keeps its quotas in {}: name another file with --state", file.display()))
        }
        TryLockError::Error(error) => failed(error),
    })?;
    let usage = load(file)?;
    write(file, &usage).map_err(failed)?;
    Ok((Lock(lock), usage))
}

impl Keeper {
    /// For this server, whose users had moved so much.
    pub fn new(file: PathBuf, lock: Lock, far: Arc<Far>, kept: BTreeMap<String, Usage>) -> Self {
        Self { file, far, kept: Mutex::new(kept), _lock: lock }
    }

    /// Writes the file if anything has changed.
    pub fn save(&self) -> io::Result<()> {
        let usage = self.far.usage();
        let mut kept = self.kept.lock().unwrap_or_else(PoisonError::into_inner);
        if *kept != usage {
            write(&self.file, &usage)?;
            *kept = usage;
        }
        Ok(())
    }
}

impl Drop for Keeper {
    fn drop(&mut self) {
        if let Err(error) = self.save() {
            tracing::error!("what counts for quotas cannot be kept in {}: {error}", self.file.display());
        }
    }
}

fn write(file: &Path, usage: &BTreeMap<String, Usage>) -> io::Result<()> {
    whole_file::replace(file, &serde_json::to_vec(usage)?, None)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_kept_comes_back_and_what_is_something_else_is_told() {
        let dir = tempfile::tempdir().unwrap();
        let file = dir.path().join("made/quotas.json");
        let (lock, usage) = open(&file).unwrap();
        assert!(usage.is_empty());
        assert!(open(&file).map(drop).unwrap_err().to_string().contains("another noctule proxy serve"));
        drop(lock);
        let usage = BTreeMap::from([("ann".to_owned(), Usage { day: (1, 2), month: (3, 4), total: 5 })]);
        write(&file, &usage).unwrap();
        assert_eq!(open(&file).unwrap().1, usage);
        std::fs::write(&file, "{\"ann\":").unwrap();
        assert!(load(&file).unwrap_err().to_string().contains("remove it to begin them again"));
    }
}

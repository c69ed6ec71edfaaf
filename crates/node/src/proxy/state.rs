//! What users have moved, kept over restarts: one file, replaced as a whole.

use crate::failure::Failure;
use crate::identity;
use noctule_proxy::{Far, Usage};
use std::collections::BTreeMap;
use std::fs::File;
use std::io::{self, Write};
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};

/// Where it is kept unless the command line says so: systemd's directory, or the user's.
pub fn default_file() -> Result<PathBuf, Failure> {
    let absolute = |name: &str| std::env::var_os(name).map(PathBuf::from).filter(|path| path.is_absolute());
    let of_user =
        || absolute("XDG_STATE_HOME").or_else(|| identity::home().map(|home| home.join(".local/state"))).map(|base| base.join("noctule"));
    let directory = absolute("STATE_DIRECTORY").or_else(of_user);
    directory
        .map(|directory| directory.join("proxy-quotas.json"))
        .ok_or_else(|| Failure::Usage("there is no home directory to keep quotas in: name a file with --state".into()))
}

/// What was kept; nothing if there is no file yet.
pub fn load(file: &Path) -> Result<BTreeMap<String, Usage>, Failure> {
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
}

impl Keeper {
    /// For this server, whose users had moved so much.
    pub fn new(file: PathBuf, far: Arc<Far>, kept: BTreeMap<String, Usage>) -> Self {
        Self { file, far, kept: Mutex::new(kept) }
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

/// Whole or not at all: beside it, then in its place.
pub fn write(file: &Path, usage: &BTreeMap<String, Usage>) -> io::Result<()> {
    if let Some(parent) = file.parent().filter(|parent| !parent.as_os_str().is_empty()) {
        std::fs::DirBuilder::new().recursive(true).mode(0o700).create(parent)?;
    }
    let mut beside = file.as_os_str().to_owned();
    beside.push(".new");
    let mut new = File::options().create(true).write(true).truncate(true).mode(0o600).open(&beside)?;
    new.write_all(&serde_json::to_vec(usage)?)?;
    new.sync_all()?;
    std::fs::rename(&beside, file)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_kept_comes_back_and_what_is_something_else_is_told() {
        let dir = tempfile::tempdir().unwrap();
        let file = dir.path().join("made/quotas.json");
        assert!(load(&file).unwrap().is_empty());
        let usage = BTreeMap::from([("ann".to_owned(), Usage { day: (1, 2), month: (3, 4), total: 5 })]);
        write(&file, &usage).unwrap();
        assert_eq!(load(&file).unwrap(), usage);
        std::fs::write(&file, "{\"ann\":").unwrap();
        assert!(load(&file).unwrap_err().to_string().contains("remove it to begin them again"));
    }
}

//! A directory of our own under the system's temporary one, removed when we are done or interrupted.

use std::io;
use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, PoisonError};

/// Directories to remove on SIGINT and SIGTERM.
static LIVE: Mutex<Vec<PathBuf>> = Mutex::new(Vec::new());

/// The directory; it goes when this is dropped.
#[derive(Debug)]
pub struct Scratch {
    path: PathBuf,
}

impl Scratch {
    /// Makes a directory whose name begins with `prefix`, readable by this user only.
    pub fn new(prefix: &str) -> io::Result<Self> {
        let base = std::env::temp_dir();
        for attempt in 0..1000 {
            let path = base.join(format!("{prefix}-{}-{attempt}", std::process::id()));
            match std::fs::DirBuilder::new().mode(0o700).create(&path) {
                Ok(()) => {
                    LIVE.lock().unwrap_or_else(PoisonError::into_inner).push(path.clone());
                    return Ok(Self { path });
                }
                Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {}
                Err(error) => return Err(io::Error::new(error.kind(), format!("{}: {error}", path.display()))),
            }
        }
        Err(io::Error::new(io::ErrorKind::AlreadyExists, format!("no free name for a directory in {}", base.display())))
    }

    /// Where it is.
    pub fn path(&self) -> &Path {
        &self.path
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        LIVE.lock().unwrap_or_else(PoisonError::into_inner).retain(|path| *path != self.path);
        // Nothing can be done about a failure here, and nothing depends on it.
        let _ = std::fs::remove_dir_all(&self.path);
    }
}

/// From now on SIGINT and SIGTERM remove all [`Scratch`] directories and end the process with code 130.
///
/// A program calls it before it starts other threads (which inherit that the signals are blocked), but after
/// [`super::privilege::acquire`], which needs a process of one thread.
///
/// # Errors
/// The signals cannot be blocked, or there is no thread to wait for them.
pub fn remove_on_signals() -> io::Result<()> {
    end_on_signals(|| {})
}

/// As [`remove_on_signals`], and `last` says a last word.
///
/// # Errors
/// As there.
pub fn end_on_signals(last: impl FnOnce() + Send + 'static) -> io::Result<()> {
    let signals = super::signals::block()?;
    std::thread::Builder::new().name("signals".to_owned()).spawn(move || {
        let mut signal = 0;
        // SAFETY: both pointers are live; the set is blocked in this thread, which inherited the mask.
        while unsafe { libc::sigwait(&signals, &mut signal) } != 0 {}
        for path in LIVE.lock().unwrap_or_else(PoisonError::into_inner).iter() {
            let _ = std::fs::remove_dir_all(path);
        }
        last();
        // Children die with us (PR_SET_PDEATHSIG).
        std::process::exit(130);
    })?;
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn directories_are_distinct_private_and_go_with_their_owner() {
        use std::os::unix::fs::PermissionsExt;
        let (first, second) = (Scratch::new("noctule-test").unwrap(), Scratch::new("noctule-test").unwrap());
        assert_ne!(first.path(), second.path());
        let path = first.path().to_owned();
        assert_eq!(std::fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o700);
        std::fs::write(path.join("file"), "x").unwrap();
        drop(first);
        assert!(!path.exists() && second.path().exists());
    }
}

//! What streams in one direction must not forget when the node is started anew, in a file: the newest announcement of each sender, so that recordings
//! of older streams are not believed, and how far this node's own announcements may have come, should its clock go back.

use crate::failure::Failure;
use crate::whole_file;
use noctule::PublicKey;
use std::collections::BTreeMap;
use std::fmt;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, PoisonError};

/// Whose stamp.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Whose {
    /// Of announcements that this node takes from a sender.
    From([u8; 32]),
    /// Of announcements that it makes for a receiver.
    To([u8; 32]),
}

impl fmt::Display for Whose {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::From(key) => write!(f, "from {}", PublicKey(*key)),
            Self::To(key) => write!(f, "to {}", PublicKey(*key)),
        }
    }
}

/// See the file's heading.
#[derive(Debug)]
pub struct Stamps {
    path: PathBuf,
    known: Mutex<BTreeMap<Whose, u64>>,
}

impl Stamps {
    /// Reads the file, if there is one, and makes sure that it can be written.
    ///
    /// # Errors
    /// It is none, or cannot be written.
    pub fn open(path: &Path) -> Result<Self, Failure> {
        let refuse = |what: String| {
            Failure::System(format!(
                "{}: {what}; streams in one direction keep there what they must not forget: choose another place with [node] state",
                path.display()
            ))
        };
        let text = match std::fs::read_to_string(path) {
            Ok(text) => text,
            Err(error) if error.kind() == io::ErrorKind::NotFound => String::new(),
            Err(error) => return Err(refuse(format!("cannot read it: {error}"))),
        };
        let mut known = BTreeMap::new();
        for (number, line) in text.lines().enumerate() {
            match read(line) {
                Some((whose, stamp)) => drop(known.insert(whose, stamp)),
                None => return Err(refuse(format!("line {} is none that noctule wrote", number + 1))),
            }
        }
        if let Some(directory) = path.parent().filter(|p| !p.as_os_str().is_empty()) {
            std::fs::create_dir_all(directory).map_err(|e| refuse(format!("cannot make its directory: {e}")))?;
        }
        write(path, &known).map_err(|e| refuse(format!("cannot write it: {e}")))?;
        Ok(Self { path: path.to_owned(), known: Mutex::new(known) })
    }

    /// The stamp that is kept; 0: none.
    pub fn get(&self, whose: Whose) -> u64 {
        self.known.lock().unwrap_or_else(PoisonError::into_inner).get(&whose).copied().unwrap_or(0)
    }

    /// Keeps a greater one.
    pub fn raise(&self, whose: Whose, stamp: u64) {
        let mut known = self.known.lock().unwrap_or_else(PoisonError::into_inner);
        let kept = known.entry(whose).or_default();
        if *kept >= stamp {
            return;
        }
        *kept = stamp;
        if let Err(error) = write(&self.path, &known) {
            tracing::warn!(file = %self.path.display(), %error, "cannot keep how far streams in one direction have come");
        }
    }
}

fn read(line: &str) -> Option<(Whose, u64)> {
    let mut words = line.split(' ');
    let (side, key, stamp) = (words.next()?, words.next()?.parse::<PublicKey>().ok()?, words.next()?.parse().ok()?);
    match (side, words.next()) {
        ("from", None) => Some((Whose::From(key.0), stamp)),
        ("to", None) => Some((Whose::To(key.0), stamp)),
        _ => None,
    }
}

fn write(path: &Path, known: &BTreeMap<Whose, u64>) -> io::Result<()> {
    let text: String = known.iter().map(|(whose, stamp)| format!("{whose} {stamp}\n")).collect();
    whole_file::replace(path, text.as_bytes(), None)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_raised_is_there_after_a_restart_and_never_falls() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("below/state");
        let key = noctule::SecretKey::from_bytes([1; 32]).public().0;
        let stamps = Stamps::open(&path).unwrap();
        assert_eq!(stamps.get(Whose::To(key)), 0);
        stamps.raise(Whose::To(key), 7);
        stamps.raise(Whose::From(key), 9);
        stamps.raise(Whose::From(key), 8);
        let again = Stamps::open(&path).unwrap();
        assert_eq!((again.get(Whose::To(key)), again.get(Whose::From(key))), (7, 9));
        std::fs::write(&path, "from nobody 3\n").unwrap();
        let error = Stamps::open(&path).expect_err("no key").to_string();
        assert!(error.contains("line 1 is none that noctule wrote") && error.contains("[node] state"), "{error}");
        let error = Stamps::open(Path::new("/proc/nowhere/state")).expect_err("no place").to_string();
        assert!(error.contains("/proc/nowhere/state: cannot make its directory"), "{error}");
    }
}

//! What is transferred: files, directories, symbolic links, and how their names are checked and shown.

use blake3::Hash;
use noctule_proto::far_text::escaped;
use std::borrow::Borrow;
use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

/// Bytes of a component, at most: NAME_MAX of the file systems in use.
const MAX_COMPONENT: usize = 255;
/// Bytes of a name or of a link's target, at most: PATH_MAX.
pub const MAX_NAME: usize = 4096;
/// Directory in which the receiver keeps files that are not complete. No entry that is sent may have this name.
pub const STAGING_NAME: &str = ".noctule-partial";

/// What an entry is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Kind {
    /// A regular file of this many bytes.
    File(u64),
    /// A directory.
    Dir,
    /// A symbolic link with this target.
    Link(Vec<u8>),
    /// A file whose size is known only at its end: standard input.
    Stream,
}

/// Modification time: seconds and nanoseconds since 1970.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct Mtime {
    /// Whole seconds; negative before 1970.
    pub seconds: i64,
    /// 0..1,000,000,000.
    pub nanos: u32,
}

impl Mtime {
    /// From the system's metadata.
    #[allow(clippy::unnecessary_cast, reason = "the types of times differ between systems")]
    pub fn of(stat: &rustix::fs::Stat) -> Self {
        Self { seconds: stat.st_mtime as i64, nanos: stat.st_mtime_nsec as u32 }
    }
}

/// One file, directory or link.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Entry {
    /// Name below the target directory: components joined by `/`, any bytes but NUL.
    pub path: Vec<u8>,
    /// What it is.
    pub kind: Kind,
    /// Permission bits, of 0o777.
    pub mode: u32,
    /// When it was changed last.
    pub mtime: Mtime,
}

impl Entry {
    /// Bytes of content, as far as known.
    pub fn size(&self) -> u64 {
        match self.kind {
            Kind::File(size) => size,
            _ => 0,
        }
    }

    /// Whether content is sent for it.
    pub fn has_content(&self) -> bool {
        matches!(self.kind, Kind::File(_) | Kind::Stream)
    }

    /// The name as a path of the system.
    pub fn as_path(&self) -> &Path {
        Path::new(OsStr::from_bytes(&self.path))
    }

    /// The name for display.
    pub fn shown(&self) -> String {
        shown(&self.path)
    }

    /// Checks that the name stays below the target directory and is one that file systems take.
    ///
    /// # Errors
    /// Says what is wrong with the name.
    pub fn check_name(&self) -> Result<(), String> {
        if self.path.len() > MAX_NAME {
            return Err(format!("it has {} bytes, and no name may have more than {MAX_NAME}", self.path.len()));
        }
        for part in self.path.split(|b| *b == b'/') {
            match part {
                b"" | b"." | b".." => return Err("a part of it is empty or a dot name: it could lead out of the target directory".into()),
                part if part.contains(&0) => return Err("it contains NUL".into()),
                part if part.len() > MAX_COMPONENT => {
                    return Err(format!("a part of it has {} bytes, and file systems take {MAX_COMPONENT}", part.len()));
                }
                part if part == STAGING_NAME.as_bytes() => return Err(format!("{STAGING_NAME} is the name of noctule's own directory")),
                _ => {}
            }
        }
        Ok(())
    }

    /// Names this content for resuming. A file whose size or time has changed has another content.
    pub fn content_id(&self) -> Hash {
        let mut hasher = blake3::Hasher::new();
        hasher.update(&self.path).update(&[0]).update(&self.size().to_be_bytes());
        hasher.update(&self.mtime.seconds.to_be_bytes()).update(&self.mtime.nanos.to_be_bytes());
        hasher.finalize()
    }
}

/// A name for terminals and logs: control characters are escaped, so that no name can play tricks there.
pub fn shown(name: &[u8]) -> String {
    escaped(&String::from_utf8_lossy(name)).to_string()
}

/// The name as text, for patterns and names of hosts; `None` if it is not UTF-8. For display it goes through [`shown`].
pub fn as_pattern(name: &[u8]) -> Option<&str> {
    std::str::from_utf8(name).ok()
}

/// Joins a transfer's results into one hash that both ends can show: for each file in the manifest's order name, a zero byte, and the hash of its
/// content (32 zero bytes if it failed).
pub fn digest<E: Borrow<Entry>>(entries: impl Iterator<Item = (E, Option<Hash>)>) -> Hash {
    let mut hasher = blake3::Hasher::new();
    for (entry, hash) in entries.filter(|(e, _)| e.borrow().has_content()) {
        let entry = entry.borrow();
        hasher.update(&entry.path).update(&[0]).update(hash.as_ref().map_or(&[0; 32], |h| h.as_bytes()));
    }
    hasher.finalize()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn named(path: &[u8]) -> Entry {
        Entry { path: path.to_vec(), kind: Kind::Dir, mode: 0o755, mtime: Mtime::default() }
    }

    #[test]
    fn names_that_would_lead_out_or_into_the_staging_are_unsafe() {
        let long = vec![b'x'; 256];
        for path in [
            &b"../x"[..],
            b"a/../../x",
            b"/etc/passwd",
            b"",
            b".",
            b"a\0b",
            b"a//b",
            b"a/",
            b".noctule-partial/x",
            b"a/.noctule-partial",
            b"a/.noctule-partial/b",
            &long,
        ] {
            assert!(named(path).check_name().is_err(), "{:?}", shown(path));
        }
        for path in [&b"a/..b/c../..."[..], b"line\nbreak", b"\xff\xfe", b"a/.noctule-partial-x", &b"d/".repeat(300)[..599]] {
            assert!(named(path).check_name().is_ok(), "{:?}", shown(path));
        }
    }

    #[test]
    fn names_cannot_play_tricks_on_a_terminal() {
        assert_eq!(shown(b"a\x1b[2Jb\nc"), "a\\u{1b}[2Jb\\nc");
        assert_eq!(shown("fdp.\u{202e}exe".as_bytes()), "fdp.\\u{202e}exe");
        assert_eq!(shown("grün".as_bytes()), "grün");
    }
}

//! What a getter asked for, as a check of what comes: a server that sends other names is refused before anything is written.

use super::entry::{as_pattern, shown};
use super::target::Refused;
use super::writer::protocol;
use globset::{GlobBuilder, GlobSet, GlobSetBuilder};
use std::collections::HashSet;
use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;

/// The names that what was asked for may have here: the last part of each, or what a pattern there matches.
#[derive(Debug)]
pub struct Asked {
    names: HashSet<Vec<u8>>,
    patterns: GlobSet,
    /// Everything was asked for, named as it lies there.
    is_all: bool,
}

impl Asked {
    /// For these paths; none: everything.
    pub fn new(paths: &[Vec<u8>]) -> Self {
        let (mut names, mut patterns) = (HashSet::new(), GlobSetBuilder::new());
        for path in paths {
            let last = path.rsplit(|b| *b == b'/').find(|part| !part.is_empty()).unwrap_or_default();
            names.insert(last.to_vec());
            // What is no pattern there is refused there.
            let glob = as_pattern(last).and_then(|text| GlobBuilder::new(text).literal_separator(true).build().ok());
            if let Some(glob) = glob {
                patterns.add(glob);
            }
        }
        Self { names, patterns: patterns.build().unwrap_or_default(), is_all: paths.is_empty() }
    }

    /// Whether the entry of this name was asked for, or lies below one that was.
    pub fn has(&self, path: &[u8]) -> bool {
        let top = path.split(|b| *b == b'/').next().unwrap_or_default();
        self.is_all || self.names.contains(top) || self.patterns.is_match(OsStr::from_bytes(top))
    }

    /// The same as a refusal.
    ///
    /// # Errors
    /// It was not asked for.
    pub fn check(&self, path: &[u8]) -> Result<(), Refused> {
        match self.has(path) {
            true => Ok(()),
            false => Err(protocol(&format!("it sends {}, which was not asked for", shown(path)))),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_names_that_were_asked_for_may_come() {
        let asked = |paths: &[&str]| Asked::new(&paths.iter().map(|path| path.as_bytes().to_vec()).collect::<Vec<_>>());
        for (paths, come, others) in [
            (&["a/one.c"][..], &["one.c"][..], &["a/one.c", "two.c", ".bashrc"][..]),
            (&["a"], &["a", "a/deep/b"], &["b", "ab", "b/a"]),
            (&["*/*.c", "x"], &["one.c", "x", "x/y"], &["one.o", "a/one.c"]),
            (&["[x]"], &["[x]", "x"], &["y"]),
            (&["[a"], &["[a"], &["a"]),
            (&[], &["anything", "at/all"], &[]),
        ] {
            let asked = asked(paths);
            assert!(come.iter().all(|name| asked.check(name.as_bytes()).is_ok()), "{paths:?}");
            assert!(!others.iter().any(|name| asked.has(name.as_bytes())), "{paths:?}");
        }
        assert!(asked(&["a"]).check(b"b").unwrap_err().message.contains("it sends b, which was not asked for"));
    }
}

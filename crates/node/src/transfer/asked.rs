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
    /// Those of the patterns that begin with a dot: as in a shell, no other matches a hidden name.
    of_hidden: GlobSet,
    /// Everything was asked for, named as it lies there.
    is_all: bool,
}

impl Asked {
    /// For these paths; none: everything.
    pub fn new(paths: &[Vec<u8>]) -> Self {
        let (mut names, mut patterns, mut of_hidden) = (HashSet::new(), GlobSetBuilder::new(), GlobSetBuilder::new());
        for path in paths {
            let last = path.rsplit(|b| *b == b'/').find(|part| !part.is_empty()).unwrap_or_default();
            names.insert(last.to_vec());
            // What is no pattern there is refused there.
            let glob = as_pattern(last).and_then(|text| GlobBuilder::new(text).literal_separator(true).build().ok());
            if let Some(glob) = glob {
                if last.starts_with(b".") { &mut of_hidden } else { &mut patterns }.add(glob);
            }
        }
        let built = |set: GlobSetBuilder| set.build().unwrap_or_default();
        Self { names, patterns: built(patterns), of_hidden: built(of_hidden), is_all: paths.is_empty() }
    }

    /// Whether the entry of this name was asked for, or lies below one that was.
    pub fn has(&self, path: &[u8]) -> bool {
        let top = path.split(|b| *b == b'/').next().unwrap_or_default();
        let patterns = if top.starts_with(b".") { &self.of_hidden } else { &self.patterns };
        self.is_all || self.names.contains(top) || patterns.is_match(OsStr::from_bytes(top))
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
            (&["*"], &["a", "a/.b"], &[".bashrc", ".ssh/authorized_keys"]),
            (&["?bashrc"], &["abashrc"], &[".bashrc"]),
            (&[".b*"], &[".bashrc", ".b/c"], &["b", ".a"]),
            (&[], &["anything", "at/all"], &[]),
        ] {
            let asked = asked(paths);
            assert!(come.iter().all(|name| asked.check(name.as_bytes()).is_ok()), "{paths:?}");
            assert!(!others.iter().any(|name| asked.has(name.as_bytes())), "{paths:?}");
        }
        assert!(asked(&["a"]).check(b"b").unwrap_err().message.contains("it sends b, which was not asked for"));
    }
}

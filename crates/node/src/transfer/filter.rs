//! `--exclude` and `--include`: the first rule that a name matches decides, and what no rule matches is taken.
//!
//! As rsync reads them: a pattern without `/` is for the last part of a name, at any depth; one with `/` in front is for the whole name, one with `/`
//! elsewhere for its end; `/` at the end makes it a rule for directories only. `*` and `?` do not match `/`, `**` does. What lies below a directory that
//! is left out is not looked at.

use globset::{Candidate, GlobBuilder, GlobSet, GlobSetBuilder};
use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;

/// Rules at most: they may come from the other side.
pub const MAX_RULES: usize = 256;
/// Bytes of a pattern, at most.
pub const MAX_PATTERN: usize = 1024;

/// One of them, as it was said.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Rule {
    /// Takes what it matches, or leaves it out.
    pub is_include: bool,
    /// What it matches.
    pub pattern: String,
}

/// Rules in their order, ready for use.
#[derive(Debug)]
pub struct Filter {
    rules: Vec<(bool, bool)>,
    set: GlobSet,
}

impl Default for Filter {
    fn default() -> Self {
        Self { rules: Vec::new(), set: GlobSet::empty() }
    }
}

impl Filter {
    /// Of these rules.
    ///
    /// # Errors
    /// Which rule is wrong, and why.
    pub fn new(rules: &[Rule]) -> Result<Self, String> {
        if rules.len() > MAX_RULES {
            return Err(format!("{} rules of --exclude and --include; at most {MAX_RULES} are taken", rules.len()));
        }
        let (mut set, mut kept) = (GlobSetBuilder::new(), Vec::new());
        for Rule { is_include, pattern } in rules {
            let wrong = |why: &str| format!("{} {pattern:?}: {why}", if *is_include { "--include" } else { "--exclude" });
            let (bare, is_for_dirs) = match pattern.strip_suffix('/') {
                Some(bare) => (bare, true),
                None => (&pattern[..], false),
            };
            if bare.is_empty() || pattern.len() > MAX_PATTERN {
                return Err(wrong("a pattern has 1 to 1024 bytes, and more than a slash"));
            }
            let whole = match bare.strip_prefix('/') {
                Some(anchored) => anchored.to_owned(),
                None => format!("**/{bare}"),
            };
            let glob = GlobBuilder::new(&whole).literal_separator(true).backslash_escape(true).build();
            set.add(glob.map_err(|e| wrong(&super::entry::shown(e.kind().to_string().as_bytes())))?);
            kept.push((*is_include, is_for_dirs));
        }
        let set = set.build().map_err(|e| format!("--exclude and --include: {e}"))?;
        Ok(Self { rules: kept, set })
    }

    /// Whether an entry of this name is taken.
    pub fn takes(&self, name: &[u8], is_dir: bool) -> bool {
        if self.rules.is_empty() {
            return true;
        }
        let matches = self.set.matches_candidate(&Candidate::new(OsStr::from_bytes(name)));
        let deciding = matches.into_iter().map(|at| self.rules[at]).find(|(_, is_for_dirs)| is_dir || !is_for_dirs);
        deciding.is_none_or(|(is_include, _)| is_include)
    }

    /// The same of what lies at the target: it is not looked at either below a directory that is left out.
    pub fn takes_with_parents(&self, name: &[u8], is_dir: bool) -> bool {
        let mut slashes = (0..name.len()).filter(|at| name[*at] == b'/');
        slashes.all(|at| self.takes(&name[..at], true)) && self.takes(name, is_dir)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn filter(rules: &[&str]) -> Filter {
        let rule = |text: &&str| Rule { is_include: text.starts_with('+'), pattern: text[1..].to_owned() };
        Filter::new(&rules.iter().map(rule).collect::<Vec<_>>()).unwrap()
    }

    #[test]
    fn first_rule_that_matches_decides() {
        let all_c = filter(&["+*/", "+*.c", "-*"]);
        assert!(all_c.takes(b"t/src/a.c", false) && all_c.takes(b"t/src", true) && !all_c.takes(b"t/src/a.o", false));
        let other_order = filter(&["-*", "+*.c"]);
        assert!(!other_order.takes(b"t/a.c", false));
        assert!(filter(&[]).takes(b"anything", false));
    }

    #[test]
    fn patterns_are_for_the_end_the_whole_or_directories() {
        for (rule, name, is_dir, is_taken) in [
            ("-*.o", "t/deep/x.o", false, false),
            ("-x.o", "t/xx.o", false, true),
            ("-/t/x", "t/x", false, false),
            ("-/x", "t/x", false, true),
            ("-a/b", "t/a/b", false, false),
            ("-a/*", "t/a/b/c", false, true),
            ("-a/**", "t/a/b/c", false, false),
            ("-cache/", "t/cache", true, false),
            ("-cache/", "t/cache", false, true),
            ("-[ab]?", "t/bz", false, false),
            ("-\\*", "t/*", false, false),
            ("-\\*", "t/x", false, true),
        ] {
            assert_eq!(filter(&[rule]).takes(name.as_bytes(), is_dir), is_taken, "{rule} {name}");
        }
        assert!(!filter(&["-\u{e9}?"]).takes("t/\u{e9}x".as_bytes(), false));
        assert!(!filter(&["-*.o"]).takes(b"t/\xff.o", false), "any bytes are a name");
        assert!(!filter(&["-d/"]).takes_with_parents(b"t/d/e/f", false) && filter(&["-d/"]).takes_with_parents(b"t/e", false));
    }

    #[test]
    fn what_is_no_pattern_is_named() {
        let wrong = |pattern: &str| Filter::new(&[Rule { is_include: false, pattern: pattern.to_owned() }]).unwrap_err();
        assert!(wrong("[a").contains("--exclude \"[a\""), "{}", wrong("[a"));
        assert!(wrong("/").contains("more than a slash") && wrong(&"x".repeat(2000)).contains("1024"));
        let many = vec![Rule { is_include: true, pattern: "x".into() }; MAX_RULES + 1];
        assert!(Filter::new(&many).unwrap_err().contains("at most 256"));
    }
}

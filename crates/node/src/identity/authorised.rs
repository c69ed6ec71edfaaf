//! Who may connect to a server, and who may write: the file of authorised keys, one line `[OPTIONS] KEY [COMMENT]` each, `#` begins a comment.

use crate::cli::AccessArgs;
use crate::failure::Failure;
use noctule::PublicKey;
use std::collections::HashMap;
use std::path::{Component, Path, PathBuf};

/// What a key may do besides connecting and measuring.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Grant {
    /// Send files to `recv`.
    pub may_write: bool,
    /// Replace files that exist.
    pub may_overwrite: bool,
    /// Below the directory that `recv` writes to.
    pub directory: Option<PathBuf>,
}

/// Who may connect.
#[derive(Clone, Debug, Default)]
pub struct Access {
    /// `None`: anyone who has this side's public key.
    grants: Option<HashMap<PublicKey, Grant>>,
}

impl Access {
    /// From the command line: the file (the default one if it exists) and `--allow`.
    pub fn load(args: &AccessArgs) -> Result<Self, Failure> {
        if args.anyone {
            return Ok(Self::default());
        }
        // Keys named for this run are meant to be the only ones, unless a file is named too.
        let default = || super::config_file("authorised_keys").filter(|p| p.exists() && args.allow.is_empty());
        let file = args.authorised_keys.clone().or_else(default);
        let mut grants = match &file {
            Some(path) => parse(path, &std::fs::read_to_string(path).map_err(|e| Failure::source(path, e))?)?,
            None if args.allow.is_empty() => return Ok(Self::default()),
            None => HashMap::new(),
        };
        for key in &args.allow {
            grants.entry(*key).or_default().may_write = true;
        }
        Ok(Self { grants: Some(grants) })
    }

    /// The keys that may connect; `None`: anyone.
    pub fn keys(&self) -> Option<Vec<PublicKey>> {
        self.grants.as_ref().map(|g| g.keys().copied().collect())
    }

    /// What a key may do; `None`: not even connect.
    pub fn grant(&self, key: &PublicKey) -> Option<Grant> {
        match &self.grants {
            None => Some(Grant { may_write: true, ..Grant::default() }),
            Some(grants) => grants.get(key).cloned(),
        }
    }
}

fn parse(path: &Path, text: &str) -> Result<HashMap<PublicKey, Grant>, Failure> {
    let mut grants = HashMap::new();
    for (number, line) in (1..).zip(text.lines().map(str::trim)) {
        if line.is_empty() || line.starts_with('#') {
            continue;
        }
        let (key, grant) = parse_line(line).map_err(|e| Failure::source(path, format!("line {number}: {e}")))?;
        grants.insert(key, grant);
    }
    Ok(grants)
}

/// Cuts at the first of `ends` that is not within double quotes.
fn cut(text: &str, ends: char) -> (&str, &str) {
    let mut is_quoted = false;
    for (at, c) in text.char_indices() {
        match c {
            '"' => is_quoted = !is_quoted,
            c if !is_quoted && (c == ends || ends == ' ' && c.is_whitespace()) => return (&text[..at], &text[at + c.len_utf8()..]),
            _ => {}
        }
    }
    (text, "")
}

fn parse_line(line: &str) -> Result<(PublicKey, Grant), String> {
    let (first, rest) = cut(line, ' ');
    let error = match first.parse() {
        Ok(key) => return Ok((key, Grant::default())),
        Err(error) => error,
    };
    let (key, _) = cut(rest.trim_start(), ' ');
    // A lone word was meant to be a key.
    let key = if key.is_empty() { return Err(format!("{error}")) } else { key.parse().map_err(|e| format!("{e}"))? };
    let mut grant = Grant::default();
    let mut options = first;
    while !options.is_empty() {
        let (option, rest) = cut(options, ',');
        options = rest;
        match option.split_once('=') {
            None if option == "write" => grant.may_write = true,
            None if option == "overwrite" => (grant.may_write, grant.may_overwrite) = (true, true),
            Some(("dir", directory)) => grant.directory = Some(below(directory.trim_matches('"'))?),
            _ => return Err(format!("unknown option {option:?}: write, overwrite and dir=\"DIRECTORY\" exist")),
        }
    }
    Ok((key, grant))
}

/// A directory that cannot lead out.
fn below(directory: &str) -> Result<PathBuf, String> {
    let path = PathBuf::from(directory);
    match path.components().all(|c| matches!(c, Component::Normal(_))) && !directory.is_empty() {
        true => Ok(path),
        false => Err(format!("{directory:?}: dir= takes a directory below that of --into, without '..' and no '/' in front")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn key(n: u8) -> PublicKey {
        noctule::SecretKey::from_bytes([n; 32]).public()
    }

    fn read(text: &str) -> Result<HashMap<PublicKey, Grant>, String> {
        parse(Path::new("file"), text).map_err(|e| e.to_string())
    }

    #[test]
    fn lines_say_who_may_connect_who_may_write_and_where() {
        let (a, b, c) = (key(1), key(2), key(3));
        let text = format!("# friends\n\n{a} only measures\nwrite {b} Bob's laptop\n  overwrite,dir=\"from c/x\"   {c}\n");
        let grants = read(&text).unwrap();
        assert_eq!(grants[&a], Grant::default());
        assert_eq!(grants[&b], Grant { may_write: true, ..Grant::default() });
        assert_eq!(grants[&c], Grant { may_write: true, may_overwrite: true, directory: Some("from c/x".into()) });
        assert_eq!(grants.len(), 3);
    }

    #[test]
    fn what_cannot_be_meant_is_told_with_its_line() {
        let k = key(1);
        for (text, words) in [
            (format!("write,fly {k}"), "unknown option \"fly\""),
            (format!("{k}\nwrite nonsense"), "line 2"),
            ("nonsense".to_owned(), "line 1"),
            (format!("dir=\"../x\" {k}"), "below that of --into"),
            (format!("dir=/etc {k}"), "below that of --into"),
            (format!("dir= {k}"), "below that of --into"),
        ] {
            let error = read(&text).unwrap_err();
            assert!(error.contains(words), "{text}: {error}");
        }
    }

    #[test]
    fn without_a_list_anyone_may_write_and_with_one_nobody_else_may_connect() {
        let anyone = Access::default();
        assert!(anyone.keys().is_none() && anyone.grant(&key(9)).unwrap().may_write);
        let args = AccessArgs { allow: vec![key(1)], ..AccessArgs::default() };
        let some = Access::load(&args).unwrap();
        assert_eq!(some.keys(), Some(vec![key(1)]));
        assert!(some.grant(&key(1)).unwrap().may_write);
        assert_eq!(some.grant(&key(2)), None);
    }
}

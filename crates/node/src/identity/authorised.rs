//! Which keys may connect to a server, and which may write: the file of authorised keys. A line is `[OPTIONS] KEY [COMMENT]`; `#` begins a comment.
//!
//! None, unless the command line or that file says so. Where neither does, the key whose holder proves the code ([`crate::code`]).

use crate::cli::AccessArgs;
use crate::failure::Failure;
use crate::units::counted;
use noctule::PublicKey;
use std::collections::HashMap;
use std::io;
use std::path::{Component, Path, PathBuf};

/// What a key may do besides connecting and measuring.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Grant {
    /// Send files to `recv`.
    pub may_write: bool,
    /// Replace files that exist.
    pub may_overwrite: bool,
    /// The comment of its line, for logs.
    pub name: Option<String>,
    /// Delete what it does not have, in the directories that it sends.
    pub may_delete: bool,
    /// Get files from `serve`.
    pub may_read: bool,
    /// Connect to targets by `proxy serve`.
    pub may_proxy: bool,
    /// Below the directory that `recv` writes to, or `serve` offers.
    pub directory: Option<PathBuf>,
}

/// What a key that comes in wants to do.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Wanted {
    /// To send files: a listed key may do it with the option `write`.
    Files,
    /// To measure: any listed key may.
    Tests,
    /// To get files: a listed key may do it with the option `read`; to send some, too, with `write`.
    Offer {
        /// Files are taken, too.
        is_writable: bool,
    },
    /// To connect by a proxy: a listed key may do it with the option `proxy`.
    Proxy,
    /// To send files where nothing can be answered, so no code either.
    OneWayFiles,
}

/// Which keys may connect.
#[derive(Clone, Debug)]
pub struct Access {
    /// `None`: anyone.
    grants: Option<HashMap<PublicKey, Grant>>,
    /// Besides these, one key that proves that it has a code.
    takes_code: bool,
    /// Where keys that had the code are added.
    remembers: Option<PathBuf>,
    /// What is added.
    options: &'static str,
    /// The default file was asked for keys. It is not asked later where it was not at the start.
    reads_default: bool,
}

impl Access {
    /// From the command line: the file (the default one if it exists) and `--allow`; a code if there is neither, or if it is asked for.
    pub fn load(args: &AccessArgs, wants_code: bool, wanted: Wanted) -> Result<Self, Failure> {
        let options = match wanted {
            Wanted::Tests => "",
            Wanted::Proxy => "proxy ",
            Wanted::Offer { is_writable: true } => "read,write ",
            Wanted::Offer { is_writable: false } => "read ",
            Wanted::Files | Wanted::OneWayFiles => "write ",
        };
        if args.anyone {
            tell!("noctule: warning: --anyone: every peer that reaches this port may {}", wanted.verb());
            return Ok(Self { grants: None, takes_code: false, remembers: None, options, reads_default: false });
        }
        let default = super::config_file("authorised_keys");
        let (file, grants) = lists(args, default.as_deref())?;
        // The default file is made by --remember before it has a key, and then says nothing yet.
        let is_unsaid = grants.is_empty() && args.authorised_keys.is_none();
        if wanted == Wanted::OneWayFiles && (is_unsaid || wants_code || args.remember) {
            return Err(Failure::Usage(
                "with --one-way nothing can be answered, so no code can be taken: say who may send with --allow KEY, a file of authorised keys, or --anyone".into(),
            ));
        }
        let takes_code = is_unsaid || wants_code;
        if args.remember && !takes_code {
            return Err(Failure::Usage("--remember is for keys that come with a code: say --code, too".into()));
        }
        let can = |grant: &Grant| match wanted {
            Wanted::Tests => true,
            Wanted::Proxy => grant.may_proxy,
            Wanted::Files | Wanted::OneWayFiles => grant.may_write,
            Wanted::Offer { is_writable } => grant.may_read || is_writable && grant.may_write,
        };
        if !takes_code && !grants.values().any(can) {
            let name = file.map_or_else(String::new, |f| f.display().to_string());
            let lack = match wanted {
                _ if grants.is_empty() => "names no key",
                Wanted::Offer { .. } => "names no key with the option `read`",
                Wanted::Proxy => "names no key with the option `proxy`",
                _ => "names no key with the option `write`",
            };
            return Err(Failure::Usage(format!(
                "{name} {lack}, so nobody may {}: add one there, or say --allow KEY, --code to let one sender in by a code, or --anyone",
                wanted.verb()
            )));
        }
        let remembers = match (args.remember, file.or(default)) {
            (true, None) => return Err(Failure::Usage("no home directory: name the file for --remember with --authorised-keys".into())),
            (is_on, file) => file.filter(|_| is_on),
        };
        Ok(Self { grants: Some(grants), takes_code, remembers, options, reads_default: args.allow.is_empty() })
    }

    /// The same lists, read again by a server at work. They may name no key any more; whether a code is taken stays.
    ///
    /// # Errors
    /// A list cannot be read, or is wrong.
    pub fn again(&self, args: &AccessArgs) -> Result<Self, Failure> {
        self.again_from(args, super::config_file("authorised_keys").as_deref())
    }

    fn again_from(&self, args: &AccessArgs, default: Option<&Path>) -> Result<Self, Failure> {
        let default = default.filter(|_| self.reads_default);
        let read = |_: &HashMap<_, _>| lists(args, default).map(|(_, grants)| grants);
        let grants = self.grants.as_ref().map(read).transpose()?;
        Ok(Self { grants, remembers: self.remembers.clone(), ..*self })
    }

    /// The keys that may connect; `None`: any, though one that needs a code can do nothing before it has proven it.
    pub fn keys(&self) -> Option<Vec<PublicKey>> {
        self.grants.as_ref().filter(|_| !self.takes_code).map(|g| g.keys().copied().collect())
    }

    /// Whether a code lets one more key in.
    pub fn takes_code(&self) -> bool {
        self.takes_code
    }

    /// What a listed key may do; `None`: nothing.
    pub fn grant(&self, key: &PublicKey) -> Option<Grant> {
        match &self.grants {
            None => Some(Grant { may_write: true, may_read: true, may_proxy: true, ..Grant::default() }),
            Some(grants) => grants.get(key).cloned(),
        }
    }

    /// The peers that are taken, in words.
    pub fn shown(&self) -> String {
        let keys = self.grants.as_ref().map(HashMap::len);
        match (keys, self.takes_code) {
            (None, _) => "every peer that reaches this port is taken (--anyone)".into(),
            (Some(0), _) => "only the peer that has the code is taken".into(),
            (Some(1), false) => "one key is taken".into(),
            (Some(n), false) => format!("{n} keys are taken"),
            (Some(n), true) => format!("the peer that has the code is taken, and {}", counted(n as u64, "listed key")),
        }
    }

    /// Adds a key that had the code to the file of authorised keys, if that is wanted; what failed.
    pub fn remember(&self, key: &PublicKey, from: &str) -> Option<(&Path, io::Error)> {
        let path = self.remembers.as_deref().filter(|_| self.grant(key).is_none())?;
        // The file may have it since this program has started, by the same code.
        let has_it = std::fs::read_to_string(path).is_ok_and(|text| parse(path, &text).is_ok_and(|grants| grants.contains_key(key)));
        if has_it {
            return None;
        }
        super::known_hosts::append_line(path, &format!("{}{key} by a code, from {from}", self.options)).err().map(|e| (path, e))
    }
}

impl Wanted {
    fn verb(self) -> &'static str {
        match self {
            Self::Files | Self::OneWayFiles => "send",
            Self::Tests => "measure",
            Self::Proxy => "connect by this proxy",
            Self::Offer { is_writable: false } => "get files",
            Self::Offer { is_writable: true } => "get and send files",
        }
    }
}

/// The file that is read, if there is one, and what it and the command line say of keys.
fn lists(args: &AccessArgs, default: Option<&Path>) -> Result<(Option<PathBuf>, HashMap<PublicKey, Grant>), Failure> {
    // Keys named for this run are meant to be the only ones, unless a file is named too.
    let existing = || default.filter(|p| p.exists() && args.allow.is_empty()).map(Path::to_owned);
    let file = args.authorised_keys.clone().or_else(existing);
    let mut grants = match &file {
        Some(path) if args.remember && !path.exists() => HashMap::new(),
        Some(path) => parse(path, &super::read_trusted(path)?)?,
        None => HashMap::new(),
    };
    for key in &args.allow {
        let grant = grants.entry(*key).or_default();
        (grant.may_write, grant.may_read, grant.may_proxy) = (true, true, true);
    }
    Ok((file, grants))
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

/// Reads a list; whatever it is, a refusal names its line.
#[cfg(any(test, fuzzing))]
pub fn check(text: &str) {
    if let Err(failure) = parse(Path::new("authorised_keys"), text) {
        assert!(failure.to_string().contains("line "), "{failure}");
    }
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
        Ok(key) => return Ok((key, Grant { name: comment(rest), ..Grant::default() })),
        Err(error) => error,
    };
    let (key, after) = cut(rest.trim_start(), ' ');
    // A lone word was meant to be a key.
    let key = if key.is_empty() { return Err(format!("{error}")) } else { key.parse().map_err(|e| format!("{e}"))? };
    let mut grant = Grant { name: comment(after), ..Grant::default() };
    let mut options = first;
    while !options.is_empty() {
        let (option, rest) = cut(options, ',');
        options = rest;
        match option.split_once('=') {
            None if option == "write" => grant.may_write = true,
            None if option == "overwrite" => (grant.may_write, grant.may_overwrite) = (true, true),
            None if option == "delete" => (grant.may_write, grant.may_delete) = (true, true),
            None if option == "read" => grant.may_read = true,
            None if option == "proxy" => grant.may_proxy = true,
            Some(("dir", directory)) => grant.directory = Some(below(directory.trim_matches('"'))?),
            _ => return Err(format!("unknown option {option:?}: read, write, overwrite, delete, proxy and dir=\"DIRECTORY\" exist")),
        }
    }
    Ok((key, grant))
}

/// The comment after a key.
fn comment(rest: &str) -> Option<String> {
    Some(rest.trim().to_owned()).filter(|text| !text.is_empty())
}

/// A directory that cannot lead out.
fn below(directory: &str) -> Result<PathBuf, String> {
    let path = PathBuf::from(directory);
    match path.components().all(|c| matches!(c, Component::Normal(_))) && !directory.is_empty() {
        true => Ok(path),
        false => {
            Err(format!("{directory:?}: dir= takes a directory below that of recv --into or of serve, without '..' and no '/' in front"))
        }
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
        assert_eq!(grants[&a], Grant { name: Some("only measures".into()), ..Grant::default() });
        assert_eq!(grants[&b], Grant { may_write: true, name: Some("Bob's laptop".into()), ..Grant::default() });
        assert_eq!(grants[&c], Grant { may_write: true, may_overwrite: true, directory: Some("from c/x".into()), ..Grant::default() });
        assert_eq!(grants.len(), 3);
        assert!(read(&format!("proxy {a}")).unwrap()[&a].may_proxy && !grants[&c].may_proxy);
        let reads = read(&format!("read,delete {a}\nread {b}")).unwrap();
        assert_eq!(reads[&a], Grant { may_read: true, may_write: true, may_delete: true, ..Grant::default() });
        assert!(reads[&b].may_read && !reads[&b].may_write);
    }

    #[test]
    fn what_cannot_be_meant_is_told_with_its_line() {
        let k = key(1);
        for (text, words) in [
            (format!("write,fly {k}"), "unknown option \"fly\""),
            (format!("{k}\nwrite nonsense"), "line 2"),
            ("nonsense".to_owned(), "line 1"),
            (format!("dir=\"../x\" {k}"), "below that of recv --into"),
            (format!("dir=/etc {k}"), "below that of recv --into"),
            (format!("dir= {k}"), "below that of recv --into"),
        ] {
            let error = read(&text).unwrap_err();
            assert!(error.contains(words), "{text}: {error}");
        }
    }

    #[test]
    fn nobody_may_write_unless_it_is_said() {
        let dir = tempfile::tempdir().unwrap();
        let file = dir.path().join("keys");
        std::fs::write(&file, "# nobody yet\n").unwrap();
        let load = |args: &AccessArgs, wants_code| Access::load(args, wants_code, Wanted::Files);
        let listed = AccessArgs { authorised_keys: Some(file.clone()), ..AccessArgs::default() };
        let words = |result: Result<Access, Failure>| result.unwrap_err().to_string();
        assert!(words(load(&listed, false)).contains("names no key, so nobody may send"));
        std::fs::write(&file, format!("{}\n", key(3))).unwrap();
        assert!(words(load(&listed, false)).contains("option `write`"));
        assert!(Access::load(&listed, false, Wanted::Tests).unwrap().grant(&key(3)).is_some());
        let everybody = std::os::unix::fs::PermissionsExt::from_mode(0o646);
        std::fs::set_permissions(&file, everybody).unwrap();
        assert!(words(load(&listed, false)).contains("chmod o-w"), "it says nothing about trust");
        std::fs::set_permissions(&file, std::os::unix::fs::PermissionsExt::from_mode(0o644)).unwrap();
        // With a code others may connect, and have no grant before they prove it.
        let with_code = load(&listed, true).unwrap();
        assert!(with_code.takes_code() && with_code.keys().is_none() && with_code.grant(&key(9)).is_none());
        let anyone = load(&AccessArgs { anyone: true, ..AccessArgs::default() }, false).unwrap();
        assert!(anyone.keys().is_none() && !anyone.takes_code() && anyone.grant(&key(9)).unwrap().may_write);
        let some = load(&AccessArgs { allow: vec![key(1)], ..AccessArgs::default() }, false).unwrap();
        assert_eq!((some.keys(), some.takes_code()), (Some(vec![key(1)]), false));
        assert!(some.grant(&key(1)).unwrap().may_write);
        assert_eq!(some.grant(&key(2)), None);
        let one_way = |args: &AccessArgs, wants_code| Access::load(args, wants_code, Wanted::OneWayFiles).is_ok();
        let allowed = AccessArgs { allow: vec![key(1)], ..AccessArgs::default() };
        assert!(one_way(&allowed, false) && !one_way(&allowed, true));
    }

    #[test]
    fn keys_that_were_not_asked_for_at_the_start_are_not_let_in_by_a_reload() {
        let dir = tempfile::tempdir().unwrap();
        let default = dir.path().join("authorised_keys");
        std::fs::write(&default, format!("proxy {}\n", key(7))).unwrap();
        let named = Access::load(&AccessArgs { allow: vec![key(1)], ..AccessArgs::default() }, false, Wanted::Proxy).unwrap();
        // The last user has left the file.
        let again = named.again_from(&AccessArgs::default(), Some(&default)).unwrap();
        assert_eq!(again.keys(), Some(vec![]));
        let asked = Access { reads_default: true, ..named };
        assert_eq!(asked.again_from(&AccessArgs::default(), Some(&default)).unwrap().keys(), Some(vec![key(7)]));
    }

    #[test]
    fn a_key_that_had_the_code_is_added_to_the_file_if_that_is_wanted() {
        let dir = tempfile::tempdir().unwrap();
        let file = dir.path().join("keys");
        let args = AccessArgs { authorised_keys: Some(file.clone()), remember: true, ..AccessArgs::default() };
        let access = Access::load(&args, true, Wanted::Files).unwrap();
        assert!(access.remember(&key(5), "192.0.2.1:7").is_none());
        let later = Access::load(&AccessArgs { remember: false, ..args }, false, Wanted::Files).unwrap();
        assert!(later.grant(&key(5)).unwrap().may_write);
    }
}

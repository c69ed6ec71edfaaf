//! Trust on first use: the file of remembered keys, one line `HOST:PORT KEY` each, `#` begins a comment.

use crate::failure::Failure;
use crate::whole_file;
use noctule::PublicKey;
use std::fs::{DirBuilder, File, OpenOptions};
use std::io::{self, Read, Write};
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

/// The remembered keys of hosts.
pub struct KnownHosts {
    path: PathBuf,
    text: String,
}

/// What the file says about a host.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Known {
    /// The remembered key.
    pub key: PublicKey,
    /// In this line, from 1.
    pub line: usize,
}

/// Host names do not depend on case.
fn normal(host: &str) -> String {
    host.to_ascii_lowercase()
}

impl KnownHosts {
    /// Reads the file; one that does not exist knows nobody.
    pub fn open(path: &Path) -> Result<Self, Failure> {
        let text = match std::fs::read_to_string(path) {
            Ok(text) => text,
            Err(e) if e.kind() == io::ErrorKind::NotFound => String::new(),
            Err(e) => return Err(Failure::source(path, e)),
        };
        Ok(Self { path: path.to_owned(), text })
    }

    /// Where it lies.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Every host in the file, with its port.
    pub fn names(&self) -> impl Iterator<Item = &str> {
        self.text.lines().filter_map(|line| line.split_whitespace().next()).filter(|name| !name.starts_with('#'))
    }

    /// The key remembered for `host` (with its port).
    pub fn find(&self, host: &str) -> Result<Option<Known>, Failure> {
        for (number, line) in (1..).zip(self.text.lines()) {
            let mut words = line.split_whitespace();
            match (words.next(), words.next()) {
                (Some(name), _) if name.starts_with('#') => {}
                (Some(name), Some(key)) if normal(name) == normal(host) => {
                    let key = key.parse().map_err(|e| Failure::source(&self.path, format!("line {number}: {e}")))?;
                    return Ok(Some(Known { key, line: number }));
                }
                _ => {}
            }
        }
        Ok(None)
    }

    /// Appends a key. Never readable or writable by others, though nothing in it is secret: a user that can write it can pose as a host.
    pub fn remember(&mut self, host: &str, key: PublicKey) -> io::Result<()> {
        let line = append_line(&self.path, &format!("{} {key}", normal(host)))?;
        self.text.push_str(&line);
        Ok(())
    }

    /// Removes every line of a host; how many there were. The file is replaced as a whole.
    pub fn forget(&mut self, host: &str) -> Result<usize, Failure> {
        let is_of_host = |line: &&str| line.split_whitespace().next().is_some_and(|name| normal(name) == normal(host));
        let (gone, kept): (Vec<&str>, Vec<&str>) = self.text.lines().partition(is_of_host);
        if gone.is_empty() {
            return Ok(0);
        }
        let count = gone.len();
        let text: String = kept.iter().map(|l| format!("{l}\n")).collect();
        whole_file::replace(&self.path, text.as_bytes(), None).map_err(|e| Failure::target(&self.path, &e))?;
        self.text = text;
        Ok(count)
    }
}

/// Appends a line to a file of the user's own, which is made if it is not there; what was written.
pub fn append_line(path: &Path, line: &str) -> io::Result<String> {
    if let Some(parent) = path.parent().filter(|p| !p.as_os_str().is_empty()) {
        DirBuilder::new().recursive(true).mode(0o700).create(parent)?;
    }
    let mut file = OpenOptions::new().read(true).append(true).create(true).mode(0o600).open(path)?;
    let text = format!("{}{line}\n", if ends_in_mid_line(&mut file)? { "\n" } else { "" });
    file.write_all(text.as_bytes())?;
    Ok(text)
}

/// Reads a list as for each of the hosts in it.
#[cfg(any(test, fuzzing))]
pub fn check(text: &str) {
    let hosts = KnownHosts { path: PathBuf::from("known_hosts"), text: text.to_owned() };
    let names: Vec<&str> = text.lines().filter_map(|l| l.split_whitespace().next()).take(4).collect();
    for name in names {
        if let Err(failure) = hosts.find(name) {
            assert!(failure.to_string().contains("line "), "{failure}");
        }
    }
}

/// The last line has no end: something appended would become part of it.
fn ends_in_mid_line(file: &mut File) -> io::Result<bool> {
    let mut text = Vec::new();
    file.read_to_end(&mut text)?;
    Ok(text.last().is_some_and(|b| *b != b'\n'))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn key(n: u8) -> PublicKey {
        noctule::SecretKey::from_bytes([n; 32]).public()
    }

    #[test]
    fn hosts_are_remembered_found_by_name_and_port_and_forgotten() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("deep/known_hosts");
        let mut hosts = KnownHosts::open(&path).unwrap();
        hosts.remember("Example.org:4242", key(1)).unwrap();
        hosts.remember("[::1]:4242", key(2)).unwrap();
        let mut hosts = KnownHosts::open(&path).unwrap();
        assert_eq!(hosts.find("example.ORG:4242").unwrap(), Some(Known { key: key(1), line: 1 }));
        assert_eq!(hosts.find("[::1]:4242").unwrap().unwrap().line, 2);
        assert_eq!(hosts.find("example.org:7").unwrap(), None);
        assert_eq!(hosts.forget("EXAMPLE.org:4242").unwrap(), 1);
        assert_eq!(KnownHosts::open(&path).unwrap().find("example.org:4242").unwrap(), None);
        assert_eq!(KnownHosts::open(&path).unwrap().find("[::1]:4242").unwrap().unwrap().line, 1);
    }

    #[test]
    fn comments_stay_and_damage_is_told_with_its_line() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("known_hosts");
        std::fs::write(&path, format!("# mine\n\na:1 nonsense\nb:1 {} a note", key(3))).unwrap();
        let mut hosts = KnownHosts::open(&path).unwrap();
        assert!(hosts.find("a:1").unwrap_err().to_string().contains("line 3"));
        hosts.remember("c:1", key(4)).unwrap();
        let mut hosts = KnownHosts::open(&path).unwrap();
        assert_eq!(hosts.find("b:1").unwrap().unwrap().key, key(3));
        assert_eq!(hosts.find("c:1").unwrap(), Some(Known { key: key(4), line: 5 }));
        hosts.forget("b:1").unwrap();
        assert!(std::fs::read_to_string(&path).unwrap().starts_with("# mine\n"));
    }
}

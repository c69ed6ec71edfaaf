//! The text of the file: blocks of `Host PATTERN...`, each followed by `Keyword value` lines, as ssh_config(5) has them. Every value is read, of blocks
//! that do not match too, so that a mistake is told when it is made.

use super::Settings;
use crate::address::HostPort;
use crate::further_path::FurtherPath;
use crate::units::{CcName, Patience, Rate};
use noctule::PublicKey;
use std::path::{Path, PathBuf};
use std::str::FromStr;

/// Every keyword, what it takes, and what it means: the manual page is made of this.
pub const KEYWORDS: [(&str, &str, &str); 16] = [
    (
        "Host",
        "PATTERN...",
        "begins a block for the hosts that match a pattern: * stands for any characters, ? for one, and a ! in front excludes",
    ),
    ("HostName", "HOST", "the name or address to connect to [default: the name as it was given]"),
    ("Port", "PORT", "its UDP port [default: 4242]"),
    ("PeerKey", "KEY", "the public key that it must have, as --peer-key"),
    ("KnownHostsFile", "FILE", "the file of remembered keys, as --known-hosts"),
    ("IdentityFile", "FILE", "this side's secret key, as --key"),
    ("PskFile", "FILE", "the pre-shared key, as --psk"),
    ("Via", "NODE...", "the nodes to reach it over, as --via; needs Address"),
    ("ViaKey", "KEY...", "their public keys, as --via-key"),
    ("ViaPskFile", "FILE", "the pre-shared key of the link to the node, as --via-psk"),
    ("Address", "IP", "this side's address in the overlay, as --address"),
    ("CC", "NAME", "congestion control, as --cc"),
    ("LimitRate", "RATE", "of `noctule send` and `noctule get`, as --limit-rate"),
    ("MTU", "BYTES", "largest IPv4 packet to send, as --mtu"),
    ("Timeout", "TIME", "silence after which the other side is given up, as --timeout"),
    ("Path", "FROM[,TO]...", "further paths to it, as --path"),
];

/// One `Host` line and what follows it.
#[derive(Debug)]
pub struct Block {
    patterns: Vec<String>,
    pub settings: Settings,
}

impl Block {
    /// Whether it is for this host.
    pub fn is_for(&self, host: &str) -> bool {
        let matching = |pattern: &String| is_match(pattern.trim_start_matches('!').as_bytes(), host.as_bytes());
        let (negated, plain): (Vec<_>, Vec<_>) = self.patterns.iter().partition(|p| p.starts_with('!'));
        !negated.into_iter().any(matching) && plain.into_iter().any(matching)
    }

    /// Names that are no patterns.
    pub fn names(&self) -> impl Iterator<Item = &str> {
        self.patterns.iter().map(String::as_str).filter(|p| !p.contains(['*', '?', '!']))
    }
}

/// Whether a pattern fits a whole name, whatever the case. Work grows with the product of their lengths.
fn is_match(pattern: &[u8], name: &[u8]) -> bool {
    let (mut p, mut n, mut star) = (0, 0, None);
    while n < name.len() {
        match pattern.get(p) {
            Some(b'*') => {
                star = Some((p, n));
                p += 1;
            }
            Some(c) if *c == b'?' || c.eq_ignore_ascii_case(&name[n]) => (p, n) = (p + 1, n + 1),
            // The last star takes one more.
            _ => match star {
                Some((at, taken)) => {
                    star = Some((at, taken + 1));
                    (p, n) = (at + 1, taken + 1);
                }
                None => return false,
            },
        }
    }
    pattern[p..].iter().all(|c| *c == b'*')
}

/// Words of a line; a word in double quotes may hold spaces, `#` at the beginning of a word begins a comment, and the first `=` may stand for a space.
fn words(line: &str) -> Result<Vec<String>, String> {
    let (mut words, mut rest) = (Vec::new(), line.trim_start());
    while !rest.is_empty() && !rest.starts_with('#') {
        let (word, after) = match rest.strip_prefix('"') {
            Some(quoted) => quoted.split_once('"').ok_or("a quote is not closed")?,
            None => {
                let is_end = |c: char| c.is_whitespace() || words.is_empty() && c == '=';
                rest.split_at(rest.find(is_end).unwrap_or(rest.len()))
            }
        };
        words.push(word.to_owned());
        rest = after.trim_start();
        if words.len() == 1 {
            rest = rest.strip_prefix('=').unwrap_or(rest).trim_start();
        }
    }
    Ok(words)
}

/// The blocks of a file; `base` is its directory. A refusal names the line.
pub fn parse(text: &str, base: &Path) -> Result<Vec<Block>, (usize, String)> {
    // What stands before the first Host is for every host.
    let mut blocks = vec![Block { patterns: vec!["*".into()], settings: Settings::default() }];
    for (number, line) in (1..).zip(text.lines()) {
        let words = words(line).map_err(|wrong| (number, wrong))?;
        let Some((keyword, values)) = words.split_first() else { continue };
        if values.is_empty() || values.iter().any(String::is_empty) {
            return Err((number, format!("{keyword} lacks its value")));
        }
        if keyword.eq_ignore_ascii_case("host") {
            blocks.push(Block { patterns: values.to_vec(), settings: Settings::default() });
            continue;
        }
        if let Some(block) = blocks.last_mut() {
            set(&mut block.settings, keyword, values, base).map_err(|wrong| (number, wrong))?;
        }
    }
    Ok(blocks)
}

/// Takes one line over, unless an earlier one of the block says otherwise: the first counts.
fn set(settings: &mut Settings, keyword: &str, values: &[String], base: &Path) -> Result<(), String> {
    let one = || match values {
        [one] => Ok(one.as_str()),
        _ => Err(format!("{keyword} takes one value, and here are {}: one with spaces is written in double quotes", values.len())),
    };
    let file = || one().map(|name| path(name, base));
    match keyword.to_ascii_lowercase().as_str() {
        "hostname" => keep(&mut settings.host_name, one_host(one()?)?),
        "port" => keep(
            &mut settings.port,
            read::<std::num::NonZeroU16>(keyword, one()?)
                .map_err(|_| format!("{keyword}: {:?} is no port: ports are numbers from 1 to 65535", values[0]))?
                .get(),
        ),
        "peerkey" => keep(&mut settings.peer_key, read(keyword, one()?)?),
        "knownhostsfile" => keep(&mut settings.known_hosts, file()?),
        "identityfile" => keep(&mut settings.key, file()?),
        "pskfile" => keep(&mut settings.psk, file()?),
        "via" => {
            for node in values {
                node.parse::<HostPort>().map_err(|wrong| format!("{keyword}: {wrong}"))?;
            }
            keep(&mut settings.via, values.to_vec());
        }
        "viakey" => keep(&mut settings.via_key, values.iter().map(|v| read::<PublicKey>(keyword, v)).collect::<Result<_, _>>()?),
        "viapskfile" => keep(&mut settings.via_psk, file()?),
        "address" => keep(&mut settings.address, read(keyword, one()?)?),
        "cc" => keep(&mut settings.cc, read::<CcName>(keyword, one()?)?),
        "limitrate" => keep(&mut settings.limit_rate, read::<Rate>(keyword, one()?)?),
        "mtu" => {
            let mtu: u16 = read(keyword, one()?)?;
            if mtu < crate::cli::LEAST_MTU {
                return Err(format!("{keyword}: {mtu} bytes are too few: {} to 65535", crate::cli::LEAST_MTU));
            }
            keep(&mut settings.mtu, mtu);
        }
        "timeout" => keep(&mut settings.timeout, read::<Patience>(keyword, one()?)?),
        "path" => keep(&mut settings.paths, values.iter().map(|v| read::<FurtherPath>(keyword, v)).collect::<Result<_, _>>()?),
        _ => {
            let known: Vec<&str> = KEYWORDS.iter().map(|(name, ..)| *name).collect();
            return Err(format!("unknown keyword {keyword:?}: {} exist", known.join(", ")));
        }
    }
    Ok(())
}

fn keep<T>(setting: &mut Option<T>, value: T) {
    setting.get_or_insert(value);
}

fn read<T: FromStr<Err: std::fmt::Display>>(keyword: &str, text: &str) -> Result<T, String> {
    text.parse().map_err(|wrong| format!("{keyword} {text:?}: {wrong}"))
}

/// A host without a port, which has a line of its own.
fn one_host(text: &str) -> Result<String, String> {
    let parsed: HostPort = text.parse().map_err(|wrong| format!("HostName: {wrong}"))?;
    match parsed.port() {
        Some(port) => Err(format!("HostName {text:?}: the port has a line of its own: Port {port}")),
        None => Ok(parsed.host().to_owned()),
    }
}

/// `~/` is the home directory; what is relative is so to the file.
fn path(name: &str, base: &Path) -> PathBuf {
    match (name.strip_prefix("~/"), crate::identity::home()) {
        (Some(rest), Some(home)) => home.join(rest),
        _ => base.join(name),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn patterns_match_whole_names() {
        for (pattern, name, expected) in [
            ("hill", "HILL", true),
            ("hill", "hill2", false),
            ("*", "", true),
            ("*.example.org", "a.b.example.org", true),
            ("*.example.org", "example.org", false),
            ("h?ll*", "hull", true),
            ("a*b*c", "aXbYbZc", true),
            ("a*b*c", "aXbYbZ", false),
        ] {
            assert_eq!(is_match(pattern.as_bytes(), name.as_bytes()), expected, "{pattern} {name}");
        }
        // Star upon star is no work.
        assert!(!is_match("*a".repeat(2000).as_bytes(), "a".repeat(1999).as_bytes()));
    }

    #[test]
    fn lines_are_words_quotes_and_comments() {
        let split = |line: &str| words(line).unwrap().join("|");
        for (line, expected) in [
            ("  Port 5000  # mine", "Port|5000"),
            ("Port=5000", "Port|5000"),
            ("Port = 5000", "Port|5000"),
            ("PskFile \"a file\"", "PskFile|a file"),
            ("# all", ""),
            ("", ""),
            ("CC rate:1mbit", "CC|rate:1mbit"),
            ("IdentityFile a=b", "IdentityFile|a=b"),
        ] {
            assert_eq!(split(line), expected);
        }
        assert!(words("PskFile \"a").is_err());
    }

    #[test]
    fn every_keyword_is_known_and_every_mistake_names_its_line() {
        let key = noctule::SecretKey::from_bytes([1; 32]).public().to_string();
        for (name, takes, _) in KEYWORDS {
            let value = match takes {
                "HOST" | "NODE..." | "PATTERN..." | "FILE" => "hill",
                "PORT" => "5000",
                "KEY" | "KEY..." => &key,
                "IP" | "FROM[,TO]..." => "192.0.2.1",
                "NAME" => "cubic",
                "RATE" => "20mbit",
                "BYTES" => "1400",
                "TIME" => "10s",
                other => panic!("{other} has no example"),
            };
            parse(&format!("{name} {value}"), Path::new("/")).unwrap_or_else(|(_, wrong)| panic!("{wrong}"));
        }
        for (line, words) in [
            ("Hostname a b", "one value"),
            ("HostName a:5", "Port 5"),
            ("Port 0", "no port"),
            ("Port", "lacks its value"),
            ("PeerKey nonsense", "PeerKey"),
            ("Prot 5", "unknown keyword \"Prot\""),
            ("CC fast", "unknown congestion control"),
            ("LimitRate 2M", "2mbit or 2MB"),
            ("MTU 100", "too few"),
            ("Timeout 60s", "between 1s and 30s"),
            ("Path hill", "no IP address"),
            ("Via a/b", "in it"),
        ] {
            let (number, wrong) = parse(&format!("# first\nHost x\n{line}\n"), Path::new("/")).unwrap_err();
            assert!(number == 3 && wrong.contains(words), "{line}: {number} {wrong}");
        }
    }
}

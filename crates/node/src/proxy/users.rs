//! Users of `noctule proxy serve`: the `[[user]]` tables of its file.

use super::words::{text, wrong};
use crate::failure::Failure;
use crate::identity;
use crate::units::{Rate, Size};
use noctule::PublicKey;
use noctule_proto::far_text::is_deceptive;
use noctule_proxy::{Account, Limits, Pattern, Period, Quota, Rule, Rules};
use std::path::Path;
use std::str::FromStr;
use toml::Spanned;
use toml::de::{DeTable, DeValue};

/// Least rate: what is read at once takes a second then.
const LEAST_RATE: u64 = 1000;
/// Most: beyond any link.
const MOST_RATE: u64 = 1_000_000_000_000;
/// Bytes of the longest name.
const LONGEST_NAME: usize = 64;
/// What a table may say.
const KEYS: &str = "name, key, allow-target, deny-target, allow-private, rate-up, rate-down, max-connections, quota-day, quota-month and quota-total exist";

/// What a table says of a user. What it does not say is as for all.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct User {
    name: String,
    keys: Vec<PublicKey>,
    rules: Vec<Rule>,
    allow_private: bool,
    rate_up: Option<u64>,
    rate_down: Option<u64>,
    max_connections: Option<u32>,
    quotas: Vec<Quota>,
    line: usize,
}

impl User {
    /// With what holds for all behind its own.
    pub fn account(&self, everybody: &Limits) -> Account {
        let rules = self.rules.iter().chain(&everybody.rules.rules).cloned().collect();
        Account {
            name: self.name.clone(),
            keys: self.keys.clone(),
            limits: Limits {
                rules: Rules { rules, allow_private: self.allow_private || everybody.rules.allow_private },
                rate_up: self.rate_up,
                rate_down: self.rate_down,
                max_connections: self.max_connections.map_or(everybody.max_connections, |most| most as usize),
                quotas: self.quotas.clone(),
            },
        }
    }

    /// How it is called.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Its keys.
    pub fn keys(&self) -> &[PublicKey] {
        &self.keys
    }

    /// Bytes are counted for it.
    pub fn has_quota(&self) -> bool {
        !self.quotas.is_empty()
    }
}

/// The users of a file.
pub fn load(file: &Path, is_only_target: bool) -> Result<Vec<User>, Failure> {
    // Even one without users says which keys may connect.
    let users = read(&identity::read_trusted(file)?).map_err(|(line, why)| wrong(file, line, &why))?;
    match users.iter().find(|user| is_only_target && (!user.rules.is_empty() || user.allow_private)) {
        Some(user) => {
            Err(wrong(file, user.line, &format!("the targets of {:?} have no effect: with only-target no rule is asked", user.name)))
        }
        None => Ok(users),
    }
}

type Wrong = (usize, String);

/// The users that a file's text says, or the line where it is wrong.
pub fn read(content: &str) -> Result<Vec<User>, Wrong> {
    let line = |at: usize| 1 + content.as_bytes()[..at.min(content.len())].iter().filter(|byte| **byte == b'\n').count();
    let table = DeTable::parse(content).map_err(|e| (e.span().map_or(0, |span| line(span.start)), e.message().to_owned()))?;
    let mut users: Vec<User> = Vec::new();
    let Some(value) = table.get_ref().get("user") else { return Ok(users) };
    let DeValue::Array(list) = value.get_ref() else {
        return Err((line(value.span().start), "write [[user]], in double brackets, above what is said of a user".into()));
    };
    for entry in list.iter() {
        let at = line(entry.span().start);
        let DeValue::Table(entry) = entry.get_ref() else { return Err((at, "a user is a table: [[user]]".into())) };
        let user = one(entry, at, &line)?;
        for other in &users {
            if other.name == user.name {
                return Err((at, format!("there is a user {:?} already, in line {}", user.name, other.line)));
            }
            if let Some(key) = user.keys.iter().find(|key| other.keys.contains(key)) {
                return Err((at, format!("the key {key} is {:?}'s already, in line {}", other.name, other.line)));
            }
        }
        users.push(user);
    }
    Ok(users)
}

fn one(entry: &DeTable<'_>, at: usize, line: &impl Fn(usize) -> usize) -> Result<User, Wrong> {
    let mut user = User { line: at, ..User::default() };
    let mut entries: Vec<_> = entry.iter().collect();
    entries.sort_by_key(|(name, _)| name.span().start);
    for (name, value) in entries {
        let (key, at) = (name.get_ref().as_ref(), line(value.span().start));
        let wrong = |why: String| (at, format!("{key}: {why}"));
        match key {
            "name" => user.name = named(value).map_err(wrong)?,
            "key" => user.keys = each(value, line, key)?.into_iter().map(|(_, key)| key).collect(),
            "allow-target" | "deny-target" => {
                let rules = each::<Pattern>(value, line, key)?.into_iter();
                user.rules.extend(rules.map(|(_, pattern)| Rule { allows: key == "allow-target", pattern }));
            }
            "allow-private" => match value.get_ref() {
                DeValue::Boolean(is_on) => user.allow_private = *is_on,
                _ => return Err(wrong("true or false".into())),
            },
            "rate-up" => user.rate_up = Some(rate(value).map_err(wrong)?),
            "rate-down" => user.rate_down = Some(rate(value).map_err(wrong)?),
            "max-connections" => {
                let most = single::<u32>(value).ok().filter(|most| (1..=1_000_000).contains(most));
                user.max_connections = Some(most.ok_or_else(|| wrong("a number from 1 to 1000000".into()))?);
            }
            "quota-day" => user.quotas.push(quota(value, Period::Day).map_err(wrong)?),
            "quota-month" => user.quotas.push(quota(value, Period::Month).map_err(wrong)?),
            "quota-total" => user.quotas.push(quota(value, Period::Total).map_err(wrong)?),
            _ => return Err((line(name.span().start), format!("unknown key `{key}` of a user: {KEYS}"))),
        }
    }
    if user.name.is_empty() {
        return Err((at, "this user has no name".into()));
    }
    if user.keys.is_empty() {
        return Err((at, format!("the user {:?} has no key: key = \"...\", as noctule keygen prints it there", user.name)));
    }
    Ok(user)
}

fn named(value: &Spanned<DeValue<'_>>) -> Result<String, String> {
    let name = text(value).ok_or("a text")?;
    match name.is_empty() || name.len() > LONGEST_NAME || name.chars().any(|c| c.is_whitespace() || is_deceptive(c)) {
        true => Err(format!("{name:?}: 1 to {LONGEST_NAME} bytes without spaces, and without what cannot be seen")),
        // They are connections, for `noctule proxy kick`.
        false if name.parse::<u64>().is_ok() => Err(format!("{name:?}: a number is a connection's, not a user's")),
        false => Ok(name),
    }
}

fn single<T: FromStr>(value: &Spanned<DeValue<'_>>) -> Result<T, String>
where
    T::Err: ToString,
{
    text(value).ok_or_else(|| "a text or a number".to_owned())?.parse().map_err(|e: T::Err| e.to_string())
}

/// One value or a list of them, with their lines.
fn each<T: FromStr>(value: &Spanned<DeValue<'_>>, line: &impl Fn(usize) -> usize, key: &str) -> Result<Vec<(usize, T)>, Wrong>
where
    T::Err: ToString,
{
    let values: Vec<&Spanned<DeValue<'_>>> = match value.get_ref() {
        DeValue::Array(list) => list.iter().collect(),
        _ => vec![value],
    };
    let one = |value: &Spanned<DeValue<'_>>| {
        let at = line(value.span().start);
        single(value).map(|value| (at, value)).map_err(|why| (at, format!("{key}: {why}")))
    };
    values.into_iter().map(one).collect()
}

fn rate(value: &Spanned<DeValue<'_>>) -> Result<u64, String> {
    let rate: Rate = single(value)?;
    match rate.0.bytes_per_sec() as u64 {
        ..LEAST_RATE => Err("8kbit at least".into()),
        bytes if bytes > MOST_RATE => Err("8000gbit at most".into()),
        bytes => Ok(bytes),
    }
}

fn quota(value: &Spanned<DeValue<'_>>, period: Period) -> Result<Quota, String> {
    let Size(bytes) = single(value)?;
    Ok(Quota { period, bytes })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn key(n: u8) -> String {
        noctule::SecretKey::from_bytes([n; 32]).public().to_string()
    }

    #[test]
    fn a_table_says_what_a_user_may_do_and_the_rules_of_all_come_behind() {
        let content = format!(
            "bind = \"[::1]\"\n[[user]]\nname = \"ann\"\nkey = [\"{}\", \"{}\"]\ndeny-target = \"10.0.0.5\"\nallow-target = [\"10.0.0.0/8:22-23\", \".example.org\"]\nrate-up = \"8mbit\"\nrate-down = \"2MB\"\nmax-connections = 5\nquota-day = \"1GB\"\nquota-total = \"5GiB\"\n\n[[user]]\nname = \"bob\"\nkey = \"{}\"\nallow-private = true\n",
            key(1),
            key(2),
            key(3)
        );
        let users = read(&content).unwrap();
        let rule = Rule { allows: false, pattern: "all:25".parse().unwrap() };
        let everybody = Limits { rules: Rules { rules: vec![rule], allow_private: false }, max_connections: 7, ..Limits::default() };
        let [ann, bob] = [0, 1].map(|n| users[n].account(&everybody));
        let shown: Vec<String> = ann.limits.rules.rules.iter().map(ToString::to_string).collect();
        assert_eq!(shown, ["deny 10.0.0.5/32", "allow 10.0.0.0/8:22-23", "allow .example.org", "deny all:25"]);
        assert_eq!((ann.keys.len(), ann.limits.rate_up, ann.limits.rate_down), (2, Some(1_000_000), Some(2_000_000)));
        assert_eq!(ann.limits.quotas[1], Quota { period: Period::Total, bytes: 5 << 30 });
        assert_eq!((ann.limits.max_connections, bob.limits.max_connections), (5, 7));
        assert!(bob.limits.rules.allow_private && !ann.limits.rules.allow_private && !users[1].has_quota());
    }

    #[test]
    fn what_is_wrong_is_told_with_its_line() {
        let k = key(1);
        let user = |more: &str| format!("[[user]]\nname = \"ann\"\nkey = \"{k}\"\n{more}\n");
        for (content, told) in [
            (user("rate-up = \"5M\""), (4, "bits or bytes")),
            (user("rate-down = \"1bit\""), (4, "8kbit at least")),
            (user("rate-up = \"999999999999gbit\""), (4, "8000gbit at most")),
            (user("allow-target = [\n\"h:1\",\n\"h:x\"]"), (6, "no port")),
            (user("quota-week = \"1GB\""), (4, "unknown key `quota-week`")),
            (user("max-connections = 0"), (4, "from 1 to")),
            (user("allow-private = \"yes\""), (4, "true or false")),
            (user(&format!("[[user]]\nname = \"ann\"\nkey = \"{}\"", key(2))), (4, "already, in line 1")),
            (user(&format!("[[user]]\nname = \"bob\"\nkey = \"{k}\"")), (4, "\"ann\"'s already")),
            ("[[user]]\nname = \"ann\"".to_owned(), (1, "has no key")),
            (format!("\n[[user]]\nkey = \"{k}\""), (2, "has no name")),
            ("[[user]]\nname = \"12\"".to_owned(), (2, "a connection's")),
            ("[[user]]\nname = \"+12\"".to_owned(), (2, "a connection's")),
            ("[[user]]\nname = \"a\u{202e}b\"".to_owned(), (2, "cannot be seen")),
            ("[[user]]\nname = \"a b\"".to_owned(), (2, "without spaces")),
            ("[[user]]\nname = \"a\"\nkey = \"nonsense\"".to_owned(), (3, "key: ")),
            ("[user]\nname = \"a\"".to_owned(), (1, "double brackets")),
        ] {
            let (line, why) = read(&content).unwrap_err();
            assert!(line == told.0 && why.contains(told.1), "{content}: {line}: {why}");
        }
    }

    /// It says which keys may connect, and whether private addresses may be reached.
    #[test]
    fn a_file_that_everybody_may_write_is_refused_even_without_users() {
        let file = tempfile::NamedTempFile::new().unwrap();
        std::fs::write(file.path(), format!("allow = \"{}\"\n", key(1))).unwrap();
        let mode = |mode| std::fs::set_permissions(file.path(), std::os::unix::fs::PermissionsExt::from_mode(mode)).unwrap();
        mode(0o666);
        assert!(load(file.path(), false).unwrap_err().to_string().contains("chmod o-w"));
        mode(0o644);
        assert_eq!(load(file.path(), false).unwrap(), []);
    }
}

//! `noctule get`: files from a host that runs `noctule serve`.

use super::REQUEST_TAG;
use super::asked::Asked;
use super::entry::{Entry, Kind, as_pattern, shown};
use super::filter::Filter;
use super::manifest::{Manifest, manifest};
use super::object;
use super::progress::Reporter;
use super::receive::{self, Destination, IDLE, Stop, gone};
use super::recv::open_target;
use super::send::{Base, Reach, Try, persist};
use super::sending::{print_deletion, print_plan};
use super::shares::{Limits, Shares};
use super::target::{Refused, Rules, Target};
use super::wire::{MAX_PATHS, Record, Records, Request, VERSION};
use super::writer::protocol;
use crate::cli::{GetArgs, SendMode};
use crate::failure::Failure;
use crate::identity;
use noctule::{FlowOptions, SendStream, Session};
use serde_json::json;
use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::OsStrExt;
use std::path::PathBuf;
use std::time::{Duration, SystemTime};

/// How long the other side may take to read the last record, or to send it.
const LAST_WORD: Duration = Duration::from_secs(2);

/// What is asked for, of which host, and where it goes.
#[derive(Debug, PartialEq, Eq)]
struct Wish {
    host: String,
    /// None: everything.
    paths: Vec<Vec<u8>>,
    /// `None`: a list is wanted.
    into: Option<PathBuf>,
}

/// HOST:PATH, HOST:PORT:PATH, with an IPv6 address in brackets.
fn split(word: &OsStr) -> Result<(String, Vec<u8>), Failure> {
    let wrong = || {
        Failure::Usage(format!("{word:?} names no host: write HOST:PATH, HOST:PORT:PATH or [IPV6]:PATH; HOST: alone is everything there"))
    };
    let bytes = word.as_bytes();
    let name = match bytes.first() {
        Some(b'[') => bytes.iter().position(|b| *b == b']').map(|at| at + 1),
        _ => bytes.iter().position(|b| *b == b':'),
    };
    let name = name.filter(|at| *at > 0).ok_or_else(wrong)?;
    let rest = bytes[name..].strip_prefix(b":").ok_or_else(wrong)?;
    let port = rest.iter().position(|b| *b == b':').filter(|at| *at > 0 && rest[..*at].iter().all(u8::is_ascii_digit));
    let host_ends = port.map_or(name, |at| name + 1 + at);
    let host = as_pattern(&bytes[..host_ends]).ok_or_else(wrong)?;
    if host.contains('/') {
        return Err(wrong());
    }
    Ok((host.to_owned(), bytes[host_ends + 1..].to_vec()))
}

/// The host that a command asks, as it is named there.
pub fn host_of(args: &GetArgs) -> Option<String> {
    args.words.first().and_then(|word| split(word).ok()).map(|(host, _)| host)
}

/// The name without `.` and trailing slashes, as the server takes it.
fn tidy(path: Vec<u8>) -> Vec<u8> {
    let parts: Vec<&[u8]> = path.split(|b| *b == b'/').filter(|part| *part != b".").collect();
    let mut name = parts.join(&b'/');
    while name.ends_with(b"/") && name.len() > 1 {
        name.pop();
    }
    name
}

impl Wish {
    fn new(words: &[OsString], is_list: bool) -> Result<Self, Failure> {
        let (sources, into) = match (words, is_list) {
            (words, true) => (words, None),
            ([_], false) => {
                let text = format!(
                    "{:?} is the only argument: name what to get, then the directory to put it into (noctule get HOST:PATH DIR)",
                    words[0]
                );
                return Err(Failure::Usage(text));
            }
            ([sources @ .., into], false) => (sources, Some(PathBuf::from(into))),
            ([], false) => (words, None),
        };
        let mut wish = Self { host: String::new(), paths: Vec::new(), into };
        let mut is_all = false;
        for word in sources {
            let (host, path) = split(word)?;
            if !wish.host.is_empty() && wish.host != host {
                return Err(Failure::Usage(format!("{host} and {} are two hosts: get from one after the other", wish.host)));
            }
            wish.host = host;
            match tidy(path) {
                path if path.is_empty() => is_all = true,
                path => wish.paths.push(path),
            }
        }
        if is_all && !wish.paths.is_empty() {
            return Err(Failure::Usage(format!("{}: is everything there already: leave out the other names", wish.host)));
        }
        if wish.paths.len() > MAX_PATHS {
            return Err(Failure::Usage(format!(
                "{} names; at most {MAX_PATHS} are taken at once, patterns count as one",
                wish.paths.len()
            )));
        }
        Ok(wish)
    }
}

/// Gets everything that is asked for and verifies it.
pub async fn run(args: GetArgs) -> Result<(), Failure> {
    let wish = Wish::new(&args.words, args.list)?;
    if args.mode == SendMode::Brctp {
        fits_object(&args, &wish)?;
    }
    Filter::new(&args.filter.rules).map_err(Failure::Usage)?;
    let rules = Rules { may_delete: args.delete, ..Rules::of(&args.keeping) };
    let rules = Rules { overwrite: rules.overwrite || args.update, ..rules };
    let target = wish.into.as_deref().map(|into| open_target(into, rules)).transpose()?;
    let near = Reach::from(&args);
    let config = Base::config(&near)?;
    let peer =
        identity::Peer::far_end(args.resolved.as_ref().unwrap_or(&wish.host), args.port, &args.peer, &args.identity, &args.via).await?;
    let reporter = Reporter::new(args.json, false).with_patience(args.give_up.0);
    let getting = Getting { args: &args, wish: &wish, target, rules, reporter: reporter.clone() };
    persist(&near, config, peer, args.give_up.0, &reporter, getting).await.map_err(|failure| failure.of_transfer(true))
}

/// Refuses what an object cannot be asked for with.
fn fits_object(args: &GetArgs, wish: &Wish) -> Result<(), Failure> {
    let unfit = [
        ("--list", args.list),
        ("--dry-run", args.dry_run),
        ("--update", args.update),
        ("--delete", args.delete),
        ("--xattrs", args.keeping.xattrs.is_some()),
        ("--parallel", args.parallel != 1),
        ("--exclude and --include", !args.filter.rules.is_empty()),
    ];
    if let Some((option, _)) = unfit.iter().find(|(_, is_given)| *is_given) {
        return Err(Failure::Usage(format!("{option} is for files that are got without --mode brctp")));
    }
    match wish.paths.len() {
        1 => Ok(()),
        0 => Err(Failure::Usage(format!("--mode brctp gets one file: name it ({}:FILE)", wish.host))),
        many => Err(Failure::Usage(format!("--mode brctp gets one file, not {many}: get one after the other, or without --mode"))),
    }
}

/// One `get`, as it is tried and tried again.
struct Getting<'a> {
    args: &'a GetArgs,
    wish: &'a Wish,
    /// `None`: a list is wanted.
    target: Option<Target>,
    rules: Rules,
    reporter: Reporter,
}

impl Try for Getting<'_> {
    async fn once(&mut self, session: &Session) -> Result<(), Failure> {
        // Each try has a target of its own, which records what that try has put in place.
        let target = self.target.as_ref().map(|target| target.below(None, self.rules)).transpose();
        self.run(session, target.map_err(|e| Failure::system("the directory", e))?).await
    }
}

impl Getting<'_> {
    async fn run(&self, session: &Session, target: Option<Target>) -> Result<(), Failure> {
        let (mut out, back) = session.open_bi(FlowOptions { tag: REQUEST_TAG, ..FlowOptions::default() })?;
        let mut control = Records::new(back);
        let result = self.exchange(session, target, &mut control, &mut out).await;
        match result {
            Ok(()) => {
                let _ = tokio::time::timeout(LAST_WORD, out.finish()).await;
                let _ = tokio::time::timeout(LAST_WORD, async { while let Ok(Some(_)) = control.next().await {} }).await;
                Ok(())
            }
            Err(Stop::Refused(refused)) => {
                let failure = Failure::here(&refused);
                let words = Record::from(refused).bytes();
                let _ = tokio::time::timeout(LAST_WORD, async {
                    out.write_all(&words).await?;
                    out.finish().await
                })
                .await;
                Err(failure)
            }
            Err(Stop::Denied(refused)) => Err(Failure::denied(&refused)),
            Err(Stop::Incomplete { failed, of, first }) => Err(Failure::incomplete(failed, of, Failure::here(&first))),
            Err(Stop::Failed(failure)) => Err(match self.said(&mut control).await {
                Some(refused) if matches!(failure, Failure::PeerGone(_) | Failure::Silence(_)) => Failure::denied(&refused),
                _ => failure,
            }),
            Err(Stop::Superseded | Stop::Dry) => Err(gone()),
        }
    }

    /// The other side's reason for ending the transfer, if it gave one.
    async fn said(&self, control: &mut Records) -> Option<Refused> {
        let last = async {
            loop {
                match control.next().await {
                    Ok(Some(Record::Refused { refusal, path, message })) => return Some(Refused { refusal, path, message }),
                    Ok(Some(_)) => {}
                    _ => return None,
                }
            }
        };
        tokio::time::timeout(LAST_WORD, last).await.ok().flatten()
    }

    async fn exchange(&self, session: &Session, target: Option<Target>, control: &mut Records, out: &mut SendStream) -> Result<(), Stop> {
        let args = self.args;
        let is_object = args.mode == SendMode::Brctp;
        let request = Request {
            version: VERSION,
            is_dry: args.list || args.dry_run,
            is_shallow: args.list && !args.recursive,
            is_update: args.update,
            has_attributes: args.keeping.xattrs.is_some(),
            is_object,
            streams: u64::from(args.parallel),
            // 0 would mean no limit: a rate below one byte per second is sent as 1.
            limit: args.limit_rate.map_or(0, |rate| (rate.0.bytes_per_sec() as u64).max(1)),
            paths: self.wish.paths.clone(),
            rules: args.filter.rules.clone(),
        };
        out.write_all(&Record::Request(request).bytes()).await?;
        control.set_idle(IDLE);
        let target = match target {
            Some(target) if is_object => {
                return object::fetch::run(session, control, target, &Asked::new(&self.wish.paths), &self.reporter).await;
            }
            target => target,
        };
        let limits = Limits { entries: args.max_entries, ..Limits::default() };
        let mut manifest = manifest(control, Shares::new(limits).enter(session.peer_key())?).await?;
        control.set_idle(Duration::MAX);
        if manifest.hello.is_dry != (args.list || args.dry_run) {
            return Err(protocol("it answers something else than what was asked for").into());
        }
        let asked = Asked::new(&self.wish.paths);
        manifest.entries.iter().try_for_each(|entry| asked.check(&entry.path))?;
        let reporter = &self.reporter;
        let unlisted = std::mem::take(&mut manifest.unlisted);
        for (name, why) in &unlisted {
            reporter.say(&format!("noctule: not sent: {}: {why}", shown(name)));
        }
        if !manifest.hello.is_complete && unlisted.is_empty() {
            reporter.say("noctule: not sent: what is neither a file, a directory nor a link there");
        }
        // What is done on this host is this side's choice, not the sender's.
        manifest.hello.is_update = args.update;
        manifest.hello.deletes = args.delete;
        manifest.filter = Filter::new(&args.filter.rules).map_err(|why| protocol(&why))?;
        manifest.is_root = self.wish.paths.is_empty();
        if args.delete && !manifest.hello.is_complete {
            reporter.say("noctule: warning: nothing is deleted, because not everything there can be sent");
        }
        let Some(target) = target else {
            print_list(&manifest, reporter);
            return plan_is_heard(out, &unlisted).await;
        };
        let destination = Destination::Directory(target);
        if args.dry_run {
            let entries: Vec<Entry> = manifest.entries.iter().collect();
            let prepared = receive::plan(session, out, destination, manifest).await?;
            let haves = prepared.plan.into_iter().collect();
            print_plan(entries.iter(), &haves, reporter);
            prepared.extras.iter().for_each(|extra| print_deletion(&extra.path, reporter));
            for (_, refused) in &prepared.failed {
                reporter.say(&format!("noctule: {}", Failure::here(refused)));
            }
            plan_is_heard(out, &unlisted).await?;
            let failed = prepared.failed.len() as u64;
            return match prepared.failed.into_iter().next() {
                Some((_, first)) => Err(Stop::Incomplete { failed, of: Some(entries.len() as u64), first }),
                None => Ok(()),
            };
        }
        receive::run(session, control, out, destination, manifest, reporter, std::future::pending()).await?;
        complete(&unlisted)
    }
}

/// Tells the other side that a list or a plan is all that was wanted.
async fn plan_is_heard(out: &mut SendStream, unlisted: &[(Vec<u8>, String)]) -> Result<(), Stop> {
    out.write_all(&Record::PlanEnd.bytes()).await?;
    complete(unlisted)
}

/// Fails if entries that were asked for could not be sent.
fn complete(unlisted: &[(Vec<u8>, String)]) -> Result<(), Stop> {
    match unlisted.first() {
        None => Ok(()),
        Some((name, why)) => {
            let first = Refused { refusal: super::Refusal::Source, path: name.clone(), message: why.clone() };
            Err(Stop::Incomplete { failed: unlisted.len() as u64, of: None, first })
        }
    }
}

fn print_list(manifest: &Manifest, reporter: &Reporter) {
    for entry in manifest.entries.iter() {
        let (kind, letter) = match entry.kind {
            Kind::File(_) | Kind::Stream => ("file", '-'),
            Kind::Dir => ("dir", 'd'),
            Kind::Link(_) => ("link", 'l'),
        };
        let seconds = Duration::from_secs(u64::try_from(entry.mtime.seconds).unwrap_or(0));
        let time =
            SystemTime::UNIX_EPOCH.checked_add(seconds).filter(|_| seconds.as_secs() < LAST_SECOND).unwrap_or(SystemTime::UNIX_EPOCH);
        let time = humantime::format_rfc3339_seconds(time);
        let to = match &entry.kind {
            Kind::Link(to) => Some(shown(to)),
            _ => None,
        };
        if reporter.is_json() {
            let mut event = json!({
                "event": "entry", "path": entry.shown(), "kind": kind, "bytes": entry.size(), "mode": format!("{:03o}", entry.mode), "modified": time.to_string()
            });
            if let Some(to) = to {
                event["to"] = to.into();
            }
            say!("{event}");
            continue;
        }
        let bits: String = (0..9).map(|at| if entry.mode >> (8 - at) & 1 == 1 { ['r', 'w', 'x'][at % 3] } else { '-' }).collect();
        let to = to.map_or_else(String::new, |to| format!(" -> {to}"));
        say!("{letter}{bits} {:>12} {time} {}{to}", entry.size(), entry.shown());
    }
}

/// Unix time, in seconds, of the end of the year 9999. Later times have no date with a year of four digits.
const LAST_SECOND: u64 = 253_402_300_800;

#[cfg(test)]
mod tests {
    use super::*;

    fn wish(words: &[&str]) -> Result<Wish, String> {
        let words: Vec<OsString> = words.iter().map(OsString::from).collect();
        Wish::new(&words, false).map_err(|e| e.to_string())
    }

    #[test]
    fn hosts_ports_and_names_are_told_apart() {
        for (word, host, path) in [
            ("hill:a/b", "hill", "a/b"),
            ("hill:", "hill", ""),
            ("hill:.", "hill", ""),
            ("hill:./a/./b/", "hill", "a/b"),
            ("hill:99:a:b", "hill:99", "a:b"),
            ("hill:99", "hill", "99"),
            ("hill:99:", "hill:99", ""),
            ("10.0.0.1:7:*.c", "10.0.0.1:7", "*.c"),
            ("[2001:db8::7]:x", "[2001:db8::7]", "x"),
            ("[2001:db8::7]:99:x", "[2001:db8::7]:99", "x"),
        ] {
            let got = wish(&[word, "in"]).unwrap();
            assert_eq!((got.host.as_str(), got.paths.concat()), (host, path.as_bytes().to_vec()), "{word}");
        }
        let two = wish(&["hill:a", "hill:b", "in"]).unwrap();
        assert_eq!((two.paths.len(), two.into), (2, Some("in".into())));
    }

    #[test]
    fn what_names_nothing_or_too_much_is_refused_with_what_to_write() {
        for (words, told) in [
            (&["hill:a"][..], "the only argument"),
            (&["a", "in"], "HOST:PATH"),
            (&["./a:b", "in"], "HOST:PATH"),
            (&[":a", "in"], "HOST:PATH"),
            (&["[::1]x", "in"], "HOST:PATH"),
            (&["hill:a", "dale:b", "in"], "two hosts"),
            (&["hill:", "hill:b", "in"], "everything there already"),
        ] {
            let error = wish(words).unwrap_err();
            assert!(error.contains(told), "{words:?}: {error}");
        }
    }
}

//! What is sent: the manifest, from names on the command line, or from a peer's request to a served directory ([`super::offer`]).

use super::attributes::{self, Attributes, Kept};
use super::beneath::{Listed, Root, list};
use super::entry::{Entry, Kind, Mtime, STAGING_NAME, shown};
use super::filter::Filter;
use super::reading::Stamp;
use crate::failure::Failure;
use rustix::fs::FileType;
use std::borrow::Borrow;
use std::collections::HashSet;
use std::ffi::{OsStr, OsString};
use std::fs::File;
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// Standard input, on the command line.
pub const STDIN: &str = "-";
/// Its other names.
const STDIN_NAMES: [&str; 4] = [STDIN, "/dev/stdin", "/dev/fd/0", "/proc/self/fd/0"];
/// Characters of a name that is refused that are shown.
const SHOWN_OF_NAME: usize = 200;

/// What was named, and what everything below it is found by.
#[derive(Debug)]
pub struct Top {
    /// Where it lies.
    pub root: Arc<Root>,
    /// Its name there, without links.
    pub local: PathBuf,
    /// Its name at the receiver; empty: what it holds is sent, and not itself.
    pub name: Vec<u8>,
}

/// One entry and where its content is.
#[derive(Debug)]
pub struct Item {
    /// As told to the receiver.
    pub entry: Entry,
    /// What it lies below, or is.
    pub top: Arc<Top>,
    /// What shows that a file changed.
    pub stamp: Stamp,
}

impl Borrow<Entry> for Item {
    fn borrow(&self) -> &Entry {
        &self.entry
    }
}

impl Item {
    /// Its name below the root of its top.
    pub fn local(&self) -> PathBuf {
        self.top.find(&self.entry.path)
    }
}

impl Top {
    /// The local name of what has this name at the receiver.
    fn find(&self, name: &[u8]) -> PathBuf {
        let rest = name.get(self.name.len()..).unwrap_or_default();
        match rest.strip_prefix(b"/").unwrap_or(rest) {
            b"" => self.local.clone(),
            rest if self.local == Path::new(".") => PathBuf::from(OsStr::from_bytes(rest)),
            rest => self.local.join(OsStr::from_bytes(rest)),
        }
    }

    /// What the directory of this name holds, without what is filtered.
    fn list(&self, name: &[u8], choice: &Choice) -> Result<std::vec::IntoIter<Found>, Failure> {
        let local = self.find(name);
        let failed = |e: io::Error| Failure::source(&self.root.shown(&local), e);
        let dir = self.root.open_dir(&local).map_err(failed)?;
        let mut all = Vec::new();
        for listed in list(&dir).map_err(failed)? {
            let (own, is_dir) = match &listed {
                Ok(listed) => (&listed.name, is_dir(listed)),
                Err((own, _)) => (own, false),
            };
            let whole = if name.is_empty() { own.clone() } else { [name, b"/", own].concat() };
            // What waits there to become whole is nobody's to have.
            if (name.is_empty() && own == STAGING_NAME.as_bytes()) || !choice.filter.takes(&whole, is_dir) {
                continue;
            }
            let found = match listed {
                Ok(listed) => found(&dir, whole.clone(), listed, choice.kept),
                Err((_, e)) => Err(Failure::source(&self.root.shown(&self.find(&whole)), e)),
            };
            all.push((whole, is_dir, found));
        }
        Ok(all.into_iter())
    }
}

/// Which of the entries travel, and what of them.
#[derive(Debug, Default)]
pub struct Choice {
    /// By their names.
    pub filter: Filter,
    /// With these attributes.
    pub kept: Kept,
    /// Only what is named, and what lies directly in it.
    pub is_shallow: bool,
}

/// What was found.
#[derive(Debug, Default)]
pub struct Sources {
    /// In the order in which they are sent, directories before what they contain.
    pub items: Vec<Item>,
    /// Attributes of entries that have any, by their index.
    pub attributes: Vec<(u64, Attributes)>,
    /// Entries of which attributes are left out that a user would miss.
    pub lessened: u64,
    /// Neither files, directories nor links: sockets, devices, pipes.
    pub skipped: Vec<PathBuf>,
    /// What cannot be sent, although it should be; the others are.
    pub failed: Vec<(Vec<u8>, Failure)>,
    /// Bytes that the contents take on disk; holes take none.
    pub stored: u64,
    /// Bytes of memory that names and attributes take.
    pub memory: usize,
}

/// Looks at everything that was named. A link that is named itself is followed; links below a directory are sent as links.
pub fn collect(names: &[PathBuf], stdin_name: Option<&OsStr>, choice: &Choice) -> Result<Sources, Failure> {
    let mut sources = Sources::default();
    let mut tops = HashSet::new();
    let root = Arc::new(Root::open(Path::new("/")).map_err(|e| Failure::source(Path::new("/"), e))?);
    for name in names {
        let stream = stream(name)?;
        let is_streamed = stream.is_some();
        let (top, local) = match (stream, stdin_name) {
            (None, _) => located(name)?,
            (Some(local), Some(given)) => (given.to_owned(), local),
            (Some(local), None) if local.as_os_str() == STDIN => ("stdin".into(), local),
            (Some(local), None) => {
                return Err(Failure::Usage(format!("{} is a pipe, which has no name to send it under: say --name NAME", local.display())));
            }
        };
        if !tops.insert(top.clone()) {
            return Err(Failure::Usage(format!("two of the sources would both be called {:?} there: send them one after the other", top)));
        }
        let place = Top { root: Arc::clone(&root), local, name: top.as_bytes().to_vec() };
        match is_streamed {
            true => sources.items.push(streamed(place)),
            false => sources.walk(place, choice, &mut |_| Ok(()))?,
        }
    }
    Ok(sources)
}

/// Its name at the receiver, and below the root of the file system. `DIR/..` and `.` have no name of their own: that of what they lead to is used.
fn located(name: &Path) -> Result<(OsString, PathBuf), Failure> {
    let absolute = name.canonicalize().map_err(|e| Failure::source(name, e))?;
    let top = name.file_name().or(absolute.file_name()).map(OsStr::to_owned);
    let top = top.ok_or_else(|| Failure::Usage(format!("{} has no name to send it under", name.display())))?;
    let local = absolute.strip_prefix("/").map(Path::to_owned).unwrap_or_default();
    Ok((top, if local.as_os_str().is_empty() { PathBuf::from(".") } else { local }))
}

/// What comes as a stream, if this is the name of such a thing: standard input, or a pipe that a shell has opened (`<(command)`).
///
/// # Errors
/// There is no standard input.
pub fn stream(name: &Path) -> Result<Option<PathBuf>, Failure> {
    if name.to_str().is_some_and(|text| STDIN_NAMES.contains(&text)) {
        return match crate::terminal::was_closed(std::io::stdin()) {
            true => Err(Failure::source(name, "standard input is closed: nothing could be sent")),
            false => Ok(Some(STDIN.into())),
        };
    }
    let is_descriptor = ["/dev/fd", "/proc/self/fd"].iter().any(|directory| name.parent() == Some(Path::new(directory)));
    let is_pipe = is_descriptor && std::fs::metadata(name).is_ok_and(|meta| std::os::unix::fs::FileTypeExt::is_fifo(&meta.file_type()));
    Ok(is_pipe.then(|| name.to_owned()))
}

fn streamed(top: Top) -> Item {
    let now = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).unwrap_or_default();
    let mtime = Mtime { seconds: now.as_secs() as i64, nanos: now.subsec_nanos() };
    let entry = Entry { path: top.name.clone(), kind: Kind::Stream, mode: 0o644, mtime };
    Item { entry, top: top.into(), stamp: Stamp::default() }
}

/// An entry that was found, before it is in the manifest.
struct Seen {
    entry: Entry,
    stamp: Stamp,
    attributes: Attributes,
    /// It has attributes that are left out.
    is_less: bool,
    stored: u64,
}

/// What has this name, and whether it is a directory; `None`: of a kind that is not sent.
type Found = (Vec<u8>, bool, Result<Option<Seen>, Failure>);

/// Said of the sources so far, after each directory; an error ends the walk.
pub type Watch<'a> = dyn FnMut(&Sources) -> Result<(), Failure> + 'a;

impl Sources {
    /// Adds a top and what lies below it. Below it each entry fails alone: files come and go while a tree is listed, and some may not be readable.
    pub fn walk(&mut self, top: Top, choice: &Choice, watch: &mut Watch<'_>) -> Result<(), Failure> {
        let shown = top.root.shown(&top.local);
        let (dir, listed) = top.root.look(&top.local).map_err(|e| Failure::source(&shown, e))?;
        let top = Arc::new(top);
        let is_dir = is_dir(&listed);
        let mut waiting: Vec<std::vec::IntoIter<Found>> = Vec::new();
        if top.name.is_empty() {
            waiting.push(top.list(b"", choice)?);
        } else if choice.filter.takes(&top.name, is_dir) {
            let found = found(&dir, top.name.clone(), listed, choice.kept)?;
            let Some(found) = found else {
                return Err(Failure::source(
                    &shown,
                    "neither a file nor a directory; what comes from it is sent with '-' as the file and '< NAME'",
                ));
            };
            self.push(&top, found);
            if is_dir {
                // A directory that is named and cannot be listed is an error of the command.
                waiting.push(top.list(&top.name, choice)?);
            }
        }
        while let Some(frame) = waiting.last_mut() {
            let Some((name, is_dir, found)) = frame.next() else {
                waiting.pop();
                continue;
            };
            match found {
                Ok(Some(found)) => self.push(&top, found),
                Ok(None) => self.skipped.push(top.root.shown(&top.find(&name))),
                Err(failure) => {
                    self.failed.push((name, failure));
                    continue;
                }
            }
            if is_dir && !choice.is_shallow {
                watch(self)?;
                match top.list(&name, choice) {
                    Ok(frame) => waiting.push(frame),
                    Err(failure) => self.failed.push((name, failure)),
                }
            }
        }
        watch(self)
    }

    fn push(&mut self, top: &Arc<Top>, seen: Seen) {
        let Seen { entry, stamp, attributes, is_less, stored } = seen;
        self.lessened += u64::from(is_less);
        self.stored += stored;
        self.memory += size_of::<Item>() + entry.path.capacity() + attributes.bytes();
        if !attributes.0.is_empty() {
            self.attributes.push((self.items.len() as u64, attributes));
        }
        self.items.push(Item { entry, top: Arc::clone(top), stamp });
    }

    /// Files, counting standard input, and their bytes as far as known.
    pub fn totals(&self) -> (u64, u64) {
        let files = self.items.iter().filter(|i| i.entry.has_content()).count() as u64;
        (files, self.items.iter().map(|i| i.entry.size()).sum())
    }

    /// All that was asked for is there, and can be said to be all.
    pub fn is_complete(&self) -> bool {
        self.failed.is_empty() && self.skipped.is_empty()
    }
}

fn is_dir(listed: &Listed) -> bool {
    FileType::from_raw_mode(listed.stat.st_mode) == FileType::Directory
}

/// What is to be told of an entry of an open directory.
fn found(dir: &File, path: Vec<u8>, listed: Listed, kept: Kept) -> Result<Option<Seen>, Failure> {
    let Listed { name, stat, link } = listed;
    let size = u64::try_from(stat.st_size).unwrap_or(0);
    let kind = match FileType::from_raw_mode(stat.st_mode) {
        FileType::RegularFile => Kind::File(size),
        FileType::Directory => Kind::Dir,
        FileType::Symlink => Kind::Link(link.unwrap_or_default()),
        _ => return Ok(None),
    };
    let entry = Entry { path, kind, mode: stat.st_mode & 0o777, mtime: Mtime::of(&stat) };
    if let Err(why) = entry.check_name() {
        // A name of kilobytes says less than its beginning.
        let name: String = shown(&entry.path).chars().take(SHOWN_OF_NAME).collect();
        return Err(Failure::RefusedName(format!("{name} ({why})")));
    }
    let (attributes, is_less) = match entry.kind {
        Kind::File(_) | Kind::Dir => attributes::read(dir, &name, kept),
        _ => Default::default(),
    };
    let stored = if entry.has_content() { size.min(u64::try_from(stat.st_blocks).unwrap_or(0) * 512) } else { 0 };
    Ok(Some(Seen { entry, stamp: Stamp::of(&stat), attributes, is_less, stored }))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn files_directories_links_and_odd_names_are_found_and_sockets_are_told() {
        let dir = tempfile::tempdir().unwrap();
        let top = dir.path().join("top");
        std::fs::create_dir_all(top.join("sub")).unwrap();
        std::fs::write(top.join(OsStr::from_bytes(b"new\nline\xff")), b"abc").unwrap();
        std::os::unix::fs::symlink("sub/nowhere", top.join("sub/link")).unwrap();
        let _socket = std::os::unix::net::UnixListener::bind(top.join("socket")).unwrap();
        let sources = collect(std::slice::from_ref(&top), Some(OsStr::new("stdin")), &Choice::default()).unwrap();
        let found: Vec<(&[u8], &Kind)> = sources.items.iter().map(|i| (&i.entry.path[..], &i.entry.kind)).collect();
        let expected: [(&[u8], &Kind); 4] = [
            (b"top", &Kind::Dir),
            (b"top/new\nline\xff", &Kind::File(3)),
            (b"top/sub", &Kind::Dir),
            (b"top/sub/link", &Kind::Link(b"sub/nowhere".to_vec())),
        ];
        assert_eq!(found, expected);
        assert_eq!(sources.skipped, [top.canonicalize().unwrap().join("socket")]);
        assert_eq!(sources.totals(), (1, 3));
    }

    #[test]
    fn entry_that_cannot_be_listed_or_named_keeps_no_other_away() {
        let dir = tempfile::tempdir().unwrap();
        let top = dir.path().join("top");
        let long = vec!["d".repeat(250); 15].join("/");
        std::fs::create_dir_all(top.join(&long)).unwrap();
        std::fs::create_dir_all(top.join(".noctule-partial")).unwrap();
        std::fs::create_dir_all(top.join(vec!["e"; 300].join("/"))).unwrap();
        std::fs::write(top.join("z"), b"z").unwrap();
        // Below that directory names get too long, as only a step by step can make them.
        let below = cap_std::fs::Dir::open_ambient_dir(top.join(&long), cap_std::ambient_authority()).unwrap();
        below.create_dir_all(vec!["f".repeat(200); 3].join("/")).unwrap();
        let sources = collect(std::slice::from_ref(&top), Some(OsStr::new("stdin")), &Choice::default()).unwrap();
        let names: Vec<&[u8]> = sources.items.iter().map(|i| &i.entry.path[..]).collect();
        let deep = format!("top/{}", vec!["e"; 300].join("/"));
        assert!(names.contains(&&b"top/z"[..]) && names.contains(&deep.as_bytes()));
        assert!(sources.failed.iter().any(|(_, f)| f.to_string().contains("noctule's own directory")), "{:?}", sources.failed);
        assert!(sources.failed.len() >= 2, "the name that is too long, too: {:?}", sources.failed);
    }

    #[test]
    fn two_sources_of_one_name_are_refused_before_anything_is_sent() {
        let dir = tempfile::tempdir().unwrap();
        for sub in ["a", "b"] {
            std::fs::create_dir(dir.path().join(sub)).unwrap();
            std::fs::write(dir.path().join(sub).join("x"), b"").unwrap();
        }
        let names = [dir.path().join("a/x"), dir.path().join("b/x")];
        assert!(collect(&names, Some(OsStr::new("stdin")), &Choice::default()).unwrap_err().to_string().contains("both be called"));
    }
}

//! What is sent: the manifest, from names on the command line.

use super::entry::{Entry, Kind, Mtime, shown};
use super::reading::Stamp;
use crate::failure::Failure;
use std::collections::HashSet;
use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

/// Standard input, on the command line.
pub const STDIN: &str = "-";
/// Its other names.
const STDIN_NAMES: [&str; 4] = [STDIN, "/dev/stdin", "/dev/fd/0", "/proc/self/fd/0"];
/// Characters of a name that is refused that are shown.
const SHOWN_OF_NAME: usize = 200;

/// One entry and where its content is.
#[derive(Debug)]
pub struct Item {
    /// As told to the receiver.
    pub entry: Entry,
    /// Local name.
    pub local: PathBuf,
    /// What shows that a file changed.
    pub stamp: Stamp,
}

/// What was found.
#[derive(Debug, Default)]
pub struct Sources {
    /// In the order in which they are sent, directories before what they contain.
    pub items: Vec<Item>,
    /// Neither files, directories nor links: sockets, devices, pipes.
    pub skipped: Vec<PathBuf>,
    /// What cannot be sent, although it should be; the others are.
    pub failed: Vec<Failure>,
    /// Bytes that the contents take on disk; holes take none.
    pub stored: u64,
}

/// Looks at everything that was named. A link that is named itself stands for what it leads to; links below a directory are sent as links.
pub fn collect(names: &[PathBuf], stdin_name: Option<&OsStr>) -> Result<Sources, Failure> {
    let mut sources = Sources::default();
    let mut tops = HashSet::new();
    for name in names {
        let stream = stream(name)?;
        let top = match (&stream, stdin_name) {
            (None, _) => top_name(name)?,
            (Some(_), Some(given)) => given.to_owned(),
            (Some(local), None) if local.as_os_str() == STDIN => "stdin".into(),
            (Some(local), None) => {
                return Err(Failure::Usage(format!("{} is a pipe, which has no name to send it under: say --name NAME", local.display())));
            }
        };
        if !tops.insert(top.clone()) {
            return Err(Failure::Usage(format!("two of the sources would both be called {:?} there: send them one after the other", top)));
        }
        match stream {
            Some(local) => sources.items.push(streamed(local, &top)),
            None => sources.walk(name, top)?,
        }
    }
    Ok(sources)
}

/// `DIR/..` and `.` have no name of their own: that of what they lead to is used.
fn top_name(name: &Path) -> Result<OsString, Failure> {
    let absolute = name.canonicalize().map_err(|e| Failure::source(name, e))?;
    let top = name.file_name().or(absolute.file_name());
    top.map(OsStr::to_owned).ok_or_else(|| Failure::Usage(format!("{} has no name to send it under", name.display())))
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

fn streamed(local: PathBuf, name: &OsStr) -> Item {
    let now = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).unwrap_or_default();
    let mtime = Mtime { seconds: now.as_secs() as i64, nanos: now.subsec_nanos() };
    let entry = Entry { path: name.as_bytes().to_vec(), kind: Kind::Stream, mode: 0o644, mtime };
    Item { entry, local, stamp: Stamp::default() }
}

impl Sources {
    /// Below a directory each entry fails alone: files come and go while a tree is listed, and some are not for everybody to read.
    fn walk(&mut self, name: &Path, top: OsString) -> Result<(), Failure> {
        let absolute = name.canonicalize().map_err(|e| Failure::source(name, e))?;
        for found in walkdir::WalkDir::new(&absolute).follow_links(false).sort_by_file_name() {
            let (local, is_top, entry) = match found {
                Ok(found) => (found.path().to_owned(), found.depth() == 0, self.entry(&absolute, &top, &found)),
                Err(e) => {
                    let local = e.path().unwrap_or(name).to_owned();
                    let depth = e.depth();
                    let error = e.into_io_error().map_or_else(|| "it cannot be listed".to_owned(), |e| e.to_string());
                    (local.clone(), depth == 0, Err(Failure::source(&local, error)))
                }
            };
            match entry {
                Ok(Some(item)) => self.items.push(item),
                Ok(None) if is_top => {
                    return Err(Failure::source(
                        name,
                        "neither a file nor a directory; what comes from it is sent with '-' as the file and '< NAME'",
                    ));
                }
                Ok(None) => self.skipped.push(local),
                Err(failure) if is_top => return Err(failure),
                Err(failure) => self.failed.push(failure),
            }
        }
        Ok(())
    }

    /// What is to be told of an entry; `None`: it is of a kind that is not sent.
    fn entry(&mut self, absolute: &Path, top: &OsStr, found: &walkdir::DirEntry) -> Result<Option<Item>, Failure> {
        let local = found.path();
        let meta = found.metadata().map_err(|e| Failure::source(local, e.into_io_error().map_or_else(String::new, |e| e.to_string())))?;
        let kind = if meta.is_file() {
            Kind::File(meta.size())
        } else if meta.is_dir() {
            Kind::Dir
        } else if meta.is_symlink() {
            Kind::Link(std::fs::read_link(local).map_err(|e| Failure::source(local, e))?.into_os_string().into_vec())
        } else {
            return Ok(None);
        };
        let mut path = top.as_bytes().to_vec();
        if let Ok(rest) = local.strip_prefix(absolute)
            && !rest.as_os_str().is_empty()
        {
            path.push(b'/');
            path.extend_from_slice(rest.as_os_str().as_bytes());
        }
        let mtime = Mtime { seconds: meta.mtime(), nanos: meta.mtime_nsec() as u32 };
        let entry = Entry { path, kind, mode: meta.mode() & 0o777, mtime };
        if let Err(why) = entry.check_name() {
            // A name of kilobytes says less than its beginning.
            let name: String = shown(&entry.path).chars().take(SHOWN_OF_NAME).collect();
            return Err(Failure::RefusedName(format!("{name} ({why})")));
        }
        if meta.is_file() {
            self.stored += meta.size().min(meta.blocks() * 512);
        }
        Ok(Some(Item { entry, local: local.to_owned(), stamp: Stamp::of(&meta) }))
    }

    /// Files, counting standard input, and their bytes as far as known.
    pub fn totals(&self) -> (u64, u64) {
        let files = self.items.iter().filter(|i| i.entry.has_content()).count() as u64;
        (files, self.items.iter().map(|i| i.entry.size()).sum())
    }
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
        let sources = collect(std::slice::from_ref(&top), Some(OsStr::new("stdin"))).unwrap();
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
        let sources = collect(std::slice::from_ref(&top), Some(OsStr::new("stdin"))).unwrap();
        let names: Vec<&[u8]> = sources.items.iter().map(|i| &i.entry.path[..]).collect();
        let deep = format!("top/{}", vec!["e"; 300].join("/"));
        assert!(names.contains(&&b"top/z"[..]) && names.contains(&deep.as_bytes()));
        assert!(sources.failed.iter().any(|f| f.to_string().contains("noctule's own directory")), "{:?}", sources.failed);
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
        assert!(collect(&names, Some(OsStr::new("stdin"))).unwrap_err().to_string().contains("both be called"));
    }
}

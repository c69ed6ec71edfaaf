//! `noctule serve`: finds what a peer asks for in the offered directory. Names are resolved below that directory only, by descriptors.

use super::attributes::Kept;
use super::beneath::{Root, list};
use super::entry::{STAGING_NAME, as_pattern, shown};
use super::filter::Filter;
use super::shares::Place;
use super::source::{Choice, Sources, Top};
use super::target::Refused;
use super::wire::{Refusal, Request, VERSION};
use super::writer::protocol;
use crate::failure::Failure;
use globset::GlobBuilder;
use std::collections::HashSet;
use std::ffi::OsStr;
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};

/// Names that the patterns of one request may match, at most.
const MAX_MATCHES: usize = 100_000;
/// Memory of a manifest, in bytes for each byte of its names and attributes: these, and their encoded form.
const ENCODED: usize = 2;

/// Progress of the search, and whether its result is still wanted.
#[derive(Debug, Default)]
pub struct Looking {
    /// Entries so far.
    pub entries: AtomicU64,
    /// Its result is not wanted any more.
    pub is_over: AtomicBool,
}

/// A directory that is offered.
#[derive(Debug)]
pub struct Offer {
    root: Arc<Root>,
}

fn refuse<T>(refusal: Refusal, path: &[u8], message: impl Into<String>) -> Result<T, Refused> {
    Err(Refused { refusal, path: path.to_vec(), message: message.into() })
}

/// Refuses names that are not below the directory.
fn check(path: &[u8]) -> Result<(), Refused> {
    let refuse = |why: &str| refuse(Refusal::Name, path, why);
    if path.contains(&0) {
        return refuse("it contains NUL");
    }
    if path.starts_with(b"/") {
        return refuse("names are given below the directory that is served, without a slash in front");
    }
    for part in path.split(|b| *b == b'/') {
        match part {
            b".." => return refuse("`..` leads out of the directory that is served"),
            part if part == STAGING_NAME.as_bytes() => return refuse("what waits there is not whole, and nobody's to have"),
            _ => {}
        }
    }
    Ok(())
}

/// The refusal that the peer gets for an error of the search: without names of this host.
fn missing(path: &[u8], e: &io::Error) -> Refused {
    let (refusal, text) = match e.kind() {
        // An error of cap-std itself: the name, or a link in it, leads out.
        io::ErrorKind::PermissionDenied if e.raw_os_error().is_none() => {
            (Refusal::Name, "a symbolic link in it leads out of the directory that is served".to_owned())
        }
        _ => (Refusal::Source, e.to_string()),
    };
    Refused { refusal, path: path.to_vec(), message: text }
}

/// The failure for more entries or memory than is allowed.
fn too_much(text: String) -> Failure {
    Failure::Here { text, code: 17 }
}

fn is_pattern(part: &[u8]) -> bool {
    part.iter().any(|b| b"*?[".contains(b))
}

impl Offer {
    /// Offers this directory.
    pub fn open(path: &Path) -> io::Result<Self> {
        let root = Root::open(path)?;
        // An unreadable directory is an error now, not at the first request.
        list(&root.open_dir(Path::new("."))?)?;
        Ok(Self { root: root.into() })
    }

    /// Lists everything that is asked for. Blocks.
    ///
    /// # Errors
    /// Names that lead out or do not exist, or more than one request may ask for.
    pub fn gather(&self, below: Option<&Path>, request: &Request, place: &mut Place, looking: &Looking) -> Result<Sources, Refused> {
        if request.version != VERSION {
            return Err(protocol(&format!("version {} of the transfer; this side speaks version {VERSION}", request.version)));
        }
        let root = match below {
            None => Arc::clone(&self.root),
            Some(below) => Arc::new(self.root.below(below).map_err(|e| missing(below.as_os_str().as_bytes(), &e))?),
        };
        request.paths.iter().try_for_each(|path| check(path))?;
        let filter = Filter::new(&request.rules).or_else(|why| refuse(Refusal::Protocol, b"", why))?;
        let kept = if request.has_attributes { Kept::User } else { Kept::None };
        let choice = Choice { filter, kept, is_shallow: request.is_shallow };
        let mut sources = Sources::default();
        let most = place.limits().entries;
        let mut watch = |sources: &Sources| {
            looking.entries.store(sources.items.len() as u64, Relaxed);
            if looking.is_over.load(Relaxed) {
                return Err(Failure::PeerGone("it left while its files were looked at".into()));
            }
            if sources.items.len() as u64 > most {
                return Err(too_much(format!("more than {most} entries, as many as it sends at once (serve --max-entries)")));
            }
            place.hold(sources.memory.saturating_mul(ENCODED)).map_err(|refused| too_much(refused.message))
        };
        let mut names = HashSet::new();
        let mut take = |sources: &mut Sources, name: Vec<u8>, local: PathBuf| -> Result<(), Refused> {
            if !names.insert(name.clone()) {
                return refuse(
                    Refusal::Protocol,
                    &name,
                    "two of the names that are asked for would both be called so: ask for one after the other",
                );
            }
            let asked = name.clone();
            sources.walk(Top { root: Arc::clone(&root), local, name }, &choice, &mut watch).map_err(|failure| {
                let refusal = match failure {
                    Failure::RefusedName(_) => Refusal::Name,
                    Failure::Source { .. } => Refusal::Source,
                    _ => Refusal::Busy,
                };
                Refused { refusal, path: asked, message: failure.reason() }
            })
        };
        if request.paths.iter().all(|path| path.is_empty() || path == b".") {
            take(&mut sources, Vec::new(), PathBuf::from("."))?;
            return Ok(sources);
        }
        let mut search = Search { left: most, most, looking };
        for path in &request.paths {
            for (name, local) in find(&root, path, &mut search)? {
                take(&mut sources, name, local)?;
            }
        }
        Ok(sources)
    }
}

/// What the patterns of one request may still look at. A tree costs each of a thousand patterns as much as the first.
struct Search<'a> {
    left: u64,
    most: u64,
    looking: &'a Looking,
}

impl Search<'_> {
    /// Looks at one more name.
    fn look(&mut self, path: &[u8]) -> Result<(), Refused> {
        if self.looking.is_over.load(Relaxed) {
            return refuse(Refusal::Busy, path, "it left while its files were looked at");
        }
        let Some(left) = self.left.checked_sub(1) else {
            let most = self.most;
            return refuse(
                Refusal::Busy,
                path,
                format!("its patterns would look at more than {most} names (serve --max-entries): ask for fewer"),
            );
        };
        self.left = left;
        Ok(())
    }
}

/// What a name or a pattern matches: each with its name at the receiver, and its local name free of links.
fn find(root: &Root, path: &[u8], search: &mut Search<'_>) -> Result<Vec<(Vec<u8>, PathBuf)>, Refused> {
    let literal = Path::new(OsStr::from_bytes(path));
    let error = match root.resolve(literal) {
        Ok(local) => return Ok(vec![named(path, local)?]),
        Err(e) => e,
    };
    if error.kind() != io::ErrorKind::NotFound || !path.split(|b| *b == b'/').any(is_pattern) {
        return Err(missing(path, &error));
    }
    let mut found = vec![PathBuf::new()];
    for part in path.split(|b| *b == b'/').filter(|part| !part.is_empty() && *part != b".") {
        let name = OsStr::from_bytes(part);
        if !is_pattern(part) {
            found.iter_mut().for_each(|path| path.push(name));
            continue;
        }
        let wrong = |why: String| Refused { refusal: Refusal::Name, path: path.to_vec(), message: why };
        let text = as_pattern(part).ok_or_else(|| wrong("a pattern has to be text".into()))?;
        let glob = GlobBuilder::new(text)
            .literal_separator(true)
            .build()
            .map_err(|e| wrong(shown(e.kind().to_string().as_bytes())))?
            .compile_matcher();
        let mut more = Vec::new();
        for directory in &found {
            let here = if directory.as_os_str().is_empty() { Path::new(".") } else { directory };
            // A directory without entries costs something, too.
            search.look(path)?;
            let opened = root.resolve(here).and_then(|local| root.open_dir(&local)).and_then(|dir| list(&dir));
            // A name that is no directory has no entries.
            for listed in opened.into_iter().flatten().flatten() {
                search.look(path)?;
                // As in a shell, a pattern matches hidden names only if it begins with a dot.
                let is_hidden = listed.name.starts_with(b".") && !part.starts_with(b".");
                let name = OsStr::from_bytes(&listed.name);
                if !is_hidden && listed.name != STAGING_NAME.as_bytes() && glob.is_match(name) {
                    more.push(directory.join(name));
                }
                if more.len() > MAX_MATCHES {
                    return Err(wrong(format!("it stands for more than {MAX_MATCHES} names")));
                }
            }
        }
        found = more;
    }
    let mut all = Vec::new();
    for path in found {
        let bytes = path.as_os_str().as_bytes();
        match root.resolve(&path) {
            Ok(local) => all.push(named(bytes, local)?),
            // A pattern skips names that do not exist or lead out.
            Err(e) if e.kind() == io::ErrorKind::NotFound || e.raw_os_error().is_none() => {}
            Err(e) => return Err(missing(bytes, &e)),
        }
    }
    match all.is_empty() {
        true => refuse(Refusal::Source, path, format!("nothing is called like {}", shown(path))),
        false => Ok(all),
    }
}

/// The name at the receiver is the last part of what was asked for.
fn named(path: &[u8], local: PathBuf) -> Result<(Vec<u8>, PathBuf), Refused> {
    if local.iter().any(|part| part == STAGING_NAME) {
        return refuse(Refusal::Name, path, "it leads to what is not whole, and nobody's to have");
    }
    let name = Path::new(OsStr::from_bytes(path)).file_name().map(|name| name.as_bytes().to_vec()).unwrap_or_default();
    let local = if local.as_os_str().is_empty() { PathBuf::from(".") } else { local };
    Ok((name, local))
}

#[cfg(test)]
mod tests {
    use super::super::filter::Rule;
    use super::super::shares::{Limits, Shares};
    use super::*;
    use noctule::PublicKey;
    use std::fs;
    use std::os::unix::fs::symlink;

    struct Served {
        dir: tempfile::TempDir,
        offer: Offer,
    }

    impl Served {
        fn new() -> Self {
            let dir = tempfile::tempdir().unwrap();
            let root = dir.path().join("served");
            for name in ["a/one.c", "a/two.o", "a/deep/three.c", "b/four.c", ".hidden", "b/[x]", ".noctule-partial/part"] {
                let path = root.join(name);
                fs::create_dir_all(path.parent().unwrap()).unwrap();
                fs::write(path, name).unwrap();
            }
            fs::write(dir.path().join("secret"), "s").unwrap();
            symlink("../secret", root.join("out")).unwrap();
            symlink("..", root.join("up")).unwrap();
            symlink("a/deep", root.join("in")).unwrap();
            symlink(".noctule-partial", root.join("parts")).unwrap();
            rustix::fs::mknodat(rustix::fs::CWD, root.join("fifo"), rustix::fs::FileType::Fifo, rustix::fs::Mode::RWXU, 0).unwrap();
            let offer = Offer::open(&root).unwrap();
            Self { dir, offer }
        }

        fn gather(&self, below: Option<&str>, request: Request, limits: Limits) -> Result<Sources, Refused> {
            let mut place = Shares::new(limits).enter(PublicKey([1; 32])).unwrap();
            let request = Request { version: VERSION, ..request };
            self.offer.gather(below.map(Path::new), &request, &mut place, &Looking::default())
        }

        fn names(&self, paths: &[&str]) -> Result<Vec<String>, Refused> {
            let paths = paths.iter().map(|p| p.as_bytes().to_vec()).collect();
            let sources = self.gather(None, Request { paths, ..Request::default() }, Limits::default())?;
            Ok(sources.items.iter().map(|i| String::from_utf8_lossy(&i.entry.path).into_owned()).collect())
        }
    }

    #[test]
    fn names_and_patterns_stand_for_what_lies_below_and_nothing_else_is_told() {
        let served = Served::new();
        assert_eq!(served.names(&["a"]).unwrap(), ["a", "a/deep", "a/deep/three.c", "a/one.c", "a/two.o"]);
        assert_eq!(served.names(&["*/*.c"]).unwrap(), ["one.c", "four.c", "three.c"], "by a link that stays below, too");
        assert_eq!(served.names(&["in"]).unwrap(), ["in", "in/three.c"], "a link that is named stands for what it leads to");
        assert_eq!(served.names(&["b/[x]"]).unwrap(), ["[x]"], "a name that is there is no pattern");
        let all = served.names(&[]).unwrap();
        assert!(
            all.contains(&".hidden".into()) && all.contains(&"out".into()) && !all.iter().any(|name| name.contains("partial/")),
            "{all:?}"
        );
        for (path, refusal, words) in [
            ("../secret", Refusal::Name, "leads out"),
            ("a/../../secret", Refusal::Name, "leads out"),
            ("/etc/passwd", Refusal::Name, "slash in front"),
            ("a\0b", Refusal::Name, "NUL"),
            ("out", Refusal::Name, "leads out"),
            ("up/secret", Refusal::Name, "leads out"),
            ("up/*", Refusal::Name, "leads out"),
            (".noctule-partial", Refusal::Name, "not whole"),
            ("parts", Refusal::Name, "not whole"),
            ("parts/part", Refusal::Name, "not whole"),
            ("fifo", Refusal::Source, "neither a file"),
            ("nothing", Refusal::Source, "No such file"),
            ("no*", Refusal::Source, "nothing is called"),
            ("a/one.c/x", Refusal::Source, "ot a directory"),
        ] {
            let refused = served.names(&[path]).unwrap_err();
            assert!(refused.refusal == refusal && refused.message.contains(words), "{path:?}: {refused:?}");
            assert!(!refused.message.contains(served.dir.path().to_str().unwrap()), "names of this host are its own: {refused:?}");
        }
        assert!(served.names(&["a/one.c", "a/*.c"]).unwrap_err().message.contains("both be called"));
    }

    #[test]
    fn requests_are_filtered_shallow_and_bounded_and_a_key_s_directory_is_all_there_is() {
        let served = Served::new();
        let rules = vec![Rule { is_include: false, pattern: "*.o".into() }];
        let filtered = served.gather(None, Request { rules, paths: vec![b"a".to_vec()], ..Request::default() }, Limits::default()).unwrap();
        assert!(filtered.items.iter().all(|i| !i.entry.path.ends_with(b".o")) && filtered.items.len() == 4);
        let shallow =
            served.gather(None, Request { is_shallow: true, paths: vec![b"a".to_vec()], ..Request::default() }, Limits::default());
        assert_eq!(shallow.unwrap().items.len(), 4, "a, and what lies directly in it");
        let below = served.gather(Some("b"), Request::default(), Limits::default()).unwrap();
        assert_eq!(below.items.len(), 2);
        let outside = served.gather(Some("b"), Request { paths: vec![b"../a".to_vec()], ..Request::default() }, Limits::default());
        assert_eq!(outside.unwrap_err().refusal, Refusal::Name);
        let few = Limits { entries: 3, ..Limits::default() };
        assert!(served.gather(None, Request::default(), few).unwrap_err().message.contains("--max-entries"));
        let little = Limits { memory: 100, ..Limits::default() };
        assert_eq!(served.gather(None, Request::default(), little).unwrap_err().refusal, Refusal::Busy);
        assert!(!served.gather(None, Request::default(), Limits::default()).unwrap().is_complete(), "a FIFO is left out");
        let asks = |paths: Vec<Vec<u8>>| Request { paths, ..Request::default() };
        let limits = || Limits { entries: 100, ..Limits::default() };
        let one = served.gather(None, asks(vec![b"*/no*".to_vec()]), limits()).unwrap_err();
        assert_eq!(one.refusal, Refusal::Source, "nothing is called so");
        // A link that leads up makes a tree as deep as a pattern: it is looked at no further than is allowed.
        symlink(".", served.dir.path().join("served/loop")).unwrap();
        let deep = served.gather(None, asks(vec![b"*/".repeat(40)]), limits()).unwrap_err();
        assert!(deep.refusal == Refusal::Busy && deep.message.contains("--max-entries"), "{deep:?}");
        let wrong = vec![Rule { is_include: false, pattern: "[a".into() }];
        assert!(served.gather(None, Request { rules: wrong, ..Request::default() }, Limits::default()).is_err());
    }
}

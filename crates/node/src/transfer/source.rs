//! What is sent: the manifest from names on the command line, and a file's content as it is read.

use super::CHUNK;
use super::records::{Entry, Kind};
use crate::failure::Failure;
use bytes::{Bytes, BytesMut};
use std::fs::{File, Metadata};
use std::io::Read;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use tokio::sync::mpsc;

/// One entry and where its content is.
#[derive(Debug)]
pub struct Item {
    /// As told to the receiver.
    pub entry: Entry,
    /// Local name.
    pub local: PathBuf,
    stamp: Stamp,
}

/// What shows that a file changed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Stamp {
    size: u64,
    mtime: (i64, i64),
}

impl Stamp {
    fn of(meta: &Metadata) -> Self {
        Self { size: meta.size(), mtime: (meta.mtime(), meta.mtime_nsec()) }
    }
}

fn component(path: &Path, name: Option<&std::ffi::OsStr>) -> Result<String, Failure> {
    let name = name.ok_or_else(|| Failure::Usage(format!("{} has no name to send it under", path.display())))?;
    name.to_str().map(str::to_owned).ok_or_else(|| Failure::source(path, "its name is not valid UTF-8"))
}

/// The manifest of everything that was named, directories before what they contain. Symbolic links below a directory are not sent; they are
/// returned so that the user learns of it.
pub fn collect(names: &[PathBuf]) -> Result<(Vec<Item>, Vec<PathBuf>), Failure> {
    let (mut items, mut skipped) = (Vec::new(), Vec::new());
    for name in names {
        // `DIR/..` and `.` have no name of their own: use that of what they lead to.
        let absolute = name.canonicalize().map_err(|e| Failure::source(name, e))?;
        let top = component(name, name.file_name().or(absolute.file_name()))?;
        for found in walkdir::WalkDir::new(&absolute).follow_links(false).sort_by_file_name() {
            let found = found.map_err(|e| Failure::source(e.path().unwrap_or(name), &e))?;
            let meta = found.metadata().map_err(|e| Failure::source(found.path(), e))?;
            let kind = if meta.is_file() {
                Kind::File
            } else if meta.is_dir() {
                Kind::Dir
            } else if found.depth() == 0 {
                return Err(Failure::source(name, "neither a file nor a directory"));
            } else {
                skipped.push(found.path().to_owned());
                continue;
            };
            let mut path = vec![top.clone()];
            for part in found.path().strip_prefix(&absolute).unwrap_or(Path::new("")).components() {
                path.push(component(found.path(), Some(part.as_os_str()))?);
            }
            let size = if kind == Kind::File { meta.size() } else { 0 };
            let entry = Entry { path, kind, size, mode: meta.mode() & 0o777, mtime: meta.mtime() };
            items.push(Item { entry, local: found.path().to_owned(), stamp: Stamp::of(&meta) });
        }
    }
    Ok((items, skipped))
}

/// A piece of a file, or its end.
#[derive(Debug)]
pub enum Piece {
    /// Content.
    Data(Bytes),
    /// All `size` bytes were given; their hash, and what was wrong.
    End {
        /// BLAKE3, hexadecimal.
        blake3: String,
        /// The file shrank, could not be read, or changed.
        problem: Option<String>,
    },
}

/// Reads the files one after another on a thread of its own, hashing as it goes.
pub fn read_all(items: Vec<Item>, out: mpsc::Sender<Piece>) {
    let mut buffer = BytesMut::new();
    for item in items.iter().filter(|i| i.entry.kind == Kind::File) {
        if read_one(item, &mut buffer, &out).is_none() {
            return;
        }
    }
}

/// `None` when nobody listens any more.
fn read_one(item: &Item, buffer: &mut BytesMut, out: &mpsc::Sender<Piece>) -> Option<()> {
    let mut hasher = blake3::Hasher::new();
    let mut left = item.entry.size;
    let mut problem = None;
    let mut file = match File::open(&item.local) {
        Ok(file) => Some(file),
        Err(e) => {
            problem = Some(format!("cannot be opened: {e}"));
            None
        }
    };
    while left > 0 {
        let want = usize::try_from(left).unwrap_or(CHUNK).min(CHUNK);
        buffer.resize(want, 0);
        let got = match file.as_mut().map(|f| f.read(&mut buffer[..want])) {
            Some(Ok(0)) => {
                problem.get_or_insert_with(|| "it became shorter while it was sent".into());
                file = None;
                continue;
            }
            Some(Ok(n)) => n,
            Some(Err(e)) if e.kind() == std::io::ErrorKind::Interrupted => continue,
            Some(Err(e)) => {
                problem.get_or_insert_with(|| format!("reading failed: {e}"));
                file = None;
                continue;
            }
            // The receiver was promised `size` bytes: zeros keep the stream in step, the problem is told at the end.
            None => {
                buffer.fill(0);
                want
            }
        };
        let data = buffer.split_to(got).freeze();
        hasher.update(&data);
        left -= got as u64;
        out.blocking_send(Piece::Data(data)).ok()?;
    }
    if problem.is_none() {
        match std::fs::metadata(&item.local) {
            Ok(meta) if Stamp::of(&meta) == item.stamp => {}
            Ok(_) => problem = Some("it changed while it was sent".into()),
            Err(e) => problem = Some(format!("it vanished while it was sent: {e}")),
        }
    }
    out.blocking_send(Piece::End { blake3: hasher.finalize().to_hex().to_string(), problem }).ok()
}

//! A file as an object: looked at once for its hashes, then read block by block.

use super::super::entry::{Entry, Kind};
use super::super::hashing::Comparing;
use super::super::reading::{Problem, Reading};
use super::super::source::{self, Item};
use super::super::wire::{Record, split};
use super::cores;
use super::{BATCH_SIZE, BLOCK_PACKETS, PACKET_LEN};
use crate::failure::Failure;
use bytes::BytesMut;
use noctule_proto::object::{HashTree, Layout, MAX_ABOUT, Root, SourceBlock};
use std::ffi::OsString;
use std::fs::File;
use std::os::unix::fs::FileExt;
use std::path::PathBuf;

/// Everything about a file that is sent as an object.
pub struct ObjectFile {
    reading: Reading,
    /// Its name and attributes.
    pub entry: Entry,
    /// Its cut.
    pub layout: Layout,
    /// Its blocks' hashes.
    pub tree: HashTree,
    /// The entry as the root binds it: one ENTRIES record.
    pub about: Vec<u8>,
    /// Its root hash.
    pub root: Root,
}

/// The entry that the description of an object holds.
pub fn entry_of(about: &[u8]) -> Option<Entry> {
    match split(&mut BytesMut::from(about)) {
        Ok(Some(Record::Entries(mut entries))) if entries.len() == 1 => entries.pop().filter(|e| matches!(e.kind, Kind::File(_))),
        _ => None,
    }
}

impl ObjectFile {
    /// Reads the only file that is named and hashes it. `low_loss` (permille) as in [`Layout::new`]; `comparing` tells how far that is. Blocks.
    ///
    /// # Errors
    /// Not one file, or it cannot be read, or its name is too long.
    pub fn open(names: &[OsString], low_loss: u16, comparing: &Comparing) -> Result<Self, Failure> {
        let [name] = names else {
            return Err(Failure::Usage(format!(
                "--mode brctp sends one file, not {}: pack them into one, or send them without --mode",
                names.len()
            )));
        };
        let name = PathBuf::from(name);
        if source::stream(&name)?.is_some() {
            return Err(Failure::Usage("--mode brctp needs a file: it is read once for its hashes, then sent block by block".into()));
        }
        let sources = source::collect(std::slice::from_ref(&name), None, &source::Choice::default())?;
        let item = sources.items.into_iter().next().ok_or_else(|| Failure::source(&name, "no file"))?;
        if !matches!(item.entry.kind, Kind::File(_)) {
            return Err(Failure::Usage(format!(
                "--mode brctp sends one file, and {} is none: pack it into one, or send it without --mode",
                name.display()
            )));
        }
        Self::of(item, low_loss, comparing)
    }

    /// The same of a file that was found already.
    ///
    /// # Errors
    /// It is no file, or cannot be read, or its name is too long.
    pub fn of(item: Item, low_loss: u16, comparing: &Comparing) -> Result<Self, Failure> {
        let size = item.entry.size();
        let failed = |problem: Problem| problem.failure(item.entry.shown());
        let reading = Reading::open(&item).map_err(failed)?;
        let layout = Layout::new(size, PACKET_LEN, BLOCK_PACKETS, BATCH_SIZE, low_loss).map_err(|e| Failure::Usage(e.to_string()))?;
        let leaves = match cores::leaves(reading.file(), &layout, cores::width(), comparing) {
            (leaves, None) => leaves,
            (_, Some(e)) => return Err(failed(e.into())),
        };
        reading.end().map_err(failed)?;
        let tree = HashTree::new(leaves);
        let mut about = Vec::new();
        Record::Entries(vec![item.entry.clone()]).emit(&mut about);
        if about.len() > MAX_ABOUT {
            return Err(Failure::Usage(format!("the name of {} is too long for --mode brctp", item.entry.shown())));
        }
        let root = Root::of(&layout, &about, &tree.top()).map_err(|e| Failure::Usage(e.to_string()))?;
        Ok(Self { reading, entry: item.entry, layout, tree, about, root })
    }

    /// A block of it, checked. A job for a thread that may block.
    ///
    /// # Errors
    /// It cannot be read, or is not what was announced.
    pub fn block(&self, block: u32) -> Result<SourceBlock, Failure> {
        let unreadable = |error: String| Failure::Source { path: self.entry.shown(), error };
        let failed = |problem: Problem| problem.failure(self.entry.shown());
        let content = read(self.reading.file(), &self.layout, block).map_err(|e| failed(e.into()))?;
        self.reading.check().map_err(failed)?;
        let leaf = self.tree.leaves().get(block as usize).ok_or_else(|| unreadable(format!("it has no block {block}")))?;
        SourceBlock::new(self.layout, block, content, leaf).map_err(|e| self.changed(e))
    }

    /// All of it has been sent: it is still what was announced.
    ///
    /// # Errors
    /// It changed, or grew.
    pub fn check_end(&self) -> Result<(), Failure> {
        self.reading.end().map_err(|problem| problem.failure(self.entry.shown()))
    }

    /// The file is not what was announced any more.
    fn changed(&self, problem: impl std::fmt::Display) -> Failure {
        Failure::Hash { path: self.entry.shown(), problem: problem.to_string() }
    }
}

/// The content of a block of an open file.
pub fn read(file: &File, layout: &Layout, block: u32) -> std::io::Result<Vec<u8>> {
    let range = layout.range(block);
    let mut content = vec![0; (range.end - range.start) as usize];
    file.read_exact_at(&mut content, range.start)?;
    Ok(content)
}

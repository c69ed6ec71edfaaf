//! Writes verified blocks to a file, each at its offset as it comes, and gives the file its name when all are there.

use super::super::entry::{Entry, shown};
use super::super::hashing::{Comparing, segment};
use super::super::staging::{Grown, Staging};
use super::super::target::{Parents, Placed, Refused, Target, There, set_attributes};
use super::super::wire::Refusal;
use super::cores;
use noctule::PublicKey;
use noctule_proto::object::{Layout, Receiver, Root, leaf};
use rustix::fs::Mode;
use std::os::unix::fs::FileExt;
use std::sync::atomic::Ordering::Relaxed;
use std::thread::JoinHandle;
use tokio::sync::mpsc;

/// Blocks between network and disk.
const QUEUE: usize = 4;

/// What the target directory has of an object.
pub enum Prepared {
    /// The whole file, verified.
    InPlace,
    /// A part of it, or nothing: a place to write it.
    Place(Box<Place>),
}

/// The thread that writes a file, and what became of it.
pub type Writer = JoinHandle<Result<(), Refused>>;

/// A file that is being written.
pub struct Place {
    target: Target,
    staging: Staging,
    grown: Grown,
    entry: Entry,
    layout: Layout,
    /// It may replace what has its name.
    replaces: bool,
    /// Nothing was there of it, so zeros need not be written.
    is_new: bool,
}

impl Place {
    /// Refuses what can be refused already. Offers `receiver` what an earlier transfer left of the object, as far as it knows the blocks' hashes; `comparing` tells
    /// how far that is. Blocks.
    ///
    /// # Errors
    /// The name is refused, a file has it already, there is too little room, or the disk fails.
    pub fn prepare(
        target: Target,
        entry: Entry,
        sender: PublicKey,
        root: &Root,
        receiver: &mut Receiver,
        comparing: &Comparing,
    ) -> Result<Prepared, Refused> {
        target.check_entry(&entry)?;
        let (layout, path) = (*receiver.layout(), entry.as_path().to_owned());
        if entry.size() != layout.size() {
            return Err(Refused::new(Refusal::Protocol, &path, "an object of another size than its file"));
        }
        let (mut parents, mut replaces) = (Parents::default(), false);
        match target.look(&entry, &mut parents)? {
            There::Nothing => {}
            There::SameSize(old) if offer(&old, receiver, comparing) && receiver.is_complete() => return Ok(Prepared::InPlace),
            _ if target.may_replace(&entry, &mut parents) => replaces = true,
            _ => return Err(Refused::new(Refusal::Exists, &path, "exists already")),
        }
        let refused = |e: std::io::Error| Refused::from_io(&path, &e);
        parents.check_writable(&target.dir, &path).map_err(refused)?;
        let staging = Staging::open(&target.dir, sender, &blake3::Hash::from_bytes(root.0)).map_err(refused)?;
        let left = staging.left(&entry).map_err(refused)?.map(|(grown, _)| grown);
        let is_new = left.is_none();
        let grown = match left {
            Some(grown) => Some(grown),
            None => staging.grow(&entry).map_err(refused)?,
        };
        let Some(grown) = grown else {
            return Err(Refused { refusal: Refusal::Busy, path: entry.path, message: "another transfer is writing this file".into() });
        };
        match is_new {
            true => grown.file.set_len(0).map_err(refused)?,
            false => offer_data(&grown.file, receiver, comparing).map_err(refused)?,
        }
        let there = u64::from(receiver.blocks_done()) * layout.block_bytes() as u64;
        let needed = layout.size().saturating_sub(there);
        target.check_space(needed, needed)?;
        grown.file.set_len(layout.size()).map_err(refused)?;
        Ok(Prepared::Place(Box::new(Self { target, staging, grown, entry, layout, replaces, is_new })))
    }

    /// Starts the thread that writes the pieces, until the channel is closed. The file gets its name if [`Piece::End`] was sent.
    pub fn write(self) -> Result<(mpsc::Sender<Piece>, Writer), Refused> {
        let (pieces, mut incoming) = mpsc::channel(QUEUE);
        let path = self.entry.as_path().to_owned();
        let thread = std::thread::Builder::new().name("writer".into()).spawn(move || {
            while let Some(piece) = incoming.blocking_recv() {
                match piece {
                    Piece::Block(block, content) => {
                        let at = self.layout.range(block).start;
                        self.put(&content, at).map_err(|e| Refused::from_io(self.entry.as_path(), &e))?;
                    }
                    Piece::End => return self.finish(),
                }
            }
            // The part stays for the next try.
            Ok(())
        });
        Ok((pieces, thread.map_err(|e| Refused::from_io(&path, &e))?))
    }

    /// Writes a block; pages of zeros stay holes where nothing else can be.
    fn put(&self, content: &[u8], at: u64) -> std::io::Result<()> {
        let file = &self.grown.file;
        if !self.is_new {
            return file.write_all_at(content, at);
        }
        let mut rest = 0;
        while rest < content.len() {
            let pages = content[rest..].chunks(PAGE);
            let zeros: usize = pages.clone().take_while(|page| is_zero(page)).map(<[u8]>::len).sum();
            let data: usize = pages.skip_while(|page| is_zero(page)).take_while(|page| !is_zero(page)).map(<[u8]>::len).sum();
            let begin = rest + zeros;
            file.write_all_at(&content[begin..begin + data], at + begin as u64)?;
            rest = begin + data;
        }
        Ok(())
    }

    fn finish(self) -> Result<(), Refused> {
        let Self { target, staging, grown, entry, replaces, .. } = self;
        let path = entry.as_path();
        let finish = || -> Result<(), Refused> {
            let refused = |e: std::io::Error| Refused::from_io(path, &e);
            if !set_attributes(&grown.file, &entry, &target.rules).map_err(refused)? {
                tell!("noctule: the target's file system does not take permissions or times: {} arrives without them", entry.shown());
            }
            grown.file.sync_data().map_err(refused)?;
            match target.place(&staging, &grown, 0, path, replaces, &mut Parents::default())? {
                Placed::There => target.sync().map_err(refused),
                Placed::OneNameWith(_) => Err(Refused::new(Refusal::Exists, path, "exists already")),
            }
        };
        if let Err(refused) = finish() {
            // The whole file stays for the next try, which must be able to open it.
            let _ = rustix::fs::fchmod(&grown.file, Mode::RUSR | Mode::WUSR);
            return Err(refused);
        }
        staging.finish();
        Ok(())
    }
}

/// Smallest hole, in bytes: file systems make none that are smaller.
const PAGE: usize = 4096;

fn is_zero(page: &[u8]) -> bool {
    page.iter().all(|b| *b == 0)
}

/// What is sent to a writer.
pub enum Piece {
    /// A verified block.
    Block(u32, Vec<u8>),
    /// All blocks have come.
    End,
}

/// Offers all blocks of a file; true if it could be read to its end.
fn offer(found: &std::fs::File, receiver: &mut Receiver, comparing: &Comparing) -> bool {
    let (leaves, error) = cores::leaves(found, receiver.layout(), cores::width(), comparing);
    for (block, leaf) in (0u32..).zip(&leaves) {
        receiver.offer_leaf(block, leaf);
    }
    // Otherwise it is shorter than the object.
    error.is_none()
}

/// Offers the blocks of a file that hold data: holes have not been received.
///
/// # Errors
/// Nobody wants it any more.
fn offer_data(found: &std::fs::File, receiver: &mut Receiver, comparing: &Comparing) -> std::io::Result<()> {
    let layout = *receiver.layout();
    comparing.total.fetch_add(layout.size(), Relaxed);
    let mut at = 0;
    let has_data = |block: &u32| {
        let range = layout.range(*block);
        segment(found, range.start, range.end).0 < range.end
    };
    for block in (0..layout.blocks()).filter(has_data) {
        comparing.check()?;
        if let Ok(content) = super::file::read(found, &layout, block) {
            receiver.offer_leaf(block, &leaf(&content));
        }
        let end = layout.range(block).end;
        comparing.done.fetch_add(end - at, Relaxed);
        at = end;
    }
    comparing.done.fetch_add(layout.size() - at, Relaxed);
    Ok(())
}

/// Waits for a writer; a panic of it becomes a refusal.
pub fn joined(thread: Writer, entry: &Entry) -> Result<(), Refused> {
    thread.join().unwrap_or_else(|_| {
        Err(Refused { refusal: Refusal::Target, path: entry.path.clone(), message: format!("writing {} failed", shown(&entry.path)) })
    })
}

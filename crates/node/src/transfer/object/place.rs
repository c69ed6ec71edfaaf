//! Verified blocks become a file: written where they belong as they come, moved to its name when all are there.

use super::super::entry::{Entry, shown};
use super::super::staging::{Grown, Staging};
use super::super::target::{Parents, Refused, Target, There, set_mtime};
use super::super::wire::Refusal;
use super::cores;
use noctule_proto::object::{Layout, Receiver, Root};
use std::fs::Permissions;
use std::os::unix::fs::{FileExt, PermissionsExt};
use std::thread::JoinHandle;
use tokio::sync::mpsc;

/// Blocks between network and disk.
const QUEUE: usize = 4;

/// What the target directory says to an object.
pub enum Prepared {
    /// It is there, whole and right.
    InPlace,
    /// It can grow.
    Place(Box<Place>),
}

/// A file that grows.
pub struct Place {
    target: Target,
    staging: Staging,
    grown: Grown,
    entry: Entry,
    layout: Layout,
}

impl Place {
    /// Refuses what can be refused, and offers `receiver` what is there of the object from before (as far as it knows the blocks' hashes). Blocks.
    ///
    /// # Errors
    /// A name, a file in the way, too little room, or the disk.
    pub fn prepare(target: Target, entry: Entry, root: &Root, receiver: &mut Receiver) -> Result<Prepared, Refused> {
        target.check_entry(&entry)?;
        let (layout, path) = (*receiver.layout(), entry.as_path().to_owned());
        if entry.size() != layout.size() {
            return Err(Refused::new(Refusal::Protocol, &path, "an object of another size than its file"));
        }
        let mut parents = Parents::default();
        match target.look(&entry, &mut parents)? {
            There::Nothing => {}
            There::Alike(old) if offer(&old, receiver) && receiver.is_complete() => return Ok(Prepared::InPlace),
            _ if target.may_replace(&entry, &mut parents) => {}
            _ => return Err(Refused::new(Refusal::Exists, &path, "exists already")),
        }
        let refused = |e: std::io::Error| Refused::from_io(&path, &e);
        let staging = Staging::open(&target.dir, &blake3::Hash::from_bytes(root.0)).map_err(refused)?;
        let left = Staging::left(&target.dir, &entry).map_or(0, |(_, length)| length.min(layout.size()));
        let grown = staging.grow(&entry, left).map_err(refused)?;
        let Some(grown) = grown else {
            return Err(Refused { refusal: Refusal::Busy, path: entry.path, message: "another transfer is writing this file".into() });
        };
        if left > 0 {
            offer(&grown.file, receiver);
        }
        let there = u64::from(receiver.blocks_done()) * layout.block_bytes() as u64;
        target.check_space(layout.size().saturating_sub(there))?;
        grown.file.set_len(layout.size()).map_err(refused)?;
        Ok(Prepared::Place(Box::new(Self { target, staging, grown, entry, layout })))
    }

    /// Writes what comes on a thread of its own, until the channel is closed; then the file gets its name if `is_complete` was sent.
    pub fn write(self) -> (mpsc::Sender<Piece>, JoinHandle<Result<(), Refused>>) {
        let (pieces, mut incoming) = mpsc::channel(QUEUE);
        let thread = std::thread::spawn(move || {
            while let Some(piece) = incoming.blocking_recv() {
                match piece {
                    Piece::Block(block, content) => {
                        let at = self.layout.range(block).start;
                        self.grown.file.write_all_at(&content, at).map_err(|e| Refused::from_io(self.entry.as_path(), &e))?;
                    }
                    Piece::End => return self.finish(),
                }
            }
            // What has come stays for the next try.
            Ok(())
        });
        (pieces, thread)
    }

    fn finish(self) -> Result<(), Refused> {
        let Self { target, staging, grown: Grown { file, name }, entry, .. } = self;
        let path = entry.as_path();
        let finish = || {
            file.set_permissions(Permissions::from_mode(entry.mode))?;
            set_mtime(&file, &entry)?;
            file.sync_data()
        };
        finish().map_err(|e| Refused::from_io(path, &e))?;
        target.place(&staging.dir, name.as_ref(), path, &mut Parents::default())?;
        target.sync().map_err(|e| Refused::from_io(path, &e))?;
        staging.finish(&target.dir);
        Ok(())
    }
}

/// What a writer gets.
pub enum Piece {
    /// A verified block.
    Block(u32, Vec<u8>),
    /// All blocks have come.
    End,
}

/// Offers all blocks of a file; true if it could be read to its end.
fn offer(found: &std::fs::File, receiver: &mut Receiver) -> bool {
    let (leaves, error) = cores::leaves(found, receiver.layout(), cores::width());
    for (block, leaf) in (0u32..).zip(&leaves) {
        receiver.offer_leaf(block, leaf);
    }
    // Otherwise it is shorter than the object.
    error.is_none()
}

/// A writer's end, in words if it panicked.
pub fn joined(thread: JoinHandle<Result<(), Refused>>, entry: &Entry) -> Result<(), Refused> {
    thread.join().unwrap_or_else(|_| {
        Err(Refused { refusal: Refusal::Target, path: entry.path.clone(), message: format!("writing {} failed", shown(&entry.path)) })
    })
}

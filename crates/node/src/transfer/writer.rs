//! A data stream becomes files, on a thread of its own: the network never waits for a disk but when it is full.

use super::entry::{Entry, Kind};
use super::staging::{Grown, Staging};
use super::target::{Parents, Refused, Target, set_mtime};
use super::wire::{Record, Refusal, split};
use blake3::{Hash, Hasher};
use bytes::BytesMut;
use std::fs::{File, Permissions};
use std::io::{self, Seek, Write};
use std::os::unix::fs::PermissionsExt;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::sync::{Mutex, PoisonError};
use tokio::sync::mpsc;

/// What is known of an entry's content before it comes.
pub enum Slot {
    /// Nothing.
    Missing,
    /// The beginning, from an earlier try.
    Partial(u64, Box<Hasher>),
    /// A file that looks the same, with this hash.
    InPlace(Hash),
    /// No content comes, or it has come already.
    Closed,
}

/// Where contents go.
pub enum Sink {
    /// Below a directory.
    Directory(Target, Staging),
    /// To standard output.
    Stdout,
}

/// What a writer tells.
pub enum Event {
    /// An entry is in place, its hash is right.
    Stored(u64, Hash),
    /// It is not; the others go on.
    Failed(u64, Refused),
    /// Nothing can go on.
    Fatal(Refused),
}

/// One transfer, shared by the writers of its streams.
pub struct Job {
    /// The manifest.
    pub entries: Vec<Entry>,
    /// What is known of each entry.
    pub slots: Mutex<Vec<Slot>>,
    /// Where to.
    pub sink: Sink,
    /// How far it is.
    pub counts: Counts,
}

/// How far a transfer is.
#[derive(Default)]
pub struct Counts {
    /// Bytes of content that are through.
    pub bytes: AtomicU64,
    /// Of these, bytes that were here before.
    pub spared: AtomicU64,
    /// Bytes in place of entries whose size the manifest did not know.
    pub streamed: AtomicU64,
    /// Files that were here whole.
    pub same: AtomicU64,
    /// Files whose beginning was here.
    pub resumed: AtomicU64,
}

impl Counts {
    fn spare(&self, bytes: u64, files: &AtomicU64) {
        self.bytes.fetch_add(bytes, Relaxed);
        self.spared.fetch_add(bytes, Relaxed);
        files.fetch_add(1, Relaxed);
    }
}

impl Job {
    fn take(&self, index: u64) -> Result<(&Entry, Slot), Refused> {
        let at = usize::try_from(index).unwrap_or(usize::MAX);
        let mut slots = self.slots.lock().unwrap_or_else(PoisonError::into_inner);
        match (self.entries.get(at), slots.get_mut(at)) {
            (Some(entry), Some(slot)) if !matches!(slot, Slot::Closed) => Ok((entry, std::mem::replace(slot, Slot::Closed))),
            _ => Err(protocol("content came for an entry that has none, or twice")),
        }
    }

    fn overwrites(&self) -> bool {
        matches!(&self.sink, Sink::Directory(target, _) if target.rules.overwrite)
    }
}

/// The other side does not keep to the protocol.
pub fn protocol(message: &str) -> Refused {
    Refused { refusal: Refusal::Protocol, path: Vec::new(), message: message.to_owned() }
}

/// Where one entry's content goes.
enum Place {
    Grown(Grown),
    Stdout,
    /// It is there already: only the hash is of interest.
    Compare(Hash),
    /// It has failed: the rest of it is passed over.
    Nowhere,
}

struct Incoming<'a> {
    index: u64,
    entry: &'a Entry,
    place: Place,
    hasher: Hasher,
    received: u64,
}

/// See the file's heading.
pub struct Writer<'a> {
    job: &'a Job,
    events: mpsc::UnboundedSender<Event>,
    parents: Parents,
    incoming: Option<Incoming<'a>>,
}

impl<'a> Writer<'a> {
    /// Writes what `bytes` brings until it ends.
    pub fn run(job: &'a Job, mut bytes: mpsc::Receiver<BytesMut>, events: mpsc::UnboundedSender<Event>) {
        let mut writer = Self { job, events, parents: Parents::default(), incoming: None };
        let mut buffer = BytesMut::new();
        while let Some(more) = bytes.blocking_recv() {
            match buffer.is_empty() {
                true => buffer = more,
                false => buffer.extend_from_slice(&more),
            }
            if let Err(refused) = writer.take_all(&mut buffer) {
                let _ = writer.events.send(Event::Fatal(refused));
                return;
            }
        }
    }

    fn take_all(&mut self, buffer: &mut BytesMut) -> Result<(), Refused> {
        while let Some(record) = split(buffer).map_err(|e| protocol(&e.to_string()))? {
            self.take(record)?;
        }
        Ok(())
    }

    fn take(&mut self, record: Record) -> Result<(), Refused> {
        match (record, self.incoming.is_some()) {
            (Record::File { index, offset }, false) => self.begin(index, offset),
            (Record::Data(content), true) => self.content(&content),
            (Record::Hole(length), true) => self.hole(length),
            (Record::End { hash, problem }, true) => self.end(hash, problem),
            (Record::Small { index, hash, content }, false) => self.small(index, hash, &content),
            (Record::Same { index }, false) => match self.job.take(index)? {
                (entry, Slot::InPlace(hash)) => {
                    self.job.counts.spare(entry.size(), &self.job.counts.same);
                    self.tell(Event::Stored(index, hash));
                    Ok(())
                }
                _ => Err(protocol("a file is said to be the same that is not here")),
            },
            _ => Err(protocol("a record came that has no place there")),
        }
    }

    fn tell(&self, event: Event) {
        // Nobody listens any more: the transfer is over.
        let _ = self.events.send(event);
    }

    /// A full disk ends everything; other failures concern one entry.
    fn fail(&self, index: u64, refused: Refused) -> Result<(), Refused> {
        match refused.refusal {
            Refusal::DiskFull | Refusal::Protocol => Err(refused),
            _ => {
                self.tell(Event::Failed(index, refused));
                Ok(())
            }
        }
    }

    fn begin(&mut self, index: u64, offset: u64) -> Result<(), Refused> {
        let (entry, slot) = self.job.take(index)?;
        let (mut hasher, mut length) = (Hasher::new(), 0);
        let place = match (slot, &self.job.sink) {
            (Slot::InPlace(hash), _) if offset == 0 && !self.job.overwrites() => Ok(Place::Compare(hash)),
            (_, Sink::Stdout) => Ok(Place::Stdout),
            (slot, Sink::Directory(_, staging)) => {
                match slot {
                    Slot::Partial(known, known_hasher) if offset == known => (hasher, length) = (*known_hasher, known),
                    _ if offset == 0 => {}
                    _ => return Err(protocol("a file begins where this side does not have it")),
                }
                let grown = match entry.kind {
                    Kind::Stream => staging.create().map(Some),
                    _ => staging.grow(entry, length),
                };
                match grown {
                    Ok(Some(grown)) => Ok(Place::Grown(grown)),
                    Ok(None) => Err(Refused::new(Refusal::Busy, entry.as_path(), "another transfer is writing it")),
                    Err(e) => Err(Refused::from_io(entry.as_path(), &e)),
                }
            }
        };
        let place = match place {
            Ok(place) => place,
            Err(refused) => {
                self.fail(index, refused)?;
                Place::Nowhere
            }
        };
        if length > 0 {
            self.job.counts.spare(length, &self.job.counts.resumed);
        }
        self.incoming = Some(Incoming { index, entry, place, hasher, received: length });
        Ok(())
    }

    /// Accounts for content and hands out the entry; more than was announced is an error.
    fn grow(&mut self, length: u64) -> Result<&mut Incoming<'a>, Refused> {
        let incoming = self.incoming.as_mut().ok_or_else(|| protocol("content came without a file"))?;
        incoming.received = incoming.received.saturating_add(length);
        if matches!(incoming.entry.kind, Kind::File(size) if incoming.received > size) {
            return Err(protocol("more content came than was announced"));
        }
        self.job.counts.bytes.fetch_add(length, Relaxed);
        Ok(incoming)
    }

    fn content(&mut self, content: &[u8]) -> Result<(), Refused> {
        let incoming = self.grow(content.len() as u64)?;
        incoming.hasher.update(content);
        let result = match &mut incoming.place {
            Place::Grown(grown) => grown.file.write_all(content),
            Place::Stdout => io::stdout().lock().write_all(content),
            Place::Compare(_) | Place::Nowhere => Ok(()),
        };
        self.after(result)
    }

    fn hole(&mut self, length: u64) -> Result<(), Refused> {
        let incoming = self.grow(length)?;
        static ZEROS: [u8; 64 * 1024] = [0; 64 * 1024];
        let is_stdout = matches!(incoming.place, Place::Stdout);
        let mut left = length;
        let mut result = Ok(());
        while left > 0 && result.is_ok() {
            let part = &ZEROS[..usize::try_from(left).unwrap_or(usize::MAX).min(ZEROS.len())];
            incoming.hasher.update(part);
            if is_stdout {
                result = io::stdout().lock().write_all(part);
            }
            left -= part.len() as u64;
        }
        if let Place::Grown(Grown { file, .. }) = &mut incoming.place {
            let received = incoming.received;
            result = file.set_len(received).and_then(|()| file.seek(io::SeekFrom::Start(received)).map(drop));
        }
        self.after(result)
    }

    /// An error of writing makes the rest of the entry pass by.
    fn after(&mut self, result: io::Result<()>) -> Result<(), Refused> {
        let (Err(e), Some(incoming)) = (result, self.incoming.as_mut()) else { return Ok(()) };
        let refused = match incoming.place {
            Place::Stdout => return Err(Refused { refusal: Refusal::Target, path: Vec::new(), message: format!("standard output: {e}") }),
            _ => Refused::from_io(incoming.entry.as_path(), &e),
        };
        let index = incoming.index;
        incoming.place = Place::Nowhere;
        self.fail(index, refused)
    }

    fn end(&mut self, hash: Hash, problem: String) -> Result<(), Refused> {
        let Some(Incoming { index, entry, place, hasher, received }) = self.incoming.take() else { return Ok(()) };
        let found = hasher.finalize();
        let path = entry.as_path();
        let wrong = match &entry.kind {
            _ if !problem.is_empty() => Some(problem),
            Kind::File(size) if received != *size => Some(format!("{received} of {size} bytes came")),
            _ if found != hash => Some(format!("BLAKE3 is {found} here, {hash} at the sender")),
            _ => None,
        };
        let result = match (place, wrong) {
            (Place::Nowhere, _) => return Ok(()),
            (Place::Compare(known), None) if known != found => {
                Err(Refused::new(Refusal::Exists, path, "exists already, with the same size and time but another content"))
            }
            (Place::Compare(_) | Place::Stdout, None) => Ok(()),
            (Place::Grown(grown), None) => self.place(entry, grown, true),
            (place, Some(wrong)) => {
                if let (Place::Grown(grown), Sink::Directory(_, staging)) = (place, &self.job.sink) {
                    staging.remove(&grown.name);
                }
                Err(Refused::new(Refusal::Hash, path, wrong))
            }
        };
        match result {
            Ok(()) => {
                if entry.kind == Kind::Stream {
                    self.job.counts.streamed.fetch_add(received, Relaxed);
                }
                self.tell(Event::Stored(index, found));
                Ok(())
            }
            Err(refused) => self.fail(index, refused),
        }
    }

    /// Gives a whole file its attributes and its name.
    fn place(&mut self, entry: &Entry, Grown { file, name }: Grown, is_synced: bool) -> Result<(), Refused> {
        let Sink::Directory(target, staging) = &self.job.sink else { return Ok(()) };
        let finish = |file: &File| {
            file.set_permissions(Permissions::from_mode(entry.mode))?;
            set_mtime(file, entry)?;
            // A full disk may show only now, and a large file must not look whole after a power cut when it is not. Small ones are synced all
            // together at the end.
            if is_synced { file.sync_data() } else { Ok(()) }
        };
        let result = finish(&file).map_err(|e| Refused::from_io(entry.as_path(), &e));
        let result = result.and_then(|()| target.place(&staging.dir, name.as_ref(), entry.as_path(), &mut self.parents));
        if result.is_err() {
            staging.remove(&name);
        }
        result
    }

    fn small(&mut self, index: u64, hash: Hash, content: &[u8]) -> Result<(), Refused> {
        let (entry, slot) = self.job.take(index)?;
        let path = entry.as_path();
        if entry.kind != Kind::File(content.len() as u64) {
            return Err(protocol("a file came with another size than announced"));
        }
        self.job.counts.bytes.fetch_add(content.len() as u64, Relaxed);
        let found = blake3::hash(content);
        let result = match (slot, &self.job.sink) {
            _ if found != hash => Err(Refused::new(Refusal::Hash, path, format!("BLAKE3 is {found} here, {hash} at the sender"))),
            (Slot::InPlace(known), _) if known == found => Ok(()),
            (Slot::InPlace(_), _) if !self.job.overwrites() => {
                Err(Refused::new(Refusal::Exists, path, "exists already, with the same size and time but another content"))
            }
            (_, Sink::Stdout) => io::stdout().lock().write_all(content).map_err(|e| Refused::new(Refusal::Target, path, e.to_string())),
            (_, Sink::Directory(_, staging)) => match staging.create() {
                Err(e) => Err(Refused::from_io(path, &e)),
                Ok(mut grown) => match grown.file.write_all(content) {
                    Ok(()) => self.place(entry, grown, false),
                    Err(e) => {
                        staging.remove(&grown.name);
                        Err(Refused::from_io(path, &e))
                    }
                },
            },
        };
        match result {
            Ok(()) => {
                self.tell(Event::Stored(index, found));
                Ok(())
            }
            Err(refused) => self.fail(index, refused),
        }
    }
}

//! A data stream becomes files, in steps: a thread is only taken while there is something to do, and given back in the middle of what takes long.

use super::attributes::{Attributes, Setting};
use super::deleting::Deleting;
use super::entries::Entries;
use super::entry::{Entry, Kind};
use super::hashing::{Comparing, FileHash, hash_file, hash_zeros};
use super::ours::Seen;
use super::shares::Place;
use super::slots::{Slot, Slots};
use super::staging::{Grown, Staging};
use super::target::{Parents, Placed, Refused, Target, set_attributes};
use super::wire::{Record, Refusal, split};
use blake3::{Hash, Hasher};
use bytes::BytesMut;
use rustix::fs::Mode;
use std::collections::HashMap;
use std::fs::File;
use std::io::{self, Seek, Write};
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering::Relaxed};
use std::sync::{Arc, Mutex, PoisonError};
use tokio::sync::mpsc;

/// Bytes of content, of holes or of files to compare in one step.
const STEP: u64 = 16 << 20;
static ZEROS: [u8; 64 * 1024] = [0; 64 * 1024];

/// Where contents go.
#[allow(clippy::large_enum_variant, reason = "there is one for each transfer")]
pub enum Sink {
    /// Below a directory.
    Directory(Target, Staging),
    /// To standard output.
    Stdout,
}

/// What a writer tells.
#[derive(Debug)]
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
    pub entries: Entries,
    /// Attributes of entries that have any.
    pub attributes: HashMap<u64, Attributes>,
    /// What became of them.
    pub setting: Setting,
    /// What the sender does not have is to go.
    pub deleting: Option<Deleting>,
    /// What is known of each entry.
    pub slots: Mutex<Slots>,
    /// Where to.
    pub sink: Sink,
    /// How far it is.
    pub counts: Counts,
    /// How far the comparing of what is there is, and whether the transfer is over.
    pub comparing: Arc<Comparing>,
    /// What it takes of the receiver.
    pub place: Place,
}

/// How far a transfer is.
#[derive(Default)]
pub struct Counts {
    /// Bytes that came from the network.
    pub arrived: AtomicU64,
    /// Steps of writers that are running now.
    pub steps: AtomicUsize,
    /// Bytes of content that are through.
    pub bytes: AtomicU64,
    /// Of these, bytes that were here before, or are holes: they did not travel.
    pub spared: AtomicU64,
    /// Bytes in place of entries whose size the manifest did not know.
    pub streamed: AtomicU64,
    /// Files that were here whole.
    pub same: AtomicU64,
    /// Files whose beginning was here.
    pub resumed: AtomicU64,
    /// Permissions or times could not be set somewhere.
    is_unset: AtomicBool,
}

impl Counts {
    fn spare(&self, bytes: u64, files: &AtomicU64) {
        self.bytes.fetch_add(bytes, Relaxed);
        self.spared.fetch_add(bytes, Relaxed);
        files.fetch_add(1, Relaxed);
    }

    /// The file system did not take permissions or times: told once.
    pub fn note_unset(&self) {
        if !self.is_unset.swap(true, Relaxed) {
            tell!("noctule: the target's file system does not take permissions or times: files arrive without them");
        }
    }
}

impl Job {
    /// Of entries without attributes, in whose directories nothing is deleted.
    pub fn new(entries: Entries, slots: Slots, sink: Sink, counts: Counts, comparing: Arc<Comparing>, place: Place) -> Self {
        let (attributes, setting, deleting) = Default::default();
        Self { entries, attributes, setting, deleting, slots: slots.into(), sink, counts, comparing, place }
    }

    /// Gives an entry that is in place, or about to be, its attributes.
    pub fn set_attributes(&self, index: u64, entry: &Entry, file: &File, target: &Target) -> io::Result<()> {
        // Before the mode, which bounds what an ACL grants.
        if let Some(attributes) = self.attributes.get(&index) {
            self.setting.set(file, attributes, target.rules.kept);
        }
        if !set_attributes(file, entry, &target.rules)? {
            self.counts.note_unset();
        }
        Ok(())
    }

    fn take(&self, index: u64) -> Result<(Entry, Slot), Refused> {
        let twice = || protocol("content came for an entry that has none, or twice");
        let entry = self.entries.get(index).filter(Entry::has_content).ok_or_else(twice)?;
        let slot = self.slots.lock().unwrap_or_else(PoisonError::into_inner).take(index).ok_or_else(twice)?;
        Ok((entry, slot))
    }

    /// The entry failed before anything came.
    pub fn is_refused(&self, index: u64) -> bool {
        self.slots.lock().unwrap_or_else(PoisonError::into_inner).is_refused(index)
    }

    fn one_name(&self, entry: &Entry, other: u64) -> Refused {
        let other = self.entries.get(other).map(|e| e.shown()).unwrap_or_default();
        let text =
            format!("the target's file system takes it for the same name as {other}, which has arrived; give one of them another name");
        Refused::new(Refusal::Name, entry.as_path(), text)
    }
}

/// The other side does not keep to the protocol.
pub fn protocol(message: &str) -> Refused {
    Refused { refusal: Refusal::Protocol, path: Vec::new(), message: message.to_owned() }
}

/// Where one entry's content goes.
enum Goes {
    /// Grows, and may replace what has its name.
    Grown(Grown, bool),
    Stdout,
    /// It is there already: only the hash is of interest.
    Compare,
    /// It has failed: the rest of it is passed over.
    Nowhere,
}

struct Incoming {
    index: u64,
    entry: Entry,
    goes: Goes,
    hasher: Hasher,
    received: u64,
    /// So much was here from an earlier try.
    before: u64,
}

/// What takes longer than one step.
enum Pending {
    /// So many zeros of a hole are not hashed yet.
    Hole(u64),
    /// A file that is there is compared with what the sender has.
    Compare { index: u64, entry: Entry, file: File, hash: Box<FileHash>, wanted: Hash, is_told: bool },
}

/// See the file's heading.
pub struct Writer {
    job: Arc<Job>,
    events: mpsc::UnboundedSender<Event>,
    parents: Parents,
    buffer: BytesMut,
    incoming: Option<Incoming>,
    pending: Option<Pending>,
}

impl Writer {
    /// For one stream of a transfer.
    pub fn new(job: Arc<Job>, events: mpsc::UnboundedSender<Event>) -> Self {
        Self { job, events, parents: Parents::default(), buffer: BytesMut::new(), incoming: None, pending: None }
    }

    /// Bytes of the stream.
    pub fn feed(&mut self, more: BytesMut) {
        match self.buffer.is_empty() {
            true => self.buffer = more,
            false => self.buffer.extend_from_slice(&more),
        }
    }

    /// Does a bounded part of what there is to do; true if there is more. Blocks.
    ///
    /// # Errors
    /// Nothing can go on, or nobody wants it to.
    pub fn step(&mut self) -> Result<bool, Refused> {
        let mut done = 0;
        loop {
            self.job.comparing.check().map_err(|e| Refused { refusal: Refusal::Target, path: Vec::new(), message: e.to_string() })?;
            match self.pending.take() {
                Some(pending) => {
                    self.go_on(pending)?;
                    done += STEP;
                }
                None => {
                    let Some(record) = split(&mut self.buffer).map_err(|e| protocol(&e.to_string()))? else { return Ok(false) };
                    done += if let Record::Data(content) = &record { content.len() as u64 } else { 1 };
                    self.take(record)?;
                }
            }
            if done >= STEP {
                return Ok(self.pending.is_some() || !self.buffer.is_empty());
            }
        }
    }

    fn take(&mut self, record: Record) -> Result<(), Refused> {
        match (record, self.incoming.is_some()) {
            (Record::File { index, offset }, false) => self.begin(index, offset),
            (Record::Data(content), true) => self.content(&content),
            (Record::Hole(length), true) => self.hole(length),
            (Record::End { hash, problem }, true) => self.end(hash, problem),
            (Record::Small { index, hash, content }, false) => self.small(index, hash, &content),
            (Record::Same { index, hash }, false) => self.same(index, hash),
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

    fn ended(&self, index: u64, result: Result<Hash, Refused>) -> Result<(), Refused> {
        match result {
            Ok(hash) => {
                self.tell(Event::Stored(index, hash));
                Ok(())
            }
            Err(refused) => self.fail(index, refused),
        }
    }

    fn begin(&mut self, index: u64, offset: u64) -> Result<(), Refused> {
        let (entry, slot) = self.job.take(index)?;
        let (mut hasher, mut before, mut is_new) = (Hasher::new(), 0, true);
        let replaces = matches!(slot, Slot::InPlace(..) | Slot::Replace);
        let goes = match (slot, &self.job.sink) {
            (Slot::Refused | Slot::Newer, _) => Ok(Goes::Nowhere),
            (Slot::Existing, _) if offset == 0 => Ok(Goes::Compare),
            (_, Sink::Stdout) if offset == 0 => Ok(Goes::Stdout),
            (Slot::Partial(known, known_hasher, grown), _) if offset == known => {
                (hasher, before, is_new) = (*known_hasher, known, false);
                Ok(Goes::Grown(grown, replaces))
            }
            (Slot::Partial(_, _, grown), _) if offset == 0 => Ok(Goes::Grown(grown, replaces)),
            (_, Sink::Directory(_, staging)) if offset == 0 => {
                let grown = match entry.kind {
                    Kind::Stream => staging.create().map(Some),
                    _ => staging.grow(&entry),
                };
                match grown {
                    Ok(Some(grown)) => Ok(Goes::Grown(grown, replaces)),
                    Ok(None) => Err(Refused::new(Refusal::Busy, entry.as_path(), "another transfer is writing it")),
                    Err(e) => Err(Refused::from_io(entry.as_path(), &e)),
                }
            }
            _ => return Err(protocol("a file begins where this side does not have it")),
        };
        let goes = goes.and_then(|mut goes| {
            if let Goes::Grown(grown, _) = &mut goes {
                let cut = if is_new { grown.file.set_len(0) } else { Ok(()) };
                let cut = cut.and_then(|()| grown.file.seek(io::SeekFrom::Start(before)));
                cut.map_err(|e| Refused::from_io(entry.as_path(), &e))?;
            }
            Ok(goes)
        });
        let goes = match goes {
            Ok(goes) => goes,
            Err(refused) => {
                self.fail(index, refused)?;
                Goes::Nowhere
            }
        };
        if before > 0 {
            self.job.counts.spare(before, &self.job.counts.resumed);
        }
        self.incoming = Some(Incoming { index, entry, goes, hasher, received: before, before });
        Ok(())
    }

    /// Accounts for content and hands out the entry; more than was announced is an error.
    fn grow(&mut self, length: u64) -> Result<&mut Incoming, Refused> {
        let incoming = self.incoming.as_mut().ok_or_else(|| protocol("content came without a file"))?;
        incoming.received = incoming.received.saturating_add(length);
        if matches!(incoming.entry.kind, Kind::File(size) if incoming.received > size) {
            return Err(protocol("more content came than was announced"));
        }
        Ok(incoming)
    }

    fn content(&mut self, content: &[u8]) -> Result<(), Refused> {
        self.job.counts.bytes.fetch_add(content.len() as u64, Relaxed);
        let incoming = self.grow(content.len() as u64)?;
        incoming.hasher.update(content);
        let result = match &mut incoming.goes {
            Goes::Grown(grown, _) => grown.file.write_all(content),
            Goes::Stdout => io::stdout().lock().write_all(content),
            Goes::Compare | Goes::Nowhere => Ok(()),
        };
        self.after(result)
    }

    /// The length first: what no file system takes is refused before any work is done for it.
    fn hole(&mut self, length: u64) -> Result<(), Refused> {
        let incoming = self.grow(length)?;
        if matches!(incoming.entry.kind, Kind::Stream) {
            return Err(protocol("a hole in a file of unknown size"));
        }
        let received = incoming.received;
        let result = match &mut incoming.goes {
            Goes::Grown(Grown { file, .. }, _) => file.set_len(received).and_then(|()| file.seek(io::SeekFrom::Start(received)).map(drop)),
            _ => Ok(()),
        };
        self.after(result)?;
        self.pending = Some(Pending::Hole(length));
        Ok(())
    }

    fn zeros(&mut self, length: u64) -> Result<(), Refused> {
        let Some(incoming) = self.incoming.as_mut() else { return Ok(()) };
        let (mut left, mut result) = (length.min(STEP), Ok(()));
        while left > 0 && result.is_ok() && !matches!(incoming.goes, Goes::Nowhere) {
            let n = hash_zeros(&mut incoming.hasher, left);
            if matches!(incoming.goes, Goes::Stdout) {
                result = io::stdout().lock().write_all(&ZEROS[..n as usize]);
            }
            left -= n;
        }
        let part = length.min(STEP);
        self.job.counts.bytes.fetch_add(part, Relaxed);
        self.job.counts.spared.fetch_add(part, Relaxed);
        if length > part && !matches!(incoming.goes, Goes::Nowhere) {
            self.pending = Some(Pending::Hole(length - part));
        }
        self.after(result)
    }

    /// An error of writing makes the rest of the entry pass by.
    fn after(&mut self, result: io::Result<()>) -> Result<(), Refused> {
        let (Err(e), Some(incoming)) = (result, self.incoming.as_mut()) else { return Ok(()) };
        let refused = match incoming.goes {
            Goes::Stdout => return Err(Refused { refusal: Refusal::Target, path: Vec::new(), message: format!("standard output: {e}") }),
            _ => Refused::from_io(incoming.entry.as_path(), &e),
        };
        let index = incoming.index;
        incoming.goes = Goes::Nowhere;
        self.fail(index, refused)
    }

    fn end(&mut self, hash: Hash, problem: String) -> Result<(), Refused> {
        let Some(Incoming { index, entry, goes, hasher, received, before }) = self.incoming.take() else { return Ok(()) };
        let found = hasher.finalize();
        let path = entry.as_path();
        let wrong = match &entry.kind {
            _ if !problem.is_empty() => Some(problem),
            Kind::File(size) if received != *size => Some(format!("{received} of {size} bytes came")),
            _ if found != hash => Some(format!("BLAKE3 is {found} here, {hash} at the sender")),
            _ => None,
        };
        let result = match (goes, wrong) {
            (Goes::Nowhere, _) => return Ok(()),
            (Goes::Compare, None) => return self.compare(index, entry, found, true),
            (Goes::Stdout, None) => Ok(()),
            (Goes::Grown(grown, replaces), None) => {
                // What an earlier try wrote is read once more, from the file that gets the name.
                let is_right = match before {
                    0 => Ok(true),
                    _ => hash_file(&grown.file, received.saturating_add(1), &self.job.comparing)
                        .map(|(hasher, n)| n == received && hasher.finalize() == found),
                };
                match is_right {
                    Ok(true) => self.place(index, &entry, &grown, replaces, true),
                    Ok(false) => {
                        self.remove(&grown);
                        Err(Refused::new(Refusal::Hash, path, "what an earlier try left of it was altered meanwhile"))
                    }
                    Err(e) => Err(Refused::from_io(path, &e)),
                }
            }
            (goes, Some(wrong)) => {
                if let Goes::Grown(grown, _) = goes {
                    self.remove(&grown);
                }
                Err(Refused::new(Refusal::Hash, path, wrong))
            }
        };
        if result.is_ok() && entry.kind == Kind::Stream {
            self.job.counts.streamed.fetch_add(received, Relaxed);
        }
        self.ended(index, result.map(|()| found))
    }

    fn remove(&self, grown: &Grown) {
        if let Sink::Directory(_, staging) = &self.job.sink {
            staging.remove(&grown.name);
        }
    }

    /// Gives a whole file its attributes and its name. If only that fails, a large file stays for the next try.
    fn place(&mut self, index: u64, entry: &Entry, grown: &Grown, replaces: bool, is_synced: bool) -> Result<(), Refused> {
        let job = Arc::clone(&self.job);
        let Sink::Directory(target, staging) = &job.sink else { return Ok(()) };
        let finish = || -> io::Result<()> {
            job.set_attributes(index, entry, &grown.file, target)?;
            // A full disk may show only now, and a large file must not look whole after a power cut when it is not. Small ones are synced all
            // together at the end.
            if is_synced { grown.file.sync_data() } else { Ok(()) }
        };
        let result = finish().map_err(|e| Refused::from_io(entry.as_path(), &e));
        let result = result.and_then(|()| target.place(staging, grown, index, entry.as_path(), replaces, &mut self.parents));
        let result = result.and_then(|placed| match placed {
            Placed::There => Ok(()),
            Placed::OneNameWith(other) => Err(job.one_name(entry, other)),
        });
        if result.is_err() && grown.is_lasting {
            // The next try must be able to open it.
            let _ = rustix::fs::fchmod(&grown.file, Mode::RUSR | Mode::WUSR);
        } else if result.is_err() {
            staging.remove(&grown.name);
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
        if found != hash && !matches!(slot, Slot::Refused | Slot::Newer) {
            return self.fail(index, Refused::new(Refusal::Hash, path, format!("BLAKE3 is {found} here, {hash} at the sender")));
        }
        let job = Arc::clone(&self.job);
        let result = match (slot, &job.sink) {
            (Slot::Refused | Slot::Newer, _) => return Ok(()),
            (Slot::InPlace(known, identity), Sink::Directory(target, _)) if known == found => {
                job.counts.same.fetch_add(1, Relaxed);
                self.is_in_place(target, index, &entry, identity)
            }
            (Slot::Existing, _) => return self.compare(index, entry, found, true),
            (_, Sink::Stdout) => io::stdout().lock().write_all(content).map_err(|e| Refused::new(Refusal::Target, path, e.to_string())),
            (slot, Sink::Directory(_, staging)) => match staging.create() {
                Err(e) => Err(Refused::from_io(path, &e)),
                Ok(mut grown) => match grown.file.write_all(content) {
                    Ok(()) => self.place(index, &entry, &grown, matches!(slot, Slot::InPlace(..) | Slot::Replace), false),
                    Err(e) => {
                        staging.remove(&grown.name);
                        Err(Refused::from_io(path, &e))
                    }
                },
            },
        };
        self.ended(index, result.map(|()| found))
    }

    fn is_in_place(&self, target: &Target, index: u64, entry: &Entry, seen: Seen) -> Result<(), Refused> {
        match target.settle(index, entry.as_path(), seen)? {
            Placed::There => Ok(()),
            Placed::OneNameWith(other) => Err(self.job.one_name(entry, other)),
        }
    }

    /// What has the entry's name is something else: another entry of this transfer, or what was there before.
    fn in_the_way(&self, index: u64, entry: &Entry, text: &str) -> Refused {
        let other = match &self.job.sink {
            Sink::Directory(target, _) => target.whose(entry.as_path()).filter(|other| *other != index),
            Sink::Stdout => None,
        };
        other.map_or_else(|| Refused::new(Refusal::Exists, entry.as_path(), text), |other| self.job.one_name(entry, other))
    }

    /// What is in place is what would be sent, says the sender, if it has this hash.
    fn same(&mut self, index: u64, hash: Hash) -> Result<(), Refused> {
        let job = Arc::clone(&self.job);
        let (entry, slot) = job.take(index)?;
        match (slot, &job.sink) {
            (Slot::Refused | Slot::Newer, _) => Ok(()),
            (Slot::Existing, _) => self.compare(index, entry, hash, false),
            (Slot::InPlace(known, identity), Sink::Directory(target, _)) if known == hash => {
                let result = self.is_in_place(target, index, &entry, identity);
                job.counts.spare(entry.size(), &job.counts.same);
                self.ended(index, result.map(|()| hash))
            }
            _ => Err(protocol("a file is said to be the same that is not here")),
        }
    }

    /// Compares a file that is there with what the sender has; its content came (`is_told`) or not.
    fn compare(&mut self, index: u64, entry: Entry, wanted: Hash, is_told: bool) -> Result<(), Refused> {
        let Sink::Directory(target, _) = &self.job.sink else { return Err(protocol("a file is said to be the same that is not here")) };
        match target.open_same_size(&entry, &mut self.parents) {
            Some(file) => {
                self.job.comparing.total.fetch_add(entry.size(), Relaxed);
                let hash = Box::new(FileHash::new(entry.size()));
                self.pending = Some(Pending::Compare { index, entry, file, hash, wanted, is_told });
                Ok(())
            }
            None => self.fail(index, self.in_the_way(index, &entry, "exists already")),
        }
    }

    fn go_on(&mut self, pending: Pending) -> Result<(), Refused> {
        let (index, entry, file, mut hash, wanted, is_told) = match pending {
            Pending::Hole(length) => return self.zeros(length),
            Pending::Compare { index, entry, file, hash, wanted, is_told } => (index, entry, file, hash, wanted, is_told),
        };
        match hash.step(&file, STEP, &self.job.comparing) {
            Ok(false) => {
                self.pending = Some(Pending::Compare { index, entry, file, hash, wanted, is_told });
                Ok(())
            }
            Ok(true) => {
                let (hasher, length) = hash.end();
                let seen = Seen::of(&file).map_err(|e| Refused::from_io(entry.as_path(), &e))?;
                let result = match length == entry.size() && hasher.finalize() == wanted {
                    false => Err(self.in_the_way(index, &entry, "exists already, with another content")),
                    true => match &self.job.sink {
                        Sink::Directory(target, _) => self.is_in_place(target, index, &entry, seen),
                        Sink::Stdout => Ok(()),
                    },
                };
                if result.is_ok() {
                    match is_told {
                        true => drop(self.job.counts.same.fetch_add(1, Relaxed)),
                        false => self.job.counts.spare(entry.size(), &self.job.counts.same),
                    }
                }
                self.ended(index, result.map(|()| wanted))
            }
            Err(e) => self.fail(index, Refused::from_io(entry.as_path(), &e)),
        }
    }
}

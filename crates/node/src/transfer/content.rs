//! Turns files on disk into the records of a stream: threads read, hash and frame, each taking the next file that no other has begun.

use super::entry::Kind;
use super::hashing::{Comparing, hash_zeros};
use super::reading::{Problem, Reading};
use super::source::Item;
use super::wire::{DATA_HEADER, Have, Record, data_header};
use super::{CHUNK, SMALL};
use blake3::{Hash, Hasher};
use bytes::Bytes;
use std::collections::{HashMap, HashSet};
use std::io::{self, Read};
use std::path::Path;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering::Relaxed};
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};
use tokio::sync::mpsc;

/// Bytes per DATA record.
const PIECE: usize = SMALL as usize;
/// Bytes per HOLE record, at most, so that the receiver can show progress.
const HOLE: u64 = 1 << 30;

/// What the receiver has, as far as it has said so.
#[derive(Default)]
struct Plan {
    haves: HashMap<u64, Have>,
    /// Entries that have failed at the receiver: no content is needed.
    refused: HashSet<u64>,
    is_complete: bool,
    is_over: bool,
}

/// Everything that the threads share.
pub struct Contents {
    /// What is sent.
    pub items: Vec<Item>,
    /// Nothing is sent before the plan has come: files that are newer at the receiver are not sent.
    is_update: bool,
    next: AtomicUsize,
    plan: Mutex<Plan>,
    told: Condvar,
    results: Mutex<HashMap<u64, Result<Hash, Problem>>>,
    /// Bytes that need not be sent because the receiver has them.
    pub spared: AtomicU64,
    /// Bytes of holes, which are sent as HOLE records.
    pub holes: AtomicU64,
    /// Progress of the comparison with what the receiver has.
    pub comparing: Comparing,
    /// Standard input is waited for.
    pub is_waiting: AtomicBool,
    /// Files of which the receiver had the beginning.
    pub resumed: AtomicU64,
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Contents {
    /// The contents of these items.
    pub fn new(items: Vec<Item>, is_update: bool) -> Self {
        Self {
            items,
            is_update,
            next: AtomicUsize::new(0),
            plan: Mutex::default(),
            told: Condvar::new(),
            results: Mutex::default(),
            spared: AtomicU64::new(0),
            holes: AtomicU64::new(0),
            comparing: Comparing::default(),
            is_waiting: AtomicBool::new(false),
            resumed: AtomicU64::new(0),
        }
    }

    /// Takes a part of the receiver's plan. False if it names entries that do not exist, or one twice.
    #[must_use]
    pub fn plan(&self, part: super::wire::Plan) -> bool {
        let mut plan = lock(&self.plan);
        !plan.is_complete
            && part.into_iter().all(|(index, have)| index < self.items.len() as u64 && plan.haves.insert(index, have).is_none())
    }

    /// Notes that an entry has failed at the receiver. False if there is no such entry, or it has failed before.
    #[must_use]
    pub fn refuse(&self, index: u64) -> bool {
        index < self.items.len() as u64 && lock(&self.plan).refused.insert(index)
    }

    /// Notes that the plan is complete.
    pub fn plan_is_complete(&self) {
        lock(&self.plan).is_complete = true;
        self.told.notify_all();
    }

    /// Ends the threads: no content is needed any more.
    pub fn give_up(&self) {
        lock(&self.plan).is_over = true;
        self.comparing.is_over.store(true, Relaxed);
        self.told.notify_all();
    }

    /// What the receiver has of an entry. With `waits`, as for a large file, waits until the plan says it; a small file is sent sooner than the answer comes.
    fn have(&self, index: u64, waits: bool) -> Option<Have> {
        let mut plan = lock(&self.plan);
        while waits && !plan.is_complete && !plan.is_over {
            plan = self.told.wait(plan).unwrap_or_else(PoisonError::into_inner);
        }
        plan.haves.get(&index).copied()
    }

    fn is_planned(&self) -> bool {
        lock(&self.plan).is_complete
    }

    /// The result of reading an entry: its hash, or the problem.
    pub fn result(&self, index: u64) -> Option<Result<Hash, Problem>> {
        lock(&self.results).get(&index).cloned()
    }

    /// The plan, for a dry run.
    pub fn haves(&self) -> HashMap<u64, Have> {
        lock(&self.plan).haves.clone()
    }

    /// Reads files until none is left, or the receiving end of `out` is closed.
    pub fn read(&self, out: mpsc::Sender<Bytes>) {
        let mut reading = Sending { contents: self, out, batch: Vec::with_capacity(CHUNK + PIECE) };
        loop {
            let at = self.next.fetch_add(1, Relaxed);
            let Some(item) = self.items.get(at) else { break };
            let is_newer = self.is_update && self.have(at as u64, true).is_some_and(|have| have.is_newer);
            if !item.entry.has_content() || is_newer || lock(&self.plan).refused.contains(&(at as u64)) {
                continue;
            }
            if reading.item(at as u64, item).is_err() {
                return;
            }
        }
        let _ = reading.flush();
    }
}

/// The receiving end of the channel is closed.
struct Gone;

struct Sending<'a> {
    contents: &'a Contents,
    out: mpsc::Sender<Bytes>,
    /// Records that are collected for one write: many small files share it.
    batch: Vec<u8>,
}

impl Sending<'_> {
    fn flush(&mut self) -> Result<(), Gone> {
        if self.batch.is_empty() {
            return Ok(());
        }
        let batch = std::mem::replace(&mut self.batch, Vec::with_capacity(CHUNK + PIECE));
        self.out.blocking_send(Bytes::from(batch)).map_err(|_| Gone)
    }

    fn put(&mut self, record: &Record) -> Result<(), Gone> {
        record.emit(&mut self.batch);
        if self.batch.len() >= CHUNK { self.flush() } else { Ok(()) }
    }

    fn done(&self, index: u64, result: Result<Hash, Problem>) {
        lock(&self.contents.results).insert(index, result);
    }

    fn item(&mut self, index: u64, item: &Item) -> Result<(), Gone> {
        match item.entry.kind {
            Kind::Stream => self.streamed(index, &item.local()),
            Kind::File(size) => match Reading::open(item) {
                Err(problem) => self.broken(index, problem),
                Ok(file) if size <= SMALL => self.small(index, &file),
                Ok(file) => self.large(index, &file),
            },
            Kind::Dir | Kind::Link(_) => Ok(()),
        }
    }

    /// Tells the receiver that this entry cannot be sent.
    fn broken(&mut self, index: u64, problem: Problem) -> Result<(), Gone> {
        self.put(&Record::File { index, offset: 0 })?;
        self.end(index, Hasher::new().finalize(), Some(problem))
    }

    fn end(&mut self, index: u64, hash: Hash, problem: Option<Problem>) -> Result<(), Gone> {
        let text = problem.as_ref().map_or(String::new(), |p| p.text().to_owned());
        self.done(index, problem.map_or(Ok(hash), Err));
        self.put(&Record::End { hash, problem: text })
    }

    fn small(&mut self, index: u64, file: &Reading) -> Result<(), Gone> {
        let mut content = vec![0; file.size() as usize];
        let mut read = || -> Result<(), Problem> {
            let mut at = 0;
            while at < content.len() {
                at += file.read_at(&mut content[at..], at as u64)?;
            }
            file.end()
        };
        if let Err(problem) = read() {
            return self.broken(index, problem);
        }
        let hash = blake3::hash(&content);
        self.done(index, Ok(hash));
        match self.contents.have(index, false) {
            Some(have) if have.is_in_place && (have.is_untold || have.hash == hash) => {
                self.contents.spared.fetch_add(file.size(), Relaxed);
                self.put(&Record::Same { index, hash })
            }
            _ => self.put(&Record::Small { index, hash, content: content.into() }),
        }
    }

    /// Compares a large file with the receiver's part of it: says what is left to send.
    fn compare(&self, index: u64, file: &Reading) -> Result<Compared, Problem> {
        let size = file.size();
        let Some(have) = self.contents.have(index, true).filter(|h| h.length > 0 && h.length <= size && !h.is_other) else {
            return Ok(Compared::Nothing);
        };
        // Hashed again: the receiver's part counts only if it is the beginning of the file as it is now.
        self.contents.comparing.total.fetch_add(have.length, Relaxed);
        let (known, length) = file.hash(have.length, &self.contents.comparing)?;
        if length < have.length {
            return Err(Problem::Changed("it became shorter while it was sent".into()));
        }
        let hash = known.finalize();
        Ok(match (have.is_in_place, have.is_untold || hash == have.hash) {
            (true, true) if length == size => {
                file.end()?;
                Compared::Same(hash)
            }
            (false, true) if !have.is_untold => Compared::Beginning(Box::new(known), length),
            _ => Compared::Nothing,
        })
    }

    fn large(&mut self, index: u64, file: &Reading) -> Result<(), Gone> {
        // Collected records are sent first: waiting for the plan may take long.
        if !self.contents.is_planned() {
            self.flush()?;
        }
        if self.contents.have(index, true).is_some() {
            self.flush()?;
        }
        let size = file.size();
        let (mut hasher, mut at) = match self.compare(index, file) {
            Err(problem) => return self.broken(index, problem),
            Ok(Compared::Nothing) => (Hasher::new(), 0),
            Ok(Compared::Beginning(hasher, length)) => {
                self.contents.spared.fetch_add(length, Relaxed);
                self.contents.resumed.fetch_add(1, Relaxed);
                (*hasher, length)
            }
            Ok(Compared::Same(hash)) => {
                self.done(index, Ok(hash));
                self.contents.spared.fetch_add(size, Relaxed);
                return self.put(&Record::Same { index, hash });
            }
        };
        self.put(&Record::File { index, offset: at })?;
        let mut problem = None;
        while at < size && problem.is_none() {
            let (data, end) = file.segment(at);
            while at < data {
                let part = (data - at).min(HOLE);
                self.hole(part, &mut hasher)?;
                at += part;
            }
            while at < end && problem.is_none() {
                match self.piece(file, at, end, &mut hasher) {
                    Ok(n) => at += n as u64,
                    Err(found) => problem = Some(found),
                }
                if self.batch.len() >= CHUNK {
                    self.flush()?;
                }
            }
        }
        let problem = problem.or_else(|| file.end().err());
        self.end(index, hasher.finalize(), problem)
    }

    fn hole(&mut self, length: u64, hasher: &mut Hasher) -> Result<(), Gone> {
        self.put(&Record::Hole(length))?;
        self.flush()?;
        let mut left = length;
        while left > 0 {
            if self.contents.comparing.check().is_err() {
                return Err(Gone);
            }
            let n = hash_zeros(hasher, left);
            self.contents.holes.fetch_add(n, Relaxed);
            left -= n;
        }
        Ok(())
    }

    /// Reads up to a record's worth of content straight into the batch.
    fn piece(&mut self, file: &Reading, at: u64, end: u64, hasher: &mut Hasher) -> Result<usize, Problem> {
        let want = usize::try_from(end - at).unwrap_or(usize::MAX).min(PIECE);
        let head = self.batch.len();
        let body = head + DATA_HEADER;
        self.batch.resize(body + want, 0);
        let result = file.read_at(&mut self.batch[body..], at);
        match &result {
            Ok(n) => {
                self.batch.truncate(body + n);
                self.batch[head..body].copy_from_slice(&data_header(*n));
                hasher.update(&self.batch[body..]);
            }
            Err(_) => self.batch.truncate(head),
        }
        result
    }

    /// Standard input, or a pipe.
    fn streamed(&mut self, index: u64, local: &Path) -> Result<(), Gone> {
        let mut input: Box<dyn Read> = match local.as_os_str() == super::source::STDIN {
            true => Box::new(io::stdin().lock()),
            false => match std::fs::File::open(local) {
                Ok(pipe) => Box::new(pipe),
                Err(e) => return self.broken(index, Problem::Unreadable(e.to_string())),
            },
        };
        self.put(&Record::File { index, offset: 0 })?;
        let (mut hasher, mut buffer) = (Hasher::new(), vec![0; PIECE]);
        let mut problem = None;
        loop {
            self.contents.is_waiting.store(true, Relaxed);
            let read = input.read(&mut buffer);
            self.contents.is_waiting.store(false, Relaxed);
            match read {
                Ok(0) => break,
                Ok(n) => {
                    hasher.update(&buffer[..n]);
                    self.put(&Record::Data(Bytes::copy_from_slice(&buffer[..n])))?;
                    // Input that comes slowly, as by typing, is sent at once.
                    self.flush()?;
                }
                Err(e) if e.kind() == io::ErrorKind::Interrupted => {}
                Err(e) => {
                    problem = Some(Problem::Unreadable(e.to_string()));
                    break;
                }
            }
        }
        self.end(index, hasher.finalize(), problem)
    }
}

/// How much of a large file the receiver has.
enum Compared {
    Nothing,
    Beginning(Box<Hasher>, u64),
    Same(Hash),
}

#[cfg(test)]
mod tests {
    use super::super::offer::{Looking, Offer};
    use super::super::shares::{Limits, Shares};
    use super::super::wire::{Request, VERSION};
    use super::*;

    #[test]
    fn a_receiver_says_one_thing_of_each_entry_that_there_is() {
        let dir = tempfile::tempdir().unwrap();
        std::fs::write(dir.path().join("f"), "f").unwrap();
        let mut place = Shares::new(Limits::default()).enter(noctule::PublicKey([1; 32])).unwrap();
        let request = Request { version: VERSION, paths: vec![b"f".to_vec()], ..Request::default() };
        let sources = Offer::open(dir.path()).unwrap().gather(None, &request, &mut place, &Looking::default()).unwrap();
        let contents = Contents::new(sources.items, false);
        let have = Have { is_in_place: false, is_other: false, is_newer: false, is_untold: false, length: 0, hash: blake3::hash(b"") };
        assert!(!contents.plan(vec![(1, have)]) && contents.plan(vec![(0, have)]));
        assert!(!contents.plan(vec![(0, have)]), "twice");
        assert!(!contents.refuse(1) && contents.refuse(0) && !contents.refuse(0));
        contents.plan_is_complete();
        assert!(!contents.plan(vec![]), "there is no more of it");
    }
}

//! Contents on their way from disk to a stream: threads that read, hash and frame files, each the next one that nobody has begun.

use super::entry::Kind;
use super::source::Item;
use super::target::hash_file;
use super::wire::{DATA_HEADER, Have, Record, data_header};
use super::{CHUNK, SMALL};
use blake3::{Hash, Hasher};
use bytes::Bytes;
use rustix::fs::SeekFrom;
use std::collections::HashMap;
use std::fs::File;
use std::io::{self, Read, Seek};
use std::os::unix::fs::FileExt;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering::Relaxed};
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};
use tokio::sync::mpsc;

/// Bytes per DATA record.
const PIECE: usize = SMALL as usize;

/// Why a file's content is not what was announced.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Problem {
    /// It cannot be read.
    Unreadable(String),
    /// It changed meanwhile.
    Changed(String),
}

impl Problem {
    /// In words.
    pub fn text(&self) -> &str {
        match self {
            Self::Unreadable(text) | Self::Changed(text) => text,
        }
    }
}

/// What the receiver has, as far as it has said so.
#[derive(Default)]
struct Plan {
    haves: HashMap<u64, Have>,
    is_complete: bool,
    is_over: bool,
}

/// Everything that the threads share.
pub struct Contents {
    /// What is sent.
    pub items: Vec<Item>,
    next: AtomicUsize,
    plan: Mutex<Plan>,
    told: Condvar,
    results: Mutex<HashMap<u64, Result<Hash, Problem>>>,
    /// Bytes that need not be sent because the receiver has them.
    pub spared: AtomicU64,
    /// Bytes of holes that were read and said in a word.
    pub holes: AtomicU64,
    /// Files that it has whole.
    pub same: AtomicU64,
    /// Files of which it had the beginning.
    pub resumed: AtomicU64,
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Contents {
    /// Of these items.
    pub fn new(items: Vec<Item>) -> Self {
        Self {
            items,
            next: AtomicUsize::new(0),
            plan: Mutex::default(),
            told: Condvar::new(),
            results: Mutex::default(),
            spared: AtomicU64::new(0),
            holes: AtomicU64::new(0),
            same: AtomicU64::new(0),
            resumed: AtomicU64::new(0),
        }
    }

    /// The receiver has told a part of its plan.
    pub fn plan(&self, part: super::wire::Plan) {
        lock(&self.plan).haves.extend(part);
    }

    /// That was all of it.
    pub fn plan_is_complete(&self) {
        lock(&self.plan).is_complete = true;
        self.told.notify_all();
    }

    /// Nobody needs anything any more; threads that wait end.
    pub fn give_up(&self) {
        lock(&self.plan).is_over = true;
        self.told.notify_all();
    }

    /// What the receiver has of an entry. A large one waits for it; a small one is sent in the time that the question would take.
    fn have(&self, index: u64, waits: bool) -> Option<Have> {
        let mut plan = lock(&self.plan);
        while waits && !plan.is_complete && !plan.is_over {
            plan = self.told.wait(plan).unwrap_or_else(PoisonError::into_inner);
        }
        plan.haves.get(&index).copied()
    }

    /// How the reading of an entry ended.
    pub fn result(&self, index: u64) -> Option<Result<Hash, Problem>> {
        lock(&self.results).get(&index).cloned()
    }

    /// The plan, for a dry run.
    pub fn haves(&self) -> HashMap<u64, Have> {
        lock(&self.plan).haves.clone()
    }

    /// Reads files until none is left or nobody listens.
    pub fn read(&self, out: mpsc::Sender<Bytes>) {
        let mut reading = Reading { contents: self, out, batch: Vec::with_capacity(CHUNK + PIECE) };
        loop {
            let at = self.next.fetch_add(1, Relaxed);
            let Some(item) = self.items.get(at) else { break };
            if item.entry.has_content() && reading.item(at as u64, item).is_err() {
                return;
            }
        }
        let _ = reading.flush();
    }
}

/// Nobody listens any more.
struct Gone;

struct Reading<'a> {
    contents: &'a Contents,
    out: mpsc::Sender<Bytes>,
    /// Records that wait for company: many small files share a write.
    batch: Vec<u8>,
}

impl Reading<'_> {
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
            Kind::Stream => self.standard_input(index),
            Kind::File(size) => {
                let opened = File::open(&item.local).and_then(|f| f.metadata().map(|m| (f, m)));
                match opened {
                    Err(e) => self.broken(index, Problem::Unreadable(e.to_string())),
                    Ok((_, meta)) if super::source::Stamp::of(&meta) != item.stamp => {
                        self.broken(index, Problem::Changed("it changed after the transfer had begun".into()))
                    }
                    Ok((file, _)) if size <= SMALL => self.small(index, item, file, size),
                    Ok((file, meta)) => {
                        let is_sparse = std::os::unix::fs::MetadataExt::blocks(&meta) * 512 < size;
                        self.large(index, item, file, size, is_sparse)
                    }
                }
            }
            Kind::Dir | Kind::Link(_) => Ok(()),
        }
    }

    /// Tells the receiver that nothing good comes of this entry.
    fn broken(&mut self, index: u64, problem: Problem) -> Result<(), Gone> {
        self.put(&Record::File { index, offset: 0 })?;
        self.end(index, Hasher::new().finalize(), Some(problem))
    }

    fn end(&mut self, index: u64, hash: Hash, problem: Option<Problem>) -> Result<(), Gone> {
        let text = problem.as_ref().map_or(String::new(), |p| p.text().to_owned());
        self.done(index, problem.map_or(Ok(hash), Err));
        self.put(&Record::End { hash, problem: text })
    }

    fn small(&mut self, index: u64, item: &Item, mut file: File, size: u64) -> Result<(), Gone> {
        let mut content = Vec::with_capacity(size as usize + 1);
        // One byte more than announced shows that it grew.
        if let Err(e) = (&mut file).take(size + 1).read_to_end(&mut content) {
            return self.broken(index, Problem::Unreadable(e.to_string()));
        }
        if content.len() as u64 != size {
            return self.broken(index, Problem::Changed("it changed while it was sent".into()));
        }
        let hash = blake3::hash(&content);
        self.done(index, Ok(hash));
        match self.contents.have(index, false) {
            Some(have) if have.is_in_place && have.hash == hash => {
                self.spare(size, true);
                self.put(&Record::Same { index })
            }
            _ => match changed(item, &file) {
                Some(problem) => self.broken(index, problem),
                None => self.put(&Record::Small { index, hash, content: content.into() }),
            },
        }
    }

    fn spare(&self, bytes: u64, is_whole: bool) {
        self.contents.spared.fetch_add(bytes, Relaxed);
        if is_whole { &self.contents.same } else { &self.contents.resumed }.fetch_add(1, Relaxed);
    }

    fn large(&mut self, index: u64, item: &Item, mut file: File, size: u64, is_sparse: bool) -> Result<(), Gone> {
        let (mut hasher, mut at) = (Hasher::new(), 0);
        if let Some(have) = self.contents.have(index, true).filter(|h| h.length > 0 && h.length <= size && !h.is_other) {
            // Read once more: the receiver's part is only worth something if it is a part of what is here now.
            match hash_file(&mut file, have.length) {
                Ok((known, length)) if length == have.length && known.finalize() == have.hash => {
                    if have.is_in_place {
                        self.done(index, Ok(have.hash));
                        self.spare(size, true);
                        return self.put(&Record::Same { index });
                    }
                    (hasher, at) = (known, length);
                    self.spare(length, false);
                }
                Ok(_) => {}
                Err(e) => return self.broken(index, Problem::Unreadable(e.to_string())),
            }
        }
        self.put(&Record::File { index, offset: at })?;
        let mut problem = None;
        while at < size && problem.is_none() {
            let (data, end) = if is_sparse { segment(&file, at, size) } else { (at, size) };
            if data > at {
                hash_zeros(&mut hasher, data - at, &self.contents.holes);
                self.put(&Record::Hole(data - at))?;
                at = data;
            }
            while at < end && problem.is_none() {
                match self.piece(&file, at, end, &mut hasher) {
                    Ok(0) => problem = Some(Problem::Changed("it became shorter while it was sent".into())),
                    Ok(n) => at += n as u64,
                    Err(e) => problem = Some(Problem::Unreadable(e.to_string())),
                }
                if self.batch.len() >= CHUNK {
                    self.flush()?;
                }
            }
        }
        let problem = problem.or_else(|| changed(item, &file));
        self.end(index, hasher.finalize(), problem)
    }

    /// Reads up to a record's worth of content straight into the batch.
    fn piece(&mut self, file: &File, at: u64, end: u64, hasher: &mut Hasher) -> io::Result<usize> {
        let want = usize::try_from(end - at).unwrap_or(usize::MAX).min(PIECE);
        let head = self.batch.len();
        let body = head + DATA_HEADER;
        self.batch.resize(body + want, 0);
        let result = loop {
            match file.read_at(&mut self.batch[body..], at) {
                Err(e) if e.kind() == io::ErrorKind::Interrupted => {}
                result => break result,
            }
        };
        let n = *result.as_ref().unwrap_or(&0);
        if n > 0 {
            self.batch.truncate(body + n);
            self.batch[head..body].copy_from_slice(&data_header(n));
            hasher.update(&self.batch[body..]);
        } else {
            self.batch.truncate(head);
        }
        result
    }

    fn standard_input(&mut self, index: u64) -> Result<(), Gone> {
        self.put(&Record::File { index, offset: 0 })?;
        let (mut hasher, mut buffer) = (Hasher::new(), vec![0; PIECE]);
        let mut problem = None;
        loop {
            match io::stdin().lock().read(&mut buffer) {
                Ok(0) => break,
                Ok(n) => {
                    hasher.update(&buffer[..n]);
                    self.put(&Record::Data(Bytes::copy_from_slice(&buffer[..n])))?;
                    // Whoever types or pipes slowly wants it there now.
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

fn changed(item: &Item, file: &File) -> Option<Problem> {
    match file.metadata() {
        Ok(meta) if super::source::Stamp::of(&meta) == item.stamp => None,
        _ => Some(Problem::Changed("it changed while it was sent".into())),
    }
}

/// The next data at or behind `at`, and its end. A file system that knows no holes has data everywhere.
fn segment(mut file: &File, at: u64, size: u64) -> (u64, u64) {
    let data = match rustix::fs::seek(file, SeekFrom::Data(at)) {
        Ok(data) => data.min(size),
        // Nothing but a hole from here on.
        Err(rustix::io::Errno::NXIO) => size,
        Err(_) => at,
    };
    let end = if data < size { rustix::fs::seek(file, SeekFrom::Hole(data)).map_or(size, |end| end.min(size)) } else { size };
    let _ = file.rewind();
    (data, end.max(data))
}

fn hash_zeros(hasher: &mut Hasher, mut length: u64, done: &AtomicU64) {
    static ZEROS: [u8; 64 * 1024] = [0; 64 * 1024];
    while length > 0 {
        let part = usize::try_from(length).unwrap_or(usize::MAX).min(ZEROS.len());
        hasher.update(&ZEROS[..part]);
        length -= part as u64;
        done.fetch_add(part as u64, Relaxed);
    }
}

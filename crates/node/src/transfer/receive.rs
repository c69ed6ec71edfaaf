//! Runs one transfer at the receiver: sends the plan, hands data streams to their writers, and sends the results.

use super::entry::{Kind, digest};
use super::finish::{Finished, finish};
use super::hashing::Comparing;
use super::manifest::Manifest;
use super::progress::{Progress, Reporter, Summary};
use super::survey::{Prepared, prepare};
use super::target::{Refused, Target};
use super::wire::{Hello, Record, RecordError, Records};
use super::writer::{Counts, Event, Job, Writer, protocol};
use super::{CHUNK, DATA_TAG};
use crate::failure::Failure;
use bytes::BytesMut;
use noctule::{FlowError, IncomingFlow, RecvStream, SendStream, Session};
use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::time::Duration;
use tokio::sync::mpsc;
use tokio::task::JoinSet;
use tokio::time::Instant;

/// Batches that wait between network and disk, per stream (4 MiB). When they are full the sender has to wait.
const QUEUE: usize = 16;
/// Bytes that a writer takes at once if they have come.
const BATCH: usize = 1 << 20;
/// Looks at progress.
const TICK: Duration = Duration::from_millis(50);
/// Time between progress records to the sender, while something takes long here.
const TELL_EVERY: Duration = Duration::from_secs(1);
/// A sender that sends no content for so long, and tells no progress, loses its place.
pub const IDLE: Duration = Duration::from_secs(30);

/// Why receiving ended early.
pub enum Stop {
    /// The sender is to be told.
    Refused(Refused),
    /// The sender cannot be told any more.
    Failed(Failure),
    /// The sender's next try has come.
    Superseded,
    /// Only the plan was wanted.
    Dry,
    /// The sender has nothing for this side, and says why.
    Denied(Refused),
    /// Some entries are not there, the others are.
    Incomplete {
        /// How many.
        failed: u64,
        /// Of so many, if that is known.
        of: Option<u64>,
        /// The first of them.
        first: Refused,
    },
}

impl From<Refused> for Stop {
    fn from(r: Refused) -> Self {
        Self::Refused(r)
    }
}

impl From<Failure> for Stop {
    fn from(e: Failure) -> Self {
        Self::Failed(e)
    }
}

impl From<FlowError> for Stop {
    fn from(e: FlowError) -> Self {
        Self::Failed(e.into())
    }
}

impl From<RecordError> for Stop {
    fn from(e: RecordError) -> Self {
        match e {
            RecordError::Flow(e) => Self::Failed(e.into()),
            RecordError::Malformed(e) => Self::Refused(protocol(&e.to_string())),
            idle @ RecordError::Idle(_) => Self::Refused(protocol(&idle.to_string())),
        }
    }
}

/// The failure if the sender's stream ended too early.
pub fn gone() -> Failure {
    Failure::PeerGone("its stream ended before everything had come".into())
}

/// Where a transfer goes.
pub enum Destination {
    /// Below a directory.
    Directory(Target),
    /// Its only file to standard output, which is then noted.
    Stdout(Arc<AtomicBool>),
}

async fn blocking<T: Send + 'static>(work: impl FnOnce() -> T + Send + 'static) -> Result<T, Failure> {
    tokio::task::spawn_blocking(work).await.map_err(|e| Failure::system("a thread", e))
}

/// Sends records. A sender that does not read them loses its place, as one that sends nothing does.
pub async fn say(answers: &mut SendStream, records: &[Record]) -> Result<(), Stop> {
    let mut out = Vec::new();
    records.iter().for_each(|r| r.emit(&mut out));
    match tokio::time::timeout(IDLE, answers.write_all(&out)).await {
        Ok(said) => Ok(said?),
        Err(_) => Err(Failure::PeerGone(format!("it took no answer for {} s", IDLE.as_secs())).into()),
    }
}

/// The streams of a transfer: tasks that read the network, tasks that write to disk.
struct Streams {
    readers: JoinSet<()>,
    writers: JoinSet<()>,
    events: mpsc::UnboundedSender<Event>,
}

impl Streams {
    fn begin(&mut self, job: &Arc<Job>, mut stream: RecvStream) {
        let (bytes, batches) = mpsc::channel(QUEUE);
        let counted = Arc::clone(job);
        self.readers.spawn(async move {
            let mut chunks = Vec::new();
            // An error here is one of the session, which the control stream tells.
            while let Ok(1..) = stream.read_chunks(&mut chunks, CHUNK).await {
                let mut batch = BytesMut::with_capacity(chunks.iter().map(bytes::Bytes::len).sum());
                chunks.drain(..).for_each(|c| batch.extend_from_slice(&c));
                counted.counts.arrived.fetch_add(batch.len() as u64, Relaxed);
                if bytes.send(batch).await.is_err() {
                    return;
                }
            }
        });
        self.writers.spawn(write(Arc::clone(job), batches, self.events.clone()));
    }

    /// Ends all tasks and closes every file.
    async fn stop(mut self) {
        self.readers.shutdown().await;
        while self.writers.join_next().await.is_some() {}
    }
}

/// Writes what a stream brings, a step at a time.
async fn write(job: Arc<Job>, mut batches: mpsc::Receiver<BytesMut>, events: mpsc::UnboundedSender<Event>) {
    let mut writer = Writer::new(Arc::clone(&job), events.clone());
    while let Some(mut batch) = batches.recv().await {
        while batch.len() < BATCH
            && let Ok(more) = batches.try_recv()
        {
            batch.extend_from_slice(&more);
        }
        writer.feed(batch);
        loop {
            job.counts.steps.fetch_add(1, Relaxed);
            let step = job.place.shares().disk(move || {
                let result = writer.step();
                (writer, result)
            });
            let step = step.await;
            job.counts.steps.fetch_sub(1, Relaxed);
            let fatal = |refused| drop(events.send(Event::Fatal(refused)));
            match step {
                Ok((back, Ok(has_more))) => {
                    writer = back;
                    if !has_more {
                        break;
                    }
                }
                Ok((_, Err(refused))) => return fatal(refused),
                Err(failure) => return fatal(Refused { refusal: super::Refusal::Target, path: Vec::new(), message: failure.to_string() }),
            }
        }
    }
}

/// When dropped, tells the threads of the transfer that it is over.
struct Ending(Arc<Comparing>);

impl Drop for Ending {
    fn drop(&mut self) {
        self.0.is_over.store(true, Relaxed);
    }
}

/// Looks at what is there; both ends learn its progress.
async fn look(
    session: &Session,
    answers: &mut SendStream,
    destination: Destination,
    manifest: Manifest,
    comparing: &Arc<Comparing>,
    progress: &mut Progress,
) -> Result<Prepared, Stop> {
    let of_job = Arc::clone(comparing);
    let mut prepared = tokio::task::spawn_blocking(move || prepare(destination, manifest, of_job));
    let mut tick = tokio::time::interval(TICK);
    let mut told = Instant::now();
    loop {
        tokio::select! {
            prepared = &mut prepared => return Ok(prepared.map_err(|e| Failure::system("a thread", e))??),
            reason = session.closed() => {
                // Wait for the thread: it ends soon, and releases its locks.
                comparing.is_over.store(true, Relaxed);
                let _ = prepared.await;
                return Err(Failure::PeerGone(format!("{}, while what is here was compared", reason.reason)).into());
            }
            _ = tick.tick() => {
                progress.look_at(session);
                let Some((done, total)) = comparing.under_way() else { continue };
                progress.comparing(done, total);
                if told.elapsed() >= TELL_EVERY {
                    told = Instant::now();
                    say(answers, &[Record::Comparing { done, total }]).await?;
                }
            }
        }
    }
}

/// Finds out what a transfer would do, without doing it.
pub async fn plan(session: &Session, answers: &mut SendStream, destination: Destination, manifest: Manifest) -> Result<Prepared, Stop> {
    let comparing = Arc::new(Comparing::default());
    let _ending = Ending(Arc::clone(&comparing));
    let mut progress = Reporter::silent().start("comparing", "", 0, 0);
    look(session, answers, destination, manifest, &comparing, &mut progress).await
}

/// Runs a transfer whose manifest has come. `stop` ends it early, with every file closed.
pub async fn run(
    session: &Session,
    control: &mut Records,
    answers: &mut SendStream,
    destination: Destination,
    manifest: Manifest,
    reporter: &Reporter,
    stop: impl Future<Output = ()>,
) -> Result<(), Stop> {
    let comparing = Arc::new(Comparing::default());
    let ending = Ending(Arc::clone(&comparing));
    let files = (0..manifest.entries.len() as u64).filter(|i| manifest.entries.has_content(*i)).count() as u64;
    let is_streamed = manifest.entries.iter().any(|e| e.kind == Kind::Stream);
    let total = if is_streamed { 0 } else { manifest.hello.bytes };
    let mut progress = reporter.start("receiving", &session.peer_key().to_string(), files, total);
    let prepared = match look(session, answers, destination, manifest, &comparing, &mut progress).await {
        Ok(prepared) => prepared,
        Err(stop) => {
            progress.clear();
            return Err(stop);
        }
    };
    let Prepared { job, plan, failed, newer, extras, hello } = prepared;
    let mut records = vec![Record::Plan(plan), Record::PlanEnd];
    if hello.is_dry {
        records.splice(..0, failed.iter().map(|(index, refused)| refusal(*index, refused)));
        records.insert(0, Record::Deleted(extras.into_iter().map(|extra| extra.path).collect()));
        progress.clear();
        say(answers, &records).await?;
        return Err(Stop::Dry);
    }
    records.extend(failed.iter().map(|(index, refused)| refusal(*index, refused)));
    say(answers, &records).await?;
    let job = Arc::new(job);
    let (events_in, mut events) = mpsc::unbounded_channel();
    let mut streams = Streams { readers: JoinSet::new(), writers: JoinSet::new(), events: events_in };
    let course = Course { hello, is_streamed, open: files - newer, newer, hashes: HashMap::new(), failures: 0, first: None };
    let result = course.transfer(session, control, answers, &job, failed, &mut streams, &mut events, &mut progress, stop).await;
    drop(ending);
    streams.stop().await;
    match result {
        Ok(summary) => {
            progress.done(&summary);
            Ok(())
        }
        Err(stop) => {
            progress.clear();
            Err(stop)
        }
    }
}

fn refusal(index: u64, refused: &Refused) -> Record {
    Record::Failed { index, refusal: refused.refusal, message: refused.message.clone() }
}

/// The progress of a transfer.
struct Course {
    hello: Hello,
    is_streamed: bool,
    /// Entries whose content is still to come.
    open: u64,
    /// Files that are newer here.
    newer: u64,
    hashes: HashMap<u64, blake3::Hash>,
    failures: u64,
    first: Option<Refused>,
}

/// When content moved last. Without this, a sender that only keeps its session alive would keep its place.
struct Movement {
    at: Instant,
    arrived: u64,
    worked: u64,
}

impl Movement {
    fn look(&mut self, job: &Job) -> Result<(), Stop> {
        let arrived = job.counts.arrived.load(Relaxed);
        if arrived != self.arrived || job.counts.steps.load(Relaxed) > 0 {
            (self.at, self.arrived) = (Instant::now(), arrived);
        }
        match self.at.elapsed() > IDLE {
            true => Err(Failure::PeerGone(format!("it moved nothing for {} s", IDLE.as_secs())).into()),
            false => Ok(()),
        }
    }

    /// Notes the sender's own progress, such as hashing. It counts as movement while it advances, or while the sender waits for its input.
    fn hear(&mut self, done: u64, total: u64, is_streamed: bool) {
        if done > self.worked || (total == 0 && is_streamed) {
            (self.at, self.worked) = (Instant::now(), done);
        }
    }
}

impl Course {
    fn failed(&mut self, index: u64, refused: Refused, job: &Job, progress: &Progress) {
        let Some(entry) = job.entries.get(index) else { return };
        progress.failed(&entry, &refused.message);
        self.failures += 1;
        self.open -= u64::from(entry.has_content());
        self.first.get_or_insert(refused);
    }

    #[allow(clippy::too_many_arguments, reason = "the parts of one transfer, split off so that they outlive its end")]
    async fn transfer(
        mut self,
        session: &Session,
        control: &mut Records,
        answers: &mut SendStream,
        job: &Arc<Job>,
        failed: Vec<(u64, Refused)>,
        streams: &mut Streams,
        events: &mut mpsc::UnboundedReceiver<Event>,
        progress: &mut Progress,
        stop: impl Future<Output = ()>,
    ) -> Result<Summary, Stop> {
        failed.into_iter().for_each(|(index, refused)| self.failed(index, refused, job, progress));
        let (mut begun, mut is_silent) = (0, false);
        let mut movement = Movement { at: Instant::now(), arrived: 0, worked: 0 };
        tokio::pin!(stop);
        let mut tick = tokio::time::interval(TICK);
        let mut told = Instant::now();
        while self.open > 0 {
            tokio::select! {
                flow = session.accept_flow(), if begun < self.hello.streams => match flow.map_err(Failure::from)? {
                    IncomingFlow::Stream { recv, send: None } if recv.options().tag == DATA_TAG => {
                        begun += 1;
                        streams.begin(job, recv);
                    }
                    _ => return Err(protocol("a flow came that has no place in a transfer").into()),
                },
                Some(event) = events.recv() => {
                    let (mut stored, mut records, mut next) = (Vec::new(), Vec::new(), Some(event));
                    while let Some(event) = next {
                        match event {
                            Event::Stored(index, hash) => {
                                self.hashes.insert(index, hash);
                                if let Some(entry) = job.entries.get(index) {
                                    progress.file(&entry, hash);
                                }
                                stored.push(index);
                                self.open -= 1;
                            }
                            Event::Failed(index, refused) => {
                                records.push(refusal(index, &refused));
                                self.failed(index, refused, job, progress);
                            }
                            Event::Fatal(refused) => return Err(refused.into()),
                        }
                        next = events.try_recv().ok();
                    }
                    records.push(Record::Stored(stored));
                    say(answers, &records).await?;
                }
                record = control.next(), if !is_silent => match record? {
                    None => is_silent = true,
                    Some(Record::Working { done, total }) => {
                        movement.hear(done, total, self.is_streamed);
                        progress.comparing(done, total);
                    }
                    Some(_) => return Err(protocol("the sender goes on after its manifest").into()),
                },
                () = &mut stop => return Err(Stop::Superseded),
                _ = tick.tick() => {
                    progress.set(job.counts.bytes.load(Relaxed), job.counts.spared.load(Relaxed));
                    progress.look_at(session);
                    if let Some((done, total)) = job.comparing.under_way() {
                        progress.comparing(done, total);
                        if told.elapsed() >= TELL_EVERY {
                            told = Instant::now();
                            say(answers, &[Record::Comparing { done, total }]).await?;
                        }
                    }
                    while streams.writers.try_join_next().is_some() {}
                    if begun == self.hello.streams && streams.writers.is_empty() && events.is_empty() && self.open > 0 {
                        return Err(gone().into());
                    }
                    movement.look(job)?;
                }
            }
        }
        self.finish(answers, job, progress).await
    }

    async fn finish(mut self, answers: &mut SendStream, job: &Arc<Job>, progress: &mut Progress) -> Result<Summary, Stop> {
        let (of_job, is_whole) = (Arc::clone(job), self.failures == 0);
        let Finished { failed, deleted, left } = blocking(move || finish(&of_job, is_whole)).await??;
        let mut records = Vec::new();
        for (index, refused) in failed {
            records.push(refusal(index, &refused));
            self.failed(index, refused, job, progress);
        }
        deleted.iter().for_each(|name| progress.deleted(name));
        for refused in left {
            progress.note(&format!("not deleted: {}", refused.message));
            self.failures += 1;
            self.first.get_or_insert(refused);
        }
        if job.deleting.is_some() && self.failures > 0 && deleted.is_empty() {
            progress.note("nothing was deleted, because not everything arrived");
        }
        let gone = deleted.len() as u64;
        records.push(Record::Deleted(deleted));
        let digest = digest((0..).zip(job.entries.iter()).map(|(i, e)| (e, self.hashes.get(&i).copied())));
        let announced: u64 = (0..).zip(job.entries.iter()).filter(|(i, _)| self.hashes.contains_key(i)).map(|(_, e)| e.size()).sum();
        let bytes = announced + job.counts.streamed.load(Relaxed);
        let files = self.hashes.len() as u64;
        records.push(Record::Done { files, bytes, deleted: gone, digest });
        say(answers, &records).await?;
        match self.first {
            None => {
                let Counts { spared, same, resumed, .. } = &job.counts;
                progress.set(bytes, spared.load(Relaxed));
                let (same, resumed) = (same.load(Relaxed), resumed.load(Relaxed));
                Ok(Summary { files, bytes, same, resumed, newer: self.newer, deleted: gone, digest })
            }
            Some(refused) => {
                // The sender leaves as soon as it has heard: that is no failure of its own.
                let _ = tokio::time::timeout(IDLE, answers.finish()).await;
                Err(Stop::Incomplete { failed: self.failures, of: Some(job.entries.len() as u64), first: refused })
            }
        }
    }
}

//! One transfer at the receiver: manifest in, plan out, data streams to their writers, results back.

use super::entry::{Entry, Kind, digest};
use super::progress::{Reporter, Summary};
use super::staging::Staging;
use super::target::{Parents, Refused, Target, hash_file, in_place, stamps};
use super::wire::{Have, Hello, MAX_ENTRIES, MAX_NAMES, MAX_STREAMS, Plan, Record, RecordError, Records, Refusal, VERSION};
use super::writer::{Counts, Event, Job, Sink, Slot, Writer, protocol};
use super::{CHUNK, DATA_TAG, SMALL};
use crate::failure::Failure;
use blake3::Hash;
use bytes::BytesMut;
use noctule::{FlowError, IncomingFlow, RecvStream, SendStream, Session};
use rustix::fs::AtFlags;
use std::collections::HashMap;
use std::fs::Permissions;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::sync::{Arc, Mutex};
use std::time::Duration;
use tokio::sync::mpsc;
use tokio::task::JoinSet;

/// Batches between network and disk, per stream: 4 MiB, and then the sender has to wait.
const QUEUE: usize = 16;
/// Looks at progress.
const TICK: Duration = Duration::from_millis(50);

/// Why receiving ended early.
pub enum Stop {
    /// The sender is to be told.
    Refused(Refused),
    /// There is nobody to tell.
    Failed(Failure),
    /// The sender's next try has come.
    Superseded,
    /// Only the plan was wanted.
    Dry,
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
        }
    }
}

fn gone() -> Failure {
    Failure::PeerGone("its stream ended before everything had come".into())
}

/// A manifest that has come.
pub struct Manifest {
    /// What was said first.
    pub hello: Hello,
    /// In the order of their indexes.
    pub entries: Vec<Entry>,
    /// Names this transfer: the same manifest again is the same transfer again.
    pub id: Hash,
}

/// Reads greeting and manifest.
pub async fn manifest(control: &mut Records) -> Result<Manifest, Stop> {
    let Some(Record::Hello(hello)) = control.next().await? else {
        return Err(protocol("the transfer does not begin with a greeting").into());
    };
    if hello.version != VERSION {
        return Err(protocol(&format!("version {} of the transfer; this side speaks version {VERSION}", hello.version)).into());
    }
    if hello.entries > MAX_ENTRIES || !(1..=MAX_STREAMS).contains(&hello.streams) {
        let text = format!(
            "{} entries over {} streams; this side takes {MAX_ENTRIES} entries over 1 to {MAX_STREAMS} streams",
            hello.entries, hello.streams
        );
        return Err(protocol(&text).into());
    }
    let mut entries: Vec<Entry> = Vec::new();
    let (mut names, mut bytes, mut hasher) = (0, Some(0u64), blake3::Hasher::new());
    while (entries.len() as u64) < hello.entries {
        match control.next().await? {
            Some(Record::Entries(part)) if !part.is_empty() => {
                for entry in &part {
                    names += entry.path.len() + if let Kind::Link(target) = &entry.kind { target.len() } else { 0 };
                    bytes = bytes.and_then(|b| b.checked_add(entry.size()));
                    hasher.update(entry.content_id().as_bytes());
                }
                entries.extend(part);
                if names > MAX_NAMES {
                    return Err(protocol("the names of the manifest take too much memory").into());
                }
            }
            Some(_) => return Err(protocol("a part of the manifest is missing").into()),
            None => return Err(gone().into()),
        }
    }
    if entries.len() as u64 != hello.entries || bytes != Some(hello.bytes) {
        return Err(protocol("the manifest contradicts its greeting").into());
    }
    Ok(Manifest { hello, entries, id: hasher.finalize() })
}

/// What is there of a manifest's entries.
struct Survey {
    slots: Vec<Slot>,
    plan: Plan,
    /// Bytes that need no room any more.
    here: u64,
}

/// Everything that can be refused is refused here, before the first byte is written.
fn survey(target: &Target, entries: &[Entry], is_dry: bool) -> Result<Survey, Refused> {
    entries.iter().try_for_each(|e| target.check_entry(e))?;
    let mut parents = Parents::default();
    let mut survey = Survey { slots: Vec::with_capacity(entries.len()), plan: Vec::new(), here: 0 };
    for (index, entry) in (0..).zip(entries) {
        let mut slot = if entry.has_content() { Slot::Missing } else { Slot::Closed };
        match target.look(entry, &mut parents)? {
            super::target::There::Nothing => {
                if entry.size() > SMALL
                    && let Some((mut file, length)) = Staging::left(&target.dir, entry).filter(|(_, length)| *length <= entry.size())
                    && let Ok((hasher, hashed)) = hash_file(&mut file, length)
                    && hashed == length
                {
                    let have = Have { is_in_place: false, is_other: false, length, hash: hasher.finalize() };
                    survey.plan.push((index, have));
                    survey.here += length;
                    slot = Slot::Partial(length, Box::new(hasher));
                }
            }
            super::target::There::Alike(mut file) => {
                let (hasher, length) = hash_file(&mut file, entry.size()).map_err(|e| Refused::from_io(entry.as_path(), &e))?;
                if length == entry.size() {
                    let hash = hasher.finalize();
                    survey.plan.push((index, in_place(length, hash)));
                    survey.here += length;
                    slot = Slot::InPlace(hash);
                }
            }
            super::target::There::Wanted => {
                if is_dry {
                    survey.plan.push((index, in_place(0, blake3::hash(&[]))));
                }
            }
            super::target::There::Other if is_dry => {
                let have = Have { is_in_place: false, is_other: true, length: 0, hash: blake3::hash(&[]) };
                survey.plan.push((index, have));
            }
            super::target::There::Other if target.may_replace(entry, &mut parents) => {}
            super::target::There::Other => {
                let text = if entry.kind == Kind::Dir { "exists and is no directory" } else { "exists already" };
                return Err(Refused::new(Refusal::Exists, entry.as_path(), text));
            }
        }
        survey.slots.push(slot);
    }
    Ok(survey)
}

/// Makes the directories that are missing, noted so that they get their attributes at the end even if that is another try.
fn make_dirs(target: &Target, staging: &Staging, entries: &[Entry]) -> Result<(), Refused> {
    for entry in entries.iter().filter(|e| e.kind == Kind::Dir) {
        let path = entry.as_path();
        let refused = |e: std::io::Error| Refused::from_io(path, &e);
        if !target.dir.is_dir(path) {
            staging.note_dir(&entry.path).map_err(refused)?;
            target.dir.create_dir_all(path).map_err(refused)?;
        }
    }
    Ok(())
}

/// Links, then the attributes of directories, which what was written into them would have changed. The entries that failed.
fn finish(job: &Job) -> Result<Vec<(u64, Refused)>, Refused> {
    let Sink::Directory(target, staging) = &job.sink else { return Ok(Vec::new()) };
    let mut failed = Vec::new();
    for (index, entry) in (0..).zip(&job.entries) {
        if let Kind::Link(to) = &entry.kind
            && let Err(e) = make_link(target, staging, entry, to)
        {
            failed.push((index, Refused::from_io(entry.as_path(), &e)));
        }
    }
    let made = staging.made();
    for (index, entry) in job.entries.iter().enumerate().rev() {
        if entry.kind == Kind::Dir && made.contains(&entry.path) {
            let set = || -> std::io::Result<()> {
                let dir = super::target::real_handle(&target.dir.open_dir(entry.as_path())?)?;
                dir.set_permissions(Permissions::from_mode(entry.mode))?;
                super::target::set_mtime(&dir, entry)
            };
            if let Err(e) = set() {
                failed.push((index as u64, Refused::from_io(entry.as_path(), &e)));
            }
        }
    }
    target.sync().map_err(|e| Refused::from_io(Path::new("."), &e))?;
    // Before the sender hears of it, so that nothing is left when it has.
    staging.finish(&target.dir);
    Ok(failed)
}

fn make_link(target: &Target, staging: &Staging, entry: &Entry, to: &[u8]) -> std::io::Result<()> {
    let parent = target.real_parent(entry.as_path())?;
    let name = super::target::file_name(entry.as_path());
    let to = std::ffi::OsStr::from_bytes(to);
    if parent.read_link_contents(name).is_ok_and(|found| found.as_os_str() == to) {
        return Ok(());
    }
    match rustix::fs::symlinkat(to, &parent, name) {
        Err(rustix::io::Errno::EXIST) if target.rules.overwrite => {
            let moment = staging.moment();
            rustix::fs::symlinkat(to, &staging.dir, &moment)?;
            rustix::fs::renameat(&staging.dir, &moment, &parent, name)?;
        }
        result => result?,
    }
    Ok(rustix::fs::utimensat(&parent, name, &stamps(entry), AtFlags::SYMLINK_NOFOLLOW)?)
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

/// Prepares everything that needs the disk: the job and the plan.
fn prepare(destination: Destination, manifest: Manifest) -> Result<(Job, Plan, Hello), Refused> {
    let Manifest { hello, entries, id } = manifest;
    let counts = Counts::default();
    match destination {
        Destination::Stdout(is_given) => {
            if entries.len() != 1 || !entries[0].has_content() {
                let text = "one file at a time goes to standard output (recv --stdout); use --into for more";
                return Err(Refused { refusal: Refusal::Target, path: Vec::new(), message: text.into() });
            }
            is_given.store(!hello.is_dry, Relaxed);
            let slots = Mutex::new(vec![if hello.is_dry { Slot::Closed } else { Slot::Missing }]);
            Ok((Job { entries, slots, sink: Sink::Stdout, counts }, Vec::new(), hello))
        }
        Destination::Directory(target) => {
            let Survey { slots, plan, here } = survey(&target, &entries, hello.is_dry)?;
            if hello.is_dry {
                // Nothing will be written, so nothing is prepared for it.
                return Ok((Job { entries, slots: Mutex::default(), sink: Sink::Stdout, counts }, plan, hello));
            }
            target.check_space(hello.stored.saturating_sub(here))?;
            let staging = Staging::open(&target.dir, &id).map_err(|e| Refused::from_io(Path::new(super::entry::STAGING_NAME), &e))?;
            make_dirs(&target, &staging, &entries)?;
            Ok((Job { entries, slots: Mutex::new(slots), sink: Sink::Directory(target, staging), counts }, plan, hello))
        }
    }
}

async fn say(answers: &mut SendStream, records: &[Record]) -> Result<(), FlowError> {
    let mut out = Vec::new();
    records.iter().for_each(|r| r.emit(&mut out));
    answers.write_all(&out).await
}

/// Streams under way: tasks that read the network, threads that write files.
struct Streams {
    readers: JoinSet<()>,
    writers: JoinSet<()>,
    events: mpsc::UnboundedSender<Event>,
}

impl Streams {
    fn begin(&mut self, job: &Arc<Job>, mut stream: RecvStream) {
        let (bytes, batches) = mpsc::channel(QUEUE);
        self.readers.spawn(async move {
            let mut chunks = Vec::new();
            // An error here is one of the session, which the control stream tells.
            while let Ok(1..) = stream.read_chunks(&mut chunks, CHUNK).await {
                let mut batch = BytesMut::with_capacity(chunks.iter().map(bytes::Bytes::len).sum());
                chunks.drain(..).for_each(|c| batch.extend_from_slice(&c));
                if bytes.send(batch).await.is_err() {
                    return;
                }
            }
        });
        let (job, events) = (Arc::clone(job), self.events.clone());
        self.writers.spawn_blocking(move || Writer::run(&job, batches, events));
    }

    /// Lets go of every file.
    async fn stop(mut self) {
        self.readers.shutdown().await;
        while self.writers.join_next().await.is_some() {}
    }
}

/// Runs a transfer whose manifest has come. `stop` ends it early, with every file let go of.
pub async fn run(
    session: &Session,
    control: &mut Records,
    answers: &mut SendStream,
    destination: Destination,
    manifest: Manifest,
    reporter: &Reporter,
    stop: impl Future<Output = ()>,
) -> Result<(), Stop> {
    let (job, plan, hello) = blocking(move || prepare(destination, manifest)).await??;
    say(answers, &[Record::Plan(plan), Record::PlanEnd]).await?;
    if hello.is_dry {
        return Err(Stop::Dry);
    }
    let job = Arc::new(job);
    let (events_in, mut events) = mpsc::unbounded_channel();
    let mut streams = Streams { readers: JoinSet::new(), writers: JoinSet::new(), events: events_in };
    let result = transfer(session, control, answers, &job, hello, &mut streams, &mut events, reporter, stop).await;
    streams.stop().await;
    result
}

#[allow(clippy::too_many_arguments, reason = "the parts of one transfer, split off so that they outlive its end")]
async fn transfer(
    session: &Session,
    control: &mut Records,
    answers: &mut SendStream,
    job: &Arc<Job>,
    hello: Hello,
    streams: &mut Streams,
    events: &mut mpsc::UnboundedReceiver<Event>,
    reporter: &Reporter,
    stop: impl Future<Output = ()>,
) -> Result<(), Stop> {
    let mut open = job.entries.iter().filter(|e| e.has_content()).count();
    let is_streamed = job.entries.iter().any(|e| e.kind == Kind::Stream);
    let mut progress = reporter.start("receiving", &session.peer_key().to_string(), open as u64, if is_streamed { 0 } else { hello.bytes });
    let (mut hashes, mut failures, mut first) = (HashMap::new(), 0u64, None);
    let (mut begun, mut is_silent) = (0, false);
    tokio::pin!(stop);
    let mut tick = tokio::time::interval(TICK);
    while open > 0 {
        tokio::select! {
            flow = session.accept_flow(), if begun < hello.streams => match flow.map_err(Failure::from)? {
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
                            hashes.insert(index, hash);
                            progress.file(&job.entries[index as usize], hash);
                            stored.push(index);
                            open -= 1;
                        }
                        Event::Failed(index, refused) => {
                            progress.failed(&job.entries[index as usize], &refused.message);
                            records.push(Record::Failed { index, refusal: refused.refusal, message: refused.message.clone() });
                            (failures, open) = (failures + 1, open - 1);
                            first.get_or_insert(refused);
                        }
                        Event::Fatal(refused) => {
                            progress.clear();
                            return Err(refused.into());
                        }
                    }
                    next = events.try_recv().ok();
                }
                records.push(Record::Stored(stored));
                say(answers, &records).await?;
            }
            record = control.next(), if !is_silent => match record? {
                None => is_silent = true,
                Some(_) => return Err(protocol("the sender goes on after its manifest").into()),
            },
            () = &mut stop => {
                progress.clear();
                return Err(Stop::Superseded);
            }
            _ = tick.tick() => {
                progress.set(job.counts.bytes.load(Relaxed), job.counts.spared.load(Relaxed));
                progress.look_at(session);
                while streams.writers.try_join_next().is_some() {}
                if begun == hello.streams && streams.writers.is_empty() && events.is_empty() && open > 0 {
                    return Err(gone().into());
                }
            }
        }
    }
    let of_job = Arc::clone(job);
    let late = blocking(move || finish(&of_job)).await??;
    let mut records = Vec::new();
    for (index, refused) in late {
        progress.failed(&job.entries[index as usize], &refused.message);
        records.push(Record::Failed { index, refusal: refused.refusal, message: refused.message.clone() });
        failures += 1;
        first.get_or_insert(refused);
    }
    let digest = digest((0..).zip(&job.entries).map(|(i, e)| (e, hashes.get(&i).copied())));
    let announced: u64 = (0..).zip(&job.entries).filter(|(i, _)| hashes.contains_key(i)).map(|(_, e)| e.size()).sum();
    let bytes = announced + job.counts.streamed.load(Relaxed);
    let files = hashes.len() as u64;
    records.push(Record::Done { files, bytes, digest });
    say(answers, &records).await?;
    match first {
        None => {
            let Counts { spared, same, resumed, .. } = &job.counts;
            progress.set(bytes, spared.load(Relaxed));
            progress.done(&Summary { files, bytes, same: same.load(Relaxed), resumed: resumed.load(Relaxed), digest });
            Ok(())
        }
        Some(refused) => {
            progress.clear();
            // The sender leaves as soon as it has heard: that is no failure of its own.
            let _ = answers.finish().await;
            Err(Stop::Failed(Failure::incomplete(failures, &refused)))
        }
    }
}

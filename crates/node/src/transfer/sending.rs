//! One transfer at its sender, over streams that are there already: manifest out, contents out, answers in. `send` runs it, and `serve` for a peer that asks.

use super::DATA_TAG;
use super::content::Contents;
use super::entry::{Kind, digest, shown};
use super::filter::Rule;
use super::limit::Limit;
use super::progress::{Progress, Reporter, Summary};
use super::source::{Item, Sources};
use super::target::Refused;
use super::wire::{Have, Hello, Record, Records, VERSION, emit_entries};
use crate::failure::Failure;
use bytes::Bytes;
use noctule::{Bandwidth, FlowError, FlowOptions, SendStream, Session};
use serde_json::json;
use std::collections::{HashMap, HashSet};
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;
use std::time::Duration;
use tokio::sync::mpsc;
use tokio::task::JoinSet;
use tokio::time::Instant;

/// How long the receiver may take to say what it thinks after the stream broke.
const LAST_WORD: Duration = Duration::from_secs(2);
/// Batches between disk and network, per stream.
const QUEUE: usize = 4;
/// Between words to the receiver on what takes long here.
const TELL_EVERY: Duration = Duration::from_secs(1);
/// Looks at progress.
const TICK: Duration = Duration::from_millis(50);
/// Entries that cannot be sent, at most, that the receiver is told of by name.
const TOLD: usize = 1000;

/// What is wanted of a transfer.
#[derive(Clone, Debug, Default)]
pub struct Options {
    /// Only the plan.
    pub is_dry: bool,
    /// Files that are newer at the receiver stay.
    pub is_update: bool,
    /// What the receiver has besides is to go.
    pub deletes: bool,
    /// What was left out, for the receiver that deletes.
    pub rules: Vec<Rule>,
    /// Data streams.
    pub streams: u64,
    /// Contents no faster than this.
    pub limit: Option<Bandwidth>,
    /// The receiver asked for it: it hears what cannot be sent, prints the plan itself, and loses its place when nothing moves for so long.
    pub patience: Option<Duration>,
}

/// A transfer that has begun.
pub struct Sending {
    contents: Arc<Contents>,
    options: Options,
    hello: Hello,
    control: SendStream,
    answers: Records,
    /// What follows the greeting.
    words: Vec<u8>,
    /// Entries that the receiver has stored.
    stored: HashSet<u64>,
    /// Why entries did not arrive, those first that were never announced.
    failures: Vec<Failure>,
    /// As many of them are no entries of the manifest.
    unlisted: u64,
}

impl Drop for Sending {
    fn drop(&mut self) {
        self.contents.give_up();
    }
}

/// When something moved last, for a receiver that only keeps its session alive.
struct Movement {
    at: Instant,
    seen: [u64; 3],
}

impl Movement {
    fn look(&mut self, seen: [u64; 3], patience: Option<Duration>) -> Result<(), Failure> {
        if seen != self.seen {
            (self.at, self.seen) = (Instant::now(), seen);
        }
        match patience.filter(|patience| self.at.elapsed() > *patience) {
            Some(patience) => Err(Failure::PeerGone(format!("it took nothing and said nothing for {} s", patience.as_secs()))),
            None => Ok(()),
        }
    }
}

impl Sending {
    /// Of these sources, over the stream of the manifest and the answers.
    pub fn new(sources: Sources, options: Options, control: SendStream, answers: Records) -> Self {
        let (_, bytes) = sources.totals();
        let is_complete = sources.is_complete();
        let Sources { items, attributes, failed, stored, .. } = sources;
        let mut failures = Vec::new();
        let mut unlisted = Vec::new();
        if options.patience.is_some() {
            let more = failed.len().saturating_sub(TOLD);
            unlisted.extend(failed.into_iter().take(TOLD).map(|(name, failure)| (name, failure.reason())));
            unlisted.extend((more > 0).then(|| (Vec::new(), format!("and {more} more"))));
        } else {
            failures.extend(failed.into_iter().map(|(_, failure)| failure));
        }
        let hello = Hello {
            version: VERSION,
            is_dry: options.is_dry,
            is_update: options.is_update,
            deletes: options.deletes,
            is_complete,
            entries: items.len() as u64,
            bytes,
            stored,
            streams: options.streams,
            rules: options.rules.len() as u64,
            attributes: attributes.len() as u64,
            unlisted: unlisted.len() as u64,
        };
        let mut words = Vec::new();
        Record::Hello(hello).emit(&mut words);
        if !options.rules.is_empty() {
            Record::Rules(options.rules.clone()).emit(&mut words);
        }
        emit_entries::<Item>(&mut words, &items);
        Record::Attributes(attributes).emit(&mut words);
        Record::Unlisted(unlisted).emit(&mut words);
        let contents = Arc::new(Contents::new(items, options.is_update));
        Self { contents, options, hello, control, answers, words, stored: HashSet::new(), unlisted: failures.len() as u64, failures }
    }

    /// Runs it to its end; what arrived, unless only the plan was wanted.
    pub async fn run(mut self, session: &Session, reporter: &Reporter) -> Result<Option<Summary>, Failure> {
        let files = self.contents.items.iter().filter(|i| i.entry.has_content()).count() as u64;
        let total = if self.is_streamed() { 0 } else { self.hello.bytes };
        let mut progress = reporter.start("sending", &session.peer_key().to_string(), files, total);
        let mut sent = self.exchange(session, &mut progress).await;
        if let Err(first) = sent {
            // A stream that broke may have been broken for a reason that the receiver is about to give: it may have everything, too, and not have waited for
            // the stream's end.
            let said = tokio::time::timeout(LAST_WORD, async {
                loop {
                    match self.answer(&mut progress).await {
                        Ok(Step::Done(summary)) => return Ok(summary),
                        Ok(_) => {}
                        Err(e) => return Err(e),
                    }
                }
            });
            sent = match said.await {
                Ok(Ok(summary)) => Ok(Some(summary)),
                Ok(Err(said)) if !matches!(said, Failure::PeerGone(_) | Failure::Silence(_)) => Err(said),
                _ => Err(first),
            };
            if sent.is_err() {
                progress.clear();
                return sent;
            }
        }
        if self.hello.is_dry {
            self.part().await;
            progress.clear();
            if self.options.patience.is_none() {
                print_plan(self.contents.items.iter().map(|i| &i.entry), &self.contents.haves(), reporter);
            }
            return self.incomplete().map(|()| None);
        }
        let summary = sent?;
        self.part().await;
        if let Err(failure) = self.incomplete() {
            progress.clear();
            return Err(failure);
        }
        if let Some(summary) = &summary {
            progress.set(summary.bytes, self.spared());
            progress.done(summary);
        }
        Ok(summary)
    }

    fn is_streamed(&self) -> bool {
        self.contents.items.iter().any(|i| i.entry.kind == Kind::Stream)
    }

    /// Bytes that did not have to travel.
    fn spared(&self) -> u64 {
        self.contents.spared.load(Relaxed) + self.contents.holes.load(Relaxed)
    }

    /// Some entries did not arrive, or would not.
    fn incomplete(&self) -> Result<(), Failure> {
        match self.failures.first() {
            None => Ok(()),
            Some(first) => {
                let (failed, of) = (self.failures.len() as u64, self.unlisted + self.contents.items.len() as u64);
                Err(Failure::Incomplete { failed, of: Some(of), code: first.exit_code(), first: first.to_string() })
            }
        }
    }

    /// Says that all is said, and hears the receiver out: neither end takes the other's going for a failure.
    async fn part(&mut self) {
        // Its answer would be the end of the session, which comes anyway.
        let _ = tokio::io::AsyncWriteExt::shutdown(&mut self.control).await;
        let _ = tokio::time::timeout(LAST_WORD, async { while let Ok(Some(_)) = self.answers.next().await {} }).await;
    }

    /// Everything that is said, until the receiver has said that it is done.
    async fn exchange(&mut self, session: &Session, progress: &mut Progress) -> Result<Option<Summary>, Failure> {
        let mut words = std::mem::take(&mut self.words);
        let (mut said, mut told) = (0, Instant::now());
        let limit = self.options.limit.map(|rate| Arc::new(Limit::new(rate)));
        let (mut sending, mut written, mut is_written) = (JoinSet::new(), 0, false);
        let is_streamed = self.is_streamed();
        let mut movement = Movement { at: Instant::now(), seen: [0; 3] };
        let mut answered = 0;
        let mut tick = tokio::time::interval(TICK);
        loop {
            tokio::select! {
                // What has been said already is heard first.
                biased;
                answer = self.answers.answer() => {
                    answered += 1;
                    match self.take(answer?, progress)? {
                        Step::Done(summary) => return Ok(Some(summary)),
                        Step::PlanEnd if self.hello.is_dry => return Ok(None),
                        _ => {}
                    }
                },
                Some(ended) = sending.join_next() => ended.map_err(|e| Failure::system("sending", e))??,
                n = self.control.write(&words[written..]), if written < words.len() => {
                    let n = n?;
                    (written, said) = (written + n, said + n);
                }
                _ = tick.tick() => {
                    let flows = session.flow_stats();
                    let acknowledged: u64 =
                        flows.iter().filter(|f| f.is_sender).map(|f| f.stats.app_bytes.saturating_sub(f.stats.outstanding * 1400)).sum();
                    let most = if is_streamed { u64::MAX } else { self.hello.bytes };
                    let through = acknowledged.saturating_sub(said as u64) + self.spared();
                    progress.set(through.min(most), self.spared());
                    progress.look_at(session);
                    movement.look([through, answered, self.contents.comparing.done.load(Relaxed)], self.options.patience)?;
                    let work = match self.contents.comparing.under_way() {
                        None => self.contents.is_waiting.load(Relaxed).then_some((0, 0)),
                        under_way => under_way,
                    };
                    if let Some((done, total)) = work {
                        progress.comparing(done, total);
                        if is_written && written == words.len() && told.elapsed() >= TELL_EVERY {
                            told = Instant::now();
                            (words, written) = (Record::Working { done, total }.bytes(), 0);
                        }
                    }
                }
            }
            // Contents follow the manifest, so that it does not share the link with what can only be read after it.
            if written == words.len() && !is_written && !self.hello.is_dry {
                is_written = true;
                for _ in 0..self.hello.streams {
                    let stream = session.open_uni(FlowOptions { tag: DATA_TAG, ..FlowOptions::default() })?;
                    let (out, batches) = mpsc::channel(QUEUE);
                    let contents = Arc::clone(&self.contents);
                    let reader = std::thread::Builder::new().name("reader".into()).spawn(move || contents.read(out));
                    reader.map_err(|e| Failure::system("no thread to read files by", e))?;
                    sending.spawn(send_contents(stream, batches, limit.clone()));
                }
            }
        }
    }

    async fn answer(&mut self, progress: &mut Progress) -> Result<Step, Failure> {
        let record = self.answers.answer().await?;
        self.take(record, progress)
    }

    fn take(&mut self, record: Record, progress: &mut Progress) -> Result<Step, Failure> {
        let nonsense = || Failure::Stranger("it answered for a file that was not sent".into());
        let contents = Arc::clone(&self.contents);
        let entry = |index: u64| usize::try_from(index).ok().and_then(|i| contents.items.get(i)).map(|i| &i.entry);
        match record {
            Record::Plan(part) => {
                if !contents.plan(part) {
                    return Err(nonsense());
                }
            }
            Record::Comparing { done, total } => progress.comparing(done, total),
            Record::PlanEnd => {
                contents.plan_is_complete();
                return Ok(Step::PlanEnd);
            }
            Record::Stored(indexes) => {
                for index in indexes {
                    let (Some(entry), Some(Ok(hash))) = (entry(index), contents.result(index)) else { return Err(nonsense()) };
                    if !self.stored.insert(index) {
                        return Err(nonsense());
                    }
                    progress.file(entry, hash);
                }
            }
            Record::Failed { index, refusal, message } => {
                let entry = entry(index).filter(|_| contents.refuse(index)).ok_or_else(nonsense)?;
                let failure = match contents.result(index) {
                    Some(Err(problem)) => problem.failure(entry.shown()),
                    _ => self.refused(&Refused { refusal, path: entry.path.clone(), message }),
                };
                progress.failed(entry, &failure.to_string());
                self.failures.push(failure);
            }
            Record::Deleted(names) if self.options.deletes => names.iter().for_each(|name| match self.hello.is_dry {
                true => progress.would_delete(name),
                false => progress.deleted(name),
            }),
            // What a receiver deletes by its own wish is its own affair.
            Record::Deleted(names) if names.is_empty() || self.options.patience.is_some() => {}
            Record::Refused { refusal, path, message } => return Err(self.refused(&Refused { refusal, path, message })),
            Record::Done { files, bytes, deleted, digest } => return self.check_end([files, bytes, deleted], digest).map(Step::Done),
            _ => return Err(Failure::Stranger("it sent a record that only a sender sends".into())),
        }
        Ok(Step::On)
    }

    /// A refusal of the receiver: `recv`, or `get` of which the log of `serve` tells.
    fn refused(&self, refused: &Refused) -> Failure {
        match Failure::refused(refused) {
            Failure::Exists(path) if self.options.patience.is_some() => {
                Failure::Here { text: format!("{path} exists already there, and `get` was run without --overwrite"), code: 14 }
            }
            failure => failure,
        }
    }

    /// The receiver's last word must be what this side knows.
    fn check_end(&self, [files, bytes, deleted]: [u64; 3], theirs: blake3::Hash) -> Result<Summary, Failure> {
        let items = &self.contents.items;
        let hash = |i| self.stored.contains(&i).then(|| self.contents.result(i)?.ok()).flatten();
        let ours = digest((0..).zip(items).map(|(i, item)| (&item.entry, hash(i))));
        if ours != theirs {
            let problem = format!("the receiver's hash of all hashes is {theirs}, ours is {ours}");
            return Err(Failure::Hash { path: "the transfer".into(), problem });
        }
        let haves = self.contents.haves();
        // Small files that left before the answer was known may have been there, too.
        let is_same = |(index, have): &(&u64, &Have)| {
            let ours = hash(**index);
            have.is_in_place && ours.is_some_and(|ours| have.is_untold || have.hash == ours)
        };
        let (same, newer) = (haves.iter().filter(is_same).count() as u64, haves.values().filter(|have| have.is_newer).count() as u64);
        Ok(Summary { files, bytes, same, resumed: self.contents.resumed.load(Relaxed), newer, deleted, digest: ours })
    }
}

/// Prints what a transfer would do.
pub fn print_plan<'a>(entries: impl Iterator<Item = &'a super::entry::Entry>, haves: &HashMap<u64, Have>, reporter: &Reporter) {
    for (index, entry) in (0..).zip(entries) {
        let (word, from) = match haves.get(&index) {
            Some(h) if h.is_newer => ("newer", 0),
            Some(h) if h.is_in_place => ("there", entry.size()),
            Some(h) if h.is_other => ("differs", 0),
            Some(h) => ("resume", h.length),
            None => ("new", 0),
        };
        let kind = match entry.kind {
            Kind::File(_) | Kind::Stream => "file",
            Kind::Dir => "dir",
            Kind::Link(_) => "link",
        };
        let (name, size) = (entry.shown(), entry.size());
        match reporter.is_json() {
            true => say!("{}", json!({"event": "plan", "path": name, "kind": kind, "bytes": size, "state": word, "have": from})),
            false if word == "resume" => say!("{word:8} {kind:4} {name} ({from} of {size} bytes are there)"),
            false => say!("{word:8} {kind:4} {name} ({size} bytes)"),
        }
    }
}

/// Prints what a transfer would delete.
pub fn print_deletion(name: &[u8], reporter: &Reporter) {
    match reporter.is_json() {
        true => say!("{}", json!({"event": "plan", "path": shown(name), "state": "delete"})),
        false => say!("{:8}      {}", "delete", shown(name)),
    }
}

/// What an answer means for the whole.
enum Step {
    On,
    PlanEnd,
    Done(Summary),
}

/// Moves batches from disk to a stream.
async fn send_contents(mut stream: SendStream, mut batches: mpsc::Receiver<Bytes>, limit: Option<Arc<Limit>>) -> Result<(), FlowError> {
    while let Some(batch) = batches.recv().await {
        let mut rest = &batch[..];
        while !rest.is_empty() {
            let piece = match &limit {
                Some(limit) => {
                    let piece = limit.piece().min(rest.len());
                    limit.wait(piece).await;
                    piece
                }
                None => rest.len(),
            };
            stream.write_all(&rest[..piece]).await?;
            rest = &rest[piece..];
        }
    }
    stream.finish().await
}

//! `noctule send`.

use super::again::Again;
use super::content::Contents;
use super::entry::{Kind, digest, shown};
use super::limit::Limit;
use super::progress::{Progress, Reporter, Summary};
use super::recv::Farewell;
use super::source::{self, Sources};
use super::target::Refused;
use super::wire::{Hello, Record, Records, VERSION};
use super::{CONTROL_TAG, DATA_TAG, object};
use crate::cli::{SendArgs, SendMode};
use crate::failure::Failure;
use crate::identity;
use crate::overlay::{self, Gateway};
use bytes::Bytes;
use noctule::{Endpoint, EndpointConfig, FlowError, FlowOptions, NodeConfig, PublicKey, SendStream, Session};
use serde_json::json;
use std::collections::HashSet;
use std::ffi::OsStr;
use std::net::{Ipv4Addr, Ipv6Addr, SocketAddr};
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;
use std::time::Duration;
use tokio::sync::mpsc;
use tokio::task::JoinSet;

/// How long the receiver may take to say what it thinks after the stream broke.
const LAST_WORD: Duration = Duration::from_secs(2);
/// Batches between disk and network, per stream.
const QUEUE: usize = 4;
/// Between words to the receiver on what takes long here.
const TELL_EVERY: Duration = Duration::from_secs(1);
/// Looks at progress.
const TICK: Duration = Duration::from_millis(50);

/// Sends everything and waits until the receiver has verified it.
pub async fn run(args: SendArgs) -> Result<(), Failure> {
    if let [only] = &args.words[..] {
        let text = format!("{only:?} is the only argument: name the files first, then the host (noctule send FILE... HOST)");
        return Err(Failure::Usage(text));
    }
    match (args.mode, args.one_way) {
        (SendMode::Brctp, true) => return object::one_way::run(args).await,
        (SendMode::Brctp, false) => return object::send::run(args).await,
        (SendMode::Brtp, true) => return Err(Failure::Usage("--one-way needs --mode brctp: files in the usual mode need answers".into())),
        (SendMode::Brtp, false) if !args.to.is_empty() => {
            return Err(Failure::Usage("--to is for --mode brctp; the key of the only receiver is said with --peer-key".into()));
        }
        (SendMode::Brtp, false) => {}
    }
    let (host, names) = args.words.split_last().ok_or_else(|| Failure::Usage("name files and a host".into()))?;
    let names: Vec<PathBuf> = names.iter().map(PathBuf::from).collect();
    let has_stream = names.iter().map(|name| source::stream(name)).collect::<Result<Vec<_>, _>>()?.iter().any(Option::is_some);
    if args.name.is_some() && !has_stream {
        return Err(Failure::Usage("--name names what comes from standard input or a pipe, but '-' is not among the sources".into()));
    }
    let found = sources(&args, &names).await?;
    for path in &found.skipped {
        tell!("noctule: not sent, because it is no file, directory or link: {}", shown(path.as_os_str().as_encoded_bytes()));
    }
    for failure in &found.failed {
        tell!("noctule: not sent: {failure}");
    }
    // What was read from standard input cannot be read again.
    let is_streamed = found.items.iter().any(|i| i.entry.kind == Kind::Stream);
    let give_up = if is_streamed { Duration::ZERO } else { args.give_up.0 };
    persist(&args, host, &names, found, give_up).await.map_err(|failure| failure.of_transfer(true))
}

/// What there is to send, as it is now.
async fn sources(args: &SendArgs, names: &[PathBuf]) -> Result<Sources, Failure> {
    let (names, stdin_name) = (names.to_vec(), args.name.clone());
    let sources = tokio::task::spawn_blocking(move || source::collect(&names, stdin_name.as_deref())).await;
    sources.map_err(|e| Failure::system("reading", e))?
}

/// Sends, and goes on after a silence: the receiver has kept what had arrived, and a new session begins with what is missing.
async fn persist(args: &SendArgs, host: &OsStr, names: &[PathBuf], found: Sources, give_up: Duration) -> Result<(), Failure> {
    let host = host.to_str().ok_or_else(|| Failure::Usage(format!("{host:?} is no host: it is the last argument")))?;
    let config = Base::config(args)?;
    let mut peer = identity::Peer::far_end(host, args.port, &args.peer, &args.identity, &args.via).await?;
    let reporter = Reporter::new(args.json, false).with_patience(give_up);
    let mut again = Again::new(give_up, config.node.idle_timeout);
    let base = Base::attach(args, config).await?;
    let mut found = Some(found);
    let result = loop {
        let result = async {
            let session = base.reach(args, &peer).await?;
            again.heard();
            // Files may have changed since the last try.
            let sources = match found.take() {
                Some(sources) => sources,
                None => sources(args, names).await?,
            };
            let result = async { Transfer::begin(args, sources, &session)?.run(args, &session, &reporter).await }.await;
            part(&session, base.ours, result).await
        };
        let Err(failure) = result.await else { break Ok(()) };
        if again.is_heard() {
            // It has proven its code, and so has this end.
            peer = peer.proven();
        }
        if let Err(failure) = again.after(failure, &reporter).await {
            break Err(failure);
        }
        base.begin_again();
    };
    base.leave().await;
    result
}

/// Ends a session after this result; a failure is told by the reason that the receiver gave, if it gave one.
pub(super) async fn part<T>(session: &Session, ours: PublicKey, result: Result<T, Failure>) -> Result<T, Failure> {
    match result {
        Ok(value) => {
            session.close(0, "").await;
            Ok(value)
        }
        Err(failure) => {
            let failure = match session.close_reason() {
                Some(reason) if matches!(failure, Failure::PeerGone(_) | Failure::Silence(_)) && !reason.is_clean() => {
                    Failure::closed(ours, &reason)
                }
                _ => failure,
            };
            session.abort(1, "failed");
            Err(failure)
        }
    }
}

/// This end, attached to a node if it was asked to be.
pub(super) struct Base {
    endpoint: Endpoint,
    /// Tells the receivers if this side goes.
    farewell: Farewell,
    /// Its key.
    pub ours: PublicKey,
    /// The node.
    pub gateway: Option<Gateway>,
}

impl Base {
    /// What the arguments say about this end.
    pub(super) fn config(args: &SendArgs) -> Result<EndpointConfig, Failure> {
        // What a receiver keeps of an interrupted transfer belongs to this key; and what it learns to trust by a code should be there again.
        let (mut config, is_ephemeral) = identity::lasting_config(args.identity.key.as_deref())?;
        if is_ephemeral {
            tell!(
                "noctule: no key could be kept here: if this transfer is interrupted, the next try begins anew; noctule keygen -o FILE makes a key, --key FILE uses it"
            );
        }
        config.node = NodeConfig { congestion: args.cc.unwrap_or_default().0, accept: false, ..NodeConfig::default() };
        identity::protect(&mut config.node, &args.identity)?;
        args.trace.apply(&mut config, "noctule send")?;
        overlay::configure(&mut config.node, &args.via, None)?;
        Ok(config)
    }

    /// Ready to reach receivers.
    pub(super) async fn attach(args: &SendArgs, config: EndpointConfig) -> Result<Self, Failure> {
        let ours = config.identity.public();
        let endpoint = Endpoint::client(config)?;
        let farewell = Farewell(endpoint.clone());
        let gateway = Gateway::attach(&endpoint, ours, &args.via, &args.identity, false).await?;
        Ok(Self { endpoint, farewell, ours, gateway })
    }

    /// A session with a receiver. Early: the first file is under way while the receiver makes up its mind; its refusal is read from the session's end.
    pub(super) async fn reach(&self, args: &SendArgs, peer: &identity::Peer) -> Result<Session, Failure> {
        let session = overlay::reach(&self.endpoint, peer, self.ours, self.gateway.as_ref()).await?;
        identity::check_protection(&session, &args.identity)?;
        peer.prove(&session, self.ours).await?;
        Ok(session)
    }

    /// Before another try: it leaves from another port, in case somebody on the way blocks this one. Over nodes their links look after themselves.
    pub(super) fn begin_again(&self) {
        if self.gateway.is_none() {
            let any = if self.endpoint.local_addr().is_ipv4() {
                SocketAddr::from((Ipv4Addr::UNSPECIFIED, 0))
            } else {
                (Ipv6Addr::UNSPECIFIED, 0).into()
            };
            // Without another port the old one has to do.
            let _ = self.endpoint.rebind(any);
        }
    }

    /// Waits until all that was said last has left.
    pub(super) async fn leave(self) {
        drop(self.gateway);
        self.farewell.0.wait_idle().await;
    }
}

/// A transfer under way.
struct Transfer {
    contents: Arc<Contents>,
    hello: Hello,
    control: SendStream,
    answers: Records,
    /// Entries that the receiver has stored.
    stored: HashSet<u64>,
    /// Why entries did not arrive, those first that were never announced.
    failures: Vec<Failure>,
}

impl Drop for Transfer {
    fn drop(&mut self) {
        self.contents.give_up();
    }
}

impl Transfer {
    fn begin(args: &SendArgs, sources: Sources, session: &Session) -> Result<Self, Failure> {
        let (_, bytes) = sources.totals();
        let hello = Hello {
            version: VERSION,
            is_dry: args.dry_run,
            entries: sources.items.len() as u64,
            bytes,
            stored: sources.stored,
            streams: u64::from(args.parallel),
        };
        let (control, answers) = session.open_bi(FlowOptions { tag: CONTROL_TAG, ..FlowOptions::default() })?;
        let contents = Arc::new(Contents::new(sources.items));
        Ok(Self { contents, hello, control, answers: Records::new(answers), stored: HashSet::new(), failures: sources.failed })
    }

    async fn run(mut self, args: &SendArgs, session: &Session, reporter: &Reporter) -> Result<(), Failure> {
        let files = self.contents.items.iter().filter(|i| i.entry.has_content()).count() as u64;
        let is_streamed = self.contents.items.iter().any(|i| i.entry.kind == Kind::Stream);
        let total = if is_streamed { 0 } else { self.hello.bytes };
        let mut progress = reporter.start("sending", &session.peer_key().to_string(), files, total);
        let sent = self.exchange(args, session, &mut progress).await;
        if let Err(first) = sent {
            // A stream that broke may have been broken for a reason that the receiver is about to give.
            let said = tokio::time::timeout(LAST_WORD, async {
                loop {
                    if let Err(e) = self.answer(&mut progress).await {
                        return e;
                    }
                }
            });
            let said = said.await;
            progress.clear();
            return Err(match said {
                Ok(said) if !matches!(said, Failure::PeerGone(_) | Failure::Silence(_)) => said,
                _ => first,
            });
        }
        if args.dry_run {
            self.part().await;
            progress.clear();
            self.print_plan(args.json);
            return self.incomplete();
        }
        let summary = sent?;
        self.part().await;
        if let Err(failure) = self.incomplete() {
            progress.clear();
            return Err(failure);
        }
        if let Some(summary) = summary {
            progress.set(summary.bytes, self.contents.spared.load(Relaxed));
            progress.done(&summary);
        }
        Ok(())
    }

    /// Some entries did not arrive, or would not.
    fn incomplete(&self) -> Result<(), Failure> {
        match self.failures.first() {
            None => Ok(()),
            Some(first) => {
                Err(Failure::Incomplete { failed: self.failures.len() as u64, code: first.exit_code(), first: first.to_string() })
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
    async fn exchange(&mut self, args: &SendArgs, session: &Session, progress: &mut Progress) -> Result<Option<Summary>, Failure> {
        let mut words = Vec::new();
        Record::Hello(self.hello).emit(&mut words);
        let entries: Vec<_> = self.contents.items.iter().map(|i| i.entry.clone()).collect();
        Record::Entries(entries).emit(&mut words);
        let (mut said, mut told) = (0, tokio::time::Instant::now());
        let limit = args.limit_rate.map(|rate| Arc::new(Limit::new(rate.0)));
        let (mut sending, mut written, mut is_written) = (JoinSet::new(), 0, false);
        let is_streamed = self.contents.items.iter().any(|i| i.entry.kind == Kind::Stream);
        let mut tick = tokio::time::interval(TICK);
        loop {
            tokio::select! {
                // What has been said already is heard first.
                biased;
                answer = self.answers.answer() => match self.take(answer?, progress)? {
                    Step::Done(summary) => return Ok(Some(summary)),
                    Step::PlanEnd if self.hello.is_dry => return Ok(None),
                    _ => {}
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
                    let (spared, holes) = (self.contents.spared.load(Relaxed), self.contents.holes.load(Relaxed));
                    let most = if is_streamed { u64::MAX } else { self.hello.bytes };
                    progress.set((acknowledged.saturating_sub(said as u64) + spared + holes).min(most), spared);
                    progress.look_at(session);
                    let work = match self.contents.comparing.under_way() {
                        None => self.contents.is_waiting.load(Relaxed).then_some((0, 0)),
                        under_way => under_way,
                    };
                    if let Some((done, total)) = work {
                        progress.comparing(done, total);
                        if is_written && written == words.len() && told.elapsed() >= TELL_EVERY {
                            told = tokio::time::Instant::now();
                            (words, written) = (Vec::new(), 0);
                            Record::Working { done, total }.emit(&mut words);
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
                    _ => Failure::refused(&Refused { refusal, path: entry.path.clone(), message }),
                };
                progress.failed(entry, &failure.to_string());
                self.failures.push(failure);
            }
            Record::Refused { refusal, path, message } => return Err(Failure::refused(&Refused { refusal, path, message })),
            Record::Done { files, bytes, digest } => return self.check_end(files, bytes, digest).map(Step::Done),
            _ => return Err(Failure::Stranger("it sent a record that only a sender sends".into())),
        }
        Ok(Step::On)
    }

    /// The receiver's last word must be what this side knows.
    fn check_end(&self, files: u64, bytes: u64, theirs: blake3::Hash) -> Result<Summary, Failure> {
        let items = &self.contents.items;
        let hash = |i| self.stored.contains(&i).then(|| self.contents.result(i)?.ok()).flatten();
        let ours = digest((0..).zip(items).map(|(i, item)| (&item.entry, hash(i))));
        if ours != theirs {
            let problem = format!("the receiver's hash of all hashes is {theirs}, ours is {ours}");
            return Err(Failure::Hash { path: "the transfer".into(), problem });
        }
        let Contents { same, resumed, .. } = &*self.contents;
        Ok(Summary { files, bytes, same: same.load(Relaxed), resumed: resumed.load(Relaxed), digest: ours })
    }

    /// What a transfer would do.
    fn print_plan(&self, is_json: bool) {
        let haves = self.contents.haves();
        for (index, item) in (0..).zip(&self.contents.items) {
            let have = haves.get(&index);
            let (word, from) = match have {
                Some(h) if h.is_in_place => ("there", item.entry.size()),
                Some(h) if h.is_other => ("differs", 0),
                Some(h) => ("resume", h.length),
                None => ("new", 0),
            };
            let kind = match item.entry.kind {
                Kind::File(_) | Kind::Stream => "file",
                Kind::Dir => "dir",
                Kind::Link(_) => "link",
            };
            let (name, size) = (item.entry.shown(), item.entry.size());
            match is_json {
                true => say!("{}", json!({"event": "plan", "path": name, "kind": kind, "bytes": size, "state": word, "have": from})),
                false if word == "resume" => say!("{word:8} {kind:4} {name} ({from} of {size} bytes are there)"),
                false => say!("{word:8} {kind:4} {name} ({size} bytes)"),
            }
        }
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

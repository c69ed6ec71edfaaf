//! An endpoint that takes files from senders, offers a directory to peers, or both; many sessions at once. `recv` and `serve` run it.

use super::manifest::manifest;
use super::object::recv::Above;
use super::object::{self, OBJECT_TAG};
use super::offer::{Looking, Offer};
use super::progress::{Reporter, Summary};
use super::receive::{self, Destination, IDLE, Stop, gone};
use super::sending::{Options, Sending};
use super::shares::{Limits, Shares};
use super::target::{Refused, Rules, Target};
use super::turn::{Turns, Work};
use super::wire::{Record, Records, Refusal};
use super::writer::protocol;
use super::{CONTROL_TAG, DATA_TAG, REQUEST_TAG};
use crate::cli::LimitArgs;
use crate::code::{
    Code,
    gate::{Gate, Tell},
};
use crate::failure::Failure;
use crate::identity::authorised::Grant;
use crate::identity::refused;
use crate::invitation::Invitation;
use crate::overlay::Gateway;
use crate::perf;
use crate::service::Service;
use blake3::Hash;
use noctule::{Bandwidth, Endpoint, FlowOptions, IncomingFlow, SendStream, Session};
use serde_json::json;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::time::Duration;
use tokio::sync::mpsc;
use tracing::Instrument;

/// Code of an end that was interrupted: the exit code that it has.
const INTERRUPTED: u64 = 130;
/// How long a sender may take to open its stream, and to leave.
const PATIENCE: Duration = Duration::from_secs(30);
/// How long a sender that was refused may take to hear it.
const LAST_WORD: Duration = Duration::from_secs(3);
/// Between words to one that asked while its files are looked at.
const TELL_EVERY: Duration = Duration::from_secs(1);
/// Names of a request that the log shows, at most.
const SHOWN: usize = 10;
/// Data streams to one that asked, at most: each is a thread that reads.
const STREAMS: u64 = 4;

/// What is done with files that a peer sends.
pub enum Takes {
    /// They are refused.
    Nothing,
    /// The content of one goes to standard output.
    Stdout,
    /// They are kept below a directory.
    Into(Box<Target>, Rules),
}

/// A directory that is offered.
pub struct Offered {
    /// What there is.
    pub offer: Offer,
    /// Contents no faster than this, to each that asks.
    pub limit: Option<Bandwidth>,
}

/// What all sessions share.
pub struct Server {
    /// Which keys may open sessions, or a code that lets one in.
    pub gate: Gate,
    /// What is taken.
    pub takes: Takes,
    /// What is given.
    pub offered: Option<Arc<Offered>>,
    /// One transfer that succeeds is enough.
    pub once: bool,
    /// What the user sees.
    pub reporter: Reporter,
    /// The node that this end is attached to, by which objects come down trees.
    pub above: Option<Above>,
    /// Whose turn it is to write.
    pub turns: Turns,
    /// How much of this host transfers may take.
    pub shares: Arc<Shares>,
}

/// How a session ended.
enum Outcome {
    /// It was a transfer.
    Transfer(Result<(), Failure>),
    /// It was one that had begun to write to standard output, where nothing can be taken back.
    Spoiled(Failure),
    /// It was none, or its next try goes on with it.
    Nothing(Option<Failure>),
}

/// Tells the peers that this end goes, however it goes.
pub struct Farewell(pub Endpoint);

impl Drop for Farewell {
    fn drop(&mut self) {
        self.0.close(INTERRUPTED, "interrupted");
    }
}

/// What the user is told besides transfers, and the commands that are shown to the other side.
pub fn voices(
    reporter: &Reporter,
    invitation: &Invitation,
    words: &'static [&'static str],
) -> (Tell, impl Fn(Option<&Code>) -> String + Send + Sync + 'static) {
    let (reporter, invitation) = (reporter.clone(), invitation.clone());
    let tell = Box::new(move |text: &str, event: serde_json::Value| match reporter.is_json() {
        true => reporter.event(&event),
        false => reporter.say(text),
    });
    let commands = move |code: Option<&Code>| {
        let lines = words.iter().map(|words| format!("  {}", invitation.command(words, code)));
        lines.collect::<Vec<_>>().join("\n")
    };
    (tell, commands)
}

/// Serves until interrupted, or once.
pub async fn run(server: Server, endpoint: &Endpoint, gateway: Option<Gateway>) -> Result<(), Failure> {
    let (once, is_json) = (server.once, server.reporter.is_json());
    let server = Arc::new(server);
    let (ended, mut outcomes) = mpsc::unbounded_channel();
    loop {
        tokio::select! {
            session = endpoint.accept() => {
                let Some(session) = session else { return Err(Failure::System("the endpoint was closed".into())) };
                if gateway.as_ref().is_some_and(|g| g.takes(&session)) {
                    continue;
                }
                let (server, ended) = (Arc::clone(&server), ended.clone());
                tokio::spawn(async move { ended.send(server.serve(session).await) });
            }
            Some(refusal) = endpoint.refused() => refused::log(&refusal),
            Some(outcome) = outcomes.recv() => match outcome {
                // What was refused or broke off leaves this side waiting, for another try or another sender.
                Outcome::Transfer(Ok(())) if once => {
                    drop(gateway);
                    endpoint.wait_idle().await;
                    return Ok(());
                }
                Outcome::Spoiled(failure) => {
                    drop(gateway);
                    endpoint.wait_idle().await;
                    return Err(failure);
                }
                // The log has them.
                Outcome::Transfer(Err(failure)) if is_json => failure.of_transfer(false).report(),
                Outcome::Nothing(Some(failure)) if is_json => failure.report(),
                Outcome::Transfer(_) | Outcome::Nothing(_) => {}
            }
        }
    }
}

impl Server {
    /// One session, and what came of it, in the log.
    async fn serve(&self, session: Session) -> Outcome {
        let span = self.gate.span("transfer", &session);
        let outcome = self.transfer(session).instrument(span.clone()).await;
        let _in = span.enter();
        match &outcome {
            Outcome::Transfer(Ok(())) => {}
            Outcome::Transfer(Err(failure)) | Outcome::Spoiled(failure) => tracing::warn!(code = failure.exit_code(), "{failure}"),
            Outcome::Nothing(Some(failure)) => tracing::warn!(code = failure.exit_code(), "refused: {failure}"),
            Outcome::Nothing(None) => tracing::debug!("left"),
        }
        outcome
    }

    async fn transfer(&self, session: Session) -> Outcome {
        // A small transfer opens everything at once: if the flow that begins the conversation is lost, its data come first.
        // A session without that flow was only a probe, or was refused.
        let begins = |options: &FlowOptions| options.tag != DATA_TAG && (options.tag != OBJECT_TAG || options.bidirectional);
        let Some(flow) = self.gate.first_flow_if(&session, PATIENCE, begins).await else { return Outcome::Nothing(None) };
        let known = [CONTROL_TAG, OBJECT_TAG, REQUEST_TAG];
        let (recv, mut answers) = match flow {
            IncomingFlow::Stream { recv, send: Some(send) } if known.contains(&recv.options().tag) => (recv, send),
            other => {
                session.abort(Service::Files.code(), "noctule recv or serve runs there");
                let what = match other.tag() {
                    perf::protocol::CONTROL_TAG | perf::protocol::PING_TAG => "a client of perf or ping",
                    _ => "neither `noctule send` nor `noctule get`",
                };
                return Outcome::Nothing(Some(Failure::Here { text: format!("it is {what}"), code: 7 }));
            }
        };
        let tag = recv.options().tag;
        if tag == REQUEST_TAG {
            return self.give(&session, Records::new(recv), answers).await;
        }
        let is_begun = Arc::new(AtomicBool::new(false));
        let failed = |failure| match is_begun.load(Relaxed) {
            true => Outcome::Spoiled(failure),
            false => Outcome::Transfer(Err(failure)),
        };
        let mut control = Records::new(recv);
        let result = match tag == OBJECT_TAG {
            true => self.receive_object(&session, &mut control, &mut answers).await,
            false => self.receive(&session, &mut control, &mut answers, &is_begun).await,
        };
        match result {
            Ok(()) => {
                // Everything is verified and on disk, whether the sender hears it or not; it closes when it has.
                let _ = tokio::time::timeout(PATIENCE, answers.finish()).await;
                let _ = tokio::time::timeout(PATIENCE, session.closed()).await;
                Outcome::Transfer(Ok(()))
            }
            Err(Stop::Dry) => {
                let _ = tokio::time::timeout(PATIENCE, answers.finish()).await;
                let _ = tokio::time::timeout(PATIENCE, session.closed()).await;
                Outcome::Nothing(None)
            }
            Err(Stop::Superseded) => {
                session.abort(1, "the sender goes on over another connection");
                match is_begun.load(Relaxed) {
                    true => {
                        Outcome::Spoiled(Failure::PeerGone("the sender began anew, and part of the first try was written already".into()))
                    }
                    false => Outcome::Nothing(None),
                }
            }
            Err(Stop::Refused(refused)) => {
                let (failure, is_busy) = (Failure::told(&refused), refused.refusal == Refusal::Busy);
                refuse(&session, answers, refused).await;
                match is_busy {
                    true => Outcome::Nothing(Some(failure)),
                    false => failed(failure),
                }
            }
            Err(Stop::Denied(refused)) => {
                session.abort(1, "nothing was asked for");
                failed(Failure::refused(&refused))
            }
            Err(stop @ (Stop::Failed(_) | Stop::Incomplete { .. })) => {
                let failure = match stop {
                    Stop::Failed(failure) => failure,
                    Stop::Incomplete { failed, of, first } => Failure::incomplete(failed, of, Failure::refused(&first)),
                    _ => gone(),
                };
                // What was said last is still to arrive.
                let _ = tokio::time::timeout(LAST_WORD, session.closed()).await;
                session.abort(1, "failed");
                let is_interrupted = session.close_reason().is_some_and(|reason| reason.is_remote && reason.application == INTERRUPTED);
                failed(if is_interrupted { Failure::PeerGone("the sender was interrupted".into()) } else { failure })
            }
        }
    }

    /// `is_begun` is set when it begins to write where nothing can be taken back.
    async fn receive(
        &self,
        session: &Session,
        control: &mut Records,
        answers: &mut SendStream,
        is_begun: &Arc<AtomicBool>,
    ) -> Result<(), Stop> {
        let destination = self.destination(&self.may_write(session)?, is_begun)?;
        let place = self.shares.enter(session.peer_key())?;
        control.set_idle(IDLE);
        let manifest = manifest(control, place).await?;
        // From here on content counts, or what the sender says about its work.
        control.set_idle(Duration::MAX);
        if manifest.hello.is_dry {
            return receive::run(session, control, answers, destination, manifest, &self.reporter, std::future::pending()).await;
        }
        let turn = self.turns.take(work(session, &destination, manifest.id)?, session.clone(), self.once).await?;
        receive::run(session, control, answers, destination, manifest, &self.reporter, turn.stop()).await
    }

    async fn receive_object(&self, session: &Session, control: &mut Records, answers: &mut SendStream) -> Result<(), Stop> {
        let destination = self.destination(&self.may_write(session)?, &Arc::default())?;
        let mut place = self.shares.enter(session.peer_key())?;
        control.set_idle(IDLE);
        let offer = object::recv::offer(control, &mut place).await?;
        control.set_idle(Duration::MAX);
        let turn = self.turns.take(work(session, &destination, offer.id())?, session.clone(), self.once).await?;
        object::recv::run(session, control, answers, destination, offer, place, self.above.as_ref(), &self.reporter, turn.stop()).await
    }

    /// What this session's peer may do, if it may write at all.
    fn may_write(&self, session: &Session) -> Result<Grant, Refused> {
        let grant = self.gate.grant(&session.peer_key()).unwrap_or_default();
        match (&self.takes, grant.may_write) {
            (Takes::Nothing, _) => {
                not_allowed("the other side offers files (noctule serve), and takes none unless it is started with --writable")
            }
            (_, true) => Ok(grant),
            (_, false) => not_allowed(
                "the receiver lets this key connect, but not write: its line in the file of authorised keys there lacks the option `write`",
            ),
        }
    }

    fn destination(&self, grant: &Grant, is_begun: &Arc<AtomicBool>) -> Result<Destination, Refused> {
        let Takes::Into(target, rules) = &self.takes else { return Ok(Destination::Stdout(Arc::clone(is_begun))) };
        let overwrite = rules.overwrite || grant.may_overwrite;
        let rules = Rules { overwrite, may_delete: rules.may_delete || grant.may_delete, ..*rules };
        let below = grant.directory.as_deref();
        target.below(below, rules).map(Destination::Directory).map_err(|e| Refused::from_io(below.unwrap_or(Path::new(".")), &e))
    }
}

impl Server {
    /// One session of a peer that asks for files.
    async fn give(&self, session: &Session, mut control: Records, mut out: SendStream) -> Outcome {
        // It is not known any more when the session has ended.
        let from = match session.far_address() {
            Some(far) => far.to_string(),
            None => session.remote_address().map_or_else(|| "?".to_owned(), |a| a.to_string()),
        };
        let mut names = Vec::new();
        let result = match self.gathered(session, &mut control, &mut out, &mut names).await {
            Ok((Gathered { sources, mut place, is_object: true }, options)) => {
                match object::give::open(sources, &mut place, session, &mut out).await {
                    Ok(Ok(file)) => object::give::run(session, file, options.limit, &mut out).await.map(Some),
                    Ok(Err(refused)) => {
                        let failure = Failure::told(&refused);
                        refuse(session, out, refused).await;
                        Err(failure)
                    }
                    Err(failure) => Err(failure),
                }
            }
            Ok((Gathered { sources, place: _place, .. }, options)) => {
                Sending::new(sources, options, out, control).run(session, &Reporter::silent()).await
            }
            Err(Stop::Refused(refused)) => {
                let failure = Failure::told(&refused);
                refuse(session, out, refused).await;
                Err(failure)
            }
            Err(Stop::Failed(failure)) => Err(failure),
            Err(_) => Err(gone()),
        };
        if result.is_ok() {
            let _ = tokio::time::timeout(PATIENCE, session.closed()).await;
        } else {
            let _ = tokio::time::timeout(LAST_WORD, session.closed()).await;
            session.abort(1, "failed");
        }
        self.log(session, &from, &names, &result);
        Outcome::Nothing(None)
    }

    /// Reads what is asked for, and finds it.
    async fn gathered(
        &self,
        session: &Session,
        control: &mut Records,
        out: &mut SendStream,
        names: &mut Vec<Vec<u8>>,
    ) -> Result<(Gathered, Options), Stop> {
        let Some(offered) = &self.offered else {
            return not_allowed("the other side only takes files (noctule recv); noctule serve offers a directory");
        };
        control.set_idle(IDLE);
        let Some(Record::Request(request)) = control.next().await? else { return Err(protocol("nothing is asked for").into()) };
        control.set_idle(Duration::MAX);
        names.clone_from(&request.paths);
        let grant = self.gate.grant(&session.peer_key()).unwrap_or_default();
        if !grant.may_read {
            let message = "the other side lets this key connect, but get nothing: its line in the file of authorised keys there lacks the option `read`";
            return not_allowed(message);
        }
        let mut place = self.shares.enter(session.peer_key())?;
        let asked = (request.limit > 0).then(|| Bandwidth::from_bytes_per_sec(request.limit as f64));
        let options = Options {
            is_dry: request.is_dry,
            is_update: request.is_update,
            streams: request.streams.min(STREAMS),
            limit: offered.limit.into_iter().chain(asked).min_by(|a, b| a.bytes_per_sec().total_cmp(&b.bytes_per_sec())),
            patience: Some(IDLE),
            ..Options::default()
        };
        let looking = Arc::new(Looking::default());
        let ending = Ending(Arc::clone(&looking));
        let (offered, of_work) = (Arc::clone(offered), Arc::clone(&looking));
        let mut work = tokio::task::spawn_blocking(move || {
            let sources = offered.offer.gather(grant.directory.as_deref(), &request, &mut place, &of_work)?;
            Ok::<_, Refused>(Gathered { sources, place, is_object: request.is_object })
        });
        let mut tick = tokio::time::interval(TELL_EVERY);
        let gathered = loop {
            tokio::select! {
                gathered = &mut work => break gathered.map_err(|e| Failure::system("a thread", e))??,
                reason = session.closed() => {
                    return Err(Failure::PeerGone(format!("{}, while its files were looked for", reason.reason)).into());
                }
                _ = tick.tick() => {
                    out.write_all(&Record::Working { done: looking.entries.load(Relaxed), total: 0 }.bytes()).await?;
                }
            }
        };
        drop(ending);
        Ok((gathered, options))
    }

    /// What became of a request.
    fn log(&self, session: &Session, from: &str, names: &[Vec<u8>], result: &Result<Option<Summary>, Failure>) {
        let key = session.peer_key();
        let shown: Vec<String> = names.iter().take(SHOWN).map(|name| super::shown(name)).collect();
        let mut what = if names.is_empty() { "everything".to_owned() } else { shown.join(", ") };
        if names.len() > SHOWN {
            what += &format!(" and {} more", names.len() - SHOWN);
        }
        if self.reporter.is_json() {
            let mut event = json!({"event": "request", "address": from, "key": key.to_string(), "names": shown, "ok": result.is_ok()});
            match result {
                Ok(Some(summary)) => (event["files"], event["bytes"]) = (summary.files.into(), summary.bytes.into()),
                Ok(None) => event["list"] = true.into(),
                Err(failure) => event["message"] = failure.to_string().into(),
            }
            return self.reporter.event(&event);
        }
        match result {
            Ok(Some(Summary { files, bytes, .. })) => tracing::info!(files, bytes, "sent {what}"),
            Ok(None) => tracing::info!("listed {what}"),
            Err(failure) => tracing::warn!(code = failure.exit_code(), "not sent: {what}: {failure}"),
        }
    }
}

/// What was asked for, and its place.
struct Gathered {
    sources: super::source::Sources,
    place: super::shares::Place,
    is_object: bool,
}

/// Ends the looking, however it is left.
struct Ending(Arc<Looking>);

impl Drop for Ending {
    fn drop(&mut self) {
        self.0.is_over.store(true, Relaxed);
    }
}

fn not_allowed<T, E: From<Refused>>(message: &str) -> Result<T, E> {
    Err(Refused { refusal: Refusal::NotAllowed, path: Vec::new(), message: message.into() }.into())
}

/// Tells the other side why, and ends the session.
async fn refuse(session: &Session, mut answers: SendStream, refused: Refused) {
    // It may leave as soon as it has heard: that is no failure of its own.
    if answers.write_all(&Record::from(refused).bytes()).await.is_ok() {
        let _ = tokio::time::timeout(LAST_WORD, answers.finish()).await;
    }
    let _ = tokio::time::timeout(LAST_WORD, session.closed()).await;
    session.abort(1, "refused");
}

/// What of this session must not be done by two at a time.
fn work(session: &Session, destination: &Destination, manifest: Hash) -> Result<Work, Refused> {
    let directory = match destination {
        Destination::Directory(target) => Some(target.identity().map_err(|e| Refused::from_io(Path::new("."), &e))?),
        Destination::Stdout(_) => None,
    };
    Ok(Work { sender: session.peer_key(), directory, manifest })
}

/// How much transfers may take.
pub fn limits(args: &LimitArgs) -> Limits {
    let in_all = usize::from(args.max_transfers);
    let per_key = Limits::default().per_key.min(in_all);
    let size = |size: crate::units::Size| usize::try_from(size.0).unwrap_or(usize::MAX);
    Limits { per_key, in_all, memory: size(args.manifest_memory), objects: size(args.object_memory), entries: args.max_entries }
}

//! `noctule recv`: an endpoint that serves senders, many at once.

use super::manifest::manifest;
use super::object::recv::Above;
use super::object::{self, OBJECT_TAG};
use super::progress::Reporter;
use super::receive::{self, Destination, IDLE, Stop};
use super::shares::{Limits, Shares};
use super::target::{Refused, Rules, Target};
use super::turn::{Turns, Work};
use super::wire::{Record, Records, Refusal};
use super::{CONTROL_TAG, DATA_TAG};
use crate::cli::RecvArgs;
use crate::code::{Code, gate::Gate};
use crate::failure::Failure;
use crate::identity;
use crate::identity::authorised::{Access, Grant, Wanted};
use crate::invitation::Invitation;
use crate::overlay::{self, Gateway};
use blake3::Hash;
use noctule::{Endpoint, FlowOptions, IncomingFlow, NodeConfig, PublicKey, SendStream, Session};
use serde_json::json;
use std::io::ErrorKind;
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

/// What all sessions share.
struct Server {
    gate: Gate,
    /// `None`: to standard output.
    target: Option<Target>,
    rules: Rules,
    once: bool,
    reporter: Reporter,
    /// The node that this end is attached to, by which objects come down trees.
    above: Option<Above>,
    turns: Turns,
    shares: Arc<Shares>,
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

/// Receives until interrupted, or once.
pub async fn run(args: RecvArgs) -> Result<(), Failure> {
    if args.stdout && crate::terminal::was_closed(std::io::stdout()) {
        return Err(Failure::Usage("--stdout writes to standard output, which is closed".into()));
    }
    if args.one_way {
        return object::listen::run(args).await;
    }
    let (mut config, is_ephemeral) = identity::lasting_config(args.identity.key.as_deref())?;
    let access = Access::load(&args.access, args.code, Wanted::Files)?;
    config.node = NodeConfig { congestion: args.cc.unwrap_or_default().0, authorised: access.keys(), ..NodeConfig::default() };
    identity::protect(&mut config.node, &args.identity)?;
    overlay::configure(&mut config.node, &args.via, Some(&access))?;
    args.trace.apply(&mut config, "noctule recv")?;
    let public = config.identity.public();
    let rules = Rules::of(&args);
    let target = match args.stdout {
        true => None,
        false => Some(Target::open(&args.into, rules).map_err(|e| match e.kind() {
            ErrorKind::NotFound => Failure::Target { path: args.into.display().to_string(), error: "no such directory".into() },
            _ => Failure::target(&args.into, &e),
        })?),
    };
    let endpoint = overlay::bind(&args.listen, &args.via, config)?;
    let _farewell = Farewell(endpoint.clone());
    let gateway = Gateway::attach(&endpoint, public, &args.via, &args.identity, true).await?;
    let reporter = Reporter::new(args.json, args.stdout).logging();
    let invitation = Invitation::new(endpoint.local_addr(), public, &args.identity, &args.via);
    let tell = {
        let (reporter, is_json) = (reporter.clone(), args.json);
        Box::new(move |text: &str, event: serde_json::Value| match is_json {
            true => reporter.event(&event),
            false => reporter.say(text),
        })
    };
    let commands = {
        let invitation = invitation.clone();
        move |code: Option<&Code>| format!("  {}", invitation.command("send FILE...", code))
    };
    let gate = Gate::new(access, public, tell, commands)?;
    greet(&args, &endpoint, public, is_ephemeral, &gate, &invitation);
    let once = args.once || args.stdout;
    let above = gateway.as_ref().map(|g| Above { node: g.key(), flows: g.expected() });
    let server =
        Arc::new(Server { gate, target, rules, once, reporter, above, turns: Turns::default(), shares: Shares::new(limits(&args)) });
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
                Outcome::Transfer(Err(failure)) if args.json => failure.of_transfer(false).report(),
                Outcome::Nothing(Some(failure)) if args.json => failure.report(),
                Outcome::Transfer(_) | Outcome::Nothing(_) => {}
            }
        }
    }
}

/// Tells the peers that this end goes, however it goes.
pub struct Farewell(pub Endpoint);

impl Drop for Farewell {
    fn drop(&mut self) {
        self.0.close(INTERRUPTED, "interrupted");
    }
}

/// Says what the sender has to type.
fn greet(args: &RecvArgs, endpoint: &Endpoint, public: PublicKey, is_ephemeral: bool, gate: &Gate, invitation: &Invitation) {
    let local = endpoint.local_addr();
    identity::warn_of_plaintext(&args.identity);
    if args.json {
        let event = json!({
            "event": "listening", "address": local.to_string(), "public_key": public.to_string(), "fingerprint": public.fingerprint(),
            "ephemeral": is_ephemeral, "confined": crate::sandbox::is_on(), "code": gate.code().map(|code| code.to_string()), "command": invitation.command("send FILE...", gate.code().as_ref())
        });
        // Contents have standard output for themselves.
        if args.stdout {
            tell!("{event}")
        } else {
            say!("{event}")
        }
        return;
    }
    if crate::terminal::is_quiet() && gate.code().is_none() {
        return;
    }
    if is_ephemeral {
        note!("this key is for this run only, because none could be kept; noctule keygen -o FILE makes a lasting one, --key FILE uses it");
    }
    let into = if args.stdout { "to standard output".to_owned() } else { format!("into {}", args.into.display()) };
    tell!(
        "receiving {into} on {}; on the other host:\n\n{}\n\n{}; this side's fingerprint: {}{}",
        invitation.place(),
        gate.commands(),
        gate.access().shown(),
        public.fingerprint(),
        invitation.notes()
    );
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
        // Somebody looked in and left, or was turned away.
        // A small transfer opens everything at once. What opens the conversation may be lost, and its data come first.
        let begins = |options: &FlowOptions| options.tag != DATA_TAG && (options.tag != OBJECT_TAG || options.bidirectional);
        let Some(flow) = self.gate.first_flow_if(&session, PATIENCE, begins).await else { return Outcome::Nothing(None) };
        let (recv, mut answers) = match flow {
            IncomingFlow::Stream { recv, send: Some(send) } if [CONTROL_TAG, OBJECT_TAG].contains(&recv.options().tag) => (recv, send),
            _ => {
                session.abort(1, "this is noctule recv");
                return Outcome::Nothing(Some(Failure::Stranger("it is no `noctule send`".into())));
            }
        };
        let is_object = recv.options().tag == OBJECT_TAG;
        let is_begun = Arc::new(AtomicBool::new(false));
        let failed = |failure| match is_begun.load(Relaxed) {
            true => Outcome::Spoiled(failure),
            false => Outcome::Transfer(Err(failure)),
        };
        let mut control = Records::new(recv);
        let result = match is_object {
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
                let failure = Failure::refused(&refused);
                let is_busy = refused.refusal == Refusal::Busy;
                let mut out = Vec::new();
                Record::Refused { refusal: refused.refusal, path: refused.path, message: refused.message }.emit(&mut out);
                // The sender may leave as soon as it has heard: that is no failure of its own.
                if answers.write_all(&out).await.is_ok() {
                    let _ = tokio::time::timeout(LAST_WORD, answers.finish()).await;
                }
                let _ = tokio::time::timeout(LAST_WORD, session.closed()).await;
                session.abort(1, "refused");
                match is_busy {
                    true => Outcome::Nothing(Some(failure)),
                    false => failed(failure),
                }
            }
            Err(Stop::Failed(failure)) => {
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
        match grant.may_write {
            true => Ok(grant),
            false => Err(Refused { refusal: Refusal::NotAllowed, path: Vec::new(), message: "may not write".into() }),
        }
    }

    fn destination(&self, grant: &Grant, is_begun: &Arc<AtomicBool>) -> Result<Destination, Refused> {
        let Some(target) = &self.target else { return Ok(Destination::Stdout(Arc::clone(is_begun))) };
        let rules = Rules { overwrite: self.rules.overwrite || grant.may_overwrite, ..self.rules };
        let below = grant.directory.as_deref();
        target.below(below, rules).map(Destination::Directory).map_err(|e| Refused::from_io(below.unwrap_or(Path::new(".")), &e))
    }
}

/// What of this session must not be done by two at a time.
fn work(session: &Session, destination: &Destination, manifest: Hash) -> Result<Work, Refused> {
    let directory = match destination {
        Destination::Directory(target) => Some(target.identity().map_err(|e| Refused::from_io(Path::new("."), &e))?),
        Destination::Stdout(_) => None,
    };
    Ok(Work { sender: session.peer_key(), directory, manifest })
}

fn limits(args: &RecvArgs) -> Limits {
    let in_all = usize::from(args.max_transfers);
    let per_key = Limits::default().per_key.min(in_all);
    let memory = usize::try_from(args.manifest_memory.0).unwrap_or(usize::MAX);
    Limits { per_key, in_all, memory, entries: args.max_entries }
}

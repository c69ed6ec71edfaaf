//! The listening end of codes: lets peers in by their key or by a code, and bounds what a stranger costs until then.

use super::exchange::{self, Proof};
use super::guesses::{Guesses, News};
use super::places::Places;
use super::records::{Line, Record, VERSION, Why};
use super::{Code, TAG, WANTED};
use crate::daemon::strangers::Strangers;
use crate::failure::Failure;
use crate::identity::authorised::{Access, Grant};
use noctule::{FlowOptions, IncomingFlow, PublicKey, RecvStream, SendStream, Session};
use std::net::{IpAddr, Ipv4Addr};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, RwLock};
use std::time::Duration;
use tokio::time::Instant;

/// How long a stranger may take until it has proven that it has the code.
const ATTEMPT: Duration = Duration::from_secs(20);
/// How long a stranger that was declined may take to read that.
const LAST_WORD: Duration = Duration::from_secs(3);

/// Tells the owner of the receiver something: as text, and as an event for programs.
pub type Tell = Box<dyn Fn(&str, serde_json::Value) + Send + Sync>;

/// The commands for the other side, with a code if there is one.
type Commands = Box<dyn Fn(Option<&Code>) -> String + Send + Sync>;

/// See the file's heading.
pub struct Gate {
    access: RwLock<Arc<Access>>,
    ours: PublicKey,
    guesses: Option<Mutex<Guesses>>,
    places: Places,
    strangers: Strangers,
    tell: Tell,
    /// The commands for the other side, with a code.
    commands: Commands,
}

impl Gate {
    /// Lets in what `access` says. `commands` makes the text to show, whenever there is a new code.
    pub fn new(
        access: Access,
        ours: PublicKey,
        tell: Tell,
        commands: impl Fn(Option<&Code>) -> String + Send + Sync + 'static,
    ) -> Result<Self, Failure> {
        let guesses = match access.takes_code() {
            true => {
                let guesses = Guesses::new(|| Code::random().ok(), Instant::now());
                guesses.shown().ok_or_else(|| Failure::System("no randomness from the operating system".into()))?;
                Some(Mutex::new(guesses))
            }
            false => None,
        };
        let access = RwLock::new(Arc::new(access));
        Ok(Self { access, ours, guesses, places: Places::default(), strangers: Strangers::default(), tell, commands: Box::new(commands) })
    }

    /// The code to show at first.
    pub fn code(&self) -> Option<Code> {
        self.guesses.as_ref().and_then(|guesses| lock(guesses).shown().cloned())
    }

    /// The commands for the other side, with the present code.
    pub fn commands(&self) -> String {
        (self.commands)(self.code().as_ref())
    }

    /// Which keys may open sessions.
    pub fn access(&self) -> Arc<Access> {
        Arc::clone(&self.access.read().unwrap_or_else(PoisonError::into_inner))
    }

    /// Replaces which keys may open sessions; those that are open stay. Whether a code is taken stays as it is.
    pub fn set_access(&self, access: Access) {
        *self.access.write().unwrap_or_else(PoisonError::into_inner) = Arc::new(access);
    }

    /// What a key may do at present; `None`: nothing, until it proves that it has the code.
    pub fn grant(&self, key: &PublicKey) -> Option<Grant> {
        let listed = self.access().grant(key);
        match self.guesses.as_ref().is_some_and(|guesses| lock(guesses).is_admitted(key)) {
            true => Some(Grant { may_write: true, may_read: true, may_proxy: true, ..listed.unwrap_or_default() }),
            false => listed,
        }
    }

    /// The span that adds the peer's key, name and address to every line of the log about a session.
    pub fn span(&self, what: &'static str, session: &Session) -> tracing::Span {
        let key = session.peer_key();
        let from = from(session);
        let owner = self.grant(&key).and_then(|grant| grant.name);
        // A span of the highest level is never filtered out, so that every line names the peer. (A field `name` would clash with the span's own.)
        match what {
            "transfer" => tracing::error_span!("transfer", %from, %key, owner),
            "proxy" => tracing::error_span!("proxy", %from, %key, owner),
            _ => tracing::error_span!("test", %from, %key, owner),
        }
    }

    /// Lets the far end in, by its key or a code, and gives its first flow. `None` if it left, or was refused.
    pub async fn first_flow(&self, session: &Session, patience: Duration) -> Option<IncomingFlow> {
        self.first_flow_if(session, patience, |_| true).await
    }

    /// As `first_flow`, where flows that are opened right after it may arrive before it: `wants` is false for these.
    pub async fn first_flow_if(&self, session: &Session, patience: Duration, wants: impl Fn(&FlowOptions) -> bool) -> Option<IncomingFlow> {
        if self.grant(&session.peer_key()).is_some() {
            return match accept(session, patience, &wants).await? {
                // Its key is listed, but it proves the code all the same, to be sure of this side's key.
                IncomingFlow::Stream { recv, send: Some(send) } if recv.options().tag == TAG => {
                    tokio::time::timeout(ATTEMPT, self.exchange(session, recv, send)).await.ok().flatten()?;
                    accept(session, patience, &wants).await
                }
                flow => Some(flow),
            };
        }
        let mut place = self.places.take(address(session));
        let admitted = tokio::select! {
            admitted = tokio::time::timeout(ATTEMPT, self.attempt(session)) => admitted.ok().flatten(),
            () = place.lost() => None,
        };
        drop(place);
        if admitted.is_none() {
            session.abort(WANTED, "no code was proven in time");
            self.refused();
            return None;
        }
        accept(session, patience, &wants).await
    }

    /// Logs a refused key, at a bounded rate: strangers can make any number of keys.
    fn refused(&self) {
        if let Some(count) = self.strangers.note(std::time::Instant::now()) {
            // The span names key and address.
            tracing::warn!(count, "refused: the key is not listed, and proved no code");
        }
    }

    /// Runs the exchange that a stranger's session has to begin with.
    async fn attempt(&self, session: &Session) -> Option<()> {
        match session.accept_flow().await.ok()? {
            IncomingFlow::Stream { recv, send: Some(send) } if recv.options().tag == TAG => self.exchange(session, recv, send).await,
            // The far end may not know of the code: the error says what is missing.
            _ => {
                session.abort(WANTED, "a code is wanted first");
                None
            }
        }
    }

    /// Runs the exchange on its stream; `None` if the far end has not proven that it has the code. Then the session ends.
    async fn exchange(&self, session: &Session, recv: RecvStream, send: SendStream) -> Option<()> {
        let (mut line, key) = (Line::new(send, recv), session.peer_key());
        match self.converse(session, &mut line, key).await {
            Ok(proof) => line.part(&Record::Admitted(*proof.as_bytes())).await.ok(),
            Err(why) => {
                if let Some(why) = why {
                    let _ = line.part(&Record::Declined(why)).await;
                    let _ = tokio::time::timeout(LAST_WORD, session.closed()).await;
                }
                session.abort(1, "the code was not proven");
                None
            }
        }
    }

    /// Reads the other side's proof, and gives this side's if that was right. An error without a reason: nothing is left to say.
    async fn converse(&self, session: &Session, line: &mut Line, key: PublicKey) -> Result<Proof, Option<Why>> {
        let Ok(Ok(Record::Begin { version, element: theirs })) = line.hear().await else { return Err(None) };
        if version != VERSION {
            return Err(Some(Why::Version));
        }
        let guesses = self.guesses.as_ref().ok_or(Some(Why::NoCodes))?;
        let begun = lock(guesses).begin(&key, Instant::now());
        self.spread(guesses, session);
        let (code, generation) = begun.map_err(Some)?;
        let (begun, ours) = exchange::receiver(&code, key, self.ours);
        let proofs = begun.finish(&theirs).ok_or(None)?;
        line.say(&Record::Answer(ours)).await.map_err(|_| None)?;
        let Ok(Ok(Record::Proof(proof))) = line.hear().await else { return Err(None) };
        // Judged and counted in one step, so that concurrent exchanges get no more guesses than successive ones.
        let verdict = lock(guesses).judge(generation, &key, Proof::from_bytes(proof) == proofs.sender, Instant::now());
        self.spread(guesses, session);
        verdict.map(|()| proofs.receiver).map_err(Some)
    }

    /// Reports what changed about the codes.
    fn spread(&self, guesses: &Mutex<Guesses>, session: &Session) {
        let news = std::mem::take(&mut lock(guesses).news);
        for news in news {
            let from = || from(session);
            match news {
                News::Wrong(left) => {
                    let (from, key) = (from(), session.peer_key());
                    (self.tell)(
                        &format!("noctule: a wrong code from {from} (key {key}); {left} more withdraw it"),
                        serde_json::json!({"event": "wrong_code", "address": from, "key": key.to_string(), "left": left}),
                    );
                }
                News::Fresh(code) => (self.tell)(
                    &format!("noctule: the code before is not valid any more; the new one:\n\n{}\n", (self.commands)(Some(&code))),
                    serde_json::json!({"event": "code", "code": code.to_string()}),
                ),
                News::NoMore => (self.tell)(
                    "noctule: no code is taken any more in this run; start it again, or name keys with --allow",
                    serde_json::json!({"event": "code", "code": null}),
                ),
                News::Admitted(key) => {
                    let from = from();
                    (self.tell)(
                        &format!("noctule: {from} had the code: its key {key} is taken for the rest of this run"),
                        serde_json::json!({"event": "admitted", "address": from, "key": key.to_string()}),
                    );
                    if let Some((file, error)) = self.access().remember(&key, &from) {
                        (self.tell)(
                            &format!("noctule: warning: the key could not be added to {}: {error}", file.display()),
                            serde_json::json!({"event": "not_remembered", "key": key.to_string()}),
                        );
                    }
                }
            }
        }
    }
}

async fn accept(session: &Session, patience: Duration, wants: impl Fn(&FlowOptions) -> bool) -> Option<IncomingFlow> {
    match tokio::time::timeout(patience, session.accept_flow_if(wants)).await {
        Ok(flow) => flow.ok(),
        Err(_) => {
            session.abort(1, "no flow was opened");
            None
        }
    }
}

/// The session's origin as text: its address in the overlay, or address and port.
fn from(session: &Session) -> String {
    match session.far_address() {
        Some(far) => far.to_string(),
        None => session.remote_address().map_or_else(|| "?".to_owned(), |a| a.to_string()),
    }
}

/// The session's origin as the address of its host, for limits per host.
fn address(session: &Session) -> IpAddr {
    session.far_address().or_else(|| session.remote_address().map(|a| a.ip())).unwrap_or(Ipv4Addr::UNSPECIFIED.into())
}

fn lock(guesses: &Mutex<Guesses>) -> MutexGuard<'_, Guesses> {
    guesses.lock().unwrap_or_else(PoisonError::into_inner)
}

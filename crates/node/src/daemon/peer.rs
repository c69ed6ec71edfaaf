//! Another node of the file: its links, if it is a neighbour, and the session with it.
//!
//! A neighbour always has a session, so that its link is kept alive (P23). A node further away gets one when there is something to send to it.

use super::config::RemoteNode;
use super::counted::Counted;
use super::lanes::Lanes;
use super::split::PeerSplit;
use noctule::{CloseReason, Endpoint, Link, LinkId, OpenError, PublicKey, Session};
use std::net::IpAddr;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant, SystemTime};
use tokio::sync::{Notify, watch};

/// A session that the far end has not taken after this long is given up.
const ACCEPT_PATIENCE: Duration = Duration::from_secs(10);
/// Pauses between attempts double from the first to the second of these. A first flight that nobody answers is repeated each second as well; a node
/// that was away for long is to be found soon after it is back.
const BACKOFF: (Duration, Duration) = (Duration::from_millis(100), Duration::from_millis(500));

/// A pause that doubles, with a random part so that many nodes do not move in step.
#[derive(Debug)]
pub struct Backoff(Duration);

impl Default for Backoff {
    fn default() -> Self {
        Self(BACKOFF.0)
    }
}

impl Backoff {
    /// The next pause.
    pub fn next(&mut self) -> Duration {
        let mut byte = [128];
        // Without randomness the pause is merely not spread.
        let _ = getrandom::fill(&mut byte);
        let pause = self.0.mul_f64(0.75 + f64::from(byte[0]) / 512.0);
        self.0 = (self.0 * 2).min(BACKOFF.1);
        pause
    }

    /// It went well.
    pub fn reset(&mut self) {
        self.0 = BACKOFF.0;
    }
}

/// See the file's heading.
#[derive(Debug)]
pub struct Peer {
    /// Its identity.
    pub key: PublicKey,
    state: Mutex<PeerState>,
    /// The session, while there is one.
    session: watch::Sender<Option<Session>>,
    /// Sessions beside that one, by other routes that are as good.
    lanes: Lanes,
    /// A link came, or a session is wanted.
    news: Notify,
    /// Flows that wait for a session.
    waiting: AtomicUsize,
    endpoint: Endpoint,
    /// TCP connections with it that go as streams.
    pub split: PeerSplit,
}

#[derive(Debug)]
struct PeerState {
    config: RemoteNode,
    /// Newest last.
    links: Vec<Arc<Link>>,
    is_wanted: bool,
    /// The last thing that went wrong with link or session.
    trouble: Option<(SystemTime, String)>,
    up_since: Option<Instant>,
    /// What it took to open the session, last.
    round_trip: Option<Duration>,
    /// Times that a link came up.
    links_up: u64,
}

/// What is known of a peer's link and session.
#[derive(Clone, Debug)]
pub struct PeerView {
    /// What the file says.
    pub config: RemoteNode,
    /// Its newest link.
    pub link: Option<Arc<Link>>,
    /// The session.
    pub session: Option<Session>,
    /// Sessions by further routes that are as good.
    pub further: Vec<Session>,
    /// The last thing that went wrong, and when.
    pub trouble: Option<(SystemTime, String)>,
    /// How long the link has been up.
    pub up_for: Option<Duration>,
    /// Times that a link came up.
    pub links_up: u64,
}

impl Peer {
    /// A peer without link and session.
    pub fn new(endpoint: Endpoint, config: RemoteNode) -> Arc<Self> {
        let state = PeerState {
            config: config.clone(),
            links: Vec::new(),
            is_wanted: false,
            trouble: None,
            up_since: None,
            round_trip: None,
            links_up: 0,
        };
        Arc::new(Self {
            key: config.key,
            state: Mutex::new(state),
            session: watch::Sender::new(None),
            lanes: Lanes::default(),
            news: Notify::new(),
            waiting: AtomicUsize::new(0),
            endpoint,
            split: PeerSplit::default(),
        })
    }

    fn state(&self) -> MutexGuard<'_, PeerState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The name that the file gives it.
    pub fn name(&self) -> String {
        self.state().config.name.clone()
    }

    /// What the file says of it.
    pub fn config(&self) -> RemoteNode {
        self.state().config.clone()
    }

    /// The file says something else now.
    pub fn set_config(&self, config: RemoteNode) {
        self.state().config = config;
        self.news.notify_one();
    }

    /// Everything for status.
    pub fn view(&self) -> PeerView {
        let s = self.state();
        PeerView {
            config: s.config.clone(),
            link: s.links.last().cloned(),
            session: self.session.borrow().clone(),
            further: self.lanes.sessions(),
            trouble: s.trouble.clone(),
            up_for: s.up_since.map(|t| t.elapsed()),
            links_up: s.links_up,
        }
    }

    /// Notes and logs what went wrong; the same trouble over and over is logged once.
    pub fn note_trouble(&self, text: String) {
        let mut state = self.state();
        let is_new = state.trouble.as_ref().is_none_or(|(_, old)| *old != text);
        if is_new {
            tracing::warn!(node = %state.config.name, "{text}");
        } else {
            tracing::debug!(node = %state.config.name, "{text}");
        }
        state.trouble = Some((SystemTime::now(), text));
    }

    /// Notes that a link or a session is over. An end that its owner wanted is no trouble, though status shows it.
    fn note_end(&self, what: &str, reason: &CloseReason) {
        let text = format!("{what}: {reason}");
        if !reason.is_clean() {
            return self.note_trouble(text);
        }
        let mut state = self.state();
        tracing::info!(node = %state.config.name, "{text}");
        state.trouble = Some((SystemTime::now(), text));
    }

    /// A link came up: it is this peer's until it is down.
    pub fn add_link(self: &Arc<Self>, link: Link) {
        let link = Arc::new(link);
        {
            let mut state = self.state();
            state.links.push(Arc::clone(&link));
            state.links_up += 1;
            state.up_since.get_or_insert_with(Instant::now);
            state.trouble = None;
            tracing::info!(node = %state.config.name, remote = link.remote_address().map(tracing::field::display), "link up");
        }
        self.news.notify_one();
        let this = Arc::clone(self);
        tokio::spawn(async move {
            let reason = link.closed().await;
            let is_last = {
                let mut state = this.state();
                state.links.retain(|l| l.id() != link.id());
                if state.links.is_empty() {
                    state.up_since = None;
                }
                state.links.is_empty()
            };
            if is_last {
                this.note_end("link down", &reason);
            } else {
                tracing::info!(node = %this.name(), %reason, "a link is down, another one is up");
            }
        });
    }

    /// Its links, which are not its any more.
    pub fn take_links(&self) -> Vec<Arc<Link>> {
        std::mem::take(&mut self.state().links)
    }

    /// Ends all its links.
    pub fn drop_links(&self, why: &str) {
        for link in self.take_links() {
            link.close(0, why);
        }
    }

    /// Has it a link that is up?
    pub fn has_link(&self) -> bool {
        !self.state().links.is_empty()
    }

    /// Its newest link that is up.
    pub fn newest_link(&self) -> Option<Arc<Link>> {
        self.state().links.last().cloned()
    }

    /// The session with it, whichever it is.
    pub fn sessions(&self) -> watch::Receiver<Option<Session>> {
        self.session.subscribe()
    }

    /// Something is to be sent to it.
    pub fn want_session(&self) {
        self.state().is_wanted = true;
        self.news.notify_one();
    }

    /// A session with it, once there is one.
    pub async fn session(&self) -> Session {
        let mut sessions = self.session.subscribe();
        let waiting = Counted::new(&self.waiting);
        loop {
            if let Some(session) = sessions.borrow_and_update().clone().filter(|s| s.close_reason().is_none()) {
                drop(waiting);
                return session;
            }
            self.want_session();
            if sessions.changed().await.is_err() {
                std::future::pending::<()>().await;
            }
        }
    }

    /// A session by number `turn`, counted round, of the equally good routes to it, once there is one; and what it took to open it: a round trip, and what was
    /// lost meanwhile. A neighbour with a link has one session, over that.
    pub async fn session_by(&self, turn: usize) -> (Session, Option<Duration>) {
        let addresses = self.state().config.addresses.clone();
        let reachable = addresses.iter().find(|a| self.endpoint.next_hop(**a).is_some()).filter(|_| !self.has_link());
        let turn = reachable.and_then(|address| turn.checked_rem(self.endpoint.ways_at_once(*address))).unwrap_or(0);
        // The first is the one that everything else goes by.
        if let Some(lane) = turn.checked_sub(1)
            && let Some((session, took)) = self.lanes.session(lane, || self.open_over_routes(&addresses, turn)).await
        {
            return (session, Some(took));
        }
        let session = self.session().await;
        (session, self.state().round_trip)
    }

    /// Keeps a session with it for ever.
    pub async fn keep_session(self: Arc<Self>) {
        let mut backoff = Backoff::default();
        loop {
            let (link, addresses, is_wanted) = {
                let s = self.state();
                (s.links.last().cloned(), s.config.addresses.clone(), s.is_wanted)
            };
            let opened = match &link {
                Some(link) => Some(link.open_session()),
                None if is_wanted && !addresses.is_empty() => Some(self.open_over_routes(&addresses, 0)),
                None => None,
            };
            let session = match opened {
                None => {
                    self.news.notified().await;
                    continue;
                }
                Some(Ok(session)) => session,
                // The link has ended just now, and says so itself.
                Some(Err(_)) if link.as_ref().is_some_and(|l| l.stats().is_none()) => {
                    let _ = tokio::time::timeout(backoff.next(), self.news.notified()).await;
                    continue;
                }
                Some(Err(error)) => {
                    self.fail(&format!("no session: {error}"), &mut backoff).await;
                    continue;
                }
            };
            let opened_at = Instant::now();
            match tokio::time::timeout(ACCEPT_PATIENCE, session.accepted()).await {
                Ok(Ok(())) => self.state().round_trip = Some(opened_at.elapsed()),
                Ok(Err(error)) => {
                    self.fail(&format!("the session was not taken: {error}"), &mut backoff).await;
                    continue;
                }
                Err(_) => {
                    self.fail("the session was not answered", &mut backoff).await;
                    continue;
                }
            }
            backoff.reset();
            tracing::info!(node = %self.name(), relayed = link.is_none(), "session open");
            self.session.send_replace(Some(session.clone()));
            let outcome = self.until_over(&session, link.as_ref().map(|l| l.id())).await;
            self.session.send_replace(None);
            match outcome {
                Some(reason) => self.note_end("the session ended", &reason),
                None => tracing::info!(node = %self.name(), "a new link is up: the session moves to it"),
            }
        }
    }

    async fn fail(&self, text: &str, backoff: &mut Backoff) {
        self.note_trouble(text.to_owned());
        // A flow that waits for it goes on wanting it.
        self.state().is_wanted = self.waiting.load(Relaxed) > 0;
        // A link that comes up is a reason to try at once.
        let _ = tokio::time::timeout(backoff.next(), self.news.notified()).await;
    }

    /// Waits until the session is over, or until there is a newer link than the one that it runs over, if any: then `None`.
    async fn until_over(&self, session: &Session, over: Option<LinkId>) -> Option<CloseReason> {
        let closed = session.closed();
        tokio::pin!(closed);
        loop {
            tokio::select! {
                outcome = &mut closed => return Some(outcome.reason),
                () = self.news.notified() => {
                    if self.state().links.last().is_some_and(|l| Some(l.id()) != over) {
                        return None;
                    }
                }
            }
        }
    }

    /// A session to the first of its addresses that a route leads to, by number `turn` of those that are equally good.
    fn open_over_routes(&self, addresses: &[IpAddr], turn: usize) -> Result<Session, OpenError> {
        let mut result = Err(OpenError::Misuse("the node has no address".into()));
        for address in addresses {
            result = self.endpoint.open_session_by(*address, self.key, turn);
            if result.is_ok() {
                break;
            }
        }
        result
    }
}

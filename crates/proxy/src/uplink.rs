//! The session with the server, whichever it is at present.

use crate::stream::{self, Incoming};
use crate::wire::{Answer, Outcome, Record};
use noctule::{Class, PublicKey, SendStream, Session};
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering::Relaxed};
use std::time::Duration;
use tokio::sync::watch;
use tokio::time::timeout;

/// How long a connection waits for a session when there is none.
const PATIENCE: Duration = Duration::from_secs(10);

/// Where sessions are put once they are open. Clones share them.
#[derive(Clone, Debug)]
pub struct Uplink {
    current: Arc<watch::Sender<Option<Session>>>,
    ids: Arc<AtomicU32>,
}

impl Default for Uplink {
    fn default() -> Self {
        Self { current: Arc::new(watch::Sender::new(None)), ids: Arc::default() }
    }
}

impl Uplink {
    /// Connections go by this session from now on; `None`: they wait for another.
    pub fn set(&self, session: Option<Session>) {
        self.current.send_replace(session);
    }

    /// The session, once there is one that lives.
    ///
    /// # Cancel safety
    /// Dropping the future loses nothing.
    pub async fn session(&self) -> Session {
        let mut watch = self.current.subscribe();
        loop {
            let session = watch.borrow_and_update().clone();
            if let Some(session) = session.filter(|session| session.close_reason().is_none()) {
                return session;
            }
            // It does not end before this handle.
            if watch.changed().await.is_err() {
                std::future::pending::<()>().await;
            }
        }
    }

    /// Where the session's packets go at present.
    #[cfg(target_os = "linux")]
    pub(crate) fn server(&self) -> Option<std::net::SocketAddr> {
        self.current.borrow().as_ref().and_then(Session::remote_address)
    }

    /// The same, for a caller that waits.
    pub(crate) async fn soon(&self) -> Result<Session, Answer> {
        let none = |_| Answer::new(Outcome::Unreachable, "there is no session with the server at present");
        timeout(PATIENCE, self.session()).await.map_err(none)
    }

    /// Asks the far end for something, and sends the bytes that are there already; the session that was asked.
    pub(crate) async fn open(&self, request: &Record, first: &[u8], class: Class) -> Result<(PublicKey, SendStream, Incoming), Answer> {
        let session = self.soon().await?;
        let (send, incoming) = stream::open(&session, request, first, class).await?;
        Ok((session.peer_key(), send, incoming))
    }

    /// A number for an association or a listener.
    pub(crate) fn id(&self) -> u32 {
        self.ids.fetch_add(1, Relaxed) & !crate::wire::ACCEPTORS
    }
}

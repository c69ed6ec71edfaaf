//! Sessions with one node by several equally good routes. One flow of datagrams takes one route; several flows are spread over several.

use noctule::{OpenError, Session};
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

/// Routes that are used besides the first, at most.
const MOST_LANES: usize = 7;
/// A session that is not accepted within `PATIENCE` is given up, and not tried again for `PAUSE`.
const PATIENCE: Duration = Duration::from_secs(2);
const PAUSE: Duration = Duration::from_secs(15);

/// See the file's heading.
#[derive(Debug, Default)]
pub struct Lanes([Lane; MOST_LANES]);

#[derive(Debug, Default)]
struct Lane {
    /// Held by the task that opens the session, while others wait. When the last attempt failed.
    opening: tokio::sync::Mutex<Option<Instant>>,
    /// The session, and how long it took to open.
    open: Mutex<Option<(Session, Duration)>>,
}

impl Lane {
    fn get(&self) -> Option<(Session, Duration)> {
        self.open.lock().unwrap_or_else(PoisonError::into_inner).clone().filter(|(session, _)| session.close_reason().is_none())
    }
}

impl Lanes {
    /// The session of a lane, and how long it took to open. Opens it with `open` if there is none; `None` if the far end does not accept it.
    pub async fn session(&self, lane: usize, open: impl FnOnce() -> Result<Session, OpenError>) -> Option<(Session, Duration)> {
        let lane = self.0.get(lane)?;
        let mut failed = lane.opening.lock().await;
        if let Some(there) = lane.get() {
            return Some(there);
        }
        if failed.is_some_and(|at| at.elapsed() < PAUSE) {
            return None;
        }
        let began = Instant::now();
        let session = open().ok()?;
        if !matches!(tokio::time::timeout(PATIENCE, session.accepted()).await, Ok(Ok(()))) {
            *failed = Some(Instant::now());
            return None;
        }
        let opened = (session, began.elapsed());
        *lane.open.lock().unwrap_or_else(PoisonError::into_inner) = Some(opened.clone());
        Some(opened)
    }

    /// The sessions that are open.
    pub fn sessions(&self) -> Vec<Session> {
        self.0.iter().filter_map(|lane| Some(lane.get()?.0)).collect()
    }
}

//! Sessions with one node by several equally good routes: what one flow of datagrams cannot do, take several routes at once, several flows do together.

use noctule::{OpenError, Session};
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

/// Routes that are used beside the first.
const MOST_LANES: usize = 7;
/// A session that nobody answers for so long is given up, and not tried again for so long.
const PATIENCE: Duration = Duration::from_secs(2);
const PAUSE: Duration = Duration::from_secs(15);

/// See the file's heading.
#[derive(Debug, Default)]
pub struct Lanes([Lane; MOST_LANES]);

#[derive(Debug, Default)]
struct Lane {
    /// One opens, the others wait. When nobody answered last.
    opening: tokio::sync::Mutex<Option<Instant>>,
    /// The session, and what it took to open it.
    open: Mutex<Option<(Session, Duration)>>,
}

impl Lane {
    fn get(&self) -> Option<(Session, Duration)> {
        self.open.lock().unwrap_or_else(PoisonError::into_inner).clone().filter(|(session, _)| session.close_reason().is_none())
    }
}

impl Lanes {
    /// The session of a lane with what it took to open it; one that is not there is opened with `open`. None if nobody answers it.
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

    /// Those that are open.
    pub fn sessions(&self) -> Vec<Session> {
        self.0.iter().filter_map(|lane| Some(lane.get()?.0)).collect()
    }
}

//! What became of a connection, for a log.

use crate::user::{Direction, User};
use crate::wire::{Answer, Transport};
use noctule::{FlowStats, PublicKey};
use std::fmt;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, OnceLock};
use std::time::Duration;
use tokio::sync::Notify;
use tokio::time::{Instant, sleep_until};

/// How a connection ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum End {
    /// Both ways, in good order.
    Finished,
    /// Its TCP connection at this end was reset.
    ResetHere,
    /// The same, after the other way had ended.
    ResetBehind,
    /// Its TCP connection at the other end was reset.
    ResetThere,
    /// The session between the two ends is over.
    Lost(String),
    /// It never stood.
    Refused(Answer),
    /// Nothing was heard for the idle time.
    Idle,
    /// The server ended it: a quota is used up, its owner wished it, or the rules allow it no more.
    Closed(String),
}

impl fmt::Display for End {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Finished => f.write_str("finished"),
            Self::ResetHere | Self::ResetBehind => f.write_str("reset at this end"),
            Self::ResetThere => f.write_str("reset at the other end"),
            Self::Lost(why) | Self::Closed(why) => f.write_str(why),
            Self::Refused(answer) => f.write_str(&answer.words()),
            Self::Idle => f.write_str("idle"),
        }
    }
}

/// One connection, or one association of datagrams, that has ended.
#[derive(Clone, Debug)]
pub struct Report {
    /// The key at the other end of the session; `None` if there was no session.
    pub peer: Option<PublicKey>,
    /// Whose the key is, at the server.
    pub user: Option<String>,
    /// TCP or UDP.
    pub transport: Transport,
    /// Where it comes from: an address, if this end knows it.
    pub source: String,
    /// What was asked for.
    pub target: String,
    /// The rule by which the target may be reached or not, at the server.
    pub rule: Option<String>,
    /// Bytes from the source to the target, as far as this end has them.
    pub to_target: u64,
    /// Bytes from the target to the source.
    pub from_target: u64,
    /// What coding made of it.
    pub wire: Wire,
    /// From the request to the end.
    pub duration: Duration,
    /// How it ended.
    pub end: End,
}

/// Takes reports.
pub type Sink = std::sync::Arc<dyn Fn(&Report) + Send + Sync>;

/// What a connection was between the two ends of the session, as far as this end knows.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Wire {
    /// Bytes of source and repair packets that this end sent; `None`: its counts went with the flow, which has ended.
    pub sent: Option<u64>,
    /// The same that it received.
    pub received: Option<u64>,
    /// Repair packets that this end sent.
    pub repairs: Option<u64>,
    /// Packets that were lost, and that this end made up from repair packets.
    pub repaired: Option<u64>,
}

/// Bytes between a socket and a stream, whose they are, and whether they may go on.
#[derive(Debug, Default)]
pub(crate) struct Counts {
    up: AtomicU64,
    down: AtomicU64,
    wire: OnceLock<Wire>,
    /// Bytes that are charged for and still wait for their rate, from the socket and to it.
    waiting_up: AtomicU64,
    waiting_down: AtomicU64,
    /// `None`: nobody limits them.
    user: Option<Arc<User>>,
    end: OnceLock<End>,
    ending: Notify,
}

/// Read at once where nobody limits it.
const CHUNK: usize = 64 << 10;

impl Counts {
    /// Those of a connection of this user.
    pub fn of(user: Arc<User>) -> Self {
        let mut counts = Self::default();
        counts.user = Some(user);
        counts
    }

    /// From the socket.
    pub fn up(&self, bytes: usize) {
        self.up.fetch_add(bytes as u64, Relaxed);
    }
    /// To the socket.
    pub fn down(&self, bytes: usize) {
        self.down.fetch_add(bytes as u64, Relaxed);
    }
    /// From and to the socket.
    pub fn get(&self) -> (u64, u64) {
        (self.up.load(Relaxed), self.down.load(Relaxed))
    }

    /// How much to read from the socket at once.
    pub fn chunk_up(&self) -> usize {
        self.user.as_ref().map_or(CHUNK, |user| user.chunk(Direction::Down))
    }
    /// How much to read for the socket at once.
    pub fn chunk_down(&self) -> usize {
        self.user.as_ref().map_or(CHUNK, |user| user.chunk(Direction::Up))
    }

    /// Waits until bytes of the socket may go on, and counts them. What the user gets comes from the socket: it is the target's, or leads here from outside.
    ///
    /// # Errors
    /// The connection ends.
    pub fn charge_up(&self, bytes: usize) -> Result<Option<Instant>, End> {
        let at = self.charge(Direction::Down, bytes)?;
        self.waiting_up.store(bytes as u64, Relaxed);
        self.up(bytes);
        Ok(at)
    }
    /// These bytes have gone on.
    pub fn is_passed_up(&self) {
        self.waiting_up.store(0, Relaxed);
    }
    /// The same for the socket.
    pub async fn pass_down(&self, bytes: usize) -> Result<(), End> {
        let at = self.charge(Direction::Up, bytes)?;
        self.waiting_down.store(bytes as u64, Relaxed);
        self.wait(at).await;
        self.waiting_down.store(0, Relaxed);
        self.down(bytes);
        Ok(())
    }

    /// Waits until bytes that are charged for may go on.
    pub async fn wait(&self, at: Option<Instant>) {
        if let Some(at) = at.filter(|at| *at > Instant::now()) {
            sleep_until(at).await;
        }
    }

    fn charge(&self, direction: Direction, bytes: usize) -> Result<Option<Instant>, End> {
        self.user.as_ref().filter(|_| bytes > 0).map(|user| user.take(direction, bytes as u64)).transpose().map_err(End::Closed)
    }

    /// Whether a datagram of the socket may go on; counts it.
    pub fn passes_up(&self, bytes: usize) -> bool {
        let passes = self.user.as_ref().is_none_or(|user| user.take_datagram(Direction::Down, bytes as u64));
        if passes {
            self.up(bytes);
        }
        passes
    }
    /// The same for the socket.
    pub fn passes_down(&self, bytes: usize) -> bool {
        let passes = self.user.as_ref().is_none_or(|user| user.take_datagram(Direction::Up, bytes as u64));
        if passes {
            self.down(bytes);
        }
        passes
    }

    /// Ends the connection.
    pub fn end(&self, end: End) {
        let _ = self.end.set(end);
        self.ending.notify_waiters();
    }

    /// Waits until the connection is ended from outside.
    ///
    /// # Cancel safety
    /// Dropping the future loses nothing.
    pub async fn ended(&self) -> End {
        loop {
            // Before the look: what comes in between is heard.
            let ending = self.ending.notified();
            if let Some(end) = self.end.get() {
                return end.clone();
            }
            ending.await;
        }
    }

    /// Whose they are.
    pub fn user(&self) -> Option<&Arc<User>> {
        self.user.as_ref()
    }

    /// Notes what coding made of it.
    pub fn note(&self, sent: &FlowStats, received: &FlowStats) {
        let known = |of: &FlowStats, count: u64| (of.coded_bytes > 0).then_some(count);
        let _ = self.wire.set(Wire {
            sent: known(sent, sent.coded_bytes),
            received: known(received, received.coded_bytes),
            repairs: known(sent, sent.repair_packets),
            repaired: known(received, received.decoded_packets),
        });
    }

    /// What was noted.
    pub fn wire(&self) -> Wire {
        self.wire.get().copied().unwrap_or_default()
    }
}

impl Drop for Counts {
    fn drop(&mut self) {
        let Some(user) = &self.user else { return };
        for (direction, waiting) in [(Direction::Down, &self.waiting_up), (Direction::Up, &self.waiting_down)] {
            match waiting.load(Relaxed) {
                0 => {}
                bytes => user.give_back(direction, bytes),
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::user::{Account, Limits, Users};
    use std::collections::BTreeMap;

    const RATE: u64 = 1000;

    /// Connections that have ended owe nothing: others of their user need not wait for what never passed.
    #[tokio::test(start_paused = true)]
    async fn what_waited_when_its_connection_ended_keeps_no_other_waiting() {
        let key = noctule::SecretKey::from_bytes([1; 32]).public();
        let limits = Limits { rate_up: Some(RATE), rate_down: Some(RATE), ..Limits::default() };
        let account = Account { name: "ann".into(), keys: vec![key], limits };
        let user = Users::new(Limits::default(), vec![account], BTreeMap::new()).of(key);
        for _ in 0..2 {
            // The burst of the beginning.
            let counts = Counts::of(Arc::clone(&user));
            let _ = (counts.pass_down(64 << 10).await, counts.charge_up(64 << 10).map(drop));
            counts.is_passed_up();
        }
        for _ in 0..200 {
            let counts = Counts::of(Arc::clone(&user));
            let at = counts.charge_up(RATE as usize);
            assert!(tokio::time::timeout(Duration::from_millis(1), counts.pass_down(RATE as usize)).await.is_err() && at.is_ok());
        }
        let (counts, began) = (Counts::of(user), Instant::now());
        counts.pass_down(RATE as usize).await.unwrap();
        assert!(began.elapsed() < Duration::from_secs(70), "{:?}", began.elapsed());
        let at = counts.charge_up(RATE as usize).unwrap().unwrap();
        assert!(at - began < Duration::from_secs(70), "{:?}", at - began);
    }
}

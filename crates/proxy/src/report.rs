//! What became of a connection, for a log.

use crate::wire::{Answer, Transport};
use noctule::PublicKey;
use std::fmt;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::Duration;

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
}

impl fmt::Display for End {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Finished => f.write_str("finished"),
            Self::ResetHere | Self::ResetBehind => f.write_str("reset at this end"),
            Self::ResetThere => f.write_str("reset at the other end"),
            Self::Lost(why) => f.write_str(why),
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
    /// TCP or UDP.
    pub transport: Transport,
    /// Who asked for it: an address, if this end knows it.
    pub source: String,
    /// What was asked for.
    pub target: String,
    /// Bytes from the source to the target, as far as this end has them.
    pub to_target: u64,
    /// Bytes from the target to the source.
    pub from_target: u64,
    /// From the request to the end.
    pub duration: Duration,
    /// How it ended.
    pub end: End,
}

/// Takes reports.
pub type Sink = std::sync::Arc<dyn Fn(&Report) + Send + Sync>;

/// Bytes between a socket and a stream.
#[derive(Debug, Default)]
pub(crate) struct Counts {
    up: AtomicU64,
    down: AtomicU64,
}

impl Counts {
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
}

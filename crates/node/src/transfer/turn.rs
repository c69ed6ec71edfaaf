//! Whose turn it is to write: one session at a time for the same sender, directory and manifest.

use super::ours::Identity;
use super::target::Refused;
use super::wire::Refusal;
use blake3::Hash;
use noctule::{PublicKey, Session};
use std::collections::HashMap;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;
use tokio::sync::watch;
use tokio::time::Instant;

/// How long the next try waits for an earlier one to end, or to be seen to be dead.
const PATIENCE: Duration = Duration::from_secs(10);
/// A session that has not answered, or of which nothing at all was heard, for so long is taken for dead if its sender has come again.
const DEAD: Duration = Duration::from_secs(2);
/// Looks at it.
const LOOK: Duration = Duration::from_millis(100);

/// What must be done by one session at a time.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Work {
    /// The sender's key.
    pub sender: PublicKey,
    /// Where to; `None`: standard output.
    pub directory: Option<Identity>,
    /// What.
    pub manifest: Hash,
}

/// A session that does it.
struct Active {
    session: Box<dyn Life>,
    /// Ends it.
    stop: watch::Sender<bool>,
    /// Closed when it has let go of its files.
    gone: watch::Receiver<()>,
}

/// What is asked of a session that has the turn.
pub trait Life: Send {
    /// How long it has not answered although it should have; `None`: it answers.
    fn silence(&self) -> Option<Duration>;
    /// Packets that have come. A sender that was killed owes no answer, but sends nothing more.
    fn heard(&self) -> u64;
    /// It is over.
    fn is_over(&self) -> bool;
}

impl Life for Session {
    fn silence(&self) -> Option<Duration> {
        Session::silence(self)
    }

    fn heard(&self) -> u64 {
        self.stats().all_paths().map(|p| p.received_packets).sum()
    }

    fn is_over(&self) -> bool {
        self.close_reason().is_some()
    }
}

/// All turns of a receiver.
#[derive(Default)]
pub struct Turns {
    active: Mutex<HashMap<Work, Active>>,
}

/// The right to write a transfer's files; given back when dropped.
pub struct Turn<'a> {
    turns: &'a Turns,
    work: Work,
    stopped: watch::Receiver<bool>,
    _going: watch::Sender<()>,
}

impl std::fmt::Debug for Turn<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        self.work.fmt(f)
    }
}

impl Turn<'_> {
    /// Ready when a later try of the same sender has come and this one is to let go.
    pub fn stop(&self) -> impl Future<Output = ()> + use<> {
        let mut stopped = self.stopped.clone();
        async move {
            if stopped.wait_for(|is_stopped| *is_stopped).await.is_err() {
                std::future::pending().await
            }
        }
    }
}

impl Drop for Turn<'_> {
    fn drop(&mut self) {
        self.turns.active().remove(&self.work);
    }
}

fn busy(message: &str) -> Refused {
    Refused { refusal: Refusal::Busy, path: Vec::new(), message: message.to_owned() }
}

impl Turns {
    fn active(&self) -> MutexGuard<'_, HashMap<Work, Active>> {
        self.active.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Waits for the turn. An earlier session of the same sender is ended once it does not answer any more; one that answers keeps it.
    ///
    /// # Errors
    /// Busy: that session goes on, another sender writes the same there, or `is_only` and any transfer is running.
    pub async fn take(&self, work: Work, session: impl Life + Clone + 'static, is_only: bool) -> Result<Turn<'_>, Refused> {
        let deadline = Instant::now() + PATIENCE;
        let mut heard = (0, Instant::now());
        loop {
            let mut gone = {
                let mut active = self.active();
                if active.keys().any(|w| w.sender != work.sender && (w.directory, w.manifest) == (work.directory, work.manifest)) {
                    return Err(busy("another sender writes the same files to the same directory"));
                }
                let is_only_taken = is_only && !active.is_empty();
                match active.get(&work) {
                    None if is_only_taken => return Err(busy("this receiver takes one transfer only, and another one is under way")),
                    None => {
                        let ((stop, stopped), (going, gone)) = (watch::channel(false), watch::channel(()));
                        active.insert(work, Active { session: Box::new(session.clone()), stop, gone });
                        return Ok(Turn { turns: self, work, stopped, _going: going });
                    }
                    Some(earlier) => {
                        let packets = earlier.session.heard();
                        if heard.0 != packets {
                            heard = (packets, Instant::now());
                        }
                        let is_mute = heard.1.elapsed() >= DEAD || earlier.session.silence().is_some_and(|time| time >= DEAD);
                        if earlier.session.is_over() || is_mute {
                            earlier.stop.send_replace(true);
                        }
                        earlier.gone.clone()
                    }
                }
            };
            if Instant::now() >= deadline {
                return Err(busy("the same transfer is under way in another session of this sender, which answers"));
            }
            let _ = tokio::time::timeout(LOOK, async { while gone.changed().await.is_ok() {} }).await;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::Arc;
    use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

    /// Milliseconds of silence; 0: it answers; `u64::MAX`: it is over.
    #[derive(Clone, Default)]
    struct Peer(Arc<AtomicU64>);

    impl Life for Peer {
        fn silence(&self) -> Option<Duration> {
            Some(self.0.load(Relaxed)).filter(|n| *n > 0 && *n != MUTE).map(Duration::from_millis)
        }

        fn heard(&self) -> u64 {
            // It sends all the time, but for the one that is mute.
            if self.0.load(Relaxed) == MUTE { 1 } else { COUNT.fetch_add(1, Relaxed) }
        }

        fn is_over(&self) -> bool {
            self.0.load(Relaxed) == u64::MAX
        }
    }

    /// Owes no answer, and says nothing.
    const MUTE: u64 = u64::MAX - 1;
    static COUNT: AtomicU64 = AtomicU64::new(2);

    #[tokio::test(start_paused = true)]
    async fn a_session_that_owes_no_answer_and_says_nothing_gives_its_turn_to_the_next_try() {
        let turns = Turns::default();
        let peer = Peer::default();
        let first = turns.take(work(1, 1), peer.clone(), false).await.unwrap();
        peer.0.store(MUTE, Relaxed);
        let stop = first.stop();
        let (second, ()) = tokio::join!(turns.take(work(1, 1), Peer::default(), false), async {
            stop.await;
            drop(first);
        });
        second.unwrap();
    }

    fn work(sender: u8, directory: u64) -> Work {
        Work { sender: PublicKey([sender; 32]), directory: Some((1, directory)), manifest: blake3::hash(b"m") }
    }

    #[tokio::test(start_paused = true)]
    async fn another_sender_takes_nobody_s_turn() {
        let turns = Turns::default();
        let first = turns.take(work(1, 1), Peer::default(), false).await.unwrap();
        let refused = turns.take(work(2, 1), Peer::default(), false).await.unwrap_err();
        assert!(refused.refusal == Refusal::Busy && refused.message.contains("another sender"));
        turns.take(work(2, 2), Peer::default(), false).await.unwrap();
        let stopped = tokio::time::timeout(Duration::from_secs(60), first.stop()).await;
        assert!(stopped.is_err(), "the first goes on");
    }

    #[tokio::test(start_paused = true)]
    async fn session_that_answers_keeps_its_turn_and_a_dead_one_gives_it_to_the_next_try() {
        let turns = Turns::default();
        let peer = Peer::default();
        let first = turns.take(work(1, 1), peer.clone(), false).await.unwrap();
        let refused = turns.take(work(1, 1), Peer::default(), false).await.unwrap_err();
        assert!(refused.refusal == Refusal::Busy && refused.message.contains("which answers"));
        peer.0.store(2_000, Relaxed);
        let stop = first.stop();
        let (second, ()) = tokio::join!(turns.take(work(1, 1), Peer::default(), false), async {
            stop.await;
            drop(first);
        });
        drop(second.unwrap());
        let over = Peer::default();
        let third = turns.take(work(1, 1), over.clone(), true).await.unwrap();
        assert!(turns.take(work(1, 2), Peer::default(), true).await.is_err_and(|r| r.message.contains("one transfer only")));
        over.0.store(u64::MAX, Relaxed);
        let stop = third.stop();
        let (fourth, ()) = tokio::join!(turns.take(work(1, 1), Peer::default(), true), async {
            stop.await;
            drop(third);
        });
        fourth.unwrap();
    }
}

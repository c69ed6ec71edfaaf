//! Going on after a break: a transfer whose path falls silent is tried again, over a new session, until it is through or its patience ends.
//!
//! The loop is the same for every kind of transfer: try, call [`Again::heard`] once a session is open, give [`Again::after`] the failure. Only silence begins
//! the loop. Then failures that may pass keep it going; a decision of the other side or of the user ends it.

use super::progress::Reporter;
use crate::failure::Failure;
use crate::units::time;
use serde_json::json;
use std::time::Duration;
use tokio::time::Instant;

/// Between the end of one try and the next, at first; then twice as long each time, up to the second.
const FIRST_PAUSE: Duration = Duration::from_millis(250);
const LONGEST_PAUSE: Duration = Duration::from_secs(5);

/// How long is tried again, and since when.
#[derive(Debug)]
pub struct Again {
    give_up: Duration,
    /// A session in which nothing is heard ends after this.
    idle: Duration,
    /// In this try a session stood.
    is_heard: bool,
    /// Since the other side was last heard, once there was a break.
    silent_since: Option<Instant>,
    pause: Duration,
}

impl Again {
    /// Goes on for `give_up` after the other side was last heard; zero: not at all. `idle`: silence that ends a session.
    pub fn new(give_up: Duration, idle: Duration) -> Self {
        Self { give_up, idle, is_heard: false, silent_since: None, pause: FIRST_PAUSE }
    }

    /// A session with the other side is open: from here on patience counts anew.
    pub fn heard(&mut self) {
        self.is_heard = true;
        self.pause = FIRST_PAUSE;
    }

    /// This is not the first try.
    pub fn is_again(&self) -> bool {
        self.silent_since.is_some()
    }

    /// A session stood in the try that has just ended.
    pub fn is_heard(&self) -> bool {
        self.is_heard
    }

    /// A try ended with `failure`: waits, and tells the user, if there is to be another one.
    ///
    /// # Errors
    /// The failure, if there is not: the other side was never there, it has said what is wrong, or patience is over.
    pub async fn after(&mut self, failure: Failure, reporter: &Reporter) -> Result<(), Failure> {
        let now = Instant::now();
        let may_go_on = match std::mem::take(&mut self.is_heard) {
            // The session itself has waited before it ended.
            true if matches!(failure, Failure::Silence(_)) => {
                self.silent_since = Some(now.checked_sub(self.idle).unwrap_or(now));
                true
            }
            _ => self.silent_since.is_some() && failure.may_pass(),
        };
        let Some(since) = self.silent_since.filter(|_| may_go_on) else { return Err(failure) };
        let silence = now - since;
        let Some(left) = self.give_up.checked_sub(silence).filter(|left| !left.is_zero()) else {
            return Err(match failure {
                failure @ Failure::Silence(_) => failure,
                last => Failure::Silence(format!("no answer for {}; the last try: {last}", time(silence))),
            });
        };
        if reporter.is_json() {
            reporter.event(&json!({
                "event": "again", "silence_s": silence.as_secs(), "left_s": left.as_secs(), "message": failure.to_string()
            }));
        } else {
            let why =
                if matches!(failure, Failure::Silence(_) | Failure::Unreachable(_)) { String::new() } else { format!(" ({failure})") };
            reporter.say(&format!("noctule: no answer for {}{why}, trying again, giving up in {}", time(silence), time(left)));
        }
        tokio::time::sleep(self.pause.min(left)).await;
        self.pause = (self.pause * 2).min(LONGEST_PAUSE);
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MINUTE: Duration = Duration::from_secs(60);
    const IDLE: Duration = Duration::from_secs(30);

    fn silence() -> Failure {
        Failure::Silence("nothing was heard".into())
    }

    fn unreachable() -> Failure {
        Failure::Unreachable("host".into())
    }

    #[tokio::test(start_paused = true)]
    async fn silence_is_tried_again_until_patience_ends_and_begins_anew_when_the_other_side_is_heard() {
        let reporter = Reporter::new(true, true);
        let mut again = Again::new(15 * MINUTE, IDLE);
        again.heard();
        let broke = Instant::now();
        again.after(silence(), &reporter).await.unwrap();
        let mut tries = 0;
        // Every attempt takes ten seconds.
        let last = loop {
            tokio::time::sleep(Duration::from_secs(10)).await;
            tries += 1;
            if let Err(failure) = again.after(unreachable(), &reporter).await {
                break failure;
            }
        };
        assert!(matches!(last, Failure::Silence(_)) && last.to_string().contains("no answer for 15 min"), "{last}");
        assert!((14 * MINUTE..16 * MINUTE).contains(&broke.elapsed()) && (50..100).contains(&tries), "{:?} {tries}", broke.elapsed());
        let mut again = Again::new(5 * MINUTE, IDLE);
        for _ in 0..10 {
            again.heard();
            again.after(silence(), &reporter).await.unwrap();
            tokio::time::sleep(2 * MINUTE).await;
        }
    }

    #[tokio::test(start_paused = true)]
    async fn what_was_never_there_or_has_said_no_is_not_tried_again() {
        let reporter = Reporter::new(true, true);
        let mut again = Again::new(15 * MINUTE, IDLE);
        assert!(again.after(unreachable(), &reporter).await.is_err(), "it was never there");
        again.heard();
        assert!(again.after(Failure::MayNot("no".into()), &reporter).await.is_err());
        again.heard();
        assert!(again.after(Failure::Busy("another".into()), &reporter).await.is_err());
        again.heard();
        again.after(silence(), &reporter).await.unwrap();
        again.heard();
        assert!(again.after(Failure::Busy("its end of the old session".into()), &reporter).await.is_ok());
        assert!(again.after(Failure::WrongCode, &reporter).await.is_err());
        let mut never = Again::new(Duration::ZERO, IDLE);
        never.heard();
        assert!(never.after(silence(), &reporter).await.is_err());
    }
}

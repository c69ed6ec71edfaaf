//! Notices, once each time, that the other side of a session says nothing, and that it is there again. What is said then is the caller's.

use noctule::{NodeConfig, Session};
use std::time::Duration;

/// Silence of a peer after which the user is told.
pub const NO_WORD: Duration = Duration::from_secs(5);
/// Commands with which somebody waits ask a quiet far end so often: one that only receives would not notice a silence for ten seconds otherwise.
const ASK_EVERY: Duration = Duration::from_secs(2);
/// Looks at sessions that nothing else looks at.
pub const LOOK_EVERY: Duration = Duration::from_millis(200);

/// Lets an endpoint of such a command notice silence soon.
pub fn notice(config: &mut NodeConfig) {
    config.keep_alive = Some(ASK_EVERY);
}

/// What is to be told of a peer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Word {
    /// It has said nothing for [`NO_WORD`].
    Silent,
    /// It is there again.
    Heard,
}

/// Whether the user knows that a peer is silent.
#[derive(Debug, Default)]
pub struct Silence {
    /// The address that fell silent: the peer may come back by another port.
    told: Option<String>,
}

impl Silence {
    /// What there is to tell of this session now, with the address that it is about. To be called several times a second.
    pub fn look(&mut self, session: &Session) -> Option<(Word, String)> {
        let address = || session.remote_address().map_or_else(|| "the other side".to_owned(), |a| a.to_string());
        self.turn(session.silence(), session.close_reason().is_some(), address)
    }

    fn turn(&mut self, silence: Option<Duration>, is_over: bool, address: impl FnOnce() -> String) -> Option<(Word, String)> {
        match (self.is_told(), silence) {
            _ if is_over => None,
            (true, None) => Some((Word::Heard, self.told.take()?)),
            (false, Some(lasts)) if lasts >= NO_WORD => Some((Word::Silent, self.told.insert(address()).clone())),
            _ => None,
        }
    }

    /// The user was told that it is silent, and nothing since.
    pub fn is_told(&self) -> bool {
        self.told.is_some()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_silence_and_its_end_are_told_once_by_the_address_that_fell_silent() {
        let mut silence = Silence::default();
        let seconds = |s| Some(Duration::from_secs(s));
        let mut look = |lasts: Option<Duration>, is_over, address: &str| silence.turn(lasts, is_over, || address.to_owned());
        assert_eq!(look(None, false, "a"), None);
        assert_eq!(look(seconds(4), false, "a"), None);
        assert_eq!(look(seconds(5), false, "a"), Some((Word::Silent, "a".into())));
        assert_eq!(look(seconds(9), false, "b"), None, "told once");
        assert_eq!(look(None, false, "b"), Some((Word::Heard, "a".into())));
        assert_eq!(look(None, false, "b"), None);
        assert_eq!(look(seconds(30), true, "b"), None, "its end is told by itself");
    }
}

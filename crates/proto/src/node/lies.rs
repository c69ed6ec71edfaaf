//! Calls for tests and fuzzers only: see `shared/lies.rs`.

use super::Node;
use crate::ids::{LinkId, SessionId, SessionKey};
use crate::units::Time;

impl Node {
    /// Sends these frames in a packet of their own, as they are; what is longer than a packet is cut off.
    #[doc(hidden)]
    pub fn inject(&mut self, now: Time, link: LinkId, frames: Vec<u8>) {
        self.shared.lies.inject(link, frames);
        self.settle(now, link);
    }

    /// The name of a session on the wire.
    #[doc(hidden)]
    pub fn session_key(&self, session: SessionId) -> Option<SessionKey> {
        Some(self.sessions.entry(session)?.session.key())
    }
}

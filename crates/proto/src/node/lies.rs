//! Hooks for tests and fuzzers: what a node sends can be changed before it is sealed, as a relay that lies would, and frames of any content can be
//! sent with the right keys, as a hostile neighbour would.

use super::Node;
use crate::ids::{LinkId, SessionId, SessionKey};
use crate::units::Time;
use std::collections::{BTreeMap, VecDeque};

/// What changes frames.
type Tamper = Box<dyn FnMut(&mut [u8])>;

/// What is changed or added.
#[derive(Default)]
pub(crate) struct Lies {
    tamper: Option<Tamper>,
    injected: BTreeMap<LinkId, VecDeque<Vec<u8>>>,
}

impl Lies {
    /// From now on every group of frames of one flow goes through `tamper`.
    #[cfg(test)]
    pub(crate) fn set(&mut self, tamper: impl FnMut(&mut [u8]) + 'static) {
        self.tamper = Some(Box::new(tamper));
    }

    pub(crate) fn tell(&mut self, frames: &mut [u8]) {
        if let Some(tamper) = &mut self.tamper {
            tamper(frames);
        }
    }

    /// The frames of the next packet of a link, if they were given.
    pub(crate) fn take(&mut self, link: LinkId) -> Option<Vec<u8>> {
        self.injected.get_mut(&link)?.pop_front()
    }
}

impl Node {
    /// Sends these frames in a packet of their own, as they are; what is longer than a packet is cut off.
    #[doc(hidden)]
    pub fn inject(&mut self, now: Time, link: LinkId, frames: Vec<u8>) {
        self.shared.lies.injected.entry(link).or_default().push_back(frames);
        self.settle(now, link);
    }

    /// The name of a session on the wire.
    #[doc(hidden)]
    pub fn session_key(&self, session: SessionId) -> Option<SessionKey> {
        Some(self.shared.sessions.entry(session)?.session.key())
    }
}

impl core::fmt::Debug for Lies {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.write_str("Lies(..)")
    }
}

//! Hooks for tests and fuzzers: what a node sends can be changed before it is sealed, as a relay that lies would, and frames of any content can be
//! sent with the right keys, as a hostile neighbour would.

use crate::ids::LinkId;
use std::collections::{BTreeMap, VecDeque};

/// What changes frames. Of tests only: it may stay on one thread, and what fuzzers build goes to several.
#[cfg(test)]
type Tamper = Box<dyn FnMut(&mut [u8])>;

/// What is changed or added.
#[derive(Default)]
pub(crate) struct Lies {
    #[cfg(test)]
    tamper: Option<Tamper>,
    injected: BTreeMap<LinkId, VecDeque<Vec<u8>>>,
}

impl Lies {
    /// From now on every group of frames of one flow goes through `tamper`.
    #[cfg(test)]
    pub(crate) fn set(&mut self, tamper: impl FnMut(&mut [u8]) + 'static) {
        self.tamper = Some(Box::new(tamper));
    }

    /// These frames of a link are to be sent.
    pub(crate) fn inject(&mut self, link: LinkId, frames: Vec<u8>) {
        self.injected.entry(link).or_default().push_back(frames);
    }

    /// Frames that are about to be sealed.
    #[cfg(test)]
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

impl core::fmt::Debug for Lies {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.write_str("Lies(..)")
    }
}

//! Links that were refused to a node that has shown its key: how the caller and the owner hear of it (P19, P22).
//!
//! A key that may not call costs three Diffie-Hellmans until it is known, and another three and a half-open link if it is told. It is told only as often as costs
//! nothing; what is beyond that is dropped as soon as its key is known.

use super::bucket::{Bucket, Rate};
use crate::admission::{Admission, Host};
use crate::crypto::PublicKey;
use crate::error::Code;
use crate::event::Event;
use crate::units::{Duration, Time};
use std::collections::VecDeque;
use std::net::SocketAddr;

/// Callers that are told in a second, of one host and of all, by chance where there are more.
const TOLD_OF_ONE: u32 = 1;
const TOLD: u32 = 4;
/// What the owner hears: one a second, sixteen at once.
const HEARD: Rate = Rate { interval: Duration::from_secs(1), burst: 16 };

/// See the module's documentation.
#[derive(Debug)]
pub(crate) struct Refusals {
    told: Admission,
    heard: Bucket,
    waiting: VecDeque<Event>,
    left_out: u64,
}

impl Refusals {
    pub(crate) fn new(seed: [u8; 32]) -> Self {
        Self { told: Admission::new(TOLD_OF_ONE, TOLD, seed), heard: Bucket::default(), waiting: VecDeque::new(), left_out: 0 }
    }

    /// Whether a caller that may not call is told so.
    pub(crate) fn may_tell(&mut self, now: Time, remote: SocketAddr) -> bool {
        self.told.admits(now, Host::from(remote.ip()), false)
    }

    /// A link was refused.
    pub(crate) fn note(&mut self, now: Time, peer: PublicKey, remote: SocketAddr, reason: Code) {
        if !self.heard.charge(now, HEARD) || self.waiting.len() >= HEARD.burst as usize {
            self.left_out += 1;
            return;
        }
        let left_out = core::mem::take(&mut self.left_out);
        self.waiting.push_back(Event::LinkRefused { peer, remote, reason, left_out });
    }

    pub(crate) fn poll(&mut self) -> Option<Event> {
        self.waiting.pop_front()
    }
}

//! Links that were refused to a node that has shown its key: how the caller and the owner hear of it (P19, P22).
//!
//! A key that may not call costs three Diffie-Hellmans until it is known, and another three and a half-open link if it is told. It is told only as often as costs
//! nothing; what is beyond that is dropped as soon as its key is known.

use super::bucket::{Bucket, Rate};
use crate::admission::{Admission, Host};
use crate::units::{Duration, Time};
use std::net::SocketAddr;

/// Callers that are told in a second, of one host and of all, by chance where there are more.
const TOLD_OF_ONE: u32 = 1;
const TOLD: u32 = 4;
/// What the owner hears: one a second, sixteen at once.
pub(super) const HEARD: Rate = Rate { interval: Duration::from_secs(1), burst: 16 };

/// See the module's documentation.
#[derive(Debug)]
pub(crate) struct Refusals {
    told: Admission,
    heard: Bucket,
    left_out: u64,
}

impl Refusals {
    pub(crate) fn new(seed: [u8; 32]) -> Self {
        Self { told: Admission::new(TOLD_OF_ONE, TOLD, seed), heard: Bucket::default(), left_out: 0 }
    }

    /// Whether a caller that may not call is told so.
    pub(crate) fn may_tell(&mut self, now: Time, remote: SocketAddr) -> bool {
        self.told.admits(now, Host::from(remote.ip()), false)
    }

    /// A link was refused. Whether the owner hears of it: then how many were left out before. `is_full`: it has not asked for those before.
    pub(crate) fn note(&mut self, now: Time, is_full: bool) -> Option<u64> {
        if !self.heard.charge(now, HEARD) || is_full {
            self.left_out += 1;
            return None;
        }
        Some(core::mem::take(&mut self.left_out))
    }
}

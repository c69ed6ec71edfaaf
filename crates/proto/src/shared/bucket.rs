//! A bucket of tokens in eight bytes: the time at which it is full again.

use crate::units::{Duration, Time};

/// How fast a bucket fills, and what it holds.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Rate {
    /// A token comes this often.
    pub(crate) interval: Duration,
    /// Tokens that it may have saved.
    pub(crate) burst: u32,
}

/// Full at first.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Bucket {
    full_at: Time,
}

impl Bucket {
    /// Whether there is a token.
    pub(crate) fn has_one(&self, now: Time, rate: Rate) -> bool {
        self.full_at.max(now) + rate.interval <= now + rate.interval * rate.burst
    }

    /// Takes one, if there is one.
    pub(crate) fn charge(&mut self, now: Time, rate: Rate) -> bool {
        let has_one = self.has_one(now, rate);
        if has_one {
            self.full_at = self.full_at.max(now) + rate.interval;
        }
        has_one
    }

    /// Gives one back: what it was taken for was honest.
    pub(crate) fn refund(&mut self, now: Time, rate: Rate) {
        self.full_at = now + self.full_at.since(now).saturating_sub(rate.interval);
    }
}

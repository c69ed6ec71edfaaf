//! One reduction per flight (RFC 6582 §3.2), and the state before it, so that a reduction for reordering can be undone (RFC 9438 §4.9).

use super::LossEvent;
use crate::units::Time;

/// When the window was last reduced, and what it was before: `S`.
#[derive(Debug)]
pub(super) struct LossEpoch<S> {
    /// Losses of packets sent until then belong to the reduction made.
    start: Option<Time>,
    /// State before it, and the bytes lost in it that did not turn up again.
    undo: Option<(S, u64)>,
}

impl<S> LossEpoch<S> {
    pub(super) fn new() -> Self {
        Self { start: None, undo: None }
    }

    /// A packet sent at that time says nothing about the window as it is now (RFC 6582: not beyond `recover` yet).
    pub(super) fn covers(&self, sent_at: Time) -> bool {
        self.start.is_some_and(|t| sent_at <= t)
    }

    /// A loss: `true` if the window must be reduced, and then `before` is what a spurious one goes back to.
    pub(super) fn on_loss(&mut self, event: &LossEvent, before: impl FnOnce() -> S) -> bool {
        if self.covers(event.largest_sent_at) {
            if let Some((_, lost)) = &mut self.undo {
                *lost += event.lost_bytes;
            }
            return false;
        }
        self.start = Some(event.now);
        self.undo = Some((before(), event.lost_bytes));
        true
    }

    /// CE marks on packets of which the newest was sent then: `true` if the window must be reduced. A mark is never taken back.
    pub(super) fn on_mark(&mut self, now: Time, sent_at: Time) -> bool {
        if self.covers(sent_at) {
            return false;
        }
        self.start = Some(now);
        self.undo = None;
        true
    }

    /// Lost bytes arrived after all: the state to go back to, once every loss of the reduction has.
    pub(super) fn on_spurious_loss(&mut self, bytes: u64) -> Option<S> {
        let (_, lost) = self.undo.as_mut()?;
        *lost = lost.saturating_sub(bytes);
        if *lost > 0 {
            return None;
        }
        self.undo.take().map(|(before, _)| before)
    }

    /// Nothing will be undone: the path carried nothing (RFC 9002 §7.6).
    pub(super) fn forget(&mut self) {
        self.undo = None;
    }
}

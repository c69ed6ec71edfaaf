//! Flows that wait for what other shards of the endpoint hold: room for messages (P18), memory (P15).
//!
//! What this node gives back it offers at once. Of what the others give back nobody tells it: it looks, as long as something waits.

use super::{Node, TimerKey};
use crate::units::{Duration, Time};

/// Between two looks; a few round trips, which whatever waits spends on its next packets in any case.
const LOOK_EVERY: Duration = Duration::from_millis(50);

impl Node {
    /// Something may wait now that did not before.
    pub(super) fn await_others(&mut self, now: Time) {
        let does_wait = !self.shared.starved.is_empty() || !self.shared.waiting.is_empty();
        if does_wait && !self.shared.shard.is_alone() && !self.timers.has(TimerKey::Others) {
            self.timers.set(TimerKey::Others, Some(now + LOOK_EVERY));
        }
    }

    pub(super) fn on_others_timeout(&mut self, now: Time) {
        let flows = &mut self.shared.flows;
        self.shared.starved.retain(|id| flows.incoming_mut(*id).is_some_and(|flow| flow.sink.is_starved()));
        // Read before the room is asked for: what is given back from here on is another change.
        let freed = self.shared.messages.freed();
        if core::mem::replace(&mut self.freed_seen, freed) != freed {
            self.feed_starved(now);
        }
        self.invite_waiting(now);
        self.await_others(now);
    }
}

//! The rate of the flight that a path begins with (P11).
//!
//! A rate sample begins with the packet that was acknowledged last when its own left. In the first flight there is none: the sample then begins
//! when the flight does, and holds the round trip before the first answer, in which nothing could arrive.

use super::{AckEvent, SentEvent};
use crate::switch::{self, Mechanism};
use crate::units::{Duration, Time};

/// What is known of the flight.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct FirstFlight {
    first: Option<First>,
}

/// Its first packet, from which the others are measured.
#[derive(Clone, Copy, Debug)]
struct First {
    sent_at: Time,
    /// Bytes sent up to and including it.
    offset: u64,
    /// When the first answer came: what leaves later has an acknowledged packet to be measured from.
    answered_at: Option<Time>,
}

impl FirstFlight {
    /// A packet leaves; with nothing else in flight it begins the flight anew.
    pub(super) fn on_sent(&mut self, event: &SentEvent) {
        if event.in_flight == event.bytes {
            self.first = Some(First { sent_at: event.now, offset: event.sent_offset, answered_at: None });
        }
    }

    /// Bytes per second up to the packet that is acknowledged now, over the time in which they left or arrived, whichever is longer, and over half
    /// a round trip at least: a few packets sent together say nothing. `None` for what left after the first answer.
    pub(super) fn rate(&mut self, event: &AckEvent) -> Option<f64> {
        let first = self.first.as_mut()?;
        event.rtt?;
        let answered_at = *first.answered_at.get_or_insert(event.now);
        if event.largest_sent_at > answered_at || switch::is_off(Mechanism::FirstFlight) {
            return None;
        }
        let bytes = event.newest_offset.checked_sub(first.offset)?;
        // The first packet, with nobody before it, took the smallest RTT.
        let arriving = event.arrived.since(first.sent_at + event.min_rtt);
        let interval = event.largest_sent_at.since(first.sent_at).max(arriving).max(event.min_rtt / 2);
        (interval > Duration::ZERO).then(|| bytes as f64 / interval.as_secs_f64())
    }
}

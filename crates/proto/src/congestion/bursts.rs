//! Where the bursts of an application that pauses begin and end (P12: a phase in which it has little to send says nothing about the path, a whole burst does).

use super::{AckEvent, SentEvent};
use crate::switch::{self, Mechanism};
use crate::units::{Duration, Time};

/// Packets at the end of a burst of which one at least is thought to arrive.
const LAST_PACKETS: f64 = 3.0;

/// How a flight after a pause begins.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Start {
    /// Everything before it was answered.
    Burst,
    /// What was sent last was not answered: this may be a probe.
    Unanswered,
}

/// The latest packet with data in it: when it was sent, and what had been sent then.
#[derive(Clone, Copy, Debug)]
pub(super) struct Bursts {
    last_data: Time,
    data_offset: u64,
}

impl Bursts {
    pub(super) fn new(now: Time) -> Self {
        Self { last_data: now, data_offset: 0 }
    }

    /// Something is sent; what begins with it, if nothing with data in it was for `pause`. `newest_offset`: up to where packets were acknowledged.
    ///
    /// What passes between two bursts, questions and answers about acknowledgements, is part of neither.
    pub(super) fn on_sent(&mut self, event: &SentEvent, newest_offset: u64, pause: Duration) -> Option<Start> {
        let is_aside = event.is_control && !switch::is_off(Mechanism::BurstsAlone);
        let is_answered = newest_offset >= self.data_offset;
        let is_alone = event.in_flight == event.bytes || (is_answered && !switch::is_off(Mechanism::BurstsAlone));
        let is_start = is_alone && event.now.since(self.last_data) > pause;
        if !is_aside {
            (self.last_data, self.data_offset) = (event.now, event.sent_offset);
        }
        match (is_start, is_answered) {
            (true, false) => Some(Start::Unanswered),
            (true, true) => (!is_aside).then_some(Start::Burst),
            (false, _) => None,
        }
    }

    /// The burst that was sent last ends with this acknowledgement, and the application has paused. Its very last packets may be lost.
    pub(super) fn is_end(&self, event: &AckEvent, datagram: f64) -> bool {
        let last = self.data_offset.saturating_sub((LAST_PACKETS * datagram) as u64)..=self.data_offset;
        event.is_app_limited && last.contains(&event.newest_offset)
    }
}

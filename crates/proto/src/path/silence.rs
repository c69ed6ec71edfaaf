//! Small packets over a path from which no answer comes, between its PTOs: how soon it is noticed that it is back (docs/decisions/0196).
//!
//! PTOs back off to one a second, and where packets are lost in bursts that are counted in packets, a burst of fifty would last for fifty of them. These
//! come every PTO at first, then every 64th part of the silence: in silences of any length the end is found within two per cent of it, with some
//! 350 packets of 60 bytes in the 30 s after which the circuit breaker opens.

use crate::units::{Duration, Time};

/// Probes while the silence grows to e times its length.
const PER_FOLD: u32 = 64;

/// When the next one goes.
#[derive(Debug)]
pub struct SilenceProbes {
    sent_at: Time,
    is_wanted: bool,
}

impl SilenceProbes {
    pub fn new(now: Time) -> Self {
        Self { sent_at: now, is_wanted: false }
    }

    /// `unanswered_since`: first packet that asked for an answer and got none; `asked_at`: the latest PTO.
    pub fn deadline(&self, unanswered_since: Time, asked_at: Time, pto: Duration) -> Option<Time> {
        let last = self.sent_at.max(asked_at);
        (!self.is_wanted).then(|| last + pto.max(last.since(unanswered_since) / PER_FOLD))
    }

    pub fn on_deadline(&mut self) {
        self.is_wanted = true;
    }

    pub fn is_wanted(&self) -> bool {
        self.is_wanted
    }

    /// Something left that asks for an answer.
    pub fn on_sent(&mut self, now: Time) {
        (self.sent_at, self.is_wanted) = (now, false);
    }

    /// An answer came.
    pub fn on_answer(&mut self) {
        self.is_wanted = false;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn probes_come_every_pto_and_then_by_the_length_of_the_silence_a_few_hundred_in_all() {
        let (start, pto) = (Time::from_millis(1000), Duration::from_millis(10));
        let mut probes = SilenceProbes::new(Time::ZERO);
        let (mut now, mut count) = (start + pto * 7, 0);
        let asked_at = now;
        while now.since(start) < Duration::from_secs(30) {
            let next = probes.deadline(start, asked_at, pto).unwrap();
            assert!(next.since(now) >= pto && next.since(now) <= pto.max(now.since(start) / 60));
            probes.on_deadline();
            assert!(probes.is_wanted() && probes.deadline(start, asked_at, pto).is_none());
            probes.on_sent(next);
            (now, count) = (next, count + 1);
        }
        assert!((200..400).contains(&count), "{count}");
    }
}

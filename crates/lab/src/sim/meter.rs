//! What the receiving application of a run measures.

use std::time::Duration;

use super::startup::Startup;
use crate::link::{Histogram, Time};

/// The part of a run that counts: after the warm-up, until the end.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Window {
    /// End of the warm-up.
    pub from: Time,
    /// End of the run.
    pub until: Time,
}

impl Window {
    /// Does `at` count?
    pub fn holds(self, at: Time) -> bool {
        at >= self.from && at < self.until
    }
}

/// Bytes and messages received by one application.
#[derive(Debug, Clone)]
pub struct Meter {
    window: Window,
    /// Bytes read until the end of the run.
    pub bytes: u64,
    /// Bytes read in the window.
    pub bytes_in_window: u64,
    /// Bytes that were not those that were sent, or that came twice.
    pub bytes_wrong: u64,
    /// Bytes per second of the run.
    pub by_second: Vec<u64>,
    /// Bytes by quarters of a round trip, at the beginning, if that is looked at.
    pub startup: Option<Startup>,
    /// Moment of the first byte.
    pub first_byte: Option<Time>,
    /// Moment of the last byte.
    pub last_byte: Option<Time>,
    /// One-way latency of messages whose time of sending lies in the window.
    pub one_way: Histogram,
    /// Messages received whose time of sending lies in the window.
    pub messages_in_window: u64,
    /// Of these, within their lifetime.
    pub on_time: u64,
    /// All messages received.
    pub messages: u64,
    /// Messages received more than once.
    pub duplicates: u64,
    /// Messages received after one that was sent later.
    pub out_of_order: u64,
    seen: Vec<u64>,
    highest: Option<u64>,
}

impl Meter {
    /// Nothing measured yet.
    pub fn new(window: Window) -> Self {
        Self {
            window,
            bytes: 0,
            bytes_in_window: 0,
            bytes_wrong: 0,
            by_second: Vec::new(),
            startup: None,
            first_byte: None,
            last_byte: None,
            one_way: Histogram::default(),
            messages_in_window: 0,
            on_time: 0,
            messages: 0,
            duplicates: 0,
            out_of_order: 0,
            seen: Vec::new(),
            highest: None,
        }
    }

    /// The same, of a path with this round trip, whose start-up is looked at.
    pub fn with_startup(self, base_rtt: Duration) -> Self {
        Self { startup: Some(Startup::new(base_rtt)), ..self }
    }

    /// `len` bytes were read at `now`, of which `wrong` were not the right ones.
    pub fn read(&mut self, now: Time, len: usize, wrong: u64) {
        let len = len as u64;
        self.bytes_wrong += wrong;
        self.first_byte.get_or_insert(now);
        self.last_byte = Some(now);
        if now >= self.window.until {
            return;
        }
        self.bytes += len;
        if self.window.holds(now) {
            self.bytes_in_window += len;
        }
        let second = now.as_nanos() / 1_000_000_000;
        // A run is at most a few thousand seconds long; the index is bounded by the end of the window.
        if self.by_second.len() <= second as usize {
            self.by_second.resize(second as usize + 1, 0);
        }
        self.by_second[second as usize] += len;
        if let Some(startup) = &mut self.startup {
            startup.read(now, len);
        }
    }

    /// Message number `index`, to be sent at `sent`, was received at `now`. False if it came before.
    pub fn message(&mut self, now: Time, index: u64, sent: Time, lifetime: Option<Duration>) -> bool {
        let (word, bit) = ((index / 64) as usize, 1u64 << (index % 64));
        if self.seen.len() <= word {
            self.seen.resize(word + 1, 0);
        }
        if self.seen[word] & bit != 0 {
            self.duplicates += 1;
            return false;
        }
        self.seen[word] |= bit;
        self.messages += 1;
        if self.highest.is_some_and(|highest| index < highest) {
            self.out_of_order += 1;
        }
        self.highest = self.highest.max(Some(index));
        if self.window.holds(sent) {
            let latency = now.since(sent);
            self.messages_in_window += 1;
            self.one_way.record(latency);
            if lifetime.is_none_or(|lifetime| latency <= lifetime) {
                self.on_time += 1;
            }
        }
        true
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn meter() -> Meter {
        Meter::new(Window { from: Time::from_millis(1_000), until: Time::from_millis(3_000) })
    }

    #[test]
    fn bytes_count_in_the_window_and_in_the_whole_run() {
        let mut m = meter();
        for ms in [500, 1_500, 2_500, 3_500] {
            m.read(Time::from_millis(ms), 100, 0);
        }
        assert_eq!((m.bytes, m.bytes_in_window), (300, 200));
        assert_eq!(m.by_second, [100, 100, 100]);
    }

    #[test]
    fn late_doubled_and_misordered_messages_are_told_apart() {
        let mut m = meter();
        let life = Some(Duration::from_millis(50));
        let sent = Time::from_millis(2_000);
        assert!(m.message(Time::from_millis(2_020), 5, sent, life));
        assert!(m.message(Time::from_millis(2_060), 3, sent, life));
        assert!(!m.message(Time::from_millis(2_061), 5, sent, life));
        assert!(m.message(Time::from_millis(2_062), 9, Time::from_millis(500), life));
        assert_eq!((m.messages, m.messages_in_window, m.on_time), (3, 2, 1));
        assert_eq!((m.duplicates, m.out_of_order), (1, 1));
    }
}

//! The memories of `bbr`: the largest of a window, what was in flight when a packet left, and whether the pipe is full. Sections of draft-ietf-ccwg-bbr-06.

use super::SentEvent;
use crate::units::Time;
use std::collections::VecDeque;

/// §5.3.1.2: growth by less than this is none.
const FULL_BW_GROWTH: f64 = 1.25;
/// §5.3.1.2: so many rounds without growth mean a full pipe.
const FULL_BW_ROUNDS: u32 = 3;

/// Largest value of the last so many rounds, at most one entry for each.
#[derive(Debug, Default)]
pub(super) struct MaxFilter {
    /// Falling values, rising rounds.
    entries: VecDeque<(u64, f64)>,
}

impl MaxFilter {
    pub(super) fn update(&mut self, value: f64, round: u64, window: u64) {
        while self.entries.front().is_some_and(|&(r, _)| r + window <= round) {
            self.entries.pop_front();
        }
        if self.entries.back().is_some_and(|&(r, v)| r == round && v >= value) {
            return;
        }
        while self.entries.back().is_some_and(|&(_, v)| v <= value) {
            self.entries.pop_back();
        }
        self.entries.push_back((round, value));
    }

    pub(super) fn get(&self) -> f64 {
        self.entries.front().map_or(0.0, |&(_, v)| v)
    }
}

/// §5.5.2: largest delivery rate of this ProbeBW cycle and the one before, bytes/s.
#[derive(Debug, Default)]
pub(super) struct MaxBw {
    cycles: [f64; 2],
}

impl MaxBw {
    pub(super) fn update(&mut self, rate: f64) {
        self.cycles[1] = self.cycles[1].max(rate);
    }

    /// §5.5.6: the cycle is over. One without a sample is none.
    pub(super) fn advance(&mut self) {
        if self.cycles[1] > 0.0 {
            self.cycles = [self.cycles[1], 0.0];
        }
    }

    pub(super) fn get(&self) -> f64 {
        self.cycles[0].max(self.cycles[1])
    }
}

/// §5.3.1.2: does the delivery rate still follow?
#[derive(Debug, Default)]
pub(super) struct FullPipe {
    rate: f64,
    rounds: u32,
    /// A plateau has been seen since the last reset.
    pub(super) is_full: bool,
}

impl FullPipe {
    /// Starts anew from a rate in bytes/s.
    pub(super) fn reset(&mut self, rate: f64) {
        *self = Self { rate, rounds: 0, is_full: false };
    }

    /// Once per round that was not application-limited.
    pub(super) fn on_round(&mut self, rate: f64) {
        if self.is_full {
        } else if rate >= self.rate * FULL_BW_GROWTH {
            self.reset(rate);
        } else {
            self.rounds += 1;
            self.is_full = self.rounds >= FULL_BW_ROUNDS;
        }
    }
}

/// How things stood when a packet left.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Departure {
    pub(super) at: Time,
    pub(super) offset: u64,
    /// Bytes in flight, the packet included: tx_in_flight.
    pub(super) in_flight: u64,
    /// Bytes lost so far.
    pub(super) lost: u64,
    pub(super) is_app_limited: bool,
}

/// Departures, some 64 per flight: §4.1 keeps them per packet, here a constant amount is kept whatever the window.
#[derive(Debug, Default)]
pub(super) struct Departures {
    ring: VecDeque<Departure>,
}

impl Departures {
    /// Four flights: a packet is lost at the latest some two RTT after it left.
    const MOST: usize = 256;
    const PER_FLIGHT: u64 = 64;

    pub(super) fn on_sent(&mut self, event: &SentEvent, lost: u64) {
        if self.ring.back().is_some_and(|last| event.sent_offset - last.offset < event.in_flight / Self::PER_FLIGHT) {
            return;
        }
        if self.ring.len() == Self::MOST {
            self.ring.pop_front();
        }
        let SentEvent { now: at, in_flight, is_app_limited, sent_offset: offset, .. } = *event;
        self.ring.push_back(Departure { at, offset, in_flight, lost, is_app_limited });
    }

    /// The newest that left with the packet of that offset or before it.
    pub(super) fn of_offset(&self, offset: u64) -> Option<Departure> {
        let i = self.ring.partition_point(|d| d.offset <= offset);
        self.ring.get(i.saturating_sub(1)).copied()
    }

    /// The same by time of sending.
    pub(super) fn of_time(&self, at: Time) -> Option<Departure> {
        let i = self.ring.partition_point(|d| d.at <= at);
        self.ring.get(i.saturating_sub(1)).copied()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_largest_of_the_last_ten_rounds_is_kept_and_then_forgotten() {
        let mut f = MaxFilter::default();
        for round in 0..40u64 {
            let value = if round == 5 { 100.0 } else { 10.0 + (round % 3) as f64 };
            for part in 0..50 {
                f.update(value - f64::from(part) / 100.0, round, 10);
            }
            assert_eq!(f.get() == 100.0, (5..15).contains(&round), "round {round}");
            assert!(f.entries.len() <= 10);
        }
    }

    #[test]
    fn a_departure_is_found_by_number_and_by_time_in_constant_memory() {
        let mut d = Departures::default();
        for i in 1..=100_000u64 {
            let event = SentEvent {
                now: Time::from_micros(i),
                bytes: 1000,
                in_flight: 10_000 * 1000,
                is_app_limited: false,
                sent_offset: i * 1000,
                is_control: false,
            };
            d.on_sent(&event, i);
        }
        assert!(d.ring.len() <= Departures::MOST);
        for i in [70_000u64, 99_999] {
            let by_offset = d.of_offset(i * 1000).expect("remembered");
            assert_eq!(by_offset.offset, d.of_time(Time::from_micros(i)).expect("remembered").offset);
            assert!((0..=157).contains(&(i as i64 - by_offset.lost as i64)), "{i}: {by_offset:?}");
        }
    }
}

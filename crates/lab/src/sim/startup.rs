//! When a transfer runs at the rate of its link: goodput in quarters of a round trip, from the beginning of a run.

use std::time::Duration;

use crate::link::Time;

/// Longest beginning that is recorded, in quarters of a round trip.
const QUARTERS: usize = 4 * 250;

/// Goodput that is looked at together, in quarters: less is noise, and a late packet that lets others go at once would pass for speed.
const TOGETHER: usize = 4 * 4;

/// Bytes read by quarters of a base round trip.
#[derive(Debug, Clone)]
pub struct Startup {
    quarter: Duration,
    bytes: Vec<u64>,
}

impl Startup {
    /// Nothing read yet, on a path with this round trip.
    pub fn new(base_rtt: Duration) -> Self {
        Self { quarter: (base_rtt / 4).max(Duration::from_micros(100)), bytes: Vec::new() }
    }

    /// The part of a run that is recorded.
    pub fn recorded(&self) -> Duration {
        self.quarter * QUARTERS as u32
    }

    /// `len` bytes were read at `now`.
    pub fn read(&mut self, now: Time, len: u64) {
        let at = (now.as_nanos() / self.quarter.as_nanos() as u64) as usize;
        if at < QUARTERS {
            self.bytes.resize(self.bytes.len().max(at + 1), 0);
            self.bytes[at] += len;
        }
    }

    /// Round trips from `begin` until goodput, taken over the four round trips that follow, is `bits_per_sec` for the first time.
    pub fn rtts_until(&self, begin: Time, bits_per_sec: f64) -> Option<f64> {
        let asked = bits_per_sec / 8.0 * self.quarter.as_secs_f64() * TOGETHER as f64;
        let first = (begin.as_nanos() / self.quarter.as_nanos() as u64) as usize;
        let later = self.bytes.get(first..)?;
        later.windows(TOGETHER).position(|window| window.iter().sum::<u64>() as f64 >= asked).map(|quarters| quarters as f64 / 4.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// 1000 bytes per quarter of 10 ms are 800 kbit/s.
    fn after(quarters_of_silence: u64, mut startup: Startup) -> Startup {
        for quarter in quarters_of_silence..100 {
            startup.read(Time::from_millis(quarter * 10 + 5), 1_000);
        }
        startup
    }

    #[test]
    fn the_round_trips_count_from_the_beginning_to_the_first_full_rate() {
        let startup = after(12, Startup::new(Duration::from_millis(40)));
        assert_eq!(startup.rtts_until(Time::ZERO, 800_000.0), Some(3.0));
        assert_eq!(startup.rtts_until(Time::from_millis(40), 800_000.0), Some(2.0));
        assert_eq!(startup.rtts_until(Time::ZERO, 801_000.0), None);
    }

    #[test]
    fn what_comes_late_and_all_at_once_is_not_speed() {
        let mut startup = Startup::new(Duration::from_millis(40));
        startup.read(Time::from_millis(5), 8_000);
        assert_eq!(after(30, startup).rtts_until(Time::ZERO, 800_000.0), Some(7.5));
    }

    #[test]
    fn a_run_is_recorded_to_a_bound() {
        let mut startup = Startup::new(Duration::from_millis(40));
        startup.read(Time::from_millis(1 << 40), 1);
        assert!(startup.bytes.is_empty());
        assert_eq!(startup.recorded(), Duration::from_secs(10));
    }
}

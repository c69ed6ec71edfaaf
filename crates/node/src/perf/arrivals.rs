//! Counts numbered messages at the receiving application: missing and overtaken ones, and their jitter.

/// The messages of one flow.
#[derive(Clone, Debug, Default)]
pub struct Arrivals {
    /// One past the highest number that came.
    expected: u64,
    came: u64,
    out_of_order: u64,
    /// Transit time of the message before, on two clocks that need not agree, in microseconds.
    transit: Option<i64>,
    jitter: f64,
}

impl Arrivals {
    /// Message `number`, sent at `sent` by the sender's clock, came at `now` by ours; both in microseconds.
    pub fn note(&mut self, number: u64, sent: u64, now: u64) {
        self.came += 1;
        match number >= self.expected {
            // A number far beyond anything plausible would make the loss meaningless, but nothing worse.
            true => self.expected = number.saturating_add(1),
            false => self.out_of_order += 1,
        }
        let transit = now.wrapping_sub(sent) as i64;
        if let Some(before) = self.transit.replace(transit) {
            // RFC 3550 §6.4.1: J += (|D| - J) / 16.
            self.jitter += (transit.wrapping_sub(before).unsigned_abs() as f64 - self.jitter) / 16.0;
        }
    }

    /// Messages that should have come and have not.
    pub fn lost(&self) -> i64 {
        self.expected.wrapping_sub(self.came) as i64
    }

    /// Messages that came after one with a higher number.
    pub fn out_of_order(&self) -> u64 {
        self.out_of_order
    }

    /// Interarrival jitter in ms.
    pub fn jitter_ms(&self) -> f64 {
        self.jitter * 1e-3
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn gaps_are_losses_until_what_was_overtaken_comes() {
        let mut a = Arrivals::default();
        for number in [0, 1, 4, 3] {
            a.note(number, 0, 0);
        }
        assert_eq!((a.lost(), a.out_of_order()), (1, 1));
        a.note(2, 0, 0);
        assert_eq!((a.lost(), a.out_of_order()), (0, 2));
    }

    #[test]
    fn jitter_follows_the_variation_of_the_transit_time_and_not_the_offset_of_the_clocks() {
        let mut steady = Arrivals::default();
        let mut varying = Arrivals::default();
        for i in 0..200u64 {
            steady.note(i, i * 1000, 5_000_000 + i * 1000);
            varying.note(i, i * 1000, i * 1000 + (i % 2) * 2000);
        }
        assert_eq!(steady.jitter_ms(), 0.0);
        assert!((varying.jitter_ms() - 2.0).abs() < 0.01, "{}", varying.jitter_ms());
    }
}

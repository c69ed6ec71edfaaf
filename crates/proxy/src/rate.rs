//! A rate that all connections of a user share in one direction.
//!
//! What was read waits here before it goes on, and nothing more is read meanwhile: the sender hears it by credit, and nothing is lost. A datagram does not
//! wait; one beyond the rate is dropped.

use std::time::Duration;
use tokio::time::Instant;

/// What may pass at once after a pause: this part of a second's bytes, and one datagram of any size at least.
const BURST: Duration = Duration::from_millis(250);
const LEAST_BURST: u64 = 64 << 10;
/// Read at once while there is a rate: what takes this long.
const CHUNK: Duration = Duration::from_millis(100);
/// Bounds of it.
const CHUNKS: (u64, u64) = (1 << 10, 64 << 10);
/// Datagrams have this part of a rate, as a divisor, where connections wait for all of it.
const DATAGRAMS: u32 = 4;
/// Over so long the rate that is shown is counted.
const SHOWN: Duration = Duration::from_secs(1);

/// See the file's heading.
#[derive(Debug)]
pub(crate) struct Pace {
    /// Bytes per second; `None`: as they come.
    rate: Option<u64>,
    /// When all that was let through is paid for.
    paid: Instant,
    /// The same of datagrams, at their part of the rate.
    datagrams_paid: Instant,
    /// What is shown: when the count began, the count, and the last one that was complete, per second.
    since: Instant,
    count: u64,
    last: u64,
}

/// How long so many bytes take.
fn cost(bytes: u64, rate: u64) -> Duration {
    Duration::from_nanos((u128::from(bytes) * 1_000_000_000 / u128::from(rate.max(1))).min(u128::from(u64::MAX)) as u64)
}

/// Bytes that may pass at once after a pause.
pub(crate) fn burst(rate: u64) -> u64 {
    (rate.saturating_mul(BURST.as_millis() as u64) / 1000).max(LEAST_BURST)
}

impl Pace {
    pub fn new(rate: Option<u64>) -> Self {
        let now = Instant::now();
        // A pause before the first byte earns nothing: the burst is there from the beginning.
        let paid = rate.map_or(now, |rate| now.checked_sub(cost(burst(rate), rate)).unwrap_or(now));
        Self { rate, paid, datagrams_paid: paid, since: now, count: 0, last: 0 }
    }

    /// Another rate from now on. What waits already waits no longer than it had to.
    pub fn set(&mut self, rate: Option<u64>) {
        if self.rate != rate {
            let now = Instant::now();
            (self.rate, self.paid, self.datagrams_paid) = (rate, now, now);
        }
    }

    /// How much to read at once.
    pub fn chunk(&self) -> usize {
        let per_chunk = self.rate.map(|rate| rate.saturating_mul(CHUNK.as_millis() as u64) / 1000);
        per_chunk.unwrap_or(CHUNKS.1).clamp(CHUNKS.0, CHUNKS.1) as usize
    }

    /// When bytes that are there may go on: now, if that is not later.
    pub fn take(&mut self, bytes: u64) -> Instant {
        let now = Instant::now();
        self.show(now, bytes);
        let Some(rate) = self.rate else { return now };
        self.paid = self.paid.max(now.checked_sub(cost(burst(rate), rate)).unwrap_or(now)) + cost(bytes, rate);
        self.paid
    }

    /// Bytes that were taken do not pass after all: their connection ended while they waited.
    pub fn give_back(&mut self, bytes: u64) {
        if let Some(rate) = self.rate {
            self.paid = self.paid.checked_sub(cost(bytes, rate)).unwrap_or(self.paid);
        }
    }

    /// Whether a datagram goes on; one that does not is to be dropped.
    pub fn take_datagram(&mut self, bytes: u64) -> bool {
        let now = Instant::now();
        let Some(rate) = self.rate else {
            self.show(now, bytes);
            return true;
        };
        let start = now.checked_sub(cost(burst(rate), rate)).unwrap_or(now);
        let (paid, datagrams_paid) = (self.paid.max(start), self.datagrams_paid.max(start));
        let (next, next_datagrams) = (paid + cost(bytes, rate), datagrams_paid + cost(bytes, rate) * DATAGRAMS);
        if next > now && next_datagrams > now {
            return false;
        }
        self.paid = next;
        // Where the whole rate is free, what is used of it is no debt of the part.
        self.datagrams_paid = if next > now { next_datagrams } else { datagrams_paid };
        self.show(now, bytes);
        true
    }

    fn show(&mut self, now: Instant, bytes: u64) {
        let over = now - self.since;
        if over >= SHOWN {
            (self.last, self.since, self.count) = ((self.count as f64 / over.as_secs_f64()) as u64, now, 0);
        }
        self.count += bytes;
    }

    /// Bytes per second of late.
    pub fn shown(&self) -> u64 {
        let over = self.since.elapsed();
        if over > SHOWN { (self.count as f64 / over.as_secs_f64()) as u64 } else { self.last }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use tokio::time::{advance, sleep_until};

    const RATE: u64 = 1_000_000;

    #[tokio::test(start_paused = true)]
    async fn no_more_passes_than_burst_and_rate_and_hardly_less() {
        let (mut pace, began, mut passed) = (Pace::new(Some(RATE)), Instant::now(), 0);
        while began.elapsed() < Duration::from_secs(5) {
            let bytes = pace.chunk() as u64;
            sleep_until(pace.take(bytes)).await;
            passed += bytes;
            let most = burst(RATE) as f64 + RATE as f64 * began.elapsed().as_secs_f64();
            assert!(passed as f64 <= most + 1.0, "{passed} of {most}");
        }
        let most = (burst(RATE) + 5 * RATE) as f64;
        assert!(passed as f64 >= most * 0.95, "{passed} of {most}");
    }

    #[tokio::test(start_paused = true)]
    async fn datagrams_beyond_the_rate_are_dropped_and_have_a_part_beside_connections() {
        let mut pace = Pace::new(Some(RATE));
        let passed = async |pace: &mut Pace, seconds: u64| {
            let mut passed = 0;
            for _ in 0..seconds * 1000 {
                advance(Duration::from_millis(1)).await;
                passed += (0..3).filter(|_| pace.take_datagram(1000)).count() as u64 * 1000;
            }
            passed
        };
        let alone = passed(&mut pace, 4).await;
        assert!((4 * RATE..=4 * RATE + burst(RATE) * 5 / 4 + 4000 + RATE).contains(&alone), "{alone}");
        // Connections wait for an hour's bytes.
        pace.take(RATE * 3600);
        let beside = passed(&mut pace, 4).await;
        assert!((RATE * 9 / 10..=RATE * 11 / 10 + burst(RATE)).contains(&beside), "{beside}");
    }

    #[tokio::test(start_paused = true)]
    async fn another_rate_holds_at_once() {
        let mut pace = Pace::new(Some(1000));
        pace.take(10_000_000);
        pace.set(None);
        assert!(pace.take(10_000_000) <= Instant::now());
        pace.set(Some(1000));
        assert_eq!(pace.take(1000) - Instant::now(), Duration::from_secs(1), "no burst by changing the file");
    }
}

//! How much a relay lets come (P15): what the next link carries in the round trip of the link before, and ten milliseconds more.

use crate::switch::{self, Mechanism};
use crate::units::{Duration, Time};

/// Delay that packets may stand in a relay: ten milliseconds (P15), less one because the round trip that is measured has some of it in it.
const STANDING: Duration = Duration::from_millis(9);
/// Shortest time over which the rate is measured.
const SHORTEST: Duration = Duration::from_millis(20);
/// Packets that may be on their way or wait, as long as nothing waits for long: as many as may come before the first CREDIT.
const UNLIMITED_FLOOR: u64 = 64;
/// And when something does: enough to keep the next link busy.
const LIMITED_FLOOR: u64 = 4;

/// Follows how fast packets leave a relay, and how many wait.
#[derive(Debug)]
pub struct Drain {
    since: Time,
    forwarded: u64,
    /// Fewest packets that waited since.
    least: u64,
    window: u64,
    /// How long the packets that waited all the time took to leave.
    standing: Duration,
}

impl Drain {
    /// Nothing has passed yet.
    pub fn new(now: Time) -> Self {
        Self { since: now, forwarded: 0, least: u64::MAX, window: UNLIMITED_FLOOR, standing: Duration::ZERO }
    }

    /// The number of packets passed on so far and waiting now; `rtt` is that of the link that they come by. Returns how many may be on
    /// their way here or wait.
    ///
    /// While packets wait all the time, the next link is the bottleneck: its rate is what leaves, and what may come is that rate times the
    /// round trip and ten milliseconds. Otherwise twice of what left may come: the rate can double in each round trip (P11).
    pub fn sample(&mut self, now: Time, forwarded: u64, waiting: u64, rtt: Duration) -> u64 {
        self.least = self.least.min(waiting);
        let elapsed = now.since(self.since);
        if elapsed >= rtt.max(SHORTEST) {
            let rate = (forwarded - self.forwarded) as f64 / elapsed.as_secs_f64();
            let carried = (rate * (rtt + STANDING).as_secs_f64()).ceil() as u64;
            self.window = if self.least == 0 { (2 * carried).max(UNLIMITED_FLOOR) } else { carried.max(LIMITED_FLOOR) };
            self.standing = if rate > 0.0 { Duration::from_secs_f64((self.least as f64 / rate).min(60.0)) } else { Duration::ZERO };
            (self.since, self.forwarded, self.least) = (now, forwarded, waiting);
        }
        if switch::is_off(Mechanism::RelayCredit) { u64::MAX / 4 } else { self.window }
    }

    /// Delay that no packet of the last interval was spared.
    pub fn standing(&self) -> Duration {
        self.standing
    }
}

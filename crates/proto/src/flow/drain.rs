//! How much a relay lets come (P15): what the next link carries in the round trip of the link before, and ten milliseconds more.

use crate::switch::{self, Mechanism};
use crate::units::{Duration, Time};

/// Delay that packets may stand in a relay: ten milliseconds (P15), less one because the round trip that is measured has some of it in it.
const STANDING: Duration = Duration::from_millis(9);
/// And never less than so many packets, without which chance alone leaves the next link idle now and then.
const STANDING_PACKETS: u64 = 4;
/// Shortest time over which the rate is measured.
const SHORTEST: Duration = Duration::from_millis(20);
/// Packets that wait stand when some do for so many round trips on end: where links of the same rate lose packets, a queue comes and goes by chance.
const STANDING_RTTS: u32 = 4;
/// A queue so many times longer than may stand is not left for so long.
const FAR: u64 = 4;
/// Packets that may be in flight or wait, as long as nothing waits for long: as many as may come before the first CREDIT.
const UNLIMITED_FLOOR: u64 = 64;

/// Follows how fast packets leave a relay, and how many wait.
#[derive(Debug)]
pub struct Drain {
    since: Time,
    forwarded: u64,
    /// Fewest packets that waited since.
    least: u64,
    window: u64,
    /// By how much it grew last; zero when it did not.
    growth: u64,
    /// How long the packets that waited all the time took to leave.
    queueing_delay: Duration,
}

impl Drain {
    /// Nothing has passed yet.
    pub fn new(now: Time) -> Self {
        Self { since: now, forwarded: 0, least: u64::MAX, window: UNLIMITED_FLOOR, growth: 0, queueing_delay: Duration::ZERO }
    }

    /// The number of packets passed on so far and waiting now; `rtt` is that of the link that they come by. Returns how many may be in
    /// flight or wait.
    ///
    /// Packets that wait for longer than they may are taken from it: then the next link is the bottleneck, and what may come is what it carries in
    /// a round trip and what may stand. While nothing waits it grows, up to twice of what leaves in that time (P11): at first by what may stand, for
    /// all that is too much will, and by twice as much in each round trip that follows.
    pub fn sample(&mut self, now: Time, forwarded: u64, waiting: u64, rtt: Duration) -> u64 {
        self.least = self.least.min(waiting);
        let elapsed = now.since(self.since);
        let round = rtt.max(SHORTEST);
        if elapsed >= round {
            let rate = (forwarded - self.forwarded) as f64 / elapsed.as_secs_f64();
            let may_stand = ((rate * STANDING.as_secs_f64()).ceil() as u64).max(STANDING_PACKETS);
            let is_clear = self.least == 0 || self.least > FAR * may_stand;
            if is_clear || elapsed >= round * STANDING_RTTS {
                self.adjust((rate * (rtt + STANDING).as_secs_f64()).ceil() as u64, may_stand);
                self.queueing_delay =
                    if rate > 0.0 { Duration::from_secs_f64((self.least as f64 / rate).min(60.0)) } else { Duration::ZERO };
                (self.since, self.forwarded, self.least) = (now, forwarded, waiting);
            }
        }
        if switch::is_off(Mechanism::RelayCredit) { u64::MAX / 4 } else { self.window }
    }

    /// `carried`: packets that leave in the round trip of the link before and the time for which they may stand.
    fn adjust(&mut self, carried: u64, may_stand: u64) {
        let carried = carried.max(STANDING_PACKETS);
        let most = (2 * carried).max(UNLIMITED_FLOOR);
        self.growth = if self.least > 0 { 0 } else { (2 * self.growth).clamp(may_stand, most) };
        self.window = (self.window + self.growth).min(most).saturating_sub(self.least.saturating_sub(may_stand)).max(carried);
    }

    /// Delay that no packet of the last interval was spared.
    pub fn queueing_delay(&self) -> Duration {
        self.queueing_delay
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const RTT: Duration = Duration::from_millis(30);
    /// Packets that leave in a round trip: 1000 per second.
    const PER_RTT: u64 = 30;

    /// Round trips at whose ends so many wait; the window after the last.
    fn after(drain: &mut Drain, now: &mut Time, waiting: &[u64]) -> u64 {
        waiting.iter().fold(0, |_, &waiting| {
            *now += RTT;
            let passed = PER_RTT * (now.since(Time::ZERO).as_millis() / RTT.as_millis()) as u64;
            drain.sample(*now, passed, waiting, RTT)
        })
    }

    fn start() -> (Drain, Time) {
        (Drain::new(Time::ZERO), Time::ZERO)
    }

    /// 30 packets leave in a round trip, 9 in the time for which packets may stand: at most twice of both may come.
    #[test]
    fn window_grows_to_twice_of_what_leaves_while_nothing_waits() {
        let (mut drain, mut now) = start();
        assert_eq!(after(&mut drain, &mut now, &[0]), 64 + 9);
        assert_eq!(after(&mut drain, &mut now, &[0]), 78);
        drain.window = 39;
        drain.growth = 0;
        let grown: Vec<u64> = (0..3).map(|_| after(&mut drain, &mut now, &[0])).collect();
        assert_eq!(grown, [48, 66, 78], "by what may stand, by twice of it, up to the most");
    }

    #[test]
    fn a_queue_that_comes_and_goes_takes_nothing() {
        let (mut drain, mut now) = start();
        assert_eq!(after(&mut drain, &mut now, &[0, 12, 20, 7]), 78);
        assert_eq!(after(&mut drain, &mut now, &[0]), 78);
    }

    #[test]
    fn what_stands_for_four_round_trips_is_taken_but_for_what_may_stand() {
        let (mut drain, mut now) = start();
        // In the first of them there is a moment without a queue.
        assert_eq!(after(&mut drain, &mut now, &[0, 20, 15, 20, 20]), 78);
        assert_eq!(after(&mut drain, &mut now, &[20]), 78 - (15 - 9));
        assert_eq!(drain.queueing_delay(), Duration::from_millis(15));
        assert_eq!(after(&mut drain, &mut now, &[9, 9, 9, 9]), 72, "so many may stand");
    }

    #[test]
    fn a_queue_far_too_long_is_answered_at_once() {
        let (mut drain, mut now) = start();
        assert_eq!(after(&mut drain, &mut now, &[0, 60]), 78);
        assert_eq!(after(&mut drain, &mut now, &[60]), 39, "what leaves in a round trip and may stand, and no less");
    }
}

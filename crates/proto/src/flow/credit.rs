//! Credit that a receiver grants (P15): an absolute limit that follows what the application takes, with a window that grows with the path.

use crate::switch::{self, Mechanism};
use crate::units::{Duration, Time};

/// Credit window and the state of its reports.
#[derive(Debug)]
pub(super) struct Credit {
    /// Packets that may be sent beyond what was consumed.
    window: u64,
    /// The window grows up to this.
    ceiling: u64,
    /// What the sender may assume before the first report.
    initial: u64,
    consumed: u64,
    limit: u64,
    /// Limit and done as last reported, and when.
    reported: (u64, u64),
    reported_at: Time,
    /// The last report was lost.
    is_lost: bool,
    /// The window is set by what leaves a relay.
    is_following: bool,
    /// Arrivals of this round trip.
    arrivals: u64,
    /// Arrivals of the last full one.
    per_rtt: u64,
    since: Time,
    rtt: Duration,
    /// How long it takes on average until a hole is filled, wherever on the path the packets were lost.
    filling: Duration,
}

/// Packets that every flow is granted by the first report, if its memory allows.
const FIRST_WINDOW: u64 = 1024;
/// The window is so many times what arrives in a round trip. What arrives is 1-p of the BDP: at 30 % loss this is 8 BDP, with which an ordered flow
/// reaches 99 % of 1-p (P13 asks for 4), and 4 BDP at any loss if the rate doubles before a report is heard (P11).
const WINDOW_RTTS: u64 = 12;
/// The window is at least four times the time in which holes are filled, which is 1.1 round trips of the link that lost the packets and more (P13): this part
/// of it counts as one of the twelve.
const FILLING_PER_RTT: u32 = 3;
/// Reports per round trip when packets keep coming.
const REPORTS_PER_RTT: u64 = 8;
/// A relay grants what has left it in steps of at most this, for what is granted together comes together: half of what may stand (P15).
const RELAY_STEP: Duration = Duration::from_millis(5);

impl Credit {
    /// `initial`: what the sender may assume before the first report.
    pub fn new(initial: u64, ceiling: u64) -> Self {
        let ceiling = ceiling.max(initial);
        let window = FIRST_WINDOW.clamp(initial, ceiling);
        Self {
            window,
            ceiling,
            initial,
            consumed: 0,
            limit: window,
            reported: (initial, 0),
            reported_at: Time::ZERO,
            is_lost: false,
            is_following: false,
            arrivals: 0,
            per_rtt: 0,
            since: Time::ZERO,
            rtt: Duration::from_millis(100),
            filling: Duration::ZERO,
        }
    }

    /// One past the last sequence number granted.
    pub fn limit(&self) -> u64 {
        self.limit
    }

    /// One past the last sequence number for which there is memory now: below the limit if memory was lent to others since.
    pub fn covered(&self) -> u64 {
        self.limit.min(self.consumed.saturating_add(self.ceiling))
    }

    /// Memory for so many packets; never less than what the sender may send before the first report.
    pub fn set_ceiling(&mut self, packets: u64) {
        self.ceiling = packets.max(self.initial);
        self.window = self.window.min(self.ceiling);
    }

    /// The smoothed RTT as last told.
    pub fn rtt(&self) -> Duration {
        self.rtt
    }

    pub fn set_rtt(&mut self, rtt: Duration) {
        self.rtt = rtt.max(Duration::from_millis(1));
    }

    /// A hole was filled so long after the packets behind it had come.
    pub fn on_filled(&mut self, after: Duration) {
        self.filling = if self.filling.is_zero() { after } else { (self.filling * 3 + after) / 4 };
    }

    /// The round trip that the window has to be measured by: that of the link, or of a longer one further up, whose losses hold up what comes over this one.
    fn round_trip(&self) -> Duration {
        if switch::is_off(Mechanism::DistantHoles) { self.rtt } else { self.rtt.max(self.filling / FILLING_PER_RTT) }
    }

    /// A relay, whose flow begins at packet `first`: so many may come before the first report, and what may come later [`Credit::follow`] says.
    pub fn following(first: u64, initial: u64) -> Self {
        let limit = first + initial;
        Self { consumed: first, limit, reported: (limit, first), window: initial, is_following: true, ..Self::new(initial, initial) }
    }

    /// A relay: everything below `passed` was passed on, or is not needed any more; so many packets beyond it may be in flight here or wait, as far as
    /// there is memory for so many.
    pub fn follow(&mut self, passed: u64, window: u64, memory: u64) {
        self.ceiling = memory.max(self.initial);
        self.window = window.min(memory);
        self.consume(passed);
    }

    /// The flow goes on over another hop, whose sender knows nothing of this one's reports: so many packets from `first` on may come at once. What lies
    /// beyond the limit was never granted, so no honest flow goes on there.
    pub fn restart(&mut self, first: u64, initial: u64) {
        self.limit = self.limit.max(first.min(self.limit) + initial);
        self.is_lost = true;
    }

    /// An innovative packet arrived.
    pub fn on_arrival(&mut self, now: Time) {
        if now.since(self.since) >= self.round_trip() {
            self.per_rtt = self.arrivals;
            (self.since, self.arrivals) = (now, 0);
        }
        self.arrivals += 1;
        if self.is_following {
            return;
        }
        let wanted = self.per_rtt.max(self.arrivals) * WINDOW_RTTS;
        if wanted > self.window {
            self.window = wanted.min(self.ceiling);
            self.limit = self.limit.max(self.consumed + self.window);
        }
    }

    /// The application has taken all packets below `total`.
    pub fn consume(&mut self, total: u64) {
        self.consumed = self.consumed.max(total);
        self.limit = self.limit.max(self.consumed + self.window);
    }

    /// When the next report is due, given that the flow is done up to `done`.
    pub fn due(&self, done: u64, is_end: bool) -> Option<Time> {
        let (limit, reported_done) = self.reported;
        if self.is_lost || (is_end && done > reported_done) {
            return Some(Time::ZERO);
        }
        if (self.limit, done) == self.reported {
            return None;
        }
        let moved = (self.limit - limit).max(done - reported_done);
        // Some eight times per round trip while packets keep coming, and not more often than once per millisecond.
        let step = (self.per_rtt.max(self.arrivals) / REPORTS_PER_RTT).clamp(1, (self.window / 8).max(1));
        let is_enough =
            if self.is_following { moved >= (self.window / 8).min(self.arriving_in(RELAY_STEP)).max(2) } else { moved >= step.max(8) };
        let wait = if is_enough { Duration::from_millis(1) } else { (self.rtt * 2).max(Duration::from_millis(50)) };
        Some(self.reported_at + wait)
    }

    /// Packets that come in this time, by the last round trips.
    fn arriving_in(&self, time: Duration) -> u64 {
        (self.per_rtt.max(self.arrivals) as f64 * time.div_duration_f64(self.round_trip())) as u64
    }

    /// A report goes out: the limit to state.
    pub fn report(&mut self, now: Time, done: u64) -> u64 {
        self.reported = (self.limit, done);
        self.reported_at = now;
        self.is_lost = false;
        self.limit
    }

    /// The report of this limit was lost: repeat it if nothing newer was sent.
    pub fn on_lost(&mut self, limit: u64) {
        self.is_lost |= limit == self.reported.0;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MS: fn(u64) -> Time = Time::from_millis;

    #[test]
    fn window_grows_to_twelve_times_what_arrives_in_a_round_trip_and_stops_at_the_ceiling() {
        let mut credit = Credit::new(64, 5000);
        credit.set_rtt(Duration::from_millis(100));
        for i in 0..200 {
            credit.on_arrival(MS(i / 2));
        }
        assert_eq!((credit.window, credit.limit()), (2400, 2400));
        for i in 200..4000 {
            credit.on_arrival(MS(i / 2));
        }
        assert_eq!(credit.window, 2400, "as many in every round trip");
        for i in 0..1000 {
            credit.on_arrival(MS(3000 + i / 20));
        }
        assert_eq!(credit.window, 5000);
    }

    #[test]
    fn first_report_grants_1024_packets_or_what_memory_allows() {
        let mut credit = Credit::new(64, 100_000);
        assert!(credit.due(0, false).is_some());
        assert_eq!(credit.report(MS(1), 0), 1024);
        assert_eq!((Credit::new(64, 200).limit(), Credit::new(64, 10).limit()), (200, 64));
    }

    #[test]
    fn a_hop_that_claims_to_go_on_far_ahead_is_granted_no_more_than_any() {
        let mut credit = Credit::new(64, 64);
        credit.restart(1 << 61, 64);
        assert_eq!(credit.limit(), 128);
    }

    #[test]
    fn limit_never_falls() {
        let mut credit = Credit::new(64, 64);
        credit.consume(100);
        assert_eq!(credit.limit(), 164);
        credit.consume(50);
        assert_eq!(credit.limit(), 164);
    }

    #[test]
    fn report_is_due_when_the_limit_moved_and_again_when_the_report_was_lost() {
        let mut credit = Credit::new(64, 64);
        assert_eq!(credit.due(0, false), None);
        credit.consume(16);
        let due = credit.due(16, false).unwrap();
        assert_eq!(credit.report(due, 16), 80);
        assert_eq!(credit.due(16, false), None);
        credit.on_lost(80);
        assert_eq!(credit.due(16, false), Some(Time::ZERO));
        credit.report(due, 16);
        credit.on_lost(64);
        assert_eq!(credit.due(16, false), None, "an older report does not matter");
    }

    /// Packets that a relay, past which 100 packets go per 100 ms, grants by one report.
    fn step_of_a_relay(window: u64) -> u64 {
        let mut credit = Credit::following(0, 64);
        credit.set_rtt(Duration::from_millis(100));
        for i in 1..=400 {
            credit.on_arrival(MS(i));
            credit.follow(i, window, 1000);
        }
        credit.report(MS(400), 400);
        let passed = (401..).find(|passed| {
            credit.follow(*passed, window, 1000);
            credit.due(*passed, false) == Some(MS(401))
        });
        passed.unwrap() - 400
    }

    #[test]
    fn relay_grants_in_steps_of_an_eighth_of_its_window_and_of_five_milliseconds() {
        assert_eq!([32, 40, 100, 400].map(step_of_a_relay), [4, 5, 5, 5]);
        assert_eq!(step_of_a_relay(8), 2, "not one by one");
    }

    #[test]
    fn reports_are_sparse_while_little_moves() {
        let mut credit = Credit::new(1024, 100_000);
        credit.report(MS(1000), 0);
        credit.consume(1);
        assert!(credit.due(1, false).unwrap() >= MS(1050));
        credit.consume(200);
        assert_eq!(credit.due(200, false), Some(MS(1001)));
    }
}

//! Loss detection by time (P10): a packet is lost when one that left sufficiently later has arrived, "sufficiently" being an adaptive reordering window.
//!
//! The evidence is the *sending* times of both packets, so that delayed or bunched acknowledgements never look like loss. A timer serves the tail.

use super::rtt::RttEstimator;
use super::sent::SentPackets;
use crate::switch::{self, Mechanism};
use crate::units::{Duration, Time};

/// The reordering window never falls below this: timers and sends in trains are no finer.
const MIN_WINDOW: Duration = Duration::from_micros(500);
/// Where RTT is small beside its own variation the window may still grow to this.
const MAX_FLOOR: Duration = Duration::from_millis(2);
/// Reordering that was seen is remembered for at least one and at most two such spans.
const MEMORY: Duration = Duration::from_secs(4);

/// Which packets are lost, and when the question should be asked again.
#[derive(Clone, Debug)]
pub struct LossDetector {
    /// Widest reordering of the present and the previous memory span.
    extent_now: Duration,
    extent_before: Duration,
    span_began: Time,
    largest_acked: Option<u64>,
    /// When the most recently sent acknowledged packet was sent.
    newest_acked_sent: Time,
    /// Numbers that no acknowledgement has covered, because too many of them were lost: silence about them is no evidence until then.
    uncovered: Option<(u64, u64, Time)>,
    cursor: u64,
    deadline: Option<Time>,
}

impl LossDetector {
    /// Nothing sent yet.
    pub fn new(now: Time) -> Self {
        Self {
            extent_now: Duration::ZERO,
            extent_before: Duration::ZERO,
            span_began: now,
            largest_acked: None,
            newest_acked_sent: Time::ZERO,
            uncovered: None,
            cursor: 0,
            deadline: None,
        }
    }

    /// The present reordering window: RTT/8 to RTT (P10).
    pub fn window(&self, rtt: &RttEstimator) -> Duration {
        let seen = if switch::is_off(Mechanism::ReorderingWindow) { Duration::ZERO } else { self.extent_now.max(self.extent_before) };
        let low = (rtt.smoothed() / 8).max(MIN_WINDOW);
        let high = (rtt.smoothed() + rtt.var()).max(MAX_FLOOR);
        // A quarter above the widest seen: the next one may be a little wider.
        (seen + seen / 4).clamp(low, high.max(low))
    }

    /// A packet was acknowledged although packets sent later had been acknowledged before it.
    ///
    /// `extent`: how much later the newest of those had been sent.
    fn on_reordering(&mut self, now: Time, extent: Duration) {
        self.roll(now);
        self.extent_now = self.extent_now.max(extent);
    }

    /// Another path: how it reorders is not known.
    pub fn forget_reordering(&mut self, now: Time) {
        (self.extent_now, self.extent_before, self.span_began) = (Duration::ZERO, Duration::ZERO, now);
    }

    fn roll(&mut self, now: Time) {
        if now.since(self.span_began) > MEMORY {
            self.extent_before = self.extent_now;
            self.extent_now = Duration::ZERO;
            self.span_began = now;
        }
    }

    /// An acknowledgement covers `lowest..=largest`; called before its packets are looked at.
    pub fn on_coverage(&mut self, now: Time, lowest: u64, largest: u64, rtt: &RttEstimator) {
        if let Some((from, to, _)) = self.uncovered
            && lowest <= from
            && largest >= to
        {
            self.uncovered = None;
        }
        if let Some(prior) = self.largest_acked
            && lowest > prior + 1
        {
            let from = self.uncovered.map_or(prior + 1, |u| u.0);
            self.uncovered = Some((from, lowest - 1, now + rtt.smoothed()));
        }
    }

    /// Packet `pn`, sent at `sent_at`, is newly acknowledged.
    pub fn on_acked(&mut self, now: Time, pn: u64, sent_at: Time, prior_largest: Option<u64>, prior_newest_sent: Time) {
        if let Some(prior) = prior_largest
            && pn < prior
            && !self.uncovered.is_some_and(|(from, to, _)| (from..=to).contains(&pn))
        {
            self.on_reordering(now, prior_newest_sent.since(sent_at));
        }
        self.largest_acked = self.largest_acked.max(Some(pn));
        self.newest_acked_sent = self.newest_acked_sent.max(sent_at);
    }

    /// Largest number acknowledged, and the sending time of the most recently sent packet that was.
    pub fn newest(&self) -> (Option<u64>, Time) {
        (self.largest_acked, self.newest_acked_sent)
    }

    /// Appends the numbers of packets that are lost as of `now`.
    pub fn detect(&mut self, now: Time, rtt: &RttEstimator, sent: &SentPackets, lost: &mut Vec<u64>) {
        self.roll(now);
        self.deadline = None;
        let Some(largest) = self.largest_acked else { return };
        if self.uncovered.is_some_and(|(_, _, until)| now >= until) {
            self.uncovered = None;
        }
        let window = self.window(rtt);
        let patience = rtt.smoothed().max(rtt.latest_raw()) + rtt.expected_ack_delay() + window;
        let mut pn = self.cursor;
        while let Some(candidate) = sent.next_in_flight(pn).filter(|&c| c < largest) {
            let Some(packet) = sent.get(candidate) else { break };
            if let Some((from, to, until)) = self.uncovered
                && (from..=to).contains(&candidate)
            {
                self.deadline = Some(until);
                break;
            }
            let by_evidence = packet.sent_at + window <= self.newest_acked_sent;
            if !by_evidence && packet.sent_at + patience > now {
                self.deadline = Some(packet.sent_at + patience);
                break;
            }
            lost.push(candidate);
            pn = candidate + 1;
        }
        self.cursor = pn;
    }

    /// When the next packet will be lost if nothing more arrives.
    pub fn deadline(&self) -> Option<Time> {
        self.deadline
    }
}

//! The rate control of `gcc`: what arrives, and a rate that grows until a queue does and then falls below what arrived
//! (draft-ietf-rmcat-gcc-02 §5.5).

use super::gcc_delay::Usage;
use crate::units::{Duration, Time};
use std::collections::VecDeque;

/// §5.5: T, over which what arrives is counted; 0.5 to 1 s.
const RECEIVED_OVER: Duration = Duration::from_millis(500);
/// The same where the rate grows from nothing: over half a second it would be far below what the bottleneck lets through at last.
const RECEIVED_AT_START: Duration = Duration::from_millis(125);
/// Arrivals are kept in parts of this.
const PART: Duration = Duration::from_millis(10);
/// §5.5: multiplicative increase per second.
const ETA: f64 = 1.08;
/// §5.5: multiplicative decrease of what arrived, 0.8 to 0.95.
const BETA: f64 = 0.85;
/// §5.5: a rate that does not get through is not raised above this many times what arrives.
const AHEAD: f64 = 1.5;
/// §5.5: the response time is the RTT and this.
const RESPONSE: Duration = Duration::from_millis(100);
/// §5.5: half a packet per response time, where packets are those of frames, 30 per second, of at most 1200 bytes.
const PACKETS_PER_RESPONSE: f64 = 0.5;
const FRAMES_PER_SEC: f64 = 30.0;
const FRAME_PACKET: f64 = 1200.0;
/// §5.5: an additive step is at least 1000 bit.
const LEAST_STEP: f64 = 125.0;
/// §5.5: smoothing of the rates at which decreases came,
const SMOOTHING: f64 = 0.95;
/// of which the rate is near within so many deviations.
const NEAR: f64 = 3.0;
/// The deviation as a share of their mean: what it begins with, and its bounds. The draft has none.
const FIRST_DEVIATION: f64 = 0.02;
const DEVIATION: core::ops::RangeInclusive<f64> = 0.01..=0.03;
/// Between two decreases lies an RTT, in which the first one cannot show; at most this, for the RTT may be a queue.
const LONGEST_PAUSE: Duration = Duration::from_millis(200);
/// RFC 8511 §3 allows less of a reduction for a mark than for a loss; at least this is asked of every control here.
const MARK_BETA: f64 = 0.8;
/// No less than this, in bytes per second (30 kbit/s): a voice.
pub(super) const LEAST: f64 = 3750.0;

/// R_hat: what arrived in the last half second.
#[derive(Debug, Default)]
struct ReceivedRate {
    /// Bytes by the beginning of the part in which they arrived.
    parts: VecDeque<(Time, u64)>,
    since: Option<Time>,
}

impl ReceivedRate {
    fn on_arrival(&mut self, arrived: Time, bytes: u64) {
        self.since.get_or_insert(arrived);
        match self.parts.back_mut() {
            Some((begin, sum)) if arrived < *begin + PART => *sum += bytes,
            _ => self.parts.push_back((arrived, bytes)),
        }
        while self.parts.front().is_some_and(|(begin, _)| *begin + RECEIVED_OVER <= arrived) {
            self.parts.pop_front();
        }
    }

    /// Bytes per second; `None` until a tenth of a second is known.
    fn get(&self, now: Time) -> Option<f64> {
        self.over(RECEIVED_OVER, now)
    }

    fn over(&self, time: Duration, now: Time) -> Option<f64> {
        let known = now.since(self.since?).min(time);
        // Not what came at the beginning of the time: it arrived in the time before.
        let bytes: u64 = self.parts.iter().filter(|(begin, _)| *begin + known > now).map(|(_, bytes)| bytes).sum();
        (known >= RECEIVED_OVER / 5).then(|| bytes as f64 / known.as_secs_f64())
    }
}

/// The states of §5.5, and one before them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum State {
    /// No queue was seen yet. The draft does not say how a rate is found; here it doubles per response time, at most [`AHEAD`] of what arrives.
    Start,
    Increase,
    Hold,
    Decrease,
}

/// Mean and deviation of the rates that arrived when a decrease came (§5.5).
#[derive(Clone, Copy, Debug)]
struct Maximum {
    mean: f64,
    /// Relative to the mean, squared.
    variance: f64,
}

impl Maximum {
    fn new(rate: f64) -> Self {
        Self { mean: rate, variance: FIRST_DEVIATION.powi(2) }
    }

    /// How many deviations the rate lies above the mean.
    fn distance(&self, rate: f64) -> f64 {
        (rate / self.mean - 1.0) / self.variance.sqrt()
    }

    fn on_decrease(&mut self, rate: f64) {
        let off = rate / self.mean - 1.0;
        self.variance =
            (SMOOTHING * self.variance + (1.0 - SMOOTHING) * off * off).clamp(DEVIATION.start().powi(2), DEVIATION.end().powi(2));
        self.mean = SMOOTHING * self.mean + (1.0 - SMOOTHING) * rate;
    }
}

/// A_hat and what it comes from.
#[derive(Debug)]
pub(super) struct RateControl {
    /// A_hat, bytes per second of UDP payload.
    pub(super) rate: f64,
    pub(super) state: State,
    received: ReceivedRate,
    maximum: Option<Maximum>,
    updated_at: Option<Time>,
    decreased_at: Option<Time>,
}

impl RateControl {
    pub(super) fn new(rate: f64) -> Self {
        Self { rate, state: State::Start, received: ReceivedRate::default(), maximum: None, updated_at: None, decreased_at: None }
    }

    pub(super) fn on_arrival(&mut self, arrived: Time, bytes: u64) {
        self.received.on_arrival(arrived, bytes);
    }

    /// The rate grows by a constant per time.
    pub(super) fn is_additive(&self, now: Time) -> bool {
        match (&self.maximum, self.received.get(now)) {
            (Some(maximum), Some(received)) => maximum.distance(received).abs() <= NEAR,
            _ => false,
        }
    }

    /// A group was judged whose last packet arrived `now`.
    pub(super) fn on_usage(&mut self, usage: Usage, now: Time, rtt: Duration) {
        let elapsed = now.since(self.updated_at.replace(now).unwrap_or(now)).as_secs_f64();
        let before = self.state;
        self.state = match (self.state, usage) {
            (_, Usage::Over) => State::Decrease,
            (state @ State::Start, _) => state,
            (_, Usage::Under) => State::Hold,
            (State::Decrease, Usage::Normal) => State::Hold,
            (State::Hold | State::Increase, Usage::Normal) => State::Increase,
        };
        let response = (RESPONSE + rtt).as_secs_f64();
        match self.state {
            State::Decrease if self.decreased_at.is_none_or(|at| now.since(at) >= rtt.min(LONGEST_PAUSE)) => {
                let over = if before == State::Start { RECEIVED_AT_START } else { RECEIVED_OVER };
                self.decrease(now, over, BETA);
            }
            State::Decrease | State::Hold => {}
            State::Start => self.increase(now, self.rate * 2f64.powf((elapsed / response).min(1.0))),
            State::Increase => {
                let received = self.received.get(now);
                if self.maximum.zip(received).is_some_and(|(m, r)| m.distance(r) > NEAR) {
                    self.maximum = None; // More than ever gets through: the bottleneck is another.
                }
                if self.is_additive(now) {
                    let step = PACKETS_PER_RESPONSE * expected_packet(self.rate) * (elapsed / response).min(1.0);
                    // 1000 bit is the least of an update of the draft, one per response time at most; here a group updates.
                    self.increase(now, self.rate + step.max(LEAST_STEP * (elapsed / response).min(1.0)));
                } else {
                    self.increase(now, self.rate * ETA.powf(elapsed.min(1.0)));
                }
            }
        }
    }

    /// Packets were marked instead of lost.
    pub(super) fn on_mark(&mut self, now: Time) {
        self.state = State::Decrease;
        self.updated_at = Some(now);
        let before = self.rate;
        self.decrease(now, RECEIVED_OVER, MARK_BETA);
        self.rate = self.rate.min(MARK_BETA * before).max(LEAST);
    }

    /// Nothing arrives any more: what the path carries is found anew, from the least (RFC 9002 §7.6.2).
    pub(super) fn on_silence(&mut self) {
        *self = Self::new(LEAST);
    }

    /// Losses show that the rate is found: it is not doubled any more.
    pub(super) fn end_start(&mut self) {
        if self.state == State::Start {
            self.state = State::Hold;
        }
    }

    fn increase(&mut self, now: Time, rate: f64) {
        let most = self.received.get(now).map_or(self.rate, |received| received * AHEAD);
        // What an application does not use is not raised, but not taken back either.
        self.rate = rate.min(most.max(self.rate));
    }

    fn decrease(&mut self, now: Time, over: Duration, beta: f64) {
        let Some(received) = self.received.over(over, now) else { return };
        self.decreased_at = Some(now);
        match &mut self.maximum {
            Some(maximum) if maximum.distance(received).abs() <= NEAR => maximum.on_decrease(received),
            other => *other = Some(Maximum::new(received.max(LEAST))),
        }
        self.rate = self.rate.min(beta * received).max(LEAST);
    }
}

/// §5.5: the mean size of the packets of a video of that rate, bytes.
fn expected_packet(rate: f64) -> f64 {
    let frame = rate / FRAMES_PER_SEC;
    frame / (frame / FRAME_PACKET).ceil().max(1.0)
}

#[cfg(test)]
mod tests {
    use super::*;

    const RTT: Duration = Duration::from_millis(50);

    /// A control at `rate` bytes per second that arrive, one group per 20 ms.
    struct Run {
        control: RateControl,
        now: Time,
    }

    impl Run {
        fn new(rate: f64) -> Self {
            let mut control = RateControl::new(rate);
            control.state = State::Increase;
            let mut run = Self { control, now: Time::from_millis(1000) };
            run.groups(50, rate, None);
            run
        }

        fn groups(&mut self, count: u32, received: f64, usage: Option<Usage>) {
            for _ in 0..count {
                self.now += Duration::from_millis(20);
                self.control.on_arrival(self.now, (received * 0.02) as u64);
                if let Some(usage) = usage {
                    self.control.on_usage(usage, self.now, RTT);
                }
            }
        }
    }

    #[test]
    fn over_use_takes_the_rate_to_0_85_of_what_arrives() {
        let mut run = Run::new(250_000.0);
        run.groups(1, 250_000.0, Some(Usage::Over));
        assert!((run.control.rate / 250_000.0 - 0.85).abs() < 0.02, "{}", run.control.rate);
        // Again and again it is what arrives, not the rate, that counts.
        run.groups(5, 250_000.0, Some(Usage::Over));
        assert!((run.control.rate / 250_000.0 - 0.85).abs() < 0.02, "{}", run.control.rate);
    }

    /// The table of §5.5.
    #[test]
    fn states_follow_the_table_of_the_draft() {
        use {State::*, Usage::*};
        for (from, usage, to) in [
            (Start, Over, Decrease),
            (Start, Normal, Start),
            (Start, Under, Start),
            (Hold, Over, Decrease),
            (Hold, Normal, Increase),
            (Hold, Under, Hold),
            (Increase, Over, Decrease),
            (Increase, Normal, Increase),
            (Increase, Under, Hold),
            (Decrease, Over, Decrease),
            (Decrease, Normal, Hold),
            (Decrease, Under, Hold),
        ] {
            let mut run = Run::new(250_000.0);
            run.control.state = from;
            run.groups(1, 250_000.0, Some(usage));
            assert_eq!(run.control.state, to, "{from:?} {usage:?}");
        }
    }

    #[test]
    fn far_from_the_maximum_the_rate_grows_by_eight_per_cent_per_second() {
        let mut run = Run::new(250_000.0);
        run.groups(51, 250_000.0, Some(Usage::Normal));
        assert!((run.control.rate / 250_000.0 - 1.08).abs() < 0.003, "{}", run.control.rate);
    }

    #[test]
    fn near_the_maximum_it_grows_by_half_a_packet_per_response_time() {
        let mut run = Run::new(250_000.0);
        run.groups(1, 250_000.0, Some(Usage::Over));
        run.groups(1, 250_000.0, Some(Usage::Normal)); // Hold
        run.groups(1, 250_000.0, Some(Usage::Normal));
        assert!(run.control.is_additive(run.now));
        let before = run.control.rate;
        run.groups(50, 250_000.0, Some(Usage::Normal));
        let law = 0.5 * expected_packet(before) / 0.150;
        assert!(((run.control.rate - before) / law - 1.0).abs() < 0.05, "{} {law}", run.control.rate - before);
        // Much more gets through than at any decrease: it is forgotten.
        run.groups(40, 350_000.0, Some(Usage::Normal));
        assert!(!run.control.is_additive(run.now) && run.control.maximum.is_none());
    }

    #[test]
    fn a_rate_that_is_not_used_grows_to_one_and_a_half_times_what_arrives_and_is_kept() {
        let mut run = Run::new(250_000.0);
        run.groups(3000, 250_000.0, Some(Usage::Normal));
        assert!((run.control.rate / 250_000.0 - 1.5).abs() < 0.02, "{}", run.control.rate);
        run.groups(1000, 50_000.0, Some(Usage::Normal));
        assert!((run.control.rate / 250_000.0 - 1.5).abs() < 0.02, "{}", run.control.rate);
    }

    #[test]
    fn the_start_doubles_per_response_time_and_ends_with_the_first_queue() {
        let mut run = Run::new(250_000.0);
        run.control.state = State::Start;
        run.groups(1, 250_000.0, Some(Usage::Normal));
        let before = run.control.rate;
        run.groups(4, 250_000.0, Some(Usage::Normal));
        assert!((run.control.rate / before - 2f64.powf(80.0 / 150.0)).abs() < 0.02);
        run.groups(100, 250_000.0, Some(Usage::Normal));
        assert!((run.control.rate / 250_000.0 - 1.5).abs() < 0.02);
        run.groups(1, 250_000.0, Some(Usage::Over));
        run.groups(2, 250_000.0, Some(Usage::Normal));
        assert_eq!(run.control.state, State::Increase);
    }

    #[test]
    fn the_start_ends_at_what_arrives_at_last_and_not_at_its_mean() {
        let mut run = Run::new(50_000.0);
        run.control.state = State::Start;
        run.control.rate = 400_000.0;
        run.groups(10, 250_000.0, None);
        run.groups(1, 250_000.0, Some(Usage::Over));
        // An eighth of a second holds six or seven of these groups.
        assert!((0.8..0.96).contains(&(run.control.rate / 250_000.0)), "{}", run.control.rate);
    }

    /// What the first decrease does shows an RTT later.
    #[test]
    fn decreases_are_an_rtt_apart() {
        let mut run = Run::new(250_000.0);
        run.groups(1, 250_000.0, Some(Usage::Over));
        let first = run.control.rate;
        run.groups(2, 0.0, Some(Usage::Over));
        assert_eq!(run.control.rate, first);
        run.groups(1, 0.0, Some(Usage::Over));
        assert!(run.control.rate < first);
    }

    #[test]
    fn what_arrives_is_counted_over_half_a_second() {
        let mut run = Run::new(100_000.0);
        assert!((run.control.received.get(run.now).unwrap() / 100_000.0 - 1.0).abs() < 0.05);
        run.groups(12, 200_000.0, None); // 240 ms
        assert!((run.control.received.get(run.now).unwrap() / 150_000.0 - 1.0).abs() < 0.05);
        run.groups(14, 200_000.0, None);
        assert!((run.control.received.get(run.now).unwrap() / 200_000.0 - 1.0).abs() < 0.05);
        assert!(run.control.received.get(run.now + Duration::from_secs(2)).unwrap() == 0.0);
    }
}

//! PIE: a drop probability from the queueing delay and its trend (RFC 8033).

use std::collections::VecDeque;
use std::time::Duration;

use noctule_proto::units::Time;

use super::aqm::PieParameters;
use super::discipline::{Limits, Waiting};
use super::fq_codel::mark;
use super::random::{Dice, Purpose};

/// RFC 8033 §4.2, per second.
const ALPHA: f64 = 0.125;
const BETA: f64 = 1.25;
/// RFC 8033 §5.1: above this probability packets are dropped, not marked.
const MARK_BELOW: f64 = 0.1;
/// RFC 8033 §5.4: no drop before so much probability has gathered since the last, a sure one after so much.
const ACCUMULATED_LEAST: f64 = 0.85;
const ACCUMULATED_MOST: f64 = 8.5;

/// The queue before the transmitter.
#[derive(Debug)]
pub(super) struct Pie<P> {
    parameters: PieParameters,
    mtu: u32,
    limits: Limits,
    packets: VecDeque<Waiting<P>>,
    bytes: u64,
    probability: f64,
    accumulated: f64,
    /// Queueing delay of the packet that left last (RFC 8033 §5.2: by time stamps); zero when the queue is empty.
    delay: Duration,
    delay_old: Duration,
    burst_left: Duration,
    next_update: Time,
    dice: Dice,
}

/// Why a packet was not taken.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Refused {
    /// Dropped early, by its probability.
    Early,
    /// No room.
    Full,
}

impl<P> Pie<P> {
    pub(super) fn new(parameters: PieParameters, seed: u64) -> Self {
        Self {
            parameters,
            mtu: 1500,
            limits: Limits::default(),
            packets: VecDeque::new(),
            bytes: 0,
            probability: 0.0,
            accumulated: 0.0,
            delay: Duration::ZERO,
            delay_old: Duration::ZERO,
            burst_left: parameters.burst.0,
            next_update: Time::ZERO + parameters.update.0,
            dice: Dice::new(seed, Purpose::Aqm),
        }
    }

    pub(super) fn set_limits(&mut self, limits: Limits, mtu: u32) {
        (self.limits, self.mtu) = (limits, mtu);
    }

    pub(super) fn len(&self) -> usize {
        self.packets.len()
    }

    /// Takes a packet and says whether it was marked, or gives it back.
    pub(super) fn push(&mut self, now: Time, mut waiting: Waiting<P>) -> Result<bool, (Refused, Waiting<P>)> {
        self.advance(now);
        let (packets, bytes) = (self.packets.len() as u64 + 1, self.bytes + u64::from(waiting.wire_len));
        if !self.packets.is_empty() && self.limits.exceeded(packets, bytes) {
            return Err((Refused::Full, waiting));
        }
        let mut marked = false;
        if self.burst_left.is_zero() && self.drops_early() {
            match mark(&waiting, self.parameters.ecn && self.probability <= MARK_BELOW) {
                Some(ecn) => (waiting.ecn, marked) = (ecn, true),
                None => return Err((Refused::Early, waiting)),
            }
        }
        self.bytes = bytes;
        self.packets.push_back(waiting);
        Ok(marked)
    }

    /// The next packet to send.
    pub(super) fn pop(&mut self, now: Time) -> Option<Waiting<P>> {
        self.advance(now);
        let waiting = self.packets.pop_front()?;
        self.bytes -= u64::from(waiting.wire_len);
        self.delay = if self.packets.is_empty() { Duration::ZERO } else { now.since(waiting.since) };
        Some(waiting)
    }

    /// RFC 8033 §4.1 and §5.4.
    fn drops_early(&mut self) -> bool {
        let is_light = self.delay_old < self.parameters.target.0 / 2 && self.probability < 0.2;
        if is_light || self.bytes <= 2 * u64::from(self.mtu) {
            return false;
        }
        if self.probability == 0.0 {
            self.accumulated = 0.0;
        }
        self.accumulated += self.probability;
        let drops = if self.accumulated < ACCUMULATED_LEAST {
            false
        } else {
            self.accumulated >= ACCUMULATED_MOST || self.dice.unit() < self.probability
        };
        if drops {
            self.accumulated = 0.0;
        }
        drops
    }

    /// Makes up for the updates that were due by `now`: between two packets nothing changes that they depend on.
    fn advance(&mut self, now: Time) {
        while self.next_update <= now {
            self.update();
            self.next_update += self.parameters.update.0;
            if self.is_at_rest() {
                let missed = now.since(self.next_update).as_nanos() / self.parameters.update.0.as_nanos().max(1);
                self.next_update += Duration::from_nanos((missed as u64).saturating_mul(self.parameters.update.as_nanos()));
            }
        }
    }

    /// Further updates change nothing.
    fn is_at_rest(&self) -> bool {
        self.probability == 0.0 && self.delay.is_zero() && self.delay_old.is_zero() && self.burst_left == self.parameters.burst.0
    }

    /// RFC 8033 §4.2, §5.5.
    fn update(&mut self) {
        let (target, half) = (self.parameters.target.0.as_secs_f64(), self.parameters.target.0 / 2);
        let (now, old) = (self.delay.as_secs_f64(), self.delay_old.as_secs_f64());
        let mut step = (ALPHA * (now - target) + BETA * (now - old)) * scale(self.probability);
        if self.probability >= 0.1 && step > 0.02 {
            step = 0.02;
        }
        self.probability += step;
        if self.delay.is_zero() && self.delay_old.is_zero() {
            self.probability *= 0.98;
        }
        self.probability = self.probability.clamp(0.0, 1.0);
        self.burst_left = self.burst_left.saturating_sub(self.parameters.update.0);
        if self.probability == 0.0 && self.delay < half && self.delay_old < half {
            self.burst_left = self.parameters.burst.0;
        }
        self.delay_old = self.delay;
    }
}

/// RFC 8033 §4.2: small probabilities move in small steps.
fn scale(probability: f64) -> f64 {
    match probability {
        p if p < 0.000_001 => 1.0 / 2048.0,
        p if p < 0.000_01 => 1.0 / 512.0,
        p if p < 0.000_1 => 1.0 / 128.0,
        p if p < 0.001 => 1.0 / 32.0,
        p if p < 0.01 => 1.0 / 8.0,
        p if p < 0.1 => 0.5,
        _ => 1.0,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use noctule_proto::units::Ecn;

    fn at(ms: u64) -> Time {
        Time::ZERO + Duration::from_millis(ms)
    }

    fn packet(since: Time, ecn: Ecn) -> Waiting<u32> {
        Waiting { since, wire_len: 1500, ecn, flow: 1, packet: 0 }
    }

    /// A queue with this state, as of an update.
    fn pie(probability: f64, delay_ms: f64, delay_old_ms: f64) -> Pie<u32> {
        let mut pie = Pie::new(PieParameters::default(), 1);
        pie.probability = probability;
        pie.delay = Duration::from_secs_f64(delay_ms / 1e3);
        pie.delay_old = Duration::from_secs_f64(delay_old_ms / 1e3);
        pie
    }

    #[test]
    fn the_probability_moves_by_distance_and_trend_in_steps_that_grow_with_it() {
        // alpha (cur - ref) + beta (cur - old) = 0.125 * 0.025 + 1.25 * 0.010 = 0.015625.
        for (p, divisor) in [(0.0, 2048.0), (5e-6, 512.0), (5e-5, 128.0), (5e-4, 32.0), (5e-3, 8.0), (0.05, 2.0), (0.5, 1.0)] {
            let mut pie = pie(p, 40.0, 30.0);
            pie.update();
            assert!((pie.probability - (p + 0.015_625 / divisor)).abs() < 1e-12, "{p}: {}", pie.probability);
            assert_eq!(pie.delay_old, Duration::from_millis(40));
        }
        // Below the target and falling: it goes down, not below zero.
        let mut down = pie(0.5, 5.0, 10.0);
        down.update();
        assert!((down.probability - (0.5 - 0.125 * 0.010 - 1.25 * 0.005)).abs() < 1e-12);
        let mut zero = pie(1e-7, 0.0, 50.0);
        zero.update();
        assert_eq!(zero.probability, 0.0);
    }

    #[test]
    fn large_steps_are_cut_and_an_empty_queue_lets_it_decay() {
        let mut jump = pie(0.1, 500.0, 0.0);
        jump.update();
        assert!((jump.probability - 0.12).abs() < 1e-12);
        let mut idle = pie(0.5, 0.0, 0.0);
        idle.update();
        assert!((idle.probability - (0.5 - 0.125 * 0.015) * 0.98).abs() < 1e-12);
    }

    #[test]
    fn a_burst_is_let_pass_and_light_load_is_never_dropped() {
        let mut queue = pie(1.0, 40.0, 40.0);
        queue.bytes = 30_000;
        for _ in 0..50 {
            assert!(queue.push(at(0), packet(at(0), Ecn::NotEct)).is_ok());
        }
        queue.burst_left = Duration::ZERO;
        let refused = (0..20).filter(|_| queue.push(at(0), packet(at(0), Ecn::NotEct)).is_err()).count();
        assert_eq!(refused, 20, "with a probability of one everything is dropped once the burst is over");
        let mut light = pie(0.19, 40.0, 7.0);
        (light.burst_left, light.bytes) = (Duration::ZERO, 30_000);
        assert!((0..100).all(|_| light.push(at(0), packet(at(0), Ecn::NotEct)).is_ok()));
    }

    #[test]
    fn early_drops_come_at_the_probability_and_neither_bunched_nor_missing() {
        let mut queue = pie(0.1, 20.0, 20.0);
        (queue.burst_left, queue.bytes) = (Duration::ZERO, 300_000);
        let drops: Vec<usize> = (0..20_000).filter(|_| queue.drops_early()).collect();
        // RFC 8033 §5.4: none within 0.85/p packets of the last, none later than 8.5/p (and one, as a tenth is no binary number).
        let gaps: Vec<usize> = drops.windows(2).map(|w| w[1] - w[0]).collect();
        assert!(gaps.iter().all(|gap| (9..=86).contains(gap)), "{gaps:?}");
        assert!((900..1400).contains(&drops.len()), "{}", drops.len());
    }

    #[test]
    fn marks_replace_drops_up_to_ten_per_cent() {
        let marks = |probability| {
            let mut queue = pie(probability, 20.0, 20.0);
            queue.parameters.ecn = true;
            (queue.burst_left, queue.bytes) = (Duration::ZERO, 300_000);
            let pushed: Vec<_> = (0..1000).map(|_| queue.push(at(0), packet(at(0), Ecn::Ect0)).ok()).collect();
            (pushed.iter().filter(|p| **p == Some(true)).count(), pushed.iter().filter(|p| p.is_none()).count())
        };
        let (marked, dropped) = marks(0.05);
        assert!(marked > 20 && dropped == 0, "{marked} {dropped}");
        let (marked, dropped) = marks(0.5);
        assert!(marked == 0 && dropped > 200, "{marked} {dropped}");
    }

    #[test]
    fn a_standing_overload_is_brought_to_the_target() {
        // 10 packets per 9 ms into a link of one per ms that the sender does not slow down for.
        let mut queue = Pie::new(PieParameters::default(), 1);
        let mut delays = Vec::new();
        let mut offered = 0;
        for ms in 0..20_000 {
            while offered * 9 <= ms * 10 {
                let _ = queue.push(at(ms), packet(at(ms), Ecn::NotEct));
                offered += 1;
            }
            if let Some(sent) = queue.pop(at(ms))
                && ms > 10_000
            {
                delays.push(at(ms).since(sent.since).as_secs_f64() * 1e3);
            }
        }
        let mean = delays.iter().sum::<f64>() / delays.len() as f64;
        assert!((10.0..20.0).contains(&mean), "{mean} ms, the target is 15");
    }

    #[test]
    fn a_long_silence_costs_no_time() {
        let mut queue: Pie<u32> = Pie::new(PieParameters::default(), 1);
        queue.advance(Time::ZERO + Duration::from_secs(30_000_000));
        assert!(queue.next_update > Time::ZERO + Duration::from_secs(30_000_000));
    }
}

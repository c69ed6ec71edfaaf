//! `law`: the capacity in sent units, one proportional law on the queue, and one kind of experiment that asks whether delay and loss follow our rate.

use super::capacity::{Capacity, Epoch, MIN_EPOCH};
use super::bursts::{Bursts, Start};
use super::delay::Delay;
use super::first_flight::FirstFlight;
use super::noise::BaseLoss;
use noctule_proto::congestion::{AckEvent, ControlState, Controller, Coupled, LossEvent, SentEvent};
use noctule_proto::units::{Bandwidth, Duration, Time};

/// Doubles what is sent per round trip where rates are measured over one (BBR: 4 ln 2).
const STARTUP_GAIN: f64 = 2.77;
/// Start-up ends after so many rounds in which less than a quarter more arrived (BBR).
const PLATEAU_ROUNDS: u32 = 3;
const PLATEAU_GROWTH: f64 = 1.25;
/// And at a queue of a quarter of the base RTT within these bounds (HyStart++ takes an eighth).
const STARTUP_QUEUE: (Duration, Duration) = (Duration::from_millis(2), Duration::from_millis(30));
/// And at loss of so much more than p0, or of any excess in two epochs.
const STARTUP_EXCESS: f64 = 0.2;
/// Proportional gain of the law: stable up to 1 with one and a half round trips in the loop.
const QUEUE_GAIN: f64 = 0.5;
const MAX_CUT: f64 = 0.5;
const MAX_PUSH: f64 = 0.1;
/// The queue aimed at (Swift's scaling): it falls as the flow's rate grows, so that flows that see one queue agree on one rate.
const TARGET_QUEUE: f64 = 0.009;
const TARGET_RATE: f64 = 30e6 / 8.0;
const TARGET_EXPONENT: f64 = 0.6;
const LEAST_TARGET: f64 = 0.0003;
/// Growth: first step by the queue that it builds if nothing is free, between the bounds; it doubles while delivery follows.
const STEP_QUEUE: f64 = 0.0015;
const FIRST_STEP: (f64, f64) = (0.025, 0.25);
const PATIENCE: u32 = 4;
/// Rounds without growth after a refusal; twice as many after each further one.
const HOLD: (u64, u64) = (8, 64);
const HOLD_GAIN: f64 = 0.98;
/// The rate of the experiment: of the capacity, and of what surely arrived.
const LOW_GAIN: f64 = 0.75;
const LOW_DELIVERED: f64 = 0.9;
const LOW_PACKETS: u64 = 200;
/// It is made so often at least.
const LOOK: Duration = Duration::from_secs(5);
const LOOK_ROUNDS: u32 = 32;
const FIRST_LOOK: Duration = Duration::from_secs(1);
/// And after so many rounds with a queue that does not go.
const STUCK: u32 = 3;
const SQUEEZED_ROUNDS: u32 = 32;
const SQUEEZED: f64 = 0.8;
const EMPTIES: u32 = 2;
const BLIND_WINDOW: f64 = 1.1;
/// What is taken back of the rate before, where the delay turned out not to be our queue.
const REGAIN: f64 = 0.7;
/// Above this RTT flows agree by what the queue usually is, over so many rounds, with a gain that grows with the square of the RTT.
const AGREEMENT_RTT: f64 = 0.04;
const MAX_AGREEMENT: f64 = 2.5;
const USUAL_ROUNDS: f64 = 32.0;
/// Delay that says nothing: rounds between two probes of more, and their size.
const BLIND_ROUNDS: u64 = 8;
const BLIND_STEP: f64 = 0.05;
const RELAX_ROUNDS: u64 = 32;
const LEAST_LIMIT: Duration = Duration::from_micros(200);
/// CE is answered as RFC 8511 answers it.
const CE_CUT: f64 = 0.8;
const MIN_SLACK: f64 = 0.003;

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Why {
    Base,
    Loss,
    Delay,
    Squeezed,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum State {
    Startup,
    Drain,
    Cruise,
    /// The experiment: what delay and loss are at a lower rate.
    Low(Why),
}

/// The controller. Rates in bytes per second.
#[derive(Debug)]
pub(super) struct Law {
    datagram: f64,
    state: State,
    since: Time,
    capacity: Capacity,
    delay: Delay,
    loss: BaseLoss,
    bursts: Bursts,
    first_flight: FirstFlight,
    sent_offset: u64,
    newest_offset: u64,
    in_flight: u64,
    /// What left before belongs to a state that has ended.
    judge_from: u64,
    round: u64,
    round_end: u64,
    round_epochs: u32,
    round_ce: u64,
    round_limited: bool,
    round_delivered: f64,
    plateau: u32,
    plateau_best: f64,
    suspicion: u32,
    growth: f64,
    grown_from: f64,
    waited: u32,
    hold: u64,
    hold_until: u64,
    is_refused: bool,
    stuck: u32,
    is_far: bool,
    queue_limit: Duration,
    limited_at: u64,
    looked_at: Time,
    has_looked: bool,
    /// Delay does not follow our rate: others fill the queue, or it varies by itself.
    is_blind: bool,
    rest: Duration,
    anchor: f64,
    above: u32,
    above_since: Time,
    empties: u32,
    foreigns: u32,
    look_min: Duration,
    usual: f64,
    smoothed_rtt: Duration,
    coupled: Coupled,
    pacing: f64,
    cwnd: u64,
    reserve: u64,
    first_packets: f64,
}

impl Law {
    pub(super) fn new(datagram: u64, rtt: Duration, now: Time) -> Self {
        let first_packets = 32.0;
        let initial = first_packets * datagram as f64;
        Self {
            datagram: datagram as f64,
            state: State::Startup,
            since: now,
            capacity: Capacity::default(),
            delay: Delay::new(now),
            loss: BaseLoss::default(),
            bursts: Bursts::new(now),
            first_flight: FirstFlight::default(),
            sent_offset: 0,
            newest_offset: 0,
            in_flight: 0,
            judge_from: 0,
            round: 0,
            round_end: 0,
            round_epochs: 0,
            round_ce: 0,
            round_limited: false,
            round_delivered: 0.0,
            plateau: 0,
            plateau_best: 0.0,
            suspicion: 0,
            growth: 0.0,
            grown_from: 0.0,
            waited: 0,
            hold: HOLD.0,
            hold_until: 0,
            is_refused: false,
            stuck: 0,
            is_far: false,
            queue_limit: Duration::MAX,
            limited_at: 0,
            looked_at: now,
            has_looked: false,
            is_blind: false,
            rest: Duration::ZERO,
            anchor: 0.0,
            above: 0,
            above_since: now,
            empties: 0,
            foreigns: 0,
            look_min: Duration::ZERO,
            usual: 0.0,
            smoothed_rtt: rtt,
            coupled: Coupled::default(),
            pacing: initial / rtt.as_secs_f64().max(1e-4),
            cwnd: 2 * initial as u64,
            reserve: 0,
            first_packets,
        }
    }

    fn clear_target(&self) -> Duration {
        let rate = self.capacity.get().max(1.0) + self.coupled.rate.bytes_per_sec();
        let by_rate = TARGET_QUEUE / (1.0 + (rate / TARGET_RATE).powf(TARGET_EXPONENT));
        let packets = (2.0 * self.datagram / rate).min(2.0 * TARGET_QUEUE);
        Duration::from_secs_f64(by_rate.max(packets).max(LEAST_TARGET))
    }

    fn target(&self) -> Duration {
        let packet = Duration::from_secs_f64((self.datagram / self.capacity.get().max(1.0)).min(TARGET_QUEUE));
        (self.clear_target() + self.delay.noise()).min(self.queue_limit.max(packet))
    }

    fn enter(&mut self, state: State, now: Time) {
        self.state = state;
        self.since = now;
        self.growth = 0.0;
        self.stuck = 0;
        self.usual = self.target().as_secs_f64();
        self.judge_from = self.sent_offset;
        if matches!(state, State::Low(_)) {
            self.loss.begin_low();
            self.delay.begin_low();
        }
    }

    fn refuse(&mut self) {
        self.capacity.settle_delivered(self.loss.base());
        self.growth = 0.0;
        self.hold = if self.is_refused && !self.is_blind { (self.hold * 2).min(HOLD.1) } else { HOLD.0 };
        self.is_refused = true;
        self.hold_until = self.round + self.hold;
    }

    fn first_step(&self) -> f64 {
        if self.is_blind {
            return BLIND_STEP;
        }
        (STEP_QUEUE / self.delay.base().as_secs_f64().max(1e-3)).clamp(FIRST_STEP.0, FIRST_STEP.1)
    }

    fn end_round(&mut self, now: Time) {
        self.round += 1;
        self.round_end = self.sent_offset;
        if self.round_ce > 0 {
            self.capacity.cut(CE_CUT);
            self.growth = 0.0;
            self.queue_limit = self.queue_limit.min((self.delay.queue() * 3 / 4).max(LEAST_LIMIT));
            self.limited_at = self.round;
            if self.state == State::Startup {
                self.leave_startup(now);
            }
        }
        match self.state {
            State::Startup if !self.round_limited => {
                let is_more = self.round_delivered > self.plateau_best * PLATEAU_GROWTH;
                self.plateau_best = self.plateau_best.max(self.round_delivered);
                self.plateau = if is_more { 0 } else { self.plateau + 1 };
                if self.plateau >= PLATEAU_ROUNDS {
                    self.loss.doubt();
                    self.suspicion = 1;
                    self.leave_startup(now);
                }
            }
            State::Cruise => self.cruise_round(now),
            _ => {}
        }
        self.round_epochs = 0;
        self.round_ce = 0;
        self.round_limited = false;
        self.round_delivered = 0.0;
    }

    fn leave_startup(&mut self, now: Time) {
        self.capacity.settle();
        if self.suspicion > 0 {
            self.capacity.settle_delivered(self.loss.base());
        }
        self.suspicion = 0;
        self.enter(State::Drain, now);
    }

    fn cruise_round(&mut self, now: Time) {
        let (queue, target) = (self.delay.queue(), self.target());
        let is_held = self.round < self.hold_until;
        let (q, t) = (queue.as_secs_f64(), target.as_secs_f64());
        self.usual = if q < t / 2.0 { self.usual } else if q < t && self.usual > t { t } else { self.usual + (q - self.usual) / USUAL_ROUNDS };
        let may_grow = if self.is_blind { self.growth > 0.0 || self.round.is_multiple_of(BLIND_ROUNDS) } else { queue <= target / 2 };
        if self.round_limited || is_held || !may_grow || self.suspicion > 0 {
            self.growth = 0.0;
        } else if self.growth == 0.0 || self.capacity.latest_delivered() >= self.grown_from * (1.0 + self.growth / 2.0) {
            self.grown_from = self.capacity.delivered();
            self.growth = (self.growth * 2.0).clamp(self.first_step(), 1.0);
            self.waited = 0;
        } else {
            self.waited += 1;
            if self.waited >= PATIENCE {
                self.refuse();
            }
        }
        if !is_held && self.is_refused && self.growth > 4.0 * FIRST_STEP.0 {
            self.is_refused = false;
        }
        if self.queue_limit < Duration::MAX && self.round > self.limited_at + RELAX_ROUNDS {
            self.limited_at = self.round;
            self.queue_limit = self.queue_limit.saturating_mul(5) / 4;
            if self.queue_limit > Duration::from_secs_f64(2.0 * TARGET_QUEUE) {
                self.queue_limit = Duration::MAX;
            }
        }
        if queue * 4 <= target * 5 || self.is_blind {
            self.above = 0;
            self.above_since = now;
            self.anchor = self.capacity.get();
        } else {
            self.above += 1;
        }
        let is_squeezed = f64::from(self.above) >= f64::from(SQUEEZED_ROUNDS) * (self.delay.base().as_secs_f64() / AGREEMENT_RTT).powi(2).max(1.0) && now.since(self.above_since) >= FIRST_LOOK && self.capacity.get() < self.anchor * SQUEEZED;
        self.stuck = if !self.is_blind && queue > target * 2 + Duration::from_millis(1) { self.stuck + 1 } else { 0 };
        let every = LOOK.max(self.smoothed_rtt * LOOK_ROUNDS);
        let is_due = now.since(self.looked_at) >= every && (self.is_blind || now.since(self.delay.base_at()) >= every);
        let is_first = !self.has_looked && queue > target / 2 && now.since(self.looked_at) >= FIRST_LOOK.max(self.smoothed_rtt * 10);
        if self.stuck >= STUCK {
            self.enter(State::Low(Why::Delay), now);
        } else if is_squeezed {
            self.above = 0;
            self.above_since = now;
            self.enter(State::Low(Why::Squeezed), now);
        } else if is_due || is_first {
            self.enter(State::Low(Why::Base), now);
        }
    }

    fn on_epoch(&mut self, epoch: &Epoch, now: Time) {
        let is_excess = self.loss.is_excess(epoch.loss, epoch.packets);
        let is_doubtful = self.state == State::Drain && !self.loss.is_known();
        let corrected = (epoch.delivered / (1.0 - self.loss.base())).min(epoch.sent);
        let rate = if is_excess || is_doubtful { corrected } else { epoch.sent };
        let is_old = epoch.start < self.judge_from;
        let is_low = matches!(self.state, State::Low(_));
        let has_queue = self.delay.queue() > self.target() / 2;
        let is_own_rate = is_low || self.round <= self.hold_until;
        let is_held_back = epoch.is_held_back(self.delay.noise());
        let is_limited = epoch.is_app_limited || is_old || is_held_back || (is_own_rate && !is_excess && !has_queue);
        let is_far = !self.is_blind && self.delay.queue() > self.target() * 2 + Duration::from_millis(1);
        let is_saturated = self.state == State::Cruise && is_far && self.is_far && !epoch.is_app_limited;
        self.is_far = is_far;
        if is_saturated && !is_held_back {
            self.capacity.on_saturated(corrected);
        } else {
            self.capacity.on_sample(rate, is_limited || is_saturated);
        }
        if !epoch.is_app_limited && !is_old && !is_held_back && !is_low {
            self.capacity.on_delivered(epoch.delivered);
        }
        if is_old {
            return;
        }
        match self.state {
            State::Startup => {
                self.loss.on_startup(epoch.loss, epoch.packets, is_excess || has_queue);
                self.suspicion = if is_excess { self.suspicion + 1 } else { 0 };
                if self.suspicion >= 2 || (is_excess && epoch.loss > self.loss.base() + STARTUP_EXCESS) {
                    self.leave_startup(now);
                }
            }
            State::Cruise => {
                self.loss.on_cruise(epoch.loss, epoch.packets);
                if is_excess || self.loss.is_pooled_excess() {
                    if self.growth > 0.0 {
                        self.refuse();
                    }
                    self.suspicion += 1;
                    if self.suspicion >= 2 {
                        self.enter(State::Low(Why::Loss), now);
                    }
                } else {
                    self.suspicion = 0;
                }
            }
            _ => {}
        }
    }

    /// The experiment is over: what loss and delay were at the lower rate.
    fn end_low(&mut self, why: Why, now: Time) {
        let remained = self.delay.remained();
        let own_kinds = Duration::from_secs_f64(TARGET_QUEUE).max(self.target());
        let is_crowded = remained > self.target() / 2;
        let is_random = self.loss.end_low(is_crowded);
        if why == Why::Loss && !is_random {
            self.refuse();
            self.queue_limit = self.queue_limit.min((self.delay.peak() / 2).max(LEAST_LIMIT));
            self.limited_at = self.round;
        } else if why == Why::Loss {
            self.is_refused = false;
            self.hold_until = self.round;
        }
        self.suspicion = 0;
        if why != Why::Loss || self.is_blind {
            let is_foreign = self.delay.mean() > if why == Why::Squeezed { self.target() } else { own_kinds };
            self.empties = if is_foreign { 0 } else { self.empties + 1 };
            self.foreigns = if is_foreign { self.foreigns + 1 } else { 0 };
            self.is_blind = self.foreigns >= 2 || (self.is_blind && self.empties < EMPTIES);
            self.rest = self.delay.low_mean();
            self.looked_at = now;
            self.look_min = self.delay.base() + remained;
            self.has_looked = true;
            self.delay.end_low(now, !self.is_blind);
            if is_foreign && matches!(why, Why::Delay | Why::Squeezed) {
                self.capacity.raise(self.anchor * REGAIN);
            }
        }
        self.enter(State::Cruise, now);
    }

    fn is_low_done(&self, why: Why, now: Time) -> bool {
        let State::Low(_) = self.state else { return false };
        let (time, rtt) = (now.since(self.since), self.smoothed_rtt);
        let is_seen = self.newest_offset > self.judge_from;
        match why {
            Why::Loss => {
                (self.loss.low_packets() >= LOW_PACKETS && time > 2 * rtt) || (self.loss.low_packets() >= 16 && time > 4 * rtt)
            }
            Why::Base | Why::Delay | Why::Squeezed => {
                let is_empty = is_seen && self.delay.is_fresh() && self.delay.mean() <= self.target() / 2;
                is_empty || time > self.delay.before_low() * 4 + rtt * 3 + MIN_EPOCH * 2
            }
        }
    }

    fn low_gain(&self) -> f64 {
        match self.capacity.surely_delivered() {
            delivered if delivered > 0.0 => (LOW_DELIVERED * delivered / self.capacity.get()).clamp(0.1, LOW_GAIN),
            _ => 0.5,
        }
    }

    fn update(&mut self) {
        let capacity = self.capacity.get();
        if capacity <= 0.0 {
            return;
        }
        let rtt = self.smoothed_rtt.as_secs_f64().max(1e-4);
        let (queue, target) = (self.delay.queue().as_secs_f64(), self.target().as_secs_f64());
        let base = self.delay.base().as_secs_f64();
        let bdp = capacity * base;
        let slack = 16.0 * self.datagram + capacity * (rtt / 4.0).clamp(MIN_SLACK, 0.025);
        let room = if self.is_blind { (BLIND_WINDOW * capacity * self.rest.as_secs_f64()).max(1.5 * bdp) } else { 1.5 * bdp + capacity * target };
        let is_stale = self.newest_offset < self.judge_from;
        let pushed = match self.is_blind {
            _ if is_stale => 1.0,
            true => 1.0,
            false => {
                let times = base / AGREEMENT_RTT;
                let agreement = (QUEUE_GAIN * (times * times - 1.0)).clamp(0.0, MAX_AGREEMENT);
                1.0 + ((QUEUE_GAIN * (target - queue) + agreement * (target - self.usual)) / rtt).clamp(-MAX_CUT, MAX_PUSH)
            }
        };
        let (gain, window) = match self.state {
            State::Startup => (STARTUP_GAIN, 2.0 * capacity * rtt + 2.0 * self.first_packets * self.datagram),
            State::Drain => (0.5, bdp + capacity * target + 4.0 * self.datagram),
            State::Cruise => {
                let held = if self.round < self.hold_until { pushed.min(HOLD_GAIN) } else { pushed };
                let gain = if self.growth > 0.0 { held.max(1.0 + self.growth) } else { held };
                (gain, room * (1.0 + self.growth) + slack)
            }
            State::Low(_) => (self.low_gain(), room + slack),
        };
        let floor = 2.0 * self.datagram / rtt.max(0.01);
        self.pacing = match self.state {
            State::Startup => self.pacing.max(gain * capacity),
            _ => (gain * capacity).max(floor),
        };
        self.cwnd = window.max(4.0 * self.datagram) as u64;
        self.reserve = if self.state == State::Cruise { bdp as u64 } else { 0 };
    }

    fn startup_threshold(&self) -> Duration {
        let packets = Duration::from_secs_f64((4.0 * self.datagram / self.capacity.get().max(1.0)).min(0.05));
        (self.delay.base() / 4).clamp(STARTUP_QUEUE.0, STARTUP_QUEUE.1).max(packets) + self.delay.noise() * 4
    }
}

impl Controller for Law {
    fn name(&self) -> &'static str {
        "model"
    }

    fn on_sent(&mut self, event: &SentEvent) {
        self.sent_offset = event.sent_offset;
        self.in_flight = event.in_flight;
        if self.state == State::Startup {
            self.first_flight.on_sent(event);
        }
        match self.bursts.on_sent(event, self.newest_offset, self.smoothed_rtt.max(MIN_EPOCH)) {
            Some(Start::Unanswered) => self.capacity.forget_start(),
            Some(Start::Burst) => self.capacity.restart(event.now, event.sent_offset - event.bytes, self.delay.base()),
            None => {}
        }
    }

    fn on_ack(&mut self, event: &AckEvent) {
        let now = event.now;
        self.smoothed_rtt = event.smoothed_rtt;
        self.newest_offset = event.newest_offset;
        self.in_flight = event.in_flight;
        self.round_ce += event.ce_packets;
        self.round_limited |= event.is_app_limited;
        self.loss.on_burst(event.loss_burst);
        if let Some(rtt) = event.rtt {
            if self.is_blind && rtt < self.look_min && !matches!(self.state, State::Low(_)) {
                self.look_min = rtt;
                self.looked_at = now;
            }
            self.delay.on_rtt(now, rtt, self.target(), self.state != State::Startup && self.state != State::Drain);
        }
        if matches!(self.state, State::Low(_)) && event.newest_offset > self.judge_from {
            self.loss.on_low(event.newest_offset, event.total_acked, self.datagram);
        }
        if self.state == State::Startup {
            let packets = event.delivery_rate.bytes_in(event.sample_interval) as f64 / self.datagram;
            let sent = self.first_flight.rate(event).unwrap_or(0.0).max(event.sent_rate.bytes_per_sec());
            let corrected = (event.delivery_rate.bytes_per_sec() / (1.0 - self.loss.base())).min(sent);
            self.round_delivered = self.round_delivered.max(event.delivery_rate.bytes_per_sec());
            let is_excess = self.loss.is_excess(event.flight_loss, packets);
            self.capacity.on_startup_sample(if is_excess { corrected } else { sent });
        }
        let is_last = self.bursts.is_end(event, self.datagram);
        if let Some(epoch) = self.capacity.on_ack(event, self.datagram, self.growth > 0.0, is_last) {
            self.round_epochs += 1;
            self.on_epoch(&epoch, now);
        }
        if event.newest_offset >= self.round_end && (self.round_epochs > 0 || self.smoothed_rtt >= MIN_EPOCH) {
            self.end_round(now);
        }
        if self.growth > 0.0 && !self.is_blind && self.delay.is_fresh() && self.delay.queue() > self.target() {
            self.growth = 0.0;
        }
        let rest = self.rest.saturating_sub(self.delay.base());
        let is_drained_by_others = self.is_blind && self.delay.is_fresh() && self.delay.mean() < rest * 3 / 4 && now.since(self.looked_at) >= FIRST_LOOK;
        if self.state == State::Cruise && is_drained_by_others {
            self.enter(State::Low(Why::Base), now);
        }
        match self.state {
            State::Startup if self.delay.is_fresh() && self.delay.queue() > self.startup_threshold() => self.leave_startup(now),
            State::Drain => {
                let fit = self.capacity.get() * (self.delay.base() + self.target()).as_secs_f64() + 2.0 * self.datagram;
                if self.in_flight as f64 <= fit || self.delay.queue() <= self.target() || now.since(self.since) > 4 * self.smoothed_rtt {
                    let next = if self.loss.is_startup_doubtful() { State::Low(Why::Loss) } else { State::Cruise };
                    self.enter(next, now);
                }
            }
            State::Low(why) if self.is_low_done(why, now) => self.end_low(why, now),
            _ => {}
        }
        self.update();
    }

    fn on_loss(&mut self, event: &LossEvent) {
        self.in_flight = event.in_flight;
    }

    fn on_spurious_loss(&mut self, _: Time, _: u64) {}

    fn window(&self) -> u64 {
        self.cwnd
    }

    fn window_in_silence(&self) -> u64 {
        self.cwnd + self.reserve
    }

    fn pacing_rate(&self) -> Option<Bandwidth> {
        Some(Bandwidth::from_bytes_per_sec(self.pacing))
    }

    fn state(&self) -> ControlState {
        let state = match self.state {
            State::Startup => "startup",
            State::Drain => "drain",
            State::Cruise if self.growth > 0.0 => "probe",
            State::Cruise if self.is_blind => "blind",
            State::Cruise => "cruise",
            State::Low(Why::Loss) => "test",
            State::Low(Why::Base) => "refresh",
            State::Low(Why::Delay | Why::Squeezed) => "look",
        };
        ControlState {
            state,
            cwnd: self.cwnd,
            pacing_rate: Bandwidth::from_bytes_per_sec(self.pacing),
            capacity: self.capacity(),
            base_loss: self.loss.base(),
        }
    }

    fn capacity(&self) -> Bandwidth {
        Bandwidth::from_bytes_per_sec(self.capacity.get())
    }

    fn couple(&mut self, coupled: Coupled) {
        self.coupled = coupled;
    }

    fn on_mtu(&mut self, max_datagram: u64) {
        self.datagram = max_datagram as f64;
    }
}

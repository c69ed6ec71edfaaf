//! `model` (P12): takes as congestion only what is congestion: a queue that grows, CE marks, loss that changes with the rate.
//!
//! The sending rate is the capacity that was measured in sent units, corrected by a proportional law on the queueing delay; see
//! docs/spec/congestion.md for the reasons and the table of constants.

use super::bursts::{Bursts, Start};
use super::capacity::{Capacity, Epoch, MIN_EPOCH};
use super::cubic::Cubic;
use super::first_flight::FirstFlight;
use super::held_half::HeldHalf;
use super::noise::BaseLoss;
use super::pulse::Pulses;
use super::queue::QueueEstimator;
use super::recurring::RecurringQueue;
use super::{AckEvent, ControlState, Controller, Coupled, LossEvent, SentEvent, initial_packets};
use crate::switch::{self, Mechanism};
use crate::units::{Bandwidth, Duration, Time};

/// Start-up: the smallest pacing gain that doubles the sent units per RTT when rates are measured over one RTT (4 ln 2).
const STARTUP_GAIN: f64 = 2.77;
/// Proportional gain of the queue law: stable up to 1 with one and a half RTT of delay in the loop.
const QUEUE_GAIN: f64 = 0.5;
/// Added to it in proportion to how far the queue is below the target.
const CATCH_UP_GAIN: f64 = 3.0;
const CATCH_UP_ROUNDS: u32 = 8;
/// Above this RTT flows that share a queue come to agree by what it usually is, over so many rounds, with a gain that makes up for the square of the RTT
/// by which they agree more slowly, up to the second figure: slow enough not to swing with the queue.
const AGREEMENT_RTT: Duration = Duration::from_millis(40);
const MAX_AGREEMENT: f64 = 2.5;
const USUAL_ROUNDS: f64 = 32.0;
/// Most that the law takes away or adds in one RTT.
const MAX_CUT: f64 = 0.5;
const MAX_PUSH: f64 = 0.1;
/// Queue aimed at: this at low rates, falling as the rate grows, so that flows that see one queue agree on one rate.
const TARGET_QUEUE: f64 = 0.009;
const TARGET_RATE: f64 = 30e6 / 8.0;
const TARGET_EXPONENT: f64 = 0.6;
/// Added to it: standard deviations of the delay that is not a queue's doing.
const NOISE_TARGET: u32 = 2;
/// First step of growth where the queue is empty; doubles every round while delivery follows.
const FIRST_STEP: f64 = 0.025;
const STEP_QUEUE: f64 = 0.0015;
/// The same for a burst of an application that pauses in between.
const BURST_GROWTH: f64 = 1.0;
/// A test of what loss does at a lower rate, as a share of what was *delivered*: a rate that the path surely carries.
const TEST_GAIN: f64 = 0.95;
const TEST_PACKETS: u64 = 200;
/// Rounds that delivery is given to follow a step of growth.
const PATIENCE_ROUNDS: u32 = 6;
/// After a refused probe this many rounds pass before the next; doubles with each refusal.
const HOLD_ROUNDS: u64 = 8;
const MAX_HOLD_ROUNDS: u64 = 64;
/// Share of the capacity used while a refusal is remembered.
const HOLD_GAIN: f64 = 0.98;
/// A queue that marks or losses have shown to be too long: the least that is aimed at, and rounds before a quarter more is tried.
const MIN_QUEUE_LIMIT: Duration = Duration::from_micros(200);
const RELAX_ROUNDS: u64 = 32;
/// Where the delay varies more than the queue that is aimed at, it is looked for after so many rounds already, twice as many each time.
const UNCLEAR_ROUNDS: u64 = 8;
const MAX_UNCLEAR_ROUNDS: u64 = 1024;
/// The smallest RTT is looked for again after this.
const REFRESH: Duration = Duration::from_secs(5);
/// And once so long, and so many round trips, after the beginning, if a queue stands: a flow that came to a queue takes it for base RTT, and aims at as much again.
const FIRST_LOOK: Duration = Duration::from_secs(1);
const FIRST_LOOK_ROUNDS: u32 = 10;
/// The part by which the latest epoch changes the mean loss of recent ones.
const RECENT: f64 = 0.25;
/// Rounds with a queue far above the target that does not shrink, after which it is not taken for ours.
const STUCK_ROUNDS: u32 = 4;
/// The same for a queue moderately above the target, while our share fell to this part of what it was.
const SQUEEZED_ROUNDS: u32 = 8;
const SQUEEZED: f64 = 0.9;
/// Flows of our own kind need so long to agree with one that has just come.
const SQUEEZED_TIME: Duration = Duration::from_secs(1);
/// What was ours before is forgotten by this part per round.
const ANCHOR_DECAY: f64 = 0.98;
/// Seconds of sending that the window allows beyond the bandwidth-delay product at least: an acknowledgement may wait 2 ms, a train half of one.
const MIN_SLACK: f64 = 0.003;

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum ModelState {
    /// Doubling per RTT.
    Startup,
    /// Letting the overshoot of start-up flow off.
    Drain,
    /// At capacity with a small standing queue.
    Cruise,
    /// Sending less, to see what loss does then.
    Test,
    /// Sending less, to see the path without our queue.
    Refresh,
    /// Beside a flow that fills the queue: as cubic does, on congestive loss only (P12d).
    Compete,
}

/// The controller. Rates in bytes per second.
#[derive(Debug)]
pub(super) struct Model {
    datagram: f64,
    state: ModelState,
    since: Time,
    began: Time,
    /// The RTT was looked for once.
    has_looked: bool,
    capacity: Capacity,
    queue: QueueEstimator,
    loss: BaseLoss,
    sent_offset: u64,
    bursts: Bursts,
    first_flight: FirstFlight,
    /// How start-up finds the capacity; where it cannot, the rate doubles per RTT.
    pulses: Option<Pulses>,
    /// Bytes sent when doubling took over from pulses: what left before says nothing about it.
    doubles_from: u64,
    /// Loss ended start-up before a queue was seen.
    is_cut_short: bool,
    /// What was surely delivered when it went on after that.
    resumed_from: f64,
    /// The queue between the latest pulses.
    rest_queue: Duration,
    /// The path became longer.
    lengthened: Option<compete::Lengthened>,
    /// When it seemed to, and the RTT before; until when that is not believed.
    taken_longer: Option<(Time, Duration)>,
    full_until: Time,
    /// A queue that stays too long.
    recurring: RecurringQueue,
    /// What the queue has been lately, seconds: a flow that aims at more has less than its share, one that aims at less has more.
    usual_queue: f64,
    /// Rounds: one RTT of sent bytes, and one epoch at least where an RTT is shorter than epochs are.
    round: u64,
    round_end: u64,
    round_epochs: u32,
    round_ce: u64,
    round_acked: u64,
    round_limited: bool,
    round_delivered: f64,
    plateau: u32,
    plateau_best: f64,
    growth: f64,
    hold_until: u64,
    hold: u64,
    is_refused: bool,
    /// The application sends in bursts with pauses, and they leave no queue.
    may_burst: bool,
    /// Round in which a burst began after the last pause.
    paused_round: u64,
    /// Round until which the rate at which the path carries bursts need not be tried again.
    known_until: u64,
    suspicion: u32,
    /// Round from which on noise is a reason to look for the RTT without our queue, and rounds until the next time.
    unclear_until: u64,
    unclear_for: u64,
    queue_limit: Duration,
    /// Round in which marks or losses last lowered it.
    limited_at: u64,
    ce_share: f64,
    stuck: u32,
    /// The queue was far above its target when the last epoch ended.
    was_far: bool,
    /// It was as we leave it.
    was_at_rest: bool,
    /// Rounds in a row with a queue below the target.
    below: u32,
    /// Rounds in a row with a queue above the target.
    above: u32,
    above_since: Time,
    /// Rounds in a row of the competitive mode with much more than our share was.
    risen: u32,
    last_queue: Duration,
    /// Capacity before the queue grew so long.
    anchor: f64,
    /// Offset from which on packets left at the lower rate of a test or refresh.
    low_from: u64,
    /// Losses of packets sent before this offset were judged, or belong to a state that has ended.
    judge_from: u64,
    /// Delivered rate when growth last doubled.
    grown_from: f64,
    /// Rounds since then.
    waited: u32,
    /// Round in which it last grew.
    grew_at: u64,
    /// What the latest epoch sent.
    latest_sent: f64,
    /// Loss of the latest epochs.
    recent_loss: f64,
    /// Newest byte acknowledged.
    newest_offset: u64,
    smoothed_rtt: Duration,
    in_flight: u64,
    /// Paths of the same link in the same bottleneck.
    coupled: Coupled,
    /// The window of the competitive mode; kept over a refresh.
    rival: Option<Box<Cubic>>,
    /// Round in which it shows which others cut their windows when we did.
    judge_cut_at: u64,
    /// Part of our share that was left three rounds after our reductions, on average.
    kept: f64,
    /// What is held beside a flow that does not reduce its window.
    held_half: HeldHalf,
    /// Time in the competitive mode after which it is asked whether the other is still there.
    ask_after: Duration,
    /// When a queue that is not ours was found last.
    accused_at: Option<Time>,
    /// What was ours when it was found first.
    accused_share: f64,
    /// When packets were last lost while the queue was near its longest.
    overflowed_at: Option<Time>,
    /// The queue was far above its target when it was looked into.
    is_far: bool,
    /// Round until which it is kept while the queue is empty.
    rival_until: u64,
    pacing: f64,
    cwnd: u64,
    /// What may be in flight beyond it while nothing is acknowledged.
    reserve: u64,
    /// Packets of the initial window.
    first_packets: f64,
}

/// The mean over the latest rounds. Growth fills a queue that is hardly there; and a flow that backed off until it is shorter than its target has done so.
fn usual(mean: f64, queue: f64, target: f64) -> f64 {
    if queue < target / 2.0 {
        mean
    } else if queue < target && mean > target {
        target
    } else {
        mean + (queue - mean) / USUAL_ROUNDS
    }
}

impl Model {
    pub(super) fn new(datagram: u64, rtt: Duration, now: Time) -> Self {
        let initial = initial_packets(rtt) * datagram as f64;
        Self {
            datagram: datagram as f64,
            state: ModelState::Startup,
            since: now,
            began: now,
            has_looked: false,
            capacity: Capacity::default(),
            queue: QueueEstimator::new(now),
            loss: BaseLoss::default(),
            sent_offset: 0,
            bursts: Bursts::new(now),
            first_flight: FirstFlight::default(),
            pulses: Self::pulses(initial / rtt.as_secs_f64().max(1e-4), rtt),
            doubles_from: 0,
            is_cut_short: false,
            resumed_from: 0.0,
            rest_queue: Duration::ZERO,
            lengthened: None,
            taken_longer: None,
            full_until: now,
            recurring: RecurringQueue::new(now),
            usual_queue: 0.0,
            round: 0,
            round_end: 0,
            round_epochs: 0,
            round_ce: 0,
            round_acked: 0,
            round_limited: false,
            round_delivered: 0.0,
            plateau: 0,
            plateau_best: 0.0,
            growth: 0.0,
            hold_until: 0,
            hold: HOLD_ROUNDS,
            is_refused: false,
            may_burst: false,
            paused_round: 0,
            known_until: 0,
            suspicion: 0,
            unclear_until: UNCLEAR_ROUNDS,
            unclear_for: UNCLEAR_ROUNDS,
            queue_limit: Duration::MAX,
            limited_at: 0,
            ce_share: 0.0,
            stuck: 0,
            was_far: false,
            was_at_rest: false,
            above: 0,
            above_since: now,
            risen: 0,
            below: 0,
            newest_offset: 0,
            last_queue: Duration::ZERO,
            anchor: 0.0,
            rival_until: 0,
            accused_at: None,
            accused_share: 0.0,
            overflowed_at: None,
            is_far: false,
            judge_cut_at: 0,
            kept: 1.0,
            held_half: HeldHalf::new(now),
            ask_after: REFRESH,
            low_from: 0,
            judge_from: 0,
            grown_from: 0.0,
            waited: 0,
            grew_at: 0,
            latest_sent: 0.0,
            recent_loss: 0.0,
            smoothed_rtt: rtt,
            in_flight: 0,
            coupled: Coupled::default(),
            rival: None,
            first_packets: initial_packets(rtt),
            pacing: initial / rtt.as_secs_f64().max(1e-4),
            cwnd: 2 * initial as u64,
            reserve: 0,
        }
    }

    /// The queueing delay aimed at where nothing hides it.
    fn clear_target(&self) -> Duration {
        // One flow that has what all of them have together would aim at this (P7).
        let rate = self.capacity.get().max(1.0) + self.coupled.rate.bytes_per_sec();
        let by_rate = TARGET_QUEUE / (1.0 + (rate / TARGET_RATE).powf(TARGET_EXPONENT));
        // Never less than a packet, for a queue cannot be measured more finely; but a flow with little of a fast link has no slow one, and would find no queue too long.
        let floor = 2.0 * self.datagram / rate;
        Duration::from_secs_f64(by_rate.max(floor.min(2.0 * TARGET_QUEUE)).max(0.0003))
    }

    /// The queueing delay aimed at.
    fn target(&self) -> Duration {
        (self.clear_target() + NOISE_TARGET * self.queue.noise()).min(self.queue_limit)
    }

    /// The longest queue that flows of our own kind aim at, however little each of them has: up to this, what remains when we back off may be theirs.
    fn own_kinds_longest(&self) -> Duration {
        self.target().max(Duration::from_secs_f64(TARGET_QUEUE) + NOISE_TARGET * self.queue.noise())
    }

    fn enter(&mut self, state: ModelState, now: Time) {
        self.state = state;
        self.since = now;
        self.growth = 0.0;
        self.may_burst = false;
        self.below = 0;
        self.usual_queue = self.target().as_secs_f64();
        self.risen = 0;
        self.judge_from = self.sent_offset;
        if matches!(state, ModelState::Test | ModelState::Refresh) {
            self.low_from = self.sent_offset;
            self.loss.begin_low();
        }
        if matches!(state, ModelState::Test | ModelState::Refresh) {
            self.queue.begin_low();
        }
        self.has_looked |= state == ModelState::Refresh;
    }

    /// The first step of growth: what builds no more than a few ms of queue in one RTT if nothing is free.
    fn first_step(&self) -> f64 {
        (STEP_QUEUE / self.queue.min_rtt().as_secs_f64().max(1e-3)).clamp(FIRST_STEP, 10.0 * FIRST_STEP)
    }

    // ---- rounds and epochs

    fn end_round(&mut self, now: Time) {
        self.round += 1;
        self.round_end = self.sent_offset;
        let share = self.round_ce as f64 / self.round_acked.max(1) as f64;
        self.ce_share += (share - self.ce_share) / 4.0;
        if self.round_ce > 0 {
            // As DCTCP: in proportion to the share of marks, once per round; and the queue is kept below where it is marked.
            self.capacity.cut(1.0 - share.max(self.ce_share) / 4.0);
            self.growth = 0.0;
            self.queue_limit = self.queue_limit.min((self.queue.now() * 3 / 4).max(MIN_QUEUE_LIMIT));
            self.limited_at = self.round;
            if self.state == ModelState::Startup {
                self.leave_startup(now);
            }
        }
        let competitive_loss = (self.state == ModelState::Compete).then(|| self.recent_loss - self.loss.base());
        self.held_half.on_round(now, self.capacity.latest_delivered(), self.rival.is_some(), competitive_loss);
        match self.state {
            ModelState::Startup => self.startup_round(now),
            ModelState::Cruise => self.cruise_round(now),
            ModelState::Compete => self.compete_round(now),
            _ => {}
        }
        self.round_epochs = 0;
        self.round_ce = 0;
        self.round_acked = 0;
        self.round_limited = false;
        self.round_delivered = 0.0;
    }

    fn cruise_round(&mut self, now: Time) {
        let (queue, target) = (self.queue.now(), self.target());
        self.usual_queue = usual(self.usual_queue, queue.as_secs_f64(), target.as_secs_f64());
        let is_held = self.round < self.hold_until;
        // A burst now and then may try more than is known: what it then carries is known. Bulk follows what is known at once.
        let is_known = self.round < self.known_until;
        let has_paused = self.round <= self.paused_round + HOLD_ROUNDS || switch::is_off(Mechanism::PausedBursts);
        self.may_burst = has_paused && self.round_limited && !is_held && !is_known && queue <= target / 2 && self.suspicion == 0;
        self.below = if queue * 20 < target * 19 && !self.round_limited { self.below + 1 } else { 0 };
        if self.round_limited || is_held || queue > target / 2 || self.suspicion > 0 {
            self.growth = 0.0;
        } else if self.growth == 0.0 || self.capacity.latest_delivered() >= self.grown_from * (1.0 + self.growth / 2.0) {
            // Delivery has followed the last step (which takes two rounds to see): the next one is twice as large.
            self.grown_from = self.capacity.delivered();
            self.growth = (self.growth * 2.0).clamp(self.first_step(), 1.0);
            self.waited = 0;
        } else {
            self.waited += 1;
            if self.waited >= PATIENCE_ROUNDS {
                if self.latest_sent >= self.grown_from * (1.0 + self.growth / 2.0) {
                    // P12c: delivery does not follow the rate.
                    self.capacity.settle_delivered(self.loss.base());
                    self.refuse();
                } else {
                    // Nor did we: the host is too slow for the rate that was asked of it, the path has said nothing.
                    self.growth = 0.0;
                }
            }
        }
        if self.growth > 0.0 {
            self.grew_at = self.round;
        }
        if !is_held && self.is_refused && self.growth > 4.0 * FIRST_STEP {
            // Delivery follows again: the refusal is history.
            self.is_refused = false;
            self.hold = HOLD_ROUNDS;
        }
        if self.queue_limit < Duration::MAX && self.round > self.limited_at + RELAX_ROUNDS {
            self.limited_at = self.round;
            self.queue_limit = self.queue_limit.saturating_mul(5) / 4;
            if self.queue_limit > Duration::from_secs_f64(2.0 * TARGET_QUEUE) {
                self.queue_limit = Duration::MAX;
            }
        }
        if queue <= target * 5 / 4 {
            self.above = 0;
            // A moment's relief gives nothing back of what was yielded before.
            self.anchor = self.capacity.get().max(self.anchor * ANCHOR_DECAY);
        } else {
            self.above += 1;
            if self.above == 1 {
                self.above_since = now;
                self.queue.begin_watch();
            }
        }
        if self.rival.is_some() {
            if self.above >= STUCK_ROUNDS && !self.queue.is_restless(queue) {
                // The flow that was there a moment ago is there again.
                self.queue.begin_watch();
                self.enter(ModelState::Compete, now);
                return;
            }
            if self.round >= self.rival_until {
                self.rival = None;
                self.held_half.end();
            }
        }
        let is_squeezed =
            self.above >= SQUEEZED_ROUNDS && now.since(self.above_since) >= SQUEEZED_TIME && self.capacity.get() < self.anchor * SQUEEZED;
        if is_squeezed {
            // We backed off round after round and the queue stayed: what took our place does not mind queues.
            self.stuck = STUCK_ROUNDS;
            self.above = 0;
        } else if !self.is_far_above() {
            self.stuck = 0;
        } else if self.stuck == 0 {
            self.stuck = 1;
            self.queue.begin_watch();
        } else if queue + queue / 8 + self.queue.noise() * 2 >= self.last_queue {
            self.stuck += 1;
        }
        self.last_queue = queue;
        if self.stands_too_long(now) {
            self.stuck = STUCK_ROUNDS;
        }
        let is_due = now.since(self.queue.min_at()) >= REFRESH && now.since(self.since) >= REFRESH / 2;
        // What delay is the path's own is learnt by sending less: sooner where noise hides the queue.
        let is_unclear = self.is_noisy() && self.round >= self.unclear_until && queue > target / 2;
        let is_first = !self.has_looked
            && queue > target / 2
            && now.since(self.began) >= FIRST_LOOK.max(self.smoothed_rtt * FIRST_LOOK_ROUNDS)
            && !switch::is_off(Mechanism::FirstLook);
        if is_due || is_first || is_unclear || self.stuck >= STUCK_ROUNDS {
            self.is_far = self.is_far_above();
            self.enter(ModelState::Refresh, now);
        }
    }

    /// The delay varies by more than the queue that is aimed at.
    fn is_noisy(&self) -> bool {
        self.queue.noise() * 2 * NOISE_TARGET > self.clear_target()
    }

    /// The queue is so long that it is either not ours or left from a higher rate.
    fn is_far_above(&self) -> bool {
        self.queue.now() > self.target() * 2 + Duration::from_millis(1)
    }

    fn refuse(&mut self) {
        self.growth = 0.0;
        self.hold = if self.is_refused { (self.hold * 2).min(MAX_HOLD_ROUNDS) } else { HOLD_ROUNDS };
        self.is_refused = true;
        self.hold_until = self.round + self.hold;
    }

    fn on_epoch(&mut self, epoch: &Epoch, now: Time) {
        self.latest_sent = epoch.sent;
        self.recent_loss += (epoch.loss - self.recent_loss) * RECENT;
        self.doubt_longer_path(now);
        let is_path_limited = epoch.is_path_limited();
        if is_path_limited {
            self.known_until = self.round + MAX_HOLD_ROUNDS;
            self.may_burst = false;
        }
        let is_excess = self.loss.is_excess(epoch.loss, epoch.packets);
        // What the queue of the first round trips dropped was not carried; while p0 is unknown it looks like the path's own.
        let is_doubtful = self.state == ModelState::Drain && !self.loss.is_known();
        let rate = if is_excess || is_doubtful { epoch.delivered / (1.0 - self.loss.base()) } else { epoch.sent };
        // Where we send less than we could and see no queue, the sample is our own rate.
        let is_own_rate = matches!(self.state, ModelState::Test | ModelState::Refresh) || self.round <= self.hold_until;
        let is_old = epoch.start < self.judge_from;
        let is_limited =
            (epoch.is_app_limited && !is_path_limited) || is_old || (is_own_rate && !is_excess && self.queue.now() <= self.target() / 2);
        // Saturated from beginning to end: else the sample would hold time in which nothing was there to be delivered.
        let is_far = self.is_far_above();
        let is_saturated =
            matches!(self.state, ModelState::Cruise | ModelState::Compete) && is_far && self.was_far && !epoch.is_app_limited;
        self.was_far = is_far;
        // Then it measures what we sent, not what the path carries.
        let is_held_back = epoch.is_held_back(self.queue.noise());
        if is_saturated && !is_held_back {
            self.capacity.on_saturated((epoch.delivered / (1.0 - self.loss.base())).min(epoch.sent));
        } else {
            self.capacity.on_sample(rate.min(epoch.sent), is_limited || is_saturated);
        }
        let is_filled = is_excess || self.growth > 0.0 || self.queue.now() > self.target() / 2 || self.state == ModelState::Startup;
        if (!epoch.is_app_limited || epoch.is_train)
            && !is_old
            && !is_held_back
            && is_filled
            && !matches!(self.state, ModelState::Test | ModelState::Refresh)
        {
            self.capacity.on_delivered(epoch.delivered);
        }
        if is_old {
            return;
        }
        match self.state {
            ModelState::Startup => self.on_startup_epoch(epoch, is_excess, now),
            ModelState::Cruise => {
                self.loss.on_cruise(epoch.loss, epoch.packets);
                let is_at_rest = self.queue.now() <= self.longest_at_rest();
                if is_at_rest && self.was_at_rest {
                    self.loss.on_rest(epoch.loss, epoch.packets);
                }
                self.was_at_rest = is_at_rest;
                if is_excess || self.loss.is_pooled_excess() {
                    if self.growth > 0.0 {
                        // The probe is refused: loss followed the rate, or seems to.
                        self.capacity.settle_delivered(self.loss.base());
                        self.refuse();
                    }
                    self.suspicion += 1;
                    if self.suspicion >= 2 {
                        self.enter(ModelState::Test, now);
                    }
                } else {
                    self.suspicion = 0;
                }
            }
            _ => {}
        }
    }

    // ---- rate and window

    /// Gain of the law by which flows agree on their shares (P7). Delay that varies by more than the queue aimed at would seem to be others' doing.
    fn agreement(&self) -> f64 {
        if self.is_noisy() || switch::is_off(Mechanism::Agreement) {
            return 0.0;
        }
        let times = self.queue.base().as_secs_f64() / AGREEMENT_RTT.as_secs_f64();
        (QUEUE_GAIN * (times * times - 1.0)).clamp(0.0, MAX_AGREEMENT)
    }

    fn update(&mut self) {
        let capacity = self.capacity.get();
        if capacity <= 0.0 {
            return;
        }
        let rtt = self.smoothed_rtt.as_secs_f64().max(1e-4);
        let (queue, target) = (self.queue.now().as_secs_f64(), self.target().as_secs_f64());
        let bdp = capacity * self.queue.base().as_secs_f64();
        // What acknowledgements in flight and sends in trains may hold: on the shortest paths these, not the path itself, are what takes time.
        let slack = 16.0 * self.datagram + capacity * (rtt / 4.0).clamp(MIN_SLACK, 0.025);
        let catch_up = f64::from(self.below.min(CATCH_UP_ROUNDS)) / f64::from(CATCH_UP_ROUNDS);
        // Far below its target a flow has less than its share, if its own push does not fill the queue for some rounds: it may gain faster then.
        let gain = QUEUE_GAIN + CATCH_UP_GAIN * catch_up * (0.95 - queue / target).max(0.0);
        let is_stale = self.newest_offset < self.judge_from;
        // The queue that is seen just after a change of state is the one of before.
        let wanted = gain * (target - queue - self.pushed_by_others()) + self.agreement() * (target - self.usual_queue);
        let pushed = if is_stale { 1.0 } else { 1.0 + (wanted / rtt).clamp(-MAX_CUT, MAX_PUSH) };
        let (gain, window) = match self.state {
            ModelState::Startup => (STARTUP_GAIN, 2.0 * bdp + 2.0 * self.first_packets * self.datagram),
            ModelState::Drain => (0.5, bdp + capacity * target + 4.0 * self.datagram),
            ModelState::Cruise => {
                let held = if self.round < self.hold_until { pushed.min(HOLD_GAIN) } else { pushed };
                let growth = if self.may_burst { BURST_GROWTH } else { self.growth };
                let gain = if growth > 0.0 { held.max(1.0 + growth) } else { held };
                (gain, 1.5 * bdp * (1.0 + growth) + capacity * target + slack)
            }
            ModelState::Test => (TEST_GAIN * self.surely_carried().clamp(0.1, 0.95), 1.5 * bdp + slack),
            ModelState::Compete => {
                let window = self.rival.as_ref().map_or(0, |r| r.window()) as f64;
                let held = self.held_half.rate().map_or(0.0, |rate| rate / (1.0 - self.loss.base()));
                ((1.25 * window / rtt).max(held) / capacity, window.max(1.25 * held * rtt + slack))
            }
            // Beside others only our own share of the queue can be taken away: what is in flight above our own bandwidth-delay product.
            ModelState::Refresh if self.rival.is_some() || self.stuck >= STUCK_ROUNDS => (0.9, 0.9 * bdp),
            ModelState::Refresh => ((1.0 - 2.0 * (queue.max(target)) / rtt).clamp(0.5, 0.9), 1.5 * bdp + slack),
        };
        let floor = 2.0 * self.datagram / rtt.max(0.01);
        self.pacing = match (&self.pulses, self.state) {
            (Some(pulses), ModelState::Startup) => pulses.rate(),
            (None, ModelState::Startup) if self.newest_offset < self.doubles_from => self.pacing,
            (None, ModelState::Startup) => self.pacing.max(gain * capacity),
            _ => (gain * capacity).max(floor),
        };
        self.cwnd = window.max(4.0 * self.datagram) as u64;
        self.reserve = if self.state == ModelState::Cruise { bdp as u64 } else { 0 };
    }
}

impl Controller for Model {
    fn name(&self) -> &'static str {
        "model"
    }

    fn on_sent(&mut self, event: &SentEvent) {
        self.sent_offset = event.sent_offset;
        self.in_flight = event.in_flight;
        if self.state == ModelState::Startup {
            self.first_flight.on_sent(event);
            if let Some(pulses) = &mut self.pulses {
                pulses.on_sent(event, self.datagram);
                self.pacing = pulses.rate();
            }
        }
        // Nothing in flight for a moment is no idleness where the RTT is shorter than what a sender needs to wake up.
        match self.bursts.on_sent(event, self.newest_offset, self.smoothed_rtt.max(MIN_EPOCH)) {
            // What an outage swallowed says nothing about the capacity.
            Some(Start::Unanswered) => self.capacity.forget_start(),
            Some(Start::Burst) => {
                self.paused_round = self.round;
                self.capacity.restart(event.now, event.sent_offset - event.bytes, self.queue.base());
            }
            None => {}
        }
    }

    fn on_ack(&mut self, event: &AckEvent) {
        let now = event.now;
        self.smoothed_rtt = event.smoothed_rtt;
        self.newest_offset = event.newest_offset;
        self.in_flight = event.in_flight;
        self.round_ce += event.ce_packets;
        self.round_acked += event.acked_packets;
        self.round_limited |= event.is_app_limited;
        if self.state == ModelState::Compete
            && let Some(rival) = &mut self.rival
        {
            rival.on_ack(event);
        }
        self.loss.on_burst(event.loss_burst);
        if let Some(rtt) = event.rtt {
            self.queue.on_rtt(now, rtt, self.target());
            if self.state == ModelState::Startup {
                self.on_startup_rtt(event, rtt);
            }
        }
        let is_low = self.low_from < event.newest_offset;
        if matches!(self.state, ModelState::Test | ModelState::Refresh) && is_low {
            self.loss.on_low(event.newest_offset, event.total_acked, self.datagram);
        }
        if self.state == ModelState::Startup {
            self.on_startup_ack(event);
        }
        let is_last = self.bursts.is_end(event, self.datagram);
        if let Some(epoch) = self.capacity.on_ack(event, self.datagram, self.growth > 0.0, is_last) {
            self.round_epochs += 1;
            self.on_epoch(&epoch, now);
        }
        // On the shortest paths an RTT is over before anything was measured.
        if event.newest_offset >= self.round_end && (self.round_epochs > 0 || self.smoothed_rtt >= MIN_EPOCH) {
            self.end_round(now);
        }
        if self.growth > 0.0 && self.queue.is_fresh() && self.queue.now() > self.target() {
            // The answer is there before the round is over.
            self.growth = 0.0;
        }
        match self.state {
            ModelState::Startup if self.is_filled(event) => self.leave_startup(now),
            ModelState::Drain if self.drain_is_done() => {
                let next = if self.loss.is_startup_doubtful() { ModelState::Test } else { ModelState::Cruise };
                self.enter(next, now);
            }
            ModelState::Test if self.loss.low_packets() >= TEST_PACKETS && now.since(self.since) > 2 * self.smoothed_rtt => {
                self.end_test(now)
            }
            ModelState::Test if self.loss.low_packets() >= 16 && now.since(self.since) > 4 * self.smoothed_rtt => self.end_test(now),
            ModelState::Refresh => {
                let longest = if self.rival.is_some() {
                    self.queue.now() + self.smoothed_rtt / 2
                } else if self.stuck > 0 {
                    self.queue.now() + 2 * self.smoothed_rtt
                } else {
                    self.smoothed_rtt + self.target() * 3
                };
                let is_empty = self.queue.now() <= self.target() / 4 && is_low;
                if is_empty || now.since(self.since) > longest + self.smoothed_rtt {
                    self.end_refresh(now);
                }
            }
            _ => {}
        }
        self.update();
    }

    fn on_loss(&mut self, event: &LossEvent) {
        self.in_flight = event.in_flight;
        // A full queue drops; a loss while it is far from its peak is the path's own.
        let is_congestive = self.loss.base() < 0.002 || self.queue.now() * 4 >= self.queue.peak() * 3;
        if is_congestive && self.queue.now() > self.target() {
            self.overflowed_at = Some(event.now);
        }
        if self.state == ModelState::Compete && is_congestive {
            self.on_competitive_loss(event);
        }
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
            ModelState::Startup => "startup",
            ModelState::Drain => "drain",
            ModelState::Cruise if self.growth > 0.0 => "probe",
            ModelState::Cruise if self.round < self.hold_until => "hold",
            ModelState::Cruise => "cruise",
            ModelState::Test => "test",
            ModelState::Refresh => "refresh",
            ModelState::Compete => "compete",
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
        if let Some(rival) = &mut self.rival {
            rival.couple(coupled);
        }
    }

    fn on_mtu(&mut self, max_datagram: u64) {
        self.datagram = max_datagram as f64;
    }
}

#[path = "model_compete.rs"]
mod compete;
#[path = "model_lower.rs"]
mod lower;
#[path = "model_startup.rs"]
mod startup;

#[cfg(test)]
#[path = "model_tests.rs"]
mod tests;

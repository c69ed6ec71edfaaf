//! How `model` finds what a path carries (P11): by pulses, or by doubling where these say nothing; and the drain of what that leaves in the queue.

use super::{Model, ModelState, TEST_PACKETS};
use crate::congestion::capacity::Epoch;
use crate::congestion::pulse::{Answer, Pulses, SHORTEST_RTT, Stretch};
use crate::congestion::{AckEvent, INITIAL_PACKETS};
use crate::switch::{self, Mechanism};
use crate::units::{Duration, Time};

/// Start-up ends after so many rounds in which the capacity did not grow by a quarter.
const PLATEAU_ROUNDS: u32 = 3;
const PLATEAU_GROWTH: f64 = 1.25;
/// Standard deviations of the delay that is not a queue's doing, added to the queue that ends start-up.
const NOISE_STARTUP: u32 = 6;
/// Times the largest fall of the RTT while the rate rose, which no queue of ours explains: delay shorter than this does not end start-up, if it is shorter
/// than the RTT itself. In the first flight few of the largest falls have been seen.
const FALL_STARTUP: u32 = 4;
/// Loss above p0 that ends start-up at once.
const STARTUP_EXCESS: f64 = 0.2;
/// Loss that no path worth using has by itself.
const STARTUP_HOPELESS: f64 = 0.6;

impl Model {
    /// None on short paths.
    pub(super) fn pulses(rate: f64, rtt: Duration) -> Option<Pulses> {
        (rtt >= SHORTEST_RTT && !switch::is_off(Mechanism::Pulses)).then(|| Pulses::new(rate, rtt))
    }

    /// How far the RTT fell where no queue of ours falls, with a margin.
    fn unrest(&self) -> Duration {
        let fall = if switch::is_off(Mechanism::StartupUnrest) { Duration::ZERO } else { FALL_STARTUP * self.queue.fall() };
        fall.min(self.queue.min_rtt())
    }

    fn startup_threshold(&self) -> Duration {
        let packets = Duration::from_secs_f64((4.0 * self.datagram / self.capacity.get().max(1.0)).min(0.05));
        let calm = self.queue.min_rtt() / 4;
        let clear = calm.clamp(Duration::from_millis(2), Duration::from_millis(30)).max(packets) + NOISE_STARTUP * self.queue.noise();
        clear.max(self.unrest())
    }

    /// A queue counts only when what leaves from here on has seen it; until then it leaves at this rate.
    fn go_on_by_doubling(&mut self, rate: f64) {
        self.pulses = None;
        self.judge_from = self.sent_offset;
        self.doubles_from = self.sent_offset;
        self.pacing = rate;
    }

    /// A pulse has arrived, or enough of it to show the bottleneck.
    fn on_pulse(&mut self, answer: &Answer, now: Time) {
        // Where a full queue stays full its delay says nothing: of what is too much only loss tells.
        let is_excess = self.loss.is_excess(answer.loss, answer.packets) || answer.loss > STARTUP_HOPELESS;
        let rate = if is_excess { (answer.delivered / (1.0 - self.loss.base())).min(answer.sent) } else { answer.sent };
        let Some(pulses) = &mut self.pulses else { return };
        let before = pulses.proven();
        // Between pulses less leaves than is proven: a queue that stands then is others' doing.
        let stands = answer.share.filter(|_| self.rest_queue > answer.threshold);
        match (answer.stretch, stands) {
            // What an application sends now and then says nothing of what more would meet: the queue must say it.
            (stretch, _) if answer.is_limited && stretch != Stretch::None => self.go_on_by_doubling(before),
            (Stretch::Bottleneck, _) | (_, Some(_)) => {
                // What arrived is what that carries; where others fill it, some of it is theirs.
                self.leave_startup(now);
                self.capacity.set(answer.share.map_or(rate, |share| rate.min(share.max(before))));
                return;
            }
            // Less than the first flight went at: pulses this short say little, and its queue says it all.
            (Stretch::Likely, _) if rate < before.min(INITIAL_PACKETS as f64 * self.datagram / self.queue.min_rtt().as_secs_f64()) => {
                self.go_on_by_doubling(rate);
            }
            (Stretch::Likely, _) => pulses.set(rate.min(answer.proven)),
            (Stretch::Scatter, _) => {
                // Where delay varies by itself the spacing of arrivals says nothing.
                self.queue.on_swing(answer.delay);
                self.go_on_by_doubling(before);
            }
            (Stretch::None, _) => pulses.set(rate.min(answer.proven).max(before)),
        }
        self.capacity.on_startup_sample(rate.min(answer.proven));
        self.count_plateau(answer.is_limited || rate > before * PLATEAU_GROWTH, now);
    }

    /// A pulse, or a round, brought more, or not.
    fn count_plateau(&mut self, is_more: bool, now: Time) {
        self.plateau = if is_more { 0 } else { self.plateau + 1 };
        if self.plateau >= PLATEAU_ROUNDS {
            // More was sent and no more arrived, without a queue that could be seen: nothing that was lost says what p0 is.
            self.loss.doubt();
            self.suspicion = 1;
            self.leave_startup(now);
        }
    }

    pub(super) fn leave_startup(&mut self, now: Time) {
        self.capacity.settle();
        if self.suspicion > 0 {
            self.capacity.settle_delivered(self.loss.base());
        }
        self.suspicion = 0;
        self.enter(ModelState::Drain, now);
    }

    /// Loss that came with the rate, or seems to.
    pub(super) fn cut_startup_short(&mut self, now: Time) {
        self.is_cut_short = self.queue.now() <= self.startup_threshold();
        self.leave_startup(now);
    }

    /// A burst of loss that a lower rate meets as well was no reason to end it: the path has not been filled yet.
    pub(super) fn resume_startup(&mut self, now: Time) -> bool {
        let was_cut_short = std::mem::take(&mut self.is_cut_short);
        if !was_cut_short || !self.loss.is_ended_by_chance() || switch::is_off(Mechanism::StartupResumption) {
            return false;
        }
        // Beside a flow that fills the path whatever it loses a lower rate loses as much each time.
        let carried = self.capacity.surely_delivered();
        if carried < self.resumed_from * PLATEAU_GROWTH && !switch::is_off(Mechanism::FruitlessResumption) {
            return false;
        }
        self.resumed_from = carried;
        self.plateau = 0;
        self.plateau_best = 0.0;
        self.pulses = Self::pulses(self.capacity.get(), self.queue.min_rtt());
        self.enter(ModelState::Startup, now);
        true
    }

    pub(super) fn drain_is_done(&self) -> bool {
        let target = self.target();
        let fit = self.capacity.get() * (self.queue.base() + target).as_secs_f64() + 2.0 * self.datagram;
        (self.in_flight as f64) <= fit || self.queue.now() <= target
    }

    /// An RTT of start-up. An end that answered a handshake has not seen the base RTT before.
    pub(super) fn on_startup_rtt(&mut self, event: &AckEvent, rtt: Duration) {
        if let Some(pulses) = self.pulses.take_if(|_| event.min_rtt < SHORTEST_RTT) {
            self.pacing = pulses.proven();
        }
        match &self.pulses {
            Some(pulses) => {
                // The handshake, or the test of an address, may have seen the path before others filled it.
                self.queue.lower(event.min_rtt);
                if pulses.is_within(event.newest_offset) {
                    self.queue.on_rise(event.now, rtt, event.is_app_limited);
                } else {
                    self.queue.on_rest(event.now, rtt);
                    self.rest_queue = self.queue.now();
                }
            }
            None => self.queue.on_rise(event.now, rtt, event.is_app_limited),
        }
    }

    pub(super) fn on_startup_ack(&mut self, event: &AckEvent) {
        let packets = event.delivery_rate.bytes_in(event.sample_interval) as f64 / self.datagram;
        let is_excess = self.loss.is_excess(event.flight_loss, packets);
        let sent = self.first_flight.rate(event).unwrap_or(0.0).max(event.sent_rate.bytes_per_sec());
        self.round_delivered = self.round_delivered.max(event.delivery_rate.bytes_per_sec());
        let corrected = event.delivery_rate.bytes_per_sec() / (1.0 - self.loss.base());
        self.capacity.on_startup_sample(if is_excess { corrected.min(sent) } else { sent });
        let (noise, unrest) = (NOISE_STARTUP * self.queue.noise(), self.unrest());
        let Some(pulses) = &mut self.pulses else { return };
        let answer = pulses.on_ack(event, self.datagram, noise, unrest);
        let blind = pulses.are_blind().then(|| pulses.proven());
        if let Some(answer) = answer {
            self.on_pulse(&answer, event.now);
        }
        if let Some(proven) = blind {
            self.go_on_by_doubling(proven);
        }
    }

    /// A queue stands that ends start-up; of pulses, only where the application has too little for them, for they look at it themselves.
    pub(super) fn is_filled(&self, event: &AckEvent) -> bool {
        self.pulses.as_ref().is_none_or(|pulses| pulses.are_limited())
            && event.newest_offset >= self.doubles_from
            && self.queue.now() > self.startup_threshold()
            && self.queue.is_fresh()
    }

    pub(super) fn startup_round(&mut self, now: Time) {
        if !self.round_limited && self.pulses.is_none() {
            // In delivered units: loss that is the path's own takes its share of every round alike.
            let is_more = self.round_delivered > self.plateau_best * PLATEAU_GROWTH;
            if is_more {
                self.plateau_best = self.round_delivered;
            }
            self.count_plateau(is_more, now);
        } else if self.round_limited && !switch::is_off(Mechanism::FadingUnrest) {
            // An application that has little to send may stay here for long: what made the RTT fall at first must not hide a queue for ever.
            self.queue.fade_fall();
        }
    }

    pub(super) fn on_startup_epoch(&mut self, epoch: &Epoch, is_excess: bool, now: Time) {
        self.loss.on_startup(epoch.loss, epoch.packets, is_excess || self.is_crowd(self.queue.now()));
        if self.pulses.is_some() {
            // An epoch has parts of a pulse; what it met is asked when all of it has an answer.
            return;
        }
        let is_hopeless = epoch.loss > STARTUP_HOPELESS;
        self.suspicion = if is_excess || is_hopeless { self.suspicion + 1 } else { 0 };
        // A shallow buffer or a policer: loss that came with the rate. Of a few packets one burst may take most.
        if is_hopeless && (self.suspicion >= 2 || epoch.packets >= TEST_PACKETS as f64) {
            self.loss.doubt();
            self.suspicion = 1;
            self.cut_startup_short(now);
        } else if self.suspicion >= 2 || (is_excess && epoch.loss > self.loss.base() + STARTUP_EXCESS) {
            self.cut_startup_short(now);
        }
    }
}

//! Proactive packets: which batches deserve them, and how many (flow.md 3.4).

use super::Sender;
use super::poll::fitting_from;
use crate::flow::{Outgoing, SendContext};
use crate::options::{Class, Mode};
use crate::redundancy::{RedundancyInput, plan};
use crate::switch::{self, Mechanism};
use crate::units::{Duration, Probability, Time};

/// Part of the packets of the last flight of a finished bulk flow that shall need no second round trip: the link has nothing else to do.
const TAIL_TARGET: f64 = 0.99;
/// Round trips in which a loss is noticed and repaired (one and a half, and a little more).
const FEEDBACK: u32 = 2;
/// As [`TAIL_TARGET`], of a batch of ordered datagrams for which there is time for feedback: what is missing holds up those after it, which an inner TCP takes
/// for delay. At 5 % loss this costs a third more, of what the path has to spare (decision 95).
const ORDERED_TARGET: f64 = 0.999;
/// Combinations per batch of these at most, where the path was idle for all of the last round trips while data wait.
const MOST_ORDERED: f64 = 8.0;
/// A batch of these that does not grow for this part of a round trip is protected as it is: a combination that comes later covers more.
const GROWING: u32 = 8;
/// Ordered datagrams with at most so many packets in flight are protected whatever waits: a request, a keystroke, acknowledgements.
const SMALL: u64 = 8;
/// Loss that a path is thought to have of which nothing is known, and packets after which half of that is forgotten.
const UNKNOWN_LOSS: f64 = 0.04;
const UNKNOWN_PACKETS: f64 = 64.0;
/// Packets after which all of it is.
const KNOWN_AFTER: u32 = 1024;

impl Sender {
    /// Protection goes before what is new: of datagrams whose lifetime leaves no time for feedback it is part of the promise; of ordered bulk ones
    /// that have time it takes spare capacity, but cannot wait for a pause; other bulk ones get none. Those of latency flows that have time are protected when nothing else is to be sent, and repaired where the link is full.
    pub(super) fn is_urgent(&self) -> bool {
        self.config.mode == Mode::Btp && (self.is_urgent || self.config.class == Class::Bulk)
    }

    /// Protection may as well be left out: what it would protect is repaired in time.
    pub(super) fn is_patient(&self) -> bool {
        self.config.mode == Mode::Btp && !self.is_urgent() && !switch::is_off(Mechanism::PatientDatagrams)
    }

    /// The session has more data for this flow at this moment: the burst is not over, and a batch that will grow is not protected yet.
    /// Matters to flows whose protection does not wait until the link has nothing else to do; false until told otherwise.
    pub fn expect_more(&mut self, more: bool) {
        self.has_more = more;
    }

    /// A small flow that passes here: a relay protects batches, for it can only combine what shares one span (P4).
    fn is_small_relayed(&self) -> bool {
        self.config.class == Class::Latency && self.relay.is_some() && !switch::is_off(Mechanism::RelayedProtection)
    }

    /// A batch waits for proactive packets and will not be sent more of at once.
    pub(super) fn is_protection_due(&self) -> bool {
        if self.is_windowed() {
            return self.is_window_due();
        }
        let grows = |number: &u64| (number + 1) * self.batch_size() > self.pushed;
        let is_waiting = self.proactive.front().is_some_and(|front| (!self.has_more || !grows(front)) && !self.is_growing(*front));
        self.is_all_sent() && (is_waiting || self.is_tail_open())
    }

    /// Ordered datagrams of bulk flows for which there is time for feedback.
    fn is_patient_order(&self) -> bool {
        self.config.mode == Mode::Btp && self.config.class == Class::Bulk && self.config.waits_in_order && !self.is_urgent
    }

    /// It has so little in flight that protecting it costs the others next to nothing.
    fn is_small(&self) -> bool {
        self.outstanding <= SMALL && !switch::is_off(Mechanism::SmallOrdered)
    }

    /// More of a batch is likely to follow soon, and then a combination protects that, too.
    fn is_growing(&self, number: u64) -> bool {
        self.is_patient_order()
            && !switch::is_off(Mechanism::GrowingBatches)
            && !self.is_quiet
            && !self.finished
            && (number + 1) * self.batch_size() > self.cursor
    }

    /// When a batch that does not grow is protected as it is.
    pub(super) fn quiet_at(&self) -> Option<Time> {
        let front = *self.proactive.front()?;
        self.is_growing(front).then(|| self.protect_at + (self.rtt / GROWING).max(Duration::from_millis(1)))
    }

    fn is_tail_open(&self) -> bool {
        self.finished && !self.tail_protected && self.outstanding > 0
    }

    pub(super) fn poll_proactive(&mut self, now: Time, context: &SendContext, max_symbol: usize) -> Option<Outgoing> {
        if self.is_windowed() {
            return self.poll_window(now, context, max_symbol);
        }
        if !self.is_protection_due() {
            return None;
        }
        if self.is_tail_open() {
            self.protect_tail();
        }
        while let Some(&number) = self.proactive.front() {
            let planned = self.planned(now, number, context);
            if let Some(batch) = self.batch_mut(number).filter(|_| planned > 0) {
                let from = fitting_from(batch, true, max_symbol);
                if batch.longest(from) > max_symbol {
                    return None;
                }
                batch.planned = Some(planned - 1);
                self.stats.proactive_packets += 1;
                return self.combination(now, number, from);
            }
            if let Some(batch) = self.batch_mut(number) {
                batch.in_proactive = false;
            }
            self.proactive.pop_front();
            if !self.is_protection_due() {
                break;
            }
        }
        None
    }

    /// Proactive packets still to send for a batch, by the redundancy policy (flow.md 3.4).
    fn planned(&mut self, now: Time, number: u64, context: &SendContext) -> u8 {
        let Some(batch) = self.batch(number) else { return 0 };
        if let Some(planned) = batch.planned {
            return if batch.missing() > 0 { planned } else { 0 };
        }
        let lifetime = if self.config.mode == Mode::Btp { batch.deadline().map(|at| at.since(now)) } else { None };
        let has_time = lifetime.is_none_or(|left| left >= context.rtt * FEEDBACK);
        let is_bulk = self.config.class == Class::Bulk && !self.finished;
        let idle_share = if self.is_small() { Probability::ONE } else { context.idle_share };
        let is_held_up = is_bulk
            && has_time
            && idle_share > Probability::ZERO
            && self.config.waits_in_order
            && !switch::is_off(Mechanism::OrderedProtection);
        let most = match self.config.mode {
            Mode::Brtp if !self.is_small_relayed() => TAIL_TARGET,
            Mode::Brtp => 1.0,
            Mode::Btp | Mode::Transparent if is_held_up => ORDERED_TARGET,
            Mode::Btp | Mode::Transparent => 1.0,
        };
        let target = Probability::new(self.config.no_retransmit.get().min(most));
        let is_bulk = is_bulk && !is_held_up;
        let is_free = !is_held_up || idle_share == Probability::ONE;
        let spare = if is_free { u8::MAX } else { (idle_share.get() * MOST_ORDERED).ceil() as u8 };
        let mut loss = context.loss;
        if is_held_up && context.heard < KNOWN_AFTER && !switch::is_off(Mechanism::UnknownLoss) {
            let doubt = UNKNOWN_LOSS * UNKNOWN_PACKETS / (UNKNOWN_PACKETS + f64::from(context.heard));
            loss.mean = Probability::new(loss.mean.get() + doubt);
        }
        // Only the question whether there is time for feedback depends on the lifetime: coarser, it repeats more often.
        let lifetime = lifetime.map(|_| if has_time { context.rtt * FEEDBACK } else { Duration::ZERO });
        let input = RedundancyInput { loss, runs: batch.runs(), target, spare, lifetime, rtt: context.rtt, is_bulk };
        let answer = match &self.last_plan {
            Some((asked, answer)) if *asked == input => *answer,
            _ if batch.missing() == 0 => 0,
            _ => plan(&input),
        };
        self.last_plan = Some((input, answer));
        if let Some(batch) = self.batch_mut(number) {
            batch.planned = Some(answer);
        }
        answer
    }

    /// Puts a batch into the queue of those that deserve proactive packets, to be planned afresh.
    pub(super) fn protect(&mut self, now: Time, number: u64) {
        if self.config.mode == Mode::Brtp && !self.is_small_relayed() {
            return; // bulk: on feedback alone; small flows: by the window
        }
        let patience = self.rtt * FEEDBACK;
        (self.protect_at, self.is_quiet) = (now, false);
        let Some(batch) = self.batch(number) else { return };
        let has_time = batch.deadline().is_none_or(|at| at.since(now) >= patience) && !switch::is_off(Mechanism::PatientDatagrams);
        if !has_time {
            self.pressed_until = now + patience;
        }
        // Where a queue stands, a batch without time is followed by others. It is no reason for more than that: a flow without pauses would protect everything
        // from then on, and keep the link full with it.
        self.is_urgent = if switch::is_off(Mechanism::UrgencyEnds) {
            !has_time || (self.is_urgent && !self.proactive.is_empty())
        } else {
            now < self.pressed_until
        };
        // What waits for capacity to spare must not wait for ever.
        while self.proactive.front().is_some_and(|front| *front < self.first) {
            self.proactive.pop_front();
        }
        let Some(batch) = self.batch_mut(number) else { return };
        batch.planned = None;
        if !batch.in_proactive {
            batch.in_proactive = true;
            self.proactive.push_back(number);
        }
    }

    /// A finished bulk flow protects what is still out, once: then the link would be idle for round trips.
    fn protect_tail(&mut self) {
        self.tail_protected = true;
        for at in 0..self.batches.len() {
            let batch = &mut self.batches[at];
            if batch.missing() > 0 && !batch.in_proactive {
                batch.planned = None;
                batch.in_proactive = true;
                self.proactive.push_back(self.first + at as u64);
            }
        }
    }
}

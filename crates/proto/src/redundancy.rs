//! How much redundancy (flow.md 3.4): a pure function from statistics to packet counts.
//!
//! *Spend redundancy only where capacity is spare; where the link is full, repair exactly.* The sender of a flow asks [`plan`] how many
//! coded packets to add to what is in flight, [`plan_window`] how many and when for small flows, and [`repair_extra`] how many to add to
//! the repair of a deficit (P13). None of them sends anything.

mod window;

pub use window::{WindowInput, WindowPlan, mid_burst, plan_window};

use crate::switch::{self, Mechanism};
use crate::units::{Duration, Probability};
use smallvec::SmallVec;

/// Loss of a path as it is measured: what the policy is fed with.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct LossEstimate {
    /// Mean loss.
    pub mean: Probability,
    /// Standard deviation of the loss between measuring intervals.
    pub deviation: Probability,
    /// Mean length of a run of lost packets; 1/(1-p) or less when losses are independent.
    pub burst_packets: f64,
    /// Mean duration of a burst of losses; zero when losses are independent.
    pub burst: Duration,
}

impl LossEstimate {
    /// The loss that is planned for: the mean, one deviation up.
    fn planned(&self) -> f64 {
        (self.mean.get() + self.deviation.get()).min(MOST_LOSS)
    }
}

impl Default for LossEstimate {
    fn default() -> Self {
        Self { mean: Probability::ZERO, deviation: Probability::ZERO, burst_packets: 1.0, burst: Duration::ZERO }
    }
}

/// Packets of a span up to some prefix of it, and what was sent to protect that prefix.
///
/// A combination over a prefix helps nobody behind it, which is why a span in use is a sequence of runs.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Run {
    /// Source packets of the run that are in flight.
    pub flying: u8,
    /// Source packets of the run that are known to be lost.
    pub lost: u8,
    /// Combinations over the span up to the end of the run that are known to have arrived.
    pub repairs_there: u8,
    /// Such combinations that are in flight.
    pub repairs_flying: u8,
}

/// What [`plan`] decides from.
#[derive(Clone, Debug, PartialEq)]
pub struct RedundancyInput {
    /// Loss of the path.
    pub loss: LossEstimate,
    /// The span as far as it was sent, from its front; packets known to be there are left out.
    pub runs: SmallVec<[Run; 4]>,
    /// Wanted probability that what is in flight and what is planned suffice without another round trip.
    pub target: Probability,
    /// Coded packets that may be spent at most.
    pub spare: u8,
    /// Time that is left until the span is of no use any more; `None`: it is always of use.
    pub lifetime: Option<Duration>,
    /// Round-trip time of the path.
    pub rtt: Duration,
    /// The flow fills the link: it is repaired on feedback alone, unless there is no time for feedback.
    pub is_bulk: bool,
}

/// Most coded packets that are planned for one span beyond its own size: with long bursts more of them help little, time helps.
const MOST_EXTRA: u8 = 8;

/// Coded packets over the whole span to send now, beyond what is in flight.
///
/// The fewest with which P(the receiver can decode the span) reaches the target, with losses from a two-state Markov chain of the measured
/// mean and burst length (binomial when the bursts are those of independent losses). The mean is taken one deviation up.
/// Cost: O(packets in flight x losses among them), some 0.2 us for a few packets, 10 us for a full span of 64.
pub fn plan(input: &RedundancyInput) -> u8 {
    let p = input.loss.planned();
    let needed: u32 = input.runs.iter().map(|r| u32::from(r.flying) + u32::from(r.lost)).sum();
    if needed == 0 || p <= 0.0 {
        return 0;
    }
    // A repair on feedback arrives one and a half round trips after its packet was sent, and a little later than that.
    let feedback_in_time = input.lifetime.is_none_or(|l| l >= input.rtt * 2);
    if input.is_bulk && feedback_in_time {
        return 0;
    }
    let most = input.spare.min(needed.min(128) as u8 + MOST_EXTRA);
    let target = input.target.get().min(BEST_TARGET);
    let mut chain = DeficitChain::new(p, input.loss.burst_packets, needed as usize);
    input.runs.iter().for_each(|run| chain.add(run));
    let mut planned = 0;
    while planned < most && chain.nothing_lacks() < target {
        chain.send_repair();
        planned += 1;
    }
    planned
}

/// Highest loss that is planned for; beyond it a link is as good as down.
const MOST_LOSS: f64 = 0.75;
/// A target of 1 cannot be reached with any number of packets.
const BEST_TARGET: f64 = 0.999_999;

/// What [`repair_extra`] decides from.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct RepairInput {
    /// Which transmission of the deficit this is: 2 is the first repair, 3 or more follows a repair that was lost.
    pub transmission: u8,
    /// Repairs before it that followed a lost one and fell short as well.
    pub in_vain: u8,
    /// Rank that lacks and that nothing in flight makes up for.
    pub deficit: u8,
    /// Mean loss of the path.
    pub loss: Probability,
    /// How long the flow can go on sending new packets until its window halts at this span.
    pub left: Duration,
    /// Time until nobody wants the first of it any more; `None`: it is always wanted.
    pub lifetime: Option<Duration>,
    /// Round-trip time of the path.
    pub rtt: Duration,
    /// The flow passes relays.
    pub is_relayed: bool,
    /// The flow began lately: its reader is not where it will be yet.
    pub is_young: bool,
    /// Whatever is sent has to arrive, and holds up what comes after it (bulk `brtp`).
    pub is_lasting: bool,
}

/// Packets to send beyond the deficit when a repair of it was lost already (P13).
///
/// The first repair is exact. What follows depends on the time that is left until the window halts at the hole. Three and a half round trips
/// leave time for two more exact repairs, and nothing is gained by spending more. With less, two are added. When there is time for one
/// repair more and no other (1.75 round trips), as many are added as make it suffice but for one case in a thousand: few spans come
/// that far, and each of them would halt the flow. What is relayed halts at no hole on the path, for a relay's window follows what passes
/// it, and is two round trips wide: it is short when less than one is left. A lifetime that ends in less than three and a half round trips is like a window that
/// halts then, relays or not.
///
/// A reader in order is behind by as many round trips as the slowest of a window's spans takes: seven and more at 20 % of loss and 1000 spans
/// in flight, if all repairs are exact. A *young* flow pays for being read sooner: its second repair falls short once in ten, every later one once in
/// a thousand, so that three to four round trips do, at 3 % of the packets at 20 % of loss and 1 % at 10 %
/// (`docs/decisions/0120-young-flows-repair-safely.md`).
/// Cost: O(deficit x packets added), some 0.1 us.
pub fn repair_extra(input: &RepairInput) -> u8 {
    let RepairInput { transmission, in_vain, left, lifetime, rtt, is_relayed, is_young, is_lasting, .. } = *input;
    if transmission < 3 {
        return 0;
    }
    if lifetime.is_some_and(|lifetime| lifetime < rtt * 7 / 2) {
        return SOME_EXTRA;
    }
    if is_relayed {
        return if left < rtt { SOME_EXTRA } else { 0 };
    }
    if switch::is_off(Mechanism::TimeLeft) {
        return if left < rtt * 3 { SOME_EXTRA } else { 0 };
    }
    let by_time = if is_lasting && left < rtt * 7 / 4 {
        SOME_EXTRA.max(until_sure(input.deficit, input.loss, LAST_CHANCE))
    } else if left < rtt * 7 / 2 {
        SOME_EXTRA
    } else {
        0
    };
    if !is_lasting || !is_young || input.loss.get() > YOUNG_LOSS || switch::is_off(Mechanism::YoungFlow) {
        return by_time;
    }
    by_time.max(until_sure(input.deficit, input.loss, if in_vain == 0 { YOUNG_CHANCE } else { LAST_CHANCE }))
}

/// Added to a repair for which there is little time.
const SOME_EXTRA: u8 = 2;
/// How often the last repair for which there is time may fall short.
const LAST_CHANCE: f64 = 1e-3;
/// How often the second repair of a young flow may.
const YOUNG_CHANCE: f64 = 0.1;
/// Loss beyond which its safety would cost more than a twelfth of its packets.
const YOUNG_LOSS: f64 = 0.3;

/// The fewest packets beyond a deficit with which it is met but for the given share of cases, losses being independent: in a burst that lasts
/// no number of packets helps.
fn until_sure(deficit: u8, loss: Probability, chance: f64) -> u8 {
    let p = loss.get().min(MOST_LOSS);
    let mut chain = DeficitChain::new(p, 1.0, usize::from(deficit));
    (0..deficit).for_each(|_| chain.lack());
    (0..deficit).for_each(|_| chain.send_repair());
    let mut extra = 0;
    while extra < MOST_EXTRA && chain.something_lacks() > chance {
        chain.send_repair();
        extra += 1;
    }
    extra
}

/// Rank that the receiver lacks, as a distribution, while packets are sent one after the other over a lossy path: a two-state chain
/// (Gilbert) in its steady state. Combinations are innovative as long as anything lacks.
#[derive(Clone, Debug)]
struct DeficitChain {
    /// P(lost | the one before arrived), P(lost | the one before was lost).
    enter: f64,
    stay: f64,
    /// P(k lacking and the last packet arrived / was lost), by k.
    arrived: Vec<f64>,
    lost: Vec<f64>,
}

impl DeficitChain {
    fn new(p: f64, burst: f64, capacity: usize) -> Self {
        // Bursts shorter than those of independent losses are taken as independent: the estimate of a short history.
        let shortest = 1.0 / (1.0 - p);
        let leave = 1.0 / if burst.is_finite() { burst.clamp(shortest, 64.0) } else { shortest };
        let (mut arrived, mut lost) = (Vec::with_capacity(capacity + 1), Vec::with_capacity(capacity + 1));
        arrived.push(1.0 - p);
        lost.push(p);
        Self { enter: (p * leave / (1.0 - p)).min(1.0), stay: 1.0 - leave, arrived, lost }
    }

    /// What was sent of a run.
    fn add(&mut self, run: &Run) {
        (0..run.lost).for_each(|_| self.lack());
        (0..run.flying).for_each(|_| self.send_source());
        (0..run.repairs_there).for_each(|_| self.gain());
        (0..run.repairs_flying).for_each(|_| self.send_repair());
    }

    /// The part of the distribution in which every source packet of a run arrives.
    fn add_whole(&mut self, run: &Run) {
        if run.lost > 0 {
            self.arrived.iter_mut().chain(&mut self.lost).for_each(|chance| *chance = 0.0);
        }
        for _ in 0..run.flying {
            for k in 0..self.arrived.len() {
                (self.arrived[k], self.lost[k]) = (self.split(self.arrived[k], self.lost[k]).0, 0.0);
            }
        }
        (0..run.repairs_there).for_each(|_| self.gain());
        (0..run.repairs_flying).for_each(|_| self.send_repair());
    }

    /// One packet more lacks, for certain.
    fn lack(&mut self) {
        self.arrived.insert(0, 0.0);
        self.lost.insert(0, 0.0);
    }

    /// One combination is there, for certain.
    fn gain(&mut self) {
        for by_k in [&mut self.arrived, &mut self.lost] {
            if by_k.len() > 1 {
                let none = by_k.remove(0);
                by_k[0] += none;
            }
        }
    }

    /// One uncoded packet is sent: if it is lost, it lacks.
    fn send_source(&mut self) {
        self.arrived.push(0.0);
        self.lost.push(0.0);
        let mut fewer = 0.0; // chance to be lost now, with one lacking fewer before
        for k in 0..self.arrived.len() {
            let (arrives, fails) = self.split(self.arrived[k], self.lost[k]);
            (self.arrived[k], self.lost[k]) = (arrives, fewer);
            fewer = fails;
        }
    }

    /// One combination is sent: if it arrives, one fewer lacks.
    fn send_repair(&mut self) {
        let mut surplus = 0.0;
        for k in 0..self.arrived.len() {
            let (arrives, fails) = self.split(self.arrived[k], self.lost[k]);
            (self.arrived[k], self.lost[k]) = (0.0, fails);
            match k.checked_sub(1) {
                Some(fewer) => self.arrived[fewer] += arrives,
                None => surplus = arrives,
            }
        }
        self.arrived[0] += surplus;
    }

    /// Chances that the next packet arrives and that it is lost, given those of the one before.
    fn split(&self, arrived: f64, lost: f64) -> (f64, f64) {
        let fails = arrived * self.enter + lost * self.stay;
        (arrived + lost - fails, fails)
    }

    fn nothing_lacks(&self) -> f64 {
        self.arrived[0] + self.lost[0]
    }

    /// P(something lacks), of as much of the distribution as there is.
    fn something_lacks(&self) -> f64 {
        self.arrived[1..].iter().chain(&self.lost[1..]).sum()
    }
}

#[cfg(test)]
#[path = "redundancy_tests.rs"]
mod tests;

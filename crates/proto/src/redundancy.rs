//! How much redundancy (DESIGN 3.3): a pure function from statistics to packet counts.
//!
//! *Spend redundancy only where capacity is spare; where the link is full, repair exactly.* The sender of a flow asks [`plan`] how many
//! coded packets to add to what is on its way, and [`repair_extra`] how many to add to the repair of a deficit (P13). Neither sends anything.

use crate::units::{Duration, Probability};

/// Loss of a path as it is measured: what the policy is fed with.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct LossEstimate {
    /// Mean loss.
    pub mean: Probability,
    /// Standard deviation of the loss between measuring intervals.
    pub deviation: Probability,
    /// Mean length of a run of lost packets; 1/(1-p) or less when losses are independent.
    pub burst_packets: f64,
}

impl Default for LossEstimate {
    fn default() -> Self {
        Self { mean: Probability::ZERO, deviation: Probability::ZERO, burst_packets: 1.0 }
    }
}

/// What [`plan`] decides from.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct RedundancyInput {
    /// Loss of the path.
    pub loss: LossEstimate,
    /// Packets that the receiver still lacks of the span, as far as known: its rank deficit if nothing on its way counted.
    pub needed: u8,
    /// Innovative packets of the span that are on their way.
    pub in_flight: u8,
    /// Wanted probability that these and the planned ones suffice without another round trip.
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

/// Coded packets to send now beyond what is on its way.
///
/// The fewest that make P(at least `needed` of all packets on their way arrive) reach the target, with losses from a two-state Markov
/// chain of the measured mean and burst length (binomial when the bursts are those of independent losses). The mean is taken one
/// deviation up. Cost: O((needed + result)²) multiplications, some 0.3 us for a few packets, 10 us for a full span of 64.
pub fn plan(input: &RedundancyInput) -> u8 {
    let p = (input.loss.mean.get() + input.loss.deviation.get()).min(MOST_LOSS);
    if input.needed == 0 || p <= 0.0 {
        return 0;
    }
    // A repair on feedback arrives two round trips after the source packet was sent, less the half that its lifetime has from there.
    let feedback_in_time = input.lifetime.is_none_or(|l| l >= input.rtt * 2);
    if input.is_bulk && feedback_in_time {
        return 0;
    }
    let most = input.spare.min(input.needed.saturating_add(MOST_EXTRA));
    let target = input.target.get().min(BEST_TARGET);
    let mut chain =
        LossChain::new(p, input.loss.burst_packets, usize::from(input.needed) + usize::from(input.in_flight) + usize::from(most));
    for _ in 0..input.in_flight {
        chain.send();
    }
    let mut planned = 0;
    while planned < most && chain.at_least(input.needed) < target {
        chain.send();
        planned += 1;
    }
    planned
}

/// Highest loss that is planned for; beyond it a link is as good as down.
const MOST_LOSS: f64 = 0.75;
/// A target of 1 cannot be reached with any number of packets.
const BEST_TARGET: f64 = 0.999_999;

/// Packets to send beyond the deficit when a repair of it was lost already (P13).
///
/// The first repair is exact. From the third transmission on, a deficit of d gets d + 2 combinations (three for the usual d = 1) when the
/// flow would otherwise stall: `slack` is how long the flow can go on sending new packets before its window is used up. Three round
/// trips of slack leave time for two more exact repairs, so that nothing is gained by spending more.
pub fn repair_extra(transmission: u8, slack: Duration, rtt: Duration) -> u8 {
    if transmission >= 3 && slack < rtt * 3 { 2 } else { 0 }
}

/// Number of losses among packets sent one after the other, as a distribution: a two-state chain (Gilbert) in its steady state.
#[derive(Debug)]
struct LossChain {
    /// P(lost | the one before arrived), P(lost | the one before was lost).
    enter: f64,
    stay: f64,
    /// P(k losses so far and the last packet arrived / was lost), by k.
    arrived: Vec<f64>,
    lost: Vec<f64>,
    sent: usize,
}

impl LossChain {
    fn new(p: f64, burst: f64, capacity: usize) -> Self {
        // Bursts shorter than those of independent losses are taken as independent: the estimate of a short history.
        let burst = if burst.is_finite() { burst.clamp(1.0 / (1.0 - p), 64.0) } else { 1.0 / (1.0 - p) };
        let leave = 1.0 / burst;
        let (mut arrived, mut lost) = (Vec::with_capacity(capacity + 1), Vec::with_capacity(capacity + 1));
        arrived.push(1.0 - p);
        lost.push(p);
        Self { enter: (p * leave / (1.0 - p)).min(1.0), stay: 1.0 - leave, arrived, lost, sent: 0 }
    }

    /// One more packet.
    fn send(&mut self) {
        self.sent += 1;
        self.arrived.push(0.0);
        self.lost.push(0.0);
        let (mut from_arrived, mut from_lost) = (0.0, 0.0); // chances with one loss fewer
        for k in 0..=self.sent {
            let (a, l) = (self.arrived[k], self.lost[k]);
            self.arrived[k] = a * (1.0 - self.enter) + l * (1.0 - self.stay);
            self.lost[k] = from_arrived * self.enter + from_lost * self.stay;
            (from_arrived, from_lost) = (a, l);
        }
    }

    /// P(at least `needed` packets arrived).
    fn at_least(&self, needed: u8) -> f64 {
        let Some(losses) = self.sent.checked_sub(usize::from(needed)) else { return 0.0 };
        (0..=losses).map(|k| self.arrived[k] + self.lost[k]).sum()
    }
}

#[cfg(test)]
#[path = "redundancy_tests.rs"]
mod tests;

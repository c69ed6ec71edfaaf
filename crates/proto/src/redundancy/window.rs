//! Redundancy of small flows: how many coded packets over the newest packets that are not acknowledged, and when (P4, flow.md 3.4).
//!
//! Losses that are independent are answered at once: right behind the burst of source packets go as many combinations as the asked
//! probability needs. Losses that come in bursts longer than that would take the combinations along; then they follow spaced by the
//! duration of a burst, each covering all that is not acknowledged by its time, and none is sent any more once the packets that it was
//! planned for are acknowledged.

use super::{BEST_TARGET, DeficitChain, LossEstimate, MOST_EXTRA, Run};
use crate::units::{Duration, Probability};
use noctule_codes::span::MAX_SPAN;
use smallvec::SmallVec;

/// What [`plan_window`] decides from.
#[derive(Clone, Debug, PartialEq)]
pub struct WindowInput {
    /// Loss of the path.
    pub loss: LossEstimate,
    /// Packets before the burst that are not known to be there, and the combinations over them, from the front.
    pub older: SmallVec<[Run; 4]>,
    /// The burst that was just sent, likewise.
    pub burst: SmallVec<[Run; 4]>,
    /// Wanted probability that the burst needs no second round trip.
    pub target: Probability,
    /// What earlier bursts were left more likely to fail than asked, and later ones make up for: the `debt` of the last plan.
    pub debt: Probability,
    /// Time between two packets of the flow when the pacer sends them one after the other.
    pub gap: Duration,
}

/// Coded packets to send for a burst, each over all that is not acknowledged when it leaves.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct WindowPlan {
    /// So many at once.
    pub at_once: u8,
    /// So many times ...
    pub rounds: u8,
    /// ... so many more ...
    pub per_round: u8,
    /// ... after such a time each, unless the burst is acknowledged by then.
    pub spacing: Duration,
    /// For the next plan.
    pub debt: Probability,
}

/// More copies than this mean that the path is down.
const MOST_ROUNDS: u8 = 8;
/// A burst of losses that takes more packets than this is left to feedback.
const MOST_PER_ROUND: u8 = 8;
/// Bursts of losses of so few packets' time are as good as independent: the copies still follow at once.
const SHORT: u32 = 4;

/// Combinations at once, and copies to come.
///
/// *At once*: the fewest with which P(a packet of the burst is lost and something still lacks) is at most 1 - target; what older packets lack
/// takes combinations away from the burst. One fewer is taken as long as the sum of what is missing stays below 1 - target: so the
/// probability is met over many bursts, at 10.5 % loss with 3.1 packets instead of 4. *Copies*: the fewest rounds with which p·f^n is at most 1 - target, f the probability that a
/// packet is lost a burst's duration after a lost one.
pub fn plan_window(input: &WindowInput) -> WindowPlan {
    let nothing = WindowPlan { at_once: 0, rounds: 0, per_round: 0, spacing: Duration::ZERO, debt: input.debt };
    let p = input.loss.planned();
    let packets: u32 = input.burst.iter().map(|r| u32::from(r.flying) + u32::from(r.lost)).sum();
    if packets == 0 || p <= 0.0 {
        return nothing;
    }
    let allowed = 1.0 - input.target.get().min(BEST_TARGET);
    let burst = input.loss.burst;
    if burst > input.gap.saturating_mul(SHORT.max(packets)) {
        let rounds = rounds(p, allowed);
        return WindowPlan { rounds, per_round: packets.min(u32::from(MOST_PER_ROUND)) as u8, spacing: burst, ..nothing };
    }
    let older: u32 = input.older.iter().map(|r| u32::from(r.flying) + u32::from(r.lost)).sum();
    let mut chain = DeficitChain::new(p, burst_in_packets(p, burst, input.gap), (older + packets) as usize);
    input.older.iter().for_each(|run| chain.add(run));
    // The same with a burst that arrives whole: then it is no matter for the burst what older packets lack.
    let mut whole = chain.clone();
    for run in &input.burst {
        chain.add(run);
        whole.add_whole(run);
    }
    let fails = |chain: &DeficitChain, whole: &DeficitChain| chain.something_lacks() - whole.something_lacks();
    let most = packets.min(128) as u8 + MOST_EXTRA;
    let debt = input.debt.get();
    let mut at_once = 0;
    // The sum of what is missing never exceeds `allowed`.
    while at_once < most && fails(&chain, &whole) + debt > 2.0 * allowed {
        chain.send_repair();
        whole.send_repair();
        at_once += 1;
    }
    let debt = (debt + fails(&chain, &whole) - allowed).clamp(0.0, allowed);
    WindowPlan { at_once, debt: Probability::new(debt), ..nothing }
}

/// Combinations in the middle of a burst that is not over, for `packets` more of it; over all of them together, fractions count.
///
/// Until the first packet is out of reach of one combination nothing is sent: the end of the burst may come first, and what is sent then covers all.
/// Then what so many packets lose on average, and for those behind them one standard deviation per reach, so that what is lacking does
/// not pile up. The rest follows at its end. At 6 % a burst of 72 takes 9 packets in all for 97 of 100, as if one combination could cover it.
pub fn mid_burst(loss: &LossEstimate, packets: u8, is_first: bool, gap: Duration) -> f64 {
    let p = loss.planned();
    let reach = MAX_SPAN as f64;
    if p <= 0.0 || loss.burst > gap.saturating_mul(MAX_SPAN as u32) {
        return 0.0;
    }
    let n = f64::from(packets);
    let deviation = if is_first { 0.0 } else { n / reach * (reach * p * (1.0 - p)).sqrt() };
    (n * p / (1.0 - p) + deviation).min(n)
}

/// Rounds of copies spaced by a burst's duration B: the correlation time of the chain is B(1-p), so that f = p + (1-p)·e^(-1/(1-p)).
fn rounds(p: f64, allowed: f64) -> u8 {
    let again = p + (1.0 - p) * (-1.0 / (1.0 - p)).exp();
    let (mut fails, mut rounds) = (p, 0);
    while fails > allowed && rounds < MOST_ROUNDS {
        fails *= again;
        rounds += 1;
    }
    rounds
}

/// Mean run of lost packets that leave `gap` apart while bursts last `burst`.
fn burst_in_packets(p: f64, burst: Duration, gap: Duration) -> f64 {
    let memory = burst.as_secs_f64() * (1.0 - p);
    let stays = if memory > 0.0 { (-gap.as_secs_f64() / memory).exp() } else { 0.0 };
    1.0 / ((1.0 - p) * (1.0 - stays)).max(1.0 / 64.0)
}

#[cfg(test)]
#[path = "window_tests.rs"]
mod tests;

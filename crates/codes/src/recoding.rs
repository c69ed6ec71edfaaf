//! How many recoded packets to send for a batch: rank statistics of the inner code and adaptive recoding (RFC 9426 §4.1; Yin, Tang, Ng, Yang,
//! Wang, Zhou, "A unified adaptive recoding framework for batched network coding", ISIT 2019).
//!
//! Ranks follow a Markov chain along the hops: a relay that holds rank r sends its r packets and then random combinations over GF(256);
//! packets are lost independently. Everything here is exact for that model.
//!
//! ```
//! use noctule_codes::recoding::{Probability, RankDistribution};
//! // Three hops, 10 % loss on each, batches of 16, sixteen sends per batch and hop on average.
//! let loss = Probability::new(0.1);
//! let mut ranks = RankDistribution::full(16);
//! for _ in 0..3 {
//!     let sends = ranks.adaptive(loss, 16.0);
//!     ranks = ranks.after_link(loss, &sends);
//! }
//! assert!((ranks.mean() / 16.0 - 0.8526).abs() < 1e-4);
//! ```

use alloc::vec;
use alloc::vec::Vec;

/// A probability, in [0, 1].
#[derive(Clone, Copy, Debug, PartialEq, PartialOrd)]
pub struct Probability(f64);

impl Probability {
    /// Clamps to [0, 1]; not-a-number becomes 0.
    pub fn new(p: f64) -> Self {
        Self(if p > 0.0 { p.min(1.0) } else { 0.0 })
    }

    /// The number.
    pub fn get(self) -> f64 {
        self.0
    }
}

/// Packets to send for one batch: `packets`, and one more with probability `extra`.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Sends {
    /// Packets sent in any case.
    pub packets: u32,
    /// Probability of one more: the budget rarely ends on a whole packet.
    pub extra: Probability,
}

/// Probability of each rank 0..=M of a batch at some node.
#[derive(Clone, Debug, PartialEq)]
pub struct RankDistribution {
    probabilities: Vec<f64>,
}

/// Rank distribution at the next node while packets are sent one by one, for a batch of which the sender holds rank `held`.
struct Sending {
    held: usize,
    sent: usize,
    delivered: f64,
    next: Vec<f64>,
}

impl Sending {
    fn new(held: usize, loss: Probability) -> Self {
        let mut next = vec![0.0; held + 1];
        next[0] = 1.0;
        Self { held, sent: 0, delivered: 1.0 - loss.get(), next }
    }

    /// Probability that a packet is innovative at a node that already has rank `rank`, given that it arrives.
    fn innovative(&self, rank: usize) -> f64 {
        if self.sent < self.held {
            1.0 // uncoded: the next of the packets held, which the other side cannot have
        } else {
            let mut missed = 1.0;
            for _ in rank..self.held {
                missed /= 256.0;
            }
            1.0 - missed
        }
    }

    /// What one more packet adds to the expected rank.
    fn gain(&self) -> f64 {
        let sum: f64 = self.next.iter().enumerate().map(|(rank, p)| p * self.innovative(rank)).sum();
        sum * self.delivered
    }

    fn send(&mut self) {
        for rank in (0..self.held).rev() {
            let moved = self.next[rank] * self.delivered * self.innovative(rank);
            self.next[rank] -= moved;
            self.next[rank + 1] += moved;
        }
        self.sent += 1;
    }
}

impl RankDistribution {
    /// The source: every batch has rank M.
    pub fn full(batch_size: usize) -> Self {
        let mut probabilities = vec![0.0; batch_size + 1];
        probabilities[batch_size] = 1.0;
        Self { probabilities }
    }

    /// A measured distribution: how often each rank 0..=M was seen. `None` if nothing was seen.
    pub fn from_counts(counts: &[u64]) -> Option<Self> {
        let total: u64 = counts.iter().sum();
        (total > 0).then(|| Self { probabilities: counts.iter().map(|n| *n as f64 / total as f64).collect() })
    }

    /// Batch size M.
    pub fn batch_size(&self) -> usize {
        self.probabilities.len() - 1
    }

    /// Probability of rank `rank`.
    pub fn probability(&self, rank: usize) -> Probability {
        Probability::new(self.probabilities.get(rank).copied().unwrap_or(0.0))
    }

    /// Expected rank.
    pub fn mean(&self) -> f64 {
        self.probabilities.iter().enumerate().map(|(rank, p)| rank as f64 * p).sum()
    }

    /// The same number of packets whatever the rank.
    pub fn uniform(&self, packets: u32) -> Vec<Sends> {
        vec![Sends { packets, extra: Probability::new(0.0) }; self.probabilities.len()]
    }

    /// Adaptive recoding: packets to send for each rank so that the expected rank at the next node is largest, with `budget` packets per batch on
    /// average. Greedy, and optimal because each further packet of a batch adds less than the one before.
    ///
    /// Entry r is for batches of rank r. Cost: O(budget · M²).
    pub fn adaptive(&self, loss: Probability, budget: f64) -> Vec<Sends> {
        let mut sending: Vec<Sending> = (0..self.probabilities.len()).map(|held| Sending::new(held, loss)).collect();
        let mut gains: Vec<f64> = sending.iter().map(Sending::gain).collect();
        let mut extra = vec![0.0; sending.len()];
        let mut left = budget.max(0.0);
        loop {
            let possible = (1..sending.len()).filter(|r| self.probabilities[*r] > 0.0);
            let Some(best) = possible.max_by(|a, b| gains[*a].total_cmp(&gains[*b])) else { break };
            // On a lossless link nothing more helps once everything is sent.
            if gains[best] < 1e-12 {
                break;
            }
            let share = self.probabilities[best];
            if share > left {
                extra[best] = left / share;
                break;
            }
            left -= share;
            sending[best].send();
            gains[best] = sending[best].gain();
        }
        sending.iter().zip(extra).map(|(s, extra)| Sends { packets: s.sent as u32, extra: Probability::new(extra) }).collect()
    }

    /// Distribution at the next node when `sends[r]` packets go out for batches of rank r.
    pub fn after_link(&self, loss: Probability, sends: &[Sends]) -> Self {
        let mut probabilities = vec![0.0; self.probabilities.len()];
        for (held, (p, sends)) in self.probabilities.iter().zip(sends).enumerate() {
            let mut sending = Sending::new(held, loss);
            for _ in 0..sends.packets {
                sending.send();
            }
            for (share, more) in [(1.0 - sends.extra.get(), false), (sends.extra.get(), true)] {
                if more {
                    sending.send();
                }
                for (sum, q) in probabilities.iter_mut().zip(&sending.next) {
                    *sum += p * share * q;
                }
            }
        }
        Self { probabilities }
    }

    /// Mean number of packets sent per batch.
    pub fn mean_sends(&self, sends: &[Sends]) -> f64 {
        self.probabilities.iter().zip(sends).map(|(p, s)| p * (f64::from(s.packets) + s.extra.get())).sum()
    }
}

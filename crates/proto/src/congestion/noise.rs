//! Base loss p0 (P12b): the loss that a path shows however little is sent; only what exceeds it can be congestion.

use crate::switch::{self, Mechanism};

/// Packets whose memory the pooled estimates keep.
const POOL: f64 = 1000.0;
/// Standard deviations that count as evidence.
const SIGMAS: f64 = 3.0;
/// Variance of the loss over that of independent losses, at most.
const MAX_DISPERSION: f64 = 128.0;
/// However few packets there are and however bursty their losses, so much more than p0 is worth a test.
const MAX_MARGIN: f64 = 0.3;
/// Bursts of loss assumed before any was seen.
const PRIOR: f64 = 1.5;
/// The same, of independent losses, for what was lost when start-up ended: a test makes sure of it.
const DOUBT: f64 = 2.0;
/// Loss below which nothing is ever suspected.
const SLACK: f64 = 0.01;
/// No path that is worth using loses more by itself: what more is lost is in excess, so that nobody ever sends much more than arrives.
const MAX_BASE: f64 = 0.6;
/// A pool that loses less than this part of p0 says that p0 is not what it was, however bursty the path is thought to be.
const STALE: f64 = 0.5;

/// Loss of a pool of packets.
#[derive(Clone, Copy, Debug, Default)]
struct Pool {
    packets: f64,
    loss: f64,
}

impl Pool {
    fn add(&mut self, loss: f64, packets: f64) {
        self.packets += packets;
        self.loss += (loss - self.loss) * packets / self.packets;
        self.packets = self.packets.min(POOL);
    }
}

/// The estimator.
#[derive(Clone, Debug)]
pub(super) struct BaseLoss {
    base: Pool,
    cruise: Pool,
    /// The same while the queue was as we leave it.
    rest: Pool,
    /// Variance of the loss per epoch over that of independent losses: above 1 where losses come in bursts.
    dispersion: f64,
    /// Mean number of consecutive packets lost.
    burst: f64,
    low_start: Option<(u64, u64)>,
    low: Pool,
    is_doubtful: bool,
}

impl Default for BaseLoss {
    fn default() -> Self {
        Self {
            base: Pool::default(),
            cruise: Pool::default(),
            rest: Pool::default(),
            dispersion: 1.0,
            burst: 1.0,
            low_start: None,
            low: Pool::default(),
            is_doubtful: false,
        }
    }
}

impl BaseLoss {
    /// p0.
    pub(super) fn base(&self) -> f64 {
        self.base.loss.min(MAX_BASE)
    }

    /// An epoch with a queue as we leave it.
    pub(super) fn on_rest(&mut self, loss: f64, packets: f64) {
        self.rest.add(loss, packets);
    }

    /// p0, if as much was lost while nobody pushed: what a full queue drops may have been taken for the path's own.
    pub(super) fn at_rest(&self) -> f64 {
        if self.rest.packets >= POOL / 2.0 { self.base().min(self.rest.loss) } else { 0.0 }
    }

    fn sigma(&self, packets: f64) -> f64 {
        // Few packets without loss prove little: as if one and a half bursts had been lost.
        let n = self.base.packets.max(1.0);
        let prior = PRIOR * self.burst;
        let p = ((self.base.loss * n + prior) / (n + prior)).clamp(0.001, 0.9);
        // Bursts of mean length b, if their lengths are geometric: 2b - 1 times the variance of independent losses.
        let dispersion = self.dispersion.max(2.0 * self.burst - 1.0).min(MAX_DISPERSION);
        let variance = |n: f64| p * (1.0 - p) * dispersion / n.max(1.0);
        (variance(packets) + variance(self.base.packets.max(8.0))).sqrt()
    }

    /// Something was learnt about p0.
    pub(super) fn is_known(&self) -> bool {
        self.base.packets > 0.0
    }

    /// What the path knows of the length of bursts, in packets.
    pub(super) fn on_burst(&mut self, mean: f64) {
        self.burst = mean.max(1.0);
    }

    /// The loss of so many packets is more than chance adds to p0.
    pub(super) fn is_excess(&self, loss: f64, packets: f64) -> bool {
        // One burst in a short epoch is not evidence either.
        let most = (MAX_MARGIN + 2.0 * self.burst / packets.max(1.0)).min(0.9);
        // And what is lost beyond half of what p0 leaves is no chance, whatever is known of bursts.
        let margin = (SLACK + SIGMAS * self.sigma(packets)).min(most).min((1.0 - self.base()) / 2.0);
        self.base.packets > 0.0 && loss > self.base() + margin
    }

    /// The same for all that was lost while cruising, where no single epoch tells.
    pub(super) fn is_pooled_excess(&self) -> bool {
        self.cruise.packets >= POOL / 2.0 && self.is_excess(self.cruise.loss, self.cruise.packets)
    }

    /// An epoch of start-up; `is_crowded`: it may have met a full queue.
    pub(super) fn on_startup(&mut self, loss: f64, packets: f64, is_crowded: bool) {
        if is_crowded {
            // Bursts of loss are well worth a test: it is by tests that p0 is learnt where they are long.
            let variance = loss * (1.0 - loss) * (1.0 / packets.max(1.0) + 1.0 / self.base.packets.max(8.0));
            self.is_doubtful |= loss > self.base.loss + SLACK + DOUBT * variance.sqrt();
        } else {
            self.base.add(loss, packets);
        }
    }

    /// What was learnt in start-up may have been congestion: p0 is unknown again.
    pub(super) fn doubt(&mut self) {
        self.base = Pool::default();
        self.is_doubtful = true;
    }

    /// Start-up lost more than it can explain.
    pub(super) fn is_startup_doubtful(&self) -> bool {
        self.is_doubtful
    }

    /// An epoch at capacity. p0 may be lower than believed, never higher: that only a lower rate can tell.
    pub(super) fn on_cruise(&mut self, loss: f64, packets: f64) {
        if self.base.packets == 0.0 {
            self.base.add(loss, packets);
        }
        let sigma = self.sigma(packets);
        if loss < self.base.loss - 2.0 * sigma {
            self.base.loss += (loss - self.base.loss) / 2.0;
        }
        self.cruise.add(loss, packets);
        let is_stale = self.cruise.packets >= POOL / 2.0 && self.cruise.loss < self.base.loss * STALE;
        if is_stale && !switch::is_off(Mechanism::StaleBaseLoss) {
            self.base.loss += (self.cruise.loss - self.base.loss) * (packets / POOL).min(0.5);
        }
        if self.base.loss > 0.002 && packets >= 16.0 {
            // About the mean of what is seen: a p0 that no longer holds is no sign of bursts.
            let p = self.cruise.loss.min(self.base.loss).max(0.001);
            let ratio = (loss - p) * (loss - p) * packets / (p * (1.0 - p));
            // A congested epoch is no sign of bursts: outliers count little.
            self.dispersion =
                (self.dispersion + (ratio.min(4.0 * self.dispersion.max(1.0)) - self.dispersion) / 16.0).clamp(1.0, MAX_DISPERSION);
        }
    }

    /// From now on packets leave at a lower rate.
    pub(super) fn begin_low(&mut self) {
        self.low = Pool::default();
        self.low_start = None;
    }

    /// An acknowledgement of packets that left at the lower rate.
    pub(super) fn on_low(&mut self, offset: u64, acked: u64, datagram: f64) {
        let Some((offset0, acked0)) = self.low_start else {
            self.low_start = Some((offset, acked));
            return;
        };
        if offset > offset0 {
            let bytes = (offset - offset0) as f64;
            self.low = Pool { packets: bytes / datagram, loss: (1.0 - (acked - acked0) as f64 / bytes).clamp(0.0, 1.0) };
        }
    }

    /// Packets sent at the lower rate whose fate is known.
    pub(super) fn low_packets(&self) -> u64 {
        self.low.packets as u64
    }

    /// The lower rate ends. True: loss was the same there, so that it is the path's own; p0 follows it. `is_crowded`: a queue remained
    /// all the same, so that what was lost may have been lost there, by others' doing: p0 may be lower than believed, not higher.
    pub(super) fn end_low(&mut self, is_crowded: bool) -> bool {
        self.is_doubtful = false;
        let low = self.low;
        if low.packets < 8.0 {
            return true;
        }
        if is_crowded && low.loss > self.base.loss {
            let is_chance = !self.is_excess(low.loss, low.packets);
            self.cruise = Pool::default();
            return is_chance;
        }
        let high = if self.cruise.packets > 0.0 { self.cruise.loss } else { low.loss };
        let was = self.base.loss;
        let is_random = low.loss + self.sigma(low.packets) >= was + (high - was) / 2.0;
        let differs = (low.loss - was).abs() > 2.0 * self.sigma(low.packets);
        if differs {
            self.base = Pool { packets: low.packets.min(POOL / 4.0), loss: low.loss };
        } else {
            self.base.add(low.loss, low.packets);
        }
        self.cruise = Pool::default();
        is_random
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::switch::without;

    /// p0 after a test that lost 30 % at a queue that others filled, on a path that is believed to lose in long bursts, and so many packets without loss.
    fn base_after(packets: u32) -> f64 {
        let mut loss = BaseLoss::default();
        loss.on_startup(0.0, 500.0, false);
        loss.begin_low();
        loss.on_low(0, 0, 1.0);
        loss.on_low(200, 140, 1.0);
        assert!(loss.end_low(false) && loss.base() > 0.25, "{}", loss.base());
        loss.on_burst(40.0);
        (0..packets / 32).for_each(|_| loss.on_cruise(0.0, 32.0));
        loss.base()
    }

    /// P12b: p0 may be lower than believed at any rate, and a p0 that is too high hides as much of what a queue loses.
    #[test]
    fn a_base_loss_that_nothing_confirms_is_forgotten() {
        let (with, without) = (base_after(5000), without(Mechanism::StaleBaseLoss, || base_after(5000)));
        println!("{with:.3}, {without:.3} without");
        assert!(with < 0.02 && without > 0.2, "{with:.3}, {without:.3} without");
    }

    /// Bursts of 30 at 20 %: what chance spares now and then does not make p0 fall to where the next burst would be congestion.
    #[test]
    fn long_bursts_keep_their_base_loss() {
        let mut loss = BaseLoss::default();
        loss.on_burst(30.0);
        loss.on_startup(0.2, 1000.0, false);
        // A burst each 150 packets, and 600 packets without one each 3000.
        for epoch in 0..2000 {
            let spared = epoch % 100 < 20;
            loss.on_cruise(if epoch % 5 == 0 && !spared { 1.0 } else { 0.0 }, 30.0);
            assert!(loss.base() > 0.1, "{epoch}: {:.3}", loss.base());
        }
    }

    /// P12b: what is lost beyond 60 % is our doing, whatever was lost before.
    #[test]
    fn no_base_loss_explains_more_than_the_most() {
        let mut loss = BaseLoss::default();
        loss.on_startup(0.8, 1000.0, false);
        assert!((loss.base() - MAX_BASE).abs() < 1e-9, "{}", loss.base());
        assert!(loss.is_excess(0.85, 1000.0));
    }
}

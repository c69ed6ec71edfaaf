//! The queueing delay of a path over time, to be compared with that of another (P7).

use crate::units::{Duration, Time};

/// One value each so long.
pub(crate) const SLOT: Duration = Duration::from_millis(20);
/// Values that are kept: 5.12 s.
const SLOTS: usize = 256;
/// Changes that two paths must have in common to be compared.
const COMMON: usize = 24;
/// Slots taken together where acknowledgements come seldom: the fewest that give so many.
const SPANS: [u64; 4] = [1, 2, 4, 8];

/// Smallest round trip of the packets that left within each slot; by the time of sending, because two paths see one queue at nearly the same time there,
/// however long their return paths are.
#[derive(Clone, Debug)]
pub(crate) struct Delays {
    /// Milliseconds; infinite where nothing was measured.
    slots: [f32; SLOTS],
    /// Number of the newest slot.
    newest: u64,
}

impl Default for Delays {
    fn default() -> Self {
        Self { slots: [f32::INFINITY; SLOTS], newest: 0 }
    }
}

fn slot(at: Time) -> u64 {
    at.as_nanos() / SLOT.as_nanos() as u64
}

impl Delays {
    /// A packet that left at `sent_at` took `rtt` there and back.
    pub(crate) fn on_rtt(&mut self, sent_at: Time, rtt: Duration) {
        let at = slot(sent_at);
        if at > self.newest {
            for gone in (self.newest + 1..=at).take(SLOTS) {
                self.slots[gone as usize % SLOTS] = f32::INFINITY;
            }
            self.newest = at;
        }
        if self.newest - at < SLOTS as u64 {
            let kept = &mut self.slots[at as usize % SLOTS];
            *kept = kept.min(rtt.as_secs_f64() as f32 * 1e3);
        }
    }

    /// How the delay changed from one span of `span` slots to the next that knows it, at most one span left out between; NaN where that is unknown.
    fn changes(&self, span: u64) -> [f32; SLOTS] {
        let mut changes = [f32::NAN; SLOTS];
        let oldest = (self.newest + 1).saturating_sub(SLOTS as u64).div_ceil(span);
        let mut last: Option<(u64, f32)> = None;
        for at in oldest..(self.newest + 1) / span {
            let delay = (at * span..(at + 1) * span).map(|slot| self.slots[slot as usize % SLOTS]).fold(f32::INFINITY, f32::min);
            if delay.is_finite() {
                if let Some((before, was)) = last
                    && at - before <= 2
                {
                    changes[at as usize % SLOTS] = delay - was;
                }
                last = Some((at, delay));
            }
        }
        changes
    }

    /// The best correlation of the changes of two delays over the lags that queues near either end of paths of different length can have, `most` being the
    /// difference of the round trips. `None`: too little was measured on one of them, or nothing moved. The changes and not the delays are compared: two
    /// queues that fill at the same time for reasons of their own do not jump at the same moments.
    pub(crate) fn likeness(&self, other: &Self, most: Duration) -> Option<f32> {
        SPANS.iter().find_map(|&span| {
            let (ours, theirs) = (self.changes(span), other.changes(span));
            // Two rings that hold different times: only spans of the last turn of both are compared.
            let newest = (self.newest.min(other.newest) + 1) / span;
            let oldest = ((self.newest.max(other.newest) + 1).saturating_sub(SLOTS as u64)).div_ceil(span);
            let most = (most.as_nanos() / (SLOT * span as u32).as_nanos()).min(8) as i64 + 1;
            let at_lag = |lag: i64| {
                let pairs =
                    (oldest..newest).filter_map(|at| Some((at, at.checked_add_signed(lag).filter(|at| (oldest..newest).contains(at))?)));
                correlation(pairs.map(|(a, b)| (ours[a as usize % SLOTS], theirs[b as usize % SLOTS])))
            };
            (-most..=most).filter_map(at_lag).reduce(f32::max)
        })
    }
}

/// Pearson's correlation of the pairs in which both are known.
fn correlation(pairs: impl Iterator<Item = (f32, f32)>) -> Option<f32> {
    let (mut n, mut x, mut y, mut xx, mut yy, mut xy) = (0usize, 0f32, 0f32, 0f32, 0f32, 0f32);
    for (a, b) in pairs.filter(|(a, b)| !a.is_nan() && !b.is_nan()) {
        (n, x, y, xx, yy, xy) = (n + 1, x + a, y + b, xx + a * a, yy + b * b, xy + a * b);
    }
    let of = |sum: f32, p: f32, q: f32| sum / n as f32 - p * q / (n * n) as f32;
    let (vx, vy) = (of(xx, x, x), of(yy, y, y));
    (n >= COMMON && vx > MOVED && vy > MOVED).then(|| of(xy, x, y) / (vx * vy).sqrt())
}

/// Variance below which a delay says nothing, ms^2.
const MOVED: f32 = 0.01;

#[cfg(test)]
mod tests {
    use super::*;

    fn series(delay: impl Fn(u64) -> f64, later: u64) -> Delays {
        let mut delays = Delays::default();
        for slot in 0..300 {
            delays.on_rtt(Time::ZERO + SLOT * (slot + later) as u32, Duration::from_secs_f64((40.0 + delay(slot)) * 1e-3));
        }
        delays
    }

    fn noise(seed: u64) -> impl Fn(u64) -> f64 {
        move |slot| {
            ((slot + 1).wrapping_mul(0x9e37_79b9_7f4a_7c15 ^ seed).wrapping_mul(0xbf58_476d_1ce4_e5b9) >> 40) as f64 / f64::from(1 << 24)
        }
    }

    #[test]
    fn one_queue_seen_twice_is_alike_though_one_path_is_longer() {
        let queue = |slot: u64| 10.0 * noise(3)(slot);
        let first = series(|slot| queue(slot) + noise(1)(slot), 0);
        let later = || series(|slot| queue(slot) + 30.0 + noise(2)(slot), 2);
        assert!(first.likeness(&later(), Duration::from_millis(40)).unwrap() > 0.9);
        assert!(first.likeness(&later(), Duration::ZERO).unwrap() < 0.6, "not within that lag");
    }

    #[test]
    fn where_acknowledgements_come_seldom_longer_spans_are_compared() {
        let queue = |slot: u64| 10.0 * noise(3)(slot / 4);
        let seldom = |seed| {
            let mut delays = Delays::default();
            for slot in (0..300).step_by(4) {
                delays.on_rtt(Time::ZERO + SLOT * slot as u32, Duration::from_secs_f64((40.0 + queue(slot) + noise(seed)(slot)) * 1e-3));
            }
            delays
        };
        assert!(seldom(1).likeness(&seldom(2), Duration::ZERO).unwrap() > 0.9);
    }

    #[test]
    fn queues_that_know_nothing_of_each_other_are_not_alike() {
        let likeness = series(noise(1), 0).likeness(&series(noise(7), 0), Duration::from_millis(40)).unwrap();
        assert!(likeness < 0.4, "{likeness}");
    }

    #[test]
    fn too_little_or_nothing_that_moves_says_nothing() {
        let flat = series(|_| 3.0, 0);
        assert_eq!(flat.likeness(&series(noise(1), 0), Duration::ZERO), None);
        assert_eq!(Delays::default().likeness(&series(noise(1), 0), Duration::ZERO), None);
        // What has left the memory is not compared with what has not.
        let mut old = series(noise(1), 0);
        old.on_rtt(Time::from_millis(1 << 40), Duration::from_millis(40));
        assert_eq!(old.likeness(&series(noise(1), 0), Duration::ZERO), None);
    }
}

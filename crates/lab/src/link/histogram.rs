//! A histogram of times with a relative error below 1 %, of fixed size.

use std::time::Duration;

/// Values below 2^7 ns have a bucket each; each power of two above is cut into 64.
const SUB_BITS: u32 = 6;
const BUCKETS: usize = ((64 - SUB_BITS + 1) << SUB_BITS) as usize;

/// Counts of durations in log-linear buckets.
#[derive(Clone)]
pub struct Histogram {
    counts: Box<[u64; BUCKETS]>,
    count: u64,
    sum_ns: u128,
    max_ns: u64,
}

impl Default for Histogram {
    fn default() -> Self {
        Self { counts: Box::new([0; BUCKETS]), count: 0, sum_ns: 0, max_ns: 0 }
    }
}

impl std::fmt::Debug for Histogram {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Histogram").field("count", &self.count).field("mean", &self.mean()).finish_non_exhaustive()
    }
}

fn bucket_of(ns: u64) -> usize {
    if ns < (1 << (SUB_BITS + 1)) {
        return ns as usize;
    }
    let shift = 63 - ns.leading_zeros() - SUB_BITS;
    ((shift as usize) << SUB_BITS) + (ns >> shift) as usize
}

/// The middle of a bucket.
fn value_of(bucket: usize) -> u64 {
    if bucket < (1 << (SUB_BITS + 1)) {
        return bucket as u64;
    }
    let shift = (bucket >> SUB_BITS) as u32 - 1;
    let low = ((bucket & ((1 << SUB_BITS) - 1)) as u64 + (1 << SUB_BITS)) << shift;
    low + (1u64 << shift) / 2
}

impl Histogram {
    /// Counts one value.
    pub fn record(&mut self, value: Duration) {
        let ns = u64::try_from(value.as_nanos()).unwrap_or(u64::MAX);
        self.counts[bucket_of(ns).min(BUCKETS - 1)] += 1;
        self.count += 1;
        self.sum_ns += u128::from(ns);
        self.max_ns = self.max_ns.max(ns);
    }

    /// Number of values.
    pub fn count(&self) -> u64 {
        self.count
    }

    /// The exact mean; zero if nothing was counted.
    pub fn mean(&self) -> Duration {
        let ns = self.sum_ns.checked_div(u128::from(self.count)).unwrap_or(0);
        Duration::from_nanos(u64::try_from(ns).unwrap_or(u64::MAX))
    }

    /// The exact maximum.
    pub fn max(&self) -> Duration {
        Duration::from_nanos(self.max_ns)
    }

    /// The value below which the share `q` (0 to 1) of all values lies, within 1 %; zero if nothing was counted.
    pub fn quantile(&self, q: f64) -> Duration {
        if self.count == 0 {
            return Duration::ZERO;
        }
        let rank = ((q * self.count as f64).ceil() as u64).clamp(1, self.count);
        let mut seen = 0;
        for (bucket, &n) in self.counts.iter().enumerate() {
            seen += n;
            if seen >= rank {
                return Duration::from_nanos(value_of(bucket).min(self.max_ns));
            }
        }
        self.max()
    }

    /// Forgets everything.
    pub fn clear(&mut self) {
        self.counts.fill(0);
        (self.count, self.sum_ns, self.max_ns) = (0, 0, 0);
    }

    /// Adds the counts of another histogram.
    pub fn merge(&mut self, other: &Self) {
        for (a, b) in self.counts.iter_mut().zip(other.counts.iter()) {
            *a += b;
        }
        self.count += other.count;
        self.sum_ns += other.sum_ns;
        self.max_ns = self.max_ns.max(other.max_ns);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_value_falls_into_a_bucket_within_one_per_cent() {
        let mut x = 1u64;
        while x < u64::MAX / 3 {
            for v in [x, x + x / 3, x + x / 2] {
                let back = value_of(bucket_of(v));
                assert!((back as f64 - v as f64).abs() <= v as f64 * 0.01, "{v} read back as {back}");
            }
            x *= 2;
        }
        assert!(bucket_of(u64::MAX) < BUCKETS);
    }

    #[test]
    fn quantiles_of_a_ramp_are_its_quantiles() {
        let mut h = Histogram::default();
        for us in 1..=1000 {
            h.record(Duration::from_micros(us));
        }
        for (q, us) in [(0.5, 500.0), (0.95, 950.0), (0.999, 999.0)] {
            let got = h.quantile(q).as_nanos() as f64 / 1e3;
            assert!((got - us).abs() <= us * 0.01, "{q}: {got}");
        }
        assert_eq!(h.mean(), Duration::from_nanos(500_500));
        assert_eq!(h.max(), Duration::from_millis(1));
    }
}

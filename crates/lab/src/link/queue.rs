//! What lies before the transmitter of a link: the limit of its queue, and token buckets.

use std::fmt;
use std::str::FromStr;
use std::time::Duration;

use serde::{Deserialize, Serialize};

use noctule_proto::units::Time;

use super::units::{Bandwidth, ParseQuantityError, Period, parse_bytes, parse_duration, text_in_serde};

/// How much may wait at the bottleneck; what comes on top is dropped (drop-tail).
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub enum QueueLimit {
    /// Bandwidth-delay products of the round trip; never less than [`QueueLimit::BDP_FLOOR`].
    Bdp(f64),
    /// Packets, the one in transmission included.
    Packets(u64),
    /// IP bytes, the packet in transmission included.
    Bytes(u64),
    /// Time that the queue takes to drain at the present rate.
    Time(Period),
    /// No limit, of the memory neither: for method tests only.
    Unlimited,
}

impl QueueLimit {
    /// Sixteen full packets: on a short link a BDP may be half a packet, and no real interface has such a queue.
    pub const BDP_FLOOR: u64 = 16 * 1500;

    /// The limit as (packets, bytes) on a link of `rate` whose round trip is `rtt`. A link without a rate has no queue and needs no limit.
    pub fn resolve(self, rate: Option<Bandwidth>, rtt: Duration) -> (u64, u64) {
        let Some(rate) = rate else {
            return (u64::MAX, u64::MAX);
        };
        match self {
            Self::Bdp(n) => (u64::MAX, ((rate.bytes_in(rtt) as f64 * n) as u64).max(Self::BDP_FLOOR)),
            Self::Packets(n) => (n, u64::MAX),
            Self::Bytes(n) => (u64::MAX, n),
            Self::Time(period) => (u64::MAX, rate.bytes_in(period.0)),
            Self::Unlimited => (u64::MAX, u64::MAX),
        }
    }
}

impl Default for QueueLimit {
    fn default() -> Self {
        Self::Bdp(1.0)
    }
}

impl FromStr for QueueLimit {
    type Err = ParseQuantityError;

    /// `1bdp`, `100p`, `64KB`, `50ms` or `none`.
    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let err = || ParseQuantityError::new(text, "a queue limit such as 1bdp, 1000p, 64KB, 50ms or none");
        if text == "none" {
            return Ok(Self::Unlimited);
        }
        if let Some(n) = text.strip_suffix("bdp") {
            let n: f64 = n.parse().map_err(|_| err())?;
            return (n.is_finite() && (0.0..=1e6).contains(&n)).then_some(Self::Bdp(n)).ok_or_else(err);
        }
        if let Some(n) = text.strip_suffix('p') {
            let n: u64 = n.parse().map_err(|_| err())?;
            return (n > 0).then_some(Self::Packets(n)).ok_or_else(err);
        }
        if let Ok(period) = parse_duration(text) {
            return Ok(Self::Time(Period(period)));
        }
        if text.ends_with(['b', 'B']) {
            return parse_bytes(text).map(Self::Bytes).map_err(|_| err());
        }
        Err(err())
    }
}

impl fmt::Display for QueueLimit {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Bdp(n) => write!(f, "{n}bdp"),
            Self::Packets(n) => write!(f, "{n}p"),
            Self::Bytes(n) => write!(f, "{n}B"),
            Self::Time(period) => write!(f, "{period}"),
            Self::Unlimited => f.write_str("none"),
        }
    }
}

/// A token bucket: bytes pass at `rate` on average and at most `burst` at once.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct Bucket {
    /// Tokens gained per second.
    pub rate: Bandwidth,
    /// Bytes of tokens that the bucket holds.
    pub burst: u64,
}

impl FromStr for Bucket {
    type Err = ParseQuantityError;

    /// `20mbit:64KB`.
    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let err = || ParseQuantityError::new(text, "a token bucket such as 20mbit:64KB (rate and burst)");
        let (rate, burst) = text.split_once(':').ok_or_else(err)?;
        let (rate, burst) = (rate.parse().map_err(|_| err())?, parse_bytes(burst).map_err(|_| err())?);
        // A burst below one packet would stop the link for ever.
        (burst >= 1500).then_some(Self { rate, burst }).ok_or_else(err)
    }
}

impl fmt::Display for Bucket {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}B", self.rate, self.burst)
    }
}

text_in_serde!(QueueLimit, Bucket);

/// The state of a bucket in a run, kept as a virtual clock: the time at which it would be full.
#[derive(Debug, Clone)]
pub(crate) struct BucketState {
    bucket: Bucket,
    /// The bucket lacks `(full_at - now) * rate` tokens.
    full_at: Time,
}

impl BucketState {
    pub(crate) fn new(bucket: Bucket) -> Self {
        Self { bucket, full_at: Time::ZERO }
    }

    /// The first moment from `now` on at which `len` bytes may pass.
    pub(crate) fn ready_at(&self, now: Time, len: u32) -> Time {
        let need = u64::from(len).min(self.bucket.burst);
        let may_lack = self.bucket.rate.transmit_nanos(self.bucket.burst - need);
        now.max(self.full_at.saturating_sub(Duration::from_nanos(may_lack)))
    }

    /// Takes the tokens of `len` bytes at `now`.
    pub(crate) fn take(&mut self, now: Time, len: u32) {
        self.full_at = self.full_at.max(now) + Duration::from_nanos(self.bucket.rate.transmit_nanos(u64::from(len)));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn limits_read_and_print() {
        for text in ["1bdp", "0.5bdp", "1000p", "64000B", "50ms", "none"] {
            assert_eq!(text.parse::<QueueLimit>().unwrap().to_string(), text);
        }
        assert_eq!("64KB".parse(), Ok(QueueLimit::Bytes(64_000)));
        for text in ["", "0p", "5", "-1bdp", "infbdp", "bdp"] {
            assert!(text.parse::<QueueLimit>().is_err(), "{text}");
        }
    }

    #[test]
    fn a_bdp_is_rate_times_round_trip() {
        let rate = Some(Bandwidth::from_mbit(100));
        assert_eq!(QueueLimit::Bdp(1.0).resolve(rate, Duration::from_millis(100)), (u64::MAX, 1_250_000));
        assert_eq!(QueueLimit::Bdp(1.0).resolve(rate, Duration::ZERO), (u64::MAX, QueueLimit::BDP_FLOOR));
    }

    #[test]
    fn a_bucket_lets_its_burst_pass_and_then_its_rate() {
        let mut bucket = BucketState::new("8mbit:15000B".parse().unwrap());
        let mut passed_at = Vec::new();
        let mut now = Time::ZERO;
        for _ in 0..20 {
            now = bucket.ready_at(now, 1500);
            bucket.take(now, 1500);
            passed_at.push(now.as_nanos() / 1_000);
        }
        assert!(passed_at[..10].iter().all(|&t| t == 0), "{passed_at:?}");
        // 1500 B at 8 Mbit/s: one per 1.5 ms from then on.
        assert_eq!(&passed_at[10..13], &[1_500, 3_000, 4_500]);
    }
}

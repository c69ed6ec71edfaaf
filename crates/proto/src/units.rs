//! Quantities with units: instants of the virtual clock, bandwidth, probability, ECN codepoints.

use core::fmt;
use core::ops::{Add, AddAssign, Sub};
pub use core::time::Duration;

/// An instant: nanoseconds since an origin that the owner of the node chooses.
///
/// The protocol never reads a clock; every call that depends on time takes a `Time`. Instants handed to one node must never decrease.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct Time(u64);

impl Time {
    /// The origin of the clock.
    pub const ZERO: Self = Self(0);
    /// Later than every instant that can occur.
    pub const MAX: Self = Self(u64::MAX);

    /// The instant `nanos` nanoseconds after the origin.
    pub const fn from_nanos(nanos: u64) -> Self {
        Self(nanos)
    }
    /// The instant `micros` microseconds after the origin.
    pub const fn from_micros(micros: u64) -> Self {
        Self(micros * 1_000)
    }
    /// The instant `millis` milliseconds after the origin.
    pub const fn from_millis(millis: u64) -> Self {
        Self(millis * 1_000_000)
    }
    /// Nanoseconds since the origin.
    pub const fn as_nanos(self) -> u64 {
        self.0
    }
    /// Seconds since the origin.
    pub fn as_secs_f64(self) -> f64 {
        self.0 as f64 / 1e9
    }
    /// Time passed since `earlier`; zero if `earlier` lies in the future.
    pub const fn since(self, earlier: Self) -> Duration {
        Duration::from_nanos(self.0.saturating_sub(earlier.0))
    }
    /// This instant minus `d`, not before the origin.
    pub fn saturating_sub(self, d: Duration) -> Self {
        Self(self.0.saturating_sub(nanos(d)))
    }
}

fn nanos(d: Duration) -> u64 {
    u64::try_from(d.as_nanos()).unwrap_or(u64::MAX)
}

impl Add<Duration> for Time {
    type Output = Self;
    fn add(self, d: Duration) -> Self {
        Self(self.0.saturating_add(nanos(d)))
    }
}

impl AddAssign<Duration> for Time {
    fn add_assign(&mut self, d: Duration) {
        *self = *self + d;
    }
}

impl Sub for Time {
    type Output = Duration;
    fn sub(self, earlier: Self) -> Duration {
        self.since(earlier)
    }
}

impl fmt::Debug for Time {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:.6}s", self.as_secs_f64())
    }
}

/// A rate in bytes per second.
#[derive(Clone, Copy, PartialEq, PartialOrd, Default)]
pub struct Bandwidth(f64);

impl Bandwidth {
    /// No rate at all.
    pub const ZERO: Self = Self(0.0);

    /// From bytes per second; a negative or undefined figure counts as zero.
    pub fn from_bytes_per_sec(v: f64) -> Self {
        Self(if v > 0.0 { v } else { 0.0 })
    }
    /// From bits per second.
    pub fn from_bits_per_sec(v: f64) -> Self {
        Self::from_bytes_per_sec(v / 8.0)
    }
    /// From megabits (10^6 bits) per second.
    pub fn from_mbit(v: f64) -> Self {
        Self::from_bits_per_sec(v * 1e6)
    }
    /// `bytes` in `interval`; zero if the interval is zero.
    pub fn from_transfer(bytes: u64, interval: Duration) -> Self {
        let s = interval.as_secs_f64();
        if s > 0.0 { Self::from_bytes_per_sec(bytes as f64 / s) } else { Self::ZERO }
    }
    /// Bytes per second.
    pub fn bytes_per_sec(self) -> f64 {
        self.0
    }
    /// Megabits per second.
    pub fn mbit(self) -> f64 {
        self.0 * 8e-6
    }
    /// How long `bytes` take at this rate; `Duration::MAX` at rate zero.
    pub fn time_for(self, bytes: u64) -> Duration {
        let s = bytes as f64 / self.0;
        if s.is_finite() && s < 1e9 { Duration::from_secs_f64(s) } else { Duration::MAX }
    }
    /// Bytes that pass in `d`, rounded down.
    pub fn bytes_in(self, d: Duration) -> u64 {
        (self.0 * d.as_secs_f64()) as u64
    }
    /// This rate times a factor.
    pub fn scaled(self, factor: f64) -> Self {
        Self::from_bytes_per_sec(self.0 * factor)
    }
    /// The larger of two rates.
    pub fn max(self, other: Self) -> Self {
        Self(self.0.max(other.0))
    }
    /// The smaller of two rates.
    pub fn min(self, other: Self) -> Self {
        Self(self.0.min(other.0))
    }
}

impl fmt::Debug for Bandwidth {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:.3}Mbit/s", self.mbit())
    }
}

/// A probability or share, always within 0..=1.
#[derive(Clone, Copy, PartialEq, PartialOrd, Default)]
pub struct Probability(f64);

impl Probability {
    /// Impossible.
    pub const ZERO: Self = Self(0.0);
    /// Certain.
    pub const ONE: Self = Self(1.0);

    /// Clamped into 0..=1; undefined counts as zero.
    pub fn new(v: f64) -> Self {
        Self(if v > 0.0 { v.min(1.0) } else { 0.0 })
    }
    /// As a number in 0..=1.
    pub fn get(self) -> f64 {
        self.0
    }
    /// 1 - p.
    pub fn complement(self) -> Self {
        Self(1.0 - self.0)
    }
}

impl fmt::Debug for Probability {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:.4}%", self.0 * 100.0)
    }
}

/// The ECN field of an IP header (RFC 3168 §5).
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Hash)]
pub enum Ecn {
    /// Not ECN-capable.
    #[default]
    NotEct,
    /// ECT(0).
    Ect0,
    /// ECT(1).
    Ect1,
    /// Congestion experienced.
    Ce,
}

//! Quantities of a link as types with units, and how they are written on the command line and in scenario files.
//!
//! Instants and ECN codepoints are those of the protocol. Rates and shares have types of their own: what is configured is exact and reads
//! back as it was written, what the protocol estimates is not.

use std::fmt;
use std::str::FromStr;
use std::time::Duration;

use serde::{Deserialize, Serialize};

/// A text that is not the quantity it should be.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("`{text}` is not {expected}")]
pub struct ParseQuantityError {
    text: String,
    expected: &'static str,
}

impl ParseQuantityError {
    pub(crate) fn new(text: &str, expected: &'static str) -> Self {
        Self { text: text.to_owned(), expected }
    }
}

/// Splits `12.5mbit` into the number and the lower-case unit.
fn number_and_unit(text: &str) -> Option<(f64, String)> {
    let text = text.trim();
    let exponent_at = |i: usize| {
        // `1e-6` is a number, the `e` of `5ethernet` would not be.
        let rest = text[i + 1..].strip_prefix('-').unwrap_or(&text[i + 1..]);
        rest.starts_with(|c: char| c.is_ascii_digit())
    };
    let end = text
        .char_indices()
        .find(|&(i, c)| {
            let exponent_sign = c == '-' && i > 0 && text[..i].ends_with('e');
            !(c.is_ascii_digit() || c == '.' || exponent_sign || (c == 'e' && i > 0 && exponent_at(i)))
        })
        .map_or(text.len(), |(i, _)| i);
    let number: f64 = text[..end].parse().ok()?;
    (number.is_finite() && number >= 0.0).then(|| (number, text[end..].trim().to_ascii_lowercase()))
}

/// Reads a duration: `50ms`, `1.5s`, `200us`, `10ns`, `2min`.
pub fn parse_duration(text: &str) -> Result<Duration, ParseQuantityError> {
    let err = || ParseQuantityError::new(text, "a duration such as 50ms, 1.5s or 200us");
    let (number, unit) = number_and_unit(text).ok_or_else(err)?;
    let nanos = match unit.as_str() {
        "ns" => 1.0,
        "us" | "µs" => 1e3,
        "ms" => 1e6,
        "s" => 1e9,
        "min" => 60e9,
        "" if number == 0.0 => 1.0,
        _ => return Err(err()),
    };
    let nanos = (number * nanos).round();
    // A year is far longer than any run, and keeps sums of times from overflowing.
    if nanos > 3.2e16 {
        return Err(err());
    }
    Ok(Duration::from_nanos(nanos as u64))
}

/// A duration that reads and writes as text (`50ms`) in scenario files.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct Period(pub Duration);

impl Period {
    /// No time at all.
    pub const ZERO: Self = Self(Duration::ZERO);

    /// A period of whole milliseconds.
    pub const fn from_millis(ms: u64) -> Self {
        Self(Duration::from_millis(ms))
    }

    /// Nanoseconds.
    pub fn as_nanos(self) -> u64 {
        u64::try_from(self.0.as_nanos()).unwrap_or(u64::MAX)
    }
}

impl FromStr for Period {
    type Err = ParseQuantityError;
    fn from_str(text: &str) -> Result<Self, Self::Err> {
        parse_duration(text).map(Self)
    }
}

impl fmt::Display for Period {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let ns = self.as_nanos();
        match ns {
            0 => f.write_str("0ms"),
            n if n % 1_000_000_000 == 0 => write!(f, "{}s", n / 1_000_000_000),
            n if n % 1_000 != 0 => write!(f, "{n}ns"),
            n if n < 1_000_000 => write!(f, "{}us", n / 1_000),
            n => write!(f, "{}ms", n as f64 / 1e6),
        }
    }
}

/// A rate in bits per second.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct Bandwidth(u64);

impl Bandwidth {
    /// A rate of `bits` per second; at least one.
    pub const fn from_bits_per_sec(bits: u64) -> Self {
        Self(if bits == 0 { 1 } else { bits })
    }

    /// A rate of `mbit` million bits per second.
    pub const fn from_mbit(mbit: u64) -> Self {
        Self::from_bits_per_sec(mbit * 1_000_000)
    }

    /// Bits per second.
    pub const fn bits_per_sec(self) -> u64 {
        self.0
    }

    /// Million bits per second.
    pub fn as_mbit(self) -> f64 {
        self.0 as f64 / 1e6
    }

    /// Nanoseconds that `bytes` take, rounded up.
    pub fn transmit_nanos(self, bytes: u64) -> u64 {
        let bits_ns = u128::from(bytes) * 8_000_000_000;
        u64::try_from(bits_ns.div_ceil(u128::from(self.0))).unwrap_or(u64::MAX)
    }

    /// Bytes sent in `period`, rounded down.
    pub fn bytes_in(self, period: Duration) -> u64 {
        u64::try_from(u128::from(self.0) * period.as_nanos() / 8_000_000_000).unwrap_or(u64::MAX)
    }
}

impl FromStr for Bandwidth {
    type Err = ParseQuantityError;
    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let err = || ParseQuantityError::new(text, "a rate such as 100mbit, 1.5gbit or 64kbit");
        let (number, unit) = number_and_unit(text).ok_or_else(err)?;
        let scale = match unit.strip_suffix("/s").or(unit.strip_suffix("ps")).unwrap_or(&unit) {
            "bit" => 1.0,
            "kbit" => 1e3,
            "mbit" => 1e6,
            "gbit" => 1e9,
            _ => return Err(err()),
        };
        let bits = (number * scale).round();
        if !(1.0..=1e13).contains(&bits) {
            return Err(err());
        }
        Ok(Self(bits as u64))
    }
}

impl fmt::Display for Bandwidth {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0 {
            n if n >= 1_000_000_000 && n % 1_000_000 == 0 => write!(f, "{}gbit", n as f64 / 1e9),
            n if n >= 1_000_000 && n % 1_000 == 0 => write!(f, "{}mbit", n as f64 / 1e6),
            n if n >= 1_000 => write!(f, "{}kbit", n as f64 / 1e3),
            n => write!(f, "{n}bit"),
        }
    }
}

/// A share between 0 and 1, written `6%` or `0.06`.
#[derive(Debug, Clone, Copy, PartialEq, PartialOrd, Default, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct Probability(f64);

impl Probability {
    /// Never.
    pub const ZERO: Self = Self(0.0);

    /// The share `p`, or nothing if it lies outside 0..=1.
    pub fn new(p: f64) -> Option<Self> {
        (0.0..=1.0).contains(&p).then_some(Self(p))
    }

    /// A share in per cent, cut to 0..=100.
    pub fn percent(p: f64) -> Self {
        Self((p / 100.0).clamp(0.0, 1.0))
    }

    /// The share as a number between 0 and 1.
    pub const fn get(self) -> f64 {
        self.0
    }

    /// True if it never happens.
    pub fn is_zero(self) -> bool {
        self.0 == 0.0
    }

    /// The share for which a uniform 64-bit number is compared with `<`.
    pub(crate) fn threshold(self) -> u64 {
        // 2^64 as f64; the cast saturates, so that 1.0 means "always" up to one part in 2^64.
        (self.0 * 18_446_744_073_709_551_616.0) as u64
    }
}

impl FromStr for Probability {
    type Err = ParseQuantityError;
    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let err = || ParseQuantityError::new(text, "a share such as 6% or 0.06");
        let (number, unit) = number_and_unit(text).ok_or_else(err)?;
        let p = match unit.as_str() {
            "%" => number / 100.0,
            "" => number,
            _ => return Err(err()),
        };
        Self::new(p).ok_or_else(err)
    }
}

impl fmt::Display for Probability {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // Rounded, so that 0.06 reads 6% and not 6.000000000000001%.
        write!(f, "{}%", (self.0 * 1e14).round() / 1e12)
    }
}

/// Reads a number of bytes: `1500B`, `64KB` (thousands), `64KiB` (1024), `10MB`, or a bare number.
pub fn parse_bytes(text: &str) -> Result<u64, ParseQuantityError> {
    let err = || ParseQuantityError::new(text, "a number of bytes such as 1500B, 64KB or 1MiB");
    let (number, unit) = number_and_unit(text).ok_or_else(err)?;
    let scale = match unit.as_str() {
        "" | "b" => 1.0,
        "kb" => 1e3,
        "mb" => 1e6,
        "gb" => 1e9,
        "kib" => 1024.0,
        "mib" => 1024.0 * 1024.0,
        "gib" => 1024.0 * 1024.0 * 1024.0,
        _ => return Err(err()),
    };
    let bytes = (number * scale).round();
    if bytes > 1e15 {
        return Err(err());
    }
    Ok(bytes as u64)
}

/// Gives a type that reads and prints as text the conversions that serde asks for.
macro_rules! text_in_serde {
    ($($ty:ty),+ $(,)?) => {$(
        impl TryFrom<String> for $ty {
            type Error = <$ty as std::str::FromStr>::Err;
            fn try_from(text: String) -> Result<Self, Self::Error> {
                text.parse()
            }
        }
        impl From<$ty> for String {
            fn from(value: $ty) -> Self {
                value.to_string()
            }
        }
    )+};
}
pub(crate) use text_in_serde;

text_in_serde!(Period, Bandwidth, Probability);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn quantities_read_as_people_write_them() {
        assert_eq!("100mbit".parse(), Ok(Bandwidth::from_mbit(100)));
        assert_eq!("1.5Gbit/s".parse(), Ok(Bandwidth::from_mbit(1500)));
        assert_eq!(parse_duration("1.5ms"), Ok(Duration::from_micros(1500)));
        assert_eq!(parse_duration("0"), Ok(Duration::ZERO));
        assert_eq!("6%".parse::<Probability>().map(Probability::get), Ok(0.06));
        assert_eq!("1e-6".parse::<Probability>().map(Probability::get), Ok(1e-6));
        assert_eq!(parse_bytes("64KiB"), Ok(65_536));
        assert_eq!(parse_bytes("100KB"), Ok(100_000));
    }

    #[test]
    fn nonsense_is_refused() {
        for text in ["", "mbit", "-5mbit", "5", "0mbit", "5 parsecs", "nanmbit", "1e99gbit"] {
            assert!(text.parse::<Bandwidth>().is_err(), "{text}");
        }
        for text in ["101%", "1.5", "-1%", "x", "%"] {
            assert!(text.parse::<Probability>().is_err(), "{text}");
        }
        for text in ["5", "ms", "5 m", "1e30s"] {
            assert!(parse_duration(text).is_err(), "{text}");
        }
        assert!(parse_bytes("1e30").is_err());
    }

    #[test]
    fn what_is_printed_reads_back() {
        for text in ["64kbit", "1.5gbit", "100mbit", "7bit"] {
            let b: Bandwidth = text.parse().unwrap();
            assert_eq!(b.to_string().parse(), Ok(b));
        }
        for text in ["0ms", "50ms", "1.5ms", "2s", "17us", "3ns"] {
            let s: Period = text.parse().unwrap();
            assert_eq!(s.to_string(), text);
        }
        let p: Probability = "6%".parse().unwrap();
        assert_eq!(p.to_string(), "6%");
    }

    #[test]
    fn a_packet_of_1500_bytes_takes_120_microseconds_at_100_mbit() {
        assert_eq!(Bandwidth::from_mbit(100).transmit_nanos(1500), 120_000);
        assert_eq!(Bandwidth::from_mbit(100).bytes_in(Duration::from_millis(10)), 125_000);
    }
}

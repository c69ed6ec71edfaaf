//! What the applications of a run do, and under which promise.

use std::fmt;
use std::str::FromStr;
use std::time::Duration;

use noctule_proto::congestion::CongestionControl;
use noctule_proto::options::Mode;
use serde::{Deserialize, Serialize};

use crate::link::{Bandwidth, ParseQuantityError, Period, parse_bytes, parse_duration, text_in_serde};

/// What the application sends.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub enum Workload {
    /// As much as goes: a byte stream in `brtp`, messages of the given size in `btp`.
    Bulk,
    /// Messages of `size` bytes at a fixed rate; the far end echoes each.
    Messages {
        /// Time between two messages.
        interval: Period,
        /// Bytes of each.
        size: usize,
    },
    /// A message of `size` bytes every `interval`; the far end answers each with 16 bytes when it has all of it.
    Block {
        /// Bytes of each block.
        size: usize,
        /// Time between the starts of two blocks.
        interval: Period,
    },
    /// One stream of so many bytes, finished and closed: the run ends when it is delivered.
    Transfer {
        /// Bytes.
        size: u64,
    },
}

/// Room for the number of the message at its start.
pub const SMALLEST_MESSAGE: usize = 16;

impl Workload {
    /// Bytes of each message, 0 for a stream.
    pub fn message_size(&self) -> usize {
        match *self {
            Self::Messages { size, .. } | Self::Block { size, .. } => size,
            Self::Bulk | Self::Transfer { .. } => 0,
        }
    }
}

/// Nanoseconds between messages of so many per second.
fn nanos_of(pace: f64) -> u64 {
    (1e9 / pace) as u64
}

/// Messages per second as the shortest number that reads back as this interval.
fn pace(interval: Period) -> f64 {
    let nanos = interval.as_nanos();
    let rounded = |digits: i32| {
        let scale = 10f64.powi(digits);
        (scale * 1e9 / nanos as f64).round() / scale
    };
    // In the middle of the nanosecond where no rounding lies within it.
    (0..=9).map(rounded).find(|pace| nanos_of(*pace) == nanos).unwrap_or(1e9 / (nanos as f64 + 0.5))
}

impl FromStr for Workload {
    type Err = ParseQuantityError;

    /// `bulk`, `messages:100/s:1024B`, `block:100KB[:INTERVAL]`, `transfer:10MB`.
    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let err = || {
            ParseQuantityError::new(
                text,
                "a workload: bulk, messages:100/s:1024B, block:100KB, block:100KB:200ms or transfer:10MB (messages of 16 bytes or more)",
            )
        };
        let size = |text: &str| {
            let size = parse_bytes(text).ok().and_then(|n| usize::try_from(n).ok());
            size.filter(|&n| (SMALLEST_MESSAGE..=1 << 30).contains(&n)).ok_or_else(err)
        };
        let parts: Vec<&str> = text.split(':').collect();
        match parts[..] {
            ["bulk"] => Ok(Self::Bulk),
            ["messages", rate, bytes] => {
                let rate: f64 = rate.strip_suffix("/s").unwrap_or(rate).parse().map_err(|_| err())?;
                if !(0.001..=1e6).contains(&rate) {
                    return Err(err());
                }
                Ok(Self::Messages { interval: Period(Duration::from_nanos(nanos_of(rate))), size: size(bytes)? })
            }
            ["block", bytes] => Ok(Self::Block { size: size(bytes)?, interval: Period::from_millis(100) }),
            ["block", bytes, interval] => {
                let interval = parse_duration(interval).map_err(|_| err())?;
                if interval < Duration::from_micros(1) {
                    return Err(err());
                }
                Ok(Self::Block { size: size(bytes)?, interval: Period(interval) })
            }
            ["transfer", bytes] => match parse_bytes(bytes) {
                Ok(size) if size > 0 => Ok(Self::Transfer { size }),
                _ => Err(err()),
            },
            _ => Err(err()),
        }
    }
}

impl fmt::Display for Workload {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Bulk => f.write_str("bulk"),
            Self::Messages { interval, size } => write!(f, "messages:{}/s:{size}B", pace(*interval)),
            Self::Block { size, interval } => write!(f, "block:{size}B:{interval}"),
            Self::Transfer { size } => write!(f, "transfer:{size}B"),
        }
    }
}

/// Transport mode by its name.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct ModeName(pub Mode);

impl FromStr for ModeName {
    type Err = ParseQuantityError;
    fn from_str(text: &str) -> Result<Self, Self::Err> {
        match text {
            "brtp" => Ok(Self(Mode::Brtp)),
            "btp" => Ok(Self(Mode::Btp)),
            "transparent" => Ok(Self(Mode::Transparent)),
            _ => Err(ParseQuantityError::new(text, "a mode that exists yet: brtp, btp or transparent")),
        }
    }
}

impl fmt::Display for ModeName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self.0 {
            Mode::Brtp => "brtp",
            Mode::Btp => "btp",
            Mode::Transparent => "transparent",
        })
    }
}

/// Congestion control by its name; `rate` has the rate with it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub enum Congestion {
    /// The default.
    Model,
    /// RFC 9438.
    Cubic,
    /// RFC 5681 and 6582.
    Reno,
    /// Brakmo and Peterson 1995.
    Vegas,
    /// BBR version 3.
    Bbr,
    /// Google congestion control.
    Gcc,
    /// A fixed rate of UDP payload.
    Rate(Bandwidth),
    /// None at all.
    None,
}

impl Congestion {
    /// As the protocol wants it.
    pub fn to_proto(self) -> CongestionControl {
        match self {
            Self::Model => CongestionControl::Model,
            Self::Cubic => CongestionControl::Cubic,
            Self::Reno => CongestionControl::Reno,
            Self::Vegas => CongestionControl::Vegas,
            Self::Bbr => CongestionControl::Bbr,
            Self::Gcc => CongestionControl::Gcc,
            Self::Rate(rate) => CongestionControl::Rate(noctule_proto::units::Bandwidth::from_bits_per_sec(rate.bits_per_sec() as f64)),
            Self::None => CongestionControl::None,
        }
    }
}

impl FromStr for Congestion {
    type Err = ParseQuantityError;

    /// `model`, `cubic`, `reno`, `vegas`, `bbr`, `gcc`, `rate:50mbit`, `none`.
    fn from_str(text: &str) -> Result<Self, Self::Err> {
        match text {
            "model" => Ok(Self::Model),
            "cubic" => Ok(Self::Cubic),
            "reno" => Ok(Self::Reno),
            "vegas" => Ok(Self::Vegas),
            "bbr" => Ok(Self::Bbr),
            "gcc" => Ok(Self::Gcc),
            "none" => Ok(Self::None),
            _ => text.strip_prefix("rate:").and_then(|rate| rate.parse().ok()).map(Self::Rate).ok_or_else(|| {
                ParseQuantityError::new(text, "a congestion control: model, cubic, reno, vegas, bbr, gcc, rate:50mbit or none")
            }),
        }
    }
}

impl fmt::Display for Congestion {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Model => f.write_str("model"),
            Self::Cubic => f.write_str("cubic"),
            Self::Reno => f.write_str("reno"),
            Self::Vegas => f.write_str("vegas"),
            Self::Bbr => f.write_str("bbr"),
            Self::Gcc => f.write_str("gcc"),
            Self::Rate(rate) => write!(f, "rate:{rate}"),
            Self::None => f.write_str("none"),
        }
    }
}

text_in_serde!(Workload, ModeName, Congestion);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_control_of_the_protocol_is_read_by_its_name_and_written_so() {
        for control in CongestionControl::NAMED {
            let read: Congestion = control.name().parse().unwrap();
            assert_eq!(read.to_proto(), control);
            assert_eq!(read.to_string(), control.name());
        }
        assert_eq!("rate:50mbit".parse::<Congestion>().unwrap().to_string().parse::<Congestion>(), "rate:50mbit".parse());
    }

    #[test]
    fn workloads_print_as_they_are_read() {
        for text in ["bulk", "messages:100/s:1024B", "messages:0.5/s:64B", "block:100000B:100ms", "transfer:10000000B"] {
            assert_eq!(text.parse::<Workload>().unwrap().to_string(), text);
        }
        for nanos in [1_001, 3_333, 51_901, 51_902, 142_857_142, 999_999_937, 987_654_321_987] {
            let workload = Workload::Messages { interval: Period(Duration::from_nanos(nanos)), size: 100 };
            assert_eq!(workload.to_string().parse(), Ok(workload), "{workload}");
        }
        assert_eq!("messages:19267/s:1380B".parse::<Workload>().unwrap().to_string(), "messages:19267/s:1380B");
        assert_eq!("block:100KB".parse::<Workload>().unwrap().to_string(), "block:100000B:100ms");
        for text in ["", "messages", "messages:0/s:100B", "messages:1/s:8B", "block:0B", "bulk:1", "transfer:0", "block:100KB:0"] {
            assert!(text.parse::<Workload>().is_err(), "{text}");
        }
    }

    #[test]
    fn names_of_the_future_are_refused_and_not_ignored() {
        assert!("brctp".parse::<ModeName>().is_err());
        assert!("copa".parse::<Congestion>().is_err());
        assert!("rate".parse::<Congestion>().is_err());
        assert_eq!("rate:50mbit".parse::<Congestion>().unwrap().to_string(), "rate:50mbit");
    }
}

//! Rates, times and names as they are written on the command line.

use noctule::{Bandwidth, CongestionControl};
use std::fmt;
use std::str::FromStr;
use std::time::Duration;

fn split(text: &str) -> Result<(f64, String), String> {
    let at = text.find(|c: char| !c.is_ascii_digit() && c != '.').unwrap_or(text.len());
    let number: f64 = text[..at].parse().map_err(|_| format!("{text:?} does not begin with a number"))?;
    Ok((number, text[at..].to_ascii_lowercase()))
}

/// A rate, in bits or in bytes per second. A letter alone could be either: rsync and curl mean bytes by it, iperf3 bits.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Rate(pub Bandwidth);

/// Bits per second of one unit.
fn bits(unit: &str) -> Option<f64> {
    let (power, rest) = match unit.as_bytes().first() {
        Some(b'k') => (1, &unit[1..]),
        Some(b'm') => (2, &unit[1..]),
        Some(b'g') => (3, &unit[1..]),
        _ => (0, unit),
    };
    match rest.trim_end_matches("/s") {
        "bit" | "bits" | "bps" => Some(1000f64.powi(power)),
        "byte" | "bytes" | "b" => Some(8.0 * 1000f64.powi(power)),
        "ib" if power > 0 => Some(8.0 * 1024f64.powi(power)),
        _ => None,
    }
}

impl Rate {
    fn new(text: &str, number: f64, factor: f64) -> Result<Self, String> {
        match number > 0.0 {
            true => Ok(Self(Bandwidth::from_bits_per_sec(number * factor))),
            false => Err(format!("{text:?}: a rate must be above zero")),
        }
    }
}

impl FromStr for Rate {
    type Err = String;
    fn from_str(text: &str) -> Result<Self, String> {
        let (number, unit) = split(text)?;
        match (bits(&unit), unit.as_str()) {
            (Some(factor), _) => Self::new(text, number, factor),
            (None, "" | "k" | "m" | "g" | "/s" | "k/s" | "m/s" | "g/s") => {
                let (number, unit) =
                    (text.trim_end_matches("/s").trim_end_matches(char::is_alphabetic), unit.trim_end_matches("/s").to_ascii_uppercase());
                let small = unit.to_ascii_lowercase();
                Err(format!("{text:?} could be bits or bytes per second: write {number}{small}bit or {number}{unit}B"))
            }
            (None, _) => Err(format!("{text:?}: write a rate in bits (500kbit, 20mbit, 1gbit) or in bytes (500kB, 20MB) per second")),
        }
    }
}

/// A rate as iperf3's `-b` takes it: K, M and G are bits per second.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct BitRate(pub Bandwidth);

impl FromStr for BitRate {
    type Err = String;
    fn from_str(text: &str) -> Result<Self, String> {
        let (number, unit) = split(text)?;
        let rate = match unit.as_str() {
            "" => Rate::new(text, number, 1.0),
            "k" => Rate::new(text, number, 1e3),
            "m" => Rate::new(text, number, 1e6),
            "g" => Rate::new(text, number, 1e9),
            _ => text.parse(),
        };
        rate.map(|rate| Self(rate.0))
    }
}

/// A number of bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Size(pub u64);

impl FromStr for Size {
    type Err = String;
    fn from_str(text: &str) -> Result<Self, String> {
        let (number, unit) = split(text)?;
        let factor = match unit.as_str() {
            "" | "b" => 1.0,
            "kb" => 1e3,
            "mb" => 1e6,
            "gb" => 1e9,
            "tb" => 1e12,
            "k" | "kib" => 1024.0,
            "m" | "mib" => 1024f64.powi(2),
            "g" | "gib" => 1024f64.powi(3),
            "t" | "tib" => 1024f64.powi(4),
            _ => return Err(format!("{text:?}: write a size as 500MB, 20GiB or 1TB")),
        };
        Ok(Self((number * factor) as u64))
    }
}

/// A share, in permille.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Share(u32);

impl Share {
    /// In permille.
    pub fn permille(self) -> u32 {
        self.0
    }
}

impl FromStr for Share {
    type Err = String;
    fn from_str(text: &str) -> Result<Self, String> {
        let (number, unit) = split(text)?;
        match unit.as_str() {
            "%" if number <= 10_000.0 => Ok(Self((number * 10.0).round() as u32)),
            _ => Err(format!("{text:?}: write a share as 30% or 7.5%, at most 10000%")),
        }
    }
}

/// A span of time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Span(pub Duration);

impl FromStr for Span {
    type Err = String;
    fn from_str(text: &str) -> Result<Self, String> {
        let (number, unit) = split(text)?;
        let factor = match unit.as_str() {
            "us" => 1e-6,
            "ms" => 1e-3,
            "s" | "" => 1.0,
            _ => return Err(format!("{text:?}: write a time as 60ms, 500us or 2s")),
        };
        Ok(Self(Duration::from_secs_f64((number * factor).min(1e9))))
    }
}

/// Bytes, with K, M, G and T as iperf3 means them: powers of 1024.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Amount(pub u64);

impl FromStr for Amount {
    type Err = String;
    fn from_str(text: &str) -> Result<Self, String> {
        let (number, unit) = split(text)?;
        let power = match unit.as_str() {
            "" | "b" => 0,
            "k" | "kib" => 1,
            "m" | "mib" => 2,
            "g" | "gib" => 3,
            "t" | "tib" => 4,
            _ => return Err(format!("{text:?}: write bytes as 1200, 64K, 100M or 2G (powers of 1024)")),
        };
        let bytes = number * 1024f64.powi(power);
        if bytes > (1u64 << 62) as f64 {
            return Err(format!("{text:?}: more than 2^62 bytes"));
        }
        Ok(Self(bytes as u64))
    }
}

/// Units in which rates are shown: iperf3's `-f`; the default follows the rate.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Scale {
    /// Mbit/s, from 1000 of them on Gbit/s.
    #[default]
    Auto,
    /// Bits or bytes per second, by a power of 1000 (bits) or 1024 (bytes).
    Fixed {
        /// 1 for k, 2 for M, ...
        power: usize,
        /// Bytes instead of bits.
        is_bytes: bool,
    },
}

const PREFIXES: [&str; 5] = ["", "k", "M", "G", "T"];

impl FromStr for Scale {
    type Err = String;
    fn from_str(text: &str) -> Result<Self, String> {
        let power = match text.to_ascii_lowercase().as_str() {
            "k" => 1,
            "m" => 2,
            "g" => 3,
            "t" => 4,
            _ => return Err(format!("{text:?}: k, m, g or t for bits per second, K, M, G or T for bytes per second")),
        };
        Ok(Self::Fixed { power, is_bytes: text.chars().all(|c| c.is_ascii_uppercase()) })
    }
}

impl Scale {
    /// A rate in bits per second.
    pub fn rate(self, bits: f64) -> String {
        match self {
            Self::Auto if bits >= 1e9 => format!("{:.2} Gbit/s", bits * 1e-9),
            Self::Auto => format!("{:.2} Mbit/s", bits * 1e-6),
            Self::Fixed { power, is_bytes: false } => format!("{:.2} {}bit/s", bits / 1000f64.powi(power as i32), PREFIXES[power]),
            Self::Fixed { power, is_bytes: true } => {
                format!("{:.2} {}iB/s", bits / 8.0 / 1024f64.powi(power as i32), PREFIXES[power].to_uppercase())
            }
        }
    }
}

/// So many things, whose name has a regular plural.
pub fn counted(count: u64, thing: &str) -> String {
    format!("{count} {thing}{}", if count == 1 { "" } else { "s" })
}

/// Bytes for people, in powers of 1000.
pub fn size(bytes: f64) -> String {
    let power = if bytes < 1e9 {
        2
    } else if bytes < 1e12 {
        3
    } else {
        4
    };
    format!("{:.2} {}B", bytes / 1000f64.powi(power), PREFIXES[power as usize])
}

/// How long silence of the other side is borne.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Patience(pub Duration);

impl FromStr for Patience {
    type Err = String;
    fn from_str(text: &str) -> Result<Self, String> {
        let Span(time) = text.parse()?;
        // Above, the circuit breaker of the protocol would end the link all the same (RFC 8084).
        match (Duration::from_secs(1)..=Duration::from_secs(30)).contains(&time) {
            true => Ok(Self(time)),
            false => Err(format!("{text:?}: between 1s and 30s are possible")),
        }
    }
}

/// How long a transfer is tried again after its other side was last heard.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct GiveUp(pub Duration);

impl FromStr for GiveUp {
    type Err = String;
    fn from_str(text: &str) -> Result<Self, String> {
        let (number, unit) = split(text)?;
        let seconds = match unit.as_str() {
            "s" | "" => 1.0,
            "min" | "m" => 60.0,
            "h" => 3600.0,
            "d" => 86400.0,
            _ => return Err(format!("{text:?}: write a time as 90s, 15min, 2h or 1d; 0 ends with the first silence")),
        };
        match number * seconds {
            time if time <= MOST_PATIENCE => Ok(Self(Duration::from_secs_f64(time))),
            _ => Err(format!("{text:?}: at most 365d are possible")),
        }
    }
}

/// Seconds of a year.
const MOST_PATIENCE: f64 = 365.0 * 86400.0;

/// A time for people: the largest unit that says enough.
pub fn time(time: Duration) -> String {
    match time.as_secs() {
        seconds @ ..120 => format!("{seconds} s"),
        seconds @ ..7200 => format!("{} min", seconds / 60),
        seconds @ ..172_800 => format!("{} h", seconds / 3600),
        seconds => format!("{} days", seconds / 86400),
    }
}

impl fmt::Display for Span {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}us", self.0.as_micros())
    }
}

/// Congestion control by name.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct CcName(pub CongestionControl);

impl Default for CcName {
    fn default() -> Self {
        Self(CongestionControl::Model)
    }
}

impl FromStr for CcName {
    type Err = String;
    fn from_str(text: &str) -> Result<Self, String> {
        if let Some(named) = CongestionControl::from_name(text) {
            return Ok(Self(named));
        }
        let Some(rate) = text.strip_prefix("rate:") else {
            return Err(format!("unknown congestion control {text:?}: {} or rate:RATE", CongestionControl::names()));
        };
        Ok(Self(CongestionControl::Rate(rate.parse::<Rate>()?.0)))
    }
}

impl fmt::Display for CcName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0 {
            CongestionControl::Rate(rate) => write!(f, "rate:{}bit", rate.bytes_per_sec() * 8.0),
            named => f.write_str(named.name()),
        }
    }
}

/// A value in the largest unit that leaves at least one before the point; each unit is `step` of the one before.
pub fn scaled(value: f64, step: f64, units: &[&str]) -> String {
    let mut value = value;
    let mut unit = 0;
    while value >= step * 0.9995 && unit + 1 < units.len() {
        value /= step;
        unit += 1;
    }
    let digits = if unit == 0 || value >= 100.0 { 0 } else { 1 };
    format!("{value:.digits$} {}", units[unit])
}

/// A rate in bits per second, as people read it.
pub fn rate(bits: f64) -> String {
    scaled(bits, 1000.0, &["bit/s", "kbit/s", "Mbit/s", "Gbit/s"])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rates_are_read_in_their_own_unit() {
        assert_eq!([rate(999.0), rate(94.13e6), rate(2400.0), rate(1.25e9)], ["999 bit/s", "94.1 Mbit/s", "2.4 kbit/s", "1.2 Gbit/s"]);
    }

    #[test]
    fn rates_times_and_names_are_read_or_refused_with_an_example() {
        assert_eq!("20mbit".parse::<Rate>().unwrap().0.mbit(), 20.0);
        assert_eq!(["1.5G", "500000", "2mbit"].map(|t| t.parse::<BitRate>().unwrap().0.mbit()), [1500.0, 0.5, 2.0]);
        assert_eq!(["2MB", "1mib/s", "8kB/s", "1gbps"].map(|t| t.parse::<Rate>().unwrap().0.mbit()), [16.0, 8.388_608, 0.064, 1000.0]);
        for (text, instead) in [("2M", "2mbit or 2MB"), ("500k/s", "500kbit or 500KB"), ("7", "7bit or 7B")] {
            assert!(text.parse::<Rate>().unwrap_err().contains(instead), "{:?}", text.parse::<Rate>());
        }
        assert_eq!("60ms".parse::<Span>().unwrap().0, Duration::from_millis(60));
        assert!("0mbit".parse::<Rate>().is_err());
        assert_eq!("64K".parse::<Amount>().unwrap(), Amount(65_536));
        assert!("64 pages".parse::<Amount>().unwrap_err().contains("64K"));
        let scale = |text: &str| text.parse::<Scale>().unwrap().rate(8e6);
        assert_eq!([scale("m"), scale("K"), Scale::default().rate(8e6)], ["8.00 Mbit/s", "976.56 KiB/s", "8.00 Mbit/s"]);
        assert!("x".parse::<Scale>().is_err());
        assert_eq!([size(1.5e6), size(2.5e9)], ["1.50 MB", "2.50 GB"]);
        assert!("20 apples".parse::<Rate>().unwrap_err().contains("20mbit"));
        assert_eq!("1.5GiB".parse::<Size>().unwrap().0, 3 << 29);
        assert_eq!(["20MB", "7", "64k"].map(|t| t.parse::<Size>().unwrap().0), [20_000_000, 7, 65_536]);
        assert!("20 apples".parse::<Size>().unwrap_err().contains("20GiB"));
        assert_eq!("7.5%".parse::<Share>().unwrap().permille(), 75);
        assert!("7.5".parse::<Share>().unwrap_err().contains("30%"));
        assert!("ten".parse::<Span>().is_err());
        assert_eq!("10s".parse::<Patience>().unwrap().0, Duration::from_secs(10));
        assert!("0.5s".parse::<Patience>().is_err() && "31s".parse::<Patience>().unwrap_err().contains("30s"));
        assert_eq!("15min".parse::<GiveUp>().unwrap().0, Duration::from_secs(900));
        assert_eq!("0".parse::<GiveUp>().unwrap().0, Duration::ZERO);
        assert_eq!("2h".parse::<GiveUp>().unwrap().0, Duration::from_secs(7200));
        assert!("5 parsecs".parse::<GiveUp>().unwrap_err().contains("15min") && "400d".parse::<GiveUp>().is_err());
        assert_eq!([12, 119, 840, 7200].map(|s| time(Duration::from_secs(s))), ["12 s", "119 s", "14 min", "2 h"]);
        for name in CongestionControl::NAMED.map(CongestionControl::name).into_iter().chain(["rate:100mbit"]) {
            let cc: CcName = name.parse().unwrap();
            assert_eq!(cc.to_string().parse::<CcName>().unwrap(), cc);
        }
        assert!("bbr9".parse::<CcName>().unwrap_err().contains("model"));
    }
}

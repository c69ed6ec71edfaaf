//! Active queue management by name: which, and with which parameters. How each works is in [`super::fq_codel`] and [`super::pie`].

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};

use super::units::{ParseQuantityError, Period, text_in_serde};

/// A queue that decides itself what to drop. Times count in the queue, lengths are IP bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub enum Aqm {
    /// RFC 8290: flows in queues of their own, CoDel (RFC 8289) in each.
    FqCodel(FqCodelParameters),
    /// RFC 8033.
    Pie(PieParameters),
}

/// Parameters of fq_codel; the defaults are those of RFC 8290 §5.2.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct FqCodelParameters {
    /// Queueing delay that may stand (RFC 8289 §4.3: TARGET).
    pub target: Period,
    /// How long it may be above the target before the first drop (INTERVAL).
    pub interval: Period,
    /// Number of queues; flows are told apart by a hash.
    pub flows: u32,
    /// Bytes that a queue may send in its turn.
    pub quantum: u32,
    /// Mark instead of dropping what can be marked. Linux does so by default; here it has to be asked for.
    pub ecn: bool,
}

/// Parameters of PIE; the defaults are those of RFC 8033 §4.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct PieParameters {
    /// Queueing delay aimed at (QDELAY_REF).
    pub target: Period,
    /// Time between two updates of the drop probability (T_UPDATE).
    pub update: Period,
    /// How long a burst may last before anything is dropped early (MAX_BURST).
    pub burst: Period,
    /// Mark instead of dropping, up to a probability of 10 % (RFC 8033 §5.1).
    pub ecn: bool,
}

impl Default for FqCodelParameters {
    fn default() -> Self {
        Self { target: Period::from_millis(5), interval: Period::from_millis(100), flows: 1024, quantum: 1500, ecn: false }
    }
}

impl Default for PieParameters {
    fn default() -> Self {
        Self { target: Period::from_millis(15), update: Period::from_millis(15), burst: Period::from_millis(150), ecn: false }
    }
}

impl Aqm {
    /// Packets that it holds at most where nobody gave a limit: RFC 8290 §5.2.1 (10240) and the default of Linux for PIE (1000).
    pub fn usual_limit(self) -> u64 {
        match self {
            Self::FqCodel(_) => 10_240,
            Self::Pie(_) => 1_000,
        }
    }
}

impl FromStr for Aqm {
    type Err = ParseQuantityError;

    /// `fq_codel`, `fq_codel:target=5ms:interval=100ms:flows=1024:quantum=1500:ecn`, `pie:target=15ms:update=15ms:burst=150ms:ecn`.
    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let err = || {
            ParseQuantityError::new(
                text,
                "a queue discipline: fq_codel[:target=5ms][:interval=100ms][:flows=1024][:quantum=1500][:ecn], \
                 pie[:target=15ms][:update=15ms][:burst=150ms][:ecn] or none",
            )
        };
        let mut words = text.split(':');
        let mut aqm = match words.next() {
            Some("fq_codel") => Self::FqCodel(FqCodelParameters::default()),
            Some("pie") => Self::Pie(PieParameters::default()),
            _ => return Err(err()),
        };
        let period = |value: &str| value.parse().ok().filter(|p: &Period| !p.0.is_zero()).ok_or_else(err);
        let number = |value: &str| value.parse().ok().filter(|n: &u32| (1..=65_536).contains(n)).ok_or_else(err);
        for word in words {
            match (&mut aqm, word.split_once('=').unwrap_or((word, ""))) {
                (Self::FqCodel(p), ("target", value)) => p.target = period(value)?,
                (Self::FqCodel(p), ("interval", value)) => p.interval = period(value)?,
                (Self::FqCodel(p), ("flows", value)) => p.flows = number(value)?,
                (Self::FqCodel(p), ("quantum", value)) => p.quantum = number(value)?,
                (Self::FqCodel(p), ("ecn", "")) => p.ecn = true,
                (Self::Pie(p), ("target", value)) => p.target = period(value)?,
                (Self::Pie(p), ("update", value)) => p.update = period(value)?,
                (Self::Pie(p), ("burst", value)) => p.burst = period(value)?,
                (Self::Pie(p), ("ecn", "")) => p.ecn = true,
                _ => return Err(err()),
            }
        }
        Ok(aqm)
    }
}

impl fmt::Display for Aqm {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let ecn = match self {
            Self::FqCodel(p) => {
                let usual = FqCodelParameters::default();
                f.write_str("fq_codel")?;
                for (name, value, usual) in [("target", p.target, usual.target), ("interval", p.interval, usual.interval)] {
                    if value != usual {
                        write!(f, ":{name}={value}")?;
                    }
                }
                for (name, value, usual) in [("flows", p.flows, usual.flows), ("quantum", p.quantum, usual.quantum)] {
                    if value != usual {
                        write!(f, ":{name}={value}")?;
                    }
                }
                p.ecn
            }
            Self::Pie(p) => {
                let usual = PieParameters::default();
                f.write_str("pie")?;
                let all = [("target", p.target, usual.target), ("update", p.update, usual.update), ("burst", p.burst, usual.burst)];
                for (name, value, usual) in all {
                    if value != usual {
                        write!(f, ":{name}={value}")?;
                    }
                }
                p.ecn
            }
        };
        if ecn { f.write_str(":ecn") } else { Ok(()) }
    }
}

text_in_serde!(Aqm);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_and_parameters_read_and_print() {
        for text in
            ["fq_codel", "pie", "fq_codel:target=2ms:interval=50ms:flows=1:quantum=300:ecn", "pie:target=20ms:update=30ms:burst=50ms:ecn"]
        {
            assert_eq!(text.parse::<Aqm>().unwrap().to_string(), text);
        }
        for text in ["", "red", "fq_codel:5ms", "fq_codel:target=0", "fq_codel:flows=0", "pie:flows=4", "pie:ecn=yes", "fq_codel:"] {
            let error = text.parse::<Aqm>().unwrap_err().to_string();
            assert!(error.contains("fq_codel["), "{text}: {error}");
        }
    }
}

//! Jitter: how the delay of a link varies from packet to packet.

use std::fmt;
use std::str::FromStr;
use std::time::Duration;

use serde::{Deserialize, Serialize};

use super::random::Dice;
use super::units::{ParseQuantityError, text_in_serde};

/// The shape of jitter; its size is the link's `jitter`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub enum JitterDist {
    /// Uniform between -jitter and +jitter.
    #[default]
    Uniform,
    /// Normal with standard deviation `jitter`, cut at four of them.
    Normal,
    /// Pareto of shape 3 moved to mean 0, standard deviation `jitter`: never much early, at times very late. Cut at twenty.
    Pareto,
}

/// Square root of 3/4: the standard deviation of a Pareto variable of shape 3 and minimum 1.
const PARETO_3_SD: f64 = 0.866_025_403_784_438_6;

impl JitterDist {
    /// Nanoseconds to add to the delay, negative for early.
    pub(crate) fn sample(self, jitter_ns: u64, dice: &mut Dice) -> i64 {
        let size = jitter_ns as f64;
        let x = match self {
            Self::Uniform => dice.signed_unit(),
            Self::Normal => dice.normal().clamp(-4.0, 4.0),
            Self::Pareto => ((dice.unit().cbrt().recip() - 1.5) / PARETO_3_SD).min(20.0),
        };
        (x * size) as i64
    }

    /// The earliest that a packet can be, in nanoseconds before the mean.
    pub(crate) fn earliest(self, jitter_ns: u64) -> u64 {
        let size = jitter_ns as f64;
        let x = match self {
            Self::Uniform => 1.0,
            Self::Normal => 4.0,
            Self::Pareto => 0.5 / PARETO_3_SD,
        };
        (x * size).ceil() as u64
    }
}

/// `base` moved by `by` nanoseconds, not below zero.
pub(crate) fn shifted(base: Duration, by: i64) -> Duration {
    if by >= 0 { base + Duration::from_nanos(by.unsigned_abs()) } else { base.saturating_sub(Duration::from_nanos(by.unsigned_abs())) }
}

impl FromStr for JitterDist {
    type Err = ParseQuantityError;
    fn from_str(text: &str) -> Result<Self, Self::Err> {
        match text {
            "uniform" => Ok(Self::Uniform),
            "normal" => Ok(Self::Normal),
            "pareto" => Ok(Self::Pareto),
            _ => Err(ParseQuantityError::new(text, "a jitter distribution: uniform, normal or pareto")),
        }
    }
}

impl fmt::Display for JitterDist {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Uniform => "uniform",
            Self::Normal => "normal",
            Self::Pareto => "pareto",
        })
    }
}

text_in_serde!(JitterDist);

#[cfg(test)]
mod tests {
    use super::*;
    use crate::link::random::Purpose;

    fn moments(dist: JitterDist) -> (f64, f64, i64) {
        let mut dice = Dice::new(3, Purpose::Jitter);
        let samples: Vec<i64> = (0..400_000).map(|_| dist.sample(1_000_000, &mut dice)).collect();
        let n = samples.len() as f64;
        let mean = samples.iter().sum::<i64>() as f64 / n;
        let var = samples.iter().map(|&x| (x as f64 - mean).powi(2)).sum::<f64>() / n;
        (mean, var.sqrt(), samples.iter().copied().min().unwrap_or(0))
    }

    #[test]
    fn every_shape_keeps_the_mean_delay() {
        for dist in [JitterDist::Uniform, JitterDist::Normal, JitterDist::Pareto] {
            let (mean, _, min) = moments(dist);
            assert!(mean.abs() < 20_000.0, "{dist}: mean {mean} ns of 1 ms");
            assert!(min.unsigned_abs() <= dist.earliest(1_000_000), "{dist}: {min}");
        }
    }

    #[test]
    fn spread_is_what_the_shape_says() {
        assert!((moments(JitterDist::Uniform).1 - 577_350.0).abs() < 5_000.0);
        assert!((moments(JitterDist::Normal).1 - 1_000_000.0).abs() < 10_000.0);
        // The tail of a Pareto of shape 3 makes its sample deviation wander; the cut at 20 takes a little.
        let pareto = moments(JitterDist::Pareto).1;
        assert!((800_000.0..1_100_000.0).contains(&pareto), "{pareto}");
    }
}

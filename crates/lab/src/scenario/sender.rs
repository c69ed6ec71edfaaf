//! Senders of bulk data where there are several.

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};

use super::Congestion;
use crate::link::{ParseQuantityError, text_in_serde};
use crate::sim::QuicCongestion;

/// Most of them.
const MOST: usize = 16;

/// A sender of bulk data.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub enum Sender {
    /// A noctule node, with the congestion control of the run.
    Noctule,
    /// QUIC, which stands for TCP with this congestion control.
    Quic(QuicCongestion),
}

impl Sender {
    /// Its name with its congestion control, `cc` being that of noctule.
    pub fn of(self, cc: Congestion) -> String {
        if self == Self::Noctule { format!("noctule {cc}") } else { self.to_string() }
    }
}

impl FromStr for Sender {
    type Err = ParseQuantityError;
    fn from_str(text: &str) -> Result<Self, Self::Err> {
        match text {
            "noctule" => Ok(Self::Noctule),
            "quic-cubic" => Ok(Self::Quic(QuicCongestion::Cubic)),
            "quic-reno" => Ok(Self::Quic(QuicCongestion::Reno)),
            "quic-bbr" => Ok(Self::Quic(QuicCongestion::Bbr)),
            _ => Err(ParseQuantityError::new(text, "a sender: noctule, quic-cubic, quic-reno or quic-bbr")),
        }
    }
}

impl fmt::Display for Sender {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Noctule => f.write_str("noctule"),
            Self::Quic(congestion) => congestion.fmt(f),
        }
    }
}

text_in_serde!(Sender);

/// A list of them on the command line: `noctule,quic-cubic`.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Senders(pub Vec<Sender>);

impl FromStr for Senders {
    type Err = String;
    fn from_str(text: &str) -> Result<Self, String> {
        let list: Vec<Sender> =
            text.split(',').map(|name| name.parse().map_err(|e: ParseQuantityError| e.to_string())).collect::<Result<_, _>>()?;
        if list.len() > MOST { Err(format!("{} senders are more than {MOST}", list.len())) } else { Ok(Self(list)) }
    }
}

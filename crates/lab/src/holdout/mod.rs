//! `noctule-lab holdout`: conditions that nobody tuned for, drawn from a wide distribution, and how the runs under them are spread.
//!
//! [`distribution`] says what is drawn, [`mod@line`] writes a draw as a command, [`summary`] reads what came of many.

pub mod command;
pub mod distribution;
pub mod line;
pub mod summary;

use std::fmt;

use serde::{Deserialize, Serialize};

use crate::scenario::Case;
use crate::sweep::{Cell, Second};

pub use command::HoldoutArgs;
pub use distribution::Conditions;

/// What runs under the conditions.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default, Serialize, Deserialize, clap::ValueEnum)]
#[serde(rename_all = "lowercase")]
pub enum Kind {
    /// A byte stream as fast as it goes (brtp), and the same again with the rate told.
    #[default]
    Bulk,
    /// Messages that fill a packet, as many as go, each with a lifetime.
    Btp,
    /// Small messages at a fixed rate, each echoed.
    Messages,
    /// Bulk beside QUIC over the same links (routers between them), and the same again with QUIC in its place.
    Beside,
}

impl Kind {
    /// All of them.
    pub const ALL: [Self; 4] = [Self::Bulk, Self::Btp, Self::Messages, Self::Beside];
}

impl fmt::Display for Kind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Bulk => "bulk",
            Self::Btp => "btp",
            Self::Messages => "messages",
            Self::Beside => "beside",
        })
    }
}

/// Which draw: the same three give the same conditions on every machine.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Draw {
    /// What runs.
    pub kind: Kind,
    /// Of the whole set.
    pub seed: u64,
    /// In the set, from 0.
    pub number: u64,
}

impl Draw {
    /// Its cell.
    ///
    /// # Errors
    /// The distribution drew what cannot be run, which is a fault of the distribution: in words.
    pub fn cell(self) -> Result<Cell, String> {
        let conditions = Conditions::draw(self);
        let line = line::of(&conditions);
        let scenario =
            line.scenario().map_err(|e| format!("draw {} of {} with seed {}: {line}: {e}", self.number, self.kind, self.seed))?;
        let name = format!("{} {}/{}", self.kind, self.seed, self.number);
        let second = match self.kind {
            Kind::Bulk => Some(Second::Cc(line::told(&scenario))),
            Kind::Beside => Some(Second::Senders(vec![conditions.other; 2])),
            Kind::Btp | Kind::Messages => None,
        };
        let case = Case { name, cell: Vec::new(), scenario, expect: Default::default(), command: Some(line.to_string()) };
        Ok(Cell { case, second, draw: Some(self) })
    }
}

/// The cells of a set: `count` of them from `first` on.
///
/// # Errors
/// As [`Draw::cell`].
pub fn cells(kind: Kind, seed: u64, first: u64, count: u64) -> Result<Vec<Cell>, String> {
    (first..first.saturating_add(count)).map(|number| Draw { kind, seed, number }.cell()).collect()
}

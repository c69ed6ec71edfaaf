//! Which cells of a list a worker runs: one by its number, or every N-th; the number from the command line or from what started the worker.

use std::fmt;
use std::str::FromStr;

/// Variables in which schedulers put the number of a task, and from what they count.
///
/// Slurm and HyperQueue number an array as their user says (`--array=0-99`), Kubernetes an indexed job from 0, GNU parallel its jobs from 1.
pub const VARIABLES: [(&str, usize); 4] = [("SLURM_ARRAY_TASK_ID", 0), ("HQ_TASK_ID", 0), ("JOB_COMPLETION_INDEX", 0), ("PARALLEL_SEQ", 1)];

/// Cells of a list.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Which {
    /// This one, counted from 0.
    One(usize),
    /// Every `of`-th from `number` - 1 on.
    Shard(Shard),
}

/// `I/N`: the I-th of N equal parts, counted from 1.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Shard {
    /// From 1 to `of`.
    pub number: usize,
    /// How many there are.
    pub of: usize,
}

/// A number that cannot be had, or fits nothing.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum WhichError {
    /// Nothing says which.
    #[error(
        "no cell is named: give its number, --shard I/N, or start this where one of SLURM_ARRAY_TASK_ID, HQ_TASK_ID, JOB_COMPLETION_INDEX and \
         PARALLEL_SEQ is set"
    )]
    Nowhere,
    /// Several do.
    #[error("{} are all set: say by --index-from which of them counts", .0.join(" and "))]
    Several(Vec<&'static str>),
    /// The variable that was asked for is not there.
    #[error("--index-from {0}: it is not set")]
    Unset(&'static str),
    /// Its value is no number.
    #[error("{variable}={value} is not a number from {from} on")]
    NotANumber {
        /// Which variable.
        variable: &'static str,
        /// What it holds.
        value: String,
        /// The least that it may hold.
        from: usize,
    },
    /// There is no such cell.
    #[error("there is no cell {number}: the list has {cells}, 0 to {}", cells - 1)]
    NoCell {
        /// What was asked for.
        number: usize,
        /// How many there are.
        cells: usize,
    },
    /// There is no such part.
    #[error("{variable} says task {index}, counted from 0, of --shards {of}: it has to be below {of}")]
    NoShard {
        /// Which variable.
        variable: &'static str,
        /// What it says, counted from 0.
        index: usize,
        /// How many parts there are.
        of: usize,
    },
    /// The list is empty.
    #[error("the list has no cells")]
    Empty,
}

impl FromStr for Shard {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let err = || format!("`{text}` is not a part such as 3/16 (the third of sixteen)");
        let (number, of) = text.split_once('/').ok_or_else(err)?;
        let (number, of) = (number.parse().map_err(|_| err())?, of.parse().map_err(|_| err())?);
        if number == 0 || number > of { Err(err()) } else { Ok(Self { number, of }) }
    }
}

impl fmt::Display for Shard {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.number, self.of)
    }
}

/// What the command line says.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Asked<'a> {
    /// A number.
    pub number: Option<usize>,
    /// A part.
    pub shard: Option<Shard>,
    /// So many parts, the number of ours from the environment.
    pub shards: Option<usize>,
    /// From this variable.
    pub index_from: Option<&'a str>,
}

impl Which {
    /// From the command line, else from the environment.
    pub fn of(asked: Asked<'_>, env: impl Fn(&str) -> Option<String>) -> Result<Self, WhichError> {
        if let Some(number) = asked.number {
            return Ok(Self::One(number));
        }
        if let Some(shard) = asked.shard {
            return Ok(Self::Shard(shard));
        }
        let (variable, index) = index(asked.index_from, env)?;
        match asked.shards {
            None => Ok(Self::One(index)),
            Some(of) if index < of => Ok(Self::Shard(Shard { number: index + 1, of })),
            Some(of) => Err(WhichError::NoShard { variable, index, of }),
        }
    }

    /// Those of a list; a part may be empty.
    pub fn of_list<T>(self, list: Vec<T>) -> Result<Vec<(usize, T)>, WhichError> {
        let cells = list.len();
        if cells == 0 {
            return Err(WhichError::Empty);
        }
        if let Self::One(number) = self
            && number >= cells
        {
            return Err(WhichError::NoCell { number, cells });
        }
        let is_ours = |i: usize| match self {
            Self::One(number) => i == number,
            Self::Shard(shard) => i % shard.of == shard.number - 1,
        };
        Ok(list.into_iter().enumerate().filter(|&(i, _)| is_ours(i)).collect())
    }
}

/// The variable that counts, and its number from 0.
fn index(only: Option<&str>, env: impl Fn(&str) -> Option<String>) -> Result<(&'static str, usize), WhichError> {
    let candidates = VARIABLES.into_iter().filter(|(name, _)| only.is_none_or(|only| only == *name));
    let set: Vec<_> = candidates.clone().filter_map(|(name, from)| env(name).map(|value| (name, from, value))).collect();
    match (&set[..], only) {
        ([], Some(_)) => Err(candidates.map(|(name, _)| name).next().map_or(WhichError::Nowhere, WhichError::Unset)),
        ([], None) => Err(WhichError::Nowhere),
        ([(variable, from, value)], _) => {
            let number = value.trim().parse::<usize>().ok().and_then(|number| number.checked_sub(*from));
            let wrong = || WhichError::NotANumber { variable, value: value.clone(), from: *from };
            number.map(|number| (*variable, number)).ok_or_else(wrong)
        }
        (several, _) => Err(WhichError::Several(several.iter().map(|(name, ..)| *name).collect())),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn which(asked: Asked<'_>, env: &[(&str, &str)]) -> Result<Which, String> {
        let get = |name: &str| env.iter().find(|(key, _)| *key == name).map(|(_, value)| (*value).to_owned());
        Which::of(asked, get).map_err(|e| e.to_string())
    }

    #[test]
    fn the_number_comes_from_whatever_started_the_worker() {
        let nothing = Asked::default();
        for (name, value) in [("SLURM_ARRAY_TASK_ID", "7"), ("HQ_TASK_ID", "7"), ("JOB_COMPLETION_INDEX", "7"), ("PARALLEL_SEQ", "8")] {
            assert_eq!(which(nothing, &[(name, value)]), Ok(Which::One(7)), "{name}");
            let shard = Which::Shard(Shard { number: 8, of: 16 });
            assert_eq!(which(Asked { shards: Some(16), ..nothing }, &[(name, value)]), Ok(shard), "{name}");
        }
        // What the command line says counts more.
        assert_eq!(which(Asked { number: Some(3), ..nothing }, &[("HQ_TASK_ID", "7")]), Ok(Which::One(3)));
    }

    #[test]
    fn a_number_that_is_not_clear_is_refused() {
        let nothing = Asked::default();
        let both = [("SLURM_ARRAY_TASK_ID", "7"), ("PARALLEL_SEQ", "2")];
        assert!(which(nothing, &[]).unwrap_err().contains("PARALLEL_SEQ"));
        assert!(which(nothing, &both).unwrap_err().contains("SLURM_ARRAY_TASK_ID and PARALLEL_SEQ"));
        assert_eq!(which(Asked { index_from: Some("PARALLEL_SEQ"), ..nothing }, &both), Ok(Which::One(1)));
        assert!(which(Asked { index_from: Some("HQ_TASK_ID"), ..nothing }, &both).unwrap_err().contains("not set"));
        assert!(which(nothing, &[("PARALLEL_SEQ", "0")]).unwrap_err().contains("from 1 on"));
        assert!(which(nothing, &[("HQ_TASK_ID", "x")]).unwrap_err().contains("HQ_TASK_ID=x"));
        assert!(which(Asked { shards: Some(4), ..nothing }, &[("SLURM_ARRAY_TASK_ID", "4")]).unwrap_err().contains("below 4"));
    }

    #[test]
    fn parts_hold_every_cell_once() {
        let list: Vec<usize> = (100..117).collect();
        let mut seen: Vec<(usize, usize)> = Vec::new();
        for number in 1..=5 {
            seen.extend(Which::Shard(Shard { number, of: 5 }).of_list(list.clone()).unwrap());
        }
        seen.sort_unstable();
        assert_eq!(seen, list.iter().copied().enumerate().collect::<Vec<_>>());
        assert_eq!(Which::One(16).of_list(list.clone()).unwrap(), [(16, 116)]);
        assert!(Which::One(17).of_list(list).unwrap_err().to_string().contains("0 to 16"));
        for text in ["0/4", "5/4", "1", "1/0", "a/b"] {
            assert!(text.parse::<Shard>().is_err(), "{text}");
        }
    }
}

//! A published table as CSV (`rate,delay,loss,mbit`), to be printed beside ours.

use std::path::{Path, PathBuf};

use super::summary::{Cell, Summary};

/// A table that cannot be read.
#[derive(Debug, thiserror::Error)]
pub enum BesideError {
    /// Not at all.
    #[error("{path}: {source}")]
    Read {
        /// Which file.
        path: PathBuf,
        /// Why.
        source: std::io::Error,
    },
    /// A line of it.
    #[error("{path}, line {line}: {reason}")]
    Line {
        /// Which file.
        path: PathBuf,
        /// Counted from 1.
        line: usize,
        /// What is wrong.
        reason: String,
    },
    /// None of its rows is a cell of the matrix.
    #[error("{path}: none of its {rows} rows is a cell of this matrix")]
    Strange {
        /// Which file.
        path: PathBuf,
        /// How many it has.
        rows: usize,
    },
}

/// A published table.
#[derive(Debug, Clone)]
pub struct Beside {
    /// Name of its file without the ending: the name of its column.
    pub name: String,
    rows: Vec<Row>,
    path: PathBuf,
}

#[derive(Debug, Clone)]
struct Row {
    settings: Vec<(String, String)>,
    mbit: f64,
}

impl Beside {
    /// Reads a file.
    pub fn read(path: &Path) -> Result<Self, BesideError> {
        let text = std::fs::read_to_string(path).map_err(|source| BesideError::Read { path: path.to_owned(), source })?;
        Self::parse(&text, path)
    }

    /// Reads the text of the file `path`: a head that names keys of a link and `mbit`, then one cell per line. Lines that begin with
    /// `#` say where the figures come from.
    pub fn parse(text: &str, path: &Path) -> Result<Self, BesideError> {
        let wrong = |line: usize, reason: String| BesideError::Line { path: path.to_owned(), line: line + 1, reason };
        let mut lines = text.lines().enumerate().filter(|(_, line)| !line.trim().is_empty() && !line.starts_with('#'));
        let Some((at, head)) = lines.next() else {
            return Err(wrong(0, "a head such as rate,delay,loss,mbit is missing".to_owned()));
        };
        let keys: Vec<&str> = head.split(',').map(str::trim).collect();
        if keys.iter().filter(|key| **key == "mbit").count() != 1 || keys.len() < 2 {
            return Err(wrong(at, format!("the head `{head}` has to name `mbit` once and at least one key of a link")));
        }
        let mut rows = Vec::new();
        for (at, line) in lines {
            let values: Vec<&str> = line.split(',').map(str::trim).collect();
            if values.len() != keys.len() {
                return Err(wrong(at, format!("{} values under a head of {}", values.len(), keys.len())));
            }
            let mut row = Row { settings: Vec::new(), mbit: 0.0 };
            for (&key, &value) in keys.iter().zip(&values) {
                if key == "mbit" {
                    let mbit = value.parse().ok().filter(|m: &f64| m.is_finite() && *m >= 0.0);
                    row.mbit = mbit.ok_or_else(|| wrong(at, format!("`{value}` is no number of Mbit/s")))?;
                } else {
                    crate::link::LinkSpec::default().set(key, value).map_err(|e| wrong(at, e.to_string()))?;
                    row.settings.push((key.to_owned(), value.to_owned()));
                }
            }
            rows.push(row);
        }
        let name = path.file_stem().map(|stem| stem.to_string_lossy().into_owned()).unwrap_or_default();
        Ok(Self { name, rows, path: path.to_owned() })
    }

    /// The figure for a cell: that of the first row whose every value its first link has, however it is written.
    fn of(&self, cell: &Cell) -> Option<f64> {
        let link = &cell.scenario.hops.first()?.forward;
        let is_this = |row: &&Row| {
            let mut other = link.clone();
            row.settings.iter().all(|(key, value)| other.set(key, value).is_ok()) && other == *link
        };
        self.rows.iter().find(is_this).map(|row| row.mbit)
    }

    /// Puts the table beside the cells.
    pub fn join(&self, summary: &mut Summary) -> Result<(), BesideError> {
        for cell in &mut summary.cells {
            cell.beside_mbit = self.of(cell);
        }
        if summary.cells.iter().all(|cell| cell.beside_mbit.is_none()) {
            return Err(BesideError::Strange { path: self.path.clone(), rows: self.rows.len() });
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::super::summary::tests::{case, outcome};
    use super::*;

    fn parse(text: &str) -> Result<Beside, String> {
        Beside::parse(text, Path::new("bats.csv")).map_err(|e| e.to_string())
    }

    #[test]
    fn rows_find_their_cells_however_the_values_are_written() {
        let table = parse("# a paper, table 1\nrate,delay,loss,mbit\n1gbit,10ms,2%,950\n1000mbit,0.1s,0.2,380.5\n").unwrap();
        let cells = [
            case(&[("rate", "1000mbit"), ("delay", "10ms"), ("loss", "0.02")], 7),
            case(&[("rate", "1gbit"), ("delay", "100ms"), ("loss", "20%")], 7),
            case(&[("rate", "1gbit"), ("delay", "100ms"), ("loss", "10%")], 7),
        ];
        let mut summary = Summary::of(&cells, vec![Ok(outcome(7, 90.0)); 3]);
        table.join(&mut summary).unwrap();
        assert_eq!(summary.cells.iter().map(|c| c.beside_mbit).collect::<Vec<_>>(), [Some(950.0), Some(380.5), None]);
        assert_eq!(table.name, "bats");
    }

    #[test]
    fn what_is_wrong_in_a_table_is_named_with_its_line() {
        for (text, names) in [
            ("", "head"),
            ("rate,loss\n", "mbit"),
            ("rate,mbit\n1gbit,950,3\n", "line 2"),
            ("rate,mbit\n1gbit,fast\n", "fast"),
            ("rate,mbit\n1000,950\n", "1000"),
            ("speed,mbit\n1gbit,950\n", "speed"),
        ] {
            let error = parse(text).expect_err(text);
            assert!(error.contains(names), "{text}: {error}");
        }
        let table = parse("rate,mbit\n2gbit,950\n").unwrap();
        let mut summary = Summary::of(&[case(&[("rate", "1gbit")], 7)], vec![Ok(outcome(7, 90.0))]);
        assert!(table.join(&mut summary).unwrap_err().to_string().contains("none of its 1 rows"));
    }
}

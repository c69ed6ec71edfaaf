//! Lists of cells: from scenario files, from a grid of flags, from draws, and from the JSON that `cells` prints.

use std::fmt::Write;
use std::path::{Path, PathBuf};

use super::cell::Cell;
use crate::scenario::{FileError, ScenarioFile};

/// A list that cannot be read.
#[derive(Debug, thiserror::Error)]
pub enum ListError {
    /// Not at all.
    #[error("{path}: {source}")]
    Read {
        /// Which file.
        path: PathBuf,
        /// Why.
        source: std::io::Error,
    },
    /// A scenario file that is wrong.
    #[error("{path}: {source}")]
    Scenario {
        /// Which file.
        path: PathBuf,
        /// What is wrong.
        source: Box<FileError>,
    },
    /// JSON that is no list of cells.
    #[error("{path}: not a list of cells as `noctule-lab cells` prints it: {source}")]
    Json {
        /// Which file.
        path: PathBuf,
        /// What is wrong, with its line.
        source: serde_json::Error,
    },
    /// A cell whose run contradicts itself.
    #[error("{path}: cell {number} ({name}): {source}")]
    Cell {
        /// Which file.
        path: PathBuf,
        /// Counted from 0.
        number: usize,
        /// Its name.
        name: String,
        /// What is wrong.
        source: Box<crate::scenario::ScenarioError>,
    },
    /// Something that a list of cells has no use for.
    #[error("{path}: --full belongs to scenario files; a list of cells is what it is")]
    Full {
        /// Which file.
        path: PathBuf,
    },
}

/// The cells of a file: a scenario (`.toml`), else JSON.
pub fn read(path: &Path, full: bool) -> Result<Vec<Cell>, ListError> {
    if path.extension().is_some_and(|end| end == "toml") {
        let wrong = |source| ListError::Scenario { path: path.to_owned(), source: Box::new(source) };
        let cases = ScenarioFile::read(path).and_then(|file| file.cases(full)).map_err(wrong)?;
        return Ok(cases.into_iter().map(Cell::from).collect());
    }
    if full {
        return Err(ListError::Full { path: path.to_owned() });
    }
    let text = std::fs::read_to_string(path).map_err(|source| ListError::Read { path: path.to_owned(), source })?;
    parse(path, &text)
}

/// The cells of the JSON text of the file `path`.
pub fn parse(path: &Path, text: &str) -> Result<Vec<Cell>, ListError> {
    let cells: Vec<Cell> = serde_json::from_str(text).map_err(|source| ListError::Json { path: path.to_owned(), source })?;
    for (number, cell) in cells.iter().enumerate() {
        let wrong = |source| ListError::Cell { path: path.to_owned(), number, name: cell.case.name.clone(), source: Box::new(source) };
        cell.case.scenario.check().map_err(wrong)?;
    }
    Ok(cells)
}

/// A JSON array with a cell per line.
pub fn to_json(cells: &[Cell]) -> Result<String, serde_json::Error> {
    let mut text = String::from("[");
    for (i, cell) in cells.iter().enumerate() {
        // Writing to a String cannot fail.
        let _ = write!(text, "{}\n{}", if i > 0 { "," } else { "" }, serde_json::to_string(cell)?);
    }
    text.push_str("\n]\n");
    Ok(text)
}

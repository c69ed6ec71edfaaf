//! `noctule-lab export`: the page of a run as one file that needs no server and no network.
//!
//! It is the same page. Instead of asking a server it looks up the answers, which stand in it under the paths that would have been asked for.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use clap::Args;
use serde_json::Value;

use super::assets::{INDEX, SCRIPTS, STYLE, UPLOT_LICENSE, UPLOT_STYLE};
use super::store::{ITSELF, Store};
use super::tables::Tables;
use super::view::{CourseView, MatrixAsk, Ours, RunSummary, RunView};
use crate::report::count;
use crate::sweep::{Build, folder};

/// Cells whose own pages and courses are in the file; of the others there is the line in the table.
const MOST_DETAILS: usize = 1_000;

/// `noctule-lab export`.
#[derive(Debug, Clone, Args)]
pub struct ExportArgs {
    /// Folder with results.
    pub folder: PathBuf,
    /// The file to write: HTML.
    pub file: PathBuf,
    /// A published table to offer besides those in the program: rate,delay,loss,mbit. May be given several times.
    #[arg(long, value_name = "FILE.csv")]
    pub beside: Vec<PathBuf>,
}

/// Files that cannot be read, as far as they are named where there is nothing else.
const MOST_PROBLEMS: usize = 3;

type Failure = Box<dyn std::error::Error>;

impl ExportArgs {
    /// Writes the file.
    pub fn execute(&self) -> Result<ExitCode, Failure> {
        let tables = Tables::new(&self.beside)?;
        let (text, cells, left) = document(&self.folder, tables)?;
        folder::write_named(&self.file, text.as_bytes())?;
        let details = if left > 0 { format!(", {left} of them without a page of their own") } else { String::new() };
        eprintln!("{}: {}{details}; open it in a browser, it needs no server", self.file.display(), count(cells, "cell"));
        Ok(ExitCode::SUCCESS)
    }
}

/// The document, its cells, and how many of them have no details.
fn document(folder: &Path, tables: Tables) -> Result<(String, usize, usize), Failure> {
    let store = Store::new(folder, Build::of_this_program()?);
    let run = store.run(ITSELF)?;
    let view = RunView::of(RunSummary::of(&run, Ours::No), &run, Ours::No, 0, usize::MAX);
    if view.rows_total == 0 {
        return Err(nothing(folder, &store, &view.problems)?.into());
    }
    let base = format!("/api/runs/{ITSELF}");
    let mut answers: BTreeMap<String, Value> = BTreeMap::new();
    for table in tables.names().into_iter().map(Some).chain([Some("none"), None]) {
        // A table that does not fit, and results without axes, have no answer.
        if let Ok(matrix) = run.matrix(&tables, &MatrixAsk { beside: table.map(str::to_owned), ..MatrixAsk::default() })
            && table.is_none_or(|table| {
                table == "none"
                    || matrix
                        .planes
                        .iter()
                        .flat_map(|plane| plane.cells.iter().flatten().flatten())
                        .any(|square| square.beside_mbit.is_some())
            })
        {
            let query = table.map_or(String::new(), |table| format!("?beside={table}"));
            answers.insert(format!("{base}/matrix{query}"), serde_json::to_value(matrix)?);
        }
    }
    for row in view.rows.iter().take(MOST_DETAILS) {
        if let Ok(cell) = run.cell(&store, &row.id, Ours::No) {
            answers.insert(format!("{base}/cells/{}", row.id), serde_json::to_value(cell)?);
        }
        if row.has_samples
            && let Ok(course) = CourseView::of(&run, &row.id)
        {
            answers.insert(format!("{base}/cells/{}/samples", row.id), serde_json::to_value(course)?);
        }
    }
    let (cells, left) = (view.rows_total, view.rows_total.saturating_sub(MOST_DETAILS));
    answers.insert(base, serde_json::to_value(view)?);
    let title = std::fs::canonicalize(folder).ok().and_then(|path| path.file_name().map(|name| name.to_string_lossy().into_owned()));
    let data = serde_json::json!({ "title": title.unwrap_or_else(|| "results".to_owned()), "answers": answers });
    Ok((assembled(&data.to_string()), cells, left))
}

/// Why a folder makes no page: what in it cannot be read, and where there are results.
fn nothing(folder: &Path, store: &Store, problems: &[String]) -> Result<String, Failure> {
    let mut text = format!("{}: no results in it", folder.display());
    for problem in problems.iter().take(MOST_PROBLEMS) {
        text.push_str(&format!("; {problem}"));
    }
    if let Some(more @ 1..) = problems.len().checked_sub(MOST_PROBLEMS) {
        text.push_str(&format!("; and {more} more of the kind"));
    }
    // Folders below it are runs of their own. Where files of results cannot be read, it is among the names itself.
    let names = store.names()?;
    if let Some(name) = names.iter().find(|name| *name != ITSELF) {
        text.push_str(&format!("; there are some below it, for example in {}", folder.join(name).display()));
    } else if problems.is_empty() {
        text.push_str("; noctule-lab matrix --results makes some, and noctule-lab serve shows them");
    }
    Ok(text)
}

/// The page with its files and the data in it.
fn assembled(data: &str) -> String {
    // Of all that JSON may hold only `<` could end the element that it stands in.
    let data = data.replace('<', "\\u003c");
    // It may run what is in it, and load nothing at all.
    let policy = "<meta http-equiv=\"Content-Security-Policy\" content=\"default-src 'none'; script-src 'unsafe-inline'; style-src 'unsafe-inline'; img-src data:\">";
    let licence = format!("<!-- uPlot:\n{}\n-->", UPLOT_LICENSE.trim());
    let mut styles = format!("{policy}\n{licence}\n");
    for style in [UPLOT_STYLE, STYLE] {
        styles.push_str(&format!("<style>{style}</style>\n"));
    }
    let mut scripts = format!("<script type=\"application/json\" id=\"data\">{data}</script>\n");
    for (_, script) in SCRIPTS {
        scripts.push_str(&format!("<script>{}</script>\n", script.replace("</script", "<\\/script")));
    }
    let (head, rest) = INDEX.split_once("<!-- styles -->").unwrap_or((INDEX, ""));
    let (_, rest) = rest.split_once("<!-- end of styles -->").unwrap_or(("", rest));
    let (body, tail) = rest.split_once("<!-- scripts -->").unwrap_or((rest, ""));
    let (_, tail) = tail.split_once("<!-- end of scripts -->").unwrap_or(("", tail));
    format!("{head}{styles}{body}{scripts}{tail}")
}

#[cfg(test)]
mod tests {
    use super::super::store::tests::{cells, keep, record};
    use super::*;

    #[test]
    fn one_file_holds_everything_and_asks_nobody() {
        let dir = tempfile::tempdir().unwrap();
        for (i, cell) in cells().iter().enumerate() {
            let mut cell = cell.clone();
            // Names come from files of others.
            cell.case.name = "</script><script>alert(1)</script>".to_owned();
            keep(dir.path(), &record(i, &cell, 90.0));
        }
        let (text, cells, left) = document(dir.path(), Tables::new(&[]).unwrap()).unwrap();
        assert_eq!((cells, left), (4, 0));
        assert!(!text.contains("<script>alert(1)"));
        assert!(!text.contains("src=") && !text.contains("href=\"/"), "nothing is loaded");
        let (_, data) = text.split_once("id=\"data\">").unwrap();
        let data: Value = serde_json::from_str(data.split_once("</script>").unwrap().0).unwrap();
        let answers = data["answers"].as_object().unwrap();
        assert_eq!(answers["/api/runs/-"]["rows"].as_array().unwrap().len(), 4);
        assert!(answers.contains_key("/api/runs/-/matrix?beside=brtp-100mbit"));
        assert!(!answers.contains_key("/api/runs/-/matrix?beside=brtp-1gbit"));
        assert_eq!(answers.keys().filter(|key| key.contains("/cells/")).count(), 4);
    }

    #[test]
    fn a_folder_without_results_is_no_page() {
        let dir = tempfile::tempdir().unwrap();
        let said = |path: &Path| document(path, Tables::new(&[]).unwrap()).map(|_| ()).unwrap_err().to_string();
        assert!(said(dir.path()).contains("no results"));
        assert!(said(&dir.path().join("none")).ends_with("none: no such folder"));
        std::fs::write(dir.path().join("file"), "").unwrap();
        assert!(said(&dir.path().join("file")).ends_with("file: a file, not a folder"));
        // What is there and cannot be read is told, and is not called a folder below.
        std::fs::write(dir.path().join(format!("{}.json", "a".repeat(32))), "{").unwrap();
        let broken = said(dir.path());
        assert!(broken.contains("aaaa.json: not a result of a cell") && !broken.contains("/-"), "{broken}");
        assert!(!broken.contains("matrix --results"), "{broken}");
        keep(&dir.path().join("below"), &record(0, &cells()[0], 90.0));
        let both = said(dir.path());
        assert!(both.contains("/below") && both.contains("aaaa.json"), "{both}");
    }

    #[test]
    fn what_the_workers_said_is_not_in_it() {
        let dir = tempfile::tempdir().unwrap();
        keep(dir.path(), &record(0, &cells()[0], 90.0));
        std::fs::write(dir.path().join(".log"), "of this host").unwrap();
        assert!(!document(dir.path(), Tables::new(&[]).unwrap()).unwrap().0.contains("of this host"));
    }
}

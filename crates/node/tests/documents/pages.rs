//! The Markdown pages of the tree, line by line.

use super::root;
use std::fs;
use std::path::{Path, PathBuf};

pub struct Line {
    /// Page, relative to the root.
    pub page: String,
    pub number: usize,
    pub text: String,
    /// Between two fences.
    pub in_fence: bool,
}

impl Line {
    pub fn place(&self) -> String {
        format!("{}:{}", self.page, self.number)
    }

    /// The text between single backticks, and the rest of the line.
    pub fn code_and_prose(&self) -> (Vec<&str>, String) {
        let parts: Vec<&str> = self.text.split('`').collect();
        (parts.iter().skip(1).step_by(2).copied().collect(), parts.iter().step_by(2).copied().collect::<Vec<_>>().join("``"))
    }
}

/// Paths of all files of the tree, relative to the root: not what is built, hidden, or lent by a machine.
pub fn files() -> Vec<String> {
    fn walk(directory: &Path, found: &mut Vec<PathBuf>) {
        for entry in fs::read_dir(directory).unwrap().map(Result::unwrap) {
            let name = entry.file_name();
            let name = name.to_str().unwrap_or_default();
            let skipped = ["target", "lab-out", "shared", "__pycache__", "artifacts", ".git"];
            if entry.file_type().unwrap().is_dir() {
                if !skipped.contains(&name) {
                    walk(&entry.path(), found);
                }
            } else {
                found.push(entry.path());
            }
        }
    }
    let mut found = Vec::new();
    walk(&root(), &mut found);
    let relative = |p: PathBuf| p.strip_prefix(root()).unwrap().to_str().unwrap().to_owned();
    let mut found: Vec<String> = found.into_iter().map(relative).collect();
    found.sort();
    found
}

/// All lines of all pages; lines of a fence that end in a backslash are joined.
pub fn lines() -> Vec<Line> {
    let mut found: Vec<Line> = Vec::new();
    for page in files().into_iter().filter(|f| f.ends_with(".md")) {
        let (mut in_fence, mut goes_on) = (false, false);
        for (n, text) in super::read(&page).lines().enumerate() {
            if text.trim_start().starts_with("```") {
                in_fence = !in_fence;
                continue;
            }
            if goes_on {
                let last = &mut found.last_mut().unwrap().text;
                last.pop();
                last.push_str(text.trim_start());
            } else {
                found.push(Line { page: page.clone(), number: n + 1, text: text.to_owned(), in_fence });
            }
            goes_on = in_fence && text.ends_with('\\');
        }
    }
    assert!(found.len() > 3000, "{}", found.len());
    found
}

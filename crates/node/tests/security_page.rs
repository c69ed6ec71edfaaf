//! Every test and every option that SECURITY.md names exists.

mod support;

use std::collections::HashSet;
use std::fs;
use std::path::{Path, PathBuf};
use support::noctule;

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

/// The text between single backticks.
fn quoted(text: &str) -> Vec<&str> {
    text.lines().flat_map(|line| line.split('`').skip(1).step_by(2)).collect()
}

/// Names of all functions below a directory.
fn functions(directory: &Path, found: &mut HashSet<String>) {
    for path in fs::read_dir(directory).unwrap().map(|e| e.unwrap().path()) {
        if path.is_dir() {
            functions(&path, found);
        } else if path.extension().is_some_and(|e| e == "rs") {
            let text = fs::read_to_string(&path).unwrap();
            let names = text.lines().filter_map(|l| l.trim_start().trim_start_matches("async ").strip_prefix("fn "));
            found.extend(names.filter_map(|l| l.split(['(', '<']).next()).map(str::to_owned));
        }
    }
}

#[test]
fn every_flag_that_the_page_names_is_in_the_help_of_a_command() {
    let page = fs::read_to_string(root().join("SECURITY.md")).unwrap();
    let mut help = String::new();
    for command in ["node", "status", "reload", "send", "recv", "serve", "get", "perf", "ping", "keygen", "doctor"] {
        help += &String::from_utf8(noctule().args([command, "--help"]).output().unwrap().stdout).unwrap();
    }
    let known: HashSet<&str> = help.split(|c: char| !(c.is_ascii_alphanumeric() || c == '-')).filter(|w| w.starts_with("--")).collect();
    let flags = quoted(&page).into_iter().flat_map(str::split_whitespace).filter(|w| w.starts_with("--"));
    let missing: Vec<&str> = flags.map(|w| w.split('=').next().unwrap_or(w)).filter(|w| !known.contains(w)).collect();
    assert!(missing.is_empty(), "SECURITY.md names options that no command has: {missing:?}");
}

#[test]
fn every_test_that_the_page_names_is_in_the_tree() {
    let page = fs::read_to_string(root().join("SECURITY.md")).unwrap();
    let mut known = HashSet::new();
    functions(&root().join("crates"), &mut known);
    let is_test_name =
        |w: &&str| w.matches('_').count() >= 3 && w.bytes().all(|b| b.is_ascii_lowercase() || b.is_ascii_digit() || b == b'_');
    let named: Vec<&str> = quoted(&page).into_iter().filter(is_test_name).collect();
    assert!(named.len() > 20, "{}", named.len());
    let missing: Vec<&&str> = named.iter().filter(|n| !known.contains(**n)).collect();
    assert!(missing.is_empty(), "SECURITY.md names tests that are not there: {missing:?}");
}

//! Every test and every option that SECURITY.md names exists, and every promise and bound names a test.

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
    for command in [
        "node",
        "status",
        "reload",
        "send",
        "recv",
        "serve",
        "get",
        "perf",
        "ping",
        "keygen",
        "doctor",
        "proxy",
        "proxy serve",
        "proxy share",
    ] {
        help += &String::from_utf8(noctule().args(command.split(' ')).arg("--help").output().unwrap().stdout).unwrap();
    }
    let known: HashSet<&str> = help.split(|c: char| !(c.is_ascii_alphanumeric() || c == '-')).filter(|w| w.starts_with("--")).collect();
    let flags = quoted(&page).into_iter().flat_map(str::split_whitespace).filter(|w| w.starts_with("--"));
    let missing: Vec<&str> = flags.map(|w| w.split('=').next().unwrap_or(w)).filter(|w| !known.contains(w)).collect();
    assert!(missing.is_empty(), "SECURITY.md names options that no command has: {missing:?}");
}

/// Whether these words of the page are the name of a test.
fn is_test_name(words: &str) -> bool {
    words.matches('_').count() >= 3 && words.bytes().all(|b| b.is_ascii_lowercase() || b.is_ascii_digit() || b == b'_')
}

#[test]
fn every_promise_and_every_bound_names_a_test_that_holds_it() {
    let page = fs::read_to_string(root().join("SECURITY.md")).unwrap();
    let (mut is_held, mut rows) = (false, 0);
    for line in page.lines() {
        match line {
            "| promise | test |" | "| of | bound | test |" => is_held = true,
            line if !line.starts_with('|') => is_held = false,
            line if line.starts_with("|-") => {}
            line if is_held => {
                let last = line.trim_end_matches(" |").rsplit(" | ").next().unwrap();
                assert!(quoted(last).into_iter().any(is_test_name), "SECURITY.md promises this by no test: {line}");
                rows += 1;
            }
            _ => {}
        }
    }
    assert!(rows > 60, "{rows}");
}

#[test]
fn every_test_that_the_page_names_is_in_the_tree() {
    let page = fs::read_to_string(root().join("SECURITY.md")).unwrap();
    let mut known = HashSet::new();
    functions(&root().join("crates"), &mut known);
    let named: Vec<&str> = quoted(&page).into_iter().filter(|words| is_test_name(words)).collect();
    assert!(named.len() > 20, "{}", named.len());
    assert!(!page.contains("…`"), "names of tests are written out: {:?}", page.lines().find(|line| line.contains("…`")));
    let missing: Vec<&&str> = named.iter().filter(|n| !known.contains(**n)).collect();
    assert!(missing.is_empty(), "SECURITY.md names tests that are not there: {missing:?}");
}

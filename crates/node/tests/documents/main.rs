//! What the documents promise: an index that is up to date, links and files that exist, command lines that the program takes.

mod commands;
mod decisions;
mod figures;
mod links;
mod pages;
mod sentences;
mod specification;
mod summary;
mod words;

use std::fs;
use std::path::{Path, PathBuf};

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

fn read(path: &str) -> String {
    fs::read_to_string(root().join(path)).unwrap_or_else(|e| panic!("{path}: {e}"))
}

/// Compares a generated page with the one in the tree; with `NOCTULE_WRITE_PAGES=1` writes it (`./x index`).
fn expect_generated(path: &str, text: &str) {
    if std::env::var_os("NOCTULE_WRITE_PAGES").is_some_and(|v| v == "1") {
        fs::write(root().join(path), text).unwrap();
    }
    let found = fs::read_to_string(root().join(path)).unwrap_or_default();
    assert!(found == text, "{path} is not what its sources say. Write it anew: ./x index");
}

#[test]
fn no_page_has_the_marks_of_a_merge() {
    let is_mark = |line: &&str| line.starts_with("<<<<<<< ") || line.starts_with(">>>>>>> ") || *line == "=======";
    for page in pages::files().into_iter().filter(|file| file.ends_with(".md")) {
        assert_eq!(read(&page).lines().find(is_mark), None, "{page}");
    }
}

#[test]
fn commands_of_noctule_in_the_pages_are_such_as_it_takes() {
    assert!(commands::check("noctule", env!("CARGO_BIN_EXE_noctule")) > 100);
}

/// The commands of `./x` are the labels of its last `case`.
#[test]
fn commands_of_x_in_the_pages_are_such_as_it_takes() {
    let script = read("x");
    let known = |word: &str| script.lines().any(|l| l.trim_start().starts_with(&format!("{word}) shift")));
    let mut checked = 0;
    for line in pages::lines() {
        for rest in line.text.split("./x ").skip(1) {
            let word = rest.split(|c: char| !c.is_ascii_lowercase()).next().unwrap();
            assert!(known(word), "{}: ./x {word}", line.place());
            checked += 1;
        }
    }
    assert!(checked > 8, "{checked}");
}

//! Command lines of `noctule-lab` in the documents are such as it takes.

#[path = "../../node/tests/documents/commands.rs"]
mod commands;
#[path = "../../node/tests/documents/pages.rs"]
mod pages;

use std::fs;
use std::path::{Path, PathBuf};

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

fn read(path: &str) -> String {
    fs::read_to_string(root().join(path)).unwrap_or_else(|e| panic!("{path}: {e}"))
}

#[test]
fn commands_of_the_laboratory_in_the_pages_are_such_as_it_takes() {
    assert!(commands::check("noctule-lab", env!("CARGO_BIN_EXE_noctule-lab")) > 60);
}

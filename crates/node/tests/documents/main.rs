//! What the documents promise: an index that is up to date, links and files that exist, command lines that the program takes.

mod decisions;
mod specification;

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

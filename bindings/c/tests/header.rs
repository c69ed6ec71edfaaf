//! The header is that of the source.
//!
//! cbindgen is a program and no dependency (docs/decisions/0188): `cargo install --locked cbindgen@0.29.4`. `./x test` installs it. What does not need it is checked in any case.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::process::Command;

/// The output differs between versions.
const VERSION: &str = "cbindgen 0.29.4";

fn here() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR"))
}

fn read(path: &str) -> String {
    std::fs::read_to_string(here().join(path)).unwrap_or_else(|e| panic!("{path}: {e}"))
}

fn sources() -> String {
    let mut files: Vec<PathBuf> = std::fs::read_dir(here().join("src")).unwrap().map(|entry| entry.unwrap().path()).collect();
    files.sort();
    files.iter().map(|path| std::fs::read_to_string(path).unwrap()).collect()
}

/// Where `./x test` puts it, or the one in PATH.
fn cbindgen() -> Option<PathBuf> {
    let target = PathBuf::from(env!("CARGO_TARGET_TMPDIR"));
    let own = target.parent().unwrap().join("tools/bin/cbindgen");
    let is_right = |program: &PathBuf| {
        Command::new(program).arg("--version").output().is_ok_and(|out| String::from_utf8_lossy(&out.stdout).trim() == VERSION)
    };
    [own, PathBuf::from("cbindgen")].into_iter().find(is_right)
}

#[test]
fn the_committed_header_is_what_cbindgen_makes_of_the_source() {
    let Some(cbindgen) = cbindgen() else {
        eprintln!("*** SKIPPED: there is no {VERSION} here (cargo install --locked {})", VERSION.replace(' ', "@"));
        return;
    };
    let out = Command::new(cbindgen).args(["--quiet", "--config", "cbindgen.toml", "."]).current_dir(here()).output().unwrap();
    assert!(out.status.success(), "{}", String::from_utf8_lossy(&out.stderr));
    let made = String::from_utf8(out.stdout).unwrap();
    if std::env::var_os("NOCTULE_WRITE_HEADER").is_some() {
        std::fs::write(here().join("include/noctule.h"), &made).unwrap();
    }
    assert!(
        made == read("include/noctule.h"),
        "include/noctule.h is not that of the source: NOCTULE_WRITE_HEADER=1 cargo test -p noctule-c --test header"
    );
}

/// Names that the source exports.
fn exported() -> BTreeSet<String> {
    let source = sources();
    let names = source.match_indices("#[unsafe(no_mangle)]\npub ").map(|(at, _)| {
        let line = source[at..].lines().nth(1).unwrap();
        line.split("fn ").nth(1).unwrap().split('(').next().unwrap().to_owned()
    });
    names.collect()
}

#[test]
fn the_header_declares_every_function_that_the_library_exports_and_no_other() {
    let header = read("include/noctule.h");
    let declared: BTreeSet<String> = header
        .lines()
        .filter(|line| !line.starts_with([' ', '#', '/', '*', '}']) && line.contains('(') && !line.starts_with("typedef"))
        .map(|line| line.split('(').next().unwrap().rsplit([' ', '*']).next().unwrap().to_owned())
        .collect();
    let exported = exported();
    assert!(exported.len() > 50, "{}", exported.len());
    assert_eq!(declared, exported);
    // What the library itself says.
    let library = std::env::current_exe().unwrap().parent().unwrap().join("libnoctule_c.so");
    let Ok(out) = Command::new("nm").args(["-D", "--defined-only"]).arg(library).output() else {
        eprintln!("*** SKIPPED: there is no nm here");
        return;
    };
    let symbols: BTreeSet<String> = String::from_utf8_lossy(&out.stdout)
        .lines()
        .filter_map(|line| line.rsplit(' ').next())
        .filter(|name| name.starts_with("noctule_"))
        .map(str::to_owned)
        .collect();
    assert_eq!(symbols, exported);
}

/// A panic that passed the border would end the program.
#[test]
fn every_exported_function_catches_panics_and_says_what_it_asks_of_its_caller() {
    let source = sources();
    // They only hand out text that exists.
    let plain = ["noctule_version", "noctule_last_error", "noctule_error_text"];
    for name in exported() {
        let at = source.find(&format!(" fn {name}(")).unwrap();
        let body = &source[at..at + source[at..].find("\n}\n").unwrap()];
        let has_border = ["call(", "call_count(", "open(session"].iter().any(|border| body.contains(border));
        assert!(has_border || plain.contains(&name.as_str()), "{name} lets a panic through");
        let start = source[..at].rfind("\n\n").unwrap();
        let words = &source[start..at];
        let same = words.contains("Threads, blocks");
        assert!(words.contains("Threads: ") || same, "{name}: which threads may call it?");
        assert!(words.contains("Blocks: ") || same, "{name}: does it block?");
        let takes_handle = body.lines().next().unwrap().contains("noctule_");
        assert!(
            !takes_handle || words.contains("rrors: ") || same || plain.contains(&name.as_str()) || words.contains("negative error"),
            "{name}: which errors?"
        );
    }
}
